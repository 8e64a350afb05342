"""Which of the two solvers is chosen, and that it then does everything."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems_at_hand import on_ranks, overlapping
from tests.solvers.test_block_dual import RBF, exact_of, gram, solve
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers import by_size
from widemargin.solvers.batch_perceptron import BatchPerceptron
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.by_size import BySize


def chosen(n_rows, comm=None, **options):
    """The solver that is taken for so many rows, of all ranks together."""
    comm = comm or Solo()
    X, y = overlapping(0, n=n_rows)
    mine = slice(n_rows * comm.rank // comm.size, n_rows * (comm.rank + 1) // comm.size)
    rows = RowsOnCPU(RBF, X[mine], mine.start, comm.ledger, comm.allreduce)
    shard = Shard(X[mine], y[mine], np.ones(len(y[mine])), rows)
    solver = BySize(BlockDual(), BatchPerceptron(), **options)
    return type(solver.start(HingeL2(1.0), shard, comm, np.random.default_rng(0), None).solver)


def test_few_rows_are_solved_exactly_and_many_early(monkeypatch):
    monkeypatch.setattr(by_size, "_MOST_ROWS", 100)
    assert chosen(100) is BlockDual
    assert chosen(101) is BatchPerceptron


def test_a_time_that_will_not_do_is_for_the_early_one(monkeypatch):
    monkeypatch.setattr(by_size, "_VALUES_PER_SECOND", 1e4)
    assert chosen(100, max_time=1.1) is BlockDual
    assert chosen(100, max_time=0.9) is BatchPerceptron
    assert chosen(100) is BlockDual


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_choose_together_by_the_rows_of_all_and_each_adds_its_speed(monkeypatch, ranks):
    monkeypatch.setattr(by_size, "_MOST_ROWS", 100)
    monkeypatch.setattr(by_size, "_VALUES_PER_SECOND", 1e4)
    assert on_ranks(ranks, lambda comm: chosen(101, comm)) == [BatchPerceptron] * ranks
    assert on_ranks(ranks, lambda comm: chosen(100, comm, max_time=0.9)) == [BlockDual] * ranks
    assert on_ranks(ranks, lambda comm: chosen(100, comm, max_time=0.9 / ranks)) == [BatchPerceptron] * ranks


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("max_support", [None, 7])
@pytest.mark.parametrize("is_early", [False, True])
def test_the_chosen_one_does_what_it_does_alone(monkeypatch, is_early, max_support, ranks):
    monkeypatch.setattr(by_size, "_MOST_ROWS", 10 if is_early else 1000)
    X, y = overlapping(0)
    exact, early = BlockDual(max_support=max_support), BatchPerceptron(max_support=max_support)
    options = {"ranks": ranks, "tol": 1e-3, "max_iter": 30}
    chosen = solve(RBF, HingeL2(1.0), X, y, solver=BySize(exact, early), **options)[0]
    alone = solve(RBF, HingeL2(1.0), X, y, solver=early if is_early else exact, **options)[0]
    assert chosen.certificate == alone.certificate
    assert (chosen.stop_reason, chosen.n_iter) == (alone.stop_reason, alone.n_iter)
    np.testing.assert_array_equal(chosen.model.coef, alone.model.coef)
    assert set(chosen.history[-1]) == set(alone.history[-1])


@pytest.mark.parametrize("is_early", [False, True])
def test_a_start_elsewhere_is_handed_on(monkeypatch, is_early):
    monkeypatch.setattr(by_size, "_MOST_ROWS", 10 if is_early else 1000)
    X, y = overlapping(0)
    seen = []
    solver = BySize(BlockDual(), BatchPerceptron(validation_fraction=0))
    options = {"tol": 0.1, "max_iter": 500, "solver": solver}
    cold = solve(
        RBF, HingeL2(1.0), X, y, watch_state=True, watch=lambda progress: seen.append(progress.warm_state), **options
    )[0]
    warm = solve(RBF, HingeL2(1.0), X, y, warm=seen[-1], **options)[0]
    assert cold.stop_reason == warm.stop_reason == "gap"
    assert warm.n_iter <= cold.n_iter
    exact = exact_of(gram(RBF, X), y, 1.0)
    assert warm.certificate.dual <= exact <= warm.certificate.primal
