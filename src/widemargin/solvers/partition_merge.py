"""SODM: parts of the rows are solved and merged step by step; every level has a model of all rows.

    divide    rows into p^L parts distributed like the whole
    leaves    solve the problem of each part
    merge     every p neighbours: their rows together, their coefficients times the share that each part has of the
              weight (coefficients go as 1 over the number of rows), and solve from there
    root      all rows: the problem itself, to its certified gap

Each part has its share of every stratum, and of every class in it. Strata form around landmarks ([1], section 3.2),
which are chosen one by one: each is the row farthest from the span of those before it in the kernel's space. This is
pivoted Cholesky of the kernel matrix and makes the determinant of the landmarks' kernel values large ((8)). The stratum
of a row is its nearest landmark ((7)).

[1] stops before the root, at p parts, with coefficients that are not rescaled; here the root is solved too, from a
start near its solution. At lower levels the coefficients of all parts, each times its share, are a model of all rows.

Tasks of the tree are plain functions of branches; :mod:`widemargin.strategies` starts them.

[1] Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, 2023, Algorithm 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin.codec import check_row_numbers, record
from widemargin.comm.solo import Solo
from widemargin.cores import one_blas_thread
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points
from widemargin.kernels.protocol import KernelRows
from widemargin.pauses import Clock, TimeIsUp
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.protocol import Certificate
from widemargin.solvers.margin_descent import crude_bounds
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Result, run

_MIN_ROWS_PER_PART = 2000  # of the leaves, for n_parts="auto"
_MIN_DISTANCE = 1e-10  # squared, relative to the largest squared norm: nearer to a span counts as within it
_PART_TOL = 0.1  # relative gap below the root, where another merge follows


@dataclass(frozen=True)
class Division:
    """How rows are divided and merged, and at how many parts to stop; 1 is the root."""

    n_parts: int | Literal["auto"]
    fan_in: int
    n_strata: int
    is_stratified: bool
    stop_at: int

    def divide(self, shard: Shard, rng: np.random.Generator) -> list[np.ndarray]:
        _, counts = np.unique(shard.y, return_counts=True)
        n, rarest, n_parts = shard.n_rows, int(counts.min()), self.n_parts
        if n_parts == "auto":
            n_parts = 1
            while n_parts * self.fan_in * _MIN_ROWS_PER_PART <= n and n_parts * self.fan_in <= rarest:
                n_parts *= self.fan_in
        if n_parts > rarest:
            raise ValueError(
                f"n_partitions={n_parts} is more than the rarest class has rows, and every part needs one of each: it "
                f"must lie in [1, {rarest}]."
            )
        groups = shard.y
        if self.is_stratified and n_parts > 1:
            with suppress(TimeIsUp):  # without strata, at random
                nearest = strata(shard.kernel, landmarks(shard.kernel, self.n_strata))
                # By class first, so that each part has its share of each.
                groups = shard.y * (nearest.max() + 1) + nearest
        return spread_evenly(groups, n_parts, rng)


def landmarks(rows: KernelRows, n_landmarks: int) -> np.ndarray:
    """Numbers of rows; fewer than ``n_landmarks`` if all others are in their span."""
    left = rows.diagonal_of(rows.points(np.arange(rows.n_rows))).copy()
    least = _MIN_DISTANCE * float(left.max(initial=0.0))
    factor = np.empty((n_landmarks, rows.n_rows))
    chosen: list[int] = []
    while len(chosen) < min(n_landmarks, rows.n_rows):
        pivot = int(np.argmax(left))
        if not left[pivot] > least:
            break
        done = factor[: len(chosen)]
        values = rows.rows(rows.points(np.array([pivot])))[0] - done[:, pivot] @ done
        factor[len(chosen)] = values / np.sqrt(left[pivot])
        left -= factor[len(chosen)] ** 2
        left[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.intp)


def strata(rows: KernelRows, chosen: np.ndarray) -> np.ndarray:
    """The number of the nearest landmark of every row; 0 if there are none, because all rows are 0."""
    if not len(chosen):
        return np.zeros(rows.n_rows, dtype=np.intp)
    points = rows.points(np.sort(chosen))
    # ||phi(x) - phi(z)||^2 without the term that does not depend on z.
    distance = rows.diagonal_of(points)[:, None] - 2.0 * rows.rows(points)
    return np.argmin(distance, axis=0)


def spread_evenly(groups: np.ndarray, n_parts: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Ascending numbers of the rows of each part: rows of every group, in random order, go to the parts in turn.

    The turn continues from group to group, so that sizes differ by at most one row.
    """
    order = np.argsort(groups[shuffled := rng.permutation(len(groups))], kind="stable")
    part = np.empty(len(groups), dtype=np.intp)
    part[shuffled[order]] = np.arange(len(groups)) % n_parts
    return [np.flatnonzero(part == k) for k in range(n_parts)]


class Branch(NamedTuple):
    X: Any
    y: np.ndarray
    weights: np.ndarray
    numbers: np.ndarray  # among all rows
    beta: np.ndarray
    result: Result | None  # of its solution; None before

    @property
    def weight(self) -> float:
        return float(self.weights.sum())


class View(NamedTuple):
    numbers: np.ndarray
    beta: np.ndarray
    weight: float
    result: Result
    seconds: float  # of its solution, on the machine that solved it


