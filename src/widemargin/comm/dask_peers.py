"""Peers on Dask workers, writing to each other over Dask's own connections, with nobody in between.

Messages are bytes. Sending never waits: messages for a neighbour that is slow or gone are dropped, the oldest first. A
neighbour whose connection closes is known to be gone at once.
"""

import asyncio
import threading
import time
from collections import deque

from distributed.comm.core import Comm

from widemargin.comm.dask_connections import Connections

_OUTBOX_LIMIT = 16  # messages to one neighbour that wait to be sent
_INBOX_LIMIT = 100_000  # messages that wait to be read
_CONNECT_TIMEOUT = 5.0  # seconds
_RECONNECT_WAIT = 0.5  # seconds until a connection is tried again
_ADDRESS_WAIT = 0.5  # seconds of waiting for a neighbour's address before the next check whether to stop
_CLOSE_WAIT = 0.3  # seconds in which messages are still sent when a peer ends


class DaskPeers:
    """The transport of one peer; ``neighbours`` are those it may write to, and have ``patience`` seconds to come up."""

    def __init__(self, connections: Connections, neighbours: list[int], patience: float) -> None:
        self._connections, self._neighbours, self._patience = connections, neighbours, patience
        self._inbox: deque[bytes] = deque(maxlen=_INBOX_LIMIT)
        self._has_mail = threading.Event()
        self._outboxes: dict[int, asyncio.Queue[bytes]] = {}
        self._gone: set[int] = set()
        self._is_closed = False

    @property
    def refused(self) -> int:
        return self._connections.refused

    def open(self) -> None:
        """Listen, and wait for a while until all neighbours do: a network that begins together wastes no ticks."""
        self._connections.listen(self._serve, _CONNECT_TIMEOUT)
        board, deadline = self._connections.board, time.monotonic() + self._patience
        addresses: dict[int, str] = {}
        awaited = list(self._neighbours)
        while awaited and time.monotonic() < deadline and not board.is_asked_to_stop():
            address = board.address_of(awaited[0], _ADDRESS_WAIT)
            if address is not None:
                addresses[awaited.pop(0)] = address
        self._gone = set(awaited)
        self._connections.run(self._start_writing(addresses))

    def send(self, to: int, data: bytes) -> None:
        if to in self._outboxes:
            self._connections.loop.call_soon_threadsafe(self._put, self._outboxes[to], data)

    def receive(self, wait: float) -> list[tuple[int | None, bytes]]:
        """The messages that have come; whoever may submit a task to the cluster may write as any peer."""
        if not self._inbox:
            self._has_mail.wait(wait)
        self._has_mail.clear()
        return [(None, self._inbox.popleft()) for _ in range(len(self._inbox))]

    def newcomers(self) -> list[int]:
        return []  # the graph of a job is given

    def gone(self) -> set[int]:
        return self._gone

    def forget(self, number: int) -> None:
        """Nothing to do: the graph of a job is given, and a worker that is lost stays lost."""

    def close(self) -> None:
        """Send what waits, for a moment, and close everything."""
        if not self._is_closed:
            self._is_closed = True
            self._connections.run(self._close())

    # -- on the worker's event loop ------------------------------------------------------------------------------------

    async def _serve(self, sender: int, comm: Comm) -> None:
        while True:
            match await comm.read():
                case {"message": bytes() | bytearray() | memoryview() as data}:
                    self._inbox.append(bytes(data))
                    self._has_mail.set()
                case _:
                    raise TypeError

    @staticmethod
    def _put(outbox: asyncio.Queue[bytes], data: bytes) -> None:
        if outbox.full():
            outbox.get_nowait()
        outbox.put_nowait(data)

    async def _start_writing(self, addresses: dict[int, str]) -> None:
        for neighbour, address in addresses.items():
            self._outboxes[neighbour] = asyncio.Queue(_OUTBOX_LIMIT)
            self._connections.start(self._write_to(neighbour, address))

    async def _write_to(self, neighbour: int, address: str) -> None:
        """Send messages to one neighbour; reconnect when the connection is lost."""
        while True:
            comm: Comm | None = None
            try:
                comm = await self._connections.connect(neighbour, address, _CONNECT_TIMEOUT)
                self._gone.discard(neighbour)
                while True:
                    await comm.write({"message": await self._outboxes[neighbour].get()})
            except OSError:
                self._gone.add(neighbour)
                await asyncio.sleep(_RECONNECT_WAIT)
            finally:
                if comm is not None:
                    self._connections.drop(comm)

    async def _close(self) -> None:
        deadline = time.monotonic() + _CLOSE_WAIT
        waiting = [outbox for each, outbox in self._outboxes.items() if each not in self._gone]
        while time.monotonic() < deadline and not all(outbox.empty() for outbox in waiting):
            await asyncio.sleep(0.01)
        await self._connections.close()
