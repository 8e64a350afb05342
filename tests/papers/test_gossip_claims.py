"""Dutta, Nataraj: GADGET SVM, 2018: its lemmas and the bound of Theorem 2, measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks import _gossip_runs as runs
from benchmarks.baselines import gadget_as_printed

from tests.problems_at_hand import overlapping
from widemargin.peers import topology


def test_lemma_1_the_loss_changes_by_at_most_the_longest_row():
    X, y = overlapping(3, n=200)
    longest, rng = float(np.linalg.norm(X, axis=1).max()), np.random.default_rng(0)
    for _ in range(200):
        one, two = rng.normal(size=(2, X.shape[1]))
        change = abs(runs.objective(X, y, 0.0, one) - runs.objective(X, y, 0.0, two))
        assert change <= longest * np.linalg.norm(one - two)


def decay(name, n_rounds=40, n_peers=12):
    """The factor by which the largest error of Push-Sum falls a round, and that of the graph's lazy random walk."""
    graph = topology.build(name, n_peers, 3, 0)
    values = np.random.default_rng(0).normal(size=(n_peers, 3))
    rounds, mean = range(4, n_rounds, 4), values.mean(axis=0)
    errors = []
    for n in rounds:
        off = [
            np.abs(gadget_as_printed.push_sum(values, graph, np.random.default_rng(seed), n) - mean).max()
            for seed in range(8)
        ]
        errors.append(np.mean(np.log(off)))
    walk = np.zeros((n_peers, n_peers))
    for i, neighbours in graph.items():
        walk[i, i] = 0.5
        walk[i, neighbours] = 0.5 / len(neighbours)
    second = np.sort(np.abs(np.linalg.eigvals(walk)))[-2]
    slope, _ = np.polyfit(list(rounds), errors, 1)
    straight = np.corrcoef(list(rounds), errors)[0, 1]
    return math.exp(slope), float(second), straight


def test_lemma_2_the_error_of_push_sum_falls_geometrically_at_the_pace_of_the_graph():
    found = {name: decay(name) for name in ("complete", "random-regular", "ring")}
    for factor, _, straight in found.values():
        assert straight < -0.97  # of the logarithm over rounds
        assert factor < 1
    assert found["complete"][0] <= found["random-regular"][0] + 0.03 < found["ring"][0]
    assert found["complete"][1] < found["random-regular"][1] < found["ring"][1]  # as the walk mixes
    # O(tau_mix log 1 / epsilon): rounds to a factor e, beside those of the walk.
    for factor, second, _ in found.values():
        assert math.log(second) / math.log(factor) < 3


@pytest.mark.parametrize("alpha", [1e-2, 1e-4])
def test_theorem_2_holds_and_says_less_than_the_model_zero(alpha):
    X, y = overlapping(3, n=200)
    graph = topology.build("random-regular", 5, 3, 0)
    parts = runs.parts(len(y), 5, 0)
    end = gadget_as_printed.train(
        [(X[part], y[part]) for part in parts], alpha, graph, np.random.default_rng(0), has_indicator=True,
        epsilon=0.0, max_steps=300,
    )  # fmt: skip
    best = runs.optimum(X, y, alpha, has_constant=False).objective
    gap = max(runs.objective(X, y, alpha, w) for w in end.models) - best
    largest = math.sqrt(alpha) + float(np.linalg.norm(X, axis=1).max())  # c, of a subgradient within the ball

    def bound(T):
        """Without the terms of gamma, which only add."""
        return 2 * largest / math.sqrt(alpha) + largest**2 * math.log(T) / (2 * T * alpha)

    assert gap <= bound(end.steps)
    of_zero = runs.objective(X, y, alpha, np.zeros(X.shape[1])) - best
    assert bound(1e12) > 10 * of_zero  # whatever T is
