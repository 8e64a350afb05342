"""The kept coefficients of a linear SVM fitted anew without a penalty, over machines, and how good a model of them is.

With margins m_i, multiplicities w_i that add up to n, and Q the normal distribution function, Newton's method solves

    minimise (1/n) sum_i w_i h l((1 - m_i) / h),   l(u) = u Q(u) + q(u),   q the density of Q,

the hinge smoothed like its Hessian, whose score has Q((1 - m_i) / h) for the indicator. First h = sd n^(-1/5), wide
enough for any start, then sd ((s + log n) / n)^(2/5) for s coefficients [2], which biases them by less than their
standard errors. A function ``total`` sums a small array over all who hold rows: the loss, its score and half of its
Hessian for each point.

[2] He, Pan, Tan, Zhou: Smoothed Quantile Regression with Large-Scale Inference, 2023 (its bandwidth).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from widemargin.data.shard import Shard
from widemargin.problems import debiasing
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.problems.protocol import Certificate
from widemargin.rounding import gamma

Total = Callable[[np.ndarray], np.ndarray]

REACH = 10.0  # a certificate covers models whose 1-norm is at most so many times that of the model
_MAX_STEPS = 30  # of Newton's method
_MAX_GROWTH = 50.0  # of the 1-norm: a penalty takes away less than that where classes overlap
_PRECISION = 1e-3  # of its last step, whose error is about the square of that
_SHORTEST = 1e-4  # part of a step that is tried
_WIDEST_H = 0.5  # the hinge bends within 1, however far margins spread where classes hardly overlap
_FIRST_H = 0.1  # of the spread of margins, for a lower bound
_KNOWN_WELL = 5e-3  # relative distance of a lower bound to the loss at the smoothed minimum
_NO_DENSITY = 40.0  # distance in units of h from which on the normal density is 0 in float64


class Smoothed(NamedTuple):
    """The smoothed minimum over the kept features of these rows, or where Newton's method stopped before it."""

    kept: np.ndarray  # which entries of beta
    unit: np.ndarray  # of each, a power of two near its size: Newton's method is the same for all units of the features
    Z: np.ndarray  # y_i z_i of these, in their units
    at: np.ndarray
    h: float = math.inf
    is_reached: bool = False

    def minimised(self, h: float, weight: np.ndarray, n: float, precision: float, total: Total) -> Smoothed:
        """The minimum for this h, from here."""
        if not 0 < h < math.inf:
            return self._replace(is_reached=False)
        at, is_reached = _smoothed_minimum(self.Z, weight, self.at, h, n, precision, total)
        return self._replace(at=at, h=h, is_reached=is_reached)

    @property
    def size(self) -> float:
        """The 1-norm, intercept included."""
        return float(np.abs(self.at).sum())

    def spread(self, weight: np.ndarray, n: float, total: Total) -> float:
        """The standard deviation of all margins; 0 beyond float64."""
        margins = self.Z @ self.at
        mean = float(total(np.array([weight @ margins]))[0]) / n
        square = float(total(np.array([weight @ (margins - mean) ** 2]))[0]) / n
        return math.sqrt(square) if square < math.inf else 0.0


def refit(shard: Shard, beta: np.ndarray, fit_intercept: bool, total: Total = np.asarray) -> tuple[np.ndarray, bool]:
    """The kept coefficients, those that are not zero, and the intercept, without a penalty; and whether they exist.

    One Newton step from coefficients that are far too small ends short of the minimiser: where margins are wide the
    Hessian there is too large, and each further round halves the rest at best. So before a round the kept ones are
    fitted by themselves. Where the kept features separate the classes, or are not told apart by the data, there is no
    such fit; where they nearly separate them, its coefficients rest on a few rows. ``beta`` then comes back as it was.
    """
    if not beta.any() and not fit_intercept:
        return beta, True
    weight = shard.weight
    n = float(total(np.array([weight.sum()]))[0])
    found = _start(shard, beta, fit_intercept, total, n)
    wide, narrow = n**-0.2, ((len(found.kept) + max(math.log(n), 0.0)) / n) ** 0.4
    before = found.size
    for part, precision in ((wide, 0.1), (min(wide, narrow), _PRECISION)):
        h = min(part * found.spread(weight, n, total), _WIDEST_H)
        found = found.minimised(h, weight, n, precision, total)
    if not found.is_reached or found.size > _MAX_GROWTH * before:
        return beta, False
    out = beta.copy()
    out[found.kept] = found.at / found.unit
    return out, True


def certified(
    shard: Shard, beta: np.ndarray, fit_intercept: bool, total: Total = np.asarray, *, bounds_below: bool = True
) -> Certificate:
    """The mean hinge loss of ``beta``, and a lower bound of it for all models of the features that ``beta`` keeps.

    Masses 0 <= a_i <= w_i / n with equal sums in both classes, if there is an intercept, give for all (b, b0)

        mean hinge loss >= sum_i a_i (1 - y_i (x_i.b + b0)) = sum_i a_i - r.b,     r_j = sum_i a_i y_i x_ij.

    With a_i = w_i Q((1 - m_i) / h) / n at the smoothed minimum, r is 0 up to Newton's precision, and the gap that
    smoothing leaves falls with h^2, so h is reduced until it is small. max_j |r_j| times ``REACH`` times the 1-norm of
    ``beta`` is subtracted, so that the bound holds for all b of at most that norm. A loss is never below 0; this is the
    bound where there is no minimum, and where the caller does not ask for one.

    Rounding: with N rows, sums of terms of one sign are within gamma(4 N + 40) of the exact ones, which includes the
    rounding of n and of the factors that balance the classes, and r_j within that part of sum_i a_i |x_ij|. A margin is
    within gamma(p + 6) of 1 + |b0| + sum_j |x_ij b_j|.
    """
    n_rows, n, loss, size = total(
        np.append([len(shard.y), shard.weight.sum()], debiasing.loss_sums(shard, beta, fit_intercept))
    )
    slack = gamma(4 * n_rows + 40)
    primal = float((loss + gamma(shard.n_features + 6) * size) / n * (1 + slack))
    if not bounds_below:
        return Certificate(primal, 0.0)
    return Certificate(primal, min(primal, _lower_bound(shard, beta, fit_intercept, total, float(n), float(slack))))


