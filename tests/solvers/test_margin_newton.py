"""Newton steps for the kernel margin distribution machine, and the choice between them and coordinate steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import overlapping
from tests.solvers.test_margin_descent import (
    CORNERS,
    KERNELS,
    RBF,
    assert_solved,
    check_brackets,
    check_corner,
    check_few_rows_and_copies,
    check_less_precision,
    check_optimum,
    check_ranks,
    check_storage,
    check_warm,
    check_weights,
    gram,
    solve,
)
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers import margin_newton
from widemargin.solvers.auto import SlowDescent, kernel_margin
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_newton import MarginNewton, best_length

SMALL = MarginDescent(block_rows=8)
SOON = SlowDescent(epochs=0.5, slow=0.0)
LANDMARKS = MarginNewton(direct_rows=0, landmarks=6)
SOLVERS = {
    "factored": kernel_margin(SMALL, SOON),
    "from nothing": MarginNewton(),
    "landmarks": kernel_margin(SMALL, SOON, LANDMARKS),
    "nothing kept": kernel_margin(replace(SMALL, cache_bytes=0), SOON, LANDMARKS),
    "auto": kernel_margin(SMALL, SlowDescent(slow=0.9)),
}


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["no-intercept", "intercept"])
@pytest.mark.parametrize("C", [1.0, 1e4])
@pytest.mark.parametrize("name", KERNELS)
def test_the_optimum_is_that_of_the_qp(name, C, fit_intercept, seed):
    problem = MarginDistribution(C, fit_intercept=fit_intercept)
    check_optimum(SOLVERS["factored"], KERNELS[name], problem, seed)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_way_to_solve_the_system_leads_there(name, seed):
    check_optimum(SOLVERS[name], RBF, MarginDistribution(1e4), seed)
    check_brackets(SOLVERS[name], seed)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", SOLVERS)
def test_ranks_reach_the_same_objective(name, ranks):
    check_ranks(SOLVERS[name], ranks)
    check_ranks(SOLVERS[name], ranks, fit_intercept=False)


@pytest.mark.parametrize("name", SOLVERS)
def test_weights_are_repetitions_in_any_order(name):
    check_weights(SOLVERS[name])


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", SOLVERS)
def test_corners(name, corner):
    check_corner(SOLVERS[name], corner)


@pytest.mark.parametrize("name", SOLVERS)
def test_few_rows_and_copies(name):
    check_few_rows_and_copies(SOLVERS[name])


def test_storage_does_not_matter(storage, dtype):
    check_storage(SOLVERS["landmarks"], storage, dtype)


@pytest.mark.parametrize("name", SOLVERS)
def test_float32_kernel_values_do_not_show_in_the_certificate(name, monkeypatch):
    check_less_precision(SOLVERS[name], monkeypatch)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_run_goes_on_from_an_earlier_one(name):
    check_warm(SOLVERS[name])


def test_a_handful_of_steps_ends_it():
    X, y = overlapping(0, n=120)
    result = solve(MarginNewton(), MarginDistribution(1e5), X, y, tol=1e-9)[0]
    assert result.stop_reason == "gap"
    assert result.n_iter <= 25  # most of them change the active rows; the last is exact


def test_a_step_that_takes_long_is_made_in_parts(monkeypatch):
    X, y = overlapping(0, n=60)
    problem = MarginDistribution(1e3)
    exact = exact_odm(gram(RBF, X), y, problem).value
    usual = solve(SOLVERS["nothing kept"], problem, X, y)[0]
    monkeypatch.setattr(margin_newton, "_VALUES_PER_SWEEP", 1.0)
    parts = solve(SOLVERS["nothing kept"], problem, X, y)[0]
    assert_solved(parts, exact)
    assert parts.n_iter > usual.n_iter
    assert len(parts.history) < parts.n_iter  # in the middle of a step there is nothing new to certify
    early = solve(SOLVERS["nothing kept"], problem, X, y, max_iter=usual.n_iter - 1)[0]
    assert early.certificate.dual <= exact <= early.certificate.primal


def test_auto_stays_with_coordinate_steps_where_they_do_and_leaves_them_where_they_creep():
    X, y = overlapping(0, n=120)
    chosen = {}
    for C in (1.0, 1e7):
        solver = kernel_margin(SMALL)
        descent = solve(SMALL, MarginDistribution(C), X, y, tol=1e-3, max_iter=400)[0]
        result = solve(solver, MarginDistribution(C), X, y, tol=1e-3, max_iter=400)[0]
        assert result.stop_reason == "gap"
        chosen[C] = (result.n_iter, descent.n_iter)
    assert chosen[1.0][0] == chosen[1.0][1]
    assert chosen[1e7][0] < chosen[1e7][1]


def test_the_length_of_a_step_is_where_the_slope_vanishes():
    def slopes(length):  # of a piecewise quadratic with kinks at 1 and 3
        return -2 + length + max(length - 1, 0) - 0.5 * max(length - 3, 0), 1 + (length > 1) - 0.5 * (length > 3)

    assert best_length(slopes) == pytest.approx(1.5, abs=1e-2)
    assert best_length(lambda length: (length + 1, 1.0)) == 0
    assert best_length(lambda length: (length - 1000.0, 1.0)) == pytest.approx(1000.0, rel=1e-2)


def test_a_system_that_rounding_made_indefinite_is_factored_with_a_little_more():
    K = np.full((6, 6), 1e9, dtype=np.float32)
    K[0, 1] = K[1, 0] = 1.0001e9
    factor = margin_newton._factor(K)
    assert np.isfinite(np.tril(factor)).all()
