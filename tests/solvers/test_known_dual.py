"""The kernel C-SVM where all values are kept: against a generic QP, with its bounds, held-out rows and starts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from tests.problems_at_hand import overlapping
from tests.solvers.test_block_dual import KERNELS, RBF, TOL, assert_solved, assert_true, exact_of, gram, objective
from widemargin.comm.solo import Solo
from widemargin.compiled import known_dual as compiled
from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers import known_dual
from widemargin.solvers.known_dual import KnownDual
from widemargin.solvers.run import Limits, Start, Watched, end_of, run, sweeps

KEPT = {name: kernel for name, kernel in KERNELS.items() if kernel.function is None}


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


def shard_of(kernel, X, y, weight=None, *, is_tied=True):
    rows = RowsOnCPU(kernel, X)
    assert rows.keep_values(1 << 30, is_tied=is_tied)
    return Shard(X, y, np.ones(len(y)) if weight is None else weight, rows)


def solve(kernel, problem, X, y, weight=None, *, tol=TOL, patience=0, **options):
    limits, rng = Limits(tol, 50_000), np.random.default_rng(0)
    shard = shard_of(kernel, X, y, weight, is_tied=problem.fit_intercept)
    return run(KnownDual(tol, patience), problem, shard, Solo(), limits, rng, **options)


def finished(shard, C, *, tol=TOL, warm=None, patience=0):
    rng, limits = np.random.default_rng(0), Limits(tol, 500)
    return end_of(sweeps(KnownDual(tol, patience), HingeL2(C), shard, Solo(), limits, rng, Start(warm), Watched()))


@pytest.mark.parametrize("C", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize("name", KEPT)
def test_the_optimum_is_that_of_the_exact_qp(name, C, fit_intercept, seed):
    X, y = overlapping(seed)
    K = gram(KEPT[name], X)
    result = solve(KEPT[name], HingeL2(C, fit_intercept), X, y)
    assert_solved(result, exact_of(K, y, C, fit_intercept=fit_intercept))
    # The bound may allow for values in float32.
    assert objective(result.model, K, y, C) == pytest.approx(result.certificate.primal, rel=TOL)
    assert objective(result.model, K, y, C) <= result.certificate.primal * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_any_storage_and_precision_solves_the_problem_of_its_values(storage, dtype, fit_intercept):
    X, y = overlapping(3)
    X = storage(np.where(np.abs(X) > 0.8, X, 0).astype(dtype))
    assert_solved(solve(RBF, HingeL2(1.0, fit_intercept), X, y), exact_of(gram(RBF, X), y, 1.0, None, fit_intercept))


@pytest.mark.parametrize("C", [0.1, 1e3, 1e5])
def test_the_bounds_hold_the_optimum_however_large_the_coefficients(C, fit_intercept):
    """A narrow gap at large coefficients is less than values in float32 could prove."""
    X, y = overlapping(0)
    exact = exact_of(gram(RBF, X), y, C, None, fit_intercept)
    result = solve(RBF, HingeL2(C, fit_intercept), X, y, tol=1e-7)
    assert_true(result.certificate, exact)
    assert result.certificate.relative <= 1e-7


@pytest.mark.parametrize("gamma", [1e-7, 1e-5, 1e-3])
def test_a_small_gamma_with_a_large_C_is_solved_as_a_linear_problem_is(gamma):
    """All kernel values are nearly 1: float32 would leave little of what tells them apart."""
    X, y = overlapping(0)
    kernel, C = Kernel("rbf", gamma), 10 / gamma
    result = solve(kernel, HingeL2(C), X, y, tol=1e-3)
    assert_true(result.certificate, exact_of(gram(kernel, X), y, C))
    assert result.certificate.relative <= 1e-3
    assert objective(result.model, gram(kernel, X), y, C) <= result.certificate.primal * (1 + 1e-12)


def test_without_free_rows_the_intercept_is_in_the_middle_of_the_best_ones():
    """Where C is small all coefficients are at their bounds, and intercepts of a whole interval are best."""
    X, y = make_moons(300, noise=0.3, random_state=0)
    y = np.where(y > 0, 1.0, -1.0)
    exact = SVC(C=0.01, gamma=6.0, tol=1e-8).fit(X, y)
    assert (np.abs(exact.dual_coef_) == 0.01).all()
    end = finished(shard_of(Kernel("rbf", 6.0), X, y), 0.01)
    assert end.result.model.intercept == pytest.approx(exact.intercept_[0], abs=1e-6)
    assert end.scores == pytest.approx(exact.decision_function(X), abs=1e-4)
    value = objective(end.result.model, gram(Kernel("rbf", 6.0), X), y, 0.01)
    assert value <= end.result.certificate.primal * (1 + 1e-14)


def test_sweeps_that_reach_the_target_go_on_to_a_part_of_it():
    X, y = overlapping(0, n=300)
    problem, limits, rng = HingeL2(10.0), Limits(1e-2, 500), np.random.default_rng(0)
    far, near = (
        run(KnownDual(1e-2, finish=finish), problem, shard_of(RBF, X, y), Solo(), limits, rng).certificate.relative
        for finish in (1.0, 1e-3)
    )
    assert near <= 1e-4 < far <= 1e-2  # but for the rounding of kernel values


def test_a_run_ends_after_so_many_sweeps_that_were_cut_short(monkeypatch):
    X, y = overlapping(0, n=300)
    monkeypatch.setattr(known_dual, "WORK", 1e3)
    problem, limits, rng = HingeL2(1e4), Limits(1e-6, 500), np.random.default_rng(0)
    result = run(KnownDual(1e-6, max_cut=3), problem, shard_of(RBF, X, y), Solo(), limits, rng)
    assert result.stop_reason == "max_iter"
    assert result.n_iter == 3
    assert result.certificate.relative > 1e-6


def test_working_sets_of_a_few_rows_lead_to_the_same_optimum(monkeypatch, fit_intercept):
    X, y = overlapping(1, n=300)
    monkeypatch.setattr(compiled, "FIRST_SIZE", 16)
    assert_solved(solve(RBF, HingeL2(10.0, fit_intercept), X, y), exact_of(gram(RBF, X), y, 10.0, None, fit_intercept))


def test_sweeps_that_are_cut_short_lead_to_the_same_optimum(monkeypatch, fit_intercept):
    X, y = overlapping(1, n=300)
    monkeypatch.setattr(known_dual, "WORK", 1.0)
    result = solve(RBF, HingeL2(10.0, fit_intercept), X, y)
    assert_solved(result, exact_of(gram(RBF, X), y, 10.0, None, fit_intercept))
    assert result.n_iter > 20


def test_rows_of_weight_0_have_scores_and_no_effect(fit_intercept):
    X, y = overlapping(2, n=80)
    weight = np.r_[np.ones(60), np.zeros(20)]
    exact = exact_of(gram(RBF, X[:60]), y[:60], 3.0, None, fit_intercept)
    result = solve(RBF, HingeL2(3.0, fit_intercept), X, y, weight)
    assert_solved(result, exact)
    assert result.model.points.numbers.max() < 60
    end = finished(shard_of(RBF, X, y, weight), 3.0)
    model = end.result.model
    scores = gram(RBF, X)[:, model.points.numbers] @ model.coef + model.intercept
    np.testing.assert_allclose(end.scores, scores, rtol=1e-9, atol=1e-9)


def test_weights_are_caps(fit_intercept, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).uniform(0.1, 3, len(y))
    exact = exact_of(gram(RBF, X), y, 0.7, weight, fit_intercept)
    assert_solved(solve(RBF, HingeL2(0.7, fit_intercept), X, y, weight), exact)


@pytest.mark.parametrize("has_responses", [False, True])
def test_a_start_at_the_solution_of_a_smaller_C_leads_to_the_same_optimum(has_responses):
    X, y = overlapping(0)
    shard = shard_of(RBF, X, y)
    first = finished(shard, 1.0)
    model = first.result.model
    warm = np.full((3, len(y)), 1e-5)  # exact responses are not those of values in float32
    warm[0], warm[1] = 0.0, first.scores - model.intercept
    warm[0, model.points.numbers] = model.coef
    warm = warm if has_responses else warm[0]
    assert_solved(finished(shard, 10.0, warm=warm).result, exact_of(gram(RBF, X), y, 10.0))
    again = finished(shard, 1.0, warm=warm).result
    assert_solved(again, exact_of(gram(RBF, X), y, 1.0))
    assert again.n_iter <= 1


def test_a_start_at_a_smaller_C_takes_the_best_multiple_of_its_coefficients(fit_intercept):
    X, y = overlapping(0, n=150)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y)) * (np.arange(len(y)) % 5 > 0)  # some are held out
    shard, solver, rng = shard_of(RBF, X, y, weight), KnownDual(1e-6), np.random.default_rng(0)
    small = solver.start(HingeL2(1e-4, fit_intercept), shard, Solo(), rng)
    for _ in range(5):
        small = solver.sweep(small)
    warm = solver.warm_state(small)
    is_at_end = np.abs(small.beta) == 1e-4 * weight
    assert is_at_end[weight > 0].mean() > 0.5
    for C in (1e-3, 1.0, 100.0):  # as far as bounds allow, about there, and not so far
        state = solver.start(HingeL2(C, fit_intercept), shard, Solo(), rng, warm)
        beta, K, factors = state.beta, gram(RBF, X), np.linspace(0, C / 1e-4, 100)
        of_factors = factors * np.abs(small.beta).sum() - factors**2 / 2 * (small.beta @ K @ small.beta)
        assert np.abs(beta).sum() - beta @ K @ beta / 2 >= of_factors.max() * (1 - 1e-9)
        assert (np.abs(beta) <= C * weight).all()
        np.testing.assert_allclose(state.response, K @ beta, atol=1e-6 * np.abs(beta).sum())
        if C == 1e-3:
            np.testing.assert_array_equal(np.abs(beta)[is_at_end], (C * weight)[is_at_end])


def test_a_start_ends_a_run_only_if_w_is_good_enough_for_scores():
    """Where C is small, w is a small part of the objective, and a gap of 1e-3 may leave it far from the best one."""
    X, y = overlapping(0, n=300)
    shard, solver = shard_of(RBF, X, y), KnownDual(3e-3)
    warm = finished(shard, 1e-3, tol=1e-3).warm_state()
    state = solver.start(HingeL2(2e-3), shard, Solo(), np.random.default_rng(0), warm)
    assert solver.certify(state) is None
    assert state.best.certificate.relative < 3e-3
    end = finished(shard, 2e-3, tol=3e-3, warm=warm)
    assert end.result.n_iter >= 1
    assert end.result.certificate.relative < state.best.certificate.relative / 3


@pytest.mark.parametrize("name", ["rbf", "poly"])
def test_responses_stay_within_what_bounds_allow_for_along_a_path(name, fit_intercept):
    X, y = overlapping(0, n=150)
    shard, solver, rng, warm = shard_of(KEPT[name], X, y), KnownDual(1e-6), np.random.default_rng(0), None
    for C in (0.01, 0.1, 1.0, 10.0, 3.0):
        state = solver.start(HingeL2(C, fit_intercept), shard, Solo(), rng, warm)
        for _ in range(4):
            state = solver.sweep(state)
            solver.certify(state)
            warm = solver.warm_state(state)
            beta, response, drift = warm.astype(np.longdouble)
            exact = state.known.near.astype(np.longdouble) @ beta
            assert (np.abs(response - exact) <= drift).all()
            assert drift.max() < 1e-6 * max(np.abs(beta).sum(), 1) * state.known.diagonal.max()
        assert_true(solver.confirm(state), exact_of(gram(KEPT[name], X), y, C, None, fit_intercept))


def test_responses_of_a_start_that_is_not_feasible_are_corrected():
    X, y = overlapping(0)
    shard = shard_of(RBF, X, y)
    first = finished(shard, 10.0)
    warm = np.zeros((3, len(y)))
    warm[0, first.result.model.points.numbers] = first.result.model.coef
    warm[1:] = first.scores - first.result.model.intercept, np.full(len(y), 1e-5)
    assert_solved(finished(shard, 1.0, warm=warm).result, exact_of(gram(RBF, X), y, 1.0))


def test_a_run_settles_when_predictions_of_rows_of_weight_0_no_longer_change():
    X, y = overlapping(0, n=200)
    weight = np.r_[np.ones(150), np.zeros(50)]
    shard = shard_of(RBF, X, y, weight)
    early, late = (finished(shard, 100.0, tol=1e-9, patience=patience) for patience in (3, 0))
    assert early.result.stop_reason == "settled"
    assert early.result.n_iter < late.result.n_iter
    assert_true(early.result.certificate, exact_of(gram(RBF, X[:150]), y[:150], 100.0))
    np.testing.assert_array_equal(early.scores[150:] > 0, late.scores[150:] > 0)


def test_what_rounding_leaves_open_ends_a_run_soon():
    X, y = overlapping(0)
    result = solve(RBF, HingeL2(10.0), X, y, tol=1e-15)
    assert result.stop_reason == "precision"
    assert result.n_iter < 100
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 10.0))


@pytest.mark.parametrize(("gamma", "C"), [(0.05, 1.0), (2.0, 100.0)])
def test_a_kernel_that_is_no_inner_product_has_no_lower_bound(gamma, C):
    X, y = overlapping(0)
    result = solve(Kernel("sigmoid", gamma), HingeL2(C), X, y, tol=1e-3)
    assert result.stop_reason == "stationary"
    assert result.certificate.dual == -np.inf
