"""How is a search over C and gamma measured? One grid and the same folds for every library, in a process of its own."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks import _sets
from benchmarks._cores_runs import INTELEX, OURS, task_of, timed
from benchmarks._sets import SEED
from widemargin import KernelSVC, KernelSVCCV
from widemargin.estimators._grids import grid_of_gammas

N_FOLDS = 5
CS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
N_GAMMAS = 5
EXACT_TOL = 1e-6  # of LIBSVM's violation
N_WHOLE_CS = 10


class Data(NamedTuple):
    X: np.ndarray
    y: np.ndarray


def _usps() -> Data:
    task = task_of("usps")
    return Data(task.X, task.y.astype(int))


def _odd_or_even() -> Data:
    X, y = _usps()
    return Data(X, y % 2)


def _standardised(name: str) -> Data:
    X, y = _sets.load(name)
    return Data(StandardScaler().fit_transform(_dense(X)).astype(np.float32), y)


def _a9a() -> Data:
    """8,000 fixed random rows."""
    X, y = _sets.load("a9a")
    few = np.random.default_rng(SEED).permutation(len(y))[:8_000]
    return Data(_dense(X[few]), y[few])


def _pendigits() -> Data:
    data = _sets._fetch("pendigits")
    X = _dense(data.X)
    return Data(X / np.float32(X.max()), data.y.astype(int))


def _dense(X: Any) -> np.ndarray:
    return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float32)


SETS = {
    "usps odd/even": _odd_or_even,
    "spambase": lambda: _standardised("spambase"),
    "phishing": lambda: Data(*_phishing()),
    "a9a 8,000": _a9a,
    "usps": _usps,
    "pendigits": _pendigits,
}
SEVERAL_CLASSES = ("usps", "pendigits")


def _phishing() -> tuple[np.ndarray, np.ndarray]:
    X, y = _sets.load("phishing")
    return _dense(X), y


@cache
def data_of(name: str, n_rows: int | None) -> Data:
    """Float32 rows for everybody; ``n_rows`` of them, drawn."""
    X, y = SETS[name]()
    if n_rows is None or n_rows >= len(y):
        return Data(X, y)
    few = np.random.default_rng(SEED).permutation(len(y))[:n_rows]
    return Data(X[few], y[few])


@cache
def grid_of(name: str, n_rows: int | None) -> dict[str, list[float]]:
    X = data_of(name, n_rows).X
    return {"C": list(CS), "gamma": grid_of_gammas(N_GAMMAS, "rbf", X, np.ones(len(X))).tolist()}


def folds_of(data: Data) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(N_FOLDS).split(data.X, data.y))


def search(library: str, name: str, multi_class: str, n_rows: int | None, n_threads: int) -> dict[str, Any]:
    """Seconds of a search on two cores, with the mean score of every point and the scores of every fold."""
    data, grid = data_of(name, n_rows), grid_of(name, n_rows)
    if library == OURS:
        model: Any = KernelSVCCV(
            Cs=grid["C"], gammas=grid["gamma"], cv=folds_of(data), refine=False, multi_class=multi_class
        )
    else:
        model = GridSearchCV(
            _peer(library, multi_class), _named(grid, multi_class), cv=folds_of(data), n_jobs=n_threads
        )

    with joblib.parallel_backend("threading"):  # LIBSVM lets other threads run; ours does not use it
        found, _ = timed(lambda: model.fit(*data))
    return found | _read(model, data, library)


def whole(library: str, n_rows: int | None) -> dict[str, Any]:
    """Seconds of a search on all rows of a9a, the median of fits at the point that it chose, and MiB of the search."""
    X, y = _sets.load("a9a")
    X, y = _dense(X)[:n_rows], y[:n_rows]
    data, before = Data(X, y), _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    model = KernelSVCCV(Cs=N_WHOLE_CS, gammas=N_GAMMAS, cv=N_FOLDS, refine=False)
    cache = model._cache_bytes() / 2**20
    found, _ = timed(lambda: model.fit(*data))
    memory = {"MiB": _resident("VmHWM") - before, "cache MiB": cache, "MiB of rows": X.nbytes / 2**20}
    fits = [timed(lambda: KernelSVC(**model.best_params_).fit(*data))[0] for _ in range(5)]
    one = sorted(fits, key=lambda each: each["seconds"])[len(fits) // 2]
    return found | _read(model, data, library) | memory | {"one": one}


def _resident(name: str) -> float:
    """MiB of memory that this process has, VmRSS, or has had at most, VmHWM."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines())
    return int(lines[name].split()[0]) / 1024


def _read(model: Any, data: Data, library: str) -> dict[str, Any]:
    results = model.cv_results_
    scores = np.stack([results[f"split{k}_test_score"] for k in range(N_FOLDS)], axis=1)
    found: dict[str, Any] = {
        "best": _unnamed(model.best_params_),
        "best_score": float(model.best_score_),
        "best_index": int(model.best_index_),
        "points": [_unnamed(point) for point in results["params"]],
        "scores": scores,
        "n": len(data.y),
        "d": data.X.shape[1],
        "n_classes": len(np.unique(data.y)),
    }
    if library == OURS:
        found["states"] = dict(zip(*np.unique(results["state"], return_counts=True), strict=True))
        found["gap"] = float(np.nanmax(results["gap"]))
    return found


def exact_scores(library: str, name: str, multi_class: str, n_rows: int | None, point: dict[str, float]) -> Any:
    """The scores of all folds at one point, by LIBSVM at a tight tolerance."""
    data, model = data_of(name, n_rows), _peer(library, multi_class)
    own = {key: values[0] for key, values in _named({k: [v] for k, v in point.items()}, multi_class).items()}
    inner = {key.removesuffix("C") + "tol": EXACT_TOL for key in own if key.endswith("C")}
    scores, begin = [], time.perf_counter()
    for train, test in folds_of(data):
        fitted = clone(model).set_params(**own, **inner).fit(data.X[train], data.y[train])
        scores.append(float(np.mean(fitted.predict(data.X[test]) == data.y[test])))
    return {"scores": scores, "seconds": time.perf_counter() - begin}


def _peer(library: str, multi_class: str) -> Any:
    kind = SVC
    if library == INTELEX:
        from sklearnex.svm import SVC as kind
    return OneVsRestClassifier(kind()) if multi_class == "rest" else kind()


def _named(grid: dict[str, Any], multi_class: str) -> dict[str, Any]:
    return {f"estimator__{key}": each for key, each in grid.items()} if multi_class == "rest" else grid


def _unnamed(point: dict[str, float]) -> dict[str, float]:
    return {key.removeprefix("estimator__"): each for key, each in point.items()}
