"""What tests share: seeds, number types, storage, numbers of ranks, real data."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

STORAGES = {
    "dense": np.ascontiguousarray,
    "csr32": lambda X: _csr(X, np.int32),
    "csr64": lambda X: _csr(X, np.int64),
}


def _csr(X, index_dtype):
    matrix = sp.csr_matrix(X)
    # Set afterwards: the constructor narrows indices whenever they fit.
    matrix.indices, matrix.indptr = matrix.indices.astype(index_dtype), matrix.indptr.astype(index_dtype)
    return matrix


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard():
    """What was started in the background of a shell is deaf to it, and so are its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=[0, 1, 2], ids=lambda seed: f"seed{seed}")
def seed(request):
    return request.param


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture(params=list(STORAGES))
def storage(request):
    """Turns a dense array into the storage under test."""
    return STORAGES[request.param]


@pytest.fixture(params=[1, 2, 3, 7], ids=lambda k: f"ranks{k}")
def n_ranks(request):
    return request.param


@pytest.fixture
def real(monkeypatch):
    """Loads a real data set by name; skips where there is no folder of them."""
    if not os.environ.get("WIDEMARGIN_DATA"):
        if not SHARED_DATA.is_dir():
            pytest.skip(f"real data sets: WIDEMARGIN_DATA is not set and {SHARED_DATA} does not exist")
        monkeypatch.setenv("WIDEMARGIN_DATA", str(SHARED_DATA))
    from widemargin.data import fetch

    return fetch
