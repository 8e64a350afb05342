"""Column generation for the 1-norm SVM against a linear program solver, and what holds of any of its answers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from tests.problems_at_hand import assert_brackets, on_ranks, overlapping, part_of, separable, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l1 import HingeL1, auto_alpha
from widemargin.solvers import _merged_rows, _restricted_lp, column_generation
from widemargin.solvers._interior_point import Program, steepest_loss
from widemargin.solvers.column_generation import ColumnGeneration, alpha_max, solved
from widemargin.solvers.protocol import Inputs

SOLVER, TOL = ColumnGeneration(), 1e-10


@pytest.fixture(params=[True, False], ids=["intercept", "no-intercept"])
def fit_intercept(request):
    return request.param


def optimum(X, y, alpha, weight=None, fit_intercept=True):
    """The optimum of the dual, by HiGHS on the whole linear program."""
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
    caps, signed = weight / weight.sum(), (X * y[:, None]).T
    found = linprog(
        -np.ones(len(y)),
        A_ub=np.vstack([signed, -signed]),
        b_ub=np.full(2 * len(signed), alpha),
        A_eq=y[None] if fit_intercept else None,
        b_eq=[0.0] if fit_intercept else None,
        bounds=np.column_stack([np.zeros(len(y)), caps]),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0
    return -found.fun


def objective(model, X, y, alpha, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    slack = np.maximum(0, 1 - y * (np.asarray(X @ model.coef) + model.intercept))
    return weight @ slack / weight.sum() + alpha * np.abs(model.coef).sum()


def bound(X, y):
    """An alpha with no coefficients, whatever the intercept: every mass is at most 1/n."""
    return float(np.abs(X).sum(axis=0).max()) / len(y)


def wide(seed, n=30, p=80, sparsity=0.0):
    """More columns than rows, five of them of use."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[rng.random(X.shape) < sparsity] = 0.0
    y = np.where(X[:, :5].sum(axis=1) + rng.normal(size=n) > 0.5, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y


def assert_solved(result, exact, tol=1e-8):
    assert result.stop_reason == "gap"
    assert result.certificate.primal == pytest.approx(exact, rel=tol)
    assert result.certificate.dual == pytest.approx(exact, rel=tol)


def test_assert_solved_fails_on_a_wrong_answer_and_on_an_open_gap():
    X, y = wide(0)
    exact = optimum(X, y, 0.05)
    result = solve(SOLVER, HingeL1(0.05), X, y, tol=TOL)[0]
    assert_solved(result, exact)
    with pytest.raises(AssertionError):
        assert_solved(result, exact * (1 + 1e-7))
    with pytest.raises(AssertionError):
        assert_solved(solve(SOLVER, HingeL1(0.05), X, y, tol=TOL, max_iter=1)[0], exact)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 1e-4])
