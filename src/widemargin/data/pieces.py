"""Numbers that belong to rows, in fixed pieces: passes over them on all cores, with the same bits on any number."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from widemargin.cores import each

_ROWS = 1 << 16  # of a piece: arrays of so many float64 stay in the L2 cache between the operations on them


@lru_cache(maxsize=64)
def row_pieces(n_rows: int) -> tuple[slice, ...]:
    """Slices of all rows, at least one."""
    n_pieces = max(1, -(-n_rows // _ROWS))
    return tuple(slice(k * _ROWS, min((k + 1) * _ROWS, n_rows)) for k in range(n_pieces))


def each_piece(do: Callable[[slice], object], n_rows: int, work_per_row: float = 4.0) -> None:
    """Call ``do`` for slices of the rows, several at a time; it writes where no other call does."""
    each(do, row_pieces(n_rows), work_per_row * n_rows)


def sum_of_pieces(part: Callable[[slice], np.ndarray], n_rows: int, work_per_row: float = 4.0) -> np.ndarray:
    """The sum of what ``part`` returns for slices of the rows, an array each, added up in their order."""
    pieces = row_pieces(n_rows)
    if len(pieces) == 1:
        return part(pieces[0])
    parts: list[np.ndarray] = [np.empty(0)] * len(pieces)

    def do(k: int) -> None:
        parts[k] = part(pieces[k])

    each(do, range(len(pieces)), work_per_row * n_rows)
    total = parts[0].copy()
    for other in parts[1:]:
        total += other
    return total
