"""SMO with second-order selection, for the problem without a bias: the best single dual variable at each step.

    maximise  sum_i alpha_i - 1/2 sum_ij alpha_i alpha_j y_i y_j K(x_i, x_j)     subject to  0 <= alpha <= C,  no bias

Without a bias there is no equality constraint and the smallest working set is one variable, as in the batch perceptron
paper. Second-order selection then takes the variable whose own exact optimum gains most: with g = 1 - y_i f(x_i) and
K(x, x) = 1 the step is  d = clip(alpha_i + g, 0, C) - alpha_i, its gain  d (g - d / 2). With a bias the same idea picks
pairs, and the result is LIBSVM's solver: take ``sklearn.svm.SVC`` there.

Kernel evaluations: n for each row computed, at its first use or its first after it fell out of the cache (least
recently used first). Rows that are likely next are computed along with the one that is missing, in one GEMM, and
counted only when used. ``Point.draws`` is the number of steps: times n, the evaluations of SMO without a cache.

Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin: Working set selection using second order information for training support
vector machines, JMLR, 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.baselines.kernel_perceptron import Gaussian, Point, Recorder, add_row, rows_of
from widemargin.compiled.jit import compiled

_AHEAD = 32  # rows computed when one is missing
_DONE = -1


def train(
    X: Any,
    y: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    gamma: float,
    C: float,
    checkpoints: Sequence[int],
    rng: np.random.Generator,
    max_epochs: int = 10,
) -> list[Point]:
    """Points at these numbers of kernel evaluations and at the end; nothing is random, ``rng`` is not used."""
    return solve(X, y, X_test, y_test, gamma, C, checkpoints, max_epochs)[0]


def solve(
    X: Any,
    y: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    gamma: float,
    C: float,
    checkpoints: Sequence[int],
    max_epochs: int = 10,
    tol: float = 1e-3,
    cache_size: float = 512.0,
) -> tuple[list[Point], np.ndarray]:
    """Points, and the coefficients of f, when no derivative exceeds ``tol`` or after n ``max_epochs`` steps.

    ``cache_size`` is in MiB.
    """
    n, kernel = len(y), Gaussian(X, gamma)
    record = Recorder(X_test, y_test, gamma, kernel)
    n_slots = min(n, max(2 * _AHEAD, int(cache_size * 2**20 / (4 * n))))
    rows, place = np.empty((n_slots, n), np.float32), np.full(n, -1)
    held_by, last_use = np.full(n_slots, -1), np.full(n_slots, -1)
    is_counted = np.zeros(n_slots, np.bool_)
    beta, scores = np.zeros(n), np.zeros(n)
    due = rows_of(checkpoints, n)
    n_rows, steps = 0, 0
    while due and steps < max_epochs * n:
        missing, steps, n_rows = _steps(
            y, beta, scores, place, rows, is_counted, last_use, C, tol, steps, max_epochs * n, n_rows, due[0]
        )
        if missing == _DONE:
            break
        if n_rows == due[0]:
            due.pop(0)
            record(beta, n_rows * n, steps)
        if place[missing] < 0:
            wanted = likely(missing, y, beta, scores, place, C, min(_AHEAD, n_slots))
            slots = np.argpartition(last_use, len(wanted) - 1)[: len(wanted)]
            place[held_by[slots][held_by[slots] >= 0]] = -1
            place[wanted], held_by[slots] = slots, wanted
            rows[slots], is_counted[slots], last_use[slots] = kernel.rows(wanted), False, steps
    if due:
        record(beta, n_rows * n, steps)
    return record.points, beta


def likely(missing: int, y, beta, scores, place, C: float, n_rows: int) -> np.ndarray:
    """The missing row, and those of each class not at hand that would gain most: early steps go to and fro."""
    alpha, slope = y * beta, 1.0 - y * scores
    step = np.clip(alpha + slope, 0.0, C) - alpha
    gains = np.where(place < 0, step * (slope - 0.5 * step), 0.0)
    gains[missing] = 0.0
    chosen = [np.array([missing])]
    for sign in (1.0, -1.0):
        mine = np.flatnonzero((y == sign) & (gains > 0.0))
        half = min(len(mine), (n_rows - 1) // 2)
        chosen.append(mine[np.argpartition(-gains[mine], half - 1)[:half]] if half else mine[:0])
    return np.concatenate(chosen)


@compiled()
def _steps(y, beta, scores, place, rows, is_counted, last_use, C, tol, steps, max_steps, n_rows, max_rows):
    """Step until a row is missing, or would be one too many; that row or _DONE, the steps and rows up to here."""
    while True:
        best_gain, best, best_step, violation = 0.0, 0, 0.0, 0.0
        for i in range(y.shape[0]):
            alpha, slope = y[i] * beta[i], 1.0 - y[i] * scores[i]
            step = min(C, max(0.0, alpha + slope)) - alpha
            gain = step * (slope - 0.5 * step)
            if step != 0.0:
                violation = max(violation, abs(slope))
            if gain > best_gain:
                best_gain, best, best_step = gain, i, step
        if violation <= tol or steps == max_steps:
            return _DONE, steps, n_rows
        slot = place[best]
        if slot < 0 or (not is_counted[slot] and n_rows == max_rows):
            return best, steps, n_rows
        if not is_counted[slot]:
            is_counted[slot] = True
            n_rows += 1
        last_use[slot] = steps
        beta[best] += y[best] * best_step
        add_row(scores, y[best] * best_step, rows[slot])
        steps += 1
