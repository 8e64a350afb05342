"""DebiasedSparseSVC as users see it: estimates, intervals, machines, the table."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import false_discovery_control
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from widemargin import DebiasedSparseSVC, SparseSVC, SparseSVCCV, load, save
from widemargin.comm.solo import Solo
from widemargin.data import make_sparse_gaussians
from widemargin.data.shard import Shard
from widemargin.estimators.words import certificate_in_words
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.solvers.debiased import DebiasedRounds
from widemargin.solvers.run import Limits, run


@pytest.fixture(autouse=True)
def text_as_wide_as_without_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def data():
    """The paper's design: 5 of 60 features have an effect."""
    return make_sparse_gaussians(3000, 60, random_state=0)


def test_the_features_with_an_effect_are_found_and_the_bias_is_gone(data):
    X, y, beta = data
    model = DebiasedSparseSVC().fit(X, y)
    penalised = SparseSVC().fit(X, y)
    assert model.selected_[0].nonzero()[0].tolist() == [0, 1, 2, 3, 4]
    assert np.linalg.norm(model.coef_[0] - beta) < 0.7 * np.linalg.norm(penalised.coef_[0] - beta)
    assert model.coef_naive_ == pytest.approx(penalised.coef_, abs=1e-9)
    assert (model.coef_[model.selected_] == model.coef_debiased_[model.selected_]).all()
    assert (model.coef_[~model.selected_] == 0).all()
    assert model.alpha_ == pytest.approx(penalised.alpha_)


def test_intervals_and_p_values_belong_to_the_standard_errors(data):
    X, y, _ = data
    model = DebiasedSparseSVC(confidence=0.9).fit(X, y)
    middle, reach = model.coef_interval_.mean(axis=-1), np.diff(model.coef_interval_, axis=-1)[..., 0] / 2
    assert middle == pytest.approx(model.coef_debiased_)
    assert reach == pytest.approx(1.6448536 * model.standard_error_)
    assert model.pvalue_[0, :5].max() < 1e-3
    assert 0.3 < np.median(model.pvalue_[0, 5:]) < 0.7
    assert model.coef_interval_.shape == (1, 60, 2)
    assert model.intercept_standard_error_.shape == (1,)


@pytest.mark.parametrize("options", [{}, {"share_inverse": True}, {"fit_intercept": False}, {"inverse": "clime"}])
def test_the_second_round_does_not_depend_on_the_number_of_machines(data, options):
    X, y, beta = data
    one, many = (DebiasedSparseSVC(cluster=m, **options).fit(X[:, :30], y) for m in (None, 5))
    assert many.n_machines_ == 5
    assert many.n_rows_ == one.n_rows_ == 3000
    assert np.abs(many.coef_debiased_ - one.coef_debiased_).max() < 2 * one.standard_error_.max()
    assert many.standard_error_ == pytest.approx(one.standard_error_, rel=0.5 if "share_inverse" in options else 0.25)
    error = np.linalg.norm(many.coef_[0] - beta[:30])
    assert error < 0.5 * np.linalg.norm(many.coef_naive_[0] - beta[:30])


def test_only_vectors_travel(data):
    X, y, _ = data
    ledgers = [DebiasedSparseSVC(cluster=4, rounds=rounds).fit(X, y).cost_ for rounds in (1, 2)]
    of_a_round = ledgers[1].scalars - ledgers[0].scalars
    # Up from three machines and down to them: estimate, variances, the score twice, and 1 + s + s^2 for s = 6 that are
    # fitted anew, in some ten steps.
    assert of_a_round <= 2 * 3 * (4 * 62 + 10 * 50)
    assert ledgers[1].scalars < X.size / 30


def test_one_round_on_several_machines_has_no_intervals_and_says_why(data):
    X, y, _ = data
    model = DebiasedSparseSVC(cluster=3, rounds=1).fit(X, y)
    for name in ("standard_error_", "coef_interval_", "pvalue_"):
        assert not hasattr(model, name)
    with pytest.raises(AttributeError, match=r"no coef_interval_ after rounds=1 on 3 machines.*Use rounds=2"):
        _ = model.coef_interval_
    assert "No intervals" in str(model.summary())
    assert hasattr(DebiasedSparseSVC(rounds=1).fit(X, y), "coef_interval_")
    with pytest.raises(AttributeError, match="no attribute 'coef_interval_'"):
        _ = DebiasedSparseSVC().coef_interval_


@pytest.mark.parametrize(("threshold", "kept"), [(None, 60), ("z", 5)])
def test_thresholds(data, threshold, kept):
    X, y, _ = data
    assert DebiasedSparseSVC(threshold=threshold).fit(X, y).selected_.sum() == kept


