"""The exact answers of the tests are themselves tested, and so are the helpers that compare."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import hull_distance, intercept_interval, margin_of, nu_cap
from tests.problems_at_hand import assert_brackets, overlapping, separable

SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def both(A, B):
    return np.vstack([A, B]), np.repeat([1.0, -1.0], [len(A), len(B)])


def test_two_squares_are_apart_by_the_gap_between_their_sides():
    X, y = both(SQUARE, SQUARE + np.array([3.5, 0.25]))
    assert hull_distance(X, y).distance == pytest.approx(2.5, rel=1e-12)


def test_squares_corner_to_corner():
    X, y = both(SQUARE, SQUARE + np.array([4.0, 5.0]))
    assert hull_distance(X, y).distance == pytest.approx(5.0, rel=1e-12)


@pytest.mark.parametrize("d", [2, 5, 20])
def test_a_simplex_is_its_centroid_away_from_the_origin(d):
    X, y = both(np.eye(d), np.zeros((1, d)))
    assert hull_distance(X, y).distance == pytest.approx(1 / np.sqrt(d), rel=1e-12)


def test_one_point_each():
    X, y = both(np.array([[1.0, 2.0, 2.0]]), np.array([[0.0, 0.0, 0.0]]))
    assert hull_distance(X, y).distance == pytest.approx(3.0, rel=1e-14)


def test_meeting_hulls_have_distance_zero():
    X, y = both(SQUARE, SQUARE + 0.5)
    assert hull_distance(X, y).distance == 0.0


def test_reduced_hulls_on_a_line_are_partial_means():
    # cap 0.4: masses .4, .4, .2 on the nearest three: 0.4*1 + 0.4*2 + 0.2*4 = 2 against 0.4*-1 + .4*-1 + .2*-5 = -1.8
    X = np.array([[1.0], [2.0], [4.0], [9.0], [-1.0], [-1.0], [-5.0]])
    y = np.array([1, 1, 1, 1, -1, -1, -1.0])
    assert hull_distance(X, y, cap=0.4).distance == pytest.approx(3.8, rel=1e-12)


def test_at_the_largest_nu_the_smaller_hull_is_its_mean():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 3))
    y = np.repeat([1.0, -1.0], 10)
    X[y > 0] += 2
    exact = np.linalg.norm(X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0))
    assert hull_distance(X, y, cap=0.1).distance == pytest.approx(exact, rel=1e-12)


def test_weights_are_multiplicities():
    X, y = overlapping(1, n=24)
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    twice = np.repeat(np.arange(len(y)), weight.astype(int))
    cap = nu_cap(y, "paper", weight)
    assert cap == pytest.approx(nu_cap(y[twice], "paper"))
    weighted = hull_distance(X, y, weight, cap).distance
    assert weighted == pytest.approx(hull_distance(X[twice], y[twice], None, cap).distance, rel=1e-9)
    assert np.all(hull_distance(X, y, weight, cap).mass <= cap * weight * (1 + 1e-12))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("cap", [np.inf, 0.1])
def test_the_oracle_proves_itself_on_random_data(seed, cap):
    X, y = separable(seed, n=60, d=6, gap=0.01)
    assert hull_distance(X, y, cap=cap).distance > 0


def test_a_margin_is_never_over_the_distance_and_a_wrong_direction_is_below():
    X, y = both(SQUARE, SQUARE + np.array([3.5, 0.25]))
    upper = np.full(8, 2.0)
    assert margin_of(X, y, y, upper, np.array([-1.0, 0.0])) == pytest.approx(2.5)
    assert margin_of(X, y, y, upper, np.array([-1.0, 1.0])) < 2.4
    assert margin_of(X, y, y, upper, np.array([1.0, 0.0])) < 0


def test_infeasible_bounds_are_refused():
    X, y = both(SQUARE, SQUARE + 3)
    with pytest.raises(ValueError, match="less than one"):
        hull_distance(X, y, cap=0.2)


def test_the_intercept_interval_is_a_point_unless_nu_n_over_two_is_an_integer():
    X = np.array([[3.0], [4.0], [6.0], [-1.0], [-2.0], [-7.0]])
    y = np.array([1, 1, 1, -1, -1, -1.0])
    low, high = intercept_interval(X, y, np.ones(1), nu=0.5)  # 1.5 rows: levels 4 and -2
    assert low == high == -1.0
    low, high = intercept_interval(X, y, np.ones(1), nu=1 / 3)  # one row: levels in [3, 4] and [-2, -1]
    assert (low, high) == (-1.5, -0.5)


@pytest.mark.parametrize(("primal", "dual"), [(2.0, 1.1), (0.9, 0.5)])
def test_assert_brackets_fails_on_a_false_bound(primal, dual):
    good = {"sweep": 1, "primal": 1.5, "dual": 0.5}
    assert_brackets([good], 1.0)
    with pytest.raises(AssertionError):
        assert_brackets([good, {"sweep": 2, "primal": primal, "dual": dual}], 1.0)


def test_assert_brackets_fails_without_any_certificate():
    with pytest.raises(AssertionError):
        assert_brackets([], 1.0)
