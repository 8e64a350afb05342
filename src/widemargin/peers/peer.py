"""A peer: its own rows, a model, and neighbours. It has no clock and no network; whoever runs it provides both.

    tick      drop neighbours that are silent, work on the own rows, send records that are due, write messages
    receive   take in a message, and the records of other peers that come with it

The same peer runs in a simulation, on a Dask worker and in a shell. Records in a message are acknowledged, and sent
again if they were lost (``delivery``); the payload is not. Peers need not start together or be equally fast: a peer
that hears of a later tick than its own continues from there, so that snapshots of the same tick can be compared.
Silence is measured in the peer's own ticks of work.
"""

import logging
import zlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from widemargin.peers import cutting_planes, records
from widemargin.peers.claims import Claims, contradiction
from widemargin.peers.collected import News
from widemargin.peers.cutting_planes import Cut
from widemargin.peers.delivery import Delivery
from widemargin.peers.proofs import Proof
from widemargin.peers.protocol import Algorithm, Message, Notary, Traffic
from widemargin.peers.records import (
    KINDS,
    Accusation,
    Answer,
    Digest,
    HingeCosts,
    Moments,
    Proposal,
    Query,
    Record,
    Snapshot,
    Statement,
)
from widemargin.peers.rows import PeerRows
from widemargin.peers.store import CODES, HANDLE, N_KINDS, NONE, Batch, Members, RecordStore, is_last
from widemargin.peers.table import RecordTable
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate

MAX_MISSED_MESSAGES = 12  # of a neighbour, before it counts as gone
_STARTING_TICKS = 4 * MAX_MISSED_MESSAGES  # at least, until neighbours that were not heard yet count as gone
_PROBE_TICKS = 10  # between messages to a silent neighbour
_SNAPSHOT_TICKS = 4  # between two snapshots, at least
_DOUBLING_TICKS = 64  # snapshots become half as frequent after two of these, after four, and so on
_MANY_PEERS = 16  # from which snapshots are rarer: half as frequent with twice as many peers
_FEWER_SNAPSHOTS = 64  # times at most, for that
_OVERDUE_TICKS = 3  # after which unacknowledged records are sent again
_DATA_VERSIONS = 1 << 62
_MOST_ALIKE = 64  # records of one kind by one peer in a message: several answers, and one of each other kind
_TOLERATED_TICKS = 100_000  # beyond the highest to which this peer lets itself be advanced
_LOG = logging.getLogger("widemargin.peers")


