"""Exact kernel C-SVM where kernel values are cheap and a look from the host is not: one working set after the other.

The problem, its dual and its certificate are those of :mod:`widemargin.solvers.block_dual`; the choice of rows is not.
All numbers stay where the rows are, a GPU for one, and nothing on the host waits for them during a sweep:

    repeat   the working set: half of the last one, rows between their bounds first, then the latest,
             and those that violate the optimality conditions most, each the worst among a few neighbours
             its kernel values, and its problem solved until the violation in it is a quarter of that of all rows
             responses of all rows, by one pass of the kernel over the working set

Neighbours that are worst together are near copies of each other, so that one for each group is better than the worst of
all; rows are taken to come in no order. Responses gather the errors of less exact kernel values; when what is left of
the violation may be these, and before a certificate is believed, they are computed anew in float64 from the rows as
they were given, and the descent goes on from there. It thus ends at the optimum of the rows as given, whatever the
precision of the kernel values in between.

[1] Wen, Shi, Li, He, Chen: ThunderSVM: a fast SVM library on GPUs and CPUs, JMLR 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import proxy

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.protocol import Certificate
from widemargin.solvers._kernel_ranks import balanced
from widemargin.solvers.block_dual import BlockDual, State
from widemargin.solvers.models import KernelModel

BLOCK = 1024  # rows of a working set
_CLOSER = 0.25  # a working set is solved to this part of the violation
_STEPS_PER_ROW = 16  # at most
_ROUNDS, _VALUES_PER_SWEEP = 8, 2e10  # rounds between two looks, and kernel values where rows are many
# Bounds are computed when the violation is a part of the first one, at most so much, and so many times the gap that is
# asked for; then again when it is between two parts of what it was.
_FIRST_LOOK, _FIRST_LOOK_GAPS = 0.25, 50.0
_SOONER, _LATER = 0.7, 0.02
_PRECISION = 0.02  # of the primal value, as a part of the gap that is asked for
_ROUNDINGS = 24.0  # errors of a kernel value, where it is asked whether they may be what is left of the violation


@dataclass
class FlatState(State):
    """The vectors are on the device, one entry for each row."""

    together: Any = None  # bounds, coefficients, responses and labels, in this order: the same memory
    exact: Any = None  # coefficients when the responses were last computed in float64, and these
    kept: Any = None  # rows of the last working set that stay
    middle: Any = None  # of the pulls of rows that violate most, up and down
    numbers: Any = None  # the next two, in the same memory
    open: Any = None  # the violation when the last round began
    moved: Any = None  # sum of squares of all changes since the responses were exact
    repeated: Any = None  # the round, so many times
    next_look: float = np.inf
    is_exact: bool = True


@dataclass(frozen=True)
class FlatDual(BlockDual):
    """Single working sets; ``stationary`` is the gap that a run is to reach, too."""

    def start(
        self, problem: HingeL2, shard: Shard, comm: Communicator, rng: np.random.Generator, warm: np.ndarray | None
    ) -> FlatState:
        rows, n = shard.kernel, shard.n_rows
        caps = problem.caps(shard.weight)
        low, high = np.where(shard.y > 0, 0.0, -caps), np.where(shard.y > 0, caps, 0.0)
        beta = np.zeros(n)
        if warm is not None:
            beta = np.clip(warm[rows.numbers], low, high)
            beta = balanced(comm, beta) if problem.fit_intercept else beta
        both = rows.vectors([low, high, beta, np.zeros(n), shard.y, shard.weight])
        state = FlatState(problem, shard, comm, rows, rng, both[0], both[1], both[2], both[3], both[4], both[5])
        state.together = both[:5]
        state.exact = rows.vectors([np.zeros(n), np.zeros(n)])
        state.kept = rows.places(np.empty(0) if n <= BLOCK else self._of_both_classes(shard, rng))
        state.middle, state.numbers = rows.vector(np.array(0.0)), rows.vector(np.zeros(2))
        state.open, state.moved = state.numbers
        state.repeated = rows.repeated(partial(self._flat_round, proxy(state)))  # no circle: memory there is dear
        if warm is not None:
            self._refresh(state)
        part = min(_FIRST_LOOK, _FIRST_LOOK_GAPS * self.stationary)
        state.next_look = part * self._violation(state)
        return state

    def sweep(self, state: FlatState) -> FlatState:  # type: ignore[override]
        """Some rounds, of which nothing is known here until they are over."""
        rounds = int(np.clip(_VALUES_PER_SWEEP / (BLOCK * state.shard.n_rows), 1, _ROUNDS))
        state.repeated(rounds)
        state.is_exact = False
        return state

    def certify(self, state: FlatState) -> Certificate | None:  # type: ignore[override]
        """Both objectives, when the violation has fallen enough since the last time; else None."""
        violation, moved = map(float, state.rows.host(state.numbers))
        if not state.is_exact and violation <= _ROUNDINGS * state.rows.error * np.sqrt(moved):
            self._refresh(state)
        elif violation > state.next_look or (state.best is None and state.is_exact):
            return None
        certificate = self._bounds(state)
        share = np.clip(2 * self.stationary / max(certificate.relative, 1e-300), _LATER, _SOONER)
        state.next_look = float(share * violation)
        return certificate

    def confirm(self, state: FlatState, latest: Certificate | None = None) -> Certificate:  # type: ignore[override]
        """The same with kernel values and responses computed in float64, where they are not yet."""
        if not state.is_exact:
            self._refresh(state)
        state.violation = self._violation(state)
        return self._bounds(state)

    def _refresh(self, state: State) -> None:
        """Responses in float64; those of rows that did not move since the last time are known."""
        assert isinstance(state, FlatState)
        rows, known = state.rows, state.exact
        moved = rows.nonzero(state.beta - known[0])
        known[1] += rows.times(rows.points(moved), (state.beta - known[0])[moved], exact=True)
        known[0] = state.beta
        state.response[...] = known[1]  # where the rounds find it
        state.moved[...] = 0.0
        state.is_exact, state.best = True, None  # what was thought best was measured less exactly

    def _flat_round(self, state: FlatState) -> None:
        """All that is changed is changed where it lies."""
        rows, is_tied = state.rows, state.problem.fit_intercept
        working, top, bottom = self._working_set(state)
        state.open[...] = top - bottom if is_tied else top.clip(0.0) + (-bottom).clip(0.0)
        if is_tied:
            state.middle[...] = 0.5 * (top + bottom)
        points = rows.points(working)
        low, high, beta, response, y = state.together[:, working]
        tol, most, K = _CLOSER * state.open, _STEPS_PER_ROW * len(working), rows.block(points)
        solved, _, _ = rows.solve_block(K, y - response, beta, low, high, tol, state.middle, is_tied, most)
        delta = solved - beta
        state.response += rows.times(points, delta)
        state.beta[working] = solved
        state.moved += (delta * delta).sum()
        if len(state.kept):
            state.kept[...] = rows.kept(working, solved, low, high, len(state.kept))

    def _precision(self, open_gap: float) -> float:
        """As much as the gap that is asked for needs: each look at the loss is a look at the device."""
        return float(np.clip(_PRECISION * self.stationary, 1e-12, 1e-5))

    @staticmethod
    def _working_set(state: FlatState) -> tuple[Any, Any, Any]:
        vectors = (state.response, state.y, state.beta, state.low, state.high)
        return state.rows.working_set(*vectors, state.kept, state.middle, BLOCK)

    def _violation(self, state: State) -> float:
        assert isinstance(state, FlatState)
        _, top, bottom = self._working_set(state)
        top, bottom = float(top), float(bottom)
        if not state.problem.fit_intercept:
            top, bottom = max(top, 0.0), min(bottom, 0.0)
        return top - bottom

    @staticmethod
    def _of_both_classes(shard: Shard, rng: np.random.Generator) -> np.ndarray:
        """Half a working set to begin with, of both classes where there are as many."""
        positive, negative = np.flatnonzero(shard.y > 0), np.flatnonzero(shard.y < 0)
        few = min(BLOCK // 4, len(positive), len(negative))
        drawn = [rng.choice(each, few, replace=False, shuffle=False) for each in (positive, negative)]
        if 2 * few < BLOCK // 2:  # the smaller class is all in it
            others = np.setdiff1d(max(positive, negative, key=len), np.concatenate(drawn))
            drawn.append(rng.choice(others, BLOCK // 2 - 2 * few, replace=False, shuffle=False))
        return np.concatenate(drawn)

    def extract(self, state: State) -> KernelModel:
        model = super().extract(state)
        return model._replace(report={**model.report, "kernel_error": state.rows.largest_error})
