"""Both objectives of the mean hinge loss against LIBLINEAR, and the bounds they are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from tests.peers.networks import ALPHA, optimum, overlapping_rows
from widemargin.problems.mean_hinge import MeanHinge


@pytest.fixture
def rows():
    X, codes = overlapping_rows(60)
    return X, np.where(codes == 1, 1.0, -1.0), np.random.default_rng(1).integers(0, 4, size=60).astype(float)


def values(problem, X, y, weight, w, dual):
    hinge = float(weight @ np.maximum(0, 1 - y * (X @ w)))
    total, pull = weight.sum(), (dual * y) @ X
    return problem.primal_value(hinge / total, w @ w), problem.dual_value(dual.sum() / total, pull @ pull / total**2)


def test_weak_duality_for_any_model_and_any_feasible_dual_variables(rows, seed):
    X, y, weight = rows
    rng, exact = np.random.default_rng(seed), optimum(X, y, weight)
    for scale in (0.01, 1.0, 10.0):
        w, dual = scale * rng.normal(size=X.shape[1]), rng.random(60) * weight
        primal, bound = values(MeanHinge(ALPHA), X, y, weight, w, dual)
        assert bound <= exact + 1e-9 <= primal + 2e-9
        assert bound >= 0  # of the best multiple, and zero is one


def test_both_meet_at_the_optimum_of_liblinear(rows):
    X, y, weight = rows
    C = 1 / (ALPHA * weight.sum())
    model = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-10, max_iter=5_000_000).fit(X, y, weight)
    w = model.coef_[0]
    # On the kinks dual variables are what makes V equal alpha N w.
    slack = 1 - y * (X @ w)
    dual = np.where(slack > 1e-6, weight, 0.0)
    on_kink = np.abs(slack) <= 1e-6
    missing = ALPHA * weight.sum() * w - (dual * y) @ X
    dual[on_kink] = np.linalg.lstsq((X * y[:, None])[on_kink].T, missing, rcond=None)[0]
    assert (dual >= -1e-6).all()
    assert (dual <= weight + 1e-6).all()
    primal, bound = values(MeanHinge(ALPHA), X, y, weight, w, dual)
    assert primal == pytest.approx(bound, rel=1e-6)


def test_a_dual_bound_is_of_the_best_multiple_up_to_one():
    problem, size = MeanHinge(0.5), 25 / 100
    literal = lambda scale: scale * 2.0 / 10 - (scale * 5.0) ** 2 / (2 * 0.5 * 100)  # noqa: E731
    assert problem.dual_value(0.2, size) == pytest.approx(max(literal(s) for s in np.linspace(0, 1, 100_001)))
    assert problem.dual_value(0.8, size) == pytest.approx(8 / 10 - 25 / 100)  # one, where more would be better
    assert problem.dual_value(0.0, 0.0) == 0.0
