"""The primitives of a CUDA device: those of :mod:`torch_tensors`, with no intermediate result in memory.

Kernel values are computed in tiles by the matrix units, finished in registers and multiplied at once (Triton).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from widemargin.kernels import torch_tensors
from widemargin.kernels.torch_graphs import Graph, Repeated, lanes
from widemargin.kernels.torch_tensors import LAPLACIAN, LINEAR, POLY, RBF, SIGMOID, Form, Side
from widemargin.kernels.torch_working_set import choose, gather, keep, solve, subtract
from widemargin.kernels.vectors import FIXED, Dual

__all__ = [
    "HingeSums", "Repeated", "choose", "gather", "keep", "lanes", "scan", "solve", "subtract", "times", "values",
]  # fmt: skip

_INTERPRETED = bool(getattr(getattr(triton, "knobs", None), "runtime", None) and triton.knobs.runtime.interpret)
_LOG2E = tl.constexpr(1.4426950408889634)
_RBF, _LINEAR, _POLY, _SIGMOID = (tl.constexpr(kind) for kind in (RBF, LINEAR, POLY, SIGMOID))
_FIXED = tl.constexpr(float(FIXED))
_POINTS_PER_SUM = 4096  # summed in float32; sums over more points are continued in float64
_MAX_FUSED_COLUMNS = 64  # of float64 rows whose products are computed where they are used
_TILE_VALUES = 1 << 26  # kernel values in memory at a time, where they are stored


@triton.jit
def _exp2(x, NATIVE: tl.constexpr):
    """2^x by the special function unit alone: denormal results are 0, and tl.exp2, which keeps them, is slower."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def _finish(
    product, row_term, point_term, scale, shift, KIND: tl.constexpr, DEGREE: tl.constexpr, NATIVE: tl.constexpr
):
    if KIND == _RBF:
        return _exp2(product * scale + (row_term[:, None] + point_term[None, :]), NATIVE)
    if KIND == _POLY:
        base = product * scale + shift
        power = base
        for _ in tl.static_range(DEGREE - 1):
            power *= base
        return power
    if KIND == _SIGMOID:
        return 1.0 - 2.0 / (tl.exp2((product * scale + shift) * (2.0 * _LOG2E)) + 1.0)
    return product * scale


