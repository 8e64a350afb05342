"""An estimator that one file defines and registers is known everywhere; and names of strangers never are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import widemargin
from tests.estimators.toy import ToySVC
from tests.problems_at_hand import overlapping
from widemargin import ModelFileError, NuMarginSVC, load, report, save, to_onnx
from widemargin.estimators import BUILT_IN
from widemargin.estimators.registry import (
    Descriptor,
    Formula,
    descriptor_named,
    descriptor_of,
    descriptors,
    fitted_attributes,
    register,
)
from widemargin.estimators.words import certificate_in_words

ROOT = Path(widemargin.__file__).parent


@pytest.fixture(scope="module")
def toy():
    return ToySVC().fit(*overlapping(0, n=60))


def test_no_file_of_the_package_knows_the_toy():
    for path in ROOT.rglob("*.py"):
        assert "toy" not in path.read_text(encoding="utf8").lower(), path


def test_the_toy_is_saved_and_loaded(toy, tmp_path):
    save(toy, tmp_path / "toy.wm")
    again = load(tmp_path / "toy.wm")
    assert type(again) is ToySVC
    X, _ = overlapping(0, n=60)
    np.testing.assert_array_equal(again.decision_function(X), toy.decision_function(X))
    assert again.certificate_ == toy.certificate_
    assert again.alpha_ == toy.alpha_ == 0.05


def test_attributes_that_no_descriptor_names_are_refused(toy, tmp_path):
    toy.colour_ = "red"
    try:
        with pytest.raises(ModelFileError, match=r"ToySVC\.colour_ is not among the fitted attributes"):
            save(toy, tmp_path / "toy.wm")
    finally:
        del toy.colour_


def test_the_toy_is_described_in_words_and_in_a_report(toy):
    assert certificate_in_words(toy).startswith("The least number of toys")
    pytest.importorskip("matplotlib")
    page = report(toy, *overlapping(0, n=60)).html
    assert "minimise toys <var>T</var>" in page
    assert "<var>T</var> = 1e-06" in page
    assert certificate_in_words(toy) in page


def test_the_command_line_trains_the_toy_and_inspects_it(tmp_path, monkeypatch):
    typer_testing = pytest.importorskip("typer.testing")
    pytest.importorskip("rich")
    from widemargin.cli.app import app

    X, y = overlapping(0, n=60)
    np.savez(tmp_path / "rows.npz", X=X, y=y.astype(int))
    monkeypatch.chdir(tmp_path)
    run = typer_testing.CliRunner().invoke
    ended = run(app, ["train", "rows.npz", "--estimator", "toy", "--param", "max_iter=50", "--output", "toy.wm"])
    assert ended.exit_code == 0, ended.output
    assert "The least number of toys" in ended.output
    assert load("toy.wm").max_iter == 50
    ended = run(app, ["inspect", "toy.wm"])
    assert "minimise toys T" in ended.output


def test_the_toy_is_compared_in_a_process_of_its_own(tmp_path):
    pytest.importorskip("typer")
    from widemargin.cli import _one_fit, compare

    assert {"toy", "toy (loose)"} <= set(_one_fit.ours())
    assert _one_fit.title("toy (loose)") == "ToySVC (loose)"
    X, y = overlapping(0, n=60)
    _one_fit.stored(tmp_path, "train", X, y)
    _one_fit.stored(tmp_path, "test", X, y)
    found = compare.measured(tmp_path, "toy", 0, 60.0)
    assert found["gap"] <= 1e-6, found
    assert found["stop_reason"] == "gap"


def test_onnx_refuses_scores_that_it_cannot_know(toy, monkeypatch):
    pytest.importorskip("onnx")
    assert to_onnx(toy).graph.name == "ToySVC"
    monkeypatch.setattr(ToySVC, "_scores", lambda self, X: X[:, 0])
    with pytest.raises(ModelFileError, match="ToySVC computes scores by itself"):
        to_onnx(toy)


def test_a_name_that_a_file_gives_is_never_imported(monkeypatch):
    imported = []
    monkeypatch.setattr("widemargin.estimators.registry.import_module", imported.append)
    for name in ("os", "Popen", "toy", "tests.estimators.toy", "HingeL1", ""):
        assert descriptor_named(name) is None
    assert imported == []


def test_names_and_commands_are_unique(toy):
    described = descriptor_of(ToySVC)
    register(described)  # once more is no error: notebooks define classes again
    kinds = {
        "ToySVC": (None, "There is an estimator ToySVC already"),
        "OtherSVC": ("toy", "The command 'toy'"),
        "NuMarginSVC": (None, "NuMarginSVC is a built-in estimator"),
    }
    for name, (command, match) in kinds.items():
        other = Descriptor(type(name, (ToySVC,), {}), command, lambda model: Formula("", "", []))
        with pytest.raises(ValueError, match=match):
            register(other)
    assert descriptor_of(ToySVC) is described


def test_bases_are_described_for_their_subclasses():
    class Mine(NuMarginSVC):
        pass

    assert descriptor_of(Mine) is descriptor_named("NuMarginSVC")
    assert descriptor_of(dict) is None
    assert {"coef_", "nu_", "certificate_"} <= set(fitted_attributes(Mine))
    assert "nu_" not in fitted_attributes(ToySVC)


def test_built_in_estimators_are_listed_once():
    """The table of modules, the imports for type checkers, and the commands that --help names agree."""
    found = descriptors()
    assert list(found)[: len(BUILT_IN)] == list(BUILT_IN)
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf8"))
    typed = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "widemargin.estimators"
        for alias in node.names
    }
    assert typed - {"annotations", "import_module", "TYPE_CHECKING", "Any"} == set(widemargin.__all__)
    pytest.importorskip("typer")
    from widemargin.cli.train import _COMMANDS

    assert [found[name].command for name in BUILT_IN if found[name].command is not None] == _COMMANDS


@pytest.mark.parametrize("name", ["NuMarginSVC", "SparseSVCCV"])
def test_one_estimator_does_not_load_the_others(name):
    code = (
        f"import sys, widemargin; widemargin.{name}\n"
        "from widemargin.estimators.registry import _REGISTERED; print(*_REGISTERED)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    wanted = {"SparseSVC", "SparseSVCCV"} if name == "SparseSVCCV" else {name}
    assert set(done.stdout.split()) == wanted
