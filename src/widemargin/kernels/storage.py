"""Rows as they are stored, dense or CSR: what all kernels need to know about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import csr
from widemargin.pauses import pause_alone


def joined(blocks: list[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)


def pieces(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each piece of ``n`` rows."""
    for begin in range(0, n, size):
        yield begin, min(begin + size, n)


def dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def density(X: Any) -> float:
    """The share of entries that are not zero."""
    size = X.shape[0] * X.shape[1]
    n_nonzero = X.nnz if sp.issparse(X) else np.count_nonzero(X)
    return float(n_nonzero / size) if size else 1.0


def squared_norms(X: Any) -> np.ndarray:
    """``||x||^2`` of every row, in float64 from the values as stored."""
    if not sp.issparse(X) and X.dtype == np.float64:
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    out = np.empty(X.shape[0])
    if sp.issparse(X):
        csr.squared_norms_csr(np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr), out)
        return out
    for begin, end in pieces(len(X), 4096):
        few = X[begin:end].astype(np.float64)
        out[begin:end] = np.einsum("ij,ij->i", few, few)
    return out


def csr_arrays(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data, indices and row starts; 32-bit indices as unsigned, which the compiled loops index faster with."""
    # Not 64-bit ones: Numba turns the sum of an unsigned and a signed 64-bit number into a float.
    return X.data, *(each.view(np.uint32) if each.itemsize == 4 else each for each in (X.indices, X.indptr))


def exact_in_float32(X: Any) -> bool:
    """Whether inner products of such rows are exact in float32: integers, or multiples of 1/256, of limited norm.

    A partial sum is at most the product of two norms, and float32 represents all integers below 2**24.
    """
    largest = squared_norms(X).max(initial=0.0)
    return any(largest * unit * unit < 2.0**24 and _are_multiples(X, 1 / unit) for unit in (1.0, 256.0))


def _are_multiples(X: Any, of: float) -> bool:
    values = np.ravel(X.data if sp.issparse(X) else X)
    for begin, end in pieces(len(values), 1 << 20):
        counts = values[begin:end] / of
        if not np.array_equal(counts, np.rint(counts)):
            return False
        pause_alone(8.0 * len(counts))
    return True


def as_csr(X: Any, dtype: Any) -> Any:
    """Rows as a CSR matrix of this type."""
    if sp.issparse(X):
        X = sp.csr_matrix(X)
        return X if X.dtype == dtype else X.astype(dtype)
    some = []
    for begin, end in pieces(len(X), max(1, (1 << 22) // max(X.shape[1], 1))):
        some.append(sp.csr_matrix(X[begin:end], dtype=dtype))
        pause_alone(16.0 * X[begin:end].size)
    return sp.csr_matrix(X, dtype=dtype) if len(some) < 2 else sp.csr_matrix(sp.vstack(some, format="csr"))
