"""Which objects a model file may hold besides plain data, and how each of them is checked.

A record is a dataclass or named tuple of the library. Its name stands in the list below or it does not come into a file
and not out of one; its fields are checked against the types that the class itself declares, and where a wrong number
could lead a compiled loop astray, against each other. The same checks hold when a model is saved.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import KFold, StratifiedKFold

from widemargin.comm.faults import Faults
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import NAMES, Kernel
from widemargin.kernels.points import Points
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import KernelModel, Separator
from widemargin.solvers.partition_merge import Level
from widemargin.solvers.run import Result
from widemargin.strategies.peers import Node

RECORDS: dict[str, type] = {
    record.__name__: record
    for record in (
        Certificate,
        Faults,
        KFold,
        Kernel,
        KernelModel,
        Ledger,
        Level,
        Node,
        Points,
        Result,
        Separator,
        StratifiedKFold,
    )
}
_LEAST_GAMMA = float(np.finfo(np.float64).tiny)  # kernels divide by a part of it, which must not be 0
LARGEST_DEGREE = 10_000  # of a polynomial kernel: its values take a multiplication for each
_SPLITTER = ("n_splits", "shuffle", "random_state")
# What the classes declare; scikit-learn's check themselves when they are made.
_HINTS: dict[type, dict[str, Any]] = {
    kind: {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}
    for kind in RECORDS.values()
    if kind not in (KFold, StratifiedKFold)
}


def parts_of(record: Any) -> dict[str, Any]:
    """Fields of a record by name."""
    return {name: getattr(record, name) for name in _field_names(type(record))}


def rebuilt(kind: type, parts: dict[str, Any]) -> Any:
    """The record of these fields, checked; those with a default may be absent."""
    unknown = sorted(set(parts) - set(_field_names(kind)))
    missing = [name for name in _field_names(kind) if name not in parts and not _has_default(kind, name)]
    if unknown or missing:
        raise ModelFileError(f"a {kind.__name__} has unknown fields {unknown} and lacks {missing}")
    record = kind(**parts)
    check(record)
    return record


def check(record: Any) -> None:
    """Raise an error if a record is not what its class says, or not in order."""
    kind = type(record)
    for name, hint in _HINTS.get(kind, {}).items():
        if not conforms(getattr(record, name), hint):
            raise ModelFileError(f"{name} of a {kind.__name__} is of a wrong type")
    if kind in _ORDER:
        _ORDER[kind](record)


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a type as annotations write it; whole numbers are numbers, and True is neither."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(conforms(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            conforms(key, arguments[0]) and conforms(each, arguments[1]) for key, each in value.items()
        )
    if origin is tuple and arguments[-1] is not Ellipsis:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(conforms(each, kind) for each, kind in zip(value, arguments, strict=True))
        )
    if origin in (list, tuple, frozenset, Sequence):
        kinds: Any = (list, tuple) if origin is Sequence else origin
        return isinstance(value, kinds) and all(conforms(each, arguments[0]) for each in value)
    if hint in (int, float):
        kind = Integral if hint is int else Real
        return isinstance(value, kind) and not isinstance(value, bool | np.bool_)
    # A function never comes from a file, whatever the annotation allows.
    return isinstance(value, hint) if isinstance(hint, type) else False


def check_rows(X: Any, n_columns: int | None = None) -> None:
    """Rows that kernels may be computed with: of two dimensions, finite, and stored as they claim to be."""
    if not (isinstance(X, np.ndarray) or sp.issparse(X)) or X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        raise ModelFileError("rows are not a matrix of float32 or float64")
    if not np.isfinite(X.data if sp.issparse(X) else X).all():
        raise ModelFileError("rows are not finite")
    if n_columns is not None and X.shape[1] != n_columns:
        raise ModelFileError(f"rows have {X.shape[1]} columns, and the model {n_columns} features")


def _check_points(points: Points) -> None:
    _check_whole(points.numbers, points.X.shape[0] if hasattr(points.X, "shape") and points.X.ndim else -1)
    check_rows(points.X)


def _check_whole(numbers: np.ndarray, length: int) -> None:
    if numbers.dtype.kind not in "iu" or numbers.shape != (length,) or (numbers < 0).any():
        raise ModelFileError(f"numbers of rows are not {length} whole numbers from 0 on")


def _check_kernel(kernel: Kernel) -> None:
    gamma: Any = kernel.gamma
    is_number = conforms(gamma, float)
    if kernel.name not in NAMES:
        raise ModelFileError(f"there is no kernel {kernel.name!r}")
    if kernel.needs_gamma and not (is_number and _LEAST_GAMMA <= gamma < np.inf):
        raise ModelFileError(f"gamma of a kernel is not a number from {_LEAST_GAMMA:.1e} on")
    if not is_number and gamma not in ("scale", "auto"):
        raise ModelFileError("gamma of a kernel is unknown")
    if not 1 <= kernel.degree <= LARGEST_DEGREE or not np.isfinite(kernel.coef0):
        raise ModelFileError(f"degree of a kernel is not in [1, {LARGEST_DEGREE}], or coef0 not finite")


def _check_separator(model: Separator) -> None:
    if model.coef.ndim != 1 or model.coef.dtype.kind != "f":
        raise ModelFileError("coefficients of a separator are not a vector of numbers")


def _check_expansion(model: KernelModel) -> None:
    if model.coef.shape != (len(model.points),) or model.coef.dtype.kind != "f":
        raise ModelFileError("a kernel model has not one coefficient for each of its rows")


def _check_result(result: Result) -> None:
    if not isinstance(result.model, Separator | KernelModel):
        raise ModelFileError("a result has no model")


def _check_level(level: Level) -> None:
    everything = level.among.numbers
    _check_whole(level.numbers, len(level.coef))
    if not (everything[1:] > everything[:-1]).all() or not np.isin(level.numbers, everything).all():
        raise ModelFileError("rows of a level are not in order, or not all there")


_ORDER: dict[type, Callable[[Any], None]] = {
    Kernel: _check_kernel,
    KernelModel: _check_expansion,
    Level: _check_level,
    Points: _check_points,
    Result: _check_result,
    Separator: _check_separator,
}


def _field_names(kind: type) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", _SPLITTER)


def _has_default(kind: type, name: str) -> bool:
    if is_dataclass(kind):
        field = next(field for field in fields(kind) if field.name == name)
        return field.default is not MISSING or field.default_factory is not MISSING
    return name in getattr(kind, "_field_defaults", _SPLITTER)
