"""HardMarginSVC against SVC with an unreachable C, and what is its own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from tests.oracles import hull_distance
from tests.problems_at_hand import separable
from widemargin import HardMarginSVC, OverlapWarning

SOLVERS = pytest.mark.parametrize("solver", ["auto", "active-set", "newton", "saddle"])


def libsvm(X, y):
    return SVC(C=1e10, kernel="linear", tol=1e-10, decision_function_shape="ovo").fit(X, y)


@pytest.mark.parametrize("solver", ["auto", "active-set", "newton"])
def test_coef_and_intercept_are_those_of_libsvm(solver, seed):
    X, y = separable(seed, gap=1.0)
    ours, theirs = HardMarginSVC(solver=solver, tol=1e-10).fit(X, y), libsvm(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-3, atol=1e-3)


@SOLVERS
def test_rows_are_on_their_side_and_the_margin_is_the_certified_one(solver, seed):
    X, y = separable(seed, gap=0.5)
    model = HardMarginSVC(solver=solver, random_state=0).fit(X, y)
    scores = y * model.decision_function(X)
    assert scores.min() == pytest.approx(1.0, rel=1e-9)
    assert 2 / np.linalg.norm(model.coef_) == pytest.approx(model.certificate_.dual, rel=1e-9)
    assert hull_distance(X, y).distance == pytest.approx(model.certificate_.primal, rel=1e-3)


def test_pairs_of_more_classes_are_in_the_order_and_sign_of_libsvm(seed):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([3, 1, 7, 4], 12))
    centres = {label: 10 * np.eye(4)[k] for k, label in enumerate((1, 3, 4, 7))}
    X = rng.normal(size=(48, 4)) + np.array([centres[label] for label in y])
    ours, theirs = HardMarginSVC(tol=1e-10).fit(X, y), libsvm(X, y)
    assert ours.coef_.shape == theirs.coef_.shape == (6, 4)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_array_equal(ours.predict(X), y)


@SOLVERS
@pytest.mark.parametrize("cluster", [None, 2])
def test_classes_that_no_hyperplane_separates(solver, cluster):
    half = np.random.default_rng(0).normal(size=(30, 3))
    X, y = np.vstack([half, half]), np.repeat([0, 1], 30)
    with pytest.warns(OverlapWarning, match="not linearly separable.*NuMarginSVC"):
        model = HardMarginSVC(solver=solver, cluster=cluster, random_state=0).fit(X, y)
    assert model.stop_reason_ == "overlap"
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


@pytest.mark.parametrize("cluster", [None, 3])
def test_overlap_leaves_a_useful_model(cluster, seed):
    """As in test_nu_margin: the best line is right on 92% of the rows, and any that knows of the clouds on 80%."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([-1, 1], 100))
    X = rng.normal(size=(200, 2)) + y[:, None]
    with pytest.warns(OverlapWarning):
        model = HardMarginSVC(cluster=cluster).fit(X, y)
    assert model.stop_reason_ == "overlap"
    assert model.score(X, y) > 0.8


def test_one_row_inside_the_other_hull_is_an_overlap():
    X = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0], [1.0, 1.5], [9.0, 9.0]])
    with pytest.warns(OverlapWarning):
        model = HardMarginSVC().fit(X, [0, 0, 0, 0, 1, 1])
    assert model.stop_reason_ == "overlap"


def test_hulls_that_touch_in_a_point_have_no_margin():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [2.0, 1.0]])
    with pytest.warns(OverlapWarning):
        model = HardMarginSVC().fit(X, [0, 0, 1, 1])
    assert model.stop_reason_ == "overlap"


@pytest.mark.parametrize("gap", [1e-3, 1e-5])
def test_a_tiny_gap_is_not_an_overlap(gap, seed):
    """A margin that is small beside the data is still one."""
    X, y = separable(seed, n=60, d=3, gap=gap)
    exact = hull_distance(X, y).distance
    model = HardMarginSVC(tol=1e-3).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.primal == pytest.approx(exact, rel=2e-3)


def test_weights_matter_only_as_present_or_absent(seed):
    X, y = separable(seed)
    weight = np.random.default_rng(seed).uniform(0.1, 9.0, len(y))
    one, other = HardMarginSVC(tol=1e-10).fit(X, y, weight), HardMarginSVC(tol=1e-10).fit(X, y)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)


@SOLVERS
def test_one_row_per_class(solver):
    X = np.array([[1.0, 2.0], [4.0, 6.0]])
    model = HardMarginSVC(solver=solver, random_state=0, tol=1e-6).fit(X, [0, 1])
    np.testing.assert_allclose(model.coef_[0], 2 * np.array([3.0, 4.0]) / 25, rtol=1e-4)
    np.testing.assert_allclose(model.decision_function(X), [-1.0, 1.0], rtol=1e-6)


@SOLVERS
def test_three_classes_of_one_row(solver):
    model = HardMarginSVC(solver=solver, random_state=0).fit(np.eye(3), [0, 1, 2])
    np.testing.assert_array_equal(model.predict(np.eye(3)), [0, 1, 2])


@pytest.mark.parametrize("cluster", [None, 3])
@pytest.mark.parametrize("solver", ["auto", "active-set", "newton"])
def test_support_vectors_make_up_the_model(solver, cluster, seed):
    X, y = separable(seed)
    model = HardMarginSVC(solver=solver, tol=1e-9, cluster=cluster).fit(X, y)
    np.testing.assert_allclose(model.dual_coef_ @ X[model.support_], model.coef_, rtol=1e-3, atol=1e-5)
    assert np.sign(model.dual_coef_[0]).tolist() == y[model.support_].tolist()
    assert model.n_support_.tolist() == [len(model.support_)]
    if solver != "newton":  # whose masses fade, and never vanish
        assert len(model.support_) <= X.shape[1] + 1
