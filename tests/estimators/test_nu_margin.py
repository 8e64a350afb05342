"""NuMarginSVC against scikit-learn's NuSVC, and what is its own: nu and its bound, overlap, class weights."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC, NuSVC

from tests.oracles import hull_distance, intercept_interval, nu_cap
from tests.problems_at_hand import overlapping
from widemargin import KernelSVC, NuMarginSVC, OverlapWarning, max_nu
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.saddle import SaddlePoint

SOLVERS = pytest.mark.parametrize("solver", ["auto", "multipliers", "newton", "saddle"])


def libsvm(X, y, nu):
    return NuSVC(nu=nu, kernel="linear", tol=1e-10).fit(X, y)


def three_classes(seed, n=(20, 30, 25), d=3, spread=3.0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(["a", "b", "c"], n))
    centres = dict(zip("abc", spread * np.eye(3, d), strict=True))
    return rng.normal(size=(len(y), d)) + np.array([centres[label] for label in y]), y


# -- as LIBSVM -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.31, 0.45, 0.67])
def test_coef_and_intercept_are_those_of_libsvm_where_they_are_unique(nu, seed):
    """nu * n / 2 is no integer, so one row of each class has a free weight and fixes its level."""
    X, y = overlapping(seed, n=51, shift=1.3)
    assert (nu * 51 / 2) % 1 > 0.01
    ours, theirs = NuMarginSVC(nu=nu, tol=1e-11).fit(X, y), libsvm(X, y, nu)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-5 * np.abs(theirs.coef_).max())
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("nu", [0.4, 0.48, 0.6])
def test_where_the_intercept_is_an_interval_it_is_the_middle_and_libsvm_is_inside(nu, seed):
    X, y = overlapping(seed, n=50, shift=1.3)
    assert round(nu * 25) == pytest.approx(nu * 25)
    ours, theirs = NuMarginSVC(nu=nu, tol=1e-11).fit(X, y), libsvm(X, y, nu)
    # Scale-free: along the same direction, by its length.
    low, high = intercept_interval(X, y, ours.coef_[0], nu)
    length = np.linalg.norm(ours.coef_)
    their_intercept = theirs.intercept_[0] * length / np.linalg.norm(theirs.coef_)
    slack = 1e-5 * max(1.0, length)
    assert low - slack <= their_intercept <= high + slack
    assert ours.intercept_[0] == pytest.approx((low + high) / 2, abs=slack)
    direction = theirs.coef_[0] / np.linalg.norm(theirs.coef_)
    np.testing.assert_allclose(ours.coef_[0] / length, direction, atol=1e-5)


def test_the_distance_is_that_of_libsvm_s_masses(seed):
    X, y = overlapping(seed, n=60)
    nu = 0.85 * max_nu(y)
    theirs = libsvm(X, y, nu)
    mass = theirs.dual_coef_[0]
    z = (mass / mass[mass > 0].sum()) @ X[theirs.support_]
    assert NuMarginSVC(nu=nu, tol=1e-8).fit(X, y).certificate_.primal == pytest.approx(np.linalg.norm(z), rel=1e-5)


def test_two_classes_are_shaped_and_signed_as_in_libsvm():
    X, y = overlapping(0, n=51)
    ours, theirs = NuMarginSVC(nu=0.6, tol=1e-10).fit(X, y), libsvm(X, y, 0.6)
    assert ours.coef_.shape == theirs.coef_.shape
    assert ours.decision_function(X).shape == theirs.decision_function(X).shape == (len(y),)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-4, atol=1e-4)


def test_pairs_of_more_classes_are_in_the_order_and_sign_of_libsvm(seed):
    """scikit-learn takes one nu for all pairs; ours is the same number."""
    X, y = three_classes(seed)
    nu = 0.45
    ours = NuMarginSVC(nu=nu, tol=1e-10).fit(X, y)
    theirs = NuSVC(nu=nu, kernel="linear", tol=1e-10, decision_function_shape="ovo").fit(X, y)
    assert ours.coef_.shape == theirs.coef_.shape == (3, 3)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-4 * np.abs(theirs.coef_).max())
    # Votes need not be compared where LIBSVM's intercept may be another end of the same interval.
    clear = np.abs(theirs.decision_function(X)).min(axis=1) > 0.2
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])


def test_scores_and_predictions_of_more_classes_are_votes_as_in_scikit_learn(seed):
    X, y = three_classes(seed)
    ours = NuMarginSVC(nu=0.43, tol=1e-10).fit(X, y)
    theirs = SVC(kernel="linear", decision_function_shape="ovr").fit(X, y)
    scores = ours.decision_function(X)
    assert scores.shape == theirs.decision_function(X).shape == (len(y), 3)
    np.testing.assert_array_equal(ours.predict(X), ours.classes_[np.rint(scores).argmax(axis=1)])
    # The same transformation of one-against-one scores as scikit-learn's own.
    from sklearn.utils.multiclass import _ovr_decision_function

    pairs = X @ ours.coef_.T + ours.intercept_
    np.testing.assert_allclose(scores, _ovr_decision_function(pairs < 0, -pairs, 3), rtol=1e-9, atol=1e-9)


# -- nu --------------------------------------------------------------------------------------------------------------


@SOLVERS
@pytest.mark.parametrize("cluster", [None, 3])
def test_auto_is_the_c_svm_at_one_with_its_nu_reported(solver, cluster, seed):
    X, y = overlapping(seed, n=50)
    model = NuMarginSVC(solver=solver, tol=1e-6 if solver != "saddle" else 1e-3, random_state=0, cluster=cluster)
    model.fit(X, y)
    theirs = SVC(kernel="linear", tol=1e-9).fit(X, y)
    nu = np.abs(theirs.dual_coef_).sum() / len(y)
    assert model.nu_ == pytest.approx(nu, rel=1e-4 if solver != "saddle" else 1e-2)
    assert model.cap_ == pytest.approx(2 / (model.nu_ * 50))
    precision = 1e-3 if solver != "saddle" else 0.1
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=precision, atol=precision)
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, rtol=precision, atol=precision)
    assert NuMarginSVC(nu=0.5).fit(X, y).nu_ == pytest.approx(0.5)


@pytest.mark.parametrize("n", [2_000, 20_000])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_auto_needs_no_sweeps_beyond_the_c_svm(n, noise):
    """Its alphas are the masses; a pair of points that close leaves the direction an angle of sqrt(2 gap)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10)).astype(np.float32)
    scores = X @ rng.normal(size=10) / 3
    y = np.where(scores + noise * rng.normal(size=n) > 0, 1, -1)
    keep = (np.abs(scores) > 0.1) | (noise > 0)
    X, y = X[keep], y[keep]
    model, exact = NuMarginSVC().fit(X, y), KernelSVC(kernel="linear", tol=1e-6).fit(X, y)
    assert (model.stop_reason_, model.n_iter_) == ("gap", 1)
    w, right = model.coef_[0], exact.coef_[0]
    assert w @ right >= (1 - 2e-3) * np.linalg.norm(w) * np.linalg.norm(right)
    assert np.linalg.norm(w) == pytest.approx(np.linalg.norm(right), rel=1e-2)


