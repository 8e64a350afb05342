"""The dual of a kernel SVM on a working set whose kernel values are given.

Minimises 1/2 beta' K beta - pull' beta over low <= beta <= high, with the sum of ``beta`` fixed (:func:`pairs`) or free
(:func:`singles`). ``pull`` is minus the gradient. ``beta`` and ``pull`` are updated in place. Steps are chosen in the
precision of ``pull``: in float32 a step reads half as much beside two rows of ``K``.

The search for the best row keeps one maximum in each of ``LANES`` lanes, which compilers turn into vector instructions.
The length of all vectors must therefore be a multiple of ``LANES``; callers pad them with rows that cannot move.
"""

import numpy as np
from numba import types
from numba.extending import overload

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

LANES = 128
POINTS_PER_SUM = 256
RESOLVED = 1e-4  # of the largest pull: a tolerance above this is far above the rounding errors of many float32 steps
_FINITE = FAST | {"nnan", "ninf"}  # all numbers here are finite
_BLOCKED = np.float32(1e15)  # larger than any pull, with a finite square
_FARTHEST = np.float32(1e30)  # beyond what is blocked
_MIN_CURVATURE = np.float32(1e-12)  # for pairs of identical rows


@compiled(fastmath=_FINITE)
def _mark(t, beta, low, high, up, down):
    """Set ``up[t]`` and ``down[t]``: 0 if ``beta[t]`` can rise or fall, else minus or plus ``_BLOCKED``."""
    up[t] = np.float32(0.0) if beta[t] < high[t] else -_BLOCKED
    down[t] = np.float32(0.0) if beta[t] > low[t] else _BLOCKED


def line(K, i):
    """The kernel values of row i of a working set.

    ``K`` has them, or is a tuple that copies them when they are first asked for: kernel values between more rows, the
    places of the working set among these, space for its own values, and whether each line of it is there.
    """
    return K[i]


@overload(line)
def _line(K, i):
    if not isinstance(K, types.BaseTuple):
        return lambda K, i: K[i]

    def copied(K, i):
        values, places, own, is_there = K
        target = own[i]
        if not is_there[i]:
            is_there[i], source = True, values[places[i]]
            for t in range(places.shape[0]):
                target[t] = source[places[t]]
            target[places.shape[0] :] = 0
        return target

    return copied


@compiled(fastmath=_FINITE)
def pairs(K, diagonal, pull, beta, low, high, tol, max_steps):
    """Sequential minimal optimisation with second-order selection of the second row (Fan, Chen, Lin 2005).

    Stops when the largest pull of a row that can rise exceeds the smallest of one that can fall by at most ``tol``.
    """
    n = pull.shape[0]
    up, down = np.empty(n, np.float32), np.empty(n, np.float32)
    for t in range(n):
        _mark(t, beta, low, high, up, down)
    tops, bottoms, where = np.empty(LANES, pull.dtype), np.empty(LANES, pull.dtype), np.empty(LANES, np.int32)
    gains, partner = np.empty(LANES, np.float32), np.empty(LANES, np.int32)
    i, j, applied = 0, 0, pull.dtype.type(0.0)
    for count in range(max_steps + 1):
        # One pass applies the last step to the pull and finds the first row, with the largest pull upwards.
        Ki, Kj = line(K, i), line(K, j)
        tops[:], bottoms[:], where[:] = -_FARTHEST, _FARTHEST, 0
        for begin in range(0, n, LANES):
            end = begin + LANES
            p, u, d, ki, kj = pull[begin:end], up[begin:end], down[begin:end], Ki[begin:end], Kj[begin:end]
            for t in range(LANES):
                value = p[t] - applied * (ki[t] - kj[t])
                p[t] = value
                rising, falling = value + u[t], value + d[t]
                top, bottom, at = tops[t], bottoms[t], where[t]
                tops[t] = rising if rising > top else top
                where[t] = np.int32(begin) if rising > top else at
                bottoms[t] = falling if falling < bottom else bottom
        highest, lowest = tops[0], bottoms[0]
        i = where[0]
        for t in range(1, LANES):
            if tops[t] > highest:
                highest, i = tops[t], where[t] + t
            lowest = min(lowest, bottoms[t])
        if highest - lowest <= tol or count == max_steps:
            return count
        # A second pass finds the partner with the largest gain.
        Ki, Kii = line(K, i), diagonal[i]
        gains[:], partner[:] = 0, -1
        for begin in range(0, n, LANES):
            end = begin + LANES
            p, d, ki, kk = pull[begin:end], down[begin:end], Ki[begin:end], diagonal[begin:end]
            for t in range(LANES):
                difference = np.float32(highest - p[t] - d[t])
                difference = difference if difference > np.float32(0.0) else np.float32(0.0)
                curvature = Kii + kk[t] - (ki[t] + ki[t])
                curvature = curvature if curvature > _MIN_CURVATURE else _MIN_CURVATURE
                gain = difference * difference / curvature
                most, at = gains[t], partner[t]
                gains[t] = gain if gain > most else most
                partner[t] = np.int32(begin) if gain > most else at
        most, j = np.float32(0.0), -1
        for t in range(LANES):
            if partner[t] >= 0 and gains[t] > most:
                most, j = gains[t], partner[t] + t
        if j < 0:
            return count
        curvature = max(np.float64(Kii) + diagonal[j] - 2.0 * np.float64(Ki[j]), np.float64(_MIN_CURVATURE))
        rise, fall = high[i] - beta[i], beta[j] - low[j]
        step = min(np.float64(highest - pull[j]) / curvature, min(rise, fall))
        # Set bounds exactly, without rounding.
        beta[i] = high[i] if step == rise else beta[i] + step
        beta[j] = low[j] if step == fall else beta[j] - step
        _mark(i, beta, low, high, up, down)
        _mark(j, beta, low, high, up, down)
        applied = pull.dtype.type(step)
    return max_steps


