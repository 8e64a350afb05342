"""What ranks put together is the same on all of them, in the order of ranks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from tests.problems_at_hand import on_ranks
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.solvers._kernel_ranks import expansion, share, share_points


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    return np.where(rng.random((20, 4)) < 0.5, 0.0, rng.normal(size=(20, 4)))


def edges(n, n_ranks):
    return [n * k // n_ranks for k in range(n_ranks + 1)]


def rows_of(comm, X, cuts):
    begin, end = cuts[comm.rank], cuts[comm.rank + 1]
    return RowsOnCPU(Kernel("rbf", 1.0), X[begin:end], begin), slice(begin, end)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32])
def test_shared_arrays_stand_one_after_the_other_and_keep_their_type(n_ranks, kind):
    expected = np.concatenate([np.arange(k + 1, dtype=kind) for k in range(n_ranks)])
    for shared in on_ranks(n_ranks, lambda comm: share(comm, np.arange(comm.rank + 1, dtype=kind))):
        np.testing.assert_array_equal(shared, expected)
        assert shared.dtype == kind


def test_a_rank_may_have_nothing_to_share():
    for shared in on_ranks(3, lambda comm: share(comm, np.full(2 * (comm.rank == 1), 5.0))):
        np.testing.assert_array_equal(shared, [5.0, 5.0])


def test_points_of_all_ranks_arrive_everywhere_with_their_numbers(n_ranks, values, storage, dtype):
    X, cuts = storage(values.astype(dtype)), edges(20, n_ranks)

    def task(comm):
        rows, _ = rows_of(comm, X, cuts)
        return share_points(comm, rows.points(np.arange(0, rows.n_rows, 2)))

    chosen = np.concatenate([np.arange(a, b, 2) for a, b in pairwise(cuts)])
    for points in on_ranks(n_ranks, task):
        np.testing.assert_array_equal(points.numbers, chosen)
        np.testing.assert_array_equal(dense(points.X), values.astype(dtype)[chosen])
        assert points.X.dtype == dtype


@pytest.mark.parametrize("cuts", [[0, 0, 20], [0, 20, 20], [0, 7, 7, 20]], ids=["first", "last", "middle"])
def test_a_rank_without_rows_hears_of_those_of_others(values, storage, cuts):
    X, beta = storage(values), np.where(np.arange(20) % 3, 0.0, np.arange(20) - 9.5)

    def task(comm):
        rows, mine = rows_of(comm, X, cuts)
        return expansion(comm, rows, beta[mine])

    for points, coef in on_ranks(len(cuts) - 1, task):
        np.testing.assert_array_equal(points.numbers, np.flatnonzero(beta))
        np.testing.assert_array_equal(coef, beta[beta != 0])
        np.testing.assert_array_equal(dense(points.X), values[beta != 0])


def test_an_expansion_names_the_rows_with_a_coefficient_and_no_others(n_ranks, values):
    beta, cuts = np.where(np.arange(20) % 4, 0.0, 1.0 + np.arange(20)), edges(20, n_ranks)

    def task(comm):
        rows, mine = rows_of(comm, values, cuts)
        return expansion(comm, rows, beta[mine])

    for points, coef in on_ranks(n_ranks, task):
        np.testing.assert_array_equal(points.numbers, np.flatnonzero(beta))
        np.testing.assert_array_equal(coef, beta[beta != 0])


def test_no_coefficient_anywhere_is_no_point(n_ranks, values, storage):
    X, cuts = storage(values), edges(20, n_ranks)

    def task(comm):
        rows, mine = rows_of(comm, X, cuts)
        return expansion(comm, rows, np.zeros(mine.stop - mine.start))

    for points, coef in on_ranks(n_ranks, task):
        assert len(points) == len(coef) == 0
        assert points.X.shape == (0, 4)
