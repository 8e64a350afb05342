"""kernel_svc_path: every model against fits of its own, weights, limits, and bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from widemargin import InterruptedFitWarning, KernelSVC, kernel_svc_path, load, save
from widemargin.callbacks import Interruption
from widemargin.estimators import kernel_path
from widemargin.strategies.selection import Folds

TIGHT = 1e-8
CS = [0.5, 5.0, 50.0]


@pytest.fixture(scope="module")
def two():
    return make_classification(160, 6, n_informative=4, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(180, 6, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, random_state=1)
    return X, np.array(["ant", "bee", "cat"])[y]


def assert_same(path, X, y, sample_weight=None, **options):
    """Every model is that of a fit by itself."""
    for C, model, certificate in zip(path.Cs, path.models, path.certificates, strict=True):
        alone = KernelSVC(C=C, tol=TIGHT, **options).fit(X, y, sample_weight)
        assert certificate.relative <= TIGHT
        for one, another in zip(model.parts_, alone.parts_, strict=True):
            assert one.certificate.primal == pytest.approx(another.certificate.primal, rel=1e-7)
        np.testing.assert_allclose(model.decision_function(X), alone.decision_function(X), atol=2e-3)
        np.testing.assert_array_equal(model.training_.weight, alone.training_.weight)
        assert model.training_.accuracy == pytest.approx(alone.training_.accuracy, abs=1e-9)
        assert set(vars(model)) == set(vars(alone))
        assert model.get_params() == alone.get_params()


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_every_model_is_that_of_a_fit_by_itself(three, kernel, multi_class):
    options = {"kernel": kernel, "multi_class": multi_class}
    path = kernel_svc_path(*three, CS, tol=TIGHT, **options)
    assert path.Cs.tolist() == CS
    assert path.intercepts.shape == (3, 3)
    assert_same(path, *three, **options)


def test_support_vectors_and_intercepts_are_those_of_libsvm(two):
    X, y = two
    path = kernel_svc_path(X, y, CS[::-1], gamma=0.2, tol=TIGHT)
    for k, C in enumerate(CS):
        theirs = SVC(C=C, gamma=0.2, tol=1e-9).fit(X, y)
        np.testing.assert_array_equal(path.support[k], np.sort(theirs.support_))
        assert path.n_support[k] == len(theirs.support_)
        assert path.intercepts[k] == pytest.approx(theirs.intercept_, abs=1e-4)
        np.testing.assert_array_equal(path.models[k].predict(X), theirs.predict(X))
    assert (path.seconds > 0).all()


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_without_room_for_all_values_models_are_the_same(three, multi_class):
    path = kernel_svc_path(*three, CS, tol=TIGHT, multi_class=multi_class, cache_size=0.1)
    assert_same(path, *three, multi_class=multi_class)


def test_kernel_values_are_computed_once(two):
    few, many = (kernel_svc_path(*two, n, gamma=0.2).cost.kernel_evaluations for n in (1, 8))
    assert few == many


@pytest.mark.parametrize("change", [sp.csr_matrix, lambda X: X.astype(np.float32)], ids=["sparse", "float32"])
def test_storage(two, change):
    X, y = two
    dense, other = (kernel_svc_path(rows, y, CS, gamma=0.2, tol=1e-6) for rows in (X, change(X)))
    for one, another in zip(dense.models, other.models, strict=True):
        np.testing.assert_allclose(one.decision_function(X), another.decision_function(change(X)), atol=5e-3)
        assert type(another.support_vectors_) is type(change(X))


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_weights_are_numbers_of_copies_and_classes_are_weighted(three, kernel):
    X, y = three
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    labels = np.where(weight > 0, y, "other")  # of rows that are left out
    path = kernel_svc_path(
        X, labels, CS, kernel=kernel, sample_weight=weight, class_weight="balanced", gamma=0.2, tol=TIGHT
    )
    assert_same(path, X, labels, weight, kernel=kernel, class_weight="balanced", gamma=0.2)
    assert all(weight[numbers].all() for numbers in path.support)


def test_given_values_and_functions_are_kernels_too(two):
    X, y = two
    named = kernel_svc_path(X, y, CS, gamma=0.2, tol=TIGHT)
    given = kernel_svc_path(rbf_kernel(X, gamma=0.2), y, CS, kernel="precomputed", tol=TIGHT)
    function = kernel_svc_path(X, y, CS, kernel=lambda A, B: rbf_kernel(A, B, gamma=0.2), tol=TIGHT)
    for k, model in enumerate(named.models):
        scores = model.decision_function(X)
        np.testing.assert_allclose(given.models[k].decision_function(rbf_kernel(X, gamma=0.2)), scores, atol=2e-3)
        np.testing.assert_allclose(function.models[k].decision_function(X), scores, atol=2e-3)


def test_a_model_of_a_path_is_like_any_other(two, tmp_path):
    model = kernel_svc_path(*two, CS).models[1]
    save(model, tmp_path / "model.wm")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.wm")):
        np.testing.assert_array_equal(again.decision_function(two[0]), model.decision_function(two[0]))
    assert model.partial_fit(*two).stop_reason_ == "gap"


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_models_that_are_not_finished_are_left_out(two, kernel):
    with pytest.warns(ConvergenceWarning, match="3 of 3 models are left out: raise max_time"):
        path = kernel_svc_path(*two, CS, kernel=kernel, max_time=1e-9)
    assert (path.models, len(path.Cs), len(path.n_support)) == ([], 0, 0)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_ctrl_c_ends_a_path(two, kernel, monkeypatch):
    monkeypatch.setattr(Interruption, "__bool__", lambda interruption: True)
    with pytest.warns(InterruptedFitWarning, match="models are left out"):
        assert len(kernel_svc_path(*two, CS, kernel=kernel).models) < 3


def test_a_path_that_runs_out_of_time_keeps_what_is_finished(two, monkeypatch):
    class Counted:
        """Each look at the clock takes a second."""

        now, perf_counter = 0.0, staticmethod(lambda: 0.0)

        @classmethod
        def monotonic(cls):
            cls.now += 1.0
            return cls.now

    monkeypatch.setattr(kernel_path, "time", Counted)
    with pytest.warns(ConvergenceWarning, match="of 30 models are left out"):
        path = kernel_svc_path(*two, 30, max_time=40.0)
    assert 0 < len(path.models) < 30
    assert all(each.relative <= 1e-3 for each in path.certificates)


def test_open_gaps_are_told(two):
    with pytest.warns(ConvergenceWarning, match=r"above tol=1e-08 for C = 0.001 \(max_iter, .*, 5e\+05 \(max_iter"):
        kernel_svc_path(*two, [1e-3, 5e5], tol=TIGHT, max_iter=1)


# -- bad input -------------------------------------------------------------------------------------------------------


def no_kernel(*arguments, **options):
    raise AssertionError("a kernel value was asked for")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"Cs": []}, r"Cs=\[\] must be a number of values, or a list of positive"),
        ({"Cs": [1.0, -1.0]}, "must be a number of values, or a list of positive"),
        ({"Cs": 0}, "The 'Cs' parameter of kernel_svc_path must be"),
        ({"gamma": -1.0}, "The 'gamma' parameter of kernel_svc_path must be"),
        ({"cache_size": 0}, "The 'cache_size' parameter of kernel_svc_path must be"),
        ({"kernel": "precomputed"}, "needs a square X"),
        ({"y": np.zeros(160)}, "kernel_svc_path needs at least 2 classes"),
        ({"sample_weight": -np.ones(160)}, "weight"),
    ],
)
def test_bad_input_is_refused_before_any_kernel_value(two, options, text, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", no_kernel)
    with pytest.raises(ValueError, match=text):
        kernel_svc_path(**{"X": two[0], "y": two[1], **options})
