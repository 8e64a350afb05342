"""Kernel rows that the problems of a fit share: one class against the rest, for each class, asks for the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from widemargin import cores
from widemargin.compiled import shared_rows as compiled
from widemargin.kernels.points import Points
from widemargin.kernels.storage import pieces

_ROWS_AT_ONCE = 2048  # whose sums one thread adds up: they stay in the first-level cache
_LINES_AT_ONCE = 64  # of a block
_MIN_SHARE = 3  # sums of all rows are faster than those of one row in so many, which are not next to each other


class SharedRows:
    """Kernel values of points with all rows, kept from the first use on, as long as there is room for more.

    ``numbers`` are those of the rows, ascending.
    """

    def __init__(self, numbers: np.ndarray, dtype: Any, n_slots: int) -> None:
        self._numbers = numbers
        self._values = np.empty((n_slots, len(numbers)), dtype)  # the system provides pages when they are written
        self._slots = np.full(len(numbers), -1)  # of each row
        self._n_used = 0

    def places_of(self, points: Points) -> np.ndarray | None:
        """Which rows these points are; None if some are none of them."""
        places = np.minimum(np.searchsorted(self._numbers, points.numbers), len(self._numbers) - 1)
        return places if np.array_equal(self._numbers[places], points.numbers) else None

    def are_kept(self, places: np.ndarray) -> np.ndarray:
        """Whether the kernel rows of these points are kept."""
        return np.asarray(self._slots[places] >= 0)

    def keep(self, places: np.ndarray, fill: Callable[[np.ndarray, np.ndarray], None]) -> np.ndarray:
        """Whether each of these points is kept; ``fill`` writes the values of new ones, by their places among them."""
        new = np.flatnonzero(~self.are_kept(places))[: len(self._values) - self._n_used]
        if len(new):
            end = self._n_used + len(new)
            fill(new, self._values[self._n_used : end])
            self._slots[places[new]] = np.arange(self._n_used, end)
            self._n_used = end
        return self.are_kept(places)

    def add_times(self, places: np.ndarray, coef: np.ndarray, some: np.ndarray | None, out: np.ndarray) -> None:
        """Add kernel values of points times coefficients to ``out``, for all rows or some; points must be kept."""
        lines, coef = self._slots[places], np.ascontiguousarray(coef.T)
        n_rows = len(self._slots)
        is_gathered = some is not None and len(out) * _MIN_SHARE < n_rows
        sums = out if some is None or is_gathered else np.zeros((n_rows, len(coef)))

        def add(piece: tuple[int, int]) -> None:
            if is_gathered:
                compiled.add_some(self._values, lines, coef, some, *piece, sums)
            else:
                compiled.add_all(self._values, lines, coef, *piece, sums)

        cores.each(add, list(pieces(len(sums), _ROWS_AT_ONCE)), float(len(sums) * coef.size))
        if sums is not out:
            out += sums[some]

    def fill_block(self, places: np.ndarray, block: Callable[[np.ndarray], np.ndarray], out: np.ndarray) -> None:
        """Write kernel values between points; ``block`` computes those between points that are not kept."""
        lines, n = self._slots[places], len(places)
        new, at = np.flatnonzero(lines < 0), np.zeros(n, np.intp)
        at[new], between = np.arange(len(new)), block(new)
        each = list(pieces(n, _LINES_AT_ONCE))
        cores.each(lambda few: compiled.take_lines(self._values, lines, places, *few, out), each, float(n * n))
        cores.each(lambda few: compiled.complete(lines, between, at, *few, out), each, float(n * n))
