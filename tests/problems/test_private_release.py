"""The noise of a private release: enough for its epsilon and delta, no more, and what it costs."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.svm import LinearSVC

from widemargin.codec import pack, unpack
from widemargin.exceptions import ModelFileError
from widemargin.problems.discrete_gaussian import STEPS
from widemargin.problems.private_release import MISS, Release, log_delta, noise_scale, suggested_alpha
from widemargin.strategies.release import with_noise

PAIRS = [(0.01, 1e-5), (0.1, 1e-5), (0.5, 1e-10), (1.0, 1e-5), (1.0, 0.3), (3.0, 1e-8), (10.0, 1e-5)]
ADULT = Release(1.0, 1e-5, clip=1.0, alpha=1e-3, n_rows=32_561, n_features=124)


# -- sigma -------------------------------------------------------------------------------------------------------------


def delta_by_cdf(sigma, epsilon):
    """Theorem 8 of Balle and Wang, at sensitivity 1."""
    a, b = 1 / (2 * sigma), epsilon * sigma
    return norm.cdf(a - b) - np.exp(epsilon) * norm.cdf(-a - b)


def delta_by_integration(sigma, epsilon):
    """The definition: the integral of the excess of one density over e^epsilon times the other."""

    def excess(x):
        return max(0.0, norm.pdf(x, 1.0, sigma) - np.exp(epsilon) * norm.pdf(x, 0.0, sigma))

    kink = 0.5 + epsilon * sigma**2  # below it there is none
    ends = [kink + each * sigma for each in (0, 0.5, 1, 2, 4, 8, 16)]
    return sum(quad(excess, low, high, epsabs=0, epsrel=1e-9)[0] for low, high in pairwise(ends))


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_sigma_is_the_least_that_has_delta(epsilon, delta):
    sigma = noise_scale(epsilon, delta)
    assert delta_by_cdf(sigma, epsilon) == pytest.approx(delta, rel=1e-6)
    assert delta_by_integration(sigma, epsilon) == pytest.approx(delta, rel=1e-6)
    assert delta_by_integration(0.999 * sigma, epsilon) > delta
    assert log_delta(sigma, epsilon) <= np.log(delta)


def test_sigma_is_that_of_the_published_program():
    """calibrateAnalyticGaussianMechanism(1, 1e-5, 1) by the authors of the mechanism."""
    assert noise_scale(1.0, 1e-5) == pytest.approx(3.730631634816464, rel=1e-8)


def test_sigma_is_smaller_than_that_of_the_classic_mechanism():
    assert noise_scale(0.5, 1e-5) < np.sqrt(2 * np.log(1.25 / 1e-5)) / 0.5


def test_what_the_grid_takes_is_paid_for():
    """By delta for noise that is not quite Gaussian, and by sensitivity for coefficients that are moved."""
    large = replace(ADULT, epsilon=10.0, n_features=10**5, n_problems=10)
    left = large.delta - (1 + np.exp(10.0)) * 10**6 * 2.0**-53
    assert left < (1 - 1e-7) * large.delta
    assert delta_by_cdf(large.sigma / large.sensitivity, 10.0) <= left
    without = np.sqrt(10) * (2 / (large.n_rows * large.alpha) + 2 * np.sqrt(2 * large.gap / large.alpha))
    assert large.sensitivity >= without + 2 * large.step * np.sqrt(10**6) * (1 - 1e-12)
    assert large.step == large.sigma / STEPS


# -- sensitivity -------------------------------------------------------------------------------------------------------


def minimiser(X, y, alpha):
    """Of the mean hinge loss with its penalty; rows have what constant feature they have."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = {"loss": "hinge", "fit_intercept": False, "tol": 1e-9, "max_iter": 1_000_000}
        return LinearSVC(C=1 / (alpha * len(y)), random_state=0, **options).fit(X, y).coef_[0]


def clipped(X, limit):
    return X * np.minimum(1, limit / np.linalg.norm(X, axis=1))[:, None]


@pytest.mark.parametrize("alpha", [1e-2, 0.1, 1.0])
def test_neighbours_are_never_further_apart_than_the_bound(alpha, seed):
    rng, n, limit = np.random.default_rng(seed), 25, 2.0
    release = Release(1.0, 1e-5, limit, alpha, n, 4)
    furthest = 0.0
    for _ in range(40):
        X = clipped(np.hstack([rng.normal(size=(n, 3)) * rng.choice([0.3, 1, 5]), np.ones((n, 1))]), limit)
        y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
        y[:2] = 1, -1
        other, labels, i = X.copy(), y.copy(), rng.integers(2, n)
        match rng.integers(3):
            case 0:
                labels[i] *= -1
            case 1:
                other[i] *= -1
            case 2:
                other[i] = clipped(rng.normal(size=(1, 4)) * 10, limit)
        furthest = max(furthest, np.linalg.norm(minimiser(X, y, alpha) - minimiser(other, labels, alpha)))
    assert furthest <= 2 * limit / (n * alpha) * (1 + 1e-6) <= release.sensitivity
    assert furthest > 0.02 * 2 * limit / (n * alpha)


@pytest.mark.parametrize(("n", "alpha", "limit"), [(10, 0.5, 1.0), (50, 0.1, 2.0), (200, 1.0, 3.0)])
def test_the_bound_is_attained(n, alpha, limit):
    """One row of full length changes its label; all others lie at zero, or cancel each other."""
    X = np.zeros((n, 2))
    X[0] = limit, 0
    X[1::2, 1], X[2::2, 1] = 0.5, 0.5
    y = np.ones(n, int)
    y[1::2] = -1
    labels = y.copy()
    labels[0] *= -1
    apart = np.linalg.norm(minimiser(X, y, alpha) - minimiser(X, labels, alpha))
    # An odd number of the others leaves one that is not cancelled, in both data sets alike.
    assert apart == pytest.approx(2 * limit / (n * alpha), rel=1e-6)


