"""One peer from the command line: it begins or joins a network, runs, prints, and saves its model."""

from __future__ import annotations

import io
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from widemargin.callbacks import Interruption
from widemargin.cli._input import check_outputs
from widemargin.cli._peer_log import PeerLog
from widemargin.cli._peer_membership import OwnMembership, acting_as
from widemargin.cli._peer_terms import Terms
from widemargin.cli._peer_watch import Screen
from widemargin.comm.protocol import HIGHEST_NUMBER
from widemargin.comm.zmq_keys import Keys, SharedKeys
from widemargin.comm.zmq_peers import ZmqPeers, ask, check_address
from widemargin.data.files import write_whole
from widemargin.data.layout import Layout
from widemargin.data.rows import read_rows
from widemargin.estimators.gossip import GossipSVC, of_outcome
from widemargin.io.archive import save
from widemargin.peers.claims import Claims
from widemargin.peers.loop import PeerLimits, PeerLoop, PeerReport
from widemargin.peers.notary import MemberNotary
from widemargin.peers.peer import Peer
from widemargin.peers.records import MOST_INCARNATIONS, incarnation_of
from widemargin.peers.wire import MessageFormat
from widemargin.strategies.peers import Network, outcome_of_peer

_ANSWER_SECONDS = 10.0  # to wait for a member's answer
_SECONDS_PER_LINE = 2.0  # of --watch without a terminal
_UNLIMITED_TICKS = int(np.iinfo(np.int32).max)  # max_iter of a model without --max-ticks


@dataclass(frozen=True)
class Request:
    """The options of the command."""

    data: Path
    secret: str | None  # or identity and members
    identity: Path | None
    members: Path | None
    listen: str
    join: str | None
    advertise: str | None
    model: Path | None
    number: int | None
    every: float | None
    zero_based: bool
    max_time: float | None
    max_ticks: int | None
    pace: float
    silence: float
    log: Path | None
    begins: dict[str, Any]  # terms of a network that begins here; None where not given
    watch: bool = False


class _Ready(NamedTuple):
    """A peer with its connections, before its first tick."""

    peer: Peer
    transport: ZmqPeers
    network: Network
    terms: Terms
    feature_names: list[str] | None
    tick: int  # that the network had reached
    own: OwnMembership | None


def run(request: Request) -> None:
    """Be a peer until all have certified the gap, or a limit is reached."""
    if request.identity is None or request.members is None:
        _run(request, None)
        return
    with acting_as(request.identity, request.members) as own:
        _run(request, own)


