"""A cache of kernel rows of limited size."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from widemargin import cores
from widemargin.compiled.kernels import add_rows
from widemargin.kernels.points import Points
from widemargin.kernels.storage import pieces

if TYPE_CHECKING:
    from widemargin.kernels.protocol import KernelRows

_MAX_CACHED_AT_ONCE = 32
_ENTRIES_AT_ONCE = 1 << 14  # of cached rows that one thread adds up at a time


class RowCache:
    """Kernel values of points with all rows of a rank; the least recently used row is replaced first.

    A row is kept from the second time that it is asked for among few others: most are asked for once, and many at once
    are cheaper to use as they are computed than to store.
    """

    def __init__(self, rows: KernelRows, n_bytes: int) -> None:
        self._rows, self.n_bytes = rows, n_bytes
        n_slots = n_bytes // (np.dtype(rows.dtype).itemsize * max(rows.n_rows, 1))
        self._values = np.empty((n_slots, rows.n_rows), rows.dtype)  # the system provides pages when they are written
        self._slot_of: OrderedDict[int, int] = OrderedDict()
        self._asked: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._slot_of

    @property
    def n_slots(self) -> int:
        return len(self._values)

    def times(self, points: Points, coef: np.ndarray) -> np.ndarray:
        numbers = points.numbers.tolist()
        again = [k for k, number in enumerate(numbers) if number in self._asked and number not in self._slot_of]
        hits = [k for k, number in enumerate(numbers) if number in self._slot_of]
        self._rows.ledger.cache_hits += len(hits)
        self._rows.ledger.cache_misses += len(numbers) - len(hits)
        for k in hits:
            self._slot_of.move_to_end(numbers[k])
        if len(numbers) <= _MAX_CACHED_AT_ONCE and len(again) + len(hits) <= self.n_slots:
            self.keep(points[again])
            hits += again
        out = np.zeros(self._rows.n_rows)
        if hits:
            slots = np.array([self._slot_of[numbers[k]] for k in hits])
            cores.each(
                lambda piece: add_rows(self._values, slots, coef[hits], *piece, out),
                list(pieces(len(out), _ENTRIES_AT_ONCE)),
                float(len(hits) * len(out)),
            )
        once = np.setdiff1d(np.arange(len(numbers)), hits)
        if len(once):
            out += self._rows.times(points[once], coef[once])
            self._asked.update(points.numbers[once].tolist())
        return out

    def keep(self, points: Points) -> None:
        """Compute and keep the rows of these points, which must fit and not be kept yet."""
        if len(points):
            self._values[[self._free_slot(number) for number in points.numbers.tolist()]] = self._rows.rows(points)

    def _free_slot(self, number: int) -> int:
        slot = len(self._slot_of)
        if slot >= self.n_slots:
            _, slot = self._slot_of.popitem(last=False)
        self._slot_of[number] = slot
        return slot
