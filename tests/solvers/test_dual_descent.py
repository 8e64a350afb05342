"""The linear C-SVM against an exact QP, by Newton steps, by coordinate passes, and by one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems_at_hand import assert_brackets, on_ranks, overlapping, part_of, separable, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.data.synthetic import make_nonseparable
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.dual_descent import DualDescent

SOLVERS = {
    "newton": DualDescent(),
    "passes": DualDescent(direct_features=0, patience=10**9),
    "conjugate-gradients": DualDescent(direct_features=0, patience=0),
}
TOL = 1e-6

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


@pytest.fixture(params=[False, True], ids=["no-intercept", "intercept"])
def fit_intercept(request):
    return request.param


def exact_svm(X, y, C, weight=None, fit_intercept=True) -> float:
    """The optimum by an interior point method on the dual; returned only if primal and dual meet."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    X, y, upper = X[weight > 0], y[weight > 0], C * weight[weight > 0]
    n, Z = len(y), X * y[:, None]
    E = y[None, :] if fit_intercept else np.zeros((0, n))
    x, z, t, b = upper / 2, np.ones(n), np.ones(n), np.zeros(len(E))
    s = upper - x
    for _ in range(200):
        residual = Z @ (Z.T @ x) - 1 - E.T @ b - z + t
        mu = (x @ z + s @ t) / (2 * n)
        if mu <= 1e-14 * max(1.0, upper.max()) * 1e-2 and np.abs(residual).max() < 1e-11:
            break
        target = 0.1 * mu
        system = np.zeros((n + len(E), n + len(E)))
        system[:n, :n] = Z @ Z.T + np.diag(z / x + t / s)
        system[:n, n:], system[n:, :n] = -E.T, E
        right = np.concatenate([-residual + target / x - z - target / s + t, -E @ x])
        step = np.linalg.solve(system, right)
        dx, ds = step[:n], -step[:n]
        dz, dt = target / x - z - z / x * dx, target / s - t - t / s * ds
        length = min(
            [1.0]
            + [0.995 * (-v[d < 0] / d[d < 0]).min() for v, d in ((x, dx), (s, ds), (z, dz), (t, dt)) if (d < 0).any()]
        )
        x, s, z, t, b = x + length * dx, s + length * ds, z + length * dz, t + length * dt, b + length * step[n:]
    w = Z.T @ x
    scores = X @ w
    intercepts = y - scores if fit_intercept else [0.0]
    primal = min(0.5 * w @ w + upper @ np.maximum(0, 1 - y * (scores + each)) for each in intercepts)
    dual = x.sum() - 0.5 * w @ w
    assert abs(primal - dual) <= 1e-8 * primal, f"the oracle failed: {primal=}, {dual=}"
    return float((primal + dual) / 2)


def assert_solved(result, exact, tol=TOL):
    assert result.stop_reason == "gap", result.certificate
    assert result.certificate.dual <= exact * (1 + 1e-8)
    assert result.certificate.primal >= exact * (1 - 1e-8)
    assert result.certificate.primal == pytest.approx(exact, rel=2 * tol)


def objective(model, X, y, C, weight=None):
    slack = 1 - y * (X @ model.coef + model.intercept)
    return 0.5 * model.coef @ model.coef + C * (np.ones(len(y)) if weight is None else weight) @ np.maximum(0, slack)


def test_assert_solved_fails_on_a_wrong_answer_and_on_an_open_gap(solver):
    X, y = overlapping(0)
    exact = exact_svm(X, y, 1.0)
    result = solve(solver, HingeL2(1.0), X, y, tol=TOL)[0]
    assert_solved(result, exact)
    with pytest.raises(AssertionError):
        assert_solved(result, exact * 1.00001)
    with pytest.raises(AssertionError):
        assert_solved(solve(solver, HingeL2(1.0), X, y, tol=TOL, max_iter=1)[0], exact)