def _run(request: Request, own: OwnMembership | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    ready = _prepare(request, own)
    peer, terms = ready.peer, ready.terms
    name = "" if own is None else f" ({own.identity.name})"
    console.print(f"peer {peer.number}{name} listens at {ready.transport.address}, {peer.algorithm.rows.n_rows} rows")
    max_ticks, max_time = request.max_ticks or np.inf, np.inf if request.max_time is None else request.max_time
    limits = PeerLimits(terms.tol, max_ticks, max_time, request.pace, request.silence, terms.at_least)
    membership, screen = None if own is None else own.membership, _screen(console, ready, request)
    with _signals() as has_to_stop, screen as line, PeerLog(request.log, screen.hear, membership) as log:
        log.start(peer.number, ready.transport.address, peer.algorithm.rows.n_rows, terms.tol)

        def watch(loop: PeerLoop) -> bool:
            line.show(loop)
            log.note(loop)
            if own is not None:
                own.follow_file()
            return bool(has_to_stop)

        report = PeerLoop(peer, ready.transport, limits, watch, membership=membership, tick=ready.tick).run()
        log.stop(report)
    _print_end(console, report, terms)
    if request.model is not None:
        _save(request.model, _fitted(ready, report, request))
        console.print(f"model saved as {request.model}", markup=False)


# -- before ------------------------------------------------------------------------------------------------------------


def _prepare(request: Request, own: OwnMembership | None) -> _Ready:
    """The peer with its connections; all errors in the options and files are raised here."""
    keys: Keys = SharedKeys.of(str(request.secret)) if own is None else own.keys
    check_address(request.listen)
    check_outputs({"the model": request.model}, request.data)
    if request.log is not None and not request.log.parent.is_dir():
        raise ValueError(f"There is no folder {request.log.parent} to keep the log in.")
    rows = read_rows(request.data, Layout(zero_based=request.zero_based))
    number = _number(request, own)
    if own is not None:
        own.check_rows(len(rows.y))
    if request.join is None:
        terms, incarnation, known, tick = Terms.begin(request.begins, rows, request.data), 0, dict[int, str](), 0
    else:
        terms, incarnation, known, tick = _joined(request.join, request.begins, keys, number, own)
    network = terms.network({number: sorted(known)})
    owned = terms.encode(network, rows, request.data)
    if own is None:
        peer = network.begin(number, owned, secrets.randbits(62), incarnation)
    else:
        notary, claims = MemberNotary(own.identity, own.membership, terms._asdict()), Claims()
        peer = network.begin(number, owned, secrets.randbits(62), own.incarnation, notary=notary, claims=claims)
    limit = MessageFormat.of(peer).limit_bytes
    transport = ZmqPeers(number, request.listen, keys, limit, request.advertise, terms.degree)
    for each, address in known.items():
        transport.link(each, address)
    transport.host(
        lambda asking: {"terms": terms._asdict(), "life": _next_incarnation(peer, asking), "tick": peer.ticks}
    )
    return _Ready(peer, transport, network, terms, rows.names, tick, own)


def _number(request: Request, own: OwnMembership | None) -> int:
    """This peer's number: from the list, from ``--number``, or random."""
    if own is not None:
        return own.member.number
    number = secrets.randbelow(HIGHEST_NUMBER) if request.number is None else request.number
    if number >= HIGHEST_NUMBER:
        raise ValueError(f"--number {number} must be below {HIGHEST_NUMBER}.")
    return number


def _joined(
    join: str, begins: dict[str, Any], keys: Keys, number: int, own: OwnMembership | None
) -> tuple[Terms, int, dict[int, str], int]:
    """The terms of a member's network, this peer's incarnation there, neighbours, and the tick of the network."""
    given = [name for name, value in begins.items() if value is not None]
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')} is decided by the peer that begins the network.")
    if own is None:
        welcome = ask(join, keys, number, _ANSWER_SECONDS)
    else:
        member, address = own.member_at(join)
        welcome = ask(address, keys, number, _ANSWER_SECONDS, member.number)
    terms = Terms.of(welcome.terms)
    if own is not None:
        own.start_from(welcome.incarnation)
    elif not 0 <= welcome.incarnation < MOST_INCARNATIONS:
        raise ValueError(f"--number {number} has been used too often; leave it out to have another.")
    known = welcome.peers if own is None else _listed(welcome.peers, own)
    return terms, welcome.incarnation, _chosen(known, welcome.number, terms.degree), welcome.tick


def _listed(peers: dict[int, str], own: OwnMembership) -> dict[int, str]:
    """Those peers whose keys are on the list here, which may be older than the list of the member that named them."""
    return {number: address for number, address in peers.items() if number in own.membership.newest.active}


def _chosen(known: dict[int, str], first: int, degree: int) -> dict[int, str]:
    """The member that was asked, and random others."""
    others = sorted(set(known) - {first})
    chosen = np.random.default_rng().permutation(others)[: degree - 1].tolist() if others else []
    return {each: known[each] for each in ([first] if first in known else []) + chosen}


def _next_incarnation(peer: Peer, number: int) -> int:
    """An incarnation that the peer of this number has not had, as far as ``peer`` knows."""
    known = [newest[number].number for newest in peer.table.newest.values() if number in newest]
    return incarnation_of(max(known)) + 1 if known else 0


# -- while it runs -----------------------------------------------------------------------------------------------------


@contextmanager
def _signals() -> Iterator[Interruption]:
    """The first Ctrl-C or SIGTERM stops the peer and keeps its model; a second Ctrl-C ends the process."""
    stop = Interruption()
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def note(*reason: Any) -> None:
        stop.request()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for each in before:
        signal.signal(each, note)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _screen(console: Console, ready: _Ready, request: Request) -> Screen | _Line:
    """The panel of ``--watch``, or lines where there is no terminal to draw on."""
    if request.watch and console.is_terminal:
        about = ready.transport.address, ready.peer.algorithm.rows.n_rows, ready.terms.tol
        wraps = Console(highlight=False)  # a panel keeps to the width of the terminal, printed lines do not
        return Screen(wraps, *about, request.every, ready.terms.at_least)
    return _Line(console, request.every or (_SECONDS_PER_LINE if request.watch else None))


class _Line:
    """A status line on a terminal, and a printed line every so many seconds."""

    hear = None  # events are in the log only

    def __init__(self, console: Console, every: float | None) -> None:
        self._console, self._every, self._due = console, every, 0.0
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def __enter__(self) -> _Line:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, loop: PeerLoop) -> None:
        now = time.monotonic()
        if now < self._due or (self._every is None and self._live is None):
            return
        self._due, text = now + (self._every or 0.1), _figures(loop.report())
        if self._live is not None:
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"))
        if self._every is not None:
            self._console.print(text, markup=False)


