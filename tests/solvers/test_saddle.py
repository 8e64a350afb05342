from __future__ import annotations

import numpy as np
import pytest

from tests.problems_at_hand import PaperNu, on_ranks, overlapping, part_of, separable, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.ledger import Ledger
from widemargin.problems.polytope import HardMargin
from widemargin.solvers import saddle
from widemargin.solvers._hulls import Hulls
from widemargin.solvers.saddle import AllAtOnce, Rotated, SaddlePoint


def rotated(X, y, block_size, seed=0):
    hulls = Hulls.of(HardMargin(), Shard(X, y, np.ones(len(y))), Solo())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], 1 << (X.shape[1] - 1).bit_length())
    return hulls, Rotated(hulls, block_size, signs)


@pytest.mark.parametrize("d", [1, 2, 3, 6, 8, 13])
@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_blocks_cover_every_coordinate_once(d, block_size):
    _, coordinates = rotated(*separable(0, d=d), block_size=block_size)
    covered = np.concatenate(
        [np.arange(coordinates.n_coordinates)[coordinates.slice(k)] for k in range(coordinates.n_blocks)]
    )
    np.testing.assert_array_equal(covered, np.arange(coordinates.n_coordinates))


@pytest.mark.parametrize("d", [1, 3, 8, 13])
def test_the_rotation_changes_no_inner_product(d, seed):
    X, y = separable(seed, d=d, offset=10.0)
    hulls, coordinates = rotated(X, y, 4, seed)
    w = np.random.default_rng(seed).normal(size=d)
    turned = coordinates.from_rows(w)
    np.testing.assert_allclose(coordinates.to_rows(turned), w, atol=1e-12)
    scores = sum(coordinates.scores(k, turned[coordinates.slice(k)]) for k in range(coordinates.n_blocks))
    np.testing.assert_allclose(scores, (X - X.mean(axis=0)) @ w, atol=1e-10)
    np.testing.assert_allclose(scores * y, hulls.scores(w), atol=1e-10)


def test_blocks_of_products_are_the_rotated_product_of_all(seed):
    X, y = separable(seed, d=6)
    hulls, coordinates = rotated(X, y, 4, seed)
    masses = np.random.default_rng(seed).random((len(y), 2))
    blocks = np.concatenate([coordinates.combine(k, masses) for k in range(coordinates.n_blocks)])
    for column, mass in zip(blocks.T, masses.T, strict=True):
        np.testing.assert_allclose(column, coordinates.from_rows((X - X.mean(axis=0)).T @ mass), atol=1e-10)
    whole = AllAtOnce(hulls)
    np.testing.assert_allclose(whole.combine(0, masses), X.T @ masses, atol=1e-10)


def test_radius_is_the_longest_part_of_a_row_within_a_block(seed):
    X, y = separable(seed, d=6)
    _, coordinates = rotated(X, y, 4, seed)
    rows = np.array([coordinates.from_rows(row) for row in X - X.mean(axis=0)])
    longest = max(np.linalg.norm(rows[:, coordinates.slice(k)], axis=1).max() for k in range(coordinates.n_blocks))
    assert coordinates.radius == pytest.approx(longest, rel=1e-12)


def test_masses_that_certify_are_feasible(monkeypatch, seed):
    """A distance is a bound only if its masses add up to one and keep to their caps, however small gamma gets."""
    X, y = overlapping(seed, n=45, d=6)
    seen = []
    normalise = saddle._normalise

    def spy(state):
        mass, log_density = normalise(state)
        seen.append((state.hulls.per_class(mass), (mass - state.hulls.upper).max()))
        return mass, log_density

    monkeypatch.setattr(saddle, "_normalise", spy)
    solve(SaddlePoint(block_size=4), PaperNu(), X, y, tol=0.0, max_iter=25, seed=seed)
    for sums, over in seen:
        assert sums == pytest.approx([1.0, 1.0], rel=1e-12)
        assert over <= 1e-12


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_hard_margin_survives_gamma_going_to_nothing(block_size, seed):
    """A run that is asked for more than it can reach must end at its limit with finite numbers."""
    X, y = separable(20 + seed, n=36, d=6, gap=0.3)
    result = solve(SaddlePoint(block_size=block_size), HardMargin(), X, y, tol=0.0, max_iter=60, seed=seed)[0]
    assert result.stop_reason == "max_iter"
    assert np.isfinite(result.model.coef).all()


