from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from tests.conftest import STORAGES
from widemargin.engines._plan import split_rows


class Rows(NamedTuple):
    X: object
    y: object
    weight: object


def dense(block):
    return block.toarray() if sp.issparse(block) else block


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7, 10])
def test_every_row_goes_to_one_rank_in_order_and_parts_are_equal(n_ranks, storage):
    X, y = np.arange(30.0).reshape(10, 3), np.arange(10.0)
    parts = split_rows(Rows(storage(X), y, None), n_ranks)
    assert len(parts) == n_ranks
    np.testing.assert_array_equal(np.concatenate([dense(part.X) for part in parts]), X)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)
    assert all(part.weight is None for part in parts)
    sizes = [part.X.shape[0] for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_dense_rows_are_not_copied():
    X = np.arange(30.0).reshape(10, 3)
    assert all(np.shares_memory(part.X, X) for part in split_rows(Rows(X, np.zeros(10), np.ones(10)), 3))


@pytest.mark.parametrize("storage", ["csr32", "csr64"])
def test_values_of_sparse_rows_are_not_copied(storage):
    X = STORAGES[storage](np.arange(30.0).reshape(10, 3))
    for part in split_rows(Rows(X, np.zeros(10), np.ones(10)), 3):
        assert np.shares_memory(part.X.data, X.data)


def test_more_ranks_than_rows_names_both():
    with pytest.raises(ValueError, match=r"cluster=11.*10.*\[1, 10\]"):
        split_rows(Rows(np.zeros((10, 2)), np.zeros(10), None), 11)
