"""Rows on a torch device, rounded to float16 for fast products.

    r = scale * x - shift,   h = float16(r),   l = float16(r - h) for the columns that lose most by h alone,

where ``scale`` is a power of two (times 255 if all entries are multiples of 1/255) and ``shift`` is made of integers (0
unless the kernel is shift-invariant). Integers up to 2,048 and pixels are exact. Inner products are h.h' + h.l' + l.h',
one product of wider rows; norms are those of h + l, so that the kernel is exact for rows moved by very little.
``precision="float32"`` gives an l to every column that loses anything. Exact values are computed in float64 from the
rows as given.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from widemargin.kernels.arrays import is_on_host
from widemargin.kernels.functions import Kernel
from widemargin.kernels.torch_tensors import LAPLACIAN, LINEAR, POLY, RBF, SIGMOID, Form, Side

KINDS = {"rbf": RBF, "linear": LINEAR, "cosine": LINEAR, "poly": POLY, "sigmoid": SIGMOID, "laplacian": LAPLACIAN}
BLOCK = 1024  # rows of a working set, as many as one thread block holds
_PIXEL_ERROR = 2e-5  # of 255 times a multiple of 1/255, in float32
_MAX_ENTRY = 1024.0  # after scaling: integers and their differences up to twice this are exact in float16
_ROWS_AT_ONCE = 1 << 16  # prepared in float64, or copied from the host
_MEMORY_SHARE = 0.8  # of the free memory of a device
_STAGING_BYTES, _COPY_THREADS = 32 << 20, 8
_LOG2E = math.log2(math.e)


class StoredRows:
    """Rows on the device if they fit; otherwise on the host, from where they pass through the device in blocks."""

    def __init__(self, kernel: Kernel, X: Any, device: torch.device, precision: str) -> None:
        self.kernel, self.device, self._X, self._precision = kernel, device, X, precision
        n_rows, width = X.shape
        free = _MEMORY_SHARE * free_bytes(device)
        needed = 12 * 8 * n_rows + _ROWS_AT_ONCE * 24 * (width + 64) + 16 * BLOCK * (BLOCK + width)
        if needed > free:
            raise MemoryError(
                f"{n_rows:,} rows of {width:,} features need {needed / 2**30:.1f} GiB on {device} even in blocks, and "
                f"{free / 2**30:.1f} GiB may be used: use device='cpu', or fewer features."
            )
        self.is_resident = needed + n_rows * width * X.dtype.itemsize + 4 * n_rows * (width + 64) <= free
        self.given = self._copied(X) if self.is_resident else None
        self._scale, self._shift, self._columns, self.split = self._format()
        self.form, self.exact_form = self._form_of(self._scale), self._form_of(1.0)
        self.left, self.right = self._prepared_rows()

    def only(self, rows: np.ndarray, X: Any, room: StoredRows | None = None) -> StoredRows:
        """Some of the rows, which are also given as ``X``; in memory of ``room``, whose other rows become zero."""
        part, places = copy.copy(self), torch.from_numpy(np.array(rows, dtype=np.int64))
        part._X = X
        places = places.to(self.left.term.device)  # that of the given rows too, if they are on the device
        if self.given is not None:
            part.given = self.given[places]
        is_one = self.right.matrix is self.left.matrix
        part.left = self.left[places] if room is None else _moved(self.left, places, room.left)
        if is_one:
            part.right = part.left
        else:
            part.right = self.right[places] if room is None else _moved(self.right, places, room.right)
        return part

    def zeros(self, n_rows: int, X: Any) -> StoredRows:
        """Memory for so many rows of this kind, which are named by ``X``; they have no exact values."""
        room = copy.copy(self)
        room._X, room.given = X, None
        room.left = _zeros_like(self.left, n_rows)
        room.right = room.left if self.right.matrix is self.left.matrix else _zeros_like(self.right, n_rows)
        return room

    def rows(self) -> Iterator[Side]:
        """All rows as left sides on the device, in one block or several."""
        if self.is_resident:
            yield self.left
            return
        for begin in range(0, len(self.left), _ROWS_AT_ONCE):
            yield self.left[begin : begin + _ROWS_AT_ONCE].to(self.device)

    def at(self, places: torch.Tensor) -> Side:
        return self.right[places.to(self.right.term.device)].to(self.device)

    def side_of(self, X: Any) -> Side:
        """Rows from elsewhere as a right side."""
        parts = [self._prepared(piece) for piece in self._pieces(X)]
        if not parts:
            return self.right[:0].to(self.device)
        return Side(torch.cat([right for _, right in parts]), torch.cat([left.term for left, _ in parts]))

    def left_of(self, right: Side) -> Side:
        """A right side as a left side: the split columns change places."""
        if not len(self.split):
            return right
        matrix, (first, second) = right.matrix.clone(), self._split_columns()
        matrix[:, first], matrix[:, second] = right.matrix[:, second], right.matrix[:, first]
        return Side(matrix, right.term)

    def exact_rows(self) -> Iterator[Side]:
        for piece in self._pieces(self._source):
            yield self._exact_side(piece)

    def exact_side_of(self, X: Any) -> Side:
        """Rows from elsewhere in float64."""
        pieces = list(self._pieces(X))
        empty = torch.zeros((0, self._X.shape[1]), dtype=torch.float64, device=self.device)
        return self._exact_side(torch.cat(pieces) if pieces else empty)

    def squared_norms(self) -> torch.Tensor:
        return torch.cat([piece.square().sum(dim=1) for piece in self._pieces(self._source)])

    @property
    def _source(self) -> Any:
        return self._X if self.given is None else self.given

    def _split_columns(self) -> tuple[slice, slice]:
        first, n_split = len(self._columns), len(self.split)
        return slice(first, first + n_split), slice(first + n_split, first + 2 * n_split)

    def _form_of(self, scale: float) -> Form:
        """How kernel values are computed from products of rows that were multiplied by ``scale``."""
        kernel, square = self.kernel, scale * scale
        gamma = 1.0 if isinstance(kernel.gamma, str) else float(kernel.gamma)
        if kernel.name == "rbf":
            return Form(RBF, 2 * gamma * _LOG2E / square)
        if kernel.name == "laplacian":
            return Form(LAPLACIAN, -gamma * _LOG2E / scale)
        if kernel.name in ("linear", "cosine"):
            return Form(LINEAR, 1 / square)
        return Form(KINDS[kernel.name], gamma / square, kernel.coef0, kernel.degree)

    def _copied(self, X: Any) -> torch.Tensor:
        """Rows on the device, dense, in the type that they have."""
        if not is_on_host(X):
            return X.to(self.device)
        if not sp.issparse(X):
            return _uploaded(X, self.device)
        X = sp.csr_matrix(X)
        indptr, indices, data = (torch.from_numpy(each).to(self.device) for each in (X.indptr, X.indices, X.data))
        lines = torch.repeat_interleave(torch.arange(X.shape[0], device=self.device), indptr.diff())
        out = torch.zeros(X.shape, dtype=data.dtype, device=self.device)
        out[lines, indices.to(torch.int64)] = data
        return out

    def _pieces(self, X: Any, *, is_exact: bool = True) -> Iterator[torch.Tensor]:
        """Rows on the device, some at a time, in float64 or else in their own type; normalised for the cosine."""
        for begin in range(0, X.shape[0], _ROWS_AT_ONCE):
            piece = self._copied(X[begin : begin + _ROWS_AT_ONCE])
            piece = piece.to(torch.float64) if is_exact else piece
            if self.kernel.name == "cosine":
                lengths = piece.norm(dim=1, keepdim=True)
                piece = piece / torch.where(lengths > 0, lengths, 1.0)
            yield piece

    def _format(self) -> tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Scale, shift, the columns that are not zero in all rows, and which of these are split in two numbers."""
        n, width = self._X.shape
        options = {"dtype": torch.float64, "device": self.device}
        low, high = (torch.full((width,), end, **options) for end in (torch.inf, -torch.inf))
        sums = torch.zeros(width, **options)
        off = torch.zeros((), **options)  # largest distance of an entry from a multiple of 1/255, times 255
        for piece in self._pieces(self._source, is_exact=self.kernel.name == "cosine"):
            low, high = torch.minimum(low, piece.amin(dim=0)), torch.maximum(high, piece.amax(dim=0))
            sums += piece.sum(dim=0, dtype=torch.float64)
            piece = 255 * piece
            off = torch.maximum(off, (piece - torch.round(piece)).abs_().max())
        ends = torch.stack([low, high]) if n else torch.zeros((2, width), **options)
        top, off_by = torch.stack([ends.abs().max(), off]).tolist()
        if not np.isfinite(top):
            raise ValueError("Input X contains NaN or infinity.")
        base = 255.0 if off_by <= _PIXEL_ERROR and 1 / 255 <= top <= 1 else 1.0
        scale = float(base * 2.0 ** np.floor(np.log2(_MAX_ENTRY / (base * top)))) if top > 0 else 1.0
        shift = torch.zeros(width, **options)
        if self.kernel.is_shift_invariant and n:
            shift = torch.round(scale * sums / n)
        columns = torch.arange(width, device=self.device)
        if self.kernel.name == "laplacian":  # computed in float32, from distances
            return scale, shift, columns, columns[:0]
        columns = columns[(scale * ends - shift).any(dim=0)]
        if base == 255.0:
            return scale, shift, columns, columns[:0]
        lost = torch.zeros(width, **options)
        for piece in self._pieces(self._source):
            r = scale * piece - shift
            lost += (r - r.to(torch.float16)).square_().sum(dim=0)
        free = width if self._precision == "float32" else (_padded(len(columns)) - len(columns)) // 2
        order = torch.argsort(lost[columns], descending=True)[:free]
        return scale, shift, columns, order[lost[columns][order] > 0].sort().values

    def _prepared(self, piece: torch.Tensor) -> tuple[Side, torch.Tensor]:
        """Rows in float64 as a left side, and the matrix of the right side, with split columns in another order."""
        r = self._scale * piece - self._shift
        if self.kernel.name == "laplacian":
            r = r.to(torch.float32)
            return Side(r, torch.zeros(len(r), dtype=torch.float32, device=r.device)), r
        # A column that is zero in all rows does not change products, only the norms of points from elsewhere.
        other_norms = (r * r).sum(dim=1) - (r[:, self._columns] ** 2).sum(dim=1)
        r = r[:, self._columns]
        high, width, n_split = r.to(torch.float16), r.shape[1], len(self.split)
        coarse = high[:, self.split]
        fine = (r[:, self.split] - coarse.to(torch.float64)).to(torch.float16)
        left = torch.zeros((len(r), _padded(width + 2 * n_split)), dtype=torch.float16, device=r.device)
        left[:, :width] = high
        right = left
        if n_split:
            right, (first, second) = left.clone(), self._split_columns()
            left[:, first], left[:, second] = coarse, fine
            right[:, first], right[:, second] = fine, coarse
        # Norms of what is multiplied: products leave out l.l' too.
        norms = other_norms.clamp(min=0) + (left.to(torch.float64) * right.to(torch.float64)).sum(dim=1)
        return Side(left, (-0.5 * self.form.scale * norms).to(torch.float32)), right

    def _prepared_rows(self) -> tuple[Side, Side]:
        """All rows for either side of a product, on the device or else on the host."""
        where = self.device if self.is_resident else torch.device("cpu")
        empty = torch.zeros((0, self._X.shape[1]), dtype=torch.float64, device=self.device)
        lefts, rights = [], []
        for piece in self._pieces(self._source) if self._X.shape[0] else [empty]:
            left, right = self._prepared(piece)
            lefts.append(left.to(where))
            rights.append(lefts[-1].matrix if right is left.matrix else right.to(where))
        term = torch.cat([left.term for left in lefts])
        matrix = torch.cat([left.matrix for left in lefts]) if len(lefts) > 1 else lefts[0].matrix
        if all(left.matrix is right for left, right in zip(lefts, rights, strict=True)):
            return Side(matrix, term), Side(matrix, term)
        return Side(matrix, term), Side(torch.cat(rights) if len(rights) > 1 else rights[0], term)

    def _exact_side(self, piece: torch.Tensor) -> Side:
        if self.kernel.is_shift_invariant:
            piece = piece - self._shift / self._scale
        term = -0.5 * self.exact_form.scale * (piece * piece).sum(dim=1)
        return Side(piece if len(self._columns) == piece.shape[1] else piece[:, self._columns], term)


