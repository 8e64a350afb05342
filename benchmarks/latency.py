"""How soon does a fit hear of its time limit? The longest work between two looks at the clock, and the overrun.

For every estimator and solver, on shapes that make sweeps long: one row against many, many rows, many columns, sparse
rows, many classes. Each fit has ``max_time`` seconds. Work is measured in processor seconds of the fit's thread, so
that others on the machine do not count; the overrun is in processor seconds too, and that of the whole fit, validation
included. Ctrl-C is heard at the same looks.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import widemargin
from benchmarks import _harness as harness
from benchmarks._harness import Bar, Report
from widemargin import pauses
from widemargin.solvers import run as run_module

QUESTION = __doc__
ALLOWED = 1.0  # seconds
MAX_TIME = 2.0

Data = tuple[Any, np.ndarray]


def one_against_many(n_rows: int = 100_000, d: int = 20) -> Data:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, d))
    X[0] += 4.0
    return X, np.arange(n_rows) == 0


def many_rows(n_rows: int = 60_000, d: int = 784) -> Data:
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, d), dtype=np.float32) * (rng.random((n_rows, d)) < 0.2)
    return X, X[:, :50].sum(axis=1) + rng.normal(size=n_rows) > 5.0


def separable_rows(n_rows: int = 60_000, d: int = 784) -> Data:
    X, _ = many_rows(n_rows, d)
    score = X[:, ::2].sum(axis=1) - X[:, 1::2].sum(axis=1)
    apart = np.abs(score) > 1.0
    return X[apart], score[apart] > 0


def many_columns(n_rows: int = 200, d: int = 50_000) -> Data:
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % 2
    X = rng.normal(size=(n_rows, d))
    X[:, :20] += 0.3 * (2 * y - 1)[:, None]
    return X, y


def sparse_rows(n_rows: int = 20_000, d: int = 47_000) -> Data:
    rng = np.random.default_rng(0)
    X = sp.random(n_rows, d, 0.0016, "csr", rng=rng)
    return X, np.asarray(X[:, :2000].sum(axis=1)).ravel() + 0.3 * rng.normal(size=n_rows) > 1.6


def many_classes(n_rows: int = 20_000, d: int = 200, n_classes: int = 4) -> Data:
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    return rng.normal(size=(n_rows, d)) + 0.5 * rng.normal(size=(n_classes, d))[y], y


SHAPES: dict[str, Callable[..., Data]] = {
    each.__name__: each
    for each in (one_against_many, many_rows, separable_rows, many_columns, sparse_rows, many_classes)
}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "hard": ("HardMarginSVC", {}),
    "hard newton": ("HardMarginSVC", {"solver": "newton"}),
    "hard saddle": ("HardMarginSVC", {"solver": "saddle"}),
    "hard active-set": ("HardMarginSVC", {"solver": "active-set"}),
    "nu": ("NuMarginSVC", {"nu": 0.3}),
    "nu auto": ("NuMarginSVC", {}),
    "nu saddle": ("NuMarginSVC", {"solver": "saddle"}),
    "kernel": ("KernelSVC", {"solver": "exact"}),
    "kernel perceptron": ("KernelSVC", {"solver": "batch-perceptron"}),
    "linear": ("KernelSVC", {"kernel": "linear"}),
    "margin": ("MarginDistributionSVC", {}),
    "margin descent": ("MarginDistributionSVC", {"solver": "dual-descent"}),
    "margin newton": ("MarginDistributionSVC", {"solver": "newton"}),
    "margin tree": ("MarginDistributionSVC", {"solver": "partition-merge"}),
    "margin linear": ("MarginDistributionSVC", {"kernel": "linear"}),
    "margin svrg": ("MarginDistributionSVC", {"kernel": "linear", "solver": "svrg"}),
    "sparse": ("SparseSVC", {"alpha": 1e-3}),
    "sparse cv": ("SparseSVCCV", {"n_alphas": 10}),
    "debiased": ("DebiasedSparseSVC", {}),
    "gossip": ("GossipSVC", {}),
}


class Looks:
    """Notes the processor time between two looks at the clock, and where the longest one ended."""

    def __init__(self) -> None:
        self.longest, self.where, self._last = 0.0, "", time.thread_time()

    def note(self) -> None:
        now = time.thread_time()
        if now - self._last > self.longest:
            self.longest = now - self._last
            self.where = "/".join(
                f"{frame.name}" for frame in traceback.extract_stack()[:-2] if "/widemargin/" in frame.filename
            )
        self._last = now


def measure(name: str, options: dict[str, Any], X: Any, y: np.ndarray) -> dict[str, Any]:
    """One fit; compilation is over before, by a fit of few rows."""
    make = getattr(widemargin, name)
    few = np.r_[0 : min(300, len(y)), np.flatnonzero(y == y[0])[:5]]
    limits = {"tol": 1e-12, "max_time": MAX_TIME}
    options = {**options, **{key: limit for key, limit in limits.items() if key in make().get_params()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(**{**options, "max_iter": 30})
        try:
            model.fit(X[few], y[few])
        except ValueError as error:
            print(f"  warming up: {error}")
        looks, told = Looks(), pauses.told_by_rank_0

        def noted(*arguments: Any) -> Any:
            looks.note()
            return told(*arguments)

        pauses.told_by_rank_0 = run_module.told_by_rank_0 = noted
        begin, cpu = time.perf_counter(), time.process_time()
        outcome: dict[str, Any] = {}
        try:
            model = make(**options).fit(X, y)
            looks.note()
            outcome = {"stop": model.stop_reason_, "gap": model.certificate_.relative, "parts": len(model.parts_)}
        except Exception as error:
            outcome = {"stop": f"{type(error).__name__}: {error}"[:80], "gap": np.nan, "parts": 1}
        finally:
            pauses.told_by_rank_0 = run_module.told_by_rank_0 = told
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - begin
    return {**outcome, "longest": looks.longest, "where": looks.where, "cpu": cpu, "wall": wall}


def main() -> None:
    fits = {"--fits": {"nargs": "+", "choices": list(FITS), "default": list(FITS)}}
    options = harness.arguments(QUESTION, SHAPES, options=fits)
    report = Report("latency", quick=options.quick)
    results: dict[str, Any] = {}
    for shape in options.only:
        X, y = SHAPES[shape](**({"n_rows": 2_000} if options.quick else {}))
        for fit in options.fits:
            found = measure(*FITS[fit], X, y)
            results[f"{fit}, {shape}"] = found
            report.add("fits", results)
            print(
                f"{shape:18} {fit:18} longest {found['longest']:6.2f} s  cpu {found['cpu']:6.2f} s  {found}", flush=True
            )
    head = ["fit", "longest, s", "cpu, s", "stop", "gap", "where"]
    table = [
        [name, each["longest"], each["cpu"], each["stop"], each["gap"], each["where"]] for name, each in results.items()
    ]
    harness.show("Processor seconds", head, table)
    report.bars(
        [
            Bar(
                f"{name}: longest between two looks, s",
                f"< {ALLOWED:g}",
                f"{each['longest']:.2f}",
                each["longest"] < ALLOWED,
            )
            for name, each in results.items()
        ]
    )


if __name__ == "__main__":
    main()
