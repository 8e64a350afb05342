from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import hull_distance
from tests.problems_at_hand import separable, solve
from widemargin.data.synthetic import make_separable
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.solvers.active_set import ActiveSet, WorkingSet, finish_on_support, pairwise_steps, solve_working_set


def working_set(seed, n=30, d=4, gap=0.5):
    X, y = separable(seed, n=n, d=d, gap=gap)
    working = WorkingSet.empty(d)
    working.add(np.arange(float(n)), (y < 0).astype(np.intp), (X - X.mean(axis=0)) * y[:, None])
    return working, hull_distance(X, y).distance


def masses_add_up(working):
    return np.bincount(working.side, working.mass, 2) == pytest.approx([1.0, 1.0], rel=1e-12)


def test_a_cap_is_refused_in_plain_words():
    with pytest.raises(TypeError, match="ActiveSet solves HardMargin, not NuMargin"):
        solve(ActiveSet(), NuMargin(), *separable(0))


def test_the_working_set_is_solved_to_the_exact_distance(seed):
    working, exact = working_set(seed)
    z, level = solve_working_set(working, 1e-12)
    assert np.linalg.norm(z) == pytest.approx(exact, rel=1e-9)
    assert level.sum() / np.linalg.norm(z) == pytest.approx(exact, rel=1e-9)
    assert masses_add_up(working)


def test_pairwise_steps_never_increase_the_distance_and_keep_masses(seed):
    working, exact = working_set(seed)
    before = np.linalg.norm(working.mass @ working.rows)
    pairwise_steps(working.gram, working.side, working.mass, 1e-6, 50)
    after = np.linalg.norm(working.mass @ working.rows)
    assert exact * (1 - 1e-12) <= after < before
    assert masses_add_up(working)
    assert (working.mass >= 0).all()


def test_the_exact_solve_never_makes_a_mass_negative(seed):
    working, exact = working_set(seed)
    finish_on_support(working)
    assert (working.mass >= 0).all()
    assert masses_add_up(working)
    assert np.linalg.norm(working.mass @ working.rows) >= exact * (1 - 1e-9)


@pytest.mark.parametrize("unit", [2.0**-130, 2.0**33, 2.0**130])
def test_the_exact_solve_gives_the_same_masses_in_every_unit_of_length(unit, seed):
    """To the bit, as powers of two round nothing; rows that depend on each other leave some masses to rounding."""
    one, other = working_set(seed)[0], working_set(seed)[0]
    other.rows, other.gram = unit * other.rows, unit * (unit * other.gram)
    for working in (one, other):
        working.mass = 1.0 / np.bincount(working.side)[working.side]
        finish_on_support(working)
    np.testing.assert_array_equal(other.mass, one.mass)


def test_a_row_is_taken_in_once():
    working, _ = working_set(0, n=10)
    n = len(working)
    working.add(working.keys[:4], working.side[:4], working.rows[:4])
    assert len(working) == n


def test_inner_products_stay_those_of_the_rows_after_rows_come_and_go():
    working, _ = working_set(0, n=12)
    working.keep(np.array([0, 2, 5, 7, 11]))
    fresh = np.arange(8.0).reshape(2, 4)
    working.add(np.array([100.0, 101.0]), np.array([0, 1]), fresh)
    np.testing.assert_allclose(working.gram, working.rows @ working.rows.T, rtol=1e-12)
    assert len(working.keys) == len(working.side) == len(working.mass) == len(working) == 7


@pytest.mark.parametrize("rows_per_class", [1, 2, 8])
@pytest.mark.parametrize("ranks", [1, 3])
def test_few_rows_a_sweep_reach_the_same_distance(rows_per_class, ranks, seed):
    X, y = separable(seed, n=60, d=6, gap=0.2)
    result = solve(ActiveSet(rows_per_class=rows_per_class), HardMargin(), X, y, ranks=ranks)[0]
    assert result.certificate.primal == pytest.approx(hull_distance(X, y).distance, rel=1e-6)


def test_a_large_set_needs_few_of_its_rows_on_the_wire():
    """Far below the rows themselves: what column generation is for."""
    X, y, margin = make_separable(4000, 20, random_state=0)
    result = solve(ActiveSet(), HardMargin(), X, y, ranks=4, tol=1e-3)[0]
    assert result.certificate.primal == pytest.approx(margin, rel=1e-3)
    assert result.history[-1]["scalars"] < X.size / 4
