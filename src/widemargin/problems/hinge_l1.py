"""The 1-norm SVM: hinge loss with the sum of absolute coefficients, and an intercept that is not regularised.

With rows x_i, labels y_i in {-1, +1}, multiplicities m_i and M = sum_i m_i,

    minimise    (1 / M) sum_i m_i max(0, 1 - y_i (x_i . beta + b)) + alpha ||beta||_1

and its dual, a linear program like it,

    maximise    sum_i a_i
    subject to  0 <= a_i <= m_i / M,   |c_j| <= alpha  where  c_j = sum_i a_i y_i x_ij,
                and sum_i a_i y_i = 0 if there is an intercept,

so that every beta and b give an upper bound of the optimum, every feasible a (a mass on each row) a lower one. At the
optimum a_i is 0 beyond the margin and m_i / M within it, and c_j = alpha sign(beta_j) wherever beta_j is not 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from widemargin.problems._classes import Balanced, require_both_classes, require_positive


@dataclass(frozen=True)
class HingeL1(Balanced):
    """Mean hinge loss with a 1-norm; ``alpha`` multiplies the norm, weights are multiplicities.

    ``alpha="auto"`` is :func:`auto_alpha` of the data, which :meth:`resolved` puts in its place.
    """

    alpha: float | Literal["auto"] = "auto"
    fit_intercept: bool = True

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if the problem has no solution for classes of these total weights."""
        if not isinstance(self.alpha, str):
            require_positive("alpha", self.alpha, "the norm")
        elif self.alpha != "auto":
            raise ValueError(f'alpha={self.alpha!r} is unknown: it must be a number over 0, or "auto".')
        require_both_classes(total_positive, total_negative)

    def resolved(self, total_weight: float, squares: np.ndarray) -> HingeL1:
        """The problem with a number for alpha, from the weight of all rows and the spread of each column.

        ``squares`` are the variances of the columns if there is an intercept, which takes up their means, else their
        mean squares.
        """
        if self.alpha != "auto":
            return self
        return replace(self, alpha=auto_alpha(total_weight, len(squares)) * typical_scale(squares))

    @property
    def penalty(self) -> float:
        assert not isinstance(self.alpha, str), "alpha is a number once the problem is resolved"
        return self.alpha

    def caps(self, weight: np.ndarray, total_weight: float) -> np.ndarray:
        """The largest mass of each row."""
        return weight / total_weight

    def loss(
        self, scores: np.ndarray, intercept: float, y: np.ndarray, caps: np.ndarray, slack_error: float = 0.0
    ) -> float:
        """The mean hinge loss, from the scores ``x_i . beta`` of all rows; slacks may be larger by ``slack_error``."""
        return float((caps * np.maximum(1 - y * (scores + intercept) + slack_error, 0)).sum())

    def primal_value(self, loss: float, size: float) -> float:
        """The primal objective, from the mean hinge loss and ``||beta||_1``."""
        return loss + self.penalty * size

    def best_intercept(self, scores: np.ndarray, y: np.ndarray, caps: np.ndarray) -> float:
        """The intercept of least loss for given scores, 0 if there is none; the middle where an interval is best.

        The loss is convex and linear between the places ``y_i - score_i``. Left of all of them its slope is minus the
        weight of the positive class, and at each it grows by the row's own weight.
        """
        if not self.fit_intercept:
            return 0.0
        return lowest_place(y - scores, caps, -float(caps[y > 0].sum()), 1e-13 * float(caps.sum()))[0]

    def feasible(self, masses: np.ndarray, y: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Masses within their caps and balanced between the classes, near the given ones of all rows.

        They become feasible once they are divided by their :meth:`excess`.
        """
        within = np.clip(masses, 0.0, caps)
        positive = y > 0
        of_positive, of_negative = self.balance_factors(float(within[positive].sum()), float(within[~positive].sum()))
        return within * np.where(positive, of_positive, of_negative)

    def excess(self, size: float) -> float:
        """The factor by which the largest ``|c_j|`` exceeds alpha, at least 1."""
        return max(1.0, size / self.penalty)

    def dual_value(self, gain: float, size: float) -> float:
        """The dual objective of masses divided by their excess, from their sum and the largest ``|c_j|``."""
        return gain / self.excess(size)


def lowest_place(places: np.ndarray, rises: np.ndarray, slope: float, rounding: float) -> tuple[float, bool]:
    """Where a convex function that is linear between ``places`` is least; the middle where an interval is.

    Its slope left of them is ``slope``, and rises at each. Whether it is least there, with an interval all of which is
    between places, is returned too.
    """
    order = np.argsort(places, kind="stable")
    slopes = slope + np.cumsum(rises[order])
    first = int(np.argmax(slopes >= -rounding))
    last = first + 1 if abs(slopes[first]) <= rounding and first + 1 < len(places) else first
    is_inside = slope < -rounding and slopes[-1] > rounding
    return float(places[order[first]] + places[order[last]]) / 2, is_inside


def largest(correlation: np.ndarray) -> float:
    """The largest ``|c_j|``, 0 without columns.

    For the masses that go with beta = 0 it is an alpha from which on beta = 0 is optimal; the least such alpha if those
    masses are unique, see :func:`widemargin.solvers.column_generation.alpha_max`.
    """
    return float(np.abs(correlation).max(initial=0.0))


def auto_alpha(total_weight: float, n_features: int) -> float:
    """``0.7 sqrt(log p / n)``, about what cross-validation chooses for columns of unit scale.

    Noise in a column of unit scale has correlations of about ``1 / sqrt(n)`` with the masses, the largest among p of
    them ``sqrt(2 log p)`` times as much at most; n is the weight of all rows. One feature counts as two: there is
    nothing to choose from, but alpha stays over 0.
    """
    return 0.7 * math.sqrt(math.log(max(n_features, 2)) / total_weight)


def typical_scale(squares: np.ndarray) -> float:
    """The median scale of the columns of which the squares are given, those of zero left out.

    Correlations of noise grow with the scale of their column, and so must alpha: X times ten and alpha times ten is the
    same model. One alpha serves all columns, and for columns of unlike scale there is no right one; the median is not
    moved by a few large columns, nor by columns of zeros. On nine public sets as they come, counts and binary ones
    among them, its held-out error was the least or close to it, where means of scales or squares gave an alpha far
    too large (spambase .09 against .27 to .34, relathe .15 against .18 to .42). All columns constant: 1, and nothing
    depends on it.
    """
    present = squares[squares > 0]
    return float(np.sqrt(np.median(present))) if len(present) else 1.0