def _check_level(level: Level) -> None:
    check_row_numbers(level.numbers, len(level.coef))
    every = level.among.numbers
    if not (every[1:] > every[:-1]).all() or not np.isin(level.numbers, every).all():
        raise ModelFileError("row numbers of a level are not ascending, or not all among its rows")


@record(check=_check_level)
@dataclass(frozen=True)
class Level:
    """A level of the tree; all levels share their rows, and the model is built from them on demand."""

    n_parts: int
    seconds: float  # since the beginning
    task_seconds: list[float]  # of each part
    largest_gap: float  # of the parts
    kernel: Kernel
    among: Points  # rows in ascending order of their numbers, with all that have a coefficient
    numbers: np.ndarray  # of those with a coefficient here
    coef: np.ndarray
    intercept: float

    @property
    def model(self) -> KernelModel:
        chosen = np.searchsorted(self.among.numbers, self.numbers)
        return KernelModel(self.kernel, self.among[chosen], self.coef, self.intercept, {})


@dataclass(frozen=True)
class Branching:
    """The problem of any branch, and how it is solved; plain data, so that it can travel."""

    problem: MarginDistribution
    kernel: Kernel
    solver: AnySolver
    limits: Limits
    until: float  # deadline, in seconds since the epoch
    n_rows: int  # of the root
    n_numbers: int  # the largest number of a row is below it
    seed: int

    @one_blas_thread()
    def solve(self, children: list[Branch], is_over: Callable[[], str | None] | None = None) -> Branch:
        """Merge and solve branches, from their coefficients; ``is_over`` returns a reason to stop, or None."""
        y, weights, numbers = (np.concatenate([child[k] for child in children]) for k in (1, 2, 3))
        comm, warm = Solo(), together(children, self.n_numbers)
        X = [child.X for child in children]
        rows = kernel_rows(self.kernel, X, numbers, comm.ledger, n_everywhere=self.n_numbers)
        limits = replace(self.limits, max_time=min(self.limits.max_time, self.until - time.time()))
        if len(y) < self.n_rows:
            limits = replace(limits, tol=max(limits.tol, _PART_TOL))
        rng = np.random.default_rng([self.seed, len(y), int(numbers[0])])
        shard, start = Shard(rows.X, y, weights, rows), warm if warm.any() else None
        watch = None if is_over is None else lambda _: is_over()
        told = "max_time" if limits.max_time <= 0 else ""
        result = run(self.solver, self.problem, shard, comm, limits, rng, warm=start, watch=watch, told=told)
        beta = np.zeros(self.n_numbers)
        beta[result.model.points.numbers] = result.model.coef
        return Branch(rows.X, y, weights, numbers, beta[numbers], result)

    def certified(self, shard: Shard, model: KernelModel, is_over: Callable[[], str]) -> Certificate:
        """Bounds of the problem of all rows from a model of a lower level, by one kernel product.

        They are crude if ``is_over`` returns a reason to stop before it is done.
        """
        beta, comm = np.zeros(self.n_numbers), Solo()
        beta[model.points.numbers] = model.coef
        try:
            with Clock(comm, is_over).running():
                state = self.solver.start(self.problem, shard, comm, np.random.default_rng(0), beta)
                certificate = self.solver.certify(state)  # in float64, as ``start`` computes the responses
        except TimeIsUp:
            rows, steep = shard.kernel, self.problem.steep(shard.weight, float(shard.weight.sum()))
            return crude_bounds(self.problem, rows, comm, steep, shard.y * beta[rows.numbers], model.intercept)
        assert certificate is not None
        return certificate


def leaves(shard: Shard, divided: list[np.ndarray]) -> list[Branch]:
    rows = shard.kernel
    return [
        Branch(rows.X[part], shard.y[part], shard.weight[part], rows.numbers[part], np.zeros(len(part)), None)
        for part in divided
    ]


def look(branch: Branch) -> View:
    result = branch.result
    assert result is not None
    seconds = sum(result.ledger.seconds.values())
    few = result.model._replace(points=Points(branch.X[:0], np.empty(0, np.intp)), coef=np.empty(0))
    return View(branch.numbers, branch.beta, branch.weight, replace(result, model=few), seconds)


def together(parts: Sequence[Branch | View], n_numbers: int) -> np.ndarray:
    """Coefficients of all parts by row number, each times the share of its part in the weight."""
    whole = sum(part.weight for part in parts)
    beta = np.zeros(n_numbers)
    for part in parts:
        beta[part.numbers] = part.beta * (part.weight / whole)
    return beta


def level_of(views: list[View], branching: Branching, rows: KernelRows, seconds: float) -> Level:
    beta = together(views, branching.n_numbers)
    numbers = np.flatnonzero(beta)
    # Rows of a precomputed kernel are known by their numbers.
    X = np.empty((rows.n_rows, 0)) if rows.kernel.name == "precomputed" else rows.X
    among, intercept = Points(X, rows.numbers), float(beta.sum()) * branching.problem.constant
    task_seconds, gaps = [view.seconds for view in views], [view.result.certificate.relative for view in views]
    return Level(len(views), seconds, task_seconds, max(gaps), rows.kernel, among, numbers, beta[numbers], intercept)


def without_other_rows(levels: list[Level]) -> list[Level]:
    """The same levels with only the rows that have a coefficient at one of them."""
    used, everything = np.unique(np.concatenate([level.numbers for level in levels])), levels[0].among
    among = everything[np.searchsorted(everything.numbers, used)]
    return [replace(level, among=among) for level in levels]
