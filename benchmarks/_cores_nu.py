"""How long does the nu-SVM take at each nu, beside NuSVC and LinearSVC, and does every fit end by gap or proof?"""

from __future__ import annotations

import lzma
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_svmlight_file, load_wine
from sklearn.preprocessing import scale
from sklearn.svm import LinearSVC, NuSVC

from widemargin import NuMarginSVC, max_nu

SHARES = (0.05, 0.1, 0.3, 0.5, 0.85)  # of the largest nu
TOL = 1e-3
MAX_PEER_ROWS = 12_000  # beyond, NuSVC takes minutes
REPEATS = 5  # of fits that take less than a second; the median is reported
TEXTS = ("w8a", "spambase", "a9a", "phishing", "reuters-moneyfx")
SMALL = {"breast cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}


def run(data_folder: Path | str, quick: bool) -> list[dict[str, Any]]:
    """One entry for each set and nu: seconds and stop reason of NuMarginSVC, seconds of the others.

    With ``quick`` only sets of at most a few thousand rows.
    """
    found = []
    for name, X, y in _sets(Path(data_folder), quick):
        linear = _median(lambda X=X, y=y: LinearSVC(loss="hinge", random_state=0).fit(X, y))[0]
        for share in SHARES:
            found.append({**_at(X, y, share * max_nu(y)), "set": name, "share": share, "linear_svc_seconds": linear})
    return found


def _at(X: Any, y: np.ndarray, nu: float) -> dict[str, Any]:
    entry: dict[str, Any] = {"nu": nu, "n": X.shape[0], "d": X.shape[1]}
    seconds, model = _median(lambda: NuMarginSVC(nu=nu, tol=TOL).fit(X, y))
    reasons = sorted({part.stop_reason for part in model.parts_})
    entry |= {"seconds": seconds, "stop_reasons": reasons, "relative_gap": model.certificate_.relative}
    entry["is_met"] = set(reasons) <= {"gap", "overlap"}
    # On raw features NuSVC may run for minutes; a limit of steps keeps it within about one.
    if X.shape[0] <= MAX_PEER_ROWS:
        entry["nu_svc_seconds"] = _median(lambda: NuSVC(nu=nu, kernel="linear", max_iter=10**6).fit(X, y))[0]
    return entry


def _median(fit: Callable[[], Any]) -> tuple[float, Any]:
    seconds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit()  # the first fit of a process compiles, or reads what was compiled
        while len(seconds) < REPEATS and sum(seconds) < 1.0:
            begin = time.perf_counter()
            model = fit()
            seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)), model


def _sets(folder: Path, quick: bool) -> list[tuple[str, Any, np.ndarray]]:
    found = []
    for name, load in SMALL.items():
        X, y = load(return_X_y=True)
        found += [(name, X, y), (f"{name}, scaled", scale(X), y)]
    for name in ("spambase",) if quick else TEXTS:
        with lzma.open(folder / f"{name}.xz") as file:
            X, y = load_svmlight_file(file)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # as LinearSVC wants them
        found.append((name, X, y))
    if not quick:
        usps = np.load(folder / "usps.npz")
        X, y = (usps[key] for key in usps.files[:2])
        found.append(("usps, odd against even", X, y.astype(int) % 2))
    return found
