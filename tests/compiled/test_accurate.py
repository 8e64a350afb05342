"""Compensated passes, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from widemargin.data.shard import Shard
from widemargin.rounding import UNIT, gamma


def shard_of(X, storage):
    return Shard(storage(X), np.ones(len(X)), np.ones(len(X)))


def exact_dot(v, w):
    return sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(v, w, strict=True))


@pytest.fixture
def rows(seed, dtype):
    """Rows whose products with ``w`` cancel but for their last digits."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(9, 4)) * 10.0 ** rng.integers(-8, 9, (9, 4))
    X = np.hstack([half, -half, rng.normal(size=(9, 3))]).astype(dtype)
    w = rng.normal(size=4)
    return X, np.concatenate([w, w * (1 + rng.integers(-3, 4, 4) * 2.0**-52), rng.normal(size=3)])


def test_scores_are_rounded_once(rows, storage):
    X, w = rows
    shift = 0.75
    for row, score in zip(X, shard_of(X, storage).accurate_scores(w, shift), strict=True):
        exact = exact_dot(row, w) - Fraction(shift)
        size = sum(abs(Fraction(float(a)) * Fraction(float(b))) for a, b in zip(row, w, strict=True)) + 1
        assert abs(Fraction(float(score)) - exact) <= Fraction(UNIT) * abs(exact) + Fraction(gamma(13)) ** 2 * size


def test_a_plain_pass_is_not_as_exact():
    """So that the test above could fail."""
    X, w = np.array([[1e16, 1.0, -1e16]]), np.ones(3)
    shard = shard_of(X, np.asarray)
    assert shard.accurate_scores(w, 0.0)[0] == 1.0
    assert np.array([1e16, 1.0]).sum() - 1e16 != 1.0


def test_sums_in_two_parts_are_those_of_twice_the_precision(rows, storage, seed):
    X, _ = rows
    mass, side = np.random.default_rng(seed).uniform(size=9), np.array([0, 1, 0, 1, 1, 0, 0, 0, 1])
    mass[2] = 0.0
    high, low = shard_of(X, storage).accurate_sums(mass, side)
    for c in (0, 1):
        for j in range(X.shape[1]):
            mine = zip(mass[side == c], X[side == c, j], strict=True)
            terms = [Fraction(float(m)) * Fraction(float(x)) for m, x in mine]
            error = abs(Fraction(float(high[c, j])) + Fraction(float(low[c, j])) - sum(terms))
            assert error <= Fraction(gamma(12)) ** 2 * sum(map(abs, terms))


def test_extremes_of_columns(rows, storage):
    X, _ = rows
    X = np.where(np.abs(X) < 1e-3, 0.0, X).astype(X.dtype)
    low, high = shard_of(X, storage).column_extremes()
    np.testing.assert_array_equal(low, X.min(axis=0))
    np.testing.assert_array_equal(high, X.max(axis=0))


def test_distances_to_a_centre(storage, seed, dtype):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((9, 5)) < 0.5, 0.0, rng.normal(size=(9, 5))).astype(dtype)
    factor, centre = rng.uniform(0.5, 2.0, 5), rng.normal(size=5)
    found = shard_of(X, storage).squared_distances(factor, centre)
    np.testing.assert_allclose(found, ((factor * (X - centre)) ** 2).sum(axis=1), rtol=1e-12)
