"""What kernel solvers on several ranks share: gathered points and numbers, rounding errors, the final model."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.kernels.points import Points
from widemargin.kernels.protocol import KernelRows, Vector
from widemargin.pauses import TimeIsUp, uneven
from widemargin.problems.hinge_l2 import Rounding
from widemargin.rounding import UNIT, gamma

_MAX_CANDIDATES = 3000  # points that a smaller set is chosen from, unless the set itself has more
_MIN_DISTANCE = 1e-10  # squared, relative to the largest squared norm: nearer to a span counts as within it


class Summed(NamedTuple):
    """What the responses of all rows are sums of, over all ranks: rounding errors grow with both."""

    mass: float = 0.0  # sum_j |coef_j| ||phi_j||
    n_terms: float = 0.0

    def plus(self, other: Summed) -> Summed:
        return Summed(self.mass + other.mass, self.n_terms + other.n_terms)

    @classmethod
    def of(cls, comm: Communicator, rows: KernelRows, beta: Vector) -> Summed:
        """The responses as one sum over the rows."""
        return cls(*map(float, comm.allreduce(np.array([rows.mass(beta), float(len(rows.nonzero(beta)))]))))


NOTHING = Summed()


class ResponseSums(NamedTuple):
    """Sums over the rows of all ranks, with what rounding leaves open; no errors where it is not allowed for."""

    squared_norm: float  # beta @ response: ||w||^2, and an upper bound on it if errors are known
    norm_error: float  # by how much more than the exact one that may be
    alpha_sum: float  # of |beta|
    imbalance: float  # of beta: an upper bound on the size of its sum
    n_rows: float
    weight: float
    score_error: Vector  # of every response

    @classmethod
    def of(
        cls,
        comm: Communicator,
        rows: KernelRows,
        beta: Vector,
        response: Vector,
        weight: Vector,
        summed: Summed | None,
        error: Vector | None = None,
    ) -> ResponseSums:
        """From coefficients, responses and weights of this rank's rows.

        The sum of ``beta_i f_i`` has the errors of the responses, and rounds once for every row. ``error`` replaces
        those of exact responses.
        """
        score_error = 0.0 if summed is None else rows.score_error(*summed, beta) if error is None else error
        local = [beta @ response, (abs(beta) * score_error).sum(), abs(beta) @ abs(response)]
        local += [abs(beta).sum(), beta.sum(), float(len(beta)), weight.sum()]
        totals = comm.allreduce(np.array([float(each) for each in local]))
        return cls.of_totals(totals, 0.0 if summed is None else gamma(float(totals[5]) + comm.size + 8), score_error)

    @classmethod
    def of_totals(cls, totals: np.ndarray, of_sum: float, score_error: Vector) -> ResponseSums:
        """From sums over all rows, each wrong by at most ``of_sum`` of the sizes of its terms."""
        squared, norm_error, sizes, alpha_sum, balance, n_rows, total = map(float, totals)
        norm_error = (norm_error + of_sum * sizes) * (1 + of_sum)
        imbalance = abs(balance) + of_sum * alpha_sum
        return cls(max(squared, 0.0) + norm_error, norm_error, alpha_sum, imbalance, n_rows, total, score_error)

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.score_error, self.n_rows, self.weight)

    def feasible(self, is_balanced: bool, mass: float) -> tuple[float, float]:
        """A lower bound on the sum of feasible alphas near ``|beta|``, and an upper bound on the ``||w||^2`` they give.

        Where they are to be balanced the heavier class is scaled down by what it has too much: that takes as much from
        the sum, and moves w by at most ``2 imbalance / alpha_sum`` of the mass.
        """
        excess = self.imbalance if is_balanced else 0.0
        norm = math.sqrt(self.squared_norm) + 2.1 * mass * (excess / self.alpha_sum if self.alpha_sum else 0.0)
        return max(self.alpha_sum - excess, 0.0) * (1 - gamma(self.n_rows + 16)), norm * norm * (1 + 8 * UNIT)


def row_lengths(rows: KernelRows) -> np.ndarray:
    """``||phi(x)||`` of every row, or 1 for all rows where no kernel value is larger."""
    return lengths_of(rows, rows.points(np.arange(rows.n_rows)))


def lengths_of(rows: KernelRows, points: Points) -> np.ndarray:
    """The same of every point."""
    return np.ones(len(points)) if rows.kernel.is_bounded else np.sqrt(np.abs(rows.diagonal_of(points)))


def responses(comm: Communicator, rows: KernelRows, points: Points, coef: Vector, *, exact: bool = False) -> Vector:
    """``rows.times`` for points that are the same on all ranks; raises TimeIsUp on all of them or none."""
    with uneven(work_with(comm, rows, len(points))):
        return rows.times(points, coef, exact=exact)


def work_with(comm: Communicator, rows: KernelRows, n_points: int) -> float:
    """A bound on the work of kernel values between points and the rows of a rank, equal on all ranks."""
    n_rows = rows.n_rows if comm.size == 1 else rows.n_everywhere
    return np.inf if n_rows is None else float(n_points) * n_rows * (rows.n_features + 8)


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
    points = Points(points.X, points.numbers)
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
        try:
            solved = _interpolated(rows.block(points, exact=True).astype(np.float64, copy=False), wanted, size)
        except TimeIsUp:  # on one rank only: the largest as they are
            solved = largest_only(comm, beta[chosen], size)
    out = np.zeros(len(beta))
    out[chosen] = comm.broadcast(solved)[place]
    return out


def largest_only(comm: Communicator, beta: np.ndarray, size: int) -> np.ndarray:
    """The coefficients of the ``size`` largest rows of all ranks; 0 for others."""
    sizes = np.sort(share(comm, np.abs(beta)))[::-1]
    return np.where(np.abs(beta) > sizes[size], beta, 0.0) if len(sizes) > size else beta.copy()


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
