"""Passes over dense rows: float32 or float64 in, float64 out, each one pass over memory.

Every function has a counterpart in :mod:`widemargin.compiled.csr` that takes ``data, indices, indptr`` in place of
``X``.
"""

import numpy as np

from widemargin.compiled.hashes import entry_hash
from widemargin.compiled.jit import compiled

# Lets the compiler reorder sums, and so vectorise them; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}


@compiled(fastmath=FAST)
def scores_dense(X, w, out):
    """``out = X w``."""
    n, d = X.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            total += X[i, j] * w[j]
        out[i] = total


@compiled(fastmath=FAST)
def combine_dense(X, mass, out):
    """``out = X' mass``; rows with zero mass are not read."""
    n, d = X.shape
    out[:] = 0.0
    for i in range(n):
        m = mass[i]
        if m != 0.0:
            for j in range(d):
                out[j] += m * X[i, j]


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
