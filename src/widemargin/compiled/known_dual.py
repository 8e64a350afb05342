"""The dual of a kernel SVM whose kernel values are all known, on more rows than a cache holds: by working sets.

A round takes the rows that violate the optimality conditions most, solves their dual
(:mod:`widemargin.compiled.working_set`), and adds what has changed to the pulls of all rows. Where rounds do not get
far, since more rows are free than a working set holds, working sets become larger.
"""

import numpy as np

from widemargin.compiled.jit import compiled
from widemargin.compiled.known_values import add_near
from widemargin.compiled.small_dual import relative_gap, violation
from widemargin.compiled.working_set import LANES, RESOLVED, pairs, singles

FIRST_SIZE, MAX_SIZE = 1024, 4096  # rows of a working set
_REDUCTION, _LAST_REDUCTION = 0.1, 0.5  # of the violation by a round, and by one that may be the last
_AIM = 0.5  # of the gap that is asked for, if it shrinks as the violation does
_SLOW, _PATIENCE = 0.7, 4  # rounds in a row that leave more than this part of the violation, before sets are doubled
_STEPS_PER_ROW = 100
_NEAR = 1e-9  # of the middle: a row that is at it pulls neither way
_MIN_FREE = 10  # rows whose mean is the middle
_WORK_PER_ROW = 16.0  # multiplications in the time that it takes to choose a working set
_WORK_PER_STEP = 4.0  # multiplications for each row of a working set


@compiled()
def _take(force, most, rows, n, is_taken):
    """Add the rows of the ``most`` largest positive forces to ``n`` rows that are taken; returns their number then."""
    positive, count = np.empty(force.shape[0], np.float32), 0
    for i in range(force.shape[0]):
        if force[i] > 0.0 and not is_taken[i]:
            positive[count] = force[i]
            count += 1
    least, end = np.float32(0.0), n + min(most, count)
    if count > most > 0:
        least = np.partition(positive[:count], count - most)[count - most]
    for is_tie in (False, True):
        for i in range(force.shape[0]):
            is_wanted = force[i] == least if is_tie else force[i] > least
            if n < end and is_wanted and force[i] > 0.0 and not is_taken[i]:
                rows[n], is_taken[i] = i, True
                n += 1
    return n


@compiled()
def _middle(pull, beta, low, high, otherwise):
    """The mean pull of free rows, which are at the threshold in the end."""
    total, count = 0.0, 0
    for i in range(beta.shape[0]):
        if low[i] < beta[i] < high[i]:
            total += pull[i]
            count += 1
    return total / count if count > _MIN_FREE else otherwise


@compiled()
def _working_set(pull, beta, low, high, middle, size):
    """The rows that pull most from the middle, half of them either way, then free rows near it; ascending."""
    n, m = beta.shape[0], 0
    force, is_taken, rows = np.empty(n, np.float32), np.zeros(n, np.bool_), np.empty(size, np.intp)
    for i in range(n):
        force[i] = pull[i] - middle if beta[i] < high[i] else -1.0
    m = _take(force, size // 2, rows, m, is_taken)
    for i in range(n):
        force[i] = middle - pull[i] if beta[i] > low[i] else -1.0
    m = _take(force, size - m, rows, m, is_taken)
    for i in range(n):
        force[i] = 1.0 / (_NEAR + abs(pull[i] - middle)) if low[i] < beta[i] < high[i] else -1.0
    m = _take(force, size - m, rows, m, is_taken)
    return np.sort(rows[:m])


@compiled()
def _solve(block, diagonal, pull, beta, low, high, is_tied, tol, max_steps):
    if is_tied:
        return pairs(block, diagonal, pull, beta, low, high, tol, max_steps)
    return singles(block, diagonal, pull, beta, low, high, tol, max_steps)


@compiled()
def descend(K, diagonal, y, pull, beta, low, high, is_tied, gaps, least_violation, max_work, pace, space, less):
    """Rounds until the relative gap is small enough, or the violation ``least_violation``, or so much is done.

    ``gaps`` has the gap that is asked for, one at which the caller would end, and what it should be then: rounds that
    get so far go on to the last.

    Returns how many rows have moved in all rounds, the sum of ``|change| k(x, x)^1/2`` over them, or a bit more, and
    whether so much was done that it is to go on.
    ``pace`` has the size of working sets, the number of slow rounds and the violation before them, for the next call.
    ``space`` is for the kernel values of working sets, where these are not too large for it. ``less`` was taken from
    all values.
    """
    n, work, n_added, added = beta.shape[0], 0.0, 0.0, 0.0
    while True:
        highest, lowest = violation(pull, beta, low, high)
        found = highest - lowest if is_tied else 2.0 * max(highest, -lowest)
        middle = _middle(pull, beta, low, high, (highest + lowest) / 2.0) if is_tied else 0.0
        relative = relative_gap(y, pull, beta, low, high, middle)
        gap = gaps[0] if relative > gaps[1] else gaps[2]
        if found <= least_violation or relative <= gap or work >= max_work:
            return n_added, added, work >= max_work
        if found <= _SLOW * pace[2]:
            pace[1], pace[2] = 0.0, found
        else:
            pace[1] += 1.0
            if pace[1] >= _PATIENCE:
                pace[0], pace[1], pace[2] = min(2.0 * pace[0], MAX_SIZE), 0.0, found
        rows = _working_set(pull, beta, low, high, middle, int(min(pace[0], n)))
        m = rows.shape[0]
        width = (m + LANES - 1) // LANES * LANES
        few, own, largest = np.zeros((4, width)), np.ones(width, K.dtype), 0.0
        if space.shape[0] < m * width:
            space = np.empty(m * width, K.dtype)
        block = (K, rows, space[: m * width].reshape((m, width)), np.zeros(m, np.bool_))
        for a in range(m):
            i = rows[a]
            few[0, a], few[1, a], few[2, a], few[3, a], own[a] = pull[i], beta[i], low[i], high[i], diagonal[i]
            largest = max(largest, abs(pull[i]))
        part = _AIM * gap / relative if relative > 0.0 else 0.0
        tol = min(max(_REDUCTION, part), _LAST_REDUCTION) * found
        most = int(min(_STEPS_PER_ROW * m, max_work / (_WORK_PER_STEP * width) + 1.0))
        if tol > RESOLVED * largest:
            n_steps = _solve(block, own, few[0].astype(np.float32), few[1], few[2], few[3], is_tied, tol, most)
        else:
            n_steps = _solve(block, own, few[0], few[1], few[2], few[3], is_tied, tol, most)
        n_moved, moved, change = 0, np.empty(m, np.intp), np.empty(m)
        for a in range(m):
            by = few[1, a] - beta[rows[a]]
            if by != 0.0:
                beta[rows[a]] = few[1, a]
                moved[n_moved], change[n_moved] = rows[a], -by
                n_moved += 1
                added += abs(by) * np.sqrt(abs(np.float64(own[a]) + less))
        if n_moved == 0:
            return n_added, added, False
        n_added += n_moved
        add_near(K, moved[:n_moved], change[:n_moved], pull)
        work += _WORK_PER_ROW * n + float(n_moved) * (m + n) + _WORK_PER_STEP * n_steps * width
