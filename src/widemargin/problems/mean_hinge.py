"""The linear SVM as networks solve it: a penalty, and the mean hinge loss over rows that lie in many places.

    minimise over w    F(w) = alpha/2 ||w||^2  +  1/N sum_i m_i max(0, 1 - y_i w.x_i)
    maximise over a    D(a) = A/N - ||V||^2 / (2 alpha N^2),   A = sum_i a_i,   V = sum_i a_i y_i x_i,   0 <= a_i <= m_i

``m`` are multiplicities of rows and ``N`` their sum. An intercept is the weight of a constant feature, and so belongs
to the penalty, as in LIBLINEAR. Both sides are sums over rows: whoever knows a hinge sum at the same ``w``, and an
``A`` and a ``V`` of every place, knows both bounds; the A and V of different places need not be of the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MeanHinge:
    """``alpha`` is the weight of the penalty."""

    alpha: float

    def check(self, positive: float, negative: float) -> None:
        """Any data will do."""

    def primal_value(self, w: np.ndarray, hinge_sum: float, total: float) -> float:
        """``F(w)``, of the hinge losses of rows whose weights add up to ``total``."""
        return 0.5 * self.alpha * float(w @ w) + hinge_sum / total

    def dual_value(self, mass: float, pull: np.ndarray, total: float) -> float:
        """``D`` of the best multiple, up to 1, of the dual variables whose A and V are given."""
        linear = mass / total
        quadratic = float(pull @ pull) / (2 * self.alpha * total**2)
        scale = 1.0 if linear >= 2 * quadratic else linear / (2 * quadratic)
        return scale * linear - scale**2 * quadratic