def test_auto_is_per_pair_of_classes(seed):
    X, y = three_classes(seed)
    model, theirs = NuMarginSVC(tol=1e-6).fit(X, y), SVC(kernel="linear", tol=1e-9).fit(X, y)
    assert model.nu_.shape == (3,)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))


def test_auto_with_weights_is_the_c_svm_with_weights(seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).integers(1, 4, len(y))
    model, theirs = NuMarginSVC(tol=1e-6).fit(X, y, weight), SVC(kernel="linear", tol=1e-9).fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-3, atol=1e-3)


def test_auto_where_no_support_vector_is_free_keeps_the_direction():
    """One row against many, at its bound: neither the intercept nor the scale is determined."""
    X = np.array([[0.0, 0.1], [0.1, 0.0], [-0.1, 0.0], [0.0, -0.1], [0.2, 0.3]])
    y = np.array([-1, -1, -1, -1, 1])
    model, theirs = NuMarginSVC(tol=1e-6).fit(X, y), SVC(kernel="linear", tol=1e-9).fit(X, y)
    assert np.abs(theirs.dual_coef_).min() == 1.0
    assert model.nu_ == pytest.approx(2 / 5)
    lengths = np.linalg.norm(model.coef_), np.linalg.norm(theirs.coef_)
    np.testing.assert_allclose(model.coef_ / lengths[0], theirs.coef_ / lengths[1], atol=1e-6)


@pytest.mark.parametrize(
    ("y", "weight", "bound"),
    [
        ([0, 0, 0, 1], None, 0.5),
        (["a", "b"], None, 1.0),
        ([0, 0, 0, 1], [1, 1, 1, 3], 1.0),
        ([0, 0, 1, 1, 2, 2], [1, 1, 1, 1, 0, 0], 1.0),
        ([0, 0, 0, 1, 1, 1, 2], None, 0.5),  # the most unequal pair decides
        ([0, 1, 1], [0.5, 1.0, 1.0], 0.4),
    ],
)
def test_max_nu(y, weight, bound):
    assert max_nu(y, weight) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("y", "weight", "message"),
    [
        ([1, 1], None, "2 classes"),
        ([0, 1], [1, 0], "2 classes"),
        ([0, 1], [1, -1], "[Nn]egative"),
        ([0, 1], [1, np.nan], "NaN"),
        ([0, 1], [1], "inconsistent|length"),
        ([[0, 1], [1, 0]], None, "1d"),
    ],
)
def test_max_nu_names_what_is_wrong(y, weight, message):
    with pytest.raises(ValueError, match=message):
        max_nu(y, weight)