def test_the_threshold_of_the_paper_keeps_as_many_as_the_largest_machine_has(data):
    X, y, _ = data
    model = DebiasedSparseSVC(threshold="paper", cluster=3).fit(X, y)
    counts = [SparseSVC().fit(X[k : k + 1000], y[k : k + 1000]).n_features_selected_ for k in (0, 1000, 2000)]
    assert model.selected_.sum() == max(counts)


def test_weights_are_frequencies(data):
    X, y, _ = data
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    copies = np.repeat(np.arange(len(y)), weight)
    weighted = DebiasedSparseSVC(tol=1e-9).fit(X, y, sample_weight=weight)
    repeated = DebiasedSparseSVC(tol=1e-9).fit(X[copies], y[copies])
    assert weighted.n_rows_ == len(copies)
    assert weighted.coef_debiased_ == pytest.approx(repeated.coef_debiased_, abs=1e-5)
    assert weighted.standard_error_ == pytest.approx(repeated.standard_error_, rel=1e-5)


def test_units_change_coefficients_and_nothing_else(data):
    X, y, _ = data
    units = 10.0 ** np.random.default_rng(1).integers(-2, 3, X.shape[1])
    alpha = 0.03
    plain = DebiasedSparseSVC(alpha=alpha).fit(X, y)
    far = DebiasedSparseSVC(alpha=100 * alpha).fit(100 * X + 7, y)
    assert 100 * far.coef_debiased_ == pytest.approx(plain.coef_debiased_, abs=1e-4)
    assert 100 * far.standard_error_ == pytest.approx(plain.standard_error_, rel=1e-3)
    assert DebiasedSparseSVC().fit(X * units, y).standard_error_[0] == pytest.approx(
        DebiasedSparseSVC().fit(X, y).standard_error_[0] / units, rel=0.2
    )


def test_sparse_rows_give_what_dense_rows_give(data):
    X, y, _ = data
    X = np.where(np.abs(X) > 0.8, X, 0)
    dense, sparse = DebiasedSparseSVC(tol=1e-9).fit(X, y), DebiasedSparseSVC(tol=1e-9).fit(sp.csr_matrix(X), y)
    assert sparse.coef_debiased_ == pytest.approx(dense.coef_debiased_, abs=1e-6)
    assert sparse.standard_error_ == pytest.approx(dense.standard_error_, rel=1e-6)


def test_a_feature_that_does_not_vary_is_known_to_say_nothing(data):
    X, y, _ = data
    X = X.copy()
    X[:, 7] = 3.0
    model = DebiasedSparseSVC().fit(X, y)
    assert model.coef_[0, 7] == 0
    assert model.standard_error_[0, 7] == np.inf
    assert model.pvalue_[0, 7] == 1
    assert np.isfinite(np.delete(model.coef_debiased_[0], 7)).all()


def test_a_machine_with_one_class_is_named(data):
    X, y, _ = data
    order = np.argsort(y, kind="stable")
    with pytest.raises(ValueError, match=r"Of 4 machine\(s\), \[0, 2, 3\] cannot .*of one class only"):
        DebiasedSparseSVC(cluster=4).fit(X[order], y[order])


def test_several_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 10))
    X[np.arange(1500), y] += 1.5
    model = DebiasedSparseSVC(cluster=2).fit(X, np.array(["a", "b", "c"])[y])
    assert model.coef_.shape == model.standard_error_.shape == (3, 10)
    assert model.score(X, np.array(["a", "b", "c"])[y]) > 0.6
    tables = model.summary()
    assert [("class b against the rest" in str(table)) for table in tables] == [False, True, False]
    assert tables.frame().loc["b against the rest"].loc["x4", "debiased"] == model.coef_debiased_[1, 4]


def test_the_table(data):
    X, y, _ = data
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(60)])
    model = DebiasedSparseSVC().fit(frame, y)
    table = model.summary()
    text = str(table)
    assert text.splitlines()[2].split()[:3] == ["feature", "coef", "debiased"]
    assert "N = 3000 on 1 machine(s), 60 features, 5 selected" in text
    assert text.count("*") == 5
    assert "... and 35 more" in text
    lines = table.frame()
    assert lines.shape == (60, 10)
    assert lines["z"].abs().is_monotonic_decreasing
    assert set(lines.index[:5]) == {f"gene {j}" for j in range(5)}
    in_order = lines.loc[frame.columns]
    assert in_order["std err"].to_numpy() == pytest.approx(model.standard_error_[0])
    assert in_order["p-value"].to_numpy() == pytest.approx(model.pvalue_[0])
    assert (in_order["selected"] == model.selected_[0]).all()
    assert (in_order[["[0.025", "0.975]"]].to_numpy() == model.coef_interval_[0]).all()
    html = table._repr_html_()
    assert html.count("<tr>") == 26
    assert "gene 0" in html
    frame.columns = ["<b>", *frame.columns[1:]]
    assert "&lt;b&gt;" in DebiasedSparseSVC().fit(frame, y).summary()._repr_html_()


