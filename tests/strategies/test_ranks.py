"""Numbers of rows over all ranks, and what a fit on ranks keeps against the loss of one."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits

from widemargin import KernelSVC, cores
from widemargin.comm.threads import on_ranks
from widemargin.data.shard import Shard
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.polytope import HardMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.run import Limits, Offer, Progress
from widemargin.strategies.protocol import PartProgress, Plan
from widemargin.strategies.ranks import Ranks, StateRule, _in_order, _in_turn, row_numbers

SIZES = [4, 0, 3, 5, 2]
EDGES = np.concatenate([[0], np.cumsum(SIZES)])


@pytest.mark.parametrize("held", [[[0, 1, 2, 3, 4]], [[1, 3], [0, 2, 4]], [[4], [2], [0], [3], [1]]])
def test_rows_keep_the_numbers_of_their_collection_whichever_rank_holds_them(held):
    def numbers(comm):
        parts = held[comm.rank]
        rows = [np.zeros((SIZES[k], 2)) for k in parts]
        n_rows = sum(SIZES[k] for k in parts)
        return row_numbers(Shard(rows, np.zeros(n_rows), np.ones(n_rows)), parts, comm)

    for parts, found in zip(held, on_ranks(len(held), numbers), strict=True):
        assert found.tolist() == [i for k in parts for i in range(EDGES[k], EDGES[k + 1])]


def test_other_rows_are_numbered_in_the_order_of_ranks():
    found = on_ranks(
        3, lambda comm: row_numbers(Shard(np.zeros((comm.rank, 2)), np.zeros(comm.rank), None), None, comm)
    )
    assert [each.tolist() for each in found] == [[], [0], [1, 2]]


def report(part, sweep, warm):
    progress = Progress(sweep, Certificate(2.0, 1.0), 0.5 * sweep, {}, warm, None)
    return PartProgress(part, np.array([0, 1]), None, progress)


def fit(**options) -> Ranks:
    return Ranks(Plan("SomeSVC", HardMargin(), Limits(1e-3, 10), seed=0), EntropicNewton(), **options)


def test_the_latest_state_of_each_part_is_kept():
    program = fit()
    for part, sweep, warm in ((0, 1, [1.0, 2.0]), (0, 2, [3.0, 4.0]), (1, 1, [5.0, 6.0])):
        program = program.after(report(part, sweep, np.array(warm)))
    program = program.after(report(1, 2, None))
    assert {part: (kept.sweeps, kept.seconds, kept.warm.tolist()) for part, kept in program.kept.items()} == {
        0: (2, 1.0, [3.0, 4.0]),
        1: (1, 0.5, [5.0, 6.0]),
    }


def test_a_fit_that_leaves_rows_out_keeps_no_state_of_all_rows():
    program = fit(if_lost="leave out")
    assert program.after(report(0, 1, np.ones(2))) is program


def test_states_take_a_fiftieth_of_the_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    rule, n_states, cost = StateRule(), 0, None
    for sweep in range(2, 10_000):
        clock[0] += 0.01
        is_due = rule(sweep, cost)
        cost = 0.004 if is_due else None
        clock[0] += cost or 0.0
        n_states += is_due
    assert 0.9 < n_states * 0.004 / (0.02 * clock[0]) < 1.1


def test_runs_take_turns_in_lanes_and_each_lane_takes_the_next():
    seen, inside = [], []

    def running(name, n_steps):
        for step in range(n_steps):
            seen.append((name, step, inside[-1]))
            yield

    @contextmanager
    def entered(lane):
        inside.append(lane)
        yield
        inside.pop()

    steps = {"a": 3, "b": 1, "c": 2, "d": 0}
    _in_turn((running(*each) for each in steps.items()), [partial(entered, lane) for lane in (0, 1)])
    assert seen == [("a", 0, 0), ("b", 0, 1), ("a", 1, 0), ("a", 2, 0), ("c", 0, 1), ("c", 1, 1)]


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_parts_in_lanes_are_those_one_after_the_other(multi_class, monkeypatch):
    X, y = load_digits(n_class=5, return_X_y=True)
    X, y = X[:400] / 16, y[:400]
    # The cache is too small for all kernel values, which parts would share.
    options = {"multi_class": multi_class, "cache_size": 0.1, "random_state": 0}
    alone = KernelSVC(**options).fit(X, y)
    asked = []

    def three_lanes(rows, n_rows):
        asked.append(n_rows)
        return [nullcontext] * 3

    monkeypatch.setattr(RowsOnCPU, "lanes", three_lanes)
    beside = KernelSVC(**options).fit(X, y)
    largest = sum(sorted(np.bincount(y))[-2:])
    assert asked[0] >= largest if multi_class == "pairs" else asked == [400]
    np.testing.assert_array_equal(beside.dual_coef_, alone.dual_coef_)
    np.testing.assert_array_equal(beside.intercept_, alone.intercept_)
    for one, other in zip(beside.parts_, alone.parts_, strict=True):
        assert one.certificate == other.certificate
        assert one.ledger.kernel_evaluations == other.ledger.kernel_evaluations
    assert beside.training_.right.tolist() == alone.training_.right.tolist()


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_ahead", "n_bytes"), [(1, 100), (2, 100), (4, 100), (9, 100), (9, 3)])
def test_runs_report_in_their_order_whatever_was_computed_ahead(n_ahead, n_bytes, n_threads):
    reports, n_begun = [], [0]

    def running(name, has_offer):
        n_begun[0] += 1
        assert n_begun[0] <= max(n_ahead, 2)
        ahead = yield Offer(lambda: name, 2) if has_offer else None
        assert ahead in (None, name)
        reports.append((name, "ahead" if ahead else "in turn"))
        yield None
        n_begun[0] -= 1
        reports.append((name, "end"))

    names = "abcdefghij"
    with cores.at_most(n_threads):
        _in_order((running(name, name not in "dej") for name in names), n_ahead, n_bytes)
    assert [name for name, _ in reports] == [name for name in names for _ in range(2)]
    is_ahead = {name for name, what in reports if what == "ahead"}
    assert is_ahead == (
        set() if n_ahead == 1 or n_bytes == 3 else set(names) - {*"dej"} - ({"c"} if n_ahead == 2 else set())
    )


def test_an_error_in_a_sweep_ahead_is_raised():
    def running():
        yield Offer(lambda: 1 // 0, 1)

    with cores.at_most(2), pytest.raises(ZeroDivisionError):
        _in_order((running() for _ in range(3)), 3, 100)
