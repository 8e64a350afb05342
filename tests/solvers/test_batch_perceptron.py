"""The batch perceptron: what it keeps is true, draws follow the water, bounds hold, and it knows when to stop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare
from sklearn.metrics.pairwise import rbf_kernel

from tests.problems.test_slack_constrained import optimum
from tests.problems_at_hand import assert_brackets, on_ranks, overlapping, separable
from tests.solvers.test_block_dual import KERNELS, RBF, assert_true, exact_of, gram, objective, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.protocol import Certificate
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.solvers import batch_perceptron
from widemargin.solvers.batch_perceptron import BatchPerceptron

KINDS = {"slack": lambda bias: SlackConstrained(slack=0.02, fit_intercept=bias), "C": lambda bias: HingeL2(2.0, bias)}


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


@pytest.fixture(params=list(KINDS))
def problem(request, fit_intercept):
    return KINDS[request.param](fit_intercept)


@pytest.fixture
def small_part(monkeypatch):
    """Some hundred rows begin with a part of them."""
    monkeypatch.setattr(batch_perceptron, "_MIN_SUBSET", 20)


def begin(problem, X, y, weight=None, *, comm=None, cuts=None, kernel=RBF, seed=0, warm=None, **options):
    """The solver, and its state on one rank before the first sweep."""
    comm, weight = comm or Solo(), np.ones(len(y)) if weight is None else weight
    cuts = cuts or [len(y) * k // comm.size for k in range(comm.size + 1)]
    mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
    rows = RowsOnCPU(kernel, X[mine], mine.start, comm.ledger, comm.allreduce)
    solver = BatchPerceptron(**options)
    shard = Shard(X[mine], y[mine], weight[mine], rows)
    return solver, solver.start(problem, shard, comm, np.random.default_rng(seed), warm)


def perceive(problem, X, y, weight=None, *, tol=0.0, max_iter=40, kernel=RBF, options=None, **more):
    """Run it; the result of rank 0."""
    solver = BatchPerceptron(**(options or {}))
    return solve(kernel, problem, X, y, weight, tol=tol, max_iter=max_iter, solver=solver, **more)[0]


def few_rows(seed, n=16):
    """Rows few enough for a generic solver, two thirds of them of one class, and weights for some seeds."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.where(np.arange(n) < 6, 1.0, -1.0))
    X = rng.normal(size=(n, 2)) + 1.2 * y[:, None]
    return X, y, rng.uniform(0.5, 2, n) if seed % 2 else np.ones(n)


def best_level(K, y, weight, slack, fit_intercept):
    """The best level from below and from above, by a generic method; both are proofs."""
    X = np.linalg.cholesky(K + 1e-9 * np.eye(len(y)))
    problem = SlackConstrained(slack=slack, fit_intercept=fit_intercept)
    w, p = optimum(X, y, weight, slack, fit_intercept)
    below = problem.water_level(y * (X @ w), y, weight, 1.0).level
    if fit_intercept:
        p = p / np.where(y > 0, 2 * p @ (y > 0), 2 * p @ (y < 0))
    squared_norm, volume = float(np.sum(((p * y) @ X) ** 2)), slack * weight.sum()
    above = problem.upper_bound(float(p.sum()), squared_norm, float(np.max(p / weight)), volume)
    assert above - below <= 1e-4 * above
    return below, above


def assert_holds_level(bounds, below, above):
    assert bounds["primal"] >= below * (1 - 1e-8), (bounds, below)
    assert bounds["dual"] <= above * (1 + 1e-8), (bounds, above)


def test_assert_holds_level_fails_on_either_side():
    assert_holds_level({"primal": 1.1, "dual": 0.9}, 1.0, 1.0001)
    for primal, dual in ((0.99, 0.9), (1.1, 1.01)):
        with pytest.raises(AssertionError):
            assert_holds_level({"primal": primal, "dual": dual}, 1.0, 1.0001)


