"""What a rank can say to the others; it knows nothing of SVMs."""

from __future__ import annotations

from functools import reduce
from typing import Literal, Protocol

import numpy as np

from widemargin.ledger import Ledger

HIGHEST_NUMBER = 1 << 40  # of a peer, and beyond
Reduction = Literal["sum", "min", "max"]

_OPERATIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def reduce_in_order(everyone: list[np.ndarray], op: Reduction) -> np.ndarray:
    """Combine the arrays of all ranks one after the other, which fixes the bits of a sum."""
    return reduce(_OPERATIONS[op], everyone)


class Communicator(Protocol):
    """One rank's view of all ranks.

    Collectives are called by every rank in the same order. Sums are taken in the order of ranks, so that every rank
    holds the same bits and so does every run. Arrays are numeric and of one dimension; what comes back may be shared
    with other ranks and is not to be written to.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.comm.threads import on_ranks
    >>> on_ranks(2, lambda comm: float(comm.allreduce(np.array([comm.rank + 1.0]))[0]))
    [3.0, 3.0]
    """

    rank: int
    size: int
    ledger: Ledger

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        """Elementwise sum, minimum or maximum over ranks; every rank gets the result."""

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        """The arrays of all ranks, which may differ in length, at ``root``; None elsewhere."""

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        """The array of ``root``, on every rank; what others pass is not looked at."""


def place_among_ranks(comm: Communicator, n: int) -> slice:
    """Where this rank's ``n`` things stand when those of all ranks are put one after the other."""
    counts = np.zeros(comm.size)
    counts[comm.rank] = n
    ends = np.cumsum(comm.allreduce(counts)).astype(np.intp)
    return slice(int(ends[comm.rank]) - n, int(ends[comm.rank]))
