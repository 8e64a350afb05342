"""The primitives of a torch device in plain tensor code, on any device; those of :mod:`torch_cuda` must agree.

Inner products of a left and a right :class:`Side` are those of their rows. A :class:`Form` says how a kernel value is
computed from the product p of row i and point j, with a term t of each:

    RBF       2^(scale * p + t_i + t_j)        POLY      (scale * p + shift)^degree
    LINEAR    scale * p                        SIGMOID   tanh(scale * p + shift)
    LAPLACIAN 2^(scale * p), where p is the 1-norm distance
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from widemargin.compiled.hinge import hinge_sums
from widemargin.kernels import vectors

RBF, LINEAR, POLY, SIGMOID, LAPLACIAN = range(5)
_TILE_VALUES = 1 << 22  # kernel values in memory at a time
TERMS_PER_SUM = 1024  # points of a float64 sum: rounding errors grow with the length of a sum


class Form(NamedTuple):
    kind: int
    scale: float
    shift: float = 0.0
    degree: int = 1


@dataclass(frozen=True)
class Side:
    """Rows or points of a product: a matrix, and a term for each row of it."""

    matrix: torch.Tensor
    term: torch.Tensor

    def __getitem__(self, chosen: Any) -> Side:
        return Side(self.matrix[chosen], self.term[chosen])

    def __len__(self) -> int:
        return len(self.term)

    def to(self, device: torch.device) -> Side:
        return Side(self.matrix.to(device), self.term.to(device))


def finished(products: torch.Tensor, row_term: torch.Tensor, point_term: torch.Tensor, form: Form) -> torch.Tensor:
    if form.kind == RBF:
        return torch.exp2(form.scale * products + (row_term[:, None] + point_term[None, :]))
    if form.kind == LAPLACIAN:
        return torch.exp2(form.scale * products)
    if form.kind == POLY:
        return (form.scale * products + form.shift) ** form.degree
    if form.kind == SIGMOID:
        return torch.tanh(form.scale * products + form.shift)
    return form.scale * products


def products(left: torch.Tensor, right: torch.Tensor, form: Form) -> torch.Tensor:
    """Inner products, or distances, summed in float32 or better."""
    dtype = torch.float64 if left.dtype == torch.float64 else torch.float32
    left, right = left.to(dtype), right.to(dtype)
    return torch.cdist(left, right, p=1) if form.kind == LAPLACIAN else left @ right.T


def values(rows: Side, points: Side, form: Form) -> torch.Tensor:
    """Kernel values of rows (down) with points (across)."""
    return finished(products(rows.matrix, points.matrix, form), rows.term, points.term, form)


def times(rows: Side, points: Side, coef: torch.Tensor, form: Form) -> torch.Tensor:
    """``sum_j coef_j k(x_i, z_j)`` of every row in float64; ``coef`` has a column for each of several sums."""
    out = torch.zeros((len(rows), *coef.shape[1:]), dtype=torch.float64, device=coef.device)
    few = _TILE_VALUES // TERMS_PER_SUM
    for first in range(0, len(points), TERMS_PER_SUM):
        part = slice(first, first + TERMS_PER_SUM)
        for begin in range(0, len(rows), few):
            tile = values(rows[begin : begin + few], points[part], form)
            out[begin : begin + few] += tile.to(torch.float64) @ coef[part]
    return out


def lanes(n: int) -> list[Any]:
    return [nullcontext] * n


class HingeSums:
    """The loss of all rows and its slopes by scale and intercept: :func:`widemargin.compiled.hinge.hinge_sums`."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self._arrays = [each.cpu().numpy() for each in tensors]

    def __call__(self, scale: float, intercept: float) -> np.ndarray:
        return np.asarray(hinge_sums(*self._arrays, scale, intercept))


def _in_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors, for one problem or several; on the CPU nothing is copied."""

    def converted(value: Any) -> Any:
        if isinstance(value, vectors.Dual):
            return vectors.Dual(*map(converted, value))
        return value.cpu().numpy() if isinstance(value, torch.Tensor) else value

    def on_tensors(first: Any, second: Any, *others: Any) -> Any:
        dual = next((each for each in (first, second) if isinstance(each, vectors.Dual)), None)
        several = second if dual is None else dual.beta  # of one more dimension than a place has
        device, arguments = several.device, [converted(each) for each in (first, second, *others)]
        if several.ndim == (2 if dual is not None else 3):
            answers = [function(*(_line(each, k) for each in arguments)) for k in range(len(several))]
            is_one = not isinstance(answers[0], tuple)
            lines = [answers] if is_one else list(zip(*answers, strict=True))
            stacked = tuple(torch.as_tensor(np.stack(each), device=device) for each in lines)
            return stacked[0] if is_one else stacked
        answer = function(*arguments)
        parts = answer if isinstance(answer, tuple) else (answer,)
        tensors = tuple(torch.as_tensor(np.asarray(part), device=device) for part in parts)
        return tensors if isinstance(answer, tuple) else tensors[0]

    return on_tensors


def _line(value: Any, k: int) -> Any:
    """What belongs to one problem."""
    if isinstance(value, vectors.Dual):
        return vectors.Dual(*(each[k] for each in value))
    return value[k] if isinstance(value, np.ndarray) else value


scan, choose, keep, solve = (_in_numpy(each) for each in (vectors.scan, vectors.choose, vectors.keep, vectors.solve))
Repeated = vectors.Repeated


def gather(values: torch.Tensor, working: torch.Tensor) -> torch.Tensor:
    """Kernel values of the working set of each problem, from those between all rows."""
    return values[working[:, :, None], working[:, None, :]]


def subtract(values: torch.Tensor, working: torch.Tensor, change: torch.Tensor, pull: torch.Tensor) -> None:
    """``pull -= change @ values[working]`` of each problem."""
    for rows, by, target in zip(working, change, pull, strict=True):
        target -= (by.to(values.dtype) @ values[rows, : len(target)]).to(target.dtype)
