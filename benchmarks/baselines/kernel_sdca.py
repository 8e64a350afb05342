"""Stochastic dual coordinate ascent: one random dual variable at a time, optimised exactly.

    maximise  sum_i alpha_i - 1/2 sum_ij alpha_i alpha_j y_i y_j K(x_i, x_j)     subject to  0 <= alpha <= C,  no bias

With f = sum_j y_j alpha_j K(x_j, .) the derivative along alpha_i is 1 - y_i f(x_i), and the best alpha_i, the others
held, is  clip(alpha_i + (1 - y_i f(x_i)) / K(x_i, x_i), 0, C). Hsieh et al. walk through a fresh permutation each
epoch; the batch perceptron paper draws "a single alpha_i randomly at each iteration", and so do we unless ``permuted``.

Kernel evaluations: n for each step that changes alpha, or each draw with ``count_draws``; see ``kernel_perceptron``.

Reference: C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan: A dual coordinate descent method for
large-scale linear SVM, ICML 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.baselines.kernel_perceptron import Point, add_row, walk
from widemargin.compiled.jit import compiled

_NONE = 1e-10  # a step this short, beside C, is rounding


@dataclass(frozen=True)
class DualAscent:
    """Optimise the drawn variable; K(x, x) = 1."""

    C: float
    permuted: bool = False

    def order(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.permutation(n) if self.permuted else rng.integers(n, size=n)

    def is_due(self, margins: np.ndarray, alpha: np.ndarray, t: int, slack: float) -> np.ndarray:
        highest, lowest = (np.clip(alpha + 1.0 - margins + way, 0.0, self.C) for way in (slack, -slack))
        return np.maximum(highest - alpha, alpha - lowest) > _NONE * self.C

    def sweep(self, draws, place, rows, y, beta, scores, t, budget) -> tuple[int, int]:
        return _sweep(draws, place, rows, y, beta, scores, self.C, budget)


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
    return walk(DualAscent(C), X, y, X_test, y_test, gamma, checkpoints, rng, max_epochs, count_draws)[0]


@compiled()
def _sweep(draws, place, rows, y, beta, scores, C, budget):
    """Rows walked and steps made, up to a row that is due but not at hand, or ``budget`` steps."""
    n_steps = 0
    for k in range(draws.shape[0]):
        i = draws[k]
        alpha = y[i] * beta[i]
        best = min(C, max(0.0, alpha + 1.0 - y[i] * scores[i]))
        if abs(best - alpha) > _NONE * C:
            if place[i] < 0 or n_steps == budget:
                return k, n_steps
            beta[i] = y[i] * best
            add_row(scores, y[i] * (best - alpha), rows[place[i]])
            n_steps += 1
    return draws.shape[0], n_steps
