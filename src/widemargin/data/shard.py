"""The rows that one rank holds, and the linear passes over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import csr, dense

# Rows turned into float64 at a time where BLAS needs a block: small enough to stay in the second-level cache.
_BLOCK_BYTES = 1 << 19


@dataclass(frozen=True)
class Shard:
    """Rows with their labels and weights.

    ``X`` is a C-ordered dense array or a CSR matrix, of float32 or float64, and is never copied here. ``y`` holds
    -1.0 and +1.0 for a problem of two classes, or class numbers before such a problem is picked out. ``weight`` is the
    multiplicity of each row.
    """

    X: Any  # ndarray or csr_matrix
    y: np.ndarray
    weight: np.ndarray

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.X)

    def _pass(self, name: str, *arguments: np.ndarray) -> None:
        """One compiled pass over the rows; the last argument receives the result."""
        if self.is_sparse:
            getattr(csr, f"{name}_csr")(self.X.data, self.X.indices, self.X.indptr, *arguments)
        else:
            getattr(dense, f"{name}_dense")(self.X, *arguments)

    def scores(self, w: np.ndarray) -> np.ndarray:
        """``X w`` in float64."""
        out = np.empty(self.n_rows)
        self._pass("scores", w, out)
        return out

    def combine(self, mass: np.ndarray) -> np.ndarray:
        """``X' mass``, summed in float64."""
        out = np.empty(self.n_features)
        self._pass("combine", mass, out)
        return out

    def combine_rows(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i`` over ``rows``; reads no others."""
        out = np.empty(self.n_features)
        self._pass("combine_rows", rows, mass, out)
        return out

    def curvature(self, rows: np.ndarray, mass: np.ndarray, v: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i (x_i . v)`` over ``rows``."""
        out = np.empty(self.n_features)
        self._pass("curvature", rows, mass, v, out)
        return out

    def second_moment(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """``sum_i mass_i x_i x_i'`` over ``rows``, in blocks so that no second copy of the rows is ever held."""
        d = self.n_features
        out = np.zeros((d, d))
        if self.is_sparse:
            self._pass("second_moment", rows, mass, out)
            return out
        step = max(1, _BLOCK_BYTES // (8 * d))
        for begin in range(0, len(rows), step):
            part = slice(begin, begin + step)
            block = self.X[rows[part]].astype(np.float64, copy=False)
            out += (block * mass[part, None]).T @ block
        return out

    def squared_norms(self) -> np.ndarray:
        """``||x_i||^2`` of every row."""
        out = np.empty(self.n_rows)
        self._pass("squared_norms", out)
        return out

    def dense_rows(self, rows: np.ndarray) -> np.ndarray:
        """The given rows as a dense float64 array."""
        block = self.X[rows]
        return np.asarray(block.toarray() if self.is_sparse else block, dtype=np.float64)

    def part(self, begin: int, end: int) -> Shard:
        """Rows ``begin`` to ``end`` as a view."""
        if self.is_sparse:
            indptr = self.X.indptr
            inside = slice(indptr[begin], indptr[end])
            arrays = (self.X.data[inside], self.X.indices[inside], indptr[begin : end + 1] - indptr[begin])
            X = sp.csr_matrix(arrays, shape=(end - begin, self.n_features), copy=False)
        else:
            X = self.X[begin:end]
        return Shard(X, self.y[begin:end], self.weight[begin:end])

    def take(self, rows: np.ndarray) -> Shard:
        """A copy of the given rows."""
        return Shard(self.X[rows], self.y[rows], self.weight[rows])

    def between(self, positive: int, negative: int) -> Shard:
        """The rows of two classes, labelled +1 and -1; a view when there are no others."""
        inside = (self.y == positive) | (self.y == negative)
        y = np.where(self.y == positive, 1.0, -1.0)
        if inside.all():
            return replace(self, y=y)
        return replace(self, y=y).take(np.flatnonzero(inside))
