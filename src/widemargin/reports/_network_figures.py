"""The figures of the page of a network: who hears whom, gaps, traffic, and what happened when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from widemargin.estimators.words import amount
from widemargin.reports import network
from widemargin.reports._figures import Picture
from widemargin.reports._html import shortened
from widemargin.reports._svg import FAINT, FIRST, INK, PAPER, SECOND, THIRD, blank, plain_powers
from widemargin.reports.peer_logs import PeerHistory, Point, Run

_MIN_GAP = 1e-16  # on a logarithmic scale
_LOOKS = [(colour, line) for line in ("-", "--") for colour in (FIRST, SECOND, THIRD, INK)]
_MAX_LANES = 30
_MAX_MARKS = 60  # on a lane, the newest
_MAX_RUNS = 20  # of a peer that are drawn, the newest
_MAX_POINTS = 12_000  # of all lines of a figure
_MIN_POINTS = 12  # of a line
_UNITS = (("seconds", 1.0, 300.0), ("minutes", 60.0, 3 * 3600.0), ("hours", 3600.0, 3 * 86400.0))
# Of events on the lane of a peer: marker, colour, size, name in the legend.
_MARKS = {
    "neighbour came": ("^", FIRST, 4.5, "came"),
    "neighbour gone": ("v", SECOND, 4.5, "gone"),
    "members": ("|", INK, 7.0, "other members"),
    "excluded": ("s", SECOND, 6.5, "excluded"),
}
_MARKS |= dict.fromkeys(("cut off", "revoked"), _MARKS["excluded"])


class Reported(NamedTuple):
    """A peer as its newest status line has it, for ``network.draw_peers``."""

    gap: float
    live_neighbours: tuple[int, ...]
    bytes_sent: int
    bytes_received: int
    members: frozenset[int]


class Graph(NamedTuple):
    """The network as last reported, with the names that ``network.draw_peers`` expects."""

    nodes_: dict[int, Reported]  # without those that are lost
    graph_: dict[int, list[int]]
    n_iter_: int


class Named(NamedTuple):
    """A peer with its name, and whether no line says how it ended and none came for a while."""

    history: PeerHistory
    name: str
    is_lost: bool


def graph(of: Graph, n_without_log: int) -> Picture:
    figure, ax = blank(4.4)
    network.draw_peers(ax, of)
    lines = [each for each in ax.get_xlabel().split("; ") if ": " in each]
    ax.set(title="", xlabel="")
    for each in figure.axes[1:]:
        plain_powers(each.xaxis)
    n_gone = len(of.graph_) - len(of.nodes_)
    grey = "no certificate" + (" or no log" if n_without_log else "")
    words = f"The network as last reported; {'; '.join(lines)}. Grey: {grey}."
    words += " Crosses: no line for a while." if n_gone else ""
    label = f"{len(of.graph_)} peers and who hears whom, as last reported; {n_gone} are lost."
    return Picture(figure, label, words)


class Clock:
    """Times as a distance from the first, in a unit that fits."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.first, last = min(run.began for run in runs), max(run.last for run in runs)
        span = last - self.first
        self.unit, self._size = next(((name, size) for name, size, most in _UNITS if span <= most), ("days", 86400.0))

    def __call__(self, time: float) -> float:
        return (time - self.first) / self._size

    @property
    def label(self) -> str:
        return f"{self.unit} since {datetime.fromtimestamp(self.first, UTC):%Y-%m-%d %H:%M:%S} UTC"


def gaps(peers: Sequence[Named], clock: Clock, tol: float | None) -> Picture:
    figure, ax = blank(3.1)
    shown: list[float] = []
    for each, looks in zip(peers, _looks(peers), strict=True):
        for k, (run, points) in enumerate(_drawn_runs(each.history, len(peers))):
            times = [clock(point.time) for point in points]
            gap = [math.nan if point.gap is None else max(point.gap, _MIN_GAP) for point in points]
            ax.plot(times, gap, **looks | ({"label": None} if k else {}))
            known = [(x, y) for x, y in zip(times, gap, strict=True) if not math.isnan(y)]
            if known:
                _mark_end(ax, *known[-1], run, looks["color"], is_lost=each.is_lost)
            shown += [y for _, y in known]
    if not shown:
        ax.text(0.5, 0.5, "no peer has reported a certificate yet", transform=ax.transAxes, ha="center")
    else:
        ax.set_yscale("log")
        plain_powers(ax.yaxis)
        ends = [*shown, tol] if tol else shown
        ax.set_ylim(min(ends) / 2.5, max(max(ends), 10 * min(ends)) * 2)
    if tol and shown:
        ax.axhline(tol, color=INK, linewidth=1, linestyle=":", zorder=1)
        ax.annotate("tol", (1.01, tol), xycoords=("axes fraction", "data"), va="center", color=INK, fontsize=8.5)
    _finish(ax, clock, "certified gap")
    _name_lines(ax, peers)
    what = f"The certified gap of {_each(peers)}{f'; dotted line: tol = {tol:g}' if tol else ''}."
    label = f"Certified gaps over {clock.unit}" + (f"; they end between {_ends(peers)}." if shown else ": none.")
    return Picture(figure, label, f"{what} A circle: stopped; a cross: no further line.")


