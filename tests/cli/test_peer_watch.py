"""``widemargin peer --watch`` and ``peer status``: the panel at any width, and the page of real logs."""

from __future__ import annotations

import io
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("typer", reason="needs the cli extra")
pytest.importorskip("rich", reason="needs the cli extra")
pytest.importorskip("zmq", reason="needs the gossip extra")

from rich.console import Console

from tests.peers.test_loop import FAST, Threads, Wires, data, peer_of
from widemargin.cli._peer_log import PeerLog
from widemargin.cli._peer_watch import Neighbour, Rates, Screen, View, neighbours_of, panel, sparkline
from widemargin.io.archive import load
from widemargin.peers.loop import HistoryRow, PeerLimits, PeerLoop, PeerReport
from widemargin.problems.protocol import Certificate

TEXT = "1 1:0.5 3:2\n-1 2:1\n1 1:1 2:-1\n-1 3:-1\n" * 3


def report(gap=None, members=(1, 2, 3), refused=0):
    certificates = [] if gap is None else [Certificate(0.25, 0.25 * (1 - gap))]
    history = [HistoryRow(4 * k, k, 10.0**-k if k > 2 else math.inf, 0.1, 0, 0, 1.0, 1.0) for k in range(8)]
    numbers = (1234, 5.5e6, 4321, 7.7e5, refused, 5)
    return PeerReport(
        7, np.zeros((1, 2)), certificates, list(members), 6000.0, 0.01, [2, 3], 412, 4000.0, *numbers, None, history
    )


def shown(view, width=80, height=30, encoding="utf-8", **options):
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="") as file:
        Console(file=file, width=width, height=height).print(panel(view, height, **options))
        file.flush()
        return raw.getvalue().decode(encoding)


NEIGHBOURS = [
    Neighbour(981744593231, None, 411, 3.2e-4, 1500.0),
    Neighbour(2, 12.3, 380, math.inf, 2000.0),
    Neighbour(3, 90.0, None, None, None),
]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_panel_has_every_figure_at_any_width(width):
    view = View(
        report(3.2e-4, refused=9), "192.0.2.1:5555", 1500, 1e-3, NEIGHBOURS, Rates(12, 3400, 6, 1200),
        ["20:00:00 excluded: 2 (Bank): two records"], {7: "Clinic", 2: "Bank"},
    )  # fmt: skip
    text = shown(view, width)
    assert {len(line) for line in text.splitlines()} == {width}
    for figure in (
        "peer 7 (Clinic) at 192.0.2.1:5555", "tick 412, 1 h 6 min", "1,500", "3.20e-04", "tol 1e-03", "0.25]",
        "6,000 rows of 3 members", "1.00e-02", "1,234 messages, 5.5 MB; now 12/s, 3.4 kB/s",
        "4,321 messages, 770 kB; now 6/s, 1.2 kB/s", "9; 5 came too late",
        "981744593231", "2 (Bank)", "silent for 12 s", "silent for 1 min 30 s", "alive", "411", "never", "3.2e-04",
        "20:00:00 excluded: 2 (Bank): two records",
    ):  # fmt: skip
        assert figure in text, figure


def test_before_anything_is_known_it_says_so():
    text = shown(View(report(None, members=(7,)), "a:1", 10, 1e-3))
    for words in ("none yet", "no bounds yet", "1 member known", "no neighbours yet"):
        assert words in text


def test_a_narrow_terminal_keeps_the_names_of_figures_and_says_who_is_missing():
    text = shown(View(report(0.1), "a:1", 10, 1e-3, NEIGHBOURS, at_least=5), width=50, height=20)
    assert {len(line) for line in text.splitlines()} == {50}
    assert len(text.splitlines()) <= 20
    for words in ("certified gap", "consensus error", "6,000 rows of 3 members; w", "…"):
        assert words in text


def test_many_neighbours_and_events_leave_room_for_each_other():
    many = [Neighbour(k, None, 1, 0.1, 10.0) for k in range(50)]
    text = shown(View(report(0.1), "a:1", 10, 1e-3, many, events=[f"event {k}" for k in range(40)]), height=30)
    assert len(text.splitlines()) <= 30
    assert "more neighbours" in text
    assert "event 39" in text
    assert "event 36" not in text


def test_names_of_others_cannot_move_the_cursor():
    text = shown(View(report(0.1), "a:1", 10, 1e-3, NEIGHBOURS, names={2: "\x1b[2J\u202eevil[red]"}))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "evil[red]" in text


def test_a_sparkline_falls_with_the_gap_and_is_blank_without_one():
    line = sparkline([math.inf, 1.0, 1e-1, 1e-2, 1e-3], 1e-3)
    assert line[0] == " "
    assert line[1] == "█"
    assert line[-1] == "▁"
    assert list(line[1:]) == sorted(line[1:], reverse=True)
    assert sparkline([], 1e-3) == sparkline([math.inf], 1e-3) == ""
    assert len(sparkline([1.0] * 500, 1e-3, width=20)) == 20
    assert sparkline([0.0, 0.0], 0.0) == "▁▁"


