"""``train`` reaches every estimator and parameter, keeps what it found, and shows the proof."""

from __future__ import annotations

import io
import math
import signal

import numpy as np
import pytest

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

from widemargin import load
from widemargin.callbacks import SearchProgress
from widemargin.cli import _estimators, _progress
from widemargin.cli._estimators import find, hint, kernel_for, parsed
from widemargin.estimators.registry import descriptors
from widemargin.problems.protocol import Certificate, gap_as_text

COMMANDS = [each.command for each in descriptors().values() if each.command is not None]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_estimator_trains_and_is_kept(folder, command, name):
    extra = ["--param", "n_peers=3", "--param", "max_iter=100"] if name == "gossip" else []
    ended = command("train", "rows.csv", "--estimator", name, "--output", "kept.wm", *extra)
    assert ended.code == 0, ended.err
    for words in ("primal", "dual", "relative gap", "stopped", "time", "of which", "training accuracy", "size"):
        assert words in ended.out
    kept = load("kept.wm")
    assert type(kept).__name__ == find(name).name
    assert kept.classes_.tolist() == ["cat", "dog"]
    assert kept.feature_names_in_.tolist() == ["left", "right", "noise"]
    assert gap_as_text(kept.certificate_.relative) in ended.out
    assert "wrong)" in ended.out


