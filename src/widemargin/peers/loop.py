"""Run a peer in real time: tick by the clock, send and receive bytes, and decide alone when to stop.

A tick begins at least ``pace`` seconds after the last. It waits until no neighbour is more than a few ticks behind, but
at most a twelfth of ``silence``. So a dead neighbour slows the others for about ``silence`` seconds, and then counts as
gone.

A peer is done when it has certified ``tol``, or rounding keeps its gap open, and the newest snapshots of all members
state the same. It keeps that proof and continues until its neighbours are done, too, or silent: if it left earlier, it
would change the network of peers that do not know yet. If a new peer joins in the meantime, all continue.

The first byte of every message is 1 if the sender is done, else 0. Messages that are malformed, too long or from
strangers are counted and refused.

With a list of members, members may be added and revoked while the network runs. A peer cuts off a member that sends
more than is allowed, or names ticks that cannot have come yet: it ignores that member from then on. This proves nothing
to others, who judge for themselves.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from widemargin.comm.clock import SteadyClock
from widemargin.cores import one_blas_thread
from widemargin.peers.peer import MAX_MISSED_MESSAGES, Peer
from widemargin.peers.proofs import Proof
from widemargin.peers.protocol import Message, Traffic
from widemargin.peers.records import Snapshot, tick_of
from widemargin.peers.rows import PeerRows
from widemargin.peers.tick_limit import LEAST_PACE, TickLimit
from widemargin.peers.wire import BadMessage, MessageFormat, decode, encode
from widemargin.problems.protocol import Certificate

if TYPE_CHECKING:
    from widemargin.comm.members import MemberList, Membership

_MAX_TICKS_BEHIND = 3  # of a neighbour, before it is waited for
_PACE_ALONE = 0.1  # seconds
_IDLE_GAP = 1e-6  # at which a peer without neighbours stops working, whatever ``tol`` is
_FAREWELL_TICKS = 4  # after all neighbours are done: they may not know yet that this peer is
_MAX_FAREWELL_TICKS = 200  # for neighbours that send, and are not done
_MOST_SILENT = 8  # neighbours that are silent, and written to now and then
_SILENT_SECONDS = 60.0  # after which one of more than these is forgotten
_HISTORY_TICKS = 4  # between rows of the history
_MAX_HISTORY_ROWS = 4096  # beyond which every other one is dropped

Watch = Callable[["PeerLoop"], Any]


class Transport(Protocol):
    """Carries bytes between peers."""

    @property
    def refused(self) -> int:
        """Connections and messages that were refused before a peer saw them."""

    def open(self) -> None:
        """Become reachable; the loop calls this once, when it is ready."""

    def send(self, to: int, data: bytes) -> None:
        """Send to a peer if it is present; never waits and never fails."""

    def receive(self, wait: float) -> list[tuple[int | None, bytes]]:
        """The messages received within ``wait`` seconds, with their senders if connections identify them."""

    def newcomers(self) -> list[int]:
        """New neighbours since the last call: peers that introduced themselves, or that this peer should write to."""

    def gone(self) -> set[int]:
        """Neighbours whose connections are known to be closed."""

    def forget(self, number: int) -> None:
        """Stop writing to a neighbour that has been silent for long; it may introduce itself again."""

    def close(self) -> None:
        """Close all connections."""


class MemberTransport(Transport, Protocol):
    """A transport that identifies other members by their keys."""

    def offenders(self) -> dict[int, str]:
        """Members that sent too much since the last call, with the limit that each exceeded."""

    def refuse(self, number: int) -> None:
        """Neither hear a member nor write to it from now on."""


@dataclass(frozen=True)
class PeerLimits:
    """When a peer stops, and how fast it runs."""

    tol: float
    max_ticks: float = math.inf  # of work at this peer
    max_time: float = math.inf  # seconds
    pace: float = 0.02  # least seconds between ticks
    silence: float = 2.0  # seconds without a message after which a neighbour counts as gone
    at_least: int = 1  # members that the network must have had before it may be done
    grace: float = math.inf  # seconds after which it may be done with fewer


class HistoryRow(NamedTuple):
    """A peer at one tick."""

    tick: int
    seconds: float
    gap: float
    consensus: float
    messages: int  # sent
    bytes: int  # sent
    primal: float  # of the problem with the largest gap; nan before there is a proof
    dual: float


@dataclass(frozen=True)
class PeerReport:
    """The state of a peer, at any time or at the end."""

    number: int
    model: np.ndarray  # (problems, d): the best certified one, or the latest before there is one
    certificates: list[Certificate]  # of each problem; empty before there is a proof
    members: list[int]  # of the network that they are for
    total: float  # of the weights of the members' rows; 0 before there is a proof
    consensus: float  # distance of the own model to the mean of the members' newest, relative to that mean
    live_neighbours: list[int]
    ticks: int
    seconds: float
    messages_sent: int
    bytes_sent: int  # on the wire
    messages_received: int
    bytes_received: int
    refused: int  # malformed, too long or wrongly signed messages, those of strangers, and refused connections
    stale: int  # messages that came after newer ones
    # "gap", "precision", "max_ticks", "max_time", "interrupted", "revoked", "accused"; None while it runs
    stop_reason: str | None
    history: list[HistoryRow] = field(repr=False)
    rows: dict[int, float] = field(default_factory=dict)  # of each member, as it states them: they add up to ``total``

    @property
    def certificate(self) -> Certificate | None:
        return max(self.certificates, key=lambda each: each.relative, default=None)

    @property
    def gap(self) -> float:
        """The certified relative gap; infinite without a certificate."""
        return math.inf if self.certificate is None else self.certificate.relative


class PeerLoop:
    """Runs one peer over one transport; ``watch(loop)`` is called after every tick and stops it by returning True.

    ``clock`` may jump: a step back delays nothing, and a step forward only counts towards ``max_time`` and ``grace``.
    ``membership`` is the list of members, if there is one; the transport must know them. ``tick`` is the tick that the
    network had reached when this peer joined.
    """

    def __init__(
        self,
        peer: Peer,
        transport: Transport,
        limits: PeerLimits,
        watch: Watch | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        membership: "Membership | None" = None,
        tick: int = 0,
    ) -> None:
        self.peer, self.transport, self.limits = peer, transport, limits
        self.cut_off: dict[int, str] = {}  # members that this peer does not hear any more, and why
        self._membership = membership
        self._members: MemberList | None = None  # the list that was followed last
        self._clock = SteadyClock(clock)
        self.stop_reason: str | None = None
        self._watch, self._format = watch, MessageFormat.of(peer)
        self._limit_bytes = self._format.limit_bytes
        self._began = self._ticked = self._clock()
        self._tick_limit = None if membership is None else TickLimit(tick, self._began)
        self._work_seconds: deque[float] = deque([0.0], maxlen=3)  # of the last ticks
        self._n_ticks = 0  # of work here
        self._wrote = 0  # tick of the last messages; the peer's own may have been advanced by others since
        self._traffic = Traffic()  # on the wire
        self._done: set[int] = set()  # neighbours that are done
        self._final: Proof | None = None  # kept once all members are done
        self._final_rows: dict[int, float] = {}  # that it is for; a member may return with others
        self._done_at = self._ends_at = math.inf  # ticks
        self._silent: dict[int, float] = {}  # neighbours that are silent, and since when
        self._has_met = False  # whether the network has had ``at_least`` members
        self._history: list[HistoryRow] = []
        self._history_ticks = _HISTORY_TICKS

    @one_blas_thread()
    def run(self) -> PeerReport:
        """Tick until a reason to stop; closes the transport in any case."""
        try:
            self.peer.algorithm.work()  # the first call loads compiled code, which takes long: nobody waits for it yet
            self._follow_members()
            self.transport.open()
            self._began = self._clock()
            while True:
                self._ticked = self._clock()
                if not self._is_idle():
                    self._write(self.peer.tick())
                    self._n_ticks += 1
                self._work_seconds.append(self._clock() - self._ticked)
                self._wrote = self.peer.ticks
                self._forget_silent()
                self._follow_members()
                if self.peer.ticks % self._history_ticks == 0:
                    self._note()
                self.stop_reason = self._reason_to_stop()
                if self._watch is not None and self._watch(self) and self.stop_reason is None:
                    self.stop_reason = "interrupted"
                if self.stop_reason is not None:
                    break
                self._listen()
        finally:
            self.transport.close()
        self._note()
        return self.report()

    @property
    def proof(self) -> Proof | None:
        """The best proof; once the network was done, the one it had then."""
        return self.peer.proof if self._final is None else self._final

    @property
    def gap(self) -> float:
        """The certified relative gap; infinite without a proof."""
        return math.inf if self.proof is None else self.proof.worst.relative

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def silence(self) -> dict[int, float]:
        """Neighbours that are silent, and for how many seconds they have been."""
        now = self._clock()
        return {j: now - since for j, since in self._silent.items()}

    def report(self) -> PeerReport:
        peer, proof = self.peer, self.proof
        refused = self._traffic.refused + self.transport.refused + peer.traffic.refused - peer.n_stale
        return PeerReport(
            number=peer.number,
            model=np.array(peer.algorithm.model if proof is None else proof.model),
            certificates=[] if proof is None else list(proof.certificates),
            members=sorted(peer.table.members if proof is None else proof.members),
            total=0.0 if proof is None else proof.total,
            consensus=self.consensus(),
            live_neighbours=peer.live_neighbours,
            ticks=peer.ticks,
            seconds=self.seconds,
            **asdict(replace(self._traffic, refused=refused)),
            stale=peer.n_stale,
            stop_reason=self.stop_reason,
            history=list(self._history),
            rows=self._stated_rows() if self._final is None else self._final_rows,
        )

    def consensus(self) -> float:
        """Distance of the own model to the mean of the members' newest models, relative to that mean."""
        models = [snapshot.model for snapshot in self.peer.table.latest(Snapshot)]
        if not models:
            return math.inf
        mean = np.mean(models, axis=0)
        return float(np.linalg.norm(self.peer.algorithm.model - mean)) / (float(np.linalg.norm(mean)) or 1.0)

    def row(self) -> HistoryRow:
        bounds = (math.nan, math.nan) if self.proof is None else self.proof.worst
        traffic = self._traffic.messages_sent, self._traffic.bytes_sent
        return HistoryRow(self.peer.ticks, self.seconds, self.gap, self.consensus(), *traffic, *bounds)

    def _note(self) -> None:
        row = self.row()
        if self._history and self._history[-1].tick == row.tick:
            self._history.pop()
        self._history.append(row)
        if len(self._history) > _MAX_HISTORY_ROWS:
            self._history, self._history_ticks = self._history[::2], 2 * self._history_ticks

    def _reason_to_stop(self) -> str | None:
        self._update_done()
        done = "gap" if self.gap <= self.limits.tol else "precision"
        if self._is_revoked():
            return "revoked"
        if self.peer.is_accused:
            return "accused"
        if self.peer.ticks >= self._ends_at:
            return done
        if self._n_ticks >= self.limits.max_ticks:
            return "max_ticks" if self._final is None else done
        if self.seconds >= self.limits.max_time:
            return "max_time" if self._final is None else done
        return None

    def _update_done(self) -> None:
        """Keep the proof once all members are done; stop some ticks after the neighbours know."""
        peer, proof = self.peer, self.peer.proof
        final, excluded = self._final, peer.table.excluded
        if final is not None and (not peer.table.members <= final.members or not excluded.isdisjoint(final.members)):
            self._final, self._done_at, self._ends_at = None, math.inf, math.inf  # a peer has joined, or is excluded
        if self._final is None:
            if not self._are_all_done():
                return
            self._final, self._final_rows, self._done_at = proof, self._stated_rows(), peer.ticks
        elif proof is not None and proof.members == self._final.members:
            self._final, self._final_rows = proof, self._stated_rows()
        if self._done.issuperset(peer.live_neighbours):
            self._ends_at = min(self._ends_at, peer.ticks + _FAREWELL_TICKS)
        elif peer.ticks - self._done_at >= _MAX_FAREWELL_TICKS:
            self._ends_at = peer.ticks

    def _stated_rows(self) -> dict[int, float]:
        """The weights of the members' rows, by their newest snapshots."""
        return {snapshot.peer: snapshot.total for snapshot in self.peer.table.latest(Snapshot)}

    def _are_all_done(self) -> bool:
        limits, table, proof = self.limits, self.peer.table, self.peer.proof
        # A member whose lies are proved was there, even if its exclusion came with its first records.
        n_met = len(table.members | self.peer.evidence.keys())
        self._has_met |= n_met >= limits.at_least or self.seconds > limits.grace
        if not self._has_met or proof is None or not (proof.worst.relative <= limits.tol or proof.is_stuck):
            return False
        return all(snapshot.gap <= limits.tol or snapshot.is_stuck for snapshot in table.latest(Snapshot))

    def _is_idle(self) -> bool:
        """Whether there is nothing to do but wait for a first neighbour."""
        return not self.peer.neighbours and not self._has_met and self.gap <= max(self.limits.tol, _IDLE_GAP)

    def _write(self, messages: list[tuple[int, Message]]) -> None:
        flag = b"\x01" if self._final is not None else b"\x00"
        for to, message in messages:
            data = flag + encode(message)
            self._traffic.messages_sent += 1
            self._traffic.bytes_sent += len(data)
            self.transport.send(to, data)

    def _listen(self) -> None:
        # If ticks are long here, they may be so elsewhere.
        longest = max(self.limits.silence / MAX_MISSED_MESSAGES, 2 * min(self._work_seconds))
        while True:
            has_others = self._has_met or self.peer.live_neighbours
            pace = self.limits.pace if has_others else max(self.limits.pace, _PACE_ALONE)
            pace = pace if self._membership is None else max(pace, LEAST_PACE)
            earliest = self._ticked + pace
            latest = max(earliest, self._ticked + longest)
            now = self._clock()
            until = earliest if now < earliest else latest if self._is_neighbour_behind() else now
            self._take(self.transport.receive(max(0.0, until - now)))
            now = self._clock()
            if now >= latest or (now >= earliest and not self._is_neighbour_behind()):
                return

    def _is_neighbour_behind(self) -> bool:
        peer, gone = self.peer, self.transport.gone()
        return any(
            self._wrote - peer.tick_heard(j) > _MAX_TICKS_BEHIND * peer.ticks_between_messages(j)
            for j in peer.live_neighbours
            if j not in gone
        )

    def _forget_silent(self) -> None:
        """Forget the neighbours that have been silent longest, if there are many: over days, most peers leave."""
        live, now = set(self.peer.live_neighbours), self._clock()
        self._silent = {j: self._silent.get(j, now) for j in self.peer.neighbours if j not in live}
        for j in sorted(self._silent, key=self._silent.__getitem__)[: max(0, len(self._silent) - _MOST_SILENT)]:
            if self._silent[j] < now - _SILENT_SECONDS:
                self.peer.remove_neighbour(j)
                self.transport.forget(j)
                self._done.discard(j)

    # -- members that are known by their keys --------------------------------------------------------------------------

    def _follow_members(self) -> None:
        """Exclude members that a newer list has revoked, and follow its caps."""
        if self._membership is None or self._membership.newest is self._members:
            return
        newest = self._members = self._membership.newest
        if self.peer.claims is not None:
            self.peer.claims.caps = newest.caps
        for number in newest.members.keys() - newest.active.keys() - self.peer.table.excluded - {self.peer.number}:
            self.peer.exclude(number)
            self.transport.forget(number)

    def _is_revoked(self) -> bool:
        return self._members is not None and self.peer.number not in self._members.active

    def _cut_off_offenders(self) -> None:
        """Cut off members that send too much, or name ticks that cannot have come yet."""
        transport = cast("MemberTransport", self.transport)
        found, ahead, limit = transport.offenders(), self.peer.too_far_ahead, self._tick_limit
        if limit is not None and limit.can_judge():
            found |= {number: f"names tick {tick:,}, which cannot have come yet" for number, tick in ahead.items()}
        ahead.clear()
        for number, why in found.items():
            self.cut_off[number] = why
            transport.refuse(number)
            if limit is not None:
                limit.forget(number)
            if number in self.peer.neighbours:
                self.peer.remove_neighbour(number)

    def _take(self, batch: list[tuple[int | None, bytes]]) -> None:
        for newcomer in self.transport.newcomers():
            self.peer.add_neighbour(newcomer)
        now = self._clock()
        for message in filter(None, map(self._read, batch)):
            if self._tick_limit is not None:
                self._tick_limit.note(message.sender, tick_of(message.number), now)
                self.peer.highest_tick = self._tick_limit.highest(now)
            self.peer.receive(message)
        if self._membership is not None:
            self._cut_off_offenders()

    def _read(self, received: tuple[int | None, bytes]) -> Message | None:
        sender, data = received
        try:
            if data[:1] not in (b"\x00", b"\x01"):
                raise BadMessage("A message begins with 1 if its sender is done, else with 0.")
            message = decode(data[1:], self._format, self._limit_bytes)
            if sender is not None and message.sender != sender:
                raise BadMessage(f"{sender} writes as {message.sender}.")
            if message.sender not in self.peer.neighbours:
                raise BadMessage(f"{message.sender} is not a neighbour.")
        except BadMessage:
            self._traffic.refused += 1
            return None
        self._traffic.messages_received += 1
        self._traffic.bytes_received += len(data)
        (self._done.add if data[0] else self._done.discard)(message.sender)
        return message


@dataclass(frozen=True)
class PeerRun:
    """A peer from its rows to its final report, for engines to start; ``begin(number, rows)`` makes the peer."""

    begin: Callable[[int, PeerRows], Peer]
    limits: PeerLimits

    def __call__(self, number: int, rows: PeerRows, transport: Transport, watch: Watch | None = None) -> PeerReport:
        return PeerLoop(self.begin(number, rows), transport, self.limits, watch).run()

    def figures(self, loop: PeerLoop) -> dict[str, float]:
        """The figures of a running peer as plain numbers."""
        row = loop.row()
        return {**row._asdict(), "members": len(loop.peer.table.members), "neighbours": len(loop.peer.live_neighbours)}
