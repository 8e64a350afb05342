"""Peers that stand on their own: processes started by the command line, strangers at the door, one that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import LinearSVC

zmq = pytest.importorskip("zmq", reason="needs the gossip extra")
pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

from widemargin import GossipSVC, load, report  # noqa: E402
from widemargin.comm.zmq_keys import SharedKeys  # noqa: E402
from widemargin.comm.zmq_peers import ZmqPeers, ask  # noqa: E402

ALPHA, TOL = 0.01, 1e-3
SECRET = "of this network alone"
FIGURES = re.compile(
    r"tick (\d+)  gap (\S+)(?:  optimum in \[(\S+), (\S+)\])?  peers (\d+)  neighbours (\d+)  .* s  .*  refused (\d+)"
)


class Shell:
    """One ``widemargin peer`` in a process of its own, whose output goes to a file."""

    def __init__(self, folder, name, *options, data="svm", model="npz"):
        self.output, self.model = folder / f"{name}.txt", folder / f"{name}.{model}"
        command = [sys.executable, "-m", "widemargin.cli", "peer", "--data", folder / f"{name}.{data}"]
        command += ["--secret-file", folder / "secret", "--model", self.model, "--every", 0.1, "--silence", 3]
        command += ["--max-time", 100, *options]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        path = os.pathsep.join(each for each in sys.path if each)
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [str(each) for each in command],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, "PYTHONPATH": path},
            )

    @property
    def text(self):
        return self.output.read_text()

    def wait_until(self, condition, seconds=90.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"it has ended: {self.text}"
            assert time.monotonic() < deadline, f"waited in vain: {self.text}"
            time.sleep(0.03)

    def where(self):
        """Its number and address, once it listens."""
        pattern = re.compile(r"peer (\d+) listens at (\S+),")
        self.wait_until(lambda: pattern.search(self.text))
        number, address = pattern.search(self.text).groups()
        return int(number), address

    def figures(self):
        """Of its newest line: gap, peers, refused, and the interval of the optimum."""
        found = FIGURES.findall(self.text)
        if not found or not found[-1][2]:
            return np.inf, 0, 0, (-np.inf, np.inf)
        _, gap, low, high, peers, _, refused = found[-1]
        return float(gap), int(peers), int(refused), (float(low), float(high))

    def wait_for_network_of(self, n_peers):
        def is_certified():
            gap, peers, _, _ = self.figures()
            return peers == n_peers and gap <= TOL

        self.wait_until(is_certified)
        return self.figures()[-1]

    def end_with_model(self):
        assert self.process.wait(timeout=90) == 0, self.text
        return load(self.model)

    def end(self):
        """What it printed, once it has ended by itself, and its model."""
        assert self.process.wait(timeout=90) == 0, self.text
        with np.load(self.model, allow_pickle=False) as arrays:
            return self.text, {name: arrays[name] for name in arrays}


@pytest.fixture
def shells():
    """Processes that are ended by their own numbers, whatever happens."""
    started = []
    yield started
    for shell in started:
        if shell.process.poll() is None:
            shell.process.kill()
        shell.process.wait(timeout=20)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(320, 6))
    y = np.where(X @ rng.normal(size=6) + 0.7 * rng.normal(size=len(X)) > 0, 1, -1)
    for k in range(4):
        part = slice(80 * k, 80 * k + 80)
        dump_svmlight_file(X[part], y[part], str(tmp_path / f"part{k}.svm"), zero_based=False)
    (tmp_path / "secret").write_text(SECRET + "\n")
    np.savez(tmp_path / "all", X=X, y=y)
    return tmp_path


def optimum(folder, which):
    with np.load(folder / "all.npz") as arrays:
        rows = np.concatenate([np.arange(80 * k, 80 * k + 80) for k in which])
        X, y = arrays["X"][rows], arrays["y"][rows]
    model = LinearSVC(loss="hinge", C=1 / (ALPHA * len(y)), tol=1e-9, max_iter=10**6).fit(X, y)

    def objective(w, b):
        return 0.5 * ALPHA * (w @ w + b * b) + np.maximum(0, 1 - y * (X @ w + b)).mean()

    return objective(model.coef_[0], model.intercept_[0]), objective


def assert_ended_well(shells, folder, which):
    best, objective = optimum(folder, which)
    for shell in shells:
        text, arrays = shell.end()
        assert "stopped: all peers have certified the gap" in text
        assert f"for the rows of {len(which)} peers" in text
        assert sorted(arrays) == ["classes", "coef", "intercept"]
        assert arrays["classes"].tolist() == [-1, 1]
        value = objective(arrays["coef"][0], arrays["intercept"][0])
        assert best * (1 - 1e-9) <= value <= best * (1 + TOL)


def knock(address, junk):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(junk)


def test_three_agree_with_liblinear_and_strangers_do_no_harm(folder, shells):
    begins = Shell(folder, "part0", "--alpha", ALPHA, "--tol", TOL, "--peers", 3)
    shells.append(begins)
    _, address = begins.where()
    shells.append(Shell(folder, "part1", "--join", address))
    begins.wait_for_network_of(2)
    noise = [b"GET / HTTP/1.0\r\n\r\n", np.random.default_rng(0).bytes(4000), b"\xff" + bytes(63), b""]
    for junk in noise:
        knock(address, junk)
    with pytest.raises(ValueError, match="No peer answers"):
        ask(address, SharedKeys.of("of another network"), 5, timeout=0.5)
    half = SharedKeys.of(SECRET)._replace(caller=SharedKeys.of("of another network").caller)
    with pytest.raises(ValueError, match="No peer answers"):
        ask(address, half, 5, timeout=0.5)
    # A member that talks nonsense.
    babbler = ZmqPeers(7, "127.0.0.1:0", SharedKeys.of(SECRET), 10_000)
    try:
        babbler.link(1, address)
        before = begins.figures()[2]
        deadline = time.monotonic() + 60
        while begins.figures()[2] < before + 5 and time.monotonic() < deadline:
            for junk in (b"", b"\x00nonsense", b"\x01" + bytes(200)):
                babbler.send(1, junk)
            babbler.receive(0.05)
    finally:
        babbler.close()
    begins.wait_until(lambda: begins.figures()[2] >= len(noise) + 2 + 5)
    shells.append(Shell(folder, "part2", "--join", address))
    assert_ended_well(shells, folder, [0, 1, 2])


def test_one_is_killed_and_comes_back(folder, shells):
    begins = Shell(folder, "part0", "--alpha", ALPHA, "--tol", TOL, "--peers", 4)
    shells.append(begins)
    _, address = begins.where()
    other, doomed = Shell(folder, "part1", "--join", address), Shell(folder, "part2", "--join", address)
    shells += [other, doomed]
    number, _ = doomed.where()
    for shell in (begins, other, doomed):
        shell.wait_for_network_of(3)
    # The network is to have four peers before it may end, so this is in the middle.
    os.kill(doomed.process.pid, signal.SIGKILL)
    doomed.process.wait(timeout=20)
    best, _ = optimum(folder, [0, 1])
    for shell in (begins, other):
        low, high = shell.wait_for_network_of(2)
        assert low <= best * (1 + 1e-8)
        assert high >= best * (1 - 1e-8)
    returned = Shell(folder, "part2", "--join", address, "--number", number)
    shells.append(returned)
    best, _ = optimum(folder, [0, 1, 2])
    for shell in (begins, other, returned):
        low, high = shell.wait_for_network_of(3)
        assert low <= best * (1 + 1e-8)
        assert high >= best * (1 - 1e-8)
    assert returned.where()[0] == number
    # Ctrl-C ends one with the best that it has.
    os.kill(other.process.pid, signal.SIGINT)
    text, arrays = other.end()
    assert "stopped: interrupted" in text
    assert arrays["coef"].shape == (1, 6)


def widemargin(*arguments):
    """What the command prints, in a process of its own."""
    path = os.pathsep.join(each for each in sys.path if each)
    command = [sys.executable, "-m", "widemargin.cli", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=90)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_model_of_a_peer_is_one_that_every_command_reads(folder, shells):
    """Rows with names of columns and words for labels; what a peer knows of the network is in its model."""
    with np.load(folder / "all.npz") as arrays:
        X, y = arrays["X"], np.where(arrays["y"] > 0, "yes", "no")
    names = [f"column {k}" for k in range(X.shape[1])]
    for k in range(2):
        rows = [",".join([*map(str, X[i]), y[i]]) for i in range(80 * k, 80 * k + 80)]
        (folder / f"part{k}.csv").write_text("\n".join([",".join([*names, "answer"]), *rows]))
    begins = Shell(folder, "part0", "--alpha", ALPHA, "--tol", TOL, data="csv", model="wm")
    shells.append(begins)
    own, address = begins.where()
    shells.append(Shell(folder, "part1", "--join", address, data="csv", model="wm"))
    other = shells[1].where()[0]
    best, objective = optimum(folder, [0, 1])
    for shell in shells:
        model = shell.end_with_model()
        assert type(model) is GossipSVC
        assert (model.stop_reason_, model.alpha, model.tol) == ("gap", ALPHA, TOL)
        assert model.classes_.tolist() == ["no", "yes"]
        assert model.feature_names_in_.tolist() == names
        assert model.certificate_.dual <= best * (1 + 1e-9)
        assert model.certificate_.relative <= TOL
        value = objective(model.coef_[0], model.intercept_[0])
        assert value == pytest.approx(model.certificate_.primal, rel=1e-9)
        assert set(model.nodes_) == {own, other}
        assert model.graph_ == {own: [other], other: [own]}
        node = model.nodes_[own if shell is begins else other]
        assert node.certificate == model.certificate_
        assert node.members == {own, other}
        assert (node.messages_sent, node.bytes_sent) == (model.cost_.messages, model.cost_.bytes)
        assert [each.n_rows for each in model.nodes_.values()] == [80, 80]
        assert model.history_[-1]["gap"] <= TOL
    assert "the N rows of 2 peers" in report(model).html
    assert "GossipSVC" in widemargin("inspect", begins.model)
    assert "accuracy" in widemargin("evaluate", begins.model, folder / "part1.csv")
    predicted = widemargin("predict", begins.model, folder / "part1.csv").split()
    assert predicted == ["class", *load(begins.model).predict(pd.DataFrame(X[80:160], columns=names))]


# -- the transport by itself -----------------------------------------------------------------------------------------


def exchange(sender, to, receiver, data, seconds=20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sender.send(to, data)
        sender.receive(0)
        got = receiver.receive(0.05)
        if got:
            return got[0][1]
    raise AssertionError("nothing came")


def test_messages_introductions_and_a_return_at_another_address():
    keys = SharedKeys.of(SECRET)
    one, two = ZmqPeers(1, "127.0.0.1:0", keys, 1000), ZmqPeers(2, "127.0.0.1:0", keys, 1000)
    try:
        one.host(lambda number: {"terms": {"alpha": 1.0}, "life": 3, "tick": 7})
        two.link(1, one.address)
        assert exchange(two, 1, one, b"hello") == b"hello"
        assert one.newcomers() == [2]
        assert one.newcomers() == []
        assert exchange(one, 2, two, b"and back") == b"and back"
        assert two.gone() == set()
        two.close()
        deadline = time.monotonic() + 20
        while one.gone() != {2} and time.monotonic() < deadline:
            one.send(2, b"nobody reads this")
            one.receive(0.02)
        assert one.gone() == {2}
        two = ZmqPeers(2, "127.0.0.1:0", keys, 1000)
        two.link(1, one.address)
        assert exchange(two, 1, one, b"again") == b"again"
        assert exchange(one, 2, two, b"welcome") == b"welcome"
        # Beyond twice the limit nothing comes in, and the connection is made anew.
        two.send(1, bytes(5000))
        assert exchange(two, 1, one, b"short") in (b"short", b"again")
    finally:
        one.close()
        two.close()


def test_questions_that_make_no_sense_are_counted():
    keys = SharedKeys.of(SECRET)
    peer = ZmqPeers(1, "127.0.0.1:0", keys, 1 << 20)
    questions = [
        b"J", b"J[]", b"Jnull", b"J" + b"[" * 100_000, b'J{"ask": "meet"}', b'J{"ask": "meet", "number": -1}',
        b'J{"ask": "meet", "number": 5, "address": "nowhere"}', b'J{"ask": "meet", "number": 5, "address": 7}',
        b'J{"ask": "meet", "number": 5, "address": "127.0.0.1:0"}', b'J{"ask": "meet", "number": 5, "address": "-:1"}',
        b'J{"ask": "meet", "number": 5, "address": "[::::]:5"}',
        b'J{"ask": "terms", "number": 5}', b'J{"ask": "meet", "number": 1, "address": "127.0.0.1:5"}', b"X", b"",
    ]  # fmt: skip
    other = ZmqPeers(2, "127.0.0.1:0", keys, 1 << 20)
    try:
        other.link(1, peer.address)
        exchange(other, 1, peer, b"hello")
        peer.newcomers()
        before = peer.refused
        deadline = time.monotonic() + 20
        for question in questions:
            other._links[1].send(question)
        while peer.refused < before + len(questions) and time.monotonic() < deadline:
            peer.receive(0.05)
        assert peer.refused == before + len(questions)
        assert peer.newcomers() == []
        assert 5 not in peer._links
    finally:
        peer.close()
        other.close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "-:1", "[::::]:5", "nowhere", 7])
def test_an_introduction_with_a_bad_address_leaves_the_old_link_as_it_was(address):
    keys = SharedKeys.of(SECRET)
    one, two = ZmqPeers(1, "127.0.0.1:0", keys, 1000), ZmqPeers(2, "127.0.0.1:0", keys, 1000)
    try:
        two.link(1, one.address)
        exchange(two, 1, one, b"hello")
        assert exchange(one, 2, two, b"and back") == b"and back"
        before, link = one.refused, one._links[2]
        two._links[1].send(b"J" + json.dumps({"ask": "meet", "number": 2, "address": address}).encode())
        deadline = time.monotonic() + 20
        while one.refused == before and time.monotonic() < deadline:
            one.receive(0.05)
        assert one.refused == before + 1
        assert one._links[2] is link
        assert exchange(one, 2, two, b"still") in (b"still", b"and back")
        with pytest.raises((ValueError, TypeError)):
            one.link(2, address)
    finally:
        one.close()
        two.close()


def test_others_connect_while_a_tick_is_under_way():
    """However long it is: who listens need not look."""
    keys = SharedKeys.of(SECRET)
    busy, other = ZmqPeers(1, "127.0.0.1:0", keys, 1000), ZmqPeers(2, "127.0.0.1:0", keys, 1000)
    try:
        other.link(1, busy.address)
        other.send(1, b"nobody is there yet")
        assert other.gone() == {1}
        deadline = time.monotonic() + 20
        while other.gone() and time.monotonic() < deadline:
            other.send(1, b"now")
            other.receive(0.02)
        assert other.gone() == set()
        got = []
        while not got and time.monotonic() < deadline:
            got = busy.receive(0.05)
        assert got[0] == (None, b"now")
    finally:
        busy.close()
        other.close()


WILDCARDS = (
    "0.0.0.0", "0", "0.0", "00", "000.0.0.0", "0x0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "[::ffff:0.0.0.0]",
    "[::ffff:0:0]", "[::0.0.0.0]",
)  # fmt: skip


@pytest.mark.parametrize("host", WILDCARDS)
def test_all_interfaces_are_recognised_in_any_spelling(host):
    with pytest.raises(ValueError, match="how others reach it"):
        ZmqPeers(1, f"{host}:0", SharedKeys.of(SECRET), 1000)
    with pytest.raises(ValueError, match="all interfaces"):
        ZmqPeers(1, "127.0.0.1:0", SharedKeys.of(SECRET), 1000, advertise=f"{host}:5555")
    with pytest.raises(ValueError, match="all interfaces"):
        ask(f"{host}:5555", SharedKeys.of(SECRET), 5, timeout=0.1)
    peer = ZmqPeers(1, "127.0.0.1:0", SharedKeys.of(SECRET), 1000)
    try:
        with pytest.raises(ValueError, match="all interfaces"):
            peer.link(2, f"{host}:5555")
    finally:
        peer.close()


def test_a_name_of_all_interfaces_is_recognised_where_a_peer_listens(monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *asked, **options: [(2, 1, 6, "", ("0.0.0.0", 0))])
    with pytest.raises(ValueError, match="how others reach it"):
        ZmqPeers(1, "everywhere:0", SharedKeys.of(SECRET), 1000)


@pytest.mark.parametrize("address", ["*:5555", ":5555", "[]:5555", "[*]:5555"])
def test_other_signs_for_all_interfaces_are_no_addresses(address):
    with pytest.raises(ValueError, match="not an address"):
        ZmqPeers(1, address, SharedKeys.of(SECRET), 1000)


def test_names_that_other_peers_send_are_not_looked_up(monkeypatch):
    asked = []

    def lookup(host, port, **options):
        asked.append(options.get("flags", 0))
        raise OSError("not a number")

    monkeypatch.setattr("socket.getaddrinfo", lookup)
    peer = ZmqPeers(1, "127.0.0.1:0", SharedKeys.of(SECRET), 1000, advertise="example.org:5555")
    try:
        peer.link(2, "example.org:5556")
    finally:
        peer.close()
    assert set(asked) == {socket.AI_NUMERICHOST}


def test_secrets_and_addresses_are_checked():
    with pytest.raises(ValueError, match="at least 16"):
        SharedKeys.of("short")
    assert SharedKeys.of(SECRET) == SharedKeys.of(SECRET)
    assert not set(SharedKeys.of(SECRET)) & set(SharedKeys.of(SECRET + "!"))
    for address in ("nowhere", "host:99999", "a b:1", "host:1/../x", "tcp://host:1"):
        with pytest.raises(ValueError, match="not an address"):
            ZmqPeers(1, address, SharedKeys.of(SECRET), 1000)
    with pytest.raises(ValueError, match="how others reach it"):
        ZmqPeers(1, "0.0.0.0:0", SharedKeys.of(SECRET), 1000)
    everywhere = ZmqPeers(1, "0.0.0.0:0", SharedKeys.of(SECRET), 1000, advertise="example.org:5555")
    assert everywhere.address == "example.org:5555"
    everywhere.close()
    with pytest.raises(ValueError, match="port is 0"):
        ZmqPeers(1, "0.0.0.0:0", SharedKeys.of(SECRET), 1000, advertise="example.org:0")
    for address, why in (("127.0.0.1:0", "port is 0"), ("-:1", "cannot be reached")):
        with pytest.raises(ValueError, match=why):
            ask(address, SharedKeys.of(SECRET), 5, timeout=0.1)
    taken = ZmqPeers(1, "127.0.0.1:0", SharedKeys.of(SECRET), 1000)
    with pytest.raises(ValueError, match=r"Cannot listen at .*: Address already in use"):
        ZmqPeers(2, taken.address, SharedKeys.of(SECRET), 1000)
    taken.close()


DEAF = """
import sys, time
from widemargin.comm.zmq_keys import SharedKeys
from widemargin.comm.zmq_peers import ZmqPeers
peers = ZmqPeers(1, "127.0.0.1:0", SharedKeys.of(sys.argv[1]), 10_000)
print(peers.address, flush=True)
sys.stdin.readline()  # a long tick
time.sleep(6)  # two heartbeats of ZeroMQ, if there were any
n = sum(len(peers.receive(0.01)) for _ in range(20))
peers.close()
print(n, flush=True)
"""


def test_a_member_that_sends_more_than_is_read_and_goes_away_does_no_harm():
    path = os.pathsep.join(each for each in sys.path if each)
    deaf = subprocess.Popen(
        [sys.executable, "-c", DEAF, SECRET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        flood = ZmqPeers(2, "127.0.0.1:0", SharedKeys.of(SECRET), 10_000)
        try:
            flood.link(1, deaf.stdout.readline().strip())
            n_sent = n_full = 0
            deadline = time.monotonic() + 30
            while n_full < 20 and time.monotonic() < deadline:  # until all queues stay full
                flood.send(1, bytes(9_000))
                n_sent += not flood.gone()
                if flood.gone():
                    n_full += n_sent > 0
                    time.sleep(0.05)
            assert n_full == 20
        finally:
            flood.close()
        out, _ = deaf.communicate("\n", timeout=60)
        assert deaf.returncode == 0
        assert int(out) > 0
    finally:
        if deaf.poll() is None:
            deaf.kill()
        deaf.wait(timeout=20)
