"""Both devices keep the protocol of kernel rows: the same primitives, the same signatures, the same rounding errors."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.protocol import KernelRows

KERNELS = {
    "rbf": Kernel("rbf", 0.3),
    "linear": Kernel("linear"),
    "poly": Kernel("poly", 0.25, 3, 1.0),
    "laplacian": Kernel("laplacian", 0.25),
    "cosine": Kernel("cosine"),
}
EPS = float(np.finfo(np.float64).eps)


def on_torch():
    pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
    from widemargin.kernels.on_torch import RowsOnTorch

    return RowsOnTorch


def primitives():
    return [name for name, each in vars(KernelRows).items() if inspect.isfunction(each) and name != "__init__"]


@pytest.mark.parametrize("get", [lambda: RowsOnCPU, on_torch], ids=["cpu", "torch"])
def test_a_device_has_every_primitive_with_the_signature_of_the_protocol(get):
    device, inherited = get(), {"self"}
    assert not inspect.isabstract(device)
    for name in primitives():
        theirs = [each for each in inspect.signature(getattr(KernelRows, name)).parameters if each not in inherited]
        ours = [each for each in inspect.signature(getattr(device, name)).parameters if each not in inherited]
        assert ours == theirs, name
    public = {name for name in vars(device) if not name.startswith("_")}
    assert public <= set(primitives()) | {"dtype"}


def rows_of(kernel, X, device):
    if device != "cpu":
        on_torch()
    return kernel_rows(kernel, X, device=device)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"], ids=["cpu", "torch"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_rounding_errors_bound_what_float64_does(name, device):
    """Against sums in extended precision of kernel values in float64, whose own errors are allowed for too."""
    X = np.random.default_rng(0).normal(size=(200, 6))
    rows, beta = rows_of(KERNELS[name], X, device), np.random.default_rng(1).normal(size=200)
    true = RowsOnCPU(KERNELS[name], X)
    K = true.block(true.points(np.arange(200)), exact=True).astype(np.longdouble)
    response = rows.times(rows.points(np.arange(200)), beta, exact=True)
    mass = rows.mass(beta)
    assert (np.abs(response - K @ beta) <= rows.score_error(mass, beta)).all()
    assert abs(beta @ response - beta @ K @ beta) <= rows.norm_error(mass)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"], ids=["cpu", "torch"])
def test_rounding_errors_scale_with_coefficients_rows_and_features(device):
    X = np.random.default_rng(0).normal(size=(50, 16))
    beta, ones = np.linspace(-1, 1, 50), np.ones(50)
    bounded, linear = rows_of(KERNELS["rbf"], X, device), rows_of(KERNELS["linear"], X, device)
    assert bounded.mass(beta) == pytest.approx(np.abs(beta).sum())
    assert linear.mass(beta) == pytest.approx(np.abs(beta) @ np.linalg.norm(X, axis=1))
    np.testing.assert_allclose(bounded.score_error(3.0, ones), 2 * EPS * 4.0)
    np.testing.assert_allclose(linear.score_error(3.0, ones), 2 * EPS * 4 * (1 + 3 * np.linalg.norm(X, axis=1)))
    assert bounded.norm_error(3.0) == pytest.approx(2 * EPS * 9)
    assert linear.norm_error(3.0) == pytest.approx(2 * EPS * math.sqrt(16) * 9)


def test_rounding_errors_are_where_the_coefficients_are():
    on_torch()
    X = np.random.default_rng(0).normal(size=(50, 16))
    for kernel in KERNELS.values():
        rows = rows_of(kernel, X, "cpu:0")
        beta = rows.vector(np.linspace(-1, 1, 50))
        on_device, on_host = rows.score_error(2.0, beta), rows.score_error(2.0, np.ones(50))
        assert type(on_device) is type(beta)
        assert isinstance(on_host, np.ndarray)
        np.testing.assert_allclose(rows.host(on_device), on_host, rtol=1e-14)
        assert rows.mass(beta) == pytest.approx(rows.mass(rows.host(beta)), rel=1e-14)
