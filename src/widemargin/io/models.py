"""Estimators as parameters and fitted attributes, and back; and whether a model can predict.

Parameters pass the validation of ``fit``. Fitted attributes must have the types and shapes of their descriptor
(:mod:`widemargin.estimators.registry`), and what predictions are made of must be finite: then no prediction can fail or
read beyond its arrays. The same is checked when a model is saved.

What belongs to the place of training is not saved: clusters other than a number of ranks, the checkpoint's folder,
callbacks, metadata requests, and what a descriptor excludes.
"""

from __future__ import annotations

from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.codec import MAX_DIMENSION_SIZE, check_rows, conforms, record
from widemargin.estimators import registry
from widemargin.exceptions import ModelFileError
from widemargin.io.transformers import SCALERS, TRANSFORMERS, check_transformer
from widemargin.sklearn_private import FIT_STATE, parameter_names, validate_parameters

_REQUIRED = {"classes_", "intercept_", "certificate_", "stop_reason_", "n_iter_", "parts_", "history_", "cost_"}
_EXPANSION = {"kernel_", "dual_coef_", "support_vectors_"}
_OUTPUTS = ("default", "pandas", "polars")
for _splitter in (KFold, StratifiedKFold):  # which check their parameters themselves
    record(optional=("n_splits", "shuffle", "random_state"))(_splitter)


def check_single(model: Any) -> None:
    """Raise ModelFileError unless a file may hold an estimator of this kind by itself."""
    kind = type(model).__name__
    if registry.descriptor_named(kind) is None:
        raise ModelFileError(
            f"a {kind} cannot be saved or exported, only {', '.join(registry.descriptors())}, alone or behind scalers "
            "in a pipeline; of a search, take best_estimator_"
        )


def schema_of(kind: str) -> tuple[Any, dict[str, Any], registry.Descriptor | None]:
    """The class of that name, its fitted attributes and, for an estimator, its descriptor."""
    if kind in TRANSFORMERS:
        return *TRANSFORMERS[kind], None
    descriptor = registry.descriptor_named(kind)
    if descriptor is None:
        raise ModelFileError(f"{kind[:60]!r} is not an estimator that widemargin knows")
    return descriptor.estimator, registry.fitted_attributes(descriptor.estimator), descriptor