@pytest.mark.parametrize("shape", [(2, 1), (9, 1), (40, 3), (25, 90), (60, 60)], ids=str)
def test_the_optimum_is_that_of_the_whole_linear_program(shape, share, fit_intercept, seed):
    X, y = wide(seed, *shape)
    alpha = share * bound(X, y)
    result = solve(SOLVER, HingeL1(alpha, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, optimum(X, y, alpha, fit_intercept=fit_intercept))
    assert objective(result.model, X, y, alpha) == pytest.approx(result.certificate.primal, rel=1e-12)
    assert fit_intercept or result.model.intercept == 0
    assert np.count_nonzero(result.model.coef) <= min(shape)  # a vertex, with exact zeros
    assert result.model.report["alpha"] == alpha
    assert np.count_nonzero(result.model.coef) <= result.model.report["n_working"] <= shape[1]


def test_the_bounds_hold_the_optimum_at_every_sweep_and_never_get_worse(fit_intercept, dtype, n_ranks, seed):
    X, y = wide(seed, 45, 150)
    X, weight = X.astype(dtype), np.random.default_rng(seed).choice([0.5, 1.0, 2.0], len(y))
    # Small steps, so that there is something to see between the first sweep and the last.
    solver, problem = ColumnGeneration(first_columns=3, growth=0.2), HingeL1(0.02, fit_intercept)
    history = solve(solver, problem, X, y, weight, tol=0.0, max_iter=40, ranks=n_ranks)[0].history
    assert len(history) > 5
    assert_brackets(history, optimum(X, y, 0.02, weight, fit_intercept))
    assert all(np.diff([row["primal"] for row in history]) <= 0)
    assert all(np.diff([row["dual"] for row in history]) >= 0)
    assert history[-1]["primal"] - history[-1]["dual"] <= 1e-9 * history[-1]["primal"]


def test_any_number_of_ranks_finds_the_same_model(fit_intercept, n_ranks):
    X, y = wide(3, 50, 70)
    alone = solve(SOLVER, HingeL1(0.03, fit_intercept), X, y, tol=TOL)[0]
    results = solve(SOLVER, HingeL1(0.03, fit_intercept), X, y, tol=TOL, ranks=n_ranks)
    assert_solved(results[0], optimum(X, y, 0.03, fit_intercept=fit_intercept))
    np.testing.assert_allclose(results[0].model.coef, alone.model.coef, atol=1e-9)
    for other in results[1:]:
        np.testing.assert_array_equal(other.model.coef, results[0].model.coef)
        assert other.certificate == results[0].certificate


def test_a_rank_may_have_no_rows_and_rows_no_weight():
    X, y = wide(4)
    weight = np.ones(len(y))
    weight[:12] = 0.0

    def on_rank(comm):
        rows = slice(0, 0) if comm.rank == 2 else slice(0, 15) if comm.rank == 0 else slice(15, None)
        shard = Shard(X[rows], y[rows], weight[rows])
        return solved(Inputs(HingeL1(0.05), shard, comm, np.random.default_rng(0)), TOL, 100).certificate

    for certificate in on_ranks(3, on_rank):
        assert certificate.primal == pytest.approx(optimum(X, y, 0.05, weight), rel=1e-8)
        assert certificate.relative <= TOL


def test_any_storage_and_precision_solves_the_problem_of_its_values(fit_intercept, storage, dtype):
    X, y = wide(5, 40, 60, sparsity=0.7)
    X = X.astype(dtype)
    result = solve(SOLVER, HingeL1(0.02, fit_intercept), storage(X), y, tol=TOL)[0]
    assert_solved(result, optimum(X, y, 0.02, fit_intercept=fit_intercept))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_in_pieces_are_the_same_rows(is_sparse):
    X, y = wide(6, 40, 60, sparsity=0.5)
    make = sp.csr_matrix if is_sparse else np.ascontiguousarray
    shard = Shard([make(X[:13]), make(X[13:14]), make(X[14:])], y, np.ones(len(y)))
    state = solved(Inputs(HingeL1(0.03), shard, Solo(), np.random.default_rng(0)), TOL, 100)
    assert state.certificate.primal == pytest.approx(optimum(X, y, 0.03), rel=1e-8)


def test_a_weight_is_a_number_of_copies_and_none_is_absence(fit_intercept, seed):
    X, y = wide(seed)
    weight = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float)
    weight[:2] = 1.0
    copies = weight.astype(int)
    problem = HingeL1("auto", fit_intercept)
    weighted = solve(SOLVER, problem, X, y, weight, tol=TOL)[0]
    repeated = solve(SOLVER, problem, np.repeat(X, copies, axis=0), np.repeat(y, copies), tol=TOL)[0]
    alpha = weighted.model.report["alpha"]
    assert alpha == pytest.approx(repeated.model.report["alpha"], rel=1e-12)
    assert_solved(weighted, optimum(X, y, alpha, weight, fit_intercept))
    np.testing.assert_allclose(weighted.model.coef, repeated.model.coef, atol=1e-8)


def test_the_order_of_rows_and_of_columns_does_not_matter(fit_intercept, seed):
    X, y = wide(seed)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(y)), rng.permutation(X.shape[1])
    first = solve(SOLVER, HingeL1(0.04, fit_intercept), X, y, tol=TOL)[0]
    other = solve(SOLVER, HingeL1(0.04, fit_intercept), X[rows][:, columns], y[rows], tol=TOL)[0]
    np.testing.assert_allclose(other.model.coef, first.model.coef[columns], atol=1e-8)
    assert other.certificate.primal == pytest.approx(first.certificate.primal, rel=1e-9)


