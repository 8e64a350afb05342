"""What is optimised: a problem gives a two-sided bound on its optimum."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NamedTuple, Protocol

from widemargin.codec import record


@record()
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

    def as_text(self, digits: int = 6) -> tuple[str, str]:
        """Lower and upper bound to so many digits, rounded outwards: what is printed is proved, too."""
        return rounded(self.dual, digits, ROUND_FLOOR), rounded(self.primal, digits, ROUND_CEILING)


class Problem(Protocol):
    """What is optimised, as formulas: a frozen dataclass of hyper-parameters, without data or iterates.

    Every problem states its primal and dual in its docstring and evaluates both sides from two numbers, which are sums
    over rows and so add up over ranks. Any model gives an upper bound of the optimum, any feasible dual variables a
    lower one.
    """

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if the problem has no solution for classes of these total weights."""

    def primal_value(self, loss: float, size: float) -> float:
        """The upper bound, from the loss of all rows and the size of the model, as the problem defines both."""

    def dual_value(self, gain: float, size: float) -> float:
        """The lower bound, from the linear term of feasible dual variables and the size of what they combine."""


def rounded(value: float, digits: int, direction: str) -> str:
    """A number to so many digits, rounded in one of the directions of :mod:`decimal`."""
    nearest = Context(prec=digits, rounding=direction).create_decimal(repr(float(value)))
    return f"{float(nearest):.{digits}g}"
