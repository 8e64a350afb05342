"""Kernel values of rows with points, tile by tile: the hot loops of all kernel methods on a CPU.

Rows are dense, an array ``X`` of shape (n, d), or sparse, a tuple ``data, indices, indptr``. Points are the rows of a
dense array of shape (m, d), which BLAS multiplies; or they are the columns of dense panels, an array of shape
(panels, d, width), which the loops here read: a sparse row reads only the lines at its nonzero features. Rows of zeros
and ones may be stored as bits, 64 to a word: an array of shape (n, words), and panels of shape (panels, words, width).

Each call works on the rows from ``begin`` to ``end``, on one thread, with buffers of its own.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

LINEAR, RBF, POLY, SIGMOID, LAPLACIAN, DIFFERENCES = range(6)

_LANES = 16  # numbers in a vector register

_BITS: dict[Any, Any] = {types.float32: types.int32, types.float64: types.int64}
_NUMBERS: dict[Any, Any] = {bits: number for number, bits in _BITS.items()}


def _bits_of(context, number):
    """The bits of a floating-point number, as a signed integer."""
    return _BITS[number](number), _reinterpret


def _number_of(context, bits):
    """The floating-point number of these bits."""
    return _NUMBERS[bits](bits), _reinterpret


def _reinterpret(context, builder, signature, arguments):
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


def _count_of(context, word):
    """How many bits of a word are set."""
    return word(word), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


_bits: Any = intrinsic(_bits_of)
_count: Any = intrinsic(_count_of)
_number: Any = intrinsic(_number_of)


def _exp2(t):
    """``2**t``."""


@overload(_exp2, jit_options={"fastmath": FAST})
def _exp2_of_type(t):
    """Split t into an integer and a remainder in [-1/2, 1/2], whose Taylor polynomial is exact up to rounding."""
    if t == types.float32:

        def exp2_float32(t):
            t = min(max(t, np.float32(-126.0)), np.float32(126.0))
            whole = np.floor(t + np.float32(0.5))
            r = t - whole
            p = np.float32(1.5252734e-05)
            p = p * r + np.float32(1.5403530e-04)
            p = p * r + np.float32(1.3333558e-03)
            p = p * r + np.float32(9.6181291e-03)
            p = p * r + np.float32(5.5504109e-02)
            p = p * r + np.float32(2.4022651e-01)
            p = p * r + np.float32(6.9314718e-01)
            return _number(np.int32(_bits(p * r + np.float32(1.0)) + (np.int32(whole) << np.int32(23))))

        return exp2_float32

    def exp2_float64(t):
        t = min(max(t, -1022.0), 1022.0)
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
        return _number(_bits(p * r + 1.0) + (np.int64(whole) << np.int64(52)))

    return exp2_float64


@compiled(fastmath=FAST)
def finish(kind, products, norm, point_norms, scale, shift, degree, values):
    """Turn the products of one row with points (distances, for kernels of these) into kernel values.

    ``norm`` and ``point_norms`` are squared norms; ``scale`` and ``shift`` are in the units of :func:`_exp2`. Values
    may be of a finer type than products that are exact.
    """
    m = values.shape[0]
    if kind == RBF:
        for k in range(m):
            values[k] = _exp2(scale * (norm + point_norms[k] - (products[k] + products[k])))
    elif kind in (LAPLACIAN, DIFFERENCES):
        for k in range(m):
            values[k] = _exp2(scale * products[k])
    elif kind == POLY:
        for k in range(m):
            base = scale * products[k] + shift
            power = base
            for _ in range(degree - 1):
                power *= base
            values[k] = power
    elif kind == SIGMOID:
        for k in range(m):  # tanh(t) = 1 - 2 / (exp(2 t) + 1)
            values[k] = 1.0 - 2.0 / (_exp2(scale * products[k] + shift) + 1.0)
    else:
        for k in range(m):
            values[k] = products[k]


@compiled(fastmath=FAST)
def _sparse_products(data, indices, begin, end, ZT, row):
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
def _sparse_distances(data, indices, begin, end, ZT, point_norms, row):
    """1-norm distances of a sparse row to all points, whose 1-norms are ``point_norms``."""
    row[:] = point_norms
    for at in range(np.intp(begin), np.intp(end)):
        x, i = data[at], indices[at]
        for k in range(row.shape[0]):
            row[k] += abs(x - ZT[i, k]) - abs(ZT[i, k])


@compiled(fastmath=FAST)
def _dense_distances(kind, x, ZT, row):
    """1-norm distances of a dense row to all points, or squared ones from differences: slow, without cancellation."""
    row[:] = 0
    for j in range(ZT.shape[0]):
        entry, z = x[j], ZT[j]
        if kind == LAPLACIAN:
            for k in range(row.shape[0]):
                row[k] += abs(entry - z[k])
        else:
            for k in range(row.shape[0]):
                row[k] += (entry - z[k]) * (entry - z[k])


@compiled()
def _common_bits(x, ZT, row):
    """How many bits a row has in common with each point: their inner products.

    Counts have 16 bits, since Numba adds longer integers to float32 in float64.
    """
    row[:] = 0
    last = x.shape[0] // 2 * 2
    for j in range(0, last, 2):
        x0, x1 = x[j], x[j + 1]
        for k in range(row.shape[0]):
            row[k] += np.int16(_count(x0 & ZT[j, k]) + _count(x1 & ZT[j + 1, k]))
    for j in range(last, x.shape[0]):
        x0 = x[j]
        for k in range(row.shape[0]):
            row[k] += np.int16(_count(x0 & ZT[j, k]))


def _space(points, norms, size):
    """Room for products: as points are stored, or of the type of the norms if these are bits."""


@overload(_space)
def _space_of_type(points, norms, size):
    if isinstance(points.dtype, types.Integer):
        return lambda points, norms, size: np.empty(size, norms.dtype)
    return lambda points, norms, size: np.empty(size, points.dtype)


def _multiply(kind, rows, begin, end, points, point_norms, first, tile):
    """Fill a tile with products (distances, for kernels of these) of rows with the points from ``first`` on."""


@overload(_multiply, jit_options={"fastmath": FAST})
def _multiply_stored(kind, rows, begin, end, points, point_norms, first, tile):
    if isinstance(rows, types.BaseTuple):

        def sparse(kind, rows, begin, end, points, point_norms, first, tile):
            data, indices, indptr = rows
            width = tile.shape[1]
            ZT = points[first // width]
            for i in range(end - begin):
                low, high = indptr[begin + i], indptr[begin + i + 1]
                if kind == LAPLACIAN:
                    _sparse_distances(data, indices, low, high, ZT, point_norms[first : first + width], tile[i])
                else:
                    _sparse_products(data, indices, low, high, ZT, tile[i])

        return sparse
    if isinstance(points.dtype, types.Integer):

        def bits(kind, rows, begin, end, points, point_norms, first, tile):
            ZT = points[first // tile.shape[1]]
            for i in range(end - begin):
                _common_bits(rows[begin + i], ZT, tile[i])

        return bits
    if points.ndim == 3:

        def by_distances(kind, rows, begin, end, points, point_norms, first, tile):
            ZT = points[first // tile.shape[1]]
            for i in range(end - begin):
                _dense_distances(kind, rows[begin + i], ZT, tile[i])

        return by_distances

    def dense(kind, rows, begin, end, points, point_norms, first, tile):
        np.dot(rows[begin:end], points[first : first + tile.shape[1]].T, tile)

    return dense


@compiled(fastmath=FAST)
def times(
    kind, rows, norms, points, point_norms, scale, shift, degree, coef, begin, end, tile_rows, width, out
):  # fmt: skip
    """Add kernel values times coefficients to ``out``, of shape (n, columns), in float64.

    ``coef`` has the shape (columns, m). The values are as fine as the norms. Each row adds up ``width`` products at a
    time, and these sums in the order of the points.
    """
    m = point_norms.shape[0]
    space, values = _space(points, norms, tile_rows * width), np.empty(width, norms.dtype)
    for first in range(0, m, width):
        w = min(width, m - first)
        for top in range(begin, end, tile_rows):
            bottom = min(top + tile_rows, end)
            tile = space[: (bottom - top) * w].reshape((bottom - top, w))
            _multiply(kind, rows, top, bottom, points, point_norms, first, tile)
            for i in range(bottom - top):
                few = values[:w]
                finish(kind, tile[i], norms[top + i], point_norms[first : first + w], scale, shift, degree, few)
                for c in range(coef.shape[0]):
                    b, total = coef[c, first : first + w], 0.0
                    for k in range(w):
                        total += np.float64(few[k]) * b[k]
                    out[top + i, c] += total


@compiled(fastmath=FAST)
def times_many(
    kind, rows, norms, points, point_norms, scale, shift, degree, coef, begin, end, tile_rows, width, out
):  # fmt: skip
    """:func:`times` for many columns, by BLAS; ``coef`` has the shape (m, columns)."""
    m, n_columns = coef.shape
    space, values = _space(points, norms, tile_rows * width), np.empty(tile_rows * width, np.float64)
    few, sums = np.empty(width, norms.dtype), np.empty((tile_rows, n_columns), np.float64)
    for first in range(0, m, width):
        w = min(width, m - first)
        for top in range(begin, end, tile_rows):
            n = min(tile_rows, end - top)
            tile, fine = space[: n * w].reshape((n, w)), values[: n * w].reshape((n, w))
            _multiply(kind, rows, top, top + n, points, point_norms, first, tile)
            for i in range(n):
                finish(kind, tile[i], norms[top + i], point_norms[first : first + w], scale, shift, degree, few[:w])
                fine[i] = few[:w]
            np.dot(fine, coef[first : first + w], sums[:n])
            for i in range(n):
                for c in range(n_columns):
                    out[top + i, c] += sums[i, c]


@compiled(fastmath=FAST)
def times_few(kind, X, Z, scale, shift, degree, coef, out):
    """:func:`times` for a few dense rows and points as they are, in float64, with nothing prepared.

    Squared distances come from differences. ``coef`` and ``out`` have a line for every column. Returns the largest
    squared norm of a row.
    """
    n, m, d, longest = X.shape[0], Z.shape[0], X.shape[1], 0.0
    x, products, values = np.empty(d), np.empty(m), np.empty(m)
    for i in range(n):
        square = 0.0
        for k in range(d):
            x[k] = X[i, k]
            square += x[k] * x[k]
        longest = max(longest, square)
        for j in range(m):
            z, total = Z[j], 0.0
            if kind == RBF:
                for k in range(d):
                    total += (x[k] - z[k]) * (x[k] - z[k])
            elif kind == LAPLACIAN:
                for k in range(d):
                    total += abs(x[k] - z[k])
            else:
                for k in range(d):
                    total += x[k] * z[k]
            products[j] = total
        finish(DIFFERENCES if kind == RBF else kind, products, square, products, scale, shift, degree, values)
        for c in range(coef.shape[0]):
            b, total = coef[c], 0.0
            for j in range(m):
                total += values[j] * b[j]
            out[i, c] = total
    return longest


@compiled()
def _copy(source, target):
    """Faster than an assignment of slices, which looks for an overlap."""
    for k in range(target.shape[0]):
        target[k] = source[k]


@compiled(fastmath=FAST)
def fill(
    kind, rows, norms, points, point_norms, scale, shift, degree, n_points, offset, is_symmetric,
    begin, end, tile_rows, width, out
):  # fmt: skip
    """Write kernel values of rows with points: to the rows of ``out`` if it is symmetric, and to its columns.

    The points are ``n_points``, from ``offset`` on among those of ``out``. If it is symmetric they are rows too, and
    values right of the diagonal are copies of those left of it.
    """
    # Rows of values a power of two apart would take each other's places in the cache when a column is read.
    space, values = _space(points, norms, tile_rows * width), np.empty((tile_rows, width + _LANES), norms.dtype)
    for first in range(0, n_points, width):
        m, left = min(width, point_norms.shape[0] - first), offset + first
        for top in range(begin, end, tile_rows):
            bottom = min(top + tile_rows, end)
            if is_symmetric and left >= bottom:
                continue
            tile = space[: (bottom - top) * m].reshape((bottom - top, m))
            _multiply(kind, rows, top, bottom, points, point_norms, first, tile)
            for i in range(bottom - top):
                few, norm = point_norms[first : first + m], norms[top + i]
                finish(kind, tile[i], norm, few, scale, shift, degree, values[i, :m])
            last = min(m, n_points - first)
            if is_symmetric:
                for i in range(bottom - top):
                    n = max(0, min(last, top + i + 1 - left))
                    _copy(values[i, :n], out[top + i, left : left + n])
            for k in range(last):
                i = max(0, left + k + 1 - top) if is_symmetric else 0
                _copy(values[i : bottom - top, k], out[left + k, top + i : bottom])


@compiled()
def panel_of_dense(X, begin, end, panel):
    """Write some rows to the columns of a panel, filled up with zeros."""
    panel[:, end - begin :] = 0
    for j in range(panel.shape[0]):
        for k in range(end - begin):
            panel[j, k] = X[begin + k, j]


@compiled()
def panel_of_csr(data, indices, indptr, begin, end, panel):
    """:func:`panel_of_dense` of sparse rows."""
    panel[:] = 0
    for k in range(end - begin):
        for at in range(np.intp(indptr[begin + k]), np.intp(indptr[begin + k + 1])):
            panel[indices[at], k] += data[at]


@compiled(fastmath=FAST)
def add_rows(values, slots, coef, begin, end, out):
    """Add some rows of ``values``, times coefficients, to ``out``: its entries from ``begin`` to ``end``."""
    few = out[begin:end]
    for s in range(slots.shape[0]):
        row, b = values[slots[s], begin:end], coef[s]
        for k in range(end - begin):
            few[k] += b * row[k]
