"""Workers that die at every step of a fit on Dask, and what is left when it is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.conftest import StopAfter, eventually, start_cluster
from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    PeerLost,
    SparseSVC,
    SparseSVCCV,
)
from widemargin.data import make_nonseparable
from widemargin.exceptions import PeerLostWarning

dask = pytest.importorskip("dask", reason="needs the dask extra")
distributed = pytest.importorskip("distributed", reason="needs the dask extra")
da = pytest.importorskip("dask.array")
engine = pytest.importorskip("widemargin.engines.dask")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

N_WORKERS = 3
HANG = 150.0  # seconds; a loss is noticed within 10, on a machine that has nothing else to do
TOL = 1e-6


class Workers:
    """A cluster whose workers are started again, at other addresses, after they were killed."""

    def __init__(self):
        self._start()

    def ready(self):
        """A client, once all workers are there."""
        if not self._are_all_up():
            self.close()  # Dask gives a worker up that is killed before it was known to run
            self._start()
            assert self._are_all_up()
        return self.client

    def close(self) -> None:
        self.client.close()
        with suppress(TimeoutError):
            self._cluster.close(timeout=HANG)

    def _start(self) -> None:
        self._cluster = start_cluster(N_WORKERS)
        self.client = distributed.Client(self._cluster)

    def _are_all_up(self) -> bool:
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            processes = [nanny.process for nanny in self._cluster.workers.values()]
            are_running = all(each is not None and each.status.name == "running" for each in processes)
            pids = {each.pid for each in processes if each is not None}
            with suppress(OSError):  # one that was killed a moment ago
                if are_running and set(self.client.run(os.getpid).values()) == pids and len(pids) == N_WORKERS:
                    return True
            time.sleep(0.05)
        return False


@pytest.fixture(scope="module")
def workers():
    workers = Workers()
    yield workers
    workers.close()


@pytest.fixture
def client(workers):
    return workers.ready()


@pytest.fixture(scope="module")
def data():
    return make_nonseparable(900, 12, random_state=0)


def as_collections(X, y):
    """Chunks that can be computed again, on whichever worker."""
    X = da.from_array(X, chunks=(150, X.shape[1]))
    return X, da.from_array(y, chunks=150)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class Killer:
    """Kills a worker once, before or after a step of the driver."""

    def __init__(self, client, victim: int):
        pids = client.run(os.getpid)
        self.address = sorted(pids)[victim % len(pids)]
        self._pid, self.killed_at = pids[self.address], None

    def strike(self) -> None:
        if self.killed_at is None:
            self.killed_at = time.monotonic()
            kill(self._pid)

    def around(self, monkeypatch, owner, name, when) -> None:
        step = getattr(owner, name)

        def disturbed(*arguments):
            if when == "before":
                self.strike()
            try:
                return step(*arguments)
            finally:
                if when == "after":
                    self.strike()

        monkeypatch.setattr(owner, name, disturbed)


@dataclass
class Dying:
    """A solver, one rank of which dies in a verb, the ``count``-th time; only once, which a file says to all."""

    solver: Any
    verb: str
    count: int
    victim: int
    mark: Path
    rank: int = -1

    def for_rows(self, *rows):
        return replace(self, solver=self.solver.for_rows(*rows))

    def start(self, problem, shard, comm, rng, warm=None):
        self.rank = comm.rank
        self._may_die("start")
        return self.solver.start(problem, shard, comm, rng, warm)

    def sweep(self, state):
        self._may_die("sweep")
        return self.solver.sweep(state)

    def certify(self, state):
        self._may_die("certify")
        return self.solver.certify(state)

    def extract(self, state):
        self._may_die("extract")
        return self.solver.extract(state)

    def _may_die(self, verb) -> None:
        if verb != self.verb or self.rank != self.victim:
            return
        self.count -= 1
        if self.count == 0 and not self.mark.exists():
            self.mark.write_text(str(time.monotonic()))
            kill(os.getpid())

    def __getattr__(self, name):
        if name.startswith("__") or name == "solver":
            raise AttributeError(name)
        return getattr(self.solver, name)


def dying(Estimator: Any, verb: str, count: int, victim: int, mark: Path, **options):
    class Doomed(Estimator):
        def _solver(self):
            return Dying(super()._solver(), verb, count, victim, mark)

    return Doomed(**options)


DRIVER_STEPS = {
    "connect": None,  # a worker that has died just now, and that the scheduler still lists
    "before place": (engine._Fit, "_place", "before"),
    "after place": (engine._Fit, "_place", "after"),
    "before scatter": (engine.Job, "send", "before"),
    "after scatter": (engine.Job, "send", "after"),
    "before start": (engine.Job, "start", "before"),
    "after start": (engine.Job, "start", "after"),
    "in a report": None,
    "before gather": (engine.Job, "result", "before"),
    "after gather": (engine.Job, "result", "after"),
    "at the end": (engine.Job, "_clean_up", "before"),
}
RANK_STEPS = [("start", 1), ("certify", 1), *(("sweep", count) for count in range(1, 7)), ("extract", 1)]
KINDS = {
    "nu, array": (NuMarginSVC, {"tol": TOL, "nu": 0.7}, False),
    "nu, collection": (NuMarginSVC, {"tol": TOL, "nu": 0.7}, True),
    "kernel, array": (KernelSVC, {"gamma": 0.3, "tol": TOL}, False),
    "kernel, collection": (KernelSVC, {"gamma": 0.3, "tol": TOL}, True),
    "sparse, array": (SparseSVC, {}, False),
}


class StrikeInAReport(StopAfter):
    def __init__(self, killer: Killer):
        super().__init__()
        self.killer = killer

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "sweep":
            self.killer.strike()


def disturbed_fit(client, monkeypatch, mark, data, kind, step, victim):
    """What came of a fit, a worker of which was killed at this step: the model or PeerLost, and how long it took."""
    Estimator, options, is_collection = KINDS[kind]
    rows = as_collections(*data) if is_collection else data
    with monkeypatch.context() as patched, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if isinstance(step, tuple):
            mark.unlink(missing_ok=True)
            model = dying(Estimator, step[0], step[1], victim, mark, cluster=client, **options)
        else:
            model, killer = Estimator(cluster=client, **options), Killer(client, victim)
            if step == "connect":
                killer.strike()
            elif step == "in a report":
                model.set_callbacks(StrikeInAReport(killer))
            else:
                killer.around(patched, *DRIVER_STEPS[step])
        outcome = ended(lambda: model.fit(*rows))
        killed_at = float(mark.read_text() or 0) if isinstance(step, tuple) and mark.exists() else None
        killed_at = killer.killed_at if not isinstance(step, tuple) else killed_at
    seconds = None if killed_at is None else time.monotonic() - killed_at
    return outcome, seconds, [each.message for each in caught if isinstance(each.message, PeerLostWarning)]


def ended(fit):
    """What a fit returned or raised; fails if it does neither."""
    outcomes = []

    def run():
        try:
            outcomes.append(fit())
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=HANG)
    if not outcomes:
        return TimeoutError("the fit hangs")
    return outcomes[0]


@pytest.fixture(scope="module")
def undisturbed(data):
    """The certificates of all kinds of fits."""
    return {name: Estimator(**options).fit(*data).certificate_ for name, (Estimator, options, _) in KINDS.items()}


def verdict(outcome, true) -> str:
    """``right``, ``lost``, or what is wrong: two brackets of the same optimum overlap, and a closed gap is closed."""
    if isinstance(outcome, PeerLost):
        return "lost"
    if isinstance(outcome, BaseException):
        return f"{type(outcome).__name__}: {outcome}"
    found, allowance = outcome.certificate_, 1e-9 * abs(true.primal)
    bounds = sorted([found[:2], true[:2]], key=min)
    overlap = max(bounds[0]) >= min(bounds[1]) - allowance
    return "right" if overlap and outcome.stop_reason_ == "gap" else f"wrong: {found} instead of {true}"


@pytest.mark.parametrize(
    ("kind", "step", "victim"),
    [
        ("nu, array", "connect", 0),
        ("nu, array", "after scatter", 2),
        ("nu, collection", "after place", 1),
        ("nu, array", "after start", 0),
        ("nu, array", ("start", 1), 1),
        ("kernel, collection", ("sweep", 3), 2),
        ("nu, array", "before gather", 0),
        ("nu, array", "at the end", 0),
    ],
    ids=str,
)
def test_a_worker_that_dies_at_any_step_leaves_the_fit_right(
    client, monkeypatch, tmp_path, data, undisturbed, kind, step, victim
):
    outcome, seconds, _ = disturbed_fit(client, monkeypatch, tmp_path / "mark", data, kind, step, victim)
    assert seconds is not None, "no worker was killed"
    assert verdict(outcome, undisturbed[kind]) == "right", outcome


def test_a_machine_that_dies_before_it_has_its_rows_is_not_missed(client, data):
    Killer(client, 1).strike()
    model = ended(lambda: DebiasedSparseSVC(cluster=client).fit(*data))
    assert model.n_rows_ == len(data[1]), model


def test_folds_and_branches_are_repeated_elsewhere(workers, data):
    X, y = data[0][:300], data[1][:300]
    client = workers.ready()
    Killer(client, 0).strike()
    folds, alone = ended(lambda: SparseSVCCV(n_alphas=3, cluster=client).fit(X, y)), SparseSVCCV(n_alphas=3).fit(X, y)
    np.testing.assert_array_equal(folds.error_path_, alone.error_path_)
    client = workers.ready()
    Killer(client, 1).strike()
    tree = ended(lambda: MarginDistributionSVC(solver="partition-merge", cluster=client).fit(X, y))
    assert verdict(tree, MarginDistributionSVC(tol=TOL).fit(X, y).certificate_) == "right"


@pytest.mark.long
def test_two_hundred_kills(workers, monkeypatch, tmp_path, data, undisturbed):
    """Steps, victims and kinds of fits in turn; prints what came of them."""
    steps = [*DRIVER_STEPS, *RANK_STEPS]
    random, counts, slowest = np.random.default_rng(0), Counter(), 0.0
    while sum(counts.values()) < 200:
        for step in steps:
            kind = list(KINDS)[random.integers(len(KINDS))]
            outcome, seconds, _ = disturbed_fit(
                workers.ready(), monkeypatch, tmp_path / "mark", data, kind, step, int(random.integers(N_WORKERS))
            )
            if seconds is not None:  # a fit of few sweeps may end before the one in which a rank dies
                said = verdict(outcome, undisturbed[kind])
                counts[said if said in ("right", "lost") else f"{kind}, {step}: {said}"] += 1
                slowest = max(slowest, seconds)
                print(f"{sum(counts.values())}: {kind}, {step}: {said} after {seconds:.1f} s", flush=True)
    print(f"{sum(counts.values())} kills: {dict(counts)}; the slowest fit ended {slowest:.1f} s after its kill")
    assert set(counts) <= {"right", "lost"}, counts
    assert counts["right"] > 0.9 * sum(counts.values())


# -- going on --------------------------------------------------------------------------------------------------------


class Slow(Dying):
    def sweep(self, state):
        time.sleep(0.05)
        return super().sweep(state)


def test_after_a_loss_a_fit_goes_on_from_its_last_state(client, tmp_path, data):
    class Doomed(NuMarginSVC):
        def _solver(self):
            return Slow(super()._solver(), "sweep", 9, 1, tmp_path / "mark")

    options = {"nu": 0.7, "solver": "saddle", "block_size": 4, "tol": 0.0, "max_iter": 12, "random_state": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ended(lambda: Doomed(cluster=client, **options).fit(*data))
        whole = NuMarginSVC(cluster=N_WORKERS, **options).fit(*data)
    (lost,) = [each.message for each in caught if isinstance(each.message, PeerLostWarning)]
    assert "goes on with" in str(lost)
    assert model.n_iter_ == 12
    assert model.cost_.lost_peers == 1
    sweeps = [row["sweep"] for row in model.history_]
    assert 1 < sweeps[0] <= 9, "it began again"
    assert sweeps == [row["sweep"] for row in whole.history_ if row["sweep"] >= sweeps[0]]
    first, fresh = model.history_[0], whole.history_[0]
    assert first["primal"] - first["dual"] < fresh["primal"] - fresh["dual"], "it went on from nothing"
    assert first["seconds"] > 0.05 * (sweeps[0] - 1), "the time before the loss counts"


# -- what is left ----------------------------------------------------------------------------------------------------


def state_of(dask_scheduler):
    """All that the scheduler keeps by name, except for its own logs of workers and clients."""
    extensions = dask_scheduler.extensions
    kept = {
        "tasks": [str(key) for key in dask_scheduler.tasks],
        "topics": [name for name in dask_scheduler._broker._topics if "widemargin" in name],
        "clients": list(dask_scheduler.clients),
        "handlers": list(dask_scheduler.handlers),
        "variables": list(extensions["variables"].variables),
        "events": list(extensions["events"]._events),
        "queues": list(extensions["queues"].queues),
        "semaphores": list(extensions["semaphores"].max_leases),
        "multi-locks": [*extensions["multi_locks"].requests, *extensions["multi_locks"].locks],
        "published": list(extensions["publish"].datasets),
    }
    return {kind: sorted(map(str, names)) for kind, names in kept.items()}


def data_on_workers(client):
    return sorted(
        key for keys in client.run(lambda dask_worker: list(map(str, dask_worker.data))).values() for key in keys
    )


class RefusesToSweep(Dying):
    def sweep(self, state):
        raise ArithmeticError("no")


class FailingSVC(NuMarginSVC):
    def _solver(self):
        return RefusesToSweep(super()._solver(), "", 0, 0, Path())


ENDLESS = {"nu": 0.7, "solver": "saddle", "block_size": 1, "tol": 0.0, "max_iter": 1_000_000, "random_state": 0}


@pytest.mark.parametrize(
    "end", ["finished", "collection", "checkpoint", "failed", "stopped", "lost", "folds", "tree", "gossip"]
)
def test_nothing_is_left_on_the_scheduler(client, data, tmp_path, end):
    X, y = data
    before = client.run_on_scheduler(state_of), data_on_workers(client)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = ended({
            "finished": lambda: NuMarginSVC(cluster=client).fit(X, y),
            "collection": lambda: KernelSVC(cluster=client).fit(*as_collections(X, y)),
            "checkpoint": lambda: NuMarginSVC(cluster=client, checkpoint=tmp_path, tol=TOL).fit(X, y),
            "failed": lambda: FailingSVC(cluster=client).fit(X, y),
            "stopped": lambda: NuMarginSVC(cluster=client, **ENDLESS).set_callbacks(StopAfter(2)).fit(X, y),
            "lost": lambda: dying(NuMarginSVC, "sweep", 1, 1, tmp_path / "mark", cluster=client).fit(X, y),
            "folds": lambda: SparseSVCCV(n_alphas=3, cluster=client).fit(X, y),
            "tree": lambda: MarginDistributionSVC(solver="partition-merge", cluster=client).fit(X[:300], y[:300]),
            "gossip": lambda: GossipSVC(cluster=client, n_peers=2, max_iter=20, max_time=20).fit(X[:100], y[:100]),
        }[end])  # fmt: skip
    assert isinstance(outcome, ArithmeticError) if end == "failed" else hasattr(outcome, "classes_"), outcome
    assert client.run_on_scheduler(state_of) == before[0]
    assert eventually(lambda: data_on_workers(client) == before[1])


def test_nothing_is_left_by_a_program_that_dies(client):
    """Nor by its ranks, which end by themselves; and the workers are free again."""
    before = client.run_on_scheduler(state_of)
    program = (
        "import sys, distributed; from widemargin import NuMarginSVC; from widemargin.data import make_nonseparable\n"
        f"client = distributed.Client(sys.argv[1])\n"
        f"NuMarginSVC(cluster=client, verbose=1, **{ENDLESS!r}).fit(*make_nonseparable(900, 12, random_state=0))\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, client.scheduler.address], stderr=subprocess.PIPE, text=True
    )
    try:
        assert "sweep" in driver.stderr.readline()
    finally:
        driver.kill()
        driver.wait()
        driver.stderr.close()
    X, y = make_nonseparable(300, 5, random_state=0)
    assert ended(lambda: NuMarginSVC(cluster=client).fit(X, y)).stop_reason_ == "gap"
    assert eventually(lambda: client.run_on_scheduler(state_of) == before), client.run_on_scheduler(state_of)


# -- the scheduler ---------------------------------------------------------------------------------------------------


@pytest.fixture
def own_scheduler(tmp_path):
    """A scheduler and two workers, processes of their own; yields a client and the scheduler's process."""
    quiet = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "critical"}
    where = ["--scheduler-file", str(tmp_path / "scheduler.json"), "--no-dashboard"]
    run = [sys.executable, "-m"]
    hushed = {"env": quiet, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [*run, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *where], **hushed
    )
    started = [scheduler]
    try:
        assert eventually((tmp_path / "scheduler.json").exists)
        for _ in range(2):
            options = ["--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--death-timeout", "5"]
            started.append(subprocess.Popen([*run, "distributed.cli.dask_worker", *options, *where], **hushed))
        client = distributed.Client(scheduler_file=str(tmp_path / "scheduler.json"))
        client.wait_for_workers(2, timeout=HANG)
        yield client, scheduler
        scheduler.kill()
        client.close(timeout=1)
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("harm", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_the_death_of_the_scheduler_ends_the_fit_in_plain_words(own_scheduler, data, harm):
    client, scheduler = own_scheduler
    struck = []

    class Strike(StopAfter):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "sweep" and not struck:
                struck.append(time.monotonic())
                scheduler.send_signal(harm)

    outcome = ended(lambda: NuMarginSVC(cluster=client, **ENDLESS).set_callbacks(Strike()).fit(*data))
    seconds = time.monotonic() - struck[0]
    assert isinstance(outcome, PeerLost), outcome
    assert client.scheduler.address in str(outcome)
    assert "does not answer" in str(outcome)
    assert seconds < 45, "15 s, and what a busy machine adds"
