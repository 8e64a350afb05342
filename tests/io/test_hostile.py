"""No file does harm: whatever is in it, it is refused, or a model comes out that can be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.io.fuzz import tried
from tests.io.models_at_hand import fitted
from tests.io.mutations import outcome_of
from widemargin.io.archive import to_bytes


def test_some_hundred_damaged_and_hostile_files(tmp_path):
    outcomes = tried(300, seed=1, path=tmp_path / "hostile.wm")
    assert sum(outcomes.values()) == 300
    refused = sum(count for name, count in outcomes.items() if name.endswith("refused"))
    assert refused > 150
    assert outcomes["array_edited: used"] > 5  # others are harmless, and are really used


def test_what_tries_the_files_notices_a_model_that_fails(tmp_path, monkeypatch):
    content = to_bytes(fitted("nu, three"))
    assert outcome_of(content, tmp_path / "model.wm") == "used"
    from widemargin.strategies.parts import Parts

    def fails(*given):
        raise IndexError("out of bounds")

    monkeypatch.setattr(Parts, "class_scores", fails)
    with pytest.raises(IndexError):
        outcome_of(content, tmp_path / "model.wm")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_damaged_and_hostile_files(seed):
    """In a process of their own: a crash of a compiled loop would end it."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.io.fuzz", "--count", "2500", "--seed", str(100 + seed)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert sum(json.loads(done.stdout).values()) == 2500
