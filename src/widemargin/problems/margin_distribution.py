"""The optimal margin distribution machine: margins near 1, short ones and long ones both at a price.

With rows phi_i, labels y_i in {-1, +1}, multiplicities m_i of sum M, and margins F_i = y_i w.phi_i,

    minimise over w   0.5 ||w||^2 + sum_i steep_i / 2 [ (1 - theta - F_i)+^2 + v (F_i - 1 - theta)+^2 ]

where steep_i = m_i C / (M (1 - theta)^2). Its dual has one free variable for each row, with w = sum_i g_i y_i phi_i:

    maximise over g   sum_i [ (1 - theta) g_i+ - (1 + theta) g_i- - g_i+^2 / (2 steep_i) - g_i-^2 / (2 v steep_i) ]
                      - 0.5 ||w||^2

g_i = steep_i [ (1 - theta - F_i)+ - v (F_i - 1 - theta)+ ] at the optimum, where both are equal. Every w bounds the
optimum from above and every g from below, as long as g_i- = 0 where v = 0. An intercept is a constant feature of 1 and
is regularised.

Reference: Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, 2023.

    here    theta        v                   C         g             steep_i              primal, dual
    there   theta        v                   lambda    zeta - beta   m_i / (M c v)        p, -d
    name    deadband     overshoot_weight    C
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from widemargin.compiled import margin_passes
from widemargin.problems._classes import require_both_classes, require_positive


@dataclass(frozen=True)
class MarginDistribution:
    """Squared losses of margins outside of ``1 - deadband`` to ``1 + deadband``; ``C`` multiplies them.

    Weights are multiplicities. ``overshoot_weight`` is the price of long margins, by that of short ones. Sums
    over rows are those of the rows at hand: whoever holds only some adds them up.
    """

    C: float
    deadband: float = 0.2
    overshoot_weight: float = 0.5
    fit_intercept: bool = True

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if the problem has no solution for classes of these total weights."""
        require_positive("C", self.C, "the loss")
        if not 0 <= self.deadband < 1:
            raise ValueError(f"deadband={self.deadband:g} leaves no margin to aim for: it must lie in [0, 1).")
        if self.overshoot_weight != 0:
            require_positive("overshoot_weight", self.overshoot_weight, "large margins")
        require_both_classes(total_positive, total_negative)

    @property
    def constant(self) -> float:
        """What is added to every kernel value: the product of two constant features."""
        return 1.0 if self.fit_intercept else 0.0

    @property
    def shape(self) -> tuple[float, float, float]:
        """The least and the largest margin that cost nothing, and the price of those beyond."""
        return 1.0 - self.deadband, 1.0 + self.deadband, float(self.overshoot_weight)

    def steep(self, weight: np.ndarray, total_weight: float) -> np.ndarray:
        """The second derivative of the loss of every row whose margin is short."""
        return weight * (self.C / (total_weight * (1.0 - self.deadband) ** 2))

    def loss(self, margin: np.ndarray, steep: np.ndarray) -> float:
        return float(margin_passes.loss_sum(margin, steep, *self.shape))

    def primal_value(self, loss: float, size: float) -> float:
        """The primal objective, from the losses of all rows and ``||w||^2``."""
        return 0.5 * size + loss

    def dual_terms(self, g: np.ndarray, steep: np.ndarray) -> tuple[float, float]:
        """The linear and the quadratic part of the dual objective, without that of ``||w||^2``."""
        low, high, v = self.shape
        up, down = np.maximum(g, 0.0), np.maximum(-g, 0.0)
        linear = low * float(up.sum()) - high * float(down.sum())
        with np.errstate(divide="ignore", invalid="ignore"):  # no row of no weight has a g
            square = np.where(g > 0, up**2 / steep, down**2 / (v * steep))
        return linear, float(square[g != 0].sum())

    def dual_value(self, gain: float, size: float) -> float:
        """The dual objective of the best multiple of g, from its linear part and the quadratic one with ``||w||^2``.

        Along the multiples of g the objective is a parabola.
        """
        return 0.0 if gain <= 0 or not size < math.inf else gain * gain / (2 * size)

    def best_dual(self, margin: np.ndarray, steep: np.ndarray) -> np.ndarray:
        """The g that stationarity asks for at given margins."""
        g = np.empty(len(margin))
        margin_passes.pulls(margin, steep, *self.shape, g)
        return g

    def bend(self, margin: np.ndarray, steep: np.ndarray) -> np.ndarray:
        """The second derivative of every loss; 0 in the deadband, ends included."""
        low, high, v = self.shape
        return steep * ((margin < low) + v * (margin > high))

    def residuals(self, g: np.ndarray, margin: np.ndarray, steep: np.ndarray) -> np.ndarray:
        """How far every row is from the optimality conditions ((11) and (12) of the paper), in units of the margin."""
        low, high, v = self.shape
        with np.errstate(divide="ignore", invalid="ignore"):
            slack = np.where(g > 0, g / steep, 0.0)
            over = np.where(g < 0, -g / (v * steep), 0.0)
        short = np.abs(np.maximum(low - margin, 0.0) - slack)
        beyond = np.abs(np.maximum(margin - high, 0.0) - over)
        return np.where(steep > 0, np.maximum(short, beyond if v > 0 else 0.0), 0.0)
