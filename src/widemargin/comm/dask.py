"""Ranks as tasks on Dask workers, talking over Dask's own connections.

Ranks form a tree, of one level up to 17 ranks: each rank but the first connects to its parent, once. Values go up
unreduced and are combined at rank 0 in the order of ranks, so that every transport gives the same bits, and the outcome
comes down.

The event loop of every rank sends a heartbeat once a second while its thread computes. A neighbour whose connection
closes is lost at once; one that sends nothing at all for ``silence`` seconds, such as a stopped process, is lost then.
"""

import asyncio
import time
from typing import Any, Self

import numpy as np
from distributed.comm.core import Comm

from widemargin.comm.dask_connections import Connections
from widemargin.comm.protocol import Reduction, reduce_in_order
from widemargin.exceptions import PeerLost
from widemargin.ledger import Ledger

_FAN_OUT = 16
_HEARTBEAT = 1.0  # seconds
_ARRIVAL_POLL = 0.005  # seconds between two checks whether all children have connected
_ARRIVAL = 30.0  # seconds: a worker whose first task this is imports for a while before its event loop answers


class _Neighbour:
    """The parent or a child of a rank, once they are connected."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()  # None: the connection is closed
        self.heard_at = time.monotonic()

    async def listen(self) -> None:
        try:
            while True:
                message = await self.comm.read()
                self.heard_at = time.monotonic()
                if "values" in message:
                    self.inbox.put_nowait(message["values"])
        except OSError:
            self.inbox.put_nowait(None)

    async def send_heartbeats(self) -> None:
        try:
            while True:
                await asyncio.sleep(_HEARTBEAT)
                await self.comm.write({})
        except OSError:
            pass


class DaskRanks:
    """The communicator of one rank; use as a context manager, which closes its connections whatever happens."""

    def __init__(self, connections: Connections, addresses: list[str], silence: float) -> None:
        self.rank, self.size = connections.number, len(addresses)
        self.ledger = Ledger()
        self._connections, self._addresses, self._silence = connections, addresses, silence
        self._arrival = max(silence, _ARRIVAL)
        self._parent = None if self.rank == 0 else (self.rank - 1) // _FAN_OUT
        first = _FAN_OUT * self.rank + 1
        self._children = range(min(first, self.size), min(first + _FAN_OUT, self.size))
        self._neighbours: dict[int, _Neighbour] = {}

    def __enter__(self) -> Self:
        try:
            if self._children:
                self._connections.listen(self._welcome, self._silence)
            if self._parent is not None:
                address = self._connections.board.address_of(self._parent, self._arrival)
                if address is None:
                    raise self._lost(self._parent, f"did not come up within {self._arrival:g} s")
                self._connections.run(self._connect(self._parent, address))
            self._connections.run(self._wait_for_children())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self._connections.run(self._connections.close())

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        everyone = self._connections.run(self._collect(values))
        reduced = None if everyone is None else reduce_in_order(everyone, op)
        outcome = self._connections.run(self._spread(reduced))
        self.ledger.exchanged(self, up=values, down=outcome)
        return outcome

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        assert root == 0, "only rank 0 gathers"
        self.ledger.exchanged(self, up=values, down=None)
        return self._connections.run(self._collect(values))

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        assert root == 0, "only rank 0 broadcasts"
        outcome = self._connections.run(self._spread(values))
        self.ledger.exchanged(self, up=None, down=outcome)
        return outcome

    async def _collect(self, values: np.ndarray) -> list[np.ndarray] | None:
        """Send the arrays of this rank and of those below it to the parent; at rank 0, the arrays of all by rank."""
        held = {self.rank: np.ascontiguousarray(values)}
        for child in self._children:
            for rank, dtype, payload in await self._read(child):
                held[rank] = np.frombuffer(payload, dtype=dtype)
        if self._parent is None:
            return [held[rank] for rank in range(self.size)]
        await self._write(self._parent, [[rank, array.dtype.str, array.tobytes()] for rank, array in held.items()])
        return None

    async def _spread(self, values: np.ndarray | None) -> np.ndarray:
        if self._parent is not None:
            dtype, payload = await self._read(self._parent)
            values = np.frombuffer(payload, dtype=dtype)
        assert values is not None
        message = [values.dtype.str, np.ascontiguousarray(values).tobytes()]
        await asyncio.gather(*(self._write(child, message) for child in self._children))
        return values

    async def _read(self, rank: int) -> Any:
        neighbour = self._neighbours[rank]
        while True:
            try:
                values = await asyncio.wait_for(neighbour.inbox.get(), timeout=_HEARTBEAT)
            except TimeoutError:
                if time.monotonic() - neighbour.heard_at > self._silence:
                    raise self._lost(rank, f"sent nothing for {self._silence:g} s") from None
                continue
            if values is None:
                raise self._lost(rank, "closed its connection")
            return values

    async def _write(self, rank: int, values: list[Any]) -> None:
        try:
            await self._neighbours[rank].comm.write({"values": values})
        except OSError as error:
            raise self._lost(rank, "closed its connection") from error

    def _lost(self, rank: int, why: str) -> PeerLost:
        return PeerLost(f"Rank {rank} on worker {self._addresses[rank]} {why}.", self._addresses[rank])

    async def _welcome(self, rank: int, comm: Comm) -> None:
        """Keep the connection of a child until it is closed."""
        if rank not in self._children or rank in self._neighbours:
            raise TypeError
        await asyncio.wait([self._add(rank, comm)])

    async def _connect(self, parent: int, address: str) -> None:
        try:
            self._add(parent, await self._connections.connect(parent, address, self._silence))
        except OSError as error:
            raise self._lost(parent, "cannot be reached") from error

    def _add(self, rank: int, comm: Comm) -> asyncio.Task[None]:
        self._neighbours[rank] = neighbour = _Neighbour(comm)
        self._connections.start(neighbour.send_heartbeats())
        return self._connections.start(neighbour.listen())

    async def _wait_for_children(self) -> None:
        deadline = time.monotonic() + self._arrival
        while missing := [child for child in self._children if child not in self._neighbours]:
            if time.monotonic() > deadline:
                raise self._lost(missing[0], f"did not connect within {self._arrival:g} s")
            await asyncio.sleep(_ARRIVAL_POLL)
