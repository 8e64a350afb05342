"""NuMarginSVCCV and MarginDistributionSVCCV: as a grid search over fits, infeasible points, limits and bad input."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut

from tests.estimators.test_kernel_cv_frame import FailAtPoint, Recorder, assert_same_search, on_threads
from widemargin import (
    InterruptedFitWarning,
    MarginDistributionSVC,
    MarginDistributionSVCCV,
    NuMarginSVC,
    NuMarginSVCCV,
    cores,
    load,
    max_nu,
    report,
    save,
)
from widemargin.callbacks import Interruption
from widemargin.comm.threads import on_ranks
from widemargin.engines._plan import split_rows
from widemargin.estimators import _search, _searching
from widemargin.solvers import run as run_module
from widemargin.strategies import search_crew, search_files
from widemargin.strategies.fold_paths import FoldPaths, _Path
from widemargin.strategies.protocol import Rows

TIGHT = 1e-8  # so that no prediction depends on what the gap leaves open
NUS = [0.6, 0.7, 0.85]
GRID = {"C": [1e2, 1e4], "gamma": [0.02, 0.2]}
NU = {"nus": NUS, "refine": False, "tol": TIGHT}
KERNEL = {"Cs": GRID["C"], "gammas": GRID["gamma"], "refine": False, "tol": TIGHT}
LINEAR = {"Cs": GRID["C"], "kernel": "linear", "refine": False, "tol": TIGHT}
CASES = [
    pytest.param(NuMarginSVCCV(**NU), NuMarginSVC(tol=TIGHT), {"nu": NUS}, id="nu"),
    pytest.param(MarginDistributionSVCCV(**KERNEL), MarginDistributionSVC(tol=TIGHT), GRID, id="rbf"),
    pytest.param(
        MarginDistributionSVCCV(**LINEAR),
        MarginDistributionSVC(tol=TIGHT, kernel="linear"),
        {"C": GRID["C"]},
        id="linear",
    ),
]
each_case = pytest.mark.parametrize(("model", "base", "grid"), CASES)
each_model = pytest.mark.parametrize("model", [pytest.param(case.values[0], id=case.id) for case in CASES])


@pytest.fixture(scope="module")
def two():
    return make_classification(200, 6, n_informative=4, class_sep=1.5, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(210, 6, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.05, random_state=1)
    return X, np.array(["ant", "bee", "cat"])[y]


def splits(search, n_folds=5):
    return np.stack([search.cv_results_[f"split{k}_test_score"] for k in range(n_folds)], axis=1)


def fitted(model, *data, **options):
    """A fitted copy."""
    return clone(model).fit(*data, **options)


# -- scores ----------------------------------------------------------------------------------------------------------


@each_case
def test_scores_and_the_table_are_those_of_a_grid_search(two, model, base, grid):
    ours, theirs = fitted(model, *two), GridSearchCV(base, grid).fit(*two)
    np.testing.assert_allclose(ours.scores_, splits(theirs), atol=1e-9)
    np.testing.assert_array_equal(ours.cv_results_["rank_test_score"], theirs.cv_results_["rank_test_score"])
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    for mine, other in zip(ours.cv_results_["params"], theirs.cv_results_["params"], strict=True):
        assert other.items() <= mine.items()
    assert set(theirs.cv_results_) <= set(ours.cv_results_)
    assert (ours.cv_results_["state"] == "certified").all()
    assert (ours.cv_results_["gap"] <= TIGHT).all()
    assert np.isnan(ours.cv_results_["n_support"]).all() == ("linear" in ours.get_params().values())


@each_case
def test_scores_of_several_classes(three, model, base, grid):
    ours, theirs = fitted(model, *three), GridSearchCV(base, grid).fit(*three)
    np.testing.assert_allclose(ours.scores_, splits(theirs), atol=1e-9)
    alone = clone(base).set_params(**ours.best_params_).fit(*three)
    np.testing.assert_array_equal(ours.predict(three[0]), alone.predict(three[0]))


@each_case
def test_the_final_model_is_that_of_a_fit_at_the_best_point(two, model, base, grid):
    ours, alone = fitted(model, *two), clone(base)
    alone.set_params(**ours.best_params_).fit(*two)
    assert ours.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=1e-7)
    np.testing.assert_allclose(ours.decision_function(two[0]), alone.decision_function(two[0]), atol=1e-3)
    assert set(vars(alone)) - set(vars(ours)) <= set(alone.get_params())


def test_all_parameters_of_the_margin_distribution_may_vary(two):
    grid = {"C": [1e3], "deadband": [0.0, 0.3], "overshoot_weight": [0.0, 1.0], "gamma": [0.1]}
    ours = MarginDistributionSVCCV(
        Cs=[1e3], gammas=[0.1], deadbands=[0.3, 0.0], overshoot_weights=[0.0, 1.0], refine=False, tol=TIGHT
    )
    theirs = GridSearchCV(MarginDistributionSVC(tol=TIGHT), grid).fit(*two)
    np.testing.assert_allclose(ours.fit(*two).scores_, splits(theirs), atol=1e-9)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    assert (ours.deadband, ours.overshoot_weight) == tuple(
        ours.best_params_[name] for name in ("deadband", "overshoot_weight")
    )


@pytest.mark.parametrize("cache_size", ["auto", 0.1])
def test_room_and_storage_do_not_matter(three, cache_size):
    X, y = three
    ours = MarginDistributionSVCCV(**KERNEL).fit(X, y)
    for rows in (X, sp.csr_matrix(X)):
        other = MarginDistributionSVCCV(**KERNEL, cache_size=cache_size).fit(rows, y)
        np.testing.assert_array_equal(ours.scores_, other.scores_)
        np.testing.assert_allclose(ours.decision_function(X), other.decision_function(rows), atol=1e-3)


@each_model
def test_float32_and_sparse_rows(two, model):
    X, y = two
    ours = fitted(model, X, y)
    for rows in (sp.csr_matrix(X), X.astype(np.float32)):
        model = clone(model).set_params(tol=1e-6)
        other = fitted(model, rows, y)
        assert np.abs(ours.scores_ - other.scores_).max() <= 1 / 40 + 1e-9  # one row of a fold
    np.testing.assert_array_equal(ours.scores_, fitted(clone(model).set_params(tol=TIGHT), sp.csr_matrix(X), y).scores_)


def test_given_values_and_functions_are_kernels_too(two):
    X, y = two
    options = {"Cs": GRID["C"], "refine": False, "tol": TIGHT}
    named = MarginDistributionSVCCV(gammas=[0.2], **options).fit(X, y)
    given = MarginDistributionSVCCV(kernel="precomputed", **options).fit(rbf_kernel(X, gamma=0.2), y)
    function = MarginDistributionSVCCV(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.2), **options).fit(X, y)
    np.testing.assert_array_equal(named.scores_, given.scores_)
    np.testing.assert_array_equal(named.scores_, function.scores_)


@each_model
def test_the_first_of_several_scorers_decides(two, model):
    ours = fitted(clone(model).set_params(scoring=["roc_auc", "balanced_accuracy"]), *two)
    assert ours.best_score_ == ours.cv_results_["mean_test_roc_auc"].max()
    assert "rank_test_balanced_accuracy" in ours.cv_results_


# -- folds, weights and classes --------------------------------------------------------------------------------------


@each_case
def test_groups_stay_together_and_classes_are_balanced(two, model, base, grid):
    X, y = two
    groups = np.arange(len(y)) % 7
    model = clone(model).set_params(cv=GroupKFold(3), class_weight="balanced")
    base = clone(base).set_params(class_weight="balanced")
    theirs = GridSearchCV(base, grid, cv=GroupKFold(3)).fit(X, y, groups=groups)
    np.testing.assert_allclose(model.fit(X, y, groups=groups).scores_, splits(theirs, 3), atol=1e-9)


@each_model
def test_a_weight_is_a_number_of_copies(two, model):
    X, y = two
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    groups, copies = np.arange(len(y)) % 4, np.repeat(np.arange(len(y)), weight)
    labels = np.where(weight > 0, y, 7)  # of rows that are left out
    weighted = clone(model).set_params(cv=list(LeaveOneGroupOut().split(X, y, groups)))
    repeated = clone(model).set_params(cv=list(LeaveOneGroupOut().split(X[copies], y[copies], groups[copies])))
    weighted.fit(X, labels, sample_weight=weight)
    repeated.fit(X[copies], y[copies])
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, rtol=1e-12)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3)


# -- grids and the choice --------------------------------------------------------------------------------------------


def test_a_nu_that_is_too_large_for_a_fold_is_marked(two):
    X, y = two
    few = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:62]]
    X, y = X[few], y[few]
    largest = max_nu(y)
    model = NuMarginSVCCV(nus=[0.7, largest, 0.99], refine=False, tol=TIGHT).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GridSearchCV(NuMarginSVC(tol=TIGHT), {"nu": [0.7, largest, 0.99]}).fit(X, y)
    np.testing.assert_allclose(model.scores_[0], splits(theirs)[0], atol=1e-9)
    assert np.isnan(splits(theirs)[1:]).any(axis=1).all()
    assert model.cv_results_["state"].tolist() == ["certified", "infeasible", "infeasible"]
    assert np.isnan(model.scores_[1:]).all()
    assert model.best_params_ == {"nu": 0.7}


def test_overlapping_hulls_are_marked_and_chosen_last(two):
    X, y = two
    model = NuMarginSVCCV(nus=[0.01, 0.05, 0.6], refine=False).fit(X, y)
    assert model.cv_results_["state"].tolist() == ["overlap", "overlap", "certified"]
    assert model.best_params_ == {"nu": 0.6}
    with pytest.warns(UserWarning, match="overlap"):
        model = NuMarginSVCCV(nus=[0.01, 0.05], refine=False).fit(X, y)
    assert np.isfinite(model.best_score_)


def test_a_grid_of_nus_is_feasible_on_all_folds(three):
    X, y = three
    for rows, labels in ((X, y), (100 * X + 7, y), make_blobs(90, 5, centers=3, cluster_std=0.1, random_state=0)):
        model = NuMarginSVCCV(nus=4).fit(rows, labels)
        nus = model.cv_results_["param_nu"].data.astype(float)
        assert nus.max() <= max_nu(labels) + 1e-12
        assert "infeasible" not in model.cv_results_["state"]
        assert "certified" in model.cv_results_["state"]
        assert model.stop_reason_ == "gap"
        assert len(nus) in (5, 6)


def test_points_around_the_best_one_are_tried(two):
    options = {"Cs": [1e2, 1e3, 1e4], "gammas": [0.02, 0.2], "cv": 3}
    coarse = MarginDistributionSVCCV(**options, refine=False).fit(*two)
    fine = MarginDistributionSVCCV(**options).fit(*two)
    assert fine.cv_results_["params"][:6] == coarse.cv_results_["params"]
    assert len(fine.cv_results_["params"]) == 6 + 8
    assert fine.best_score_ >= coarse.best_score_
    assert fine.cost_.kernel_evaluations > coarse.cost_.kernel_evaluations


@each_model
def test_one_standard_error_takes_the_smallest_norm_near_the_best(two, model):
    best, wide = (fitted(clone(model).set_params(selection=rule), *two) for rule in ("best", "one-standard-error"))
    error = best.scores_[best.best_index_].std(ddof=1) / np.sqrt(5)
    assert wide.best_score_ >= best.best_score_ - error

    def norm(model):
        if hasattr(model, "coef_"):
            return np.linalg.norm(model.coef_)
        coef = model.dual_coef_[0]
        return np.sqrt(coef @ rbf_kernel(model.support_vectors_, gamma=model.gamma) @ coef)

    assert norm(wide) <= norm(best) * (1 + 1e-6)


# -- limits ----------------------------------------------------------------------------------------------------------


@each_model
def test_scores_do_not_depend_on_the_number_of_threads(three, model):
    found = []
    for n in (1, 3):
        with cores.at_most(n):
            found.append(fitted(clone(model).set_params(tol=1e-3, refine=True, cv=3), *three))
    np.testing.assert_array_equal(found[0].scores_, found[1].scores_)
    np.testing.assert_array_equal(found[0].cv_results_["gap"], found[1].cv_results_["gap"])
    np.testing.assert_array_equal(found[0].decision_function(three[0]), found[1].decision_function(three[0]))


@each_model
def test_a_search_without_time_has_a_model_all_the_same(two, model):
    model = clone(model).set_params(tol=1e-3, max_time=1e-9)
    n = len(NUS) if isinstance(model, NuMarginSVCCV) else 4 if model.kernel == "rbf" else 2
    with pytest.warns(ConvergenceWarning, match=f"{n} of {n} points were not tried"):
        model.fit(*two)
    assert np.isnan(model.best_score_)
    assert (model.cv_results_["state"] == "not tried").all()
    model.predict(two[0])


@each_model
def test_a_search_that_runs_out_of_time_chooses_among_the_points_that_were_tried(two, model, monkeypatch):
    class Counted:
        """Each look at the clock takes a second."""

        now = 0.0

        @classmethod
        def monotonic(cls):
            cls.now += 1.0
            return cls.now

    monkeypatch.setattr(_searching, "time", Counted)
    with cores.at_most(1):
        everything = fitted(clone(model).set_params(max_time=1e9), *two)
        enough = 0.6 * Counted.now
        with pytest.warns(ConvergenceWarning, match="points were not tried on all folds"):
            some = fitted(clone(model).set_params(max_time=enough), *two)
    is_tried = some.cv_results_["state"] != "not tried"
    assert 0 < is_tried.sum() < len(is_tried)
    np.testing.assert_array_equal(is_tried, ~np.isnan(some.scores_).any(axis=1))
    np.testing.assert_array_equal(some.scores_[is_tried], everything.scores_[is_tried])


@each_model
def test_ctrl_c_ends_the_search_and_a_model_is_fitted(two, model, monkeypatch):
    fit = type(model)._solve

    def final_fit(self, *arguments):
        monkeypatch.setattr(Interruption, "__bool__", lambda interruption: False)
        return fit(self, *arguments)

    monkeypatch.setattr(Interruption, "__bool__", lambda interruption: True)
    monkeypatch.setattr(type(model), "_solve", final_fit)
    with pytest.warns(InterruptedFitWarning, match="were not tried"):
        model = fitted(model, *two)
    assert model.stop_reason_ == "gap"


# -- within the frame ------------------------------------------------------------------------------------------------


@each_model
def test_a_progress_line_counts_points_and_callbacks_hear_of_them(two, model, capsys):
    recorder = Recorder()
    model = clone(model).set_params(tol=1e-3, verbose=1).set_callbacks(recorder).fit(*two)
    n_points = len(model.scores_)
    assert f"point {n_points} of {n_points}" in capsys.readouterr().err
    assert recorder.ended.count("point") == n_points
    assert recorder.ended.count("search") == 1
    assert model.spread_ == "none"


@each_model
def test_a_callback_may_end_the_search(three, model, monkeypatch):
    monkeypatch.setattr(search_crew, "_INTERVAL", 0.0)
    model = clone(model).set_params(tol=1e-3).set_callbacks(Recorder(1)).fit(*three)
    states = model.cv_results_["state"].tolist()
    assert "certified" in states
    assert "not tried" in states


@each_model
def test_a_search_that_ended_goes_on_and_gives_the_same(three, model, tmp_path, monkeypatch):
    model = clone(model).set_params(tol=1e-4, refine=True, cv=3)
    alone = fitted(model, *three)
    with monkeypatch.context() as patch:
        patch.setattr(search_crew, "_INTERVAL", 0.0)
        patch.setattr(run_module, "_ASK_INTERVAL", -1.0)
        with pytest.raises(RuntimeError, match="a crash"):
            clone(model).set_params(checkpoint=tmp_path).set_callbacks(FailAtPoint(2)).fit(*three)
    n_known = len([kept for state in search_files.load(tmp_path) for kept in state.fits])
    assert 0 < n_known < len(alone.scores_)
    assert_same_search(fitted(clone(model).set_params(checkpoint=tmp_path), *three), alone)
    monkeypatch.setattr(_Path, "advance", no_fit)  # now all of it is known
    assert_same_search(fitted(clone(model).set_params(checkpoint=tmp_path), *three), alone)


def test_a_point_without_time_for_kernel_values_is_not_that_before(two, tmp_path, monkeypatch):
    model = MarginDistributionSVCCV(Cs=[1e2, 1e4], gammas=[0.1], cv=3, refine=False, checkpoint=tmp_path)
    fitted(model, *two)
    state = search_files.load(tmp_path)[0]
    for path in sorted(tmp_path.glob("search*")):
        path.unlink()
    search_files.save(tmp_path, state._replace(fits=state.fits[:1]))
    monkeypatch.setattr(FoldPaths, "_has_values", lambda *_: False)
    assert fitted(model, *two).cv_results_["state"].tolist() == ["certified", "not tried"]


@each_model
def test_what_ranks_have_found_before_a_loss_is_not_fitted_again(three, model, monkeypatch):
    reports, rows = [], Rows(three[0], three[1], None)
    model = clone(model).set_params(tol=1e-3, cv=3)

    def search(comm, fits):
        program = _search.SearchOnRanks(model, None, True, _search.SearchResume([]), fits)
        return program.run_on_rank(split_rows(rows, 2)[comm.rank], comm, reports.append if comm.rank == 0 else None)

    first = on_ranks(2, lambda comm: search(comm, []))[0].searched.attributes
    fits = [kept for each in reports for kept in each.fits]
    assert len(fits) == len(first["scores_"])
    monkeypatch.setattr(_Path, "advance", no_fit)
    again = on_ranks(2, lambda comm: search(comm, fits))[0].searched.attributes
    np.testing.assert_array_equal(first["scores_"], again["scores_"])


@each_model
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda part: part._replace(scores=part.scores[1:]), "scores of other rows than its folds hold out"),
        (lambda part: part._replace(coef=part.coef[1:]), "coefficients of other rows or features"),
        (lambda part: part._replace(support=np.array([1000])), "support vectors that are no rows"),
        (lambda part: part._replace(coef=part.coef.astype(np.float32)), "wrong types or shapes"),
        (lambda part: part._replace(coef=part.coef * np.nan), "wrong types or shapes"),
        (lambda part: None, "parts of a KeptPoint is of a wrong type"),
    ],
)
def test_files_with_a_right_checksum_and_wrong_content_are_refused(two, model, tmp_path, change, text):
    model = clone(model).set_params(tol=1e-3, checkpoint=tmp_path)
    fitted(model, *two)
    state: Any = search_files.load(tmp_path)[0]
    for path in sorted(tmp_path.glob("search*")):
        path.unlink()
    damaged = [kept._replace(parts=[change(part) for part in kept.parts]) for kept in state.fits]
    search_files.save(tmp_path, state._replace(fits=damaged))
    with pytest.raises(ValueError, match=text):
        fitted(model, *two)


@each_model
def test_points_of_another_search_are_refused(two, model, tmp_path):
    model = clone(model).set_params(tol=1e-3, checkpoint=tmp_path)
    fitted(model, *two)
    for other, X in ((model, two[0] + 1.0), (clone(model).set_params(tol=1e-2), two[0])):
        with pytest.raises(ValueError, match="belongs to another search or to other data"):
            fitted(other, X, two[1])


@each_model
@pytest.mark.parametrize("n_ranks", [2, 3])
def test_ranks_find_what_one_process_finds(three, model, n_ranks):
    X, y = three
    weight, model = 1.0 + np.arange(len(y)) % 3, clone(model).set_params(refine=True, tol=1e-4, cv=3)
    expected, reports = fitted(model, X, y, sample_weight=weight), []
    for _, searched in on_threads(model, Rows(X, y, weight), n_ranks, watch=reports.append):
        assert searched.spread == "tasks"
        for name, column in expected.cv_results_.items():
            if "time" not in name:
                np.testing.assert_array_equal(column, searched.attributes["cv_results_"][name], err_msg=name)
    assert reports[-1].n_done == reports[-1].n_points == len(expected.scores_)


@each_model
def test_all_ranks_end_together_when_rank_0_is_told(three, model, monkeypatch):
    monkeypatch.setattr(search_crew, "_INTERVAL", 0.0)
    model = clone(model).set_params(tol=1e-3)
    outcomes = on_threads(model, Rows(three[0], three[1], None), 3, watch=lambda _: "interrupted")
    states = [outcome.searched.attributes["cv_results_"]["state"].tolist() for outcome in outcomes]
    assert states[0] == states[1] == states[2]
    assert "not tried" in states[0]
    assert all(outcome.results[0].stop_reason == "interrupted" for outcome in outcomes)


@each_model
def test_rows_that_no_rank_has_room_for_are_refused(two, model, monkeypatch):
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    with pytest.raises(ValueError, match="needs room for all rows on each rank"):
        on_threads(model, Rows(two[0], two[1], None), 2)


def test_a_grid_of_nus_is_found_together(three):
    model = NuMarginSVCCV(nus=3, refine=False, cv=3)
    expected = fitted(model, *three)
    for _, searched in on_threads(model, Rows(three[0], three[1], None), 2):
        assert searched.attributes["cv_results_"]["params"] == expected.cv_results_["params"]


# -- bad input -------------------------------------------------------------------------------------------------------


def no_fit(*arguments, **options):
    raise AssertionError("a problem was solved")


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (NuMarginSVCCV(nus=[]), r"nus=\[\] must be a number of values, or a list of positive"),
        (NuMarginSVCCV(nus=[0.5, 2.0]), r"must be a number of values, or a list of numbers in \(0, 1\]"),
        (NuMarginSVCCV(nus=0), "The 'nus' parameter of NuMarginSVCCV must be"),
        (NuMarginSVCCV(nus=[0.9, 1.0]), "No point of the grid is feasible on all folds: nu=1 is infeasible"),
        (NuMarginSVCCV(nus=[0.1], cv=41), "cv=41 needs at least as many rows of every class"),
        (NuMarginSVCCV(nus=[0.1], scoring="neg_log_loss"), "needs probabilities"),
        (NuMarginSVCCV(nus=[0.1], scoring="f1"), "pos_label=1 is not a valid label"),
        (MarginDistributionSVCCV(Cs=[-1.0]), "must be a number of values, or a list of positive"),
        (MarginDistributionSVCCV(gammas=["scale"]), "must be a number of values, or a list of positive"),
        (MarginDistributionSVCCV(deadbands=1.0), r"deadbands=1.0 must be a number or a list of numbers in \[0, 1\)"),
        (MarginDistributionSVCCV(overshoot_weights=[-1.0]), "must be a number or a list of numbers that are finite"),
        (MarginDistributionSVCCV(kernel="linear", gammas=[1.0]), "has no effect with kernel='linear'"),
        (MarginDistributionSVCCV(kernel="sigmoid"), "is no inner product"),
        (MarginDistributionSVCCV(selection="worst"), "The 'selection' parameter of MarginDistributionSVCCV must be"),
        (MarginDistributionSVCCV(kernel="precomputed"), "needs a square X"),
    ],
)
def test_bad_input_is_refused_before_any_fit(model, text, monkeypatch):
    monkeypatch.setattr(FoldPaths, "fits", no_fit)
    X, y = np.random.default_rng(0).normal(size=(120, 2)), np.repeat(["no", "yes"], [80, 40])
    with pytest.raises(ValueError, match=text):
        model.fit(X, y)


# -- as estimators ---------------------------------------------------------------------------------------------------


@each_model
def test_a_model_is_cloned_pickled_saved_and_reported(three, model, tmp_path):
    X, y = three
    model = fitted(clone(model).set_params(tol=1e-3), X, y)
    assert clone(model).get_params() == model.get_params()
    save(model, tmp_path / "model.wm")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.wm")):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.best_params_ == model.best_params_
        np.testing.assert_array_equal(again.scores_, model.scores_)
    assert "chosen by cross-validation" in report(model, X, y).html
