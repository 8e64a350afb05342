"""The command line: what it reads, what it says when something is wrong, what it saves."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sys

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")
pytest.importorskip("zmq", reason="needs the gossip extra")

from widemargin import GossipSVC
from widemargin.cli import in_words, main
from widemargin.cli._peer_run import _chosen
from widemargin.cli._peer_terms import Terms
from widemargin.data.rows import read_rows
from widemargin.peers.wire import VERSION

TEXT = "1 1:0.5 3:2\n-1 2:1\n1 1:1 2:-1\n-1 3:-1\n"
DENSE = np.array([[0.5, 0, 2], [0, 1, 0], [1, -1, 0], [0, 0, -1]])
LABELS = [1, -1, 1, -1]
NO_SECRET = "Peers need a shared secret (--secret-file or WIDEMARGIN_SECRET), or identities"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("WIDEMARGIN_SECRET", raising=False)
    (tmp_path / "rows.svm").write_text(TEXT)
    (tmp_path / "secret").write_text("a secret that is long enough\n")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch, *options):
    """The exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["widemargin", "peer", *map(str, options)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--pace", "1"], "Missing option '--data'"),
        (["--data", "rows.svm"], NO_SECRET),
        (["--data", "rows.svm", "--secret", "short"], "at least 16"),
        (["--data", "rows.svm", "--secret-file", "/dev/zero"], "more than 10,000 characters"),
        (["--data", "/dev/zero", "--secret-file", "secret"], "it is a device"),
        (["--data", "rows.svm", "--secret-file", "none"], "Cannot read the secret from none: No such file"),
        (["--data", "none.svm"], "none.svm cannot be read: No such file or directory."),
        (["--data", "bad.svm"], "bad.svm is not understood"),
        (["--data", "bad.csv"], "bad.csv is not understood: line 2 has"),
        (["--data", "bad.xz"], "bad.xz cannot be read"),
        (["--data", "bad.npz"], "bad.npz"),
        (["--data", "pickled.npz"], "pickled.npz is not understood"),
        (["--data", "nan.csv"], "missing or not finite"),
        (["--data", "rows.svm", "--listen", "here"], "'here' is not an address"),
        (["--data", "rows.svm", "--listen", "0.0.0.0:0"], "how others reach it"),
        (
            ["--data", "rows.svm", "--alpha", "-1"],
            "'alpha' parameter of GossipSVC must be a float in the range (0.0, inf)",
        ),
        (["--data", "rows.svm", "--tol", "nan"], "'tol' parameter of GossipSVC must be"),
        (["--data", "rows.svm", "--pace", "fast"], "--pace"),
        (["--data", "rows.svm", "--classes", "1"], "at least two different classes"),
        (["--data", "rows.svm", "--classes", "a,b"], "must be numbers"),
        (["--data", "rows.svm", "--classes", "1,2"], "rows.svm: y has the classes [-1]; the known classes are [1, 2]."),
        (
            ["--data", "rows.svm", "--features", "2"],
            "has 3 features and the network has 2. Begin",
        ),
        (["--data", "rows.svm", "--model", "no/where.npz"], "There is no folder no"),
        (["--data", "rows.svm", "--number", str(1 << 40)], "must be below"),
        (["--data", "rows.svm", "--join", "127.0.0.1:1", "--alpha", "1"], "decided by the peer that begins"),
        (["--data", "rows.svm", "--join", "127.0.0.1:1"], "No peer answers at 127.0.0.1:1"),
    ],
)
def test_whatever_is_wrong_is_said_in_a_sentence(folder, monkeypatch, capsys, options, sentence):
    (folder / "bad.svm").write_text("what is this")
    (folder / "bad.csv").write_text("1,2,3\n1,2\n")
    (folder / "nan.csv").write_text("1,nan,1\n1,2,0\n")
    (folder / "bad.xz").write_bytes(b"not compressed")
    (folder / "bad.npz").write_bytes(b"not arrays")
    np.savez(folder / "pickled.npz", X=np.array([{}], dtype=object), y=np.ones(1))
    monkeypatch.setattr("widemargin.cli._peer_run._ANSWER_SECONDS", 0.3)
    if sentence != NO_SECRET:
        monkeypatch.setenv("WIDEMARGIN_SECRET", "a secret that is long enough")
    assert run(monkeypatch, *options) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert "Traceback" not in err + out
    assert err.count("\n") == 1