def level_of(model, K, y, weight, problem):
    """The level of the unit vector along a model, from kernel values of all rows in float64."""
    beta = np.zeros(len(y))
    beta[model.points.numbers] = model.coef
    response = y * (K @ beta) / math.sqrt(beta @ K @ beta)
    return problem.water_level(response, y, np.ones(len(y)) if weight is None else weight, 1.0).level


# -- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 8, "auto"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_responses_norm_and_average_are_those_of_the_coefficients(problem, batch_size, is_weighted, monkeypatch):
    X, y = overlapping(0)
    K, weight = gram(RBF, X), np.random.default_rng(0).uniform(0.5, 2, 50) if is_weighted else None
    solver, state = begin(problem, X, y, weight, batch_size=batch_size)
    iterates, step = [], BatchPerceptron._step

    def watched(self, state):
        step(self, state)
        iterates.append(state.ascent.alpha.copy())

    monkeypatch.setattr(BatchPerceptron, "_step", watched)
    for _ in range(15):
        state = solver.sweep(state)
    ascent, times = state.ascent, 1.0 + np.arange(len(iterates))
    assert state.step == len(iterates) >= 15
    assert ascent.alpha.min() >= 0
    np.testing.assert_allclose(ascent.response, y * (K @ (ascent.alpha * y)), atol=1e-12)
    assert ascent.squared_norm == pytest.approx((ascent.alpha * y) @ K @ (ascent.alpha * y), rel=1e-11)
    assert ascent.squared_norm <= 1 + 1e-12
    np.testing.assert_allclose(ascent.mean_alpha, times @ np.array(iterates) / times.sum(), atol=1e-13)
    np.testing.assert_allclose(ascent.mean_response, y * (K @ (ascent.mean_alpha * y)), atol=1e-12)
    if problem.fit_intercept:
        assert ascent.alpha @ y == pytest.approx(0.0, abs=1e-13)
        assert ascent.mean_alpha @ y == pytest.approx(0.0, abs=1e-13)


def test_responses_stay_true_where_rows_are_kept(fit_intercept):
    """No slack: steps of one or two rows, which come again and again."""
    X, y = separable(0, n=300)
    solver, state = begin(SlackConstrained(slack=0.0, fit_intercept=fit_intercept), X, y)
    for _ in range(60):
        state = solver.sweep(state)
    assert state.shard.kernel.ledger.cache_hits > 200
    beta = state.ascent.alpha * y
    np.testing.assert_allclose(state.ascent.response, y * (gram(RBF, X) @ beta), atol=1e-11)
    assert state.ascent.squared_norm == pytest.approx(beta @ gram(RBF, X) @ beta, rel=1e-10)


def test_rows_held_out_get_no_coefficient_and_each_class_gives_its_share(fit_intercept):
    X, y = overlapping(0, n=200)
    weight = np.random.default_rng(0).uniform(0.5, 2, 200)
    solver, state = begin(HingeL2(1.0, fit_intercept), X, y, weight, validation_fraction=0.25)
    held = state.held_out > 0
    assert [np.count_nonzero(held & (y == label)) for label in (1, -1)] == [20, 30]
    np.testing.assert_array_equal(state.held_out[held], weight[held])
    assert state.weight[held].max() == 0
    assert state.weight.sum() == pytest.approx(weight.sum())
    for _ in range(5):
        state = solver.sweep(state)
    assert state.ascent.alpha[held].max() == 0
    assert np.count_nonzero(state.ascent.alpha) > 0
    wrong = held & (y * solver.extract(with_bounds(solver, state)).intercept + scores_of(state, y) <= 0)
    assert state.error == pytest.approx(weight[wrong].sum() / weight[held].sum(), abs=0.05)


def with_bounds(solver, state):
    solver.certify(state)
    return state


def scores_of(state, y):
    """y times what the model says without its intercept."""
    return state.certified[2] * state.ascent.mean_response


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_the_fraction_is_the_share_of_rows_held_out(fraction):
    X, y = overlapping(0, n=200)
    assert np.count_nonzero(begin(HingeL2(1.0), X, y, validation_fraction=fraction)[1].held_out) == 200 * fraction
    assert np.count_nonzero(begin(HingeL2(1.0), X, y)[1].held_out) == 20


