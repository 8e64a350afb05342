"""What kernel solvers on several ranks share: points that travel, numbers that are put together, the final model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve

from widemargin.comm._protocol import Communicator
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points

_RIDGE = 1e-6  # against rounding, where points are near copies of each other


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


def spread(comm: Communicator, rows: Any, beta: np.ndarray) -> np.ndarray:
    """The coefficients of all rows of all ranks by their numbers, on every rank; rows that are absent have none."""
    numbers, values = share(comm, rows.numbers), share(comm, beta)
    n_rows = int(comm.allreduce(np.array([float(rows.numbers.max(initial=-1))]), "max")[0]) + 1
    out = np.zeros(n_rows)
    out[numbers] = values
    return out


def reduced(
    comm: Communicator, rows: Any, beta: np.ndarray, response: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Coefficients of at most ``size`` rows whose w is the nearest to that of ``beta``; None if it has no more.

    The rows of largest coefficients stay, equal ones by lot. The nearest w in their span has the same responses at
    them: K_QQ beta' = response_Q.
    """
    support = np.flatnonzero(beta)
    key = np.abs(beta[support]) * (1 + 1e-6 * rng.random(len(support)))
    keys = share(comm, key)
    if len(keys) <= size:
        return None
    kept = support[key >= np.partition(keys, len(keys) - size)[len(keys) - size]]
    points, wanted = share_points(comm, rows.points(kept)), share(comm, response[kept])
    place = place_among_ranks(comm, len(kept))
    solved = np.empty(0)
    if comm.rank == 0:
        K = rows.block(points).astype(np.float64)
        K[np.diag_indices_from(K)] += _RIDGE * np.trace(K) / len(K)
        solved = solve(K, wanted, assume_a="pos", overwrite_a=True, check_finite=False)
    out = np.zeros(len(beta))
    out[kept] = comm.broadcast(solved)[place]
    return out


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
