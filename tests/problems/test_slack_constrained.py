from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog, minimize, minimize_scalar

from widemargin.problems.slack_constrained import SlackConstrained

both = pytest.mark.parametrize("fit_intercept", [False, True])


class Case(NamedTuple):
    """Responses of a few rows, both classes present."""

    c: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    slack: float


def cases(seed, count):
    """Small cases of every kind: ties, no slack, so much that it covers everything, whole and fractional weights."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        n = int(rng.integers(2, 14))
        c = rng.integers(-3, 4, n).astype(float) if number % 3 == 0 else rng.normal(0.3, 1, n)
        y = np.where(rng.random(n) < rng.uniform(0.1, 0.9), 1.0, -1.0)
        y[:2] = 1.0, -1.0
        weight = [np.ones(n), rng.integers(1, 4, n).astype(float), rng.uniform(0.1, 2, n)][number % 4 % 3]
        slack = [0.0, 20.0, rng.uniform(0, 0.1), rng.uniform(0, 2)][number % 5 % 4]
        yield Case(c, y, weight, slack)


def level_by_linear_program(case, fit_intercept):
    """Maximise the level over level, bias and slacks."""
    n = len(case.c)
    rise = np.column_stack([np.ones(n), -case.y * fit_intercept, -np.eye(n)])
    use = np.concatenate([[0.0, 0.0], case.weight])
    answer = linprog(
        np.concatenate([[-1.0], np.zeros(n + 1)]),
        np.vstack([rise, use]),
        np.append(case.c, case.weight.sum() * case.slack),
        bounds=[(None, None)] * 2 + [(0, None)] * n,
        method="highs-ds",
    )
    assert answer.status == 0
    return -answer.fun


def regularised(case, C, squared_norm, s, b):
    """The objective of the model s (w, b) whose price of slack is C."""
    return 0.5 * s * s * squared_norm + C * case.weight @ np.maximum(0, 1 - s * case.c - case.y * s * b)


def best_scale(case, C, squared_norm, fit_intercept):
    """The least regularised objective along w, by a search over the scale with every kink tried as the bias."""

    def along(s):
        reach = 1 - s * case.c
        shifts = case.y * reach if fit_intercept else np.zeros(1)
        return (
            0.5 * s * s * squared_norm
            + C * (case.weight @ np.maximum(0, reach[:, None] - case.y[:, None] * shifts)).min()
        )

    top = math.sqrt(2 * C * case.weight.sum() / squared_norm)
    return minimize_scalar(along, bounds=(0, top), method="bounded", options={"xatol": 1e-10 * top})


def value_of(share, case):
    """What p* promises: p.c + M nu max p / m."""
    return share @ case.c + case.weight.sum() * case.slack * (share / case.weight).max()


@both
def test_level_is_that_of_a_linear_program(fit_intercept):
    for case in cases(0, 1000):
        water = SlackConstrained(slack=case.slack, fit_intercept=fit_intercept).water_level(*case[:3], squared_norm=1.0)
        assert water.level == pytest.approx(level_by_linear_program(case, fit_intercept), rel=1e-12, abs=1e-12)


@both
def test_slack_under_the_level_at_the_bias_is_all_the_slack_there_is(fit_intercept):
    for case in cases(1, 1000):
        problem = SlackConstrained(slack=case.slack, fit_intercept=fit_intercept)
        water = problem.water_level(*case[:3], squared_norm=1.0)
        assert problem.implied_slack(water, *case[:3]) == pytest.approx(case.slack, rel=1e-12, abs=1e-14)
        assert fit_intercept or water.bias == 0


@both
def test_many_rows_lose_no_digits(fit_intercept):
    rng = np.random.default_rng(11)
    n = 200_000
    c, y, weight = rng.normal(0.5, 1, n), np.where(rng.random(n) < 0.3, 1.0, -1.0), rng.uniform(0.5, 2, n)
    for slack in (1e-4, 0.1, 3.0):
        problem = SlackConstrained(slack=slack, fit_intercept=fit_intercept)
        water = problem.water_level(c, y, weight, 1.0)
        assert problem.implied_slack(water, c, y, weight) == pytest.approx(slack, rel=1e-11)
        assert value_of(water.share, Case(c, y, weight, slack)) == pytest.approx(water.level, rel=1e-12, abs=1e-12)


@both
def test_share_is_minimax_optimal(fit_intercept):
    for case in cases(2, 1000):
        water = SlackConstrained(slack=case.slack, fit_intercept=fit_intercept).water_level(*case[:3], squared_norm=1.0)
        share = water.share
        assert share.min() >= 0
        assert share.sum() == pytest.approx(1, rel=1e-13)
        assert value_of(share, case) == pytest.approx(water.level, rel=1e-12, abs=1e-12)
        assert water.cover == pytest.approx(1 / (share / case.weight).max(), rel=1e-12)
        if fit_intercept:
            assert share @ case.y == pytest.approx(0, abs=1e-13)


@both
def test_rows_with_equal_responses_share_alike(fit_intercept):
    for case in cases(3, 300):
        water = SlackConstrained(slack=case.slack, fit_intercept=fit_intercept).water_level(*case[:3], squared_norm=1.0)
        density = water.share / case.weight
        for i in range(len(case.c)):
            alike = (case.c == case.c[i]) & ((case.y == case.y[i]) | (not fit_intercept))
            assert density[alike] == pytest.approx(density[i], rel=1e-12)


@both
def test_at_no_slack_the_level_is_the_margin(fit_intercept):
    c, y = np.array([2.0, 1.0, 1.0, 5.0, 3.0]), np.array([1.0, 1.0, 1.0, -1.0, -1.0])
    water = SlackConstrained(slack=0.0, fit_intercept=fit_intercept).water_level(c, y, np.ones(5), 1.0)
    assert water.level == (2.0 if fit_intercept else 1.0)
    assert water.bias == (1.0 if fit_intercept else 0.0)
    assert water.share.tolist() == ([0, 0.25, 0.25, 0, 0.5] if fit_intercept else [0, 0.5, 0.5, 0, 0])


def test_at_the_start_all_rows_are_under_water():
    y = np.array([1.0, 1, 1, -1, -1, -1, -1])
    plain = SlackConstrained(slack=0.25, fit_intercept=False).water_level(np.zeros(7), y, np.ones(7), 0.0)
    assert plain.level == pytest.approx(0.25)
    assert plain.share == pytest.approx(np.full(7, 1 / 7))
    for problem in (SlackConstrained(slack=0.25), SlackConstrained(C=3.0)):
        water = problem.water_level(np.zeros(7), y, np.ones(7), 0.0)
        assert water.share == pytest.approx(np.where(y > 0, 1 / 6, 1 / 8))
        assert water.cover == pytest.approx(6)


@both
@pytest.mark.parametrize("price", [False, True])
def test_weight_is_the_row_repeated_and_weight_zero_is_the_row_absent(fit_intercept, price):
    rng = np.random.default_rng(4)
    for case in cases(4, 300):
        times = rng.integers(0, 4, len(case.c))
        times[:2] = 1
        order = rng.permutation(np.repeat(np.arange(len(times)), times))
        problem = SlackConstrained(**({"C": 3.0} if price else {"slack": case.slack}), fit_intercept=fit_intercept)
        water = problem.water_level(case.c, case.y, times.astype(float), 2.0)
        repeated = problem.water_level(case.c[order], case.y[order], np.ones(len(order)), 2.0)
        assert water[:3] == pytest.approx(repeated[:3], rel=1e-11, abs=1e-11)
        assert water.share == pytest.approx(
            np.bincount(order, repeated.share, minlength=len(times)), rel=1e-10, abs=1e-12
        )


@both
def test_with_C_no_other_scale_and_bias_are_better(fit_intercept):
    rng = np.random.default_rng(5)
    zeros = 0
    for case in cases(5, 400):
        C, squared_norm = 10 ** rng.uniform(-2, 2), rng.uniform(0.1, 2)
        water = SlackConstrained(C=C, fit_intercept=fit_intercept).water_level(*case[:3], squared_norm=squared_norm)
        best = best_scale(case, C, squared_norm, fit_intercept)
        if water.level == np.inf:
            zeros += 1
            assert best.x <= 1e-6 * math.sqrt(2 * C * case.weight.sum() / squared_norm)
        else:
            mine = regularised(case, C, squared_norm, 1 / water.level, water.bias)
            assert mine <= best.fun * (1 + 1e-12)
            assert 1 / water.level == pytest.approx(best.x, rel=1e-3, abs=1e-6)
    assert 10 < zeros < 300


@both
def test_with_C_the_share_makes_the_slope_along_w_vanish(fit_intercept):
    """d/ds of the objective, with the hinge's slope at its kinks chosen by the share: s ||w||^2 = C cover share.c"""
    rng = np.random.default_rng(6)
    for case in cases(6, 600):
        C, squared_norm = 10 ** rng.uniform(-2, 4), rng.uniform(0.1, 2)
        water = SlackConstrained(C=C, fit_intercept=fit_intercept).water_level(*case[:3], squared_norm=squared_norm)
        assert water.share.sum() == pytest.approx(1)
        assert abs(water.share @ case.y) < 1e-12 or not fit_intercept
        assert np.all(water.cover * water.share <= case.weight * (1 + 1e-9))
        if water.level < np.inf:
            slope = squared_norm / water.level - C * water.cover * (water.share @ case.c)
            assert slope == pytest.approx(0, abs=1e-11 * C * case.weight @ np.abs(case.c))
            height = case.c + case.y * water.bias - water.level
            assert np.all(water.share[height > 1e-11] == 0)
            assert water.cover * water.share[height < -1e-11] == pytest.approx(case.weight[height < -1e-11])
        else:
            assert water.bias == 0
            assert water.cover == pytest.approx(
                2 * min(case.weight[case.y > 0].sum(), case.weight[case.y < 0].sum())
                if fit_intercept
                else case.weight.sum()
            )


