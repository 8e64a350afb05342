"""Rows that travel arrive as they were."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.kernels.points import Points


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.fixture
def points(storage, dtype):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((6, 4)) < 0.5, 0.0, rng.normal(size=(6, 4))).astype(dtype)
    X[2] = 0.0
    return Points(storage(X), np.array([10, 11, 13, 17, 20, 21]))


def assert_same(ours, theirs):
    np.testing.assert_array_equal(dense(ours.X), dense(theirs.X))
    np.testing.assert_array_equal(ours.numbers, theirs.numbers)
    assert ours.X.dtype == theirs.X.dtype
    assert sp.issparse(ours.X) == sp.issparse(theirs.X)


def test_assert_same_fails_on_another_row_and_on_another_type(points):
    with pytest.raises(AssertionError):
        assert_same(points, points[::-1])
    with pytest.raises(AssertionError):
        assert_same(points, Points(points.X.astype(np.longdouble), points.numbers))


def test_what_is_packed_is_flat_and_comes_back_whole(points):
    arrays = points.pack()
    assert all(each.ndim == 1 for each in arrays)
    assert_same(points[:0].unpack(arrays), points)


def test_packs_put_one_after_the_other_are_the_points_joined(points):
    first, second = points[:2], points[2:]
    together = [np.concatenate(pair) for pair in zip(first.pack(), second.pack(), strict=True)]
    assert_same(points.unpack(together), points)
    assert_same(Points.joined([first, second]), points)


def test_no_points_travel_too(points):
    none = points[np.empty(0, dtype=np.intp)]
    assert len(none) == 0
    assert_same(points.unpack(none.pack()), none)
    assert_same(Points.joined([none, points, none]), points)


def test_chosen_points_keep_their_numbers(points):
    some = points[np.array([4, 1])]
    np.testing.assert_array_equal(some.numbers, [20, 11])
    np.testing.assert_array_equal(dense(some.X), dense(points.X)[[4, 1]])
