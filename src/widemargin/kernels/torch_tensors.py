"""What a torch device does with kernel values, in plain tensor code: the oracle of :mod:`torch_cuda`, on any device.

Rows come as the inner loops read them. ``left`` and ``right`` are such that their inner products are those of the rows;
a :class:`Form` says what becomes of a product p of row i and point j, with a number t for each of them:

    RBF       2^(scale * p + t_i + t_j)        POLY      (scale * p + shift)^degree
    LINEAR    scale * p                        SIGMOID   tanh(scale * p + shift)
    LAPLACIAN 2^(scale * p), where p is the distance in the 1-norm
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from widemargin.compiled import working_set

RBF, LINEAR, POLY, SIGMOID, LAPLACIAN = range(5)
_TILE = 1 << 22  # kernel values held at a time


class Form(NamedTuple):
    """What becomes of an inner product."""

    kind: int
    scale: float
    shift: float = 0.0
    degree: int = 1


@dataclass(frozen=True)
class Side:
    """Rows or points: a matrix with one of them in each line, and a number for each."""

    matrix: torch.Tensor
    term: torch.Tensor

    def __getitem__(self, chosen: Any) -> Side:
        return Side(self.matrix[chosen], self.term[chosen])

    def __len__(self) -> int:
        return len(self.term)


def finished(products: torch.Tensor, row_term: torch.Tensor, point_term: torch.Tensor, form: Form) -> torch.Tensor:
    """Kernel values from products, in the type of these."""
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
    few = max(1, _TILE // max(len(points), 1))
    for begin in range(0, len(rows), few):
        tile = values(rows[begin : begin + few], points, form)
        out[begin : begin + few] = tile.to(torch.float64) @ coef
    return out


class HingeSums:
    """The loss of all rows and its slopes by scale and intercept: :func:`widemargin.problems.hinge_l2.hinge_sums`."""

    def __init__(self, scores: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> None:
        self._arrays = scores, y, weight

    def __call__(self, scale: float, intercept: float) -> np.ndarray:
        scores, y, weight = self._arrays
        slack = 1.0 - y * (scale * scores + intercept)
        push = torch.where(slack > 0, weight * y, 0.0)
        return torch.stack([(weight * slack.clamp(min=0)).sum(), -(push @ scores), -push.sum()]).cpu().numpy()


class Repeated:
    """A step that is done again and again, on the same memory."""

    def __init__(self, step: Callable[[], None], ledger: Any) -> None:
        self._step = step

    def __call__(self, times: int) -> None:
        for _ in range(times):
            self._step()


def solve(
    K: torch.Tensor,
    pull: torch.Tensor,
    beta: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    tol: torch.Tensor,
    middle: torch.Tensor,
    is_tied: bool,
    max_steps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The problem of a working set by the compiled loops of the host: new ``beta``, new ``pull``, number of steps.

    ``middle`` is a number near those of the rows that pull most, from which pulls are counted where that is less exact.
    """
    n = len(beta)
    width = -(-n // working_set.LANES) * working_set.LANES
    vectors = [np.pad(each.cpu().numpy(), (0, width - n)) for each in (pull, beta, low, high)]
    full = np.zeros((n, width), np.float32)
    full[:, :n] = K.cpu().numpy()
    diagonal = np.pad(np.diagonal(full[:, :n]), (0, width - n), constant_values=1.0)
    loop = working_set.pairs if is_tied else working_set.singles
    steps = loop(full, diagonal, *vectors, float(tol), max_steps)
    new_pull, new_beta = (torch.from_numpy(each[:n]).to(beta.device) for each in vectors[:2])
    return new_beta, new_pull, torch.tensor(int(steps))


def scan(
    response: torch.Tensor,
    y: torch.Tensor,
    beta: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    is_kept: torch.Tensor,
    middle: torch.Tensor,
    size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The worst rows of each group of ``size`` neighbours, and of all.

    Gives keys and places, two lines each: of rows that may rise and that may fall, those that are kept apart. A key is
    how far a row pulls beyond ``middle``, minus infinity where there is none. Then the largest pull of any row that may
    rise, and the least of any that may fall.
    """
    pull = y - response
    up, down = beta < high, beta > low
    top = torch.where(up, pull, -torch.inf).max()
    bottom = torch.where(down, pull, torch.inf).min()
    force = (pull - middle).to(torch.float32)
    rises = up & (~down | (force >= 0)) & ~is_kept
    falls = down & (~up | (force < 0)) & ~is_kept
    both = torch.stack([torch.where(rises, force, -torch.inf), torch.where(falls, -force, -torch.inf)])
    n_groups = -(-len(pull) // size)
    both = torch.nn.functional.pad(both, (0, n_groups * size - len(pull)), value=-torch.inf)
    keys, places = both.view(2, n_groups, size).max(dim=2)
    return keys, places + size * torch.arange(n_groups, device=pull.device), top, bottom


def choose(keys: torch.Tensor, places: torch.Tensor, kept: torch.Tensor, n_new: int) -> torch.Tensor:
    """The rows that are kept, and ``n_new`` of the largest keys: half of each side, where both have as many.

    Keys and places have a line for each side; a key of minus infinity stands for nothing.
    """
    keys, order = torch.sort(keys, dim=1, descending=True, stable=True)
    n_up, n_down = (keys > -torch.inf).sum(dim=1)
    n_up = torch.minimum(n_up, torch.clamp(n_new - n_down, min=n_new // 2))
    at = torch.arange(n_new, device=keys.device)
    side = (at >= n_up).to(torch.int64)
    return torch.cat([kept, places[side, order[side, at - side * n_up]]])


def keep(working: torch.Tensor, beta: torch.Tensor, low: torch.Tensor, high: torch.Tensor, n_kept: int) -> torch.Tensor:
    """``n_kept`` rows of a working set, in order: those between their bounds first, and, of equals, the later ones."""
    is_free = (beta > low) & (beta < high)
    age = torch.arange(len(working), device=working.device) + len(working) * is_free
    return working[torch.topk(age, n_kept).indices.sort().values]
