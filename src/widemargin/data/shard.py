"""The rows of one rank, and linear passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk

from widemargin.compiled import accurate, columns, csr, dense
from widemargin.compiled.hashes import keyed_sum
from widemargin.pauses import pause_alone

if TYPE_CHECKING:
    from widemargin.kernels.protocol import KernelRows

_BLOCK_BYTES = 1 << 19  # of float64 rows passed to BLAS at a time, so that they stay in the L2 cache
_BLAS_SPEED = 8  # multiplications of BLAS, half of them for a triangle, in the time of one of a plain loop
_MIN_BLOCK_ROWS = 512  # since the second moment is read and written once per block
_ROWS_PER_SUM = 4096  # sums of so many rows are added up: rounding errors grow with the length of a sum


@dataclass(frozen=True)
class Shard:
    """One rank's rows with their labels and weights, and the passes over them.

    Parameters
    ----------
    X : array, CSR matrix, or list of these
        Rows in float32 or float64, C-ordered; a list if they came in blocks. Never copied or joined.
    y : array
        -1.0 and +1.0 in a two-class problem; class numbers before.
    weight : array
        Multiplicity of each row.
    kernel_rows : KernelRows or None, default=None
        The kernel on these rows, shared by all problems on them.

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

    @property
    def kernel(self) -> KernelRows:
        """The kernel on these rows, for solvers of kernel problems."""
        if self.kernel_rows is None:
            raise TypeError("This solver needs a kernel, and the shard has none: set kernel_rows.")
        return self.kernel_rows

    @cached_property
    def blocks(self) -> list[Any]:
        return self.X if isinstance(self.X, list) else [self.X]

    @cached_property
    def _edges(self) -> np.ndarray:
        """The first row of each block, and the number of rows."""
        return np.concatenate([[0], np.cumsum([block.shape[0] for block in self.blocks])]).astype(np.intp)

    @property
    def n_rows(self) -> int:
        return int(self._edges[-1])

    @property
    def n_features(self) -> int:
        return int(self.blocks[0].shape[1])

    @property
    def n_entries(self) -> int:
        """Numbers that are stored: the work of one pass."""
        return sum(int(block.nnz if sp.issparse(block) else block.size) for block in self.blocks)

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.blocks[0]))

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

    def scores(self, w: np.ndarray) -> np.ndarray:
        """``X w`` in float64."""
        out = np.empty(self.n_rows)
        for block, where in self.pieces():
            _pass("scores", block, w, out[where])
        return out

    def combine(self, mass: np.ndarray) -> np.ndarray:
        """``X' mass``, summed in float64."""
        total, part = np.zeros((2, self.n_features))
        for block, where in self.pieces():
            for begin in range(0, block.shape[0], self._rows_per_sum):
                few = view_rows(block, begin, min(begin + self._rows_per_sum, block.shape[0]))
                _pass("combine", few, mass[where][begin : begin + self._rows_per_sum], part)
                total += part
        return total

    @property
    def _rows_per_sum(self) -> int:
        return max(_ROWS_PER_SUM, self.n_features)  # adding up the sums costs no more than they do

    @property
    def combine_depth(self) -> int:
        """At most so many roundings are on the way of an entry of X to the result of :meth:`combine`."""
        n_sums = sum(-(-block.shape[0] // self._rows_per_sum) for block in self.blocks)
        return int(1 + min(self.n_rows, self._rows_per_sum) + n_sums)

    @property
    def scores_depth(self) -> int:
        """The same for :meth:`scores`: the largest number of entries of a row."""
        if not self.is_sparse:
            return 1 + self.n_features
        return 1 + max(int(np.diff(block.indptr).max(initial=0)) for block in self.blocks)

    def column_sizes(self) -> np.ndarray:
        """The largest size of an entry of each column."""
        sizes = np.zeros(self.n_features)
        for block, _ in self.pieces():
            for begin in range(0, block.shape[0], self._rows_per_sum):
                few = abs(view_rows(block, begin, min(begin + self._rows_per_sum, block.shape[0])))
                largest = few.max(axis=0)
                np.maximum(sizes, largest.toarray().ravel() if sp.issparse(few) else largest, out=sizes)
        return sizes

    def combine_rows(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i`` over ascending ``rows``, which alone are read."""
        return self._sum_over("combine_rows", rows, mass)

    def curvature(self, rows: np.ndarray, mass: np.ndarray, v: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i (x_i . v)`` over ascending ``rows``."""
        return self._sum_over("curvature", rows, mass, v)

    def _sum_over(self, name: str, rows: np.ndarray, mass: np.ndarray, *more: np.ndarray) -> np.ndarray:
        total, part = np.zeros((2, self.n_features))
        for block, inside, where in self.by_block(rows):
            _pass(name, block, inside, mass[where], *more, part)
            total += part
        return total

    def second_moment(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i x_i'`` over ascending ``rows``, copying one block at a time."""
        d = self.n_features
        total = np.zeros((d, d), order="C" if self.is_sparse else "F")
        for block, inside, where in self.by_block(rows):
            if sp.issparse(block):
                part = np.empty((d, d))
                _pass("second_moment", block, inside, mass[where], part)
                total += part
                continue
            step = max(_MIN_BLOCK_ROWS, _BLOCK_BYTES // (8 * max(d, 1)))
            for sign in (1.0, -1.0):
                some = np.flatnonzero(sign * mass[where] > 0)
                for begin in range(0, len(some), step):
                    few = some[begin : begin + step]
                    taken = block[inside[few]] * np.sqrt(np.abs(mass[where][few]))[:, None]
                    total = dsyrk(sign, taken.T, 1.0, total, lower=1, overwrite_c=1)
                    pause_alone(len(few) * d * d / _BLAS_SPEED)
        if self.is_sparse:
            return total
        diagonal = np.diag(total).copy()
        total += total.T  # dsyrk fills one triangle
        np.fill_diagonal(total, diagonal)
        return total

    def squared_norms(self) -> np.ndarray:
        """``||x_i||^2`` of every row."""
        out = np.empty(self.n_rows)
        for block, where in self.pieces():
            _pass("squared_norms", block, out[where])
        return out

    def squared_distances(self, factor: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """``||factor (x_i - centre)||^2`` of every row; ``factor`` and ``centre`` have a number for each column."""
        out = np.empty(self.n_rows)
        for block, where in self.pieces():
            _pass("squared_distances", block, factor, centre, out[where], module=columns)
        return out

    def column_extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest value of every column; CSR blocks must be free of duplicates."""
        low, high = np.full(self.n_features, np.inf), np.full(self.n_features, -np.inf)
        for block, _ in self.pieces():
            _pass("column_extremes", block, low, high, module=columns)
        return low, high

    def accurate_scores(self, w: np.ndarray, shift: float) -> np.ndarray:
        """``X w - shift`` with compensated sums, rounded once (``widemargin.compiled.accurate``)."""
        out = np.empty(self.n_rows)
        for block, where in self.pieces():
            _pass("accurate_scores", block, w, shift, out[where], module=accurate)
        return out

    def accurate_sums(self, mass: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``X' mass`` of the rows of side 0 and of side 1, as two arrays of shape (2, n_features) for one sum."""
        high, low = np.zeros((2, 2, self.n_features))
        for block, where in self.pieces():
            _pass("add_accurately", block, mass[where], side[where], high, low, module=accurate)
        return high, low

    def dense_rows(self, rows: np.ndarray) -> np.ndarray:
        """The given ascending rows as a dense float64 array."""
        out = np.empty((len(rows), self.n_features))
        for block, inside, where in self.by_block(rows):
            taken = block[inside]
            out[where] = taken.toarray() if sp.issparse(taken) else taken
        return out

    def dense_columns(self, columns: np.ndarray) -> np.ndarray:
        """The given columns of all rows as a dense float64 array."""
        out = np.empty((self.n_rows, len(columns)))
        for block, where in self.pieces():
            taken = block[:, columns]
            out[where] = taken.toarray() if sp.issparse(taken) else taken
        return out

    def content_hash(self, numbers: np.ndarray) -> int:
        """A sum of hashes of rows, labels and weights, each keyed by its number, modulo 2 ** 64.

        Sums of shards add up to the sum of all rows, however they are divided; values count, not their storage.
        """
        hashes = np.empty(self.n_rows, np.uint64)
        for block, where in self.pieces():
            _pass("row_hashes", block, hashes[where])
        return int(keyed_sum(hashes, numbers, self.y, self.weight))

    def pieces(self) -> Iterator[tuple[Any, slice]]:
        """The blocks, and the slice of all rows that each holds."""
        for k, block in enumerate(self.blocks):
            yield block, slice(int(self._edges[k]), int(self._edges[k + 1]))

    def take(self, rows: np.ndarray) -> Shard:
        """A copy of the given ascending rows, with the kernel on them if there is one."""
        if self.kernel_rows is not None:
            some = self.kernel_rows.only(rows)
            return Shard(some.X, self.y[rows], self.weight[rows], some)
        pieces = [block[inside] for block, inside, _ in self.by_block(rows)] or [self.blocks[0][:0]]
        X = pieces[0] if len(pieces) == 1 else pieces
        return Shard(X, self.y[rows], self.weight[rows])

    def against_rest(self, positive: int) -> Shard:
        """The same rows with the labels +1 for one class and -1 for all others."""
        return replace(self, y=np.where(self.y == positive, 1.0, -1.0))

    def between(self, positive: int, negative: int) -> Shard:
        """The rows of two classes with the labels +1 and -1; copied only if there are other classes."""
        inside = (self.y == positive) | (self.y == negative)
        shard = self.against_rest(positive)
        return shard if inside.all() else shard.take(np.flatnonzero(inside))


def _pass(name: str, block: Any, *arguments: Any, module: ModuleType | None = None) -> None:
    """One compiled pass over a block; the last arguments receive the result."""
    if sp.issparse(block):
        getattr(module or csr, f"{name}_csr")(*csr_arrays(block), *arguments)
    else:
        getattr(module or dense, f"{name}_dense")(np.asarray(block), *arguments)


def csr_arrays(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of a CSR matrix, also of a memory-mapped one: Numba takes plain arrays only."""
    return np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr)


def view_rows(block: Any, begin: int, end: int) -> Any:
    """Rows ``begin`` to ``end`` as a view, also of a CSR matrix, whose slices are copies."""
    if not sp.issparse(block):
        return block[begin:end]
    inside = slice(block.indptr[begin], block.indptr[end])
    view = sp.csr_matrix((end - begin, block.shape[1]), dtype=block.dtype)
    # Set as attributes: the constructor copies arrays that are small parts of others.
    view.data, view.indices = block.data[inside], block.indices[inside]
    starts = block.indptr[begin : end + 1]
    view.indptr = starts - starts[0] if starts[0] else starts
    return view
