from __future__ import annotations

import numpy as np

from widemargin.compiled.projections import capped_sums, class_histogram, drawn_up_to


def test_sums_of_both_classes_are_those_of_plain_selections(seed):
    rng = np.random.default_rng(seed)
    weights, upper = rng.random(50), rng.random(50)
    y = rng.choice([-1.0, 1.0], 50)
    scales = {1.0: 0.7, -1.0: 1.9}
    expected = []
    for sign, scale in scales.items():
        w, u = weights[y == sign], upper[y == sign]
        is_free = w * scale < u
        expected += [w.sum(), w[is_free].sum(), u[~is_free].sum()]
    np.testing.assert_allclose(capped_sums(weights, upper, y, scales[1.0], scales[-1.0]), expected, rtol=1e-12)


def test_without_bounds_every_weight_is_free():
    weights, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 1.0])
    sums = capped_sums(weights, np.full(3, np.inf), y, 1.0, 1.0)
    np.testing.assert_array_equal(sums, [4.0, 4.0, 0.0, 2.0, 2.0, 0.0])


def test_a_class_without_rows_sums_to_nothing():
    sums = capped_sums(np.ones(2), np.ones(2), np.ones(2), 1.0, 1.0)
    np.testing.assert_array_equal(sums[3:], [0.0, 0.0, 0.0])


def test_what_is_drawn_up_to_a_level_and_what_comes_next(seed):
    rng = np.random.default_rng(seed)
    values, upper, side = rng.integers(0, 9, 50) / 2, rng.random(50), rng.integers(0, 2, 50)
    level = np.array([1.5, 2.0])
    drawn, beyond = drawn_up_to(values, upper, side, level)
    for c in (0, 1):
        mine = side == c
        np.testing.assert_allclose(drawn[c], upper[mine & (values <= level[c])].sum(), rtol=1e-12)
        assert beyond[c] == values[mine & (values > level[c])].min()
    assert (drawn_up_to(values, upper, side, np.array([9.0, 9.0]))[1] == np.inf).all()


def test_histograms_of_both_classes(seed):
    rng = np.random.default_rng(seed)
    values, amounts, side = rng.random(60), rng.random(60), rng.integers(0, 2, 60)
    bins = np.empty(60, np.int16)
    found = class_histogram(values, amounts, side, np.zeros(2), np.full(2, 0.1), 10, bins)
    np.testing.assert_array_equal(bins, np.minimum((values / 0.1).astype(int), 9))
    for c in (0, 1):
        np.testing.assert_allclose(found[c], np.bincount(bins[side == c], amounts[side == c], 10), rtol=1e-12)
