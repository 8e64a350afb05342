"""What the two exact solvers of the kernel C-SVM share: a feasible start, bounds, the stop rule, the model.

    minimise over beta   0.5 beta' K beta - y' beta,   0 <= y_i beta_i <= C m_i,   sum_i beta_i = 0 with an intercept,

where beta_i = y_i alpha_i. Every row has a response f_i = (K beta)_i and a pull y_i - f_i; beta is optimal when no row
that may rise pulls more than one that may fall.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.compiled.hinge import hinge_sums
from widemargin.data.shard import Shard
from widemargin.kernels.protocol import KernelRows, Vector
from widemargin.pauses import TimeIsUp
from widemargin.problems.hinge_l2 import HingeL2, PrimalPoint
from widemargin.problems.protocol import Certificate
from widemargin.rounding import UNIT
from widemargin.solvers._kernel_ranks import (
    NOTHING,
    ResponseSums,
    Summed,
    balanced,
    expansion,
    largest_only,
    reduced,
    row_lengths,
)
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import Solver, Warm

_STALL_RATIO, _MAX_STALLED_CHECKS = 0.9, 5
_MAX_SETTLED_GAP = 0.05  # relative: predictions of models that are farther from the optimum say nothing about it


class Best(NamedTuple):
    """The model with the lowest objective so far, and the certificate."""

    certificate: Certificate
    beta: np.ndarray
    point: PrimalPoint  # scale and intercept
    squared_norm: float  # of beta


@dataclass
class DualState:
    """Where a run stands on one rank; vectors have one entry per row and are on the device of the rows."""

    problem: HingeL2
    shard: Shard
    comm: Communicator
    rows: KernelRows
    rng: np.random.Generator
    low: Vector
    high: Vector
    beta: Vector
    response: Vector
    y: Vector
    weight: Vector
    violation: float = np.inf
    best: Best | None = None
    near: float = 0.0  # the intercept found last, where the next search begins
    confirmed: float = np.inf  # the relative gap confirmed last
    n_stalled: int = 0  # confirmed gaps in a row that were hardly smaller than the one before
    is_crude: bool = False  # the best model has bounds that hold without its responses
    summed: Summed = NOTHING  # what the responses are sums of
    allowance: float = 0.0  # the part of the gap that allows for rounding
    is_confirmed: bool = False  # whether the last bounds allow for it
    predicted: np.ndarray | None = None  # signs of the scores of rows of weight 0, at the last check
    n_unchanged: int = 0  # checks in a row with the same signs

    @property
    def is_settled(self) -> bool:
        """Whether the responses of all rows belong to ``beta``."""
        return True

    def on_host(self, name: str) -> np.ndarray:
        """The vector of this name, copied."""
        return self.rows.host(getattr(self, name))

    def for_sums(self) -> list[Vector]:
        """Beta, responses, labels and weights, where they are added up."""
        return [self.beta, self.response, self.y, self.weight]


S = TypeVar("S", bound=DualState)


def feasible_start(
    problem: HingeL2, shard: Shard, comm: Communicator, warm: Warm
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds of beta, and a beta within them near ``warm``, which has the rows of all ranks by their numbers."""
    ends = shard.y * problem.caps(shard.weight)
    low, high = np.minimum(ends, 0.0), np.maximum(ends, 0.0)
    if warm is None:
        return low, high, np.zeros(shard.n_rows)
    beta = np.clip(warm[shard.kernel.numbers], low, high)
    return low, high, balanced(comm, beta) if problem.fit_intercept else beta


