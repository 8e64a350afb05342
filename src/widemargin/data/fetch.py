"""Named public data sets of the SVM literature: found in a folder, or downloaded once and checked.

Files are ``NAME.xz`` (LIBSVM text) or ``NAME.npz`` (arrays ``X`` and ``y``); nothing is ever unpickled. The mirror
``WIDEMARGIN_DATA_URL`` holds the same files as the folder, and is used instead of the public source of a set.
"""

import bz2
import hashlib
import io
import json
import lzma
import os
import urllib.request
from functools import cache
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.data.files import write_whole
from widemargin.data.layout import Layout

_TIMEOUT = 30.0  # seconds without a byte


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
    SHA-256 than the known one is refused.

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


def _content(entry: dict[str, Any], raw: bytes) -> bytes:
    """What the SHA-256 is computed of: the text of a LIBSVM file, the bytes of an array file."""
    return lzma.decompress(raw) if entry["file"].endswith(".xz") else raw


def _is_genuine(entry: dict[str, Any], content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == str(entry["sha256"])


def _read(name: str, entry: dict[str, Any], path: Path) -> DataSet:
    try:
        content = _content(entry, path.read_bytes())
    except lzma.LZMAError as error:
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
    raw = _get(url, name)
    try:
        content = _content(entry, raw) if mirror else _as_plain_text(url, raw)
    except (OSError, ValueError, lzma.LZMAError, EOFError) as error:
        raise DataNotAvailable(f"{url} could not be unpacked: {error}") from error
    if not _is_genuine(entry, content):
        raise DataNotAvailable(f"{url} is not the data set {name!r}: its SHA-256 differs. Nothing was kept.")
    path = _cache_folder() / str(entry["file"])
    write_whole(path, lzma.compress(content) if path.suffix == ".xz" else content)
    return path


def _get(url: str, name: str) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise DataNotAvailable(f"{url!r}, the source of {name!r}, must begin with https:// or http://.")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            return bytes(response.read())
    except (OSError, HTTPException) as error:
        raise DataNotAvailable(
            f"The data set {name!r} could not be downloaded from {url}: {error}. Without a network set "
            "WIDEMARGIN_DATA to a folder that holds it."
        ) from error


def _as_plain_text(url: str, raw: bytes) -> bytes:
    """The text of a source's file, decompressed, with one kind of line ending and no trailing blanks."""
    text = bz2.decompress(raw) if url.endswith(".bz2") else raw
    return b"".join(line.rstrip() + b"\n" for line in text.splitlines())
