"""Numbers that belong to rows, in fixed pieces: passes over them on all cores, with the same bits on any number."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from widemargin.compiled import accurate
from widemargin.compiled.labels import class_sums, distinct, largest_bits
from widemargin.cores import each

T = TypeVar("T")

_ROWS = 1 << 16  # of a piece: arrays of so many float64 stay in the L2 cache between the operations on them
_ENTRIES = 1 << 20  # of rows in a piece
_MAX_FEW = 64  # classes


@lru_cache(maxsize=64)
def row_pieces(n_rows: int) -> tuple[slice, ...]:
    """Slices of all rows, at least one."""
    n_pieces = max(1, -(-n_rows // _ROWS))
    return tuple(slice(k * _ROWS, min((k + 1) * _ROWS, n_rows)) for k in range(n_pieces))


def each_piece(do: Callable[[slice], object], n_rows: int, work_per_row: float = 4.0) -> None:
    """Call ``do`` for slices of the rows, several at a time; it writes where no other call does."""
    pieces = row_pieces(n_rows)
    if len(pieces) == 1:
        do(pieces[0])
    else:
        each(do, pieces, work_per_row * n_rows)


def elementwise(function: np.ufunc, values: np.ndarray, *others: Any) -> np.ndarray:
    """``function(values, *others)`` of arrays with a float64 for each row, and of numbers."""
    if len(row_pieces(len(values))) == 1:
        return np.asarray(function(values, *others))
    out = np.empty(len(values))

    def do(rows: slice) -> None:
        few = (each[rows] if isinstance(each, np.ndarray) else each for each in others)
        function(values[rows], *few, out=out[rows])

    each_piece(do, len(values))
    return out


def sum_of_pieces(part: Callable[[slice], np.ndarray], n_rows: int, work_per_row: float = 4.0) -> np.ndarray:
    """The sum of what ``part`` returns for slices of the rows, an array each.

    The arrays are added up in pairs, as numpy.sum does, and so rounded as little.
    """
    pieces = row_pieces(n_rows)
    if len(pieces) == 1:
        return part(pieces[0])
    parts = of_pieces(part, n_rows, work_per_row)
    by_entry = np.stack(parts, axis=-1)
    return np.asarray(by_entry.sum(axis=-1, dtype=by_entry.dtype))


def of_pieces(part: Callable[[slice], T], n_rows: int, work_per_row: float = 4.0) -> list[T]:
    """What ``part`` returns for slices of the rows."""
    pieces = row_pieces(n_rows)
    if len(pieces) == 1:
        return [part(pieces[0])]
    parts: list[Any] = [None] * len(pieces)

    def do(k: int) -> None:
        parts[k] = part(pieces[k])

    each(do, range(len(pieces)), work_per_row * n_rows)
    return parts


def places_of(condition: Callable[[slice], np.ndarray], n_rows: int) -> np.ndarray:
    """The ascending numbers of the rows for which ``condition``, asked for slices, is true or not zero."""
    if len(row_pieces(n_rows)) == 1:
        return np.flatnonzero(condition(slice(0, n_rows)))
    return np.concatenate(of_pieces(lambda rows: np.flatnonzero(condition(rows)) + rows.start, n_rows))


def largest_size(values: np.ndarray) -> float:
    """The largest absolute value of floats; NaN if one of them is NaN, 0 if there are none.

    Floats without their sign are ordered like the integers of the same bits, infinity and NaN last.
    """
    if not values.size:
        return 0.0
    if not values.flags.c_contiguous or values.dtype not in (np.float32, np.float64):
        return float(np.maximum(values.max(), -values.min()))
    flat = np.asarray(values).reshape(-1)
    kind = np.int32 if values.dtype == np.float32 else np.int64
    bits, mask = flat.view(kind), kind(np.iinfo(kind).max)
    starts = range(0, flat.size, _ENTRIES)
    largest = np.empty(len(starts), kind)

    def do(k: int) -> None:
        largest[k] = largest_bits(bits[starts[k] : starts[k] + _ENTRIES], mask)

    each(do, range(len(starts)), flat.size)
    return float(largest.max(keepdims=True).view(values.dtype)[0])


def distinct_labels(y: np.ndarray) -> np.ndarray:
    """``numpy.unique(y)``, fast where labels are numbers and classes are few."""
    pieces = row_pieces(len(y))
    if len(pieces) == 1 or y.dtype.kind not in "biuf" or y.dtype.itemsize > 8 or y.dtype == np.float16:
        return np.unique(y)
    found, values = np.empty((len(pieces), _MAX_FEW), y.dtype), y.view(np.uint8) if y.dtype.kind == "b" else y
    n_found = np.empty(len(pieces), np.intp)

    def do(k: int) -> None:
        n_found[k] = distinct(values[pieces[k]], found[k].view(values.dtype))

    each(do, range(len(pieces)), 4.0 * len(y))
    if (n_found < 0).any():
        return np.unique(y)
    return np.unique(np.concatenate([few[:n] for few, n in zip(found, n_found, strict=True)]))


def encoded(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The number of each label among the sorted classes, in float64."""
    codes = np.empty(len(y))

    def do(rows: slice) -> None:
        codes[rows] = y[rows] == classes[1] if len(classes) == 2 else np.searchsorted(classes, y[rows])

    each_piece(do, len(y), 16.0)
    return codes


def sums_by_sign(y: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sum of the values of the rows that are not negative, and that of the others."""
    return sum_of_pieces(lambda rows: class_sums(y[rows] < 0, values[rows], 2), len(values))


def sums_by_class(codes: np.ndarray, values: np.ndarray, n_classes: int) -> np.ndarray:
    """The sum of the values of each class, from class numbers."""
    return sum_of_pieces(lambda rows: class_sums(codes[rows], values[rows], n_classes), len(values))


def accurate_sums_by_class(side: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the values of class 0 and of class 1, as two arrays for one sum (``widemargin.compiled.accurate``)."""

    def of_piece(rows: slice) -> np.ndarray:
        sums = np.zeros((2, 1, 2))
        accurate.add_by_class(side[rows], values[rows], sums[0, 0], sums[1, 0])
        return sums

    (high, low), *others = of_pieces(of_piece, len(values), 16.0)
    for its_high, its_low in others:
        accurate.join_sums(its_high, its_low, high, low)
    return high[0], low[0]
