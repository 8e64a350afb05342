"""The optimisation problem that a fitted model solves, in words and as a formula with its numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from widemargin.estimators.registry import Formula, Symbol, descriptor_of
from widemargin.reports._html import Html


def problem_in_words(model: Any) -> dict[str, Any]:
    """What the template shows: the purpose, the formula, the numbers in it, and what the labels mean."""
    purpose, formula, symbols = _formula(model)
    numbers = [(Html(), each) if isinstance(each, str) else (Html(f"{each.name} = "), _value(each)) for each in symbols]
    if getattr(model, "class_weight", None) is not None:
        numbers.append((Html(), f"rows weighted by class (class_weight={model.class_weight!r})"))
    return {"purpose": purpose, "formula": Html(formula), "numbers": numbers, "classes": _classes(model)}


def problem_as_text(model: Any) -> tuple[str, str]:
    """The purpose and the formula, for pages without markup."""
    purpose, formula, _ = _formula(model)
    return purpose, re.sub("<[^>]+>", "", formula.replace("<sub>i</sub>", "ᵢ"))


def _formula(model: Any) -> Formula:
    descriptor = descriptor_of(type(model))
    if descriptor is None:
        raise ValueError(f"{type(model).__name__} is not registered, and neither is any of its bases.")
    return descriptor.problem(model)


def _value(symbol: Symbol) -> str:
    """The number of a symbol, or a range if problems have different numbers."""
    remark = f" ({symbol.remark})" if symbol.remark else ""
    if isinstance(symbol.value, str):
        return Html(symbol.value + remark)
    values = np.unique(np.asarray(symbol.value, dtype=float))
    return (f"{values[0]:.6g}" if len(values) == 1 else f"{values[0]:.4g} to {values[-1]:.4g}") + remark


def _classes(model: Any) -> str:
    n, parts = len(model.classes_), model._parts
    if n == 2:
        one, other = model.classes_
        return f"The labels y are +1 for class {other} and −1 for class {one}."
    if not parts.are_votes:
        return f"There are {n} classes, and one such problem for each of them against the rest: the highest score wins."
    return f"There are {n} classes, and one such problem for each of the {len(parts)} pairs of them: they vote."
