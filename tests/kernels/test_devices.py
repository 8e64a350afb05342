"""Which device is meant, what is said when it is missing, and kernels on rows there; most of it without torch."""

from __future__ import annotations

import importlib
import types
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.kernels import devices
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU


@pytest.fixture
def without(monkeypatch):
    """Packages that cannot be imported, and a torch that sees no GPU where one is asked for."""

    def take_away(*names, torch=None):
        before = importlib.import_module

        def find(name):
            if name in names:
                raise ImportError(f"No module named {name!r}")
            return types.ModuleType(name) if name in ("torch", "triton") else before(name)

        monkeypatch.setattr(importlib, "import_module", find)
        if torch is not None:
            monkeypatch.setitem(__import__("sys").modules, "torch", torch)

    return take_away


def torch_like(*, sees_gpu):
    module: Any = types.ModuleType("torch")
    module.__version__ = "2.0"
    module.version = types.SimpleNamespace(cuda="13.0")
    module.cuda = types.SimpleNamespace(is_available=lambda: sees_gpu)
    return module


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_a_missing_package_is_named_with_what_to_install(package, without):
    without(package, torch=torch_like(sees_gpu=True))
    with pytest.raises(ImportError, match=rf"needs {package}.*pip install 'widemargin\[gpu\]'.*device='cpu'"):
        devices.resolved("cuda")
    assert devices.resolved("auto") == "cpu"


def test_a_missing_gpu_is_said_so(without):
    without(torch=torch_like(sees_gpu=False))
    with pytest.raises(RuntimeError, match=r"torch 2.0 \(built for 13.0\) finds no GPU"):
        devices.resolved("cuda")
    assert devices.resolved("auto") == "cpu"


def test_a_gpu_that_is_there_is_used_where_it_is_asked_for_or_may_be(without):
    without(torch=torch_like(sees_gpu=True))
    assert [devices.resolved(name) for name in ("cpu", "cuda", "auto")] == ["cpu", "cuda", "cuda"]


def test_rows_are_put_where_they_are_to_be():
    X = np.random.default_rng(0).normal(size=(30, 4))
    rows = devices.kernel_rows(Kernel("rbf"), X, weight=np.ones(30))
    assert isinstance(rows, RowsOnCPU)
    assert rows.kernel.gamma == pytest.approx(1 / (4 * X.var()))
    torch = pytest.importorskip("torch", reason="tensors need torch: make test-gpu installs it")
    for given in (X, [X[:10], X[10:]], sp.csr_matrix(X), torch.from_numpy(X)):
        other = devices.kernel_rows(Kernel("rbf"), given, 5, device="cpu:0", weight=np.ones(30))
        assert type(other).__name__ == "RowsOnTorch"
        assert other.kernel.gamma == pytest.approx(rows.kernel.gamma, rel=1e-12)
        points, coef = rows.points(np.arange(9)), np.linspace(-1, 1, 9)
        np.testing.assert_allclose(
            other.times(points, coef, exact=True), rows.times(points, coef, exact=True), rtol=1e-11
        )
        np.testing.assert_array_equal(other.numbers, np.arange(5, 35))
