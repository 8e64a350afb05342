"""Hard margin and nu-SVM as the distance between two (reduced) convex hulls.

With the rows of the two classes as A and B, their multiplicities as c, and one weight per row,

    minimise    || A' eta - B' xi ||
    subject to  sum(eta) = sum(xi) = 1,   0 <= eta_i <= cap * c_i,   0 <= xi_j <= cap * c_j.

Hard margin has no cap. The nu-SVM of scikit-learn and LIBSVM has cap = 2 / (nu * W), W the weight of all rows; the
paper [1] calls this cap "nu". The dual is the margin of a direction w, the signed distance between the two supporting
hyperplanes of the hulls,

    maximise    (min_eta w.A' eta - max_xi w.B' xi) / ||w||,

so that for every w and every feasible eta, xi: margin(w) <= optimum <= distance(eta, xi).

[1] Jin, Huang, Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

_SMALLEST_RANGE = 1e-3  # where a hull is a point there is no entropy to lose; solvers divide by it
AUTO_NU_SHARE = 0.85  # the paper's alpha: this share of the largest feasible nu usually keeps the hulls apart


@dataclass(frozen=True)
class HardMargin:
    """Distance between two convex hulls; weights matter only as present or absent."""

    def cap(self, total_positive: float, total_negative: float) -> float:
        """Largest mass per unit of weight: none."""
        return math.inf

    def check(self, total_positive: float, total_negative: float) -> None:
        """Refuse what is infeasible for classes of these weights."""
        self.cap(total_positive, total_negative)

    def entropy_range(self, total_positive: float, total_negative: float) -> float:
        """How far the entropies of eta and xi together can be from their values at the start."""
        return max(math.log(total_positive) + math.log(total_negative), _SMALLEST_RANGE)


@dataclass(frozen=True)
class NuMargin:
    """Distance between two reduced convex hulls; ``nu`` is scikit-learn's, a share of the rows, or ``"auto"``."""

    nu: float | Literal["auto"] = "auto"

    def resolve_nu(self, total_positive: float, total_negative: float) -> float:
        """The value of nu for classes of these weights; beyond its bound it is an error that states the bound."""
        largest = largest_nu(total_positive, total_negative)
        if self.nu == "auto":
            return AUTO_NU_SHARE * largest
        # A nu computed as the bound itself may lie above it by a rounding.
        if not 0 < self.nu <= largest * (1 + 1e-12):
            raise ValueError(
                f"nu={self.nu:g} is infeasible: with a class of weight {total_positive:g} against one of weight "
                f"{total_negative:g} it must lie in (0, {largest:g}]. Lower nu, or use nu='auto'."
            )
        return min(self.nu, largest)

    def cap(self, total_positive: float, total_negative: float) -> float:
        """Largest mass per unit of weight."""
        return 2 / (self.resolve_nu(total_positive, total_negative) * (total_positive + total_negative))

    def check(self, total_positive: float, total_negative: float) -> None:
        """Refuse what is infeasible for classes of these weights."""
        self.cap(total_positive, total_negative)

    def entropy_range(self, total_positive: float, total_negative: float) -> float:
        """How far the entropies of eta and xi together can be from their values at the start."""
        cap = self.cap(total_positive, total_negative)
        # A cap over 1 binds nobody; at the largest nu a hull is a point and its entropy cannot move.
        return max(sum(math.log(min(1.0, cap) * total) for total in (total_positive, total_negative)), _SMALLEST_RANGE)


def largest_nu(total_positive: float, total_negative: float) -> float:
    """The largest nu for which both reduced hulls are not empty."""
    return 2 * min(total_positive, total_negative) / (total_positive + total_negative)
