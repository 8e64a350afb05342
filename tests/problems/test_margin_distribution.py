"""The formulas of the optimal margin distribution machine against the paper's quadratic programme."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from widemargin.compiled.margin_passes import best_coordinate
from widemargin.problems.margin_distribution import MarginDistribution

PROBLEMS = [
    MarginDistribution(C, theta, v, fit_intercept)
    for C, theta, v in [(1.0, 0.2, 0.5), (100.0, 0.0, 1.0), (1e4, 0.5, 0.1), (10.0, 0.9, 1.0), (1e-3, 0.2, 0.5)]
    for fit_intercept in (False, True)
]


class Exact(NamedTuple):
    value: float
    zeta: np.ndarray
    beta: np.ndarray


def exact_odm(K, y, problem, weight=None) -> Exact:
    """The optimum by an interior point method on the paper's (2), if primal and dual meet; weights are repetitions."""
    times = np.ones(len(y), dtype=int) if weight is None else np.asarray(weight, dtype=int)
    rows = np.repeat(np.arange(len(y)), times)
    K = np.asarray(K, dtype=np.float64)[np.ix_(rows, rows)] + float(problem.fit_intercept)
    y, M, theta, v, lam = y[rows], len(rows), problem.deadband, problem.overshoot_weight, problem.C
    Q, c = K * np.outer(y, y), (1 - theta) ** 2 / (lam * v)
    H = np.block([[Q + M * c * v * np.eye(M), -Q], [-Q, Q + M * c * np.eye(M)]])
    b = np.concatenate([np.full(M, theta - 1), np.full(M, theta + 1)])
    x = np.full(2 * M, 1.0 / max(1.0, np.diagonal(H).max()))
    z = np.ones(2 * M)
    for _ in range(300):
        residual, mu = H @ x + b - z, x @ z / (2 * M)
        target = 0.1 * mu
        dx = np.linalg.solve(H + np.diag(z / x), -residual + target / x - z)
        dz = target / x - z - z / x * dx
        length = min(
            [1.0] + [0.995 * float((-a[d < 0] / d[d < 0]).min()) for a, d in ((x, dx), (z, dz)) if (d < 0).any()]
        )
        x, z = x + length * dx, z + length * dz
        if mu < 1e-20 and np.abs(residual).max() < 1e-12:
            break
    zeta, beta = np.maximum(x[:M], 0), np.maximum(x[M:], 0)
    F = Q @ (zeta - beta)
    loss = np.sum(np.maximum(1 - theta - F, 0) ** 2 + v * np.maximum(F - 1 - theta, 0) ** 2)
    primal = 0.5 * (zeta - beta) @ F + lam / (2 * M * (1 - theta) ** 2) * loss
    dual = -(0.5 * x @ H @ x + b @ x)
    assert abs(primal - dual) <= 1e-8 * abs(primal), f"the oracle failed: {primal=}, {dual=}"
    return Exact(float((primal + dual) / 2), zeta, beta)


def rows_at_hand(seed=0, n=24, d=3):
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < 2 * n // 5, 1.0, -1.0)
    return rng.normal(size=(n, d)) + 0.8 * y[:, None], y


def bounds(problem, K, y, g, weight):
    """Both objectives at g, from kernel values."""
    K = K + problem.constant
    steep = problem.steep(weight, float(weight.sum()))
    margin = y * (K @ (y * g))
    squared = float(g @ margin)
    primal = problem.primal_value(problem.loss(margin, steep), squared)
    linear, quadratic = problem.dual_terms(g, steep)
    return primal, problem.dual_value(linear, quadratic + squared), margin, steep


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_both_objectives_meet_at_the_exact_optimum(problem, seed):
    X, y = rows_at_hand(seed)
    K, weight = X @ X.T, np.ones(len(y))
    exact = exact_odm(K, y, problem)
    g = exact.zeta - exact.beta
    primal, dual, margin, steep = bounds(problem, K, y, g, weight)
    assert primal == pytest.approx(exact.value, rel=1e-7)
    assert dual == pytest.approx(exact.value, rel=1e-7)
    np.testing.assert_allclose(problem.best_dual(margin, steep), g, atol=1e-6 * np.abs(g).max())
    assert problem.residuals(g, margin, steep).max() < 1e-6


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_any_g_and_any_w_bound_the_optimum(problem, seed):
    X, y = rows_at_hand(seed)
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 4, len(y)).astype(float)
    K = X @ X.T
    exact = exact_odm(K, y, problem, weight).value
    for size in (1e-3, 0.1, 10.0):
        primal, dual, margin, steep = bounds(problem, K, y, size * rng.normal(size=len(y)), weight)
        assert dual <= exact * (1 + 1e-9)
        assert primal >= exact * (1 - 1e-9)
        _, dual, *_ = bounds(problem, K, y, problem.best_dual(margin, steep), weight)
        assert dual <= exact * (1 + 1e-9)


