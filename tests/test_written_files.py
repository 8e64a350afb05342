"""Faults at every step of the writing of every kind of file: the old file stays, or the new one is whole."""

from __future__ import annotations

import ast
import errno
import hashlib
import io
import lzma
import os
import stat
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import widemargin
from tests.io.models_at_hand import fitted
from widemargin import checkpoint, save
from widemargin.data import files
from widemargin.reports.page import Report

ROOT = Path(widemargin.__file__).parent
MODE = 0o640
ERRORS = {
    **{name: OSError(number, os.strerror(number)) for name, number in vars(errno).items() if name in
       {"ENOSPC", "EROFS", "EIO", "EDQUOT"}},
    "Ctrl-C": KeyboardInterrupt(),
}  # fmt: skip


class Faults:
    """Stands in for the module ``os`` where files are written, and fails at one step of all."""

    COUNTED = ("open", "fchown", "fchmod", "replace")

    def __init__(self, fail_at, error):
        self.fail_at, self.error, self.steps = fail_at, error, []

    def step(self, name):
        self.steps.append(name)
        if len(self.steps) == self.fail_at:
            raise self.error

    def __getattr__(self, name):
        function = getattr(os, name)
        if name not in self.COUNTED:
            return function

        def counted(*arguments, **options):
            self.step(name)
            return function(*arguments, **options)

        return counted

    def fsync(self, descriptor):
        self.step("fsync")  # and spares the disk

    def fdopen(self, descriptor, mode):
        assert mode == "wb"
        return io.BufferedWriter(FaultyFile(descriptor, self))


