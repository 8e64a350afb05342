"""Ranks in this process: one in the calling thread, or several threads that share memory."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from widemargin import cores
from widemargin.comm.threads import on_ranks
from widemargin.engines._plan import split_rows
from widemargin.engines.protocol import IsEnough, IsOver, Look, RankProgram, Solve


def launch(rows: Any, cluster: int | None, program: RankProgram, watch: Any) -> Any:
    """Run ``program`` on ``cluster`` ranks (None: one) with equal parts of the rows; returns the outcome of rank 0.

    Rank 0 is the calling thread. If a rank raises, all ranks stop and the error is raised here.
    """
    parts = split_rows(rows, cluster or 1)
    return on_ranks(len(parts), lambda comm: program.run_on_rank(parts[comm.rank], comm, watch))[0]


def grow(
    n_ranks: int | None, leaves: list[Any], solve: Solve, look: Look, fan_in: int, is_enough: IsEnough, is_over: IsOver
) -> None:
    """Solve a tree from its leaves to its root: each leaf, then every ``fan_in`` neighbours together.

    After each level ``is_enough`` is called with the ``look`` of every branch, and ends the tree if it returns True.
    ``solve`` also gets ``is_over``, and returns soon once that is true.
    """
    branches = map_items(n_ranks, lambda _, leaf: solve([leaf], is_over), None, leaves)
    while not is_enough([look(branch) for branch in branches]) and len(branches) > 1:
        groups = [branches[k : k + fan_in] for k in range(0, len(branches), fan_in)]
        branches = map_items(n_ranks, lambda _, group: solve(group, is_over), None, groups)


def map_items(n_ranks: int | None, work: Callable[[Any, Any], Any], shared: Any, items: list[Any]) -> list[Any]:
    """``work(shared, item)`` for all items, on ``n_ranks`` threads; in the calling thread if None or 1."""
    if not n_ranks or n_ranks == 1:
        return [work(shared, item) for item in items]
    n_threads = cores.n_threads() // n_ranks  # of each

    def work_beside_others(item: Any) -> Any:
        with cores.at_most(n_threads):
            return work(shared, item)

    with ThreadPoolExecutor(n_ranks, thread_name_prefix="widemargin") as pool:
        return list(pool.map(work_beside_others, items))
