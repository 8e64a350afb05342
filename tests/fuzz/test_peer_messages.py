"""What comes from another peer, damaged and invented: messages, records, questions and answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.fuzz.mutants import attempts, try_all
from tests.peers.test_wire import FORM, LIMIT, assert_same, example
from widemargin.peers.protocol import Message
from widemargin.peers.records import KINDS, Answer, HingeCosts, Moments, Snapshot
from widemargin.peers.wire import BadMessage, decode, encode

SOME = pytest.mark.parametrize("n", [1500, pytest.param(60_000, marks=pytest.mark.long)])


def messages():
    """Messages of every kind of record alone, of none, and of all."""
    whole = example()
    parts = [whole, whole._replace(records=[])]
    parts += [whole._replace(records=[record]) for record in whole.records]
    return [encode(each) for each in parts]


def is_message(message):
    """Finite numbers of the network's shapes, and nothing lost on the way back."""
    if not isinstance(message, Message) or message.payload.shape != FORM.payload:
        return False
    for record in message.records:
        arrays = [each for each in record if isinstance(each, np.ndarray)]
        if type(record) not in KINDS or not all(np.isfinite(each).all() for each in arrays):
            return False
        if isinstance(record, Moments | Snapshot | HingeCosts | Answer) and not 0 <= record.total < 1e100:
            return False
    assert_same(decode(encode(message), FORM, LIMIT), message)
    return True


@SOME
def test_a_frame_is_a_message_or_refused(n):
    accepted, refused = try_all(
        lambda data: decode(data, FORM, LIMIT), is_message, (BadMessage,), attempts(messages(), n, seed=3), times=60
    )
    assert accepted > n // 100
    assert refused > n // 4


def test_records_without_end_are_refused_before_they_are_made():
    """A number of records that bytes do not bear out costs nothing."""
    bare = bytearray(encode(example()._replace(records=[])))
    bare[8:12] = b"\xff\xff\xff\xff"
    accepted, refused = try_all(
        lambda data: decode(data, FORM, LIMIT), is_message, (BadMessage,), iter([bytes(bare)]), times=1
    )
    assert (accepted, refused) == (0, 1)


QUESTIONS = [
    b"J" + json.dumps(each).encode()
    for each in (
        {"ask": "terms", "number": 7},
        {"ask": "meet", "number": 8, "address": "127.0.0.1:5555"},
        {"number": 1, "terms": {"alpha": 0.1}, "life": 3, "tick": 0, "peers": [[1, "127.0.0.1:5555"], [2, "[::1]:80"]]},
    )
]


@SOME
def test_a_question_is_an_object_or_refused(n):
    zmq_peers = pytest.importorskip("widemargin.comm.zmq_peers", reason="peers over ZeroMQ need pyzmq")
    deep = [b"J" + b"[" * 50_000, b"J" + b'{"a":' * 50_000, b"J" + b"9" * 10_000]
    accepted, refused = try_all(
        zmq_peers._parsed, lambda found: isinstance(found, dict), (ValueError,), iter([*QUESTIONS, *deep])
    )
    assert (accepted, refused) == (len(QUESTIONS), len(deep))
    try_all(zmq_peers._parsed, lambda found: isinstance(found, dict), (ValueError,), attempts(QUESTIONS, n, seed=4))


class _Listener:
    """Hands out frames as if they had come from a member."""

    def __init__(self, frames):
        self._frames = frames

    def recv_multipart(self, flags, copy):
        import zmq

        if not self._frames:
            raise zmq.Again
        assert not copy
        return [zmq.Frame(each) for each in self._frames.pop()]


@SOME
def test_frames_at_the_door_are_messages_or_counted_as_refused(n):
    """The transport of a listening peer, with a member that writes nonsense; nothing is connected to."""
    pytest.importorskip("zmq", reason="peers over ZeroMQ need pyzmq")
    from widemargin.comm.zmq_keys import SharedKeys
    from widemargin.comm.zmq_peers import ZmqPeers

    class Deaf(ZmqPeers):
        def link(self, number, address):
            assert isinstance(number, int)
            from widemargin.comm.zmq_peers import _check_foreign

            _check_foreign(address)

    peers = Deaf(3, "127.0.0.1:0", SharedKeys.of("a secret of enough messages"), 1 << 16)
    listener = peers._listener
    try:
        rng = np.random.default_rng(5)
        n_messages = 0
        for k, data in enumerate(attempts([*QUESTIONS, b"Lsomething"], n, seed=6)):
            frames = [data] if k % 5 else [data, *[rng.bytes(3) for _ in range(int(rng.integers(0, 3)))]]
            peers._listener = _Listener([[rng.bytes(int(rng.integers(0, 12))), *frames]])
            taken = peers._take()
            n_messages += len(taken)
            assert all(sender is None and isinstance(data, bytes) for sender, data in taken)
        assert n_messages > 0
        assert peers.refused > n // 4
    finally:
        peers._listener = listener
        peers.close()
