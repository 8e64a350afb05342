"""The exact kernel C-SVM by single working sets, in NumPy and on torch's CPU device, against a generic QP."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tests.problems_at_hand import assert_brackets, overlapping, separable
from tests.solvers.test_block_dual import KERNELS, RBF, assert_solved, assert_true, exact_of, gram, objective
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels import vectors
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers import flat_dual
from widemargin.solvers.flat_dual import FlatDual
from widemargin.solvers.run import Limits, run

TOL = 1e-5
NAMED = [name for name in KERNELS if name != "callable"]


@pytest.fixture(autouse=True, params=["numpy", "torch", "torch-sums-on-device"])
def device(request, monkeypatch):
    """Where :func:`solve` puts the rows; sums of many rows are computed there too."""
    if request.param != "numpy":
        pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
        monkeypatch.setitem(PLACE, "device", "cpu:0")
    if request.param == "torch-sums-on-device":
        from widemargin.kernels import on_torch

        monkeypatch.setattr(on_torch, "_MAX_HOST_ROWS", 0)
    return PLACE["device"]


PLACE = {"device": "cpu"}


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


@pytest.fixture
def small_sets(monkeypatch):
    """Working sets so small that some hundred rows need many of them."""
    monkeypatch.setattr(flat_dual, "BLOCK", 32)
    monkeypatch.setattr(vectors, "_MIN_GROUPS", 32)


def solve(kernel, problem, X, y, weight=None, *, tol=TOL, max_iter=2000, seed=0, precision="float16", **options):
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    comm = Solo()
    rows = kernel_rows(kernel, X, 0, comm.ledger, precision=precision, **PLACE)
    shard = Shard(X, np.asarray(y, dtype=np.float64), weight, rows)
    limits = Limits(tol, max_iter, options.pop("max_time", np.inf))
    solver = FlatDual(stationary=tol, max_support=options.pop("max_support", None))
    return run(solver, problem, shard, comm, limits, np.random.default_rng(seed), **options)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("n", [50, 200], ids=["all-rows-fit", "many-sets"])
def test_the_optimum_is_reached_with_every_kernel(name, n, fit_intercept, small_sets):
    X, y = overlapping(0, n=n, shift=0.5)
    kernel = KERNELS[name]
    K = gram(kernel, X)
    result = solve(kernel, HingeL2(1.0, fit_intercept), X, y)
    exact = exact_of(K, y, 1.0, fit_intercept=fit_intercept)
    assert_solved(result, exact, TOL)
    assert objective(result.model, K, y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)
    assert result.model.report["kernel_error"] < 1e-3


@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
def test_rows_that_rounding_moves_are_solved_as_they_were_given(C, fit_intercept, small_sets, device):
    """Of 64 columns none has room for a second number: the gap is closed for the rows themselves nevertheless."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 64))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=150) > 0, 1.0, -1.0)
    kernel = Kernel("rbf", 0.02)
    result = solve(kernel, HingeL2(C, fit_intercept), X, y, tol=1e-6)
    assert device == "cpu" or result.model.report["kernel_error"] > 1e-5
    assert_solved(result, exact_of(gram(kernel, X), y, C, fit_intercept=fit_intercept), 1e-6)


def test_bounds_as_seen_on_the_way_and_as_confirmed(small_sets, fit_intercept):
    X, y = overlapping(1, n=200, shift=0.3)
    result = solve(RBF, HingeL2(10.0, fit_intercept), X, y)
    exact = exact_of(gram(RBF, X), y, 10.0, fit_intercept=fit_intercept)
    assert_brackets(result.history, exact, slack=1e-4)  # in less than float64, but for the last
    assert_true(result.certificate, exact)
    assert {"violation", "n_support", "kernel_evaluations"} <= set(result.history[-1])
    assert result.history[-1]["n_support"] == len(result.model.coef)


@pytest.mark.parametrize("reason", ["max_iter", "max_time", "callback"])
def test_an_early_end_has_a_true_certificate(reason, small_sets, fit_intercept):
    X, y = overlapping(2, n=300, shift=0.2)
    watch = (lambda progress: "callback") if reason == "callback" else None
    result = solve(
        RBF, HingeL2(100.0, fit_intercept), X, y, max_iter=1 if reason == "max_iter" else 500, tol=1e-9,
        max_time=1e-9 if reason == "max_time" else np.inf, watch=watch,
    )  # fmt: skip
    assert (result.stop_reason, result.n_iter) == (reason, 1)
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 100.0, fit_intercept=fit_intercept))


def test_weights_are_copies(small_sets, fit_intercept):
    X, y = overlapping(3, n=100, shift=0.5)
    weight = np.random.default_rng(0).integers(1, 4, 100)
    result = solve(RBF, HingeL2(0.7, fit_intercept), X, y, weight)
    exact = exact_of(gram(RBF, X), y, 0.7, weight, fit_intercept)
    assert_solved(result, exact, TOL)
    copies = np.repeat(np.arange(100), weight)
    again = solve(RBF, HingeL2(0.7, fit_intercept), X[copies], y[copies])
    assert again.certificate.primal == pytest.approx(exact, rel=2 * TOL)