@pytest.mark.parametrize("C", [1e-3, 0.1, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("data", [overlapping, separable], ids=["overlapping", "separable"])
def test_the_optimum_is_that_of_the_exact_qp(solver, data, C, fit_intercept, seed):
    X, y = data(seed)
    result = solve(solver, HingeL2(C, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, C, fit_intercept=fit_intercept))
    assert objective(result.model, X, y, C) == pytest.approx(result.certificate.primal, rel=1e-9)
    assert fit_intercept or result.model.intercept == 0
    assert 0 < result.model.report["n_support"] <= len(y)


def test_the_bounds_hold_the_optimum_at_every_sweep_and_never_get_worse(solver, fit_intercept, dtype, n_ranks, seed):
    X, y = overlapping(seed, n=45, d=6)
    X, weight = X.astype(dtype), np.random.default_rng(seed).choice([0.5, 1.0, 2.0], len(y))
    problem = HingeL2(0.5, fit_intercept)
    history = solve(solver, problem, X, y, weight, tol=0.0, max_iter=25, ranks=n_ranks, seed=seed)[0].history
    assert_brackets(history, exact_svm(X, y, 0.5, weight, fit_intercept), slack=1e-8)
    assert all(np.diff([row["primal"] for row in history]) <= 0)
    assert all(np.diff([row["dual"] for row in history]) >= 0)


@pytest.mark.parametrize("C", [0.1, 100.0])
def test_any_number_of_ranks_certifies_the_same_objective(solver, fit_intercept, n_ranks, C):
    X, y = overlapping(3, n=60, d=5)
    results = solve(solver, HingeL2(C, fit_intercept), X, y, tol=TOL, ranks=n_ranks, max_iter=5000)
    assert_solved(results[0], exact_svm(X, y, C, fit_intercept=fit_intercept))
    for other in results[1:]:
        np.testing.assert_array_equal(other.model.coef, results[0].model.coef)
        assert other.certificate == results[0].certificate


def test_any_storage_and_precision_solves_the_problem_of_its_values(solver, fit_intercept, storage, dtype):
    X, y = overlapping(4, d=6)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.3, 0.0, X).astype(dtype)
    result = solve(solver, HingeL2(1.0, fit_intercept), storage(X), y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 1.0, fit_intercept=fit_intercept))


def test_rows_in_pieces_are_the_same_rows(solver):
    X, y = overlapping(5)
    pieces = [X[:13].copy(), X[13:14].copy(), X[14:].astype(np.float32).astype(np.float64)]
    whole = np.vstack(pieces)

    class Pieces(list):
        def __getitem__(self, part):
            return list(self) if isinstance(part, slice) else super().__getitem__(part)

    result = solve(solver, HingeL2(1.0), Pieces(pieces), y, tol=TOL)[0]
    assert_solved(result, exact_svm(whole, y, 1.0))


def test_a_weight_is_a_number_of_copies_and_none_is_absence(solver, fit_intercept, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float)
    copies = weight.astype(int)
    problem = HingeL2(1.0, fit_intercept)
    weighted = solve(solver, problem, X, y, weight, tol=1e-9, max_iter=20000)[0]
    repeated = solve(solver, problem, np.repeat(X, copies, axis=0), np.repeat(y, copies), tol=1e-9, max_iter=20000)[0]
    assert_solved(weighted, exact_svm(X, y, 1.0, weight, fit_intercept), 1e-8)
    assert_solved(repeated, weighted.certificate.primal, 1e-8)
    np.testing.assert_allclose(weighted.model.coef, repeated.model.coef, rtol=1e-3, atol=1e-4)


def test_newton_steps_take_copies_and_weights_the_same_way(fit_intercept):
    X, y = overlapping(6)
    problem, options = HingeL2(1.0, fit_intercept), {"tol": 0.0, "max_iter": 6}
    twice = solve(DualDescent(), problem, X, y, np.full(len(y), 2.0), **options)[0]
    copied = solve(DualDescent(), problem, np.repeat(X, 2, axis=0), np.repeat(y, 2), **options)[0]
    np.testing.assert_allclose(twice.model.coef, copied.model.coef, rtol=1e-9, atol=1e-12)


def test_a_feature_twice_and_rows_of_zeros(solver, fit_intercept, seed):
    X, y = overlapping(seed)
    X = np.hstack([X, X[:, :1]])
    X[[0, 7, 20, 21]] = 0.0
    result = solve(solver, HingeL2(2.0, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 2.0, fit_intercept=fit_intercept))


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("d", [1, 3])
def test_two_rows(solver, fit_intercept, C, d):
    X, y = np.array([[1.0, 2.0, 2.0], [4.0, 6.0, 2.0]])[:, :d].copy(), np.array([-1.0, 1.0])
    result = solve(solver, HingeL2(C, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, C, fit_intercept=fit_intercept))


def test_nothing_but_zeros_is_answered_by_no_direction(solver, fit_intercept):
    X, y = np.zeros((6, 2)), np.array([1.0, -1.0, -1.0, -1.0, 1.0, -1.0])
    result = solve(solver, HingeL2(1.0, fit_intercept), X, y, tol=TOL, max_iter=200)[0]
    assert_solved(result, 4.0 if fit_intercept else 6.0)
    assert not result.model.coef.any()


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_any_unit_of_length(factor):
    X, y = overlapping(8)
    result = solve(DualDescent(), HingeL2(1.0), X * factor, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, factor**2) / factor**2)


def test_rows_far_from_the_origin():
    X, y = overlapping(9)
    result = solve(DualDescent(), HingeL2(1.0), X + 100.0, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 1.0))


