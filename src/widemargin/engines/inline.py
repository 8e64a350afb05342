"""Ranks in this process: one in the calling thread, or several threads that share memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from widemargin.comm.solo import Solo
from widemargin.comm.threads import Meeting, RankAborted, Threads
from widemargin.engines._plan import split_rows
from widemargin.engines.protocol import RankProgram


def launch(rows: Any, cluster: int | None, program: RankProgram, watch: Any) -> Any:
    """Run ``program`` on ``cluster`` ranks (None: one) with equal parts of the rows; returns the outcome of rank 0.

    Rank 0 is the calling thread, so that callbacks, progress and Ctrl-C run in the user's thread. If a rank raises, all
    ranks stop and the error is raised here.
    """
    n_ranks = cluster or 1
    parts = split_rows(rows, n_ranks)
    if n_ranks == 1:
        return program.run_on_rank(parts[0], Solo(), watch)
    meeting = Meeting(n_ranks)
    outcomes: dict[int, Any] = {}
    errors: dict[int, BaseException] = {}

    def rank(number: int) -> None:
        try:
            outcomes[number] = program.run_on_rank(parts[number], Threads(number, meeting), watch)
        except BaseException as error:
            errors[number] = error
            meeting.abort()

    others = [threading.Thread(target=rank, args=(k,), name=f"widemargin-rank-{k}") for k in range(1, n_ranks)]
    for thread in others:
        thread.start()
    rank(0)
    for thread in others:
        thread.join()
    if errors:
        # RankAborted is only the consequence of another rank's error.
        cause = [error for _, error in sorted(errors.items()) if not isinstance(error, RankAborted)]
        raise cause[0] if cause else errors[min(errors)]
    return outcomes[0]


def grow(
    n_ranks: int | None,
    leaves: list[Any],
    solve: Callable[..., Any],
    look: Callable[[Any], Any],
    fan_in: int,
    is_enough: Callable[[list[Any]], bool],
    is_over: Callable[[], Any],
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
    with ThreadPoolExecutor(n_ranks, thread_name_prefix="widemargin") as pool:
        return list(pool.map(partial(work, shared), items))
