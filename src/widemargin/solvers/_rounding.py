"""Rounding errors of linear models, for which certificates allow; see :mod:`widemargin.rounding`.

    score      sum_j x_j w_j      error <= gamma(k) ||x|| ||w||,            k the number of entries of the row
    z          sum_i a_i x_i      error <= gamma(k) sum_i |a_i| ||x_i||,    k the depth of the sum over rows

by Cauchy and Schwarz. Both k are taken a little larger than needed: what is left over covers the rounding of the norms
and of the few operations that follow.
"""

from __future__ import annotations

import numpy as np

from widemargin.data.pieces import sum_of_pieces
from widemargin.data.shard import Shard
from widemargin.rounding import gamma

SMALL_PART = 0.01  # rounding below this part of a gap is ignored
STALL_RATIO = 0.9  # a step that leaves more than this part of a gap has stalled
_MAX_ROW_NORM = 1e50  # products of six such rows, as in Newton steps, are finite
_SPARE = 12


def of_score(shard: Shard) -> float:
    """Rounding error of a score and of what it is added to, relative to ``||x|| ||w||``."""
    return gamma(shard.scores_depth + _SPARE)


def of_combination(depth: float) -> float:
    """Rounding error of ``sum_i alpha_i x_i``, relative to ``sum_i |alpha_i| ||x_i||``."""
    return gamma(depth + _SPARE)


def lengths_of(shard: Shard) -> tuple[np.ndarray, float]:
    """The norm of every row, and how many are over the limit; problems on some of the same rows share them."""
    whole, places = shard.whole or (shard, None)
    if "lengths" not in whole.shared:
        whole.shared["lengths"] = _new_lengths(whole)
    lengths, n_long = whole.shared["lengths"]
    if places is None:
        return lengths, n_long
    own = lengths[places]
    return own, float(np.count_nonzero(~(own <= _MAX_ROW_NORM))) if n_long else 0.0


def _new_lengths(shard: Shard) -> tuple[np.ndarray, float]:
    lengths = shard.squared_norms()

    def to_root(rows: slice) -> np.ndarray:
        few = lengths[rows]
        np.sqrt(few, out=few)
        return np.array([float(np.count_nonzero(~(few <= _MAX_ROW_NORM)))])

    return lengths, float(sum_of_pieces(to_root, len(lengths))[0])


def refuse_long_rows(n_long: float) -> None:
    """Raise ValueError if any rank has rows whose products overflow."""
    if n_long:
        raise ValueError(
            f"{int(n_long)} rows have a norm over {_MAX_ROW_NORM:g}, for which the products of a Newton step overflow "
            "float64: scale the features (StandardScaler)."
        )
