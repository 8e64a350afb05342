"""Both devices keep the protocol of kernel rows: the same primitives, the same signatures, the same rounding errors."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mp

from widemargin.compiled.kernels import LAPLACIAN, finish
from widemargin.kernels import float32_error, precision
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.protocol import KernelRows, RowsOnDevice

KERNELS = {
    "rbf": Kernel("rbf", 0.3),
    "linear": Kernel("linear"),
    "poly": Kernel("poly", 0.25, 3, 1.0),
    "laplacian": Kernel("laplacian", 0.25),
    "cosine": Kernel("cosine"),
}
CASES = ["plain", "far from zero", "two far away", "large", "small"]
EPS = float(np.finfo(np.float64).eps)


def on_torch():
    pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
    from widemargin.kernels.on_torch import RowsOnTorch

    return RowsOnTorch


def protocol_of(device):
    return RowsOnDevice if issubclass(device, RowsOnDevice) else KernelRows


def primitives(protocol):
    every = inspect.getmembers(protocol, inspect.isfunction)
    return [name for name, _ in every if name != "__init__"]


def properties(protocol):
    return {name for name, _ in inspect.getmembers(protocol, lambda each: isinstance(each, property))}


@pytest.mark.parametrize("get", [lambda: RowsOnCPU, on_torch], ids=["cpu", "torch"])
def test_a_device_has_every_primitive_with_the_signature_of_the_protocol(get):
    device, inherited = get(), {"self"}
    protocol = protocol_of(device)
    assert not inspect.isabstract(device)
    for name in primitives(protocol):
        theirs = [each for each in inspect.signature(getattr(protocol, name)).parameters if each not in inherited]
        ours = [each for each in inspect.signature(getattr(device, name)).parameters if each not in inherited]
        assert ours == theirs, name
    public = {name for name in vars(device) if not name.startswith("_")}
    assert public <= set(primitives(protocol)) | properties(protocol) | {"dtype", "X"}


def rows_of(kernel, X, device):
    if device != "cpu":
        on_torch()
    return kernel_rows(kernel, X, device=device)


def exact_value(kernel, x, z):
    """A kernel value in 60 digits."""
    x, z = [[mp.mpf(float(entry)) for entry in row] for row in (x, z)]
    gamma = mp.mpf(float(kernel.gamma)) if kernel.needs_gamma else mp.mpf(1)
    if kernel.name == "rbf":
        return mp.exp(-gamma * sum((a - b) ** 2 for a, b in zip(x, z, strict=True)))
    if kernel.name == "laplacian":
        return mp.exp(-gamma * sum(abs(a - b) for a, b in zip(x, z, strict=True)))
    inner = sum(a * b for a, b in zip(x, z, strict=True))
    if kernel.name == "poly":
        return (gamma * inner + mp.mpf(kernel.coef0)) ** kernel.degree
    if kernel.name == "cosine":
        return inner / mp.sqrt(sum(a * a for a in x) * sum(b * b for b in z))
    return inner


def some_rows(case):
    X = np.random.default_rng(0).normal(size=(14, 6))
    if case == "far from zero":
        return X + 1e4
    if case == "two far away":
        X[:2] *= 1e4
    return X * {"large": 1e3, "small": 1e-6}.get(case, 1.0)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix, np.float32], ids=["dense", "csr", "float32"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", ["cpu", "cpu:0"], ids=["cpu", "torch"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_rounding_errors_bound_what_float64_does(name, device, case, storage):
    """Against 60 digits."""
    X = storage(some_rows(case))
    beta = np.random.default_rng(1).normal(size=14) * 10.0 ** np.arange(-7, 7)
    rows = rows_of(KERNELS[name], X, device)
    response = rows.times(rows.points(np.arange(14)), beta, exact=True)
    allowed = rows.score_error(rows.mass(beta), 14, beta)
    assert np.isfinite(allowed).all()
    with mp.workdps(60):
        exact_rows = X.toarray() if sp.issparse(X) else X
        for x, found, error in zip(exact_rows, response, allowed, strict=True):
            exact = sum(mp.mpf(b) * exact_value(KERNELS[name], x, z) for b, z in zip(beta, exact_rows, strict=True))
            assert abs(mp.mpf(float(found)) - exact) <= mp.mpf(float(error))


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix, np.float32], ids=["dense", "csr", "float32"])
@pytest.mark.parametrize(
    "case", ["plain", "far from zero", "two far away", "large", "small", "mostly zero", "mostly a half"]
)
@pytest.mark.parametrize("name", ["rbf", "laplacian", "cosine"])
def test_errors_of_sweeps_bound_what_float32_does(name, case, storage, monkeypatch):
    """Against responses in float64, whose own errors are far smaller; in two passes, as sweeps make them."""
    monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 0)
    monkeypatch.setattr(precision, "_MIN_SAMPLED", 0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) if case.startswith("mostly") else np.tile(some_rows(case), (20, 1))
    if case.startswith("mostly"):
        X = np.where(rng.random(X.shape) < 0.7, 0.5 if case.endswith("half") else 0.0, X)
    rows = rows_of(KERNELS[name], storage(X), "cpu")
    if rows.dtype != np.float32:
        pytest.skip("such rows need float64")
    points, both = rows.points(np.arange(len(X))), rng.normal(size=(2, len(X)))
    sums = sum(rows.times(points, np.stack([beta, abs(beta)], axis=1)) for beta in both)
    exact = rows.times(points, both.sum(axis=0), exact=True)
    mass = sum(map(rows.mass, both))
    allowed, room = rows.sweep_error(sums[:, 1], mass, 2 * len(X)), rows.score_error(mass, 2 * len(X), both[0])
    assert (np.abs(sums[:, 0] - exact) <= allowed + room).all()
    assert allowed.max() < 1e-3 * mass  # useful, for kernel values up to 1


def test_errors_of_sweeps_are_those_of_float64_where_values_are(monkeypatch):
    X, beta = some_rows("plain"), np.linspace(-1, 1, 14)
    for kernel in KERNELS.values():
        rows = rows_of(kernel, X, "cpu")
        assert not rows.has_relative_errors
        np.testing.assert_array_equal(rows.sweep_error(abs(beta), 2.0, 14), rows.score_error(2.0, 14, beta))


def test_an_exponential_in_float32_is_as_exact_as_is_claimed():
    for lowest in (-1.0, -30.0, -125.0):
        exponents = np.linspace(lowest, 0, 1_000_000).astype(np.float32)
        found = np.empty_like(exponents)
        finish(LAPLACIAN, exponents, np.float32(0), exponents, np.float32(1), np.float32(0), 1, found)
        exact = np.exp2(exponents.astype(np.float64))
        assert np.abs(found / exact - 1).max() <= float32_error.EXP_ERROR


@pytest.mark.parametrize("device", ["cpu", "cpu:0"], ids=["cpu", "torch"])
def test_rounding_errors_scale_with_coefficients_rows_and_features(device):
    X = np.random.default_rng(0).normal(size=(50, 16))
    beta, ones, lengths = np.linspace(-1, 1, 50), np.ones(50), np.linalg.norm(X, axis=1)
    bounded, linear = rows_of(KERNELS["rbf"], X, device), rows_of(KERNELS["linear"], X, device)
    assert bounded.mass(beta) == pytest.approx(np.abs(beta).sum())
    assert linear.mass(beta) == pytest.approx(np.abs(beta) @ lengths)
    np.testing.assert_allclose(linear.score_error(6.0, 50, ones), 2 * linear.score_error(3.0, 50, ones))
    np.testing.assert_allclose(linear.score_error(1.0, 1, ones) / lengths, (16 + 2 + 1 + 4) * EPS / 2, rtol=0.1)
    assert (linear.score_error(1.0, 10_000, ones) > linear.score_error(1.0, 100, ones)).all()
    # Values between 0 and 1 are wrong by a few units for each feature.
    assert (bounded.score_error(1.0, 50, ones) < 1e-12).all()
    assert (bounded.score_error(1.0, 50, ones) > 16 * EPS).all()


def test_rounding_errors_are_where_the_coefficients_are():
    on_torch()
    X = np.random.default_rng(0).normal(size=(50, 16))
    for kernel in KERNELS.values():
        rows = rows_of(kernel, X, "cpu:0")
        beta = rows.vector(np.linspace(-1, 1, 50))
        on_device, on_host = rows.score_error(2.0, 50, beta), rows.score_error(2.0, 50, np.ones(50))
        assert type(on_device) is type(beta)
        assert isinstance(on_host, np.ndarray)
        np.testing.assert_allclose(rows.host(on_device), on_host, rtol=1e-14)
        assert rows.mass(beta) == pytest.approx(rows.mass(rows.host(beta)), rel=1e-14)
