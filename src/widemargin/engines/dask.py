"""Fits on a Dask cluster: one rank on each worker that holds rows.

Rows of a Dask collection stay on the workers that hold their chunks; an in-memory array is split and sent once. One
task per rank is pinned to its worker and checks on arrival that it landed there, since a task pinned for good would
wait for ever once that worker is gone. A lock over the workers for the whole call keeps two fits from blocking each
other. If a worker is lost, the fit is begun again: its rows are recomputed where the others can take them, or left
out where the task says so.
"""

from __future__ import annotations

import asyncio
import queue
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import dask
import numpy as np
from dask import delayed, is_dask_collection
from distributed import Client, Event, Future, MultiLock, Variable, default_client, get_client, get_worker, secede

from widemargin.comm.dask import DaskRanks, address_name
from widemargin.engines._plan import split_rows
from widemargin.exceptions import PeerLost, PeerLostWarning, warn_user

_POLL = 0.05  # seconds between two looks at the tasks, the clock and Ctrl-C
_STOP_POLL = 0.25  # seconds between two questions of rank 0 whether to stop
_LOCK_TURN = 1.0  # seconds in the queue for the workers at a time
_GRACE = 5.0  # seconds that ranks have to say their part once one has failed


class Placement(NamedTuple):
    """Which worker is which rank, and the parts of the rows each has."""

    addresses: list[str]
    parts: list[list[Future]]

    def without(self, address: str) -> Placement:
        """The same ranks with the same rows but for those on one worker."""
        kept = [k for k, each in enumerate(self.addresses) if each != address]
        return Placement([self.addresses[k] for k in kept], [self.parts[k] for k in kept])


def launch(rows: Any, cluster: Client | None, task: Any, watch: Any) -> Any:
    """Run ``task`` on the workers that hold ``rows``; the outcome of rank 0."""
    client = _client(cluster)
    is_collection = is_dask_collection(rows.X)
    futures = _persist(rows, client) if is_collection else None
    lost: list[str] = []
    placement = _place_collection(client, futures, lost) if futures else _scatter(rows, client, lost)
    while True:
        try:
            with locked(client, placement.addresses) as lock:
                outcome = _Job(client, placement, task, watch, lock).run()
            break
        except PeerLost as error:
            lost.append(error.address)
            _forget_worker(client, error.address)
            remaining = [address for address in workers_of(client) if address not in lost]
            if not remaining or task.if_lost == "raise":
                raise
            if task.if_lost == "leave out":
                placement = placement.without(error.address)
                if not placement.addresses:
                    raise
                n_ranks = len(placement.addresses) + len(lost)
                what = (
                    f"{task.name} begins again without its rows: N is that of {n_ranks - len(lost)} of {n_ranks} "
                    f"machines, and standard errors grow by about {n_ranks / (n_ranks - len(lost)):.3g} ** 0.5."
                )
            else:
                placement = _place_collection(client, futures, lost) if futures else _scatter(rows, client, lost)
                what = f"Its rows are recomputed and {task.name} begins again on {len(remaining)} worker(s)."
            warn_user(f"{error} {what}", PeerLostWarning)
    if lost:
        first = outcome.results[0]
        outcome.results[0] = replace(first, ledger=replace(first.ledger, lost_peers=len(lost)))
    return outcome


@contextmanager
def locked(client: Client, addresses: list[str]) -> Iterator[str]:
    """Hold the workers for one fit; the name by which the lock can be released.

    The lock is asked for in short turns: a driver that dies while it waits must not stay in the queue. One that dies
    while it holds the lock leaves it to rank 0 to release.
    """
    lock = MultiLock(names=sorted(addresses), client=client)
    while not lock.acquire(timeout=_LOCK_TURN):
        pass
    try:
        yield lock.id
    finally:
        if client.status == "running":
            lock.release()


def _client(cluster: Client | None) -> Client:
    if cluster is not None:
        return cluster
    try:
        return default_client()
    except ValueError:
        raise ValueError(
            "X is a Dask collection and there is no Dask client: pass cluster=Client(...), or create a Client first."
        ) from None


def workers_of(client: Client) -> list[str]:
    """Addresses of all workers that are there."""
    return sorted(client.nthreads())  # the list in scheduler_info is emptied now and then by the client's own refresh


