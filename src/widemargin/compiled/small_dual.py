"""The dual of a kernel SVM whose kernel values are all known: steps until the duality gap is closed, and responses.

Vectors are as in :mod:`widemargin.compiled.working_set`, filled up with rows that cannot move.
"""

import numpy as np

from widemargin.compiled.jit import compiled
from widemargin.compiled.working_set import pairs, singles

GROUP = 32  # terms of a response that are added up before their sum is added to the others
_FIRST_VIOLATION = 0.1
_MIN_CUT, _MAX_CUT = 0.05, 0.5  # of the violation that is asked for next
_MIN_VIOLATION = 1e-15  # relative to the largest pull: less is rounding


@compiled()
def violation(pull: np.ndarray, beta: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """The largest pull of a row that can rise, and the smallest of one that can fall; infinite where there is none."""
    highest, lowest = -np.inf, np.inf
    for i in range(beta.shape[0]):
        if beta[i] < high[i]:
            highest = max(highest, pull[i])
        if beta[i] > low[i]:
            lowest = min(lowest, pull[i])
    return highest, lowest


@compiled()
def _relative_gap(
    y: np.ndarray, pull: np.ndarray, beta: np.ndarray, low: np.ndarray, high: np.ndarray, intercept: float
) -> float:
    """An estimate, for w as it is; a cap is ``high - low``, since one of them is 0."""
    loss = squared = mass = 0.0
    for i in range(beta.shape[0]):
        loss += (high[i] - low[i]) * max(y[i] * (pull[i] - intercept), 0.0)
        squared += beta[i] * (y[i] - pull[i])
        mass += abs(beta[i])
    primal = 0.5 * squared + loss
    return (primal - mass + 0.5 * squared) / primal if primal > 0.0 else 0.0


@compiled()
def descend(
    K: np.ndarray, diagonal: np.ndarray, y: np.ndarray, pull: np.ndarray, beta: np.ndarray, low: np.ndarray,
    high: np.ndarray, is_tied: bool, gap: float, least_violation: float, max_steps: int,
) -> int:  # fmt: skip
    """Steps until the relative gap is about ``gap``, or the violation ``least_violation``; returns their number."""
    steps, wanted, largest = 0, _FIRST_VIOLATION, 1.0
    while True:
        wanted = max(wanted, least_violation)
        few = max_steps - steps
        if is_tied:
            steps += pairs(K, diagonal, pull, beta, low, high, wanted, few)
        else:
            steps += singles(K, diagonal, pull, beta, low, high, wanted, few)
        highest, lowest = violation(pull, beta, low, high)
        found = highest - lowest if is_tied else 2.0 * max(highest, -lowest)
        if steps >= max_steps or found > wanted or wanted <= least_violation:
            return steps
        relative = _relative_gap(y, pull, beta, low, high, (highest + lowest) / 2.0 if is_tied else 0.0)
        for i in range(pull.shape[0]):
            largest = max(largest, abs(pull[i]))
        if relative <= gap or wanted <= _MIN_VIOLATION * largest:
            return steps
        wanted *= max(_MIN_CUT, min(_MAX_CUT, _MAX_CUT * gap / relative))


@compiled()
def responses(K: np.ndarray, beta: np.ndarray, out: np.ndarray) -> None:
    """``out_i = sum_j beta_j K_ji``, in groups of ``GROUP`` terms that are not 0."""
    n, part, n_terms = beta.shape[0], np.zeros(out.shape[0]), 0
    out[:] = 0.0
    for j in range(n):
        if beta[j] == 0.0:
            continue
        for i in range(out.shape[0]):
            part[i] += beta[j] * K[j, i]
        n_terms += 1
        if n_terms % GROUP == 0:
            for i in range(out.shape[0]):
                out[i] += part[i]
                part[i] = 0.0
    for i in range(out.shape[0]):
        out[i] += part[i]


@compiled()
def sub_block(K: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """The kernel values between some rows, filled up with zeros."""
    n = places.shape[0]
    for i in range(n):
        row = K[places[i]]
        for j in range(n):
            out[i, j] = row[places[j]]
        for j in range(n, out.shape[1]):
            out[i, j] = 0.0
