"""The records that one peer has received about one topic: a proposal, a query, or the snapshots of a tick."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from widemargin.peers.store import HANDLE, NONE, Members


class News(NamedTuple):
    """What a peer learns from some records."""

    handles: np.ndarray  # of those that are newer than what was known
    before: np.ndarray  # what was known in their place
    known: np.ndarray  # keys of those that were known


@dataclass
class Collection:
    """The received records about one topic, by slot."""

    handles: np.ndarray
    count: int = 0

    def add(self, slots: np.ndarray, handles: np.ndarray, n_slots: int) -> None:
        if n_slots > len(self.handles):
            self.handles = np.concatenate([self.handles, np.zeros(n_slots - len(self.handles), HANDLE)])
        self.count += int(np.count_nonzero(self.handles[slots] == NONE))
        self.handles[slots] = handles

    def drop(self, slot: int) -> None:
        if slot < len(self.handles) and self.handles[slot] != NONE:
            self.handles[slot] = NONE
            self.count -= 1

    def of(self, members: Members) -> np.ndarray | None:
        """The records of all members, in their order; None if one is missing."""
        if self.count < len(members) or members.slots.max() >= len(self.handles):
            return None
        handles = self.handles[members.slots]
        return handles if handles.all() else None
