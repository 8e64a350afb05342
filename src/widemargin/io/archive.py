"""Keep a fitted model in one file, and trust no file: ``save`` and ``load``, without pickle.

A file is::

    15 bytes   the mark of a model file
     4 bytes   version of the format, little endian
     8 bytes   length of the header, little endian
               the header, JSON: the version of widemargin, type, shape and order of each array, the model
               the arrays, raw and one after the other, each from a multiple of 64 bytes on; zeros between
    32 bytes   SHA-256 of all before

Arrays have no addresses in the file: each lies where the one before ends, and the last ends where the checksum begins.
So none can overlap or lie elsewhere, and what is allocated to read them is never more than the file is long; with
copies of those in several places of the model, never more than a few times that (:mod:`widemargin.io.codec`).

The rule of versions: a version of widemargin reads its own format and all before; a file of a later one is refused by
name. Within a format, parameters and fields of records may be added if they have a default, which a file without
them then means; names that are not known are refused. Anything else is a new version of the format.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin import __version__
from widemargin.data.files import write_whole
from widemargin.exceptions import ModelFileError
from widemargin.io.codec import Decoder, Encoder, check_bytes, place_in_file
from widemargin.io.models import check_single, check_steps, joined, output_of, set_output, split, steps_of

FORMAT = 1
_MARK = b"\x89WIDEMARGIN\r\n\x1a\n"  # as of PNG: broken by whatever takes the file for text
_PRELUDE = struct.Struct("<15sIQ")
_ALIGNED = 64
_CHECKSUM = hashlib.sha256().digest_size
_LARGEST_HEADER = 64 << 20
_MOST_ARRAYS = 1 << 20
_BLOCK = 1 << 20


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Keep a fitted model in a file, whole or not at all.

    Parameters
    ----------
    model : estimator or Pipeline
        Any estimator of widemargin, or a pipeline of StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler or
        Normalizer in front of one. Everything that was fitted is kept, with certificates, history and cost; what
        belongs to the place of training is not: a cluster other than a number of ranks, callbacks, metadata requests,
        the folder of a checkpoint, and the peers of :class:`GossipSVC` with their rows.
    path : str or path
        The file; an existing one is replaced when the new one is complete.

    Raises
    ------
    ModelFileError
        If something of the model is neither number, text nor array, such as a kernel that is a function.

    See Also
    --------
    load : The way back.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from widemargin import HardMarginSVC, load, save
    >>> model = HardMarginSVC().fit([[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, Path(folder) / "model.wm")
    ...     again = load(Path(folder) / "model.wm")
    >>> again.predict([[0.4], [2.6]]).tolist(), again.certificate_ == model.certificate_
    (['low', 'high'], True)
    """
    try:
        content = to_bytes(model)
    except ModelFileError as error:
        raise ModelFileError(f"{path} is not written: {error}.") from None
    write_whole(Path(path), content)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote. Nothing in the file is run, whoever wrote it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    model : estimator or Pipeline
        As it was saved: predictions are equal to the last bit.

    Raises
    ------
    ModelFileError
        If the file is damaged, cut off, of another kind, of a newer version, or in any way not what ``save`` writes.

    See Also
    --------
    save : The way there.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from widemargin import HardMarginSVC, load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(HardMarginSVC().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]), Path(folder) / "model.wm")
    ...     load(Path(folder) / "model.wm").predict([[0.4], [2.6]]).tolist()
    [0, 1]
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ModelFileError(f"{path} is not a file.")
    with path.open("rb") as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size)
        except (OSError, MemoryError):
            raise
        except ModelFileError as error:
            raise ModelFileError(f"{path} cannot be loaded: {error}.") from None
        except Exception as error:
            # Whatever a hostile file runs into on its way is the fault of the file.
            raise ModelFileError(f"{path} cannot be loaded: its contents are not those of a model.") from error


# -- writing -----------------------------------------------------------------------------------------------------------


def to_bytes(model: Any) -> bytes:
    """The file of a model; equal models make equal files."""
    encoder = Encoder()
    if type(model) is Pipeline:
        tree = _pipeline_tree(encoder, model)
    else:
        check_single(type(model).__name__)
        tree = _tree(encoder, model)
    arrays = [[stored.dtype, list(stored.shape), stored.order] for stored in encoder.stored]
    header = json.dumps(
        {"widemargin": __version__, "arrays": arrays, "model": tree}, allow_nan=False, separators=(",", ":")
    ).encode("ascii")
    if len(header) > _LARGEST_HEADER or len(arrays) > _MOST_ARRAYS:
        raise ModelFileError(
            f"the model has {len(arrays)} arrays and a header of {len(header)} bytes, and a model file holds at most "
            f"{_MOST_ARRAYS} and {_LARGEST_HEADER}"
        )
    parts = [_PRELUDE.pack(_MARK, FORMAT, len(header)), header]
    length = _PRELUDE.size + len(header)
    for stored in encoder.stored:
        parts += [bytes(-length % _ALIGNED), stored.data.tobytes()]
        length += -length % _ALIGNED + stored.data.nbytes
    content = b"".join(parts)
    return content + hashlib.sha256(content).digest()


