"""Ranks as tasks on Dask workers, talking over Dask's own connections.

The connections follow the cluster's protocol and TLS settings and are opened once. Ranks form a tree, of one level up
to 17 ranks: each rank but the first connects to its parent. Values go up unreduced and are combined at rank 0 in the
order of ranks, so that every transport gives the same bits, and the outcome comes down.

Silence is told from work: the event loop of every rank sends a beat once a second while its thread computes. A peer
whose connection closes is lost at once; one that sends nothing at all for ``silence`` seconds, as a process that was
stopped, is lost then.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
from distributed import Variable, get_client
from distributed.comm import connect, listen
from distributed.comm.core import CommClosedError
from distributed.worker import Worker

from widemargin.comm.protocol import Reduction, reduce_in_order
from widemargin.exceptions import PeerLost
from widemargin.ledger import Ledger

_FAN_OUT = 16
_BEAT = 1.0
_ARRIVAL = 30.0  # seconds: a worker whose first task this is imports for a while before its event loop answers


def address_name(job: str, rank: int) -> str:
    """The name under which a rank of a job leaves its address."""
    return f"{job}-address-{rank}"


class DaskRanks:
    """The communicator of one rank; use as a context manager, which closes its connections whatever happens."""

    def __init__(self, worker: Worker, job: str, rank: int, addresses: list[str], silence: float) -> None:
        self.rank, self.size = rank, len(addresses)
        self.ledger = Ledger()
        self._worker, self._job, self._addresses, self._silence = worker, job, addresses, silence
        self._arrival = max(silence, _ARRIVAL)
        self._parent = None if rank == 0 else (rank - 1) // _FAN_OUT
        self._children = [k for k in range(_FAN_OUT * rank + 1, _FAN_OUT * (rank + 1) + 1) if k < self.size]
        self._comms: dict[int, Any] = {}
        self._inbox: dict[int, asyncio.Queue] = {}
        self._heard: dict[int, float] = {}
        self._tasks: list[asyncio.Task] = []
        self._listener: Any = None

    def __enter__(self) -> DaskRanks:
        try:
            contact = self._wait(self._open())
            # Addresses are left with the scheduler, under the name of the job.
            if contact is not None:
                Variable(address_name(self._job, self.rank), client=get_client()).set(contact)
            if self._parent is not None:
                where = Variable(address_name(self._job, self._parent), client=get_client())
                try:
                    address = where.get(timeout=f"{self._arrival}s")
                except TimeoutError:
                    raise self._lost(self._parent, f"did not come up within {self._arrival:g} s") from None
                self._wait(self._connect(address))
            self._wait(self._all_children())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self._wait(self._close())

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        everyone = self._up(values)
        outcome = self._down(None if everyone is None else reduce_in_order(everyone, op))
        self.ledger.exchanged(self, up=values, down=outcome)
        return outcome

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        assert root == 0, "only rank 0 gathers"
        self.ledger.exchanged(self, up=values, down=None)
        return self._up(values)

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        assert root == 0, "only rank 0 broadcasts"
        outcome = self._down(values)
        self.ledger.exchanged(self, up=None, down=outcome)
        return outcome

    def _up(self, values: np.ndarray) -> list[np.ndarray] | None:
        """Send what this rank and those below it have to the parent; at rank 0 the arrays of all, by rank."""
        return self._wait(self._collect(values))

    def _down(self, values: np.ndarray | None) -> np.ndarray:
        """Pass what rank 0 says down the tree."""
        return self._wait(self._spread(values))

    async def _collect(self, values: np.ndarray) -> list[np.ndarray] | None:
        held = {self.rank: np.ascontiguousarray(values)}
        for child in self._children:
            for rank, dtype, payload in await self._read(child):
                held[rank] = np.frombuffer(payload, dtype=dtype)
        if self._parent is None:
            return [held[rank] for rank in range(self.size)]
        parcel = [[rank, array.dtype.str, array.tobytes()] for rank, array in held.items()]
        await self._write(self._parent, parcel)
        return None

    async def _spread(self, values: np.ndarray | None) -> np.ndarray:
        if self._parent is not None:
            dtype, payload = await self._read(self._parent)
            values = np.frombuffer(payload, dtype=dtype)
        assert values is not None
        parcel = [values.dtype.str, np.ascontiguousarray(values).tobytes()]
        await asyncio.gather(*(self._write(child, parcel) for child in self._children))
        return values

    async def _read(self, rank: int) -> Any:
        """The next message of a neighbour; beats only show that it lives."""
        while True:
            try:
                message = await asyncio.wait_for(self._inbox[rank].get(), timeout=_BEAT)
            except TimeoutError:
                if time.monotonic() - self._heard[rank] > self._silence:
                    raise self._lost(rank, f"sent nothing for {self._silence:g} s") from None
                continue
            if message is None:
                raise self._lost(rank, "closed its connection")
            return message

    async def _write(self, rank: int, message: Any) -> None:
        try:
            await self._comms[rank].write({"widemargin": message})
        except (CommClosedError, OSError) as error:
            raise self._lost(rank, "closed its connection") from error

    def _lost(self, rank: int, why: str) -> PeerLost:
        return PeerLost(f"Rank {rank} on worker {self._addresses[rank]} {why}.", self._addresses[rank])

    async def _open(self) -> str | None:
        """Listen for children, if there are any; the address to reach this rank at."""
        self._arrived = asyncio.Event()
        if not self._children:
            return None
        scheme, _, host = self._worker.address.rpartition("://")
        host = host.rsplit(":", 1)[0]
        arguments = self._worker.security.get_listen_args("worker")
        self._listener = await listen(f"{scheme}://{host}:0", self._welcome, **arguments)
        return self._listener.contact_address

    async def _welcome(self, comm: Any) -> None:
        """A child has connected and says which rank it is."""
        try:
            greeting = await asyncio.wait_for(comm.read(), self._silence)
            rank = greeting["rank"] if greeting.get("job") == self._job else None
        except (CommClosedError, TimeoutError, TypeError, KeyError, AttributeError):
            rank = None
        if rank not in self._children or rank in self._comms:
            comm.abort()
            return
        self._take(rank, comm)
        if all(child in self._comms for child in self._children):
            self._arrived.set()
        # The listener closes a connection when its handler returns.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, address: str) -> None:
        assert self._parent is not None
        arguments = self._worker.security.get_connection_args("worker")
        try:
            comm = await connect(address, timeout=self._silence, **arguments)
            await comm.write({"job": self._job, "rank": self.rank})
        except (CommClosedError, OSError) as error:
            raise self._lost(self._parent, "cannot be reached") from error
        self._take(self._parent, comm)

    async def _all_children(self) -> None:
        if not self._children:
            return
        try:
            await asyncio.wait_for(self._arrived.wait(), self._arrival)
        except TimeoutError:
            missing = next(child for child in self._children if child not in self._comms)
            raise self._lost(missing, f"did not connect within {self._arrival:g} s") from None

    def _take(self, rank: int, comm: Any) -> None:
        self._comms[rank], self._inbox[rank] = comm, asyncio.Queue()
        self._heard[rank] = time.monotonic()
        self._tasks += [asyncio.create_task(self._listen_to(rank)), asyncio.create_task(self._beat_to(rank))]

    async def _listen_to(self, rank: int) -> None:
        try:
            while True:
                message = await self._comms[rank].read()
                self._heard[rank] = time.monotonic()
                if "widemargin" in message:
                    await self._inbox[rank].put(message["widemargin"])
        except (CommClosedError, OSError):
            await self._inbox[rank].put(None)

    async def _beat_to(self, rank: int) -> None:
        try:
            while True:
                await asyncio.sleep(_BEAT)
                await self._comms[rank].write({})
        except (CommClosedError, OSError):
            pass

    async def _close(self) -> None:
        """Close everything, so that those who wait for this rank learn of it at once."""
        for task in self._tasks:
            task.cancel()
        for comm in self._comms.values():
            comm.abort()
        if self._listener is not None:
            self._listener.stop()

    def _wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the worker's event loop from this thread."""
        loop: Any = self._worker.loop
        return asyncio.run_coroutine_threadsafe(coroutine, loop.asyncio_loop).result()
