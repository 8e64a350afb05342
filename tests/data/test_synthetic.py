from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.oracles import hull_distance
from tests.problems_at_hand import solve
from widemargin.data import make_nonseparable, make_separable, make_sparse_nonseparable
from widemargin.problems.polytope import HardMargin
from widemargin.solvers.active_set import ActiveSet


@pytest.mark.parametrize(("n", "d"), [(4, 2), (30, 2), (40, 5), (60, 16)])
@pytest.mark.parametrize("ratio", [0.02, 0.1, 0.7])
def test_the_known_margin_is_the_exact_one(n, d, ratio, seed):
    X, y, margin = make_separable(n, d, ratio=ratio, random_state=seed)
    assert margin == pytest.approx(2 * ratio)
    assert hull_distance(X, y).distance == pytest.approx(margin, rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(2000, 8), (1000, 100)])
def test_the_known_margin_of_larger_sets(n, d, seed):
    X, y, margin = make_separable(n, d, random_state=seed)
    result = solve(ActiveSet(), HardMargin(), X, y, tol=1e-9)[0]
    assert result.certificate.primal == pytest.approx(margin, rel=1e-9)


@pytest.mark.parametrize("n_planted", [1, 3, 100])
def test_any_number_of_planted_rows_keeps_the_margin(n_planted, seed):
    X, y, margin = make_separable(40, 5, n_planted=n_planted, random_state=seed)
    assert hull_distance(X, y).distance == pytest.approx(margin, rel=1e-9)


def test_classes_are_of_equal_size_and_in_random_order(seed):
    _, y, _ = make_separable(101, 4, random_state=seed)
    assert set(y) == {-1.0, 1.0}
    assert (y > 0).sum() == 50
    assert 10 < np.abs(np.diff(y)).astype(bool).sum() < 90


def make_any(kind, n, d, seed):
    if kind == "separable":
        return make_separable(n, d, random_state=seed)[:2]
    if kind == "nonseparable":
        return make_nonseparable(n, d, random_state=seed)
    return make_sparse_nonseparable(n, d, density=0.3, random_state=seed)


@pytest.mark.parametrize("kind", ["separable", "nonseparable", "sparse"])
@pytest.mark.parametrize("d", [2, 3, 20])
def test_rows_lie_in_the_unit_ball(kind, d, seed):
    X, _ = make_any(kind, 300, d, seed)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else (X**2).sum(axis=1))
    assert norms.max() <= 1 + 1e-12
    assert norms.max() > 0.5


@pytest.mark.parametrize("kind", ["separable", "nonseparable", "sparse"])
def test_the_seed_decides_everything(kind):
    (X, y), (again, y_again), (other, _) = (make_any(kind, 50, 6, seed) for seed in (0, 0, 1))
    dense = [matrix.toarray() if sp.issparse(matrix) else matrix for matrix in (X, again, other)]
    np.testing.assert_array_equal(dense[0], dense[1])
    np.testing.assert_array_equal(y, y_again)
    assert not np.array_equal(dense[0], dense[2])


@pytest.mark.parametrize("ratio", [0.05, 0.3])
def test_labels_are_noise_near_the_hyperplane_only(ratio, seed):
    """A hyperplane through the centre exists that errs only on rows nearer than ``ratio``: the one of the recipe.

    It is found by least squares on the labels of the far rows, and tells all far rows apart.
    """
    X, y = make_nonseparable(2000, 3, ratio=ratio, random_state=seed)
    # The first draws of the recipe are the normal of H and the heights.
    normal = np.random.default_rng(seed).normal(size=(1, 3))[0]
    heights = X @ (normal / np.linalg.norm(normal))
    far = np.abs(heights) >= ratio
    assert np.array_equal(np.sign(heights[far]), y[far])
    wrong = np.sign(heights[~far]) != y[~far]
    assert 0.3 < wrong.mean() < 0.7  # tosses of a coin, at least 60 of them
    assert far.sum() > 1000


def test_nonseparable_data_are_not_separable():
    X, y = make_nonseparable(200, 3, ratio=0.3, random_state=0)
    assert hull_distance(X, y).distance == 0.0


@pytest.mark.parametrize("density", [0.05, 0.25, 1.0])
def test_sparse_rows_have_the_density_that_was_asked_for(density, seed):
    X, y = make_sparse_nonseparable(100, 40, density=density, random_state=seed)
    assert X.format == "csr"
    assert X.has_canonical_format
    assert set(np.diff(X.indptr)) == {max(1, round(density * 40))}
    assert X.nnz == pytest.approx(density * X.shape[0] * X.shape[1])
    assert y.shape == (100,)


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, np.nan])
def test_a_ratio_outside_of_its_range_is_named(ratio):
    for make in (make_separable, make_nonseparable, make_sparse_nonseparable):
        with pytest.raises(ValueError, match=r"ratio=.*\(0, 1\)"):
            make(20, 4, ratio=ratio)


@pytest.mark.parametrize("density", [0.0, 1.1, -1.0, np.nan])
def test_a_density_outside_of_its_range_is_named(density):
    with pytest.raises(ValueError, match=r"density=.*\(0, 1\]"):
        make_sparse_nonseparable(20, 4, density=density)


@pytest.mark.parametrize(("n", "d"), [(3, 5), (20, 1)])
def test_sizes_too_small_are_named(n, d):
    with pytest.raises(ValueError, match=f"{n} rows of {d} features"):
        make_separable(n, d)
