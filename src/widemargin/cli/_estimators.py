"""Estimators by the names that the command line has for them, and their parameters from text."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

ESTIMATORS = {
    "hard-margin": "HardMarginSVC",
    "nu-margin": "NuMarginSVC",
    "kernel": "KernelSVC",
    "margin-distribution": "MarginDistributionSVC",
    "sparse": "SparseSVC",
    "debiased": "DebiasedSparseSVC",
    "gossip": "GossipSVC",
}
# Up to here a kernel machine is a matter of seconds, and not all of a wide table is support vectors.
KERNEL_ROWS, KERNEL_FEATURES = 20_000, 2_000
_WORDS = {"none": None, "true": True, "false": False}


def full_name(name: str) -> str:
    """The name of an estimator on the command line, from that or from the name of its class."""
    known = {**{each: each for each in ESTIMATORS}, **{kind.lower(): each for each, kind in ESTIMATORS.items()}}
    plain = name.lower().replace("_", "-")
    if plain not in known:
        near = difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
        hint = f"; did you mean {known[near[0]]!r}?" if near else "."
        raise ValueError(f"There is no estimator {name!r}: it must be one of {', '.join(ESTIMATORS)}{hint}")
    return known[plain]


def usual(n_rows: int, n_features: int, parameters: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """The estimator for rows of which no more is known, its parameters, and why."""
    size = f"{n_rows:,} rows of {n_features:,} features"
    if "kernel" in parameters:
        return "kernel", parameters, "as it is the one with kernels of all kinds"
    if n_rows <= KERNEL_ROWS and n_features <= KERNEL_FEATURES:
        return "kernel", parameters, f"as {size} are few enough for a kernel that is not linear"
    return "kernel", {**parameters, "kernel": "linear"}, f"with kernel=linear, as {size} are many"


def estimator_class(name: str) -> Any:
    return getattr(import_module(f"widemargin.estimators.{name.replace('-', '_')}"), ESTIMATORS[name])


def parsed(settings: Iterable[str]) -> dict[str, Any]:
    """Parameters from ``NAME=VALUE``: numbers, true, false, none, lists and dicts as in Python; else text."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = name.strip(), text.strip()
        if not equals or not name:
            raise ValueError(f"--param {setting!r} must be NAME=VALUE, as C=10.")
        if name in found:
            raise ValueError(f"--param {name} is given twice.")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def make(name: str, parameters: dict[str, Any], options: dict[str, Any]) -> Any:
    """An estimator with these parameters, checked against its own constraints.

    ``options`` are parameters that have an option of their own, under its name, as ``{"--tol": ("tol", 1e-3)}``; None
    is one that was not given.
    """
    kind = estimator_class(name)
    known = sorted(kind._get_param_names())
    for each in parameters:
        if each not in known:
            alike = [name for name in known if name.lower() == each.lower()]
            near = alike or difflib.get_close_matches(each, known, n=1, cutoff=0.4)
            hint = f": did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"{kind.__name__} has no parameter {each!r}{hint} It has {', '.join(known)}.")
    chosen = dict(parameters)
    for option, (each, value) in options.items():
        if value is None:
            continue
        if each not in known:
            raise ValueError(f"{option} does not apply: {kind.__name__} has no {each}.")
        if each in chosen:
            raise ValueError(f"{option} and --param {each} say the same thing: leave one of them out.")
        chosen[each] = value
    if isinstance(chosen.get("faults"), dict):
        from widemargin.comm.faults import Faults

        try:
            chosen["faults"] = Faults(**chosen["faults"])
        except TypeError as error:
            raise ValueError(f"--param faults is not understood: {error}.") from None
    model = kind(**chosen)
    model._validate_params()
    return model
