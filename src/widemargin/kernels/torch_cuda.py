"""The primitives of :mod:`torch_tensors` on a CUDA device: the same names, the same answers, nothing written between.

Kernel values are made in tiles by the matrix units, finished in registers and multiplied at once (Triton); the problem
of a working set is solved by one thread block that holds it in shared memory (CUDA C, compiled when first used).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from widemargin.kernels.torch_tensors import LAPLACIAN, LINEAR, POLY, RBF, SIGMOID, Form, Side

_INTERPRETED = bool(getattr(getattr(triton, "knobs", None), "runtime", None) and triton.knobs.runtime.interpret)
_LOG2E = tl.constexpr(1.4426950408889634)
_RBF, _LINEAR, _POLY, _SIGMOID = (tl.constexpr(kind) for kind in (RBF, LINEAR, POLY, SIGMOID))
_POINTS_PER_SUM = 4096  # that are summed in float32, before their sums are in float64
_MOST_GROUPS = 2048  # whose best rows are put in order by one thread block
_LARGEST_BLOCK, _ROWS_PER_THREAD = 1024, 4  # rows of a working set, in one thread block
_FEW_COLUMNS = 64  # of which products in float64 are made where they are used
_TILE_VALUES = 1 << 26  # kernel values held at a time, where they are held


@triton.jit
def _exp2(x, NATIVE: tl.constexpr):
    """2^x by the special function unit alone; tl.exp2 takes care of denormal numbers, at a cost, which are 0 here."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def _finish(
    product, row_term, point_term, scale, shift, KIND: tl.constexpr, DEGREE: tl.constexpr, NATIVE: tl.constexpr
):
    """Kernel values from a tile of products."""
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
    rows = tl.minimum(every, n_rows - 1).to(tl.int64)  # the last one again, instead of what lies behind it
    begin = tl.program_id(1) * per_sum
    end = tl.minimum(begin + per_sum, n_points)
    a = tl.load(row_term + rows)
    total = tl.zeros((BM,), dtype=tl.float32)
    if D == BD:  # the rows stay where they are
        columns = tl.arange(0, BD)
        x = tl.load(left + rows[:, None] * D + columns[None, :])
        for first in range(begin, end, BN):
            points = first + tl.arange(0, BN)
            c = tl.load(coef + points, mask=points < end, other=0.0)
            points = tl.minimum(points, n_points - 1)
            z = tl.load(right + points[None, :] * D + columns[:, None])
            value = _finish(tl.dot(x, z), a, tl.load(point_term + points), scale, shift, KIND, DEGREE, NATIVE)
            total += tl.sum(value * c[None, :], axis=1)
    else:
        for first in range(begin, end, BN):
            points = first + tl.arange(0, BN)
            c = tl.load(coef + points, mask=points < end, other=0.0)
            points = tl.minimum(points, n_points - 1)
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
    """A tile of kernel values, written."""
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
    """The same with distances in the 1-norm: sums, or the values themselves."""
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
def _finish_exactly(product, row_term, point_term, scale, shift, KIND: tl.constexpr, DEGREE: tl.constexpr):
    """Kernel values from a tile of products, in float64."""
    if KIND == _RBF:
        return tl.exp2(product * scale + (row_term[:, None] + point_term[None, :]))
    if KIND == _POLY:
        base = product * scale + shift
        power = base
        for _ in tl.static_range(DEGREE - 1):
            power *= base
        return power
    return product * scale


@triton.jit
def _add_finished(
    product, row_term, point_term, coef, parameters, out, n_rows, n_points,
    BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr, DEGREE: tl.constexpr,
):  # fmt: skip
    """``out += values @ coef`` in float64, from products that are at hand."""
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
        total += tl.sum(_finish_exactly(p, a, b, scale, shift, KIND, DEGREE) * c[None, :], axis=1)
    before = tl.load(out + rows, mask=rows < n_rows, other=0.0)
    tl.store(out + rows, before + total, mask=rows < n_rows)


