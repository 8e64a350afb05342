"""How are fits on several cores measured? In one process for each library and number of cores, asked in turn.

A :class:`Contestant` is such a process: bound to its cores, told its number of threads before it imports anything, and
kept, so that rows are loaded and code is compiled once. :func:`interleaved` asks all of them one after the other, round
by round; the first round, in which ours compiles, is left out. What takes over twenty seconds is not repeated.
"""

from __future__ import annotations

import lzma
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from benchmarks import _harness as harness
from benchmarks import _kernel_runs as runs
from benchmarks import _kernel_sets as sets
from benchmarks._kernel_sets import Task

OURS, INTELEX, SKLEARN = "widemargin", "scikit-learn-intelex", "scikit-learn"
_STARTUP = 300.0  # seconds until a contestant is ready, on a busy machine


class Contestant:
    """A process with so many cores, which calls module-level functions with its library as the first argument."""

    def __init__(self, library: str, n_threads: int) -> None:
        self.library, self.n_threads = library, n_threads
        self._process: Any = None

    def ask(self, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
        """What the function returned; None if it took over ``limit`` seconds, and the process is then replaced."""
        if self._process is None:
            self._start()
        self._pipe.send((function, arguments))
        if not self._pipe.poll(limit):
            self.close()
            return None
        kind, value = self._pipe.recv()
        if kind == "error":
            raise RuntimeError(f"{self.library} on {self.n_threads} threads:\n{value}")
        return value

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.library, self.n_threads), daemon=True)
        with _bound(self.n_threads), harness._environment(runs.threads(self.n_threads)):
            self._process.start()
        if not self._pipe.poll(_STARTUP):
            raise RuntimeError(f"{self.library} on {self.n_threads} threads did not start")
        self._pipe.recv()


@contextmanager
def _bound(n: int) -> Iterator[None]:
    """Processes that are started inside the block have ``n`` cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:n])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _serve(pipe: Any, library: str, n_threads: int) -> None:
    import traceback

    if library == INTELEX:
        from daal4py import daalinit

        daalinit(nthreads=n_threads)
    pipe.send("ready")
    while True:
        function, arguments = pipe.recv()
        try:
            with harness.quietly():
                pipe.send(("value", function(library, *arguments)))
        except BaseException:
            pipe.send(("error", traceback.format_exc()))


def interleaved(
    contestants: Mapping[str, Contestant], function: Callable[..., Any], *arguments: Any, repeats: int, limit: float
) -> dict[str, Any]:
    """For each contestant the last answer, with the median of its ``seconds`` and all of them; None over the limit."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    is_out: set[str] = set()
    for _ in range(repeats + 1):
        for name, contestant in contestants.items():
            done = answers[name]
            is_warm = len(done) > 1 or (len(done) == 1 and contestant.library != OURS)  # peers compile nothing
            if name in is_out or (is_warm and done[-1]["seconds"] > harness.SLOW):
                continue
            answer = contestant.ask(function, *arguments, limit=limit)
            if answer is None:
                is_out.add(name)
            else:
                done.append(answer)
    return {name: None if name in is_out else _summary(each) for name, each in answers.items()}


def _summary(answers: list[dict[str, Any]]) -> dict[str, Any]:
    warm = answers[1:] or answers
    timed = [key for key in warm[-1] if key.endswith("seconds")]
    medians = {key: median(each[key] for each in warm) for key in timed}
    return {**warm[-1], **medians, "runs": [each["seconds"] for each in warm], "first": answers[0]["seconds"]}


# -- what contestants do: their library is the first argument ----------------------------------------------------------


def timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    outcome = work()
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}, outcome


_kept: dict[str, Any] = {}


@cache
def task_of(name: str) -> Task:
    """Dense float32 rows for everybody; ``usps`` has ten classes."""
    if name in ("usps", "w8a"):
        gamma, C = (1 / 128, 10.0) if name == "usps" else (0.05, 8.0)
        train = in_folder(name)
        task = Task(name, *train, *in_folder(f"{name}.t", train[0].shape[1]), gamma, C, True)
    else:
        task = sets.task(name)
    return task._replace(X=dense(task.X), X_test=dense(task.X_test))