def test_p_values_are_adjusted_for_all_features_and_counted_at_the_level(data):
    X, y, _ = data
    model = DebiasedSparseSVC().fit(X, y)
    lines = model.summary().frame()
    np.testing.assert_allclose(lines["BH"], false_discovery_control(lines["p-value"]))
    assert (lines["Holm"] >= lines["BH"]).all()
    assert (lines["BH"] >= lines["p-value"]).all()
    assert lines["Holm"].iloc[0] == min(1, 60 * lines["p-value"].iloc[0])
    for level in (0.1, 0.5):
        n_bh, n_holm = ((lines[name] <= level).sum() for name in ("BH", "Holm"))
        note = " ".join(str(model.summary(level=level)).split())
        assert f"At level {level:g}: {n_bh} by Benjamini-Hochberg" in note
        assert f"{n_holm} by Holm" in note
    for level in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=rf"level={level}.*must lie in \(0, 1\)"):
            model.summary(level=level)


def test_without_standard_errors_the_largest_estimates_come_first(data):
    X, y, _ = data
    table = DebiasedSparseSVC(cluster=3, rounds=1).fit(X, y).summary()
    assert table.frame()["debiased"].abs().is_monotonic_decreasing
    assert list(table.columns) == ["coef", "debiased", "selected"]


def test_a_feature_without_a_standard_error_is_adjusted_as_well(data):
    X, y, _ = data
    X = X.copy()
    X[:, 7] = 3.0
    lines = DebiasedSparseSVC().fit(X, y).summary().frame()
    assert lines.loc["x7", ["p-value", "Holm", "BH"]].tolist() == [1.0, 1.0, 1.0]
    assert lines.loc["x7", "std err"] == np.inf
    assert lines.index[-1] == "x7"


def test_copies_and_selection(data):
    X, y, _ = data
    model = DebiasedSparseSVC(cluster=2).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.coef_interval_, model.coef_interval_)
    np.testing.assert_array_equal(clone(model).fit(X, y).coef_debiased_, model.coef_debiased_)
    assert SelectFromModel(model, prefit=True).transform(X).shape == (3000, 5)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"rounds": 0}, "rounds"),
        ({"confidence": 1.0}, "confidence"),
        ({"threshold": "t"}, "threshold"),
        ({"inverse": "exact"}, "inverse"),
        ({"constraint": 0.0}, "constraint"),
        ({"if_lost": "ignore"}, "if_lost"),
    ],
)
def test_bad_parameters(data, given, name):
    X, y, _ = data
    with pytest.raises(ValueError, match=name):
        DebiasedSparseSVC(**given).fit(X, y)


@pytest.mark.parametrize("cluster", [None, 3])
def test_a_penalty_that_leaves_nothing_is_said(data, cluster):
    X, y, _ = data
    with pytest.warns(UserWarning, match="Nothing could be debiased.*smaller alpha"):
        model = DebiasedSparseSVC(alpha=10.0, cluster=cluster).fit(X, y)
    assert model.stop_reason_ == "blind"
    assert (model.coef_ == 0).all()
    assert np.isinf(model.standard_error_).all()
    assert (model.pvalue_ == 1).all()


def test_an_interrupt_after_the_first_round_keeps_what_is_known(data):
    X, y, _ = data
    rows, limits = Shard(X, y, np.ones(len(y))), Limits(1e-6, 100)
    result = run(
        DebiasedRounds(rounds=5),
        HingeL1(),
        rows,
        Solo(),
        limits,
        np.random.default_rng(0),
        watch=lambda _: "interrupted",
    )
    assert result.stop_reason == "interrupted"
    assert result.n_iter == result.model.report["n_rounds"] == 1
    assert result.model.report["pilot_certificate"].relative <= 1e-6
    margins = y * (X @ result.model.coef + result.model.intercept)
    assert result.certificate.primal == pytest.approx(np.maximum(0, 1 - margins).mean())
    assert 0 < result.certificate.relative < 0.02


