"""Values of a fitted model as JSON and raw arrays, and back: plain data only, so that nothing is ever run.

Numbers, text, None, True and False are themselves, lists are lists. Everything else is a JSON object with one key that
says what it is:

=============  ====================================================================================================
tuple, set     their elements; sets are frozen
dict           pairs of key and value, in order
float          "inf", "-inf" or "nan"
scalar         the type of a NumPy number, and the number
array          the place of an array among those of the file
csr            "matrix" or "array", shape, and the arrays data, indices, indptr
objects        the elements of a vector of objects, such as labels that are text
rows           a table: names, and an array of int64 or float64 for each; it stands for a list of dicts
RandomState    the state of a Mersenne twister
a record       the fields of one of :data:`widemargin.io.records.RECORDS`
=============  ====================================================================================================

Equal arrays are stored once, for up to :data:`MOST_USES` places, and apart again when they are read. The arrays of a
table are its own. So a small file cannot make a large model: its arrays take at most that many times the file's bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.exceptions import ModelFileError
from widemargin.io.records import RECORDS, check, parts_of, rebuilt

NUMBERS = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
MOST_LETTERS = 10_000  # of text in an array of fixed width
MOST_DIMENSIONS = 3
LARGEST_SIZE = 1 << 40  # of one dimension
MOST_USES = 16  # of one array of a file
_DEEPEST = 40
_LEAST_WHOLE, _END_OF_WHOLE = -(1 << 63), 1 << 64  # signed or unsigned, of 64 bits
_MERSENNE_WORDS = 624


class Stored(NamedTuple):
    """An array as it lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    order: str  # "C" or "F"
    data: np.ndarray  # contiguous in that order


