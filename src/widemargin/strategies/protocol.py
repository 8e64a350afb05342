"""The strategy protocol: a strategy decides how the work of a fit is shared, and turns rows into an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from widemargin.checkpoint import FitState
from widemargin.codec import record
from widemargin.problems.private_release import Release
from widemargin.problems.protocol import Problem
from widemargin.solvers.run import Limits, Progress, Result

if TYPE_CHECKING:
    from widemargin.solvers.partition_merge import Level
    from widemargin.strategies.peers import NetworkOutcome
    from widemargin.strategies.training import TrainingCounts


class Rows(NamedTuple):
    """Rows as given: ``X`` may be a list of blocks, ``y`` holds labels of any kind, ``weight`` may be None.

    If the blocks are those of a collection, which ranks may hold in any order, ``parts`` has their numbers in it.
    """

    X: Any
    y: Any
    weight: Any
    parts: list[int] | None = None


@dataclass(frozen=True)
class Plan:
    """What every strategy needs to know about a fit; plain data, so that it can be sent to other processes."""

    name: str  # of the estimator
    problem: Problem
    limits: Limits
    seed: int
    multi_class: Literal["pairs", "rest"] = "pairs"
    class_weight: Any = None
    watch_model: bool = False  # whether callbacks need the model after every sweep


@record()
class PartProgress(NamedTuple):
    """Report to callbacks after a sweep of one part."""

    part: int
    classes: np.ndarray
    begun: FitState | None  # the state before the first sweep of a fit with checkpoints, if the report has a state
    progress: Progress


# Return a stop reason, or None to continue.
Watch = Callable[[PartProgress], str | None]
WatchPart = Callable[[Progress], str | None]


def watch_part(watch: Watch, part: int, classes: np.ndarray, begun: FitState | None = None) -> WatchPart:
    """``watch`` for the sweeps of one part."""
    return lambda progress: watch(PartProgress(part, classes, None if progress.warm_state is None else begun, progress))


class Support(NamedTuple):
    """The rows that make up a linear model: their ascending numbers among those of all ranks, and coefficients."""

    numbers: np.ndarray
    coef: np.ndarray


class Outcome(NamedTuple):
    """The outcome of a fit: one result per part, and ``extra`` for what only one strategy provides.

    A tree gives the levels of each problem, a network its nodes and peers, a private release its terms.
    """

    classes: np.ndarray
    results: list[Result]
    n_features: int
    extra: list[list[Level]] | NetworkOutcome | Release | None = None
    training: TrainingCounts | None = None  # None if nobody could count all rows
    support: list[Support] | None = None  # of each linear model, at rank 0; None if a solver does not know them


class Strategy(Protocol):
    """How a fit is distributed: over ranks, over a tree of parts that are merged, or over peers."""

    def run(self, rows: Any, place: Any, watch: Watch) -> Outcome:
        """Solve the problems of all parts on ``place``: None, a number of ranks, a client or a communicator."""
