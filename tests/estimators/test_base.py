"""What all estimators share: validation, ranks, limits, warnings, callbacks, and scikit-learn's habits."""

from __future__ import annotations

import pickle
import re
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.conftest import STORAGES
from tests.problems_at_hand import PAPER_SHARE, overlapping, separable
from widemargin import HardMarginSVC, NuMarginSVC, max_nu
from widemargin.data import make_separable
from widemargin.ledger import Ledger
from widemargin.strategies import labels
from widemargin.strategies.protocol import Rows

BOTH = pytest.mark.parametrize("Estimator", [NuMarginSVC, HardMarginSVC])
# Every way to solve, as constructor arguments.
WAYS = [
    pytest.param(NuMarginSVC, {"solver": solver, "block_size": block_size}, id=f"nu-{solver}-{block_size}")
    for solver, block_size in [("auto", "auto"), ("newton", "auto"), ("saddle", "auto"), ("saddle", 2)]
] + [
    pytest.param(HardMarginSVC, {"solver": solver, "block_size": block_size}, id=f"hard-{solver}-{block_size}")
    for solver, block_size in [("auto", "auto"), ("active-set", "auto"), ("newton", "auto"), ("saddle", 2)]
]
ALL_WAYS = pytest.mark.parametrize(("Estimator", "options"), WAYS)
TIGHT_WAYS = pytest.mark.parametrize(("Estimator", "options"), [way for way in WAYS if "saddle" not in way.id])


def three_classes(seed=0, n=60, d=4):
    rng = np.random.default_rng(seed)
    y = rng.permutation(n) % 3
    centres = 8 * np.eye(3, d)
    return rng.normal(size=(n, d)) + centres[y], y


# -- input -----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("cluster", [None, 2])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, w: (np.where(np.arange(4) == 1, np.nan, X), y, w), "NaN"),
        (lambda X, y, w: (np.where(np.arange(4) == 1, np.inf, X), y, w), "infinity"),
        (lambda X, y, w: (sp.csr_matrix(np.where(np.arange(4) == 1, np.nan, X)), y, w), "NaN"),
        (lambda X, y, w: (X, np.where(np.arange(len(y)) == 3, np.nan, y), w), "NaN"),
        (lambda X, y, w: (X, np.ones(len(y)), w), "1 class"),
        (lambda X, y, w: (X[:0], y[:0], w), "0 sample"),
        (lambda X, y, w: (X[:, :0], y, w), "0 feature"),
        (lambda X, y, w: (X[:, 0], y, w), "2D array"),
        (lambda X, y, w: (X[None], y, w), "dim 3"),
        (lambda X, y, w: (X, np.column_stack([y, y]), w), "1d array"),
        (lambda X, y, w: (X, y[:-1], w), "inconsistent numbers of samples"),
        (lambda X, y, w: (X, np.linspace(0, 1, len(y)), w), "continuous"),
        (lambda X, y, w: (X, None, w), "y"),
        (lambda X, y, w: (X.astype(str) + "a", y, w), "could not convert"),
        (lambda X, y, w: (X, y, w[:-1]), "sample_weight"),
        (lambda X, y, w: (X, y, np.column_stack([w, w])), "1D|sample_weight"),
        (lambda X, y, w: (X, y, np.where(np.arange(len(y)) == 3, -1.0, w)), "[Nn]egative"),
        (lambda X, y, w: (X, y, np.where(np.arange(len(y)) == 3, np.nan, w)), "sample_weight"),
        (lambda X, y, w: (X, y, np.where(np.arange(len(y)) == 3, np.inf, w)), "sample_weight"),
        (lambda X, y, w: (X, y, np.where(y > 0, w, 0.0)), "1 class"),
        (lambda X, y, w: (X, y, np.zeros(len(y))), "0 class|zero"),
    ],
)
def test_bad_input_is_named_before_any_work(monkeypatch, Estimator, cluster, change, message):
    def never(*arguments):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("widemargin.strategies.ranks.sweeps", never)
    X, y = separable(0)
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match=message):
        Estimator(cluster=cluster).fit(*change(X, y, np.ones(len(y))))
    assert set(threading.enumerate()) <= before


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tol", -1e-3),
        ("tol", np.nan),
        ("tol", "small"),
        ("max_iter", 0),
        ("max_iter", 1.5),
        ("max_time", 0.0),
        ("max_time", -1.0),
        ("max_time", np.nan),
        ("solver", "simplex"),
        ("block_size", 0),
        ("block_size", 1.5),
        ("block_size", "large"),
        ("cluster", 0),
        ("cluster", -1),
        ("cluster", 1.5),
        ("cluster", "local"),
        ("warm_start", "yes"),
        ("random_state", "seed"),
        ("verbose", -1),
    ],
)
def test_a_bad_parameter_is_named_with_its_value(Estimator, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter.*{re.escape(repr(value))}"):
        Estimator(**{name: value}).fit(*separable(0))


@pytest.mark.parametrize("nu", [0.0, -0.1, 1.5, np.nan, np.inf, "all"])
def test_a_nu_that_can_never_be_feasible_is_a_bad_parameter(nu):
    with pytest.raises(ValueError, match=r"'nu' parameter.*\(0"):
        NuMarginSVC(nu=nu).fit(*separable(0))


@BOTH
def test_more_ranks_than_rows_names_both(Estimator):
    X, y = separable(0, n=10)
    with pytest.raises(ValueError, match=r"cluster=11.*\[1, 10\]"):
        Estimator(cluster=11).fit(X, y)


@BOTH
def test_a_parameter_that_is_not_honoured_does_not_exist(Estimator):
    expected = {
        "solver",
        "block_size",
        "tol",
        "max_iter",
        "max_time",
        "warm_start",
        "random_state",
        "cluster",
        "checkpoint",
        "verbose",
    }
    if Estimator is NuMarginSVC:
        expected |= {"nu", "class_weight"}
    assert set(Estimator().get_params()) == expected


@BOTH
@pytest.mark.parametrize("cluster", [None, 3])
def test_input_is_not_written_to(Estimator, cluster, storage):
    X, y = separable(0)
    X = storage(X)
    before = X.copy()
    weight = np.random.default_rng(0).choice([0.0, 1.0, 2.0], len(y))
    kept = weight.copy()
    Estimator(cluster=cluster).fit(X, y, weight)
    assert not (before != X).any() if storage is STORAGES["dense"] else (before != X).nnz == 0
    np.testing.assert_array_equal(weight, kept)


@BOTH
def test_repeated_entries_of_a_sparse_matrix_are_summed(Estimator):
    X, y = separable(0)
    whole = sp.csr_matrix(X)
    halves = sp.csr_matrix(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), shape=whole.shape
    )
    assert not halves.has_canonical_format
    np.testing.assert_allclose(Estimator().fit(halves, y).coef_, Estimator().fit(whole, y).coef_, rtol=1e-9)
    assert halves.nnz == 2 * whole.nnz


