"""Rows as they are stored, dense or CSR: what all kernels need to know about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin import cores
from widemargin.compiled import csr
from widemargin.compiled import storage as compiled
from widemargin.compiled.dense import squared_norms_dense
from widemargin.compiled.panels import ALIGNMENT, group_size

_PIECE_SIZE = 1 << 18  # entries that one thread works on at a time: a tenth of a millisecond or more


def joined(blocks: list[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)


def pieces(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each piece of ``n`` rows."""
    for begin in range(0, n, size):
        yield begin, min(begin + size, n)


def row_pieces(n: int, width: float) -> list[tuple[int, int]]:
    """Pieces of ``n`` rows of so many entries for a single pass over them."""
    return list(pieces(n, max(1, int(_PIECE_SIZE / max(width, 1)))))


def entries_per_row(X: Any) -> float:
    return float((X.nnz / max(X.shape[0], 1)) if sp.issparse(X) else X.shape[1])


def dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def others_per_row(X: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """How many entries of each dense row are not those of the centre."""
    counts, centre = np.empty(len(X), np.int64), centre.astype(X.dtype)
    cores.each(lambda piece: compiled.count_others(X, centre, *piece, counts), row_pieces(*X.shape), float(X.size))
    return counts


def squared_norms(X: Any) -> np.ndarray:
    """``||x||^2`` of every row, in float64 from the values as stored."""
    out = np.empty(X.shape[0])

    def fill(piece: tuple[int, int]) -> None:
        begin, end = piece
        if sp.issparse(X):
            csr.squared_norms_csr(X.data, X.indices, X.indptr[begin : end + 1], out[begin:end])
        else:
            squared_norms_dense(X[begin:end], out[begin:end])

    width = entries_per_row(X)
    cores.each(fill, row_pieces(len(out), width), width * len(out))
    return out


class Measured:
    """Rows, and numbers of theirs that are asked for more than once: each takes a pass over all entries.

    Arrays that were the centre are kept, so that no other can be taken for them.
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        self._known: dict[tuple[str, int | None], tuple[np.ndarray, np.ndarray | None]] = {}

    def squared_norms(self, centre: np.ndarray | None = None) -> np.ndarray:
        """``||x - centre||^2`` of every row."""
        return self._once("norms", centre)

    def n_entries(self, centre: np.ndarray | None = None) -> np.ndarray:
        """How many entries of each row are not those of the centre, or not zero; of a sparse row, are stored."""
        return self._once("entries", centre)

    def density(self) -> float:
        """The share of entries that are not zero, or stored."""
        size = self.X.shape[0] * self.X.shape[1]
        return float(self.n_entries().sum() / size) if size else 1.0

    def _once(self, what: str, centre: np.ndarray | None) -> np.ndarray:
        key = what, None if centre is None else id(centre)
        if key not in self._known:
            self._known[key] = (self._norms if what == "norms" else self._entries)(centre), centre
        return self._known[key][0]

    def _norms(self, centre: np.ndarray | None) -> np.ndarray:
        return squared_norms(self.X) if centre is None else squared_norms_from(self.X, centre)

    def _entries(self, centre: np.ndarray | None) -> np.ndarray:
        if sp.issparse(self.X) and centre is None:
            return np.diff(self.X.indptr)
        return others_per_row(dense(self.X), np.zeros(self.X.shape[1]) if centre is None else centre)


def squared_norms_from(X: Any, centre: np.ndarray) -> np.ndarray:
    """``||x - centre||^2`` of every row."""
    out = np.empty(X.shape[0])

    def fill(piece: tuple[int, int]) -> None:
        few = dense(X[slice(*piece)]) - centre
        np.einsum("ij,ij->i", few, few, out=out[slice(*piece)])

    cores.each(fill, row_pieces(*X.shape), 2.0 * X.shape[0] * X.shape[1])
    return out


def column_sums(X: Any) -> np.ndarray:
    """The sum of every column, in float64."""
    if sp.issparse(X):
        return np.asarray(X.sum(axis=0, dtype=np.float64)).ravel()
    each = row_pieces(*X.shape)
    sums = np.zeros((len(each), X.shape[1]))

    def fill(k: int) -> None:
        X[slice(*each[k])].sum(axis=0, dtype=np.float64, out=sums[k])

    cores.each(fill, range(len(each)), float(X.size))
    return np.asarray(sums.sum(axis=0))


class SparseRows(NamedTuple):
    """Sparse rows as the compiled loops read them: the entries of row i begin at ``starts[i]``.

    ``splits`` says where those in each group of columns begin, which are multiplied at a time, and how many there are.
    """

    data: np.ndarray
    indices: np.ndarray
    starts: np.ndarray
    splits: np.ndarray

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def only(self, places: np.ndarray) -> SparseRows:
        """Some rows, whose entries stay where they are."""
        return self._replace(starts=self.starts[places], splits=taken(self.splits, places))


def _unsigned(indices: np.ndarray) -> np.ndarray:
    """32-bit indices as unsigned, which the compiled loops index faster with."""
    # Not 64-bit ones: Numba turns the sum of an unsigned and a signed 64-bit number into a float.
    return indices.view(np.uint32) if indices.itemsize == 4 else indices


def _room_for_splits(shape: tuple[int, int], size: int) -> np.ndarray:
    return np.empty((shape[0], -(-shape[1] // size) + 1), np.uint32)


def aligned(shape: tuple[int, ...], dtype: Any, space: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array that begins with a line of the cache, and the bytes that it is in: ``space``, or more if that is small.

    Memory that was written to before is faster: the system has to clear new pages.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if len(space) < size + ALIGNMENT:
        space = np.empty(size + ALIGNMENT, np.uint8)
    begin = -space.ctypes.data % ALIGNMENT
    return space[begin : begin + size].view(dtype).reshape(shape), space


def exact_in_float32(rows: Measured) -> bool:
    """Whether inner products of such rows are exact in float32: integers, or multiples of 1/256, of limited norm.

    A partial sum is at most the product of two norms, and float32 represents all integers below 2**24.
    """
    largest = rows.squared_norms().max(initial=0.0)
    return any(largest * unit * unit < 2.0**24 and _are_multiples(rows.X, unit) for unit in (1.0, 256.0))


def _are_multiples(X: Any, unit: float) -> bool:
    """Whether all entries are multiples of ``1 / unit``."""
    values = np.ravel(X.data if sp.issparse(X) else X)
    found: list[bool] = []
    each = row_pieces(len(values), 1)
    cores.each(lambda piece: found.append(compiled.are_whole(values, unit, *piece)), each, 2.0 * len(values))
    return all(found)


def are_binary(X: Any) -> bool:
    """Whether all entries are zero or one, and each is stored once."""
    if sp.issparse(X) and not X.has_canonical_format:
        return False
    values, found = np.ravel(X.data if sp.issparse(X) else X), []
    if not compiled.are_binary(values, 0, min(len(values), 1024)):  # the most frequent answer
        return False
    each = row_pieces(len(values), 1)
    cores.each(lambda piece: found.append(compiled.are_binary(values, *piece)), each, float(len(values)))
    return all(found)


def as_bits(X: Any) -> np.ndarray:
    """Rows of zeros and ones as words of 64 bits."""
    words = np.empty((X.shape[0], -(-X.shape[1] // 64)), np.uint64)
    loop, arrays = (
        (compiled.bits_of_csr, (X.data, X.indices, X.indptr)) if sp.issparse(X) else (compiled.bits_of_dense, (X,))
    )
    each = row_pieces(X.shape[0], X.shape[1])
    cores.each(lambda piece: loop(*arrays, *piece, words), each, float(X.shape[0] * X.shape[1]))
    return words


def converted(X: np.ndarray, dtype: Any) -> np.ndarray:
    """An array in C order and of this type; a copy only if it is not so already."""
    if X.dtype == dtype and X.flags.c_contiguous:
        return X
    out = np.empty(X.shape, dtype)

    def fill(piece: tuple[int, int]) -> None:
        out[slice(*piece)] = X[slice(*piece)]

    cores.each(fill, row_pieces(len(X), X.size / max(len(X), 1)), float(X.size))
    return out


def shifted(X: np.ndarray, centre: np.ndarray, dtype: Any) -> np.ndarray:
    """Dense rows minus their centre, subtracted in float64."""
    out = np.empty(X.shape, dtype)

    def fill(piece: tuple[int, int]) -> None:
        out[slice(*piece)] = X[slice(*piece)] - centre

    cores.each(fill, row_pieces(*X.shape), 2.0 * X.size)
    return out


def as_csr(X: Any, dtype: Any) -> Any:
    """A sparse matrix in CSR format and of this type, entries sorted by their columns."""
    X = sp.csr_matrix(X)
    X = X if X.has_sorted_indices else X.sorted_indices()
    if X.dtype == dtype:
        return X
    return sp.csr_matrix((converted(X.data, dtype), X.indices, X.indptr), shape=X.shape)


def normalised(X: Any, dtype: Any) -> Any:
    """Rows of norm 1, or 0, in this type."""
    X = as_csr(X, dtype) if sp.issparse(X) else converted(X, dtype)
    norms = squared_norms(X)
    factors = (1 / np.sqrt(np.where(norms > 0, norms, 1.0))).astype(dtype)
    return sp.csr_matrix(sp.diags_array(factors) @ X) if sp.issparse(X) else X * factors[:, None]


def compressed(rows: Measured, dtype: Any, centre: np.ndarray | None = None) -> tuple[SparseRows, np.ndarray]:
    """Rows, minus a centre if there is one, as sparse rows of this type, and their squared norms."""
    X = rows.X
    if sp.issparse(X) and centre is None:
        X = as_csr(X, dtype)
        size, each = group_size(X.shape[1], entries_per_row(X)), row_pieces(X.shape[0], entries_per_row(X))
        splits = _room_for_splits(X.shape, size)
        cores.each(lambda piece: compiled.split_rows(X.indices, X.indptr, size, *piece, splits), each, float(X.nnz))
        return SparseRows(X.data, _unsigned(X.indices), _unsigned(X.indptr)[:-1], splits), squared_norms(X)
    begins = np.concatenate([[0], np.cumsum(rows.n_entries(centre))])
    X, centre = dense(X), (np.zeros(X.shape[1]) if centre is None else centre).astype(X.dtype)
    size = group_size(X.shape[1], begins[-1] / max(len(X), 1))
    found, norms = room_for(X.shape, int(begins[-1]), size, dtype)

    def fill(piece: tuple[int, int]) -> None:
        compiled.compress(X, centre, size, *piece, begins[piece[0]], *found, norms)

    cores.each(fill, row_pieces(*X.shape), 2.0 * X.size)
    return found, norms


def room_for(shape: tuple[int, int], n_entries: int, size: int, dtype: Any) -> tuple[SparseRows, np.ndarray]:
    """Room for sparse rows in groups of ``size`` columns, and for their squared norms."""
    index = np.uint32 if n_entries <= np.iinfo(np.int32).max else np.int64
    data, indices, starts = np.empty(n_entries, dtype), np.empty(n_entries, index), np.empty(shape[0], index)
    return SparseRows(data, indices, starts, _room_for_splits(shape, size)), np.empty(shape[0])


def taken(X: Any, rows: np.ndarray) -> Any:
    """The rows at these places, as ``X[rows]``."""
    if not (sp.issparse(X) or isinstance(X, np.ndarray)):
        return X[rows]
    if rows.dtype.kind not in "iu" or rows.min(initial=0) < 0:
        return X[rows]
    if len(rows) * entries_per_row(X) < _PIECE_SIZE:
        return X[rows] if sp.issparse(X) else np.take(X, rows, axis=0)  # faster than X[rows]
    if not sp.issparse(X):
        out = np.empty((len(rows), X.shape[1]), X.dtype)

        def fill(piece: tuple[int, int]) -> None:
            np.take(X, rows[slice(*piece)], axis=0, out=out[slice(*piece)], mode="clip")

        cores.each(fill, row_pieces(*out.shape), float(out.size))
        return out
    starts = np.concatenate([[0], np.cumsum(np.diff(X.indptr)[rows])]).astype(X.indptr.dtype)
    data, indices = np.empty(starts[-1], X.dtype), np.empty(starts[-1], X.indices.dtype)
    arrays = (X.data, X.indices, X.indptr, rows, starts, data, indices)
    each = row_pieces(len(rows), len(data) / len(rows))
    cores.each(lambda piece: compiled.take_csr(*arrays, *piece), each, float(len(data)))
    return sp.csr_matrix((data, indices, starts), shape=(len(rows), X.shape[1]))
