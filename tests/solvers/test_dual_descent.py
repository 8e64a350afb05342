"""Coordinate passes: the formula of a step, when they are certified, what they send; optima in test_linear_dual.py."""

from __future__ import annotations

import numpy as np

from tests.problems_at_hand import on_ranks, overlapping, part_of, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.data.synthetic import make_nonseparable
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.dual_descent import DualDescent


def test_passes_agree_with_the_formula_of_one_coordinate(storage):
    """One pass in a known order against the same in five lines."""
    X, y = overlapping(12, n=20, d=3)
    state = DualDescent().start(
        HingeL2(0.3, False), Shard(storage(X), y, np.ones(20)), Solo(), np.random.default_rng(0), None
    )
    order = np.random.default_rng([0, int(np.random.default_rng(0).integers(2**63))]).permutation(20)
    alpha, w = np.zeros(20), np.zeros(3)
    for i in order:
        best = np.clip(alpha[i] + (1 - y[i] * (X[i] @ w)) / (X[i] @ X[i]), 0, 0.3)
        w += (best - alpha[i]) * y[i] * X[i]
        alpha[i] = best
    after = DualDescent().sweep(state)
    np.testing.assert_allclose(after.alpha, alpha, atol=1e-12)
    np.testing.assert_allclose(after.w[:-1], w, atol=1e-12)


def test_the_first_passes_are_certified_and_later_those_that_pay():
    X, y = make_nonseparable(2000, 10, random_state=0)
    history = solve(DualDescent(), HingeL2(1.0), X, y, tol=0.0, max_iter=40)[0].history
    sweeps = [row["sweep"] for row in history]
    assert sweeps[:3] == [1, 2, 3]
    assert 3 < len(sweeps) <= 22


def test_equal_seeds_give_equal_bits_and_others_do_not():
    X, y = overlapping(10)
    options = {"tol": 0.0, "max_iter": 6}
    first, again, other = (solve(DualDescent(), HingeL2(1.0), X, y, seed=seed, **options)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.model.coef, again.model.coef)
    assert not np.allclose(first.model.coef, other.model.coef, rtol=1e-9)


def test_rows_that_rest_are_passed_over_and_come_back():
    X, y = make_nonseparable(2000, 10, random_state=0)
    solver, shard = DualDescent(), Shard(X, y, np.ones(len(y)))
    state, n_active = solver.start(HingeL2(1.0), shard, Solo(), np.random.default_rng(0)), []
    for _ in range(30):
        state = solver.sweep(state)
        n_active.append(int(state.is_active.sum()))
    assert min(n_active) < len(y) / 2
    assert max(np.diff(n_active)) > 0


def test_a_pass_costs_one_exchange_of_the_direction():
    """And a few numbers: direction, intercept, sum(alpha y), rows; two gradients."""
    X, y = overlapping(11, n=60, d=40)
    meeting = on_ranks(2, lambda comm: _traffic_of_a_pass(comm, X, y))
    assert meeting == [40 + 1 + 2 + 2] * 2


def _traffic_of_a_pass(comm, X, y):
    """What a rank sends in the fourth pass, which is not certified."""
    solver = DualDescent()
    state = solver.start(
        HingeL2(1.0), part_of(X, y, np.ones(len(y)), comm.rank, 2), comm, np.random.default_rng(0), None
    )
    for _ in range(3):
        state = solver.sweep(state)
    before = comm.ledger.counts()["scalars"]
    assert solver.certify(solver.sweep(state)) is None
    return comm.ledger.counts()["scalars"] - before
