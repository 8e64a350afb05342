"""Partition trees: parts of the rows are solved alone, merged by and by, and solved again from where they stood.

What SODM is compared with, for the optimal margin distribution machine (ODM) and for the hinge loss (SVM) alike:

    cascade   parts at random; only rows with a coefficient go up [1]
    DiP       kernel k-means clusters, each dealt out to all parts; only rows with a coefficient go up [2]
    DC        parts are the clusters themselves, of clusters; all rows go up [3]
    strata    SODM's own: strata around landmarks, dealt out; all rows go up [4]. On the hinge loss it is SSVM

In the first three the price of a row is the same in a part as in the whole, and coefficients go up as they are. In the
last the price of the mean is, so that a part is the whole problem in small, and coefficients go up times the share that
their part has of all rows. The problem at the root is that of the whole, but for rows that were left behind.

Before the root a model of all rows is the sum of what the parts found; of DC it is that of the cluster where a row to
be classified lies, the "early prediction" of [3]. Clusters come from kernel k-means on some rows, to whose centres all
others are assigned, as there. The SVMs' cascade may feed its last rows back to the leaves, as [1] does until nothing
changes; the paper of SODM does not say whether it does.

[1] Graf, Cosatto, Bottou, Dourdanovic, Vapnik: Parallel support vector machines: the cascade SVM, NIPS 2004.
[2] Singh, Roy, Mohan: DiP-SVM: distribution preserving kernel support vector machine for big data, 2017.
[3] Hsieh, Si, Dhillon: A divide-and-conquer solver for kernel support vector machines, ICML 2014.
[4] Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, IJCAI 2023.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers import partition_merge
from widemargin.solvers.auto import kernel_margin
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.run import Limits, run

LOOSE = 0.1  # relative gap below the root, as in our own tree
N_STRATA = N_CLUSTERS = 32  # that are dealt out
_SAMPLE = 1000  # rows that kernel k-means works on
_ROUNDS = 30  # of it, at most


# -- what is solved ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PartOfODM(MarginDistribution):
    """A part may have rows of one class only."""

    def check(self, total_positive: float, total_negative: float) -> None:
        pass


@dataclass(frozen=True)
class ODM:
    """The optimal margin distribution machine; ``C`` is the price of the mean loss."""

    C: float
    deadband: float = 0.2
    overshoot_weight: float = 0.5

    def problem(self, n_rows: int, n_mean: float, n_all: int) -> MarginDistribution:
        """That of ``n_rows`` rows, each at a price of ``C / n_mean``."""
        return _PartOfODM(self.C * n_rows / n_mean, self.deadband, self.overshoot_weight)

    def solver(self) -> Any:
        return kernel_margin(MarginDescent())


@dataclass(frozen=True)
class SVM:
    """The hinge loss; ``C`` is the price of a row's loss, as everywhere."""

    C: float

    def problem(self, n_rows: int, n_mean: float, n_all: int) -> HingeL2:
        return HingeL2(self.C * n_all / n_mean)

    def solver(self) -> Any:
        return BlockDual()


# -- how rows are divided ----------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """Centres of clusters as combinations of rows, and clusters within each."""

    points: Points
    coef: np.ndarray  # of points (down) in centres (across)
    squares: np.ndarray  # of the centres' lengths
    within: list[Split | None]

    def place(self, rows: RowsOnCPU) -> np.ndarray:
        """The nearest centre of every row."""
        return np.argmin(self.squares - 2 * rows.times(self.points, self.coef), axis=1)


# Gives the rows of each part, and the clusters if parts are such.
Divide = Callable[[RowsOnCPU, np.ndarray, int, int, np.random.Generator], tuple[list[np.ndarray], Split | None]]


def at_random(rows, y, n_parts, fan_in, rng):
    """Equal parts."""
    return partition_merge.spread_evenly(np.zeros(rows.n_rows), n_parts, rng), None


def strata_dealt(rows, y, n_parts, fan_in, rng):
    """Every part gets its share of every stratum, and of each class in it."""
    groups = partition_merge.strata(rows, partition_merge.landmarks(rows, N_STRATA))
    return partition_merge.spread_evenly(2 * groups + (y > 0), n_parts, rng), None


def clusters_dealt(rows, y, n_parts, fan_in, rng):
    """Every part gets its share of every cluster, and of each class in it."""
    groups = k_means(rows, N_CLUSTERS, rng).place(rows)
    return partition_merge.spread_evenly(2 * groups + (y > 0), n_parts, rng), None


