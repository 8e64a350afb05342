"""A network that fails, in this process and by a seed: what may go wrong, and the wire on which it does.

Time is in ticks. A message that is sent at tick t arrives at t + 1, if nothing happens to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from widemargin.codec import record


@record()
@dataclass(frozen=True)
class Faults:
    """What goes wrong in a simulated network.

    Parameters
    ----------
    drop : float, default=0
        The share of messages that are lost.
    delay : int or tuple of two ints, default=0
        Ticks that a message is late, or the least and the most of them.
    duplicate : float, default=0
        The share of messages that arrive twice.
    reorder : float, default=0
        The share of messages that are held back for one to five ticks more, and so overtaken.
    idle : float, default=0
        The share of ticks in which a peer does nothing.
    crash : mapping of int to int, default={}
        Peers that end, and at which tick; what is sent to them is lost.
    rejoin : mapping of int to int, default={}
        Peers that begin anew, and at which tick: with their rows, and nothing else.
    partition : sequence of (first tick, last tick, peers), default=()
        From the first to the last of these ticks, nothing passes between these peers and the others.

    Examples
    --------
    >>> from widemargin import Faults, GossipSVC
    >>> from widemargin.data import make_nonseparable
    >>> X, y = make_nonseparable(300, 4, random_state=0)
    >>> faults = Faults(drop=0.2, crash={1: 5}, rejoin={1: 20})
    >>> model = GossipSVC(alpha=1e-2, n_peers=4, faults=faults).fit(X, y)
    >>> model.stop_reason_, sorted(model.nodes_)
    ('gap', [0, 1, 2, 3])
    """

    drop: float = 0.0
    delay: int | tuple[int, int] = 0
    duplicate: float = 0.0
    reorder: float = 0.0
    idle: float = 0.0
    crash: Mapping[int, int] = field(default_factory=dict)
    rejoin: Mapping[int, int] = field(default_factory=dict)
    partition: Sequence[tuple[int, int, Sequence[int]]] = ()

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder", "idle"):
            share = getattr(self, name)
            if not 0 <= share < 1:
                raise ValueError(f"Faults({name}={share!r}) is a share of messages or ticks: it must lie in [0, 1).")
        delays = self.delay if isinstance(self.delay, tuple) else (self.delay, self.delay)
        are_ticks = len(delays) == 2 and all(isinstance(ticks, Integral) for ticks in delays)
        if not are_ticks or not 0 <= delays[0] <= delays[1]:
            raise ValueError(
                f"Faults(delay={self.delay!r}) must be a number of ticks, or the least and the most: >= 0."
            )
        for peer, tick in self.crash.items():
            if tick < 1:
                raise ValueError(f"Faults(crash={{{peer}: {tick}}}): ticks are counted from 1.")
        for first, last, peers in self.partition:
            if not 1 <= first <= last or not len(peers):
                raise ValueError(
                    f"Faults(partition=[({first}, {last}, {list(peers)})]) must be a first tick of at least 1, "
                    "a last one that is not before it, and some peers."
                )
        for name in ("crash", "rejoin"):
            for peer, tick in getattr(self, name).items():
                if not (isinstance(peer, Integral) and isinstance(tick, Integral) and int(tick) >= 0):
                    raise ValueError(f"Faults({name}={{{peer!r}: {tick!r}}}): peers and ticks are whole numbers, >= 0.")
        for peer, tick in self.rejoin.items():
            if peer not in self.crash or tick <= self.crash[peer]:
                raise ValueError(f"Faults(rejoin={{{peer}: {tick}}}): peer {peer} must have crashed before that tick.")

    @property
    def delays(self) -> tuple[int, int]:
        """The least and the most ticks that a message is late."""
        return self.delay if isinstance(self.delay, tuple) else (self.delay, self.delay)

    def are_over_at(self, tick: int) -> bool:
        """Whether no crash, return or partition is still to come, and none that will end is there, at this tick."""
        ends = [last + 1 for _, last, _ in self.partition]
        return tick >= max([0, *self.crash.values(), *self.rejoin.values(), *ends])


@dataclass
class FaultyWire:
    """Messages under way."""

    faults: Faults
    rng: np.random.Generator
    now: int = 0
    _under_way: dict[int, list[tuple[int, Any]]] = field(default_factory=dict)

    def send(self, sender: int, to: int, message: Any) -> None:
        """Put a message on its way, or lose it."""
        faults, rng = self.faults, self.rng
        if self.is_cut(sender, to) or (faults.drop and rng.random() < faults.drop):
            return
        for _ in range(2 if faults.duplicate and rng.random() < faults.duplicate else 1):
            low, high = faults.delays
            late = int(rng.integers(low, high + 1)) if high else 0
            if faults.reorder and rng.random() < faults.reorder:
                late += int(rng.integers(1, 6))
            self._under_way.setdefault(self.now + 1 + late, []).append((to, message))

    def arrivals(self) -> list[tuple[int, Any]]:
        """Let a tick pass; what arrives, and at whom."""
        self.now += 1
        return self._under_way.pop(self.now, [])

    def is_cut(self, one: int, other: int) -> bool:
        """Whether a partition keeps these two apart now."""
        return any(
            first <= self.now <= last and (one in peers) != (other in peers)
            for first, last, peers in self.faults.partition
        )
