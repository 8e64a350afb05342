"""The C-SVM's formulas, each against the same written plainly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tests.problems_at_hand import on_ranks, part_of
from widemargin.compiled.hinge import hinge_sums
from widemargin.problems import hinge_l2
from widemargin.problems.hinge_l2 import HingeL2

ROWS = {"many": (400, 1.0), "separable": (60, 0.0), "few": (7, 1.0)}


@pytest.fixture(params=["rows", "planes"])
def searched(request, monkeypatch):
    """What the search looks at: all rows each time, or planes that it knows of them."""
    if request.param == "planes":
        monkeypatch.setattr(hinge_l2, "_FEW_ROWS", 0)


def scored(seed, n=60, noise=1.0):
    """Scores of a direction, labels of both classes in unequal numbers, and weights."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < max(1, n // 3), 1.0, -1.0)
    return 3 * (y + noise * rng.normal(size=n) + 0.4), y, rng.uniform(0.5, 2.0, n)


def objective(problem, scores, y, weight, squared_norm, scale, intercept):
    slack = 1 - y * (scale * scores + intercept)
    return 0.5 * scale**2 * squared_norm + problem.C * weight @ np.maximum(0.0, slack)


def least_over_intercepts(problem, scores, y, weight, squared_norm, scale):
    """By trying every kink of the loss."""
    kinks = y - scale * scores if problem.fit_intercept else [0.0]
    return min(objective(problem, scores, y, weight, squared_norm, scale, b) for b in kinks)


