"""The log of a peer: events as lines of JSON, which are complete even if the peer is killed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from widemargin.peers.loop import PeerLoop, PeerReport

if TYPE_CHECKING:
    from widemargin.comm.members import Membership

_STATUS_SECONDS = 2.0  # between two status lines
_LOOK_SECONDS = 0.1  # between two looks at the peer


class PeerLog:
    """Appends one line for each event to a file, if there is one; call ``note(loop)`` after every tick.

    ``tell`` gets every event, too, whether there is a file or not.

    Every line has ``event``, ``peer`` and ``time`` (seconds since 1970). With a list of members, ``name`` is the name
    of the peer in a start event, and otherwise of the member or neighbour that the event is about. Events are start,
    neighbour came, neighbour gone, members (the first certificate for a new set of members), members list (a newer
    list), two lists (with one number), excluded and cut off (a member, and why), refused (how many in all), status and
    stop.
    """

    def __init__(
        self,
        path: Path | None,
        tell: Callable[[dict[str, Any]], None] | None = None,
        membership: Membership | None = None,
    ) -> None:
        self._tell, self._membership = tell, membership
        try:
            self._file: TextIO | None = None if path is None else path.open("a", encoding="utf8")
        except OSError as error:
            raise ValueError(f"The log cannot be written to {path}: {error.strerror}.") from error
        self._list = 0 if membership is None else membership.newest.number
        self._rival_list = -1  # number of the last list that had a rival
        self._neighbours: set[int] = set()
        self._excluded: set[int] = set()
        self._cut_off: set[int] = set()
        self._members: frozenset[int] | None = None
        self._refused = 0
        self._due = {"look": 0.0, "status": 0.0}

    def __enter__(self) -> PeerLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def start(self, number: int, address: str, n_rows: int, tol: float) -> None:
        self._write("start", number, **self._name_of(number), address=address, rows=n_rows, tol=tol)

    def note(self, loop: PeerLoop) -> None:
        """Write what has changed since the last call."""
        if not self._has_listener or not self._is_due("look", _LOOK_SECONDS):
            return
        number, live = loop.peer.number, set(loop.peer.live_neighbours)
        for event, found in (("neighbour came", live - self._neighbours), ("neighbour gone", self._neighbours - live)):
            for neighbour in sorted(found):
                self._write(event, number, neighbour=neighbour, **self._name_of(neighbour))
        self._neighbours = live
        self._note_members(loop)
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

    def _note_members(self, loop: PeerLoop) -> None:
        """Write about a newer list, and members that are excluded or cut off."""
        number = loop.peer.number
        if self._membership is not None and self._membership.newest.number > self._list:
            self._list = self._membership.newest.number
            self._write("members list", number, number=self._list, count=len(self._membership.newest.active))
        if self._membership is not None and self._membership.has_rival and self._rival_list != self._list:
            self._rival_list = self._list
            self._write("two lists", number, why=f"the organiser signed two different lists with number {self._list}")
        for member in sorted(loop.peer.table.excluded - self._excluded):
            self._excluded.add(member)
            why = "its records contradict each other" if loop.peer.is_convicted(member) else "revoked"
            self._write("excluded", number, member=member, **self._name_of(member), why=why)
        for member in sorted(loop.cut_off.keys() - self._cut_off):
            self._cut_off.add(member)
            self._write("cut off", number, member=member, **self._name_of(member), why=loop.cut_off[member])

    def _name_of(self, number: int) -> dict[str, str]:
        known = None if self._membership is None else self._membership.newest.members.get(number)
        return {} if known is None else {"name": known.name}

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

    def _write(self, event: str, number: int, /, **more: Any) -> None:
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
