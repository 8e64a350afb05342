"""KernelSVCCV within the frame: progress, callbacks, Ctrl-C, checkpoints and ranks."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import make_scorer
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from widemargin import KernelSVCCV, NuMarginSVCCV, pauses
from widemargin.comm.threads import on_ranks
from widemargin.engines._plan import split_rows
from widemargin.estimators import _search, _searching
from widemargin.estimators._search import SearchOnRanks
from widemargin.solvers import run as run_module
from widemargin.strategies import search_crew, search_files
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import Folds, KernelFolds
from widemargin.strategies.selection_by_rows import KernelFoldsOfRanks

OPTIONS = {"Cs": [0.1, 1.0, 20.0, 300.0], "gammas": [0.02, 0.2], "cv": 3}


@pytest.fixture(scope="module")
def two():
    return make_classification(160, 6, n_informative=4, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(150, 6, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, random_state=1)
    return X, np.array(["ant", "bee", "cat"])[y]


@pytest.fixture(scope="module")
def alone(two):
    return KernelSVCCV(**OPTIONS).fit(*two)


def assert_same_search(one, other):
    assert one.best_params_ == other.best_params_
    assert list(one.cv_results_) == list(other.cv_results_)
    for name, column in one.cv_results_.items():
        if "time" not in name:
            np.testing.assert_array_equal(column, other.cv_results_[name], err_msg=name)


# -- progress and callbacks ------------------------------------------------------------------------------------------


class Recorder:
    """A callback that counts tasks, and asks to stop at the end of so many points."""

    def __init__(self, n_points=None):
        self.n_points, self.begun, self.ended = n_points, [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        self.begun.append(context.task_name)
        assert X is not None
        assert y is not None

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.ended.append(context.task_name)
        return self.n_points is not None and self.ended.count("point") >= self.n_points


def test_a_progress_line_counts_points_and_then_shows_the_final_fit(two, capsys):
    model = KernelSVCCV(**OPTIONS, verbose=1).fit(*two)
    lines = capsys.readouterr().err.splitlines()
    n_points = len(model.scores_)
    (last,) = [line for line in lines if f"point {n_points} of {n_points}" in line]
    assert f"best score {model.cv_results_['mean_test_score'].max():.4f}" in last
    assert "(tol 1e-03)" in last
    assert lines.index(last) < next(k for k, line in enumerate(lines) if "sweep" in line)


def test_without_verbose_nothing_is_shown(two, capsys):
    KernelSVCCV(**OPTIONS).fit(*two)
    assert capsys.readouterr() == ("", "")


def test_callbacks_hear_of_the_search_and_of_the_final_fit(two, alone):
    recorder = Recorder()
    model = KernelSVCCV(**OPTIONS).set_callbacks(recorder).fit(*two)
    assert_same_search(model, alone)
    assert recorder.begun.count("point") == recorder.ended.count("point") == len(model.scores_)
    for name in ("fit", "search", "classes"):
        assert recorder.begun.count(name) == recorder.ended.count(name) == 1, name
    assert recorder.ended.index("search") < recorder.begun.index("classes")
    assert "sweep" in recorder.ended


def test_a_callback_may_end_the_search(two):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelSVCCV(**OPTIONS).set_callbacks(Recorder(1)).fit(*two)
    is_tried = model.cv_results_["state"] != "not tried"
    assert 0 < is_tried.sum() < len(model.scores_)
    assert model.best_score_ == model.cv_results_["mean_test_score"][is_tried].max()


class SignalAtFirstPoint(Recorder):
    """A callback that sends a signal to its own process."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "point" and "point" not in self.ended:
            os.kill(os.getpid(), self.number)
        super().on_fit_task_end(estimator, context)


def long_search(number=None, **options):
    """A search in which a signal comes when some points are done."""
    X, y = make_classification(300, 10, n_informative=6, flip_y=0.2, random_state=0)
    grids = {"Cs": [0.1, 1.0, 10.0, 100.0], "gammas": [0.01, 0.03, 0.1, 0.3], "refine": False}
    model = KernelSVCCV(**grids, **options)
    return (model if number is None else model.set_callbacks(SignalAtFirstPoint(number))).fit(X, y)


