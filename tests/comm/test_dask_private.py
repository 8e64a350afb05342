"""Names of distributed that its documentation does not promise: a new version may move them, and these tests say which.

Where one fails, ``widemargin/comm/dask_private.py`` is the file to change.
"""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import widemargin

distributed = pytest.importorskip("distributed", reason="needs the dask extra")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PRIVATE = {"nthreads", "asyncio_loop", "handlers", "clients", "tasks", "last_seen"}


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


def on_worker():
    """What is missing on a worker."""
    worker = distributed.get_worker()
    return [
        f"worker.{path}"
        for path in ("loop.asyncio_loop", "scheduler.address", "state.nthreads")
        if not has(worker, path)
    ]


def on_scheduler(dask_scheduler):
    paths = ("workers", "clients", "tasks", "remove_worker")
    missing = [f"scheduler.{path}" for path in paths if not has(dask_scheduler, path)]
    handlers = [name for name in ("ncores", "who_has", "get_task_status") if name not in dask_scheduler.handlers]
    seen = [each.last_seen for each in dask_scheduler.workers.values()]
    missing += [f"the scheduler's handler {name!r}" for name in handlers]
    return missing if all(isinstance(each, float) for each in seen) else [*missing, "last_seen of a worker"]


def test_every_private_name_is_where_we_look_for_it(client):
    missing = client.submit(on_worker).result() + client.run_on_scheduler(on_scheduler)
    if client.id not in client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.clients)):
        missing.append("the id of a client among the scheduler's clients")
    assert not missing, f"distributed {distributed.__version__} no longer has: {'; '.join(missing)}."


def talk_to(job):
    """What a member of a job hears of its board."""
    from widemargin.comm.dask_connections import MemberBoard

    board = MemberBoard(job, distributed.get_worker())
    board.leave_address(3, "tcp://somewhere")
    board.report("news")
    board.flush()
    return board.address_of(3, timeout=5.0), board.address_of(4, timeout=0.1), board.is_asked_to_stop(7)


def test_a_board_serves_driver_and_members_and_goes_with_the_last_job(client):
    from widemargin.comm.dask_connections import JobBoard, Scheduler

    scheduler = Scheduler(client)
    board, other = JobBoard("one", scheduler), JobBoard("another", scheduler)
    board.open(["a", "b"])
    other.open(["c"])
    assert client.submit(talk_to, "one", pure=False).result() == ("tcp://somewhere", None, False)
    reports, workers = board.look()
    assert reports == ["news"]
    assert sorted(workers) == scheduler.workers()
    assert board.look()[0] == []
    board.ask_to_stop(7)
    assert client.submit(talk_to, "one", pure=False).result() == ("tcp://somewhere", None, True)
    board.close()
    assert client.submit(talk_to, "one", pure=False).result() == (None, None, True), "a job that is over is not heard"
    assert other.look()[0] == []
    other.close()
    assert not client.run_on_scheduler(lambda dask_scheduler: [n for n in dask_scheduler.handlers if "widemargin" in n])


def test_a_worker_belongs_to_one_job_until_its_driver_is_done_or_gone(client):
    import threading

    from widemargin.comm.dask_connections import JobBoard, Scheduler

    driver = distributed.Client(client.scheduler.address)
    JobBoard("first", Scheduler(driver)).open(["a"])
    second = JobBoard("second", Scheduler(client))
    thread = threading.Thread(target=second.open, args=(["a", "b"],))
    thread.start()
    thread.join(timeout=0.5)
    assert thread.is_alive()
    driver.close()
    thread.join(timeout=60)
    assert not thread.is_alive()
    second.close()


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