# -- cost ------------------------------------------------------------------------------------------------------------


class RoundsOnly:
    """A saddle point solver whose ledger is emptied after the start and whose sweeps end without a certificate."""

    def __init__(self, solver, n_rounds):
        self.solver, self.n_rounds = solver, n_rounds

    def cost(self, problem, shard, comm):
        state = self.solver.start(problem, shard, comm, np.random.default_rng(0))
        comm.ledger = Ledger()
        for block in np.random.default_rng(1).integers(state.coordinates.n_blocks, size=self.n_rounds):
            state = saddle._round(state, int(block))
        return comm.ledger


@pytest.mark.parametrize(("block_size", "b"), [(1, 1), (4, 4), (8, 8), (100, 16)])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_hard_margin_round_is_one_exchange_of_two_and_three_b_numbers_each_way(block_size, b, ranks):
    """Blocks of b coordinates; with all d = 16 at once b = d."""
    X, y = separable(0, n=40, d=16)
    n_rounds = 10

    def task(comm):
        shard = part_of(X, y, np.ones(len(y)), comm.rank, ranks)
        return RoundsOnly(SaddlePoint(block_size=block_size), n_rounds).cost(HardMargin(), shard, comm)

    ledgers = on_ranks(ranks, task)
    assert [ledger.rounds for ledger in ledgers] == [n_rounds] * ranks
    assert sum(ledger.messages for ledger in ledgers) == n_rounds * 2 * (ranks - 1)
    assert sum(ledger.scalars for ledger in ledgers) == n_rounds * 2 * (ranks - 1) * (2 + 3 * b)
    assert sum(ledger.bytes for ledger in ledgers) == 8 * sum(ledger.scalars for ledger in ledgers)


def test_a_nu_round_adds_exchanges_of_six_numbers_for_the_projection():
    X, y = overlapping(0, n=40, d=16)
    n_rounds, b = 20, 4

    def task(comm):
        shard = part_of(X, y, np.ones(len(y)), comm.rank, 3)
        return RoundsOnly(SaddlePoint(block_size=b), n_rounds).cost(PaperNu(), shard, comm)

    ledgers = on_ranks(3, task)
    extra = ledgers[0].rounds - n_rounds
    assert extra >= n_rounds
    assert sum(ledger.scalars for ledger in ledgers) == 2 * 2 * (n_rounds * (2 + 3 * b) + 6 * extra)


def test_one_rank_sends_nothing():
    result = solve(SaddlePoint(block_size=1), HardMargin(), *separable(0), tol=1e-2)[0]
    assert (result.ledger.messages, result.ledger.scalars, result.ledger.bytes) == (0, 0, 0)


# -- choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "d", "is_whole"),
    [
        (100, 10, True),  # few features: nothing to gain from blocks
        (2000, 300, False),
        (100, 300, True),  # a block of enough work is all of them
    ],
)
def test_auto_takes_blocks_only_where_they_pay(n, d, is_whole):
    X, y = separable(0, n=n, d=d)
    state = SaddlePoint().start(HardMargin(), Shard(X, y, np.ones(n)), Solo(), np.random.default_rng(0))
    assert isinstance(state.coordinates, AllAtOnce if is_whole else Rotated)


def test_auto_keeps_sparse_rows_sparse():
    import scipy.sparse as sp

    X, y = separable(0, n=2000, d=300)
    shard = Shard(sp.csr_matrix(X), y, np.ones(len(y)))
    state = SaddlePoint().start(HardMargin(), shard, Solo(), np.random.default_rng(0))
    assert isinstance(state.coordinates, AllAtOnce)
