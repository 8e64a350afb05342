"""Inner loops of one peer: dual coordinate passes over its rows in a metric, and subgradients of a few rows.

    maximise over a in [0, m]   sum(a) - 1/2 ||v||^2 in the metric C,     v = z + sum_i a_i y_i x_i,     w = C v

A step of one dual variable moves ``w`` along ``C x_i``; its curvature is ``x_i . C x_i``.
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled()
def _best(dual, limit, slack, curvature):
    """The optimal value of one dual variable."""
    if curvature <= 0.0:  # a row of zeros
        return limit if slack > 0.0 else 0.0
    return min(max(dual + slack / curvature, 0.0), limit)


@compiled()
def pass_diagonal_csr(data, indices, indptr, order, y, limit, diagonal, curvature, dual, w):
    """One pass over sparse rows, with a diagonal metric."""
    for k in range(order.shape[0]):
        i = order[k]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        score = 0.0
        for j in range(begin, end):
            score += data[j] * w[np.uint64(indices[j])]
        best = _best(dual[i], limit[i], 1.0 - y[i] * score, curvature[i])
        push = (best - dual[i]) * y[i]
        if push != 0.0:
            dual[i] = best
            for j in range(begin, end):
                column = np.uint64(indices[j])
                w[column] += push * diagonal[column] * data[j]


@compiled(fastmath=FAST)
def pass_metric_csr(data, indices, indptr, order, y, limit, rows_in_metric, curvature, dual, w):
    """One pass over sparse rows, with their images ``C x_i``, which are dense."""
    d = w.shape[0]
    for k in range(order.shape[0]):
        i = order[k]
        score = 0.0
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            score += data[j] * w[np.uint64(indices[j])]
        best = _best(dual[i], limit[i], 1.0 - y[i] * score, curvature[i])
        push = (best - dual[i]) * y[i]
        if push != 0.0:
            dual[i] = best
            for j in range(d):
                w[j] += push * rows_in_metric[i, j]


@compiled(fastmath=FAST)
def pass_metric_dense(X, order, y, limit, rows_in_metric, curvature, dual, w):
    """One pass over dense rows, with their images ``C x_i``."""
    d = w.shape[0]
    for k in range(order.shape[0]):
        i = order[k]
        score = 0.0
        for j in range(d):
            score += X[i, j] * w[j]
        best = _best(dual[i], limit[i], 1.0 - y[i] * score, curvature[i])
        push = (best - dual[i]) * y[i]
        if push != 0.0:
            dual[i] = best
            for j in range(d):
                w[j] += push * rows_in_metric[i, j]


@compiled()
def violations_csr(data, indices, indptr, picked, y, weight, w, is_violated, total):
    """Mark the picked rows with ``y w.x < 1``, and add the sum of their ``m y x`` to ``total``."""
    for k in range(picked.shape[0]):
        i = picked[k]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        score = 0.0
        for j in range(begin, end):
            score += data[j] * w[np.uint64(indices[j])]
        is_violated[i] = y[i] * score < 1.0
        if is_violated[i]:
            push = weight[i] * y[i]
            for j in range(begin, end):
                total[np.uint64(indices[j])] += push * data[j]


@compiled(fastmath=FAST)
def violations_dense(X, picked, y, weight, w, is_violated, total):
    """:func:`violations_csr` for dense rows."""
    d = w.shape[0]
    for k in range(picked.shape[0]):
        i = picked[k]
        score = 0.0
        for j in range(d):
            score += X[i, j] * w[j]
        is_violated[i] = y[i] * score < 1.0
        if is_violated[i]:
            push = weight[i] * y[i]
            for j in range(d):
                total[j] += push * X[i, j]
