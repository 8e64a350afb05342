"""Hard margin and nu where no margin was found: a search for a separator that does not depend on the units of columns.

Whether hulls can be separated does not depend on the metric; how easily a solver sees it does. A column that separates
the classes hardly moves a distance that is ruled by a column a million times as wide. So where a solver finds hulls
close and no margin, the same problem is solved in the equilibrated metric, in which all columns have about the same
spread, until

    a direction has a positive margin        the solver begins again from it, in the user's metric
    masses bring the hulls within            "overlap": no separator has a margin over this, in the equilibrated metric
    ``OVERLAP_SHARE`` of their radius
    neither gets any better                  "undecided": float64 does not tell

For nu, if the reduced hulls leave this undecided, the whole ones are tried: what separates them separates those.

Bounds found on the way hold in the user's metric too: columns of z and w are only multiplied by powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.data.pieces import elementwise
from widemargin.data.shard import Shard
from widemargin.problems.polytope import HardMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers._hull_rows import length_at_most
from widemargin.solvers._hulls import Best, Hulls, HullState
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.auto import Auto, AutoState, Stalled
from widemargin.solvers.hull_multipliers import HullMultipliers
from widemargin.solvers.models import Separator
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.protocol import AnySolver, Inputs, Solver, Warm

_CLOSE = 1e-6  # in radii: hulls that a solver brings this close without a margin are searched


class State(NamedTuple):
    inputs: Inputs
    inner: Any  # of the solver, in the user's metric
    stalled: Stalled
    search: Any = None  # of the search while it goes on
    stage: int = 0  # of the search
    is_searched: bool = False
    verdict: str | None = None


@dataclass(frozen=True)
class Separating(Solver[State, Separator]):
    """A hull solver with a search in the equilibrated metric where it finds no margin."""

    solver: AnySolver
    patience: int = 15  # sweeps without progress, of the solver before a search, and of the search

    @property
    def solves(self) -> tuple[type, ...]:
        return self.solver.solves

    def start(self, problem: Any, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        inputs = Inputs(problem, shard, comm, rng)
        return State(inputs, self.solver.start(*inputs, warm), Stalled(self.patience))

    def sweep(self, state: State) -> State:
        if state.search is not None:
            return self._searched(state)
        state = state._replace(inner=self.solver.sweep(state.inner))
        if state.is_searched or self.stop_reason(state) is not None or not self._needs_search(state):
            return state
        return self._searching(state, 0)

    def _searching(self, state: State, stage: int) -> State:
        problem, solver = _stages(state.inputs.problem)[stage]
        search = solver.start(*state.inputs._replace(problem=problem))
        return state._replace(search=search, stage=stage, stalled=Stalled(self.patience))

    def _needs_search(self, state: State) -> bool:
        now, certificate = _hull_state(state.inner), self.solver.certify(state.inner)
        if certificate is None or certificate.dual > 0:
            return False
        is_close = now.best.certificate.primal <= _CLOSE * now.hulls.radius
        is_stalled = state.stalled.is_due(self.solver, state.inner, certificate)
        return is_close or is_stalled or self.solver.stop_reason(state.inner) == "undecided"

    def _searched(self, state: State) -> State:
        """One sweep of the search, and what follows from it."""
        stages = _stages(state.inputs.problem)
        solver = stages[state.stage][1]
        search = solver.sweep(state.search)
        at, mine = _hull_state(search), _hull_state(state.inner)
        best = _in_metric(at.best, at.hulls, mine.hulls, mine.best)
        inner = _with_hull_state(state.inner, mine._replace(best=best))
        state = state._replace(inner=inner, search=search)
        if best.certificate.dual > 0:
            inner = self.solver.start(*state.inputs, best.w)
            mine = _hull_state(inner)
            inner = _with_hull_state(inner, mine._replace(best=mine.best.joined(best)))
            return state._replace(inner=inner, search=None, is_searched=True)
        reason = solver.stop_reason(search)
        if reason is None and state.stalled.is_due(solver, search, at.best.certificate):
            reason = "undecided"
        if reason is not None:
            best = _with_direction(best, at.best.w, at.hulls, mine.hulls)
            state = state._replace(inner=_with_hull_state(state.inner, mine._replace(best=best)))
        is_proof = reason == "overlap" and stages[state.stage][0] == state.inputs.problem
        if reason is not None and not is_proof and state.stage + 1 < len(stages):
            return self._searching(state, state.stage + 1)
        return state._replace(verdict=reason)

    def with_masses(self, state: State, mass: np.ndarray) -> State:
        """The state with the distance that these masses give, if it is better; they are cut off at their bounds."""
        mine = _hull_state(state.inner)
        mass = elementwise(np.minimum, mass, mine.hulls.upper)
        best = mine.hulls.closer(mine.best, mass, mine.hulls.combine(mass))
        return state._replace(inner=_with_hull_state(state.inner, mine._replace(best=best)))

    def certify(self, state: State) -> Certificate | None:
        return self.solver.certify(state.inner)

    def confirm(self, state: State, latest: Certificate | None) -> Certificate:
        return self.solver.confirm(state.inner, latest)

    def stop_reason(self, state: State) -> str | None:
        if state.search is not None:
            return state.verdict
        reason = self.solver.stop_reason(state.inner)
        return None if reason == "undecided" and not state.is_searched else reason

    def warm_state(self, state: State) -> np.ndarray | None:
        return self.solver.warm_state(state.inner)

    def diagnostics(self, state: State) -> dict[str, float]:
        return self.solver.diagnostics(state.inner)

    def coefficients(self, state: State, model: Separator) -> np.ndarray | None:
        return self.solver.coefficients(state.inner, model)

    def extract(self, state: State) -> Separator:
        model: Separator = self.solver.extract(state.inner)
        return model


def _stages(problem: Any) -> list[tuple[Any, AnySolver]]:
    """The problems that are solved in turn in the equilibrated metric, with their solvers."""
    newton = EntropicNewton(is_equilibrated=True)
    whole: tuple[Any, AnySolver] = HardMargin(), Auto((ActiveSet(is_equilibrated=True), newton), hand_over=Stalled())
    if isinstance(problem, HardMargin):
        return [whole]
    return [(problem, HullMultipliers(is_equilibrated=True)), whole, (problem, newton)]


def _hull_state(state: Any) -> HullState:
    """The state of the hull solver at work."""
    inner: HullState = state.inner if isinstance(state, AutoState) else state
    return inner


def _with_hull_state(state: Any, inner: HullState) -> Any:
    return state._replace(inner=inner) if isinstance(state, AutoState) else inner


def _in_metric(best: Best, at: Hulls, to: Hulls, known: Best) -> Best:
    """The bounds of one metric in another, joined to those that are known there."""
    if at.problem == to.problem:  # points of whole hulls are none of reduced ones
        z = best.z * at.rows.in_metric(to.rows.factor)
        known = known.closer(to.problem.primal_value(0.0, length_at_most(z)), z, best.mass)
    is_news = best.certificate.dual > 0 >= known.certificate.dual
    return _with_direction(known, best.w, at, to) if is_news else known


def _with_direction(known: Best, w: np.ndarray, at: Hulls, to: Hulls) -> Best:
    """With the margin of a direction of another metric, if it is better."""
    w = w * to.rows.in_metric(at.rows.factor)
    largest = float(np.abs(w).max(initial=0.0))
    return known.wider(to.margin(w / largest), w / largest) if largest > 0 else known
