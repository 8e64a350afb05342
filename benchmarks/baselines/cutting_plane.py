"""The one-slack cutting plane of SVM-Perf for the linear SVM: planes under the mean loss, and a small exact program.

    minimise  F(w) = alpha/2 ||w||^2 + R(w),     R(w) = 1/n sum_i max(0, 1 - y_i w.x_i)

R lies over each of its planes,  R(w) >= b - g.w  with  g = 1/n sum of y x  and  b = 1/n their number, over the rows
that some w violates. With a few planes in the place of R the dual is a small quadratic program,

    maximise over beta >= 0, sum(beta) = 1     b.beta - 1/(2 alpha) ||G' beta||^2,          w = G' beta / alpha

(the plane 0, of no rows, is one of them), whose value is below the optimum. Each round adds the plane of its w. The gap
between the best F so far and that value is proven. This is Algorithm 3 of [1], with an exact inner solver.

[1] T. Joachims: Training Linear SVMs in Linear Time, KDD 2006.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

_MOST_MOVES = 2_000  # of the inner solver in one round
_SLACK = 1e-12  # of the largest number in a program: what counts as zero


class Point(NamedTuple):
    """Where the method stood after so many rounds and so much processor time; ``w`` is the best so far."""

    rounds: int
    cpu_seconds: float
    w: np.ndarray
    primal: float
    dual: float

    @property
    def gap(self) -> float:
        return (self.primal - self.dual) / self.primal


def train(
    X: Any, y: np.ndarray, alpha: float, tol: float = 1e-3, max_rounds: int = 1_000, max_seconds: float = np.inf
) -> list[Point]:
    """A point for each round, until the gap is at most ``tol``; seconds are of the processor."""
    n, d = X.shape
    planes, offsets = np.zeros((1, d)), np.zeros(1)
    products, beta = np.zeros((1, 1)), np.ones(1)
    w, best, begin = np.zeros(d), np.zeros(d), time.process_time()
    primal, dual = np.inf, 0.0
    points: list[Point] = []
    for rounds in range(1, max_rounds + 1):
        margins = y * np.asarray(X @ w).ravel()
        value = 0.5 * alpha * float(w @ w) + float(np.maximum(0.0, 1.0 - margins).mean())
        if value < primal:
            primal, best = value, w
        points.append(Point(rounds, time.process_time() - begin, best, primal, dual))
        if points[-1].gap <= tol or points[-1].cpu_seconds > max_seconds:
            break
        is_violated = margins < 1.0
        plane = np.asarray(X.T @ np.where(is_violated, y, 0.0)).ravel() / n
        across = planes @ plane / alpha
        products = np.block([[products, across[:, None]], [across[None, :], np.array([[plane @ plane / alpha]])]])
        planes, offsets = np.vstack([planes, plane]), np.append(offsets, is_violated.mean())
        beta = maximise(products, offsets, np.append(beta, 0.0))
        w = planes.T @ beta / alpha
        dual = max(dual, float(offsets @ beta - 0.5 * beta @ products @ beta))
    return points


def maximise(products: np.ndarray, offsets: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The best of  b.beta - 1/2 beta' Q beta  on the simplex, from a point of it, by active sets.

    On the positive entries the best point of their plane is found; on the way there an entry that reaches 0 is dropped.
    At the best point of the set, the entry that would gain most comes in.
    """
    slack = _SLACK * max(1.0, float(np.abs(products).max()))
    active = np.flatnonzero(beta > 0)
    for _ in range(_MOST_MOVES):
        target, level = _on_plane(products, offsets, active, slack)
        change = target - beta[active]
        is_leaving = target <= 0
        if is_leaving.any():
            shares = beta[active[is_leaving]] / -change[is_leaving]
            share = float(shares.min())
            beta[active] += share * change
            gone = active[is_leaving][np.argmin(shares)]
            beta[gone] = 0.0
            active = active[active != gone]
            continue
        beta[active] = target
        gains = offsets - products @ beta - level
        gains[active] = -np.inf
        if not len(gains) or gains.max() <= slack:
            break
        active = np.append(active, np.argmax(gains))
    beta = np.maximum(beta, 0.0)
    return beta / beta.sum()


def _on_plane(products: np.ndarray, offsets: np.ndarray, active: np.ndarray, slack: float) -> tuple[np.ndarray, float]:
    """The best point of  sum = 1  on some entries, and the multiplier of that sum."""
    n = len(active)
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = products[np.ix_(active, active)] + slack * np.eye(n)
    system[:n, n] = system[n, :n] = 1.0
    answer = np.linalg.solve(system, np.append(offsets[active], 1.0))
    return answer[:n], float(answer[n])
