"""How the members of a Dask job find each other and connect; used by ranks and by peers.

A job has an entry on a board that the scheduler keeps: there a member that others connect to leaves its address, and
there members and driver leave word for each other. Connections use the cluster's protocol and TLS settings and carry
plain values, which are not unpickled. Inside a cluster Dask's own rules hold: whoever can connect to its workers can
run code there; TLS keeps strangers out.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import Future as ThreadFuture
from typing import Any, TypeVar

from distributed import Client, Worker
from distributed.comm.core import Comm, Listener, connect, listen

from widemargin.comm.dask_private import (
    BOARD,
    PATIENCE,
    call_from_client,
    call_from_worker,
    event_loop,
    put_up_board,
    remove_worker,
)
from widemargin.exceptions import PeerLost

T = TypeVar("T")

_ADDRESS_WAIT = 1.0  # seconds of waiting for an address at a time
_OPEN_INTERVAL = 0.1  # seconds until a job asks again for workers that another has


class SchedulerLost(PeerLost):
    """The scheduler does not answer: whatever it knows of this fit is lost, and no worker can replace it."""


class Scheduler:
    """The scheduler of a cluster, as a driver sees it: each call ends, with an answer or with ``SchedulerLost``."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def call(self, handler: str, **arguments: Any) -> Any:
        """What a handler of the scheduler answers."""
        return self._heard(lambda: call_from_client(self.client, handler, **arguments))

    def workers(self) -> list[str]:
        """Addresses of all workers that are there."""
        # The client's own refresh empties the list in its scheduler_info now and then.
        return sorted(self.call("ncores"))

    def remove_worker(self, address: str) -> None:
        self._heard(lambda: remove_worker(self.client, address))

    def put_up_board(self) -> None:
        self._heard(lambda: put_up_board(self.client))

    def _heard(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (OSError, CancelledError, RuntimeError) as error:  # RuntimeError: the client's event loop is closed
            raise self.lost(str(error) or type(error).__name__) from error

    def lost(self, why: str) -> SchedulerLost:
        address = str(getattr(self.client.scheduler, "address", "an unknown address"))
        return SchedulerLost(
            f"The Dask scheduler at {address} does not answer, or its client was closed ({why}): the fit cannot go on. "
            "Fit again with a client of a scheduler that runs; with checkpoint= it goes on from its last checkpoint.",
            address,
        )


class JobBoard:
    """The entry of a job on the scheduler's board, for its driver: addresses, reports and requests to stop."""

    def __init__(self, job: str, scheduler: Scheduler) -> None:
        self._job, self._scheduler = job, scheduler

    def open(self, workers: list[str]) -> None:
        """Take workers for this job, once no other job has any of them."""
        self._scheduler.put_up_board()
        while True:
            has_them = self._ask("open", owner=self._scheduler.client.id, workers=workers)
            if has_them:
                return
            if has_them is None:  # the board was taken down with the last job
                self._scheduler.put_up_board()
            else:
                time.sleep(_OPEN_INTERVAL)

    def close(self) -> None:
        """Remove the entry; what members say from now on is refused."""
        self._ask("close")

    def look(self) -> tuple[list[Any], dict[str, float]]:
        """New reports, and for every worker of the cluster the seconds since it was heard of."""
        seen = self._ask("look")
        if seen is None:
            raise self._scheduler.lost("it has forgotten this client")
        return list(seen[0]), dict(seen[1])

    def ask_to_stop(self, part: int = 0) -> None:
        self._ask("stop", part=part)

    def _ask(self, verb: str, **arguments: Any) -> Any:
        return self._scheduler.call(BOARD, job=self._job, verb=verb, **arguments)


class MemberBoard:
    """The same entry, for a member; whose driver is gone, or has given up, finds none and has to end."""

    def __init__(self, job: str, worker: Worker) -> None:
        self.job, self._worker = job, worker
        self._on_its_way: ThreadFuture[Any] | None = None

    def leave_address(self, number: int, address: str) -> None:
        self._ask("leave", number=number, address=address)

    def address_of(self, number: int, timeout: float) -> str | None:
        """Where a member listens; None if it has not said so after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            address = self._ask("address", number=number, wait=min(left, _ADDRESS_WAIT))
            if address != "":
                return None if address is None else str(address)
        return None

    def is_asked_to_stop(self, part: int = 0) -> bool:
        is_stopped = self._ask("is_stopped", part=part)
        return is_stopped is None or bool(is_stopped)

    def report(self, report: Any) -> None:
        """Tell the driver something, as plain data; returns before it has arrived."""
        self.flush()
        self._on_its_way = call_from_worker(self._worker, BOARD, job=self.job, verb="report", report=report)

    def flush(self) -> None:
        """Wait until the last report has arrived."""
        if self._on_its_way is not None:
            self._heard(self._on_its_way)
            self._on_its_way = None

    def _ask(self, verb: str, **arguments: Any) -> Any:
        return self._heard(call_from_worker(self._worker, BOARD, job=self.job, verb=verb, **arguments))

    def _heard(self, call: ThreadFuture[Any]) -> Any:
        try:
            return call.result(PATIENCE)
        except (OSError, CancelledError) as error:
            raise SchedulerLost(f"The Dask scheduler does not answer ({error}).") from error


class Connections:
    """The connections of one member of a job; coroutines run on the worker's event loop."""

    def __init__(self, worker: Worker, board: MemberBoard, number: int) -> None:
        self.board, self.number = board, number
        self.loop = event_loop(worker)
        self.refused = 0  # connections of strangers, or that sent something else than they should
        self._worker = worker
        self._comms: set[Comm] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: Listener | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and wait for its result in this thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def listen(self, serve: Callable[[int, Comm], Awaitable[None]], timeout: float) -> None:
        """Let others connect, who must say who they are within ``timeout`` seconds.

        A connection is closed when ``serve(sender, comm)`` returns. A TypeError says that the sender is refused.
        """

        async def welcome(comm: Comm) -> None:
            self._comms.add(comm)
            try:
                match await asyncio.wait_for(comm.read(), timeout):
                    case {"job": self.board.job, "to": self.number, "from": int(sender)}:
                        await serve(sender, comm)
                    case _:
                        raise TypeError
            except TypeError:
                self.refused += 1
            except OSError:  # it was closed, or said nothing
                pass
            finally:
                self.drop(comm)

        async def begin() -> Listener:
            scheme, _, host = self._worker.address.rpartition("://")
            address = f"{scheme}://{host.rsplit(':', 1)[0]}:0"
            arguments = self._worker.security.get_listen_args("worker")
            listener: Listener = await listen(address, welcome, deserialize=False, **arguments)
            return listener

        self._listener = self.run(begin())
        self.board.leave_address(self.number, self._listener.contact_address)

    async def connect(self, number: int, address: str, timeout: float) -> Comm:
        """Connect to another member; OSError where that is not possible."""
        arguments = self._worker.security.get_connection_args("worker")
        comm: Comm = await connect(address, timeout=timeout, deserialize=False, **arguments)
        self._comms.add(comm)
        try:
            await comm.write({"job": self.board.job, "to": number, "from": self.number})
        except BaseException:
            self.drop(comm)
            raise
        return comm

    def drop(self, comm: Comm) -> None:
        self._comms.discard(comm)
        comm.abort()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until :meth:`close`; to be called on the event loop."""
        self._tasks.append(asyncio.create_task(coroutine))
        return self._tasks[-1]

    async def close(self) -> None:
        """Close everything, so that those who wait for this member learn of it at once."""
        for task in self._tasks:
            task.cancel()
        for comm in list(self._comms):
            self.drop(comm)
        if self._listener is not None:
            self._listener.stop()
