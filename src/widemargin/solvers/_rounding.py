"""What float64 does to the scores and sums of linear models, so that certificates can allow for it.

A sum of k products is wrong by at most about k roundings of the sum of their sizes, which ``||x|| ||w||`` bounds for a
score. In sums over all rows the errors mostly cancel, and the root of their number stands for it.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from widemargin.data.shard import Shard

UNIT = float(np.finfo(np.float64).eps) / 2  # a rounding error, as a part of what is rounded
SMALL_PART = 0.01  # of a gap: rounding that is less does not show
LESS = 0.9  # of a gap: a step that leaves no more than this has helped
_LONGEST = 1e50  # rows: products of six of them are numbers yet, as they meet in Newton steps


def of_score(shard: Shard) -> float:
    """What a score may be wrong by, as a part of ``||x|| ||w||``; a few roundings more are for what it is added to."""
    sizes = [
        int(np.diff(block.indptr).max(initial=0)) if sp.issparse(block) else block.shape[1] for block in shard.blocks
    ]
    return (max(sizes, default=0) + 8) * UNIT


def of_combination(n_rows: float) -> float:
    """What ``sum_i alpha_i x_i`` over so many rows may be wrong by, as a part of ``sum_i |alpha_i| ||x_i||``."""
    return 2 * (math.sqrt(n_rows) + 2) * UNIT


def lengths_of(shard: Shard) -> tuple[np.ndarray, float]:
    """The length of every row, and how many of them are too long."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(shard.squared_norms())
    return lengths, float(np.count_nonzero(~(lengths <= _LONGEST)))


def refuse_long_rows(n_long: float) -> None:
    """Refuse rows whose products are no numbers, given how many there are on all ranks."""
    if n_long:
        raise ValueError(
            f"{int(n_long)} rows are longer than {_LONGEST:g}, from where on the products of a Newton step are "
            "beyond float64: scale the features (StandardScaler)."
        )
