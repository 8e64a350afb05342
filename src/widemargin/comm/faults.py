"""Faults of a simulated network, reproducible by a seed.

Time is in ticks. A message sent at tick t arrives at t + 1 unless a fault hits it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from widemargin.codec import record


@record()
@dataclass(frozen=True)
class Faults:
    """Faults of a simulated network.

    Parameters
    ----------
    drop : float, default=0
        Share of messages that are lost.
    delay : int or tuple of two ints, default=0
        Ticks by which messages are late, or the least and the most.
    duplicate : float, default=0
        Share of messages that arrive twice.
    reorder : float, default=0
        Share of messages that are delayed by one to five more ticks, so that later ones overtake them.
    idle : float, default=0
        Share of ticks in which a peer does nothing.
    crash : mapping of int to int, default={}
        Peers that crash, each with its tick; messages to them are lost.
    rejoin : mapping of int to int, default={}
        Peers that restart after a crash, each with its tick; they keep only their rows.
    partition : sequence of (first tick, last tick, peers), default=()
        No message passes between these peers and the others from the first to the last tick.

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
                raise ValueError(f"Faults({name}={share!r}) must be a share of messages or ticks, in [0, 1).")
        delays = self.delays
        are_ticks = len(delays) == 2 and all(isinstance(ticks, Integral) for ticks in delays)
        if not are_ticks or not 0 <= delays[0] <= delays[1]:
            raise ValueError(
                f"Faults(delay={self.delay!r}) must be a number of ticks, or the least and the most, >= 0."
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
        """The least and the most ticks by which messages are late."""
        return self.delay if isinstance(self.delay, tuple) else (self.delay, self.delay)

    def are_over_at(self, tick: int) -> bool:
        """Whether all crashes, restarts and partitions are over at this tick."""
        ends = [last + 1 for _, last, _ in self.partition]
        return tick >= max([0, *self.crash.values(), *self.rejoin.values(), *ends])


@dataclass
class FaultyWire:
    """Carries the messages of a simulated network."""

    faults: Faults
    rng: np.random.Generator
    now: int = 0
    _in_flight: dict[int, list[tuple[int, Any]]] = field(default_factory=dict)

    def send(self, sender: int, to: int, message: Any) -> None:
        """Send a message, or lose it."""
        faults, rng = self.faults, self.rng
        if self.is_cut(sender, to) or (faults.drop and rng.random() < faults.drop):
            return
        for _ in range(2 if faults.duplicate and rng.random() < faults.duplicate else 1):
            low, high = faults.delays
            late = int(rng.integers(low, high + 1)) if high else 0
            if faults.reorder and rng.random() < faults.reorder:
                late += int(rng.integers(1, 6))
            self._in_flight.setdefault(self.now + 1 + late, []).append((to, message))

    def arrivals(self) -> list[tuple[int, Any]]:
        """Advance by one tick; the addressees and messages that arrive."""
        self.now += 1
        return self._in_flight.pop(self.now, [])

    def is_cut(self, one: int, other: int) -> bool:
        """Whether a partition separates these two now."""
        if not self.faults.partition:
            return False
        return any(
            first <= self.now <= last and (one in peers) != (other in peers)
            for first, last, peers in self.faults.partition
        )
