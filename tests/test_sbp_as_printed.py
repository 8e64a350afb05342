"""The batch perceptron as printed: what does not end, what goes the wrong way, and what turns labels around."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import sbp_as_printed as printed

from tests.problems_at_hand import overlapping
from widemargin.problems.slack_constrained import SlackConstrained

CASES = 300


def outcome(find, right):
    """right, wrong or endless."""
    try:
        found = np.ravel(find())[0]
    except printed.DoesNotEnd:
        return "endless"
    return "right" if np.isfinite(found) and abs(found - right) <= 1e-9 * max(1.0, abs(right)) else "wrong"


def levels(pivot):
    """Algorithm 2 on random cases: outcomes, and those where water covers all rows."""
    rng, found, covered = np.random.default_rng(0), Counter(), Counter()
    for _ in range(CASES):
        n = int(rng.integers(2, 41))
        c, volume = rng.normal(size=n), float(rng.exponential(scale=n))
        right = printed.level(c, volume)
        kind = outcome(partial(printed.find_gamma, c, volume, printed.PIVOTS[pivot], rng), right)
        (covered if right > c.max() else found)[kind] += 1
    return found, covered


def cover(y, c, volume):
    """How many rows of each class water covers."""
    plus, minus = np.sort(c[y > 0]), np.sort(c[y < 0])
    n = min(len(plus), len(minus))
    return int(np.argmin((volume + np.cumsum(plus[:n]) + np.cumsum(minus[:n])) / np.arange(1, n + 1))) + 1


def levels_and_biases(pivot, *, is_mended):
    """Algorithm 3 on random cases: outcomes, and those where water covers all of the smaller class."""
    rng, found, covered = np.random.default_rng(2), Counter(), Counter()
    for _ in range(CASES):
        n, m = (int(k) for k in rng.integers(1, 20, size=2))
        y = np.repeat([1.0, -1.0], [n, m])
        c, volume = rng.normal(size=n + m), float(rng.exponential())
        right = printed.level_and_bias(y, c, volume)[0]
        run = partial(printed.find_gamma_and_bias, y, c, volume, printed.PIVOTS[pivot], rng, is_mended=is_mended)
        (covered if cover(y, c, volume) == min(n, m) else found)[outcome(run, right)] += 1
    return found, covered


def test_the_closed_forms_are_the_levels_of_the_library():
    rng = np.random.default_rng(1)
    for _ in range(100):
        n, slack = int(rng.integers(2, 30)), float(rng.exponential())
        c, y = rng.normal(size=n), np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
        one = np.ones(n)
        water = SlackConstrained(slack=slack, fit_intercept=False).water_level(c, y, one, 1.0)
        assert printed.level(c, n * slack) == pytest.approx(water.level)
        water = SlackConstrained(slack=slack).water_level(c, y, one, 1.0)
        gamma, bias = printed.level_and_bias(y, c, n * slack)
        assert gamma == pytest.approx(water.level)
        spilt = np.maximum(0.0, gamma - c - y * bias).sum()
        assert spilt == pytest.approx(n * slack)


@pytest.mark.parametrize("pivot", ["first", "lower median"])
def test_algorithm_2_loops_where_its_pivot_is_the_lowest(pivot):
    found, covered = levels(pivot)
    assert found["endless"] + covered["endless"] > CASES / 4


@pytest.mark.parametrize("pivot", ["upper median", "random"])
def test_algorithm_2_is_right_with_other_pivots_unless_water_covers_all(pivot):
    found, covered = levels(pivot)
    assert found["right"] > 50
    assert covered.total() > 50
    assert covered["right"] == 0
    if pivot == "upper median":  # never the lowest of two or more
        assert set(found) == {"right"}


@pytest.mark.parametrize("pivot", sorted(printed.PIVOTS))
def test_algorithm_3_goes_the_wrong_way(pivot):
    found, covered = levels_and_biases(pivot, is_mended=False)
    assert found["right"] == covered["right"] == 0
    if pivot == "upper median":  # mended it is right, but where water covers the smaller class: so it is that
        found, covered = levels_and_biases(pivot, is_mended=True)
        assert set(found) == {"right"}
        assert found.total() > CASES / 2
        assert set(covered) == {"wrong"}


def test_the_bound_on_the_rise_of_a_basin_holds_for_one_dry_row_too():
    """Lines 40 and 41 have ``lower < n``: then what is poured is not the volume, even where the cover is right."""
    rng, spilt = np.random.default_rng(3), Counter()
    for _ in range(CASES):
        n, m = (int(k) for k in rng.integers(1, 9, size=2))
        plus, minus = np.sort(rng.normal(size=n)), np.sort(rng.normal(size=m))
        y, volume = np.repeat([1.0, -1.0], [n, m]), float(rng.exponential())
        c = np.concatenate([plus, minus])
        gamma = printed.level_and_bias(y, c, volume)[0]
        k = cover(y, c, volume)
        rise = 2 * gamma - plus[k - 1] - minus[k - 1]
        for last in ("<", "<="):
            rises = [
                min(rise, side[k] - side[k - 1]) if (k + 1 < len(side) if last == "<" else k + 1 <= len(side)) else rise
                for side in (plus, minus)
            ]
            heights = [
                plus[k - 1] + 0.5 * (rise + rises[0] - rises[1]),
                minus[k - 1] + 0.5 * (rise - rises[0] + rises[1]),
            ]
            poured = sum(np.maximum(0, level - side).sum() for level, side in zip(heights, (plus, minus), strict=True))
            spilt[last] += bool(abs(poured - volume) > 1e-9)
    assert spilt["<="] == 0
    assert spilt["<"] > 0


@pytest.mark.parametrize("pivot", sorted(printed.PIVOTS))
def test_algorithm_1_with_its_levels_as_printed(pivot):
    """Algorithm 2 serves it wherever it ends; with Algorithm 3 not one step can be made."""
    X, y = overlapping(3, n=120)
    K = rbf_kernel(X, gamma=0.5)
    run = partial(printed.optimize, K, y, 300, 0.05, pivot=printed.PIVOTS[pivot])
    with pytest.raises((printed.DoesNotEnd, printed.NothingToDraw)):
        printed.optimize(K, y, 1, 0.05, np.random.default_rng(0), has_bias=True, pivot=printed.PIVOTS[pivot])
    if pivot in ("first", "lower median"):
        with pytest.raises(printed.DoesNotEnd):
            run(np.random.default_rng(0), has_bias=False)
        return
    model = run(np.random.default_rng(0), has_bias=False)
    closed = printed.optimize(K, y, 300, 0.05, np.random.default_rng(0), has_bias=False)
    assert model.gamma == pytest.approx(closed.gamma, rel=0.1)
    assert np.mean(np.sign(K @ (y * model.mean)) != y) < 0.1


def test_the_sum_of_alpha_and_c_is_the_square_of_the_length():
    """Section 3.3 has ||w|| = sum alpha_i c_i."""
    X, y = overlapping(3, n=60)
    K = rbf_kernel(X, gamma=0.5)
    alpha = printed.optimize(K, y, 5, 0.05, np.random.default_rng(0), has_bias=False).mean
    squared = (alpha * y) @ K @ (alpha * y)
    assert alpha @ (y * (K @ (alpha * y))) == pytest.approx(squared)
    assert squared < 0.95 * np.sqrt(squared)


@pytest.mark.parametrize("pivot", ["upper median", "random"])
def test_the_level_is_found_in_linear_time(monkeypatch, pivot):
    """Appendix B: what is divided halves each time with a median, so that 2 n entries are divided in all."""
    divided, plain = [], printed.partition

    def counted(C, lower, upper, pivot, rng):
        divided[-1] += upper - lower + 1
        return plain(C, lower, upper, pivot, rng)

    monkeypatch.setattr(printed, "partition", counted)
    rng, shares = np.random.default_rng(0), []
    for n in (100, 1_000, 10_000):
        for _ in range(30):
            divided.append(0)
            c = rng.normal(size=n)
            printed.find_gamma(c, float(rng.uniform(0.05, 0.5)) * n, printed.PIVOTS[pivot], rng)
        shares.append(np.mean(divided[-30:]) / n)
    assert max(shares) < (2.2 if pivot == "upper median" else 4)
    assert shares[-1] < 1.5 * shares[0]


@pytest.mark.parametrize("has_bias", [False, True])
def test_algorithm_1_learns_and_turns_labels_around_while_gamma_is_negative(has_bias):
    X, y = overlapping(3, n=120)
    K = rbf_kernel(X, gamma=0.5)
    seen = Counter()
    for T, nu in ((2, 1e-3), (3_000, 0.05)):
        for seed in range(3):
            model = printed.optimize(K, y, T, nu, np.random.default_rng(seed), has_bias=has_bias)
            errors = [
                np.mean(np.sign(K @ (y * alpha) + bias) != y)
                for alpha, bias in ((model.mean, model.bias), (model.alpha, model.bias / model.gamma))
            ]
            seen[model.gamma < 0] += 1
            if model.gamma < 0:
                assert errors[1] == pytest.approx(1 - errors[0])
            else:
                assert errors[0] == pytest.approx(errors[1])
                assert errors[0] < 0.3
    assert seen[True] >= 2
    assert seen[False] >= 2


def n_refused(K, y, nu, has_bias, is_strict):
    """Of twenty first steps, those that have nothing to draw."""
    refused = 0
    for seed in range(20):
        try:
            printed.optimize(K, y, 1, nu, np.random.default_rng(seed), has_bias=has_bias, is_strict=is_strict)
        except printed.NothingToDraw:
            refused += 1
    return refused


def test_line_6_has_nothing_to_draw_without_slack_or_from_the_larger_class():
    X, y = overlapping(3, n=60)
    kept = np.append(np.flatnonzero(y < 0), np.flatnonzero(y > 0)[:10])
    K, y = rbf_kernel(X[kept]), y[kept]
    assert n_refused(K, y, 0.0, has_bias=False, is_strict=True) == 20
    assert 3 <= n_refused(K, y, 0.05, has_bias=True, is_strict=True) <= 17  # the larger class is at the level
    for nu, has_bias in ((0.0, False), (0.05, True)):
        assert n_refused(K, y, nu, has_bias, is_strict=False) == 0