@pytest.mark.parametrize("cluster", [None, 3])
@pytest.mark.parametrize("solver", ["auto", "saddle"])
def test_the_bound_itself_is_feasible(cluster, solver, seed):
    X, y = overlapping(seed)
    model = NuMarginSVC(nu=max_nu(y), solver=solver, cluster=cluster, random_state=0).fit(X, y)
    exact = hull_distance(X, y, cap=nu_cap(y, max_nu(y))).distance
    assert model.certificate_.dual <= exact * (1 + 1e-9)
    assert model.certificate_.primal >= exact * (1 - 1e-9)
    assert np.isfinite(model.intercept_).all()


@pytest.fixture
def never_started(monkeypatch):
    """No solver may begin."""

    def start(self, *arguments, **options):
        raise AssertionError(f"{type(self).__name__} was started")

    monkeypatch.setattr(EntropicNewton, "start", start)
    monkeypatch.setattr(SaddlePoint, "start", start)


@SOLVERS
@pytest.mark.parametrize("cluster", [None, 3])
def test_nu_beyond_its_bound_is_an_error_before_any_work(never_started, solver, cluster):
    X, y = overlapping(0, n=50)  # 20 against 30: at most 0.8
    with pytest.raises(ValueError, match=r"nu=0\.9 .*infeasible.*\(0, 0\.8\]"):
        NuMarginSVC(nu=0.9, solver=solver, cluster=cluster).fit(X, y)


def test_the_bound_counts_weights(never_started):
    X, y = overlapping(0, n=50)
    with pytest.raises(ValueError, match=r"nu=0\.5 .*\(0, 0\.25\]"):
        NuMarginSVC(nu=0.5).fit(X, y, np.where(y > 0, 30 / 20 / 7, 1.0))


def test_the_bound_counts_class_weights(never_started):
    X, y = overlapping(0, n=50)
    with pytest.raises(ValueError, match=r"nu=0\.5 .*\(0, 0\.25\]"):
        NuMarginSVC(nu=0.5, class_weight={1: 30 / 20 / 7}).fit(X, y)


def test_one_infeasible_pair_of_several_is_found_before_the_others_are_solved(monkeypatch):
    sweeps = []
    sweep = EntropicNewton.sweep

    def counted(self, state):
        sweeps.append(1)
        return sweep(self, state)

    monkeypatch.setattr(EntropicNewton, "sweep", counted)
    X, y = three_classes(0, n=(30, 30, 5))
    with pytest.raises(ValueError, match="infeasible"):
        NuMarginSVC(nu=0.5).fit(X, y)
    assert sweeps == []


# -- class weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [None, 2])
def test_class_weight_is_the_same_sample_weight(cluster, seed):
    X, y = overlapping(seed)
    by_class = NuMarginSVC(class_weight={-1: 1.0, 1: 2.5}, tol=1e-9, cluster=cluster).fit(X, y)
    by_row = NuMarginSVC(tol=1e-9).fit(X, y, np.where(y > 0, 2.5, 1.0))
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(by_class.intercept_, by_row.intercept_, rtol=1e-6, atol=1e-6)
    assert by_class.nu_ == pytest.approx(by_row.nu_)


@pytest.mark.parametrize("weight", [None, "random"])
def test_balanced_gives_classes_equal_weight(weight, seed):
    X, y = overlapping(seed)
    weight = None if weight is None else np.random.default_rng(seed).uniform(0.5, 2.0, len(y))
    model = NuMarginSVC(nu=1.0, class_weight="balanced").fit(X, y, weight)  # above max_nu(y) without the weights
    assert model.nu_ == pytest.approx(1.0)


