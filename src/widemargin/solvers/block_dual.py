"""Exact kernel C-SVM: block descent on the dual over three nested sets of rows.

The problem is in :mod:`widemargin.solvers._kernel_dual`. The three sets:

* All rows: the responses of those outside a stage are updated after it, by one kernel pass over the rows that changed.
  Rows far outside the margin wait until the others are about solved.
* The rows of a stage: those that violate the optimality conditions, or nearly do; at first a random few.
* The working set of a round: rows of the stage, few enough to hold all kernel values between them. Its problem is
  solved by sequential minimal optimisation (:mod:`widemargin.compiled.working_set`).

If more rows violate than fit, a random choice is taken: the worst alone are near copies of each other, and solving them
together changes few of them. On several ranks the responses stay on their ranks and working sets travel.

[1] Osuna, Freund, Girosi: An improved training algorithm for support vector machines, 1997.
[2] Fan, Chen, Lin: Working set selection using second order information for training SVMs, JMLR 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.compiled import forces
from widemargin.data.shard import Shard
from widemargin.kernels.points import Points
from widemargin.kernels.protocol import KernelRows
from widemargin.kernels.vectors import Dual, block_times
from widemargin.pauses import uneven
from widemargin.problems.hinge_l2 import HingeL2, PrimalPoint
from widemargin.problems.protocol import Certificate
from widemargin.rounding import UNIT, gamma
from widemargin.solvers._kernel_dual import DualState, KernelDual, feasible_start, may_lose
from widemargin.solvers._kernel_ranks import Summed, expansion, lengths_of, responses, share, share_points, spread
from widemargin.solvers.protocol import Warm

_MIN_BLOCK, _DRAWN_BLOCK, _MAX_BLOCK = 1024, 3008, 6016  # rows of a working set
_DRAWN_PER_ROW = 8  # of the smaller class: limits a working set that is drawn
_MIN_STAGE = 8000  # rows
_MAX_STAGE_SHARE = 1 / 4  # of all rows, where that is more than twice the minimum
_FIRST_STAGE_SHARE, _MIN_FIRST_STAGE = 1 / 8, 1000  # of the random rows to start with
_MIN_CLASS_SHARE = 1 / 4  # of these that are of one class, if it has as many
_WORST_SHARE = 0.1  # of a drawn working set that are the worst rows
_REDUCTION = 0.1  # of the violation by a round
_STAGE_REDUCTION, _LAST_REDUCTION = 0.1, 0.5  # by a stage, and by one that may be the last
_AIM = 0.4  # of the tolerance: the gap after the last stage, if it shrinks as the violation does
_LAST_GAP = 0.6  # of the tolerance: the gap of the rows of a stage at which they may be left
_ENOUGH = 0.5  # of what a stage is to reach: no round needs more
_DRAWN_REDUCTION = 0.02  # by a round on a drawn working set, whose rows are far apart
_MAX_ROUNDS = 20  # of a stage
_STEPS_PER_ROW, _EXTRA_STEPS = 100, 10_000  # limit on the steps of a working set
_FAR = 0.6  # outside the margin: rows that may be late
_CATCH_UP = 30  # times the tolerance: a gap of the other rows, which need not be solved before late rows join them
_MIN_LATE_SHARE = 0.1  # of the rows, for it to be worth it
_CLEARANCE = 0.01  # rows that are nearer to the margin are computed in float64, as it may move
_CONFIRMED_SHARE = 1.25  # rows in float64, for each row with a coefficient
_ROWS_TOGETHER = 2048  # whose values with each other are computed twice
_SMALL_PART = 0.01  # an allowance for rounding below this part of a gap need not become smaller
_NOISE_UNITS = 200  # rounding errors of a response, to tell whether they may be what is left of the violation
_VALUES_PER_SWEEP = 5e8  # kernel values of a pass over all rows between two checks of the clock


@dataclass
class _Stage:
    """Rows that are worked on while the responses of the others are out of date."""

    rows: KernelRows
    chosen: np.ndarray  # their places on this rank
    beta: np.ndarray
    response: np.ndarray
    reach: np.ndarray
    target: float  # of the violation
    enough: float = 0.0  # of the gap of these rows, which then may be left
    rounds: int = 0


class _Forces(NamedTuple):
    """How strongly rows pull up and down from the threshold, minus infinity where they may not move that way."""

    rise: np.ndarray
    fall: np.ndarray
    violation: float
    gap: float  # the part of these rows, with the threshold as the intercept

    @property
    def largest(self) -> np.ndarray:
        return np.maximum(self.rise, self.fall)


class _Pending(NamedTuple):
    """Rows that changed, by how much, and the rows whose responses do not know of it."""

    points: Points
    delta: np.ndarray
    others: np.ndarray  # their places on this rank
    rows: KernelRows


class _Late(NamedTuple):
    """Rows far outside the margin, which are updated once the others are about solved."""

    places: np.ndarray  # on this rank
    beta: np.ndarray  # that their responses belong to


@dataclass
class State(DualState):
    """``response`` lacks the changes that are pending.

    ``reach`` has the sums of the responses with the sizes of all changes, which bound their errors.
    """

    reach: np.ndarray = field(default_factory=lambda: np.empty(0))
    stage: _Stage | None = None
    pending: _Pending | None = None
    late: _Late | None = None
    stage_violation: float = np.inf  # when the last stage began
    drawn_block: int = _DRAWN_BLOCK  # rows of a working set that is drawn
    guess: PrimalPoint | None = None  # scale and intercept by the rows of a stage

    @property
    def is_settled(self) -> bool:
        return self.stage is None and self.pending is None and self.late is None

    @property
    def in_play(self) -> np.ndarray:
        """Rows that are not late."""
        n = len(self.beta)
        return np.arange(n) if self.late is None else _others(self.late.places, n)


@dataclass(frozen=True)
class BlockDual(KernelDual[State]):
    """Nested working sets; ``block_bytes`` limits the kernel values in memory.

    For kernels that are no inner products, without a lower bound, a run ends at a violation of ``stationary``.
    """

    block_bytes: int = 200 << 20
    stationary: float = 1e-3
    max_support: int | None = None
    patience: int = 0

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """``warm`` is a beta for the rows of all ranks, by their numbers."""
        low, high, beta = feasible_start(problem, shard, comm, warm)
        if comm.size == 1:
            shard.kernel.share_rows(self.block_bytes)
        # Each rank draws among its own rows.
        own = np.random.default_rng([int(rng.integers(2**31)), comm.rank])
        response = np.zeros(shard.n_rows)
        state = State(problem, shard, comm, shard.kernel, own, low, high, beta, response, shard.y, shard.weight)
        state.reach = np.zeros(shard.n_rows)
        if problem.fit_intercept:
            # Coefficients of both classes have the same sum: few rows of one leave few of the other.
            n_rows, n_positive = comm.allreduce(np.array([float(shard.n_rows), float(np.count_nonzero(shard.y > 0))]))
            few = _DRAWN_PER_ROW * min(n_positive, n_rows - n_positive)
            state.drawn_block = int(min(max(few, _MIN_BLOCK), _DRAWN_BLOCK))
        if warm is None:
            state.stage = self._first_stage(state)
        else:
            points, coef = expansion(comm, state.rows, beta)
            state.pending = _Pending(points, coef, np.arange(len(beta)), state.rows) if len(points) else None
            state.summed = Summed.of(comm, state.rows, beta)
        return state

    def sweep(self, state: State) -> State:
        """A round on a working set; or, after a stage, a piece of the pass that updates all responses."""
        if state.stage is None and state.pending is None:
            gap, size = self._gap_in_play(state)
            if state.late is not None and gap <= _CATCH_UP * self.stationary:
                self._catch_up(state, state.late)
            else:
                state.stage = self._next_stage(state, gap, _LAST_GAP * self.stationary * size)
        if state.stage is not None:
            self._round(state, state.stage)
        elif state.pending is not None:
            self._update_responses(state)
        return state

    def certify(self, state: State) -> Certificate | None:
        """Both objectives at the responses as they are known; None while some are out of date.

        Responses in float32 give estimates, which :meth:`confirm` replaces.
        """
        if not state.is_settled:
            return None
        if state.rows.dtype == np.float64:
            return self._bounds(state, self._precision(state), state.summed)
        precision, state.best = self._precision(state), None  # what is confirmed is this beta, not an earlier one
        return self._bounds(state, precision, None)

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        if state.stage is not None:
            if state.best is None:
                state.guess = self._point_of(state, state.stage)
            self._leave(state, state.stage)
        best, is_float64 = state.best, state.rows.dtype == np.float64
        if (
            state.is_settled
            and best is not None
            and is_float64
            and state.allowance <= _SMALL_PART * best.certificate.gap
        ):
            certificate = best.certificate  # bounds of sweeps allow for rounding
        elif state.is_settled and best is not None and not is_float64:
            certificate = self._confirmed_bounds(state, best.point)
        else:
            self._refresh(state)
            certificate = self._exact_bounds(state)
        state.violation = self._violation(state)
        self._note_confirmed(state, certificate)
        return certificate

    def values_to_confirm(self, state: State) -> float:
        if not state.is_settled or state.best is None:
            return super().values_to_confirm(state)
        if state.rows.dtype == np.float64:
            return 0.0
        n_support = float(len(state.rows.nonzero(state.beta)))
        return n_support * min(_CONFIRMED_SHARE * n_support, state.shard.n_rows) * state.comm.size

    def warm_state(self, state: State) -> np.ndarray:
        beta, stage = state.beta.copy(), state.stage
        if stage is not None:
            beta[stage.chosen] = stage.beta
        return spread(state.comm, state.rows, beta)

    def _refresh(self, state: State) -> None:
        points, coef = expansion(state.comm, state.rows, state.beta)
        state.response = responses(state.comm, state.rows, points, coef, exact=True)
        state.summed = Summed.of(state.comm, state.rows, state.beta)
        state.reach = np.zeros(len(state.beta))
        state.pending = state.late = state.best = None  # the best was measured less exactly

    def _confirmed_bounds(self, state: State, point: PrimalPoint) -> Certificate:
        """Bounds that allow for rounding, from float64 responses of the rows that they depend on.

        These are rows with a coefficient, for the norm, and rows that may have a loss. The others are farther outside
        the margin than their responses can be wrong. Of rows at their bounds that have a loss for sure, the sum of all
        is enough (:class:`_Together`). ``point`` is where the search for the primal point will about end; rows that
        turn out to lie elsewhere are computed then, and the search begins again.
        """
        rows, comm, y = state.rows, state.comm, state.y
        points, coef = expansion(comm, rows, state.beta)
        summed = Summed.of(comm, rows, state.beta)
        exact_error = rows.score_error(*summed, state.beta)
        error = rows.sweep_error(state.reach, *state.summed)
        together = _Together.of(state, error, exact_error, point)
        coef = np.stack([coef, share(comm, together.beta[rows.nonzero(state.beta)])], axis=1)
        is_exact = together.is_in.copy()
        wanted = ~is_exact & ((state.beta != 0) | may_lose(state.response, error, y, point, _CLEARANCE))
        certificate = None
        while certificate is None or comm.allreduce(np.array([float(wanted.any())]))[0] > 0:
            where = np.flatnonzero(wanted)
            few = rows if len(where) == len(y) else rows.only(where)
            response, by_these = responses(comm, few, points, coef, exact=True).T
            together.take_out(where, response, by_these)
            state.response[where], state.reach[where] = response, 0.0
            error[where], is_exact[where] = exact_error[where], True
            state.best = None  # it was measured less exactly
            estimates = state.response
            state.response, errors = together.shifted(estimates, error)
            certificate = self._bounds(state, self._precision(state), summed, errors)
            state.response = estimates
            assert state.best is not None
            wanted = ~is_exact & may_lose(state.response, error, y, state.best.point, 0.0)
            wanted |= together.is_in & ~_loses(state.response, error + together.shift, y, state.best.point, 0.0)
        return certificate

    def _exact_bounds(self, state: State) -> Certificate:
        return self._bounds(state, self._precision(state), state.summed)

    def unconfirmed(self, state: State, latest: Certificate | None) -> Certificate:
        if state.best is not None and state.is_confirmed:
            return state.best.certificate
        return self._crude_bounds(state, state.guess)

    @staticmethod
    def _point_of(state: State, stage: _Stage) -> PrimalPoint:
        """The best scale and intercept as far as the rows of a stage can tell."""
        y, weight = state.shard.y[stage.chosen], state.shard.weight[stage.chosen]
        squared = float(state.comm.allreduce(np.array([stage.beta @ stage.response]))[0])
        return state.problem.primal_point(stage.response, y, weight, max(squared, 0.0), state.comm.allreduce)

    @staticmethod
    def _precision(state: State) -> float:
        """Of the primal value: a small part of the gap."""
        gap = 0.0 if state.best is None else state.best.certificate.relative
        return float(np.clip(1e-3 * gap, 1e-12, 1e-6))

    @staticmethod
    def _forces(state: State, chosen: np.ndarray, beta: np.ndarray, response: np.ndarray) -> _Forces:
        rows = chosen, state.shard.y, state.low, state.high, beta, response
        highest, lowest, total, n_free = forces.ends(*rows)
        highest, lowest = state.comm.allreduce(np.array([highest, -lowest]), "max") * [1, -1]
        threshold = 0.0
        if state.problem.fit_intercept:
            # At the optimum free rows are at the threshold.
            total, count = state.comm.allreduce(np.array([total, n_free]))
            threshold = total / count if count > 10 else (highest + lowest) / 2
        else:
            highest, lowest = max(highest, 0.0), min(lowest, 0.0)
        rise, fall = np.empty(len(chosen)), np.empty(len(chosen))
        gap = forces.forces(*rows, threshold, rise, fall)
        return _Forces(rise, fall, float(highest - lowest), float(state.comm.allreduce(np.array([gap]))[0]))

    def _violation(self, state: State) -> float:
        return self._forces(state, np.arange(len(state.beta)), state.beta, state.response).violation

    def _choose(self, state: State, found: _Forces, least: int, most: int, drawn: int) -> tuple[np.ndarray, bool]:
        """This rank's rows that violate or nearly do, or the worst and a random choice; and whether rows were drawn."""
        rise, fall, force = found.rise, found.fall, found.largest
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
        few = max(1, int(_WORST_SHARE * mine) // 2)
        taken = np.zeros(len(force), dtype=bool)
        taken[np.argpartition(-rise, few - 1)[:few]] = True
        taken[np.argpartition(-fall, few - 1)[:few]] = True
        others = np.flatnonzero((force > 0) & ~taken)
        taken[state.rng.choice(others, min(len(others), mine - np.count_nonzero(taken)), replace=False)] = True
        return np.flatnonzero(taken), True

    def _first_stage(self, state: State) -> _Stage | None:
        n = state.shard.n_rows
        total = state.comm.allreduce(np.array([float(n)]))[0]
        size = max(_MIN_FIRST_STAGE, total * _FIRST_STAGE_SHARE)
        if size >= total / 2:
            return None
        share = (1 + size) / total
        chosen = np.concatenate(
            [self._drawn(state, state.y > 0, share, size), self._drawn(state, state.y < 0, share, size)]
        )
        chosen.sort()
        return self._enter(state, chosen, target=_STAGE_REDUCTION)

    @staticmethod
    def _drawn(state: State, is_class: np.ndarray, share: float, size: float) -> np.ndarray:
        """This rank's rows of one class to begin with: a share of them, or all of a class that is small."""
        rows = np.flatnonzero(is_class)
        everywhere = state.comm.allreduce(np.array([float(len(rows))]))[0]
        share = min(1.0, max(share, _MIN_CLASS_SHARE * size / max(everywhere, 1.0)))
        return state.rng.choice(rows, min(len(rows), int(np.ceil(share * len(rows)))), replace=False)

    def _next_stage(self, state: State, gap: float, enough: float) -> _Stage:
        """The rows to work on next, and how well, where the relative gap of the rows in play is about ``gap``.

        A gap of ``enough`` may be left.
        """
        places, found = self._forces_in_play(state)
        if found.violation > state.stage_violation / 2 and found.violation <= self._noise(state):
            # The last stage helped little, and what is left may be the error of the responses.
            self._refresh(state)
            places, found = self._forces_in_play(state)
        state.stage_violation = found.violation
        total = int(state.comm.allreduce(np.array([float(len(places))]))[0])
        most = max(2 * _MIN_STAGE, int(total * _MAX_STAGE_SHARE))
        chosen, _ = self._choose(state, found, _MIN_STAGE, most, most)
        if state.comm.allreduce(np.array([float(len(chosen))]))[0] > 0.7 * total:
            chosen = np.arange(len(places))
        elif state.late is None and state.rows.kernel.is_positive:
            is_far = (state.beta == 0) & (found.largest <= -_FAR)
            is_far[chosen] = False
            if state.comm.allreduce(np.array([float(np.count_nonzero(is_far))]))[0] > _MIN_LATE_SHARE * total:
                state.late = _Late(np.flatnonzero(is_far), state.beta.copy())
        reduction = _AIM * self.stationary / gap if gap > 0 else 0.0
        reduction = min(max(reduction, _STAGE_REDUCTION), _LAST_REDUCTION)
        enough = min(enough, _LAST_REDUCTION * found.gap)
        return self._enter(state, places[chosen], reduction * found.violation, enough)

    def _forces_in_play(self, state: State) -> tuple[np.ndarray, _Forces]:
        places = state.in_play
        return places, self._forces(state, places, state.beta[places], state.response[places])

    @staticmethod
    def _gap_in_play(state: State) -> tuple[float, float]:
        """About the relative gap, if rows that are late have no loss, and the size of the objective."""
        if state.late is None:
            best = state.best
            return (np.inf, 0.0) if best is None else (best.certificate.relative, abs(best.certificate.primal))
        places = state.in_play
        beta, response = state.beta[places], state.response[places]
        sums = np.array([beta @ response, np.abs(beta).sum()])
        squared, alpha_sum = map(float, state.comm.allreduce(sums))
        point = state.problem.primal_point(
            response, state.y[places], state.weight[places], max(squared, 0.0), state.comm.allreduce, precision=1e-6
        )
        gap = point.value - state.problem.dual_value(alpha_sum, squared)
        return float(gap / abs(point.value)) if point.value else 0.0, abs(point.value)

    @staticmethod
    def _catch_up(state: State, late: _Late) -> None:
        """Let rows that are late have all changes since: these are pending."""
        state.late = None
        changed = np.flatnonzero(state.beta != late.beta)
        points = share_points(state.comm, state.rows.points(changed))
        if len(points):
            delta = share(state.comm, (state.beta - late.beta)[changed])
            state.pending = _Pending(points, delta, late.places, state.rows.only(late.places))

    @staticmethod
    def _noise(state: State) -> float:
        """A generous estimate of the rounding error in the difference of two responses."""
        squares = float(state.comm.allreduce(np.array([state.beta @ state.beta]))[0])
        return _NOISE_UNITS * float(np.finfo(state.rows.dtype).eps) * float(np.sqrt(squares))

    def _enter(self, state: State, chosen: np.ndarray, target: float, enough: float = 0.0) -> _Stage:
        rows = state.rows if len(chosen) == state.shard.n_rows else state.rows.only(chosen)
        return _Stage(rows, chosen, state.beta[chosen], state.response[chosen], state.reach[chosen], target, enough)

    def _leave(self, state: State, stage: _Stage) -> None:
        """End a stage: its changes become pending for all rows, unless the stage had all rows."""
        moved = np.flatnonzero(stage.beta != state.beta[stage.chosen])
        delta = (stage.beta - state.beta[stage.chosen])[moved]
        state.beta[stage.chosen] = stage.beta
        state.stage = None
        state.response[stage.chosen], state.reach[stage.chosen] = stage.response, stage.reach
        late = np.empty(0, np.intp) if state.late is None else state.late.places
        others = _others(np.concatenate([stage.chosen, late]), state.shard.n_rows)
        if state.comm.allreduce(np.array([float(len(others))]))[0] == 0:
            return
        points = share_points(state.comm, stage.rows.points(moved))
        if len(points):
            state.pending = _Pending(points, share(state.comm, delta), others, state.rows.only(others))

    def _update_responses(self, state: State) -> None:
        assert state.pending is not None
        points, delta, others, rows = state.pending
        largest = state.comm.allreduce(np.array([float(len(others))]), "max")[0]
        few = max(256, int(_VALUES_PER_SWEEP / max(largest, 1)))
        by, reach = _changes(state, rows, points[:few], delta[:few])
        state.response[others] += by
        state.reach[others] += reach
        left = state.pending._replace(points=points[few:], delta=delta[few:])
        state.pending = left if len(left.points) else None

    def _round(self, state: State, stage: _Stage) -> None:
        found = self._forces(state, stage.chosen, stage.beta, stage.response)
        stage.rounds += 1
        if found.violation <= stage.target or found.gap <= stage.enough or stage.rounds > _MAX_ROUNDS:
            self._leave(state, stage)
            if state.pending is not None:
                self._update_responses(state)
            return
        fitting = int(np.sqrt(self.block_bytes / np.dtype(state.rows.dtype).itemsize)) // 64 * 64
        most = min(_MAX_BLOCK, max(64, fitting))
        working, is_drawn = self._choose(state, found, min(_MIN_BLOCK, most), most, min(state.drawn_block, most))
        where = stage.chosen[working]
        comm, place = state.comm, place_among_ranks(state.comm, len(working))
        points = share_points(comm, stage.rows.points(working))
        pull = state.shard.y[where] - stage.response[working]
        numbers = np.stack([pull, stage.beta[working], state.low[where], state.high[where]], axis=1)
        pull, beta, low, high = share(comm, numbers.ravel()).reshape(-1, 4).T
        solved = np.empty((0, 3))
        max_steps = _STEPS_PER_ROW * len(points) + _EXTRA_STEPS
        with uneven(float(len(points)) * (len(points) * state.rows.n_features + max_steps)):
            if comm.rank == 0:
                tol = max((_DRAWN_REDUCTION if is_drawn else _REDUCTION) * found.violation, _ENOUGH * stage.target)
                K, dual = state.rows.working_block(points), Dual(pull, beta, low, high)
                is_tied = state.problem.fit_intercept
                new, _, _ = state.rows.solve_block(K, dual, tol, is_tied=is_tied, max_steps=max_steps)
                solved = np.column_stack([new, block_times(K, new - beta)])
        solved = comm.broadcast(solved.ravel()).reshape(-1, 3)
        moved = np.flatnonzero(solved[:, 0] != beta)
        few, change = points[moved], (solved[:, 0] - beta)[moved]
        # The kernel values of the working set are known.
        rest = _others(working, len(stage.chosen))
        by, reach = _changes(state, stage.rows.only(rest), few, change)
        stage.response[rest] += by
        stage.reach[rest] += reach
        stage.beta[working], by, reach = solved[place].T
        stage.response[working] += by
        stage.reach[working] += reach
        # The other rows will get the changes of all rounds as one sum, which is no larger.
        mass = float(np.abs(change) @ lengths_of(state.rows, few))
        state.summed = state.summed.plus(Summed(mass, float(len(moved))))


@dataclass
class _Together:
    """Rows at their bounds that have a loss: both objectives depend on the sum of their ``beta_i f_i`` alone.

    It takes half of the kernel values between these rows, since they are symmetric, and those with other rows, which
    the responses of the others need anyway.
    """

    state: State
    exact_error: np.ndarray  # of float64 responses of all rows
    beta: np.ndarray  # of the rows that were these at first; else 0
    is_in: np.ndarray  # which rows these are
    total: float = 0.0  # the sum
    error: float = 0.0  # of it
    shift: float = 0.0  # by which estimates were changed

    @classmethod
    def of(cls, state: State, error: np.ndarray, exact_error: np.ndarray, point: PrimalPoint) -> _Together:
        """All such rows, known to about ``error``; none on several ranks, or where they are few."""
        is_in = (state.beta != 0) & ((state.beta == state.low) | (state.beta == state.high))
        is_in &= _loses(state.response, error, state.y, point, _CLEARANCE)
        if state.comm.size > 1 or np.count_nonzero(is_in) < 2 * _ROWS_TOGETHER:
            is_in[:] = False
        together = cls(state, exact_error, np.where(is_in, state.beta, 0.0), is_in)
        places = np.flatnonzero(is_in)
        for begin in range(0, len(places), _ROWS_TOGETHER):
            some = places[begin : begin + _ROWS_TOGETHER]
            known = places[: begin + len(some)]
            coef = state.beta[known]
            coef[begin:] /= 2  # between these rows all values are computed
            few = state.rows.only(some)
            together._add(some, 2 * responses(state.comm, few, state.rows.points(known), coef, exact=True))
        return together

    def take_out(self, places: np.ndarray, response: np.ndarray, by_these: np.ndarray) -> None:
        """Add what others have by these rows, and leave out those of them whose responses are now known."""
        was_in = self.is_in[places]
        self.is_in[places] = False
        self._add(places, np.where(was_in, -response, by_these))

    def _add(self, places: np.ndarray, response: np.ndarray) -> None:
        beta = self.state.beta[places]
        self.total += float(beta @ response)
        sizes = abs(self.total) + np.abs(beta) @ np.abs(response)
        self.error += float(np.abs(beta) @ self.exact_error[places] + gamma(len(beta) + 16) * sizes)

    def shifted(self, estimates: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Responses from estimates, shifted so that they add up, and errors that add up to that of the sum."""
        if not self.is_in.any():
            return estimates, error
        beta, y, response, errors = self.beta[self.is_in], self.state.y[self.is_in], estimates.copy(), error.copy()
        mass, shift = np.abs(beta).sum(), self.total - beta @ response[self.is_in]
        response[self.is_in] += y * (shift / mass)
        sizes = abs(self.total) + np.abs(beta) @ np.abs(response[self.is_in])
        errors[self.is_in] = (self.error + gamma(len(beta) + 16) * sizes) / mass * (1 + 16 * UNIT)
        self.shift = float(abs(shift / mass))
        return response, errors


def _others(chosen: np.ndarray, n: int) -> np.ndarray:
    """Places among ``n`` that are not chosen."""
    is_other = np.ones(n, dtype=bool)
    is_other[chosen] = False
    return np.flatnonzero(is_other)


def _changes(
    state: State, rows: KernelRows, points: Points, delta: np.ndarray
) -> tuple[np.ndarray, np.ndarray | float]:
    """What changes of beta add to the responses of rows, and to their reach where that bounds errors."""
    if not rows.has_relative_errors:
        return responses(state.comm, rows, points, delta), 0.0
    both = responses(state.comm, rows, points, np.stack([delta, np.abs(delta)], axis=1))
    return both[:, 0], both[:, 1]


def _loses(response: np.ndarray, error: np.ndarray, y: np.ndarray, point: PrimalPoint, clearance: float) -> np.ndarray:
    """Which rows are proven to be inside the margin, by ``clearance`` or more, at a primal point."""
    most = y * response + error
    return point.scale * most + y * point.intercept <= 1 - clearance - 8 * UNIT * (2 + abs(point.intercept))
