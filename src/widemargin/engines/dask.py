"""Fits on a Dask cluster: one rank on each worker that holds rows.

Rows of a Dask collection stay on the workers that hold their chunks; an in-memory array is split and sent. If a worker
is lost, at whatever step, its rows are recomputed on the others and the fit goes on from the last state that rank 0 has
reported; or they are left out, if the program says so, and it begins again.
"""

import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import dask
import numpy as np
from dask import delayed, is_dask_collection
from distributed import Client, Future, KilledWorker, default_client

from widemargin.codec import pack, unpack
from widemargin.comm.dask import DaskRanks
from widemargin.comm.dask_connections import Scheduler, SchedulerLost
from widemargin.engines._plan import split_rows
from widemargin.engines.dask_job import GONE, POLL_INTERVAL, Job, Member, forget, in_background, on_own_threads
from widemargin.engines.protocol import IsEnough, IsOver, Look, RankOutcome, RankProgram, Solve, Watch
from widemargin.exceptions import PeerLost, PeerLostWarning, warn_user

_GRACE = 5.0  # seconds that the other ranks have to end once one has failed
_GRACE_IF_GONE = 1.0  # the same, where a worker is gone, which says enough
_UNDERWAY = {"waiting", "queued", "no-worker", "processing"}  # states of a task that the scheduler is going to compute
_VAIN_LOSSES = (
    3  # losses in a row, over one for each worker, without a sweep between them: the fit itself kills workers
)


class Placement(NamedTuple):
    """Which worker is which rank, and the parts of the rows of each: tuples of X, y and weight, or futures of them."""

    addresses: list[str]
    parts: list[list[Any]]

    def without(self, address: str) -> "Placement":
        """The same ranks with the same rows, except for those on one worker."""
        kept = [k for k, each in enumerate(self.addresses) if each != address]
        return Placement([self.addresses[k] for k in kept], [self.parts[k] for k in kept])


def launch(rows: Any, cluster: Client | None, program: RankProgram, watch: Watch) -> Any:
    """Run ``program`` on the workers that hold ``rows``; the outcome of rank 0."""
    client = _client(cluster)
    futures = _persist(rows, client) if is_dask_collection(rows.X) else []
    try:
        return _Fit(client, rows, futures, program, watch).run()
    finally:
        forget(Scheduler(client), futures)


