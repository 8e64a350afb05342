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

    Three verbs more are optional. ``confirm(state)`` gives the certificate once more, computed in float64, before it is
    believed, for solvers that work in less. ``compact(state)``, at the end, makes a smaller model and gives its
    certificate, or None if there is nothing to do. ``diagnostics(state)`` gives numbers for the history.
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
        """What a later run may start from, equal on all ranks: the best direction so far, or dual variables."""

    def extract(self, state: Any) -> Any:
        """The model of the best state so far."""
