"""The page of a network from logs: peers that stop, run and are killed, and logs that are damaged."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("matplotlib", reason="needs the plot extra")

from tests.reports.test_page import assert_sound
from widemargin.reports import network_report
from widemargin.reports.peer_events import elapsed, finite, in_words, named, plain, whole
from widemargin.reports.peer_logs import read_logs

NOW = 1_700_000_000.0
TOL = 1e-3


def line(event, peer, seconds, **more):
    return json.dumps({"event": event, "peer": peer, "time": NOW + seconds, **more})


def status(peer, seconds, gap, members, neighbours, event="status", **more):
    figures = {"tick": 10 * max(1, int(seconds + 40)), "gap": gap, "consensus": 0.01}
    figures |= {"members": members, "rows": 100.0 * len(members), "neighbours": neighbours, "refused": 2}
    sent = int(1000 * (seconds + 40))
    return line(event, peer, seconds, **figures, sent=sent, received=sent // 2, **more)


def a_network():
    """The lines of peers 1 and 2, which end well, and of 3, which is killed within its last line."""
    members = [1, 2, 3]
    logs = {}
    for k in members:
        others = [j for j in members if j != k]
        logs[k] = [line("start", k, -40, address=f"10.0.0.{k}:5000", rows=100, tol=TOL)]
        logs[k] += [line("neighbour came", k, -39, neighbour=j) for j in others]
        logs[k].append(line("members", k, -38, members=members, rows=300.0, gap=0.5))
        logs[k] += [status(k, -36 + 2 * i, 0.1 / 2**i, members, others) for i in range(5)]
    for k in (1, 2):
        logs[k].append(line("neighbour gone", k, -20, neighbour=3))
        logs[k].append(status(k, -4, 5e-4, [1, 2], [3 - k], "stop", reason="gap"))
    return {k: "\n".join(lines) + "\n" for k, lines in logs.items()} | {3: "\n".join(logs[3])[:-20]}


def page_of(tmp_path, logs, **options):
    paths = []
    for name, text in logs.items():
        paths.append(tmp_path / f"{name}.log")
        paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode("utf8", "surrogatepass"))
    page = network_report(paths, **{"now": NOW, **options})
    return assert_sound(page.html), page


def cells(text, *, after):
    """The text of a table from a word on."""
    return text[text.index(after) :]


def test_it_says_who_is_done_who_is_lost_and_what_is_certified(tmp_path):
    seen, page = page_of(tmp_path, a_network())
    state = seen.text("state")
    assert page.title == "Network of 3 peers"
    assert "2 peers have a model within 0.050% of the best possible, for the 200 rows of 2 members." in state
    assert "Lost, without a reason in the log: 3." in state
    assert "2 done, 1 lost" in state
    assert "worst certified gap 0.050% gap asked for 0.1%" in state
    peers = seen.text("peers")
    assert "1 all have certified the gap 22:13:16 100 360 0.050% 2" in peers
    assert "3 no line since 22:12:50 100" in peers
    assert "1 10.0.0.1:5000 1 36 kB 18 kB 2 2" in peers
    assert seen.count("figure") == 4
    assert "each by the clock of the peer's own machine" in seen.text("history")
    events = seen.text("events")
    assert events.index("stopped: all have certified the gap") < events.index("neighbour 3 gone")
    assert events.index("neighbour 3 gone") < events.index("started with 100 rows")
    assert "3.log 8 0 its last line is cut" in seen.text("logs")


@pytest.mark.parametrize(("seconds_later", "word"), [(-29.0, "running"), (0.0, "no line since")])
def test_a_peer_is_running_while_its_lines_are_new(tmp_path, seconds_later, word):
    seen, _ = page_of(tmp_path, {3: a_network()[3]}, now=NOW + seconds_later)
    assert f"3 {word} 22:12:50" in seen.text("peers")


def test_peers_that_certify_for_others_are_pointed_out(tmp_path):
    logs = a_network()
    logs[2] = logs[2].rsplit("\n", 2)[0] + "\n" + status(2, -4, 5e-4, [2], [], "stop", reason="max_time") + "\n"
    state = page_of(tmp_path, logs)[0].text("state")
    assert "each for the rows of the members in its own certificate" in state
    assert "Certificates are for 2 different sets of members: the network is split or changing." in state
    assert "1 done, 1 stopped, 1 lost" in state


def test_members_without_a_log_are_counted_and_drawn(tmp_path):
    seen, page = page_of(tmp_path, {1: a_network()[1]})
    assert "1 member has no log here." in seen.text("state")
    assert "Grey: no certificate or no log." in page.html


def test_several_runs_in_one_log_or_in_several(tmp_path):
    again = [line("start", 1, 5, address="10.0.0.9:1", rows=100, tol=TOL), status(1, 6, 2e-2, [1, 2], [2])]
    logs = a_network()
    for given in ({**logs, 1: logs[1] + "\n".join(again)}, {**logs, "again": "\n".join(again)}):
        seen, _ = page_of(tmp_path, given, now=NOW + 7)
        assert "1 running 22:13:26 100 460 2.0%" in seen.text("peers")
        assert "1 10.0.0.9:1 2 46 kB" in seen.text("peers")
        assert "sent by all" in seen.text("state")


def test_exclusions_names_and_lists_of_members(tmp_path):
    logs = a_network()
    about = {"member": 3, "name": "Clinic <b>North</b>", "why": "two records <i>of one number</i>"}
    logs[1] += line("excluded", 1, -18, **about) + "\n" + line("members list", 1, -17, number=4, count=12) + "\n"
    logs[2] += line("cut off", 2, -18, **about) + "\n" + line("revoked", 2, -17, member=3) + "\n"
    seen, page = page_of(tmp_path, logs)
    assert "3 (Clinic <b>North</b>) excluded by 2, no line since" in seen.text("peers")
    events = seen.text("events")
    assert "excluded: 3 (Clinic <b>North</b>): two records <i>of one number</i>" in events
    assert "cut off: 3 (Clinic" in events
    assert "revoked: 3 (Clinic" in events
    assert "list of members no. 4, 12 members" in events
    assert "<b>" not in page.html
    assert "<i>" not in page.html


def test_lines_that_are_no_events_are_counted_and_left_out(tmp_path):
    huge = '{"event": "status", "peer": 1, "time": 1.0, "x": "' + "x" * (1 << 20) + '"}'
    bad = [
        "not json", "[1, 2]", "null", '{"event": "status"}', '{"event": 3, "peer": 1, "time": 1.0}',
        '{"event": "status", "peer": -1, "time": 1.0}', '{"event": "status", "peer": true, "time": 1.0}',
        '{"event": "status", "peer": 1, "time": NaN}', '{"event": "status", "peer": 1, "time": 1e999}',
        '{"event": "status", "peer": 1, "time": -1}', '{"event": "status", "peer": 1, "time": 1e300}',
        '{"event": "status", "peer": 1, "time": 1' + "0" * 400 + "}",
        '{"event": "status", "peer": 1' + "0" * 5000 + ', "time": 1.0}', "[" * 100_000, huge,
    ]  # fmt: skip
    logs = a_network()
    logs[1] += "\n".join(bad) + "\n\n \n"
    seen, _ = page_of(tmp_path, logs)
    assert f"1.log 11 {len(bad)} whole" in seen.text("logs")
    assert "2 peers have a model within 0.050%" in seen.text("state")


def test_values_of_any_kind_make_a_page(tmp_path):
    """Lines that are events, and have anything at all where figures are expected."""
    odd = [
        None,
        True,
        -1,
        1e999,
        10**400,
        1e-320,
        "<script>alert(1)</script>",
        "\x1b[2J\u202e\ud800",
        [],
        [[1]],
        {},
        [-1, "a"],
    ]
    names = (
        "address",
        "rows",
        "tol",
        "tick",
        "seconds",
        "gap",
        "consensus",
        "members",
        "neighbours",
        "sent",
        "received",
    )
    names += ("refused", "neighbour", "member", "name", "why", "reason", "total", "number", "count")
    kinds = ["start", "status", "members", "stop", "refused", "excluded", "cut off", "revoked", "members list"]
    kinds += ["neighbour came", "neighbour gone", "<script>", ""]
    chance = random.Random(0)
    for seed in range(12):
        lines = []
        for k in range(60):
            values = {name: chance.choice(odd) for name in names}
            event = {"event": chance.choice(kinds), "peer": chance.choice([1, 2, 1 << 50]), "time": NOW + k, **values}
            lines.append(json.dumps(event).replace("Infinity", "1e999"))
        seen, page = page_of(tmp_path, {seed: "\n".join(lines)})
        assert "60 0 its" in seen.text("logs") or "60 0 whole" in seen.text("logs")
        assert "<script" not in page.html
        assert "\x1b" not in page.html


def test_a_long_log_makes_no_long_page(tmp_path):
    lines = []
    for run in range(60):
        lines.append(line("start", 1, 1000 * run, address="a:1", rows=10, tol=TOL))
        for k in range(0, 300, 3):
            lines.append(status(1, 1000 * run + k, 1 / (1 + k), [1, 2], [2]))
            lines.append(line("neighbour came", 1, 1000 * run + k + 1, neighbour=k))
            lines.append(line("excluded", 1, 1000 * run + k + 2, member=k, why="w" * 5000))
    _, page = page_of(tmp_path, {1: "\n".join(lines)})
    assert len(page.html) < 400_000
    history = read_logs([tmp_path / "1.log"]).peers[1]
    assert len(history.runs) == 60
    assert len(history.events) == 500
    assert all(len(str(event["why"])) <= 80 for event in history.events if "why" in event)


def test_points_of_a_long_run_are_thinned_and_the_last_is_kept(tmp_path):
    n = 5000
    lines = [status(1, k, 1 / (1 + k), [1], []) for k in range(n)]
    (tmp_path / "1.log").write_text("\n".join(lines))
    [run] = read_logs([tmp_path / "1.log"]).peers[1].runs
    assert 500 <= len(run.points) <= 1025
    assert run.points[0].time == NOW
    assert run.points[-1].time == NOW + n - 1
    steps = {b.time - a.time for a, b in zip(run.points[:-2], run.points[1:-1], strict=True)}
    assert steps == {8.0}


def test_of_a_file_that_is_too_long_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("widemargin.reports.peer_logs._MAX_BYTES", 1000)
    seen, _ = page_of(tmp_path, {1: a_network()[1]})
    assert "its first" in seen.text("logs")
    assert "stopped: all have certified the gap" in seen.text("events")
    assert "started with" not in seen.text("events")


def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path):
    (tmp_path / "empty.log").write_text("")
    with pytest.raises(ValueError, match="No line of these files is an event of a peer"):
        network_report([tmp_path / "empty.log"])
    with pytest.raises(ValueError, match=r"none\.log cannot be read: No such file"):
        network_report([tmp_path / "none.log"])
    with pytest.raises(ValueError, match="is not a file"):
        network_report([tmp_path])


def test_hundreds_of_peers_make_one_page(tmp_path):
    n = 300
    lines = [line("start", k, -40, address="a:1", rows=10, tol=TOL) for k in range(n)]
    lines += [status(k, -5, 1e-4, [*range(n)], [(k + 1) % n]) for k in range(n)]
    seen, _ = page_of(tmp_path, {"all": "\n".join(lines)})
    assert "100 of 300 peers." in seen.text("peers")
    assert "A network of 300 peers is too large to draw." in seen.text("history")
    assert seen.count("figure") == 3


def test_words_of_events_and_times():
    names = {7: "North\nHospital"}
    assert named(7, names) == "7 (North Hospital)"
    assert named(8, names) == "8"
    assert named(None, names) == "?"
    assert in_words({"event": "neighbour came", "neighbour": 7}, names) == "neighbour 7 (North Hospital) came"
    assert (
        in_words({"event": "members", "members": [1], "rows": 5, "gap": None}, {}) == "certificate for 1 member, 5 rows"
    )
    assert in_words({"event": "new kind", "member": 8, "why": "x"}, {}) == "new kind: 8: x"
    assert plain("a\x1b[31m\u202e" + "b" * 200, 10) == "a\ufffd[31m\ufffdbb…"
    assert [elapsed(s) for s in (0.25, 12.4, 75, 7300, 200_000)] == [
        "0.2 s",
        "12 s",
        "1 min 15 s",
        "2 h 1 min",
        "2 d 7 h",
    ]
    assert [whole(each) for each in (3, True, -1, 1.0, 1 << 70)] == [3, None, None, None, None]
    assert [finite(each) for each in (3, True, float("nan"), 10**400, "3")] == [3.0, None, None, None, None]
