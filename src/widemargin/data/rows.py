"""Rows from a file: LIBSVM text, CSV, parquet or NumPy arrays, plain or compressed; whole, or block by block.

Files may come from anyone: they are parsed and checked, never unpickled, and errors name the line.
"""

import bz2
import gzip
import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import scipy.sparse as sp

from widemargin.data.arrays import refuse_false_sizes
from widemargin.data.layout import FileRows, Layout
from widemargin.data.libsvm_text import csr_of, iterate_libsvm
from widemargin.data.tables import iterate_csv, iterate_parquet

_MAX_PIPE_BYTES = 1 << 30  # which are held in memory

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def read_rows(path: Path, layout: Layout | None = None, part: tuple[int, int] = (0, 1)) -> FileRows:
    """All rows of a file and their labels, at least one.

    With ``part=(rank, size)`` only every ``size``-th row, from row ``rank`` on; the number of features is that of the
    whole file.
    """
    rank, size = part
    width = offset = 0

    def own_rows() -> Iterator[FileRows]:
        nonlocal width, offset
        for block in iterate_rows(path, layout or Layout()):
            width = max(width, block.X.shape[1])
            own = slice((rank - offset) % size, None, size)
            offset += block.X.shape[0]
            if size > 1:
                block = block._replace(X=block.X[own], y=None if block.y is None else block.y[own])
            yield block

    rows = joined(own_rows())
    if rows is None:
        raise ValueError(f"{path} " + ("is empty." if size == 1 else f"has fewer rows than there are ranks ({size})."))
    if sp.issparse(rows.X):
        rows.X.resize(rows.X.shape[0], width)
    return rows


def iterate_rows(path: Path, layout: Layout) -> Iterator[FileRows]:
    """Rows in blocks. The extension determines the format: ``.csv``, ``.parquet``, ``.npz``, otherwise LIBSVM text."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_arrays, is_parquet = suffixes[-1:] == [".npz"], suffixes[-1:] in ([".parquet"], [".pq"])
    is_csv = not is_arrays and not is_parquet and bool({".csv", ".tsv"} & set(suffixes[-2:]))
    if layout.label != Layout.label and not is_csv and not is_parquet:
        raise ValueError(f"--label {layout.label} does not apply to {path}: only tables (CSV, parquet) have columns.")
    if layout.zero_based and (is_arrays or is_parquet or is_csv):
        raise ValueError(f"--zero-based does not apply to {path}: only LIBSVM text numbers its features.")
    try:
        _refuse_endless(path, is_text=not is_arrays and not is_parquet)
        if is_arrays:
            yield _read_arrays(path, layout)
        elif is_parquet:
            yield from iterate_parquet(path, layout)
        elif is_csv:
            yield from iterate_csv(_opener(path), layout)
        else:
            with _opener(path)() as file:
                yield from iterate_libsvm(file, layout)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"{path} is not understood: it is not UTF-8 text (it has the byte 0x{byte:02x}).") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not understood: {error}") from error


def _refuse_endless(path: Path, *, is_text: bool) -> None:
    """Raise ValueError for devices, whose content may never end, and for pipes where a file is needed."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise ValueError("it is a device, and its content may never end. Save the rows in a file, or use a pipe.")
    if stat.S_ISFIFO(mode) and not is_text:
        raise ValueError("it is a pipe, and only text can be read from pipes. Save the rows in a file.")


def _opener(path: Path) -> Callable[[], BinaryIO]:
    """Open the file, decompressed. A pipe cannot be opened twice, as CSV needs it, and is read into memory."""
    decompress = _OPENERS.get(path.suffix.lower(), lambda file: file)
    content = None if path.is_file() else _from_pipe(path)
    return lambda: cast(BinaryIO, decompress(path.open("rb") if content is None else io.BytesIO(content)))


def _from_pipe(path: Path) -> bytes:
    content, n_bytes = [], 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            content.append(block)
            n_bytes += len(block)
            if n_bytes > _MAX_PIPE_BYTES:
                raise ValueError(
                    f"more than {_MAX_PIPE_BYTES / (1 << 30):g} GiB came through the pipe, and may never end. Save the "
                    "rows in a file."
                )
    return b"".join(content)