def test_the_dual_value_is_that_of_the_best_multiple():
    problem = MarginDistribution(3.0)
    linear, quadratic, squared = 2.0, 0.7, 1.1
    grid = max(t * linear - t * t * (quadratic + squared) / 2 for t in np.linspace(0, 5, 100001))
    assert problem.dual_value(linear, quadratic + squared) == pytest.approx(grid, rel=1e-6)
    assert problem.dual_value(-1.0, quadratic + squared) == 0
    assert problem.dual_value(linear, math.inf) == 0


@pytest.mark.parametrize("v", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rest", [-3.0, 0.5, 1.0, 1.25, 4.0])
def test_the_step_of_a_coordinate_is_the_best_of_many(v, rest):
    problem = MarginDistribution(2.0, 0.2, v)
    curvature, steep = 1.7, 0.9

    def value(g):
        linear, quadratic = problem.dual_terms(np.array([g]), np.array([steep]))
        return linear - quadratic / 2 - rest * g - 0.5 * curvature * g * g

    best = best_coordinate(rest, curvature, steep, *problem.shape)
    grid = np.linspace(best - 1, best + 1, 2001)
    assert value(best) >= max(value(g) for g in grid if v > 0 or g >= 0) - 1e-12


def test_weights_are_repetitions():
    X, y = rows_at_hand(1)
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 4, len(y))
    rows, g, problem = np.repeat(np.arange(len(y)), weight), rng.normal(size=len(y)), MarginDistribution(5.0)
    g[weight == 0] = 0
    K = X @ X.T
    repeated = bounds(problem, K[np.ix_(rows, rows)], y[rows], (g / np.maximum(weight, 1))[rows], np.ones(len(rows)))
    weighted = bounds(problem, K, y, g, weight.astype(float))
    assert weighted[:2] == pytest.approx(repeated[:2], rel=1e-12)


def test_a_g_without_weight_or_price_bounds_nothing():
    problem = MarginDistribution(1.0, overshoot_weight=0.0)
    linear, quadratic = problem.dual_terms(np.array([2.0, -0.1]), np.array([1.0, 1.0]))
    assert problem.dual_value(linear, quadratic + 1.0) == 0
    linear, quadratic = problem.dual_terms(np.array([2.0, 0.1]), np.array([1.0, 0.0]))
    assert problem.dual_value(linear, quadratic + 1.0) == 0


def test_the_bend_is_the_derivative_of_the_pull():
    problem, steep = MarginDistribution(4.0, 0.3, 0.6), np.full(5, 0.8)
    margin = np.array([-1.0, 0.69, 1.0, 1.31, 3.0])
    slope = (problem.best_dual(margin - 1e-6, steep) - problem.best_dual(margin + 1e-6, steep)) / 2e-6
    np.testing.assert_allclose(problem.bend(margin, steep), slope, atol=1e-6)


@pytest.mark.parametrize(
    ("problem", "totals", "message"),
    [
        (MarginDistribution(0.0), (1, 1), "C=0"),
        (MarginDistribution(math.inf), (1, 1), "C=inf"),
        (MarginDistribution(1.0, 1.0), (1, 1), "deadband=1"),
        (MarginDistribution(1.0, -0.1), (1, 1), "deadband=-0.1"),
        (MarginDistribution(1.0, 0.2, -1.0), (1, 1), "overshoot_weight=-1"),
        (MarginDistribution(1.0), (0, 1), "positive class"),
        (MarginDistribution(1.0), (1, 0), "negative class"),
    ],
)
def test_what_has_no_answer_is_refused(problem, totals, message):
    with pytest.raises(ValueError, match=message):
        problem.check(*totals)
