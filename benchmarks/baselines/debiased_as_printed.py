"""The debiased 1-norm SVM to the letter: equation (5) with its indicator, CLIME (6), AE, TE, and a shared inverse.

    b~ = b^ + Theta 1/n sum_i y_i x_i 1{y_i x_i'b^ < 1},     Theta: each row with the least 1-norm, |Theta H - I| <= c

What happens when it is run as printed: as many rows as b^ has coefficients lie exactly on the margin, y x'b^ = 1, where
the indicator is whatever rounding makes of it; counted as violated or as not, they move b~ by a part of what it was to
mend. (The masses of the dual, which the optimality conditions (3) hold for, are in between.) Every row of Theta is
shrunk, (Theta H)_jj = 1 - c, and with it the step. And the penalties of machines, chosen for few rows, are far larger
than one for all rows would be.

A shared inverse (Section 4) is p / M rows from each machine, put together for all: one Theta, on which all agree.

Reference: H. Lian, Z. Fan: Divide-and-Conquer for Debiased l1-norm Support Vector Machine in Ultra-high Dimensions,
2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import KFold

from widemargin import SparseSVC
from widemargin.problems.debiasing import count_threshold
from widemargin.solvers.inverse_rows import clime_rows

_ON_MARGIN = 1e-9
_FOLDS = 5


class Local(NamedTuple):
    """What one machine has found."""

    coef: np.ndarray  # b^ of (1)
    score: np.ndarray  # the mean of y x over violated rows
    theta: np.ndarray  # rows of the inverse; all of them, or its share
    debiased: np.ndarray | None  # b~ of (5), with all rows


class Estimates(NamedTuple):
    """Of all machines."""

    naive: np.ndarray  # NAE
    aggregated: np.ndarray  # AE
    thresholded: np.ndarray  # TE


def penalised(X: np.ndarray, y: np.ndarray, lam: float) -> np.ndarray:
    """The 1-norm SVM (1), without an intercept."""
    return SparseSVC(alpha=lam, fit_intercept=False, tol=1e-9).fit(X, y).coef_[0]


def cross_validated(X: np.ndarray, y: np.ndarray, grid: Sequence[float]) -> float:
    """The penalty of the grid with the least hinge loss on five folds, as each machine chooses its own."""
    losses = np.zeros(len(grid))
    for train, test in KFold(_FOLDS).split(X):
        for k, lam in enumerate(grid):
            coef = penalised(X[train], y[train], lam)
            losses[k] += np.maximum(0.0, 1 - y[test] * (X[test] @ coef)).sum()
    return float(grid[int(losses.argmin())])


def indicator_score(X: np.ndarray, y: np.ndarray, coef: np.ndarray, *, counts_margin: bool = False) -> np.ndarray:
    """``1/n sum y x 1{y x'b < 1}``; rows on the margin count as violated, or, as printed, do not."""
    edge = 1 + _ON_MARGIN if counts_margin else 1 - _ON_MARGIN
    return X.T @ (y * (y * (X @ coef) < edge)) / len(y)


def hessian(X: np.ndarray, y: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """The smoothed Hessian: the normal density q, h by Silverman's rule."""
    off = 1 - y * (X @ coef)
    h = 1.06 * float(off.std(ddof=1)) * len(y) ** -0.2
    mass = np.exp(-0.5 * (off / h) ** 2) / (math.sqrt(2 * math.pi) * h * len(y))
    return np.asarray(X.T @ (X * mass[:, None]))


def clime(H: np.ndarray, rows: np.ndarray, c: float) -> np.ndarray:
    """(6), row by row, each a linear program; not divided by anything."""
    return clime_rows(H, rows, c).theta.toarray()


def local(X: np.ndarray, y: np.ndarray, lam: float, c: float, rows: np.ndarray | None = None) -> Local:
    """One machine: b^, and b~ by (5), or only some rows of the inverse."""
    coef = penalised(X, y, lam)
    score = indicator_score(X, y, coef)
    theta = clime(hessian(X, y, coef), np.arange(len(coef)) if rows is None else rows, c)
    return Local(coef, score, theta, coef + theta @ score if rows is None else None)


def estimates(parts: Sequence[tuple[np.ndarray, np.ndarray]], lam: float, c: float, *, is_shared: bool) -> Estimates:
    """NAE, AE and TE; with a shared inverse each machine makes p / M rows of it."""
    p, M = parts[0][0].shape[1], len(parts)
    if is_shared:
        shares = np.array_split(np.arange(p), M)
        found = [local(X, y, lam, c, rows) for (X, y), rows in zip(parts, shares, strict=True)]
        theta = np.vstack([machine.theta for machine in found])
        debiased = [machine.coef + theta @ machine.score for machine in found]
    else:
        found = [local(X, y, lam, c) for X, y in parts]
        debiased = [machine.coef + machine.theta @ machine.score for machine in found]
    aggregated = np.mean(debiased, axis=0)
    n_kept = max(np.count_nonzero(machine.coef) for machine in found)
    naive = np.mean([machine.coef for machine in found], axis=0)
    return Estimates(naive, aggregated, count_threshold(aggregated, n_kept))
