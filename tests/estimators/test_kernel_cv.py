"""KernelSVCCV: scores of folds against exact fits, tables as GridSearchCV's, weights, limits and bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneGroupOut, StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import scale
from sklearn.svm import SVC

from widemargin import InterruptedFitWarning, KernelSVC, KernelSVCCV, ModelFileError, cores, load, pauses, save
from widemargin.callbacks import Interruption
from widemargin.estimators import _searching
from widemargin.estimators._grids import around, free_bytes, grid_of_gammas
from widemargin.solvers import run as run_module
from widemargin.strategies import selection
from widemargin.strategies.selection import Folds

TIGHT = 1e-8  # so that no prediction depends on what the gap leaves open
GRID = {"C": [0.1, 1.0, 20.0], "gamma": [0.02, 0.2, 1.0]}
# With fewer free support vectors there are several best intercepts, and libraries choose different ones.
UNIQUE = {"C": [2.0, 20.0], "gamma": [0.1, 0.5]}
SMALL = {"Cs": GRID["C"], "gammas": GRID["gamma"], "refine": False, "tol": TIGHT}
EASY = {**SMALL, "Cs": UNIQUE["C"], "gammas": UNIQUE["gamma"]}


@pytest.fixture(scope="module")
def two():
    return make_classification(240, 6, n_informative=4, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(240, 6, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, random_state=1)
    return X, np.array(["ant", "bee", "cat"])[y]


def by_libsvm(X, y, cv=5, estimator=None, grid=None, **options):
    search = GridSearchCV(estimator or SVC(tol=1e-7), grid or GRID, cv=cv, **options)
    return search.fit(X, y)


def splits(search, n_folds=5):
    return np.stack([search.cv_results_[f"split{k}_test_score"] for k in range(n_folds)], axis=1)


# -- scores ----------------------------------------------------------------------------------------------------------


def test_scores_of_folds_are_those_of_exact_fits(two):
    ours, theirs = KernelSVCCV(**SMALL).fit(*two), by_libsvm(*two)
    np.testing.assert_array_equal(ours.scores_, splits(theirs))
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_score_ == theirs.best_score_
    assert (ours.predict(two[0]) == theirs.predict(two[0])).all()


def test_scores_of_pairs_of_classes_are_those_of_exact_fits(three):
    ours, theirs = KernelSVCCV(**SMALL).fit(*three), by_libsvm(*three)
    np.testing.assert_array_equal(ours.scores_, splits(theirs))
    assert (ours.predict(three[0]) == theirs.predict(three[0])).all()


def test_scores_of_classes_against_the_rest_are_those_of_exact_fits(three):
    grid = {f"estimator__{name}": values for name, values in UNIQUE.items()}
    theirs = by_libsvm(*three, estimator=OneVsRestClassifier(SVC(tol=1e-7)), grid=grid)
    ours = KernelSVCCV(**EASY, multi_class="rest").fit(*three)
    np.testing.assert_array_equal(ours.scores_, splits(theirs))


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_without_room_for_all_values_scores_are_the_same(three, multi_class, storage):
    X, y = three
    with_all = KernelSVCCV(**EASY, multi_class=multi_class).fit(X, y)
    without = KernelSVCCV(**EASY, multi_class=multi_class, cache_size=0.1).fit(storage(X), y)
    np.testing.assert_array_equal(with_all.scores_, without.scores_)
    np.testing.assert_allclose(with_all.decision_function(X), without.decision_function(X), atol=1e-3)


def test_every_gap_is_at_the_tolerance_or_the_score_an_estimate(two):
    model = KernelSVCCV(Cs=[0.1, 1.0, 1e4], gammas=[0.02, 1.0], refine=False, tol=1e-5).fit(*two)
    results = model.cv_results_
    np.testing.assert_array_equal(results["state"] == "certified", results["gap"] <= 1e-5)
    assert set(results["state"]) <= {"certified", "estimated"}
    assert results["state"][model.best_index_] == "certified"
    error = model.scores_[model.best_index_].std(ddof=1) / np.sqrt(5)
    is_near = model.scores_.mean(axis=1) >= model.best_score_ - error
    assert (results["state"][is_near] == "certified").all()


def test_a_fit_that_takes_very_long_is_cut_short_and_its_score_an_estimate(monkeypatch):
    """C is so large that steps on single pairs of rows take hours."""
    X, y = load_iris(return_X_y=True)
    X, y = scale(X[y > 0][:, :2]), y[y > 0]
    monkeypatch.setattr(selection, "_MAX_CUT", 2)
    model = KernelSVCCV(Cs=[1.0, 1e10], gammas=[1e-2], refine=False, skip=False).fit(X, y)
    results = model.cv_results_
    assert list(results["state"]) == ["certified", "estimated"]
    assert (results["gap"] > 1e-3).tolist() == [False, True]


def test_the_final_model_is_that_of_a_fit_at_the_best_point(two):
    X, y = two
    ours, alone = KernelSVCCV(**SMALL).fit(X, y), KernelSVC(tol=TIGHT)
    alone.set_params(**ours.best_params_).fit(X, y)
    assert ours.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=1e-7)
    np.testing.assert_allclose(ours.decision_function(X), alone.decision_function(X), atol=1e-3)
    assert ours.best_params_["C"] == ours.C_
    assert ours.kernel_.gamma == ours.best_params_["gamma"]
    assert ours.cost_.kernel_evaluations > alone.cost_.kernel_evaluations


@pytest.mark.parametrize(
    ("kernel", "options"),
    [("linear", {}), ("poly", {"degree": 2, "coef0": 1.0}), ("laplacian", {}), ("cosine", {})],
)
def test_other_kernels(two, kernel, options):
    X, y = two
    has_gamma = kernel in ("poly", "laplacian")
    gammas = {"gammas": [0.1]} if has_gamma else {}
    model = KernelSVCCV(Cs=[0.5, 5.0], **gammas, kernel=kernel, refine=False, tol=TIGHT, **options).fit(X, y)
    for line, point in zip(model.scores_, model.cv_results_["params"], strict=True):
        alone = KernelSVC(kernel=kernel, tol=TIGHT, **options, **point)
        np.testing.assert_array_equal(line, cross_val_score(alone, X, y))
    assert ("gamma" in model.best_params_) == has_gamma
    assert hasattr(model, "coef_") == (kernel == "linear")


def test_given_values_and_functions_are_kernels_too(two):
    X, y = two
    named = KernelSVCCV(**{**SMALL, "gammas": [0.2]}).fit(X, y)
    options = {"Cs": GRID["C"], "refine": False, "tol": TIGHT}
    given = KernelSVCCV(kernel="precomputed", **options).fit(rbf_kernel(X, gamma=0.2), y)
    function = KernelSVCCV(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.2), **options).fit(X, y)
    np.testing.assert_array_equal(named.scores_, given.scores_)
    np.testing.assert_array_equal(named.scores_, function.scores_)


# -- tables ----------------------------------------------------------------------------------------------------------


def test_the_table_has_the_form_of_a_grid_search(two):
    ours, theirs = KernelSVCCV(**SMALL).fit(*two), by_libsvm(*two)
    assert set(theirs.cv_results_) <= set(ours.cv_results_)
    assert set(ours.cv_results_) - set(theirs.cv_results_) == {"gap", "state", "n_support"}
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    for name, values in theirs.cv_results_.items():
        assert type(ours.cv_results_[name]) is type(values), name
        if "time" not in name and name != "params":
            np.testing.assert_allclose(ours.cv_results_[name], values, rtol=1e-12)
    assert ours.best_index_ == theirs.best_index_
    assert ours.n_splits_ == theirs.n_splits_


def test_the_first_of_several_scorers_decides(two):
    model = KernelSVCCV(**SMALL, scoring=["roc_auc", "balanced_accuracy"]).fit(*two)
    theirs = by_libsvm(*two, scoring=["roc_auc", "balanced_accuracy"], refit="roc_auc")
    for name in ("mean_test_roc_auc", "rank_test_balanced_accuracy", "split3_test_roc_auc"):
        np.testing.assert_allclose(model.cv_results_[name], theirs.cv_results_[name], atol=1e-6)
    assert model.best_score_ == model.cv_results_["mean_test_roc_auc"].max()
    np.testing.assert_array_equal(model.scores_[:, 2], model.cv_results_["split2_test_roc_auc"])


def test_a_function_may_return_several_scores(two):
    def scores(model, X, y):
        right = model.predict(X) == y
        return {"right": right.mean(), "wrong": 1 - right.mean()}

    model = KernelSVCCV(**SMALL, scoring=scores).fit(*two)
    np.testing.assert_array_equal(model.scores_, KernelSVCCV(**SMALL).fit(*two).scores_)
    np.testing.assert_allclose(model.cv_results_["mean_test_wrong"], 1 - model.cv_results_["mean_test_right"])


def test_a_scorer_sees_the_held_out_rows(two):
    X, y = two
    seen = []

    def scorer(model, X, y):
        seen.append(X)
        return accuracy_score(y, model.predict(X))

    KernelSVCCV(Cs=[1.0], gammas=[0.1], cv=3, refine=False, scoring=scorer).fit(X, y)
    for rows, (_, test) in zip(seen, StratifiedKFold(3).split(X, y), strict=True):
        np.testing.assert_array_equal(rows, X[test])


def test_a_scorer_may_not_ask_for_other_rows_or_probabilities(two):
    def shuffled(model, X, y):
        return model.score(X[::-1], y[::-1])

    def likelihood(model, X, y):
        return model.predict_proba(X)[:, 1].mean()

    with pytest.raises(ValueError, match="scores of other rows than those that the fold holds out"):
        KernelSVCCV(**SMALL, scoring=shuffled).fit(*two)
    with pytest.raises(AttributeError, match="asks its model for 'predict_proba'"):
        KernelSVCCV(**SMALL, scoring=likelihood).fit(*two)


def test_weights_reach_several_scorers_under_metadata_routing(two):
    weight = np.arange(len(two[1])) % 3 + 1.0
    expected = KernelSVCCV(**SMALL, scoring=["f1", "accuracy"]).fit(*two, sample_weight=weight)
    with config_context(enable_metadata_routing=True):
        model = KernelSVCCV(**SMALL, scoring=["f1", "accuracy"]).fit(*two, sample_weight=weight)
    np.testing.assert_array_equal(model.scores_, expected.scores_)


# -- folds, weights and classes --------------------------------------------------------------------------------------


def test_groups_stay_together(two):
    X, y = two
    groups = np.arange(len(y)) % 7
    ours = KernelSVCCV(**SMALL, cv=GroupKFold(3)).fit(X, y, groups=groups)
    theirs = GridSearchCV(SVC(tol=1e-7), GRID, cv=GroupKFold(3)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(ours.scores_, splits(theirs, 3))


def test_folds_may_be_pairs_of_numbers_or_masks(two):
    X, y = two
    folds = list(StratifiedKFold(3).split(X, y))
    masks = [tuple(np.isin(np.arange(len(y)), rows) for rows in fold) for fold in folds]
    by_number, by_mask, by_splitter = (KernelSVCCV(**SMALL, cv=cv).fit(X, y) for cv in (folds, masks, 3))
    np.testing.assert_array_equal(by_number.scores_, by_mask.scores_)
    np.testing.assert_array_equal(by_number.scores_, by_splitter.scores_)


def test_classes_are_balanced_in_every_fold(two):
    X, y = two
    few = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:40]]
    ours = KernelSVCCV(**EASY, class_weight="balanced").fit(X[few], y[few])
    theirs = by_libsvm(X[few], y[few], estimator=SVC(tol=1e-7, class_weight="balanced"), grid=UNIQUE)
    np.testing.assert_array_equal(ours.scores_, splits(theirs))


def test_a_weight_is_a_number_of_copies(two):
    X, y = two
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    groups = np.arange(len(y)) % 4
    copies = np.repeat(np.arange(len(y)), weight)
    weighted = KernelSVCCV(**SMALL, cv=list(LeaveOneGroupOut().split(X, y, groups)))
    repeated = KernelSVCCV(**SMALL, cv=list(LeaveOneGroupOut().split(X[copies], y[copies], groups[copies])))
    weighted.fit(X, y, sample_weight=weight)
    repeated.fit(X[copies], y[copies])
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, rtol=1e-12)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3)


def test_rows_of_weight_0_may_have_any_label(two):
    X, y = two
    labels, weight = np.where(np.arange(len(y)) < 10, "other", np.array(["no", "yes"])[y]), np.ones(len(y))
    weight[:10] = 0
    model = KernelSVCCV(Cs=[1.0], gammas=[0.1], cv=3, refine=False).fit(X, labels, sample_weight=weight)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.support_.min() >= 10


# -- grids and the choice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, None])
def test_rows_of_weight_0_take_no_places_in_folds(two, cv):
    X, y = two
    weight = np.ones(len(y))
    weight[np.flatnonzero(y == 1)[6:]] = 0
    options = {**SMALL, "cv": cv}
    there, absent = KernelSVCCV(**options).fit(X, y, weight), KernelSVCCV(**options).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(there.scores_, absent.scores_)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_intercepts_of_balanced_classes_are_not_left_to_rounding(kernel):
    """At a small C all rows have the largest coefficient, and the loss is flat in the intercept."""
    X, y = make_classification(120, 5, flip_y=0.1, weights=[0.63], random_state=0)
    X, folds = scale(X), list(StratifiedKFold(5).split(X, y))
    options = {"Cs": [0.01], "class_weight": "balanced", "kernel": kernel, "refine": False}
    options |= {"gammas": [1.0]} if kernel == "rbf" else {}
    order = np.random.default_rng(0).permutation(len(y))
    place = np.argsort(order)
    one = KernelSVCCV(**options, cv=folds).fit(X, y)
    other = KernelSVCCV(**options, cv=[(place[a], place[b]) for a, b in folds]).fit(X[order], y[order])
    np.testing.assert_array_equal(one.scores_, other.scores_)
    np.testing.assert_allclose(one.intercept_, other.intercept_, atol=2e-3)  # what tol leaves
    assert one.scores_.mean() > 0.85


def test_a_grid_of_gammas_is_around_the_scale_of_the_rows(two):
    X, _ = two
    ones = np.ones(len(X))
    gammas, again = grid_of_gammas(5, "rbf", X, ones), grid_of_gammas(5, "rbf", 10 * X, ones)
    np.testing.assert_allclose(again, gammas / 100)
    np.testing.assert_allclose(gammas[4] / gammas[0], 100)
    differences = X[:, None] - X
    squares = (differences**2).sum(axis=2)[np.triu_indices(len(X), 1)]
    assert gammas[2] == pytest.approx(1 / np.median(squares), rel=0.01)
    copies = np.repeat(np.arange(100), 2)
    weighted = grid_of_gammas(3, "rbf", X[:100], 2 * ones[:100])
    np.testing.assert_allclose(weighted, grid_of_gammas(3, "rbf", X[copies], ones[copies]))


def test_points_around_the_best_one_are_tried(two):
    coarse = KernelSVCCV(Cs=[0.1, 1.0, 10.0], gammas=[0.01, 0.1, 1.0], cv=3, refine=False).fit(*two)
    fine = KernelSVCCV(Cs=[0.1, 1.0, 10.0], gammas=[0.01, 0.1, 1.0], cv=3).fit(*two)
    best, new = coarse.best_params_, fine.cv_results_["params"][9:]
    assert fine.cv_results_["params"][:9] == coarse.cv_results_["params"]
    assert len(new) == 8
    for name in ("C", "gamma"):
        near = [best[name] / 10**0.5, best[name], best[name] * 10**0.5]
        assert all(np.isclose(each[name], near).any() for each in new)
    assert fine.best_score_ >= coarse.best_score_


def test_one_value_has_no_neighbours():
    assert len(around(np.array([2.0]), 2.0)) == 0
    np.testing.assert_allclose(around(np.array([1.0, 4.0, 100.0]), 4.0), [2.0, 20.0])
    np.testing.assert_allclose(around(np.array([1.0, 4.0]), 4.0), [2.0, 8.0])


def test_refinement_goes_at_most_half_a_decade_beyond_a_grid():
    np.testing.assert_allclose(around(np.array([0.01, 1000.0]), 1000.0), [10**0.5, 10**3.5])
    np.testing.assert_allclose(around(np.array([0.01, 1000.0]), 0.01), [10**-2.5, 10**0.5])


def test_one_standard_error_takes_the_widest_margin_near_the_best(two):
    best, wide = (KernelSVCCV(**SMALL, selection=rule).fit(*two) for rule in ("best", "one-standard-error"))
    error = best.scores_[best.best_index_].std(ddof=1) / np.sqrt(5)
    assert wide.best_score_ >= best.best_score_ - error

    def norm(model):
        coef = model.dual_coef_[0]
        return coef @ rbf_kernel(model.support_vectors_, gamma=model.kernel_.gamma) @ coef

    assert norm(wide) <= norm(best) * (1 + 1e-6)


# -- limits ----------------------------------------------------------------------------------------------------------


RACE = {"Cs": [1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0], "gammas": [0.01, 0.1, 1.0, 10.0], "refine": False}


@pytest.mark.parametrize("weights", [None, [0.85]], ids=["balanced", "unbalanced"])
def test_values_of_c_beyond_a_clear_fall_are_skipped_and_the_choice_is_the_same(weights):
    X, y = make_classification(400, 8, n_informative=4, flip_y=0.2, weights=weights, random_state=3)
    full, race = KernelSVCCV(**RACE, skip=False).fit(X, y), KernelSVCCV(**RACE).fit(X, y)
    assert race.best_params_ == full.best_params_
    assert "skipped" not in full.cv_results_["state"]
    is_skipped = race.cv_results_["state"] == "skipped"
    assert is_skipped.any()
    assert np.isnan(race.scores_[is_skipped]).all()
    np.testing.assert_array_equal(race.scores_[~is_skipped], full.scores_[~is_skipped])
    # Only the largest values of a gamma; those with the scores of the larger class come before the rise, and are tried.
    for line in is_skipped.reshape(8, 4).T:
        assert (np.diff(line.astype(int)) >= 0).all()
        assert not line[:5].any()


def test_nothing_is_skipped_where_two_folds_prove_nothing():
    X, y = make_classification(400, 8, n_informative=4, flip_y=0.2, random_state=3)
    assert "skipped" not in KernelSVCCV(**RACE, cv=2).fit(X, y).cv_results_["state"]


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_what_is_skipped_does_not_depend_on_the_number_of_threads(multi_class):
    X, y = make_classification(500, 8, n_informative=6, n_classes=3, flip_y=0.1, random_state=4)
    found = []
    for n in (1, 3):
        with cores.at_most(n):
            model = KernelSVCCV(**{**RACE, "Cs": RACE["Cs"][3:]}, multi_class=multi_class).fit(X, y)
        found.append((model.scores_, model.cv_results_["state"]))
    assert "skipped" in found[0][1]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_scores_do_not_depend_on_the_number_of_threads(three):
    found = []
    for n in (1, 3):
        with cores.at_most(n):
            found.append(KernelSVCCV(Cs=3, gammas=2, cv=3, multi_class="rest").fit(*three))
    np.testing.assert_array_equal(found[0].scores_, found[1].scores_)
    np.testing.assert_array_equal(found[0].cv_results_["gap"], found[1].cv_results_["gap"])
    np.testing.assert_array_equal(found[0].dual_coef_, found[1].dual_coef_)


def test_a_search_without_time_has_a_model_all_the_same(two):
    with pytest.warns(ConvergenceWarning, match="9 of 9 points were not tried"):
        model = KernelSVCCV(**{**SMALL, "tol": 1e-3}, max_time=1e-9).fit(*two)
    assert np.isnan(model.best_score_)
    assert (model.cv_results_["state"] == "not tried").all()
    assert model.best_params_ == {"C": 1.0, "gamma": 0.2}  # in the middle
    model.predict(two[0])


def test_a_search_that_runs_out_of_time_chooses_among_the_points_that_were_tried(two, monkeypatch):
    class Counted:
        """Each look at the clock takes a second."""

        now = 0.0

        @classmethod
        def monotonic(cls):
            cls.now += 1.0
            return cls.now

    monkeypatch.setattr(_searching, "time", Counted)
    with pytest.warns(ConvergenceWarning, match="of 9 points were not tried on all folds"):
        model = KernelSVCCV(**SMALL, max_time=80.0).fit(*two)
    means = model.cv_results_["mean_test_score"]
    assert 0 < np.isnan(means).sum() < 9
    assert model.best_score_ == np.nanmax(means)
    is_tried = model.cv_results_["state"] != "not tried"
    np.testing.assert_array_equal(is_tried, ~np.isnan(means))
    np.testing.assert_array_equal(model.scores_[is_tried], KernelSVCCV(**SMALL).fit(*two).scores_[is_tried])


def test_ctrl_c_ends_the_search_and_the_best_so_far_is_fitted(two, monkeypatch):
    monkeypatch.setattr(pauses, "WORK", 100.0)
    monkeypatch.setattr(run_module, "_ASK_INTERVAL", -1.0)
    calls, fit = 0, KernelSVCCV._solve

    def is_pressed(interruption):
        nonlocal calls
        calls += 1
        return calls > 200

    def final_fit(self, *arguments):
        monkeypatch.setattr(Interruption, "__bool__", lambda interruption: False)
        return fit(self, *arguments)

    monkeypatch.setattr(Interruption, "__bool__", is_pressed)
    monkeypatch.setattr(KernelSVCCV, "_solve", final_fit)
    with pytest.warns(InterruptedFitWarning, match="were not tried"):
        model = KernelSVCCV(Cs=20, gammas=8, cv=3, refine=False).fit(*two)
    assert model.stop_reason_ == "gap"
    n_missing = np.isnan(model.cv_results_["mean_test_score"]).sum()
    assert 0 < n_missing < 160
    assert not np.isnan(model.best_score_)


# -- bad input -------------------------------------------------------------------------------------------------------


def no_kernel(*arguments, **options):
    raise AssertionError("a kernel value was asked for")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"Cs": []}, r"Cs=\[\] must be a number of values, or a list of positive"),
        ({"Cs": [1.0, -1.0]}, "must be a number of values, or a list of positive"),
        ({"gammas": [0.0]}, "must be a number of values, or a list of positive"),
        ({"gammas": ["scale"]}, "must be a number of values, or a list of positive"),
        ({"gammas": [np.inf]}, "must be a number of values, or a list of positive"),
        ({"Cs": [1.0, np.nan]}, "must be a number of values, or a list of positive"),
        ({"gammas": np.array([])}, "must be a number of values, or a list of positive"),
        ({"gammas": [None]}, "must be a number of values, or a list of positive"),
        ({"Cs": 0}, "The 'Cs' parameter of KernelSVCCV must be"),
        ({"Cs": None}, "The 'Cs' parameter of KernelSVCCV must be"),
        ({"gammas": "scale"}, "The 'gammas' parameter of KernelSVCCV must be"),
        ({"gammas": -2}, "The 'gammas' parameter of KernelSVCCV must be"),
        ({"cv": 1}, "The 'cv' parameter of KernelSVCCV must be"),
        ({"cv": 61}, "cv=61 needs at least as many rows of every class, and class ant has 60"),
        ({"cv": []}, "gives no folds"),
        ({"cv": [(np.arange(170), np.arange(160, 180))]}, "Fold 0 holds out rows that it trains on"),
        ({"cv": [(np.arange(170), np.arange(500, 501))]}, "names row 500, and there are 180 rows"),
        ({"cv": [(np.arange(-2, 170), np.arange(170, 180))]}, "names row -2, and there are 180 rows"),
        ({"cv": [(np.arange(170) + 0.5, np.arange(170, 180))]}, "must be row numbers or a mask"),
        ({"cv": [(np.ones(170, bool), np.ones(170, bool))]}, "A mask of cv has 170 entries, and there are 180 rows"),
        (
            {"cv": [(np.arange(60), np.arange(60, 180))]},
            r"The training rows of fold 0 lack the classes \['bee', 'cat'\]",
        ),
        ({"cv": [(np.arange(180), np.arange(0))]}, "Fold 0 holds out no rows"),
        ({"scoring": "neg_log_loss"}, "needs probabilities, which support vector machines do not have"),
        ({"scoring": ["accuracy", "neg_brier_score"]}, "needs probabilities"),
        ({"scoring": {"auc": "roc_auc_ovr"}}, "needs probabilities"),
        ({"scoring": "f1"}, "does not suit these labels .Target is multiclass but average='binary'"),
        ({"scoring": "roc_auc"}, "scoring='roc_auc' does not suit these labels .*choose another scorer, such as"),
        ({"Cs": [1.0, 1e60]}, r"C=1e\+60 cannot weight the loss"),
        ({"kernel": "precomputed"}, "needs a square X.* X has 180 rows and 2 columns"),
        ({"kernel": lambda X, Z: np.full((len(X), len(Z)), np.nan)}, "The kernel of a row with itself is not finite"),
        ({"scoring": "no such score"}, "The 'scoring' parameter|not a valid scoring"),
        ({"scoring": []}, "Empty|The 'scoring' parameter"),
        ({"kernel": "linear", "gammas": [1.0]}, "has no effect with kernel='linear'"),
        ({"selection": "worst"}, "The 'selection' parameter of KernelSVCCV must be"),
    ],
)
def test_bad_input_is_refused_before_any_kernel_value(options, text, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", no_kernel)
    X, y = np.random.default_rng(0).normal(size=(180, 2)), np.repeat(["ant", "bee", "cat"], 60)
    with pytest.raises(ValueError, match=text):
        KernelSVCCV(**options).fit(X, y)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scoring": "roc_auc", "cv": KFold(3)}, r"of the rows that fold 0 holds out is nan, .* the classes \['no'\]"),
        ({"scoring": "f1"}, "pos_label=1 is not a valid label"),
    ],
)
def test_metrics_without_a_value_are_refused_before_any_kernel_value(options, text, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", no_kernel)
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.repeat(["no", "yes", "no"], [30, 20, 10])
    with pytest.raises(ValueError, match=text):
        KernelSVCCV(**options).fit(X, y)


def test_given_kernel_values_are_symmetric(two, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", no_kernel)
    values = rbf_kernel(two[0])
    with pytest.raises(ValueError, match="needs a symmetric X, and two values of the same pair of rows differ by 1"):
        KernelSVCCV(kernel="precomputed").fit(values + np.triu(np.ones_like(values)), two[1])


def test_groups_are_as_many_as_rows(two, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", no_kernel)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        KernelSVCCV(cv=GroupKFold(3)).fit(*two, groups=np.zeros(7))
    with pytest.raises(ValueError, match="The 'groups' parameter should not be None"):
        KernelSVCCV(cv=GroupKFold(3)).fit(*two)


def test_scores_that_are_nan_are_lower_than_all_others(two):
    def sometimes(model, X, y):
        return np.nan if np.ptp(model.decision_function(X)) < 1.0 else accuracy_score(y, model.predict(X))

    with pytest.warns(UserWarning, match="of 9 points have scores that are not finite"):
        model = KernelSVCCV(**SMALL, scoring=sometimes, selection="one-standard-error").fit(*two)
    means = model.cv_results_["mean_test_score"]
    assert np.isnan(means).any()
    assert np.isfinite(model.best_score_)
    with pytest.warns(UserWarning, match="9 of 9 points have scores that are not finite"):
        nothing = KernelSVCCV(**SMALL, scoring=lambda model, X, y: np.nan).fit(*two)
    assert np.isnan(nothing.best_score_)


def test_a_scorer_without_weights_is_refused_where_there_are_weights(two, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", no_kernel)
    scorer = make_scorer(lambda y, predicted: float(np.mean(y == predicted)))
    with pytest.raises(ValueError, match="takes no sample_weight"):
        KernelSVCCV(scoring=scorer).fit(*two, sample_weight=np.ones(len(two[1])))


def test_one_class_is_refused(two):
    with pytest.raises(ValueError, match="KernelSVCCV needs at least 2 classes"):
        KernelSVCCV().fit(two[0], np.zeros(len(two[1])))


# -- as an estimator -------------------------------------------------------------------------------------------------


def test_a_model_is_cloned_pickled_and_saved(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = KernelSVCCV(Cs=3, gammas=2, cv=3).fit(scale(X), y)
    assert clone(model).get_params() == model.get_params()
    save(model, tmp_path / "model.wm")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.wm")):
        np.testing.assert_array_equal(again.predict(scale(X)), model.predict(scale(X)))
        assert again.best_params_ == model.best_params_
        assert again.gamma == model.best_params_["gamma"]
        np.testing.assert_array_equal(again.scores_, model.scores_)
        assert list(again.cv_results_) == list(model.cv_results_)
        assert again.cv_results_["params"] == model.cv_results_["params"]
        for name, column in model.cv_results_.items():
            assert type(again.cv_results_[name]) is type(column), name
            np.testing.assert_array_equal(again.cv_results_[name], column)


def test_a_table_of_one_point_is_saved(two, tmp_path):
    model = KernelSVCCV(Cs=[1.0], cv=3, kernel="linear", refine=False, scoring=["accuracy", "f1"]).fit(*two)
    save(model, tmp_path / "model.wm")
    again = load(tmp_path / "model.wm")
    assert again.cv_results_["params"] == [{"C": 1.0}]
    assert again.cv_results_["mean_test_f1"] == model.cv_results_["mean_test_f1"]


@pytest.mark.parametrize(
    "change",
    [
        {"params": [{"C": 1.0}]},
        {"params": [{"C": "1"}, {"C": 2.0}]},
        {"gap": np.zeros(3)},
        {"state": ["certified", "certified"]},
        {"n_support": np.ones((2, 1))},
    ],
)
def test_a_table_that_does_not_belong_to_the_model_is_refused(two, tmp_path, change):
    model = KernelSVCCV(Cs=[1.0, 2.0], cv=3, kernel="linear", refine=False).fit(*two)
    model.cv_results_.update(change)
    with pytest.raises(ModelFileError, match="cv_results_ of KernelSVCCV is no table of 2 points"):
        save(model, tmp_path / "model.wm")


def test_a_share_of_free_memory_is_used():
    assert 1 << 20 < free_bytes() < 1 << 50


def test_values_of_another_gamma_leave_nothing_behind(two):
    """Their memory is used again; the values between a row and itself depend on gamma for kernels of inner products."""
    options = {"kernel": "poly", "Cs": [0.1, 1.0], "gammas": [0.02, 0.1], "cv": 4, "refine": False, "tol": 1e-5}
    model = KernelSVCCV(**options).fit(*two)
    grid = {"C": options["Cs"], "gamma": options["gammas"]}
    twin = GridSearchCV(SVC(kernel="poly", coef0=0.0, tol=1e-6), grid, cv=4).fit(*two)
    np.testing.assert_allclose(model.cv_results_["mean_test_score"], twin.cv_results_["mean_test_score"], atol=0.01)
