"""A fitted model as an ONNX graph, for predictions without Python: ``to_onnx``.

The graph takes ``X``, float32 of shape (N, n_features), and gives ``label`` of shape (N,) and ``scores``, those of
``decision_function``: (N,) for two classes, (N, n_classes) for more. It is made of primitive operators of the standard
set :data:`OPSET`, which every runtime has, and holds neither certificates nor history.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin import __version__
from widemargin.exceptions import ModelFileError
from widemargin.io.models import check_single, check_steps
from widemargin.kernels.functions import Kernel
from widemargin.strategies.parts import Parts

OPSET = 17
_IR = 8  # the format that came with the operator set, which runtimes since 2022 read
_MAX_BYTES = (1 << 31) - 1  # of a protobuf


def to_onnx(model: Any, *, precision: Literal["float32", "float64"] = "float32") -> Any:
    """Export a fitted model to ONNX.

    Parameters
    ----------
    model : estimator or Pipeline
        Any estimator of widemargin, or a pipeline of StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler or
        Normalizer in front of one. A kernel that is a function cannot be exported.
    precision : {"float32", "float64"}, default="float32"
        Type of all numbers within the graph, and of ``scores``; the input is float32. With float64 scores are closer
        to ``decision_function``, but runtimes for accelerators may lack it.

    Returns
    -------
    graph : onnx.ModelProto
        Write it with ``onnx.save(graph, "model.onnx")``, run it with
        ``onnxruntime.InferenceSession(graph.SerializeToString())``.

    See Also
    --------
    save : A file that holds the whole model, for Python.

    Examples
    --------
    >>> from widemargin import HardMarginSVC, to_onnx
    >>> model = HardMarginSVC().fit([[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"])
    >>> [output.name for output in to_onnx(model).graph.output]
    ['label', 'scores']
    """
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision={precision!r} must be 'float32' or 'float64'.")
    if isinstance(model, Pipeline):
        check_is_fitted(model)
        check_steps(model.steps)
        *scalers, final = (step for _, step in model.steps)
    else:
        check_single(model)
        check_is_fitted(model)
        scalers, final = [], model
    if not type(final)._scores.__module__.startswith("widemargin."):
        raise ModelFileError(f"{type(final).__name__} computes scores by itself, which ONNX cannot express.")
    graph = _Graph(np.dtype(precision))
    rows = "X" if precision == "float32" else graph.add("Cast", "X", to=graph.number_type)
    for scaler in scalers:
        rows = _scaled(graph, rows, scaler)
    return graph.finished(_scores(graph, rows, final), final)


class _Graph:
    """The nodes and constants of a graph that is being built."""

    def __init__(self, dtype: np.dtype) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ImportError(f"to_onnx needs onnx ({error}): pip install 'widemargin[onnx]'.") from error
        self.onnx, self.dtype = onnx, dtype
        self.number_type = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def numbers(self, values: Any) -> str:
        return self.constant(np.asarray(values, dtype=self.dtype))

    def constant(self, values: np.ndarray) -> str:
        """Add a constant of any type; text becomes ONNX's strings."""
        name = f"constant_{len(self.constants)}"
        if values.dtype.kind in "UO":
            text: Any = [str(value).encode("utf8") for value in values]
            tensor = self.onnx.helper.make_tensor(name, self.onnx.TensorProto.STRING, values.shape, text)
        else:
            tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name)
        self.constants.append(tensor)
        return name

    def affine(self, rows: str, coef: np.ndarray, intercept: np.ndarray) -> str:
        """``rows @ coef.T + intercept``."""
        return self.add("Add", self.add("MatMul", rows, self.numbers(coef.T)), self.numbers(intercept))

    def row_sums(self, values: str) -> str:
        return self.add("ReduceSum", values, self.constant(np.array([1])), keepdims=1)

    def normalised(self, rows: str, norm: str = "l2", least: float = 0.0) -> str:
        """Rows of norm 1; zero rows and rows shorter than ``least`` stay as they are."""
        largest = self.add("ReduceMax", self.add("Abs", rows), axes=[1], keepdims=1)
        # Divided by the largest entry first: squares of 1e-23 are 0 in float32, and those of 1e20 infinite.
        has_length = self.add("Greater", largest, self.numbers(0.0))
        scaled = self.add("Div", rows, self.add("Where", has_length, largest, self.numbers(1.0)))
        if norm == "l2":
            length = self.add("Sqrt", self.row_sums(self.add("Mul", scaled, scaled)))
        else:
            length = self.row_sums(self.add("Abs", scaled)) if norm == "l1" else self.numbers(1.0)
        unit = self.add("Div", scaled, self.add("Max", length, self.numbers(1.0)))  # zero rows have a length under 1
        if least == 0.0:
            return unit
        is_short = self.add("Less", self.add("Mul", largest, length), self.numbers(least))
        return self.add("Where", is_short, rows, unit)

    def finished(self, scores: str, model: Any) -> Any:
        """The whole model, with labels from scores, checked by onnx."""
        helper, kinds, n_classes = self.onnx.helper, self.onnx.TensorProto, len(model.classes_)
        if n_classes == 2:
            scores = self.add("Squeeze", scores, self.constant(np.array([1])), name="scores")
            which = self.add("Cast", self.add("Greater", scores, self.numbers(0.0)), to=kinds.INT64)
        else:
            scores = self.add("Identity", scores, name="scores")
            votes = self.add("Round", scores) if model._parts.are_votes else scores  # as Parts.winners
            which = self.add("ArgMax", votes, axis=1, keepdims=0)
        labels = _labels(model.classes_)
        self.add("Gather", self.constant(labels), which, name="label", axis=0)
        is_text = labels.dtype.kind in "UO"
        label_type = kinds.STRING if is_text else helper.np_dtype_to_tensor_dtype(labels.dtype)
        width = ["N"] if n_classes == 2 else ["N", n_classes]
        typed = helper.make_tensor_value_info
        inputs = [typed("X", kinds.FLOAT, ["N", int(model.n_features_in_)])]
        outputs = [typed("label", label_type, ["N"]), typed("scores", self.number_type, width)]
        graph = helper.make_graph(self.nodes, type(model).__name__, inputs, outputs, self.constants)
        versions = {"opset_imports": [helper.make_opsetid("", OPSET)], "ir_version": _IR}
        whole = helper.make_model(graph, producer_name="widemargin", producer_version=__version__, **versions)
        if whole.ByteSize() > _MAX_BYTES:
            raise ModelFileError(
                f"The graph takes {whole.ByteSize()} bytes and ONNX allows {_MAX_BYTES}: use fewer support vectors "
                "(KernelSVC(max_support=...)), or widemargin.save."
            )
        self.onnx.checker.check_model(whole, full_check=True)
        return whole


def _labels(classes: np.ndarray) -> np.ndarray:
    """Classes in a type that ONNX has: text, booleans, int64 or floats."""
    if classes.dtype.kind == "O" and not isinstance(classes[0], str):
        classes = np.array(classes.tolist())
    if classes.dtype.kind in "iu":
        return classes.astype(np.int64)
    return classes.astype(np.float32) if classes.dtype == np.float16 else classes


def _scaled(graph: _Graph, rows: str, scaler: Any) -> str:
    kind = type(scaler).__name__
    if kind == "Normalizer":
        # scikit-learn does not scale shorter rows; the limit depends on their type.
        return graph.normalised(rows, scaler.norm, least=10 * float(np.finfo(graph.dtype).eps))
    if kind == "MinMaxScaler":
        rows = graph.add("Add", graph.add("Mul", rows, graph.numbers(scaler.scale_)), graph.numbers(scaler.min_))
        return _clipped(graph, rows, scaler.feature_range) if scaler.clip else rows
    is_centred = scaler.with_mean if kind == "StandardScaler" else getattr(scaler, "with_centering", False)
    is_scaled = scaler.with_std if kind == "StandardScaler" else getattr(scaler, "with_scaling", True)
    if is_centred:
        rows = graph.add("Sub", rows, graph.numbers(scaler.mean_ if kind == "StandardScaler" else scaler.center_))
    if is_scaled:
        rows = graph.add("Div", rows, graph.numbers(scaler.scale_))
    return _clipped(graph, rows, (-1.0, 1.0)) if getattr(scaler, "clip", False) else rows


def _clipped(graph: _Graph, rows: str, between: tuple[float, float]) -> str:
    return graph.add("Clip", rows, *(graph.numbers(end) for end in between))


def _scores(graph: _Graph, rows: str, model: Any) -> str:
    """Scores of rows: a column for two classes, else one for each class."""
    features, scale = getattr(model, "_map", None), 1.0
    if features is not None:
        rows = graph.add("Cos", graph.affine(rows, features.random_weights_.T, features.random_offset_))
        scale = (2.0 / features.n_components) ** 0.5
    if hasattr(model, "coef_"):
        scores = graph.affine(rows, scale * model.coef_, model.intercept_)
    elif model.dual_coef_.shape[1] == 0:  # no support vectors: the intercept for every row
        nothing = graph.add("Mul", graph.row_sums(rows), graph.numbers(0.0))
        scores = graph.add("Add", nothing, graph.numbers(model.intercept_))
    else:
        scores = graph.affine(_kernel(graph, rows, model), model.dual_coef_, model.intercept_)
    return _votes(graph, scores, model._parts) if model._parts.are_votes else scores


def _votes(graph: _Graph, scores: str, parts: Parts) -> str:
    """Votes of pairs for each class, and sums of scores, as :meth:`Parts.class_scores` combines them."""
    first, second = np.zeros((2, len(parts), parts.n_classes))
    for k, (one, other) in enumerate(parts.pairs):
        first[k, one] = second[k, other] = 1.0
    is_first = graph.add("Cast", graph.add("Greater", scores, graph.numbers(0.0)), to=graph.number_type)
    votes = graph.affine(is_first, (first - second).T, second.sum(axis=0))  # or for the second class
    sums = graph.add("MatMul", scores, graph.numbers(first - second))
    reach = graph.add("Mul", graph.add("Add", graph.add("Abs", sums), graph.numbers(1.0)), graph.numbers(3.0))
    return graph.add("Add", votes, graph.add("Div", sums, reach))


def _kernel(graph: _Graph, rows: str, model: Any) -> str:
    kernel: Kernel = model.kernel_
    if kernel.function is not None:
        raise ModelFileError(f"kernel={model.kernel!r} is a function, which cannot be exported: use a kernel by name.")
    if kernel.name == "precomputed":
        support = getattr(model, "support_", np.arange(model.dual_coef_.shape[1]))
        return graph.add("Gather", rows, graph.constant(support.astype(np.int64)), axis=1)
    vectors = model.support_vectors_
    Z = np.asarray(vectors.toarray() if sp.issparse(vectors) else vectors, dtype=np.float64)
    if kernel.name in ("rbf", "laplacian"):
        distances = _squared_distances(graph, rows, Z) if kernel.name == "rbf" else _distances(graph, rows, Z)
        return graph.add("Exp", graph.add("Mul", distances, graph.numbers(-float(kernel.gamma))))
    if kernel.name == "cosine":
        lengths = np.linalg.norm(Z, axis=1, keepdims=True)
        Z = Z / np.where(lengths > 0, lengths, 1.0)
        rows = graph.normalised(rows)
    # Factors go into constants: onnxruntime fuses product and factor into a node with the factor in float32.
    if kernel.name in ("linear", "cosine"):
        return graph.add("MatMul", rows, graph.numbers(Z.T))
    inside = graph.affine(rows, float(kernel.gamma) * Z, np.array(kernel.coef0))
    if kernel.name == "sigmoid":
        return graph.add("Tanh", inside)
    return graph.add("Pow", inside, graph.numbers(float(kernel.degree)))


def _squared_distances(graph: _Graph, rows: str, Z: np.ndarray) -> str:
    """From norms and products, centred at the support vectors so that fewer digits cancel."""
    centre = Z.mean(axis=0)
    Z = Z - centre
    rows = graph.add("Sub", rows, graph.numbers(centre))
    norms = graph.add("Add", graph.row_sums(graph.add("Mul", rows, rows)), graph.numbers((Z**2).sum(axis=1)))
    distances = graph.add("Sub", norms, graph.add("MatMul", rows, graph.numbers(2 * Z.T)))
    return graph.add("Max", distances, graph.numbers(0.0))


def _distances(graph: _Graph, rows: str, Z: np.ndarray) -> str:
    """1-norm distances to one support vector at a time: all at once would take N x n_SV x n_features numbers."""
    helper, kind = graph.onnx.helper, graph.number_type
    nodes = [
        helper.make_node("Sub", [rows, "point"], ["difference"]),
        helper.make_node("Abs", ["difference"], ["size"]),
        helper.make_node("ReduceSum", ["size", "axis"], ["distance"], keepdims=0),
    ]
    point = helper.make_tensor_value_info("point", kind, [Z.shape[1]])
    distance = helper.make_tensor_value_info("distance", kind, None)
    axis = graph.onnx.numpy_helper.from_array(np.array([1]), "axis")
    body = helper.make_graph(nodes, "distance", [point], [distance], [axis])
    return graph.add("Transpose", graph.add("Scan", graph.numbers(Z), body=body, num_scan_inputs=1), perm=[1, 0])
