"""Cotter, Shalev-Shwartz, Srebro, 2012: the lemmas that are not about the number of steps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import sbp_as_printed as printed

from tests.problems_at_hand import overlapping
from widemargin.problems.slack_constrained import SlackConstrained


def loss(X, y, w):
    return float(np.maximum(0.0, 1 - y * (X @ w)).mean())


def test_lemma_2_1_what_is_nearly_optimal_for_the_slack_is_nearly_optimal_for_norm_and_loss():
    X, y = overlapping(3, n=150)
    X = X / np.linalg.norm(X, axis=1).max()
    model = LinearSVC(loss="hinge", C=2.0, fit_intercept=False, tol=1e-10, max_iter=1_000_000).fit(X, y)
    u = model.coef_[0]
    length, nu = float(np.linalg.norm(u)), loss(X, y, u) / float(np.linalg.norm(u))
    n, seen = len(y), 0
    for T in (300, 3_000, 30_000):
        run = printed.optimize(X @ X.T, y, T, nu, np.random.default_rng(T), has_bias=False)
        w_bar = X.T @ (y * run.mean)
        level = printed.level(y * (X @ w_bar), n * nu)
        off = 1 / length - level  # the optimum is 1 / ||u||, at u / ||u||
        assert off > -1e-6
        if off * length >= 1:
            continue
        seen += 1
        factor = 1 / (1 - off * length)
        w = w_bar / level
        assert np.linalg.norm(w) <= factor * length * (1 + 1e-6)
        assert loss(X, y, w) <= factor * loss(X, y, u) * (1 + 1e-6)
    assert seen >= 2


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("slack", [0.0, 0.05, 0.5])
def test_lemma_3_1_rows_under_water_make_a_supergradient(fit_intercept, slack):
    X, y = overlapping(3, n=60)
    problem, one = SlackConstrained(slack=slack, fit_intercept=fit_intercept), np.ones(len(y))
    rng = np.random.default_rng(0)

    def water(w):
        return problem.water_level(y * (X @ w), y, one, float(w @ w))

    n_refuted = 0
    for _ in range(100):
        w, v = rng.normal(size=(2, X.shape[1]))
        here, ahead = water(w), water(w + v).level
        assert ahead <= here.level + v @ X.T @ (y * here.share) + 1e-9
        n_refuted += ahead > here.level + v @ X.T @ (y * rng.dirichlet(one))  # any other distribution is none
    assert n_refuted > 5


@pytest.mark.parametrize("epsilon", [0.5, 0.1, 1e-2, 1e-4])
def test_lemma_e_1_a_small_dual_gap_says_nothing_of_the_primal(epsilon):
    rng = np.random.default_rng(0)
    u = np.array([1.0, 0.0, 0.0])
    y = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    X = y[:, None] * u + rng.normal(size=(200, 3)) * [0.0, 1.0, 1.0]
    assert loss(X, y, u) == 0.0
    lam = 2 * epsilon
    C = 1 / (lam * len(y))
    w = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-10, max_iter=1_000_000).fit(X, y).coef_[0]
    best = 0.5 * lam * float(w @ w) + loss(X, y, w)  # P* = D*, to the precision of the solver
    of_zero_dual, of_zero_primal = 0.0, loss(X, y, np.zeros(3))
    assert best - of_zero_dual <= epsilon * (1 + 1e-6)
    assert of_zero_primal - best >= 1 - epsilon * (1 + 1e-6)
    assert of_zero_primal == 1.0


@pytest.mark.parametrize("lam", [0.3, 0.03, 0.003])
def test_theorem_e_2_a_dual_gap_of_lambda_eps_squared_over_118_is_enough_for_eps_in_the_primal(lam):
    """At points on the way of dual coordinate ascent, and at random ones; it is far from tight."""
    X, y = overlapping(3, n=100)
    X = X / np.linalg.norm(X, axis=1).max()
    n, signed = len(y), X * y[:, None]
    C = 1 / (lam * n)

    def dual(alpha):
        w = alpha @ signed
        return lam * (alpha.sum() - 0.5 * float(w @ w))

    def primal(alpha):
        w = alpha @ signed
        return 0.5 * lam * float(w @ w) + loss(X, y, w)

    rng, alpha = np.random.default_rng(0), np.zeros(n)
    seen = [alpha.copy(), *(C * rng.random((5, n)))]
    for sweep in range(400):
        for i in rng.permutation(n):
            slope = 1 - float(signed[i] @ (alpha @ signed))
            alpha[i] = min(C, max(0.0, alpha[i] + slope / max(float(signed[i] @ signed[i]), 1e-12)))
        if sweep in (0, 1, 3, 10, 30, 100):
            seen.append(alpha.copy())
    best = primal(alpha)
    assert best - dual(alpha) < 1e-4
    for each in seen:
        gap = max(0.0, best - dual(each))  # at least the true one
        assert primal(each) - best <= np.sqrt(118 * gap / lam) + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_d_7_the_mistakes_of_the_perceptron_are_bounded_by_the_hinge_loss_of_any_classifier(seed):
    X, y = overlapping(seed, n=400, shift=0.7)
    r = float(np.linalg.norm(X, axis=1).max())
    w, mistakes = np.zeros(X.shape[1]), []
    for i in range(len(y)):
        if y[i] * (X[i] @ w) <= 0:
            w += y[i] * X[i]
            mistakes.append(i)
    assert len(mistakes) > 20
    rng = np.random.default_rng(seed)
    good = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, max_iter=100_000).fit(X, y).coef_[0]
    for u in (good, 3 * good, 0.3 * good, *rng.normal(size=(20, len(w)))):
        lost, length = np.maximum(0.0, 1 - y * (X @ u))[mistakes].sum(), r * float(np.linalg.norm(u))
        assert len(mistakes) <= lost + length * np.sqrt(lost) + length**2
