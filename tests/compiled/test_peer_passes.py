"""The loops of a peer against the same formulas in a few lines."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.compiled import peer_passes


def twin_of_pass(X, order, y, limit, C, dual, w):
    """Exact maximisation over one dual variable after the other."""
    for i in order:
        slack, curvature = 1 - y[i] * (X[i] @ w), X[i] @ C @ X[i]
        best = np.clip(dual[i] + slack / curvature, 0, limit[i]) if curvature > 0 else limit[i] * (slack > 0)
        w += (best - dual[i]) * y[i] * (C @ X[i])
        dual[i] = best


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.6)
    X[7] = 0.0
    y, limit = rng.choice([-1.0, 1.0], size=40), rng.integers(0, 3, size=40).astype(float)
    return X, y, limit, rng.permutation(40), rng.random(40) * limit, rng.normal(size=6), rng


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_passes_in_a_full_metric(rows, index_dtype):
    X, y, limit, order, dual, w, rng = rows
    root = rng.normal(size=(6, 6))
    C = root @ root.T
    expected = dual.copy(), w.copy()
    twin_of_pass(X, order, y, limit, C, *expected)
    images, curvature, matrix = X @ C, np.einsum("ij,jk,ik->i", X, C, X), sp.csr_matrix(X)
    dense, sparse = (dual.copy(), w.copy()), (dual.copy(), w.copy())
    peer_passes.pass_metric_dense(X, order, y, limit, images, curvature, *dense)
    arrays = matrix.data, matrix.indices.astype(index_dtype), matrix.indptr.astype(index_dtype)
    peer_passes.pass_metric_csr(*arrays, order, y, limit, images, curvature, *sparse)
    for found in (dense, sparse):
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-10, atol=1e-12)
    assert dense[0][7] == limit[7]  # a row of zeros is violated whatever w is


def test_passes_in_a_diagonal_metric(rows):
    X, y, limit, order, dual, w, rng = rows
    diagonal, matrix = 0.1 + rng.random(6), sp.csr_matrix(X)
    expected, found = (dual.copy(), w.copy()), (dual.copy(), w.copy())
    twin_of_pass(X, order, y, limit, np.diag(diagonal), *expected)
    arrays = matrix.data, matrix.indices, matrix.indptr
    peer_passes.pass_diagonal_csr(*arrays, order, y, limit, diagonal, (X * X) @ diagonal, *found)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10, atol=1e-12)


def test_violations(rows):
    X, y, weight, order, _, w, _ = rows
    picked, matrix = order[:15], sp.csr_matrix(X)
    is_below = y * (X @ w) < 1
    expected = (weight * y * is_below)[picked] @ X[picked]
    for call, arrays in (
        (peer_passes.violations_dense, (X,)),
        (peer_passes.violations_csr, (matrix.data, matrix.indices, matrix.indptr)),
    ):
        is_violated, total = np.zeros(40, dtype=bool), np.zeros(6)
        call(*arrays, picked, y, weight, w, is_violated, total)
        np.testing.assert_array_equal(is_violated[picked], is_below[picked])
        assert not is_violated[order[15:]].any()  # those were not picked
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
    assert 0 < is_below[picked].sum() < 15
