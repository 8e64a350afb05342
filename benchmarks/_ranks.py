"""What does a solver send? Runs on ranks with the traffic of all of them, and models along the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks._sets import SEED, Rows
from widemargin.comm.protocol import Communicator, Reduction
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.engines import inline
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate
from widemargin.solvers._hulls import Hulls
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Solver
from widemargin.solvers.run import Limits, Result, Watch, run


class CountingSolo:
    """One rank that holds all rows and counts what ``size`` ranks would send.

    Exact for solvers whose iterates do not depend on the number of ranks and whose ranks send arrays of equal length,
    as Saddle-DSVC and Gilbert's algorithm. It spares the threads' waiting for each other, which is most of the time
    when a round moves five numbers. Where ranks with different work ask each other for the time, it counts a few
    numbers more than they send: it does the work of all, and looks at the clock more often.
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.ledger = Ledger()

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        return self._counted(values, ways=2)

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        assert values is not None
        return self._counted(values, ways=1)

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        return [self._counted(values, ways=1)]

    def _counted(self, values: np.ndarray, ways: int) -> np.ndarray:
        n_messages = ways * (self.size - 1)
        self.ledger.rounds += 1
        self.ledger.messages += n_messages
        self.ledger.scalars += n_messages * values.size
        self.ledger.bytes += n_messages * values.nbytes
        return values


@dataclass(frozen=True)
class Recording(Solver[Any, Any]):
    """A solver that also keeps the best direction of each certified sweep, on rank 0, in ``directions``."""

    solver: Any
    directions: list[np.ndarray] = field(default_factory=list)

    @property
    def solves(self) -> tuple[type, ...]:
        return self.solver.solves

    def start(self, problem, shard, comm, rng, warm=None):
        return comm.rank, self.solver.start(problem, shard, comm, rng, warm)

    def sweep(self, state):
        rank, inner = state
        inner = self.solver.sweep(inner)
        if rank == 0 and self.solver.certify(inner) is not None:
            self.directions.append(self.solver.warm_state(inner))
        return rank, inner

    def certify(self, state) -> Certificate | None:
        return self.solver.certify(state[1])

    def stop_reason(self, state) -> str | None:
        return self.solver.stop_reason(state[1])

    def warm_state(self, state) -> np.ndarray:
        return self.solver.warm_state(state[1])

    def extract(self, state) -> Separator:
        return self.solver.extract(state[1])


def shard_of(rows: Rows) -> Shard:
    """Rows of weight one."""
    return Shard(rows.X, rows.y, np.ones(len(rows.y)))


@dataclass(frozen=True)
class Job:
    """What every rank is told: the same solver for the same problem, with the same seed."""

    solver: Solver
    problem: Any
    limits: Limits

    def run_on_rank(self, rows: Rows, comm: Communicator, watch: Watch | None = None) -> Result:
        """One rank's part; who watches is shown the model of each sweep."""
        rng, shard, shows = np.random.default_rng(SEED), shard_of(rows), watch is not None
        return run(self.solver, self.problem, shard, comm, self.limits, rng, watch=watch, watch_model=shows)


def solve_on_ranks(solver: Solver, problem: Any, rows: Rows, n_ranks: int, limits: Limits) -> Result:
    """One run on that many threads; history and ledger hold the traffic of all ranks."""
    return inline.launch(rows, n_ranks, Job(solver, problem, limits), None)


def solve_alone(
    solver: Solver, problem: Any, rows: Rows, limits: Limits, *, counted_as: int = 1, watch: Watch | None = None
) -> Result:
    """One run on all rows in this thread, counting what ``counted_as`` ranks would send."""
    comm = Solo() if counted_as == 1 else CountingSolo(counted_as)
    return Job(solver, problem, limits).run_on_rank(rows, comm, watch)


def accuracies(directions: list[np.ndarray], problem: Any, train: Rows, test: Rows) -> list[float]:
    """Test accuracy of the separator along each direction."""
    hulls = Hulls.of(problem, shard_of(train), Solo())
    models = [hulls.separator(w) for w in directions]
    return [float(np.mean(np.sign(test.X @ model.coef + model.intercept) == test.y)) for model in models]


def gaps(result: Result) -> list[float]:
    """Relative gap of each certified sweep."""
    return [Certificate(row["primal"], row["dual"]).relative for row in result.history]


def units(result: Result, n_ranks: int, n_features: int) -> list[float]:
    """Scalars sent until each certified sweep, in rows per rank (k d)."""
    return [row["scalars"] / (n_ranks * n_features) for row in result.history]


def first_below(gap: float, gaps_seen: list[float], costs: list[float]) -> float | None:
    """The cost at which the gap was first reached, if it was."""
    return next((cost for seen, cost in zip(gaps_seen, costs, strict=True) if seen <= gap), None)
