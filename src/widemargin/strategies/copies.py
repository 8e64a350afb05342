"""Equal rows of a class: one stands for all of them, with the sum of their weights.

The optimum is the same, since weights are multiplicities, and half as many rows have a quarter of the kernel values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.data.shard import Shard

_LEAST_SHARE = 0.05  # of rows that are copies: to merge fewer is not worth copying the others


class Copies(NamedTuple):
    """All rows, and those that stand for them."""

    places: np.ndarray  # of every row: the place of the one that stands for it
    weight: np.ndarray  # of every row

    def shared(self, coef: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Coefficients of some rows: those of the rows that stand for them, divided among them by weight."""
        places, weight = self.places[rows], self.weight[rows]
        totals = np.bincount(places, weight, len(coef))[places]
        return np.asarray(coef[places] * weight / np.where(totals > 0, totals, 1.0))


def without_copies(shard: Shard) -> tuple[Shard, Copies | None]:
    """Each row once, with the weights of its copies; as they are where hardly any row has copies."""
    keys, n_rows = np.stack([shard.row_hashes(), shard.y.astype(np.uint64)], axis=1), shard.n_rows
    _, first, groups = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(first) > (1 - _LEAST_SHARE) * n_rows:
        return shard, None
    order = np.argsort(first)  # rows keep their order
    place_of_group = np.empty(len(first), np.intp)
    place_of_group[order] = np.arange(len(first))
    first, places = first[order], place_of_group[groups.ravel()]
    others = np.setdiff1d(np.arange(n_rows), first)
    if not _are_equal(shard.X[others], shard.X[first[places[others]]]):  # rows of the same hash that differ
        return shard, None
    return replace(shard.take(first), weight=np.bincount(places, shard.weight)), Copies(places, shard.weight)


def _are_equal(one: Any, other: Any) -> bool:
    return (one != other).nnz == 0 if sp.issparse(one) else np.array_equal(one, other)
