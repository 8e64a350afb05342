"""How rows are divided: landmarks against a dense factorisation, strata against distances, even parts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from tests.problems_at_hand import overlapping
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.solvers import partition_merge

RBF = Kernel("rbf", 0.25)


def pivoted(K, n_pivots):
    """The rows that Cholesky's factorisation with pivots takes, by Schur complements of the whole matrix."""
    left, chosen = K.copy(), []
    for _ in range(n_pivots):
        pivot = int(np.argmax(np.diagonal(left)))
        chosen.append(pivot)
        left -= np.outer(left[:, pivot], left[pivot]) / left[pivot, pivot]
    return chosen


@pytest.mark.parametrize("kernel", [RBF, Kernel("linear"), Kernel("poly", 0.25, 2, 1.0)], ids=lambda each: each.name)
def test_landmarks_are_the_pivots_of_cholesky(kernel, seed):
    X, _ = overlapping(seed, n=60, d=8)
    K = {"rbf": rbf_kernel(X, gamma=0.25), "linear": X @ X.T, "poly": (0.25 * X @ X.T + 1) ** 2}[kernel.name]
    for rows in (RowsOnCPU(kernel, X), RowsOnCPU(kernel, sp.csr_matrix(X))):
        assert partition_merge.landmarks(rows, 7).tolist() == pivoted(K, 7)


def test_landmarks_end_where_they_span_all_rows():
    X = np.repeat(np.random.default_rng(0).normal(size=(4, 3)), 5, axis=0)
    chosen = partition_merge.landmarks(RowsOnCPU(RBF, X), 10)
    assert len(chosen) == 4
    assert len(np.unique(X[chosen], axis=0)) == 4
    assert len(partition_merge.landmarks(RowsOnCPU(Kernel("linear"), X), 10)) == 3
    assert partition_merge.landmarks(RowsOnCPU(RBF, X[:1]), 10).tolist() == [0]
    assert partition_merge.landmarks(RowsOnCPU(RBF, X[:7]), 100).size <= 7


def test_landmarks_of_given_values_are_those_of_the_kernel():
    X, _ = overlapping(0, n=40)
    given, computed = RowsOnCPU(Kernel("precomputed"), rbf_kernel(X, gamma=0.25)), RowsOnCPU(RBF, X)
    np.testing.assert_array_equal(partition_merge.landmarks(given, 6), partition_merge.landmarks(computed, 6))


def test_a_stratum_is_what_is_nearest_to_a_landmark():
    X, _ = overlapping(0, n=50)
    for kernel, K in ((RBF, rbf_kernel(X, gamma=0.25)), (Kernel("linear"), X @ X.T)):
        rows = RowsOnCPU(kernel, X)
        chosen = np.sort(partition_merge.landmarks(rows, 4))
        diagonal = np.diagonal(K)
        distance = diagonal[:, None] + diagonal[chosen] - 2 * K[:, chosen]
        np.testing.assert_array_equal(partition_merge.strata(rows, chosen), np.argmin(distance, axis=1))


def test_rows_that_are_all_zero_are_one_stratum():
    rows = RowsOnCPU(Kernel("linear"), np.zeros((5, 2)))
    chosen = partition_merge.landmarks(rows, 3)
    assert chosen.size == 0
    assert partition_merge.strata(rows, chosen).tolist() == [0] * 5


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7, 23])
def test_parts_hold_every_row_once_and_their_share_of_every_group(n_parts, seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 5, 23)
    parts = partition_merge.spread_evenly(groups, n_parts, rng)
    assert len(parts) == n_parts
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(23))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert np.ptp([len(part) for part in parts]) <= 1
    for group in range(5):
        assert np.ptp([np.count_nonzero(groups[part] == group) for part in parts]) <= 1


def test_rows_of_a_group_are_dealt_at_random():
    first, other = (partition_merge.spread_evenly(np.zeros(40), 2, np.random.default_rng(seed))[0] for seed in (0, 1))
    again = partition_merge.spread_evenly(np.zeros(40), 2, np.random.default_rng(0))[0]
    assert first.tolist() == again.tolist() != other.tolist()


def divided(X, y, n_parts, *, is_stratified=True):
    rows = RowsOnCPU(RBF, X, ledger=Solo().ledger)
    return partition_merge.Division(n_parts, 2, 8, is_stratified, 1).divide(
        Shard(X, y, np.ones(len(y)), rows), np.random.default_rng(0)
    )


@pytest.mark.parametrize("n_parts", [2, 5, 8])
def test_parts_have_their_share_of_every_class_to_within_a_row(n_parts, seed):
    """Also of a class that is rare in every stratum."""
    X, _ = overlapping(seed, n=203)
    y = np.digitize(np.random.default_rng(seed).random(203), [0.1, 0.4]).astype(float)
    parts = divided(X, y, n_parts)
    for label in range(3):
        assert np.ptp([np.count_nonzero(y[part] == label) for part in parts]) <= 1
    groups = partition_merge.strata(RowsOnCPU(RBF, X), partition_merge.landmarks(RowsOnCPU(RBF, X), 8))
    for stratum in range(8):  # of each class in it within a row, so that of all within three
        assert np.ptp([np.count_nonzero(groups[part] == stratum) for part in parts]) <= 3


def test_the_number_of_parts_by_itself_keeps_them_large():
    X = np.random.default_rng(0).normal(size=(8100, 2))
    y = np.arange(8100) % 2.0
    assert [len(part) for part in divided(X, y, "auto")] == [2025] * 4
    assert len(divided(X[:3999], y[:3999], "auto")) == 1
    assert len(divided(X, y, "auto", is_stratified=False)) == 4
