"""The competitors of the gossip SVM's paper: they solve the problem, and what is called a bound is one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks import _gossip_runs as runs
from benchmarks.baselines import cutting_plane, gadget_as_printed, pegasos

from tests.problems_at_hand import overlapping
from widemargin.peers import topology

ALPHA = 1e-2


@pytest.fixture(scope="module")
def rows():
    X, y = overlapping(3, n=300)
    return runs.with_constant(X), y


@pytest.fixture(scope="module")
def optimum(rows):
    """LIBLINEAR's objective; the constant feature is a column."""
    X, y = rows
    C = 1 / (ALPHA * len(y))
    model = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=1_000_000).fit(X, y)
    return runs.objective(X, y, ALPHA, model.coef_[0])


def make(X, is_sparse):
    return sp.csr_matrix(X) if is_sparse else X


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_cutting_plane_ends_at_the_optimum_and_its_bounds_hold_all_the_way(rows, optimum, is_sparse):
    X, y = rows
    points = cutting_plane.train(make(X, is_sparse), y, ALPHA, tol=1e-6)
    assert points[-1].gap <= 1e-6
    assert points[-1].primal == pytest.approx(optimum, rel=2e-6)
    assert runs.objective(X, y, ALPHA, points[-1].w) == pytest.approx(points[-1].primal, rel=1e-12)
    for before, after in pairwise(points):
        assert after.dual <= optimum * (1 + 1e-9)
        assert after.primal >= optimum * (1 - 1e-8)
        assert after.primal <= before.primal
        assert after.dual >= before.dual


def test_the_cutting_plane_stops_at_its_limit(rows):
    X, y = rows
    points = cutting_plane.train(X, y, 1e-5, tol=0.0, max_rounds=7)
    assert [point.rounds for point in points] == [1, 2, 3, 4, 5, 6, 7]


def test_the_small_program_is_solved_exactly():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 30):
        planes = rng.normal(size=(n, 12))
        products, offsets = planes @ planes.T, rng.random(n)
        start = np.zeros(n)
        start[0] = 1.0
        beta = cutting_plane.maximise(products, offsets, start)
        assert beta.min() >= 0
        assert beta.sum() == pytest.approx(1.0)
        gains = offsets - products @ beta  # at the optimum equal where beta is positive, and nowhere larger
        assert gains.max() - beta @ gains <= 1e-8 * max(1.0, np.abs(products).max())


def test_the_small_program_bears_planes_that_are_equal():
    planes = np.ones((4, 3))
    beta = cutting_plane.maximise(planes @ planes.T, np.array([0.0, 1.0, 1.0, 0.5]), np.array([1.0, 0.0, 0.0, 0.0]))
    assert beta[1] + beta[2] == pytest.approx(1.0)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_pegasos_comes_near_the_optimum(rows, optimum, batch_size):
    X, y = rows
    points = pegasos.train(X, y, ALPHA, [1_000, 200_000], np.random.default_rng(0), batch_size)
    values = [runs.objective(X, y, ALPHA, point.w) for point in points]
    assert [point.steps for point in points] == [1_000, 200_000]
    assert optimum * (1 - 1e-8) <= values[1] < values[0]
    assert values[1] <= 1.03 * optimum


def test_pegasos_takes_the_steps_of_its_paper(rows):
    X, y = rows
    steps, alpha = 60, 1e-3
    drawn = np.random.default_rng(4).integers(len(y), size=(steps, 5))
    w = np.zeros(X.shape[1])
    for t, batch in enumerate(drawn, start=1):
        is_violated = y[batch] * (X[batch] @ w) < 1
        mean = (y[batch] * is_violated) @ X[batch] / 5
        w = (1 - 1 / t) * w + mean / (alpha * t)
        w *= min(1.0, 1 / (np.sqrt(alpha) * np.linalg.norm(w)))
    (point,) = pegasos.train(X, y, alpha, [steps], np.random.default_rng(4), 5)
    np.testing.assert_allclose(point.w, w, rtol=1e-9)


