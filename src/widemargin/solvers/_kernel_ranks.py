"""What kernel solvers on several ranks share: gathered points and numbers, rounding errors, the final model."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.kernels.points import Points
from widemargin.kernels.protocol import KernelRows, Vector
from widemargin.pauses import uneven

_MAX_CANDIDATES = 3000  # points that a smaller set is chosen from, unless the set itself has more
_MIN_DISTANCE = 1e-10  # squared, relative to the largest squared norm: nearer to a span counts as within it


def rounding(comm: Communicator, rows: KernelRows, beta: Vector) -> tuple[Vector, float]:
    """By how much the exact responses and the squared norm of w = sum_j beta_j phi_j may be wrong."""
    mass = float(comm.allreduce(np.array([rows.mass(beta)]))[0])
    return rows.score_error(mass, beta), rows.norm_error(mass)


def row_lengths(rows: KernelRows) -> np.ndarray:
    """``||phi(x)||`` of every row, or 1 for all rows where no kernel value is larger."""
    if rows.kernel.is_bounded:
        return np.ones(rows.n_rows)
    return np.sqrt(np.abs(rows.diagonal_of(rows.points(np.arange(rows.n_rows)))))


def responses(comm: Communicator, rows: KernelRows, points: Points, coef: Vector, *, exact: bool = False) -> Vector:
    """``rows.times`` for points that are the same on all ranks; raises TimeIsUp on all of them or none."""
    with uneven(work_with(comm, rows, len(points))):
        return rows.times(points, coef, exact=exact)


def work_with(comm: Communicator, rows: KernelRows, n_points: int) -> float:
    """A bound on the work of kernel values between points and the rows of a rank, equal on all ranks."""
    n_rows = rows.n_rows if comm.size == 1 else rows.n_everywhere
    return np.inf if n_rows is None else float(n_points) * n_rows * (rows.X.shape[1] + 8)


def share(comm: Communicator, values: np.ndarray) -> np.ndarray:
    """The arrays of all ranks, concatenated, on every rank."""
    if comm.size == 1:
        return values
    gathered = comm.gather(values)
    return comm.broadcast(None if gathered is None else np.concatenate(gathered))


def share_points(comm: Communicator, points: Points) -> Points:
    """The points of all ranks, on every rank."""
    if comm.size == 1:
        return points
    return points.unpack([share(comm, np.ascontiguousarray(each)) for each in points.pack()])


def spread(comm: Communicator, rows: KernelRows, beta: np.ndarray) -> np.ndarray:
    """The coefficients of the rows of all ranks by row number, on every rank; 0 for rows that no rank has."""
    numbers, values = share(comm, rows.numbers), share(comm, beta)
    n_rows = rows.n_everywhere
    if n_rows is None:
        n_rows = int(comm.allreduce(np.array([float(rows.numbers.max(initial=-1))]), "max")[0]) + 1
    out = np.zeros(n_rows)
    out[numbers] = values
    return out


def reduced(
    comm: Communicator, rows: KernelRows, beta: np.ndarray, response: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Coefficients of at most ``size`` rows whose w is near that of ``beta``; None if ``beta`` has no more.

    Candidates are drawn, large coefficients first; pivoted Cholesky keeps those whose span is nearest to the others.
    The w in that span nearest to the old one has the same responses on them: K_QQ beta' = response_Q.
    """
    support = np.flatnonzero(beta)
    key = np.abs(beta[support]) * rng.random(len(support))
    keys = share(comm, key)
    if len(keys) <= size:
        return None
    some = min(len(keys), max(size, min(4 * size, _MAX_CANDIDATES)))
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
    """Coefficients, at most ``size`` not zero, that give the wanted responses at their points."""
    factor, pivots, rank, _ = dpstrf(K, lower=1, tol=_MIN_DISTANCE * float(np.diagonal(K).max()))
    size = min(size, rank)  # the other points are in the span of these
    kept = pivots[:size] - 1
    factor = np.tril(factor[:size, :size])
    half = solve_triangular(factor, wanted[kept], lower=True)
    out = np.zeros(len(K))
    out[kept] = solve_triangular(factor, half, lower=True, trans="T")
    return out


def balanced(comm: Communicator, beta: np.ndarray) -> np.ndarray:
    """The same coefficients with the heavier class scaled down, so that they sum to zero."""
    positive, negative = comm.allreduce(np.array([beta[beta > 0].sum(), -beta[beta < 0].sum()]))
    up, down = (min(positive, negative) / total if total else 0.0 for total in (positive, negative))
    return np.where(beta > 0, beta * up, beta * down)


def expansion(comm: Communicator, rows: KernelRows, beta: Vector) -> tuple[Points, Vector]:
    """The support vectors of all ranks and their coefficients, on every rank."""
    support = rows.nonzero(beta)
    return share_points(comm, rows.points(support)), share(comm, beta[support])
