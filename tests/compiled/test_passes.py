"""The passes over dense and sparse rows, each against the same formula in NumPy."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.compiled import csr, dense

TWINS = ["scores", "combine", "stepwise_combine", "combine_signs", "combine_rows", "curvature", "squared_norms"]


@pytest.fixture
def rows(seed, dtype):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(17, 9))
    X[rng.random(X.shape) < 0.4] = 0.0
    X[3] = 0.0  # a row without entries
    return X.astype(dtype)


def call(name, X, *arguments):
    if sp.issparse(X):
        getattr(csr, f"{name}_csr")(X.data, X.indices, X.indptr, *arguments)
    else:
        getattr(dense, f"{name}_dense")(X, *arguments)


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_scores(rows, storage):
    w, out = np.random.default_rng(1).normal(size=9), np.full(17, np.nan)
    call("scores", storage(rows), w, out)
    near(out, rows.astype(np.float64) @ w)


def test_combine(rows, storage):
    mass, out = np.random.default_rng(1).normal(size=17), np.full(9, np.nan)
    mass[5] = 0.0
    call("combine", storage(rows), mass, out)
    near(out, rows.astype(np.float64).T @ mass)


def test_combine_does_not_read_rows_of_no_mass():
    """Where few rows have mass; else all are read, which is faster than to skip some."""
    X, out, of_signs = np.full((20, 2), np.nan), np.empty(2), np.empty((2, 2))
    X[7] = [1.0, 2.0]
    mass = np.where(np.arange(20) == 7, 3.0, 0.0)
    call("combine", X, mass, out)
    call("combine_signs", X, mass, 20, of_signs)
    near(out, [3.0, 6.0])
    near(of_signs, [[3.0, 6.0], [0.0, 0.0]])


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
def test_combine_signs(rows, storage, share):
    rng = np.random.default_rng(1)
    mass, out = rng.normal(size=17) * (rng.random(17) < share), np.full((2, 9), np.nan)
    mass[2] = -1.5
    for step in (1, 5, 17, 100):
        call("combine_signs", storage(rows), mass, step, out)
        X = rows.astype(np.float64)
        near(out, [X.T @ np.maximum(mass, 0.0), X.T @ np.minimum(mass, 0.0)])


def test_combine_rows(rows, storage):
    some, mass, out = np.array([0, 3, 4, 16]), np.array([1.0, -2.0, 0.5, 0.0]), np.full(9, np.nan)
    call("combine_rows", storage(rows), some, mass, out)
    near(out, rows[some].astype(np.float64).T @ mass)


def test_curvature(rows, storage):
    some, mass = np.array([0, 3, 4, 16]), np.array([1.0, 2.0, 0.5, 0.0])
    v, out = np.random.default_rng(1).normal(size=9), np.full(9, np.nan)
    call("curvature", storage(rows), some, mass, v, out)
    taken = rows[some].astype(np.float64)
    near(out, taken.T @ (mass * (taken @ v)))


def test_second_moment_of_sparse_rows(rows):
    some, mass, out = np.array([0, 3, 4, 16]), np.array([1.0, 2.0, 0.5, 0.0]), np.full((9, 9), np.nan)
    for index in (np.int32, np.int64):
        X = sp.csr_matrix(rows)
        csr.second_moment_csr(X.data, X.indices.astype(index), X.indptr.astype(index), some, mass, out)
        taken = rows[some].astype(np.float64)
        near(out, (taken * mass[:, None]).T @ taken)


def test_squared_norms(rows, storage):
    out = np.full(17, np.nan)
    call("squared_norms", storage(rows), out)
    near(out, (rows.astype(np.float64) ** 2).sum(axis=1))


def test_squares_of_large_float32_values_do_not_overflow():
    X, out = np.full((1, 2), 1e30, dtype=np.float32), np.empty(1)
    call("squared_norms", X, out)
    assert out[0] == pytest.approx(2e60, rel=1e-6)


def test_float32_products_are_summed_in_float64():
    """In float32 the small entries would be lost beside the large one."""
    X, out = np.ones((1, 1001), dtype=np.float32), np.empty(1)
    w = np.full(1001, 1e-5)
    w[0] = 1e3
    call("scores", X, w, out)
    assert out[0] == pytest.approx(1000.01, rel=1e-12)


def test_no_rows_at_all(storage):
    X = storage(np.empty((0, 4)))
    out = np.full(4, np.nan)
    call("combine", X, np.empty(0), out)
    assert not out.any()
    call("scores", X, np.ones(4), np.empty(0))


@pytest.mark.parametrize("name", TWINS)
def test_twins_take_the_same_arguments(name):
    of_dense = list(inspect.signature(getattr(dense, f"{name}_dense").py_func).parameters)
    of_csr = list(inspect.signature(getattr(csr, f"{name}_csr").py_func).parameters)
    assert of_dense[0] == "X"
    assert of_csr == ["data", "indices", "indptr", *of_dense[1:]]


@pytest.mark.parametrize("module", [dense, csr])
def test_every_pass_is_cached_and_frees_the_interpreter(module):
    passes = [each for name, each in vars(module).items() if name.endswith(("_dense", "_csr"))]
    assert passes
    for each in passes:
        assert each.targetoptions["nogil"]
        assert type(each._cache).__name__ == "FunctionCache"  # NullCache where caching is off
