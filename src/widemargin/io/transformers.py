"""Transformers of scikit-learn that a model file may hold: scalers in front of an estimator, and random features."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from widemargin.codec import conforms
from widemargin.estimators.registry import Array
from widemargin.exceptions import ModelFileError

_PER_FEATURE = Array("f", "I", is_finite=True)
_SCALER: dict[str, Any] = {"n_features_in_": int, "feature_names_in_": Array("O", "I"), "n_samples_seen_": object}
# Each with its fitted attributes, which are None where the scaler leaves out a step.
SCALERS: dict[str, tuple[type, dict[str, Any]]] = {
    scaler.__name__: (scaler, _SCALER | dict.fromkeys(names, _PER_FEATURE))
    for scaler, names in (
        (StandardScaler, ("mean_", "var_", "scale_")),
        (MinMaxScaler, ("min_", "scale_", "data_min_", "data_max_", "data_range_")),
        (MaxAbsScaler, ("max_abs_", "scale_")),
        (RobustScaler, ("center_", "scale_")),
        (Normalizer, ()),
    )
}
_RANDOM_FEATURES = {
    "n_features_in_": int,
    "random_weights_": Array("f", "ID", is_finite=True),
    "random_offset_": Array("f", "D", is_finite=True),
    "_gamma": float,
    "_n_features_out": int,
}
TRANSFORMERS = SCALERS | {"RBFSampler": (RBFSampler, _RANDOM_FEATURES)}
# Attributes that a scaler needs, and the parameter that switches each off.
_NEEDED = {
    "StandardScaler": {"mean_": "with_mean", "scale_": "with_std"},
    "RobustScaler": {"center_": "with_centering", "scale_": "with_scaling"},
    "MinMaxScaler": {"min_": "", "scale_": ""},
    "MaxAbsScaler": {"scale_": ""},
}


def check_transformer(model: Any) -> None:
    """Raise ModelFileError unless a transformer, whose attributes have the right types, can transform rows."""
    kind = type(model).__name__
    if kind == "RBFSampler":
        width = getattr(model, "random_weights_", np.empty((0, 0))).shape[1]
        if not width == model.n_components == model._n_features_out or not hasattr(model, "random_offset_"):
            raise ModelFileError("RBFSampler has not as many random features as it says")
        return
    for name, switch in _NEEDED.get(kind, {}).items():
        if getattr(model, name, None) is None and (not switch or getattr(model, switch)):
            raise ModelFileError(f"{kind} lacks {name}")
    if getattr(model, "scale_", None) is not None and not (model.scale_ > 0).all():
        raise ModelFileError(f"scale_ of {kind} is not over 0")
    for name in ("feature_range", "quantile_range"):
        pair = getattr(model, name, (0, 1))
        if not conforms(pair, tuple[float, float]) or not np.isfinite(pair).all():
            raise ModelFileError(f"{name} of {kind} is not a pair of numbers")
    seen = getattr(model, "n_samples_seen_", 0)
    are_each = isinstance(seen, np.ndarray) and seen.dtype.kind in "iuf" and seen.shape == (model.n_features_in_,)
    if not conforms(seen, float) and not are_each:
        raise ModelFileError(f"n_samples_seen_ of {kind} is not a number")
