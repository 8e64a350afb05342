"""Saddle-SVC to the letter: Algorithms 1 and 2 with the paper's constants and the paper's rule to stop.

    maximise over w  minimise over eta, xi   w'A eta - w'B xi + gamma (H(eta) + H(xi)) - 0.5 ||w||^2

for the hard margin: one coordinate a round, gamma = epsilon beta / (2 log n) from the start, q = sqrt(log n). Every
T = d + sqrt(d / (epsilon beta)) rounds the distance is compared with the last one, and a change below epsilon ends the
run. Nothing is certified, and that is the point: the distance it ends with can be held against the true one.

Reference: Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled.transforms import walsh_hadamard


class Stop(NamedTuple):
    """Where the rule ended the run."""

    distance: float
    n_rounds: int


def solve(X: Any, y: np.ndarray, rng: np.random.Generator, *, epsilon: float, beta: float, max_rounds: int) -> Stop:
    """The distance between the hulls when the paper's rule is satisfied, or after ``max_rounds``."""
    # Algorithm 1. Footnote 3 says 1 / max ||x||^2; rows are of length at most one when divided by max ||x||.
    rows = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    length = float(np.linalg.norm(rows, axis=1).max())
    n, d = len(rows), 1 << (rows.shape[1] - 1).bit_length()
    block = np.zeros((n, d))
    block[:, : rows.shape[1]] = rows / length
    block *= rng.choice([-1.0, 1.0], d)
    walsh_hadamard(block)
    columns = np.ascontiguousarray(block.T) * y  # signed: z = columns @ mass
    gamma, q = epsilon * beta / (2 * math.log(n)), math.sqrt(math.log(n))
    prox, sigma = 2 * q * math.sqrt(d * gamma), math.sqrt(d * gamma) / (2 * q)  # prox is d / tau
    theta = 1 - 1 / (d + q * math.sqrt(d / gamma))
    is_positive = y > 0
    totals = np.where(is_positive, is_positive.sum(), n - is_positive.sum())
    w, scores, mass = np.zeros(d), np.zeros(n), 1.0 / totals
    log_mass, previous = np.log(mass), mass

    # Algorithm 2.
    period = round(d + math.sqrt(d / (epsilon * beta)))
    last = math.inf
    for t in range(1, max_rounds + 1):
        i = rng.integers(d)
        delta = columns[i] @ (mass + theta * (mass - previous))
        step = (w[i] + sigma * delta) / (1 + sigma) - w[i]
        log_mass = (prox * log_mass - (scores + d * step * columns[i])) / (gamma + prox)
        w[i] += step
        scores += step * columns[i]
        previous, mass = mass, np.exp(log_mass)
        sums = np.where(is_positive, mass[is_positive].sum(), mass[~is_positive].sum())
        mass = mass / sums
        log_mass = log_mass - np.log(sums)
        if t % period == 0:
            distance = float(np.linalg.norm(columns @ mass))
            if abs(last - distance) < epsilon:
                break
            last = distance
    return Stop(float(np.linalg.norm(columns @ mass)) * length, t)