def test_classes_of_very_unequal_size(small_sets, fit_intercept):
    X, y = overlapping(4, n=200, shift=0.7)
    keep = np.concatenate([np.flatnonzero(y > 0)[:3], np.flatnonzero(y < 0)])
    X, y = X[keep], y[keep]
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y)
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept), TOL)


def test_classes_apart_and_rows_that_repeat(small_sets, fit_intercept):
    X, y = separable(0, n=60)
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    result = solve(RBF, HingeL2(10.0, fit_intercept), X, y)
    assert_solved(result, exact_of(gram(RBF, X), y, 10.0, fit_intercept=fit_intercept), TOL)


@pytest.mark.parametrize("kernel", [RBF, Kernel("linear")], ids=["rbf", "linear"])
def test_a_gap_that_rounding_keeps_open_is_the_end_and_the_certificate_is_true(small_sets, fit_intercept, kernel):
    X, y = overlapping(1, n=120, shift=0.3)
    result = solve(kernel, HingeL2(100.0, fit_intercept), X, y, tol=1e-16)
    assert result.stop_reason == "precision"
    assert 0 < result.certificate.relative < 1e-9
    exact = exact_of(gram(kernel, X), y, 100.0, fit_intercept=fit_intercept)
    assert_true(result.certificate, exact, slack=1e-10)


def test_without_an_inner_product_the_conditions_end_it(fit_intercept):
    X, y = overlapping(0)
    result = solve(Kernel("sigmoid", 0.1, coef0=-0.5), HingeL2(1.0, fit_intercept), X, y, tol=1e-3)
    assert result.stop_reason == "stationary"
    assert result.certificate.dual == -np.inf
    assert result.model.report["violation"] <= 1.1e-3


def test_an_earlier_answer_saves_sweeps_and_one_to_another_problem_is_made_feasible(small_sets, fit_intercept):
    X, y = overlapping(5, n=300, shift=0.4)
    problem, exact, seen = HingeL2(1.0, fit_intercept), None, []
    cold = solve(
        RBF, problem, X, y, watch_state=True, watch=lambda progress: seen.append(progress.warm_state)
    )  # fmt: skip
    warm = solve(RBF, problem, X, y, warm=seen[-1])
    exact = exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept)
    assert_solved(cold, exact, TOL)
    assert_solved(warm, exact, TOL)
    assert warm.n_iter < cold.n_iter
    wild = np.random.default_rng(0).normal(size=300) * 10
    early = solve(RBF, problem, X, y, warm=wild, max_iter=1, tol=1e-9)
    assert_true(early.certificate, exact)
    assert_solved(solve(RBF, problem, X, y, warm=wild), exact, TOL)


def test_fewer_support_vectors_have_their_own_bound(small_sets, fit_intercept):
    X, y = overlapping(6, n=200, shift=0.4)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, max_support=20)
    assert result.stop_reason == "max_support"
    assert len(result.model.coef) <= 20
    K = gram(RBF, X)
    assert objective(result.model, K, y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)
    assert_true(result.certificate, exact_of(K, y, 1.0, fit_intercept=fit_intercept))


def test_equal_seeds_give_equal_bits(small_sets):
    X, y = overlapping(7, n=300, shift=0.4)
    first, again, other = (solve(RBF, HingeL2(1.0), X, y, tol=1e-9, max_iter=2, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.model.coef, again.model.coef)
    assert first.certificate == again.certificate
    assert first.certificate != other.certificate


def test_a_round_costs_its_block_and_one_pass(small_sets, monkeypatch):
    monkeypatch.setattr(flat_dual, "_ROUNDS_PER_SWEEP", 1)
    X, y = overlapping(0, n=200)
    rows = kernel_rows(RBF, X, **PLACE)
    shard = Shard(X, y, np.ones(200), rows)
    state = FlatDual().start(HingeL2(1.0), shard, Solo(), np.random.default_rng(0), None)
    assert rows.ledger.kernel_evaluations == 0
    FlatDual().sweep(state)
    assert rows.ledger.kernel_evaluations == 32 * 32 + 32 * 200


def test_memory_of_the_device_is_given_back_at_once(small_sets):
    """No circle of references: nothing waits for the collector."""
    X, y = overlapping(0, n=200)
    gc.disable()
    try:
        rows = kernel_rows(RBF, X, **PLACE)
        shard = Shard(X, y, np.ones(200), rows)
        state = FlatDual().start(HingeL2(1.0), shard, Solo(), np.random.default_rng(0), None)
        FlatDual().sweep(state)
        FlatDual().confirm(state)
        there = weakref.ref(rows)
        del state, rows, shard
        assert there() is None
    finally:
        gc.enable()
