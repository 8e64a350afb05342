"""Rows from LIBSVM text: ``label index:value index:value ...``, read block by block into compact CSR."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import libsvm
from widemargin.cores import each, n_threads
from widemargin.data.layout import MAX_LINE_BYTES, FileRows, Layout

BLOCK_BYTES = 1 << 20
_WORK_PER_BYTE = 4.0

_WRONG = {
    libsvm.BAD_LABEL: "the label {token!r} is not a number",
    libsvm.BAD_INDEX: "{token!r} is not index:value",
    libsvm.INDEX_TOO_SMALL: "the index of {token!r} is 0, but LIBSVM text counts features from 1 (pass "
    "--zero-based if this file counts from 0)",
    libsvm.INDEX_TOO_LARGE: f"the index of {{token!r}} is larger than {libsvm.LARGEST_INDEX}",
    libsvm.NOT_ASCENDING: "the index of {token!r} is not larger than the one before it",
    libsvm.BAD_VALUE: "the value of {token!r} is not a finite number",
}


def iterate_libsvm(file: BinaryIO, layout: Layout) -> Iterator[FileRows]:
    """Rows in blocks of CSR; the width is the highest index of the block, or that of the layout.

    As many blocks are parsed side by side as there are threads. They are the same on any number of them.
    """
    texts = _texts(file)
    while batch := list(islice(texts, n_threads())):
        parsed: list[FileRows | ValueError] = [ValueError()] * len(batch)
        work = _WORK_PER_BYTE * sum(len(text) for text, _ in batch)
        each(partial(_parse_into, parsed, batch, layout), range(len(batch)), work)
        for rows in parsed:
            if isinstance(rows, ValueError):  # the first one of the file
                raise rows
            yield rows


def _parse_into(parsed: list[FileRows | ValueError], batch: list[tuple[bytes, int]], layout: Layout, k: int) -> None:
    try:
        parsed[k] = _parsed(*batch[k], layout)
    except ValueError as error:
        parsed[k] = error


def _texts(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The file in blocks of whole lines, each with the number of lines before it."""
    n_lines, rest, n_left = 0, list[bytes](), 0  # the pieces of a line whose end has not been read
    while block := file.read(BLOCK_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            text, block, n_left = b"".join([*rest, block[:end]]), block[end:], 0
            rest.clear()
            yield text, n_lines
            n_lines += text.count(b"\n")
        rest.append(block)
        n_left += len(block)
        if n_left > MAX_LINE_BYTES:
            raise ValueError(f"line {n_lines + 1} is longer than {MAX_LINE_BYTES >> 20} MiB: this is not LIBSVM text.")
    if n_left:
        yield b"".join(rest), n_lines


def _parsed(text: bytes, n_lines_before: int, layout: Layout) -> FileRows:
    n_rows, n_entries = text.count(b"\n") + 1, text.count(b":")
    labels, row_ends = np.empty(n_rows), np.empty(n_rows, dtype=np.int64)
    indices, values = np.empty(n_entries, dtype=np.int32), np.empty(n_entries, dtype=layout.dtype)
    unsure = np.empty((n_rows + n_entries, 3), dtype=np.int64)
    # For float32 a float64 of up to 19 digits is accurate enough to be rounded again.
    is_double = layout.dtype == np.float64
    mantissa = np.uint64(libsvm.EXACT_MANTISSA if is_double else np.iinfo(np.uint64).max)
    largest = float(np.finfo(layout.dtype).max)
    rows, entries, n_unsure, wrong, at = libsvm.parse_libsvm(
        np.frombuffer(text, dtype=np.uint8), 0 if layout.zero_based else 1, mantissa, largest,
        labels, row_ends, indices, values, unsure,
    )  # fmt: skip
    if wrong != libsvm.GOOD:
        raise _error(text, n_lines_before, wrong, at)
    for begin, end, entry in unsure[:n_unsure].tolist():
        number = float(text[begin:end])
        if not abs(number) <= largest:
            at = max(text.rfind(blank, 0, begin) for blank in (b" ", b"\t", b"\n")) + 1
            raise _error(text, n_lines_before, libsvm.BAD_VALUE if entry >= 0 else libsvm.BAD_LABEL, at)
        if entry >= 0:
            values[entry] = number
        else:
            labels[-1 - entry] = number
    width = int(indices[:entries].max()) + 1 if entries else 0
    if layout.n_features is not None:
        if width > layout.n_features:
            raise ValueError(f"it has at least {width} features, but {layout.n_features} are expected.")
        width = layout.n_features
    return FileRows(csr_of(values[:entries], indices[:entries], row_ends[:rows], width), labels[:rows], None)


def csr_of(values: np.ndarray, indices: np.ndarray, row_ends: np.ndarray, width: int) -> Any:
    """The CSR matrix of these entries; row starts have 32 bits if they fit."""
    kind = np.int32 if len(values) <= np.iinfo(np.int32).max else np.int64
    starts = np.zeros(len(row_ends) + 1, dtype=kind)
    starts[1:] = row_ends
    return sp.csr_matrix((values, indices, starts), shape=(len(row_ends), width))


def _error(text: bytes, n_lines_before: int, wrong: int, at: int) -> ValueError:
    token = re.split(rb"[ \t\r\n#]", text[at : at + 40], maxsplit=1)[0].decode("utf8", "replace")
    line = n_lines_before + text.count(b"\n", 0, at) + 1
    hint = "; if this is CSV, rename it to .csv" if wrong == libsvm.BAD_LABEL and "," in token else ""
    return ValueError(f"line {line}: {_WRONG[wrong].format(token=token)}{hint}.")
