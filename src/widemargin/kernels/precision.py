"""The precision of kernel values on a CPU: float32 or float64, from rows as they are, centred, or subtracted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from widemargin.kernels.functions import Kernel
from widemargin.kernels.storage import Measured, column_sums

Reduce: TypeAlias = Callable[[np.ndarray, Any], np.ndarray]  # combines an array over ranks by "sum" or "max"

_MAX_SPARSE_DENSITY = 0.5  # products with sparse rows are faster below it; measured
_N_SAMPLED = 32  # rows that tell the usual value of a column
_MIN_SAMPLED = 1 << 18  # entries of all rows that make a look at a sample worth it
_FLOAT32_KERNELS = ("rbf", "laplacian", "cosine")
_MAX_FLOAT64_ROWS = 4096  # so few rows cost little in float64
_PRODUCT_ERROR = 4 * float(np.finfo(np.float32).eps)  # of a float32 product, relative to the squared norms
_FLOAT32_RANGE = 1e-30, 1e30  # of squared norms and gamma, so that float32 neither overflows nor loses digits
_MAX_EXPONENT_ERROR = 1e-5  # in float32; an error of an exponent is a relative error of the kernel value
# In float64 the error must be below 1e-9: certificates would be those of another kernel.
_MAX_EXPONENT = 1e-9 / (4 * np.finfo(np.float64).eps)
_MAX_UNCENTRED_EXPONENT = 4.0  # rounding errors grow with the exponent: beyond it, rows may gain by being centred
_MAX_ROW_NORM = 1e150  # so that squares do not overflow
_MAX_KERNEL_VALUE = 1e150  # so that products of two values do not
_MAX_DENSE_BYTES = 1 << 30  # of one rank's sparse rows that must be made dense


class Precision(NamedTuple):
    dtype: Any
    is_sparse: bool = False
    centre: np.ndarray | None = None  # subtracted from all rows
    by_differences: bool = False  # squared distances come from differences of rows, not from products
    density: float = 1.0  # of sparse rows: the share of entries that are multiplied


def extent(rows: Measured, chosen: Precision, reduce: Reduce) -> tuple[int, float]:
    """The largest number of entries that a product of rows adds up, and the largest norm of a row, of all ranks."""
    X = rows.X
    width = np.diff(X.indptr).max(initial=0) if chosen.is_sparse and sp.issparse(X) else X.shape[1]
    width, square = reduce(np.array([float(width), _max_squared_norm(rows, chosen.centre)]), "max")
    return int(width), float(np.sqrt(square))


def choose_for(kernel: Kernel, rows: Measured, points: Measured) -> Precision:
    """The precision for values of dense rows with points, from the points alone but for the range of numbers.

    A row that is twice as long as all points has distances from them that are a third of its length or more: relative
    to these, rounding errors are small wherever it is. Other rows are not much longer than the points.
    """
    precision = choose(kernel, points, lambda values, op: values, are_few_exact=False)
    if kernel.function is None and kernel.name != "precomputed":
        largest = _max_squared_norm(rows, None)
        _refuse_overflow(kernel, largest)
        if precision.dtype == np.float32 and largest > _FLOAT32_RANGE[1]:
            precision = precision._replace(dtype=np.float64)
    return precision


def choose(kernel: Kernel, rows: Measured, reduce: Reduce, *, are_few_exact: bool = True) -> Precision:
    """float32 for kernels with values up to 1, unless exponents would lose too much; all ranks choose alike.

    Values of other kernels may be large and differ by little: they need float64. So do few rows, if ``are_few_exact``.
    """
    X = rows.X
    if kernel.function is not None or kernel.name == "precomputed":
        return Precision(X.dtype if kernel.name == "precomputed" else np.float64)
    share = rows.density()
    precision = Precision(np.float64, is_sparse=share < _MAX_SPARSE_DENSITY, density=share)
    largest = 1.0
    if not kernel.is_shift_invariant:
        largest = _max_over_ranks(rows, None, reduce)
        _refuse_overflow(kernel, largest)
    if kernel.name not in _FLOAT32_KERNELS:
        return precision
    n_rows = reduce(np.array([float(X.shape[0])]), "sum")[0]
    is_float32 = _fits_float32(largest)
    if kernel.name != "cosine":
        precision, is_float32 = _of_distances(kernel, rows, precision, reduce)
    is_float32 &= n_rows > _MAX_FLOAT64_ROWS or not are_few_exact
    precision = precision._replace(dtype=np.float32 if is_float32 else np.float64)
    if kernel.name == "cosine" or n_rows * X.shape[1] < _MIN_SAMPLED:
        return precision
    return _from_usual_values(kernel, rows, precision, reduce)


def _from_usual_values(kernel: Kernel, rows: Measured, precision: Precision, reduce: Reduce) -> Precision:
    """The precision for sparse rows, if dense rows become so when the usual value of each column is subtracted.

    Images with a background and scaled features do. The rows must not become too long for their type.
    """
    X = rows.X
    is_dense = not (precision.is_sparse or precision.by_differences or sp.issparse(X))
    sample = X[:: -(-max(X.shape[0], 1) // _N_SAMPLED)] if is_dense else np.empty((0, X.shape[1]))
    usual = reduce(_most_frequent(sample), "max")
    centre = np.where(np.isfinite(usual), usual, 0.0)

    def share(some: Measured) -> float:
        size = float(some.X.shape[0] * some.X.shape[1])
        n_others = float(some.n_entries(centre).sum()) if is_dense else size
        n_others, size = reduce(np.array([n_others, size]), "sum")
        return float(n_others / size) if size else 1.0

    if share(Measured(sample)) >= _MAX_SPARSE_DENSITY or (density := share(rows)) >= _MAX_SPARSE_DENSITY:
        return precision
    exponent = _exponent(kernel, X, _max_over_ranks(rows, centre, reduce))
    is_near = exponent <= (_MAX_EXPONENT if precision.dtype == np.float64 else _MAX_EXPONENT_ERROR / _PRODUCT_ERROR)
    return precision._replace(is_sparse=True, centre=centre, density=density) if is_near else precision


def _most_frequent(sample: np.ndarray) -> np.ndarray:
    """The most frequent value of each column; minus infinity if there are no rows."""
    if not len(sample):
        return np.full(sample.shape[1], -np.inf)
    counts = np.array([(sample == row).sum(axis=0) for row in sample])
    return np.asarray(np.take_along_axis(sample, counts.argmax(axis=0)[None], axis=0)[0], dtype=np.float64)


def _of_distances(kernel: Kernel, rows: Measured, precision: Precision, reduce: Reduce) -> tuple[Precision, bool]:
    """The precision for kernels of distances, and whether float32 is exact enough.

    Dense rows are centred where that is worth it. Sparse rows are made dense and centred only where float64 needs it
    and they fit. Where that is not enough either, distances come from differences of rows.
    """
    X, gamma = rows.X, float(kernel.gamma)
    smallest = float(np.finfo(np.float64).tiny)  # so that its inverse is finite
    max_float32 = _MAX_EXPONENT_ERROR / (max(gamma, smallest / _PRODUCT_ERROR) * _PRODUCT_ERROR)
    sparse_bytes = 8.0 * X.shape[0] * X.shape[1] if precision.is_sparse or sp.issparse(X) else 0.0
    largest, sparse_bytes = map(float, reduce(np.array([_max_squared_norm(rows, None), sparse_bytes]), "max"))
    _refuse_overflow(kernel, largest)
    fits = _fits_float32(largest) and _fits_float32(gamma)
    exponent = _exponent(kernel, X, largest)
    if exponent > _MAX_EXPONENT and sparse_bytes > _MAX_DENSE_BYTES:
        raise ValueError(
            f"gamma={gamma:g} is too large for sparse rows up to {np.sqrt(largest):.1e} long: their distances are "
            f"rounded to more than the kernel's width. With these rows gamma must be at most "
            f"{gamma * _MAX_EXPONENT / exponent:.1e}; or scale the features (MaxAbsScaler)."
        )
    is_near_zero = exponent <= _MAX_UNCENTRED_EXPONENT and largest <= max_float32
    if is_near_zero or (exponent <= _MAX_EXPONENT and sparse_bytes > 0):
        return precision, fits and largest <= max_float32
    sums = reduce(np.append(column_sums(X), float(X.shape[0])), "sum")
    centre = sums[:-1] / max(sums[-1], 1.0)
    centred = _max_over_ranks(rows, centre, reduce)
    # A few rows far from all others pull the centre away from the others.
    is_centred = centred <= largest / 4 or centred <= max_float32 < largest
    nearest = centred if is_centred else largest
    if _exponent(kernel, X, nearest) > _MAX_EXPONENT:
        precision = Precision(np.float64, by_differences=True)
    elif is_centred:
        precision = Precision(np.float64, centre=centre)
    return precision, fits and nearest <= max_float32


def _fits_float32(value: float) -> bool:
    return _FLOAT32_RANGE[0] <= value <= _FLOAT32_RANGE[1]


def _refuse_overflow(kernel: Kernel, squared_norm: float) -> None:
    """Raise ValueError if kernel values overflow, given the largest squared norm of a row."""
    length, largest = float(np.sqrt(squared_norm)), 1.0
    if kernel.name in ("linear", "poly"):
        gamma = 1.0 if kernel.name == "linear" else float(kernel.gamma)
        degree = 1 if kernel.name == "linear" else kernel.degree
        with np.errstate(over="ignore"):
            largest = float(np.float64(gamma * squared_norm + abs(kernel.coef0)) ** degree)
    if not (length <= _MAX_ROW_NORM and largest <= _MAX_KERNEL_VALUE):
        raise ValueError(
            f"Rows are up to {length:.0e} long, too long for kernel={kernel.name!r} in float64: they may be of up "
            f"to {_MAX_ROW_NORM:g}, with kernel values of up to {_MAX_KERNEL_VALUE:g} (here {largest:.0e}); scale the "
            "features (StandardScaler)."
        )


def _exponent(kernel: Kernel, X: Any, squared_norm: float) -> float:
    """The exponent that rounding errors are relative to, given the largest squared norm of a row."""
    is_one_norm = kernel.name == "laplacian"
    return float(kernel.gamma) * float(np.sqrt(squared_norm * X.shape[1]) if is_one_norm else squared_norm)


def _max_over_ranks(rows: Measured, centre: np.ndarray | None, reduce: Reduce) -> float:
    return float(reduce(np.array([_max_squared_norm(rows, centre)]), "max")[0])


def _max_squared_norm(rows: Measured, centre: np.ndarray | None) -> float:
    """The largest squared norm of a row, measured from the centre."""
    return float(rows.squared_norms(centre).max(initial=0.0))
