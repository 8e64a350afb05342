"""Products of rows with the points of a panel, each against its formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from widemargin.compiled import panels
from widemargin.compiled.storage import split_rows


@njit
def multiply_row(rows, first, points, number, tile, i, left):
    panels.multiply_row(rows, first, points, number, tile, i, left)


@njit
def multiply_rows(rows, first, points, number, tile, i, left):
    panels.multiply_rows(rows, first, points, number, tile, i, left)


@njit
def add_sparse(data, indices, row, begin, end, points, number, tile, i, left):
    panels.add_entries(data, indices, row, begin, end, points, number, tile, i, left)


@pytest.fixture
def rows(dtype):
    rng = np.random.default_rng(0)
    return np.where(rng.random((5, 40)) < 0.5, 0.0, rng.normal(size=(5, 40))).astype(dtype)


def some_panels(dtype, n=2):
    return np.random.default_rng(1).normal(size=(n, 40, panels.panel_width(dtype))).astype(dtype)


def test_entries_are_added_to_one_row_and_panel_of_a_tile(rows, dtype):
    points, width, matrix = some_panels(dtype), panels.panel_width(dtype), sp.csr_matrix(rows)
    low, tile = int(matrix.indptr[3]), np.full((4, 3 * width), 0.25, dtype)
    k = int(np.searchsorted(matrix.indices[low : matrix.indptr[4]], 31))
    add_sparse(matrix.data, matrix.indices.view(np.uint32), low, 0, k, points, 1, tile, 2, width)
    expected = np.full((4, 3 * width), 0.25)
    expected[2, width : 2 * width] += rows[3, :31].astype(float) @ points[1, :31].astype(float)
    np.testing.assert_allclose(tile, expected, rtol=0, atol=40 * np.finfo(dtype).eps * 10)
    untouched = np.ones(tile.shape, bool)
    untouched[2, width : 2 * width] = False
    assert (tile[untouched] == 0.25).all()


@pytest.mark.parametrize(("multiply", "n"), [(multiply_row, 1), (multiply_rows, panels.ROWS_AT_ONCE)])
def test_products_of_dense_rows_are_written_to_some_rows_and_one_panel_of_a_tile(rows, dtype, multiply, n):
    points, width = some_panels(dtype), panels.panel_width(dtype)
    tile, expected = (np.full((4, 3 * width), 0.25, each) for each in (dtype, np.float64))
    multiply(rows, 3, points, 1, tile, 2, width)
    expected[2 : 2 + n, width : 2 * width] = rows[3 : 3 + n].astype(float) @ points[1].astype(float)
    np.testing.assert_allclose(tile, expected, rtol=0, atol=40 * np.finfo(dtype).eps * 10)
    assert ((tile == 0.25) == (expected == 0.25)).all()


def test_bits_do_not_depend_on_groups_nor_on_zeros(rows, dtype):
    """Sums are in the order of features, and a sum with zero is not rounded."""
    points, width, matrix = some_panels(dtype, 1), panels.panel_width(dtype), sp.csr_matrix(rows)
    tiles = []
    for size in (40, 7, 1):
        tile, splits = np.zeros((5, width), dtype), np.empty((5, -(-40 // size) + 1), np.uint32)
        split_rows(matrix.indices, matrix.indptr, size, 0, 5, splits)
        for g in range(splits.shape[1] - 1):
            for i in range(5):
                begin, end = int(splits[i, g]), int(splits[i, g + 1])
                add_sparse(matrix.data, matrix.indices, int(matrix.indptr[i]), begin, end, points, 0, tile, i, 0)
        tiles.append(tile)
    tile, together = (np.empty((5, width), dtype) for _ in range(2))
    for i in range(5):
        multiply_row(rows, i, points, 0, tile, i, 0)
    for i in range(5 - panels.ROWS_AT_ONCE + 1):
        multiply_rows(rows, i, points, 0, together, i, 0)
    for other in [*tiles, together]:
        assert other.tobytes() == tile.tobytes()


def test_groups_have_all_features_and_enough_entries():
    for d in (1, 7, 784, 100_000):
        for n_entries in (0.0, 0.5, 30.0, float(d)):
            size = panels.group_size(d, min(n_entries, d))
            n_groups = -(-d // size)
            assert 1 <= size <= d
            assert n_groups == 1 or n_entries / n_groups >= 8


@pytest.mark.parametrize("is_sparse", [False, True])
def test_panels_have_points_as_columns(rows, is_sparse):
    found = np.full((2, 40, 4), np.nan, rows.dtype)
    matrix = sp.csr_matrix(rows)
    lengths = np.diff(matrix.indptr)[:, None]
    for k in range(2):
        where = 4 * k, min(4 * k + 4, 5)
        if is_sparse:
            panels.panel_of_sparse(matrix.data, matrix.indices, matrix.indptr, lengths, *where, found[k])
        else:
            panels.panel_of_dense(rows, *where, found[k])
    full = np.concatenate([rows, np.zeros((3, 40), rows.dtype)])
    np.testing.assert_array_equal(found, full.reshape(2, 4, 40).transpose(0, 2, 1))
