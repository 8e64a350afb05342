"""Kernel primitives on a torch device, a GPU above all: host arrays in, host arrays out; tensors in, tensors out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from widemargin.kernels import torch_tensors
from widemargin.kernels.arrays import Chosen, on_host, taken
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import TakenPoints
from widemargin.kernels.protocol import KernelRows, Lane, RowsOnDevice, T
from widemargin.kernels.torch_lockstep import KeptValues, Lockstep
from widemargin.kernels.torch_rows import KINDS, StoredRows, free_bytes
from widemargin.kernels.torch_tensors import Form, Side
from widemargin.kernels.vectors import group_size
from widemargin.ledger import Ledger

_TERMS_PER_TILE = 32  # of the narrowest tile of an exact sum
_MAX_HOST_ROWS = 1 << 16  # up to here the host has computed a sum about when the device has answered
_MAX_LANES, _LANES_SHARE, _COPIES_PER_LANE = 8, 0.25, 4  # runs at a time, the share of free memory that they take
_VALUES_AT_ONCE = 1 << 26  # in float64
_VECTORS_OF_LOCKSTEP = 24  # in memory at a time, for each problem
_ROUNDING = 2.0**-25  # of a number to float32, typically
_SAMPLE = 256  # rows whose kernel values are computed both ways, to measure the error of rounding


class PointsOnDevice:
    """:class:`Points` by their places on the device; the rows themselves are fetched when asked for."""

    def __init__(self, rows: RowsOnTorch, places: torch.Tensor) -> None:
        self.rows, self.places = rows, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, chosen: Any) -> PointsOnDevice:
        return PointsOnDevice(self.rows, self.places[chosen])

    @property
    def numbers(self) -> np.ndarray:
        return np.asarray(self.rows.numbers[self.places.cpu().numpy()])

    @property
    def X(self) -> Any:
        return on_host(taken(self.rows.X, self.places.cpu().numpy()))


@dataclass
class _Room:
    """Memory for rows of problems in one lane, each after the other, and what was built on it."""

    rows: RowsOnTorch
    built: Any = None


_lane: ContextVar[int | None] = ContextVar("lane", default=None)


@contextmanager
def _in_lane(number: int, lane: Lane) -> Iterator[None]:
    before = _lane.set(number)
    try:
        with lane():
            yield
    finally:
        _lane.reset(before)


class RowsOnTorch(RowsOnDevice):
    """A kernel on rows of a torch device; see :mod:`torch_rows` for how they are rounded."""

    dtype = np.float32

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        first: int | np.ndarray = 0,
        ledger: Ledger | None = None,
        n_everywhere: int | None = None,
        *,
        device: str = "cuda",
        precision: str = "float16",
    ) -> None:
        if kernel.function is not None or kernel.name not in KINDS:
            raise ValueError(
                f"kernel={kernel.name!r} is not among those that run on a GPU ({', '.join(KINDS)}): use device='cpu'."
            )
        super().__init__(kernel, X, first, ledger, n_everywhere)
        self.device = torch.device(device)
        self._primitives = _primitives(self.device)
        self._hinge: Any = ((None, None, None), None)  # tensors, and the function of their sums
        self._host_squares: np.ndarray | None = None
        self._widest = 0  # rows of the largest problem on some of these, where problems go on in lanes
        self._rooms: dict[int, _Room] = {}  # of each lane
        self._room: _Room | None = None  # that these rows are in
        self._kept: KeptValues | None = None
        self.stored = StoredRows(kernel, self.X, self.device, precision)
        self.largest_error, self.error = self._errors()
        self.width = int(self.X.shape[1])
        self.longest = float(self.stored.squared_norms().max().sqrt()) if self.n_rows else 0.0

    def lanes(self, n_rows: int) -> list[Lane]:
        """As many as the memory allows; a run takes a few copies of its rows in float64 for its certificate."""
        free = _LANES_SHARE * free_bytes(self.device) / (_COPIES_PER_LANE * 8 * max(n_rows * self.width, 1))
        n_lanes = int(min(max(free, 1), _MAX_LANES)) if self.stored.is_resident else 1
        self._widest = n_rows if self.stored.is_resident else 0
        return [partial(_in_lane, number, lane) for number, lane in enumerate(self._primitives.lanes(n_lanes))]

    def room(self, make: Callable[[KernelRows], T]) -> T:
        if self._room is None:
            return make(self)
        if self._room.built is None:
            self._room.built = make(self._room.rows)
        built: T = self._room.built
        return built

    def vector(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype=np.float64, order="C")).to(self.device)

    def vectors(self, several: list[np.ndarray]) -> torch.Tensor:
        return self.vector(np.stack(several))

    def places(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(rows, dtype=np.int64)).to(self.device)

    def host(self, values: torch.Tensor) -> np.ndarray:
        return np.array(values.cpu().numpy())

    def nonzero(self, values: torch.Tensor | np.ndarray) -> Any:
        return np.flatnonzero(values != 0) if isinstance(values, np.ndarray) else values.nonzero()[:, 0]

    @property
    def are_sums_on_host(self) -> bool:
        return self.n_rows <= _MAX_HOST_ROWS

    def hinge_sums(
        self, scores: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, scale: float, intercept: float
    ) -> np.ndarray:
        tensors = scores, y, weight
        if any(a is not b for a, b in zip(self._hinge[0], tensors, strict=True)):  # most calls have the same tensors
            self._hinge = tensors, self._primitives.HingeSums(*tensors)
        sums: np.ndarray = self._hinge[1](scale, intercept)
        return sums

    def points(self, rows: torch.Tensor | np.ndarray) -> Any:
        """For places on the device, points that stay there."""
        if isinstance(rows, np.ndarray):
            source = self.X.source(rows) if isinstance(self.X, Chosen) else (self.X, rows)
            return TakenPoints(*source, self.numbers[rows])
        return PointsOnDevice(self, rows)

    def only(self, rows: np.ndarray) -> RowsOnTorch:
        part = copy.copy(self)
        part.X, part.numbers, part._rounding = Chosen(self.X, rows), self.numbers[rows], {}
        if self.kernel.is_shift_invariant:
            part._host_squares = self._squares(np.empty(0))[rows]
        part._room = self._room_for(len(rows))
        part.stored = self.stored.only(rows, part.X, None if part._room is None else part._room.rows.stored)
        return part

    def _room_for(self, n_rows: int) -> _Room | None:
        """The room of the lane that this is called in, for rows whose working sets are chosen as in a full one."""
        lane = _lane.get()
        if lane is None or n_rows > self._widest or group_size(n_rows) != group_size(self._widest):
            return None
        if lane not in self._rooms:
            rows = copy.copy(self)
            rows._rooms, rows.ledger, rows._rounding = {}, Ledger(), {}
            rows.X = Chosen(self.X, np.zeros(self._widest, np.int64))
            rows.numbers = np.zeros(self._widest, np.int64)
            rows.stored = self.stored.zeros(self._widest, rows.X)
            self._rooms[lane] = _Room(rows)
        return self._rooms[lane]

    def keep_values(self, n_bytes: int, space: Any = None, *, is_tied: bool = False) -> bool:
        """In float32, from exact values; ``n_bytes`` is the most that they may take on the device.

        Where coefficients sum to zero, a number for each row and one for each column may be taken from all values: they
        become ``-0.5 ||phi_i - phi_j||^2``, which rounding leaves most of, even where all values are nearly equal.
        """
        n, width = self.n_rows, -(-self.n_rows // 4) * 4
        if not self.stored.is_resident or 4 * n * width > n_bytes:
            return False
        kept = torch.zeros((n, width), dtype=torch.float32, device=self.device) if space is None else space
        right, form = self._side(self.points(self.places(np.arange(n))), exact=True)
        half = 0.5 * self.error_terms(right.term)[0] ** 2 if is_tied else torch.zeros_like(right.term)
        few, squares = max(1, _VALUES_AT_ONCE // max(n, 1)), right.term.new_zeros(())
        for begin in range(0, n, few):
            lines = slice(begin, begin + few)
            values = torch_tensors.values(right[lines], right, form).sub_(half[lines, None]).sub_(half)
            kept[lines, :n] = values.to(torch.float32)
            squares += values.square_().sum()
        self.ledger.kernel_evaluations += n * n
        self._kept = KeptValues(kept, _ROUNDING * float(squares.sqrt()) / n)
        return True

    @property
    def space(self) -> torch.Tensor | None:
        return None if self._kept is None else self._kept.values

    @property
    def has_lockstep(self) -> bool:
        return self._kept is not None and self.kernel.is_positive

    def lockstep(
        self, labels: np.ndarray, weights: np.ndarray, which: np.ndarray, Cs: np.ndarray, size: int
    ) -> Lockstep:
        y, of_labels = self.vector(labels), self.places(which[:, 0])
        caps = self.vector(Cs)[:, None] * self.vector(weights)[self.places(which[:, 1])]
        assert self._kept is not None
        return Lockstep(self._primitives, self._kept, y[of_labels], y[of_labels] * caps, size)

    def lockstep_room(self, size: int) -> float:
        per_problem = 4 * size * size + _VECTORS_OF_LOCKSTEP * 8 * self.n_rows
        return _LANES_SHARE * free_bytes(self.device) / per_problem

    def cache(self, n_bytes: int) -> RowCache:
        """Empty: kernel rows are computed faster than they would be found."""
        return RowCache(self, 0)

    def times(self, points: Any, coef: Any, *, exact: bool = False) -> Any:
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        coef_here = torch.as_tensor(coef, dtype=torch.float64, device=self.device)
        side, form = self._side(points, exact=exact)
        blocks = self.stored.exact_rows() if exact else self.stored.rows()
        parts = [self._primitives.times(rows, side, coef_here, form) for rows in blocks]
        out = parts[0] if len(parts) == 1 else torch.cat(parts) if parts else coef_here[:0]
        return out.cpu().numpy() if isinstance(coef, np.ndarray) else out

    def rows(self, points: Any) -> np.ndarray:
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        side, form = self._side(points)
        values = torch.cat([self._primitives.values(rows, side, form) for rows in self.stored.rows()]).T
        return np.ascontiguousarray(values.cpu().numpy())

    def block(self, points: Any, *, exact: bool = False) -> Any:
        self.ledger.kernel_evaluations += len(points) ** 2
        side, form = self._side(points, exact=exact)
        values = self._primitives.values(side if exact else self.stored.left_of(side), side, form)
        return values if isinstance(points, PointsOnDevice) else values.cpu().numpy()

    def _diagonal(self, coef: Any) -> Any:
        diagonal = self.kernel.diagonal_of_norms(self.stored.squared_norms())
        return diagonal.cpu().numpy() if isinstance(coef, np.ndarray) else diagonal

    def _sum_depth(self, n_terms: float) -> float:
        return min(n_terms, torch_tensors.TERMS_PER_SUM) + n_terms / _TERMS_PER_TILE

    def _squares(self, coef: Any) -> Any:
        if isinstance(coef, np.ndarray) and self._host_squares is not None:
            return self._host_squares
        squares = torch.cat(
            [side.matrix.square().sum(dim=1) for side in self.stored.exact_rows()] or [self.vector(np.empty(0))]
        )
        if isinstance(coef, np.ndarray):
            self._host_squares = squares.cpu().numpy()
            return self._host_squares
        return squares

    def _side(self, points: Any, *, exact: bool = False) -> tuple[Side, Form]:
        """Points as the right side of a product, and how values are computed from it."""
        stored, own = self.stored, points.rows.stored if isinstance(points, PointsOnDevice) else None
        own = own if own is not None and own.form is stored.form else None  # rounded alike: these rows, or some of them
        if not exact:
            return stored.side_of(points.X) if own is None else own.at(points.places), stored.form
        X = points.X if own is None or own.given is None else own.given[points.places]
        return stored.exact_side_of(X), stored.exact_form

    def _errors(self) -> tuple[float, float]:
        """The largest and the typical error of a kernel value, measured on some rows."""
        some = np.linspace(0, self.n_rows - 1, min(self.n_rows, _SAMPLE)).astype(np.int64)
        points, before = self.points(self.places(some)), self.ledger.kernel_evaluations
        errors = (self.block(points, exact=True) - self.block(points)) if len(some) else torch.zeros((1, 1))
        self.ledger.kernel_evaluations = before
        largest, typical = torch.stack([errors.abs().max(), errors.square().mean().sqrt()]).tolist()
        return float(largest), max(float(typical), float(np.finfo(np.float32).eps) / 2)


def _primitives(device: torch.device) -> Any:
    if device.type != "cuda":
        return torch_tensors
    from widemargin.kernels import torch_cuda

    return torch_cuda
