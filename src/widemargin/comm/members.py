"""The list of members of a network, which the organiser numbers and signs, and running peers pass on.

A list with a higher number replaces one with a lower number. So the organiser can add and revoke members while the
network runs. Every member has a number that is never given to another, and a cap on the total weight of its rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from widemargin.comm.identity import KEY_BYTES, Card, Identity, check_name, is_signed_by, what_is_wrong
from widemargin.data.files import write_whole

MAX_MEMBERS = 2000
MAX_LIST_BYTES = 1 << 20
_SIGNED = b"widemargin members 1\n"
_HIGHEST = 1 << 40  # of lists and members
_MOST_ROWS = 1e100  # of a member; JSON may have whole numbers that no float is as large as


class Member(NamedTuple):
    """An owner on the list."""

    number: int
    card: Card
    max_rows: float  # the largest total weight of its rows
    is_revoked: bool = False  # stays on the list, so that what it signed before can be checked

    @property
    def name(self) -> str:
        return self.card.name


@dataclass(frozen=True)
class MemberList:
    """One list. The newer of two has the higher ``number``; ``next_member`` is the number of the next new member."""

    network: str
    organiser: bytes  # public key
    number: int = 0
    members: Mapping[int, Member] = field(default_factory=dict)
    next_member: int = 0
    signature: bytes = b""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the list in a file; ValueError if there is none, or a signature is wrong."""
        try:
            with path.open("rb") as file:
                return cls.parse(file.read(MAX_LIST_BYTES + 1), str(path))
        except OSError as error:
            raise ValueError(
                f"Cannot read the list of members in {path}: {error.strerror}. Ask the organiser for it."
            ) from error

    @classmethod
    def parse(cls, data: bytes, where: str = "the list of members") -> Self:
        """The list in some bytes; ValueError unless it is complete, and it and all its cards are signed."""
        if len(data) > MAX_LIST_BYTES:
            raise ValueError(f"{where} has more than {MAX_LIST_BYTES:,} bytes.")
        try:
            content = json.loads(data)
            entries = content["members"]
            organiser, signature = (bytes.fromhex(content[name]) for name in ("organiser", "signature"))
            numbers = [_whole(content[name]) for name in ("number", "next_member")]
            network = check_name(content["network"])
            if not isinstance(entries, list) or len(entries) > MAX_MEMBERS or len(organiser) != KEY_BYTES:
                raise ValueError(f"it must have at most {MAX_MEMBERS} members")
            members = [_member(each, where) for each in entries]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{where} is not a list of members: {what_is_wrong(error)}. Ask the organiser for the list."
            ) from error
        found = cls(network, organiser, numbers[0], {each.number: each for each in members}, numbers[1], signature)
        found._check_members(members, where)
        if not is_signed_by(organiser, found._signed(), signature):
            raise ValueError(f"{where} is not signed by its organiser: ask for it again.")
        return found

    def _check_members(self, members: list[Member], where: str) -> None:
        cards = [each.card for each in self.active.values()]
        different = {name: {getattr(each, name) for each in cards} for name in ("name", "key", "curve")}
        if len(self.members) != len(members) or any(len(each) != len(cards) for each in different.values()):
            raise ValueError(f"{where} has two members with one number, name or key.")
        if any(number >= self.next_member for number in self.members):
            raise ValueError(f"{where} has a member with a number that is not below {self.next_member}.")

    def write(self, path: Path) -> None:
        write_whole(path, self.text().encode())

    def text(self) -> str:
        return json.dumps({**self._content(), "signature": self.signature.hex()}, indent=1) + "\n"

    def with_member(self, card: Card, max_rows: float, organiser: Identity) -> MemberList:
        """The next list, with one more member; ValueError if that owner is a member already."""
        self._check_organiser(organiser)
        if any(each.name == card.name or each.card.key == card.key for each in self.active.values()):
            raise ValueError(f"{card.name} is on the list of members, by this name or key. Revoke that member first.")
        member = Member(self.next_member, card, _rows(max_rows))
        members = {**self.members, member.number: member}
        changed = replace(self, members=members, next_member=self.next_member + 1)
        changed._check_members(list(members.values()), "The list of members")
        return changed._signed_by(organiser)

    def without(self, name: str, organiser: Identity) -> MemberList:
        """The next list, with a member revoked; its number is never given to another."""
        member = self.named(name)
        members = {**self.members, member.number: member._replace(is_revoked=True)}
        return replace(self, members=members)._signed_by(organiser)

    @property
    def active(self) -> dict[int, Member]:
        """Those that are not revoked."""
        return {number: each for number, each in self.members.items() if not each.is_revoked}

    def named(self, name: str) -> Member:
        """The member of this name; ValueError if there is none."""
        found = next((each for each in self.active.values() if each.name == name), None)
        if found is None:
            names = ", ".join(sorted(each.name for each in self.active.values()))
            is_revoked = any(each.name == name for each in self.members.values())
            why = "has been revoked from" if is_revoked else "is not on"
            raise ValueError(f"{name!r} {why} the list of members of {self.network}: {names or 'nobody is'}.")
        return found

    def with_key(self, key: bytes) -> Member | None:
        """The member with this key for signatures."""
        return next((each for each in self.active.values() if each.card.key == key), None)

    @property
    def caps(self) -> dict[int, float]:
        """The largest total weight of the rows of each member."""
        return {number: each.max_rows for number, each in self.members.items()}

    @property
    def fingerprint(self) -> str:
        """A short text that identifies organiser and network, for people and for signatures of records."""
        return hashlib.blake2b(self.organiser + self.network.encode(), digest_size=16).hexdigest()

    def _content(self) -> dict[str, Any]:
        members = [
            {"member": each.number, "rows": each.max_rows, "revoked": each.is_revoked, "card": each.card.content()}
            for each in sorted(self.members.values())
        ]
        return {
            "network": self.network,
            "organiser": self.organiser.hex(),
            "number": self.number,
            "next_member": self.next_member,
            "members": members,
        }

    def _signed(self) -> bytes:
        return _SIGNED + json.dumps(self._content(), sort_keys=True, separators=(",", ":")).encode()

    def _check_organiser(self, organiser: Identity) -> None:
        if organiser.card.key != self.organiser:
            raise ValueError(f"{organiser.name} is not the organiser of {self.network}: another key signed its list.")

    def _signed_by(self, organiser: Identity) -> MemberList:
        """The same with the next number, signed."""
        self._check_organiser(organiser)
        if len(self.members) > MAX_MEMBERS:
            raise ValueError(f"A network has at most {MAX_MEMBERS} members.")
        numbered = replace(self, number=self.number + 1)
        return replace(numbered, signature=organiser.sign(numbered._signed()))


class Membership:
    """The newest list that one peer knows; newer ones replace it.

    ``has_rival`` tells that the organiser has signed another list with the same number: members may then go by
    different lists, until there is a newer one.
    """

    def __init__(self, newest: MemberList) -> None:
        self.newest, self.has_rival = newest, False

    def take(self, other: MemberList) -> bool:
        """Take a list of the same network if it is newer; return whether it was. ValueError for another network."""
        known = self.newest
        if (other.network, other.organiser) != (known.network, known.organiser):
            raise ValueError(
                f"The list of {other.network} is of another network or by another organiser, not of {known.network}."
            )
        if other.number <= known.number:
            self.has_rival |= other.number == known.number and other.text() != known.text()
            return False
        self.newest, self.has_rival = other, False
        return True


def _member(content: Any, where: str) -> Member:
    numbers = _whole(content["member"]), Card.of(content["card"], where), _rows(content["rows"])
    return Member(*numbers, is_revoked=content["revoked"] is True)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _HIGHEST:
        raise ValueError(f"{value!r} is not a number from 0 to {_HIGHEST - 1}")
    return value


def _rows(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < _MOST_ROWS:
        raise ValueError(f"{value!r} is not a largest number of rows")
    return float(value)
