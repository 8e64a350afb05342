"""Named public data sets of the SVM literature: found in a folder, or downloaded once and checked.

Files are ``NAME.xz`` (LIBSVM text) or ``NAME.npz`` (arrays ``X`` and ``y``); nothing is ever unpickled. The mirror
``WIDEMARGIN_DATA_URL`` holds the same files as the folder, and is used instead of the public source of a set. The sizes
of all sets are known: no more is downloaded, read or unpacked.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import urllib.request
import zlib
from functools import cache
from http.client import HTTPException, IncompleteRead
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.data.files import write_whole
from widemargin.data.layout import Layout

_TIMEOUT = 30.0  # seconds without a byte
_MAX_BLANKS = 16  # bytes at the end of each line that a public source may have beyond ours
_MAX_DICTIONARY = 80 << 20  # bytes that unpacking xz may take; its highest level takes 65 MiB
_DAMAGED = (OSError, ValueError, lzma.LZMAError, zlib.error, EOFError)  # what unpacking raises


class DataSet(NamedTuple):
    """Rows and labels of a data set, neither scaled nor relabelled.

    Parameters
    ----------
    X : ndarray or csr_matrix of shape (n_samples, n_features)
        The rows.
    y : ndarray of shape (n_samples,)
        The labels.
    name : str
        What :func:`fetch` was asked for.

    Examples
    --------
    >>> from widemargin.data import fetch
    >>> X, y, name = fetch("ionosphere")
    >>> X.shape, y.shape, name
    ((351, 34), (351,), 'ionosphere')
    """

    X: np.ndarray | sp.csr_matrix
    y: np.ndarray
    name: str


class DataNotAvailable(OSError):
    """A data set cannot be found or downloaded, or its content is wrong."""


@cache
def _registry() -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = json.loads(files("widemargin.data").joinpath("sets.json").read_text("utf8"))
    return known


def names() -> list[str]:
    """List the names that :func:`fetch` knows; ``NAME.t`` is the test split of ``NAME``.

    Returns
    -------
    names : list of str
        In alphabetical order.

    Examples
    --------
    >>> from widemargin.data import names
    >>> "a9a" in names(), "a9a.t" in names()
    (True, True)
    """
    return sorted(_registry())


def fetch(name: str) -> DataSet:
    """Load a public data set by name.

    Parameters
    ----------
    name : str
        One of :func:`names`, for example ``"a9a"`` or ``"a9a.t"``.

    Returns
    -------
    data : DataSet
        ``X`` is a CSR matrix or a dense array, ``y`` the labels.

    Notes
    -----
    ``fetch`` looks in the folder that the environment variable ``WIDEMARGIN_DATA`` names, then in the cache
    (``WIDEMARGIN_CACHE``, by default ``~/.cache/widemargin``), then downloads into the cache. Content with another
    SHA-256 than the known one is refused, and so is more than the known number of bytes, before it is unpacked.

    Examples
    --------
    >>> from widemargin.data import fetch
    >>> data = fetch("ionosphere")
    >>> data.X.shape, sorted(set(data.y.tolist()))
    ((351, 34), [-1.0, 1.0])
    """
    if name not in _registry():
        raise ValueError(f"There is no data set {name!r}; known names are {', '.join(names())}.")
    entry = _registry()[name]
    return _read(name, entry, _locate(entry) or _download(name, entry))


def _locate(entry: dict[str, Any]) -> Path | None:
    filled = os.environ.get("WIDEMARGIN_DATA")
    folders = [Path(filled)] if filled else []
    return next((path for folder in [*folders, _cache_folder()] if (path := folder / entry["file"]).exists()), None)


def _cache_folder() -> Path:
    chosen = os.environ.get("WIDEMARGIN_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "widemargin"


def _packed_limit(limit: int) -> int:
    """The most bytes that a packed file of ``limit`` bytes has: what does not shrink grows a little."""
    return limit + limit // 64 + (1 << 16)


def _unpacked(raw: bytes, name: str, limit: int) -> bytes:
    """The content of a file that its name says is packed or plain; no more than ``limit`` bytes, else ValueError."""
    content, suffix = raw, Path(name).suffix
    if suffix == ".xz":
        stream = lzma.LZMADecompressor(memlimit=_MAX_DICTIONARY)
        content = stream.decompress(raw, limit + 1)
        if len(content) <= limit and (not stream.eof or stream.unused_data):
            raise EOFError("it is truncated, or more than one stream")
    elif suffix in (".bz2", ".gz"):
        with (bz2.open if suffix == ".bz2" else gzip.open)(io.BytesIO(raw)) as file:
            content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it has more than the {limit} bytes of this set")
    return content


def _is_genuine(entry: dict[str, Any], content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == str(entry["sha256"])


def _read(name: str, entry: dict[str, Any], path: Path) -> DataSet:
    try:
        with path.open("rb") as file:
            content = _unpacked(file.read(_packed_limit(entry["n_bytes"]) + 1), path.name, entry["n_bytes"])
    except _DAMAGED as error:
        raise DataNotAvailable(f"{path} is damaged ({error}). Delete it to download it again.") from error
    if not _is_genuine(entry, content):
        raise DataNotAvailable(f"{path} is not the data set {name!r}: its SHA-256 differs; delete it to try again.")
    if path.suffix == ".npz":
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return DataSet(arrays["X"], arrays["y"], name)
    from widemargin.data.libsvm_text import iterate_libsvm  # brings a compiler along, and is needed only here
    from widemargin.data.rows import joined

    rows = joined(iterate_libsvm(io.BytesIO(content), Layout(n_features=entry["n_features"])))
    assert rows is not None
    return DataSet(rows.X, rows.y, name)


def _download(name: str, entry: dict[str, Any]) -> Path:
    mirror = os.environ.get("WIDEMARGIN_DATA_URL")
    url = f"{mirror.rstrip('/')}/{entry['file']}" if mirror else entry.get("url")
    if url is None:
        raise DataNotAvailable(
            f"The data set {name!r} has no public source. Set WIDEMARGIN_DATA to a folder that "
            f"holds {entry['file']}, or WIDEMARGIN_DATA_URL to a mirror of such a folder."
        )
    limit = entry["n_bytes"] + (0 if mirror else _MAX_BLANKS * entry["n_samples"])
    raw = _get(url, name, _packed_limit(limit))
    try:
        content = _unpacked(raw, url, limit)
    except _DAMAGED as error:
        raise DataNotAvailable(f"{url} could not be unpacked: {error}.") from error
    content = content if mirror else _plain_lines(content)
    if not _is_genuine(entry, content):
        raise DataNotAvailable(f"{url} is not the data set {name!r}: its SHA-256 differs. Nothing was kept.")
    path = _cache_folder() / str(entry["file"])
    write_whole(path, lzma.compress(content) if path.suffix == ".xz" else content)
    return path


def _get(url: str, name: str, limit: int) -> bytes:
    """The bytes at an address; no more than ``limit`` are kept."""
    if not url.startswith(("https://", "http://")):
        raise DataNotAvailable(f"{url!r}, the source of {name!r}, must begin with https:// or http://.")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            raw = bytes(response.read(limit + 1))
            if len(raw) <= limit and response.length:
                raise IncompleteRead(raw, response.length)
    except (OSError, HTTPException) as error:
        raise DataNotAvailable(
            f"The data set {name!r} could not be downloaded from {url}: {error}. Without a network set "
            "WIDEMARGIN_DATA to a folder that holds it."
        ) from error
    if len(raw) > limit:
        raise DataNotAvailable(f"{url} is not the data set {name!r}: it has more than {limit} bytes. Nothing was kept.")
    return raw


def _plain_lines(text: bytes) -> bytes:
    """Text with one kind of line ending and no trailing blanks."""
    return b"".join(line.rstrip() + b"\n" for line in text.splitlines())
