"""Worst-case bounds on float64 rounding, for which every certificate allows.

One operation on float64 numbers has a relative error of at most ``UNIT``, and after k of them in any order, fused or
not, at most ``gamma(k)`` (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). A sum of k products
therefore differs from the exact one by at most ``gamma(k)`` times the sum of the sizes of the products, whatever order
BLAS takes them in. The bound fails only where numbers underflow: rows and weights are brought into a range where they
do not, by powers of two, which are exact.
"""

from __future__ import annotations

import math

import numpy as np

UNIT = 2.0**-53  # relative error of one rounding
PAIRWISE = 64  # at most so many additions are on the way of a number to the result of numpy.sum


def gamma(k: float) -> float:
    """Largest relative error of a product of k factors ``1 + d`` with ``|d| <= UNIT``."""
    if k * UNIT >= 0.5:
        return math.inf
    return k * UNIT / (1 - k * UNIT)


def careful_sum(values: np.ndarray) -> tuple[float, float]:
    """The sum in the widest format of the machine, and a bound on its error relative to the sum of sizes."""
    unit = float(np.finfo(np.longdouble).eps)
    return float(values.sum(dtype=np.longdouble)), PAIRWISE * unit
