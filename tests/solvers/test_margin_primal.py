"""Newton's method on the primal of the linear margin distribution machine against a QP."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import assert_brackets, overlapping, solve
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.margin_primal import MarginPrimal

TOL = 1e-6
SOLVERS = {"formed": MarginPrimal(), "gradients": MarginPrimal(direct_features=0)}
PROBLEMS = {
    "usual": MarginDistribution(10.0),
    "no intercept": MarginDistribution(10.0, fit_intercept=False),
    "tiny C": MarginDistribution(1e-6),
    "huge C": MarginDistribution(1e7),
    "no deadband": MarginDistribution(100.0, 0.0, 0.5),
    "wide deadband": MarginDistribution(1.0, 0.99, 0.5),
    "even price": MarginDistribution(100.0, 0.2, 1.0),
}


def objective(model, X, y, problem, weight=None):
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else weight
    F, theta = y * (X @ model.coef + model.intercept), problem.deadband
    loss = np.maximum(1 - theta - F, 0) ** 2 + problem.overshoot_weight * np.maximum(F - 1 - theta, 0) ** 2
    scale = problem.C / (2 * weight.sum() * (1 - theta) ** 2)
    return 0.5 * model.coef @ model.coef + 0.5 * model.intercept**2 + scale * weight @ loss


def check(solver, problem, X, y, tol=TOL, weight=None, ranks=1, max_iter=5000):
    """The answer is that of the QP on every rank, and the model is what the certificate speaks of."""
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    exact = exact_odm(dense @ dense.T, y, problem, weight).value
    results = solve(solver, problem, X, y, weight, ranks=ranks, tol=tol, max_iter=max_iter)
    for result in results:
        assert result.stop_reason == "gap", result.certificate
        assert result.certificate.dual <= exact * (1 + 1e-8)
        assert result.certificate.primal >= exact * (1 - 1e-8)
        assert result.certificate.primal == pytest.approx(exact, rel=2 * tol)
        assert result.certificate == results[0].certificate
    model = results[0].model
    assert objective(model, X, y, problem, weight) == pytest.approx(results[0].certificate.primal, rel=1e-9)
    assert problem.fit_intercept or model.intercept == 0
    return results[0]


@pytest.mark.parametrize("case", PROBLEMS)
@pytest.mark.parametrize("name", SOLVERS)
def test_the_optimum_is_that_of_the_qp(name, case, seed):
    check(SOLVERS[name], PROBLEMS[case], *overlapping(seed, n=40))


@pytest.mark.parametrize("name", SOLVERS)
def test_storage_does_not_matter(name, storage, dtype):
    X, y = overlapping(3, n=40)
    check(SOLVERS[name], PROBLEMS["usual"], storage((X * (np.abs(X) > 0.5)).astype(dtype)), y)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", SOLVERS)
def test_ranks_reach_the_same_objective(name, ranks):
    check(SOLVERS[name], PROBLEMS["usual"], *overlapping(1, n=40), ranks=ranks)


@pytest.mark.parametrize("name", SOLVERS)
def test_weights_are_repetitions_in_any_order(name):
    X, y = overlapping(2, n=40)
    weight = np.random.default_rng(2).integers(1, 4, 40)
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(40), weight))
    weighted = check(SOLVERS[name], PROBLEMS["usual"], X, y, weight=weight, tol=1e-10)
    repeated = check(SOLVERS[name], PROBLEMS["usual"], X[rows], y[rows], tol=1e-10)
    np.testing.assert_allclose(weighted.model.coef, repeated.model.coef, atol=1e-5)


def test_a_row_without_weight_is_absent():
    X, y = overlapping(2, n=40)
    weight = np.ones(40)
    weight[:5] = 0
    result = solve(MarginPrimal(), PROBLEMS["usual"], X, y, weight)[0]
    without = solve(MarginPrimal(), PROBLEMS["usual"], X[5:], y[5:])[0]
    assert result.certificate == pytest.approx(without.certificate, rel=1e-9)


def test_few_rows_and_copies():
    X, y = np.array([[0.0, 1.0], [1.0, 0.5]]), np.array([1.0, -1.0])
    check(MarginPrimal(), PROBLEMS["usual"], X, y)
    X, y = np.repeat(X, 9, axis=0), np.repeat(y, 9)
    y[0] = -1.0
    check(MarginPrimal(), PROBLEMS["usual"], X, y)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_certificate_brackets_the_optimum_at_every_sweep(name, seed):
    X, y = overlapping(seed, n=40)
    exact = exact_odm(X @ X.T, y, PROBLEMS["no deadband"]).value
    assert_brackets(solve(SOLVERS[name], PROBLEMS["no deadband"], X, y, tol=1e-14, max_iter=30)[0].history, exact)


def test_a_hessian_of_some_rows_serves():
    X, y = overlapping(0, n=40000)
    few = solve(MarginPrimal(hessian_per_feature=64), PROBLEMS["usual"], X, y, tol=1e-9, max_iter=60)[0]
    whole = solve(MarginPrimal(hessian_per_feature=10**9), PROBLEMS["usual"], X, y, tol=1e-9, max_iter=60)[0]
    assert few.stop_reason == whole.stop_reason == "gap"
    assert few.certificate.primal == pytest.approx(whole.certificate.primal, rel=2e-9)


def test_a_run_goes_on_from_an_earlier_one():
    X, y = overlapping(0, n=40)
    problem = PROBLEMS["no intercept"]
    first = solve(MarginPrimal(), problem, X, y, tol=1e-9)[0]
    again = solve(MarginPrimal(), problem, X, y, tol=1e-8, warm=first.model.coef)[0]
    assert (again.stop_reason, again.n_iter) == ("gap", 0)


def test_steps_are_few_on_real_data(real):
    X, y = real("a9a")[:2]
    y = np.where(y > 0, 1.0, -1.0)
    for C in (10.0, 1e5):
        result = solve(MarginPrimal(), MarginDistribution(C), X, y, tol=TOL)[0]
        assert result.stop_reason == "gap"
        assert result.n_iter <= 10
