"""What the peers of a network agree on, and how the rows of a file become those of a peer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.data.layout import FileRows
from widemargin.peers.rows import PeerRows

_FULL_METRIC = 512  # features up to which the metric is a matrix


class Terms(NamedTuple):
    """What all peers of a network agree on; whoever begins it decides."""

    alpha: float
    tol: float
    classes: list[Any]  # numbers or strings, in order
    n_features: int  # without the constant one
    has_constant: bool
    is_metric_full: bool
    fan_out: int
    degree: int
    at_least: int

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Terms:
        """What a member answered; ValueError if it makes no sense."""
        try:
            terms = cls(**answer)
            kinds = {type(each) for each in terms.classes}
            is_good = (
                terms.alpha > 0
                and terms.tol >= 0
                and len(set(terms.classes)) == len(terms.classes) >= 2
                and (kinds == {str} or kinds <= {int, float})
                and min(terms.n_features, terms.fan_out, terms.degree, terms.at_least) >= 1
            )
        except TypeError:
            is_good = False
        if not is_good:
            raise ValueError("The terms of this network are not understood by this version.")
        return terms


def begin(given: dict[str, Any], rows: FileRows, path: Path) -> Terms:
    """The terms of a new network."""

    def default(name: str, value: Any) -> Any:
        return value if given[name] is None else given[name]

    labels = np.unique(rows.y).tolist()
    if given["classes"] is not None:
        texts = [each.strip() for each in given["classes"].split(",")]
        try:
            labels = sorted(texts) if isinstance(labels[0], str) else sorted(float(each) for each in texts)
        except ValueError:
            raise ValueError(f"--classes {given['classes']} must be numbers, as the labels in {path} are.") from None
    if len(set(labels)) < 2 or len(set(labels)) < len(labels):
        raise ValueError(f"There must be at least two different classes, not {labels}; --classes names all of them.")
    for name in ("alpha", "peers", "features", "degree", "fan_out"):
        if given[name] is not None and not 0 < given[name] < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} {given[name]} must be positive.")
    if given["tol"] is not None and not 0 <= given["tol"] < math.inf:
        raise ValueError(f"--tol {given['tol']} must be at least 0.")
    n_features = int(default("features", rows.X.shape[1]))
    return Terms(
        alpha=float(default("alpha", 1e-4)),
        tol=float(default("tol", 1e-3)),
        classes=labels,
        n_features=n_features,
        has_constant=bool(default("intercept", True)),
        is_metric_full=n_features < _FULL_METRIC,
        fan_out=int(default("fan_out", 3)),
        degree=int(default("degree", 3)),
        at_least=int(default("peers", 2)),
    )


def encoded(rows: FileRows, terms: Terms, path: Path) -> PeerRows:
    """The rows as the network has them: its features and its classes."""
    X, d = rows.X, rows.X.shape[1]
    if d > terms.n_features or (d < terms.n_features and not sp.issparse(X)):
        raise ValueError(
            f"{path} has {d} features and the network {terms.n_features}: --features says how many when it begins."
        )
    if d < terms.n_features:
        X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], terms.n_features))
    classes = np.array(terms.classes)
    if (classes.dtype.kind == "U") != (rows.y.dtype.kind == "U"):
        raise ValueError(f"{path} has labels {np.unique(rows.y).tolist()}; those of the network are {terms.classes}.")
    codes = np.searchsorted(classes, rows.y).clip(max=len(classes) - 1)
    unknown = np.unique(rows.y[classes[codes] != rows.y]).tolist()
    if unknown:
        raise ValueError(
            f"{path} has labels {unknown}, which are not among those of the network, {terms.classes}: --classes names "
            "all of them when it begins."
        )
    return PeerRows.of(X, codes, np.ones(len(codes)), len(classes), has_constant=terms.has_constant)
