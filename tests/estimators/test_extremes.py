"""Numbers at the edge of float64: a fit works, or a ValueError says what to change; no NaN and no other error."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from widemargin import (
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
    sparse_svc_path,
)

FITS = {
    "hard": (HardMarginSVC, {}),
    "hard newton": (HardMarginSVC, {"solver": "newton"}),
    "hard saddle": (HardMarginSVC, {"solver": "saddle"}),
    "hard active-set": (HardMarginSVC, {"solver": "active-set"}),
    "nu": (NuMarginSVC, {"nu": 0.3}),
    "nu saddle": (NuMarginSVC, {"nu": 0.3, "solver": "saddle"}),
    "kernel": (KernelSVC, {}),
    "kernel poly": (KernelSVC, {"kernel": "poly"}),
    "kernel laplacian": (KernelSVC, {"kernel": "laplacian"}),
    "kernel sigmoid": (KernelSVC, {"kernel": "sigmoid"}),
    "perceptron": (KernelSVC, {"solver": "batch-perceptron"}),
    "slack": (KernelSVC, {"slack": 0.1}),
    "linear": (KernelSVC, {"kernel": "linear"}),
    "margin": (MarginDistributionSVC, {}),
    "margin newton": (MarginDistributionSVC, {"solver": "newton"}),
    "margin descent": (MarginDistributionSVC, {"solver": "dual-descent"}),
    "margin tree": (MarginDistributionSVC, {"solver": "partition-merge", "n_partitions": 2}),
    "margin linear": (MarginDistributionSVC, {"kernel": "linear"}),
    "margin svrg": (MarginDistributionSVC, {"kernel": "linear", "solver": "svrg"}),
    "sparse": (SparseSVC, {}),
    "sparse alpha": (SparseSVC, {"alpha": 0.05, "fit_intercept": False}),
    "sparse cv": (SparseSVCCV, {"n_alphas": 3, "cv": 2}),
    "gossip": (GossipSVC, {"n_peers": 3}),
}
# What is fitted: factors of all rows, of one row, of one column, of all weights, one weight.
ROWS = [5e-324, 1e-300, 1e-165, 1e-160, 1e-80, 1e-74, 1e-40, 1e40, 1e74, 1e80, 1e155, 1e160, 1e300]
WEIGHTS = [5e-324, 1e-300, 1e-100, 1e-49, 1e20, 1e100, 1e300]
VALUES = [5e-324, 1e-300, 1e-100, 1e-49, 1e-15, 1e15, 1e49, 1e100, 1e300, 1.7e308]
PARAMETERS = {
    "kernel": ["C", "gamma", "tol"],
    "kernel poly": ["C", "gamma", "coef0"],
    "perceptron": ["C", "gamma"],
    "slack": ["slack"],
    "linear": ["C"],
    "margin": ["C", "overshoot_weight"],
    "margin linear": ["C", "overshoot_weight", "tol"],
    "margin svrg": ["C"],
    "nu": ["nu", "tol"],
    "sparse alpha": ["alpha", "tol"],
    "sparse cv": ["eps"],
    "gossip": ["alpha", "tol"],
}


def some_rows():
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    X = rng.normal(size=(24, 3))
    X[:, 0] += 1.5 * (2 * y - 1)
    return X, y


def fit(name, X, y, weight=None, **parameters):
    """The model, or None if a ValueError said what must change."""
    make, options = FITS[name]
    if "random_state" in make().get_params():
        options = {"random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make(**{"max_iter": 25, "max_time": 5.0, **options, **parameters})
        try:
            model.fit(X, y) if weight is None else model.fit(X, y, weight)
        except ValueError as error:
            if any(word in str(error) for word in ("must", "use", "scale")):
                return None
            raise  # it does not say what to do
    for attribute in ("coef_", "intercept_", "dual_coef_"):
        assert np.isfinite(getattr(model, attribute, 0.0)).all(), attribute
    certificate = model.certificate_
    assert not np.isnan([certificate.primal, certificate.dual]).any()
    assert certificate.dual <= certificate.primal * (1 + 1e-9)
    return model


@pytest.mark.parametrize("factor", ROWS)
@pytest.mark.parametrize("name", FITS)
def test_rows_of_any_size_are_fitted_or_refused(name, factor):
    X, y = some_rows()
    model = fit(name, X * factor, y)
    if not 1e-75 < factor < 1e75:
        is_fitted = name.startswith(("hard", "nu")) and 1e-301 < factor < 1e301  # scaled by a power of two
        assert (model is not None) == is_fitted


@pytest.mark.parametrize("factor", [1e-300, 1e70, 1e300])
@pytest.mark.parametrize("where", ["row", "column"])
@pytest.mark.parametrize("name", FITS)
def test_one_row_or_column_of_another_size_is_fitted_or_refused(name, where, factor):
    X, y = some_rows()
    X[(3,) if where == "row" else (slice(None), 1)] *= factor
    fit(name, X, y)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("name", [name for name in FITS if name not in ("hard newton", "hard saddle", "margin tree")])
def test_weights_of_any_size_are_used_or_refused(name, weight):
    X, y = some_rows()
    fit(name, X, y, np.full(24, weight))


@pytest.mark.parametrize(("name", "parameter"), [(name, each) for name, every in PARAMETERS.items() for each in every])
@pytest.mark.parametrize("value", VALUES)
def test_parameters_of_any_size_are_used_or_refused(name, parameter, value):
    fit(name, *some_rows(), **{parameter: value})


@pytest.mark.parametrize("name", FITS)
def test_a_tolerance_of_zero_is_accepted(name):
    fit(name, *some_rows(), tol=0.0)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("name", [name for name in FITS if name != "margin tree"])
def test_a_hundred_thousand_columns_are_fitted_or_refused(name, storage):
    rng = np.random.default_rng(0)
    y = np.arange(12) % 2
    X = sp.random(12, 100_000, 0.002, "csr", rng=rng).toarray()
    X[:, 0] = y
    fit(name, storage(X), y, max_iter=3)


def test_the_error_names_the_value_and_the_range():
    X, y = some_rows()
    with pytest.raises(ValueError, match=r"C=1e-300 .*\[1e-50, 1e\+50\]"):
        KernelSVC(C=1e-300).fit(X, y)
    with pytest.raises(ValueError, match=r"1\.0e-160.*\[1e-75, 1e\+75\].*scale the features"):
        KernelSVC().fit(X * 1e-160 / np.abs(X).max(), y)
    with pytest.raises(ValueError, match=r"sample_weight has 24 value.*1e-300.*\[1e-50, 1e\+50\]"):
        SparseSVC().fit(X, y, np.full(24, 1e-300))
    with pytest.raises(ValueError, match=r"largest entry of X"):
        sparse_svc_path(X * 1e160, y)


def test_small_entries_beside_large_ones_are_welcome():
    X, y = some_rows()
    X[:, 1] *= 1e-310
    X[0, 2] = 5e-324
    assert KernelSVC().fit(X, y).certificate_.relative <= 1e-3
