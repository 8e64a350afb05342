"""Linear fits, predictions and files on several threads: the same bits as on one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import KernelSVC, MarginDistributionSVC, NuMarginSVC
from widemargin.cores import at_most
from widemargin.data.layout import Layout
from widemargin.data.libsvm_text import iterate_libsvm
from widemargin.data.pieces import (
    accurate_sums_by_class,
    distinct_labels,
    elementwise,
    encoded,
    largest_size,
    places_of,
    row_pieces,
    sum_of_pieces,
    sums_by_class,
)
from widemargin.data.rows import joined
from widemargin.rounding import gamma

THREADS = (2, 3, 8)
MODELS = {
    "nu": lambda: NuMarginSVC(nu=0.4, tol=1e-2),
    "nu of the C-SVM": lambda: NuMarginSVC(tol=1e-2),
    "hulls that overlap": lambda: NuMarginSVC(nu=0.05),
    "linear": lambda: KernelSVC(kernel="linear", C=0.1, tol=1e-2),
    "margin distribution": lambda: MarginDistributionSVC(kernel="linear"),
}


@pytest.fixture(autouse=True)
def eight_threads(monkeypatch):
    """Also where this machine has fewer cores; small pieces, so that there are several."""
    monkeypatch.setattr("widemargin.cores.available_threads", lambda: 8)
    monkeypatch.setattr("widemargin.cores._MIN_WORK", 1.0)
    monkeypatch.setattr("widemargin.data.pieces._ROWS", 300)
    monkeypatch.setattr("widemargin.data.pieces._ENTRIES", 5000)
    monkeypatch.setattr("widemargin.data.shard._ENTRIES", 5000)
    monkeypatch.setattr("widemargin.data.shard._SPARSE_ENTRIES", 3000)
    monkeypatch.setattr("widemargin.estimators._base._MANY_ROWS", 1)
    monkeypatch.setattr("widemargin.strategies.labels._MANY", 1)
    row_pieces.cache_clear()
    yield
    row_pieces.cache_clear()


@pytest.fixture(params=[(np.float32, np.asarray), (np.float64, sp.csr_matrix)], ids=["dense", "sparse"])
def data(request):
    dtype, storage = request.param
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1001, 13))
    X[rng.random(X.shape) < 0.3] = 0.0
    y = np.where(X @ rng.normal(size=13) + rng.normal(size=1001) > 0, "right", "left")
    return storage(X.astype(dtype)), y


def bits_of(model, X):
    parts = [model.coef_, model.intercept_, model.decision_function(X), np.array(model.certificate_)]
    return [part.tobytes() for part in parts], model.n_iter_, model.predict(X).tolist(), model.training_.right.tolist()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::widemargin.exceptions.OverlapWarning")
def test_fits_and_predictions_have_the_same_bits_on_any_number_of_threads(name, data):
    X, y = data
    with at_most(1):
        alone = bits_of(MODELS[name]().fit(X, y), X)
    for n_threads in THREADS:
        with at_most(n_threads):
            assert bits_of(MODELS[name]().fit(X, y), X) == alone


def test_scores_in_pieces_are_those_of_one_product(data):
    X, _ = data
    dense = X.toarray() if sp.issparse(X) else X
    model = KernelSVC(kernel="linear", multi_class="rest", tol=0.1).fit(X, dense[:, :3].argmax(axis=1))
    expected = dense.astype(np.float64) @ model.coef_.T + model.intercept_
    scores = model.decision_function(X)
    assert np.abs(scores).min(axis=0).all()
    assert scores.dtype == X.dtype
    np.testing.assert_allclose(scores, expected, atol=1e-4 if X.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_have_scikit_learns_error(data, bad):
    X, y = data
    X = X.copy()
    (X.data if sp.issparse(X) else X.reshape(-1))[5001] = bad
    text = (
        "contains NaN.\nKernelSVC does not accept missing values" if np.isnan(bad) else "contains infinity or a value"
    )
    with pytest.raises(ValueError, match=text):
        KernelSVC(kernel="linear").fit(X, y)
    model = KernelSVC(kernel="linear").fit(X[:100], y[:100])
    with pytest.raises(ValueError, match=text):
        model.predict(X)


def test_labels_that_are_not_classes_have_scikit_learns_error(data):
    X, _ = data
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        KernelSVC(kernel="linear").fit(X, np.linspace(0, 1, X.shape[0]))
    few = np.arange(X.shape[0]) % 2 + 0.5
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        KernelSVC(kernel="linear").fit(X, few)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint16, np.float32, np.float64, np.bool_, "U3", object])
def test_distinct_labels_are_those_of_numpy(kind):
    y = (np.random.default_rng(0).integers(0, 2, 1000)).astype(kind)
    found = distinct_labels(y)
    np.testing.assert_array_equal(found, np.unique(y))
    assert found.dtype == np.unique(y).dtype
    np.testing.assert_array_equal(encoded(y, found), np.searchsorted(found, y))


def test_many_classes_are_found_as_well():
    y = np.random.default_rng(0).integers(0, 200, 3000)
    np.testing.assert_array_equal(distinct_labels(y), np.unique(y))
    np.testing.assert_array_equal(encoded(y, np.unique(y)), np.searchsorted(np.unique(y), y))
    weight = np.random.default_rng(1).random(3000)
    np.testing.assert_allclose(sums_by_class(y.astype(float), weight, 200), np.bincount(y, weight, 200), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_size(dtype):
    values = np.random.default_rng(0).normal(size=(801, 17)).astype(dtype)
    values[500, 3] = -9
    assert largest_size(values) == 9
    assert largest_size(np.asfortranarray(values)) == 9
    assert largest_size(values[:0]) == 0
    values[700, 0] = -np.inf
    assert largest_size(values) == np.inf
    values[3, 0] = np.nan
    assert np.isnan(largest_size(values))
    values[3, 0] = -np.nan
    assert np.isnan(largest_size(values))


def test_sums_and_places_of_pieces():
    values = np.random.default_rng(0).normal(size=1001)
    np.testing.assert_array_equal(places_of(lambda rows: values[rows] > 0, 1001), np.flatnonzero(values > 0))
    whole = sum_of_pieces(lambda rows: np.array([[values[rows].sum(), 1.0]]), 1001)
    np.testing.assert_allclose(whole, [[values.sum(), 4.0]], rtol=1e-12)
    assert places_of(lambda rows: values[rows], 0).tolist() == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_files_are_read_alike_on_any_number_of_threads(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr("widemargin.data.libsvm_text.BLOCK_BYTES", 512)
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.integers(0, 3)} " + " ".join(f"{j + 1}:{rng.normal():.17g}" for j in range(rng.integers(0, 9)))
        for _ in range(400)
    ]
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(lines))
    found = []
    for n_threads in (1, *THREADS):
        with at_most(n_threads), path.open("rb") as file:
            rows = joined(iterate_libsvm(file, Layout(dtype=dtype)))
        arrays = (rows.X.data, rows.X.indices, rows.X.indptr, rows.y)
        found.append([array.tobytes() for array in arrays])
    assert all(each == found[0] for each in found)
    assert rows.X.shape[0] == 400


def test_the_first_mistake_of_a_file_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("widemargin.data.libsvm_text.BLOCK_BYTES", 64)
    lines = ["1 1:2 2:3"] * 300
    lines[123], lines[140], lines[299] = "1 2:3 1:2", "x 1:1", "1 1:"
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(lines))
    for n_threads in (1, *THREADS):
        with at_most(n_threads), path.open("rb") as file, pytest.raises(ValueError, match="line 124: the index"):
            list(iterate_libsvm(file, Layout()))


def test_elementwise_results_are_those_of_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1001))
    assert (elementwise(np.multiply, a, b) == a * b).all()
    assert (elementwise(np.minimum, a, 0.5) == np.minimum(a, 0.5)).all()
    assert (elementwise(np.abs, a) == np.abs(a)).all()


def test_accurate_sums_are_those_of_fsum():
    rng = np.random.default_rng(0)
    values, side = rng.random(1001) * 10.0 ** rng.integers(-12, 12, 1001), rng.integers(0, 2, 1001)
    with at_most(1):
        high, low = accurate_sums_by_class(side, values)
    for c in (0, 1):
        exact = sum(map(Fraction, values[side == c].tolist()))
        assert abs(Fraction(high[c]) + Fraction(low[c]) - exact) <= Fraction(gamma(1010)) ** 2 * exact
    for n_threads in THREADS:
        with at_most(n_threads):
            assert np.array_equal(accurate_sums_by_class(side, values), (high, low))
