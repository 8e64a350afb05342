"""Exact kernel C-SVM on few rows: all kernel values are kept, and a sweep closes the gap.

The problem is in :mod:`widemargin.solvers._kernel_dual`. Where the kernel values between all rows fit in memory, they
are computed once for all classes or pairs of classes of a fit, in float64. A sweep is sequential minimal optimisation
on all rows (:mod:`widemargin.compiled.working_set`), which estimates the gap on its way and ends when that is closed,
or when it is time to look at the clock. Responses are then computed anew, so that rounding errors of steps do not add
up, and bounds allow for what remains.

Pairs of classes among more rows share the values between rows of the same class, in the precision of the rows. Where
that is float32, bounds are confirmed in float64 on the rows that they depend on, and a pair that stays open goes on in
float64.

Bounds of the linear kernel come from the features, and inner products only steer the steps: float32 to begin with, then
float64, each time from exact responses, until the gap is closed.

[1] Fan, Chen, Lin: Working set selection using second order information for training SVMs, JMLR 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled import small_dual as compiled
from widemargin.data.shard import Shard
from widemargin.kernels.vectors import Dual, padded
from widemargin.pauses import BLAS_SPEED, WORK
from widemargin.problems.hinge_l2 import HingeL2, PrimalPoint
from widemargin.problems.protocol import Certificate
from widemargin.solvers._kernel_dual import DualState, KernelDual, feasible_start, may_lose
from widemargin.solvers._kernel_ranks import NOTHING, Summed, expansion, spread
from widemargin.solvers._linear_dual import Best, LinearDualSolver, Rows
from widemargin.solvers.protocol import Warm

MAX_ROWS = 2000
_WORK_PER_STEP = 4  # multiplications for each row
_AIM = 0.9  # of the tolerance that a sweep aims at
_PRECISION = 1e-3  # of the primal value, relative to the gap
# Where features of rows are given, Newton steps are faster than so many steps on pairs of rows.
_LINEAR_STEPS_PER_ROW, _EXTRA_LINEAR_STEPS, _MAX_LINEAR_WORK = 20, 1000, 3e6
_MAX_FLOAT32_LENGTH = 1e15  # of rows whose products are finite in float32
_FIRST_GAP, _REDUCTION = 1e-4, 1e-2  # the least gap that the first sweep aims at, and the part that others leave
_SHARE_OF_CLASSES = 4  # of the memory for kernel values: those between rows of the same class have one in so many
_MIN_WORK_BESIDE = 1e6  # multiplications that are worth another thread
_CLEARANCE = 0.01  # rows that are nearer to the margin are computed in float64, as it may move
_AS_THEY_ARE = slice(None)


def _aim(target: float, certificate: Certificate | None) -> float:
    """The relative gap that the next sweep aims at."""
    if certificate is None:
        return max(_AIM * target, _FIRST_GAP)
    aim = _REDUCTION * certificate.relative
    return aim if certificate.relative <= target else max(_AIM * target, aim)


def _precision(target: float, certificate: Certificate | None) -> float:
    """Of the primal value: a small part of the gap."""
    relative = 1.0 if certificate is None else certificate.relative
    return max(_PRECISION * min(target, relative), 1e-12)


@dataclass
class Known:
    """All kernel values, and the dual of all rows as the compiled loops read it: filled up to the width of ``K``."""

    K: np.ndarray
    diagonal: np.ndarray
    y: np.ndarray
    dual: Dual
    order: np.ndarray | slice  # of the rows in all of these

    @classmethod
    def of(
        cls,
        K: np.ndarray,
        y: np.ndarray,
        beta: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        order: np.ndarray | slice = _AS_THEY_ARE,
    ) -> Known:
        n, width = K.shape
        labels, pull, coef, lowest, highest = np.zeros((5, width))
        labels[:n], coef[:n], lowest[:n], highest[:n] = y[order], beta[order], low[order], high[order]
        diagonal = np.ones(width, K.dtype)
        diagonal[:n] = K.diagonal()
        return cls(K, diagonal, labels, Dual(pull, coef, lowest, highest), order)

    @property
    def is_exact(self) -> bool:
        return bool(self.K.dtype == np.float64)

    def descend(
        self,
        response: np.ndarray,
        *,
        is_tied: bool,
        gap: float,
        least_violation: float = 0.0,
        max_steps: float = np.inf,
    ) -> tuple[np.ndarray, int]:
        """New coefficients, from the responses of those so far, and the steps; the clock allows only so many."""
        n, width = self.K.shape
        np.subtract(self.y[:n], response[self.order], out=self.dual.pull[:n])
        max_steps = int(min(max_steps, max(1.0, WORK / (_WORK_PER_STEP * width))))
        steps = compiled.descend(self.K, self.diagonal, self.y, *self.dual, is_tied, gap, least_violation, max_steps)
        beta = np.empty(n)
        beta[self.order] = self.dual.beta[:n]
        return beta, steps


@dataclass
class State(DualState):
    known: Known | None = None  # from the first sweep on
    is_shared: bool = False  # kernel values within classes are kept for all pairs
    n_support: float = 0.0


@dataclass(frozen=True)
class SmallDual(KernelDual[State]):
    """All kernel values at once; a sweep aims at a relative gap of ``target``.

    For kernels that are no inner products, without a lower bound, a run ends at a violation of ``target``.
    """

    target: float = 1e-3
    max_support: int | None = None
    cache_bytes: int = 200 << 20

    @property
    def stationary(self) -> float:  # type: ignore[override]
        return self.target

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """``warm`` is a beta for all rows, by their numbers."""
        low, high, beta = feasible_start(problem, shard, comm, warm)
        response = np.zeros(shard.n_rows)
        state = State(problem, shard, comm, shard.kernel, rng, low, high, beta, response, shard.y, shard.weight)
        state.is_shared = shard.kernel.keep_classes(MAX_ROWS, self.cache_bytes // _SHARE_OF_CLASSES)
        if state.is_shared:  # what pairs have in common is computed here: sweeps may be beside each other
            shard.kernel.error_terms(beta), shard.kernel.sweep_error(response, *NOTHING)
        if warm is not None:
            state.known = self._known(state)
            self._move(state, beta)
        return state

    def bytes_beside_others(self, state: State) -> int | None:
        n, rows = len(state.beta), state.rows
        work = n**2 * (1 + rows.width / BLAS_SPEED)
        is_worth_it = state.is_shared and state.known is None and _MIN_WORK_BESIDE <= work <= WORK
        return n * padded(n) * np.dtype(rows.dtype).itemsize if is_worth_it else None

    def sweep(self, state: State) -> State:
        known, is_positive = state.known or self._known(state), state.rows.kernel.is_positive
        state.known = known
        beta, _ = known.descend(
            state.response,
            is_tied=state.problem.fit_intercept,
            gap=_aim(self.target, self.certify(state)) if is_positive else 0.0,
            least_violation=0.0 if is_positive else self.target,
        )
        certificate = self._move(state, beta)
        if not known.is_exact and certificate.relative > self.target:
            state.known, state.is_shared = None, False  # from now on in float64
        return state

    @staticmethod
    def _known(state: State) -> Known:
        K, order = state.rows.values(MAX_ROWS, exact=not state.is_shared)
        return Known.of(K, state.y, state.beta, state.low, state.high, order)

    def _move(self, state: State, beta: np.ndarray) -> Certificate:
        """Take new coefficients, with responses and bounds."""
        state.beta = beta
        return self._exact_bounds(state)

    def certify(self, state: State) -> Certificate | None:
        return None if state.best is None else state.best.certificate

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        if state.best is None:  # no sweep was finished, and all coefficients are 0
            self._bounds(state, _precision(self.target, None), NOTHING)
        assert state.best is not None
        self._note_confirmed(state, state.best.certificate)
        return state.best.certificate

    def warm_state(self, state: State) -> np.ndarray:
        return spread(state.comm, state.rows, state.beta)

    def diagnostics(self, state: State) -> dict[str, float]:
        state.violation = self._violation(state)
        return {"violation": state.violation, "n_support": state.n_support, "is_confirmed": 1.0}

    def _violation(self, state: State) -> float:
        highest, lowest = compiled.violation(state.y - state.response, state.beta, state.low, state.high)
        return float(highest - lowest if state.problem.fit_intercept else max(highest, 0.0) - min(lowest, 0.0))

    def _refresh(self, state: State) -> None:
        state.best = None  # responses are computed with bounds

    def _exact_bounds(self, state: State) -> Certificate:
        known = state.known = state.known or self._known(state)
        if not known.is_exact:
            return self._confirmed_bounds(state, known)
        problem, best, beta, order = state.problem, state.best, state.beta, known.order
        lengths, of_values = state.rows.error_terms(beta)
        of_values = of_values[order] if isinstance(of_values, np.ndarray) else np.full(len(beta), of_values)
        response = np.empty(len(beta))
        value, scale, intercept, squared_norm, norm_error, dual, state.n_support = compiled.bounds(
            known.K, beta[order], state.y[order], state.weight[order], lengths[order], of_values, problem.C,
            problem.fit_intercept, 0.0 if best is None else best.point.intercept,
            _precision(self.target, self.certify(state)), response,
        )  # fmt: skip
        state.response[order] = response
        if not state.rows.kernel.is_positive:
            dual = -np.inf  # without an inner product there is no lower bound
        state.is_confirmed, state.allowance = True, norm_error * (1 + scale)
        return self._note_bounds(state, PrimalPoint(value, scale, intercept), squared_norm, dual)

    def _confirmed_bounds(self, state: State, known: Known) -> Certificate:
        """Bounds that allow for rounding, with responses in float64 of the rows that they depend on.

        These are rows with a coefficient, and rows that may have a loss. The others are farther outside the margin
        than their responses can be wrong.
        """
        rows, y, order = state.rows, state.y, known.order
        response, reach = np.empty((2, len(y)))
        compiled.near_responses(known.K, state.beta[order], response, reach)
        state.response[order], sizes = response, np.empty(len(y))
        sizes[order] = reach
        summed, precision = Summed.of(state.comm, rows, state.beta), _precision(self.target, self.certify(state))
        error, exact_error = rows.sweep_error(sizes, *summed), rows.score_error(*summed, state.beta)
        before, state.best = state.best, None
        self._bounds(state, precision, None)  # estimates, for a primal point
        assert state.best is not None
        wanted = (state.beta != 0) | may_lose(state.response, error, y, state.best.point, _CLEARANCE)
        points, coef = expansion(state.comm, rows, state.beta)
        state.best, state.n_support, is_exact = before, float(len(points)), np.zeros(len(y), dtype=bool)
        while True:
            where = np.flatnonzero(wanted)
            state.response[where] = rows.only(where).times(points, coef, exact=True)
            error[where], is_exact[where] = exact_error[where], True
            certificate = self._bounds(state, precision, summed, error)
            assert state.best is not None
            wanted = ~is_exact & may_lose(state.response, error, y, state.best.point, 0.0)
            if not wanted.any():
                return certificate


class LinearState(NamedTuple):
    rows: Rows
    known: Known | None  # from the first sweep on
    signed: np.ndarray  # y_i alpha_i
    response: np.ndarray
    best: Best
    allowance: float = 0.0
    is_certified: bool = False

    @property
    def alpha(self) -> np.ndarray:
        return np.abs(self.signed)


@dataclass(frozen=True)
class SmallLinearDual(LinearDualSolver[LinearState]):
    """The same for the linear kernel, whose model has coefficients of features, and bounds of its own."""

    target: float = 1e-3

    def start(
        self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None
    ) -> LinearState:
        """A direction to start with says nothing about alphas, and is not used."""
        rows = Rows.of(problem, shard, comm, rng)
        signed, response = np.zeros((2, shard.n_rows))
        return LinearState(rows, None, signed, response, Best(np.zeros(shard.n_features), 0.0))

    def sweep(self, state: LinearState) -> LinearState:
        """Steps from exact responses, again and again while that helps.

        Products steer the steps and enter no bound: those in float32 are exact enough to begin with.
        """
        is_short = float(state.rows.lengths.max(initial=0.0)) <= _MAX_FLOAT32_LENGTH
        known, before = state.known or self._known(state, np.float32 if is_short else np.float64), np.inf
        n = state.rows.shard.n_rows
        left = min(_LINEAR_STEPS_PER_ROW * n + _EXTRA_LINEAR_STEPS, _MAX_LINEAR_WORK / n)
        while True:
            state, steps = self._descended(state, known, left)
            relative, left = state.best.certificate.relative, left - steps
            if relative <= self.target or left < 1 or (known.is_exact and relative > before / 2):
                return state
            known, before = known if known.is_exact else self._known(state, np.float64), relative

    @staticmethod
    def _known(state: LinearState, dtype: Any) -> Known:
        rows = state.rows
        low, high, _ = feasible_start(rows.problem, rows.shard, rows.comm, None)
        K, order = _products(rows.shard, dtype)
        return Known.of(K, rows.shard.y, state.signed, low, high, order)

    def _descended(self, state: LinearState, known: Known, max_steps: float) -> tuple[LinearState, int]:
        """The state after steps with these products, with its bounds, and the number of steps."""
        rows, problem, shard = state.rows, state.rows.problem, state.rows.shard
        signed, steps = known.descend(
            state.response,
            is_tied=problem.fit_intercept,
            gap=_aim(self.target, self.certify(state)),
            max_steps=max_steps,
        )
        z = shard.combine(signed)
        scores = shard.scores(z)
        primal, scale, intercept, dual, allowance = compiled.linear_bounds(
            scores, z, signed, shard.y, shard.weight, rows.lengths, rows.of_score, rows.of_sum, problem.C,
            problem.fit_intercept, _precision(self.target, self.certify(state)),
        )  # fmt: skip
        best = state.best.or_better(scale * z, intercept, primal, dual)
        return LinearState(rows, known, signed, scores, best, allowance, is_certified=True), steps


def _products(shard: Shard, dtype: Any) -> tuple[np.ndarray, np.ndarray | slice]:
    """Inner products of all rows, filled up with zeros, and the order of the rows; problems on few rows share them."""
    whole, places = shard.whole or (shard, None)
    if whole.n_rows > MAX_ROWS:
        whole, places = shard, None
    name = f"products in {dtype.__name__}"
    if places is None:
        if name not in whole.shared:
            whole.shared[name] = _products_in_order(whole, np.arange(whole.n_rows), dtype)
        return whole.shared[name], _AS_THEY_ARE
    name += " by label"  # which keeps those of a pair of classes together
    if name not in whole.shared:
        order = np.argsort(whole.y, kind="stable")
        whole.shared[name] = _products_in_order(whole, order, dtype), np.argsort(order)
    products, place_of = whole.shared[name]
    among, out = place_of[places], np.empty((shard.n_rows, padded(shard.n_rows)), dtype)
    order = np.argsort(among)
    compiled.sub_block(products, among[order], out)
    return out, order


def _products_in_order(shard: Shard, order: np.ndarray, dtype: Any) -> np.ndarray:
    n, width = shard.n_rows, padded(shard.n_rows)
    if shard.is_sparse:
        X = sp.vstack(shard.blocks, format="csr", dtype=dtype)[order]
        K = np.zeros((n, width), dtype)
        K[:, :n] = (X @ X.T).toarray()
        return K
    filled = np.zeros((width, shard.n_features), dtype)
    filled[:n] = (shard.blocks[0] if len(shard.blocks) == 1 else np.concatenate(shard.blocks))[order]
    return filled[:n] @ filled.T
