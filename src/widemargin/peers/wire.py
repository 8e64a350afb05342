"""Messages as bytes: what a peer writes to another, and how bytes of unknown origin become a message or are refused.

    magic "WMPR" | version | number of records | shape of the letter | sender | number | heard | heard before
    letter: float64
    each record: kind | count | peer | number, then its own numbers

All is little-endian and of lengths that follow from the form of a network, which all its peers share. Nothing is
unpickled, and nothing is allocated before its bytes are known to be there: a message takes no more in memory than on
the wire. Numbers must be finite and so small that their squares are; losses and weights must not be negative. What is
checked is form: whoever holds the secret of a network is believed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from widemargin.comm.protocol import HIGHEST_NUMBER
from widemargin.peers.claims import KEPT, KINDS, Portrait, Proposal, Record, Snapshot, Verdict, n_bytes_of
from widemargin.peers.delivery import WINDOW
from widemargin.peers.peer import Peer
from widemargin.peers.protocol import Message

_MAGIC = b"WMPR"
_VERSION = 2
_HEADER = struct.Struct("<4sB3xI3Iqqqq")
_RECORD = struct.Struct("<B3xIqq")
_PORTRAIT = struct.Struct("<d")
_SNAPSHOT = struct.Struct("<qqddd")
_VERDICT = struct.Struct("<qqd")
_FLOAT, _SINGLE, _INTEGER = np.dtype("<f8"), np.dtype("<f4"), np.dtype("<i8")
_LARGEST = 1e100  # whose square, and sums of such, are finite
_LEAST_LIMIT = 1 << 26
_PEERS_AT_ONCE = 64  # whose records fit into one message, however long they are


class BadMessage(ValueError):
    """These bytes are no message of this network."""


@dataclass(frozen=True)
class Form:
    """What all messages of a network have in common; ``n_moments`` is 0 where peers show no portraits."""

    n_problems: int
    n_features: int
    letter: tuple[int, ...]  # its shape
    n_moments: int  # numbers in a portrait

    @classmethod
    def of(cls, peer: Peer) -> Form:
        """The form of what a peer writes."""
        portrait = peer.table.newest[Portrait].get(peer.number)
        n_moments = 0 if portrait is None else len(portrait.moment)
        n_problems, n_features = peer.algorithm.model.shape
        return cls(n_problems, n_features, peer.algorithm.letter_shape, n_moments)

    @property
    def limit_bytes(self) -> int:
        """The longest message worth reading: the records of many peers at once."""
        of_one = 4 * self.n_moments + 8 * (3 * self.n_problems * self.n_features + (KEPT + 2) * self.n_problems + 64)
        return max(_LEAST_LIMIT, 8 * math.prod(self.letter) + _PEERS_AT_ONCE * of_one)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    parts = [
        _HEADER.pack(
            _MAGIC,
            _VERSION,
            len(message.records),
            *_three(message.letter.shape),
            message.sender,
            message.number,
            message.heard,
            message.heard_before,
        ),
        _raw(message.letter, _FLOAT),
    ]
    for record in message.records:
        parts.extend(_encoded(record))
    return b"".join(parts)


def decode(data: bytes, form: Form, limit_bytes: int) -> Message:
    """The message in some bytes; :class:`BadMessage` where there is none."""
    if len(data) > limit_bytes:
        raise BadMessage(f"A message of {len(data)} bytes is too long: at most {limit_bytes} are read.")
    reader = _Reader(data)
    magic, version, n_records, *shape, sender, number, heard, before = reader.numbers(_HEADER)
    if magic != _MAGIC:
        raise BadMessage("These bytes do not begin as a message of a peer does.")
    if version != _VERSION:
        raise BadMessage(f"The message is of version {version}; this peer understands version {_VERSION}.")
    if shape != _three(form.letter):
        raise BadMessage(f"The message has a letter of shape {shape}; in this network it is {list(form.letter)}.")
    _check_peer(sender)
    _check_number(number)
    _check(heard >= 0 and 0 <= before < 1 << WINDOW, "The message confirms letters that cannot be.")
    letter = reader.array(_FLOAT, form.letter)
    records = [_read_record(reader, form) for _ in range(n_records)]
    _check(reader.n_left == 0, f"The message has {reader.n_left} bytes too many.")
    n_bytes = 32 + letter.nbytes + sum(n_bytes_of(record) for record in records)
    return Message(sender, number, letter, records, heard, before, n_bytes)


def _encoded(record: Record) -> Iterator[bytes]:
    kind, count = KINDS.index(type(record)), _count(record)
    yield _RECORD.pack(kind, count, record.peer, record.number)
    match record:
        case Portrait():
            yield _PORTRAIT.pack(record.total)
            yield _raw(record.moment, _SINGLE)
        case Snapshot():
            yield _SNAPSHOT.pack(record.tick, record.birth, record.total, record.stiffness, record.gap)
            yield _raw(record.neighbours, _INTEGER)
            yield from (_raw(values, _FLOAT) for values in (record.mass, record.pull, record.model))
        case Proposal():
            yield _raw(record.model, _FLOAT)
        case Verdict():
            yield _VERDICT.pack(record.proposer, record.birth, record.total)
            yield _raw(record.judged, _INTEGER)
            yield _raw(record.costs, _FLOAT)


def _count(record: Record) -> int:
    """Of what a record has a number of its own."""
    if isinstance(record, Snapshot):
        return len(record.neighbours)
    return len(record.judged) if isinstance(record, Verdict) else 0


def _three(shape: tuple[int, ...]) -> list[int]:
    """A shape of up to three numbers, with zeros before."""
    return [*([0] * (3 - len(shape))), *shape]


def _raw(values: np.ndarray, dtype: np.dtype) -> bytes:
    return np.ascontiguousarray(values, dtype=dtype).tobytes()


def _read_record(reader: _Reader, form: Form) -> Record:
    kind, count, peer, number = reader.numbers(_RECORD)
    _check(kind < len(KINDS), f"There is no record of kind {kind}.")
    _check_peer(peer)
    _check_number(number)
    model = form.n_problems, form.n_features
    if kind == KINDS.index(Portrait):
        (total,) = reader.numbers(_PORTRAIT)
        _check(form.n_moments > 0, "Peers of this network show no portraits.")
        _check_total(total)
        return Portrait(peer, number, total, reader.array(_SINGLE, (form.n_moments,)))
    if kind == KINDS.index(Proposal):
        return Proposal(peer, number, reader.array(_FLOAT, model))
    if kind == KINDS.index(Verdict):
        proposer, birth, total = reader.numbers(_VERDICT)
        _check_peer(proposer)
        _check_total(total)
        _check(1 <= count <= KEPT, f"A verdict is on {count} proposals; it must be on 1 to {KEPT}.")
        judged = reader.array(_INTEGER, (count,))
        _check(bool(judged.min() > 0), "A verdict is on a proposal without a number.")
        costs = reader.array(_FLOAT, (count, form.n_problems))
        _check(bool(costs.min() >= 0), "A verdict names a negative loss.")
        return Verdict(peer, number, proposer, birth, total, judged, costs)
    tick, birth, total, stiffness, gap = reader.numbers(_SNAPSHOT)
    _check(0 <= tick < HIGHEST_NUMBER, f"There is no tick {tick}.")
    _check_total(total)
    _check(1 / _LARGEST < stiffness < _LARGEST, "A snapshot suggests a stiffness that is not positive and finite.")
    _check(gap >= 0, "A snapshot names a gap that is no number, or negative.")
    neighbours = reader.array(_INTEGER, (count,))
    strange = count > 0 and not (neighbours.min() >= 0 and neighbours.max() < HIGHEST_NUMBER)
    _check(not strange, f"A snapshot names neighbours outside 0 to {HIGHEST_NUMBER - 1}.")
    mass = reader.array(_FLOAT, (form.n_problems,))
    _check(bool(mass.min() >= 0 and mass.max() <= total * (1 + 1e-9)), "A snapshot has more mass than rows.")
    pull, own = reader.array(_FLOAT, model), reader.array(_FLOAT, model)
    return Snapshot(peer, number, tick, neighbours, birth, total, mass, pull, own, stiffness, gap)


class _Reader:
    """Goes through bytes from the front and takes no step beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def n_left(self) -> int:
        return len(self._data) - self._at

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack_from(self._data, self._step(layout.size))

    def array(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """A copy, so that a small record does not keep a long message in memory."""
        size = math.prod(shape)
        begin = self._step(size * dtype.itemsize)
        values = np.frombuffer(self._data, dtype, size, begin).astype(dtype.newbyteorder("=")).reshape(shape)
        if dtype is not _INTEGER and size:
            low, high = float(values.min()), float(values.max())
            _check(
                low > -_LARGEST and high < _LARGEST,
                "The message has numbers that are not finite, or beyond all measure.",
            )
        return values

    def _step(self, n_bytes: int) -> int:
        begin = self._at
        if n_bytes > self.n_left:
            raise BadMessage(f"The message ends {n_bytes - self.n_left} bytes too early.")
        self._at += n_bytes
        return begin


def _check(is_good: bool, otherwise: str) -> None:
    if not is_good:
        raise BadMessage(otherwise)


def _check_peer(peer: int) -> None:
    _check(0 <= peer < HIGHEST_NUMBER, f"There is no peer {peer}: numbers are from 0 to {HIGHEST_NUMBER - 1}.")


def _check_number(number: int) -> None:
    _check(number > 0, f"A message or record has the number {number}; numbers begin at 1.")


def _check_total(total: float) -> None:
    _check(0 <= total < _LARGEST, "A record is of rows whose weights add up to no amount.")
