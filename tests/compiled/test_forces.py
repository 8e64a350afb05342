"""Pulls of rows from the threshold, beside the same formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.compiled import forces
from widemargin.problems.hinge_l2 import HingeL2


@pytest.fixture
def rows():
    """Places, labels, bounds, coefficients and responses; some rows are at their bounds."""
    rng = np.random.default_rng(0)
    n, C = 60, 2.0
    y = np.where(rng.random(n) < 0.4, 1.0, -1.0)
    low, high = np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)
    places = np.sort(rng.choice(n, 40, replace=False))
    beta = np.clip(rng.normal(size=40) * 2 * C, low[places], high[places])
    return places, y, low, high, beta, rng.normal(size=40)


def test_ends_are_those_of_rows_that_may_move(rows):
    places, y, low, high, beta, response = rows
    pull, up, down = y[places] - response, beta < high[places], beta > low[places]
    highest, lowest, total, n_free = forces.ends(*rows)
    assert (highest, lowest, n_free) == (pull[up].max(), pull[down].min(), np.count_nonzero(up & down))
    assert total == pytest.approx(pull[up & down].sum())


def test_no_row_that_may_move_leaves_the_ends_open(rows):
    places, y, low, _, _, response = rows
    assert forces.ends(places, y, low, low, low[places], response) == (-np.inf, np.inf, 0.0, 0)


def test_forces_point_where_rows_may_move(rows):
    places, y, low, high, beta, response = rows
    rise, fall = np.empty(len(places)), np.empty(len(places))
    forces.forces(*rows, 0.25, rise, fall)
    pull = y[places] - response - 0.25
    np.testing.assert_allclose(rise, np.where(beta < high[places], pull, -np.inf))
    np.testing.assert_allclose(fall, np.where(beta > low[places], -pull, -np.inf))


def test_parts_of_the_gap_add_up_to_the_difference_of_the_objectives():
    rng = np.random.default_rng(1)
    n, C = 30, 2.0
    y = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    alpha = np.tile(np.clip(rng.normal(1, 2, n // 2), 0, C), 2)  # balanced
    factor = rng.normal(size=(n, 5))
    K, beta = factor @ factor.T, y * alpha
    low, high = np.minimum(0, C * y), np.maximum(0, C * y)
    response, intercept, problem = K @ beta, 0.3, HingeL2(C)
    loss = np.maximum(0, 1 - y * (response + intercept)).sum()
    gap = problem.primal_value(loss, beta @ response) - problem.dual_value(alpha.sum(), beta @ response)
    rise, fall = np.empty(n), np.empty(n)
    assert forces.forces(np.arange(n), y, low, high, beta, response, intercept, rise, fall) == pytest.approx(gap)
