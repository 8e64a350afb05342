"""One peer: what it takes from others, what it refuses, and whom it takes for gone."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.peers.networks import Network, assert_brackets, chords, even, overlapping_rows, ring, split
from widemargin.peers import peer as module
from widemargin.peers.cutting_planes import Cut
from widemargin.peers.protocol import Message
from widemargin.peers.records import NUMBERS_PER_INCARNATION, Answer, HingeCosts, Moments, Proposal, Query, Snapshot
from widemargin.peers.rows import PeerRows

X, CODES = overlapping_rows(60)
PARTS = split(X, CODES, even(60, 3))


@pytest.fixture
def trio():
    """Three peers that know each other, in the middle of their work."""
    return Network(PARTS, ring(3)).go(12)


def one_of(network, number, to):
    """A message that peer would write now."""
    return dict(network.peers[number].tick())[to]


def in_bits(peer):
    model, prices = peer.algorithm.model.tobytes(), [c.price.tobytes() for c in peer.algorithm.neighbours.values()]
    return model, prices, {kind: {k: r.number for k, r in by.items()} for kind, by in peer.table.newest.items()}


# -- refused and counted -----------------------------------------------------------------------------------------------


def refused(peer, message):
    """Whether a message changes nothing but the count of those that were refused."""
    before, counts = in_bits(peer), peer.traffic.refused
    peer.receive(message)
    return in_bits(peer) == before and peer.traffic.refused == counts + 1


def test_a_good_message_is_not_refused(trio):
    assert not refused(trio.peers[0], one_of(trio, 1, 0))


def test_a_stranger(trio):
    assert refused(trio.peers[0], one_of(trio, 1, 0)._replace(sender=7))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_message_that_is_not_finite(trio, value):
    message = one_of(trio, 1, 0)
    payload = message.payload.copy()
    payload[3] = value
    assert refused(trio.peers[0], message._replace(payload=payload))
    trio.go(5)
    assert all(np.isfinite(peer.model).all() for peer in trio.peers.values())


def test_a_message_of_large_numbers_is_finite(trio):
    """The fast check overflows there, and must not decide."""
    message = one_of(trio, 1, 0)
    with np.errstate(over="ignore"):
        assert not refused(trio.peers[0], message._replace(payload=np.full_like(message.payload, 1e200)))


@pytest.mark.parametrize(
    "payload",
    [np.zeros(12), np.zeros((1, 13)), np.zeros(13, dtype=np.int64), [0.0] * 13, None],
    ids=["short", "of more dimensions", "whole numbers", "a list", "nothing"],
)
def test_a_payload_of_another_kind(trio, payload):
    assert refused(trio.peers[0], one_of(trio, 1, 0)._replace(payload=payload))


def test_a_number_below_one(trio):
    assert refused(trio.peers[0], one_of(trio, 1, 0)._replace(number=0))


def spoilt(record, **changes):
    return record._replace(number=record.number + 1000, **changes)


def with_second(moment, value):
    """A moment with another product of the first two features."""
    return np.concatenate([moment[:1], [value], moment[2:]]).astype(np.float32)


SPOILT = {
    "moments, not finite": (Moments, lambda r: {"moment": r.moment * np.nan}),
    "moments, of fewer features": (Moments, lambda r: {"moment": r.moment[1:]}),
    "moments, squares below zero": (Moments, lambda r: {"moment": -r.moment}),
    "moments, of no rows": (Moments, lambda r: {"moment": with_second(r.moment, 2 * np.sqrt(r.moment[0] * 1e9))}),
    "moments, weight": (Moments, lambda r: {"total": -1.0}),
    "snapshot, dual sum": (Snapshot, lambda r: {"dual": r.dual._replace(sums=r.dual.sums * np.inf)}),
    "snapshot, dual vector": (Snapshot, lambda r: {"dual": r.dual._replace(vectors=r.dual.vectors[:, 1:])}),
    "snapshot, dual error": (Snapshot, lambda r: {"dual": r.dual._replace(errors=r.dual.errors - 1)}),
    "snapshot, model": (Snapshot, lambda r: {"model": r.model + np.nan}),
    "snapshot, weight": (Snapshot, lambda r: {"total": np.nan}),
    "snapshot, rho": (Snapshot, lambda r: {"rho": 0.0}),
    "snapshot, infinite rho": (Snapshot, lambda r: {"rho": np.inf}),
    "snapshot, data_version": (Snapshot, lambda r: {"data_version": 0.5}),
    "snapshot, gap": (Snapshot, lambda r: {"gap": np.nan}),
    "snapshot, neighbours": (Snapshot, lambda r: {"neighbours": r.neighbours.astype(float)}),
    "proposal, not finite": (Proposal, lambda r: {"model": r.model * np.inf}),
    "proposal, of another shape": (Proposal, lambda r: {"model": r.model[0]}),
    "hinge_costs, costs": (HingeCosts, lambda r: {"costs": r.costs * np.nan}),
    "hinge_costs, fewer costs": (HingeCosts, lambda r: {"costs": r.costs[:-1]}),
    "hinge_costs, proposals": (HingeCosts, lambda r: {"proposals": r.proposals.astype(float)}),
    "hinge_costs, on nothing": (HingeCosts, lambda r: {"proposals": r.proposals[:0], "costs": r.costs[:0]}),
    "hinge_costs, data_version": (HingeCosts, lambda r: {"data_version": None}),
    "hinge_costs, weight": (HingeCosts, lambda r: {"total": np.inf}),
    "query, models": (Query, lambda r: {"models": r.models * np.nan}),
    "query, fewer models": (Query, lambda r: {"models": r.models[:2]}),
    "query, weights below zero": (Query, lambda r: {"weights": r.weights - 1}),
    "query, fewer weights": (Query, lambda r: {"weights": r.weights[1:]}),
    "query, fewer owners": (Query, lambda r: {"owners": r.owners[1:]}),
    "query, cuts": (Query, lambda r: {"cuts": r.cuts.astype(float)}),
    "answer, costs": (Answer, lambda r: {"costs": r.costs + np.inf}),
    "answer, fewer costs": (Answer, lambda r: {"costs": r.costs[1:]}),
    "answer, allowances": (Answer, lambda r: {"allowances": r.allowances * np.nan}),
    "answer, combination": (Answer, lambda r: {"combined": r.combined._replace(errors=r.combined.errors - 1)}),
    "answer, fewer cuts": (Answer, lambda r: {"cuts": Cut(*(values[1:] for values in r.cuts))}),
    "answer, weight": (Answer, lambda r: {"total": -1.0}),
    "a peer below zero": (Snapshot, lambda r: {"peer": -1}),
}


@pytest.mark.parametrize(("kind", "change"), SPOILT.values(), ids=SPOILT.keys())
def test_a_record_that_is_malformed(trio, kind, change):
    peer = trio.peers[2]
    record = peer.table.newest[kind][0]
    message = one_of(trio, 1, 2)
    with np.errstate(invalid="ignore"):
        wrong = spoilt(record, **change(record))
    assert refused(peer, message._replace(records=[*message.records, wrong]))
    assert not refused(peer, message._replace(records=[spoilt(record)]))  # which says that it is the change


def test_something_that_is_no_record(trio):
    message = one_of(trio, 1, 0)
    assert refused(trio.peers[0], message._replace(records=[("snapshot", 1)]))


def test_a_moments_where_nobody_uses_them():
    network = Network(PARTS, ring(3), solver="push-sum").go(5)
    message = one_of(network, 1, 0)
    before = network.peers[0].traffic.refused
    network.peers[0].receive(message._replace(records=[Moments(1, 5, 1.0, np.ones(6, np.float32))]))
    assert network.peers[0].traffic.refused == before + 1


def test_stale_message_are_dropped_and_their_records_taken(trio):
    peer, other = trio.peers[0], trio.peers[1]
    late = one_of(trio, 1, 0)
    news = spoilt(other.table.newest[Snapshot][1])
    peer.receive(one_of(trio, 1, 0))
    before, counts = peer.algorithm.neighbours[1].centre.tobytes(), peer.traffic.refused
    peer.receive(late._replace(records=[news]))
    assert peer.algorithm.neighbours[1].centre.tobytes() == before
    assert peer.traffic.refused == counts + 1
    assert peer.table.newest[Snapshot][1] is news


# -- incarnations ------------------------------------------------------------------------------------------------------


def test_a_peer_that_begins_anew_is_understood_and_gets_everything(trio):
    trio.state.peers[1] = anew = trio.begin(1, 1)
    trio.go(8)
    for kind in (Moments, Snapshot, Proposal, HingeCosts, Query, Answer):
        assert anew.table.newest[kind].keys() >= trio.peers[0].table.newest[kind].keys() - {1}
    assert trio.peers[0].table.newest[Snapshot][1].number > NUMBERS_PER_INCARNATION
    assert anew.proof is not None
    assert anew.proof.members == frozenset(range(3))


def test_a_peer_that_begins_anew_is_told_what_it_said_before(trio):
    """Of which it knows nothing: it neither believes it nor stumbles over it."""
    anew = trio.begin(0, 1)
    old = [trio.peers[1].table.newest[kind][0] for kind in (Moments, Snapshot, Proposal, HingeCosts, Query, Answer)]
    anew.receive(one_of(trio, 1, 0)._replace(records=old))
    assert anew.traffic.refused == 0
    assert Proposal not in anew.table.newest or 0 not in anew.table.newest[Proposal]
    assert anew.table.newest[Moments][0].number > NUMBERS_PER_INCARNATION


@pytest.mark.parametrize("number", [0, 1], ids=["the one that proposes", "another"])
@pytest.mark.parametrize("features", ["the same features", "other features"])
def test_a_peer_is_started_again_in_the_same_incarnation_with_as_many_other_rows(number, features):
    """What it said of its former rows never meets what it says of those it has now."""
    network = Network(PARTS, ring(3)).go(60)
    rows = PARTS[number]
    assert all(peer.proof.worst.relative < 1e-3 for peer in network.peers.values())
    X_now = rows.X if features == "the same features" else rows.X[:, ::-1].copy()
    network.parts = [*PARTS]
    network.parts[number] = PeerRows(X_now, rows.signs * np.where(np.arange(rows.n_rows) < 3, -1, 1), rows.weight)
    before = network.optima(range(3))
    network.state.peers[number] = network.begin(number, 0)
    exact = network.optima(range(3))
    assert abs(exact[0] - before[0]) > 0.01
    n_seen = 0
    for _ in range(400):
        network.go()
        marks = {peer.table.newest[Snapshot][number].data_version for peer in network.peers.values() if peer.proof}
        if marks == {network.peers[number]._data_version}:
            n_seen += 1
            for peer in network.peers.values():
                if peer.proof is not None:
                    assert_brackets(peer.proof, exact)
    assert n_seen > 100
    assert all(peer.proof.worst.relative < 1e-3 for peer in network.peers.values())


def test_numbers_go_on_after_those_of_who_was_here_before_in_the_same_incarnation(trio):
    """Else two proposals could have the same number, and costs of one would count for the other."""
    other, anew = one_of(trio, 1, 0), trio.begin(0, 0)
    former = trio.peers[1].table.newest[Proposal][0]._replace(number=900)
    anew.receive(other._replace(records=[former]))
    assert dict(anew.tick())[1].number > 900
    own = anew.table.newest[Moments][0]
    before = anew.ticks
    anew.receive(one_of(trio, 1, 0)._replace(records=[own]))
    assert anew.ticks == before  # an echo is none of these


def test_rows_that_arrive_are_another_data_version(trio):
    peer = trio.peers[0]
    before = peer._data_version
    peer.add_rows(PARTS[1])
    assert peer._data_version != before


@pytest.mark.parametrize("solver", ["admm", "push-sum"])
def test_rows_that_cannot_be_taken_in_change_nothing(solver):
    network = Network(PARTS, ring(3), solver=solver).go(12)
    peer = network.peers[0]
    before, data_version, moments = (
        deepcopy(vars(peer.algorithm)),
        peer._data_version,
        peer.table.newest[Moments].get(0),
    )
    wrong = [replace(PARTS[1], X=sp.csr_matrix(PARTS[1].X))]
    wrong += [replace(PARTS[1], X=1e25 * PARTS[1].X)] if solver == "admm" else []
    for each in wrong:
        with pytest.raises(ValueError, match=r"must be sparse if|scale the features"):
            peer.add_rows(each)
        assert peer.algorithm.rows.n_rows == PARTS[0].n_rows
        assert (peer._data_version, peer.table.newest[Moments].get(0)) == (data_version, moments)
        for name in ("model", "dual", "_moment", "pair", "_violated"):
            if name in before:
                np.testing.assert_array_equal(getattr(peer.algorithm, name), before[name])


def test_message_of_a_former_incarnation_are_stale(trio):
    old = one_of(trio, 1, 0)
    trio.state.peers[1] = trio.begin(1, 3)
    trio.go(4)
    before = trio.peers[0].algorithm.neighbours[1]
    trio.peers[0].receive(old)
    assert trio.peers[0].algorithm.neighbours[1] is before


# -- silence -----------------------------------------------------------------------------------------------------------


def test_silence_drops_an_edge_and_a_return_restores_it(trio):
    silent = trio.peers[1]
    del trio.state.peers[1]
    trio.go(1)
    while 1 in trio.peers[0].live_neighbours:
        trio.go(1)
    assert trio.peers[0].ticks == 12 + module.MAX_MISSED_MESSAGES + 1  # the last message was heard after twelve ticks
    assert 1 not in trio.peers[0].algorithm.neighbours
    trio.state.peers[1] = silent  # with all that it knew
    trio.go(2 * module._PROBE_TICKS)
    assert trio.peers[0].live_neighbours == [1, 2]
    assert silent.live_neighbours == [0, 2]


def test_a_silent_neighbour_is_tried_now_and_then(trio):
    del trio.state.peers[1]
    trio.go(40)
    to_silent = [any(to == 1 for to, _ in trio.peers[0].tick()) for _ in range(module._PROBE_TICKS)]
    assert sum(to_silent) == 1


def test_fan_out_is_the_number_of_message_in_a_tick():
    network = Network(split(X, CODES, even(60, 6)), chords(6), fan_out=2).go(30)
    for _ in range(10):
        messages = network.peers[0].tick()
        assert len({to for to, _ in messages}) == len(messages) == 2
    assert network.comm.ledger.messages == 30 * 6 * 2


def test_message_is_what_wire_and_loop_expect():
    assert Message._fields == ("sender", "number", "payload", "records", "ack", "ack_bits", "n_bytes")