@BOTH
@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array([7, 3]), np.array([False, True])])
@pytest.mark.parametrize("cluster", [None, 2])
def test_labels_of_any_kind(Estimator, labels, cluster):
    X, y = separable(0)
    named = labels[(y > 0).astype(int)]
    model = Estimator(cluster=cluster).fit(X, named)
    np.testing.assert_array_equal(model.classes_, np.unique(labels))
    assert model.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(model.predict(X), named)
    positive = model.decision_function(X) > 0
    np.testing.assert_array_equal(positive, named == model.classes_[1])


def test_a_plain_array_is_fitted_and_predicted_as_any_other_form_of_the_same_rows():
    X, y = overlapping(0)
    y = (y > 0).astype(int)
    plain, other = NuMarginSVC().fit(X, y), NuMarginSVC().fit(X.tolist(), y.tolist())
    np.testing.assert_array_equal(plain.coef_, other.coef_)
    assert plain.n_features_in_ == other.n_features_in_ == X.shape[1]
    np.testing.assert_allclose(plain.decision_function(np.asfortranarray(X)), plain.decision_function(X), atol=1e-12)
    with config_context(assume_finite=True):
        np.testing.assert_array_equal(NuMarginSVC().fit(X, y).coef_, plain.coef_)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda X: X[:, :1], "is expecting"),
        (lambda X: X[0], "Reshape"),
        (lambda X: X[:0], "minimum of 1"),
        (lambda X: np.where(np.arange(X.shape[1]) == 1, np.nan, X), "NaN"),
        (lambda X: X.astype(complex), "Complex"),
    ],
)
def test_rows_to_be_predicted_are_checked_as_by_scikit_learn(rows, message):
    X, y = overlapping(0)
    model = NuMarginSVC().fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.predict(rows(X))


