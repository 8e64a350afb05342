"""The exact answers agree with other ways to them, and what is false is found."""

from __future__ import annotations

from decimal import Decimal, localcontext
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

from tests import exact
from tests.estimators.test_sparse import by_highs
from tests.exact import Bracket, exactly
from tests.oracles import exact_svm, hull_distance, nu_cap
from tests.problems.test_margin_distribution import exact_odm
from tests.truths import Truth, false_claims
from widemargin import Certificate
from widemargin.problems.margin_distribution import MarginDistribution

LINEAR = SimpleNamespace(name="linear")
RBF = SimpleNamespace(name="rbf", gamma=0.5)


def some_rows(seed, n=24, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1), rng.integers(0, 4, n) / 2


def assert_is(bracket, value, rel=1e-9):
    assert bracket.low <= bracket.high
    assert float(bracket.high - bracket.low) <= 1e-39 * float(abs(bracket.high))
    assert float(bracket.low) == pytest.approx(value, rel=rel)


@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly", "cosine", "linear"])
def test_kernels_are_those_of_scikit_learn(name):
    X, _, _ = some_rows(0)
    kernel = SimpleNamespace(name=name, gamma=0.3, degree=3, coef0=0.5)
    options = {"rbf": ["gamma"], "laplacian": ["gamma"], "poly": ["gamma", "degree", "coef0"]}.get(name, [])
    there = pairwise_kernels(X, metric=name, **{option: getattr(kernel, option) for option in options})
    np.testing.assert_allclose(exact.kernel_values(kernel, X).astype(float), there, rtol=1e-12, atol=1e-14)


def test_distances_of_hulls_are_those_of_another_oracle(seed):
    X, y, weight = some_rows(seed)
    cap = nu_cap(y, 0.6, weight)
    assert_is(
        exact.hull_distance(X, y, exact.masses_at_most(y, weight, 0.6)), hull_distance(X, y, weight, cap).distance
    )
    X[:, 0] += 4 * y
    assert_is(exact.hull_distance(X, y, exact.masses_at_most(y, weight, None)), hull_distance(X, y, weight).distance)


def test_a_class_of_one_point_and_hulls_that_meet():
    X, y = np.array([[0.0, 3.0], [1.0, 0.0], [-1.0, 0.0]]), np.array([1, -1, -1])
    most = exact.masses_at_most(y, np.ones(3), None)
    assert_is(exact.hull_distance(X, y, most), 3.0)
    assert exact.margin(X, y, most, np.array([0.0, 2.0])) == 3
    assert exact.margin(X, y, most, np.array([0.0, -2.0])) == -3
    assert exact.margin(X, y, most, np.zeros(2)) == 0
    low, high = exact.hull_distance(X * [1, 0], y, most)
    assert low <= 0 < high <= Decimal("1e-39")


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_optima_of_the_linear_machine_are_those_of_another_oracle(seed, C, fit_intercept):
    X, y, weight = some_rows(seed)
    caps = exactly(C * weight)
    found = exact.hinge_optimum(exact.kernel_values(LINEAR, X), y, caps, fit_intercept)
    assert_is(found, exact_svm(X, y, C, weight, fit_intercept), rel=1e-7)


@pytest.mark.parametrize("C", [0.1, 100.0])
def test_optima_of_a_kernel_machine_are_those_of_libsvm(seed, C):
    X, y, _ = some_rows(seed)
    there = SVC(C=C, gamma=0.5, tol=1e-10).fit(X, y)
    coef, scores = np.zeros(len(y)), there.decision_function(X)
    coef[there.support_] = there.dual_coef_[0]
    K, caps = exact.kernel_values(RBF, X), exactly(np.full(len(y), C))
    squared_norm = exactly(coef) @ K @ exactly(coef)
    attained = exact.hinge_objective(squared_norm, exactly(scores), y, caps)
    optimum = exact.hinge_optimum(K, y, caps, True)
    assert_is(optimum, float(attained), rel=1e-5)  # whose kernel values have 24 bits
    assert attained >= optimum.low


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 10.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_optima_of_the_sparse_machine_are_those_of_highs(seed, alpha, fit_intercept):
    X, y, weight = some_rows(seed)
    caps = exactly(weight) / exactly(weight).sum()
    found = exact.sparse_optimum(X, y, caps, Decimal(alpha), fit_intercept)
    there = by_highs(X, y.astype(float), alpha, weight=weight, fit_intercept=fit_intercept)
    assert_is(found, there)


