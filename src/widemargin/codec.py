"""Fitted models as JSON and raw arrays, on disk and between processes: plain data, so that decoding runs no code.

Numbers, text, None, True and False are themselves, lists are lists. Everything else is a JSON object with one key, its
kind:

=============  ====================================================================================================
tuple, set     their elements; sets are frozen
dict           pairs of key and value, in order
float          "inf", "-inf" or "nan"
scalar         the type of a NumPy number, and the number
array          the number of an array in the file
masked         an array, and the array that is True where it has no value
csr            "matrix" or "array", shape, and the arrays data, indices, indptr
objects        the elements of a vector of objects, such as text labels
rows           a list of dicts as a table: names, and an array of int64 or float64 for each
RandomState    the state of a Mersenne twister
a record       the fields of a dataclass or named tuple that :func:`record` has registered
=============  ====================================================================================================

Equal arrays are stored once, for up to :data:`MAX_GROWTH` uses, and become separate arrays when they are decoded. The
arrays of a table are used once. What a file takes in memory is bounded before it is allocated: the JSON by its signs
(:func:`json_bytes`), everything that decoding adds by a budget. The tree of JSON is taken apart as it is decoded.

Files come from anyone: fields of records are checked against the types that their class declares, and against each
other where a wrong number would lead a compiled loop astray. :func:`pack` and :func:`unpack` are for processes that
trust each other: they check types only, and a function becomes None.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp

from widemargin.exceptions import ModelFileError

NUMBERS = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
MAX_GROWTH = 16  # times the size of its file that a model takes in memory
MAX_DIMENSION_SIZE = 1 << 40
_MAX_ARRAYS = 1 << 20
_MAX_DIMENSIONS = 3
_MAX_TEXT_LENGTH = 10_000  # of the elements of an array
_MAX_DEPTH = 40
_MIN_INT, _END_OF_INT = -(1 << 63), 1 << 64  # signed or unsigned, of 64 bits
_MERSENNE_WORDS = 624
_ALIGNMENT = 64
_HEADER_LENGTH = struct.Struct("<Q")
# What CPython takes at most, in bytes, beside the text itself.
_DICT_BYTES, _KEY_BYTES, _LIST_BYTES, _ITEM_BYTES, _TEXT_BYTES, _NUMBER_BYTES = 200, 56, 104, 9, 64, 32
_ENTRY_BYTES = 128  # of a set or dict that decoding makes
ARRAY_BYTES = 300  # of an array beside its content, with its entry in the list of arrays
_PIECE = 1 << 16  # bytes of JSON that are looked at together
_MAX_KEYS = 4096  # different names in JSON: those of parameters, attributes, kinds and fields
_KEY = re.compile(rb'"(?:[^"\\]++|\\.)*+"(?=\s*+:)')

Class = TypeVar("Class", bound=type)

# -- records -----------------------------------------------------------------------------------------------------------


class _Record(NamedTuple):
    kind: type
    names: tuple[str, ...]
    optional: frozenset[str]  # names of fields with a default
    check: Callable[[Any], None] | None


_RECORDS: dict[str, _Record] = {}
_hints = cache(get_type_hints)


def record(
    check: Callable[[Any], None] | None = None, optional: tuple[str, ...] | None = None
) -> Callable[[Class], Class]:
    """Let models hold instances of the decorated dataclass or named tuple.

    ``check`` raises ModelFileError for values that types do not exclude. Another class needs ``optional``, the names of
    its parameters, all of which have a default.
    """

    def register(kind: Class) -> Class:
        form: Any = kind
        if optional is not None:
            names, defaults = optional, set(optional)
        elif is_dataclass(form):
            names = tuple(each.name for each in fields(form))
            defaults = {each.name for each in fields(form) if not each.default is each.default_factory is MISSING}
        else:
            names, defaults = form._fields, set(form._field_defaults)
        name = kind.__name__
        if name in _RECORDS and _RECORDS[name].kind.__module__ != kind.__module__:
            raise ValueError(f"There is a record {name} already: {_RECORDS[name].kind.__module__} defines it.")
        _RECORDS[name] = _Record(kind, names, frozenset(defaults), check)
        return kind

    return register


def _check_record(value: Any, entry: _Record, *, is_trusted: bool) -> None:
    """Raise ModelFileError unless all fields have their types, and pass the class's own check."""
    hints = _hints(entry.kind)
    for name in entry.names:
        if name in hints and not conforms(getattr(value, name), hints[name]):
            raise ModelFileError(f"{name} of a {entry.kind.__name__} is of a wrong type")
    if entry.check is not None and not is_trusted:
        entry.check(value)


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an annotation; integers are also floats, and True is neither."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(conforms(value, each) for each in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(all(map(conforms, item, arguments)) for item in value.items())
    if origin is tuple and arguments[-1] is not Ellipsis:
        is_as_long = isinstance(value, tuple) and len(value) == len(arguments)
        return is_as_long and all(map(conforms, value, arguments))
    if origin in (list, tuple, frozenset, Sequence):
        kinds: Any = (list, tuple) if origin is Sequence else origin
        return isinstance(value, kinds) and all(conforms(each, arguments[0]) for each in value)
    if hint in (int, float):
        kind = Integral if hint is int else Real
        return isinstance(value, kind) and not isinstance(value, bool | np.bool_)
    # Annotations of functions are no types: a function never comes from a file.
    return isinstance(value, hint) if isinstance(hint, type) else False


