"""Pauses of long work: who asks, who is told, that all ranks stop together, and that what they return is true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from tests.problems_at_hand import PaperNu, on_ranks, part_of
from widemargin import pauses
from widemargin.comm.protocol import place_among_ranks
from widemargin.comm.solo import Solo
from widemargin.data import shard as shard_module
from widemargin.data.shard import Shard
from widemargin.kernels import on_cpu, vectors
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.pauses import Clock, TimeIsUp, is_time_up, pause, pause_alone, pieces, uneven
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.polytope import HardMargin
from widemargin.solvers import _interior_point, active_set, dual_descent, saddle, svrg
from widemargin.solvers import run as run_module
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.auto import kernel_margin, linear_csvm
from widemargin.solvers.batch_perceptron import BatchPerceptron
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.column_generation import ColumnGeneration
from widemargin.solvers.dual_descent import DualDescent
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_newton import MarginNewton
from widemargin.solvers.margin_primal import MarginPrimal
from widemargin.solvers.multipliers import Multipliers
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.run import Limits, run
from widemargin.solvers.saddle import SaddlePoint
from widemargin.solvers.svrg import SVRG

CASES = {
    "newton": (EntropicNewton(), HardMargin()),
    "nu newton": (EntropicNewton(), PaperNu()),
    "saddle": (SaddlePoint(block_size=2), PaperNu()),
    "active set": (ActiveSet(), HardMargin()),
    "descent": (DualDescent(), HingeL2(1.0)),
    "multipliers": (Multipliers(), HingeL2(1.0)),
    "multipliers cg": (Multipliers(direct_features=1), HingeL2(1.0)),
    "linear": (linear_csvm(), HingeL2(1.0)),
    "primal": (MarginPrimal(), MarginDistribution(10.0)),
    "primal cg": (MarginPrimal(direct_features=1), MarginDistribution(10.0)),
    "svrg": (SVRG(), MarginDistribution(10.0)),
    "columns": (ColumnGeneration(finds_alpha_max=True), HingeL1(0.01)),
    "block": (BlockDual(), HingeL2(1.0)),
    "perceptron": (BatchPerceptron(), HingeL2(1.0)),
    "margin descent": (MarginDescent(block_rows=40), MarginDistribution(10.0)),
    "margin newton": (MarginNewton(direct_rows=10, landmarks=20), MarginDistribution(10.0)),
    "margin uncached": (kernel_margin(MarginDescent(cache_bytes=1, block_rows=40)), MarginDistribution(10.0)),
}
KERNEL = {"block", "perceptron", "margin descent", "margin newton", "margin uncached"}
N, D = 180, 6


def rows_of(name, skewed=False):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(N) < 3, 1.0, -1.0) if skewed else np.where(np.arange(N) % 2, 1.0, -1.0)
    X = rng.normal(size=(N, D))
    X[:, 0] += (4.0 if CASES[name][1] == HardMargin() else 1.0) * y
    return Shard(X, y, np.ones(N))


def solve(name, comm, *, limits=None, watch=None, skewed=False):
    solver, problem = CASES[name]
    whole = rows_of(name, skewed)
    shard = part_of(whole.X, whole.y, whole.weight, comm.rank, comm.size)
    if name in KERNEL:
        numbers = place_among_ranks(comm, shard.n_rows).start + np.arange(shard.n_rows)
        rows = kernel_rows(Kernel("rbf", 0.3), shard.X, numbers, comm.ledger, reduce=comm.allreduce, n_everywhere=N)
        shard = Shard(rows.X, shard.y, shard.weight, rows)
    limits = limits or Limits(1e-3, 30)
    return run(solver, problem, shard, comm, limits, np.random.default_rng(0), watch=watch)


def lowered(monkeypatch, work):
    for module in (pauses, on_cpu, vectors, dual_descent, svrg, active_set, saddle, _interior_point):
        monkeypatch.setattr(module, "WORK", work)


def counted(monkeypatch):
    """What is really done between two looks at the clock, for each look: entries of passes over rows, kernel values."""
    amounts, passed, told, on_piece = [0.0], shard_module._call, pauses.told_by_rank_0, on_cpu._on_piece

    def count_pass(module, name, block, rows, *arguments):
        amounts[-1] += block[rows].size
        passed(module, name, block, rows, *arguments)

    def count_values(loop, before, after, piece):
        _, rows, _, _, norms, *_ = before  # of the points, which are multiplied with the rows of the piece
        amounts[-1] += (piece[1] - piece[0]) * len(norms) * rows.shape[1] / 4  # by BLAS, which is as much faster
        on_piece(loop, before, after, piece)

    def look(comm, text):
        amounts.append(0.0)
        return told(comm, text)

    monkeypatch.setattr(on_cpu, "_on_piece", count_values)
    monkeypatch.setattr(shard_module, "_call", count_pass)
    monkeypatch.setattr(pauses, "told_by_rank_0", look)
    monkeypatch.setattr(run_module, "told_by_rank_0", look)
    return amounts


def test_without_a_run_there_is_no_pause():
    pause(1e30)
    pause_alone(1e30)
    assert not is_time_up(1e30)
    with uneven(1e30):
        pause_alone(1e30)


def test_pieces_are_as_many_as_the_work_calls_for():
    assert [len(part) for part in pieces(np.arange(10), 5 * pauses.WORK)] == [2] * 5
    assert [len(part) for part in pieces(np.arange(2), 4 * pauses.WORK)] == [1, 1, 0, 0]  # ranks may have fewer rows
    assert [len(part) for part in pieces(np.arange(10), 0.0)] == [10]


def test_the_clock_is_asked_once_there_was_enough_work():
    n_asked = 0

    def ask():
        nonlocal n_asked
        n_asked += 1
        return ""

    with Clock(Solo(), ask).running():
        for _ in range(10):
            pause(pauses.WORK / 4)
    assert n_asked == 2


def test_a_pause_raises_once_and_loops_are_told_from_then_on():
    clock = Clock(Solo(), lambda: "max_time")
    with clock.running():
        with pytest.raises(TimeIsUp):
            pause(pauses.WORK)
        pause(pauses.WORK)
        assert is_time_up(0.0)
    assert clock.reason == "max_time"


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_ranks_with_different_work_stop_together(slow):
    def on_rank(comm):
        n_asked = 0

        def ask():
            nonlocal n_asked
            n_asked += 1
            return "interrupted" if n_asked >= 5 else ""

        clock = Clock(comm, ask)
        done = 0
        with clock.running():
            try:
                with uneven(np.inf):
                    for _ in range(100 if comm.rank == slow else comm.rank):
                        done += 1
                        pause_alone(pauses.WORK)
            except TimeIsUp:
                return clock.reason, done
        return "", done

    outcomes = on_ranks(3, on_rank)
    assert [reason for reason, _ in outcomes] == ["interrupted"] * 3
    assert outcomes[slow][1] < 10


def test_ranks_with_different_work_wait_for_each_other():
    def on_rank(comm):
        clock = Clock(comm, lambda: "")
        with clock.running():
            with uneven(np.inf):
                for _ in range(comm.rank * 7):
                    pause_alone(pauses.WORK)
            pause(pauses.WORK)
        return float(comm.allreduce(np.ones(1))[0])

    assert on_ranks(3, on_rank) == [3.0] * 3


def test_an_error_of_one_rank_ends_the_others():
    def on_rank(comm):
        with Clock(comm, lambda: "").running(), uneven(np.inf):
            if comm.rank == 1:
                raise ZeroDivisionError("of one rank")

    with pytest.raises(ZeroDivisionError, match="of one rank"):
        on_ranks(3, on_rank)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_pieces_change_nothing_but_rounding(name, ranks, monkeypatch):
    whole = on_ranks(ranks, lambda comm: solve(name, comm))[0]
    lowered(monkeypatch, 2000.0)
    cut = on_ranks(ranks, lambda comm: solve(name, comm))[0]
    assert cut.stop_reason == whole.stop_reason
    low = max(cut.certificate.dual, whole.certificate.dual)
    high = min(cut.certificate.primal, whole.certificate.primal)
    assert low <= high * (1 + 1e-9)  # both are bounds of one optimum
    assert cut.certificate.relative == pytest.approx(whole.certificate.relative, rel=0.5, abs=1e-3)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_work_between_two_looks_is_bounded(name, skewed, monkeypatch):
    """The limit is lowered to a few passes over these few rows, or kernel values of all with some."""
    lowered(monkeypatch, 20.0 * N * D)
    amounts = counted(monkeypatch)
    solve(name, Solo(), limits=Limits(1e-6, 10), skewed=skewed)
    assert len(amounts) > 2
    assert max(amounts) < 3 * pauses.WORK


@pytest.mark.parametrize("after", [1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_stopped_anywhere_has_a_true_certificate(name, ranks, after, monkeypatch):
    optimum = on_ranks(1, lambda comm: solve(name, comm))[0].certificate
    lowered(monkeypatch, 500.0)
    monkeypatch.setattr("widemargin.solvers.run._ASK_INTERVAL", -1.0)

    def on_rank(comm):
        n_asked = 0

        def watch(progress):
            nonlocal n_asked
            n_asked += 1
            return "interrupted" if n_asked >= after else None

        return solve(name, comm, watch=watch)

    result = on_ranks(ranks, on_rank)[0]
    assert result.stop_reason in ("interrupted", "gap", "max_iter", "plateau")
    assert result.certificate.dual <= optimum.primal * (1 + 1e-9) + 1e-12
    assert result.certificate.primal >= optimum.dual * (1 - 1e-9) - 1e-12
    assert np.isfinite(result.model.coef).all()
    assert np.isfinite(result.certificate.primal)


@pytest.mark.parametrize("name", sorted(KERNEL))
def test_a_model_that_cannot_be_confirmed_in_time_has_crude_bounds(name, monkeypatch):
    optimum = solve(name, Solo()).certificate
    lowered(monkeypatch, 500.0)
    monkeypatch.setattr("widemargin.solvers.run._GRACE", -1.0)
    result = solve(name, Solo(), limits=Limits(1e-9, 3), watch=lambda progress: "callback" if progress.sweep else None)
    assert result.stop_reason == "callback"
    assert result.certificate.dual <= optimum.primal
    assert optimum.dual <= result.certificate.primal < np.inf


PROGRAM = """
import numpy as np, sys, warnings
from widemargin import KernelSVC
rng = np.random.default_rng(0)
X = rng.normal(size=(12_000, 40))
y = (X[:, :8] ** 2).sum(axis=1) + rng.normal(size=12_000) > 8
KernelSVC(max_iter=1).fit(X[:200], y[:200])
print("ready", flush=True)
model = KernelSVC(C=1e4, gamma=0.01, tol=1e-10, solver="exact").fit(X, y)
print(model.stop_reason_, np.isfinite(model.certificate_.primal), flush=True)
"""


def test_ctrl_c_ends_a_long_fit_with_a_model():
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert out.split() == ["interrupted", "True"]
