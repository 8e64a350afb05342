"""Track which records each neighbour still lacks, on a network that loses messages.

A new record is queued for all neighbours except the one that sent it, and goes with the next message. Every message
acknowledges the messages received from its addressee: the number of the newest, and a bit for each of those before. A
record is queued again if its message was lost or not acknowledged in time, unless a newer record has replaced it. So
each record crosses each edge about once. Answers to a query are sent until all answers to it are known, even if newer
ones exist: half of the answers of one round and half of the next would prove nothing to a neighbour that rarely gets
messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from widemargin.peers.records import Record, incarnation_of
from widemargin.peers.store import HANDLE, is_last
from widemargin.peers.table import RecordTable

WINDOW = 60  # messages that can be acknowledged
_ALL_BITS = (1 << WINDOW) - 1
_RECORD_BYTES = 1 << 22  # in one message; a longer record goes alone
_NOTHING = np.zeros(0, HANDLE)


@dataclass(eq=False)
class Delivery:
    """What the neighbours of one peer lack, and what came from them, as handles and keys of its table's records."""

    table: RecordTable
    pending: dict[int, list[np.ndarray]]  # what to send to each neighbour, in order; some records are there twice
    _unconfirmed: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)  # handles sent to each, by message
    _window: dict[int, tuple[int, int]] = field(default_factory=dict)  # newest message of each, and bits before

    def __post_init__(self) -> None:
        self.table.store.add_user(self)

    def handles_in_use(self) -> Iterator[np.ndarray]:
        for sent in self._unconfirmed.values():
            yield from sent.values()
        for pending in self.pending.values():
            yield from pending

    def queue(self, handles: np.ndarray, not_to: int | None = None) -> None:
        """Send records to all neighbours, or to all but one."""
        for neighbour, pending in self.pending.items():
            if neighbour != not_to:
                pending.append(handles)

    def queue_for(self, neighbour: int, handles: np.ndarray) -> None:
        """Send records to one neighbour."""
        if neighbour in self.pending:
            self.pending[neighbour].append(handles)

    def queue_all_for(self, neighbour: int) -> None:
        """Send everything to a neighbour that is new or may have restarted."""
        self._unconfirmed.pop(neighbour, None)
        self.pending[neighbour] = [self.table.all_handles()]

    def remove(self, neighbour: int) -> None:
        """Forget a neighbour."""
        for known in (self.pending, self._unconfirmed, self._window):
            known.pop(neighbour, None)

    def mark_known(self, neighbour: int, keys: np.ndarray) -> None:
        """A neighbour has sent these records itself; it may have been excluded by one of them."""
        if self.pending.get(neighbour) and len(keys):
            pending = _joined(self.pending[neighbour])
            pending_keys = self.table.store.keys[pending]
            is_known = np.zeros(max(pending_keys.max(), keys.max()) + 1, dtype=bool)
            is_known[keys] = True
            left = pending[~is_known[pending_keys]]
            self.pending[neighbour] = [left] if len(left) else []

    def lacking(self, neighbour: int) -> list[Record]:
        """The records to send to a neighbour."""
        return self.table.store.records(self.table.current(_distinct(self.pending[neighbour])))

    def records_for(self, to: int, number: int, overdue: int) -> tuple[np.ndarray, int]:
        """Records for the message of this number, and their bytes; records sent before ``overdue`` are sent again."""
        for late in [sent for sent in self._unconfirmed.get(to, ()) if sent < overdue]:
            self._queue_again(to, late)
        if not self.pending[to]:
            return _NOTHING, 0
        handles = self.table.current(_distinct(self.pending[to]))
        if not len(handles):
            self.pending[to] = []
            return _NOTHING, 0
        n_bytes = np.cumsum(self.table.store.sizes[handles])
        n = max(1, int(np.searchsorted(n_bytes, _RECORD_BYTES, side="right")))
        self.pending[to] = [handles[n:]] if n < len(handles) else []
        self._unconfirmed.setdefault(to, {})[number] = handles[:n]
        return handles[:n], int(n_bytes[min(n, len(handles)) - 1])

    def acknowledge(self, to: int, ack: int, ack_bits: int) -> None:
        """Forget records that have arrived; queue again those of messages that were lost or overtaken."""
        for number in [number for number in self._unconfirmed.get(to, ()) if number <= ack]:
            age = ack - number - 1
            if age < 0 or (age < WINDOW and ack_bits >> age & 1):
                del self._unconfirmed[to][number]
            else:
                self._queue_again(to, number)

    def _queue_again(self, to: int, number: int) -> None:
        handles = self.table.current(self._unconfirmed[to].pop(number))
        if len(handles):
            self.pending[to].append(handles)

    def received_from(self, sender: int) -> tuple[int, int]:
        """The number of a neighbour's newest message, 0 for none; bit k: whether number - k - 1 came, too."""
        return self._window.get(sender, (0, 0))

    def has_restarted(self, sender: int, number: int) -> bool:
        """Whether this message is of a later incarnation of its sender than those before."""
        last, _ = self.received_from(sender)
        return bool(last) and incarnation_of(number) > incarnation_of(last)

    def forget_messages_of(self, sender: int) -> None:
        """Take the next message of a sender for its first."""
        self._window.pop(sender, None)

    def is_of_earlier_life(self, sender: int, number: int) -> bool:
        """Whether this message is of an earlier incarnation of its sender than one before."""
        return incarnation_of(number) < incarnation_of(self.received_from(sender)[0])

    def mark_received(self, sender: int, number: int) -> bool:
        """Note a received message; return whether it is newer than all before."""
        last, bits = (0, 0) if self.has_restarted(sender, number) else self.received_from(sender)
        ahead = number - last
        if ahead <= 0:
            if 0 < -ahead <= WINDOW:
                self._window[sender] = last, bits | 1 << (-ahead - 1)
            return False
        bits = ((bits << ahead) | (1 << (ahead - 1))) & _ALL_BITS if last and ahead <= WINDOW else 0
        self._window[sender] = number, bits
        return True


def _joined(pending: list[np.ndarray]) -> np.ndarray:
    return pending[0] if len(pending) == 1 else np.concatenate(pending)


def _distinct(pending: list[np.ndarray]) -> np.ndarray:
    """All handles once, where they are first."""
    if not pending:
        return _NOTHING
    handles = _joined(pending)
    return handles if len(pending) == 1 else handles[::-1][is_last(handles[::-1])][::-1]
