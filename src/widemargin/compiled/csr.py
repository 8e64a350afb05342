"""Passes over compressed sparse rows; :mod:`widemargin.compiled.dense` says what each computes.

Indices have 32 or 64 bits. They are cast to unsigned, which spares Numba's check for negative indices. Sums are not
reordered: the compiler would gather values into vector registers, which is slower than reading them one by one.
"""

import numpy as np

from widemargin.compiled.hashes import entry_hash
from widemargin.compiled.jit import compiled


@compiled()
def scores_csr(data, indices, indptr, w, out):
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[k] * w[np.uint64(indices[k])]
        out[i] = total


@compiled()
def products_csr(data, indices, indptr, W, out):
    """``out = X W``, in the type of ``out``."""
    out[:, :] = 0.0
    for i in range(out.shape[0]):
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            line, value = np.uint64(indices[k]), data[k]
            for j in range(out.shape[1]):
                out[i, j] += value * W[line, j]


@compiled()
def combine_csr(data, indices, indptr, mass, out):
    out[:] = 0.0
    for i in range(mass.shape[0]):
        m = mass[i]
        if m != 0.0:
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                out[np.uint64(indices[k])] += m * data[k]


@compiled()
def stepwise_combine_csr(data, indices, indptr, mass, step, out):
    combine_csr(data, indices, indptr, mass[:step], out)
    part = np.empty_like(out)
    for begin in range(step, mass.shape[0], step):
        combine_csr(data, indices, indptr[begin:], mass[begin : begin + step], part)
        out += part


@compiled()
def combine_signs_csr(data, indices, indptr, mass, step, out):
    out[:, :] = 0.0
    part = np.empty_like(out)
    for begin in range(0, mass.shape[0], step):
        part[:, :] = 0.0
        for i in range(begin, min(begin + step, mass.shape[0])):
            m = mass[i]
            if m != 0.0:
                c = 0 if m > 0.0 else 1
                for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                    part[c, np.uint64(indices[k])] += m * data[k]
        out += part


@compiled()
def combine_rows_csr(data, indices, indptr, rows, mass, out):
    out[:] = 0.0
    for r in range(rows.shape[0]):
        i = rows[r]
        m = mass[r]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[np.uint64(indices[k])] += m * data[k]


@compiled()
def combine_sides_csr(data, indices, indptr, rows, mass, side, out):
    out[:, :] = 0.0
    for r in range(rows.shape[0]):
        i, m, c = rows[r], mass[r], side[r]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[c, np.uint64(indices[k])] += m * data[k]


@compiled()
def curvature_csr(data, indices, indptr, rows, mass, v, out):
    out[:] = 0.0
    for r in range(rows.shape[0]):
        i = rows[r]
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[k] * v[np.uint64(indices[k])]
        total *= mass[r]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[np.uint64(indices[k])] += total * data[k]


@compiled()
def second_moment_csr(data, indices, indptr, rows, mass, out):
    """``out = sum_i mass_i x_i x_i'`` over the given rows, both triangles."""
    out[:, :] = 0.0
    for r in range(rows.shape[0]):
        i = rows[r]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            scaled = mass[r] * data[k]
            row = np.uint64(indices[k])
            for m in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                out[row, np.uint64(indices[m])] += scaled * data[m]


@compiled()
def take_csr(data, indices, indptr, rows, out):
    """The given rows, dense."""
    out[:, :] = 0.0
    for r in range(rows.shape[0]):
        i = rows[r]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[r, np.uint64(indices[k])] += data[k]


@compiled()
def take_sparse_csr(data, indices, indptr, rows, places, out_data, out_indices):
    """The entries of the given rows; those of row r go to ``places[r]`` and after."""
    for r in range(rows.shape[0]):
        i, place = rows[r], np.uint64(places[r])
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out_data[place] = data[k]
            out_indices[place] = indices[k]
            place += np.uint64(1)


@compiled()
def take_columns_csr(data, indices, indptr, places, out):
    """Columns, dense; column j goes to ``places[j]`` if that is not negative."""
    out[:, :] = 0.0
    for i in range(out.shape[0]):
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            place = places[np.uint64(indices[k])]
            if place >= 0:
                out[i, place] += data[k]


@compiled()
def squared_norms_csr(data, indices, indptr, out):
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            value = np.float64(data[k])
            total += value * value
        out[i] = total


@compiled()
def row_hashes_csr(data, indices, indptr, out):
    for i in range(out.shape[0]):
        total = np.uint64(0)
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += entry_hash(indices[k], data[k])
        out[i] = total


@compiled()
def longest_row_csr(data, indices, indptr, out):
    """``out[0]``, the largest number of entries of a row."""
    for i in range(indptr.shape[0] - 1):
        out[0] = max(out[0], indptr[i + 1] - indptr[i])
