from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import pytest

from widemargin.engines.inline import launch


class Rows(NamedTuple):
    X: object
    y: object


ROWS = Rows(np.arange(12.0)[:, None], np.arange(12.0))


class Task:
    def __init__(self, run):
        self.run_on_rank = run


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7])
def test_every_rank_gets_its_rows_and_rank_0_answers(n_ranks):
    def run(rows, comm, watch):
        total = comm.allreduce(np.array([rows.y.sum(), 1.0]))
        return comm.rank, comm.size, total.tolist(), watch

    assert launch(ROWS, n_ranks, Task(run), "watch") == (0, n_ranks, [66.0, float(n_ranks)], "watch")


def test_rank_0_is_the_calling_thread():
    names = {}

    def run(rows, comm, watch):
        names[comm.rank] = threading.current_thread()

    launch(ROWS, 3, Task(run), None)
    assert names[0] is threading.current_thread()
    assert len(set(names.values())) == 3


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [ValueError("of this rank"), KeyboardInterrupt("of this rank")])
def test_the_error_of_a_rank_is_raised_and_no_thread_is_left(failing, error):
    def run(rows, comm, watch):
        comm.allreduce(np.zeros(1))
        if comm.rank == failing:
            raise error
        for _ in range(1000):
            comm.allreduce(np.zeros(1))

    before = set(threading.enumerate())
    with pytest.raises(type(error), match="of this rank") as caught:
        launch(ROWS, 3, Task(run), None)
    assert caught.value is error
    assert set(threading.enumerate()) <= before


def test_too_many_ranks_start_nothing():
    started = []
    with pytest.raises(ValueError, match="cluster=13"):
        launch(ROWS, 13, Task(lambda *arguments: started.append(1)), None)
    assert started == []
