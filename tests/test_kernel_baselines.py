"""The competitors of the batch perceptron paper, beside plain twins and exact answers; from a checkout only."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import fourier_features, kernel_sbp, kernel_smo
from benchmarks.baselines.kernel_pegasos import Pegasos
from benchmarks.baselines.kernel_perceptron import Gaussian, Perceptron, rows_of, walk
from benchmarks.baselines.kernel_sdca import DualAscent

GAMMA, C = 2.0, 3.0
SINGLE = 1e-4  # what float32 kernel values leave of an objective
FOR_EVER = [10**9]  # a checkpoint that is not reached


@pytest.fixture(scope="module")
def moons():
    X, labels = make_moons(160, noise=0.25, random_state=0)
    return X, np.where(labels > 0, 1.0, -1.0)


def objectives(X, y, beta):
    """Primal and dual of the C-SVM without bias, each over C n, in float64."""
    scores = rbf_kernel(X, gamma=GAMMA) @ beta
    half = 0.5 * beta @ scores
    return (half + C * np.maximum(0.0, 1.0 - y * scores).sum()) / (C * len(y)), (y @ beta - half) / (C * len(y))


@pytest.fixture(scope="module")
def exact(moons):
    """Coefficients and value of the optimum, by a generic method; the two objectives prove it."""
    X, y = moons
    Q = y[:, None] * rbf_kernel(X, gamma=GAMMA) * y
    found = minimize(lambda a: (0.5 * a @ Q @ a - a.sum(), Q @ a - 1.0), np.zeros(len(y)), jac=True, method="L-BFGS-B",
                     bounds=[(0.0, C)] * len(y), options={"maxiter": 50_000, "ftol": 1e-15, "gtol": 1e-9})  # fmt: skip
    primal, dual = objectives(X, y, y * found.x)
    assert 0 <= primal - dual <= 1e-6
    return y * found.x, primal


def plain_walk(X, y, order, step):
    """The row-by-row algorithm: coefficients after all rows of ``order``, and how many rows were due."""
    K, beta, n_steps = rbf_kernel(X, gamma=GAMMA), np.zeros(len(y)), 0
    for t, i in enumerate(order, start=1):
        change = step(y[i] * (K[i] @ beta), y[i] * beta[i], t)
        beta[i] += y[i] * change
        n_steps += change != 0
    return beta, n_steps


RULES = {
    "perceptron": (Perceptron(), lambda margin, alpha, t: float(margin <= 0)),
    "pegasos": (Pegasos(1 / 480), lambda margin, alpha, t: float(margin < t / 480)),
    "sdca": (DualAscent(C), lambda margin, alpha, t: np.clip(alpha + 1 - margin, 0, C) - alpha),
    "sdca, permuted": (DualAscent(C, True), lambda margin, alpha, t: np.clip(alpha + 1 - margin, 0, C) - alpha),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("count_draws", [False, True])
def test_blocks_do_not_change_the_walk(moons, name, count_draws):
    X, y = moons
    rule: Any
    (rule, step), rng = RULES[name], np.random.default_rng(1)
    order = np.concatenate([rule.order(len(y), rng) for _ in range(5)])
    beta, n_steps = plain_walk(X, y, order, step)
    points, found = walk(rule, X, y, X, y, GAMMA, FOR_EVER, np.random.default_rng(1), 5, count_draws)
    np.testing.assert_allclose(found, beta, atol=1e-3)
    assert points[-1].draws == 5 * len(y)
    assert points[-1].n_support == np.count_nonzero(found)
    if count_draws:
        assert points[-1].kernel_evaluations == 5 * len(y) ** 2
    else:
        # Rounding of kernel values may turn a step of zero length into one of none.
        assert abs(points[-1].kernel_evaluations / len(y) - n_steps) <= 5


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("count_draws", [False, True])
def test_points_are_where_they_were_asked_for(moons, name, count_draws):
    X, y = moons
    asked = [len(y) * rows for rows in (1, 2, 17, 60)]
    points, _ = walk(RULES[name][0], X, y, X, y, GAMMA, asked, np.random.default_rng(0), 50, count_draws)
    assert [point.kernel_evaluations for point in points] == asked
    assert all(0 <= point.test_error <= 1 and point.seconds > 0 for point in points)
    # A point does not depend on whether others were asked for.
    alone, _ = walk(RULES[name][0], X, y, X, y, GAMMA, asked[-1:], np.random.default_rng(0), 50, count_draws)
    assert alone[0].test_error == points[-1].test_error
    assert alone[0].n_support == points[-1].n_support


def test_sdca_and_smo_reach_the_optimum(moons, exact):
    X, y = moons
    best, optimum = exact
    labels = np.sign(rbf_kernel(X, gamma=GAMMA) @ best)
    results = [
        walk(DualAscent(C), X, y, X, labels, GAMMA, FOR_EVER, np.random.default_rng(0), 300),
        kernel_smo.solve(X, y, X, labels, GAMMA, C, FOR_EVER, 300, tol=1e-5),
    ]
    for points, beta in results:
        assert (y * beta >= -1e-12).all()
        assert (y * beta <= C + 1e-12).all()
        primal, dual = objectives(X, y, beta)
        assert primal - optimum <= SINGLE
        assert optimum - dual <= SINGLE
        assert points[-1].test_error == 0.0


def test_pegasos_nears_the_optimum(moons, exact):
    X, y = moons
    lambda_ = 1 / (C * len(y))
    excess = []
    for epochs in (10, 1_000):
        points, beta = walk(Pegasos(lambda_), X, y, X, y, GAMMA, FOR_EVER, np.random.default_rng(0), epochs)
        excess.append(objectives(X, y, beta / (lambda_ * points[-1].draws))[0] - exact[1])
    # The bound is log(T) / (lambda T): .01 after 160,000 draws, before constants.
    assert 0 <= excess[1] <= 0.01
    assert excess[1] < excess[0]


def test_perceptron_ends_without_mistakes_where_rows_are_separable(moons):
    X, y = moons
    points, beta = walk(Perceptron(), X, y, X, y, 200.0, FOR_EVER, np.random.default_rng(0), 60)
    assert points[-1].test_error == 0.0
    assert np.array_equal(beta, np.round(beta))


def test_smo_counts_rows_by_its_cache(moons):
    X, y = moons
    (large, *_), beta = kernel_smo.solve(X, y, X, y, GAMMA, C, FOR_EVER, 300)
    megabytes = 64 * 4 * len(y) / 2**20
    (small, *_), same = kernel_smo.solve(X, y, X, y, GAMMA, C, FOR_EVER, 300, cache_size=megabytes)
    np.testing.assert_allclose(same, beta, atol=1e-5)
    assert small.draws == large.draws
    assert large.n_support * len(y) <= large.kernel_evaluations <= len(y) ** 2
    assert large.kernel_evaluations < small.kernel_evaluations <= small.draws * len(y)


def test_smo_gains_most_at_each_step(moons):
    X, y = moons
    K, beta = rbf_kernel(X, gamma=GAMMA), np.zeros(len(y))
    for _ in range(40):
        slope, alpha = 1 - y * (K @ beta), y * beta
        step = np.clip(alpha + slope, 0, C) - alpha
        i = np.argmax(step * (slope - step / 2))
        beta[i] += y[i] * step[i]
    points, found = kernel_smo.solve(X, y, X, y, GAMMA, C, [len(y) * np.count_nonzero(beta)])
    np.testing.assert_allclose(found[beta == 0], 0.0)
    assert points[0].draws >= 40


def test_a_bias_moves_few_labels_here(moons, exact):
    """The generic answer is that of LIBSVM, but for the bias that these methods do not have."""
    X, y = moons
    peer = SVC(C=C, gamma=GAMMA, tol=1e-6).fit(X, y)
    assert np.mean(peer.predict(X) != np.sign(rbf_kernel(X, gamma=GAMMA) @ exact[0])) <= 0.05


def test_kernel_rows(moons):
    X, _ = moons
    chosen, expected = np.array([3, 0, 77]), rbf_kernel(X, gamma=GAMMA)[[3, 0, 77]]
    for stored in (X, sp.csr_matrix(X)):
        kernel = Gaussian(stored, GAMMA)
        np.testing.assert_allclose(kernel.rows(chosen), expected, atol=3e-6)
        np.testing.assert_allclose(kernel.rows(chosen, Gaussian(stored[:9], GAMMA)), expected[:, :9], atol=3e-6)


def test_rows_of_checkpoints():
    assert rows_of([250, 1, 99, 101, 1_000], 100) == [1, 2, 10]


def test_fourier_features_near_the_kernel(moons, exact):
    X, y = moons
    rng = np.random.default_rng(0)
    features = fourier_features.features(X, np.sqrt(2 * GAMMA) * rng.standard_normal((2, 4_000)))
    # Each entry is a mean of 4,000 cosines: a deviation of 5 / sqrt(4,000) is one in millions.
    np.testing.assert_allclose(features @ features.T, rbf_kernel(X, gamma=GAMMA), atol=0.08)
    labels = np.sign(rbf_kernel(X, gamma=GAMMA) @ exact[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        few, many = fourier_features.train(X, y, X, labels, GAMMA, C, [160, 160 * 2_000], rng)
    assert (few.kernel_evaluations, many.kernel_evaluations) == (160, 320_000)
    assert few.n_support == 2
    assert many.test_error <= 0.05 < few.test_error


def test_the_batch_perceptron_as_written_learns_the_moons(moons):
    X, y = moons
    points = kernel_sbp.train(X, y, X, y, GAMMA, 0.1, [20 * len(y), 400 * len(y)], np.random.default_rng(0))
    assert len(points) == 2
    assert points[-1].test_error < 0.12  # at slack 0.1 about a tenth of the rows is given up
    assert points[-1].test_error <= points[0].test_error + 0.05


def test_its_water_level_is_the_closed_form_from_any_guess():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, slack = int(rng.integers(1, 30)), float(rng.choice([0.0, rng.random()]))
        c = np.round(rng.normal(size=n), int(rng.integers(0, 3)))  # with ties
        level = kernel_sbp.water_level(c, n * slack, float(rng.normal(scale=3)))
        closed = ((n * slack + np.cumsum(np.sort(c))) / np.arange(1, n + 1)).min()
        np.testing.assert_allclose(level, closed, rtol=1e-12, atol=1e-12)
