"""Round-robin variance-reduced gradients for the linear margin distribution machine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import assert_brackets, overlapping, solve
from tests.solvers.test_margin_primal import check
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.svrg import SVRG

PROBLEMS = {
    "usual": MarginDistribution(10.0),
    "no intercept": MarginDistribution(10.0, fit_intercept=False),
    "tiny C": MarginDistribution(1e-6),
    "large C": MarginDistribution(1e4),
    "no deadband": MarginDistribution(30.0, 0.0, 0.5),
    "even price": MarginDistribution(30.0, 0.2, 1.0),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_the_optimum_is_that_of_the_qp(case, seed):
    check(SVRG(), PROBLEMS[case], *overlapping(seed, n=40))


def test_storage_does_not_matter(storage, dtype):
    X, y = overlapping(3, n=40)
    check(SVRG(), PROBLEMS["usual"], storage((X * (np.abs(X) > 0.5)).astype(dtype)), y)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_ranks_reach_the_same_objective(ranks):
    check(SVRG(), PROBLEMS["usual"], *overlapping(1, n=40), ranks=ranks)


def test_weights_are_repetitions_in_any_order():
    X, y = overlapping(2, n=40)
    weight = np.random.default_rng(2).integers(1, 4, 40)
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(40), weight))
    check(SVRG(), PROBLEMS["usual"], X, y, weight=weight)
    check(SVRG(), PROBLEMS["usual"], X[rows], y[rows])


def test_the_certificate_brackets_the_optimum_at_every_sweep(seed):
    X, y = overlapping(seed, n=40)
    exact = exact_odm(X @ X.T, y, PROBLEMS["usual"]).value
    assert_brackets(solve(SVRG(), PROBLEMS["usual"], X, y, tol=1e-14, max_iter=60)[0].history, exact)


def test_a_step_that_is_too_long_is_undone():
    X, y = overlapping(0, n=40)
    check(SVRG(first_step=1e3), PROBLEMS["usual"], X, y)
    history = solve(SVRG(first_step=1e3), PROBLEMS["usual"], X, y, max_iter=40, tol=1e-12)[0].history
    primal = [row["primal"] for row in history]
    assert primal[0] == primal[1]
    assert primal == sorted(primal, reverse=True)


def test_an_epoch_hands_w_on_once_from_every_rank():
    """One gradient and a w from every rank: (size - 1)(d + 1) numbers for each w, by the star's count."""
    X, y = overlapping(1, n=40, d=4)
    runs = [solve(SVRG(), PROBLEMS["usual"], X, y, ranks=3, tol=1e-14, max_iter=k)[0].ledger for k in (5, 6)]
    assert runs[1].rounds - runs[0].rounds == 1 + 3 + 1 + 1  # rows, one w a rank, gradient, the clock
    assert runs[1].scalars - runs[0].scalars <= 3 * (2 + 2) * 5 + 4 * (5 + 1) + 30


def test_the_pass_over_rows_is_the_papers_formula(storage):
    """One epoch in plain NumPy: w -= step (grad p_i(w) - grad p_i(w_old) + h), every row once."""
    X, y = overlapping(4, n=20)
    X = X * (np.abs(X) > 0.5)
    problem, solver, n = MarginDistribution(5.0), SVRG(), 20
    result = solve(solver, problem, storage(X), y, tol=1e-14, max_iter=1)[0]
    rng = np.random.default_rng([0, int(np.random.default_rng(0).integers(2**31))])
    Z = np.column_stack([X, np.ones(n)]) * y[:, None]
    steep = problem.steep(np.ones(n), n) * n

    def pull(F):
        return steep[0] * (max(0.8 - F, 0) - 0.5 * max(F - 1.2, 0))

    step = 1 / (1 + (steep * (Z**2).sum(axis=1)).max())
    w_old = np.zeros(5)
    h = w_old - np.mean([pull(z @ w_old) * z for z in Z], axis=0)
    w = w_old.copy()
    for i in rng.permutation(n):
        now, old = w - pull(Z[i] @ w) * Z[i], w_old - pull(Z[i] @ w_old) * Z[i]
        w = w - step * (now - old + h)
    np.testing.assert_allclose(np.append(result.model.coef, result.model.intercept), w, rtol=1e-9)


def test_it_finishes_on_real_data(real):
    X, y = real("a9a")[:2]
    result = solve(SVRG(), MarginDistribution(1e3), X, np.where(y > 0, 1.0, -1.0), tol=1e-3, max_iter=60)[0]
    assert result.stop_reason == "gap"
