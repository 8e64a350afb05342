"""``compare`` and ``demo``."""

from __future__ import annotations

import json
import sys
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

from widemargin.callbacks import SearchProgress
from widemargin.cli import _one_fit, compare
from widemargin.cli._one_fit import THEIRS, few_rows, make, opened, ours, set_nu, stored, title
from widemargin.data import make_nonseparable
from widemargin.estimators.registry import descriptors


def test_models_side_by_side_and_one_that_is_ended(folder, command):
    """The limit holds: SVC would take much longer for these rows, the others a tenth of a second."""
    X, y = make_nonseparable(30_000, 60, ratio=0.5, random_state=0)
    np.savez(folder / "rows.npz", X=X, y=y)
    ended = command("compare", "rows.npz", "--only", "SVC,SGDClassifier,kernel (linear)", "--limit", 8, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert list(found) == ["SVC", "SGDClassifier", "KernelSVC (linear)", "largest class alone"]
    assert found["largest class alone"] == {"test_error": pytest.approx(0.5, abs=0.02)}
    assert found["KernelSVC (linear)"]["warning"] is None
    assert found["SVC"] == {"timeout": 8.0}
    for name in ("SGDClassifier", "KernelSVC (linear)"):
        assert found[name]["seconds"] > 0
        assert 0 < found[name]["test_error"] < 0.5
        assert found[name]["bytes"] == 61 * 8
    assert found["SGDClassifier"]["gap"] is None
    assert 0 <= found["KernelSVC (linear)"]["gap"] <= 1e-3


def test_the_table_says_what_became_of_each(folder, command, monkeypatch):
    good = {"seconds": 0.25, "test_error": 0.125, "gap": 1e-4, "bytes": 2048, "stop_reason": "gap"}
    answers = {"kernel": good, "SVC": {"timeout": 60.0}, "NuSVC": {"failed": "nu is infeasible"}}
    monkeypatch.setattr(compare, "measured", lambda folder, name, *rest: answers[name])
    shown = command("compare", "rows.csv", "--only", "kernel,SVC,NuSVC").out
    assert "60 training rows, 20 held out, 3 features" in shown
    kernel, svc, nu = (next(line for line in shown.splitlines() if line.split()[:1] == [name]) for name in (
        "KernelSVC", "SVC", "NuSVC",
    ))  # fmt: skip
    assert kernel.split() == ["KernelSVC", "0.250", "12.50%", "1.0e-04", "gap", "2.05", "kB"]
    assert svc.split() == ["SVC", "over", "60", "-", "-", "time", "limit", "-"]
    assert nu.split() == ["NuSVC", "-", "-", "-", "failed", "-"]
    assert "NuSVC: nu is infeasible" in shown


def test_a_comparison_begins_with_useless_models_and_ends_with_the_largest_class(folder, command):
    rng = np.random.default_rng(0)
    y = np.arange(100) % 10 == 0
    np.savez(folder / "noise.npz", X=rng.normal(size=(100, 2)), y=y.astype(int))
    ended = command("compare", "noise.npz", "--only", "kernel,SVC", "--limit", 30)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith("Warning: KernelSVC gives class 0 for all 75 training rows")
    assert "SVC gives" not in ended.out.replace("KernelSVC", "")
    last = next(line for line in lines if line.strip().startswith("largest class alone"))
    assert last.split()[4] in ("8.00%", "12.00%")  # 2 or 3 of 25 rows


def test_tuned_models_say_what_they_chose_and_the_others_keep_their_defaults(folder, command):
    ended = command("compare", "rows.csv", "--only", "kernel (linear),SVC", "--tune", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    tuned = found["KernelSVCCV (linear)"]
    assert list(tuned["chosen"]) == ["C"]
    assert tuned["n_not_tried"] == 0
    assert tuned["gap"] <= 1e-3
    assert found["SVC"]["chosen"] is None


def test_the_table_of_a_tuned_comparison_is_followed_by_the_choices(folder, command, monkeypatch):
    good = {"seconds": 0.25, "test_error": 0.125, "gap": 1e-4, "bytes": 2048, "stop_reason": "gap"}
    answers = {
        "kernel": good | {"chosen": {"C": 10.0, "gamma": 0.125}, "n_not_tried": 3},
        "SVC": good | {"chosen": None, "n_not_tried": 0},
        "NuSVC": {"timeout": 60.0},
    }
    monkeypatch.setattr(compare, "measured", lambda folder, name, *rest: answers[name])
    shown = command("compare", "rows.csv", "--only", "kernel,SVC,NuSVC", "--tune").out
    assert "KernelSVCCV chose C=10, gamma=0.125." in shown
    assert "KernelSVCCV: 3 points were not tried in time; raise --limit." in shown
    assert "+ fit s" in shown
    assert "including scikit-learn's, keep their defaults." in shown
    plain = command("compare", "rows.csv", "--only", "SVC").out
    assert "chose" not in plain
    assert "defaults" not in plain


def test_every_estimator_with_cross_validation_takes_the_place_of_its_plain_one():
    searches = {name for name in descriptors() if name.endswith("CV")}
    assert searches >= {"KernelSVCCV", "SparseSVCCV"}
    assert searches == {each.name for each, _ in ours(is_tuned=True).values()} - {
        each.name for each, _ in ours().values()
    }
    assert make("kernel (linear)", 0, seconds=7.0).get_params().items() >= {"kernel": "linear", "max_time": 7.0}.items()
    assert title("kernel (linear)", is_tuned=True) == "KernelSVCCV (linear)"


def test_a_process_that_dies_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "exited with code" in compare.measured(tmp_path, "SVC", 0, 5.0)["failed"]


def test_a_process_that_does_not_begin_is_said(tmp_path, monkeypatch):
    (tmp_path / "sleeps").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "sleeps").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "sleeps"))
    monkeypatch.setattr(compare, "_MAX_STARTUP", 0.2)
    found = compare.measured(tmp_path, "SVC", 0, 5.0)
    assert found == {"failed": "its process did not start within 0.2 s"}


