"""Kernel values of rows with points, tile by tile: the hot loops of all kernel methods on a CPU.

Rows are dense, an array ``X`` of shape (n, d), or sparse, a tuple ``data, indices, starts, splits``: row i begins at
``starts[i]``, and its entries in a group of features g are those from ``splits[i, g]`` to ``splits[i, g + 1]``, counted
from its first. Points are the rows of a dense array of shape (m, d), which BLAS multiplies; or they are the columns of
dense panels, an array of shape (panels, d, width), the last one filled up: a sparse row reads only the lines at its
nonzero features. Rows of zeros and ones may be stored as bits, 64 to a word: an array of shape (n, words), and panels
of shape (panels, words, width). A tile has room for whole panels.

Each call works on the rows from ``begin`` to ``end``, on one thread, with buffers of its own.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled
from widemargin.compiled.panels import ALIGNMENT, ROWS_AT_ONCE, add_entries, multiply_row, multiply_rows

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
    """``2**t`` of a t that is not too large; the smallest number for one that is too small."""


@overload(_exp2, jit_options={"fastmath": FAST})
def _exp2_of_type(t):
    """Split t into an integer and a remainder in [-1/2, 1/2], whose polynomial is exact up to rounding.

    It is a Taylor polynomial in float64. In float32 it is the one of degree six with the least largest error, 2e-9.
    """
    if t == types.float32:

        def exp2_float32(t):
            t = max(t, np.float32(-126.0))
            whole = np.rint(t)
            r = t - whole
            p = np.float32(1.5353372e-04)
            p = p * r + np.float32(1.3398874e-03)
            p = p * r + np.float32(9.6184369e-03)
            p = p * r + np.float32(5.5503324e-02)
            p = p * r + np.float32(2.4022648e-01)
            p = p * r + np.float32(6.9314718e-01)
            return _number(np.int32(_bits(p * r + np.float32(1.0)) + (np.int32(whole) << np.int32(23))))

        return exp2_float32

    def exp2_float64(t):
        t = max(t, -1022.0)
        whole = np.rint(t)
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
        for k in range(m):  # tanh(t) = 1 - 2 / (exp(2 t) + 1), and 1 long before exp(2 t) is too large
            values[k] = 1.0 - 2.0 / (_exp2(min(scale * products[k] + shift, 100.0)) + 1.0)
    else:
        for k in range(m):
            values[k] = products[k]


@compiled(fastmath=FAST)
def _sparse_distances(data, indices, begin, end, ZT, point_norms, row):
    """1-norm distances of a sparse row to all points, whose 1-norms are ``point_norms``."""
    row[:] = 0
    row[: point_norms.shape[0]] = point_norms
    for at in range(begin, end):
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
        return lambda points, norms, size: _aligned(size, norms.dtype)
    return lambda points, norms, size: _aligned(size, points.dtype)


@compiled()
def _aligned(size, dtype):
    """Room that begins with a line of the cache."""
    room = np.empty(size + ALIGNMENT // 4, dtype)
    begin = (ALIGNMENT - np.intp(room.ctypes.data) % ALIGNMENT) // room.itemsize
    return room[begin : begin + size]


def _filled_up(points, w):
    """How many columns a tile of ``w`` points has."""


@overload(_filled_up)
def _filled_up_panels(points, w):
    if points.ndim == 2:
        return lambda points, w: w
    return lambda points, w: (w + points.shape[2] - 1) // points.shape[2] * points.shape[2]


def _multiply(kind, rows, begin, end, points, point_norms, first, tile):
    """Fill a tile with products (distances, for kernels of these) of rows with the points from ``first`` on."""


@overload(_multiply, jit_options={"fastmath": FAST})
def _multiply_stored(kind, rows, begin, end, points, point_norms, first, tile):
    if isinstance(rows, types.BaseTuple):

        def sparse(kind, rows, begin, end, points, point_norms, first, tile):
            data, indices, starts, splits = rows
            width = points.shape[2]
            tile[:] = 0
            for left in range(0, tile.shape[1], width):
                number = (first + left) // width
                if kind == LAPLACIAN:
                    few = point_norms[first + left : first + left + width]
                    for i in range(end - begin):
                        low = np.intp(starts[begin + i])
                        high = low + np.intp(splits[begin + i, -1])
                        _sparse_distances(data, indices, low, high, points[number], few, tile[i, left : left + width])
                else:
                    for g in range(splits.shape[1] - 1):
                        for i in range(end - begin):
                            low, high = np.intp(splits[begin + i, g]), np.intp(splits[begin + i, g + 1])
                            row = np.intp(starts[begin + i])
                            add_entries(data, indices, row, low, high, points, number, tile, i, left)

        return sparse
    if isinstance(points.dtype, types.Integer):

        def bits(kind, rows, begin, end, points, point_norms, first, tile):
            width = points.shape[2]
            for left in range(0, tile.shape[1], width):
                ZT = points[(first + left) // width]
                for i in range(end - begin):
                    _common_bits(rows[begin + i], ZT, tile[i, left : left + width])

        return bits
    if points.ndim == 3:

        def by_panels(kind, rows, begin, end, points, point_norms, first, tile):
            n, width = end - begin, points.shape[2]
            for left in range(0, tile.shape[1], width):
                number = (first + left) // width
                if kind in (LAPLACIAN, DIFFERENCES):
                    for i in range(n):
                        _dense_distances(kind, rows[begin + i], points[number], tile[i, left : left + width])
                else:
                    together = n // ROWS_AT_ONCE * ROWS_AT_ONCE
                    for i in range(0, together, ROWS_AT_ONCE):
                        multiply_rows(rows, begin + i, points, number, tile, i, left)
                    for i in range(together, n):
                        multiply_row(rows, begin + i, points, number, tile, i, left)

        return by_panels

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
        columns = _filled_up(points, w)
        for top in range(begin, end, tile_rows):
            bottom = min(top + tile_rows, end)
            tile = space[: (bottom - top) * columns].reshape((bottom - top, columns))
            _multiply(kind, rows, top, bottom, points, point_norms, first, tile)
            for i in range(bottom - top):
                few = values[:w]
                finish(kind, tile[i, :w], norms[top + i], point_norms[first : first + w], scale, shift, degree, few)
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
        columns = _filled_up(points, w)
        for top in range(begin, end, tile_rows):
            n = min(tile_rows, end - top)
            tile, fine = space[: n * columns].reshape((n, columns)), values[: n * w].reshape((n, w))
            _multiply(kind, rows, top, top + n, points, point_norms, first, tile)
            for i in range(n):
                finish(kind, tile[i, :w], norms[top + i], point_norms[first : first + w], scale, shift, degree, few[:w])
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
        m, left = min(width, n_points - first), offset + first
        columns = _filled_up(points, m)
        for top in range(begin, end, tile_rows):
            bottom = min(top + tile_rows, end)
            if is_symmetric and left >= bottom:
                continue
            tile = space[: (bottom - top) * columns].reshape((bottom - top, columns))
            _multiply(kind, rows, top, bottom, points, point_norms, first, tile)
            for i in range(bottom - top):
                few, norm = point_norms[first : first + m], norms[top + i]
                finish(kind, tile[i, :m], norm, few, scale, shift, degree, values[i, :m])
            if is_symmetric:
                for i in range(bottom - top):
                    n = max(0, min(m, top + i + 1 - left))
                    _copy(values[i, :n], out[top + i, left : left + n])
            for k in range(m):
                i = max(0, left + k + 1 - top) if is_symmetric else 0
                _copy(values[i : bottom - top, k], out[left + k, top + i : bottom])


@compiled(fastmath=FAST)
def add_rows(values, slots, coef, begin, end, out):
    """Add some rows of ``values``, times coefficients, to ``out``: its entries from ``begin`` to ``end``."""
    few = out[begin:end]
    for s in range(slots.shape[0]):
        row, b = values[slots[s], begin:end], coef[s]
        for k in range(end - begin):
            few[k] += b * row[k]
