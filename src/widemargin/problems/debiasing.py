"""Debiased coefficients of the hinge loss, their standard errors, and which of them to keep.

The coefficients b and the intercept b0 that minimise the expected hinge loss E max(0, 1 - y (x'b + b0)) are estimated
with a penalty, which pulls them to zero. One Newton step on the loss alone takes that back [1]. With z = (x, 1),
beta = (b, b0), margins m_i = y_i z_i'beta and multiplicities w_i that add up to n,

    score     g = (1/n) sum_i w_i y_i z_i 1[m_i < 1],             minus the gradient of the loss
    Hessian   H = (1/(n h)) sum_i w_i q((1 - m_i) / h) z_i z_i',  q the normal density
    bandwidth h = 1.06 sd(m) n^(-1/5)
    step      beta~ = beta + Theta g,                             Theta close to the inverse of H
    error     se_j^2 = theta_j' S theta_j / n,                    S = (1/n) sum_i w_i z_i z_i' 1[m_i < 1]

At the minimiser of the penalised loss itself some margins are exactly 1, where the indicator is not the subgradient;
the masses a_i of the dual are: g = sum_i a_i y_i z_i, 0 <= a_i <= w_i / n, with no part in the intercept.

The intercept. [1] has none. Here it is a further column of ones without a penalty, and it is profiled out: with
mu = H_x1 / H_11, the mean of rows near the margin, the Schur complement of H_11 is the Hessian of rows x - mu, and

    inverse of H  =  [  T      -T mu                ]      T the inverse of  K = H_xx - H_11 mu mu'.
                     [ -mu'T    1/H_11 + mu' T mu   ]

So only T has to be approximated, and for features that are far from centred, K is sparse where H is full. Rows of T are
sought for K scaled to a diagonal of ones, which makes them follow any change of units of the features.

Sums over rows add up over machines; every function here sees the rows of one.

[1] Lian, Fan: Divide-and-Conquer for Debiased l1-norm Support Vector Machine in Ultra-high Dimensions, 2018.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr, ndtri

from widemargin.data.shard import Shard

# A row whose q is below this part of q(0) is not read for the Hessian. In the design of [1] (20,000 rows) that spares
# 38 % of them and leaves out 1e-9 of H.
_NEGLIGIBLE = 1e-8
# A feature that varies by less than this part of its second moment is constant but for rounding.
_CONSTANT = 1e-12
# A margin this close to 1 is on the hinge, where rounding decides on the side. A vertex of the 1-norm SVM has such a
# row for each coefficient; all of them count as within the margin.
_ON_HINGE = 1e-9
# Rows whose margins differ by less than this part of the bandwidth say the same about the density.
_SAME_MARGIN = 1e-6
# With more than this part of its entries not zero, a row of Theta is multiplied as a full one.
_DENSE = 0.05
_BLOCK_BYTES = 1 << 22


class Curvature(NamedTuple):
    """The smoothed Hessian of one machine with its intercept profiled out."""

    correlation: np.ndarray  # (p, p): K scaled to a diagonal of ones; rows of zeros for features that do not vary
    scale: np.ndarray  # square roots of the diagonal of K
    center: np.ndarray  # mu; zeros without an intercept
    mass: float  # H_11
    n_effective: float  # (sum q)^2 / sum q^2, the number of rows that the Hessian rests on
    n_margins: int  # different margins within two bandwidths of 1: copies of a row count once
    fit_intercept: bool


class Inference(NamedTuple):
    """What is known of each coefficient, the intercept last if there is one."""

    estimate: np.ndarray
    standard_error: np.ndarray  # infinite where the data say nothing
    lower: np.ndarray
    upper: np.ndarray
    p_value: np.ndarray  # two-sided, of the coefficient being 0


def margins_of(shard: Shard, beta: np.ndarray, fit_intercept: bool) -> np.ndarray:
    """``y_i (x_i'b + b0)``; the intercept is the last entry of ``beta`` if there is one."""
    if fit_intercept:
        return shard.y * (shard.scores(beta[:-1]) + beta[-1])
    return shard.y * shard.scores(beta)


def bandwidth(margins: np.ndarray, weight: np.ndarray) -> float:
    """``1.06 sd n^(-1/5)``, Silverman's rule, of margins that occur as often as their weights say."""
    n = float(weight.sum())
    mean = float(weight @ margins) / n
    sd = math.sqrt(float(weight @ (margins - mean) ** 2) / (n - 1)) if n > 1 else 0.0
    if not sd > 1e-12 * abs(mean):
        raise ValueError(
            f"All margins are {mean:g}: there is no density of them to estimate at the hinge. At coefficients of zero "
            "nothing can be debiased; a smaller penalty leaves some."
        )
    return 1.06 * sd * n**-0.2


def curvature(shard: Shard, margins: np.ndarray, h: float, fit_intercept: bool) -> Curvature:
    """The smoothed Hessian at the given margins, for the mean loss over the rows at hand."""
    q = np.exp(-0.5 * ((1 - margins) / h) ** 2)
    rows = np.flatnonzero((q > _NEGLIGIBLE) & (shard.weight > 0))
    n = float(shard.weight.sum())
    if len(rows) == 0:
        nearest = float(np.abs(1 - margins[shard.weight > 0]).min())
        raise ValueError(
            f"No margin is near 1: the nearest of {n:g} is {nearest:g} away, over six bandwidths of {h:g}, so that the "
            "Hessian cannot be estimated. More rows or a smaller penalty help."
        )
    near = shard.weight[rows] * q[rows]
    mass = near / (n * h * math.sqrt(2 * math.pi))
    K = shard.second_moment(rows, mass)
    raw, total = np.diag(K).copy(), float(mass.sum())
    center = np.zeros(shard.n_features)
    if fit_intercept:
        center = shard.combine_rows(rows, mass) / total
        for row, mean in zip(K, center, strict=True):  # no second matrix of this size
            row -= (total * mean) * center
    diagonal = np.diag(K)
    scale = np.sqrt(np.where(diagonal > _CONSTANT * raw, diagonal, 0.0))
    inverse_scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    K *= inverse_scale
    K *= inverse_scale[:, None]
    np.fill_diagonal(K, np.where(scale > 0, 1.0, 0.0))
    # Weights are frequencies: a row of weight w is w rows of weight 1.
    n_effective = float(near.sum() ** 2 / (near @ q[rows]))
    within = (1 - margins[rows][q[rows] > math.exp(-2)]) / (_SAME_MARGIN * h)
    n_margins = len(np.unique(np.round(within)))
    return Curvature(K, scale, center, total, n_effective, n_margins, fit_intercept)


def inverse_constraint(n_features: int, n_effective: float, factor: float = 0.8) -> float:
    """The bound c on |K t - e_j|: ``factor * sqrt(log p / n_effective)``, the order of the errors in K.

    [1] has ``n h`` for ``n_effective``, which is 3.5 n h times the density of margins at 1: in its design the same but
    for 7 % of c. At 0.8 rows have some tens of entries at p = 5000, n = 20,000, at 0.4 a thousand. On very few rows c
    is 0.9, for which rows are those of the inverse diagonal.
    """
    return min(0.9, factor * math.sqrt(math.log(max(n_features, 2)) / n_effective))


def unscaled(theta: sp.csr_matrix, at: Curvature, rows: np.ndarray) -> sp.csr_matrix:
    """Rows of T, the inverse of K, from the same rows of an approximate inverse of ``at.correlation``."""
    inverse_scale = np.divide(1.0, at.scale, out=np.zeros_like(at.scale), where=at.scale > 0)
    return sp.csr_matrix(sp.diags_array(inverse_scale[rows]) @ theta @ sp.diags_array(inverse_scale))


def full_inverse(theta: sp.csr_matrix, at: Curvature, kept: np.ndarray | None = None) -> sp.csr_matrix:
    """Theta for the unscaled Hessian, with a row and a column for the intercept if there is one.

    ``theta`` holds all rows of an approximate inverse of ``at.correlation``. A feature that does not vary has a row of
    zeros. The intercept follows the coefficients of ``kept`` features, a mask, and takes those of all others for the
    zeros that they are: summed over thousands of them, errors of mu times errors of steps would drown it.
    """
    T = unscaled(theta, at, np.arange(len(at.scale)))
    if not at.fit_intercept:
        return T
    followed = at.center if kept is None else np.where(kept, at.center, 0.0)
    across, last = -(T @ at.center), -(T.T @ followed)
    corner = 1 / at.mass - float(across @ followed)
    return sp.csr_matrix(sp.bmat([[T, across[:, None]], [last[None, :], np.array([[corner]])]]))


def intercept_after(intercept: float, center: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """The intercept that belongs to coefficients ``after``, from the one of ``before``: rows near the margin stay so.

    After a step ``before`` is what the intercept followed: new coefficients where kept, those of the start elsewhere.
    """
    return intercept - float(center @ (after - before))


def score_sums(shard: Shard, margins: np.ndarray, fit_intercept: bool) -> np.ndarray:
    """``sum_i w_i y_i z_i 1[m_i < 1]``: the score, times the number of rows."""
    signed = np.where(_is_inside(margins), shard.weight * shard.y, 0.0)
    total = shard.combine(signed)
    return np.append(total, signed.sum()) if fit_intercept else total


def _is_inside(margins: np.ndarray) -> np.ndarray:
    """``1[m_i < 1]``, rows on the hinge included."""
    return margins < 1 + _ON_HINGE


def hinge_sum(shard: Shard, margins: np.ndarray) -> np.ndarray:
    """``sum_i w_i max(0, 1 - m_i)``, as an array of one number."""
    return np.array([shard.weight @ np.maximum(0.0, 1 - margins)])


def loss_sums(shard: Shard, beta: np.ndarray, fit_intercept: bool) -> np.ndarray:
    """``sum_i w_i max(0, 1 - m_i)``, and ``sum_i w_i (1 + |b0| + sum_j |x_ij b_j|)``, which bounds its rounding."""
    coef, intercept = (beta[:-1], float(beta[-1])) if fit_intercept else (beta, 0.0)
    kept = np.flatnonzero(coef)
    total = np.zeros(2)
    step = max(1, _BLOCK_BYTES // (8 * max(shard.n_features, 1)))
    for begin in range(0, shard.n_rows, step):
        few = np.arange(begin, min(begin + step, shard.n_rows))
        products = shard.dense_rows(few)[:, kept] * coef[kept]
        margins = shard.y[few] * (products.sum(axis=1) + intercept)
        size = 1 + abs(intercept) + np.abs(products).sum(axis=1)
        total += shard.weight[few] @ np.column_stack([np.maximum(0.0, 1 - margins), size])
    return total


def one_step(beta: np.ndarray, score: np.ndarray, theta: sp.csr_matrix) -> np.ndarray:
    """``beta + Theta g``."""
    return beta + theta @ score


def variance_sums(shard: Shard, margins: np.ndarray, theta: sp.csr_matrix, fit_intercept: bool) -> np.ndarray:
    """``sum_i w_i (theta_j'z_i)^2 1[m_i < 1]`` for every row of Theta: ``n^2 se_j^2``.

    S itself would take n p^2 operations; this takes n times the entries of Theta, which has few.
    """
    rows = np.flatnonzero(_is_inside(margins) & (shard.weight > 0))
    body, constant = (theta[:, :-1], theta[:, [-1]].toarray().ravel()) if fit_intercept else (theta, 0.0)
    body = sp.csr_matrix(body)
    is_full = np.diff(body.indptr) > _DENSE * shard.n_features
    thin, full = body[~is_full], body[is_full].toarray().T
    total = np.zeros(theta.shape[0])
    step = max(1, _BLOCK_BYTES // (8 * max(shard.n_features, theta.shape[0])))
    for begin in range(0, len(rows), step):
        few = rows[begin : begin + step]
        z = shard.dense_rows(few)
        influence = np.empty((len(few), theta.shape[0]))
        influence[:, ~is_full] = (thin @ np.ascontiguousarray(z.T)).T
        influence[:, is_full] = z @ full
        influence += constant
        total += shard.weight[few] @ np.square(influence, out=influence)
    return total


def standard_errors(sums: np.ndarray, n: float) -> np.ndarray:
    """``se_j`` from :func:`variance_sums` over all machines and the total weight; infinite for rows of zeros."""
    return np.where(sums > 0, np.sqrt(sums) / n, np.inf)


def z_threshold(beta: np.ndarray, standard_error: np.ndarray) -> np.ndarray:
    """Coefficients, none of them an intercept, with ``|b_j| > se_j sqrt(2 log p)``; zeros elsewhere.

    Of p that are all zero, the largest is about that many standard errors from zero.
    """
    level = standard_error * math.sqrt(2 * math.log(max(len(beta), 2)))
    return np.where(np.abs(beta) > level, beta, 0.0)


def count_threshold(beta: np.ndarray, n_kept: int) -> np.ndarray:
    """The ``n_kept`` largest coefficients, zeros elsewhere: the threshold of [1], Section 3.

    There ``n_kept`` is the largest number of coefficients that are not zero among the penalised estimates of the
    machines, ``max_m ||b^(m)||_0``. (Section 2.3 has the rate sqrt(log p / N), without a constant.)
    """
    kept, largest = np.zeros_like(beta), np.argsort(-np.abs(beta), kind="stable")[: max(n_kept, 0)]
    kept[largest] = beta[largest]
    return kept


def inference(estimate: np.ndarray, standard_error: np.ndarray, level: float = 0.95) -> Inference:
    """Intervals ``estimate +- z se`` that hold the coefficient with probability ``level``, and p-values."""
    if not 0 < level < 1:
        raise ValueError(f"level={level:g} is no probability of an interval: it must lie in (0, 1).")
    reach = -float(ndtri((1 - level) / 2)) * standard_error
    p_value = 2 * ndtr(-np.abs(estimate / standard_error))
    return Inference(estimate, standard_error, estimate - reach, estimate + reach, p_value)