class Encoder:
    """Turns values into JSON; the arrays among them are collected in ``stored``."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self._places: dict[Any, tuple[int, int]] = {}  # of an array: its number, and how often it is used

    def encode(self, value: Any, name: str) -> Any:
        """The JSON of a value; an error says which ``name`` cannot be kept."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, np.generic) and not isinstance(value, float):
            return {"scalar": [self._dtype(value.dtype, name), value.item()]}
        if isinstance(value, int):
            if not _LEAST_WHOLE <= value < _END_OF_WHOLE:
                raise ModelFileError(f"{name} is a whole number of more than 64 bits, which a model file cannot hold")
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
            return self._array(value, name)
        if sp.issparse(value) and value.format == "csr":
            kind = "matrix" if isinstance(value, sp.spmatrix) else "array"
            arrays = [self._place(each, name) for each in (value.data, value.indices, value.indptr)]
            return {"csr": [kind, list(value.shape), *arrays]}
        if RECORDS.get(type(value).__name__) is type(value):
            check(value)
            parts = parts_of(value)
            return {type(value).__name__: {each: self.encode(parts[each], f"{name}.{each}") for each in parts}}
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
        raise ModelFileError(
            f"{name} is {_shortened(value)}, and a model file holds numbers, text and arrays, not functions or objects"
        )

    def _array(self, value: np.ndarray, name: str) -> Any:
        if value.dtype == object and value.ndim == 1:
            return {"objects": [self.encode(each, name) for each in value.tolist()]}
        return {"array": self._place(value, name)}

    def _place(self, value: np.ndarray, name: str) -> int:
        """The number of an array in the file, the same for equal ones as long as a reader allows it."""
        stored = self._in_file(np.asarray(value), name)
        key = (stored[:3], hashlib.sha256(stored.data.tobytes()).digest())
        place, n_uses = self._places.get(key, (-1, MOST_USES))
        if n_uses == MOST_USES:
            place, n_uses = self._add(stored), 0
        self._places[key] = place, n_uses + 1
        return place

    def _add(self, stored: Stored) -> int:
        self.stored.append(stored)
        return len(self.stored) - 1

    def _in_file(self, value: np.ndarray, name: str) -> Stored:
        dtype = self._dtype(value.dtype, name)
        if value.ndim > MOST_DIMENSIONS:
            raise ModelFileError(f"{name} has {value.ndim} dimensions, and a model file holds {MOST_DIMENSIONS}")
        # Products are summed in another order where the storage is another: it is kept, and so are the last bits.
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        return Stored(dtype, value.shape, order, np.asarray(value.T if order == "F" else value, dtype, order="C"))

    @staticmethod
    def _dtype(dtype: np.dtype, name: str) -> str:
        little = dtype.newbyteorder("<").str
        is_text = dtype.kind == "U" and dtype.itemsize <= 4 * MOST_LETTERS
        if little not in NUMBERS and not is_text:
            raise ModelFileError(f"{name} is of the type {dtype}, which a model file cannot hold")
        return little

    def _table(self, rows: list[Any]) -> Any:
        """Rows of a history as columns; None for other lists."""
        if len(rows) < 2 or not all(type(row) is dict and row.keys() == rows[0].keys() for row in rows):
            return None
        names = list(rows[0])
        columns = [[row[name] for row in rows] for name in names]
        kinds = [_kind(column) for column in columns]
        if not names or not all(isinstance(name, str) for name in names) or None in kinds:
            return None
        if any(list(row) != names for row in rows):
            return None
        arrays = [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return {"rows": [names, [self._add(self._in_file(each, "history_")) for each in arrays]]}

    def _generator(self, value: np.random.RandomState, name: str) -> Any:
        state = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise ModelFileError(f"{name} is a random generator of the kind {state['bit_generator']}, not MT19937")
        inner = state["state"]
        rest = [int(inner["pos"]), int(state["has_gauss"]), self.encode(float(state["gauss"]), name)]
        return [self._place(np.asarray(inner["key"]), name), *rest]


def _kind(column: list[Any]) -> type | None:
    """The type of a column that has one kind of number."""
    kinds = {type(each) for each in column}
    if kinds == {int} and all(_LEAST_WHOLE <= each < -_LEAST_WHOLE for each in column):
        return np.int64
    return np.float64 if kinds <= {float, np.float64} else None


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Decoder:
    """Turns JSON back into values, and refuses whatever an encoder would not have written."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays = arrays
        self._seen: set[int] = set()
        self._own: set[int] = set()
        # Of all together, since memory is what is bounded: an encoder stays within it with each array.
        self._bytes_left = MOST_USES * sum(each.nbytes for each in arrays)
        self._tags: dict[str, Callable[[Any, int], Any]] = {
            "tuple": lambda node, depth: tuple(self._list(node, depth)),
            "set": lambda node, depth: frozenset(self._list(node, depth)),
            "dict": self._dict,
            "float": self._float,
            "scalar": self._scalar,
            "array": lambda node, depth: self._array(node),
            "csr": self._csr,
            "objects": self._objects,
            "rows": self._rows,
            "RandomState": self._generator,
        }

    def has_seen_all(self) -> bool:
        """Whether every array of the file belongs to something."""
        return len(self._seen) == len(self._arrays)

    def decode(self, node: Any, depth: int = 0) -> Any:
        """The value of some JSON."""
        if depth > _DEEPEST:
            raise ModelFileError(f"it is nested deeper than {_DEEPEST}")
        if node is None or isinstance(node, bool | str):
            return node
        if isinstance(node, int):
            if not _LEAST_WHOLE <= node < _END_OF_WHOLE:
                raise ModelFileError("a whole number has more than 64 bits")
            return node
        if isinstance(node, float):
            if not math.isfinite(node):
                raise ModelFileError("a number is too large")
            return node
        if isinstance(node, list):
            return self._list(node, depth)
        if not isinstance(node, dict) or len(node) != 1:
            raise ModelFileError("an object has not exactly one kind")
        ((tag, inner),) = node.items()
        if tag in self._tags:
            return self._tags[tag](inner, depth + 1)
        if tag in RECORDS and isinstance(inner, dict):
            parts = {name: self.decode(each, depth + 1) for name, each in inner.items()}
            return rebuilt(RECORDS[tag], parts)
        raise ModelFileError(f"it holds something of the unknown kind {tag[:40]!r}")

    def _list(self, node: Any, depth: int) -> list[Any]:
        if not isinstance(node, list):
            raise ModelFileError("a list was expected")
        return [self.decode(each, depth + 1) for each in node]

    def _dict(self, node: Any, depth: int) -> dict[Any, Any]:
        pairs = self._list(node, depth)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ModelFileError("a dict is not made of pairs")
        out = {
            key: each for key, each in pairs if key is None or isinstance(key, bool | int | float | str | np.generic)
        }
        if len(out) != len(pairs):
            raise ModelFileError("keys of a dict are not plain, or not different")
        return out

    def _float(self, node: Any, depth: int) -> float:
        if node not in ("inf", "-inf", "nan"):
            raise ModelFileError("a number is unknown")
        return float(node)

    def _scalar(self, node: Any, depth: int) -> Any:
        dtype, number = self._list(node, depth)
        if dtype not in NUMBERS or not isinstance(number, bool | int | float):
            raise ModelFileError("a number is of an unknown type")
        kind = np.dtype(dtype)
        allowed = {"b": bool, "i": int, "u": int, "f": float}[kind.kind]
        if type(number) is not allowed:
            raise ModelFileError("a number is not of its type")
        return kind.type(number)

    def _array(self, node: Any) -> np.ndarray:
        if type(node) is not int or not 0 <= node < len(self._arrays) or node in self._own:
            raise ModelFileError("an array is not there")
        array = self._arrays[node]
        self._bytes_left -= array.nbytes
        if self._bytes_left < 0:
            raise ModelFileError(f"its arrays would take over {MOST_USES} times their place in the file")
        if node in self._seen:
            return array.copy(order="K")  # or a change to one attribute would change another
        self._seen.add(node)
        return array

    def _csr(self, node: Any, depth: int) -> Any:
        kind, shape, *places = node
        data, indices, indptr = (self._array(place) for place in places)
        if kind not in ("matrix", "array") or not _is_shape(shape, 2):
            raise ModelFileError("a sparse matrix has no proper shape")
        check_csr(data, indices, indptr, shape)
        out = (sp.csr_matrix if kind == "matrix" else sp.csr_array)((data, indices, indptr), shape=tuple(shape))
        # Set afterwards: the constructor narrows indices whenever they fit.
        out.indices, out.indptr = indices, indptr
        return out

    def _objects(self, node: Any, depth: int) -> np.ndarray:
        items = self._list(node, depth)
        if not all(item is None or isinstance(item, bool | int | float | str) for item in items):
            raise ModelFileError("a vector of objects holds something else than text and numbers")
        out = np.empty(len(items), dtype=object)
        out[:] = items
        return out

    def _rows(self, node: Any, depth: int) -> list[dict[str, Any]]:
        names, places = node
        if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
            raise ModelFileError("a table has no names")
        if len(set(names)) != len(names) or len(names) != len(places) or len(set(places)) != len(places):
            raise ModelFileError("a table has not one array for each name")
        if self._seen & set(places):
            raise ModelFileError("an array of a table belongs to something else too")
        columns = [self._array(place) for place in places]
        self._own |= set(places)
        if not all(each.dtype.str in ("<i8", "<f8") and each.shape == (len(columns[0]),) for each in columns):
            raise ModelFileError("columns of a table differ")
        return [dict(zip(names, row, strict=True)) for row in zip(*(each.tolist() for each in columns), strict=True)]

    def _generator(self, node: Any, depth: int) -> np.random.RandomState:
        place, pos, has_gauss, gauss = node
        key = self._array(place)
        gauss = self.decode(gauss, depth)
        is_right = key.dtype == np.uint32 and key.shape == (_MERSENNE_WORDS,) and has_gauss in (0, 1)
        if not is_right or type(pos) is not int or not 0 <= pos <= _MERSENNE_WORDS or type(gauss) is not float:
            raise ModelFileError("the state of a random generator is none")
        out = np.random.RandomState()
        inner = {"key": key, "pos": pos}
        out.set_state({"bit_generator": "MT19937", "state": inner, "has_gauss": has_gauss, "gauss": gauss})
        return out


def check_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: list[int]) -> None:
    """Raise an error unless every entry lies within the matrix: neither SciPy nor compiled loops look again."""
    n_rows, n_columns = shape
    are_indices = indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64)
    are_vectors = data.ndim == indices.ndim == 1 and len(data) == len(indices) and indptr.shape == (n_rows + 1,)
    if not (are_indices and are_vectors):
        raise ModelFileError("the arrays of a sparse matrix do not belong together")
    # Compared, not subtracted: a difference may run over and look right.
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise ModelFileError("the rows of a sparse matrix overlap, or end beyond its entries")
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_columns:
        raise ModelFileError("a sparse matrix has entries beyond its columns")


def _is_shape(shape: Any, n_dimensions: int) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) == n_dimensions
        and all(type(size) is int and 0 <= size <= LARGEST_SIZE for size in shape)
    )


def place_in_file(entry: Any) -> tuple[np.dtype, tuple[int, ...], str, int]:
    """Type, shape, order and bytes of an array, from its line in the header; nothing is allocated for it here."""
    dtype, shape, order = entry
    if not isinstance(dtype, str) or not (dtype in NUMBERS or _is_text(dtype)):
        raise ModelFileError(f"an array is of the unknown type {_shortened(dtype)}")
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS or not _is_shape(shape, len(shape)):
        raise ModelFileError("an array has no proper shape")
    if order not in ("C", "F"):
        raise ModelFileError("an array has no order")
    kind = np.dtype(dtype)
    return kind, tuple(shape), order, math.prod(shape) * kind.itemsize


def _is_text(dtype: str) -> bool:
    letters = dtype.removeprefix("<U")
    is_number = dtype.startswith("<U") and letters.isascii() and letters.isdigit() and len(letters) <= 5
    return is_number and letters == str(int(letters)) and 1 <= int(letters) <= MOST_LETTERS


def check_bytes(array: np.ndarray) -> None:
    """Raise an error for bytes that are no truth value or no letter, with which NumPy would go astray later."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelFileError("a truth value is neither true nor false")
    if array.dtype.kind == "U" and array.size and array.reshape(-1).view(np.uint32).max() > 0x10FFFF:
        raise ModelFileError("text holds letters that do not exist")
