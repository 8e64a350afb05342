"""ADMM in a metric, where data are odd: few rows, none, of one class, of zeros, of any scale."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.peers.networks import ALPHA, Network, assert_brackets, chords, even, overlapping_rows, ring, split
from widemargin.peers import admm
from widemargin.peers.admm import GossipADMM
from widemargin.peers.records import Moments
from widemargin.peers.rows import PeerRows
from widemargin.peers.store import RecordStore
from widemargin.problems.mean_hinge import MeanHinge

X, CODES = overlapping_rows(90)
PARTS = split(X, CODES, even(90, 6))
EMPTY = PeerRows(X[:0], np.ones((1, 0)), np.ones(0))
WEIGHTLESS = PeerRows(X[:5], np.ones((1, 5)), np.zeros(5))


def certified(network, gap=1e-3, ticks=1500):
    network.until(gap, ticks)
    exact = network.optima(range(len(network.parts)))
    for peer in network.peers.values():
        assert_brackets(peer.proof, exact)
    return network


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "diagonal"])
@pytest.mark.parametrize("k", [1, 2])
def test_networks_of_one_peer_and_of_two(k, is_full):
    graph = {0: []} if k == 1 else {0: [1], 1: [0]}
    certified(Network(split(X, CODES, even(90, k)), graph, is_full=is_full), 1e-5)


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "diagonal"])
@pytest.mark.parametrize("extra", [EMPTY, WEIGHTLESS], ids=["no rows", "no weight"])
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "csr"])
def test_a_peer_that_has_nothing_to_say(extra, is_full, is_sparse):
    """It passes on what it hears, its word on rho does not count, and it knows the optimum of the others."""
    parts = [*PARTS[:3], extra]
    if is_sparse:
        parts = [PeerRows(sp.csr_matrix(part.X), part.signs, part.weight) for part in parts]
    network = certified(Network(parts, ring(4), is_full=is_full))
    assert network.peers[3].proof.total == 45.0
    assert 0 < network.peers[3].algorithm.rho == network.peers[0].algorithm.rho


def test_a_network_without_any_weight_certifies_nothing_and_does_not_fail():
    network = Network([WEIGHTLESS, EMPTY, WEIGHTLESS], ring(3)).go(40)
    assert all(peer.proof is None for peer in network.peers.values())
    assert all(np.isfinite(peer.model).all() for peer in network.peers.values())


def test_one_class_only():
    """At a peer, and everywhere."""
    order = np.argsort(CODES, kind="stable")
    certified(Network(split(X, CODES, even(90, 6), order=order), chords(6)))
    certified(Network(split(X, np.ones(90, dtype=int), even(90, 3)), ring(3)))


def test_rows_of_zeros_and_features_that_are_constant_or_missing():
    rows = np.hstack([X, np.zeros((90, 2)), np.full((90, 1), 3.0)])
    rows[::7] = 0.0
    for is_full in (True, False):
        certified(Network(split(rows, CODES, even(90, 3)), ring(3), is_full=is_full))
    nothing = Network(split(np.zeros((90, 4)), CODES, even(90, 3)), ring(3)).go(12)
    assert all(peer.proof.worst == pytest.approx((1.0, 1.0), rel=1e-13) for peer in nothing.peers.values())


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_features_of_very_different_scales(scale):
    """In units in which the penalty matters little, the metric makes them alike."""
    rows = X.copy()
    rows[:, 0] *= scale
    alpha = 1e-6 if scale > 1 else ALPHA
    network = Network(split(rows, CODES, even(90, 3)), ring(3), alpha=alpha)
    network.until(1e-2, 2000)
    assert all(np.isfinite(peer.model).all() for peer in network.peers.values())


def test_rho_does_not_run_away_at_the_end():
    """Thousands of suggestions that are made of rounding errors."""
    network = Network(split(X[:30], CODES[:30], [10, 10, 10]), ring(3)).go(1200)
    first = network.peers[0].algorithm._first_rho()
    for peer in network.peers.values():
        assert first / admm._MAX_RHO_CHANGE <= peer.algorithm.rho <= first * admm._MAX_RHO_CHANGE
        assert peer.proof.worst.relative < 1e-9


def test_a_suggestion_stays_within_its_range_whatever_residuals_say():
    algorithm = GossipADMM(MeanHinge(ALPHA), PARTS[0], np.random.default_rng(0), False)
    first = algorithm.rho
    for moved, apart, limit in ((1.0, 1e9, first * admm._MAX_RHO_CHANGE), (1e9, 1.0, first / admm._MAX_RHO_CHANGE)):
        for _ in range(200):
            algorithm._moved, algorithm._apart = moved, apart
            algorithm.set_rho(algorithm.suggest_rho())
        assert algorithm.rho == pytest.approx(limit, rel=0.02)
    before = algorithm.suggestion
    assert algorithm.suggest_rho() == before  # nothing was heard since


def test_the_metric_is_the_mean_second_moment_of_all_rows():
    algorithms = [GossipADMM(MeanHinge(ALPHA), part, np.random.default_rng(0), True) for part in PARTS]
    moments = [algorithm.moments(k, 1) for k, algorithm in enumerate(algorithms)]
    algorithms[0].set_metric(algorithms[0].metric_of(moments))
    moment = X.T @ X / 90
    floor = admm._METRIC_FLOOR * np.diag(moment)
    np.testing.assert_allclose(algorithms[0].metric, moment + np.diag(floor), rtol=1e-5, atol=1e-6)
    diagonal = GossipADMM(MeanHinge(ALPHA), PARTS[0], np.random.default_rng(0), False)
    diagonal.set_metric(diagonal.metric_of([Moments(0, 1, 90.0, np.diag(X.T @ X).astype(np.float32))]))
    np.testing.assert_allclose(diagonal.metric, np.diag(moment) + floor, rtol=1e-5)


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "diagonal"])
@pytest.mark.parametrize("value", [1e20, 1e200])
def test_squares_that_cannot_be_told_are_named_before_anything_is_solved(is_full, value):
    rows = X[:10].copy()
    rows[3, 2] = value
    (part,) = split(rows, CODES[:10], [10])
    with pytest.raises(ValueError, match=r"add up to (1e\+40|inf) over .* scale the features"):
        GossipADMM(MeanHinge(ALPHA), part, np.random.default_rng(0), is_full)
    (part,) = split(rows * 1e-182, CODES[:10], [10])
    GossipADMM(MeanHinge(ALPHA), part, np.random.default_rng(0), is_full)


def test_moments_that_are_none_do_not_stop_a_peer():
    """Each pair of features could be; all three together are of no rows."""
    (part,) = split(X[:10, :3], CODES[:10], [10])
    algorithm = GossipADMM(MeanHinge(ALPHA), part, np.random.default_rng(0), True)
    moment = np.array([1, -1, -1, 1, -1, 1], dtype=np.float32)
    assert RecordStore().size_of(Moments(1, 1, 1.0, moment), algorithm.model, moment) > 0
    algorithm.set_metric(algorithm.metric_of([Moments(1, 1, 1.0, moment)]))
    np.testing.assert_allclose(algorithm.metric, (1 + admm._METRIC_FLOOR) * np.eye(3))
    algorithm.work()
    assert np.isfinite(algorithm.model).all()


def test_rows_that_are_too_many_to_keep_in_the_metric_are_made_anew_in_blocks(monkeypatch):
    kept = Network(PARTS, chords(6)).go(20)
    monkeypatch.setattr(admm, "_IMAGE_BYTES", 0)
    anew = Network(PARTS, chords(6)).go(20)
    for number in range(6):
        np.testing.assert_allclose(kept.peers[number].model, anew.peers[number].model, rtol=1e-12)
    monkeypatch.setattr(admm, "_BLOCK_ROWS", 4)
    certified(Network(PARTS, chords(6)))


def test_peers_whose_metrics_differ_for_a_while_converge():
    """Moments arrive late where each writes to one neighbour at a time, and prices of two metrics do not cancel.

    With fewer rows than features the metrics of a few peers and of all differ much.
    """
    rows, codes = overlapping_rows(160, d=30)
    order = np.argsort(codes, kind="stable")
    network = Network(split(rows, codes, even(160, 16), order=order), chords(16), fan_out=1)
    certified(network, 1e-3, 1500)


def test_a_price_in_another_metric_is_dropped():
    one, other = (GossipADMM(MeanHinge(ALPHA), part, np.random.default_rng(0), True) for part in PARTS[:2])
    for algorithm in (one, other):
        algorithm.work()
    other.neighbours[0] = admm.Neighbour(one.model, np.ones_like(one.model))
    one.receive(1, other.payload(0))
    assert not one.neighbours[1].price.any()
    np.testing.assert_array_equal(one.neighbours[1].centre, other.model)
    both = [each.moments(k, 1) for k, each in enumerate((one, other))]
    for algorithm in (one, other):
        algorithm.set_metric(algorithm.metric_of(both))
        algorithm.work()
    other.neighbours[0] = admm.Neighbour(one.model, np.ones_like(one.model))
    message = other.payload(0)
    one.receive(1, message)
    np.testing.assert_array_equal(one.neighbours[1].price.ravel(), -message[1 + one.model.size :])


def test_the_fixed_point_is_the_optimum_whatever_rho_was():
    """Prices of both sides cancel, and all stand where their neighbours do."""
    network = Network(PARTS, chords(6)).go(600)
    for number, peer in network.peers.items():
        for j, (centre, price) in peer.algorithm.neighbours.items():
            back = network.peers[j].algorithm.neighbours[number]
            np.testing.assert_allclose(centre, peer.algorithm.model, atol=1e-5)
            np.testing.assert_allclose(price, -back.price, atol=1e-4 * max(1.0, np.abs(price).max()))
