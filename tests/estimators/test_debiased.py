"""DebiasedSparseSVC as users see it: estimates, intervals, machines, the table."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_selection import SelectFromModel

from widemargin import DebiasedSparseSVC, SparseSVC
from widemargin.comm.solo import Solo
from widemargin.data import make_sparse_gaussians
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.solvers.debiased import DebiasedRounds
from widemargin.solvers.run import Limits, run


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
    assert lines.shape == (60, 8)
    assert lines.index[3] == "gene 3"
    assert lines["std err"].to_numpy() == pytest.approx(model.standard_error_[0])
    html = table._repr_html_()
    assert html.count("<tr>") == 26
    assert "gene 0" in html
    frame.columns = ["<b>", *frame.columns[1:]]
    assert "&lt;b&gt;" in DebiasedSparseSVC().fit(frame, y).summary()._repr_html_()


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
    assert result.certificate.relative <= 1e-6


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