def _tree(encoder: Encoder, model: Any) -> dict[str, Any]:
    kind, parameters, attributes = split(model)
    return {
        "kind": kind,
        "parameters": {name: encoder.encode(value, f"{kind}.{name}") for name, value in parameters.items()},
        "attributes": {
            name: {"map": _tree(encoder, value)}
            if isinstance(value, RBFSampler)
            else encoder.encode(value, f"{kind}.{name}")
            for name, value in attributes.items()
        },
    }


def _pipeline_tree(encoder: Encoder, pipeline: Pipeline) -> dict[str, Any]:
    check_is_fitted(pipeline)
    steps = [[name, output_of(step), _tree(encoder, step)] for name, step in steps_of(pipeline)]
    return {"kind": "Pipeline", "verbose": bool(pipeline.verbose), "steps": steps}


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(file: BinaryIO, size: int) -> Any:
    """The model of a file of that many bytes."""
    prelude = file.read(_PRELUDE.size)
    if not prelude.startswith(_MARK):
        raise ModelFileError("it is not a model file of widemargin")
    if size < _PRELUDE.size + _CHECKSUM or len(prelude) < _PRELUDE.size:
        raise ModelFileError("it is cut off")
    _, version, header_length = _PRELUDE.unpack(prelude)
    if version > FORMAT or version < 1:
        raise ModelFileError(
            f"its format is version {version}, and this widemargin ({__version__}) reads versions up to "
            f"{FORMAT}: use a newer one"
        )
    if header_length > min(size - _PRELUDE.size - _CHECKSUM, _LARGEST_HEADER):
        raise ModelFileError("its header is longer than the file, or than allowed; it may be cut off")
    _check_sum(file, size)
    file.seek(_PRELUDE.size)
    header = json.loads(file.read(header_length).decode("ascii"), parse_constant=_refuse_constant)
    if not isinstance(header, dict) or set(header) != {"widemargin", "arrays", "model"}:
        raise ModelFileError("its header is not that of a model")
    arrays = list(_arrays(file, header["arrays"], _PRELUDE.size + header_length, size - _CHECKSUM))
    decoder = Decoder(arrays)
    model = _model(decoder, header["model"])
    if not decoder.has_seen_all():
        raise ModelFileError("it holds arrays that belong to nothing")
    return model


def _check_sum(file: BinaryIO, size: int) -> None:
    file.seek(0)
    digest, left = hashlib.sha256(), size - _CHECKSUM
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise ModelFileError("it is cut off")
        digest.update(block)
        left -= len(block)
    if file.read() != digest.digest():
        raise ModelFileError("it is damaged, or cut off: its checksum does not match")


def _refuse_constant(name: str) -> None:
    raise ModelFileError(f"its header has {name} in the place of a number")


def _arrays(file: BinaryIO, entries: Any, begin: int, end: int) -> Iterator[np.ndarray]:
    """All arrays of a file; their lengths must add up to what is there before any is allocated."""
    if not isinstance(entries, list) or len(entries) > _MOST_ARRAYS:
        raise ModelFileError("its list of arrays is none, or too long")
    places = [place_in_file(entry) for entry in entries]
    length = begin
    for *_, n_bytes in places:
        length += -length % _ALIGNED + n_bytes
    if length != end:
        raise ModelFileError(f"its arrays take {length - begin} bytes, and {end - begin} are there")
    at = begin
    for dtype, shape, order, n_bytes in places:
        padding = file.read(-at % _ALIGNED)
        if padding.strip(b"\0"):
            raise ModelFileError("there is something between its arrays")
        array = np.empty(shape[::-1] if order == "F" else shape, dtype)
        if n_bytes and file.readinto(array.reshape(-1).view(np.uint8)) != n_bytes:  # type: ignore[attr-defined]
            raise ModelFileError("it is cut off")
        check_bytes(array)
        at += len(padding) + n_bytes
        yield array.T if order == "F" else array


def _model(decoder: Decoder, tree: Any) -> Any:
    if not isinstance(tree, dict) or tree.get("kind") != "Pipeline":
        model = _estimator(decoder, tree)
        check_single(type(model).__name__)
        return model
    if set(tree) != {"kind", "verbose", "steps"} or not isinstance(tree["verbose"], bool):
        raise ModelFileError("its pipeline is none")
    steps = []
    for name, output, inner in tree["steps"]:
        steps.append((name, _estimator(decoder, inner)))
        set_output(steps[-1][1], output)
    check_steps(steps)
    return Pipeline(steps, verbose=tree["verbose"])


def _estimator(decoder: Decoder, tree: Any, within: str = "") -> Any:
    if not isinstance(tree, dict) or set(tree) != {"kind", "parameters", "attributes"}:
        raise ModelFileError("its model is none")
    kind, parameters, attributes = tree["kind"], tree["parameters"], tree["attributes"]
    are_dicts = isinstance(kind, str) and isinstance(parameters, dict) and isinstance(attributes, dict)
    if not are_dicts or (kind == "RBFSampler") != (within == "GossipSVC"):
        raise ModelFileError("its model is none")
    values = {}
    for name, node in attributes.items():
        is_map = kind == "GossipSVC" and name == "_map" and node is not None
        values[name] = _estimator(decoder, node["map"], within=kind) if is_map else decoder.decode(node)
    return joined(kind, {name: decoder.decode(node) for name, node in parameters.items()}, values)
