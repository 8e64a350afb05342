"""What docs/other_libraries.md says is the same problem elsewhere: both are fitted, and compared within the proof."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import SGDClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import scale
from sklearn.svm import SVC, LinearSVC, NuSVC

from widemargin import GossipSVC, HardMarginSVC, KernelSVC, MarginDistributionSVC, NuMarginSVC, SparseSVC


@pytest.fixture(scope="module")
def rows():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def signs(y):
    return np.where(y == 1, 1.0, -1.0)


def hinge(model, X, y):
    """Hinge losses of the rows."""
    return np.maximum(0, 1 - signs(y) * model.decision_function(X))


def c_objective(model, X, y, C):
    """A linear C-SVM's, whose intercept is free."""
    return 0.5 * np.sum(model.coef_**2) + C * hinge(model, X, y).sum()


def assert_optimal(value, certificate, slack):
    """Whether an objective that was reached elsewhere is no lower than our bound, and hardly above our model's."""
    assert certificate.dual * (1 - 1e-9) <= value <= certificate.primal * (1 + slack)


def test_the_comparison_fails_for_another_problem(rows):
    X, y = rows
    ours = KernelSVC(kernel="linear", C=0.1, tol=1e-6).fit(X, y)
    theirs = SVC(kernel="linear", C=0.2, tol=1e-6).fit(X, y)
    with pytest.raises(AssertionError):
        assert_optimal(c_objective(theirs, X, y, 0.2), ours.certificate_, slack=1e-3)


def test_nu_margin_is_nu_svc(rows):
    X, y = rows
    ours = NuMarginSVC(nu=0.2, tol=1e-7).fit(X, y)
    theirs = NuSVC(nu=0.2, kernel="linear", tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)


def test_nu_margin_of_several_classes_is_nu_svc():
    X, y = load_iris(return_X_y=True)
    ours = NuMarginSVC(nu=0.4, tol=1e-7).fit(X, y)
    theirs = NuSVC(nu=0.4, kernel="linear", tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_nu_margin_is_the_c_svm_of_the_c_that_it_implies(rows):
    X, y = rows
    ours = NuMarginSVC(nu=0.2, tol=1e-7).fit(X, y)
    C = 2 * np.linalg.norm(ours.coef_) / (len(y) * ours.nu_ * ours.certificate_.primal)
    theirs = SVC(kernel="linear", C=C, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)


def test_hard_margin_is_an_svc_of_very_large_c():
    X, y = load_iris(return_X_y=True)
    ours = HardMarginSVC(tol=1e-9).fit(X, y == 0)
    theirs = SVC(kernel="linear", C=1e10, tol=1e-9).fit(X, y == 0)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5)
    assert 2 / np.linalg.norm(theirs.coef_) == pytest.approx(ours.certificate_.primal, rel=1e-5)


@pytest.mark.parametrize("gamma", [0.03, "scale", "auto"])
def test_kernel_svc_is_svc(rows, gamma):
    X, y = rows
    ours = KernelSVC(C=10, gamma=gamma, tol=1e-7).fit(X, y)
    theirs = SVC(C=10, gamma=gamma, tol=1e-7).fit(X, y)
    vectors, coef = theirs.support_vectors_, theirs.dual_coef_[0]
    norm = coef @ rbf_kernel(vectors, vectors, gamma=theirs._gamma) @ coef
    assert_optimal(0.5 * norm + 10 * hinge(theirs, X, y).sum(), ours.certificate_, slack=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=5e-3)


def test_kernel_svc_of_several_classes_is_svc():
    X, y = load_iris(return_X_y=True)
    ours, theirs = (model(C=3, gamma=0.5, tol=1e-8).fit(X, y) for model in (KernelSVC, SVC))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-2)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_kernel_svc_of_each_class_against_the_rest_is_that_of_svc():
    X, y = load_iris(return_X_y=True)
    ours = KernelSVC(C=3, gamma=0.5, tol=1e-8, multi_class="rest").fit(X, y)
    theirs = OneVsRestClassifier(SVC(C=3, gamma=0.5, tol=1e-8)).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-2)


def test_linear_kernel_svc_is_svc_and_the_problem_of_sgd(rows):
    X, y = rows
    C = 0.1
    ours = KernelSVC(kernel="linear", C=C, tol=1e-6).fit(X, y)
    theirs = SVC(kernel="linear", C=C, tol=1e-6).fit(X, y)
    assert_optimal(c_objective(theirs, X, y, C), ours.certificate_, slack=1e-5)
    stochastic = SGDClassifier(alpha=1 / (len(y) * C), average=True, max_iter=300, tol=None, random_state=0).fit(X, y)
    assert_optimal(c_objective(stochastic, X, y, C), ours.certificate_, slack=0.02)