# -- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 7, 300])
def test_drawn_rows_follow_the_water(problem, batch):
    X, y = overlapping(0)
    solver, state = begin(problem, X, y, np.random.default_rng(0).uniform(0.5, 2, 50))
    state = solver.sweep(state)
    ascent = state.ascent
    p = state.problem.water_level(ascent.response, y, ascent.filling.weight, ascent.squared_norm).share
    seen, batch = np.zeros(50), max(batch, 2) if problem.fit_intercept else batch
    for _ in range(3000 // batch):
        filled = ascent.filling.draw(ascent.response, ascent.squared_norm, batch)
        assert (np.diff(filled.drawn) > 0).all()
        assert filled.part.sum() == pytest.approx(1.0, abs=1e-15)
        if problem.fit_intercept:
            assert filled.part @ y[filled.drawn] == pytest.approx(0.0, abs=1e-15)
        seen[filled.drawn] += filled.part
    assert seen[p == 0].max() == 0
    n_draws = 3000 // batch * (2 * (batch // 2) if problem.fit_intercept else batch)
    expected = p[p > 0]
    assert chisquare(seen[p > 0] / seen.sum() * n_draws, expected / expected.sum() * n_draws).pvalue > 1e-4


def test_at_no_slack_the_lowest_are_drawn():
    X, y = separable(0)
    solver, state = begin(SlackConstrained(slack=0.0), X, y)
    for _ in range(5):
        state = solver.sweep(state)
    filled = state.ascent.filling.draw(state.ascent.response, state.ascent.squared_norm, 64)
    height = np.where(state.weight > 0, state.ascent.response, np.inf)
    lowest = [np.flatnonzero(y == label)[height[y == label].argmin()] for label in (1, -1)]
    assert filled.drawn.tolist() == sorted(lowest)


def test_likely_rows_are_computed_ahead_where_steps_are_small(monkeypatch, fit_intercept):
    X, y = separable(0, n=600)
    problem, ahead, keep = SlackConstrained(slack=0.0, fit_intercept=fit_intercept), [], RowCache.keep

    def spied(self, points):
        ahead.append(len(points))
        return keep(self, points)

    monkeypatch.setattr(RowCache, "keep", spied)
    options = {"validation_fraction": 0.0}
    with_them = perceive(problem, X, y, max_iter=60, options=options)
    assert max(ahead) > 30
    assert with_them.ledger.cache_hits > 2 * with_them.ledger.cache_misses
    monkeypatch.setattr(batch_perceptron, "_PREFETCHED", 0)
    without = perceive(problem, X, y, max_iter=60, options=options)
    assert without.ledger.cache_hits < with_them.ledger.cache_hits
    np.testing.assert_allclose(with_them.certificate, without.certificate, rtol=1e-9)


def test_a_cache_of_no_bytes_changes_nothing_but_the_cost(problem):
    X, y = overlapping(0)
    more = {"batch_size": 2, "validation_fraction": 0.0}
    with_one, without = (
        perceive(problem, X, y, options={"cache_bytes": size, **more}, max_iter=200) for size in (1 << 20, 0)
    )
    np.testing.assert_allclose(with_one.certificate, without.certificate, rtol=1e-9)
    assert without.ledger.cache_hits == 0 < with_one.ledger.cache_hits
    assert with_one.ledger.kernel_evaluations < without.ledger.kernel_evaluations


# -- the certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [None, 0.0], ids=["held out", "all rows"])
@pytest.mark.parametrize("slack", [0.0, 0.01, 0.1, 2.0])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_bounds_hold_the_best_level_at_every_sweep(slack, fit_intercept, fraction, ranks):
    for seed in (0, 1):
        X, y, weight = few_rows(seed, n=20)
        below, above = best_level(gram(RBF, X), y, weight, slack, fit_intercept)
        problem = SlackConstrained(slack=slack, fit_intercept=fit_intercept)
        options = {"validation_fraction": fraction, "batch_size": 4}
        result = perceive(problem, X, y, weight, options=options, ranks=ranks, max_iter=60)
        assert result.history
        for row in result.history:
            assert_holds_level(row, below, above)
        assert_holds_level(result.certificate._asdict(), below, above)
        assert level_of(result.model, gram(RBF, X), y, weight, problem) == pytest.approx(
            result.certificate.dual, rel=1e-9
        )


@pytest.mark.parametrize("fraction", [None, 0.0], ids=["held out", "all rows"])
@pytest.mark.parametrize("C", [0.01, 1.0, 1e3])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_bounds_hold_the_optimum_at_every_sweep(C, fit_intercept, fraction, ranks, seed):
    X, y = overlapping(seed, shift=0.5)
    weight = np.random.default_rng(seed).choice([0.5, 1.0, 2.0], 50)
    exact = exact_of(gram(RBF, X), y, C, weight, fit_intercept)
    result = perceive(
        HingeL2(C, fit_intercept), X, y, weight, options={"validation_fraction": fraction}, ranks=ranks, max_iter=60
    )
    assert_brackets(result.history, exact, 1e-8)
    assert_true(result.certificate, exact)
    assert objective(result.model, gram(RBF, X), y, C, weight) == pytest.approx(result.certificate.primal, rel=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_the_gap_closes_when_there_is_time(name, problem):
    X, y = overlapping(1)
    options = {"validation_fraction": 0.0}
    kernel = KERNELS[name]
    result = perceive(problem, X, y, options=options, tol=0.1, max_iter=3000, kernel=kernel)
    assert result.stop_reason == "gap"
    assert result.certificate.relative <= 0.1
    if isinstance(problem, HingeL2):
        assert_true(result.certificate, exact_of(gram(kernel, X), y, 2.0, fit_intercept=problem.fit_intercept))


def test_any_storage_and_precision_has_true_bounds(problem, storage, dtype):
    X, y = overlapping(4, d=6)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.7, 0.0, X).astype(dtype)
    result = perceive(problem, storage(X), y)
    if isinstance(problem, HingeL2):
        assert_brackets(result.history, exact_of(gram(RBF, X), y, 2.0, fit_intercept=problem.fit_intercept), 1e-6)
    else:
        assert level_of(result.model, gram(RBF, X), y, None, problem) == pytest.approx(
            result.certificate.dual, rel=1e-6
        )


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_given_kernel_values(matrix, ranks, problem):
    X, y = overlapping(5)
    given = perceive(problem, matrix(gram(RBF, X)), y, kernel=Kernel("precomputed"), ranks=ranks)
    rows = perceive(problem, X, y, ranks=ranks)
    np.testing.assert_allclose(given.certificate, rows.certificate, rtol=1e-6)


def test_without_an_inner_product_there_is_no_lower_bound(fit_intercept):
    X, y = overlapping(0)
    result = perceive(HingeL2(1.0, fit_intercept), X, y, kernel=Kernel("sigmoid", 0.1, coef0=-0.5))
    assert result.certificate.dual == -np.inf
    assert all(row["dual"] == -np.inf for row in result.history)


def test_without_an_inner_product_a_slack_proves_nothing_from_above():
    X, y = overlapping(0)
    result = perceive(SlackConstrained(slack=0.1), X, y, kernel=Kernel("sigmoid", 0.1, coef0=-0.5))
    assert result.certificate.primal == np.inf


def test_a_weight_is_a_number_of_copies_in_both_bounds(fit_intercept):
    """Not the same draws, so not the same bounds: each set of them holds the optimum of both."""
    X, y = overlapping(0)
    copies = np.random.default_rng(0).integers(1, 4, 50)
    exact = exact_of(gram(RBF, X), y, 1.0, copies, fit_intercept)
    for data in ((X, y, copies), (np.repeat(X, copies, axis=0), np.repeat(y, copies), None)):
        result = perceive(HingeL2(1.0, fit_intercept), *data, options={"validation_fraction": 0.0}, max_iter=200)
        assert_brackets(result.history, exact, 1e-8)
        assert result.certificate.relative < 0.2


def test_what_is_reported_of_the_model(problem):
    X, y = overlapping(0)
    K, result = gram(RBF, X), perceive(problem, X, y)
    beta = np.zeros(50)
    beta[result.model.points.numbers] = result.model.coef
    loss = np.maximum(0, 1 - y * (K @ beta + result.model.intercept)).mean()
    slack = loss / math.sqrt(beta @ K @ beta)
    report = result.model.report
    # A slack that was given is reported as it is; the threshold of the model is that of the rows it was trained on.
    assert report["slack"] == pytest.approx(slack if isinstance(problem, HingeL2) else problem.slack, rel=1e-6)
    assert report["C"] == 2.0 if isinstance(problem, HingeL2) else report["C"] > 0
    assert {"validation_error", "n_support", "steps", "cache_hits"} <= set(result.history[-1])


# -- when to stop ----------------------------------------------------------------------------------------------------


def test_it_stops_when_the_error_on_rows_held_out_stops_falling(problem, seed):
    X, y = overlapping(seed, n=200, shift=0.4)
    result = perceive(problem, X, y, max_iter=1000)
    assert result.stop_reason == "plateau"
    errors = [row["validation_error"] for row in result.history]
    best = int(np.argmin(errors))
    assert len(errors) - best > 1
    cost = [row["kernel_evaluations"] for row in result.history]
    assert result.n_iter >= 6
    assert cost[-1] > 1.2 * cost[best]


def test_without_rows_held_out_only_gap_and_limits_end_it(problem):
    X, y = overlapping(0, n=200, shift=0.4)
    options = {"validation_fraction": 0.0}
    result = perceive(problem, X, y, max_iter=150, options=options)
    assert (result.stop_reason, result.n_iter) == ("max_iter", 150)
    assert all(math.isnan(row["validation_error"]) for row in result.history)
    assert perceive(problem, X, y, max_iter=3000, tol=0.5, options=options).stop_reason == "gap"
    assert perceive(problem, X, y, max_time=1e-9, options=options).stop_reason == "max_time"


@pytest.mark.parametrize("max_iter", [1, 2, 7])
def test_the_last_certificate_is_true_wherever_a_run_ends(max_iter, fit_intercept):
    X, y = overlapping(2, n=80)
    result = perceive(HingeL2(5.0, fit_intercept), X, y, max_iter=max_iter)
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 5.0, fit_intercept=fit_intercept))
    assert objective(result.model, gram(RBF, X), y, 5.0) == pytest.approx(result.certificate.primal, rel=1e-9)


