"""What tests of the command line share: the command as a function, a folder of small files, a model."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import pytest


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs ``widemargin`` with some arguments in this process."""
    from widemargin.cli import main

    def run(*arguments, columns=120):
        monkeypatch.setattr(sys, "argv", ["widemargin", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code, *capsys.readouterr())

    return run


def table(n_rows, seed, kinds=("cat", "dog")):
    """Lines of a table: two features that tell, one that does not, and the kind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    codes = np.digitize(X[:, 0] + X[:, 1] + 0.2 * rng.normal(size=n_rows), [0.0, 1.2][: len(kinds) - 1])
    rows = (f"{a:.4f},{b:.4f},{c:.4f},{kinds[k]}" for (a, b, c), k in zip(X, codes, strict=True))
    return "\n".join(["left,right,noise,kind", *rows]) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with rows of two and of three kinds."""
    (tmp_path / "rows.csv").write_text(table(80, 0))
    (tmp_path / "test.csv").write_text(table(60, 1))
    (tmp_path / "three.csv").write_text(table(90, 2, ("cat", "dog", "eel")))
    (tmp_path / "rows.svm").write_text("1 1:0.5 3:2\n-1 2:1\n1 1:1 2:-1\n-1 3:-1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder, command):
    """A model of the rows, kept as model.wm."""
    ended = command("train", "rows.csv", "--estimator", "nu-margin", "--scale", "standard")
    assert ended.code == 0, ended.err
    return folder / "model.wm"
