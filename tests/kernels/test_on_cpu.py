"""Kernel primitives against scikit-learn's, in float64 and float32, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

from tests.conftest import STORAGES
from widemargin.comm.threads import on_ranks
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU, times_few
from widemargin.kernels.points import Points
from widemargin.kernels.precision import choose
from widemargin.kernels.storage import Measured
from widemargin.ledger import Ledger

KERNELS = {
    "linear": Kernel("linear"),
    "rbf": Kernel("rbf", 0.3),
    "rbf-narrow": Kernel("rbf", 30.0),
    "poly": Kernel("poly", 0.3, 3, 0.5),
    "poly-1": Kernel("poly", 0.3, 1, 0.0),
    "poly-6": Kernel("poly", 0.2, 6, 1.0),
    "sigmoid": Kernel("sigmoid", 0.3, coef0=-0.5),
    "laplacian": Kernel("laplacian", 0.3),
    "cosine": Kernel("cosine"),
}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture(params=[0.15, 0.6, 1.0], ids=lambda share: f"density{share}")
def values(request):
    """Rows of several densities, on both sides of where sparse loops begin; one is zero, two are equal."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((90, 13)) < request.param, rng.normal(size=(90, 13)), 0.0)
    X[7], X[20] = 0.0, X[21]
    return X


def by_scikit_learn(kernel, A, B=None):
    used = {"rbf": ["gamma"], "laplacian": ["gamma"], "sigmoid": ["gamma", "coef0"]}
    used["poly"] = ["gamma", "degree", "coef0"]
    options = {name: getattr(kernel, name) for name in used.get(kernel.name, [])}
    A = np.asarray(A, dtype=np.float64)
    return pairwise_kernels(A, A if B is None else np.asarray(B, dtype=np.float64), metric=kernel.name, **options)


