"""The hot loops of kernels, each against its formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.compiled import kernels

LOG2E = np.log2(np.e)
BITS = {np.float32: 126, np.float64: 1022}  # the exponents that are told apart
KINDS = {
    "linear": (kernels.LINEAR, 1.0, 0.0),
    "rbf": (kernels.RBF, -0.4 * LOG2E, 0.0),
    "poly": (kernels.POLY, 0.4, 0.5),
    "sigmoid": (kernels.SIGMOID, 2 * 0.4 * LOG2E, 2 * 0.5 * LOG2E),
    "laplacian": (kernels.LAPLACIAN, -0.4 * LOG2E, 0.0),
}
DEGREE = 3


def formula(name, X, Z):
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    if name == "rbf":
        return np.exp(-0.4 * ((X[:, None] - Z[None]) ** 2).sum(axis=2))
    if name == "laplacian":
        return np.exp(-0.4 * np.abs(X[:, None] - Z[None]).sum(axis=2))
    products = X @ Z.T
    return {"linear": products, "poly": (0.4 * products + 0.5) ** DEGREE}.get(name, np.tanh(0.4 * products + 0.5))


def exp2(exponents):
    """Powers of two by way of the Laplacian kernel, whose distances are scaled and raised and nothing else."""
    row = exponents.copy()
    kernels.finish(kernels.LAPLACIAN, row, row.dtype.type(0), row[:0], row.dtype.type(1), row.dtype.type(0), 1)
    return row


# -- powers of two ---------------------------------------------------------------------------------------------------


def test_powers_of_two_are_right_to_rounding_over_the_whole_range(dtype):
    top = BITS[dtype]
    near_halves = np.arange(-top + 1, top)[:, None] + np.array([-0.5, -0.5 + 1e-6, 0.5 - 1e-6])
    exponents = np.concatenate([np.linspace(-top, top, 100_001), near_halves.ravel(), np.linspace(-1, 1, 10_001)])
    exponents = exponents.astype(dtype)
    expected = np.exp2(exponents.astype(np.longdouble))
    assert np.abs(exp2(exponents) / expected - 1).max() <= 2 * np.finfo(dtype).eps


def test_whole_exponents_are_exact(dtype):
    exponents = np.arange(-BITS[dtype], BITS[dtype] + 1).astype(dtype)
    np.testing.assert_array_equal(exp2(exponents), np.exp2(exponents))


def test_what_would_underflow_is_tiny_and_what_would_overflow_is_huge(dtype):
    far = np.array([-1e30, -1e5, -1100.0, 1100.0, 1e5, 1e30], dtype=dtype)
    values = exp2(far)
    tiny = np.finfo(dtype).tiny
    np.testing.assert_array_equal(values, np.repeat([tiny, 1 / (4 * tiny) * 4], 3).astype(dtype))
    assert np.isfinite(values).all()


def test_powers_of_two_rise_with_their_exponents(dtype):
    exponents = np.linspace(-20, 2, 50_001).astype(dtype)
    falls = np.diff(exp2(exponents)) / exp2(exponents)[1:]
    assert falls.min() >= -2 * np.finfo(dtype).eps


# -- kernel values ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def name(request):
    return request.param


@pytest.fixture
def rows(dtype):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((14, 9)) < 0.5, 0.0, rng.normal(size=(14, 9)))
    X[3] = 0.0
    return X.astype(dtype)


@pytest.fixture
def points(dtype):
    return np.random.default_rng(1).normal(size=(11, 9)).astype(dtype)


def squares(X):
    return (X.astype(np.float64) ** 2).sum(axis=1).astype(X.dtype)


def parameters(name, dtype):
    kind, scale, shift = KINDS[name]
    return kind, (dtype(scale), dtype(shift), DEGREE)


def within(dtype):
    return {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 1e-6}


def sparse_arguments(name, X, points, index):
    X, dtype = sp.csr_matrix(X), X.dtype.type
    kind, numbers = parameters(name, dtype)
    norms = np.abs(points).sum(axis=1) if name == "laplacian" else squares(points)
    arrays = (X.data, X.indices.astype(index), X.indptr.astype(index), squares(X.toarray()))
    return (kind, *arrays, np.ascontiguousarray(points.T), norms, *numbers)


def dense_tile(name, X, points):
    tile = np.empty((len(X), len(points)), X.dtype)
    if name == "laplacian":
        kernels.distances_dense(X, np.ascontiguousarray(points.T), tile)
    else:
        np.dot(X, points.T, out=tile)
    return tile


@pytest.mark.parametrize("index", [np.uint32, np.uint64])
def test_values_of_sparse_rows(name, rows, points, dtype, index):
    out = np.full((14, 11), np.nan, dtype)
    kernels.values_csr(*sparse_arguments(name, rows, points, index), out)
    np.testing.assert_allclose(out, formula(name, rows, points), **within(dtype))


@pytest.mark.parametrize("index", [np.uint32, np.uint64])
def test_sums_over_sparse_rows_are_added(name, rows, points, dtype, index):
    coef, out, row = np.random.default_rng(2).normal(size=11), np.ones(14), np.empty(11, dtype)
    kernels.times_csr(*sparse_arguments(name, rows, points, index), coef, row, row, out)
    np.testing.assert_allclose(out, 1 + formula(name, rows, points) @ coef, **within(dtype))


def test_sums_of_products_in_float32_may_be_finished_in_float64(name):
    """Of whole numbers, which float32 knows."""
    X, Z = (np.random.default_rng(k).integers(-3, 4, size=(n, 9)).astype(np.float32) for k, n in ((0, 14), (1, 11)))
    kind, data, indices, indptr, norms, ZT, point_norms, *_ = sparse_arguments(name, X, Z, np.uint32)
    _, numbers = parameters(name, np.float64)
    coef, out = np.random.default_rng(2).normal(size=11), np.zeros(14)
    arrays = (data, indices, indptr, norms.astype(float), ZT, point_norms.astype(float))
    kernels.times_csr(kind, *arrays, *numbers, coef, np.empty(11, np.float32), np.empty(11), out)
    np.testing.assert_allclose(out, formula(name, X, Z) @ coef, rtol=1e-11, atol=1e-11)


def test_values_of_dense_rows(name, rows, points, dtype):
    tile = dense_tile(name, rows, points)
    kind, numbers = parameters(name, dtype)
    kernels.finish_tile(kind, tile, squares(rows), squares(points), *numbers)
    np.testing.assert_allclose(tile, formula(name, rows, points), **within(dtype))


def test_sums_over_dense_rows_are_added(name, rows, points, dtype):
    coef, out = np.random.default_rng(2).normal(size=11), np.ones(14)
    kind, numbers = parameters(name, dtype)
    tile = dense_tile(name, rows, points)
    kernels.finish_tile_times(kind, tile, squares(rows), squares(points), *numbers, coef, out)
    np.testing.assert_allclose(out, 1 + formula(name, rows, points) @ coef, **within(dtype))


def test_a_row_of_its_own_has_the_value_one(dtype):
    """Rounding may take it a little past one, never far."""
    X = np.random.default_rng(3).normal(size=(50, 20)).astype(dtype)
    tile = dense_tile("rbf", X, X)
    kind, numbers = parameters("rbf", dtype)
    kernels.finish_tile(kind, tile, squares(X), squares(X), *numbers)
    np.testing.assert_allclose(np.diag(tile), 1.0, atol=100 * np.finfo(dtype).eps)


def test_sigmoid_levels_off_at_one_and_minus_one(dtype):
    row = np.array([-1e4, 0.0, 1e4], dtype=dtype)
    kernels.finish(kernels.SIGMOID, row, dtype(0), row[:0], dtype(2 * LOG2E), dtype(0), 1)
    np.testing.assert_array_equal(row, [-1.0, 0.0, 1.0])
