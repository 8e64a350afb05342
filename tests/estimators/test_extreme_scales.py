"""Features of any size: certificates that hold in exact arithmetic, or words about what float64 cannot do."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from tests.solvers.test_block_dual import exact_of
from widemargin import DebiasedSparseSVC, KernelSVC, MarginDistributionSVC, PrecisionWarning


def some_rows(seed=0, n=12, d=3):
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 9, (n, d)) / 4
    return X, np.where(X @ np.arange(1.0, d + 1) + 0.1 > 0, 1.0, -1.0)


def exact_margins(model, X, y):
    """``y (x.coef + intercept)`` of every row, without any rounding."""
    coef, intercept = [Fraction(float(c)) for c in model.coef_[0]], Fraction(float(model.intercept_[0]))
    scores = [sum((Fraction(float(v)) * c for v, c in zip(x, coef, strict=True)), intercept) for x in X]
    return [int(label) * score for label, score in zip(y, scores, strict=True)], coef, intercept


@pytest.mark.parametrize("power", [0, 4, 8, 12, 20, 30])
@pytest.mark.parametrize("seed", range(4))
def test_the_objective_of_a_linear_model_is_below_its_upper_bound_in_exact_arithmetic(power, seed):
    X, y = some_rows(seed)
    X = X * 10.0**power
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        model = KernelSVC(kernel="linear", tol=1e-6).fit(X, y)
    margins, coef, _ = exact_margins(model, X, y)
    objective = sum(c * c for c in coef) / 2 + sum(max(0, 1 - margin) for margin in margins)
    certificate = model.certificate_
    assert float(objective) <= certificate.primal * (1 + 1e-14)
    assert certificate.dual <= float(objective)
    assert model.stop_reason_ in ("gap", "precision")


@pytest.mark.parametrize("power", [0, 8, 16, 30])
def test_the_objective_of_a_linear_margin_machine_is_below_its_upper_bound_in_exact_arithmetic(power):
    X, y = some_rows(1)
    X = X * 10.0**power
    model = MarginDistributionSVC(kernel="linear", C=10.0, tol=1e-6)
    if power > 8:
        with pytest.warns(PrecisionWarning, match="Scale the features"):
            model.fit(X, y)
    else:
        model.fit(X, y)
    margins, coef, intercept = exact_margins(model, X, y)
    low, high = Fraction(1 - model.deadband), Fraction(1 + model.deadband)
    steep, v = Fraction(model.C) / (len(y) * low * low), Fraction(model.overshoot_weight)
    losses = sum(max(0, low - m) ** 2 + v * max(0, m - high) ** 2 for m in margins)
    objective = (sum(c * c for c in coef) + intercept**2 + steep * losses) / 2
    assert float(objective) <= model.certificate_.primal * (1 + 1e-14)
    assert model.certificate_.dual <= float(objective)


@pytest.mark.parametrize("make", [KernelSVC, MarginDistributionSVC])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
def test_rows_too_long_for_products_are_refused(make, kernel):
    X, y = some_rows()
    with pytest.raises(ValueError, match="scale the features"):
        make(kernel=kernel, gamma=1.0).fit(X * 1e160, y)


@pytest.mark.parametrize("solver", ["exact", "batch-perceptron"])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("offset", [0.0, 2.0**20, 2.0**40])
def test_kernels_of_distance_are_those_of_the_rows_as_they_are(kernel, storage, solver, offset):
    """Two heaps of rows far apart, both of both classes, so that no centre is near to all."""
    X, y = some_rows(3)
    X[::2] += offset
    X[1::2] -= offset
    apart = X[:, None] - X  # exact: multiples of 1/4
    distance = (apart**2).sum(-1) if kernel == "rbf" else np.abs(apart).sum(-1)
    model = KernelSVC(kernel=kernel, gamma=0.5, solver=solver, tol=1e-2, random_state=0).fit(storage(X), y)
    exact = exact_of(np.exp(-0.5 * distance), y, 1.0, np.ones(len(y)))
    assert model.certificate_.dual <= exact * (1 + 1e-9)
    assert model.certificate_.primal >= exact * (1 - 1e-9)


@pytest.mark.parametrize("solver", ["exact", "batch-perceptron"])
def test_a_linear_kernel_of_rows_far_away_has_no_lower_bound_over_the_optimum(solver):
    """A shift changes nothing: the optimum is that of the rows about the origin, on a grid that the shift keeps."""
    X, y = some_rows(2)
    y[:3] *= -1
    exact = exact_of(X @ X.T, y, 1.0, np.ones(len(y)))
    options = {"gamma": 1.0, "coef0": 0.0, "degree": 1, "solver": solver, "max_iter": 20, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = KernelSVC(kernel="poly", **options).fit(X + 2.0**27, y)
    assert model.certificate_.dual <= exact * (1 + 1e-9)
    assert model.certificate_.primal >= exact * (1 - 1e-9)


def test_a_debiased_fit_of_separable_classes_keeps_a_model_and_says_why_it_has_no_standard_errors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    y = np.sign(X[:, 0])
    X[:, 0] += 2 * y
    with pytest.warns(UserWarning, match="Nothing could be debiased.*HardMarginSVC or SparseSVC"):
        model = DebiasedSparseSVC(alpha=0.05).fit(X, y)
    assert model.score(X, y) == 1
    assert np.isinf(model.standard_error_).all()


@pytest.mark.parametrize("exponent", [-160, 160])
def test_features_whose_squares_are_beyond_float64_are_refused_by_a_debiased_fit(exponent):
    X, y = some_rows(2)
    with pytest.raises(ValueError, match="scale the features"):
        DebiasedSparseSVC().fit(X * 10.0**exponent, y)


def test_a_gamma_of_next_to_nothing_makes_all_rows_alike():
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.arange(40) < 10
    model = KernelSVC(gamma=5e-324).fit(X, y)
    assert model.certificate_.relative < 1e-3
    assert not model.predict(X).any()