class _Fit:
    """A fit, from one loss of a worker to the next."""

    def __init__(
        self, client: Client, rows: Any, futures: list[Future[Any]], program: RankProgram, watch: Watch
    ) -> None:
        self._client, self._scheduler = client, Scheduler(client)
        self._rows, self._futures, self._watch = rows, futures, watch
        self._program = program  # after each report, the one that goes on from there
        self._placement: Placement | None = None
        self._lost: list[str] = []
        self._have_rows = bool(futures)  # whether all ranks had their rows once, so that some can be lost
        self._n_in_vain = 0  # losses since the last report

    def run(self) -> Any:
        while True:
            try:
                if self._placement is None:
                    self._placement = self._place()
                outcome = self._attempt(self._placement)
                break
            except PeerLost as error:
                self._survive(error)
        if self._lost:
            first = outcome.results[0]
            outcome.results[0] = replace(first, ledger=replace(first.ledger, lost_peers=len(self._lost)))
        return outcome

    def _survive(self, error: PeerLost) -> None:
        """Prepare another attempt without the worker that was lost, and warn; raise where there can be none."""
        if isinstance(error, SchedulerLost) or error.address in ("", *self._lost):
            raise error
        self._lost.append(error.address)
        self._n_in_vain += 1
        self._scheduler.remove_worker(error.address)
        program, before, self._placement = self._program, self._placement, None
        n_remaining = sum(address not in self._lost for address in self._scheduler.workers())
        if not n_remaining or program.if_lost == "raise" or self._n_in_vain > _VAIN_LOSSES + n_remaining:
            raise error
        if program.if_lost == "leave out" and before is not None and self._have_rows:
            self._placement = before.without(error.address)
            n_kept, n_ranks = len(self._placement.addresses), len(self._placement.addresses) + len(self._lost)
            if not n_kept:
                raise error
            what = f"{program.name} begins again without its rows: N is that of {n_kept} of {n_ranks} machines"
            what += f", and standard errors grow by about {n_ranks / n_kept:.3g} ** 0.5."
        else:
            what = f"Its rows are recomputed and {program.name} goes on with {n_remaining} worker(s)."
        warn_user(f"{error} {what}", PeerLostWarning)

    def _place(self) -> Placement:
        """Who gets which rows, on the workers that are left."""
        if not self._futures:
            addresses = [each for each in self._scheduler.workers() if each not in self._lost]
            addresses = addresses[: self._rows.X.shape[0]]
            if not addresses:
                raise ValueError("The Dask cluster has no workers.")
            return Placement(addresses, [[part] for part in split_rows(self._rows, len(addresses))])
        return _place_collection(self._scheduler, self._futures, self._lost)

    def _attempt(self, placement: Placement) -> RankOutcome:
        """Run the ranks until they end or one fails; a reason of ``watch`` to stop a part ends that part on all."""
        reasons: dict[int, str] = {}

        def hear(packed: bytes) -> None:
            report = unpack(packed)
            self._n_in_vain, self._program = 0, self._program.after(report)
            reason = self._watch(report)
            if reason and report.part not in reasons:
                reasons[report.part] = reason
                job.board.ask_to_stop(report.part)

        program, addresses, is_sent = self._program, placement.addresses, not self._futures
        job = Job(self._scheduler, f"{program.name}-rank", addresses, hear)
        silence = float(dask.config.get("widemargin.silence", 8.0))
        with job.open():
            parts = [[job.send(k, each[0])] for k, each in enumerate(placement.parts)] if is_sent else placement.parts
            self._have_rows = True
            job.start(_rank_main, [(each, is_sent, type(self._rows), addresses, program, silence) for each in parts])
            for _ in job.polls():
                if job.lost or any(future.status in ("error", "cancelled", "lost") for future in job.futures):
                    break
            if job.futures[0].status != "finished":
                raise _cause(job)
            outcome: RankOutcome = job.result(0)
        for part, reason in reasons.items():
            if part < len(outcome.results) and outcome.results[part].stop_reason == "interrupted":
                outcome.results[part] = replace(outcome.results[part], stop_reason=reason)
        return outcome


def _client(cluster: Client | None) -> Client:
    if cluster is not None:
        return cluster
    try:
        client: Client = default_client()
        return client
    except ValueError:
        raise ValueError(
            "X is a Dask collection and there is no Dask client: pass cluster=Client(...), or create a Client first."
        ) from None


def _persist(rows: Any, client: Client) -> list[Future[Any]]:
    """One future for each part: a tuple of X, y and weight, which share the memory of the chunks, and its number."""
    columns = [_to_parts(each, rows.X) for each in rows[:3]]
    lengths = {len(each) for each in columns if each is not None}
    if len(lengths) > 1:
        raise ValueError(f"X, y and sample_weight have different numbers of partitions: {sorted(lengths)}.")
    together, parts = delayed(lambda *part: part, name="widemargin-part"), []
    for k in range(lengths.pop()):
        part = (None if each is None else each[k] for each in columns)
        parts.append(together(*part, k, dask_key_name=f"widemargin-part-{k}-{uuid.uuid4().hex}"))
    return list(client.compute(parts))


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
        raise ValueError("If X is a Dask dataframe, y and sample_weight must be Dask collections of its partitions.")
    edges = np.concatenate([[0], np.cumsum(X.chunks[0])])
    if np.isnan(edges).any() or edges[-1] != len(collection):
        raise ValueError(f"y or sample_weight has {len(collection)} rows and X {edges[-1]:g}: both must be equal.")
    values = np.asarray(collection)
    return [delayed(values[int(a) : int(b)]) for a, b in pairwise(edges)]