def test_a_rare_feature_that_some_machines_never_see_is_known_from_the_others(data):
    X, y, _ = data
    X = X.copy()
    few = np.random.default_rng(0).choice(len(y), 12, replace=False)
    X[:, 7] = 0.0
    X[few, 7] = 1.0
    one, many = (DebiasedSparseSVC(cluster=machines).fit(X, y) for machines in (None, 6))
    assert np.isfinite(many.coef_debiased_).all()
    assert 0.5 < many.standard_error_[0, 7] / one.standard_error_[0, 7] < 3
    assert many.pvalue_[0, 7] > 1e-3


# -- the certificate -------------------------------------------------------------------------------------------------


def mean_loss(model, X, y, weight=None):
    sign = np.where(y == model.classes_[1], 1.0, -1.0)
    return np.average(np.maximum(0, 1 - sign * model.decision_function(X)), weights=weight)


@pytest.mark.parametrize("options", [{}, {"cluster": 4}, {"rounds": 1, "cluster": 4}, {"fit_intercept": False}])
def test_the_certificate_is_of_the_model_that_is_returned(data, options):
    X, y, _ = data
    model = DebiasedSparseSVC(**options).fit(X, y)
    assert model.certificate_.primal == pytest.approx(mean_loss(model, X, y), rel=1e-9)
    assert 0 < model.certificate_.relative < 0.03
    assert model.pilot_certificate_.relative <= model.tol
    assert model.stop_reason_ == "rounds"
    # A nearly unpenalised SVM of the same features: its objective is over the least loss, and near it.
    kept = np.flatnonzero(model.coef_[0])
    options.pop("cluster", None)
    options.pop("rounds", None)
    other = SparseSVC(alpha=1e-7, **options).fit(X[:, kept], y)
    assert model.certificate_.dual <= other.certificate_.primal <= model.certificate_.primal
    assert "mean hinge loss" in certificate_in_words(model)


def test_a_file_from_before_says_what_its_certificate_is_of(data, tmp_path):
    """Files that have no certificate of the model have that of the 1-norm SVM."""
    X, y, _ = data
    model = DebiasedSparseSVC().fit(X, y)
    model.certificate_ = model.pilot_certificate_
    del model.pilot_certificate_
    for name in ("pilot_certificate", "selected", "has_threshold_held", "obstacle"):
        del model.parts_[0].model.report[name]
    save(model, tmp_path / "old.wm")
    again = load(tmp_path / "old.wm")
    assert (again.predict(X) == model.predict(X)).all()
    assert "1-norm SVM that every machine solves first" in certificate_in_words(again)
    assert "5 selected" in str(again.summary())


def test_a_pilot_that_is_not_solved_is_said(data):
    X, y, _ = data
    with pytest.warns(ConvergenceWarning, match=r"A 1-norm SVM did not converge.*max_iter=1"):
        model = DebiasedSparseSVC(max_iter=1, tol=1e-12).fit(X, y)
    assert model.stop_reason_ == "pilot"
    assert model.certificate_.primal == pytest.approx(mean_loss(model, X, y), rel=1e-9)


# -- data that are far from the theory -------------------------------------------------------------------------------


def within_two_points(X, y, n_folds):
    """Accuracy in cross-validation beside that of SparseSVCCV."""
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours, rival = (
            cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=folds, error_score="raise").mean()
            for model in (DebiasedSparseSVC(), SparseSVCCV())
        )
    return ours >= rival - 0.02