# -- a part of the rows first ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_many_rows_begin_with_a_part_of_them(small_part, problem, ranks):
    X, y = overlapping(0, n=400, shift=0.5)
    certificates = []
    result = perceive(
        problem, X, y, ranks=ranks, max_iter=500, watch=lambda progress: certificates.append(progress.certificate)
    )
    assert certificates[:6] == [None] * 6
    assert certificates[-1] is not None
    assert result.stop_reason == "plateau"
    assert result.history[0]["kernel_evaluations"] > 0
    if isinstance(problem, HingeL2):
        assert_brackets(result.history, exact_of(gram(RBF, X), y, 2.0, fit_intercept=problem.fit_intercept), 1e-8)


@pytest.mark.parametrize("ranks", [1, 3])
def test_going_on_with_all_rows_keeps_the_function(small_part, problem, ranks):
    X, y = overlapping(0, n=400, shift=0.5)
    K = gram(RBF, X)

    def task(comm):
        solver, state = begin(problem, X, y, comm=comm)
        assert state.is_subset
        assert solver.certify(state) is None
        for _ in range(10):
            state = solver.sweep(state)
            if state.is_flat:
                break
        before, norm = solver.warm_state(state), state.ascent.squared_norm
        solver._widen(state)
        assert not state.is_subset
        assert norm > 0
        return before, solver.warm_state(state), state.ascent.mean_response, state.ascent.squared_norm

    outcomes = on_ranks(ranks, task)
    response = np.concatenate([outcome[2] for outcome in outcomes])
    for before, after, _, squared_norm in outcomes:
        np.testing.assert_array_equal(before, after)
        assert np.count_nonzero(before) <= 400 // 8 + ranks
        np.testing.assert_allclose(response, y * (K @ before), atol=1e-12)
        assert squared_norm == pytest.approx(before @ K @ before, rel=1e-10)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_part_has_rows_of_a_rare_class(small_part, ranks, problem):
    X, y = overlapping(0, n=300)
    y[:] = -1.0
    y[[10, 200]] = 1.0
    X[[10, 200]] += 2
    for seed in range(4):
        result = perceive(problem, X, y, seed=seed, ranks=ranks, max_iter=30)
        assert np.isfinite(result.certificate.primal)


