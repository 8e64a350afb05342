"""Members with keys of their own: processes of the command line, lists that change, and members that lie."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zmq", reason="needs the gossip extra")
pytest.importorskip("nacl", reason="needs the gossip extra")
pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")

from sklearn.datasets import dump_svmlight_file

from tests.engines.test_zmq_peers import ALPHA, TOL, Shell, optimum
from widemargin.cli import main
from widemargin.comm import rates
from widemargin.comm.identity import Identity
from widemargin.comm.members import MemberList, Membership
from widemargin.comm.zmq_keys import MemberKeys
from widemargin.comm.zmq_peers import ZmqPeers, ask

pytestmark = pytest.mark.xdist_group("peers in processes")
ROOT = Path(__file__).parents[2]
NAMES = ("alice", "bob", "carol", "mallory")


def widemargin(*options):
    """Run the command in this process."""
    before, sys.argv = sys.argv, ["widemargin", *map(str, options)]
    try:
        main()
    except SystemExit as end:
        return end.code
    finally:
        sys.argv = before
    return 0


class MemberShell(Shell):
    """One ``widemargin peer`` with an identity; ``lie`` changes what it does."""

    def __init__(self, folder, name, *options, lie=None, members="members.json"):
        self.name, self.model, self.log = name, folder / f"{name}.npz", folder / f"{name}.log"
        self.output, self.members = folder / f"{name}.txt", folder / f"{name}.json"
        self.members.write_bytes((folder / members).read_bytes())
        program = ["-m", "widemargin.cli", "peer"] if lie is None else ["-m", "tests.engines.lying_member", lie]
        command = [sys.executable, *program, "--data", folder / f"{name}.svm", "--identity", folder / f"{name}.key"]
        command += ["--members", self.members, "--model", self.model, "--log", self.log, "--every", 0.1]
        command += ["--silence", 3, "--max-time", 100, *options]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        path = os.pathsep.join(each for each in sys.path if each)
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [str(each) for each in command],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, "PYTHONPATH": path},
                cwd=ROOT,
            )

    def where(self):
        pattern = re.compile(r"peer (\d+) \(\w+\) listens at (\S+),")
        self.wait_until(lambda: pattern.search(self.text))
        return f"{self.name}@{pattern.search(self.text)[2]}"

    def events(self, kind):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [each for each in map(json.loads, lines) if each["event"] == kind]


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
    np.savez(tmp_path / "all", X=X, y=y)
    for name in ("organiser", *NAMES):
        assert widemargin("peer", "keygen", name, "--folder", tmp_path) == 0
    for k, name in enumerate(NAMES):
        part = slice(80 * k, 80 * k + 80)
        dump_svmlight_file(X[part], y[part], str(tmp_path / f"{name}.svm"), zero_based=False)
        enroll(tmp_path, tmp_path / "members.json", name, *(["--network", "hospitals"] if k == 0 else []))
    return tmp_path


def enroll(folder, members, name, *options):
    signed = ["--card", folder / f"{name}.card", "--rows", 80, "--organiser", folder / "organiser.key"]
    assert widemargin("peer", "enroll", members, *signed, *options) == 0


def revoke(folder, members, name):
    assert widemargin("peer", "revoke", members, "--name", name, "--organiser", folder / "organiser.key") == 0


def begin(shells, folder, names, *options, lies=None):
    """Members that have found each other; the network waits for one more than there are before it ends."""
    first = MemberShell(folder, names[0], "--alpha", ALPHA, "--tol", TOL, *options)
    shells.append(first)
    address = first.where()
    for name in names[1:]:
        shells.append(MemberShell(folder, name, "--join", address, lie=(lies or {}).get(name)))
    return shells


def assert_certified(shell, folder, which):
    best, _ = optimum(folder, which)
    low, high = shell.wait_for_network_of(len(which))
    assert low <= best * (1 + 1e-8)
    assert high >= best * (1 - 1e-8)


def test_members_agree_and_strangers_find_no_door(folder, shells):
    begin(shells, folder, NAMES[:3], "--peers", 3)
    address = shells[0].where().split("@")[1]
    newest = MemberList.read(folder / "members.json")
    stranger = Identity.create("stranger")
    with pytest.raises(ValueError, match="No peer answers"):
        ask(address, MemberKeys(stranger, Membership(newest)), 3, 0.5, member=0)
    best, objective = optimum(folder, [0, 1, 2])
    for shell in shells:
        text, arrays = shell.end()
        assert "stopped: all peers have certified the gap" in text
        assert "for the rows of 3 peers" in text
        assert best * (1 - 1e-9) <= objective(arrays["coef"][0], arrays["intercept"][0]) <= best * (1 + TOL)
    assert [each["name"] for each in shells[0].events("start")] == ["alice"]


PROVED = {"equivocate", "low_costs", "heavy"}


@pytest.mark.parametrize(
    "lie",
    ["equivocate", "be_of_the_future", "send_garbage"]
    + [pytest.param(each, marks=pytest.mark.long) for each in ("low_costs", "heavy", "speak_for_another")],
)
def test_the_others_certify_their_own_rows_whatever_one_member_does(lie, folder, shells):
    begin(shells, folder, NAMES, "--peers", 5, lies={"mallory": lie})
    honest = shells[:3]
    if lie == "send_garbage":  # which no record proves: the organiser revokes it, in the file of one member
        honest[0].wait_until(lambda: honest[0].figures()[1] == 4)
        revoke(folder, honest[0].members, "mallory")
    for shell in honest:
        assert_certified(shell, folder, [0, 1, 2])
    if lie == "be_of_the_future":  # the member that it joined by hears it, and perhaps no other
        honest[0].wait_until(lambda: honest[0].events("cut off"))
        (event,) = honest[0].events("cut off")
        assert event["name"] == "mallory"
        assert "which cannot have come yet" in event["why"]
    for shell in honest:
        if lie in PROVED or lie == "send_garbage":
            shell.wait_until(lambda shell=shell: shell.events("excluded"))
            (event,) = shell.events("excluded")
            assert (event["member"], event["name"]) == (3, "mallory")
            assert event["why"] == ("revoked" if lie == "send_garbage" else "its records contradict each other")
        else:
            assert not shell.events("excluded")
    assert lie != "speak_for_another" or any(shell.figures()[2] > 0 for shell in honest)
    assert all(shell.process.poll() is None for shell in honest)


def owners_and_list():
    organiser, owners = Identity.create("organiser"), [Identity.create(name) for name in NAMES]
    members = MemberList("clinics", organiser.card.key)
    for owner in owners:
        members = members.with_member(owner.card, 80, organiser)
    return organiser, owners, members


def test_a_member_that_sends_too_much_is_cut_off_and_others_are_not(monkeypatch):
    monkeypatch.setattr(rates, "MESSAGES_PER_SECOND", 20)
    _, owners, members = owners_and_list()
    one, two, flood = (
        ZmqPeers(k, "127.0.0.1:0", MemberKeys(owners[k], Membership(members)), 10_000) for k in (0, 1, 3)
    )
    try:
        two.link(0, one.address)
        flood.link(0, one.address)
        came, deadline = set(), time.monotonic() + 60
        while time.monotonic() < deadline and not (one._refused_members and 1 in came):
            for _ in range(20):
                flood.send(0, b"more")
            two.send(0, b"now and then")
            came |= {sender for sender, _ in one.receive(0.05)}
        assert one.offenders() == {3: "more than 20 messages a second"}
        one.refuse(3)
        before = one.refused
        while time.monotonic() < deadline and one.refused == before:
            flood.send(0, b"more")
            two.send(0, b"now and then")
            assert {sender for sender, _ in one.receive(0.05)} <= {1}
        assert one.refused > before
    finally:
        for transport in (one, two, flood):
            transport.close()


def test_who_writes_is_told_by_the_key_of_the_connection_and_a_revoked_member_is_not_heard():
    organiser, owners, members = owners_and_list()
    one, two = (ZmqPeers(k, "127.0.0.1:0", MemberKeys(owners[k], Membership(members)), 10_000) for k in (0, 1))
    try:
        two.number = 2  # what it says it is
        two.link(0, one.address)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (came := one.receive(0.05)):
            two.send(0, b"hello")
        assert {sender for sender, _ in came} == {1}
        assert one.newcomers() == []  # 2 introduced itself with the key of 1
        assert one.refused > 0
        one._keys.membership.take(members.without("bob", organiser))
        one.receive(0.2)  # what was on its way
        before = one.refused
        while time.monotonic() < deadline and one.refused == before:
            two.send(0, b"hello")
            assert one.receive(0.05) == []
        assert one.refused > before
    finally:
        one.close()
        two.close()


def test_all_parts_of_a_message_count_and_a_member_that_is_cut_off_connects_no_more(monkeypatch):
    monkeypatch.setattr(rates, "BYTES_PER_SECOND", 1000)
    _, owners, members = owners_and_list()
    keys = [MemberKeys(owner, Membership(members)) for owner in owners]
    one, two = (ZmqPeers(k, "127.0.0.1:0", keys[k], 10_000) for k in (0, 1))
    one.host(lambda asking: {"terms": {}, "life": 0, "tick": 0})
    stop = threading.Event()
    reader = threading.Thread(target=lambda: [one.receive(0.05) for _ in iter(stop.is_set, True)])
    try:
        two.link(0, one.address)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not one.receive(0.05):
            two.send(0, b"hello")
        two._links[0].send_multipart([bytes(9000)] * 10)
        while time.monotonic() < deadline and not one._refused_members:
            one.receive(0.05)
        assert one._refused_members == {1}
        assert "MiB a second" in one.offenders()[1]
        reader.start()
        with pytest.raises(ValueError, match="No peer answers"):
            ask(one.address, keys[1], 1, 1.0, member=0)
        assert ask(one.address, keys[3], 3, 20.0, member=0).number == 0
    finally:
        stop.set()
        if reader.is_alive():
            reader.join()
        one.close()
        two.close()


def test_lists_that_are_none_and_endless_addresses_are_refused_and_the_peer_lives():
    _, owners, members = owners_and_list()
    content = json.loads(members.text())
    content["members"][0]["rows"] = 10**400
    requests = [{"ask": "members", "list": each} for each in (5, None, [], {}, "[]", "\ud800", json.dumps(content))]
    requests += [{"ask": "meet", "address": f"{name}:5"} for name in ("a" * 254, "a." * 200, "[" + "1:" * 100 + "]")]
    one, two = (ZmqPeers(k, "127.0.0.1:0", MemberKeys(owners[k], Membership(members)), 10_000) for k in (0, 1))
    try:
        two.link(0, one.address)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not one.receive(0.05):
            two.send(0, b"hello")
        for request in requests:
            before = one.refused
            two._links[0].send(b"J" + json.dumps({**request, "number": 1}).encode())
            while time.monotonic() < deadline and one.refused == before:
                one.receive(0.05)
            assert one.refused > before, request
        two._links[0].send(b"J" + json.dumps({"ask": "members", "list": members.text(), "number": 1}).encode())
        before = one.refused
        one.receive(0.2)
        assert one.refused == before
    finally:
        one.close()
        two.close()


def test_members_are_added_and_revoked_while_the_network_runs(folder, shells):
    few = folder / "few.json"
    for k, name in enumerate(NAMES[:2]):
        enroll(folder, few, name, *(["--network", "clinics"] if k == 0 else []))
    first = MemberShell(folder, "alice", "--alpha", ALPHA, "--tol", TOL, "--peers", 5, members="few.json")
    shells.append(first)
    second = MemberShell(folder, "bob", "--join", first.where(), members="few.json")
    shells.append(second)
    assert_certified(second, folder, [0, 1])
    enroll(folder, first.members, "carol")
    second.wait_until(lambda: MemberList.read(second.members).number == 3)  # which alice has passed on
    third = MemberShell(folder, "carol", "--join", second.where(), members="bob.json")
    shells.append(third)
    for shell in shells:
        assert_certified(shell, folder, [0, 1, 2])
    revoke(folder, first.members, "carol")
    for shell in shells[:2]:
        assert_certified(shell, folder, [0, 1])
    assert third.process.wait(timeout=60) == 0
    assert "stopped: the list of members has revoked this peer" in third.text


def test_whatever_is_wrong_with_a_membership_is_said_in_a_sentence(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("WIDEMARGIN_SECRET", raising=False)
    stranger = Identity.create("stranger")
    stranger.write(folder / "stranger.key")
    own = ["--identity", "alice.key", "--members", "members.json"]
    few = folder / "few.json"
    few.write_bytes((folder / "members.json").read_bytes())
    revoke(folder, few, "alice")
    np.savez(folder / "many", X=np.random.default_rng(0).normal(size=(81, 6)), y=np.resize([1, -1], 81))
    for options, sentence in (
        (["--data", "alice.svm", "--identity", "alice.key"], "--identity and --members go together"),
        (["--data", "alice.svm", *own, "--secret-file", "secret"], "--secret-file and --identity exclude each other"),
        (["--data", "alice.svm", "--identity", "bob.card", "--members", "members.json"], "bob.card is not an identity"),
        (["--data", "alice.svm", "--identity", "stranger.key", "--members", "members.json"], "stranger is not on the"),
        (["--data", "alice.svm", "--identity", "alice.key", "--members", "few.json"], "few.json has revoked alice"),
        (["--data", "alice.svm", *own, "--number", "7"], "--number is for peers that share a secret"),
        (["--data", "alice.svm", *own, "--join", "127.0.0.1:1"], "must be NAME@HOST:PORT"),
        (["--data", "alice.svm", *own, "--join", "zoe@127.0.0.1:1"], "'zoe' is not on the list of members"),
        (["--data", "many.npz", *own], "alice has 81 rows; the list of members allows 80"),
    ):
        assert widemargin("peer", *options) == 2
        assert sentence in capsys.readouterr().err
    for options, sentence in (
        (["keygen", "alice"], "alice.key exists"),
        (["keygen", "a b"], "is not a name"),
        (["enroll", "new.json", "--card", "bob.card", "--rows", "5", "--organiser", "organiser.key"], "give --network"),
        (["revoke", "members.json", "--name", "zoe", "--organiser", "organiser.key"], "'zoe' is not on the list"),
        (["revoke", "members.json", "--name", "bob", "--organiser", "bob.key"], "bob is not the organiser"),
        (["revoke", "few.json", "--name", "alice", "--organiser", "organiser.key"], "'alice' has been revoked"),
        (
            ["members", "alice.card"],
            "not a list of members: it has no field 'members'. Ask the organiser",
        ),
        (
            ["enroll", "members.json", "--card", "bob.key", "--rows", "5", "--organiser", "organiser.key"],
            "bob.key is not the card of an owner: it has no field 'key'. widemargin peer keygen writes the card as",
        ),
        (
            ["enroll", "members.json", "--card", "bob.card", "--rows", "5", "--organiser", "bob.key"],
            "bob is not the organiser",
        ),
    ):
        assert widemargin("peer", *options) == 2
        assert sentence in capsys.readouterr().err
    assert widemargin("peer", "members", "members.json") == 0
    assert "mallory" in capsys.readouterr().out


def test_a_start_has_a_higher_number_than_all_before_and_one_process_at_a_time(folder):
    from widemargin.cli._peer_membership import acting_as

    key, members = folder / "alice.key", folder / "members.json"
    starts = []
    for _ in range(2):
        with acting_as(key, members) as own:
            starts.append(own.incarnation)
            with pytest.raises(ValueError, match="Another process is alice"), acting_as(key, members):
                pass
    (folder / "alice.key.starts").unlink()  # by the clock alone
    with acting_as(key, members) as own:
        assert own.incarnation >= starts[0]
    assert starts[0] < starts[1]
    (folder / "alice.key.starts").write_text("nonsense")
    with pytest.raises(ValueError, match="Cannot read the number of the last start"), acting_as(key, members):
        pass


def test_a_start_whose_number_was_lost_is_above_those_that_others_have_heard_of(folder):
    from widemargin.cli._peer_membership import acting_as

    key, members, starts = folder / "alice.key", folder / "members.json", folder / "alice.key.starts"
    with acting_as(key, members) as own:
        first = own.incarnation
        own.start_from(0)  # nobody has heard of any
        assert own.incarnation == first
    starts.unlink()
    with acting_as(key, members) as own:
        own.start_from(first + 40)
        assert own.incarnation == first + 40
        with pytest.raises(ValueError, match=r"has heard of start .* of alice"):
            own.start_from(1 << 60)  # whoever says so would use up all numbers
    with acting_as(key, members) as own:
        assert own.incarnation == first + 41


def test_a_clock_far_ahead_does_not_spoil_an_identity(folder, monkeypatch):
    from widemargin.cli import _peer_membership

    key, members, starts = folder / "alice.key", folder / "members.json", folder / "alice.key.starts"
    with _peer_membership.acting_as(key, members):
        before = starts.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 4.3e9)  # 2106
        with pytest.raises(ValueError, match="is the clock right"), _peer_membership.acting_as(key, members):
            pass
    assert starts.read_text() == before
    with _peer_membership.acting_as(key, members) as own:
        assert own.incarnation == int(before) + 1
