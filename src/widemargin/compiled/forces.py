"""How strongly rows of the dual of an SVM pull their coefficients up or down, from labels and responses.

``places`` are those of the rows among ``y``, ``low`` and ``high``, which have an entry for every row; ``beta`` and
``response`` are those of these rows alone.
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

_NUMBERS = FAST | {"nnan"}


@compiled(fastmath=_NUMBERS)
def ends(places, y, low, high, beta, response):
    """The largest pull of a row that may rise, the smallest of one that may fall; sum and number of free pulls."""
    highest, lowest, total, n_free = -np.inf, np.inf, 0.0, 0
    for k in range(places.shape[0]):
        i = places[k]
        pull, can_rise, can_fall = y[i] - response[k], beta[k] < high[i], beta[k] > low[i]
        is_free = can_rise & can_fall
        highest = max(highest, pull if can_rise else -np.inf)
        lowest = min(lowest, pull if can_fall else np.inf)
        total += pull if is_free else 0.0
        n_free += is_free
    return highest, lowest, total, n_free


@compiled(fastmath=_NUMBERS)
def forces(places, y, low, high, beta, response, threshold, rise, fall):
    """Write the pulls up and down from the threshold, minus infinity where a row cannot move that way.

    Returns the sum of the rows' parts of the gap between both objectives, with the threshold as the intercept: a part
    is the pull times how far the row can move that way.
    """
    gap = 0.0
    for k in range(places.shape[0]):
        i = places[k]
        up, down = high[i] - beta[k], beta[k] - low[i]
        pull = y[i] - response[k] - threshold
        rise[k] = pull if up > 0.0 else -np.inf
        fall[k] = -pull if down > 0.0 else -np.inf
        gap += pull * (up if pull > 0.0 else -down)
    return gap
