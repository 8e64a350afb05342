"""Who works together in a fit: every strategy turns rows into an outcome, where it was told to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from widemargin.checkpoint import FitState
from widemargin.codec import record
from widemargin.problems.protocol import Problem
from widemargin.solvers.run import Limits, Progress, Result


class Rows(NamedTuple):
    """Rows as they came: ``X`` may be a list of pieces; labels of any kind; ``weight`` may be None."""

    X: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class Plan:
    """What every strategy has to know of a fit; plain data, so that it can be sent to other processes."""

    name: str  # of the estimator
    problem: Problem
    limits: Limits
    seed: int
    multi_class: Literal["pairs", "rest"] = "pairs"
    class_weight: Any = None
    watch_model: bool = False  # whether callbacks want the model after every sweep


@record()
class PartProgress(NamedTuple):
    """What those who watch a fit are told after a sweep of one of its parts."""

    part: int
    classes: np.ndarray
    fresh: FitState | None  # the state of this fit before its first sweep, where a checkpoint is kept
    progress: Progress


# Returns a stop reason, or None to go on.
Watch = Callable[[PartProgress], str | None]


class Outcome(NamedTuple):
    """What came out of a fit: one result for each part, and what only this strategy has."""

    classes: np.ndarray
    results: list[Result]
    n_features: int
    extra: Any = None


class Strategy(Protocol):
    """How the rows of a fit are worked on together: by ranks, by a tree of parts that are merged, or by peers."""

    def run(self, rows: Any, place: Any, watch: Watch) -> Outcome:
        """Solve the problem of every part on ``place``: None, a number of ranks, a client or a communicator."""
