"""``solver="auto"``: one solver after another on the same problem, each beginning where the last one stalled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Solver

_NOTHING = Certificate(float("inf"), float("-inf"))


class State(NamedTuple):
    stage: int
    inner: Any
    task: tuple[Any, ...]  # problem, shard, comm and generator, for those who start later
    reference: Certificate  # at the beginning of the current stretch
    n_sweeps: int  # of that stretch


@dataclass(frozen=True)
class Switching(Solver[Any, Any]):
    """Solvers in order of preference; the next takes over when ``patience`` sweeps halve neither gap nor primal.

    The states of all solvers carry the best ``certificate`` and ``best_w`` so far. Both bounds hold for the problem,
    whoever found them, so they are handed on.
    """

    stages: tuple[Solver, ...]
    patience: int = 10

    @property
    def solves(self) -> tuple[type, ...]:  # type: ignore[override]
        return self.stages[0].solves

    def start(self, problem, shard, comm, rng, warm=None) -> State:
        task = (problem, shard, comm, rng)
        return State(0, self.stages[0].start(problem, shard, comm, rng, warm), task, _NOTHING, 0)

    def sweep(self, state: State) -> State:
        solver = self.stages[state.stage]
        state = state._replace(inner=solver.sweep(state.inner), n_sweeps=state.n_sweeps + 1)
        certificate, reference = state.inner.certificate, state.reference
        # Where hulls overlap the primal alone falls, to zero.
        if certificate.gap <= reference.gap / 2 or certificate.primal <= reference.primal / 2:
            return state._replace(reference=certificate, n_sweeps=0)
        is_stalled = state.n_sweeps >= self.patience and solver.stop_reason(state.inner) is None
        return self._hand_over(state) if is_stalled and state.stage + 1 < len(self.stages) else state

    def certify(self, state: State) -> Certificate | None:
        return self.stages[state.stage].certify(state.inner)

    def stop_reason(self, state: State) -> str | None:
        return self.stages[state.stage].stop_reason(state.inner)

    def warm_state(self, state: State) -> np.ndarray:
        return self.stages[state.stage].warm_state(state.inner)

    def extract(self, state: State) -> Separator:
        return self.stages[state.stage].extract(state.inner)

    def _hand_over(self, state: State) -> State:
        done, stage = state.inner, state.stage + 1
        problem, shard, comm, rng = state.task
        inner = self.stages[stage].start(problem, shard, comm, rng, done.best_w)
        certificate = Certificate(
            min(done.certificate.primal, inner.certificate.primal), max(done.certificate.dual, inner.certificate.dual)
        )
        best_w = inner.best_w if inner.certificate.dual > done.certificate.dual else done.best_w
        inner = inner._replace(certificate=certificate, best_w=best_w)
        return State(stage, inner, state.task, certificate, 0)