def clusters(rows, y, n_parts, fan_in, rng):
    """Clusters of clusters, so that what is merged is a cluster too; some may be empty."""
    if n_parts == 1 or rows.n_rows < fan_in:
        return [np.arange(rows.n_rows), *[np.empty(0, np.intp)] * (n_parts - 1)], None
    split, parts = k_means(rows, fan_in, rng), []
    place = split.place(rows)
    for k in range(fan_in):
        mine = np.flatnonzero(place == k)
        inner, within = clusters(rows.only(mine), y[mine], n_parts // fan_in, fan_in, rng)
        parts += [mine[part] for part in inner]
        split.within.append(within)
    return parts, split


def k_means(rows: RowsOnCPU, n_clusters: int, rng: np.random.Generator) -> Split:
    """Kernel k-means on a sample of rows; centres begin at rows that are far apart from each other."""
    sample = np.sort(rng.choice(rows.n_rows, min(_SAMPLE, rows.n_rows), replace=False))
    points, few = rows.points(sample), rows.only(sample)
    K = few.rows(points).astype(np.float64)
    first = partition_merge.landmarks(few, n_clusters)
    place = np.argmin(np.diag(K)[first] - 2 * K[:, first], axis=1)
    coef = squares = np.empty(0)
    for _ in range(_ROUNDS):
        member = np.eye(n_clusters)[place]
        sizes = member.sum(axis=0)
        coef = member / np.maximum(sizes, 1)
        squares = np.where(sizes > 0, np.einsum("ij,ij->j", coef, K @ coef), np.inf)  # nothing is near an empty one
        before, place = place, np.argmin(squares - 2 * K @ coef, axis=1)
        if np.array_equal(place, before):
            break
    return Split(points, coef, squares, [])


# -- the tree ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """How rows are divided, which of them go up, and whether the price of the mean is kept or that of a row."""

    divide: Divide
    only_support: bool = False
    keeps_mean: bool = False


CASCADE = Tree(at_random, only_support=True)
DIP = Tree(clusters_dealt, only_support=True)
DC = Tree(clusters)
STRATA = Tree(strata_dealt, keeps_mean=True)


class Branch(NamedTuple):
    """A solved part."""

    rows: np.ndarray  # their numbers
    beta: np.ndarray
    intercept: float
    n_mean: int  # how many rows went into it, also those that were left behind
    gap: float
    seconds: float


class Level(NamedTuple):
    """A level of the tree; level 0 are the leaves."""

    branches: list[Branch]
    seconds: float  # of dividing and of all tasks so far, one after the other
    split: Split | None  # clusters, if parts are such
    depth: int  # of them

    @property
    def task_seconds(self) -> list[float]:
        return [branch.seconds for branch in self.branches]

    @property
    def largest_gap(self) -> float:
        return max(branch.gap for branch in self.branches)


@dataclass(frozen=True)
class Grown:
    """All levels of a tree, and what is needed to classify by them."""

    kernel: Kernel
    X: Any
    tree: Tree
    divide_seconds: float
    levels: list[Level]

    def scores(self, X: Any, level: int = -1) -> np.ndarray:
        """Of new rows, by the model of a level."""
        it = self.levels[level]
        rows = RowsOnCPU(self.kernel, X)
        if it.split is None or it.depth == 0:
            n_all = sum(branch.n_mean for branch in it.branches)
            factors = [branch.n_mean / n_all if self.tree.keeps_mean else 1.0 for branch in it.branches]
            beta, intercept = np.zeros(self.X.shape[0]), 0.0
            for branch, factor in zip(it.branches, factors, strict=True):
                beta[branch.rows] += factor * branch.beta
                intercept += factor * branch.intercept
            return self._sum(rows, np.arange(len(beta)), beta) + intercept
        scores, place = np.empty(rows.n_rows), _leaf(it.split, rows, it.depth)
        for k, branch in enumerate(it.branches):
            mine = np.flatnonzero(place == k)
            scores[mine] = self._sum(rows.only(mine), branch.rows, branch.beta) + branch.intercept
        return scores

    def accuracy(self, X: Any, y: np.ndarray, level: int = -1) -> float:
        return float(np.mean(np.where(self.scores(X, level) > 0, 1.0, -1.0) == y))

    def _sum(self, rows: RowsOnCPU, numbers: np.ndarray, beta: np.ndarray) -> np.ndarray:
        support = np.flatnonzero(beta)
        if not len(support) or not rows.n_rows:
            return np.zeros(rows.n_rows)
        return rows.times(Points(self.X[numbers[support]], numbers[support]), beta[support])


def grow(
    tree: Tree,
    machine: ODM | SVM,
    kernel: Kernel,
    X: Any,
    y: np.ndarray,
    n_parts: int,
    *,
    fan_in: int = 2,
    tol: float = 1e-3,
    loose: float = LOOSE,
    max_time: float = np.inf,
    n_rounds: int = 1,
    seed: int = 0,
) -> Grown:
    """Solve the leaves, merge every ``fan_in`` neighbours, and so on up to the root; tasks run one after the other.

    ``max_time`` bounds a task. In every further one of ``n_rounds`` the rows with a coefficient at the root go back to
    all leaves; it is for trees where only such rows go up.
    """
    rng, begin = np.random.default_rng(seed), time.perf_counter()
    rows = RowsOnCPU(kernel, X)
    parts, split = tree.divide(rows, y, n_parts, fan_in, rng)
    divide_seconds = seconds = time.perf_counter() - begin
    levels: list[Level] = []
    # Every part's rows, coefficients and size; at first no row has a coefficient.
    waiting = [(part, np.zeros(len(part)), len(part)) for part in parts]
    depth = round(np.log(n_parts) / np.log(fan_in))
    for number in range(n_rounds):
        levels = [] if number else levels
        while True:
            is_root = len(waiting) == 1
            limits = Limits(tol if is_root else max(tol, loose), 1_000_000, max_time)
            branches = [_solve(tree, machine, rows, y, *part, limits) for part in waiting]
            seconds += sum(branch.seconds for branch in branches)
            levels.append(Level(branches, seconds, split, depth - len(levels)))
            if is_root:
                break
            groups = [branches[k : k + fan_in] for k in range(0, len(branches), fan_in)]
            waiting = [_merged(tree, group) for group in groups]
        root = levels[-1].branches[0]
        beta = np.zeros(rows.n_rows)
        beta[root.rows] = root.beta
        support = np.flatnonzero(beta)
        waiting = [(both := np.union1d(part, support), beta[both], len(part)) for part in parts]
    return Grown(kernel, X, tree, divide_seconds, levels)


def _merged(tree: Tree, group: list[Branch]) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows that go up, each once and in their order, with coefficients to start from."""
    n_mean = sum(branch.n_mean for branch in group)
    if tree.only_support:
        group = [each._replace(rows=each.rows[each.beta != 0], beta=each.beta[each.beta != 0]) for each in group]
    factors = [each.n_mean / max(n_mean, 1) if tree.keeps_mean else 1.0 for each in group]
    rows, first = np.unique(np.concatenate([each.rows for each in group]), return_index=True)
    return rows, np.concatenate([f * each.beta for f, each in zip(factors, group, strict=True)])[first], n_mean


def _solve(tree, machine, rows, y, part, beta, n_mean, limits) -> Branch:
    """The problem of some rows, from some coefficients."""
    begin, n_all = time.perf_counter(), rows.n_rows
    signs = np.unique(y[part])
    if len(part) == 0 or (len(signs) == 1 and isinstance(machine, SVM)):  # an intercept is all that one class needs
        return Branch(part, np.zeros(len(part)), float(signs[0]) if len(part) else 0.0, n_mean, 0.0, 0.0)
    problem = machine.problem(len(part), n_mean if tree.keeps_mean else n_all, n_all)
    shard = Shard(rows.X[part], y[part], np.ones(len(part)), rows.only(part))
    warm = np.zeros(n_all)
    warm[part] = beta
    rng = np.random.default_rng([len(part), int(part[0])])
    result = run(machine.solver(), problem, shard, Solo(), limits, rng, warm=warm if beta.any() else None)
    found = np.zeros(n_all)
    found[result.model.points.numbers] = result.model.coef
    gap, seconds = result.certificate.relative, time.perf_counter() - begin
    return Branch(part, found[part], float(result.model.intercept), n_mean, gap, seconds)


def _leaf(split: Split | None, rows: RowsOnCPU, depth: int) -> np.ndarray:
    """The number of the part, among all of a depth, where rows lie."""
    if depth == 0 or rows.n_rows == 0:
        return np.zeros(rows.n_rows, np.intp)
    if split is None:  # too few rows for clusters: all lie in the first part
        return np.zeros(rows.n_rows, np.intp)
    place, fan_in = split.place(rows), len(split.within)
    number = place * fan_in ** (depth - 1)
    for k, within in enumerate(split.within):
        mine = np.flatnonzero(place == k)
        number[mine] += _leaf(within, rows.only(mine), depth - 1)
    return number
