"""``tune``: what it chooses, what it scores and on which rows, and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

import widemargin
from widemargin import KernelSVCCV
from widemargin.cli import train, tune
from widemargin.cli._input import plain_labels
from widemargin.data.layout import Layout
from widemargin.data.rows import read_rows
from widemargin.exceptions import InterruptedFitWarning, warn_user

GRID = ("--Cs", "0.1,1,10", "--gammas", "0.05,0.5", "--cv", 3, "--no-refine")


def folds(seed):
    return StratifiedKFold(3, shuffle=True, random_state=seed)


def test_the_choice_is_that_of_the_estimator_and_the_model_is_kept(folder, command):
    ended = command("tune", "rows.csv", *GRID, "--scale", "standard", "--model", "best.wm")
    assert ended.code == 0, ended.err
    assert "Search 1 of 2: all rows." in ended.err
    model = widemargin.load(folder / "best.wm")
    rows = read_rows(folder / "rows.csv", Layout())
    X = StandardScaler().fit_transform(rows.X)
    direct = KernelSVCCV(Cs=[0.1, 1, 10], gammas=[0.05, 0.5], cv=folds(0), refine=False).fit(X, rows.y)
    np.testing.assert_array_equal(model[-1].decision_function(X), direct.decision_function(X))
    chosen = re.search(r"chosen +C=(\S+), gamma=(\S+)", ended.out)
    assert [float(each) for each in chosen.groups()] == list(direct.best_params_.values())
    assert f"mean over folds             {direct.best_score_:.4f}" in ended.out
    assert "16 held-out rows" in ended.out
    assert "relative gap" in ended.out


def test_nested_scores_are_those_of_searches_that_have_not_seen_the_rows(folder, command):
    ended = command("tune", "rows.csv", *GRID, "--scale", "standard", "--outer", 4, "--seed", 3, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    rows = read_rows(folder / "rows.csv", Layout())
    splits = list(StratifiedKFold(4, shuffle=True, random_state=3).split(rows.y, rows.y))
    assert found["n_outer"] == found["n_searches_scored"] == len(found["held_out"]) == 4
    scores = [each["score"] for each in found["held_out"]]
    assert found["unseen_score"] == pytest.approx(np.mean(scores))
    assert found["unseen_score_spread"] == pytest.approx(np.std(scores, ddof=1))
    alone = [each["largest_class_score"] for each in found["held_out"]]
    assert found["largest_class_score"] == pytest.approx(np.mean(alone))
    for each, (seen, unseen) in zip(found["held_out"], splits, strict=True):
        scaler = StandardScaler().fit(rows.X[seen])  # without the rows that it is scored on
        model = KernelSVCCV(Cs=[0.1, 1, 10], gammas=[0.05, 0.5], cv=folds(3), refine=False)
        model.fit(scaler.transform(rows.X[seen]), rows.y[seen])
        assert each["chosen"] == model.best_params_
        assert each["score"] == model.score(scaler.transform(rows.X[unseen]), rows.y[unseen])
        assert each["n_rows"] == len(unseen)
    assert len(found["points"]) == 6
    assert found["certificate"]["relative_gap"] <= 1e-3
    assert found["points"][found["best_index"]]["mean"] == found["best_score"]


def test_several_classes_scorers_weights_and_rules(folder, command):
    more = ("--scoring", "balanced_accuracy,accuracy", "--class-weight", "balanced", "--outer", 2)
    ended = command("tune", "three.csv", *GRID, *more, "--selection", "one-standard-error", "--model", "best.wm")
    assert ended.code == 0, ended.err
    assert "6 points, 3 folds, balanced_accuracy" in ended.out
    assert "Each outer fold has its own search" in ended.out
    assert "(largest class alone 0.3333)" in ended.out
    assert "mean of 2 outer folds" in ended.out
    model = widemargin.load(folder / "best.wm")
    assert (model.class_weight, model.selection) == ("balanced", "one-standard-error")
    assert model.scoring == ["balanced_accuracy", "accuracy"]


def test_without_held_out_rows_it_says_that_nothing_was_scored(folder, command):
    ended = command("tune", "rows.csv", "--Cs", 3, "--kernel", "linear", "--hold-out", 0)
    assert ended.code == 0, ended.err
    assert "not scored: use --hold-out or --outer" in ended.out
    assert "Search 1" not in ended.err
    assert widemargin.load(folder / "model.wm").kernel == "linear"


def test_a_report_with_the_search(folder, command):
    pytest.importorskip("matplotlib")
    ended = command("tune", "rows.csv", *GRID, "--report", "tune.html")
    assert ended.code == 0, ended.err
    assert ended.out.rstrip().endswith("Model: model.wm. Report: tune.html.")
    page = (folder / "tune.html").read_text(encoding="utf8")
    assert 'id="search"' in page
    assert "accuracy on unseen rows" in page
    assert command("tune", "rows.csv", *GRID, "--hold-out", 0, "--report", "tune.html").code == 0
    assert "on unseen rows</dt>" not in (folder / "tune.html").read_text(encoding="utf8")


def test_every_search_has_a_checkpoint_of_its_own(folder, command):
    for k in range(2):
        ended = command("tune", "rows.csv", *GRID, "--outer", 2, "--checkpoint", "kept", "--device", "cpu")
        assert ended.code == 0, ended.err
        assert ended.err.count("It resumes from checkpoint kept") == 3 * k
    assert {path.name for path in folder.glob("kept*")} == {"kept", "kept-without-1", "kept-without-2"}


def test_ranks_on_threads_choose_the_same(folder, command):
    found = [
        command("tune", "rows.csv", *GRID, "--hold-out", 0, "--json", *more)
        for more in ((), ("--cluster", "threads:2"))
    ]
    assert [each.code for each in found] == [0, 0], found[1].err
    one, two = (json.loads(each.out) for each in found)
    assert one["best_parameters"] == two["best_parameters"]
    assert "use threads or dask" in command("tune", "rows.csv", "--cluster", "mpi").err


def test_an_interrupted_search_keeps_its_model_and_scores_nothing_more(folder, command, monkeypatch):
    calls = []

    def fitted(*given, **named):
        calls.append(given[1].X.shape[0])
        return real(*given, **named)._replace(was_interrupted=len(calls) == at)

    real = train.fitted
    monkeypatch.setattr(train, "fitted", fitted)
    for at, text in ((1, "not scored: interrupted"), (3, "1 of 4 outer folds were scored")):
        calls.clear()
        ended = command("tune", "rows.csv", *GRID, "--outer", 4, "--report", "tune.html")
        assert ended.code == 0, ended.err
        assert text in ended.out
        assert "Interrupted: " in (folder / "tune.html").read_text(encoding="utf8")
        assert len(calls) == at
        assert (folder / "model.wm").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--Cs", "0,1"), "--Cs 0,1 must be a number of values, or positive numbers separated by commas."),
        (("--Cs", "0"), "--Cs 0 must be a number"),
        (("--gammas", "some"), "--gammas some must be"),
        (("--gammas", "1,nan"), "--gammas 1,nan must be"),
        (("--outer", "3", "--hold-out", "0.3"), "omit one of them"),
        (("--scoring", "acuracy"), "did you mean 'accuracy'?"),
        (("--scoring", "f1"), "--scoring f1 does not suit these labels"),
        (("--scoring", "neg_log_loss"), "needs probabilities"),
        (("--cv", "40"), "and --hold-out 0.2 leaves 28: use --cv 28."),
        (("--outer", "60"), "--outer 60 is more folds than class dog has rows (35)."),
        (("--hold-out", "0.001"), "--hold-out 0.001 is less than one row for each class: use at least 0.025."),
        (("--hold-out", "0", "--cv", "60"), "Class dog has 35 rows, too few for --cv 60: use --cv 35."),
        (("--kernel", "foo"), "'foo' is not one of 'rbf', 'linear'"),
        (("--param", "kernel=precomputed"), "tune reads rows of features"),
        (("--kernel", "linear", "--gammas", "3"), "The linear kernel has no gamma: omit --gammas"),
        (("--param", "Q=1"), "KernelSVCCV has no parameter 'Q'"),
        (("--param", "C=10"), "did you mean 'Cs'?"),
        (("--param", "Cs=[-1,2]"), "Cs"),
        (("--class-weight", "heavy"), "class_weight"),
        (("--tol", "-1"), "tol"),
        (("--label", "kinds"), "there is no label column 'kinds'"),
        (("--model", "nowhere/model.wm"), "There is no folder nowhere"),
    ],
)
def test_what_is_wrong_is_said_before_any_fit(folder, command, monkeypatch, arguments, sentence):
    ended = command("tune", "rows.csv", *arguments)
    assert ended.code == 2
    assert sentence in ended.err
    assert not (folder / "model.wm").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--scoring", "neg_log_loss"),
        ("--kernel", "linear", "--gammas", "0.1"),
        ("--class-weight", "heavy"),
        ("--param", "Cs=[-1,2]"),
    ],
)
def test_what_suits_no_rows_is_refused_before_the_file_is_read(folder, command, monkeypatch, arguments):
    monkeypatch.setattr(train, "read", None)
    ended = command("tune", "rows.csv", *arguments)
    assert ended.code == 2
    assert "Internal error" not in ended.err


@pytest.mark.parametrize(
    ("n_rare", "arguments", "sentence"),
    [
        (3, (), "Class rare has 3 rows, and --hold-out 0.2 leaves 2: use --cv 2."),
        (2, (), "Class rare has 2 rows, and --hold-out 0.2 leaves 1: use --hold-out 0 --cv 2."),
        (1, (), "Class rare has 1 row, and --hold-out 0.2 leaves 0: a search needs 2 or more of each class."),
        (3, ("--hold-out", 0), "Class rare has 3 rows, too few for --cv 5: use --cv 3."),
    ],
)
def test_the_advice_on_a_rare_class_can_be_followed(folder, command, n_rare, arguments, sentence):
    lines = [f"{k / 7},{-k},{'rare' if k < n_rare else 'usual'}" for k in range(30)]
    (folder / "rare.csv").write_text("a,b,kind\n" + "\n".join(lines))
    ended = command("tune", "rare.csv", *arguments)
    assert ended.code == 2
    assert sentence in ended.err
    if "--cv" in sentence.split(": ")[-1]:
        ended = command("tune", "rare.csv", *arguments, *sentence.split("use ")[1].rstrip(".").split(), "--Cs", 2)
        assert ended.code == 0, ended.err


def test_tables_of_a_narrow_terminal_keep_numbers_in_one_line(folder, command):
    ended = command("tune", "rows.csv", *GRID, "--outer", 2, columns=80)
    assert ended.code == 0, ended.err
    line = next(line for line in ended.out.splitlines() if "1, chosen" in line)
    assert line.split()[-1] == "certified"  # the gap is left out
    assert max(map(len, ended.out.splitlines()[1:])) <= 80  # the first line is not part of a table
    shown = command("tune", "rows.csv", *GRID, "--hold-out", 0).out
    assert re.search(r"1, chosen.* certified +\S+e-\d\d ", shown)
    assert "search and final fit" in ended.out
    assert "of which" in ended.out


def test_a_choice_that_is_not_certified_is_doubted_and_edges_have_advice(folder, command):
    ended = command("tune", "rows.csv", "--Cs", "0.01,0.1", "--gammas", "0.5", "--no-refine", "--hold-out", 0)
    assert ended.code == 0, ended.err
    assert "The best point, C=0.1, is at the largest value tried: try larger ones, for example --Cs" in ended.out
    assert "state                       certified" in ended.out
    ended = command("tune", "rows.csv", *GRID, "--hold-out", 0, "--tol", "1e-15", "--param", "max_iter=1")
    assert "its score is an estimate. Raise max_iter, or use" in " ".join(ended.out.split())


def test_a_search_without_time_chooses_nothing(folder, command):
    ended = command("tune", "rows.csv", "--hold-out", 0, "--max-time", "1e-9")
    assert ended.code == 0, ended.err
    assert "not chosen" in ended.out
    assert "no point was tried; C=" in ended.out
    assert "at the edge" not in ended.out


def test_one_value_is_one_point(folder, command):
    ended = command("tune", "rows.csv", "--Cs", "100.0", "--gammas", "0.5", "--no-refine", "--hold-out", 0)
    assert "Search: 1 point, 5 folds" in ended.out


def test_columns_of_other_scales_have_a_remark(folder, command):
    rows = (folder / "rows.csv").read_text().splitlines()
    text = "\n".join([f"large,{rows[0]}", *(f"{5000 * k},{row}" for k, row in enumerate(rows[1:]))])
    (folder / "wide.csv").write_text(text)
    ended = command("tune", "wide.csv", *GRID, "--hold-out", 0)
    assert re.search(r"Columns differ [\d,]+-fold in scale: try --scale standard\.", ended.err)
    for more in (("wide.csv", "--scale", "standard"), ("rows.csv",)):
        assert "fold in scale" not in command("tune", *more, *GRID, "--hold-out", 0).err


def test_sparse_rows_have_no_remark_on_scales(capsys):
    tune._remark_spans(sp.csr_matrix([[0.0, 1.0], [9000.0, 0.0]]))
    assert capsys.readouterr().err == ""


def test_it_compiles_on_few_rows_before_it_searches(folder, command, monkeypatch):
    sizes, real = [], KernelSVCCV.fit

    def fit(self, X, y):
        sizes.append((self.Cs, len(np.unique(y))))
        return real(self, X, y)

    monkeypatch.setattr(KernelSVCCV, "fit", fit)
    assert command("tune", "three.csv", *GRID, "--hold-out", 0).code == 0
    assert sizes == [(1, 2), ([0.1, 1.0, 10.0], 3)]


def test_ctrl_c_while_it_compiles_ends_the_command(folder, command, monkeypatch):
    monkeypatch.setattr(KernelSVCCV, "fit", lambda *given: warn_user("stopped", InterruptedFitWarning))
    ended = command("tune", "rows.csv", *GRID)
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "Interrupted.")


def test_the_kernel_follows_the_size_unless_it_is_given(monkeypatch, capsys):
    class Rows:
        X = np.zeros((3, 2_001))

    model = KernelSVCCV()
    tune._set_kernel(model, Rows, is_given=False)
    assert model.kernel == "linear"
    assert "No --kernel was given: using linear, as 3 rows" in capsys.readouterr().err
    tune._set_kernel(model.set_params(kernel="poly"), Rows, is_given=True)
    assert model.kernel == "poly"


def test_a_model_says_what_was_chosen(folder, command):
    assert command("tune", "rows.csv", *GRID, "--hold-out", 0).code == 0
    found = json.loads(command("inspect", "model.wm", "--json").out)["search"]
    model = widemargin.load(folder / "model.wm")
    assert found["chosen"] == model.best_params_
    assert found["mean_score"] == model.best_score_
    assert sum(found["points"].values()) == 6
    assert f"mean over folds {model.best_score_:.4f}" in command("inspect", "model.wm").out
    assert command("train", "rows.csv").code == 0
    assert "search" not in json.loads(command("inspect", "model.wm", "--json").out)


def test_labels_that_are_numbers(folder, command):
    y = np.arange(40) % 2
    np.savez(folder / "rows.npz", X=np.random.default_rng(0).normal(size=(40, 2)) + y[:, None], y=y)
    ended = command("tune", "rows.npz", *GRID, "--scoring", "f1")
    assert ended.code == 0, ended.err
    assert plain_labels(widemargin.load(folder / "model.wm").classes_).tolist() == [0, 1]
