"""Cross-validation of the C-SVM on ranks that have some of the rows each: all of them work on every fit.

This is for rows that no rank has room for; else ranks share fits (:mod:`widemargin.strategies.search_crew`).
Fits are those of :mod:`widemargin.strategies.ranks` on the training rows of a fold, with a kernel or by the solvers of
linear models. Each starts at the solution for the last C, or at that of another kernel for the same C. Every rank
scores the held-out rows that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points
from widemargin.ledger import Ledger
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.auto import kernel_csvm, small_linear_csvm
from widemargin.solvers.models import KernelModel
from widemargin.solvers.multipliers import Multipliers
from widemargin.solvers.run import Limits
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Outcome, Plan, Rows, Support
from widemargin.strategies.ranks import Ranks
from widemargin.strategies.search_crew import KeptFits, SharedCrew
from widemargin.strategies.selection import Fold, FoldFit, GoesOn, PartFit

_CUT = ("interrupted", "max_time", "callback")  # stop reasons of fits that are no result


class OwnRows(NamedTuple):
    """The rows of one rank, and their numbers among those of all."""

    rows: Rows
    numbers: np.ndarray
    comm: Communicator

    @property
    def shard(self) -> Shard:
        return Shard(self.rows.X, np.empty(len(self.numbers)), self.rows.weight)

    def of_all(self, values: np.ndarray, n_rows: int) -> np.ndarray:
        """Numbers that each rank has for its own rows, for all rows."""
        out = np.zeros((n_rows, *values.shape[1:]))
        out[self.numbers] = values
        return self.comm.allreduce(out.ravel()).reshape(out.shape)


@dataclass(frozen=True)
class FoldsOfRanks:
    """Rows in folds, whose fits are compared; as :class:`~widemargin.strategies.selection.Folds`."""

    own: OwnRows
    shard: Shard  # labels and weights of all rows, which are elsewhere
    classes: np.ndarray
    parts: Parts
    folds: list[Fold]
    fit_intercept: bool
    class_weight: Any
    limits: Limits
    cache_bytes: int
    ask: Callable[[], str]
    crew: SharedCrew
    ledger: Ledger = field(default_factory=Ledger)
    copies: ClassVar[None] = None  # equal rows may be on different ranks

    def with_kernel(self, kernel: Kernel, space: Any = None, *, is_lazy: bool = False) -> KernelFoldsOfRanks:
        return (LinearFoldsOfRanks if kernel.name == "linear" else KernelFoldsOfRanks)(self, kernel)

    def is_over(self) -> bool:
        return self.crew.is_over(self.ask)


@dataclass(frozen=True)
class KernelFoldsOfRanks:
    """The same with a kernel."""

    folds: FoldsOfRanks
    kernel: Kernel
    space: None = None  # no values are kept

    def fits(
        self,
        Cs: Sequence[float],
        starts: Sequence[list[FoldFit] | None],
        *,
        may_settle: bool = True,
        goes_on: GoesOn = lambda k, fits: True,
    ) -> list[list[FoldFit] | None]:
        """The fits of all folds for each of some ascending values of C; None where there was no time, or no wish."""
        name = f"gamma={self.kernel.gamma} Cs={list(Cs)} by rows"
        found = self.folds.crew.recalled(name, self)
        heard: list[list[FoldFit] | None] = []
        last: list[list[PartFit] | None] = [None] * len(self.folds.folds)
        for k, C in enumerate(Cs):
            fits = []
            for number, fold in enumerate(self.folds.folds):
                start = starts[k]
                near = last[number] if start is None or last[number] is not None else start[number].parts
                places = [(part, number, k) for part in range(len(self.folds.parts))]
                if not all(place in found for place in places):
                    parts = None if self.folds.is_over() else self._fit(C, fold, near)
                    if parts is None:
                        return heard + [None] * (len(Cs) - len(heard))
                    found |= dict(zip(places, parts, strict=True))
                last[number] = [found[place] for place in places]
                fits.append(FoldFit([found[place] for place in places]))
            heard.append(fits)
            if not goes_on(k, fits):
                break
        self.folds.crew.keep(KeptFits.of(name, found))
        return heard + [None] * (len(Cs) - len(heard))

    def model(self, numbers: np.ndarray, coef: np.ndarray, intercept: float) -> KernelModel:
        """That of some rows, which are elsewhere, and their coefficients."""
        return KernelModel(self.kernel, Points(np.empty((len(numbers), 0)), numbers), coef, intercept, {})

    def _fit(self, C: float, fold: Fold, near: list[PartFit] | None) -> list[PartFit] | None:
        """All two-class problems of one fold; None if they were cut short."""
        folds, own, began = self.folds, self.folds.own, time.perf_counter()
        weight = np.zeros(folds.shard.n_rows)
        weight[fold[0]] = folds.shard.weight[fold[0]]
        plan = Plan(
            name="KernelSVCCV",
            problem=HingeL2(C, folds.fit_intercept),
            limits=folds.limits,
            seed=0,
            multi_class=folds.parts.multi_class,
            class_weight=folds.class_weight,
        )
        ranks = self._ranks(plan, None if near is None else self._coefficients(near))
        train = own.rows._replace(weight=weight[own.numbers])
        outcome = ranks.run_on_rank(train, own.comm, (lambda _: folds.ask() or None) if own.comm.rank == 0 else None)
        results = outcome.results
        folds.ledger.__dict__.update(vars(Ledger.total([folds.ledger, *(result.ledger for result in results)])))
        if any(each.stop_reason in _CUT and each.certificate.relative > folds.limits.tol for each in results):
            return None
        scores = self._scores([result.model for result in results], fold[1])
        seconds, out = (time.perf_counter() - began) / len(results), []
        for result, support, column in zip(results, self._support(outcome), scores.T, strict=True):
            model, gap = self.model(*support, result.model.intercept), result.certificate.relative
            out.append(PartFit(model, column, self._norm(result.model), gap, seconds, result.stop_reason))
        return out

    def _coefficients(self, near: list[PartFit]) -> np.ndarray:
        """Of all rows, a line for each problem."""
        out = np.zeros((len(near), self.folds.shard.n_rows))
        for line, part in zip(out, near, strict=True):
            line[part.model.points.numbers] = part.model.coef
        return out

    def _ranks(self, plan: Plan, coef: np.ndarray | None) -> Ranks:
        """The fit, which starts at these coefficients of rows."""
        return Ranks(plan, kernel_csvm(self.folds.cache_bytes, self.folds.limits.tol), self.kernel, warm=coef)

    def _support(self, outcome: Outcome) -> list[Support]:
        """The rows that make up the model of each problem, on every rank."""
        return [Support(result.model.points.numbers, result.model.coef) for result in outcome.results]

    def _scores(self, models: list[KernelModel], held_out: np.ndarray) -> np.ndarray:
        """Of held-out rows (down) by all models (across), on every rank."""
        own = self.folds.own
        some = np.flatnonzero(np.isin(own.numbers, held_out))
        found = np.zeros((len(own.numbers), len(models)))
        if len(some):
            rows = kernel_rows(models[0].kernel, own.shard.take(some).X, own.numbers[some], self.folds.ledger)
            for k, model in enumerate(models):
                found[some, k] = rows.times(model.points, model.coef) + model.intercept
        return own.of_all(found, self.folds.shard.n_rows)[held_out]

    def _norm(self, model: KernelModel) -> float:
        """Of w; each rank computes a part of its square."""
        comm, total = self.folds.own.comm, 0.0
        some = np.arange(len(model.coef))[comm.rank :: comm.size]
        if len(some):
            points = model.points[some]
            rows = kernel_rows(model.kernel, points.X, points.numbers, self.folds.ledger)
            total = float(model.coef[some] @ rows.times(model.points, model.coef))
        return max(float(comm.allreduce(np.array([total]))[0]), 0.0) ** 0.5


class LinearFoldsOfRanks(KernelFoldsOfRanks):
    """The same for linear models."""

    def _ranks(self, plan: Plan, coef: np.ndarray | None) -> Ranks:
        own, folds, warm = self.folds.own, self.folds, None
        if coef is not None and own.shard.n_features <= Multipliers.direct_features:  # else Newton steps do not begin
            warm = np.array([own.comm.allreduce(own.shard.combine(line[own.numbers])) for line in coef])
        return Ranks(plan, small_linear_csvm(folds.cache_bytes, folds.limits.tol), warm=warm)

    def _support(self, outcome: Outcome) -> list[Support]:
        """Rank 0 knows those of all ranks."""
        assert outcome.support is not None
        told = [self.folds.own.comm.broadcast(np.concatenate(each)).reshape(2, -1) for each in outcome.support]
        return [Support(numbers.astype(np.intp), coef) for numbers, coef in told]

    def _scores(self, models: list[Any], held_out: np.ndarray) -> np.ndarray:
        own = self.folds.own
        found = np.stack([own.shard.scores(model.coef) + model.intercept for model in models], axis=1)
        return own.of_all(found, self.folds.shard.n_rows)[held_out]

    def _norm(self, model: Any) -> float:
        return float(np.linalg.norm(model.coef))