@triton.jit
def _times_exactly(
    left, right, row_term, point_term, coef, parameters, out, n_rows, n_points,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr, DEGREE: tl.constexpr,
):  # fmt: skip
    """The same with the products made here, of few columns."""
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
        total += tl.sum(_finish_exactly(product, a, b, scale, shift, KIND, DEGREE) * c[None, :], axis=1)
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
    response, y, beta, low, high, is_kept, middle, keys, places, ends, n_rows, n_groups,
    SIZE: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The worst rows of ``GROUPS`` groups of ``SIZE``, and of all of these."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    rows = group[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    inside = rows < n_rows
    pull = tl.load(y + rows, mask=inside, other=0.0) - tl.load(response + rows, mask=inside, other=0.0)
    now = tl.load(beta + rows, mask=inside, other=0.0)
    up = (now < tl.load(high + rows, mask=inside, other=0.0)) & inside
    down = (now > tl.load(low + rows, mask=inside, other=0.0)) & inside
    tl.store(ends + 2 * tl.program_id(0), tl.max(tl.where(up, pull, float("-inf"))))
    tl.store(ends + 2 * tl.program_id(0) + 1, tl.max(tl.where(down, -pull, float("-inf"))))
    force = (pull - tl.load(middle)).to(tl.float32)
    is_new = tl.load(is_kept + rows, mask=inside, other=1) == 0
    rising = tl.where(up & ((down == 0) | (force >= 0)) & is_new, force, float("-inf"))
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
        from widemargin.kernels import torch_tensors

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

    Kernel values of rows in float64 are made in float64, others in float32, whose sums over some thousand points are
    in float32 and those over more in float64.
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
    enough = 1 if tiles > 256 else triton.cdiv(256, tiles)  # programs, so that all multiprocessors have work
    per_sum = min(_POINTS_PER_SUM, max(512, triton.cdiv(triton.cdiv(m, enough), sizes["BN"]) * sizes["BN"]))
    n_sums = triton.cdiv(m, per_sum)
    out = torch.empty((n_sums, n), dtype=torch.float32, device=coef.device)
    grid = (tiles, n_sums)
    if form.kind == LAPLACIAN:
        _laplacian[grid](rows.matrix, points.matrix, coef, out, n, m, per_sum, form.scale, width, **sizes)
    else:
        matrices = (rows.matrix, points.matrix, rows.term, points.term)
        _times[grid](*matrices, coef, out, n, m, per_sum, form.scale, form.shift, D=width, **sizes, **_constants(form))
    return out[0].to(torch.float64) if n_sums == 1 else out.sum(dim=0, dtype=torch.float64)


