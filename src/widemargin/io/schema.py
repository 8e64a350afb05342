"""What belongs to each estimator that a model file may hold, as tables: the fitted attributes, and of which shape.

Letters of shapes stand for sizes that must agree: P problems, D coefficients of each, I features of the input, K
classes; the others are free, and equal wherever they stand.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate
from widemargin.solvers.partition_merge import Level
from widemargin.solvers.run import Result
from widemargin.strategies.peers import Node


class Array(NamedTuple):
    """An array: kinds of numbers, as NumPy's letters, and a letter for the size of each dimension."""

    kinds: str
    shape: str
    is_finite: bool = False
    least: float = -np.inf


class Each(NamedTuple):
    """A number for each problem: a number for one, a vector for several."""

    kinds: str


LABELS = "biufUO"
_COMMON: dict[str, Any] = {
    "n_features_in_": int,
    "feature_names_in_": Array("O", "I"),
    "classes_": Array(LABELS, "K"),
    "intercept_": Array("f", "P", is_finite=True),
    "certificate_": Certificate,
    "stop_reason_": str,
    "n_iter_": int,
    "parts_": list[Result],
    "history_": list[dict[str, float]],
    "cost_": Ledger,
}
_LINEAR = _COMMON | {"coef_": Array("f", "PD", is_finite=True)}
_KERNEL = _LINEAR | {
    "kernel_": Kernel,
    "support_": Array("iu", "N", least=0),
    "support_vectors_": object,  # by check_rows
    "dual_coef_": Array("f", "PN", is_finite=True),
    "n_support_": Each("iu"),
    "support_labels_": Array(LABELS, "N"),
    "support_weight_": Array("f", "N"),
    "device_": str,
}
_SPARSE = _LINEAR | {
    "alpha_": Each("f"),
    "alpha_max_": Each("f"),
    "n_working_": Each("iu"),
    "support_": Array("iu", "S", least=0),
    "n_features_selected_": int,
}
# Of each estimator: where it lives, and its fitted attributes.
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "HardMarginSVC": ("hard_margin", _LINEAR),
    "NuMarginSVC": ("nu_margin", _LINEAR | {"nu_": Each("f"), "cap_": Each("f")}),
    "KernelSVC": (
        "kernel",
        _KERNEL | dict.fromkeys(("C_", "slack_", "violation_", "kernel_error_"), Each("f")),
    ),
    "MarginDistributionSVC": ("margin_distribution", _KERNEL | {"levels_": list[Level] | list[list[Level]]}),
    "SparseSVC": ("sparse", _SPARSE),
    "SparseSVCCV": (
        "sparse_path",
        _SPARSE
        | {
            "_chosen": float,
            "alphas_": Array("f", "A"),
            "error_path_": Array("f", "AF"),
            "n_selected_path_": Array("iu", "AF"),
        },
    ),
    "DebiasedSparseSVC": (
        "debiased",
        _LINEAR
        | dict.fromkeys(("coef_debiased_", "coef_naive_", "standard_error_", "pvalue_"), Array("f", "PD"))
        | {
            "coef_interval_": Array("f", "PDE"),
            "intercept_standard_error_": Array("f", "P"),
            "selected_": Array("b", "PD"),
            "alpha_": Each("f"),
            "n_machines_": int,
            "n_rows_": float,
        },
    ),
    "GossipSVC": (
        "gossip",
        _LINEAR
        | {
            "_map": RBFSampler | None,
            "nodes_": dict[int, Node],
            "consensus_": float,
            "graph_": dict[int, list[int]],
        },
    ),
}
NEEDED = set(_COMMON) - {"feature_names_in_"}
EXPANSION = {"kernel_", "dual_coef_", "support_vectors_"}

_NUMBER_EACH = Array("f", "I", is_finite=True)
_SCALER: dict[str, Any] = {"n_features_in_": int, "feature_names_in_": Array("O", "I"), "n_samples_seen_": object}
OUTPUTS = ("default", "pandas", "polars")
# What stands in front of an estimator, and the random features of GossipSVC; None where a scaler leaves a step out.
TRANSFORMERS: dict[str, tuple[type, dict[str, Any]]] = {
    "StandardScaler": (StandardScaler, _SCALER | dict.fromkeys(("mean_", "var_", "scale_"), _NUMBER_EACH)),
    "MinMaxScaler": (
        MinMaxScaler,
        _SCALER | dict.fromkeys(("min_", "scale_", "data_min_", "data_max_", "data_range_"), _NUMBER_EACH),
    ),
    "MaxAbsScaler": (MaxAbsScaler, _SCALER | dict.fromkeys(("max_abs_", "scale_"), _NUMBER_EACH)),
    "RobustScaler": (RobustScaler, _SCALER | dict.fromkeys(("center_", "scale_"), _NUMBER_EACH)),
    "Normalizer": (Normalizer, _SCALER),
    "RBFSampler": (
        RBFSampler,
        {
            "n_features_in_": int,
            "random_weights_": Array("f", "ID", is_finite=True),
            "random_offset_": Array("f", "D", is_finite=True),
            "_gamma": float,
            "_n_features_out": int,
        },
    ),
}
NOT_OF_A_STEP = ("RBFSampler",)
USED = {
    "StandardScaler": {"mean_": "with_mean", "scale_": "with_std"},
    "RobustScaler": {"center_": "with_centering", "scale_": "with_scaling"},
    "MinMaxScaler": {"min_": "", "scale_": ""},
    "MaxAbsScaler": {"scale_": ""},
}


def schema_of(kind: str) -> tuple[Any, dict[str, Any]]:
    """The class of that name, and what it has when fitted; an error for any name not listed."""
    if kind in TRANSFORMERS:
        return TRANSFORMERS[kind]
    if kind not in ESTIMATORS:
        raise ModelFileError(f"{kind[:60]!r} is no estimator that a model file may hold")
    module, attributes = ESTIMATORS[kind]
    return getattr(import_module(f"widemargin.estimators.{module}"), kind), attributes