def test_columns_of_any_scale(fit_intercept, seed):
    X, y = wide(seed)
    X = X * 10.0 ** np.random.default_rng(seed).uniform(-3, 3, X.shape[1])
    alpha = 0.01 * bound(X, y)
    result = solve(SOLVER, HingeL1(alpha, fit_intercept), X, y, tol=1e-9)[0]
    assert_solved(result, optimum(X, y, alpha, fit_intercept=fit_intercept))


def test_weights_of_any_size(fit_intercept, seed):
    X, y = wide(seed)
    weight = 10.0 ** np.random.default_rng(seed).uniform(-6, 3, len(y))
    result = solve(SOLVER, HingeL1(0.01, fit_intercept), X, y, weight, tol=1e-9)[0]
    assert_solved(result, optimum(X, y, 0.01, weight, fit_intercept))


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 0.3])
def test_degenerate_programs(alpha, fit_intercept, seed):
    """Values of few kinds, rows and columns twice, columns constant and of zeros."""
    X, y = wide(seed, 30, 20)
    X = np.round(X)
    X = np.hstack([X, X[:, :9], np.ones((len(y), 1)), np.zeros((len(y), 2)), -X[:, 2:4]])
    X, y = np.vstack([X, X[:10], X[:10]]), np.concatenate([y, y[:10], -y[:10]])
    result = solve(SOLVER, HingeL1(alpha, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, optimum(X, y, alpha, fit_intercept=fit_intercept))
    assert not result.model.coef[-4:-2].any()


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.1])
def test_separable_rows(alpha, fit_intercept, seed):
    X, y = separable(seed)
    result = solve(SOLVER, HingeL1(alpha, fit_intercept), X, y, tol=1e-9)[0]
    assert_solved(result, optimum(X, y, alpha, fit_intercept=fit_intercept))


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_nothing_but_constant_columns(value):
    y = np.array([1.0, -1.0, -1.0])
    result = solve(SOLVER, HingeL1(0.1), np.full((3, 2), value), y)[0]
    assert result.certificate.primal == pytest.approx(2 / 3)
    assert result.certificate.relative <= 1e-12
    assert not result.model.coef.any()
    assert result.model.intercept == -1.0


def exact_alpha_max(X, y, weight):
    """The least largest correlation over masses of beta = 0, as a linear program of its own."""
    caps = weight / weight.sum()
    sign = 1.0 if caps[y > 0].sum() > caps[y < 0].sum() else -1.0
    heavy, p = y == sign, X.shape[1]
    fixed = (X[~heavy] * (y * caps)[~heavy, None]).sum(axis=0)
    Z, one = sign * X[heavy].T, np.ones((p, 1))
    found = linprog(
        np.append(np.zeros(heavy.sum()), 1.0),
        A_ub=np.vstack([np.hstack([Z, -one]), np.hstack([-Z, -one])]),
        b_ub=np.concatenate([-fixed, fixed]),
        A_eq=np.append(np.ones(heavy.sum()), 0.0)[None],
        b_eq=[caps[~heavy].sum()],
        bounds=[*((0.0, cap) for cap in caps[heavy]), (0.0, None)],
    )
    return found.fun


@pytest.mark.parametrize("shape", [(30, 80), (50, 4), (12, 1)], ids=str)
def test_the_largest_alpha_of_classes_that_differ_is_exact(shape, n_ranks, seed):
    X, y = wide(seed, *shape)
    weight = np.random.default_rng(seed).choice([1.0, 2.5], len(y))

    def on_rank(comm):
        return alpha_max(HingeL1(), part_of(X, y, weight, comm.rank, n_ranks), comm, np.random.default_rng(0))

    found = on_ranks(n_ranks, on_rank)
    assert found[0] == pytest.approx(exact_alpha_max(X, y, weight), rel=1e-9, abs=1e-11)
    assert len(set(found)) == 1