@both
def test_slack_and_C_map_to_each_other(fit_intercept):
    rng = np.random.default_rng(7)
    finite = 0
    for case in cases(7, 400):
        C, squared_norm = 10 ** rng.uniform(-2, 3), rng.uniform(0.1, 2)
        given_C = SlackConstrained(C=C, fit_intercept=fit_intercept)
        water = given_C.water_level(*case[:3], squared_norm=squared_norm)
        slack = given_C.implied_slack(water, *case[:3])
        volume = slack * case.weight.sum()
        implied = given_C.implied_C(water.level, water.cover, volume, squared_norm)
        if water.level == np.inf:
            assert implied == slack == np.inf
            continue
        finite += 1
        assert implied == pytest.approx(C, rel=1e-7)
        given_slack = SlackConstrained(slack=slack, fit_intercept=fit_intercept)
        again = given_slack.water_level(*case[:3], squared_norm=squared_norm)
        assert again.level == pytest.approx(water.level, rel=1e-10)
    assert finite > 100


def test_without_a_finite_level_absent_rows_do_no_harm():
    c, y, weight = np.array([-1.0, -2.0, 4.0]), np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, 0.0])
    problem = SlackConstrained(C=1.0)
    water = problem.water_level(c, y, weight, 1.0)
    assert water.level == np.inf
    assert water.share.tolist() == [0.5, 0.5, 0]
    assert problem.implied_slack(water, c, y, weight) == np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_responses_that_are_no_numbers_are_an_error_and_no_endless_search(bad):
    with pytest.raises(ValueError, match="finite"):
        SlackConstrained(slack=0.1).water_level(np.array([1.0, bad]), np.array([1.0, -1.0]), np.ones(2), 1.0)


