"""What a solver is: seventeen verbs, four of them required; one loop (:mod:`widemargin.solvers.run`) calls them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems.protocol import Certificate, Problem

State = TypeVar("State")
Model = TypeVar("Model")
Warm: TypeAlias = np.ndarray | None  # the warm state of an earlier run


class Inputs(NamedTuple):
    """What a solver is started with."""

    problem: Any
    shard: Shard
    comm: Communicator
    rng: Generator


class Solver(ABC, Generic[State, Model]):
    """An algorithm for some problems, one sweep at a time.

    A solver holds step-size rules only; its progress is in its state. Every rank calls every verb, and all values that
    decide the control flow are equal on all ranks. A sweep is long enough that a Python call per sweep costs nothing.
    Ctrl-C, the progress line and a time limit act between sweeps; one that may take longer than a second pauses
    (``widemargin.pauses``), and either ends early or raises TimeIsUp and leaves its state as good as it was.

    ``start``, ``sweep``, ``certify`` and ``extract`` are required; the other verbs have defaults.

    Examples
    --------
    >>> from widemargin.api import Solver
    >>> sorted(Solver.__abstractmethods__)
    ['certify', 'extract', 'solves', 'start', 'sweep']
    """

    @property
    @abstractmethod
    def solves(self) -> tuple[type, ...]:
        """The classes of problems that this solver solves, usually a class attribute; ``run`` refuses others."""

    @abstractmethod
    def start(self, problem: Any, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """The first state; ``warm`` is the warm state of an earlier run. ``rng`` is equal on all ranks."""

    @abstractmethod
    def sweep(self, state: State) -> State:
        """One pass over the rows, or one round of communication."""

    @abstractmethod
    def certify(self, state: State) -> Certificate | None:
        """The best two-sided bound so far; None while there is none."""

    @abstractmethod
    def extract(self, state: State) -> Model:
        """The model of the best state so far."""

    def confirm(self, state: State, latest: Certificate | None) -> Certificate:
        """The final certificate; solvers that sweep in lower precision compute it in float64 here."""
        assert latest is not None
        return latest

    def unconfirmed(self, state: State, latest: Certificate | None) -> Certificate:
        """What can be proved at once, where ``confirm`` raised TimeIsUp."""
        assert latest is not None
        return latest

    def values_to_confirm(self, state: State) -> float:
        """Kernel values that ``confirm`` computes on this rank: time that a limit must leave."""
        return 0.0

    def stop_reason(self, state: State) -> str | None:
        """Why to stop although the gap is open, such as ``"overlap"`` or ``"precision"``; None to go on."""
        return None

    def allowance(self, state: State) -> float:
        """The part of the latest gap that allows for rounding; a run stops when no more than that can be won."""
        return 0.0

    def warm_state(self, state: State) -> np.ndarray | None:
        """What a later run can start from, equal on all ranks: coefficients or dual variables."""
        return None

    def compact(self, state: State) -> Certificate | None:
        """Make the model smaller at the end and return its certificate; None to leave it as it is."""
        return None

    def diagnostics(self, state: State) -> dict[str, float]:
        """Further numbers for the history, such as the largest violation of the optimality conditions."""
        return {}

    def scores(self, state: State) -> np.ndarray | None:
        """What the model of ``extract`` scores on this rank's rows, if that is known at the end of a run."""
        return None

    def coefficients(self, state: State, model: Model) -> np.ndarray | None:
        """The coefficient of each of this rank's rows in a linear model of ``extract``, at the end of a run.

        Their sum of rows is ``coef`` but for what the gap leaves open. None, on all ranks alike, where no such sum is
        known.
        """
        return None

    def for_rows(self, shard: Shard, comm: Communicator, warm: Warm) -> AnySolver:
        """The solver that runs on these rows: another one where the rows alone decide which."""
        return self

    def bytes_beside_others(self, state: State) -> int | None:
        """How much memory the next sweep takes, if it is short and can be computed beside those of other runs.

        None: it is long, or uses what others use, or is not worth another thread.
        """
        return None

    def take_over(self, other: AnySolver, state: Any, inputs: Inputs) -> State:
        """The first state after another solver of the same problem has stalled; by default, from its warm state."""
        return self.start(*inputs, other.warm_state(state))

    def refuse_unless_solved(self, problem: Problem) -> None:
        """Raise TypeError for a problem that this solver does not solve."""
        if not isinstance(problem, self.solves):
            names = " or ".join(kind.__name__ for kind in self.solves)
            raise TypeError(f"{type(self).__name__} solves {names}, not {type(problem).__name__}.")


AnySolver: TypeAlias = Solver[Any, Any]
