"""Kernel Pegasos: stochastic subgradients of the regularised hinge loss, steps of length 1 / (lambda t).

    minimise  lambda/2 ||w||^2 + 1/n sum_i max(0, 1 - y_i w.phi(x_i)),          lambda = 1 / (C n), no bias

Figure 3 of the paper: draw i uniformly; if  y_i (1 / (lambda t)) sum_j beta_j K(x_j, x_i) < 1  then  beta_i += y_i.
After t steps  w = (1 / (lambda t)) sum_j beta_j phi(x_j). The scale does not change a sign, so it is never applied.
There is no projection onto the ball of radius 1 / sqrt(lambda), which the paper leaves open, and the last w is taken.

Kernel evaluations: n for each step that changes beta, or each draw with ``count_draws``; see ``kernel_perceptron``.

Reference: S. Shalev-Shwartz, Y. Singer, N. Srebro, A. Cotter: Pegasos: primal estimated sub-gradient solver for SVM,
Mathematical Programming, 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.baselines.kernel_perceptron import Point, add_row, walk
from widemargin.compiled.jit import compiled


@dataclass(frozen=True)
class Pegasos:
    """Add a row when its margin is violated at the present scale."""

    lambda_: float

    def order(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(n, size=n)

    def is_due(self, margins: np.ndarray, alpha: np.ndarray, t: int, slack: float) -> np.ndarray:
        return margins < self.lambda_ * t + slack

    def sweep(self, draws, place, rows, y, beta, scores, t, budget) -> tuple[int, int]:
        return _sweep(draws, place, rows, y, beta, scores, t, self.lambda_, budget)


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
    count_draws: bool = False,
) -> list[Point]:
    """Points at these numbers of kernel evaluations, and after ``max_epochs`` times n draws where some are left."""
    return walk(Pegasos(1.0 / (C * len(y))), X, y, X_test, y_test, gamma, checkpoints, rng, max_epochs, count_draws)[0]


@compiled()
def _sweep(draws, place, rows, y, beta, scores, t, lambda_, budget):
    """Rows walked and steps made, up to a row that is due but not at hand, or ``budget`` steps."""
    n_steps = 0
    for k in range(draws.shape[0]):
        i = draws[k]
        if y[i] * scores[i] < lambda_ * (t + k):
            if place[i] < 0 or n_steps == budget:
                return k, n_steps
            beta[i] += y[i]
            add_row(scores, y[i], rows[place[i]])
            n_steps += 1
    return draws.shape[0], n_steps
