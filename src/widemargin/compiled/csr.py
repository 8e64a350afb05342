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
def combine_csr(data, indices, indptr, mass, out):
    out[:] = 0.0
    for i in range(mass.shape[0]):
        m = mass[i]
        if m != 0.0:
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                out[np.uint64(indices[k])] += m * data[k]


@compiled()
def combine_rows_csr(data, indices, indptr, rows, mass, out):
    out[:] = 0.0
    for r in range(rows.shape[0]):
        i = rows[r]
        m = mass[r]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[np.uint64(indices[k])] += m * data[k]


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