def assert_near(ours, theirs, relative):
    """As close as this part of the largest value."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=relative * np.abs(theirs).max())


def test_assert_near_fails_beyond_its_bound():
    assert_near(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-13]), 1e-12)
    with pytest.raises(AssertionError):
        assert_near(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-11]), 1e-12)


# -- against scikit-learn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [(), (1,), (3,)], ids=["vector", "column", "columns"])
def test_times_is_the_sum_of_kernel_values(kernel, values, storage, dtype, columns):
    values = values.astype(dtype)
    rows = RowsOnCPU(kernel, storage(values))
    chosen = np.arange(1, 90, 2)
    coef = np.random.default_rng(1).normal(size=(len(chosen), *columns))
    sums = by_scikit_learn(kernel, values)[:, chosen] @ coef
    points = rows.points(chosen)
    assert_near(rows.times(points, coef, exact=True), sums, 1e-12)
    ours = rows.times(points, coef)
    assert ours.dtype == np.float64
    assert_near(ours, sums, 1e-5)


def test_rows_blocks_and_diagonals_are_kernel_values(kernel, values, storage, dtype):
    values = values.astype(dtype)
    rows = RowsOnCPU(kernel, storage(values))
    K = by_scikit_learn(kernel, values)
    some, others = np.array([3, 7, 20, 21, 88]), np.arange(0, 90, 3)
    assert_near(rows.rows(rows.points(some)), K[some], 1e-5)
    assert_near(rows.block(rows.points(others)), K[np.ix_(others, others)], 1e-5)
    assert_near(rows.diagonal_of(rows.points(others)), np.diag(K)[others], 1e-12)


def test_the_block_of_a_working_set_is_the_block_of_its_points(kernel, values):
    rows = RowsOnCPU(kernel, values)
    for n in (5, 90, 7):
        points = rows.points(np.arange(n))
        K = rows.working_block(points)
        np.testing.assert_array_equal(K[:, :n], rows.block(points))
        assert not K[:, n:].any()


def test_sums_of_many_points_and_rows_cross_the_edges_of_tiles(kernel):
    rng = np.random.default_rng(2)
    X = np.where(rng.random((1100, 6)) < 0.3, rng.normal(size=(1100, 6)), 0.0)
    coef, K = rng.normal(size=600), by_scikit_learn(kernel, X)
    for make in (np.asarray, sp.csr_matrix):
        rows = RowsOnCPU(kernel, make(X))
        points = rows.points(np.arange(600))
        assert_near(rows.times(points, coef, exact=True), K[:, :600] @ coef, 1e-12)
        assert_near(rows.rows(points), K[:600], 1e-5)
        assert_near(rows.block(rows.points(np.arange(1100))), K, 1e-5)


@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "cosine"])
def test_values_of_many_rows_are_in_float32(name, share):
    rng, kernel = np.random.default_rng(3), KERNELS[name]
    X = np.where(rng.random((4500, 6)) < share, rng.normal(size=(4500, 6)), 0.0)
    rows, chosen, coef = RowsOnCPU(kernel, X), np.arange(0, 4500, 11), rng.normal(size=(410, 9))
    K, points = by_scikit_learn(kernel, X, X[chosen]), rows.points(chosen)
    assert rows.dtype == np.float32
    for columns in (1, 2, 9):
        assert_near(rows.times(points, coef[:, :columns]), K @ coef[:, :columns], 1e-5)
        assert_near(rows.times(points, coef[:, :columns], exact=True), K @ coef[:, :columns], 1e-12)
    assert_near(rows.rows(points), K.T, 1e-5)
    assert_near(rows.block(points), K[chosen], 1e-5)


@pytest.mark.parametrize("n_features", [7, 64, 150])
def test_rows_of_zeros_and_ones_are_multiplied_as_bits(kernel, storage, dtype, n_features):
    rng = np.random.default_rng(4)
    X = (rng.random((700, n_features)) < 0.25).astype(dtype)
    X[5], X[6] = 0.0, X[7]
    rows, coef, K = RowsOnCPU(kernel, storage(X)), rng.normal(size=(700, 12)), by_scikit_learn(kernel, X)
    points, others = rows.points(np.arange(700)), Points(storage(X + dtype(0.01)), np.arange(700))
    assert rows._is_binary == (kernel.name != "cosine")
    for columns in (1, 2, 12):
        assert_near(rows.times(points, coef[:, :columns], exact=True), K @ coef[:, :columns], 1e-12)
    assert_near(rows.block(points), K, 1e-5)
    assert_near(rows.rows(points[300:]), K[300:], 1e-5)
    # Points of a fitted model need not be of zeros and ones.
    mixed = by_scikit_learn(kernel, X, X + dtype(0.01))
    assert_near(rows.times(others, coef, exact=True), mixed @ coef, 1e-10)  # theirs loses digits


def test_rows_with_other_entries_or_entries_stored_twice_are_no_bits():
    X = (np.random.default_rng(0).random((50, 9)) < 0.5).astype(float)
    assert RowsOnCPU(KERNELS["rbf"], X)._is_binary
    X[3, 4] = 2.0
    assert not RowsOnCPU(KERNELS["rbf"], X)._is_binary
    twice = sp.csr_matrix((np.ones(60), np.tile([0, 1, 1], 20), np.arange(0, 61, 3)), shape=(20, 2))
    rows = RowsOnCPU(KERNELS["linear"], twice)
    np.testing.assert_allclose(rows.times(rows.points(np.arange(1)), np.ones(1)), 5.0)


@pytest.mark.parametrize("n_rows", [1, 3, 9])
def test_a_few_dense_rows_need_no_preparation(kernel, values, dtype, n_rows):
    values, coef = values.astype(dtype), np.random.default_rng(1).normal(size=(2, 80))
    few = times_few(kernel, values[:n_rows], values[10:], coef)
    assert (few is None) == (n_rows > 8 or kernel.name == "cosine")
    if few is not None:
        assert_near(few, by_scikit_learn(kernel, values[:n_rows], values[10:]) @ coef.T, 1e-12)


def test_few_rows_that_are_sparse_or_too_long_are_not_taken_as_they_are(values):
    coef = np.ones((1, 90))
    assert times_few(KERNELS["rbf"], sp.csr_matrix(values[:1]), values, coef) is None
    assert times_few(KERNELS["rbf"], values[:1], sp.csr_matrix(values), coef) is None
    assert times_few(KERNELS["rbf"], 1e160 * np.ones((1, 13)), values, coef) is None
    assert times_few(Kernel("poly", 1.0, 200, 0.0), 1e10 * np.ones((1, 13)), values, coef) is None


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e20], ids=["near", "far", "beyond float32"])
@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("name", ["rbf", "rbf-narrow", "laplacian", "cosine", "sigmoid", "linear"])
def test_rows_to_be_predicted_take_the_precision_of_points(name, share, scale):
    """However far they are: no value is wrong by more than that of a row among the points may be."""
    rng, kernel = np.random.default_rng(4), KERNELS[name]
    X = np.where(rng.random((50, 6)) < share, rng.normal(size=(50, 6)), 0.0)
    far = (X * np.where(np.arange(50) % 2, scale, 1.0)[:, None]).astype(np.float32)
    rows, coef = RowsOnCPU(kernel, far, points=X), rng.normal(size=(50, 2))
    K = by_scikit_learn(kernel, far.astype(float), X)
    assert_near(rows.times(Points(X, np.arange(50)), coef), K @ coef, 1e-5)
    assert_near(rows.times(Points(X, np.arange(50)), coef, exact=True), K @ coef, 1e-11)


def test_rows_to_be_predicted_must_not_overflow():
    X = np.full((3, 2), 1e160)
    with pytest.raises(ValueError, match="too long"):
        RowsOnCPU(KERNELS["rbf"], X, points=np.ones((2, 2)))


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_rows_of_usual_values_are_sparse_from_there(name):
    """As images with a background, and features that were scaled."""
    rng, kernel = np.random.default_rng(5), KERNELS[name]
    usual = rng.normal(size=70) * (rng.random(70) < 0.8)
    X = np.where(rng.random((4200, 70)) < 0.3, 0.3 * rng.normal(size=(4200, 70)), usual)
    rows, coef = RowsOnCPU(kernel, X), rng.normal(size=300)
    points, K = rows.points(np.arange(300)), by_scikit_learn(kernel, X, X[:300])
    assert rows._is_sparse
    np.testing.assert_array_equal(rows._centre, usual)
    assert_near(rows.times(points, coef, exact=True), K @ coef, 1e-12)
    assert_near(rows.times(points, coef), K @ coef, 1e-5)
    assert_near(rows.rows(points), K.T, 1e-5)
    assert not RowsOnCPU(kernel, np.where(rng.random((4200, 70)) < 0.6, rng.normal(size=(4200, 70)), usual))._is_sparse


def test_ranks_agree_on_usual_values():
    """Of which one has no rows, and one has rows of other values."""
    rng = np.random.default_rng(5)
    parts = [np.where(rng.random((n, 70)) < 0.2, rng.normal(size=(n, 70)), 0.5 + k) for k, n in ((0, 4000), (1, 400))]
    parts.append(np.empty((0, 70)))
    found = on_ranks(3, lambda comm: choose(KERNELS["rbf"], Measured(parts[comm.rank]), comm.allreduce))
    assert not any(each.is_sparse for each in found)  # 1.5 is the larger of both, and most rows have 0.5
    found = on_ranks(2, lambda comm: choose(KERNELS["rbf"], Measured(parts[2 * comm.rank]), comm.allreduce))
    for each in found:
        assert each.is_sparse
        np.testing.assert_array_equal(each.centre, np.full(70, 0.5))


def test_only_some_rows_are_rows_of_the_same_kernel(kernel, values, storage):
    rows, few = RowsOnCPU(kernel, storage(values), first=100), np.array([2, 5, 40])
    points, coef = rows.points(np.arange(10)), np.linspace(-1, 1, 10)
    part = rows.only(few)
    np.testing.assert_allclose(part.times(points, coef), rows.times(points, coef)[few], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(part.points(np.array([0, 2])).numbers, [102, 140])


@pytest.mark.parametrize("storage", list(STORAGES))
def test_no_points_give_no_sums(kernel, values, storage):
    rows = RowsOnCPU(kernel, STORAGES[storage](values))
    none = rows.points(np.empty(0, dtype=np.intp))
    np.testing.assert_array_equal(rows.times(none, np.empty(0)), np.zeros(90))
    np.testing.assert_array_equal(rows.times(none, np.empty((0, 2)), exact=True), np.zeros((90, 2)))
    assert rows.rows(none).shape == (0, 90)
    assert rows.block(none).shape == (0, 0)
    assert rows.diagonal_of(none).shape == (0,)


def test_a_rank_without_rows_answers_with_nothing(kernel, values, storage):
    rows, other = RowsOnCPU(kernel, storage(values[:0])), RowsOnCPU(kernel, storage(values))
    points = other.points(np.arange(4))
    assert rows.times(points, np.ones(4)).shape == (0,)
    assert rows.rows(points).shape == (4, 0)
    assert_near(rows.block(points), by_scikit_learn(kernel, values[:4]), 1e-5)


def test_every_value_is_counted(kernel, values):
    rows = RowsOnCPU(kernel, values, ledger=Ledger())
    points = rows.points(np.arange(4))
    rows.times(points, np.ones(4))
    rows.rows(points)
    rows.block(points)
    assert rows.ledger.kernel_evaluations == 90 * 4 + 90 * 4 + 4 * 4


def test_pieces_are_the_rows_they_are_made_of(values, storage):
    whole, pieces = RowsOnCPU(KERNELS["rbf"], storage(values)), [storage(values[:30]), storage(values[30:])]
    points, coef = whole.points(np.arange(9)), np.linspace(-1, 1, 9)
    np.testing.assert_array_equal(RowsOnCPU(KERNELS["rbf"], pieces).times(points, coef), whole.times(points, coef))


# -- where float32 is not enough -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("offset", [1e4, -1e6])
def test_differences_are_right_far_from_the_origin(name, offset):
    """Rows on a grid of 1/64, so that the shift itself loses nothing."""
    rng = np.random.default_rng(0)
    X, kernel = rng.integers(-128, 128, size=(80, 5)) / 64, Kernel(name, 0.3)
    K, rows, coef = by_scikit_learn(kernel, X), RowsOnCPU(kernel, X + offset), rng.normal(size=20)
    points = rows.points(np.arange(20))
    assert_near(rows.times(points, coef, exact=True), K[:, :20] @ coef, 1e-12)
    # The exponent of the Laplacian kernel is as exact as the rows are in float32.
    loss = 1e-5 if name == "rbf" else 5 * abs(offset) * np.finfo(np.float32).eps
    assert_near(rows.rows(points), K[:20], loss)


def test_sparse_rows_far_from_the_origin_are_taken_in_float64():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 20)) < 0.2, 1e4 + rng.integers(-128, 128, size=(60, 20)) / 64, 0.0)
    X[1] = X[0] + np.where(X[0] > 0, 0.25, 0.0)
    kernel, rows = Kernel("rbf", 0.3), RowsOnCPU(Kernel("rbf", 0.3), sp.csr_matrix(X))
    assert rows.dtype == np.float64
    assert_near(rows.rows(rows.points(np.arange(60))), by_scikit_learn(kernel, X), 1e-6)


@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray], ids=["csr", "zeros stored"])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_sparse_rows_so_far_from_the_origin_that_float64_is_too_coarse_are_centred(name, storage):
    """On a grid of 1/64, so that the shift itself loses nothing; three features of ten are not zero."""
    kernel = Kernel(name, 0.3)
    near, far = np.zeros((2, 60, 10))
    near[:, :3] = np.round(np.random.default_rng(0).normal(size=(60, 3)) * 64) / 64
    far[:, :3] = near[:, :3] + 2.0**25
    rows, coef = RowsOnCPU(kernel, storage(far)), np.random.default_rng(1).normal(size=60)
    points, expected = rows.points(np.arange(60)), by_scikit_learn(kernel, near)
    assert_near(rows.block(points, exact=True), expected, 1e-9)
    assert_near(rows.times(points, coef, exact=True), expected @ coef, 1e-9)
    assert_near(rows.rows(points), expected, 1e-5)


def test_one_huge_sparse_row_does_no_harm_to_the_others():
    X = np.vstack([1e9 * np.eye(1, 12), np.eye(6, 12) + 0.3 * np.eye(6, 12, 6)])
    kernel = Kernel("rbf", 0.5)
    rows = RowsOnCPU(kernel, sp.csr_matrix(X))
    assert_near(rows.times(rows.points(np.arange(7)), np.ones(7), exact=True), by_scikit_learn(kernel, X).sum(1), 1e-9)
    linear = RowsOnCPU(Kernel("linear"), sp.csr_matrix(X))
    np.testing.assert_allclose(linear.diagonal_of(linear.points(np.arange(7))), (X**2).sum(axis=1), rtol=1e-12)


def test_one_huge_dense_row_does_no_harm_to_the_others():
    X, kernel = np.random.default_rng(0).normal(size=(30, 4)), Kernel("rbf", 0.5)
    X[3] = 1e9
    rows = RowsOnCPU(kernel, X)
    assert_near(rows.block(rows.points(np.arange(30)), exact=True), by_scikit_learn(kernel, X), 1e-9)


def test_a_rank_whose_own_rows_are_near_the_origin_knows_the_points_of_others_that_are_not():
    """A working set comes from all ranks, and its kernel values are computed on one of them."""
    rng = np.random.default_rng(0)
    near = rng.integers(-128, 128, size=(40, 4)) / 64
    rows, kernel = RowsOnCPU(Kernel("rbf", 0.3), near), Kernel("rbf", 0.3)
    far = Points(near + 1e4, np.arange(100, 140))
    assert_near(rows.block(far), by_scikit_learn(kernel, near), 1e-5)


def test_a_far_power_overflows_in_no_precision_that_is_used():
    X = 1e6 * np.random.default_rng(0).normal(size=(20, 4))
    kernel = Kernel("poly", 1.0, 4, 0.0)
    rows = RowsOnCPU(kernel, X)
    K = by_scikit_learn(kernel, X)
    assert_near(rows.rows(rows.points(np.arange(20))), K, 1e-5)


def test_sums_of_given_values_in_float32_are_in_float64():
    K = np.ones((1200, 1200), np.float32)
    rows, coef = RowsOnCPU(Kernel("precomputed"), K), np.where(np.arange(1200) % 2, 1.0, -1.0) * 1e7 + 1e-2
    for exact in (False, True):
        np.testing.assert_allclose(rows.times(rows.points(np.arange(1200)), coef, exact=exact), 12.0, rtol=1e-3)


def test_sums_of_several_columns_are_in_float64_too():
    """Large coefficients that cancel: sums in float32 would be wrong in the second digit."""
    X = np.full((4, 2), 0.5)
    rows = RowsOnCPU(Kernel("rbf", 1.0), np.vstack([X] * 300))
    coef = np.where(np.arange(1200) % 2, 1.0, -1.0) * 1e7 + 1e-2
    points = rows.points(np.arange(1200))
    np.testing.assert_allclose(rows.times(points, coef), 12.0, rtol=1e-3)
    np.testing.assert_allclose(rows.times(points, np.stack([coef, coef], axis=1)), 12.0, rtol=1e-3)


@pytest.mark.parametrize("name", ["linear", "rbf", "poly", "laplacian"])
@pytest.mark.parametrize("unit", [1, 256, 257], ids=lambda unit: f"unit{unit}")
@pytest.mark.parametrize("largest", [3, 10**6])
def test_products_of_whole_numbers_may_be_made_in_float32_and_stay_exact(name, unit, largest):
    """Long rows, and units that are no power of two, are none of these."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 30)) < 0.2, rng.integers(-largest, largest + 1, size=(50, 30)) / unit, 0.0)
    kernel = {"linear": Kernel("linear"), "poly": Kernel("poly", 0.1, 2, 1.0)}.get(name, Kernel(name, 0.3 / largest**2))
    rows, coef = RowsOnCPU(kernel, sp.csr_matrix(X)), rng.normal(size=50)
    sums = by_scikit_learn(kernel, X) @ coef
    assert_near(rows.times(rows.points(np.arange(50)), coef, exact=True), sums, 1e-12)


