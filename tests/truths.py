"""What a fitted model of two classes says of itself, beside the same in exact arithmetic."""

from __future__ import annotations

import contextlib
import copy
import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tests import exact
from tests.exact import Bracket, exactly, in_decimals

_LINEAR = SimpleNamespace(name="linear")


class Rows(NamedTuple):
    """Rows as ``fit`` gets them, labels -1 and 1, and multiplicities."""

    X: Any
    y: np.ndarray
    weight: np.ndarray


class Truth(NamedTuple):
    """The optimum of the problem, and what the returned model attains of it."""

    optimum: Bracket
    attained: Decimal
    is_minimised: bool = True


def truth(model: Any, rows: Rows) -> Truth:
    """The truth about a fitted estimator of the library and the rows of its fit."""
    for digits in exact.DIGITS[:-1]:
        with contextlib.suppress(exact.OracleError), decimal.localcontext(prec=digits):
            return _truth(model, rows)
    with decimal.localcontext(prec=exact.DIGITS[-1]):
        return _truth(model, rows)


@in_decimals
def _truth(model: Any, rows: Rows) -> Truth:
    return next(_TRUTHS[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in _TRUTHS)(model, rows)


@in_decimals
def false_claims(certificate: Any, history: list[dict[str, float]], truth: Truth) -> list[str]:
    """Claims that contradict the truth: bounds of the optimum at every sweep, and the one that the model attains."""
    low, high, attained = truth.optimum.low, truth.optimum.high, truth.attained
    rounding = exact.ROUNDING * abs(attained) if attained.is_finite() else Decimal(0)
    claims = [("certificate", certificate.primal, certificate.dual)]
    claims += [(f"sweep {row['sweep']}", row["primal"], row["dual"]) for row in history if row.get("is_confirmed", 1.0)]
    found = []
    for place, primal, dual in claims:
        if math.isnan(primal) or primal < low:
            found.append(f"{place}: primal {_beside(primal, low)}, the optimum")
        if math.isnan(dual) or dual > high:
            found.append(f"{place}: dual {_beside(dual, high)}, the optimum")
    if any(map(math.isnan, certificate)):
        return found
    if truth.is_minimised and attained - rounding > certificate.primal:
        found.append(f"model: primal {_beside(certificate.primal, attained)}, the objective of the model")
    if not truth.is_minimised and attained + rounding < certificate.dual:
        found.append(f"model: dual {_beside(certificate.dual, attained)}, what the model reaches")
    return found


@in_decimals
def relative_distance(model: Any, rows: Rows) -> float:
    """The distance of the hulls by the radius of rows whose columns are brought to one size: it has no units."""
    X = exactly(rows.X)[rows.weight > 0]
    X = X - X.mean(axis=0)
    X = X / np.array([np.abs(column).max() or Decimal(1) for column in X.T])
    most = exact.masses_at_most(rows.y, rows.weight, getattr(model, "nu_", None))[rows.weight > 0]
    optimum = _remembered(exact.hull_distance, X, rows.y[rows.weight > 0], most)
    return float(optimum.low / (max((row @ row).sqrt() for row in X) or 1))


def part_of(model: Any, k: int) -> Any:
    """The model of one of the two-class problems of a fit of several classes."""
    part = copy.copy(model)
    for name in ("coef_", "dual_coef_", "intercept_", "nu_", "alpha_"):
        if hasattr(model, name):
            value = getattr(model, name)[k]
            setattr(part, name, value if name in ("nu_", "alpha_") else value[None])
    part.certificate_, part.history_ = model.parts_[k].certificate, model.parts_[k].history
    part.stop_reason_ = model.parts_[k].stop_reason
    return part


def _beside(bound: float, value: Decimal) -> str:
    if not value or not value.is_finite() or not math.isfinite(bound):
        return f"{bound!r} against {value:.17g}"
    return f"{bound!r} is off by {abs(Decimal(bound) - value) / abs(value):.1e} of {value:.20g}"


# -- each estimator --------------------------------------------------------------------------------------------------


def _hulls(model: Any, rows: Rows) -> Truth:
    most = exact.masses_at_most(rows.y, rows.weight, getattr(model, "nu_", None))
    optimum = _remembered(exact.hull_distance, exactly(rows.X), rows.y, most)
    return Truth(optimum, exact.margin(rows.X, rows.y, most, model.coef_[0]), is_minimised=False)


def _c_svm(model: Any, rows: Rows) -> Truth:
    K, squared_norm, scores = _expansion(model, rows)
    if model.slack is not None:
        weight, intercept = exactly(rows.weight), Decimal(float(model.intercept_[0]))
        volume = weight.sum() * Decimal(float(model.slack))
        reached = Decimal("-Infinity")
        if squared_norm:
            responses = rows.y * (scores - intercept) / squared_norm.sqrt()
            reached = exact.slack_level(responses, rows.y, weight, volume, model.fit_intercept)
        optimum = _remembered(exact.slack_optimum, K, rows.y, weight, model.slack, model.fit_intercept)
        return Truth(optimum, reached, is_minimised=False)
    caps = exactly(rows.weight) * Decimal(float(model.C))
    optimum = _remembered(exact.hinge_optimum, K, rows.y, caps, model.fit_intercept)
    return Truth(optimum, exact.hinge_objective(squared_norm, scores, rows.y, caps))


def _margin_distribution(model: Any, rows: Rows) -> Truth:
    K, squared_norm, scores = _expansion(model, rows, int(model.fit_intercept))
    loss = exact.margin_loss(rows.weight, model.C, model.deadband, model.overshoot_weight)
    optimum = _remembered(exact.margin_optimum, K, rows.y, loss)
    return Truth(optimum, exact.margin_objective(squared_norm, scores, rows.y, loss))


def _sparse(model: Any, rows: Rows) -> Truth:
    weight, alpha = exactly(rows.weight), Decimal(float(model.alpha_))
    caps = weight / weight.sum()
    optimum = _remembered(exact.sparse_optimum, exactly(rows.X), rows.y, caps, alpha, model.fit_intercept)
    return Truth(optimum, exact.sparse_objective(rows.X, rows.y, caps, alpha, model.coef_[0], model.intercept_[0]))


def _mean_hinge(model: Any, rows: Rows) -> Truth:
    K, squared_norm, scores = _expansion(model, rows, int(model.fit_intercept))
    weight, alpha = exactly(rows.weight), Decimal(float(model.alpha))
    caps = weight / weight.sum() / alpha
    low, high = _remembered(exact.hinge_optimum, K, rows.y, caps, False)
    attained = exact.hinge_objective(squared_norm, scores, rows.y, caps)
    return Truth(Bracket(alpha * low, alpha * high), alpha * attained)


_TRUTHS: dict[str, Callable[[Any, Rows], Truth]] = {
    "HardMarginSVC": _hulls,
    "NuMarginSVC": _hulls,
    "KernelSVC": _c_svm,
    "MarginDistributionSVC": _margin_distribution,
    "SparseSVC": _sparse,
    "GossipSVC": _mean_hinge,
}


def _expansion(model: Any, rows: Rows, constant: int = 0) -> tuple[np.ndarray, Decimal, np.ndarray]:
    """Inner products of all rows, ``||w||^2``, and scores; ``constant`` is the square of a constant feature."""
    intercept = Decimal(float(model.intercept_[0]))
    kernel = getattr(model, "kernel_", _LINEAR)
    X = exactly(rows.X)
    K = X if kernel.name == "precomputed" else _remembered(exact.kernel_values, kernel, X)
    if hasattr(model, "coef_"):
        w = exactly(model.coef_[0])
        scores, squared_norm = X @ w, w @ w
    else:
        coef = exactly(model.dual_coef_[0])
        scores = K[:, model.support_] @ coef
        squared_norm = coef @ scores[model.support_]
    return K + Decimal(constant), squared_norm + constant * intercept**2, scores + intercept


_ANSWERS: dict[Any, Any] = {}


def _remembered(function: Callable[..., Any], *args: Any) -> Any:
    """The answer of a slow function; many fits share their problem."""
    digits = decimal.getcontext().prec
    key = (
        function.__name__,
        digits,
        *(tuple(arg.ravel()) if isinstance(arg, np.ndarray) else str(arg) for arg in args),
    )
    if key not in _ANSWERS:
        _ANSWERS[key] = function(*args)
    return _ANSWERS[key]
