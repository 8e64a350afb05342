"""The stochastic batch perceptron as Algorithm 1 has it: one row a step, no bias, the plain mean of all iterates.

    c = 0;  at step t:   p* = the water over c;  draw i from p*;  w += y_i phi(x_i) / sqrt(t);  w /= max(1, ||w||)

It differs from the printed algorithm where that is wrong (see docs/papers/sbp.md): the level has a closed form, and a
model predicts with alpha, not alpha / gamma. ``KernelSVC(solver="batch-perceptron")`` draws batches, weighs late
iterates more, begins on a part of the rows and holds some out; this is what all that is to be compared with.

Kernel evaluations: n for each step. No step can be foreseen, so a row is a matrix-vector product.

Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro: The kernelized stochastic batch perceptron, ICML 2012.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.baselines.kernel_perceptron import Gaussian, Point, Recorder, rows_of
from widemargin.problems.slack_constrained import SlackConstrained


def train(
    X: Any,
    y: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    gamma: float,
    slack: float,
    checkpoints: Sequence[int],
    rng: np.random.Generator,
) -> list[Point]:
    """Points at these numbers of kernel evaluations; ``slack`` is the paper's nu."""
    n, kernel, problem = len(y), Gaussian(X, gamma), SlackConstrained(slack=slack, fit_intercept=False)
    record = Recorder(X_test, y_test, gamma, kernel)
    alpha, mean, c = np.zeros((3, n))
    weight, squared_norm = np.ones(n), 0.0
    due = rows_of(checkpoints, n)
    for t in range(1, due[-1] + 1):
        water = problem.water_level(c, y, weight, squared_norm)
        under = np.flatnonzero(water.share)
        i = under[np.searchsorted(np.cumsum(water.share[under]), rng.random() * water.share[under].sum())]
        step = 1 / math.sqrt(t)
        squared_norm += step * (2 * c[i] + step)  # K(x, x) = 1
        c += (step * y[i]) * y * kernel.rows(np.array([i]))[0]
        alpha[i] += step
        if squared_norm > 1:
            alpha /= math.sqrt(squared_norm)
            c /= math.sqrt(squared_norm)
            squared_norm = 1.0
        mean += (alpha - mean) / t
        if t == due[0]:
            record(y * mean, due.pop(0) * n, t)
    return record.points
