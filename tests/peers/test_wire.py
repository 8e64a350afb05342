"""Bytes become a message or are refused, whatever they are."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest

from widemargin.peers.admm import GossipADMM
from widemargin.peers.cutting_planes import N_POINTS, Cut
from widemargin.peers.peer import Peer
from widemargin.peers.protocol import Message
from widemargin.peers.records import Answer, HingeCosts, Moments, Proposal, Query, Snapshot
from widemargin.peers.rows import PeerRows
from widemargin.peers.wire import BadMessage, MessageFormat, decode, encode
from widemargin.problems.mean_hinge import MeanHinge

FORM = MessageFormat(n_problems=2, n_features=3, payload=(2, 2, 3), n_moments=6)
LIMIT = 1 << 16


def records(rng):
    return [
        Moments(7, 3, 12.0, rng.normal(size=6).astype(np.float32)),
        Snapshot(
            peer=8,
            number=(5 << 40) + 9,
            tick=8,
            neighbours=np.array([7, (1 << 40) - 1]),
            data_version=(1 << 62) - 1,
            total=20.0,
            dual=Cut(np.array([0.0, 20.0]), rng.normal(size=(2, 3)), rng.random(2)),
            model=rng.normal(size=(2, 3)),
            rho=0.3,
            gap=np.inf,
            is_stuck=True,
        ),
        Proposal(7, 11, rng.normal(size=(2, 3))),
        HingeCosts(
            9, 12, 7, 123, 30.0, np.array([11, 10]), rng.random((2, 2)), np.array([[-5, 1 << 62], [1 << 61, -7]])
        ),
        Query(7, 13, rng.normal(size=(3, 2, 3)), np.array([8, 9]), np.array([4, 7]), rng.random((2, 2))),
        Answer(
            peer=9,
            number=14,
            proposer=7,
            query=13,
            data_version=123,
            total=30.0,
            costs=rng.random((N_POINTS, 2)),
            allowances=rng.random((N_POINTS, 2)),
            combined=Cut(rng.random(2), rng.normal(size=(2, 3)), rng.random(2)),
            cuts=Cut(rng.random((3, 2)), rng.normal(size=(3, 2, 3)), rng.random((3, 2))),
            digest=(-(1 << 63), (1 << 63) - 1),
        ),
    ]


def example(seed=0):
    rng = np.random.default_rng(seed)
    return Message(8, (5 << 40) + 10, rng.normal(size=(2, 2, 3)), records(rng), 17, (1 << 60) - 1, 0)


def assert_same(one, other):
    assert type(one) is type(other)
    for name, a, b in zip(one._fields, one, other, strict=True):
        if isinstance(a, Cut):
            assert_same(a, b)
        elif name == "records":
            for r, s in zip(a, b, strict=True):
                assert_same(r, s)
        elif name != "n_bytes":
            np.testing.assert_array_equal(a, b)
            assert np.asarray(a).dtype == np.asarray(b).dtype


def test_a_message_comes_back_as_it_was():
    message = example()
    assert_same(decode(encode(message), FORM, LIMIT), message)


def test_the_comparison_sees_a_difference():
    message, other = example(), example()
    other.records[1].dual.vectors[1, 2] += 1e-12
    with pytest.raises(AssertionError):
        assert_same(message, other)


def test_what_a_peer_says_it_sends_is_about_what_goes_over_the_wire():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 30))
    peers = []
    for k in range(2):
        rows = PeerRows.of(X, (X[:, 0] > 0).astype(int), np.ones(60), 2, has_constant=True)
        problem = MeanHinge(0.01)
        algorithm = GossipADMM(problem, rows, np.random.default_rng(k), is_full=True)
        peers.append(Peer(k, problem, algorithm, [1 - k], 1, np.random.default_rng(k)))
    form = MessageFormat.of(peers[0])
    assert form.n_moments == 31 * 32 // 2
    said = on_wire = 0
    for _ in range(12):
        for peer in peers:
            for to, message in peer.tick():
                data = encode(message)
                said, on_wire = said + message.n_bytes, on_wire + len(data)
                there = decode(data, form, form.limit_bytes)
                assert there.n_bytes == message.n_bytes
                assert_same(there, message)
                peers[to].receive(there)
    assert all(peer.proof is not None for peer in peers)
    assert on_wire == pytest.approx(said, rel=0.05)


def test_mutated_and_truncated_bytes_are_a_message_or_refused():
    rng = np.random.default_rng(1)
    whole = encode(example())
    n_good = n_bad = 0
    for trial in range(6000):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            where = int(rng.integers(len(data)))
            match trial % 4:
                case 0:
                    data[where] ^= 1 << int(rng.integers(8))
                case 1:
                    data[where] = int(rng.integers(256))
                case 2:
                    del data[where:]
                    data = data or bytearray(b"\0")
                case 3:
                    data[where:where] = rng.bytes(int(rng.integers(1, 20)))
        try:
            message = decode(bytes(data), FORM, LIMIT)
        except BadMessage:
            n_bad += 1
            continue
        n_good += 1
        assert_same(decode(encode(message), FORM, LIMIT), message)
    assert n_good > 100
    assert n_bad > 3000


def test_nothing_is_allocated_for_lengths_that_are_only_claimed():
    whole = bytearray(encode(example()))
    tracemalloc.start()
    try:
        for at in range(8, len(whole) - 4):
            data = bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(BadMessage):
                decode(data, FORM, LIMIT)
            assert tracemalloc.get_traced_memory()[1] - before < LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [0, 1, 4, 43, 100])
def test_noise_is_refused(length):
    with pytest.raises(BadMessage):
        decode(np.random.default_rng(length).bytes(length), FORM, LIMIT)


def changed(kind, **fields):
    message = example()
    parts = [record._replace(**fields) if isinstance(record, kind) else record for record in message.records]
    return message._replace(records=parts)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (example()._replace(sender=-1), "no peer -1"),
        (example()._replace(sender=1 << 40), "no peer"),
        (example()._replace(number=0), "numbers begin at 1"),
        (example()._replace(ack=-5), "acknowledges"),
        (example()._replace(ack_bits=1 << 60), "acknowledges"),
        (example()._replace(payload=np.full((2, 2, 3), np.nan)), "not finite"),
        (example()._replace(payload=np.full((2, 2, 3), 1e200)), "too large"),
        (example()._replace(payload=np.ones((2, 2, 4))), "shape"),
        (example()._replace(payload=np.ones((1, 2, 3))), "."),
        (changed(Moments, total=-1e-9), "weights"),
        (changed(Moments, moment=np.full(6, np.inf, np.float32)), "not finite"),
        (changed(Snapshot, gap=np.nan), "gap"),
        (changed(Snapshot, rho=0.0), "rho"),
        (changed(Snapshot, rho=np.inf), "rho"),
        (changed(Snapshot, total=np.nan), "weights"),
        (changed(Snapshot, tick=-1), "tick"),
        (changed(Snapshot, dual=Cut(np.array([0.0, 21.0]), np.zeros((2, 3)), np.zeros(2))), "not feasible"),
        (changed(Snapshot, dual=Cut(np.zeros(2), np.zeros((2, 3)), -np.ones(2))), "error"),
        (changed(Snapshot, is_stuck=2), "stuck"),
        (changed(Query, weights=-np.ones((2, 2))), "negative weights"),
        (changed(Answer, query=0), "begin at 1"),
        (changed(Answer, costs=-np.ones((N_POINTS, 2))), "negative"),
        (changed(Answer, combined=Cut(np.full(2, 31.0), np.zeros((2, 3)), np.zeros(2))), "not feasible"),
        (changed(Answer, total=-1.0), "weights"),
        (changed(Snapshot, neighbours=np.array([-1])), "neighbours"),
        (changed(HingeCosts, costs=np.array([[1.0, -1.0], [0.0, 0.0]])), "negative"),
        (changed(HingeCosts, proposals=np.arange(1, 6), costs=np.ones((5, 2))), "1 to 4"),
        (changed(HingeCosts, proposals=np.array([0, 1])), "without a number"),
        (changed(HingeCosts, total=-1.0), "weights"),
        (changed(Proposal, number=-3), "begin at 1"),
    ],
)
def test_what_cannot_be_is_refused_in_words(message, why):
    with pytest.raises(BadMessage, match=why):
        decode(encode(message), FORM, LIMIT)


@pytest.mark.parametrize("kind", [Moments, Snapshot, HingeCosts])
def test_rows_may_be_without_any_weight(kind):
    message = changed(kind, total=0.0, **({"dual": Cut(*map(np.zeros, (2, (2, 3), 2)))} if kind is Snapshot else {}))
    assert_same(decode(encode(message), FORM, LIMIT), message)


def test_what_is_too_long_or_goes_on_is_refused():
    data = encode(example())
    with pytest.raises(BadMessage, match="too long"):
        decode(data, FORM, len(data) - 1)
    with pytest.raises(BadMessage, match="1 bytes too many"):
        decode(data + b"\0", FORM, LIMIT)


def test_moments_are_refused_where_there_are_none():
    with pytest.raises(BadMessage, match="no moments"):
        decode(encode(example()), MessageFormat(2, 3, (2, 2, 3), 0), LIMIT)
