from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data.shard import Shard


@pytest.fixture
def rows(seed, dtype):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(23, 5))
    X[rng.random(X.shape) < 0.3] = 0.0
    return X.astype(dtype)


@pytest.fixture(params=["whole", "pieces"])
def shard(request, rows, storage):
    """Rows in one block or in several, of which one is empty."""
    rng = np.random.default_rng(9)
    X = (
        storage(rows)
        if request.param == "whole"
        else [storage(rows[a:b]) for a, b in ((0, 4), (4, 4), (4, 17), (17, 23))]
    )
    return Shard(X, rng.choice([-1.0, 1.0], 23), rng.uniform(0.5, 2.0, 23))


SOME = np.array([0, 3, 4, 16, 17, 22])
MASS = np.array([1.0, -2.0, 0.5, 0.0, 3.0, 1.5])


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_sizes(shard, dtype):
    assert (shard.n_rows, shard.n_features) == (23, 5)
    assert shard.dtype == dtype


def test_passes_over_all_rows(shard, rows):
    exact = rows.astype(np.float64)
    w, mass = np.arange(5.0), np.linspace(-1, 1, 23)
    near(shard.scores(w), exact @ w)
    near(shard.combine(mass), exact.T @ mass)
    assert shard.scores(w).dtype == np.float64


def test_lengths_of_rows_are_those_of_float64(shard, rows):
    near(shard.squared_norms(), (rows.astype(np.float64) ** 2).sum(axis=1))


def test_passes_over_some_rows(shard, rows):
    taken = rows[SOME].astype(np.float64)
    v = np.arange(5.0)
    near(shard.combine_rows(SOME, MASS), taken.T @ MASS)
    near(shard.curvature(SOME, MASS, v), taken.T @ (MASS * (taken @ v)))
    near(shard.second_moment(SOME, MASS), (taken * MASS[:, None]).T @ taken)
    near(shard.dense_rows(SOME), taken)


def test_passes_over_no_rows(shard):
    none, nothing = np.empty(0, dtype=np.intp), np.empty(0)
    assert not shard.combine_rows(none, nothing).any()
    assert not shard.curvature(none, nothing, np.ones(5)).any()
    assert not shard.second_moment(none, nothing).any()
    assert shard.dense_rows(none).shape == (0, 5)
    assert shard.take(none).n_rows == 0
    assert not shard.take(none).combine(nothing).any()


def test_take_keeps_labels_and_weights_with_their_rows(shard, rows):
    part = shard.take(SOME)
    near(part.dense_rows(np.arange(len(SOME))), rows[SOME])
    np.testing.assert_array_equal(part.y, shard.y[SOME])
    np.testing.assert_array_equal(part.weight, shard.weight[SOME])


def test_two_of_three_classes(shard, rows):
    classes = np.arange(23) % 3
    three = Shard(shard.X, classes.astype(np.float64), shard.weight)
    pair = three.between(2, 0)
    inside = np.flatnonzero(classes != 1)
    near(pair.dense_rows(np.arange(pair.n_rows)), rows[inside])
    np.testing.assert_array_equal(pair.y, np.where(classes[inside] == 2, 1.0, -1.0))
    np.testing.assert_array_equal(pair.weight, shard.weight[inside])


def test_two_of_two_classes_are_not_copied(shard):
    codes = (np.arange(23) % 2).astype(np.float64)
    pair = Shard(shard.X, codes, shard.weight).between(1, 0)
    assert pair.X is shard.X
    np.testing.assert_array_equal(pair.y, 2 * codes - 1)


def test_the_second_moment_of_many_rows_is_summed_in_blocks(monkeypatch):
    monkeypatch.setattr("widemargin.data.shard._BLOCK_BYTES", 64)
    X = np.random.default_rng(0).normal(size=(50, 3))
    shard = Shard(X, np.ones(50), np.ones(50))
    near(shard.second_moment(np.arange(50), np.ones(50)), X.T @ X)


def test_sparse_or_not():
    X = np.eye(3)
    assert not Shard(X, np.ones(3), np.ones(3)).is_sparse
    assert Shard(sp.csr_matrix(X), np.ones(3), np.ones(3)).is_sparse
