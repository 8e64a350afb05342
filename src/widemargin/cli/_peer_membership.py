"""What a member of a network needs to run: its identity, the list of members, and a number for this start."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from widemargin.cli._say import remark
from widemargin.comm.identity import Identity, is_open_to_others
from widemargin.comm.members import Member, MemberList, Membership
from widemargin.comm.zmq_keys import MemberKeys
from widemargin.data.files import write_whole
from widemargin.peers.records import MOST_INCARNATIONS

try:
    import fcntl
except ImportError:  # Windows: nothing keeps an identity from being used twice at once
    fcntl = None  # type: ignore[assignment]

_MOST_LOST = 1_000  # starts that others know of and the file does not
_FIRST_START = 1_767_225_600  # 2026-01-01, in seconds since 1970
_START_SECONDS = 240  # from one number of a start to the next, if the file of starts is lost
_LOOK_SECONDS = 1.0  # between two looks at the file of the list
_AT = re.compile(r"([^@]+)@(.+)")


class OwnMembership:
    """The membership of this owner in a network; :func:`acting_as` makes it."""

    def __init__(self, identity: Identity, path: Path, incarnation: int, starts: Path) -> None:
        self.identity, self.incarnation, self._path, self._starts = identity, incarnation, path, starts
        self.membership = Membership(MemberList.read(path))
        newest = self.membership.newest
        found = newest.with_key(identity.card.key)
        if found is None:
            if any(each.card.key == identity.card.key for each in newest.members.values()):
                raise ValueError(f"The list in {path} has revoked {identity.name}: ask the organiser why.")
            raise ValueError(
                f"{identity.name} is not on the list of members in {path}: send your card to the organiser, who adds "
                "it with widemargin peer enroll."
            )
        if found.card != identity.card:
            raise ValueError(
                f"The list in {path} has another card of {identity.name}: send the organiser the present one."
            )
        self.member: Member = found
        self.keys = MemberKeys(identity, self.membership)
        self._seen, self._due = self._stamp(), 0.0

    def member_at(self, join: str) -> tuple[Member, str]:
        """The member and the address in NAME@HOST:PORT."""
        parts = _AT.fullmatch(join)
        if parts is None:
            raise ValueError(f"--join {join} must be NAME@HOST:PORT: the key of that member is on the list.")
        return self.membership.newest.named(parts[1]), parts[2]

    def check_rows(self, n_rows: float) -> None:
        """Raise ValueError for more rows than the others accept."""
        if n_rows > self.member.max_rows:
            raise ValueError(
                f"{self.identity.name} has {n_rows:g} rows; the list of members allows {self.member.max_rows:g}. Ask "
                "the organiser to revoke you and to enroll you with more."
            )

    def start_from(self, unused: int) -> None:
        """Take this number if it is higher: others remember starts that the file, which was lost, does not tell of."""
        if unused > self.incarnation + _MOST_LOST:
            raise ValueError(
                f"The member that was asked has heard of start {unused - 1:,} of {self.identity.name}, and this is "
                f"{self.incarnation:,}: restore {self._starts}, or join another member."
            )
        if unused > self.incarnation:
            self.incarnation = unused
            _keep_start(self._starts, unused)

    def follow_file(self) -> None:
        """Once a second, take a newer list from the file, and save one there that other members have sent."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _LOOK_SECONDS
        if (stamp := self._stamp()) != self._seen:
            self._seen = stamp
            try:
                self.membership.take(MemberList.read(self._path))
            except ValueError as error:
                remark(f"The new list of members is not used: {error}")
        newest = self.membership.newest
        with suppress(ValueError):  # a damaged file is replaced by nothing
            if MemberList.read(self._path).number < newest.number:
                try:
                    newest.write(self._path)
                except OSError as error:
                    remark(f"The new list of members cannot be kept in {self._path}: {error.strerror}.")
                self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size


@contextmanager
def acting_as(identity_path: Path, members_path: Path) -> Iterator[OwnMembership]:
    """Act as a member with a new start number, and keep other processes from using the identity meanwhile.

    If two processes signed records under one number, this would prove to all that the member lies.
    """
    identity = Identity.read(identity_path)
    if is_open_to_others(identity_path):
        remark(f"Other users of this machine can read the identity in {identity_path}; chmod 600 prevents that.")
    lock_path = identity_path.with_name(f"{identity_path.name}.lock")
    with lock_path.open("ab") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"Another process is {identity.name}: stop it first, as only one may use {identity_path} at a time."
                ) from None
        starts = identity_path.with_name(f"{identity_path.name}.starts")
        yield OwnMembership(identity, members_path, _next_start(starts), starts)


def _next_start(path: Path) -> int:
    """A number above that of every earlier start.

    If the file that counts them is lost, the clock gives the number, which is above that of all starts more than some
    minutes ago, unless there were many.
    """
    try:
        last = int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        last = 0
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it must hold one whole number"
        raise ValueError(
            f"Cannot read the number of the last start from {path}: {why}. If the clock is right, delete the file."
        ) from error
    start = max(last + 1, int(time.time() - _FIRST_START) // _START_SECONDS)
    _keep_start(path, start)
    return start


def _keep_start(path: Path, start: int) -> None:
    if start >= MOST_INCARNATIONS:
        raise ValueError(f"There is no start {start:,}, only {MOST_INCARNATIONS:,}: is the clock right, and is {path}?")
    write_whole(path, f"{start}\n".encode("ascii"))
