"""A peer in real time: ticks by the clock, bytes in and out, and when to end, with nobody to ask.

A tick begins ``pace`` seconds after the last, at the earliest, and as soon as no neighbour is more than a few ticks
behind. Nobody is waited for longer than a twelfth of ``silence`` in a tick: one who is dead slows its neighbours for
about ``silence`` seconds, and then counts as gone.

A peer is done when it has certified ``tol`` and the newest snapshots of all members say that they have. What it has
then is kept, and it goes on for the others until its neighbours say that they are done too, or are silent: whoever left
first would change the network of those who have not heard yet. A newcomer in the meantime means that all go on.

In front of every message stands a byte, which is 1 if the sender is done. What is malformed, too long or of a stranger
is counted and thrown away.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from widemargin.peers.claims import Proof, Snapshot
from widemargin.peers.peer import LETTERS_OF_SILENCE, Peer
from widemargin.peers.protocol import Message
from widemargin.peers.wire import BadMessage, Form, decode, encode
from widemargin.problems.protocol import Certificate

_SLACK = 3  # ticks that a neighbour may be behind
_PACE_ALONE = 0.1  # seconds
_AS_GOOD_AS_NONE = 1e-6  # of a gap
_FAREWELL = 4  # ticks after all neighbours are done: they may not have heard that this one is
_LONGEST_FAREWELL = 200  # ticks for neighbours that hear, and are not done
_HISTORY_TICKS = 4  # between rows of the history, as between snapshots
_HISTORY_ROWS = 4096  # beyond which every other one is dropped


class Transport(Protocol):
    """How bytes get to other peers and back."""

    @property
    def refused(self) -> int:
        """Connections and messages that were turned away before anyone saw them."""

    def open(self) -> None:
        """Tell others that one is there; the loop calls this once, when it is ready."""

    def send(self, to: int, data: bytes) -> None:
        """Write to a peer, if it is there; never waits and never fails."""

    def receive(self, wait: float) -> list[bytes]:
        """What has come; nothing after ``wait`` seconds without any."""

    def newcomers(self) -> list[int]:
        """Peers that want to be neighbours, since this was last asked."""

    def gone(self) -> set[int]:
        """Neighbours whose connections are closed, as far as is known."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True)
class Limits:
    """When a peer ends, and how fast it goes."""

    tol: float
    max_ticks: float = math.inf  # of this peer, however far the network was when it came
    max_time: float = math.inf  # seconds
    pace: float = 0.02  # seconds from tick to tick, at least
    silence: float = 2.0  # seconds after which a neighbour that sends nothing is given up
    at_least: int = 1  # peers that must have been there together before the network may be done
    grace: float = math.inf  # seconds after which it may be done with fewer


class HistoryRow(NamedTuple):
    """A peer at one tick."""

    tick: int
    seconds: float
    gap: float
    consensus: float
    messages: int  # sent
    bytes: int  # sent
    primal: float  # of the problem with the widest gap; nan before there is a proof
    dual: float


@dataclass(frozen=True)
class Report:
    """What a peer can say of itself at any time."""

    number: int
    model: np.ndarray  # (problems, d): the best that is certified, or the latest before there is one
    certificates: list[Certificate]  # of each problem; empty while there is none
    members: list[int]  # of the network that these are of, as this peer knows it
    total: float  # of the weights of the rows that these are of; 0 while there are none
    consensus: float  # distance of the own model to the mean of the newest of all members, by the length of that
    live_neighbours: list[int]
    ticks: int
    seconds: float
    messages_sent: int
    bytes_sent: int  # on the wire
    messages_received: int
    bytes_received: int
    refused: int  # malformed, too long, of strangers; connections that were turned away
    stale: int  # letters that came after newer ones
    stop_reason: str | None  # "gap", "max_ticks", "max_time", "interrupted"; None while it runs
    history: list[HistoryRow] = field(repr=False)

    @property
    def certificate(self) -> Certificate | None:
        """The worst of all problems."""
        return max(self.certificates, key=lambda each: each.relative, default=None)

    @property
    def gap(self) -> float:
        """The certified relative gap; infinite where there is none."""
        return math.inf if self.certificate is None else self.certificate.relative