def test_help_has_an_example(monkeypatch, capsys):
    assert run(monkeypatch, "--help") == 0
    out, _ = capsys.readouterr()
    assert "widemargin peer --data part1.svm" in out
    assert "Ctrl-C" in out
    assert ".parquet" in out


def test_a_peer_alone_trains_prints_and_saves(folder, monkeypatch, capsys):
    code = run(
        monkeypatch, "--data", "rows.svm", "--secret-file", "secret", "--peers", 1, "--alpha", 0.1, "--tol", 1e-6,
        "--every", 0.01, "--model", "out.npz", "--max-time", 60,
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "listens at 127.0.0.1:" in out
    assert "stopped: all peers have certified the gap" in out
    assert "certificate: optimum in [" in out
    assert out.count("gap ") >= 3
    with np.load("out.npz", allow_pickle=False) as arrays:
        assert arrays["coef"].shape == (1, 3)
        assert arrays["intercept"].shape == (1,)
        assert arrays["classes"].tolist() == [-1, 1]
        scores = DENSE @ arrays["coef"][0] + arrays["intercept"][0]
    assert np.array_equal(np.sign(scores), LABELS)


def test_a_log_says_what_happened_and_is_continued(folder, monkeypatch, capsys):
    for _ in range(2):
        options = ["--secret-file", "secret", "--peers", 1, "--alpha", 0.1, "--log", "peer.log", "--number", 5]
        assert run(monkeypatch, "--data", "rows.svm", *options, "--max-time", 60) == 0, capsys.readouterr().err
    lines = [json.loads(line) for line in (folder / "peer.log").read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events.count("start") == events.count("stop") == 2
    assert events[0] == "start"
    assert events[-1] == "stop"
    assert {"members", "status"} <= set(events)
    assert {line["peer"] for line in lines} == {5}
    last = lines[-1]
    assert last["reason"] == "gap"
    assert last["members"] == [5]
    assert last["rows"] == 4
    assert last["bounds"][0] <= last["bounds"][1] <= last["bounds"][0] * (1 + 1e-3) / (1 - 1e-3)


def test_a_log_in_no_folder_is_refused_before_anything_is_read(folder, monkeypatch, capsys):
    assert run(monkeypatch, "--data", "none.svm", "--secret-file", "secret", "--log", "no/peer.log") == 2
    assert "There is no folder no to keep the log in." in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such rights there")
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604])
def test_a_secret_that_others_can_read_is_pointed_out(folder, monkeypatch, capsys, mode):
    (folder / "secret").chmod(mode)
    code = run(monkeypatch, "--data", "rows.svm", "--secret-file", "secret", "--peers", 2, "--max-time", 0.1)
    _, err = capsys.readouterr()
    assert code == 0, err
    sentence = "Other users of this machine can read the secret in secret; chmod 600 prevents that.\n"
    assert err == ("" if mode in (0o600, 0o400) else sentence)


