"""Kernel values from inner products, row by row: the hot loops of all kernel methods on a CPU.

A block of points is stored as the columns of ``ZT``, of shape (d, m). The ``m`` products of one row with these points
are turned into kernel values in place. A sparse row reads only the lines of ``ZT`` at its nonzero features.
"""

import numpy as np
from numba import types
from numba.extending import overload

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

LINEAR, RBF, POLY, SIGMOID, LAPLACIAN = range(5)


def _exp2(row):
    """``2**t`` of every entry, in place."""


@overload(_exp2, jit_options={"fastmath": FAST})
def _exp2_of_dtype(row):
    """Split t into an integer and a remainder in [-1/2, 1/2], whose Taylor polynomial is exact up to rounding."""
    if row.dtype == types.float32:

        def exp2_float32(row):
            bits = row.view(np.int32)  # a view made here, so that the compiler knows that it aliases `row`
            for k in range(row.shape[0]):
                t = min(max(row[k], np.float32(-126.0)), np.float32(126.0))
                whole = np.floor(t + np.float32(0.5))
                r = t - whole
                p = np.float32(1.5252734e-05)
                p = p * r + np.float32(1.5403530e-04)
                p = p * r + np.float32(1.3333558e-03)
                p = p * r + np.float32(9.6181291e-03)
                p = p * r + np.float32(5.5504109e-02)
                p = p * r + np.float32(2.4022651e-01)
                p = p * r + np.float32(6.9314718e-01)
                row[k] = p * r + np.float32(1.0)
                bits[k] += np.int32(whole) << np.int32(23)

        return exp2_float32

    def exp2_float64(row):
        bits = row.view(np.int64)
        for k in range(row.shape[0]):
            t = min(max(row[k], -1022.0), 1022.0)
            whole = np.floor(t + 0.5)
            r = (t - whole) * 0.6931471805599453
            p = 2.08767569878681e-09
            p = p * r + 2.505210838544172e-08
            p = p * r + 2.755731922398589e-07
            p = p * r + 2.7557319223985893e-06
            p = p * r + 2.48015873015873e-05
            p = p * r + 1.984126984126984e-04
            p = p * r + 1.388888888888889e-03
            p = p * r + 8.333333333333333e-03
            p = p * r + 4.1666666666666664e-02
            p = p * r + 1.6666666666666666e-01
            p = p * r + 0.5
            p = p * r + 1.0
            row[k] = p * r + 1.0
            bits[k] += np.int64(whole) << np.int64(52)

    return exp2_float64


@compiled(fastmath=FAST)
def finish(kind, row, norm, point_norms, scale, shift, degree):
    """Turn the products of one row with points (1-norm distances, for the Laplacian kernel) into kernel values.

    ``norm`` and ``point_norms`` are squared norms; ``scale`` and ``shift`` are in the units of :func:`_exp2`.
    """
    if kind == RBF:
        for k in range(row.shape[0]):
            row[k] = scale * (norm + point_norms[k] - (row[k] + row[k]))
        _exp2(row)
    elif kind == LAPLACIAN:
        for k in range(row.shape[0]):
            row[k] *= scale
        _exp2(row)
    elif kind == POLY:
        for k in range(row.shape[0]):
            base = scale * row[k] + shift
            power = base
            for _ in range(degree - 1):
                power *= base
            row[k] = power
    elif kind == SIGMOID:
        for k in range(row.shape[0]):
            row[k] = scale * row[k] + shift
        _exp2(row)  # tanh(t) = 1 - 2 / (exp(2 t) + 1)
        for k in range(row.shape[0]):
            row[k] = 1.0 - 2.0 / (row[k] + 1.0)


@compiled(fastmath=FAST)
def _products(data, indices, begin, end, ZT, row):
    """Inner products of a sparse row with all points, several entries at a time, to access ``row`` less often.

    ``ZT`` is indexed directly: taking a view of one of its lines would cost more than reading it.
    """
    m, at, end = row.shape[0], np.intp(begin), np.intp(end)
    row[:] = 0
    while at + 7 < end:
        x0, x1, x2, x3 = data[at], data[at + 1], data[at + 2], data[at + 3]
        x4, x5, x6, x7 = data[at + 4], data[at + 5], data[at + 6], data[at + 7]
        i0, i1, i2, i3 = indices[at], indices[at + 1], indices[at + 2], indices[at + 3]
        i4, i5, i6, i7 = indices[at + 4], indices[at + 5], indices[at + 6], indices[at + 7]
        for k in range(m):
            row[k] += (x0 * ZT[i0, k] + x1 * ZT[i1, k] + x2 * ZT[i2, k] + x3 * ZT[i3, k]) + (
                x4 * ZT[i4, k] + x5 * ZT[i5, k] + x6 * ZT[i6, k] + x7 * ZT[i7, k]
            )
        at += 8
    if at + 3 < end:
        x0, x1, x2, x3 = data[at], data[at + 1], data[at + 2], data[at + 3]
        i0, i1, i2, i3 = indices[at], indices[at + 1], indices[at + 2], indices[at + 3]
        for k in range(m):
            row[k] += x0 * ZT[i0, k] + x1 * ZT[i1, k] + x2 * ZT[i2, k] + x3 * ZT[i3, k]
        at += 4
    while at < end:
        x0, i0 = data[at], indices[at]
        for k in range(m):
            row[k] += x0 * ZT[i0, k]
        at += 1


