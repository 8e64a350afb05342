"""The exact kernel C-SVM against a generic QP; its bounds, ranks, limits and corner cases."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

from tests.oracles import exact_svm
from tests.problems_at_hand import on_ranks, overlapping, separable
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.data.synthetic import make_nonseparable
from widemargin.kernels import precision
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers import block_dual
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.run import Limits, run

TOL = 1e-6
RBF = Kernel("rbf", 0.25)
KERNELS = {
    "rbf": RBF,
    "poly": Kernel("poly", 0.25, 3, 1.0),
    "laplacian": Kernel("laplacian", 0.25),
    "cosine": Kernel("cosine"),
    "linear": Kernel("linear"),
    "callable": Kernel("callable", function=lambda A, B: rbf_kernel(A, B, gamma=0.25)),
}


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


@pytest.fixture
def small_sets(monkeypatch):
    """Sets so small that some hundred rows go through stages, drawn working sets and passes over all rows."""
    for name, size in {
        "_MIN_BLOCK": 16,
        "_MAX_BLOCK": 32,
        "_MIN_STAGE": 40,
        "_MIN_FIRST_STAGE": 30,
        "_VALUES_PER_SWEEP": 1e4,
    }.items():
        monkeypatch.setattr(block_dual, name, size)


def gram(kernel, X):
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if kernel.function is not None:
        return kernel.function(X, X)
    used = {"rbf": ["gamma"], "laplacian": ["gamma"], "poly": ["gamma", "degree", "coef0"]}
    used["sigmoid"] = ["gamma", "coef0"]
    return pairwise_kernels(
        X, metric=kernel.name, **{name: getattr(kernel, name) for name in used.get(kernel.name, [])}
    )


def exact_of(K, y, C, weight=None, fit_intercept=True):
    """The optimum by the linear oracle, on rows whose inner products are ``K``."""
    values, vectors = np.linalg.eigh(K)
    assert values.min() > -1e-7 * values.max()
    return exact_svm(vectors * np.sqrt(np.maximum(values, 0)), y, C, weight, fit_intercept)


def solve(kernel, problem, X, y, weight=None, *, ranks=1, cuts=None, tol=TOL, max_iter=500, seed=0, **options):
    """Run on all ranks, with rows cut where ``cuts`` says or evenly; the results by rank."""
    y = np.asarray(y, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    cuts = cuts or [len(y) * k // ranks for k in range(ranks + 1)]
    limits = Limits(tol, max_iter, options.pop("max_time", np.inf))
    solver = options.pop("solver", BlockDual())

    def on_rank(comm):
        begin, end = cuts[comm.rank], cuts[comm.rank + 1]
        rows = RowsOnCPU(kernel, X[begin:end], begin, comm.ledger, comm.allreduce)
        shard = Shard(X[begin:end], y[begin:end], weight[begin:end], rows)
        return run(solver, problem, shard, comm, limits, np.random.default_rng(seed), **options)

    return on_ranks(len(cuts) - 1, on_rank)


def objective(model, K, y, C, weight=None):
    """The primal objective of a model, from kernel values of all rows in float64."""
    beta = np.zeros(len(y))
    beta[model.points.numbers] = model.coef
    slack = np.maximum(0, 1 - y * (K @ beta + model.intercept))
    return 0.5 * beta @ K @ beta + C * (np.ones(len(y)) if weight is None else weight) @ slack


def assert_true(certificate, exact, slack=1e-8):
    assert certificate.dual <= exact * (1 + slack)
    assert certificate.primal >= exact * (1 - slack)


def assert_solved(result, exact, tol=TOL):
    assert result.stop_reason == "gap", result.certificate
    assert_true(result.certificate, exact)
    assert result.certificate.primal == pytest.approx(exact, rel=2 * tol)


def test_assert_solved_fails_on_a_wrong_answer_and_on_an_open_gap():
    X, y = overlapping(0)
    exact = exact_of(gram(RBF, X), y, 1.0)
    result = solve(RBF, HingeL2(1.0), X, y)[0]
    assert_solved(result, exact)
    for wrong in (1.00001, 0.99999):
        with pytest.raises(AssertionError):
            assert_solved(result, exact * wrong)
    with pytest.raises(AssertionError):
        assert_solved(solve(RBF, HingeL2(1.0), X, y, max_iter=1, tol=1e-12)[0], exact)


# -- the exact answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize("name", KERNELS)
def test_the_optimum_is_that_of_the_exact_qp(name, C, fit_intercept, seed):
    X, y = overlapping(seed)
    kernel, K = KERNELS[name], gram(KERNELS[name], X)
    result = solve(kernel, HingeL2(C, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(K, y, C, fit_intercept=fit_intercept))
    assert objective(result.model, K, y, C) == pytest.approx(result.certificate.primal, rel=1e-9)
    assert fit_intercept or result.model.intercept == 0


@pytest.mark.parametrize("C", [1e3, 1e5])
@pytest.mark.parametrize("gamma", [0.02, 0.25])
def test_at_a_large_C_the_bounds_are_those_of_float64(C, gamma, fit_intercept, seed):
    """Coefficients of hundreds: responses in float32 are wrong by more than the gap that is asked for."""
    X, y = overlapping(seed, shift=0.7)
    kernel, problem = Kernel("rbf", gamma), HingeL2(C, fit_intercept)
    result = solve(kernel, problem, X, y)[0]
    assert_solved(result, exact_of(gram(kernel, X), y, C, fit_intercept=fit_intercept))


def test_a_gap_that_float32_cannot_see_is_closed(fit_intercept):
    X, y = overlapping(0, shift=0.7)
    kernel = Kernel("rbf", 0.05)
    result = solve(kernel, HingeL2(1e3, fit_intercept), X, y, tol=1e-9, max_iter=300)[0]
    assert_solved(result, exact_of(gram(kernel, X), y, 1e3, fit_intercept=fit_intercept), 1e-8)


@pytest.fixture
def in_float32(monkeypatch):
    monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 0)


def counted_exact_rows(monkeypatch):
    """How many rows each pass in float64 has."""
    seen, times = [], RowsOnCPU.times

    def counting(self, points, coef, *, exact=False):
        if exact:
            seen.append(self.n_rows)
        return times(self, points, coef, exact=exact)

    monkeypatch.setattr(RowsOnCPU, "times", counting)
    return seen


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "cosine"])
def test_only_rows_that_may_have_a_loss_are_confirmed_in_float64(
    name, ranks, fit_intercept, in_float32, small_sets, monkeypatch
):
    X, y = overlapping(3, n=400, shift=2.0)
    seen = counted_exact_rows(monkeypatch)
    result = solve(KERNELS[name], HingeL2(1.0, fit_intercept), X, y, tol=1e-4, ranks=ranks)[0]
    K = gram(KERNELS[name], X)
    assert_solved(result, exact_of(K, y, 1.0, fit_intercept=fit_intercept), 1e-4)
    assert result.certificate.primal >= objective(result.model, K, y, 1.0) * (1 - 1e-12)
    assert 0 < sum(seen) < 0.6 * len(y)


def test_rows_that_the_search_moves_inside_the_margin_are_confirmed_too(in_float32, small_sets, monkeypatch):
    """The first guess leaves out all rows without a coefficient."""
    monkeypatch.setattr(block_dual, "_CLEARANCE", -np.inf)
    X, y = overlapping(3, n=400, shift=2.0)
    seen = counted_exact_rows(monkeypatch)
    result = solve(RBF, HingeL2(1.0), X, y, tol=0.5)[0]
    assert len(seen) > 1
    assert result.certificate.primal >= objective(result.model, gram(RBF, X), y, 1.0) * (1 - 1e-12)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "cosine"])
def test_of_rows_at_their_bounds_a_sum_is_confirmed_from_half_of_their_values(
    name, ranks, fit_intercept, in_float32, small_sets, monkeypatch
):
    monkeypatch.setattr(block_dual, "_ROWS_TOGETHER", 20)
    X, y = overlapping(3, n=400, shift=0.5)
    K, C = gram(KERNELS[name], X), 0.05
    result = solve(KERNELS[name], HingeL2(C, fit_intercept), X, y, tol=1e-4, ranks=ranks)[0]
    assert_solved(result, exact_of(K, y, C, fit_intercept=fit_intercept), 1e-4)
    value = objective(result.model, K, y, C)
    assert value * (1 - 1e-12) <= result.certificate.primal <= value * (1 + 1e-9)
    monkeypatch.setattr(block_dual, "_ROWS_TOGETHER", len(y))
    plain = solve(KERNELS[name], HingeL2(C, fit_intercept), X, y, tol=1e-4, ranks=ranks)[0]
    assert result.certificate == pytest.approx(plain.certificate, rel=1e-9)
    if ranks == 1:
        assert result.ledger.kernel_evaluations < plain.ledger.kernel_evaluations


def test_rows_at_their_bounds_that_turn_out_to_have_no_loss_are_confirmed_alone(in_float32, small_sets, monkeypatch):
    """The first guess takes all rows at their bounds for rows with a loss."""
    monkeypatch.setattr(block_dual, "_ROWS_TOGETHER", 1)
    monkeypatch.setattr(block_dual, "_CLEARANCE", -np.inf)
    X, y = overlapping(3, n=400, shift=2.0)
    result = solve(RBF, HingeL2(0.05), X, y, tol=0.5)[0]
    value = objective(result.model, gram(RBF, X), y, 0.05)
    assert value * (1 - 1e-12) <= result.certificate.primal <= value * (1 + 1e-9)


def test_without_a_bound_on_errors_all_rows_are_confirmed(in_float32, small_sets, monkeypatch):
    monkeypatch.setattr(RowsOnCPU, "sweep_error", lambda self, reach, mass, n_terms: np.full(self.n_rows, np.inf))
    X, y = overlapping(3, n=400, shift=2.0)
    seen = counted_exact_rows(monkeypatch)
    result = solve(RBF, HingeL2(1.0), X, y, tol=1e-4)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0), 1e-4)
    assert seen[-1] == len(y)


@pytest.mark.parametrize("name", ["rbf", "poly"])
def test_any_storage_and_precision_solves_the_problem_of_its_values(name, fit_intercept, storage, dtype):
    X, y = overlapping(4, d=6)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.7, 0.0, X).astype(dtype)
    result = solve(KERNELS[name], HingeL2(1.0, fit_intercept), storage(X), y)[0]
    assert_solved(result, exact_of(gram(KERNELS[name], X), y, 1.0, fit_intercept=fit_intercept))


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_given_kernel_values(matrix, ranks, fit_intercept, dtype):
    X, y = overlapping(5)
    K = gram(RBF, X).astype(dtype)
    result = solve(Kernel("precomputed"), HingeL2(1.0, fit_intercept), matrix(K), y, ranks=ranks)[0]
    assert_solved(result, exact_of(K.astype(np.float64), y, 1.0, fit_intercept=fit_intercept))


def test_given_values_in_float32_are_summed_in_float64(fit_intercept):
    """A ridge, so that what rounding does to the kernel leaves it an inner product."""
    X, y = overlapping(5, shift=0.4)
    K = (gram(Kernel("rbf", 0.02), X) + 1e-4 * np.eye(len(y))).astype(np.float32)
    result = solve(Kernel("precomputed"), HingeL2(1e3, fit_intercept), K, y, tol=1e-5)[0]
    assert_solved(result, exact_of(K.astype(np.float64), y, 1e3, fit_intercept=fit_intercept), 1e-5)


def test_given_values_far_from_zero():
    X, y = overlapping(6)
    result = solve(Kernel("precomputed"), HingeL2(1.0), X @ X.T + 1e8, y, tol=1e-5)[0]
    assert_solved(result, exact_of(X @ X.T, y, 1.0), 1e-5)


def test_rows_far_from_the_origin(fit_intercept):
    """On a grid of 1/64, so that the shift itself loses nothing."""
    X, y = overlapping(7)
    X = np.round(64 * X) / 64
    result = solve(RBF, HingeL2(1.0, fit_intercept), X + 1e4, y)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


# -- weights ---------------------------------------------------------------------------------------------------------


def test_weights_are_caps(fit_intercept, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).uniform(0.2, 3.0, len(y))
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, weight)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, weight, fit_intercept))
    assert (np.abs(result.model.coef) <= 1.001 * weight[result.model.points.numbers] + 1e-3).all()


def test_a_weight_is_a_number_of_copies(fit_intercept, seed):
    X, y = overlapping(seed)
    copies = np.random.default_rng(seed).integers(1, 4, len(y))
    problem = HingeL2(1.0, fit_intercept)
    weighted = solve(RBF, problem, X, y, copies, tol=1e-8)[0]
    repeated = solve(RBF, problem, np.repeat(X, copies, axis=0), np.repeat(y, copies), tol=1e-8)[0]
    assert_solved(weighted, exact_of(gram(RBF, X), y, 1.0, copies, fit_intercept), 1e-7)
    assert_solved(repeated, weighted.certificate.primal, 1e-7)


# -- corner cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("name", ["rbf", "poly", "laplacian"])
def test_two_rows(name, C, fit_intercept):
    X, y = np.array([[1.0, 2.0], [2.0, 0.0]]), np.array([-1.0, 1.0])
    result = solve(KERNELS[name], HingeL2(C, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(gram(KERNELS[name], X), y, C, fit_intercept=fit_intercept))


@pytest.mark.parametrize("name", ["rbf", "poly"])
def test_rows_that_are_all_equal(name, fit_intercept):
    """With an intercept nothing but it can be learnt, and it costs two for each row of the smaller class."""
    X, y = np.ones((30, 2)), np.where(np.arange(30) < 10, 1.0, -1.0)
    result = solve(KERNELS[name], HingeL2(1.0, fit_intercept), X, y)[0]
    assert_solved(result, 20.0 if fit_intercept else exact_of(gram(KERNELS[name], X), y, 1.0, fit_intercept=False))


def test_every_row_with_both_labels(fit_intercept):
    half = np.random.default_rng(0).normal(size=(15, 2))
    X, y = np.vstack([half, half]), np.repeat([1.0, -1.0], 15)
    assert_solved(solve(RBF, HingeL2(1.0, fit_intercept), X, y)[0], 30.0)


@pytest.mark.parametrize("name", ["poly", "cosine"])
def test_rows_of_zeros(name, fit_intercept):
    X, y = overlapping(3)
    X[[0, 7, 20, 21]] = 0.0
    kernel = Kernel("poly", 0.25, 2, 0.0) if name == "poly" else Kernel("cosine")
    result = solve(kernel, HingeL2(2.0, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(gram(kernel, X), y, 2.0, fit_intercept=fit_intercept))


def test_one_feature(fit_intercept, seed):
    X, y = overlapping(seed, d=1)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


def test_one_row_against_many(fit_intercept):
    X, _ = overlapping(2, n=60)
    y = np.where(np.arange(60) == 17, 1.0, -1.0)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


def test_rows_that_can_be_told_apart(fit_intercept, seed):
    X, y = separable(seed)
    result = solve(RBF, HingeL2(1e3, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1e3, fit_intercept=fit_intercept))


def test_a_kernel_that_is_nearly_the_identity(fit_intercept):
    X, y = overlapping(1)
    kernel = Kernel("rbf", 1e4)
    result = solve(kernel, HingeL2(1.0, fit_intercept), X, y)[0]
    assert_solved(result, exact_of(gram(kernel, X), y, 1.0, fit_intercept=fit_intercept))


# -- nested sets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_nested_sets_end_at_the_exact_answer(small_sets, ranks, C, fit_intercept):
    X, y = overlapping(0, n=300, shift=0.5)
    result = solve(RBF, HingeL2(C, fit_intercept), X, y, ranks=ranks, max_iter=20_000)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, C, fit_intercept=fit_intercept))
    assert result.n_iter > 10


@pytest.mark.parametrize("gamma", [0.25, 1e3], ids=["float32", "float64"])
def test_no_working_set_holds_more_bytes_than_is_allowed(monkeypatch, gamma):
    monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 1000)
    X, y = make_nonseparable(3000, 5, random_state=0)
    seen, block = [], RowsOnCPU.working_block

    def spied(*them):
        seen.append(block(*them))
        return seen[-1]

    monkeypatch.setattr(RowsOnCPU, "working_block", spied)
    result = solve(Kernel("rbf", gamma), HingeL2(1.0), X, y, tol=1e-2, solver=BlockDual(block_bytes=8 << 20))[0]
    assert result.stop_reason == "gap"
    assert seen[0].dtype == (np.float32 if gamma < 1 else np.float64)
    assert max(K.nbytes for K in seen) <= 8 << 20


def test_many_rows_begin_with_a_few(fit_intercept):
    X, y = make_nonseparable(4000, 5, random_state=0)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, tol=1e-4)[0]
    assert result.stop_reason == "gap"
    assert result.history[0]["kernel_evaluations"] < 0.6 * 4000**2
    assert objective(result.model, gram(RBF, X), y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)


# -- the certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1.0, 1e3, 1e5])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_bounds_hold_the_optimum_at_every_sweep(C, fit_intercept, ranks):
    X, y = overlapping(1, n=120, shift=0.4)
    kernel, weight = Kernel("rbf", 0.02), np.random.default_rng(1).choice([0.5, 1.0, 2.0], 120)
    exact = exact_of(gram(kernel, X), y, C, weight, fit_intercept)
    result = solve(kernel, HingeL2(C, fit_intercept), X, y, weight, tol=0.0, max_iter=60, ranks=ranks)[0]
    assert result.history
    for row in result.history:
        assert row["dual"] <= exact * (1 + 1e-8)
        assert row["primal"] >= exact * (1 - 1e-8)


def test_the_last_certificate_is_true_wherever_a_run_ends(small_sets, fit_intercept):
    X, y = overlapping(2, n=200, shift=0.5)
    exact = exact_of(gram(RBF, X), y, 1e3, fit_intercept=fit_intercept)
    for max_iter in (1, 2, 3, 7, 20):
        result = solve(RBF, HingeL2(1e3, fit_intercept), X, y, tol=0.0, max_iter=max_iter)[0]
        assert (result.stop_reason, result.n_iter) == ("max_iter", max_iter)
        assert_true(result.certificate, exact)
        assert objective(result.model, gram(RBF, X), y, 1e3) == pytest.approx(result.certificate.primal, rel=1e-9)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("reason", ["max_time", "interrupted"])
def test_a_stop_before_the_first_certificate_still_gives_a_true_one(small_sets, reason, ranks, fit_intercept):
    X, y = overlapping(3, n=200, shift=0.5)
    certificates = []

    def stop_at_once(progress):
        certificates.append(progress.certificate)
        return "interrupted" if reason == "interrupted" else None

    result = solve(
        RBF, HingeL2(1.0, fit_intercept), X, y, ranks=ranks, watch=stop_at_once,
        max_time=1e-9 if reason == "max_time" else np.inf,
    )[0]  # fmt: skip
    assert certificates == [None]
    assert result.history == []
    assert (result.stop_reason, result.n_iter) == (reason, 1)
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))
    assert objective(result.model, gram(RBF, X), y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)


def test_without_an_inner_product_there_is_no_lower_bound_and_the_conditions_end_it(fit_intercept):
    X, y = overlapping(0)
    kernel = Kernel("sigmoid", 0.1, coef0=-0.5)
    result = solve(kernel, HingeL2(1.0, fit_intercept), X, y)[0]
    assert result.stop_reason == "stationary"
    assert result.certificate.dual == -np.inf
    assert np.isfinite(result.certificate.primal)
    assert result.model.report["violation"] <= 1.1e-3
    assert all(row["dual"] == -np.inf for row in result.history)


def test_what_is_reported_of_the_model(fit_intercept):
    X, y = overlapping(0)
    result = solve(RBF, HingeL2(2.0, fit_intercept), X, y)[0]
    K, report = gram(RBF, X), result.model.report
    beta = np.zeros(len(y))
    beta[result.model.points.numbers] = result.model.coef
    loss = np.maximum(0, 1 - y * (K @ beta + result.model.intercept)).mean()
    assert report["C"] == 2.0
    assert report["slack"] == pytest.approx(loss / np.sqrt(beta @ K @ beta), rel=1e-9)
    assert 0 <= report["violation"] < 1e-2
    last = result.history[-1]
    assert {"violation", "n_support", "kernel_evaluations"} <= set(last)
    assert last["n_support"] == len(result.model.coef)


# -- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.1, 100.0])
def test_any_number_of_ranks_certifies_the_same_objective(n_ranks, C, fit_intercept):
    X, y = overlapping(3, n=60, d=5)
    results = solve(RBF, HingeL2(C, fit_intercept), X, y, ranks=n_ranks)
    assert_solved(results[0], exact_of(gram(RBF, X), y, C, fit_intercept=fit_intercept))
    for other in results[1:]:
        assert other.certificate == results[0].certificate
        np.testing.assert_array_equal(other.model.coef, results[0].model.coef)
        np.testing.assert_array_equal(other.model.points.numbers, results[0].model.points.numbers)


def test_sparse_rows_on_ranks(fit_intercept, dtype):
    X, y = overlapping(4, n=60, d=8)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.7, 0.0, X).astype(dtype)
    result = solve(RBF, HingeL2(1.0, fit_intercept), sp.csr_matrix(X), y, ranks=3)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


def test_each_class_on_a_rank_of_its_own(small_sets, fit_intercept):
    X, y = overlapping(5, n=120, shift=0.6)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, cuts=[0, 72, 120], max_iter=5000)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


@pytest.mark.parametrize("cuts", [[0, 1, 120], [0, 119, 120], [0, 0, 120], [0, 60, 60, 120]])
def test_ranks_of_very_unequal_size_and_of_none(small_sets, cuts, fit_intercept):
    X, y = overlapping(6, n=120, shift=0.6)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, cuts=cuts, max_iter=5000)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


def test_ranks_whose_rows_lie_far_apart():
    """On a grid of 1/64, so that the shift itself loses nothing."""
    X, y = overlapping(7, n=80)
    X = np.round(64 * X) / 64
    X[40:] += 1e4
    result = solve(RBF, HingeL2(1.0), X, y, ranks=2)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0))


def test_equal_seeds_give_equal_bits_and_draws_depend_on_the_seed(small_sets):
    X, y = overlapping(8, n=300, shift=0.5)
    options = {"tol": 0.0, "max_iter": 12, "ranks": 2}
    first, again, other = (solve(RBF, HingeL2(1.0), X, y, seed=seed, **options)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.model.coef, again.model.coef)
    assert first.certificate == again.certificate
    assert first.certificate != other.certificate


# -- from an earlier answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_earlier_answer_saves_sweeps(small_sets, ranks, fit_intercept):
    X, y = overlapping(9, n=300, shift=0.5)
    problem, exact = HingeL2(1.0, fit_intercept), None
    seen = []
    cold = solve(
        RBF, problem, X, y, ranks=ranks, max_iter=20_000, watch_state=True,
        watch=lambda progress: seen.append(progress.warm_state),
    )[0]  # fmt: skip
    warm = solve(RBF, problem, X, y, ranks=ranks, max_iter=20_000, warm=seen[-1])[0]
    exact = exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept)
    assert_solved(cold, exact)
    assert_solved(warm, exact)
    assert warm.n_iter < cold.n_iter / 4


def test_an_answer_to_another_problem_is_made_feasible_first(small_sets, fit_intercept, seed):
    """Beyond the caps, of the wrong sign, and of a sum that is not zero."""
    X, y = overlapping(seed, n=100, shift=0.5)
    wild = np.random.default_rng(seed).normal(size=100) * 10
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, warm=wild, max_iter=5000)[0]
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))
    early = solve(RBF, HingeL2(1.0, fit_intercept), X, y, warm=wild, max_iter=1, tol=0.0)[0]
    assert_true(early.certificate, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


# -- cost ------------------------------------------------------------------------------------------------------------


def test_a_round_costs_its_block_and_one_pass_of_the_other_rows_over_those_that_moved(small_sets):
    X, y = overlapping(0, n=60)
    rows = RowsOnCPU(RBF, X)
    comm = Solo()
    shard = Shard(X, y, np.ones(60), rows)
    state = BlockDual().start(HingeL2(1.0), shard, comm, np.random.default_rng(0), None)
    assert rows.ledger.kernel_evaluations == 0
    state = BlockDual().sweep(state)
    n_working, n_stage, moved = 32, len(state.stage.chosen), np.count_nonzero(state.stage.beta)
    assert n_stage > n_working
    assert rows.ledger.kernel_evaluations == n_working**2 + (n_stage - n_working) * moved
    np.testing.assert_allclose(state.stage.response, gram(RBF, X)[state.stage.chosen] @ warm_of(state), rtol=1e-12)


@pytest.mark.parametrize("ranks", [1, 3])
def test_rows_far_outside_the_margin_are_late_and_catch_up(ranks, small_sets, fit_intercept, monkeypatch):
    monkeypatch.setattr(block_dual, "_FAR", 0.0)
    seen, catch_up = [], BlockDual._catch_up

    def noted(self, state, late):
        seen.append(len(late.places))
        catch_up(state, late)

    monkeypatch.setattr(BlockDual, "_catch_up", noted)
    X, y = overlapping(3, n=400, shift=2.0)
    result = solve(RBF, HingeL2(1.0, fit_intercept), X, y, tol=1e-5, ranks=ranks)[0]
    assert sum(seen) > 0
    assert_solved(result, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept), 1e-5)


def test_late_rows_have_the_responses_of_all_others_when_a_certificate_is_shown(small_sets, monkeypatch):
    monkeypatch.setattr(block_dual, "_FAR", 0.0)
    X, y = overlapping(3, n=400, shift=2.0)
    shard, n_late = Shard(X, y, np.ones(400), RowsOnCPU(RBF, X)), 0
    state = BlockDual().start(HingeL2(1.0), shard, Solo(), np.random.default_rng(0), None)
    for _ in range(60):
        state = BlockDual().sweep(state)
        n_late += state.late is not None
        if BlockDual().certify(state) is not None:
            np.testing.assert_allclose(state.response, gram(RBF, X) @ state.beta, rtol=0, atol=1e-11)
    assert n_late > 0


def warm_of(state):
    return BlockDual().warm_state(state)


def test_an_empty_class_or_a_useless_C_is_refused_by_the_problem():
    with pytest.raises(ValueError, match="negative class has weight 0"):
        HingeL2(1.0).check(3.0, 0.0)
    with pytest.raises(ValueError, match="C=-1"):
        HingeL2(-1.0).check(1.0, 1.0)
