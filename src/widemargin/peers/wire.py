"""Encode messages as bytes, and decode bytes of unknown origin or refuse them.

    magic "WMPR" | version | number of records | shape of the payload | sender | number | ack | ack bits
    payload: float64
    each record: kind | count | peer | number, then its own numbers, then a signature where members sign

All numbers are little-endian, and all lengths follow from the message format that the peers of a network share. Nothing
is unpickled. Nothing is allocated before its bytes have arrived: a message takes no more memory than bytes on the wire.
Numbers must be finite and have finite squares; losses and weights must not be negative. This module checks only the
form; ``notary`` checks signatures, and ``claims`` checks what members state about their rows.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from widemargin.comm.protocol import HIGHEST_NUMBER
from widemargin.peers.cutting_planes import N_POINTS, N_QUERIED, Cut
from widemargin.peers.delivery import WINDOW
from widemargin.peers.peer import Peer
from widemargin.peers.protocol import Message
from widemargin.peers.records import (
    KEPT,
    KINDS,
    MOST_EVIDENCE,
    Accusation,
    Answer,
    HingeCosts,
    Moments,
    Proposal,
    Query,
    Record,
    Snapshot,
    Statement,
    n_bytes_of,
)

_MAGIC = b"WMPR"
VERSION = 6  # of messages
_HEADER = struct.Struct("<4sB3xI3Iqqqq")
_RECORD = struct.Struct("<B3xIqq")
_MOMENTS = struct.Struct("<d")
_SNAPSHOT = struct.Struct("<qqdddq")
_COSTS = struct.Struct("<qqd")
_ANSWER = struct.Struct("<qqqqqd")
_FLOAT, _SINGLE, _INTEGER = np.dtype("<f8"), np.dtype("<f4"), np.dtype("<i8")
_LARGEST = 1e100  # its square is finite, and so are sums of such squares
_MIN_LIMIT_BYTES = 1 << 24  # several times what records may fill a message with
_MAX_WEIGHTS = 2000  # of cuts in a query, with their numbers
_MAX_NEIGHBOURS = 10_000  # in a snapshot
SIGNATURE_BYTES = 64


class BadMessage(ValueError):
    """These bytes are not a message of this network."""


@dataclass(frozen=True)
class MessageFormat:
    """The sizes that all messages of a network share; ``n_moments`` is 0 if the algorithm has no metric."""

    n_problems: int
    n_features: int
    payload: tuple[int, ...]  # its shape
    n_moments: int  # numbers in a record of moments
    is_signed: bool = False  # whether members sign their records

    @classmethod
    def of(cls, peer: Peer) -> Self:
        moments = peer.table.newest[Moments].get(peer.number)
        n_moments = 0 if moments is None else len(moments.moment)
        n_problems, n_features = peer.algorithm.model.shape
        return cls(n_problems, n_features, peer.algorithm.payload_shape, n_moments, peer.notary is not None)

    @property
    def limit_bytes(self) -> int:
        """The longest message that is read."""
        n_vectors, n_numbers = 4 + 2 * N_QUERIED, KEPT + 2 * N_POINTS + 2 * N_QUERIED + 4
        of_one = 4 * self.n_moments + 8 * self.n_problems * (n_vectors * self.n_features + n_numbers + _MAX_WEIGHTS)
        return max(_MIN_LIMIT_BYTES, 8 * math.prod(self.payload) + MOST_EVIDENCE * of_one + _MIN_LIMIT_BYTES // 2)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    numbers = message.sender, message.number, message.ack, message.ack_bits
    header = _HEADER.pack(_MAGIC, VERSION, len(message.records), *_three(message.payload.shape), *numbers)
    parts = [header, _raw(message.payload, _FLOAT)]
    for record in message.records:
        if isinstance(record, Accusation):
            parts.append(_RECORD.pack(KINDS.index(Accusation), len(record.evidence), record.peer, record.number))
        for each in record.evidence if isinstance(record, Accusation) else [record]:
            parts.extend((statement_bytes(each), each.signature))
    return b"".join(parts)


def statement_bytes(record: Statement) -> bytes:
    """What a signature of a record covers."""
    return b"".join(_encoded(record))


def decode(data: bytes, form: MessageFormat, limit_bytes: int) -> Message:
    """The message in some bytes; raises :class:`BadMessage` if there is none."""
    if len(data) > limit_bytes:
        raise BadMessage(f"The message is too long: {len(data)} bytes, and at most {limit_bytes} are read.")
    reader = _Reader(data)
    magic, version, n_records, *shape, sender, number, ack, ack_bits = reader.numbers(_HEADER)
    _check(magic == _MAGIC, "The bytes do not begin like a message of a peer.")
    _check(version == VERSION, f"The message has version {version}; this peer reads version {VERSION}.")
    _check(shape == _three(form.payload), f"The payload has shape {shape}; in this network it is {list(form.payload)}.")
    _check_peer(sender)
    _check_number(number)
    _check(ack >= 0 and 0 <= ack_bits < 1 << WINDOW, "The message acknowledges impossible numbers.")
    payload = reader.array(_FLOAT, form.payload)
    records = [_read_record(reader, form) for _ in range(n_records)]
    _check(reader.n_left == 0, f"The message has {reader.n_left} bytes too many.")
    n_bytes = 32 + payload.nbytes + sum(n_bytes_of(record) for record in records)
    return Message(sender, number, payload, records, ack, ack_bits, n_bytes)


def _encoded(record: Statement) -> Iterator[bytes]:
    counted = next(
        (getattr(record, name) for name in ("neighbours", "proposals", "owners") if hasattr(record, name)), ()
    )
    yield _RECORD.pack(KINDS.index(type(record)), len(counted), record.peer, record.number)
    match record:
        case Moments():
            yield _MOMENTS.pack(record.total)
            yield _raw(record.moment, _SINGLE)
        case Snapshot():
            numbers = record.tick, record.data_version, record.total, record.rho, record.gap, record.is_stuck
            yield _SNAPSHOT.pack(*numbers)
            yield _raw(record.neighbours, _INTEGER)
            yield from (_raw(values, _FLOAT) for values in (*record.dual, record.model))
        case Proposal():
            yield _raw(record.model, _FLOAT)
        case HingeCosts():
            yield _COSTS.pack(record.proposer, record.data_version, record.total)
            yield _raw(record.proposals, _INTEGER)
            yield _raw(record.costs, _FLOAT)
            yield _raw(record.digests, _INTEGER)
        case Query():
            yield from (_raw(values, _INTEGER) for values in (record.owners, record.cuts))
            yield from (_raw(values, _FLOAT) for values in (record.weights, record.models))
        case Answer():
            yield _ANSWER.pack(record.proposer, record.query, *record.digest, record.data_version, record.total)
            arrays = record.costs, record.allowances, *record.combined, *record.cuts
            yield from (_raw(values, _FLOAT) for values in arrays)


def _three(shape: tuple[int, ...]) -> list[int]:
    """A shape of up to three numbers, padded with zeros in front."""
    return [*([0] * (3 - len(shape))), *shape]


def _raw(values: np.ndarray, dtype: np.dtype[Any]) -> bytes:
    return np.ascontiguousarray(values, dtype=dtype).tobytes()


def _read_record(reader: "_Reader", form: MessageFormat, *, is_evidence: bool = False) -> Record:
    kind, count, peer, number = reader.numbers(_RECORD)
    _check(kind < len(KINDS), f"There is no record of kind {kind}.")
    _check_peer(peer)
    _check_number(number)
    if KINDS[kind] is not Accusation:
        record = _read_statement(reader, form, KINDS[kind], count, peer, number)
        return record._replace(signature=reader.raw(SIGNATURE_BYTES)) if form.is_signed else record
    _check(form.is_signed, "Nobody is accused where members do not sign.")
    _check(not is_evidence, "An accusation is no evidence of another.")
    _check(1 <= count <= MOST_EVIDENCE, f"An accusation has {count} records; it must have 1 to {MOST_EVIDENCE}.")
    evidence: Any = [_read_record(reader, form, is_evidence=True) for _ in range(count)]
    return Accusation(peer, number, tuple(evidence))


def _read_statement(
    reader: "_Reader", form: MessageFormat, kind: type, count: int, peer: int, number: int
) -> Statement:
    shape = form.n_problems, form.n_features
    if kind is Moments:
        (total,) = reader.numbers(_MOMENTS)
        _check(form.n_moments > 0, "Peers of this network send no moments.")
        _check_total(total)
        return Moments(peer, number, total, reader.array(_SINGLE, (form.n_moments,)))
    if kind is Proposal:
        return Proposal(peer, number, reader.array(_FLOAT, shape))
    if kind is HingeCosts:
        proposer, data_version, total = reader.numbers(_COSTS)
        _check_peer(proposer)
        _check_total(total)
        _check(1 <= count <= KEPT, f"Hinge costs are of {count} proposals; they must be of 1 to {KEPT}.")
        proposals = reader.array(_INTEGER, (count,))
        _check(bool(proposals.min() > 0), "Hinge costs are of a proposal without a number.")
        costs = reader.array(_FLOAT, (count, form.n_problems))
        _check(bool(costs.min() >= 0), "A hinge cost is negative.")
        digests = reader.array(_INTEGER, (count, 2))
        return HingeCosts(peer, number, proposer, data_version, total, proposals, costs, digests)
    if kind is Query:
        owners, cuts = reader.array(_INTEGER, (count,)), reader.array(_INTEGER, (count,))
        weights = reader.array(_FLOAT, (count, form.n_problems))
        _check(count == 0 or bool(weights.min() >= 0), "A query has negative weights.")
        return Query(peer, number, reader.array(_FLOAT, (N_QUERIED, *shape)), owners, cuts, weights)
    if kind is Answer:
        proposer, query, *digest, data_version, total = reader.numbers(_ANSWER)
        _check_peer(proposer)
        _check_number(query)
        _check_total(total)
        costs, allowances = (reader.array(_FLOAT, (N_POINTS, form.n_problems)) for _ in range(2))
        _check(bool(costs.min() >= 0), "A hinge cost is negative.")
        combined, new = _read_cut(reader, shape, total), _read_cut(reader, (N_QUERIED, *shape), total)
        return Answer(
            peer, number, proposer, query, data_version, total, costs, allowances, combined, new, (digest[0], digest[1])
        )
    tick, data_version, total, rho, gap, is_stuck = reader.numbers(_SNAPSHOT)
    _check(0 <= tick < HIGHEST_NUMBER, f"There is no tick {tick}.")
    _check_total(total)
    _check(1 / _LARGEST < rho < _LARGEST, "A snapshot suggests a rho that is not positive and finite.")
    _check(gap >= 0, "A snapshot has a gap that is negative or not a number.")
    _check(is_stuck in (0, 1), "A snapshot says neither that its gap is stuck nor that it is not.")
    _check(count <= _MAX_NEIGHBOURS, f"A snapshot names {count} neighbours; it may name {_MAX_NEIGHBOURS}.")
    neighbours = reader.array(_INTEGER, (count,))
    are_peers = count == 0 or bool(neighbours.min() >= 0 and neighbours.max() < HIGHEST_NUMBER)
    _check(are_peers, f"A snapshot names neighbours outside 0 to {HIGHEST_NUMBER - 1}.")
    dual, model = _read_cut(reader, shape, total), reader.array(_FLOAT, shape)
    return Snapshot(peer, number, tick, neighbours, data_version, total, dual, model, rho, gap, bool(is_stuck))


def _read_cut(reader: "_Reader", shape: tuple[int, ...], total: float) -> Cut:
    """A and V of dual variables of rows with a total weight; ``shape`` is that of V."""
    sums, vectors, errors = (
        reader.array(_FLOAT, shape[:-1]),
        reader.array(_FLOAT, shape),
        reader.array(_FLOAT, shape[:-1]),
    )
    is_feasible = bool(sums.min() >= 0 and sums.max() <= total * (1 + 1e-9))
    _check(is_feasible, "The dual variables of a record are not feasible: they exceed the weight of its rows.")
    _check(bool(errors.min() >= 0), "The error of a sum over rows is negative.")
    return Cut(sums, vectors, errors)


class _Reader:
    """Reads bytes from the front, and never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def n_left(self) -> int:
        return len(self._data) - self._at

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack_from(self._data, self._advance(layout.size))

    def raw(self, n_bytes: int) -> bytes:
        begin = self._advance(n_bytes)
        return self._data[begin : self._at]

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """A copy, so that a small record does not keep a long message in memory."""
        size = math.prod(shape)
        begin = self._advance(size * dtype.itemsize)
        values = np.frombuffer(self._data, dtype, size, begin).astype(dtype.newbyteorder("=")).reshape(shape)
        if dtype is not _INTEGER and size:
            is_moderate = float(values.min()) > -_LARGEST and float(values.max()) < _LARGEST
            _check(is_moderate, "The message has numbers that are not finite, or too large.")
        return values

    def _advance(self, n_bytes: int) -> int:
        begin = self._at
        _check(n_bytes <= self.n_left, f"The message ends {n_bytes - self.n_left} bytes too early.")
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
    _check(0 <= total < _LARGEST, "A record has row weights that do not add up to a finite number of at least 0.")
