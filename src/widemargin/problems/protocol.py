"""What is optimised: a problem gives a two-sided bound on its optimum."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import inf
from typing import NamedTuple, Protocol

from widemargin.codec import record


@record()
class Certificate(NamedTuple):
    """Two-sided bound on the optimum of a problem, computed in float64: ``dual <= optimum <= primal``.

    Parameters
    ----------
    primal : float, default=inf
        The upper bound: what the model at hand attains.
    dual : float, default=-inf
        The lower bound, which no model can go below.

    Examples
    --------
    >>> from widemargin import Certificate
    >>> proof = Certificate(primal=2.0, dual=1.5)
    >>> proof.gap, proof.relative
    (0.5, 0.25)
    """

    primal: float = inf
    dual: float = -inf

    @property
    def gap(self) -> float:
        """``|primal - dual|``, an upper bound on the distance of either side to the optimum."""
        return abs(self.primal - self.dual)

    @property
    def relative(self) -> float:
        """``gap / |primal|``: 0 when both sides are 0, infinite when only the primal is."""
        if self.primal:
            return self.gap / abs(self.primal)
        return inf if self.gap else 0.0

    def tightened(self, primal: float = inf, dual: float = -inf) -> Certificate:
        """With other bounds of the same optimum, each taken if it is better."""
        return Certificate(min(self.primal, primal), max(self.dual, dual))

    def as_text(self, digits: int = 6) -> tuple[str, str]:
        """Lower and upper bound to ``digits`` digits, rounded outwards, so that the printed bounds hold too."""
        return rounded(self.dual, digits, ROUND_FLOOR), rounded(self.primal, digits, ROUND_CEILING)


class Problem(Protocol):
    """What is optimised, as formulas: a frozen dataclass of hyperparameters, without data or iterates.

    Every problem states its primal and dual in its docstring and evaluates each side from two numbers, which come from
    sums over the rows of all ranks. Any model gives an upper bound of the optimum, any feasible dual variables a lower
    one.

    Examples
    --------
    >>> from widemargin.problems.hinge_l2 import HingeL2
    >>> problem = HingeL2(C=2.0)
    >>> problem.primal_value(loss=1.0, size=4.0), problem.dual_value(gain=3.0, size=4.0)
    (4.0, 1.0)
    """

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if the problem has no solution for classes of these total weights."""

    def primal_value(self, loss: float, size: float) -> float:
        """The upper bound, from the loss of all rows and the size of the model, as the problem defines both."""

    def dual_value(self, gain: float, size: float) -> float:
        """The lower bound, from the linear term of feasible dual variables and the size of what they combine."""


def gap_as_text(relative: float, digits: int = 2) -> str:
    """A relative gap; how far it is over 1 means nothing, as no objective is negative.

    >>> gap_as_text(4.25e-4), gap_as_text(3.6e14)
    ('4.25e-04', '1 or more')
    """
    return f"{relative:.{digits}e}" if relative < 1 else "1 or more"


def rounded(value: float, digits: int, direction: str) -> str:
    """A number to ``digits`` digits, rounded in one of the directions of :mod:`decimal`; 17 are all."""
    if digits >= 17:
        return repr(float(value)).removesuffix(".0")
    nearest = Context(prec=digits, rounding=direction).create_decimal(repr(float(value)))
    return f"{float(nearest):.{digits}g}"
