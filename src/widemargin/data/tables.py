"""Rows from tables: text with separators (CSV) and parquet, in blocks, the labels in one of the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from widemargin.data.layout import Columns, FileRows, Layout, choose_columns

_BLOCK_LINES = 4096
_SEPARATORS = ",;\t"


def iterate_csv(file: TextIO, layout: Layout) -> Iterator[FileRows]:
    """Rows of numbers; a first line of other text gives the names."""
    n_blank, head = 0, None
    for head in file:
        if head.strip():
            break
        n_blank += 1
    if head is None or not head.strip():
        return
    reader = csv.reader(chain([head], file), delimiter=max(_SEPARATORS, key=head.count))
    filled = ((n_blank + reader.line_num, cells) for cells in reader if cells)
    try:
        at, cells = next(filled)
        first, second = [cell.strip() for cell in cells], next(filled, None)
        header = first if _is_header(first, [] if second is None else second[1], layout) else None
        columns = choose_columns(layout, header, len(first))
        names = None if header is None else [header[k] for k in columns.features]
        lines: list[tuple[int, list[str]]] = [] if header is not None else [(at, first)]
        for number, cells in filled if second is None else chain([second], filled):
            if len(cells) != len(first):
                raise ValueError(
                    f"its lines differ in length: line {number} has {len(cells)} columns, the first {len(first)}."
                )
            lines.append((number, cells))
            if len(lines) == _BLOCK_LINES:
                yield _numbers(lines, columns, names, layout)
                lines = []
    except csv.Error as error:
        raise ValueError(f"line {n_blank + reader.line_num}: {error}.") from error
    if lines:
        yield _numbers(lines, columns, names, layout)


def _is_header(first: list[str], second: list[str], layout: Layout) -> bool:
    """Whether the first line holds names: those that are asked for, text over a number as label, or text throughout.

    Text that may be a name beside numbers that may be values is refused: to take such a line for names would lose a
    row, and nobody would notice.
    """
    if layout.label in first and not _is_whole(layout.label):
        return True
    if layout.names is not None and set(layout.names) <= set(first):
        return True
    at = _place_of_label(len(first), layout)
    label, features = "" if at is None else first[at], [cell for k, cell in enumerate(first) if k != at and cell]
    if "?" in first:  # a common mark of what is missing
        return False
    if at is not None and _is_text(label) and at < len(second) and _is_number(second[at]):
        return True
    if not any(map(_is_text, features)):
        return False
    numbers = [cell for cell in (*features, label) if cell and _is_number(cell)]
    if numbers:
        text = next(filter(_is_text, features))
        raise ValueError(
            f"its first line has text, {text[:40]!r}, beside numbers, {numbers[0][:40]!r}: it may be one of names or a "
            "row. Names must not be numbers, and the values of a row must be (--label NAME says that there are names)."
        )
    return True


def _place_of_label(width: int, layout: Layout) -> int | None:
    """Where labels are in lines without names; None where there are none."""
    if not layout.needs_labels and width == layout.n_features:
        return None
    label = int(layout.label) if _is_whole(layout.label) else -1
    at = label - 1 if label > 0 else width + label
    return at if 0 <= at < width else None


def _is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _is_text(cell: str) -> bool:
    return bool(cell) and not _is_number(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(lines: list[tuple[int, list[str]]], columns: Columns, names: list[str] | None, layout: Layout) -> FileRows:
    X = np.empty((len(lines), len(columns.features)), dtype=layout.dtype)
    for k, (number, cells) in enumerate(lines):
        try:
            X[k] = [float(cells[j]) for j in columns.features]
        except ValueError:
            j = next(j for j in columns.features if not _is_number(cells[j]))
            raise ValueError(f"line {number}, column {_name(j, columns, names)}: {_about(cells[j])}") from None
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        k, j = bad[0]
        raise ValueError(
            f"line {lines[k][0]}, column {_name(columns.features[j], columns, names)}: a value is missing or "
            "not finite."
        )
    if columns.label is None:
        return FileRows(X, None, names)
    labels = [cells[columns.label].strip() for _, cells in lines]
    if "" in labels:
        raise ValueError(f"line {lines[labels.index('')][0]} has no label.")
    return FileRows(X, np.array(labels), names)


def _name(column: int, columns: Columns, names: list[str] | None) -> str:
    return f"{column + 1}" if names is None else repr(names[columns.features.index(column)])


def _about(cell: str) -> str:
    return f"{cell[:40]!r} is not a number." if cell.strip() else "a value is missing or not finite."


def iterate_parquet(path: Path, layout: Layout) -> Iterator[FileRows]:
    """Rows of a parquet file, read by pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'widemargin[parquet]'.") from error
    try:
        with pq.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            columns = choose_columns(layout, header, len(header))
            names = [header[k] for k in columns.features]
            wanted = names + ([] if columns.label is None else [header[columns.label]])
            n_before = 0
            for batch in file.iter_batches(columns=wanted):
                X = np.empty((batch.num_rows, len(names)), dtype=layout.dtype)
                for k, name in enumerate(names):
                    X[:, k] = _column(batch.column(name), name, n_before)
                y = None if columns.label is None else _label_column(batch.column(header[columns.label]), n_before)
                yield FileRows(X, y, names)
                n_before += batch.num_rows
    except pa.ArrowException as error:
        raise ValueError(f"it is no parquet file, or damaged ({str(error).splitlines()[0][:120]}).") from error


def _column(values: Any, name: str, n_before: int) -> np.ndarray:
    """One feature as numbers."""
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"column {name!r} holds {kind}, not numbers.")
    if values.null_count:
        row = n_before + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) + 1
        raise ValueError(f"row {row}, column {name!r}: a value is missing or not finite.")
    found: np.ndarray = values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        raise ValueError(f"row {n_before + int(bad[0]) + 1}, column {name!r}: a value is missing or not finite.")
    return found


def _label_column(values: Any, n_before: int) -> np.ndarray:
    """Labels in a type that goes by the column, so that it is the same in all blocks; texts differ in width."""
    import pyarrow as pa

    found = values.to_pylist()
    if None in found:
        raise ValueError(f"row {n_before + found.index(None) + 1} has no label.")
    if pa.types.is_integer(values.type):
        return np.array(found, dtype=np.uint64 if pa.types.is_uint64(values.type) else np.int64)
    return np.array([each.decode() if isinstance(each, bytes) else each for each in found])
