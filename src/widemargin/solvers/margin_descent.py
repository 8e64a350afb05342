"""Dual coordinate descent for the optimal margin distribution machine with a kernel.

    maximise over g   sum_i [ (1 - theta) g_i+ - (1 + theta) g_i- - g_i+^2 / (2 steep_i) - g_i-^2 / (2 v steep_i) ]
                      - 0.5 beta' K beta,   beta_i = y_i g_i

Every row has a response f_i = (K beta)_i and the margin y_i f_i; with an intercept, K + 1 stands for K. While all other
g stay, the best g_i has a closed form in the margin that these give it: the step of the paper's equation (3), for one
signed variable in place of two.

Rows are taken in blocks, small enough to hold all kernel values between them: steps within a block cost little, and are
repeated until they gain little; what moved is then told to all rows. Kernel values with all rows are kept where they
fit, and else computed when needed. On several ranks the responses stay where they are and blocks travel.

Reference: Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, 2023, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.compiled import margin_passes
from widemargin.compiled.known_values import sub_block
from widemargin.data.shard import Shard
from widemargin.kernels.points import Points
from widemargin.pauses import uneven
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.protocol import Certificate
from widemargin.rounding import PAIRWISE, UNIT, gamma
from widemargin.solvers._kernel_ranks import (
    NOTHING,
    ResponseSums,
    Summed,
    expansion,
    responses,
    row_lengths,
    share,
    share_points,
    spread,
    work_with,
)
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import Solver, Warm

CACHE_BYTES = 2 << 30
_TERMS_PER_SUM = 256  # as kernel rows are added up: rounding errors grow with the length of a sum
_LEAST_GAIN = 1e-12  # of the largest: a row that gains less is not drawn


class KernelValues:
    """Kernel values of all rows of all ranks (down) with those of this rank (across): kept, or computed when asked for.

    They are kept if every rank can hold its own in ``cache_bytes``. Those in float64 that all problems on the rows
    share, where there are such, need no more room.
    """

    def __init__(self, rows: Any, comm: Communicator, cache_bytes: int) -> None:
        self._rows, self._comm = rows, comm
        self.place = place_among_ranks(comm, rows.n_rows)
        self.n_all = int(comm.allreduce(np.array([float(rows.n_rows)]))[0])
        largest = int(comm.allreduce(np.array([float(rows.n_rows)]), "max")[0])
        self._points: Points | None = None
        self._values: np.ndarray | None = rows.values_at_hand() if comm.size == 1 else None  # lines may be longer
        self.are_shared = self._values is not None
        self.are_exact = self.are_shared or rows.dtype == np.float64
        self.is_kept = self.are_shared or self.n_all * largest * np.dtype(rows.dtype).itemsize <= cache_bytes

    # No cached_property: ranks, which are threads, would wait for each other behind its lock (Python 3.11).

    @property
    def points(self) -> Points:
        """The rows of all ranks."""
        if self._points is None:
            self._points = share_points(self._comm, self._rows.points(np.arange(self._rows.n_rows)))
        return self._points

    @property
    def kept(self) -> np.ndarray:
        return self._lines[:, : self._rows.n_rows]

    @property
    def _lines(self) -> np.ndarray:
        if self._values is None:
            with uneven(work_with(self._comm, self._rows, self.n_all)):
                values = self._rows.rows(self.points)
            self._values = values
        return self._values

    def times(self, places: np.ndarray, coef: np.ndarray, points: Points | None = None) -> np.ndarray:
        """``sum_j coef_j k(x_i, z_j)`` for every row of this rank, and the rows z at ``places`` of those of all ranks.

        ``points`` are these rows, where they are at hand.
        """
        if not self.is_kept:
            return responses(self._comm, self._rows, self.points[places] if points is None else points, coef)
        out, part = np.zeros((2, self._rows.n_rows))
        for begin in range(0, len(places), _TERMS_PER_SUM):
            few = slice(begin, begin + _TERMS_PER_SUM)
            part[:] = 0.0
            margin_passes.add_rows(self._lines, places[few], coef[few], part)
            out += part
        return out

    def block(self, places: np.ndarray, points: Points) -> np.ndarray:
        if self.is_kept and self._comm.size == 1:
            out = np.empty((len(places), len(places)), self._lines.dtype)
            sub_block(self._lines, places, out)
            return out
        return self._rows.block(points)


class _Best(NamedTuple):
    certificate: Certificate
    g: np.ndarray  # of the lowest objective, with its intercept
    intercept: float
    g_dual: np.ndarray  # that of the highest lower bound


@dataclass
class State:
    """Where a run stands on one rank; arrays have one entry for each of its rows."""

    problem: MarginDistribution
    shard: Shard
    comm: Communicator
    rows: Any
    rng: Generator  # this rank's own
    values: KernelValues
    steep: np.ndarray
    curvature: np.ndarray  # ||phi_i||^2, with the constant feature
    g: np.ndarray
    response: np.ndarray  # K beta, without the intercept
    intercept: float  # sum(beta) of all ranks, or 0
    waiting: np.ndarray = field(default_factory=lambda: np.empty(0, np.intp))  # rows still to come in this epoch
    n_blocks: int = 0
    best: _Best | None = None
    summed: Summed | None = NOTHING  # what the responses are sums of; None if in float32
    allowance: float = 0.0  # the part of the gap that allows for rounding

    @property
    def beta(self) -> np.ndarray:
        return self.shard.y * self.g

    @property
    def margin(self) -> np.ndarray:
        return self.shard.y * (self.response + self.intercept)

    def move(self, change: np.ndarray, response: np.ndarray, intercept: float, summed: Summed | None = None) -> None:
        """Change g, responses, which are then sums of ``summed`` more or else of the change, and intercept."""
        self.g, self.response, self.intercept = self.g + change, self.response + response, self.intercept + intercept
        if self.summed is not None:
            self.summed = self.summed.plus(Summed.of(self.comm, self.rows, change) if summed is None else summed)


S = TypeVar("S", bound=State)


class KernelMarginSolver(Solver[S, KernelModel]):
    solves = (MarginDistribution,)
    state_type: type[S]
    cache_bytes: int

    def start(
        self, problem: MarginDistribution, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None
    ) -> S:
        """At g = 0, or at ``warm``: a beta for the rows of all ranks, by their numbers."""
        rows = shard.kernel
        if not rows.kernel.is_positive:
            raise ValueError(
                f"kernel={rows.kernel.name!r} is no inner product, without which this problem may have no minimum: use "
                "'rbf', 'laplacian', 'poly' with coef0 >= 0, 'linear' or 'cosine'."
            )
        totals = comm.allreduce(np.bincount(shard.y < 0, shard.weight, 2))
        problem.check(*totals)
        steep = problem.steep(shard.weight, float(totals.sum()))
        curvature = rows.diagonal_of(rows.points(np.arange(rows.n_rows))) + problem.constant
        own = np.random.default_rng([comm.rank, int(rng.integers(2**31))])
        g, response = np.zeros((2, shard.n_rows))
        values = KernelValues(rows, comm, self.cache_bytes)
        state = self.state_type(problem, shard, comm, rows, own, values, steep, curvature, g, response, 0.0)
        state.summed = NOTHING if values.are_exact else None
        if warm is not None:
            state.g = np.where(steep > 0, shard.y * warm[rows.numbers], 0.0)
            if problem.overshoot_weight == 0:
                state.g = np.maximum(state.g, 0.0)
            self._refresh(state)
            if not values.are_exact:
                state.summed = None  # for the sweeps to come
        return state

    def certify(self, state: S) -> Certificate | None:
        return self._bounds(state)

    def confirm(self, state: S, latest: Certificate | None) -> Certificate:
        self._refresh(state)
        certificate = self._bounds(state)
        if not state.values.are_exact:
            state.summed = None  # for the sweeps to come
        return certificate

    def allowance(self, state: S) -> float:
        return state.allowance

    def unconfirmed(self, state: S, latest: Certificate | None) -> Certificate:
        if state.best is not None and state.summed is not None:
            return state.best.certificate  # bounds of sweeps allow for rounding
        g, intercept = (state.g, state.intercept) if state.best is None else (state.best.g, state.best.intercept)
        certificate = crude_bounds(state.problem, state.rows, state.comm, state.steep, g, intercept)
        state.best = _Best(certificate, g, intercept, np.zeros_like(g))
        return certificate

    def values_to_confirm(self, state: S) -> float:
        n_judged = 1 if state.best is None else 3
        return float(state.shard.n_rows) * n_judged * np.count_nonzero(state.g) * state.comm.size

    def diagnostics(self, state: S) -> dict[str, float]:
        """The largest violation of the optimality conditions, and the rows with a coefficient."""
        residual = state.problem.residuals(state.g, state.margin, state.steep).max(initial=0.0)
        (violation,) = state.comm.allreduce(np.array([residual]), "max")
        (support,) = state.comm.allreduce(np.array([float(np.count_nonzero(state.g))]))
        is_confirmed = float(state.summed is not None)  # estimates are from responses in float32
        return {"violation": float(violation), "n_support": float(support), "is_confirmed": is_confirmed}

    def warm_state(self, state: S) -> np.ndarray:
        return spread(state.comm, state.rows, state.beta)

    def extract(self, state: S) -> KernelModel:
        assert state.best is not None
        points, coef = expansion(state.comm, state.rows, state.shard.y * state.best.g)
        problem = state.problem
        report = {"C": problem.C, "deadband": problem.deadband, "overshoot_weight": problem.overshoot_weight}
        return KernelModel(state.rows.kernel, points, coef, state.best.intercept, report)

    def scores(self, state: S) -> np.ndarray | None:
        if state.best is None or state.best.g is not state.g:
            return None  # the responses belong to another g
        return state.response + state.best.intercept

    def _refresh(self, state: State) -> None:
        """Compute all responses anew in float64: those of g, and of what was thought best, which is judged again."""
        best, y = state.best, state.shard.y
        every = [state.g] if best is None else [best.g, best.g_dual, state.g]
        different = [g for k, g in enumerate(every) if all(g is not other for other in every[k + 1 :])]
        support = np.flatnonzero(np.any(different, axis=0))
        points = share_points(state.comm, state.rows.points(support))
        coef = share(state.comm, (y * np.array(different))[:, support].T.ravel()).reshape(-1, len(different))
        if state.values.are_shared:
            exact = np.stack([state.values.times(support, each) for each in coef.T], axis=1)
        else:
            exact = responses(state.comm, state.rows, points, coef, exact=True)
        totals, state.best = coef.sum(axis=0) * state.problem.constant, None
        for k, g in enumerate(different):
            state.g, state.response, state.intercept = g, exact[:, k].copy(), float(totals[k])
            state.summed = Summed.of(state.comm, state.rows, g)
            self._bounds(state)

    def _bounds(self, state: State) -> Certificate:
        """Both objectives, which allow for rounding unless responses are in float32.

        The root of the loss is a norm of what margins lack: with margins that are wrong it is longer by no more than
        the norm of their errors. ``steep`` has few roundings, and sums over rows one for each.
        """
        problem, comm, steep, margin = state.problem, state.comm, state.steep, state.margin
        sums = ResponseSums.of(comm, state.rows, state.beta, state.response, state.shard.weight, state.summed)
        margin_error = sums.score_error + (4 * UNIT) * (2.0 + np.abs(margin) + abs(state.intercept))
        local = [
            problem.loss(margin, steep),
            *problem.dual_terms(state.g, steep),
            steep @ (margin_error * margin_error),
        ]
        loss, linear, quadratic, of_margins = map(float, comm.allreduce(np.array(local)))
        of_sum, error = 0.0, 0.0
        if state.summed is not None:
            of_sum = gamma(sums.n_rows + PAIRWISE + 32)
            error = math.sqrt(max(1.0, problem.overshoot_weight) / 2 * of_margins)
        largest_loss = (math.sqrt(loss) + error) ** 2 * (1 + of_sum)
        primal = problem.primal_value(largest_loss, (sums.squared_norm + state.intercept**2) * (1 + 8 * UNIT))
        # The constant feature of w = sum_i beta_i phi_i is the exact sum of beta.
        constant = abs(state.intercept) + of_sum * sums.alpha_sum * problem.constant
        size = (quadratic + sums.squared_norm + constant * constant) * (1 + of_sum)
        dual = problem.dual_value(linear - of_sum * problem.shape[1] * sums.alpha_sum, size) * (1 - 8 * UNIT)
        state.allowance = 2 * sums.norm_error + 2 * math.sqrt(loss) * error + of_sum * (primal + sums.squared_norm)
        best = state.best or _Best(Certificate(), state.g, state.intercept, state.g)
        if primal <= best.certificate.primal:
            best = best._replace(g=state.g, intercept=state.intercept)
        if dual >= best.certificate.dual:
            best = best._replace(g_dual=state.g)
        state.best = best._replace(certificate=best.certificate.tightened(primal, dual))
        return state.best.certificate


def crude_bounds(
    problem: MarginDistribution, rows: Any, comm: Communicator, steep: np.ndarray, g: np.ndarray, intercept: float
) -> Certificate:
    """Bounds that need no kernel values between rows, since |k(x, z)| <= ||phi(x)|| ||phi(z)||."""
    lengths = row_lengths(rows)
    size = float(comm.allreduce(np.array([np.abs(g) @ lengths]))[0])
    longest = size * lengths + abs(intercept)
    loss = problem.loss(longest, steep) + problem.loss(-longest, steep)
    loss = float(comm.allreduce(np.array([loss]))[0])
    primal = problem.primal_value(loss, size**2 + intercept**2) * (1 + 1e-9)  # far more than rounding
    return Certificate(primal, 0.0)  # no coefficients at all


@dataclass(frozen=True)
class MarginDescent(KernelMarginSolver[State]):
    """Coordinate steps on blocks of ``block_rows`` rows; ``cache_bytes`` bound the kernel values that are kept.

    In the first epoch, and while no block of rows would gain more than ``concentrated`` of what all rows gain by a step
    each, rows come in a random order, each once in an epoch. Where some would, a part ``worst_share`` of a block are
    those that gain most, and the others are drawn from those that gain anything: the worst alone are near copies of
    each other. Within a block there are at most ``block_passes`` passes.
    """

    state_type = State
    cache_bytes: int = CACHE_BYTES
    block_rows: int = 1024
    block_passes: int = 50
    worst_share: float = 0.5
    concentrated: float = 0.5
    closer: float = 0.01  # passes end when they gain this part of the first

    def sweep(self, state: State) -> State:
        chosen = self._choose(state)
        state.n_blocks += 1
        comm, values, problem = state.comm, state.values, state.problem
        place = place_among_ranks(comm, len(chosen))
        places = share(comm, chosen + values.place.start)
        points = share_points(comm, state.rows.points(chosen))
        response = state.response[chosen] + state.intercept
        numbers = np.stack([state.shard.y[chosen], state.steep[chosen], state.g[chosen], response], axis=1)
        y, steep, g, response = np.ascontiguousarray(share(comm, numbers.ravel()).reshape(-1, 4).T)
        solved = np.empty(0)
        with uneven(float(len(g)) ** 2 * state.rows.n_features):
            if comm.rank == 0:
                solved = g.copy()
                K = values.block(places, points)
                rules = (state.rng.permutation(len(g)), self.block_passes, self.closer)
                margin_passes.descend_block(K, problem.constant, y, steep, *problem.shape, solved, response, *rules)
        solved = comm.broadcast(solved)
        moved = np.flatnonzero(solved != g)
        push = (y * (solved - g))[moved]
        few = points if values.is_kept else points[moved]
        change = np.zeros(state.shard.n_rows)
        change[chosen] = (solved - g)[place]
        state.move(change, values.times(places[moved], push, few), float(push.sum()) * problem.constant)
        return state

    def _choose(self, state: State) -> np.ndarray:
        """Rows of this rank for the next block, ascending; as many as is its share of all rows.

        Rows without a weight, which cannot move, are left out.
        """
        n, n_all, weighty = state.shard.n_rows, state.values.n_all, np.flatnonzero(state.steep > 0)
        mine = -(-self.block_rows * n // n_all)
        if mine >= len(weighty):
            return weighty
        gain = np.empty(n)
        margin_passes.coordinate_gains(state.margin, state.g, state.curvature, state.steep, *state.problem.shape, gain)
        worst = np.argpartition(-gain, mine - 1)[:mine]
        is_first_epoch = state.n_blocks * self.block_rows < n_all
        if is_first_epoch or not gain[worst].sum() > self.concentrated * gain.sum():
            if len(state.waiting) < mine:
                state.waiting = np.concatenate([state.waiting, state.rng.permutation(weighty)])
            chosen, state.waiting = np.unique(state.waiting[:mine]), state.waiting[mine:]
            return chosen
        taken = np.zeros(n, dtype=bool)
        few = max(1, int(self.worst_share * mine))
        taken[worst[np.argpartition(-gain[worst], few - 1)[:few]]] = True
        others = np.flatnonzero((gain > _LEAST_GAIN * gain.max()) & ~taken)
        taken[state.rng.choice(others, min(len(others), mine - few), replace=False)] = True
        return np.flatnonzero(taken)
