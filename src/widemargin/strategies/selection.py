"""Cross-validation of the kernel C-SVM over values of C: all folds of one kernel share its values.

The rows that a fold holds out stay in its problems with a weight of zero: they cannot move, and their responses, which
score the fold, come with the passes that the fit makes anyway. Each fit starts at the solution for the last C, or at
that of another kernel for the same C. Where all kernel values fit in memory they are computed once, and the problems of
folds and classes run beside each other. Else one runs after the other, on all cores, and all of them share the kernel
rows that there is room for. On a GPU all problems of a kernel go on side by side (:mod:`.side_by_side`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from widemargin import cores
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.devices import CPU, is_gpu, kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.known_values import KnownValues
from widemargin.kernels.storage import pieces
from widemargin.ledger import Ledger
from widemargin.pauses import Clock, TimeIsUp
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.auto import Auto, FewRows
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.flat_dual import FlatDual
from widemargin.solvers.known_dual import KnownDual
from widemargin.solvers.lockstep_dual import Solved
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Progress, Start, Watched, end_of, sweeps
from widemargin.solvers.small_dual import SmallDual
from widemargin.strategies.labels import weights_of_classes
from widemargin.strategies.parts import Parts
from widemargin.strategies.side_by_side import solved_side_by_side

_CS_OF_VOTES = 3  # for which folds of a pair of classes share a copy of its kernel values
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


class FoldFit(NamedTuple):
    """All two-class problems of one fold at one C."""

    parts: list[PartFit]

    @property
    def scores(self) -> np.ndarray:
        """Of the held-out rows, a column for each problem."""
        return np.stack([part.scores for part in self.parts], axis=1)

    @property
    def norms(self) -> np.ndarray:
        """Of w, in each problem."""
        return np.array([part.norm for part in self.parts])

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
        if len(self.parts) == 1:
            return len(self.parts[0].model.coef)
        return len(np.unique(np.concatenate([part.model.points.numbers for part in self.parts])))


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
    device: str = CPU
    # Asked now and then, from any thread: a reason to stop, or an empty text.
    ask: Callable[[], str] = lambda: ""
    ledger: Ledger = field(default_factory=Ledger)  # of kernel values

    def with_kernel(self, kernel: Kernel, space: Any = None) -> KernelFolds | None:
        """The kernel on the rows, with all values where they fit; None if there was no time for that.

        ``space`` are values of another kernel on the same rows that are not needed any more.
        """
        rows = kernel_rows(kernel, self.shard.X, 0, self.ledger, device=self.device, weight=self.shard.weight)
        rows.groups, rows.n_problems = self.shard.y if self.parts.are_votes else None, len(self.parts) * len(self.folds)
        try:
            with self.ledger.phase("kernel"), Clock(Solo(), self.ask).running():
                rows.keep_values(self.cache_bytes, space)
        except TimeIsUp:
            return None
        return KernelFolds(self, replace(self.shard, kernel_rows=rows))

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


# Told the number of a C and the fits of all folds there, in ascending order: whether larger values are wanted.
GoesOn = Callable[[int, list[FoldFit]], bool]


@dataclass(frozen=True)
class KernelFolds:
    """The same with a kernel."""

    folds: Folds
    shard: Shard

    @property
    def known(self) -> KnownValues | None:
        """All kernel values, where they are kept."""
        return self.shard.kernel.known_values()

    @property
    def space(self) -> Any:
        """The memory of all kernel values, where they are kept."""
        return self.shard.kernel.space

    def fits(
        self,
        Cs: Sequence[float],
        starts: Sequence[list[FoldFit] | None],
        *,
        may_settle: bool = True,
        goes_on: GoesOn = lambda k, fits: True,
    ) -> list[list[FoldFit] | None]:
        """The fits of all folds for each of some ascending values of C.

        None where there was no time for all of them, and for values that are not wanted once ``goes_on`` has heard of
        smaller ones: it is called in any thread, one call at a time. ``starts`` has fits of all folds at a near point
        for each C, or None: a fit starts there or at the last C, wherever the dual objective is higher. A fold that
        ``may_settle`` stops when its held-out predictions no longer change.
        """
        if self.shard.kernel.has_lockstep:
            return self._fits_side_by_side(Cs, starts, goes_on)
        running = _Running(self, Cs, starts, may_settle, goes_on)
        tasks = self._tasks(len(Cs))
        with self.folds.ledger.phase("folds"):
            if self.known is None:  # all of them use the cores, and the kernel rows that they share
                for task in tasks:
                    running.do(task)
            else:
                cores.each(running.do, tasks, np.inf)
        return running.heard + [None] * (len(Cs) - len(running.heard))

    def _fits_side_by_side(
        self, Cs: Sequence[float], starts: Sequence[list[FoldFit] | None], goes_on: GoesOn
    ) -> list[list[FoldFit] | None]:
        """:meth:`fits` on a GPU, all to the tolerance."""
        with self.folds.ledger.phase("folds"):
            found = solved_side_by_side(self, Cs, starts)
        out: list[list[FoldFit] | None] = []
        for k in range(len(Cs)):
            fits: list[FoldFit] = []
            for fold, (_, held_out) in enumerate(self.folds.folds):
                solved = [found.get((part, fold, k)) for part in range(len(self.folds.parts))]
                parts = [_part_fit(each, held_out) for each in solved if each is not None]
                fits += [FoldFit(parts)] if len(parts) == len(solved) else []
            if len(fits) < len(self.folds.folds):
                break
            out.append(fits)
            if not goes_on(k, fits):
                break
        return out + [None] * (len(Cs) - len(out))

    def _tasks(self, n_Cs: int) -> list[_Task]:
        """Those with the smallest values of C first; larger ones may turn out not to be wanted."""
        numbers, every, votes = range(len(self.folds.parts)), range(len(self.folds.folds)), self.folds.parts.are_votes
        few = [slice(*each) for each in pieces(n_Cs, _CS_OF_VOTES if votes else 1)]
        if votes:
            return [_Task(part, every, Cs) for Cs in few for part in numbers]
        return [_Task(part, [fold], Cs) for Cs in few for part in numbers for fold in every]

    def solver(self, *, may_settle: bool) -> AnySolver:
        tol, cache_bytes, patience = self.folds.limits.tol, self.folds.cache_bytes, _PATIENCE if may_settle else 0
        if self.known is not None:
            return KnownDual(tol, patience)
        if is_gpu(self.folds.device):
            return FlatDual(tol)
        blocks = BlockDual(cache_bytes, tol, patience=patience)
        return Auto((SmallDual(tol, None, cache_bytes), blocks), FewRows(cache_bytes))

    def scores(self, model: KernelModel, rows: np.ndarray) -> np.ndarray:
        """What a model scores on some rows."""
        if self.known is not None:
            sums = self.known.times_at(model.points.numbers, model.coef, rows)
        else:
            sums = self.shard.kernel.only(rows).times(model.points, model.coef)
        return np.asarray(sums + model.intercept)


def _part_fit(solved: Solved, held_out: np.ndarray) -> PartFit:
    scores, gap = solved.scores[held_out], solved.certificate.relative
    return PartFit(solved.model, scores, solved.norm, gap, solved.seconds, solved.stop_reason)


class _Running:
    """The fits of a kernel, as tasks that threads take in their order.

    Nothing depends on who takes them: a task waits for the one before it that has the same fits at smaller values of C,
    and fits at values of C that have meanwhile become unwanted are dropped.
    """

    def __init__(
        self,
        within: KernelFolds,
        Cs: Sequence[float],
        starts: Sequence[list[FoldFit] | None],
        may_settle: bool,
        goes_on: GoesOn,
    ) -> None:
        self.heard: list[list[FoldFit] | None] = []  # of the smallest values of C, as far as all folds are done
        self._within, self._Cs, self._starts = within, Cs, starts
        self._may_settle, self._goes_on = may_settle, goes_on
        self._found: dict[tuple[int, int, int], PartFit] = {}  # of a problem, a fold and a C
        self._last: dict[tuple[int, int], np.ndarray] = {}  # where the next fit of a problem and a fold may start
        self._n_done: dict[tuple[int, int], int] = {}  # values of C
        self._is_over = False
        self._changed = threading.Condition()

    def do(self, task: _Task) -> None:
        with self._changed:
            first = (task.part, task.folds[0])
            self._changed.wait_for(lambda: self._is_over or self._n_done.get(first, 0) == task.Cs.start)
            if self._is_over:
                return
        try:
            self._fit(task)
        except BaseException:
            self._end()  # or others would wait for it
            raise

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _fit(self, task: _Task) -> None:
        within, folds = self._within, self._within.folds
        labelled = folds.parts.labelled(within.shard, task.part)
        for fold in task.folds:
            path = _Path(within, labelled, folds.folds[fold], self._may_settle, self._reason)
            starts = [None if each is None else each[fold].parts[task.part] for each in self._starts[task.Cs]]
            fits = path.fits(self._Cs[task.Cs], starts, self._last.get((task.part, fold)))
            for k, (fit, last) in enumerate(fits, task.Cs.start):
                self._found[task.part, fold, k], self._last[task.part, fold] = fit, last
        with self._changed:
            for fold in task.folds:
                self._n_done[task.part, fold] = task.Cs.stop
            self._tell()
            self._changed.notify_all()

    def _reason(self) -> str:
        """Why a fit shall stop, or an empty text."""
        return "unwanted" if self._is_over else self._within.folds.ask()

    def _tell(self) -> None:
        """Tell of all values of C that are done."""
        n_parts, n_folds = len(self._within.folds.parts), len(self._within.folds.folds)
        while not self._is_over and len(self.heard) < len(self._Cs):
            k = len(self.heard)
            parts = [[self._found.get((part, fold, k)) for part in range(n_parts)] for fold in range(n_folds)]
            if any(part is None for fit in parts for part in fit):
                return
            fits = [FoldFit([part for part in fit if part is not None]) for fit in parts]
            self.heard.append(fits)
            self._is_over = not self._goes_on(k, fits)


@dataclass(frozen=True)
class _Path:
    """The fits of one two-class problem of one fold, for ascending values of C."""

    within: KernelFolds
    labelled: Shard
    fold: Fold
    may_settle: bool
    ask: Callable[[], str]

    @property
    def places(self) -> np.ndarray | slice:
        """Of the rows of the problem."""
        whole = self.labelled.whole
        return slice(None) if whole is None or whole[1] is None else whole[1]

    def fits(
        self, Cs: Sequence[float], starts: Sequence[PartFit | None], last: np.ndarray | None
    ) -> Iterator[tuple[PartFit, np.ndarray]]:
        """One for each C, with where the next one may start, until there is no time left.

        ``last`` is that of the C before. A fit that is cut short is no result.
        """
        folds, own = self.within.folds, self.labelled.kernel.numbers
        shard = replace(self.labelled, weight=folds.weights(self.fold)[self.places], whole=None)  # scores are asked for
        solver, is_known = self.within.solver(may_settle=self.may_settle), self.within.known is not None
        for C, start in zip(Cs, starts, strict=True):
            if self.ask():
                return
            began = time.perf_counter()
            problem, rng = HingeL2(C, folds.fit_intercept), np.random.default_rng(0)
            first = last if start is None else self._better(problem, last, self._warm(start.model))
            warm = None
            if first is not None:
                warm = np.zeros((*first.shape[:-1], self.within.shard.n_rows))
                warm[..., own] = first
            states = [warm]

            def hear(progress: Progress, states: list[np.ndarray | None] = states) -> str | None:
                if progress.warm_state is not None:
                    states[:] = [progress.warm_state]
                return self.ask() or None

            watched = Watched(hear, has_state=is_known)
            finished = end_of(sweeps(solver, problem, shard, Solo(), folds.limits, rng, Start(warm), watched))
            result, model = finished.result, finished.result.model
            held_out, norm = self._scored(model, finished.scores)
            last = states[0][..., own] if is_known and states[0] is not None else self._warm(model)
            seconds, gap = time.perf_counter() - began, result.certificate.relative
            if finished.told and gap > folds.limits.tol:
                return
            yield PartFit(model, held_out, norm, gap, seconds, result.stop_reason), last

    def _better(self, problem: HingeL2, last: np.ndarray | None, given: np.ndarray) -> np.ndarray:
        """One of two starts: where the last fit has ended, or coefficients that are given."""
        known = self.labelled.kernel.known_values()
        if last is None or last.ndim == 1 or known is None:
            return given
        both = np.stack([last, [given, known.times(given, exact=False), np.zeros_like(given)]])
        values = [problem.dual_value(np.abs(beta).sum(), beta @ response) for beta, response, _ in both]
        return both[int(values[1] > values[0])]

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

    def _warm(self, model: KernelModel) -> np.ndarray:
        """The coefficients of a model, for the rows of the problem."""
        beta = np.zeros(self.within.shard.n_rows)
        beta[model.points.numbers] = model.coef
        return beta[self.labelled.kernel.numbers]
