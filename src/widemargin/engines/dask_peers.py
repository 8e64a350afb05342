"""Peers on a Dask cluster: one on each worker, writing to each other; this process starts them and waits.

Each peer is a task that is pinned to its worker, and checks on arrival that it landed there. Rows that are here are
sent to their workers once; those that lie on workers stay there. A worker that dies takes its peer with it: the others
go on, as they would in any network, and who is missing is said at the end. A task that is pinned to a worker that is
gone never ends; so this process looks who is there. A lock over the workers keeps two such calls, or a call and a fit
on ranks, from blocking each other.
"""

from __future__ import annotations

import asyncio
import queue
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import dask
from distributed import CancelledError, Client, Future, KilledWorker, Variable, get_client, get_worker, secede

from widemargin.comm.dask import address_name
from widemargin.comm.dask_peers import DaskPeers, address_event, stop_event
from widemargin.engines.dask import locked, workers_of
from widemargin.exceptions import PeerLost, PeerLostWarning, warn_user

_POLL = 0.05  # seconds between two looks at the tasks and at the wish to stop
_LOOK = 0.5  # seconds between two looks at who is there
_STOP_POLL = 0.25  # seconds between two questions of a peer whether to stop
_TELL = 0.25  # seconds between two reports of a peer on its way
_GRACE = 20.0  # seconds that peers have to end once they are asked to


class PeerProgram(Protocol):
    """What a worker runs: a peer from its rows to its last report; ``watch`` ends it by returning True."""

    def __call__(self, number: int, rows: Any, transport: Any, watch: Callable[[Any], Any]) -> Any: ...

    def figures(self, loop: Any) -> dict[str, float]: ...


class PeersOutcome(NamedTuple):
    """The reports of those that came to an end, and the addresses of those that did not, by peer."""

    reports: dict[int, Any]
    lost: dict[int, str]


def launch_peers(
    client: Client,
    parts: Sequence[Any],
    program: PeerProgram,
    neighbours: Mapping[int, Sequence[int]],
    is_over: Callable[[], Any] = lambda: False,
    tell: Callable[[int, Any], None] | None = None,
) -> PeersOutcome:
    """Run one peer per part of the rows, each on a worker of its own; wait until all have ended.

    ``parts[k]`` are the rows of peer ``k``: a future of what lies on a worker, or what is to be sent to one.
    ``program(number, rows, transport, watch)`` is what a worker runs. Once ``is_over()`` is true, peers are asked to
    end with what they have. ``tell(number, figures)`` is called here now and then with what ``program.figures(loop)``
    makes of a peer on its way.
    """
    addresses = _place(client, parts)
    name = f"widemargin-{uuid.uuid4().hex[:12]}"
    with locked(client, addresses) as lock:
        return _Job(client, name, addresses, is_over, tell).run(parts, program, neighbours, lock)


def _place(client: Client, parts: Sequence[Any]) -> list[str]:
    """The worker of each peer: the one that has its rows, or one that is free."""
    free = workers_of(client)
    if len(parts) > len(free):
        raise ValueError(f"There are {len(parts)} peers and {len(free)} workers; each peer needs a worker of its own.")
    held = {part.key: part for part in parts if isinstance(part, Future)}
    holders = client.who_has(list(held.values())) if held else {}
    homes: list[str | None] = []
    for part in parts:
        there = sorted(set(holders.get(part.key, ())) & set(free)) if isinstance(part, Future) else []
        homes.append(there[0] if there else None)
        if there:
            free.remove(there[0])
    return [home if home is not None else free.pop(0) for home in homes]


