"""Rows as they are stored: what is known of them, and sparse rows that share their entries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.kernels import storage
from widemargin.kernels.storage import Measured, aligned, compressed


def some_rows(share=0.3):
    rng = np.random.default_rng(0)
    return np.where(rng.random((40, 21)) < share, rng.normal(size=(40, 21)), 0.0)


def restored(rows, n_features):
    """Sparse rows as a dense array."""
    out = np.zeros((len(rows.starts), n_features), rows.dtype)
    for i, (start, n) in enumerate(zip(rows.starts, rows.splits[:, -1], strict=True)):
        out[i, rows.indices[int(start) : int(start) + int(n)]] = rows.data[int(start) : int(start) + int(n)]
    return out


def test_each_number_of_rows_takes_one_pass(monkeypatch):
    passes = []

    def counted(do):
        def pass_over(*rows):
            passes.append(do)
            return do(*rows)

        return pass_over

    for name in ("squared_norms", "squared_norms_from", "others_per_row"):
        monkeypatch.setattr(storage, name, counted(getattr(storage, name)))
    X = some_rows()
    rows, centre, other = Measured(X), X[3], X[5]
    for _ in range(2):
        np.testing.assert_allclose(rows.squared_norms(), (X**2).sum(axis=1))
        np.testing.assert_array_equal(rows.n_entries(), (X != 0).sum(axis=1))
        assert rows.density() == pytest.approx((X != 0).mean())
        for c in (centre, other):
            np.testing.assert_allclose(rows.squared_norms(c), ((X - c) ** 2).sum(axis=1))
            np.testing.assert_array_equal(rows.n_entries(c), (c != X).sum(axis=1))
    assert len(passes) == 6
    np.testing.assert_array_equal(Measured(sp.csr_matrix(X)).n_entries(), (X != 0).sum(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_rows_are_compressed_and_some_of_them_share_their_entries(stored, dtype, offset):
    X = some_rows() + offset
    centre = None if offset == 0.0 else np.full(21, offset)
    rows, norms = compressed(Measured(stored(X)), dtype, centre)
    expected = (X - offset).astype(dtype)
    np.testing.assert_array_equal(restored(rows, 21), expected)
    np.testing.assert_allclose(norms, (expected.astype(np.float64) ** 2).sum(axis=1))
    places = np.array([5, 0, 39, 5])
    some = rows.only(places)
    assert some.data is rows.data
    np.testing.assert_array_equal(restored(some, 21), expected[places])


def test_memory_is_used_again_if_there_is_enough_of_it():
    first, space = aligned((3, 5), np.float64, np.empty(0, np.uint8))
    second, same = aligned((2, 5), np.float32, space)
    third, larger = aligned((30, 5), np.float32, space)
    assert same is space
    assert larger is not space
    assert np.shares_memory(first, second)
    assert [each.ctypes.data % 64 for each in (first, second, third)] == [0, 0, 0]