def _persist(rows: Any, client: Client) -> list[Future]:
    """One future for each part of the rows: a tuple of X, y and weight that shares the memory of the chunks."""
    columns = [_to_parts(each, rows.X) for each in rows]
    lengths = {len(each) for each in columns if each is not None}
    if len(lengths) > 1:
        raise ValueError(f"X, y and sample_weight have different numbers of partitions: {sorted(lengths)}.")
    n_parts = lengths.pop()
    together = delayed(lambda *part: part, name="widemargin-part")
    parts = [
        together(
            *(None if each is None else each[k] for each in columns),
            dask_key_name=f"widemargin-part-{k}-{uuid.uuid4().hex}",
        )
        for k in range(n_parts)
    ]
    return client.compute(parts)


def _to_parts(collection: Any, X: Any) -> list[Any] | None:
    """Delayed partitions by rows; an array is cut where X is."""
    if collection is None:
        return None
    if hasattr(collection, "chunks"):
        collection = collection.rechunk({1: -1}) if collection.ndim == 2 else collection
        row_chunks = X.chunks[0] if hasattr(X, "chunks") else None
        if row_chunks is not None and not np.isnan(row_chunks).any() and not np.isnan(collection.chunks[0]).any():
            collection = collection.rechunk({0: row_chunks})
        return list(collection.to_delayed().ravel())
    if is_dask_collection(collection):
        # Optimised apart, X and y may be cut at different rows.
        return list(collection.to_delayed(optimize_graph=False))
    if not hasattr(X, "chunks"):
        raise ValueError(
            "With X a Dask dataframe, y and sample_weight must be Dask collections of the same partitions."
        )
    edges = np.concatenate([[0], np.cumsum(X.chunks[0])])
    if np.isnan(edges).any() or edges[-1] != len(collection):
        raise ValueError(
            f"y or sample_weight has {len(collection)} rows and X {edges[-1]:g}; they must be the same number."
        )
    values = np.asarray(collection)
    return [delayed(values[int(a) : int(b)]) for a, b in pairwise(edges)]


def _place_collection(client: Client, futures: list[Future], lost: list[str]) -> Placement:
    """Ranks in the order of the first part that each worker holds, once all parts are held somewhere."""
    since = time.monotonic()
    while True:
        statuses = {future.status for future in futures}
        if "cancelled" in statuses:
            raise _unrecoverable(lost)
        if "error" in statuses:
            next(future for future in futures if future.status == "error").result()
        if statuses <= {"finished", "lost"}:
            holders = client.who_has(futures)
            homes = [[each for each in holders.get(future.key, ()) if each not in lost] for future in futures]
            if all(homes):
                break
            # The scheduler may not have noticed yet what it has to compute again.
            if time.monotonic() - since > _GRACE:
                raise _unrecoverable(lost)
        else:
            since = time.monotonic()
        time.sleep(_POLL)
    held: dict[str, list[Future]] = {}
    for future, addresses in zip(futures, homes, strict=True):
        held.setdefault(min(addresses), []).append(future)
    return Placement(list(held), list(held.values()))


def _unrecoverable(lost: list[str]) -> PeerLost:
    where = lost[-1] if lost else "a worker"
    return PeerLost(
        f"Rows on {where} are lost and cannot be recomputed: they were sent there and have no recipe. Pass a Dask "
        "collection that can be computed again, or the array itself.",
        where,
    )


def _scatter(rows: Any, client: Client, lost: list[str]) -> Placement:
    """Equal parts of an in-memory array, sent once to all workers; they stay here to be sent again."""
    addresses = [address for address in workers_of(client) if address not in lost][: rows.X.shape[0]]
    if not addresses:
        raise ValueError("The Dask cluster has no workers.")
    parts = split_rows(rows, len(addresses))
    sent = [
        client.scatter(tuple(part), workers=[address], hash=False, direct=False)
        for part, address in zip(parts, addresses, strict=True)
    ]
    return Placement(addresses, [[future] for future in sent])


