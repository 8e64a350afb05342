"""Peers on a Dask cluster: one on each worker, writing to each other; this process starts them and waits.

Rows that are here are sent to their workers once; those that lie on workers stay there. A worker that dies takes its
peer with it: the others go on, as they would in any network, and a warning at the end names the missing ones.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import dask
from distributed import CancelledError, Client, Future, KilledWorker

from widemargin.comm.dask_connections import Scheduler, SchedulerLost
from widemargin.comm.dask_peers import DaskPeers
from widemargin.engines.dask_job import Job, Member
from widemargin.exceptions import PeerLost, PeerLostWarning, warn_user
from widemargin.peers.loop import PeerLoop, PeerRun

_REPORT_INTERVAL = 0.25  # seconds between two reports of a peer
_STOP_GRACE = 20.0  # seconds that peers have to end once they are asked to


class PeersOutcome(NamedTuple):
    """The reports of those that came to an end, and the addresses of those that did not, by peer."""

    reports: dict[int, Any]
    lost: dict[int, str]


def launch_peers(
    client: Client,
    parts: Sequence[Any],
    program: PeerRun,
    neighbours: Mapping[int, Sequence[int]],
    is_over: Callable[[], bool] = lambda: False,
    tell: Callable[[int, dict[str, float]], None] = lambda number, figures: None,
) -> PeersOutcome:
    """Run one peer per part of the rows, each on a worker of its own; wait until all have ended.

    ``parts[k]`` are the rows of peer ``k``: a future of what lies on a worker, or what is to be sent to one.
    ``program(number, rows, transport, watch)`` is what a worker runs. Once ``is_over()`` is true, peers are asked to
    end with what they have. ``tell(number, figures)`` is called here now and then with what ``program.figures(loop)``
    says about a running peer. An error of a peer ends all.
    """
    patience = float(dask.config.get("widemargin.come-up", 30.0))
    with _begun(Scheduler(client), parts, lambda report: tell(*report)) as (job, rows):
        each = [(own, program, list(neighbours[number]), patience) for number, own in enumerate(rows)]
        job.start(_peer_main, each)
        give_up_at = math.inf
        for _ in job.polls():
            if give_up_at == math.inf and (is_over() or _errors(job)):
                give_up_at = time.monotonic() + _STOP_GRACE
                job.board.ask_to_stop()
            if time.monotonic() > give_up_at:
                break
        return _outcome(job)


@contextmanager
def _begun(
    scheduler: Scheduler, parts: Sequence[Any], on_report: Callable[[Any], None]
) -> Iterator[tuple[Job, list[Any]]]:
    """A job on workers that have the rows of all peers; a worker that is lost before is replaced by a free one."""
    lost: set[str] = set()
    while True:
        job = Job(scheduler, "peer", _place(scheduler, parts, lost), on_report)
        with job.open():
            try:
                rows = [part if isinstance(part, Future) else job.send(k, [part])[0] for k, part in enumerate(parts)]
            except PeerLost as error:
                n_free = len(set(scheduler.workers()) - lost - {error.address})
                if isinstance(error, SchedulerLost) or n_free < len(parts):
                    raise
                lost.add(error.address)
                continue
            yield job, rows
            return


def _place(scheduler: Scheduler, parts: Sequence[Any], lost: set[str]) -> list[str]:
    """The worker of each peer: the one that has its rows, or one that is free."""
    free = [address for address in scheduler.workers() if address not in lost]
    if len(parts) > len(free):
        raise ValueError(f"There are {len(parts)} peers and {len(free)} workers; each peer needs a worker of its own.")
    held = [part.key for part in parts if isinstance(part, Future)]
    holders = scheduler.call("who_has", keys=held) if held else {}
    homes: list[str | None] = []
    for part in parts:
        there = sorted(set(holders.get(part.key, ())) & set(free)) if isinstance(part, Future) else []
        homes.append(there[0] if there else None)
        if there:
            free.remove(there[0])
    return [home if home is not None else free.pop(0) for home in homes]


def _errors(job: Job) -> list[BaseException]:
    """What peers have raised, except that they were lost with their workers."""
    errors = [future.exception() for future in job.futures if future.status == "error"]
    return [error for error in errors if not isinstance(error, PeerLost | KilledWorker | CancelledError)]


def _outcome(job: Job) -> PeersOutcome:
    if errors := _errors(job):
        raise errors[0]
    reports, lost = {}, {}
    for number, (future, address) in enumerate(zip(job.futures, job.addresses, strict=True)):
        try:
            if future.status != "finished":
                raise PeerLost("This peer has not ended.", address)
            reports[number] = job.result(number)
        except SchedulerLost:
            raise
        except PeerLost:
            lost[number] = address  # or its report was, with its worker
    if not reports:
        causes = {str(future.exception()) for future in job.futures if future.status == "error"}
        raise PeerLost(" ".join(["No peer has come to an end: all were lost.", *sorted(causes)]), job.addresses[0])
    if lost:
        who = ", ".join(f"{number} on {address}" for number, address in lost.items())
        warn_user(f"Peers were lost, and the others went on without their rows: {who}.", PeerLostWarning)
    return PeersOutcome(reports, lost)


def _peer_main(member: Member, rows: Any, program: PeerRun, neighbours: list[int], patience: float) -> Any:
    report_at = 0.0

    def watch(loop: PeerLoop) -> bool:
        nonlocal report_at
        if time.monotonic() >= report_at:
            report_at = time.monotonic() + _REPORT_INTERVAL
            member.board.report([member.number, program.figures(loop)])
        return member.must_stop()

    transport = DaskPeers(member.connections, neighbours, patience)
    try:
        return program(member.number, rows, transport, watch)
    finally:
        transport.close()
