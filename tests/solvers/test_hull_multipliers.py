"""The method of multipliers for hulls: every feasible nu, on odd shapes too, and its compiled steps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.oracles import hull_distance, nu_cap
from tests.problems_at_hand import overlapping, separable, solve
from widemargin.compiled.hull_steps import (
    lowest_sum,
    move_levels,
    soften_rows,
    solve_by_products,
    solve_few,
    tilted_sums,
)
from widemargin.compiled.projections import class_levels
from widemargin.problems.polytope import HardMargin, NuMargin, largest_nu
from widemargin.solvers import hull_multipliers
from widemargin.solvers.hull_multipliers import HullMultipliers
from widemargin.solvers.separating import Separating

SHARES = [0.02, 0.1, 0.3, 0.5, 0.85, 1.0]


def shapes():
    """Rows with labels: the odd shapes that a solver must get through."""
    rng = np.random.default_rng(0)
    X, y = overlapping(0, n=80, d=5, shift=0.7)
    one = np.where(np.arange(200) == 0, 1.0, -1.0)
    rows = rng.normal(size=(200, 5))
    wide = rng.normal(size=(30, 90))
    return {
        "plain": (X, y),
        "one row outside": (rows + 8.0 * (one > 0)[:, None], one),
        "one row inside": (rows, one),
        "units": (X * 10.0 ** np.arange(-3, 2), y),
        "units the other way": (X * 10.0 ** (np.arange(2, -3, -1) / 2), y),
        "far away": (X + 1e5, y),
        "duplicates": (np.repeat(X[:20], 6, axis=0), np.repeat(y[:20], 6)),
        "constant columns": (np.c_[X, np.ones((80, 2)), np.zeros(80)], y),
        "more features than rows": (wide, np.where(np.arange(30) < 12, 1.0, -1.0)),
        "the same rows in both classes": (np.repeat(wide, 2, axis=0), np.tile([1.0, -1.0], 30)),
        "wide units": (wide * 10.0 ** rng.uniform(-3, 3, 90) + 50.0, np.where(np.arange(30) < 12, 1.0, -1.0)),
        "whole numbers": (rng.integers(0, 3, (150, 3)).astype(float), np.sign(rng.normal(size=150))),
    }


def sparse_shapes():
    X = sp.random(60, 200, 0.1, format="csr", random_state=0)
    return X, np.where(np.arange(60) % 3 == 0, 1.0, -1.0)


@pytest.fixture(params=["few", "many"])
def size(request, monkeypatch):
    """The compiled steps of small problems, and the steps that larger ones take."""
    if request.param == "many":
        monkeypatch.setattr(hull_multipliers, "_MAX_FEW_ROWS", 0)
        monkeypatch.setattr(hull_multipliers, "_MAX_PRODUCTS", 0)
    return request.param


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", list(shapes()))
def test_every_nu_ends_by_its_gap_or_a_proof_of_overlap(name, share, size):
    X, y = shapes()[name]
    nu = share * largest_nu((y > 0).sum(), (y < 0).sum())
    result = solve(Separating(HullMultipliers()), NuMargin(nu), X, y, tol=1e-3, max_iter=400)[0]
    exact = hull_distance(X, y, cap=nu_cap(y, nu)).distance
    scale = 1e-9 * np.abs(X - X.mean(axis=0)).max()
    assert result.certificate.dual <= exact + scale
    assert result.certificate.primal >= exact - scale
    assert result.stop_reason == ("gap" if result.certificate.dual > 0 else "overlap"), result
    if result.stop_reason == "overlap":
        assert exact <= scale


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("nu", [0.1, 0.3, 0.6])
def test_sparse_rows_of_more_features_than_rows(ranks, nu, size):
    X, y = sparse_shapes()
    result = solve(HullMultipliers(tol=1e-6), NuMargin(nu), X, y, tol=1e-6, ranks=ranks)[0]
    assert result.stop_reason == "gap"
    exact = hull_distance(X.toarray(), y, cap=nu_cap(y, nu)).distance
    assert result.certificate.primal == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("direct_features", [0, 512])
def test_conjugate_gradients_and_the_hessian_lead_to_the_same(direct_features, size):
    X, y = overlapping(1, n=90, d=6)
    exact = hull_distance(X, y, cap=nu_cap(y, 0.5)).distance
    solver = HullMultipliers(tol=1e-7, direct_features=direct_features)
    result = solve(solver, NuMargin(0.5), X, y, tol=1e-7)[0]
    assert result.certificate.primal == pytest.approx(exact, rel=1e-6)


def test_many_rows_start_from_the_answer_of_a_sample():
    X, y = overlapping(0, n=9000, d=3)
    result = solve(HullMultipliers(), NuMargin(0.4), X, y, tol=1e-3)[0]
    assert result.stop_reason == "gap"
    assert result.n_iter <= 5
    starved = solve(HullMultipliers(start_per_feature=10**9), NuMargin(0.4), X, y, tol=1e-3)[0]
    assert starved.certificate.primal == pytest.approx(result.certificate.primal, rel=2e-3)


def test_the_hard_margin_is_solved_too(size):
    X, y = separable(2)
    result = solve(HullMultipliers(tol=1e-7), HardMargin(), X, y, tol=1e-7)[0]
    assert result.certificate.primal == pytest.approx(hull_distance(X, y).distance, rel=1e-6)


def test_a_direction_to_start_from_saves_steps(size):
    X, y = overlapping(3, n=300, d=8)
    solver = HullMultipliers()
    cold = solve(solver, NuMargin(0.3), X, y, tol=1e-3)[0]
    warm = solve(solver, NuMargin(0.3), X, y, tol=1e-3, warm=cold.model.coef)[0]
    assert warm.n_iter <= cold.n_iter
    assert warm.certificate.relative <= 1e-3


# -- the compiled passes, beside the same in NumPy -------------------------------------------------------------------


def few_rows(seed=0, n=40):
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n)
    upper = rng.uniform(0.05, 0.2, n)
    return rng, side, upper, rng.normal(size=n), upper * rng.uniform(0, 1, n)


def test_masses_are_held_within_their_bounds_and_summed_by_class():
    _, side, upper, scores, centre = few_rows()
    mass, is_free, level = np.empty(40), np.empty(40, dtype=bool), np.array([0.3, -0.2])
    sums = soften_rows(scores, side, centre, upper, 2.0, level, mass, is_free)
    wanted = centre + 2.0 * upper * (level[side] - scores)
    np.testing.assert_allclose(mass, np.clip(wanted, 0, upper))
    np.testing.assert_array_equal(is_free, (wanted > 0) & (wanted < upper))
    expected = [*np.bincount(side, mass, 2), *np.bincount(side, upper * is_free, 2)]
    np.testing.assert_allclose(sums, [*expected, (mass - centre) @ (level[side] - scores)])


def test_sums_over_free_rows():
    rng, side, upper, tilt, mass = few_rows(1)
    is_free = rng.random(40) < 0.5
    free = upper * is_free
    expected = [mass @ tilt, *np.bincount(side, free, 2), *np.bincount(side, free * tilt, 2), free @ tilt**2]
    np.testing.assert_allclose(tilted_sums(mass, is_free, upper, side, tilt), expected)


@pytest.mark.parametrize("rho", [1e-6, 1.0, 1e9])
def test_levels_make_masses_add_up_to_one(rho, seed):
    _, side, upper, scores, centre = few_rows(seed)
    mass, is_free = np.empty(40), np.empty(40, dtype=bool)
    search = np.array([[5.0, -np.inf, np.inf, 1 / rho], [-5.0, -np.inf, np.inf, 1 / rho]])
    for _ in range(200):
        sums = soften_rows(scores, side, centre, upper, rho, search[:, 0], mass, is_free)
        if not move_levels(search, sums, rho, 1e-14):
            break
    np.testing.assert_allclose(np.bincount(side, mass, 2), 1.0, rtol=1e-12 + 1e-16 * rho)  # of a level, times rho


def test_the_least_sum_and_the_levels_of_sorted_scores():
    _, side, upper, scores, _ = few_rows(2)
    least, levels = 0.0, []
    for c in (0, 1):
        order = np.flatnonzero(side == c)[np.argsort(scores[side == c])]
        through = np.minimum(np.cumsum(upper[order]), 1.0)
        least += np.diff(through, prepend=0.0) @ scores[order]
        levels.append(scores[order][(through < 1).sum()])
    assert lowest_sum(scores, side, upper) == pytest.approx(least)
    np.testing.assert_array_equal(class_levels(scores, upper, side, 1.0), levels)


@pytest.mark.parametrize("shape", [(40, 8), (40, 100)])
def test_steps_by_inner_products_are_those_on_rows(shape):
    """The same masses, levels and direction, step by step."""
    rng, side, _, _, _ = few_rows(3)
    rows = rng.normal(size=shape) * np.where(side == 0, 1.0, -1.0)[:, None] + 0.1
    totals = np.bincount(side, minlength=2)
    upper, centre = 3.0 / totals[side], 1.0 / totals[side]
    for n_steps in range(1, 6):
        found = []
        for solver, around, start in ((solve_few, rows, centre @ rows), (solve_by_products, rows @ rows.T, centre)):
            state = [centre.copy(), start.copy(), np.zeros(2)]
            mass, is_free = np.empty(40), np.empty(40, dtype=np.bool_)
            rules = (4.0, 1e30, 2, 8)
            ended = solver(around, side, upper, *state, 0.1, 0, rules, 1e-9, 0.0, n_steps, mass, is_free)
            w = state[1] if solver is solve_few else state[1] @ rows
            found.append(np.concatenate([mass, is_free, w, state[0], state[2], ended]))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-7, atol=1e-9)


def test_a_sweep_by_products_that_does_not_reach_the_gap_goes_on_with_rows():
    """Inner products of rows far away from each other by their norms are too coarse for a tight tolerance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 90)) * 10.0 ** np.linspace(-4, 4, 90)
    y = np.where(np.arange(30) < 12, 1.0, -1.0)
    result = solve(HullMultipliers(tol=1e-9), NuMargin(0.3), X, y, tol=1e-9, max_iter=400)[0]
    assert result.stop_reason == "gap"
