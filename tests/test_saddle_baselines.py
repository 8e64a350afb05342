"""Saddle-SVC and Saddle-DSVC as printed: the rules are one projection, the clients one solver, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC, NuSVC

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import saddle_as_written as as_written
from benchmarks.baselines import saddle_nu_as_written as written

from tests.problems_at_hand import overlapping
from widemargin import HardMarginSVC, NuMarginSVC, max_nu, pauses
from widemargin.data import make_separable
from widemargin.problems.polytope import HardMargin
from widemargin.solvers import saddle
from widemargin.solvers.run import Limits
from widemargin.solvers.saddle import SaddlePoint


def case(seed):
    """Masses with sum one, and a cap that some exceed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    eta = rng.exponential(size=n) ** 2
    eta /= eta.sum()
    return eta, float(rng.uniform(1.05, 3.0)) / n


def test_algorithm_1_turns_rows_and_spreads_them_over_all_coordinates():
    """Inner products stay, and no entry is larger than a few sqrt(log n / d), however uneven the rows were."""
    rng = np.random.default_rng(0)
    n, d = 300, 64
    X = 10.0 * np.eye(d)[rng.integers(d, size=n)]  # each in one coordinate
    X[::3] = rng.normal(size=(n // 3, d))
    for width in (d, d - 5):  # the second is padded
        block, length = as_written.rotated(X[:, :width], np.random.default_rng(1))
        assert block.shape == (n, d)
        assert np.linalg.norm(block, axis=1).max() == pytest.approx(1.0)
        np.testing.assert_allclose(block @ block.T * length**2, X[:, :width] @ X[:, :width].T, atol=1e-9)
        assert np.abs(block).max() <= 2 * np.sqrt(np.log(n) / d)
    assert np.abs(X / length).max() > 2 * np.abs(block).max()


@pytest.mark.parametrize("d", [8, 32])
def test_the_rule_to_stop_takes_a_slow_stretch_for_the_end(d):
    """A change below epsilon = .001 in T rounds, as printed: the distance is off by many times that."""
    X, y, _ = make_separable(1_000, d, ratio=0.1, random_state=0)
    exact = HardMarginSVC(tol=1e-7).fit(X, y).certificate_.primal
    end = as_written.solve(X, y, np.random.default_rng(0), epsilon=1e-3, beta=0.1, max_rounds=100_000)
    assert end.n_rounds < 100_000
    assert end.distance / exact - 1 > 10 * 1e-3
    on = as_written.solve(
        X, y, np.random.default_rng(0), epsilon=1e-3, beta=0.1, max_rounds=4 * end.n_rounds, until=9.0
    )
    assert on.distance < end.distance  # it had not converged


def cap_at_85(y):
    """The paper's nu for alpha = .85."""
    return 1 / (0.85 * min((y > 0).sum(), (y < 0).sum()))


@pytest.mark.parametrize("seed", range(6))
def test_rule_1_is_rules_2_and_3(seed):
    """Lemma 11: the entropic projection onto {sum 1, at most cap}, by a general solver and as printed."""
    eta, cap = case(seed)
    n = len(eta)
    start = np.full(n, 1 / n)
    found = minimize(
        lambda p: float(p @ np.log(p / eta)),
        start,
        jac=lambda p: np.log(p / eta) + 1,
        bounds=[(1e-12, cap)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(n)},
        options={"ftol": 1e-15, "maxiter": 1_000},
    )
    by_loop, rounds = written.loop_12(eta, cap)
    by_sorting, _ = written.rule_2(eta, cap)
    assert 1 <= rounds <= 1 / cap + 1
    for p in (by_loop, by_sorting):
        assert p.sum() == pytest.approx(1, abs=1e-10)
        assert p.max() <= cap * (1 + 1e-12)
        assert p @ np.log(p / eta) == pytest.approx(found.fun, abs=1e-6)
    np.testing.assert_allclose(by_loop, by_sorting, atol=1e-10)


@pytest.mark.parametrize("is_hard", [True, False])
@pytest.mark.parametrize("k", [1, 3])
def test_any_number_of_clients_makes_the_same_iterates_and_pays_for_them(is_hard, k):
    X, y = overlapping(3, n=60)
    cap = None if is_hard else cap_at_85(y)
    settings = {"epsilon": 1e-2, "beta": 0.1, "n_iterations": 200, "cap": cap}
    one = written.solve([(X, y)], np.random.default_rng(0), **settings)
    parts = [(X[part], y[part]) for part in np.array_split(np.arange(len(y)), k)]
    several = written.solve(parts, np.random.default_rng(0), **settings)
    np.testing.assert_allclose(several.w, one.w, atol=1e-10)
    if cap is None:
        assert several.n_scalars == 200 * k * 9  # three rounds: the library's one exchange has 3 + 2 each way
    else:
        assert several.n_scalars > 200 * k * 9
        assert several.projection_rounds == one.projection_rounds


def test_the_rounds_of_the_loop_grow_with_the_rows():
    """At most 1 / nu rounds is no constant at the paper's alpha: masses that fall by halves need a part of it."""
    rounds = {n: written.loop_12(2.0 ** -np.arange(1.0, n + 1), 1 / (0.85 * n))[1] for n in (50, 200, 800)}
    assert rounds[50] < rounds[200] / 2 < rounds[800] / 4
    assert all(number <= 0.85 * n + 1 for n, number in rounds.items())


def test_masses_that_no_cap_holds_divide_by_zero():
    with pytest.raises(ZeroDivisionError):
        written.loop_12(np.array([0.5, 0.3, 0.2]), 0.3)


def test_it_closes_in_on_the_distance_of_the_reduced_hulls():
    X, y = overlapping(3, n=60)
    X = X + 0.8 * y[:, None]
    cap = cap_at_85(y)
    distances = [
        written.solve(
            [(X, y)], np.random.default_rng(0), epsilon=1e-2, beta=0.05, n_iterations=n_iterations, cap=cap
        ).distance
        for n_iterations in (50, 4_000)
    ]
    model = NuMarginSVC(nu=0.85 * max_nu(y), tol=1e-6).fit(X, y)
    best = model.certificate_.primal
    assert best * (1 - 1e-6) <= distances[1] <= best * 1.05
    assert distances[1] < distances[0]


@pytest.mark.parametrize("is_hard", [True, False])
def test_the_offset_of_footnote_2_is_libsvms_for_the_hard_margin_only(is_hard):
    X, y = overlapping(3, n=60)
    X = X * np.where(y > 0, 2.0, 0.5)[:, None] + 2.0 * y[:, None]  # one class is four times as wide
    if is_hard:
        X = X + 3.0 * y[:, None]
    peer = SVC(kernel="linear", C=1e8, tol=1e-8) if is_hard else NuSVC(kernel="linear", nu=0.85 * max_nu(y), tol=1e-8)
    peer.fit(X, y)
    masses = peer.dual_coef_[0]
    plus, minus = (
        np.abs(masses[side]) @ X[peer.support_[side]] / np.abs(masses[side]).sum() for side in (masses > 0, masses < 0)
    )
    w = plus - minus
    theirs = -peer.intercept_[0] * np.linalg.norm(w) / np.linalg.norm(peer.coef_[0])
    off = abs(written.offset(plus, minus) - theirs) / float(w @ w)
    assert off < 1e-4 if is_hard else off > 0.01


@pytest.mark.parametrize("is_hard", [True, False])
def test_operations_are_counted_until_the_value_is_within_epsilon(is_hard):
    from benchmarks._saddle_operations import point

    few, more = (point("hard" if is_hard else "nu", 200, 8, epsilon, 0) for epsilon in (0.2, 0.05))
    for each, epsilon in ((few, 0.2), (more, 0.05)):
        assert 1 - epsilon <= each["reached"] <= 1
        rounds, n, d = each["rounds"], 200, 8
        start = 2 * n * d + n * d
        if is_hard:
            assert each["operations"] == start + rounds * (8 * n + 6)
        else:  # and the rounds of the loop (12)
            assert each["operations"] > start + rounds * (8 * n + 6)
    assert more["operations"] > few["operations"]


def test_the_value_is_that_of_the_best_masses():
    from benchmarks.baselines.saddle_as_written import least

    scores = np.array([3.0, -1.0, 2.0, 0.5])
    assert least(scores, 1.0) == -1.0
    assert least(scores, 0.5) == pytest.approx(-0.25)
    assert least(scores, 0.4) == pytest.approx(0.4 * -0.5 + 0.2 * 2.0)


@pytest.mark.parametrize(("d", "printed"), [(8, 0.395), (32, 0.468), (128, 0.436), (512, 0.496)])
def test_separable_rows_have_the_distance_of_table_1_and_the_ratio_of_its_description(d, printed):
    from benchmarks._sets import RARITY, separable_in_ball

    X, y = separable_in_ball(10_000, d, RARITY[d])
    proof = HardMarginSVC(tol=1e-4).fit(X, y).certificate_
    assert proof.dual == pytest.approx(printed, rel=2e-3)
    assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-12
    rng = np.random.default_rng(0)
    normal = rng.normal(size=d)
    heights = y * (X @ normal) / np.linalg.norm(normal)
    assert heights.min() == pytest.approx(0.1)
    assert heights.max() == pytest.approx(1.0)


@pytest.mark.parametrize("block_size", [1, 8])
def test_one_rank_counts_for_many_where_the_rotation_is_long_enough_to_look_at_the_clock(monkeypatch, block_size):
    """It once waited for ranks that were not there until the time was up, and counted its asking."""
    from benchmarks._ranks import solve_alone, solve_on_ranks
    from benchmarks._sets import Rows

    X, y, _ = make_separable(200, 32, random_state=0)
    k, problem, limits = 4, HardMargin(), Limits(0.0, 6, 30.0)
    monkeypatch.setattr(pauses, "WORK", saddle._WORK_PER_ROTATION * X.size)
    monkeypatch.setattr(saddle, "WORK", saddle._WORK_PER_ROTATION * X.size)
    alone = solve_alone(SaddlePoint(block_size), problem, Rows(X, y), limits, counted_as=k)
    threads = solve_on_ranks(SaddlePoint(block_size), problem, Rows(X, y), k, limits)
    assert alone.stop_reason == threads.stop_reason == "max_iter"
    counted, sent = (np.array([row["scalars"] for row in each.history]) for each in (alone, threads))
    np.testing.assert_array_equal(np.diff(counted), np.diff(sent))
    looks = (counted - sent) / (2 * (k - 1) * 2)  # two numbers from each and back; it does the work of all, and looks
    assert 0 <= looks[0] <= k
