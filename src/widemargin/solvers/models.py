"""What solvers return: decision functions that are linear in the features, or in a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points


def _check_separator(model: Separator) -> None:
    if model.coef.ndim != 1 or model.coef.dtype.kind != "f":
        raise ModelFileError("coefficients of a separator are not a vector of floats")


def _check_expansion(model: KernelModel) -> None:
    if model.coef.shape != (len(model.points),) or model.coef.dtype.kind != "f":
        raise ModelFileError("a kernel model does not have one coefficient for each of its rows")


@record(check=_check_separator)
class Separator(NamedTuple):
    """A linear decision function ``x @ coef + intercept``.

    Parameters
    ----------
    coef : array of shape (n_features,)
        The coefficients.
    intercept : float
        The intercept.
    report : dict
        Further numbers that the solver reports.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.api import Separator
    >>> Separator(np.array([1.0, -2.0]), 0.5, {}).intercept
    0.5
    """

    coef: np.ndarray
    intercept: float
    report: dict[str, Any]


@record(check=_check_expansion)
class KernelModel(NamedTuple):
    """A decision function ``sum_j coef_j k(x, z_j) + intercept``.

    Parameters
    ----------
    kernel : Kernel
        The kernel function, with a number for its gamma.
    points : Points
        The support vectors z_j.
    coef : array of shape (n_points,)
        Their coefficients.
    intercept : float
        The intercept.
    report : dict
        Further numbers that the solver reports.

    Examples
    --------
    >>> from widemargin.api import KernelModel
    >>> KernelModel._fields
    ('kernel', 'points', 'coef', 'intercept', 'report')
    """

    kernel: Kernel
    points: Points
    coef: np.ndarray
    intercept: float
    report: dict[str, Any]


def shared_support(models: Sequence[KernelModel]) -> tuple[np.ndarray, np.ndarray]:
    """The ascending row numbers of the support vectors of all models; their coefficients, one row per model."""
    support = np.unique(np.concatenate([model.points.numbers for model in models]))
    coef = np.zeros((len(models), len(support)))
    for k, model in enumerate(models):
        coef[k, np.searchsorted(support, model.points.numbers)] = model.coef
    return support, coef


def shared_points(models: Sequence[KernelModel], support: np.ndarray) -> Points:
    """The support vectors of all models in ascending order, each copied from the first model that has it."""
    if len(models) == 1 and np.array_equal(models[0].points.numbers, support):
        return models[0].points
    is_missing = np.ones(len(support), dtype=bool)
    parts = []
    for model in models:
        where = np.searchsorted(support, model.points.numbers)
        is_new = is_missing[where]
        is_missing[where] = False
        parts.append(model.points[is_new])
    points = Points.joined(parts)
    return points[np.argsort(points.numbers)]