def _lower_bound(shard: Shard, beta: np.ndarray, fit_intercept: bool, total: Total, n: float, slack: float) -> float:
    """The best bound by the masses at smoothed minima, each nearer to the hinge, until the optimum is known well."""
    coef, weight, is_positive = beta[:-1] if fit_intercept else beta, shard.weight, shard.y > 0
    reach = REACH * float(np.abs(coef).sum())

    def bound_by(share: np.ndarray, Z: np.ndarray, unit: np.ndarray, margins: np.ndarray) -> tuple[float, float]:
        """The bound by masses of this share of their caps, and how far it is below the loss at ``margins``."""
        mass = weight * share
        factors = HingeL1(1.0, fit_intercept).balance_factors(*total(np.bincount(~is_positive, mass, 2)))
        mass *= np.where(is_positive, *factors)
        sums = [weight @ np.maximum(0.0, 1 - margins), mass.sum(), *(Z.T @ mass), *(np.abs(Z).T @ mass)]
        (loss, gain), r, size = np.split(total(np.array(sums)) / n, [2, 2 + Z.shape[1]])
        left = float(np.max(unit * (np.abs(r) + slack * size), initial=0.0)) * (1 + slack)
        bound = float(gain) * (1 - slack) - left * reach
        bound = bound if bound > 0 else 0.0  # also for NaN
        return bound, 1 - bound / float(loss) if loss > 0 else 0.0

    if not coef.any():  # full masses are the best for an intercept alone
        return bound_by(np.ones(len(weight)), np.zeros((len(weight), 0)), np.ones(0), np.zeros(len(weight)))[0]
    at, best = _start(shard, beta, fit_intercept, total, n), 0.0
    features = slice(0, len(at.kept) - fit_intercept)
    h = _FIRST_H * at.spread(weight, n, total)
    while h > 0:
        at = at.minimised(h, weight, n, _PRECISION, total)
        margins = at.Z @ at.at
        bound, below = bound_by(ndtr((1 - margins) / h), at.Z[:, features], at.unit[features], margins)
        if below <= _KNOWN_WELL or bound <= best or not at.is_reached:
            return max(bound, best)
        best, h = bound, h / 4
    return best


def _start(shard: Shard, beta: np.ndarray, fit_intercept: bool, total: Total, n: float) -> Smoothed:
    is_kept = beta != 0
    if fit_intercept:
        is_kept[-1] = True
    kept = np.flatnonzero(is_kept)
    Z = shard.dense_columns(kept[:-1] if fit_intercept else kept)
    if fit_intercept:
        Z = np.column_stack([Z, np.ones(len(Z))])
    Z *= shard.y[:, None]
    sizes = total(shard.weight @ np.abs(Z)) / n
    unit = np.where(sizes > 0, 2.0 ** np.frexp(sizes)[1], 1.0)
    return Smoothed(kept, unit, Z / unit, beta[kept] * unit)


def _smoothed_minimum(
    Z: np.ndarray, weight: np.ndarray, at: np.ndarray, h: float, n: float, precision: float, total: Total
) -> tuple[np.ndarray, bool]:
    """Newton steps, halved until the loss falls, to one of ``precision`` of the coefficients in the Hessian's norm.

    The loss never grows, so that the answer is no worse than the start. The coefficients of a separable problem grow as
    long as one lets them: its minimum is not reached.
    """
    upper = np.triu_indices(len(at))

    def everywhere(beta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        loss, score, H = np.split(_smoothed_sums(Z, weight, beta, h), [1, len(beta) + 1])
        H = H.reshape(len(beta), -1)
        loss, score, H[upper] = np.split(total(np.concatenate([loss, score, H[upper]])) / n, [1, len(beta) + 1])
        H.T[upper] = H[upper]
        return float(loss[0]), score, H

    loss, score, H = everywhere(at)
    for _ in range(_MAX_STEPS):
        if not (math.isfinite(loss) and np.isfinite(H).all()):
            return at, False
        step = np.linalg.lstsq(H, score, rcond=1e-12)[0]
        gain, length = float(step @ score), 1.0
        while (ahead := everywhere(at + length * step))[0] > loss - 1e-4 * length * gain:
            length /= 2
            if length < _SHORTEST:
                return at, False
        at = at + length * step
        if length == 1.0 and gain <= precision**2 * float(at @ H @ at):
            return at, True
        loss, score, H = ahead
    return at, False


def _smoothed_sums(Z: np.ndarray, weight: np.ndarray, beta: np.ndarray, h: float) -> np.ndarray:
    """The smoothed loss over these rows, its score and its Hessian, in one vector."""
    u = (1 - Z @ beta) / h
    q, Q = np.exp(-0.5 * np.minimum(np.abs(u), _NO_DENSITY) ** 2) / math.sqrt(2 * math.pi), ndtr(u)
    return np.concatenate([[h * (weight @ (u * Q + q))], Z.T @ (weight * Q), ((Z.T * (weight * q / h)) @ Z).ravel()])