def test_parameters_and_options_arrive(folder, command):
    ended = command(
        "train", "rows.csv", "--estimator", "kernel", "--param", "C=10", "--param", "kernel=poly",
        "--param", "class_weight={'cat': 2}", "--param", "max_support=none", "--tol", 1e-5, "--max-time", 50,
        "--seed", 7, "--cluster", "threads:2", "--output", "m.wm",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = load("m.wm").get_params()
    wanted = {"C": 10, "kernel": "poly", "class_weight": {"cat": 2}, "max_support": None, "tol": 1e-5}
    assert wanted.items() <= found.items()
    assert (found["max_time"], found["random_state"]) == (50, 7)


def test_faults_of_a_network_as_a_dict(folder, command):
    ended = command(
        "train", "rows.csv", "--estimator", "gossip", "--param", "faults={'drop': 0.2}", "--param", "n_peers=3",
        "--param", "max_iter=20",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert load("model.wm").faults.drop == 0.2


@pytest.mark.parametrize(("scale", "kind"), [("standard", "StandardScaler"), ("minmax", "MinMaxScaler")])
def test_what_scales_is_kept_with_the_model(folder, command, scale, kind):
    assert command("train", "rows.csv", "--estimator", "sparse", "--scale", scale).code == 0
    kept = load("model.wm")
    assert type(kept[0]).__name__ == kind
    assert kept[0].feature_names_in_.tolist() == ["left", "right", "noise"]


def test_sparse_rows_stay_sparse_when_scaled(folder, command):
    assert command("train", "rows.svm", "--estimator", "sparse", "--scale", "standard").code == 0
    assert load("model.wm")[0].with_mean is False
    assert load("model.wm").classes_.tolist() == [-1, 1]
    ended = command("train", "rows.svm", "--scale", "minmax")
    assert ended.code == 2
    assert "use --scale maxabs" in ended.err


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_page_and_an_onnx_model(folder, command):
    pytest.importorskip("matplotlib")
    pytest.importorskip("onnx")
    outputs = ["--report", "fit.html", "--onnx", "m.onnx"]
    ended = command("train", "three.csv", "--estimator", "nu-margin", "--scale", "maxabs", *outputs)
    assert ended.code == 0, ended.err
    assert "</html>" in (folder / "fit.html").read_text()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession("m.onnx")
    given = session.get_inputs()[0]
    X = np.random.default_rng(0).normal(size=(20, 3)).astype("f" if given.type == "tensor(float)" else "d")
    labels = session.run(None, {given.name: X})[0]
    assert labels.tolist() == load("model.wm").predict(X).tolist()


def test_without_an_estimator_it_takes_one_and_says_so(folder, command):
    ended = command("train", "rows.csv")
    assert ended.code == 0, ended.err
    assert "No --estimator was given: using kernel, as 80 rows of 3 features are few enough" in ended.err
    assert load("model.wm").kernel == "rbf"
    assert kernel_for(10**6, 3)[0] == kernel_for(100, 10**4)[0] == "linear"
    ended = command("train", "rows.csv", "--param", "kernel=poly")
    assert "using kernel, the estimator with kernels of all kinds" in ended.err
    assert load("model.wm").kernel == "poly"


def test_many_rows_get_a_linear_kernel(folder, command, monkeypatch):
    monkeypatch.setattr(_estimators, "MAX_KERNEL_ROWS", 79)
    assert "with kernel=linear, as 80 rows" in command("train", "rows.csv").err
    assert load("model.wm").kernel == "linear"


@pytest.mark.parametrize("held", ["float32", "float64"])
def test_precision_holds_for_arrays_too(folder, command, held):
    for given in (np.float32, np.float64):
        np.savez(folder / "rows.npz", X=np.eye(4, dtype=given), y=[0, 1, 0, 1])
        assert f"4 features, {held}, dense" in command("train", "rows.npz", "--precision", held).out
        assert f"4 features, {np.dtype(given)}, dense" in command("train", "rows.npz").out


def test_a_limit_is_said_and_the_model_kept(folder, command):
    ended = command("train", "rows.csv", "--estimator", "nu-margin", "--param", "max_iter=1", "--tol", 1e-12)
    assert ended.code == 0
    assert "did not converge" in ended.err
    assert load("model.wm").stop_reason_ == "max_iter"


def test_ctrl_c_keeps_the_best_model_and_says_so(folder, command, monkeypatch):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    original, pressed = _progress.GapBar.show, []

    def show(self, sweep, *arguments, **more):
        original(self, sweep, *arguments, **more)
        if not pressed:
            pressed.append(sweep)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_progress.GapBar, "show", show)
    ended = command(
        "train", "rows.csv", "--estimator", "gossip", "--param", "n_peers=3", "--tol", 1e-9, "--scale", "standard"
    )
    assert ended.code == 0, ended.err
    assert "interrupted" in ended.err
    assert "the model is the best" in ended.err
    kept = load("model.wm")
    assert kept[-1].stop_reason_ == "interrupted"
    assert [kept[-1].n_iter_] == pressed


def test_the_bar_measures_orders_of_magnitude():
    from rich.console import Console

    stream = io.StringIO()
    bar = _progress.GapBar(Console(file=stream, force_terminal=True, width=100), "SomeSVC", 1e-4)
    bar.show(1, Certificate(1.0, 0.0), 0.1)  # a gap of 1
    assert [bar.share(gap) for gap in (np.inf, 1.0, 1e-2, 1e-4, 1e-9)] == pytest.approx([0, 0, 0.5, 1, 1])
    bar.show(5, Certificate(1.0, 0.99), 0.2)
    bar.close()
    assert "gap 1.0e-02 (tol 1e-04)  sweep 5" in stream.getvalue()
    bar.show(1, Certificate(1.0, 0.99), 0.3)  # another pair of classes begins
    assert bar.share(1e-3) == pytest.approx(0.5)


def test_the_bar_of_a_search_names_its_stages_and_never_falls_back():
    from rich.console import Console

    stream = io.StringIO()
    bar = _progress.GapBar(Console(file=stream, force_terminal=True, width=100), "SomeSVCCV", 1e-4)
    shares = []
    for n_done, n_points in ((0, 4), (4, 4), (5, 8)):
        bar.show_search(SearchProgress(n_done, n_points, 0.98071 if n_done else math.nan, 3e-4, 1.0))
        shares.append(bar._progress.tasks[0].completed)
        bar._progress.refresh()
    bar.close()
    shown = stream.getvalue()
    assert shares == [0.0, 1.0, 1.0]
    assert "point 0 of 4  1.0 s" in shown
    assert "point 4 of 4  completing  best 0.9807 (gap 3e-04)  1.0 s" in shown
    assert "point 5 of 8  refining" in shown


def test_a_similar_name_has_the_same_case_if_there_is_one():
    assert hint("C", ["cv", "Cs", "gammas"]) == "; did you mean 'Cs'?"
    assert hint("nusvc", ["NuSVC", "SVC"]) == "; did you mean 'NuSVC'?"
    assert hint("Q", ["cv", "Cs"]) == "."


def test_values_of_parameters():
    found = parsed(["a=1", "b=1e-3", "c=rbf", "d=None", "e=true", "f=[1, 2]", "g=a=b", "h={'x': 1}", "i="])
    assert found == {
        "a": 1, "b": 1e-3, "c": "rbf", "d": None, "e": True, "f": [1, 2], "g": "a=b", "h": {"x": 1}, "i": "",
    }  # fmt: skip


def test_names_of_estimators():
    assert find("NuMarginSVC") is find("nu_margin") is find("nu-margin")
    assert find("nu-margin").name == "NuMarginSVC"
