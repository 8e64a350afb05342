"""The way of a fit by SODM: a tree of tasks, each of them a run, on threads or on the workers of a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.engines.select import grower
from widemargin.ledger import Ledger
from widemargin.solvers.partition_merge import Branching, Level, Tree, View, leaves, level_of, look, without_other_rows
from widemargin.solvers.run import Progress, Result
from widemargin.strategies.task import Outcome, PartWatch, Rows, Task


def launch_tree(tree: Tree, rows: Rows, cluster: Any, task: Task, watch: PartWatch) -> Outcome:
    """What an engine's ``launch`` does, as a tree of tasks."""
    begin, comm = time.perf_counter(), Solo()
    shard, classes, parts, _, seed = task.prepare(rows, comm)
    with comm.ledger.phase("divide"):
        divided = tree.divide(shard, np.random.default_rng(seed))
    before = time.perf_counter() - begin
    results = []
    for k, part in enumerate(parts):
        shard.kernel.ledger = comm.ledger if k == 0 else Ledger()
        watch_part = partial(watch, k, classes, None)
        results.append(_grow(tree, task.labelled(shard, part), divided, cluster, task, watch_part, before))
    return Outcome(classes, results, shard.n_features)


def _grow(
    tree: Tree,
    shard: Shard,
    divided: list[np.ndarray],
    cluster: Any,
    task: Task,
    watch: Callable[[Progress], str | None],
    before: float,
) -> Result:
    """The tree of one problem; ``before`` are the seconds that preparations took."""
    begin, rows = time.perf_counter() - before, shard.kernel
    until, n_numbers = time.time() + task.limits.max_time - before, rows.n_everywhere or shard.n_rows
    branching = Branching(
        task.problem, rows.kernel, task.solver, task.limits, until, shard.n_rows, n_numbers, task.seed
    )
    levels: list[Level] = []
    why: list[str] = []
    last: list[View] = []
    ledger = Ledger()

    def is_enough(views: list[View]) -> bool:
        nonlocal last, ledger
        last = views
        ledger = sum((view.result.ledger for view in views), start=ledger)
        seconds = time.perf_counter() - begin
        levels.append(level_of(views, branching, rows, seconds))
        certificate = views[0].result.certificate if len(views) == 1 else None
        seen = levels[-1].model if task.watch_model else None
        reason = watch(Progress(len(levels), certificate, seconds, ledger.counts(), None, seen))
        if reason is None and seconds > task.limits.max_time:
            reason = "max_time"
        if reason is None and 1 < len(views) <= tree.stop_at:
            reason = "stop_level"
        why.extend([reason] if reason else [])
        return reason is not None

    def is_over() -> str | None:
        return watch(Progress(len(levels), None, time.perf_counter() - begin, ledger.counts(), None, None))

    grower(cluster)(leaves(shard, divided), branching.solve, look, tree.fan_in, is_enough, is_over)
    levels = without_other_rows(levels)
    model = levels[-1].model._replace(report={"levels": levels})
    if len(last) == 1:
        root = last[0].result
        reason = why[0] if why and root.stop_reason != "gap" else root.stop_reason
        return replace(root, model=model, stop_reason=reason, ledger=ledger + rows.ledger)
    reason = why[0] if why else is_over() or "interrupted"
    certificate = branching.certified(shard, model)
    return Result(model, certificate, reason, len(levels), [], ledger + rows.ledger)
