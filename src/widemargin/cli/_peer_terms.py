"""The terms of a network, which the peer that begins it chooses and all others get."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.cli._input import plain_labels
from widemargin.data.layout import FileRows
from widemargin.estimators.gossip import GossipSVC
from widemargin.peers.rows import PeerRows
from widemargin.peers.wire import VERSION
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.strategies.peers import Network, has_full_metric
from widemargin.strategies.protocol import Rows

_DEFAULT_AT_LEAST = 2  # peers that must have met


class Terms(NamedTuple):
    """What all peers of a network agree on. The names of the fields are sent, as JSON."""

    alpha: float
    tol: float
    classes: list[Any]  # sorted numbers or strings
    n_features: int  # without the constant feature
    has_constant: bool
    is_metric_full: bool
    fan_out: int
    degree: int
    at_least: int  # peers that must have met before the network may stop
    run: str  # random: signatures of one run are none of another
    version: int = VERSION  # of messages

    @classmethod
    def begin(cls, given: dict[str, Any], rows: FileRows, path: Path) -> Terms:
        """The terms of a new network: GossipSVC's defaults, and what was ``given`` (None where not)."""
        names = {"alpha": "alpha", "tol": "tol", "degree": "degree", "fan_out": "fan_out", "intercept": "fit_intercept"}
        model = GossipSVC(**{name: given[each] for each, name in names.items() if given[each] is not None})
        model._validate_params()
        for name in ("peers", "features"):
            if given[name] is not None and given[name] < 1:
                raise ValueError(f"--{name} {given[name]} must be at least 1.")
        classes = np.unique(plain_labels(rows.y)) if given["classes"] is None else _parsed(given["classes"], rows, path)
        if len(classes) < 2:
            raise ValueError(f"{path} has labels of one class, {classes.tolist()}: give all classes with --classes.")
        n_features, at_least = given["features"] or rows.X.shape[1], given["peers"] or _DEFAULT_AT_LEAST
        is_full = has_full_metric("auto", n_features + model.fit_intercept, at_least)
        shape = classes.tolist(), n_features, model.fit_intercept, is_full
        run = secrets.token_hex(16)
        return cls(float(model.alpha), float(model.tol), *shape, model.fan_out, model.degree, at_least, run)

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Terms:
        """The terms that a member sent; ValueError if they are invalid."""
        if (version := answer.get("version", "2 or lower")) != VERSION:
            raise ValueError(
                f"The network's messages have version {version}, and this peer's {VERSION}: "
                "use the same version of widemargin everywhere."
            )
        try:
            terms = cls(**answer)
            GossipSVC(**terms.parameters())._validate_params()
            kinds, are_sorted = {type(each) for each in terms.classes}, terms.classes == sorted(set(terms.classes))
            if len(terms.classes) < 2 or not are_sorted or not (kinds == {str} or kinds <= {int, float}):
                raise ValueError("classes")
            if min(terms.n_features, terms.at_least) < 1 or not re.fullmatch(r"[0-9a-f]{32}", terms.run):
                raise ValueError("sizes")
        except (TypeError, ValueError) as error:
            raise ValueError("This version does not understand the terms of the network.") from error
        return terms

    def parameters(self) -> dict[str, Any]:
        """The same as parameters of GossipSVC."""
        own = {name: getattr(self, name) for name in ("alpha", "tol", "degree", "fan_out")}
        return own | {"fit_intercept": self.has_constant, "metric": "full" if self.is_metric_full else "diagonal"}

    def network(self, graph: dict[int, list[int]]) -> Network:
        """The network as one of its peers knows it."""
        return Network(MeanHinge(self.alpha), graph, self.fan_out, self.is_metric_full, self.has_constant)

    def encode(self, network: Network, rows: FileRows, path: Path) -> PeerRows:
        """The rows of a file, with the features and classes of the network."""
        X, d, classes, y = rows.X, rows.X.shape[1], np.array(self.classes), plain_labels(rows.y)
        if d > self.n_features or (d < self.n_features and not sp.issparse(X)):
            n = self.n_features
            what_to_do = f"Begin the network with --features {d}." if d > n else "Add the missing columns."
            raise ValueError(f"{path} has {d} features and the network has {n}. {what_to_do}")
        if d < self.n_features:
            X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], self.n_features))
        if (classes.dtype.kind == "U") != (y.dtype.kind == "U"):
            raise ValueError(f"{path} has labels {np.unique(y).tolist()}; those of the network are {self.classes}.")
        try:
            return network.encode(Rows(X, y, np.ones(len(y))), classes)
        except ValueError as error:
            raise ValueError(f"{path}: {error} Give all of them with --classes when the network begins.") from None


def _parsed(text: str, rows: FileRows, path: Path) -> np.ndarray:
    """The labels of ``--classes``, sorted, in the type of those in the file."""
    labels = np.array([each.strip() for each in text.split(",")])
    if rows.y.dtype.kind != "U":
        try:
            labels = labels.astype(np.float64)
        except ValueError:
            raise ValueError(f"--classes {text} must be numbers, as the labels in {path} are.") from None
    found: np.ndarray = np.unique(plain_labels(labels))
    if len(found) < max(2, len(labels)):
        raise ValueError(f"--classes {text} must name at least two different classes.")
    return found
