"""Kernel values between all rows, in two parts: rounded to float32, for steps, and what that lost, for bounds.

A value is ``near (1 + lost LOST_UNIT)``, where ``near`` is in float32 and ``lost`` in 16 bits.
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

_MOST_LOST = 32000.0  # units, for the largest relative error of a rounding to float32
LOST_UNIT = 2.0**-24 / _MOST_LOST
_SIDE = 32  # of the squares in which values are mirrored
_COLUMNS = 2048  # of sums that stay in the first-level cache


@compiled()
def store(values, first, begin, end, near, lost):
    """Write the exact values of lines from ``begin`` to ``end`` with the rows from ``first`` on, and mirror them.

    ``values`` has a line for each row from ``first`` on that has a line of its own, and a column for each row there.
    """
    n = near.shape[0]
    for top in range(begin, end, _SIDE):
        for left in range(top, n, _SIDE):
            for i in range(top, min(top + _SIDE, end)):
                for j in range(max(left, i), min(left + _SIDE, n)):
                    exact = values[i - first, j - first]
                    rounded = np.float32(exact)
                    units = np.int16(0)
                    if rounded != 0.0:
                        part = (exact - np.float64(rounded)) / np.float64(rounded) / LOST_UNIT
                        units = np.int16(np.rint(min(max(part, -_MOST_LOST), _MOST_LOST)))
                    near[i, j], near[j, i], lost[i, j], lost[j, i] = rounded, rounded, units, units


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
    n = out.shape[0]
    for begin in range(0, n, _COLUMNS):
        end = min(begin + _COLUMNS, n)
        sums = np.zeros(end - begin)
        for s in range(lines.shape[0]):
            big, small, b = near[lines[s], begin:end], lost[lines[s], begin:end], coef[s]
            for t in range(end - begin):
                value = np.float64(big[t])
                sums[t] += b * (value + value * (LOST_UNIT * small[t]))
        for t in range(end - begin):
            out[begin + t] += sums[t]


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
def add_some(near, lines, coef, places, out):
    """:func:`add_near` for some of the rows, those at ``places``."""
    for s in range(lines.shape[0]):
        line, b = near[lines[s]], coef[s]
        for t in range(places.shape[0]):
            out[t] += b * line[places[t]]
