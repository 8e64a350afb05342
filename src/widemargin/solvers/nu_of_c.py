"""``nu="auto"``: the nu-SVM at the nu of the C-SVM with C = 1.

Both are one problem. At the optimum of the C-SVM, with alphas that add up to S/2 in each class and rows of weight W,

    nu(C) = S / (W C),   masses 2 alpha_i / S of the reduced hulls,   the same hyperplane

So the first sweep solves the C-SVM, which gives nu, and the others the nu-SVM at this number, from the direction and
the masses that are known: mostly no others are needed. What is certified is the nu-SVM. The gap of the hulls, relative
to their distance, is that of the C-SVM by ||w||^2: this says how closely the C-SVM is solved.

Where no alpha of a class is strictly within its bounds, nu(C) is constant between two values of C, and neither the
intercept nor the scale of w is determined by nu: :meth:`widemargin.solvers._hulls.Hulls.separator` has the rule.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled.labels import class_sums
from widemargin.data.pieces import each_piece, sum_of_pieces
from widemargin.data.shard import Shard
from widemargin.pauses import TimeIsUp, is_time_up
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.polytope import NuMargin, largest_nu
from widemargin.problems.protocol import Certificate
from widemargin.solvers.auto import Auto, AutoState, FewRows, Stalled, Unfinished, linear_csvm
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Inputs, Solver, Warm
from widemargin.solvers.separating import Separating
from widemargin.solvers.small_dual import SmallLinearDual

_FIRST_GAP = 1e-4  # relative, of a small C-SVM after the first sweep; the alphas of Newton steps are closer
_CACHE_BYTES = 1 << 25  # of the inner products of a small problem
_SMALLEST_GAP = 1e-9  # relative, of the C-SVM: less is asked of it where ||w|| is tiny


class State(NamedTuple):
    inputs: Inputs
    csvm: Any  # the state of the C-SVM while it is solved
    stalled: Stalled
    hulls: Any = None  # the state of the hull solver afterwards


@dataclass(frozen=True)
class NuOfC(Solver[State, Separator]):
    """A solver of the C-SVM, which finds nu, and a hull solver; a nu that is a number goes to the latter at once."""

    solver: Separating
    tol: float = 1e-3  # relative gap of the hulls that the C-SVM aims at
    patience: int = 30  # sweeps without progress

    solves = (NuMargin,)

    @property
    def _csvm(self) -> Auto:
        """A small problem is solved roughly at once; then the other solver goes on."""
        small = SmallLinearDual(_FIRST_GAP)
        return Auto((small, linear_csvm()), FewRows(_CACHE_BYTES, needs_cold=True), Unfinished(0.0))

    def start(self, problem: NuMargin, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        inputs = Inputs(problem, shard, comm, rng)
        if problem.nu != "auto":
            return State(inputs, None, Stalled(self.patience), self.solver.start(*inputs, warm))
        csvm = self._csvm.start(HingeL2(1.0), shard, comm, rng, warm)
        return State(inputs, csvm, Stalled(self.patience))

    def sweep(self, state: State) -> State:
        if state.hulls is not None:
            return state._replace(hulls=self.solver.sweep(state.hulls))
        csvm, alpha, dual = state.csvm, None, -np.inf
        with suppress(TimeIsUp):  # any alphas have a nu
            while not self._is_close(csvm, state.stalled):
                csvm = self._csvm.sweep(csvm)
                certificate = self._csvm.certify(csvm)
                if certificate is not None and certificate.dual > dual:
                    alpha, dual = _at_work(csvm).alpha, certificate.dual
                if is_time_up(2 * _at_work(csvm).rows.n_entries):
                    break
        return state._replace(csvm=None, hulls=self._at_its_nu(state._replace(csvm=csvm), alpha))

    def _is_close(self, csvm: AutoState, stalled: Stalled) -> bool:
        """Whether the C-SVM is solved as closely as the hulls are to be, or cannot be."""
        certificate = self._csvm.certify(csvm)
        if certificate is None:
            return False
        w = _at_work(csvm).best.coef
        enough = max(0.1 * self.tol * float(w @ w), _SMALLEST_GAP * certificate.primal)
        is_stuck = stalled.is_due(self._csvm, csvm, certificate) or self._csvm.stop_reason(csvm) is not None
        return certificate.gap <= enough or is_stuck

    def _at_its_nu(self, state: State, alpha: np.ndarray | None = None) -> Any:
        """The hull solver at the nu and with the masses of alphas, by default the latest, along the best direction."""
        csvm = _at_work(state.csvm)
        nu, mass = _nu_and_masses(csvm.alpha if alpha is None else alpha, csvm.rows.upper, state.inputs)
        hulls = self.solver.start(*state.inputs._replace(problem=NuMargin(nu)), self._csvm.warm_state(state.csvm))
        return hulls if mass is None else self.solver.with_masses(hulls, mass)

    def certify(self, state: State) -> Certificate | None:
        return None if state.hulls is None else self.solver.certify(state.hulls)

    def confirm(self, state: State, latest: Certificate | None) -> Certificate:
        if state.hulls is not None:
            return self.solver.confirm(state.hulls, latest)
        hulls = self._at_its_nu(state)
        return self.solver.confirm(hulls, self.solver.certify(hulls))

    def stop_reason(self, state: State) -> str | None:
        return None if state.hulls is None else self.solver.stop_reason(state.hulls)

    def allowance(self, state: State) -> float:
        return 0.0 if state.hulls is None else self.solver.allowance(state.hulls)

    def warm_state(self, state: State) -> np.ndarray | None:
        return self._csvm.warm_state(state.csvm) if state.hulls is None else self.solver.warm_state(state.hulls)

    def diagnostics(self, state: State) -> dict[str, float]:
        return {} if state.hulls is None else self.solver.diagnostics(state.hulls)

    def coefficients(self, state: State, model: Separator) -> np.ndarray | None:
        return None if state.hulls is None else self.solver.coefficients(state.hulls, model)

    def extract(self, state: State) -> Separator:
        model: Separator = self.solver.extract(self._at_its_nu(state) if state.hulls is None else state.hulls)
        return model


def _at_work(csvm: Any) -> Any:
    """The state of the solver of the C-SVM at work."""
    return _at_work(csvm.inner) if isinstance(csvm, AutoState) else csvm


def _nu_and_masses(alpha: np.ndarray, upper: np.ndarray, inputs: Inputs) -> tuple[float, np.ndarray | None]:
    """``S / (W C)``, and the masses of this rank's rows; None if a class has none.

    Where a class has no free alphas its sum is taken, since they are caps.
    """
    y, weight = inputs.shard.y, inputs.shard.weight

    def of_piece(rows: slice) -> np.ndarray:
        some, is_negative = alpha[rows], y[rows] < 0
        is_free = (some > 0) & (some < upper[rows])
        return np.concatenate([class_sums(is_negative, each, 2) for each in (some, is_free, weight[rows])])

    sums = inputs.comm.allreduce(sum_of_pieces(of_piece, len(alpha), 16.0))
    of_class, n_free, weights = sums.reshape(3, 2)
    total = 2 * float(of_class[n_free == 0].max() if (n_free == 0).any() else of_class.mean())
    most = largest_nu(*weights)
    if not of_class.all():
        return min(total / float(weights.sum()), most) if total > 0 else most, None
    mass = np.empty(len(alpha))

    def divide(rows: slice) -> None:
        np.divide(alpha[rows], np.where(y[rows] < 0, of_class[1], of_class[0]), out=mass[rows])

    each_piece(divide, len(alpha), 8.0)
    return min(total / float(weights.sum()), most), mass
