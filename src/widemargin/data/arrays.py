"""Checks of archives of arrays (.npz) from untrusted sources.

NumPy allocates what an array's header claims before it reads any data, and a short header can claim terabytes.
"""

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

_MAX_INFLATION = 1032  # bytes that one byte of deflate can stand for
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What zipfile and NumPy raise on damaged content, beside ValueError. MemoryError comes from Python's parser, on a
# header with many signs.
BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OverflowError, RuntimeError, SyntaxError,
    tokenize.TokenError, TypeError, MemoryError,
)  # fmt: skip


def refuse_false_sizes(file: Path | BinaryIO, n_bytes: int) -> None:
    """Raise ValueError if an array of the archive, which has ``n_bytes``, claims to be larger than it is."""
    try:
        with zipfile.ZipFile(file) as archive:
            assert archive.fp is not None
            archive.fp.seek(0)
            # NumPy decides by the first bytes, and would read a plain array that precedes an archive.
            if archive.fp.read(2) != b"PK":
                raise ValueError("it is not an archive of arrays: other bytes precede it.")
            for member in archive.infolist():
                _check(archive, member, n_bytes)
    except BROKEN as error:
        raise ValueError(f"it is not an archive of arrays: {error}.") from error


def _check(archive: zipfile.ZipFile, member: zipfile.ZipInfo, n_bytes: int) -> None:
    with archive.open(member) as content:
        version = np.lib.format.read_magic(content)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename!r} is an array of the unknown version {version}.")
        shape, _, dtype = _HEADERS[version](content)
    if dtype.hasobject:
        raise ValueError(f"{member.filename!r} holds objects, not numbers or text.")
    there = min(member.compress_size, n_bytes) * (1 if member.compress_type == zipfile.ZIP_STORED else _MAX_INFLATION)
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed > min(there, member.file_size):
        raise ValueError(f"{member.filename!r} claims {claimed} bytes, more than the file holds.")
