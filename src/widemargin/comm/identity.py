"""Identities of owners: an Ed25519 key for signatures, and a CURVE key for connections that the first key certifies.

An owner keeps the file of its identity secret; the card that goes with it is public. The organiser of a network has an
identity, too, puts the cards of members on a list, and signs the list (``members``).

All signed bytes begin with their purpose, so that a signature for one purpose is not valid for another.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple, Self

from nacl.exceptions import BadSignatureError
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey

from widemargin.data.files import write_whole

KEY_BYTES, SIGNATURE_BYTES = 32, 64
_FORMAT = "widemargin identity 1"
_CARD = b"widemargin card 1\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_FILE_BYTES = 10_000


def check_name(name: Any) -> str:
    """Return the name if it is allowed for owners and networks; else raise ValueError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name: 1 to 64 letters, digits, '.', '_' or '-', no '.', '_' or '-' first.")
    return name


def is_signed_by(key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of this public key signed these bytes."""
    try:
        VerifyKey(key).verify(data, signature)
    except (BadSignatureError, ValueError):  # ValueError: a key or signature of another length
        return False
    return True


class Card(NamedTuple):
    """What others need to know about an owner: name and public keys, signed by the owner."""

    name: str
    key: bytes  # Ed25519, for signatures
    curve: bytes  # Curve25519, for connections
    signature: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the card in a file; ValueError if there is none."""
        return cls.of(_json_in(path, "card"), str(path))

    @classmethod
    def of(cls, content: Any, where: str) -> Self:
        """The card in parsed JSON; ValueError unless it is complete and signed by its own key."""
        try:
            keys = (bytes.fromhex(content[name]) for name in ("key", "curve", "signature"))
            card = cls(check_name(content["name"]), *keys)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{where} is not the card of an owner: {what_is_wrong(error)}. "
                "widemargin peer keygen writes the card as NAME.card."
            ) from error
        if (len(card.key), len(card.curve)) != (KEY_BYTES, KEY_BYTES):
            raise ValueError(f"{where} is not the card of an owner: its keys must have {KEY_BYTES} bytes.")
        if not is_signed_by(card.key, card._signed(), card.signature):
            raise ValueError(f"{where} is not signed by its own key: ask {card.name} for the card again.")
        return card

    def content(self) -> dict[str, str]:
        """As JSON."""
        return {
            "name": self.name,
            "key": self.key.hex(),
            "curve": self.curve.hex(),
            "signature": self.signature.hex(),
        }

    def _signed(self) -> bytes:
        return _CARD + self.name.encode() + b"\n" + self.curve


class Identity:
    """The secret keys and the public card of an owner; :meth:`create` makes new ones."""

    def __init__(self, name: str, seed: bytes, curve_secret: bytes) -> None:
        self.name = check_name(name)
        self.curve_secret = curve_secret
        self._key = SigningKey(seed)
        curve = bytes(PrivateKey(curve_secret).public_key)
        card = Card(name, bytes(self._key.verify_key), curve, b"")
        self.card = card._replace(signature=self.sign(card._signed()))

    @classmethod
    def create(cls, name: str) -> Self:
        """A new identity with random keys."""
        return cls(name, bytes(SigningKey.generate()), bytes(PrivateKey.generate()))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the identity in a file; ValueError if there is none."""
        content = _json_in(path, "identity")
        try:
            if content["format"] != _FORMAT:
                raise ValueError("another format")
            return cls(content["name"], bytes.fromhex(content["seed"]), bytes.fromhex(content["curve"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is not an identity: widemargin peer keygen writes the identity as NAME.key."
            ) from error

    def write(self, path: Path) -> None:
        """Write a new file that only its owner can read; FileExistsError if the file exists."""
        seed, curve = bytes(self._key).hex(), self.curve_secret.hex()
        content = {"format": _FORMAT, "name": self.name, "seed": seed, "curve": curve}
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # whose mode the file keeps
        write_whole(path, (json.dumps(content, indent=1) + "\n").encode())

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes."""
        return bytes(self._key.sign(data).signature)


def is_open_to_others(path: Path) -> bool:
    """Whether other users of this machine can read a file."""
    return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def what_is_wrong(error: Exception) -> str:
    """Why JSON is not what was expected, for a message."""
    if isinstance(error, KeyError):
        return f"it has no field {error}"
    return "its fields have wrong types" if isinstance(error, TypeError) else str(error).rstrip(".")


def _json_in(path: Path, what: str) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ValueError(f"it has more than {_MAX_FILE_BYTES:,} bytes")
        return json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", error)
        raise ValueError(
            f"Cannot read the {what} in {path}: {why}. widemargin peer keygen writes NAME.key and NAME.card."
        ) from error
