"""The kernel C-SVM with all kernel values at once: against a generic QP, with its bounds, limits and corner cases."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from tests.problems_at_hand import overlapping, separable
from tests.solvers.test_block_dual import KERNELS, RBF, TOL, assert_solved, assert_true, exact_of, gram, objective
from tests.solvers.test_block_dual import solve as solve_with
from widemargin import KernelSVC, cores
from widemargin.comm.solo import Solo
from widemargin.compiled.small_dual import linear_bounds, responses
from widemargin.data.shard import Shard
from widemargin.kernels import precision
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.vectors import padded
from widemargin.pauses import TimeIsUp
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers import auto, small_dual
from widemargin.solvers._kernel_ranks import Summed, balanced
from widemargin.solvers._linear_dual import Rows
from widemargin.solvers.auto import kernel_csvm, small_linear_csvm
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.multipliers import Multipliers
from widemargin.solvers.run import Limits, run
from widemargin.solvers.small_dual import SmallDual, SmallLinearDual


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


def solve(kernel, problem, X, y, weight=None, *, tol=TOL, **options):
    options = {"solver": SmallDual(tol), "tol": tol, **options}
    return solve_with(kernel, problem, X, y, weight, **options)[0]


# -- the exact answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize("name", KERNELS)
def test_the_optimum_is_that_of_the_exact_qp(name, C, fit_intercept, seed):
    X, y = overlapping(seed)
    kernel, K = KERNELS[name], gram(KERNELS[name], X)
    result = solve(kernel, HingeL2(C, fit_intercept), X, y)
    assert_solved(result, exact_of(K, y, C, fit_intercept=fit_intercept))
    assert objective(result.model, K, y, C) == pytest.approx(result.certificate.primal, rel=1e-9)
    assert fit_intercept or result.model.intercept == 0


def test_weights_are_caps(fit_intercept, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).uniform(0.1, 3, len(y))
    exact = exact_of(gram(RBF, X), y, 0.7, weight, fit_intercept)
    assert_solved(solve(RBF, HingeL2(0.7, fit_intercept), X, y, weight), exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_any_storage_and_precision_solves_the_problem_of_its_values(storage, dtype, fit_intercept):
    X, y = overlapping(3)
    X = storage(np.where(np.abs(X) > 0.8, X, 0).astype(dtype))
    assert_solved(solve(RBF, HingeL2(1.0, fit_intercept), X, y), exact_of(gram(RBF, X), y, 1.0, None, fit_intercept))


@pytest.mark.parametrize("rows", [2, 63, 64, 65])
def test_any_number_of_rows_fills_the_vectors(rows, fit_intercept):
    X, y = separable(1, n=rows) if rows > 2 else (np.array([[0.0], [1.0]]), np.array([-1.0, 1.0]))
    result = solve(RBF, HingeL2(5.0, fit_intercept), X, y)
    assert_solved(result, exact_of(gram(RBF, X), y, 5.0, None, fit_intercept))


def test_given_values_are_read_by_the_row_that_is_scored():
    """A matrix that is not quite symmetric is the user's; its scores are those of ``K @ beta``."""
    X, y = overlapping(0)
    K = gram(RBF, X) + 1e-3 * np.triu(np.random.default_rng(0).normal(size=(len(y), len(y))), 1)
    model = solve(Kernel("precomputed"), HingeL2(1.0), K, y, tol=1e-2).model
    beta = np.zeros(len(y))
    beta[model.points.numbers] = model.coef
    out = np.zeros(len(y))
    rows = RowsOnCPU(Kernel("precomputed"), K)
    responses(rows.values(100)[0], beta, out)
    np.testing.assert_allclose(out, K @ beta, rtol=1e-12)


# -- bounds and limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_bounds_hold_the_optimum_at_every_sweep(C, fit_intercept):
    X, y = overlapping(0)
    exact = exact_of(gram(RBF, X), y, C, None, fit_intercept)
    result = solve(RBF, HingeL2(C, fit_intercept), X, y, tol=1e-10)
    assert C == 0.1 or len(result.history) > 2
    for row in result.history:
        assert row["dual"] <= exact * (1 + 1e-8)
        assert row["primal"] >= exact * (1 - 1e-8)
        assert row["is_confirmed"] == 1


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_one_sweep_reaches_a_usual_tolerance(tol, seed):
    X, y = overlapping(seed, n=150)
    result = solve(RBF, HingeL2(1.0), X, y, tol=tol)
    assert (result.stop_reason, result.n_iter) == ("gap", 1)
    assert result.ledger.kernel_evaluations == 150**2