@dataclass
class Peer:
    """One peer; ``neighbours`` are those it may write to, whether they are there or not."""

    number: int
    problem: MeanHinge
    algorithm: Algorithm
    neighbours: list[int]
    fan_out: int
    rng: np.random.Generator
    incarnation: int = 0
    store: RecordStore = field(default_factory=RecordStore)  # peers of one process may share it
    claims: Claims | None = None  # checks what members say; members that contradict themselves are excluded
    notary: Notary | None = None  # signs records, and checks the signatures of others
    highest_tick: int = records.LAST_TICK  # that a network can have reached by now
    too_far_ahead: dict[int, int] = field(default_factory=dict)  # ticks of messages and records beyond that, by member
    ticks: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    n_stale: int = 0  # messages among those refused that only came after newer ones
    table: RecordTable = field(init=False)
    delivery: Delivery = field(init=False)
    evidence: dict[int, tuple[Statement, ...]] = field(default_factory=dict)  # of each member that was proved to lie
    is_accused: bool = False  # by records of its own that contradict each other: its number is used twice
    _worked: int = 0  # ticks of work; fewer than ``ticks`` for a peer that came late or was idle
    _heard: dict[int, int] = field(default_factory=dict)  # value of ``_worked`` at each live neighbour's last message
    _data_version: int = field(init=False)
    _proposed: int = -1  # tick of the snapshots last proposed
    _asked: int = 0  # tick of the last query
    _order: dict[int, float] = field(default_factory=dict)  # of neighbours, at random, if there are many
    _turns: dict[int, float] = field(default_factory=dict)  # ``_worked`` at the last message to each of many
    _partners: list[int] = field(default_factory=list)  # neighbours that this peer writes to regularly
    _unaware: set[int] = field(default_factory=set)  # neighbours whose numbers begin below those of an earlier process
    _named: list[int] = field(default_factory=list)  # neighbours in the last snapshot
    _snapshot_period: int = -1  # period of the last snapshot
    _has_changed: bool = True  # whether the rows or live neighbours have, since the last snapshot
    _own_moment: np.ndarray | None = None  # None if the algorithm has no metric
    _n_in_metric: int = 0  # peers whose moments are in the metric
    _has_new_moments: bool = False
    _metric_members: Members | None = None  # when the metric was last updated

    def __post_init__(self) -> None:
        self.table = RecordTable(self.number, self.problem, self.store)
        self.delivery = Delivery(self.table, {j: [] for j in self.neighbours})
        if len(self.neighbours) > self.fan_out:
            self._order = dict(zip(self.neighbours, self.rng.random(len(self.neighbours)).tolist(), strict=True))
            self._turns = dict(self._order)
        self._data_version = self._new_data_version()
        self._announce_moments()

    @property
    def model(self) -> np.ndarray:
        """The best certified model, or the latest before there is one."""
        return self.algorithm.model if self.proof is None else self.proof.model

    @property
    def proof(self) -> Proof | None:
        """Of the model, for the current members."""
        best = self.table.best
        return best if best is not None and best.members is self.table.members else None

    @property
    def live_neighbours(self) -> list[int]:
        """Neighbours that sent a message recently."""
        return [j for j in self.neighbours if j in self._heard]

    def tick_heard(self, neighbour: int) -> int:
        """The tick in which a neighbour sent its newest message."""
        return records.tick_of(self.delivery.received_from(neighbour)[0])

    # -- ticks and messages ------------------------------------------------------------------------------------------

    def tick(self) -> list[tuple[int, Message]]:
        """Work for one tick; messages to neighbours."""
        self.store.sweep()
        self.ticks += 1
        self._worked += 1
        late = [(j, self._worked - at) for j, at in self._heard.items() if self._worked - at > MAX_MISSED_MESSAGES]
        for silent in [j for j, ticks in late if ticks > MAX_MISSED_MESSAGES * self.ticks_between_messages(j)]:
            self._drop(silent)
        self._forget_departed()
        self._update_metric()
        self.algorithm.work()
        self._partners = self._find_partners()
        self._has_changed |= self._named != self._partners
        if self._worked > 1 and (self._has_changed or self._is_snapshot_due()):
            self._take_snapshot()
        self._propose()
        self._cost_proposals()
        self.table.prove()
        if self.algorithm.has_cuts:
            self._query()
            self._answer()
        addressees = self._addressees()
        self.algorithm.divide_among(addressees)
        return [(to, self._message(to)) for to in addressees]

    def receive(self, message: Message) -> None:
        """Take in a message; one that is stale, malformed or from a stranger is counted and refused."""
        sender = message.sender
        is_expected = sender in self.neighbours and not self._is_too_far_ahead(sender, message.number)
        if not is_expected or not self._is_sound(message):
            self.traffic.refused += 1
            return
        self.traffic.messages_received += 1
        self.traffic.bytes_received += message.n_bytes
        if self.delivery.has_restarted(sender, message.number):
            self._drop(sender)
        is_new = self.delivery.mark_received(sender, message.number)
        # A late or idle peer catches up to the tick before the sender's: one more, and time would run faster with
        # every hop.
        self.ticks = max(self.ticks, min(records.tick_of(message.number), self.highest_tick) - 1)
        self._take_records(sender, self._handles_of(message))  # also those of a stale message
        if sender in self.table.excluded:  # by its own records
            return
        if not is_new:
            self.traffic.refused += 1
            self.n_stale += 1
            if self.delivery.is_of_earlier_life(sender, message.number):
                self._unaware.add(sender)
            return
        self.delivery.acknowledge(sender, message.ack, message.ack_bits)
        self._heard[sender] = self._worked
        self.algorithm.receive(sender, message.payload)

    def _handles_of(self, message: Message) -> np.ndarray:
        """The records of a message that are newer than the ones known, or the same."""
        batch, store = message.records, self.store
        if isinstance(batch, Batch) and batch.store is store:
            return batch.handles
        handles = []
        for record in batch:
            known = self.table.newest[type(record)].get(record.peer)
            if isinstance(record, Accusation):
                is_taken = record.peer in self.table.excluded or self._is_proved(record)
            else:  # the signature of one that is older than the known one was not checked: it blames nobody
                is_taken = not self._is_other_version(record) and (
                    known is None
                    or known.number == record.number
                    or (known.number < record.number and not self._is_too_far_ahead(record.peer, record.number))
                )
            if is_taken:
                handles.append(store.put(record if known is None or known.number != record.number else known))
            elif known is not None and records.incarnation_of(known.number) > records.incarnation_of(record.number):
                self.delivery.queue_for(message.sender, np.array([store.put(known)], HANDLE))
        return np.array(handles, HANDLE)

    def _take_records(self, sender: int, handles: np.ndarray) -> None:
        store = self.store
        if sender in self.table.excluded:
            return
        is_accusation = store.keys[handles] % N_KINDS == CODES[Accusation]
        for handle in handles[is_accusation].tolist():
            self._hear_accusation(store.record(handle), sender)
        handles = handles[~is_accusation]
        if not len(handles) or sender in self.table.excluded:
            return
        is_newest = is_last(store.keys[handles])
        if not is_newest.all():  # answers to one query, and to the next
            self._take_records(sender, handles[~is_newest])
            handles = handles[is_newest]
        slots = store.keys[handles] // N_KINDS
        is_taken = slots != store.slot_of(self.number)
        for handle in handles[~is_taken].tolist():
            self._receive_own(store.record(handle))
        for excluded in self.table.excluded:
            is_taken &= slots != store.slot_of(excluded)
        news = self.table.take_all(handles if is_taken.all() else handles[is_taken])
        keys = store.keys[news.handles]
        self.delivery.mark_known(sender, np.concatenate([news.known, keys]))
        for neighbour in self._restarted_neighbours(news):
            self.delivery.queue_all_for(neighbour)
        honest = news.handles
        if self.claims is not None:
            lies = [self._is_lie(store.record(handle)) for handle in honest.tolist()]
            honest = honest[~np.array(lies, dtype=bool)]
        if len(honest):
            self._has_new_moments |= bool((keys % N_KINDS == CODES[Moments]).any())
            self.delivery.queue(honest, not_to=sender)

    def add_rows(self, rows: PeerRows) -> None:
        """Add rows; raises ValueError, and changes nothing, if they cannot be added."""
        self.algorithm.add_rows(rows)
        self._data_version = self._new_data_version()
        self._announce_moments()
        self._has_changed, self.table.best = True, None

    def add_neighbour(self, neighbour: int) -> None:
        if neighbour not in self.neighbours and neighbour not in self.table.excluded:
            self.neighbours.append(neighbour)
            self.delivery.queue_all_for(neighbour)

    def exclude(self, number: int) -> None:
        """Continue without a member that was proved to lie or was revoked, as if it had never been there.

        Forget and refuse its records, also those that others pass on, and drop it as a neighbour. Forget the best
        proof, which counts its rows. Excluding a member twice changes nothing.
        """
        if number == self.number:
            raise ValueError(f"Peer {number} cannot exclude itself: only others can.")
        if number in self.table.excluded:
            return
        self.table.exclude(number)
        self.delivery.remove(number)
        if number in self.neighbours:
            self.neighbours.remove(number)
        self._heard.pop(number, None)
        self.algorithm.drop_neighbour(number)
        self.algorithm.restart()
        # Its moments leave the metric, a new proposer begins at once, and all say whom they still hear.
        self._n_in_metric, self._metric_members, self._proposed = 0, None, -1
        self._has_new_moments = self._has_changed = True

    def is_convicted(self, member: int) -> bool:
        """Whether a member is excluded because its records contradict each other."""
        return member in self.table.newest[Accusation]

    def remove_neighbour(self, neighbour: int) -> None:
        """Stop writing to a neighbour, and forget what it was sent; its records stay."""
        self._drop(neighbour)
        self.neighbours.remove(neighbour)
        self.delivery.remove(neighbour)

    def _is_sound(self, message: Message) -> bool:
        """Whether the payload and all new records of a message have the right shapes and finite numbers."""
        if message.number <= 0 or not records.is_finite(message.payload, self.algorithm.payload_shape):
            return False
        batch, shapes = message.records, (self.algorithm.model, self._own_moment)
        if isinstance(batch, Batch) and batch.store is self.store:
            return self.store.is_sound_for(batch.handles, *shapes)
        if not all(type(record) in KINDS for record in batch):
            return False
        alike = Counter((type(record), record.peer) for record in batch)
        return max(alike.values(), default=0) <= _MOST_ALIKE and all(map(self._is_known_or_sound, batch))

    def _is_known_or_sound(self, record: Record) -> bool:
        known = self.table.newest[type(record)].get(record.peer)
        if record.peer in self.table.excluded or (known is not None and known.number >= record.number):
            return True
        if self.store.size_of(record, self.algorithm.model, self._own_moment) < 0:
            return False
        # Evidence is checked when it is heard: not all who pass it on can check it.
        return self.notary is None or isinstance(record, Accusation) or self.notary.is_valid(record)

    def _is_too_far_ahead(self, member: int, number: int) -> bool:
        """Whether a member names a tick far beyond what the network can have reached; if so, it is noted."""
        tick = records.tick_of(number)
        is_too_far = tick > self.highest_tick + _TOLERATED_TICKS
        if is_too_far:
            self.too_far_ahead[member] = tick
        return is_too_far

    def _new_data_version(self) -> int:
        """A random number combined with a checksum of the rows, as a seed may be used again with other rows."""
        rows = self.algorithm.rows
        return int(self.rng.integers(_DATA_VERSIONS)) ^ zlib.crc32(rows.combine(rows.weight).tobytes())

    def _restarted_neighbours(self, news: News) -> list[int]:
        """Neighbours with other rows than before: they may have restarted, and then lack all records."""
        rows, peers = self.store.rows, self.store.peers
        keys = self.store.keys[news.handles]
        is_other = (news.before != NONE) & (rows[news.handles] != rows[news.before])
        slots = keys[is_other & (keys % N_KINDS == CODES[Snapshot])] // N_KINDS
        return [peer for peer in peers[slots].tolist() if peer in self.neighbours]

    def _receive_own(self, record: Record) -> None:
        """A record under this peer's own number, sent by itself or by a process that had the number before.

        Numbers continue after all of this incarnation. If others know other moments, they are sent again. If others
        remember a later incarnation, which those that this process asked had forgotten, it begins the next one. A
        member with keys counts its starts by itself.
        """
        incarnation = records.incarnation_of(record.number)
        if incarnation > self.incarnation and self.notary is None:
            self._begin_incarnation(incarnation + 1)
        if incarnation != self.incarnation:
            return
        self.ticks = max(self.ticks, records.tick_of(record.number))
        own = self.table.newest[Moments].get(self.number)
        if own is None or not isinstance(record, Moments):
            return
        if record.number >= own.number and not np.array_equal(record.moment, own.moment):
            self.ticks = max(self.ticks, records.tick_of(record.number) + 1)
            self._announce_moments()

    def _begin_incarnation(self, incarnation: int) -> None:
        """Send all own records again, with numbers above those that others remember; neighbours will begin anew."""
        if incarnation >= records.MOST_INCARNATIONS:
            return
        self.incarnation = incarnation
        for neighbour in self.live_neighbours:
            self._drop(neighbour)
        self.algorithm.restart()
        for kind in (Moments, Snapshot, HingeCosts, Answer):
            own = self.table.newest[kind].get(self.number)
            if own is not None:
                self._announce(own._replace(number=self._number))
        self._proposed, self._asked = -1, 0

    def ticks_between_messages(self, neighbour: int) -> float:
        """Mean number of ticks between two messages of a neighbour, by the degree in its newest snapshot.

        Before there is a snapshot, use the number of neighbours that are heard here. The hub of a star rarely writes to
        each leaf.
        """
        degree = self.table.degree_of(neighbour)
        return max(1.0, (len(self._heard) if degree is None else degree) / self.fan_out)

    @property
    def _is_starting(self) -> bool:
        """Whether neighbours that were not heard yet may still be starting."""
        return self._worked <= max(_STARTING_TICKS, MAX_MISSED_MESSAGES * len(self._partners_at_first) / self.fan_out)

    @property
    def _partners_at_first(self) -> list[int]:
        """Neighbours that this peer writes to even if it does not hear from them: all, or a random few of many."""
        n = max(2, self.fan_out)
        if len(self.neighbours) <= 2 * n:
            return self.neighbours
        chosen = set(sorted(self.neighbours, key=lambda j: self._order.get(j, 0.0))[:n])
        return [j for j in self.neighbours if j in chosen]

    def _find_partners(self) -> list[int]:
        """Neighbours that this peer writes to regularly, and expects to hear from.

        In a complete graph, using all edges brings no more messages than using a few, and older ones. So a peer with
        many neighbours begins with a few of them, and with those that write to it. An edge that neither end has chosen
        is idle.
        """
        return sorted(self._heard.keys() | self._partners_at_first) if self._is_starting else sorted(self._heard)

    def _drop(self, neighbour: int) -> None:
        self._heard.pop(neighbour, None)
        self.delivery.queue_all_for(neighbour)
        self.algorithm.drop_neighbour(neighbour)
        self._has_changed = True

    def _addressees(self) -> list[int]:
        """The partners whose turn it is, and sometimes one that is silent or that could connect two networks.

        If there are many partners, ``fan_out`` of them have their turn. Partners with fewer neighbours than ``fan_out``
        write to all of these in every tick, and get an answer in every tick: otherwise the leaves of a star would wait
        for the hub.
        """
        partners = self._partners
        chosen = partners
        if len(partners) > self.fan_out:
            few = [j for j in partners if (self.table.degree_of(j) or self.fan_out) < self.fan_out]
            others = sorted(set(partners).difference(few), key=lambda j: self._turns.get(j, 0.0))
            self._turns.update(dict.fromkeys(others[: self.fan_out], float(self._worked)))
            chosen = few + others[: self.fan_out]
        if self._worked % _PROBE_TICKS == 0 and len(partners) < len(self.neighbours):
            members = self.table.members if self.table.is_network_known else ()
            silent = [j for j in self.neighbours if j not in partners and j not in members]
            if silent:
                chosen = [*chosen, silent[(self._worked // _PROBE_TICKS) % len(silent)]]
        chosen = [*chosen, *sorted(self._unaware.intersection(self.neighbours).difference(chosen))]
        self._unaware.clear()
        return chosen

    def _message(self, to: int) -> Message:
        period = max(self.ticks_between_messages(to), len(self._partners) / self.fan_out)
        handles, n_bytes = self.delivery.records_for(to, self._number, self._number - _OVERDUE_TICKS * int(period))
        payload = self.algorithm.payload(to)
        n_bytes += 32 + payload.nbytes
        self.traffic.messages_sent += 1
        self.traffic.bytes_sent += n_bytes
        lacking = Batch(self.store, handles) if len(handles) else ()
        return Message(self.number, self._number, payload, lacking, *self.delivery.received_from(to), n_bytes)

    # -- own records -------------------------------------------------------------------------------------------------

    @property
    def _number(self) -> int:
        """Of all records and messages of this tick."""
        return self.incarnation * records.NUMBERS_PER_INCARNATION + self.ticks + 1

    def _snapshot_interval(self) -> int:
        """Ticks between snapshots, the same for all peers: longer in large networks.

        Longer also with the time since any peer's rows or neighbours changed: a proof is then late by a constant share
        of the ticks it needed.
        """
        doublings = self.ticks // _DOUBLING_TICKS - self.table.changed_at // _DOUBLING_TICKS
        for_size = min(len(self.table.membership) // _MANY_PEERS, _FEWER_SNAPSHOTS)
        return _SNAPSHOT_TICKS << max(1, doublings, for_size).bit_length() - 1

    @property
    def _period(self) -> int:
        """The last tick at which all peers that are on time take a snapshot."""
        return self.ticks - self.ticks % self._snapshot_interval()

    def _is_snapshot_due(self) -> bool:
        """Once in a period, and only when all members are known: without them nothing can be proved."""
        return self._period > self._snapshot_period and self.table.is_network_known

    def _is_lie(self, record: Statement) -> bool:
        """Whether a record proves that its or another peer lies about its rows; that peer is excluded."""
        if self.claims is None or record.peer in self.table.excluded:
            return record.peer in self.table.excluded
        found = self.claims.check(record)
        liar = None if found is None else contradiction(found, self.claims.caps)
        if found is None or liar is None or liar == self.number:
            return False
        self._convict(liar, found)
        return liar == record.peer

    def _is_other_version(self, record: Record) -> bool:
        """Whether its peer has said something else under the same number; that peer is excluded."""
        if self.claims is None or isinstance(record, Accusation) or record.peer == self.number:
            return False
        both = self.claims.other_version(record)
        if both is None or (self.notary is not None and not self.notary.is_valid(record)):
            return False
        self._convict(record.peer, both)
        return True

    def _hear_accusation(self, accusation: Accusation, sender: int) -> None:
        """Exclude the accused if the evidence is sound: nobody's word is taken for it."""
        accused = accusation.peer
        if accused in self.table.excluded:
            self.delivery.mark_known(sender, np.array([self.store.key_of(Accusation, accused)]))
        elif self._is_proved(accusation):
            if accused == self.number:
                self.is_accused = True
            else:
                self._convict(accused, accusation.evidence)

    def _is_proved(self, accusation: Accusation) -> bool:
        """Whether the accused has signed the evidence, and it contradicts itself."""
        if self.claims is None or contradiction(accusation.evidence, self.claims.caps) != accusation.peer:
            return False
        return self.notary is None or self.notary.is_valid(accusation)

    def _convict(self, liar: int, evidence: tuple[Statement, ...]) -> None:
        """Exclude a member whose records contradict each other, and show them to all."""
        assert self.claims is not None
        self.evidence[liar] = evidence
        self.claims.forget(liar)
        self.exclude(liar)
        accusation = self.store.put(Accusation(liar, 1, evidence), self.algorithm.model, self._own_moment)
        self.table.take_all(np.array([accusation], HANDLE))
        self.delivery.queue(np.array([accusation], HANDLE))
        _LOG.warning("Peer %d is excluded: its records contradict each other.", liar)

    def _forget_departed(self) -> None:
        """Forget the records of peers that left long ago, if there are many: a network may run for days."""
        for departed in self.table.forget_departed(self.ticks):
            self.delivery.forget_messages_of(departed)  # it is new if it returns
            self._has_new_moments = True  # the metric of all is without its moments from now on

    def _announce(self, record: Statement) -> None:
        record = record if self.notary is None else self.notary.signed(record)
        handle = self.store.put(record, self.algorithm.model, self._own_moment)
        self.table.take_all(np.array([handle], HANDLE))
        self._is_lie(record)  # or lets a loss be checked that was stated for this proposal or query
        self._has_new_moments |= isinstance(record, Moments)
        self.delivery.queue(np.array([handle], HANDLE))

    def _update_metric(self) -> None:
        """Make the metric again when all members have announced their moments, or twice as many of a few.

        Peers that have left stay in it: the metric must be the same for all, and need not be of the current rows.
        """
        members = self.table.membership
        if self._has_new_moments or members is not self._metric_members:
            self._metric_members = members
            n_known, are_all_there = len(self.table.newest[Moments]), self.table.is_network_known
            if 2 * self._n_in_metric <= n_known <= _MANY_PEERS or (are_all_there and self.table.has_all(Moments)):
                handles = self.table.known_of(Moments)
                self.algorithm.set_metric(self.store.once("metric", handles, self.algorithm.metric_of))
                self._n_in_metric, self._has_new_moments = n_known, False

    def _announce_moments(self) -> None:
        known = self.table.newest[Moments].get(self.number)
        if known is not None and known.number >= self._number:
            self.ticks += 1  # no two records under one number
        moments = self.algorithm.moments(self.number, self._number)
        if moments is not None:
            self._own_moment = moments.moment
            self._announce(moments)

    def _take_snapshot(self) -> None:
        suggestions = self.store.rhos[self.table.latest_handles(Snapshot)]
        if (suggestions > 0).any():
            self.algorithm.set_rho(float(np.exp(np.median(np.log(suggestions[suggestions > 0])))))
        if self._has_changed:
            self.table.changed_at = self.ticks  # as it will be at all who receive this snapshot
        proof, period = self.proof, self._period
        snapshot = Snapshot(
            peer=self.number,
            number=self._number,
            tick=period,
            neighbours=np.array(self._partners, dtype=np.int64),
            data_version=self._data_version,
            total=self.algorithm.rows.total,
            dual=self.algorithm.bounds(),
            model=self.algorithm.model.copy(),
            rho=self.algorithm.suggest_rho(),
            gap=np.inf if proof is None else proof.worst.relative,
            is_stuck=proof is not None and proof.is_stuck,
        )
        self._announce(snapshot)
        self._has_changed, self._snapshot_period, self._named = False, period, self._partners

    def _propose(self) -> None:
        """As the proposer, propose the mean of the models of one tick, or of the newest models if ticks differ."""
        if self.table.proposer != self.number or not self.table.is_network_known:
            return
        tick = self.table.common_tick()
        is_early = tick == 0 and len(self.table.membership) >= _MANY_PEERS  # useless yet, and costly to evaluate
        if tick is not None and tick > self._proposed and not is_early:
            snapshots = self.table.snapshots_of(tick)
        elif self.ticks - self._proposed > 4 * self._snapshot_interval():
            snapshots, tick = self.table.latest(Snapshot), self.ticks
        else:
            return
        weights = np.array([snapshot.total for snapshot in snapshots])
        if not weights.any():
            return
        models = np.array([snapshot.model for snapshot in snapshots])
        self._announce(Proposal(self.number, self._number, np.tensordot(weights / weights.sum(), models, axes=1)))
        self._proposed = tick

    def _cost_proposals(self) -> None:
        current = self.table.current_proposals()
        own = self.table.newest[HingeCosts].get(self.number)
        known: dict[int, tuple[np.ndarray, Digest]] = {}  # costs and digests, by number
        if own is not None and current and own.proposer == current[0][0] and own.data_version == self._data_version:
            each = own.proposals.tolist(), own.costs, own.digests.tolist()
            known = {number: (cost, digest) for number, cost, digest in zip(*each, strict=True)}
        new = [key for key in current if key[1] not in known]
        if not new:
            return
        rows = self.algorithm.rows
        sums, _ = rows.hinge_sums(np.array([self.table.proposals[key] for key in new]))
        known |= {number: (cost, digest) for (_, number, digest), cost in zip(new, sums, strict=True)}
        numbers = sorted(known, reverse=True)[: records.KEPT]
        costs, digests = zip(*(known[number] for number in numbers), strict=True)
        costed = np.array(numbers, np.int64), np.array(costs), np.array(digests, np.int64)
        self._announce(HingeCosts(self.number, self._number, new[0][0], self._data_version, rows.total, *costed))

    def _query(self) -> None:
        """As the proposer, ask for cuts once all have answered the last query, or do not any more."""
        table = self.table
        is_over = self.proof is not None and self.proof.is_stuck
        if table.proposer != self.number or not table.is_network_known or is_over:
            return
        last = table.last_query(self.number)
        is_overdue = self.ticks - self._asked > 4 * self._snapshot_interval()
        if last is not None and not table.is_answered(*last) and not is_overdue:
            return
        cuts, total = table.cuts.of(table.members), sum(each.total for each in table.latest(Snapshot))
        if not cuts or total <= 0:
            return
        certificates = [Certificate(1.0, 0.0)] * len(self.model) if self.proof is None else self.proof.certificates
        asked = cutting_planes.ask(cuts, self.problem.alpha, total, self.model, certificates)
        self._announce(Query(self.number, self._number, *asked))
        self._asked = self.ticks

    def _answer(self) -> None:
        """Losses and cuts at the models of the newest query, and the combination of cuts that it asks for."""
        asked = self.table.last_query(self.table.proposer)
        own, rows = self.table.newest[Answer].get(self.number), self.algorithm.rows
        if asked is None or self.table.newest[Snapshot].get(self.number) is None:
            return
        query, digest = asked
        about = query.peer, query.number, self._data_version
        if own is not None and (own.proposer, own.query, own.data_version) == about:
            return
        known = self.table.cuts.own()
        mine = [k for k in np.flatnonzero(query.owners == self.number) if int(query.cuts[k]) in known]
        combined = cutting_planes.combined([known[int(query.cuts[k])] for k in mine], query.weights[mine], self.model)
        cuts = [rows.cut(rows.is_violated(model) * rows.weight) for model in query.models]
        costs = rows.hinge_sums(cutting_planes.points_of(query.models))
        stacked = Cut(*(np.array(values) for values in zip(*cuts, strict=True)))
        self._announce(Answer(self.number, self._number, *about, rows.total, *costs, combined, stacked, digest))
