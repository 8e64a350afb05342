"""Coordinate descent for the kernel margin distribution machine against a QP; bounds, ranks, weights, corner cases."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import assert_brackets, on_ranks, overlapping
from widemargin.comm.solo import Solo
from widemargin.compiled import margin_passes
from widemargin.data.shard import Shard
from widemargin.kernels import precision
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_newton import MarginNewton
from widemargin.solvers.run import Limits, Start, Watched, end_of, run, sweeps

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
SOLVERS = {
    "all rows": MarginDescent(),
    "small blocks": MarginDescent(block_rows=8),
    "nothing kept": MarginDescent(block_rows=8, cache_bytes=0),
    "always the worst": MarginDescent(block_rows=8, concentrated=0.0),
    "plain": MarginDescent(block_rows=8, block_passes=1, concentrated=2.0),
}


def gram(kernel, X):
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if kernel.function is not None:
        return kernel.function(X, X)
    used = {"rbf": ["gamma"], "laplacian": ["gamma"], "poly": ["gamma", "degree", "coef0"]}.get(kernel.name, [])
    return pairwise_kernels(X, metric=kernel.name, **{name: getattr(kernel, name) for name in used})


def solve(solver, problem, X, y, weight=None, *, kernel=RBF, ranks=1, cuts=None, tol=TOL, max_iter=20000, **options):
    """Run on all ranks, with rows cut where ``cuts`` says or evenly; the results by rank."""
    y = np.asarray(y, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    cuts = cuts or [len(y) * k // ranks for k in range(ranks + 1)]

    def on_rank(comm):
        begin, end = cuts[comm.rank], cuts[comm.rank + 1]
        rows = RowsOnCPU(kernel, X[begin:end], begin, comm.ledger, comm.allreduce)
        shard = Shard(X[begin:end], y[begin:end], weight[begin:end], rows)
        return run(solver, problem, shard, comm, Limits(tol, max_iter), np.random.default_rng(0), **options)

    return on_ranks(len(cuts) - 1, on_rank)


def objective(model, K, y, problem, weight=None):
    """The primal objective of a model, from kernel values of all rows in float64; the intercept is regularised."""
    coef, weight = np.zeros(len(y)), np.ones(len(y)) if weight is None else weight
    coef[model.points.numbers] = model.coef
    F, theta = y * (K @ coef + model.intercept), problem.deadband
    loss = np.maximum(1 - theta - F, 0) ** 2 + problem.overshoot_weight * np.maximum(F - 1 - theta, 0) ** 2
    scale = problem.C / (2 * weight.sum() * (1 - theta) ** 2)
    return 0.5 * coef @ K @ coef + 0.5 * model.intercept**2 + scale * weight @ loss


def assert_solved(result, exact, tol=TOL):
    assert result.stop_reason == "gap", result.certificate
    assert result.certificate.dual <= exact * (1 + 1e-8)
    assert result.certificate.primal >= exact * (1 - 1e-8)
    assert result.certificate.primal == pytest.approx(exact, rel=2 * tol)


def check_optimum(solver, kernel, problem, seed):
    """The answer is that of the QP, and the model is what the certificate speaks of."""
    X, y = overlapping(seed, n=40)
    K = gram(kernel, X)
    result = solve(solver, problem, X, y, kernel=kernel)[0]
    assert_solved(result, exact_odm(K, y, problem).value)
    assert objective(result.model, K, y, problem) == pytest.approx(result.certificate.primal, rel=1e-8)
    assert (result.model.intercept != 0) == problem.fit_intercept
    assert result.model.intercept == pytest.approx(result.model.coef.sum() * problem.constant)


def check_brackets(solver, seed):
    X, y = overlapping(seed, n=40)
    problem = MarginDistribution(200.0)
    exact = exact_odm(gram(RBF, X), y, problem).value
    assert_brackets(solve(solver, problem, X, y, tol=1e-10, max_iter=300)[0].history, exact, slack=1e-8)


def check_ranks(solver, ranks, fit_intercept=True):
    X, y = overlapping(1, n=40)
    problem = MarginDistribution(50.0, fit_intercept=fit_intercept)
    exact = exact_odm(gram(RBF, X), y, problem).value
    cuts = {1: [0, 40], 2: [0, 25, 40], 3: [0, 5, 5, 40]}[ranks]  # one rank has no rows
    results = solve(solver, problem, X, y, cuts=cuts)
    for result in results:
        assert_solved(result, exact)
        assert result.certificate == results[0].certificate
        np.testing.assert_array_equal(result.model.coef, results[0].model.coef)


def check_weights(solver):
    """Weight 2 is the row twice, weight 0 the row absent, in whatever order."""
    X, y = overlapping(2, n=40)
    weight = np.random.default_rng(2).integers(0, 4, 40)
    weight[[np.flatnonzero(y > 0)[0], np.flatnonzero(y < 0)[0]]] = 1
    problem = MarginDistribution(30.0)
    exact = exact_odm(gram(RBF, X), y, problem, weight).value
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(40), weight))
    assert_solved(solve(solver, problem, X, y, weight)[0], exact)
    assert_solved(solve(solver, problem, X[rows], y[rows])[0], exact)


CORNERS = {
    "tiny C": MarginDistribution(1e-6),
    "huge C": MarginDistribution(1e7),
    "no deadband": MarginDistribution(100.0, 0.0, 0.5),
    "wide deadband": MarginDistribution(1.0, 0.99, 0.5),
    "even price": MarginDistribution(100.0, 0.2, 1.0),
}


def check_corner(solver, name):
    X, y = overlapping(4, n=30, shift=0.5)
    problem = CORNERS[name]
    assert_solved(solve(solver, problem, X, y)[0], exact_odm(gram(RBF, X), y, problem).value)


def check_few_rows_and_copies(solver):
    X, y = np.array([[0.0, 1.0], [1.0, 0.5]]), np.array([1.0, -1.0])
    problem = MarginDistribution(20.0)
    assert_solved(solve(solver, problem, X, y)[0], exact_odm(gram(RBF, X), y, problem).value)
    X, y = np.repeat(X, 9, axis=0), np.repeat(y, 9)  # copies, one of them with the other label
    y[0] = -1.0
    assert_solved(solve(solver, problem, X, y)[0], exact_odm(gram(RBF, X), y, problem).value)


def check_storage(solver, storage, dtype):
    X, y = overlapping(5, n=40)
    X = (X * (np.abs(X) > 0.5)).astype(dtype)
    problem = MarginDistribution(30.0)
    assert_solved(solve(solver, problem, storage(X), y)[0], exact_odm(gram(RBF, X), y, problem).value)


def check_less_precision(solver, monkeypatch):
    """Kernel values in float32, as for many rows: what is shown is true in float64 all the same."""
    monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 10)
    X, y = overlapping(6, n=40)
    problem = MarginDistribution(1e5)
    K = gram(RBF, X)
    result = solve(solver, problem, X, y, tol=1e-5)[0]
    assert_solved(result, exact_odm(K, y, problem).value, 1e-5)
    assert objective(result.model, K, y, problem) == pytest.approx(result.certificate.primal, rel=1e-8)


def check_warm(solver):
    """From the answer of another run nothing is left to do."""
    X, y = overlapping(7, n=40)
    problem = MarginDistribution(30.0)
    first = solve(solver, problem, X, y)[0]
    warm = np.zeros(40)
    warm[first.model.points.numbers] = first.model.coef
    for ranks in (1, 2):
        again = solve(solver, problem, X, y, warm=warm, ranks=ranks, tol=2 * TOL)[0]
        assert again.stop_reason == "gap"
        assert again.n_iter == 0


# -- descent ---------------------------------------------------------------------------------------------------------


def test_assert_solved_fails_on_a_wrong_answer_and_on_an_open_gap():
    X, y = overlapping(0)
    problem = MarginDistribution(1.0)
    exact = exact_odm(gram(RBF, X), y, problem).value
    result = solve(MarginDescent(), problem, X, y)[0]
    assert_solved(result, exact)
    for wrong in (1.00001, 0.99999):
        with pytest.raises(AssertionError):
            assert_solved(result, exact * wrong)
    with pytest.raises(AssertionError):
        assert_solved(solve(MarginDescent(block_rows=4), problem, X, y, max_iter=1, tol=1e-12)[0], exact)


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["no-intercept", "intercept"])
@pytest.mark.parametrize("C", [1.0, 1e3])
@pytest.mark.parametrize("name", KERNELS)
def test_the_optimum_is_that_of_the_qp(name, C, fit_intercept, seed):
    check_optimum(MarginDescent(), KERNELS[name], MarginDistribution(C, fit_intercept=fit_intercept), seed)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_way_to_choose_rows_leads_there(name, seed):
    check_optimum(SOLVERS[name], RBF, MarginDistribution(300.0), seed)
    check_brackets(SOLVERS[name], seed)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", SOLVERS)
def test_ranks_reach_the_same_objective(name, ranks):
    check_ranks(SOLVERS[name], ranks)


@pytest.mark.parametrize("name", SOLVERS)
def test_weights_are_repetitions_in_any_order(name):
    check_weights(SOLVERS[name])


@pytest.mark.parametrize("corner", CORNERS)
def test_corners(corner):
    check_corner(MarginDescent(block_passes=2000), corner)


def test_few_rows_and_copies():
    check_few_rows_and_copies(MarginDescent())


def test_storage_does_not_matter(storage, dtype):
    check_storage(MarginDescent(block_rows=16), storage, dtype)


def test_float32_kernel_values_do_not_show_in_the_certificate(monkeypatch):
    check_less_precision(MarginDescent(block_rows=16), monkeypatch)


def test_a_run_goes_on_from_an_earlier_one():
    check_warm(MarginDescent())


def test_without_a_price_of_long_margins_it_is_the_squared_hinge():
    X, y = overlapping(0, n=40)
    result = solve(MarginDescent(), MarginDistribution(50.0, 0.0, 0.0), X, y)[0]
    near = exact_odm(gram(RBF, X), y, MarginDistribution(50.0, 0.0, 1e-9)).value
    assert_solved(result, near, 1e-5)
    assert (result.model.coef * y[result.model.points.numbers] > 0).all()


def test_a_kernel_that_is_no_inner_product_is_refused():
    X, y = overlapping(0)
    with pytest.raises(ValueError, match="sigmoid"):
        solve(MarginDescent(), MarginDistribution(1.0), X, y, kernel=Kernel("sigmoid", 0.1))


def test_a_given_kernel_serves():
    X, y = overlapping(3, n=40)
    K, problem = gram(RBF, X), MarginDistribution(30.0)
    exact = exact_odm(K, y, problem).value
    for ranks in (1, 2):
        assert_solved(solve(MarginDescent(), problem, K, y, kernel=Kernel("precomputed"), ranks=ranks)[0], exact)


def test_the_same_seed_gives_the_same_bits():
    X, y = overlapping(3, n=60)
    first, second = (solve(SOLVERS["small blocks"], MarginDistribution(30.0), X, y)[0] for _ in range(2))
    np.testing.assert_array_equal(first.model.coef, second.model.coef)


def test_what_is_kept_saves_kernel_values():
    X, y = overlapping(3, n=60)
    counts = [
        solve(SOLVERS[name], MarginDistribution(30.0), X, y)[0].ledger.kernel_evaluations
        for name in ("small blocks", "nothing kept")
    ]
    assert counts[0] < counts[1]


@pytest.mark.parametrize("solver", [MarginDescent(block_rows=8), MarginNewton()], ids=["descent", "newton"])
@pytest.mark.parametrize("name", ["rbf", "poly", "callable"])
def test_values_that_problems_share_are_taken_and_rows_without_weight_are_scored(solver, name):
    (X, y), problem = overlapping(3), MarginDistribution(50.0)
    kernel, weight = KERNELS[name], np.ones(len(y))
    weight[::4] = 0
    rows = RowsOnCPU(kernel, X)
    rows.values(len(y))
    n_values, exact = rows.ledger.kernel_evaluations, exact_odm(gram(kernel, X), y, problem, weight).value
    for warm in (None, np.where(weight > 0, 0.01 * y, 0.0)):
        shard, limits = Shard(X, np.asarray(y, dtype=np.float64), weight, rows), Limits(TOL, 20000)
        running = sweeps(solver, problem, shard, Solo(), limits, np.random.default_rng(0), Start(warm), Watched())
        finished = end_of(running)
        assert_solved(finished.result, exact)
        model = finished.result.model
        assert weight[model.points.numbers].all()
        scores = gram(kernel, X)[:, model.points.numbers] @ model.coef + model.intercept
        if finished.scores is not None:
            np.testing.assert_allclose(finished.scores, scores, rtol=1e-9, atol=1e-9)
    assert rows.ledger.kernel_evaluations == n_values


def test_the_diagnostics_end_near_optimality():
    X, y = overlapping(3, n=60)
    result = solve(MarginDescent(), MarginDistribution(30.0), X, y, tol=1e-12)[0]
    assert result.history[-1]["violation"] < 1e-4
    assert result.history[-1]["n_support"] == len(result.model.coef)


def test_rows_are_added_up_as_numpy_does(dtype):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(11, 7)).astype(dtype)
    for rows in ([], [3], [0, 2, 4, 6], [10, 1, 3, 5, 7, 9, 0]):
        rows, out = np.array(rows, dtype=np.intp), np.ones(7)
        coef = rng.normal(size=len(rows))
        margin_passes.add_rows(values, rows, coef, out)
        np.testing.assert_allclose(out, 1 + coef @ values[rows].astype(float), rtol=1e-12)


def test_a_block_is_solved_as_a_whole_problem_is():
    X, y = overlapping(0, n=30)
    problem, K = MarginDistribution(20.0), gram(RBF, X)
    steep = problem.steep(np.ones(30), 30.0)
    g, response = np.zeros((2, 30))
    passes = margin_passes.descend_block(K, 1.0, y, steep, *problem.shape, g, response, np.arange(30), 10000, 1e-25)
    exact = exact_odm(K, y, problem)
    np.testing.assert_allclose(g, exact.zeta - exact.beta, atol=1e-6 * np.abs(g).max())
    np.testing.assert_allclose(response, (K + 1) @ (y * g), atol=1e-8)
    assert 1 < passes < 10000


def test_a_lone_rank_sends_nothing():
    X, y = overlapping(0)
    rows = RowsOnCPU(RBF, X)
    shard, comm = Shard(X, y, np.ones(len(y)), rows), Solo()
    run(MarginDescent(), MarginDistribution(1.0), shard, comm, Limits(1e-3, 100), np.random.default_rng(0))
    assert comm.ledger.scalars == 0
