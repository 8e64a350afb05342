"""Kernel primitives give the same bits on any number of threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import cores
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points

KERNELS = {
    "linear": Kernel("linear"),
    "rbf": Kernel("rbf", 0.01),
    "poly": Kernel("poly", 0.02, 3, 0.5),
    "sigmoid": Kernel("sigmoid", 0.02, coef0=-0.5),
    "laplacian": Kernel("laplacian", 0.01),
    "cosine": Kernel("cosine"),
}
N_ROWS, N_POINTS, N_FEATURES = 4397, 601, 37  # enough rows for float32, multiples of nothing


@pytest.fixture(autouse=True)
def _eight_threads(monkeypatch):
    """The suite may run with OMP_NUM_THREADS=1."""
    monkeypatch.setattr(cores, "available_threads", lambda: 8)


def some_rows(stored, dtype, offset=0.0):
    rng = np.random.default_rng(0)
    share = {"dense": 1.0, "zeros": 0.2, "csr": 0.2, "binary": 0.3}[stored]
    X = np.where(rng.random((N_ROWS, N_FEATURES)) < share, rng.normal(size=(N_ROWS, N_FEATURES)) + offset, 0.0)
    X = ((X != 0) if stored == "binary" else X).astype(dtype)
    return sp.csr_matrix(X) if stored == "csr" else X


def everything(kernel, X):
    """What all primitives give, computed anew."""
    rng = np.random.default_rng(1)
    with cores.one_blas_thread():
        rows = RowsOnCPU(kernel, X)
        points = rows.points(np.sort(rng.permutation(N_ROWS)[:N_POINTS]))
        part = rows.only(np.sort(rng.permutation(N_ROWS)[: N_ROWS // 3]))
        results = [np.array([rows.longest]), rows.rows(points), rows.block(points), rows.block(points, exact=True)]
        for shape in ((N_POINTS,), (N_POINTS, 2), (N_POINTS, 21)):
            coef = rng.normal(size=shape)
            results += [each.times(points, coef, exact=exact) for each in (rows, part) for exact in (False, True)]
        results.append(rows.working_block(points))
        cache = rows.cache(1 << 22)
        cache.keep(points[:5])
        return [*results, cache.times(points[:9], rng.normal(size=9)), rows.score_error(1.0, 9, np.zeros(N_ROWS))]


def assert_same_bits(kernel, X):
    with cores.at_most(1):
        alone = everything(kernel, X)
    for n in (2, 3, 8):
        with cores.at_most(n):
            for ours, theirs in zip(everything(kernel, X), alone, strict=True):
                assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", ["dense", "zeros", "csr", "binary"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_bits_do_not_depend_on_the_number_of_threads(name, stored, dtype):
    assert_same_bits(KERNELS[name], some_rows(stored, dtype))


@pytest.mark.parametrize("offset", [100.0, 1e9], ids=["centred", "by differences"])
def test_bits_of_rows_far_from_the_origin_do_not_depend_on_the_number_of_threads(offset):
    X = some_rows("dense", np.float64, offset)
    X[:3] *= -1.0 if offset > 1e6 else 1.0  # no centre is near all rows
    rows = RowsOnCPU(KERNELS["rbf"], X)
    assert rows.is_by_differences == (offset > 1e6)
    assert_same_bits(KERNELS["rbf"], X)


@pytest.mark.parametrize("stored", ["dense", "csr"])
def test_several_threads_share_a_pass(stored, monkeypatch):
    """The pieces of the longest loop wait for each other, three at a time."""
    rows, each, seen = RowsOnCPU(KERNELS["rbf"], some_rows(stored, np.float32)), cores.each, set()
    points, meet = rows.points(np.arange(N_POINTS)), threading.Barrier(3)

    def watched(do, pieces, work, may_end=False):
        def met(piece):
            seen.add(threading.get_ident())
            meet.wait(60)
            do(piece)

        is_longest = len(pieces) >= 48
        each(met if is_longest else do, pieces[: len(pieces) // 3 * 3] if is_longest else pieces, work)

    monkeypatch.setattr(cores, "each", watched)
    with cores.at_most(3):
        rows.times(points, np.ones(N_POINTS))
    assert len(seen) == 3


@pytest.mark.parametrize("stored", ["dense", "zeros", "binary"])
@pytest.mark.parametrize("name", ["rbf", "cosine", "laplacian"])
def test_rows_to_be_predicted_have_the_same_bits_on_any_number_of_threads_and_when_they_are_read_again(name, stored):
    X, coef = some_rows(stored, np.float32), np.random.default_rng(2).normal(size=(N_POINTS, 2))
    found = []
    for n in (1, 3, 8):
        with cores.at_most(n), cores.one_blas_thread():
            rows, points = RowsOnCPU(KERNELS[name], X, points=X[:N_POINTS]), Points(X[:N_POINTS], np.arange(N_POINTS))
            found += [rows.times(points, coef) for _ in range(2)]
    expected = RowsOnCPU(KERNELS[name], X).times(points, coef)
    for scores in found:
        assert scores.tobytes() == found[0].tobytes()
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-3)
