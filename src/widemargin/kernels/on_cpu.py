"""Kernel primitives on a CPU: BLAS or sparse loops for the products, compiled loops for the rest.

Rows are cut into pieces, which the cores share; each piece is one call of a compiled loop over tiles of values. Pieces
and tiles depend on the rows and points alone, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin import cores
from widemargin.compiled import kernels as compiled
from widemargin.compiled.hinge import hinge_sums
from widemargin.compiled.panels import panel_of_dense, panel_of_sparse, panel_width
from widemargin.kernels import float32_error, known_values, precision, vectors
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.known_values import KnownValues
from widemargin.kernels.points import Points, TakenPoints
from widemargin.kernels.precision import Reduce
from widemargin.kernels.protocol import KernelRows
from widemargin.kernels.shared_rows import SharedRows
from widemargin.kernels.storage import (
    Measured,
    SparseRows,
    aligned,
    are_binary,
    as_bits,
    compressed,
    converted,
    dense,
    entries_per_row,
    exact_in_float32,
    normalised,
    pieces,
    shifted,
    squared_norms,
    taken,
)
from widemargin.ledger import Ledger
from widemargin.pauses import BLAS_SPEED, WORK
from widemargin.rounding import gamma

_MIN_PIECES = 48  # of rows, for many threads to share
_MIN_PIECE, _MAX_PIECE = 64, 256  # rows
_TILE_ROWS, _BLAS_ROWS = 64, 128  # whose products with the points of a tile are in the cache
_POINTS_AT_ONCE = 512  # that rows are multiplied with
_MAX_PANEL_FEATURES = 64  # of dense rows; BLAS is faster beyond
_BATCH_BYTES = 1 << 26  # of points that are prepared at a time
_MAX_COLUMNS = 8  # of coefficients that are not worth a call of BLAS
_FEW_ROWS = 8  # cost less as they are than points cost to be prepared
_MAX_SQUARE = 1e200  # of the norm of such a row
_GIVEN_TILE = 1 << 17  # kernel values that are given, or that the user's function gives at a time
_SAMPLE = 256  # rows whose kernel values tell what most are
_MIN_SHARED = 0.5  # of the rows must have room for their kernel values, where problems share these
_MIN_SHARED_ENTRIES = 64  # of a row: values of shorter ones are computed faster than they are read
_BITS = np.uint64  # words of rows that are all zeros and ones
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


def _on_piece(loop: Any, before: tuple[Any, ...], after: tuple[Any, ...], piece: tuple[int, int]) -> None:
    loop(*before, *piece, *after)


class _Prepared(NamedTuple):
    """Rows or points as they are multiplied, centred or normalised where the kernel asks for it.

    Rows are an array or sparse, points may be panels. The squared norms are in float64.
    """

    X: Any
    norms: np.ndarray

    @property
    def arrays(self) -> Any:
        return tuple(self.X) if isinstance(self.X, SparseRows) else self.X

    @property
    def n_rows(self) -> int:
        return len(self.norms)

    def only(self, places: np.ndarray) -> _Prepared:
        X = self.X.only(places) if isinstance(self.X, SparseRows) else taken(self.X, places)
        return _Prepared(X, self.norms[places])


def _parameters(kernel: Kernel, dtype: Any) -> tuple[Any, Any, int]:
    """Scale, shift and degree for the compiled loops, which take exponents to base two."""
    gamma = 1.0 if isinstance(kernel.gamma, str) else float(kernel.gamma)
    scale, shift = gamma, kernel.coef0
    if kernel.is_shift_invariant:
        scale, shift = -gamma * _LOG2E, 0.0
    elif kernel.name == "sigmoid":
        scale, shift = 2 * gamma * _LOG2E, 2 * kernel.coef0 * _LOG2E
    return dtype(scale), dtype(shift), kernel.degree


def times_few(kernel: Kernel, X: Any, points: Any, coef: np.ndarray) -> np.ndarray | None:
    """``sum_j coef_j k(x, z_j)`` for a few dense rows, in float64, where nothing needs to be prepared.

    ``coef`` has a line for each column of the result. None if there are many rows, or the kernel needs more care.
    """
    if X.shape[0] > _FEW_ROWS or kernel.name not in _KINDS or kernel.name == "cosine":
        return None
    if not (isinstance(X, np.ndarray) and isinstance(points, np.ndarray)):
        return None
    out = np.empty((X.shape[0], len(coef)))
    longest = compiled.times_few(_KINDS[kernel.name], X, points, *_parameters(kernel, np.float64), coef, out)
    return out if longest < _MAX_SQUARE and np.isfinite(out).all() else None


class RowsOnCPU(KernelRows):
    """A kernel on the rows of one rank, in float32 where that is exact enough.

    ``first`` is the number of the first row, or the numbers of all rows. ``reduce`` combines an array over ranks by
    "sum" or "max", so that all ranks choose the same precision. Or these are dense rows to be predicted from
    ``points``: then the precision is chosen for these, and no errors are known.
    """

    _primitives = vectors
    _rows: Any  # None until rows that are some of others are asked for

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        first: int | np.ndarray = 0,
        ledger: Ledger | None = None,
        reduce: Reduce = alone,
        n_everywhere: int | None = None,
        points: Any = None,
    ) -> None:
        super().__init__(kernel, X, first, ledger, n_everywhere)
        self._cache: RowCache | None = None
        self._kept: dict[Any, _Prepared] = {}
        self._space = np.empty(0)
        self._panel_space: list[np.ndarray] = []  # for one batch of points, while no thread uses it
        self._shared: list[SharedRows] = []  # one, once there is one for all problems
        self._class_values: dict[float, np.ndarray] = {}  # between rows of the same class, for all pairs it is in
        self._is_exact: bool | None = None  # whether products of the rows are exact in float32, once it is known
        self._measured = Measured(self.X)  # of all rows, where these are some of others
        if points is None:
            chosen = precision.choose(kernel, self._measured, reduce)
        else:
            chosen = precision.choose_for(kernel, self._measured, Measured(points))
        self.dtype, self._is_sparse, self._centre, self.is_by_differences, self._density = chosen
        # Rows that are predicted are prepared piece by piece, by the threads that multiply them.
        self._pieces: dict[Any, list[_Prepared | None]] | None = None if points is None else {}
        self.error = self.largest_error = float(np.finfo(self.dtype).eps) / 2
        self._is_binary = False  # whether the rows of all ranks are zeros and ones
        if kernel.name in _KINDS:
            if points is None:
                self.width, self.longest = precision.extent(self._measured, chosen, reduce)
            # Bits are counted faster than entries are multiplied, where rows are not very sparse.
            is_fast = entries_per_row(self.X) > self.X.shape[1] / 32 and not self.is_by_differences
            is_binary = is_fast and kernel.name != "cosine" and are_binary(self.X)
            self._is_binary = not reduce(np.array([0.0 if is_binary else 1.0]), "max")[0]
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
        return np.flatnonzero(values != 0)  # faster than on floats

    hinge_sums = staticmethod(hinge_sums)

    @property
    def X(self) -> Any:
        if self._rows is None:
            whole, places = self._among
            self._rows = taken(whole.X, places)
        return self._rows

    @X.setter
    def X(self, rows: Any) -> None:
        self._rows = rows

    @property
    def n_features(self) -> int:
        return int(self._among[0].X.shape[1])

    @property
    def _among(self) -> tuple[RowsOnCPU, Any]:
        """All rows, and the places of these among them."""
        if self._whole is None:
            return self, slice(None)
        whole, places = self._whole
        assert isinstance(whole, RowsOnCPU)
        return whole, places

    def points(self, rows: np.ndarray) -> Points:
        whole, places = self._among
        return TakenPoints(whole.X, rows if self._whole is None else places[rows], self.numbers[rows])

    def only(self, rows: np.ndarray) -> RowsOnCPU:
        whole, places = self._among
        part = object.__new__(type(self))  # as copy.copy, which takes long on few rows
        part.__dict__.update(self.__dict__)
        part.numbers, part._rows, part._cache = self.numbers[rows], None, None
        part._kept, part._rounding, part._values, part._known = {}, {}, {}, None
        part._whole = whole, rows if self._whole is None else places[rows]
        return part

    def cache(self, n_bytes: int) -> RowCache:
        if self._cache is None or self._cache.n_bytes != n_bytes:
            self._cache = RowCache(self, n_bytes)
        return self._cache

    def times(self, points: Points, coef: np.ndarray, *, exact: bool = False) -> np.ndarray:
        coef = np.asarray(coef, dtype=np.float64)
        out = np.zeros((self.n_rows, *coef.shape[1:]))
        if self._shared and not exact and out.size and len(points):
            points, coef = self._add_shared(points, coef, out)
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        if self.kernel.name not in _KINDS:
            for begin, end, values in self._given_tiles(self.X, points):
                out[begin:end] = values.astype(np.float64, copy=False) @ coef
        elif out.size and len(points):
            self._add_times(points, coef.reshape(len(points), -1), exact, out.reshape(self.n_rows, -1))
        return out

    def _add_shared(self, points: Points, coef: np.ndarray, out: np.ndarray) -> tuple[Points, np.ndarray]:
        """Add what points add whose kernel rows problems share; returns the others, and their coefficients."""
        shared, (whole, some) = self._shared[0], self._whole or (self, None)
        assert isinstance(whole, RowsOnCPU)
        places = shared.places_of(points)
        if places is None:
            return points, coef

        def fill(new: np.ndarray, values: np.ndarray) -> None:
            self.ledger.kernel_evaluations += values.size
            whole._fill(points[new], values, is_symmetric=False)

        n_hits = int(np.count_nonzero(shared.are_kept(places)))
        self.ledger.cache_hits += n_hits
        self.ledger.cache_misses += len(points) - n_hits
        is_kept = shared.keep(places, fill)
        shared.add_times(places[is_kept], coef.reshape(len(points), -1)[is_kept], some, out.reshape(len(out), -1))
        left = np.flatnonzero(~is_kept)
        return points[left], coef[left]

    def rows(self, points: Points) -> np.ndarray:
        self.ledger.kernel_evaluations += self.n_rows * len(points)
        out = np.empty((len(points), self.n_rows), self.dtype)
        if self.kernel.name in _KINDS:
            if out.size:
                self._fill(points, out, is_symmetric=False)
            return out
        for begin, end, values in self._given_tiles(self.X, points):
            out[:, begin:end] = values.T
        return out

    def block(self, points: Points, *, exact: bool = False) -> np.ndarray:
        out = np.empty((len(points), len(points)), np.float64 if exact else self.dtype)
        self._fill_block(points, out)
        return out

    def working_block(self, points: Points) -> np.ndarray:
        n, width = len(points), vectors.padded(len(points))
        if self._space.size < n * width:
            self._space = np.empty(2 * n * width, self.dtype)  # memory that is never written to costs nothing
        K = self._space[: n * width].reshape(n, width)
        self._fill_block(points, K)
        K[:, n:] = 0  # not before: the threads that fill the block are to get its memory from the system
        return K

    def share_rows(self, n_bytes: int) -> None:
        n_slots = min(self.n_rows, n_bytes // (np.dtype(self.dtype).itemsize * max(self.n_rows, 1)))
        is_used = self.n_problems > 2 and self._whole is None and self.kernel.name in _KINDS and not self._is_binary
        if not is_used or self._shared or n_slots < _MIN_SHARED * self.n_rows:
            return
        if self._entries_per_row(self.dtype) >= _MIN_SHARED_ENTRIES:
            self._shared.append(SharedRows(self.numbers, self.dtype, n_slots))

    def keep_values(self, n_bytes: int, space: KnownValues | None = None, *, is_tied: bool = False) -> bool:
        is_used = self._whole is None and self.kernel.name in _KINDS  # others need not be quite symmetric
        if not is_used or known_values.BYTES * self.n_rows**2 > n_bytes:
            return False
        if not np.abs(self._diagonal(np.empty(0))).max() < known_values.LARGEST:
            return False
        self._known = KnownValues.filled(self.n_rows, self._lines, space, self._less() if is_tied else 0.0)
        return True

    def _less(self) -> float:
        """1 where most kernel values are nearer to 1 than to 0, and none exceeds it."""
        if self.kernel.name not in ("rbf", "laplacian"):
            return 0.0
        some = np.linspace(0, self.n_rows - 1, min(self.n_rows, _SAMPLE)).astype(np.intp)
        return float(np.median(self.block(self.points(some))) > 0.5)

    def _lines(self, begin: int, end: int) -> np.ndarray:
        """Kernel values in float64 of some rows with those from ``begin`` on."""
        points, rest = self.points(np.arange(begin, end)), np.arange(begin, self.n_rows)
        self.ledger.kernel_evaluations += len(points) * len(rest)
        out = np.empty((len(points), len(rest)))
        self.only(rest)._fill(points, out, is_symmetric=False)
        return out

    def keep_classes(self, most_rows: int, n_bytes: int) -> bool:
        if self._whole is None or self.kernel.name not in _KINDS:
            return False
        whole, places = self._whole
        assert isinstance(whole, RowsOnCPU)
        if whole.groups is None or whole.n_rows <= most_rows:  # few rows have all values at once
            return False
        sizes = np.bincount(whole.groups.astype(np.intp)).astype(np.float64)
        if np.dtype(self.dtype).itemsize * (sizes[sizes < most_rows] ** 2).sum() > n_bytes:
            return False
        groups = whole.groups[places]
        for label in np.unique(groups):
            if label not in whole._class_values:
                whole._class_values[label] = self.block(self.points(np.flatnonzero(groups == label)))
        return True

    def values(self, most_rows: int, *, exact: bool = True) -> tuple[np.ndarray, np.ndarray | slice]:
        return super().values(most_rows) if exact else self._pair_values()

    def _pair_values(self) -> tuple[np.ndarray, np.ndarray]:
        """Those between the rows of a pair of classes, in the order of the classes, whose own values are kept."""
        assert self._whole is not None
        whole, places = self._whole
        assert isinstance(whole, RowsOnCPU)
        assert whole.groups is not None
        groups, n = whole.groups[places], self.n_rows
        order, (first, second) = np.argsort(groups, kind="stable"), (groups.min(), groups.max())
        n_first = int(np.count_nonzero(groups == first))
        out = np.empty((n, vectors.padded(n)), self.dtype)
        out[:, n:] = 0
        out[:n_first, :n_first], out[n_first:, n_first:n] = whole._class_values[first], whole._class_values[second]
        self.ledger.kernel_evaluations += n_first * (n - n_first)
        self._fill(self.points(order), out, is_symmetric=True, n_known=n_first)
        return out, order

    def _all_values(self, order: np.ndarray) -> np.ndarray:
        n = self.n_rows
        out = np.empty((n, vectors.padded(n)))
        out[:, n:] = 0.0
        self._fill_block(self.points(order), out)
        if self.kernel.name not in _KINDS:  # which need not be quite symmetric
            out[:, :n] = out[:, :n].T.copy()
        return out

    def _once(self, name: str, compute: Callable[[np.ndarray], Any], coef: np.ndarray) -> Any:
        """Some rows take their errors from those of all rows, which parts of a fit share."""
        if self._whole is None or (name, type(coef)) in self._rounding:
            return super()._once(name, compute, coef)
        whole, places = self._whole
        found = whole._once(name, getattr(whole, compute.__name__), np.zeros(whole.n_rows))
        self._rounding[name, type(coef)] = found[places] if np.ndim(found) else found
        return self._rounding[name, type(coef)]

    def sweep_error(self, reach: np.ndarray, mass: float, n_terms: float) -> np.ndarray:
        if self.kernel.name == "cosine" and self.dtype == np.float32:
            return np.full(self.n_rows, mass * (float32_error.of_cosine(self.width) + gamma(n_terms)))
        if not self.has_relative_errors:
            return np.asarray(super().sweep_error(reach, mass, n_terms))
        error: np.ndarray = self._once("sweep error", self._sweep_error, reach) + 2 * gamma(n_terms)
        return np.asarray(np.where(reach > 0, error, 0.0) * reach + float32_error.absolute_error(mass))

    def _sweep_error(self, reach: np.ndarray) -> np.ndarray:
        if self._is_binary:
            n_entries = np.zeros(self.n_rows)  # products of bits are exact
        elif self.kernel.name == "rbf" and (self._centre is None or self._is_sparse):
            n_entries = self._measured.n_entries(self._centre).astype(np.float64)
        else:
            n_entries = np.full(self.n_rows, float(self.width))
        lengths = np.sqrt(self._squares(reach))
        return float32_error.relative_error(self.kernel, n_entries, lengths, self.longest, self.n_features)

    def _diagonal(self, coef: np.ndarray) -> np.ndarray:
        return self.kernel.diagonal(self.X, self.numbers)

    def _sum_depth(self, n_terms: float) -> float:
        if self.kernel.name not in _KINDS:
            return n_terms
        return min(n_terms, self._points_at_once) + n_terms / self._points_at_once + 1

    def _squares(self, coef: np.ndarray) -> np.ndarray:
        return self._measured.squared_norms(self._centre)

    def _fill_block(self, points: Points, out: np.ndarray) -> None:
        """Write the kernel values between points to the first columns of ``out``."""
        places = self._shared[0].places_of(points) if self._shared and out.dtype == self.dtype else None
        if places is not None:
            self._shared[0].fill_block(places, lambda new: self._new_block(points, new), out)
            return
        self.ledger.kernel_evaluations += len(points) ** 2
        if self.kernel.name in _KINDS:
            self._fill(points, out, is_symmetric=True)
            return
        for begin, end, values in self._given_tiles(points.X, points):
            out[begin:end, : len(points)] = values

    def _new_block(self, points: Points, new: np.ndarray) -> np.ndarray:
        """The kernel values between points whose rows are not shared."""
        self.ledger.kernel_evaluations += len(new) ** 2
        out = np.empty((len(new), len(new)), self.dtype)
        if len(new):
            self._fill(points[new] if len(new) < len(points) else points, out, is_symmetric=True)
        return out

    # -- rows as the compiled loops read them ------------------------------------------------------------------------

    def _local(self, stored: Any) -> _Prepared:
        """The rows of this rank, prepared once for each type; a float64 copy is needed rarely and not kept."""
        if stored in self._kept:
            return self._kept[stored]
        whole, places = self._among
        if whole is not self and stored in (self.dtype, _BITS):
            whole._local(stored)
        if whole is not self and stored in whole._kept:
            self._kept[stored] = whole._kept[stored].only(places)
            return self._kept[stored]
        prepared = self._prepare(self.X, stored)
        if stored in (self.dtype, _BITS) or (prepared.X is self.X and not sp.issparse(self.X)):
            self._kept[stored] = prepared
        return prepared

    def _stored(self, points: Points, dtype: Any) -> Any:
        """How rows and points are stored for values of this type: in a smaller type if their products are exact."""
        whole, are_own = self._among[0], self._are_own(points)
        if self._is_binary and (are_own or are_binary(points.X)):
            return _BITS
        if dtype == np.float32 or not self._is_sparse or self._centre is not None or self.kernel.name == "cosine":
            return dtype
        if whole._is_exact is None:
            whole._is_exact = exact_in_float32(whole._measured)
        return np.float32 if whole._is_exact and (are_own or exact_in_float32(Measured(points.X))) else dtype

    def _are_own(self, points: Points) -> bool:
        """Whether points are places among the rows of this rank."""
        return isinstance(points, TakenPoints) and points.source is self._among[0].X

    def _prepare_points(self, points: Points, stored: Any, *, are_rows: bool = False) -> _Prepared:
        kept = self._among[0]._kept
        if stored in kept and isinstance(points, TakenPoints) and self._are_own(points):
            return kept[stored].only(points.places)
        return self._prepare(points.X, stored, are_points=not are_rows)

    def _prepare(self, X: Any, stored: Any, *, are_points: bool = False) -> _Prepared:
        if stored == _BITS:
            return _Prepared(as_bits(X), squared_norms(X))
        if self.kernel.name == "cosine":
            X = normalised(X, stored)
        if self._is_sparse and (sp.issparse(X) or not are_points):  # points become dense in any case
            rows = self._measured if X is self._measured.X else Measured(X)
            return _Prepared(*compressed(rows, stored, self._centre))
        X = converted(dense(X), stored) if self._centre is None else shifted(dense(X), self._centre, stored)
        return _Prepared(X, squared_norms(X))

    def _kind(self, stored: Any) -> int:
        if self.is_by_differences and self.kernel.name == "rbf":  # 1-norm distances always are
            return compiled.DIFFERENCES
        # Between zeros and ones, the 1-norm distance is the squared one.
        return compiled.RBF if stored == _BITS and self.kernel.name == "laplacian" else _KINDS[self.kernel.name]

    @property
    def _points_at_once(self) -> int:
        """How many products a sum adds up before it is added to the others."""
        is_one_batch = 8 * self.n_features * _POINTS_AT_ONCE <= _BATCH_BYTES
        return _POINTS_AT_ONCE if is_one_batch else panel_width(np.float32)

    def _batches(
        self, points: Points, stored: Any, piece: int, cost: float, known: _Prepared | None = None
    ) -> Iterator[tuple[slice, _Prepared]]:
        """Points as the compiled loops read them, and their norms; as many at a time as ``piece`` rows take well.

        Memory is limited, since sparse points become dense, and so is the work between two looks at the clock.
        ``known`` are the points if they are prepared already.
        """
        width, d = self._points_at_once, max(self.n_features, 1)
        most = min(_BATCH_BYTES / (d * np.dtype(stored).itemsize), WORK / (piece * cost))
        spare = self._among[0]._panel_space
        try:
            space = spare.pop()
        except IndexError:
            space = np.empty(0, np.uint8)
        for begin, end in pieces(len(points), max(1, int(most / width)) * width):
            is_one = end - begin == len(points)
            prepared = known if is_one else None
            if prepared is None:
                prepared = self._prepare_points(points if is_one else points[begin:end], stored)
            if not self._is_by_blas(stored):
                prepared, space = self._panels(prepared, space)
            yield slice(begin, end), prepared
        spare[:] = [space]

    def _is_by_blas(self, stored: Any) -> bool:
        """Whether BLAS multiplies rows with points as they are; other loops read points as columns of panels."""
        is_wide = self.n_features > _MAX_PANEL_FEATURES
        return is_wide and not (
            stored == _BITS or self._is_sparse or self.is_by_differences or self.kernel.name == "laplacian"
        )

    def _panels(self, points: _Prepared, space: np.ndarray) -> tuple[_Prepared, np.ndarray]:
        """Points as columns of panels, the last one filled up with points of no coordinates; and the bytes they are in.

        These are ``space``, if it is large enough.
        """
        X = points.X
        n_lines = self.n_features if isinstance(X, SparseRows) else X.shape[1]
        width = self._points_at_once if X.dtype == _BITS else panel_width(X.dtype)
        each = list(pieces(points.n_rows, width))
        is_of_distances = self.kernel.name == "laplacian" and X.dtype != _BITS
        norms = np.empty(points.n_rows) if is_of_distances else points.norms
        panels, space = aligned((len(each), n_lines, width), X.dtype, space)

        def fill(k: int) -> None:
            begin, end = each[k]
            if isinstance(X, SparseRows):
                panel_of_sparse(*X, begin, end, panels[k])
            else:
                panel_of_dense(X, begin, end, panels[k])
            if is_of_distances:
                norms[begin:end] = np.abs(panels[k]).sum(axis=0, dtype=np.float64)[: end - begin]

        cores.each(fill, range(len(each)), float(panels.size))
        return _Prepared(panels, norms), space

    # -- passes over rows --------------------------------------------------------------------------------------------

    def _piece(self, n_rows: int, cost: float) -> int:
        """How many rows one thread works on at a time, if each value takes ``cost`` multiplications.

        A power of two, so that there are pieces for many threads, each large enough; it depends on the rows alone.
        """
        few = min(n_rows / _MIN_PIECES, WORK / (cost * self._points_at_once))
        return 1 << int(np.log2(min(max(few, _MIN_PIECE if few > 1 else 16), _MAX_PIECE)))

    def _entries_per_row(self, stored: Any) -> float:
        """How many entries of a row are multiplied, or words."""
        if stored == _BITS:
            return -(-self.n_features // 64)
        return self.n_features * (self._density if self._is_sparse else 1.0)

    def _cost(self, stored: Any) -> float:
        """Multiplications of a plain loop in the time of a kernel value."""
        is_plain = self.is_by_differences or self.kernel.name == "laplacian" or stored == _BITS
        return self._entries_per_row(stored) / (1 if is_plain else BLAS_SPEED) + 8

    def _add_times(self, points: Points, coef: np.ndarray, exact: bool, out: np.ndarray) -> None:
        dtype = np.float64 if exact else self.dtype
        stored, parameters = self._stored(points, dtype), _parameters(self.kernel, dtype)
        is_many, cost = coef.shape[1] > _MAX_COLUMNS, self._cost(stored)
        loop = compiled.times_many if is_many else compiled.times
        size = self._piece(self.n_rows, cost)
        shape, each = self._tile_shape(size, stored), list(pieces(self.n_rows, size))
        rows = self._local(stored) if self._pieces is None else None
        kept = [] if self._pieces is None else self._pieces.setdefault(stored, [None] * len(each))
        norms = None if rows is None else rows.norms.astype(dtype)
        for columns, batch in self._batches(points, stored, size, cost):
            few = np.ascontiguousarray(coef[columns] if is_many else coef[columns].T)
            arguments = (batch.X, batch.norms.astype(dtype), *parameters, few)

            def do(k: int, arguments: Any = arguments) -> None:
                begin, end = each[k]
                if rows is not None:
                    loop(self._kind(stored), rows.arrays, norms, *arguments, begin, end, *shape, out)
                    return
                piece = kept[k] = kept[k] or self._prepare(self.X[begin:end], stored)
                numbers = (piece.arrays, piece.norms.astype(dtype), *arguments)
                loop(self._kind(stored), *numbers, 0, end - begin, *shape, out[begin:end])

            work = self.n_rows * (columns.stop - columns.start) * cost
            cores.each(do, range(len(each)), work, may_end=True)

    def _fill(self, points: Points, out: np.ndarray, *, is_symmetric: bool, n_known: int = 0) -> None:
        """Write kernel values of rows with points to the columns of ``out``; if symmetric, of points to rows too.

        Where values between the first ``n_known`` points are known, and those between the others, only values of the
        ones with the others are computed.
        """
        dtype = out.dtype.type
        stored, parameters = self._stored(points, dtype), _parameters(self.kernel, dtype)
        rows = self._prepare_points(points, stored, are_rows=True) if is_symmetric else self._local(stored)
        cost, norms = self._cost(stored), rows.norms.astype(dtype)
        size = self._piece(rows.n_rows, cost)
        shape = self._tile_shape(size, stored)
        each = [(n_known + begin, n_known + end) for begin, end in pieces(rows.n_rows - n_known, size)]
        some, known = (points[:n_known], None) if n_known else (points, rows if is_symmetric else None)
        for columns, batch in self._batches(some, stored, size, cost, known):
            n_points = columns.stop - columns.start
            arguments = (self._kind(stored), rows.arrays, norms, batch.X, batch.norms.astype(dtype), *parameters)
            where = (n_points, columns.start, is_symmetric)
            do = partial(_on_piece, compiled.fill, (*arguments, *where), (*shape, out))
            # The last rows of a symmetric block have most values: they come first.
            work = (rows.n_rows - n_known) * n_points * cost
            cores.each(do, each[::-1], work, may_end=True)

    def _tile_shape(self, piece: int, stored: Any) -> tuple[int, int]:
        return min(piece, _BLAS_ROWS if self._is_by_blas(stored) else _TILE_ROWS), self._points_at_once

    def _given_tiles(self, X: Any, points: Points) -> Iterator[tuple[int, int, np.ndarray]]:
        """Values that are given, or that the user's function gives."""
        size = max(16, _GIVEN_TILE // max(len(points), 1))
        others = None if self.kernel.function is None else points.X
        for begin, end in pieces(X.shape[0] if len(points) else 0, size):
            few = X[begin:end]
            if self.kernel.function is None:
                values = dense(few[:, points.numbers])
            else:
                values = self.kernel.evaluated(few, others)
            yield begin, end, values
