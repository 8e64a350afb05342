"""One model of a comparison, in a process of its own: ``python -m widemargin.cli._one_fit FOLDER NAME``.

Rows lie in the folder as plain arrays. A line ``ready`` says that everything is imported and compiled, from where the
time of the fit counts; the line after it is what was found, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.cli._estimators import ESTIMATORS, estimator_class
from widemargin.cli._model import size_bytes

_FEW = 100  # rows of each class for the first fit, which compiles

# Names in a comparison: of ours those of the command line, the linear kernel apart; then scikit-learn's.
OURS = {
    "hard-margin": {}, "nu-margin": {}, "kernel": {}, "kernel (linear)": {"kernel": "linear"},
    "margin-distribution": {}, "sparse": {}, "debiased": {}, "gossip": {},
}  # fmt: skip
THEIRS = ("LinearSVC(hinge)", "SVC", "NuSVC", "SGDClassifier")


def title(name: str) -> str:
    """A model's name in the table."""
    first, _, rest = name.partition(" ")
    return f"{ESTIMATORS[first]} {rest}".rstrip() if first in ESTIMATORS else name


def make(name: str, seed: int) -> Any:
    if name in OURS:
        model = estimator_class(name.partition(" ")[0])(**OURS[name])
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model
    from sklearn.linear_model import SGDClassifier
    from sklearn.svm import SVC, LinearSVC, NuSVC

    return {
        "LinearSVC(hinge)": lambda: LinearSVC(loss="hinge", random_state=seed),
        "SVC": SVC,
        "NuSVC": lambda: NuSVC(kernel="linear"),
        "SGDClassifier": lambda: SGDClassifier(random_state=seed),
    }[name]()


def set_nu(model: Any, y: np.ndarray) -> Any:
    """NuSVC with the nu that NuMarginSVC takes by itself, as its own default is often infeasible."""
    from widemargin.estimators.nu_margin import max_nu

    return model.set_params(nu=0.85 * max_nu(y)) if type(model).__name__ == "NuSVC" else model


def stored(folder: Path, part: str, X: Any, y: np.ndarray) -> None:
    """Put rows into the folder."""
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr} if sp.issparse(X) else {"X": X}
    for name, array in {**arrays, "y": y, "shape": np.array(X.shape)}.items():
        np.save(folder / f"{part}-{name}.npy", array, allow_pickle=False)


def opened(folder: Path, part: str) -> tuple[Any, np.ndarray]:
    """Rows from the folder."""

    def array(name: str) -> np.ndarray:
        found: np.ndarray = np.load(folder / f"{part}-{name}.npy", allow_pickle=False)
        return found

    if (folder / f"{part}-X.npy").exists():
        return array("X"), array("y")
    parts = array("data"), array("indices"), array("indptr")
    return sp.csr_matrix(parts, shape=tuple(array("shape"))), array("y")


def few_rows(y: np.ndarray) -> np.ndarray:
    """Numbers of some rows of each class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(y == each)[:_FEW] for each in np.unique(y)]))


def main(folder: Path, name: str, seed: int) -> None:
    """Whatever goes wrong is said, as nobody reads what the process writes elsewhere."""
    try:
        found = measured(folder, name, seed)
    except ValueError as error:
        found = {"error": str(error)}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    if found.get("error"):
        found = {"error": " ".join(found["error"].split())}
    print(json.dumps(found), flush=True)


def measured(folder: Path, name: str, seed: int) -> dict[str, Any]:
    X, y = opened(folder, "train")
    X_test, y_test = opened(folder, "test")
    few = few_rows(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(Exception):  # what is wrong shows in the fit that counts
            set_nu(make(name, seed), y[few]).fit(X[few], y[few])
        print("ready", flush=True)
        begin = time.perf_counter()
        model = set_nu(make(name, seed), y).fit(X, y)
        seconds = time.perf_counter() - begin
        wrong = float(np.mean(model.predict(X_test) != y_test))
    certificate = getattr(model, "certificate_", None)
    gap = None if certificate is None or not np.isfinite(certificate.relative) else float(certificate.relative)
    found = {"seconds": seconds, "error": None, "test_error": wrong, "gap": gap, "bytes": size_bytes(model)}
    return {**found, "stop_reason": getattr(model, "stop_reason_", None)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
