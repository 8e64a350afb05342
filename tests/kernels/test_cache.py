"""Kept kernel rows give the sums of direct ones, in so many bytes, and are counted."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.kernels import cache as cache_module
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU

N_ROWS = 30
ROW_BYTES = 8 * N_ROWS


@pytest.fixture
def rows():
    return RowsOnCPU(Kernel("rbf", 0.3), np.random.default_rng(0).normal(size=(N_ROWS, 3)), 100)


def ask(cache, rows, *wanted):
    """What the cache gives for these rows, held against what comes without one."""
    points, coef = rows.points(np.array(wanted)), 1.0 + np.arange(len(wanted))
    given = cache.times(points, coef)
    np.testing.assert_allclose(given, rows.times(points, coef), rtol=1e-12)
    return given


def kept(cache):
    return [number - 100 for number in range(100, 100 + N_ROWS) if number in cache]


def test_sums_are_the_direct_ones_whatever_is_kept(rows):
    rng = np.random.default_rng(1)
    for n_slots in (0, 1, 2, 5, N_ROWS):
        cache = RowCache(rows, n_slots * ROW_BYTES)
        for _ in range(60):
            ask(cache, rows, *rng.choice(N_ROWS, rng.integers(1, 8), replace=False))


def test_rows_in_float32_are_summed_to_float64(monkeypatch):
    X = np.random.default_rng(0).normal(size=(5000, 3))
    rows = RowsOnCPU(Kernel("rbf", 0.3), X)
    assert rows.dtype == np.float32
    cache, points = RowCache(rows, 1 << 20), rows.points(np.arange(4))
    cache.keep(points)
    given = cache.times(points, np.full(4, 0.1))
    assert given.dtype == np.float64
    np.testing.assert_allclose(given, rows.times(points, np.full(4, 0.1)), rtol=1e-5)


@pytest.mark.parametrize("n_bytes", [0, ROW_BYTES - 1, ROW_BYTES, 5 * ROW_BYTES + 17])
def test_no_more_is_held_than_the_bytes_that_were_given(rows, n_bytes):
    cache = RowCache(rows, n_bytes)
    assert cache.n_slots == n_bytes // ROW_BYTES
    assert cache._values.nbytes <= n_bytes
    for _ in range(3):
        for row in range(N_ROWS):
            ask(cache, rows, row)
        assert len(kept(cache)) <= cache.n_slots
    assert cache._values.nbytes <= n_bytes


def test_a_row_is_kept_from_the_second_time_that_it_is_asked_for(rows):
    cache = RowCache(rows, 5 * ROW_BYTES)
    ask(cache, rows, 3, 4)
    assert kept(cache) == []
    ask(cache, rows, 4, 5)
    assert kept(cache) == [4]


def test_rows_among_many_are_not_kept(rows, monkeypatch):
    monkeypatch.setattr(cache_module, "_MAX_CACHED_AT_ONCE", 4)
    cache = RowCache(rows, N_ROWS * ROW_BYTES)
    for _ in range(3):
        ask(cache, rows, *range(5))
    assert kept(cache) == []
    ask(cache, rows, *range(4))
    assert kept(cache) == [0, 1, 2, 3]


def test_the_least_recently_used_goes_first(rows):
    cache = RowCache(rows, 3 * ROW_BYTES)
    for row in (0, 0, 1, 1, 2, 2):
        ask(cache, rows, row)
    ask(cache, rows, 0)
    ask(cache, rows, 7)
    ask(cache, rows, 7)
    assert kept(cache) == [0, 2, 7]
    ask(cache, rows, 8)
    ask(cache, rows, 8)
    assert kept(cache) == [0, 7, 8]


def test_a_row_that_is_in_use_does_not_make_room_for_one_that_comes(rows):
    cache = RowCache(rows, 2 * ROW_BYTES)
    for row in (0, 0, 1, 1):
        ask(cache, rows, row)
    ask(cache, rows, 5)
    ask(cache, rows, 0, 5)  # 0 is the older one, yet in use
    assert kept(cache) == [0, 5]
    ask(cache, rows, 6, 7)
    ask(cache, rows, 0, 6, 7)  # three do not fit: those that are new are used as they are made
    assert kept(cache) == [0, 5]


def test_hits_and_misses_are_counted_and_hits_cost_no_kernel_values(rows):
    cache = RowCache(rows, 5 * ROW_BYTES)
    coef, ledger = np.ones(2), rows.ledger
    cache.times(rows.points(np.array([1, 2])), coef)
    assert (ledger.cache_hits, ledger.cache_misses, ledger.kernel_evaluations) == (0, 2, 2 * N_ROWS)
    cache.times(rows.points(np.array([1, 2])), coef)  # computed once more, to be kept
    assert (ledger.cache_hits, ledger.cache_misses, ledger.kernel_evaluations) == (0, 4, 4 * N_ROWS)
    cache.times(rows.points(np.array([1, 3])), coef)
    assert (ledger.cache_hits, ledger.cache_misses, ledger.kernel_evaluations) == (1, 5, 5 * N_ROWS)


def test_rows_that_were_computed_ahead_are_hits(rows):
    cache = RowCache(rows, 5 * ROW_BYTES)
    cache.keep(rows.points(np.array([4, 9])))
    assert kept(cache) == [4, 9]
    before = rows.ledger.kernel_evaluations
    cache.times(rows.points(np.array([4, 9])), np.ones(2))
    assert rows.ledger.kernel_evaluations == before
    assert rows.ledger.cache_hits == 2
    cache.keep(rows.points(np.array([], dtype=int)))
    assert kept(cache) == [4, 9]


def test_no_rows_at_all():
    rows = RowsOnCPU(Kernel("rbf", 0.3), np.empty((0, 3)))
    points = RowsOnCPU(Kernel("rbf", 0.3), np.ones((2, 3)), 5).points(np.arange(2))
    cache = RowCache(rows, 1 << 10)
    for _ in range(3):
        assert cache.times(points, np.ones(2)).shape == (0,)