def test_models_of_several_classes_are_apart_by_the_root_of_their_number():
    """The bound for all problems together is attained: a row that is turned round moves each of them."""
    n, alpha, limit, classes = 30, 0.5, 1.0, np.arange(3)
    X, y = np.zeros((n, 2)), np.arange(n) % 3
    X[0] = limit, 0
    other = X.copy()
    other[0] *= -1
    models, others = (
        np.concatenate([minimiser(rows, np.where(y == k, 1, -1), alpha) for k in classes]) for rows in (X, other)
    )
    release = Release(1.0, 1e-5, limit, alpha, n, 2, n_problems=3)
    exact = np.sqrt(3) * 2 * limit / (n * alpha)
    assert np.linalg.norm(models - others) == pytest.approx(exact, rel=1e-6)
    assert exact <= release.sensitivity <= 1.1 * exact


def objective(w, X, y, alpha):
    return alpha / 2 * w @ w + np.maximum(0, 1 - y * (X @ w)).mean()


def problem(seed, n=60, alpha=0.05):
    rng = np.random.default_rng(seed)
    X = clipped(np.hstack([rng.normal(size=(n, 3)), np.ones((n, 1))]), 1.0)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    return X, y, alpha, minimiser(X, y, alpha)


def test_a_model_with_a_gap_is_near_the_minimiser(seed):
    X, y, alpha, best = problem(seed)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 0.1, 3.0):
        w = best + size * rng.normal(size=4)
        gap = objective(w, X, y, alpha) - objective(best, X, y, alpha)
        assert np.linalg.norm(w - best) <= np.sqrt(2 * gap / alpha) + 1e-6
    release = Release(1.0, 1e-5, 1.0, alpha, len(y), 4)
    assert np.linalg.norm(best) <= release._longest_minimiser


@pytest.mark.parametrize("alpha", [1e-5, 1e-3, 1.0, 100.0])
def test_the_relative_gap_implies_the_absolute_one(alpha):
    release = Release(1.0, 1e-5, 1.0, alpha, 1000, 5)
    for dual in (0.0, 0.5, 1.0):  # no optimum is above 1
        primal = dual / (1 - release.tol)
        assert primal - dual <= release.gap * (1 + 1e-6)
    added = 2 * np.sqrt(2 * release.gap / alpha)
    assert added <= 0.051 * 2 / (1000 * alpha) or release.gap == 1e-9  # small beside the rest where it can be


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_bounds_on_the_loss_hold(seed):
    X, y, alpha, best = problem(seed)
    release = Release(1.0, 1e-3, 1.0, alpha, len(y), 4)
    draw = np.random.default_rng(seed).bytes
    least = objective(best, X, y, alpha)
    models = with_noise(np.tile(best, (3000, 1)), release, draw)
    excess = np.array([objective(w, X, y, alpha) - least for w in models])
    assert excess.mean() <= release.expected_excess
    assert release.expected_excess <= 3 * excess.mean()
    assert np.mean(excess > release.excess) <= MISS
    assert release.excess <= 4 * np.quantile(excess, 1 - MISS)


def test_the_suggested_alpha_balances_penalty_and_noise():
    n, epsilon, delta, limit = 10_000, 1.0, 1e-5, 2.0
    alphas = np.geomspace(1e-5, 1.0, 4001)
    penalty = alphas / 2 * (20 / limit) ** 2
    noise = 2 * limit**2 * noise_scale(epsilon, delta) / (n * alphas)
    best = alphas[np.argmin(penalty + noise)]
    assert suggested_alpha(n, epsilon, delta, limit) == pytest.approx(best, rel=0.01)


def test_words_and_figures_are_of_the_terms_alone():
    figures = ADULT.figures()
    assert figures["sigma"] == ADULT.sigma
    assert "(1, 1e-05)-differential privacy" in ADULT.in_words()
    assert set(figures) - {"gap", "sensitivity", "sigma", "step", "expected_excess", "excess"} == set(vars(ADULT))


# -- what is refused ---------------------------------------------------------------------------------------------------

INVALID = [
    {"epsilon": 0.0},
    {"epsilon": -1.0},
    {"epsilon": np.nan},
    {"epsilon": np.inf},
    {"epsilon": 1e-10},
    {"epsilon": 50.0},  # e^epsilon times what the grid takes is more than delta
    {"epsilon": 1e-6, "delta": 1e-9},  # noise of which the grid would be a part
    {"delta": 0.0},
    {"delta": 1.0},
    {"delta": np.nan},
    {"delta": 1e-14},
    {"clip": 0.0},
    {"clip": -1.0},
    {"clip": np.inf},
    {"clip": np.nan},
    {"alpha": 0.0},
    {"alpha": np.nan},
    {"alpha": 1e-13},
    {"n_rows": 0},
    {"n_rows": 1 << 60},
    {"n_features": 0},
    {"n_problems": 0},
    {"n_problems": 1 << 2000},
]


def test_good_terms_are_valid():
    ADULT.validate()
    replace(ADULT, n_rows=10**8, n_features=10**5, n_problems=10).validate()
    replace(ADULT, n_rows=2, alpha=1.0).validate()


@pytest.mark.parametrize("change", INVALID, ids=str)
def test_impossible_terms_are_refused_also_in_a_file(change):
    release = replace(ADULT, **change)
    with pytest.raises(ValueError):
        release.validate()
    with pytest.raises(ModelFileError):
        unpack(pack({"release": release}), is_trusted=False)
