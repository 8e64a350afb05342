"""A model that is no better than a constant on its training rows says so, and no other model does."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score

from tests.problems_at_hand import overlapping, separable
from widemargin import (
    DebiasedSparseSVC,
    DegenerateModelWarning,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
    load,
    save,
)
from widemargin.estimators.words import accuracy_in_words, fit_as_html, useless_in_words
from widemargin.strategies import training

TREE = {"solver": "partition-merge", "n_partitions": 2, "random_state": 0}
EVERY = [
    HardMarginSVC(max_iter=20),
    HardMarginSVC(max_iter=20, cluster=3),
    NuMarginSVC(),
    NuMarginSVC(cluster=2),
    KernelSVC(),
    KernelSVC(cluster=3),
    KernelSVC(kernel="linear"),
    KernelSVC(solver="batch-perceptron", random_state=0, max_iter=30),
    KernelSVC(max_support=4),
    MarginDistributionSVC(),
    MarginDistributionSVC(C=0.01, cluster=2),
    MarginDistributionSVC(kernel="linear"),
    MarginDistributionSVC(**TREE),
    GossipSVC(n_peers=3, max_iter=100),
    GossipSVC(n_peers=3, max_iter=100, kernel="rbf", n_random_features=20),
    SparseSVC(),
    SparseSVC(cluster=2),
    SparseSVCCV(n_alphas=4, cv=3),
    DebiasedSparseSVC(alpha=0.02),
]
SEVERAL = [model for model in EVERY if getattr(model, "solver", "") != "batch-perceptron"]


def fitted(model, X, y, sample_weight=None):
    """The model, and its warnings of this kind."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight)
    return model, [str(each.message) for each in told if each.category is DegenerateModelWarning]


def weights_of_fit(model, y, sample_weight):
    """What each row counts in the fit: its weight, times that of its class."""
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if isinstance(model, HardMarginSVC):
        return (weight > 0).astype(float)
    if getattr(model, "class_weight", None) == "balanced":
        totals = {each: weight[y == each].sum() for each in np.unique(y)}
        weight = weight * np.array([weight.sum() / (len(totals) * totals[each]) for each in y])
    return weight


def check_against_predictions(model, X, y, sample_weight=None):
    """The counts are those of ``predict``, and the model warns exactly if that is no better than a constant."""
    model, told = fitted(model, X, y, sample_weight)
    weight = weights_of_fit(model, y, sample_weight)
    guess = model.predict(X)
    counts = model.training_
    assert counts.n_counted == counts.n_rows == np.count_nonzero(weight)
    assert counts.accuracy == pytest.approx(accuracy_score(y, guess, sample_weight=weight))
    shares = [weight[y == each].sum() / weight.sum() for each in model.classes_]
    assert counts.largest_class_share == pytest.approx(max(shares))
    assert counts.given == pytest.approx([weight[guess == each].sum() for each in model.classes_])
    is_useless = len(np.unique(guess[weight > 0])) == 1 or counts.accuracy < max(shares) - 1e-9
    assert len(told) == is_useless
    assert bool(useless_in_words(model)) == is_useless
    return model, told


def named(model):
    return str(model).replace("\n", "").replace(" ", "")[:60]


