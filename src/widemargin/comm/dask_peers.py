"""Peers on Dask workers, writing to each other over Dask's own connections, with nobody in between.

The connections follow the cluster's protocol and TLS settings. Each peer listens, leaves its address with the scheduler
under the name of the job, and connects to those it writes to. What it writes is bytes, which are read as such. Inside a
cluster Dask's own rules hold: whoever can connect to its workers can run code there, by messages of Dask's own that are
unpickled; TLS is what keeps strangers out. Sending never waits: letters for a neighbour that is slow or gone are
dropped, the oldest first. A neighbour whose connection closes is known to be gone at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from distributed import Event, Variable, get_client
from distributed.comm import connect, listen
from distributed.comm.core import CommClosedError
from distributed.worker import Worker

from widemargin.comm.dask import address_name

_QUEUE = 16  # letters to one neighbour that wait to be sent
_INBOX = 100_000  # letters that wait to be read
_AGAIN = 0.5  # seconds until a connection is tried again
_TO_CONNECT = 5.0  # seconds
_TURN = 0.5  # seconds of waiting for a neighbour, between looks at whether it is all over


def stop_event(job: str, client: Any) -> Event:
    """What is set when the peers of a job are to end."""
    return Event(f"{job}-stop", client=client)


def address_event(job: str, number: int, client: Any) -> Event:
    """What is set when a peer has left its address; to wait for the address itself would fill the scheduler's log."""
    return Event(f"{address_name(job, number)}-is-there", client=client)


class DaskPeers:
    """The transport of one peer; ``neighbours`` are those it may write to."""

    def __init__(self, worker: Worker, job: str, number: int, neighbours: list[int], patience: float) -> None:
        self.refused = 0
        self._worker, self._job, self._number, self._neighbours = worker, job, number, neighbours
        self._inbox: deque[bytes] = deque(maxlen=_INBOX)
        self._has_mail = threading.Event()
        self._outbox: dict[int, deque[bytes]] = {}
        self._is_due: dict[int, asyncio.Event] = {}
        self._writers: list[asyncio.Task] = []
        self._readers: set[Any] = set()
        self._gone: set[int] = set()
        self._listener: Any = None
        self._is_closed = False
        self._patience = patience  # seconds that neighbours have to come up

    # -- what the loop of a peer calls -------------------------------------------------------------------------------

    def open(self) -> None:
        """Listen, and wait for a while until all neighbours do: a network that begins together wastes no ticks."""
        contact = self._wait(self._listen())
        client = get_client()
        Variable(address_name(self._job, self._number), client=client).set(contact)
        address_event(self._job, self._number, client).set()
        until, stop = time.monotonic() + self._patience, stop_event(self._job, client)
        addresses: dict[int, str] = {}
        awaited = list(self._neighbours)
        while awaited and time.monotonic() < until and not stop.is_set():
            if not address_event(self._job, awaited[0], client).wait(timeout=_TURN):
                continue
            with suppress(TimeoutError):
                addresses[awaited[0]] = Variable(address_name(self._job, awaited[0]), client=client).get(timeout=_TURN)
                awaited.pop(0)
        self._gone = set(self._neighbours) - set(addresses)
        self._wait(self._begin_to_write(addresses))

    def send(self, to: int, data: bytes) -> None:
        """Have the worker's event loop write to a peer, if it is there."""
        if to in self._outbox:
            self._outbox[to].append(data)
            self._loop.call_soon_threadsafe(self._is_due[to].set)

    def receive(self, wait: float) -> list[bytes]:
        """Letters that have come, after ``wait`` seconds at most."""
        if not self._inbox:
            self._has_mail.wait(wait)
        self._has_mail.clear()
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def newcomers(self) -> list[int]:
        """Nobody: the graph of a job is given."""
        return []

    def gone(self) -> set[int]:
        """Neighbours to whom there is no connection."""
        return self._gone

    def close(self) -> None:
        """Send what waits, for a moment, and close everything."""
        if not self._is_closed:
            self._is_closed = True
            self._wait(self._close())

    # -- on the worker's event loop ----------------------------------------------------------------------------------

    async def _listen(self) -> str:
        scheme, _, host = self._worker.address.rpartition("://")
        host = host.rsplit(":", 1)[0]
        arguments = self._worker.security.get_listen_args("worker")
        self._listener = await listen(f"{scheme}://{host}:0", self._welcome, deserialize=False, **arguments)
        return self._listener.contact_address

    async def _welcome(self, comm: Any) -> None:
        """Read what one neighbour writes, for as long as it does."""
        self._readers.add(comm)
        try:
            greeting = await asyncio.wait_for(comm.read(), _TO_CONNECT)
            if greeting != {"job": self._job, "to": self._number}:
                raise TypeError
            while True:
                message = await comm.read()
                if not isinstance(message, dict) or not isinstance(
                    message.get("letter"), bytes | bytearray | memoryview
                ):
                    raise TypeError
                self._inbox.append(bytes(message["letter"]))
                self._has_mail.set()
        except (CommClosedError, OSError):
            pass
        except (TimeoutError, TypeError):
            self.refused += 1
        finally:
            self._readers.discard(comm)
            comm.abort()

    async def _begin_to_write(self, addresses: dict[int, str]) -> None:
        for neighbour, address in addresses.items():
            self._outbox[neighbour], self._is_due[neighbour] = deque(maxlen=_QUEUE), asyncio.Event()
            self._writers.append(asyncio.create_task(self._write_to(neighbour, address)))

    async def _write_to(self, neighbour: int, address: str) -> None:
        """Carry letters to one neighbour; connect anew when the connection is lost, now and then."""
        outbox, is_due = self._outbox[neighbour], self._is_due[neighbour]
        arguments = self._worker.security.get_connection_args("worker")
        while True:
            comm: Any = None
            try:
                comm = await connect(address, timeout=_TO_CONNECT, deserialize=False, **arguments)
                await comm.write({"job": self._job, "to": neighbour})
                self._gone.discard(neighbour)
                while True:
                    await is_due.wait()
                    is_due.clear()
                    while outbox:
                        await comm.write({"letter": outbox.popleft()})
            except (CommClosedError, OSError):
                self._gone.add(neighbour)
                await asyncio.sleep(_AGAIN)
            finally:
                if comm is not None:
                    comm.abort()

    async def _close(self) -> None:
        until = time.monotonic() + 0.3
        while any(box for each, box in self._outbox.items() if each not in self._gone) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for task in self._writers:
            task.cancel()
        for comm in list(self._readers):
            comm.abort()
        if self._listener is not None:
            self._listener.stop()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop: Any = self._worker.loop
        return loop.asyncio_loop

    def _wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the worker's event loop from this thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