def test_the_largest_alpha_of_rows_that_are_all_alike_is_none():
    X, y = np.tile([0.75, 0.5, 2.0], (7, 1)), np.array([-1.0, 1, -1, -1, 1, 1, -1])
    weight = np.array([2.0, 3, 1, 3, 1, 3, 2])
    assert alpha_max(HingeL1(), Shard(X, y, weight), Solo(), np.random.default_rng(0)) == 0.0


def test_a_number_on_its_bound_leaves_no_room_for_a_step():
    assert steepest_loss(np.array([1.0, 0.0]), np.array([-2.0, -1.0])) == np.inf
    assert steepest_loss(np.array([1.0, 0.0]), np.array([-2.0, 0.0])) == 2.0


@pytest.mark.parametrize("is_even", [True, False])
def test_there_are_no_coefficients_just_above_the_largest_alpha_and_some_just_below(is_even, fit_intercept, seed):
    X, y = wide(seed)
    if is_even:
        X, y = np.vstack([X, X + 0.3]), np.concatenate([y, -y])
    top = alpha_max(HingeL1("auto", fit_intercept), Shard(X, y, np.ones(len(y))), Solo(), np.random.default_rng(0))
    above = solve(SOLVER, HingeL1(top * (1 + 1e-6), fit_intercept), X, y, tol=1e-12)[0]
    below = solve(SOLVER, HingeL1(top * (1 - 1e-6), fit_intercept), X, y, tol=1e-12)[0]
    assert not above.model.coef.any()
    assert above.certificate.relative <= 1e-12
    assert below.model.coef.any()
    assert below.certificate.primal < above.certificate.primal


def test_beta_zero_is_proven_without_a_sweep_where_the_masses_are_known():
    X, y = wide(1)
    result = solve(SOLVER, HingeL1(bound(X, y)), X, y, tol=1e-12)[0]
    assert (result.n_iter, result.stop_reason) == (0, "gap")
    assert not result.model.coef.any()


def test_the_largest_alpha_is_reported_where_it_is_asked_for():
    X, y = wide(1)
    top = alpha_max(HingeL1(), Shard(X, y, np.ones(len(y))), Solo(), np.random.default_rng(0))
    report = solve(ColumnGeneration(finds_alpha_max=True), HingeL1(), X, y)[0].model.report
    assert report["alpha_max"] == pytest.approx(top, rel=1e-12)
    assert "alpha_max" not in solve(SOLVER, HingeL1(), X, y)[0].model.report


def test_a_warm_start_from_the_answer_ends_at_once_and_from_anything_ends_there(fit_intercept, n_ranks, seed):
    X, y = wide(seed, 40, 100)
    problem, exact = HingeL1(0.02, fit_intercept), optimum(X, y, 0.02, fit_intercept=fit_intercept)
    cold = solve(SOLVER, problem, X, y, tol=TOL)[0]
    whole = np.append(cold.model.coef, cold.model.intercept)
    rng = np.random.default_rng(seed)
    for warm in (whole, whole[:-1], 1.3 * whole, rng.normal(size=101), np.zeros(100)):
        assert_solved(solve(SOLVER, problem, X, y, tol=TOL, warm=warm, ranks=n_ranks)[0], exact)
    again = solve(SOLVER, problem, X, y, tol=1e-6, warm=whole)[0]
    assert again.n_iter <= 2
    assert cold.n_iter > 2


def test_a_warm_start_of_another_size_is_refused():
    X, y = wide(0)
    with pytest.raises(ValueError, match="82 numbers"):
        solve(SOLVER, HingeL1(0.1), X, y, warm=np.ones(82))


def test_the_direction_is_a_warm_start_and_equal_on_all_ranks():
    X, y = wide(2)

    def on_rank(comm):
        shard = part_of(X, y, np.ones(len(y)), comm.rank, 3)
        return SOLVER.warm_state(solved(Inputs(HingeL1(0.05), shard, comm, np.random.default_rng(0)), TOL, 100))

    first, *others = on_ranks(3, on_rank)
    assert first.shape == (80,)
    for other in others:
        np.testing.assert_array_equal(first, other)
    assert solve(SOLVER, HingeL1(0.05), X, y, warm=first, tol=1e-6)[0].n_iter <= 2


