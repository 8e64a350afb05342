"""What every solver of the linear C-SVM does, alone and one after the other, against an exact QP."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import exact_svm
from tests.problems_at_hand import assert_brackets, overlapping, separable, solve
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.auto import linear_csvm, small_linear_csvm
from widemargin.solvers.dual_descent import DualDescent
from widemargin.solvers.multipliers import Multipliers

SOLVERS = {
    "passes": DualDescent(),
    "newton": Multipliers(),
    "conjugate-gradients": Multipliers(direct_features=0),
    "few-rows": small_linear_csvm(1 << 20, 1e-6),
    "passes-then-newton": linear_csvm(newton=Multipliers(direct_features=0), patience=1),
}
TOL = 1e-6

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


def assert_solved(result, exact, tol=TOL):
    assert result.stop_reason == "gap", result.certificate
    assert result.certificate.dual <= exact * (1 + 1e-8)
    assert result.certificate.primal >= exact * (1 - 1e-8)
    assert result.certificate.primal == pytest.approx(exact, rel=2 * tol)


def objective(model, X, y, C, weight=None):
    slack = 1 - y * (X @ model.coef + model.intercept)
    return 0.5 * model.coef @ model.coef + C * (np.ones(len(y)) if weight is None else weight) @ np.maximum(0, slack)


def test_assert_solved_fails_on_a_wrong_answer_and_on_an_open_gap(solver):
    X, y = overlapping(0)
    exact = exact_svm(X, y, 1.0)
    result = solve(solver, HingeL2(1.0), X, y, tol=TOL)[0]
    assert_solved(result, exact)
    with pytest.raises(AssertionError):
        assert_solved(result, exact * 1.00001)
    with pytest.raises(AssertionError):
        assert_solved(solve(solver, HingeL2(1.0), X, y, tol=1e-15, max_iter=1)[0], exact)


@pytest.mark.parametrize("C", [1e-3, 0.1, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("data", [overlapping, separable], ids=["overlapping", "separable"])
def test_the_optimum_is_that_of_the_exact_qp(solver, data, C, fit_intercept, seed):
    X, y = data(seed)
    result = solve(solver, HingeL2(C, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, C, fit_intercept=fit_intercept))
    assert objective(result.model, X, y, C) == pytest.approx(result.certificate.primal, rel=1e-8)
    assert fit_intercept or result.model.intercept == 0
    assert 0 < result.model.report["n_support"] <= len(y)


def test_the_bounds_hold_the_optimum_at_every_sweep_and_never_get_worse(solver, fit_intercept, dtype, n_ranks, seed):
    X, y = overlapping(seed, n=45, d=6)
    X, weight = X.astype(dtype), np.random.default_rng(seed).choice([0.5, 1.0, 2.0], len(y))
    problem = HingeL2(0.5, fit_intercept)
    history = solve(solver, problem, X, y, weight, tol=0.0, max_iter=25, ranks=n_ranks, seed=seed)[0].history
    assert_brackets(history, exact_svm(X, y, 0.5, weight, fit_intercept), slack=1e-8)
    assert all(np.diff([row["primal"] for row in history]) <= 0)
    assert all(np.diff([row["dual"] for row in history]) >= 0)


@pytest.mark.parametrize("C", [0.1, 100.0])
def test_any_number_of_ranks_certifies_the_same_objective(solver, fit_intercept, n_ranks, C):
    X, y = overlapping(3, n=60, d=5)
    results = solve(solver, HingeL2(C, fit_intercept), X, y, tol=TOL, ranks=n_ranks, max_iter=5000)
    assert_solved(results[0], exact_svm(X, y, C, fit_intercept=fit_intercept))
    for other in results[1:]:
        np.testing.assert_array_equal(other.model.coef, results[0].model.coef)
        assert other.certificate == results[0].certificate


def test_any_storage_and_precision_solves_the_problem_of_its_values(solver, fit_intercept, storage, dtype):
    X, y = overlapping(4, d=6)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.3, 0.0, X).astype(dtype)
    result = solve(solver, HingeL2(1.0, fit_intercept), storage(X), y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 1.0, fit_intercept=fit_intercept))


def test_rows_in_pieces_are_the_same_rows(solver):
    X, y = overlapping(5)
    pieces = [X[:13].copy(), X[13:14].copy(), X[14:].astype(np.float32).astype(np.float64)]
    whole = np.vstack(pieces)

    class Pieces(list):
        def __getitem__(self, part):
            return list(self) if isinstance(part, slice) else super().__getitem__(part)

    result = solve(solver, HingeL2(1.0), Pieces(pieces), y, tol=TOL)[0]
    assert_solved(result, exact_svm(whole, y, 1.0))


def test_a_weight_is_a_number_of_copies_and_none_is_absence(solver, fit_intercept, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float)
    copies = weight.astype(int)
    problem = HingeL2(1.0, fit_intercept)
    weighted = solve(solver, problem, X, y, weight, tol=1e-9, max_iter=20000)[0]
    repeated = solve(solver, problem, np.repeat(X, copies, axis=0), np.repeat(y, copies), tol=1e-9, max_iter=20000)[0]
    assert_solved(weighted, exact_svm(X, y, 1.0, weight, fit_intercept), 1e-8)
    assert_solved(repeated, weighted.certificate.primal, 1e-8)
    np.testing.assert_allclose(weighted.model.coef, repeated.model.coef, rtol=1e-3, atol=1e-4)


def test_a_feature_twice_and_rows_of_zeros(solver, fit_intercept, seed):
    X, y = overlapping(seed)
    X = np.hstack([X, X[:, :1]])
    X[[0, 7, 20, 21]] = 0.0
    result = solve(solver, HingeL2(2.0, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 2.0, fit_intercept=fit_intercept))


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("d", [1, 3])
def test_two_rows(solver, fit_intercept, C, d):
    X, y = np.array([[1.0, 2.0, 2.0], [4.0, 6.0, 2.0]])[:, :d].copy(), np.array([-1.0, 1.0])
    result = solve(solver, HingeL2(C, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, C, fit_intercept=fit_intercept))


def test_nothing_but_zeros_is_answered_by_no_direction(solver, fit_intercept):
    X, y = np.zeros((6, 2)), np.array([1.0, -1.0, -1.0, -1.0, 1.0, -1.0])
    result = solve(solver, HingeL2(1.0, fit_intercept), X, y, tol=TOL, max_iter=200)[0]
    assert_solved(result, 4.0 if fit_intercept else 6.0)
    assert not result.model.coef.any()


def test_more_features_than_rows(solver, fit_intercept, seed):
    X, y = overlapping(seed, n=20, d=50)
    result = solve(solver, HingeL2(1.0, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 1.0, fit_intercept=fit_intercept))


def test_an_empty_class_or_a_useless_C_is_refused(solver):
    X, y = overlapping(0)
    with pytest.raises(ValueError, match="negative class has weight 0"):
        solve(solver, HingeL2(1.0), X, np.ones(len(y)))
    with pytest.raises(ValueError, match="C=-1"):
        solve(solver, HingeL2(-1.0), X, y)