def in_folder(name: str, n_features: int | None = None) -> tuple[Any, np.ndarray]:
    """A set that the package does not know by name, from the folder of data sets."""
    path = Path(os.environ["WIDEMARGIN_DATA"]) / name
    if path.with_name(f"{name}.npz").exists():
        with np.load(path.with_name(f"{name}.npz"), allow_pickle=False) as arrays:
            return arrays["X"], arrays["y"]
    with lzma.open(path.with_name(f"{name}.xz")) as file:
        X, y = load_svmlight_file(file, n_features=n_features)
    return X, y


def dense(X: Any) -> np.ndarray:
    return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float32)


def kernel_fit(library: str, name: str, multi_class: str, n_rows: int | None) -> dict[str, Any]:
    """Fit to the tolerance 1e-3, each library's own, and predict the test rows."""
    task = task_of(name)
    task = task if n_rows is None else sets.part_of(task, n_rows, 2_000)
    model = _kernel_model(library, task, multi_class)
    found, _ = timed(lambda: model.fit(task.X, task.y))
    model.predict(task.X_test[:100])
    predicted, labels = timed(lambda: model.predict(task.X_test))
    found |= {
        "predict_seconds": predicted["seconds"],
        "test_error": float(np.mean(labels != task.y_test)),
        "n": len(task.y),
        "d": task.X.shape[1],
    }
    if library == OURS:
        found["kernel values / n^2"] = model.cost_.kernel_evaluations / len(task.y) ** 2
        found["gap"], found["kernel_evaluations"] = model.certificate_.relative, model.cost_.kernel_evaluations
    if hasattr(model, "support_"):
        found["n_support"] = len(np.ravel(model.support_))
    _kept["fit"] = task, model
    return found


def kernel_objective(library: str) -> dict[str, Any]:
    """The truth about the last model, of two classes, in float64."""
    task, model = _kept["fit"]
    coef = model.dual_coef_.toarray() if sp.issparse(model.dual_coef_) else np.asarray(model.dual_coef_)
    return runs.truth(task, np.ravel(model.support_), coef.ravel().astype(np.float64))


def _kernel_model(library: str, task: Task, multi_class: str) -> Any:
    if library == OURS:
        from widemargin import KernelSVC

        return KernelSVC(C=task.C, gamma=task.gamma, tol=1e-3, multi_class=multi_class, random_state=0)
    if library == INTELEX:
        from sklearnex.svm import SVC  # its threads were set when this process began
    else:
        from sklearn.svm import SVC
    model = SVC(C=task.C, gamma=task.gamma, cache_size=runs.CACHE, tol=runs.VIOLATION)
    if multi_class == "rest" and len(np.unique(task.y)) > 2:
        from sklearn.multiclass import OneVsRestClassifier

        return OneVsRestClassifier(model)
    return model


@cache
def tall_rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = np.where(X @ rng.standard_normal(d, dtype=np.float32) / d**0.5 + 0.5 * rng.standard_normal(n) > 0, 1, -1)
    return X, y


def linear_model(name: str) -> Any:
    """A linear model of ours or of a peer by the name in tables."""
    from sklearn.svm import LinearSVC

    from widemargin import KernelSVC, MarginDistributionSVC, NuMarginSVC, SparseSVC

    return {
        "nu": lambda: NuMarginSVC(),
        "nu .3": lambda: NuMarginSVC(nu=0.3),  # on tall_rows a proof of overlap
        "nu .5": lambda: NuMarginSVC(nu=0.5),
        "linear": lambda: KernelSVC(kernel="linear"),
        "margin distribution": lambda: MarginDistributionSVC(kernel="linear"),
        "sparse": lambda: SparseSVC(alpha=1e-3),
        "LinearSVC": lambda: LinearSVC(dual="auto", tol=1e-3),
    }[name]()


