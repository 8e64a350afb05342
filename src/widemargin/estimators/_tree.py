"""SODM: a fit on parts of the rows, merged by and by; every level has a model of all rows.

    divide    rows into p^L parts that are like the whole                  :mod:`widemargin.solvers.partition`
    leaves    solve the problem of each part
    merge     every p neighbours: their rows together, their coefficients times the share that each part has of the
              weight (coefficients go as 1 over the number of rows), and solve on from there
    root      all rows: the problem itself, to its certified gap

[1] stops before the root, at p parts, with coefficients that are not rescaled; here the root is solved, and begins near
its end. Before, at level l, the coefficients of all parts, each times its share, are a model of all rows.

[1] Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, 2023, Algorithm 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.engines._select import grower
from widemargin.estimators._task import Outcome, PartWatch, Rows, Task
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.ledger import Ledger
from widemargin.problems._protocol import Certificate
from widemargin.solvers import partition
from widemargin.solvers._kernel_ranks import KernelModel
from widemargin.solvers._run import Limits, Progress, Result, run

_ROWS_PER_PART = 2000  # of the leaves, at least, where their number is not given
_LOOSE = 0.1  # relative gap below the root, where another merge comes anyway


class Branch(NamedTuple):
    """Rows of one part, and its coefficients."""

    X: Any
    y: np.ndarray
    weight: np.ndarray
    numbers: np.ndarray  # among all rows
    beta: np.ndarray
    result: Result | None  # of its solution; None before


class View(NamedTuple):
    """What is seen of a solved branch from outside."""

    numbers: np.ndarray
    beta: np.ndarray
    weight: float
    result: Result
    seconds: float  # that its solution took, where it was solved


class Level(NamedTuple):
    """A level of the tree: its model of all rows."""

    n_parts: int
    seconds: float  # since the beginning
    task_seconds: list[float]  # of each part
    largest_gap: float  # of the parts
    model: KernelModel


@dataclass(frozen=True)
class Tree:
    """How rows are divided and merged, and at how many parts to stop: 1 is the root."""

    n_parts: int | Literal["auto"]
    fan_in: int
    n_strata: int
    is_stratified: bool
    stop_at: int

    def launch(self, rows: Rows, cluster: Any, task: Task, watch: PartWatch) -> Outcome:
        """What an engine's ``launch`` does, as a tree of tasks."""
        begin, comm = time.perf_counter(), Solo()
        with comm.ledger.phase("encode"):
            shard, multiplicity, numbers, n_rows, classes, totals, seed = task.join(rows, comm)
        for positive, negative in task.parts_of(len(classes)):
            rest = totals.sum() - totals[positive] if negative is None else totals[negative]
            task.problem.check(totals[positive], rest)
        shard = task.bound(shard, multiplicity, numbers, n_rows, comm)
        with comm.ledger.phase("divide"):
            divided = self.divide(shard, np.random.default_rng(seed))
        before = time.perf_counter() - begin
        results = []
        for k, (positive, _) in enumerate(task.parts_of(len(classes))):
            shard.kernel.ledger = comm.ledger if k == 0 else Ledger()
            labelled = shard.against_rest(positive) if len(classes) > 2 else shard.between(1, 0)
            results.append(self._grow(labelled, divided, cluster, task, partial(watch, k, classes, None), before))
        return Outcome(classes, results, shard.n_features)

    def divide(self, shard: Shard, rng: np.random.Generator) -> list[np.ndarray]:
        """Ascending numbers of the rows of each part."""
        _, counts = np.unique(shard.y, return_counts=True)
        n, rarest, n_parts = shard.n_rows, int(counts.min()), self.n_parts
        if n_parts == "auto":
            n_parts = 1
            while n_parts * self.fan_in * _ROWS_PER_PART <= n and n_parts * self.fan_in <= rarest:
                n_parts *= self.fan_in
        if n_parts > rarest:
            raise ValueError(
                f"n_partitions={n_parts} is more than the rarest class has rows, and every part needs one of each: it "
                f"must lie in [1, {rarest}]."
            )
        groups = shard.y
        if self.is_stratified and n_parts > 1:
            nearest = partition.strata(shard.kernel, partition.landmarks(shard.kernel, self.n_strata))
            groups = shard.y * (nearest.max() + 1) + nearest  # by class first, so that each part has its share of it
        return partition.spread_evenly(groups, n_parts, rng)

    def _grow(
        self,
        shard: Shard,
        divided: list[np.ndarray],
        cluster: Any,
        task: Task,
        watch: Callable[[Progress], str | None],
        before: float,
    ) -> Result:
        """The tree of one problem; ``before`` are the seconds that preparations took."""
        begin, rows = time.perf_counter() - before, shard.kernel
        leaves = [
            Branch(rows.X[part], shard.y[part], shard.weight[part], rows.numbers[part], np.zeros(len(part)), None)
            for part in divided
        ]
        levels: list[Level] = []
        why = []
        last: list[View] = []
        ledger = Ledger()

        def is_enough(views: list[View]) -> bool:
            nonlocal last, ledger
            last = views
            ledger = sum((view.result.ledger for view in views), start=ledger)
            seconds = time.perf_counter() - begin
            gaps = [view.result.certificate.relative for view in views]
            model = _model_of(task, rows, views)
            levels.append(Level(len(views), seconds, [view.seconds for view in views], max(gaps), model))
            certificate = views[0].result.certificate if len(views) == 1 else None
            seen = model if task.watch_model else None
            reason = watch(Progress(len(levels), certificate, seconds, ledger.counts(), None, seen))
            if reason is None and seconds > task.limits.max_time:
                reason = "max_time"
            if reason is None and 1 < len(views) <= self.stop_at:
                reason = "stop_level"
            why.extend([reason] if reason else [])
            return reason is not None

        def is_over() -> str | None:
            return watch(Progress(len(levels), None, time.perf_counter() - begin, ledger.counts(), None, None))

        sizes = (shard.n_rows, rows.n_everywhere or shard.n_rows)
        until = time.time() + task.limits.max_time - before  # a clock that all machines have
        solve = partial(_solve, task.problem, rows.kernel, task.solver, task.limits, until, sizes, task.seed)
        grower(cluster)(leaves, solve, _look, self.fan_in, is_enough, is_over)
        model = levels[-1].model._replace(report={**levels[-1].model.report, "levels": levels})
        if len(last) == 1:
            root = last[0].result
            reason = why[0] if why and root.stop_reason != "gap" else root.stop_reason
            return replace(root, model=model, stop_reason=reason, ledger=ledger + rows.ledger)
        reason = why[0] if why else is_over() or "interrupted"
        certificate = _certified(task, shard, model)
        return Result(model, certificate, reason, len(levels), [], ledger + rows.ledger)


