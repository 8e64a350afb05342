"""Equal rows of a class: one stands for all, and searches find the same."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.model_selection import GroupKFold

from widemargin import KernelSVCCV
from widemargin.data.shard import Shard
from widemargin.strategies import copies
from widemargin.strategies.copies import without_copies

STORAGES = [np.asarray, sp.csr_matrix]


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.fixture(scope="module")
def repeated():
    """Rows of which about half are there several times, some with both labels."""
    X, y = make_classification(300, 3, n_informative=3, n_redundant=0, flip_y=0.1, random_state=0)
    return np.round(X), y


@pytest.mark.parametrize("storage", STORAGES, ids=["dense", "sparse"])
def test_one_row_stands_for_all_that_are_equal(repeated, storage):
    X, y = repeated
    weight = np.arange(len(y)) % 3 + 0.5
    shard, found = without_copies(Shard(storage(X), y.astype(float), weight))
    assert shard.n_rows == len(np.unique(np.column_stack([X, y]), axis=0)) < len(y)
    np.testing.assert_array_equal(dense(shard.X)[found.places], X)
    np.testing.assert_array_equal(shard.y[found.places], y)
    assert shard.weight.sum() == pytest.approx(weight.sum())
    _, first = np.unique(found.places, return_index=True)
    assert (first[1:] > first[:-1]).all()  # rows keep their order


def test_rows_that_are_all_different_stay_as_they_are():
    X = np.random.default_rng(0).normal(size=(50, 2))
    shard = Shard(X, np.arange(50) % 2 * 1.0, np.ones(50))
    assert without_copies(shard) == (shard, None)


@pytest.mark.parametrize("storage", STORAGES, ids=["dense", "sparse"])
def test_rows_with_equal_hashes_are_compared(storage, monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 2))
    shard = Shard(storage(X), np.arange(50) % 2 * 1.0, np.ones(50))
    monkeypatch.setattr(Shard, "row_hashes", lambda shard: np.zeros(shard.n_rows, np.uint64))
    assert without_copies(shard)[1] is None


def test_coefficients_are_shared_by_the_rows_that_were_fitted():
    found = copies.Copies(np.array([0, 1, 0, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0, 0.0]))
    np.testing.assert_allclose(found.shared(np.array([8.0, 5.0]), np.array([0, 1, 2, 4])), [2.0, 5.0, 6.0, 0.0])


@pytest.mark.parametrize("storage", STORAGES, ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "options", [{}, {"class_weight": "balanced"}, {"cache_size": 0.02}, {"cv": GroupKFold(3)}], ids=str
)
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_a_search_finds_the_same_with_and_without_copies(repeated, storage, options, multi_class, monkeypatch):
    X, y = repeated
    y, weight = y + 2 * (X[:, 0] > 1), np.arange(len(y)) % 4 * 0.5
    model = KernelSVCCV(Cs=[0.5, 5.0], gammas=[0.1, 1.0], cv=3, tol=1e-8, refine=False, multi_class=multi_class)
    model.set_params(**options)
    fit = {"sample_weight": weight, "groups": np.arange(len(y)) % 5}
    merged = model.fit(storage(X), y, **fit)
    scores, n_support, best = merged.scores_, merged.cv_results_["n_support"], merged.decision_function(X)
    monkeypatch.setattr(copies, "_LEAST_SHARE", 2.0)
    single = model.fit(storage(X), y, **fit)
    np.testing.assert_array_equal(scores, single.scores_)
    np.testing.assert_allclose(best, single.decision_function(X), atol=1e-3)
    assert (n_support < single.cv_results_["n_support"]).all()


def test_a_fold_whose_rows_all_have_copies_in_training_is_solved_to_the_tolerance():
    """No prediction of a row of weight 0 can show that a fit has settled."""
    X, y = make_classification(60, 4, flip_y=0.2, random_state=1)
    X, y = np.tile(X, (4, 1)), np.tile(y, 4)
    folds = [(np.arange(60, 240), np.arange(60)), (np.arange(180), np.arange(180, 240))]
    model = KernelSVCCV(Cs=[1.0, 1e4], gammas=[0.5], cv=folds, refine=False, skip=False).fit(X, y)
    assert (model.cv_results_["state"] == "certified").all()