def test_a_fit_on_an_array_forgets_the_names_of_an_earlier_one():
    X, y = overlapping(0)
    y = (y > 0).astype(int)
    names = [f"column {k}" for k in range(X.shape[1])]
    model = NuMarginSVC().fit(pd.DataFrame(X, columns=names), y)
    with pytest.warns(UserWarning, match="valid feature names"):
        model.predict(X)
    assert not hasattr(model.fit(X, y), "feature_names_in_")


def test_a_value_of_another_type_is_not_valid_because_an_equal_one_was():
    X, y = overlapping(0)
    NuMarginSVC(warm_start=True).fit(X, y)
    for _ in range(2):
        with pytest.raises(ValueError, match="'warm_start' parameter"):
            NuMarginSVC(warm_start=1).fit(X, y)


def test_feature_names_are_kept():
    X, y = separable(0, d=2)
    model = NuMarginSVC().fit(pd.DataFrame(X, columns=["first", "second"]), y)
    assert model.feature_names_in_.tolist() == ["first", "second"]
    assert model.n_features_in_ == 2


# -- invariances -----------------------------------------------------------------------------------------------------


def fitted(Estimator, options, X, y, weight=None, tol=1e-9, **more):
    # 1e-9 on the gap: 1e-4.5 on the direction would follow from strong convexity alone, so both sides go far down.
    return Estimator(**{"tol": tol, "random_state": 0, **options, **more}).fit(X, y, weight)


def at_one_nu(Estimator, y):
    """The paper's nu for these labels, since nu="auto" depends on the unit of length and takes a sweep to find."""
    return {"nu": PAPER_SHARE * max_nu(y)} if Estimator is NuMarginSVC else {}


def assert_same_model(one, other, rtol=1e-5, rotation=None):
    coef = other.coef_ if rotation is None else other.coef_ @ rotation
    scale = np.abs(one.coef_).max()
    np.testing.assert_allclose(one.coef_, coef, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=rtol, atol=10 * rtol * max(scale, 1.0))


def test_assert_same_model_fails_on_another_model():
    X, y = separable(0)
    one, other = (fitted(HardMarginSVC, {}, X + shift, y) for shift in (0.0, 0.01))
    assert_same_model(one, one)
    with pytest.raises(AssertionError):
        assert_same_model(one, other)
    with pytest.raises(AssertionError):
        assert_same_model(one, fitted(HardMarginSVC, {}, X * 1.001, y))


def many_sweeps(Estimator):
    """Options of a fit that does not end at once."""
    nu = {"nu": 0.5} if Estimator is NuMarginSVC else {}  # "auto" has the solution of the C-SVM to start with
    return {"solver": "saddle", "block_size": 1, "random_state": 0, **nu}


def data_for(Estimator, seed, d=4):
    return separable(seed, d=d, gap=1.0) if Estimator is HardMarginSVC else overlapping(seed, d=d)


@TIGHT_WAYS
def test_the_order_of_rows_does_not_matter(Estimator, options, seed):
    X, y = data_for(Estimator, seed)
    order = np.random.default_rng(seed).permutation(len(y))
    assert_same_model(fitted(Estimator, options, X, y), fitted(Estimator, options, X[order], y[order]))


@TIGHT_WAYS
def test_a_rotation_of_features_rotates_the_model(Estimator, options, seed):
    X, y = data_for(Estimator, seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]
    assert_same_model(
        fitted(Estimator, options, X, y), fitted(Estimator, options, X @ rotation.T, y), rotation=rotation
    )


@TIGHT_WAYS
def test_a_translation_moves_the_intercept_only(Estimator, options, seed):
    X, y = data_for(Estimator, seed)
    shift = np.array([10.0, -20.0, 30.0, 5.0])
    here, there = fitted(Estimator, options, X, y), fitted(Estimator, options, X + shift, y)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(there.intercept_, here.intercept_ - here.coef_ @ shift, rtol=1e-4, atol=1e-4)


@TIGHT_WAYS
@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_a_unit_of_length_scales_the_model(Estimator, options, scale):
    X, y = data_for(Estimator, 0)
    options = {**options, **at_one_nu(Estimator, y)}
    one, other = fitted(Estimator, options, X, y), fitted(Estimator, options, X * scale, y)
    np.testing.assert_allclose(other.coef_ * scale, one.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.intercept_, one.intercept_, rtol=1e-5, atol=1e-5)