def least_of_all(problem, *data):
    within = minimize_scalar(
        lambda scale: least_over_intercepts(problem, *data, scale=scale),
        bounds=(0, 50),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return min(within.fun, least_over_intercepts(problem, *data, scale=0.0))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.usefixtures("searched")
def test_the_primal_point_is_the_least_over_scales_and_intercepts(rows, C, fit_intercept, seed):
    problem, data = HingeL2(C, fit_intercept), (*scored(seed, *ROWS[rows]), 2.0)
    point = problem.primal_point(*data)
    there = objective(problem, *data, scale=point.scale, intercept=point.intercept)
    of_slacks = 4 * np.finfo(np.float64).eps * C * data[2].sum()  # rows on the margin have a slack that is rounding
    assert point.value == pytest.approx(there, rel=1e-13, abs=of_slacks)
    assert point.value <= least_of_all(problem, *data) * (1 + 1e-9)
    assert point.scale >= 0


@pytest.mark.parametrize("near", [-100.0, 0.0, 3.0])
@pytest.mark.usefixtures("searched")
def test_a_fixed_scale_leaves_the_best_intercept(near, seed):
    problem, data = HingeL2(1.0), (*scored(seed), 2.0)
    point = problem.primal_point(*data, near=near, fixed_scale=True)
    assert point.scale == 1
    assert point.value == pytest.approx(least_over_intercepts(problem, *data, scale=1.0), rel=1e-10)


@pytest.mark.usefixtures("searched")
def test_a_direction_that_points_the_wrong_way_is_scaled_to_nothing():
    scores, y, weight = scored(0, noise=0.0)
    point = HingeL2(1.0, fit_intercept=False).primal_point(-scores, y, weight, 1.0)
    assert point.scale == 0
    assert point.value == pytest.approx(weight.sum())


@pytest.mark.usefixtures("searched")
def test_no_direction_at_all_is_answered_by_the_lighter_class():
    _, y, weight = scored(0)
    point = HingeL2(1.0).primal_point(np.zeros(len(y)), y, weight, 0.0)
    assert point.value == pytest.approx(2 * weight[y > 0].sum())


@pytest.mark.parametrize("squared_norm", [0.0, -2.6e-33])
@pytest.mark.usefixtures("searched")
def test_a_direction_of_rounding_alone_is_none_and_the_search_ends(squared_norm):
    y, weight = np.array([-1.0, 1.0, -1.0]), np.array([1.0, 2.0, 1.0])
    point = HingeL2(1.0).primal_point(np.array([-2e-17, 2e-17, -2e-17]), y, weight, squared_norm)
    assert (point.scale, point.value) == (0.0, pytest.approx(4.0))


@pytest.mark.usefixtures("searched")
def test_a_rough_search_is_above_the_least_value_by_no_more_than_it_was_allowed(seed):
    problem, data = HingeL2(1.0), (*scored(seed, 400), 2.0)
    exact = problem.primal_point(*data).value
    assert exact * (1 - 1e-10) <= problem.primal_point(*data, precision=1e-3).value <= exact * (1 + 1e-2)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_those_who_hold_a_part_of_the_rows_find_the_same_point(fit_intercept, seed):
    problem, (scores, y, weight) = HingeL2(0.7, fit_intercept), scored(seed, 80)
    whole = problem.primal_point(scores, y, weight, 2.0)

    def on_rank(comm):
        shard = part_of(scores, y, weight, comm.rank, 3)
        return problem.primal_point(shard.X, shard.y, shard.weight, 2.0, comm.allreduce)

    points = on_ranks(3, on_rank)
    assert points[0] == points[1] == points[2]
    assert points[0].value == pytest.approx(whole.value, rel=1e-10)


@pytest.mark.usefixtures("searched")
@pytest.mark.parametrize("squared_norm", [1e-300, 1e-9, 1e12])
@pytest.mark.parametrize("near", [-1e6, 0.3])
def test_the_search_ends_wherever_it_begins(squared_norm, near, seed):
    problem, data = HingeL2(1.0), (*scored(seed), squared_norm)
    point, expected = problem.primal_point(*data, near=near), problem.primal_point(*data)
    assert point.value == pytest.approx(expected.value, rel=1e-9)
    assert point.value == pytest.approx(
        objective(problem, *data, scale=point.scale, intercept=point.intercept), rel=1e-13
    )


def test_planes_need_few_looks_at_the_rows(monkeypatch, seed):
    looks = []

    def look(*arguments):
        looks.append(arguments)
        return hinge_sums(*arguments)

    monkeypatch.setattr(hinge_l2, "_FEW_ROWS", 0)
    HingeL2(1.0).primal_point(*scored(seed, 400), 2.0, sums=look)
    assert len(looks) <= 40


def test_hinge_sums_are_loss_and_slopes(seed):
    scores, y, weight = scored(seed)
    loss, by_scale, by_intercept = hinge_sums(scores, y, weight, 0.3, 0.2)
    slack = 1 - y * (0.3 * scores + 0.2)
    assert loss == pytest.approx(weight @ np.maximum(0.0, slack))
    assert by_scale == pytest.approx(-(weight * y * scores) @ (slack > 0))
    assert by_intercept == pytest.approx(-(weight * y) @ (slack > 0))


@pytest.mark.parametrize(("positive", "negative"), [(3.0, 5.0), (5.0, 3.0), (4.0, 4.0), (0.0, 2.0), (0.0, 0.0)])
def test_balanced_classes_carry_the_same_and_none_grows(positive, negative):
    first, second = HingeL2(1.0).balance_factors(positive, negative)
    assert first * positive == pytest.approx(second * negative)
    assert max(first, second) == 1
    assert HingeL2(1.0, fit_intercept=False).balance_factors(positive, negative) == (1, 1)


@pytest.mark.parametrize(("alpha_sum", "squared_norm"), [(2.0, 8.0), (2.0, 0.5), (0.0, 0.0), (3.0, 0.0)])
@pytest.mark.parametrize("largest", [1.0, 2.5])
def test_the_best_factor_has_the_highest_dual_value(alpha_sum, squared_norm, largest):
    problem = HingeL2(1.0)
    best = problem.best_factor(alpha_sum, squared_norm, largest)
    assert 0 <= best <= largest
    tried = [problem.dual_value(t * alpha_sum, t**2 * squared_norm) for t in np.linspace(0, largest, 101)]
    assert problem.dual_value(best * alpha_sum, best**2 * squared_norm) >= max(tried) - 1e-12


@pytest.mark.parametrize("C", [0.0, -1.0, float("inf"), float("nan")])
def test_a_useless_C_is_refused_with_its_range(C):
    with pytest.raises(ValueError, match=r"C=.*\[1e-50, 1e\+50\]"):
        HingeL2(C).check(1.0, 1.0)


@pytest.mark.parametrize(("totals", "name"), [((0.0, 2.0), "positive"), ((2.0, 0.0), "negative")])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_empty_class_is_refused_by_name(totals, name, fit_intercept):
    HingeL2(1.0, fit_intercept).check(1.0, 1.0)
    with pytest.raises(ValueError, match=f"{name} class has weight 0"):
        HingeL2(1.0, fit_intercept).check(*totals)
