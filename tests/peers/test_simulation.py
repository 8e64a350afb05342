"""Whole networks: peers that leave, come back, are cut off; rows that arrive; and the traffic of all that."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.networks import Network, assert_brackets, chords, even, overlapping_rows, ring, split, star
from widemargin.comm.faults import Faults
from widemargin.peers.records import KINDS, Accusation, Moments, Proposal, Query, Snapshot
from widemargin.peers.rows import PeerRows

X, CODES = overlapping_rows(200, seed=4)
PARTS = split(X, CODES, even(200, 10))


def test_all_reach_the_gap_and_agree():
    network = Network(PARTS, chords(10))
    assert network.until(1e-3, 200) < 200
    network.until(1e-5, 1000)
    models = np.array([peer.algorithm.model for peer in network.peers.values()])
    assert np.abs(models - models.mean(axis=0)).max() < 0.02 * np.abs(models).max()
    assert_brackets(network.peers[3].proof, network.optima(range(10)))


def test_the_same_seed_gives_the_same_bits():
    faults = Faults(drop=0.2, delay=(0, 2), idle=0.1)
    runs = [Network(PARTS, chords(10), fan_out=2, seed=seed, faults=faults).go(50) for seed in (5, 5, 6)]
    models = [np.array([peer.model for peer in run.peers.values()]) for run in runs]
    np.testing.assert_array_equal(models[0], models[1])
    assert not np.array_equal(models[0], models[2])
    traffic = [[vars(peer.traffic) for peer in run.peers.values()] for run in runs]
    assert traffic[0] == traffic[1]


@pytest.mark.parametrize("dead", [(3, 7), (0, 1)], ids=["some", "the proposer"])
def test_survivors_certify_their_own_optimum_and_the_whole_when_others_return(dead):
    """Also where peer 0, whose turn it was to propose, is among them."""
    faults = Faults(crash=dict.fromkeys(dead, 30), rejoin=dict.fromkeys(dead, 400))
    network = Network(PARTS, chords(10), faults=faults)
    network.go(399)
    survivors = frozenset(range(10)) - set(dead)
    assert network.peers.keys() == survivors
    exact = network.optima(survivors)
    for peer in network.peers.values():
        assert peer.proof.members == survivors
        assert_brackets(peer.proof, exact)
        assert peer.proof.worst.relative < 1e-3
        assert peer.table.proposer == min(survivors)
    assert network.simulation.certify(network.state) is None  # there is more to come
    network.until(1e-3, 400)
    whole = network.optima(range(10))
    assert abs(whole[0] - exact[0]) > 1e-3  # two different problems
    for peer in network.peers.values():
        assert peer.proof.members == frozenset(range(10))
        assert_brackets(peer.proof, whole)
        assert peer.table.proposer == 0
    assert [network.peers[number].incarnation for number in sorted(network.peers)] == [
        int(k in dead) for k in range(10)
    ]


def test_a_peer_may_crash_in_every_run_over_the_same_peers():
    """A second run begins where the first ended, with the same faults: incarnations go on, and all are understood."""
    network = Network(PARTS, chords(10), faults=Faults(crash={4: 5}, rejoin={4: 40}))
    network.until(1e-2, 300)
    network.start(network.peers, network.state.rng)
    network.until(1e-2, 300)
    assert network.peers[4].incarnation == 2
    assert network.peers[4].proof.members == frozenset(range(10))


def test_a_network_that_is_cut_and_heals():
    sides = frozenset(range(5)), frozenset(range(5, 10))
    network = Network(PARTS, chords(10), faults=Faults(partition=[(20, 300, list(sides[0]))]))
    network.go(299)
    for side in sides:
        exact = network.optima(side)
        for number in side:
            proof = network.peers[number].proof
            assert proof.members == side
            assert_brackets(proof, exact)
            assert proof.worst.relative < 1e-3
    network.until(1e-3, 400)
    exact = network.optima(range(10))
    for peer in network.peers.values():
        assert_brackets(peer.proof, exact)


def test_a_cut_that_stays_leaves_two_networks():
    """None may stop before both have found that they are two."""
    network = Network(PARTS, chords(10), faults=Faults(partition=[(1, 10**9, list(range(5)))]))
    network.go(200)
    assert {peer.proof.members for peer in network.peers.values()} == {frozenset(range(5)), frozenset(range(5, 10))}


def test_every_record_reaches_everybody_though_half_of_all_messages_are_lost(seed):
    network = Network(PARTS, chords(10), fan_out=2, seed=seed, faults=Faults(drop=0.5)).go(150)
    for kind in KINDS:
        written = {number: peer.table.newest[kind].get(number) for number, peer in network.peers.items()}
        for peer in network.peers.values():
            for number, own in written.items():
                if own is None:
                    assert kind in (Proposal, Query, Accusation)  # which only one makes, or nobody
                    continue
                known = peer.table.newest[kind][number]
                late = own.number - known.number
                assert late == 0 if kind is Moments else 0 <= late <= 60


def test_the_ledger_counts_what_peers_sent_and_peers_what_they_received():
    network = Network(PARTS, chords(10), faults=Faults(drop=0.3, duplicate=0.2)).go(40)
    sent = [peer.traffic for peer in network.peers.values()]
    ledger = network.comm.ledger
    assert ledger.rounds == 40
    assert ledger.messages == sum(each.messages_sent for each in sent) == 40 * 30
    assert ledger.bytes == sum(each.bytes_sent for each in sent)
    received = sum(each.messages_received for each in sent)
    assert received / ledger.messages == pytest.approx(0.7 * 1.2, abs=0.05)
    # A message is two arrays of d numbers and a header; the rest are records.
    assert ledger.bytes > ledger.messages * (32 + 2 * 6 * 8)


def test_bytes_that_are_received_are_those_that_were_sent():
    network = Network(PARTS, chords(10)).go(30)
    before = sum(peer.traffic.bytes_sent for peer in network.peers.values())
    for to, message in network.state.wire.arrivals():
        network.peers[to].receive(message)
    assert sum(peer.traffic.bytes_received for peer in network.peers.values()) == before


def test_rows_that_arrive_change_the_problem_and_no_old_proof_stays():
    network = Network(PARTS, chords(10))
    network.until(1e-3, 200)
    before = network.optima(range(10))
    more, codes = overlapping_rows(60, seed=9)
    network.peers[6].add_rows(PeerRows.of(more, 1 - codes, np.ones(60), 2, has_constant=False))
    exact = network.optima(range(10))
    assert exact[0] > before[0] + 1e-2
    assert network.peers[6].proof is None
    for _ in range(40):
        network.go()
        for peer in network.peers.values():
            if peer.proof is not None:  # of the rows before, or of all: each with the sum of weights it was made of
                assert_brackets(peer.proof, {200.0: before, 260.0: exact}[peer.proof.total])
    network.until(1e-3, 400)
    for peer in network.peers.values():
        assert peer.proof.total == 260.0
        assert_brackets(peer.proof, exact)


def test_rows_that_arrive_again_and_again_under_faults(seed):
    """No mixture of old costs and new weights, however late records are."""
    rng = np.random.default_rng(seed)
    faults = Faults(drop=0.3, delay=(0, 4), reorder=0.2)
    network = Network(PARTS, chords(10), fan_out=2, seed=seed, faults=faults)
    exact = {200.0: network.optima(range(10))}
    for burst in range(4):
        for _ in range(25):
            network.go()
            for peer in network.peers.values():
                proof = peer.proof
                if proof is not None and len(proof.members) == 10:
                    assert_brackets(proof, exact[proof.total])
        more, codes = overlapping_rows(40 + burst, seed=20 + burst)
        rows = PeerRows.of(more, 1 - codes, np.ones(len(codes)), 2, has_constant=False)
        network.peers[int(rng.integers(10))].add_rows(rows)
        exact[sum(peer.algorithm.rows.total for peer in network.peers.values())] = network.optima(range(10))
    network.until(1e-2, 600)


def test_peers_that_meet_become_one_network():
    """Two rings that know nothing of each other, until two peers do."""
    graph = {**ring(5), **{i + 5: [j + 5 for j in js] for i, js in ring(5).items()}}
    network = Network(PARTS, graph)
    network.until(1e-2, 300)
    assert network.peers[1].proof.members == frozenset(range(5))
    network.peers[2].add_neighbour(8)
    network.peers[8].add_neighbour(2)
    network.peers[2].add_neighbour(8)  # which changes nothing
    assert network.peers[2].neighbours == [1, 3, 8]
    network.until(1e-2, 300)
    assert network.peers[1].proof.members == frozenset(range(10))
    assert_brackets(network.peers[1].proof, network.optima(range(10)))


def test_a_newcomer_joins_with_its_rows():
    network = Network(PARTS, {**chords(9), 9: [0, 4]})
    del network.state.peers[9]
    network.go(100)
    newcomer = network.begin(9, 0)
    for number in (0, 4):
        network.peers[number].add_neighbour(9)
    network.peers[9] = newcomer
    network.until(1e-3, 400)
    assert newcomer.ticks > 100  # it keeps the time of the others
    assert newcomer.proof.members == frozenset(range(10))


def test_peers_that_are_idle_keep_the_time_of_others():
    network = Network(PARTS, chords(10), faults=Faults(idle=0.5)).go(100)
    times = [peer.ticks for peer in network.peers.values()]
    assert max(times) - min(times) <= 4
    assert min(times) >= 40
    tables = [peer.table for peer in network.peers.values()]
    assert all(table.common_tick() is not None for table in tables)


def test_a_network_that_nobody_has_certified_says_what_holds_for_any_data():
    network = Network(PARTS, chords(10)).go(1)
    assert network.simulation.certify(network.state) is None
    assert network.simulation.confirm(network.state) == (1.0, 0.0)


def test_nothing_is_certified_of_a_part_of_the_network():
    """At first each peer knows only itself, and one alone is done quickly: with a coarse gap all could stop there."""
    network = Network(PARTS, chords(10), fan_out=1)
    while network.simulation.certify(network.state) is None:
        network.go()
        for peer in network.peers.values():
            assert peer.proof is None or len(peer.proof.members) == 10
    assert network.state.wire.now > 2


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        (Faults(crash={12: 3}), r"\[12\]"),
        (Faults(partition=[(1, 2, [-1])]), r"\[-1\]"),
        (Faults(crash=dict.fromkeys(range(10), 5)), "every peer"),
    ],
)
def test_faults_of_peers_that_are_not_there(faults, says):
    with pytest.raises(ValueError, match=says):
        Network(PARTS, chords(10), faults=faults)


def test_all_may_be_gone_for_a_while():
    faults = Faults(crash=dict.fromkeys(range(10), 5), rejoin=dict.fromkeys(range(10), 9))
    network = Network(PARTS, chords(10), faults=faults).go(7)
    assert network.simulation.certify(network.state) is None
    network.until(1e-2, 200)


def test_snapshots_are_fewer_with_time():
    network = Network(PARTS, chords(10))
    counts = []
    for _ in range(4):
        before = network.comm.ledger.bytes
        network.go(100)
        counts.append(network.comm.ledger.bytes - before)
    assert counts[3] < 0.5 * counts[0]
    assert network.peers[0].table.newest[Snapshot][0].tick % 16 == 0


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize(("n_peers", "is_full"), [(3, True), (4, True), (4, False)])
def test_a_network_that_ran_long_certifies_changes_as_quickly_as_a_young_one(n_peers, is_full, scale):
    """Of rows and of peers, whatever is left of thousands of ticks at the optimum: its cuts, its rho, rare snapshots.

    A query takes two ticks where all are neighbours and a snapshot four, so that a few ticks more or less say nothing.
    """
    rows = X[:120] * np.logspace(0, np.log10(scale), X.shape[1])
    *parts, more = split(rows, CODES[:120], even(120, n_peers + 1))
    last = n_peers - 1

    def ticks_after(age):
        network = Network(parts, chords(n_peers), is_full=is_full).go(age)
        network.peers[1].add_rows(more)
        ticks = [network.until(1e-3, 500)]
        network.go(age // 4)
        del network.peers[last]
        ticks.append(next(n for n in range(1, 500) if _have_certified(network.go(), set(range(last)), 1e-3)))
        network.go(age // 4)
        network.peers[last] = network.begin(last, 1)
        return [*ticks, network.until(1e-3, 500)]

    for old, young in zip(ticks_after(1500), ticks_after(50), strict=True):
        assert old <= 1.5 * young + 10


def _have_certified(network, members, gap):
    proofs = [peer.proof for peer in network.peers.values()]
    return all(proof and proof.members == frozenset(members) and proof.worst.relative <= gap for proof in proofs)


def test_leaves_of_a_star_do_not_take_its_hub_for_gone():
    """It writes to one of eleven in a tick, and to each of them again after eleven: they wait by its neighbours."""
    network = Network(split(X, CODES, even(200, 12)), star(12), fan_out=1, is_full=False)
    network.go(60)
    for _ in range(150):
        network.go()
        assert all(0 in network.peers[leaf].live_neighbours for leaf in range(1, 12))
    del network.peers[0]
    network.go(12 * 11 + 2)
    assert all(network.peers[leaf].live_neighbours == [] for leaf in range(1, 12))