def _solve(
    problem: Any,
    kernel: Kernel,
    solver: Any,
    limits: Limits,
    until: float,
    sizes: tuple[int, int],
    seed: int,
    children: list[Branch],
    is_over: Callable[[], str | None] | None = None,
) -> Branch:
    """The problem of some branches together, from where they stand.

    ``until`` is the end of the time for all, ``sizes`` are the rows of the root and the largest number of one,
    ``is_over`` says why not to go on.
    """
    n_rows, n_numbers = sizes
    y, weight, numbers = (np.concatenate([child[k] for child in children]) for k in (1, 2, 3))
    blocks = [child.X for child in children]
    X = blocks[0]
    if len(blocks) > 1:
        X = sp.vstack(blocks, format="csr") if sp.issparse(X) else np.vstack(blocks)
    beta = np.zeros(n_numbers)
    for child in children:
        beta[child.numbers] = child.beta * (child.weight.sum() / weight.sum())
    comm = Solo()
    shard = Shard(X, y, weight, RowsOnCPU(kernel, X, numbers, comm.ledger, n_everywhere=n_numbers))
    its = replace(limits, max_time=min(limits.max_time, until - time.time()))
    if len(y) < n_rows:
        its = replace(its, tol=max(limits.tol, _LOOSE))
    rng = np.random.default_rng([seed, len(y), int(numbers[0])])
    watch = None if is_over is None else lambda _: is_over()
    result = run(solver, problem, shard, comm, its, rng, warm=beta if beta.any() else None, watch=watch)
    beta = np.zeros(n_numbers)
    beta[result.model.points.numbers] = result.model.coef
    return Branch(X, y, weight, numbers, beta[numbers], result)


def _look(branch: Branch) -> View:
    """A branch without its rows."""
    result = branch.result
    assert result is not None
    seconds = sum(result.ledger.seconds.values())
    few = result.model._replace(points=Points(branch.X[:0], np.empty(0, np.intp)), coef=np.empty(0))
    return View(branch.numbers, branch.beta, float(branch.weight.sum()), replace(result, model=few), seconds)


def _model_of(task: Task, rows: RowsOnCPU, views: list[View]) -> KernelModel:
    """The coefficients of all parts, each times its share of the weight, as one model."""
    whole = sum(view.weight for view in views)
    beta = np.zeros(rows.n_everywhere or rows.n_rows)
    for view in views:
        beta[view.numbers] = view.beta * (view.weight / whole)
    beta = beta[rows.numbers]
    support = np.flatnonzero(beta)
    intercept = float(beta.sum()) * task.problem.constant
    if rows.kernel.name == "precomputed":  # numbers say it all
        points = Points(np.empty((len(support), 0)), rows.numbers[support])
    else:
        points = rows.points(support)
    return KernelModel(rows.kernel, points, beta[support], intercept, {})


def _certified(task: Task, shard: Shard, model: KernelModel) -> Certificate:
    """Bounds of the problem of all rows by a model of a level below: one product with the kernel."""
    beta = np.zeros(shard.kernel.n_everywhere or shard.n_rows)
    beta[model.points.numbers] = model.coef
    state = task.solver.start(task.problem, shard, Solo(), np.random.default_rng(0), beta)
    certificate = task.solver.certify(state)  # in float64: so start computed the responses
    assert certificate is not None
    return certificate
