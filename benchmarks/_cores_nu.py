"""How long does the nu-SVM take at each nu, beside NuSVC, intelex's NuSVC and LinearSVC? What contestants do.

Ours, NuSVC and LinearSVC get the rows as they are stored; intelex gets them dense in float32, which it is fastest on.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import scale

from benchmarks._cores_runs import INTELEX, OURS, dense, in_folder, timed
from widemargin import max_nu

SHARES = (0.05, 0.1, 0.3, 0.5, 0.85)  # of the largest nu
_SMALL = {"breast cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}
SMALL_SETS = tuple(f"{name}{scaled}" for name in _SMALL for scaled in ("", " scaled"))
SETS = (*SMALL_SETS, "spambase", "phishing", "reuters-moneyfx", "usps odd/even", "w8a", "a9a")
_ENOUGH = 0.3  # seconds of repeated fits, of which the median is taken
_MOST_FITS = 7


@cache
def _rows(name: str) -> tuple[Any, np.ndarray]:
    if name in SMALL_SETS:
        X, y = _SMALL[name.removesuffix(" scaled")](return_X_y=True)
        return (scale(X), y) if name.endswith("scaled") else (X, y)
    X, y = in_folder(name.split()[0])
    if name.endswith("odd/even"):
        return X, y.astype(int) % 2
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # as LinearSVC wants them
    return X, y


@cache
def _dense_rows(name: str) -> np.ndarray:
    return dense(_rows(name)[0])


def shape(library: str, name: str) -> tuple[int, int]:
    rows: tuple[int, int] = _rows(name)[0].shape
    return rows


def linear_fit(library: str, name: str) -> dict[str, Any]:
    """LinearSVC with the hinge loss at C = 1."""
    from sklearn.svm import LinearSVC

    X, y = _rows(name)
    return _median(lambda: LinearSVC(loss="hinge", random_state=0).fit(X, y))[0]


def nu_fit(library: str, name: str, share: float) -> dict[str, Any]:
    """The nu-SVM at that share of the largest nu; ours says how it ended."""
    X, y = _rows(name)
    nu = share * max_nu(y)
    if library == OURS:
        from widemargin import NuMarginSVC

        found, model = _median(lambda: NuMarginSVC(nu=nu, tol=1e-3).fit(X, y))
        reasons = sorted({part.stop_reason for part in model.parts_})
        return found | {"nu": nu, "stop_reasons": reasons, "gap": model.certificate_.relative}
    if library == INTELEX:
        from sklearnex.svm import NuSVC  # its threads were set when this process began

        X = _dense_rows(name)
    else:
        from sklearn.svm import NuSVC
    return _median(lambda: NuSVC(nu=nu, kernel="linear").fit(X, y))[0]


def _median(fit: Any) -> tuple[dict[str, Any], Any]:
    runs: list[float] = []
    while len(runs) < _MOST_FITS and sum(runs) < _ENOUGH:
        found, model = timed(fit)
        runs.append(found["seconds"])
    return {"seconds": float(np.median(runs))}, model
