"""Sums over rows for projections onto capped simplices, for both classes in one pass."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def capped_sums(weights, upper, y, scale_positive, scale_negative):
    """Per class: the sum of all weights, of those below their bound after scaling, and of the bounds of the others.

    ``y`` holds -1.0 and +1.0. Returns ``[all+, free+, capped+, all-, free-, capped-]``. Uses selections, since a branch
    on labels in random order would be mispredicted half of the time.
    """
    all_positive = free_positive = capped_positive = 0.0
    all_negative = free_negative = capped_negative = 0.0
    for i in range(weights.shape[0]):
        is_positive = y[i] > 0
        weight = weights[i]
        scale = scale_positive if is_positive else scale_negative
        is_free = weight * scale < upper[i]
        free = weight if is_free else 0.0
        capped = 0.0 if is_free else upper[i]
        all_positive += weight if is_positive else 0.0
        free_positive += free if is_positive else 0.0
        capped_positive += capped if is_positive else 0.0
        all_negative += 0.0 if is_positive else weight
        free_negative += 0.0 if is_positive else free
        capped_negative += 0.0 if is_positive else capped
    return np.array([all_positive, free_positive, capped_positive, all_negative, free_negative, capped_negative])


@compiled()
def class_extremes(values, side):
    """Smallest values of classes 0 and 1, then their largest values, negated; infinite for a class without rows."""
    out = np.full(4, np.inf)
    for i in range(values.shape[0]):
        c = side[i]
        out[c] = min(out[c], values[i])
        out[2 + c] = min(out[2 + c], -values[i])
    return out


@compiled()
def class_histogram(values, amounts, side, low, width, n_bins, bins):
    """Sums of ``amounts`` in equal bins of each class, which start at ``low[c]``; the bin of each value."""
    out = np.zeros((2, n_bins))
    for i in range(values.shape[0]):
        c = side[i]
        k = min(int((values[i] - low[c]) / width[c]), n_bins - 1)
        bins[i] = k
        out[c, k] += amounts[i]
    return out


@compiled()
def drawn_up_to(values, upper, side, level):
    """Per class the sum of ``upper`` where values are up to the level, then the smallest value beyond."""
    drawn, beyond = np.zeros(2), np.full(2, np.inf)
    for i in range(values.shape[0]):
        c = side[i]
        if values[i] <= level[c]:
            drawn[c] += upper[i]
        else:
            beyond[c] = min(beyond[c], values[i])
    return drawn, beyond


@compiled()
def class_levels(values, upper, side, enough):
    """Per class the smallest value up to which ``upper`` adds up to ``enough``, or the largest of all."""
    order = np.argsort(values)
    out = np.full(2, np.inf)
    total = np.zeros(2)
    for k in range(order.shape[0]):
        i = order[k]
        c = side[i]
        if total[c] < enough:
            total[c] += upper[i]
            out[c] = values[i]
    return out
