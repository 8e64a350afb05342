"""The competitors of the margin distribution machine's paper: they learn, and what is merged whole is exact."""

from __future__ import annotations

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
MACHINES = {"ODM": ODM(1e3), "SVM": SVM(3.0)}


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
    assert [len(level.branches) for level in grown.levels] == [4, 2, 1]
    assert [level.largest_gap <= partition_trees.LOOSE for level in grown.levels] == [True] * 3
    # Noise of 0.25 leaves about 0.93 to the best classifier; 0.85 is far from chance and from luck.
    assert min(grown.accuracy(X, y, level) for level in range(3)) > 0.85
    value, optimum = objective(grown, machine, X, y), optima[machine]
    assert value >= optimum.dual * (1 - 1e-6)  # nobody is below the optimum
    if not TREES[tree].only_support:
        assert value <= optimum.primal * (1 + 2 * TOL)


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
    rows = RowsOnCPU(Kernel("rbf", GAMMA), X)
    parts, split = partition_trees.clusters(rows, y, 8, 2, np.random.default_rng(0))
    assert len(parts) == 8
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    place = partition_trees._leaf(split, rows, 3)
    for k, part in enumerate(parts):
        np.testing.assert_array_equal(np.flatnonzero(place == k), part)
    # A cluster is tighter than what is drawn at random: its rows have larger kernel values with each other.
    K = rows.rows(rows.points(np.arange(len(y))))
    assert np.mean([K[np.ix_(part, part)].mean() for part in parts if len(part)]) > 1.5 * K.mean()


def test_parts_that_hold_one_class_or_nothing(moons):
    X, y = moons
    X = np.vstack([np.full((200, 2), 50.0), X])  # copies of one row cannot be split
    y = np.concatenate([np.ones(200), y])
    for machine in MACHINES.values():
        grown = grow(DC, machine, Kernel("rbf", GAMMA), X, y, 8)
        assert min(grown.accuracy(X, y, level) for level in range(4)) > 0.85


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_coreset_svrg_comes_near_the_optimum(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (2_000, 6))
    y = np.where(X @ [2, -1, 1, 0, 0, -2.0] + 0.2 * rng.normal(size=2_000) > 0, 1.0, -1.0)
    problem = MarginDistribution(100.0)
    exact = MarginDistributionSVC(C=100.0, kernel="linear", tol=1e-9).fit(X, y).certificate_.primal
    rows = Rows.of(problem, Shard(X, y, np.ones(2_000)), Solo(), rng)
    points = coreset_svrg.train(problem, kind(X), y, rng, share=0.2, max_passes=60)
    values = [Point.at(rows, p.w, rows.margins(p.w)).certificate.primal for p in points]
    assert min(values) >= exact * (1 - 1e-9)
    # The coreset has 400 rows, whose gradient is wrong by about 1 / sqrt(400) of that of one row.
    assert values[-1] <= 1.05 * exact
    assert all(np.diff([p.passes for p in points]) > 0)
    assert all(np.diff([p.seconds for p in points]) >= 0)


def test_a_coreset_stands_for_all_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5_000, 3)), np.where(rng.random(5_000) < 0.3, 1.0, -1.0)
    chosen = coreset_svrg.coreset(X, y, 2_000, rng)
    assert len(chosen.rows) <= 2_000
    np.testing.assert_allclose(chosen.weight.sum(), 5_000, rtol=0.1)
    assert (chosen.weight <= 2 * 5_000 / 2_000 * 10).all()  # half of the odds are alike for all
