"""What passes between peers, what each of them counts, and what is asked of the algorithm in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from widemargin.peers.claims import Portrait, Record
from widemargin.peers.rows import PeerRows


class Message(NamedTuple):
    """What goes from one peer to another."""

    sender: int
    number: int  # of the letter; a lower one than the last heard is stale
    letter: np.ndarray
    records: Sequence[Record]
    heard: int  # number of the last letter that came from the one it is written to
    heard_before: int  # bit k: the one of k + 1 numbers before it came, too
    n_bytes: int  # of the numbers in it


class Algorithm(Protocol):
    """What one peer computes, and what it writes to neighbours."""

    rows: PeerRows
    model: np.ndarray  # (problems, d)

    @property
    def letter_shape(self) -> tuple[int, ...]:
        """Of all letters that are written and heard."""

    def work(self) -> None:
        """One tick of work on the own rows."""

    def letter(self, to: int) -> np.ndarray:
        """What a neighbour is told, as it is written now."""

    def hear(self, sender: int, letter: np.ndarray) -> None:
        """Take in what a neighbour wrote."""

    def lose(self, neighbour: int) -> None:
        """Forget a neighbour that has fallen silent."""

    def check(self, rows: PeerRows) -> None:
        """ValueError where these rows cannot be taken in beside those that are there."""

    def gain(self, rows: PeerRows) -> None:
        """Rows have arrived: they are checked, and then taken in."""

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """A and V of some dual variables of the own rows."""

    def portrait(self, peer: int, number: int) -> Portrait | None:
        """What all are told of the own features; None for nothing."""

    def adopt(self, portraits: list[Portrait]) -> None:
        """Use what these peers tell of their features."""

    def suggest(self) -> float:
        """A positive number that all would better use, and of which they take the geometric mean."""

    def agree(self, stiffness: float) -> None:
        """Use that mean."""


@dataclass
class Traffic:
    """What a peer has sent and received."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    refused: int = 0  # stale letters; messages of strangers, or whose numbers are not finite, or too many or few
