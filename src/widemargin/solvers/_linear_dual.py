"""What the solvers of the linear C-SVM share: one rank's rows, and the best model so far between its two bounds.

Both keep alphas within [0, cap_i] and z = sum_i alpha_i y_i x_i (see :mod:`widemargin.problems.hinge_l2`). Any w with
any intercept bounds the optimum from above, the alphas from below once the sums of both classes are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from widemargin.comm._protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems._protocol import Certificate
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers._protocol import Separator


@dataclass(frozen=True, eq=False)
class Rows:
    """One rank's part of the problem."""

    problem: HingeL2
    shard: Shard
    comm: Communicator
    upper: np.ndarray  # the cap of each alpha
    totals: np.ndarray  # weight of the positive and of the negative class, over all ranks
    rng: np.random.Generator  # this rank's own

    @classmethod
    def of(cls, problem: HingeL2, shard: Shard, comm: Communicator, rng: np.random.Generator) -> Rows:
        """Agree with all ranks on the totals; fails on every rank alike if the problem has no answer."""
        totals = comm.allreduce(np.bincount(shard.y < 0, shard.weight, 2))
        problem.check(*totals)
        own = np.random.default_rng([comm.rank, int(rng.integers(2**63))])
        return cls(problem, shard, comm, problem.caps(shard.weight), totals, own)

    def combine(self, signed: np.ndarray) -> np.ndarray:
        """``sum_i signed_i x_i`` over all ranks."""
        return self.comm.allreduce(self.shard.combine(signed))

    def dual_value(self, signed: np.ndarray, z: np.ndarray, positive: float, negative: float) -> float:
        """The dual objective of alphas, given as ``y_i alpha_i``, once scaled to be feasible and then for the best.

        ``positive`` and ``negative`` are their sums over each class, over all ranks like z.
        """
        of_positive, of_negative = self.problem.balance_factors(positive, negative)
        if of_positive != of_negative:
            part = self.combine(np.maximum(signed, 0.0))
            z = of_positive * part + of_negative * (z - part)
        total, squared = of_positive * positive + of_negative * negative, float(z @ z)
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


class LinearDualSolver:
    """The verbs that are the same for all; a state has ``rows``, ``alpha``, ``best`` and ``is_certified``."""

    def certify(self, state: Any) -> Certificate | None:
        return state.best.certificate if state.is_certified else None

    def verdict(self, state: Any) -> str | None:
        return None

    def direction(self, state: Any) -> np.ndarray:
        return state.best.coef

    def extract(self, state: Any) -> Separator:
        n_support = state.rows.comm.allreduce(np.array([float(np.count_nonzero(state.alpha))]))[0]
        return Separator(state.best.coef, state.best.intercept, {"n_support": int(n_support)})
