"""Names of distributed that its documentation does not promise: a new version may move them, and these tests say which.

Where one fails, ``widemargin/comm/dask_private.py`` is the file to change.
"""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from typing import get_args

import pytest

import widemargin

distributed = pytest.importorskip("distributed", reason="needs the dask extra")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PRIVATE = {"asyncio_loop", "multi_lock_release", "remove_worker", "_broker", "state", "tasks"}


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def has(start, path):
    """Whether there are attributes by all these names, each of the one before."""
    for name in path.split("."):
        if not hasattr(start, name):
            return False
        start = getattr(start, name)
    return True


def own_task():
    """What is missing on a worker for one of its tasks."""
    worker = distributed.get_worker()
    missing = [f"worker.{path}" for path in ("loop.asyncio_loop", "state.tasks") if not has(worker, path)]
    key = worker.get_current_task()
    if key not in worker.state.tasks:
        missing.append("the key of a running task in worker.state.tasks")
    elif worker.state.tasks[key].state != "executing":
        missing.append("a task in worker.state.tasks whose state is 'executing' while it runs")
    return missing


def on_scheduler(dask_scheduler):
    paths = ("workers", "remove_worker", "_broker.truncate")
    missing = [f"scheduler.{path}" for path in paths if not has(dask_scheduler, path)]
    if "multi_lock_release" not in dask_scheduler.handlers:
        missing.append("the scheduler's handler 'multi_lock_release', which worker.scheduler calls")
    return missing


def test_every_private_name_is_where_we_look_for_it(client):
    missing = client.submit(own_task).result() + client.run_on_scheduler(on_scheduler)
    from distributed.worker_state_machine import TaskStateState

    if "cancelled" not in get_args(TaskStateState):
        missing.append("the state 'cancelled' of a task on a worker")
    assert not missing, f"distributed {distributed.__version__} no longer has: {'; '.join(missing)}."


def test_a_lock_is_released_by_its_id_and_events_are_dropped_by_their_topic(client):
    from widemargin.comm.dask_private import drop_events

    lock = distributed.MultiLock(names=["one", "two"], client=client)
    assert lock.acquire(timeout=10)
    client.submit(release, lock.id).result()
    other = distributed.MultiLock(names=["two"], client=client)
    assert other.acquire(timeout=60), "release_lock did not release a MultiLock"
    other.release()
    client.log_event("widemargin-topic", "news")
    assert client.get_events("widemargin-topic")
    drop_events(client, "widemargin-topic")
    assert not client.get_events("widemargin-topic"), "drop_events did not drop the events of a topic"


def release(lock):
    from widemargin.comm.dask_private import release_lock

    release_lock(distributed.get_worker(), lock)


def test_private_names_stand_in_one_file():
    package = Path(widemargin.__file__).parent
    files = [path for folder in ("comm", "engines") for path in (package / folder).glob("dask*.py")]
    found = {
        f"{path.parent.name}/{path.name}: {node.attr}"
        for path in files
        if path.name != "dask_private.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8")))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE
    }
    assert len(files) == 7
    assert not found
