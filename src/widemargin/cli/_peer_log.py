"""What happens to a peer, as lines of JSON that are complete whenever the peer is stopped or killed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from widemargin.peers.loop import PeerLoop, PeerReport

_STATUS_SECONDS = 2.0  # between two status lines
_LOOK_SECONDS = 0.1  # between two looks at the peer


class PeerLog:
    """Appends one line for each event to a file, or does nothing without one; ``note(loop)`` after every tick.

    ``tell`` is given every event, too, whether there is a file or not.

    Every line has ``event``, ``peer`` and ``time`` (seconds since 1970). Events are start, neighbour came, neighbour
    gone, members (a first certificate for other members than before), refused (how many in all), status and stop.
    """

    def __init__(self, path: Path | None, tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._tell = tell
        try:
            self._file: TextIO | None = None if path is None else path.open("a", encoding="utf8")
        except OSError as error:
            raise ValueError(f"The log cannot be written to {path}: {error.strerror}.") from error
        self._neighbours: set[int] = set()
        self._members: frozenset[int] | None = None
        self._refused = 0
        self._due = {"look": 0.0, "status": 0.0}

    def __enter__(self) -> PeerLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def start(self, number: int, address: str, n_rows: int, tol: float) -> None:
        self._write("start", number, address=address, rows=n_rows, tol=tol)

    def note(self, loop: PeerLoop) -> None:
        """Write what has changed since the last look."""
        if not self._has_listener or not self._is_due("look", _LOOK_SECONDS):
            return
        number, live = loop.peer.number, set(loop.peer.live_neighbours)
        for event, found in (("neighbour came", live - self._neighbours), ("neighbour gone", self._neighbours - live)):
            for neighbour in sorted(found):
                self._write(event, number, neighbour=neighbour)
        self._neighbours = live
        proof = loop.proof
        if proof is not None and proof.members != self._members:
            self._members = proof.members
            self._write("members", number, members=sorted(proof.members), rows=proof.total, gap=proof.worst.relative)
        if self._is_due("status", _STATUS_SECONDS):
            report = loop.report()
            if report.refused > self._refused:  # one line, however many there were
                self._refused = report.refused
                self._write("refused", number, total=report.refused)
            self._write("status", number, **_figures(report))

    def stop(self, report: PeerReport) -> None:
        self._write("stop", report.number, reason=report.stop_reason, **_figures(report))

    @property
    def _has_listener(self) -> bool:
        return self._file is not None or self._tell is not None

    def _is_due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + seconds
        return True

    def _write(self, event: str, number: int, **more: Any) -> None:
        if self._has_listener:
            plain = {name: None if value in (math.inf, -math.inf) else value for name, value in more.items()}
            line = {"event": event, "peer": number, "time": round(time.time(), 3), **plain}
            if self._file is not None:
                self._file.write(json.dumps(line, allow_nan=False) + "\n")
                self._file.flush()
            if self._tell is not None:
                self._tell(line)


def _figures(report: PeerReport) -> dict[str, Any]:
    proof = report.certificate
    return {
        "tick": report.ticks,
        "seconds": round(report.seconds, 3),
        "gap": report.gap,
        "bounds": None if proof is None else [proof.dual, proof.primal],
        "consensus": report.consensus,
        "members": report.members,
        "rows": report.total,
        "neighbours": report.live_neighbours,
        "sent": report.bytes_sent,
        "received": report.bytes_received,
        "refused": report.refused,
    }
