"""Rows of approximate inverses: their optimality conditions, the linear program they stand for, and what has no row."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.solvers.inverse_rows import clime_rows, scio_rows


def hessian(p=40, n=200, seed=0, correlation=0.5):
    """A second moment of rows whose neighbouring features go together."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    for k in range(1, p):
        X[:, k] += correlation * X[:, k - 1]
    return X.T @ X / n


def worst_condition(H, j, t, c):
    """By how much of c a row fails the optimality conditions of SCIO."""
    gradient = H @ t
    gradient[j] -= 1
    inside = np.abs(gradient) - c
    on_support = np.where(t != 0, np.abs(gradient + c * np.sign(t)), 0.0)
    return max(inside.max(), on_support.max()) / c


# With fewer rows than features H is singular, and a small c out of reach.
@pytest.mark.parametrize(("c", "n"), [(0.02, 400), (0.1, 400), (0.3, 400), (0.3, 30), (0.5, 30)])
def test_rows_satisfy_the_optimality_conditions(c, n):
    H = hessian(n=n)
    result = scio_rows(H, np.arange(40), c)
    theta = result.theta.toarray()
    assert max(worst_condition(H, j, theta[j], c) for j in range(40)) <= 1e-3 + 1e-12
    assert np.allclose(result.violation, np.abs(theta @ H - np.eye(40)).max(axis=1), atol=1e-12)
    assert np.allclose(result.diagonal, np.diag(theta @ H), atol=1e-12)


def test_the_check_of_conditions_can_fail():
    H = hessian()
    t = scio_rows(H, np.array([3]), 0.1).theta.toarray()[0]
    assert worst_condition(H, 3, t, 0.1) <= 1e-3
    assert worst_condition(H, 3, 1.1 * t, 0.1) > 1e-2
    assert worst_condition(H, 4, t, 0.1) > 1


def test_rows_meet_the_linear_programs_constraint_at_nearly_its_norm():
    H, rows, c = hessian(), np.arange(0, 40, 5), 0.1
    ours, exact = scio_rows(H, rows, c), clime_rows(H, rows, c)
    assert exact.violation.max() <= c * (1 + 1e-6)
    assert ours.violation.max() <= c * (1 + 1e-3)
    ratio = np.abs(ours.theta).sum(axis=1) / np.abs(exact.theta).sum(axis=1)
    # Looser by a thousandth our constraint may allow a shorter row; 5 % longer is what a greedy answer would exceed.
    assert ratio.min() >= 1 - 0.01
    assert ratio.max() <= 1.05


def test_the_linear_program_agrees_on_the_diagonal_of_its_product():
    H, rows = hessian(), np.array([7, 2])
    exact = clime_rows(H, rows, 0.2)
    products = exact.theta @ H
    assert np.allclose(exact.diagonal, [products[0, 7], products[1, 2]])


def test_a_constraint_loose_enough_has_the_closed_form():
    H = hessian(correlation=0.1)
    off = np.abs(H - np.diag(np.diag(H))).max(axis=1) / np.diag(H)
    c = float((off / (1 + off)).max()) * (1 + 1e-9)
    theta = scio_rows(H, np.arange(40), c).theta
    assert theta.nnz == 40
    assert np.allclose(theta.diagonal(), (1 - c) / np.diag(H))
    assert scio_rows(H, np.arange(40), 0.9 * c).theta.nnz > 40


def test_rescaled_rows_have_one_on_the_diagonal_of_the_product():
    H = hessian()
    rescaled = scio_rows(H, np.arange(40), 0.1).rescaled()
    assert np.allclose(np.diag(rescaled @ H), 1)


def test_any_selection_of_rows_is_made_alike():
    H = hessian()
    everything = scio_rows(H, np.arange(40), 0.1).theta.toarray()
    assert np.array_equal(scio_rows(H, np.array([11, 3, 39]), 0.1).theta.toarray(), everything[[11, 3, 39]])
    nothing = scio_rows(H, np.array([], dtype=int), 0.1)
    assert nothing.theta.shape == (0, 40)
    assert len(nothing.violation) == 0


def test_a_feature_that_is_absent_has_no_row_and_disturbs_no_other():
    H = hessian()
    with_gap = np.zeros((41, 41))
    kept = np.delete(np.arange(41), 17)
    with_gap[np.ix_(kept, kept)] = H
    result = scio_rows(with_gap, np.arange(41), 0.1)
    assert result.violation[17] == 1
    assert result.theta[17].nnz == 0
    assert result.rescaled()[17].nnz == 0
    assert np.allclose(result.theta.toarray()[np.ix_(kept, kept)], scio_rows(H, np.arange(40), 0.1).theta.toarray())
    assert clime_rows(with_gap, np.array([17]), 0.1).violation[0] == 1


def test_a_row_that_was_not_brought_to_its_end_says_so():
    H = hessian(correlation=0.9)
    result = scio_rows(H, np.arange(40), 0.01, max_passes=1)
    assert (result.violation > 0.01 * (1 + 1e-3)).any()
    assert np.allclose(result.violation, np.abs(result.theta @ H - np.eye(40)).max(axis=1))


def test_where_no_row_satisfies_the_constraint_the_violation_shows_it():
    """Of two features that are the same, no combination tells one from the other."""
    H = np.ones((2, 2))
    result = scio_rows(H, np.array([0]), 0.1, max_passes=200)
    assert result.violation[0] >= 0.5 - 1e-9  # s and 1 - s cannot both be small
    singular = hessian(n=30)
    result = scio_rows(singular, np.arange(40), 0.02, max_passes=200)
    assert result.violation.min() > 0.02
    assert np.isfinite(result.rescaled().data).all()
    assert result.rescaled()[np.flatnonzero(result.violation >= 1)].nnz == 0
    assert clime_rows(H, np.array([0]), 0.1).theta.nnz == 0


@pytest.mark.parametrize("c", [0.0, -0.1, 1.0, 3.0, np.nan])
@pytest.mark.parametrize("make", [scio_rows, clime_rows])
def test_a_constraint_out_of_range_is_refused(make, c):
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        make(hessian(), np.arange(3), c)
