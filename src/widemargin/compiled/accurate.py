"""Passes with compensated sums: as if computed in twice the precision of float64, then rounded once.

A product is split into its rounded value and its error (Dekker, Veltkamp), a sum likewise (Knuth), and the errors are
summed beside the values [1]. Then the result of k terms differs from the exact one by at most one rounding of the
result and ``gamma(k)^2`` of the sum of the sizes of the terms ([1], propositions 4.5 and 5.5). No function here may be
compiled with fast mathematics, which would take the errors for zero.

[1] Ogita, Rump, Oishi: Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005.
"""

import numpy as np

from widemargin.compiled.jit import compiled

_SPLIT = 134217729.0  # 2^27 + 1


@compiled()
def _two_sum(a, b):
    """``a + b`` rounded, and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@compiled()
def _two_product(a, b):
    """``a b`` rounded, and its error."""
    product = a * b
    wide = _SPLIT * a
    a_high = wide - (wide - a)
    a_low = a - a_high
    wide = _SPLIT * b
    b_high = wide - (wide - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled()
def accurate_scores_dense(X, w, shift, out):
    """``out = X w - shift``."""
    n, d = X.shape
    for i in range(n):
        total = -shift
        error = 0.0
        for j in range(d):
            product, its_error = _two_product(np.float64(X[i, j]), w[j])
            total, sum_error = _two_sum(total, product)
            error += sum_error + its_error
        out[i] = total + error


@compiled()
def accurate_scores_csr(data, indices, indptr, w, shift, out):
    for i in range(out.shape[0]):
        total = -shift
        error = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            product, its_error = _two_product(np.float64(data[k]), w[np.uint64(indices[k])])
            total, sum_error = _two_sum(total, product)
            error += sum_error + its_error
        out[i] = total + error


@compiled()
def add_accurately_dense(X, mass, side, high, low):
    """Per class c: ``high[c] + low[c]``, two arrays for one sum, grow by the sum of ``mass_i x_i``."""
    n, d = X.shape
    for i in range(n):
        m = mass[i]
        if m != 0.0:
            c = side[i]
            for j in range(d):
                product, its_error = _two_product(m, np.float64(X[i, j]))
                high[c, j], sum_error = _two_sum(high[c, j], product)
                low[c, j] += sum_error + its_error


@compiled()
def add_accurately_csr(data, indices, indptr, mass, side, high, low):
    for i in range(mass.shape[0]):
        m = mass[i]
        if m != 0.0:
            c = side[i]
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                j = np.uint64(indices[k])
                product, its_error = _two_product(m, np.float64(data[k]))
                high[c, j], sum_error = _two_sum(high[c, j], product)
                low[c, j] += sum_error + its_error


@compiled()
def add_by_class(side, values, high, low):
    """Per class c: ``high[c] + low[c]`` grow by the sum of its values."""
    for i in range(values.shape[0]):
        c = side[i]
        high[c], error = _two_sum(high[c], values[i])
        low[c] += error


@compiled()
def join_sums(other_high, other_low, high, low):
    """Add a sum in two arrays, as that of :func:`add_accurately_dense`, to another."""
    for c in range(high.shape[0]):
        for j in range(high.shape[1]):
            high[c, j], error = _two_sum(high[c, j], other_high[c, j])
            low[c, j] += error + other_low[c, j]
