"""solver="auto" of the kernel SVM: the exact solver where it can be expected to finish, else the batch perceptron."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems.protocol import Certificate
from widemargin.solvers.protocol import Solver

_MOST_ROWS = 200_000
# Kernel values in a second of one rank, and how many passes over all pairs of rows the exact solver may need: both for
# a guess at the time it will take, on the safe side.
_VALUES_PER_SECOND = 2e8
_PASSES = 1.0


class State(NamedTuple):
    solver: Any
    state: Any


@dataclass(frozen=True)
class BySize(Solver[Any, Any]):
    """Chooses when the number of rows is known; then it is the chosen one."""

    exact: Solver
    early: Solver
    max_time: float = np.inf

    @property
    def solves(self) -> tuple[type, ...]:  # type: ignore[override]
        return tuple(kind for kind in self.exact.solves if kind in self.early.solves)

    def start(
        self, problem: Any, shard: Shard, comm: Communicator, rng: np.random.Generator, warm: np.ndarray | None
    ) -> State:
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        seconds = _PASSES * n_rows**2 / (_VALUES_PER_SECOND * comm.size)
        solver = self.exact if n_rows <= _MOST_ROWS and seconds <= self.max_time else self.early
        return State(solver, solver.start(problem, shard, comm, rng, warm))

    def sweep(self, state: State) -> State:
        return State(state.solver, state.solver.sweep(state.state))

    def certify(self, state: State) -> Certificate | None:
        return state.solver.certify(state.state)

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        return state.solver.confirm(state.state, latest)

    def compact(self, state: State) -> Certificate | None:
        return state.solver.compact(state.state)

    def diagnostics(self, state: State) -> dict[str, float]:
        return state.solver.diagnostics(state.state)

    def stop_reason(self, state: State) -> str | None:
        return state.solver.stop_reason(state.state)

    def warm_state(self, state: State) -> np.ndarray:
        return state.solver.warm_state(state.state)

    def extract(self, state: State) -> Any:
        return state.solver.extract(state.state)