def check_rows(X: Any, n_columns: int | None = None) -> None:
    """Raise ModelFileError unless kernels can be computed with these rows."""
    if not (isinstance(X, np.ndarray) or sp.issparse(X)) or X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        raise ModelFileError("rows are not a matrix of float32 or float64")
    if not np.isfinite(X.data if sp.issparse(X) else X).all():
        raise ModelFileError("rows are not finite")
    if n_columns is not None and X.shape[1] != n_columns:
        raise ModelFileError(f"rows have {X.shape[1]} columns, and the model has {n_columns} features")


def check_row_numbers(numbers: np.ndarray, length: int) -> None:
    """Raise ModelFileError unless these are so many row numbers."""
    if numbers.dtype.kind not in "iu" or numbers.shape != (length,) or (numbers < 0).any():
        raise ModelFileError(f"row numbers are not {length} integers from 0 on")


# -- encoding ----------------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An array as a file stores it."""

    dtype: str
    shape: tuple[int, ...]
    order: str  # "C" or "F"
    data: np.ndarray  # contiguous in that order


class Encoder:
    """Turns values into JSON and collects the arrays among them in ``stored``."""

    def __init__(self, *, is_trusted: bool = False) -> None:
        self.stored: list[Stored] = []
        self._is_trusted = is_trusted
        self._places: dict[Any, tuple[int, int]] = {}  # of an array: its number, and how often it is used

    def encode(self, value: Any, name: str) -> Any:
        """The JSON of a value; errors call it ``name``."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, np.generic) and not isinstance(value, float):
            return {"scalar": [_storable(value.dtype, name), value.item()]}
        if isinstance(value, int):
            if not _MIN_INT <= value < _END_OF_INT:
                raise ModelFileError(f"{name} is an integer of more than 64 bits, which a model file cannot hold")
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, np.ma.MaskedArray):
            return {"masked": [self._place(each, name) for each in (value.data, np.ma.getmaskarray(value))]}
        if isinstance(value, np.ndarray):
            if value.dtype == object and value.ndim == 1:
                return {"objects": [self.encode(each, name) for each in value.tolist()]}
            return {"array": self._place(value, name)}
        if sp.issparse(value) and value.format == "csr":
            kind = "matrix" if isinstance(value, sp.spmatrix) else "array"
            arrays = [self._place(each, name) for each in (value.data, value.indices, value.indptr)]
            return {"csr": [kind, list(value.shape), *arrays]}
        entry = next((_RECORDS[each.__name__] for each in type(value).__mro__ if each.__name__ in _RECORDS), None)
        if entry is not None and isinstance(value, entry.kind):
            if not self._is_trusted:
                _check_record(value, entry, is_trusted=False)
            inner = {each: self.encode(getattr(value, each), f"{name}.{each}") for each in entry.names}
            return {entry.kind.__name__: inner}
        if isinstance(value, np.random.RandomState):
            return {"RandomState": self._generator(value, name)}
        if isinstance(value, list):
            return self._table(value) or [self.encode(each, name) for each in value]
        if type(value) is tuple:
            return {"tuple": [self.encode(each, name) for each in value]}
        if isinstance(value, frozenset):
            return {"set": [self.encode(each, name) for each in sorted(value)]}
        if isinstance(value, dict):
            return {"dict": [[self.encode(key, name), self.encode(each, name)] for key, each in value.items()]}
        if callable(value) and self._is_trusted:
            return None
        raise ModelFileError(
            f"{name} is {_shortened(value)}, and a model file holds numbers, text and arrays, not functions or objects"
        )

    def _place(self, value: np.ndarray, name: str) -> int:
        """The number of an array in the file, the same for equal arrays as long as a reader allows it."""
        stored = _as_stored(np.asarray(value), name)
        key = (stored[:3], hashlib.sha256(stored.data.tobytes()).digest())
        place, n_uses = self._places.get(key, (-1, MAX_GROWTH))
        if n_uses == MAX_GROWTH:
            place, n_uses = self._add(stored), 0
        self._places[key] = place, n_uses + 1
        return place

    def _add(self, stored: Stored) -> int:
        self.stored.append(stored)
        return len(self.stored) - 1

    def _table(self, rows: list[Any]) -> Any:
        """Rows of a history as columns; None for other lists."""
        if len(rows) < 2 or not all(type(row) is dict and list(row) == list(rows[0]) for row in rows):
            return None
        names = list(rows[0])
        columns = [[row[name] for row in rows] for name in names]
        kinds = [_column_type(column) for column in columns]
        if not names or not all(isinstance(name, str) for name in names) or None in kinds:
            return None
        arrays = [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return {"rows": [names, [self._add(_as_stored(each, "history_")) for each in arrays]]}

    def _generator(self, value: np.random.RandomState, name: str) -> Any:
        state = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise ModelFileError(f"{name} is a random generator of the kind {state['bit_generator']}, not MT19937")
        inner = state["state"]
        rest = [int(inner["pos"]), int(state["has_gauss"]), self.encode(float(state["gauss"]), name)]
        return [self._place(np.asarray(inner["key"]), name), *rest]


def _storable(dtype: np.dtype, name: str) -> str:
    little = dtype.newbyteorder("<").str
    is_text = dtype.kind == "U" and dtype.itemsize <= 4 * _MAX_TEXT_LENGTH
    if little not in NUMBERS and not is_text:
        raise ModelFileError(f"{name} is of the type {dtype}, which a model file cannot hold")
    return little


def _as_stored(value: np.ndarray, name: str) -> Stored:
    dtype = _storable(value.dtype, name)
    if value.ndim > _MAX_DIMENSIONS:
        raise ModelFileError(f"{name} has {value.ndim} dimensions, and a model file holds at most {_MAX_DIMENSIONS}")
    # The order decides in which order products are summed, and so the last bits of predictions.
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    return Stored(dtype, value.shape, order, np.asarray(value.T if order == "F" else value, dtype, order="C"))


def _column_type(column: list[Any]) -> type | None:
    kinds = {type(each) for each in column}
    if kinds == {int} and all(_MIN_INT <= each < -_MIN_INT for each in column):
        return np.int64
    return np.float64 if kinds <= {float, np.float64} else None


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# -- decoding ----------------------------------------------------------------------------------------------------------


def json_bytes(text: bytes) -> int:
    """A bound of the bytes that this JSON takes when it is parsed, from the number of its signs; text counts twice."""
    n_dicts = n_lists = n_commas = n_keys = n_quotes = 0
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # all quotation marks that are left begin or end a string
    for begin in range(0, len(plain), _PIECE):
        pieces = plain[begin : begin + _PIECE].split(b'"')
        signs = b"".join(pieces[n_quotes % 2 :: 2])  # what stands outside strings
        n_quotes += len(pieces) - 1
        n_dicts, n_lists = n_dicts + signs.count(b"{"), n_lists + signs.count(b"[")
        n_commas, n_keys = n_commas + signs.count(b","), n_keys + signs.count(b":")
    n_texts = n_quotes // 2 - n_keys
    n_numbers = max(0, n_commas + 1 - n_texts)  # containers hold one value more than commas
    containers = _DICT_BYTES * n_dicts + _KEY_BYTES * n_keys + _LIST_BYTES * n_lists + _ITEM_BYTES * n_commas
    return 2 * len(text) + containers + _TEXT_BYTES * n_texts + _NUMBER_BYTES * n_numbers


def parse_json(text: bytes, budget: int) -> tuple[Any, int]:
    """JSON from anyone, and what is left of a budget of bytes; raises ModelFileError before it is exceeded."""
    left = budget - json_bytes(text)
    if left < 0:
        raise ModelFileError(f"its header would take over {MAX_GROWTH} times the size of the file")
    keys: set[bytes] = set()
    for found in _KEY.finditer(text):
        keys.add(found[0])
        if len(keys) > _MAX_KEYS:
            raise ModelFileError(f"its header has more than {_MAX_KEYS} names")
    content = text.decode("ascii")
    del text
    return json.loads(content, parse_constant=_refuse_constant), left


def _refuse_constant(name: str) -> None:
    raise ModelFileError(f"its header has {name} in place of a number")


class Decoder:
    """Turns JSON back into values, and refuses whatever an encoder would not have written.

    The JSON is consumed: lists are decoded in place, so that a model and its JSON are never in memory together.
    ``budget`` bounds the bytes of arrays, tables, sets and dicts.
    """

    def __init__(self, arrays: list[np.ndarray], *, budget: float = math.inf, is_trusted: bool = False) -> None:
        self._arrays = arrays
        self._is_trusted = is_trusted
        self._seen: set[int] = set()
        self._of_tables: set[int] = set()
        self._bytes_left = budget
        # Counted over all arrays, since memory is what is bounded; an encoder keeps to it with each.
        self._array_bytes_left = MAX_GROWTH * sum(each.nbytes for each in arrays)
        self._kinds: dict[str, Callable[[Any, int], Any]] = {
            "tuple": lambda node, depth: tuple(self._list(node, depth)),
            "set": self._set,
            "dict": self._dict,
            "float": self._float,
            "scalar": self._scalar,
            "array": lambda node, depth: self._array(node),
            "masked": self._masked,
            "csr": self._csr,
            "objects": self._objects,
            "rows": self._rows,
            "RandomState": self._generator,
        }

    def has_seen_all(self) -> bool:
        return len(self._seen) == len(self._arrays)

    def decode(self, node: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise ModelFileError(f"it is nested deeper than {_MAX_DEPTH} levels")
        if node is None or isinstance(node, bool | str):
            return node
        if isinstance(node, int | float):
            if isinstance(node, int) and not _MIN_INT <= node < _END_OF_INT:
                raise ModelFileError("an integer has more than 64 bits")
            if not math.isfinite(node):
                raise ModelFileError("a number is too large")
            return node
        if isinstance(node, list):
            return self._list(node, depth)
        if not isinstance(node, dict) or len(node) != 1:
            raise ModelFileError("an object does not have exactly one kind")
        kind, inner = node.popitem()
        if kind in self._kinds:
            return self._kinds[kind](inner, depth + 1)
        if kind in _RECORDS and isinstance(inner, dict):
            for name in inner:
                inner[name] = self.decode(inner[name], depth + 1)
            return self._record(_RECORDS[kind], inner)
        raise ModelFileError(f"it holds something of the unknown kind {kind[:40]!r}")

    def _record(self, entry: _Record, values: dict[str, Any]) -> Any:
        """The record with these fields, checked; fields with a default may be missing."""
        unknown = sorted(set(values) - set(entry.names))
        missing = [name for name in entry.names if name not in values and name not in entry.optional]
        if unknown or missing:
            raise ModelFileError(f"a {entry.kind.__name__} has unknown fields {unknown} and lacks {missing}")
        out = entry.kind(**values)
        _check_record(out, entry, is_trusted=self._is_trusted)
        return out

    def _list(self, node: Any, depth: int) -> list[Any]:
        if not isinstance(node, list):
            raise ModelFileError("a list was expected")
        for k, each in enumerate(node):
            node[k] = self.decode(each, depth + 1)
        return node

    def _spend(self, n_bytes: int) -> None:
        self._bytes_left -= n_bytes
        if self._bytes_left < 0:
            raise ModelFileError(f"it would take over {MAX_GROWTH} times the size of the file")

    def _set(self, node: Any, depth: int) -> frozenset[Any]:
        items = self._list(node, depth)
        self._spend(_ENTRY_BYTES * len(items))
        return frozenset(items)

    def _dict(self, node: Any, depth: int) -> dict[Any, Any]:
        pairs = self._list(node, depth)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ModelFileError("a dict is not made of pairs")
        self._spend(_ENTRY_BYTES * len(pairs))
        plain = type(None), bool, int, float, str, np.generic
        out = {key: each for key, each in pairs if isinstance(key, plain)}
        if len(out) != len(pairs):
            raise ModelFileError("keys of a dict are not plain, or not unique")
        return out

    def _float(self, node: Any, depth: int) -> float:
        if node not in ("inf", "-inf", "nan"):
            raise ModelFileError("a number is invalid")
        return float(node)

    def _scalar(self, node: Any, depth: int) -> Any:
        dtype, number = self._list(node, depth)
        if dtype not in NUMBERS or not isinstance(number, bool | int | float):
            raise ModelFileError("a number is of an unknown type")
        kind = np.dtype(dtype)
        if type(number) is not {"b": bool, "i": int, "u": int, "f": float}[kind.kind]:
            raise ModelFileError("a number does not have its type")
        return kind.type(number)

    def _array(self, node: Any) -> np.ndarray:
        if type(node) is not int or not 0 <= node < len(self._arrays) or node in self._of_tables:
            raise ModelFileError("it refers to an array that is not in the file")
        array = self._arrays[node]
        self._array_bytes_left -= array.nbytes
        if self._array_bytes_left < 0:
            raise ModelFileError(f"its arrays would take over {MAX_GROWTH} times their size in the file")
        self._spend(array.nbytes)
        if node in self._seen:
            return array.copy(order="K")  # or a change to one attribute would change another
        self._seen.add(node)
        return array

    def _masked(self, node: Any, depth: int) -> Any:
        data, mask = (self._array(place) for place in node)
        if mask.dtype != np.bool_ or mask.shape != data.shape:
            raise ModelFileError("a mask does not belong to its array")
        return np.ma.MaskedArray(data, mask=mask)

    def _csr(self, node: Any, depth: int) -> Any:
        kind, shape, *places = node
        data, indices, indptr = (self._array(place) for place in places)
        if kind not in ("matrix", "array") or not _is_shape(shape, 2):
            raise ModelFileError("a sparse matrix has an invalid shape")
        _check_csr(data, indices, indptr, shape)
        out = (sp.csr_matrix if kind == "matrix" else sp.csr_array)((data, indices, indptr), shape=tuple(shape))
        # Set afterwards: the constructor narrows indices whenever they fit.
        out.indices, out.indptr = indices, indptr
        return out

    def _objects(self, node: Any, depth: int) -> np.ndarray:
        items = self._list(node, depth)
        if not all(item is None or isinstance(item, bool | int | float | str) for item in items):
            raise ModelFileError("a vector of objects holds something other than text and numbers")
        out = np.empty(len(items), dtype=object)
        out[:] = items
        return out

    def _rows(self, node: Any, depth: int) -> list[dict[str, Any]]:
        names, places = node
        if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
            raise ModelFileError("a table has no names")
        if len(set(names)) != len(names) or len(names) != len(places) or len(set(places)) != len(places):
            raise ModelFileError("a table does not have one array for each name")
        if self._seen & set(places):
            raise ModelFileError("an array of a table is used elsewhere, too")
        columns = [self._array(place) for place in places]
        self._of_tables |= set(places)
        if not all(each.dtype.str in ("<i8", "<f8") and each.shape == (len(columns[0]),) for each in columns):
            raise ModelFileError("columns of a table differ in length, or are not int64 or float64")
        row_bytes = sys.getsizeof(dict.fromkeys(names)) + (_NUMBER_BYTES + 2 * _ITEM_BYTES) * len(names) + _ITEM_BYTES
        self._spend(row_bytes * len(columns[0]))
        return [dict(zip(names, row, strict=True)) for row in zip(*(each.tolist() for each in columns), strict=True)]

    def _generator(self, node: Any, depth: int) -> np.random.RandomState:
        place, pos, has_gauss, gauss = node
        key = self._array(place)
        gauss = self.decode(gauss, depth)
        is_state = key.dtype == np.uint32 and key.shape == (_MERSENNE_WORDS,) and has_gauss in (0, 1)
        if not is_state or type(pos) is not int or not 0 <= pos <= _MERSENNE_WORDS or type(gauss) is not float:
            raise ModelFileError("the state of a random generator is invalid")
        out = np.random.RandomState()
        inner = {"key": key, "pos": pos}
        out.set_state({"bit_generator": "MT19937", "state": inner, "has_gauss": has_gauss, "gauss": gauss})
        return out


def _check_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: list[int]) -> None:
    """Raise ModelFileError unless every entry lies within the matrix; neither SciPy nor compiled loops check that."""
    n_rows, n_columns = shape
    are_indices = indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64)
    are_vectors = data.ndim == indices.ndim == 1 and len(data) == len(indices) and indptr.shape == (n_rows + 1,)
    if not (are_indices and are_vectors):
        raise ModelFileError("the arrays of a sparse matrix do not belong together")
    # Compared, not subtracted: a difference may overflow and look right.
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise ModelFileError("the rows of a sparse matrix overlap, or end beyond its entries")
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_columns:
        raise ModelFileError("a sparse matrix has entries beyond its columns")


def _is_shape(shape: Any, n_dimensions: int) -> bool:
    is_long = isinstance(shape, list) and len(shape) == n_dimensions
    return is_long and all(type(size) is int and 0 <= size <= MAX_DIMENSION_SIZE for size in shape)


# -- arrays as bytes ---------------------------------------------------------------------------------------------------


def array_entries(stored: list[Stored]) -> list[Any]:
    """Type, shape and order of all arrays, for the header."""
    if len(stored) > _MAX_ARRAYS:
        raise ModelFileError(f"the model has {len(stored)} arrays, and a model file holds at most {_MAX_ARRAYS}")
    return [[each.dtype, list(each.shape), each.order] for each in stored]


def array_bytes(stored: list[Stored], begin: int) -> list[bytes]:
    """All arrays as bytes, each on a multiple of 64 bytes when the first byte stands at ``begin``; zeros between."""
    parts: list[bytes] = []
    for each in stored:
        parts += [bytes(-begin % _ALIGNMENT), each.data.tobytes()]
        begin += len(parts[-2]) + each.data.nbytes
    return parts


def read_arrays(file: BinaryIO, entries: Any, begin: int, end: int) -> list[np.ndarray]:
    """The arrays that a file has between these bytes; their sizes must add up before any is allocated."""
    if not isinstance(entries, list) or len(entries) > _MAX_ARRAYS:
        raise ModelFileError("its list of arrays is invalid or too long")
    forms = [_form(entry) for entry in entries]
    length = begin
    for *_, n_bytes in forms:
        length += -length % _ALIGNMENT + n_bytes
    if length != end:
        raise ModelFileError(f"its arrays take {length - begin} bytes, and the file has {end - begin} for them")
    arrays, at = [], begin
    for dtype, shape, order, n_bytes in forms:
        padding = file.read(-at % _ALIGNMENT)
        if padding.strip(b"\0"):
            raise ModelFileError("the padding between its arrays is not zero")
        array = np.empty(shape[::-1] if order == "F" else shape, dtype)
        if n_bytes and file.readinto(array.reshape(-1).view(np.uint8)) != n_bytes:  # type: ignore[attr-defined]
            raise ModelFileError("it is truncated")
        _check_bytes(array)
        at += len(padding) + n_bytes
        arrays.append(array.T if order == "F" else array)
    return arrays


def _form(entry: Any) -> tuple[np.dtype, tuple[int, ...], str, int]:
    """Type, shape, order and size of an array, from its entry in the header."""
    dtype, shape, order = entry
    if not isinstance(dtype, str) or not (dtype in NUMBERS or _is_text(dtype)):
        raise ModelFileError(f"an array is of the unknown type {_shortened(dtype)}")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not _is_shape(shape, len(shape)):
        raise ModelFileError("an array has an invalid shape")
    if order not in ("C", "F"):
        raise ModelFileError("an array has an invalid order")
    kind = np.dtype(dtype)
    return kind, tuple(shape), order, math.prod(shape) * kind.itemsize


def _is_text(dtype: str) -> bool:
    length = dtype.removeprefix("<U")
    is_number = dtype.startswith("<U") and length.isascii() and length.isdigit() and len(length) <= 5
    return is_number and length == str(int(length)) and 1 <= int(length) <= _MAX_TEXT_LENGTH


def _check_bytes(array: np.ndarray) -> None:
    """Raise ModelFileError for bytes that are no boolean or no character: NumPy would go astray later."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelFileError("a boolean is neither true nor false")
    if array.dtype.kind == "U" and array.size and array.reshape(-1).view(np.uint32).max() > 0x10FFFF:
        raise ModelFileError("text holds characters that do not exist")


# -- between processes -------------------------------------------------------------------------------------------------


def pack(value: Any) -> bytes:
    """A value as bytes, for a process that trusts this one; functions become None."""
    encoder = Encoder(is_trusted=True)
    tree = encoder.encode(value, type(value).__name__)
    header = json.dumps({"arrays": array_entries(encoder.stored), "value": tree}, separators=(",", ":")).encode("ascii")
    begin = _HEADER_LENGTH.pack(len(header)) + header
    return b"".join([begin, *array_bytes(encoder.stored, len(begin))])


def unpack(content: bytes, *, is_trusted: bool = True) -> Any:
    """The value that :func:`pack` made these bytes of; ModelFileError where they are not trusted, and wrong."""
    file, budget = io.BytesIO(content), MAX_GROWTH * len(content)
    (length,) = _HEADER_LENGTH.unpack(file.read(_HEADER_LENGTH.size))
    text = file.read(length)
    header, budget = (json.loads(text), budget) if is_trusted else parse_json(text, budget)
    arrays = read_arrays(file, header["arrays"], _HEADER_LENGTH.size + length, len(content))
    decoder = Decoder(arrays, is_trusted=True) if is_trusted else Decoder(arrays, budget=budget)
    return decoder.decode(header["value"])
