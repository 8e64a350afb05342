"""What kernel solvers on several ranks share: points that travel, numbers that are put together, the final model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.kernels.points import Points

_MOST_COMPARED = 3000  # points that a smaller set is chosen from, where it has no more itself
_ROUNDINGS = 4 * float(np.finfo(np.float64).eps) / 2  # of a sum of kernel values, by the sum of their sizes
_DEPENDENT = 1e-10  # squared distance to a span, of the largest norm, that is none


def rounding(comm: Communicator, rows: Any, beta: np.ndarray) -> tuple[float | np.ndarray, float]:
    """By how much responses in float64 and the squared norm of w = sum_j beta_j phi_j may be wrong.

    Sizes are those of products of rows: |k(x, z)| <= ||phi(x)|| ||phi(z)||. Each row here has a number for its
    response, unless all have the same; nothing is allowed for where a device holds the rows.
    """
    if rows.is_on_device:
        return 0.0, 0.0
    kernel, lengths = rows.kernel, np.ones(len(beta))
    part = _ROUNDINGS
    if not (kernel.is_shift_invariant or kernel.name in ("cosine", "sigmoid")):
        lengths = np.sqrt(np.abs(rows.diagonal_of(rows.points(np.arange(rows.n_rows)))))
        if kernel.name in ("linear", "poly"):  # whose values are sums over features themselves
            part *= math.sqrt(rows.X.shape[1]) * (kernel.degree if kernel.name == "poly" else 1)
    size = float(comm.allreduce(np.array([np.abs(beta) @ lengths]))[0])
    return part * (1.0 + size * lengths), part * size**2


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
    n_rows = rows.n_everywhere
    if n_rows is None:
        n_rows = int(comm.allreduce(np.array([float(rows.numbers.max(initial=-1))]), "max")[0]) + 1
    out = np.zeros(n_rows)
    out[numbers] = values
    return out


def reduced(
    comm: Communicator, rows: Any, beta: np.ndarray, response: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Coefficients of at most ``size`` rows whose w is near that of ``beta``; None if it has no more.

    Some rows of large coefficients, equal ones by lot, come together; of these the ones are kept that the others are
    nearest to (pivoted Cholesky). The w nearest to the old one in their span has the same responses at them:
    K_QQ beta' = response_Q.
    """
    support = np.flatnonzero(beta)
    key = np.abs(beta[support]) * rng.random(len(support))
    keys = share(comm, key)
    if len(keys) <= size:
        return None
    some = min(len(keys), max(size, min(4 * size, _MOST_COMPARED)))
    chosen = support[key >= np.partition(keys, len(keys) - some)[len(keys) - some]]
    points, wanted = share_points(comm, rows.points(chosen)), share(comm, response[chosen])
    place = place_among_ranks(comm, len(chosen))
    solved = np.empty(0)
    if comm.rank == 0:
        solved = _interpolated(rows.block(points, exact=True).astype(np.float64, copy=False), wanted, size)
    out = np.zeros(len(beta))
    out[chosen] = comm.broadcast(solved)[place]
    return out


def _interpolated(K: np.ndarray, wanted: np.ndarray, size: int) -> np.ndarray:
    """Coefficients, most of them 0, with the wanted responses at the points that have one."""
    factor, pivots, rank, _ = dpstrf(K, lower=1, tol=_DEPENDENT * float(np.diagonal(K).max()))
    size = min(size, rank)  # further points lie in the span of these
    kept = pivots[:size] - 1
    factor = np.tril(factor[:size, :size])
    half = solve_triangular(factor, wanted[kept], lower=True)
    out = np.zeros(len(K))
    out[kept] = solve_triangular(factor, half, lower=True, trans="T")
    return out


def balanced(comm: Communicator, beta: np.ndarray) -> np.ndarray:
    """The same coefficients with the heavier class scaled down, so that they sum to zero."""
    positive, negative = comm.allreduce(np.array([beta[beta > 0].sum(), -beta[beta < 0].sum()]))
    lighter = min(positive, negative)
    return np.where(
        beta > 0, beta * (lighter / positive if positive else 0.0), beta * (lighter / negative if negative else 0.0)
    )


def expansion(comm: Communicator, rows: Any, beta: np.ndarray) -> tuple[Points, np.ndarray]:
    """The rows of all ranks with a coefficient, and their coefficients, on every rank."""
    support = rows.nonzero(beta)
    return share_points(comm, rows.points(support)), share(comm, beta[support])
