"""Archives of arrays (.npz) of unknown origin: what they claim is held against their bytes before NumPy believes it.

NumPy makes an array as large as a header says before it reads any of it, and a header of a hundred bytes may claim
terabytes.
"""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

_DEFLATE = 1032  # bytes at most that a compressed one stands for
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What zipfile and NumPy raise at damaged or invented content, beside ValueError. MemoryError comes from Python's
# parser, which a header of many signs overwhelms.
BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OverflowError, RuntimeError, SyntaxError,
    tokenize.TokenError, TypeError, MemoryError,
)  # fmt: skip


def refuse_false_sizes(file: Path | BinaryIO, n_bytes: int) -> None:
    """Raise ValueError unless each array of the archive, of so many bytes in all, is as large as it claims to be."""
    try:
        with zipfile.ZipFile(file) as archive:
            _check_beginning(archive)
            for member in archive.infolist():
                _check(archive, member, n_bytes)
    except BROKEN as error:
        raise ValueError(f"it is no archive of arrays: {error}.") from error


def _check_beginning(archive: zipfile.ZipFile) -> None:
    """NumPy goes by the first bytes, and would take a plain array with an archive behind it for the array."""
    assert archive.fp is not None
    archive.fp.seek(0)
    if archive.fp.read(2) != b"PK":
        raise ValueError("it is no archive of arrays: something else stands before it.")


def _check(archive: zipfile.ZipFile, member: zipfile.ZipInfo, n_bytes: int) -> None:
    with archive.open(member) as content:
        version = np.lib.format.read_magic(content)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename!r} is an array of version {version}, which is not known here.")
        shape, _, dtype = _HEADERS[version](content)
    if dtype.hasobject:
        raise ValueError(f"{member.filename!r} holds objects, not numbers or text.")
    there = min(member.compress_size, n_bytes) * (1 if member.compress_type == zipfile.ZIP_STORED else _DEFLATE)
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed > min(there, member.file_size):
        raise ValueError(f"{member.filename!r} claims {claimed} bytes, more than the file holds.")