def test_a_part_is_left_without_rows_held_out_too(small_part, problem):
    X, y = overlapping(0, n=300)
    result = perceive(problem, X, y, options={"validation_fraction": 0.0}, tol=0.5, max_iter=1000)
    assert result.stop_reason == "gap"
    assert len(result.model.coef) > 300 // 8


@pytest.mark.parametrize("max_iter", [2, 500])
def test_max_support_is_kept_to_while_a_part_is_worked_on(small_part, problem, max_iter):
    X, y = overlapping(0, n=300)
    result = perceive(problem, X, y, options={"max_support": 5}, max_iter=max_iter)
    assert len(result.model.coef) <= 5


def test_a_run_that_ends_in_the_part_has_true_bounds_of_all_rows(small_part, fit_intercept):
    X, y = overlapping(0, n=200)
    result = perceive(HingeL2(1.0, fit_intercept), X, y, max_iter=2)
    assert result.history == []
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))
    assert objective(result.model, gram(RBF, X), y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)


# -- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_equal_seeds_give_equal_bits_and_draws_depend_on_the_seed(problem, ranks):
    X, y = overlapping(8, n=120, shift=0.5)
    first, again, other = (perceive(problem, X, y, seed=seed, ranks=ranks, max_iter=12) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.model.coef, again.model.coef)
    np.testing.assert_array_equal(first.model.points.numbers, again.model.points.numbers)
    assert first.certificate == again.certificate
    assert [row["primal"] for row in first.history] == [row["primal"] for row in again.history]
    assert first.certificate != other.certificate


