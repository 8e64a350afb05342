"""A peer of a network from its first message to its model: it joins or begins, runs, prints, and saves."""

from __future__ import annotations

import io
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from widemargin.callbacks import Interruption
from widemargin.cli._input import check_outputs
from widemargin.cli._peer_terms import Terms, begin, encoded
from widemargin.comm.zmq_peers import Keys, ZmqPeers, ask, check_address
from widemargin.data.files import write_whole
from widemargin.data.layout import Layout
from widemargin.data.rows import read_rows
from widemargin.peers.admm import GossipADMM
from widemargin.peers.claims import life_of
from widemargin.peers.loop import Limits, PeerLoop, Report
from widemargin.peers.peer import Peer
from widemargin.peers.rows import PeerRows
from widemargin.peers.wire import HIGHEST_NUMBER, Form
from widemargin.problems.mean_hinge import MeanHinge

_ANSWER_TIME = 10.0  # seconds to wait for a member's answer
_HIGHEST_LIFE = 1 << 22


@dataclass(frozen=True)
class Wish:
    """What was asked for on the command line."""

    data: Path
    secret: str
    listen: str
    join: str | None
    advertise: str | None
    model: Path | None
    number: int | None
    every: float | None
    zero_based: bool
    limits: dict[str, Any]  # of the loop
    begins: dict[str, Any]  # terms of a network that begins here; None where not given


def run(wish: Wish) -> None:
    """Be a peer until all have what they want, or a limit is reached."""
    console = Console(highlight=False, soft_wrap=True)
    owner, transport, terms = _prepare(wish)
    console.print(f"peer {owner.number} listens at {transport.address}, {owner.algorithm.rows.n_rows} rows")
    with _signals() as has_to_stop, _Line(console, wish.every) as line:

        def watch(loop: PeerLoop) -> bool:
            line.show(loop)
            return bool(has_to_stop)

        limits = Limits(terms.tol, at_least=terms.at_least, **wish.limits)
        report = PeerLoop(owner, transport, limits, watch).run()
    _print_end(console, report, terms)
    if wish.model is not None:
        _save(wish.model, report, terms)
        console.print(f"model saved as {wish.model}", markup=False)


# -- before ------------------------------------------------------------------------------------------------------------


def _prepare(wish: Wish) -> tuple[Peer, ZmqPeers, Terms]:
    """The peer, its wire with links to those it knows, and the terms; all that can be wrong is found here."""
    keys = Keys.of(wish.secret)
    check_address(wish.listen)
    check_outputs({"the model": wish.model}, wish.data)
    own = secrets.randbelow(HIGHEST_NUMBER) if wish.number is None else wish.number
    if own >= HIGHEST_NUMBER:
        raise ValueError(f"--number {own} must be below {HIGHEST_NUMBER}.")
    rows = read_rows(wish.data, Layout(zero_based=wish.zero_based))
    known: dict[int, str]
    if wish.join is None:
        terms, life, known = begin(wish.begins, rows, wish.data), 0, {}
    else:
        terms, life, known = _joined(wish.join, wish.begins, keys, own)
    owner = _make_peer(own, life, sorted(known), terms, encoded(rows, terms, wish.data))
    transport = ZmqPeers(own, wish.listen, keys, Form.of(owner).limit_bytes, wish.advertise)
    for each, address in known.items():
        transport.link(each, address)
    transport.host(lambda asking: {"terms": terms._asdict(), "life": _next_life(owner, asking)})
    return owner, transport, terms


def _joined(member: str, begins: dict[str, Any], keys: Keys, own: int) -> tuple[Terms, int, dict[int, str]]:
    """Terms of the network that a member is of, the life to lead there, and neighbours."""
    given = [name for name, value in begins.items() if value is not None]
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')} is decided by whoever begins a network, not by who joins.")
    welcome = ask(member, keys, own, _ANSWER_TIME)
    terms, life = Terms.of(welcome.terms), welcome.life
    if not 0 <= life < _HIGHEST_LIFE:
        raise ValueError(f"--number {own} has been used too often; leave it out to have another.")
    return terms, life, _chosen(welcome.peers, welcome.number, terms.degree)


