"""Fits by SODM: a tree of tasks, each one a solver run, on threads or on the workers of a Dask cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.engines.select import engine_for
from widemargin.ledger import Ledger
from widemargin.pauses import Clock
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.partition_merge import (
    Branching,
    Division,
    Level,
    View,
    leaves,
    level_of,
    look,
    without_other_rows,
)
from widemargin.solvers.run import Progress, Result
from widemargin.strategies.protocol import Outcome, Rows, Watch, WatchPart, watch_part
from widemargin.strategies.ranks import Ranks
from widemargin.strategies.training import count_on_ranks

_GRACE = 0.5  # seconds for the certificate once time is up


@dataclass(frozen=True)
class Tree:
    """Parts of the rows are solved separately and merged; ``ranks`` defines the problem and the solver of a part."""

    ranks: Ranks
    division: Division

    def run(self, rows: Rows, place: Any, watch: Watch) -> Outcome:
        """Solve one tree per problem; ``extra`` has the levels of each, from the leaves to the last one solved."""
        begin, comm = time.perf_counter(), Solo()
        shard, classes, parts, _, seed, _ = self.ranks.prepare(rows, comm)
        until = begin + self.ranks.plan.limits.max_time
        clock = Clock(comm, lambda: "max_time" if time.perf_counter() > until else "")
        with comm.ledger.phase("divide"), clock.running():
            divided = self.division.divide(shard, np.random.default_rng(seed))
        before = time.perf_counter() - begin
        results, levels = [], []
        for k in range(len(parts)):
            shard.kernel.ledger = comm.ledger if k == 0 else Ledger()
            tell = watch_part(watch, k, classes)
            result, grown = self._grow(parts.labelled(shard, k), divided, place, tell, before)
            results.append(result)
            levels.append(grown)
        models = [result.model for result in results]
        training = count_on_ranks(shard, parts, models, [None] * len(parts), comm, seed)
        return Outcome(classes, results, shard.n_features, levels, training)

    def _grow(
        self, shard: Shard, divided: list[np.ndarray], place: Any, watch: WatchPart, before: float
    ) -> tuple[Result, list[Level]]:
        """Solve the tree of one problem; ``before`` is the time of the preparations, in seconds."""
        plan, rows = self.ranks.plan, shard.kernel
        begin = time.perf_counter() - before
        until, n_numbers = time.time() + plan.limits.max_time - before, rows.n_everywhere or shard.n_rows
        problem = cast(MarginDistribution, plan.problem)  # the solver refuses others
        branching = Branching(
            problem, rows.kernel, self.ranks.solver, plan.limits, until, shard.n_rows, n_numbers, plan.seed
        )
        levels: list[Level] = []
        reason: str | None = None
        last: list[View] = []
        ledger = Ledger()

        def is_enough(views: list[View]) -> bool:
            nonlocal last, ledger, reason
            last = views
            ledger = sum((view.result.ledger for view in views), start=ledger)
            seconds = time.perf_counter() - begin
            levels.append(level_of(views, branching, rows, seconds))
            certificate = views[0].result.certificate if len(views) == 1 else None
            seen = levels[-1].model if plan.watch_model else None
            reason = watch(Progress(len(levels), certificate, seconds, ledger.counts(), None, seen))
            if reason is None and seconds > plan.limits.max_time:
                reason = "max_time"
            if reason is None and 1 < len(views) <= self.division.stop_at:
                reason = "stop_level"
            return reason is not None

        def is_over() -> str | None:
            return watch(Progress(len(levels), None, time.perf_counter() - begin, ledger.counts(), None, None))

        engine_for(place).grow(
            place, leaves(shard, divided), branching.solve, look, self.division.fan_in, is_enough, is_over
        )
        levels = without_other_rows(levels)
        model = levels[-1].model
        if len(last) == 1:
            root = last[0].result
            why = reason if reason and root.stop_reason != "gap" else root.stop_reason
            return replace(root, model=model, stop_reason=why, ledger=ledger + rows.ledger), levels
        why = reason or is_over() or "interrupted"
        # A level at which the fit was to stop is certified in full, if there is time; else there is a moment left.
        late = begin + plan.limits.max_time if why == "stop_level" else time.perf_counter() + _GRACE
        certificate = branching.certified(
            shard, model, lambda: (why == "stop_level" and is_over()) or ("late" if time.perf_counter() > late else "")
        )
        return Result(model, certificate, why, len(levels), [], ledger + rows.ledger), levels