PROGRAM = """
import json, sys, warnings
from tests.estimators.test_kernel_cv_frame import long_search
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    model = long_search(**json.loads(sys.argv[1]))
facts = {"state": model.cv_results_["state"].tolist(), "reason": model.stop_reason_, "best": model.best_score_}
print(json.dumps({**facts, "told": [f"{type(each.message).__name__} {each.message}" for each in told]}))
"""


def in_a_process(**options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)


def test_ctrl_c_ends_the_search_of_a_process_and_the_best_so_far_is_fitted():
    done = in_a_process(number=int(signal.SIGINT))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert 0 < facts["state"].count("not tried") < 16
    assert facts["reason"] == "gap"
    assert not np.isnan(facts["best"])
    assert any("InterruptedFitWarning The search of KernelSVCCV was interrupted" in each for each in facts["told"])


# -- checkpoints -----------------------------------------------------------------------------------------------------


def search_files_of(folder):
    return sorted(Path(folder).glob("search-*.checkpoint"))


def test_a_search_that_was_killed_goes_on_and_gives_the_same(tmp_path):
    done = in_a_process(number=int(signal.SIGKILL), checkpoint=str(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr
    known = {fits.name for state in search_files.load(tmp_path) for fits in state.fits}
    alone, again = long_search(), long_search(checkpoint=tmp_path)
    assert_same_search(alone, again)
    assert again.cost_.kernel_evaluations < alone.cost_.kernel_evaluations
    assert 0 < len(known) < len([fits for state in search_files.load(tmp_path) for fits in state.fits])


class FailAtPoint(Recorder):
    """A callback that raises when so many points are done."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if super().on_fit_task_end(estimator, context):
            raise RuntimeError("a crash")


@pytest.mark.parametrize("cache_size", ["auto", 0.05])
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_a_search_goes_on_along_the_values_of_C(three, tmp_path, multi_class, cache_size, monkeypatch):
    options = {**OPTIONS, "multi_class": multi_class, "cache_size": cache_size, "tol": 1e-6, "refine": False}
    alone = KernelSVCCV(**options).fit(*three)
    with monkeypatch.context() as patch:
        for module, name, value in (
            (search_crew, "_INTERVAL", 0.0), (search_crew, "_SHARE_FOR_PATHS", np.inf),
            (run_module, "_ASK_INTERVAL", -1.0), (pauses, "WORK", 100.0),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        with pytest.raises(RuntimeError, match="a crash"):
            KernelSVCCV(**options, checkpoint=tmp_path).set_callbacks(FailAtPoint(2)).fit(*three)
    assert not search_files_of(tmp_path)
    (state,) = search_files.load(tmp_path)
    n_all = 4 * 3 * 3  # values of C, folds and problems
    assert 0 < len(state.paths.fits.reasons) < n_all
    assert_same_search(KernelSVCCV(**options, checkpoint=tmp_path).fit(*three), alone)


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
@pytest.mark.parametrize("cache_size", ["auto", 0.05])
def test_what_is_known_is_not_fitted_again(three, tmp_path, multi_class, cache_size, monkeypatch):
    model = KernelSVCCV(**OPTIONS, multi_class=multi_class, cache_size=cache_size, checkpoint=tmp_path)
    first = pickle.loads(pickle.dumps(model.fit(*three)))
    assert search_files_of(tmp_path)

    def no_fit(*arguments, **options):
        raise AssertionError("a fit is repeated")

    monkeypatch.setattr(KernelFolds, "has_values", no_fit)
    again = model.fit(*three)
    assert_same_search(first, again)
    np.testing.assert_allclose(first.decision_function(three[0]), again.decision_function(three[0]), atol=1e-2)


def test_a_search_that_ran_out_of_time_goes_on(two, tmp_path, monkeypatch, alone):
    class Counted:
        """Each look at the clock takes a second."""

        now = 0.0

        @classmethod
        def monotonic(cls):
            cls.now += 1.0
            return cls.now

    with monkeypatch.context() as patch:
        patch.setattr(_searching, "time", Counted)
        with pytest.warns(ConvergenceWarning, match="points were not tried on all folds"):
            short = KernelSVCCV(**OPTIONS, checkpoint=tmp_path, max_time=25.0).fit(*two)
    assert (short.cv_results_["state"] == "not tried").any()
    assert_same_search(KernelSVCCV(**OPTIONS, checkpoint=tmp_path).fit(*two), alone)


@pytest.mark.parametrize(
    "change",
    [
        {"Cs": [0.1, 1.0]},
        {"gammas": [0.02, 0.3]},
        {"cv": KFold(3)},
        {"tol": 1e-4},
        {"kernel": "laplacian"},
        {"class_weight": "balanced"},
        {"fit_intercept": False},
        {"scoring": "f1"},
    ],
)
def test_fits_of_another_search_are_refused(two, tmp_path, change, monkeypatch):
    options = {**OPTIONS, "refine": False, "checkpoint": tmp_path}
    KernelSVCCV(**options).fit(*two)
    monkeypatch.setattr(Folds, "with_kernel", lambda *_: pytest.fail("a kernel value was asked for"))
    with pytest.raises(ValueError, match="belongs to another search or to other data"):
        KernelSVCCV(**{**options, **change}).fit(*two)


def test_fits_to_other_data_are_refused(two, tmp_path):
    X, y = two
    options = {**OPTIONS, "refine": False, "checkpoint": tmp_path}
    KernelSVCCV(**options).fit(X, y)
    for rows, weight in ((np.where(np.arange(6) == 2, X, 0.0), None), (X, np.arange(len(y)) % 2 + 1.0)):
        with pytest.raises(ValueError, match="belongs to another search or to other data"):
            KernelSVCCV(**options).fit(rows, y, sample_weight=weight)
    KernelSVCCV(**options).fit(sp.csr_matrix(X), y)  # values count, not their storage


def test_damaged_files_are_refused(two, tmp_path):
    options = {**OPTIONS, "refine": False, "checkpoint": tmp_path}
    KernelSVCCV(**options).fit(*two)
    path = search_files_of(tmp_path)[0]
    content = path.read_bytes()
    for damaged, text in (
        (content[:-1], "is damaged: its checksum does not match"),
        (content[:20], "is not a checkpoint of this version"),
        (pickle.dumps(print), "is not a checkpoint of this version"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=text):
            KernelSVCCV(**options).fit(*two)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda fits: fits._replace(numbers=fits.numbers + 1000), "support vectors that are no rows"),
        (lambda fits: fits._replace(places=fits.places + 1000), "problems or folds that there are not"),
        (lambda fits: fits._replace(coef=fits.coef[:-1]), "do not belong together"),
        (lambda fits: fits._replace(values=fits.values[:, :2]), "wrong types or shapes"),
    ],
)
def test_files_with_a_right_checksum_and_wrong_content_are_refused(two, tmp_path, change, text):
    options = {**OPTIONS, "refine": False, "checkpoint": tmp_path}
    KernelSVCCV(**options).fit(*two)
    (state, *_), path = search_files.load(tmp_path), search_files_of(tmp_path)[0]
    path.unlink()
    search_files.save(tmp_path, state._replace(fits=[change(each) for each in state.fits]))
    with pytest.raises(ValueError, match=text):
        KernelSVCCV(**options).fit(*two)


def test_a_folder_that_cannot_be_used_is_refused(two, tmp_path, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", lambda *_: pytest.fail("a kernel value was asked for"))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be used"):
        KernelSVCCV(**OPTIONS, checkpoint=tmp_path / "file" / "folder").fit(*two)


# -- ranks -----------------------------------------------------------------------------------------------------------


def on_threads(model, rows, n_ranks, groups=None, watch=None):
    """The search on ranks that are threads, each of which has some of the rows."""
    parts = split_rows(rows, n_ranks)
    edges = np.cumsum([0, *(len(part.y) for part in parts)])

    def search(comm):
        own = None if groups is None else groups[edges[comm.rank] : edges[comm.rank + 1]]
        program = SearchOnRanks(model, own, True, None, is_weighted=rows.weight is not None)
        return program.run_on_rank(parts[comm.rank], comm, watch if comm.rank == 0 else None)

    return on_ranks(n_ranks, search)


@pytest.mark.parametrize("n_ranks", [1, 2, 3])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_ranks_find_what_one_process_finds(two, alone, n_ranks, storage):
    reports = []
    outcomes = on_threads(
        KernelSVCCV(**OPTIONS), Rows(storage(two[0]), two[1], None), n_ranks, watch=lambda each: reports.append(each)
    )
    expected = alone if storage is np.asarray else KernelSVCCV(**OPTIONS).fit(storage(two[0]), two[1])
    for (result,), searched in outcomes:
        for name, column in expected.cv_results_.items():
            if "time" not in name:
                np.testing.assert_array_equal(column, searched.attributes["cv_results_"][name])
        assert result.stop_reason == ""
        assert (result.ledger.messages > 0) == (n_ranks > 1)
    assert reports[-1].n_done == reports[-1].n_points == len(expected.scores_)
    assert reports[-1].best_score == expected.cv_results_["mean_test_score"].max()


def test_ranks_share_pairs_of_classes_weights_and_groups(three):
    X, y = three
    weight, groups = np.arange(len(y)) % 3, np.arange(len(y)) % 7
    model = KernelSVCCV(**{**OPTIONS, "cv": GroupKFold(3)}, cache_size=0.05)
    expected = model.fit(X, y, sample_weight=weight, groups=groups)
    for _, searched in on_threads(KernelSVCCV(**model.get_params()), Rows(X, y, weight), 2, groups):
        np.testing.assert_array_equal(searched.attributes["scores_"], expected.scores_)


@pytest.mark.parametrize("model", [KernelSVCCV(Cs=[1.0], gammas=[0.2]), NuMarginSVCCV(nus=[0.5])], ids=str)
def test_rank_0_alone_asks_a_splitter_which_may_be_random(two, model):
    n_asked = []

    class Counted(StratifiedKFold):
        def split(self, *rows):
            n_asked.append(1)
            return super().split(*rows)

    on_threads(model.set_params(cv=Counted(3, shuffle=True), refine=False), Rows(two[0], two[1], None), 3)
    assert len(n_asked) == 1


def test_errors_of_a_splitter_on_rank_0_are_raised_on_all(two):
    with pytest.raises(ValueError, match="cv=100 needs at least as many rows of every class"):
        on_threads(KernelSVCCV(cv=100), Rows(two[0], two[1], None), 2)

    class Broken(StratifiedKFold):
        def split(self, *rows):
            raise TypeError("no folds today")

    with pytest.raises(ValueError, match="no folds today"):
        on_threads(KernelSVCCV(cv=Broken(3)), Rows(two[0], two[1], None), 2)


def test_ranks_without_weights_may_have_scorers_that_take_none(two):
    """The rows of every rank have weights of one, all the same."""
    rows = Rows(two[0], two[1], np.ones(len(two[1])))
    scoring = make_scorer(lambda y, predicted: float(np.mean(y == predicted)))
    model = KernelSVCCV(Cs=[1.0], gammas=[0.2], refine=False, scoring=scoring)

    def search(comm, is_weighted):
        program = SearchOnRanks(model, None, True, None, is_weighted=is_weighted)
        return program.run_on_rank(split_rows(rows, 2)[comm.rank], comm, None)

    (searched, _) = (each.searched for each in on_ranks(2, lambda comm: search(comm, False)))
    assert np.isfinite(searched.attributes["scores_"]).all()
    with pytest.raises(ValueError, match="takes no sample_weight"):
        on_ranks(2, lambda comm: search(comm, comm.rank == 1))


def test_all_ranks_end_together_when_rank_0_is_told(two, monkeypatch):
    monkeypatch.setattr(search_crew, "_INTERVAL", 0.0)
    outcomes = on_threads(KernelSVCCV(**OPTIONS), Rows(two[0], two[1], None), 3, watch=lambda _: "interrupted")
    states = [outcome.searched.attributes["cv_results_"]["state"].tolist() for outcome in outcomes]
    assert states[0] == states[1] == states[2]
    assert "not tried" in states[0]
    assert all(outcome.results[0].stop_reason == "interrupted" for outcome in outcomes)


def test_errors_of_one_rank_are_raised_on_all(two):
    X, y = two
    bad = X.copy()
    bad[-1, 0] = np.nan
    with pytest.raises(ValueError, match="On rank 1: Input contains NaN"):
        on_threads(KernelSVCCV(**OPTIONS), Rows(bad, y, None), 2)
    with pytest.raises(ValueError, match="groups has 3 entries, and X 80 rows"):
        on_threads(KernelSVCCV(**OPTIONS), Rows(X, y, None), 2, groups=np.zeros(83))


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_ranks_share_rows_that_no_rank_has_room_for(three, multi_class, storage, monkeypatch):
    X, y = three
    options = {"Cs": [1.0, 20.0], "gammas": [0.1], "cv": 3, "tol": 1e-6, "multi_class": multi_class, "refine": False}
    alone = KernelSVCCV(**options).fit(X, y)
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    reports = []
    for _, searched in on_threads(KernelSVCCV(**options), Rows(storage(X), y, None), 2, watch=reports.append):
        found = searched.attributes
        assert searched.spread == "rows"
        assert found["best_params_"] == pytest.approx(alone.best_params_)
        np.testing.assert_array_equal(found["scores_"], alone.scores_)
        assert (found["cv_results_"]["gap"] <= 1e-6).all()
        np.testing.assert_allclose(found["cv_results_"]["n_support"], alone.cv_results_["n_support"], rtol=0.1)
    assert reports[-1].n_done == reports[-1].n_points


def test_grids_of_rows_that_are_elsewhere_are_those_of_all_rows(two, monkeypatch):
    options = {"Cs": 2, "gammas": 2, "cv": 3, "refine": False, "kernel": "poly"}
    alone = KernelSVCCV(**options).fit(*two)
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    for _, searched in on_threads(KernelSVCCV(**options), Rows(two[0], two[1], None), 3):
        for one, other in zip(alone.cv_results_["params"], searched.attributes["cv_results_"]["params"], strict=True):
            assert one == pytest.approx(other)


def test_a_search_by_rows_keeps_and_recalls_its_fits(two, monkeypatch):
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    reports, rows = [], Rows(two[0], two[1], None)
    model = KernelSVCCV(Cs=[1.0, 20.0], gammas=[0.1], cv=3, refine=False)

    def search(comm, resume):
        program = SearchOnRanks(model, None, True, resume)
        return program.run_on_rank(split_rows(rows, 2)[comm.rank], comm, reports.append if comm.rank == 0 else None)

    first = on_ranks(2, lambda comm: search(comm, _search.SearchResume([])))[0].searched.attributes
    states = [each.begun._replace(fits=each.fits) for each in reports if each.fits]
    assert states
    monkeypatch.setattr(KernelFoldsOfRanks, "_fit", lambda *_: pytest.fail("a fit is repeated"))
    again = on_ranks(2, lambda comm: search(comm, _search.SearchResume(states)))[0].searched.attributes
    np.testing.assert_array_equal(first["scores_"], again["scores_"])


def test_a_search_by_rows_ends_on_all_ranks_when_rank_0_is_told(two, monkeypatch):
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    monkeypatch.setattr(search_crew, "_INTERVAL", 0.0)
    outcomes = on_threads(KernelSVCCV(**OPTIONS), Rows(two[0], two[1], None), 2, watch=lambda _: "interrupted")
    assert all(outcome.results[0].stop_reason == "interrupted" for outcome in outcomes)
    assert all((outcome.searched.attributes["cv_results_"]["state"] == "not tried").any() for outcome in outcomes)


def test_scorers_that_see_rows_need_them_in_one_place(two, monkeypatch):
    monkeypatch.setattr(_search, "free_bytes", lambda: 1000)
    with pytest.raises(ValueError, match="sees the rows, and no rank has room for all of them"):
        on_threads(KernelSVCCV(**OPTIONS, scoring=lambda model, X, y: 1.0), Rows(two[0], two[1], None), 2)


def test_a_number_of_threads_shares_the_final_fit(two, alone):
    model = KernelSVCCV(**OPTIONS, cluster=2).fit(*two)
    assert_same_search(model, alone)
    assert (model.spread_, alone.spread_) == ("none", "none")
    assert model.cost_.messages > 0
    assert model.certificate_.relative <= 1e-3


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ("two", "The 'cluster' parameter of KernelSVCCV must be"),
        (0, "The 'cluster' parameter of KernelSVCCV must be"),
        (161, r"cluster=161 is more ranks than rows: with n_samples=160 it must lie in \[1, 160\]"),
    ],
)
def test_a_cluster_that_is_none_is_refused_before_any_kernel_value(two, cluster, text, monkeypatch):
    monkeypatch.setattr(Folds, "with_kernel", lambda *_: pytest.fail("a kernel value was asked for"))
    with pytest.raises(ValueError, match=text):
        KernelSVCCV(**OPTIONS, cluster=cluster).fit(*two)