def test_a_tolerance_below_the_target_is_reached(fit_intercept):
    X, y = overlapping(0)
    problem, exact = HingeL2(1.0, fit_intercept), exact_of(gram(RBF, X), y, 1.0, None, fit_intercept)
    assert_solved(solve(RBF, problem, X, y, tol=1e-8, solver=SmallDual(1e-2)), exact, 1e-8)


def test_no_tolerance_at_all_ends_with_precision(fit_intercept):
    X, y = overlapping(0)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, tol=0.0)
    assert result.stop_reason == "precision"
    assert result.certificate.relative < 1e-10
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 1.0, None, fit_intercept))


@pytest.mark.parametrize("told", ["callback", "max_time"])
def test_a_stop_before_the_first_sweep_gives_the_bounds_of_no_model(told):
    X, y = overlapping(0)
    result = solve(RBF, HingeL2(1.0), X, y, told=told)
    assert (result.stop_reason, result.n_iter) == (told, 0)
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 1.0))
    assert not len(result.model.coef)


def test_a_callback_can_stop_a_run_and_max_iter_does():
    X, y = overlapping(0)
    options = {"tol": 1e-10, "watch": lambda progress: "callback"}
    assert solve(RBF, HingeL2(1.0), X, y, **options).stop_reason == "callback"
    result = solve(RBF, HingeL2(1.0), X, y, tol=1e-10, max_iter=2)
    assert (result.stop_reason, result.n_iter) == ("max_iter", 2)


def test_steps_end_where_the_clock_is_looked_at(monkeypatch):
    X, y = overlapping(0)
    monkeypatch.setattr(small_dual, "WORK", 4 * padded(len(y)) * 3)  # three steps
    result = solve(RBF, HingeL2(1.0), X, y, tol=1e-3)
    assert result.stop_reason == "gap"
    assert result.n_iter > 5
    watch = iter([None, None, "callback"])
    assert solve(RBF, HingeL2(1.0), X, y, watch=lambda progress: next(watch)).n_iter == 3


def test_without_an_inner_product_there_is_no_lower_bound_and_the_conditions_end_it(fit_intercept):
    X, y = overlapping(0)
    result = solve(Kernel("sigmoid", 0.5, coef0=0.1), HingeL2(1.0, fit_intercept), X, y, tol=1e-4)
    assert result.stop_reason == "stationary"
    assert result.certificate.dual == -np.inf
    assert result.history[-1]["violation"] <= 1e-4


def test_an_earlier_answer_is_known_to_be_one(fit_intercept):
    X, y = overlapping(0)
    shard = Shard(X, y, np.ones(len(y)), RowsOnCPU(RBF, X))
    limits, solver, problem = Limits(1e-6, 50), SmallDual(1e-6), HingeL2(1.0, fit_intercept)
    states = []
    options = {"watch": lambda progress: states.append(progress.warm_state), "watch_state": True}
    run(solver, problem, shard, Solo(), limits, np.random.default_rng(0), **options)
    again = run(solver, problem, shard, Solo(), limits, np.random.default_rng(0), warm=states[-1])
    assert (again.stop_reason, again.n_iter) == ("gap", 0)


def test_fewer_support_vectors_have_bounds_of_their_own():
    X, y = overlapping(0, n=80)
    result = solve(RBF, HingeL2(1.0), X, y, solver=SmallDual(TOL, max_support=9))
    assert result.stop_reason == "max_support"
    assert len(result.model.coef) == 9
    attained = objective(result.model, gram(RBF, X), y, 1.0)
    assert attained <= result.certificate.primal * (1 + 1e-9)
    assert result.certificate.primal == pytest.approx(attained, rel=1e-9)


# -- several problems on the same rows -------------------------------------------------------------------------------


