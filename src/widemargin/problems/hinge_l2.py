"""The C-SVM: hinge loss with a squared norm, and an intercept that is not regularised.

With rows phi_i, labels y_i in {-1, +1} and multiplicities m_i,

    minimise    0.5 ||w||^2 + C sum_i m_i max(0, 1 - y_i (w.phi_i + b))

and its dual

    maximise    sum_i alpha_i - 0.5 || sum_i alpha_i y_i phi_i ||^2
    subject to  0 <= alpha_i <= C m_i,   and sum_i alpha_i y_i = 0 if there is an intercept,

so that every w and b give an upper bound of the optimum, every feasible alpha a lower one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from widemargin.compiled.hinge import hinge_sums
from widemargin.problems._classes import Balanced, require_both_classes, require_positive
from widemargin.rounding import UNIT, gamma


class Rounding(NamedTuple):
    """What the primal objective allows for: errors of scores, and of sums over so many rows of all ranks.

    A slack ``1 - y (scale score + b)`` takes six roundings, each of at most UNIT of a number no larger than
    ``2 (1 + |b|) + slack`` where the slack is positive.
    """

    score_error: float | np.ndarray = 0.0
    n_rows: float = 0.0
    weight: float = 0.0  # of all rows

    def largest_value(self, value: float, C: float, intercept: float) -> float:
        """An upper bound on the exact objective, from the computed one, which C times the loss is a part of."""
        return value * (1 + gamma(self.n_rows + 16)) + 16 * UNIT * C * self.weight * (1 + abs(intercept))


class PrimalPoint(NamedTuple):
    """The best multiple of a direction with its best intercept, and the objective there."""

    value: float
    scale: float
    intercept: float


@dataclass(frozen=True)
class HingeL2(Balanced):
    """Regularised hinge loss; ``C`` multiplies the loss, weights are multiplicities."""

    C: float
    fit_intercept: bool = True

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if the problem has no solution for classes of these total weights."""
        require_positive("C", self.C, "the loss")
        require_both_classes(total_positive, total_negative)

    def caps(self, weight: np.ndarray) -> np.ndarray:
        """The largest alpha of each row."""
        return self.C * weight

    def primal_value(self, loss: float, size: float) -> float:
        """The primal objective, from ``sum_i m_i max(0, 1 - y_i (w.phi_i + b))`` and ``||w||^2``."""
        return 0.5 * size + self.C * loss

    def dual_value(self, gain: float, size: float) -> float:
        """The dual objective of a feasible alpha, from its sum and ``||sum_i alpha_i y_i phi_i||^2``."""
        return gain - 0.5 * size

    def implied_slack(self, value: float, norm: float, total_weight: float) -> float:
        """The slack per row of the unit vector along w, from the objective and ``||w||``."""
        return (value - 0.5 * norm**2) / self.C / total_weight / norm if norm > 0 else math.inf

    def best_factor(self, alpha_sum: float, squared_norm: float, largest: float = 1.0) -> float:
        """The t in [0, largest] for which t * alpha has the highest dual objective."""
        return largest if largest * squared_norm <= alpha_sum else alpha_sum / squared_norm

    def primal_point(
        self,
        scores: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        squared_norm: float,
        total: Callable[[np.ndarray], np.ndarray] = lambda sums: sums,
        *,
        near: float = 0.0,
        fixed_scale: bool = False,
        precision: float = 1e-11,
        sums: Callable[..., np.ndarray] = hinge_sums,
        rounding: Rounding | None = None,
    ) -> PrimalPoint:
        """The best multiple of w, not negative, and the best intercept for it.

        ``scores`` are ``w.phi_i`` of this rank's rows in float64, ``squared_norm`` is ``||w||^2``, ``total`` sums a
        small array over all ranks, ``near`` is where the search for the intercept begins. With ``fixed_scale`` only the
        intercept is searched for. The value is that of the point returned, above the least one by about ``precision``
        of it. ``sums`` replaces :func:`hinge_sums` where the scores are not on the host. With ``rounding`` the value is
        an upper bound on the exact one, if ``squared_norm`` is one too.
        """
        if rounding is not None:
            scores, squared_norm = scores - y * rounding.score_error, squared_norm * (1 + 8 * UNIT)
        best_intercept, reach = near, 0.1

        def at(scale: float, intercept: float) -> tuple[float, float, float]:
            loss, by_scale, by_intercept = map(float, total(sums(scores, y, weight, scale, intercept)))
            value = self.primal_value(loss, scale * scale * squared_norm)
            return value, self.C * by_scale + scale * squared_norm, self.C * by_intercept

        def at_scale(scale: float) -> _Line:
            nonlocal best_intercept, reach
            if not self.fit_intercept:
                value, slope, _ = at(scale, 0.0)
                return _Line(scale, value, slope, 0.0)

            def at_intercept(intercept: float) -> _Line:
                value, by_scale, by_intercept = at(scale, intercept)
                return _Line(intercept, value, by_intercept, by_scale)

            low, high = _lowest(at_intercept, best_intercept, reach, -math.inf, precision)
            best = min(low, high, key=lambda line: line.value)
            # The next scale is closer, and so is its intercept.
            best_intercept, reach = best.at, max(abs(best.at - best_intercept) / 2, 1e-9 * abs(best.at), 1e-12)
            # Both ends touch the same kink: the mean of their gradients with slope 0 in b is a gradient at the minimum.
            share = high.slope / (high.slope - low.slope) if high.slope > low.slope else 0.5
            return _Line(scale, best.value, share * low.other + (1 - share) * high.other, best.at)

        if fixed_scale or not squared_norm > 0:  # a w that is only rounding has no best multiple
            best = at_scale(1.0 if fixed_scale else 0.0)
        else:
            best = min(_lowest(at_scale, 1.0, 0.1, 0.0, precision), key=lambda line: line.value)
        # Not while searching: where several intercepts are best, none is to be preferred for being small.
        value = best.value if rounding is None else rounding.largest_value(best.value, self.C, best.other)
        return PrimalPoint(value, best.at, best.other)


class _Line(NamedTuple):
    """A tangent of a convex function, with another number that belongs to the place it touches."""

    at: float
    value: float
    slope: float
    other: float


def _lowest(
    tangent: Callable[[float], _Line], start: float, step: float, floor: float, precision: float
) -> tuple[_Line, _Line]:
    """Two tangents left and right of the minimum of a convex function over ``[floor, inf)``.

    They meet within ``precision`` below the better of the two, which proves it. Where they meet is the next place to
    look, exact for a kink; that takes turns with the root of the line through both slopes, exact for a parabola.
    """
    low = high = tangent(start)
    while low.slope > 0 and low.at > floor:
        high, low, step = low, tangent(max(floor, low.at - step)), 4 * step
    while high.slope < 0:
        low, high, step = high, tangent(high.at + step), 4 * step
    for turn in range(200):
        rise, width = high.slope - low.slope, high.at - low.at
        if low.slope >= 0 or high.slope <= 0 or width <= 0:
            break
        meet = (low.value - high.value + high.slope * width) / rise  # from low.at
        best = min(low.value, high.value)
        if best - (low.value + low.slope * meet) <= precision * abs(best):
            break
        ahead = (meet, -low.slope / rise * width, width / 2)[turn % 3]
        place = low.at + min(max(ahead, 0.0), width)
        if not low.at < place < high.at:
            place = low.at + width / 2
            if not low.at < place < high.at:
                break
        line = tangent(place)
        low, high = (line, high) if line.slope < 0 else (low, line)
    if low.slope >= 0:
        return low, low
    return (high, high) if high.slope <= 0 else (low, high)
