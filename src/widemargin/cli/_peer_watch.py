"""``widemargin peer --watch``: a peer and its neighbours on the whole terminal, redrawn regularly."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from widemargin.estimators.words import amount
from widemargin.peers.loop import PeerLoop, PeerReport
from widemargin.peers.records import Snapshot
from widemargin.reports.peer_events import ROUTINE, elapsed, in_words, learn_name, named

DEFAULT_SECONDS = 0.5  # between two drawings
_RATE_SECONDS = 5.0  # over which traffic per second is measured
_KEPT_EVENTS = 100
_LEAST_EVENTS = 3  # that have room below a long table of neighbours
_FIXED_LINES = 13  # of the panel without neighbours and events
_LEAST_HEIGHT = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_MIN_GAP = 1e-16  # on a logarithmic scale


class Neighbour(NamedTuple):
    """What a peer knows of one neighbour."""

    number: int
    silent: float | None  # seconds; None if it is alive
    tick: int | None  # of its newest message; None before there was one
    gap: float | None  # certified, in its newest snapshot; None without one
    rows: float | None


class Rates(NamedTuple):
    """Traffic per second."""

    messages_sent: float
    bytes_sent: float
    messages_received: float
    bytes_received: float


_NO_TRAFFIC = Rates(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class View:
    """Everything that the panel shows."""

    report: PeerReport
    address: str
    n_rows: int  # of this peer
    tol: float
    neighbours: Sequence[Neighbour] = ()
    rates: Rates = _NO_TRAFFIC
    events: Sequence[str] = ()  # the newest last
    names: Mapping[int, str] = field(default_factory=dict)  # of members, where they have some
    at_least: int = 1  # members that must have met before any may stop


def neighbours_of(loop: PeerLoop) -> list[Neighbour]:
    """All neighbours of a running peer, those that are alive first."""
    peer, silence, found = loop.peer, loop.silence(), []
    for j in sorted(peer.neighbours, key=lambda j: (j in silence, j)):
        snapshot, tick = peer.table.newest[Snapshot].get(j), peer.tick_heard(j)
        known = (None, None) if snapshot is None else (snapshot.gap, snapshot.total)
        found.append(Neighbour(j, silence.get(j), tick if tick >= 0 else None, *known))
    return found


# -- the panel ---------------------------------------------------------------------------------------------------------


def panel(view: View, height: int = 40, *, has_blocks: bool = True) -> RenderableType:
    """The panel; ``height`` lines limit how many neighbours and events it has."""
    report, room = view.report, max(height, _LEAST_HEIGHT) - _FIXED_LINES
    shown = view.neighbours[: max(1, room - _LEAST_EVENTS - 3)]
    events = view.events[-max(_LEAST_EVENTS, room - len(shown) - 3) :]
    n_more = len(view.neighbours) - len(shown)
    parts: list[RenderableType] = [_figures(view, has_blocks=has_blocks)]
    parts.append(_table(shown, view.names) if shown else Text("\nno neighbours yet\n", style="dim"))
    parts += [Text(f"and {n_more} more neighbours", style="dim")] if n_more else []
    parts += [Text(each, no_wrap=True, overflow="ellipsis") for each in events]
    title = Text(f"peer {named(report.number, view.names)} at {view.address}", style="bold")
    now = f"tick {report.ticks:,}, {elapsed(report.seconds)}"
    return Panel(Group(*parts), title=title, title_align="left", subtitle=now, subtitle_align="right", padding=(0, 1))


def _figures(view: View, *, has_blocks: bool) -> Table:
    report, rates, n = view.report, view.rates, len(view.report.members)
    proof, members = report.certificate, f"{n} member{'' if n == 1 else 's'}"
    lines = Table.grid(padding=(0, 2), expand=True)
    lines.add_column(style="cyan", no_wrap=True)
    lines.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    gap = Text("none yet" if proof is None else f"{report.gap:.2e}")
    gap.stylize("green" if report.gap <= view.tol else "yellow")
    gap.append(f"  tol {view.tol:.0e}  ", style="dim")
    if has_blocks:
        gap.append(sparkline([row.gap for row in report.history], view.tol), style="blue")
    lines.add_row("own rows", f"{view.n_rows:,}")
    lines.add_row("certified gap", gap)
    lines.add_row("optimum in", "no bounds yet" if proof is None else f"[{', '.join(proof.as_text(9))}]")
    whose = f"{report.total:,.0f} rows of {members}" if proof is not None else f"{members} known"
    lines.add_row("for", whose if n >= view.at_least else f"{whose}; waits for {view.at_least} to meet")
    lines.add_row("consensus error", f"{report.consensus:.2e}" if math.isfinite(report.consensus) else "not known yet")
    for name, n_messages, n_bytes, per_second in (
        ("sent", report.messages_sent, report.bytes_sent, rates[:2]),
        ("received", report.messages_received, report.bytes_received, rates[2:]),
    ):
        now = f"{per_second[0]:,.0f}/s, {amount(per_second[1])}/s"
        lines.add_row(name, f"{n_messages:,} messages, {amount(n_bytes)}; now {now}")
    refused = Text(f"{report.refused:,}", style="yellow" if report.refused else "")
    lines.add_row("refused", refused + Text(f"; {report.stale:,} came too late", style="dim"))
    return lines


def _table(neighbours: Sequence[Neighbour], names: Mapping[int, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("neighbour", no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True)
    for name in ("last tick", "gap", "rows"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in neighbours:
        is_alive = each.silent is None
        state = "alive" if each.silent is None else f"silent for {elapsed(each.silent)}"
        known = (
            "never" if each.tick is None else f"{each.tick:,}",
            f"{each.gap:.1e}" if each.gap is not None and math.isfinite(each.gap) else "none",
            "?" if each.rows is None else f"{each.rows:,.0f}",
        )
        style = "" if is_alive else "dim"
        table.add_row(
            Text(named(each.number, names)), Text(state, style="green" if is_alive else "red"), *known, style=style
        )
    return table


def sparkline(gaps: Sequence[float], tol: float, width: int = 32) -> str:
    """The logarithms of gaps as blocks, the lowest at tol or the smallest gap; blank where there was no certificate."""
    if not any(math.isfinite(gap) for gap in gaps):
        return ""
    shown = [gaps[k] for k in np.linspace(0, len(gaps) - 1, min(width, len(gaps))).round().astype(int)]
    logs = [math.log10(max(gap, _MIN_GAP)) if math.isfinite(gap) else None for gap in shown]
    there = [each for each in logs if each is not None]
    low = min([math.log10(max(tol, _MIN_GAP)), *there])
    step = (max([low, *there]) - low) / len(_BLOCKS) or 1.0
    return "".join(" " if log is None else _BLOCKS[min(int((log - low) / step), len(_BLOCKS) - 1)] for log in logs)


# -- on a terminal -----------------------------------------------------------------------------------------------------


class Screen:
    """Draws the panel while a peer runs, and leaves the last one behind; ``hear`` takes the events of its log."""

    def __init__(
        self, console: Console, address: str, n_rows: int, tol: float, every: float | None = None, at_least: int = 1
    ) -> None:
        self._console = console
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._about, self._every, self._due = (address, n_rows, tol), every or DEFAULT_SECONDS, 0.0
        self._at_least = at_least  # while fewer have met
        self._names: dict[int, str] = {}
        self._events: deque[str] = deque(maxlen=_KEPT_EVENTS)
        self._traffic: deque[tuple[float, ...]] = deque()  # seconds, and the four counts of Rates
        self._last: View | None = None

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._live.stop()
        if self._last is not None:
            self._console.print(self._drawn(self._last))

    def hear(self, event: Mapping[str, Any]) -> None:
        learn_name(event, self._names)
        if event["event"] not in ROUTINE:
            self._events.append(f"{time.strftime('%H:%M:%S')} {in_words(event, self._names)}")

    def show(self, loop: PeerLoop) -> None:
        """Draw, if it is time."""
        if (now := time.monotonic()) < self._due:
            return
        self._due, report = now + self._every, loop.report()
        encodable = {number: self._encodable(name) for number, name in self._names.items()}
        events = [self._encodable(each) for each in self._events]
        if len(report.members) >= self._at_least:
            self._at_least = 1
        near, rates = neighbours_of(loop), self._rates(report)
        self._last = View(report, *self._about, near, rates, events, encodable, self._at_least)
        self._live.update(self._drawn(self._last), refresh=True)

    def _drawn(self, view: View) -> RenderableType:
        return panel(view, self._console.height, has_blocks=not self._console.options.ascii_only)

    def _encodable(self, text: str) -> str:
        """Text with question marks for letters that the terminal lacks."""
        return text.encode(self._console.encoding, "replace").decode(self._console.encoding)

    def _rates(self, report: PeerReport) -> Rates:
        """Traffic per second in the last seconds."""
        sent, received = (report.messages_sent, report.bytes_sent), (report.messages_received, report.bytes_received)
        self._traffic.append((report.seconds, *sent, *received))
        while self._traffic[0][0] < report.seconds - _RATE_SECONDS and len(self._traffic) > 2:
            self._traffic.popleft()
        (before, *old), (now, *new) = self._traffic[0], self._traffic[-1]
        if now <= before:
            return _NO_TRAFFIC
        return Rates(*((b - a) / (now - before) for a, b in zip(old, new, strict=True)))
