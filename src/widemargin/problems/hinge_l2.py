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

from widemargin.compiled.hinge import AT, found, go_on, hinge_sums, lowest_of_planes, search, start_search
from widemargin.data.pieces import elementwise, row_pieces, sum_of_pieces
from widemargin.problems._classes import Balanced, require_both_classes, require_positive
from widemargin.rounding import UNIT, gamma

_FEW_ROWS = 4096  # cost less to look at than planes do to be searched
_MAX_PLANES = 200
_MAX_SCALE = 1e9  # of the minimum of a plane, which is found only roughly beyond


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
        return elementwise(np.multiply, weight, self.C)

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
        is_on_host = sums is hinge_sums
        if is_on_host and len(row_pieces(len(scores))) > 1:
            sums = _hinge_sums_of_many

        def look(scale: float, intercept: float) -> np.ndarray:
            return total(sums(scores, y, weight, scale, intercept))

        state = start_search(self.C, squared_norm, near, self.fit_intercept, fixed_scale, precision)
        local = sums(scores, y, weight, *state[AT])
        everywhere = total(local)
        if is_on_host and everywhere is local and len(scores) <= _FEW_ROWS:  # no other rank has rows
            if go_on(state, *everywhere):
                search(state, scores, y, weight)
            value, scale, intercept = found(state)
        elif self.fit_intercept and not fixed_scale and self.C * abs(everywhere[1]) < _MAX_SCALE * squared_norm:
            value, scale, intercept = self._lowest(look, everywhere, squared_norm, near, precision)
        else:
            while go_on(state, *everywhere):
                everywhere = look(*state[AT])
            value, scale, intercept = found(state)
        # Not while searching: where several intercepts are best, none is to be preferred for being small.
        if rounding is not None:
            value = rounding.largest_value(value, self.C, intercept)
        return PrimalPoint(value, scale, intercept)

    def bound_at(
        self,
        point: PrimalPoint,
        scores: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        squared_norm: float,
        rounding: Rounding,
    ) -> float:
        """An upper bound on the exact objective at a point, from scores on one rank, as in :meth:`primal_point`."""
        loss = hinge_sums(scores - y * rounding.score_error, y, weight, point.scale, point.intercept)[0]
        value = self.primal_value(float(loss), point.scale**2 * squared_norm * (1 + 8 * UNIT))
        return rounding.largest_value(value, self.C, point.intercept)

    def _lowest(
        self,
        look: Callable[[float, float], np.ndarray],
        sums: np.ndarray,
        squared_norm: float,
        near: float,
        precision: float,
    ) -> PrimalPoint:
        """:meth:`primal_point` in few looks at the rows, the first of which gave ``sums``: Kelley's cutting planes."""
        planes, best, step = np.empty((_MAX_PLANES, 3)), PrimalPoint(math.inf, 1.0, near), 0.1
        scale, intercept, least, most = 1.0, near, math.inf, -math.inf
        for k in range(_MAX_PLANES):
            loss, by_scale, by_intercept = map(float, sums)
            planes[k] = loss - by_scale * scale - by_intercept * intercept, by_scale, by_intercept
            best = min(best, PrimalPoint(self.primal_value(loss, scale**2 * squared_norm), scale, intercept))
            least, most = min(least, by_intercept), max(most, by_intercept)
            if least > 0.0 or most < 0.0:  # planes that fall to one side have no minimum
                intercept, step = intercept - math.copysign(step, by_intercept), 4.0 * step
            else:
                numbers = (self.C, squared_norm, best.intercept, precision / 4.0)
                bound, ahead, at = lowest_of_planes(planes[: k + 1], *numbers)
                if best.value - bound <= precision * abs(best.value):
                    break
                # Few planes may have their minimum very far away.
                part = min(1.0, 4.0 * max(best.scale, 1.0) / max(abs(ahead - best.scale), 1.0))
                scale = best.scale + part * (ahead - best.scale)
                intercept = best.intercept + part * (at - best.intercept)
            sums = look(scale, intercept)
        if 0.5 * best.scale**2 * squared_norm <= precision * abs(best.value):  # w may be only rounding
            without = self.primal_value(float(look(0.0, best.intercept)[0]), 0.0)
            if without <= best.value * (1 + 4 * UNIT):
                return PrimalPoint(without, 0.0, best.intercept)
        return best


def _hinge_sums_of_many(
    scores: np.ndarray, y: np.ndarray, weight: np.ndarray, scale: float, intercept: float
) -> np.ndarray:
    """:func:`hinge_sums` on all cores."""
    return sum_of_pieces(lambda rows: hinge_sums(scores[rows], y[rows], weight[rows], scale, intercept), len(scores))
