"""The dual of a kernel SVM whose kernel values are all known: steps until the duality gap is closed, and bounds.

Vectors are as in :mod:`widemargin.compiled.working_set`, filled up with rows that cannot move.
"""

import numpy as np

from widemargin.compiled.hinge import found, search, start_search
from widemargin.compiled.jit import compiled
from widemargin.compiled.working_set import pairs, singles
from widemargin.rounding import UNIT

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
def relative_gap(
    y: np.ndarray, pull: np.ndarray, beta: np.ndarray, low: np.ndarray, high: np.ndarray, intercept: float
) -> float:
    """An estimate, for w as it is, or so long that no row has a loss; a cap is ``high - low``: one of them is 0."""
    loss = squared = mass = most = 0.0
    for i in range(beta.shape[0]):
        slack = y[i] * (pull[i] - intercept)
        loss += (high[i] - low[i]) * max(slack, 0.0)
        most = max(most, slack)
        squared += beta[i] * (y[i] - pull[i])
        mass += abs(beta[i])
    primal = 0.5 * squared + loss
    if most < 1.0:
        primal = min(primal, 0.5 * squared / (1.0 - most) ** 2)
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
        relative = relative_gap(y, pull, beta, low, high, (highest + lowest) / 2.0 if is_tied else 0.0)
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
def near_responses(K: np.ndarray, beta: np.ndarray, out: np.ndarray, reach: np.ndarray) -> None:
    """:func:`responses` from values that are not exact, and ``reach_i = sum_j |beta_j| K_ji``, which bounds errors."""
    out[:], reach[:] = 0.0, 0.0
    for j in range(beta.shape[0]):
        if beta[j] == 0.0:
            continue
        coef, size = beta[j], abs(beta[j])
        for i in range(out.shape[0]):
            value = np.float64(K[j, i])
            out[i] += coef * value
            reach[i] += size * value


@compiled()
def _gamma(k: float) -> float:
    """:func:`widemargin.rounding.gamma`, for the few terms that are here."""
    return k * UNIT / (1.0 - k * UNIT)


@compiled()
def bounds(
    K: np.ndarray, beta: np.ndarray, y: np.ndarray, weight: np.ndarray, lengths: np.ndarray, of_values: np.ndarray,
    C: float, has_intercept: bool, near: float, precision: float, response: np.ndarray,
) -> tuple[float, float, float, float, float, float, float]:  # fmt: skip
    """Responses of coefficients, and bounds from them that allow for rounding.

    ``lengths`` are ``||phi(x)||`` of the rows, ``of_values`` errors of their kernel values, relative to the lengths of
    both rows. Returns the primal objective at the best multiple of w with its best intercept, that multiple and
    intercept, ``||w||^2`` and by how much more than the exact one that may be, the dual objective, and the number of
    coefficients that are not 0. The formulas are those of ``ResponseSums`` and ``HingeL2.primal_point``.
    """
    n, n_terms, mass, alpha_sum, balance, total = beta.shape[0], 0.0, 0.0, 0.0, 0.0, 0.0
    responses(K, beta, response)
    for i in range(n):
        size = abs(beta[i])
        n_terms += 1.0 if size > 0.0 else 0.0
        mass += size * lengths[i]
        alpha_sum += size
        balance += beta[i]
        total += weight[i]
    # A product, the sum of a group, and the sum of all groups.
    of_response = _gamma(min(n_terms, GROUP) + n_terms / GROUP + 6.0)
    scores, squared, norm_error, sizes = np.empty(n), 0.0, 0.0, 0.0
    for i in range(n):
        error = mass * (of_values[i] + of_response * (1.0 + of_values[i])) * lengths[i]
        scores[i] = response[i] - y[i] * error
        squared += beta[i] * response[i]
        norm_error += abs(beta[i]) * error
        sizes += abs(beta[i]) * abs(response[i])
    of_sum = _gamma(n + 9.0)
    norm_error = (norm_error + of_sum * sizes) * (1.0 + of_sum)
    squared = max(squared, 0.0) + norm_error
    state = start_search(C, squared * (1.0 + 8.0 * UNIT), near, has_intercept, False, precision)
    search(state, scores, y, weight)
    value, scale, intercept = found(state)
    primal = value * (1.0 + _gamma(n + 16.0)) + 16.0 * UNIT * C * total * (1.0 + abs(intercept))
    # The heavier class is scaled down by what it has too much.
    excess = abs(balance) + of_sum * alpha_sum if has_intercept else 0.0
    norm = np.sqrt(squared) + (2.1 * mass * (excess / alpha_sum) if alpha_sum > 0.0 else 0.0)
    gain = max(alpha_sum - excess, 0.0) * (1.0 - _gamma(n + 16.0))
    dual = gain - 0.5 * (norm * norm * (1.0 + 8.0 * UNIT))
    return primal, scale, intercept, squared, norm_error, dual, n_terms


