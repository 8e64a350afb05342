"""The cost of a fit: traffic, kernel evaluations and time, counted where they occur."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from widemargin.codec import record
from widemargin.compiled.clock import CLOCK

COMPILING = "compile"  # the phase of compilation, in all other phases; first fits have it


class Ranked(Protocol):
    rank: int
    size: int


class _Phase:
    """Not a generator: fits on few rows take so little time that they would notice."""

    __slots__ = ("_begin", "_compiled", "_name", "_seconds")

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name, self._begin, self._compiled = seconds, name, 0.0, 0.0

    def __enter__(self) -> None:
        self._begin, self._compiled = time.perf_counter(), CLOCK.seconds

    def __exit__(self, *error: object) -> None:
        elapsed, compiling = time.perf_counter() - self._begin, CLOCK.seconds - self._compiled
        if compiling > 0.0:
            compiling = min(compiling, elapsed)  # another thread may have begun before this phase
            self._seconds[COMPILING] = self._seconds.get(COMPILING, 0.0) + compiling
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + elapsed - compiling


@record()
@dataclass
class Ledger:
    """Cost counters of a fit, for one rank or summed over all.

    Parameters
    ----------
    rounds : int, default=0
        Collective exchanges, the same number on every rank.
    messages, scalars, bytes : int, default=0
        Messages sent between ranks, and their size.
    kernel_evaluations : int, default=0
        Kernel values that were computed.
    cache_hits, cache_misses : int, default=0
        Kernel rows found, and not found, in the cache.
    lost_peers : int, default=0
        Ranks that were lost during the fit.
    seconds : dict of str to float
        Wall-clock time per phase, measured on rank 0. ``"compile"`` is what compilation took in any of them, or loading
        compiled code: a first fit has it.

    Examples
    --------
    >>> from widemargin import HardMarginSVC
    >>> model = HardMarginSVC(cluster=2).fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1])
    >>> model.cost_.messages > 0, model.cost_.bytes > 0, model.cost_.kernel_evaluations
    (True, True, 0)
    >>> sorted(model.cost_.seconds)
    ['certify', ..., 'sweep']
    """

    TRAFFIC: ClassVar = ("messages", "scalars", "bytes", "kernel_evaluations", "cache_hits", "cache_misses")

    rounds: int = 0
    messages: int = 0
    scalars: int = 0
    bytes: int = 0
    kernel_evaluations: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    lost_peers: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def sent(self, values: np.ndarray, copies: int = 1) -> None:
        """Count an array that this rank sent, ``copies`` times."""
        self.messages += copies
        self.scalars += copies * -(-values.nbytes // 8)  # a scalar is 8 bytes, of any dtype
        self.bytes += copies * values.nbytes

    def exchanged(self, comm: Ranked, up: np.ndarray | None, down: np.ndarray | None, centre: int = 0) -> None:
        """Count what this rank sends in a round: every rank sends ``up`` to the centre, which sends ``down`` to all."""
        self.rounds += 1
        if comm.rank != centre and up is not None:
            self.sent(up)
        elif comm.rank == centre and down is not None:
            self.sent(down, copies=comm.size - 1)

    def phase(self, name: str) -> _Phase:
        """Add the time spent inside the block to the named phase, but for compilation, which is a phase of its own."""
        return _Phase(self.seconds, name)

    def counts(self) -> dict[str, int]:
        """The counters, as entries of a history."""
        return {
            "rounds": self.rounds,
            "messages": self.messages,
            "scalars": self.scalars,
            "bytes": self.bytes,
            "kernel_evaluations": self.kernel_evaluations,
            "cache_hits": self.cache_hits,
            "cache_misses": self.cache_misses,
        }

    def in_units(self, n_ranks: int, n_features: int) -> float:
        """Scalars sent, in the unit of the distributed SVM literature: one row per rank, ``k * d``."""
        return self.scalars / (n_ranks * n_features)

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger.total([self, other])

    @classmethod
    def total(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """The sum of at least one; several runs lose the same ranks."""
        if len(ledgers) == 1:
            return ledgers[0]
        seconds: dict[str, float] = {}
        for ledger in ledgers:
            for name, value in ledger.seconds.items():
                seconds[name] = seconds.get(name, 0.0) + value
        of_each = [ledger.counts() for ledger in ledgers]
        counts = {name: sum(counts[name] for counts in of_each) for name in of_each[0]}
        return cls(**counts, lost_peers=max(ledger.lost_peers for ledger in ledgers), seconds=seconds)
