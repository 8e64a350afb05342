"""One model of a comparison in a process of its own.

``python -m widemargin.cli._one_fit FOLDER NAME SEED MODULE SECONDS``: the folder holds the rows as plain arrays, the
module defines the estimator, and a search for its parameters may take so many seconds; 0 is no search. The process
prints ``ready`` when everything is imported and compiled, then lines of JSON: how far the search is, and the results of
the timed fit.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.callbacks import SearchProgress, shown_by
from widemargin.cli._model import size_bytes
from widemargin.data.files import written_whole
from widemargin.estimators.registry import Descriptor, descriptors
from widemargin.estimators.searched import chosen_parameters, searched
from widemargin.estimators.words import useless_in_words
from widemargin.problems.protocol import Certificate
from widemargin.sklearn_private import parameter_names

_SECONDS_PER_LINE = 0.5
_WARM_UP_ROWS = 100  # of each class, for the first fit, which compiles
THEIRS = ("LinearSVC(hinge)", "SVC", "NuSVC", "SGDClassifier")  # of scikit-learn


def ours(is_tuned: bool = False) -> dict[str, tuple[Descriptor, dict[str, Any]]]:
    """Estimators and parameters by their names in a comparison: those of the command line, and variants in brackets.

    With ``is_tuned`` an estimator that chooses parameters by cross-validation takes the place of its plain one.
    """
    return {
        f"{each.command} ({variant})" if variant else each.command: (
            _tuned(each, parameters) if is_tuned else each,
            parameters,
        )
        for each in descriptors().values()
        if each.command is not None
        for variant, parameters in each.variants.items()
    }


def _tuned(descriptor: Descriptor, parameters: dict[str, Any]) -> Descriptor:
    """The estimator with cross-validation, or the same one if there is none that has these parameters."""
    found = descriptor.tuned
    return descriptor if found is None or set(parameters) - set(parameter_names(found.estimator)) else found


def title(name: str, is_tuned: bool = False) -> str:
    found = ours(is_tuned).get(name)
    return name if found is None else f"{found[0].name} {name.partition(' ')[2]}".rstrip()


def make(name: str, seed: int, seconds: float = 0.0) -> Any:
    if name in ours():
        descriptor, parameters = ours(seconds > 0)[name]
        limit = {"max_time": seconds} if seconds and descriptor.command is None else {}  # of a search
        model = descriptor.estimator(**parameters, **limit)
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
    """NuSVC with a nu that is feasible, which its default often is not."""
    from widemargin.estimators.nu_margin import max_nu

    return model.set_params(nu=0.85 * max_nu(y)) if type(model).__name__ == "NuSVC" else model


def stored(folder: Path, part: str, X: Any, y: np.ndarray) -> None:
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr} if sp.issparse(X) else {"X": X}
    with written_whole(folder / f"{part}.npz") as file:
        np.savez(file, y=y, shape=X.shape, **arrays)


def opened(folder: Path, part: str) -> tuple[Any, np.ndarray]:
    with np.load(folder / f"{part}.npz", allow_pickle=False) as found:
        if "X" in found:
            return found["X"], found["y"]
        parts = found["data"], found["indices"], found["indptr"]
        return sp.csr_matrix(parts, shape=tuple(found["shape"])), found["y"]


class Points:
    """Prints how many points of a search are done; of a single fit nothing."""

    def __init__(self, name: str, tol: float) -> None:
        self._shown_at = 0.0

    def show(self, sweep: int, certificate: Certificate, seconds: float, *, is_last: bool = False) -> None: ...

    def show_search(self, progress: SearchProgress, *, is_last: bool = False) -> None:
        if progress.seconds - self._shown_at > _SECONDS_PER_LINE:
            self._shown_at = progress.seconds
            print(json.dumps({"n_done": progress.n_done, "n_points": progress.n_points}), flush=True)


def few_rows(y: np.ndarray) -> np.ndarray:
    """Numbers of some rows of each class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(y == each)[:_WARM_UP_ROWS] for each in np.unique(y)]))


def main(folder: Path, name: str, seed: int, seconds: float = 0.0) -> None:
    """Print the results, or the error: nobody reads the stderr of this process."""
    try:
        found = measured(folder, name, seed, seconds)
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        found = {"error": " ".join(f"{kind}{error}".split())}
    print(json.dumps(found), flush=True)


def measured(folder: Path, name: str, seed: int, seconds: float) -> dict[str, Any]:
    X, y = opened(folder, "train")
    X_test, y_test = opened(folder, "test")
    few = few_rows(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(Exception):  # the timed fit raises the same
            set_nu(make(name, seed, seconds), y[few]).fit(X[few], y[few])
        print("ready", flush=True)
        begin = time.perf_counter()
        with shown_by(Points):
            model = set_nu(make(name, seed, seconds), y).fit(X, y)
        spent = time.perf_counter() - begin
        wrong = float(np.mean(model.predict(X_test) != y_test))
    certificate = getattr(model, "certificate_", None)
    gap = None if certificate is None or not np.isfinite(certificate.relative) else float(certificate.relative)
    found: dict[str, Any] = {
        "seconds": spent,
        "error": None,
        "test_error": wrong,
        "gap": gap,
        "bytes": size_bytes(model),
    }
    warning = useless_in_words(model) if name in ours() else ""
    search = searched(model) if seconds else None
    found |= {"chosen": chosen_parameters(model), "n_not_tried": search.states.get("not tried", 0) if search else 0}
    found["bytes"] = size_bytes(model)
    return {**found, "stop_reason": getattr(model, "stop_reason_", None), "warning": warning or None}


if __name__ == "__main__":
    import_module(sys.argv[4])  # registers an estimator that is not built in
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[5]))
