"""Partition trees: parts of the rows are solved alone, merged by and by, and solved again from where they stood.

What SODM is compared with, for the optimal margin distribution machine (ODM) and for the hinge loss (SVM) alike:

    cascade   [1]: parts at random; two and two are merged, of which only rows with a coefficient go up, to one part
    DiP       [2]: k-means of each class in the features' own space; every cluster is dealt out to all parts, so that
              each has the first and second moments of the whole; then as the cascade
    DC        [3]: at every level kernel k-means, on a sample of the rows that had a coefficient at the one before, puts
              all rows anew into half as many clusters, which are solved from the coefficients that rows have; then the
              rows with a coefficient alone ("refine"), then all rows
    strata    [4]: SODM's own: strata around landmarks, dealt out; all rows go up. On the hinge loss it is SSVM

In the first three the price of a row is the same in a part as in the whole, and coefficients go up as they are: each
part is the dual of all rows with the other variables at 0. That is how [1] to [3] have it, and how the authors of [4]
have it in their code (github.com/CGCL-codes/SODM), there for SODM too: all four have the whole's M in every part. The
text of [4] has the part's own m for SODM, and so has the last one here: the price of the mean is the same, a part is
the whole problem in small, and coefficients go up times the share that their part has of all rows.

Before the root a model of all rows is the sum of what the parts found; of DC it is that of the cluster where a row to
be classified lies, the "early prediction" of [3].

Where trees end. All trees here go up to the root. In the code of [4] the cascade and DiP do so too; DC ends with the
rows that have a coefficient, without the problem of all rows; SODM ends with four parts, without the two largest
levels. Trees there begin with 64 leaves, DC with 81; here the benchmarks ask for eight.

What is left of differences. All trees have the same solvers, tolerances, number of leaves and fan-in, 2 ([3] merges by
4, the code of [4] by 3 for DC, and a cascade of [1] is binary). The cascade is a single pass, which [1] finds to be
enough, unless ``n_rounds`` asks for more, where the last rows go back to the leaves; it starts from the coefficients of
both halves, and not from their best combination. In DiP rows without a coefficient stay behind; [2] may also leave
behind those with one that are far from the boundary, by a threshold of which we do not know the value, and the authors
of [4] do not. [3] has no intercept, ours have.

[1] Graf, Cosatto, Bottou, Dourdanovic, Vapnik: Parallel support vector machines: the cascade SVM, NIPS 2004.
[2] Singh, Roy, Mohan: DiP-SVM: distribution preserving kernel support vector machine for big data, 2017.
[3] Hsieh, Si, Dhillon: A divide-and-conquer solver for kernel support vector machines, ICML 2014.
[4] Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, IJCAI 2023.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans

from widemargin.comm.solo import Solo
from widemargin.compiled.jit import compiled
from widemargin.compiled.margin_passes import best_coordinate
from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.protocol import Certificate
from widemargin.solvers import partition_merge
from widemargin.solvers.auto import kernel_margin
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.run import Limits, run

LOOSE = 0.1  # relative gap below the root, as in our own tree
N_STRATA = N_CLUSTERS = 32  # that are dealt out; clusters are of each class
_SAMPLE = 1000  # rows that kernel k-means works on, as in [3]
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
    """Centres of clusters as combinations of rows."""

    points: Points
    coef: np.ndarray  # of points (down) in centres (across)
    squares: np.ndarray  # of the centres' lengths

    def place(self, rows: RowsOnCPU) -> np.ndarray:
        """The nearest centre of every row."""
        return np.argmin(self.squares - 2 * rows.times(self.points, self.coef), axis=1)


# Gives the rows of each part.
Divide = Callable[[RowsOnCPU, np.ndarray, int, np.random.Generator], list[np.ndarray]]


def at_random(rows, y, n_parts, rng):
    """Equal parts."""
    return partition_merge.spread_evenly(np.zeros(rows.n_rows), n_parts, rng)


def strata_dealt(rows, y, n_parts, rng):
    """Every part gets its share of every stratum, and of each class in it."""
    groups = partition_merge.strata(rows, partition_merge.landmarks(rows, N_STRATA))
    return partition_merge.spread_evenly(2 * groups + (y > 0), n_parts, rng)


def clusters_dealt(rows, y, n_parts, rng):
    """Every part gets its share of every cluster of each class: Lloyd's k-means in the space of the features."""
    groups = np.empty(rows.n_rows, dtype=np.intp)
    for sign in np.unique(y):
        mine = np.flatnonzero(y == sign)
        means = KMeans(min(N_CLUSTERS, len(mine)), n_init=1, max_iter=_ROUNDS, random_state=int(rng.integers(2**31)))
        groups[mine] = means.fit_predict(rows.X[mine]) + (N_CLUSTERS if sign > 0 else 0)
    return partition_merge.spread_evenly(groups, n_parts, rng)