def _figures(report: PeerReport) -> str:
    optimum = "" if (proof := report.certificate) is None else f"  optimum in [{', '.join(proof.as_text(9))}]"
    return (  # what matters most first: a terminal may cut the line
        f"tick {report.ticks}  gap {report.gap:.2e}{optimum}  peers {len(report.members)}  "
        f"neighbours {len(report.live_neighbours)}  {report.seconds:.1f} s  consensus {report.consensus:.2e}  "
        f"sent {report.messages_sent} ({_size(report.bytes_sent)})  "
        f"received {report.messages_received} ({_size(report.bytes_received)})  refused {report.refused}"
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"


# -- afterwards --------------------------------------------------------------------------------------------------------

_STOPPED = {
    "revoked": "the list of members has revoked this peer",
    "accused": "records of this identity contradict each other: is it used twice, or was its key stolen?",
    "gap": "all peers have certified the gap",
    "precision": "rounding keeps the gap open: scale the features, or allow a larger --tol",
    "max_time": "--max-time was reached",
    "max_ticks": "--max-ticks was reached",
    "interrupted": "interrupted",
}


def _print_end(console: Console, report: PeerReport, terms: Terms) -> None:
    console.print(_figures(report), markup=False)
    console.print(f"stopped: {_STOPPED[str(report.stop_reason)]}")
    if report.certificate is None:
        console.print("certificate: none for the present members; the model is this peer's own")
        return
    gap, bounds = f"gap {report.gap:.2e} (tol {terms.tol:.0e})", ", ".join(report.certificate.as_text(9))
    peers = f"{len(report.members)} peer{'s' if len(report.members) > 1 else ''}"
    console.print(f"certificate: optimum in [{bounds}], {gap}, for the rows of {peers}", markup=False)


def _fitted(ready: _Ready, report: PeerReport, request: Request) -> GossipSVC:
    limits = {"max_iter": request.max_ticks or _UNLIMITED_TICKS, "max_time": request.max_time or None}
    outcome = outcome_of_peer(ready.network, np.array(ready.terms.classes), ready.peer, report)
    return of_outcome({**ready.terms.parameters(), **limits}, outcome, ready.feature_names)


def _save(path: Path, model: GossipSVC) -> None:
    try:
        if path.suffix != ".npz":
            save(model, path)
            return
        content = io.BytesIO()
        np.savez(content, coef=model.coef_, intercept=model.intercept_, classes=model.classes_)
        write_whole(path, content.getvalue())
    except OSError as error:
        raise ValueError(f"The model cannot be saved as {path}: {error.strerror}.") from error
