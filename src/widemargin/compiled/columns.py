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
