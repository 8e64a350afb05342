"""SODM as printed: where it ends, what merging without rescaling costs, and how loose Theorem 1 is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import sodm_as_written

from tests.problems_at_hand import overlapping
from widemargin import MarginDistributionSVC


@pytest.fixture(scope="module")
def written():
    """Q of small moons, four parts from strata, and the optimum of all rows."""
    X, y = overlapping(3, n=128)
    K = rbf_kernel(X, gamma=0.3)
    rng = np.random.default_rng(0)
    parts = sodm_as_written.strata(K, 6, 4, rng)
    Q, machine = y[:, None] * y * K, sodm_as_written.ODM()
    whole, _ = sodm_as_written.descend(machine, Q, np.zeros((2, len(y))), rng, n_sweeps=20_000, tol=1e-13)
    return machine, Q, parts, whole


def test_coordinate_descent_as_printed_ends_at_the_optimum_of_the_dual(written):
    machine, Q, _, whole = written
    value = machine.dual(Q, *whole)
    assert (whole.min(axis=0) < 1e-9).all()  # one of the two is 0
    rng = np.random.default_rng(1)
    for _ in range(50):
        other = np.maximum(0.0, whole + rng.normal(size=whole.shape) * 1e-3)
        assert machine.dual(Q, *other) >= value


def test_parts_of_strata_hold_every_row_once(written):
    _, Q, parts, _ = written
    assert sorted(np.concatenate(parts)) == list(range(len(Q)))
    assert {len(part) for part in parts} == {32}


def test_sodm_as_printed_ends_before_the_problem_of_all_rows(written):
    machine, Q, parts, whole = written
    best = machine.dual(Q, *whole)
    levels = sodm_as_written.sodm(machine, Q, parts, 2, np.random.default_rng(0), tol=1e-10)
    assert [level.n_parts for level in levels] == [4, 2]
    assert machine.dual(Q, *levels[-1].a) - best > 0.2 * abs(best)  # of no set of rows
    rescaled = levels[-1].a / 2
    assert machine.dual(Q, *rescaled) - best < 0.05 * abs(best)
    root = sodm_as_written.sodm(machine, Q, parts, 2, np.random.default_rng(0), tol=1e-12, has_root=True)[-1]
    assert machine.dual(Q, *root.a) == pytest.approx(best, rel=1e-6)


def test_merged_coefficients_that_are_not_rescaled_begin_farther_away(written):
    machine, Q, parts, whole = written
    best = machine.dual(Q, *whole)
    leaves = sodm_as_written.sodm(machine, Q, parts, 4, np.random.default_rng(0), tol=1e-10)[0].a
    as_printed, rescaled, zeros = (machine.dual(Q, *a) - best for a in (leaves, leaves / 4, np.zeros_like(leaves)))
    assert rescaled < zeros / 5
    assert as_printed > zeros


@pytest.mark.parametrize("n_parts", [2, 4, 8, 16])
def test_the_bounds_of_theorem_1_hold_and_are_loose(written, n_parts):
    machine, Q, _, whole = written
    parts = np.array_split(np.random.default_rng(3).permutation(len(Q)), n_parts)
    apart = np.zeros_like(whole)
    for part in parts:
        within = Q[np.ix_(part, part)]
        apart[:, part], _ = sodm_as_written.descend(
            machine, within, apart[:, part], np.random.default_rng(0), n_sweeps=20_000, tol=1e-13
        )
    for value, bound in sodm_as_written.bounds_of_theorem_1(machine, Q, parts, whole, apart):
        assert -1e-9 <= value <= bound
        assert bound > 10 * value


@pytest.mark.parametrize("n_strata", [2, 6, 20])
def test_the_bound_of_theorem_2_holds_and_w_0_meets_it_too(written, n_strata):
    machine, Q, _, whole = written
    X, y = overlapping(3, n=128)
    K = rbf_kernel(X, gamma=0.3)
    parts, groups = (
        sodm_as_written.strata(K, n_strata, 4, np.random.default_rng(0)),
        sodm_as_written.strata_of(K, n_strata),
    )
    apart = np.zeros_like(whole)
    for part in parts:
        within = Q[np.ix_(part, part)]
        apart[:, part], _ = sodm_as_written.descend(
            machine, within, apart[:, part], np.random.default_rng(0), n_sweeps=20_000, tol=1e-13
        )
    found = sodm_as_written.bound_of_theorem_2(machine, Q, y, parts, groups, whole, apart)
    assert max(found.differences) <= found.bound
    assert max(np.abs(found.differences)) < 0.5 * found.trivial  # parts are nearer to the whole than w = 0 is
    # -d = ((1 - theta) sum zeta - (1 + theta) sum beta) / 2 <= U M / 2, and the bound has 2 U M.
    assert found.bound >= 4 * found.trivial


def test_dsvrg_as_printed_stands_still_once_its_rows_are_used_up():
    X, y = overlapping(3, n=64)
    machine, rng = sodm_as_written.ODM(), np.random.default_rng(0)
    nodes = sodm_as_written.strata(X @ X.T, 3, 4, rng)
    values = sodm_as_written.dsvrg(machine, X, y, nodes, 2e-3, 40, rng)
    n_epochs = max(map(len, nodes))
    assert values[n_epochs] < values[0]
    assert values[n_epochs:] == [values[n_epochs]] * (41 - n_epochs)
    settings = {"C": machine.lam, "deadband": machine.theta, "overshoot_weight": machine.v, "fit_intercept": False}
    design = MarginDistributionSVC(kernel="linear", tol=1e-9, **settings).fit(X, y)
    best = machine.primal(design.coef_[0], y * (X @ design.coef_[0]))
    assert best * (1 - 1e-6) < values[-1]
    assert values[-1] > best * 1.001  # short of the optimum
