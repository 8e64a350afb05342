"""A peer: rows that stay here, a model, neighbours to write to. It has no clock and no wire; whoever runs it has them.

    tick      forget neighbours that are silent, work on the own rows, say what is due, write letters
    receive   take in a letter, and records of others that come with it

The same peer runs in a simulation, on a Dask worker and on its own in a shell. A letter is not acknowledged; records
are, and go again where they were lost (``delivery``). Peers need not start together or be equally fast: who hears of a
later time than its own goes on from there, so that snapshots of one time can be laid side by side. Silence is measured
by the own work.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

from widemargin.peers.claims import (
    KEPT,
    KINDS,
    NUMBERS_PER_LIFE,
    Claims,
    Examiner,
    Portrait,
    Proof,
    Proposal,
    Record,
    Snapshot,
    Verdict,
    is_finite,
    life_of,
    n_bytes_of,
    tick_of,
)
from widemargin.peers.delivery import Delivery
from widemargin.peers.protocol import Algorithm, Message, Traffic
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

LETTERS_OF_SILENCE = 12  # that should have come, and have not, from a neighbour that is then taken for gone
_PROBE = 10  # ticks between letters to a neighbour that is silent
_INTERVAL = 4  # ticks between two snapshots, at least
_EPOCH = 64  # ticks, after twice as many of which they are taken half as often
_MANY = 16  # peers, among which what all must hear is said seldomer
_OVERDUE = 3  # ticks after which records that nobody confirmed are sent again
_BIRTHS = 1 << 62


@dataclass
class Peer:
    """One peer of a network; ``neighbours`` are those it may write to, whether they are there or not."""

    number: int
    problem: MeanHinge
    algorithm: Algorithm
    neighbours: list[int]
    fan_out: int
    rng: np.random.Generator
    life: int = 0
    examiner: Examiner = field(default_factory=Examiner)  # that peers of one process may share
    ticks: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    table: Claims = field(init=False)
    delivery: Delivery = field(init=False)
    _worked: int = 0  # ticks that were worked, which are fewer than those that passed for who comes late or was idle
    _heard: dict[int, int] = field(default_factory=dict)  # how many when it came, while the neighbour is not silent
    _birth: int = field(init=False)  # of the rows as they are here
    _proposed: int = -1  # tick of the snapshots last proposed
    _period_shown: int = -1  # tick of the last snapshot
    _is_news: bool = True  # whether neighbours have come or gone since the last snapshot
    _n_in_metric: int = 0  # portraits that the metric is made of
    _has_new_portraits: bool = False
    _members_seen: frozenset[int] | None = None  # when the metric was last looked at

    def __post_init__(self) -> None:
        self.table = Claims(self.number, self.problem)
        self.delivery = Delivery(self.table.newest, {j: {} for j in self.neighbours})
        self._birth = self._new_birth()
        self._show_portrait()

    # -- what a peer can say at any time -----------------------------------------------------------------------------

    @property
    def model(self) -> np.ndarray:
        """The best certified model, or the latest before there is one."""
        return self.algorithm.model if self.proof is None else self.proof.model

    @property
    def proof(self) -> Proof | None:
        """How good it is, for the network as it is now."""
        best = self.table.best
        return best if best is not None and best.members is self.table.members else None

    @property
    def live_neighbours(self) -> list[int]:
        """Those that have been heard, and not too long ago."""
        return [j for j in self.neighbours if j in self._heard]

    def tick_heard(self, neighbour: int) -> int:
        """The tick in which a neighbour wrote the newest of its letters that came."""
        return tick_of(self.delivery.heard_of(neighbour)[0])

    # -- ticks and messages ------------------------------------------------------------------------------------------

    def tick(self) -> list[tuple[int, Message]]:
        """Work for one tick; messages to neighbours."""
        self.ticks += 1
        self._worked += 1
        for silent in [j for j, at in self._heard.items() if self._worked - at > self._patience_with(j)]:
            self._forget(silent)
        self._use_news_of_features()
        self.algorithm.work()
        if self._has_waited() and (self._is_news or self._is_snapshot_due()):
            self._take_snapshot()
        self._propose()
        self._judge()
        self.table.prove()
        return [(to, self._message(to)) for to in self._addressees()]

    def receive(self, message: Message) -> None:
        """Take in a message; a letter that is stale, or a message that is malformed or of a stranger, is counted."""
        sender = message.sender
        if sender not in self.neighbours or not self._is_sound(message):
            self.traffic.refused += 1
            return
        self.traffic.messages_received += 1
        self.traffic.bytes_received += message.n_bytes
        moment = self._own_moment()
        if self.delivery.begins_anew(sender, message.number):
            self._forget(sender)  # what it thought before does not bind it
        is_new = self.delivery.note(sender, message.number)
        # Who comes late, or was idle, keeps the time of others, and its next tick is that of the sender: one more, and
        # time would run faster with every hop.
        self.ticks = max(self.ticks, tick_of(message.number) - 1)
        for record in message.records:  # which are good however late
            if record.peer == self.number:
                self._hear_of_oneself(record)
                continue
            if isinstance(record, Snapshot) and self._begins_anew(record):
                self.delivery.owe_everything_to(record.peer)
            if self.table.take(record):
                self._spread(record, self.examiner.size_of(record, self.algorithm.model, moment), not_to=sender)
            elif self.table.newest[type(record)][record.peer].number == record.number:
                self.delivery.is_known_to(sender, record)
        if not is_new:
            self.traffic.refused += 1
            return
        self.delivery.confirm(sender, message.heard, message.heard_before)
        self._is_news |= sender not in self._heard
        self._heard[sender] = self._worked
        self.algorithm.hear(sender, message.letter)

    def gain(self, rows: PeerRows) -> None:
        """Rows have arrived here; ValueError, and nothing has happened, where they cannot be taken in."""
        self.algorithm.gain(rows)
        self._birth = self._new_birth()
        self._show_portrait()
        self._is_news, self.table.best = True, None

    def meet(self, neighbour: int) -> None:
        """Another peer may be written to from now on."""
        if neighbour not in self.neighbours:
            self.neighbours.append(neighbour)
            self.delivery.owe_everything_to(neighbour)

    def _is_sound(self, message: Message) -> bool:
        """Whether what is in a message is what it should be; of records, in those that are news."""
        if message.number <= 0 or not is_finite(message.letter, self.algorithm.letter_shape):
            return False
        moment = self._own_moment()
        for record in message.records:
            if type(record) not in KINDS:
                return False
            known = self.table.newest[type(record)].get(record.peer)
            is_news = known is None or known.number < record.number
            if is_news and self.examiner.size_of(record, self.algorithm.model, moment) < 0:
                return False
        return True

    def _new_birth(self) -> int:
        """A mark of the rows, by chance; also where chance is the same as in a former run, and rows are not."""
        rows = self.algorithm.rows
        return int(self.rng.integers(_BIRTHS)) ^ zlib.crc32(rows.pull(rows.weight).tobytes())

    def _begins_anew(self, snapshot: Snapshot) -> bool:
        """Whether a neighbour has other rows than before: it may have been started again, and know nobody."""
        known = self.table.newest[Snapshot].get(snapshot.peer)
        is_other = known is not None and known.number < snapshot.number and known.birth != snapshot.birth
        return is_other and snapshot.peer in self.neighbours

    def _hear_of_oneself(self, record: Record) -> None:
        """What was said here, in this life or in a former one, or by who was here before in the same life.

        Numbers go on after all of this life; and if others know other features, they are told again.
        """
        if life_of(record.number) != self.life:
            return
        self.ticks = max(self.ticks, tick_of(record.number))
        own = self.table.newest[Portrait].get(self.number)
        if own is None or not isinstance(record, Portrait):
            return
        if record.number >= own.number and not np.array_equal(record.moment, own.moment):
            self.ticks = max(self.ticks, tick_of(record.number) + 1)
            self._show_portrait()

    def _own_moment(self) -> np.ndarray | None:
        portrait = self.table.newest[Portrait].get(self.number)
        return None if portrait is None else portrait.moment

    # -- neighbours --------------------------------------------------------------------------------------------------

    def ticks_between_letters(self, neighbour: int) -> float:
        """How long a neighbour takes to write to all those whom it hears: to each in turn, on average.

        By what it last said of itself; before it has, by the own number of neighbours. In a star, whose leaves have one
        neighbour each, that is little beside what the hub needs.
        """
        snapshot = self.table.newest[Snapshot].get(neighbour)
        degree = len(self.neighbours if snapshot is None else snapshot.neighbours)
        return max(1.0, degree / self.fan_out)

    def _patience_with(self, neighbour: int) -> float:
        """Ticks without a letter after which a neighbour counts as gone."""
        return LETTERS_OF_SILENCE * self.ticks_between_letters(neighbour)

    @property
    def _is_beginning(self) -> bool:
        """Whether neighbours that were never heard may be about to come: each has been written to a few times only."""
        return self._worked <= LETTERS_OF_SILENCE * max(1.0, len(self.neighbours) / self.fan_out)

    def _has_waited(self) -> bool:
        """Whether all neighbours have been heard, or had time enough: who speaks before names too small a network."""
        return len(self._heard) == len(self.neighbours) or not self._is_beginning

    def _forget(self, neighbour: int) -> None:
        self._heard.pop(neighbour, None)
        self.delivery.owe_everything_to(neighbour)
        self.algorithm.lose(neighbour)
        self._is_news = True

    def _addressees(self) -> list[int]:
        """Some neighbours by chance; those that are silent are tried now and then."""
        live = self.neighbours if self._is_beginning else self.live_neighbours
        chosen = live
        if len(live) > self.fan_out:
            chosen = [live[k] for k in self.rng.choice(len(live), self.fan_out, replace=False)]
        silent = [j for j in self.neighbours if j not in live]
        if silent and self._worked % _PROBE == 0:
            chosen = [*chosen, silent[(self._worked // _PROBE) % len(silent)]]
        return chosen

    def _message(self, to: int) -> Message:
        """The letter, and records that the neighbour lacks, as far as is known."""
        overdue = self._number - _OVERDUE * max(1, len(self.neighbours) // self.fan_out)
        records, n_bytes = self.delivery.parcel(to, self._number, overdue)
        letter = self.algorithm.letter(to)
        n_bytes += 32 + letter.nbytes
        self.traffic.messages_sent += 1
        self.traffic.bytes_sent += n_bytes
        return Message(self.number, self._number, letter, records, *self.delivery.heard_of(to), n_bytes)

    # -- what all are told -------------------------------------------------------------------------------------------

    @property
    def _number(self) -> int:
        """Of whatever is said in this tick."""
        return self.life * NUMBERS_PER_LIFE + self.ticks + 1

    def _interval(self) -> int:
        """Ticks between snapshots: the same for all, and rarer where there are many peers.

        Also with time since anyone came, left or got rows: a proof is then late by a share of the ticks that were
        needed for it, and no more after a long life than after a short one. That better gaps are certified does not
        count: they come with every snapshot.
        """
        epochs = self.ticks // _EPOCH - self.table.changed_at // _EPOCH
        return _INTERVAL << max(1, epochs, len(self.table.members) // _MANY).bit_length() - 1

    @property
    def _period(self) -> int:
        """The last tick at which all who are on time take a snapshot."""
        return self.ticks - self.ticks % self._interval()

    def _is_snapshot_due(self) -> bool:
        """Once in a period, and not while someone is still unknown: nothing could be proved with it."""
        return self._period > self._period_shown and self.table.is_network_known

    def _say(self, record: Record) -> None:
        self.table.take(record)
        self._spread(record, n_bytes_of(record))

    def _spread(self, record: Record, n_bytes: int, not_to: int | None = None) -> None:
        self._has_new_portraits |= isinstance(record, Portrait)
        self.delivery.spread(record, n_bytes, not_to)

    def _use_news_of_features(self) -> None:
        """Make the metric anew when twice as many peers have told of their features, or all that are there.

        Those who have left stay in it: a metric need not be that of the rows, and must be the same for all.
        """
        members, told = self.table.members, self.table.newest[Portrait]
        if self._has_new_portraits or members is not self._members_seen:
            self._members_seen = members
            if len(told) >= 2 * self._n_in_metric or members <= told.keys():
                self.algorithm.adopt([told[peer] for peer in sorted(told)])
                self._n_in_metric, self._has_new_portraits = len(told), False

    def _show_portrait(self) -> None:
        portrait = self.algorithm.portrait(self.number, self._number)
        if portrait is not None:
            self._say(portrait)

    def _take_snapshot(self) -> None:
        suggestions = [snapshot.stiffness for snapshot in self.table.latest(Snapshot) if snapshot.total > 0]
        if suggestions:
            self.algorithm.agree(float(np.exp(np.mean(np.log(suggestions)))))
        if self._is_news:
            self.table.changed_at = self.ticks  # as others will know when they read this
        mass, pull = self.algorithm.bounds()
        proof, period = self.proof, self._period
        snapshot = Snapshot(
            peer=self.number,
            number=self._number,
            tick=period,
            neighbours=np.array(self.live_neighbours, dtype=np.int64),
            birth=self._birth,
            total=self.algorithm.rows.total,
            mass=mass,
            pull=pull,
            model=self.algorithm.model.copy(),
            stiffness=self.algorithm.suggest(),
            gap=np.inf if proof is None else proof.worst.relative,
        )
        self._say(snapshot)
        self._is_news, self._period_shown = False, period

    def _propose(self) -> None:
        """If it is the own turn, propose the mean of all models of one tick; or of the newest, where ticks differ."""
        if self.table.proposer != self.number or not self.table.is_network_known:
            return
        tick = self.table.common_tick()
        is_early = tick == 0 and len(self.table.members) >= _MANY  # of no use yet, and costly to judge
        if tick is not None and tick > self._proposed and not is_early:
            snapshots = [self.table.snapshots[tick][peer] for peer in sorted(self.table.members)]
        elif self.ticks - self._proposed > 4 * self._interval():
            snapshots, tick = self.table.latest(Snapshot), self.ticks
        else:
            return
        weights = np.array([snapshot.total for snapshot in snapshots])
        if not weights.any():
            return
        models = np.array([snapshot.model for snapshot in snapshots])
        self._say(Proposal(self.number, self._number, np.tensordot(weights / weights.sum(), models, axes=1)))
        self._proposed = tick

    def _judge(self) -> None:
        """Say what the last proposals cost the own rows."""
        proposals = self.table.to_judge()
        own = self.table.newest[Verdict].get(self.number)
        known: dict[int, np.ndarray] = {}
        if own is not None and proposals and own.proposer == proposals[0][0] and own.birth == self._birth:
            known = dict(zip(own.judged.tolist(), own.costs, strict=True))
        new = [key for key in proposals if key[1] not in known]
        if not new:
            return
        costs = self.algorithm.rows.hinge_sums(np.array([self.table.proposals[key] for key in new]))
        known |= {key[1]: cost for key, cost in zip(new, costs, strict=True)}
        numbers = sorted(known, reverse=True)[:KEPT]
        judged = np.array([known[number] for number in numbers])
        total = self.algorithm.rows.total
        self._say(
            Verdict(self.number, self._number, new[0][0], self._birth, total, np.array(numbers, np.int64), judged)
        )
