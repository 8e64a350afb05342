"""The rows that one rank holds, and the linear passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk

from widemargin.compiled import csr, dense

if TYPE_CHECKING:
    from widemargin.kernels.protocol import KernelRows

# Rows turned into float64 at a time where BLAS needs a block: small enough to stay in the second-level cache.
_BLOCK_BYTES = 1 << 19
_LEAST_ROWS = 512  # in a block of a second moment, which is read and written once for each


@dataclass(frozen=True)
class Shard:
    """Rows with their labels and weights.

    ``X`` is a C-ordered dense array or a CSR matrix, of float32 or float64, or a list of such for rows that came in
    pieces; it is never copied or joined here. ``y`` holds -1.0 and +1.0 for a problem of two classes, or class numbers
    before such a problem is picked out. ``weight`` is the multiplicity of each row.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    kernel_rows: KernelRows | None = None  # shared by all problems on these rows

    @property
    def kernel(self) -> KernelRows:
        """The kernel on these rows, for solvers of kernel problems."""
        if self.kernel_rows is None:
            raise TypeError("This solver needs a kernel on the rows, and the shard has none.")
        return self.kernel_rows

    @cached_property
    def blocks(self) -> list[Any]:
        """The pieces that the rows came in."""
        return self.X if isinstance(self.X, list) else [self.X]

    @cached_property
    def _edges(self) -> np.ndarray:
        """Where each block begins, and where the last one ends."""
        return np.concatenate([[0], np.cumsum([block.shape[0] for block in self.blocks])]).astype(np.intp)

    @property
    def n_rows(self) -> int:
        return int(self._edges[-1])

    @property
    def n_features(self) -> int:
        return int(self.blocks[0].shape[1])

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.blocks[0]))

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(*(block.dtype for block in self.blocks))

    def by_block(self, rows: np.ndarray) -> Iterator[tuple[Any, np.ndarray, slice]]:
        """Blocks that hold some of the ascending ``rows``: their numbers there, and where they stand among ``rows``."""
        cuts = np.searchsorted(rows, self._edges)
        for k, block in enumerate(self.blocks):
            if cuts[k] < cuts[k + 1]:
                inside = slice(cuts[k], cuts[k + 1])
                yield block, rows[inside] - self._edges[k], inside

    def scores(self, w: np.ndarray) -> np.ndarray:
        """``X w`` in float64."""
        out = np.empty(self.n_rows)
        for k, block in enumerate(self.blocks):
            _pass("scores", block, w, out[self._edges[k] : self._edges[k + 1]])
        return out

    def combine(self, mass: np.ndarray) -> np.ndarray:
        """``X' mass``, summed in float64."""
        total, part = np.zeros((2, self.n_features))
        for k, block in enumerate(self.blocks):
            _pass("combine", block, mass[self._edges[k] : self._edges[k + 1]], part)
            total += part
        return total

    def combine_rows(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i`` over ascending ``rows``; reads no others."""
        total, part = np.zeros((2, self.n_features))
        for block, inside, where in self.by_block(rows):
            _pass("combine_rows", block, inside, mass[where], part)
            total += part
        return total

    def curvature(self, rows: np.ndarray, mass: np.ndarray, v: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i (x_i . v)`` over ascending ``rows``."""
        total, part = np.zeros((2, self.n_features))
        for block, inside, where in self.by_block(rows):
            _pass("curvature", block, inside, mass[where], v, part)
            total += part
        return total

    def second_moment(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i x_i'`` over ascending ``rows``; no second copy of the rows is ever held."""
        d = self.n_features
        total = np.zeros((d, d), order="C" if self.is_sparse else "F")
        for block, inside, where in self.by_block(rows):
            if sp.issparse(block):
                part = np.empty((d, d))
                _pass("second_moment", block, inside, mass[where], part)
                total += part
                continue
            step = max(_LEAST_ROWS, _BLOCK_BYTES // (8 * max(d, 1)))
            for sign in (1.0, -1.0):
                some = np.flatnonzero(sign * mass[where] > 0)
                for begin in range(0, len(some), step):
                    few = some[begin : begin + step]
                    taken = block[inside[few]] * np.sqrt(np.abs(mass[where][few]))[:, None]
                    total = dsyrk(sign, taken.T, 1.0, total, lower=1, overwrite_c=1)
        if self.is_sparse:
            return total
        diagonal = np.diag(total).copy()
        total += total.T  # the other triangle is empty
        np.fill_diagonal(total, diagonal)
        return total

    def squared_norms(self) -> np.ndarray:
        """``||x_i||^2`` of every row."""
        out = np.empty(self.n_rows)
        for k, block in enumerate(self.blocks):
            _pass("squared_norms", block, out[self._edges[k] : self._edges[k + 1]])
        return out

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

    def pieces(self) -> Iterator[tuple[Any, slice]]:
        """The blocks, and where the rows of each stand among all."""
        for k, block in enumerate(self.blocks):
            yield block, slice(int(self._edges[k]), int(self._edges[k + 1]))

    def take(self, rows: np.ndarray) -> Shard:
        """A copy of the given ascending rows."""
        pieces = [block[inside] for block, inside, _ in self.by_block(rows)] or [self.blocks[0][:0]]
        X = pieces[0] if len(pieces) == 1 else pieces
        return Shard(X, self.y[rows], self.weight[rows])

    def against_rest(self, positive: int) -> Shard:
        """The same rows, those of one class labelled +1 and all others -1."""
        return replace(self, y=np.where(self.y == positive, 1.0, -1.0))

    def between(self, positive: int, negative: int) -> Shard:
        """The rows of two classes, labelled +1 and -1; the same rows, uncopied, when there are no others."""
        inside = (self.y == positive) | (self.y == negative)
        y = np.where(self.y == positive, 1.0, -1.0)
        if inside.all():
            return replace(self, y=y)
        return replace(self, y=y).take(np.flatnonzero(inside))


def _pass(name: str, block: Any, *arguments: np.ndarray) -> None:
    """One compiled pass over a block; the last argument receives the result.

    Numba takes plain arrays only, so files mapped into memory are seen as such.
    """
    if sp.issparse(block):
        parts = (np.asarray(block.data), np.asarray(block.indices), np.asarray(block.indptr))
        getattr(csr, f"{name}_csr")(*parts, *arguments)
    else:
        getattr(dense, f"{name}_dense")(np.asarray(block), *arguments)


def view_rows(block: Any, begin: int, end: int) -> Any:
    """Rows ``begin`` to ``end`` without copying them; slicing a CSR matrix would."""
    if not sp.issparse(block):
        return block[begin:end]
    inside = slice(block.indptr[begin], block.indptr[end])
    view = sp.csr_matrix((end - begin, block.shape[1]), dtype=block.dtype)
    # Set one by one: the constructor copies arrays that are small parts of others.
    view.data, view.indices = block.data[inside], block.indices[inside]
    starts = block.indptr[begin : end + 1]
    view.indptr = starts - starts[0] if starts[0] else starts
    return view
