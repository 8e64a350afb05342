from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from tests.problems_at_hand import separable
from widemargin import HardMarginSVC, Ledger
from widemargin.compiled.clock import CLOCK


def test_counts_of_one_job_after_another_add_up():
    names = ("rounds", "messages", "scalars", "bytes", "kernel_evaluations", "cache_hits", "cache_misses")
    first = Ledger(**{name: k for k, name in enumerate(names, 1)}, seconds={"start": 1.0, "sweep": 2.0})
    second = Ledger(**{name: 10 * k for k, name in enumerate(names, 1)}, seconds={"sweep": 3.0, "end": 4.0})
    total = first + second
    assert total.counts() == {name: 11 * k for k, name in enumerate(names, 1)}
    assert total.seconds == {"start": 1.0, "sweep": 5.0, "end": 4.0}
    assert Ledger.total([first, second, Ledger(lost_peers=2)]) == replace(total, lost_peers=2)
    assert first.rounds == 1  # none is changed
    assert first.seconds == {"start": 1.0, "sweep": 2.0}


def test_the_unit_of_the_literature_is_one_row_from_every_rank():
    assert Ledger(scalars=600).in_units(n_ranks=20, n_features=10) == 3.0


def wait_and_fail(ledger):
    with ledger.phase("work"):
        time.sleep(0.002)
        raise ZeroDivisionError


def test_a_phase_adds_its_time_even_if_it_fails():
    ledger = Ledger()
    with ledger.phase("work"):
        time.sleep(0.002)
    once = ledger.seconds["work"]
    assert once >= 0.002
    with pytest.raises(ZeroDivisionError):
        wait_and_fail(ledger)
    assert ledger.seconds["work"] >= once + 0.002


def test_compilation_is_a_phase_of_its_own_and_counted_once():
    ledger, begin = Ledger(), time.perf_counter()
    with ledger.phase("work"):
        time.sleep(0.002)
        with CLOCK, ExitStack() as inner:
            inner.enter_context(CLOCK)  # a function compiles those that it calls
            time.sleep(0.01)
    elapsed, compiling = time.perf_counter() - begin, ledger.seconds["compile"]
    assert compiling >= 0.01
    assert 0.002 <= ledger.seconds["work"] <= elapsed - compiling
    with ledger.phase("work"):
        time.sleep(0.001)
    assert ledger.seconds["compile"] == compiling


def test_a_compilation_that_began_before_a_phase_counts_from_its_start():
    """Another thread may have begun it."""
    ledger = Ledger()
    with CLOCK:
        time.sleep(0.01)
        begin, phase = time.perf_counter(), ledger.phase("work")
        phase.__enter__()
    phase.__exit__()
    assert ledger.seconds["work"] >= 0
    assert sum(ledger.seconds.values()) <= time.perf_counter() - begin


@pytest.mark.parametrize("cluster", [2, 5])
def test_the_cost_of_a_fit_is_that_of_all_ranks(cluster):
    """What rank 0 sends down and what the others send up; every message up has one down in a sum."""
    X, y = separable(0)
    model = HardMarginSVC(solver="saddle", block_size=1, random_state=0, cluster=cluster, tol=1e-2).fit(X, y)
    assert model.cost_.scalars > 0
    assert model.cost_.messages % (cluster - 1) == 0
    assert model.cost_.in_units(cluster, 4) == model.cost_.scalars / (cluster * 4)
    scalars = [row["scalars"] for row in model.history_]
    assert all(np.diff(scalars) > 0)
    assert model.cost_.scalars >= scalars[-1]


def test_alone_nothing_is_sent():
    model = HardMarginSVC().fit(*separable(0))
    assert (model.cost_.messages, model.cost_.scalars, model.cost_.bytes) == (0, 0, 0)
