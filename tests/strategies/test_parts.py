"""The two-class problems of a fit: which classes they tell apart, their names, and the votes of pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.utils.multiclass import _ovr_decision_function

from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.strategies import parts as parts_module
from widemargin.strategies.parts import Parts


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_two_classes_are_one_problem_whose_positive_class_is_the_second(multi_class):
    parts = Parts(2, multi_class)
    assert parts.pairs == [(1, 0)]
    assert parts.names(np.array(["no", "yes"])) == ["yes against no"]
    assert not parts.are_votes


def test_several_classes_are_all_pairs_or_each_class_against_the_rest():
    assert Parts(4, "pairs").pairs == list(combinations(range(4), 2))
    assert Parts(4, "rest").pairs == [(0, None), (1, None), (2, None), (3, None)]
    assert Parts(3, "pairs").names(np.array(list("abc"))) == ["a against b", "a against c", "b against c"]
    assert Parts(3, "rest").names(np.array(list("abc"))) == [f"{name} against the rest" for name in "abc"]


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_rows_and_weights_of_each_problem_agree(multi_class, n_classes):
    rng = np.random.default_rng(n_classes)
    codes = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=30)]).astype(float)
    shard = Shard(rng.normal(size=(len(codes), 2)), codes, rng.uniform(1, 2, len(codes)))
    parts = Parts(n_classes, multi_class)
    totals = np.bincount(codes.astype(int), shard.weight)
    problems = list(parts.all_labelled(shard))
    assert len(problems) == len(parts) == len(parts.weights(totals))
    for problem, (positive, negative) in zip(problems, parts.weights(totals), strict=True):
        assert set(problem.y) == {-1.0, 1.0}
        assert problem.weight[problem.y > 0].sum() == pytest.approx(positive)
        assert problem.weight[problem.y < 0].sum() == pytest.approx(negative)


def test_pairs_vote_and_sums_of_scores_are_added():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, 6)) * 10.0 ** rng.integers(-3, 4, size=(200, 1))
    got = Parts(4, "pairs").class_scores(scores)
    votes = np.zeros((200, 4))
    for k, (first, second) in enumerate(combinations(range(4), 2)):
        votes[np.arange(200), np.where(scores[:, k] > 0, first, second)] += 1
    assert np.array_equal(np.round(got), votes)
    assert (np.abs(got - votes) < 1 / 3).all()
    tie = np.array([[1.0, -2.0, 3.0]])  # a beats b, c beats a, b beats c: one vote each
    parts = Parts(3, "pairs")
    assert parts.class_scores(tie).argmax() == 1  # whose sum of scores, -1 + 3, is the largest
    assert parts.winners(parts.class_scores(tie)).tolist() == [0]  # ties go to the first class


@pytest.mark.parametrize("n_classes", [3, 4, 10])
def test_votes_scores_and_ties_are_those_of_scikit_learn(n_classes):
    rng = np.random.default_rng(n_classes)
    scores = np.concatenate([rng.normal(size=(1500, n_classes * (n_classes - 1) // 2)) * 10.0**k for k in (-3, 0, 3)])
    parts = Parts(n_classes, "pairs")
    got = parts.class_scores(scores)
    np.testing.assert_allclose(got, _ovr_decision_function(scores < 0, -scores, n_classes), atol=1e-14)
    few = scores.astype(np.float32)
    np.testing.assert_array_equal(parts.class_scores(few), parts.class_scores(few.astype(np.float64)))
    votes = [np.bincount(np.where(row > 0, *np.array(parts.pairs).T), minlength=n_classes) for row in scores]
    np.testing.assert_array_equal(parts.winners(got), np.argmax(votes, axis=1))
    np.testing.assert_array_equal(parts.winners(got.astype(np.float32)), np.argmax(votes, axis=1))


def test_a_score_of_zero_is_a_vote_for_the_second_class_as_in_libsvm():
    np.testing.assert_array_equal(Parts(3, "pairs").class_scores(np.zeros((1, 3))), [[0.0, 1.0, 2.0]])


def test_scores_of_each_class_against_the_rest_stay_as_they_are():
    scores = np.arange(6.0).reshape(2, 3)
    assert Parts(3, "rest").class_scores(scores) is scores
    assert Parts(2, "rest").class_scores(scores[:, :1]).shape == (2,)


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("exact", [False, True])
def test_sums_of_pairs_are_those_of_all_coefficients(multi_class, n_classes, exact, monkeypatch):
    monkeypatch.setattr(parts_module, "_WORK_PER_CLASS", 0.0)
    rng, parts = np.random.default_rng(0), Parts(n_classes, multi_class)
    X = rng.normal(size=(80, 3))
    labels, coef = rng.integers(n_classes, size=50), rng.normal(size=(len(parts), 50))
    for k, (positive, negative) in enumerate(parts.pairs):
        coef[k, (labels != positive) & (labels != negative) & (negative is not None)] = 0.0
    coef[:, 7], coef[rng.random(coef.shape) < 0.4] = 0.0, 0.0
    rows = RowsOnCPU(Kernel("rbf", 0.5), X)
    support = rows.points(np.arange(50))
    expected = rows.times(support, np.ascontiguousarray(coef.T), exact=exact)
    np.testing.assert_allclose(parts.kernel_sums(rows, support, coef, exact=exact), expected, rtol=0, atol=1e-13)
    coef[:] = rng.normal(size=coef.shape)  # of no class
    expected = rows.times(support, np.ascontiguousarray(coef.T), exact=exact)
    np.testing.assert_array_equal(parts.kernel_sums(rows, support, coef, exact=exact), expected)
