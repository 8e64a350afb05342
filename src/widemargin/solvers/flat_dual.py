"""Exact kernel C-SVM where kernel values are cheap and a transfer to the host is not: one working set after the other.

The problem and its bounds are those of :mod:`widemargin.solvers._kernel_dual`. All vectors stay on the device of the
rows, a GPU for example, and a sweep reads nothing back to the host:

    repeat   the working set: half of the last one, free rows first, then the latest,
             and the worst violators, each the worst in a group of neighbouring rows
             its kernel values, and its problem solved until its violation is a quarter of that of all rows
             responses of all rows, by one kernel pass over the working set

The worst rows overall are near copies of each other, so one per group is the better choice; rows should come in no
particular order. Responses accumulate the errors of less exact kernel values. When these may be what is left of the
violation, and before a certificate is shown, responses are computed in float64 from the rows as given, and the descent
continues from there. It therefore ends at the optimum of the rows as given. That pass over the rows is a sweep of its
own, so that a device computes it while other problems are prepared.

[1] Wen, Shi, Li, He, Chen: ThunderSVM: a fast SVM library on GPUs and CPUs, JMLR 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from weakref import proxy

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled import small_dual
from widemargin.data.shard import Shard
from widemargin.kernels.protocol import KernelRows, Places, Vector
from widemargin.kernels.vectors import Dual
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.protocol import Certificate
from widemargin.solvers._kernel_dual import DualState, KernelDual, feasible_start
from widemargin.solvers._kernel_ranks import Summed, responses, spread
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import Warm

BLOCK = 1024  # rows of a working set
_REDUCTION = 0.25  # of the violation by a working set
_MAX_STEPS_PER_ROW = 16
_ROUNDS_PER_SWEEP, _VALUES_PER_SWEEP = 8, 2e10  # kernel values where rows are many
# Bounds are computed when the violation has fallen to a share of the first one, which depends on the gap asked for;
# then whenever it has fallen to a share of what it was, within these limits.
_FIRST_CHECK_SHARE, _FIRST_CHECK_GAPS = 0.25, 50.0
_MAX_CHECK_SHARE, _MIN_CHECK_SHARE = 0.7, 0.02
_PRECISION = 0.02  # of the primal value, relative to the gap asked for
_NOISE_UNITS = 24.0  # errors of a kernel value, to tell whether they may be what is left of the violation
_ROUNDING_SHARE = 0.01  # of the gap: less rounding does not keep it open


@dataclass
class Memory:
    """What a round reads and updates in place; behind the rows of a problem there may be others, which cannot move."""

    rows: KernelRows
    is_tied: bool  # whether the sum of beta is fixed
    vectors: Vector  # low, high, beta, response and y in one block
    kept: Places  # rows of the last working set that stay
    middle: Vector  # midway between the largest pull up and the smallest pull down
    numbers: Vector  # the violation before the last round; the squared change of beta since it was last exact
    repeat_rounds: Callable[[int], None] = lambda n_rounds: None

    @classmethod
    def on(cls, rows: KernelRows, *, is_tied: bool, n_kept: int) -> Memory:
        vectors, kept = rows.vectors([np.zeros(rows.n_rows)] * 5), rows.places(np.zeros(n_kept))
        memory = cls(rows, is_tied, vectors, kept, rows.vector(np.array(0.0)), rows.vector(np.zeros(2)))
        # A proxy, so that no cycle keeps device memory.
        memory.repeat_rounds = rows.repeated(partial(_round, proxy(memory)))
        return memory

    def fill(self, vectors: list[np.ndarray], kept: np.ndarray) -> None:
        """Begin with a problem."""
        n = len(vectors[0])
        self.vectors[:, :n] = self.rows.vectors(vectors)
        self.vectors[:, n:] = 0.0
        self.kept[...] = self.rows.places(kept)
        self.middle[...] = 0.0
        self.numbers[...] = 0.0


@dataclass
class State(DualState):
    """Vectors are parts of ``memory``, but for the weights, which are None where sums are computed on the host."""

    memory: Memory = None  # type: ignore[assignment]
    limits: tuple[np.ndarray, np.ndarray] = None  # type: ignore[assignment]  # low and high on the host
    exact_beta: Vector = 0.0  # when responses were last computed in float64: where sums are computed
    exact_response: Vector = 0.0  # as computed then
    exact_noise: float = 0.0  # the largest rounding error of an exact response
    next_check: float = np.inf
    last_violation: float = np.inf
    is_exact: bool = True
    is_due: bool = False  # the next sweep computes exact responses, or the last one did
    copies: dict[str, tuple[Vector, np.ndarray]] = field(default_factory=dict)  # vectors as they are, on the host
    known_violation: float | None = None  # of beta and the responses as they are

    def on_host(self, name: str) -> np.ndarray:
        """Copied once, until a sweep changes the vector."""
        vector = getattr(self, name)
        if name not in self.copies or self.copies[name][0] is not vector:
            self.copies[name] = vector, super().on_host(name)
        return self.copies[name][1]

    def for_sums(self) -> list[Vector]:
        if not self.rows.are_sums_on_host:
            return super().for_sums()
        return [self.on_host("beta"), self.on_host("response"), self.shard.y, self.shard.weight]


@dataclass(frozen=True)
class FlatDual(KernelDual[State]):
    """Single working sets; ``stationary`` is also the gap that a run is to reach."""

    stationary: float = 1e-3
    max_support: int | None = None

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """``warm`` is a beta for all rows, by their numbers."""
        rows, n = shard.kernel, shard.n_rows
        low, high, beta = feasible_start(problem, shard, comm, warm)
        kept = np.empty(0) if n <= BLOCK else _of_both_classes(shard, rng)
        make = partial(Memory.on, is_tied=problem.fit_intercept, n_kept=len(kept))
        memory: Memory = make(rows) if n <= BLOCK else rows.room(make)
        memory.fill([low, high, beta, np.zeros(n), shard.y], kept)
        weight = None if rows.are_sums_on_host else rows.vector(shard.weight)
        state = State(problem, shard, comm, rows, rng, *(*(each[:n] for each in memory.vectors), weight))
        state.memory, state.limits = memory, (low, high)
        if warm is not None:
            self._refresh(state)
        share = min(_FIRST_CHECK_SHARE, _FIRST_CHECK_GAPS * self.stationary)
        # Without coefficients, rows of one class pull up by 1 and those of the other down.
        state.next_check = share * (2.0 if warm is None else self._violation(state))
        return state

    def sweep(self, state: State) -> State:
        """Some rounds, or exact responses where :meth:`certify` needs them, without a look at the result."""
        if state.is_due:
            self._refresh(state)
            return state
        memory, count = state.memory, state.memory.rows.ledger.kernel_evaluations
        memory.repeat_rounds(int(np.clip(_VALUES_PER_SWEEP / (BLOCK * state.shard.n_rows), 1, _ROUNDS_PER_SWEEP)))
        if memory.rows is not state.rows:
            state.rows.ledger.kernel_evaluations += memory.rows.ledger.kernel_evaluations - count
        state.copies.clear()
        state.is_exact, state.known_violation = False, None
        return state

    def certify(self, state: State) -> Certificate | None:
        """Both objectives, when the violation has fallen enough since the last time; else None."""
        if not state.is_exact:
            state.last_violation, squared_change = map(float, state.rows.host(state.memory.numbers))
            noise = _NOISE_UNITS * state.rows.error * np.sqrt(squared_change) + state.exact_noise
            is_noise = state.last_violation <= noise
            if not is_noise and state.last_violation > state.next_check:
                return None
            # Of few rows, exact responses cost less than to look twice.
            state.is_due = is_noise or state.rows.are_sums_on_host
        if state.is_due != state.is_exact:
            return None
        certificate = self._exact_bounds(state) if state.is_exact else self._bounds(state, self._precision(), None)
        state.is_due = False
        share = np.clip(2 * self.stationary / max(certificate.relative, 1e-300), _MIN_CHECK_SHARE, _MAX_CHECK_SHARE)
        state.next_check = float(share * state.last_violation)
        return certificate

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        state.is_due = False
        if not state.is_exact:
            self._refresh(state)
        state.violation = self._violation(state)
        return self._exact_bounds(state) if state.best is None else state.best.certificate

    def unconfirmed(self, state: State, latest: Certificate | None) -> Certificate:
        return self._crude_bounds(state)

    def warm_state(self, state: State) -> np.ndarray:
        return spread(state.comm, state.rows, state.on_host("beta"))

    def extract(self, state: State) -> KernelModel:
        model = super().extract(state)
        return model._replace(report={**model.report, "kernel_error": state.rows.largest_error})

    def _precision(self) -> float:
        """Not finer than the gap asked for needs: every evaluation of the loss waits for the device."""
        return float(np.clip(_PRECISION * self.stationary, 1e-12, 1e-5))

    def _exact_bounds(self, state: State) -> Certificate:
        error = state.rows.score_error(*state.summed, state.for_sums()[0])
        state.exact_noise = float(error.max())
        certificate = self._bounds(state, self._precision(), state.summed, error)
        if state.allowance > _ROUNDING_SHARE * certificate.gap:
            self._note_confirmed(state, certificate)
        return certificate

    def _refresh(self, state: State) -> None:
        """Responses in float64: only the changes since the last time are added."""
        rows = state.rows
        beta = state.on_host("beta") if rows.are_sums_on_host else state.beta + 0.0
        change = beta - state.exact_beta
        places = rows.nonzero(change)
        summed, coef = Summed.of(state.comm, rows, change), change[places]
        if rows.are_sums_on_host:
            places, coef = rows.places(places), rows.vector(coef)
        response = state.exact_response + responses(state.comm, rows, rows.points(places), coef, exact=True)
        state.exact_beta, state.exact_response, state.summed = beta, response, state.summed.plus(summed)
        state.response[...] = response
        state.copies.pop("response", None)
        state.known_violation = None
        state.memory.numbers[1] = 0.0
        state.is_exact, state.best = True, None  # the best model so far was measured less exactly

    def _violation(self, state: State) -> float:
        if state.known_violation is None:
            top, bottom = _ends(state)
            state.known_violation = float(_violation_of(top, bottom, state.memory.is_tied))
        return state.known_violation


def _ends(state: State) -> tuple[Vector, Vector]:
    """The largest pull of a row that may rise and the smallest of one that may fall."""
    if not state.rows.are_sums_on_host:
        memory, dual = state.memory, Dual(state.y - state.response, state.beta, state.low, state.high)
        return state.rows.working_set(dual, memory.kept, memory.middle, BLOCK)[1:]
    (beta, response, y, _), (low, high) = state.for_sums(), state.limits
    top, bottom = small_dual.violation(y - response, beta, low, high)
    return np.float64(top), np.float64(bottom)


def _violation_of(top: Vector, bottom: Vector, is_tied: bool) -> Vector:
    """From the largest pull up and the smallest pull down."""
    return top - bottom if is_tied else top.clip(0.0) + (-bottom).clip(0.0)


def _round(memory: Memory) -> None:
    """One working set; everything is updated in place."""
    rows, is_tied, (low, high, beta, response, y) = memory.rows, memory.is_tied, memory.vectors
    all_beta, all_responses = beta, response
    everything = Dual(y - response, beta, low, high)
    working, top, bottom = rows.working_set(everything, memory.kept, memory.middle, BLOCK)
    violation = _violation_of(top, bottom, is_tied)
    if is_tied:
        memory.middle[...] = 0.5 * (top + bottom)
    points, (low, high, beta, response, y) = rows.points(working), memory.vectors[:, working]
    K, tol, max_steps = rows.working_block(points), _REDUCTION * violation, _MAX_STEPS_PER_ROW * len(working)
    dual = Dual(y - response, beta, low, high)
    solved, _, _ = rows.solve_block(K, dual, tol, is_tied=is_tied, max_steps=max_steps, middle=memory.middle)
    change = solved - beta
    all_responses += rows.times(points, change)
    all_beta[working] = solved
    memory.numbers[0] = violation
    memory.numbers[1] += (change * change).sum()
    if len(memory.kept):
        memory.kept[...] = rows.kept(working, dual._replace(beta=solved), len(memory.kept))


def _of_both_classes(shard: Shard, rng: Generator) -> np.ndarray:
    """Half a working set to begin with, the same number of rows of both classes where possible."""
    positive, negative = np.flatnonzero(shard.y > 0), np.flatnonzero(shard.y < 0)
    few = min(BLOCK // 4, len(positive), len(negative))
    drawn = [rng.choice(each, few, replace=False, shuffle=False) for each in (positive, negative)]
    if 2 * few < BLOCK // 2:  # the smaller class is used up
        others = np.setdiff1d(max(positive, negative, key=len), np.concatenate(drawn))
        drawn.append(rng.choice(others, BLOCK // 2 - 2 * few, replace=False, shuffle=False))
    return np.concatenate(drawn)
