"""Named data sets: found, downloaded, checked, refused. The network is a server on this machine."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import http.server
import io
import lzma
import socket
import sys
import threading
import tracemalloc
import zlib

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data import fetch as fetch_by_name
from widemargin.data import names
from widemargin.data.fetch import DataNotAvailable

TEXT = b"1 1:0.5 3:-2\n-1 2:1.25\n1 1:3\n"
DENSE = np.array([[0.5, 0.0, -2.0, 0.0], [0.0, 1.25, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
LABELS = np.array([1.0, -1.0, 1.0])


def as_npz():
    buffer = io.BytesIO()
    np.savez(buffer, X=DENSE.astype(np.float32), y=LABELS)
    return buffer.getvalue()


NPZ = as_npz()


class Server:
    """Serves ``files`` by path and counts what it is asked for."""

    def __init__(self):
        self.files, self.hits, self.promised = {}, [], {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.hits.append(self.path)
                content = outer.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(outer.promised.get(self.path, len(content))))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)


@pytest.fixture
def server():
    server = Server()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def registry(monkeypatch):
    """Two made-up sets; the real ones are out of the way."""
    sets = {
        "tiny": {
            "file": "tiny.xz",
            "n_samples": 3,
            "n_features": 4,
            "n_bytes": len(TEXT),
            "sha256": hashlib.sha256(TEXT).hexdigest(),
        },
        "arrays": {
            "file": "arrays.npz",
            "n_samples": 3,
            "n_features": 4,
            "n_bytes": len(NPZ),
            "sha256": hashlib.sha256(NPZ).hexdigest(),
        },
    }
    # By module: the package re-exports a function of the same name.
    monkeypatch.setattr(sys.modules["widemargin.data.fetch"], "_registry", lambda: sets)
    return sets


@pytest.fixture
def cache(monkeypatch, tmp_path, registry):
    """An empty cache folder, and no other place to look."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("WIDEMARGIN_CACHE", str(folder))
    monkeypatch.delenv("WIDEMARGIN_DATA", raising=False)
    monkeypatch.delenv("WIDEMARGIN_DATA_URL", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def mirror(monkeypatch, server, cache):
    monkeypatch.setenv("WIDEMARGIN_DATA_URL", server.url + "/sets/")
    server.files = {"/sets/tiny.xz": lzma.compress(TEXT), "/sets/arrays.npz": NPZ}
    return server


def assert_tiny(data):
    assert sp.issparse(data.X)
    assert data.X.format == "csr"
    np.testing.assert_array_equal(data.X.toarray(), DENSE)
    np.testing.assert_array_equal(data.y, LABELS)
    assert data.name == "tiny"
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32


def kept(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_set_comes_from_the_mirror_once_and_then_from_the_cache(mirror, cache):
    assert_tiny(fetch_by_name("tiny"))
    assert kept(cache) == ["tiny.xz"]
    assert_tiny(fetch_by_name("tiny"))
    assert mirror.hits == ["/sets/tiny.xz"]


def test_array_files(mirror, cache):
    data = fetch_by_name("arrays")
    np.testing.assert_array_equal(data.X, DENSE.astype(np.float32))
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.y, LABELS)
    assert kept(cache) == ["arrays.npz"]


def test_a_mirror_address_needs_no_slash(monkeypatch, mirror):
    monkeypatch.setenv("WIDEMARGIN_DATA_URL", mirror.url + "/sets")
    assert_tiny(fetch_by_name("tiny"))


def test_the_filled_folder_comes_first(monkeypatch, mirror, cache, tmp_path):
    filled = tmp_path / "filled"
    filled.mkdir()
    (filled / "tiny.xz").write_bytes(lzma.compress(TEXT))
    monkeypatch.setenv("WIDEMARGIN_DATA", str(filled))
    cache.mkdir()
    (cache / "tiny.xz").write_bytes(b"not even looked at")
    assert_tiny(fetch_by_name("tiny"))
    assert mirror.hits == []


def test_what_the_filled_folder_lacks_is_downloaded_into_the_cache(monkeypatch, mirror, cache, tmp_path):
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path))
    assert_tiny(fetch_by_name("tiny"))
    assert kept(cache) == ["tiny.xz"]


@pytest.mark.parametrize("name", ["tiny", "arrays"])
def test_other_content_is_refused_and_nothing_is_kept(mirror, cache, name):
    mirror.files["/sets/tiny.xz"] = lzma.compress(TEXT[:-2] + b"9\n")
    mirror.files["/sets/arrays.npz"] = NPZ[:-1] + b"?"
    with pytest.raises(DataNotAvailable, match="SHA-256"):
        fetch_by_name(name)
    assert kept(cache) == []


