"""The hot loops of kernels, each against its formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.compiled import kernels
from widemargin.compiled.panels import panel_width
from widemargin.compiled.storage import split_rows

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
N_POINTS = 301


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
    return finished(kernels.LAPLACIAN, exponents, 1)


def finished(kind, products, scale):
    values, number = np.empty_like(products), products.dtype.type
    kernels.finish(kind, products, number(0), products, number(scale), number(0), 1, values)
    return values


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


def test_what_would_underflow_is_tiny(dtype):
    far = np.array([-1e30, -1e5, -1100.0], dtype=dtype)
    np.testing.assert_array_equal(exp2(far), np.finfo(dtype).tiny)


def test_a_sigmoid_of_large_numbers_is_one():
    products, values = np.array([-1e300, -1e3, 1e3, 1e300]), np.empty(4)
    kernels.finish(kernels.SIGMOID, products, 0.0, products, 1.0, 0.0, 1, values)
    np.testing.assert_array_equal(values, [-1.0, -1.0, 1.0, 1.0])


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
    return np.random.default_rng(1).normal(size=(N_POINTS, 9)).astype(dtype)


def squares(X):
    return (X.astype(np.float64) ** 2).sum(axis=1).astype(X.dtype)


def parameters(name, dtype):
    kind, scale, shift = KINDS[name]
    return kind, (dtype(scale), dtype(shift), DEGREE)


def within(dtype):
    return {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 1e-6}


WIDTH, TILE_ROWS = 256, 3  # of tiles, which divide neither rows nor points


def panels(points):
    """Points as columns of panels, filled up with zeros."""
    width = panel_width(points.dtype)
    full = np.concatenate([points, np.zeros((-len(points) % width, points.shape[1]), points.dtype)])
    return np.ascontiguousarray(full.reshape(-1, width, points.shape[1]).transpose(0, 2, 1))


def arguments(name, X, points, stored, fine=None):
    """Of the loops, for rows that are dense, with points in panels or not, or sparse, with indices of this type."""
    kind, numbers = parameters(name, fine or X.dtype.type)
    norms = np.abs(points).sum(axis=1) if name == "laplacian" else squares(points)
    rows, columns = X, points
    if not isinstance(stored, str):
        matrix = sp.csr_matrix(X)
        splits = np.empty((len(X), 4), np.uint32)
        split_rows(matrix.indices, matrix.indptr, 4, 0, len(X), splits)
        rows = matrix.data, matrix.indices.astype(stored), matrix.indptr.astype(stored), splits
    if stored != "dense" or name == "laplacian":
        columns = panels(points)
    return kind, rows, squares(X).astype(fine or X.dtype), columns, norms.astype(fine or X.dtype), *numbers


@pytest.fixture(params=["dense", "panels", np.uint32, np.int64], ids=["dense", "panels", "uint32", "int64"])
def stored(request):
    return request.param


def sums(name, X, points, stored, coef, fine=None):
    """By both loops, which add to what is there."""
    several = arguments(name, X, points, stored, fine)
    few, many = np.ones((2, len(X), coef.shape[1]))
    for begin, end in ((0, 5), (5, len(X))):
        kernels.times(*several, np.ascontiguousarray(coef.T), begin, end, TILE_ROWS, WIDTH, few)
        kernels.times_many(*several, coef, begin, end, TILE_ROWS, WIDTH, many)
    return few, many


@pytest.mark.parametrize("n_columns", [1, 2, 5])
def test_sums_of_values_are_added(name, rows, points, dtype, stored, n_columns):
    coef = np.random.default_rng(2).normal(size=(N_POINTS, n_columns))
    for found in sums(name, rows, points, stored, coef):
        np.testing.assert_allclose(found, 1 + formula(name, rows, points) @ coef, **within(dtype))


def test_sums_of_products_in_float32_may_be_finished_in_float64(name, stored):
    """Of whole numbers, which float32 knows."""
    X, Z = (
        np.random.default_rng(k).integers(-3, 4, size=(n, 9)).astype(np.float32) for k, n in ((0, 14), (1, N_POINTS))
    )
    coef = np.random.default_rng(2).normal(size=(N_POINTS, 2))
    for found in sums(name, X, Z, stored, coef, fine=np.float64):
        np.testing.assert_allclose(found, 1 + formula(name, X, Z) @ coef, rtol=1e-11, atol=1e-11)


def test_values_are_written_to_columns(name, rows, points, dtype, stored):
    out = np.full((N_POINTS + 2, 14), np.nan, dtype)
    for begin, end in ((0, 5), (5, 14)):
        kernels.fill(*arguments(name, rows, points, stored), N_POINTS, 2, False, begin, end, TILE_ROWS, WIDTH, out)
    np.testing.assert_allclose(out[2:].T, formula(name, rows, points), **within(dtype))
    assert np.isnan(out[:2]).all()


@pytest.mark.parametrize("tile_rows", [3, 8], ids=["low", "high"])
def test_blocks_are_symmetric_to_the_last_bit(name, rows, dtype, stored, tile_rows):
    out = np.full((14, 20), np.nan, dtype)
    for first, last in ((0, 8), (8, 14)):  # points
        for begin, end in ((0, 5), (5, 14)):
            several = arguments(name, rows, rows[first:last], stored)
            kernels.fill(*several, last - first, first, True, begin, end, tile_rows, WIDTH, out)
    np.testing.assert_allclose(out[:, :14], formula(name, rows, rows), **within(dtype))
    np.testing.assert_array_equal(out[:, :14], out[:, :14].T)
    assert np.isnan(out[:, 14:]).all()


def test_squared_distances_from_differences(rows, points, dtype):
    _, _, norms, _, _, *numbers = arguments("rbf", rows, points, "dense")
    out, point_norms = np.empty((N_POINTS, 14), dtype), np.zeros(N_POINTS, dtype)
    several = (kernels.DIFFERENCES, rows, norms, panels(points), point_norms, *numbers)
    kernels.fill(*several, N_POINTS, 0, False, 0, 14, TILE_ROWS, WIDTH, out)
    np.testing.assert_allclose(out.T, formula("rbf", rows, points), **within(dtype))


def test_a_row_of_its_own_has_the_value_one(dtype):
    """Rounding may take it a little past one, never far."""
    X, K = np.random.default_rng(3).normal(size=(50, 20)).astype(dtype), np.empty((50, 50), dtype)
    kernels.fill(*arguments("rbf", X, X, "dense"), 50, 0, True, 0, 50, 16, 16, K)
    np.testing.assert_allclose(np.diag(K), 1.0, atol=100 * np.finfo(dtype).eps)


def test_sigmoid_levels_off_at_one_and_minus_one(dtype):
    row = np.array([-1e4, 0.0, 1e4], dtype=dtype)
    np.testing.assert_array_equal(finished(kernels.SIGMOID, row, 2 * LOG2E), [-1.0, 0.0, 1.0])


def test_rows_that_are_kept_are_added_up(dtype):
    values, coef = np.random.default_rng(0).normal(size=(6, 40)).astype(dtype), np.array([0.5, -2.0, 1.0])
    out = np.ones(40)
    for begin, end in ((0, 17), (17, 40)):
        kernels.add_rows(values, np.array([4, 0, 5]), coef, begin, end, out)
    np.testing.assert_allclose(out, 1 + coef @ values[[4, 0, 5]].astype(float), rtol=1e-12)