@TIGHT_WAYS
@pytest.mark.parametrize("cluster", [None, 3])
def test_weight_two_is_the_row_twice_and_weight_zero_is_the_row_absent(Estimator, options, cluster, seed):
    X, y = data_for(Estimator, seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    assert_same_model(
        fitted(Estimator, options, X, y, weight.astype(float), cluster=cluster),
        fitted(Estimator, options, X[rows], y[rows]),
    )


@BOTH
def test_a_rank_whose_rows_are_all_absent(Estimator):
    X, y = data_for(Estimator, 0)
    weight = np.ones(len(y))
    weight[: len(y) // 2] = 0.0
    assert_same_model(
        fitted(Estimator, {}, X, y, weight, cluster=4),
        fitted(Estimator, {}, X[weight > 0], y[weight > 0]),
        rtol=1e-4,  # a relative gap of 1e-9 leaves directions apart by about its root
    )


def test_a_row_of_weight_zero_may_be_anything_finite():
    X, y = overlapping(0)
    X[3], X[7] = 1e6, -1e6
    weight = np.where(np.isin(np.arange(len(y)), [3, 7]), 0.0, 1.0)
    assert_same_model(fitted(NuMarginSVC, {}, X, y, weight), fitted(NuMarginSVC, {}, X[weight > 0], y[weight > 0]))


@ALL_WAYS
@pytest.mark.parametrize("kind", ["csr32", "csr64"])
def test_sparse_rows_give_the_model_of_dense_ones(Estimator, options, kind, dtype):
    X, y = data_for(Estimator, 0)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.2, 0.0, X) + 2 * y[:, None] * np.eye(1, 4)
    X = X.astype(dtype)
    tight = 1e-3 if options["solver"] == "saddle" else 1e-9
    dense = fitted(Estimator, options, X, y, tol=tight)
    sparse = fitted(Estimator, options, STORAGES[kind](X), y, tol=tight)
    # The saddle point method takes the same steps in the same order; float32 sums of a block differ by rounding.
    rtol = {np.float64: 1e-6, np.float32: 1e-3}[dtype]
    assert_same_model(dense, sparse, rtol=rtol)
    np.testing.assert_allclose(
        sparse.decision_function(STORAGES[kind](X)), dense.decision_function(X), rtol=10 * rtol, atol=10 * rtol
    )


@ALL_WAYS
def test_float32_rows_give_nearly_the_model_of_float64_ones(Estimator, options):
    X, y = data_for(Estimator, 0)
    tight = 1e-4 if options["solver"] == "saddle" else 1e-9
    single, double = (fitted(Estimator, options, X.astype(dtype), y, tol=tight) for dtype in (np.float32, np.float64))
    bound = 1e-4 if options["solver"] != "saddle" else 2e-2
    assert_same_model(single, double, rtol=bound)
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32


# -- ranks -----------------------------------------------------------------------------------------------------------


@ALL_WAYS
@pytest.mark.parametrize("cluster", [None, 3])
def test_same_seed_and_ranks_give_the_same_bits(Estimator, options, cluster):
    X, y = data_for(Estimator, 1)
    first, second = (
        Estimator(**options, random_state=5, cluster=cluster, tol=1e-4, max_iter=300).fit(X, y) for _ in range(2)
    )
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(first.intercept_, second.intercept_)
    drop = [{**row, "seconds": 0} for row in first.history_]
    assert drop == [{**row, "seconds": 0} for row in second.history_]


@pytest.mark.parametrize("Estimator", [NuMarginSVC, HardMarginSVC])
def test_saddle_fits_are_the_serial_ones_on_any_number_of_ranks(Estimator, n_ranks):
    X, y = data_for(Estimator, 2)
    options = {"solver": "saddle", "block_size": 2, "random_state": 0, "tol": 1e-3, **at_one_nu(Estimator, y)}
    serial, parallel = (Estimator(**options, cluster=cluster).fit(X, y) for cluster in (None, n_ranks))
    assert parallel.n_iter_ == serial.n_iter_
    for name in ("primal", "dual"):
        np.testing.assert_allclose(
            [row[name] for row in parallel.history_], [row[name] for row in serial.history_], rtol=1e-9
        )
    np.testing.assert_allclose(parallel.coef_, serial.coef_, rtol=1e-8, atol=1e-9)


@TIGHT_WAYS
def test_any_number_of_ranks_gives_the_same_certified_distance(Estimator, options, n_ranks):
    X, y = data_for(Estimator, 3)
    serial = fitted(Estimator, options, X, y, tol=1e-7)
    parallel = fitted(Estimator, options, X, y, tol=1e-7, cluster=n_ranks)
    assert parallel.stop_reason_ == "gap"
    assert parallel.certificate_.primal == pytest.approx(serial.certificate_.primal, rel=1e-6)


@ALL_WAYS
def test_sorted_labels_leave_ranks_with_one_class(Estimator, options):
    X, y = data_for(Estimator, 4)
    order = np.argsort(y, kind="stable")
    model = Estimator(**options, random_state=0, cluster=4).fit(X[order], y[order])
    assert model.stop_reason_ == "gap"
    alone = Estimator(**options, random_state=0).fit(X, y)
    assert model.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=2e-3)


