"""What does each rank of ``benchmarks.clusters`` do? The same work on every transport; run as a program, under MPI.

``mpiexec -n 4 python -m benchmarks.clusters_mpi SET REPEATS`` prints one line of JSON, the findings of rank 0.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np

from benchmarks._harness import quietly
from benchmarks._sets import ALPHA, SEED, load, nu_of
from widemargin import HardMarginSVC, NuMarginSVC
from widemargin.comm.protocol import Communicator
from widemargin.engines._plan import split_rows
from widemargin.strategies.protocol import Rows

SIZES = (4, 1_000, 50_000)
_ROUNDS = {4: 1_000, 1_000: 1_000, 50_000: 150}
_WARM_UP = 5
_LIMIT = 60.0  # seconds of one fit


@dataclass(frozen=True)
class RoundCosts:
    """A task for any engine: how long does an all-reduce take, as rank 0 sees it, by number of float64?

    The median, and the lowest tenth: on cores that are shared, the latter is a round that nobody disturbed.
    """

    name: str = "round-costs"
    if_lost: Literal["raise"] = "raise"

    def run_on_rank(
        self, rows: Rows, comm: Communicator, watch: Any, *, may_lose_ranks: bool = False
    ) -> dict[int, dict[str, float]]:
        """Rounds follow each other at once, so a rank that is late in one is waited for in the next."""
        times = {size: self._times(comm, size) for size in SIZES}
        return {size: {"median": median(each), "low": float(np.quantile(each, 0.1))} for size, each in times.items()}

    def _times(self, comm: Communicator, size: int) -> list[float]:
        values, taken = np.full(size, float(comm.rank)), []
        for _ in range(_ROUNDS[size] + _WARM_UP):
            begin = time.perf_counter()
            total = comm.allreduce(values)
            taken.append(time.perf_counter() - begin)
        assert total[0] == sum(range(comm.size))
        return taken[_WARM_UP:]


def idle_rows(n_ranks: int) -> Rows:
    """One row for each rank, for tasks that need none."""
    return Rows(np.zeros((n_ranks, 1)), np.zeros(n_ranks), None)


def models(cluster: Any, nu: float) -> dict[str, Any]:
    """The fits that are compared, unfitted."""
    common = {"cluster": cluster, "random_state": SEED, "max_time": _LIMIT}
    return {
        "nu, Newton": NuMarginSVC(nu=nu, solver="newton", **common),
        "nu, saddle": NuMarginSVC(nu=nu, solver="saddle", **common),
        "hard margin": HardMarginSVC(**common),
    }


def fits(cluster: Any, X: np.ndarray, y: np.ndarray, repeats: int, nu: float) -> dict[str, Any]:
    """What does each fit take and send? Medians of ``repeats`` after a first one that loads compiled code.

    ``seconds`` is what the caller waits, with the sending of rows and the starting of ranks; ``solving`` is the time
    that rank 0 spends from checking its rows to the model.
    """
    found = {}
    for name, model in models(cluster, nu).items():
        walls, solving = [], []
        for _ in range(1 + repeats):  # the same on all ranks, whatever their clocks say
            begin = time.perf_counter()
            with quietly():
                model.fit(X, y)
            walls.append(time.perf_counter() - begin)
            solving.append(sum(model.cost_.seconds.values()))
        cost = model.cost_
        found[name] = {
            "seconds": median(walls[1:]),
            "solving": median(solving[1:]),
            "solving_best": min(solving[1:]),
            "rounds": cost.rounds,
            "messages": cost.messages,
            "bytes": cost.bytes,
            "rounds_per_second": cost.rounds / median(solving[1:]) if cost.rounds else None,
            "sweeps": model.n_iter_,
            "stop": model.stop_reason_,
            "gap": model.certificate_.relative,
            "digest": hashlib.sha256(model.coef_.tobytes() + model.intercept_.tobytes()).hexdigest()[:16],
        }
    return found


def main() -> None:
    from mpi4py import MPI

    from widemargin.engines import mpi

    world = MPI.COMM_WORLD
    name, repeats = sys.argv[1], int(sys.argv[2])
    costs = mpi.launch(idle_rows(1), world, RoundCosts(), None)
    X, y = load(name)
    mine = split_rows(Rows(X, y, None), world.Get_size())[world.Get_rank()]
    found = fits(world, mine.X, mine.y, repeats, nu_of(y, ALPHA))
    if world.Get_rank() == 0:
        print(json.dumps({"rounds": costs, "fits": found}), flush=True)


if __name__ == "__main__":
    main()