@pytest.mark.parametrize("load_set", [load_breast_cancer, load_wine])
def test_it_predicts_about_as_well_as_cross_validation(load_set):
    assert within_two_points(*load_set(return_X_y=True), n_folds=3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ionosphere", "spambase"])
def test_it_predicts_about_as_well_as_cross_validation_on_real_sets(real, name):
    rows = real(name)
    X = rows.X.toarray() if sp.issparse(rows.X) else rows.X
    assert within_two_points(np.asarray(X, dtype=np.float64), rows.y, n_folds=5)


def hostile():
    rng = np.random.default_rng(0)
    for n, p in ((60, 5), (60, 60), (60, 100), (200, 30)):
        X = rng.normal(size=(n, p))
        for noise in (0.0, 0.1, 1.0, 10.0):
            score = X[:, 0] - X[:, 1] + noise * rng.normal(size=n)
            yield f"{n} x {p}, noise {noise:g}", X, score > 0
            yield f"{n} x {p}, noise {noise:g}, rare", X, score > np.quantile(score, 0.93)
        twins = np.hstack([X, X[:, :3], np.ones((n, 1)), np.zeros((n, 1)), X[:, :2].sum(axis=1, keepdims=True)])
        yield f"{n} x {p}, collinear", twins, score > 0
        yield f"{n} x {p}, binary", (X > 0).astype(float), score > 0
        yield f"{n} x {p}, one far row", np.vstack([X, np.full(p, 1e6)]), np.append(score > 0, True)
        yield f"{n} x {p}, units", X * 10.0 ** rng.integers(-4, 5, p), score > 0


@pytest.mark.parametrize(("X", "y"), [pytest.param(X, y, id=name) for name, X, y in hostile()])
def test_any_rows_give_a_model_hardly_worse_than_the_1_norm_svm(X, y):
    """Warnings of NumPy are errors in all tests; those of the estimator say why there are no intervals."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        model = DebiasedSparseSVC().fit(X, y)
        penalised = SparseSVC().fit(X, y)
    loss = mean_loss(model, X, y)
    assert loss <= 1.2 * mean_loss(penalised, X, y) + 1e-6
    assert np.abs(model.decision_function(X)).max() <= 100 * max(1.0, np.abs(penalised.decision_function(X)).max())
    assert np.isfinite(model.coef_debiased_).all()
    assert model.certificate_.dual <= loss <= model.certificate_.primal * (1 + 1e-9)
    if not np.isfinite(model.standard_error_).any():
        assert any("Nothing could be debiased" in str(each.message) for each in said)
        assert model.stop_reason_ == "blind"
        assert (model.pvalue_ == 1).all()
        assert "No intervals: " in str(model.summary())


def test_where_the_threshold_takes_too_much_the_features_of_the_1_norm_svm_stay():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with pytest.warns(UserWarning, match="fit the rows worse than the 1-norm SVM"):
        model = DebiasedSparseSVC().fit(X, y)
    assert ((model.coef_ != 0) == (model.coef_naive_ != 0)).all()
    assert model.selected_.sum() < np.count_nonzero(model.coef_)
    assert mean_loss(model, X, y) < mean_loss(SparseSVC().fit(X, y), X, y)
    assert "features of the 1-norm SVM are kept" in str(model.summary())


def test_equal_features_are_known_by_infinite_errors(data):
    X, y, _ = data
    model = DebiasedSparseSVC().fit(np.hstack([X[:, :20], X[:, 10:11]]), y)
    assert np.isinf(model.standard_error_[0, [10, 20]]).all()
    assert np.isfinite(np.delete(model.standard_error_[0], [10, 20])).all()
    assert model.coef_[0, :5] == pytest.approx(DebiasedSparseSVC().fit(X[:, :20], y).coef_[0, :5], abs=0.05)


def few_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return X, (X[:, 0] + 0.8 * rng.normal(size=60) > 0).astype(int)


@pytest.mark.parametrize("copies", [2, 50])
def test_a_weight_is_a_number_of_copies(copies):
    X, y = few_rows()
    rows = np.repeat(np.arange(60), copies)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        weighted = DebiasedSparseSVC(tol=1e-9).fit(X, y, sample_weight=np.full(60, float(copies)))
        repeated = DebiasedSparseSVC(tol=1e-9).fit(X[rows], y[rows])
        halved = DebiasedSparseSVC(tol=1e-9).fit(X[rows], y[rows], sample_weight=np.full(len(rows), 0.5))
        half = DebiasedSparseSVC(tol=1e-9).fit(X, y, sample_weight=np.full(60, copies / 2))
    for one, other in ((weighted, repeated), (half, halved)):
        assert one.coef_ == pytest.approx(other.coef_, rel=1e-6)
        assert one.intercept_ == pytest.approx(other.intercept_, rel=1e-6)
        assert one.standard_error_ == pytest.approx(other.standard_error_, rel=1e-6)


def test_weights_of_any_size_end_at_the_unpenalised_svm():
    """With a weight of w on every row, alpha falls like 1 / sqrt(w), and there is a row or none within a bandwidth."""
    X, y = few_rows()
    least = SparseSVC(alpha=1e-9).fit(X, y)
    for weight in (1e5, 1e6, 1e12):
        with pytest.warns(UserWarning, match="too few rows lie near the margin"):
            model = DebiasedSparseSVC().fit(X, y, sample_weight=np.full(60, weight))
        assert model.coef_ == pytest.approx(least.coef_, rel=1e-4)
        assert np.isinf(model.standard_error_).all()
        assert model.certificate_.relative < 0.01


def test_a_hessian_that_does_not_fit_is_refused_before_it_is_made():
    X = sp.random(20, 10**6, density=1e-4, format="csr", random_state=0)
    with pytest.raises(ValueError, match=r"1,000,000 features takes 1.49e\+04 GiB.*SelectFromModel"):
        DebiasedSparseSVC().fit(X, np.arange(20) % 2)
