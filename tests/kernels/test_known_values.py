"""All kernel values in two parts: how near the sums of both are to those in float64, and when values are kept."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import cores
from widemargin.kernels import known_values
from widemargin.kernels.functions import Kernel
from widemargin.kernels.known_values import KnownValues
from widemargin.kernels.on_cpu import RowsOnCPU

KERNELS = {
    "rbf": Kernel("rbf", 0.1),
    "narrow": Kernel("rbf", 30.0),
    "laplacian": Kernel("laplacian", 0.1),
    "linear": Kernel("linear"),
    "poly": Kernel("poly", 0.1, 3, 1.0),
    "sigmoid": Kernel("sigmoid", 0.1),
    "cosine": Kernel("cosine"),
}
ALL = 1 << 30


def rows_of(kernel, n=300, d=5, *, storage=np.asarray, dtype=np.float64):
    X = np.random.default_rng(0).normal(size=(n, d)).astype(dtype)
    return RowsOnCPU(kernel, storage(np.where(np.abs(X) > 0.5, X, 0)))


def exact(rows):
    return rows.block(rows.points(np.arange(rows.n_rows)), exact=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", KERNELS)
def test_both_parts_are_the_values_in_float64(name, storage, dtype):
    rows = rows_of(KERNELS[name], storage=storage, dtype=dtype)
    assert rows.keep_values(ALL)
    known, K = rows.known_values(), exact(rows)
    np.testing.assert_allclose(known.near, K, rtol=1e-7, atol=1e-14)
    np.testing.assert_array_equal(known.near, known.near.T)
    np.testing.assert_array_equal(known.lost, known.lost.T)
    coef = np.random.default_rng(1).normal(size=rows.n_rows) * (np.arange(rows.n_rows) % 3 > 0)
    sizes = np.abs(K) @ np.abs(coef)
    rounding = 1e-13 * sizes.max()  # of products in another order, and of sums
    assert (np.abs(known.times(coef, exact=True) - K @ coef) <= known_values.ERROR * sizes + rounding).all()
    assert (np.abs(known.times(coef, exact=False) - K @ coef) <= 6.1e-8 * sizes + rounding).all()


@pytest.mark.parametrize("gamma", [1e-8, 1e-3, 30.0])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_values_near_1_are_kept_less_1_where_coefficients_sum_to_zero(name, gamma):
    rows = rows_of(Kernel(name, gamma))
    assert rows.keep_values(ALL, is_tied=True)
    known, K, rng = rows.known_values(), exact(rows), np.random.default_rng(1)
    assert known.less == (gamma < 1)
    np.testing.assert_allclose(known.near, K - known.less, rtol=1e-7, atol=1e-15)
    balanced = rng.normal(size=rows.n_rows)
    balanced -= balanced.mean()
    sizes = np.abs(K - known.less) @ np.abs(balanced)
    assert (np.abs(known.times(balanced, exact=False) - K @ balanced) <= 6.1e-8 * sizes + 1e-12).all()
    some, coef = np.array([3, 7, 200]), np.array([1.0, -2.0, 3.0])  # whose sum is not zero
    np.testing.assert_allclose(known.times_at(some, coef, some), K[np.ix_(some, some)] @ coef, rtol=1e-11)
    np.testing.assert_allclose(known.only(some).times(coef, exact=True), K[np.ix_(some, some)] @ coef, rtol=1e-11)


@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid", "cosine"])
def test_other_kernels_are_kept_as_they_are(name):
    rows = rows_of(KERNELS[name])
    assert rows.keep_values(ALL, is_tied=True)
    assert rows.known_values().less == 0


def test_values_in_float32_alone_are_not_within_the_error_of_both_parts():
    rows = rows_of(KERNELS["rbf"])
    rows.keep_values(ALL)
    K, coef = exact(rows), np.ones(rows.n_rows)
    apart = np.abs(rows.known_values().times(coef, exact=False) - K @ coef)
    assert (apart > 10 * known_values.ERROR * (np.abs(K) @ coef)).any()


@pytest.mark.parametrize("n", [1, 2, 31, 33, 256, 257])
def test_any_number_of_rows(n):
    rows = rows_of(KERNELS["rbf"], n)
    assert rows.keep_values(ALL)
    np.testing.assert_allclose(rows.known_values().near, exact(rows), rtol=1e-7)
    assert rows.ledger.kernel_evaluations >= n * (n + 1) // 2


def test_some_rows_have_a_copy_of_their_values():
    rows, some = rows_of(KERNELS["rbf"]), np.array([3, 7, 8, 200])
    assert rows.only(some).known_values() is None
    rows.keep_values(ALL)
    part = rows.only(some).known_values()
    np.testing.assert_array_equal(part.near, rows.known_values().near[np.ix_(some, some)])
    coef = np.array([1.0, -2.0, 0.0, 3.0])
    of_all = np.zeros(rows.n_rows)
    of_all[some] = coef
    np.testing.assert_allclose(part.times(coef, exact=True), rows.known_values().times(of_all, exact=True)[some])
    np.testing.assert_allclose(
        rows.known_values().times_at(some, coef, np.array([0, 8])), exact(rows)[[0, 8]][:, some] @ coef, rtol=1e-11
    )


def test_memory_is_used_again():
    first, second = rows_of(KERNELS["rbf"]), rows_of(KERNELS["narrow"])
    first.keep_values(ALL)
    known = first.known_values()
    second.keep_values(ALL, known)
    assert second.known_values().near is known.near
    np.testing.assert_allclose(second.known_values().near, exact(second), rtol=1e-7, atol=1e-37)


@pytest.mark.parametrize(
    ("kernel", "n_bytes"),
    [
        (Kernel("rbf", 0.1), known_values.BYTES * 300**2 - 1),  # too little memory
        (Kernel("poly", 1e15, 3), ALL),  # too large for float32
        (Kernel("callable", function=lambda A, B: A @ B.T), ALL),  # need not be quite symmetric
    ],
    ids=["memory", "range", "function"],
)
def test_values_are_not_kept_where_they_cannot_be(kernel, n_bytes):
    rows = rows_of(kernel)
    assert not rows.keep_values(n_bytes)
    assert rows.known_values() is None


def test_values_do_not_depend_on_the_number_of_threads():
    found = []
    for n in (1, 3):
        rows = rows_of(KERNELS["rbf"], 700)
        with cores.at_most(n):
            rows.keep_values(ALL)
        found.append(rows.known_values())
    np.testing.assert_array_equal(found[0].near, found[1].near)
    np.testing.assert_array_equal(found[0].lost, found[1].lost)


def test_values_too_small_for_float32_are_no_more_than_the_allowance():
    known = KnownValues.filled(2, lambda begin, end: np.array([[1.0, 1e-42], [1e-42, 1.0]]), None)
    assert np.abs(known.times(np.array([1.0, 0.0]), exact=True)[1] - 1e-42) <= known_values.SMALLEST
