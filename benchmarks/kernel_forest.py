"""Does the kernel SVM learn half a million rows of covtype on this machine, how well, how fast and in what memory?

    python -m benchmarks.kernel_forest --only choose               parameters, by rows held out of the training rows
    python -m benchmarks.kernel_forest --only fit --minutes 60     the fit, bounded in time; reads what choose has left
    python -m benchmarks.kernel_forest --only fit --minutes 20 --features raw --gamma 1e-4 -C 1e4    the paper's problem

Cover type 2 against the rest, 522,910 training rows and 58,102 test rows as in the batch perceptron paper, which
reports 1.8% by LIBSVM in 35 hours and 1.6% by its own method in a quarter of it. The test rows choose nothing. Two
ranks (threads), one BLAS thread each; memory is the high-water mark of a process that loads the rows and fits, and
nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks import _kernel_runs as runs
from benchmarks import _kernel_sets as sets
from benchmarks._harness import Bar
from benchmarks._jobs import Jobs
from benchmarks._kernel_runs import Section
from benchmarks._kernel_sets import Task

QUESTION = __doc__
PAPER = {"paper: LIBSVM, 35 h": 0.018, "paper: SBP, 9 h": 0.016}
MEMORY = 4.0  # GiB
RANKS = 2
# Features: as they are (the paper's), each in [0, 1], or the ten measured ones to unit variance beside zeros and ones.
GRID = {
    "raw": [(gamma, C) for gamma in (3e-5, 1e-4, 3e-4) for C in (10.0, 1e4)],
    "unit": [(gamma, C) for gamma in (8.0, 32.0, 128.0) for C in (1.0, 10.0, 100.0)],
    "variance": [(gamma, C) for gamma in (0.25, 1.0, 4.0) for C in (1.0, 10.0, 100.0)],
}
N_FIRST, N_SECOND, N_HELD_OUT = 20_000, 80_000, 20_000
DEFAULT = {"features": "raw", "gamma": 1e-4, "C": 1e4}
_N_LOOKED_AT = 10_000  # test rows of a point of the curve
_N_MEASURED = 10  # columns that are measurements; the others are zeros and ones


OPTIONS: dict[str, Any] = {
    "--minutes": {"type": float, "default": 60.0, "help": "most minutes of the fit"},
    "--solver": {"default": "batch-perceptron", "help": "auto, exact or batch-perceptron"},
    "--tol": {"type": float, "default": 1e-2, "help": "relative gap that ends an exact fit"},
    "--cache": {"type": float, "default": 1000.0, "help": "MiB of kernel values"},
    "--features": {"choices": list(GRID), "help": "instead of what choose has left, with --gamma and -C"},
    "--gamma": {"type": float},
    "-C": {"type": float},
    **harness.FRESH,
}


def main() -> None:
    chosen = harness.arguments(QUESTION, ("choose", "fit"), options=OPTIONS)
    if "choose" in chosen.only:
        choose(Section("forest_choice", quick=chosen.quick))
    if "fit" in chosen.only:
        fit(Section(f"forest_{chosen.solver.replace('-', '_')}", quick=chosen.quick), chosen)


# -- parameters --------------------------------------------------------------------------------------------------------


def choose(report: Section) -> None:
    """Features, gamma and C by the error on training rows held out: all on a few rows, the best on more."""
    sizes = (1_500, 3_000) if report.quick else (N_FIRST, N_SECOND)
    grid = [(features, *each) for features, pairs in GRID.items() for each in pairs]
    found: dict[str, Any] = {}
    for n, candidates in ((sizes[0], grid), (sizes[1], None)):
        if candidates is None:
            candidates = finalists(found[str(sizes[0])])
        found[str(n)] = runs.in_child(held_out_errors, candidates, n)
        report.add("choice", found)
        rows = [list(each.values()) for each in sorted(found[str(n)], key=lambda each: each["error"])]
        harness.show(f"{n:,} rows: error on rows held out", list(found[str(n)][0]), rows)
    best = min(found[str(sizes[1])], key=lambda each: each["error"])
    report.add("best", {name: best[name] for name in ("features", "gamma", "C")})


def finalists(tried: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """The best of each scale of features, and the same with the next narrower kernel: more rows want it narrower."""
    chosen = []
    for features, pairs in GRID.items():
        best = min((each for each in tried if each["features"] == features), key=lambda each: each["error"])
        widths = sorted({gamma for gamma, _ in pairs})
        narrower = next((gamma for gamma in widths if gamma > best["gamma"]), 4 * best["gamma"])
        chosen += [(features, best["gamma"], best["C"]), (features, narrower, best["C"])]
    return chosen


def held_out_errors(candidates: list[tuple[str, float, float]], n: int) -> list[dict[str, Any]]:
    """Child: each candidate fitted to the first ``n`` training rows, which are in random order, judged by others."""
    task, found = sets.task("forest-bias"), []
    held_out = slice(len(task.y) - N_HELD_OUT, len(task.y))
    for features, gamma, C in candidates:
        X, X_held_out = scaled(features, task.X, task.X[:n], task.X[held_out])
        few = Task("forest", X, task.y[:n], X_held_out, task.y[held_out], gamma, C, True)
        model = runs.ours(few, solver="exact", tol=1e-2, max_time=120.0, cluster=RANKS)
        with harness.quietly():
            timing, model = harness.measure_peer(lambda model=model, few=few: model.fit(few.X, few.y), repeats=1)
        found.append(
            {
                "features": features,
                "gamma": gamma,
                "C": C,
                "error": runs.error(model, few),
                "n_support": len(model.support_),
                "seconds": timing.seconds,
                "stop": model.stop_reason_,
            }
        )
        print({**found[-1]}, flush=True)
    return found


def scaled(features: str, reference: np.ndarray, *blocks: np.ndarray) -> list[np.ndarray]:
    """Rows with their features on another scale, by the training rows alone."""
    shift, width = np.zeros(reference.shape[1], np.float32), np.ones(reference.shape[1], np.float32)
    if features == "unit":
        shift, width = reference.min(axis=0), reference.max(axis=0) - reference.min(axis=0)
    elif features == "variance":
        width[:_N_MEASURED] = reference[:, :_N_MEASURED].std(axis=0, dtype=np.float64)
    width[width == 0] = 1.0
    return [(block - shift) / width for block in blocks]


# -- the fit -----------------------------------------------------------------------------------------------------------


def fit(report: Section, chosen: argparse.Namespace) -> None:
    """One long fit, its curve, its memory."""
    settings = dict(report.read("forest_choice").get("best", DEFAULT))
    settings |= {name: getattr(chosen, name) for name in DEFAULT if getattr(chosen, name) is not None}
    print(f"forest: {chosen.solver}, {settings}, at most {chosen.minutes:g} minutes", flush=True)
    arguments = (settings, chosen.solver, 60 * chosen.minutes, chosen.tol, chosen.cache, report.quick)
    name = f"forest_{chosen.solver.replace('-', '_')}"
    jobs = Jobs(report.folder / f"{name}.jobs.jsonl", fresh=chosen.fresh)
    points = report.folder / f"{name}.points.jsonl"
    found = jobs(long_fit, *arguments, str(points), limit=None if report.quick else 60 * chosen.minutes + 3_600)
    if found is None:
        raise SystemExit(f"The fit did not end an hour after its {chosen.minutes:g} minutes; its points: {points}")
    given = {"solver": chosen.solver, "minutes": chosen.minutes, "cache_size": chosen.cache, "ranks": RANKS}
    found["settings"] = {**settings, **given}
    report.add("forest", found)
    harness.show("Forest", ["", "value"], [[key, value] for key, value in found.items() if np.isscalar(value)])
    error, memory = found["test_error"], found["peak_GiB"]
    report.bars(
        [
            Bar("forest: peak memory, GiB", f"< {MEMORY:g}", f"{memory:.2f}", memory < MEMORY),
            Bar("forest: test error", "1.6% to 1.8%", f"{100 * error:.2f}%", error <= 0.018),
        ]
    )
    who = "SBP" if chosen.solver == "batch-perceptron" else "exact"
    result = {"n": found["n"], "paper": PAPER, "runs": {who: [found["curve"]]}}
    if found["curve"]:
        figures.draw_forest(report, result, name)


class Curve:
    """A callback of scikit-learn's that looks at test rows ever more seldom; its clock stands still meanwhile.

    Points are kept in a file too, as they come: a fit that is interrupted leaves them.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, kept: Path) -> None:
        self.points: list[dict[str, Any]] = []
        self._kept = kept
        kept.write_text("", encoding="utf8")
        self._n_sweeps = 0  # that were certified: one row of the history each
        self._X, self._y, self._begin, self._lost, self._next = X, y, time.perf_counter(), 0.0, 0.0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        seconds = time.perf_counter() - self._begin - self._lost
        self._n_sweeps += context.task_name == "sweep"
        if context.task_name != "sweep" or seconds < self._next:
            return False
        begin = time.perf_counter()
        error = float(np.mean(fitted_estimator.predict(self._X) != self._y))
        n_support = len(fitted_estimator.support_)
        self.points.append({"seconds": seconds, "test_error": error, "n_support": n_support, "row": self._n_sweeps - 1})
        with self._kept.open("a", encoding="utf8") as file:
            file.write(json.dumps(self.points[-1]) + "\n")
        print(f"  {seconds:8.0f} s  {100 * error:.2f}%  {n_support:,} support vectors", flush=True)
        self._lost += time.perf_counter() - begin
        self._next = 1.25 * seconds
        return False


