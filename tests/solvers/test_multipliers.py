"""Newton steps on the method of multipliers, and how passes hand over to them; optima in test_linear_dual.py."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from tests.oracles import exact_svm
from tests.problems_at_hand import assert_brackets, overlapping, solve
from tests.solvers.test_linear_dual import TOL, assert_solved, objective
from widemargin.data.synthetic import make_nonseparable, make_sparse_nonseparable
from widemargin.estimators.kernel import KernelSVC
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.auto import linear_csvm
from widemargin.solvers.multipliers import Multipliers, line_sums, soften_rows

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def some_rows(n=30):
    rng = np.random.default_rng(0)
    upper = rng.random(n)
    return rng.normal(size=n), rng.choice([-1.0, 1.0], n), upper * rng.random(n), upper, rng.normal(size=n)


def test_masses_agree_with_their_formula():
    slack, y, centre, upper, lengths = some_rows()
    lengths, signed, is_free = np.abs(lengths), np.empty(30), np.empty(30, dtype=bool)
    sums = soften_rows(slack, y, centre, upper, 0.7, lengths, 0.2, 0.1, signed, is_free)
    mass = np.clip(centre + 0.7 * upper * slack, 0, upper)
    np.testing.assert_allclose(signed, y * mass)
    np.testing.assert_array_equal(is_free, (mass > 0) & (mass < upper))
    loss = upper @ np.maximum(slack + 0.2 * lengths + 0.1, 0)
    np.testing.assert_allclose(sums, [loss, (mass - centre) @ slack, upper[is_free].sum(), mass @ lengths])


def test_the_line_agrees_with_its_formula_and_its_own_differences():
    slack, _, centre, upper, tilt = some_rows()

    def pull(length):
        return tilt @ np.clip(centre + 0.7 * upper * (slack - length * tilt), 0, upper)

    value, bend = line_sums(slack, tilt, centre, upper, 0.7, 0.3)
    assert value == pytest.approx(pull(0.3), rel=1e-12)
    assert bend == pytest.approx((pull(0.3 - 1e-6) - pull(0.3 + 1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_copies_and_weights_are_taken_the_same_way(fit_intercept):
    X, y = overlapping(6)
    problem, options = HingeL2(1.0, fit_intercept), {"tol": 0.0, "max_iter": 6}
    twice = solve(Multipliers(), problem, X, y, np.full(len(y), 2.0), **options)[0]
    copied = solve(Multipliers(), problem, np.repeat(X, 2, axis=0), np.repeat(y, 2), **options)[0]
    np.testing.assert_allclose(twice.model.coef, copied.model.coef, rtol=1e-9, atol=1e-12)


def test_every_step_is_certified():
    X, y = make_nonseparable(2000, 10, random_state=0)
    result = solve(Multipliers(), HingeL2(1.0), X, y, tol=0.0, max_iter=40)[0]
    assert result.n_iter >= 10
    assert [row["sweep"] for row in result.history] == list(range(1, result.n_iter + 1))


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_any_unit_of_length(factor):
    X, y = overlapping(8)
    result = solve(Multipliers(), HingeL2(1.0), X * factor, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, factor**2) / factor**2)


def test_rows_far_from_the_origin():
    X, y = overlapping(9)
    result = solve(Multipliers(), HingeL2(1.0), X + 100.0, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 1.0))


@pytest.mark.parametrize("direct_features", [0, 512])
def test_an_earlier_direction_saves_sweeps(direct_features):
    X, y = make_nonseparable(3000, 10, random_state=0)
    problem, solver = HingeL2(1.0), linear_csvm(newton=Multipliers(direct_features=direct_features))
    cold = solve(solver, problem, X, y, tol=1e-3)[0]
    answer = solve(solver, problem, X, y, tol=1e-7)[0].model.coef
    # Its length does not matter.
    warm = solve(solver, problem, X, y, tol=1e-3, warm=5 * answer)[0]
    assert warm.n_iter < cold.n_iter
    assert_brackets(warm.history, cold.certificate.primal, slack=1e-3)


@pytest.mark.parametrize("ranks", [1, 3])
def test_many_rows_start_from_the_answer_of_a_sample(ranks):
    X, y = make_nonseparable(20000, 8, random_state=0)
    result = solve(Multipliers(), HingeL2(1.0), X, y, tol=TOL, ranks=ranks)[0]
    assert result.stop_reason == "gap"
    assert result.n_iter <= 40
    assert objective(result.model, X, y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)


def test_a_sample_without_one_of_the_classes_is_not_started_from():
    X, y = make_nonseparable(20000, 8, random_state=0)
    y = np.where(np.arange(len(y)) < 2, 1.0, -1.0)
    result = solve(Multipliers(), HingeL2(1.0), X, y, tol=TOL, max_iter=200)[0]
    assert result.stop_reason == "gap"


def test_newton_steps_come_first_where_features_are_few_and_passes_where_they_are_many():
    X, y = overlapping(7)
    problem, options = HingeL2(1.0), {"tol": 0.0, "max_iter": 4}
    few, newton = (solve(solver, problem, X, y, **options)[0] for solver in (linear_csvm(), Multipliers()))
    np.testing.assert_array_equal(few.model.coef, newton.model.coef)
    many = linear_csvm(newton=Multipliers(direct_features=0), patience=10**9)
    passes = solve(many, problem, X, y, **options)[0]
    np.testing.assert_array_equal(passes.model.coef, solve(many.candidates[0], problem, X, y, **options)[0].model.coef)


def test_steps_go_on_from_where_passes_stall():
    X, y = make_nonseparable(500, 10, random_state=0)
    solver = linear_csvm(newton=Multipliers(direct_features=0))
    both, alone = (solve(each, HingeL2(100.0), X, y, max_iter=2000)[0] for each in (solver, solver.candidates[0]))
    assert (both.stop_reason, alone.stop_reason) == ("gap", "max_iter")
    assert_brackets(both.history, exact_svm(X, y, 100.0), slack=1e-8)


@pytest.mark.parametrize("storage", ["few-features", "many-features"])
def test_a_linear_kernel_is_at_least_as_good_as_liblinear(storage):
    """LIBLINEAR regularises its intercept, so its objective is an upper bound of the optimum here."""
    if storage == "few-features":
        X, y = make_nonseparable(600, 8, random_state=0)
    else:
        X, y = make_sparse_nonseparable(600, 900, density=0.02, random_state=0)
    ours = KernelSVC(kernel="linear", C=0.5, tol=1e-4).fit(X, y)
    peer = LinearSVC(loss="hinge", C=0.5, max_iter=100_000, intercept_scaling=10.0).fit(X, y)

    def value(model):
        slack = 1 - y * (X @ model.coef_[0] + model.intercept_[0])
        return 0.5 * model.coef_[0] @ model.coef_[0] + 0.5 * np.maximum(0, slack).sum()

    assert value(ours) == pytest.approx(ours.certificate_.primal, rel=1e-9)
    assert ours.certificate_.dual <= value(peer) * (1 + 1e-9)
    assert value(ours) <= value(peer) * (1 + 1e-4)
    assert value(ours) == pytest.approx(value(peer), rel=1e-3)