def test_hard_margin_implies_every_C_that_is_large_enough():
    c, y = np.array([0.5, 0.5, 2.0, 3.0]), np.array([1.0, -1.0, 1.0, -1.0])
    problem = SlackConstrained(slack=0.0, fit_intercept=False)
    water = problem.water_level(c, y, np.ones(4), 1.0)
    least = problem.implied_C(water.level, 2.0, 0.0, 1.0)
    assert least == pytest.approx(1 / (0.5 * 0.5 * 2))
    assert problem.implied_C(water.level, 0.0, 0.0, 1.0) == math.inf
    for C in (least, 10 * least):
        assert SlackConstrained(C=C, fit_intercept=False).water_level(c, y, np.ones(4), 1.0).level == pytest.approx(0.5)


def test_a_level_below_zero_implies_no_finite_C():
    c, y = np.array([-1.0, -2.0]), np.array([1.0, -1.0])
    problem = SlackConstrained(slack=0.1)
    water = problem.water_level(c, y, np.ones(2), 1.0)
    assert water.level < 0
    assert problem.implied_C(water.level, water.cover, 0.2, 1.0) == math.inf


@both
def test_order_of_rows_is_immaterial(fit_intercept):
    rng = np.random.default_rng(10)
    for case in cases(10, 200):
        order = rng.permutation(len(case.c))
        problem = SlackConstrained(slack=case.slack, fit_intercept=fit_intercept)
        here = problem.water_level(*case[:3], squared_norm=1.0)
        there = problem.water_level(case.c[order], case.y[order], case.weight[order], 1.0)
        assert here[:3] == pytest.approx(there[:3], rel=1e-11, abs=1e-12)
        assert here.share[order] == pytest.approx(there.share, rel=1e-10, abs=1e-12)


