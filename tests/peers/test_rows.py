"""Sums over the rows of a peer against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.peers.networks import overlapping_rows
from widemargin.peers.rows import PeerRows

X, CODES = overlapping_rows(25, n_classes=3)
WEIGHT = np.random.default_rng(1).integers(0, 4, size=25).astype(float)


@pytest.fixture(params=[np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def store(request):
    return request.param


def test_sums(store):
    rows, rng = PeerRows.of(store(X), CODES, WEIGHT, 3, has_constant=False), np.random.default_rng(0)
    models, dual = rng.normal(size=(2, 3, 6)), rng.random((3, 25))
    for m in range(2):
        for k in range(3):
            y = np.where(k == CODES, 1.0, -1.0)
            hinge = WEIGHT @ np.maximum(0, 1 - y * (X @ models[m, k]))
            assert rows.hinge_sums(models)[0][m, k] == pytest.approx(hinge)
            np.testing.assert_allclose(rows.combine(dual)[k], (dual[k] * y) @ X)
    moment = X.T @ np.diag(WEIGHT) @ X
    np.testing.assert_allclose(rows.moment(is_full=True), moment)
    np.testing.assert_allclose(rows.moment(is_full=False), np.diag(moment))
    assert rows.total == WEIGHT.sum()


def test_a_constant_feature_and_two_classes(store):
    rows = PeerRows.of(store(X), (CODES > 0).astype(int), WEIGHT, 2, has_constant=True)
    dense = rows.X.toarray() if sp.issparse(rows.X) else rows.X
    np.testing.assert_array_equal(dense, np.hstack([X, np.ones((25, 1))]))
    np.testing.assert_array_equal(rows.signs, np.where(CODES > 0, 1.0, -1.0)[None])


def test_rows_that_join(store):
    one, other = (
        PeerRows.of(store(X[s]), CODES[s], WEIGHT[s], 3, has_constant=False) for s in (slice(9), slice(9, 25))
    )
    both = one.joined(other)
    np.testing.assert_array_equal(both.signs, PeerRows.of(X, CODES, WEIGHT, 3, has_constant=False).signs)
    np.testing.assert_array_equal(both.weight, WEIGHT)
    assert both.n_rows == 25
    wrong = np.asarray if sp.issparse(one.X) else sp.csr_matrix
    with pytest.raises(ValueError, match="sparse if"):
        one.joined(PeerRows.of(wrong(X), CODES, WEIGHT, 3, has_constant=False))