class PeerLoop:
    """One peer over one transport; ``watch`` is called with this after every tick and ends it by returning True."""

    def __init__(
        self,
        peer: Peer,
        transport: Transport,
        limits: Limits,
        watch: Callable[[PeerLoop], Any] | None = None,
    ) -> None:
        self.peer, self.transport, self.limits = peer, transport, limits
        self.stop_reason: str | None = None
        self._watch, self._form = watch, Form.of(peer)
        self._limit_bytes = self._form.limit_bytes
        self._began = self._ticked = time.monotonic()
        self._worked: deque[float] = deque([0.0], maxlen=3)  # seconds of the last ticks
        self._n_ticks = 0  # done here
        self._wrote = 0  # tick of the last letters; others may have carried this peer further since
        self._sent = self._bytes_sent = self._received = self._bytes_received = self._refused = 0
        self._done: set[int] = set()  # neighbours that say so
        self._final: Proof | None = None  # what is kept once all are done
        self._done_at = self._ends_at = math.inf  # ticks
        self._has_met = False
        self._history: list[HistoryRow] = []
        self._history_ticks = _HISTORY_TICKS

    def run(self) -> Report:
        """Tick until it is over; the transport is closed whatever happens."""
        try:
            self.peer.algorithm.work()  # the first time takes long, as compiled code is loaded: nobody waits for it yet
            self.transport.open()
            self._began = time.monotonic()
            while True:
                self._ticked = time.monotonic()
                if not self._is_idle():
                    self._write(self.peer.tick())
                    self._n_ticks += 1
                self._worked.append(time.monotonic() - self._ticked)
                self._wrote = self.peer.ticks
                if self.peer.ticks % self._history_ticks == 0:
                    self._note()
                self.stop_reason = self._verdict()
                if self._watch is not None and self._watch(self) and self.stop_reason is None:
                    self.stop_reason = "interrupted"
                if self.stop_reason is not None:
                    break
                self._listen()
        finally:
            self.transport.close()
        self._note()
        return self.report()

    # -- what it can say ---------------------------------------------------------------------------------------------

    @property
    def proof(self) -> Proof | None:
        """The best proof; once the network was done, that of the network as it was then."""
        return self.peer.proof if self._final is None else self._final

    @property
    def gap(self) -> float:
        """The certified relative gap; infinite where there is none."""
        return math.inf if self.proof is None else self.proof.worst.relative

    @property
    def is_first(self) -> bool:
        """Whether its number is the lowest of those that are there."""
        return self.peer.number == min(self.peer.table.members)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def report(self) -> Report:
        """Everything as it is now."""
        peer, proof = self.peer, self.proof
        return Report(
            number=peer.number,
            model=np.array(peer.algorithm.model if proof is None else proof.model),
            certificates=[] if proof is None else list(proof.certificates),
            members=sorted(peer.table.members if proof is None else proof.members),
            total=0.0 if proof is None else proof.total,
            consensus=self.consensus(),
            live_neighbours=peer.live_neighbours,
            ticks=peer.ticks,
            seconds=self.seconds,
            messages_sent=self._sent,
            bytes_sent=self._bytes_sent,
            messages_received=self._received,
            bytes_received=self._bytes_received,
            refused=self._refused + self.transport.refused,
            stale=peer.traffic.refused,
            stop_reason=self.stop_reason,
            history=list(self._history),
        )

    def consensus(self) -> float:
        """How far the own model is from the mean of the newest of all members, by the length of that."""
        models = [snapshot.model for snapshot in self.peer.table.latest(Snapshot)]
        if not models:
            return math.inf
        mean = np.mean(models, axis=0)
        return float(np.linalg.norm(self.peer.algorithm.model - mean)) / (float(np.linalg.norm(mean)) or 1.0)

    def row(self) -> HistoryRow:
        """The figures of this tick."""
        bounds = (math.nan, math.nan) if self.proof is None else self.proof.worst
        return HistoryRow(
            self.peer.ticks, self.seconds, self.gap, self.consensus(), self._sent, self._bytes_sent, *bounds
        )

    def _note(self) -> None:
        row = self.row()
        if self._history and self._history[-1].tick == row.tick:
            self._history.pop()
        self._history.append(row)
        if len(self._history) > _HISTORY_ROWS:
            self._history, self._history_ticks = self._history[::2], 2 * self._history_ticks

    # -- when it is over ---------------------------------------------------------------------------------------------

    def _verdict(self) -> str | None:
        limits, peer = self.limits, self.peer
        self._look_whether_done()
        if peer.ticks >= self._ends_at:
            return "gap"
        if self._n_ticks >= limits.max_ticks:
            return "max_ticks" if self._final is None else "gap"
        if self.seconds >= limits.max_time:
            return "max_time" if self._final is None else "gap"
        return None

    def _look_whether_done(self) -> None:
        """Keep what there is once all members are done; end some ticks after the neighbours know."""
        peer, proof = self.peer, self.peer.proof
        if self._final is not None and not peer.table.members <= self._final.members:
            self._final, self._done_at, self._ends_at = None, math.inf, math.inf  # somebody has come
        if self._final is None:
            if not self._are_all_done():
                return
            self._final, self._done_at = proof, peer.ticks
        elif proof is not None and proof.members == self._final.members:
            self._final = proof
        if self._done.issuperset(peer.live_neighbours):
            self._ends_at = min(self._ends_at, peer.ticks + _FAREWELL)
        elif peer.ticks - self._done_at >= _LONGEST_FAREWELL:
            self._ends_at = peer.ticks

    def _are_all_done(self) -> bool:
        limits, table, proof = self.limits, self.peer.table, self.peer.proof
        self._has_met |= len(table.members) >= limits.at_least or self.seconds > limits.grace
        if not self._has_met or proof is None or proof.worst.relative > limits.tol:
            return False
        return all(snapshot.gap <= limits.tol for snapshot in table.latest(Snapshot))

    def _is_idle(self) -> bool:
        """Whether there is nothing to do but to wait for a first neighbour."""
        return not self.peer.neighbours and not self._has_met and self.gap <= max(self.limits.tol, _AS_GOOD_AS_NONE)

    # -- bytes in and out --------------------------------------------------------------------------------------------

    def _write(self, messages: list[tuple[int, Message]]) -> None:
        mark = b"\x01" if self._final is not None else b"\x00"
        for to, message in messages:
            data = mark + encode(message)
            self._sent += 1
            self._bytes_sent += len(data)
            self.transport.send(to, data)

    def _listen(self) -> None:
        """Take in what comes until the next tick is due."""
        # Where a tick is long here, it may be so elsewhere.
        longest = max(self.limits.silence / LETTERS_OF_SILENCE, 2 * min(self._worked))
        while True:
            # Who has not met the others yet has time.
            is_hurried = self._has_met or self.peer.live_neighbours
            pace = self.limits.pace if is_hurried else max(self.limits.pace, _PACE_ALONE)
            earliest = self._ticked + pace
            latest = max(earliest, self._ticked + longest)
            now = time.monotonic()
            until = earliest if now < earliest else latest if self._is_someone_behind() else now
            self._take(self.transport.receive(max(0.0, until - now)))
            now = time.monotonic()
            if now >= latest or (now >= earliest and not self._is_someone_behind()):
                return

    def _is_someone_behind(self) -> bool:
        """Whether a neighbour that is there has some ticks still to do."""
        peer = self.peer
        gone = self.transport.gone()
        return any(
            self._wrote - peer.tick_heard(j) > _SLACK * peer.ticks_between_letters(j)
            for j in peer.live_neighbours
            if j not in gone
        )

    def _take(self, batch: list[bytes]) -> None:
        for newcomer in self.transport.newcomers():
            self.peer.meet(newcomer)
        for data in batch:
            message = self._read(data)
            if message is not None:
                self.peer.receive(message)

    def _read(self, data: bytes) -> Message | None:
        """A message of a neighbour, or None."""
        try:
            if data[:1] not in (b"\x00", b"\x01"):
                raise BadMessage("A message begins with 0, or 1 if its sender is done.")
            message = decode(data[1:], self._form, self._limit_bytes)
            if message.sender not in self.peer.neighbours:
                raise BadMessage(f"{message.sender} is no neighbour.")
        except BadMessage:
            self._refused += 1
            return None
        self._received += 1
        self._bytes_received += len(data)
        (self._done.add if data[0] else self._done.discard)(message.sender)
        return message


@dataclass(frozen=True)
class PeerRun:
    """A peer from its rows to its last report, as an engine starts it: ``begin(number, rows)`` makes it."""

    begin: Callable[[int, Any], Peer]
    limits: Limits

    def __call__(
        self, number: int, rows: Any, transport: Transport, watch: Callable[[PeerLoop], Any] | None = None
    ) -> Report:
        return PeerLoop(self.begin(number, rows), transport, self.limits, watch).run()

    def figures(self, loop: PeerLoop) -> dict[str, float]:
        """What is told of a peer on its way: plain numbers."""
        row = loop.row()
        return {**row._asdict(), "members": len(loop.peer.table.members), "neighbours": len(loop.peer.live_neighbours)}
