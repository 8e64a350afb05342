"""The logs of ``widemargin peer --log`` as the histories of peers.

A log may end in the middle of a line, hold several runs of a peer, or have been changed by anyone. Every line that is
no event of a peer is counted and left out, every value is checked, and no log may need more than a fixed memory.
"""

from __future__ import annotations

import json
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from widemargin.reports.peer_events import ROUTINE, finite, learn_name, plain, whole

_MAX_BYTES = 1 << 28  # of a log; of a longer one, the end is read
_MAX_LINE_BYTES = 1 << 20
_MAX_POINTS = 1024  # of a run; beyond, every other one is dropped
_MAX_RUNS = 200  # of a peer that are kept, the newest
_MAX_EVENTS = 500  # of a peer that are kept, the newest
_MAX_LISTED = 20_000  # members or neighbours in a line
_MAX_PEERS = 1000  # in one log
_MAX_NAMES = 20_000
_KEPT_FIELDS = (
    "event", "peer", "time", "neighbour", "member", "name", "why", "number", "count", "members", "rows", "gap", "total",
    "reason",
)  # fmt: skip
_LATEST_TIME = 253_402_300_799.0  # the last second of the year 9999


class Figures(NamedTuple):
    """A peer at the time of one line; None or empty where the line does not say."""

    tick: int | None
    gap: float | None  # None without a certificate
    consensus: float | None
    members: tuple[int, ...]
    rows: float | None  # of the members
    neighbours: tuple[int, ...]  # that it heard from
    sent: int
    received: int
    refused: int


class Point(NamedTuple):
    time: float
    gap: float | None
    traffic: int | None  # bytes sent and received; None where the line does not say


@dataclass
class Run:
    """A peer from its start until it stopped, was killed, or its log was copied."""

    began: float
    last: float  # time of the newest line
    address: str = ""
    n_rows: float | None = None
    tol: float | None = None
    reason: str | None = None  # why it stopped; None if no line says so
    figures: Figures | None = None  # the newest
    _kept: list[Point] = field(default_factory=list)
    _newest: Point | None = None
    _stride: int = 1  # points for one that is kept
    _n_points: int = 0

    def note(self, point: Point) -> None:
        """Keep a point, and every other one only when there are too many."""
        if self._n_points % self._stride == 0:
            self._kept.append(point)
        if len(self._kept) > _MAX_POINTS:
            self._kept, self._stride = self._kept[::2], 2 * self._stride
        self._newest, self._n_points = point, self._n_points + 1

    @property
    def points(self) -> list[Point]:
        """Evenly spaced ones, and the newest."""
        return self._kept if self._newest is None or self._newest is self._kept[-1] else [*self._kept, self._newest]


@dataclass
class PeerHistory:
    """All that logs say about one peer."""

    number: int
    runs: list[Run] = field(default_factory=list)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    n_lines: int = 0

    @property
    def run(self) -> Run:
        """The newest."""
        return max(self.runs, key=lambda run: run.last)


class LogFile(NamedTuple):
    """What was read of one file."""

    name: str
    n_lines: int  # events of a peer
    n_skipped: int  # lines that are none
    is_cut: bool  # whether it ends within a line
    n_bytes_skipped: int  # at the beginning of a file that is too long


@dataclass
class NetworkLogs:
    """What all logs say about a network."""

    peers: dict[int, PeerHistory]  # that have a log
    names: dict[int, str]
    files: list[LogFile]

    @property
    def runs(self) -> Iterator[Run]:
        return (run for peer in self.peers.values() for run in peer.runs)


def read_logs(paths: Iterable[Path]) -> NetworkLogs:
    """Read logs; ValueError if a file cannot be read, or none has any event of a peer."""
    logs = NetworkLogs({}, {}, [])
    for path in dict.fromkeys(path.resolve() for path in paths):
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise ValueError(f"{path} is not a file.")
            with path.open("rb") as file:
                logs.files.append(_read(file, path.name, logs))
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    if not logs.peers:
        raise ValueError("No line of these files is an event of a peer: pass files that widemargin peer --log wrote.")
    for peer in logs.peers.values():
        peer.events = deque(sorted(peer.events, key=lambda event: event["time"]), _MAX_EVENTS)
    return logs


