"""Coreset SVRG (CSVRG): variance-reduced gradient steps whose full gradient is that of a few weighted rows.

    minimise over w   p(w) = mean_i p_i(w),   p_i(w) = 0.5 ||w||^2 + n loss_i(y_i w.x_i)

SVRG passes over all rows for the gradient at w_old; here a coreset stands for them: rows drawn once, half of the odds
alike for all, half by their squared distance from the mean of their class, each weighted by one over its odds. An epoch
is the coreset's gradient h at w_old and then steps on random rows of the whole set,

    w -= step (grad p_i(w) - grad p_i(w_old) + h)

An epoch costs three passes over the coreset and none over all rows; it cannot end nearer to the optimum than the
coreset's own gradient leads. The step is found as in ours: halved, and the epoch undone, where the coreset's objective
rises. Of the paper we have the idea and not the code: the odds are those of the "lightweight coresets" of [2].

[1] Tan, Zhang, Wang: Coreset stochastic variance-reduced gradient with application to optimal margin distribution
    machine, AAAI 2019.
[2] Bachem, Lucic, Krause: Scalable k-means clustering via lightweight coresets, KDD 2018.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import margin_passes
from widemargin.problems.margin_distribution import MarginDistribution


class Point(NamedTuple):
    """A model on the way; the last entry of w is the intercept."""

    seconds: float
    passes: float  # rows touched, by all rows
    w: np.ndarray


class Coreset(NamedTuple):
    """Rows that stand for all, and for how many each stands."""

    rows: np.ndarray
    weight: np.ndarray


def coreset(X: Any, y: np.ndarray, size: int, rng: np.random.Generator) -> Coreset:
    """Drawn with replacement; a row drawn twice stands for twice as many."""
    n, distance = len(y), np.empty(len(y))
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
    for sign in (-1.0, 1.0):
        mine = np.flatnonzero(y == sign)
        centre = np.asarray(X[mine].mean(axis=0)).ravel()
        distance[mine] = np.maximum(squares[mine] - 2 * (X[mine] @ centre) + centre @ centre, 0.0)
    odds = 0.5 / n + 0.5 * distance / max(distance.sum(), np.finfo(float).tiny)
    odds /= odds.sum()
    rows, counts = np.unique(rng.choice(n, size, p=odds), return_counts=True)
    return Coreset(rows, counts / (size * odds[rows]))


def train(
    problem: MarginDistribution,
    X: Any,
    y: np.ndarray,
    rng: np.random.Generator,
    *,
    share: float = 0.1,
    max_time: float = np.inf,
    max_passes: float = 100.0,
    growth: float = 1.1,
    largest: float = 0.5,
) -> list[Point]:
    """Points after every epoch, from w = 0; ``share`` is that of the coreset among all rows.

    The clock runs for the steps and for the choice of the coreset, not for what is made of the points.
    """
    begin, n, constant = time.perf_counter(), len(y), problem.constant
    chosen = coreset(X, y, max(2, int(share * n)), rng)
    few, few_y = X[chosen.rows], y[chosen.rows]
    few_steep = problem.steep(chosen.weight, float(n))
    steep = problem.C / (1 - problem.deadband) ** 2  # of p_i, for every row
    squares = np.asarray(few.multiply(few).sum(axis=1)).ravel() if sp.issparse(few) else np.einsum("ij,ij->i", few, few)
    longest = float(squares.max())
    step = min(1 / (1 + steep * max(1.0, problem.overshoot_weight) * (longest + constant)), largest)
    w, n_inner, passes = np.zeros(X.shape[1] + 1), 2 * len(chosen.rows), 2.0 * (1 + len(chosen.rows) / n)

    def at(w: np.ndarray) -> tuple[float, np.ndarray]:
        """The coreset's objective, and w less its gradient."""
        margin = few_y * (few @ w[:-1] + constant * w[-1])
        g = np.empty(len(margin))
        loss = margin_passes.pulls(margin, few_steep, *problem.shape, g)
        signed = few_y * g
        z = np.append(few.T @ signed, constant * signed.sum())
        return problem.primal_value(float(loss), float(w @ w)), z

    value, z = at(w)
    points = [Point(time.perf_counter() - begin, passes, w)]
    while points[-1].seconds < max_time and passes < max_passes:
        rows = rng.integers(n, size=n_inner)
        block, labels = X[rows], y[rows]
        margin = labels * (block @ w[:-1] + constant * w[-1])
        old = np.empty(n_inner)
        steeps = np.full(n_inner, steep)
        margin_passes.pulls(margin, steeps, *problem.shape, old)
        u, scales = w.copy(), np.array([1.0, 0.0, constant])
        numbers = (np.arange(n_inner), labels, steeps, *problem.shape, old, step, u, z.copy(), scales)
        centre = numbers[-2]
        if sp.issparse(block):
            arrays = (block.data, block.indices, block.indptr)
            margin_passes.variance_reduced_csr(*arrays, *numbers)
        else:
            margin_passes.variance_reduced_dense(block, *numbers)
        ahead = scales[0] * u + scales[1] * centre
        passes += (n_inner + len(chosen.rows)) / n
        following, following_z = at(ahead) if np.isfinite(ahead).all() else (np.inf, z)
        if following <= value:
            w, value, z, step = ahead, following, following_z, min(growth * step, largest)
        else:
            step /= 2
        points.append(Point(time.perf_counter() - begin, passes, w))
        if step < 1e-14:
            break
    return points
