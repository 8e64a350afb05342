"""One job on a Dask cluster: a task on each of some workers, which it has for itself; both ranks and peers use it.

Each task is pinned to its worker, by that address and no other, to which it could be stolen while the worker is busy. A
task that is pinned to a worker that is gone never ends, nor may a call that needs such a worker; so the driver looks
all the time which workers are there. What driver and members tell each other stands on a board that the scheduler
keeps, under an entry that goes with the job. A member whose driver is gone finds no entry and ends.
"""

import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError as ThreadCancelled
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TypeVar

from distributed import CancelledError, Future, KilledWorker, get_worker, secede

from widemargin import cores
from widemargin.comm.dask_connections import Connections, JobBoard, MemberBoard, Scheduler, SchedulerLost
from widemargin.comm.dask_private import n_threads_of
from widemargin.exceptions import PeerLost

T = TypeVar("T")

POLL_INTERVAL = 0.05  # seconds between two looks at tasks, reports and workers
_STOP_INTERVAL = 0.25  # seconds between two checks of a member whether to stop
_FORGETTING = 1.0  # seconds until the scheduler has forgotten what it was asked to forget, at most
_SILENCE = 30.0  # seconds after which a worker that is asked for something, and sends no sign of life, counts as lost

# What Dask raises, at once or after a while, where a worker is gone: a closed connection, an address that is not known.
GONE = (OSError, KeyError, CancelledError, ThreadCancelled, KilledWorker)


class Job:
    """The tasks of all members, as the driver sees them; ``on_report`` is called here with what members report."""

    def __init__(
        self, scheduler: Scheduler, kind: str, addresses: list[str], on_report: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._scheduler, self._client = scheduler, scheduler.client
        self._kind, self._on_report = kind, on_report
        self._name = f"widemargin-{uuid.uuid4().hex[:12]}"
        self._reports: list[Any] = []
        self._sent: list[Future[Any]] = []
        self.addresses, self.board = addresses, JobBoard(self._name, scheduler)
        self.futures: list[Future[Any]] = []
        self.lost: set[int] = set()  # members that have not finished, and whose workers are gone

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the workers; at the end cancel all tasks and leave nothing on the scheduler."""
        try:
            self.board.open(self.addresses)
            yield
        except SchedulerLost:
            raise  # there is nobody who could forget
        except BaseException:
            with suppress(SchedulerLost):
                self._clean_up()
            raise
        self._clean_up()

    def _clean_up(self) -> None:
        forget(self._scheduler, self.futures + self._sent)
        self.board.close()

    def send(self, number: int, values: Sequence[Any]) -> list[Future[Any]]:
        """Send values to one worker, for as long as the job is open; PeerLost if they do not arrive."""
        address = self.addresses[number]
        options: dict[str, Any] = {"workers": [address], "hash": False, "direct": False}
        sent = self._on_worker(address, lambda: self._client.scatter(list(values), **options))
        self._sent += sent
        return list(sent)

    def start(self, main: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Run ``main(member, *arguments[k])`` on the k-th worker."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            for number, (address, own) in enumerate(zip(self.addresses, arguments, strict=True)):
                member, key = (self._name, number, address), f"widemargin-{self._kind}{number}-{self._name}"
                options = {"key": key, "workers": [address], "pure": False, "retries": 0}
                self.futures.append(self._client.submit(_run_member, main, member, *own, **options))

    def polls(self) -> Iterator[None]:
        """Hand over reports, and yield, every few milliseconds until all members have ended or are lost."""
        while True:
            is_done = [future.done() for future in self.futures]
            present = self._look()
            unfinished = [number for number, future in enumerate(self.futures) if future.status != "finished"]
            self.lost = {number for number in unfinished if self.addresses[number] not in present}
            while self._reports:
                self._on_report(self._reports.pop(0))
            if all(done or number in self.lost for number, done in enumerate(is_done)):
                return
            yield
            time.sleep(POLL_INTERVAL)

    def result(self, number: int) -> Any:
        """What a member that has finished returned; PeerLost if its worker is gone with it."""
        return self._on_worker(self.addresses[number], self.futures[number].result)

    def _look(self) -> dict[str, float]:
        """Keep new reports; the workers that are there, and the seconds since each was heard of."""
        reports, present = self.board.look()
        self._reports += reports
        return present

    def _on_worker(self, address: str, work: Callable[[], T]) -> T:
        """The result of ``work``, which needs this worker."""

        def check() -> None:
            if self._look().get(address, _SILENCE) >= _SILENCE:
                raise PeerLost(f"Worker {address} was lost.", address)

        try:
            return in_background(work, check)
        except GONE as error:
            self._look()  # unless it is the scheduler that is gone
            raise PeerLost(f"Worker {address} was lost ({type(error).__name__}).", address) from error


def in_background(work: Callable[[], T], check: Callable[[], None]) -> T:
    """The result of ``work``, in a thread of its own, where it may wait for ever; an error of ``check`` gives it up."""
    outcome: ThreadFuture[T] = ThreadFuture()

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=do, daemon=True).start()
    while not wait([outcome], timeout=POLL_INTERVAL).done:
        check()
    return outcome.result()


def forget(scheduler: Scheduler, futures: Sequence[Future[Any]]) -> None:
    """Cancel tasks, release what they left, and wait a moment until the scheduler has done so, too.

    An error that is kept keeps frames alive, and so futures: they must be released by hand. Does nothing where the
    scheduler is gone, or the client closed.
    """
    with suppress(Exception):
        scheduler.client.cancel(list(futures), force=True)
        for future in futures:
            future.release()
        keys, until = [future.key for future in futures], time.monotonic() + _FORGETTING
        while any(scheduler.call("get_task_status", keys=keys).values()) and time.monotonic() < until:
            time.sleep(0.01)


class Member:
    """One member of a job, on its worker."""

    def __init__(self, job: str, number: int, address: str) -> None:
        self.number, worker = number, get_worker()
        if worker.address != address:
            raise PeerLost(f"Worker {address} was lost before its task could run there.", address)
        secede()  # a task that waits for others must not hold a thread that theirs may need
        self.board = MemberBoard(job, worker)
        self.connections = Connections(worker, self.board, number)
        self._check_stop_at = 0.0

    def must_stop(self, part: int = 0) -> bool:
        """Whether the driver asks for it, or is gone."""
        if time.monotonic() < self._check_stop_at:
            return False
        self._check_stop_at = time.monotonic() + _STOP_INTERVAL
        return self.board.is_asked_to_stop(part)


def _run_member(main: Callable[..., Any], member: tuple[str, int, str], *arguments: Any) -> Any:
    own = Member(*member)
    outcome = on_own_threads(main, own, *arguments)
    own.board.flush()
    return outcome


def on_own_threads(work: Callable[..., T], *arguments: Any) -> T:
    """In a task: do work on the threads of its worker at most; there may be several workers in one process."""
    with cores.at_most(min(cores.n_threads(), n_threads_of(get_worker()))):
        return work(*arguments)
