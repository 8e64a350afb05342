"""LIBSVM text: the same rows as scikit-learn reads, in blocks of any size, and every mistake with its line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from widemargin.data import libsvm_text
from widemargin.data.layout import Layout
from widemargin.data.rows import joined, read_rows


def some_text(seed, n_rows=60, n_features=30):
    """Rows with numbers of all shapes, comments, blanks, empty rows."""
    rng = np.random.default_rng(seed)
    shapes = ["{:.3g}", "{:.17g}", "{:.6e}", "{:.0f}", "{:+.12f}", "{:.25g}", "{:E}"]
    lines = []
    for _ in range(n_rows):
        columns = np.flatnonzero(rng.random(n_features) < 0.3) + 1
        numbers = (
            shapes[rng.integers(len(shapes))].format(x)
            for x in rng.normal(size=n_features) * 10.0 ** rng.integers(-30, 30)
        )
        entries = [f"{column}:{number}" for column, number in zip(columns, numbers, strict=False)]
        lines.append(" ".join([rng.choice(["+1", "-1", "2.5"]), *entries]) + rng.choice(["", " ", "\r", " # a remark"]))
        if rng.random() < 0.1:
            lines.append(rng.choice(["", "   ", "# only a remark"]))
    return "\n".join(lines).encode() + rng.choice([b"", b"\n"])


def read(text, **layout):
    return joined(libsvm_text.iterate_libsvm(io.BytesIO(text), Layout(**layout)))


@pytest.mark.parametrize("block", [1, 7, 100, 1 << 20])
def test_rows_are_those_of_scikit_learn_in_blocks_of_any_size(monkeypatch, seed, dtype, block):
    text = some_text(seed)
    monkeypatch.setattr(libsvm_text, "BLOCK_BYTES", block)
    found = read(text, dtype=np.dtype(dtype))
    X, y = load_svmlight_file(io.BytesIO(text), dtype=np.float64, zero_based=False)
    assert found.X.dtype == dtype
    assert found.X.indices.dtype == found.X.indptr.dtype == np.int32
    assert found.X.shape == X.shape
    np.testing.assert_array_equal(found.X.indices, X.indices)
    np.testing.assert_array_equal(found.X.indptr, X.indptr)
    np.testing.assert_array_equal(found.X.data, X.data.astype(dtype))
    np.testing.assert_array_equal(found.y, y)


def test_text_that_counts_from_zero():
    assert read(b"1 0:5 3:1\n", zero_based=True).X.toarray().tolist() == [[5, 0, 0, 1]]
    assert read(b"1 1:5 3:1\n", n_features=6).X.shape == (1, 6)
    assert read(b"3 qid:7 1:5\n").X.toarray().tolist() == [[5]]


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("what is this", "line 3: the label 'what' is not a number."),
        ("1,2,3", "line 3: the label '1,2,3' is not a number; if this is CSV, rename it to .csv."),
        ("nan 1:2", "line 3: the label 'nan' is not a number."),
        ("1e999 1:2", "line 3: the label '1e999' is not a number."),
        ("1 2:1 x", "line 3: 'x' is not index:value."),
        ("1 2", "line 3: '2' is not index:value."),
        ("1 2:", "line 3: the value of '2:' is not a finite number."),
        ("1 2:1x", "line 3: the value of '2:1x' is not a finite number."),
        ("1 2:1e", "line 3: the value of '2:1e' is not a finite number."),
        ("1 2:nan", "line 3: the value of '2:nan' is not a finite number."),
        ("1 2:-inf", "line 3: the value of '2:-inf' is not a finite number."),
        ("1 2:1e400", "line 3: the value of '2:1e400' is not a finite number."),
        ("1 0:1", "line 3: the index of '0:1' is 0, but LIBSVM text counts features from 1"),
        ("1 -1:1", "line 3: '-1:1' is not index:value."),
        ("1 3:1 3:2", "line 3: the index of '3:2' is not larger than the one before it."),
        ("1 3:1 2:2", "line 3: the index of '2:2' is not larger than the one before it."),
        ("1 99999999999999999999:1", "line 3: the index of '99999999999999999999:1' is larger than 2147483646."),
        ("\x0b", "line 3: the label '\\x0b' is not a number."),
        ("\x00\x01", "line 3: the label '\\x00\\x01' is not a number."),
    ],
)
def test_a_mistake_is_said_with_its_line(monkeypatch, block, line, sentence):
    monkeypatch.setattr(libsvm_text, "BLOCK_BYTES", block)
    with pytest.raises(ValueError) as raised:
        read(f"1 1:1\n# fine\n{line}\n1 1:1\n".encode())
    assert sentence in str(raised.value)


def test_an_exponent_that_many_digits_outweigh():
    small, large = "0." + 10_001 * "0" + "1e10002", "1" + 10_010 * "0" + "e-10010"
    assert read(f"1 1:{small} 2:{large} 3:1e-99999 4:0e99999\n".encode()).X.toarray().tolist() == [[1, 1, 0, 0]]


def test_a_float32_has_a_smaller_range():
    assert read(b"1 1:1e39\n").X.data.tolist() == [1e39]
    with pytest.raises(ValueError, match="'1:1e39' is not a finite number"):
        read(b"1 1:1e39\n", dtype=np.dtype(np.float32))


def test_more_features_than_a_model_has():
    with pytest.raises(ValueError, match="has at least 9 features, but 4 are expected"):
        read(b"1 9:1\n", n_features=4)


MEASURE = """
import json, resource, sys
from pathlib import Path
import numpy as np
from widemargin.data import libsvm_text
from widemargin.data.layout import Layout
from widemargin.data.rows import read_rows
libsvm_text.BLOCK_BYTES = 1 << 20
layout = Layout(dtype=np.dtype(np.float32))
read_rows(Path(sys.argv[2]), layout)  # compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
X = read_rows(Path(sys.argv[1]), layout).X
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"grown": 1024 * (peak - before), "rows": X.data.nbytes + X.indices.nbytes + X.indptr.nbytes}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is in other units elsewhere")
def test_a_large_file_takes_the_memory_of_its_rows_alone(tmp_path):
    """What is held while reading is the compact rows and one block: no whole text, no second copy."""
    rng = np.random.default_rng(0)
    entries = " ".join(f"{10_000 + 7 * k}:{x:.16g}" for k, x in enumerate(rng.random(60)))
    (tmp_path / "few.svm").write_text(f"1 {entries}\n")
    (tmp_path / "large.svm").write_text(f"1 {entries}\n-1 {entries}\n" * 20_000)
    size = (tmp_path / "large.svm").stat().st_size
    assert size > 50_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "large.svm"), str(tmp_path / "few.svm")],
        capture_output=True, text=True, check=True, timeout=120, env=os.environ,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["rows"] < 0.36 * size
    assert found["grown"] < 1.15 * found["rows"] + 8e6 < 0.6 * size


def test_the_whole_file_and_its_errors_name_it(tmp_path):
    (tmp_path / "rows.txt").write_text("1 1:2\n-1 x\n")
    with pytest.raises(ValueError, match=r"rows.txt is not understood: line 2: 'x' is not index:value\."):
        read_rows(tmp_path / "rows.txt")
