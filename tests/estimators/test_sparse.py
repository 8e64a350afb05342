"""SparseSVC, its path and its cross-validation, as users see them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import scale

from widemargin import PrecisionWarning, SparseSVC, SparseSVCCV, sparse_svc_path


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def by_highs(X, y, alpha, fit_intercept=True, weight=None):
    """The optimum of the whole linear program."""
    n, p = X.shape
    weight = np.ones(n) if weight is None else weight
    signed = y[:, None] * X
    cost = np.concatenate([np.full(2 * p, alpha), weight / weight.sum(), np.zeros(1)])
    A = np.hstack([-signed, signed, -np.eye(n), -(y * fit_intercept)[:, None]])
    bounds = [(0, None)] * (2 * p + n) + [(None, None)]
    answer = linprog(cost, A_ub=A, b_ub=-np.ones(n), bounds=bounds, method="highs")
    assert answer.status == 0
    return answer.fun


def objective(model, X, y, alpha):
    margins = y * (X @ model.coef_[0] + model.intercept_[0])
    return np.maximum(0, 1 - margins).mean() + alpha * np.abs(model.coef_).sum()


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("alpha", [0.003, 0.03, 0.3])
def test_the_optimum_is_that_of_the_linear_program(cancer, alpha, fit_intercept):
    X, labels = cancer
    y = np.where(labels == 1, 1.0, -1.0)
    best = by_highs(X, y, alpha, fit_intercept)
    model = SparseSVC(alpha=alpha, fit_intercept=fit_intercept, tol=1e-9).fit(X, labels)
    assert objective(model, X, y, alpha) == pytest.approx(best, rel=1e-8)
    assert model.certificate_.dual <= best * (1 + 1e-12) <= model.certificate_.primal * (1 + 2e-12)
    assert model.certificate_.primal == pytest.approx(objective(model, X, y, alpha), rel=1e-9)
    assert fit_intercept or model.intercept_[0] == 0


def test_auto_alpha_follows_the_units_of_the_features(cancer):
    X, y = cancer
    model, larger = SparseSVC().fit(X, y), SparseSVC().fit(1000 * X, y)
    assert model.alpha_ == pytest.approx(0.7 * np.sqrt(np.log(30) / len(y)))
    assert larger.alpha_ == pytest.approx(1000 * model.alpha_)
    assert 1000 * larger.coef_ == pytest.approx(model.coef_, abs=1e-7)


def test_attributes(cancer):
    X, y = cancer
    model = SparseSVC().fit(X, y)
    assert model.coef_.shape == (1, 30)
    assert model.support_.tolist() == np.flatnonzero(model.coef_[0]).tolist()
    assert model.n_features_selected_ == len(model.support_) > 1
    assert model.stop_reason_ == "gap"
    assert model.certificate_.relative <= 1e-6
    assert not np.any((np.abs(model.coef_) > 0) & (np.abs(model.coef_) < 1e-10))
    assert model.history_[-1]["primal"] == model.certificate_.primal


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_alpha_max_is_where_the_first_feature_enters(seed, fit_intercept):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(80, 12)), np.where(rng.random(80) < 0.3, 1, -1)
    X[:, 0] += y
    largest = SparseSVC(alpha=0.1, fit_intercept=fit_intercept).fit(X, y).alpha_max_
    above = SparseSVC(alpha=1.001 * largest, fit_intercept=fit_intercept, tol=1e-9).fit(X, y)
    below = SparseSVC(alpha=0.999 * largest, fit_intercept=fit_intercept, tol=1e-9).fit(X, y)
    assert above.n_features_selected_ == 0
    assert above.alpha_max_ == pytest.approx(largest, rel=1e-6)
    assert below.n_features_selected_ > 0


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_have_the_same_model(cancer, ranks):
    X, y = cancer
    alone, many = SparseSVC(tol=1e-9).fit(X, y), SparseSVC(tol=1e-9, cluster=ranks).fit(X, y)
    assert many.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=1e-8)
    assert many.coef_ == pytest.approx(alone.coef_, abs=1e-6)
    assert many.cost_.bytes > 0


def test_sparse_rows_and_dense_rows_and_pieces_of_float32(cancer):
    X, y = cancer
    X = np.where(np.abs(X) > 1, X, 0)
    dense, sparse = SparseSVC(tol=1e-9).fit(X, y), SparseSVC(tol=1e-9).fit(sp.csr_matrix(X), y)
    assert sparse.coef_ == pytest.approx(dense.coef_, abs=1e-7)
    single = SparseSVC(tol=1e-9).fit(X.astype(np.float32), y)
    assert single.certificate_.primal == pytest.approx(dense.certificate_.primal, rel=1e-5)


def test_a_weight_is_a_number_of_copies(cancer):
    X, y = cancer
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, len(y))
    copies = np.repeat(np.arange(len(y)), weight)
    weighted = SparseSVC(alpha=0.02, tol=1e-9).fit(X, y, sample_weight=weight)
    repeated = SparseSVC(alpha=0.02, tol=1e-9).fit(X[copies], y[copies])
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-9)
    assert weighted.coef_ == pytest.approx(repeated.coef_, abs=1e-6)


def test_several_classes_are_one_against_the_rest():
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 4] / 16, y[y < 4]
    model = SparseSVC().fit(X, y)
    assert model.coef_.shape == (4, 64)
    assert model.alpha_.shape == model.alpha_max_.shape == (4,)
    assert model.decision_function(X).shape == (len(y), 4)
    assert model.score(X, y) > 0.97
    assert model.support_.tolist() == np.flatnonzero(model.coef_.any(axis=0)).tolist()


def test_a_warm_start_goes_on_from_the_last_fit(cancer):
    X, y = cancer
    model = SparseSVC(alpha=0.01, warm_start=True).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ <= cold
    assert model.certificate_.relative <= 1e-6


def test_selection_keeps_what_is_not_zero(cancer):
    X, y = cancer
    selector = SelectFromModel(SparseSVC()).fit(X, y)
    assert selector.get_support().nonzero()[0].tolist() == selector.estimator_.support_.tolist()


def test_in_a_search(cancer):
    search = GridSearchCV(SparseSVC(), {"alpha": [0.01, 0.1, "auto"]}, cv=3).fit(*cancer)
    assert search.best_score_ > 0.93


def test_a_gap_that_is_not_closed_is_said(cancer):
    X, y = cancer
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 was reached\. Raise max_iter"):
        model = SparseSVC(alpha=1e-3, max_iter=1).fit(X, y)
    assert model.certificate_.dual <= model.certificate_.primal
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrecisionWarning)
        SparseSVC(alpha=1e-3, tol=0.0).fit(X, y)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"alpha": 0.0}, "alpha"), ({"alpha": -1.0}, "alpha"), ({"alpha": "best"}, "alpha"), ({"tol": -1.0}, "tol")],
)
def test_bad_parameters(cancer, given, message):
    with pytest.raises(ValueError, match=message):
        SparseSVC(**given).fit(*cancer)


def test_no_feature_tells_anything():
    X, y = np.ones((20, 3)), np.arange(20) % 2
    model = SparseSVC(alpha=0.1).fit(X, y)
    assert model.n_features_selected_ == 0
    assert model.alpha_max_ == 0
    with pytest.raises(ValueError, match="no path"):
        sparse_svc_path(X, y)


# -- path ------------------------------------------------------------------------------------------------------------


def test_every_model_of_a_path_is_proven(cancer):
    X, y = cancer
    path = sparse_svc_path(X, y, n_alphas=12, tol=1e-8)
    assert path.coefs.shape == (12, 30)
    assert path.n_selected[0] == 0
    assert (np.diff(path.alphas) < 0).all()
    assert path.alphas[-1] == pytest.approx(0.01 * path.alphas[0])
    for alpha, coef, intercept, certificate in zip(
        path.alphas, path.coefs, path.intercepts, path.certificates, strict=True
    ):
        assert certificate.relative <= 1e-8
        alone = SparseSVC(alpha=alpha, tol=1e-8).fit(X, y)
        assert certificate.primal == pytest.approx(alone.certificate_.primal, rel=2e-8)
        margins = np.where(y == 1, 1, -1) * (X @ coef + intercept)
        assert np.maximum(0, 1 - margins).mean() + alpha * np.abs(coef).sum() == pytest.approx(certificate.primal)


def test_a_path_takes_penalties_in_any_order_and_two_classes_only(cancer):
    X, y = cancer
    assert sparse_svc_path(X, y, alphas=[0.01, 0.3, 0.1]).alphas.tolist() == [0.3, 0.1, 0.01]
    with pytest.raises(ValueError, match="needs 2 classes, and y has 3"):
        sparse_svc_path(X[:6], [0, 1, 2, 0, 1, 2])


def test_a_path_can_be_drawn(cancer):
    pytest.importorskip("matplotlib").use("Agg")
    from widemargin.reports import plot_sparse_path

    path = sparse_svc_path(*cancer, n_alphas=8)
    ax = plot_sparse_path(path, chosen=0.05, feature_names=load_breast_cancer().feature_names)
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 8]
    assert len(lines) == np.count_nonzero(path.coefs.any(axis=0))
    assert ax.get_xscale() == "log"


# -- cross-validation ------------------------------------------------------------------------------------------------


def test_cross_validation_is_that_of_scikit_learn(cancer):
    X, y = cancer
    alphas = [0.3, 0.1, 0.03, 0.01]
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    model = SparseSVCCV(alphas=alphas, cv=folds).fit(X, y)
    search = GridSearchCV(SparseSVC(), {"alpha": alphas}, cv=folds).fit(X, y)
    errors = 1 - np.array([search.cv_results_[f"split{k}_test_score"] for k in range(4)]).T
    assert model.error_path_ == pytest.approx(errors, abs=1 / 100)
    assert model.alphas_.tolist() == alphas
    assert model.alpha_ == alphas[int(np.argmin(model.error_path_.mean(axis=1)))]
    assert model.coef_ == pytest.approx(SparseSVC(alpha=model.alpha_).fit(X, y).coef_, abs=1e-6)
    assert model.n_selected_path_.shape == (4, 4)


def test_one_standard_error_is_sparser_and_within_it(cancer):
    X, y = cancer
    best, sparse = (SparseSVCCV(n_alphas=15, rule=rule).fit(X, y) for rule in ("best", "one-standard-error"))
    mean = best.error_path_.mean(axis=1)
    least = best.error_path_[np.argmin(mean)]
    assert sparse.alpha_ >= best.alpha_
    assert mean[list(sparse.alphas_).index(sparse.alpha_)] <= least.mean() + least.std(ddof=1) / np.sqrt(5) + 1e-12


def test_folds_side_by_side_change_nothing(cancer):
    X, y = cancer
    alone, both = (SparseSVCCV(n_alphas=6, cluster=cluster).fit(X, y) for cluster in (None, 2))
    np.testing.assert_array_equal(alone.error_path_, both.error_path_)
    assert alone.alpha_ == both.alpha_


def test_cross_validation_of_several_classes_and_weights():
    X, y = load_digits(n_class=3, return_X_y=True)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    model = SparseSVCCV(n_alphas=5, cv=3, class_weight="balanced").fit(sp.csr_matrix(X / 16), y, sample_weight=weight)
    assert model.coef_.shape == (3, 64)
    assert model.score(X / 16, y) > 0.97


@pytest.mark.parametrize("alphas", [[], [0.1, -1.0], [np.inf]])
def test_bad_penalties_are_refused_before_any_work(cancer, alphas):
    with pytest.raises(ValueError, match="must be positive, finite"):
        SparseSVCCV(alphas=alphas).fit(*cancer)