def test_rows_take_their_values_from_those_of_all_rows(seed):
    X, _ = overlapping(seed, n=90)
    rng, rows, K = np.random.default_rng(seed), RowsOnCPU(RBF, X), gram(RBF, X)
    rows.groups, some = rng.integers(0, 3, 90), np.flatnonzero(rng.random(90) < 0.5)
    fewer = rows.only(some)
    for part, places in ((fewer, some), (fewer.only(np.arange(5)), some[:5])):
        values, order = part.values(100)
        ordered = places[order]
        assert (np.diff(rows.groups[ordered]) >= 0).all()  # neighbours are copied together
        np.testing.assert_allclose(values[:, : len(places)], K[np.ix_(ordered, ordered)], rtol=1e-12)
        assert not values[:, len(places) :].any()
    assert rows.ledger.kernel_evaluations == 90**2  # once
    np.testing.assert_allclose(rows.values(100)[0][:, :90], K, rtol=1e-12)
    other = RowsOnCPU(RBF, X).only(some)
    values, order = fewer.values(100)
    np.testing.assert_allclose(other.values(50)[0][np.ix_(order, order)], values[:, : len(some)], rtol=1e-13)
    assert other.ledger.kernel_evaluations == len(some) ** 2  # all rows would be too many


@pytest.mark.parametrize("kernel", ["rbf", "poly", "precomputed", "linear"])
def test_classes_share_kernel_values(kernel):
    X, _ = overlapping(0, n=90)
    y = np.arange(90) % 3
    given = rbf_kernel(X) if kernel == "precomputed" else X
    model = KernelSVC(kernel=kernel).fit(given, y)
    assert model.cost_.kernel_evaluations == (0 if kernel == "linear" else 90**2)


def test_some_rows_have_the_rounding_errors_of_all_rows(seed):
    X, _ = overlapping(seed, n=90)
    some, coef = np.arange(3, 60, 7), np.random.default_rng(seed).normal(size=9)
    for kernel in KERNELS.values():
        rows = RowsOnCPU(kernel, X)
        part, alone = rows.only(some), RowsOnCPU(kernel, X[some], some)
        assert part.mass(coef) == alone.mass(coef)
        np.testing.assert_array_equal(part.score_error(1.0, 9.0, coef), alone.score_error(1.0, 9.0, coef))


# -- which solver ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "n_bytes", "ranks"), [(41, 8 * 40**2, 1), (40, 8 * 40**2, 2), (2001, 1 << 30, 1)])
def test_more_rows_than_fit_and_ranks_go_to_the_other_solver(rows, n_bytes, ranks):
    solver = kernel_csvm(n_bytes, 1e-2)
    assert isinstance(solver.candidates[1], BlockDual)
    X, y = overlapping(0, n=rows)

    class Ranked(Solo):
        size = ranks

    assert solver.first(Shard(X, y, np.ones(rows)), Ranked(), None) == 1
    few = rows - 1 if ranks == 1 else rows
    assert solver.first(Shard(X[:few], y[:few], np.ones(few)), Solo(), None) == 0


def test_a_linear_problem_that_is_slow_on_pairs_of_rows_goes_on_with_newton(monkeypatch):
    X, y = overlapping(0, n=80)
    monkeypatch.setattr(small_dual, "_MAX_LINEAR_WORK", 80.0)  # one step
    shard = Shard(X * np.logspace(0, 3, X.shape[1]), y, np.ones(80))
    solver, started = small_linear_csvm(1 << 20, 1e-6), []
    assert solver.first(shard, Solo(), None) == 0
    assert solver.first(shard, Solo(), np.ones(X.shape[1])) == 1  # pairs of rows begin without a direction
    start = Multipliers.start

    def noted(self, *inputs):
        started.append(inputs[-1])
        return start(self, *inputs)

    monkeypatch.setattr(Multipliers, "start", noted)
    result = run(solver, HingeL2(1.0), shard, Solo(), Limits(1e-6, 100), np.random.default_rng(0))
    assert result.stop_reason == "gap"
    assert len(started) == 1
    assert started[0] is not None  # where pairs of rows ended


