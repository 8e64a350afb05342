"""KernelSVCCV with a linear kernel: scores of folds against exact fits, without kernel values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from tests.estimators.test_kernel_cv_frame import FailAtPoint, assert_same_search, on_threads
from widemargin import KernelSVC, KernelSVCCV, cores, kernel_svc_path
from widemargin.estimators import _search, _searching
from widemargin.solvers import run as run_module
from widemargin.strategies import linear_folds, search_crew, search_files
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import FoldPath

CS = [0.02, 0.3, 4.0]
OPTIONS = {"kernel": "linear", "Cs": CS, "refine": False, "tol": 1e-8}
EXACT = SVC(kernel="linear", tol=1e-7)


@pytest.fixture(scope="module")
def two():
    return make_classification(240, 6, n_informative=4, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(240, 6, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, random_state=1)
    return X, np.array(["ant", "bee", "cat"])[y]


@pytest.fixture(params=["on pairs of rows", "Newton"])
def steps(request, monkeypatch):
    """Few rows have steps on pairs of rows, others Newton steps from the solution for the last C."""
    if request.param == "Newton":
        monkeypatch.setattr(linear_folds, "_is_best_cold", lambda *_: False)


def exact_scores(X, y, estimator=EXACT, name="C"):
    search = GridSearchCV(estimator, {name: CS}).fit(X, y)
    return np.stack([search.cv_results_[f"split{k}_test_score"] for k in range(5)], axis=1)


# -- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("rows", ["two", "three"])
def test_scores_of_folds_are_those_of_exact_fits(rows, storage, request):
    X, y = request.getfixturevalue(rows)
    model = KernelSVCCV(**OPTIONS).fit(storage(X), y)
    np.testing.assert_array_equal(model.scores_, exact_scores(X, y))
    assert (model.cv_results_["state"] == "certified").all()
    assert model.cost_.kernel_evaluations == 0
    alone = KernelSVC(kernel="linear", tol=1e-8, **model.best_params_).fit(storage(X), y)
    np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-3)


@pytest.mark.usefixtures("steps")
def test_scores_of_classes_against_the_rest_are_those_of_exact_fits(three):
    model = KernelSVCCV(**OPTIONS, multi_class="rest").fit(*three)
    expected = exact_scores(three[0], three[1], OneVsRestClassifier(EXACT), "estimator__C")
    np.testing.assert_array_equal(model.scores_, expected)


@pytest.mark.usefixtures("steps")
def test_raw_scales_of_features(two):
    X, y = two[0] * np.logspace(-2, 2, 6) + np.linspace(-100, 100, 6), two[1]
    # Libraries choose different ones of several best intercepts, and LIBSVM does not come near the optimum.
    for line, C in zip(KernelSVCCV(**{**OPTIONS, "tol": 1e-5}).fit(X, y).scores_, CS, strict=True):
        for score, (train, test) in zip(line, StratifiedKFold().split(X, y), strict=True):
            exact = KernelSVC(kernel="linear", C=C, tol=1e-9, max_iter=10**6).fit(X[train], y[train])
            is_clear = np.abs(exact.decision_function(X[test])) > 0.01
            right = exact.predict(X[test]) == y[test]
            assert right[is_clear].sum() <= score * len(test) + 1e-9
            assert score * len(test) <= right[is_clear].sum() + (~is_clear).sum() + 1e-9


@pytest.mark.usefixtures("steps")
def test_weights_of_rows_and_classes_are_those_of_exact_fits(three):
    X, y = three
    weight, of_classes = np.arange(len(y)) % 4 / 2.0, {"ant": 2.0, "bee": 0.5, "cat": 1.0}
    cv = list(StratifiedKFold().split(X, y))
    model = KernelSVCCV(**OPTIONS, class_weight=of_classes, cv=cv).fit(X, y, sample_weight=weight)
    for line, C in zip(model.scores_, CS, strict=True):
        for score, (train, test) in zip(line, cv, strict=True):
            train = train[weight[train] > 0]
            exact = SVC(kernel="linear", C=C, tol=1e-7, class_weight=of_classes).fit(X[train], y[train], weight[train])
            expected = accuracy_score(y[test], exact.predict(X[test]), sample_weight=weight[test])
            assert score == pytest.approx(expected, abs=1e-12)


def test_rows_longer_than_they_are_many_have_kernel_values():
    X, y = make_classification(120, 150, n_informative=20, flip_y=0.1, random_state=0)
    model = KernelSVCCV(**OPTIONS).fit(X, y)
    np.testing.assert_array_equal(model.scores_, exact_scores(X, y))
    assert model.cost_.kernel_evaluations > 0
    without_room = KernelSVCCV(**OPTIONS, cache_size=0.01).fit(X, y)
    np.testing.assert_array_equal(model.scores_, without_room.scores_)
    assert without_room.cost_.kernel_evaluations == 0


@pytest.mark.usefixtures("steps")
def test_results_do_not_depend_on_the_number_of_threads(three):
    found = []
    for n in (1, 3):
        with cores.at_most(n):
            found.append(KernelSVCCV(kernel="linear", Cs=4, cv=3).fit(*three))
    assert_same_search(*found)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("rows", ["two", "three"])
def test_a_path_has_the_models_of_exact_fits(rows, request):
    X, y = request.getfixturevalue(rows)
    path = kernel_svc_path(X, y, CS, kernel="linear", tol=1e-8)
    for C, model in zip(CS, path.models, strict=True):
        exact = SVC(kernel="linear", C=C, tol=1e-7).fit(X, y)
        np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-3)
        np.testing.assert_array_equal(model.predict(X), exact.predict(X))
        assert len(model.support_) == pytest.approx(len(exact.support_), abs=3)
        assert model.dual_coef_.shape == (1 if rows == "two" else 3, len(model.support_))


# -- within the frame ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_a_search_goes_on_along_the_values_of_C(three, tmp_path, multi_class, monkeypatch):
    options = {**OPTIONS, "Cs": [0.02, 0.1, 0.3, 1.0, 4.0], "cv": 3, "multi_class": multi_class}
    alone = KernelSVCCV(**options).fit(*three)
    with monkeypatch.context() as patch:
        for module, name, value in (
            (search_crew, "_INTERVAL", 0.0), (search_crew, "_SHARE_FOR_PATHS", np.inf),
            (run_module, "_ASK_INTERVAL", -1.0),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        with pytest.raises(RuntimeError, match="a crash"):
            KernelSVCCV(**options, checkpoint=tmp_path).set_callbacks(FailAtPoint(2)).fit(*three)
    (state,) = search_files.load(tmp_path)
    assert 0 < len(state.paths.fits.reasons) < 5 * 3 * 3  # values of C, folds and problems
    assert_same_search(KernelSVCCV(**options, checkpoint=tmp_path).fit(*three), alone)


@pytest.mark.usefixtures("steps")
def test_what_is_known_is_not_fitted_again(three, tmp_path, monkeypatch):
    model = KernelSVCCV(kernel="linear", Cs=4, checkpoint=tmp_path)
    first = pickle.loads(pickle.dumps(model.fit(*three)))
    monkeypatch.setattr(FoldPath, "fits", lambda *_: pytest.fail("a fit is repeated"))
    monkeypatch.setattr(linear_folds._LinearPath, "fits", lambda *_: pytest.fail("a fit is repeated"))
    assert_same_search(first, model.fit(*three))


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("n_ranks", [2, 3])
def test_ranks_find_what_one_process_finds(three, n_ranks):
    X, y = three
    weight = np.arange(len(y)) % 3
    expected = KernelSVCCV(**OPTIONS).fit(X, y, sample_weight=weight)
    for _, searched in on_threads(KernelSVCCV(**OPTIONS), Rows(X, y, weight), n_ranks):
        assert searched.spread == "tasks"
        for name, column in expected.cv_results_.items():
            if "time" not in name:
                np.testing.assert_array_equal(column, searched.attributes["cv_results_"][name])


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_ranks_share_rows_that_no_rank_has_room_for(three, multi_class, storage, monkeypatch):
    X, y = three
    weight = 1 + np.arange(len(y)) % 3
    alone = KernelSVCCV(**OPTIONS, multi_class=multi_class).fit(X, y, sample_weight=weight)
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    model = KernelSVCCV(**OPTIONS, multi_class=multi_class)
    for _, searched in on_threads(model, Rows(storage(X), y, weight), 2):
        found = searched.attributes
        assert searched.spread == "rows"
        np.testing.assert_array_equal(found["scores_"], alone.scores_)
        assert (found["cv_results_"]["gap"] <= 1e-8).all()
        np.testing.assert_allclose(found["cv_results_"]["n_support"], alone.cv_results_["n_support"], rtol=0.05)


@pytest.mark.usefixtures("steps")
def test_without_time_for_all_points_the_best_so_far_is_fitted(two, monkeypatch):
    class Counted:
        """Each look at the clock takes a second."""

        now = 0.0

        @classmethod
        def monotonic(cls):
            cls.now += 1.0
            return cls.now

    monkeypatch.setattr(_searching, "time", Counted)
    with pytest.warns(ConvergenceWarning, match="points were not tried on all folds"):
        model = KernelSVCCV(kernel="linear", Cs=10, max_time=25.0, skip=False).fit(*two)
    states = model.cv_results_["state"].tolist()
    assert states[0] == "certified"
    assert states[-1] == "not tried"
    assert np.isfinite(model.best_score_)


def test_a_gap_that_is_open_is_told(two):
    model = KernelSVCCV(kernel="linear", Cs=[1.0], tol=1e-14, max_iter=1, refine=False)
    with pytest.warns(ConvergenceWarning):
        model.fit(*two)
    assert model.cv_results_["state"].tolist() == ["estimated"]
    assert model.cv_results_["gap"][0] > 1e-14