def _read(file: BinaryIO, name: str, logs: NetworkLogs) -> LogFile:
    n_bytes_skipped = max(0, file.seek(0, 2) - _MAX_BYTES)
    file.seek(n_bytes_skipped)
    if n_bytes_skipped:
        file.readline(_MAX_LINE_BYTES)  # the rest of a line
    n_lines = n_skipped = 0
    is_cut, numbers, current = False, set[int](), dict[int, Run]()
    for line, is_whole in _lines(file):
        event = _event(line)
        is_cut = not is_whole and event is None
        if event is None or (event["peer"] not in numbers and len(numbers) >= _MAX_PEERS):
            n_skipped += bool(line.strip()) and is_whole
            continue
        numbers.add(event["peer"])
        n_lines += 1
        _take(event, logs, current)
    return LogFile(plain(name, 60), n_lines, n_skipped, is_cut, n_bytes_skipped)


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file, and whether each has its end; one that is too long counts as one line without content."""
    while line := file.readline(_MAX_LINE_BYTES):
        if len(line) < _MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line, line.endswith(b"\n")
            continue
        while (rest := file.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield b"too long", True


def _event(line: bytes) -> dict[str, Any] | None:
    """The event in a line, with a valid time and number of a peer; None if there is none."""
    try:
        event = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or whole(event.get("peer")) is None:
        return None
    time = finite(event.get("time"))
    if time is None or not 0 <= time <= _LATEST_TIME:
        return None
    return {**event, "time": time}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON.")


def _take(event: dict[str, Any], logs: NetworkLogs, current: dict[int, Run]) -> None:
    """Add one event of a peer; ``current`` has the runs that this file is in the middle of."""
    number, kind, time = event["peer"], event["event"], event["time"]
    peer = logs.peers.setdefault(number, PeerHistory(number))
    peer.n_lines += 1
    if len(logs.names) < _MAX_NAMES:
        learn_name(event, logs.names)
    if kind == "start" or number not in current:
        current[number] = Run(time, time)
        peer.runs = [*peer.runs[1 - _MAX_RUNS :], current[number]]
    run = current[number]
    run.last = max(run.last, time)
    if kind == "start":
        run.address = plain(event.get("address", ""), 60)
        run.n_rows, run.tol = _amount(event.get("rows")), _amount(event.get("tol"))
    if kind in ("status", "stop"):
        run.figures = _figures(event)
        run.note(Point(time, run.figures.gap, run.figures.sent + run.figures.received))
    elif kind == "members":
        run.note(Point(time, _amount(event.get("gap")), None))
    if kind == "stop":
        run.reason = plain(event.get("reason"), 60)
    if kind not in ROUTINE:
        peer.events.append({name: _small(event[name]) for name in _KEPT_FIELDS if name in event})


def _figures(event: Mapping[str, Any]) -> Figures:
    numbers = (whole(event.get(name)) or 0 for name in ("sent", "received", "refused"))
    listed = (_numbers(event.get("members")), _amount(event.get("rows")), _numbers(event.get("neighbours")))
    gap, consensus = _amount(event.get("gap")), _amount(event.get("consensus"))
    return Figures(whole(event.get("tick")), gap, consensus, *listed, *numbers)


def _amount(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and number >= 0 else None


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(sorted({each for each in value[:_MAX_LISTED] if whole(each) is not None}))


def _small(value: Any) -> Any:
    """A value of an event that is kept: of a list, only how long it is."""
    if isinstance(value, list):
        return len(value)
    return value if value is None or isinstance(value, (bool, int, float)) else plain(value)