def _forget_worker(client: Client, address: str) -> None:
    """Have the scheduler drop a worker that no longer answers, so that what it held is computed elsewhere."""

    async def remove(dask_scheduler: Any) -> None:
        if address in dask_scheduler.workers:
            await dask_scheduler.remove_worker(address=address, stimulus_id="widemargin-peer-lost", close=False)

    client.run_on_scheduler(remove)


class _Job:
    """One attempt: the tasks of all ranks, watched from here until they end."""

    def __init__(self, client: Client, placement: Placement, task: Any, watch: Any, lock: str) -> None:
        self._client, self._placement, self._task, self._watch = client, placement, task, watch
        self._lock = lock
        self._name = f"widemargin-{uuid.uuid4().hex[:12]}"
        self._silence = float(dask.config.get("widemargin.silence", 8.0))
        self._reasons: dict[int, str] = {}

    def run(self) -> Any:
        with self._progress() as events:
            ranks = self._submit()
            try:
                while not all(future.done() for future in ranks):
                    self._tell(events)
                    if any(future.status in ("error", "cancelled", "lost") for future in ranks):
                        self._raise_cause(ranks)
                    time.sleep(_POLL)
                self._tell(events)
                if any(future.status != "finished" for future in ranks):
                    self._raise_cause(ranks)
                return self._with_reasons(ranks[0].result())
            finally:
                self._client.cancel(ranks, force=True)
                # What is left under names of the job would stay on the scheduler for ever.
                for rank in range(len(ranks)):
                    with suppress(Exception):
                        Variable(address_name(self._name, rank), client=self._client).delete()
                for part in self._reasons:
                    with suppress(Exception):
                        Event(_stop_name(self._name, part), client=self._client).clear()

    def _submit(self) -> list[Future]:
        addresses, parts = self._placement
        return [
            self._client.submit(
                _rank_main,
                self._name,
                rank,
                addresses,
                parts[rank],
                self._task,
                self._silence,
                self._lock,
                key=f"widemargin-{self._task.name}-rank{rank}-{self._name}",
                workers=[address],
                allow_other_workers=True,
                pure=False,
                retries=0,
            )
            for rank, address in enumerate(addresses)
        ]

    @contextmanager
    def _progress(self) -> Iterator[queue.SimpleQueue]:
        """A queue of what rank 0 reports after its sweeps."""
        events: queue.SimpleQueue = queue.SimpleQueue()
        self._client.subscribe_topic(self._name, lambda event: events.put(event[1]))
        try:
            yield events
        finally:
            with suppress(ValueError):
                self._client.unsubscribe_topic(self._name)

    def _tell(self, events: queue.SimpleQueue) -> None:
        """Hand reports to the watch here; its wish to stop goes back to rank 0 as an event of the cluster."""
        while not events.empty():
            report = events.get()
            part, *details = self._task.decode_progress(report)
            reason = self._watch(part, *details)
            if reason and part not in self._reasons:
                self._reasons[part] = reason
                Event(_stop_name(self._name, part), client=self._client).set()

    def _with_reasons(self, outcome: Any) -> Any:
        for part, reason in self._reasons.items():
            if part < len(outcome.results) and outcome.results[part].stop_reason == "interrupted":
                outcome.results[part] = replace(outcome.results[part], stop_reason=reason)
        return outcome

    def _raise_cause(self, ranks: list[Future]) -> None:
        """Raise what went wrong first: a rank's own error before the loss of it that others report."""
        addresses, until = self._placement.addresses, time.monotonic() + _GRACE
        while True:
            alive = set(workers_of(self._client))
            is_awaited = any(
                not future.done() and address in alive for future, address in zip(ranks, addresses, strict=True)
            )
            if not is_awaited or time.monotonic() > until:
                break
            time.sleep(_POLL)
        errors = {
            address: future.exception()
            for future, address in zip(ranks, addresses, strict=True)
            if future.status == "error"
        }
        losses = {address: error for address, error in errors.items() if isinstance(error, PeerLost)}
        for address, error in errors.items():
            if address not in losses:
                raise error
        gone = [address for address in addresses if address not in alive]
        # Who has lost a peer closes its connections, and is then named lost by others itself.
        accusers = {address for address, error in losses.items() if error.address != address}
        named = sorted(losses.values(), key=lambda error: (error.address not in gone, error.address in accusers))
        if named:
            raise named[0]
        where = gone[0] if gone else addresses[0]
        raise PeerLost(f"Worker {where} was lost.", where)