def split(model: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Name, parameters and fitted attributes of a valid, fitted estimator."""
    kind = type(model).__name__
    cls, schema, descriptor = schema_of(kind)
    if cls is not type(model):
        raise ModelFileError(f"this {kind} is a class of its own, which is not registered")
    check_is_fitted(model)
    parameters = dict(sorted(model.get_params(deep=False).items()))
    state: dict[str, Any] = {name: each for name, each in model.__getstate__().items() if name not in parameters}
    not_saved = set(FIT_STATE)
    if descriptor is not None:
        not_saved |= set(descriptor.not_saved)
        parameters |= descriptor.saved_parameters(model)
    for name in ("checkpoint", "cluster"):
        if name in parameters and not isinstance(parameters[name], Integral):
            parameters[name] = None
    unknown = sorted(set(state) - set(schema) - not_saved)
    if unknown:
        raise ModelFileError(f"{kind}.{unknown[0]} is not among the fitted attributes of its descriptor")
    verify(model)
    return kind, parameters, {name: state[name] for name in sorted(state) if name in schema}


def joined(kind: str, parameters: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """The estimator with these parameters and fitted attributes, all of them checked."""
    cls, schema, descriptor = schema_of(kind)
    for name in sorted((set(parameters) - set(parameter_names(cls))) | (set(attributes) - set(schema))):
        raise ModelFileError(f"{kind} has no {name[:60]!r}; a newer widemargin may have written the file")
    model = cls(**({} if descriptor is None else descriptor.earlier) | parameters)
    try:
        validate_parameters(model)
    except ValueError as error:
        raise ModelFileError(str(error)[:300].rstrip(".")) from None
    if "multi_class_" in schema:  # files of earlier versions lack it
        attributes = {"multi_class_": model.multi_class, **attributes}
    for name in sorted(attributes):
        setattr(model, name, attributes[name])
    verify(model)
    return model


# -- can it predict? ---------------------------------------------------------------------------------------------------


def verify(model: Any) -> None:
    """Raise ModelFileError unless every fitted attribute is valid and predictions can be made of them."""
    kind, attributes = type(model).__name__, vars(model)
    _, schema, descriptor = schema_of(kind)
    sizes: dict[str, int] = {"E": 2, "I": _n_features(attributes)}
    if descriptor is None:
        _check_attributes(kind, schema, attributes, sizes)
        check_transformer(model)
        return
    missing = sorted(_REQUIRED - set(attributes))
    if missing:
        raise ModelFileError(f"{kind} lacks {missing[0]}")
    sizes["K"] = _n_classes(attributes["classes_"])
    if "multi_class_" in schema:  # which the number of problems depends on
        _check_attributes(kind, {"multi_class_": schema["multi_class_"]}, attributes, sizes)
    sizes["P"] = len(model._parts)
    maps = [attributes.get(name) for name, form in schema.items() if isinstance(form, registry.FeatureMap)]
    sizes["D"] = next((_n_mapped(each, sizes["I"]) for each in maps if each is not None), sizes["I"])
    _check_attributes(kind, schema, attributes, sizes)
    if "coef_" not in attributes and not (set(schema) >= _EXPANSION and set(attributes) >= _EXPANSION):
        raise ModelFileError(f"{kind} has neither coefficients nor support vectors")
    if "training_" in attributes and len(attributes["training_"].weight) != sizes["K"]:
        raise ModelFileError(f"{kind} has counts of training rows for another number of classes")
    if len(model.parts_) != sizes["P"]:
        raise ModelFileError(f"{kind} has {len(model.parts_)} results for {sizes['P']} problems")
    # A linear model scores by its coefficients; those of its rows are beside them.
    beside = {"dual_coef_"} if "coef_" in attributes else set()
    if (_EXPANSION - beside) & set(attributes):
        _verify_expansion(attributes, sizes)
    for part in model.parts_:
        if hasattr(part.model, "points"):
            check_rows(part.model.points.X, sizes["I"])
        elif part.model.coef.shape != (sizes["D"],):
            raise ModelFileError("a result has a model of another width")
    descriptor.check(model, sizes)


def _n_features(attributes: dict[str, Any]) -> int:
    n_features: Any = attributes.get("n_features_in_")
    if not conforms(n_features, int) or not 1 <= n_features <= MAX_DIMENSION_SIZE:
        raise ModelFileError("n_features_in_ is not a number of features")
    return int(n_features)


def _n_classes(classes: Any) -> int:
    """How many there are: two or more, all of one kind, in ascending order."""
    is_vector = isinstance(classes, np.ndarray) and classes.ndim == 1 and classes.dtype.kind in registry.LABELS
    if not is_vector or len(classes) < 2:
        raise ModelFileError("classes_ is not a vector of two labels or more")
    items = classes.tolist()
    is_text = all(isinstance(item, str) for item in items)
    is_number = all(isinstance(item, bool | int | float) for item in items)
    if not (is_text or is_number) or not all(one < other for one, other in pairwise(items)):
        raise ModelFileError("classes_ are not different labels of one kind in ascending order")
    return len(items)


def _check_attributes(kind: str, schema: dict[str, Any], attributes: dict[str, Any], sizes: dict[str, int]) -> None:
    for name, form in ((name, form) for name, form in schema.items() if name in attributes):
        value = attributes[name]
        if isinstance(form, registry.Array):
            is_right = (value is None and kind in TRANSFORMERS) or _is_array(value, form, sizes)
        elif isinstance(form, registry.Each):
            is_one = sizes["P"] == 1 and conforms(value, int if form.kinds == "iu" else float)
            is_right = is_one or _is_array(value, registry.Array(form.kinds, "P"), sizes)
        elif isinstance(form, registry.FeatureMap):
            is_right = value is None or isinstance(value, RBFSampler)
        else:
            is_right = form is object or conforms(value, form)
        if not is_right:
            raise ModelFileError(f"{name} of {kind} is of a wrong type or shape, or not finite")


def _is_array(value: Any, form: registry.Array, sizes: dict[str, int]) -> bool:
    """Whether an array has its form; a free letter takes the first size that it meets."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in form.kinds or value.ndim != len(form.shape):
        return False
    if any(sizes.setdefault(letter, size) != size for letter, size in zip(form.shape, value.shape, strict=True)):
        return False
    if form.kinds == "O":
        return all(isinstance(item, str) for item in value)
    if (form.kinds == "f" and value.dtype == np.float16) or (form.is_finite and not np.isfinite(value).all()):
        return False
    return form.least == -np.inf or bool((value >= form.least).all())


def _n_mapped(features: Any, n_features: int) -> int:
    if not isinstance(features, RBFSampler):
        raise ModelFileError("the random features are not an RBFSampler")
    verify(features)
    if features.n_features_in_ != n_features:
        raise ModelFileError("the random features are those of another number of inputs")
    return int(features.n_components)


def _verify_expansion(attributes: dict[str, Any], sizes: dict[str, int]) -> None:
    """Support vectors: as many as coefficients, with as many columns as the input."""
    absent = sorted(_EXPANSION - set(attributes))
    if absent:
        raise ModelFileError(f"it has support vectors without {absent[0]}")
    kernel, vectors, n_support = attributes["kernel_"], attributes["support_vectors_"], sizes["N"]
    if kernel.name == "precomputed":
        last = attributes["support_"].max(initial=-1) if "support_" in attributes else n_support - 1
        if getattr(vectors, "shape", None) != (0, 0) or last >= sizes["I"]:
            raise ModelFileError("support vectors of a precomputed kernel are not columns of it")
        return
    check_rows(vectors, sizes["I"])
    if vectors.shape[0] != n_support:
        raise ModelFileError(f"there are {vectors.shape[0]} support vectors and coefficients of {n_support}")


# -- pipelines ---------------------------------------------------------------------------------------------------------


def check_steps(steps: list[tuple[str, Any]]) -> None:
    """Raise ModelFileError unless these are scalers in front of an estimator, all of the same features."""
    kinds = [type(step).__name__ for _, step in steps]
    if not kinds or registry.descriptor_named(kinds[-1]) is None or not set(kinds[:-1]) <= set(SCALERS):
        raise ModelFileError(
            f"a pipeline of {', '.join(kinds) or 'nothing'} cannot be saved or exported: it must be one of "
            f"{', '.join(registry.descriptors())}, behind any of {', '.join(sorted(SCALERS))}"
        )
    names, taken = [name for name, _ in steps], set(parameter_names(Pipeline))
    are_names = all(isinstance(name, str) and name and "__" not in name and name not in taken for name in names)
    if not are_names or len(set(names)) != len(names):
        raise ModelFileError("steps of a pipeline have invalid names")
    if len({step.n_features_in_ for _, step in steps}) != 1:
        raise ModelFileError("steps of a pipeline are fitted to different numbers of features")
    if len({tuple(step.feature_names_in_) for _, step in steps if hasattr(step, "feature_names_in_")}) > 1:
        raise ModelFileError("steps of a pipeline are fitted to features of different names")


def set_output(step: Any, kind: Any) -> None:
    """Let a scaler return that kind of rows."""
    if kind not in _OUTPUTS:
        raise ModelFileError("a scaler returns an unknown kind of rows")
    if kind != "default":
        step.set_output(transform=kind)
