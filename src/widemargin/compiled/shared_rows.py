"""Sums and blocks of kernel values that are kept: a line of ``values`` has those of one point with all rows."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def add_all(values, lines, coef, begin, end, out):
    """Add lines times coefficients to the rows of ``out`` from ``begin`` to ``end``; ``coef`` has a line per column."""
    n, m, last, n_columns = end - begin, lines.shape[0], lines.shape[0] // 4 * 4, coef.shape[0]
    sums = np.zeros((n_columns, n))
    for s in range(0, last, 4):
        r0, r1 = values[lines[s], begin:end], values[lines[s + 1], begin:end]
        r2, r3 = values[lines[s + 2], begin:end], values[lines[s + 3], begin:end]
        for c in range(n_columns):
            total, b0, b1, b2, b3 = sums[c], coef[c, s], coef[c, s + 1], coef[c, s + 2], coef[c, s + 3]
            for k in range(n):
                total[k] += (b0 * r0[k] + b1 * r1[k]) + (b2 * r2[k] + b3 * r3[k])
    for s in range(last, m):
        r0 = values[lines[s], begin:end]
        for c in range(n_columns):
            total, b0 = sums[c], coef[c, s]
            for k in range(n):
                total[k] += b0 * r0[k]
    for c in range(n_columns):
        for k in range(n):
            out[begin + k, c] += sums[c, k]


@compiled(fastmath=FAST)
def add_some(values, lines, coef, some, begin, end, out):
    """:func:`add_all` for some of the rows, those at the places ``some``."""
    n, n_columns = end - begin, coef.shape[0]
    sums = np.zeros((n_columns, n))
    few = np.empty(n)
    for s in range(lines.shape[0]):
        row = values[lines[s]]
        for k in range(n):
            few[k] = row[some[begin + k]]
        for c in range(n_columns):
            b = coef[c, s]
            for k in range(n):
                sums[c, k] += b * few[k]
    for c in range(n_columns):
        for k in range(n):
            out[begin + k, c] += sums[c, k]


@compiled()
def take_lines(values, lines, places, begin, end, out):
    """Write the values between points to the lines of a block that are kept; the others have a negative line."""
    for a in range(begin, end):
        if lines[a] >= 0:
            row = values[lines[a]]
            for b in range(places.shape[0]):
                out[a, b] = row[places[b]]


@compiled()
def complete(lines, between, at, begin, end, out):
    """Write the other lines: from those that are kept, and from ``between`` the others, at the places ``at`` there."""
    for a in range(begin, end):
        if lines[a] < 0:
            row = between[at[a]]
            for b in range(lines.shape[0]):
                out[a, b] = row[at[b]] if lines[b] < 0 else out[b, a]
