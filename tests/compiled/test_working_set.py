"""The dual of a working set against an exact answer by trying out every set of bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from widemargin.compiled import working_set
from widemargin.compiled.working_set import LANES

TOL = 1e-6


@pytest.fixture(params=[True, False], ids=["pairs", "singles"])
def is_tied(request):
    return request.param


def value(K, q, beta):
    return 0.5 * beta @ K @ beta - q @ beta


def exact(K, q, low, high, total=None):
    """The least value over the box, with the sum given or free: each row is low, high, or where its slope is level."""
    n, best = len(q), np.inf
    for choice in product((0, 1, 2), repeat=n):
        choice = np.array(choice)
        beta, free = np.where(choice == 0, low, high), choice == 2
        m = np.count_nonzero(free)
        if m:
            rest = q[free] - K[np.ix_(free, ~free)] @ beta[~free]
            system, right = K[np.ix_(free, free)], rest
            if total is not None:
                border = np.ones((m, 1))
                system = np.block([[system, border], [border.T, np.zeros((1, 1))]])
                right = np.append(rest, total - beta[~free].sum())
            beta[free] = np.linalg.lstsq(system, right, rcond=None)[0][:m]
        is_inside = (beta >= low - 1e-12).all() and (beta <= high + 1e-12).all()
        if is_inside and (total is None or abs(beta.sum() - total) <= 1e-9):
            best = min(best, value(K, q, beta))
    return best


def solve(K, q, low, high, is_tied, start=None, tol=TOL, max_steps=100_000, dtype=np.float32):
    """Pad to full lanes, solve, and check what must hold whatever the problem; beta, pull and the steps."""
    n = len(q)
    width = -(-n // LANES) * LANES
    start = np.zeros(n) if start is None else start
    wide = np.zeros((n, width), dtype)
    wide[:, :n] = K
    pull, beta, lower, upper = (np.pad(each, (0, width - n)) for each in (q - K @ start, start, low, high))
    diagonal = np.pad(np.diagonal(K), (0, width - n), constant_values=1.0).astype(np.float32)
    run = working_set.pairs if is_tied else working_set.singles
    steps = run(wide, diagonal, pull, beta, lower, upper, tol, max_steps)
    assert not beta[n:].any(), "a padded row has moved"
    beta, pull = beta[:n], pull[:n]
    assert (beta >= low).all()
    assert (beta <= high).all()
    if is_tied:
        assert beta.sum() == pytest.approx(start.sum(), abs=1e-10 * max(1.0, np.abs(beta).max()))
    # Steps take differences of kernel values in the precision of these.
    np.testing.assert_allclose(pull, q - K @ beta, atol=10 * np.finfo(dtype).eps * max(1.0, np.abs(beta).sum()))
    return beta, pull, steps


def rounded(K):
    """As float32 would hold it, so that both sides solve the same problem."""
    return K.astype(np.float32).astype(np.float64)


def small_problem(seed, n=6, C=0.7):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), np.where(np.arange(n) % 2, 1.0, -1.0)
    return rounded(rbf_kernel(X, gamma=0.5)), y, np.minimum(C * y, 0.0), np.maximum(C * y, 0.0)


def test_the_exact_answer_of_one_row_is_known():
    assert exact(np.array([[2.0]]), np.array([1.0]), np.array([0.0]), np.array([9.0])) == pytest.approx(-0.25)
    assert exact(np.array([[2.0]]), np.array([1.0]), np.array([0.0]), np.array([0.1])) == pytest.approx(0.01 - 0.1)
    # Two opposite rows that must stay opposite.
    tied = exact(np.eye(2), np.array([1.0, -1.0]), np.array([0.0, -9.0]), np.array([9.0, 0.0]), total=0.0)
    assert tied == pytest.approx(-1.0)


@pytest.mark.parametrize("C", [0.05, 0.7, 1e3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["K32", "K64"])
def test_the_answer_is_exact(is_tied, C, dtype, seed):
    K, q, low, high = small_problem(seed, C=C)
    beta, _, _ = solve(K, q, low, high, is_tied, dtype=dtype)
    best = exact(K, q, low, high, 0.0 if is_tied else None)
    assert value(K, q, beta) == pytest.approx(best, abs=1e-6 * abs(best))


def test_it_begins_where_one_says(is_tied, seed):
    K, q, low, high = small_problem(seed)
    start = 0.5 * (low + high) + np.array([0.01, -0.01, 0.0, 0.0, 0.02, -0.02])
    beta, _, _ = solve(K, q, low, high, is_tied, start)
    best = exact(K, q, low, high, start.sum() if is_tied else None)
    assert value(K, q, beta) == pytest.approx(best, abs=1e-6 * abs(best))


def test_it_ends_when_no_row_pulls_by_more_than_the_tolerance(is_tied, seed):
    K, q, low, high = small_problem(seed, n=50)
    for tol in (1e-1, 1e-3, 1e-5):
        beta, pull, _ = solve(K, q, low, high, is_tied, tol=tol)
        rising, falling = pull[beta < high].max(), pull[beta > low].min()
        if is_tied:
            assert rising - falling <= tol * (1 + 1e-6)
        else:
            assert max(rising, -falling, 0.0) <= tol / 2 * (1 + 1e-5)


def test_an_answer_needs_no_step(is_tied):
    K, q, low, high = small_problem(0)
    beta, _, _ = solve(K, q, low, high, is_tied)
    again, _, steps = solve(K, q, low, high, is_tied, beta, tol=2 * TOL)
    assert steps == 0
    np.testing.assert_array_equal(again, beta)


def test_it_keeps_to_its_number_of_steps(is_tied):
    K, q, low, high = small_problem(0, n=50)
    _, _, steps = solve(K, q, low, high, is_tied, max_steps=7)
    assert steps == 7
    beta, _, steps = solve(K, q, low, high, is_tied, max_steps=0)
    assert steps == 0
    assert not beta.any()


def test_bounds_are_met_exactly(is_tied):
    """C so small that every row ends at a bound."""
    K, q, low, high = small_problem(1, n=20, C=1 / 3 / 1000)
    beta, _, _ = solve(K, q, low, high, is_tied)
    assert set(beta) <= {*low, *high}
    assert np.abs(beta).sum() == pytest.approx(20 * 1 / 3 / 1000)


def test_bounds_that_differ_by_row(is_tied, seed):
    K, q, low, high = small_problem(seed)
    caps = np.random.default_rng(seed).uniform(0.1, 2.0, 6)
    low, high = low * caps, high * caps
    beta, _, _ = solve(K, q, low, high, is_tied)
    best = exact(K, q, low, high, 0.0 if is_tied else None)
    assert value(K, q, beta) == pytest.approx(best, abs=1e-6 * abs(best))


def test_rows_that_cannot_move_do_not(is_tied):
    K, q, low, high = small_problem(0)
    low, high = low.copy(), high.copy()
    low[2:4] = high[2:4] = 0.0
    beta, _, _ = solve(K, q, low, high, is_tied)
    assert not beta[2:4].any()
    best = exact(K, q, low, high, 0.0 if is_tied else None)
    assert value(K, q, beta) == pytest.approx(best, abs=1e-6 * abs(best))


def test_copies_of_rows_with_both_labels(is_tied):
    """Between copies there is no curvature: they go to a bound in one step."""
    K, q, low, high = small_problem(2, n=3)
    K = np.kron(np.ones((2, 2)), K)
    q, low, high = np.concatenate([q, -q]), np.concatenate([low, -high]), np.concatenate([high, -low])
    beta, _, steps = solve(K, q, low, high, is_tied)
    best = exact(K, q, low, high, 0.0 if is_tied else None)
    assert value(K, q, beta) == pytest.approx(best, abs=1e-6 * abs(best))
    assert steps < 1000


def test_nothing_but_copies(is_tied):
    q = np.array([1.0, 1.0, -1.0, -1.0, -1.0])
    beta, _, _ = solve(np.ones((5, 5)), q, np.minimum(q, 0), np.maximum(q, 0), is_tied)
    best = exact(np.ones((5, 5)), q, np.minimum(q, 0), np.maximum(q, 0), 0.0 if is_tied else None)
    assert value(np.ones((5, 5)), q, beta) == pytest.approx(best, abs=1e-6)


def test_rows_of_zeros(is_tied):
    q = np.array([1.0, -1.0, 1.0])
    beta, _, _ = solve(np.zeros((3, 3)), q, np.minimum(q, 0), np.maximum(q, 0), is_tied)
    assert q @ beta == pytest.approx(2.0 if is_tied else 3.0)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 129])
def test_any_number_of_rows_in_lanes(is_tied, n):
    K, q, low, high = small_problem(3, n=n)
    beta, pull, _ = solve(K, q, low, high, is_tied)
    if is_tied and n == 1:
        assert not beta.any()
        return
    dual = value(K, q, beta)
    assert dual < 0
    # Half the pull of each row is a bound on what is left to gain.
    level = (pull[beta < high].max() + pull[beta > low].min()) / 2 if is_tied else 0.0
    left = np.maximum((pull - level) * (high - beta), (level - pull) * (beta - low)).sum()
    assert left <= 1e-5 * n


def test_an_indefinite_kernel_ends_too(is_tied):
    rng = np.random.default_rng(0)
    K = rounded(np.tanh(rng.normal(size=(20, 3)) @ rng.normal(size=(3, 20))))
    K = rounded((K + K.T) / 2)
    q = np.where(np.arange(20) % 2, 1.0, -1.0)
    beta, _, steps = solve(K, q, np.minimum(q, 0), np.maximum(q, 0), is_tied)
    assert np.isfinite(beta).all()
    assert steps < 100_000