@BOTH
def test_sorted_labels_of_three_classes_leave_ranks_without_rows_of_a_pair(Estimator):
    X, y = three_classes()
    order = np.argsort(y, kind="stable")
    model = fitted(Estimator, {}, X[order], y[order], tol=1e-7, cluster=6)
    assert_same_model(model, fitted(Estimator, {}, X, y, tol=1e-7), rtol=1e-3)


# -- what a fit leaves behind ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("cluster", [None, 2])
def test_history_turns_into_a_frame(Estimator, cluster):
    model = Estimator(cluster=cluster).fit(*separable(0))
    frame = pd.DataFrame(model.history_)
    expected = [
        "sweep",
        "seconds",
        "primal",
        "dual",
        "rounds",
        "messages",
        "scalars",
        "bytes",
        "kernel_evaluations",
        "cache_hits",
        "cache_misses",
    ]
    assert list(frame.columns) == expected
    assert len(frame) == model.n_iter_
    assert frame["sweep"].tolist() == list(range(1, model.n_iter_ + 1))
    assert frame["seconds"].is_monotonic_increasing
    assert (frame["primal"].iloc[-1], frame["dual"].iloc[-1]) == tuple(model.certificate_)


@BOTH
def test_common_attributes(Estimator):
    model = Estimator().fit(*separable(0))
    assert model.stop_reason_ == "gap"
    assert model.certificate_.relative <= model.tol
    assert isinstance(model.cost_, Ledger)
    assert {"start", "sweep", "certify", "extract"} <= set(model.cost_.seconds)
    assert model.coef_.shape == (1, 4)
    assert model.intercept_.shape == (1,)
    assert len(model.parts_) == 1


@BOTH
def test_several_classes_report_the_worst_pair_and_the_cost_of_all(Estimator):
    X, y = three_classes()
    model = Estimator(cluster=2).fit(X, y)
    assert len(model.parts_) == 3
    assert model.certificate_ == max((part.certificate for part in model.parts_), key=lambda each: each.relative)
    assert model.cost_.scalars == sum(part.ledger.scalars for part in model.parts_)
    frame = pd.DataFrame(model.history_)
    assert set(frame["part"]) == {0, 1, 2}


# -- limits and warnings ---------------------------------------------------------------------------------------------


@BOTH
def test_not_converged_names_the_gap_the_tolerance_and_what_helps(Estimator):
    X, y = data_for(Estimator, 0)
    with pytest.warns(ConvergenceWarning) as caught:
        model = Estimator(**many_sweeps(Estimator), max_iter=1, tol=1e-9).fit(X, y)
    text = str(caught[0].message)
    assert model.stop_reason_ == "max_iter"
    assert model.n_iter_ == 1
    assert f"{model.certificate_.relative:.2e}" in text
    assert "tol=1e-09" in text
    assert "max_iter=1" in text
    assert re.search(r"solver='auto'|[Rr]aise|overlap|larger nu", text)


@BOTH
def test_max_time_ends_a_fit_and_says_so(Estimator):
    X, y = data_for(Estimator, 0)
    with pytest.warns(ConvergenceWarning, match=r"max_time=1e-09"):
        model = Estimator(**many_sweeps(Estimator), max_time=1e-9, tol=1e-12).fit(X, y)
    assert model.stop_reason_ == "max_time"
    assert np.isfinite(model.coef_).all()