def test_kernel_values_that_take_too_long_leave_the_bounds_of_no_model(monkeypatch):
    def late(rows, most_rows, *, exact):
        raise TimeIsUp

    X, y = overlapping(0)
    monkeypatch.setattr(RowsOnCPU, "values", late)
    result = solve(RBF, HingeL2(1.0), X, y, max_iter=1)
    assert result.stop_reason == "max_iter"
    assert not len(result.model.coef)
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 1.0))


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_bounds_are_those_of_several_ranks(name, fit_intercept, seed):
    X, y = overlapping(seed)
    rows, problem, solver = RowsOnCPU(KERNELS[name], X), HingeL2(2.0, fit_intercept), SmallDual(1e-3)
    shard = Shard(X, y, np.random.default_rng(seed).uniform(0.5, 2, len(y)), rows)
    state = solver.sweep(solver.start(problem, shard, Solo(), np.random.default_rng(0)))
    compiled, point, allowance = state.best.certificate, state.best.point, state.allowance
    state.best = None
    general = solver._bounds(state, 1e-12, Summed.of(state.comm, rows, state.beta))
    assert state.best is not None
    assert compiled.primal == pytest.approx(general.primal, rel=1e-5)  # the search ends earlier in a sweep
    assert compiled.dual == pytest.approx(general.dual, rel=1e-12)
    assert compiled.primal >= general.primal * (1 - 1e-12)
    assert point.intercept == pytest.approx(state.best.point.intercept, abs=1e-2)
    assert 0 < allowance <= 2 * state.allowance


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_compiled_linear_bounds_are_those_of_any_number_of_rows(scale, fit_intercept, seed):
    """And the lower bound is below the exact dual objective of coefficients whose sums are made equal."""
    X, y = overlapping(seed, n=70)
    X, rng, problem = scale * X, np.random.default_rng(seed), HingeL2(0.7, fit_intercept)
    weight = rng.uniform(0.5, 2, len(y))
    shard = Shard(X, y, weight)
    rows = Rows.of(problem, shard, Solo(), rng)
    signed = y * rows.upper * rng.uniform(0, 1, len(y)) * (rng.uniform(size=len(y)) < 0.6) / max(scale, 1.0) ** 2
    if fit_intercept:
        signed = balanced(Solo(), signed)
    z = shard.combine(signed)
    scores = shard.scores(z)
    primal, factor, intercept, dual, allowance = linear_bounds(
        scores, z, signed, y, weight, rows.lengths, rows.of_score, rows.of_sum, 0.7, fit_intercept, 1e-9
    )
    rounding = rows.rounding(rows.score_error(z))
    point = problem.primal_point(scores, y, weight, rows.squared_norm(z), precision=1e-9, rounding=rounding)
    assert (primal, factor, intercept) == pytest.approx(point, rel=1e-9, abs=1e-12)
    total, squared = Fraction(0), [Fraction(0)] * X.shape[1]
    for beta, row in zip(signed, X, strict=True):
        total += abs(Fraction(beta))
        squared = [each + Fraction(beta) * Fraction(entry) for each, entry in zip(squared, row, strict=True)]
    squared = sum(each**2 for each in squared)
    share = min(Fraction(1), total / squared)
    exact = float(share * total - share**2 * squared / 2)
    assert dual <= exact * (1 + 1e-15)
    assert dual == pytest.approx(exact, rel=1e-11)
    assert 0 < allowance < 1e-9 * primal


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_linear_problems_share_the_inner_products_of_all_rows(kind, dtype):
    X, _ = overlapping(0, n=70)
    whole = Shard(kind(X), np.arange(70.0) % 3, np.ones(70))
    pair, rest = whole.between(2, 0), whole.against_rest(1)
    products, order = small_dual._products(pair, dtype)
    few = np.asarray(X)[np.arange(70) % 3 != 1][order]
    assert products.dtype == dtype
    assert products.shape == (len(few), padded(len(few)))
    assert products[:, : len(few)] == pytest.approx(few @ few.T, rel=1e-5, abs=1e-5)
    assert not products[:, len(few) :].any()
    of_rest = small_dual._products(rest, dtype)[0]
    assert of_rest[:, :70] == pytest.approx(np.asarray(X) @ np.asarray(X).T, rel=1e-5, abs=1e-5)
    assert small_dual._products(whole.against_rest(0), dtype)[0] is of_rest
    assert small_dual._products(whole.between(1, 0), dtype)[0] is not products


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1e4, 1.0), (0.0, 1e18), (0.0, 1e-6)])
def test_a_linear_problem_that_float32_does_not_close_goes_on_in_float64(shift, scale, monkeypatch):
    X, y = overlapping(3, n=90)
    used, products = [], small_dual._products

    def noted(shard, dtype):
        used.append(dtype)
        return products(shard, dtype)

    monkeypatch.setattr(small_dual, "_products", noted)
    shard = Shard(scale * X + shift, y, np.ones(90))
    result = run(SmallLinearDual(1e-4), HingeL2(scale**-2), shard, Solo(), Limits(1e-4, 50), np.random.default_rng(0))
    assert result.stop_reason == "gap"
    assert result.certificate.relative <= 1e-4
    exact = run(
        Multipliers(), HingeL2(1.0), Shard(X, y, np.ones(90)), Solo(), Limits(1e-9, 200), np.random.default_rng(0)
    )
    assert result.certificate.dual * scale**2 <= exact.certificate.primal * (1 + 1e-9)
    assert result.certificate.primal * scale**2 >= exact.certificate.dual * (1 - 1e-9)
    assert used == {1.0: [np.float32, np.float64][: 1 + (shift > 0)], 1e18: [np.float64], 1e-6: [np.float32]}[scale]