def test_all_ranks_have_the_same_model(problem):
    X, y = overlapping(3, n=60)
    results = solve(RBF, problem, X, y, ranks=3, tol=0.0, max_iter=10, solver=BatchPerceptron())
    for other in results[1:]:
        assert other.certificate == results[0].certificate
        np.testing.assert_array_equal(other.model.coef, results[0].model.coef)
        np.testing.assert_array_equal(other.model.points.numbers, results[0].model.points.numbers)


@pytest.mark.parametrize("cuts", [[0, 48, 120], [0, 0, 120], [0, 120, 120], [0, 60, 60, 120], [0, 1, 120]])
@pytest.mark.parametrize("is_sorted", [False, True], ids=["mixed", "classes apart"])
def test_ranks_of_one_class_of_few_rows_and_of_none(problem, cuts, is_sorted):
    X, y = overlapping(6, n=120, shift=0.6)
    order = np.argsort(-y, kind="stable") if is_sorted else np.arange(120)
    X, y = X[order], y[order]
    result = perceive(problem, X, y, cuts=cuts, max_iter=30)
    if isinstance(problem, HingeL2):
        assert_brackets(result.history, exact_of(gram(RBF, X), y, 2.0, fit_intercept=problem.fit_intercept), 1e-8)
        assert objective(result.model, gram(RBF, X), y, 2.0) == pytest.approx(result.certificate.primal, rel=1e-9)
    else:
        assert result.certificate.dual <= result.certificate.primal
        assert level_of(result.model, gram(RBF, X), y, None, problem) == pytest.approx(
            result.certificate.dual, rel=1e-9
        )


