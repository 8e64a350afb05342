"""Model files that are damaged, or made by someone who knows the format and means harm.

Damage leaves the checksum as it was. Harm is done to the header or the arrays, and the checksum made right again, so
that only what the reader checks beyond it stands in the way.
"""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from widemargin import ModelFileError, load
from widemargin.io.archive import _PRELUDE, _SIGNATURE, to_bytes

_DEEP: Any = 1
for _ in range(200):
    _DEEP = [_DEEP]
# What stands in the place of something in a header.
STRANGERS: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**4, 2**31 - 1, 2**31, -(2**31), 2**53, 2**62, 2**63 - 1, 2**63, 2**64,
    2**70, 0.0, -0.5, 0.5, 5e-324, 1e-308, 1e308, -1e308, "", "rbf", "linear", "poly", "precomputed", "sigmoid",
    "cosine", "auto", "scale", "\ud800", "\0", "x" * 5000, "__class__", "os.system", [], [[]], {}, _DEEP, [0, 0],
    [1, 2, 3], {"float": "nan"},
    {"float": "inf"}, {"float": "-inf"}, {"float": "1"}, {"array": 0}, {"array": 1}, {"array": -1},
    {"array": 2**40}, {"array": True}, {"array": "0"}, {"tuple": []}, {"tuple": [1, 2]}, {"set": [1, 1]}, {"dict": []},
    {"dict": [[[], 1]]}, {"dict": [["a", 1], ["a", 2]]}, {"scalar": ["<i8", 5]}, {"scalar": ["|O", 5]},
    {"scalar": ["<f8", 0.5]}, {"scalar": ["|u1", 300]}, {"objects": ["a", "b"]}, {"objects": [{"dict": []}]},
    {"rows": [["a"], [0]]}, {"rows": [["a", "b"], [0, 0]]}, {"rows": [[], []]}, {"csr": ["matrix", [1, 1], 0, 1, 2]},
    {"csr": ["array", [2**40, 2**40], 0, 0, 0]}, {"RandomState": [0, 0, 0, 0.0]}, {"Kernel": {"name": "rbf"}},
    {"Kernel": {"name": "poly", "gamma": 1.0, "degree": 2**40}}, {"Certificate": {"primal": 1.0, "dual": 0.0}},
    {"Certificate": {}}, {"Ledger": {}}, {"Points": {"X": {"array": 0}, "numbers": {"array": 1}}},
    {"Faults": {"drop": 2.0}}, {"Popen": {"args": "true"}}, {"map": {}},
    {"kind": "Pipeline", "verbose": False, "steps": []},
]  # fmt: skip
TYPES = [
    "|b1",
    "|i1",
    "|u1",
    "<i4",
    "<u4",
    "<i8",
    "<u8",
    "<f2",
    "<f4",
    "<f8",
    ">f8",
    "<U1",
    "<U3",
    "|O",
    "|V8",
    "<M8[s]",
]
EXTREMES = [
    0,
    1,
    -1,
    4,
    5,
    1000,
    2**30,
    2**31 - 1,
    -(2**31),
    2**62,
    2**63 - 1,
    -(2**63),
    np.nan,
    np.inf,
    -np.inf,
    1e308,
    5e-324,
    1e30,
]


