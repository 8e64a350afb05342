"""What the solvers of the linear C-SVM share: one rank's rows, and the best model so far between its two bounds.

Both keep alphas within [0, cap_i] and z = sum_i alpha_i y_i x_i (see :mod:`widemargin.problems.hinge_l2`). Any w with
any intercept bounds the optimum from above, the alphas from below once the sums of both classes are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.protocol import Certificate
from widemargin.solvers import _rounding
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Solver


@dataclass(frozen=True, eq=False)
class Rows:
    """One rank's part of the problem."""

    problem: HingeL2
    shard: Shard
    comm: Communicator
    upper: np.ndarray  # the cap of each alpha
    totals: np.ndarray  # weight of the positive and of the negative class, over all ranks
    lengths: np.ndarray  # ||x_i||
    of_score: float  # what a score may be wrong by, as a part of ||x|| ||w||
    of_sum: float  # what z may be wrong by, as a part of sum_i alpha_i ||x_i||
    rng: np.random.Generator  # this rank's own

    @classmethod
    def of(cls, problem: HingeL2, shard: Shard, comm: Communicator, rng: np.random.Generator) -> Rows:
        """Agree with all ranks on the totals; fails on every rank alike if the problem has no answer."""
        lengths, n_long = _rounding.lengths_of(shard)
        counts = [n_long, float(shard.n_rows)]
        sums = comm.allreduce(np.append(np.bincount(shard.y < 0, shard.weight, 2), counts))
        totals = sums[:2]
        problem.check(*totals)
        _rounding.refuse_long_rows(sums[2])
        own = np.random.default_rng([comm.rank, int(rng.integers(2**63))])
        roundings = _rounding.of_score(shard), _rounding.of_combination(float(sums[3]))
        return cls(problem, shard, comm, problem.caps(shard.weight), totals, lengths, *roundings, own)

    def room(self, w: np.ndarray) -> np.ndarray:
        """What the slack of every row may be wrong by, from scores computed once."""
        return (self.of_score * float(np.linalg.norm(w))) * self.lengths + 4 * _rounding.UNIT

    def is_coarse(self, certificate: Certificate) -> bool:
        """Whether the rounding of slacks, were it the same in all rows, is no small part of the gap or the optimum."""
        rounding = self.problem.C * float(self.totals.sum()) * self.of_score
        return rounding > _rounding.SMALL_PART * min(certificate.gap, certificate.dual)

    def combine(self, signed: np.ndarray) -> np.ndarray:
        """``sum_i signed_i x_i`` over all ranks."""
        return self.comm.allreduce(self.shard.combine(signed))

    def dual_value(self, signed: np.ndarray, z: np.ndarray, positive: float, negative: float, size: float) -> float:
        """The dual objective of alphas, given as ``y_i alpha_i``, once scaled to be feasible and then for the best.

        ``positive`` and ``negative`` are their sums over each class, ``size`` that of ``alpha_i ||x_i||``, over all
        ranks like z. z is taken to be longer by what rounding may have done to it, and to the balance of the classes.
        """
        of_positive, of_negative = self.problem.balance_factors(positive, negative)
        if of_positive != of_negative:
            part = self.combine(np.maximum(signed, 0.0))
            z = of_positive * part + of_negative * (z - part)
        total = of_positive * positive + of_negative * negative
        squared = (float(np.linalg.norm(z)) + self.of_sum * size) ** 2
        factor = self.problem.best_factor(total, squared)
        return self.problem.dual_value(factor * total, factor**2 * squared)


class Best(NamedTuple):
    """The model with the lowest objective so far, and the certificate."""

    coef: np.ndarray
    intercept: float
    certificate: Certificate = Certificate(np.inf, -np.inf)

    def or_better(self, w: np.ndarray, intercept: float, primal: float, dual: float) -> Best:
        """With another model and another lower bound, each taken if it is better."""
        old = self.certificate
        certificate = Certificate(min(old.primal, primal), max(old.dual, dual))
        return Best(w, intercept, certificate) if primal < old.primal else self._replace(certificate=certificate)


class LinearDualSolver(Solver[Any, Any]):
    """The verbs that are the same for all; a state has ``rows``, ``alpha``, ``best`` and ``is_certified``."""

    solves: ClassVar = (HingeL2,)

    def certify(self, state: Any) -> Certificate | None:
        return state.best.certificate if state.is_certified else None

    def stop_reason(self, state: Any) -> str | None:
        return None

    def warm_state(self, state: Any) -> np.ndarray:
        return state.best.coef

    def extract(self, state: Any) -> Separator:
        n_support = state.rows.comm.allreduce(np.array([float(np.count_nonzero(state.alpha))]))[0]
        return Separator(state.best.coef, state.best.intercept, {"n_support": int(n_support)})
