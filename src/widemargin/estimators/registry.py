"""The registry of estimators; each module registers a descriptor of its own class.

A :class:`Descriptor` tells the command line, model files, reports and comparisons all they need to know about an
estimator. Modules of built-in estimators are imported on first use; your own must be imported first. Names that come
from a file or a command line are only ever looked up here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from widemargin.estimators import BUILT_IN

LABELS = "biufUO"


class Array(NamedTuple):
    """A fitted attribute that is an array.

    ``kinds`` are NumPy's dtype kinds. Each letter of ``shape`` is a size: P problems, D coefficients of each, I input
    features, K classes; any other letter is a size that must be the same in all attributes.
    """

    kinds: str
    shape: str
    is_finite: bool = False
    least: float = float("-inf")


class Each(NamedTuple):
    """A fitted attribute that is a number for one problem, and a vector for several."""

    kinds: str


class FeatureMap(NamedTuple):
    """A fitted attribute that maps rows to random features, or is None."""


class Bracket(NamedTuple):
    """What the two bounds of a certificate bracket, and how near the model is; ``{}`` is a percentage."""

    what: str
    near: str
    is_maximised: bool = False  # whether the model attains the lower bound
    quantity: str = "objective"


OPTIMUM = Bracket("The optimum", "this model is within {} of the best possible")
MARGIN = Bracket("The widest possible margin", "the margin of this model is within {} of it", True, "margin")


class Symbol(NamedTuple):
    """A symbol of a formula and its value: numbers of all problems, or HTML."""

    name: str  # HTML
    value: Any
    remark: str = ""


class Formula(NamedTuple):
    """An optimisation problem: its purpose in a sentence, the formula as HTML, and the values of its symbols."""

    purpose: str
    formula: str
    symbols: list[Symbol | str]


@dataclass(frozen=True)
class Descriptor:
    """Everything that other modules need to know about an estimator class.

    Parameters
    ----------
    estimator : type
        The class, a subclass of ``MarginClassifier``.
    command : str or None
        Name on the command line; None keeps it off the command line.
    problem : callable
        Returns the :class:`Formula` that a fitted model solves.
    bracket : Bracket or callable, default=OPTIMUM
        What the certificate brackets, or a function of the model that returns it.
    fitted : dict
        Fitted attributes that the class adds to its bases, each an :class:`Array`, :class:`Each`, :class:`FeatureMap`
        or a type.
    not_saved : tuple of str
        Attributes that are not saved.
    saved_parameters : callable
        Returns the parameters of a model that a file stores with another value.
    earlier : dict
        Parameters that files of earlier versions lack, with the values that these models have.
    check : callable
        Called with a model and the sizes P, D, I and K; raises ModelFileError if the model cannot predict.
    variants : dict
        Parameters of each variant that ``widemargin compare`` tries, by name; ``""`` is the estimator itself.
    """

    estimator: type[Any]
    command: str | None
    problem: Callable[[Any], Formula]
    bracket: Bracket | Callable[[Any], Bracket] = OPTIMUM
    fitted: dict[str, Any] = field(default_factory=dict)
    not_saved: tuple[str, ...] = ()
    saved_parameters: Callable[[Any], dict[str, Any]] = lambda model: {}
    earlier: dict[str, Any] = field(default_factory=dict)
    check: Callable[[Any, dict[str, int]], None] = lambda model, sizes: None
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})

    @property
    def name(self) -> str:
        return self.estimator.__name__

    @property
    def tuned(self) -> Descriptor | None:
        """The estimator that chooses parameters of this one by cross-validation: its name ends with CV."""
        return descriptors().get(f"{self.name}CV")


_REGISTERED: dict[str, Descriptor] = {}


def register(descriptor: Descriptor) -> None:
    """Make an estimator known to ``save``, ``load``, ``report`` and the command line.

    Parameters
    ----------
    descriptor : Descriptor
        Replaces an earlier descriptor of the same class, for classes that are redefined in a notebook.
    """
    kind, name = descriptor.estimator, descriptor.name
    origin = f"{kind.__module__}.{kind.__qualname__}"
    if name in BUILT_IN and origin != f"{__package__}.{BUILT_IN[name]}.{name}":
        raise ValueError(f"{name} is a built-in estimator: give {origin} another name.")
    for other in _REGISTERED.values():
        known = f"{other.estimator.__module__}.{other.estimator.__qualname__}"
        if known == origin:
            continue
        if other.name == name:
            raise ValueError(f"There is an estimator {name} already, {known}: give {origin} another name.")
        if descriptor.command is not None and other.command == descriptor.command:
            raise ValueError(f"The command {descriptor.command!r} of {origin} is that of {known}: choose another.")
    _REGISTERED[name] = descriptor


def descriptor_named(name: str) -> Descriptor | None:
    if name in BUILT_IN and name not in _REGISTERED:
        import_module(f"{__package__}.{BUILT_IN[name]}")
    return _REGISTERED.get(name)


def descriptor_of(kind: type[Any]) -> Descriptor | None:
    """The descriptor of a class, or of its first base that has one, or None."""
    return next(filter(None, map(_own_descriptor, kind.__mro__)), None)


def _own_descriptor(kind: type[Any]) -> Descriptor | None:
    found = _REGISTERED.get(kind.__name__)
    return found if found is not None and found.estimator is kind else None


def descriptors() -> dict[str, Descriptor]:
    """All descriptors by class name, built-in estimators first."""
    for name in BUILT_IN:
        descriptor_named(name)
    return {name: _REGISTERED[name] for name in [*BUILT_IN, *_REGISTERED]}


def fitted_attributes(kind: type[Any]) -> dict[str, Any]:
    """The fitted attributes of a class and all its bases, by name."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found |= vars(each).get("_fitted_attributes", {})
        descriptor = _own_descriptor(each)
        found |= {} if descriptor is None else descriptor.fitted
    return found
