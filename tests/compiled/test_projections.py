from __future__ import annotations

import numpy as np

from widemargin.compiled.projections import capped_sums


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