def rare(seed, n=80, share=0.06):
    """Noise, and labels that have nothing to do with it."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    y[:6] = 1  # some of them in every fold
    return rng.normal(size=(n, 3)), np.array(["common", "rare"])[y]


# -- exactly the useless ones warn -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", EVERY, ids=named)
@pytest.mark.parametrize("seed", [0, 1])
def test_exactly_useless_models_warn_on_noise(model, seed):
    check_against_predictions(model, *rare(seed))


@pytest.mark.parametrize("model", EVERY, ids=named)
def test_weights_of_rows_and_classes_count(model):
    X, y = rare(2, share=0.3)
    weight = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    if "class_weight" in model.get_params():
        model = type(model)(**{**model.get_params(), "class_weight": "balanced"})
    check_against_predictions(model, X, y, weight)


@pytest.mark.parametrize("model", SEVERAL, ids=named)
def test_of_several_classes_the_largest_is_the_measure(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), np.array([0] * 50 + [1] * 25 + [2] * 15)
    check_against_predictions(model, X, y)


@pytest.mark.parametrize("model", EVERY, ids=named)
def test_good_models_are_silent(model):
    # Intervals need rows near the margin, so debiased coefficients are of classes that overlap.
    X, y = overlapping(0, n=300, shift=1.5) if isinstance(model, DebiasedSparseSVC) else separable(0)
    _, told = check_against_predictions(model, X, y)
    assert told == []


@pytest.mark.parametrize("model", [KernelSVC(), NuMarginSVC(), SparseSVC(), GossipSVC(n_peers=3)], ids=named)
def test_good_models_of_several_classes_are_silent(model):
    _, told = check_against_predictions(model, *load_iris(return_X_y=True))
    assert told == []


# -- each reason -------------------------------------------------------------------------------------------------------

NO_COEFFICIENT = [
    (HardMarginSVC(), 0.0),
    (NuMarginSVC(), 0.0),
    (KernelSVC(kernel="linear"), 1.0),
    (MarginDistributionSVC(kernel="linear"), 0.0),
    (GossipSVC(n_peers=2), 0.0),
    (SparseSVC(alpha=100.0), None),
    (SparseSVCCV(alphas=[100.0], cv=3), None),
    (DebiasedSparseSVC(alpha=100.0), None),
]


@pytest.mark.parametrize(("model", "value"), NO_COEFFICIENT, ids=lambda each: named(each))
def test_no_coefficient(model, value):
    """Without a difference between rows, or with a penalty above all of them."""
    X, y = overlapping(0, n=60)
    X = X if value is None else np.full_like(X, value)
    model, told = check_against_predictions(model, X, y)
    assert "has no coefficient and gives class" in told[0]
    assert model.training_.are_columns_constant == (value is not None)


@pytest.mark.parametrize("solver", ["exact", "batch-perceptron"])
@pytest.mark.parametrize("n_ranks", [None, 2])
def test_no_support_vector(solver, n_ranks):
    X, y = np.ones((40, 2)), np.arange(40) % 4 == 0
    _, told = check_against_predictions(KernelSVC(solver=solver, max_iter=20, cluster=n_ranks), X, y)
    assert "KernelSVC has no support vector and gives class False for all 40 training rows" in told[0]


CONSTANT = [
    HardMarginSVC(),
    NuMarginSVC(),
    NuMarginSVC(cluster=2),
    KernelSVC(kernel="linear", fit_intercept=False),
    MarginDistributionSVC(),
    MarginDistributionSVC(kernel="linear"),
    MarginDistributionSVC(**TREE),
    GossipSVC(n_peers=3),
    GossipSVC(n_peers=3, fit_intercept=False),
    SparseSVC(alpha=0.01, fit_intercept=False),
]


@pytest.mark.parametrize("model", CONSTANT, ids=named)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_constant_columns_only(model, form):
    X, y = np.full((40, 2), 3.0), np.where(np.arange(40) % 4, "b", "a")
    model, told = fitted(model, form(X), y)
    assert model.training_.are_columns_constant
    assert re.search("(uses constant columns only|has no coefficient) and gives class . for all 40 training", told[0])
    assert "columns that are not constant" in useless_in_words(model)


def test_a_column_that_varies_and_has_no_coefficient_does_not_hide_the_constant_one():
    X = np.c_[np.full(40, 5.0), np.random.default_rng(0).normal(size=40) * 1e-6]
    model, told = fitted(SparseSVC(alpha=0.01, fit_intercept=False), X, np.arange(40) % 4 == 0)
    assert model.coef_[0, 0] != 0 == model.coef_[0, 1]
    assert "uses constant columns only" in told[0]
    assert "columns that are not constant" in told[0]


def test_a_column_that_varies_and_is_in_use_is_no_constant_one():
    model, told = fitted(KernelSVC(kernel="linear", C=1e-3), *overlapping(0, n=50))
    if told:
        assert model.coef_.any()
        assert not model.training_.are_columns_constant
        assert "constant" not in told[0]


WORSE = [
    KernelSVC(kernel="linear", fit_intercept=False),
    MarginDistributionSVC(kernel="linear", fit_intercept=False),
    GossipSVC(n_peers=3, fit_intercept=False),
    SparseSVC(alpha=0.001, fit_intercept=False),
    DebiasedSparseSVC(alpha=0.01, fit_intercept=False, threshold=None),
]


@pytest.mark.parametrize("model", WORSE, ids=named)
def test_worse_than_the_larger_class(model):
    """Noise with 80% of one class: a separator through the middle of the rows is right for about half of them."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(150, 2)), (np.arange(150) % 5 == 0).astype(int)
    model, told = check_against_predictions(model, X, y)
    assert "is worse than the largest class alone on all 150 training rows" in told[0]
    assert f"{model.score(X, y):.2%}, the largest class alone 80.00%" in told[0]


