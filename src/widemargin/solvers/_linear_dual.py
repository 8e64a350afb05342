"""The linear C-SVM (:mod:`widemargin.problems.hinge_l2`): what its two solvers share.

Both keep alphas within [0, cap_i] and z = sum_i alpha_i y_i x_i. Any w with any intercept bounds the optimum from
above; the alphas bound it from below once the sums of both classes are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.data.pieces import elementwise, sum_of_pieces, sums_by_sign
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l2 import HingeL2, Rounding
from widemargin.problems.protocol import Certificate
from widemargin.rounding import PAIRWISE, UNIT, gamma
from widemargin.solvers import _rounding
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Solver


@dataclass(frozen=True, eq=False)
class Rows:
    problem: HingeL2
    shard: Shard
    comm: Communicator
    upper: np.ndarray  # the cap of each alpha
    totals: np.ndarray  # weight of the positive and of the negative class, over all ranks
    lengths: np.ndarray  # ||x_i||
    n_rows: float  # of all ranks
    of_score: float  # rounding error of a score, relative to ||x|| ||w||
    of_sum: float  # rounding error of z, relative to sum_i alpha_i ||x_i||
    rng_of_all: np.random.Generator  # in the same state on all ranks
    n_entries: float  # of all ranks: the work of a pass, at most

    @classmethod
    def of(cls, problem: HingeL2, shard: Shard, comm: Communicator, rng: np.random.Generator) -> Rows:
        """Sum the totals over all ranks; raises ValueError on every rank if the problem has no solution."""
        lengths, n_long = _rounding.lengths_of(shard)
        local = [n_long, float(shard.n_rows), shard.combine_depth + 1.0, float(shard.n_entries)]
        sums = comm.allreduce(np.append(sums_by_sign(shard.y, shard.weight), local))
        problem.check(*sums[:2])
        _rounding.refuse_long_rows(sums[2])
        upper, n_rows, depth = problem.caps(shard.weight), float(sums[3]), float(sums[4])
        roundings = _rounding.of_score(shard), _rounding.of_combination(depth)
        return cls(problem, shard, comm, upper, sums[:2], lengths, n_rows, *roundings, rng, float(sums[5]))

    @cached_property
    def rng(self) -> np.random.Generator:
        """This rank's own generator."""
        return np.random.default_rng([self.comm.rank, int(self.rng_of_all.integers(2**63))])

    def rounding(self, score_error: np.ndarray) -> Rounding:
        return Rounding(score_error, self.n_rows, float(self.totals.sum()))

    def score_error(self, w: np.ndarray) -> np.ndarray:
        """A bound on the rounding error of every score, computed once."""
        return (self.of_score * float(np.linalg.norm(w))) * self.lengths

    def squared_norm(self, w: np.ndarray) -> float:
        """An upper bound on ``||w||^2``."""
        return float(w @ w) * (1 + gamma(len(w) + 2))

    def is_coarse(self, certificate: Certificate) -> bool:
        """Whether rounding errors of slacks, all of one sign, would be more than a small part of gap or optimum."""
        rounding = self.problem.C * float(self.totals.sum()) * self.of_score
        return rounding > _rounding.SMALL_PART * min(certificate.gap, certificate.dual)

    def allowance(self, w: np.ndarray, z: np.ndarray, size: float) -> float:
        """About the part of the gap that allows for rounding: alphas are caps where rows have a loss."""
        of_dual = (self.of_sum + gamma(2 * PAIRWISE)) * float(np.linalg.norm(z))
        return (self.of_score * float(np.linalg.norm(w)) + of_dual) * size

    def combine(self, signed: np.ndarray) -> np.ndarray:
        """``sum_i alpha_i y_i x_i`` over each class, from ``y_i alpha_i``; the sum of both is z."""
        return self.comm.allreduce(self.shard.combine_signs(signed).ravel()).reshape(2, -1)

    def dual_value(self, of_classes: np.ndarray, positive: float, negative: float, size: float) -> float:
        """The dual objective of alphas, scaled to be feasible and then by the best factor.

        ``of_classes`` are their sums of rows (:meth:`combine`), ``positive`` and ``negative`` those of their values,
        ``size`` that of ``alpha_i ||x_i||``, over all ranks. The sums of both classes, added up by numpy.sum, are equal
        but for rounding: scaling one class by that little makes them so. It costs as much of the total and moves z by
        as much of ``size``.
        """
        of_positive, of_negative = self.problem.balance_factors(positive, negative)
        z = of_positive * of_classes[0] + of_negative * of_classes[1]
        of_balance = gamma(2 * (PAIRWISE + self.comm.size))
        total = (of_positive * positive + of_negative * negative) * (1 - 2 * of_balance)
        squared = (math.sqrt(self.squared_norm(z)) + (self.of_sum + of_balance) * size) ** 2 * (1 + 8 * UNIT)
        factor = self.problem.best_factor(total, squared)
        return self.problem.dual_value(factor * total, factor**2 * squared * (1 + 4 * UNIT)) - 2 * UNIT * total


class Best(NamedTuple):
    """The model with the lowest objective so far, and the certificate."""

    coef: np.ndarray
    intercept: float
    certificate: Certificate = Certificate()

    def or_better(self, w: np.ndarray, intercept: float, primal: float, dual: float) -> Best:
        certificate = self.certificate.tightened(primal, dual)
        is_better = primal < self.certificate.primal
        return Best(w, intercept, certificate) if is_better else self._replace(certificate=certificate)


class LinearDualState(Protocol):
    @property
    def rows(self) -> Rows: ...
    @property
    def alpha(self) -> np.ndarray: ...
    @property
    def best(self) -> Best: ...
    @property
    def is_certified(self) -> bool: ...
    @property
    def allowance(self) -> float: ...


S = TypeVar("S", bound=LinearDualState)


class LinearDualSolver(Solver[S, Separator]):
    solves = (HingeL2,)

    def certify(self, state: S) -> Certificate | None:
        return state.best.certificate if state.is_certified else None

    def confirm(self, state: S, latest: Certificate | None) -> Certificate:
        """If no pass was finished, the model is 0 and every row has a slack of 1."""
        rows = state.rows
        loss = float(rows.totals.sum()) * (1 + 1e-9)  # far more than rounding
        return latest or Certificate(rows.problem.primal_value(loss, 0.0), 0.0)

    def allowance(self, state: S) -> float:
        return state.allowance

    def warm_state(self, state: S) -> np.ndarray:
        return state.best.coef

    def coefficients(self, state: S, model: Separator) -> np.ndarray:
        return elementwise(np.multiply, state.rows.shard.y, state.alpha)

    def extract(self, state: S) -> Separator:
        alpha = state.alpha
        local = sum_of_pieces(lambda rows: np.array([float(np.count_nonzero(alpha[rows]))]), len(alpha))
        n_support = state.rows.comm.allreduce(local)[0]
        return Separator(state.best.coef, state.best.intercept, {"n_support": int(n_support)})
