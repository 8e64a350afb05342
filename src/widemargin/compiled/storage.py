"""Passes over rows that ask how they are stored, or store them in another way; from row ``begin`` to row ``end``."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled()
def count_others(X, centre, begin, end, counts):
    """How many entries of each dense row are not those of the centre."""
    for i in range(begin, end):
        count = 0
        for j in range(X.shape[1]):
            count += X[i, j] != centre[j]
        counts[i] = count


@compiled(fastmath=FAST)
def compress(X, centre, group_size, begin, end, at, data, indices, starts, splits, norms):
    """Write what is not zero of dense rows minus the centre, from place ``at`` on, and the columns of these entries.

    ``starts`` says where each row begins, ``splits`` as :func:`split_rows`, and ``norms`` are squared norms.
    """
    few, columns, zero = (
        np.empty(X.shape[1], data.dtype),
        np.empty(X.shape[1], indices.dtype),
        np.zeros(1, data.dtype)[0],
    )
    for i in range(begin, end):
        x, place = X[i], np.uint64(0)  # unsigned indices take no check
        for g in range(splits.shape[1] - 1):
            splits[i, g] = place
            for j in range(g * group_size, min((g + 1) * group_size, X.shape[1])):
                # The next entry takes the place of one that is zero: a branch would be mispredicted often. Differences
                # are of the finer type.
                few[place], columns[place] = (x[j] + zero) - (centre[j] + zero), j
                place += np.uint64(x[j] != centre[j])
        n, norm = np.intp(place), 0.0
        for k in range(n):
            data[at + k], indices[at + k] = few[k], columns[k]
        # A loop that writes may be compiled twice, and the order of its sums depend on where arrays are.
        for k in range(n):
            norm += np.float64(few[k]) * np.float64(few[k])
        starts[i], splits[i, -1], norms[i] = at, n, norm
        at += n


@compiled()
def take_csr(data, indices, indptr, rows, starts, out_data, out_indices, begin, end):
    """Copy the rows at some places; ``starts`` says where each begins among the copies."""
    for r in range(begin, end):
        at, n = indptr[rows[r]], starts[r + 1] - starts[r]
        for k in range(n):
            out_data[starts[r] + k] = data[at + k]
            out_indices[starts[r] + k] = indices[at + k]


@compiled()
def split_rows(indices, indptr, group_size, begin, end, splits):
    """How many entries of each row, sorted by their columns, lie before every group of columns, and in all."""
    for i in range(begin, end):
        low, high = np.intp(indptr[i]), np.intp(indptr[i + 1])
        at = low
        for g in range(splits.shape[1]):
            while at < high and np.intp(indices[at]) < g * group_size:
                at += 1
            splits[i, g] = at - low


@compiled()
def are_whole(values, unit, begin, end):
    """Whether ``unit`` times each value is a whole number."""
    for k in range(begin, end):
        scaled = np.float64(values[k]) * unit
        if scaled != np.rint(scaled):
            return False
    return True


@compiled()
def are_binary(values, begin, end):
    """Whether each value is zero or one."""
    n_others = 0
    for k in range(begin, end):
        n_others += (values[k] != 0) & (values[k] != 1)
    return n_others == 0


@compiled()
def bits_of_dense(X, begin, end, words):
    """Set the bit of every entry that is not zero; 64 columns share a word."""
    for i in range(begin, end):
        words[i] = 0
        for j in range(X.shape[1]):
            words[i, j // 64] |= np.uint64(X[i, j] != 0) << np.uint64(j % 64)


@compiled()
def bits_of_csr(data, indices, indptr, begin, end, words):
    """:func:`bits_of_dense` of sparse rows."""
    for i in range(begin, end):
        words[i] = 0
        for at in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[at])
            words[i, j // 64] |= np.uint64(data[at] != 0) << np.uint64(j % 64)
