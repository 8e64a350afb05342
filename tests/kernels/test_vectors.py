"""The choice and the problem of a working set, on every device that is installed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from widemargin.compiled import working_set
from widemargin.kernels import vectors
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.vectors import Dual


@pytest.fixture(params=["cpu", "torch"])
def rows_on(request):
    """A kernel on rows of a device; torch's CPU device stands for a GPU."""
    if request.param == "torch":
        pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
    device = "cpu" if request.param == "cpu" else "cpu:0"
    return lambda X: kernel_rows(Kernel("rbf", 0.3), X, device=device)


# -- the choice of rows ------------------------------------------------------------------------------------------------


def state_of(n, seed=0):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    low, high = np.where(y > 0, 0.0, -2.0), np.where(y > 0, 2.0, 0.0)
    place = rng.integers(0, 3, n)
    beta = np.where(place == 0, low, np.where(place == 1, high, low + rng.uniform(0.1, 1.9, n)))
    return y - rng.normal(size=n), beta, low, high


@pytest.mark.parametrize("n", [40, 150, 1000])
def test_a_working_set_is_what_is_kept_and_the_worst_of_each_group_on_both_sides(n, seed, rows_on, monkeypatch):
    monkeypatch.setattr(vectors, "_MIN_GROUPS", 32)
    rows = rows_on(np.random.default_rng(seed).normal(size=(n, 5)))
    pull, beta, low, high = state_of(n, seed)
    kept = np.random.default_rng(seed).choice(n, 16, replace=False)
    dual, middle = Dual(*(rows.vector(each) for each in (pull, beta, low, high))), rows.vector(np.array(0.2))
    working, top, bottom = rows.working_set(dual, rows.places(kept), middle, 32)
    working = rows.host(working)
    up, down = beta < high, beta > low
    assert float(top) == pull[up].max()
    assert float(bottom) == pull[down].min()
    assert len(np.unique(working)) == 32
    np.testing.assert_array_equal(working[:16], kept)
    size = vectors.group_size(n)
    assert n // size >= 32 > n // (2 * size)
    force = (pull - 0.2).astype(np.float32)
    rises, falls = up & (~down | (force >= 0)), down & (~up | (force < 0))
    rises[kept], falls[kept] = False, False
    for side, strength, chosen in ((rises, force, working[16:24]), (falls, -force, working[24:])):
        worst = [
            group[side[group]][np.argmax(strength[group[side[group]]])]
            for group in np.array_split(np.arange(n), np.arange(size, n, size))
            if side[group].any()
        ]
        expected = sorted(worst, key=lambda row: -strength[row])[:8]
        np.testing.assert_array_equal(np.sort(chosen), np.sort(expected))


def test_a_working_set_of_all_rows_is_all_rows(rows_on):
    rows = rows_on(np.ones((20, 2)))
    pull, beta, low, high = state_of(20)
    dual, middle = Dual(*(rows.vector(each) for each in (pull, beta, low, high))), rows.vector(np.array(0.0))
    working, top, bottom = rows.working_set(dual, rows.places(np.empty(0)), middle, 20)
    np.testing.assert_array_equal(rows.host(working), np.arange(20))
    assert (float(top), float(bottom)) == (pull[beta < high].max(), pull[beta > low].min())


def test_one_side_gives_way_to_the_other_where_it_has_too_few():
    keys = np.full((2, 20), -np.inf)
    keys[0, :3] = [1.0, 3.0, 2.0]
    keys[1, 5:18] = np.arange(13.0)
    places, kept = np.arange(40).reshape(2, 20), np.array([99, 98])
    np.testing.assert_array_equal(vectors.choose(keys, places, kept, 10), [99, 98, 1, 2, 0, *range(37, 30, -1)])
    np.testing.assert_array_equal(
        vectors.choose(keys[::-1], places, kept, 10), [99, 98, *range(17, 10, -1), 21, 22, 20]
    )