@compiled(fastmath=_FINITE)
def singles(K, diagonal, pull, beta, low, high, tol, max_steps):
    """Greedy coordinate descent: each step minimises over the row with the largest gain.

    Stops when no row that can move has a pull of more than ``tol / 2``, which corresponds to the rule of :func:`pairs`.
    """
    n = pull.shape[0]
    up, down = np.empty(n, np.float32), np.empty(n, np.float32)
    for t in range(n):
        _mark(t, beta, low, high, up, down)
    gains, where, forces = np.empty(LANES, np.float32), np.empty(LANES, np.int32), np.empty(LANES, np.float32)
    i, step = 0, pull.dtype.type(0.0)
    for count in range(max_steps + 1):
        Ki = line(K, i)
        gains[:], where[:], forces[:] = 0, -1, 0
        for begin in range(0, n, LANES):
            end = begin + LANES
            p, u, d, ki, kk = pull[begin:end], up[begin:end], down[begin:end], Ki[begin:end], diagonal[begin:end]
            for t in range(LANES):
                value = p[t] - step * ki[t]
                p[t] = value
                rising, falling = np.float32(value) + u[t], -np.float32(value) - d[t]
                force = rising if rising > falling else falling
                force = force if force > np.float32(0.0) else np.float32(0.0)
                curvature = kk[t] if kk[t] > _MIN_CURVATURE else _MIN_CURVATURE
                gain = force * force / curvature
                most, at, worst = gains[t], where[t], forces[t]
                gains[t] = gain if gain > most else most
                where[t] = np.int32(begin) if gain > most else at
                forces[t] = force if force > worst else worst
        most, worst, i = np.float32(0.0), np.float32(0.0), -1
        for t in range(LANES):
            worst = max(worst, forces[t])
            if where[t] >= 0 and gains[t] > most:
                most, i = gains[t], where[t] + t
        if 2.0 * worst <= tol or i < 0 or count == max_steps:
            return count
        curvature = max(np.float64(diagonal[i]), np.float64(_MIN_CURVATURE))
        target = min(max(beta[i] + np.float64(pull[i]) / curvature, low[i]), high[i])
        step = pull.dtype.type(target - beta[i])
        beta[i] = target
        _mark(i, beta, low, high, up, down)
    return max_steps


@compiled(fastmath=FAST)
def block_times(K, change, size, out):
    """``out = K change`` and ``K size`` as two columns, in float64; partial sums of ``POINTS_PER_SUM`` terms."""
    n = change.shape[0]
    for i in range(K.shape[0]):
        by, reach = 0.0, 0.0
        for begin in range(0, n, POINTS_PER_SUM):
            row, few, sizes = K[i, begin:n], change[begin:n], size[begin:n]
            part, reached = 0.0, 0.0
            for t in range(min(POINTS_PER_SUM, n - begin)):
                value = np.float64(row[t])
                part += value * few[t]
                reached += value * sizes[t]
            by += part
            reach += reached
        out[i, 0], out[i, 1] = by, reach