def test_linear_svc_is_kernel_svc_without_an_intercept_only(rows):
    X, y = rows
    shifted = X + 2.0  # far from zero, where a price on the intercept is felt
    bare = LinearSVC(loss="hinge", C=0.1, fit_intercept=False, tol=1e-8, max_iter=200_000).fit(X, y)
    ours = KernelSVC(kernel="linear", C=0.1, fit_intercept=False, tol=1e-6).fit(X, y)
    assert_optimal(c_objective(bare, X, y, 0.1), ours.certificate_, slack=1e-5)
    priced = LinearSVC(loss="hinge", C=0.1, tol=1e-6, max_iter=200_000).fit(shifted, y)
    free = KernelSVC(kernel="linear", C=0.1, tol=1e-6).fit(shifted, y)
    assert c_objective(priced, shifted, y, 0.1) > free.certificate_.primal * 1.001


def test_gossip_is_linear_svc(rows):
    X, y = rows
    alpha = 1e-2
    theirs = LinearSVC(loss="hinge", C=1 / (alpha * len(y)), tol=1e-8, max_iter=200_000).fit(X, y)
    ours = GossipSVC(alpha=alpha, n_peers=4).fit(X, y)
    norm = np.sum(theirs.coef_**2) + np.sum(theirs.intercept_**2)
    assert_optimal(alpha / 2 * norm + hinge(theirs, X, y).mean(), ours.certificate_, slack=0)


def test_gossip_without_an_intercept_is_the_problem_of_sgd_and_kernel_svc(rows):
    X, y = rows
    alpha = 1e-2
    ours = GossipSVC(alpha=alpha, n_peers=4, fit_intercept=False).fit(X, y)
    others = (
        (KernelSVC(kernel="linear", C=1 / (alpha * len(y)), fit_intercept=False, tol=1e-6), 0),
        (SGDClassifier(alpha=alpha, average=True, fit_intercept=False, max_iter=300, tol=None, random_state=0), 0.02),
    )
    for other, slack in others:
        value = alpha / 2 * np.sum(other.fit(X, y).coef_ ** 2) + hinge(other, X, y).mean()
        assert_optimal(value, ours.certificate_, slack)


@pytest.mark.parametrize("deadband", [0.0, 0.2])
def test_margin_distribution_without_overshoot_is_the_squared_hinge(rows, deadband):
    X, y = rows
    C = 100.0
    machine = MarginDistributionSVC(kernel="linear", C=C, deadband=deadband, overshoot_weight=0.0, tol=1e-9)
    theirs = LinearSVC(C=C / (2 * len(y) * (1 - deadband) ** 2), tol=1e-8, max_iter=200_000).fit(X, y)
    np.testing.assert_allclose(machine.fit(X, y).coef_, (1 - deadband) * theirs.coef_, atol=1e-3)


def test_sparse_svc_is_a_linear_program_and_the_problem_of_sgd(rows):
    X, y = rows
    n, p = X.shape
    ours = SparseSVC(alpha=0.05).fit(X, y)
    price = np.concatenate([np.full(2 * p, 0.05), [0.0], np.full(n, 1 / n)])
    s = signs(y)[:, None]
    margins = np.hstack([s * X, -s * X, s, np.eye(n)])
    bounds = [(0, None)] * (2 * p) + [(None, None)] + [(0, None)] * n
    program = linprog(price, -margins, -np.ones(n), bounds=bounds)
    assert program.fun == pytest.approx(ours.certificate_.primal, rel=1e-6)
    steps = {"learning_rate": "adaptive", "eta0": 1e-3}  # those of its default are far too long for this penalty
    theirs = SGDClassifier(penalty="l1", alpha=0.05, max_iter=300, tol=None, random_state=0, **steps).fit(X, y)
    value = hinge(theirs, X, y).mean() + 0.05 * np.abs(theirs.coef_).sum()
    assert_optimal(value, ours.certificate_, slack=0.01)


def test_the_l1_of_linear_svc_is_another_problem(rows):
    X, y = rows
    ours = SparseSVC(alpha=0.05).fit(X, y)
    theirs = LinearSVC(penalty="l1", C=1 / (0.05 * len(y)), tol=1e-6, max_iter=100_000).fit(X, y)
    value = hinge(theirs, X, y).mean() + 0.05 * np.abs(theirs.coef_).sum()
    assert value > ours.certificate_.primal * 1.01
