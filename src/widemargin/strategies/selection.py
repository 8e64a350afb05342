"""Cross-validation of the kernel C-SVM over values of C: all folds of one kernel share its values.

The rows that a fold holds out stay in its problems with a weight of zero: they cannot move, and their responses, which
score the fold, come with the passes that the fit makes anyway. Each fit starts at the solution for the last C, or at
that of another kernel for the same C. Where all kernel values fit in memory they are computed once, and the problems of
folds and classes run beside each other. Else one runs after the other, on all cores, and all of them share the kernel
rows that there is room for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from widemargin import cores
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.known_values import KnownValues
from widemargin.ledger import Ledger
from widemargin.pauses import Clock, TimeIsUp
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.auto import Auto, FewRows
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.known_dual import KnownDual
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Result, Start, Watched, end_of, sweeps
from widemargin.solvers.small_dual import SmallDual
from widemargin.strategies.labels import weights_of_classes
from widemargin.strategies.parts import Parts

_CS_PER_TASK = 3  # fits one after the other: each starts at the last one
_PATIENCE = 3  # checks without a change of held-out predictions, after which a fold may stop

Fold = tuple[np.ndarray, np.ndarray]  # places of training rows and of held-out rows


class PartFit(NamedTuple):
    """One two-class problem of one fold at one C."""

    model: KernelModel
    scores: np.ndarray  # of the held-out rows
    norm: float  # of w
    gap: float  # relative
    seconds: float
    stop_reason: str
    result: Result


class FoldFit(NamedTuple):
    """All two-class problems of one fold at one C."""

    parts: list[PartFit]

    @property
    def scores(self) -> np.ndarray:
        """Of the held-out rows, a column for each problem."""
        return np.stack([part.scores for part in self.parts], axis=1)

    @property
    def norm(self) -> float:
        """The largest of w."""
        return max(part.norm for part in self.parts)

    @property
    def gap(self) -> float:
        """The largest."""
        return max(part.gap for part in self.parts)

    @property
    def has_settled(self) -> bool:
        """Whether a problem has stopped before its gap was closed, since held-out predictions did not change."""
        return any(part.stop_reason == "settled" for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def n_support(self) -> int:
        """Rows with a coefficient in one of the problems."""
        return len(np.unique(np.concatenate([part.model.points.numbers for part in self.parts])))


Found = dict[tuple[int, int, int], PartFit]  # by the numbers of a two-class problem, a fold and a C
Note = Callable[[str, Found], None]
Do = Callable[[Sequence[str], Note], None]


class Crew(Protocol):
    """Who does the tasks of a search; each has a name and a number of fits."""

    def is_over(self, ask: Callable[[], str]) -> bool:
        """Whether the search is to end."""

    def fits(self, tasks: Mapping[str, int], do: Do, on: KernelFolds) -> list[Found]:
        """The fits of all tasks, or of those that there was time for; ``do`` does some, and notes what each gave."""


class Alone:
    """All tasks are done here."""

    def is_over(self, ask: Callable[[], str]) -> bool:
        return bool(ask())

    def fits(self, tasks: Mapping[str, int], do: Do, on: KernelFolds) -> list[Found]:
        found: list[Found] = []
        do(list(tasks), lambda name, fits: found.append(fits))
        return found


@dataclass(frozen=True)
class Folds:
    """Rows in folds, whose fits are compared."""

    shard: Shard  # all rows, with class numbers for labels and multiplicities for weights
    classes: np.ndarray
    parts: Parts
    folds: list[Fold]
    fit_intercept: bool
    class_weight: Any
    limits: Limits
    cache_bytes: int
    # Asked now and then, from any thread: a reason to stop, or an empty text.
    ask: Callable[[], str] = lambda: ""
    ledger: Ledger = field(default_factory=Ledger)  # of kernel values
    crew: Crew = field(default_factory=Alone)

    def with_kernel(
        self, kernel: Kernel, space: KnownValues | None = None, *, is_lazy: bool = False
    ) -> KernelFolds | None:
        """The kernel on the rows, with all values where they fit; None if there was no time for that.

        ``space`` are values of another kernel on the same rows that are not needed any more. If ``is_lazy``, values
        are computed when a fit needs them.
        """
        rows = kernel_rows(kernel, self.shard.X, 0, self.ledger, weight=self.shard.weight)
        rows.groups, rows.n_problems = self.shard.y if self.parts.are_votes else None, len(self.parts) * len(self.folds)
        found = KernelFolds(self, replace(self.shard, kernel_rows=rows), space)
        return found if is_lazy or found.has_values() else None

    def is_over(self) -> bool:
        """Whether the search is to end; equal on all ranks."""
        return self.crew.is_over(self.ask)

    def weights(self, fold: Fold) -> np.ndarray:
        """Those of the rows in the problems of a fold: 0 for rows that it holds out."""
        codes, train = self.shard.y.astype(np.intp), np.zeros(self.shard.n_rows)
        train[fold[0]] = self.shard.weight[fold[0]]
        if self.class_weight is None:
            return train
        totals = np.bincount(codes, train, len(self.classes))
        return train * weights_of_classes(self.class_weight, self.classes, totals)[codes]


class _Task(NamedTuple):
    """Fits that one thread does."""

    part: int  # the number of a two-class problem
    folds: Sequence[int]
    Cs: slice


@dataclass(frozen=True)
class KernelFolds:
    """The same with a kernel."""

    folds: Folds
    shard: Shard
    space: KnownValues | None = None

    def has_values(self) -> bool:
        """Compute all kernel values, where they fit; False if there was no time for that."""
        if self.known is None:
            try:
                with self.folds.ledger.phase("kernel"), Clock(Solo(), self.folds.ask).running():
                    self.shard.kernel.keep_values(self.folds.cache_bytes, self.space)
            except TimeIsUp:
                return False
        return True

    @property
    def known(self) -> KnownValues | None:
        """All kernel values, where they are kept."""
        return self.shard.kernel.known_values()

    def fits(
        self, Cs: Sequence[float], starts: Sequence[list[FoldFit] | None], *, may_settle: bool = True
    ) -> list[list[FoldFit] | None]:
        """The fits of all folds for each of some ascending values of C; None where there was no time for all of them.

        ``starts`` has fits of all folds at a near point for each C, or None: a fit starts there or at the last C,
        wherever the dual objective is higher. A fold that ``may_settle`` stops when its held-out predictions no longer
        change.
        """
        parts, every = self.folds.parts, range(len(self.folds.folds))
        gamma = self.shard.kernel.kernel.gamma
        tasks = {
            f"{gamma} {Cs[task.Cs]} from {task.Cs.start} {task.part} {list(task.folds)} {may_settle}": task
            for task in self._tasks(len(Cs))
        }

        def path(task: _Task) -> Found:
            labelled = parts.labelled(self.shard, task.part)
            places = slice(None) if labelled.whole is None or labelled.whole[1] is None else labelled.whole[1]
            out: Found = {}
            for fold in task.folds:
                path = _Path(self, labelled, places, self.folds.folds[fold], may_settle)
                some = [None if each is None else each[fold].parts[task.part] for each in starts[task.Cs]]
                for k, fit in enumerate(path.fits(Cs[task.Cs], some), task.Cs.start):
                    out[task.part, fold, k] = fit
            return out

        def do(names: Sequence[str], note: Note) -> None:
            if not names or not self.has_values():
                return
            with self.folds.ledger.phase("folds"):
                if self.known is None:  # all of them use the cores, and the kernel rows that they share
                    for name in names:
                        note(name, path(tasks[name]))
                else:
                    cores.each(lambda name: note(name, path(tasks[name])), names, np.inf)

        found: Found = {}
        n_fits = {name: len(task.folds) * len(Cs[task.Cs]) for name, task in tasks.items()}
        for some in self.folds.crew.fits(n_fits, do, self):
            found |= some
        out: list[list[FoldFit] | None] = []
        for k in range(len(Cs)):
            fits = [[found.get((part, fold, k)) for part in range(len(parts))] for fold in every]
            whole = [FoldFit([part for part in fit if part is not None]) for fit in fits]
            out.append(whole if all(len(fit.parts) == len(parts) for fit in whole) else None)
        return out

    def _tasks(self, n_Cs: int) -> list[_Task]:
        """Those with the largest values of C first, which take longest. Folds of a pair of classes share a copy."""
        numbers, every = range(len(self.folds.parts)), range(len(self.folds.folds))
        if self.folds.parts.are_votes:
            return [_Task(part, every, slice(0, n_Cs)) for part in numbers]
        pieces = [slice(begin, begin + _CS_PER_TASK) for begin in range(0, n_Cs, _CS_PER_TASK)]
        return [_Task(part, [fold], Cs) for Cs in reversed(pieces) for part in numbers for fold in every]

    def solver(self, *, may_settle: bool) -> AnySolver:
        tol, cache_bytes, patience = self.folds.limits.tol, self.folds.cache_bytes, _PATIENCE if may_settle else 0
        if self.known is not None:
            return KnownDual(tol, patience)
        blocks = BlockDual(cache_bytes, tol, patience=patience)
        return Auto((SmallDual(tol, None, cache_bytes), blocks), FewRows(cache_bytes))

    def scores(self, model: KernelModel, rows: np.ndarray) -> np.ndarray:
        """What a model scores on some rows."""
        if self.known is not None:
            sums = self.known.times_at(model.points.numbers, model.coef, rows)
        else:
            sums = self.shard.kernel.only(rows).times(model.points, model.coef)
        return np.asarray(sums + model.intercept)


@dataclass(frozen=True)
class _Path:
    """The fits of one two-class problem of one fold, for ascending values of C."""

    within: KernelFolds
    labelled: Shard
    places: np.ndarray | slice  # of its rows
    fold: Fold
    may_settle: bool

    def fits(self, Cs: Sequence[float], starts: Sequence[PartFit | None]) -> Iterator[PartFit]:
        """One for each C, until there is no time left; a fit that is cut short is no result."""
        folds = self.within.folds
        shard = replace(self.labelled, weight=folds.weights(self.fold)[self.places], whole=None)  # scores are asked for
        solver, watched = self.within.solver(may_settle=self.may_settle), Watched(lambda _: folds.ask() or None)
        warm: np.ndarray | None = None
        for C, start in zip(Cs, starts, strict=True):
            if folds.ask():
                return
            began = time.perf_counter()
            problem, rng = HingeL2(C, folds.fit_intercept), np.random.default_rng(0)
            warm = warm if start is None else self._better(problem, warm, self._warm(start.model, None))
            finished = end_of(sweeps(solver, problem, shard, Solo(), folds.limits, rng, Start(warm), watched))
            result, model = finished.result, finished.result.model
            held_out, norm = self._scored(model, finished.scores)
            warm = self._warm(model, finished.scores)
            seconds, gap = time.perf_counter() - began, result.certificate.relative
            if finished.told and gap > folds.limits.tol:
                return
            yield PartFit(model, held_out, norm, gap, seconds, result.stop_reason, result)

    def _better(self, problem: HingeL2, last: np.ndarray | None, given: np.ndarray) -> np.ndarray:
        """One of two starts: the last solution with its responses, or coefficients that are given."""
        own, known = self.labelled.kernel.numbers, self.labelled.kernel.known_values()
        if last is None or known is None:
            return given
        both = np.zeros((2, 2, len(own)))
        both[0], both[1, 0] = last[:, own], given[own]
        both[1, 1] = known.times(both[1, 0], exact=False)
        values = [problem.dual_value(np.abs(beta).sum(), beta @ response) for beta, response in both]
        if values[0] >= values[1]:
            return last
        warm = np.zeros_like(last)
        warm[:, own] = both[1]
        return warm

    def _scored(self, model: KernelModel, scores: np.ndarray | None) -> tuple[np.ndarray, float]:
        """The scores of held-out rows, and the norm of w; ``scores`` are those of all rows of the problem."""
        numbers, held_out = model.points.numbers, self.fold[1]
        of_support = own = None
        if scores is not None:
            of_support = scores[np.searchsorted(self.labelled.kernel.numbers, numbers)]
            own = scores[held_out] if isinstance(self.places, slice) else None  # a pair has no rows of other classes
        of_support = self.within.scores(model, numbers) if of_support is None else of_support
        squared = float(model.coef @ (of_support - model.intercept))
        return self.within.scores(model, held_out) if own is None else own, max(squared, 0.0) ** 0.5

    def _warm(self, model: KernelModel, scores: np.ndarray | None) -> np.ndarray:
        """Where the next fit starts: at the coefficients of a model, with responses for a solver that uses them."""
        warm = np.zeros((2, self.within.shard.n_rows))
        warm[0, model.points.numbers] = model.coef
        if scores is None or self.within.known is None:
            return warm[0]
        warm[1, self.labelled.kernel.numbers] = scores - model.intercept
        return warm
