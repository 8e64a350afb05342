"""Push-Sum: the mass that must not be lost, and the optimum it leads to."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.peers.networks import ALPHA, Network, chords, even, objective, optimum, overlapping_rows, ring, split, star
from widemargin.comm.faults import Faults
from widemargin.peers.push_sum import PushSum
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

X, CODES = overlapping_rows(120)
Y = np.where(CODES == 1, 1.0, -1.0)
BY_LABEL = np.argsort(CODES, kind="stable")
UNEVEN = [40, 10, 20, 30, 15, 5]


def pushing(faults=None, sizes=UNEVEN, alpha=0.1, **more):
    parts = split(X, CODES, sizes, order=BY_LABEL)
    settings = {"graph": chords(len(sizes)), "solver": "push-sum", "faults": faults or Faults()} | more
    return Network(parts, alpha=alpha, **settings)


def held(network):
    """Pairs of those that are there."""
    return sum(peer.algorithm.pair for peer in network.peers.values())


def under_way(network):
    """What was given on edges between those that are there and has not been taken."""
    total = 0.0
    for number, peer in network.peers.items():
        for j, edge in peer.algorithm.edges.items():
            other = network.peers.get(j)
            if other is not None and other.algorithm._identifier == edge.identifier:
                back = other.algorithm.edges.get(number)
                is_known = back is not None and back.identifier == peer.algorithm._identifier
                total = total + edge.given - (back.taken if is_known else 0.0)
    return total


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(drop=0.05),
        Faults(drop=0.5, delay=(0, 3), duplicate=0.2, reorder=0.2, idle=0.3),
        Faults(partition=[(50, 400, [0, 1, 2])]),
    ],
    ids=["sound", "loss", "everything", "cut"],
)
@pytest.mark.parametrize("shape", [{"fan_out": 1}, {"fan_out": 3}, {"graph": star(6)}], ids=["1", "3", "star"])
def test_mass_is_conserved_for_thousands_of_ticks(faults, shape):
    network = pushing(faults, **shape)
    for _ in range(2):
        network.go(500)
        weight = held(network)[0] + under_way(network)[0]
        assert weight == pytest.approx(120.0, rel=1e-9)
        assert min(peer.algorithm.pair[0] for peer in network.peers.values()) > 0


def test_sums_are_conserved_too_where_no_step_is_made():
    """The mean of what peers begin with, exactly: Push-Sum itself."""
    network = pushing(Faults(drop=0.3), rounds=10**9)
    rng = np.random.default_rng(0)
    network.go(1)  # the only step
    for peer in network.peers.values():
        peer.algorithm.pair[1:] = rng.normal(size=6) * peer.algorithm.rows.total
    mean = (held(network) + under_way(network))[1:] / 120
    network.go(400)
    for peer in network.peers.values():
        np.testing.assert_allclose(peer.algorithm.pair[1:] / peer.algorithm.pair[0], mean, rtol=1e-6)


def test_a_share_that_was_lost_arrives_with_the_next_letter():
    rng = np.random.default_rng
    one, other = (PushSum(MeanHinge(ALPHA), PeerRows(X[:9], Y[None, :9], np.ones(9)), rng(k)) for k in (0, 1))
    one.receive(1, other.payload(0))
    other.receive(0, one.payload(1))
    one.work()
    one.divide_among([1])
    given = one._share.copy()
    one.payload(1)  # which is lost
    one.work()
    one.divide_among([1])
    given += one._share
    other.receive(0, one.payload(1))
    np.testing.assert_allclose(other.pair, np.concatenate([[9.0], np.zeros(6)]) + given)
    assert one.pair[0] + other.pair[0] == pytest.approx(18.0)


def test_what_is_not_fetched_stays_and_shares_are_by_those_that_may_be_written_to():
    network = pushing(fan_out=2).go(3)
    algorithm, readers = network.peers[0].algorithm, network.peers[0].neighbours[:2]
    before = algorithm.pair[0]
    algorithm.rounds = 10**9
    algorithm.work()
    algorithm.divide_among(readers)
    assert algorithm._share[0] == pytest.approx(before / 3)
    assert algorithm.pair[0] == before
    algorithm.payload(readers[0])
    assert algorithm.pair[0] == pytest.approx(before * 2 / 3)


def test_a_peer_that_dies_takes_what_it_had_and_little_more():
    """The others keep their mass but for a few shares that were given before it was missed."""
    network = pushing(Faults(crash={3: 200}), sizes=even(120, 6)).go(199)
    before = sum(peer.algorithm.pair[0] for number, peer in network.peers.items() if number != 3)
    network.go(60)
    after = held(network)[0] + under_way(network)[0]
    assert after >= 0.5 * before
    network.go(1000)  # probes give nothing
    assert held(network)[0] + under_way(network)[0] == pytest.approx(after, rel=1e-9)


def test_a_peer_that_begins_anew_brings_its_own_and_gets_nothing_meant_for_the_former():
    network = pushing(Faults(crash={3: 200}, rejoin={3: 500}), sizes=even(120, 6)).go(499)
    before = held(network)[0] + under_way(network)[0]
    network.go(1)
    assert held(network)[0] + under_way(network)[0] == pytest.approx(before + 20.0, rel=1e-9)
    network.go(1000)
    assert held(network)[0] + under_way(network)[0] == pytest.approx(before + 20.0, rel=1e-9)
    pairs = [peer.algorithm.pair for peer in network.peers.values()]
    assert min(pair[0] for pair in pairs) > 0.1
    assert network.peers[3].algorithm.steps > 1000  # it went on with the steps of the others


def test_a_peer_that_begins_anew_at_once_is_noticed_by_its_name():
    """Without silence in between: messages for the former incarnation are under way and already there."""
    network = pushing(sizes=even(120, 6), faults=Faults(delay=2)).go(100)
    network.state.peers[2] = network.begin(2, 1)
    network.go(10)  # until all know
    before = held(network)[0] + under_way(network)[0]
    assert 60 < before < 180
    network.go(300)
    assert held(network)[0] + under_way(network)[0] == pytest.approx(before, rel=1e-9)


def test_rows_that_arrive_bring_mass_and_leave_the_model_as_it_is():
    network = pushing().go(100)
    algorithm = network.peers[1].algorithm
    before, iterate = held(network)[0] + under_way(network)[0], algorithm._iterate()
    network.peers[1].add_rows(PeerRows(X[:7], Y[None, :7], np.full(7, 2.0)))
    assert held(network)[0] + under_way(network)[0] == pytest.approx(before + 14.0)
    np.testing.assert_allclose(algorithm._iterate(), iterate, rtol=1e-12)
    mass, *_ = algorithm.bounds()
    assert 0 <= mass[0] <= algorithm.rows.total
    network.go(200)
    assert network.peers[0].proof.total == pytest.approx(134.0)


@pytest.mark.parametrize("rounds", [1, 3])
def test_it_nears_the_optimum_on_sorted_labels_and_uneven_shards(rounds):
    """Every row counts alike, wherever it lies."""
    exact = optimum(X, Y, alpha=0.1)
    network = pushing(rounds=rounds).go(1000 * rounds)
    for peer in network.peers.values():
        assert peer.algorithm.steps == 1000
        assert objective(peer.algorithm.model[0], X, Y, np.ones(120), 0.1) <= 1.02 * exact


def test_dual_variables_stay_within_their_limits(seed):
    network = pushing(seed=seed)
    for _ in range(50):
        network.go(3)
        for peer in network.peers.values():
            dual = peer.algorithm._violated * peer.algorithm.rows.weight
            assert (dual >= 0).all()
            assert (dual <= peer.algorithm.rows.weight).all()
            mass, pull, _ = peer.algorithm.bounds()
            np.testing.assert_allclose(pull, (dual * peer.algorithm.rows.signs) @ peer.algorithm.rows.X)
            assert mass == pytest.approx(dual.sum(axis=1))


def test_dense_and_sparse_rows_give_the_same_models():
    networks = [
        Network(split(rows, CODES, UNEVEN), chords(6), solver="push-sum").go(100) for rows in (X, sp.csr_matrix(X))
    ]
    models = [np.array([peer.algorithm.model for peer in network.peers.values()]) for network in networks]
    np.testing.assert_allclose(*models, rtol=1e-8, atol=1e-10)


def test_steps_are_the_algorithm_s():
    """One peer, all rows in every step: Algorithm 2 with its indicator, in four lines."""
    rows = PeerRows(X, Y[None], np.ones(120))
    network = Network([rows], {0: []}, solver="push-sum", batch_size=120, alpha=0.05).go(40)
    w, mean = np.zeros(6), np.zeros(6)
    for t in range(1, 41):
        mean += (w - mean) * 2 / (t + 1)
        push = (Y * (Y * (X @ w) < 1)) @ X / 120
        w = w + (push - 0.05 * w) / (0.05 * (t + 1 / 0.05))
    np.testing.assert_allclose(network.peers[0].algorithm._iterate()[0], w, rtol=1e-9)
    np.testing.assert_allclose(network.peers[0].algorithm.model[0], mean, rtol=1e-9)


def test_a_peer_without_rows_passes_on_what_it_gets():
    parts = [*split(X, CODES, [60, 60]), PeerRows(X[:0], Y[None, :0], np.ones(0))]
    network = Network(parts, ring(3), solver="push-sum", alpha=0.1).go(300)
    assert network.peers[2].proof.members == frozenset(range(3))
    exact = optimum(X, Y, alpha=0.1)
    assert objective(network.peers[2].model[0], X, Y, np.ones(120), 0.1) <= 1.1 * exact
