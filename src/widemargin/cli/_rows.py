"""Rows from a file: LIBSVM text, CSV or NumPy arrays, plain or compressed."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


class FileRows(NamedTuple):
    """Rows and their labels, which are numbers or strings."""

    X: Any
    y: np.ndarray


def read_rows(path: Path) -> FileRows:
    """The rows of a file; its name says what it is: ``.csv``, ``.npz``, and LIBSVM text for all others."""
    try:
        suffixes = path.suffixes
        if suffixes[-1:] == [".npz"]:
            rows = _read_arrays(path)
        else:
            content = (
                _OPENERS[suffixes[-1]](path).read() if suffixes[-1:] and suffixes[-1] in _OPENERS else path.read_bytes()
            )
            rows = _read_csv(content) if ".csv" in suffixes[-2:] else _read_libsvm(content)
    except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is not understood: {error}") from error
    X, y = rows
    if X.ndim != 2 or y.shape != (X.shape[0],) or not len(y):
        raise ValueError(
            f"{path} must have one label for each row, and at least one row; it has {X.shape} and {y.shape}."
        )
    if not np.isfinite(X.data if sp.issparse(X) else X).all():
        raise ValueError(f"{path} has values that are missing or not finite.")
    return rows


def _read_libsvm(content: bytes) -> FileRows:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(io.BytesIO(content))
    return FileRows(sp.csr_matrix(X), y)


def _read_csv(content: bytes) -> FileRows:
    """Numbers, the label in the last column; a first line that is not of numbers holds names."""
    lines = [line for line in csv.reader(io.StringIO(content.decode("utf8"))) if line]
    if not lines:
        raise ValueError("it is empty.")
    if not all(_is_number(cell) for cell in lines[0][:-1]):
        lines = lines[1:]
    if len({len(line) for line in lines}) > 1:
        raise ValueError("its lines differ in length.")
    labels = [line[-1].strip() for line in lines]
    y = np.array(labels, float) if all(map(_is_number, labels)) else np.array(labels)
    return FileRows(np.array([line[:-1] for line in lines], dtype=float), y)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_arrays(path: Path) -> FileRows:
    """``X`` and ``y``; or, for sparse rows, ``data``, ``indices``, ``indptr``, ``shape`` and ``y``."""
    with np.load(path, allow_pickle=False) as arrays:
        if "indptr" in arrays:
            X = sp.csr_matrix(tuple(arrays[name] for name in ("data", "indices", "indptr")), shape=arrays["shape"])
        else:
            X = arrays["X"]
        return FileRows(X.astype(np.float64), arrays["y"])
