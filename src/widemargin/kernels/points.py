"""Rows that travel between ranks: support vectors, working sets, sampled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.codec import check_row_numbers, check_rows, record
from widemargin.kernels.arrays import on_host
from widemargin.kernels.arrays import taken as taken_anywhere
from widemargin.kernels.storage import joined, taken


def _check(points: Points) -> None:
    check_rows(points.X)
    check_row_numbers(points.numbers, points.X.shape[0])


@record(check=_check)
@dataclass(frozen=True)
class Points:
    """Some rows of the data, as stored, and their numbers among all rows of all ranks.

    With a precomputed kernel the numbers alone identify them.
    """

    X: Any  # dense or CSR, in the type of the data
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, chosen: Any) -> Points:
        return Points(taken(self.X, chosen) if isinstance(chosen, np.ndarray) else self.X[chosen], self.numbers[chosen])

    def pack(self) -> list[np.ndarray]:
        """One-dimensional arrays that can be sent."""
        if not sp.issparse(self.X):
            return [self.numbers, np.ascontiguousarray(self.X).ravel()]
        return [self.numbers, np.diff(self.X.indptr), self.X.indices, self.X.data]

    def unpack(self, arrays: list[np.ndarray]) -> Points:
        """The points of arrays from :meth:`pack`, concatenated over ranks; stored as these points are."""
        numbers, *parts = arrays
        shape = (len(numbers), self.X.shape[1])
        if not sp.issparse(self.X):
            return Points(parts[0].reshape(shape), numbers)
        lengths, indices, data = parts
        return Points(sp.csr_matrix((data, indices, np.concatenate([[0], np.cumsum(lengths)])), shape=shape), numbers)

    @classmethod
    def joined(cls, parts: list[Points]) -> Points:
        if len(parts) == 1:
            return parts[0]
        return cls(joined([part.X for part in parts]), np.concatenate([part.numbers for part in parts]))


class TakenPoints(Points):
    """Points whose rows are copied from an array, a sparse matrix or a tensor of more rows when they are asked for."""

    source: Any
    places: np.ndarray

    def __init__(self, source: Any, places: np.ndarray, numbers: np.ndarray) -> None:
        self.__dict__.update(source=source, places=places, numbers=numbers)

    @property
    def X(self) -> Any:
        return on_host(taken_anywhere(self.source, self.places))

    def __getitem__(self, chosen: Any) -> Points:
        return TakenPoints(self.source, self.places[chosen], self.numbers[chosen])
