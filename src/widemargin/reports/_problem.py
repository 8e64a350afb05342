"""The optimisation problem that a fitted model solves, in words and as a formula with its numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from widemargin.reports._html import Html, element, joined, markup

# Markup of ours; letters in <var> are explained in the sentence below each formula.
_HINGE = "max(0, 1 − <var>y</var><sub>i</sub>({score}))"
_LINEAR = "<var>w</var>·<var>x</var><sub>i</sub>{b}"
_MAPPED = "<var>w</var>·φ(<var>x</var><sub>i</sub>){b}"
_HALF = "½‖<var>w</var>‖²"
_KERNELS = {
    "rbf": "exp(−γ‖<var>x</var> − <var>z</var>‖²)",
    "laplacian": "exp(−γ‖<var>x</var> − <var>z</var>‖₁)",
    "poly": "(γ <var>x</var>·<var>z</var> + <var>c</var>)<sup><var>d</var></sup>",
    "sigmoid": "tanh(γ <var>x</var>·<var>z</var> + <var>c</var>)",
    "cosine": "<var>x</var>·<var>z</var> / (‖<var>x</var>‖ ‖<var>z</var>‖)",
    "linear": "<var>x</var>·<var>z</var>",
}


def problem_in_words(model: Any) -> Html:
    """Paragraphs: what is looked for, the formula, and the numbers in it."""
    purpose, formula, numbers = _written(model)
    numbers = [*numbers, *_weights(model)]
    return joined(
        [
            element("p", purpose),
            element("p", Html(formula), class_="formula"),
            element("p", joined(_listed(numbers))) if numbers else "",
            element("p", _classes(model)),
        ]
    )


def problem_as_text(model: Any) -> tuple[str, str]:
    """What is looked for, and the formula, for pages without markup."""
    purpose, formula, _ = _written(model)
    return purpose, re.sub("<[^>]+>", "", formula.replace("<sub>i</sub>", "ᵢ"))


def _written(model: Any) -> tuple[str, str, list[Any]]:
    kinds = {each.__name__ for each in type(model).__mro__}
    return next(write for name, write in _WRITERS.items() if name in kinds)(model)


def _listed(numbers: list[Any]) -> list[Any]:
    """Numbers as a sentence."""
    pieces: list[Any] = ["with "]
    for k, each in enumerate(numbers):
        pieces += [", " if k else "", each]
    return [*pieces, "."]


def _number(letter: str, value: Any, remark: str = "") -> Html:
    """A letter and the number for it; a range where problems have numbers of their own."""
    values = np.unique(np.asarray(value, dtype=float))
    text = f"{values[0]:.6g}" if len(values) == 1 else f"{values[0]:.4g} to {values[-1]:.4g}"
    return joined([Html(f"{letter} = "), text, f" ({remark})" if remark else ""])


def _classes(model: Any) -> str:
    n = len(model.classes_)
    if n == 2:
        one, other = model.classes_
        return f"The labels y are +1 for class {other} and −1 for class {one}."
    if model._one_vs_rest:
        return f"There are {n} classes, and one such problem for each of them against the rest: the highest score wins."
    return f"There are {n} classes, and one such problem for each of the {n * (n - 1) // 2} pairs of them: they vote."


def _weights(model: Any) -> list[Any]:
    weight = getattr(model, "class_weight", None)
    return [] if weight is None else [markup(f"rows weighted by class (class_weight={weight!r})")]


def _intercept(model: Any) -> str:
    return " + <var>b</var>" if getattr(model, "fit_intercept", True) else ""


def _hard(model: Any) -> tuple[str, str, list[Any]]:
    return (
        "The hyperplane with the widest margin between classes that do not overlap, found as the distance between "
        "their convex hulls.",
        f"minimise {_HALF} subject to <var>y</var><sub>i</sub>({_LINEAR.format(b=_intercept(model))}) ≥ 1 for all "
        "rows <var>i</var>",
        [],
    )


def _nu(model: Any) -> tuple[str, str, list[Any]]:
    rule = "0.85 of the largest feasible value" if model.nu == "auto" else ""
    return (
        "The hyperplane with the widest margin that leaves a share of the rows on its wrong side, found as the "
        "distance between the reduced convex hulls of the classes.",
        f"minimise {_HALF} − νρ + (1/<var>n</var>) Σ<sub>i</sub> δ<sub>i</sub> subject to "
        f"<var>y</var><sub>i</sub>({_LINEAR.format(b=_intercept(model))}) ≥ ρ − δ<sub>i</sub>, "
        "δ<sub>i</sub> ≥ 0, ρ ≥ 0",
        [_number("ν", getattr(model, "nu_", model.nu), rule)] if hasattr(model, "nu_") or model.nu != "auto" else [],
    )


def _kernel(model: Any) -> tuple[str, str, list[Any]]:
    is_linear = model.kernel == "linear"
    score = (_LINEAR if is_linear else _MAPPED).format(b=_intercept(model))
    if model.slack is not None:
        return (
            "The highest level that a unit vector reaches over all rows when slack may be added to them.",
            "maximise over ‖<var>w</var>‖ ≤ 1 and <var>ξ</var> ≥ 0 with mean slack <var>s</var>: "
            f"min<sub>i</sub> [<var>y</var><sub>i</sub>({score}) + <var>ξ</var><sub>i</sub>]",
            [_number("<var>s</var>", model.slack), *_kernel_numbers(model)],
        )
    return (
        "The classifier with the best balance between a wide margin and a small hinge loss"
        + (", linear in the features." if is_linear else ", in the feature space φ of a kernel."),
        f"minimise {_HALF} + <var>C</var> Σ<sub>i</sub> {_HINGE.format(score=score)}",
        [_number("<var>C</var>", model.C), *_kernel_numbers(model)],
    )


def _margin_distribution(model: Any) -> tuple[str, str, list[Any]]:
    is_linear = model.kernel == "linear"
    b = " + <var>b</var>²" if model.fit_intercept else ""
    score = (_LINEAR if is_linear else _MAPPED).format(b=_intercept(model))
    return (
        "The classifier whose margins are all near 1: margins that are too short cost, and so do those that are too "
        "long.",
        f"minimise ½(‖<var>w</var>‖²{b}) + <var>C</var>/(2<var>n</var>(1 − θ)²) Σ<sub>i</sub> "
        "[(1 − θ − <var>F</var><sub>i</sub>)₊² + <var>v</var>(<var>F</var><sub>i</sub> − 1 − θ)₊²], "
        f"<var>F</var><sub>i</sub> = <var>y</var><sub>i</sub>({score})",
        [
            _number("<var>C</var>", model.C),
            _number("θ", model.deadband, "deadband"),
            _number("<var>v</var>", model.overshoot_weight, "overshoot_weight"),
            *_kernel_numbers(model),
        ],
    )


def _kernel_numbers(model: Any) -> list[Any]:
    """The kernel as a formula, with its numbers."""
    if model.kernel == "linear":
        return []
    if callable(model.kernel) or model.kernel == "precomputed":
        return ["a kernel given as a function" if callable(model.kernel) else "a kernel computed beforehand"]
    found: list[Any] = [
        Html(f"kernel φ(<var>x</var>)·φ(<var>z</var>) = {_KERNELS[model.kernel]}"),
    ]
    if model.kernel != "cosine":
        gamma = getattr(getattr(model, "kernel_", None), "gamma", model.gamma)
        rule = f"gamma={model.gamma!r}" if isinstance(model.gamma, str) else ""
        found.append(markup(f"γ = {gamma!r}") if isinstance(gamma, str) else _number("γ", gamma, rule))
    if model.kernel in ("poly", "sigmoid"):
        found.append(_number("<var>c</var>", model.coef0))
    if model.kernel == "poly":
        found.append(_number("<var>d</var>", model.degree))
    return found


def _sparse(model: Any) -> tuple[str, str, list[Any]]:
    score = "<var>x</var><sub>i</sub>·β" + _intercept(model)
    alpha = getattr(model, "alpha_", getattr(model, "alpha", "auto"))
    rule = "by its rule for alpha='auto'" if getattr(model, "alpha", None) == "auto" else ""
    rule = "chosen by cross-validation" if hasattr(model, "cv") else rule
    return (
        "A linear classifier of few features: the penalty makes all other coefficients zero exactly.",
        f"minimise (1/<var>n</var>) Σ<sub>i</sub> {_HINGE.format(score=score)} + α‖β‖₁",
        [] if isinstance(alpha, str) else [_number("α", alpha, rule)],
    )


def _debiased(model: Any) -> tuple[str, str, list[Any]]:
    alpha = getattr(model, "alpha_", model.alpha)
    machines = getattr(model, "n_machines_", None)
    numbers: list[Any] = [] if isinstance(alpha, str) else [_number("α", alpha, "of the 1-norm SVM of each machine")]
    if machines is not None:
        numbers.append(f"{model.n_rows_:g} rows on {machines} machine{'s' if machines > 1 else ''}")
    return (
        "The coefficients of the least expected hinge loss, with intervals: every machine solves a 1-norm SVM of its "
        "own rows, takes the bias of its penalty back by a Newton step, and the results are averaged and thresholded.",
        f"minimise E max(0, 1 − <var>y</var>(<var>x</var>·β{_intercept(model)}))",
        [*numbers, f"{model.rounds} round{'s' if model.rounds > 1 else ''} of debiasing"],
    )


def _gossip(model: Any) -> tuple[str, str, list[Any]]:
    is_mapped = model.kernel == "rbf"
    score = _MAPPED.format(b="") if is_mapped else _LINEAR.format(b="")
    numbers: list[Any] = [_number("α", model.alpha)]
    if hasattr(model, "graph_"):
        numbers.append(f"the N rows of {len(model.graph_)} peers")
    if is_mapped:
        numbers.append(f"φ: {model.n_random_features} random Fourier features of the rbf kernel")
    if model.fit_intercept:
        numbers.append("the intercept as the weight of a constant feature")
    return (
        "A linear classifier of rows that stay with the peers of a network with no server.",
        f"minimise (α/2)‖<var>w</var>‖² + (1/<var>N</var>) Σ<sub>i</sub> max(0, 1 − <var>y</var><sub>i</sub> {score})",
        numbers,
    )


_WRITERS = {
    "HardMarginSVC": _hard,
    "NuMarginSVC": _nu,
    "KernelSVC": _kernel,
    "MarginDistributionSVC": _margin_distribution,
    "SparseSVC": _sparse,
    "DebiasedSparseSVC": _debiased,
    "GossipSVC": _gossip,
}
