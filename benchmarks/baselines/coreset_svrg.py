"""Coreset SVRG (CSVRG): variance-reduced gradient steps on core points that stand for the rows around them.

    minimise over w   p(w) = mean_i p_i(w),   p_i(w) = 0.5 ||w||^2 + n loss_i(y_i w.x_i)

[1] covers the rows with balls of one radius around some of them, the core points, and takes for the gradient at a row
that of the core point of its ball: the full gradient h at w_old is a weighted sum over core points, and a step draws a
row and moves by its core point z,

    w -= step (grad p_z(w) - grad p_z(w_old) + h)

That is SVRG on the weighted core points: it converges linearly, to the optimum of the covered problem, which is off
that of all rows by as much as the radius allows. An epoch costs three passes over the core points, none over all rows.

Of [1] we have the idea and not the text. How it differs here, as far as we know: a ball holds rows of one class; core
points are found greedily in random order; the radius is the one that leaves half of 1,000 rows as core points, which is
5 to 20% of all rows of larger sets (with a tenth of the 1,000 it is less accurate by up to .1); [1] has a kernel, and w
as a sum over core points, where here w is a vector; the step is found as in ours, halved and the epoch undone where the
objective of the core points rises.

[1] Tan, Zhang, Wang: Coreset stochastic variance-reduced gradient with application to optimal margin distribution
    machine, AAAI 2019.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import margin_passes
from widemargin.compiled.jit import compiled
from widemargin.problems.margin_distribution import MarginDistribution

SHARE, SAMPLE = 0.5, 1_000  # of a sample of rows, how many are core points
_HALVINGS = 20  # of the interval that holds the radius


class EpochEnd(NamedTuple):
    """A model on the way; the last entry of w is the intercept."""

    seconds: float
    passes: float  # rows touched, by all rows
    w: np.ndarray


class Coreset(NamedTuple):
    """Core points, for how many rows each stands, and the number of the core point of every row."""

    rows: np.ndarray
    weight: np.ndarray
    place: np.ndarray


class Trained(NamedTuple):
    points: list[EpochEnd]
    coreset: Coreset
    cover_seconds: float


def coreset(X: Any, y: np.ndarray, radius: float, rng: np.random.Generator) -> Coreset:
    """Rows in random order become core points unless one of their class is within the radius, which covers them."""
    dense = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    order = rng.permutation(len(y))
    chosen, place = np.empty(len(y), np.intp), np.empty(len(y), np.intp)
    n_core = _cover(dense, y, order, radius**2, chosen, place)
    return Coreset(chosen[:n_core], np.bincount(place, minlength=n_core).astype(float), place)


@compiled()
def _cover(X, y, order, squared, chosen, place):
    n_core = 0
    for k in range(order.shape[0]):
        i = order[k]
        found = -1
        for c in range(n_core):
            z = chosen[c]
            if y[z] != y[i]:
                continue
            total = 0.0
            for j in range(X.shape[1]):
                total += (X[i, j] - X[z, j]) ** 2
                if total > squared:
                    break
            if total <= squared:
                found = c
                break
        if found < 0:
            chosen[n_core] = i
            found = n_core
            n_core += 1
        place[i] = found
    return n_core


def radius_for(X: Any, y: np.ndarray, share: float, rng: np.random.Generator) -> float:
    """The radius that leaves about this share of a sample of rows as core points, by bisection."""
    few = np.sort(rng.choice(len(y), min(SAMPLE, len(y)), replace=False))
    part, labels = X[few], y[few]
    spread = np.asarray(part.toarray() if sp.issparse(part) else part).std(axis=0)
    low, high = 0.0, 8 * float(np.linalg.norm(spread)) + 1e-12
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_finer = len(coreset(part, labels, middle, np.random.default_rng(0)).rows) > share * len(few)
        low, high = (middle, high) if is_finer else (low, middle)
    return high


def train(
    problem: MarginDistribution,
    X: Any,
    y: np.ndarray,
    rng: np.random.Generator,
    *,
    share: float = SHARE,
    max_time: float = np.inf,
    max_passes: float = 100.0,
    growth: float = 1.1,
    largest: float = 0.5,
) -> Trained:
    """Models after every epoch, from w = 0. The clock runs from the choice of the core points."""
    begin, n, constant = time.perf_counter(), len(y), problem.constant
    chosen = coreset(X, y, radius_for(X, y, share, rng), rng)
    cover_seconds = time.perf_counter() - begin
    few, few_y = X[chosen.rows], y[chosen.rows]
    few_steep = problem.steep(chosen.weight, float(n))
    steep = problem.C / (1 - problem.deadband) ** 2  # of p_i, for every row
    squares = np.asarray(few.multiply(few).sum(axis=1)).ravel() if sp.issparse(few) else np.einsum("ij,ij->i", few, few)
    step = min(1 / (1 + steep * max(1.0, problem.overshoot_weight) * (float(squares.max()) + constant)), largest)
    w, n_inner, passes = np.zeros(X.shape[1] + 1), 2 * len(chosen.rows), 1.0 + len(chosen.rows) / n

    def at(w: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective on core points, and w less its gradient."""
        margin = few_y * (few @ w[:-1] + constant * w[-1])
        g = np.empty(len(margin))
        loss = margin_passes.pulls(margin, few_steep, *problem.shape, g)
        signed = few_y * g
        z = np.append(few.T @ signed, constant * signed.sum())
        return problem.primal_value(float(loss), float(w @ w)), z

    value, z = at(w)
    points = [EpochEnd(time.perf_counter() - begin, passes, w)]
    while points[-1].seconds < max_time and passes < max_passes:
        drawn = chosen.place[rng.integers(n, size=n_inner)]  # the core points of rows drawn alike
        block, labels = few[drawn], few_y[drawn]
        margin = labels * (block @ w[:-1] + constant * w[-1])
        old, steeps = np.empty(n_inner), np.full(n_inner, steep)
        margin_passes.pulls(margin, steeps, *problem.shape, old)
        u, scales = w.copy(), np.array([1.0, 0.0, constant])
        numbers = (np.arange(n_inner), labels, steeps, *problem.shape, old, step, u, z.copy(), scales)
        centre = numbers[-2]
        if sp.issparse(block):
            margin_passes.variance_reduced_csr(block.data, block.indices, block.indptr, *numbers)
        else:
            margin_passes.variance_reduced_dense(block, *numbers)
        ahead = scales[0] * u + scales[1] * centre
        passes += (n_inner + len(chosen.rows)) / n
        following, following_z = at(ahead) if np.isfinite(ahead).all() else (np.inf, z)
        if following <= value:
            w, value, z, step = ahead, following, following_z, min(growth * step, largest)
        else:
            step /= 2
        points.append(EpochEnd(time.perf_counter() - begin, passes, w))
        if step < 1e-14:
            break
    return Trained(points, chosen, cover_seconds)
