"""What a solver is: four verbs, always in this order, and one run loop that calls them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from widemargin.comm._protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems._protocol import Certificate


class Separator(NamedTuple):
    """A linear decision function ``x . coef + intercept``, and what else a problem reports of it."""

    coef: np.ndarray
    intercept: float
    report: dict[str, Any]


class Solver(Protocol):
    """How one sweep goes.

    A solver holds step-size rules only; where it stands lives in its state. Every rank calls every verb, and all that
    decides the flow is equal on all ranks. A sweep is coarse enough that a Python call per sweep is free, and fine
    enough that Ctrl-C, a progress line and a time limit act within about a second.
    """

    def start(
        self, problem: Any, shard: Shard, comm: Communicator, rng: np.random.Generator, warm: np.ndarray | None
    ) -> Any:
        """The first state; ``warm`` is the direction of an earlier model. ``rng`` is equal on all ranks."""

    def sweep(self, state: Any) -> Any:
        """One pass, or one round of exchange."""

    def certify(self, state: Any) -> Certificate | None:
        """A true bound on both sides, the best so far; None while there is none."""

    def verdict(self, state: Any) -> str | None:
        """Why to stop before the gap is closed, where the problem itself says so."""

    def direction(self, state: Any) -> np.ndarray:
        """The best direction so far, from which a later run may start."""

    def extract(self, state: Any) -> Separator:
        """The model of the best state so far."""
