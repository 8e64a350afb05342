"""What a member of a network brings: its identity, the list that it follows, and a number for this start."""

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

try:
    import fcntl
except ImportError:  # Windows: nothing keeps an identity from being used twice at once
    fcntl = None  # type: ignore[assignment]

MOST_STARTS = 1 << 22  # beyond which numbers of records would not fit into 63 bits
_MOST_LOST = 1_000  # starts that others know of and the file does not
_FIRST_START = 1_767_225_600  # 2026-01-01, in seconds since 1970
_START_SECONDS = 240  # from one number of a start to the next, if the file of starts is lost
_LOOK_SECONDS = 1.0  # between two looks at the file of the list
_AT = re.compile(r"([^@]+)@(.+)")


class OwnMembership:
    """This owner's part in a network; :func:`acting_as` makes it."""

    def __init__(self, identity: Identity, path: Path, incarnation: int, starts: Path) -> None:
        self.identity, self.incarnation, self._path, self._starts = identity, incarnation, path, starts
        self.membership = Membership(MemberList.read(path))
        found = self.membership.newest.with_key(identity.card.key)
        if found is None:
            raise ValueError(
                f"{identity.name} is not on the list of members in {path}: send your card to the organiser, who adds "
                "it with widemargin peer enroll."
            )
        if found.card != identity.card:
            raise ValueError(f"The list in {path} has another card of {identity.name}: send the new one.")
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
                "the organiser to enroll you with more."
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
        """Take a newer list from its file, and keep one that other members have sent there, now and then."""
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
    """Be a member, with a start number that no earlier start had, while no other process uses the identity.

    Records of two processes under one number would prove to all that this member lies.
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
                raise ValueError(f"Another process is {identity.name}: an identity is used by one at a time.") from None
        starts = identity_path.with_name(f"{identity_path.name}.starts")
        yield OwnMembership(identity, members_path, _next_start(starts), starts)


def _next_start(path: Path) -> int:
    """Higher than at every earlier start.

    If the file that counts them is lost, the clock gives a number that no start of more than some minutes ago had,
    unless there were many.
    """
    try:
        last = int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        last = 0
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} does not hold the number of the last start: {error}.") from error
    start = max(last + 1, int(time.time() - _FIRST_START) // _START_SECONDS)
    _keep_start(path, start)
    return start


def _keep_start(path: Path, start: int) -> None:
    if start >= MOST_STARTS:
        raise ValueError(f"There is no start {start:,}, only {MOST_STARTS:,}: is the clock right, and is {path}?")
    write_whole(path, f"{start}\n".encode("ascii"))
