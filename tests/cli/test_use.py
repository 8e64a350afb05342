"""``predict``, ``evaluate`` and ``inspect``: what a model says of rows, and what it says of itself."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, roc_auc_score

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

from widemargin import load
from widemargin.data import tables
from widemargin.data.rows import read_rows

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


def test_predictions_are_those_of_the_model_in_blocks(folder, command, model, monkeypatch):
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 300)
    ended = command("predict", model, "test.csv", "--scores", "--output", "out.csv")
    assert ended.code == 0, ended.err
    assert "60 rows predicted" in ended.err
    lines = list(csv.reader((folder / "out.csv").open()))
    X = read_rows(folder / "test.csv").X
    kept = load(model)
    assert lines[0] == ["class", "score"]
    assert [line[0] for line in lines[1:]] == kept.predict(X).tolist()
    np.testing.assert_allclose([float(line[1]) for line in lines[1:]], kept.decision_function(X), rtol=1e-12)
    assert not (folder / "out.csv.part").exists()


def test_predictions_leave_other_files_alone(folder, command, model, monkeypatch):
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 300)
    (folder / "out.csv.part").write_text("somebody's own")
    before = {path.name for path in folder.iterdir()}
    assert command("predict", model, "test.csv", "--output", "out.csv").code == 0
    assert (folder / "out.csv.part").read_text() == "somebody's own"
    assert {path.name for path in folder.iterdir()} == before | {"out.csv"}
    (folder / "bad.csv").write_text((folder / "test.csv").read_text() + "1,2,x,cat\n")
    whole = (folder / "out.csv").read_text()
    assert command("predict", model, "bad.csv", "--output", "out.csv").code == 2
    assert (folder / "out.csv").read_text() == whole
    assert {path.name for path in folder.iterdir()} == before | {"out.csv", "bad.csv"}


def test_predictions_go_to_the_terminal_and_columns_are_found_by_name(folder, command, model):
    with_kind = command("predict", model, "test.csv")
    lines = list(csv.reader((folder / "test.csv").open()))
    (folder / "turned.csv").write_text("\n".join(",".join(line[k] for k in (2, 0, 1)) for line in lines))
    assert with_kind.code == 0
    assert with_kind.out.splitlines()[0] == "class"
    assert command("predict", model, "turned.csv").out == with_kind.out


def test_libsvm_rows_with_fewer_features_than_the_model(folder, command):
    assert command("train", "rows.svm", "--estimator", "hard-margin").code == 0
    (folder / "few.svm").write_text("0 1:1\n0 2:1\n")
    assert command("predict", "model.wm", "few.svm").out.split() == ["class", "1", "-1"]
    (folder / "few.svm").write_text("0 1:1\n0 5:1\n")
    ended = command("predict", "model.wm", "few.svm")
    assert ended.code == 2
    assert "few.svm is not understood: it has at least 5 features, but 3 are expected." in ended.err


def test_a_model_of_centred_rows_takes_sparse_ones(folder, command):
    np.savez(folder / "dense.npz", X=np.array([[0.5, 0, 2], [0, 1, 0], [1, -1, 0], [0, 0, -1]]), y=[1, -1, 1, -1])
    assert command("train", "dense.npz", "--estimator", "sparse", "--scale", "standard").code == 0
    assert command("predict", "model.wm", "rows.svm").out == command("predict", "model.wm", "dense.npz").out


FORMULAS = [
    "=1+1", "@SUM(1+1)", "+cmd|' /C calc'!A0", "-2+3", " =1+1", "\t=1", "\tplain", "\r=1", "\u3000=1", "\uff1d1+1",
    "'=1+1", "\x00=1", "''@x",
]  # fmt: skip
HARMLESS = ["cat", "-1", "+1.5", "-1e-3", "a=b", "'quoted'", "it's", "1-2", ""]


@pytest.mark.parametrize("label", FORMULAS)
def test_labels_that_a_spreadsheet_would_run_are_quoted_and_read_back(label):
    cell = tables.as_cell(label)
    assert cell == f"'{label}"
    assert tables.as_label(cell) == label


@pytest.mark.parametrize("label", [*HARMLESS, 1, -1, -0.5, True, None])
def test_other_labels_stay(label):
    assert tables.as_cell(label) is label
    if isinstance(label, str):
        assert tables.as_label(label) == label


def test_different_labels_have_different_cells():
    labels = [*FORMULAS, *HARMLESS, *(f"'{each}" for each in FORMULAS)]
    assert len({tables.as_cell(each) for each in labels}) == len(set(labels))
    assert [tables.as_label(tables.as_cell(each)) for each in labels] == labels


def test_predictions_hold_no_formula_and_have_the_labels_of_the_model(folder, command):
    """Labels that come from anyone: a file of arrays, whose text nobody has stripped."""
    rng = np.random.default_rng(0)
    names = np.array(["@SUM(1+1)", "a;=1+1", 'b",=1\r=2', "plain"])
    X = np.repeat(3.0 * np.eye(4), 20, axis=0) + 0.1 * rng.normal(size=(80, 4))
    np.savez(folder / "rows.npz", X=X, y=np.repeat(names, 20))
    assert command("train", "rows.npz", "--estimator", "sparse", "--param", "alpha=1e-3").code == 0
    assert command("predict", "model.wm", "rows.npz", "--scores", "--output", "out.csv").code == 0
    content = (folder / "out.csv").read_bytes().decode()
    for separator in (",", ";", "\t"):  # as programs of any country read it
        for line in csv.reader(io.StringIO(content, newline=""), delimiter=separator):
            assert not any(cell.lstrip().startswith(("=", "@", "+")) for cell in line)
    lines = list(csv.reader(io.StringIO(content, newline="")))[1:]
    assert [tables.as_label(line[0]) for line in lines] == load(folder / "model.wm").predict(X).tolist()
    assert {line[0] for line in lines} == {"'@SUM(1+1)", "a;=1+1", 'b",=1\r=2', "plain"}


def test_predicted_labels_can_be_evaluated(folder, command):
    """Predictions become the labels of a table, formulas among them, and the model agrees with itself."""
    (folder / "sums.csv").write_text((folder / "rows.csv").read_text().replace("cat", "=1+1").replace("dog", "@SUM(1)"))
    assert command("train", "sums.csv", "--estimator", "sparse").code == 0
    assert load(folder / "model.wm").classes_.tolist() == ["=1+1", "@SUM(1)"]
    predicted = command("predict", "model.wm", "sums.csv").out.splitlines()
    assert set(predicted) == {"class", "'=1+1", "'@SUM(1)"}
    rows = [line.rsplit(",", 1)[0] for line in (folder / "sums.csv").read_text().splitlines()]
    (folder / "own.csv").write_text("\n".join(map(",".join, zip(rows, predicted, strict=True))))
    found = json.loads(command("evaluate", "model.wm", "own.csv", "--label", "class", "--json").out)
    assert found["accuracy"] == 1.0


def test_figures_are_those_of_scikit_learn(folder, command, model):
    ended = command("evaluate", model, "test.csv", "--json")
    assert ended.code == 0, ended.err
    found, kept = json.loads(ended.out), load(model)
    X, y, _ = read_rows(folder / "test.csv")
    guess = kept.predict(X)
    assert found["rows"] == 60
    assert found["accuracy"] == pytest.approx(np.mean(guess == y))
    assert found["balanced accuracy"] == pytest.approx(balanced_accuracy_score(y, guess))
    assert found["confusion matrix"] == confusion_matrix(y, guess).tolist()
    assert found["AUC"] == pytest.approx(roc_auc_score(y == "dog", kept.decision_function(X)))
    shown = command("evaluate", model, "test.csv").out
    assert f"{found['accuracy']:.2%}" in shown
    assert "Confusion matrix" in shown


def test_three_classes_have_no_area_and_a_score_each(folder, command):
    assert command("train", "three.csv", "--estimator", "sparse").code == 0
    found = json.loads(command("evaluate", "model.wm", "three.csv", "--json").out)
    assert "AUC" not in found
    assert np.sum(found["confusion matrix"]) == 90
    lines = command("predict", "model.wm", "three.csv", "--scores").out.splitlines()
    assert lines[0] == "class,score cat,score dog,score eel"
    assert len(lines) == 91


def test_rows_of_one_class_have_no_area(folder, command, model):
    lines = (folder / "test.csv").read_text().splitlines()
    (folder / "dogs.csv").write_text("\n".join([lines[0], *(line for line in lines if line.endswith("dog"))]))
    ended = command("evaluate", model, "dogs.csv")
    assert ended.code == 0, ended.err
    assert "all rows are of one class" in ended.out


def test_labels_of_another_type_than_the_model_has(folder, command):
    (folder / "numbers.csv").write_text("a,kind\n1,0\n2,0\n3,1\n4,1\n")
    (folder / "words.csv").write_text("a,kind\n1,0\n2,zero\n")
    assert command("train", "numbers.csv", "--estimator", "sparse").code == 0
    ended = command("evaluate", "model.wm", "words.csv")
    assert ended.code == 2
    assert "words.csv has the label 'zero'; the model knows 0, 1." in ended.err


def test_a_model_says_what_it_is(folder, command, model):
    shown = command("inspect", model).out
    kept = load(model)[-1]
    for words in ("NuMarginSVC, after StandardScaler", "the widest margin", "cat, dog", "nu='auto'", "right"):
        assert words in shown
    assert f"{kept.certificate_.primal:.9g}" in shown
    found = json.loads(command("inspect", model, "--json").out)
    assert found["certificate"]["dual"] == kept.certificate_.dual
    assert found["stop_reason"] == kept.stop_reason_
    assert found["classes"] == ["cat", "dog"]
    assert found["cost"]["kernel_evaluations"] == 0
    assert {each["feature"]: each["coefficients"] for each in found["features"]} == {
        name: [value] for name, value in zip(["left", "right", "noise"], kept.coef_[0], strict=True)
    }


def test_features_without_names_are_numbered_from_0_and_problems_have_the_names_of_their_classes(folder, command):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 2)) + 3 * np.eye(3)[y][:, :2]
    lines = [f"{k} 1:{a:.6f} 2:{b:.6f}" for k, (a, b) in zip(y, X, strict=True)]
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    assert command("train", "rows.svm", "--estimator", "nu-margin").code == 0
    found = json.loads(command("inspect", "model.wm", "--json").out)
    assert sorted(each["feature"] for each in found["features"]) == ["x0", "x1"]
    assert found["problems"] == ["0 against 1", "0 against 2", "1 against 2"]
    shown = command("inspect", "model.wm").out
    assert all(name in shown for name in (*found["problems"], "x0", "x1"))
    kept = load("model.wm").summary().frame()
    assert kept.loc[("0 against 2", "x1"), "coef"] == load("model.wm").coef_[1, 1]


def test_a_gap_that_means_nothing_is_not_printed_as_a_number(folder, command):
    X = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{k % 2} 1:{a:.6f} 2:{b:.6f}" for k, (a, b) in enumerate(X)]
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    ended = command("train", "rows.svm", "--estimator", "hard-margin")
    assert ended.code == 0
    assert "1 or more  (tol 0.001)" in ended.out
    assert json.loads(command("inspect", "model.wm", "--json").out)["certificate"]["relative_gap"] > 1


def test_the_size_of_a_model_has_its_random_features_in_it(folder, command):
    options = ["--param", "kernel=rbf", "--param", "n_random_features=20", "--param", "n_peers=3"]
    ended = command("train", "rows.csv", "--estimator", "gossip", *options, "--param", "max_iter=20")
    assert ended.code == 0, ended.err
    found = json.loads(command("inspect", "model.wm", "--json").out)
    assert found["size_bytes"] == 8 * (20 + 1 + 3 * 20 + 20)  # coefficients, intercept, weights, offsets


def test_intervals_and_support_vectors_are_shown(folder, command):
    assert command("train", "rows.csv", "--estimator", "debiased").code == 0
    found = json.loads(command("inspect", "model.wm", "--json").out)
    kept = load("model.wm")
    assert found["features"][0]["intervals"] == [kept.coef_interval_[0, kept.pvalue_[0].argmin()].tolist()]
    assert "interval" in command("inspect", "model.wm").out
    assert command("train", "rows.csv", "--estimator", "kernel").code == 0
    assert json.loads(command("inspect", "model.wm", "--json").out)["n_support_vectors"] == len(
        load("model.wm").support_vectors_
    )
    assert "support vectors" in command("inspect", "model.wm").out


@pytest.fixture
def useless(folder, command):
    """A model without a coefficient, kept as model.wm, and what ``train`` printed."""
    ended = command("train", "rows.csv", "--estimator", "sparse", "--param", "alpha=50")
    assert ended.code == 0, ended.err
    return ended


def first_words(shown):
    """The text of the first lines of a table, below its title."""
    return " ".join(shown.split())[:400]


def test_commands_begin_with_the_warning_of_a_useless_model(folder, command, useless):
    text = "SparseSVC has no coefficient and gives class"
    after_title = useless.out.split("SparseSVC: certificate", 1)[1]
    assert first_words(after_title).startswith(f"warning {text}")
    assert text not in useless.err, "said twice"
    for arguments in (("inspect", "model.wm"), ("evaluate", "model.wm", "test.csv")):
        shown = first_words(command(*arguments).out)
        assert shown.index("warning") < shown.index(text) < 80
        assert json.loads(command(*arguments, "--json").out)["warning"].startswith(text)


def test_a_good_model_has_no_warning(folder, command, model):
    assert "warning" not in command("inspect", model).out
    assert json.loads(command("inspect", model, "--json").out)["warning"] is None
    assert json.loads(command("evaluate", model, "test.csv", "--json").out)["warning"] is None


def test_the_largest_class_stands_beside_every_accuracy(folder, command, useless):
    y = read_rows(folder / "rows.csv").y
    share = max(np.mean(y == each) for each in np.unique(y))
    assert f"{share:.2%}, the largest class alone {share:.2%}" in " ".join(
        useless.out.split("training accuracy")[-1].split()
    )
    assert f"{share:.2%}, the largest class alone {share:.2%}" in command("inspect", "model.wm").out
    assert json.loads(command("inspect", "model.wm", "--json").out)["training"]["accuracy_of_largest_class"] == share
    y = read_rows(folder / "test.csv").y
    share = max(np.mean(y == each) for each in np.unique(y))
    shown = command("evaluate", "model.wm", "test.csv").out
    assert f"the largest class alone {share:.2%}" in shown
    assert "50.00%, the largest class alone 50.00%" in shown  # balanced
    found = json.loads(command("evaluate", "model.wm", "test.csv", "--json").out)
    assert found["accuracy of the largest class"] == pytest.approx(share)