def _place_collection(scheduler: Scheduler, futures: list[Future[Any]], lost: list[str]) -> Placement:
    """Ranks in the order of the first part that each worker holds, once all parts are held somewhere."""
    keys, underway_at = [future.key for future in futures], time.monotonic()
    while True:
        if failed := [future for future in futures if future.status == "error"]:
            _raise_error(failed[0])
        holders = scheduler.call("who_has", keys=keys)
        homes = [[each for each in holders.get(key, ()) if each not in lost] for key in keys]
        if all(homes):
            break
        states = scheduler.call(
            "get_task_status", keys=[key for key, home in zip(keys, homes, strict=True) if not home]
        )
        if _UNDERWAY & set(states.values()):
            underway_at = time.monotonic()
        # The scheduler may need a moment to notice what it has to compute again.
        if any(future.status == "cancelled" for future in futures) or time.monotonic() - underway_at > _GRACE:
            raise PeerLost(
                f"Rows on {lost[-1] if lost else 'a worker'} are lost and cannot be recomputed: they were sent there "
                "and have no recipe. Pass a Dask collection that can be computed again, or the array itself.",
                lost[-1] if lost else "",
            )
        _refuse_to_wait_for_nobody(scheduler)
        time.sleep(POLL_INTERVAL)
    held: dict[str, list[Future[Any]]] = {}
    for future, addresses in zip(futures, homes, strict=True):
        held.setdefault(min(addresses), []).append(future)
    return Placement(list(held), list(held.values()))


def _raise_error(future: Future[Any]) -> None:
    """Raise what a task raised, or that its workers died one after the other."""
    error = future.exception()
    if isinstance(error, KilledWorker):
        raise PeerLost(f"Workers died while they computed rows or models of this fit: {error}") from error
    future.result()


def _refuse_to_wait_for_nobody(scheduler: Scheduler) -> None:
    if not scheduler.workers():
        raise PeerLost("The Dask cluster has no workers left.")


def _gathered(scheduler: Scheduler, tasks: list[Future[Any]]) -> list[Any]:
    """The results of plain tasks, which Dask computes again on other workers where it must."""
    client = scheduler.client
    try:
        return list(in_background(lambda: client.gather(tasks), lambda: _refuse_to_wait_for_nobody(scheduler)))
    except GONE as error:
        _refuse_to_wait_for_nobody(scheduler)
        for task in tasks:
            if task.status == "error":
                _raise_error(task)
        raise PeerLost(f"Workers were lost together with what they held ({type(error).__name__}: {error}).") from error


def _cause(job: Job) -> BaseException:
    """What went wrong first: a rank's own error rather than the loss of that rank, which others report."""
    begun_at = time.monotonic()
    for _ in job.polls():
        if time.monotonic() - begun_at > (_GRACE_IF_GONE if job.lost else _GRACE):
            break
    gone = [job.addresses[number] for number in sorted(job.lost)]
    losses: dict[str, PeerLost] = {}
    for address, future in zip(job.addresses, job.futures, strict=True):
        error: BaseException | None = future.exception() if future.status == "error" else None
        if isinstance(error, PeerLost):
            losses[address] = error
        elif error is not None:
            return error
    if losses:
        # A rank that has lost another closes its connections, so that others may report it as lost in turn.
        accusers = {address for address, error in losses.items() if error.address != address}
        return min(losses.values(), key=lambda error: (error.address not in gone, error.address in accusers))
    where = gone[0] if gone else job.addresses[0]
    return PeerLost(f"Worker {where} was lost.", where)


