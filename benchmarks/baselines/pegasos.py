"""Pegasos for the linear SVM: stochastic subgradients with steps of length 1 / (alpha t), on rows that lie together.

    minimise  F(w) = alpha/2 ||w||^2 + 1/n sum_i max(0, 1 - y_i w.x_i)

At step t draw ``batch_size`` rows, go  w <- (1 - 1/t) w + 1 / (alpha t) mean of y x over those with y w.x < 1,  then to
the nearest point of the ball of radius 1 / sqrt(alpha), in which the optimum lies. The last w is the answer, as in [1].

w is kept as a number times a vector, so that a step costs as many numbers as its rows have.

[1] S. Shalev-Shwartz, Y. Singer, N. Srebro, A. Cotter: Pegasos: primal estimated sub-gradient solver for SVM,
    Mathematical Programming, 2011.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled.jit import compiled

_MOST_DRAWS = 1 << 20  # at a time
_SMALLEST = 1e-6  # of the number before the vector


class Point(NamedTuple):
    """Where a method stood after so many steps and so much processor time."""

    steps: int
    cpu_seconds: float
    w: np.ndarray


def train(
    X: Any, y: np.ndarray, alpha: float, checkpoints: Sequence[int], rng: np.random.Generator, batch_size: int = 1
) -> list[Point]:
    """The models after these numbers of steps, which must grow."""
    X = sp.csr_matrix(X, dtype=np.float64)
    arrays = np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr)
    v, numbers = np.zeros(X.shape[1]), np.array([1.0, 0.0])  # w = numbers[0] v, and ||v||^2
    points, done, spent = [], 0, 0.0
    for checkpoint in checkpoints:
        if checkpoint <= done:
            raise ValueError(f"checkpoints must be positive and grow; {checkpoint} comes after {done}.")
        begin = time.process_time()
        while done < checkpoint:
            n_steps = min(checkpoint - done, max(1, _MOST_DRAWS // batch_size))
            drawn = rng.integers(len(y), size=(n_steps, batch_size))
            _walk(*arrays, y, drawn, done, alpha, v, numbers)
            done += n_steps
        spent += time.process_time() - begin
        points.append(Point(done, spent, numbers[0] * v))
    return points


@compiled()
def _walk(data, indices, indptr, y, drawn, before, alpha, v, numbers):
    """Steps ``before + 1`` and on; ``v`` and ``numbers``, the scale and ||v||^2, are changed."""
    scale, squared = numbers[0], numbers[1]
    n_steps, batch_size = drawn.shape
    is_violated = np.zeros(batch_size, dtype=np.bool_)
    for k in range(n_steps):
        t = before + k + 1
        for place in range(batch_size):
            i = drawn[k, place]
            score = 0.0
            for j in range(indptr[i], indptr[i + 1]):
                score += data[j] * v[indices[j]]
            is_violated[place] = y[i] * scale * score < 1.0
        if t == 1:
            v[:], scale, squared = 0.0, 1.0, 0.0
        else:
            scale *= 1.0 - 1.0 / t
        for place in range(batch_size):
            if is_violated[place]:
                i = drawn[k, place]
                push = y[i] / (alpha * t * batch_size * scale)
                for j in range(indptr[i], indptr[i + 1]):
                    column = indices[j]
                    old = v[column]
                    v[column] = old + push * data[j]
                    squared += v[column] * v[column] - old * old
        length = scale * np.sqrt(max(squared, 0.0))
        if alpha * length * length > 1.0:
            scale /= np.sqrt(alpha) * length
        if scale < _SMALLEST:  # projections shrink it, and v grows
            v *= scale
            scale, squared = 1.0, np.sum(v * v)
    numbers[0], numbers[1] = scale, squared