class FaultyFile(io.FileIO):
    """Takes a few bytes at a time, as a pipe would; a write that fails has written half of them."""

    def __init__(self, descriptor, faults):
        super().__init__(descriptor, "wb")
        self.faults = faults

    def write(self, data):
        few = bytes(memoryview(data)[:200])
        try:
            self.faults.step("write")
        except BaseException:
            super().write(few[: len(few) // 2])
            raise
        return super().write(few)

    def close(self):
        is_first = not self.closed
        super().close()
        if is_first:
            self.faults.step("close")


def write_model(folder, version):
    save(fitted(("nu, three", "hard, bool")[version]), folder / "model.wm")


def write_peer_arrays(folder, version):
    from widemargin.cli._peer_run import _save

    _save(folder / "model.npz", fitted(("nu, three", "hard, bool")[version]))


def write_what_train_writes(folder, version):
    from widemargin.cli.train import Fit, keep
    from widemargin.data.layout import FileRows

    model = fitted(("nu, three", "hard, bool")[version])
    rows = FileRows(np.zeros((4, 4)), np.resize(model.classes_, 4), None)
    fit = Fit(model, rows.X, rows.y, 0.0)
    keep(fit, rows, folder / "model.wm", None, folder / "model.onnx")


def write_report(folder, version):
    Report("title", f"<!doctype html>{version}" * 300).save(folder / "page.html")


def write_picture(folder, version):
    from matplotlib.figure import Figure

    from widemargin.reports.network import save_figure

    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([0, 1 + version])
    save_figure(figure, folder / "picture.png", dpi=50)


def write_checkpoint(folder, version):
    state = checkpoint.FitState("task", np.zeros(3, np.uint64), np.full((1, 200), float(version)), np.array([version]))
    checkpoint.save(folder, state)


def write_predictions(folder, version):
    from widemargin.cli.predict import predict

    source = folder.parent / f"source{version}"
    if not source.exists():
        source.mkdir()
        save(fitted("hard, bool"), source / "model.wm")
        np.savez(source / "rows.npz", X=np.random.default_rng(version).normal(size=(150, 4)), y=np.zeros(150))
    predict(source / "model.wm", source / "rows.npz", folder / "classes.csv", scores=True)


def write_cache(folder, version):
    fetching = sys.modules["widemargin.data.fetch"]
    text = b"".join(b"%d 1:%d\n" % (k % 2, 7919 * k % (1009 + version)) for k in range(2000))
    entry = {"file": "set.xz", "url": "http://localhost", "n_features": 1, "n_samples": 2000, "n_bytes": len(text)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIDEMARGIN_CACHE", str(folder))
        patch.setenv("WIDEMARGIN_DATA_URL", "http://localhost")
        patch.setattr(fetching, "_get", lambda *asked: lzma.compress(text))
        fetching._download("set", {**entry, "sha256": hashlib.sha256(text).hexdigest()})


def write_rows_to_compare(folder, version):
    from widemargin.cli._one_fit import stored

    stored(folder, "train", np.full((40, 5), float(version)), np.zeros(40))


KINDS = {
    "model": write_model,
    "arrays of a peer": write_peer_arrays,
    "model and ONNX of train": write_what_train_writes,
    "report": write_report,
    "picture": write_picture,
    "checkpoint": write_checkpoint,
    "predictions": write_predictions,
    "cache": write_cache,
    "rows to compare": write_rows_to_compare,
}
NEEDS = {"model and ONNX of train": "onnx", "arrays of a peer": "zmq", "picture": "matplotlib", "predictions": "typer"}


def content(path):
    """What is in a file, without the time that an archive carries."""
    raw = path.read_bytes()
    if path.suffix == ".npz" or path.name == "fit.checkpoint":
        begin = raw.index(b"PK")
        with np.load(io.BytesIO(raw[begin:])) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files}
    return raw


def contents(folder):
    return {path.name: content(path) for path in folder.iterdir()}


def check(folder, old, new):
    """Nothing but whole files, old or new, with the mode that they had."""
    for path in folder.iterdir():
        assert path.name in new, f"{path.name} was left behind"
        assert content(path) in (old.get(path.name), new[path.name])
        if path.name in old:
            assert stat.S_IMODE(path.stat().st_mode) == MODE
    assert set(old) <= set(os.listdir(folder))


def written(write, folder, version, monkeypatch, fail_at=0, error=None):
    """Write with a fault at one step; all steps, and whether an error came out."""
    faults = Faults(fail_at, error)
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", faults)
        try:
            write(folder, version)
        except (OSError, ValueError, KeyboardInterrupt):
            return faults.steps, True
    return faults.steps, False


def faults_until_none_is_left(kind, folder, monkeypatch, *, is_there, error):
    """Write with a fault at the first step, at the second, and so on; the number of faults by step."""
    write, tried = KINDS[kind], Counter()
    folder.mkdir()
    whole = folder.parent / f"{folder.name}-whole"
    whole.mkdir()
    written(write, whole, 1, monkeypatch)
    new = contents(whole)
    while True:
        for path in folder.iterdir():
            path.unlink()
        if is_there:
            written(write, folder, 0, monkeypatch)
        for path in folder.iterdir():
            path.chmod(MODE)
        old = contents(folder)
        n = tried.total()
        steps, has_failed = written(write, folder, 1, monkeypatch, n + 1, error)
        check(folder, old, new)
        assert has_failed == (len(steps) > n)
        if not has_failed:
            assert contents(folder) == new
            return tried
        tried[steps[n]] += 1


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_step_leaves_the_old_file_or_the_new_one(kind, error, tmp_path, monkeypatch):
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    for is_there in (False, True):
        folder = tmp_path / ("replaced" if is_there else "new")
        tried = faults_until_none_is_left(kind, folder, monkeypatch, is_there=is_there, error=ERRORS[error])
        assert set(tried) == {"open", "write", "fsync", "close", "replace"} | ({"fchmod"} if is_there else set())
        assert tried["fsync"] >= 2  # of the file, and of its folder


def test_what_injects_faults_notices_a_writer_that_loses_files(tmp_path, monkeypatch):
    def careless(folder, version):
        system = vars(files)["os"]
        with system.fdopen(system.open(folder / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(bytes([version]) * 2000)

    monkeypatch.setitem(KINDS, "careless", careless)
    with pytest.raises(AssertionError):
        faults_until_none_is_left("careless", tmp_path / "in", monkeypatch, is_there=True, error=ERRORS["ENOSPC"])


# -- nothing else writes files -----------------------------------------------------------------------------------------

# Where a call that may write a file is none, or writes no result.
EXCEPTIONS = {
    ("compiled/jit.py", "open"): "the lock of compilations holds nothing",
    ("cli/__init__.py", "open"): "the null device",
    ("cli/_peer_log.py", "open"): "a log grows line by line, each of them complete",
    ("privacy_account.py", "open"): "the lock of an account holds nothing",
    ("cli/_peer_membership.py", "open"): "the lock of an identity holds nothing",
    ("comm/identity.py", "open"): "an empty file that only its owner may read, which the identity then replaces",
}
WRITERS = {"write_text", "write_bytes", "savetxt", "tofile", "to_csv", "dump", "touch"}
INTO_FILES = {"savez", "savez_compressed", "save", "savefig"}  # allowed on a file object


def writes(source):
    """Names of calls by which a module may write a file by itself, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "open" and isinstance(node.func, ast.Name | ast.Attribute):
            modes = [each.value for each in (*node.args[:2], *(k.value for k in node.keywords if k.arg == "mode"))
                     if isinstance(each, ast.Constant) and isinstance(each.value, str)]  # fmt: skip
            flags = "O_WRONLY" in ast.unparse(node) or "O_RDWR" in ast.unparse(node)
            if flags or any(set(mode) & set("wax+") and set(mode) <= set("rwaxbt+") for mode in modes):
                yield name, node.lineno
        elif name in WRITERS:
            yield name, node.lineno
        elif name in INTO_FILES and isinstance(node.func, ast.Attribute) and node.args:
            target = node.args[0]
            is_file = isinstance(target, ast.Name) and target.id in {"file", "buffer", "content"}
            if not is_file and ast.unparse(node.func.value) in {"np", "numpy", "figure", "plt", "onnx"}:
                yield name, node.lineno


def test_all_files_are_written_by_one_function():
    found = {
        (path.relative_to(ROOT).as_posix(), name): line
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).as_posix() != "data/files.py"
        for name, line in writes(path.read_text("utf8"))
    }
    assert set(found) == set(EXCEPTIONS), found


@pytest.mark.parametrize(
    "line",
    ['open(p, "w")', 'p.open("xb")', 'open(p, mode="a")', "p.write_text(x)", "np.savez(p, x=1)", "figure.savefig(p)",
     "os.open(p, os.O_WRONLY)", "json.dump(x, f)"],
)  # fmt: skip
def test_what_looks_for_writers_finds_them(line):
    assert list(writes(line))


def test_what_looks_for_writers_lets_readers_be():
    assert not list(writes('open(p)\np.open("rb")\nnp.savez(buffer, x=1)\nsave(model, p)\ntransport.open()'))