def k_means(rows: RowsOnCPU, n_clusters: int, rng: np.random.Generator, among: np.ndarray | None = None) -> Split:
    """Kernel k-means on a sample of (some) rows; centres begin at rows that are far apart from each other."""
    numbers = np.arange(rows.n_rows) if among is None else among
    sample = np.sort(rng.choice(numbers, min(_SAMPLE, len(numbers)), replace=False))
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
    return Split(points, coef, squares)


# -- the tree ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """How rows are divided, which of them go up, and whether the price of the mean is kept or that of a row.

    Without a way to divide, they are put into clusters anew at every level.
    """

    divide: Divide | None
    only_support: bool = False
    keeps_mean: bool = False


CASCADE = Tree(at_random, only_support=True)
DIP = Tree(clusters_dealt, only_support=True)
DC = Tree(None)
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
    divide_seconds: float  # of dividing for this level
    split: Split | None  # clusters, if parts are such

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
    levels: list[Level]

    def accuracies(self, X: Any, y: np.ndarray) -> list[float]:
        """Of every level on new rows; kernel values are computed once for all levels without clusters."""
        rows, scores = RowsOnCPU(self.kernel, X), {}
        whole = [k for k, level in enumerate(self.levels) if level.split is None]
        beta, intercepts = zip(*(self._together(self.levels[k]) for k in whole), strict=True)
        for k, each in zip(whole, (self._sum(rows, np.column_stack(beta)) + np.array(intercepts)).T, strict=True):
            scores[k] = each
        for k, level in enumerate(self.levels):
            if level.split is not None:
                scores[k] = self._by_cluster(level, level.split, rows)
        return [float(np.mean(np.where(scores[k] > 0, 1.0, -1.0) == y)) for k in range(len(self.levels))]

    def accuracy(self, X: Any, y: np.ndarray, level: int = -1) -> float:
        return self.accuracies(X, y)[level]

    def _together(self, level: Level) -> tuple[np.ndarray, float]:
        """Coefficients of all rows and the intercept, of all parts together."""
        n_all = sum(branch.n_mean for branch in level.branches)
        beta, intercept = np.zeros(self.X.shape[0]), 0.0
        for branch in level.branches:
            factor = branch.n_mean / n_all if self.tree.keeps_mean else 1.0
            beta[branch.rows] += factor * branch.beta
            intercept += factor * branch.intercept
        return beta, intercept

    def _by_cluster(self, level: Level, split: Split, rows: RowsOnCPU) -> np.ndarray:
        scores, place = np.empty(rows.n_rows), split.place(rows)
        for k, branch in enumerate(level.branches):
            mine = np.flatnonzero(place == k)
            beta = np.zeros(self.X.shape[0])
            beta[branch.rows] = branch.beta
            scores[mine] = self._sum(rows.only(mine), beta) + branch.intercept
        return scores

    def _sum(self, rows: RowsOnCPU, beta: np.ndarray) -> np.ndarray:
        support = np.flatnonzero(beta if beta.ndim == 1 else np.abs(beta).sum(axis=1))
        if not len(support) or not rows.n_rows:
            return np.zeros((rows.n_rows, *beta.shape[1:]))
        if self.kernel.name == "linear":
            return np.asarray(rows.X @ (self.X[support].T @ beta[support]))
        return rows.times(Points(self.X[support], support), beta[support])


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

    Parts below the root are solved to a relative gap of ``loose``. ``max_time`` bounds a task. In every further one of
    ``n_rounds`` the rows with a coefficient at the root go back to all leaves; it is for trees where only such rows go
    up.
    """
    rng, begin = np.random.default_rng(seed), time.perf_counter()
    rows = RowsOnCPU(kernel, X)
    limits = Limits(max(tol, loose), 1_000_000, max_time), Limits(tol, 1_000_000, max_time)
    if tree.divide is None:
        return Grown(kernel, X, tree, _by_clusters(tree, machine, rows, y, n_parts, fan_in, limits, rng))
    parts = tree.divide(rows, y, n_parts, rng)
    seconds = divided = time.perf_counter() - begin
    levels: list[Level] = []
    # Every part's rows, coefficients and size; at first no row has a coefficient.
    waiting = [(part, np.zeros(len(part)), len(part)) for part in parts]
    for number in range(n_rounds):
        levels = [] if number else levels
        while True:
            is_root = len(waiting) == 1
            branches = [_solve(tree, machine, rows, y, *part, limits[is_root]) for part in waiting]
            seconds += sum(branch.seconds for branch in branches)
            levels.append(Level(branches, seconds, 0.0 if levels else divided, None))
            if is_root:
                break
            groups = [branches[k : k + fan_in] for k in range(0, len(branches), fan_in)]
            waiting = [_merged(tree, group) for group in groups]
        beta = _spread([levels[-1].branches[0]], rows.n_rows)
        support = np.flatnonzero(beta)
        waiting = [(both := np.union1d(part, support), beta[both], len(part)) for part in parts]
    return Grown(kernel, X, tree, levels)