# -- given values, and the user's function ---------------------------------------------------------------------------


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("first", [0, 30])
def test_precomputed_values_are_looked_up_by_number(matrix, first, dtype):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(60, 5))
    K = (factor @ factor.T).astype(dtype)
    mine, coef = np.arange(first, first + 30), rng.normal(size=8)
    kernel = Kernel("precomputed")
    rows, everything = RowsOnCPU(kernel, matrix(K[mine]), first), RowsOnCPU(kernel, matrix(K))
    chosen = np.array([0, 3, 29, 30, 31, 44, 58, 59])
    points = everything.points(chosen)
    assert_near(rows.times(points, coef), K[np.ix_(mine, chosen)].astype(float) @ coef, 1e-5)
    assert_near(rows.rows(points), K[np.ix_(chosen, mine)], 1e-6)
    assert_near(rows.block(points), K[np.ix_(chosen, chosen)], 1e-6)
    assert_near(rows.diagonal_of(points), np.diag(K)[chosen], 1e-6)
    np.testing.assert_array_equal(rows.points(np.array([0, 5])).numbers, [first, first + 5])


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_a_function_is_called_with_rows_as_they_are(matrix):
    X = np.random.default_rng(0).normal(size=(30, 4))
    seen = []

    def function(A, B):
        seen.append((type(A), type(B)))
        return rbf_kernel(A, B, gamma=0.4)

    rows = RowsOnCPU(Kernel("callable", function=function), matrix(X))
    K, chosen, coef = rbf_kernel(X, gamma=0.4), np.array([0, 5, 7]), np.array([1.0, -2.0, 0.5])
    points = rows.points(chosen)
    assert_near(rows.times(points, coef), K[:, chosen] @ coef, 1e-12)
    assert_near(rows.rows(points), K[chosen], 1e-12)
    assert_near(rows.block(points), K[np.ix_(chosen, chosen)], 1e-12)
    assert_near(rows.diagonal_of(points), np.ones(3), 1e-12)
    assert set(seen) == {(type(matrix(X)), type(matrix(X)))}


def test_a_function_of_the_wrong_shape_is_named():
    rows = RowsOnCPU(Kernel("callable", function=lambda A, B: np.ones((len(B), len(A)))), np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"shape \(3, 5\) for 5 and 3 rows; it must return one of shape \(5, 3\)"):
        rows.times(rows.points(np.arange(3)), np.ones(3))


def test_a_function_is_not_asked_about_no_points():
    """scikit-learn's own kernels refuse empty arrays."""
    rows = RowsOnCPU(Kernel("callable", function=rbf_kernel), np.ones((5, 2)))
    none = rows.points(np.empty(0, dtype=np.intp))
    np.testing.assert_array_equal(rows.times(none, np.empty(0)), np.zeros(5))
    assert rows.rows(none).shape == (0, 5)
