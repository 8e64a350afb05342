"""Estimators that widemargin knows, each described beside its class.

A :class:`Descriptor` is all that the command line, model files, reports and comparisons need of an estimator. The
module of a built-in one is imported when it is asked for; one of your own is known once its module is imported. Names
that come from a file or a command line are only ever looked up here.
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

    ``kinds`` are NumPy's letters for kinds of numbers. Each letter of ``shape`` stands for one size: P problems, D
    coefficients of each, I input features, K classes; any other letter for a size that is the same wherever it stands.
    """

    kinds: str
    shape: str
    is_finite: bool = False
    least: float = float("-inf")


class Each(NamedTuple):
    """A fitted attribute with a number for each problem: a number for one problem, a vector for several."""

    kinds: str


class FeatureMap(NamedTuple):
    """A fitted attribute that maps rows to random features, or is None."""


class Bracket(NamedTuple):
    """What lies between the two bounds of a certificate, and how near the model is; ``{}`` is a percentage."""

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
    """An optimisation problem: its purpose in a sentence, the formula as HTML, and what it holds with its numbers."""

    purpose: str
    formula: str
    symbols: list[Symbol | str]


@dataclass(frozen=True)
class Descriptor:
    """What there is to know of an estimator beside its class.

    Parameters
    ----------
    estimator : type
        The class, a subclass of ``MarginClassifier``.
    command : str or None
        Its name on the command line; None if it has none.
    problem : callable
        From a fitted model to the :class:`Formula` that it solves.
    bracket : Bracket or callable, default=OPTIMUM
        What the certificate brackets, or a function of the model that returns it.
    fitted : dict
        Fitted attributes that the class adds to those of its bases: :class:`Array`, :class:`Each`,
        :class:`FeatureMap` or a type.
    not_saved : tuple of str
        Attributes that stay with the process that trained the model.
    saved_parameters : callable
        From a model to the parameters that a file holds in place of the model's own.
    check : callable
        Raises ModelFileError for a model that cannot predict; gets the model and the sizes of P, D, I and K.
    variants : dict
        Parameters of each variant that ``widemargin compare`` tries, by its name; ``""`` is the estimator itself.
    """

    estimator: type[Any]
    command: str | None
    problem: Callable[[Any], Formula]
    bracket: Bracket | Callable[[Any], Bracket] = OPTIMUM
    fitted: dict[str, Any] = field(default_factory=dict)
    not_saved: tuple[str, ...] = ()
    saved_parameters: Callable[[Any], dict[str, Any]] = lambda model: {}
    check: Callable[[Any, dict[str, int]], None] = lambda model, sizes: None
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.estimator.__name__


_REGISTERED: dict[str, Descriptor] = {}


def register(descriptor: Descriptor) -> None:
    """Make an estimator known to ``save``, ``load``, ``report`` and the command line.

    Parameters
    ----------
    descriptor : Descriptor
        A class that is defined once more, as in a notebook, replaces itself.
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
    """The descriptor of the class of that name; None if there is none."""
    if name in BUILT_IN and name not in _REGISTERED:
        import_module(f"{__package__}.{BUILT_IN[name]}")
    return _REGISTERED.get(name)


def descriptor_of(kind: type[Any]) -> Descriptor | None:
    """The descriptor of a class, or else of the first of its bases that has one; None if none has."""
    for each in kind.__mro__:
        found = _REGISTERED.get(each.__name__)
        if found is not None and found.estimator is each:
            return found
    return None


def descriptors() -> dict[str, Descriptor]:
    """All descriptors by the names of their classes: those of built-in estimators first."""
    for name in BUILT_IN:
        descriptor_named(name)
    return {name: _REGISTERED[name] for name in [*BUILT_IN, *(each for each in _REGISTERED if each not in BUILT_IN)]}


def fitted_attributes(kind: type[Any]) -> dict[str, Any]:
    """What a fitted estimator of this class may have, by name, with that of all its bases."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found |= vars(each).get("_fitted_attributes", {})
        descriptor = _REGISTERED.get(each.__name__)
        if descriptor is not None and descriptor.estimator is each:
            found |= descriptor.fitted
    return found
