"""What a problem owes to those who solve it: a two-sided bound on its optimum."""

from __future__ import annotations

from typing import NamedTuple


class Certificate(NamedTuple):
    """Two-sided bound on the optimum of a problem, computed in float64: ``dual <= optimum <= primal``.

    Parameters
    ----------
    primal : float
        The upper bound: what the model at hand attains.
    dual : float
        The lower bound, which no model can go below.

    Examples
    --------
    >>> from widemargin import Certificate
    >>> proof = Certificate(primal=2.0, dual=1.5)
    >>> proof.gap, proof.relative
    (0.5, 0.25)
    """

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """``|primal - dual|``, an upper bound on the distance of either side to the optimum."""
        return abs(self.primal - self.dual)

    @property
    def relative(self) -> float:
        """``gap / |primal|``: 0 when both sides are 0, infinite when only the primal is."""
        if self.primal:
            return self.gap / abs(self.primal)
        return float("inf") if self.gap else 0.0