def _stop_name(job: str, part: int) -> str:
    return f"{job}-stop-{part}"


def _rank_main(
    job: str, rank: int, addresses: list[str], parts: list[tuple], task: Any, silence: float, lock: str
) -> Any:
    """One rank, on its worker."""
    worker = get_worker()
    if worker.address != addresses[rank]:
        raise PeerLost(f"Worker {addresses[rank]} was lost before rank {rank} could run there.", addresses[rank])
    key = str(worker.get_current_task())
    secede()  # a task that waits for others must not hold a thread that theirs may need
    rows = task.rows_of_parts(parts)
    with DaskRanks(worker, job, rank, addresses, silence) as comm:
        watch = _remote_watch(worker, job, key, task, lock) if rank == 0 else None
        outcome = task.run_on_rank(rows, comm, watch)
    return outcome if rank == 0 else None


def _remote_watch(worker: Any, job: str, key: str, task: Any, lock: str) -> Callable[..., str | None]:
    """Report sweeps to the driver; stop when it asks for it, or when it has gone and the task is wanted no more."""
    asked_at, is_abandoned = 0.0, False

    def watch(part: int, *details: Any) -> str | None:
        nonlocal asked_at, is_abandoned
        worker.log_event(job, task.encode_progress(part, *details))
        state = worker.state.tasks.get(key)
        if state is None or state.state == "cancelled":
            if not is_abandoned:
                is_abandoned = True
                release = worker.scheduler.multi_lock_release(id=lock)
                asyncio.run_coroutine_threadsafe(release, worker.loop.asyncio_loop)
            return "interrupted"
        now = time.monotonic()
        if now - asked_at < _STOP_POLL:
            return None
        asked_at = now
        return "interrupted" if Event(_stop_name(job, part), client=get_client()).is_set() else None

    return watch


def map_rows(function: Callable[[Any], np.ndarray], X: Any, n_columns: int | None, dtype: Any) -> Any:
    """``function`` on every part of a Dask collection, lazily; a Dask array of one column, or of ``n_columns``."""
    if not hasattr(X, "chunks"):
        X = X.to_dask_array()
    X = X.rechunk({1: -1})
    if n_columns is None:
        return X.map_blocks(function, dtype=dtype, drop_axis=1)
    return X.map_blocks(function, dtype=dtype, chunks=(X.chunks[0], (n_columns,)))


def grow(
    client: Client,
    leaves: list[Any],
    solve: Callable[[list[Any]], Any],
    look: Callable[[Any], Any],
    fan_in: int,
    is_enough: Callable[[list[Any]], bool],
    is_over: Callable[[], Any],
) -> None:
    """A tree of plain tasks, as :func:`widemargin.engines.inline.grow`: branches stay where they were solved.

    Only those that are solved together move. What a lost worker held is solved again by Dask, and nothing else: leaves
    are part of their tasks, so that they can be sent again. Once it is over, a level that is not ready is given up, but
    for the first, without which there is nothing.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        branches = [client.submit(solve, [leaf], pure=False) for leaf in leaves]
    try:
        is_first = True
        while True:
            looks = [client.submit(look, branch, pure=False) for branch in branches]
            while not all(each.done() for each in looks):
                if not is_first and is_over():
                    return
                time.sleep(_POLL)
            if is_enough(client.gather(looks)) or len(branches) == 1:
                return
            groups = [branches[k : k + fan_in] for k in range(0, len(branches), fan_in)]
            branches, is_first = [client.submit(solve, group, pure=False) for group in groups], False
    finally:
        client.cancel(branches, force=True)


def map_items(client: Client, work: Callable[[Any, Any], Any], shared: Any, items: list[Any]) -> list[Any]:
    """``work(shared, item)`` for all items, as plain tasks; ``shared`` is sent to every worker once."""
    everywhere = client.scatter(shared, broadcast=True, hash=False)
    tasks = [client.submit(work, everywhere, item, pure=False) for item in items]
    try:
        return client.gather(tasks)
    finally:
        client.cancel(tasks, force=True)
