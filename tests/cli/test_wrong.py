"""Whatever is wrong is said in one sentence on stderr, with the exit code 2, and never by a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

COMMANDS = ("train", "predict", "evaluate", "inspect", "compare", "peer", "reproduce", "demo")
BAD_ROWS = {
    "none.csv": (None, "none.csv cannot be read: No such file or directory."),
    "empty.csv": ("", "empty.csv is empty"),
    "empty.svm": ("", "empty.svm is empty"),
    "broken.svm": ("1 1:1 2:1 3:1\n-1 1:x\n", "broken.svm is not understood: line 2: the value of '1:x'"),
    "text.csv": ("left,right,noise,kind\n1,2,3,cat\n1,a,3,dog\n", "line 3, column 'right': 'a' is not a number."),
    "nan.csv": (
        "left,right,noise,kind\n1,2,3,cat\n1,nan,3,dog\n",
        "line 3, column 'right': a value is missing",
    ),
    "uneven.csv": ("left,right,noise,kind\n1,2,3,cat\n1,3,dog\n", "line 3 has 3 columns, the first line has 4."),
    "bad.npz": ("no arrays", "bad.npz is not understood"),
    "bad.gz": ("not compressed", "bad.gz cannot be read"),
    "folder": ("/", "folder cannot be read: Is a directory."),
}


def said(ended, sentence):
    assert ended.code == 2, ended
    assert sentence in ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.out + ended.err


@pytest.mark.parametrize("name", BAD_ROWS)
@pytest.mark.parametrize("verb", ["train", "compare", "predict", "evaluate"])
def test_files_that_are_no_rows(folder, command, request, verb, name):
    content, sentence = BAD_ROWS[name]
    if content == "/":
        (folder / name).mkdir()
    elif content is not None:
        (folder / name).write_text(content)
    model = [request.getfixturevalue("model")] if verb in ("predict", "evaluate") else []
    before = sorted(folder.iterdir())
    extra = ["--estimator", "sparse"] if verb == "train" else ["--output", "out.csv"] if verb == "predict" else []
    said(command(verb, *model, name, *extra), sentence)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_rows_that_do_not_fit_the_model(folder, command, model, verb):
    (folder / "wide.csv").write_text("1,2,3,4,5,cat\n")
    said(command(verb, model, "wide.csv"), "it has 5 features beside the label, but 3 are expected.")
    (folder / "other.csv").write_text("left,up,noise,kind\n1,2,3,cat\n")
    said(command(verb, model, "other.csv"), "it has no column 'right', which the model was trained with.")


def test_labels_that_the_model_does_not_know(folder, command, model):
    (folder / "owl.csv").write_text("left,right,noise,kind\n1,2,3,owl\n")
    said(command("evaluate", model, "owl.csv"), "owl.csv has the label owl; the model knows cat, dog.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--estimator", "kernal"], "There is no estimator 'kernal': it must be one of hard-margin,"),
        (["--estimator", "kernal"], "did you mean 'kernel'?"),
        (["--estimator", "kernel", "--param", "C=-1"], "The 'C' parameter of KernelSVC must be a float in the range"),
        (["--estimator", "kernel", "--param", "kernel=cubic"], "The 'kernel' parameter of KernelSVC must be"),
        (["--estimator", "kernel", "--param", "gama=1"], "KernelSVC has no parameter 'gama'; did you mean 'gamma'?"),
        (["--estimator", "kernel", "--param", "C"], "--param 'C' must be NAME=VALUE"),
        (["--estimator", "kernel", "--param", "C=1", "--param", "C=2"], "--param C is given twice."),
        (["--estimator", "kernel", "--param", "tol=1", "--tol", "1"], "--tol and --param tol set the same parameter"),
        (["--estimator", "nu-margin", "--param", "nu=0.99"], "nu=0.99"),
        (["--estimator", "gossip", "--param", "faults={'lost': 1}"], "--param faults is invalid"),
        (["--tol", "-1"], "The 'tol' parameter of KernelSVC must be a float in the range [0"),
        (["--tol", "small"], "--tol"),
        (["--max-time", "0"], "The 'max_time' parameter of KernelSVC must be a float in the range (0"),
        (["--estimator", "debiased", "--max-time", "5"], "--max-time does not apply: DebiasedSparseSVC has no"),
        (["--estimator", "sparse", "--seed", "5"], "--seed does not apply: SparseSVC has no random_state."),
        (["--scale", "robust"], "'robust' is not one of"),
        (["--label", "species"], "there is no label column 'species'; the columns are 'left', 'right', 'noise', "),
        (["--label", "9"], "there is no label column 9"),
        (["--cluster", "threads:0"], "must be a positive integer"),
        (["--cluster", "spark"], "--cluster spark must be threads:NUMBER, dask:ADDRESS"),
        (["--estimator", "gossip", "--cluster", "threads:2"], "The 'cluster' parameter of GossipSVC must be"),
        (["--output", "no/where.wm"], "There is no folder no to save the model in."),
        (["--output", "."], ". is a folder; the model needs the name of a file."),
        (["--report", "no/where.html"], "There is no folder no to save the report in."),
        (["--onnx", "no/where.onnx"], "There is no folder no to save the ONNX model in."),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(folder, command, options, sentence):
    ended = command("train", "rows.csv", *options)
    err = ended.err.splitlines(keepends=True)
    said(ended._replace(err="".join(line for line in err if "No --estimator" not in line)), sentence)
    assert not (folder / "model.wm").exists()


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_options_that_do_not_apply_to_the_file(folder, command, verb):
    np.savez(folder / "rows.npz", X=np.eye(4), y=[0, 1, 0, 1])
    for name, option in (("rows.svm", ["--label", "nonsense"]), ("rows.npz", ["--label", "1"])):
        said(command(verb, name, *option), f"{' '.join(option)} does not apply to {name}: only tables")
    for name in ("rows.npz", "rows.csv", "rows.parquet"):
        said(
            command(verb, name, "--zero-based"),
            f"--zero-based does not apply to {name}: only LIBSVM text numbers its features",
        )


def test_one_class_is_not_enough(folder, command):
    (folder / "cats.csv").write_text("1,2,cat\n3,4,cat\n")
    said(command("train", "cats.csv"), "cats.csv has only one class, cat: training needs two or more.")
    said(command("compare", "cats.csv"), "cats.csv has only one class, cat")


@pytest.mark.parametrize("verb", ["predict", "evaluate", "inspect"])
def test_files_that_are_no_models(folder, command, verb):
    rows = [] if verb == "inspect" else ["rows.csv"]
    said(command(verb, "none.wm", *rows), "none.wm cannot be read: No such file or directory.")
    said(command(verb, ".", *rows), ". is a folder, not a model.")
    (folder / "bad.wm").write_bytes(b"this is no model")
    said(command(verb, "bad.wm", *rows), "bad.wm")
    (folder / "empty.wm").write_bytes(b"")
    said(command(verb, "empty.wm", *rows), "empty.wm")
    np.savez(folder / "pickled.wm", X=np.arange(3))
    said(command(verb, folder / "pickled.wm.npz", *rows), "pickled.wm.npz")


def test_a_damaged_model(folder, command, model):
    content = model.read_bytes()
    model.write_bytes(content[: len(content) // 2])
    said(command("inspect", model), "model.wm")


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_has_an_example(command, verb):
    ended = command(verb, "--help")
    assert ended.code == 0
    assert "Example" in ended.out
    assert f"widemargin {verb}" in ended.out


def test_help_names_all_commands(command):
    shown = command("--help").out
    assert all(verb in shown for verb in COMMANDS)
    from widemargin import __version__

    assert command("--version").out.strip() == __version__


def test_a_command_that_is_none(command):
    said(command("trian"), "No such command 'trian'")


def test_what_should_not_happen_is_a_sentence_too(folder, command, monkeypatch):
    monkeypatch.setattr("widemargin.data.rows.read_rows", lambda *given: {}["gone"])
    said(command("train", "rows.csv"), "Internal error: KeyError: 'gone'")


def run_process(*arguments, **more):
    from widemargin import cli

    source = os.path.dirname(os.path.dirname(os.path.dirname(cli.__file__)))
    return subprocess.run(
        [sys.executable, "-c", *arguments], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": source}, **more,
    )  # fmt: skip


def test_as_a_process(folder):
    """The real command, where nothing of it is imported yet."""
    done = run_process("from widemargin.cli import main; main()", "inspect", "none.wm")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "none.wm cannot be read: No such file or directory.\n"


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom widemargin.cli import main\ntry:\n    main()\nfinally:\n"
        "    print(sorted({'numpy', 'scipy', 'sklearn', 'numba', 'pandas', 'zmq', 'matplotlib'} & set(sys.modules)))"
    )
    done = run_process(code, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_results_replace_neither_what_is_read_nor_each_other_nor_what_is_no_file(folder, command, model):
    os.mkfifo(folder / "pipe")
    before = (folder / "rows.csv").read_bytes(), model.read_bytes()
    usual = ["--label", "kind", "--estimator", "sparse"]
    said(
        command("train", "rows.csv", *usual, "--output", "rows.csv"),
        "rows.csv is an input: choose another file for the model",
    )
    said(
        command("predict", model, "rows.csv", "--output", model),
        "is an input: choose another file for the predictions",
    )
    said(command("train", "rows.csv", *usual, "--output", "pipe"), "pipe is not a regular file")
    same = ["--output", "same.wm", "--report", "./same.wm"]
    said(command("train", "rows.csv", *usual, *same), "already holds the model: choose another file for the report.")
    assert ((folder / "rows.csv").read_bytes(), model.read_bytes()) == before


def test_inputs_without_end_are_refused(folder, command, model):
    said(
        command("train", "/dev/zero", "--output", "new.wm"),
        "/dev/zero is not understood: it is a device, and its content may never end.",
    )
    said(command("compare", "/dev/zero"), "it is a device")
    said(command("predict", model, "/dev/urandom"), "it is a device")
    said(command("evaluate", model, "/dev/zero"), "it is a device")
    said(command("predict", "/dev/zero", "rows.csv"), "/dev/zero is not a file.")


def test_a_link_stays_and_what_it_stands_for_is_replaced(folder, command):
    (folder / "real.wm").write_text("old")
    (folder / "link.wm").symlink_to("real.wm")
    ended = command("train", "rows.csv", "--label", "kind", "--estimator", "sparse", "--output", "link.wm")
    assert ended.code == 0, ended
    assert "link.wm exists and will be replaced." in ended.err
    assert (folder / "link.wm").is_symlink()
    assert (folder / "real.wm").read_bytes().startswith(b"\x89WIDEMARGIN")


def test_labels_that_are_not_whole_numbers(folder, command):
    (folder / "float.csv").write_text("a,b\n1,0.5\n2,1.5\n")
    said(
        command("train", "float.csv", "--estimator", "sparse"), "float.csv has the label 0.5, and classes are integers"
    )


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_values_that_no_scaler_can_hold(folder, command, verb):
    (folder / "huge.csv").write_text(
        "a,kind\n" + "".join(f"{k}e307,{'cat' if k % 2 else 'dog'}\n" for k in range(1, 17))
    )
    said(
        command(verb, "huge.csv", "--scale", "standard", *(["--estimator", "sparse"] if verb == "train" else [])),
        "Values of up to 2e+308 are too large to be scaled",
    )