def optimum(X, y, weight, slack, fit_intercept):
    """Direction of the best w, and the best p, each by a generic method."""
    n, d = X.shape
    signed, volume = y[:, None] * X, weight.sum() * slack
    rise = np.column_stack([signed, y * fit_intercept, -np.ones(n), np.eye(n)])
    use = np.concatenate([np.zeros(d + 2), -weight])
    primal = minimize(
        lambda v: -v[d + 1],
        np.concatenate([np.full(d, 0.1), [0.0, -3.0], np.full(n, slack)]),
        jac=lambda v: -np.eye(d + 2 + n)[d + 1],
        bounds=[(None, None)] * (d + 2) + [(0, None)] * n,
        constraints=[
            {"type": "ineq", "fun": lambda v: rise @ v, "jac": lambda v: rise},
            {"type": "ineq", "fun": lambda v: volume + use @ v, "jac": lambda v: use},
            {
                "type": "ineq",
                "fun": lambda v: 1 - v[:d] @ v[:d],
                "jac": lambda v: np.append(-2 * v[:d], np.zeros(n + 2)),
            },
        ],
        options={"maxiter": 500, "ftol": 1e-13},
    )
    sides = np.array([y > 0, y < 0]) * 2.0 if fit_intercept else np.ones((1, n))
    dual = minimize(
        lambda v: np.linalg.norm(v[:n] @ signed) + volume * v[n],
        np.append(1 / (sides.T @ sides.sum(axis=1)), 1 / weight.min()),
        jac=lambda v: np.append(signed @ (v[:n] @ signed) / np.linalg.norm(v[:n] @ signed), volume),
        bounds=[(0, None)] * (n + 1),
        constraints=[
            {"type": "eq", "fun": lambda v: sides @ v[:n] - 1},
            {"type": "ineq", "fun": lambda v: weight * v[n] - v[:n]},
        ],
        options={"maxiter": 500, "ftol": 1e-13},
    )
    return primal.x[:d] / np.linalg.norm(primal.x[:d]), np.maximum(dual.x[:n], 0)