def test_a_path_of_penalties_each_from_the_one_before(fit_intercept):
    X, y = wide(7, 60, 120)
    warm = None
    for alpha in np.geomspace(0.3, 0.003, 12):
        result = solve(SOLVER, HingeL1(alpha, fit_intercept), X, y, tol=1e-9, warm=warm)[0]
        assert_solved(result, optimum(X, y, alpha, fit_intercept=fit_intercept))
        warm = np.append(result.model.coef, result.model.intercept)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_band_of_rows_gives_the_answer_of_all_rows(share, fit_intercept, monkeypatch, seed):
    """Few rows at work at first, so that others cross the hinge and have to come back."""
    X, y = wide(seed, 300, 40)
    monkeypatch.setattr(_restricted_lp, "_MANY_ROWS", 10)
    monkeypatch.setattr(_restricted_lp, "_BAND", share)
    sizes, solve_program = [], Program.solve

    def spied(program, point, precision):
        sizes.append(len(program.y))
        return solve_program(program, point, precision)

    monkeypatch.setattr(Program, "solve", spied)
    solver = ColumnGeneration(first_columns=4, growth=0.3)
    for alpha in (0.1, 0.02):
        result = solve(solver, HingeL1(alpha, fit_intercept), X, y, tol=1e-9)[0]
        assert_solved(result, optimum(X, y, alpha, fit_intercept=fit_intercept))
    assert min(sizes) < 100 < max(sizes) == 300


def test_all_columns_come_to_work_where_the_answer_is_dense():
    X, y = overlapping(0, n=200, d=40, shift=0.1)
    result = solve(SOLVER, HingeL1(1e-3), X, y, tol=TOL)[0]
    assert_solved(result, optimum(X, y, 1e-3))
    assert result.model.report["n_working"] == 40
    assert result.n_iter < 8


def test_the_default_alpha_keeps_the_predictions_when_columns_are_scaled_or_moved(seed):
    X, y = wide(seed, 60, 40)
    base = solve(SOLVER, HingeL1(), X, y, tol=TOL)[0].model
    assert base.report["alpha"] == pytest.approx(auto_alpha(60, 40), rel=0.2)  # columns of about unit scale
    scaled = solve(SOLVER, HingeL1(), 1000 * X, y, tol=TOL)[0].model
    moved = solve(SOLVER, HingeL1(), X + 50.0, y, tol=TOL)[0].model
    np.testing.assert_allclose(1000 * scaled.coef, base.coef, atol=1e-7)
    np.testing.assert_allclose(moved.coef, base.coef, atol=1e-7)


def test_the_default_alpha_is_that_of_all_ranks_and_of_any_storage(storage, dtype):
    X, y = wide(8, 40, 30, sparsity=0.8)
    X = X.astype(dtype)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 3.0], len(y))
    mean = np.average(X, axis=0, weights=weight)
    squares = np.average((X.astype(np.float64) - mean) ** 2, axis=0, weights=weight)
    expected = HingeL1().resolved(weight.sum(), squares).alpha
    X = np.hstack([X, np.full((len(y), 25), 7, dtype)])  # constant columns have no scale, but count as columns
    expected *= np.sqrt(np.log(55) / np.log(30))
    for ranks in (1, 3):
        found = solve(SOLVER, HingeL1(), storage(X), y, weight, ranks=ranks)[0].model.report["alpha"]
        assert found == pytest.approx(expected, rel=1e-12 if dtype == np.float64 else 1e-5)


def test_rounding_that_ends_the_way_is_said():
    X, y = wide(0)
    result = solve(SOLVER, HingeL1(0.05), X, y, tol=-1.0, max_iter=100)[0]
    assert result.stop_reason == "precision"
    assert result.n_iter < 30
    assert result.certificate.relative <= 1e-12


