"""Adjusted p-values against their definitions, and what they promise of independent tests."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.problems.multiple_tests import benjamini_hochberg, holm


def rejected_by_steps(p_values, level, *, is_holm):
    """The step-down rule of Holm and the step-up rule of Benjamini and Hochberg, as they are printed."""
    order, n = np.argsort(p_values, kind="stable"), len(p_values)
    ordered, rejected = p_values[order], np.zeros(n, dtype=bool)
    if is_holm:
        over = np.flatnonzero(ordered > level / np.arange(n, 0, -1))
        last = over[0] if len(over) else n
    else:
        under = np.flatnonzero(ordered <= level * np.arange(1, n + 1) / n)
        last = under[-1] + 1 if len(under) else 0
    rejected[order[:last]] = True
    return rejected


@pytest.mark.parametrize("level", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_at_most_the_level_is_what_the_rule_rejects(seed, level):
    rng = np.random.default_rng(seed)
    p_values = rng.uniform(size=rng.integers(1, 60)) ** rng.integers(1, 8)
    p_values[rng.uniform(size=len(p_values)) < 0.2] = 1.0  # of features that the data say nothing of
    for adjust, is_holm in ((holm, True), (benjamini_hochberg, False)):
        found = adjust(p_values)
        np.testing.assert_array_equal(found <= level, rejected_by_steps(p_values, level, is_holm=is_holm))
        assert (found >= p_values).all()
        assert (found <= 1).all()


def test_one_p_value_is_itself_and_equal_ones_stay_equal():
    assert holm(np.array([0.03])).tolist() == benjamini_hochberg(np.array([0.03])).tolist() == [0.03]
    assert holm(np.full(4, 0.01)).tolist() == [0.04] * 4
    assert benjamini_hochberg(np.full(4, 0.01)).tolist() == [0.01] * 4


def test_false_rejections_are_as_rare_as_promised_and_without_adjustment_they_are_not():
    """10 effects among 100 independent tests, 2,000 times: errors of the estimated rates are below .01."""
    rng, level, n = np.random.default_rng(0), 0.2, 2000
    p_values = rng.uniform(size=(n, 100))
    p_values[:, :10] **= 8
    rates = {}
    for name, adjust in (("holm", holm), ("bh", benjamini_hochberg), ("none", lambda p: p)):
        found = np.array([adjust(each) <= level for each in p_values])
        wrong = found[:, 10:].sum(axis=1)
        rates[name] = np.mean(wrong / np.maximum(1, found.sum(axis=1))), np.mean(wrong > 0)
    assert rates["holm"][1] <= level + 0.02
    assert level * 0.9 - 0.02 < rates["bh"][0] <= level * 0.9 + 0.02  # by its theorem exactly .9 of the level
    assert rates["bh"][1] > rates["holm"][1] + 0.1
    assert rates["none"][0] > 0.5
