"""Column sums in one pass over memory, for dense and for compressed sparse rows."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def add_squares_dense(X, weight, out):
    """``out_j += sum_i weight_i x_ij^2``; rows with zero weight are not read."""
    n, d = X.shape
    for i in range(n):
        w = weight[i]
        if w != 0.0:
            for j in range(d):
                value = np.float64(X[i, j])  # float32 squares lose digits and overflow
                out[j] += w * value * value


@compiled()
def add_squares_csr(data, indices, indptr, weight, out):
    """:func:`add_squares_dense` for CSR rows."""
    for i in range(weight.shape[0]):
        w = weight[i]
        if w != 0.0:
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                value = np.float64(data[k])
                out[np.uint64(indices[k])] += w * value * value


@compiled()
def column_extremes_dense(X, low, high):
    """Lower ``low_j`` and raise ``high_j`` to the smallest and largest value of each column."""
    n, d = X.shape
    for i in range(n):
        for j in range(d):
            value = np.float64(X[i, j])
            low[j] = min(low[j], value)
            high[j] = max(high[j], value)


@compiled()
def column_extremes_csr(data, indices, indptr, low, high):
    """:func:`column_extremes_dense` for CSR rows without duplicates; entries that are not stored are zeros."""
    count = np.zeros(low.shape[0], dtype=np.int64)
    for k in range(np.uint64(indptr[0]), np.uint64(indptr[-1])):
        column = np.uint64(indices[k])
        value = np.float64(data[k])
        low[column] = min(low[column], value)
        high[column] = max(high[column], value)
        count[column] += 1
    for j in range(low.shape[0]):
        if count[j] < indptr.shape[0] - 1:
            low[j] = min(low[j], 0.0)
            high[j] = max(high[j], 0.0)


@compiled(fastmath=FAST)
def squared_distances_dense(X, factor, centre, out):
    """``out_i = ||factor (x_i - centre)||^2``."""
    n, d = X.shape
    for i in range(n):
        total = 0.0
        for j in range(d):
            value = factor[j] * (np.float64(X[i, j]) - centre[j])
            total += value * value
        out[i] = total


@compiled()
def squared_distances_csr(data, indices, indptr, factor, centre, out):
    """:func:`squared_distances_dense` for CSR rows: that of the origin, corrected where an entry is stored."""
    at_origin = 0.0
    for j in range(factor.shape[0]):
        at_origin += (factor[j] * centre[j]) ** 2
    for i in range(out.shape[0]):
        total = at_origin
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            column = np.uint64(indices[k])
            value = factor[column] * (np.float64(data[k]) - centre[column])
            total += value * value - (factor[column] * centre[column]) ** 2
        out[i] = max(total, 0.0)


@compiled()
def outstanding_columns_dense(X, factor, centre, out):
    """Twice the column j of the largest ``factor_j |x_ij - centre_j|`` of each row, and 1 more if x_ij > centre_j."""
    n, d = X.shape
    for i in range(n):
        most, where = 0.0, 0
        for j in range(d):
            value = factor[j] * (np.float64(X[i, j]) - centre[j])
            if abs(value) > most:
                most, where = abs(value), 2 * j + (value > 0)
        out[i] = where


@compiled()
def outstanding_columns_csr(data, indices, indptr, factor, centre, out):
    """:func:`outstanding_columns_dense` for CSR rows, among the entries that are stored."""
    for i in range(out.shape[0]):
        most, where = 0.0, 0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            column = np.uint64(indices[k])
            value = factor[column] * (np.float64(data[k]) - centre[column])
            if abs(value) > most:
                most, where = abs(value), 2 * np.int64(column) + (value > 0)
        out[i] = where


@compiled(fastmath=FAST)
def add_by_group_dense(X, weight, group, out):
    """``out[group_i] += weight_i x_i`` where the group is not negative."""
    n, d = X.shape
    for i in range(n):
        g, w = group[i], weight[i]
        if g >= 0:
            for j in range(d):
                out[g, j] += w * X[i, j]