@BOTH
def test_a_converged_fit_warns_of_nothing(Estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Estimator().fit(*data_for(Estimator, 0))


@ALL_WAYS
@pytest.mark.parametrize("cluster", [None, 2])
def test_a_warm_start_on_the_same_data_takes_fewer_sweeps(Estimator, options, cluster):
    if Estimator is HardMarginSVC:
        X, y, _ = make_separable(200, 10, random_state=0)
    else:
        X, y = overlapping(0, n=200, d=10, shift=0.6)
    options = {**options, **at_one_nu(Estimator, y), "tol": 1e-4, "max_iter": 5000}
    model = Estimator(**options, warm_start=True, random_state=0, cluster=cluster).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < cold
    assert model.stop_reason_ == "gap"


@BOTH
def test_a_warm_start_on_other_data_is_no_worse_than_a_cold_one(Estimator):
    X, y = data_for(Estimator, 0)
    model = Estimator(warm_start=True, tol=1e-6).fit(X, y)
    distance = model.certificate_.primal
    for other in (X * 1e3, X * 1e-3, X + 5.0, -X, X[:, ::-1].copy()):
        model.fit(other, y)
        assert model.stop_reason_ == "gap"
        alone = Estimator(tol=1e-6).fit(other, y)
        assert model.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=1e-5)
    assert model.fit(X, y).certificate_.primal == pytest.approx(distance, rel=1e-5)


@BOTH
def test_a_warm_start_on_another_number_of_features_or_classes_begins_anew(Estimator):
    model = Estimator(warm_start=True).fit(*separable(0, d=4))
    assert model.fit(*separable(0, d=6)).coef_.shape == (1, 6)
    assert model.fit(*three_classes(d=6)).coef_.shape == (3, 6)


# -- progress --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("cluster", [None, 2])
def test_verbose_shows_the_gap_against_the_tolerance_on_stderr(capsys, Estimator, cluster):
    model = Estimator(verbose=1, cluster=cluster, tol=1e-3).fit(*separable(0))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(rf"{Estimator.__name__}.*gap .*\(tol 1e-03\)", captured.err)
    assert f"{model.certificate_.relative:.2e}" in captured.err


@BOTH
def test_by_default_nothing_is_shown(capsys, Estimator):
    Estimator().fit(*separable(0))
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


# -- scikit-learn's habits -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("cluster", [None, 2])
def test_clone_pipeline_and_search(Estimator, cluster):
    X, y = separable(0, n=60)
    model = Estimator(cluster=cluster, tol=1e-2)
    assert clone(model).get_params() == model.get_params()
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    assert pipeline.score(X, y) == 1.0
    search = GridSearchCV(pipeline, {f"{Estimator.__name__.lower()}__tol": [1e-1, 1e-3]}, cv=3, n_jobs=1).fit(X, y)
    assert search.best_score_ > 0.9
    assert cross_val_score(model, X, y, cv=3).min() > 0.9


@BOTH
@pytest.mark.parametrize("cluster", [None, 2])
def test_pickle_keeps_the_model(Estimator, cluster):
    X, y = separable(0)
    model = Estimator(cluster=cluster).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.certificate_ == model.certificate_
    assert again.history_ == model.history_
    assert again.get_params() == model.get_params()


@BOTH
def test_no_thread_outlives_a_fit(Estimator):
    before = set(threading.enumerate())
    Estimator(cluster=5).fit(*separable(0))
    assert set(threading.enumerate()) <= before


# -- scikit-learn's callbacks ----------------------------------------------------------------------------------------


class Recorder:
    """A callback that notes what it is told, and may ask to stop."""

    def __init__(self, stop_after=None):
        self.stop_after, self.events, self.models = stop_after, [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        if context.task_name == "sweep":
            self.models.append(fitted_estimator)
            assert fitted_estimator.predict(X).shape == np.shape(y)
            return self.stop_after is not None and len(self.models) >= self.stop_after
        return False


CLASSES = pytest.mark.parametrize("data", [separable(0), three_classes()], ids=["two classes", "three classes"])
RANKS = pytest.mark.parametrize("cluster", [None, 2])


@BOTH
@CLASSES
@RANKS
def test_a_callback_hears_of_every_sweep_and_gets_a_model_that_predicts(Estimator, data, cluster):
    X, y = data
    recorder = Recorder()
    model = Estimator(cluster=cluster).set_callbacks(recorder).fit(X, y)
    assert recorder.events[0] == "setup"
    assert recorder.events[-1] == "teardown"
    assert recorder.events.count("begin fit") == recorder.events.count("end fit") == 1
    assert len(recorder.models) == len(model.history_)
    for name in {event.split(" ", 1)[1] for event in recorder.events if " " in event}:
        assert recorder.events.count(f"begin {name}") == recorder.events.count(f"end {name}"), name
    np.testing.assert_allclose(recorder.models[-1].coef_, model.coef_)


@BOTH
@CLASSES
@RANKS
def test_a_callback_that_answers_true_stops_the_fit(Estimator, data, cluster):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was asked for: nothing to warn of
        model = (
            Estimator(**many_sweeps(Estimator), tol=1e-9, cluster=cluster)
            .set_callbacks(Recorder(stop_after=2))
            .fit(X, y)
        )
    assert model.stop_reason_ == "callback"
    assert np.isfinite(model.coef_).all()
    assert model.predict(X).shape == y.shape


@BOTH
def test_a_callback_that_raises_ends_the_fit_with_its_error_and_is_torn_down(Estimator):
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context):
            raise RuntimeError("told to fail")

    failing = Failing()
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="told to fail"):
        Estimator(cluster=2).set_callbacks(failing).fit(*separable(0))
    assert failing.events[-1] == "teardown"
    assert set(threading.enumerate()) <= before


