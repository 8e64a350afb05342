"""Scores and labels of an exported graph, run by onnxruntime, are those of the model, to a drift that is bounded.

The bound is that of rounding: an error of a few units in the last place of every product and of every kernel value, so
in proportion to the sum of all terms' sizes, not to the score, in which they cancel.
"""

from __future__ import annotations

import builtins
import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from tests.io.models_at_hand import MODELS, TWO, X, Y, fitted, rows_for
from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    ModelFileError,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
    to_onnx,
)
from widemargin.io.onnx import OPSET
from widemargin.strategies.parts import Parts

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DRIFT = {"float32": 2e-6, "float64": 1e-14}  # of the sum of sizes: 17 and 45 units in the last place


def served(model, rows, precision="float32"):
    """Labels and scores of the exported graph."""
    graph = to_onnx(model, precision=precision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["label", "scores"], {"X": rows})


def sizes(model, rows) -> float:
    """The largest sum of sizes of the terms of a score, and of what rounding in exponents makes of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in model[:-1] if hasattr(model, "steps") else []:
            rows = np.asarray(step.transform(rows))
    final: Any = model[-1] if hasattr(model, "steps") else model
    inside = 1.0
    if getattr(final, "_map", None) is not None:
        inside += np.abs(rows @ final._map.random_weights_).max()
        rows = final._map.transform(rows)
    if hasattr(final, "coef_"):
        return float(inside * (np.abs(rows) @ np.abs(final.coef_).T + np.abs(final.intercept_)).max())
    kernel, largest = final.kernel_, 1.0
    Z = final.support_vectors_
    Z = Z.toarray() if sp.issparse(Z) else Z
    if kernel.name == "rbf":
        inside += kernel.gamma * ((rows - Z.mean(axis=0)) ** 2).sum(axis=1).max()
    elif kernel.name == "laplacian":
        inside += kernel.gamma * 2 * np.abs(np.vstack([rows, Z])).sum(axis=1).max()
    elif kernel.name == "precomputed":
        largest = np.abs(rows).max()
    elif kernel.name in ("poly", "sigmoid"):
        base = np.abs(kernel.gamma) * (np.abs(rows) @ np.abs(Z).T).max() + abs(kernel.coef0)
        largest, inside = (base**kernel.degree, kernel.degree) if kernel.name == "poly" else (1.0, 1 + base)
    return float(inside * largest * np.abs(final.dual_coef_).sum(axis=1).max() + np.abs(final.intercept_).max())


def in_doubt(model, rows, drift):
    """Rows whose label hangs on less than the drift: a score near 0, two classes nearly equal, or a pair's vote."""
    final = model[-1] if hasattr(model, "steps") else model
    with mock.patch.object(Parts, "class_scores", lambda parts, scores: scores):  # those of pairs, before they vote
        scores = model.decision_function(rows)
    if len(final.classes_) == 2 or final._parts.are_votes:
        return (np.abs(scores.reshape(len(rows), -1)) <= drift).any(axis=1)
    best = np.sort(scores, axis=1)
    return best[:, -1] - best[:, -2] <= 2 * drift


