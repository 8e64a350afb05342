"""What solvers return: decision functions that are linear in the features, or in a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points


class Separator(NamedTuple):
    """A linear decision function ``x . coef + intercept``, and what else a problem reports of it."""

    coef: np.ndarray
    intercept: float
    report: dict[str, Any]


class KernelModel(NamedTuple):
    """A decision function ``sum_j coef_j k(x, z_j) + intercept``, and what else a problem reports of it."""

    kernel: Kernel  # with a number for its gamma
    points: Points
    coef: np.ndarray
    intercept: float
    report: dict[str, Any]
