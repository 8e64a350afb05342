"""What kernel solvers on several ranks share: points that travel, numbers that are put together, the final model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from widemargin.comm._protocol import Communicator
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points


class KernelModel(NamedTuple):
    """A decision function ``sum_j coef_j k(x, z_j) + intercept``, and what else a problem reports of it."""

    kernel: Kernel  # with a number for its gamma
    points: Points
    coef: np.ndarray
    intercept: float
    report: dict[str, Any]


def share(comm: Communicator, values: np.ndarray) -> np.ndarray:
    """The arrays of all ranks, one after the other, on every rank."""
    if comm.size == 1:
        return values
    gathered = comm.gather(values)
    return comm.broadcast(None if gathered is None else np.concatenate(gathered))


def share_points(comm: Communicator, points: Points) -> Points:
    """The points of all ranks, on every rank."""
    if comm.size == 1:
        return points
    return points.unpack([share(comm, np.ascontiguousarray(each)) for each in points.pack()])


def place_among_ranks(comm: Communicator, n: int) -> slice:
    """Where this rank's ``n`` things stand when those of all ranks are put one after the other."""
    counts = np.zeros(comm.size)
    counts[comm.rank] = n
    ends = np.cumsum(comm.allreduce(counts)).astype(np.intp)
    return slice(int(ends[comm.rank]) - n, int(ends[comm.rank]))


def expansion(comm: Communicator, rows: Any, beta: np.ndarray) -> tuple[Points, np.ndarray]:
    """The rows of all ranks with a coefficient, and their coefficients, on every rank."""
    support = np.flatnonzero(beta)
    return share_points(comm, rows.points(support)), share(comm, beta[support])