@BOTH
@CLASSES
@RANKS
def test_scoring_monitor_logs_every_sweep(Estimator, data, cluster):
    from sklearn.callback import ScoringMonitor

    X, y = data
    monitor = ScoringMonitor(scoring="accuracy")
    model = Estimator(cluster=cluster, tol=1e-5).set_callbacks(monitor).fit(X, y)
    log = monitor.get_logs().data_as_pandas
    sweeps = log[log["task_name"] == "sweep"]
    assert len(sweeps) == len(model.history_)
    assert sweeps["accuracy"].between(0, 1).all()
    whole = log[log["task_name"] == "fit"]["accuracy"]
    assert whole.tolist() == [model.score(X, y)]
    assert whole.iloc[0] >= sweeps["accuracy"].iloc[0]  # separable data: the end separates


@BOTH
def test_scoring_monitor_with_weights(Estimator):
    from sklearn.callback import ScoringMonitor

    X, y = separable(0)
    monitor = ScoringMonitor(scoring="accuracy")
    Estimator().set_callbacks(monitor).fit(X, y, np.linspace(0.5, 1.5, len(y)))
    assert monitor.get_logs().data_as_pandas["accuracy"].notna().all()


@BOTH
@CLASSES
@RANKS
def test_progress_bar(capsys, Estimator, data, cluster):
    pytest.importorskip("rich", reason="scikit-learn's ProgressBar needs rich")
    from sklearn.callback import ProgressBar

    X, y = data
    Estimator(cluster=cluster).set_callbacks(ProgressBar()).fit(X, y)
    shown = capsys.readouterr().out
    assert f"{Estimator.__name__} - fit" in shown
    assert "100%" in shown


@BOTH
def test_progress_bar_on_a_search(capsys, Estimator):
    pytest.importorskip("rich", reason="scikit-learn's ProgressBar needs rich")
    from sklearn.callback import ProgressBar

    search = GridSearchCV(Estimator(), {"tol": [1e-1, 1e-2]}, cv=2, n_jobs=1)
    search.set_callbacks(ProgressBar()).fit(*separable(0))
    assert "GridSearchCV" in capsys.readouterr().out


def test_labels_of_two_kinds_on_different_ranks_are_refused():
    """Joined, numbers would silently become text."""
    kinds = np.array([0, 1]), np.empty(0, "<U1"), np.array(["0", "1"])
    notes = [{"labels": each, "n_features": 2, "seed": 0} for each in kinds]
    merged = labels._merge(notes)
    assert merged["kind"] == "ValueError"
    assert "numbers in one part of the rows and text in another" in merged["error"]
    assert labels._merge(notes[:2])["labels"].tolist() == [0, 1]
    assert labels._merge(notes[1:])["labels"].tolist() == ["0", "1"]


def test_rows_of_one_rank_may_have_no_weight_and_those_of_all_may_not():
    rows = Rows(np.ones((3, 2)), np.array([0, 1, 1]), np.zeros(3))
    assert labels.checked(rows).weight.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="at least one non-zero"):
        NuMarginSVC().fit(rows.X, rows.y, rows.weight)


def test_warnings_point_at_the_line_that_called_fit():
    X, y = three_classes()
    with pytest.warns(ConvergenceWarning) as caught:
        NuMarginSVC(max_iter=1, tol=1e-12).fit(X, y)
    assert caught[0].filename == __file__
