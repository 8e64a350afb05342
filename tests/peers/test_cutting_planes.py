"""The model of the objective that peers build of cuts: its minimum, its combinations, and what it costs in ticks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from tests.peers.networks import ALPHA, Network, chords, even, overlapping_rows, split
from widemargin.peers.cutting_planes import N_POINTS, Cut, CutTable, combined, minimise, points_of
from widemargin.peers.rows import PeerRows


def cuts_of(seed, n=24, d=3, k=2):
    rng = np.random.default_rng(seed)
    return rng.random(n), rng.normal(size=(n, d)), np.arange(n) % k


def height(w, sums, vectors, groups, alpha):
    """Of the model at a point."""
    planes = sums - vectors @ w
    return 0.5 * alpha * w @ w + sum(max(0.0, planes[groups == g].max()) for g in np.unique(groups))


@pytest.mark.parametrize("d", [3, 60], ids=["fewer features than cuts", "more"])
@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_the_minimum_has_no_gap(seed, d, alpha):
    sums, vectors, groups = cuts_of(seed, d=d)
    found = minimise(sums, vectors, groups, alpha, 1.0, 1e-11)
    assert found.weights.min() >= 0
    assert max(found.weights[groups == g].sum() for g in (0, 1)) <= 1 + 1e-12
    combination = found.weights @ vectors
    lower = sums @ found.weights - combination @ combination / (2 * alpha)
    upper = height(found.model, sums, vectors, groups, alpha)
    assert lower <= upper * (1 + 1e-12)
    assert upper - lower <= 1e-5 * upper
    assert upper <= height(found.central, sums, vectors, groups, alpha) <= upper + 0.3


def test_units_of_columns_do_not_matter():
    """The penalty apart, which is made small beside the rest."""
    sums, vectors, groups = cuts_of(0)
    units = np.array([1e-4, 1.0, 1e6])
    plain = minimise(sums, vectors, groups, 1e-14, 1.0, 1e-9)
    scaled = minimise(sums, vectors * units, groups, 1e-14, 1.0, 1e-9)
    assert sums @ scaled.weights == pytest.approx(sums @ plain.weights, rel=1e-5)


def exact(values):
    return [Fraction(float(value)) for value in values]


def test_a_combination_is_within_its_error_in_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, 4)) * 10.0 ** rng.integers(-8, 9, size=4)
    weight = rng.random(9)
    rows = PeerRows.of(X, rng.integers(2, size=9), weight, 2, has_constant=False)
    duals = [rng.random((1, 9)) * weight for _ in range(5)]
    shares = rng.random((5, 1))
    found = combined([rows.cut(dual) for dual in duals], shares, np.zeros((1, 4)))
    total = max(Fraction(1), sum(exact(shares[:, 0])))
    a = [
        sum(share * value for share, value in zip(exact(shares[:, 0]), exact(column), strict=True)) / total
        for column in np.array(duals)[:, 0].T
    ]
    assert all(value <= limit for value, limit in zip(a, exact(weight), strict=True))
    # The weights are divided in float64: the total may be off by a few roundings, which are allowed for.
    A = sum(a)
    assert Fraction(float(found.sums[0])) <= A
    assert float(found.sums[0]) == pytest.approx(float(A), rel=1e-13)
    V = [
        sum(value * Fraction(float(sign * x)) for value, sign, x in zip(a, rows.signs[0], column, strict=True))
        for column in X.T
    ]
    distance = sum((Fraction(float(v)) - w) ** 2 for v, w in zip(found.vectors[0], V, strict=True))
    assert distance <= Fraction(float(found.errors[0])) ** 2
    assert found.errors[0] <= 1e-13 * float(weight @ np.linalg.norm(X, axis=1))


@pytest.mark.parametrize("store", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_losses_are_never_below_the_exact_ones(seed, store):
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.integers(-6, 7, size=5)
    X, weight = rng.normal(size=(12, 5)) * units + 1e4 * units, rng.random(12)
    rows = PeerRows.of(store(X), rng.integers(2, size=12), weight, 2, has_constant=False)
    models = rng.normal(size=(3, 1, 5)) / units
    upper, allowance = rows.hinge_sums(models)
    for k, (w,) in enumerate(models):
        true = sum(
            m * max(Fraction(0), 1 - Fraction(int(y)) * sum(p * q for p, q in zip(exact(x), exact(w), strict=True)))
            for m, y, x in zip(exact(weight), rows.signs[0], X, strict=True)
        )
        assert Fraction(float(upper[k, 0])) >= true
        assert upper[k, 0] - float(true) <= 2 * allowance[k, 0] + 1e-12 * float(true)


def test_what_is_kept_is_what_is_used_and_new():
    table, cut = CutTable(1), Cut(np.ones(1), np.ones((1, 1)), np.zeros(1))
    table.add(0, [(5, cut)])
    table.note_use(np.array([0]), np.array([5]), np.array([[0.5]]))
    for number in range(10, 1000):
        table.add(0, [(number, cut)])
    kept = table.by_peer[0]
    assert 5 in kept
    assert 999 in kept
    assert 10 not in kept
    assert len(kept) <= 400
    table.forget(0)
    assert table.of([0]) == []


def test_new_cuts_are_kept_for_a_query_to_see_where_all_old_ones_are_used():
    table, cut = CutTable(1), Cut(np.ones(1), np.ones((1, 1)), np.zeros(1))
    for number in range(1000):
        table.add(0, [(number, cut)])
    old = np.array(sorted(table.by_peer[0]))
    table.note_use(np.zeros_like(old), old, np.ones((len(old), 1)))
    for number in range(1000, 1000 + len(old) // 2):
        table.add(0, [(number, cut)])
    assert table.by_peer[0].keys() >= set(range(1000, 1000 + len(old) // 2))
    assert len(table.by_peer[0]) == len(old)


def test_a_peer_remembers_its_own_cuts_longer_than_others_do():
    cut = Cut(np.ones(1), np.ones((1, 1)), np.zeros(1))
    of_peer, of_other = CutTable(0), CutTable(1)
    for table in (of_peer, of_other):
        for peer in (1, 2, 3):
            table.add(peer, [(0, cut)])
    for number in range(4000):
        of_peer.add(0, [(number, cut)])
        if number % 2 == 0:  # the other records were replaced before they were sent
            of_other.add(0, [(number, cut)])
        assert of_peer.own().keys() >= of_other.by_peer.get(0, {}).keys()
    assert len(of_peer.by_peer[0]) == len(of_other.by_peer[0])
    assert len(of_peer.own()) <= 4 * 400
    of_peer.forget_others()
    assert of_peer.by_peer.keys() == {0}
    of_peer.forget(0)
    assert of_peer.own() == {}


def test_points_lie_between_the_models():
    models = np.arange(12.0).reshape(3, 1, 4)
    points = points_of(models)
    assert points.shape == (N_POINTS, 1, 4)
    assert any((point == models[1]).all() for point in points)
    assert any((point == models[2]).all() for point in points)


def hard(name, rng):
    """Rows on which ADMM alone does not come to an end."""
    X, codes = overlapping_rows(120)
    match name:
        case "units":
            return X * 10.0 ** np.linspace(-4, 6, X.shape[1]), codes
        case "offsets":
            return np.hstack([X[:, :-1] + 1e4, X[:, -1:]]), codes
        case "constant":
            return np.hstack([X, np.full((120, 1), 1e8)]), codes
        case "wide":
            centre = np.exp(rng.normal(size=900) + 4)
            return np.hstack([centre * np.exp(0.4 * rng.normal(size=(120, 900))), np.ones((120, 1))]), codes


@pytest.mark.parametrize("name", ["units", "offsets", "constant", "wide"])
@pytest.mark.parametrize("n_peers", [2, 6])
def test_any_rows_end_by_their_gap(name, n_peers):
    X, codes = hard(name, np.random.default_rng(0))
    network = Network(split(X, codes, even(120, n_peers)), chords(n_peers), alpha=1e-4, is_full=name != "wide")
    network.until(1e-3, 400)


def test_a_peer_that_restarts_learns_the_cuts_of_the_others():
    X, codes = hard("units", None)
    network = Network(split(X, codes, even(120, 4)), chords(4), alpha=ALPHA)
    network.until(1e-3, 400)
    network.state.peers[0] = network.begin(0, 1)  # the one that asks
    network.until(1e-3, 400)
    assert network.peers[0].table.cuts.by_peer.keys() == {0, 1, 2, 3}


def test_rounding_ends_the_search():
    X, codes = overlapping_rows(60)
    network = Network(split(X, codes, even(60, 3)), chords(3))
    for _ in range(800):
        network.go()
        if network.simulation.stop_reason(network.state) == "precision":
            break
    assert network.simulation.stop_reason(network.state) == "precision"
    worst = network.simulation.certify(network.state)
    assert 0 < worst.relative < 1e-9


def test_the_oracle_of_these_tests_finds_the_minimum():
    sums, vectors, groups = cuts_of(1)
    found = minimise(sums, vectors, groups, 0.5, 1.0, 1e-9)
    other = minimize(height, np.zeros(3), (sums, vectors, groups, 0.5), "Nelder-Mead", options={"xatol": 1e-10})
    assert height(found.model, sums, vectors, groups, 0.5) <= other.fun * (1 + 1e-8)
