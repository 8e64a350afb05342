"""The page for contributors is true: its code runs as it is printed, its files exist, its targets are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
SOLVER_PAGE = ROOT / "docs" / "own_solver.md"
SOLVER = "src/widemargin/solvers/frank_wolfe.py"

# Runs in an interpreter of its own, in which the new solver is a part of the package: its tests, then the first look.
RUNNER = """
import runpy, sys
import pytest
import widemargin.solvers
widemargin.solvers.__path__.append("src/widemargin/solvers")
failed = pytest.main(["tests_on_the_page", "-x", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir=."])
runpy.run_path("first_look.py") if not failed else None
sys.exit(failed)
"""

pytestmark = pytest.mark.skipif(not (ROOT / "Makefile").exists(), reason="not run from a checkout")


def files_on_the_page() -> dict[str, str]:
    """The solver, which is the first block of its page, and blocks of Python that name a path in their first line."""
    page = SOLVER_PAGE.read_text(encoding="utf8")
    [solver, *_] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf8"), re.MULTILINE | re.DOTALL)
    return {SOLVER: solver, **dict(blocks)}


def run_in(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        # Beside a folder called tests the one of the checkout, with its oracles, would not be found.
        path = folder / (name if not name.startswith("tests/") else f"tests_on_the_page/{Path(name).name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def test_the_solver_on_the_page_passes_the_tests_on_the_page_and_fits(tmp_path):
    files = files_on_the_page()
    assert list(files) == [SOLVER, "tests/solvers/test_frank_wolfe.py", "first_look.py"]
    done = run_in(tmp_path, files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Certificate(" in done.stdout
    assert " gap " in done.stdout


def test_a_bound_that_does_not_hold_fails_the_tests_on_the_page(tmp_path):
    files = files_on_the_page()
    right = "problem.dual_value(alpha_sum, float(z @ z))"
    assert right in files[SOLVER]
    done = run_in(tmp_path, {**files, SOLVER: files[SOLVER].replace(right, f"1.01 * {right}")})
    assert done.returncode != 0
    assert "test_it_ends_at_the_optimum_and_both_bounds_hold" in done.stdout


def test_the_files_to_read_exist_and_take_about_as_long_as_it_says():
    text = PAGE.read_text(encoding="utf8")
    path = re.findall(r"^\d+\. `([\w/.]+\.py)`", text, re.MULTILINE)
    promised = int(re.search(r"about ([\d,]+) lines", text).group(1).replace(",", ""))
    assert len(path) == 8
    n_lines = sum(len((ROOT / name).read_text(encoding="utf8").splitlines()) for name in path)
    assert 0.8 * promised <= n_lines <= 1.2 * promised
    for name in re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[\w/.]*)`", text):
        is_built = name.startswith("docs/_build")
        assert is_built or (ROOT / name).exists() or name in files_on_the_page(), f"{name} is named and not there"


def test_every_target_that_is_named_is_one_of_make():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf8"), re.MULTILINE))
    named = re.findall(r"`make ([\w -]+)`", PAGE.read_text(encoding="utf8"))
    assert len(named) > 5
    assert {target for line in named for target in line.split()} <= targets


def test_the_version_is_the_same_wherever_it_is_written():
    import widemargin

    for name, pattern in (("pyproject.toml", r'^version = "(.*)"'), ("CITATION.cff", r"^version: (.*)")):
        found = re.search(pattern, (ROOT / name).read_text(encoding="utf8"), re.MULTILINE)
        assert found is not None
        assert found.group(1) == widemargin.__version__
