"""Pieces of formulas that the descriptors of several estimators share, as HTML."""

from __future__ import annotations

from typing import Any

from widemargin.estimators.registry import Symbol

HALF_NORM = "½‖<var>w</var>‖²"
_KERNELS = {
    "rbf": "exp(−γ‖<var>x</var> − <var>z</var>‖²)",
    "laplacian": "exp(−γ‖<var>x</var> − <var>z</var>‖₁)",
    "poly": "(γ <var>x</var>·<var>z</var> + <var>c</var>)<sup><var>d</var></sup>",
    "sigmoid": "tanh(γ <var>x</var>·<var>z</var> + <var>c</var>)",
    "cosine": "<var>x</var>·<var>z</var> / (‖<var>x</var>‖ ‖<var>z</var>‖)",
    "linear": "<var>x</var>·<var>z</var>",
}


def intercept(model: Any) -> str:
    """``+ b``, or nothing for a model without an intercept."""
    return " + <var>b</var>" if getattr(model, "fit_intercept", True) else ""


def score(model: Any) -> str:
    """The score of a row, linear in its features or in the feature space of a kernel."""
    is_linear = getattr(model, "kernel", "linear") == "linear"
    row = "<var>x</var><sub>i</sub>" if is_linear else "φ(<var>x</var><sub>i</sub>)"
    return f"<var>w</var>·{row}{intercept(model)}"


def hinge(score: str) -> str:
    return f"max(0, 1 − <var>y</var><sub>i</sub>({score}))"


def kernel_symbols(model: Any) -> list[Symbol | str]:
    """The kernel as a formula, with its numbers."""
    if model.kernel == "linear":
        return []
    if callable(model.kernel):
        return ["a kernel given as a function"]
    if model.kernel == "precomputed":
        return ["a precomputed kernel"]
    found: list[Symbol | str] = [Symbol("kernel φ(<var>x</var>)·φ(<var>z</var>)", _KERNELS[model.kernel])]
    if model.kernel != "cosine":
        gamma = getattr(getattr(model, "kernel_", None), "gamma", model.gamma)
        rule = f"gamma={model.gamma!r}" if isinstance(model.gamma, str) else ""
        found.append(f"γ = {gamma!r}" if isinstance(gamma, str) else Symbol("γ", gamma, rule))
    if model.kernel in ("poly", "sigmoid"):
        found.append(Symbol("<var>c</var>", model.coef0))
    if model.kernel == "poly":
        found.append(Symbol("<var>d</var>", model.degree))
    return found
