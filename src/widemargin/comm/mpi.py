"""Ranks as MPI processes, through an mpi4py communicator.

``MPI_Allreduce`` adds in an order of its own. Here rank 0 gathers, adds in rank order and broadcasts, so that every
transport gives the same bits.
"""

from typing import Any

import numpy as np

from widemargin.comm.protocol import Reduction, reduce_in_order
from widemargin.ledger import Ledger


class Mpi:
    """The communicator of one MPI rank."""

    def __init__(self, comm: Any) -> None:
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.ledger, self._comm = Ledger(), comm

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        values = np.ascontiguousarray(values)
        everyone = np.empty((self.size, values.size), values.dtype) if self.rank == 0 else None
        self._comm.Gather(values, everyone)
        outcome = np.empty_like(values) if everyone is None else reduce_in_order(list(everyone), op)
        self._comm.Bcast(outcome)
        self.ledger.exchanged(self, up=values, down=outcome)
        return outcome

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        values = np.ascontiguousarray(values)
        sizes = np.empty(self.size, np.int64) if self.rank == root else None
        self._comm.Gather(np.array([values.size]), sizes, root)
        self.ledger.exchanged(self, up=values, down=None, centre=root)
        if sizes is None:
            self._comm.Gatherv(values, None, root)
            return None
        joined = np.empty(sizes.sum(), values.dtype)
        self._comm.Gatherv(values, (joined, sizes), root)
        return np.split(joined, np.cumsum(sizes)[:-1])

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        header = np.zeros(3, np.int64)  # size and dtype are sent first; nothing is pickled
        is_root = self.rank == root
        if is_root:
            assert values is not None
            header[:] = values.size, ord(values.dtype.kind), values.dtype.itemsize
        self._comm.Bcast(header, root)
        size, kind, width = header.tolist()
        outcome = np.ascontiguousarray(values) if is_root else np.empty(size, f"{chr(kind)}{width}")
        self._comm.Bcast(outcome, root)
        self.ledger.exchanged(self, up=None, down=outcome, centre=root)
        return outcome
