"""Estimators as parameters and fitted attributes, and back; and when a model is fit to predict.

Parameters go through the validation that ``fit`` puts them through. Fitted attributes must be what their table says
(:mod:`widemargin.io.schema`), and what predictions are made of must be finite: then no prediction can fail or leave its
arrays. The same is checked when a model is saved.

The place where a model was trained is not kept: clusters other than a number of ranks, the checkpoint's folder,
callbacks, metadata requests, and the peers of ``GossipSVC`` with their rows.
"""

from __future__ import annotations

from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.exceptions import ModelFileError
from widemargin.io.codec import LARGEST_SIZE
from widemargin.io.records import check_rows, conforms
from widemargin.io.schema import (
    ESTIMATORS,
    EXPANSION,
    LABELS,
    NEEDED,
    NOT_OF_A_STEP,
    OUTPUTS,
    TRANSFORMERS,
    USED,
    Array,
    Each,
    schema_of,
)

_TRAINING = {
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
    "_callback_fit_ctx",
    "_parent_callback_ctx",
    "_metadata_request",
    "_parameters_of_fit",
    "_peers",
    "_last_network",
    "_sklearn_version",
    "_sklearn_output_config",  # kept by the pipeline
}


def check_single(kind: str) -> None:
    """Raise an error unless an estimator of that name can stand alone in a file."""
    if kind not in ESTIMATORS:
        raise ModelFileError(
            f"a {kind} cannot be saved or exported, which is for {', '.join(ESTIMATORS)}, alone or behind scalers in a "
            "pipeline; of a search, take best_estimator_"
        )


