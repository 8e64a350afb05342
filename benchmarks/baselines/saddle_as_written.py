"""Saddle-SVC to the letter: Algorithms 1 and 2 with the paper's constants and the paper's rule to stop.

What happens when they are run as printed: the iterates are right, and the rule stops them too early. A slow stretch is
taken for the end, and the distance is too large by 2% to 18% on the sets of Table 1 at an epsilon of .1%.

    maximise over w  minimise over eta, xi   w'A eta - w'B xi + gamma (H(eta) + H(xi)) - 0.5 ||w||^2

for the hard margin, or for nu with masses of at most ``cap`` by the loop (12): one coordinate a round, gamma = epsilon
beta / (2 log n) from the start, q = sqrt(log n). Every T = d + sqrt(d / (epsilon beta)) rounds the distance is compared
with the last one, and a change below epsilon ends the run. Nothing is certified: the distance it ends with can be held
against the true one. For Theorem 7 a run can end at a value of g(w) instead, and multiplications,
divisions, exponentials and logarithms are counted as they are made, one each; those of the rule and of g(w) are not.

Reference: Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.baselines.saddle_nu_as_written import loop_12
from widemargin.compiled.transforms import walsh_hadamard

_LOOK = 10  # rounds between two looks at g(w)


class Stop(NamedTuple):
    """Where the rule, or the value asked for, ended the run."""

    distance: float
    n_rounds: int
    n_operations: int
    value: float  # g(w) of Lemma 3, for the rows as they came


def solve(
    X: Any,
    y: np.ndarray,
    rng: np.random.Generator,
    *,
    epsilon: float,
    beta: float,
    max_rounds: int,
    cap: float | None = None,
    until: float | None = None,
) -> Stop:
    """The distance between the hulls when the paper's rule is satisfied, or after ``max_rounds``.

    With ``until`` the rule is not asked: the run ends once g(w) is at least that, rows as they came.
    """
    block, length = rotated(X, rng)
    n, d = block.shape
    columns = np.ascontiguousarray(block.T) * y  # signed: z = columns @ mass
    gamma, q = epsilon * beta / (2 * math.log(n)), math.sqrt(math.log(n))
    prox, sigma = 2 * q * math.sqrt(d * gamma), math.sqrt(d * gamma) / (2 * q)  # prox is d / tau
    theta = 1 - 1 / (d + q * math.sqrt(d / gamma))
    is_positive = y > 0
    totals = np.where(is_positive, is_positive.sum(), n - is_positive.sum())
    w, scores, mass = np.zeros(d), np.zeros(n), 1.0 / totals
    log_mass, previous = np.log(mass), mass

    operations = 2 * n * X.shape[1] + n * d  # lengths, and the division by the largest; the signs D
    sides = (is_positive, ~is_positive)

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
        operations += 8 * n + 6  # theta, delta, prox, step d, gamma, scores, exp, sums; of single numbers the rest
        if cap is not None:
            for side in sides:
                before = mass[side]
                mass[side], rounds = loop_12(before, cap)
                # Below the cap all are scaled alike; logarithms of masses that underflow stay what they are.
                below = mass[side] < cap
                top = int(np.where(below, before, -1.0).argmax())
                factor = math.log(mass[side][top] / before[top]) if below.any() else 0.0
                log_mass[side] = np.where(below, log_mass[side] + factor, math.log(cap))
                operations += rounds * int(side.sum()) + 2  # each round scales
        if until is not None:
            if t % _LOOK == 0 and length**2 * value_at(scores, w, sides, cap) >= until:
                break
        elif t % period == 0:
            distance = float(np.linalg.norm(columns @ mass))
            if abs(last - distance) < epsilon:
                break
            last = distance
    value = length**2 * value_at(scores, w, sides, cap)
    return Stop(float(np.linalg.norm(columns @ mass)) * length, t, operations, value)


def rotated(X: Any, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Lines 1 to 3 of Algorithm 1: rows of length at most one, with signs D and turned by W, and what divided them.

    Footnote 3 says 1 / max ||x||^2; rows are of length at most one when divided by max ||x||.
    """
    rows = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    length = float(np.linalg.norm(rows, axis=1).max())
    block = np.zeros((len(rows), 1 << (rows.shape[1] - 1).bit_length()))
    block[:, : rows.shape[1]] = rows / length
    block *= rng.choice([-1.0, 1.0], block.shape[1])
    walsh_hadamard(block)
    return block, length


def value_at(scores: np.ndarray, w: np.ndarray, sides: tuple[np.ndarray, np.ndarray], cap: float | None) -> float:
    """g(w) of Lemma 3, of signed scores: the least mean of each class under its caps, less half the square of w."""
    return sum(least(scores[side], 1.0 if cap is None else cap) for side in sides) - 0.5 * float(w @ w)


def least(scores: np.ndarray, cap: float) -> float:
    """The least mean under masses of at most ``cap``."""
    if cap >= 1:
        return float(scores.min())
    whole = int(1 / cap + 1e-9)
    rising = np.partition(scores, min(whole, len(scores) - 1))
    rest = max(0.0, 1 - whole * cap)
    return cap * float(rising[:whole].sum()) + (rest * float(rising[whole]) if whole < len(scores) else 0.0)