def _read_arrays(path: Path, layout: Layout) -> FileRows:
    """``X`` and ``y``; or, for sparse rows, ``data``, ``indices``, ``indptr``, ``shape`` and ``y``."""
    refuse_false_sizes(path, path.stat().st_size)
    with np.load(path, allow_pickle=False) as arrays:
        if "indptr" in arrays:
            X = sp.csr_matrix(tuple(arrays[name] for name in ("data", "indices", "indptr")), shape=arrays["shape"])
            X.check_format(full_check=True)  # compiled loops trust the indices
            X.sum_duplicates()
        else:
            X = _named(arrays, "X")
        y = _named(arrays, "y") if layout.needs_labels else None
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X holds {X.dtype}, not numbers.")
    if X.ndim != 2 or X.shape[0] == 0 or (y is not None and y.shape != (X.shape[0],)):
        shapes = f"X has {X.shape}" + ("" if y is None else f", y has {y.shape}")
        raise ValueError(f"X must be a matrix of at least one row, and y have one label for each row; {shapes}.")
    if layout.n_features is not None and X.shape[1] != layout.n_features:
        raise ValueError(f"it has {X.shape[1]} features, but {layout.n_features} are expected.")
    if layout.is_dtype_wanted or X.dtype not in (np.float32, np.float64):
        X = X.astype(layout.dtype)
    if not np.isfinite(X.data if sp.issparse(X) else X).all():
        raise ValueError("it has values that are missing or not finite.")
    if y is not None and y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError(f"row {int(np.isnan(y).argmax()) + 1} has no label.")
    return FileRows(X, y, None)


def _named(arrays: Any, name: str) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"it has no array {name!r}, only {', '.join(arrays.files) or 'none'}.")
    found: np.ndarray = arrays[name]
    return found


class Growing:
    """An array that grows block by block. Resizing a large one moves page tables, not data."""

    def __init__(self, dtype: Any) -> None:
        self._content, self._n = np.empty(0, dtype=dtype), 0

    def add(self, values: np.ndarray) -> None:
        end = self._n + values.size
        if end > self._content.size:
            self._content.resize(end + end // 32, refcheck=False)
        self._content[self._n : end] = values.ravel()
        self._n = end

    def whole(self) -> np.ndarray:
        self._content.resize(self._n, refcheck=False)
        return self._content


def joined(blocks: Iterable[FileRows]) -> FileRows | None:
    """All rows of all blocks, in order; None if there are none. Only one block is in memory twice."""
    filled = (block for block in blocks if block.X.shape[0])
    first, second = next(filled, None), next(filled, None)
    if first is None or second is None:
        return None if first is None else first._replace(y=_typed(first.y))
    is_sparse, width, n_entries = sp.issparse(first.X), 0, 0
    values, indices, ends = Growing(first.X.dtype), Growing(np.int32), Growing(np.int64)
    is_plain = first.y is not None and first.y.dtype.kind in "fb"  # others may need a wider type later
    labels: list[np.ndarray] | Growing = Growing(first.y.dtype) if is_plain else []
    for block in chain((first, second), filled):
        if isinstance(labels, Growing):
            labels.add(block.y)
        elif block.y is not None:
            labels.append(block.y)
        width = max(width, block.X.shape[1])
        values.add(block.X.data if is_sparse else block.X)
        if is_sparse:
            indices.add(block.X.indices)
            ends.add(block.X.indptr[1:].astype(np.int64) + n_entries)
            n_entries += block.X.nnz
    y = labels.whole() if isinstance(labels, Growing) else np.concatenate(labels) if labels else None
    whole = values.whole()
    X = csr_of(whole, indices.whole(), ends.whole(), width) if is_sparse else whole.reshape(-1, width)
    return FileRows(X, _typed(y), first.names)


def _typed(y: np.ndarray | None) -> np.ndarray | None:
    """Labels as numbers if all of them are, and uint64 as int64 if it holds them."""
    if y is not None and y.dtype == np.uint64 and y.max(initial=0) <= np.iinfo(np.int64).max:
        return y.astype(np.int64)
    if y is None or y.dtype.kind != "U":
        return y
    try:
        numbers = y.astype(np.float64)
    except ValueError:
        return y
    return numbers if np.isfinite(numbers).all() else y
