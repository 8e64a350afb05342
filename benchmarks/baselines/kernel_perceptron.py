"""The kernelised Perceptron [1] in several passes, and the walk over random rows that Pegasos and SDCA share with it.

    for each row i in random order:   if  y_i f(x_i) <= 0   then  beta_i += y_i,      f = sum_j beta_j K(x_j, .)

Its guarantee is for one pass; after that it may overfit, as Figure 2 of the batch perceptron paper [2] shows on Adult.

What it costs. The responses f(x_j) of all training rows are kept, so a step needs one row of the kernel matrix, n
kernel evaluations, and a row that calls for no step needs none. With ``count_draws`` each row looked at counts n, as it
does in the bounds of [2] for Pegasos and SDCA; ``Point`` has both numbers.

The order of rows does not depend on the iterates: kernel rows of those ahead that need a step now, or nearly, are
computed in blocks, one GEMM each. A row that comes to need one unforeseen ends the block, and from then on more are
foreseen. The iterates are those of the row-by-row algorithm, and only rows that were used are counted.

[1] Y. Freund, R. Schapire: Large margin classification using the perceptron algorithm, Machine Learning, 1999.
[2] A. Cotter, S. Shalev-Shwartz, N. Srebro: The kernelized stochastic batch perceptron, ICML 2012.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from widemargin.compiled.jit import compiled

_MOST_ROWS = 128  # of a block
_BLOCK_BYTES = 1 << 27


class Point(NamedTuple):
    """Where a method stood after so many kernel evaluations."""

    kernel_evaluations: int
    seconds: float  # of training; what the test rows cost is left out
    test_error: float
    n_support: int
    draws: int  # rows looked at, or steps: times n, the evaluations of a method that keeps no responses


@dataclass(frozen=True)
class Perceptron:
    """Add a row when it is on the wrong side."""

    def order(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.permutation(n)

    def is_due(self, margins: np.ndarray, alpha: np.ndarray, t: int, slack: float) -> np.ndarray:
        return margins <= slack

    def sweep(self, draws, place, rows, y, beta, scores, t, budget) -> tuple[int, int]:
        return _sweep(draws, place, rows, y, beta, scores, budget)


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
    """Points at these numbers of kernel evaluations and at the end; ``C`` is for the common shape, there is none."""
    return walk(Perceptron(), X, y, X_test, y_test, gamma, checkpoints, rng, max_epochs, count_draws)[0]


@compiled()
def _sweep(draws, place, rows, y, beta, scores, budget):
    """Rows walked and steps made, up to a row that is due but not at hand, or ``budget`` steps."""
    n_steps = 0
    for k in range(draws.shape[0]):
        i = draws[k]
        if y[i] * scores[i] <= 0.0:
            if place[i] < 0 or n_steps == budget:
                return k, n_steps
            beta[i] += y[i]
            add_row(scores, y[i], rows[place[i]])
            n_steps += 1
    return draws.shape[0], n_steps


@compiled()
def add_row(scores, step, row):
    """``scores += step * row``, the row in float32, without a copy."""
    for j in range(scores.shape[0]):
        scores[j] += step * row[j]


class Rule(Protocol):
    """What makes one method of the walk different from another."""

    def order(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """The ``n`` rows of the next epoch."""

    def is_due(self, margins: np.ndarray, alpha: np.ndarray, t: int, slack: float) -> np.ndarray:
        """Which rows of coefficients y beta step ``t`` would change at margins y f within ``slack`` of these."""

    def sweep(self, draws, place, rows, y, beta, scores, t, budget) -> tuple[int, int]:
        """Walk as ``_sweep`` does; ``rows[place[i]]`` is the kernel row of row i, ``t`` the step of the first draw."""


def walk(
    rule: Rule,
    X: Any,
    y: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    gamma: float,
    checkpoints: Sequence[int],
    rng: np.random.Generator,
    max_epochs: int,
    count_draws: bool = False,
) -> tuple[list[Point], np.ndarray]:
    """Points at these numbers of kernel evaluations, or after ``max_epochs`` where some are left; coefficients of f."""
    n, kernel = len(y), Gaussian(X, gamma)
    record = Recorder(X_test, y_test, gamma, kernel)
    beta, scores, place = np.zeros(n), np.zeros(n), np.full(n, -1)
    due = rows_of(checkpoints, n)
    size = max(1, min(_MOST_ROWS, _BLOCK_BYTES // (4 * n)))
    slack, draws, steps = 1.0, 0, 0
    for _ in range(max_epochs):
        order, done = rule.order(n, rng), 0
        while done < n and due:
            budget = due[0] - (draws if count_draws else steps)
            ahead = order[done : done + budget] if count_draws else order[done:]
            is_due = rule.is_due(y[ahead] * scores[ahead], y[ahead] * beta[ahead], draws + 1, slack)
            is_due[0] = True  # whatever rounding says: each block gets on
            foreseen = np.flatnonzero(is_due)[: size + 1]
            ahead = ahead[: foreseen[size]] if len(foreseen) > size else ahead
            wanted = np.unique(ahead[foreseen[:size]])
            place[wanted] = np.arange(len(wanted))
            walked, used = rule.sweep(ahead, place, kernel.rows(wanted), y, beta, scores, draws + 1, budget)
            place[wanted] = -1
            done, draws, steps = done + walked, draws + walked, steps + used
            slack = 0.9 * slack if walked == len(ahead) or used == budget else max(1.3 * slack, 1e-3)
            while due and due[0] == (draws if count_draws else steps):
                record(beta, due.pop(0) * n, draws)
    if due:
        record(beta, (draws if count_draws else steps) * n, draws)
    return record.points, beta


def rows_of(checkpoints: Sequence[int], n: int) -> list[int]:
    """Numbers of kernel evaluations as numbers of rows: rising, different, at least one."""
    return sorted({max(1, round(evaluations / n)) for evaluations in checkpoints})


class Gaussian:
    """Rows of the kernel matrix in float32; norms ride along in two more columns, so that a block is one product."""

    def __init__(self, X: Any, gamma: float) -> None:
        X = X.astype(np.float32)
        norms = np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
        ones, norms = np.ones((X.shape[0], 1), np.float32), (-gamma * norms[:, None]).astype(np.float32)
        stack = (lambda *parts: sp.hstack(parts, "csr")) if sp.issparse(X) else (lambda *parts: np.hstack(parts))
        self._left = stack(np.float32(2.0 * gamma) * X, norms, ones)
        self._right = stack(X, ones, norms)

    def rows(self, chosen: np.ndarray, others: Gaussian | None = None) -> np.ndarray:
        """``K(x_i, z_j)`` of the chosen rows i against all rows j of ``others``, or of these."""
        right = (others or self)._right
        if sp.issparse(right):
            values = np.ascontiguousarray((right @ self._left[chosen].toarray().T).T)
        else:
            values = self._left[chosen] @ right.T
        return np.exp(values, out=values)


class Recorder:
    """Keeps points; its clock stands still while test rows are looked at."""

    def __init__(self, X_test: Any, y_test: np.ndarray, gamma: float, kernel: Gaussian) -> None:
        self.points: list[Point] = []
        self._kernel, self._test, self._y = kernel, Gaussian(X_test, gamma), y_test
        self._scores, self._beta = np.zeros(len(y_test)), np.zeros(1)
        self._seconds, self._since = 0.0, time.perf_counter()

    def __call__(self, beta: np.ndarray, evaluations: int, draws: int) -> None:
        self._seconds += time.perf_counter() - self._since
        change = beta - self._beta
        moved = np.flatnonzero(change)
        for begin in range(0, len(moved), 512):
            some = moved[begin : begin + 512]
            self._scores += change[some] @ self._kernel.rows(some, self._test)
        self._beta = beta.copy()
        error = float(np.mean(self._y * self._scores <= 0.0))
        self.points.append(Point(evaluations, self._seconds, error, int(np.count_nonzero(beta)), draws))
        self._since = time.perf_counter()