def test_a_step_on_ranks_keeps_what_is_kept_true(problem):
    X, y = overlapping(0, n=90)
    K = gram(RBF, X)

    def task(comm):
        solver, state = begin(problem, X, y, comm=comm, batch_size=8)
        for _ in range(5):
            state = solver.sweep(state)
        return state.ascent.alpha, state.ascent.response, state.ascent.squared_norm

    outcomes = on_ranks(3, task)
    alpha, response = (np.concatenate([outcome[k] for outcome in outcomes]) for k in (0, 1))
    np.testing.assert_allclose(response, y * (K @ (alpha * y)), atol=1e-12)
    assert all(outcome[2] == pytest.approx(alpha @ response, rel=1e-11) for outcome in outcomes)


# -- smaller models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("size", [2, 9])
def test_a_smaller_model_has_a_certificate_of_its_own(problem, size, ranks):
    X, y = overlapping(1, n=80)
    K = gram(RBF, X)
    small = perceive(problem, X, y, options={"max_support": size}, ranks=ranks, max_iter=20)
    full = perceive(problem, X, y, ranks=ranks, max_iter=20)
    assert len(small.model.coef) == size < len(full.model.coef)
    if isinstance(problem, HingeL2):
        assert_true(small.certificate, exact_of(K, y, 2.0, fit_intercept=problem.fit_intercept))
        assert objective(small.model, K, y, 2.0) == pytest.approx(small.certificate.primal, rel=1e-6)
        assert small.certificate.dual == pytest.approx(full.certificate.dual, rel=1e-9)
    else:
        assert level_of(small.model, K, y, None, problem) == pytest.approx(small.certificate.dual, rel=1e-6)
        assert small.certificate.primal == pytest.approx(full.certificate.primal, rel=1e-9)
        assert small.certificate.dual <= full.certificate.dual + 1e-9


def test_a_bound_that_is_not_reached_changes_nothing(problem):
    X, y = overlapping(1, n=80)
    plain, bounded = (perceive(problem, X, y, options={"max_support": most}, max_iter=10) for most in (None, 80))
    np.testing.assert_array_equal(plain.model.coef, bounded.model.coef)
    assert plain.certificate == bounded.certificate


def test_on_a_smooth_kernel_few_rows_say_nearly_the_same(problem):
    X, y = overlapping(1, n=200)
    kernel = Kernel("rbf", 0.02)
    small = perceive(problem, X, y, options={"max_support": 40}, kernel=kernel, max_iter=20)
    full = perceive(problem, X, y, kernel=kernel, max_iter=20)
    say = [
        rbf_kernel(X, X[result.model.points.numbers], gamma=0.02) @ result.model.coef + result.model.intercept
        for result in (small, full)
    ]
    assert np.mean(np.sign(say[0]) == np.sign(say[1])) >= 0.98
    assert np.corrcoef(*say)[0, 1] > 0.99


def test_the_gap_may_end_a_run_whose_model_is_then_made_smaller(fit_intercept):
    X, y = overlapping(1, n=80)
    options = {"validation_fraction": 0.0, "max_support": 5}
    result = perceive(HingeL2(1.0, fit_intercept), X, y, options=options, tol=0.3, max_iter=300)
    assert result.stop_reason == "max_support"
    assert len(result.model.coef) == 5
    assert_true(result.certificate, exact_of(gram(RBF, X), y, 1.0, fit_intercept=fit_intercept))


