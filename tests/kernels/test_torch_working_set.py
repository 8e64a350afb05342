"""The private name of torch that compiles CUDA C; the kernels themselves need a GPU: benchmarks.gpu --only check."""

from __future__ import annotations

from pathlib import Path

import pytest

import widemargin

NAME = "_compile_kernel"


def test_the_private_name_of_torch_stands_in_one_file():
    root = Path(widemargin.__file__).parent
    users = [path.name for path in root.rglob("*.py") if NAME in path.read_text(encoding="utf8")]
    assert users == ["torch_working_set.py"]


def test_torch_still_has_the_private_name():
    torch = pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
    assert hasattr(torch.cuda, NAME), (
        f"torch {torch.__version__} has no torch.cuda.{NAME}: find what compiles CUDA C now and change "
        "kernels/torch_working_set.py, its only user."
    )


def test_the_source_is_part_of_the_package_and_has_every_kernel_that_is_launched():
    folder = Path(widemargin.__file__).parent / "kernels"
    source = (folder / "working_set.cu").read_text(encoding="utf8")
    for kernel in ("choose", "keep", "solve_pairs", "solve_singles"):
        assert f" {kernel}(" in source
        assert f'"{kernel}"' in (folder / "torch_working_set.py").read_text(encoding="utf8")
