"""Kernel rows that several problems share: the same sums and blocks, computed once."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin import KernelSVC, cores
from widemargin.kernels import on_cpu, precision
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU

N, D = 300, 70
KERNELS = {"rbf": Kernel("rbf", 0.02), "laplacian": Kernel("laplacian", 0.02), "poly": Kernel("poly", 0.1, 2, 1.0)}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


def pair_of_rows(kernel, n_bytes, dtype=np.float32, first=0):
    """The same rows without and with shared values."""
    X = np.random.default_rng(0).normal(size=(N, D)).astype(dtype)
    alone, sharing = (RowsOnCPU(kernel, X, first) for _ in range(2))
    sharing.n_problems = 3
    sharing.share_rows(n_bytes)
    assert sharing._shared
    return alone, sharing


@pytest.mark.parametrize("room", [0.6, 1.0])
@pytest.mark.parametrize("columns", [None, 1, 2, 5])
@pytest.mark.parametrize("some", [None, np.arange(3, N, 2), np.arange(5, N, 11)], ids=["all", "many", "few"])
def test_sums_are_those_of_rows_alone(kernel, columns, some, room):
    rng = np.random.default_rng(1)
    alone, sharing = pair_of_rows(kernel, int(room * 8 * N * N), first=7)
    few, others = (rows if some is None else rows.only(some) for rows in (alone, sharing))
    for size in (1, 6, 150, 260):  # the last ones have no room left
        places = rng.choice(N, size, replace=False)
        coef = rng.normal(size=size if columns is None else (size, columns))
        expected = few.times(alone.points(places), coef)
        np.testing.assert_allclose(others.times(sharing.points(places), coef), expected, rtol=1e-9, atol=1e-9)
        exact = others.times(sharing.points(places), coef, exact=True)
        np.testing.assert_allclose(exact, few.times(alone.points(places), coef, exact=True), rtol=1e-12, atol=1e-12)


def test_blocks_are_those_of_rows_alone(kernel):
    rng = np.random.default_rng(2)
    alone, sharing = pair_of_rows(kernel, 8 * N * N)
    for n_kept in (0, 1, 90, 250):
        places = rng.choice(N, n_kept, replace=False)
        sharing.times(sharing.points(places), np.ones(n_kept))
        working = rng.choice(N, 130, replace=False)
        expected = alone.working_block(alone.points(working))
        np.testing.assert_allclose(sharing.working_block(sharing.points(working)), expected, rtol=1e-12)


def test_points_are_computed_once():
    _, sharing = pair_of_rows(KERNELS["rbf"], 8 * N * N)
    for _ in range(3):
        sharing.times(sharing.points(np.arange(40)), np.ones(40))
        sharing.only(np.arange(50)).times(sharing.points(np.arange(20, 60)), np.ones(40))
    assert sharing.ledger.kernel_evaluations == 60 * N
    assert sharing.ledger.cache_misses == 60
    sharing.working_block(sharing.points(np.arange(50)))
    assert sharing.ledger.kernel_evaluations == 60 * N


def test_points_of_others_are_not_kept():
    alone, sharing = pair_of_rows(KERNELS["rbf"], 8 * N * N)
    points = RowsOnCPU(KERNELS["rbf"], np.ones((3, D)), N).points(np.arange(3))
    np.testing.assert_array_equal(sharing.times(points, np.ones(3)), alone.times(points, np.ones(3)))


@pytest.mark.parametrize(("n_problems", "n_bytes", "width"), [(2, 8 * N * N, D), (3, 3 * N * N, D), (3, 8 * N * N, 10)])
def test_rows_are_not_shared_where_that_would_not_be_worth_it(n_problems, n_bytes, width):
    rows = RowsOnCPU(KERNELS["rbf"], np.random.default_rng(0).normal(size=(N, width)))
    rows.n_problems = n_problems
    rows.share_rows(n_bytes)
    assert not rows._shared


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classes_against_the_rest_share_rows_and_have_the_same_bits_on_any_number_of_threads(dtype, monkeypatch):
    rng = np.random.default_rng(3)
    if dtype == np.float32:
        monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 0)
    centres = rng.normal(size=(4, D))
    y = rng.integers(4, size=2100)
    X = (centres[y] + 2.0 * rng.normal(size=(2100, D))).astype(dtype)

    def fitted():
        return KernelSVC(C=1.0, multi_class="rest", random_state=0).fit(X, y)

    found = []
    for n in (1, 3):
        with cores.at_most(n):
            found.append(fitted())
    np.testing.assert_array_equal(found[0].dual_coef_, found[1].dual_coef_)
    monkeypatch.setattr(on_cpu, "_MIN_SHARED", np.inf)
    alone = fitted()
    assert found[0].cost_.kernel_evaluations < 0.6 * alone.cost_.kernel_evaluations
    for one, other in zip(found[0].parts_, alone.parts_, strict=True):
        assert one.certificate.relative <= 1e-3
        assert one.certificate.dual <= other.certificate.primal
        assert other.certificate.dual <= one.certificate.primal
