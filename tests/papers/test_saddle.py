"""Jin, Huang, Li: SVM via Saddle Point Optimization, 2017. What the paper claims, small; exact values on real sets.

The values are those of notes/saddle.md, found by other solvers to six digits.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems_at_hand import on_ranks, part_of, solve
from widemargin import HardMarginSVC, NuMarginSVC, max_nu
from widemargin.data import make_separable
from widemargin.ledger import Ledger
from widemargin.problems.polytope import HardMargin
from widemargin.solvers import saddle
from widemargin.solvers.saddle import SaddlePoint

SIX_DIGITS = 1e-6


def assert_holds(certificate, exact):
    """The exact value, known to six digits, lies between the bounds, and they are near each other."""
    half_a_digit = 5 * SIX_DIGITS * exact
    assert certificate.dual - half_a_digit <= exact <= certificate.primal + half_a_digit
    assert certificate.relative <= 1e-3


def test_assert_holds_fails_on_another_value():
    from widemargin import Certificate

    assert_holds(Certificate(1.0005, 0.9999), 1.0)
    for certificate in (Certificate(1.0005, 1.0001), Certificate(0.9999, 0.9995), Certificate(1.1, 0.9)):
        with pytest.raises(AssertionError):
            assert_holds(certificate, 1.0)


@pytest.mark.parametrize(("name", "exact"), [("phishing", 0.233856), ("a9a", 0.124054)])
@pytest.mark.parametrize("cluster", [None, 3])
def test_nu_at_the_paper_s_alpha(real, name, exact, cluster):
    data = real(name)
    model = NuMarginSVC(nu=0.85 * max_nu(data.y), cluster=cluster).fit(data.X, data.y)
    assert model.nu_ == pytest.approx(0.85 * max_nu(data.y))
    assert_holds(model.certificate_, exact)


@pytest.mark.parametrize("solver", ["auto", "saddle"])
def test_nu_by_the_paper_s_own_algorithm(real, solver):
    data = real("phishing")
    model = NuMarginSVC(nu=0.85 * max_nu(data.y), solver=solver, random_state=0).fit(data.X, data.y)
    assert model.stop_reason_ == "gap"
    assert_holds(model.certificate_, 0.233856)


@pytest.mark.parametrize("cluster", [None, 3])
@pytest.mark.parametrize("solver", ["auto", "active-set"])
def test_hard_margin_of_mushrooms(real, cluster, solver):
    data = real("mushrooms")
    assert_holds(HardMarginSVC(solver=solver, cluster=cluster).fit(data.X, data.y).certificate_, 0.513916)


@pytest.mark.parametrize("solver", ["auto", "active-set", "newton", "saddle"])
def test_hard_margin_of_iris(real, solver):
    """Setosa, the class of the first row, against the rest."""
    data = real("iris")
    model = HardMarginSVC(solver=solver, random_state=0).fit(data.X, data.y == data.y[0])
    assert_holds(model.certificate_, 1.63511)


def rounds_to(gap, block_size, X, y, seed=0):
    """Rounds of the algorithm until the certified gap: sweeps times rounds of a sweep."""
    result = solve(SaddlePoint(block_size=block_size), HardMargin(), X, y, tol=gap, max_iter=20000, seed=seed)[0]
    assert result.stop_reason == "gap"
    n_blocks = -(-X.shape[1] // block_size)
    return result.n_iter * max(n_blocks, saddle._MIN_ROUNDS)


def test_larger_blocks_need_fewer_rounds_and_little_more_work():
    """Theorem 6 for blocks: rounds * b may grow, but far slower than b; measured 61k to 100k for b from 1 to 128."""
    X, y, _ = make_separable(400, 64, ratio=0.2, random_state=0)
    rounds = {b: rounds_to(2e-2, b, X, y) for b in (1, 4, 16)}
    assert rounds[16] < rounds[4] < rounds[1]
    assert 16 * rounds[16] < 6 * rounds[1]


@pytest.mark.parametrize("ranks", [2, 5])
def test_one_fused_exchange_a_round(ranks):
    """Section 4 needs three exchanges for an iteration; ours needs one, and sends the same numbers to the same end."""
    X, y, _ = make_separable(100, 16, random_state=0)

    def task(comm):
        shard = part_of(X, y, np.ones(len(y)), comm.rank, ranks)
        state = SaddlePoint(block_size=1).start(HardMargin(), shard, comm, np.random.default_rng(0))
        comm.ledger = Ledger()
        for block in range(16):
            state = saddle._round(state, block)
        return comm.ledger

    for ledger in on_ranks(ranks, task):
        assert ledger.rounds == 16


def test_communication_in_the_paper_s_unit_is_the_same_for_any_number_of_clients():
    """Theorem 8: cost grows with k in proportion, so that scalars / (k d) hardly depend on k."""
    X, y, _ = make_separable(400, 16, ratio=0.2, random_state=0)
    units = []
    for ranks in (2, 4, 8):
        ledger = solve(SaddlePoint(block_size=1), HardMargin(), X, y, ranks=ranks, tol=5e-2)[0].ledger
        units.append(ledger.in_units(ranks - 1, 16))  # the star's centre is one of the ranks
    assert max(units) < 1.05 * min(units)


def test_the_gap_closes_for_every_seed():
    X, y, margin = make_separable(200, 20, ratio=0.2, random_state=1)
    for seed in range(5):
        model = HardMarginSVC(solver="saddle", block_size=4, random_state=seed, tol=1e-2).fit(X, y)
        assert model.stop_reason_ == "gap"
        assert model.certificate_.dual <= margin * (1 + 1e-9)
        assert model.certificate_.primal >= margin * (1 - 1e-9)


@pytest.mark.parametrize("alpha", [0.75, 0.85])
@pytest.mark.parametrize(
    ("name", "is_apart"),
    [("a1a", True), ("a9a", True), ("phishing", True), ("madelon", True), ("w8a", True), ("ijcnn1", False)],
)
@pytest.mark.filterwarnings("ignore::widemargin.OverlapWarning")
def test_an_alpha_over_7_usually_leaves_the_reduced_hulls_apart(real, name, is_apart, alpha):
    """Section 5; on ijcnn1 they still meet at .85."""
    data = real(name)
    y = np.where(data.y == 1, 1.0, -1.0)
    model = NuMarginSVC(nu=alpha * max_nu(y), tol=1e-2).fit(data.X, y)
    assert model.stop_reason_ == ("gap" if is_apart else "overlap")
    if is_apart:
        assert model.certificate_.dual > 0