def test_free_rows_stay_and_then_the_latest(rows_on):
    rows, beta = rows_on(np.ones((20, 2))), np.array([0.0, 0.5, 0.0, 1.0, 0.2, 1.0])
    dual = Dual(*(rows.vector(each) for each in (beta, beta, np.zeros(6), np.ones(6))))
    working = rows.places(np.arange(10, 16))
    for size, expected in ((1, [14]), (2, [11, 14]), (4, [11, 13, 14, 15])):
        np.testing.assert_array_equal(rows.host(rows.kept(working, dual, size)), expected)


# -- the problem of a working set ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "free"])
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5])  # float32 resolves the first two
@pytest.mark.parametrize("n", [3, 64, 70, 128, 200])
def test_a_working_set_of_any_size_is_solved(n, tol, is_tied, dtype):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 2)), np.where(np.arange(n) % 2, 1.0, -1.0)
    rows = RowsOnCPU(Kernel("rbf", 1.0), X.astype(dtype))
    K, low, high = rows.working_block(rows.points(np.arange(n))), np.minimum(y, 0.0), np.maximum(y, 0.0)
    start = np.zeros(n)
    beta, pull, steps = rows.solve_block(K, Dual(y.copy(), start, low, high), tol, is_tied=is_tied, max_steps=10_000)
    assert steps > 0
    assert not start.any()  # what is handed in stays as it is
    assert (beta >= low).all()
    assert (beta <= high).all()
    exact = y - K[:, :n].astype(float) @ beta
    np.testing.assert_allclose(pull, exact, atol=1e-5)
    rising, falling = exact[beta < high], exact[beta > low]
    if is_tied:
        assert beta.sum() == pytest.approx(0.0, abs=1e-12)
        assert rising.max() - falling.min() <= tol + 1e-5
    else:
        assert max(rising.max(initial=0.0), -falling.min(initial=0.0)) <= tol / 2 + 1e-5


def test_a_diagonal_that_float32_cannot_hold_is_not_rounded():
    """Values far from zero, as of a linear kernel far from the origin: what counts are their differences."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 2)), np.where(np.arange(10) % 2, 1.0, -1.0)
    K = np.zeros((10, vectors.padded(10)))
    K[:, :10] = X @ X.T + 1e8
    dual = Dual(y, np.zeros(10), np.minimum(y, 0), np.maximum(y, 0))
    beta, pull, _ = vectors.solve(K, dual, 1e-3, 0.0, True, 10_000)
    assert pull[beta < np.maximum(y, 0)].max() - pull[beta > np.minimum(y, 0)].min() <= 2e-3


def test_the_width_of_a_block_is_a_multiple_of_the_lanes_of_the_compiled_loops():
    assert [vectors.padded(n) for n in (0, 1, 127, 128, 129, 1024)] == [0, 128, 128, 128, 256, 1024]
    assert vectors.padded(1) == working_set.LANES


def test_a_square_block_is_filled_up_and_any_other_width_is_refused():
    """The compiled loops would read beyond the end of a narrower one."""
    K, dual = np.eye(10), Dual(np.ones(10), np.zeros(10), np.zeros(10), np.ones(10))
    full = np.zeros((10, 128))
    full[:, :10] = K
    for block in (K, full):
        np.testing.assert_allclose(vectors.solve(block, dual, 1e-6, 0.0, False, 1000)[0], np.ones(10))
    for width in (11, 127, 256):
        with pytest.raises(ValueError, match=rf"shape \(10, {width}\): it must be \(10, 10\) or \(10, 128\)"):
            vectors.solve(np.zeros((10, width)), dual, 1e-6, 0.0, False, 1000)


def test_a_block_that_is_made_again_has_nothing_left_of_the_last_one():
    X = np.random.default_rng(0).normal(size=(140, 3))
    rows = RowsOnCPU(Kernel("rbf", 0.3), X)
    for n in (140, 5, 128, 130):
        K = rows.working_block(rows.points(np.arange(n)))
        np.testing.assert_allclose(K[:, :n], rbf_kernel(X[:n], gamma=0.3), atol=1e-12)
        assert K.shape == (n, vectors.padded(n))
        assert not K[:, n:].any()
