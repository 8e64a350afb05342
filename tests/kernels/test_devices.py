"""Which device is meant, what is said when it is not there, and arrays of other libraries; most of it without torch."""

from __future__ import annotations

import importlib
import types

import numpy as np
import pytest

from widemargin.kernels import devices


@pytest.fixture
def without(monkeypatch):
    """Packages that cannot be imported, and a torch that sees no GPU where one is asked for."""

    def take_away(*names, torch=None):
        before = importlib.import_module

        def find(name):
            if name in names:
                raise ImportError(f"No module named {name!r}")
            return types.ModuleType(name) if name in ("torch", "triton") else before(name)

        monkeypatch.setattr(devices.importlib, "import_module", find)
        if torch is not None:
            monkeypatch.setitem(__import__("sys").modules, "torch", torch)

    return take_away


def torch_like(*, sees_gpu):
    module = types.ModuleType("torch")
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


def test_host_arrays_are_left_alone():
    values = [1, 2, 3]
    assert devices.on_host(values) is values
    assert {devices.library_of(each) for each in (np.ones(2), values, None)} == {"host"}


def test_tensors_go_to_the_host_and_back():
    torch = pytest.importorskip("torch", reason="tensors need torch: make test-gpu installs it")
    there = torch.arange(3.0)
    assert devices.library_of(there) == "torch"
    assert devices.as_tensor(there) is there
    np.testing.assert_array_equal(devices.on_host(there), [0.0, 1.0, 2.0])
    assert devices.like(there, there) is there
    assert isinstance(devices.like(there, np.ones(2)), np.ndarray)
