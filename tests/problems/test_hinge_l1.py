"""The 1-norm SVM as formulas: objectives, the best intercept, feasible masses, the default alpha."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.problems.hinge_l1 import HingeL1, auto_alpha, largest, typical_scale

PROBLEM = HingeL1(0.1)


def at_hand(seed, n=30):
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < n // 3, 1.0, -1.0)
    caps = rng.choice([0.5, 1.0, 2.0], n)
    return rng, y, caps / caps.sum()


def test_the_objective_is_the_mean_loss_and_the_norm():
    scores, y, caps = np.array([2.0, 0.5, 0.5, -3.0]), np.array([1.0, 1.0, -1.0, -1.0]), np.full(4, 0.25)
    assert PROBLEM.primal_value(PROBLEM.loss(scores, 0.0, y, caps), 7.0) == pytest.approx(0.25 * (0.5 + 1.5) + 0.7)
    assert PROBLEM.primal_value(PROBLEM.loss(scores, 0.5, y, caps), 0.0) == pytest.approx(0.25 * 2.0)


def test_the_best_intercept_has_the_least_loss_of_all_kinks(seed):
    rng, y, caps = at_hand(seed)
    for scores in (rng.normal(size=len(y)), np.round(rng.normal(size=len(y))), np.zeros(len(y))):
        best = PROBLEM.best_intercept(scores, y, caps)
        least = min(PROBLEM.loss(scores, b, y, caps) for b in y - scores)
        assert PROBLEM.loss(scores, best, y, caps) == pytest.approx(least, rel=1e-13)


def test_the_middle_of_the_best_intercepts_is_taken():
    y = np.array([1.0, -1.0])
    assert PROBLEM.best_intercept(np.zeros(2), y, np.full(2, 0.5)) == 0.0
    assert PROBLEM.best_intercept(np.zeros(2), y, np.array([0.6, 0.4])) == 1.0
    assert PROBLEM.best_intercept(np.zeros(2), y, np.array([0.4, 0.6])) == -1.0
    assert HingeL1(0.1, fit_intercept=False).best_intercept(np.ones(2), y, np.full(2, 0.5)) == 0.0


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_masses_become_feasible_and_those_that_are_stay(fit_intercept, seed):
    problem = HingeL1(0.1, fit_intercept)
    rng, y, caps = at_hand(seed)
    masses = problem.feasible(rng.normal(size=len(y)) * caps.max(), y, caps)
    assert np.all(masses >= 0)
    assert np.all(masses <= caps)
    assert masses.any()
    assert not fit_intercept or abs(y @ masses) < 1e-15
    np.testing.assert_allclose(problem.feasible(masses, y, caps), masses, rtol=1e-12)


def test_masses_beyond_alpha_are_worth_less_by_as_much():
    assert PROBLEM.dual_value(0.6, largest(np.array([0.05, -0.1]))) == 0.6
    assert PROBLEM.dual_value(0.6, largest(np.array([0.05, -0.3]))) == pytest.approx(0.2)
    assert PROBLEM.dual_value(0.6, largest(np.zeros(0))) == 0.6


def test_weak_duality(seed):
    rng, y, caps = at_hand(seed)
    X = rng.normal(size=(len(y), 5))
    masses = PROBLEM.feasible(rng.random(len(y)) * caps, y, caps)
    dual = PROBLEM.dual_value(float(masses.sum()), largest(X.T @ (y * masses)))
    for size in (0.0, 0.1, 1.0):
        coef = size * rng.normal(size=5)
        scores = X @ coef
        best = PROBLEM.best_intercept(scores, y, caps)
        assert PROBLEM.primal_value(PROBLEM.loss(scores, best, y, caps), np.abs(coef).sum()) >= dual


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf, np.nan, "none"])
def test_an_alpha_that_means_nothing_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha"):
        HingeL1(alpha).check(1.0, 1.0)


def test_a_class_without_weight_is_refused():
    with pytest.raises(ValueError, match="negative class"):
        HingeL1("auto").check(1.0, 0.0)
    with pytest.raises(ValueError, match="positive class"):
        HingeL1(1.0).check(0.0, 2.0)
    HingeL1("auto").check(1.0, 1.0)


def test_the_default_alpha():
    assert auto_alpha(100.0, 50) == pytest.approx(0.7 * np.sqrt(np.log(50) / 100))
    assert 0 < auto_alpha(100.0, 1) == auto_alpha(100.0, 2)  # one feature counts as two
    assert HingeL1("auto").resolved(100.0, np.ones(50)).alpha == pytest.approx(auto_alpha(100.0, 50))
    assert HingeL1(3.0).resolved(100.0, np.ones(50)).alpha == 3.0


def test_the_default_alpha_follows_the_scale_of_columns_and_not_their_zeros():
    squares = np.array([1.0, 4.0, 900.0])
    assert typical_scale(np.ones(7)) == 1.0
    assert typical_scale(squares) == 2.0
    assert typical_scale(100 * squares) == pytest.approx(20.0)
    assert typical_scale(np.append(squares, np.zeros(1000))) == 2.0
    assert typical_scale(np.zeros(3)) == typical_scale(np.zeros(0)) == 1.0
