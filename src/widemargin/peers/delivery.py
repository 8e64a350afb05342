"""Which records each neighbour still has to get, where letters get lost and nothing is acknowledged by itself.

A record that is news is owed to all neighbours but the one that it came from. It goes with the next letter, which is
confirmed in whatever the neighbour writes next: by the number of the last letter that came, and bits for those before
it. It is owed again if that letter was overtaken, or nobody has confirmed it for a while, unless there is a newer
record of its kind by then. So each crosses each edge about once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from widemargin.peers.claims import Record, life_of

WINDOW = 60  # letters that can be confirmed
_ALL_BITS = (1 << WINDOW) - 1
_RECORD_BYTES = 1 << 20  # in one message, or a single record; the others go with the next

Key = tuple[type, int]  # kind of record, and whose


@dataclass
class Delivery:
    """What neighbours of one peer have, and what has come from them; ``newest`` are the records that are known."""

    newest: Mapping[type, Mapping[int, Record]]
    pending: dict[int, dict[Key, None]] = field(default_factory=dict)  # to send to each neighbour, in order
    _unconfirmed: dict[int, dict[int, list[Record]]] = field(default_factory=dict)  # sent to each, by letter
    _sizes: dict[Key, int] = field(default_factory=dict)  # bytes
    _window: dict[int, tuple[int, int]] = field(default_factory=dict)  # last letter of each neighbour, and bits before

    # -- what goes out -----------------------------------------------------------------------------------------------

    def spread(self, record: Record, n_bytes: int, not_to: int | None = None) -> None:
        """Owe news to everybody, or to all but one."""
        key = type(record), record.peer
        self._sizes[key] = n_bytes
        for neighbour, pending in self.pending.items():
            if neighbour != not_to:
                pending[key] = None

    def owe_everything_to(self, neighbour: int) -> None:
        """As to one that is new here, or may have begun anew."""
        self._unconfirmed.pop(neighbour, None)
        self.pending[neighbour] = {(kind, peer): None for kind, newest in self.newest.items() for peer in newest}

    def is_known_to(self, neighbour: int, record: Record) -> None:
        """It wrote of this record itself."""
        self.pending[neighbour].pop((type(record), record.peer), None)

    def parcel(self, to: int, number: int, overdue: int) -> tuple[list[Record], int]:
        """Records that go with the letter of this number, and their bytes; once more what went before ``overdue``."""
        for late in [sent for sent in self._unconfirmed.get(to, ()) if sent < overdue]:
            self._owe_again(to, late)
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

    def confirm(self, to: int, heard: int, before: int) -> None:
        """Drop records that have arrived; owe again those of letters that were overtaken."""
        for number in [number for number in self._unconfirmed.get(to, ()) if number <= heard]:
            age = heard - number - 1
            has_come = age < 0 or (age < WINDOW and bool(before >> age & 1))
            if has_come:
                del self._unconfirmed[to][number]
            else:
                self._owe_again(to, number)

    def _owe_again(self, to: int, number: int) -> None:
        """The records of a letter, as far as there are no newer ones."""
        for record in self._unconfirmed[to].pop(number):
            key = type(record), record.peer
            if self.newest[key[0]][key[1]] is record:
                self.pending[to][key] = None

    # -- what has come -----------------------------------------------------------------------------------------------

    def heard_of(self, sender: int) -> tuple[int, int]:
        """The number of a neighbour's newest letter, 0 for none; bit k: the one of k + 1 numbers before it came."""
        return self._window.get(sender, (0, 0))

    def begins_anew(self, sender: int, number: int) -> bool:
        """Whether this letter is of a later life of its sender than those before."""
        last, _ = self.heard_of(sender)
        return bool(last) and life_of(number) > life_of(last)

    def note(self, sender: int, number: int) -> bool:
        """Mark a letter as heard; whether it is newer than all before."""
        last, before = (0, 0) if self.begins_anew(sender, number) else self.heard_of(sender)
        ahead = number - last
        if ahead <= 0:
            if 0 < -ahead <= WINDOW:
                self._window[sender] = last, before | 1 << (-ahead - 1)
            return False
        before = ((before << ahead) | (1 << (ahead - 1))) & _ALL_BITS if last and ahead <= WINDOW else 0
        self._window[sender] = number, before
        return True
