"""Kernel values between all rows, in two parts: rounded to float32, for steps, and what that lost, for bounds.

A value is ``near (1 + lost LOST_UNIT)``, where ``near`` is in float32 and ``lost`` in 16 bits.
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

_MOST_LOST = 32000.0  # units, for the largest relative error of a rounding to float32
LOST_UNIT = 2.0**-24 / _MOST_LOST
SMALLEST = 2.0**-126  # smaller values are taken as 0: float32 would be slow with them
_SIDE = 64  # lines of squares in which values are mirrored
_COLUMNS = 2048  # of sums that stay in the first-level cache


@compiled(fastmath=FAST)
def store(values, first, begin, end, near, lost):
    """Write the exact values of lines from ``begin`` to ``end`` with the rows from ``first`` on, and mirror them.

    ``values`` has a line for each row from ``first`` on that has a line of its own, and a column for each row there.
    """
    n = near.shape[0]
    for i in range(begin, end):
        exact, big, small = values[i - first], near[i, first:n], lost[i, first:n]
        for j in range(n - first):
            rounded = np.float64(np.float32(exact[j])) if abs(exact[j]) >= SMALLEST else 0.0
            part = (exact[j] - rounded) / (rounded if rounded != 0.0 else 1.0) * (1.0 / LOST_UNIT)
            part = min(max(part, -_MOST_LOST), _MOST_LOST)
            big[j], small[j] = np.float32(rounded), np.int16(np.rint(part))
    for left in range(end, n, _SIDE):
        for i in range(begin, end):
            for j in range(left, min(left + _SIDE, n)):
                near[j, i], lost[j, i] = near[i, j], lost[i, j]


@compiled()
def sub_block(values, places, out):
    """The values between some rows."""
    for i in range(places.shape[0]):
        line, target = values[places[i]], out[i]
        for j in range(places.shape[0]):
            target[j] = line[places[j]]


@compiled(fastmath=FAST)
def add_exact(near, lost, lines, coef, out):
    """Add lines times coefficients to ``out``, in float64."""
    n, last = out.shape[0], lines.shape[0] // 2 * 2
    for begin in range(0, n, _COLUMNS):
        end = min(begin + _COLUMNS, n)
        sums = out[begin:end]
        for s in range(0, last, 2):
            k0, k1 = near[lines[s], begin:end], near[lines[s + 1], begin:end]
            l0, l1, b0, b1 = lost[lines[s], begin:end], lost[lines[s + 1], begin:end], coef[s], coef[s + 1]
            for t in range(end - begin):
                v0, v1 = b0 * k0[t], b1 * k1[t]
                sums[t] += (v0 + v0 * (LOST_UNIT * l0[t])) + (v1 + v1 * (LOST_UNIT * l1[t]))
        for s in range(last, lines.shape[0]):
            k0, l0, b0 = near[lines[s], begin:end], lost[lines[s], begin:end], coef[s]
            for t in range(end - begin):
                v0 = b0 * k0[t]
                sums[t] += v0 + v0 * (LOST_UNIT * l0[t])


@compiled(fastmath=FAST)
def add_near(near, lines, coef, out):
    """:func:`add_exact` without what rounding lost."""
    n, last = out.shape[0], lines.shape[0] // 4 * 4
    for begin in range(0, n, _COLUMNS):
        end = min(begin + _COLUMNS, n)
        sums = out[begin:end]
        for s in range(0, last, 4):
            b0, b1, b2, b3 = coef[s], coef[s + 1], coef[s + 2], coef[s + 3]
            k0, k1 = near[lines[s], begin:end], near[lines[s + 1], begin:end]
            k2, k3 = near[lines[s + 2], begin:end], near[lines[s + 3], begin:end]
            for t in range(end - begin):
                sums[t] += (b0 * k0[t] + b1 * k1[t]) + (b2 * k2[t] + b3 * k3[t])
        for s in range(last, lines.shape[0]):
            b0, k0 = coef[s], near[lines[s], begin:end]
            for t in range(end - begin):
                sums[t] += b0 * k0[t]


@compiled(fastmath=FAST)
def add_exact_some(near, lost, lines, coef, places, out):
    """:func:`add_exact` for some of the rows, those at ``places``."""
    for s in range(lines.shape[0]):
        big, small, b = near[lines[s]], lost[lines[s]], coef[s]
        for t in range(places.shape[0]):
            value = b * big[places[t]]
            out[t] += value + value * (LOST_UNIT * small[places[t]])
