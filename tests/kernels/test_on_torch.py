"""Kernel primitives on torch's CPU device: beside those of NumPy and scikit-learn's in float64, and their errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels

from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points

torch = pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")

from widemargin.kernels import torch_rows  # noqa: E402
from widemargin.kernels.on_torch import RowsOnTorch  # noqa: E402

KERNELS = {
    "rbf": Kernel("rbf", 0.3),
    "linear": Kernel("linear"),
    "poly": Kernel("poly", 0.25, 3, 1.0),
    "sigmoid": Kernel("sigmoid", 0.1, coef0=-0.5),
    "laplacian": Kernel("laplacian", 0.25),
    "cosine": Kernel("cosine"),
}
# Rows are rounded to 11 bits and, where there is room, to 22: of few columns all are.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
EXACT = {"rtol": 1e-11, "atol": 1e-11}


@pytest.fixture(params=list(KERNELS))
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture(params=["float16", "float32"])
def precision(request):
    return request.param


def some_rows(n=60, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 0.5


def gram(kernel, A, B):
    used = {
        "rbf": ["gamma"],
        "laplacian": ["gamma"],
        "poly": ["gamma", "degree", "coef0"],
        "sigmoid": ["gamma", "coef0"],
    }
    options = {name: getattr(kernel, name) for name in used.get(kernel.name, [])}
    return pairwise_kernels(A, B, metric=kernel.name, **options)


def on_torch_cpu(kernel, X, first=0, **options):
    return RowsOnTorch(kernel, X, first, device="cpu", **options)


# -- against float64 and the other device ------------------------------------------------------------------------------


def test_times_rows_and_blocks_are_those_of_float64(kernel, precision, storage, dtype):
    X = some_rows().astype(dtype)
    rows, coef = on_torch_cpu(kernel, storage(X), precision=precision), np.random.default_rng(1).normal(size=20)
    points, K = rows.points(np.arange(0, 60, 3)), gram(kernel, X.astype(float), X[::3].astype(float))
    np.testing.assert_allclose(rows.times(points, coef), K @ coef, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(rows.times(points, coef, exact=True), K @ coef, **EXACT)
    np.testing.assert_allclose(rows.rows(points), K.T, **CLOSE)
    np.testing.assert_allclose(rows.block(points), K[::3], **CLOSE)
    np.testing.assert_allclose(rows.block(points, exact=True), K[::3], **EXACT)
    several = np.column_stack([coef, -coef, coef**2])
    np.testing.assert_allclose(rows.times(points, several), K @ several, rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(rows.times(points, several[:, :1], exact=True), K @ several[:, :1], **EXACT)


def test_the_same_as_on_the_other_device(kernel):
    X, coef = some_rows(), np.linspace(-1, 1, 20)
    here, there = RowsOnCPU(kernel, X, 7), on_torch_cpu(kernel, X, 7)
    chosen = np.arange(40, 60)
    np.testing.assert_array_equal(there.points(chosen).X, here.points(chosen).X)
    np.testing.assert_array_equal(there.points(chosen).numbers, here.points(chosen).numbers)
    np.testing.assert_allclose(
        there.times(there.points(chosen), coef, exact=True), here.times(here.points(chosen), coef, exact=True), **EXACT
    )
    np.testing.assert_allclose(there.diagonal_of(there.points(chosen)), here.diagonal_of(here.points(chosen)), **EXACT)
    part, other = there.only(np.arange(5, 25)), here.only(np.arange(5, 25))
    points = here.points(chosen)
    np.testing.assert_allclose(part.times(points, coef), other.times(points, coef), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(part.times(points, coef, exact=True), other.times(points, coef, exact=True), **EXACT)
    np.testing.assert_array_equal(part.numbers, other.numbers)
    assert (there.n_rows, part.n_rows) == (60, 20)


def test_points_of_the_device_are_the_same_points(kernel):
    rows, chosen = on_torch_cpu(kernel, some_rows(), 100), np.array([3, 50, 8])
    here, there = rows.points(chosen), rows.points(rows.places(chosen))
    assert len(there) == 3
    np.testing.assert_array_equal(there.X, here.X)
    np.testing.assert_array_equal(there.numbers, [103, 150, 108])
    np.testing.assert_array_equal(there[1:].numbers, [150, 108])
    coef = np.array([1.0, -2.0, 0.5])
    answer = rows.times(there, rows.vector(coef))
    assert isinstance(answer, torch.Tensor)
    assert answer.dtype == torch.float64
    np.testing.assert_allclose(answer.numpy(), rows.times(here, coef), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rows.block(there).numpy(), rows.block(here), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rows.block(there, exact=True).numpy(), rows.block(here, exact=True), **EXACT)


def test_points_from_elsewhere_with_columns_that_are_zero_here(kernel):
    X = some_rows()
    X[:, 2] = 0.0
    Z, coef = some_rows(10, seed=3), np.ones(10)
    rows = on_torch_cpu(kernel, X)
    points = Points(Z, np.arange(10))
    K = gram(kernel, X, Z)
    np.testing.assert_allclose(rows.times(points, coef), K @ coef, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(rows.times(points, coef, exact=True), K @ coef, **EXACT)


def test_rows_that_pass_in_blocks_give_what_rows_at_rest_do(kernel, storage, monkeypatch):
    X, coef = some_rows(), np.linspace(-1, 1, 20)
    rest = on_torch_cpu(kernel, storage(X))
    monkeypatch.setattr(torch_rows, "_ROWS_AT_ONCE", 16)
    monkeypatch.setattr(torch_rows, "BLOCK", 8)
    need = 12 * 8 * 60 + 16 * 24 * (5 + 64) + 16 * 8 * (8 + 5)
    monkeypatch.setattr(torch_rows, "free_bytes", lambda device: (need + 100) / torch_rows._MEMORY_SHARE)
    passing = on_torch_cpu(kernel, storage(X))
    assert rest.stored.is_resident
    assert not passing.stored.is_resident
    for rows in (rest, passing):
        rows.chosen = rows.points(rows.places(np.arange(0, 60, 3)))
    there = passing.vector(coef)
    np.testing.assert_array_equal(passing.times(passing.chosen, there), rest.times(rest.chosen, there))
    np.testing.assert_allclose(
        passing.times(passing.chosen, there, exact=True), rest.times(rest.chosen, there, exact=True), rtol=1e-13
    )
    np.testing.assert_array_equal(passing.block(passing.chosen), rest.block(rest.chosen))


def test_too_little_memory_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr(torch_rows, "free_bytes", lambda device: 1e6)
    with pytest.raises(MemoryError, match=r"60 rows of 5 features need .* GiB on cpu .*device='cpu'"):
        on_torch_cpu(KERNELS["rbf"], some_rows())


@pytest.mark.parametrize("kernel", [Kernel("precomputed"), Kernel("callable", function=np.dot)], ids=lambda k: k.name)
def test_kernels_that_a_device_does_not_know_are_refused(kernel):
    with pytest.raises(ValueError, match="not among those that run on a GPU"):
        on_torch_cpu(kernel, some_rows())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused(bad):
    X = some_rows()
    X[3, 1] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        on_torch_cpu(KERNELS["rbf"], X)


def test_no_rows_and_no_points():
    empty = on_torch_cpu(KERNELS["rbf"], np.empty((0, 5)))
    assert empty.times(Points(some_rows(3), np.arange(3)), np.ones(3)).shape == (0,)
    rows = on_torch_cpu(KERNELS["rbf"], some_rows())
    nothing = rows.points(np.empty(0, dtype=np.int64))
    np.testing.assert_array_equal(rows.times(nothing, np.empty(0)), np.zeros(60))
    np.testing.assert_array_equal(rows.times(nothing, np.empty(0), exact=True), np.zeros(60))


def test_kernel_values_are_counted_as_on_the_other_device():
    rows = on_torch_cpu(KERNELS["rbf"], some_rows())
    assert rows.ledger.kernel_evaluations == 0
    points = rows.points(np.arange(20))
    rows.times(points, np.ones(20))
    rows.rows(points)
    rows.block(points)
    assert rows.ledger.kernel_evaluations == 2 * 60 * 20 + 20 * 20
    cache = rows.cache(1 << 20)
    assert (cache.n_slots, 3 in cache) == (0, False)
    np.testing.assert_array_equal(cache.times(points, np.ones(20)), rows.times(points, np.ones(20)))
    assert rows.ledger.cache_misses == 20


# -- rounding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).integers(-40, 40, (300, 70)).astype(float),
        np.random.default_rng(0).integers(0, 2, (300, 70)).astype(float),
        np.random.default_rng(0).integers(0, 256, (300, 70)) / 255.0,
        np.random.default_rng(0).integers(-40, 40, (300, 70)) + 1000.0,
    ],
    ids=["whole", "zeros-and-ones", "pixels", "whole-and-far"],
)
def test_whole_numbers_and_pixels_lose_nothing(X):
    """But what float32 sums lose: some hundred roundings of 6e-8."""
    rows = on_torch_cpu(Kernel("rbf", 1 / (70 * X.var())), X)
    assert len(rows.stored.split) == 0
    assert rows.largest_error < 1e-5


def test_columns_that_lose_most_get_a_second_number_where_there_is_room():
    X = np.random.default_rng(0).normal(size=(300, 62))
    X[:, :61] = np.round(X[:, :61])
    rows = on_torch_cpu(Kernel("rbf", 0.01), X)
    np.testing.assert_array_equal(rows.stored.split, [61])
    assert rows.largest_error < 1e-5
    X = np.random.default_rng(0).normal(size=(300, 64))
    narrow, wide = (on_torch_cpu(Kernel("rbf", 0.01), X, precision=each) for each in ("float16", "float32"))
    assert (len(narrow.stored.split), len(wide.stored.split)) == (0, 64)
    assert 1e-5 < narrow.largest_error < 1e-3
    assert wide.largest_error < 1e-5


def test_the_typical_error_is_below_the_largest_and_both_are_measured():
    X = np.random.default_rng(0).normal(size=(200, 64))
    rows = on_torch_cpu(Kernel("rbf", 0.01), X)
    points = rows.points(np.arange(200))
    errors = np.abs(rows.block(points) - rows.block(points, exact=True))
    assert rows.largest_error == pytest.approx(errors.max(), rel=1e-6)
    assert rows.error == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-6)


def test_rows_may_be_very_large_or_small(precision):
    for scale in (1e-12, 1e12):
        X = scale * some_rows()
        kernel = Kernel("rbf", 0.3 / scale**2)
        rows = on_torch_cpu(kernel, X, precision=precision)
        points, coef = rows.points(np.arange(20)), np.ones(20)
        np.testing.assert_allclose(rows.times(points, coef), gram(kernel, X, X[:20]) @ coef, rtol=1e-4)


# -- vectors -----------------------------------------------------------------------------------------------------------


def test_vectors_go_there_and_come_back():
    rows = on_torch_cpu(KERNELS["rbf"], some_rows())
    values = np.array([0.0, 1.5, 0.0, -2.0])
    there = rows.vector(values)
    assert there.dtype == torch.float64
    np.testing.assert_array_equal(rows.nonzero(there), [1, 3])
    np.testing.assert_array_equal(rows.nonzero(values), [1, 3])
    back = rows.host(there)
    np.testing.assert_array_equal(back, values)
    back[0] = 7.0
    assert float(there[0]) == 0.0
    np.testing.assert_array_equal(rows.vectors([values, 2 * values])[1], 2 * values)


def test_sparse_rows_are_those_of_dense_ones_bit_by_bit():
    X = np.where(np.random.default_rng(0).random((60, 8)) < 0.7, 0.0, some_rows(60, 8))
    dense, sparse = (on_torch_cpu(KERNELS["rbf"], each) for each in (X, sp.csr_matrix(X)))
    np.testing.assert_array_equal(dense.stored.left.matrix, sparse.stored.left.matrix)
    np.testing.assert_array_equal(dense.stored.given, sparse.stored.given)
