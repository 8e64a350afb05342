"""Bounds on float64 rounding errors of the scores and sums of linear models, for which certificates allow.

The error of a sum of k products is at most about k units of rounding of the sum of their sizes, which ``||x|| ||w||``
bounds for a score. In sums over all rows errors mostly cancel: the root of the number of rows takes its place.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from widemargin.data.shard import Shard

UNIT = float(np.finfo(np.float64).eps) / 2  # relative error of one rounding
SMALL_PART = 0.01  # rounding below this part of a gap is ignored
STALL_RATIO = 0.9  # a step that leaves more than this part of a gap has stalled
_MAX_ROW_NORM = 1e50  # products of six such rows, as in Newton steps, are finite


def of_score(shard: Shard) -> float:
    """Rounding error of a score and of what it is added to, relative to ``||x|| ||w||``."""
    sizes = [np.diff(block.indptr).max(initial=0) if sp.issparse(block) else block.shape[1] for block in shard.blocks]
    return (int(max(sizes, default=0)) + 8) * UNIT


def of_combination(n_rows: float) -> float:
    """Rounding error of ``sum_i alpha_i x_i`` over ``n_rows``, relative to ``sum_i |alpha_i| ||x_i||``."""
    return 2 * (math.sqrt(n_rows) + 2) * UNIT


def lengths_of(shard: Shard) -> tuple[np.ndarray, float]:
    """The norm of every row, and how many are over the limit."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(shard.squared_norms())
    return lengths, float(np.count_nonzero(~(lengths <= _MAX_ROW_NORM)))


def refuse_long_rows(n_long: float) -> None:
    """Raise ValueError if any rank has rows whose products overflow."""
    if n_long:
        raise ValueError(
            f"{int(n_long)} rows have a norm over {_MAX_ROW_NORM:g}, for which the products of a Newton step overflow "
            "float64: scale the features (StandardScaler)."
        )
