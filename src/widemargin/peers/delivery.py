"""Which records each neighbour still lacks, on a network that loses messages.

A new record is queued for all neighbours but the one it came from, and goes with the next message. Every message
acknowledges those received from its addressee: the number of the newest, and a bit for each of the ones before. A
record is queued again if its message was lost or not acknowledged in time, unless a newer one has replaced it. So each
record crosses each edge about once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from widemargin.peers.records import Record, incarnation_of

WINDOW = 60  # messages that can be acknowledged
_ALL_BITS = (1 << WINDOW) - 1
_RECORD_BYTES = 1 << 22  # in one message; a longer record goes alone

Key = tuple[type, int]  # kind of record, and its peer


@dataclass
class Delivery:
    """What the neighbours of one peer lack, and what came from them; ``newest`` are the records known here."""

    newest: Mapping[type, Mapping[int, Record]]
    pending: dict[int, dict[Key, None]] = field(default_factory=dict)  # to send to each neighbour, in order
    _unconfirmed: dict[int, dict[int, list[Record]]] = field(default_factory=dict)  # sent to each, by message
    _sizes: dict[Key, int] = field(default_factory=dict)  # bytes
    _window: dict[int, tuple[int, int]] = field(default_factory=dict)  # newest message of each, and bits before

    def queue(self, record: Record, n_bytes: int, not_to: int | None = None) -> None:
        """Send a record to all neighbours, or to all but one."""
        key = type(record), record.peer
        self._sizes[key] = n_bytes
        for neighbour, pending in self.pending.items():
            if neighbour != not_to:
                pending[key] = None

    def queue_all_for(self, neighbour: int) -> None:
        """Send everything to a neighbour that is new or may have restarted."""
        self._unconfirmed.pop(neighbour, None)
        self.pending[neighbour] = {(kind, peer): None for kind, newest in self.newest.items() for peer in newest}

    def remove(self, neighbour: int) -> None:
        """Forget a neighbour."""
        for known in (self.pending, self._unconfirmed, self._window):
            known.pop(neighbour, None)

    def forget(self, peer: int) -> None:
        """Send no more records of a peer: they are not known any more."""
        for key in [key for key in self._sizes if key[1] == peer]:
            del self._sizes[key]
            for pending in self.pending.values():
                pending.pop(key, None)
        for sent in self._unconfirmed.values():
            for number, records in sent.items():
                sent[number] = [record for record in records if record.peer != peer]

    def mark_known(self, neighbour: int, record: Record) -> None:
        """A neighbour has sent this record itself."""
        self.pending[neighbour].pop((type(record), record.peer), None)

    def records_for(self, to: int, number: int, overdue: int) -> tuple[list[Record], int]:
        """Records that go with the message of this number, and their bytes; those sent before ``overdue`` go again."""
        for late in [sent for sent in self._unconfirmed.get(to, ()) if sent < overdue]:
            self._queue_again(to, late)
        pending, sizes = self.pending[to], self._sizes
        if not pending:
            return [], 0
        keys = list(pending)
        n_bytes = sum([sizes[key] for key in keys])
        while n_bytes > _RECORD_BYTES and len(keys) > 1:
            n_bytes -= sizes[keys.pop()]
        records = [self.newest[kind][peer] for kind, peer in keys]
        self._unconfirmed.setdefault(to, {})[number] = records
        self.pending[to] = dict.fromkeys(list(pending)[len(keys) :])
        return records, n_bytes

    def acknowledge(self, to: int, ack: int, ack_bits: int) -> None:
        """Forget records that have arrived; queue again those of messages that were lost or overtaken."""
        for number in [number for number in self._unconfirmed.get(to, ()) if number <= ack]:
            age = ack - number - 1
            if age < 0 or (age < WINDOW and ack_bits >> age & 1):
                del self._unconfirmed[to][number]
            else:
                self._queue_again(to, number)

    def _queue_again(self, to: int, number: int) -> None:
        for record in self._unconfirmed[to].pop(number):
            if self.newest[type(record)].get(record.peer) is record:  # neither replaced nor forgotten
                self.pending[to][type(record), record.peer] = None

    def received_from(self, sender: int) -> tuple[int, int]:
        """The number of a neighbour's newest message, 0 for none; bit k: whether number - k - 1 came, too."""
        return self._window.get(sender, (0, 0))

    def has_restarted(self, sender: int, number: int) -> bool:
        """Whether this message is of a later incarnation of its sender than those before."""
        last, _ = self.received_from(sender)
        return bool(last) and incarnation_of(number) > incarnation_of(last)

    def mark_received(self, sender: int, number: int) -> bool:
        """Note that a message came; whether it is newer than all before."""
        last, bits = (0, 0) if self.has_restarted(sender, number) else self.received_from(sender)
        ahead = number - last
        if ahead <= 0:
            if 0 < -ahead <= WINDOW:
                self._window[sender] = last, bits | 1 << (-ahead - 1)
            return False
        bits = ((bits << ahead) | (1 << (ahead - 1))) & _ALL_BITS if last and ahead <= WINDOW else 0
        self._window[sender] = number, bits
        return True