def _times_of_several(rows: Side, points: Side, coef: torch.Tensor, form: Form) -> torch.Tensor:
    """Several sums at once: the values are written and multiplied."""
    out = torch.zeros((len(rows), coef.shape[1]), dtype=torch.float64, device=coef.device)
    some = min(len(points), _POINTS_PER_SUM)
    few = max(1, _TILE_VALUES // some)
    for first in range(0, len(points), some):
        part = slice(first, first + some)
        for begin in range(0, len(rows), few):
            tile = values(rows[begin : begin + few], points[part], form)
            out[begin : begin + few] += (tile @ coef[part].to(tile.dtype)).to(torch.float64)
    return out


def _times_in_float64(rows: Side, points: Side, coef: torch.Tensor, form: Form) -> torch.Tensor:
    if form.kind in (LAPLACIAN, SIGMOID):
        from widemargin.kernels import torch_tensors

        return torch_tensors.times(rows, points, coef, form)
    out = torch.zeros(len(rows), dtype=torch.float64, device=coef.device)
    parameters = torch.tensor([form.scale, form.shift], dtype=torch.float64, device=coef.device)
    width = rows.matrix.shape[1]
    if width <= _FEW_COLUMNS:
        full = max(16, triton.next_power_of_2(width))
        left, right = (torch.nn.functional.pad(each.matrix, (0, full - width)) for each in (rows, points))
        _times_exactly[(triton.cdiv(len(rows), 64),)](
            left, right, rows.term, points.term, coef.contiguous(), parameters, out, len(rows), len(points),
            D=full, BM=64, BN=32, KIND=form.kind, DEGREE=form.degree, num_warps=4, num_stages=1,
        )  # fmt: skip
        return out
    some = min(len(points), _POINTS_PER_SUM)
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


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's collector might end another graph meanwhile, which is not allowed while one is noted down."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Graph:
    """Work on the device that was noted down once and is started as a whole, from then on."""

    # Memory for what is made in between, taken once for each device; a graph that stays keeps it.
    _pools: ClassVar[dict[int, tuple[Any, _Graph | None]]] = {}

    def __init__(self, step: Callable[[], Any]) -> None:
        device = torch.cuda.current_device()
        if device not in self._pools:
            self._pools[device] = torch.cuda.graph_pool_handle(), None
            keeper = _Graph(lambda: torch.zeros(1, device="cuda"))
            self._pools[device] = self._pools[device][0], keeper
        self._graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), _no_collection():
            self._graph.capture_begin(pool=self._pools[device][0])
            try:
                step()
            finally:
                self._graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self) -> None:
        self._graph.replay()


class Repeated:
    """A step that is done again and again, on the same memory and without a look from the host.

    What one step adds to the ledger is added for those that are repeated unseen.
    """

    def __init__(self, step: Callable[[], None], ledger: Any) -> None:
        self._step, self._ledger = step, ledger
        self._graph: _Graph | None = None
        self._values, self._is_warm = 0, False

    def __call__(self, times: int) -> None:
        for _ in range(times):
            if not self._is_warm:
                self._step()  # what is compiled when first used cannot be noted down
                self._is_warm = True
                continue
            if self._graph is None:
                before = self._ledger.kernel_evaluations
                self._graph = _Graph(self._step)
                self._values = self._ledger.kernel_evaluations - before
                self._ledger.kernel_evaluations = before
            self._graph()
            self._ledger.kernel_evaluations += self._values


