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


@dataclass(frozen=True)
class HingeL1:
    """Mean hinge loss with a 1-norm; ``alpha`` multiplies the norm, weights are multiplicities.

    ``alpha="auto"`` is :func:`auto_alpha` of the data, which :meth:`resolved` puts in its place.
    """

    alpha: float | Literal["auto"] = "auto"
    fit_intercept: bool = True

    def check(self, total_positive: float, total_negative: float) -> None:
        """Refuse what has no answer, given the weight of each class."""
        if isinstance(self.alpha, str):
            if self.alpha != "auto":
                raise ValueError(f'alpha={self.alpha!r} is not known: it must be a number over 0, or "auto".')
        elif not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha={self.alpha:g} does not weigh the norm: it must be positive and finite.")
        for total, name in ((total_positive, "positive"), (total_negative, "negative")):
            if not total > 0:
                raise ValueError(f"The {name} class has weight {total:g}: both classes need a weight over 0.")

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
        """Alpha as a number."""
        assert not isinstance(self.alpha, str), "alpha is a number once the problem is resolved"
        return self.alpha

    def caps(self, weight: np.ndarray, total_weight: float) -> np.ndarray:
        """The largest mass of each row."""
        return weight / total_weight

    # -- primal

    def primal_value(self, scores: np.ndarray, intercept: float, y: np.ndarray, caps: np.ndarray, norm: float) -> float:
        """The objective, from the scores ``x_i . beta`` of all rows and ``||beta||_1``."""
        return float(caps @ np.maximum(1 - y * (scores + intercept), 0)) + self.penalty * norm

    def best_intercept(self, scores: np.ndarray, y: np.ndarray, caps: np.ndarray) -> float:
        """The intercept of least loss for given scores, 0 if there is none; the middle where an interval is best.

        The loss is convex and linear between the places ``y_i - score_i``. Left of all of them its slope is minus the
        weight of the positive class, and at each it grows by the row's own weight.
        """
        if not self.fit_intercept:
            return 0.0
        places = y - scores
        order = np.argsort(places, kind="stable")
        slope = np.cumsum(caps[order]) - caps[y > 0].sum()
        rounding = 1e-13 * float(caps.sum())
        first = int(np.argmax(slope >= -rounding))
        last = first + 1 if abs(slope[first]) <= rounding and first + 1 < len(y) else first
        return float(places[order[first]] + places[order[last]]) / 2

    # -- dual

    def balance_factors(self, sum_positive: float, sum_negative: float) -> tuple[float, float]:
        """What to multiply the masses of each class by for ``sum_i a_i y_i = 0``; at most 1, so that caps hold."""
        if not self.fit_intercept or sum_positive == sum_negative:
            return 1.0, 1.0
        if sum_positive > sum_negative:
            return sum_negative / sum_positive, 1.0
        return 1.0, sum_positive / sum_negative

    def feasible(self, masses: np.ndarray, y: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Masses within their caps and balanced between the classes, near the given ones of all rows.

        What is left to be feasible is ``|c_j| <= alpha``, for which they are divided by :meth:`excess`.
        """
        within = np.clip(masses, 0.0, caps)
        positive = y > 0
        of_positive, of_negative = self.balance_factors(float(within[positive].sum()), float(within[~positive].sum()))
        return within * np.where(positive, of_positive, of_negative)

    def excess(self, correlation: np.ndarray) -> float:
        """How far the correlations c are beyond alpha, at least 1."""
        return max(1.0, float(np.abs(correlation).max(initial=0.0)) / self.penalty)

    def dual_value(self, mass: float, correlation: np.ndarray) -> float:
        """The objective of masses once feasible, from their sum and their correlations with the columns."""
        return mass / self.excess(correlation)

    def alpha_bound(self, correlation: np.ndarray) -> float:
        """An alpha for which beta = 0 is best, from the correlations of the even masses (the caps, balanced).

        The least such alpha if there is no intercept or if both classes weigh the same: then these masses are the only
        ones. Otherwise it may be less, see :func:`widemargin.solvers.column_generation.alpha_max`.
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