def test_the_points_of_a_search_are_told_on_the_way(tmp_path, monkeypatch, capsys):
    points = _one_fit.Points("KernelSVCCV", 1e-3)
    for n_done, seconds in ((3, 0.1), (7, 0.6), (8, 0.7), (9, 1.4)):
        points.show_search(SearchProgress(n_done, 50, 0.9, 1e-3, seconds))
    lines = capsys.readouterr().out
    assert [json.loads(line)["n_done"] for line in lines.splitlines()] == [7, 9]
    (tmp_path / "child").write_text(
        f"#!/bin/sh\nprintf '%s' 'ready\n{lines}{{\"error\": null, \"test_error\": 0.5}}\n'\n"
    )
    (tmp_path / "child").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "child"))
    told = []
    assert compare.measured(tmp_path, "SVC", 0, 5.0, True, told.append)["test_error"] == 0.5
    assert told == ["point 7 of 50", "point 9 of 50"]


def test_errors_of_all_kinds_are_said(tmp_path, monkeypatch, capsys):
    found = compare.measured(tmp_path, "SVC", 0, 60.0)  # there are no rows
    assert "FileNotFoundError" in found["failed"]
    for error, sentence in ((ValueError("nu is\ninfeasible"), "nu is infeasible"), (MemoryError(), "MemoryError:")):
        monkeypatch.setattr(_one_fit, "measured", Mock(side_effect=error))
        _one_fit.main(tmp_path, "SVC", 0)
        assert json.loads(capsys.readouterr().out) == {"error": sentence}


def test_rows_that_are_too_few_to_compare_and_models_that_are_none(folder, command):
    (folder / "few.csv").write_text("1,2,a\n2,3,b\n")
    ended = command("compare", "few.csv")
    assert (ended.code, "too few rows" in ended.err) == (2, True)
    ended = command("compare", "rows.csv", "--only", "SVM")
    assert (ended.code, "There is no model 'SVM'" in ended.err) == (2, True)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_are_handed_over_whole(tmp_path, is_sparse):
    import scipy.sparse as sp

    X = sp.random(12, 4, density=0.5, format="csr", random_state=0)
    stored(tmp_path, "train", X if is_sparse else X.toarray(), np.arange(12) % 3)
    Z, y = opened(tmp_path, "train")
    assert sp.issparse(Z) == is_sparse
    np.testing.assert_array_equal(Z.toarray() if is_sparse else Z, X.toarray())
    assert y.tolist() == (np.arange(12) % 3).tolist()


def test_all_models_can_be_made():
    y = np.repeat([0, 1, 2], [10, 300, 5])
    assert few_rows(y).tolist() == [*range(110), *range(310, 315)]
    for name in (*ours(), *THEIRS):
        model = set_nu(make(name, 3), y)
        assert type(model).__name__ == title(name).split("(")[0].split()[0]
        assert model.get_params().get("random_state", 3) in (3, None)
    assert set_nu(make("NuSVC", 0), y).nu == pytest.approx(0.85 * 2 * 5 / 305)


def test_the_demonstration(folder, command, monkeypatch):
    pytest.importorskip("matplotlib")
    from widemargin.reports import demo

    first = next(demo.jobs())
    monkeypatch.setattr(demo, "jobs", lambda: iter([first] * 5))
    ended = command("demo", "--folder", "pictures")
    assert ended.code == 0, ended.err
    assert ended.out.count("HardMarginSVC") == 5
    assert (folder / "pictures" / "certificates.png").stat().st_size > 10_000
    assert command("demo", "--folder", "rows.csv").code == 2