def test_more_features_than_rows(solver, fit_intercept, seed):
    X, y = overlapping(seed, n=20, d=50)
    result = solve(solver, HingeL2(1.0, fit_intercept), X, y, tol=TOL)[0]
    assert_solved(result, exact_svm(X, y, 1.0, fit_intercept=fit_intercept))


def test_an_earlier_direction_saves_sweeps(solver):
    X, y = make_nonseparable(3000, 10, random_state=0)
    problem = HingeL2(1.0)
    cold = solve(solver, problem, X, y, tol=1e-3)[0]
    answer = solve(solver, problem, X, y, tol=1e-7)[0].model.coef
    # Its length does not matter.
    warm = solve(solver, problem, X, y, tol=1e-3, warm=5 * answer)[0]
    assert warm.n_iter < cold.n_iter
    assert_brackets(warm.history, cold.certificate.primal, slack=1e-3)


def test_newton_steps_are_all_certified_and_of_the_passes_the_first_ones():
    X, y = make_nonseparable(2000, 10, random_state=0)
    sweeps = {
        name: [row["sweep"] for row in solve(SOLVERS[name], HingeL2(1.0), X, y, tol=0.0, max_iter=40)[0].history]
        for name in ("newton", "passes")
    }
    assert sweeps["newton"] == list(range(1, 41))
    assert sweeps["passes"][:3] == [1, 2, 3]
    assert 3 < len(sweeps["passes"]) <= 22


@pytest.mark.parametrize("ranks", [1, 3])
def test_many_rows_start_from_the_answer_of_a_sample(ranks):
    X, y = make_nonseparable(20000, 8, random_state=0)
    result = solve(DualDescent(), HingeL2(1.0), X, y, tol=TOL, ranks=ranks)[0]
    assert result.stop_reason == "gap"
    assert result.n_iter <= 40
    assert objective(result.model, X, y, 1.0) == pytest.approx(result.certificate.primal, rel=1e-9)


def test_a_sample_without_one_of_the_classes_is_not_started_from():
    X, y = make_nonseparable(20000, 8, random_state=0)
    y = np.where(np.arange(len(y)) < 2, 1.0, -1.0)
    result = solve(DualDescent(), HingeL2(1.0), X, y, tol=TOL, max_iter=200)[0]
    assert result.stop_reason == "gap"


def test_equal_seeds_give_equal_bits_and_passes_depend_on_the_seed():
    X, y = overlapping(10)
    options = {"tol": 0.0, "max_iter": 6}
    first, again, other = (solve(SOLVERS["passes"], HingeL2(1.0), X, y, seed=seed, **options)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.model.coef, again.model.coef)
    assert not np.allclose(first.model.coef, other.model.coef, rtol=1e-9)


def test_a_pass_costs_one_exchange_of_the_direction():
    """And a few numbers: direction, intercept, sum(alpha y), rows; two gradients."""
    X, y = overlapping(11, n=60, d=40)
    meeting = on_ranks(2, lambda comm: _traffic_of_a_pass(comm, X, y))
    assert meeting == [40 + 1 + 2 + 2] * 2


def _traffic_of_a_pass(comm, X, y):
    """What a rank sends in the fourth pass, which is not certified."""
    solver = SOLVERS["passes"]
    state = solver.start(
        HingeL2(1.0), part_of(X, y, np.ones(len(y)), comm.rank, 2), comm, np.random.default_rng(0), None
    )
    for _ in range(3):
        state = solver.sweep(state)
    before = comm.ledger.counts()["scalars"]
    assert solver.certify(solver.sweep(state)) is None
    return comm.ledger.counts()["scalars"] - before


def test_an_empty_class_or_a_useless_C_is_refused():
    X, y = overlapping(0)
    with pytest.raises(ValueError, match="negative class has weight 0"):
        solve(DualDescent(), HingeL2(1.0), X, np.ones(len(y)))
    with pytest.raises(ValueError, match="C=-1"):
        solve(DualDescent(), HingeL2(-1.0), X, y)


def test_passes_agree_with_the_formula_of_one_coordinate(storage):
    """One pass in a known order against the same in five lines."""
    X, y = overlapping(12, n=20, d=3)
    state = DualDescent(direct_features=0).start(
        HingeL2(0.3, False), Shard(storage(X), y, np.ones(20)), Solo(), np.random.default_rng(0), None
    )
    order = np.random.default_rng([0, int(np.random.default_rng(0).integers(2**63))]).permutation(20)
    alpha, w = np.zeros(20), np.zeros(3)
    for i in order:
        best = np.clip(alpha[i] + (1 - y[i] * (X[i] @ w)) / (X[i] @ X[i]), 0, 0.3)
        w += (best - alpha[i]) * y[i] * X[i]
        alpha[i] = best
    after = DualDescent(direct_features=0).sweep(state)
    np.testing.assert_allclose(after.centre, alpha, atol=1e-12)
    np.testing.assert_allclose(after.w, w, atol=1e-12)
