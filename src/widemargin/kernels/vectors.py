"""Primitives on vectors in NumPy: the choice and the problem of a working set.

:mod:`torch_working_set` has the same functions for a GPU, which must give the same answers.

The compiled loops of :mod:`widemargin.compiled.working_set` read ``LANES`` numbers at a time and check nothing: the
width of the block and the length of every vector must be multiples of ``LANES``, filled up with rows that cannot move.
They are called from :func:`solve` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from widemargin import cores
from widemargin.compiled import working_set
from widemargin.ledger import Ledger
from widemargin.pauses import WORK, pause_alone

FIXED = np.float32(-3e38)  # the key of a row that cannot move: it comes last
_MIN_GROUPS = 1024
_ROWS_AT_ONCE = 128  # of a block
_WORK_PER_STEP = 4  # multiplications for each row of a working set


class Dual(NamedTuple):
    """The dual of some rows: minus the gradient, the coefficients and their bounds."""

    pull: Any
    beta: Any
    low: Any
    high: Any


def group_size(n_rows: int) -> int:
    """How many neighbouring rows form a group: the largest power of two that leaves ``_MIN_GROUPS`` groups."""
    return 1 << max((n_rows // _MIN_GROUPS).bit_length() - 1, 0)


def scan(dual: Dual, kept: np.ndarray, middle: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """The worst row of each group of ``size`` neighbours on either side, rows that are kept left out.

    Returns keys and places, a line for rows that may rise and one for rows that may fall, where a key is the pull
    beyond ``middle``, ``FIXED`` of a row that may do neither, in the first line, and minus infinity where a group has
    no row; then the largest pull of a row that may rise and the smallest of one that may fall.
    """
    pull, up, down, n = dual.pull, dual.beta < dual.high, dual.beta > dual.low, len(dual.beta)
    top, bottom = np.max(pull, where=up, initial=-np.inf), np.min(pull, where=down, initial=np.inf)
    is_new = np.ones(n, dtype=bool)
    is_new[kept] = False
    force = (pull - middle).astype(np.float32)
    keys = np.full((2, -(-n // size), size), -np.inf, np.float32)
    flat = keys.reshape(2, -1)[:, :n]
    np.copyto(flat[0], force, where=is_new & up & (~down | (force >= 0)))
    np.copyto(flat[1], -force, where=is_new & down & (~up | (force < 0)))
    np.copyto(flat[0], FIXED, where=is_new & ~up & ~down)
    return keys.max(axis=2), keys.argmax(axis=2) + size * np.arange(keys.shape[1]), top, bottom


def choose(keys: np.ndarray, places: np.ndarray, kept: np.ndarray, n_new: int) -> np.ndarray:
    """The rows that are kept and those of the ``n_new`` largest keys, half from each side if both have as many.

    Where too few rows can move, others follow.
    """
    n_up, n_down = (keys > FIXED).sum(axis=1)
    n_up = min(n_up, max(n_new // 2, n_new - n_down))
    n_down = min(n_down, n_new - n_up)
    rising, falling = np.take_along_axis(places, np.argsort(-keys, axis=1, kind="stable"), axis=1)
    return np.concatenate([kept, rising[:n_up], falling[:n_down], rising[n_up : n_new - n_down]])


def keep(working: np.ndarray, dual: Dual, n_kept: int) -> np.ndarray:
    """``n_kept`` rows of a working set, in order: free rows first, then the latest."""
    rank = np.arange(len(working)) + len(working) * ((dual.beta > dual.low) & (dual.beta < dual.high))
    return working[np.sort(np.argsort(rank)[len(working) - n_kept :])]


def padded(n: int) -> int:
    """The width of the kernel block of a working set of ``n`` rows."""
    return -(-n // working_set.LANES) * working_set.LANES


def solve(
    K: np.ndarray, dual: Dual, tol: float, middle: Any, is_tied: bool, max_steps: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """New ``beta``, new ``pull`` and the number of steps; ``K`` is square, or filled up with zeros to ``padded(n)``.

    Coefficients are in float64. Pulls are in float32 if the block is and ``tol`` is far above their rounding errors;
    the caller computes those of the result anew. It does not matter that they are measured from ``middle``.
    """
    n, width = len(dual.beta), padded(len(dual.beta))
    K = np.pad(K, ((0, 0), (0, width - n))) if K.shape == (n, n) and n < width else K
    if K.shape != (n, width):
        raise ValueError(f"The kernel block of {n} rows has the shape {K.shape}: it must be {(n, n)} or {(n, width)}.")
    pull, beta, low, high = (np.pad(each, (0, width - n)) for each in dual)
    if tol > working_set.RESOLVED * np.abs(pull).max(initial=0.0):
        pull = pull.astype(K.dtype)
    diagonal = np.pad(np.diagonal(K[:, :n]), (0, width - n), constant_values=1.0)
    loop = working_set.pairs if is_tied else working_set.singles
    steps, few = 0, max(1, int(WORK / (_WORK_PER_STEP * width)))
    while True:  # each call goes on where the one before ended
        done = int(loop(K, diagonal, pull, beta, low, high, float(tol), min(few, max_steps - steps)))
        steps += done
        if done < few or steps >= max_steps:
            return beta[:n], pull[:n], steps
        pause_alone(WORK)


def block_times(K: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Sums of the values of a block times changes of coefficients, and times the sizes of the changes: two columns."""
    n, size = len(change), np.abs(change)
    out = np.empty((n, 2))

    def some(begin: int) -> None:
        few = slice(begin, min(begin + _ROWS_AT_ONCE, n))
        working_set.block_times(K[few], change, size, out[few])

    cores.each(some, range(0, n, _ROWS_AT_ONCE), 2.0 * n * n)
    return out


class Repeated:
    def __init__(self, step: Callable[[], None], ledger: Ledger) -> None:
        self._step = step

    def __call__(self, times: int) -> None:
        for _ in range(times):
            self._step()
