"""A single rank: every collective is the identity and costs nothing."""

import numpy as np

from widemargin.comm.protocol import Reduction
from widemargin.ledger import Ledger


class Solo:
    """The communicator of a fit with one rank."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self.ledger = Ledger()

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        return values

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        return [values]

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        assert values is not None
        return values
