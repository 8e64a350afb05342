"""Keys that decide who may connect: one secret shared by all, or one key for each member on a list."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol, Self

import zmq
from zmq.utils import z85

from widemargin.comm.identity import Identity
from widemargin.comm.members import Membership

_SALT = b"widemargin peers, version 1"
_MIN_SECRET_LENGTH = 16  # characters


class KeyPair(NamedTuple):
    """A CURVE key pair, as bytes."""

    public: bytes
    secret: bytes


class Keys(Protocol):
    """The keys of one peer, and the keys that it accepts."""

    @property
    def listener(self) -> KeyPair:
        """For listening."""

    @property
    def caller(self) -> KeyPair:
        """For connecting."""

    @property
    def membership(self) -> Membership | None:
        """The list of members, if every member has a key of its own."""

    def listener_of(self, number: int) -> bytes:
        """The public key that a peer listens with; ValueError if it is not a member."""

    def admits(self, key: bytes) -> str | None:
        """The name for the owner of a public key; None if it may not connect."""


class SharedKeys(NamedTuple):
    """One secret for all: whoever knows it is a member, and can claim to be any member."""

    listener: KeyPair
    caller: KeyPair

    @classmethod
    def of(cls, secret: str) -> Self:
        if len(secret) < _MIN_SECRET_LENGTH:
            raise ValueError(f"The secret has {len(secret)} characters; it must have at least {_MIN_SECRET_LENGTH}.")
        derived = hashlib.scrypt(secret.encode(), salt=_SALT, n=1 << 14, r=8, p=1, maxmem=1 << 26, dklen=64)
        return cls(*(KeyPair(_public(half), half) for half in (derived[:32], derived[32:])))

    @property
    def membership(self) -> None:
        return None

    def listener_of(self, number: int) -> bytes:
        return self.listener.public

    def admits(self, key: bytes) -> str | None:
        return "" if key == self.caller.public else None


class MemberKeys:
    """The key of one member, and the keys on the list: a connection identifies the member at the other end."""

    def __init__(self, identity: Identity, membership: Membership) -> None:
        self.listener = self.caller = KeyPair(identity.card.curve, identity.curve_secret)
        self._membership = membership

    @property
    def membership(self) -> Membership:
        return self._membership

    def listener_of(self, number: int) -> bytes:
        member = self._membership.newest.active.get(number)
        if member is None:
            raise ValueError(f"{number} is not the number of a member of {self._membership.newest.network}.")
        return member.card.curve

    def admits(self, key: bytes) -> str | None:
        members = self._membership.newest.active
        return next((str(number) for number, each in members.items() if each.card.curve == key), None)


def _public(secret: bytes) -> bytes:
    return bytes(z85.decode(zmq.curve_public(z85.encode(secret))))
