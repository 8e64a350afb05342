"""Peers of one process share a store of records, and prove no more by it than they would alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.networks import Network, assert_brackets, chords, even, overlapping_rows, split, star
from widemargin.comm.faults import Faults
from widemargin.peers.protocol import Message
from widemargin.peers.records import Answer, Moments
from widemargin.peers.store import RecordStore

N = 8
X, CODES = overlapping_rows(160)
PARTS = split(X, CODES, even(160, N))


def on_the_wire(message: Message) -> Message:
    """As it arrives from another process: copies of all records."""
    return message._replace(records=[type(record)(*record) for record in message.records])


@pytest.mark.parametrize("faults", [Faults(), Faults(drop=0.2, delay=(0, 2), crash={3: 20}, rejoin={3: 50})])
def test_peers_with_stores_of_their_own_do_the_same(faults):
    shared, apart = Network(PARTS, chords(N), faults=faults), Network(PARTS, chords(N), faults=faults)
    apart.begin = alone(apart)
    apart.start({k: apart.begin(k, 0) for k in range(N)}, np.random.default_rng(apart.seed))
    for _ in range(90):
        shared.go()
        apart.go()
        for k, peer in shared.peers.items():
            other = apart.peers[k]
            assert np.array_equal(peer.model, other.model)
            assert (peer.proof is None) == (other.proof is None)
            assert peer.proof is None or peer.proof.certificates == other.proof.certificates
    assert any(peer.proof is not None for peer in shared.peers.values())


def alone(network):
    """Peers with a store of their own, to which records come as copies."""

    def begin(number, incarnation):
        network.store = RecordStore()
        peer = Network.begin(network, number, incarnation)
        receive = peer.receive
        peer.receive = lambda message: receive(on_the_wire(message))
        return peer

    return begin


def test_a_peer_proves_nothing_from_records_that_only_others_have_received():
    """One peer gets no answers of another, which all others have."""
    network = Network(PARTS, chords(N))
    lacking = network.peers[5]
    receive = lacking.receive

    def without_answers(message):
        records = [r for r in message.records if not (isinstance(r, Answer) and r.peer == 2)]
        receive(message._replace(records=records))

    lacking.receive = without_answers
    network.go(40)
    assert 2 in network.peers[4].table.newest[Answer]
    assert 2 not in lacking.table.newest[Answer]
    asked = [about for about, collection in lacking.table._answers.items() if collection.count == N]
    assert not asked
    if lacking.proof is not None:
        assert_brackets(lacking.proof, network.optima(lacking.proof.members))


def complete(k):
    return {i: [j for j in range(k) if j != i] for i in range(k)}


def test_in_a_complete_network_a_peer_has_few_partners_and_all_are_certified(seed):
    k = 24
    X, codes = overlapping_rows(240)
    network = Network(split(X, codes, even(240, k)), complete(k), seed=seed)
    network.until(1e-3, 200)
    degrees = [len(peer.live_neighbours) for peer in network.peers.values()]
    assert min(degrees) >= 3
    assert np.mean(degrees) <= 8
    assert all(peer.proof.members == set(range(k)) for peer in network.peers.values())


def test_an_edge_that_alone_connects_two_groups_does_not_rest(seed):
    """Two complete groups and one edge: its ends have many neighbours, and may not have chosen each other."""
    k = 12
    graph = {i: [j for j in range(k) if j != i] for i in range(k)}
    graph |= {k + i: [k + j for j in range(k) if j != i] for i in range(k)}
    graph[0], graph[k] = [*graph[0], k], [0, *graph[k]]
    X, codes = overlapping_rows(240)
    network = Network(split(X, codes, even(240, 2 * k)), graph, seed=seed)
    network.until(1e-2, 300)
    assert all(peer.proof.members == set(range(2 * k)) for peer in network.peers.values())


def test_partners_that_crash_are_replaced(seed):
    k = 16
    X, codes = overlapping_rows(160)
    gone = dict.fromkeys(range(8, 13), 30)
    network = Network(split(X, codes, even(160, k)), complete(k), seed=seed, faults=Faults(crash=gone))
    network.go(31)
    network.until(1e-3, 400)
    left = set(range(k)) - gone.keys()
    for peer in network.peers.values():
        assert peer.proof.members == left
        assert_brackets(peer.proof, network.optima(left))


def written_by(peer):
    """The addressees of a peer in each tick, from now on."""
    tick, written = peer.tick, []

    def noted():
        messages = tick()
        written.append([to for to, _ in messages])
        return messages

    peer.tick = noted
    return written


def test_the_hub_of_a_star_writes_to_all_leaves_in_turns():
    k = 10
    X, codes = overlapping_rows(120)
    network = Network(split(X, codes, even(120, k)), star(k), fan_out=1).go(2)
    written = written_by(network.peers[0])
    network.go(3 * (k - 1))
    turns = [to for each in written for to in each]
    assert all(set(turns[at : at + k - 1]) == set(range(1, k)) for at in range(0, len(turns), k - 1))
    network.until(1e-3, 400)


def test_the_hub_answers_leaves_in_every_tick_that_could_write_to_more_neighbours_than_they_have():
    k = 10
    X, codes = overlapping_rows(120)
    network = Network(split(X, codes, even(120, k)), star(k), fan_out=2)
    written = written_by(network.peers[0])
    network.go(20)
    assert len(written[0]) == 2  # it does not know yet how many neighbours they have
    assert sorted(written[-1]) == list(range(1, k))


def test_a_star_needs_no_more_than_twice_the_ticks_of_a_ring_with_chords():
    X, codes = overlapping_rows(240)
    parts = split(X, codes, even(240, 24))
    ticks = {
        name: Network(parts, graph).until(1e-3, 400) for name, graph in (("star", star(24)), ("chords", chords(24)))
    }
    assert ticks["star"] <= 2 * ticks["chords"]


def test_records_in_no_use_leave_the_store():
    network = Network(PARTS, chords(N)).go(30)
    store = network.store
    assert network.peers[0].table.newest[Moments][0] is network.peers[5].table.newest[Moments][0]
    before = len(store._handles)
    store._most_bytes = 0
    store.sweep()
    assert 0 < len(store._handles) < before
    network.until(1e-4, 200)
