"""Many kernel C-SVMs side by side, on torch's CPU device, which stands for the GPU: against a generic QP."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification

from tests.problems_at_hand import overlapping
from tests.solvers.test_block_dual import KERNELS, RBF, TOL, assert_true, exact_of, gram, objective
from widemargin.kernels.functions import Kernel
from widemargin.solvers import lockstep_dual
from widemargin.solvers.lockstep_dual import LockstepDual, Task
from widemargin.solvers.run import Limits

pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
KEPT = {name: kernel for name, kernel in KERNELS.items() if kernel.function is None}


def rows_of(kernel, X, is_tied):
    from widemargin.kernels.on_torch import RowsOnTorch

    rows = RowsOnTorch(kernel, X, device="cpu:0")
    assert rows.keep_values(1 << 30, is_tied=is_tied)
    return rows


def many(kernel, X, labels, weights, *, fit_intercept=True, tol=TOL, max_iter=10_000):
    return LockstepDual(rows_of(kernel, X, fit_intercept), labels, weights, fit_intercept, Limits(tol, max_iter))


def large(n=1500):
    X, y = make_classification(n, 6, n_informative=4, flip_y=0.1, random_state=0)
    return X, np.where(y > 0, 1.0, -1.0)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", KEPT)
def test_optima_are_those_of_the_exact_qp(name, fit_intercept, seed):
    X, y = overlapping(seed)
    y, K = np.asarray(y, dtype=np.float64), gram(KEPT[name], X)
    rng = np.random.default_rng(seed)
    weights = np.stack([np.ones(len(y)), rng.integers(0, 3, len(y)).astype(float)])
    weights[1, :2], weights[1, np.flatnonzero(y > 0)[0]], weights[1, np.flatnonzero(y < 0)[0]] = 1.0, 1.0, 1.0
    tasks = [Task(C, 0, line) for C in (1e-2, 1.0, 100.0) for line in (0, 1)]
    solver = many(KEPT[name], X, y[None], weights, fit_intercept=fit_intercept)
    for task, solved in zip(tasks, solver.solve(tasks), strict=True):
        exact = exact_of(K, y, task.C, weights[task.weights], fit_intercept)
        assert solved.stop_reason == "tol"
        assert_true(solved.certificate, exact)
        assert solved.certificate.primal == pytest.approx(exact, rel=2 * TOL)
        value = objective(solved.model, K, y, task.C, weights[task.weights])
        assert value == pytest.approx(solved.certificate.primal, rel=1e-8)
        beta = np.zeros(len(y))
        beta[solved.model.points.numbers] = solved.model.coef
        np.testing.assert_allclose(solved.scores, K @ beta + solved.model.intercept, atol=1e-8 * np.abs(K).max())
        assert solved.norm == pytest.approx(np.sqrt(beta @ K @ beta), rel=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_more_rows_than_a_working_set_with_labels_of_several_problems(fit_intercept):
    """Rows without a label, and rows of weight zero, cannot move."""
    X, y = large()
    labels = np.stack([y, np.where(X[:, 0] > 0, y, 0.0)])
    weights = np.stack([np.ones(len(y)), (np.arange(len(y)) % 5 > 0).astype(float)])
    tasks = [Task(C, line, other) for C in (0.1, 10.0) for line in (0, 1) for other in (0, 1)]
    found = many(RBF, X, labels, weights, fit_intercept=fit_intercept, tol=1e-4).solve(tasks)
    for task, solved in zip(tasks, found, strict=True):
        assert solved.certificate.relative <= 1e-4
        numbers = solved.model.points.numbers
        mass = weights[task.weights][numbers] * labels[task.labels][numbers]
        assert (mass * solved.model.coef > 0).all()
        assert (np.abs(solved.model.coef) <= task.C * np.abs(mass) * (1 + 1e-12)).all()


def test_few_movable_rows_among_many():
    """A working set is filled up with rows that cannot move."""
    X, y = large(3000)
    weight = np.zeros(len(y))
    weight[::20] = 1.0
    (solved,) = many(RBF, X, y[None], weight[None]).solve([Task(1.0, 0, 0)])
    some = weight > 0
    assert_true(solved.certificate, exact_of(gram(RBF, X[some]), y[some], 1.0))
    assert solved.stop_reason == "tol"


def test_problems_in_groups_start_at_the_last_solution(monkeypatch):
    X, y = large()
    weights = np.stack([(np.arange(len(y)) % 3 != k).astype(float) for k in range(3)])
    tasks = [Task(C, 0, k) for C in (10.0, 0.1, 1.0) for k in range(3)]
    together = many(RBF, X, y[None], weights, tol=1e-5).solve(tasks)
    monkeypatch.setattr(lockstep_dual, "_MAX_TOGETHER", 2)
    apart = many(RBF, X, y[None], weights, tol=1e-5).solve(tasks)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=0.02)
        assert one.certificate.dual <= other.certificate.primal
        assert other.certificate.dual <= one.certificate.primal


def test_a_start_at_the_solution_stays_there():
    X, y = large()
    weights = np.ones((1, len(y)))
    (cold,) = many(RBF, X, y[None], weights, tol=1e-5).solve([Task(1.0, 0, 0)])
    start = np.zeros(len(y))
    start[cold.model.points.numbers] = cold.model.coef
    (warm,) = many(RBF, X, y[None], weights, tol=1e-5, max_iter=1).solve([Task(1.0, 0, 0, start)])
    assert warm.stop_reason == "tol"


def test_sweeps_and_time_are_limited():
    X, y = large()
    (short,) = many(RBF, X, y[None], np.ones((1, len(y))), tol=1e-9, max_iter=2).solve([Task(100.0, 0, 0)])
    assert short.stop_reason == "max_iter"
    assert short.certificate.dual <= short.certificate.primal
    assert objective(short.model, gram(RBF, X), y, 100.0) == pytest.approx(short.certificate.primal, rel=1e-8)
    assert many(RBF, X, y[None], np.ones((1, len(y)))).solve([Task(1.0, 0, 0)], lambda: "max_time") == [None]


def test_coefficients_so_large_that_rounded_kernel_values_name_another_optimum():
    """All kernel values are nearly 1: what float32 takes from them, times C, is a multiple of the gap asked for."""
    kernel, C = Kernel("rbf", 1e-4), 1e6
    X, y = large()
    (solved,) = many(kernel, X, y[None], np.ones((1, len(y))), tol=1e-3).solve([Task(C, 0, 0)])
    assert solved.stop_reason == "tol"
    assert objective(solved.model, gram(kernel, X), y, C) == pytest.approx(solved.certificate.primal, rel=1e-4)


def test_a_tolerance_below_rounding_ends_with_its_reason():
    X, y = overlapping(0)
    (solved,) = many(RBF, X, np.asarray(y, float)[None], np.ones((1, len(y))), tol=1e-17).solve([Task(1.0, 0, 0)])
    assert solved.stop_reason == "precision"
    assert solved.certificate.relative < 1e-9