def test_a_terminal_without_letters_gets_none():
    text = shown(View(report(0.1), "a:1", 10, 1e-3, NEIGHBOURS), encoding="ascii", has_blocks=False)
    assert "certified gap" in text


def test_the_screen_follows_a_peer_whose_neighbour_falls_silent(tmp_path):
    """Two peers over queues; the second ends after a while, and the first sees it alive, then silent."""
    parts, labels = data(2)
    wires, threads, seen = Wires(2), Threads(), []
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=90, height=30)
    screen = Screen(console, "a:1", len(labels[0]), 1e-9, every=0.01)
    first = peer_of(0, parts[0], labels[0], [1])
    second = peer_of(1, parts[1], labels[1], [0])
    with screen, PeerLog(None, screen.hear) as log:
        screen.hear({"event": "start", "peer": 1, "name": "Bank \u2603", "rows": 80})

        def watch(loop):
            screen.show(loop)
            log.note(loop)
            seen.extend(neighbours_of(loop))
            return any(each.silent is not None and each.tick is not None for each in seen)

        limits = PeerLimits(1e-9, at_least=3, **FAST)
        threads.start(PeerLoop(second, wires.of(1), PeerLimits(1e-9, max_ticks=40, at_least=3, **FAST)))
        PeerLoop(first, wires.of(0), limits, watch).run()
        threads.join()
    alive = [each for each in seen if each.silent is None]
    assert alive[-1].number == 1
    assert alive[-1].rows == 80
    assert alive[-1].tick > 5
    assert 0 <= seen[-1].silent < 30
    drawn = stream.getvalue()
    assert "\x1b[?1049h" in drawn, "the panel has a screen of its own"
    last = drawn[drawn.index("\x1b[?1049l") :]
    assert "1 (Bank \u2603)" in last
    assert "neighbour 1 (Bank \u2603) came" in last


def test_without_a_terminal_watch_prints_lines(command, tmp_path, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_SECRET", "a secret that is long enough")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.svm").write_text(TEXT)
    options = [
        "--data",
        "rows.svm",
        "--peers",
        1,
        "--alpha",
        0.1,
        "--max-time",
        60,
        "--model",
        "m.wm",
        "--log",
        "p.log",
    ]
    ended = command("peer", *options, "--watch", "--every", 0.01)
    assert ended.code == 0, ended.err
    assert ended.out.count("tick ") >= 2
    assert "\x1b" not in ended.out


def test_from_a_peer_to_its_page_and_its_model(command, tmp_path, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_SECRET", "a secret that is long enough")
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    (tmp_path / "rows.svm").write_text(TEXT)
    options = ["--data", "rows.svm", "--peers", 1, "--alpha", 0.1, "--max-time", 60, "--number", 5]
    assert command("peer", *options, "--model", "m.wm", "--log", "p.log").code == 0
    ended = command("peer", "status", "p.log", "--output", "network.html", "--title", "All of us")
    assert ended.code == 0, ended.err
    assert "page saved as network.html" in ended.out
    page = (tmp_path / "network.html").read_text(encoding="utf8")
    assert "<h1>All of us</h1>" in page
    assert "for the 12 rows of 1 member" in page
    assert load(tmp_path / "m.wm").peer_ == 5
    ended = command("inspect", "m.wm")
    assert "The model stands for the 12 rows of 1 member, as they state them; peer 5 saved it" in " ".join(
        ended.out.split()
    )
    members = json.loads(command("inspect", "m.wm", "--json").out)["members"]
    assert members["rows"] == {"5": 12}
    assert members["saved_by"] == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["none.log"], "none.log cannot be read: No such file"),
        (["rows.svm"], "No line of these files is an event of a peer"),
        (["rows.svm", "--output", "no/where.html"], "no"),
        (["rows.svm", "--output", "rows.svm"], "rows.svm"),
    ],
)
def test_what_is_wrong_with_logs_is_said_in_a_sentence(command, tmp_path, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.svm").write_text(TEXT)
    ended = command("peer", "status", *options)
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert (tmp_path / "rows.svm").read_text() == TEXT


def test_two_lists_with_one_number_are_an_event_once():
    peer = SimpleNamespace(number=7, table=SimpleNamespace(excluded=set()))
    membership = SimpleNamespace(newest=SimpleNamespace(number=4, members={}, active={}), has_rival=False)
    told = []
    with PeerLog(None, told.append, membership) as log:
        for membership.has_rival in (False, True, True):
            log._note_members(SimpleNamespace(peer=peer, cut_off={}))
    assert [each["event"] for each in told] == ["two lists"]
    assert told[0]["why"] == "the organiser signed two different lists with number 4"
