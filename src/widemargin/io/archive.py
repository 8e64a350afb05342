"""Fitted models in one file each, from sources that need not be trusted: ``save`` and ``load``, without pickle.

A file is::

    15 bytes   the signature of a model file
     4 bytes   version of the format, little endian
     8 bytes   length of the header, little endian
               the header, JSON: the version of widemargin; type, shape and order of each array; the model
               the arrays, raw, each on a multiple of 64 bytes; zeros between them
    32 bytes   SHA-256 of everything before

Arrays have no addresses: each begins where the one before ends, and the last ends where the checksum begins. So none
can overlap or lie elsewhere, and reading them allocates no more than the file is long. A whole model takes at most 16
times that, and 1 MiB: this is checked before the header is parsed and before anything else is allocated
(:mod:`widemargin.codec`).

Versions: widemargin reads its own format and all earlier ones, and refuses a later one. Within a format, parameters and
fields of records may be added if they have a default, which then holds for files without them, or another value if the
descriptor of an estimator says so (``earlier``), and so may estimators, with kinds of values that only they have;
unknown names are refused. Anything else is a new format.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin import __version__
from widemargin.codec import (
    ARRAY_BYTES,
    MAX_GROWTH,
    Decoder,
    Encoder,
    array_bytes,
    array_entries,
    json_bytes,
    parse_json,
    read_arrays,
)
from widemargin.data.files import write_whole
from widemargin.estimators.registry import FeatureMap
from widemargin.exceptions import ModelFileError
from widemargin.io.models import check_single, check_steps, joined, schema_of, set_output, split
from widemargin.sklearn_private import output_of

FORMAT = 1
_SIGNATURE = b"\x89WIDEMARGIN\r\n\x1a\n"  # like PNG's: damaged by whatever treats the file as text
_PRELUDE = struct.Struct("<15sIQ")
_CHECKSUM = hashlib.sha256().digest_size
_MAX_HEADER = 64 << 20
_BLOCK = 1 << 20
_ANY_SIZE = 1 << 20  # bytes that a model of any size may take


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted model to a file, whole or not at all.

    Parameters
    ----------
    model : estimator or Pipeline
        Any estimator of widemargin, or a pipeline of StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler or
        Normalizer in front of one. Everything that was fitted is saved, with certificates, history and cost; what
        belongs to the place of training is not: a cluster other than a number of ranks, callbacks, metadata requests,
        the folder of a checkpoint, and the peers of :class:`GossipSVC` with their rows.
    path : str or path
        The file; an existing one is replaced once the new one is complete.

    Raises
    ------
    ModelFileError
        If a part of the model is neither number, text nor array, such as a kernel that is a function.

    See Also
    --------
    load : Read the model again.

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
        raise ModelFileError(f"{path} cannot be saved: {error}.") from None
    write_whole(Path(path), content)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote. Nothing in the file is executed, whoever wrote it.

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
        If the file is damaged, truncated, of another kind, of a newer version, or in any way not what ``save`` writes.

    See Also
    --------
    save : Write such a file.

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
            # A hostile file may run into any error.
            raise ModelFileError(f"{path} cannot be loaded: it is not a valid model file.") from error


# -- writing -----------------------------------------------------------------------------------------------------------


def to_bytes(model: Any) -> bytes:
    """The file of a model; equal models make equal files."""
    encoder = Encoder()
    if type(model) is Pipeline:
        check_is_fitted(model)
        check_steps(model.steps)
        steps = [[name, output_of(step), _tree(encoder, step)] for name, step in model.steps]
        tree = {"kind": "Pipeline", "verbose": bool(model.verbose), "steps": steps}
    else:
        check_single(model)
        tree = _tree(encoder, model)
    parts = {"widemargin": __version__, "arrays": array_entries(encoder.stored), "model": tree}
    header = json.dumps(parts, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(header) > _MAX_HEADER:
        raise ModelFileError(f"its header has {len(header)} bytes, and a model file holds at most {_MAX_HEADER}")
    begin = _PRELUDE.pack(_SIGNATURE, FORMAT, len(header)) + header
    content = b"".join([begin, *array_bytes(encoder.stored, len(begin))])
    if json_bytes(header) > _budget(len(content)):
        raise ModelFileError(f"its header would take over {MAX_GROWTH} times the size of the file to read")
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


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(file: BinaryIO, size: int) -> Any:
    prelude = file.read(_PRELUDE.size)
    if not prelude.startswith(_SIGNATURE):
        raise ModelFileError("it is not a model file of widemargin")
    if size < _PRELUDE.size + _CHECKSUM or len(prelude) < _PRELUDE.size:
        raise ModelFileError("it is truncated")
    _, version, header_length = _PRELUDE.unpack(prelude)
    if not 1 <= version <= FORMAT:
        reads = f"this widemargin ({__version__}) reads versions up to {FORMAT}"
        raise ModelFileError(f"its format is version {version}, and {reads}: use a newer one")
    if header_length > min(size - _PRELUDE.size - _CHECKSUM, _MAX_HEADER):
        raise ModelFileError("its header is longer than the file, or than allowed; it may be truncated")
    _verify_checksum(file, size)
    file.seek(_PRELUDE.size)
    header, budget = parse_json(file.read(header_length), _budget(size))
    if not isinstance(header, dict) or set(header) != {"widemargin", "arrays", "model"}:
        raise ModelFileError("its header is not that of a model")
    arrays = read_arrays(file, header.pop("arrays"), _PRELUDE.size + header_length, size - _CHECKSUM)
    decoder = Decoder(arrays, budget=budget - ARRAY_BYTES * len(arrays))
    model = _model(decoder, header.pop("model"))
    if not decoder.has_seen_all():
        raise ModelFileError("it holds arrays that nothing refers to")
    return model


def _verify_checksum(file: BinaryIO, size: int) -> None:
    file.seek(0)
    digest, left = hashlib.sha256(), size - _CHECKSUM
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise ModelFileError("it is truncated")
        digest.update(block)
        left -= len(block)
    if file.read() != digest.digest():
        raise ModelFileError("it is damaged or truncated: its checksum does not match")


def _budget(size: int) -> int:
    """The bytes that a model from a file of this size may take."""
    return MAX_GROWTH * size + _ANY_SIZE


def _model(decoder: Decoder, tree: Any) -> Any:
    if not isinstance(tree, dict) or tree.get("kind") != "Pipeline":
        model = _estimator(decoder, tree)
        check_single(model)
        return model
    if set(tree) != {"kind", "verbose", "steps"} or not isinstance(tree["verbose"], bool):
        raise ModelFileError("it has no valid pipeline record")
    steps = []
    for name, output, inner in tree["steps"]:
        steps.append((name, _estimator(decoder, inner)))
        set_output(steps[-1][1], output)
    check_steps(steps)
    return Pipeline(steps, verbose=tree["verbose"])


def _estimator(decoder: Decoder, tree: Any, *, is_map: bool = False) -> Any:
    if not isinstance(tree, dict) or set(tree) != {"kind", "parameters", "attributes"}:
        raise ModelFileError("it has no valid model record")
    kind, parameters, attributes = tree["kind"], tree["parameters"], tree["attributes"]
    are_dicts = isinstance(kind, str) and isinstance(parameters, dict) and isinstance(attributes, dict)
    if not are_dicts or (kind == "RBFSampler") != is_map:
        raise ModelFileError("it has no valid model record")
    _, schema, _ = schema_of(kind)
    values = {
        name: _estimator(decoder, node["map"], is_map=True)
        if isinstance(schema.get(name), FeatureMap) and node is not None
        else decoder.decode(node)
        for name, node in _consumed(attributes)
    }
    return joined(kind, {name: decoder.decode(node) for name, node in _consumed(parameters)}, values)


def _consumed(nodes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All items, each taken out, so that it can be freed once it is decoded."""
    for name in list(nodes):
        yield name, nodes.pop(name)