@triton.jit
def _product(left, right, rows, points, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """A tile of inner products, summed in float32."""
    out = tl.zeros((BM, BN), dtype=tl.float32)
    for begin in range(0, D, BD):
        columns = begin + tl.arange(0, BD)
        x = tl.load(left + rows[:, None] * D + columns[None, :])
        z = tl.load(right + points[None, :] * D + columns[:, None])
        out = tl.dot(x, z, out)
    return out


@triton.jit
def _times(
    left, right, row_term, point_term, coef, out, n_rows, n_points, per_sum, scale, shift,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    KIND: tl.constexpr, DEGREE: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Kernel times coefficients for ``BM`` rows and ``per_sum`` of the points."""
    every = tl.program_id(0) * BM + tl.arange(0, BM)
    rows = tl.minimum(every, n_rows - 1).to(tl.int64)  # out of range: the last row again
    begin = tl.program_id(1) * per_sum
    end = tl.minimum(begin + per_sum, n_points)
    a = tl.load(row_term + rows)
    total = tl.zeros((BM,), dtype=tl.float32)
    columns = tl.arange(0, BD)
    if D == BD:  # the rows stay in registers
        x = tl.load(left + rows[:, None] * D + columns[None, :])
    for first in range(begin, end, BN):
        points = first + tl.arange(0, BN)
        c = tl.load(coef + points, mask=points < end, other=0.0)
        points = tl.minimum(points, n_points - 1)
        if D == BD:
            product = tl.dot(x, tl.load(right + points[None, :] * D + columns[:, None]))
        else:
            product = _product(left, right, rows, points, D, BM, BN, BD)
        value = _finish(product, a, tl.load(point_term + points), scale, shift, KIND, DEGREE, NATIVE)
        total += tl.sum(value * c[None, :], axis=1)
    tl.store(out + tl.program_id(1) * n_rows.to(tl.int64) + every, total, mask=every < n_rows)


@triton.jit
def _values(
    left, right, row_term, point_term, out, n_rows, n_points, scale, shift,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    KIND: tl.constexpr, DEGREE: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    every, all_points = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rows, points = tl.minimum(every, n_rows - 1).to(tl.int64), tl.minimum(all_points, n_points - 1)
    product = _product(left, right, rows, points, D, BM, BN, BD)
    a, b = tl.load(row_term + rows), tl.load(point_term + points)
    value = _finish(product, a, b, scale, shift, KIND, DEGREE, NATIVE)
    inside = (every[:, None] < n_rows) & (all_points[None, :] < n_points)
    tl.store(out + rows[:, None] * n_points + points[None, :], value, mask=inside)


@triton.jit
def _laplacian(
    left, right, coef, out, n_rows, n_points, per_sum, scale, D,
    BM: tl.constexpr, BN: tl.constexpr, SUMS: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Sums of Laplacian kernel values, or the values themselves."""
    every = tl.program_id(0) * BM + tl.arange(0, BM)
    rows = tl.minimum(every, n_rows - 1).to(tl.int64)
    begin = tl.program_id(1) * per_sum
    end = tl.minimum(begin + per_sum, n_points)
    total = tl.zeros((BM,), dtype=tl.float32)
    for first in range(begin, end, BN):
        all_points = first + tl.arange(0, BN)
        points = tl.minimum(all_points, n_points - 1)
        distance = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(D):
            x, z = tl.load(left + rows * D + k), tl.load(right + points * D + k)
            distance += tl.abs(x[:, None] - z[None, :])
        value = _exp2(distance * scale, NATIVE)
        if SUMS:
            c = tl.load(coef + all_points, mask=all_points < end, other=0.0)
            total += tl.sum(value * c[None, :], axis=1)
        else:
            inside = (every[:, None] < n_rows) & (all_points[None, :] < end)
            tl.store(out + rows[:, None] * n_points + points[None, :], value, mask=inside)
    if SUMS:
        tl.store(out + tl.program_id(1) * n_rows.to(tl.int64) + every, total, mask=every < n_rows)


@triton.jit
def _add_finished(
    product, row_term, point_term, coef, parameters, out, n_rows, n_points,
    BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr, DEGREE: tl.constexpr,
):  # fmt: skip
    """``out += values @ coef`` in float64, from stored products."""
    scale, shift = tl.load(parameters), tl.load(parameters + 1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    a = tl.load(row_term + rows, mask=rows < n_rows, other=0.0)
    total = tl.zeros((BM,), dtype=tl.float64)
    for first in range(0, n_points, BN):
        points = first + tl.arange(0, BN)
        inside = (rows[:, None] < n_rows) & (points[None, :] < n_points)
        p = tl.load(product + rows[:, None].to(tl.int64) * n_points + points[None, :], mask=inside, other=0.0)
        b = tl.load(point_term + points, mask=points < n_points, other=0.0)
        c = tl.load(coef + points, mask=points < n_points, other=0.0)
        total += tl.sum(_finish(p, a, b, scale, shift, KIND, DEGREE, False) * c[None, :], axis=1)
    before = tl.load(out + rows, mask=rows < n_rows, other=0.0)
    tl.store(out + rows, before + total, mask=rows < n_rows)


@triton.jit
def _times_exactly(
    left, right, row_term, point_term, coef, parameters, out, n_rows, n_points,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr, DEGREE: tl.constexpr,
):  # fmt: skip
    """``out = values @ coef`` in float64, with products of few columns computed here."""
    scale, shift = tl.load(parameters), tl.load(parameters + 1)
    every, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    rows = tl.minimum(every, n_rows - 1).to(tl.int64)
    x, a = tl.load(left + rows[:, None] * D + columns[None, :]), tl.load(row_term + rows)
    total = tl.zeros((BM,), dtype=tl.float64)
    for first in range(0, n_points, BN):
        points = first + tl.arange(0, BN)
        c = tl.load(coef + points, mask=points < n_points, other=0.0)
        points = tl.minimum(points, n_points - 1)
        z = tl.load(right + points[None, :] * D + columns[:, None])
        product = tl.dot(x, z, out_dtype=tl.float64)
        b = tl.load(point_term + points)
        total += tl.sum(_finish(product, a, b, scale, shift, KIND, DEGREE, False) * c[None, :], axis=1)
    tl.store(out + every, total, mask=every < n_rows)


@triton.jit
def _hinge(scores, y, weight, place, out, n_rows, BLOCK: tl.constexpr):
    """The loss of ``BLOCK`` rows, and its slopes by scale and intercept."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < n_rows
    scale, intercept = tl.load(place), tl.load(place + 1)
    score = tl.load(scores + rows, mask=inside, other=0.0)
    label, mass = tl.load(y + rows, mask=inside, other=0.0), tl.load(weight + rows, mask=inside, other=0.0)
    slack = 1.0 - label * (scale * score + intercept)
    push = tl.where(slack > 0, mass * label, 0.0)
    first = out + tl.program_id(0) * 3
    tl.store(first, tl.sum(tl.where(slack > 0, mass * slack, 0.0)))
    tl.store(first + 1, -tl.sum(push * score))
    tl.store(first + 2, -tl.sum(push))


@triton.jit
def _scan(
    pull, beta, low, high, is_kept, middle, keys, places, ends, n_rows, n_groups,
    SIZE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The worst rows of ``GROUPS`` groups of ``SIZE``, and of all of these; the second number is that of a problem."""
    problem = tl.program_id(1).to(tl.int64)
    pull += problem * n_rows
    beta += problem * n_rows
    low += problem * n_rows
    high += problem * n_rows
    is_kept += problem * n_rows
    keys += problem * 2 * n_groups
    places += problem * 2 * n_groups
    ends += problem * 2 * tl.num_programs(0)
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    rows = group[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    inside = rows < n_rows
    p, b = tl.load(pull + rows, mask=inside, other=0.0), tl.load(beta + rows, mask=inside, other=0.0)
    up = (b < tl.load(high + rows, mask=inside, other=0.0)) & inside
    down = (b > tl.load(low + rows, mask=inside, other=0.0)) & inside
    tl.store(ends + 2 * tl.program_id(0), tl.max(tl.where(up, p, float("-inf"))))
    tl.store(ends + 2 * tl.program_id(0) + 1, tl.max(tl.where(down, -p, float("-inf"))))
    force = (p - tl.load(middle + problem)).to(tl.float32)
    is_new = tl.load(is_kept + rows, mask=inside, other=1) == 0
    rising = tl.where((up == 0) & (down == 0) & is_new & inside, _FIXED, float("-inf"))
    rising = tl.where(up & ((down == 0) | (force >= 0)) & is_new, force, rising)
    falling = tl.where(down & ((up == 0) | (force < 0)) & is_new, -force, float("-inf"))
    for side in tl.static_range(2):
        key, at = tl.max(rising if side == 0 else falling, axis=1, return_indices=True)
        tl.store(keys + side * n_groups + group, key, mask=group < n_groups)
        tl.store(places + side * n_groups + group, group.to(tl.int64) * SIZE + at, mask=group < n_groups)


def _tiles(width: int) -> dict[str, int]:
    """Block shapes, by the number of columns; measured on an H200."""
    if width <= 128:
        return {"BM": 128, "BN": 64, "BD": width, "num_warps": 4, "num_stages": 3}
    return {"BM": 128, "BN": 256, "BD": 64, "num_warps": 8, "num_stages": 3}


def _constants(form: Form) -> dict[str, Any]:
    return {"KIND": form.kind, "DEGREE": form.degree, "NATIVE": not _INTERPRETED}


def values(rows: Side, points: Side, form: Form) -> torch.Tensor:
    """Kernel values of rows (down) with points (across), in float32; float64 for rows in float64."""
    if rows.matrix.dtype == torch.float64:
        return torch_tensors.values(rows, points, form)
    n, m, width = len(rows), len(points), rows.matrix.shape[1]
    out = torch.empty((n, m), dtype=torch.float32, device=rows.matrix.device)
    if form.kind == LAPLACIAN:
        grid = (triton.cdiv(n, 64), triton.cdiv(m, 64))
        sizes = {"BM": 64, "BN": 64, "SUMS": False, "NATIVE": not _INTERPRETED}
        _laplacian[grid](rows.matrix, points.matrix, out, out, n, m, 64, form.scale, width, **sizes)
        return out
    sizes = _tiles(width) | {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3}
    grid = (triton.cdiv(n, sizes["BM"]), triton.cdiv(m, sizes["BN"]))
    matrices = (rows.matrix, points.matrix, rows.term, points.term)
    _values[grid](*matrices, out, n, m, form.scale, form.shift, D=width, **sizes, **_constants(form))
    return out


def times(rows: Side, points: Side, coef: torch.Tensor, form: Form) -> torch.Tensor:
    """``sum_j coef_j k(x_i, z_j)`` of every row in float64; ``coef`` has a column for each of several sums.

    Kernel values of float64 rows are in float64; others are in float32, and so are their sums over few points.
    """
    n, m, width = len(rows), len(points), rows.matrix.shape[1]
    if n == 0 or m == 0:
        return torch.zeros((n, *coef.shape[1:]), dtype=torch.float64, device=coef.device)
    if coef.ndim == 2 and coef.shape[1] == 1:
        return times(rows, points, coef[:, 0].contiguous(), form)[:, None]
    if coef.ndim == 2:
        return _times_of_several(rows, points, coef, form)
    if rows.matrix.dtype == torch.float64:
        return _times_in_float64(rows, points, coef, form)
    coef = coef.to(torch.float32)
    by_distance = {"BM": 64, "BN": 64, "SUMS": True, "NATIVE": not _INTERPRETED}
    sizes = by_distance if form.kind == LAPLACIAN else _tiles(width)
    tiles = triton.cdiv(n, sizes["BM"])
    enough = 1 if tiles > 256 else triton.cdiv(256, tiles)  # programs to occupy all multiprocessors
    per_sum = min(_POINTS_PER_SUM, max(512, triton.cdiv(triton.cdiv(m, enough), sizes["BN"]) * sizes["BN"]))
    n_sums = triton.cdiv(m, per_sum)
    out, grid = torch.empty((n_sums, n), dtype=torch.float32, device=coef.device), (tiles, n_sums)
    if form.kind == LAPLACIAN:
        _laplacian[grid](rows.matrix, points.matrix, coef, out, n, m, per_sum, form.scale, width, **sizes)
    else:
        matrices = (rows.matrix, points.matrix, rows.term, points.term)
        _times[grid](*matrices, coef, out, n, m, per_sum, form.scale, form.shift, D=width, **sizes, **_constants(form))
    return out[0].to(torch.float64) if n_sums == 1 else out.sum(dim=0, dtype=torch.float64)


def _times_of_several(rows: Side, points: Side, coef: torch.Tensor, form: Form) -> torch.Tensor:
    """Several sums at once: values are stored and multiplied."""
    out = torch.zeros((len(rows), coef.shape[1]), dtype=torch.float64, device=coef.device)
    is_exact = rows.matrix.dtype == torch.float64
    some = min(len(points), torch_tensors.TERMS_PER_SUM if is_exact else _POINTS_PER_SUM)
    few = max(1, _TILE_VALUES // some)
    for first in range(0, len(points), some):
        part = slice(first, first + some)
        for begin in range(0, len(rows), few):
            tile = values(rows[begin : begin + few], points[part], form)
            out[begin : begin + few] += (tile @ coef[part].to(tile.dtype)).to(torch.float64)
    return out


def _times_in_float64(rows: Side, points: Side, coef: torch.Tensor, form: Form) -> torch.Tensor:
    if form.kind in (LAPLACIAN, SIGMOID):
        return torch_tensors.times(rows, points, coef, form)
    out = torch.zeros(len(rows), dtype=torch.float64, device=coef.device)
    parameters = torch.tensor([form.scale, form.shift], dtype=torch.float64, device=coef.device)
    width = rows.matrix.shape[1]
    if width <= _MAX_FUSED_COLUMNS:
        full = max(16, triton.next_power_of_2(width))
        left, right = (torch.nn.functional.pad(each.matrix, (0, full - width)) for each in (rows, points))
        _times_exactly[(triton.cdiv(len(rows), 64),)](
            left, right, rows.term, points.term, coef.contiguous(), parameters, out, len(rows), len(points),
            D=full, BM=64, BN=32, KIND=form.kind, DEGREE=form.degree, num_warps=4, num_stages=1,
        )  # fmt: skip
        return out
    some = min(len(points), torch_tensors.TERMS_PER_SUM)
    few = min(len(rows), max(1, _TILE_VALUES // some))
    space = torch.empty(few * some, dtype=torch.float64, device=coef.device)
    for first in range(0, len(points), some):
        Z, term, c = points.matrix[first : first + some], points.term[first : first + some], coef[first : first + some]
        for begin in range(0, len(rows), few):
            X = rows.matrix[begin : begin + few]
            product = space[: len(X) * len(Z)].view(len(X), len(Z))
            torch.mm(X, Z.T, out=product)
            _add_finished[(triton.cdiv(len(X), 16),)](
                product, rows.term[begin : begin + few], term, c.contiguous(), parameters, out[begin : begin + few],
                len(X), len(Z), BM=16, BN=128, KIND=form.kind, DEGREE=form.degree, num_warps=4,
            )  # fmt: skip
    return out


class HingeSums:
    """The loss of all rows and its slopes, recorded once for many places."""

    def __init__(self, scores: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> None:
        blocks, device = triton.cdiv(len(scores), 2048), scores.device
        parts = torch.empty((blocks, 3), dtype=torch.float64, device=device)
        self._place = torch.zeros(2, dtype=torch.float64, pin_memory=True)
        self._sums = torch.zeros(3, dtype=torch.float64, pin_memory=True)
        place = torch.empty(2, dtype=torch.float64, device=device)

        def step() -> None:
            place.copy_(self._place, non_blocking=True)
            _hinge[(blocks,)](scores, y, weight, place, parts, len(scores), BLOCK=2048)
            self._sums.copy_(parts.sum(dim=0), non_blocking=True)

        step()
        self._stream = torch.cuda.current_stream()
        self._stream.synchronize()
        self._graph = Graph(step)
        self._place_view, self._sums_view = self._place.numpy(), self._sums.numpy()

    def __call__(self, scale: float, intercept: float) -> np.ndarray:
        self._place_view[:] = scale, intercept
        self._graph()
        self._stream.synchronize()
        return np.array(self._sums_view)


def scan(
    dual: Dual, kept: torch.Tensor, middle: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The worst row of each group of ``size`` neighbours on either side: :func:`widemargin.kernels.vectors.scan`."""
    (*several, n), device = dual.beta.shape, dual.beta.device
    is_kept = torch.zeros(dual.beta.shape, dtype=torch.bool, device=device).scatter_(-1, kept, True)
    n_groups, together = triton.cdiv(n, size), max(1, 1024 // size)
    blocks = triton.cdiv(n_groups, together)
    keys = torch.empty((*several, 2, n_groups), dtype=torch.float32, device=device)
    places = torch.empty((*several, 2, n_groups), dtype=torch.int64, device=device)
    ends = torch.empty((*several, blocks, 2), dtype=torch.float64, device=device)
    arrays = (*dual, is_kept, middle, keys, places, ends)
    _scan[(blocks, several[0] if several else 1)](*arrays, n, n_groups, SIZE=size, GROUPS=together)
    top, bottom = ends.amax(dim=-2).unbind(-1)
    return keys, places, top, -bottom
