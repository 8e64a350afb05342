"""Labels and weights: checks of one rank's rows, and agreement of all ranks on the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from widemargin.codec import pack, unpack
from widemargin.comm.protocol import Communicator
from widemargin.data.pieces import distinct_labels, largest_size
from widemargin.kernels.arrays import is_on_host
from widemargin.problems.protocol import Problem
from widemargin.problems.ranges import refuse_rows_out_of_range, refuse_weights_out_of_range
from widemargin.sklearn_private import check_sample_weight
from widemargin.strategies.protocol import Rows

FLOATS = [np.float64, np.float32]
_MANY = 1 << 16  # labels
_COPIES = 3  # of each label: scikit-learn warns where most labels differ
_ERRORS = {"ValueError": ValueError, "TypeError": TypeError}


def classes_of(labels: Sequence[np.ndarray]) -> np.ndarray:
    """The sorted classes of several label arrays; raises ValueError if some hold numbers and others text."""
    some = [each for each in labels if len(each)]
    if len({each.dtype.kind in "OUS" for each in some}) > 1:
        raise ValueError("Labels are numbers in one part of the rows and text in another: use one kind for all rows.")
    return np.unique(np.concatenate(some)) if some else np.empty(0)


def check_classes(classes: np.ndarray, name: str) -> None:
    """Raise ValueError if there are fewer than two classes; ``name`` is the estimator."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs at least 2 classes with rows of positive weight, and got {len(classes)} class(es): "
            f"{classes.tolist()}."
        )


def weights_of_classes(class_weight: Any, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The factor of each class: from a dict, or ``"balanced"`` for the same total weight of all classes."""
    if isinstance(class_weight, str):
        return np.asarray(totals.sum() / (len(classes) * totals))
    known = classes.tolist()
    factors = np.array([class_weight.get(label, 1.0) for label in known], dtype=np.float64)
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(f"class_weight names {unknown}, which are not among the classes {known}.")
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(f"class_weight={class_weight!r} must give every class a positive, finite weight.")
    return factors


def checked(rows: Rows, problem: Problem | None = None) -> Rows:
    """Check the rows of one rank: blocks that compiled loops can read, labels, and a weight for each row."""
    pieces = rows.X if isinstance(rows.X, list) else [rows.X]
    form: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS, "order": "C", "ensure_min_samples": 0}
    X = [
        _canonical(check_array(piece, ensure_all_finite=not math.isfinite(known_size(piece)), **form))
        for piece in pieces
    ]
    y = column_or_1d(np.concatenate(rows.y) if isinstance(rows.y, list) else rows.y)
    weight = np.concatenate(rows.weight) if isinstance(rows.weight, list) else rows.weight
    n_rows = sum(piece.shape[0] for piece in X)
    check_consistent_length(y, np.empty(n_rows))
    return checked_labels(Rows(X, y, weight), n_rows, problem, are_all=False)


def checked_labels(
    rows: Rows, n_rows: int, problem: Problem | None = None, *, are_all: bool = True, size: float = math.nan
) -> Rows:
    """Check labels and weights, which must not be negative, and the size of rows, for a problem.

    With ``are_all`` at least one weight must be positive. ``size`` is the :func:`known_size` of the rows.
    """
    _check_targets(rows.y)
    if rows.weight is None and n_rows:
        weight = np.ones(n_rows)
    else:
        form = {"dtype": np.float64, "ensure_non_negative": True, "allow_all_zero_weights": not are_all}
        weight = check_sample_weight(rows.weight, np.empty((n_rows, 1)), **form)
        refuse_weights_out_of_range(np.asarray(weight))
    X = _canonical(rows.X)
    blocks = [each for each in (X if isinstance(X, list) else [X]) if is_on_host(each)]
    refuse_rows_out_of_range(blocks, problem, size if X is rows.X else math.nan)
    return Rows(X, np.asarray(rows.y), np.asarray(weight))


def known_size(X: Any) -> float:
    """The largest size of an entry of rows that compiled loops can read as they are; NaN for others.

    The pass is on all cores. Where it finds a finite number scikit-learn need not look at entries; it has the errors.
    """
    values = X.data if sp.issparse(X) and X.format == "csr" else X
    if not isinstance(values, np.ndarray) or values.dtype not in FLOATS or not values.flags.c_contiguous:
        return math.nan
    return math.nan if get_config()["assume_finite"] else largest_size(values)


def are_plain_rows(X: Any, size: float) -> bool:
    """Whether scikit-learn would find nothing to check or to convert in rows of this :func:`known_size`."""
    return type(X) is np.ndarray and X.ndim == 2 and X.size > 0 and math.isfinite(size)


def are_plain_labels(y: Any, n_rows: int) -> bool:
    """The same for labels of so many rows: whole numbers in an array."""
    return type(y) is np.ndarray and y.shape == (n_rows,) and y.dtype.kind in "biu" and y.flags.c_contiguous


def _check_targets(y: Any) -> None:
    """Raise ValueError for labels that are not those of a classification; of many labels each is looked at once."""
    is_plain = isinstance(y, np.ndarray) and y.ndim == 1
    if is_plain and (y.dtype.kind in "biu" or (y.dtype.kind == "f" and len(y) >= _MANY)):
        few = np.repeat(distinct_labels(y), _COPIES)
        if len(few) < len(y) and y.dtype.kind != "f":
            return  # whole numbers are classes
        y = few if len(few) < len(y) else y
    check_classification_targets(y)


def _canonical(X: Any) -> Any:
    """Sparse rows without duplicate entries; dense rows unchanged."""
    if not sp.issparse(X) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def agree(note: dict[str, Any], comm: Communicator) -> tuple[np.ndarray, int]:
    """Merge the notes of all ranks at rank 0: all classes and one seed, or an error that is raised on every rank.

    A note has ``labels``, ``n_features`` and ``seed``, or ``error``, ``kind`` and ``traceback``.
    """
    if comm.size == 1:
        outcome = _merge([note])
    else:
        gathered = comm.gather(_packed(note))
        merged = None if gathered is None else _packed(_merge([unpack(each.tobytes()) for each in gathered]))
        outcome = unpack(comm.broadcast(merged).tobytes())
    if "error" in outcome:
        raise _ERRORS.get(outcome["kind"], RuntimeError)(outcome["error"])
    return outcome["labels"], outcome["seed"]


def _packed(note: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(pack(note), dtype=np.uint8)


def _merge(notes: list[dict[str, Any]]) -> dict[str, Any]:
    """The sorted labels of all ranks, or the first error."""
    if len(notes) == 1:
        return notes[0]
    for rank, note in enumerate(notes):
        if "error" in note:
            return {"error": f"On rank {rank}: {note['error']}\n\n{note['traceback']}", "kind": note["kind"]}
    widths = sorted({note["n_features"] for note in notes})
    if len(widths) > 1:
        return {"error": f"Ranks disagree on the number of features: {widths}.", "kind": "ValueError"}
    try:
        return {"labels": classes_of([note["labels"] for note in notes]), "seed": notes[0]["seed"]}
    except ValueError as error:
        return {"error": str(error), "kind": "ValueError"}
