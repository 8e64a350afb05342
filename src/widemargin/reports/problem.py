"""The optimisation problem that a fitted model solves, in words and as a formula with its numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from widemargin.estimators.registry import Formula, Symbol, descriptor_of
from widemargin.reports._html import Html, element, joined


def problem_in_words(model: Any) -> Html:
    """Paragraphs: the purpose, the formula, and the numbers in it."""
    purpose, formula, symbols = _formula(model)
    pieces: list[Any] = [_as_html(each) for each in symbols]
    if getattr(model, "class_weight", None) is not None:
        pieces.append(f"rows weighted by class (class_weight={model.class_weight!r})")
    numbers = [piece for each in pieces for piece in (", ", each)][1:]
    return joined(
        [
            element("p", purpose),
            element("p", Html(formula), class_="formula"),
            element("p", joined(["with ", *numbers, "."])) if numbers else "",
            element("p", _classes(model)),
        ]
    )


def problem_as_text(model: Any) -> tuple[str, str]:
    """The purpose and the formula, for pages without markup."""
    purpose, formula, _ = _formula(model)
    return purpose, re.sub("<[^>]+>", "", formula.replace("<sub>i</sub>", "ᵢ"))


def _formula(model: Any) -> Formula:
    descriptor = descriptor_of(type(model))
    if descriptor is None:
        raise ValueError(f"{type(model).__name__} is not registered, and neither is any of its bases.")
    return descriptor.problem(model)


def _as_html(symbol: Symbol | str) -> Html | str:
    """A symbol and its number, or a range if problems have different numbers."""
    if isinstance(symbol, str):
        return symbol
    if isinstance(symbol.value, str):
        text: str = Html(symbol.value)
    else:
        values = np.unique(np.asarray(symbol.value, dtype=float))
        text = f"{values[0]:.6g}" if len(values) == 1 else f"{values[0]:.4g} to {values[-1]:.4g}"
    return joined([Html(f"{symbol.name} = "), text, f" ({symbol.remark})" if symbol.remark else ""])


def _classes(model: Any) -> str:
    n = len(model.classes_)
    if n == 2:
        one, other = model.classes_
        return f"The labels y are +1 for class {other} and −1 for class {one}."
    if not model._parts.are_votes:
        return f"There are {n} classes, and one such problem for each of them against the rest: the highest score wins."
    return f"There are {n} classes, and one such problem for each of the {len(model._parts)} pairs of them: they vote."