def split(model: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Name, parameters and fitted attributes of an estimator that is fitted and in order."""
    kind = type(model).__name__
    if schema_of(kind)[0] is not type(model):
        raise ModelFileError(f"this {kind} is a class of its own, of which a model file knows nothing")
    check_is_fitted(model)
    schema = schema_of(kind)[1]
    state: dict[str, Any] = model.__getstate__()
    parameters = {}
    for name in sorted(model.get_params(deep=False)):
        parameters[name] = _kept(name, state.pop(name), state.get("graph_"))
    unknown = sorted(set(state) - set(schema) - _TRAINING)
    if unknown:
        raise ModelFileError(f"{kind}.{unknown[0]} is not known to the format of model files")
    attributes = {name: state[name] for name in sorted(state) if name in schema}
    verify(model)
    return kind, parameters, attributes


def _kept(name: str, value: Any, graph: Any) -> Any:
    """A parameter as a file has it, without the place where the model was trained."""
    if name == "checkpoint" or (name == "cluster" and not isinstance(value, Integral)):
        return None
    if name == "topology" and hasattr(value, "edges") and conforms(graph, dict[int, list[int]]):
        # Nodes of the user's graph may be text; the fit has numbered them.
        return [[one, other] for one, others in graph.items() for other in others if one < other]
    return value


def joined(kind: str, parameters: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """The estimator of these parts, checked through and through."""
    cls, schema = schema_of(kind)
    names = set(cls._get_param_names())
    for name in sorted((set(parameters) - names) | (set(attributes) - set(schema))):
        raise ModelFileError(f"{kind} has no {name[:60]!r}; a newer widemargin may have written the file")
    model = cls(**parameters)
    try:
        model._validate_params()
    except ValueError as error:
        raise ModelFileError(str(error)[:300].rstrip(".")) from None
    for name in sorted(attributes):
        setattr(model, name, attributes[name])
    verify(model)
    return model


# -- is it fit to predict? ---------------------------------------------------------------------------------------------


def verify(model: Any) -> None:
    """Raise an error unless every fitted attribute is what it should be, and predictions can be made of them."""
    kind, attributes = type(model).__name__, vars(model)
    schema = schema_of(kind)[1]
    sizes: dict[str, int] = {"E": 2, "I": _features(attributes)}
    if kind in TRANSFORMERS:
        _check_attributes(kind, schema, attributes, sizes)
        _verify_transformer(kind, model, sizes["I"])
        return
    missing = sorted(NEEDED - set(attributes))
    if missing:
        raise ModelFileError(f"{kind} lacks {missing[0]}")
    n_classes = _n_classes(attributes["classes_"])
    n_pairs = n_classes * (n_classes - 1) // 2
    sizes["K"], sizes["P"] = n_classes, n_pairs if not model._one_vs_rest or n_classes == 2 else n_classes
    features = attributes.get("_map")
    sizes["D"] = sizes["I"] if features is None else _mapped(features, sizes["I"])
    _check_attributes(kind, schema, attributes, sizes)
    if "coef_" not in attributes and not (set(schema) >= EXPANSION and set(attributes) >= EXPANSION):
        raise ModelFileError(f"{kind} has nothing to predict with")
    if kind == "GossipSVC" and ("_map" not in attributes or (features is None) != (model.kernel == "linear")):
        raise ModelFileError("GossipSVC has random features that do not belong to its kernel, or lacks them")
    if len(model.parts_) != sizes["P"]:
        raise ModelFileError(f"{kind} has {len(model.parts_)} results for {sizes['P']} problems")
    if EXPANSION & set(attributes):
        _verify_expansion(attributes, sizes)
    _verify_models(model, sizes)


def _features(attributes: dict[str, Any]) -> int:
    n_features: Any = attributes.get("n_features_in_")
    if not conforms(n_features, int) or not 1 <= n_features <= LARGEST_SIZE:
        raise ModelFileError("n_features_in_ is not a number of features")
    return int(n_features)


def _n_classes(classes: Any) -> int:
    """How many there are: two or more, all of one kind, in ascending order."""
    is_vector = isinstance(classes, np.ndarray) and classes.ndim == 1 and classes.dtype.kind in LABELS
    if not is_vector or len(classes) < 2:
        raise ModelFileError("classes_ is not a vector of two labels or more")
    items = classes.tolist()
    is_text = all(isinstance(item, str) for item in items)
    is_number = all(isinstance(item, bool | int | float) for item in items)
    if not (is_text or is_number) or not all(one < other for one, other in pairwise(items)):
        raise ModelFileError("classes_ are not different labels of one kind in ascending order")
    return len(items)


def _check_attributes(kind: str, schema: dict[str, Any], attributes: dict[str, Any], sizes: dict[str, int]) -> None:
    for name, form in schema.items():
        if name not in attributes:
            continue
        value = attributes[name]
        is_left_out = value is None and kind in TRANSFORMERS
        if isinstance(form, Array):
            is_right = is_left_out or _is_array(value, form, sizes)
        elif isinstance(form, Each):
            is_one = sizes["P"] == 1 and conforms(value, int if form.kinds == "iu" else float)
            is_right = is_one or _is_array(value, Array(form.kinds, "P"), sizes)
        else:
            is_right = form is object or conforms(value, form)
        if not is_right:
            raise ModelFileError(f"{name} of {kind} is of a wrong type or shape, or not finite")


def _is_array(value: Any, form: Array, sizes: dict[str, int]) -> bool:
    """Whether an array has its form; free letters take the sizes that they meet first."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in form.kinds or value.ndim != len(form.shape):
        return False
    if any(sizes.setdefault(letter, size) != size for letter, size in zip(form.shape, value.shape, strict=True)):
        return False
    if form.kinds == "O":
        return all(isinstance(item, str) for item in value)
    if form.kinds == "f" and value.dtype == np.float16:
        return False
    return (not form.is_finite or bool(np.isfinite(value).all())) and (
        form.least == -np.inf or bool((value >= form.least).all())
    )


def _mapped(features: Any, n_features: int) -> int:
    """The number of random features."""
    if not isinstance(features, RBFSampler):
        raise ModelFileError("the random features of GossipSVC are none")
    verify(features)
    if features.n_features_in_ != n_features:
        raise ModelFileError("the random features of GossipSVC are those of other inputs")
    return int(features.n_components)


def _verify_transformer(kind: str, model: Any, n_features: int) -> None:
    if kind == "RBFSampler":
        width = getattr(model, "random_weights_", np.empty((0, 0))).shape[1]
        if not width == model.n_components == model._n_features_out or not hasattr(model, "random_offset_"):
            raise ModelFileError("RBFSampler has not as many random features as it says")
        return
    for name, switch in USED.get(kind, {}).items():
        if getattr(model, name, None) is None and (not switch or getattr(model, switch)):
            raise ModelFileError(f"{kind} lacks {name}")
    if (getattr(model, "scale_", None) is not None) and not (model.scale_ > 0).all():
        raise ModelFileError(f"scale_ of {kind} is not over 0")
    for name in ("feature_range", "quantile_range"):
        pair = getattr(model, name, (0, 1))
        if not conforms(pair, tuple[float, float]) or not np.isfinite(pair).all():
            raise ModelFileError(f"{name} of {kind} is not a pair of numbers")
    seen = getattr(model, "n_samples_seen_", 0)
    if not conforms(seen, float) and not _is_array(seen, Array("iuf", "I"), {"I": n_features}):
        raise ModelFileError(f"n_samples_seen_ of {kind} is not a number")


def _verify_expansion(attributes: dict[str, Any], sizes: dict[str, int]) -> None:
    """Support vectors: as many as coefficients, with as many columns as the input."""
    absent = sorted(EXPANSION - set(attributes))
    if absent:
        raise ModelFileError(f"support vectors are there without {absent[0]}")
    kernel, vectors, n_support = attributes["kernel_"], attributes["support_vectors_"], sizes["N"]
    if kernel.name == "precomputed":
        last = attributes["support_"].max(initial=-1) if "support_" in attributes else n_support - 1
        if getattr(vectors, "shape", None) != (0, 0) or last >= sizes["I"]:
            raise ModelFileError("support vectors of a precomputed kernel are not columns of it")
        return
    check_rows(vectors, sizes["I"])
    if vectors.shape[0] != n_support:
        raise ModelFileError(f"there are {vectors.shape[0]} support vectors and coefficients of {n_support}")


def _verify_models(model: Any, sizes: dict[str, int]) -> None:
    """The models of all problems, levels and peers have the widths of the whole."""
    levels = getattr(model, "levels_", [])
    are_lists = bool(levels) and all(isinstance(each, list) for each in levels)
    if hasattr(model, "levels_") and (not levels or (len(model.classes_) > 2) != are_lists):
        raise ModelFileError("levels_ are not those of its problems")
    if are_lists and (len(levels) != sizes["P"] or not all(levels)):
        raise ModelFileError("levels_ are not there for each problem")
    for level in [each for some in levels for each in some] if are_lists else levels:
        check_rows(level.among.X, sizes["I"])
    for part in model.parts_:
        if hasattr(part.model, "points"):
            check_rows(part.model.points.X, sizes["I"])
        elif part.model.coef.shape != (sizes["D"],):
            raise ModelFileError("a result has a model of another width")
    for node in getattr(model, "nodes_", {}).values():
        shapes = node.coef_.shape, node.intercept_.shape
        if shapes != ((sizes["P"], sizes["D"]), (sizes["P"],)):
            raise ModelFileError("a node has a model of another width")


# -- pipelines ---------------------------------------------------------------------------------------------------------


def steps_of(pipeline: Pipeline) -> list[tuple[str, Any]]:
    """The steps of a pipeline that a file may hold: scalers, then one of our estimators."""
    check_steps(pipeline.steps)
    return list(pipeline.steps)


def check_steps(steps: list[tuple[str, Any]]) -> None:
    """Raise an error unless these are scalers in front of an estimator, all of the same features."""
    kinds = [type(step).__name__ for _, step in steps]
    scalers = set(TRANSFORMERS) - set(NOT_OF_A_STEP)
    if not kinds or kinds[-1] not in ESTIMATORS or not set(kinds[:-1]) <= scalers:
        raise ModelFileError(
            f"a pipeline of {', '.join(kinds) or 'nothing'} cannot be saved or exported: it must be one of "
            f"{', '.join(ESTIMATORS)}, behind any of {', '.join(sorted(scalers))}"
        )
    names = [name for name, _ in steps]
    taken = {*Pipeline._get_param_names()}
    are_names = all(isinstance(name, str) and name and "__" not in name and name not in taken for name in names)
    if not are_names or len(set(names)) != len(names):
        raise ModelFileError("steps of a pipeline have no proper names")
    if len({step.n_features_in_ for _, step in steps}) != 1:
        raise ModelFileError("steps of a pipeline are fitted to different numbers of features")
    if len({tuple(step.feature_names_in_) for _, step in steps if hasattr(step, "feature_names_in_")}) > 1:
        raise ModelFileError("steps of a pipeline are fitted to features of different names")


def output_of(step: Any) -> str:
    """What a scaler gives out, as set by ``set_output``."""
    config = getattr(step, "_sklearn_output_config", {})
    return str(config.get("transform", "default"))


def set_output(step: Any, kind: Any) -> None:
    """Let a scaler give out that again."""
    if kind not in OUTPUTS:
        raise ModelFileError("a scaler gives out something unknown")
    if kind != "default":
        step.set_output(transform=kind)