@compiled()
def linear_bounds(
    scores: np.ndarray, z: np.ndarray, beta: np.ndarray, y: np.ndarray, weight: np.ndarray, lengths: np.ndarray,
    of_score: float, of_combination: float, C: float, has_intercept: bool, precision: float,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Bounds from the scores of ``z = sum_i beta_i x_i``, with the rounding errors of ``solvers/_rounding.py``.

    Returns the primal objective at the best multiple of z with its best intercept, that multiple and intercept, the
    dual objective, and about the part of the gap that allows for rounding. The formulas are those of ``Rows`` of the
    linear C-SVM and of ``HingeL2.primal_point``.
    """
    n, size, alpha_sum, balance, total, squared = beta.shape[0], 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(z.shape[0]):
        squared += z[j] * z[j]
    norm = np.sqrt(squared)
    squared *= 1.0 + _gamma(z.shape[0] + 2.0)
    lowest = np.empty(n)
    for i in range(n):
        lowest[i] = scores[i] - y[i] * (of_score * norm * lengths[i])
        size += abs(beta[i]) * lengths[i]
        alpha_sum += abs(beta[i])
        balance += beta[i]
        total += weight[i]
    state = start_search(C, squared * (1.0 + 8.0 * UNIT), 0.0, has_intercept, False, precision)
    search(state, lowest, y, weight)
    value, scale, intercept = found(state)
    primal = value * (1.0 + _gamma(n + 16.0)) + 16.0 * UNIT * C * total * (1.0 + abs(intercept))
    # The heavier class is scaled down by what it has too much.
    excess = abs(balance) + _gamma(n + 9.0) * alpha_sum if has_intercept else 0.0
    moved = of_combination * size + (2.1 * size * (excess / alpha_sum) if alpha_sum > 0.0 else 0.0)
    gain = max(alpha_sum - excess, 0.0) * (1.0 - _gamma(n + 16.0))
    squared = (np.sqrt(squared) + moved) ** 2 * (1.0 + 8.0 * UNIT)
    factor = 1.0 if squared <= gain else gain / squared
    dual = factor * gain - 0.5 * (factor**2 * squared * (1.0 + 4.0 * UNIT)) - 2.0 * UNIT * gain
    return primal, scale, intercept, dual, of_score * scale * norm * size + moved * norm


@compiled()
def combined(K: np.ndarray, lines: np.ndarray, coef: np.ndarray, out: np.ndarray) -> None:
    """``out_pi = sum_j coef_pj K_li`` over some lines l of ``K``, where most coefficients may be 0."""
    out[:] = 0.0
    for j in range(lines.shape[0]):
        for p in range(out.shape[0]):
            if coef[p, j] != 0.0:
                for i in range(out.shape[1]):
                    out[p, i] += coef[p, j] * K[lines[j], i]


@compiled()
def sub_block(K: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """The kernel values between some rows at ascending places, filled up with zeros; neighbours are copied together."""
    n, begin = places.shape[0], 0
    out[:, n:] = 0.0
    while begin < n:
        end = begin + 1
        while end < n and places[end] == places[end - 1] + 1:
            end += 1
        for i in range(n):
            few, target = K[places[i], places[begin] : places[end - 1] + 1], out[i, begin:end]
            for j in range(end - begin):
                target[j] = few[j]
        begin = end
