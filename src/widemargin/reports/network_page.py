"""One page about a network of peers, from the logs that they wrote: who is there, what is certified, what happened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from widemargin.estimators.words import amount, percent
from widemargin.reports import _network_figures as drawn
from widemargin.reports._figures import Picture
from widemargin.reports._html import Table, render, require_plot_extra, shortened
from widemargin.reports._svg import drawing, inline
from widemargin.reports.page import Report
from widemargin.reports.peer_events import STOPPED, in_words, named
from widemargin.reports.peer_logs import Figures, NetworkLogs, PeerHistory, Run, read_logs

_LOST_SECONDS = 10.0  # without a line, of which there is one every two seconds
_MAX_PEERS = 100  # in the table
_MAX_DRAWN_PEERS = 200  # in the network
_MAX_EVENTS = 150
_MAX_NEIGHBOURS = 4  # of a peer in the table
_MAX_FILES = 100
_DONE = ("gap", "precision")

Content = dict[str, Any]


def network_report(
    logs: Iterable[str | os.PathLike[str]], *, title: str | None = None, now: float | None = None
) -> Report:
    """Describe a network on one page of HTML, from the logs of its peers.

    Lines that are no events are counted and left out, so that a log may be cut anywhere; a log may hold several runs
    of a peer. Nothing in a log is checked against those of others: a page shows what peers wrote.

    Parameters
    ----------
    logs : paths
        Files that ``widemargin peer --log`` wrote; one for each peer, or several.
    title : str, default=None
        The heading; None is "Network of ... peers".
    now : float, default=None
        The time at which the logs were copied, in seconds since 1970: a peer counts as lost if its newest line is
        more than ten seconds older and does not say that it stopped. None is the present.

    Returns
    -------
    report : Report
        Has ``html`` and ``save(path)``; Jupyter shows it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from widemargin.reports import network_report
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder) / "peer.log"
    ...     _ = log.write_text('{"event": "start", "peer": 7, "time": 1e9, "rows": 100, "tol": 0.001}')
    ...     page = network_report([log])
    >>> page.title, "no line since" in page.html
    ('Network of 1 peer', True)
    """
    require_plot_extra()
    page = _Page(read_logs(Path(path) for path in logs), time.time() if now is None else now)
    n = len(page.peers)
    heading = f"Network of {n} peer{'' if n == 1 else 's'}" if title is None else shortened(title, 200)
    with drawing():
        history = page.history()
    sections = [
        ("state", "State of the network", page.state()),
        ("peers", "Peers", page.table()),
        ("history", "How it went", history),
        ("events", "Events", page.events()),
        ("logs", "Logs", page.files()),
    ]
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    return Report(
        heading, render("page.html.j2", title=heading, about="Network of peers", made=made, sections=sections)
    )


class _Page:
    """What the sections show."""

    def __init__(self, logs: NetworkLogs, now: float) -> None:
        self.logs, self.now = logs, now
        self.peers = [logs.peers[number] for number in sorted(logs.peers)]
        self.named = [drawn.Named(peer, named(peer.number, logs.names), self.is_lost(peer.run)) for peer in self.peers]
        runs = list(logs.runs)
        self.clock = drawn.Clock(runs)
        self._days = {datetime.fromtimestamp(t, UTC).date() for run in runs for t in (run.began, run.last)}

    def is_lost(self, run: Run) -> bool:
        """Whether nobody knows how a run went on."""
        return run.reason is None and self.now - run.last > _LOST_SECONDS

    @property
    def present(self) -> list[PeerHistory]:
        """Peers that run or have stopped; all of them if none does."""
        return [peer for peer in self.peers if not self.is_lost(peer.run)] or self.peers

    @property
    def tol(self) -> float | None:
        return min((peer.run.tol for peer in self.peers if peer.run.tol), default=None)

    @property
    def worst(self) -> float | None:
        """The largest newest gap of a peer that is present; None if one of them has no certificate."""
        gaps = [None if peer.run.figures is None else peer.run.figures.gap for peer in self.present]
        known = [gap for gap in gaps if gap is not None]
        return max(known) if len(known) == len(gaps) else None

    # -- sections ----------------------------------------------------------------------------------------------------

    def state(self) -> Content:
        lost = [each.name for each in self.named if each.is_lost]
        done = [peer for peer in self.peers if peer.run.reason in _DONE]
        stopped = [peer for peer in self.peers if peer.run.reason is not None]
        running = len(self.peers) - len(stopped) - len(lost)
        worst, tol = self.worst, self.tol
        is_reached = worst is not None and tol is not None and worst <= tol
        is_good = is_reached or (len(done) == len(self.present) and worst is not None)
        counts = ((len(done), "done"), (len(stopped) - len(done), "stopped"), (running, "running"))
        states = [f"{n} {what}" for n, what in (*counts, (len(lost), "lost")) if n]
        runs = list(self.logs.runs)
        sent = sum(run.figures.sent for run in runs if run.figures is not None)
        refused = sum(run.figures.refused for run in runs if run.figures is not None)
        figures = self._widest()
        tiles = [
            ("peers with a log", f"{len(self.peers):,}"),
            ("state", ", ".join(states)),
            ("worst certified gap", "none" if worst is None else _percent(worst)),
            ("gap asked for", "unknown" if tol is None else f"{100 * tol:g}%"),
            ("members of the certificate", "none" if figures is None else f"{len(figures.members):,}"),
            ("their rows", "none" if figures is None or figures.rows is None else f"{figures.rows:,.0f}"),
            ("sent by all", amount(sent)),
            ("refused", f"{refused:,}"),
        ]
        return {
            "verdict": self._verdict(lost),
            "is_good": is_good and not lost,
            "tiles": tiles,
            "note": " ".join(self._remarks()),
        }

    def _widest(self) -> Figures | None:
        """The newest figures with a certificate, of the peer that certifies for the most members."""
        known = [peer.run.figures for peer in self.present if peer.run.figures is not None]
        return max((each for each in known if each.gap is not None), key=lambda each: len(each.members), default=None)

    def _verdict(self, lost: list[str]) -> str:
        worst, n = self.worst, len(self.present)
        who = f"All {n} peers" if n == len(self.peers) and n > 1 else f"{n} peer{'' if n == 1 else 's'}"
        has = "has" if n == 1 else "have"
        if worst is None:
            text = f"Not every peer has a certificate for its members yet, of {n}."
        else:
            text = f"{who} {has} a model within {percent(worst)} of the best possible, {self._for_whom()}."
        if lost:
            names = _few(lost)
            text += f" Lost, without a reason in the log: {names}."
        return text

    def _for_whom(self) -> str:
        found = [peer.run.figures for peer in self.present if peer.run.figures is not None]
        if len({each.members for each in found}) > 1:
            return "each for the rows of the members in its own certificate"
        n = len(found[0].members)
        return f"for the {_count(found[0].rows)} rows of {n} member{'' if n == 1 else 's'}"

    def _remarks(self) -> list[str]:
        found = [peer.run.figures.members for peer in self.present if peer.run.figures is not None]
        remarks = []
        if len(set(found)) > 1:
            n_sets = len(set(found))
            remarks.append(
                f"Certificates are for {n_sets} different sets of members: the network is split or changing."
            )
        logged, members = set(self.logs.peers), {number for each in found for number in each}
        if missing := len(members - logged):
            remarks.append(f"{missing} member{' has' if missing == 1 else 's have'} no log here.")
        if excluded := sorted(self._excluded()):
            names = _few([named(each, self.logs.names) for each in excluded])
            remarks.append(f"Excluded, revoked or cut off: {names}.")
        return remarks

    def table(self) -> Content:
        excluded = self._excluded()
        models, links = [], []
        for each in self.named[:_MAX_PEERS]:
            peer, run = each.history, each.history.run
            ended = self._ended(run)
            if n_times := excluded.get(peer.number, 0):
                ended = f"excluded by {n_times}, {ended}"
            models.append((each.name, ended, self._time(run.last), _count(run.n_rows), *_certified(run.figures)))
            links.append((each.name, run.address or "?", f"{len(peer.runs):,}", *_heard(run.figures, self.logs.names)))
        note = f"{_MAX_PEERS} of {len(self.peers)} peers." if len(self.peers) > _MAX_PEERS else ""
        head = ("peer", "state", "last line", "rows", "ticks", "gap", "members", "consensus")
        certified = Table(head, models, f"Rows of each peer, and its certificate; {self._date()}", 2)
        titles = ("peer", "address", "runs", "sent", "received", "refused", "neighbours")
        heard = Table(titles, links, "Connections of the newest run, and live neighbours as last reported", 2)
        return {"certified": certified, "heard": heard, "note": note}

    def _ended(self, run: Run) -> str:
        if run.reason is not None:
            return STOPPED.get(run.reason, f"stopped: {run.reason}")
        return "no line since" if self.is_lost(run) else "running"

    def _time(self, seconds: float) -> str:
        return f"{datetime.fromtimestamp(seconds, UTC):{'%H:%M:%S' if len(self._days) == 1 else '%Y-%m-%d %H:%M:%S'}}"

    def _excluded(self) -> dict[int, int]:
        """How many peers excluded a member, cut it off, or know that it was revoked."""
        pairs = {
            (event["peer"], event["member"])
            for peer in self.peers
            for event in peer.events
            if event["event"] in ("excluded", "revoked", "cut off") and isinstance(event.get("member"), int)
        }
        return {member: sum(member == other for _, other in pairs) for member in {member for _, member in pairs}}

    def history(self) -> Content:
        pictures: list[Picture] = [
            drawn.gaps(self.named[:_MAX_PEERS], self.clock, self.tol),
            drawn.traffic(self.named[:_MAX_PEERS], self.clock),
            drawn.lanes(self.named, self.clock),
        ]
        graph = self._graph()
        note = (
            "Times are UTC, each by the clock of the peer's own machine. Where clocks differ, only times of one peer "
            "compare."
        )
        if len(graph.graph_) <= _MAX_DRAWN_PEERS:
            pictures.append(drawn.graph(graph, len(graph.graph_) - len(self.peers)))
        else:
            note += f" A network of {len(graph.graph_):,} peers is too large to draw."
        figures = [(inline(each.figure, f"f{k}-", each.label), each.caption) for k, each in enumerate(pictures)]
        return {"figures": figures, "note": note}

    def _graph(self) -> drawn.Graph:
        """Peers with a log and the neighbours that they name."""
        present = {peer.number for peer in self.present}
        nodes: dict[int, drawn.Reported] = {}
        edges: dict[int, list[int]] = {}
        for each in self.named:
            number, figures = each.history.number, each.history.run.figures
            heard = () if figures is None else tuple(j for j in figures.neighbours if j != number)
            edges[number] = list(heard)
            if number in present:
                gap = None if figures is None else figures.gap
                counts = (0, 0) if figures is None else (figures.sent, figures.received)
                members = frozenset[int]() if figures is None else frozenset(figures.members)
                nodes[number] = drawn.Reported(float("inf") if gap is None else gap, heard, *counts, members)
        nobody = drawn.Reported(float("inf"), (), 0, 0, frozenset())
        for number in {j for heard in edges.values() for j in heard} - edges.keys():
            nodes[number], edges[number] = nobody, []
        ticks = [each.history.run.figures.tick or 0 for each in self.named if each.history.run.figures is not None]
        return drawn.Graph(nodes, edges, max(ticks, default=0))

    def events(self) -> Content:
        found = sorted((event for peer in self.peers for event in peer.events), key=lambda event: event["time"])
        names = self.logs.names
        lines = [
            (self._time(event["time"]), named(event["peer"], names), in_words(event, names))
            for event in found[: -_MAX_EVENTS - 1 : -1]
        ]
        n = f"{len(found):,}" if len(found) <= _MAX_EVENTS else f"{_MAX_EVENTS} of {len(found):,}"
        caption = f"{n} events, the newest first; {self._date()}"
        return {"events": Table(("time", "peer", "what happened"), lines, caption, n_names=3)}

    def _date(self) -> str:
        return f"times are UTC of {min(self._days)}" if len(self._days) == 1 else "times are UTC"

    def files(self) -> Content:
        lines = []
        for file in self.logs.files[:_MAX_FILES]:
            remarks = ["its last line is cut"] if file.is_cut else []
            if file.n_bytes_skipped:
                remarks.append(f"its first {amount(file.n_bytes_skipped)} were not read")
            lines.append((file.name, f"{file.n_lines:,}", f"{file.n_skipped:,}", "; ".join(remarks) or "whole"))
        note = (
            f"A peer writes a line at least every two seconds. One without a line in the last {_LOST_SECONDS:.0f} "
            "seconds before this page was made counts as lost. A log that was copied earlier looks the same, and so "
            "does one from a machine whose clock is slow."
        )
        n_more = len(self.logs.files) - len(lines)
        note += f" {n_more} more files are not listed." if n_more else ""
        return {"note": note, "files": Table(("file", "events", "other lines", "end"), lines)}


def _certified(figures: Figures | None) -> tuple[str, ...]:
    """Ticks, gap, number of members, consensus error."""
    if figures is None:
        return "?", "none", "?", "?"
    error = "?" if figures.consensus is None else f"{figures.consensus:.1e}"
    gap = "none" if figures.gap is None else _percent(figures.gap)
    return _count(figures.tick), gap, f"{len(figures.members):,}", error


def _heard(figures: Figures | None, names: dict[int, str]) -> tuple[str, ...]:
    """Traffic, refusals, and some neighbours."""
    if figures is None:
        return "?", "?", "?", "?"
    near = [named(each, names) for each in figures.neighbours[:_MAX_NEIGHBOURS]]
    near += [f"{len(figures.neighbours) - len(near):,} more"] if len(figures.neighbours) > len(near) else []
    traffic = amount(figures.sent), amount(figures.received)
    return *traffic, f"{figures.refused:,}", ", ".join(near) or "none"


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _percent(gap: float) -> str:
    return percent(gap).replace("less than ", "< ")


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
