"""Worst-case errors of kernel values that a CPU computes in float32.

A kernel of distances is ``exp(-t)``: an error d of the exponent is a relative error ``exp(d) - 1`` of the value,
however small that is. The squared distance is ``|x|^2 + |z|^2 - 2 x.z``. Only entries of x that are not zero take part
in the product, since a sum with zero is not rounded: k of them are at most k roundings on the way of any term. Rounding
the entries of both rows to float32 counts as two more, their norms as three, sum and difference as two, the factor
gamma as two. So the exponent is wrong by at most ``gamma UNIT (k + 9) (|x| + |z|)^2``, but for terms of higher order.

1-norm distances are sums of at most as many terms as there are features, each of ``|x_j| + |z_j|`` or less; sparse rows
take terms of z away again, which doubles the sum.
"""

from __future__ import annotations

import numpy as np

from widemargin.kernels.functions import Kernel

UNIT = 2.0**-24  # relative error of one rounding
EXP_ERROR = 8 * UNIT  # of an exponential, relative
_SMALLEST = 2.0**-126  # smaller values may be anything below it
_EXTRA_ROUNDINGS = 12
_MAX_ERROR = 0.1  # relative; beyond it values are taken as unknown


def relative_error(
    kernel: Kernel, n_entries: np.ndarray, lengths: np.ndarray, longest: float, width: int
) -> np.ndarray:
    """By how much computed values of each row with any other may be wrong, relative to the computed value.

    ``lengths`` are the norms of these rows and ``longest`` is the largest norm of all others, as they are multiplied.
    """
    if kernel.name == "rbf":
        exponents = float(kernel.gamma) * (n_entries + _EXTRA_ROUNDINGS) * UNIT * (lengths + longest) ** 2
    else:
        roundings = 2 * n_entries + _EXTRA_ROUNDINGS
        exponents = 2 * float(kernel.gamma) * roundings * UNIT * np.sqrt(width) * (lengths + longest)
    error = np.expm1(np.minimum(1.01 * exponents, 1.0)) * (1 + EXP_ERROR) + EXP_ERROR  # .01: (1 + UNIT)^k - 1 > k UNIT
    return np.where(error <= _MAX_ERROR, error / (1 - np.minimum(error, _MAX_ERROR)), np.inf)


def of_cosine(width: int) -> float:
    """By how much a product of normalised rows may be wrong."""
    return 1.01 * (2 * width + _EXTRA_ROUNDINGS) * UNIT if width * UNIT < 1e-3 else np.inf


def absolute_error(mass: float) -> float:
    """What values too small for float32 add to the error of a sum with coefficients of this mass."""
    return _SMALLEST * mass