def test_a_sweep_sends_masses_and_correlations_and_columns_once():
    """Numbers on the wire between two ranks, of all ranks together."""
    n, p = 30, 80
    X, y = wide(0, n, p)
    result = solve(SOLVER, HingeL1(0.05), X, y, tol=TOL, ranks=2)[0]
    columns = result.model.report["n_working"] * n // 2
    sweeps = result.n_iter
    sent = result.history[-1]["scalars"]
    assert columns < sent
    per_sweep = 2 * p + n // 2 + n + result.model.report["n_working"] + 20
    assert sent <= columns + (sweeps + 1) * per_sweep + 2 * p + 4 * n


def test_real_sets_of_many_columns(real):
    for name in ("leukemia", "arcene"):
        data = real(name)
        X, y = np.asarray(data.X, dtype=np.float64), np.where(data.y > 0, 1.0, -1.0)
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        result = solve(SOLVER, HingeL1(), X, y, tol=1e-8)[0]
        assert result.stop_reason == "gap"
        assert 0 < np.count_nonzero(result.model.coef) <= len(y)
        assert objective(result.model, X, y, result.model.report["alpha"]) == pytest.approx(
            result.certificate.primal, rel=1e-10
        )


# -- tall rows, which are merged


@pytest.fixture
def merges_few_rows(monkeypatch):
    monkeypatch.setattr(column_generation, "_TALL", 40.0)
    monkeypatch.setattr(column_generation, "_TALL_BY_COLUMNS", 5.0)
    monkeypatch.setattr(_merged_rows, "_MIN_OF_CLASS", 10)


def tall(seed, n=400, p=5, storage=np.asarray, dtype=np.float64):
    """Rows of two columns that vary, one that few rows have, one of ties and one of noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1] *= 3
    X[:, 2] = rng.random(n) < 0.03
    X[:, 3] = rng.integers(0, 2, n)
    y = np.where(X[:, 0] + 0.3 * X[:, 1] + 2 * X[:, 2] + X[:, 3] + rng.normal(size=n) > 1, 1.0, -1.0)
    return storage(X.astype(dtype)), y


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("alpha", [3e-3, 0.02, 0.2, 1.0])
def test_merged_rows_give_the_optimum_of_all_rows(alpha, storage, fit_intercept, n_ranks, merges_few_rows, seed):
    X, y = tall(seed, storage=storage)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(np.float64)
    exact = optimum(X, y, alpha, weight, fit_intercept)
    results = solve(SOLVER, HingeL1(alpha, fit_intercept), X, y, weight=weight, tol=TOL, ranks=n_ranks)
    assert_solved(results[0], exact)
    for bounds in results[0].history:
        assert bounds["dual"] <= exact * (1 + 1e-9)
        assert bounds["primal"] >= exact * (1 - 1e-9)


def test_rows_are_merged_from_a_number_on(monkeypatch):
    X, y = tall(0, 1000)  # 200 for each column
    for fewest, is_merged in ((len(y), True), (len(y) + 1, False)):
        monkeypatch.setattr(column_generation, "_TALL", float(fewest))
        state = SOLVER.start(HingeL1(0.02), Shard(X, y, np.ones(len(y))), Solo(), np.random.default_rng(0))
        assert (state.merging is not None) == is_merged


def test_merged_rows_weigh_as_much_and_have_the_means_of_theirs():
    X, y = tall(1)
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(np.float64)
    shard = Shard(X, y, weight)
    outlines = _merged_rows.Outlines.of(shard, X.mean(axis=0), X.var(axis=0))
    sides = np.sign(X[:, 0]).astype(np.int64)
    merged = outlines.merged(np.abs(X[:, 0]) < 0.2, sides)
    few = merged.shard
    assert few.n_rows < len(y) / 2
    np.testing.assert_allclose(few.combine(few.weight), shard.combine(weight))
    np.testing.assert_array_equal(few.y[merged.place], y)
    np.testing.assert_allclose(np.bincount(merged.place, weight), few.weight)


def test_a_sample_weighs_as_much_and_has_both_classes():
    X, y = tall(2, 5000)
    y[:] = -1.0
    y[:3] = 1.0
    few = _merged_rows.sample(Shard(X, y, np.ones(len(y))), Solo(), 0.25)
    assert few.n_rows < 1500
    np.testing.assert_allclose(np.bincount(few.y > 0, few.weight), [4997, 3])
