"""Fits on a Dask cluster: one rank on each worker that holds rows.

Rows of a Dask collection stay on the workers that hold their chunks; an in-memory array is split and sent once. If a
worker is lost, the fit begins again: its rows are recomputed on the others, or left out if the program says so.
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
from distributed import Client, Future, default_client

from widemargin.codec import pack, unpack
from widemargin.comm.dask import DaskRanks
from widemargin.comm.dask_private import remove_worker
from widemargin.engines._plan import split_rows
from widemargin.engines.dask_job import POLL_INTERVAL, Job, Member, send_to, workers_of
from widemargin.engines.protocol import IsEnough, IsOver, Look, RankOutcome, RankProgram, Solve, Watch
from widemargin.exceptions import PeerLost, PeerLostWarning, warn_user

_GRACE = 5.0  # seconds that the other ranks have to end once one has failed


class Placement(NamedTuple):
    """Which worker is which rank, and the parts of the rows each has: tuples of X, y and weight, or futures of them."""

    addresses: list[str]
    parts: list[list[Any]]
    are_whole: bool  # whether each rank has a single part, as the driver cut it

    def without(self, address: str) -> "Placement":
        """The same ranks with the same rows, except for those on one worker."""
        kept = [k for k, each in enumerate(self.addresses) if each != address]
        return Placement([self.addresses[k] for k in kept], [self.parts[k] for k in kept], self.are_whole)


def launch(rows: Any, cluster: Client | None, program: RankProgram, watch: Watch) -> Any:
    """Run ``program`` on the workers that hold ``rows``; the outcome of rank 0."""
    client = _client(cluster)
    is_held = is_dask_collection(rows.X)
    place = partial(_place_collection, client, _persist(rows, client)) if is_held else partial(_scatter, client, rows)
    lost: list[str] = []
    placement = place(lost)
    while True:
        try:
            outcome = _attempt(client, placement, type(rows), program, watch)
            break
        except PeerLost as error:
            lost.append(error.address)
            remove_worker(client, error.address)
            n_remaining = sum(address not in lost for address in workers_of(client))
            if not n_remaining or program.if_lost == "raise":
                raise
            if program.if_lost == "leave out":
                placement = placement.without(error.address)
                n_kept, n_ranks = len(placement.addresses), len(placement.addresses) + len(lost)
                if not n_kept:
                    raise
                what = f"{program.name} begins again without its rows: N is that of {n_kept} of {n_ranks} machines"
                what += f", and standard errors grow by about {n_ranks / n_kept:.3g} ** 0.5."
            else:
                placement = place(lost)
                what = f"Its rows are recomputed and {program.name} begins again on {n_remaining} worker(s)."
            warn_user(f"{error} {what}", PeerLostWarning)
    if lost:
        first = outcome.results[0]
        outcome.results[0] = replace(first, ledger=replace(first.ledger, lost_peers=len(lost)))
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


def _place_collection(client: Client, futures: list[Future[Any]], lost: list[str]) -> Placement:
    """Ranks in the order of the first part that each worker holds, once all parts are held somewhere."""
    computed_at = time.monotonic()
    while True:
        statuses = {future.status for future in futures}
        if "error" in statuses:
            next(future for future in futures if future.status == "error").result()
        is_computed = statuses <= {"finished", "lost"}
        computed_at = computed_at if is_computed else time.monotonic()
        holders = client.who_has(futures) if is_computed else {}
        homes = [[each for each in holders.get(future.key, ()) if each not in lost] for future in futures]
        if all(homes):
            break
        # The scheduler may need a moment to notice what it has to compute again.
        if "cancelled" in statuses or time.monotonic() - computed_at > _GRACE:
            where = lost[-1] if lost else "a worker"
            raise PeerLost(
                f"Rows on {where} are lost and cannot be recomputed: they were sent there and have no recipe. Pass a "
                "Dask collection that can be computed again, or the array itself.",
                where,
            )
        time.sleep(POLL_INTERVAL)
    held: dict[str, list[Future[Any]]] = {}
    for future, addresses in zip(futures, homes, strict=True):
        held.setdefault(min(addresses), []).append(future)
    return Placement(list(held), list(held.values()), are_whole=False)


def _scatter(client: Client, rows: Any, lost: list[str]) -> Placement:
    """Equal parts of an in-memory array, sent once to all workers; the array stays here to be sent again."""
    addresses = [address for address in workers_of(client) if address not in lost][: rows.X.shape[0]]
    if not addresses:
        raise ValueError("The Dask cluster has no workers.")
    parts = split_rows(rows, len(addresses))
    sent = [[send_to(client, address, part)] for part, address in zip(parts, addresses, strict=True)]
    return Placement(addresses, sent, are_whole=True)


def _attempt(client: Client, placement: Placement, kind: type, program: RankProgram, watch: Watch) -> RankOutcome:
    """Run the ranks until they end or one fails; a reason of ``watch`` to stop a part ends that part on all."""
    reasons: dict[int, str] = {}

    def hear(packed: bytes) -> None:
        report = unpack(packed)
        reason = watch(report)
        if reason and report.part not in reasons:
            reasons[report.part] = reason
            job.board.ask_to_stop(report.part)

    job = Job(client, f"{program.name}-rank", placement.addresses, hear)
    silence = float(dask.config.get("widemargin.silence", 8.0))
    arguments = [(parts, placement.are_whole, kind, placement.addresses, program, silence) for parts in placement.parts]
    with job.running(_rank_main, arguments):
        for _ in job.polls():
            if job.lost or any(future.status in ("error", "cancelled", "lost") for future in job.futures):
                break
        if any(future.status != "finished" for future in job.futures):
            raise _cause(job)
        outcome: RankOutcome = job.futures[0].result()
    for part, reason in reasons.items():
        if part < len(outcome.results) and outcome.results[part].stop_reason == "interrupted":
            outcome.results[part] = replace(outcome.results[part], stop_reason=reason)
    return outcome


def _cause(job: Job) -> BaseException:
    """What went wrong first: a rank's own error rather than the loss of that rank, which others report."""
    deadline = time.monotonic() + _GRACE
    for _ in job.polls():
        if time.monotonic() > deadline:
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
    parts: list[tuple[Any, ...]],
    are_whole: bool,
    kind: type,
    addresses: list[str],
    program: RankProgram,
    silence: float,
) -> RankOutcome | None:

    def watch(report: Any) -> str | None:
        member.report(pack(report))
        return "interrupted" if member.must_stop(part=report.part) else None

    columns = parts[0] if are_whole else [None if each[0] is None else list(each) for each in zip(*parts, strict=True)]
    with DaskRanks(member.connections, addresses, silence) as comm:
        outcome = program.run_on_rank(kind(*columns), comm, watch if comm.rank == 0 else None)
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
                time.sleep(POLL_INTERVAL)
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
        return list(client.gather(tasks))
    finally:
        client.cancel(tasks, force=True)
