"""How the members of a Dask job find each other and connect; used by ranks and by peers.

A member that others connect to leaves its address with the scheduler, under the name of the job. Connections use the
cluster's protocol and TLS settings and carry plain values, which are not unpickled. Inside a cluster Dask's own rules
hold: whoever can connect to its workers can run code there; TLS keeps strangers out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from distributed import Client, Event, Variable, Worker
from distributed.comm.core import Comm, Listener, connect, listen

from widemargin.comm.dask_private import event_loop

T = TypeVar("T")


class JobBoard:
    """What a job leaves with the scheduler: addresses of its members, and requests to stop work on a part."""

    def __init__(self, job: str, client: Client) -> None:
        self.job, self._client = job, client
        self._stopped_parts: set[int] = set()

    def leave_address(self, number: int, address: str) -> None:
        self._address(number).set(address)
        self._event("has-address", number).set()

    def address_of(self, number: int, timeout: float) -> str | None:
        """Where a member listens; None if it has not said so after ``timeout`` seconds."""
        # Waiting for the Variable itself in vain would leave a traceback in the scheduler's log.
        is_there = self._event("has-address", number).wait(timeout=timeout)
        return str(self._address(number).get()) if is_there else None

    def ask_to_stop(self, part: int = 0) -> None:
        self._stopped_parts.add(part)
        self._event("stop", part).set()

    def is_asked_to_stop(self, part: int = 0) -> bool:
        return bool(self._event("stop", part).is_set())

    def clear(self, n_members: int) -> None:
        """Delete everything: what is left would stay on the scheduler for ever."""
        for number in range(n_members):
            self._address(number).delete()
            self._event("has-address", number).clear()
        for part in self._stopped_parts:
            self._event("stop", part).clear()

    def _address(self, number: int) -> Variable:
        return Variable(f"{self.job}-address-{number}", client=self._client)

    def _event(self, kind: str, number: int) -> Event:
        return Event(f"{self.job}-{kind}-{number}", client=self._client)


class Connections:
    """The connections of one member of a job; coroutines run on the worker's event loop."""

    def __init__(self, worker: Worker, board: JobBoard, number: int) -> None:
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
