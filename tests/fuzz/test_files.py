"""Files of rows and checkpoints, damaged and invented: they are read whole, or refused in words."""

from __future__ import annotations

import gzip
import hashlib
import io

import numpy as np
import pytest
import scipy.sparse as sp

from tests.fuzz.mutants import attempts, try_all
from widemargin import checkpoint
from widemargin.data.libsvm_text import BLOCK_BYTES
from widemargin.data.rows import read_rows

SOME = pytest.mark.parametrize("n", [300, pytest.param(10_000, marks=pytest.mark.long)])
LIBSVM = b"+1 1:0.5 3:-2e-3 7:1\n-1 2:1.25\n\n# a remark\n1 1:3 # another\n-1\n"
CSV = b"left,right,kind\n1.5,-2,yes\n0,1e-3,no\n3,4,yes\n"
PLAIN_CSV = b"1.5;-2;1\n0;.25;-1\n\n3;4;1\n"


def _npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


X = np.array([[1.0, 0.0, 2.5], [0.0, -3.0, 0.0]])
SPARSE = sp.csr_matrix(X)
DENSE_ARRAYS = _npz(X=X, y=np.array([0, 1]))
SPARSE_ARRAYS = _npz(
    data=SPARSE.data, indices=SPARSE.indices, indptr=SPARSE.indptr, shape=np.array(SPARSE.shape), y=np.array([0, 1])
)
SETS = {
    "rows.svm": [LIBSVM],
    "rows.csv": [CSV, PLAIN_CSV],
    "rows.npz": [DENSE_ARRAYS, SPARSE_ARRAYS],
    "rows.svm.gz": [gzip.compress(LIBSVM)],
}


def is_whole(rows):
    """As many labels as rows, finite numbers, and for CSR indices within the columns."""
    if rows.X.ndim != 2 or rows.X.shape[0] != len(rows.y) or rows.X.shape[0] == 0:
        return False
    if not sp.issparse(rows.X):
        return bool(np.isfinite(rows.X).all())
    rows.X.check_format(full_check=True)
    return bool(np.isfinite(rows.X.data).all())


@SOME
@pytest.mark.parametrize("name", list(SETS))
def test_rows_of_a_file_are_whole_or_refused(name, n, tmp_path):
    path = tmp_path / name

    def parse(data):
        path.write_bytes(data)
        return read_rows(path)

    for valid in SETS[name]:
        assert is_whole(parse(valid))
    spare = 4 * BLOCK_BYTES  # text is read in blocks of that size, and archives have tables of their own
    accepted, refused = try_all(parse, is_whole, (ValueError,), attempts(SETS[name], n, seed=1), spare=spare)
    assert refused > n // 4
    assert accepted > 0 or name.endswith("gz")  # a checksum sees nearly everything


def _state():
    rng = np.random.default_rng(0)
    data = rng.integers(2**63, size=3).astype(np.uint64)
    return checkpoint.FitState("a task", data, rng.normal(size=(3, 4)), np.array([1, 2, 3]))


def is_state(state):
    is_matrix = state.directions.ndim == 2 and state.sweeps.shape == state.directions.shape[:1]
    return isinstance(state.task, str) and is_matrix and [each.dtype.kind for each in state[1:]] == ["u", "f", "i"]


@SOME
@pytest.mark.parametrize("is_checksum_right", [False, True], ids=["damaged", "forged"])
def test_a_checkpoint_is_whole_or_refused(is_checksum_right, n, tmp_path):
    checkpoint.save(tmp_path, _state())
    path = next(tmp_path.iterdir())
    valid = path.read_bytes()
    begin = len(checkpoint._MAGIC) + checkpoint._DIGEST

    def parse(data):
        if is_checksum_right:  # by someone who knows the format
            data = checkpoint._MAGIC + hashlib.sha256(data).digest() + data
        path.write_bytes(data)
        return checkpoint.load(tmp_path)

    source = [valid[begin:] if is_checksum_right else valid]
    assert is_state(parse(source[0]))
    try_all(parse, is_state, (ValueError,), attempts(source, n, seed=2), spare=1 << 22)