def _rank_main(
    member: Member,
    parts: list[Any],
    are_whole: bool,
    kind: type,
    addresses: list[str],
    program: RankProgram,
    silence: float,
) -> RankOutcome | None:
    """``are_whole``: this rank has a single part, as the driver cut it."""

    def watch(report: Any) -> str | None:
        member.board.report(pack(report))
        return "interrupted" if member.must_stop(part=report.part) else None

    columns = parts[0] if are_whole else [None if each[0] is None else list(each) for each in zip(*parts, strict=True)]
    with DaskRanks(member.connections, addresses, silence) as comm:
        on_first = watch if comm.rank == 0 else None
        outcome = program.run_on_rank(kind(*columns), comm, on_first, may_lose_ranks=True)
    return outcome if comm.rank == 0 else None


def map_rows(function: Callable[[Any], np.ndarray], X: Any, n_columns: int | None, dtype: Any) -> Any:
    """``function`` on every part of a Dask collection, lazily; a Dask array of one column, or of ``n_columns``."""
    if not hasattr(X, "chunks"):
        X = X.to_dask_array()
    X = X.rechunk({1: -1})
    if n_columns is None:
        return X.map_blocks(function, dtype=dtype, drop_axis=1)
    return X.map_blocks(function, dtype=dtype, chunks=(X.chunks[0], (n_columns,)))


def grow(
    client: Client, leaves: list[Any], solve: Solve, look: Look, fan_in: int, is_enough: IsEnough, is_over: IsOver
) -> None:
    """A tree of plain tasks, as :func:`widemargin.engines.inline.grow`: branches stay where they were solved.

    Only those that are solved together move. Dask solves again what a lost worker held, and nothing else: leaves are
    part of their tasks, so that they can be sent again. Once ``is_over()``, a level that is not ready is given up,
    except for the first, without which there is nothing.
    """
    scheduler = Scheduler(client)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        branches = [client.submit(on_own_threads, solve, [leaf], pure=False) for leaf in leaves]
    try:
        is_first = True
        while True:
            looks = [client.submit(look, branch, pure=False) for branch in branches]
            while not all(each.done() for each in looks):
                if not is_first and is_over():
                    return
                _refuse_to_wait_for_nobody(scheduler)
                time.sleep(POLL_INTERVAL)
            if is_enough(_gathered(scheduler, looks)) or len(branches) == 1:
                return
            groups = [branches[k : k + fan_in] for k in range(0, len(branches), fan_in)]
            branches, is_first = [client.submit(on_own_threads, solve, group, pure=False) for group in groups], False
    finally:
        forget(scheduler, branches)


def map_items(client: Client, work: Callable[[Any, Any], Any], shared: Any, items: list[Any]) -> list[Any]:
    """``work(shared, item)`` for all items, as plain tasks; every worker that needs ``shared`` fetches it once."""
    scheduler = Scheduler(client)
    for n_left in reversed(range(_VAIN_LOSSES + len(scheduler.workers()))):
        try:
            return _mapped(scheduler, work, shared, items)
        except PeerLost as error:
            if isinstance(error, SchedulerLost) or not n_left:
                raise
            _refuse_to_wait_for_nobody(scheduler)
    raise AssertionError("unreachable")


def _mapped(scheduler: Scheduler, work: Callable[[Any, Any], Any], shared: Any, items: list[Any]) -> list[Any]:
    client, sent, tasks, present = scheduler.client, [], [], set(scheduler.workers())

    def check() -> None:
        """Dask tries to reach a worker that has died for longer than anyone wants to wait."""
        _refuse_to_wait_for_nobody(scheduler)
        if not present <= set(scheduler.workers()):
            raise PeerLost("A worker was lost while rows were sent.")

    try:
        # Not with broadcast=True: Dask never stops copying to a worker that dies meanwhile, and other broadcasts wait.
        send = partial(client.scatter, [shared], hash=False)
        try:
            sent = in_background(send, check)
        except GONE as error:
            _refuse_to_wait_for_nobody(scheduler)
            raise PeerLost(f"A worker was lost while rows were sent ({type(error).__name__}).") from error
        tasks = [client.submit(on_own_threads, work, *sent, item, pure=False) for item in items]
        return _gathered(scheduler, tasks)
    finally:
        forget(scheduler, [*sent, *tasks])
