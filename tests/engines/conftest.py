"""What tests of engines share: clusters, a callback that stops a fit, and a gate that holds one in its middle."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

N_WORKERS = 3
PATIENCE = 180.0  # seconds after which what has not come will not come


def start_cluster(n_workers: int = N_WORKERS, **options):
    """Processes on this machine."""
    import distributed

    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    return distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, **quiet, **options)


@pytest.fixture(scope="module")
def client():
    """A cluster for all tests of a module, none of which does harm to it."""
    import distributed

    with start_cluster() as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def doomed():
    """A cluster of its own for a test that does harm to it."""
    import distributed

    cluster = start_cluster()
    client = distributed.Client(cluster)
    try:
        yield client
    finally:
        client.close()
        cluster.close(timeout=10)


class StopAfter:
    """A callback that keeps the models of all sweeps and asks to stop after so many; None is never."""

    def __init__(self, n_sweeps: int | None = None):
        self.n_sweeps, self.models = n_sweeps, []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "sweep":
            self.models.append(fitted_estimator)
        return self.n_sweeps is not None and len(self.models) >= self.n_sweeps


@dataclass(frozen=True)
class Gate:
    """A place in a fit where each process waits, the first time it comes there, until it is opened.

    It is a folder, so that it works between processes: those that came have left a file there.
    """

    folder: Path

    def wait(self) -> None:
        mark = self.folder / str(os.getpid())
        if mark.exists():
            return
        mark.touch()
        if not eventually((self.folder / "open").exists):
            raise TimeoutError("the gate was not opened")

    def waiting(self) -> list[int]:
        """Processes that came, opened or not."""
        return sorted(int(mark.name) for mark in self.folder.iterdir() if mark.name.isdigit())

    def open(self) -> None:
        (self.folder / "open").touch()


@pytest.fixture
def gate(tmp_path):
    folder = tmp_path / "gate"
    folder.mkdir()
    gate = Gate(folder)
    yield gate
    gate.open()


class Gated:
    """A solver whose first sweep in each process begins at a gate."""

    def __init__(self, solver, gate: Gate):
        self.solver, self.gate = solver, gate

    def for_rows(self, *rows):
        return Gated(self.solver.for_rows(*rows), self.gate)

    def sweep(self, state):
        self.gate.wait()
        return self.solver.sweep(state)

    def __getattr__(self, name):
        if name.startswith("__"):  # asked for before there is a solver, when it is unpickled
            raise AttributeError(name)
        return getattr(self.solver, name)


def eventually(is_so) -> bool:
    """Whether it is so before patience ends."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
