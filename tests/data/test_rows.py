"""Tables and arrays from files: what is taken for what, every mistake with its place, parts for several readers."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import sys
import threading
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.cores import at_most
from widemargin.data import libsvm_text, tables
from widemargin.data import rows as rows_of_files
from widemargin.data.layout import Layout
from widemargin.data.rows import Growing, iterate_rows, joined, read_rows

pa = pytest.importorskip("pyarrow", reason="needs the tables extra")

LINES = ["1,2,cat", "3,4.5,dog", "-5,6e1,cat"]
X = np.array([[1, 2], [3, 4.5], [-5, 60]])
Y = ["cat", "dog", "cat"]


@pytest.fixture
def write(tmp_path):
    def write(name, *lines, **arrays):
        path = tmp_path / name
        if arrays:
            np.savez(path, **arrays)
        else:
            path.write_bytes("\n".join(lines).encode())
        return path

    return write


@pytest.mark.parametrize(
    ("lines", "label", "names"),
    [
        (LINES, "-1", None),
        (LINES, "3", None),
        (["a,b,kind", *LINES], "-1", ["a", "b"]),
        (["a,b,kind", *LINES], "kind", ["a", "b"]),
        (["\ufeffa, b ,kind", "", *LINES, ""], "3", ["a", "b"]),
        (["cat,1,2", "dog,3,4.5", "cat,-5,60"], "1", None),
        ([line.replace(",", ";") for line in LINES], "-1", None),
        ([line.replace(",", "\t") for line in ["a,b,kind", *LINES]], "kind", ["a", "b"]),
        (["a,kind,b", '1,"cat",2', "3,dog,4.5", "-5,cat,60"], "2", ["a", "b"]),
        (["0,1,kind", *LINES], "kind", ["0", "1"]),
    ],
)
def test_tables_of_text(monkeypatch, write, lines, label, names):
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 24)
    found = read_rows(write("rows.csv", *lines), Layout(label=label))
    np.testing.assert_array_equal(found.X, X)
    assert found.y.tolist() == Y
    assert found.names == names


def test_names_that_are_numbers(write):
    found = read_rows(write("rows.csv", "0,1,y", "1,2,0", "3,4,1"))
    assert (found.names, found.X.tolist(), found.y.tolist()) == (["0", "1"], [[1, 2], [3, 4]], [0, 1])
    bare = Layout(n_features=2, names=["0", "1"], needs_labels=False)
    assert read_rows(write("bare.csv", "1,0", "1,2"), bare).X.tolist() == [[2, 1]]


@pytest.mark.parametrize("line", ["x,2,0", "2,x,0", "x,,0", "x,2,cat"])
def test_a_first_line_that_may_be_names_or_a_row(write, line):
    with pytest.raises(ValueError, match=r"its first line has text, 'x', and numbers, '[02]': it may be a header"):
        read_rows(write("rows.csv", line, f"1,2,{line.split(',')[-1]}"))
    bare = Layout(n_features=3, needs_labels=False)
    with pytest.raises(ValueError, match="it may be a header or a row"):
        read_rows(write("bare.csv", "1,2,x", "1,2,3"), bare)


def test_labels_that_are_all_numbers_are_numbers(write):
    assert read_rows(write("rows.csv", "1,2,1", "1,2,0.5")).y.tolist() == [1.0, 0.5]
    assert read_rows(write("rows.csv", "1,2,1", "1,2,b")).y.tolist() == ["1", "b"]
    assert read_rows(write("rows.csv", "1,2,nan", "1,2,1")).y.tolist() == ["nan", "1"]


@pytest.mark.parametrize(
    ("lines", "label", "sentence"),
    [
        (["a,b,c", "1,x,1"], "-1", "line 2, column 'b': 'x' is not a number."),
        (["1,2,1", "1,x,1"], "-1", "line 2, column 2: 'x' is not a number."),
        (["", " ", "1,2,1", "1,x,1"], "-1", "line 4, column 2: 'x' is not a number."),
        (["", "1,x,1", "1,2,1"], "kind", "its first line has text, 'x', and numbers"),
        (["", "?,2,0", "1,2,1"], "-1", "line 2, column 1: '?' is not a number."),
        (["?,cat", "1,dog"], "-1", "line 1, column 1: '?' is not a number."),
        (["", "1,2,1", '1,2,"2', '"', "1,2"], "-1", "line 5 has 2 columns, the first line has 3."),
        (["1,2,1", "1,,1"], "-1", "line 2, column 2: a value is missing or not finite."),
        (["1,2,1", "1,inf,1"], "-1", "line 2, column 2: a value is missing or not finite."),
        (["1,2,1", "1,2,"], "-1", "line 2 has no label."),
        (["1,2,1", "1,2"], "-1", "line 2 has 2 columns, the first line has 3."),
        (["1,2,1"], "kind", "there is no label column 'kind'; the file has no header."),
        (["a,b,c", "1,2,1"], "kind", "there is no label column 'kind'; the columns are 'a', 'b', 'c'."),
        (["1,2,1"], "4", "there is no label column 4; columns are 1 to 3, or -1 for the last."),
        (["1,2,1"], "0", "there is no label column 0"),
        (["a,a,c", "1,2,1"], "-1", "its column 'a' occurs more than once."),
        (["1", "2"], "-1", "it has a label column and no other."),
        (["a,b\x00,c", '1,2,"'], "-1", "line"),
        ([], "-1", "is empty"),
        (["a,b,c"], "-1", "is empty"),
    ],
)
def test_mistakes_in_tables_of_text(write, lines, label, sentence):
    path = write("rows.csv", *lines)
    with pytest.raises(ValueError) as raised:
        read_rows(path, Layout(label=label))
    assert sentence in str(raised.value)
    assert str(path) in str(raised.value)


def test_bytes_that_are_no_text(write, tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(ValueError, match=r"rows.csv is not understood: it is not UTF-8 text .*0xff"):
        read_rows(tmp_path / "rows.csv")


@pytest.mark.parametrize("cell", ["1_0", "\u0663", "0x10", "1d5", "NA", "true", "-", "1,5", "2\n"])
def test_cells_that_are_not_numbers(monkeypatch, write, cell):
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 64)
    lines = [f"{k};0;a" for k in range(40)]
    path = write("rows.csv", *lines, f'0;"{cell}";b', *lines)
    line = 42 if "\n" in cell else 41
    with pytest.raises(ValueError, match=re.escape(f"line {line}, column 2: {cell!r} is not a number.")):
        read_rows(path)


def test_numbers_are_the_nearest_floats(write):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, size=200)
    texts = [repr(float(x)) for x in numbers] + [f" {x:+.25e}\t" for x in numbers] + ["4.9e-324", ".5", "5.", "+1E5"]
    found = read_rows(write("rows.csv", *(f"{text},1" for text in texts)))
    assert found.X[:, 0].tolist() == [float(text) for text in texts]
    with pytest.raises(ValueError, match="line 2, column 1: a value is missing or not finite"):
        read_rows(write("rows.csv", "1,1", "1e300,1"), Layout(dtype=np.float32))


def test_labels_and_names_with_line_breaks_at_the_ends_of_blocks(monkeypatch, write):
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 50)
    path = write("rows.csv", '"a\nb",kind', *(f'{k},"first\nsecond {k}"' for k in range(100)))
    found = read_rows(path)
    assert found.names == ["a\nb"]
    assert found.y.tolist() == [f"first\nsecond {k}" for k in range(100)]


def test_rows_that_are_longer_than_a_small_block(write):
    wide = np.random.default_rng(0).normal(size=(3, 70_000))
    assert wide.nbytes < tables._block_bytes(70_000)
    found = read_rows(write("rows.csv", *(",".join(map(repr, row.tolist())) + ",x" for row in wide)))
    np.testing.assert_array_equal(found.X, wide)


def test_compressed_tables_and_pipes(write, tmp_path):
    content = "\n".join(LINES).encode()
    for name, compress in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        (tmp_path / f"rows.csv{name}").write_bytes(compress(content))
        np.testing.assert_array_equal(read_rows(tmp_path / f"rows.csv{name}").X, X)
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    np.testing.assert_array_equal(read_rows(pipe).X, X)
    writer.join()


# -- inputs without end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
@pytest.mark.parametrize("name", ["rows", "rows.csv", "rows.npz", "rows.parquet", "rows.svm.gz", "rows.csv.xz"])
def test_devices_are_refused_at_once(tmp_path, device, name):
    (tmp_path / name).symlink_to(device)
    with pytest.raises(ValueError, match=r"is not understood: it is a device, and its content may never end"):
        read_rows(tmp_path / name)
    with pytest.raises(ValueError, match="it is a device"):
        next(iterate_rows(tmp_path / name, Layout(n_features=3)))


def pour(pipe, block):
    """Write a block again and again, until nobody reads."""

    def work():
        with suppress(BrokenPipeError), pipe.open("wb", buffering=0) as file:
            while True:
                file.write(block)

    writer = threading.Thread(target=work, daemon=True)
    writer.start()
    return writer


@pytest.mark.parametrize("name", ["pipe", "pipe.csv"])
def test_a_pipe_without_end_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(rows_of_files, "_MAX_PIPE_BYTES", 3 << 20)
    pipe = tmp_path / name
    os.mkfifo(pipe)
    writer = pour(pipe, b"1 1:1\n" * 1000 if name == "pipe" else b"1,2,cat\n" * 1000)
    with pytest.raises(ValueError, match=r"GiB came through the pipe, and may never end. Save the rows in a file"):
        read_rows(pipe)
    writer.join(timeout=20)
    assert not writer.is_alive()


@pytest.mark.parametrize("name", ["pipe.npz", "pipe.parquet"])
def test_only_text_comes_through_a_pipe(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="only text can be read from pipes"):
        read_rows(tmp_path / name)


@pytest.mark.parametrize("name", ["rows.svm.gz", "rows.csv.gz", "rows.csv"])
@pytest.mark.parametrize("content", [b"\0", b"7", b'"'], ids=["zeros", "digits", "quotes"])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, name, content):
    for module in (libsvm_text, tables):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 2 << 20)
    text = content * (64 << 20)
    (tmp_path / name).write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    del text
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"line 1 is longer than 2 MiB|a line of over 2 MiB"):
            read_rows(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_line_may_be_as_long_as_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm_text, "BLOCK_BYTES", 100)
    lines = [" ".join(["1", *(f"{k}:{k}" for k in range(1, width))]) for width in (5, 200, 2, 90, 1000)]
    (tmp_path / "rows").write_text("\n".join(lines))
    found = read_rows(tmp_path / "rows")
    assert np.diff(found.X.indptr).tolist() == [4, 199, 1, 89, 999]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_without_pyarrow_the_extra_is_named(write, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"need pyarrow: pip install 'widemargin\[tables\]'"):
        read_rows(write(name, *LINES))


def test_columns_that_a_model_expects(write):
    path = write("rows.csv", "b,kind,a,more", "2,cat,1,0", "4.5,dog,3,0")
    found = read_rows(path, Layout(label="kind", n_features=2, names=["a", "b"]))
    np.testing.assert_array_equal(found.X, X[:2])
    assert found.y.tolist() == Y[:2]
    blind = Layout(n_features=2, names=["a", "kind2"], needs_labels=False)
    with pytest.raises(ValueError, match="has no column 'kind2', which the model was trained with"):
        read_rows(path, blind)
    bare = Layout(n_features=2, needs_labels=False)
    assert read_rows(write("bare.csv", "1,2", "3,4.5"), bare).X.tolist() == X[:2].tolist()
    assert read_rows(write("bare.csv", "1,2,9", "3,4.5,8"), bare).X.tolist() == X[:2].tolist()
    with pytest.raises(ValueError, match="it has 3 features beside the label, but 2 are expected"):
        read_rows(write("bare.csv", "1,2,3,4"), bare)


def test_labels_that_nobody_looks_at_may_be_missing(write, tmp_path):
    blind = Layout(n_features=2, needs_labels=False)
    named = Layout(n_features=2, needs_labels=False, names=["a", "b"])
    for path, layout in (
        (write("rows.csv", "1,2,", "3,4.5,"), blind),
        (write("named.csv", "a,b,kind", "1,2,", "3,4.5,"), named),
        (write("rows.npz", X=X[:2], y=[np.nan, 1.0]), blind),
    ):
        found = read_rows(path, layout)
        np.testing.assert_array_equal(found.X, X[:2])
        assert found.y is None
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1, 3], "b": [2, 4.5], "kind": [None, "cat"]}), tmp_path / "rows.parquet")
    for layout in (blind, named):
        np.testing.assert_array_equal(read_rows(tmp_path / "rows.parquet", layout).X, X[:2])


def test_parquet(tmp_path):
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1, 3, -5], "kind": Y, "b": X[:, 1]}), path)
    found = read_rows(path, Layout(label="kind"))
    np.testing.assert_array_equal(found.X, X)
    assert (found.y.tolist(), found.names) == (Y, ["a", "b"])
    for table, sentence in (
        ({"a": ["x", "y"], "kind": [0, 1]}, "column 'a' holds string, not numbers"),
        ({"a": [1.0, None], "kind": [0, 1]}, "row 2, column 'a': a value is missing"),
        ({"a": [1.0, np.inf], "kind": [0, 1]}, "row 2, column 'a': a value is missing or not finite"),
        ({"a": [1.0, 2.0], "kind": [0, None]}, "row 2 has no label"),
    ):
        pq.write_table(pa.table(table), path)
        with pytest.raises(ValueError, match=sentence):
            read_rows(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match="it is not a parquet file, or it is damaged"):
        read_rows(path)


@pytest.mark.parametrize(
    ("few", "many"),
    [
        (["ab", "b"], ["abc", "b"]),
        ([b"ab", b"b"], [b"abc", b"b"]),
        ([1, 2], [3, 2**63 + 1]),
        ([1, 2], [3, 4]),
        ([0.5, 1.0], [2.0, 1e300]),
        ([True, False], [True, True]),
    ],
    ids=["text", "bytes", "large integers", "integers", "floats", "booleans"],
)
def test_labels_of_a_later_block_of_parquet_keep_all_they_say(tmp_path, few, many):
    import pyarrow.parquet as pq

    labels = few * 35_000 + many  # blocks have 65,536 rows
    kind = pa.uint64() if isinstance(few[0], int) and not isinstance(few[0], bool) else None
    table = pa.table({"a": np.zeros(len(labels)), "kind": pa.array(labels, type=kind)})
    pq.write_table(table, tmp_path / "rows.parquet")
    found = read_rows(tmp_path / "rows.parquet").y.tolist()
    wanted = [each.decode() if isinstance(each, bytes) else each for each in labels]
    assert found == wanted
    assert type(found[0]) is type(wanted[0])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"X": X}, "it has no array 'y', only X"),
        ({"X": X, "y": [1, 2]}, "y have one label for each row"),
        ({"X": X[:, 0], "y": [1, 2, 3]}, "y have one label for each row"),
        ({"X": X.astype(str), "y": [1, 2, 3]}, "not numbers"),
        ({"X": X * np.nan, "y": [1, 2, 3]}, "missing or not finite"),
        ({"X": X, "y": [1, 2, np.nan]}, "row 3 has no label"),
        ({"data": [1.0], "indices": [7], "indptr": [0, 1], "shape": [1, 2], "y": [1]}, "is not understood"),
        ({"data": [1.0], "indices": [0], "indptr": [0, 9], "shape": [1, 2], "y": [1]}, "is not understood"),
        ({"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [-1, 2], "y": [1]}, "is not understood"),
    ],
)
def test_mistakes_in_arrays(write, arrays, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_rows(write("rows.npz", **arrays))


def test_arrays_keep_their_type_and_a_model_may_have_no_labels(write):
    path = write("rows.npz", X=X.astype(np.float32))
    assert read_rows(path, Layout(needs_labels=False)).X.dtype == np.float32
    for dtype in (np.float32, np.float64):
        assert read_rows(path, Layout(needs_labels=False, dtype=dtype, is_dtype_wanted=True)).X.dtype == dtype
    with pytest.raises(ValueError, match="it has 2 features, but 5 are expected"):
        read_rows(path, Layout(needs_labels=False, n_features=5))


@pytest.mark.parametrize("is_followed", [False, True], ids=["alone", "before an archive"])
def test_one_plain_array_is_refused_before_numpy_believes_its_size(write, is_followed):
    path, header = write("rows.npz", X=X, y=np.ones(3)), io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**13, 2)}
    np.lib.format.write_array_header_1_0(header, shape)
    path.write_bytes(header.getvalue() + (path.read_bytes() if is_followed else bytes(100)))
    with pytest.raises(ValueError, match="is not understood: it is not an archive of arrays"):
        read_rows(path)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_several_readers_have_all_rows_between_them(monkeypatch, write, n):
    from widemargin.data import libsvm_text

    monkeypatch.setattr(libsvm_text, "BLOCK_BYTES", 11)
    lines = [f"{k} {1 + k % 4}:{k}" for k in range(1, 23)] + ["23 9:1"]
    path = write("rows.svm", *lines)
    whole = read_rows(path)
    parts = [read_rows(path, part=(k, n)) for k in range(n)]
    assert {part.X.shape[1] for part in parts} == {9}  # only one of them has a row with the ninth
    for k, part in enumerate(parts):
        np.testing.assert_array_equal(part.y, whole.y[k::n])
        assert (whole.X[k::n] != part.X).nnz == 0


@pytest.mark.parametrize(("name", "line"), [("rows.svm.gz", b"1 1:1\n"), ("rows.csv.gz", b"1,1,1\n")])
@pytest.mark.parametrize("n", [1000, 1_000_000])
def test_a_damaged_archive_cannot_be_read(tmp_path, name, line, n):
    (tmp_path / name).write_bytes(gzip.compress(line * n)[:-20])
    with pytest.raises(ValueError, match=f"{name} cannot be read"):
        read_rows(tmp_path / name)


def test_arrays_that_grow():
    growing, rng = Growing(np.int32), np.random.default_rng(0)
    pieces = [rng.integers(0, 9, size=size) for size in (0, 3, 1, 1000, 17, 0)]
    for piece in pieces:
        growing.add(piece)
    whole = growing.whole()
    assert whole.dtype == np.int32
    np.testing.assert_array_equal(whole, np.concatenate(pieces))


def test_sparse_arrays_in_blocks_are_one_matrix(write):
    S = sp.random(30, 8, density=0.4, format="csr", random_state=0)
    path = write("rows.npz", data=S.data, indices=S.indices, indptr=S.indptr, shape=S.shape, y=np.arange(30))
    block = next(iterate_rows(path, Layout()))
    whole = joined([block, block])
    assert (sp.vstack([S, S]) != whole.X).nnz == 0
    assert whole.y.tolist() == 2 * list(range(30))


_LINES = [f"{k / 7},{k % 5},{'ab'[k % 2]}" for k in range(200)]
CSV_TEXTS = {
    "plain": "\n".join(_LINES) + "\n",
    "no line end at the end": "\n".join(_LINES),
    "header": "\n".join(["one,two,label", *_LINES]) + "\n",
    "quoted header": "\n".join(['"one","two","label"', *_LINES]) + "\n",
    "a line end in a quoted header": '"o\nne",two,label\n' + "\n".join(_LINES) + "\n",
    "byte order mark": "\ufeff" + "\n".join(_LINES) + "\n",
    "line ends of Windows": "\r\n".join(_LINES) + "\r\n",
    "line ends of old": "\r".join(_LINES) + "\r",
    "blank lines first": "\n\n" + "\n".join(_LINES) + "\n",
    "blank lines between": "\n".join(_LINES[:90]) + "\n" * 300 + "\n".join(_LINES[90:]) + "\n\n",
    "quotes from the middle on": "\n".join([*_LINES[:90], '"1.5",2,"a"', *_LINES[90:]]) + "\n",
    "a line end in quotes": "\n".join([*_LINES[:90], '1.5,2,"a\nb"', *_LINES[90:]]) + "\n",
}


@pytest.mark.parametrize("text", CSV_TEXTS.values(), ids=CSV_TEXTS)
def test_csv_in_pieces_on_threads_is_csv_as_a_whole(text, monkeypatch, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    whole = read_rows(path)
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 128)
    monkeypatch.setattr(tables, "_PIECES", 5)
    monkeypatch.setattr(tables, "_WORK_PER_BYTE", 1e9)
    for n_threads in (1, 3):
        with at_most(n_threads):
            pieces = read_rows(path)
        np.testing.assert_array_equal(pieces.X, whole.X)
        np.testing.assert_array_equal(pieces.y, whole.y)
        assert pieces.names == whole.names
    assert len(whole.y) in (200, 201)


@pytest.mark.parametrize("at", [0, 57, 199])
def test_a_mistake_in_a_piece_of_csv_is_named_by_its_line(at, monkeypatch, tmp_path):
    path, lines = tmp_path / "rows.csv", ["one,two,label", *_LINES, *_LINES]
    lines[at + 1], lines[at + 150] = "1,x,a", "1,y,a"
    path.write_text("\n".join(lines))
    monkeypatch.setattr(tables, "_block_bytes", lambda width: 128)
    monkeypatch.setattr(tables, "_WORK_PER_BYTE", 1e9)
    with at_most(3), pytest.raises(ValueError, match=f"line {at + 2}, column 'two': 'x' is not a number"):
        read_rows(path)
