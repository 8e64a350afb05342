"""Exact kernel C-SVM on few rows: all kernel values are kept, and a sweep closes the gap.

The problem is in :mod:`widemargin.solvers._kernel_dual`. Where the kernel values between all rows fit in memory, they
are computed once for all classes or pairs of classes of a fit, in float64. A sweep is sequential minimal optimisation
on all rows (:mod:`widemargin.compiled.working_set`), which estimates the gap on its way and ends when that is closed,
or when it is time to look at the clock. Responses are then computed anew, so that rounding errors of steps do not add
up, and bounds allow for what remains.

[1] Fan, Chen, Lin: Working set selection using second order information for training SVMs, JMLR 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled import small_dual as compiled
from widemargin.data.shard import Shard
from widemargin.kernels.vectors import Dual, padded
from widemargin.pauses import WORK
from widemargin.problems.hinge_l2 import HingeL2, PrimalPoint
from widemargin.problems.protocol import Certificate
from widemargin.solvers._kernel_dual import DualState, KernelDual, feasible_start
from widemargin.solvers._kernel_ranks import NOTHING, spread
from widemargin.solvers._linear_dual import Best, LinearDualSolver, Rows
from widemargin.solvers.protocol import Warm

MAX_ROWS = 2000
_WORK_PER_STEP = 4  # multiplications for each row
_AIM = 0.9  # of the tolerance that a sweep aims at
_PRECISION = 1e-3  # of the primal value, relative to the gap
# Where features of rows are given, Newton steps are faster than so many steps on pairs of rows.
_LINEAR_STEPS_PER_ROW, _EXTRA_LINEAR_STEPS, _MAX_LINEAR_WORK = 20, 1000, 3e6
_FIRST_GAP, _REDUCTION = 1e-4, 1e-2  # the least gap that the first sweep aims at, and the part that others leave


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

    @classmethod
    def of(cls, K: np.ndarray, y: np.ndarray, beta: np.ndarray, low: np.ndarray, high: np.ndarray) -> Known:
        n, width = K.shape
        labels, pull, coef, lowest, highest = np.zeros((5, width))
        labels[:n], coef[:n], lowest[:n], highest[:n] = y, beta, low, high
        diagonal = np.ones(width)
        diagonal[:n] = np.diagonal(K)
        return cls(K, diagonal, labels, Dual(pull, coef, lowest, highest))

    def descend(
        self,
        response: np.ndarray,
        *,
        is_tied: bool,
        gap: float,
        least_violation: float = 0.0,
        max_steps: float = np.inf,
    ) -> np.ndarray:
        """New coefficients, from the responses of those so far; ends after as many steps as the clock allows."""
        n, width = self.K.shape
        np.subtract(self.y[:n], response, out=self.dual.pull[:n])
        max_steps = int(min(max_steps, max(1.0, WORK / (_WORK_PER_STEP * width))))
        compiled.descend(self.K, self.diagonal, self.y, *self.dual, is_tied, gap, least_violation, max_steps)
        return self.dual.beta[:n].copy()


@dataclass
class State(DualState):
    known: Known | None = None  # from the first sweep on
    n_support: float = 0.0


@dataclass(frozen=True)
class SmallDual(KernelDual[State]):
    """All kernel values at once; a sweep aims at a relative gap of ``target``.

    For kernels that are no inner products, without a lower bound, a run ends at a violation of ``target``.
    """

    target: float = 1e-3
    max_support: int | None = None

    @property
    def stationary(self) -> float:  # type: ignore[override]
        return self.target

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """``warm`` is a beta for all rows, by their numbers."""
        low, high, beta = feasible_start(problem, shard, comm, warm)
        response = np.zeros(shard.n_rows)
        state = State(problem, shard, comm, shard.kernel, rng, low, high, beta, response, shard.y, shard.weight)
        if warm is not None:
            state.known = self._known(state)
            self._move(state, beta)
        return state

    def sweep(self, state: State) -> State:
        known, is_positive = state.known or self._known(state), state.rows.kernel.is_positive
        state.known = known
        beta = known.descend(
            state.response,
            is_tied=state.problem.fit_intercept,
            gap=_aim(self.target, self.certify(state)) if is_positive else 0.0,
            least_violation=0.0 if is_positive else self.target,
        )
        self._move(state, beta)
        return state

    @staticmethod
    def _known(state: State) -> Known:
        return Known.of(state.rows.values(MAX_ROWS), state.y, state.beta, state.low, state.high)

    def _move(self, state: State, beta: np.ndarray) -> None:
        """Take new coefficients, with responses and bounds."""
        state.beta = beta
        self._exact_bounds(state)

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
        known, problem, best, beta = state.known or self._known(state), state.problem, state.best, state.beta
        state.known = known
        lengths, of_values = state.rows.error_terms(beta)
        of_values = of_values if isinstance(of_values, np.ndarray) else np.full(len(beta), of_values)
        value, scale, intercept, squared_norm, norm_error, dual, state.n_support = compiled.bounds(
            known.K, beta, state.y, state.weight, lengths, of_values, problem.C, problem.fit_intercept,
            0.0 if best is None else best.point.intercept, _precision(self.target, self.certify(state)), state.response,
        )  # fmt: skip
        if not state.rows.kernel.is_positive:
            dual = -np.inf  # without an inner product there is no lower bound
        state.is_confirmed, state.allowance = True, norm_error * (1 + scale)
        return self._note_bounds(state, PrimalPoint(value, scale, intercept), squared_norm, dual)


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
        rows, best, known = state.rows, state.best, state.known
        problem, shard = rows.problem, rows.shard
        if known is None:
            low, high, signed = feasible_start(problem, shard, rows.comm, None)
            known = Known.of(_products(shard), shard.y, signed, low, high)
        n = shard.n_rows
        max_steps = min(_LINEAR_STEPS_PER_ROW * n + _EXTRA_LINEAR_STEPS, _MAX_LINEAR_WORK / n)
        signed = known.descend(
            state.response,
            is_tied=problem.fit_intercept,
            gap=_aim(self.target, self.certify(state)),
            max_steps=max_steps,
        )
        of_classes, alpha = rows.combine(signed), np.abs(signed)
        z = of_classes.sum(axis=0)
        scores = shard.scores(z)
        point = problem.primal_point(
            scores, shard.y, shard.weight, rows.squared_norm(z),
            precision=_precision(self.target, self.certify(state)), rounding=rows.rounding(rows.score_error(z)),
        )  # fmt: skip
        positive = signed > 0
        masses = float(signed[positive].sum()), float(-signed[~positive].sum()), float(alpha @ rows.lengths)
        best = best.or_better(point.scale * z, point.intercept, point.value, rows.dual_value(of_classes, *masses))
        allowance = rows.allowance(point.scale * z, z, masses[-1])
        return LinearState(rows, known, signed, scores, best, allowance, is_certified=True)


def _products(shard: Shard) -> np.ndarray:
    """Inner products of all rows, filled up with zeros; problems on few rows share them."""
    whole, places = shard.whole or (shard, None)
    if whole.n_rows > MAX_ROWS:
        whole, places = shard, None
    if places is None:
        if "products" not in whole.shared:
            whole.shared["products"] = _products_in_order(whole, np.arange(whole.n_rows))
        products: np.ndarray = whole.shared["products"]
        return products
    if "products by label" not in whole.shared:  # which keeps those of a pair of classes together
        order = np.argsort(whole.y, kind="stable")
        whole.shared["products by label"] = _products_in_order(whole, order), np.argsort(order)
    products, place_of = whole.shared["products by label"]
    out = np.empty((shard.n_rows, padded(shard.n_rows)))
    compiled.sub_block(products, place_of[places], out)
    return out


def _products_in_order(shard: Shard, order: np.ndarray) -> np.ndarray:
    n, width = shard.n_rows, padded(shard.n_rows)
    if shard.is_sparse:
        X = sp.vstack(shard.blocks, format="csr", dtype=np.float64)[order]
        K = np.zeros((n, width))
        K[:, :n] = (X @ X.T).toarray()
        return K
    filled = np.zeros((width, shard.n_features))
    filled[:n] = (shard.blocks[0] if len(shard.blocks) == 1 else np.concatenate(shard.blocks))[order]
    return filled[:n] @ filled.T
