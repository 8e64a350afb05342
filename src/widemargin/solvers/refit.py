"""The kept coefficients of a linear SVM fitted anew without a penalty, over machines, before they are debiased."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from widemargin.data.shard import Shard

Total = Callable[[np.ndarray], np.ndarray]

_MAX_STEPS = 30  # of Newton's method


def refit(shard: Shard, beta: np.ndarray, fit_intercept: bool, total: Total = np.asarray) -> tuple[np.ndarray, bool]:
    """The kept coefficients, those that are not zero, and the intercept, without a penalty; and whether they exist.

    One Newton step from coefficients that are far too small ends short of the minimiser: where margins are wide the
    Hessian there is too large, and each further round halves the rest at best. So before a round the kept ones are
    fitted by themselves, by Newton steps on the hinge smoothed like its Hessian,

        minimise (1/n) sum_i w_i h l((1 - m_i) / h),   l(u) = u Q(u) + q(u),  Q the normal distribution function,

    whose score has Q((1 - m_i) / h) for the indicator. First h = sd n^(-1/5), wide enough for any start, then
    sd ((s + log n) / n)^(2/5) for s coefficients [2], which biases them by less than their standard errors. ``total``
    sums a small array over all who hold rows: 1 + s + s^2 numbers for each point. Where the kept features separate the
    classes, or are not told apart by the data, there is no such fit, and ``beta`` comes back as it was.

    [2] He, Pan, Tan, Zhou: Smoothed Quantile Regression with Large-Scale Inference, 2023 (its bandwidth).
    """
    is_kept = beta != 0
    if fit_intercept:
        is_kept[-1] = True
    kept = np.flatnonzero(is_kept)
    if len(kept) == 0:
        return beta, True
    Z = shard.dense_columns(kept[:-1] if fit_intercept else kept)
    if fit_intercept:
        Z = np.column_stack([Z, np.ones(len(Z))])
    Z *= shard.y[:, None]
    at, weight = beta[kept], shard.weight
    for wide in (True, False):
        margins = Z @ at
        n, first, second = total(np.array([weight.sum(), weight @ margins, weight @ margins**2]))
        sd = math.sqrt(max(second / n - (first / n) ** 2, 0.0))
        h = sd * (n**-0.2 if wide else min(n**-0.2, ((len(kept) + math.log(n)) / n) ** 0.4))
        if not h > 0:
            return beta, False
        at, is_reached = _smoothed_minimum(Z, weight, at, h, n, 0.1 if wide else 1e-3, total)
    # Scores of a separable problem grow as long as one lets them.
    if not is_reached or not np.isfinite(at).all():
        return beta, False
    out = beta.copy()
    out[kept] = at
    return out, True


def _smoothed_minimum(
    Z: np.ndarray, weight: np.ndarray, at: np.ndarray, h: float, n: float, precision: float, total: Total
) -> tuple[np.ndarray, bool]:
    """Newton steps, halved until the loss falls, to one of ``precision`` of the coefficients in the Hessian's norm."""
    k = len(at)
    sums = total(_smoothed_sums(Z, weight, at, h)) / n
    for _ in range(_MAX_STEPS):
        loss, score, H = sums[0], sums[1 : k + 1], sums[k + 1 :].reshape(k, k)
        step = np.linalg.lstsq(H, score, rcond=1e-12)[0]
        gain, length = float(step @ score), 1.0
        while True:
            sums = total(_smoothed_sums(Z, weight, at + length * step, h)) / n
            if sums[0] <= loss - 1e-4 * length * gain or length < 1e-4:
                break
            length /= 2
        at = at + length * step
        if length == 1.0 and gain <= precision**2 * float(at @ H @ at):
            return at, True
    return at, False


def _smoothed_sums(Z: np.ndarray, weight: np.ndarray, beta: np.ndarray, h: float) -> np.ndarray:
    """The smoothed loss over these rows, its score and its Hessian, in one vector."""
    u = (1 - Z @ beta) / h
    q, Q = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi), ndtr(u)
    return np.concatenate([[h * (weight @ (u * Q + q))], Z.T @ (weight * Q), ((Z.T * (weight * q / h)) @ Z).ravel()])