def test_pegasos_bears_a_penalty_so_small_that_every_step_leaves_the_ball(rows):
    X, y = rows
    (point,) = pegasos.train(X, y, 1e-9, [100_000], np.random.default_rng(0))
    assert np.isfinite(point.w).all()
    assert np.linalg.norm(point.w) <= 1e9**0.5 * (1 + 1e-9)


def test_pegasos_asks_for_checkpoints_that_grow(rows):
    with pytest.raises(ValueError, match="5 comes after 5"):
        pegasos.train(*rows, alpha=ALPHA, checkpoints=[5, 5], rng=np.random.default_rng(0))


def test_a_true_gap_is_that_of_the_worst_model(rows, optimum):
    X, y = rows
    best = runs.optimum(X[:, :-1], y, ALPHA, has_constant=True)
    assert best.objective == pytest.approx(optimum, rel=1e-5)
    models = np.stack([best.w, np.zeros_like(best.w)])
    assert runs.worst_gap(X, y, ALPHA, models, best.objective) == pytest.approx(1.0 / best.objective - 1.0)
    np.testing.assert_allclose(runs.errors(X, y, models)[1], np.mean(y > 0))


@pytest.fixture(scope="module")
def network(rows):
    X, y = rows
    graph = topology.build("random-regular", 6, 3, 0)
    return [(X[part], y[part]) for part in runs.parts(len(y), 6, 0)], graph


def test_push_sum_estimates_the_mean_at_every_node(network):
    _, graph = network
    values = np.random.default_rng(0).normal(size=(6, 4))
    for n_rounds, tolerance in ((1, None), (60, 1e-6)):
        found = gadget_as_printed.push_sum(values, graph, np.random.default_rng(1), n_rounds)
        off = np.abs(found - values.mean(axis=0)).max()
        assert off > 0.1 if tolerance is None else off < tolerance


def test_gadget_as_printed_goes_to_the_means_of_the_classes_and_its_rule_does_not_end_it(network, rows, optimum):
    shards, graph = network
    X, y = rows
    end = gadget_as_printed.train(shards, 1e-4, graph, np.random.default_rng(0), max_steps=1_500)
    assert not end.has_stopped
    best = runs.optimum(X[:, :-1], y, 1e-4, has_constant=True)
    assert min(runs.objective(X, y, 1e-4, w) for w in end.models) > 5 * best.objective
    mean = y @ X / len(y)
    cosines = end.models @ mean / (np.linalg.norm(end.models, axis=1) * np.linalg.norm(mean))
    assert cosines.min() > 0.98  # not a word about margins


@pytest.mark.parametrize("seed", range(3))
def test_with_the_indicator_its_rule_ends_it_at_the_thousandth_step_however_far_the_optimum_is(network, rows, seed):
    shards, graph = network
    X, y = rows
    stopped = gadget_as_printed.train(
        shards, 1e-4, graph, np.random.default_rng(seed), has_indicator=True, max_steps=5_000
    )
    assert stopped.has_stopped
    assert stopped.change <= gadget_as_printed.EPSILON
    assert stopped.steps >= 1_000  # the change of a step without a violated row is 1 / t
    best = runs.optimum(X[:, :-1], y, 1e-4, has_constant=True)
    assert min(runs.objective(X, y, 1e-4, w) for w in stopped.models) > 1.01 * best.objective


def test_deviations_are_of_nodes_within_trials_and_of_trials():
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    from benchmarks.gossip_paper import spread

    nodes = spread([{"accuracy": [0.8, 0.9]}, {"accuracy": [0.8, 0.9]}], "accuracy")
    trials = spread([{"accuracy": [0.8, 0.8]}, {"accuracy": [0.9, 0.9]}], "accuracy")
    both = spread([{"accuracy": [0.7, 0.9]}, {"accuracy": [0.8, 1.0]}], "accuracy")
    assert nodes == pytest.approx((0.85, 0.05))
    assert trials == pytest.approx((0.85, 0.05))
    assert both == pytest.approx((0.85, np.hypot(0.1, 0.05)))