def unpacked(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Header and arrays of a file that is in order."""
    _, _, length = _PRELUDE.unpack_from(content)
    header = json.loads(content[_PRELUDE.size : _PRELUDE.size + length])
    at, arrays = _PRELUDE.size + length, []
    for dtype, shape, _ in header["arrays"]:
        at += -at % 64
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        arrays.append(content[at : at + n_bytes])
        at += n_bytes
    assert at == len(content) - 32
    return header, arrays


def packed(header: Any, arrays: list[bytes], version: int = 1) -> bytes:
    """A file with a checksum that is right, whatever else is in it."""
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    content = _PRELUDE.pack(_SIGNATURE, version, len(text)) + text
    for each in arrays:
        content += bytes(-len(content) % 64) + each
    return signed(content)


def signed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def mutated(rng: np.random.Generator, content: bytes, other: bytes) -> tuple[str, bytes]:
    """A file that is not what it was, and how it came about; ``other`` is a file to take parts of."""
    kinds = [damaged, sealed_damage, header_edited, header_edited, nudged, array_edited, poisoned, poisoned, mixed]
    change = kinds[rng.integers(len(kinds))]
    return change.__name__, change(rng, content, other)


def damaged(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """Bits flipped, the end or the middle cut out, or two files spliced."""
    at, end = np.sort(rng.integers(0, len(content), 2))
    how = rng.integers(4)
    if how == 0:
        out = bytearray(content)
        for _ in range(rng.integers(1, 9)):
            out[rng.integers(len(out))] ^= 1 << rng.integers(8)
        return bytes(out)
    if how == 1:
        return content[:at]
    return content[:at] + (content[end:] if how == 2 else other[min(at, len(other)) :])


def sealed_damage(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """The same with a checksum that is right; or another length or version at the beginning."""
    body = damaged(rng, content[:-32], other[:-32])
    if rng.random() < 0.3 and len(body) > _PRELUDE.size:
        length = int(rng.choice([0, 1, len(body), 2**31, 2**62, int(rng.integers(1, len(body)))]))
        body = struct.pack("<15sIQ", _SIGNATURE, int(rng.integers(0, 3)), length) + body[_PRELUDE.size :]
    return signed(body)


def header_edited(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """Some values of the header are others."""
    header, arrays = unpacked(content)
    edit_header(rng, header, unpacked(other)[0])
    return packed(header, arrays)


def nudged(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """One number or word of the header is another of its type, so that types alone say nothing."""
    header, arrays = unpacked(content)
    leaves = [(holder, key) for holder, key in _places(header) if type(holder[key]) in (int, float, str)]
    holder, key = leaves[rng.integers(len(leaves))]
    alike = [each for each in STRANGERS if type(each) is type(holder[key])]
    holder[key] = alike[rng.integers(len(alike))]
    return packed(header, arrays)


def array_edited(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """An array is another."""
    header, arrays = unpacked(content)
    edit_arrays(rng, header["arrays"], arrays, other)
    return packed(header, arrays)


def poisoned(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """Indices, labels or truth values are replaced, by which loops that do not look would leave their arrays."""
    header, arrays = unpacked(content)
    whole = [k for k, (dtype, _, _) in enumerate(header["arrays"]) if np.dtype(dtype).kind in "iubU" and arrays[k]]
    k = whole[rng.integers(len(whole))] if whole else 0
    dtype = header["arrays"][k][0]
    raw = np.frombuffer(arrays[k], np.uint8 if dtype == "|b1" else dtype)
    arrays[k] = _with_extremes(rng, raw)
    return packed(header, arrays)


def mixed(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """Both."""
    header, arrays = unpacked(content)
    edit_arrays(rng, header["arrays"], arrays, other)
    edit_header(rng, header, unpacked(other)[0])
    return packed(header, arrays)


def edit_header(rng: np.random.Generator, header: dict[str, Any], stranger: dict[str, Any]) -> None:
    """Replace, drop, double or rename values, or take them from elsewhere."""
    for _ in range(rng.integers(1, 4)):
        places = list(_places(header))
        if not places:
            return
        holder, key = places[rng.integers(len(places))]
        how = rng.integers(8)
        if how <= 3:
            holder[key] = copy.deepcopy(STRANGERS[rng.integers(len(STRANGERS))])
        elif how == 4:
            del holder[key]
        elif how == 5:
            from_where, which = places[rng.integers(len(places))]
            holder[key] = copy.deepcopy(from_where[which])
        elif how == 6 and isinstance(holder, dict):
            holder[str(rng.choice([*map(str, _names(stranger)), "coef_", "predict", "__class__"]))] = holder.pop(key)
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            theirs = list(_places(stranger))
            from_where, which = theirs[rng.integers(len(theirs))]
            holder[key] = copy.deepcopy(from_where[which])


def edit_arrays(rng: np.random.Generator, entries: list[Any], arrays: list[bytes], other: bytes) -> None:
    """Replace entries by extremes, change a type or shape, exchange arrays, or take one from elsewhere."""
    k = int(rng.integers(len(entries)))
    dtype, shape, _ = entries[k]
    how = rng.integers(8)
    if how <= 2 and len(arrays[k]):
        arrays[k] = _with_extremes(rng, np.frombuffer(arrays[k], dtype))
    elif how == 3:
        entries[k][0] = TYPES[rng.integers(len(TYPES))]
    elif how == 4:
        sizes = [0, 1, 2, 5, 2**31, 2**40, 2**62, -1, *shape]
        entries[k][1] = [int(rng.choice(sizes)) for _ in range(rng.integers(0, 5))]
    elif how == 5:
        j = int(rng.integers(len(entries)))
        entries[k], entries[j], arrays[k], arrays[j] = entries[j], entries[k], arrays[j], arrays[k]
    elif how == 6:
        entries[k] = [dtype, [int(rng.integers(0, 5)), *shape[1:]], "C"]
        n_bytes = int(np.prod(entries[k][1], dtype=np.int64)) * np.dtype(dtype).itemsize
        arrays[k] = (arrays[k] + bytes(n_bytes))[:n_bytes]
    else:
        theirs, more = unpacked(other)
        j = int(rng.integers(len(more)))
        entries[k], arrays[k] = theirs["arrays"][j], more[j]


def _with_extremes(rng: np.random.Generator, values: np.ndarray) -> bytes:
    """The bytes of an array with some entries replaced; of text, by letters that may not exist."""
    values = values.view(np.uint32) if values.dtype.kind == "U" else values
    values = values.copy()
    for _ in range(rng.integers(1, 4)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # most extremes do not fit
            values[rng.integers(len(values))] = np.array(EXTREMES[rng.integers(len(EXTREMES))]).astype(values.dtype)
    return values.tobytes()


def _places(node: Any) -> Any:
    """All places in some JSON, as holder and key."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in list(items):
        yield node, key
        yield from _places(inner)


def _names(node: Any) -> list[Any]:
    return [key for holder, key in _places(node) if isinstance(holder, dict)]


def outcome_of(content: bytes, path: Any) -> str:
    """What becomes of a file: "refused", or "used" after all that a loaded model can do.

    Any other error than that of the format is raised; but scores beyond all numbers are those of the model.
    """
    path.write_bytes(content)
    try:
        model = load(path)
    except ModelFileError:
        return "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return use(model)


def use(model: Any) -> str:
    rng = np.random.default_rng(0)
    final = model[-1] if hasattr(model, "steps") else model
    _look_inside(final)
    n_features = model.n_features_in_
    if n_features > 10_000:
        return "too wide to try"
    rows = rng.normal(size=(3, n_features))
    for X in (rows, rows.astype(np.float32), sp.csr_matrix(np.where(rows > 0, rows, 0.0))):
        try:
            labels, scores = model.predict(X), model.decision_function(X)
        except (ValueError, TypeError) as error:
            told = str(error)
            if hasattr(model, "steps") and ("contains infinity" in told or "NaN" in told or "sparse" in told.lower()):
                continue  # scaled beyond all numbers, or centred though sparse: scikit-learn says so
            raise
        assert len(labels) == 3
        assert np.isin(labels, final.classes_).all()
        assert scores.shape in ((3,), (3, len(final.classes_)))
    clone(model)
    repr(model)
    to_bytes(model)
    for level in range(len(getattr(final, "levels_", [])) if len(final.classes_) == 2 else 0):
        final.at_level(level).predict(rows)
    return "used"


def _look_inside(final: Any) -> None:
    """What a prediction reads, as SciPy and NumPy see it: a read beyond an array need not crash."""
    matrices = [getattr(final, "support_vectors_", None), *(getattr(p.model, "points", None) for p in final.parts_)]
    for matrix in [getattr(each, "X", each) for each in matrices]:
        if sp.issparse(matrix):
            matrix.check_format(full_check=True)
    final.classes_.tolist()
    for value in vars(final).values():
        if isinstance(value, np.ndarray) and value.dtype == bool:
            assert set(value.view(np.uint8).ravel().tolist()) <= {0, 1}
