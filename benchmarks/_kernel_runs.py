"""How is a kernel fit measured? Ours and its peers, each in a process of its own, and the truth about each in float64.

A module-level function here runs in a child (``_harness.in_child``) that is told its number of threads before it
imports anything. Our two threads are two ranks (``cluster=2``), each with one BLAS thread.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import _harness as harness
from benchmarks import _kernel_sets as sets
from benchmarks._harness import ROOT, Report
from benchmarks._kernel_sets import Task
from widemargin import KernelSVC
from widemargin.problems.hinge_l2 import HingeL2

VIOLATION = 1e-3  # of the optimality conditions: what LIBSVM and its relatives stop by
CACHE = 200  # MiB of kernel rows, for everybody
PART = (6_000, 5_000)  # training and test rows of a quick run, of a warm-up, and of a trial of dense against CSR
LIMIT = 3_600.0  # seconds that a child may take
_SLICE = 256  # rows at a time of what is recomputed
_AT_BOUND = 1e-7  # of C: float32 coefficients as near as this are at their bound
# A stop by less exact responses may prove false; then a lower one is tried.
_STOPS = (VIOLATION, 0.7 * VIOLATION, 0.4 * VIOLATION, 0.2 * VIOLATION)


def threads(n: int) -> dict[str, str]:
    """The environment of a child with so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(n))


def in_child(function: Callable[..., Any], *arguments: Any, n_threads: int = 1, limit: float = LIMIT) -> Any:
    """What the function found with so many threads; None after ``limit`` seconds."""
    return harness.in_child(function, *arguments, limit=limit, environment=threads(n_threads))


class Section(Report):
    """A report whose sections are files of their own, so that each can be measured again alone."""

    def __init__(self, name: str, *, quick: bool) -> None:
        super().__init__("kernel", quick=quick)
        self._path = self.folder / f"{name}.json"
        self._content["machine"] |= {"commit": commit(), "BLAS threads in children": 1}

    def add(self, section: str, content: Any) -> None:
        self._content[section] = content
        self._content["machine"]["load_at_end"] = harness.machine()["load_at_start"]
        text = json.dumps(self._content, indent=1, default=harness._plain, allow_nan=True)
        self._path.write_text(text + "\n", encoding="utf8")

    def read(self, name: str) -> dict[str, Any]:
        """What another section has left, or nothing."""
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text(encoding="utf8")) if path.exists() else {}


