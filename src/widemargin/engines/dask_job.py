"""One job on a Dask cluster: a task on each of some workers, which are locked for it; both ranks and peers use it.

Each task is pinned to its worker, by that address and no other, to which it could be stolen while the worker is busy. A
task that is pinned to a worker that is gone never ends; so the driver checks which workers are there. A lock over the
workers keeps two jobs from blocking each other. Members report to the driver by events of the cluster, and the driver
asks them to stop through the scheduler. A member whose driver is gone stops by itself and releases the lock.
"""

import queue
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client, Future, MultiLock, get_client, get_worker, secede

from widemargin.comm.dask_connections import Connections, JobBoard
from widemargin.comm.dask_private import drop_events, is_cancelled, release_lock
from widemargin.exceptions import PeerLost

POLL_INTERVAL = 0.05  # seconds between two checks of the tasks and reports
_PRESENCE_INTERVAL = 0.5  # seconds between two checks which workers are there
_STOP_INTERVAL = 0.25  # seconds between two checks of a member whether to stop
_LOCK_WAIT = 1.0  # seconds of waiting for the lock at a time


def workers_of(client: Client) -> list[str]:
    """Addresses of all workers that are there."""
    return sorted(client.nthreads())  # the client's own refresh empties the list in scheduler_info now and then


def send_to(client: Client, address: str, values: Sequence[Any]) -> list[Future[Any]]:
    """Send values to one worker."""
    return list(client.scatter(list(values), workers=[address], hash=False, direct=False))


class Job:
    """The tasks of all members, as the driver sees them; ``on_report`` is called here with what members report."""

    def __init__(self, client: Client, kind: str, addresses: list[str], on_report: Callable[[Any], None]) -> None:
        self._client, self._kind, self._on_report = client, kind, on_report
        self._name = f"widemargin-{uuid.uuid4().hex[:12]}"
        self._reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._check_presence_at = 0.0
        self.addresses, self.board = addresses, JobBoard(self._name, client)
        self.futures: list[Future[Any]] = []
        self.lost: set[int] = set()  # members that have not finished, and whose workers are gone

    @contextmanager
    def running(self, main: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[None]:
        """Run ``main(member, *arguments[k])`` on the k-th worker; at the end cancel it and clean up the scheduler."""
        with self._locked() as lock:
            try:
                self._client.subscribe_topic(self._name, lambda event: self._reports.put(event[1]))
                self._submit(main, arguments, lock)
                yield
            finally:
                with suppress(Exception):  # a client that is closed can clean up nothing
                    self._client.cancel(self.futures, force=True)
                    self._client.unsubscribe_topic(self._name)
                    self.board.clear(len(self.addresses))
                    drop_events(self._client, self._name)

    def polls(self) -> Iterator[None]:
        """Hand over reports, and yield, every few milliseconds until all members have ended or are lost."""
        while True:
            has_ended = self._has_ended()
            while not self._reports.empty():
                self._on_report(self._reports.get())
            if has_ended:
                return
            yield
            time.sleep(POLL_INTERVAL)

    def _has_ended(self) -> bool:
        is_done = [future.done() for future in self.futures]
        if not all(is_done) and time.monotonic() >= self._check_presence_at:
            present = workers_of(self._client)
            unfinished = [number for number, future in enumerate(self.futures) if future.status != "finished"]
            self.lost = {number for number in unfinished if self.addresses[number] not in present}
            self._check_presence_at = time.monotonic() + _PRESENCE_INTERVAL
        return all(done or number in self.lost for number, done in enumerate(is_done))

    def _submit(self, main: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], lock: str) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            for number, (address, own) in enumerate(zip(self.addresses, arguments, strict=True)):
                member, key = (self._name, number, address, lock), f"widemargin-{self._kind}{number}-{self._name}"
                options = {"key": key, "workers": [address], "pure": False, "retries": 0}
                self.futures.append(self._client.submit(_run_member, main, member, *own, **options))

    @contextmanager
    def _locked(self) -> Iterator[str]:
        """Lock the workers; yields the id by which a member can release the lock if the driver dies."""
        lock = MultiLock(names=sorted(self.addresses), client=self._client)
        while not lock.acquire(timeout=_LOCK_WAIT):
            pass  # asked again and again: a driver that dies while it waits must not stay in the queue
        try:
            yield lock.id
        finally:
            if self._client.status == "running":
                lock.release()


class Member:
    """One member of a job, on its worker."""

    def __init__(self, job: str, number: int, address: str, lock: str) -> None:
        self.number, self._job, self._lock, self._worker = number, job, lock, get_worker()
        if self._worker.address != address:
            raise PeerLost(f"Worker {address} was lost before its task could run there.", address)
        self._key = str(self._worker.get_current_task())
        secede()  # a task that waits for others must not hold a thread that theirs may need
        self._board = JobBoard(job, get_client())
        self.connections = Connections(self._worker, self._board, number)
        self._is_abandoned, self._check_stop_at = False, 0.0

    def report(self, report: Any) -> None:
        """Tell the driver something, as plain data."""
        self._worker.log_event(self._job, report)

    def must_stop(self, part: int = 0, *, releases_lock: bool = True) -> bool:
        """Whether the driver asks for it, or is gone, so that the task is cancelled.

        One member must release the lock in the place of a driver that is gone.
        """
        if is_cancelled(self._worker, self._key):
            if releases_lock and not self._is_abandoned:
                release_lock(self._worker, self._lock)
            self._is_abandoned = True
            return True
        if time.monotonic() < self._check_stop_at:
            return False
        self._check_stop_at = time.monotonic() + _STOP_INTERVAL
        return self._board.is_asked_to_stop(part)


def _run_member(main: Callable[..., Any], member: tuple[str, int, str, str], *arguments: Any) -> Any:
    return main(Member(*member), *arguments)