def traffic(peers: Sequence[Named], clock: Clock) -> Picture:
    figure, ax = blank(3.1)
    total = 0
    for each, looks in zip(peers, _looks(peers), strict=True):
        for k, (run, points) in enumerate(_drawn_runs(each.history, len(peers))):
            known = [(clock(point.time), point.traffic) for point in points if point.traffic is not None]
            if not known:
                continue
            ax.plot(*zip(*known, strict=True), **looks | ({"label": None} if k else {}))
            _mark_end(ax, *known[-1], run, looks["color"], is_lost=each.is_lost)
            total += known[-1][1]
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(lambda value, _: amount(value))
    _finish(ax, clock, "bytes sent and received")
    _name_lines(ax, peers)
    label = f"Bytes of each peer over {clock.unit}; {amount(total)} in all."
    return Picture(
        figure, label, f"Bytes that {_each(peers)} sent and received since its start; {amount(total)} in all."
    )


def lanes(peers: Sequence[Named], clock: Clock) -> Picture:
    """One lane for each peer: when it ran, and what happened."""
    shown = peers[:_MAX_LANES]
    figure, ax = blank(1.5 + 0.27 * len(shown))
    marked: dict[tuple[str, str, float, str], list[tuple[float, int]]] = {}
    for place, each in enumerate(shown):
        for run in each.history.runs[-_MAX_RUNS:]:
            ax.plot([clock(run.began), clock(run.last)], [place, place], color=FAINT, linewidth=5, zorder=1)
            _mark_end(ax, clock(run.last), place, run, INK, is_lost=each.is_lost)
        marks = [(_MARKS[event["event"]], event) for event in each.history.events if event["event"] in _MARKS]
        for mark, event in marks[-_MAX_MARKS:]:
            marked.setdefault(mark, []).append((clock(event["time"]), place))
    kinds = {}
    for (marker, colour, size, name), places in marked.items():
        looks = {"marker": marker, "color": colour, "markersize": size, "linestyle": "none", "zorder": 3}
        [kinds[name]] = ax.plot(*zip(*places, strict=True), **looks)
    ax.set_yticks(range(len(shown)), [shortened(each.name, 18) for each in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    _finish(ax, clock, "")
    if kinds:
        where = {"loc": "outside upper left", "ncols": 4, "frameon": False, "fontsize": 8}
        figure.legend(kinds.values(), kinds.keys(), handletextpad=0.1, columnspacing=0.8, **where)
    left_out = f" {len(shown)} of {len(peers)} peers." if len(shown) < len(peers) else ""
    label = f"When {len(shown)} peers ran, and {sum(len(each.history.events) for each in shown)} events."
    words = "When each peer ran, when neighbours came and went, when it first certified the gap for other members"
    if _MARKS["excluded"][-1] in kinds:
        words += ", and when it excluded or cut off a member"
    return Picture(figure, label, f"{words}. A circle: stopped; a cross: no further line.{left_out}")


def _drawn_runs(history: PeerHistory, n_peers: int) -> list[tuple[Run, list[Point]]]:
    """The newest runs of a peer, with evenly spaced points of each and the last."""
    runs = [run for run in history.runs[-_MAX_RUNS:] if run.points]
    most = max(_MIN_POINTS, _MAX_POINTS // (n_peers * max(1, len(runs))))
    return [(run, run.points[-1 :: -math.ceil(len(run.points) / most)][::-1]) for run in runs]


def _looks(peers: Sequence[Named]) -> list[dict[str, Any]]:
    """Of few peers each has its own line; of many, all are faint but those that are lost."""
    if len(peers) <= len(_LOOKS):
        return [
            {"color": colour, "linestyle": line, "linewidth": 1.5, "label": shortened(each.name, 20)}
            for (colour, line), each in zip(_LOOKS, peers, strict=False)
        ]
    return [{"color": SECOND if each.is_lost else FAINT, "linewidth": 0.8, "label": None} for each in peers]


def _each(peers: Sequence[Named]) -> str:
    few = len(peers) <= len(_LOOKS)
    return "each peer" if few else f"each of {len(peers)} peers (coloured: no line for a while)"


def _name_lines(ax: Any, peers: Sequence[Named]) -> None:
    if 1 < len(peers) <= len(_LOOKS) and ax.lines:
        where = {"loc": "outside upper left", "ncols": 3, "frameon": False, "fontsize": 8}
        ax.figure.legend(handlelength=1.6, columnspacing=1.0, **where)


def _mark_end(ax: Any, x: float, y: float, run: Run, colour: str, *, is_lost: bool) -> None:
    """A circle where a run stopped, a cross where its lines end without that; nothing where it may go on."""
    looks = {"color": colour, "zorder": 4, "linestyle": "none"}
    if run.reason is not None:
        ax.plot(x, y, "o", markersize=4.5, markerfacecolor=PAPER, **looks)
    elif is_lost:
        ax.plot(x, y, "x", markersize=6, markeredgewidth=1.8, **looks)


def _ends(peers: Sequence[Named]) -> str:
    last = [next((p.gap for p in reversed(each.history.run.points) if p.gap is not None), None) for each in peers]
    known = [gap for gap in last if gap is not None]
    return f"{min(known):.2g} and {max(known):.2g}" if known else "no values"


def _finish(ax: Any, clock: Clock, name: str) -> None:
    ax.set(xlabel=clock.label, ylabel=name)
    ax.grid(alpha=0.6)
    ax.locator_params(axis="x", nbins=6)
