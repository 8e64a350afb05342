"""Rows far from the hinge, merged: the 1-norm SVM on many rows as one on few.

The mean of some rows of one class, with their weight, has at most their loss (the hinge is convex), and just theirs if
all of them are on the same side of the hinge. So with any rows merged

    the optimum of the merged problem is a lower bound of that of all rows,
    its masses, divided among the rows that were merged, are feasible for all rows, and
    if no merged row crosses the hinge its model is the best on all rows.

Rows near the hinge of a model stay as they are. The others are merged with those of their class, on their side of the
hinge, that stand out in the same column: a column with few rows keeps rows of its own, without which its coefficient
would be free. How near is near depends on the row. A model of m rows is off by about ``1 / sqrt(m)`` on a typical row,
and by more on those that are unusual: in proportion to ``spread_i = sqrt(1 + sum_j z_ij^2)``, z the standardised columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.comm.protocol import Communicator
from widemargin.compiled.columns import (
    add_by_group_dense,
    outstanding_columns_csr,
    outstanding_columns_dense,
)
from widemargin.data.shard import Shard, csr_arrays

_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly, without a period
_MIN_OF_CLASS = 1000  # rows that a sample has of each class, if there are as many


class Merged(NamedTuple):
    shard: Shard
    place: np.ndarray  # of each row, in the shard

    def divided(self, share: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Masses of the rows, from the shares of their caps that merged rows have."""
        return caps * share[self.place]


@dataclass(frozen=True, eq=False)
class Outlines:
    """What is known of rows whatever the model."""

    shard: Shard  # rows with a weight only
    spread: np.ndarray
    column: np.ndarray  # in which a row stands out; twice its number, and 1 more if it is over the mean

    @classmethod
    def of(cls, shard: Shard, means: np.ndarray, squares: np.ndarray) -> Outlines:
        factor = np.zeros(len(squares))
        np.divide(1.0, np.sqrt(squares), out=factor, where=squares > 0)
        spread = np.sqrt(1 + shard.squared_distances(factor, means))
        column = np.empty(shard.n_rows, dtype=np.int64)
        for block, where in shard.pieces():
            if sp.issparse(block):
                outstanding_columns_csr(*csr_arrays(block), factor, means, column[where])
            else:
                outstanding_columns_dense(np.asarray(block), factor, means, column[where])
        return cls(shard, spread, column)

    def merged(self, is_single: np.ndarray, sides: np.ndarray) -> Merged:
        """All rows merged but single ones, those on each side of the hinge apart from the others."""
        shard = self.shard
        key = np.where(is_single, -1, (3 * self.column + sides + 1) * 2 + (shard.y > 0))
        is_used = np.bincount(key + 1, minlength=1) > 0
        is_used[0] = False
        n_groups = int(np.count_nonzero(is_used))
        group = (np.cumsum(is_used) - 1)[key + 1]
        group[is_single] = -1
        singles = np.flatnonzero(is_single)
        weight = np.bincount(group + 1, shard.weight, n_groups + 1)[1:]
        labels = np.where(np.flatnonzero(is_used) % 2 == 0, 1.0, -1.0)  # key + 1 is even for the positive class
        place = len(singles) + group
        place[singles] = np.arange(len(singles))
        few = shard.take(singles)
        X = [*few.blocks, self._sums(group, n_groups) / weight[:, None] if not shard.is_sparse else sp.csr_matrix(sp.diags(1 / weight) @ self._sums(group, n_groups))]
        return Merged(Shard(X, np.append(few.y, labels), np.append(few.weight, weight)), place)

    def _sums(self, group: np.ndarray, n_groups: int):
        shard = self.shard
        if shard.is_sparse:
            rows = np.flatnonzero(group >= 0)
            choice = sp.csr_matrix((shard.weight[rows], (group[rows], rows)), shape=(n_groups, shard.n_rows))
            return sum(choice[:, where] @ block for block, where in shard.pieces())
        sums = np.zeros((n_groups, shard.n_features))
        for block, where in shard.pieces():
            add_by_group_dense(np.asarray(block), shard.weight[where], group[where], sums)
        return sums


def sample(shard: Shard, comm: Communicator, share: float) -> Shard:
    """A share of the rows, spread evenly, that weigh as much as all of them in each class."""
    chosen, weight = np.zeros(shard.n_rows, dtype=bool), shard.weight.copy()
    for sign in (1, -1):
        rows = np.flatnonzero((shard.y > 0) == (sign > 0))
        n = float(comm.allreduce(np.array([float(len(rows))]))[0])
        part = max(share, min(1.0, _MIN_OF_CLASS / max(n, 1.0)))
        taken = rows[(np.arange(len(rows)) * _GOLDEN) % 1.0 < part]
        chosen[taken] = True
        before, after = comm.allreduce(np.array([shard.weight[rows].sum(), shard.weight[taken].sum()]))
        weight[taken] *= before / max(after, 1e-300)
    rows = np.flatnonzero(chosen)
    few = shard.take(rows)
    return Shard(few.X, few.y, weight[rows])
