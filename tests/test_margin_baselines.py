"""The competitors of the margin distribution machine's paper: they learn, and what is merged whole is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_moons

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import coreset_svrg, partition_trees
from benchmarks.baselines.partition_trees import CASCADE, DC, DIP, ODM, STRATA, SVM, grow

from widemargin import KernelSVC, MarginDistributionSVC
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.margin_primal import Point, Rows

GAMMA, TOL = 2.0, 1e-4
TREES = {"cascade": CASCADE, "DiP": DIP, "DC": DC, "strata": STRATA}
MACHINES: dict[str, Any] = {"ODM": ODM(1e3), "SVM": SVM(3.0)}


@pytest.fixture(scope="module")
def moons():
    X, labels = make_moons(400, noise=0.25, random_state=0)
    return X, np.where(labels > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def optima(moons):
    """Objectives of our estimators, which are proven."""
    settings = {"gamma": GAMMA, "tol": TOL, "random_state": 0}
    odm = MarginDistributionSVC(C=MACHINES["ODM"].C, **settings).fit(*moons)
    svm = KernelSVC(C=MACHINES["SVM"].C, solver="exact", **settings).fit(*moons)
    return {"ODM": odm.certificate_, "SVM": svm.certificate_}


def objective(grown, name, X, y):
    """Of the whole problem, by the model at the root."""
    root = grown.levels[-1].branches[0]
    beta = np.zeros(len(y))
    beta[root.rows] = root.beta
    rows = RowsOnCPU(grown.kernel, X)
    scores = rows.times(rows.points(np.arange(len(y))), beta, exact=True)
    squared = float(beta @ scores)
    if name == "SVM":
        return HingeL2(MACHINES[name].C).primal_point(scores, y, np.ones(len(y)), squared, fixed_scale=True).value
    problem = MarginDistribution(MACHINES[name].C)
    loss = problem.loss(y * (scores + beta.sum()), problem.steep(np.ones(len(y)), float(len(y))))
    return problem.primal_value(loss, squared + beta.sum() ** 2)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("tree", TREES)
def test_every_level_learns_and_what_is_whole_is_exact(moons, optima, tree, machine):
    X, y = moons
    grown = grow(TREES[tree], MACHINES[machine], Kernel("rbf", GAMMA), X, y, 4, tol=TOL)
    # DC ends with the rows that have a coefficient, and then all.
    assert [len(level.branches) for level in grown.levels] == ([4, 2, 1, 1] if tree == "DC" else [4, 2, 1])
    assert max(level.largest_gap for level in grown.levels) <= partition_trees.LOOSE
    # Noise of 0.25 leaves about 0.93 to the best classifier; 0.85 is far from chance and from luck.
    assert min(grown.accuracies(X, y)) > 0.85
    value, optimum = objective(grown, machine, X, y), optima[machine]
    assert value >= optimum.dual * (1 - 1e-6)  # nobody is below the optimum
    if not TREES[tree].only_support:
        assert value <= optimum.primal * (1 + 2 * TOL)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_with_the_linear_kernel_what_is_whole_is_exact(moons, tree, kind):
    X, y = moons
    exact = MarginDistributionSVC(C=1e3, kernel="linear", tol=1e-9).fit(X, y)
    grown = grow(TREES[tree], MACHINES["ODM"], Kernel("linear"), kind(X), y, 4, tol=TOL)
    root = grown.levels[-1].branches[0]
    assert root.gap <= TOL
    if TREES[tree].only_support:  # a few rows without a coefficient stay behind
        assert grown.accuracy(X, y) == pytest.approx(exact.score(X, y), abs=0.02)
    else:
        w = np.append(X[root.rows].T @ root.beta, root.intercept)
        assert w == pytest.approx(np.append(exact.coef_[0], exact.intercept_), abs=0.05)
        assert grown.accuracy(X, y) == pytest.approx(exact.score(X, y), abs=0.01)


def test_a_cascade_that_feeds_back_comes_to_the_optimum(moons, optima):
    X, y = moons
    kernel, exactly = Kernel("rbf", GAMMA), {"tol": TOL, "loose": TOL}
    few, more = (
        objective(grow(CASCADE, MACHINES["SVM"], kernel, X, y, 4, n_rounds=n, **exactly), "SVM", X, y) for n in (1, 5)
    )
    assert more <= few * (1 + TOL)
    assert more <= optima["SVM"].primal * (1 + 1e-3)


def test_clusters_are_parts_of_all_rows_and_new_rows_find_them(moons):
    X, y = moons
    grown = grow(DC, MACHINES["ODM"], Kernel("rbf", GAMMA), X, y, 8)
    rows = RowsOnCPU(Kernel("rbf", GAMMA), X)
    K = rows.rows(rows.points(np.arange(len(y))))
    for level in grown.levels[:-2]:
        np.testing.assert_array_equal(np.sort(np.concatenate([b.rows for b in level.branches])), np.arange(len(y)))
        place = level.split.place(rows)
        for k, branch in enumerate(level.branches):
            np.testing.assert_array_equal(np.flatnonzero(place == k), branch.rows)
        # A cluster is tighter than what is drawn at random: its rows have larger kernel values with each other.
        within = [K[np.ix_(branch.rows, branch.rows)].mean() for branch in level.branches if len(branch.rows)]
        assert np.mean(within) > 1.3 * K.mean()
    refined, whole = grown.levels[-2:]
    assert len(refined.branches[0].rows) <= len(whole.branches[0].rows) == len(y)


def test_dip_deals_every_cluster_of_every_class_to_all_parts():
    X, labels = make_moons(4_000, noise=0.25, random_state=0)
    y = np.where(labels > 0, 1.0, -1.0)
    rows = RowsOnCPU(Kernel("rbf", GAMMA), X)
    parts = partition_trees.clusters_dealt(rows, y, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    means, of_all = [], []
    for sign in (-1, 1):
        mine = X[y == sign]
        means += [(X[part][y[part] == sign].mean(axis=0) - mine.mean(axis=0)) / mine.std(axis=0) for part in parts]
        of_all += [(X[part][y[part] == sign].std(axis=0) / mine.std(axis=0)) for part in parts]
    # Means of 500 rows drawn at random are off by 1 / sqrt(500) = .045 deviations.
    assert np.abs(means).max() < 0.03
    assert np.abs(np.array(of_all) - 1).max() < 0.03


def test_parts_that_hold_one_class_or_nothing(moons):
    X, y = moons
    X = np.vstack([np.full((200, 2), 50.0), X])  # copies of one row cannot be split
    y = np.concatenate([np.ones(200), y])
    for machine in MACHINES.values():
        grown = grow(DC, machine, Kernel("rbf", GAMMA), X, y, 8)
        assert min(grown.accuracies(X, y)) > 0.85


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_coreset_svrg_comes_to_the_optimum_of_its_core_points_and_near_that_of_all_rows(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (2_000, 3))
    y = np.where(X @ [2, -1, -1.0] + 0.2 * rng.normal(size=2_000) > 0, 1.0, -1.0)
    problem = MarginDistribution(100.0)
    settings = {"C": 100.0, "kernel": "linear", "tol": 1e-9}
    exact = MarginDistributionSVC(**settings).fit(X, y).certificate_.primal
    trained = coreset_svrg.train(problem, kind(X), y, rng, share=0.3, max_passes=200)
    points, (core, weight, _) = trained.points, trained.coreset
    rows = Rows.of(problem, Shard(X, y, np.ones(2_000)), Solo(), rng)
    values = [Point.at(rows, p.w, rows.margins(p.w)).certificate.primal for p in points]
    assert min(values) >= exact * (1 - 1e-9)
    assert values[-1] <= 1.05 * exact  # balls of a few hundredths of the cube
    of_core = MarginDistributionSVC(**settings).fit(X[core], y[core], sample_weight=weight).certificate_.primal
    few = Rows.of(problem, Shard(X[core], y[core], weight), Solo(), rng)
    w = points[-1].w
    assert Point.at(few, w, few.margins(w)).certificate.primal == pytest.approx(of_core, rel=1e-3)
    assert all(np.diff([p.passes for p in points]) > 0)
    assert all(np.diff([p.seconds for p in points]) >= 0)


def test_core_points_cover_all_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3_000, 3)), np.where(rng.random(3_000) < 0.3, 1.0, -1.0)
    chosen = coreset_svrg.coreset(X, y, 0.5, rng)
    centres = chosen.rows[chosen.place]
    assert np.linalg.norm(X - X[centres], axis=1).max() <= 0.5
    np.testing.assert_array_equal(y[centres], y)
    assert chosen.weight.sum() == 3_000
    apart = np.linalg.norm(X[chosen.rows][:, None] - X[chosen.rows], axis=2) + 9.0 * np.eye(len(chosen.rows))
    assert apart[y[chosen.rows][:, None] == y[chosen.rows]].min() > 0.5  # no core point is needless
    few = np.sort(np.random.default_rng(1).choice(3_000, 1_000, replace=False))
    radius = coreset_svrg.radius_for(X, y, 0.1, np.random.default_rng(1))
    n_core = len(coreset_svrg.coreset(X[few], y[few], radius, np.random.default_rng(0)).rows)
    assert 80 <= n_core <= 100
