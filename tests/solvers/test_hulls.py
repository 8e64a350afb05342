"""The shared parts of the hull solvers, each against the same formula written plainly."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import hull_distance, intercept_interval, margin_of, nu_cap
from tests.problems_at_hand import PaperNu, on_ranks, overlapping, part_of, separable
from widemargin.problems.polytope import HardMargin, NuMargin, largest_nu
from widemargin.problems.protocol import Certificate
from widemargin.solvers._hulls import Best, Hulls

PROBLEMS = [HardMargin(), PaperNu(), NuMargin(0.2)]
NAMES = ["hard", "nu-auto", "nu-0.2"]


def hulls_of(problem, X, y, weight=None, *, ranks=1, use):
    """``use(hulls, rows)`` on every rank; rows are the numbers of the rank's rows."""
    weight = np.ones(len(y)) if weight is None else weight

    def task(comm):
        rows = np.arange(len(y))[len(y) * comm.rank // ranks : len(y) * (comm.rank + 1) // ranks]
        return use(Hulls.of(problem, part_of(X, y, weight, comm.rank, ranks), comm), rows)

    return on_ranks(ranks, task)


def plain_level(values, y, upper):
    """Per class the smallest value up to which the bounds add up to one."""
    levels = []
    for sign in (1.0, -1.0):
        mine = np.flatnonzero(y == sign)
        order = mine[np.argsort(values[mine], kind="stable")]
        reached = np.cumsum(np.minimum(upper[order], 1.0))
        levels.append(values[order[np.flatnonzero(reached >= 1 - 1e-9)[0]]])
    return np.array(levels)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_level_is_that_of_sorting(problem, ranks, seed):
    X, y = overlapping(seed)
    values = np.random.default_rng(seed).normal(size=len(y)) ** 3
    levels = hulls_of(problem, X, y, ranks=ranks, use=lambda hulls, rows: hulls.level(values[rows]))
    upper = problem.cap((y > 0).sum(), (y < 0).sum()) * np.ones(len(y))
    for level in levels:
        np.testing.assert_array_equal(level, plain_level(values, y, upper))


@pytest.mark.parametrize("values", [np.zeros(50), np.repeat([1.0, 2.0], 25), 1e300 * np.arange(50.0) / 50])
def test_level_with_ties_and_with_extreme_values(values):
    X, y = overlapping(0)
    upper = PaperNu().cap((y > 0).sum(), (y < 0).sum()) * np.ones(len(y))
    level = hulls_of(PaperNu(), X, y, use=lambda hulls, rows: hulls.level(values))[0]
    np.testing.assert_array_equal(level, plain_level(values, y, upper))


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_margin_is_that_of_sorting(problem, ranks, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, len(y))
    w = np.random.default_rng(seed).normal(size=4)
    cap = problem.cap(weight[y > 0].sum(), weight[y < 0].sum())
    upper = np.minimum(cap * weight, 2.0)
    margins = hulls_of(problem, X, y, weight, ranks=ranks, use=lambda hulls, rows: hulls.margin(w))
    assert margins == pytest.approx([margin_of(X - X.mean(axis=0), y, y, upper, w)] * ranks, rel=1e-9, abs=1e-9)


def test_no_direction_has_no_margin():
    X, y = separable(0)
    assert hulls_of(HardMargin(), X, y, use=lambda hulls, rows: hulls.margin(np.zeros(4))) == [-np.inf]


def test_a_class_without_mass_has_no_point():
    X, y = overlapping(0)
    mass = np.where(y > 0, 1.0 / np.count_nonzero(y > 0), 0.0)
    point = hulls_of(HardMargin(), X, y, use=lambda hulls, _: hulls.rows.accurate_point(mass, hulls.side))[0]
    assert np.isfinite(point.z).all()
    assert (point.error > 1e50).all()


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("gamma", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("start", [0.0, 1e4, -1e4])
def test_softened_masses_are_feasible_and_optimal_wherever_the_search_begins(problem, gamma, start, seed):
    """Checked by the KKT conditions: log(mass / centre) + score / gamma is one level per class where a mass is free."""
    X, y = overlapping(seed)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=len(y))
    log_centre = -np.log(np.where(y > 0, (y > 0).sum(), (y < 0).sum())) + 0.1 * rng.normal(size=len(y))

    def use(hulls, rows):
        return hulls.upper, hulls.soften(scores, log_centre, gamma, np.full(2, start))

    upper, soft = hulls_of(problem, X, y, use=use)[0]
    for c, sign in enumerate((1.0, -1.0)):
        mine = y == sign
        assert soft.mass[mine].sum() == pytest.approx(1.0, abs=1e-9)
        assert np.all(soft.mass[mine] <= upper[mine] * (1 + 1e-12))
        slope = scores[mine] + gamma * (np.log(np.maximum(soft.mass[mine], 1e-300)) - log_centre[mine])
        free = ~soft.is_capped[mine] & (soft.mass[mine] > 1e-50)  # less than that is none
        np.testing.assert_allclose(slope[free], soft.level[c], atol=1e-8 * max(1.0, gamma))
        assert np.all(slope[soft.is_capped[mine]] <= soft.level[c] + 1e-8 * max(1.0, gamma))
    mass = np.maximum(soft.mass, 1e-300)
    value = soft.mass @ scores + gamma * (soft.mass @ (np.log(mass) - log_centre))
    assert soft.value == pytest.approx(value, rel=1e-8, abs=1e-8 * max(1.0, gamma))


@pytest.mark.parametrize("spread", [1.0, 30.0, 100.0, 200.0])
@pytest.mark.parametrize("shift", [0.0, -300.0])
def test_scale_to_one_gives_a_sum_of_one_or_says_that_it_did_not(spread, shift, seed):
    X, y = overlapping(seed)
    weights = np.exp(shift + spread * np.random.default_rng(seed).normal(size=len(y)))

    def use(hulls, rows):
        scale = hulls.scale_to_one(weights)
        return None if scale is None else hulls.per_class(np.minimum(weights * scale[hulls.side], hulls.upper))

    sums = hulls_of(PaperNu(), X, y, use=use)[0]
    assert sums is None or sums == pytest.approx([1.0, 1.0], abs=1e-9)


@pytest.mark.parametrize(
    ("distance", "margin", "n_stalled", "verdict"),
    [
        (1e-13, 0.0, 0, "overlap"),
        (1e-13, -1.0, 0, "overlap"),
        (1e-13, 1e-15, 0, None),  # a tiny margin is a margin
        (1e-13, 1e-15, 50, "precision"),
        (1e-10, -1.0, 50, None),  # not yet known, and more than rounding
        (0.5, -1.0, 50, None),
    ],
)
def test_the_verdict_needs_no_margin_and_a_proof_of_no_distance(distance, margin, n_stalled, verdict):
    """The rows reach about 5 from their mean."""
    z = np.array([distance, 0.0, 0.0, 0.0])
    best = Best(Certificate(distance, margin), np.ones(4), z, n_stalled=n_stalled)
    assert hulls_of(HardMargin(), *separable(0), use=lambda hulls, rows: hulls.stop_reason(best)) == [verdict]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("nu", [0.33, 0.4, 0.6, 0.8])
def test_the_intercept_of_nu_lies_midway_between_the_levels(nu, ranks, seed):
    X, y = overlapping(seed, n=50, shift=2.0)
    w = hull_distance(X, y, cap=nu_cap(y, nu)).direction
    for model in hulls_of(NuMargin(nu), X, y, ranks=ranks, use=lambda hulls, rows: hulls.separator(w)):
        low, high = intercept_interval(X, y, model.coef, nu)
        assert model.intercept == pytest.approx((low + high) / 2, rel=1e-9, abs=1e-9)
        assert model.report == pytest.approx({"cap": nu_cap(y, nu), "nu": nu})


def test_margin_rows_of_the_hard_margin_score_plus_and_minus_one(seed):
    X, y = separable(seed)
    w = hull_distance(X, y).direction
    model = hulls_of(HardMargin(), X, y, use=lambda hulls, rows: hulls.separator(w))[0]
    scores = X @ model.coef + model.intercept
    assert scores[y > 0].min() == pytest.approx(1.0, rel=1e-9)
    assert scores[y < 0].max() == pytest.approx(-1.0, rel=1e-9)
    assert model.report == {}


def test_the_separator_of_nu_at_its_bound_is_finite():
    X, y = overlapping(0)
    nu = largest_nu((y > 0).sum(), (y < 0).sum())
    w = hull_distance(X, y, cap=nu_cap(y, nu)).direction
    model = hulls_of(NuMargin(nu), X, y, use=lambda hulls, rows: hulls.separator(w))[0]
    assert np.isfinite(model.coef).all()
    assert np.isfinite(model.intercept)


@pytest.mark.parametrize("ranks", [1, 3])
def test_where_the_hulls_meet_the_threshold_misplaces_the_least_rows(ranks):
    values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    y = np.array([-1, -1, -1, 1, -1, -1, 1, 1, -1, 1.0])
    for model in hulls_of(HardMargin(), values[:, None], y, ranks=ranks, use=lambda h, rows: h.separator(np.ones(1))):
        assert np.linalg.norm(model.coef) == pytest.approx(1.0)
        assert 5 < -model.intercept / model.coef[0] < 6  # one row of each class is wrong; elsewhere more are


def test_overlap_with_no_direction_at_all_is_still_a_finite_model():
    X, y = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    model = hulls_of(HardMargin(), X, y, use=lambda hulls, rows: hulls.separator(np.zeros(2)))[0]
    assert not model.coef.any()
    assert np.isfinite(model.intercept)


def test_radius_and_mean_do_not_depend_on_ranks():
    X, y = separable(0, offset=1e3)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    mean = weight @ X / weight.sum()
    for radius, its_mean in hulls_of(HardMargin(), X, y, weight, ranks=3, use=lambda h, rows: (h.radius, h.mean)):
        np.testing.assert_allclose(its_mean, mean, rtol=1e-12)
        assert radius == pytest.approx(np.linalg.norm(X - mean, axis=1).max(), rel=1e-6)


def test_rows_of_equal_value_have_radius_zero_and_not_nan():
    X, y = np.full((6, 2), 1e3 / 3), np.array([1, 1, 1, -1, -1, -1.0])
    radius = hulls_of(HardMargin(), X, y, use=lambda hulls, rows: hulls.radius)[0]
    assert radius == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("unit", [2.0**-990, 2.0**-520, 2.0**-101, 2.0**260, 2.0**520, 2.0**990])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_bounds_are_the_same_to_the_bit_in_units_that_are_powers_of_two(problem, ranks, unit):
    """Rows out of range are brought into it by such a power, which rounds nothing."""
    X, y = separable(0)
    w = np.random.default_rng(0).normal(size=4)

    def bounds(hulls, rows):
        mass = np.exp(hulls.uniform_log_mass())
        best = hulls.wider(hulls.closer(Best.none(w), mass, hulls.combine(mass)), w, hulls.scores(w))
        return hulls.in_units_of_rows(best.certificate)

    power = np.exp2(np.floor(np.log2(np.abs(X).max())))  # so that both are in range, or are brought there
    plain = hulls_of(problem, X / power, y, ranks=ranks, use=bounds)
    scaled = hulls_of(problem, X / power * unit, y, ranks=ranks, use=bounds)
    assert [tuple(np.divide(each, unit)) for each in scaled] == [tuple(each) for each in plain]


@pytest.mark.parametrize("unit", [1e-305, 1e304])
@pytest.mark.parametrize("ranks", [1, 2])
def test_rows_beyond_the_range_of_coefficients_are_refused_on_all_ranks(ranks, unit):
    X, y = separable(0)
    with pytest.raises(ValueError, match="scale the features"):
        hulls_of(PaperNu(), X * unit, y, ranks=ranks, use=lambda hulls, rows: None)
