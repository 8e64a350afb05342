"""Rows from tables, read in blocks by pyarrow: text with separators (CSV) and parquet."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from widemargin.cores import each, n_threads
from widemargin.data.layout import MAX_LINE_BYTES, Columns, FileRows, Layout, choose_columns

_SEPARATORS = ",;\t"
# What pyarrow reads as a number. float() also accepts underscores and the digits of other scripts.
_NUMBER = re.compile(r"[ \t]*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)[ \t]*", re.ASCII | re.IGNORECASE)
_PIECES, _MAX_TEXT = 16, 1 << 25  # of text that are parsed at a time, and their bytes together
_WORK_PER_BYTE = 30.0  # multiplications that take as long as parsing a byte
_MISSING = "a value is missing or not finite."
_BREAKS = str.maketrans(dict.fromkeys(f'{_SEPARATORS}\r\n"', " "))
# What a formula may begin with, also in the wide characters of East Asia, which spreadsheets convert.
_FORMULA_SIGNS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("CSV and parquet files need pyarrow: pip install 'widemargin[tables]'.") from error
    return pyarrow


# -- labels in cells ---------------------------------------------------------------------------------------------------


def as_cell(label: Any) -> Any:
    """A label for a CSV file; text that a spreadsheet would run as a formula is marked as text by a leading quote."""
    return f"'{label}" if isinstance(label, str) and _is_formula(label) else label


def as_label(cell: str) -> str:
    """The label that :func:`as_cell` made this cell of; other cells are their own labels."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell) else cell


def breaks_cells(label: Any) -> bool:
    """Whether some program would take a part of this label for another cell, unless it is in double quotes.

    A program that expects another separator understands the double quotes of the first cell of a line only.
    """
    return without_breaks(label) != str(label)


def without_breaks(label: Any) -> str:
    """A label as text, with blanks in place of all that may end a cell."""
    return str(label).translate(_BREAKS)


def _is_formula(text: str) -> bool:
    """Whether text, behind any leading quotes, would be run; a number would not."""
    bare = text.lstrip("'")
    begin = bare.lstrip("".join(map(chr, range(33))) + "\x7f\xa0\u3000\ufeff")
    return bare.startswith(("\t", "\r")) or (begin.startswith(_FORMULA_SIGNS) and not _is_number(bare))


# -- CSV ---------------------------------------------------------------------------------------------------------------


class _Csv(NamedTuple):
    open_file: Callable[[], BinaryIO]
    n_blank_lines: int  # before the first row
    separator: str
    header: list[str] | None
    columns: Columns
    width: int

    def name(self, column: int) -> str:
        return str(column + 1) if self.header is None else repr(self.header[column])


def iterate_csv(open_file: Callable[[], BinaryIO], layout: Layout) -> Iterator[FileRows]:
    """Rows of numbers; a first line of text is the header. The file is opened more than once."""
    pa = _import_pyarrow()
    table = _inspect(open_file, layout)
    if table is None:
        return
    names = None if table.header is None else [table.header[k] for k in table.columns.features]
    n_rows = 0
    try:
        for block in _blocks(table, layout):
            if isinstance(block, pa.ArrowInvalid):
                raise block
            X, y = block
            yield FileRows(X, y, names)
            n_rows += len(X)
    except pa.ArrowInvalid as error:
        raise _first_mistake(table, layout, n_rows, str(error)) from None


