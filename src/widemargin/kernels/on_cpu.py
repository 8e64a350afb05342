"""Kernel primitives on a CPU: BLAS or sparse loops for the products, compiled loops for the rest.

Algorithms call what stands in :class:`RowsOnCPU` and nothing below it, so that another device can offer the same:
``points`` (rows that travel), ``times`` (kernel times coefficients, never stored), ``rows`` and ``block`` (kernel
values, stored), ``diagonal_of``, and ``solve_block`` (the small problem of a working set).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import csr, working_set
from widemargin.compiled import kernels as compiled
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points
from widemargin.ledger import Ledger

# Below this density a product with sparse rows is faster than one with dense rows; measured.
_SPARSE_BELOW = 0.4
_LANES = 16  # points in a vector register
_TILE_BYTES = 1 << 19  # kernel values in the making stay in the second-level cache
_COLUMNS_BYTES = 1 << 20  # and so do the points that sparse rows meet
# A float32 product may be wrong by this much of the squared norms, in units of their rounding.
_PRODUCT_ERROR = 4 * float(np.finfo(np.float32).eps)
_TOLERABLE_EXPONENT_ERROR = 1e-5  # which is a relative error of kernel values
# In float64 more is not tolerable: certificates would be those of another kernel.
_LARGEST_EXPONENT = 1e-9 / (4 * np.finfo(np.float64).eps)
_LONGEST = 1e150  # rows: their squares are numbers yet
_LARGEST_VALUE = 1e150  # of a kernel: so are products of two values
_DENSE_BYTES = 1 << 30  # of one rank's sparse rows, if they have to be centred or subtracted from each other
_STEPS_PER_ROW = 100  # at most, in the problem of a working set
_FEW_ROWS = 4096  # which are worked on in float64
_LOG2E = float(np.log2(np.e))
_BOUNDED = ("rbf", "laplacian", "cosine")
_KINDS = {
    "linear": compiled.LINEAR,
    "cosine": compiled.LINEAR,  # of rows of length one
    "rbf": compiled.RBF,
    "poly": compiled.POLY,
    "sigmoid": compiled.SIGMOID,
    "laplacian": compiled.LAPLACIAN,
}


def _alone(values: np.ndarray, op: Any) -> np.ndarray:
    return values


class _Prepared(NamedTuple):
    """Rows as the inner loops read them: dense, or CSR with unsigned indices; and their norms."""

    X: Any
    norms: np.ndarray

    @property
    def n_rows(self) -> int:
        return len(self.norms)


class RowsOnCPU:
    """A kernel on the rows of one rank.

    ``first`` is the number of the first row among those of all ranks, or the numbers of all rows here. Kernel values
    are computed in float32 where that is exact enough, and in float64 where asked for; their sums are in float64
    always. ``reduce`` combines an array over ranks by "sum" or "max": they choose their precision together.
    ``n_everywhere`` is the number of rows of all ranks, those of no weight too, where it is known.
    """

    is_on_device = False

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        first: int | np.ndarray = 0,
        ledger: Ledger | None = None,
        reduce: Callable[[np.ndarray, Any], np.ndarray] = _alone,
        n_everywhere: int | None = None,
    ) -> None:
        self.kernel, self.X = kernel, _joined(X) if isinstance(X, list) else X
        self.numbers = first if isinstance(first, np.ndarray) else np.arange(first, first + self.X.shape[0])
        self.n_everywhere = n_everywhere
        self._cache: RowCache | None = None
        self.ledger = ledger if ledger is not None else Ledger()
        self._kept: dict[Any, _Prepared] = {}
        self._centre: np.ndarray | None = None
        self._by_differences = False  # squared distances are those of differences, not of products
        self._is_sparse = kernel.name in _KINDS and _density(self.X) < _SPARSE_BELOW
        self.dtype: Any = self._working_precision(reduce)

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    # A number for each row is a host array; on another device it lies there.

    def vector(self, values: np.ndarray) -> np.ndarray:
        """A number for each row, where the rows are."""
        return values

    @staticmethod
    def host(values: np.ndarray) -> np.ndarray:
        """The same numbers here; a copy."""
        return values.copy()

    @staticmethod
    def nonzero(values: np.ndarray) -> np.ndarray:
        """Where a vector is not zero."""
        return np.flatnonzero(values)

    def points(self, rows: np.ndarray) -> Points:
        """The given rows of this rank."""
        return Points(self.X[rows], self.numbers[rows])

    def only(self, rows: np.ndarray) -> RowsOnCPU:
        """The same kernel on some of the rows."""
        part = copy.copy(self)
        part.X, part.numbers, part._kept, part._cache = self.X[rows], self.numbers[rows], {}, None
        return part

    def cache(self, n_bytes: int) -> RowCache:
        """The kernel rows that are kept: one store of so many bytes for all problems on these rows."""
        if self._cache is None or self._cache.n_bytes != n_bytes:
            self._cache = RowCache(self, n_bytes)
        return self._cache

    def times(self, points: Points, coef: np.ndarray, *, exact: bool = False) -> np.ndarray:
        """``sum_j coef_j k(x_i, z_j)`` for every row of this rank; ``exact`` computes the kernel in float64 too.

        Several columns of coefficients give as many columns of sums.
        """
        if coef.shape[1:] == (1,):  # fused, as a vector is
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

    def rows(self, points: Points, out: np.ndarray | None = None) -> np.ndarray:
        """Kernel values of points (down) with all rows of this rank (across)."""
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        out = np.empty((len(points), self.n_rows), self.dtype) if out is None else out
        for rows, columns, values in self._tiles(self._local(self.dtype), points, self.dtype):
            out[columns, rows] = values.T
        return out

    def block(self, points: Points, out: np.ndarray | None = None, *, exact: bool = False) -> np.ndarray:
        """Kernel values between all of some points; ``exact`` computes them in float64.

        Each pair is computed twice: to write a value where its mirror image lies would take longer than to compute it.
        """
        n = len(points)
        self.ledger.kernel_evaluations += n * n
        dtype = np.float64 if exact else self.dtype
        out = np.empty((n, n), dtype) if out is None else out
        for rows, columns, values in self._tiles(self._prepare(points.X, dtype), points, dtype):
            out[rows, columns] = values
        return out

    def diagonal_of(self, points: Points) -> np.ndarray:
        """``k(z, z)`` of every point, in float64."""
        kernel, X = self.kernel, points.X
        if kernel.is_shift_invariant:
            return np.ones(len(points))
        if kernel.name == "precomputed":
            return np.asarray(X[np.arange(len(points)), points.numbers], dtype=np.float64).ravel()
        if kernel.function is not None:
            few = (X[begin:end] for begin, end in _pieces(len(points), 64))
            return np.concatenate([np.diagonal(kernel.function(some, some)) for some in few] or [np.empty(0)]).astype(
                float
            )
        norms = _squared_norms(X)
        if kernel.name == "cosine":
            return (norms > 0).astype(np.float64)
        if kernel.name == "linear":
            return norms
        inside = float(kernel.gamma) * norms + kernel.coef0
        return inside**kernel.degree if kernel.name == "poly" else np.tanh(inside)

    @staticmethod
    def padded(n: int) -> int:
        """The width of the kernel block of a working set of ``n`` rows."""
        return -(-n // working_set.LANES) * working_set.LANES

    @staticmethod
    def solve_block(
        K: np.ndarray, pull: np.ndarray, beta: np.ndarray, low: np.ndarray, high: np.ndarray, tol: float, is_tied: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Solve the dual of a working set: new ``beta``, new ``pull``, and the number of steps.

        ``pull`` is minus the gradient; ``is_tied`` keeps the sum of ``beta``. ``K`` is of the width of
        :meth:`padded`, of which only the first columns are looked at.
        """
        n, width = len(beta), K.shape[1]
        pull, beta, low, high = (np.pad(each, (0, width - n)) for each in (pull, beta, low, high))
        diagonal = np.pad(np.diagonal(K[:, :n]), (0, width - n), constant_values=1.0)
        solve = working_set.pairs if is_tied else working_set.singles
        steps = solve(K, diagonal, pull, beta, low, high, tol, _STEPS_PER_ROW * n + 10_000)
        return beta[:n], pull[:n], int(steps)

    # -- how -------------------------------------------------------------------------------------------------------

    def _working_precision(self, reduce: Callable[[np.ndarray, Any], np.ndarray]) -> Any:
        """float32 for kernels with values up to 1, unless the exponents would suffer; dense rows are centred for that.

        Other kernels may differ by little where they are large, and few rows cost little: both stay in float64.
        """
        kernel = self.kernel
        if kernel.function is not None or kernel.name == "precomputed":
            return self.X.dtype if kernel.name == "precomputed" else np.float64
        if not kernel.is_shift_invariant:
            self._refuse_overflow(float(reduce(np.array([self._longest()]), "max")[0]))
        if kernel.name not in _BOUNDED:
            return np.float64
        n_rows = reduce(np.array([float(self.n_rows)]), "sum")[0]
        is_exact = kernel.name == "cosine" or self._has_exact_exponents(reduce)
        return np.float32 if is_exact and n_rows > _FEW_ROWS else np.float64

    def _refuse_overflow(self, longest: float) -> None:
        """Refuse rows whose kernel values are no numbers, given their largest squared norm."""
        kernel, length = self.kernel, float(np.sqrt(longest))
        largest = 1.0
        if kernel.name in ("linear", "poly"):
            gamma = 1.0 if kernel.name == "linear" else float(kernel.gamma)
            degree = 1 if kernel.name == "linear" else kernel.degree
            with np.errstate(over="ignore"):
                largest = float(np.float64(gamma * longest + abs(kernel.coef0)) ** degree)
        if not (length <= _LONGEST and largest <= _LARGEST_VALUE):
            raise ValueError(
                f"Rows are up to {length:.0e} long, too long for kernel={kernel.name!r} in float64: they may be of up "
                f"to {_LONGEST:g}, with kernel values of up to {_LARGEST_VALUE:g} (here {largest:.0e}); scale the "
                "features (StandardScaler)."
            )

    def _exponent(self, longest: float) -> float:
        """What exponents are rounded in proportion to, where rows have this largest squared norm."""
        gamma = float(self.kernel.gamma)
        is_one_norm = self.kernel.name == "laplacian"
        return gamma * float(np.sqrt(longest * self.X.shape[1]) if is_one_norm else longest)

    def _has_exact_exponents(self, reduce: Callable[[np.ndarray, Any], np.ndarray]) -> bool:
        """Whether float32 products serve, after centring where that is possible and needed.

        Sparse rows are centred, and dense then, only where float64 does not serve either and they are not too many.
        Where float64 does not serve after that, distances are taken from differences of rows as they are.
        """
        gamma = float(self.kernel.gamma)
        smallest = float(np.finfo(np.float64).tiny)  # its inverse is a number yet
        largest = _TOLERABLE_EXPONENT_ERROR / (max(gamma, smallest / _PRODUCT_ERROR) * _PRODUCT_ERROR)
        sparse_bytes = 8.0 * self.X.shape[0] * self.X.shape[1] if self._is_sparse or sp.issparse(self.X) else 0.0
        longest, sparse_bytes = map(float, reduce(np.array([self._longest(), sparse_bytes]), "max"))
        self._refuse_overflow(longest)
        is_served = self._exponent(longest) <= _LARGEST_EXPONENT
        if not is_served and sparse_bytes > _DENSE_BYTES:
            raise ValueError(
                f"gamma={gamma:g} is too large for sparse rows up to {np.sqrt(longest):.1e} long: their distances are "
                f"rounded to more than the kernel's width. With these rows gamma must be at most "
                f"{gamma * _LARGEST_EXPONENT / self._exponent(longest):.1e}; or scale the features (MaxAbsScaler)."
            )
        if is_served and (longest <= largest or sparse_bytes > 0):
            return longest <= largest
        sums = np.asarray(self.X.sum(axis=0, dtype=np.float64)).ravel()
        sums = reduce(np.append(sums, float(self.n_rows)), "sum")
        as_it_was = self._is_sparse
        self._centre, self._is_sparse = sums[:-1] / max(sums[-1], 1.0), False
        centred = float(reduce(np.array([self._longest()]), "max")[0])
        if centred > max(largest, longest / 4):  # a few rows are far from all others, which the centre would be too
            self._centre, self._is_sparse = None, as_it_was
        if self._exponent(longest if self._centre is None else centred) > _LARGEST_EXPONENT:
            self._centre, self._is_sparse, self._by_differences = None, False, True
        return centred <= largest

    def _longest(self) -> float:
        """The largest squared norm of a row, from the centre."""
        if self._centre is None:
            return float(_squared_norms(self.X).max(initial=0.0))
        return max(
            (
                float(_squared_norms(_dense(self.X[begin:end]) - self._centre).max(initial=0.0))
                for begin, end in _pieces(self.n_rows, self._tile_rows(self.X.shape[1]))
            ),
            default=0.0,
        )

    def _local(self, dtype: Any) -> _Prepared:
        """The rows of this rank, prepared once for each precision; float64 is used rarely, and not kept."""
        if dtype in self._kept:
            return self._kept[dtype]
        prepared = self._prepare(self.X, dtype)
        if dtype == self.dtype or self._shares_memory(prepared):
            self._kept[dtype] = prepared
        return prepared

    def _shares_memory(self, prepared: _Prepared) -> bool:
        return not sp.issparse(prepared.X) and prepared.X is self.X

    def _prepare(self, X: Any, dtype: Any) -> _Prepared:
        if self.kernel.name not in _KINDS:
            return _Prepared(X, np.empty(X.shape[0]))
        if self._is_sparse:
            X = sp.csr_matrix(X)
            X = X if X.dtype == dtype else X.astype(dtype)
        else:
            X = _dense(X)
            X = X if self._centre is None else X - self._centre
            X = np.ascontiguousarray(X, dtype=dtype)
        norms = _squared_norms(X)
        if self.kernel.name == "cosine":
            lengths = np.sqrt(np.where(norms > 0, norms, 1.0))
            X = sp.diags_array(1 / lengths, dtype=dtype) @ X if self._is_sparse else X / lengths[:, None].astype(dtype)
            X = sp.csr_matrix(X) if self._is_sparse else X
        return _Prepared(X, norms.astype(dtype))

    @property
    def _kind(self) -> int:
        """How values are made of products or distances: of squared distances as of those of the Laplacian kernel."""
        return compiled.LAPLACIAN if self._by_differences else _KINDS[self.kernel.name]

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

    @staticmethod
    def _tile_rows(width: int) -> int:
        return max(16, _TILE_BYTES // (4 * max(width, 1)))

    def _columns(self, points: Points, dtype: Any) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """A few points at a time as columns of a dense array, with their norms."""
        d = points.X.shape[1]
        few = 256
        if self._is_sparse:  # full vector registers
            few = min(512, max(32, _COLUMNS_BYTES // (d * np.dtype(dtype).itemsize) // 32 * 32))
        for begin, end in _pieces(len(points), few):
            prepared = self._prepare(points.X[begin:end], dtype)
            Z = prepared.X.toarray() if sp.issparse(prepared.X) else prepared.X
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
        if (
            dtype == np.float64
            and self.kernel.name != "cosine"
            and exact_in_float32(self.X)
            and exact_in_float32(points.X)
        ):
            rows = self._local(np.float32)  # the products are the same, and made in half the time
        for columns, ZT, norms in self._columns(points, rows.X.dtype.type):
            few = np.zeros(ZT.shape[1])
            few[: columns.stop - columns.start] = coef[columns]
            row = np.empty(ZT.shape[1], rows.X.dtype)
            fine = row if row.dtype == dtype else np.empty(len(row), dtype)
            arrays = (*_arrays(rows.X), local.norms)
            compiled.times_csr(kind, *arrays, ZT, norms.astype(dtype), *parameters, few, row, fine, out)

    def _products(self, local: _Prepared, ZT: np.ndarray, dtype: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """Products of dense rows with points, or distances where the kernel is taken from these; a tile at a time."""
        space = np.empty((self._tile_rows(ZT.shape[1]), ZT.shape[1]), dtype)
        for begin, end in _pieces(local.n_rows, len(space)):
            tile = space[: end - begin]
            if self.kernel.name == "laplacian":
                compiled.distances_dense(local.X[begin:end], np.ascontiguousarray(ZT), tile)
            elif self._by_differences:
                compiled.squared_distances_dense(local.X[begin:end], np.ascontiguousarray(ZT), tile)
            else:
                np.dot(local.X[begin:end], ZT, out=tile)
            yield slice(begin, end), tile

    def _tiles(self, local: _Prepared, points: Points, dtype: Any) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Kernel values of rows with points, a tile at a time, which is overwritten by the next."""
        if self.kernel.name not in _KINDS:
            yield from self._plain_tiles(local.X, points)
            return
        kind, parameters = self._kind, self._parameters(dtype)
        for columns, ZT, norms in self._columns(points, dtype):
            if not self._is_sparse:
                for rows, tile in self._products(local, ZT, dtype):
                    compiled.finish_tile(kind, tile, local.norms[rows], norms, *parameters)
                    yield rows, columns, tile
                continue
            data, indices, indptr = _arrays(local.X)
            space = np.empty((self._tile_rows(ZT.shape[1]), ZT.shape[1]), dtype)
            for begin, end in _pieces(local.n_rows, len(space)):
                tile = space[: end - begin]
                arrays = (data, indices, indptr[begin : end + 1], local.norms[begin:end])
                compiled.values_csr(kind, *arrays, ZT, norms, *parameters, tile)
                yield slice(begin, end), columns, tile[:, : columns.stop - columns.start]

    def _plain_tiles(self, X: Any, points: Points) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Values that are given, or that the user's function gives."""
        if not len(points):
            return
        everything = slice(0, len(points))
        for begin, end in _pieces(X.shape[0], self._tile_rows(len(points))):
            few = X[begin:end]
            if self.kernel.function is None:
                values = few[:, points.numbers]
                values = values.toarray() if sp.issparse(values) else values
            else:
                values = np.asarray(self.kernel.function(few, points.X), dtype=np.float64)
                if values.shape != (end - begin, len(points)):
                    raise ValueError(
                        f"The kernel function returned values of shape {values.shape} for {end - begin} and "
                        f"{len(points)} rows; it must return one of shape {(end - begin, len(points))}."
                    )
            yield slice(begin, end), everything, values


def _pieces(n: int, size: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, n, size):
        yield begin, min(begin + size, n)


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else X


def _density(X: Any) -> float:
    size = X.shape[0] * X.shape[1]
    if size == 0:
        return 1.0
    return float(X.nnz / size) if sp.issparse(X) else float(np.count_nonzero(X) / size)


def _squared_norms(X: Any) -> np.ndarray:
    """``||x||^2`` of every row, in float64 and from the values as they are stored."""
    if sp.issparse(X):
        out = np.empty(X.shape[0])
        csr.squared_norms_csr(np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr), out)
        return out
    return np.einsum("ij,ij->i", X, X, dtype=np.float64) if X.dtype == np.float64 else _squared_norms_in_pieces(X)


def _squared_norms_in_pieces(X: np.ndarray) -> np.ndarray:
    out = np.empty(len(X))
    for begin, end in _pieces(len(X), 4096):
        few = X[begin:end].astype(np.float64)
        out[begin:end] = np.einsum("ij,ij->i", few, few)
    return out


def _arrays(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR arrays with indices of 32 bits read as unsigned."""
    # Not of 64 bits: with those Numba makes a float of the sum with a signed number.
    return X.data, *(each.view(np.uint32) if each.itemsize == 4 else each for each in (X.indices, X.indptr))


def exact_in_float32(X: Any) -> bool:
    """Whether inner products of such rows are exact in float32: whole numbers, or multiples of 1/256, not too long.

    A partial sum is at most the product of two norms, and below 2**24 float32 knows all whole numbers.
    """
    values = X.data if sp.issparse(X) else X
    longest = _squared_norms(X).max(initial=0.0)
    return any(
        longest * unit * unit < 2.0**24 and bool(np.all(values * unit == np.rint(values * unit)))
        for unit in (1.0, 256.0)
    )


def _joined(blocks: list[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)
