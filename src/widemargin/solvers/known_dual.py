"""Exact kernel C-SVM where all kernel values are kept, for many problems on the same rows.

The problem is in :mod:`widemargin.solvers._kernel_dual`. A sweep is block descent on working sets
(:mod:`widemargin.compiled.known_dual`) with values in float32, until the gap is a fixed part of what it was, or it is
time to look at the clock. Rows of weight 0 cannot move, and have responses all the same: those of held-out rows are
their scores. Bounds allow for what values lost when they were rounded to float32; where that leaves the gap open, they
are computed anew with what was lost, which is kept beside the values.

[1] Osuna, Freund, Girosi: An improved training algorithm for support vector machines, 1997.
[2] Fan, Chen, Lin: Working set selection using second order information for training SVMs, JMLR 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled import known_dual as compiled
from widemargin.compiled.small_dual import violation
from widemargin.data.shard import Shard
from widemargin.kernels import known_values
from widemargin.kernels.known_values import KnownValues
from widemargin.kernels.vectors import padded
from widemargin.pauses import WORK
from widemargin.problems.hinge_l2 import HingeL2, Rounding
from widemargin.problems.protocol import Certificate
from widemargin.rounding import UNIT, gamma
from widemargin.solvers._kernel_dual import DualState, KernelDual, feasible_start
from widemargin.solvers._kernel_ranks import NOTHING, Summed
from widemargin.solvers.protocol import Warm

_AIM = 0.9  # of the tolerance that a sweep aims at
_REDUCTION = 0.25  # of the gap by a sweep
_LEAST_PART = 0.01  # of the objective that w is taken to be
_TIGHTER = 0.5  # of the gap aimed at, where bounds turned out to be farther apart than was estimated
_NOTHING = 1e-9  # of a coefficient: a change that responses need not know of before bounds are confirmed
_ALMOST = 8 * UNIT  # of a bound: a coefficient that is so near is at it
_EDGE = 1e-6  # of a cap: a coefficient so near to a bound does not tell the intercept
_MIN_VIOLATION = 1e-13  # relative to the largest pull: less is rounding
_PRECISION = 1e-3  # of the primal value, relative to the gap


@dataclass
class State(DualState):
    known: KnownValues = field(default=None)  # type: ignore[assignment]
    pace: np.ndarray = field(default_factory=lambda: np.array([compiled.FIRST_SIZE, 0.0, np.inf]))
    space: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))  # for values of working sets
    aim: float = 1.0  # the relative gap that the next sweep aims at
    is_exact: bool = False  # responses are those of exact values
    has_moved: bool = False
    has_finished: bool = False  # the last sweep has gone as far as it can
    n_cut: int = 0  # sweeps that have not reached their aims
    drift: np.ndarray = field(default_factory=lambda: np.empty(0))  # of responses, before
    added: Summed = NOTHING  # to responses since then


@dataclass(frozen=True)
class KnownDual(KernelDual[State]):
    """Block descent on kernel values that are kept; a run aims at a relative gap of ``target``.

    For kernels that are no inner products, without a lower bound, a run ends at a violation of ``target``. With
    ``patience`` it also ends once the predictions of rows of weight 0 have stayed the same for so many checks. After
    ``max_cut`` sweeps that were cut short, of up to a tenth of a second each, a run ends where it is. Sweeps that reach
    ``target`` go on to ``finish`` of it.
    """

    target: float = 1e-3
    patience: int = 0
    max_support: int | None = None
    max_cut: float = np.inf
    finish: float = 1.0

    @property
    def stationary(self) -> float:  # type: ignore[override]
        return self.target

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """``warm`` is a beta for all rows, by their numbers, or what :meth:`warm_state` gives."""
        known = shard.kernel.known_values()
        assert known is not None
        lines = np.zeros((1, shard.kernel.numbers.max() + 1)) if warm is None else np.atleast_2d(warm)
        low, high, beta = feasible_start(problem, shard, comm, lines[0])
        known_beta, response, drift = np.zeros((3, shard.n_rows))
        if len(lines) == 3:
            known_beta, response, drift = lines[:, shard.kernel.numbers]
        change = beta - known_beta
        change[np.abs(change) <= _NOTHING * np.abs(beta)] = 0.0
        response = response + known.times(change, exact=False)
        state = State(problem, shard, comm, shard.kernel, rng, low, high, beta, response, shard.y, shard.weight)
        (lengths, _), mass = state.rows.error_terms(beta), state.rows.mass
        state.known, state.drift = known, drift + 2 * mass(beta - known_beta - change) * lengths
        state.added = Summed(mass(known_beta) + mass(change), 2.0 * shard.n_rows)
        self._scale(state)
        if "space" not in shard.shared:  # for all runs on these rows, one after the other
            shard.shared["space"] = np.empty(min(compiled.FIRST_SIZE, padded(shard.n_rows)) ** 2, np.float32)
        state.space = shard.shared["space"]
        return state

    @staticmethod
    def _scale(state: State) -> None:
        """Multiply beta by the factor within its bounds that raises the dual objective most.

        Coefficients that are at their bounds for a smaller C then arrive at the new ones together, and responses follow
        without a pass over kernel values.
        """
        size, end = np.abs(state.beta), np.maximum(state.high, -state.low)
        if not size.any():
            return
        largest = float(np.min(end[size > 0] / size[size > 0]))
        factor = state.problem.best_factor(float(size.sum()), float(state.beta @ state.response), largest)
        is_at_end = factor * size >= (1 - _ALMOST) * end
        state.beta = np.where(is_at_end, state.y * end, factor * state.beta)
        state.response, state.drift = factor * state.response, factor * state.drift
        state.added = Summed(factor * state.added.mass, state.added.n_terms + _ALMOST / UNIT + 2)

    def sweep(self, state: State) -> State:
        is_positive, last = state.rows.kernel.is_positive, self._last_aim(state)
        aims = np.minimum([max(last, _REDUCTION * self._gap(state)), self.target, last], state.aim)
        pull, before = state.y - state.response, state.beta.copy()
        least = _MIN_VIOLATION * float(np.abs(pull).max()) if is_positive else self.target
        n_moved, moved, is_cut = compiled.descend(
            state.known.near, state.known.diagonal, state.y, pull, state.beta, state.low, state.high,
            state.problem.fit_intercept, aims if is_positive else np.full(3, -np.inf),
            least, WORK, state.pace, state.space, state.known.less,
        )  # fmt: skip
        # Steps change the sum of coefficients by rounding only.
        pull -= state.known.constant(state.beta) - state.known.constant(before)
        state.added, state.has_moved = state.added.plus(Summed(moved, n_moved + 4)), True
        state.n_cut += is_cut
        state.has_finished = is_cut or aims[0] <= last or n_moved == 0
        if np.array_equal(state.beta, before):  # exact responses may show a way on
            self.confirm(state)
        else:
            state.response, state.is_exact = state.y - pull, False
        return state

    def _last_aim(self, state: State) -> float:
        """The relative gap at which a run may end.

        A gap bounds how far w is from the best one, and where C is small, w is a small part of the objective: scores
        of held-out rows are then near those of the optimum only at a smaller gap.
        """
        value = 0.0 if state.best is None else state.best.certificate.primal
        part = float(state.beta @ state.response) / value if value > 0 else 1.0
        return _AIM * self.target * self.finish * min(max(part, _LEAST_PART), 1.0)

    @staticmethod
    def _gap(state: State) -> float:
        return 1.0 if state.best is None else min(state.best.certificate.relative, 1.0)

    def certify(self, state: State) -> Certificate | None:
        """Both objectives by the values in float32: estimates, which :meth:`confirm` replaces.

        None where a run could end, but is to go on: its start is not quite good enough, or it is to ``finish``.
        """
        if not state.is_exact:
            precision, state.best = self._precision(state), None
            self._bounds(state, precision, None)
        assert state.best is not None
        is_done = state.has_moved if self.finish == 1.0 else state.has_finished
        is_enough = is_done or state.best.certificate.relative <= self._last_aim(state)
        return state.best.certificate if is_enough else None

    def stop_reason(self, state: State) -> str | None:
        return super().stop_reason(state) or ("max_iter" if state.n_cut >= self.max_cut else None)

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        if not state.is_exact and self._near_bounds(state).relative > self.target:
            self._refresh(state)
            self._exact_bounds(state)
        assert state.best is not None
        certificate = state.best.certificate
        self._note_confirmed(state, certificate)
        if certificate.relative > self.target:
            state.aim = min(state.aim, max(certificate.relative, self.target)) * _TIGHTER
        state.violation = self._violation(state)
        self._take_middle(state)
        return state.best.certificate

    def _take_middle(self, state: State) -> None:
        """Where many intercepts are best, as without free rows, the one in the middle, which is LIBSVM's choice."""
        best, problem, edge = state.best, state.problem, _EDGE * (state.high - state.low)
        highest, lowest = violation(state.y - state.response, state.beta, state.low + edge, state.high - edge)
        if best is None or not problem.fit_intercept or not -np.inf < highest < lowest < np.inf:
            return
        n_rows, weight, point = len(state.y), state.weight, best.point._replace(intercept=(highest + lowest) / 2)
        rounding = Rounding(self._response_error(state), n_rows, float(weight.sum()))
        value = problem.bound_at(point, state.response, state.y, weight, best.squared_norm, rounding)
        certificate = best.certificate._replace(primal=value)
        if value <= best.point.value * (1 + self._precision(state)) and certificate.relative <= self.target:
            state.best = best._replace(certificate=certificate, point=point._replace(value=value))

    def warm_state(self, state: State) -> np.ndarray:
        """Of all rows by their numbers: coefficients, responses, and how far they may be from those in float32."""
        out = np.zeros((3, state.rows.n_everywhere or int(state.rows.numbers.max()) + 1))
        out[:, state.rows.numbers] = state.beta, state.response, self._drift(state)
        return out

    def _precision(self, state: State) -> float:
        """Of the primal value: a small part of the gap."""
        return max(_PRECISION * min(self.finish * self.target, self._gap(state)), 1e-12)

    def _violation(self, state: State) -> float:
        highest, lowest = violation(state.y - state.response, state.beta, state.low, state.high)
        return float(highest - lowest if state.problem.fit_intercept else max(highest, 0.0) - min(lowest, 0.0))

    def _refresh(self, state: State) -> None:
        state.response, state.best, state.is_exact = state.known.times(state.beta, exact=True), None, True
        state.summed = Summed.of(state.comm, state.rows, state.beta)
        near = self._error(state, known_values.NEAR_ERROR) + self._error(state, known_values.ERROR)
        state.drift, state.added = near, Summed(state.summed.mass, state.summed.n_terms)

    def _drift(self, state: State) -> np.ndarray:
        """By how much responses may differ from sums of values in float32: each term that is added rounds them."""
        lengths, _ = state.rows.error_terms(state.beta)
        return np.asarray(state.drift + gamma(state.added.n_terms + 16) * (1 + state.added.mass * lengths))

    def _near_bounds(self, state: State) -> Certificate:
        """From responses that steps have led to."""
        state.best, state.summed = None, Summed.of(state.comm, state.rows, state.beta)
        return self._bounds(state, self._precision(state), state.summed, self._response_error(state))

    def _exact_bounds(self, state: State) -> Certificate:
        return self._bounds(state, self._precision(state), state.summed, self._response_error(state))

    def _response_error(self, state: State) -> np.ndarray:
        """Of responses as they are: exact, or those that steps have led to."""
        if state.is_exact:
            return self._error(state, known_values.ERROR)
        return self._error(state, known_values.NEAR_ERROR) + self._drift(state)

    @staticmethod
    def _error(state: State, of_kept: float) -> np.ndarray:
        """Of responses that are sums of values that are wrong as computed, and as kept; sums round for every term."""
        (lengths, of_values), summed = state.rows.error_terms(state.beta), state.summed
        of_kept = of_kept * state.known.largest
        of_values = of_values * (1 + of_kept) + of_kept + UNIT
        error = summed.mass * (of_values + gamma(summed.n_terms + 8) * (1 + of_values)) * lengths
        return np.asarray(error + known_values.SMALLEST * np.abs(state.beta).sum())