def _chosen(known: dict[int, str], first: int, degree: int) -> dict[int, str]:
    """The member that was asked, and others by chance."""
    others = sorted(set(known) - {first})
    chosen = np.random.default_rng().permutation(others)[: degree - 1].tolist() if others else []
    return {each: known[each] for each in ([first] if first in known else []) + chosen}


def _make_peer(number: int, life: int, neighbours: list[int], terms: Terms, rows: PeerRows) -> Peer:
    problem = MeanHinge(terms.alpha)
    of_work, of_letters = np.random.default_rng().spawn(2)
    algorithm = GossipADMM(problem, rows, of_work, terms.is_metric_full)
    return Peer(number, problem, algorithm, neighbours, terms.fan_out, of_letters, life)


def _next_life(owner: Peer, number: int) -> int:
    """A life that a peer of this number has not led, as far as is known here."""
    said = [newest[number].number for newest in owner.table.newest.values() if number in newest]
    return life_of(max(said)) + 1 if said else 0


# -- while it runs -----------------------------------------------------------------------------------------------------


@contextmanager
def _signals() -> Iterator[Interruption]:
    """The first Ctrl-C, or wish to terminate, ends the peer with what it has; a second Ctrl-C ends it at once."""
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


class _Line:
    """A line that changes, on a terminal; and lines from time to time, where they are asked for."""

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
        is_due = self._every is not None and now >= self._due
        if is_due or (self._live is not None and now >= self._due):
            text = _figures(loop.report())
            self._due = now + (self._every or 0.1)
            if self._live is not None:
                self._live.update(Text(text, no_wrap=True, overflow="ellipsis"))
            if is_due:
                self._console.print(text, markup=False)


def _figures(report: Report) -> str:
    optimum = "" if (proof := report.certificate) is None else f"  optimum in [{', '.join(proof.as_text(9))}]"
    return (
        f"tick {report.ticks}  gap {report.gap:.2e}  consensus {report.consensus:.2e}  peers {len(report.members)}  "
        f"neighbours {len(report.live_neighbours)}  sent {report.messages_sent} ({_size(report.bytes_sent)})  "
        f"received {report.messages_received} ({_size(report.bytes_received)})  refused {report.refused}  "
        f"{report.seconds:.1f} s{optimum}"
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"


# -- afterwards --------------------------------------------------------------------------------------------------------

_ENDS = {
    "gap": "all peers have certified what was asked for",
    "max_time": "its time is over",
    "max_ticks": "its ticks are over",
    "interrupted": "it was interrupted",
}


def _print_end(console: Console, report: Report, terms: Terms) -> None:
    console.print(_figures(report), markup=False)
    console.print(f"ends: {_ENDS[str(report.stop_reason)]}")
    certificate = report.certificate
    if certificate is None:
        console.print("certificate: none for the network as it is now; the model is this peer's own")
    else:
        console.print(
            f"certificate: optimum in [{', '.join(certificate.as_text(9))}], "
            f"gap {certificate.relative:.2e} (tol {terms.tol:.0e}), "
            f"for the rows of {len(report.members)} peer{'s' if len(report.members) > 1 else ''}",
            markup=False,
        )


def _save(path: Path, report: Report, terms: Terms) -> None:
    coef, intercept = report.model, np.zeros(len(report.model))
    if terms.has_constant:
        coef, intercept = report.model[:, :-1], report.model[:, -1]
    content = io.BytesIO()
    np.savez(content, coef=coef, intercept=intercept, classes=np.array(terms.classes))
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise ValueError(f"The model cannot be saved as {path}: {error.strerror}.") from error
