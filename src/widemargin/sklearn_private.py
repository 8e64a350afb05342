"""Everything of scikit-learn that has no public name, in one place: what to change when scikit-learn moves it."""

from __future__ import annotations

from typing import Any

from sklearn.base import _clone_parametrized as clone_parametrized
from sklearn.base import _fit_context as fit_context
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads as openmp_effective_n_threads
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils._param_validation import validate_parameter_constraints as check_constraints
from sklearn.utils.validation import _check_feature_names as check_feature_names
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = [
    "FIT_STATE",
    "HasMethods",
    "Interval",
    "StrOptions",
    "check_constraints",
    "check_feature_names",
    "check_sample_weight",
    "clone_parametrized",
    "fit_context",
    "openmp_effective_n_threads",
    "output_of",
    "parameter_names",
    "validate_parameters",
]

# Attributes that scikit-learn sets on estimators beside parameters and fitted attributes.
FIT_STATE = {
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
    "_callback_fit_ctx",
    "_parent_callback_ctx",
    "_metadata_request",
    "_sklearn_version",
    "_sklearn_output_config",
}


def parameter_names(kind: type[Any]) -> list[str]:
    names: list[str] = kind._get_param_names()
    return names


def validate_parameters(model: Any) -> None:
    """Raise ValueError for a parameter that the estimator's own constraints exclude, as ``fit`` does."""
    model._validate_params()


def output_of(step: Any) -> str:
    """What a transformer returns, as set by ``set_output``."""
    return str(getattr(step, "_sklearn_output_config", {}).get("transform", "default"))