# -- from an earlier answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_earlier_answer_saves_sweeps(problem, ranks):
    X, y = overlapping(9, n=100, shift=0.5)
    seen, options = [], {"validation_fraction": 0.0}
    more = {"tol": 0.2, "max_iter": 2000, "ranks": ranks, "options": options}
    cold = perceive(problem, X, y, watch_state=True, watch=lambda progress: seen.append(progress.warm_state), **more)
    warm = perceive(problem, X, y, warm=seen[-1], **more)
    assert cold.stop_reason == warm.stop_reason == "gap"
    assert warm.n_iter < cold.n_iter / 2


def test_the_length_of_an_earlier_answer_does_not_matter(problem):
    X, y = overlapping(9, n=100, shift=0.5)
    solver, state = begin(problem, X, y)
    for _ in range(10):
        state = solver.sweep(state)
    answer = solver.warm_state(state)
    one, other = (perceive(problem, X, y, warm=factor * answer, max_iter=8) for factor in (1.0, 1e3))
    np.testing.assert_allclose(one.certificate, other.certificate, rtol=1e-6)


def test_an_answer_to_another_problem_leaves_the_bounds_true(fit_intercept, seed):
    """Of the wrong sign, and with an intercept of classes that do not balance."""
    X, y = overlapping(seed, n=60, shift=0.3)
    y = np.where(np.arange(60) < 6, -1.0, 1.0)
    kernel = Kernel("rbf", 0.02)
    K = gram(kernel, X)
    exact = exact_of(K, y, 1.0, fit_intercept=fit_intercept)
    wild = np.random.default_rng(seed).normal(size=60)
    without = perceive(HingeL2(1.0, False), X, y, kernel=kernel, options={"validation_fraction": 0.0}, max_iter=150)
    lopsided = np.zeros(60)
    lopsided[without.model.points.numbers] = without.model.coef
    for warm in (wild, lopsided, y):
        for max_iter in (1, 5):
            result = perceive(HingeL2(1.0, fit_intercept), X, y, kernel=kernel, warm=warm, max_iter=max_iter)
            assert_brackets(result.history, exact, 1e-8)
            assert_true(result.certificate, exact)


def test_an_answer_that_says_nothing_is_a_fresh_start(problem):
    X, y = overlapping(0)
    result = perceive(problem, X, y, warm=-y, max_iter=20)
    assert np.isfinite(result.certificate).all()


# -- corner cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slack", [0.0, 0.1, 5.0])
def test_two_rows(slack, fit_intercept):
    X, y = np.array([[1.0, 2.0], [2.0, 0.0]]), np.array([-1.0, 1.0])
    result = perceive(SlackConstrained(slack=slack, fit_intercept=fit_intercept), X, y, tol=1e-3, max_iter=300)
    below, above = best_level(gram(RBF, X), y, np.ones(2), slack, fit_intercept)
    assert_holds_level(result.certificate._asdict(), below, above)
    for row in result.history:
        assert_holds_level(row, below, above)


def test_rows_that_are_all_equal(fit_intercept):
    X, y = np.ones((30, 2)), np.where(np.arange(30) < 10, 1.0, -1.0)
    result = perceive(HingeL2(1.0, fit_intercept), X, y, max_iter=30)
    assert_true(result.certificate, 20.0 if fit_intercept else exact_of(gram(RBF, X), y, 1.0, fit_intercept=False))
    slack = perceive(SlackConstrained(slack=0.1, fit_intercept=fit_intercept), X, y, max_iter=30)
    assert slack.certificate.primal >= (0.1 if fit_intercept else 0.0)


def test_one_row_against_many(problem):
    X, _ = overlapping(2, n=60)
    y = np.where(np.arange(60) == 17, 1.0, -1.0)
    result = perceive(problem, X, y, max_iter=60)
    if isinstance(problem, HingeL2):
        assert_true(result.certificate, exact_of(gram(RBF, X), y, 2.0, fit_intercept=problem.fit_intercept))
    else:
        assert result.certificate.dual <= result.certificate.primal


def test_certificates_are_certificates():
    assert isinstance(perceive(HingeL2(1.0), *overlapping(0), max_iter=2).certificate, Certificate)
