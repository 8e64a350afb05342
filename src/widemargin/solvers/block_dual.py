"""Exact kernel C-SVM: block descent on the dual over three nested sets of rows.

    minimise over beta   0.5 beta' K beta - y' beta,   0 <= y_i beta_i <= C m_i,   sum_i beta_i = 0 with an intercept,

where beta_i = y_i alpha_i. Every row has a response f_i = (K beta)_i and a pull y_i - f_i; beta is optimal when no row
that may rise pulls more than one that may fall.

* All rows: their responses are brought up to date once in a stage, by one pass of the kernel over the rows that moved.
* The rows of a stage: those that violate the optimality conditions, or nearly do; at first a random few.
* The working set of a round: some of these, small enough to hold all kernel values between them. Its problem is solved
  by sequential minimal optimisation (:mod:`widemargin.compiled.working_set`).

Where more rows violate than fit, a random choice among them is taken: the worst alone are near copies of each other,
whose joint solution moves few of them. On several ranks the responses stay where they are and working sets travel.

[1] Osuna, Freund, Girosi: An improved training algorithm for support vector machines, 1997.
[2] Fan, Chen, Lin: Working set selection using second order information for training SVMs, JMLR 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.data.shard import Shard
from widemargin.kernels.points import Points
from widemargin.problems.hinge_l2 import HingeL2, PrimalPoint, hinge_sums
from widemargin.problems.protocol import Certificate
from widemargin.solvers._kernel_ranks import (
    balanced,
    expansion,
    reduced,
    rounding,
    share,
    share_points,
    spread,
)
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import Solver

_LEAST_BLOCK, _DRAWN_BLOCK, _LARGEST_BLOCK = 1024, 3008, 6016
_LEAST_STAGE = 8000
_STAGE_SHARE = 4  # a stage has at most this part of all rows, where that is more than twice the least
_FIRST_SHARE = 16  # and the first, which is random, this part
_FIRST_LEAST = 1000
_WORST = 0.1  # part of a working set that are the worst rows, where others are drawn
_CLOSER = 0.1  # a round, and a stage, ends when the violation is this part of what it was
_CLOSER_DRAWN = 0.02  # ... for a working set that was drawn, whose rows are far apart
_MOST_ROUNDS = 20  # of a stage, which then ends as it is
_ROUNDINGS = 200  # of a response, where it is asked whether they may be what is left of the violation
_BETTER, _MOST_REFUTED = 0.9, 5  # gaps confirmed in float64 that fall no more, while they look closed in less
_VALUES_PER_SWEEP = 5e8  # kernel values of a pass over all rows between two looks at the clock


@dataclass
class _Stage:
    """Rows that are worked on while the responses of the others wait."""

    rows: Any  # the kernel on these rows
    chosen: np.ndarray  # their numbers on this rank
    beta: np.ndarray
    response: np.ndarray
    target: float
    rounds: int = 0


class _Best(NamedTuple):
    """The model with the lowest objective so far, and the certificate."""

    certificate: Certificate
    beta: np.ndarray
    point: PrimalPoint  # scale and intercept
    squared_norm: float  # of beta


@dataclass
class State:
    """Where a run stands on one rank; arrays have one entry for each of its rows."""

    problem: HingeL2
    shard: Shard
    comm: Communicator
    rows: Any
    rng: np.random.Generator
    low: np.ndarray
    high: np.ndarray
    beta: np.ndarray
    response: np.ndarray  # K beta, but for what is due
    y: Any  # labels and weights, where the rows are
    weight: Any
    stage: _Stage | None = None
    due: list[tuple[Points, np.ndarray]] = field(default_factory=list)  # rows that moved, and by how much
    violation: float = np.inf
    settled_at: float = np.inf  # the violation when the last stage began
    space: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    best: _Best | None = None
    refuted: float = np.inf  # the relative gap that was confirmed last, and how often that was no less than before
    n_refuted: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether the responses of all rows are those of ``beta``."""
        return self.stage is None and not self.due


