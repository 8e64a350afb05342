"""Division of rows among ranks."""

from itertools import pairwise
from typing import Any

from widemargin.data.shard import view_rows


def split_rows(rows: Any, n_ranks: int) -> list[Any]:
    """Equal parts of consecutive rows, as views.

    ``rows`` is a named tuple of an array or CSR matrix and arrays of the same length, or None.
    """
    n_rows = rows[0].shape[0]
    if n_ranks > n_rows:
        raise ValueError(
            f"cluster={n_ranks} is more ranks than rows: with n_samples={n_rows} it must lie in [1, {n_rows}]."
        )
    if n_ranks == 1:
        return [rows]
    edges = [n_rows * rank // n_ranks for rank in range(n_ranks + 1)]
    return [
        type(rows)(*(None if each is None else view_rows(each, begin, end) for each in rows))
        for begin, end in pairwise(edges)
    ]
