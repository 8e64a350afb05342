"""No bound of any estimator is false in exact arithmetic, whatever the rows, their units and the parameters.

Every way to solve a problem meets settings that differ from a plain one along a single axis, each extreme once, and
then settings drawn at random along all axes. A ValueError that refuses an extreme is an answer; anything else is not.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from tests.truths import Rows, false_claims, truth
from widemargin import GossipSVC, HardMarginSVC, KernelSVC, MarginDistributionSVC, NuMarginSVC, SparseSVC
from widemargin.solvers.dual_descent import DualDescent
from widemargin.solvers.multipliers import Multipliers


class Setting(NamedTuple):
    """One fit: what rows, in which form, and which parameters."""

    shape: str = "overlapping"
    offset: float = 0.0
    scale: float = 1.0
    C: float = 1.0
    tol: float = 1e-8
    dtype: str = "float64"
    storage: str = "dense"
    weights: str = "ones"
    ranks: int | None = None
    seed: int = 0


AXES: dict[str, tuple[Any, ...]] = {
    "shape": ("overlapping", "separable", "grid", "repeated", "flat", "units", "wide"),
    "offset": (0.0, 1.0, 1e4, 1e6, 1e8),
    "scale": (1.0, 1e-150, 1e-30, 1e-8, 1e8, 1e30, 1e150),
    "C": (1.0, 1e-6, 1e4, 1e8, 1e12),
    "tol": (1e-8, 1e-3, 1e-15, 0.0),
    "dtype": ("float64", "float32"),
    "storage": ("dense", "csr"),
    "weights": ("ones", "some", "large"),
    "ranks": (None, 2, 3),
}


def rows_of(setting: Setting) -> Rows:
    """Fourteen rows of three columns, give or take a few."""
    rng = np.random.default_rng(setting.seed)
    n, d = (8, 6) if setting.shape == "wide" else (14, 3)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = 1, -1
    if setting.shape == "separable":
        X[:, 0] = y * (0.5 + rng.random(n))
    elif setting.shape == "grid":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif setting.shape == "repeated":
        X[n // 2 :], y[n // 2 :] = X[: n // 2], y[: n // 2]
    elif setting.shape == "flat":  # a constant column, and one that repeats another
        X[:, 1], X[:, 2] = 3.0, -2 * X[:, 0]
    elif setting.shape == "units":
        X *= 10.0 ** np.arange(-3, 6, 3)
    X = ((X + setting.offset) * setting.scale).astype(setting.dtype)
    weight = {"ones": np.ones(n), "some": rng.integers(0, 4, n) / 2, "large": 1e6 * rng.random(n)}[setting.weights]
    weight[:2] = np.maximum(weight[:2], 0.5)
    return Rows(sp.csr_matrix(X) if setting.storage == "csr" else X, y, weight)


class DescentSVC(KernelSVC):
    """The linear C-SVM by coordinate descent, which otherwise needs many columns."""

    def _solver(self) -> Any:
        return DualDescent()


class MultipliersSVC(KernelSVC):
    """The linear C-SVM by the method of multipliers alone."""

    def _solver(self) -> Any:
        return Multipliers()


def _kernel_svc(make: type[KernelSVC] = KernelSVC, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: make(C=at.C, tol=at.tol, cluster=at.ranks, max_iter=500, max_time=3, random_state=0, **parameters)


def _margins(max_iter: int = 2000, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: MarginDistributionSVC(
        C=at.C, tol=at.tol, cluster=at.ranks, max_iter=max_iter, max_time=3, random_state=0, **parameters
    )


def _hull(make: type, max_iter: int = 200, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: make(
        tol=at.tol, cluster=at.ranks, max_iter=max_iter, max_time=3, random_state=0, **parameters
    )


def _sparse(**parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: SparseSVC(tol=at.tol, cluster=at.ranks, max_iter=200, max_time=3, **parameters)


def _gossip(max_iter: int, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: GossipSVC(1 / (20 * at.C), tol=at.tol, n_peers=at.ranks or 1, max_iter=max_iter, **parameters)


WAYS: dict[str, Callable[[Setting], Any]] = {
    "hard auto": _hull(HardMarginSVC),
    "hard active-set": _hull(HardMarginSVC, solver="active-set"),
    "hard newton": _hull(HardMarginSVC, solver="newton"),
    "hard saddle": _hull(HardMarginSVC, 40, solver="saddle"),
    "nu auto": _hull(NuMarginSVC),
    "nu newton": _hull(NuMarginSVC, nu=0.35, solver="newton"),
    "nu saddle": _hull(NuMarginSVC, 40, solver="saddle"),
    "linear": _kernel_svc(kernel="linear"),
    "linear descent": _kernel_svc(DescentSVC, kernel="linear"),
    "linear multipliers": _kernel_svc(MultipliersSVC, kernel="linear", fit_intercept=False),
    "rbf": _kernel_svc(),
    "rbf wide": _kernel_svc(gamma=1e-4),
    "laplacian": _kernel_svc(kernel="laplacian", fit_intercept=False),
    "poly": _kernel_svc(kernel="poly", degree=2, coef0=1.0),
    "cosine": _kernel_svc(kernel="cosine"),
    "few support vectors": _kernel_svc(max_support=4),
    "perceptron": _kernel_svc(solver="batch-perceptron"),
    "perceptron linear": _kernel_svc(solver="batch-perceptron", kernel="linear", fit_intercept=False),
    "slack": _kernel_svc(slack=0.2),
    "margins linear": _margins(kernel="linear"),
    "margins svrg": _margins(100, kernel="linear", solver="svrg"),
    "margins rbf": _margins(),
    "margins wide": _margins(gamma=1e-4),
    "margins newton": _margins(solver="newton", fit_intercept=False),
    "margins descent": _margins(solver="dual-descent", kernel="linear", overshoot_weight=0.0),
    "margins tree": _margins(solver="partition-merge", n_partitions=2, n_strata=2),
    "sparse": _sparse(),
    "sparse of much": _sparse(alpha=1e-3),
    "sparse without intercept": _sparse(alpha=0.05, fit_intercept=False),
    "gossip": _gossip(60),
    "gossip push-sum": _gossip(40, solver="push-sum", fit_intercept=False),
}

PLAIN = Setting()
ONE_AXIS = [PLAIN._replace(**{axis: value}) for axis, values in AXES.items() for value in values[1:]]


def settings(way: str, n_random: int) -> list[Setting]:
    """The settings that one way to solve is tried at."""
    rng = np.random.default_rng(zlib.crc32(way.encode()))
    drawn = [[values[rng.integers(len(values))] for values in AXES.values()] for _ in range(n_random)]
    return [PLAIN, *ONE_AXIS, *(Setting(*values, seed=k + 1) for k, values in enumerate(drawn))]


def outcome(way: str, setting: Setting) -> tuple[str, list[str]]:
    """The stop reason, or "refused", and what was false."""
    rows = rows_of(setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            model = WAYS[way](setting).fit(rows.X, rows.y, None if setting.weights == "ones" else rows.weight)
        except ValueError:
            return "refused", []
    return model.stop_reason_, false_claims(model.certificate_, model.history_, truth(model, rows))