def long_fit(
    settings: dict[str, Any], solver: str, max_time: float, tol: float, cache: float, quick: bool, points: str
) -> dict[str, Any]:
    """Child: load, fit, look; memory before and after. The limit counts the looks at test rows too."""
    task = sets.task("forest-bias")
    task = sets.part_of(task, 20_000, 5_000) if quick else task
    X, X_test = scaled(settings["features"], task.X, task.X, task.X_test)
    task = task._replace(X=X, X_test=X_test, gamma=settings["gamma"], C=settings["C"])
    sets._rows.cache_clear()  # the rows as they were
    warm = runs.warm_up(task, solver=solver, cluster=RANKS)
    loaded = peak_bytes()
    curve = Curve(task.X_test[:_N_LOOKED_AT], task.y_test[:_N_LOOKED_AT], Path(points))
    model = runs.ours(task, solver=solver, tol=tol, max_time=max_time, max_iter=10**7, cluster=RANKS, cache_size=cache)
    begin = time.perf_counter()
    with harness.quietly():
        model.set_callbacks(curve).fit(task.X, task.y)
    seconds, fitted = time.perf_counter() - begin, peak_bytes()
    begin = time.perf_counter()
    found = runs.summary(task, model)
    return {
        **found,
        "seconds": seconds,
        "seconds_of_looks": curve._lost,
        "warm_up_seconds": warm,
        "predict_seconds": time.perf_counter() - begin,
        "loaded_GiB": loaded / 2**30,
        "peak_GiB": fitted / 2**30,
        "peak_with_prediction_GiB": peak_bytes() / 2**30,
        "phases": model.cost_.seconds,
        "curve": with_evaluations(curve.points, model.history_),
        "history": thinned(model.history_),
    }


def with_evaluations(points: list[dict[str, Any]], history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points with the kernel evaluations of the sweep after which they were taken."""
    for point in points:
        point["kernel_evaluations"] = history[point["row"]]["kernel_evaluations"]
    return points


def thinned(history: list[dict[str, Any]], most: int = 300) -> list[dict[str, Any]]:
    names = ("seconds", "primal", "dual", "violation", "validation_error", "n_support", "kernel_evaluations")
    places = np.unique(np.geomspace(1, len(history), min(most, len(history))).astype(int)) - 1
    return [{name: history[k][name] for name in names if name in history[k]} for k in places]


def peak_bytes() -> int:
    """The high-water mark of this process's resident memory, which is not that of the one that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