def commit() -> str:
    """The commit of the checkout, and whether its files differ from it."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", "src"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + (" with changes in src" if changed.strip() else "")


def load(name: str, quick: bool) -> Task:
    """A task, or a part of it."""
    task = sets.task(name)
    return sets.part_of(task, *PART) if quick else task


def ours(task: Task, Estimator: type[KernelSVC] = KernelSVC, **settings: Any) -> KernelSVC:
    """Our estimator at the parameters of a task."""
    settings = {"fit_intercept": task.fit_intercept, "cache_size": CACHE, "random_state": 0, **settings}
    return Estimator(C=task.C, gamma=task.gamma, **settings)


def warm_up(task: Task, **settings: Any) -> float:
    """Seconds of fits to a part of the rows, which load or compile all that the real fit needs.

    A few rows need fewer paths than many, so a larger part follows the small one.
    """
    n = len(task.y)

    def fit_both() -> None:
        for size in (PART[0], 3 * PART[0]):
            few = sets.part_of(task, min(n, size), 10)
            ours(few, **{"tol": 1e-2, **settings, "max_iter": 20, "max_time": 10.0}).fit(few.X, few.y)

    with harness.quietly():
        return harness.measure_peer(fit_both, repeats=1)[0].seconds


# -- the exact solver --------------------------------------------------------------------------------------------------


class ToViolation(KernelSVC):
    """KernelSVC that stops as LIBSVM does, by the violation of the optimality conditions, and not by the gap."""

    stop = VIOLATION

    def _solver(self) -> Any:
        return _Until(super()._solver(), self.stop)


class _Until:
    """A solver that is done when its own diagnostics say that the violation is small enough."""

    def __init__(self, solver: Any, stop: float) -> None:
        self._solver, self._stop = solver, stop

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_solver"], name)

    def stop_reason(self, state: Any) -> str | None:
        return "violation" if self._solver.diagnostics(state)["violation"] <= self._stop else None


def exact(name: str, quick: bool, cluster: int | None) -> dict[str, Any]:
    """Child: the exact solver to a true violation of ``VIOLATION``.

    All that a user waits for is in the time, the final confirmation in float64 too. Where what was enough for the
    solver proves too much in float64, it is asked for less and timed again.
    """
    task = load(name, quick)
    warm = warm_up(task, solver="exact", cluster=cluster)
    settings = {"solver": "exact", "tol": 0.0, "max_iter": 10**6, "max_time": 900.0, "cluster": cluster}
    for stop in _STOPS:
        ToViolation.stop = stop
        with harness.quietly():
            timing, model = harness.measure_peer(lambda: ours(task, ToViolation, **settings).fit(task.X, task.y))
        found = truth(task, model.support_, model.dual_coef_[0])
        if found["violation"] <= VIOLATION:
            break
    return {
        **asdict(timing),
        "warm_up_seconds": warm,
        **summary(task, model),
        **found,
        "stopped_at": stop,
        "violation_reported": float(getattr(model, "violation_", np.nan)),
        "phases": model.cost_.seconds,
        "curve": [
            [row["seconds"], row.get("violation"), 1 - row["dual"] / row["primal"], row["kernel_evaluations"]]
            for row in model.history_
        ],
    }


def summary(task: Task, model: KernelSVC) -> dict[str, Any]:
    """What a fit of ours came to, by its own account and on the test rows."""
    proof, cost, n = model.certificate_, model.cost_, len(task.y)
    return {
        "n": n,
        "test_error": error(model, task),
        "n_support": len(model.support_),
        "stop": model.stop_reason_,
        "sweeps": model.n_iter_,
        "primal": proof.primal,
        "dual": proof.dual,
        "certified_gap": proof.relative,
        "C_": float(model.C_),
        "slack_": float(model.slack_),
        "kernel_evaluations": cost.kernel_evaluations,
        "kernel_evaluations / n^2": cost.kernel_evaluations / n**2,
        "kernel_evaluations / (n_SV n)": cost.kernel_evaluations / (n * max(1, len(model.support_))),
        "cache_hits": cost.cache_hits,
        "cache_misses": cost.cache_misses,
    }


def error(model: Any, task: Task, X_test: Any = None) -> float:
    """The share of test rows that are wrong."""
    return float(np.mean(model.predict(task.X_test if X_test is None else X_test) != task.y_test))


# -- the truth ---------------------------------------------------------------------------------------------------------


def truth(task: Task, support: np.ndarray, coef: np.ndarray) -> dict[str, float]:
    """Gap and violation of coefficients on training rows, all in float64, by NumPy alone.

    The gap has the best multiple of w and the best bias on its upper side, for everybody. The violation, m(alpha) -
    M(alpha) of LIBSVM, needs no bias. Our coefficients belong to the best multiple of w rather than to the dual point
    itself: of the multiples that may be that point, within the bounds, the one with the least violation is taken.
    """
    f = responses(task, task.X[support], coef)
    highest = float(np.abs(coef).max())
    found = []
    for factor in multiples(task, support, coef, f):
        if factor * highest <= task.C * (1 + 1e-6):
            found.append((violation(task, support, factor * coef, factor * f), factor))
    least, factor = min(found)
    f, coef = factor * f, factor * coef
    problem, squared = HingeL2(task.C, task.fit_intercept), float(coef @ f[support])
    primal = problem.primal_point(f, task.y, np.ones(len(f)), squared, precision=1e-9).value
    dual = problem.dual_value(float(np.minimum(np.abs(coef), task.C).sum()), squared)
    return {
        "violation": least,
        "true_primal": primal,
        "true_dual": dual,
        "true_gap": 1 - dual / primal,
        "sum_of_coefficients": float(coef.sum()),
    }


def multiples(task: Task, support: np.ndarray, coef: np.ndarray, f: np.ndarray) -> list[float]:
    """Factors that may lead from coefficients of a model to its dual point: none, the largest that the bounds allow,
    and the one that puts free rows on the margin."""
    largest = float(np.abs(coef).max())
    free = support[np.abs(coef) < (1 - 1e-6) * largest]
    design = np.column_stack([f[free], np.full(len(free), float(task.fit_intercept))])
    on_margin = np.linalg.lstsq(design, task.y[free], rcond=None)[0][0] if len(free) > 1 else 1.0
    return [1.0, task.C / largest, float(on_margin)]


def violation(task: Task, support: np.ndarray, coef: np.ndarray, f: np.ndarray) -> float:
    """How much more a row that may rise pulls than one that may fall."""
    beta = np.zeros(len(task.y))
    beta[support] = coef
    high, low = np.where(task.y > 0, task.C, 0.0), np.where(task.y > 0, 0.0, -task.C)
    pull, edge = task.y - f, _AT_BOUND * task.C
    highest, lowest = pull[beta < high - edge].max(), pull[beta > low + edge].min()
    if not task.fit_intercept:
        highest, lowest = max(highest, 0.0), min(lowest, 0.0)
    return float(highest - lowest)


def responses(task: Task, points: Any, coef: np.ndarray, X: Any = None) -> np.ndarray:
    """``sum_j coef_j k(x_i, z_j)`` of all training rows, or of others, in float64."""
    X = task.X if X is None else X
    points, out = points.astype(np.float64), np.empty(X.shape[0])
    norms = squared_norms(points)
    for begin in range(0, X.shape[0], _SLICE):
        few = X[begin : begin + _SLICE].astype(np.float64)
        products = few @ points.T
        products = products.toarray() if sp.issparse(products) else products
        products *= 2.0 * task.gamma
        products -= task.gamma * (squared_norms(few)[:, None] + norms)
        out[begin : begin + _SLICE] = np.exp(products, out=products) @ coef
    return out


def squared_norms(X: Any) -> np.ndarray:
    return np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else np.einsum("ij,ij->i", X, X)


# -- peers -------------------------------------------------------------------------------------------------------------

LIBSVM, INTELEX = "SVC", "intelex SVC"


class Peers:
    """What the peers need, measured once in a run; with ``keep`` what an earlier run on this machine has found."""

    def __init__(self, *, quick: bool, keep: bool) -> None:
        self._section = Section("peers", quick=quick)
        self._quick = quick
        before = self._section.read("peers")
        same = before.get("machine", {}).get("packages") == harness.machine()["packages"]
        self._found: dict[str, Any] = before.get("peers", {}) if same else {}
        self._valid = set(self._found) if keep else set()

    def __call__(self, library: str, name: str, n_threads: int = 1) -> dict[str, Any]:
        key = f"{library}, {name}, {n_threads} thread" + ("s" if n_threads > 1 else "")
        if key not in self._valid:
            print(f"peer: {key}", flush=True)
            found = in_child(peer, library, name, self._quick, n_threads, n_threads=n_threads)
            self._found[key] = {**found, "date": harness.machine()["date"]}
            self._valid.add(key)
            self._section.add("peers", self._found)
        return self._found[key]


def peer(library: str, name: str, quick: bool, n_threads: int) -> dict[str, Any]:
    """Child: fit and prediction of a peer, and our prediction with its very support vectors.

    ``SVC`` computes in float64; intelex is given float32. Rows are dense or CSR, whichever is faster on a few.
    """
    task = load(name, quick)
    Peer, dtype = svc_of(library, n_threads), np.float32 if library == INTELEX else np.float64
    form = faster_form(Peer, dtype, task)
    X, X_test = in_form(task.X, form, dtype), in_form(task.X_test, form, dtype)
    timing, model = harness.measure_peer(lambda: new(Peer, task).fit(X, task.y))
    coef = np.asarray(model.dual_coef_.todense() if sp.issparse(model.dual_coef_) else model.dual_coef_, np.float64)
    prediction, scores = harness.measure_peer(lambda: model.decision_function(X_test))
    support = np.asarray(model.support_).ravel()
    found = {
        **asdict(timing),
        "form": form,
        "test_error": error(model, task, X_test),
        "n_support": len(support),
        "predict_seconds": prediction.seconds,
        "predict_cpu_seconds": prediction.cpu_seconds,
        "n_test": len(task.y_test),
    }
    found |= truth(task, support, coef.ravel())
    return found | same_support(task, support, coef.ravel(), float(np.ravel(model.intercept_)[0]), np.ravel(scores))


def svc_of(library: str, n_threads: int) -> Any:
    """The class, with the threads of its library set; ``cpu_seconds`` of the timing shows whether it kept to them."""
    if library == INTELEX:
        from daal4py import daalinit
        from sklearnex.svm import SVC

        daalinit(nthreads=n_threads)
        return SVC
    from sklearn.svm import SVC

    return SVC


def new(Peer: Any, task: Task) -> Any:
    return Peer(C=task.C, gamma=task.gamma, cache_size=CACHE, tol=VIOLATION)


def faster_form(Peer: Any, dtype: Any, task: Task) -> str:
    """``dense`` or ``csr``, by a fit to a few rows."""
    few = sets.part_of(task, min(len(task.y), PART[0]), 10)
    times = {}
    for form in ("dense", "csr"):
        X = in_form(few.X, form, dtype)
        times[form] = min(harness.measure_peer(lambda X=X: new(Peer, few).fit(X, few.y), 2)[0].runs)
    return min(times, key=times.__getitem__)


def in_form(X: Any, form: str, dtype: Any) -> Any:
    if form == "csr":
        return sp.csr_matrix(X, dtype=dtype)
    return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=dtype)


def same_support(
    task: Task, support: np.ndarray, coef: np.ndarray, intercept: float, scores: np.ndarray
) -> dict[str, Any]:
    """Our prediction with the support vectors of a peer: seconds on float32 and float64 rows, and the difference."""
    few = sets.part_of(task, min(len(task.y), 1_000), 10)
    with harness.quietly():
        model = ours(few, solver="exact", tol=0.1).fit(few.X, few.y)
    model.support_, model.support_vectors_ = support, task.X[support]
    model.dual_coef_, model.intercept_ = coef[None, :], np.array([intercept])
    found = {}
    for bits in (32, 64):
        X_test = task.X_test.astype(f"float{bits}")
        model.decision_function(X_test[:6_000])  # compiles
        timing, mine = harness.measure_peer(lambda X_test=X_test: model.decision_function(X_test))
        found[f"our_predict_seconds_float{bits}"] = timing.seconds
        found[f"difference_float{bits}"] = float(np.abs(mine - scores).max())
        found[f"other_signs_float{bits}"] = int(np.sum((mine > 0) != (scores > 0)))
    return found
