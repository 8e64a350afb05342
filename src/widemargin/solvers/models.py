"""What solvers return: decision functions that are linear in the features, or in a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points, TakenPoints


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
    support, places = _distinct([model.points for model in models])
    coef = np.zeros((len(models), len(support)))
    lines = np.repeat(np.arange(len(models)), [len(model.coef) for model in models])
    coef[lines, places] = np.concatenate([model.coef for model in models])
    return support, coef


def _distinct(several: Sequence[Points]) -> tuple[np.ndarray, np.ndarray]:
    """The ascending row numbers of all of these points, and the places of theirs, one after the other, among them."""
    numbers = np.concatenate([points.numbers for points in several])
    is_there = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=bool)
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]


def shared_points(models: Sequence[KernelModel], support: np.ndarray) -> Points:
    """The support vectors of all models in ascending order, each copied from the first model that has it."""
    if len(models) == 1 and np.array_equal(models[0].points.numbers, support):
        return models[0].points
    taken = _taken_points(models)
    if taken:
        where = np.searchsorted(support, np.concatenate([each.numbers for each in taken]))
        return Points(_rows_of(taken, where, len(support)), support)
    is_missing = np.ones(len(support), dtype=bool)
    parts = []
    for model in models:
        where = np.searchsorted(support, model.points.numbers)
        is_new = is_missing[where]
        is_missing[where] = False
        parts.append(model.points[is_new])
    points = Points.joined(parts)
    return points[np.argsort(points.numbers)]


def without_training_rows(models: Sequence[Any]) -> list[Any]:
    """The same models, where their support vectors are not yet copied: then in one array for all of them."""
    taken = _taken_points(models)
    if not taken:
        return list(models)
    if len(models) == 1:
        return [models[0]._replace(points=Points(taken[0].X, taken[0].numbers))]
    support, where = _distinct(taken)
    X = _rows_of(taken, where, len(support))
    ends = np.cumsum([len(points) for points in taken])
    return [
        model._replace(points=TakenPoints(X, where[end - len(points) : end], points.numbers))
        for model, points, end in zip(models, taken, ends, strict=True)
    ]


def _rows_of(taken: Sequence[TakenPoints], where: np.ndarray, n: int) -> Any:
    """``n`` rows that points of one source have, at the places ``where`` of all points one after the other."""
    source, places = taken[0].source, np.empty(n, np.intp)
    places[where] = np.concatenate([points.places for points in taken])
    is_all = n == source.shape[0] and np.array_equal(places, np.arange(n))
    return source if is_all else TakenPoints(source, places, places).X


def _taken_points(models: Sequence[Any]) -> list[TakenPoints]:
    """The points of all models, if they are places in one array; else none."""
    found = [model.points for model in models if isinstance(model, KernelModel)]
    taken = [points for points in found if isinstance(points, TakenPoints)]
    is_one = len(taken) == len(models) and all(points.source is taken[0].source for points in taken)
    return taken if is_one else []