@pytest.mark.parametrize("C", [1e-3, 10.0, 1e4])
@pytest.mark.parametrize("v", [0.5, 0.01])
def test_optima_of_the_margin_machine_are_those_of_another_oracle(seed, C, v):
    X, y, weight = some_rows(seed)
    weight *= 2  # there they are repetitions
    with localcontext(prec=100):
        K = exact.kernel_values(RBF, X) + 1
    there = exact_odm(pairwise_kernels(X, metric="rbf", gamma=0.5), y, MarginDistribution(C, 0.2, v), weight)
    assert_is(exact.margin_optimum(K, y, exact.margin_loss(weight, C, 0.2, v)), there.value)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_level_with_slack_is_that_of_a_linear_program(seed, fit_intercept):
    from scipy.optimize import linprog

    _, y, weight = some_rows(seed, n=12)
    c = np.random.default_rng(seed).normal(size=12)
    present = weight > 0
    # maximise level: c_i + y_i b + xi_i >= level, weight.xi <= volume
    n = int(present.sum())
    rows = np.column_stack([np.ones(n), -y[present] * fit_intercept, -np.eye(n)])
    volume = np.concatenate([[0.0, 0.0], weight[present]])
    there = linprog(
        [-1.0, 0.0] + [0.0] * n,
        np.vstack([rows, volume]),
        np.append(c[present], 3.0),
        bounds=[(None, None)] * 2 + [(0, None)] * n,
    )
    found = exact.slack_level(exactly(c), y, exactly(weight), Decimal(3), fit_intercept)
    assert float(found) == pytest.approx(-there.fun, rel=1e-9)


def test_the_highest_level_lies_between_that_of_a_model_and_that_of_masses(seed):
    X, y, weight = some_rows(seed, n=12)
    K = exact.kernel_values(RBF, X)
    low, high = exact.slack_optimum(K, y, weight, 0.2, True)
    assert 0 <= high - low <= exact.SLACK_PROVED * high


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_an_optimum_follows_the_units_of_the_rows(scale):
    X, y, weight = some_rows(0, n=10)
    with localcontext(prec=exact.DIGITS[-1]):
        factor = Decimal(scale) ** 2
        K, caps = exact.kernel_values(LINEAR, X), exactly(weight)
        plain, scaled = (exact.hinge_optimum(K * f, y, caps / f, True) for f in (1, factor))
        assert abs(scaled.low * factor / plain.low - 1) <= Decimal("1e-39")


# -- what is false is found ------------------------------------------------------------------------------------------

OPTIMUM = Bracket(Decimal(2) - Decimal("1e-40"), Decimal(2) + Decimal("1e-40"))
BELOW, ABOVE = np.nextafter(2.0, 0), np.nextafter(2.0, 3)


@pytest.mark.parametrize(("primal", "dual"), [(2.0, 2.0), (ABOVE, BELOW), (np.inf, -np.inf)])
def test_true_bounds_pass(primal, dual):
    assert false_claims(Certificate(primal, dual), [], Truth(OPTIMUM, Decimal(2))) == []


@pytest.mark.parametrize(("primal", "dual"), [(BELOW, 1.0), (3.0, ABOVE), (np.nan, 1.0), (3.0, np.nan), (-np.inf, 1.0)])
def test_a_bound_that_is_false_by_one_rounding_is_found_in_a_certificate_and_in_a_sweep(primal, dual):
    truth = Truth(OPTIMUM, Decimal(2))
    assert any("certificate" in claim for claim in false_claims(Certificate(primal, dual), [], truth))
    row = {"sweep": 3, "primal": primal, "dual": dual}
    assert [claim[:7] for claim in false_claims(Certificate(4.0, 1.0), [row], truth)] == ["sweep 3"]


def test_a_model_that_is_worse_than_its_certificate_is_found():
    worse = Truth(OPTIMUM, Decimal(ABOVE))
    assert false_claims(Certificate(ABOVE, 1.0), [], worse) == []
    assert [claim[:5] for claim in false_claims(Certificate(2.0, 1.0), [], worse)] == ["model"]
    short = Truth(OPTIMUM, Decimal(BELOW), is_minimised=False)
    assert false_claims(Certificate(3.0, BELOW), [], short) == []
    assert [claim[:5] for claim in false_claims(Certificate(3.0, 2.0), [], short)] == ["model"]
    none = Truth(OPTIMUM, Decimal("-Infinity"), is_minimised=False)
    assert [claim[:5] for claim in false_claims(Certificate(3.0, -1e300), [], none)] == ["model"]
    assert false_claims(Certificate(3.0, -np.inf), [], none) == []


def test_a_bracket_that_contradicts_itself_is_refused():
    with pytest.raises(exact.OracleError, match="contradicts"):
        exact._first_proved(iter([Bracket(Decimal(3), Decimal(2))]))
    with pytest.raises(exact.OracleError, match="failed"):
        exact._first_proved(iter([Bracket(Decimal(1), Decimal(2))]))
