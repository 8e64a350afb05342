"""The hinge loss of scores along a line, and the search for the best multiple of the scores with its best intercept.

The objective is ``0.5 scale^2 ||w||^2 + C sum_i m_i max(0, 1 - y_i (scale * score_i + intercept))``. For every scale
the best intercept is searched for, and so is the best scale: two nested searches for the minimum of a convex function
of one number. All that they need of the rows are sums, and rows may be elsewhere: on other ranks, or on a GPU. A
search is therefore an array that says where to look next (``AT``) and is told what was found there
(:func:`go_on`). Where all rows are here, :func:`search` does both.

The sums of many rows cost more than the search. The loss is nowhere below its tangent planes: the search for the
minimum over these (:func:`lowest_of_planes`) tells where to look next among the rows, and how low the objective can be.
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled
from widemargin.rounding import UNIT

# A search for the minimum of a function: tangents left and right of it, each with its place, value and slope, and
# another number that belongs to the place.
_NEXT, _STEP, _FLOOR, _STAGE, _TURN, _LOW, _HIGH, _LENGTH = 0, 1, 2, 3, 4, 5, 9, 13
_PLACE, _VALUE, _SLOPE, _OTHER = 0, 1, 2, 3
_FIRST, _LEFT, _RIGHT, _BETWEEN = 0.0, 1.0, 2.0, 3.0
_MAX_TURNS = 200

# A search for the best scale and intercept: a search for each, and the numbers of the problem.
_OF_SCALE, _OF_INTERCEPT = 0, _LENGTH
AT, _C, _SQUARED_NORM, _PRECISION = (
    slice(2 * _LENGTH, 2 * _LENGTH + 2),
    2 * _LENGTH + 2,
    2 * _LENGTH + 3,
    2 * _LENGTH + 4,
)
_HAS_INTERCEPT, _IS_FIXED, _NEAR, _REACH = 2 * _LENGTH + 5, 2 * _LENGTH + 6, 2 * _LENGTH + 7, 2 * _LENGTH + 8
_SIZE = 2 * _LENGTH + 9


@compiled(fastmath=FAST)
def hinge_sums(scores: np.ndarray, y: np.ndarray, weight: np.ndarray, scale: float, intercept: float) -> np.ndarray:
    """``sum_i m_i max(0, 1 - y_i (scale * score_i + intercept))`` and its slopes by scale and intercept.

    A slope by the intercept that may be rounding alone is 0: where the loss is flat, between classes of equal weight,
    the intercept must not run away.
    """
    loss = by_scale = by_intercept = mass = 0.0
    for i in range(scores.shape[0]):
        slack = 1.0 - y[i] * (scale * scores[i] + intercept)
        push = weight[i] * y[i] if slack > 0.0 else 0.0
        loss += weight[i] * max(slack, 0.0)
        by_scale -= push * scores[i]
        by_intercept -= push
        mass += abs(push)
    if abs(by_intercept) <= UNIT * scores.shape[0] * mass:
        by_intercept = 0.0
    return np.array([loss, by_scale, by_intercept])


@compiled()
def _begin(search: np.ndarray, start: float, step: float, floor: float) -> None:
    search[_NEXT], search[_STEP], search[_FLOOR], search[_STAGE], search[_TURN] = start, step, floor, _FIRST, 0.0


@compiled()
def _go_on(search: np.ndarray, value: float, slope: float, other: float, precision: float) -> bool:
    """Note the tangent at the place where to look; False if the minimum is found, else there is a next place.

    First steps that grow lead to tangents left and right of the minimum. Where these meet is the next place to look,
    exact for a kink; that takes turns with the root of the line through both slopes, exact for a parabola. The end is
    reached when they meet within ``precision`` below the better of the two, which proves it.
    """
    low, high = search[_LOW : _LOW + 4], search[_HIGH : _HIGH + 4]
    place, stage = search[_NEXT], search[_STAGE]
    if stage in (_FIRST, _LEFT):
        high[:] = low
    elif stage == _RIGHT:
        low[:] = high
    new = low if stage == _LEFT or (stage == _BETWEEN and slope < 0.0) else high
    new[_PLACE], new[_VALUE], new[_SLOPE], new[_OTHER] = place, value, slope, other
    if stage == _FIRST:
        low[:] = high
    if stage <= _LEFT and low[_SLOPE] > 0.0 and low[_PLACE] > search[_FLOOR]:
        search[_NEXT], search[_STAGE] = max(search[_FLOOR], low[_PLACE] - search[_STEP]), _LEFT
        search[_STEP] *= 4.0
        return True
    if stage <= _RIGHT and high[_SLOPE] < 0.0:
        search[_NEXT], search[_STAGE] = high[_PLACE] + search[_STEP], _RIGHT
        search[_STEP] *= 4.0
        return True
    search[_STAGE] = _BETWEEN
    turn, rise, width = search[_TURN], high[_SLOPE] - low[_SLOPE], high[_PLACE] - low[_PLACE]
    if turn < _MAX_TURNS and low[_SLOPE] < 0.0 and high[_SLOPE] > 0.0 and width > 0.0:
        meet = (low[_VALUE] - high[_VALUE] + high[_SLOPE] * width) / rise  # from the left tangent's place
        best = min(low[_VALUE], high[_VALUE])
        if best - (low[_VALUE] + low[_SLOPE] * meet) > precision * abs(best):
            kind = turn % 3.0
            ahead = meet if kind == 0.0 else -low[_SLOPE] / rise * width if kind == 1.0 else width / 2.0
            following = low[_PLACE] + min(max(ahead, 0.0), width)
            if not low[_PLACE] < following < high[_PLACE]:
                following = low[_PLACE] + width / 2.0
            if low[_PLACE] < following < high[_PLACE]:
                search[_NEXT], search[_TURN] = following, turn + 1.0
                return True
    if low[_SLOPE] >= 0.0:
        high[:] = low
    elif high[_SLOPE] <= 0.0:
        low[:] = high
    return False


@compiled()
def start_search(
    C: float, squared_norm: float, near: float, has_intercept: bool, is_fixed: bool, precision: float
) -> np.ndarray:
    """A search for the best scale, not negative, and intercept; with ``is_fixed`` the scale is 1.

    ``near`` is where the search for the intercept begins.
    """
    state = np.zeros(_SIZE)
    state[_C], state[_SQUARED_NORM], state[_PRECISION], state[_NEAR], state[_REACH] = (
        C,
        squared_norm,
        precision,
        near,
        0.1,
    )
    # A w that is only rounding has no best multiple.
    has_one_scale = is_fixed or not squared_norm > 0.0
    state[_HAS_INTERCEPT], state[_IS_FIXED] = has_intercept, has_one_scale
    scale = 1.0 if is_fixed or not has_one_scale else 0.0
    _begin(state[_OF_SCALE:_LENGTH], scale, 0.1, 0.0)
    _begin(state[_OF_INTERCEPT : 2 * _LENGTH], near if has_intercept else 0.0, 0.1, -np.inf)
    state[AT] = scale, near if has_intercept else 0.0
    return state


@compiled()
def go_on(state: np.ndarray, loss: float, by_scale: float, by_intercept: float) -> bool:
    """Note the hinge sums at the scale and intercept of ``state[AT]``; False if the search is at its end."""
    outer, inner, precision = state[_OF_SCALE:_LENGTH], state[_OF_INTERCEPT : 2 * _LENGTH], state[_PRECISION]
    scale, intercept = state[AT][0], state[AT][1]
    value = 0.5 * (scale * scale * state[_SQUARED_NORM]) + state[_C] * loss
    slope = state[_C] * by_scale + scale * state[_SQUARED_NORM]
    if state[_HAS_INTERCEPT] != 0.0:
        if _go_on(inner, value, state[_C] * by_intercept, slope, precision):
            state[AT][1] = inner[_NEXT]
            return True
        low, high = inner[_LOW : _LOW + 4], inner[_HIGH : _HIGH + 4]
        best = low if low[_VALUE] <= high[_VALUE] else high
        value, intercept = best[_VALUE], best[_PLACE]
        # The next scale is closer, and so is its intercept.
        state[_REACH] = max(abs(intercept - state[_NEAR]) / 2.0, 1e-9 * abs(intercept), 1e-12)
        state[_NEAR] = intercept
        # Both ends touch the same kink: the mean of their gradients with slope 0 in b is a gradient at the minimum.
        share = high[_SLOPE] / (high[_SLOPE] - low[_SLOPE]) if high[_SLOPE] > low[_SLOPE] else 0.5
        slope = share * low[_OTHER] + (1.0 - share) * high[_OTHER]
        _begin(inner, intercept, state[_REACH], -np.inf)
    if state[_IS_FIXED] != 0.0:
        for end in (_LOW, _HIGH):
            outer[end + _PLACE], outer[end + _VALUE], outer[end + _OTHER] = scale, value, intercept
        return False
    is_open = _go_on(outer, value, slope, intercept, precision)
    state[AT][0], state[AT][1] = outer[_NEXT], intercept
    return is_open


@compiled()
def search(state: np.ndarray, scores: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    """Go on to the end, where all rows are here."""
    while True:
        loss, by_scale, by_intercept = hinge_sums(scores, y, weight, state[AT][0], state[AT][1])
        if not go_on(state, loss, by_scale, by_intercept):
            return


@compiled()
def found(state: np.ndarray) -> tuple[float, float, float]:
    """The least objective at the end of a search, its scale and its intercept."""
    low, high = state[_LOW : _LOW + 4], state[_HIGH : _HIGH + 4]
    best = low if low[_VALUE] <= high[_VALUE] else high
    return best[_VALUE], best[_PLACE], best[_OTHER]


@compiled()
def lowest_of_planes(
    planes: np.ndarray, C: float, squared_norm: float, near: float, precision: float
) -> tuple[float, float, float]:
    """The least objective, its scale and its intercept, if the loss were the largest of some planes.

    A plane has its height at the origin and its slopes by scale and intercept.
    """
    state = start_search(C, squared_norm, near, True, False, precision)
    while True:
        scale, intercept, top, height = state[AT][0], state[AT][1], 0, -np.inf
        for k in range(planes.shape[0]):
            here = planes[k, 0] + planes[k, 1] * scale + planes[k, 2] * intercept
            if here > height:
                top, height = k, here
        if not go_on(state, height, planes[top, 1], planes[top, 2]):
            return found(state)