@pytest.mark.parametrize("kind", [HardMarginSVC, NuMarginSVC, SparseSVCCV])
def test_worse_than_the_larger_class_in_words(kind):
    """Which separator of overlapping hulls is returned is open, so the counts are given here."""
    model, _ = fitted(kind(), *separable(0))
    arrays = np.array([8.0, 2.0]), np.array([5.0, 2.0]), np.array([5.0, 5.0])
    model.training_ = training.TrainingCounts(*arrays, n_rows=10, n_counted=10)
    with pytest.warns(DegenerateModelWarning, match="is worse than the largest class alone .* 70.00%, .* 80.00%. Try "):
        model._warn()


# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "advice", "shift"),
    [
        (KernelSVC(gamma=0.5), "a larger C (it is 1), or another gamma (it is 0.5)", 0.5),
        (KernelSVC(kernel="linear"), "kernel='rbf'", 0.5),
        (KernelSVC(slack=0.7, max_iter=20, random_state=0), "another slack (it is 0.7)", 0.5),
        (MarginDistributionSVC(C=0.001), "a larger C (it is 0.001)", 0.5),
        (GossipSVC(alpha=10.0, n_peers=2), "a smaller alpha (it is 10)", 0.5),
        (SparseSVC(alpha=3.0), "a smaller alpha (it is 3), below", 5.0),
        (SparseSVCCV(alphas=[3.0], cv=3), "smaller alphas (cross-validation chose 3)", 5.0),
        (DebiasedSparseSVC(alpha=3.0), "a smaller alpha (it is 3)", 5.0),
        (SparseSVC(alpha=3.0), "no alpha gives a coefficient", 0.0),
        (HardMarginSVC(), "NuMarginSVC", None),
        (NuMarginSVC(), "another nu", None),
    ],
    ids=str,
)
def test_the_advice_is_for_this_estimator(model, advice, shift):
    """Of two classes that are ``shift`` apart; None is the same row 80 times."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), (np.arange(80) % 8 == 0).astype(int)
    X = np.ones_like(X) if shift is None else X + np.outer(y, [shift, 0.0])
    model, _ = fitted(model, X, y)
    text = useless_in_words(model)
    assert text, "this case shows nothing"
    assert advice in text
    assert ("class_weight='balanced'" in text) == (shift is not None)


def test_weights_are_no_advice_for_equal_or_weighted_classes():
    X = np.zeros((40, 1))
    for model, y in ((SparseSVC(), np.arange(40) % 2), (SparseSVC(class_weight="balanced"), np.arange(40) % 5 == 0)):
        _, told = fitted(model, X, y)
        assert "balanced" not in told[0]


def test_a_fit_that_stopped_early_has_advice_once():
    """The warning of the stop has advice; this one then has the facts only."""
    with pytest.warns(DegenerateModelWarning) as told:
        model = HardMarginSVC().fit(np.ones((20, 2)), np.arange(20) % 2)
    texts = [str(each.message) for each in told if each.category is DegenerateModelWarning]
    assert len(told) == 2
    assert "Try" not in texts[0]
    assert "Try" in useless_in_words(model)


def test_the_warning_points_at_the_line_that_fits():
    with pytest.warns(DegenerateModelWarning) as told:
        SparseSVC(alpha=9.0).fit(*overlapping(0))
    assert told[0].filename == __file__


def test_weighted_accuracies_are_named_as_such():
    X, y = overlapping(0, n=60)
    assert "weights" not in accuracy_in_words(KernelSVC().fit(X, y))
    assert "by the weights of the fit" in accuracy_in_words(KernelSVC(class_weight={1: 3.0}).fit(X, y))


def test_words_in_notebooks_begin_with_the_warning():
    model, _ = fitted(SparseSVC(alpha=9.0), *overlapping(0))
    shown = fit_as_html(model)
    assert shown.index(">warning<") < shown.index("SparseSVC has no coefficient") < shown.index(">certificate<")
    good = fit_as_html(KernelSVC().fit(*separable(0)))
    assert ">warning<" not in good
    assert "the largest class alone" in good


def test_a_summary_begins_with_the_warning():
    model, _ = fitted(DebiasedSparseSVC(alpha=100.0), *overlapping(0, n=60))
    lines = str(model.summary()).splitlines()
    assert lines[1].startswith("Warning: DebiasedSparseSVC has no coefficient")
    assert "Warning: DebiasedSparseSVC has no coefficient" in model.summary()._repr_html_().split("<thead>")[0]


# -- samples, files, levels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ranks", [None, 3])
def test_a_tree_of_many_rows_counts_a_sample_and_says_so(monkeypatch, n_ranks):
    monkeypatch.setattr(training, "_MAX_SCORED_ROWS", 50)
    X, _ = overlapping(0, n=200)
    model, told = fitted(MarginDistributionSVC(**TREE, C=1e-6, cluster=n_ranks), X, np.arange(200) % 10 == 0)
    assert (model.training_.n_rows, model.training_.n_counted) == (200, 50)
    assert "for all of 50 training rows drawn at random from 200" in told[0]
    assert "on 50 of 200 rows" in accuracy_in_words(model)


def test_a_sample_is_called_worse_only_beyond_chance():
    def counts(right, n_counted):
        weight = np.array([0.2, 0.8]) * n_counted
        given = np.array([0.5, 0.5]) * n_counted
        return training.TrainingCounts(weight, np.array([right, 0.0]), given, 1000, n_counted)

    assert counts(799, 1000).is_worse_than_largest_class
    assert not counts(800, 1000).is_worse_than_largest_class
    assert not counts(75, 100).is_worse_than_largest_class  # 5 points of a sample whose error is 5
    assert counts(60, 100).is_worse_than_largest_class


@pytest.mark.parametrize("model", [SparseSVC(alpha=9.0), KernelSVC(), GossipSVC(n_peers=2)], ids=named)
def test_files_keep_what_was_counted(model, tmp_path):
    X, y = rare(0)
    model, told = fitted(model, X, y)
    save(model, tmp_path / "model.wm")
    again = load(tmp_path / "model.wm")
    for one, other in zip(again.training_, model.training_, strict=True):
        assert np.array_equal(one, other)
    assert useless_in_words(again) == useless_in_words(model) == told[0]


def test_files_without_counts_still_know_that_nothing_is_used(tmp_path):
    for model, word in ((SparseSVC(alpha=9.0), "coefficient"), (KernelSVC(), "support vector")):
        fitted(model, np.ones((40, 2)), np.arange(40) % 4)
        del model.training_
        save(model, tmp_path / "old.wm")
        assert f"has no {word}, so it gives all rows one class." in useless_in_words(load(tmp_path / "old.wm"))
    model, _ = fitted(KernelSVC(), *separable(0))
    del model.training_
    assert useless_in_words(model) == accuracy_in_words(model) == ""


def test_a_level_of_a_tree_does_not_claim_the_counts_of_the_last():
    X, y = overlapping(0, n=80)
    model = MarginDistributionSVC(**TREE).fit(X, y)
    assert not hasattr(model.at_level(0), "training_")


def test_new_rows_are_counted_with_the_old_ones():
    X, y = overlapping(0, n=90)
    model = GossipSVC(n_peers=3, max_iter=200).partial_fit(X[:60], y[:60])
    model.partial_fit(X[60:], y[60:])
    assert model.training_.n_rows == 90
    assert model.training_.accuracy == pytest.approx(model.score(X, y))


def test_precomputed_kernels_are_counted():
    X, y = overlapping(0, n=60)
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    check_against_predictions(KernelSVC(kernel="precomputed"), K, y)
    _, told = check_against_predictions(KernelSVC(kernel="precomputed", C=1e-9), K, np.arange(60) % 4 == 0)
    assert told