def rows_fit(library: str, name: str, n: int, d: int) -> dict[str, Any]:
    """A linear fit to tall rows, and the part of its time before the first sweep."""
    X, y = tall_rows(n, d)
    model = linear_model(name)
    found, _ = timed(lambda: model.fit(X, y))
    if library == OURS:
        solving = sum(part.history[-1]["seconds"] for part in model.parts_ if part.history)
        found["checking_seconds"] = found["seconds"] - solving
        found["gap"], found["stop_reason"] = model.certificate_.relative, model.stop_reason_
    predicted, _ = timed(lambda: model.predict(X))
    return found | {"predict_seconds": predicted["seconds"]}


@cache
def forest(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The first ``n`` rows of cover type 2 against the rest, in a fixed order, features scaled to [0, 1]."""
    X, y, _, _ = sets._rows("forest")
    X, y = X[:n], y[:n]
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - low) / np.where(high > low, high - low, 1).astype(np.float32), y


def growth_fit(library: str, name: str, n: int) -> dict[str, Any]:
    """Seconds of a fit to ``n`` rows of covtype, and the memory it took beyond what was there, in MiB."""
    X, y = forest(n)
    if name in ("rbf", "SVC"):
        model: Any = _kernel_model(library, Task(name, X, y, X, y, 1.0, 10.0, True), "pairs")
    elif name == "NuSVC":
        from sklearn.svm import NuSVC

        model = NuSVC(kernel="linear", nu=0.3)
    else:
        model = linear_model(name)
    before = _reset_peak()
    found, _ = timed(lambda: model.fit(X, y))
    return found | {"MiB": None if before is None else _peak() - before}


def _reset_peak() -> float | None:
    """The memory of this process now, from which its peak counts; None where the system does not tell."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return None


def _peak() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def speeds(library: str, d: int) -> dict[str, float]:
    """Multiplications of a float32 product in tiles, and exponentials, in a second, on all cores of this process."""
    from widemargin import cores

    n_tiles, n, m = 64, 1024, 256
    A = np.ones((n_tiles, n, d), np.float32)
    B, out = np.ones((d, m), np.float32), np.full((n_tiles, n, m), -0.5, np.float32)

    def product(k: int) -> None:
        np.matmul(A[k], B, out=out[k])

    def exponential(k: int) -> None:
        np.exp(out[k], out=out[k])

    found = {}
    with cores.one_blas_thread():
        for name, do, amount in (("products", product, n_tiles * n * m * d), ("exp", exponential, n_tiles * n * m)):
            best = min(timed(lambda do=do: cores.each(do, range(n_tiles), 1e9))[0]["seconds"] for _ in range(7))
            found[name] = amount / best
    return found


def shape_fit(library: str, name: str) -> dict[str, Any]:
    X, y = _SHAPES[name]()
    C, gamma = 1.0, 1 / X.shape[1]
    model = _kernel_model(library, Task(name, X, y, X, y, gamma, C, True), "pairs")
    found, _ = timed(lambda: model.fit(X, y))
    return found | {"train_error": float(np.mean(model.predict(X[:2_000]) != y[:2_000]))}


def _clouds(n: int, n_positive: int, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.where(rng.permutation(n) < n_positive, 1, -1)
    return (rng.normal(size=(n, d)) + 0.5 * (y[:, None] > 0)).astype(np.float32), y


def _duplicated() -> tuple[np.ndarray, np.ndarray]:
    X, y = _clouds(2_000, 1_000)
    return np.repeat(X, 10, axis=0), np.repeat(y, 10)


def _sorted() -> tuple[np.ndarray, np.ndarray]:
    X, y = _clouds(20_000, 10_000)
    order = np.lexsort((X[:, 0], y))
    return X[order], y[order]


_SHAPES = {
    "one row against 100,000": lambda: _clouds(100_001, 1),
    "100 rows against 20,000": lambda: _clouds(20_100, 100),
    "2,000 rows, each ten times": _duplicated,
    "20,000 rows, sorted": _sorted,
}
SHAPES = tuple(_SHAPES)
