"""Labels and weights: checks of one rank's rows, and the classes that all ranks agree on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from widemargin.comm.protocol import Communicator
from widemargin.strategies.protocol import Rows

FLOATS = [np.float64, np.float32]
_ERRORS = {"ValueError": ValueError, "TypeError": TypeError}


def classes_of(labels: Sequence[np.ndarray]) -> np.ndarray:
    """The sorted classes of several parts of the rows; ValueError if some labels are numbers and others are text."""
    some = [each for each in labels if len(each)]
    if len({each.dtype.kind in "OUS" for each in some}) > 1:
        raise ValueError("Labels are numbers in one part of the rows and text in another: use one kind for all rows.")
    return np.unique(np.concatenate(some)) if some else np.empty(0)


def check_classes(classes: np.ndarray, name: str) -> None:
    """Raise ValueError, which names the estimator, unless there are two classes or more."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs at least 2 classes with rows of positive weight, and got {len(classes)} class(es): "
            f"{classes.tolist()}."
        )


def weights_of_classes(class_weight: Any, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The factor of each class: given by label, or ``"balanced"``, which gives all classes the same total."""
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


def checked(rows: Rows) -> Rows:
    """The rows of one rank, checked: pieces that compiled loops can read, labels, and a weight for each row."""
    pieces = rows.X if isinstance(rows.X, list) else [rows.X]
    X = [
        _canonical(check_array(piece, accept_sparse="csr", dtype=FLOATS, order="C", ensure_min_samples=0))
        for piece in pieces
    ]
    y = column_or_1d(np.concatenate(rows.y) if isinstance(rows.y, list) else rows.y)
    weight = np.concatenate(rows.weight) if isinstance(rows.weight, list) else rows.weight
    n_rows = sum(piece.shape[0] for piece in X)
    check_consistent_length(y, np.empty(n_rows))
    return checked_labels(Rows(X, y, weight), n_rows, are_all=False)


def checked_labels(rows: Rows, n_rows: int, *, are_all: bool = True) -> Rows:
    """The same rows with class labels and a weight each, none negative; ``are_all``: at least one is positive."""
    check_classification_targets(rows.y)
    weight = _check_sample_weight(
        rows.weight,
        np.empty((n_rows, 1)),
        dtype=np.float64,
        ensure_non_negative=True,
        allow_all_zero_weights=not are_all,
    )
    return Rows(_canonical(rows.X), np.asarray(rows.y), np.asarray(weight))


def _canonical(X: Any) -> Any:
    """Sparse rows without duplicate entries; others as they are."""
    if not sp.issparse(X) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def agree(note: dict[str, Any], comm: Communicator) -> tuple[np.ndarray, int]:
    """Merge the notes of all ranks at rank 0: all classes and one seed, or an error that is raised on every rank.

    A note has ``labels``, ``dtype``, ``n_features`` and ``seed``, or ``error``, ``kind`` and ``traceback``.
    """
    gathered = comm.gather(_packed(note))
    merged = None if gathered is None else _packed(_merge([_unpacked(each) for each in gathered]))
    outcome = _unpacked(comm.broadcast(merged))
    if "error" in outcome:
        raise _ERRORS.get(outcome["kind"], RuntimeError)(outcome["error"])
    return np.array(outcome["labels"], dtype=np.dtype(outcome["dtype"])), outcome["seed"]


def _merge(notes: list[dict[str, Any]]) -> dict[str, Any]:
    """All labels in order, in the type that the ranks have them in; or the first error."""
    for rank, note in enumerate(notes):
        if "error" in note and len(notes) > 1:
            return {"error": f"On rank {rank}: {note['error']}\n\n{note['traceback']}", "kind": note["kind"]}
        if "error" in note:
            return note
    widths = sorted({note["n_features"] for note in notes})
    if len(widths) > 1:
        return {"error": f"Ranks disagree on the number of features: {widths}.", "kind": "ValueError"}
    try:
        labels = classes_of([np.array(note["labels"], dtype=np.dtype(note["dtype"])) for note in notes])
    except ValueError as error:
        return {"error": str(error), "kind": "ValueError"}
    return {"labels": labels.tolist(), "dtype": labels.dtype.str, "seed": notes[0]["seed"]}


def _packed(value: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def _unpacked(text: np.ndarray) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text.tobytes())
    return value