def _by_clusters(tree, machine, rows, y, n_parts, fan_in, limits, rng) -> list[Level]:
    """Algorithm 1 of [3]: clusters anew at every level, then the rows with a coefficient, then all."""
    levels: list[Level] = []
    beta, among, seconds = np.zeros(rows.n_rows), np.arange(rows.n_rows), 0.0
    while n_parts > 1:
        begin = time.perf_counter()
        split = k_means(rows, n_parts, rng, among)
        place = split.place(rows)
        divided = time.perf_counter() - begin
        parts = [np.flatnonzero(place == k) for k in range(n_parts)]
        branches = [_solve(tree, machine, rows, y, part, beta[part], len(part), limits[0]) for part in parts]
        seconds += divided + sum(branch.seconds for branch in branches)
        levels.append(Level(branches, seconds, divided, split))
        beta = _spread(branches, rows.n_rows)
        among = np.flatnonzero(beta) if beta.any() else among
        n_parts //= fan_in
    for part, limit in ((among, limits[0]), (np.arange(rows.n_rows), limits[1])):
        branch = _solve(tree, machine, rows, y, part, beta[part], len(part), limit)
        seconds += branch.seconds
        levels.append(Level([branch], seconds, 0.0, None))
        beta = _spread([branch], rows.n_rows)
    return levels


def _spread(branches: Sequence[Branch], n_rows: int) -> np.ndarray:
    """Coefficients of all rows."""
    beta = np.zeros(n_rows)
    for branch in branches:
        beta[branch.rows] = branch.beta
    return beta


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
    rng = np.random.default_rng([len(part), int(part[0])])
    if rows.kernel.name == "linear" and isinstance(machine, ODM):
        found, intercept, gap = _descend_linear(problem, rows.X[part], y[part], beta, limits, rng)
        return Branch(part, found, intercept, n_mean, gap, time.perf_counter() - begin)
    shard = Shard(rows.X[part], y[part], np.ones(len(part)), rows.only(part))
    warm = np.zeros(n_all)
    warm[part] = beta
    result = run(machine.solver(), problem, shard, Solo(), limits, rng, warm=warm if beta.any() else None)
    found = np.zeros(n_all)
    found[result.model.points.numbers] = result.model.coef
    gap, seconds = result.certificate.relative, time.perf_counter() - begin
    return Branch(part, found[part], float(result.model.intercept), n_mean, gap, seconds)


# -- the linear kernel -------------------------------------------------------------------------------------------------


def _descend_linear(
    problem: MarginDistribution, X: Any, y: np.ndarray, beta: np.ndarray, limits: Limits, rng: np.random.Generator
) -> tuple[np.ndarray, float, float]:
    """Dual coordinate descent that keeps w, in random order: coefficients, intercept and relative gap.

    A sweep costs as many operations as the rows have entries, where that of a kernel costs the square of the rows.
    """
    end, rows = time.perf_counter() + limits.max_time, sp.csr_matrix(X)
    curvature = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() + problem.constant
    steep = problem.steep(np.ones(len(y)), float(len(y)))
    g, gap = beta * y, np.inf
    w = np.append(rows.T @ beta, problem.constant * beta.sum())
    for _ in range(limits.max_iter):
        order = rng.permutation(len(y))
        _linear_sweep(rows.data, rows.indices, rows.indptr, y, steep, curvature, *problem.shape, g, w, order)
        margin, size = y * (rows @ w[:-1] + problem.constant * w[-1]), float(w @ w)
        gain, square = problem.dual_terms(g, steep)
        primal = problem.primal_value(problem.loss(margin, steep), size)
        gap = Certificate(primal, problem.dual_value(gain, square + size)).relative
        if gap <= limits.tol or time.perf_counter() > end:
            break
    return g * y, float(problem.constant * w[-1]), gap


@compiled()
def _linear_sweep(data, indices, indptr, y, steep, curvature, low, high, v, g, w, order):
    last = w.shape[0] - 1
    for k in range(order.shape[0]):
        i = order[k]
        score = w[last]
        for j in range(indptr[i], indptr[i + 1]):
            score += data[j] * w[indices[j]]
        change = best_coordinate(y[i] * score - curvature[i] * g[i], curvature[i], steep[i], low, high, v) - g[i]
        if change != 0.0:
            g[i] += change
            for j in range(indptr[i], indptr[i + 1]):
                w[indices[j]] += change * y[i] * data[j]
            w[last] += change * y[i]