def _blocks(table: _Csv, layout: Layout) -> Iterator[Any]:
    """Features and labels of each block of rows, in their order, or the error of a block.

    Text without quotes is cut at line ends into pieces, which threads parse. Behind a quote, which may hold line ends,
    and where a line is longer than all pieces, pyarrow cuts the text, on one thread.
    """
    size = _block_bytes(table.width)
    n_bytes = max(1, min(_PIECES, _MAX_TEXT // size)) * size
    with table.open_file() as file:
        text = _read(file, n_bytes, size)
        begin = 0 if table.header is None else text.find(b"\n") + 1
        has_no_line = table.header is not None and begin == 0
        if table.n_blank_lines or has_no_line or text.count(b'"', 0, begin) % 2:
            yield from _serial_blocks(table, layout, _Rest(text, file), is_start=True)
            return
        while text:
            is_last = len(text) < n_bytes
            end = len(text) if is_last else text.rfind(b"\n") + 1
            if text.find(b'"', begin) >= 0 or end == 0:
                yield from _serial_blocks(table, layout, _Rest(text[begin:], file), is_start=False)
                return
            pieces = _pieces(text, begin, end, size)
            blocks: list[Any] = [None] * len(pieces)

            def do(k: int, pieces: list[bytes] = pieces, blocks: list[Any] = blocks) -> None:
                blocks[k] = _parsed(table, layout, pieces[k])

            each(do, range(len(pieces)), _WORK_PER_BYTE * len(text))
            yield from (block for block in blocks if block is not None)
            text, begin = text[end:] + (b"" if is_last else _read(file, n_bytes - len(text) + end, size)), 0


def _read(file: BinaryIO, n_bytes: int, size: int) -> bytes:
    """So many bytes, or all that are left; a little at a time, since a read takes the memory that it may need."""
    parts = []
    while n_bytes > 0 and (part := file.read(min(size, n_bytes))):
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


def _pieces(text: bytes, begin: int, end: int, size: int) -> list[bytes]:
    """Whole lines, of about so many bytes together."""
    pieces = []
    while begin < end:
        cut = text.find(b"\n", min(begin + size, end - 1), end) + 1 or end
        pieces.append(text[begin:cut])
        begin = cut
    return pieces


def _parsed(table: _Csv, layout: Layout, text: bytes) -> Any:
    """Features and labels of a piece of text; its error, or None if all lines are empty."""
    pa = _import_pyarrow()
    if not text.strip(b"\r\n"):
        return None
    try:
        options = _options(table, len(text) + 1, is_start=False)
        (block,) = pa.csv.read_csv(pa.BufferReader(text), *options).combine_chunks().to_batches()
        return _features_and_labels(table, layout, block)
    except pa.ArrowInvalid as error:
        return error


class _Rest(io.RawIOBase):
    """What was read of a file already, then the file."""

    def __init__(self, text: bytes, file: BinaryIO) -> None:
        super().__init__()
        self._text, self._file = io.BytesIO(text), file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._text.read(len(buffer)) or self._file.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def _serial_blocks(table: _Csv, layout: Layout, file: io.RawIOBase, *, is_start: bool) -> Iterator[Any]:
    pa = _import_pyarrow()
    with pa.csv.open_csv(file, *_options(table, _block_bytes(table.width), is_start=is_start)) as blocks:
        yield from (_features_and_labels(table, layout, block) for block in blocks)


def _options(table: _Csv, block_bytes: int, *, is_start: bool) -> tuple[Any, Any, Any]:
    """For text at the start of the file, or behind its header."""
    pa = _import_pyarrow()
    features, label = table.columns
    types = {str(k): pa.float64() for k in features} | ({} if label is None else {str(label): pa.string()})
    return (
        pa.csv.ReadOptions(
            use_threads=False,
            block_size=block_bytes,
            skip_rows=table.n_blank_lines if is_start else 0,
            column_names=[str(k) for k in range(table.width)],
            skip_rows_after_names=int(is_start and table.header is not None),
        ),
        pa.csv.ParseOptions(delimiter=table.separator, newlines_in_values=True),
        pa.csv.ConvertOptions(include_columns=list(types), column_types=types, null_values=[""]),
    )


def _features_and_labels(table: _Csv, layout: Layout, block: Any) -> tuple[np.ndarray, np.ndarray | None]:
    pa = _import_pyarrow()
    n_features = len(table.columns.features)
    X = np.empty((block.num_rows, n_features), dtype=layout.dtype)
    with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite, which is refused
        for k in range(n_features):
            X[:, k] = block.column(k).to_numpy(zero_copy_only=False)
    y = None if table.columns.label is None else _text_labels(block.column(n_features))
    if not np.isfinite(X).all() or (y is not None and (y == "").any()):
        raise pa.ArrowInvalid(_MISSING)
    return X, y


def _block_bytes(width: int) -> int:
    """Some 50 rows, since each column of a block has a cost of its own; at least one, or pyarrow refuses the file."""
    return max(1 << 20, min(1024 * width, 1 << 26), 64 * width)


def _text_labels(values: Any) -> np.ndarray:
    coded = values.dictionary_encode()  # few labels, many rows
    labels = np.array([as_label(label.strip()) for label in coded.dictionary.to_pylist()], dtype=str)
    return np.asarray(labels[coded.indices.to_numpy()])


def _inspect(open_file: Callable[[], BinaryIO], layout: Layout) -> _Csv | None:
    """The layout by the first two rows; None if no row holds data."""
    with _as_text(open_file) as file:
        n_blank_lines, line = next(((k, line) for k, line in enumerate(_lines(file)) if line.strip()), (0, ""))
    separator = max(_SEPARATORS, key=line.count)
    rows = [cells for _, cells in islice(_records(open_file, n_blank_lines, separator), 2)]
    if not rows:
        return None
    first = [cell.strip() for cell in rows[0]]
    header = first if _is_header(first, rows[1:], layout) else None
    columns = choose_columns(layout, header, len(first))
    if header is not None and len(rows) < 2:
        return None
    return _Csv(open_file, n_blank_lines, separator, header, columns, len(first))


def _as_text(open_file: Callable[[], BinaryIO]) -> io.TextIOWrapper:
    return io.TextIOWrapper(open_file(), encoding="utf-8-sig", newline="")


def _lines(file: io.TextIOWrapper) -> Iterator[str]:
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise ValueError(f"it has a line of over {MAX_LINE_BYTES >> 20} MiB: this is not a table.")
        yield line


def _records(open_file: Callable[[], BinaryIO], n_blank_lines: int, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row."""
    with _as_text(open_file) as file:
        reader = csv.reader(islice(_lines(file), n_blank_lines, None), delimiter=separator)
        try:
            yield from ((n_blank_lines + reader.line_num, cells) for cells in reader if cells)
        except csv.Error as error:
            raise ValueError(f"line {n_blank_lines + reader.line_num}: {error}.") from error


def _first_mistake(table: _Csv, layout: Layout, n_good_rows: int, reason: str) -> ValueError:
    """The error for the first bad row, with its line and column: pyarrow knows neither."""
    records = _records(table.open_file, table.n_blank_lines, table.separator)
    largest = float(np.finfo(layout.dtype).max)
    for line, cells in islice(records, n_good_rows + (table.header is not None), None):
        if len(cells) != table.width:
            return ValueError(f"line {line} has {len(cells)} columns, the first line has {table.width}.")
        for j in table.columns.features:
            if cells[j].strip() and not _is_number(cells[j]):
                return ValueError(f"line {line}, column {table.name(j)}: {cells[j][:40]!r} is not a number.")
            if not cells[j].strip() or not abs(float(cells[j])) <= largest:
                return ValueError(f"line {line}, column {table.name(j)}: {_MISSING}")
        if table.columns.label is not None and not cells[table.columns.label].strip():
            return ValueError(f"line {line} has no label.")
    return ValueError(reason)


def _is_header(first: list[str], below: list[list[str]], layout: Layout) -> bool:
    """Whether the first row is a header: it has the names that are asked for, text above a numeric label, or only text.

    A row of text and numbers is refused: to read it as a header could lose a row unnoticed.
    """
    if layout.label in first and not _is_integer(layout.label):
        return True
    if layout.names is not None and set(layout.names) <= set(first):
        return True
    if "?" in first:  # a common mark of missing values
        return False
    at = _label_position(len(first), layout)
    if at is not None and _is_text(first[at]) and any(_is_number(cell) for row in below for cell in row[at : at + 1]):
        return True
    text = next((cell for k, cell in enumerate(first) if k != at and _is_text(cell)), None)
    number = next(filter(_is_number, first), None)
    if text is not None and number is not None:
        raise ValueError(
            f"its first line has text, {text[:40]!r}, and numbers, {number[:40]!r}: it may be a header or a row. If it "
            "is a header, pass --label NAME; if it is a row, all its values must be numbers."
        )
    return text is not None


def _label_position(width: int, layout: Layout) -> int | None:
    """The column of the labels of a file without header; None if there is none."""
    if not layout.needs_labels and width == layout.n_features:
        return None
    label = int(layout.label) if _is_integer(layout.label) else -1
    at = label - 1 if label > 0 else width + label
    return at if 0 <= at < width else None


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None


def _is_text(cell: str) -> bool:
    return bool(cell) and not _is_number(cell)


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


# -- parquet -----------------------------------------------------------------------------------------------------------


def iterate_parquet(path: Path, layout: Layout) -> Iterator[FileRows]:
    pa = _import_pyarrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            columns = choose_columns(layout, header, len(header))
            names = [header[k] for k in columns.features]
            wanted = names + ([] if columns.label is None else [header[columns.label]])
            n_rows = 0
            for block in file.iter_batches(columns=wanted, use_threads=n_threads() > 1):
                X = np.empty((block.num_rows, len(names)), dtype=layout.dtype)
                for k, name in enumerate(names):
                    X[:, k] = _feature(block.column(name), name, n_rows)
                y = None if columns.label is None else _labels(block.column(header[columns.label]), n_rows)
                yield FileRows(X, y, names)
                n_rows += block.num_rows
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0][:120]
        raise ValueError(f"it is not a parquet file, or it is damaged ({reason}).") from error


def _feature(values: Any, name: str, n_rows_before: int) -> np.ndarray:
    pa = _import_pyarrow()
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"column {name!r} holds {kind}, not numbers.")
    found: np.ndarray = values.to_numpy(zero_copy_only=False)
    is_bad = ~np.isfinite(found.astype(np.float64)) if values.null_count == 0 else values.is_null().to_numpy(False)
    if is_bad.any():
        raise ValueError(f"row {n_rows_before + int(is_bad.argmax()) + 1}, column {name!r}: {_MISSING}")
    return found


def _labels(values: Any, n_rows_before: int) -> np.ndarray:
    """Labels; their type follows from the type of the column, so that all blocks have the same one."""
    pa = _import_pyarrow()
    found = values.to_pylist()
    if None in found:
        raise ValueError(f"row {n_rows_before + found.index(None) + 1} has no label.")
    if pa.types.is_integer(values.type):
        return np.array(found, dtype=np.uint64 if pa.types.is_uint64(values.type) else np.int64)
    return np.array([each.decode() if isinstance(each, bytes) else each for each in found])