@dataclass(frozen=True)
class BlockDual(Solver[Any, Any]):
    """Nested working sets; ``block_bytes`` bounds the kernel values that are held.

    Without a lower bound, for kernels that are no inner products, a run ends at a violation of ``stationary``.
    """

    solves: ClassVar = (HingeL2,)

    block_bytes: int = 200 << 20
    stationary: float = 1e-3
    max_support: int | None = None

    def start(
        self, problem: HingeL2, shard: Shard, comm: Communicator, rng: np.random.Generator, warm: np.ndarray | None
    ) -> State:
        """``warm`` is a beta for the rows of all ranks, by their numbers."""
        caps = problem.caps(shard.weight)
        low, high = np.where(shard.y > 0, 0.0, -caps), np.where(shard.y > 0, caps, 0.0)
        rows = shard.kernel
        beta, response = np.zeros((2, shard.n_rows))
        # Each rank draws among its own rows.
        own = np.random.default_rng([int(rng.integers(2**31)), comm.rank])
        state = State(problem, shard, comm, rows, own, low, high, beta, response, shard.y, shard.weight)
        if warm is not None:
            state.beta = np.clip(warm[rows.numbers], low, high)
            state.beta = balanced(comm, state.beta) if problem.fit_intercept else state.beta
            points, coef = expansion(comm, rows, state.beta)
            state.due = [(points, coef)] if len(points) else []
        else:
            state.stage = self._first_stage(state)
        return state

    def sweep(self, state: State) -> State:
        """A round on a working set; or, when the stage is done, a piece of the pass that tells all rows about it."""
        if state.is_settled:
            state.stage = self._next_stage(state)
        if state.stage is not None:
            self._round(state, state.stage)
        elif state.due:
            self._pay(state)
        return state

    def certify(self, state: State) -> Certificate | None:
        """Both objectives at the responses as they are known; None while some are due."""
        return self._bounds(state) if state.is_settled else None

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        """The same with kernel values and responses computed anew in float64."""
        if state.stage is not None:
            self._leave(state, state.stage)
        self._refresh(state)
        state.violation = self._violation(state)
        certificate = self._bounds(state, is_exact=True)
        is_better = certificate.relative <= _BETTER * state.refuted
        state.n_refuted = 0 if is_better else state.n_refuted + 1
        state.refuted = certificate.relative
        return certificate

    def compact(self, state: State) -> Certificate | None:
        """A model of at most ``max_support`` rows near the best one, with its own primal bound."""
        if self.max_support is None or state.best is None:
            return None
        comm, rows, dual = state.comm, state.rows, state.best.certificate.dual
        small = reduced(comm, rows, rows.host(state.beta), rows.host(state.response), self.max_support, state.rng)
        if small is None:
            return None
        state.beta = rows.vector(small)
        self._refresh(state)
        self._bounds(state, is_exact=True)
        # The smaller model has coefficients of any sign and size, which bound nothing from below.
        state.best = state.best._replace(certificate=state.best.certificate._replace(dual=dual))
        return state.best.certificate

    def _refresh(self, state: State) -> None:
        """Compute all responses anew, in float64."""
        state.due = []
        points, coef = expansion(state.comm, state.rows, state.beta)
        state.response = state.rows.times(points, coef, exact=True)
        state.best = None  # what was thought best was measured less exactly

    def diagnostics(self, state: State) -> dict[str, float]:
        """The violation of the optimality conditions, which LIBSVM stops by, and the rows with a coefficient."""
        support = float(state.comm.allreduce(np.array([float(len(state.rows.nonzero(state.beta)))]))[0])
        state.violation = self._violation(state)
        return {"violation": state.violation, "n_support": support}

    def stop_reason(self, state: State) -> str | None:
        """Rounding, which no step gets over; and the optimality conditions, where there is no lower bound."""
        if state.n_refuted >= _MOST_REFUTED:
            return "precision"
        if not state.rows.kernel.is_positive and state.is_settled and self._violation(state) <= self.stationary:
            return "stationary"
        return None

    def warm_state(self, state: State) -> np.ndarray:
        """beta of the rows of all ranks."""
        beta = state.rows.host(state.beta)
        if state.stage is not None:
            beta[state.stage.chosen] = state.stage.beta
        return spread(state.comm, state.rows, beta)

    def extract(self, state: State) -> KernelModel:
        assert state.best is not None
        point, problem = state.best.point, state.problem
        points, coef = expansion(state.comm, state.rows, state.best.beta)
        weight = float(state.comm.allreduce(np.array([state.shard.weight.sum()]))[0])
        slack = problem.implied_slack(point.value, point.scale * np.sqrt(state.best.squared_norm), weight)
        report = {"C": problem.C, "slack": float(slack), "violation": state.violation}
        return KernelModel(state.rows.kernel, points, point.scale * coef, point.intercept, report)

    # -- bounds ----------------------------------------------------------------------------------------------------

    def _bounds(self, state: State, *, is_exact: bool = False) -> Certificate:
        """The best primal point along the current w, the dual objective of beta; the best yet of each.

        Bounds from responses that are as exact as float64 makes them hold with what rounding does to these.
        """
        problem, rows, comm = state.problem, state.rows, state.comm
        sums = [float(abs(state.beta).sum()), float(state.beta @ state.response)]
        alpha_sum, squared = comm.allreduce(np.array(sums))
        room, more = rounding(comm, rows, state.beta) if is_exact else (0.0, 0.0)
        squared, best = max(float(squared), 0.0) + more, state.best
        near, open_gap = (best.point.intercept, best.certificate.relative) if best is not None else (0.0, 0.0)
        point = problem.primal_point(
            state.response,
            state.y,
            state.weight,
            squared,
            comm.allreduce,
            near=near,
            precision=self._precision(open_gap),
            sums=rows.hinge_sums if rows.is_on_device else hinge_sums,
            score_error=room,
        )
        # Without an inner product there is no lower bound.
        dual = problem.dual_value(float(alpha_sum), squared) if rows.kernel.is_positive else -np.inf
        if best is not None:
            dual = max(dual, best.certificate.dual)
        if best is None or point.value <= best.certificate.primal:
            best = _Best(Certificate(point.value, dual), rows.host(state.beta), point, squared)
        state.best = best._replace(certificate=best.certificate._replace(dual=dual))
        return state.best.certificate

    def _precision(self, open_gap: float) -> float:
        """Of the primal value, as a part of it."""
        return float(np.clip(1e-3 * open_gap, 1e-12, 1e-6))

    # -- choice of rows ----------------------------------------------------------------------------------------------

    def _forces(
        self, state: State, chosen: slice | np.ndarray, beta: np.ndarray, response: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """How strongly rows pull up and down, where they may go there, measured from the threshold; the violation."""
        pull = state.shard.y[chosen] - response
        up, down = beta < state.high[chosen], beta > state.low[chosen]
        highest = np.max(pull[up], initial=-np.inf)
        lowest = np.min(pull[down], initial=np.inf)
        highest, lowest = state.comm.allreduce(np.array([highest, -lowest]), "max") * [1, -1]
        threshold = 0.0
        if state.problem.fit_intercept:
            # Rows between their bounds lie at the threshold, once all is done.
            free = up & down
            total, count = state.comm.allreduce(np.array([pull[free].sum(), np.count_nonzero(free)]))
            threshold = total / count if count > 10 else (highest + lowest) / 2
        else:
            highest, lowest = max(highest, 0.0), min(lowest, 0.0)
        rise = np.where(up, pull - threshold, -np.inf)
        fall = np.where(down, threshold - pull, -np.inf)
        return rise, fall, float(highest - lowest)

    def _violation(self, state: State) -> float:
        return self._forces(state, slice(None), state.beta, state.response)[2]

    def _choose(
        self, state: State, rise: np.ndarray, fall: np.ndarray, least: int, most: int, drawn: int
    ) -> tuple[np.ndarray, bool]:
        """Rows that violate, and the nearest to it; where they are too many, the worst and a random choice of others.

        Each rank chooses among its own rows, as many as is its share of those that violate.
        """
        force = np.maximum(rise, fall)
        n_violators = np.count_nonzero(force > 0)
        everywhere, n_all = state.comm.allreduce(np.array([float(n_violators), float(len(force))]))
        size = int(max(least, everywhere)) if everywhere <= most else drawn
        if size >= n_all:
            return np.arange(len(force)), False
        is_drawn = everywhere > size
        part = (n_violators / everywhere) if is_drawn else (len(force) / n_all)
        mine = min(len(force), max(2, round(size * part), 0 if is_drawn else n_violators))
        if mine == len(force):
            return np.arange(len(force)), is_drawn
        if not is_drawn:
            return np.sort(np.argpartition(-force, mine - 1)[:mine]), False
        few = max(1, int(_WORST * mine) // 2)
        taken = np.zeros(len(force), dtype=bool)
        taken[np.argpartition(-rise, few - 1)[:few]] = True
        taken[np.argpartition(-fall, few - 1)[:few]] = True
        others = np.flatnonzero((force > 0) & ~taken)
        taken[state.rng.choice(others, min(len(others), mine - np.count_nonzero(taken)), replace=False)] = True
        return np.flatnonzero(taken), True

    # -- stages ------------------------------------------------------------------------------------------------------

    def _first_stage(self, state: State) -> _Stage | None:
        n = state.shard.n_rows
        total = state.comm.allreduce(np.array([float(n)]))[0]
        size = max(_FIRST_LEAST, total / _FIRST_SHARE)
        if size >= total / 2:
            return None
        chosen = np.sort(state.rng.choice(n, min(n, 1 + int(size * n / total)), replace=False))
        return self._enter(state, chosen, target=_CLOSER)

    def _next_stage(self, state: State) -> _Stage:
        rise, fall, violation = self._forces(state, slice(None), state.beta, state.response)
        if violation > state.settled_at / 2 and violation <= self._noise(state):
            # The last stage did not help as it should, and what is left may be the error of the responses.
            self._refresh(state)
            rise, fall, violation = self._forces(state, slice(None), state.beta, state.response)
        state.settled_at = violation
        total = int(state.comm.allreduce(np.array([float(len(rise))]))[0])
        most = max(2 * _LEAST_STAGE, total // _STAGE_SHARE)
        chosen, _ = self._choose(state, rise, fall, _LEAST_STAGE, most, most)
        kept = state.comm.allreduce(np.array([float(len(chosen))]))[0]
        if kept > 0.7 * total:
            chosen = np.arange(len(rise))
        return self._enter(state, chosen, target=_CLOSER * violation)

    @staticmethod
    def _noise(state: State) -> float:
        """What rounding may have done to the difference of two responses by now, generously."""
        squares = float(state.comm.allreduce(np.array([state.beta @ state.beta]))[0])
        return _ROUNDINGS * float(np.finfo(state.rows.dtype).eps) * np.sqrt(squares)

    def _enter(self, state: State, chosen: np.ndarray, target: float) -> _Stage:
        rows = state.rows if len(chosen) == state.shard.n_rows else state.rows.only(chosen)
        return _Stage(rows, chosen, state.beta[chosen], state.response[chosen], target)

    def _leave(self, state: State, stage: _Stage) -> None:
        """Note what moved, to be told to all rows; a stage of all rows has nothing to tell."""
        moved = np.flatnonzero(stage.beta != state.beta[stage.chosen])
        delta = (stage.beta - state.beta[stage.chosen])[moved]
        state.beta[stage.chosen] = stage.beta
        state.stage = None
        n_all, n_stage = state.comm.allreduce(np.array([float(state.shard.n_rows), float(len(stage.chosen))]))
        if n_stage == n_all:
            state.response = stage.response
            return
        points = share_points(state.comm, stage.rows.points(moved))
        if len(points):
            state.due = [(points, share(state.comm, delta))]

    def _pay(self, state: State) -> None:
        """A piece of the pass that brings all responses up to date."""
        points, delta = state.due[0]
        largest = state.comm.allreduce(np.array([float(state.shard.n_rows)]), "max")[0]
        few = max(256, int(_VALUES_PER_SWEEP / max(largest, 1)))
        state.response += state.rows.times(points[:few], delta[:few])
        state.due = [(points[few:], delta[few:])] if len(points) > few else []

    # -- one round ---------------------------------------------------------------------------------------------------

    def _round(self, state: State, stage: _Stage) -> None:
        rise, fall, violation = self._forces(state, stage.chosen, stage.beta, stage.response)
        stage.rounds += 1
        if violation <= stage.target or stage.rounds > _MOST_ROUNDS:
            self._leave(state, stage)
            if state.due:
                self._pay(state)
            return
        fitting = int(np.sqrt(self.block_bytes / np.dtype(state.rows.dtype).itemsize)) // 64 * 64
        most = min(_LARGEST_BLOCK, max(64, fitting))
        working, is_drawn = self._choose(state, rise, fall, min(_LEAST_BLOCK, most), most, min(_DRAWN_BLOCK, most))
        where = stage.chosen[working]
        comm, place = state.comm, place_among_ranks(state.comm, len(working))
        points = share_points(comm, stage.rows.points(working))
        pull = state.shard.y[where] - stage.response[working]
        numbers = np.stack([pull, stage.beta[working], state.low[where], state.high[where]], axis=1)
        pull, beta, low, high = share(comm, numbers.ravel()).reshape(-1, 4).T
        solved = np.empty(0)
        if comm.rank == 0:
            tol = (_CLOSER_DRAWN if is_drawn else _CLOSER) * violation
            K = self._block(state, points)
            solved, _, _ = state.rows.solve_block(K, pull, beta, low, high, tol, state.problem.fit_intercept)
        solved = comm.broadcast(solved)
        moved = np.flatnonzero(solved != beta)
        stage.response += stage.rows.times(points[moved], (solved - beta)[moved])
        stage.beta[working] = solved[place]

    @staticmethod
    def _block(state: State, points: Points) -> np.ndarray:
        """Kernel values of a working set, in space that is used again."""
        n, width = len(points), state.rows.padded(len(points))
        if state.space.size < n * width:
            state.space = np.empty(n * width, state.rows.dtype)
        K = state.space[: n * width].reshape(n, width)
        K[:, n:] = 0
        state.rows.block(points, out=K[:, :n])
        return K