def _zeros_like(side: Side, n_rows: int) -> Side:
    return Side(side.matrix.new_zeros((n_rows, side.matrix.shape[1])), side.term.new_zeros(n_rows))


def _moved(side: Side, places: torch.Tensor, room: Side) -> Side:
    """The rows at these places, as the first of ``room``."""
    n = len(places)
    for source, target in ((side.matrix, room.matrix), (side.term, room.term)):
        torch.index_select(source, 0, places, out=target[:n])
        target[n:] = 0
    return room[:n]


def free_bytes(device: torch.device) -> float:
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else np.inf


def _padded(width: int) -> int:
    """Columns of a product: 64 or 128, since fewer cost the same, then a multiple of 64."""
    return 64 if width <= 64 else 128 if width <= 128 else -(-width // 64) * 64


_staging: list[torch.Tensor] = []  # pinned memory, which the device reads directly


def _uploaded(X: np.ndarray, device: torch.device) -> torch.Tensor:
    """A dense array on the device, by way of pinned memory that several threads fill."""
    X = np.ascontiguousarray(X)
    if device.type != "cuda" or X.nbytes < _STAGING_BYTES:
        return torch.from_numpy(X).to(device)
    while len(_staging) < 2:
        _staging.append(torch.empty(_STAGING_BYTES, dtype=torch.uint8, pin_memory=True))
    out = torch.empty(X.shape, dtype=torch.from_numpy(X[:0]).dtype, device=device)
    source, target = X.reshape(-1).view(np.uint8), out.view(-1).view(torch.uint8)
    ready = [torch.cuda.Event(), torch.cuda.Event()]
    slice_bytes = _STAGING_BYTES // _COPY_THREADS
    with ThreadPoolExecutor(_COPY_THREADS) as pool:
        for turn, begin in enumerate(range(0, len(source), _STAGING_BYTES)):
            part, k = source[begin : begin + _STAGING_BYTES], turn % 2
            ready[k].synchronize()  # its last content has been read
            staged = _staging[k].numpy()[: len(part)]
            cuts = [slice(first, first + slice_bytes) for first in range(0, len(part), slice_bytes)]
            list(pool.map(lambda cut, staged=staged, part=part: np.copyto(staged[cut], part[cut]), cuts))
            target[begin : begin + len(part)].copy_(_staging[k][: len(part)], non_blocking=True)
            ready[k].record()
    return out