def test_strings_for_classes_and_a_time_limit(folder, monkeypatch, capsys):
    lines = ["f0,f1,kind", *(f"{np.cos(k):.3f},{np.sin(k):.3f},{'abc'[k % 3]}" for k in range(30))]
    (folder / "rows.csv").write_text("\n".join(lines))
    code = run(
        monkeypatch, "--data", "rows.csv", "--secret-file", "secret", "--max-time", 0.3, "--no-intercept",
        "--model", "three.npz",
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "--max-time was reached" in out
    with np.load("three.npz", allow_pickle=False) as arrays:
        assert arrays["coef"].shape == (3, 2)
        assert arrays["classes"].tolist() == ["a", "b", "c"]
        assert not arrays["intercept"].any()


def test_files_of_all_kinds_hold_the_same_rows(folder):
    (folder / "rows.svm.xz").write_bytes(lzma.compress(TEXT.encode()))
    (folder / "rows.gz").write_bytes(gzip.compress(TEXT.encode()))
    lines = [",".join(map(str, [*row, label])) for row, label in zip(DENSE, LABELS, strict=True)]
    (folder / "rows.csv").write_text("\n".join(lines))
    (folder / "names.csv.gz").write_bytes(gzip.compress(("a,b,c,label\n" + "\n".join(lines)).encode()))
    np.savez(folder / "rows.npz", X=DENSE, y=LABELS)
    sparse = sp.csr_matrix(DENSE)
    np.savez(
        folder / "sparse.npz",
        data=sparse.data,
        indices=sparse.indices,
        indptr=sparse.indptr,
        shape=sparse.shape,
        y=LABELS,
    )
    names = ["rows.svm", "rows.svm.xz", "rows.gz", "rows.csv", "names.csv.gz", "rows.npz", "sparse.npz"]
    for name in names:
        X, y, _ = read_rows(folder / name)
        np.testing.assert_array_equal(X.toarray() if sp.issparse(X) else X, DENSE)
        np.testing.assert_array_equal(y, LABELS)


def test_terms_that_make_no_sense_are_refused():
    good = {
        "alpha": 0.1, "tol": 1e-3, "classes": [0, 1], "n_features": 3, "has_constant": True, "is_metric_full": True,
        "fan_out": 3, "degree": 3, "at_least": 2, "run": "0f" * 16, "version": VERSION,
    }  # fmt: skip
    assert Terms.of(good).classes == [0, 1]
    for change in (
        {"alpha": 0.0}, {"alpha": "x"}, {"tol": -1}, {"classes": [1]}, {"classes": [1, 1]}, {"classes": [1, "a"]},
        {"classes": None}, {"n_features": 0}, {"fan_out": None}, {"more": 1}, {"run": 1}, {"run": "x"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="does not understand"):
            Terms.of({**good, **change})
    older = {name: value for name, value in good.items() if name != "version"}
    for other, said in ((older, "2 or lower"), ({**good, "version": VERSION + 1}, str(VERSION + 1))):
        with pytest.raises(ValueError, match=f"messages have version {said}, and this peer's {VERSION}"):
            Terms.of(other)


def test_what_a_member_answers_does_not_reach_the_terminal_as_codes():
    with pytest.raises(ValueError, match="messages have version") as found:
        Terms.of({"version": "\x1b]0;title\x07\x1b[2J\u202e"})
    sentence = in_words(found.value)
    assert sentence.isprintable()
    assert "]0;title" in sentence


def test_defaults_are_those_of_gossip_svc_and_help_says_so(folder, monkeypatch, capsys):
    given = dict.fromkeys(("alpha", "tol", "peers", "classes", "features", "degree", "fan_out", "intercept"))
    terms, model = Terms.begin(given, read_rows(folder / "rows.svm"), folder / "rows.svm"), GossipSVC()
    for name, value in terms.parameters().items():
        assert name == "metric" or value == getattr(model, name)
    assert (terms.classes, terms.is_metric_full) == ([-1, 1], True)
    wide = Terms.begin({**given, "features": 1022}, read_rows(folder / "rows.svm"), folder / "rows.svm")
    assert wide.is_metric_full
    assert not Terms.begin({**given, "features": 1023}, read_rows(folder / "rows.svm"), folder).is_metric_full
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, "--help") == 0
    out, _ = capsys.readouterr()
    for value in (model.alpha, model.tol, model.degree):
        assert f"Default: {value}." in out


def test_a_newcomer_writes_to_the_one_it_asked_and_to_others_by_chance():
    known = {k: f"host:{k}" for k in range(1, 9)}
    for _ in range(20):
        chosen = _chosen(known, 5, 3)
        assert len(chosen) == 3
        assert 5 in chosen
        assert all(known[each] == address for each, address in chosen.items())
    assert _chosen({5: "host:5"}, 5, 3) == {5: "host:5"}


def test_without_its_packages_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    assert run(monkeypatch) == 2
    assert "pip install 'widemargin[cli]'" in capsys.readouterr().err


def test_without_the_package_of_its_wire_a_peer_says_what_to_install(folder, monkeypatch, capsys):
    for name in ("widemargin.cli._peer_run", "widemargin.comm.zmq_peers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert run(monkeypatch, "--data", "rows.svm", "--secret-file", "secret") == 2
    assert "pip install 'widemargin[cli,gossip]'" in capsys.readouterr().err


def test_a_line_that_changes_is_shown_on_a_terminal():
    from rich.console import Console

    from widemargin.cli._peer_run import _Line

    class Loop:
        def report(self):
            from widemargin.peers.loop import PeerReport

            return PeerReport(1, np.zeros((1, 2)), [], [1], 0.0, 0.5, [], 7, 1.0, 3, 2_000_000, 2, 500, 0, 0, None, [])

    stream = io.StringIO()
    with _Line(Console(file=stream, force_terminal=True, width=200), None) as line:
        line.show(Loop())
        line._live.refresh()
    assert "tick 7  gap inf" in stream.getvalue()
    assert "(2.0 MB)" in stream.getvalue()
