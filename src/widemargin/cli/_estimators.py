"""Estimators by their names on the command line, with parameters from text."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from typing import Any

from widemargin.estimators import BUILT_IN
from widemargin.estimators.registry import Descriptor, descriptor_named, descriptors
from widemargin.sklearn_private import parameter_names, validate_parameters

DEFAULT = "kernel"
# Up to here a kernel machine takes seconds.
MAX_KERNEL_ROWS, MAX_KERNEL_FEATURES = 20_000, 2_000
_WORDS = {"none": None, "true": True, "false": False}


def find(name: str) -> Descriptor:
    """The estimator with this name on the command line, or of the class of this name."""
    plain = name.lower().replace("_", "-")
    for kind, module in BUILT_IN.items():  # most names are those of modules, and only one is imported then
        found = descriptor_named(kind) if plain == module.replace("_", "-") else None
        if found is not None and found.command == plain:
            return found
    commands = {each.command: each for each in descriptors().values() if each.command is not None}
    known = commands | {each.name.lower(): each for each in commands.values()}
    if plain not in known:
        similar = hint(plain, [*commands, *(each.name for each in commands.values())])
        raise ValueError(f"There is no estimator {name!r}: it must be one of {', '.join(commands)}{similar}")
    return known[plain]


def hint(name: str, known: Iterable[str]) -> str:
    """The end of an error message: a question about the most similar name, or a full stop."""
    by_lower = {each.lower(): each for each in known}
    similar = difflib.get_close_matches(name, by_lower.values(), n=1)  # C is nearer to Cs than to cv
    similar = similar or [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.4)]
    return f"; did you mean {similar[0]!r}?" if similar else "."


def kernel_for(n_rows: int, n_features: int) -> tuple[str, str]:
    """The kernel for so many rows if none is given, and why."""
    size = f"{n_rows:,} rows of {n_features:,} features"
    if n_rows <= MAX_KERNEL_ROWS and n_features <= MAX_KERNEL_FEATURES:
        return "rbf", f"as {size} are few enough for a nonlinear kernel"
    return "linear", f"with kernel=linear, as {size} are too many for a nonlinear kernel"


def parsed(settings: Iterable[str]) -> dict[str, Any]:
    """Parameters from ``NAME=VALUE``: Python numbers, lists and dicts, true, false, none; anything else is text."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = name.strip(), text.strip()
        if not equals or not name:
            raise ValueError(f"--param {setting!r} must be NAME=VALUE, such as C=10.")
        if name in found:
            raise ValueError(f"--param {name} is given twice.")
        try:
            found[name] = _WORDS[text.lower()] if text.lower() in _WORDS else ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found[name] = text
    return found


def make(kind: type[Any], parameters: dict[str, Any], options: dict[str, tuple[str, Any]]) -> Any:
    """A valid estimator; ``options`` such as ``{"--tol": ("tol", 1e-3)}`` set a parameter unless its value is None."""
    known = parameter_names(kind)
    for each in parameters:
        if each not in known:
            raise ValueError(f"{kind.__name__} has no parameter {each!r}{hint(each, known)} It has {', '.join(known)}.")
    if parameters.get("privacy") is not None:
        raise ValueError(
            "--param privacy cannot be used: commands scale by the rows and print scores on them. Use "
            "GossipSVC(privacy=...) in Python."
        )
    chosen = dict(parameters)
    for option, (each, value) in options.items():
        if value is not None:
            _check_option(option, each, kind.__name__, known, chosen)
            chosen[each] = value
    if isinstance(chosen.get("faults"), dict):
        from widemargin.comm.faults import Faults

        try:
            chosen["faults"] = Faults(**chosen["faults"])
        except TypeError as error:
            raise ValueError(f"--param faults is invalid: {error}.") from None
    model = kind(**chosen)
    validate_parameters(model)
    return model


def set_cluster(model: Any, cluster: Any, parameters: dict[str, Any]) -> None:
    if cluster is not None:
        _check_option("--cluster", "cluster", type(model).__name__, parameter_names(type(model)), parameters)
        validate_parameters(model.set_params(cluster=cluster))


def _check_option(option: str, name: str, kind: str, known: list[str], given: dict[str, Any]) -> None:
    if name not in known:
        raise ValueError(f"{option} does not apply: {kind} has no {name}.")
    if name in given:
        raise ValueError(f"{option} and --param {name} set the same parameter: omit one of them.")
