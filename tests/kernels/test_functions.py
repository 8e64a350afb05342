"""What a kernel is by name: its gamma, and what is known of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from tests.problems_at_hand import on_ranks, overlapping, part_of
from widemargin.data.shard import Shard
from widemargin.kernels.functions import NAMES, Kernel


def shard_of(X, weight=None):
    return Shard(X, np.zeros(X.shape[0]), np.ones(X.shape[0]) if weight is None else weight)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_gamma_by_name_is_that_of_scikit_learn(gamma, offset, storage, dtype):
    X, y = overlapping(0, d=6)
    X = np.where(X > 1, 0.0, X + offset).astype(dtype)
    theirs = SVC(gamma=gamma).fit(X, y)._gamma
    assert Kernel("rbf", gamma).resolved(shard_of(storage(X))).gamma == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_scale_is_the_variance_also_far_from_the_origin(offset):
    """Integers, so that the rows themselves move without rounding."""
    X = np.random.default_rng(0).integers(-3, 4, size=(40, 3)) + offset
    assert Kernel("rbf").resolved(shard_of(X)).gamma == pytest.approx(1 / (3 * X.var()), rel=1e-6)


def test_scale_counts_a_weight_as_copies(seed):
    X, _ = overlapping(seed)
    copies = np.random.default_rng(seed).integers(0, 4, len(X))
    weighted = Kernel("rbf").resolved(shard_of(X, copies.astype(float)))
    assert weighted.gamma == pytest.approx(Kernel("rbf").resolved(shard_of(np.repeat(X, copies, axis=0))).gamma)


def test_scale_is_that_of_the_rows_of_all_ranks(n_ranks):
    X, y = overlapping(1)

    def resolve(comm):
        return Kernel("rbf").resolved(part_of(X, y, np.ones(len(y)), comm.rank, n_ranks), comm.allreduce).gamma

    np.testing.assert_allclose(on_ranks(n_ranks, resolve), 1 / (4 * X.var()))


def test_entries_that_are_all_equal_leave_scale_at_one():
    assert Kernel("rbf").resolved(shard_of(np.full((5, 2), 3.0))).gamma == 1.0
    assert Kernel("rbf").resolved(shard_of(sp.csr_matrix((5, 2)))).gamma == 1.0


def test_a_number_stays_and_kernels_without_gamma_are_left_alone():
    X = np.random.default_rng(0).normal(size=(5, 2))
    assert Kernel("poly", 0.3).resolved(shard_of(X)).gamma == 0.3
    for name in ("linear", "cosine", "precomputed"):
        kernel = Kernel(name)
        assert kernel.resolved(shard_of(X)) is kernel


def test_an_inner_product_is_claimed_of_all_but_sigmoid_and_shifted_powers():
    assert [name for name in NAMES if not Kernel(name).is_positive] == ["sigmoid"]
    assert Kernel("poly", coef0=0.5).is_positive
    assert not Kernel("poly", coef0=-0.5).is_positive
    assert Kernel("callable", function=np.dot).is_positive  # by the word of the user


def test_kernels_of_differences_do_not_mind_a_shift():
    assert [name for name in NAMES if Kernel(name).is_shift_invariant] == ["rbf", "laplacian"]
