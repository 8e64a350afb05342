"""``solver="auto"``: several solvers of one problem, of which one begins and the next takes over when it stalls.

    solver of                    begins                                    hands over
    hard margin, nu              the first                                 when the gap stalls
    linear C-SVM                 Newton if features are few, else passes   when the gap stalls
    linear C-SVM on few rows     steps on pairs of rows                    after one sweep, to the solvers above
    kernel C-SVM                 the exact solver if it can finish         never
    exact kernel C-SVM           all kernel values at once if they fit     never
    kernel margin distribution   coordinate steps                          when epochs of them leave much of the gap

Bounds hold for the problem, whichever solver found them: a solver that takes over keeps those of the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems.protocol import Certificate
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.dual_descent import DualDescent
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_descent import State as MarginState
from widemargin.solvers.margin_newton import MarginNewton
from widemargin.solvers.multipliers import Multipliers
from widemargin.solvers.protocol import AnySolver, Inputs, Solver, Warm
from widemargin.solvers.small_dual import MAX_ROWS, SmallDual, SmallLinearDual

_MAX_EXACT_ROWS = 200_000
# For a cautious estimate of the time of the exact solver: its kernel values, by those of all pairs of rows, and the
# kernel values that a rank computes in a second.
_KERNEL_PASSES = 1.0
_MASS_RATIO, _LEAST_SHARE = 8.0, 0.02  # few rows of one class leave few support vectors of the other
_VALUES_PER_SECOND = 2e8
_MAX_WARM_NEWTON_ROWS = 4096


First: TypeAlias = Callable[[Shard, Communicator, Warm], int]  # which candidate begins, equal on all ranks


class HandOver(ABC):
    """When a candidate hands over to the next; a fresh copy of the rule watches each candidate."""

    @abstractmethod
    def is_due(self, solver: Any, state: Any, certificate: Certificate) -> bool:
        """Called after each sweep that was certified; equal on all ranks."""


def always_first(shard: Shard, comm: Communicator, warm: Warm) -> int:
    return 0


@dataclass(frozen=True)
class WarmAndFew:
    """The second candidate for a warm start of at most ``max_rows`` rows, else the first."""

    max_rows: int

    def __call__(self, shard: Shard, comm: Communicator, warm: Warm) -> int:
        return int(warm is not None and int(comm.allreduce(np.array([float(shard.n_rows)]))[0]) <= self.max_rows)


@dataclass(frozen=True)
class FewFeatures:
    """The second candidate for a warm start or at most ``max_features``, else the first."""

    max_features: int

    def __call__(self, shard: Shard, comm: Communicator, warm: Warm) -> int:
        return int(warm is not None or shard.n_features <= self.max_features)


@dataclass(frozen=True)
class Affordable:
    """The first candidate, an exact kernel solver, if it can be expected to finish in ``max_time``; else the second."""

    max_time: float = np.inf

    def __call__(self, shard: Shard, comm: Communicator, warm: Warm) -> int:
        if comm.size == 1 and self.max_time == np.inf:
            return int(shard.n_rows > _MAX_EXACT_ROWS)
        n_rows, n_positive = comm.allreduce(np.array([float(shard.n_rows), float(np.count_nonzero(shard.y > 0))]))
        smaller = min(n_positive, n_rows - n_positive) / max(n_rows, 1.0)
        passes = _KERNEL_PASSES * min(1.0, _MASS_RATIO * smaller + _LEAST_SHARE)
        seconds = passes * n_rows**2 / (_VALUES_PER_SECOND * comm.size)
        return int(n_rows > _MAX_EXACT_ROWS or seconds > self.max_time)


@dataclass(frozen=True)
class FewRows:
    """The first candidate, on one rank, if all kernel values between rows fit in ``cache_bytes``; else the second.

    Also the second for a warm start, if it ``needs_cold`` ones.
    """

    cache_bytes: int
    needs_cold: bool = False

    def __call__(self, shard: Shard, comm: Communicator, warm: Warm) -> int:
        are_many = comm.size > 1 or shard.n_rows > MAX_ROWS or 8 * shard.n_rows**2 > self.cache_bytes
        return int(are_many or (self.needs_cold and warm is not None))


@dataclass
class Stalled(HandOver):
    """``patience`` certificates after the last one that halved the gap, or the primal, which falls where hulls meet."""

    patience: int = 10
    reference: Certificate = field(default_factory=Certificate)
    n_stalled: int = 0

    def is_due(self, solver: Any, state: Any, certificate: Certificate) -> bool:
        if certificate.gap <= self.reference.gap / 2 or certificate.primal <= self.reference.primal / 2:
            self.reference, self.n_stalled = certificate, 0
        else:
            self.n_stalled += 1
        return self.n_stalled >= self.patience


@dataclass
class Unfinished(HandOver):
    """After the first sweep, which is to reach ``target``, if it has not."""

    target: float

    def is_due(self, solver: Any, state: Any, certificate: Certificate) -> bool:
        return certificate.relative > self.target


@dataclass
class SlowDescent(HandOver):
    """After ``epochs`` of coordinate steps, once the last two epochs leave more than ``slow`` of the gap.

    Blocks of coordinate steps close the gap fast on most problems. Where C is very large, or ``tol`` very small, they
    become slow, and a Newton step costs as much as a few epochs.
    """

    epochs: float = 4.0
    slow: float = 0.7  # 0: right after the epochs
    gaps: tuple[float, ...] = ()  # relative, after each block

    def is_due(self, solver: MarginDescent, state: MarginState, certificate: Certificate) -> bool:
        self.gaps = *self.gaps, certificate.relative
        n_rows = state.values.n_all
        if len(self.gaps) * solver.block_rows < self.epochs * n_rows:
            return False
        n_blocks = max(1, round(2 * n_rows / solver.block_rows))
        is_slow = len(self.gaps) > n_blocks and self.gaps[-1] > self.slow * self.gaps[-1 - n_blocks]
        return is_slow or self.slow == 0


class AutoState(NamedTuple):
    number: int  # of the candidate at work
    inner: Any  # its state
    inputs: Inputs
    hand_over: HandOver | None  # the rule that watches this candidate; None for the last


@dataclass(frozen=True)
class Auto(Solver[AutoState, Any]):
    """Begins with the candidate that ``first`` names and goes on to the next when ``hand_over`` says so.

    A candidate that hands over certifies twice a sweep. If it has a reason to stop, that is reported instead.
    """

    candidates: tuple[AnySolver, ...]
    first: First = always_first
    hand_over: HandOver | None = None  # None: never

    @cached_property
    def solves(self) -> tuple[type, ...]:
        return tuple(kind for kind in self.candidates[0].solves if all(kind in one.solves for one in self.candidates))

    def for_rows(self, shard: Shard, comm: Communicator, warm: Warm) -> AnySolver:
        """The candidate that begins, if it never hands over."""
        if self.hand_over is not None:
            return self
        return self.candidates[self.first(shard, comm, warm)].for_rows(shard, comm, warm)

    def start(self, problem: Any, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> AutoState:
        number, inputs = self.first(shard, comm, warm), Inputs(problem, shard, comm, rng)
        return AutoState(number, self.candidates[number].start(*inputs, warm), inputs, self._rule(number))

    def sweep(self, state: AutoState) -> AutoState:
        solver = self.candidates[state.number]
        state = state._replace(inner=solver.sweep(state.inner))
        if state.hand_over is None:
            return state
        certificate = solver.certify(state.inner)
        is_due = certificate is not None and state.hand_over.is_due(solver, state.inner, certificate)
        if not is_due or solver.stop_reason(state.inner) is not None:
            return state
        number = state.number + 1
        inner = self.candidates[number].take_over(solver, state.inner, state.inputs)
        return AutoState(number, inner, state.inputs, self._rule(number))

    def _rule(self, number: int) -> HandOver | None:
        return copy(self.hand_over) if number + 1 < len(self.candidates) else None

    def certify(self, state: AutoState) -> Certificate | None:
        return self.candidates[state.number].certify(state.inner)

    def confirm(self, state: AutoState, latest: Certificate | None) -> Certificate:
        return self.candidates[state.number].confirm(state.inner, latest)

    def unconfirmed(self, state: AutoState, latest: Certificate | None) -> Certificate:
        return self.candidates[state.number].unconfirmed(state.inner, latest)

    def values_to_confirm(self, state: AutoState) -> float:
        return self.candidates[state.number].values_to_confirm(state.inner)

    def stop_reason(self, state: AutoState) -> str | None:
        return self.candidates[state.number].stop_reason(state.inner)

    def allowance(self, state: AutoState) -> float:
        return self.candidates[state.number].allowance(state.inner)

    def warm_state(self, state: AutoState) -> np.ndarray | None:
        return self.candidates[state.number].warm_state(state.inner)

    def compact(self, state: AutoState) -> Certificate | None:
        return self.candidates[state.number].compact(state.inner)

    def diagnostics(self, state: AutoState) -> dict[str, float]:
        return self.candidates[state.number].diagnostics(state.inner)

    def extract(self, state: AutoState) -> Any:
        return self.candidates[state.number].extract(state.inner)

    def scores(self, state: AutoState) -> np.ndarray | None:
        return self.candidates[state.number].scores(state.inner)

    def coefficients(self, state: AutoState, model: Any) -> np.ndarray | None:
        return self.candidates[state.number].coefficients(state.inner, model)


def kernel_csvm(cache_bytes: int, tol: float, max_support: int | None = None) -> Auto:
    """The exact kernel C-SVM: on few rows with all kernel values at once, else on working sets."""
    candidates = SmallDual(tol, max_support, cache_bytes), BlockDual(cache_bytes, tol, max_support)
    return Auto(candidates, FewRows(cache_bytes))


def linear_csvm(passes: DualDescent | None = None, newton: Multipliers | None = None, patience: int = 8) -> Auto:
    """The linear C-SVM: Newton steps where features are few; where they are many, coordinate passes until they stall.

    Passes are cheaper the fewer features a row has, Newton steps the fewer rows are free.
    """
    passes, newton = passes or DualDescent(), newton or Multipliers()
    return Auto((passes, newton), FewFeatures(newton.direct_features), Stalled(patience))


def small_linear_csvm(cache_bytes: int, tol: float) -> Auto:
    """The linear C-SVM on few rows: steps on pairs of rows, then, where these are slow, as on more rows."""
    return Auto((SmallLinearDual(tol), linear_csvm()), FewRows(cache_bytes, needs_cold=True), Unfinished(tol))


def kernel_margin(descent: MarginDescent, rule: SlowDescent | None = None, newton: MarginNewton | None = None) -> Auto:
    """The margin distribution machine with a kernel: coordinate steps, then Newton steps with the same cache.

    A warm start on few rows goes to Newton steps at once. On many, where most rows may be active and a step costs
    hundreds of products with the kernel, coordinate steps come first there too.
    """
    newton = replace(newton or MarginNewton(), cache_bytes=descent.cache_bytes, descent=descent)
    return Auto((descent, newton), WarmAndFew(_MAX_WARM_NEWTON_ROWS), rule or SlowDescent())
