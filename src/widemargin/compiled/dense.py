"""Passes over dense rows: float32 or float64 in, float64 out, each one pass over memory.

Every function has a counterpart in :mod:`widemargin.compiled.csr` that takes ``data, indices, indptr`` in place of
``X``.
"""

import numpy as np

from widemargin.compiled.hashes import entry_hash
from widemargin.compiled.jit import compiled

# Lets the compiler reorder sums, and so vectorise them; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}

PANEL = 32  # columns of a second moment that are multiplied at a time
_COPIED_ROWS = 256
_MIN_SKIPPED = 8  # of so many rows all but one, or more


@compiled(fastmath=FAST)
def scores_dense(X, w, out):
    """``out = X w``."""
    n, d = X.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += X[i, j] * w[j]
        out[i] = total


@compiled()
def _are_few(mass):
    """Whether so few rows have mass that skipping the others, which processors are bad at, is faster."""
    n = 0
    for i in range(mass.shape[0]):
        n += 1 if mass[i] != 0.0 else 0
    return n * _MIN_SKIPPED < mass.shape[0]


@compiled(fastmath=FAST)
def combine_dense(X, mass, out):
    """``out = X' mass``; where few rows have mass, the others are not read."""
    n, d = X.shape
    reads_all = not _are_few(mass)
    out[:] = 0.0
    for i in range(n):
        m = mass[i]
        if reads_all | (m != 0.0):
            for j in range(d):
                out[j] += m * X[i, j]


@compiled()
def stepwise_combine_dense(X, mass, step, out):
    """``out = X' mass``, added up from sums of ``step`` rows each: rounding errors grow with the length of a sum."""
    combine_dense(X[:step], mass[:step], out)
    part = np.empty_like(out)
    for begin in range(step, X.shape[0], step):
        combine_dense(X[begin : begin + step], mass[begin : begin + step], part)
        out += part


@compiled(fastmath=FAST)
def combine_signs_dense(X, mass, step, out):
    """The same over the rows of positive mass, and over those of negative mass."""
    n, d = X.shape
    out[:, :] = 0.0
    part = np.empty_like(out)
    for begin in range(0, n, step):
        end = min(begin + step, n)
        reads_all = not _are_few(mass[begin:end])
        part[:, :] = 0.0
        for i in range(begin, end):
            m = mass[i]
            if reads_all | (m != 0.0):
                c = 0 if m > 0.0 else 1
                for j in range(d):
                    part[c, j] += m * X[i, j]
        out += part


@compiled(fastmath=FAST)
def combine_rows_dense(X, rows, mass, out):
    """``out = sum_i mass_i x_i`` over the given rows."""
    d = X.shape[1]
    out[:] = 0.0
    for k in range(rows.shape[0]):
        i = rows[k]
        m = mass[k]
        for j in range(d):
            out[j] += m * X[i, j]


@compiled(fastmath=FAST)
def combine_sides_dense(X, rows, mass, side, out):
    """``out[c] = sum_i mass_i x_i`` over those of the given rows whose side is c."""
    d = X.shape[1]
    out[:, :] = 0.0
    for k in range(rows.shape[0]):
        i, m, c = rows[k], mass[k], side[k]
        for j in range(d):
            out[c, j] += m * X[i, j]


@compiled(fastmath=FAST)
def curvature_dense(X, rows, mass, v, out):
    """``out = sum_i mass_i x_i (x_i . v)`` over the given rows, each read once."""
    d = X.shape[1]
    out[:] = 0.0
    for k in range(rows.shape[0]):
        i = rows[k]
        total = 0.0
        for j in range(d):
            total += X[i, j] * v[j]
        total *= mass[k]
        for j in range(d):
            out[j] += total * X[i, j]


@compiled()
def second_moment_dense(X, rows, mass, first, last, out):
    """``out = sum_i mass_i x_i x_i'`` over the given rows, in the panels ``first`` to ``last`` up to the diagonal.

    A panel is ``PANEL`` lines of ``out``. Rows are copied a few at a time, each panel for itself, and multiplied by
    BLAS: half of the products of a general matrix are left out, without a routine for triangles.
    """
    d = X.shape[1]
    plain = np.zeros((last, _COPIED_ROWS, PANEL))
    scaled = np.zeros((last - first, _COPIED_ROWS, PANEL))
    tile = np.empty((PANEL, PANEL))
    out[first * PANEL : last * PANEL, :] = 0.0
    for begin in range(0, rows.shape[0], _COPIED_ROWS):
        n = min(_COPIED_ROWS, rows.shape[0] - begin)
        for k in range(n):
            i, m = rows[begin + k], mass[begin + k]
            for p in range(last):
                for j in range(p * PANEL, min(d, (p + 1) * PANEL)):
                    plain[p, k, j - p * PANEL] = X[i, j]
            for p in range(first, last):
                for j in range(PANEL):
                    scaled[p - first, k, j] = m * plain[p, k, j]
        for p in range(first, last):
            for q in range(p + 1):
                np.dot(scaled[p - first, :n].T, plain[q, :n], tile)
                for i in range(min(PANEL, d - p * PANEL)):
                    for j in range(min(PANEL, d - q * PANEL)):
                        out[p * PANEL + i, q * PANEL + j] += tile[i, j]


@compiled()
def take_dense(X, rows, out):
    """The given rows, in the type of ``out``."""
    for k in range(rows.shape[0]):
        out[k] = X[rows[k]]


@compiled()
def take_columns_dense(X, columns, out):
    """The given columns."""
    for i in range(X.shape[0]):
        for k in range(columns.shape[0]):
            out[i, k] = X[i, columns[k]]


@compiled(fastmath=FAST)
def squared_norms_dense(X, out):
    """``out_i = ||x_i||^2``."""
    n, d = X.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            value = np.float64(X[i, j])  # float32 squares lose digits and overflow
            total += value * value
        out[i] = total


@compiled()
def row_hashes_dense(X, out):
    """``out_i``, a hash of the content of row i."""
    n, d = X.shape
    for i in range(n):
        total = np.uint64(0)
        for j in range(d):
            total += entry_hash(j, X[i, j])
        out[i] = total
