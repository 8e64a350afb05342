"""How is a fit of the margin distribution machine's paper measured? Rows, parameters, and what runs in each child.

Sets bear the paper's names and have its rows: features in [0, 1] by the training rows, 80% of the rows, chosen at
random by class with the number of the split as seed, for training. "a7a" and ijcnn1 are their training and test files
together, and so is svmguide1: that gives the sizes of the paper's Table 1. Of cod-rna (standardised by its source) and
SUSY there are samples of 30,000 rows.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split

from benchmarks import _harness as harness
from benchmarks import _sets as sets
from benchmarks.baselines import coreset_svrg
from benchmarks.baselines.partition_trees import CASCADE, DC, DIP, ODM, STRATA, SVM, Level, grow, strata_dealt
from widemargin import KernelSVC, MarginDistributionSVC
from widemargin.comm.protocol import Communicator
from widemargin.comm.solo import Solo
from widemargin.comm.threads import on_ranks
from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.margin_primal import LinearMarginSolver, MarginPrimal, Point, Rows
from widemargin.solvers.svrg import SVRG

FILES = {
    "svmguide1": ("svmguide1", "svmguide1.t"),
    "a7a": ("a7a", "a7a.t"),
    "cod-rna": ("cod-rna_30k",),
    "ijcnn1": ("ijcnn1", "ijcnn1.t"),
    "SUSY": ("susy_30k",),
}
SAMPLES = ("cod-rna", "SUSY")  # of 59,535 and of 5,000,000 rows
SPARSE = ("a7a", "a9a")
QUICK_ROWS, QUICK_TEST_ROWS = 1_500, 1_000


# -- rows --------------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """Training and test rows of a split, scaled."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    n_train: int  # before some were left out


def load(name: str, split: int, most: int | None = None, most_test: int | None = None) -> Task:
    """A split of a set. Rows of 0 and 1 stay sparse."""
    parts = [sets.load(file) for file in FILES.get(name, (name,))]
    X, y = parts[0]
    if len(parts) > 1:
        X = sp.vstack([sp.csr_matrix(part.X) for part in parts], format="csr")
        y = np.concatenate([part.y for part in parts])
    X = X.tocsr().astype(np.float64) if name in SPARSE else X.toarray() if sp.issparse(X) else np.asarray(X, float)
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=split, stratify=y)
    n_train = len(train)
    train, test = part_of(train, y, most, split), part_of(test, y, most_test, split)
    X_train, X_test = X[train], X[test]
    if not sp.issparse(X):
        low, high = X_train.min(axis=0), X_train.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        X_train, X_test = (X_train - low) / width, np.clip((X_test - low) / width, 0.0, 1.0)
    return Task(X_train, y[train], X_test, y[test], n_train)


def task_of(name: str, split: int, quick: bool) -> Task:
    """All rows of a split, or few."""
    return load(name, split, QUICK_ROWS, QUICK_TEST_ROWS) if quick else load(name, split)


def part_of(rows: np.ndarray, y: np.ndarray, most: int | None, seed: int) -> np.ndarray:
    """At most so many of some rows, by class."""
    if most is None or len(rows) <= most:
        return rows
    return train_test_split(rows, train_size=most, random_state=seed, stratify=y[rows])[0]


def gamma_scale(X: Any) -> float:
    """scikit-learn's: one over the number of features times the variance of all entries."""
    if sp.issparse(X):
        mean = X.mean()
        return float(1 / (X.shape[1] * (X.multiply(X).mean() - mean**2)))
    return float(1 / (X.shape[1] * X.var()))


def accuracy_of(model: Any, task: Task) -> float:
    return float(np.mean(model.predict(task.X_test) == task.y_test))


# -- parameters --------------------------------------------------------------------------------------------------------

