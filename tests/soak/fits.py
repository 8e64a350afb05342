"""Many fits of all kinds in one process, and what they leave behind."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from typing import NamedTuple

import numpy as np
import psutil

from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
)

KINDS = [
    lambda: NuMarginSVC(random_state=0),
    lambda: NuMarginSVC(cluster=2),
    lambda: NuMarginSVC(nu=0.5, solver="saddle", tol=1e-9, max_time=0.01, random_state=0),
    lambda: HardMarginSVC(cluster=3),
    lambda: KernelSVC(),
    lambda: KernelSVC(cluster=2),
    lambda: KernelSVC(kernel="linear", cluster=2),
    lambda: KernelSVC(solver="batch-perceptron", max_iter=5, tol=1e-2, random_state=0),
    lambda: MarginDistributionSVC(),
    lambda: MarginDistributionSVC(kernel="linear", cluster=2),
    lambda: MarginDistributionSVC(solver="partition-merge", n_partitions=2, cluster=2, random_state=0),
    lambda: SparseSVC(cluster=2),
    lambda: SparseSVCCV(n_alphas=3, cv=2),
    lambda: DebiasedSparseSVC(alpha=0.02),
    lambda: GossipSVC(n_peers=3, max_iter=20),
]


class Left(NamedTuple):
    """What a process holds."""

    threads: set[str]
    files: int
    sockets: int
    bytes: int

    @classmethod
    def now(cls) -> Left:
        gc.collect()
        process = psutil.Process()
        links = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
        sockets = sum("socket:" in link for link in links)
        names = {thread.name for thread in threading.enumerate()}
        return cls(names, len(links) - sockets, sockets, process.memory_info().rss)


class _Stop:
    """A callback that fails in the middle of a fit."""

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        raise RuntimeError("told to fail")


def fit_one(number: int) -> str:
    """One fit of the kind of that number; every seventh raises. How it ended."""
    rng = np.random.default_rng(number)
    y = np.where(rng.permutation(80) < 40, 1, -1)
    X = rng.normal(size=(80, 6)) + 0.8 * y[:, None]
    model = KINDS[number % len(KINDS)]()
    if isinstance(model, HardMarginSVC):
        X = X + 3 * y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if number % 7 == 6:
            try:
                model.set_callbacks(_Stop()).fit(X, y)
            except RuntimeError:
                return "raised"
            raise AssertionError("a callback that raises did not end the fit")
        model.fit(X, y)
        model.predict(X)
    return model.stop_reason_


def settled(before: Left, seconds: float = 10.0) -> Left:
    """What is left once threads that are on their way out have gone."""
    until = time.monotonic() + seconds
    while True:
        now = Left.now()
        is_calm = now.threads <= before.threads and now.files <= before.files and now.sockets <= before.sockets
        if is_calm or time.monotonic() > until:
            return now
        time.sleep(0.1)


def assert_nothing_left(before: Left, after: Left, most_bytes: int) -> None:
    """No thread, file or socket more than before, and no more memory than that."""
    assert after.threads <= before.threads, after.threads - before.threads
    assert after.files <= before.files, f"{after.files - before.files} files are open"
    assert after.sockets <= before.sockets, f"{after.sockets - before.sockets} sockets are open"
    grown = after.bytes - before.bytes
    assert grown <= most_bytes, f"memory has grown by {grown / 2**20:.1f} MiB"