def assert_served(model, rows, precision="float32"):
    """The graph agrees with the model in float64; returns the drift, and how many rows were in doubt."""
    rows = np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float32)
    labels, scores = served(model, rows, precision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # plain arrays have no names
        exact = rows.astype(np.float64)
        bound = DRIFT[precision] * sizes(model, exact)
        doubtful = in_doubt(model, exact, bound)
        expected, names = model.decision_function(exact), model.predict(exact)
    assert scores.shape == expected.shape
    assert scores.dtype == np.dtype(precision)
    drift = np.abs(scores - expected)[~doubtful].max(initial=0.0)
    assert drift <= bound, f"drift {drift:.1e}, bound {bound:.1e}"
    np.testing.assert_array_equal(labels[~doubtful], names[~doubtful])
    return drift, int(doubtful.sum())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_every_model_is_served(name, precision):
    _, n_doubtful = assert_served(fitted(name), np.asarray(_dense(rows_for(name))), precision)
    assert n_doubtful <= 5


def _dense(rows):
    return rows.toarray() if sp.issparse(rows) else rows


REAL = [
    ("a9a", NuMarginSVC(), None),
    ("a9a", KernelSVC(gamma=0.05), None),
    ("a9a", MarginDistributionSVC(kernel="linear", C=1e3), None),
    ("a9a", SparseSVC(alpha=0.01), None),
    ("a9a", GossipSVC(alpha=1e-3, tol=1e-1), None),
    ("phishing", KernelSVC(kernel="laplacian", gamma=0.05), None),
    ("phishing", MarginDistributionSVC(C=1e3, tol=1e-2), None),
    ("phishing", SparseSVCCV(n_alphas=5, cv=2, tol=1e-3), None),
    ("breast-cancer", KernelSVC(kernel="poly", coef0=1.0), StandardScaler()),
    ("breast-cancer", KernelSVC(kernel="sigmoid", gamma=0.01), RobustScaler()),
    ("breast-cancer", DebiasedSparseSVC(), MinMaxScaler()),
    ("breast-cancer", GossipSVC(alpha=1e-2, kernel="rbf", n_random_features=64, tol=1e-2), StandardScaler()),
    ("iris", HardMarginSVC(tol=1e-2), None),
    ("iris", NuMarginSVC(), MaxAbsScaler(clip=True)),
    ("mnist_test", KernelSVC(gamma=0.02, tol=1e-2), None),
    ("mnist_test", KernelSVC(kernel="cosine", tol=1e-2), Normalizer()),
    ("mnist_test", NuMarginSVC(tol=1e-2), MinMaxScaler()),
]


_KEPT: dict[str, Any] = {}  # a set takes longer to read than to be served


def some_rows(real, name):
    """Rows of a set, by lot; of MNIST, those of four digits, from 0 to 1."""
    if name not in _KEPT:
        data = real(name)
        chosen = np.random.default_rng(0).permutation(data.X.shape[0])[:1500]
        rows, labels = data.X[chosen].astype(np.float64), data.y[chosen]
        if name == "mnist_test":
            rows, labels = rows[labels < 4] / 255, labels[labels < 4]
        _KEPT[name] = rows, labels
    return _KEPT[name]


@pytest.mark.parametrize(
    ("name", "model", "scaler"), REAL, ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_real_data_is_served(real, name, model, scaler):
    rows, labels = some_rows(real, name)
    rows = rows if scaler is None else np.asarray(_dense(rows))
    half = len(labels) // 2
    model = clone(model) if scaler is None else make_pipeline(clone(scaler), clone(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are not solved to the end
        model.fit(rows[:half], labels[:half])
    drift, n_doubtful = assert_served(model, rows[half:])
    assert n_doubtful <= 0.02 * (len(labels) - half)
    assert drift > 0  # it is float32, and was compared with float64


def test_the_comparison_finds_another_model():
    rows = X.astype(np.float32)
    model, other = fitted("kernel, rbf"), KernelSVC(C=10, gamma=0.2501).fit(X, TWO)
    other.decision_function = model.decision_function  # says one thing, and exports another
    with pytest.raises(AssertionError, match="drift"):
        assert_served(other, rows)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_rows_of_no_length_are_left_alone(norm):
    model = make_pipeline(Normalizer(norm=norm), MinMaxScaler((-1, 2), clip=True), KernelSVC(kernel="cosine")).fit(X, Y)
    rows = np.vstack([X, np.zeros((2, 4)), 50 * X[:3]])
    assert_served(model, rows)
    assert_served(make_pipeline(StandardScaler(with_mean=False), NuMarginSVC()).fit(X, Y), rows)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-30, 1e-7, 1e25])
def test_rows_of_any_length_have_their_cosine(precision, size):
    rows = (X * size).astype(np.float32)
    model = fitted("kernel, cosine")
    assert_served(model, rows, precision)
    _, n_doubtful = assert_served(KernelSVC(kernel="cosine").fit(rows, TWO), rows, precision)
    assert n_doubtful <= 5


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_short_rows_are_normalised_where_scikit_learn_does(precision, norm):
    """It leaves rows alone below ten units in the last place of 1, in the type of the rows."""
    model = make_pipeline(Normalizer(norm=norm), NuMarginSVC()).fit(X, TWO)
    for size in (1e-17, 1e-7, 1e-5):
        rows = (X * size).astype(np.float32)
        labels, scores = served(model, rows, precision)
        rows = rows.astype(precision)
        np.testing.assert_allclose(scores, model.decision_function(rows), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(labels, model.predict(rows))


def test_a_model_without_support_vectors_is_its_intercept():
    model = KernelSVC().fit(X, TWO)
    model.dual_coef_, model.support_vectors_ = model.dual_coef_[:, :0], model.support_vectors_[:0]
    labels, scores = served(model, X.astype(np.float32))
    np.testing.assert_allclose(scores, model.intercept_[0], rtol=1e-6)
    np.testing.assert_array_equal(labels, model.predict(X))


def test_any_number_of_rows_and_what_the_graph_says_of_itself():
    model = fitted("nu, three")
    for n_rows in (0, 1, 7):
        labels, scores = served(model, X[:n_rows].astype(np.float32))
        assert labels.shape == (n_rows,)
        assert scores.shape == (n_rows, 3)
    graph = to_onnx(model)
    assert [opset.version for opset in graph.opset_import] == [OPSET]
    assert graph.producer_name == "widemargin"
    assert {node.domain for node in graph.graph.node} == {""}  # the standard's own operators


def test_what_cannot_be_exported():
    with pytest.raises(ModelFileError, match="is a function"):
        to_onnx(KernelSVC(kernel=lambda one, other: one @ other.T).fit(X, TWO))
    with pytest.raises(ModelFileError, match="StandardScaler cannot"):
        to_onnx(StandardScaler().fit(X))
    with pytest.raises(NotFittedError):
        to_onnx(NuMarginSVC())
    with pytest.raises(NotFittedError):
        to_onnx(make_pipeline(StandardScaler(), NuMarginSVC()))
    with pytest.raises(ValueError, match="precision='float16' must be 'float32' or 'float64'"):
        to_onnx(fitted("nu, three"), precision="float16")


def test_the_extra_is_named_where_onnx_is_missing(monkeypatch):
    real_import = builtins.__import__

    def without_onnx(name, *arguments, **options):
        if name == "onnx":
            raise ImportError("No module named 'onnx'")
        return real_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_onnx)
    with pytest.raises(ImportError, match=r"widemargin\[onnx\]"):
        to_onnx(fitted("nu, three"))