def test_class_weights_multiply_sample_weights():
    X, y = overlapping(0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    both = NuMarginSVC(class_weight={1: 3.0}, tol=1e-9).fit(X, y, weight)
    one = NuMarginSVC(tol=1e-9).fit(X, y, weight * np.where(y > 0, 3.0, 1.0))
    np.testing.assert_allclose(both.coef_, one.coef_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("class_weight", [{1: 0.0}, {1: -1.0}, {1: np.inf}, {1: np.nan}, {7: 1.0}, "heavy", [1, 2]])
def test_a_bad_class_weight_is_named(class_weight):
    with pytest.raises(ValueError, match=r"class_weight|[Cc]lass"):
        NuMarginSVC(class_weight=class_weight).fit(*overlapping(0))


# -- overlap ---------------------------------------------------------------------------------------------------------


@SOLVERS
@pytest.mark.parametrize("cluster", [None, 2])
def test_identical_classes_overlap(solver, cluster):
    half = np.random.default_rng(0).normal(size=(30, 3))
    X, y = np.vstack([half, half]), np.repeat([0, 1], 30)
    with pytest.warns(OverlapWarning, match=r"overlap.*nu=.*Raise nu"):
        model = NuMarginSVC(solver=solver, cluster=cluster, random_state=0).fit(X, y)
    assert model.stop_reason_ == "overlap"
    assert model.certificate_.dual <= 0
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert model.predict(X).shape == y.shape


@SOLVERS
def test_all_rows_equal(solver):
    X, y = np.ones((10, 3)), np.repeat([0, 1], 5)
    with pytest.warns(OverlapWarning):
        model = NuMarginSVC(solver=solver, random_state=0).fit(X, y)
    assert model.stop_reason_ == "overlap"
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("cluster", [None, 3])
def test_overlap_leaves_a_useful_model(cluster, seed):
    """A small nu on overlapping clouds: hulls meet, and yet most rows are on their side.

    The best separator of two unit clouds 2 * sqrt(2) apart misplaces 8% of the rows; 80% right allows for any direction
    that has anything to do with theirs.
    """
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([-1, 1], 200))
    X = rng.normal(size=(400, 2)) + y[:, None]
    with pytest.warns(OverlapWarning):
        model = NuMarginSVC(nu=0.05, cluster=cluster).fit(X, y)
    assert model.stop_reason_ == "overlap"
    assert model.score(X, y) > 0.8


def test_a_larger_nu_ends_the_overlap_as_the_warning_says():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([-1, 1], 200))
    X = rng.normal(size=(400, 2)) + y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert NuMarginSVC(nu=0.6).fit(X, y).stop_reason_ == "gap"


@pytest.mark.parametrize(("share", "step"), [(0.85, 3), (0.7, 5), (0.5, 10)])
def test_a_real_overlap(real, share, step):
    """ijcnn1: its reduced hulls meet at 0.85 of the bound already (notes/saddle.md), and at less all the more."""
    data = real("ijcnn1")
    X, y = data.X[::step], data.y[::step]
    with pytest.warns(OverlapWarning):
        model = NuMarginSVC(nu=share * max_nu(y), max_iter=100).fit(X, y)
    assert model.stop_reason_ == "overlap"
    # Nine rows in ten are of one class; the model is no worse than naming that class always.
    assert model.score(X, y) > 0.85


def test_a_larger_nu_parts_real_hulls(real):
    data = real("ijcnn1")
    model = NuMarginSVC(nu=0.98 * max_nu(data.y), tol=1e-2).fit(data.X, data.y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.dual > 0


def test_sparse_rows_with_long_indices_are_taken_as_they_are():
    X, y = overlapping(0)
    matrix = sp.csr_matrix(X)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    model = NuMarginSVC(tol=1e-9).fit(matrix, y)
    np.testing.assert_allclose(model.coef_, NuMarginSVC(tol=1e-9).fit(X, y).coef_, rtol=1e-6, atol=1e-7)
    assert model.predict(matrix).shape == y.shape


# -- support vectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [None, 3])
def test_support_vectors_are_those_of_libsvm_in_its_scale(cluster, seed):
    X, y = overlapping(seed, n=61)
    model, theirs = NuMarginSVC(nu=0.45, tol=1e-8, cluster=cluster).fit(X, y), libsvm(X, y, 0.45)
    np.testing.assert_array_equal(model.support_, np.sort(theirs.support_))
    order = np.argsort(theirs.support_)
    np.testing.assert_allclose(model.dual_coef_, theirs.dual_coef_[:, order], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.dual_coef_ @ X[model.support_], model.coef_, rtol=1e-5, atol=1e-7)
    assert model.n_support_.tolist() == [len(model.support_)]


@pytest.mark.parametrize("weight", [None, "some rows absent"])
def test_support_vectors_of_several_classes_have_a_row_of_coefficients_for_each_pair(weight):
    X, y = three_classes(0)
    weight = None if weight is None else np.arange(len(y)) % 4
    model = NuMarginSVC(nu=0.4, tol=1e-7).fit(X, y, weight)
    assert model.dual_coef_.shape == (3, len(model.support_))
    np.testing.assert_allclose(model.dual_coef_ @ X[model.support_], model.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(np.count_nonzero(model.dual_coef_, axis=1), model.n_support_)


def test_without_a_margin_no_rows_make_up_the_model():
    X, y = overlapping(0, n=200, shift=0.1)
    with pytest.warns(OverlapWarning):
        model = NuMarginSVC(nu=0.05).fit(X, y)
    assert not hasattr(model, "support_")
