"""Numbers of rows over all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.comm.threads import on_ranks
from widemargin.data.shard import Shard
from widemargin.strategies.ranks import _numbers

SIZES = [4, 0, 3, 5, 2]
EDGES = np.concatenate([[0], np.cumsum(SIZES)])


@pytest.mark.parametrize("held", [[[0, 1, 2, 3, 4]], [[1, 3], [0, 2, 4]], [[4], [2], [0], [3], [1]]])
def test_rows_keep_the_numbers_of_their_collection_whichever_rank_holds_them(held):
    def numbers(comm):
        parts = held[comm.rank]
        rows = [np.zeros((SIZES[k], 2)) for k in parts]
        n_rows = sum(SIZES[k] for k in parts)
        return _numbers(Shard(rows, np.zeros(n_rows), np.ones(n_rows)), parts, comm)

    for parts, found in zip(held, on_ranks(len(held), numbers), strict=True):
        assert found.tolist() == [i for k in parts for i in range(EDGES[k], EDGES[k + 1])]


def test_other_rows_are_numbered_in_the_order_of_ranks():
    found = on_ranks(3, lambda comm: _numbers(Shard(np.zeros((comm.rank, 2)), np.zeros(comm.rank), None), None, comm))
    assert [each.tolist() for each in found] == [[], [0], [1, 2]]
