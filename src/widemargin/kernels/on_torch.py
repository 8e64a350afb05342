"""Kernel primitives on a torch device, a GPU above all.

The same as in :mod:`widemargin.kernels.on_cpu` for algorithms: host arrays in, host arrays out, and device vectors in,
device vectors out, so that an algorithm may keep its state there. Kernel values come from rows rounded to float16:

    r = scale * x - shift,   h = float16(r),   l = float16(r - h) for the columns that lose most by h alone,

where ``scale`` is a power of two (times 255, where the entries are 255ths), ``shift`` whole numbers (kernels of
differences only): whole numbers up to 2,048 and pixels lose nothing. Inner products are h.h' + h.l' + l.h', one product
of wider rows; their norms are those of h + l, so that the kernel is exact for rows moved by very little.
``precision="float32"`` gives every column that loses anything its l. What is asked for as ``exact`` is computed in
float64 from the rows as they were given.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from widemargin.kernels import torch_tensors
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.kernels.torch_tensors import LAPLACIAN, LINEAR, POLY, RBF, SIGMOID, Form, Side
from widemargin.ledger import Ledger

KINDS = {"rbf": RBF, "linear": LINEAR, "cosine": LINEAR, "poly": POLY, "sigmoid": SIGMOID, "laplacian": LAPLACIAN}
PRECISIONS = ("float16", "float32")
BLOCK = 1024  # rows of a working set: what one thread block holds
_ONE_255TH = 2e-5  # error of 255 times a multiple of 1/255, in float32
_LARGEST = 1024.0  # scaled entries: whole numbers and their differences up to twice this are exact in float16
_ROWS_AT_ONCE = 1 << 16  # that are prepared in float64, or brought from the host
_SAMPLE = 256  # rows whose kernel values are computed both ways, to tell the error of rounding
_SHARE = 0.8  # of the free memory of a device that rows may take
_LEAST_GROUPS = 1024  # of neighbouring rows, of which the worst of each is a candidate
_STAGING_BYTES, _THREADS = 32 << 20, 8  # on the way to a device
_LOG2E = math.log2(math.e)


class PointsThere:
    """Rows of a :class:`RowsOnTorch` by their places on the device; the rows themselves come when asked for."""

    def __init__(self, rows: RowsOnTorch, places: torch.Tensor) -> None:
        self.rows, self.places = rows, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, chosen: Any) -> PointsThere:
        return PointsThere(self.rows, self.places[chosen])

    @property
    def numbers(self) -> np.ndarray:
        return self.rows.numbers[self.places.cpu().numpy()]

    @property
    def X(self) -> Any:
        return self.rows.points(self.places.cpu().numpy()).X


class RowsOnTorch:
    """A kernel on rows that lie on a torch device, or, where they do not fit, pass through it in blocks."""

    dtype: Any = np.float32
    is_on_device = True

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
        self.kernel, self.device, self.precision = kernel, torch.device(device), precision
        self.X = _joined(X) if isinstance(X, list) else X
        self.numbers = first if isinstance(first, np.ndarray) else np.arange(first, first + self.X.shape[0])
        self.n_everywhere = n_everywhere
        self.ledger = ledger if ledger is not None else Ledger()
        self._primitives = _primitives(self.device)
        self._hinge: Any = None
        n_rows, width = self.X.shape
        room = _SHARE * free_bytes(self.device)
        exact, prepared = n_rows * width * _itemsize(self.X), 4 * n_rows * (width + 64)
        needed = 12 * 8 * n_rows + _ROWS_AT_ONCE * 24 * (width + 64) + 16 * BLOCK * (BLOCK + width)
        if needed > room:
            raise MemoryError(
                f"{n_rows:,} rows of {width:,} features need {needed / 2**30:.1f} GiB on {self.device} even in blocks, "
                f"and {room / 2**30:.1f} GiB may be used: use device='cpu', or fewer features."
            )
        self._is_here = needed + exact + prepared <= room
        self._given = self._brought(self.X) if self._is_here else None
        self._scale, self._shift, self._columns, self._split = self._representation()
        self._form = self._form_of(self._scale)
        self._rows, self._points = self._prepared_rows()
        self.largest_error, self.error = self._errors()

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    # -- vectors -----------------------------------------------------------------------------------------------------

    def vector(self, values: np.ndarray) -> torch.Tensor:
        """A number for each row, on the device."""
        return torch.from_numpy(np.array(values, dtype=np.float64, order="C")).to(self.device)

    def vectors(self, several: list[np.ndarray]) -> Any:
        """Several numbers for each row, side by side."""
        return torch.stack([self.vector(each) for each in several])

    @staticmethod
    def host(values: torch.Tensor) -> np.ndarray:
        """The same numbers here; a copy."""
        return values.cpu().numpy().copy()

    @staticmethod
    def nonzero(values: Any) -> Any:
        """Where a vector is not zero."""
        return np.flatnonzero(values) if isinstance(values, np.ndarray) else values.nonzero()[:, 0]

    def places(self, rows: np.ndarray) -> torch.Tensor:
        """Places of rows, on the device."""
        return torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.device)

    def repeated(self, step: Callable[[], None]) -> Callable[[int], None]:
        """The step so many times; it must change tensors where they are, and ask the device for nothing."""
        return self._primitives.Repeated(step, self.ledger)

    def hinge_sums(self, scores: Any, y: Any, weight: Any, scale: float, intercept: float) -> np.ndarray:
        """See :func:`widemargin.problems.hinge_l2.hinge_sums`; many are asked for with the same tensors."""
        tensors = (scores, y, weight)
        if self._hinge is None or any(a is not b for a, b in zip(self._hinge[0], tensors, strict=True)):
            self._hinge = tensors, self._primitives.HingeSums(*tensors)
        return self._hinge[1](scale, intercept)

    def working_set(
        self, response: Any, y: Any, beta: Any, low: Any, high: Any, kept: Any, middle: Any, size: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The rows that are kept, and those that pull most towards where they may go, half of them up and half down.

        Only the worst of a few neighbouring rows is looked at, and each row on one side alone: one that may go both
        ways on that side of ``middle`` that it pulls to. Where one side has not enough, the other has more. With the
        rows go the largest pull of any that may rise and the least of any that may fall. Nothing waits for the device.
        """
        is_kept = torch.zeros(self.n_rows, dtype=torch.bool, device=self.device)
        is_kept.index_fill_(0, kept, True)
        keys, places, top, bottom = self._primitives.scan(
            response, y, beta, low, high, is_kept, middle, self._neighbours()
        )
        if size >= self.n_rows:
            return torch.arange(self.n_rows, device=self.device), top, bottom
        return self._primitives.choose(keys, places, kept, size - len(kept)), top, bottom

    def _neighbours(self) -> int:
        """How many rows are looked at together: a power of two that leaves enough groups."""
        size = 1
        while self.n_rows // (2 * size) >= _LEAST_GROUPS:
            size *= 2
        return size

    def kept(self, working: Any, beta: Any, low: Any, high: Any, size: int) -> torch.Tensor:
        """Rows of a working set that stay in it: those between their bounds first, and, of equals, the later ones."""
        return self._primitives.keep(working, beta, low, high, size)

    # -- kernel values -----------------------------------------------------------------------------------------------

    def points(self, rows: Any) -> Any:
        """The given rows: where they are, for places on the device; as they were given, for places on the host."""
        if isinstance(rows, np.ndarray):
            X = self.X[torch.from_numpy(rows).to(self.X.device)].cpu().numpy() if _is_tensor(self.X) else self.X[rows]
            return Points(X, self.numbers[rows])
        return PointsThere(self, rows)

    def only(self, rows: np.ndarray) -> RowsOnTorch:
        """The same kernel on some of the rows."""
        part = copy.copy(self)
        there = torch.from_numpy(np.asarray(rows, dtype=np.int64))
        part.X = self.X[there.to(self.X.device)] if _is_tensor(self.X) else self.X[rows]
        part.numbers = self.numbers[rows]
        if self._given is not None:
            part._given = self._given[there.to(self.device)]
        part._rows, part._points = (side[there.to(side.term.device)] for side in (self._rows, self._points))
        return part

    def cache(self, n_bytes: int) -> NoCache:
        """Kernel rows are made faster than they would be found."""
        return NoCache(self)

    def times(self, points: Any, coef: Any, *, exact: bool = False) -> Any:
        """``sum_j coef_j k(x_i, z_j)`` for every row in float64; ``exact`` computes the kernel in float64 too.

        Several columns of coefficients give as many columns of sums. The answer is where the coefficients are.
        """
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        there = torch.as_tensor(coef, dtype=torch.float64, device=self.device)
        if exact:
            form, side = self._form_of(1.0), self._exact_side(self._given_points(points))
            parts = [self._primitives.times(rows, side, there, form) for rows in self._exact_rows()]
        else:
            side = self._side(points)
            parts = [self._primitives.times(rows, side, there, self._form) for rows in self._here(self._rows)]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.cpu().numpy() if isinstance(coef, np.ndarray) else out

    def rows(self, points: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Kernel values of points (down) with all rows (across), on the host."""
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        side = self._side(points)
        parts = [self._primitives.values(rows, side, self._form) for rows in self._here(self._rows)]
        values = torch.cat(parts).T.cpu().numpy()
        if out is None:
            return np.ascontiguousarray(values)
        out[:] = values
        return out

    def block(self, points: Any, out: np.ndarray | None = None, *, exact: bool = False) -> Any:
        """Kernel values between all of some points: on the device for points there, on the host for others."""
        self.ledger.kernel_evaluations += len(points) ** 2
        if exact:
            side = self._exact_side(self._given_points(points))
            values = self._primitives.values(side, side, self._form_of(1.0))
        else:
            right = self._side(points)
            values = self._primitives.values(self._left_of(right), right, self._form)
        if isinstance(points, PointsThere):
            return values
        if out is None:
            return values.cpu().numpy()
        out[:] = values.cpu().numpy()
        return out

    def diagonal_of(self, points: Any) -> np.ndarray:
        """``k(z, z)`` of every point, in float64."""
        return RowsOnCPU(self.kernel, np.empty((0, self.X.shape[1]))).diagonal_of(Points(points.X, points.numbers))

    def solve_block(
        self, K: Any, pull: Any, beta: Any, low: Any, high: Any, tol: Any, middle: Any, is_tied: bool, max_steps: int
    ) -> tuple[Any, Any, Any]:
        """Solve the dual of a working set on the device: new ``beta``, new ``pull``, and the number of steps."""
        return self._primitives.solve(K, pull, beta, low, high, tol, middle, is_tied, max_steps)

    def _errors(self) -> tuple[float, float]:
        """The largest and the typical error of a kernel value of some rows, beside float64 and the rows as given."""
        some = np.linspace(0, self.n_rows - 1, min(self.n_rows, _SAMPLE)).astype(np.int64)
        points, before = self.points(self.places(some)), self.ledger.kernel_evaluations
        errors = (self.block(points, exact=True) - self.block(points)) if len(some) else torch.zeros((1, 1))
        self.ledger.kernel_evaluations = before
        largest, typical = torch.stack([errors.abs().max(), errors.square().mean().sqrt()]).tolist()
        return float(largest), max(float(typical), float(np.finfo(np.float32).eps) / 2)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _form_of(self, scale: float) -> Form:
        """What becomes of products of rows that were multiplied by ``scale``."""
        kernel, square = self.kernel, scale * scale
        gamma = 1.0 if isinstance(kernel.gamma, str) else float(kernel.gamma)
        if kernel.name == "rbf":
            return Form(RBF, 2 * gamma * _LOG2E / square)
        if kernel.name == "laplacian":
            return Form(LAPLACIAN, -gamma * _LOG2E / scale)
        if kernel.name in ("linear", "cosine"):
            return Form(LINEAR, 1 / square)
        return Form(KINDS[kernel.name], gamma / square, kernel.coef0, kernel.degree)

    def _brought(self, X: Any) -> torch.Tensor:
        """Rows on the device, dense, in the type that they have."""
        if _is_tensor(X):
            return X.to(self.device)
        if not sp.issparse(X):
            return _uploaded(X, self.device)
        indptr, indices, data = (torch.from_numpy(np.asarray(each)).to(self.device) for each in _csr(X))
        lines = torch.repeat_interleave(torch.arange(X.shape[0], device=self.device), indptr.diff())
        out = torch.zeros(X.shape, dtype=data.dtype, device=self.device)
        out[lines, indices.to(torch.int64)] = data
        return out

    def _in_pieces(self, X: Any, *, is_exact: bool = True) -> Iterator[torch.Tensor]:
        """The rows on the device, some at a time, in float64 or else in their type; of length one, for the cosine."""
        for begin in range(0, X.shape[0], _ROWS_AT_ONCE):
            piece = self._brought(X[begin : begin + _ROWS_AT_ONCE])
            piece = piece.to(torch.float64) if is_exact else piece
            if self.kernel.name == "cosine":
                lengths = piece.norm(dim=1, keepdim=True)
                piece = piece / torch.where(lengths > 0, lengths, 1.0)
            yield piece

    def _representation(self) -> tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Scale, shift, the columns that are not zero in all rows, and, of these, those that get a second number."""
        source = self._given if self._given is not None else self.X
        n, width = self.X.shape
        ends, sums = self.vectors([np.full(width, np.inf), np.full(width, -np.inf)]), self.vector(np.zeros(width))
        off = self.vector(np.array(0.0))  # how far an entry may be from a multiple of 1/255, in these
        for piece in self._in_pieces(source, is_exact=self.kernel.name == "cosine"):
            ends[0] = torch.minimum(ends[0], piece.amin(dim=0))
            ends[1] = torch.maximum(ends[1], piece.amax(dim=0))
            sums += piece.sum(dim=0, dtype=torch.float64)
            piece = 255 * piece
            off = torch.maximum(off, (piece - torch.round(piece)).abs_().max())
        ends = ends if n else torch.zeros_like(ends)
        top, off_by = torch.stack([ends.abs().max(), off]).tolist()
        if not np.isfinite(top):
            raise ValueError("Input X contains NaN or infinity.")
        base = 255.0 if off_by <= _ONE_255TH and 1 / 255 <= top <= 1 else 1.0
        scale = base * 2.0 ** np.floor(np.log2(_LARGEST / (base * top))) if top > 0 else 1.0
        shift = torch.zeros(width, dtype=torch.float64, device=self.device)
        if self.kernel.is_shift_invariant and n:
            shift = torch.round(scale * sums / n)
        none, everything = self.places(np.empty(0)), torch.arange(width, device=self.device)
        if self.kernel.name == "laplacian":  # in float32, by distances
            return float(scale), shift, everything, none
        columns = everything[(scale * ends - shift).any(dim=0)]
        if base == 255.0:
            return float(scale), shift, columns, none
        lost = torch.zeros(width, dtype=torch.float64, device=self.device)
        for piece in self._in_pieces(source):
            r = scale * piece - shift
            lost += (r - r.to(torch.float16)).square_().sum(dim=0)
        room = width if self.precision == "float32" else (_padded(len(columns)) - len(columns)) // 2
        order = torch.argsort(lost[columns], descending=True)[:room]
        return float(scale), shift, columns, order[lost[columns][order] > 0].sort().values

    def _prepared(self, piece: torch.Tensor) -> tuple[Side, torch.Tensor]:
        """Rows in float64 as the inner loops read them on the left, and, on the right, the same in another order."""
        r = self._scale * piece - self._shift
        if self.kernel.name == "laplacian":
            r = r.to(torch.float32)
            return Side(r, torch.zeros(len(r), dtype=torch.float32, device=r.device)), r
        # A column that is zero in all rows adds to no product with them, and to the norms of points alone.
        elsewhere = (r * r).sum(dim=1) - (r[:, self._columns] ** 2).sum(dim=1)
        r = r[:, self._columns]
        high, width, n_split = r.to(torch.float16), r.shape[1], len(self._split)
        coarse = high[:, self._split]
        fine = (r[:, self._split] - coarse.to(torch.float64)).to(torch.float16)
        left = torch.zeros((len(r), _padded(width + 2 * n_split)), dtype=torch.float16, device=r.device)
        left[:, :width] = high
        right = left if n_split == 0 else left.clone()
        if n_split:
            first, second = slice(width, width + n_split), slice(width + n_split, width + 2 * n_split)
            left[:, first], left[:, second] = coarse, fine
            right[:, first], right[:, second] = fine, coarse
        # The norms of what the products are products of: l.l' is left out of them too.
        norms = elsewhere.clamp(min=0) + (left.to(torch.float64) * right.to(torch.float64)).sum(dim=1)
        return Side(left, (-0.5 * self._form.scale * norms).to(torch.float32)), right

    def _prepared_rows(self) -> tuple[Side, Side]:
        """All rows, on the device or else on the host, for either side of a product."""
        where = self.device if self._is_here else torch.device("cpu")
        lefts, rights, terms = [], [], []
        for piece in self._in_pieces(self._given if self._given is not None else self.X):
            left, right = self._prepared(piece)
            lefts.append(left.matrix.to(where))
            rights.append(lefts[-1] if right is left.matrix else right.to(where))
            terms.append(left.term.to(where))
        if not terms:
            left, right = self._prepared(torch.zeros((0, self.X.shape[1]), dtype=torch.float64, device=self.device))
            lefts, rights, terms = [left.matrix.to(where)], [right.to(where)], [left.term.to(where)]
        term, is_same = torch.cat(terms), all(a is b for a, b in zip(lefts, rights, strict=True))
        matrix = torch.cat(lefts) if len(lefts) > 1 else lefts[0]
        other = matrix if is_same else torch.cat(rights) if len(rights) > 1 else rights[0]
        return Side(matrix, term), Side(other, term)

    def _here(self, side: Side) -> Iterator[Side]:
        """Rows on the device: all at once, or block after block from the host."""
        if self._is_here:
            yield side
            return
        for begin in range(0, len(side), _ROWS_AT_ONCE):
            part = side[begin : begin + _ROWS_AT_ONCE]
            yield Side(part.matrix.to(self.device), part.term.to(self.device))

    def _side(self, points: Any) -> Side:
        """Points as the right side of a product."""
        if isinstance(points, PointsThere) and points.rows is self:
            side = self._points[points.places.to(self._points.term.device)]
            return Side(side.matrix.to(self.device), side.term.to(self.device))
        parts = [self._prepared(piece) for piece in self._in_pieces(points.X)]
        if not parts:
            return self._points[:0]
        return Side(torch.cat([right for _, right in parts]), torch.cat([left.term for left, _ in parts]))

    def _left_of(self, right: Side) -> Side:
        """The same points as the left side."""
        n_split = len(self._split)
        if not n_split:
            return right
        width, matrix = len(self._columns), right.matrix.clone()
        first, second = slice(width, width + n_split), slice(width + n_split, width + 2 * n_split)
        matrix[:, first], matrix[:, second] = right.matrix[:, second], right.matrix[:, first]
        return Side(matrix, right.term)

    def _given_points(self, points: Any) -> torch.Tensor:
        """Points in float64 on the device, from what was given."""
        if isinstance(points, PointsThere) and self._given is not None and points.rows is self:
            return torch.cat(list(self._in_pieces(self._given[points.places])) or [self._given[:0].to(torch.float64)])
        pieces = list(self._in_pieces(points.X))
        return torch.cat(pieces) if pieces else torch.zeros((0, self.X.shape[1]), dtype=torch.float64).to(self.device)

    def _exact_side(self, piece: torch.Tensor) -> Side:
        if self.kernel.is_shift_invariant:
            piece = piece - self._shift / self._scale
        term = -0.5 * self._form_of(1.0).scale * (piece * piece).sum(dim=1)
        return Side(piece if len(self._columns) == piece.shape[1] else piece[:, self._columns], term)

    def _exact_rows(self) -> Iterator[Side]:
        for piece in self._in_pieces(self._given if self._given is not None else self.X):
            yield self._exact_side(piece)


class NoCache:
    """The face of a store of kernel rows, without a store."""

    n_slots = 0

    def __init__(self, rows: RowsOnTorch) -> None:
        self._rows = rows

    def __contains__(self, number: int) -> bool:
        return False

    def times(self, points: Any, coef: np.ndarray) -> np.ndarray:
        self._rows.ledger.cache_misses += len(points)
        return self._rows.times(points, coef)


def resolved_there(kernel: Kernel, shard: Any, total: Any, weight: np.ndarray) -> Kernel:
    """The same kernel with a number for ``gamma``, for rows that are tensors; see :meth:`Kernel.resolved`."""
    if not isinstance(kernel.gamma, str) or not kernel.needs_gamma:
        return kernel
    X, gamma = shard.X, 1.0 / shard.n_features
    if kernel.gamma == "scale":
        mass = torch.from_numpy(np.ascontiguousarray(weight)).to(X.device)
        whole = float(mass.sum()) * X.shape[1]
        mean = float((mass @ X.to(torch.float64)).sum()) / whole
        variance = float(mass @ ((X.to(torch.float64) - mean) ** 2).sum(dim=1)) / whole
        gamma = gamma / variance if variance > 0 else 1.0
    return replace(kernel, gamma=float(gamma))


def free_bytes(device: torch.device) -> float:
    """What may still be taken of a device's memory."""
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else np.inf


def _primitives(device: torch.device) -> Any:
    if device.type != "cuda":
        return torch_tensors
    from widemargin.kernels import torch_cuda

    return torch_cuda


def _padded(width: int) -> int:
    """Columns of a product: a power of two up to 128, at least 64, which cost no more than fewer, then 64 by 64."""
    if width <= 128:
        return 64 if width <= 64 else 128
    return -(-width // 64) * 64


def _is_tensor(X: Any) -> bool:
    return isinstance(X, torch.Tensor)


def _itemsize(X: Any) -> int:
    return X.element_size() if _is_tensor(X) else X.dtype.itemsize


def _csr(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = sp.csr_matrix(X)
    return X.indptr, X.indices, X.data


def _joined(blocks: list[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)


_staging: list[torch.Tensor] = []


def _uploaded(X: np.ndarray, device: torch.device) -> torch.Tensor:
    """A dense array on the device, by way of memory that the device reads by itself, filled by several threads."""
    X = np.ascontiguousarray(X)
    if device.type != "cuda" or X.nbytes < _STAGING_BYTES:
        return torch.from_numpy(X).to(device)
    while len(_staging) < 2:
        _staging.append(torch.empty(_STAGING_BYTES, dtype=torch.uint8, pin_memory=True))
    out = torch.empty(X.shape, dtype=torch.from_numpy(X[:0]).dtype, device=device)
    flat, there = X.reshape(-1).view(np.uint8), out.view(-1).view(torch.uint8)
    ready = [torch.cuda.Event(), torch.cuda.Event()]
    slice_bytes = _STAGING_BYTES // _THREADS
    with ThreadPoolExecutor(_THREADS) as pool:
        for turn, begin in enumerate(range(0, len(flat), _STAGING_BYTES)):
            part, k = flat[begin : begin + _STAGING_BYTES], turn % 2
            ready[k].synchronize()  # what lay there has been read
            here = _staging[k].numpy()[: len(part)]
            cuts = [slice(first, first + slice_bytes) for first in range(0, len(part), slice_bytes)]
            list(pool.map(lambda cut, here=here, part=part: np.copyto(here[cut], part[cut]), cuts))
            there[begin : begin + len(part)].copy_(_staging[k][: len(part)], non_blocking=True)
            ready[k].record()
    return out