class HingeSums:
    """The loss of all rows and its slopes, at one place after the other."""

    def __init__(self, scores: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> None:
        blocks, device = triton.cdiv(len(scores), 2048), scores.device
        parts = torch.empty((blocks, 3), dtype=torch.float64, device=device)
        self._place = torch.zeros(2, dtype=torch.float64, pin_memory=True)
        self._sums = torch.zeros(3, dtype=torch.float64, pin_memory=True)
        there = torch.empty(2, dtype=torch.float64, device=device)

        def step() -> None:
            there.copy_(self._place, non_blocking=True)
            _hinge[(blocks,)](scores, y, weight, there, parts, len(scores), BLOCK=2048)
            self._sums.copy_(parts.sum(dim=0), non_blocking=True)

        step()
        self._stream = torch.cuda.current_stream()
        self._stream.synchronize()
        self._graph = _Graph(step)
        self._place_here, self._sums_here = self._place.numpy(), self._sums.numpy()

    def __call__(self, scale: float, intercept: float) -> np.ndarray:
        self._place_here[:] = scale, intercept
        self._graph()
        self._stream.synchronize()
        return self._sums_here.copy()


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
    """The worst rows of each group of ``size`` neighbours, and of all: see the twin."""
    n, device = len(beta), beta.device
    n_groups, together = triton.cdiv(n, size), max(1, 1024 // size)
    blocks = triton.cdiv(n_groups, together)
    keys = torch.empty((2, n_groups), dtype=torch.float32, device=device)
    places = torch.empty((2, n_groups), dtype=torch.int64, device=device)
    ends = torch.empty((blocks, 2), dtype=torch.float64, device=device)
    arrays = (response, y, beta, low, high, is_kept, middle, keys, places, ends)
    _scan[(blocks,)](*arrays, n, n_groups, SIZE=size, GROUPS=together)
    top, bottom = ends.amax(dim=0)
    return keys, places, top, -bottom


# -- the problem of a working set --------------------------------------------------------------------------------------

# A thread has some neighbouring rows. A step has two searches for the best row, each by warps first (one instruction
# for 32 lanes), then, behind a barrier, by every warp for itself over what the warps have found. A key has the leading
# 22 bits of a number and the ten of the row that it belongs to, so that the largest key names its row; pulls are
# counted from the middle of the violation, where these bits say most. What all threads read between the second barrier
# and the next first one is written between the first and the second.
_SOLVE = r"""
#define FULL 0xffffffffu
#define WIDEST 1024
#define WARPS (WIDEST / ROWS / 32)
__device__ __forceinline__ unsigned ordered(float f) {  // the order of floats, as one of whole numbers
    const int u = __float_as_int(f);
    return (unsigned)(u ^ ((u >> 31) | 0x80000000));
}
__device__ __forceinline__ unsigned named(unsigned number, int row) { return (number & ~1023u) | (unsigned)row; }
__device__ __forceinline__ unsigned most_of(const unsigned* found) {
    return __reduce_max_sync(FULL, found[threadIdx.x & (WARPS - 1)]);
}
__device__ __forceinline__ void line(const float* K, int row, int width, float* out) {
    #pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
        const int column = ROWS * threadIdx.x + r;
        const float4 four = column < width
            ? *reinterpret_cast<const float4*>(K + row * width + column) : make_float4(0, 0, 0, 0);
        out[r] = four.x; out[r + 1] = four.y; out[r + 2] = four.z; out[r + 3] = four.w;
    }
}
struct Rows { double pull[ROWS]; float diagonal[ROWS]; bool up[ROWS], down[ROWS]; };
struct Shared { double pull[WIDEST], beta[WIDEST], low[WIDEST], high[WIDEST]; float diagonal[WIDEST]; };

__device__ __forceinline__ void load(Rows& my, Shared& all, const float* K, const double* pull, const double* beta,
                                     const double* low, const double* high, double middle, int n, int width) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = ROWS * threadIdx.x + r;
        const bool inside = row < n;  // others cannot move
        all.pull[row] = my.pull[r] = inside ? pull[row] - middle : 0.0;
        all.beta[row] = inside ? beta[row] : 0.0;
        all.low[row] = inside ? low[row] : 0.0;
        all.high[row] = inside ? high[row] : 0.0;
        all.diagonal[row] = my.diagonal[r] = inside ? fmaxf(K[row * width + row], 1e-12f) : 1.0f;
        my.up[r] = all.beta[row] < all.high[row];
        my.down[r] = all.beta[row] > all.low[row];
    }
    __syncthreads();
}
__device__ __forceinline__ void store(const Rows& my, const Shared& all, double* pull, double* beta, double middle,
                                      int n) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = ROWS * threadIdx.x + r;
        if (row < n) { pull[row] = my.pull[r] + middle; beta[row] = all.beta[row]; }
    }
}
__device__ __forceinline__ void share(const Rows& my, Shared& all) {
    #pragma unroll
    for (int r = 0; r < ROWS; r += 2)
        *reinterpret_cast<double2*>(all.pull + ROWS * threadIdx.x + r) = make_double2(my.pull[r], my.pull[r + 1]);
}
__device__ __forceinline__ void mark(Rows& my, int row, bool up, bool down) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (row == ROWS * threadIdx.x + r) { my.up[r] = up; my.down[r] = down; }
}

// The best of both sides: keys of two lines of n, each the best of a group, are put in order, largest first, and the
// first n_new taken, half of each line where both have as many. A key of minus infinity stands for nothing.
extern "C" __global__ void __launch_bounds__(1024) choose(
    const float* keys, const long long* places, const long long* kept, long long* out, int n, int n_kept, int n_new)
{
    __shared__ unsigned long long sorted[2][2048];
    __shared__ int counts[2];
    const int t = threadIdx.x;
    if (t < 2) counts[t] = 0;
    __syncthreads();
    for (int e = t; e < 4096; e += 1024) {
        const int side = e >> 11, at = e & 2047;
        const float key = at < n ? keys[side * n + at] : __int_as_float(0xff800000);
        const bool is_there = key > __int_as_float(0xff800000);
        sorted[side][at] = is_there ? ((unsigned long long)ordered(key) << 32) | (unsigned)(2047 - at) : 0ull;
        const int found = __popc(__ballot_sync(FULL, is_there));
        if ((t & 31) == 0) atomicAdd(&counts[side], found);
    }
    for (int size = 2; size <= 2048; size <<= 1)
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            __syncthreads();
            #pragma unroll
            for (int side = 0; side < 2; side++) {
                const int low = 2 * t - (t & (stride - 1)), high = low + stride;
                const unsigned long long a = sorted[side][low], b = sorted[side][high];
                if ((a < b) == ((low & size) == 0)) { sorted[side][low] = b; sorted[side][high] = a; }
            }
        }
    __syncthreads();
    const int n_up = min(counts[0], max(n_new / 2, n_new - counts[1]));
    if (t < n_kept) out[t] = kept[t];
    if (t < n_new) {
        const int side = t >= n_up, at = 2047 - (int)(sorted[side][side ? t - n_up : t] & 0xffffffffu);
        out[n_kept + t] = places[side * n + at];
    }
}

// Of a working set, n_kept rows: those between their bounds first, and, of equals, the later ones; in their order.
extern "C" __global__ void __launch_bounds__(1024) keep(
    const long long* working, const double* beta, const double* low, const double* high, long long* kept, int n,
    int n_kept)
{
    __shared__ int free_in[32], stay_in[32];
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const bool inside = t < n, is_free = inside && beta[t] > low[t] && beta[t] < high[t];
    const unsigned mask = __ballot_sync(FULL, is_free);
    if (lane == 0) free_in[warp] = __popc(mask);
    __syncthreads();
    int later = __popc(mask >> lane >> 1), total = 0;  // free ones behind this one, and all
    for (int w = 0; w < 32; w++) { total += free_in[w]; later += w > warp ? free_in[w] : 0; }
    const bool stays = is_free ? later < n_kept : inside && (n - 1 - t - later) < n_kept - total;
    const unsigned those = __ballot_sync(FULL, stays);
    if (lane == 0) stay_in[warp] = __popc(those);
    __syncthreads();
    int before = __popc(those & ((1u << lane) - 1));
    for (int w = 0; w < warp; w++) before += stay_in[w];
    if (stays) kept[before] = working[t];
}

extern "C" __global__ void __launch_bounds__(WIDEST / ROWS) solve_pairs(
    const float* __restrict__ K, double* pull_, double* beta_, const double* low_, const double* high_,
    const double* tol_, const double* middle_, int n, int width, int max_steps, int* steps)
{
    __shared__ Shared all;
    __shared__ unsigned s_top[WARPS], s_bottom[WARPS], s_gain[WARPS];
    const int warp = threadIdx.x >> 5, first = ROWS * threadIdx.x;
    const double tol = *tol_, middle = *middle_;
    Rows my;
    load(my, all, K, pull_, beta_, low_, high_, middle, n, width);
    int count = 0, moved_i = WIDEST, moved_j = WIDEST;
    double beta_i = 0, beta_j = 0;
    for (; count < max_steps; count++) {
        float p[ROWS];
        unsigned top = 0, bottom = 0;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            p[r] = (float)my.pull[r];
            top = max(top, my.up[r] ? named(ordered(p[r]), first + r) : 0u);
            bottom = max(bottom, my.down[r] ? named(ordered(-p[r]), first + r) : 0u);
        }
        s_top[warp] = __reduce_max_sync(FULL, top);
        s_bottom[warp] = __reduce_max_sync(FULL, bottom);
        __syncthreads();
        if (moved_i / ROWS == threadIdx.x) all.beta[moved_i] = beta_i;
        if (moved_j / ROWS == threadIdx.x) all.beta[moved_j] = beta_j;
        top = most_of(s_top);
        bottom = most_of(s_bottom);
        const int i = top & 1023u;
        float Ki[ROWS], Kj[ROWS];
        line(K, i, width, Ki);
        if (top == 0u || bottom == 0u) break;
        share(my, all);
        const float diagonal_i = all.diagonal[i];
        const unsigned whole = top & ~1023u;  // of row i, but for the last bits, which are zeros
        const float highest = __int_as_float((whole & 0x80000000u) ? (int)(whole ^ 0x80000000u) : (int)~whole);
        unsigned gain = 0;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float difference = fmaxf(highest - p[r], 0.0f);
            const float bend = fmaxf(diagonal_i + my.diagonal[r] - 2.0f * Ki[r], 1e-12f);
            const float each = __fdividef(difference * difference, bend);
            gain = max(gain, my.down[r] && each > 0.0f ? named(__float_as_uint(each), first + r) : 0u);
        }
        s_gain[warp] = __reduce_max_sync(FULL, gain);
        __syncthreads();
        gain = most_of(s_gain);
        const int j = gain & 1023u;
        line(K, j, width, Kj);
        const double pull_i = all.pull[i];
        if (gain == 0u || pull_i - all.pull[bottom & 1023u] <= tol) break;
        const float curvature = fmaxf(diagonal_i + all.diagonal[j] - 2.0f * K[i * width + j], 1e-12f);
        const double before_i = all.beta[i], before_j = all.beta[j], high_i = all.high[i], low_j = all.low[j];
        const double room_i = high_i - before_i, room_j = before_j - low_j;
        const double wanted = (double)__fdividef((float)(pull_i - all.pull[j]), curvature);
        const double step = fmin(wanted, fmin(room_i, room_j));
        if (!(step > 0.0)) break;  // what is left is less than the rounding of the search
        #pragma unroll
        for (int r = 0; r < ROWS; r++) my.pull[r] -= step * (double)(Ki[r] - Kj[r]);
        // Bounds are met exactly, not up to rounding. Others may still read what was: it is written behind a barrier.
        moved_i = i; beta_i = step == room_i ? high_i : before_i + step;
        moved_j = j; beta_j = step == room_j ? low_j : before_j - step;
        if (i / ROWS == threadIdx.x) mark(my, i, beta_i < high_i, beta_i > all.low[i]);
        if (j / ROWS == threadIdx.x) mark(my, j, beta_j < all.high[j], beta_j > low_j);
    }
    __syncthreads();
    if (moved_i / ROWS == threadIdx.x) all.beta[moved_i] = beta_i;
    if (moved_j / ROWS == threadIdx.x) all.beta[moved_j] = beta_j;
    store(my, all, pull_, beta_, middle, n);
    if (threadIdx.x == 0) *steps = count;
}

extern "C" __global__ void __launch_bounds__(WIDEST / ROWS) solve_singles(
    const float* __restrict__ K, double* pull_, double* beta_, const double* low_, const double* high_,
    const double* tol_, const double* middle_, int n, int width, int max_steps, int* steps)
{
    __shared__ Shared all;
    __shared__ unsigned s_gain[WARPS], s_force[WARPS];
    const int warp = threadIdx.x >> 5, first = ROWS * threadIdx.x;
    const double tol = *tol_;
    Rows my;
    load(my, all, K, pull_, beta_, low_, high_, 0.0, n, width);
    int count = 0;
    for (; count < max_steps; count++) {
        unsigned gain = 0, worst = 0;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float p = (float)my.pull[r];
            const float force = fmaxf(my.up[r] ? p : 0.0f, my.down[r] ? -p : 0.0f);
            const float each = __fdividef(force * force, my.diagonal[r]);
            worst = max(worst, force > 0.0f ? __float_as_uint(force) : 0u);
            gain = max(gain, force > 0.0f ? named(__float_as_uint(each), first + r) : 0u);
        }
        share(my, all);
        s_gain[warp] = __reduce_max_sync(FULL, gain);
        s_force[warp] = __reduce_max_sync(FULL, worst);
        __syncthreads();
        gain = most_of(s_gain);
        worst = most_of(s_force);
        if (gain == 0u || 2.0 * (double)__uint_as_float(worst) <= tol) break;
        const int i = gain & 1023u;
        float Ki[ROWS];
        line(K, i, width, Ki);
        const double before = all.beta[i], low = all.low[i], high = all.high[i];
        const double wanted = before + (double)__fdividef((float)all.pull[i], all.diagonal[i]);
        const double value = fmin(fmax(wanted, low), high), move = value - before;
        __syncthreads();
        if (i / ROWS == threadIdx.x) all.beta[i] = value;
        if (i / ROWS == threadIdx.x) mark(my, i, value < high, value > low);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) my.pull[r] -= move * (double)Ki[r];
    }
    store(my, all, pull_, beta_, 0.0, n);
    if (threadIdx.x == 0) *steps = count;
}
"""


@cache
def _compiled(name: str, rows_per_thread: int) -> Any:
    return torch.cuda._compile_kernel(f"#define ROWS {rows_per_thread}\n{_SOLVE}", name)


def choose(keys: torch.Tensor, places: torch.Tensor, kept: torch.Tensor, n_new: int) -> torch.Tensor:
    """The rows that are kept and the best of both sides: see the twin."""
    n = keys.shape[1]
    if n > _MOST_GROUPS or n_new > _LARGEST_BLOCK:
        raise ValueError(f"{n} groups, {n_new} rows: at most {_MOST_GROUPS} and {_LARGEST_BLOCK} are put in order.")
    out = torch.empty(len(kept) + n_new, dtype=torch.int64, device=keys.device)
    kernel = _compiled("choose", _ROWS_PER_THREAD)
    kernel(grid=(1, 1, 1), block=(1024, 1, 1), args=[keys, places, kept, out, n, len(kept), n_new])
    return out


def keep(working: torch.Tensor, beta: torch.Tensor, low: torch.Tensor, high: torch.Tensor, n_kept: int) -> torch.Tensor:
    """Rows of a working set that stay: see the twin."""
    out = torch.empty(n_kept, dtype=torch.int64, device=working.device)
    kernel = _compiled("keep", _ROWS_PER_THREAD)
    arrays = [working, beta, low.contiguous(), high.contiguous(), out]
    kernel(grid=(1, 1, 1), block=(1024, 1, 1), args=[*arrays, len(working), n_kept])
    return out


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
    """The problem of a working set of at most 1,024 rows: new ``beta``, new ``pull``, number of steps."""
    n = len(beta)
    if n > _LARGEST_BLOCK:
        raise ValueError(f"A working set of {n} rows: one thread block holds at most {_LARGEST_BLOCK}.")
    width = -(-n // 4) * 4
    K = K.contiguous() if width == n else torch.nn.functional.pad(K, (0, width - n))
    pull, beta = pull.clone(), beta.clone()
    steps = torch.zeros(1, dtype=torch.int32, device=beta.device)
    kernel = _compiled("solve_pairs" if is_tied else "solve_singles", _ROWS_PER_THREAD)
    arrays = [K, pull, beta, low.contiguous(), high.contiguous(), tol, middle]
    kernel(grid=(1, 1, 1), block=(_LARGEST_BLOCK // _ROWS_PER_THREAD, 1, 1), args=[*arrays, n, width, max_steps, steps])
    return beta, pull, steps[0]
