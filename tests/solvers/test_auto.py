"""solver="auto": which candidate begins, when the next takes over, and that each does all it does alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.problems_at_hand import on_ranks, overlapping, separable, solve
from tests.solvers.test_block_dual import RBF, exact_of, gram
from tests.solvers.test_block_dual import solve as solve_kernel
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers import auto
from widemargin.solvers._hulls import Best, HullSolver
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.auto import Affordable, Auto, Stalled, kernel_csvm, small_linear_csvm
from widemargin.solvers.batch_perceptron import BatchPerceptron
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_primal import MarginPrimal
from widemargin.solvers.models import Separator
from widemargin.solvers.multipliers import Multipliers
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.protocol import Inputs, Solver
from widemargin.solvers.saddle import SaddlePoint
from widemargin.solvers.small_dual import MAX_ROWS, SmallDual
from widemargin.solvers.svrg import SVRG


class State(NamedTuple):
    n: int
    best: Best
    warm: np.ndarray | None = None


class Stalling(Solver[Any, Separator]):
    """A solver whose certificate never changes."""

    solves = (HardMargin,)
    take_over = HullSolver.take_over

    def __init__(self, certificate, mark, verdict=None):
        self.certificate, self.mark, self._verdict = certificate, mark, verdict
        self.started_with = []

    def start(self, problem, shard, comm, rng, warm=None):
        self.started_with.append(warm)
        return State(0, Best(self.certificate, np.array([self.mark]), np.array([self.certificate.primal])))

    def sweep(self, state):
        return state._replace(n=state.n + 1)

    def certify(self, state):
        return state.best.certificate

    def stop_reason(self, state):
        return self._verdict

    def warm_state(self, state):
        return state.best.w

    def extract(self, state):
        return Separator(state.best.w, 0.0, {})


def go(*stages, patience=3, max_iter=20):
    solver = Auto(stages, hand_over=Stalled(patience))
    return solve(solver, HardMargin(), *separable(0), tol=1e-3, max_iter=max_iter)[0]


def test_a_stall_hands_the_direction_and_the_better_of_both_bounds_on():
    first, second = Stalling(Certificate(1.0, 0.2), 1.0), Stalling(Certificate(2.0, 0.5), 2.0)
    result = go(first, second)
    assert second.started_with == [np.array([1.0])]
    assert result.certificate == Certificate(1.0, 0.5)
    assert result.model.coef == [2.0]  # that of the better margin


def test_the_model_stays_with_the_better_margin():
    result = go(Stalling(Certificate(1.0, 0.5), 1.0), Stalling(Certificate(0.9, 0.2), 2.0))
    assert result.certificate == Certificate(0.9, 0.5)
    assert result.model.coef == [1.0]


def test_the_last_one_is_kept_however_it_stalls():
    second = Stalling(Certificate(1.0, 0.2), 2.0)
    result = go(Stalling(Certificate(1.0, 0.2), 1.0), second, max_iter=50)
    assert result.stop_reason == "max_iter"
    assert len(second.started_with) == 1


def test_a_reason_to_stop_is_not_a_stall():
    second = Stalling(Certificate(1.0, 0.2), 2.0)
    result = go(Stalling(Certificate(1e-9, -1.0), 1.0, verdict="overlap"), second)
    assert result.stop_reason == "overlap"
    assert second.started_with == []


def test_progress_that_halves_the_gap_is_no_stall():
    class Halving(Stalling):
        def sweep(self, state):
            return state._replace(best=state.best.wider(1 - (1 - state.best.certificate.dual) * 0.8, state.best.w))

    second = Stalling(Certificate(1.0, 0.2), 2.0)
    result = go(Halving(Certificate(1.0, 0.2), 1.0), second, patience=4, max_iter=100)
    assert result.stop_reason == "gap"
    assert second.started_with == []


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_solver_that_takes_over_right_away_still_ends_at_the_same_distance(ranks, seed):
    X, y = separable(seed, n=60, d=6, gap=0.1)
    alone = solve(ActiveSet(), HardMargin(), X, y)[0]
    solver = Auto((ActiveSet(rows_per_class=1), EntropicNewton()), hand_over=Stalled(1))
    switched = solve(solver, HardMargin(), X, y, ranks=ranks)[0]
    assert switched.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-6)


# -- the first candidate ---------------------------------------------------------------------------------------------


def chosen(n_rows, comm=None, **options):
    """The solver that is taken for so many rows, of all ranks together."""
    comm = comm or Solo()
    X, y = overlapping(0, n=n_rows)
    mine = slice(n_rows * comm.rank // comm.size, n_rows * (comm.rank + 1) // comm.size)
    rows = RowsOnCPU(RBF, X[mine], mine.start, comm.ledger, comm.allreduce)
    shard = Shard(X[mine], y[mine], np.ones(len(y[mine])), rows)
    solver = Auto((BlockDual(), BatchPerceptron()), Affordable(**options))
    state = solver.start(HingeL2(1.0), shard, comm, np.random.default_rng(0))
    return type(solver.candidates[state.number])


def test_few_rows_are_solved_exactly_and_many_early(monkeypatch):
    monkeypatch.setattr(auto, "_MAX_EXACT_ROWS", 100)
    assert chosen(100) is BlockDual
    assert chosen(101) is BatchPerceptron


def test_few_rows_of_one_class_take_little_time(monkeypatch):
    monkeypatch.setattr(auto, "_VALUES_PER_SECOND", 1e4)
    X, shards = np.zeros((1000, 1)), []
    for n_positive in (1, 500):
        y = np.where(np.arange(1000) < n_positive, 1.0, -1.0)
        shards.append(Shard(X, y, np.ones(1000), RowsOnCPU(RBF, X)))
    assert [Affordable(max_time=10.0)(shard, Solo(), None) for shard in shards] == [0, 1]


def test_a_time_that_will_not_do_is_for_the_early_one(monkeypatch):
    monkeypatch.setattr(auto, "_VALUES_PER_SECOND", 1e4)
    assert chosen(100, max_time=1.1) is BlockDual
    assert chosen(100, max_time=0.9) is BatchPerceptron
    assert chosen(100) is BlockDual


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_choose_together_by_the_rows_of_all_and_each_adds_its_speed(monkeypatch, ranks):
    monkeypatch.setattr(auto, "_MAX_EXACT_ROWS", 100)
    monkeypatch.setattr(auto, "_VALUES_PER_SECOND", 1e4)
    assert on_ranks(ranks, lambda comm: chosen(101, comm)) == [BatchPerceptron] * ranks
    assert on_ranks(ranks, lambda comm: chosen(100, comm, max_time=0.9)) == [BlockDual] * ranks
    assert on_ranks(ranks, lambda comm: chosen(100, comm, max_time=0.9 / ranks)) == [BatchPerceptron] * ranks


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("max_support", [None, 7])
@pytest.mark.parametrize("is_early", [False, True])
def test_the_chosen_one_does_what_it_does_alone(monkeypatch, is_early, max_support, ranks):
    monkeypatch.setattr(auto, "_MAX_EXACT_ROWS", 10 if is_early else 1000)
    X, y = overlapping(0)
    exact, early = BlockDual(max_support=max_support), BatchPerceptron(max_support=max_support)
    options = {"ranks": ranks, "tol": 1e-3, "max_iter": 30}
    chosen = solve_kernel(RBF, HingeL2(1.0), X, y, solver=Auto((exact, early), Affordable()), **options)[0]
    alone = solve_kernel(RBF, HingeL2(1.0), X, y, solver=early if is_early else exact, **options)[0]
    assert chosen.certificate == alone.certificate
    assert (chosen.stop_reason, chosen.n_iter) == (alone.stop_reason, alone.n_iter)
    np.testing.assert_array_equal(chosen.model.coef, alone.model.coef)
    assert set(chosen.history[-1]) == set(alone.history[-1])


@pytest.mark.parametrize("is_early", [False, True])
def test_a_start_elsewhere_is_handed_on(monkeypatch, is_early):
    monkeypatch.setattr(auto, "_MAX_EXACT_ROWS", 10 if is_early else 1000)
    X, y = overlapping(0)
    seen = []
    solver = Auto((BlockDual(), BatchPerceptron(validation_fraction=0)), Affordable())
    options = {"tol": 0.1, "max_iter": 500, "solver": solver}
    cold = solve_kernel(
        RBF, HingeL2(1.0), X, y, watch_state=True, watch=lambda progress: seen.append(progress.warm_state), **options
    )[0]
    warm = solve_kernel(RBF, HingeL2(1.0), X, y, warm=seen[-1], **options)[0]
    assert cold.stop_reason == warm.stop_reason == "gap"
    assert warm.n_iter <= cold.n_iter
    exact = exact_of(gram(RBF, X), y, 1.0)
    assert warm.certificate.dual <= exact <= warm.certificate.primal


@pytest.mark.parametrize(("n_features", "is_warm", "number"), [(5, False, 1), (9, False, 0), (9, True, 1)])
def test_the_linear_problem_begins_with_passes_where_features_are_many(n_features, is_warm, number):
    X, y = overlapping(0, d=n_features)
    solver = auto.linear_csvm(newton=Multipliers(direct_features=8))
    warm = np.ones(n_features) if is_warm else None
    shard = Shard(X, y, np.ones(len(y)))
    assert solver.start(HingeL2(1.0), shard, Solo(), np.random.default_rng(0), warm).number == number


@pytest.mark.parametrize(
    ("n_rows", "is_warm", "number"), [(40, False, 0), (40, True, 1), (41, False, 0), (41, True, 0)]
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_warm_start_goes_to_newton_steps_where_rows_of_all_ranks_are_few(monkeypatch, n_rows, is_warm, number, ranks):
    monkeypatch.setattr(auto, "_MAX_WARM_NEWTON_ROWS", 40)
    first = auto.kernel_margin(MarginDescent()).first
    warm = np.ones(n_rows) if is_warm else None

    def begin(comm):
        mine = np.arange(n_rows)[comm.rank :: comm.size]
        return first(Shard(np.zeros((len(mine), 2)), np.ones(len(mine)), np.ones(len(mine))), comm, warm)

    assert on_ranks(ranks, begin) == [number] * ranks


def test_by_default_a_solver_takes_over_from_the_warm_state_of_the_other():
    X, y = overlapping(0)
    shard, rng = Shard(X, y, np.ones(len(y))), np.random.default_rng(0)
    before = MarginPrimal().start(MarginDistribution(1.0), shard, Solo(), rng)
    after = SVRG().take_over(MarginPrimal(), before, Inputs(MarginDistribution(1.0), shard, Solo(), rng))
    np.testing.assert_array_equal(after.point.w[:-1], before.best[:-1])


@pytest.mark.parametrize(("rows", "kind"), [(40, SmallDual), (MAX_ROWS + 1, BlockDual)])
def test_one_that_never_hands_over_leaves_the_run_to_the_candidate_that_begins(rows, kind):
    shard = Shard(np.zeros((rows, 2)), np.ones(rows), np.ones(rows))
    nested = Auto((kernel_csvm(1 << 28, 1e-3), BatchPerceptron()), Affordable())
    assert isinstance(nested.for_rows(shard, Solo(), None), kind)


def test_one_that_hands_over_stays_with_the_run():
    shard = Shard(np.zeros((40, 2)), np.ones(40), np.ones(40))
    solver = small_linear_csvm(1 << 28, 1e-3)
    assert solver.for_rows(shard, Solo(), None) is solver


def test_auto_solves_what_all_candidates_solve():
    assert Auto((EntropicNewton(), SaddlePoint())).solves == (HardMargin, NuMargin)
    assert Auto((ActiveSet(), EntropicNewton())).solves == (HardMargin,)
    with pytest.raises(TypeError, match="Auto solves HardMargin, not NuMargin"):
        solve(Auto((ActiveSet(), EntropicNewton())), NuMargin(), *separable(0))
