"""The one loop: why it ends, what it tells, what it counts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems_at_hand import on_ranks, part_of, separable, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.ledger import Ledger
from widemargin.problems.polytope import HardMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Solver
from widemargin.solvers.run import Limits, run
from widemargin.solvers.saddle import SaddlePoint


class Scripted(Solver[int, Separator]):
    """A solver whose certificates are given beforehand; None is a sweep without one."""

    solves = (HardMargin,)

    def __init__(self, *certificates, verdict=None):
        self._certificates, self._verdict = certificates, verdict

    def start(self, problem, shard, comm, rng, warm=None):
        return 0

    def sweep(self, state):
        return state + 1

    def certify(self, state):
        return self._certificates[min(state, len(self._certificates) - 1)]

    def stop_reason(self, state):
        return self._verdict

    def warm_state(self, state):
        return np.array([float(state)])

    def extract(self, state):
        return Separator(self.warm_state(state), 0.0, {})


SHARD = Shard(np.zeros((2, 1)), np.array([1.0, -1.0]), np.ones(2))
OPEN, CLOSED = Certificate(1.0, 0.5), Certificate(1.0, 0.9999)


def go(solver, *, tol=1e-3, max_iter=10, max_time=np.inf, **options):
    return run(
        solver, HardMargin(), SHARD, Solo(), Limits(tol, max_iter, max_time), np.random.default_rng(0), **options
    )


def test_it_stops_when_the_gap_is_closed_and_not_before():
    result = go(Scripted(None, OPEN, OPEN, CLOSED))
    assert (result.stop_reason, result.n_iter) == ("gap", 3)
    assert result.certificate == CLOSED
    assert result.model.coef == [3.0]


def test_a_start_that_is_good_enough_needs_no_sweep():
    result = go(Scripted(CLOSED))
    assert (result.stop_reason, result.n_iter) == ("gap", 0)
    assert [(row["sweep"], row["primal"], row["dual"]) for row in result.history] == [(0, *CLOSED)]


def test_it_stops_at_max_iter():
    result = go(Scripted(OPEN), max_iter=4)
    assert (result.stop_reason, result.n_iter, len(result.history)) == ("max_iter", 4, 4)


def test_it_stops_at_max_time_after_a_whole_sweep():
    result = go(Scripted(OPEN), max_iter=10**6, max_time=1e-9)
    assert (result.stop_reason, result.n_iter) == ("max_time", 1)


def test_a_closed_gap_beats_every_limit():
    assert go(Scripted(OPEN, CLOSED), max_iter=1, max_time=1e-9).stop_reason == "gap"


def test_the_problem_may_end_it():
    assert go(Scripted(OPEN, verdict="overlap")).stop_reason == "overlap"


def test_those_who_watch_may_end_it_and_see_every_certified_sweep():
    seen = []

    def watch(progress):
        seen.append(progress)
        return "callback" if progress.sweep == 3 else None

    result = go(Scripted(OPEN), watch=watch)
    assert (result.stop_reason, result.n_iter) == ("callback", 3)
    assert [progress.sweep for progress in seen] == [1, 2, 3]
    assert all(progress.certificate == OPEN and progress.model is None for progress in seen)


def test_the_model_is_made_for_those_who_watch_only_when_asked():
    seen = []
    go(Scripted(OPEN), max_iter=2, watch=lambda progress: seen.append(progress.model), watch_model=True)
    assert [model.coef[0] for model in seen] == [1.0, 2.0]


def test_a_rule_says_on_rank_0_which_reports_have_the_state():
    """The first has one. What ranks send for states is not counted, since a rule may look at the clock."""

    class Gathers(Scripted):
        def start(self, problem, shard, comm, rng, warm=None):
            self.comm = comm
            return 0

        def warm_state(self, state):
            return self.comm.allreduce(np.array([float(state)])) / self.comm.size

    def outcome(comm, rule):
        seen, asked = [], []

        def ask(sweep, cost):
            asked.append((sweep, cost is not None))
            return rule(sweep)

        result = run(
            Gathers(OPEN), HardMargin(), SHARD, comm, Limits(1e-3, 5), np.random.default_rng(0), watch_state=ask,
            watch=lambda progress: seen.append(None if progress.warm_state is None else progress.warm_state[0]),
        )  # fmt: skip
        return seen, asked, result.ledger.scalars

    often, never = (on_ranks(2, lambda comm, rule=rule: outcome(comm, rule)) for rule in (lambda k: k % 2 == 0, bool))
    assert often[0][0] == [1.0, 2.0, None, 4.0, None]
    assert often[0][1] == [(2, True), (3, True), (4, False), (5, True), (6, False)]
    assert often[1][:2] == ([], [])
    assert never[0][0] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert often[0][2] == never[0][2]


def test_sweeps_without_a_certificate_leave_no_row():
    result = go(Scripted(OPEN, None, OPEN, None, CLOSED))
    assert [row["sweep"] for row in result.history] == [2, 4]


def test_history_has_time_bounds_and_every_counter():
    row = go(Scripted(OPEN), max_iter=1).history[0]
    assert set(row) == {"sweep", "seconds", "primal", "dual", *Ledger().counts()}
    assert (row["primal"], row["dual"]) == (1.0, 0.5)


def test_seconds_are_kept_by_phase():
    seconds = go(Scripted(OPEN), max_iter=2).ledger.seconds
    assert {"start", "sweep", "certify", "extract"} <= set(seconds)
    assert all(value >= 0 for value in seconds.values())


def test_ranks_stop_together_whoever_is_asked():
    """Only rank 0 is asked; all others hear of it."""
    asked = []

    def task(comm):
        X, y = separable(0)

        def watch(progress):
            asked.append(comm.rank)
            return "callback" if progress.sweep == 2 else None

        shard, limits = part_of(X, y, np.ones(len(y)), comm.rank, 3), Limits(0.0, 50)
        return run(SaddlePoint(), HardMargin(), shard, comm, limits, np.random.default_rng(0), watch=watch)

    results = on_ranks(3, task)
    assert [(result.n_iter) for result in results] == [2, 2, 2]
    assert results[0].stop_reason == "callback"
    assert set(asked) == {0}


def test_a_watch_that_raises_ends_all_ranks_with_its_error():
    def watch(progress):
        raise RuntimeError("told to fail")

    with pytest.raises(RuntimeError, match="told to fail"):
        solve(SaddlePoint(), HardMargin(), *separable(0), ranks=3, tol=0.0, watch=watch)
