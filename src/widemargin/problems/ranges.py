"""Numbers that float64 can work with: products of several parameters, weights and rows must not overflow or vanish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.data.pieces import largest_size, sum_of_pieces
from widemargin.problems._classes import LARGEST, SMALLEST
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.problems.protocol import Problem

_LARGEST_ENTRY = 1e75  # of rows: its fourth power, and that of its inverse, are in range
_LARGEST_SENT = 1e35  # of rows of peers, who send losses and sums in one format


def refuse_weights_out_of_range(weight: np.ndarray) -> None:
    """Raise ValueError for weights other than 0 that are too small or too large."""

    def count(rows: slice) -> np.ndarray:
        few = weight[rows]
        return np.array([np.count_nonzero(((few >= SMALLEST) & (few <= LARGEST)) | (few == 0))])

    if sum_of_pieces(count, len(weight))[0] < len(weight):
        outside = weight[(weight != 0) & ~((weight >= SMALLEST) & (weight <= LARGEST))]
        raise ValueError(
            f"sample_weight has {len(outside)} value(s) such as {outside[0]:g}, too small or too large for float64: "
            f"weights must be 0, which leaves a row out, or lie in [{SMALLEST:g}, {LARGEST:g}]."
        )


def refuse_rows_out_of_range(blocks: Sequence[Any], problem: Problem | None = None, size: float = math.nan) -> None:
    """Raise ValueError if the largest entry of all rows is so small or so large that squares of products are lost.

    ``size`` is that of this entry, where it is known, or NaN. Hull distances are taken of rows that were multiplied by
    a power of two: rows of any size serve.
    """
    if isinstance(problem, HardMargin | NuMargin):
        return
    largest = size
    if math.isnan(size):
        largest = max((largest_size(block.data if sp.issparse(block) else block) for block in blocks), default=0.0)
    if not largest < np.inf:
        raise ValueError("Input X contains NaN or infinity.")
    limit = _LARGEST_SENT if isinstance(problem, MeanHinge) else _LARGEST_ENTRY
    if largest and not 1 / limit <= largest <= limit:
        raise ValueError(
            f"The largest entry of X is {largest:.1e} in absolute value, and products of rows would be lost in "
            f"float64: it must lie in [{1 / limit:g}, {limit:g}]; scale the features "
            "(StandardScaler)."
        )
