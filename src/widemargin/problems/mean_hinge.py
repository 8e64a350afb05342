"""The linear SVM as networks solve it: a penalty and the mean hinge loss over rows that many peers hold.

    minimise over w    F(w) = alpha/2 ||w||^2  +  1/N sum_i m_i max(0, 1 - y_i w.x_i)
    maximise over a    D(a) = A/N - ||V||^2 / (2 alpha N^2),   A = sum_i a_i,   V = sum_i a_i y_i x_i,   0 <= a_i <= m_i

``m`` are multiplicities of rows and ``N`` their sum. An intercept is the weight of a constant feature and is penalised,
as in LIBLINEAR. Both bounds follow from sums over rows: the hinge losses of all peers at one ``w``, and an ``A`` and a
``V`` of every peer, which may date from different times.
"""

from __future__ import annotations

from dataclasses import dataclass

from widemargin.problems._classes import require_positive


@dataclass(frozen=True)
class MeanHinge:
    """Mean hinge loss with a squared norm; ``alpha`` multiplies the norm."""

    alpha: float

    def __post_init__(self) -> None:
        require_positive("alpha", self.alpha, "the norm")

    def check(self, total_positive: float, total_negative: float) -> None:
        """Accept any classes: also one alone, or none, has a solution."""

    def primal_value(self, loss: float, size: float) -> float:
        """``F(w)``, from the mean hinge loss and ``||w||^2``."""
        return 0.5 * self.alpha * size + loss

    def dual_value(self, gain: float, size: float) -> float:
        """``D`` of the best multiple, at most 1, of dual variables with ``A/N`` and ``||V||^2 / N^2``."""
        quadratic = size / (2 * self.alpha)
        scale = 1.0 if gain >= 2 * quadratic else gain / (2 * quadratic)
        return scale * gain - scale**2 * quadratic
