"""Hard margin and nu-SVM as the distance between two (reduced) convex hulls.

With the rows of the two classes as A and B, their multiplicities as c, and one weight per row,

    minimise    || A' eta - B' xi ||
    subject to  sum(eta) = sum(xi) = 1,   0 <= eta_i <= cap * c_i,   0 <= xi_j <= cap * c_j.

Hard margin has no cap. The nu-SVM of scikit-learn and LIBSVM has cap = 2 / (nu * W), W the weight of all rows; the
paper [1] calls this cap "nu". The dual is the margin of a direction w, the signed distance between the two supporting
hyperplanes of the hulls,

    maximise    (min_eta w.A' eta - max_xi w.B' xi) / ||w||,

so that for every w and every feasible eta, xi: margin(w) <= optimum <= distance(eta, xi).

Hulls overlap if no direction has a positive margin. Feasible masses whose two points are t apart prove that no margin
is over t. Lengths have units, so this is asked of rows whose columns are scaled to about the same spread: a margin
below ``OVERLAP_SHARE`` of their radius is called none.

[1] Jin, Huang, Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from widemargin.problems._classes import require_both_classes, require_positive

_SMALLEST_RANGE = 1e-3  # entropy range where both hulls are points; solvers divide by it
OVERLAP_SHARE = 1e-12  # of the radius of equilibrated rows: a margin that is not told from none


class _HullDistance(ABC):
    @abstractmethod
    def cap(self, total_positive: float, total_negative: float) -> float:
        """Largest mass per unit of weight."""

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if a hull is empty for classes of these total weights."""
        self.cap(total_positive, total_negative)

    def primal_value(self, loss: float, size: float) -> float:
        """The distance ``size`` between two points of the hulls; rows have no loss, which is 0."""
        return loss + size

    def dual_value(self, gain: float, size: float) -> float:
        """The margin of w, from ``min_eta w.A' eta - max_xi w.B' xi`` and ``||w||``."""
        return gain / size if size > 0 else -math.inf

    def entropy_range(self, total_positive: float, total_negative: float) -> float:
        """How far the entropies of eta and xi together can be from their values at the start."""
        cap = self.cap(total_positive, total_negative)
        # A cap over 1 binds no row; at the largest nu a hull is a point and its entropy cannot move.
        return max(sum(math.log(min(1.0, cap) * total) for total in (total_positive, total_negative)), _SMALLEST_RANGE)


@dataclass(frozen=True)
class HardMargin(_HullDistance):
    """Distance between two convex hulls; weights matter only as present or absent."""

    def cap(self, total_positive: float, total_negative: float) -> float:
        return math.inf


@dataclass(frozen=True)
class NuMargin(_HullDistance):
    """Distance between two reduced convex hulls; ``nu`` is scikit-learn's, a share of the rows.

    ``"auto"`` stands for the nu of the C-SVM at C = 1, which :class:`widemargin.solvers.nu_of_c.NuOfC` finds.
    """

    nu: float | Literal["auto"] = "auto"

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if a hull is empty for classes of these total weights."""
        if self.nu == "auto":
            require_both_classes(total_positive, total_negative)
        else:
            self.cap(total_positive, total_negative)

    def resolve_nu(self, total_positive: float, total_negative: float) -> float:
        """The value of nu for classes of these weights; raises ValueError, which states the bound, beyond it."""
        largest = largest_nu(total_positive, total_negative)
        if self.nu == "auto":
            raise TypeError("nu='auto' has a value only once a C-SVM is solved: wrap the solver in NuOfC.")
        # A nu computed as the bound itself may be above it by a rounding error.
        if not 0 < self.nu <= largest * (1 + 1e-12):
            raise ValueError(
                f"nu={self.nu:g} is infeasible: with a class of weight {total_positive:g} against one of weight "
                f"{total_negative:g} it must lie in (0, {largest:g}]. Lower nu, or use nu='auto'."
            )
        require_positive("nu", self.nu, "the rows")
        return min(self.nu, largest)

    def cap(self, total_positive: float, total_negative: float) -> float:
        return 2 / (self.resolve_nu(total_positive, total_negative) * (total_positive + total_negative))


def largest_nu(total_positive: float, total_negative: float) -> float:
    """The largest nu for which both reduced hulls are not empty."""
    return 2 * min(total_positive, total_negative) / (total_positive + total_negative)
