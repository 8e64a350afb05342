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
continues from there. It therefore ends at the optimum of the rows as given.

[1] Wen, Shi, Li, He, Chen: ThunderSVM: a fast SVM library on GPUs and CPUs, JMLR 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from weakref import proxy

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.kernels.protocol import Places, Vector
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
class State(DualState):
    """Vectors on the device, one entry per row; a round updates all of them in place."""

    together: Vector = None  # low, high, beta, response and y in one block of memory
    exact: Vector = None  # beta when responses were last computed in float64, and these responses
    kept: Places = None  # rows of the last working set that stay
    middle: Vector = None  # midway between the largest pull up and the smallest pull down
    numbers: Vector = None  # the violation before the last round; the squared change of beta since ``exact``
    repeat_rounds: Callable[[int], None] = lambda n_rounds: None
    exact_noise: float = 0.0  # the largest rounding error of an exact response
    next_check: float = np.inf
    is_exact: bool = True


@dataclass(frozen=True)
class FlatDual(KernelDual[State]):
    """Single working sets; ``stationary`` is also the gap that a run is to reach."""

    stationary: float = 1e-3
    max_support: int | None = None

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """``warm`` is a beta for all rows, by their numbers."""
        rows, n = shard.kernel, shard.n_rows
        low, high, beta = feasible_start(problem, shard, comm, warm)
        both = rows.vectors([low, high, beta, np.zeros(n), shard.y, shard.weight])
        state = State(problem, shard, comm, rows, rng, *both)
        state.together = both[:5]
        state.exact = rows.vectors([np.zeros(n), np.zeros(n)])
        state.kept = rows.places(np.empty(0) if n <= BLOCK else _of_both_classes(shard, rng))
        state.middle, state.numbers = rows.vector(np.array(0.0)), rows.vector(np.zeros(2))
        # A proxy, so that no cycle keeps device memory.
        state.repeat_rounds = rows.repeated(partial(_round, proxy(state)))
        if warm is not None:
            self._refresh(state)
        share = min(_FIRST_CHECK_SHARE, _FIRST_CHECK_GAPS * self.stationary)
        state.next_check = share * self._violation(state)
        return state

    def sweep(self, state: State) -> State:
        """Some rounds, without a look at their result."""
        state.repeat_rounds(int(np.clip(_VALUES_PER_SWEEP / (BLOCK * state.shard.n_rows), 1, _ROUNDS_PER_SWEEP)))
        state.is_exact = False
        return state

    def certify(self, state: State) -> Certificate | None:
        """Both objectives, when the violation has fallen enough since the last time; else None."""
        violation, squared_change = map(float, state.rows.host(state.numbers))
        noise = _NOISE_UNITS * state.rows.error * np.sqrt(squared_change) + state.exact_noise
        if not state.is_exact and violation <= noise:
            self._refresh(state)
        elif violation > state.next_check or (state.best is None and state.is_exact):
            return None
        certificate = self._exact_bounds(state) if state.is_exact else self._bounds(state, self._precision(), None)
        share = np.clip(2 * self.stationary / max(certificate.relative, 1e-300), _MIN_CHECK_SHARE, _MAX_CHECK_SHARE)
        state.next_check = float(share * violation)
        return certificate

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        if not state.is_exact:
            self._refresh(state)
        state.violation = self._violation(state)
        return self._exact_bounds(state) if state.best is None else state.best.certificate

    def unconfirmed(self, state: State, latest: Certificate | None) -> Certificate:
        return self._crude_bounds(state)

    def warm_state(self, state: State) -> np.ndarray:
        return spread(state.comm, state.rows, state.rows.host(state.beta))

    def extract(self, state: State) -> KernelModel:
        model = super().extract(state)
        return model._replace(report={**model.report, "kernel_error": state.rows.largest_error})

    def _precision(self) -> float:
        """Not finer than the gap asked for needs: every evaluation of the loss waits for the device."""
        return float(np.clip(_PRECISION * self.stationary, 1e-12, 1e-5))

    def _exact_bounds(self, state: State) -> Certificate:
        (beta,) = state.rows.where_sums_are_fast([state.beta])
        state.exact_noise = float(state.rows.score_error(*state.summed, beta).max())
        certificate = self._bounds(state, self._precision(), state.summed)
        if state.allowance > _ROUNDING_SHARE * certificate.gap:
            self._note_confirmed(state, certificate)
        return certificate

    def _refresh(self, state: State) -> None:
        """Responses in float64: only the changes since the last time are added."""
        rows, (beta, response) = state.rows, state.exact
        change = state.beta - beta
        changed = rows.nonzero(change)
        response += responses(state.comm, rows, rows.points(changed), change[changed], exact=True)
        state.summed = state.summed.plus(Summed.of(state.comm, rows, change))
        beta[...] = state.beta
        state.response[...] = response
        state.numbers[1] = 0.0
        state.is_exact, state.best = True, None  # the best model so far was measured less exactly

    def _violation(self, state: State) -> float:
        _, top, bottom = _working_set(state)
        return float(_violation_of(state, top, bottom))  # one answer of the device


def _violation_of(state: State, top: Vector, bottom: Vector) -> Vector:
    """From the largest pull up and the smallest pull down."""
    return top - bottom if state.problem.fit_intercept else top.clip(0.0) + (-bottom).clip(0.0)


def _round(state: State) -> None:
    """One working set; everything is updated in place."""
    rows, is_tied = state.rows, state.problem.fit_intercept
    working, top, bottom = _working_set(state)
    violation = _violation_of(state, top, bottom)
    if is_tied:
        state.middle[...] = 0.5 * (top + bottom)
    points, (low, high, beta, response, y) = rows.points(working), state.together[:, working]
    K, tol, max_steps = rows.working_block(points), _REDUCTION * violation, _MAX_STEPS_PER_ROW * len(working)
    dual = Dual(y - response, beta, low, high)
    solved, _, _ = rows.solve_block(K, dual, tol, is_tied=is_tied, max_steps=max_steps, middle=state.middle)
    change = solved - beta
    state.response += rows.times(points, change)
    state.beta[working] = solved
    state.numbers[0] = violation
    state.numbers[1] += (change * change).sum()
    if len(state.kept):
        state.kept[...] = rows.kept(working, dual._replace(beta=solved), len(state.kept))


def _working_set(state: State) -> tuple[Places, Vector, Vector]:
    dual = Dual(state.y - state.response, state.beta, state.low, state.high)
    return state.rows.working_set(dual, state.kept, state.middle, BLOCK)


def _of_both_classes(shard: Shard, rng: Generator) -> np.ndarray:
    """Half a working set to begin with, the same number of rows of both classes where possible."""
    positive, negative = np.flatnonzero(shard.y > 0), np.flatnonzero(shard.y < 0)
    few = min(BLOCK // 4, len(positive), len(negative))
    drawn = [rng.choice(each, few, replace=False, shuffle=False) for each in (positive, negative)]
    if 2 * few < BLOCK // 2:  # the smaller class is used up
        others = np.setdiff1d(max(positive, negative, key=len), np.concatenate(drawn))
        drawn.append(rng.choice(others, BLOCK // 2 - 2 * few, replace=False, shuffle=False))
    return np.concatenate(drawn)