@both
@pytest.mark.parametrize("seed", range(6))
def test_upper_bound_is_over_the_optimum_and_meets_it(fit_intercept, seed):
    rng = np.random.default_rng(seed)
    n = 16
    y = np.where(np.arange(n) < 6, 1.0, -1.0)
    points = rng.normal(size=(n, 2)) + 1.2 * y[:, None]
    kernel = np.exp(-0.3 * ((points[:, None] - points) ** 2).sum(axis=2))
    X = np.linalg.cholesky(kernel + 1e-9 * np.eye(n))
    weight = rng.uniform(0.5, 2, n) if seed % 2 else np.ones(n)
    problem = SlackConstrained(slack=[0.0, 0.01, 0.1][seed % 3], fit_intercept=fit_intercept)

    def bound(mass):
        squared_norm, steepest = float(np.sum(((mass * y) @ X) ** 2)), float(np.max(mass / weight))
        return problem.upper_bound(float(mass.sum()), squared_norm, steepest, problem.slack * weight.sum())

    def feasible(mass):
        return mass / np.where(y > 0, 2 * mass @ (y > 0), 2 * mass @ (y < 0)) if fit_intercept else mass / mass.sum()

    w, p = optimum(X, y, weight, problem.slack, fit_intercept)
    best = problem.water_level(y * (X @ w), y, weight, 1.0).level
    assert bound(feasible(p)) == pytest.approx(best, rel=1e-4)
    for _ in range(200):
        mass = feasible(rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0]))) + 1e-12)
        assert bound(mass) >= best * (1 - 1e-12)
        assert bound(7 * mass) == pytest.approx(bound(mass), rel=1e-12)
        direction = rng.normal(size=n)
        level = problem.water_level(y * (X @ direction) / np.linalg.norm(direction), y, weight, 1.0).level
        assert level <= bound(feasible(p)) * (1 + 1e-12)


def test_no_masses_bound_nothing():
    assert SlackConstrained(slack=0.1).upper_bound(0.0, 0.0, 0.0, 1.0) == math.inf


@pytest.mark.parametrize("given", [{}, {"slack": 0.1, "C": 1.0}])
def test_exactly_one_of_slack_and_C_is_given(given):
    with pytest.raises(ValueError, match="exactly one"):
        SlackConstrained(**given)


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"slack": -0.5}, r"\[0, 1e\+50\]"),
        ({"slack": math.nan}, r"\[0, 1e\+50\]"),
        ({"slack": math.inf}, r"\[0, 1e\+50\]"),
        ({"C": 0.0}, r"\[1e-50, 1e\+50\]"),
        ({"C": -1.0}, r"\[1e-50, 1e\+50\]"),
        ({"C": math.inf}, r"\[1e-50, 1e\+50\]"),
    ],
)
def test_a_parameter_out_of_range_is_an_error_with_value_and_range(given, allowed):
    [(name, value)] = given.items()
    with pytest.raises(ValueError, match=f"{name}={value:g}.*{allowed}"):
        SlackConstrained(**given).check(3, 4)


def test_one_class_needs_no_intercept():
    SlackConstrained(slack=0.1, fit_intercept=False).check(3, 0)
    for positive, negative in ((3, 0), (0, 2.5)):
        with pytest.raises(ValueError, match=f"{positive:g} and {negative:g}.*one class.*fit_intercept=False"):
            SlackConstrained(slack=0.1).check(positive, negative)
    with pytest.raises(ValueError, match="0 and 0"):
        SlackConstrained(slack=0.1, fit_intercept=False).check(0, 0)
    with pytest.raises(ValueError, match=r"2 and 0.*one class"):
        SlackConstrained(slack=0.1).water_level(np.ones(3), np.array([1.0, 1.0, -1.0]), np.array([1.0, 1.0, 0.0]), 1.0)