def test_pairs_of_classes_on_few_rows_count_all_training_rows():
    X, _ = overlapping(0, n=1200)
    y = np.arange(1200) % 3
    y[X[:, 0] > 0.5] = 0
    model = KernelSVC(C=10.0).fit(X, y)
    assert model.training_.n_counted == model.training_.n_rows == 1200
    assert model.training_.accuracy == model.score(X, y)


# -- pairs of classes among many rows --------------------------------------------------------------------------------


@pytest.fixture
def many_rows(monkeypatch):
    """A hundred rows count as many, which have kernel values in float32 where kernels allow it."""
    for module in (small_dual, auto):
        monkeypatch.setattr(module, "MAX_ROWS", 100)
    monkeypatch.setattr(small_dual, "_MIN_WORK_BESIDE", 0)
    monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 100)
    X, _ = overlapping(0, n=200)
    y = np.random.default_rng(0).choice(5, 200, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    X[:, 0] += y
    return X, y


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "cosine", "poly"])
@pytest.mark.parametrize("C", [0.1, 100.0])
def test_pairs_of_classes_share_values_and_their_bounds_hold(name, C, storage, fit_intercept, many_rows):
    X, y = many_rows
    sizes = np.bincount(y).astype(int)
    for tol in (1e-2, 1e-4):
        model = KernelSVC(C=C, kernel=name, gamma=0.3, fit_intercept=fit_intercept, tol=tol).fit(storage(X), y)
        within, between = (sizes**2).sum(), sum(a * b for a, b in combinations(sizes, 2))
        assert model.cost_.kernel_evaluations >= within + between
        for k, (first, second) in enumerate(combinations(range(5), 2)):
            rows = (y == first) | (y == second)
            labels = np.where(y[rows] == first, 1.0, -1.0)
            kernel = Kernel(name, 0.3)
            best = solve(kernel, HingeL2(C, fit_intercept), X[rows], labels, tol=1e-9).certificate
            found = model.parts_[k].certificate
            assert found.dual <= best.primal
            assert best.dual <= found.primal
            assert found.relative <= tol


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_a_pair_that_float32_does_not_close_goes_on_in_float64(kernel, many_rows):
    X, y = many_rows
    model = KernelSVC(C=10.0, kernel=kernel, tol=1e-10).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.relative <= 1e-10


@pytest.mark.parametrize("limits", [{}, {"max_support": 12}, {"max_time": 100.0}, {"warm_start": True}])
def test_pairs_beside_each_other_have_the_bits_of_pairs_one_after_the_other(limits, many_rows):
    X, y = many_rows
    found = []
    for n in (1, 2, 5):
        with cores.at_most(n):
            model = KernelSVC(C=10.0, random_state=0, **limits).fit(X, y)
            found.append(model.fit(X, y) if "warm_start" in limits else model)
    for other in found[1:]:
        np.testing.assert_array_equal(other.dual_coef_, found[0].dual_coef_)
        np.testing.assert_array_equal(other.intercept_, found[0].intercept_)
        assert [each.certificate for each in other.parts_] == [each.certificate for each in found[0].parts_]
        assert other.cost_.kernel_evaluations == found[0].cost_.kernel_evaluations
        assert [each.n_iter for each in other.parts_] == [each.n_iter for each in found[0].parts_]


@pytest.mark.parametrize("n_bytes", [0, 4 * 40**2, 1 << 30])
def test_values_within_classes_are_kept_where_they_fit(n_bytes, many_rows):
    X, y = many_rows
    rows = RowsOnCPU(Kernel("rbf", 0.3), X)
    rows.groups = y.astype(float)
    places = np.flatnonzero((y == 1) | (y == 3))
    pair = rows.only(places)
    is_kept = pair.keep_classes(100, n_bytes)
    assert is_kept == (n_bytes >= 4 * (np.bincount(y) ** 2).sum())
    if is_kept:
        K, order = pair.values(100, exact=False)
        assert K.dtype == np.float32
        expected = rbf_kernel(X[places[order]], gamma=0.3)
        np.testing.assert_allclose(K[:, : len(places)], expected, rtol=1e-5)
        assert not K[:, len(places) :].any()
    assert not rows.keep_classes(100, n_bytes)
