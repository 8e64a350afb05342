"""The stochastic batch perceptron as Algorithm 1 has it: one row a step, no bias, the plain mean of all iterates.

    c = 0;  at step t:   p* = the water over c;  draw i from p*;  w += y_i phi(x_i) / sqrt(t);  w /= max(1, ||w||)

It differs from the printed algorithm where that is wrong (see docs/papers/sbp.md): the level is found otherwise, and a
model predicts with alpha, not alpha / gamma. ``KernelSVC(solver="batch-perceptron")`` draws batches, weighs late
iterates more, begins on a part of the rows and holds some out; this is what all that is to be compared with.

Kernel evaluations: n for each step, as the paper counts. No step can be foreseen, so a row is a matrix-vector product
when it is drawn for the first time; after that it is at hand, within ``cache_size`` MiB. The level is the root of
sum_i max(0, level - c_i) = n nu, found by Newton's method from the level before it.

Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro: The kernelized stochastic batch perceptron, ICML 2012.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.baselines.kernel_perceptron import Gaussian, Point, Recorder, rows_of
from widemargin.compiled.jit import compiled


def train(
    X: Any,
    y: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    gamma: float,
    slack: float,
    checkpoints: Sequence[int],
    rng: np.random.Generator,
    cache_size: float = 2048.0,
) -> list[Point]:
    """Points at these numbers of kernel evaluations; ``slack`` is the paper's nu."""
    n, kernel = len(y), Gaussian(X, gamma)
    record, row_of = Recorder(X_test, y_test, gamma, kernel), _Rows(kernel, n, cache_size)
    alpha, mean, c = np.zeros((3, n))
    level, squared_norm = 0.0, 0.0
    due = rows_of(checkpoints, n)
    for t in range(1, due[-1] + 1):
        level = water_level(c, n * slack, level)
        i = _drawn(c, level, rng.random())
        step = 1 / math.sqrt(t)
        squared_norm += step * (2 * c[i] + step)  # K(x, x) = 1
        scale = 1 / math.sqrt(squared_norm) if squared_norm > 1 else 1.0
        alpha[i] += step
        _move(c, step * y[i], y, row_of(i), alpha, mean, scale, 1.0 / t)
        squared_norm, level = min(squared_norm, 1.0), level * scale
        if t == due[0]:
            record(y * mean, due.pop(0) * n, t)
    return record.points


class _Rows:
    """Rows of the kernel matrix, kept as long as there is room: late draws repeat."""

    def __init__(self, kernel: Gaussian, n: int, cache_size: float) -> None:
        self._kernel, self._kept = kernel, dict[int, np.ndarray]()
        self._room = int(cache_size * 2**20 / (4 * n))

    def __call__(self, i: int) -> np.ndarray:
        row = self._kept.get(i)
        if row is None:
            row = self._kernel.rows(np.array([i]))[0]
            if len(self._kept) < self._room:
                self._kept[i] = row
        return row


@compiled()
def water_level(c, volume, guess):
    """The level to which this volume of water rises over columns of height c."""
    low = c.min()
    if volume <= 0.0:
        return low
    level = max(guess, low + volume / c.shape[0])  # never above its level over equal columns: some are covered
    while True:
        covered, total = 0, 0.0
        for j in range(c.shape[0]):
            if c[j] < level:
                covered += 1
                total += c[j]
        # Newton on a convex function of the level: from the second step on from above, down to the root.
        after = (volume + total) / covered
        if after == level or abs(after - level) <= 1e-14 * (abs(level) + abs(low)):
            return after
        level = after


@compiled()
def _drawn(c, level, u):
    """One of the rows under water, all alike; a lowest one where there is no water."""
    covered = 0
    for j in range(c.shape[0]):
        covered += c[j] < level
    if covered == 0:
        return c.argmin()
    skip = min(int(u * covered), covered - 1)
    for j in range(c.shape[0]):
        if c[j] < level:
            if skip == 0:
                return j
            skip -= 1
    return c.shape[0] - 1


@compiled()
def _move(c, step, y, row, alpha, mean, scale, weight):
    """``c += step y row``, then c and alpha scaled, then ``mean += weight (alpha - mean)``."""
    for j in range(c.shape[0]):
        c[j] = scale * (c[j] + step * y[j] * row[j])
        alpha[j] *= scale
        mean[j] += weight * (alpha[j] - mean[j])
