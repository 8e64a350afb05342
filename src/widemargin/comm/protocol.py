"""The communicator protocol: how ranks exchange arrays."""

from functools import reduce
from typing import Literal, Protocol

import numpy as np

from widemargin.ledger import Ledger

HIGHEST_NUMBER = 1 << 40  # peer numbers are below this
Reduction = Literal["sum", "min", "max"]

_OPERATIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def reduce_in_order(everyone: list[np.ndarray], op: Reduction) -> np.ndarray:
    """Combine the arrays of all ranks in rank order, so that sums are bit-identical everywhere."""
    return reduce(_OPERATIONS[op], everyone)


class Communicator(Protocol):
    """One rank's view of all ranks.

    All ranks call the collectives in the same order. Sums are taken in rank order, so all ranks and all runs get the
    same bits. Arrays are numeric and one-dimensional. Do not write to returned arrays: other ranks may share them.

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
        """The arrays of all ranks, of any lengths, at ``root``; None on other ranks."""

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        """The array of ``root``, on every rank; the argument of other ranks is ignored."""


def place_among_ranks(comm: Communicator, n: int) -> slice:
    """The slice of this rank's ``n`` items in the concatenation of the items of all ranks."""
    counts = np.zeros(comm.size)
    counts[comm.rank] = n
    ends = np.cumsum(comm.allreduce(counts)).astype(np.intp)
    return slice(int(ends[comm.rank]) - n, int(ends[comm.rank]))
