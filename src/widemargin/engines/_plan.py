"""Who gets which rows."""

from __future__ import annotations

from itertools import pairwise

from widemargin.data.shard import Shard


def split_rows(shard: Shard, n_ranks: int) -> list[Shard]:
    """Equal parts of consecutive rows, as views: nothing is copied."""
    if n_ranks > shard.n_rows:
        raise ValueError(
            f"cluster={n_ranks} asks for more ranks than there are rows: with {shard.n_rows} row(s) of positive weight "
            f"it must lie in [1, {shard.n_rows}]."
        )
    edges = [shard.n_rows * rank // n_ranks for rank in range(n_ranks + 1)]
    return [shard.part(begin, end) for begin, end in pairwise(edges)]