TUNED_ON, LOOKED_AT_AGAIN = 5_000, 20_000  # rows
SECOND_LOOK = 4  # points of the grid: on few rows several are equal but for chance
GAMMAS = (0.25, 0.5, 1.0, 4.0, 16.0)  # times "scale"
C_ODM, C_SVM, C_LINEAR = (1e3, 1e4, 1e5, 1e6), (1.0, 10.0, 100.0, 1_000.0), (10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
TUNED = ("ODM", "SVM", "linear ODM")


def one_tuning(name: str, machine: str, quick: bool) -> dict[str, Any]:
    """Child: C, and gamma, by three folds of some training rows of the first split, and of more for the best of them.

    Trials need not be exact to be compared.
    """
    task = task_of(name, 0, quick)
    sizes = (300, 600) if quick else (TUNED_ON, LOOKED_AT_AGAIN)
    few, more = (part_of(np.arange(len(task.y)), task.y, n, 0) for n in sizes)
    gammas = [gamma_scale(task.X[few]) * factor for factor in (GAMMAS[2:4] if quick else GAMMAS)]
    estimator: Any = MarginDistributionSVC(random_state=0, max_time=20.0, tol=1e-2)
    grid: dict[str, Sequence[float]] = {"C": C_ODM, "gamma": gammas}
    if machine == "SVM":
        estimator, grid["C"] = KernelSVC(random_state=0, max_time=20.0), C_SVM
    if machine == "linear ODM":
        estimator.set_params(kernel="linear", tol=1e-6)
        grid, few = {"C": C_LINEAR}, more
    if quick:
        grid["C"] = grid["C"][1:3]
    begin = time.process_time()
    with harness.quietly():
        folds = StratifiedKFold(3, shuffle=True, random_state=0)
        search = GridSearchCV(estimator, dict(grid), cv=folds, refit=False).fit(task.X[few], task.y[few])
        if machine != "linear ODM":
            best = np.argsort(search.cv_results_["rank_test_score"], kind="stable")[:SECOND_LOOK]
            again = [{key: [value] for key, value in search.cv_results_["params"][k].items()} for k in best]
            search = GridSearchCV(estimator, again, cv=folds, refit=False).fit(task.X[more], task.y[more])
    chosen = {key: float(value) for key, value in search.best_params_.items()}
    return {"chosen": chosen, "score": float(search.best_score_), "cpu_seconds": time.process_time() - begin}


# -- Tables 2, 3 and 4 -------------------------------------------------------------------------------------------------

TREES = {"Ca": CASCADE, "DiP": DIP, "DC": DC, "SODM": STRATA, "SSVM": STRATA}
ODMS, SVMS = ("Ca-ODM", "DiP-ODM", "DC-ODM", "SODM"), ("Ca-SVM", "DiP-SVM", "DC-SVM", "SSVM")
TABLE_PARTS = 8
TOL = 1e-3  # relative gap of every part of every tree, and of the whole
EPOCHS = 3  # points of SODM with the linear kernel: "every one third of epochs"


def one_machine(name: str, split: int, kernel: str, settings: dict[str, float], quick: bool) -> dict[str, Any]:
    """Child: the problem of all rows at once; the linear one by Newton's method."""
    task = task_of(name, split, quick)
    model = MarginDistributionSVC(kernel=kernel, random_state=0, tol=TOL if kernel == "rbf" else 1e-9, **settings)
    with harness.quietly():
        model.fit(task.X[:1_000], task.y[:1_000])
        timing, model = harness.measure_peer(lambda: model.fit(task.X, task.y), repeats=1)
    found = {"accuracy": accuracy_of(model, task), "gap": model.certificate_.relative, "stop": model.stop_reason_}
    return {**asdict(timing), "n": len(task.y), **found}


def one_entry(name: str, split: int, kernel: str, who: str, settings: dict[str, float], quick: bool) -> dict[str, Any]:
    """Child: one tree. The linear SODM is DSVRG on as many nodes, with a level for every third of its epochs."""
    task, n_parts = task_of(name, split, quick), 4 if quick else TABLE_PARTS
    if who == "SODM" and kernel == "linear":
        return entry_of_dsvrg(task, settings["C"], n_parts)
    settings = dict(settings)
    bound = Kernel(kernel, settings.pop("gamma", None) or gamma_scale(task.X))
    tree, machine = TREES[who.split("-")[0]], (SVM if who in SVMS else ODM)(**settings)
    with harness.quietly():
        grow(tree, machine, bound, task.X[:600], task.y[:600], n_parts, max_time=5.0)
        begin = time.process_time()
        grown = grow(tree, machine, bound, task.X, task.y, n_parts, loose=TOL, tol=TOL)
        cpu_seconds = time.process_time() - begin
        right = grown.accuracies(task.X_test, task.y_test)
    return {
        "n": len(task.y),
        "seconds": grown.levels[-1].seconds,
        "cpu_seconds": cpu_seconds,
        "parallel": in_parallel(grown.levels, n_parts),
        "levels": [
            {
                "n_parts": len(level.branches),
                "seconds": level.seconds,
                "parallel": in_parallel(grown.levels[: k + 1], n_parts),
                "divide_seconds": level.divide_seconds,
                "n_rows": sum(len(branch.rows) for branch in level.branches),
                "largest_part": max(len(branch.rows) for branch in level.branches),
                "gap": level.largest_gap,
                "accuracy": right[k],
            }
            for k, level in enumerate(grown.levels)
        ],
    }


def in_parallel(levels: Sequence[Level], n_workers: int) -> float:
    """Projected seconds of levels on workers; dividing is not shared."""
    return sum(level.divide_seconds for level in levels) + scheduled([each.task_seconds for each in levels], n_workers)


def scheduled(tasks: Sequence[Sequence[float]], n_workers: int, before: float = 0.0) -> float:
    """Seconds of levels of tasks, one level after the other, each task given to the worker that is free first."""
    total = before
    for level in tasks:
        free = [0.0] * n_workers
        for seconds in level:
            heapq.heappush(free, heapq.heappop(free) + seconds)
        total += max(free)
    return total


def entry_of_dsvrg(task: Task, C: float, n_nodes: int) -> dict[str, Any]:
    """SODM with the linear kernel: on one core, to the gap that the trees are asked for."""
    on_one_core()
    problem = MarginDistribution(C)
    warm_up(SVRG(), problem, task, n_nodes)
    nodes, divided = nodes_of(task.X, task.y, n_nodes)
    begin = time.process_time()
    run = epochs(SVRG(), problem, task.X, task.y, nodes, tol=TOL)
    cpu_seconds, last = time.process_time() - begin, len(run) - 1
    places = sorted({max(1, round(last * (k + 1) / EPOCHS)) for k in range(EPOCHS)}) if last else [0]
    levels = []
    for k in places:
        of_steps = run[k].step_seconds
        levels.append(
            {
                "n_parts": n_nodes,
                "epochs": k,
                "seconds": divided + run[k].seconds,
                "parallel": divided + of_steps + (run[k].seconds - of_steps) / n_nodes,
                "n_rows": len(task.y),
                "gap": run[k].gap,
                "accuracy": linear_accuracy(run[k].w, task),
            }
        )
    whole = {"n": len(task.y), "seconds": levels[-1]["seconds"], "cpu_seconds": cpu_seconds}
    return {**whole, "parallel": levels[-1]["parallel"], "step_seconds": run[-1].step_seconds, "levels": levels}


def on_one_core() -> None:
    """Threads of this process take turns, so that its seconds are those of one worker."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[os.getpid() % len(mine)]})


def linear_accuracy(w: np.ndarray, task: Task) -> float:
    """Of a model whose last entry is the intercept."""
    scores = task.X_test @ w[:-1] + w[-1]
    return float(np.mean(np.where(scores > 0, 1.0, -1.0) == task.y_test))


# -- gradient methods --------------------------------------------------------------------------------------------------


class Epoch(NamedTuple):
    """A model on the way; the last entry of w is the intercept."""

    seconds: float
    step_seconds: float  # of them for steps, which nodes take one after the other
    objective: float
    gap: float
    w: np.ndarray


def nodes_of(X: Any, y: np.ndarray, n_nodes: int) -> tuple[list[np.ndarray], float]:
    """Algorithm 2, lines 1 to 3: rows dealt out from strata; and its seconds."""
    begin = time.perf_counter()
    if n_nodes == 1:
        return [np.arange(len(y))], 0.0
    nodes = strata_dealt(RowsOnCPU(Kernel("linear"), X), y, n_nodes, np.random.default_rng(0))
    return nodes, time.perf_counter() - begin


def warm_up(solver: LinearMarginSolver, problem: MarginDistribution, task: Task, n_nodes: int) -> None:
    """Few epochs on few rows, so that nothing is compiled on the clock."""
    X, y = task.X[:600], task.y[:600]
    epochs(solver, problem, X, y, nodes_of(X, y, n_nodes)[0], max_epochs=3)


class _Clocked(SVRG):
    """SVRG that sums up the seconds of its steps, in all ranks of this process."""

    taken = 0.0

    @staticmethod
    def _pass(*arguments: Any) -> np.ndarray:
        begin = time.perf_counter()
        passed = SVRG._pass(*arguments)
        _Clocked.taken += time.perf_counter() - begin
        return passed


def epochs(
    solver: LinearMarginSolver,
    problem: MarginDistribution,
    X: Any,
    y: np.ndarray,
    nodes: Sequence[np.ndarray],
    *,
    tol: float = 0.0,
    max_time: float = np.inf,
    max_epochs: int = 100_000,
) -> list[Epoch]:
    """Every epoch of a linear solver, from w = 0, with a thread for each node."""
    if isinstance(solver, SVRG):
        solver = _Clocked()
    shards = [Shard(X[node], y[node], np.ones(len(node))) for node in nodes]
    _Clocked.taken, begin, found = 0.0, time.perf_counter(), []

    def work(comm: Communicator) -> None:
        state = solver.start(problem, shards[comm.rank], comm, np.random.default_rng(0))
        for k in range(max_epochs + 1):
            seconds = time.perf_counter() - begin
            point = state.point
            if comm.rank == 0:
                certificate = point.certificate
                found.append(Epoch(seconds, _Clocked.taken, certificate.primal, state.certificate.relative, point.w))
            is_over = state.certificate.relative <= tol or state.is_stuck or k == max_epochs
            if comm.allreduce(np.array([float(seconds > max_time)]))[0] or is_over:
                return
            state = solver.sweep(state)

    on_ranks(len(nodes), work)
    return found


GRADIENT = ("SVRG", "DSVRG, 4 nodes", "CSVRG", "Newton")
_PASSES = {"Newton": 3.0}  # of an epoch; others have 2
_MOST_POINTS = 30  # of a curve, and some at its beginning
_MOST_PASSES = 300.0  # of CSVRG, which has no gap to stop by


def one_optimum(name: str, split: int, C: float, quick: bool) -> dict[str, float]:
    """Child: the objective to ten digits."""
    task = task_of(name, split, quick)
    with harness.quietly():
        model = MarginDistributionSVC(C=C, kernel="linear", tol=1e-11, max_iter=200).fit(task.X, task.y)
    gap = model.certificate_.relative
    return {"objective": model.certificate_.primal, "gap": gap, "accuracy": accuracy_of(model, task), "n": len(task.y)}


def one_gradient(name: str, split: int, who: str, C: float, seconds: float, quick: bool) -> dict[str, Any]:
    """Child: one method; passes are rows touched by all rows: of an SVRG epoch one for its gradient and one of steps.

    A Newton step passes for its gradient, for its Hessian and for the margins of its direction. Objective and accuracy
    of the points are computed off the clock.
    """
    task, problem = task_of(name, split, quick), MarginDistribution(C)
    if who == "CSVRG":
        return by_coreset(task, problem, seconds)
    solver = MarginPrimal() if who == "Newton" else SVRG()
    n_nodes = 4 if who.startswith("DSVRG") else 1
    warm_up(solver, problem, task, n_nodes)
    nodes, divided = nodes_of(task.X, task.y, n_nodes)
    with harness.quietly():
        run = epochs(solver, problem, task.X, task.y, nodes, tol=1e-9, max_time=seconds)
    each = _PASSES.get(who, 2.0)
    points = [
        {
            "seconds": divided + run[k].seconds,
            "passes": each * k,
            "objective": run[k].objective,
            "accuracy": linear_accuracy(run[k].w, task),
        }
        for k in _some(len(run))
    ]
    last = run[-1]
    shares = {"divide_seconds": divided, "step_seconds": last.step_seconds, "gradient_seconds": None}
    shares["gradient_seconds"] = last.seconds - last.step_seconds
    return {"points": points, "n": len(task.y), **shares}


def by_coreset(task: Task, problem: MarginDistribution, seconds: float) -> dict[str, Any]:
    """CSVRG to the end of its time, or of its passes."""
    rng = np.random.default_rng(0)
    coreset_svrg.train(problem, task.X[:400], task.y[:400], rng, max_passes=4.0)
    found = coreset_svrg.train(problem, task.X, task.y, rng, max_time=seconds, max_passes=_MOST_PASSES)
    rows = Rows.of(problem, Shard(task.X, task.y, np.ones(len(task.y))), Solo(), rng)
    points = [
        {
            "seconds": found.points[k].seconds,
            "passes": found.points[k].passes,
            "objective": Point.at(rows, found.points[k].w, rows.margins(found.points[k].w)).certificate.primal,
            "accuracy": linear_accuracy(found.points[k].w, task),
        }
        for k in _some(len(found.points))
    ]
    size = {"core_points": len(found.coreset.rows), "cover_seconds": found.cover_seconds}
    return {"points": points, "n": len(task.y), **size}


def _some(n: int) -> list[int]:
    """Some of so many places, denser at the beginning, the last among them."""
    return sorted({*range(min(n, 8)), *(np.geomspace(1, n, _MOST_POINTS).astype(int) - 1).tolist()})


# -- Figure 2 ----------------------------------------------------------------------------------------------------------

WORKERS = (1, 2, 4, 8, 16, 32)
N_PARTS = 32
LINEAR_EPOCHS = 20


def one_tree(name: str, settings: dict[str, float], n_ranks: int, quick: bool) -> dict[str, Any]:
    """Child: SODM's tree to the root on threads; what came before the first level is dividing."""
    task = task_of(name, 0, quick)
    model = MarginDistributionSVC(solver="partition-merge", random_state=0, cluster=n_ranks, **settings)
    model.set_params(n_partitions=8 if quick else N_PARTS)
    with harness.quietly():
        model.fit(task.X[:1_000], task.y[:1_000])
        timing, model = harness.measure_peer(lambda: model.fit(task.X, task.y), repeats=1)
    divide = max(0.0, timing.seconds - model.levels_[-1].seconds)
    levels = [
        {
            "n_parts": level.n_parts,
            "seconds": divide + level.seconds,
            "task_seconds": level.task_seconds,
            "gap": level.largest_gap,
        }
        for level in model.levels_
    ]
    return {**asdict(timing), "n": len(task.y), "divide_seconds": divide, "levels": levels}


def one_dsvrg(name: str, C: float, n_ranks: int, quick: bool) -> dict[str, Any]:
    """Child: so many epochs of the linear SODM on threads, and how long its steps take, which nodes take in turn."""
    task = task_of(name, 0, quick)
    if n_ranks == 1:
        on_one_core()
    problem, nodes = MarginDistribution(C), nodes_of(task.X, task.y, n_ranks)[0]
    warm_up(SVRG(), problem, task, n_ranks)
    runs = [epochs(SVRG(), problem, task.X, task.y, nodes, max_epochs=LINEAR_EPOCHS)[-1] for _ in range(3)]
    middle = sorted(runs, key=lambda run: run.seconds)[1]
    return {"n": len(task.y), "seconds": middle.seconds, "step_seconds": middle.step_seconds}


def projections(tree: dict[str, Any]) -> dict[str, list[float]]:
    """Times faster than one worker, to the root and to the level before, where the paper's algorithm ends."""
    tasks, before = [level["task_seconds"] for level in tree["levels"]], tree["divide_seconds"]
    found = {}
    for what, these in (("to the root", tasks), ("to the last two parts", tasks[:-1])):
        alone = scheduled(these, 1, before)
        found[what] = [alone / scheduled(these, n_workers, before) for n_workers in WORKERS]
    return found


def linear_projections(run: dict[str, Any]) -> dict[str, list[float]]:
    """Of an epoch with a step on every row, as ours, and with a step on every node, as Algorithm 2 prints it.

    The gradient is shared among workers, steps are taken one after the other; sending w costs nothing.
    """
    steps, n = run["step_seconds"], run["n"]
    gradient = max(run["seconds"] - steps, 0.0)

    def faster(step_seconds: Callable[[int], float]) -> list[float]:
        return [(gradient + step_seconds(k)) / (gradient / k + step_seconds(k)) for k in WORKERS]

    return {"a step on every row": faster(lambda k: steps), "a step on every node": faster(lambda k: steps * k / n)}