DAMAGES = {
    "truncated": lambda raw: raw[:-20],
    "beginning only": lambda raw: raw[:5],
    "empty": lambda raw: b"",
    "web page": lambda raw: b"<html>",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_download_is_refused_and_nothing_is_kept(mirror, cache, damage):
    mirror.files["/sets/tiny.xz"] = DAMAGES[damage](lzma.compress(TEXT))
    with pytest.raises(DataNotAvailable, match="tiny"):
        fetch_by_name("tiny")
    assert kept(cache) == []


def test_a_connection_that_breaks_off_is_refused_and_nothing_is_kept(mirror, cache):
    """The server promises more than it sends."""
    mirror.promised["/sets/tiny.xz"] = 10**6
    with pytest.raises(DataNotAvailable, match="tiny"):
        fetch_by_name("tiny")
    assert kept(cache) == []


PACKERS = {
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".gz": lambda text: gzip.compress(text, mtime=0),
    "": bytes,
}


def peak_of(action):
    """The most bytes that Python held while it ran."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refuse(match):
    with pytest.raises(DataNotAvailable, match=match):
        fetch_by_name("tiny")


@pytest.mark.parametrize("suffix", PACKERS)
def test_no_more_is_downloaded_or_unpacked_than_a_set_has(server, registry, cache, suffix):
    """A hundred MB of blanks in a file of some kB: no hash can be right."""
    bomb = PACKERS[suffix](b" " * (100 << 20))
    server.files[f"/tiny{suffix}"] = bomb
    registry["tiny"]["url"] = f"{server.url}/tiny{suffix}"
    # xz keeps a dictionary of 8 MiB, and bz2 blocks of 900 kB.
    assert peak_of(lambda: refuse("more than")) < (10 if suffix == ".xz" else 6) << 20
    assert kept(cache) == []


def test_no_more_is_unpacked_from_a_mirror_or_a_cache_than_a_set_has(mirror, cache):
    bomb = lzma.compress(b"0" * (100 << 20))
    mirror.files["/sets/tiny.xz"] = bomb
    assert peak_of(lambda: refuse("more than")) < 10 << 20
    cache.mkdir()
    (cache / "tiny.xz").write_bytes(bomb)
    assert peak_of(lambda: refuse(r"tiny\.xz is damaged \(it has more than the 29 bytes")) < 10 << 20


def test_many_bombs_in_one_file_are_no_way_around(mirror):
    mirror.files["/sets/tiny.xz"] = lzma.compress(b"0" * 20) * 100
    refuse("more than one stream")


def test_a_dictionary_of_a_gigabyte_is_refused(mirror):
    small = lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 12}])
    # The dictionary's size is one byte of the block's header, before a checksum of it.
    at = 12
    length = 4 * (small[at] + 1)
    header = bytearray(small[at : at + length - 4])
    header[4] = 36  # 1 GiB
    forged = small[:at] + header + zlib.crc32(header).to_bytes(4, "little") + small[at + length :]
    mirror.files["/sets/tiny.xz"] = forged
    assert peak_of(lambda: refuse("Memory usage limit")) < 3 << 20


def test_a_device_in_place_of_a_file_ends(monkeypatch, cache, registry, tmp_path):
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path))
    (tmp_path / "arrays.npz").symlink_to("/dev/zero")
    with pytest.raises(DataNotAvailable, match="more than"):
        fetch_by_name("arrays")


def test_a_missing_file_says_what_to_do(mirror):
    mirror.files.clear()
    with pytest.raises(DataNotAvailable, match=r"404.*WIDEMARGIN_DATA") as caught:
        fetch_by_name("tiny")
    assert isinstance(caught.value, OSError)


def test_no_server_says_what_to_do(monkeypatch, cache):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("WIDEMARGIN_DATA_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(DataNotAvailable, match=r"refused.*WIDEMARGIN_DATA"):
        fetch_by_name("tiny")


@pytest.mark.parametrize("address", ["file:///etc", "ftp://127.0.0.1", "sets"])
def test_only_web_addresses_are_followed(monkeypatch, cache, address):
    monkeypatch.setenv("WIDEMARGIN_DATA_URL", address)
    with pytest.raises(DataNotAvailable, match="https://"):
        fetch_by_name("tiny")


def test_an_unknown_name_lists_the_known_ones(registry):
    with pytest.raises(ValueError, match=r"There is no data set 'nothing'.*arrays, tiny"):
        fetch_by_name("nothing")


def test_a_set_without_a_public_source_says_where_to_put_it(cache):
    with pytest.raises(DataNotAvailable, match=r"WIDEMARGIN_DATA.*tiny\.xz"):
        fetch_by_name("tiny")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_in_the_cache_is_refused_by_name(mirror, cache, damage):
    cache.mkdir()
    (cache / "tiny.xz").write_bytes(DAMAGES[damage](lzma.compress(TEXT)))
    with pytest.raises(DataNotAvailable, match=r"cache.tiny\.xz.*[Dd]elete"):
        fetch_by_name("tiny")


@pytest.mark.parametrize(
    ("name", "content"), [("tiny", lzma.compress(b"1 1:1\n")), ("arrays", b"PK nonsense")], ids=["tiny", "arrays"]
)
def test_another_file_in_the_cache_is_refused(mirror, cache, name, content):
    cache.mkdir()
    (cache / ("tiny.xz" if name == "tiny" else "arrays.npz")).write_bytes(content)
    with pytest.raises(DataNotAvailable, match="SHA-256"):
        fetch_by_name(name)


def test_pickles_are_never_loaded(monkeypatch, mirror, registry):
    buffer = io.BytesIO()
    np.savez(buffer, X=np.array([{"any": "object"}], dtype=object), y=LABELS)
    content = buffer.getvalue()
    registry["arrays"] |= {"sha256": hashlib.sha256(content).hexdigest(), "n_bytes": len(content)}
    mirror.files["/sets/arrays.npz"] = content
    with pytest.raises(ValueError, match="pickle"):
        fetch_by_name("arrays")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/tiny.txt", TEXT),
        ("/tiny.txt", TEXT.replace(b"\n", b" \r\n")),  # other line ends, and blanks behind the values
        ("/tiny.txt", TEXT.rstrip()),
        ("/tiny.bz2", bz2.compress(TEXT)),
        ("/tiny.gz", gzip.compress(TEXT)),
    ],
    ids=["plain", "other line ends", "no last line end", "bz2", "gz"],
)
def test_the_public_source_of_a_set_may_be_packed_or_spaced_otherwise(server, registry, cache, path, content):
    server.files[path] = content
    registry["tiny"]["url"] = server.url + path
    assert_tiny(fetch_by_name("tiny"))
    assert_tiny(fetch_by_name("tiny"))
    assert server.hits == [path]


def test_a_damaged_public_source_is_refused(server, registry, cache):
    server.files["/tiny.bz2"] = bz2.compress(TEXT)[:-10]
    registry["tiny"]["url"] = server.url + "/tiny.bz2"
    with pytest.raises(DataNotAvailable):
        fetch_by_name("tiny")
    assert kept(cache) == []


def test_two_at_a_time_leave_one_whole_file(mirror, cache):
    barrier, seen, errors = threading.Barrier(4), [], []

    def one():
        try:
            barrier.wait(timeout=10)
            seen.append(fetch_by_name("tiny"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert errors == []
    assert len(seen) == 4
    for data in seen:
        assert_tiny(data)
    assert kept(cache) == ["tiny.xz"]
    assert lzma.decompress((cache / "tiny.xz").read_bytes()) == TEXT


def test_the_real_list_names_files_and_checksums():
    from widemargin.data.fetch import _registry

    assert {"a9a", "a9a.t", "phishing", "mushrooms", "ijcnn1", "iris"} <= set(names())
    for name, entry in _registry().items():
        assert entry["file"] in {f"{name}.xz", f"{name}.npz"}
        assert len(entry["sha256"]) == 64
        assert entry["n_features"] > 0
        assert entry["n_bytes"] > 2 * entry["n_samples"] or entry["file"].endswith(".npz")


@pytest.mark.parametrize(("name", "shape"), [("iris", (150, 4)), ("phishing", (11055, 68)), ("higgs_7k.t", (500, 28))])
def test_real_sets_load(real, name, shape):
    data = real(name)
    assert data.X.shape == shape
    assert data.y.shape == shape[:1]


@pytest.mark.parametrize("name", ["iris", "phishing", "heart_scale"])
def test_text_is_read_bit_for_bit_as_scikit_learn_does(real, name):
    from sklearn.datasets import load_svmlight_file

    data, fetching = real(name), sys.modules["widemargin.data.fetch"]
    content = io.BytesIO(lzma.decompress(fetching._locate(fetching._registry()[name]).read_bytes()))
    X, y = load_svmlight_file(content, n_features=data.X.shape[1], zero_based=False)
    for ours, theirs in ((data.X.data, X.data), (data.X.indices, X.indices), (data.X.indptr, X.indptr), (data.y, y)):
        np.testing.assert_array_equal(ours, theirs)
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    assert (data.X.dtype, data.y.dtype) == (np.float64, np.float64)
