"""The rows of one rank, and linear passes over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import accurate, columns, csr, dense
from widemargin.compiled.hashes import keyed_sum
from widemargin.cores import each
from widemargin.data.pieces import each_piece, places_of, row_pieces, sum_of_pieces

if TYPE_CHECKING:
    from widemargin.kernels.protocol import KernelRows

_ENTRIES = 1 << 20  # of dense rows in a piece: about half a millisecond
_MIN_ROWS = 32  # in a piece, whose sum takes as long to add to others as a row
_SPARSE_ENTRIES = 1 << 18  # of sparse rows in a piece, and its rows at most
_SPARSE_PER_FEATURE = 4  # the same: adding up sums of all features must not cost more than they do
_BLAS_SPEED = 4  # multiplications of BLAS in the time of one of a plain loop
_MAX_GROUPS = 64  # of rows, whose second moments are formed side by side
_MIN_GROUP_ROWS = 1024
_MOMENT_ENTRIES = 1 << 23  # of all second moments that are held at once
_PANELS = 16  # of a second moment in a piece
_ADDED_COLUMNS = 1 << 14
_ROWS_PER_SUM = 4096  # sums of so many rows are added up: rounding errors grow with the length of a sum


@dataclass(frozen=True)
class Shard:
    """One rank's rows with their labels and weights, and the passes over them.

    Parameters
    ----------
    X : array, CSR matrix, or list of these
        Rows in float32 or float64, C-ordered; a list if they came in blocks. Never copied or joined. None stands for
        those of ``kernel_rows``, which may have to copy them when they are asked for.
    y : array
        -1.0 and +1.0 in a two-class problem; class numbers before.
    weight : array
        Multiplicity of each row.
    kernel_rows : KernelRows or None, default=None
        The kernel on these rows, shared by all problems on them.
    whole : tuple or None, default=None
        The shard that the rows of a two-class problem are some of, and their places there; None if they are all of it.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.api import Shard
    >>> shard = Shard(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, -1.0]), np.ones(2))
    >>> shard.scores(np.array([1.0, 1.0])), shard.combine(np.array([1.0, -1.0]))
    (array([3., 1.]), array([1., 1.]))
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    kernel_rows: KernelRows | None = None
    whole: tuple[Shard, np.ndarray | None] | None = field(default=None, repr=False, compare=False)

    @property
    def kernel(self) -> KernelRows:
        """The kernel on these rows, for solvers of kernel problems."""
        if self.kernel_rows is None:
            raise TypeError("This solver needs a kernel, and the shard has none: set kernel_rows.")
        return self.kernel_rows

    @cached_property
    def shared(self) -> dict[str, Any]:
        """What problems on these rows have in common, kept by those who compute it."""
        return {}

    @cached_property
    def blocks(self) -> list[Any]:
        X = self.kernel.X if self.X is None else self.X
        return X if isinstance(X, list) else [X]

    @cached_property
    def _edges(self) -> np.ndarray:
        """The first row of each block, and the number of rows."""
        if len(self.blocks) == 1:
            return np.array([0, self.blocks[0].shape[0]], np.intp)
        return np.concatenate([[0], np.cumsum([block.shape[0] for block in self.blocks])]).astype(np.intp)

    @cached_property
    def n_rows(self) -> int:
        return self.kernel.n_rows if self.X is None else sum(block.shape[0] for block in self.blocks)

    @cached_property
    def n_features(self) -> int:
        return self.kernel.n_features if self.X is None else int(self.blocks[0].shape[1])

    @cached_property
    def n_entries(self) -> int:
        """Numbers that are stored: the work of one pass."""
        return sum(int(block.nnz if _is_sparse(block) else block.size) for block in self.blocks)

    @property
    def is_sparse(self) -> bool:
        return _is_sparse(self.blocks[0])

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(*(block.dtype for block in self.blocks))

    def by_block(self, rows: np.ndarray) -> Iterator[tuple[Any, np.ndarray, slice]]:
        """For each block with some of the ascending ``rows``: block, rows inside it, and their slice of ``rows``."""
        cuts = np.searchsorted(rows, self._edges)
        for k, block in enumerate(self.blocks):
            if cuts[k] < cuts[k + 1]:
                inside = slice(cuts[k], cuts[k + 1])
                yield block, rows[inside] - self._edges[k], inside

    @cached_property
    def _cuts(self) -> list[_Cut]:
        """All rows in fixed pieces."""
        return [
            _Cut(k, slice(begin, end), slice(int(self._edges[k]) + begin, int(self._edges[k]) + end))
            for k, block in enumerate(self.blocks)
            for begin, end in _bounds(block)
        ]

    def _cuts_of(self, rows: np.ndarray, step: int | None = None) -> list[_Cut]:
        """Some ascending rows in fixed pieces, of ``step`` rows or of as many as make about as much work as others."""
        if step is None:
            per_row = 1 + self.n_entries // max(self.n_rows, 1)
            step = max(_MIN_ROWS, _ENTRIES // per_row)
            if self.is_sparse:
                step = max(_SPARSE_ENTRIES, _SPARSE_PER_FEATURE * self.n_features) // per_row + 1
        edges = np.searchsorted(rows, self._edges).tolist()
        return [
            _Cut(k, slice(None), slice(begin, min(begin + step, end)))
            for k, (first, end) in enumerate(itertools.pairwise(edges))
            for begin in range(first, end, step)
        ]

    def _pass(
        self, name: str, arguments: Callable[[int, slice], tuple[Any, ...]], module: ModuleType | None = None
    ) -> None:
        """A compiled pass over all rows; ``arguments`` gives those of a piece, from its number and its rows."""

        def do(k: int) -> None:
            block, inside, where = self._cuts[k]
            _call(module, name, self.blocks[block], inside, *arguments(k, where))

        each(do, range(len(self._cuts)), self.n_entries)

    def _pass_over(
        self, rows: np.ndarray, cuts: list[_Cut], name: str, arguments: Callable[[int, slice], tuple[Any, ...]],
        work_per_entry: float = 1.0,
    ) -> None:  # fmt: skip
        """A compiled pass over some ascending rows."""

        def do(k: int) -> None:
            block, inside, where = cuts[k]
            _call(None, name, self.blocks[block], inside, self._within(rows, cuts[k]), *arguments(k, where))

        each(do, range(len(cuts)), work_per_entry * self.n_entries * len(rows) / max(self.n_rows, 1))

    def _within(self, rows: np.ndarray, cut: _Cut) -> np.ndarray:
        """The rows of a piece, as places in its block."""
        return rows[cut.where] - self._edges[cut.block] if cut.block else rows[cut.where]

    def scores(self, w: np.ndarray) -> np.ndarray:
        """``X w`` in float64."""
        out = np.empty(self.n_rows)
        self._pass("scores", lambda _, where: (w, out[where]))
        return out

    def products(self, W: np.ndarray) -> np.ndarray:
        """``X W`` for a matrix, in the type of the rows."""
        W = np.ascontiguousarray(W, self.dtype)
        out = np.empty((self.n_rows, W.shape[1]), self.dtype)

        def do(k: int) -> None:
            number, inside, where = self._cuts[k]
            block = self.blocks[number]
            if _is_sparse(block):
                _call(None, "products", block, inside, W, out[where])
            else:
                np.matmul(block[inside], W, out=out[where])

        each(do, range(len(self._cuts)), self.n_entries * W.shape[1])
        return out

    def margins(self, w: np.ndarray, intercept: float) -> np.ndarray:
        """``y (X w + intercept)`` in float64."""
        out = np.empty(self.n_rows)

        def do(k: int) -> None:
            block, inside, where = self._cuts[k]
            part = out[where]
            _call(None, "scores", self.blocks[block], inside, w, part)
            part += intercept
            part *= self.y[where]

        each(do, range(len(self._cuts)), self.n_entries)
        return out

    def combine(self, mass: np.ndarray) -> np.ndarray:
        """``X' mass``, summed in float64."""
        parts, step = np.empty((len(self._cuts), self.n_features)), self._rows_per_sum
        self._pass("stepwise_combine", lambda k, where: (mass[where], step, parts[k]))
        return _added_up(parts)

    def combine_signs(self, mass: np.ndarray) -> np.ndarray:
        """:meth:`combine` over the rows of positive mass, and over those of negative mass."""
        parts, step = np.empty((len(self._cuts), 2, self.n_features)), self._rows_per_sum
        self._pass("combine_signs", lambda k, where: (mass[where], step, parts[k]))
        return _added_up(parts)

    @property
    def _rows_per_sum(self) -> int:
        return max(_ROWS_PER_SUM, self.n_features)  # adding up the sums costs no more than they do

    @property
    def combine_depth(self) -> int:
        """At most so many roundings are on the way of an entry of X to the result of :meth:`combine`."""
        largest = max(where.stop - where.start for _, _, where in self._cuts)
        return int(1 + min(largest, self._rows_per_sum) + -(-largest // self._rows_per_sum) + len(self._cuts))

    @property
    def n_sums(self) -> int:
        """At most so many numbers are added up where rows are, one after the other or in parts."""
        return self.n_rows + 2 * len(self._cuts)

    @property
    def scores_depth(self) -> int:
        """As :meth:`combine_depth`, for :meth:`scores`: the largest number of entries of a row."""
        if not self.is_sparse:
            return 1 + self.n_features
        longest = np.zeros(len(self._cuts), np.int64)
        self._pass("longest_row", lambda k, _: (longest[k : k + 1],))
        return 1 + int(longest.max(initial=0))

    def column_sizes(self) -> np.ndarray:
        """The largest size of an entry of each column; CSR blocks must be free of duplicates."""
        low, high = self.column_extremes()
        return np.maximum(np.maximum(np.abs(low), np.abs(high)), 0.0, out=low) if self.n_rows else np.zeros_like(low)

    def combine_rows(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i`` over ascending ``rows``, which alone are read."""
        cuts = self._cuts_of(rows)
        parts = np.empty((len(cuts), self.n_features))
        self._pass_over(rows, cuts, "combine_rows", lambda k, where: (mass[where], parts[k]))
        return _added_up(parts)

    def combine_sides(self, rows: np.ndarray, mass: np.ndarray, side: np.ndarray) -> np.ndarray:
        """:meth:`combine_rows` over those of the given rows whose side is 0, and over those whose side is 1."""
        cuts = self._cuts_of(rows)
        parts = np.empty((len(cuts), 2, self.n_features))
        self._pass_over(rows, cuts, "combine_sides", lambda k, where: (mass[where], side[where], parts[k]))
        return _added_up(parts)

    def curvature(self, rows: np.ndarray, mass: np.ndarray, v: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i (x_i . v)`` over ascending ``rows``."""
        cuts = self._cuts_of(rows)
        parts = np.empty((len(cuts), self.n_features))
        self._pass_over(rows, cuts, "curvature", lambda k, where: (mass[where], v, parts[k]), 2.0)
        return _added_up(parts)

    def second_moment(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i x_i'`` over ascending ``rows``, copying a few at a time."""
        d = self.n_features
        # Where features are many, few sums fit into memory, and their panels make enough pieces.
        n_groups = max(1, min(_MAX_GROUPS, _MOMENT_ENTRIES // max(d * d, 1)))
        cuts = self._cuts_of(rows, max(_MIN_GROUP_ROWS, -(-len(rows) // n_groups)))
        parts = np.empty((len(cuts), d, d))
        if self.is_sparse:
            self._pass_over(rows, cuts, "second_moment", lambda k, where: (mass[where], parts[k]), d)
            return _added_up(parts)
        n_panels = -(-d // dense.PANEL)
        tiles = [
            (k, first, min(first + _PANELS, n_panels))
            for first in reversed(range(0, n_panels, _PANELS))  # the longest first
            for k in range(len(cuts))
        ]

        def do(tile: tuple[int, int, int]) -> None:
            k, first, last = tile
            X, where = np.asarray(self.blocks[cuts[k].block]), cuts[k].where
            dense.second_moment_dense(X, self._within(rows, cuts[k]), mass[where], first, last, parts[k])

        each(do, tiles, len(rows) * d * d / _BLAS_SPEED, may_end=True)
        lower = np.tril(_added_up(parts))
        return np.asarray(lower + np.tril(lower, -1).T)

    def squared_norms(self) -> np.ndarray:
        """``||x_i||^2`` of every row."""
        out = np.empty(self.n_rows)
        self._pass("squared_norms", lambda _, where: (out[where],))
        return out

    def squared_distances(self, factor: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """``||factor (x_i - centre)||^2`` of every row; ``factor`` and ``centre`` have a number for each column."""
        out = np.empty(self.n_rows)
        self._pass("squared_distances", lambda _, where: (factor, centre, out[where]), columns)
        return out

    def column_extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest value of every column; CSR blocks must be free of duplicates."""
        low, high = np.full((2, len(self._cuts), self.n_features), np.inf)
        np.negative(high, out=high)
        self._pass("column_extremes", lambda k, _: (low[k], high[k]), columns)
        return low.min(axis=0), high.max(axis=0)

    def accurate_scores(self, w: np.ndarray, shift: float) -> np.ndarray:
        """``X w - shift`` with compensated sums, rounded once (``widemargin.compiled.accurate``)."""
        out = np.empty(self.n_rows)
        self._pass("accurate_scores", lambda _, where: (w, shift, out[where]), accurate)
        return out

    def accurate_sums(self, mass: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``X' mass`` of the rows of side 0 and of side 1, as two arrays of shape (2, n_features) for one sum."""
        highs, lows = np.zeros((2, len(self._cuts), 2, self.n_features))
        self._pass("add_accurately", lambda k, where: (mass[where], side[where], highs[k], lows[k]), accurate)
        high, low = highs[0], lows[0]
        for its_high, its_low in zip(highs[1:], lows[1:], strict=True):
            accurate.join_sums(its_high, its_low, high, low)
        return high, low

    def dense_rows(self, rows: np.ndarray) -> np.ndarray:
        """The given ascending rows as a dense float64 array."""
        out = np.empty((len(rows), self.n_features))
        self._pass_over(rows, self._cuts_of(rows), "take", lambda _, where: (out[where],))
        return out

    def dense_columns(self, columns: np.ndarray) -> np.ndarray:
        """The given columns, each once, of all rows as a dense float64 array."""
        out, chosen = np.empty((self.n_rows, len(columns))), columns
        if self.is_sparse:
            chosen = np.full(self.n_features, -1)
            chosen[columns] = np.arange(len(columns))
        self._pass("take_columns", lambda _, where: (chosen, out[where]))
        return out

    def row_hashes(self) -> np.ndarray:
        """A hash of every row; values count, not their storage."""
        out = np.empty(self.n_rows, np.uint64)
        self._pass("row_hashes", lambda _, where: (out[where],))
        return out

    def content_hash(self, numbers: np.ndarray) -> int:
        """A sum of hashes of rows, labels and weights, each keyed by its number, modulo 2 ** 64.

        Sums of shards add up to the sum of all rows, however they are divided; values count, not their storage.
        """
        hashes = self.row_hashes()

        def keyed(rows: slice) -> np.ndarray:
            return np.array([keyed_sum(hashes[rows], numbers[rows], self.y[rows], self.weight[rows])], np.uint64)

        return int(sum_of_pieces(keyed, self.n_rows)[0])

    def pieces(self) -> Iterator[tuple[Any, slice]]:
        """The blocks, and the slice of all rows that each holds."""
        for k, block in enumerate(self.blocks):
            yield block, slice(int(self._edges[k]), int(self._edges[k + 1]))

    def take(self, rows: np.ndarray) -> Shard:
        """A copy of the given ascending rows, with the kernel on them if there is one."""
        X, kernel_rows = self._rows_at(rows)
        return Shard(X, self.y[rows], self.weight[rows], kernel_rows)

    def _rows_at(self, rows: np.ndarray) -> tuple[Any, KernelRows | None]:
        """A copy of the given ascending rows, or the kernel on them."""
        if self.kernel_rows is not None:
            return None, self.kernel_rows.only(rows)
        if len(self.blocks) == 1:
            return _taken(self.blocks[0], rows), None
        pieces = [_taken(block, inside) for block, inside, _ in self.by_block(rows)] or [self.blocks[0][:0]]
        return pieces[0] if len(pieces) == 1 else pieces, None

    def against_rest(self, positive: int) -> Shard:
        """The same rows with the labels +1 for one class and -1 for all others."""
        signs = np.empty(self.n_rows)

        def do(rows: slice) -> None:
            signs[rows] = np.where(self.y[rows] == positive, 1.0, -1.0)

        each_piece(do, self.n_rows)
        return Shard(self.X, signs, self.weight, self.kernel_rows, (self, None))

    def _of_class(self, label: int) -> np.ndarray:
        """The ascending places of the rows of a class, which pairs share."""
        name = f"places of class {label}"
        if name not in self.shared:
            self.shared[name] = places_of(lambda rows: self.y[rows] == label, self.n_rows)
        places: np.ndarray = self.shared[name]
        return places

    def between(self, positive: int, negative: int) -> Shard:
        """The rows of two classes with the labels +1 and -1; copied only if there are other classes."""
        both = np.concatenate([self._of_class(positive), self._of_class(negative)])
        inside = np.sort(both, kind="stable")  # which merges what is sorted already
        if len(inside) == self.n_rows:
            return self.against_rest(positive)
        X, kernel_rows = self._rows_at(inside)
        signs = np.where(self.y[inside] == positive, 1.0, -1.0)
        return Shard(X, signs, self.weight[inside], kernel_rows, (self, inside))


def _is_sparse(block: Any) -> bool:
    return not isinstance(block, np.ndarray) and bool(sp.issparse(block))  # the latter takes long on few rows


class _Cut(NamedTuple):
    """A piece of the rows, within one block."""

    block: int  # its number
    inside: slice  # the rows of the block that are looked at
    where: slice  # the rows of this piece among those that the pass is over


def _bounds(block: Any) -> list[tuple[int, int]]:
    """Where the pieces of a block begin and end: about a millisecond of work each, and at least one."""
    n_rows, d = block.shape
    if not _is_sparse(block):
        step = max(_MIN_ROWS, _ENTRIES // max(d, 1))
        if n_rows <= step:
            return [(0, n_rows)]
        starts = list(range(0, n_rows, step))
    else:
        indptr = np.asarray(block.indptr)
        goals = np.arange(0, int(indptr[-1] - indptr[0]) + 1, max(_SPARSE_ENTRIES, _SPARSE_PER_FEATURE * d))
        by_entries = np.searchsorted(indptr, goals + indptr[0])
        edges = np.unique(np.concatenate([[0], by_entries, np.arange(0, max(n_rows, 1), _SPARSE_ENTRIES)]))
        starts = edges[edges < max(n_rows, 1)].tolist()
    return list(itertools.pairwise([*starts, n_rows]))


def _call(module: ModuleType | None, name: str, block: Any, rows: slice, *arguments: Any) -> None:
    """One compiled pass over rows of a block; the last arguments receive the result."""
    if not _is_sparse(block):
        getattr(module or dense, f"{name}_dense")(np.asarray(block)[rows], *arguments)
        return
    data, indices, indptr = csr_arrays(block)
    if rows.stop is not None:
        indptr = indptr[rows.start : rows.stop + 1]
    getattr(module or csr, f"{name}_csr")(data, indices, indptr, *arguments)


def _added_up(parts: np.ndarray) -> np.ndarray:
    """The sum of arrays, in their order."""
    if len(parts) == 1:
        return np.asarray(parts[0])
    total = np.zeros(parts.shape[1:])
    flat, lines = total.reshape(-1), parts.reshape(len(parts), total.size)

    def do(columns: slice) -> None:
        for line in lines:
            flat[columns] += line[columns]

    each(do, [slice(begin, begin + _ADDED_COLUMNS) for begin in range(0, total.size, _ADDED_COLUMNS)], parts.size)
    return total


def _taken(block: Any, rows: np.ndarray) -> Any:
    """A copy of the given rows of a block."""
    pieces = row_pieces(len(rows))
    if len(pieces) == 1 or not isinstance(block, np.ndarray | sp.csr_matrix | sp.csr_array):
        return block[rows]
    if isinstance(block, np.ndarray):
        out = np.empty((len(rows), block.shape[1]), block.dtype)
        each(lambda some: dense.take_dense(np.asarray(block), rows[some], out[some]), pieces, out.size)
        return out
    data, indices, indptr = csr_arrays(block)
    starts = np.zeros(len(rows) + 1, indptr.dtype)
    np.cumsum(indptr[rows + 1] - indptr[rows], out=starts[1:])
    taken, places = np.empty(int(starts[-1]), data.dtype), np.empty(int(starts[-1]), indices.dtype)
    each(
        lambda some: csr.take_sparse_csr(data, indices, indptr, rows[some], starts[some], taken, places),
        pieces,
        len(taken),
    )
    return type(block)((taken, places, starts), shape=(len(rows), block.shape[1]))


def csr_arrays(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of a CSR matrix, also of a memory-mapped one: Numba takes plain arrays only."""
    return np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr)


def view_rows(block: Any, begin: int, end: int) -> Any:
    """Rows ``begin`` to ``end`` as a view, also of a CSR matrix, whose slices are copies."""
    if not _is_sparse(block):
        return block[begin:end]
    inside = slice(block.indptr[begin], block.indptr[end])
    view = sp.csr_matrix((end - begin, block.shape[1]), dtype=block.dtype)
    # Set as attributes: the constructor copies arrays that are small parts of others.
    view.data, view.indices = block.data[inside], block.indices[inside]
    starts = block.indptr[begin : end + 1]
    view.indptr = starts - starts[0] if starts[0] else starts
    return view
