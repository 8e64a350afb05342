"""Which fits of GossipSVC may be released with differential privacy: everything else is refused before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from widemargin.privacy_account import PrivacyAccount
from widemargin.problems.private_release import Release, check_privacy
from widemargin.strategies.peers import Peers
from widemargin.strategies.protocol import Rows
from widemargin.strategies.release import PrivateRelease

if TYPE_CHECKING:
    from widemargin.estimators.gossip import GossipSVC

_DEFAULTS = {"clip": 1.0, "classes": None, "account": None}  # of what only privacy uses


def check_private(model: GossipSVC) -> None:
    """Raise ValueError for parameters that a release cannot have, or that only a release has."""
    if model.privacy is None:
        for name, default in _DEFAULTS.items():
            value = getattr(model, name)
            if value is not default and (default is None or value != default):
                raise ValueError(
                    f"{name}={value!r} has no effect with privacy=None: leave it {default!r}, or use "
                    "privacy=(epsilon, delta)."
                )
        return
    refused = {
        "class_weight": (model.class_weight is None, "a weight changes the sensitivity: leave it None"),
        "solver": (model.solver == "admm", "only 'admm' certifies the gap that the noise is calibrated to"),
        "tol": (model.tol == 1e-3, "privacy sets the gap: leave it 0.001"),
        "gamma": (
            model.kernel == "linear" or not isinstance(model.gamma, str),
            "'scale' depends on the rows: give a number",
        ),
        "verbose": (not model.verbose, "the progress line shows gaps, which depend on the rows: leave it 0"),
        "classes": (model.classes is not None, "give all classes: those found in the rows depend on the rows"),
        "account": (model.account is not None, "give the file of a PrivacyAccount, which adds up all releases"),
    }
    for name, (is_allowed, reason) in refused.items():
        if not is_allowed:
            raise ValueError(f"{name}={getattr(model, name)!r} cannot be used with privacy: {reason}.")
    if getattr(model, "_skl_callbacks", []):
        raise ValueError("privacy=(epsilon, delta) allows no callbacks: they see models without noise.")
    if len(np.unique(model.classes)) < 2:
        raise ValueError(f"classes={list(model.classes)!r} must be at least two different labels.")
    _pair(model.privacy)


def private(model: GossipSVC, peers: Peers, rows: Sequence[Rows]) -> PrivateRelease:
    """The peers with a release behind them; ValueError for terms that it cannot have."""
    n_rows, n_features = sum(len(part.y) for part in rows), rows[0].X.shape[1] + bool(model.fit_intercept)
    assert model.account is not None
    classes = np.unique(model.classes)
    n_problems = 1 if len(classes) == 2 else len(classes)
    terms = (*_pair(model.privacy), float(model.clip), float(model.alpha))
    release = Release(*terms, n_rows, n_features, n_problems)
    release.validate()
    return PrivateRelease(replace(peers, known_classes=classes), release, PrivacyAccount(model.account))


def _pair(privacy: Any) -> tuple[float, float]:
    try:
        epsilon, delta = map(float, privacy)
    except (TypeError, ValueError):
        raise ValueError(f"privacy={privacy!r} must be a pair of numbers (epsilon, delta).") from None
    check_privacy(epsilon, delta)
    return epsilon, delta
