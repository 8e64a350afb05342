"""Passes for the optimal margin distribution machine: sums over rows, coordinate steps, combinations of kernel rows.

The loss of a row with margin F is ``steep / 2 * ((low - F)+^2 + v (F - high)+^2)``
(:mod:`widemargin.problems.margin_distribution`).
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def loss_sum(margin, steep, low, high, v):
    """The sum of the losses of all rows."""
    total = 0.0
    for i in range(margin.shape[0]):
        short, over = max(low - margin[i], 0.0), max(margin[i] - high, 0.0)
        total += steep[i] * (short * short + v * over * over)
    return total / 2


@compiled(fastmath=FAST)
def pulls(margin, steep, low, high, v, out):
    """Minus the derivative of each row's loss, which is a dual variable g; returns the sum of the losses."""
    total = 0.0
    for i in range(margin.shape[0]):
        short, over = max(low - margin[i], 0.0), max(margin[i] - high, 0.0)
        out[i] = steep[i] * (short - v * over)
        total += steep[i] * (short * short + v * over * over)
    return total / 2


@compiled(fastmath=FAST)
def line_sums(margin, tilt, steep, low, high, v, length):
    """First and second derivative, with respect to ``length``, of the losses at ``margin + length tilt``."""
    slope = bend = 0.0
    for i in range(margin.shape[0]):
        at = margin[i] + length * tilt[i]
        short, over = max(low - at, 0.0), max(at - high, 0.0)
        pull = steep[i] * tilt[i]
        slope -= pull * (short - v * over)
        bend += pull * tilt[i] * ((1.0 if short > 0.0 else 0.0) + (v if over > 0.0 else 0.0))
    return np.array([slope, bend])


@compiled()
def best_coordinate(rest, curvature, steep, low, high, v):
    """The best g of a row with all others fixed; ``rest`` is its margin from the others, ``curvature`` ||phi_i||^2."""
    if rest < low:
        return steep * (low - rest) / (1.0 + steep * curvature)
    if rest > high:
        return -steep * v * (rest - high) / (1.0 + steep * v * curvature)
    return 0.0


@compiled(fastmath=FAST)
def coordinate_gains(margin, g, curvature, steep, low, high, v, out):
    """The dual gain of the best step of each row, or an estimate of at least half of it."""
    for i in range(margin.shape[0]):
        out[i] = 0.0
        if steep[i] > 0.0:
            change = best_coordinate(margin[i] - curvature[i] * g[i], curvature[i], steep[i], low, high, v) - g[i]
            out[i] = 0.5 * (1.0 / steep[i] + curvature[i]) * change * change


@compiled(fastmath=FAST)
def descend_block(K, constant, y, steep, low, high, v, g, response, order, most, closer):
    """Coordinate descent on a block of rows with kernel values ``K + constant``, until a pass gains little.

    Updates ``g`` and ``response``. Passes go alternately forward and backward through ``order``, and end when the gain
    of one is at most ``closer`` times that of the first, or after ``most`` passes. Returns the number of passes.
    """
    n = g.shape[0]
    first = offset = 0.0
    for turn in range(most):
        gain = 0.0
        for k in range(n):
            i = order[k] if turn % 2 == 0 else order[n - 1 - k]
            if steep[i] <= 0.0:
                continue
            curvature = max(K[i, i] + constant, 0.0)
            rest = y[i] * (response[i] + offset) - curvature * g[i]
            change = best_coordinate(rest, curvature, steep[i], low, high, v) - g[i]
            if change == 0.0:
                continue
            gain += (1.0 / steep[i] + curvature) * change * change
            g[i] += change
            push = change * y[i]
            offset += push * constant
            for j in range(n):
                response[j] += push * K[i, j]
        if turn == 0:
            first = gain
        if gain <= closer * first:
            break
    for j in range(n):
        response[j] += offset
    return turn + 1


@compiled(fastmath=FAST)
def add_rows(values, rows, coef, out):
    """``out += sum_k coef_k values[rows_k]``, four rows at a time."""
    n, width = rows.shape[0], out.shape[0]
    whole = n // 4 * 4
    for k in range(0, whole, 4):
        a, b, c, d = values[rows[k]], values[rows[k + 1]], values[rows[k + 2]], values[rows[k + 3]]
        p, q, r, s = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
        for j in range(width):
            out[j] += p * a[j] + q * b[j] + r * c[j] + s * d[j]
    for k in range(whole, n):
        a, p = values[rows[k]], coef[k]
        for j in range(width):
            out[j] += p * a[j]


@compiled()
def variance_reduced_csr(data, indices, indptr, order, y, steep, low, high, v, old, step, u, q, scales):
    """Steps ``w -= step (w - w_old + (pull_old - pull) y x + h)`` over rows in ``order``, at the cost of sparse rows.

    With ``q = w_old - h`` a step is ``w = (1 - step) w + step q`` plus a multiple of one row, so w is kept as
    ``a u + c q``; ``scales`` is (a, c, constant). ``old`` holds the pulls at w_old; ``steep`` is scaled so that one row
    stands for all. The last entries of u and q belong to the constant feature, whose value is ``constant``.
    """
    a, c, constant = scales[0], scales[1], scales[2]
    last = u.shape[0] - 1
    for k in range(order.shape[0]):
        i = order[k]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        along_u, along_q = constant * u[last], constant * q[last]
        for j in range(begin, end):
            where = np.uint64(indices[j])
            along_u += data[j] * u[where]
            along_q += data[j] * q[where]
        margin = y[i] * (a * along_u + c * along_q)
        pull = steep[i] * (max(low - margin, 0.0) - v * max(margin - high, 0.0))
        a *= 1.0 - step
        c = (1.0 - step) * c + step
        push = step * (pull - old[i]) * y[i] / a
        if push != 0.0:
            for j in range(begin, end):
                u[np.uint64(indices[j])] += push * data[j]
            u[last] += push * constant
        if a < 1e-100:
            for j in range(u.shape[0]):
                u[j] *= a
            a = 1.0
    scales[0], scales[1] = a, c


@compiled(fastmath=FAST)
def variance_reduced_dense(X, order, y, steep, low, high, v, old, step, u, q, scales):
    """:func:`variance_reduced_csr` for dense rows."""
    a, c, constant = scales[0], scales[1], scales[2]
    last = u.shape[0] - 1
    for k in range(order.shape[0]):
        i = order[k]
        along_u, along_q = constant * u[last], constant * q[last]
        for j in range(last):
            along_u += X[i, j] * u[j]
            along_q += X[i, j] * q[j]
        margin = y[i] * (a * along_u + c * along_q)
        pull = steep[i] * (max(low - margin, 0.0) - v * max(margin - high, 0.0))
        a *= 1.0 - step
        c = (1.0 - step) * c + step
        push = step * (pull - old[i]) * y[i] / a
        if push != 0.0:
            for j in range(last):
                u[j] += push * X[i, j]
            u[last] += push * constant
        if a < 1e-100:
            for j in range(last + 1):
                u[j] *= a
            a = 1.0
    scales[0], scales[1] = a, c