@compiled(fastmath=FAST)
def _distances(data, indices, begin, end, ZT, point_norms, row):
    """1-norm distances of a sparse row to all points, whose 1-norms are ``point_norms``."""
    row[:] = point_norms
    for at in range(np.intp(begin), np.intp(end)):
        x, i = data[at], indices[at]
        for k in range(row.shape[0]):
            row[k] += abs(x - ZT[i, k]) - abs(ZT[i, k])


@compiled(fastmath=FAST)
def _products_or_distances(kind, data, indices, begin, end, ZT, point_norms, row):
    """Products (distances, for the Laplacian kernel) of a sparse row with all points."""
    if kind == LAPLACIAN:
        _distances(data, indices, begin, end, ZT, point_norms, row)
    else:
        _products(data, indices, begin, end, ZT, row)


@compiled(fastmath=FAST)
def values_csr(kind, data, indices, indptr, norms, ZT, point_norms, scale, shift, degree, out):
    """Kernel values of sparse rows with points, into ``out`` of shape (n, m)."""
    for i in range(out.shape[0]):
        _products_or_distances(kind, data, indices, indptr[i], indptr[i + 1], ZT, point_norms, out[i])
        finish(kind, out[i], norms[i], point_norms, scale, shift, degree)


@compiled(fastmath=FAST)
def times_csr(kind, data, indices, indptr, norms, ZT, point_norms, scale, shift, degree, coef, row, fine, out):
    """Add kernel values times coefficients to ``out`` in float64, storing one row of values at a time.

    ``row`` may be float32, if it holds the products exactly, and ``fine`` float64; otherwise they are the same array.
    """
    is_finer = fine.itemsize > row.itemsize
    for i in range(out.shape[0]):
        _products_or_distances(kind, data, indices, indptr[i], indptr[i + 1], ZT, point_norms, row)
        if is_finer:
            fine[:] = row
        finish(kind, fine, norms[i], point_norms, scale, shift, degree)
        total = 0.0
        for k in range(fine.shape[0]):
            total += np.float64(fine[k]) * coef[k]
        out[i] += total


@compiled(fastmath=FAST)
def distances_dense(X, ZT, out):
    """1-norm distances of dense rows to points."""
    for i in range(X.shape[0]):
        row = out[i]
        row[:] = 0
        for j in range(X.shape[1]):
            x, z = X[i, j], ZT[j]
            for k in range(row.shape[0]):
                row[k] += abs(x - z[k])


@compiled(fastmath=FAST)
def squared_distances_dense(X, ZT, out):
    """Squared distances of dense rows to points, from differences: slower than from products, without cancellation."""
    for i in range(X.shape[0]):
        row = out[i]
        row[:] = 0
        for j in range(X.shape[1]):
            x, z = X[i, j], ZT[j]
            for k in range(row.shape[0]):
                row[k] += (x - z[k]) * (x - z[k])


@compiled(fastmath=FAST)
def finish_tile(kind, tile, norms, point_norms, scale, shift, degree):
    """Turn a tile of products (distances, for the Laplacian kernel) into kernel values."""
    for i in range(tile.shape[0]):
        finish(kind, tile[i], norms[i], point_norms, scale, shift, degree)


@compiled(fastmath=FAST)
def finish_tile_times(kind, tile, norms, point_norms, scale, shift, degree, coef, out):
    """:func:`finish_tile`, which also adds the values times coefficients to ``out`` in float64."""
    for i in range(tile.shape[0]):
        row = tile[i]
        finish(kind, row, norms[i], point_norms, scale, shift, degree)
        total = 0.0
        for k in range(row.shape[0]):
            total += np.float64(row[k]) * coef[k]
        out[i] += total