class KernelDual(Solver[S, KernelModel]):
    """Bounds, stop rules and models; a subclass says how beta moves, and how exactly its responses are known."""

    solves: ClassVar = (HingeL2,)
    stationary: float
    max_support: int | None
    patience: int = 0  # checks with the same predictions of rows of weight 0 that end a run; 0: no number does

    @abstractmethod
    def _violation(self, state: S) -> float:
        """The violation of the optimality conditions."""

    @abstractmethod
    def _refresh(self, state: S) -> None:
        """Compute the responses of all rows in float64, and forget the best model, which was measured less exactly."""

    @abstractmethod
    def _exact_bounds(self, state: S) -> Certificate:
        """Bounds from such responses that allow for rounding."""

    def compact(self, state: S) -> Certificate | None:
        if self.max_support is None or state.best is None:
            return None
        rows, dual = state.rows, state.best.certificate.dual
        if state.is_crude:
            state.best = state.best._replace(beta=largest_only(state.comm, state.best.beta, self.max_support))
            return self._crude_bounds(state)
        beta, response = state.on_host("beta"), state.on_host("response")
        small = reduced(state.comm, rows, beta, response, self.max_support, state.rng)
        if small is None:
            return None
        state.beta, point = rows.vector(small), state.best.point
        try:
            self._refresh(state)
            certificate = self._exact_bounds(state)
        except TimeIsUp:
            state.best = None
            certificate = self._crude_bounds(state, point)
        # Coefficients of the smaller model are not feasible and give no lower bound.
        certificate = certificate._replace(dual=dual)
        assert state.best is not None  # both kinds of bounds have set it
        state.best = state.best._replace(certificate=certificate)
        return certificate

    def values_to_confirm(self, state: S) -> float:
        return float(state.shard.n_rows) * len(state.rows.nonzero(state.beta)) * state.comm.size

    def _crude_bounds(self, state: S, guess: PrimalPoint | None = None) -> Certificate:
        """Bounds that need no kernel values between rows, since |k(x, z)| <= ||phi(x)|| ||phi(z)||.

        The model is the best so far as measured in sweeps, or beta as it is with a scale and an intercept that are
        guessed.
        """
        rows, problem, comm = state.rows, state.problem, state.comm
        beta = state.on_host("beta") if state.best is None else state.best.beta
        point = state.best.point if state.best is not None else guess or PrimalPoint(np.inf, 1.0, 0.0)
        kernel = rows.kernel
        lengths = row_lengths(rows)
        size = point.scale * float(comm.allreduce(np.array([np.abs(beta) @ lengths]))[0])
        slack = 1.0 + size * lengths + abs(point.intercept)
        loss = float(comm.allreduce(np.array([state.shard.weight @ slack]))[0])
        primal = problem.primal_value(loss, size**2) * (1 + 1e-9)  # far more than rounding
        if not (kernel.is_positive or kernel.is_bounded):
            primal = float(np.finfo(float).max)  # finite, and no more is known
        dual = 0.0 if kernel.is_positive else -np.inf  # no coefficients at all
        certificate, state.is_crude = Certificate(primal, dual), True
        state.best = Best(certificate, beta, point._replace(value=primal), (size / (point.scale or 1.0)) ** 2)
        return certificate

    def diagnostics(self, state: S) -> dict[str, float]:
        """The violation of the optimality conditions, LIBSVM's stop rule, and the number of support vectors.

        ``is_confirmed`` is 0 where bounds are estimates, from responses that are not in float64.
        """
        n_own = float(len(state.rows.nonzero(state.for_sums()[0])))
        support = float(state.comm.allreduce(np.array([n_own]))[0])
        state.violation = self._violation(state)
        return {"violation": state.violation, "n_support": support, "is_confirmed": float(state.is_confirmed)}

    def stop_reason(self, state: S) -> str | None:
        """``"precision"`` if rounding keeps the gap open; the optimality conditions where there is no lower bound.

        ``"settled"`` if predictions of rows of weight 0 stay the same.
        """
        if state.n_stalled >= _MAX_STALLED_CHECKS:
            return "precision"
        if not state.rows.kernel.is_positive and state.is_settled and self._violation(state) <= self.stationary:
            return "stationary"
        return "settled" if self.patience and self._predicts_the_same(state) else None

    def _predicts_the_same(self, state: S) -> bool:
        """Whether predictions of rows of weight 0 have been the same for ``patience`` checks."""
        scores = self.scores(state)
        if scores is None or state.best is None or state.best.certificate.relative > _MAX_SETTLED_GAP:
            return False
        predicted = scores[state.on_host("weight") == 0] > 0
        is_same = state.predicted is not None and len(predicted) > 0 and np.array_equal(predicted, state.predicted)
        state.predicted, state.n_unchanged = predicted, state.n_unchanged + 1 if is_same else 0
        return state.n_unchanged >= self.patience

    def allowance(self, state: S) -> float:
        return state.allowance

    def extract(self, state: S) -> KernelModel:
        assert state.best is not None
        point, problem = state.best.point, state.problem
        points, coef = expansion(state.comm, state.rows, state.best.beta)
        weight = float(state.comm.allreduce(np.array([state.shard.weight.sum()]))[0])
        slack = problem.implied_slack(point.value, point.scale * np.sqrt(state.best.squared_norm), weight)
        report = {"C": problem.C, "slack": float(slack), "violation": state.violation}
        return KernelModel(state.rows.kernel, points, point.scale * coef, point.intercept, report)

    def scores(self, state: S) -> np.ndarray | None:
        if state.best is None or not state.is_settled:
            return None
        if not np.array_equal(state.best.beta, state.on_host("beta")):
            return None  # the responses belong to another beta
        return np.asarray(state.best.point.scale * state.on_host("response") + state.best.point.intercept)

    @staticmethod
    def _bounds(state: S, precision: float, summed: Summed | None, error: Vector | None = None) -> Certificate:
        """The primal objective at the best point along w, the dual objective of beta; each the best so far.

        ``precision`` is that of the primal value, relative to it. Both bounds allow for the rounding of responses that
        are sums of ``summed``, or wrong by ``error`` where that is given; without ``summed`` they are estimates.
        """
        problem, rows, comm = state.problem, state.rows, state.comm
        beta, response, y, weight = state.for_sums()
        sums = ResponseSums.of(comm, rows, beta, response, weight, summed, error)
        point = problem.primal_point(
            response, y, weight, sums.squared_norm, comm.allreduce, near=state.near, precision=precision,
            sums=rows.hinge_sums if response is state.response else hinge_sums,
            rounding=None if summed is None else sums.rounding,
        )  # fmt: skip
        state.near = point.intercept
        # Without an inner product there is no lower bound.
        mass = 0.0 if summed is None else summed.mass
        dual = -np.inf
        if rows.kernel.is_positive:
            dual = problem.dual_value(*sums.feasible(problem.fit_intercept, mass))
        # C times the errors of the rows that have a loss, which are about those with a coefficient.
        state.is_confirmed = summed is not None
        state.allowance = sums.norm_error * (1 + point.scale)
        return KernelDual._note_bounds(state, point, sums.squared_norm, dual)

    @staticmethod
    def _note_bounds(state: S, point: PrimalPoint, squared_norm: float, dual: float) -> Certificate:
        """The certificate with these bounds, if they are better than those so far."""
        best, dual = state.best, float(dual)
        if best is not None:
            dual = max(dual, best.certificate.dual)
        if best is None or point.value <= best.certificate.primal:
            best = Best(Certificate(float(point.value), dual), state.on_host("beta"), point, squared_norm)
        state.best = best._replace(certificate=best.certificate._replace(dual=dual))
        return state.best.certificate

    @staticmethod
    def _note_confirmed(state: S, certificate: Certificate) -> None:
        is_better = certificate.relative <= _STALL_RATIO * state.confirmed
        state.n_stalled = 0 if is_better else state.n_stalled + 1
        state.confirmed = certificate.relative


def may_lose(
    response: np.ndarray, error: np.ndarray, y: np.ndarray, point: PrimalPoint, clearance: float
) -> np.ndarray:
    """Which rows are not proven to be outside the margin, by ``clearance`` or more, at a primal point."""
    least = y * response - error
    return ~(point.scale * least + y * point.intercept >= 1 + clearance + 8 * UNIT * (2 + abs(point.intercept)))
