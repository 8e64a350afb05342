"""The peers that a peer can write to, and others that it could reach if too many of its neighbours fall silent.

Neighbours regularly tell each other which peers they hear from. A peer that hears from too few neighbours writes to one
of these others. So a network stays connected when the peer in its middle is gone.
"""

import math
from collections.abc import Iterable

import numpy as np

HEARD_SECONDS = 5.0  # for which the sender of a message counts as present
TELL_SECONDS = 1.0  # between two lists of neighbours to the same neighbour
MOST_TOLD = 16  # neighbours in a list
_MOST_KNOWN = 64  # peers named by neighbours
_KNOWN_SECONDS = 60.0  # for which they are remembered
_SILENT_SECONDS = 1.0  # without a message, after which a peer introduces itself again
_REACH_SECONDS = 2.0  # to wait for the answer of one peer, before the next is tried


class Contacts:
    """The addresses of other peers, and when each was heard, in seconds of one clock."""

    def __init__(self, degree: int, rng: np.random.Generator) -> None:
        self.addresses: dict[int, str] = {}  # of neighbours
        self._degree, self._rng = degree, rng  # neighbours that a peer wants to hear from
        self._others: dict[int, tuple[str, float]] = {}  # those that neighbours hear from, and when they were told of
        self._heard: dict[int, float] = {}
        self._introduced: dict[int, float] = {}
        self._told: dict[int, float] = {}
        self._reached = -math.inf

    def hear(self, number: int, now: float) -> None:
        if number in self.addresses:
            self._heard[number] = now

    def note_introduction(self, number: int, now: float) -> None:
        self._introduced[number] = now

    def is_silent(self, number: int, now: float) -> bool:
        """Whether it is time to introduce oneself to a neighbour, for the first time or again."""
        last = max(self._heard.get(number, -math.inf), self._introduced.get(number, -math.inf))
        return last < now - _SILENT_SECONDS

    def present(self, now: float) -> list[tuple[int, str]]:
        """Neighbours that were heard lately, with their addresses."""
        return [(j, at) for j, at in self.addresses.items() if self._heard.get(j, -math.inf) >= now - HEARD_SECONDS]

    def is_to_be_told(self, number: int, now: float) -> bool:
        """Whether a neighbour is due a list of neighbours; it counts as told from now on."""
        is_due = self._told.get(number, -math.inf) < now - TELL_SECONDS
        if is_due:
            self._told[number] = now
        return is_due

    def learn(self, peers: Iterable[tuple[int, str]], now: float) -> None:
        """Remember peers that a neighbour hears from; drop the oldest if there are too many."""
        for number, address in peers:
            self._others.pop(number, None)
            self._others[number] = address, now
        for number in list(self._others)[:-_MOST_KNOWN]:
            del self._others[number]

    def reach_out(self, now: float) -> tuple[int, str] | None:
        """A peer to write to if too few neighbours are present; None if enough are, or nobody else is known."""
        if now < self._reached + _REACH_SECONDS:
            return None
        self._reached, present = now, dict(self.present(now))
        found = [(j, at) for j, (at, told) in self._others.items() if j not in present and told >= now - _KNOWN_SECONDS]
        if len(present) >= self._degree or not found:
            return None
        return found[int(self._rng.integers(len(found)))]

    def forget(self, number: int) -> None:
        for known in (self.addresses, self._heard, self._introduced, self._told):
            known.pop(number, None)
