"""How rows are stored: each loop against NumPy or SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.compiled import storage


@pytest.fixture
def rows(dtype):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((14, 9)) < 0.5, 0.0, rng.normal(size=(14, 9)))
    X[3] = 0.0
    return X.astype(dtype)


@pytest.mark.parametrize("target", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_dense_rows_are_compressed(rows, target, offset):
    centre = (offset * np.arange(9)).astype(rows.dtype)
    expected, counts = sp.csr_matrix(rows), np.zeros(14, np.int64)
    rows = rows + centre
    expected.data = (rows.astype(float) - centre)[rows != centre]
    data, indices = np.empty(expected.nnz, target), np.empty(expected.nnz, np.int32)
    starts, norms, (splits, expected_splits) = np.empty(14, np.int64), np.empty(14), np.empty((2, 14, 4), np.uint32)
    for begin, end in ((6, 14), (0, 6)):
        at = expected.indptr[begin]
        storage.count_others(rows, centre, begin, end, counts)
        storage.compress(rows, centre, 4, begin, end, at, data, indices, starts, splits, norms)
    storage.split_rows(expected.indices, expected.indptr, 4, 0, 14, expected_splits)
    np.testing.assert_array_equal(counts, np.diff(expected.indptr))
    np.testing.assert_array_equal(data, expected.data.astype(target))
    np.testing.assert_array_equal(indices, expected.indices)
    np.testing.assert_array_equal(starts, expected.indptr[:-1])
    np.testing.assert_array_equal(splits, expected_splits)
    squares = expected.astype(target).astype(np.float64).power(2).sum(axis=1)
    np.testing.assert_allclose(norms, np.ravel(squares), rtol=1e-14)


def test_sparse_rows_are_taken_in_any_order(rows):
    X, places = sp.csr_matrix(rows), np.array([5, 0, 3, 5, 13])
    expected = X[places]
    data, indices = np.empty(expected.nnz, X.dtype), np.empty(expected.nnz, X.indices.dtype)
    for begin, end in ((0, 2), (2, 5)):
        storage.take_csr(X.data, X.indices, X.indptr, places, expected.indptr, data, indices, begin, end)
    np.testing.assert_array_equal(data, expected.data)
    np.testing.assert_array_equal(indices, expected.indices)


def test_whole_numbers_are_told_from_others(dtype):
    values = np.array([0.25, -3.0, 1e6, 0.5], dtype)
    assert storage.are_whole(values, 4.0, 0, 4)
    assert not storage.are_whole(values, 1.0, 0, 4)
    assert storage.are_whole(values, 1.0, 1, 3)
    assert not storage.are_whole(np.array([np.nan, np.inf], dtype), 1.0, 0, 2)


@pytest.mark.parametrize("n_features", [3, 64, 130])
def test_zeros_and_ones_become_bits(dtype, n_features):
    X = (np.random.default_rng(0).random((14, n_features)) < 0.4).astype(dtype)
    matrix, found = sp.csr_matrix(X), np.empty((2, 14, -(-n_features // 64)), np.uint64)
    for begin, end in ((0, 6), (6, 14)):
        storage.bits_of_dense(X, begin, end, found[0])
        storage.bits_of_csr(matrix.data, matrix.indices, matrix.indptr, begin, end, found[1])
    for words in found:
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        np.testing.assert_array_equal(bits[:, :n_features], X)
        assert not bits[:, n_features:].any()


def test_zeros_and_ones_are_told_from_others(dtype):
    values = np.array([0.0, 1.0, 1.0, 0.5, np.nan], dtype)
    assert storage.are_binary(values, 0, 3)
    assert not storage.are_binary(values, 0, 4)
    assert not storage.are_binary(values, 4, 5)