class _Job:
    """The tasks of all peers, watched from here until they end."""

    def __init__(
        self,
        client: Client,
        name: str,
        addresses: list[str],
        is_over: Callable[[], Any],
        tell: Callable[[int, Any], None] | None,
    ) -> None:
        self._client, self._name, self._addresses = client, name, addresses
        self._is_over, self._tell = is_over, tell
        self._events: queue.SimpleQueue = queue.SimpleQueue()
        self._look_at = 0.0

    def run(
        self, parts: Sequence[Any], program: PeerProgram, neighbours: Mapping[int, Sequence[int]], lock: str
    ) -> PeersOutcome:
        client, futures = self._client, []
        if self._tell is not None:
            client.subscribe_topic(self._name, lambda event: self._events.put(event[1]))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")
                futures = self._submit(parts, program, neighbours, lock)
            self._wait(futures)
            return self._outcome(futures)
        finally:
            with suppress(Exception):
                client.cancel(futures, force=True)
            for number in range(len(futures)):
                with suppress(Exception):
                    Variable(address_name(self._name, number), client=client).delete()
                    address_event(self._name, number, client).clear()
            with suppress(Exception):
                stop_event(self._name, client).clear()
            if self._tell is not None:
                with suppress(ValueError):
                    client.unsubscribe_topic(self._name)

    def _submit(
        self, parts: Sequence[Any], program: PeerProgram, neighbours: Mapping[int, Sequence[int]], lock: str
    ) -> list[Future]:
        patience = float(dask.config.get("widemargin.come-up", 30.0))
        futures = []
        for number, (part, address) in enumerate(zip(parts, self._addresses, strict=True)):
            rows = part
            if not isinstance(part, Future):
                (rows,) = self._client.scatter([part], workers=[address], hash=False, direct=False)
            futures.append(
                self._client.submit(
                    _peer_main,
                    self._name,
                    number,
                    address,
                    list(neighbours[number]),
                    rows,
                    program,
                    patience,
                    lock,
                    self._tell is not None,
                    key=f"widemargin-peer{number}-{self._name}",
                    workers=[address],  # and no other, to which it could be carried off while this one is busy
                    pure=False,
                    retries=0,
                )
            )
        return futures

    def _wait(self, futures: list[Future]) -> None:
        """Until each has ended or is lost; an error of one that is not lost ends all."""
        asked_at = None
        while not self._have_ended(futures):
            while not self._events.empty():
                assert self._tell is not None
                self._tell(*self._events.get())
            is_broken = any(future.status == "error" and not _is_loss(future.exception()) for future in futures)
            if asked_at is None and (is_broken or self._is_over()):
                asked_at = time.monotonic()
                stop_event(self._name, self._client).set()
            if asked_at is not None and time.monotonic() - asked_at > _GRACE:
                return
            time.sleep(_POLL)

    def _have_ended(self, futures: list[Future]) -> bool:
        waiting = {address for address, future in zip(self._addresses, futures, strict=True) if not future.done()}
        if not waiting or time.monotonic() < self._look_at:
            return not waiting
        self._look_at = time.monotonic() + _LOOK
        return waiting.isdisjoint(workers_of(self._client))

    def _outcome(self, futures: list[Future]) -> PeersOutcome:
        for future in futures:
            if future.status == "error" and not _is_loss(future.exception()):
                future.result()
        ended = {number: future for number, future in enumerate(futures) if future.status == "finished"}
        reports, lost = {}, {}
        for number, address in enumerate(self._addresses):
            try:
                reports[number] = ended[number].result(timeout=_GRACE)
            except (KeyError, PeerLost, TimeoutError, CancelledError, KilledWorker):
                lost[number] = address  # or its report is, with its worker
        if not reports:
            causes = {str(future.exception()) for future in futures if future.status == "error"}
            because = f" {' '.join(sorted(causes))}" if causes else ""
            raise PeerLost(f"No peer has come to an end: all were lost.{because}", self._addresses[0])
        if lost:
            who = ", ".join(f"{number} on {address}" for number, address in lost.items())
            warn_user(f"Peers were lost, and the others went on without their rows: {who}.", PeerLostWarning)
        return PeersOutcome(reports, lost)


def _is_loss(error: BaseException | None) -> bool:
    """Whether a task failed because its worker did."""
    return isinstance(error, PeerLost | KilledWorker | CancelledError)


def _peer_main(
    job: str,
    number: int,
    address: str,
    neighbours: list[int],
    rows: Any,
    program: Any,
    patience: float,
    lock: str,
    is_told: bool,
) -> Any:
    """One peer, on its worker."""
    worker = get_worker()
    if worker.address != address:
        raise PeerLost(f"Worker {address} was lost, and peer {number} with it.", address)
    key = str(worker.get_current_task())
    secede()  # a task that waits for others must not hold a thread that theirs may need
    transport = DaskPeers(worker, job, number, neighbours, patience)
    try:
        watch = _remote_watch(worker, job, number, key, lock, program if is_told else None)
        return program(number, rows, transport, watch)
    finally:
        transport.close()


def _remote_watch(worker: Any, job: str, number: int, key: str, lock: str, teller: Any) -> Callable[[Any], bool]:
    """Stop when the driver asks for it, or has gone and the task is wanted no more; tell it figures if it wants to."""
    asked_at, told_at, is_abandoned = time.monotonic(), 0.0, False

    def watch(loop: Any) -> bool:
        nonlocal asked_at, told_at, is_abandoned
        now = time.monotonic()
        if teller is not None and now - told_at >= _TELL:
            told_at = now
            worker.log_event(job, [number, teller.figures(loop)])
        state = worker.state.tasks.get(key)
        if state is None or state.state == "cancelled":
            if not is_abandoned and loop.is_first:
                release = worker.scheduler.multi_lock_release(id=lock)
                asyncio.run_coroutine_threadsafe(release, worker.loop.asyncio_loop)
            is_abandoned = True
            return True
        if now - asked_at < _STOP_POLL:
            return False
        asked_at = now
        return bool(stop_event(job, get_client()).is_set())

    return watch
