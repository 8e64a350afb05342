"""Kernel primitives on a CPU: BLAS or sparse loops for the products, compiled loops for the rest."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import kernels as compiled
from widemargin.compiled.hinge import hinge_sums
from widemargin.kernels import float32_error, precision, vectors
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points
from widemargin.kernels.precision import Reduce, tile_rows
from widemargin.kernels.protocol import KernelRows
from widemargin.kernels.storage import as_csr, csr_arrays, dense, exact_in_float32, pieces, squared_norms
from widemargin.ledger import Ledger
from widemargin.pauses import BLAS_SPEED, WORK, pause_alone
from widemargin.rounding import gamma

_LANES = 16  # points in a vector register
_POINTS_AT_ONCE, _MAX_SPARSE_POINTS = 256, 512  # that dense, and sparse, rows are multiplied with
_ROWS_AT_ONCE = 4096
_COLUMNS_BYTES = 1 << 20  # points that sparse rows are multiplied with stay in the second-level cache
_LOG2E = math.log2(math.e)
_KINDS = {
    "linear": compiled.LINEAR,
    "cosine": compiled.LINEAR,  # of normalised rows
    "rbf": compiled.RBF,
    "poly": compiled.POLY,
    "sigmoid": compiled.SIGMOID,
    "laplacian": compiled.LAPLACIAN,
}


def alone(values: np.ndarray, op: Any) -> np.ndarray:
    return values


class _Prepared(NamedTuple):
    X: Any
    norms: np.ndarray

    @property
    def n_rows(self) -> int:
        return len(self.norms)


class RowsOnCPU(KernelRows):
    """A kernel on the rows of one rank, in float32 where that is exact enough.

    ``first`` is the number of the first row, or the numbers of all rows. ``reduce`` combines an array over ranks by
    "sum" or "max", so that all ranks choose the same precision.
    """

    _primitives = vectors

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        first: int | np.ndarray = 0,
        ledger: Ledger | None = None,
        reduce: Reduce = alone,
        n_everywhere: int | None = None,
    ) -> None:
        super().__init__(kernel, X, first, ledger, n_everywhere)
        self._cache: RowCache | None = None
        self._kept: dict[Any, _Prepared] = {}
        self._space = np.empty(0)
        self.dtype, self._is_sparse, self._centre, self.is_by_differences = precision.choose(kernel, self.X, reduce)
        self.error = self.largest_error = float(np.finfo(self.dtype).eps) / 2
        if kernel.name in _KINDS:
            self.width, self.longest = precision.extent(self.X, self._is_sparse, reduce)
        self.has_relative_errors = self.dtype == np.float32 and kernel.name in ("rbf", "laplacian")

    def vector(self, values: np.ndarray) -> np.ndarray:
        return values

    def vectors(self, several: list[np.ndarray]) -> np.ndarray:
        return np.array(several, dtype=np.float64)

    def places(self, rows: np.ndarray) -> np.ndarray:
        return np.array(rows, dtype=np.intp)

    def host(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def nonzero(self, values: np.ndarray) -> np.ndarray:
        return np.flatnonzero(values)

    hinge_sums = staticmethod(hinge_sums)

    def points(self, rows: np.ndarray) -> Points:
        return Points(self.X[rows], self.numbers[rows])

    def only(self, rows: np.ndarray) -> RowsOnCPU:
        part = copy.copy(self)
        part.X, part.numbers, part._kept, part._cache = self.X[rows], self.numbers[rows], {}, None
        part._rounding, part._values = {}, None
        whole, places = self._whole or (self, None)
        part._whole = whole, rows if places is None else places[rows]
        return part

    def cache(self, n_bytes: int) -> RowCache:
        if self._cache is None or self._cache.n_bytes != n_bytes:
            self._cache = RowCache(self, n_bytes)
        return self._cache

    def times(self, points: Points, coef: np.ndarray, *, exact: bool = False) -> np.ndarray:
        if coef.shape[1:] == (1,):  # a single column takes the fused loop of a vector
            return self.times(points, coef[:, 0], exact=exact)[:, None]
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        out = np.zeros((self.n_rows, *coef.shape[1:]))
        coef = np.ascontiguousarray(coef, dtype=np.float64)
        dtype = np.float64 if exact else self.dtype
        if self.kernel.name in _KINDS and coef.ndim == 1:
            self._add_times(self._local(dtype), points, coef, dtype, out)
            return out
        for rows, columns, values in self._tiles(self._local(dtype), points, dtype):
            out[rows] += values.astype(np.float64, copy=False) @ coef[columns]
        return out

    def rows(self, points: Points) -> np.ndarray:
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        out = np.empty((len(points), self.n_rows), self.dtype)
        for rows, columns, values in self._tiles(self._local(self.dtype), points, self.dtype):
            out[columns, rows] = values.T
        return out

    def block(self, points: Points, *, exact: bool = False) -> np.ndarray:
        out = np.empty((len(points), len(points)), np.float64 if exact else self.dtype)
        self._fill(out, points)
        return out

    def working_block(self, points: Points) -> np.ndarray:
        n, width = len(points), vectors.padded(len(points))
        if self._space.size < n * width:
            self._space = np.empty(n * width, self.dtype)
        K = self._space[: n * width].reshape(n, width)
        K[:, n:] = 0
        self._fill(K[:, :n], points)
        return K

    def sweep_error(self, reach: np.ndarray, mass: float, n_terms: float) -> np.ndarray:
        if self.kernel.name == "cosine" and self.dtype == np.float32:
            return np.full(self.n_rows, mass * (float32_error.of_cosine(self.width) + gamma(n_terms)))
        if not self.has_relative_errors:
            return np.asarray(super().sweep_error(reach, mass, n_terms))
        error: np.ndarray = self._once("sweep error", self._sweep_error, reach) + 2 * gamma(n_terms)
        return np.asarray(np.where(reach > 0, error, 0.0) * reach + float32_error.absolute_error(mass))

    def _sweep_error(self, reach: np.ndarray) -> np.ndarray:
        n_entries = np.full(self.n_rows, float(self.width))
        if self.kernel.name == "rbf" and self._centre is None:
            n_entries = float32_error.entries_of_rows(self.X)
        longest = self.longest if self._centre is None else self.longest + float(np.linalg.norm(self._centre))
        lengths = np.sqrt(self._squares(reach))
        return float32_error.relative_error(self.kernel, n_entries, lengths, longest, self.X.shape[1])

    def _diagonal(self, coef: np.ndarray) -> np.ndarray:
        return self.kernel.diagonal(self.X, self.numbers)

    def _sum_depth(self, n_terms: float) -> float:
        if self.kernel.name not in _KINDS:
            return n_terms
        return min(n_terms, _MAX_SPARSE_POINTS) + n_terms / self._points_at_once(np.float64)

    def _squares(self, coef: np.ndarray) -> np.ndarray:
        if self._centre is None:
            return squared_norms(self.X)
        some = (dense(self.X[begin:end]) - self._centre for begin, end in pieces(self.n_rows, _ROWS_AT_ONCE))
        return np.concatenate([squared_norms(few) for few in some] or [np.empty(0)])

    def _fill(self, out: np.ndarray, points: Points) -> None:
        """Write kernel values between points; each is computed twice, faster than to write it to both positions."""
        self.ledger.kernel_evaluations += len(points) ** 2
        dtype = out.dtype.type
        for rows, columns, values in self._tiles(self._prepare(points.X, dtype), points, dtype):
            out[rows, columns] = values

    def _local(self, dtype: Any) -> _Prepared:
        """The rows of this rank, prepared once per precision; a float64 copy is needed rarely and not kept."""
        if dtype in self._kept:
            return self._kept[dtype]
        prepared = self._prepare(self.X, dtype)
        if dtype == self.dtype or (prepared.X is self.X and not sp.issparse(self.X)):
            self._kept[dtype] = prepared
        return prepared

    def _prepare(self, X: Any, dtype: Any) -> _Prepared:
        if self.kernel.name not in _KINDS:
            return _Prepared(X, np.empty(X.shape[0]))
        if self._is_sparse:
            X = as_csr(X, dtype)
        else:
            X = dense(X) if self._centre is None else dense(X) - self._centre
            X = np.ascontiguousarray(X, dtype=dtype)
        norms = squared_norms(X)
        if self.kernel.name == "cosine":
            lengths = np.sqrt(np.where(norms > 0, norms, 1.0))
            X = sp.diags_array(1 / lengths, dtype=dtype) @ X if self._is_sparse else X / lengths[:, None].astype(dtype)
            X = sp.csr_matrix(X) if self._is_sparse else X
        return _Prepared(X, norms.astype(dtype))

    @property
    def _kind(self) -> int:
        """How values are made of products or distances; squared distances are treated like Laplacian ones."""
        return compiled.LAPLACIAN if self.is_by_differences else _KINDS[self.kernel.name]

    def _parameters(self, dtype: Any) -> tuple[Any, Any, int]:
        """Scale, shift and degree for the compiled loops, which take exponents to base two."""
        kernel = self.kernel
        gamma = 1.0 if isinstance(kernel.gamma, str) else float(kernel.gamma)
        scale, shift = {
            "rbf": (-gamma * _LOG2E, 0.0),
            "laplacian": (-gamma * _LOG2E, 0.0),
            "sigmoid": (2 * gamma * _LOG2E, 2 * kernel.coef0 * _LOG2E),
        }.get(kernel.name, (gamma, kernel.coef0))
        return dtype(scale), dtype(shift), kernel.degree

    def _points_at_once(self, dtype: Any) -> int:
        if not self._is_sparse:
            return _POINTS_AT_ONCE
        fitting = _COLUMNS_BYTES // (self.X.shape[1] * np.dtype(dtype).itemsize)
        return int(min(_MAX_SPARSE_POINTS, max(32, fitting // 32 * 32)))  # full vector registers

    def _columns(self, points: Points, dtype: Any) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """A few points at a time as columns of a dense array, with their norms."""
        d = points.X.shape[1]
        for begin, end in pieces(len(points), self._points_at_once(dtype)):
            prepared = self._prepare(points.X[begin:end], dtype)
            Z = dense(prepared.X)
            norms = np.abs(Z).sum(axis=1) if self.kernel.name == "laplacian" else prepared.norms
            if self._is_sparse:  # full vector registers, with points of no coordinates
                full = -(-len(Z) // _LANES) * _LANES
                ZT = np.zeros((d, full), dtype)
                ZT[:, : len(Z)] = Z.T
                yield slice(begin, end), ZT, np.concatenate([norms, np.zeros(full - len(Z), dtype)])
            else:
                yield slice(begin, end), Z.T, norms

    def _add_times(self, local: _Prepared, points: Points, coef: np.ndarray, dtype: Any, out: np.ndarray) -> None:
        if self._is_sparse:
            self._add_times_sparse(local, points, coef, dtype, out)
            return
        kind, parameters = self._kind, self._parameters(dtype)
        for columns, ZT, norms in self._columns(points, dtype):
            for rows, tile in self._products(local, ZT, dtype):
                compiled.finish_tile_times(kind, tile, local.norms[rows], norms, *parameters, coef[columns], out[rows])

    def _add_times_sparse(
        self, local: _Prepared, points: Points, coef: np.ndarray, dtype: Any, out: np.ndarray
    ) -> None:
        kind, parameters, rows = _KINDS[self.kernel.name], self._parameters(dtype), local
        if dtype == np.float64 and self.kernel.name != "cosine" and all(map(exact_in_float32, (self.X, points.X))):
            rows = self._local(np.float32)  # the products are the same, and made in half the time
        for columns, ZT, norms in self._columns(points, rows.X.dtype.type):
            few = np.zeros(ZT.shape[1])
            few[: columns.stop - columns.start] = coef[columns]
            row = np.empty(ZT.shape[1], rows.X.dtype)
            fine = row if row.dtype == dtype else np.empty(len(row), dtype)
            data, indices, indptr = csr_arrays(rows.X)
            for begin, end in self._short_stretches(local.n_rows, int(indptr[-1]) * len(row)):
                arrays = (data, indices, indptr[begin : end + 1], local.norms[begin:end])
                at = (ZT, norms.astype(dtype), *parameters, few, row, fine, out[begin:end])
                compiled.times_csr(kind, *arrays, *at)
                pause_alone(float(indptr[end] - indptr[begin]) * len(row))

    @staticmethod
    def _short_stretches(n_rows: int, work: float) -> Iterator[tuple[int, int]]:
        """Rows in stretches between two looks at the clock, for ``work`` on all of them."""
        return pieces(n_rows, max(1, int(n_rows * min(1.0, WORK / max(work, 1)))))

    def _products(self, local: _Prepared, ZT: np.ndarray, dtype: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """Products of dense rows with points, or distances where the kernel is taken from these; a tile at a time."""
        speed = 1 if self.kernel.name == "laplacian" or self.is_by_differences else BLAS_SPEED
        most = max(16, int(speed * WORK / max(ZT.size, 1)))  # fewer rows where features are very many
        space = np.empty((min(most, tile_rows(ZT.shape[1])), ZT.shape[1]), dtype)
        for begin, end in pieces(local.n_rows, len(space)):
            tile = space[: end - begin]
            if self.kernel.name == "laplacian":
                compiled.distances_dense(local.X[begin:end], np.ascontiguousarray(ZT), tile)
            elif self.is_by_differences:
                compiled.squared_distances_dense(local.X[begin:end], np.ascontiguousarray(ZT), tile)
            else:
                np.dot(local.X[begin:end], ZT, out=tile)
            yield slice(begin, end), tile
            pause_alone(tile.size * (len(ZT) / speed + 8))

    def _tiles(self, local: _Prepared, points: Points, dtype: Any) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Kernel values of rows with points, a tile at a time, which is overwritten by the next."""
        if self.kernel.name not in _KINDS:
            yield from self._given_tiles(local.X, points)
            return
        kind, parameters = self._kind, self._parameters(dtype)
        for columns, ZT, norms in self._columns(points, dtype):
            if not self._is_sparse:
                for rows, tile in self._products(local, ZT, dtype):
                    compiled.finish_tile(kind, tile, local.norms[rows], norms, *parameters)
                    yield rows, columns, tile
                continue
            data, indices, indptr = csr_arrays(local.X)
            space = np.empty((tile_rows(ZT.shape[1]), ZT.shape[1]), dtype)
            for begin, end in pieces(local.n_rows, len(space)):
                tile = space[: end - begin]
                arrays = (data, indices, indptr[begin : end + 1], local.norms[begin:end])
                compiled.values_csr(kind, *arrays, ZT, norms, *parameters, tile)
                yield slice(begin, end), columns, tile[:, : columns.stop - columns.start]
                pause_alone(float(indptr[end] - indptr[begin]) * tile.shape[1])

    def _given_tiles(self, X: Any, points: Points) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Values that are given, or that the user's function gives."""
        for begin, end in pieces(X.shape[0] if len(points) else 0, tile_rows(len(points))):
            few = X[begin:end]
            if self.kernel.function is None:
                values = dense(few[:, points.numbers])
            else:
                values = self.kernel.evaluated(few, points.X)
            yield slice(begin, end), slice(0, len(points)), values
