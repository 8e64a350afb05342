"""Cross-validation of the kernel C-SVM over values of C: all folds of one kernel share its values.

The rows that a fold holds out stay in its problems with a weight of zero: they cannot move, and their responses, which
score the fold, come with the passes that the fit makes anyway. Equal rows of a class are one row. Each fit starts at
the solution for the last C, or at that of another kernel for the same C. Where all kernel values fit in memory they are
computed once, and the problems of folds and classes run beside each other. Else one runs after the other, on all cores,
and all of them share the kernel rows that there is room for. On a GPU all problems of a kernel go on side by side
(:mod:`.side_by_side`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from widemargin import cores
from widemargin.comm.solo import Solo
from widemargin.compiled.known_dual import MAX_SIZE
from widemargin.data.shard import Shard
from widemargin.kernels.devices import CPU, is_gpu, kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.known_values import KnownValues
from widemargin.kernels.protocol import RowsOnDevice
from widemargin.kernels.storage import pieces
from widemargin.kernels.vectors import padded
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
from widemargin.solvers.run import Limits, Result, Start, Watched, end_of, sweeps
from widemargin.solvers.small_dual import SmallDual
from widemargin.strategies.copies import Copies
from widemargin.strategies.labels import weights_of_classes
from widemargin.strategies.parts import Parts
from widemargin.strategies.side_by_side import solved_side_by_side

_CS_OF_VOTES = 3  # for which folds of a pair of classes share a copy of its kernel values
_BYTES_OF_BLOCKS = 64 << 20  # of working sets where not all values are kept
# Sweeps of a fit on kept values that are cut short: at most so many, or one for so many rows. Fits that need more, as
# where C is huge, would hold up all others.
_MAX_CUT, _ROWS_PER_CUT = 8, 50
# With fewer held-out rows in a fold, each counts for so much that fits go on to this part of the tolerance.
_FEW_HELD_OUT, _FINISH = 500, 0.01
_PATIENCE = 3  # checks without a change of held-out predictions, after which a fold may stop

T = TypeVar("T")
Fold = tuple[np.ndarray, np.ndarray]  # numbers of training rows and of held-out rows


class PartFit(NamedTuple):
    """One two-class problem of one fold at one C."""

    model: KernelModel
    scores: np.ndarray  # of the held-out rows
    norm: float  # of w
    gap: float  # relative
    seconds: float
    stop_reason: str
    result: Result | None = None  # None for a fit that was kept elsewhere


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
    def margins(self) -> np.ndarray:
        """The mean margin of support vectors, weighted by coefficients, in each problem.

        It is about 0 where C is so small that w plays no part, and 1 where no row is inside the margin.
        """
        masses = np.array([np.abs(part.model.coef).sum() for part in self.parts])
        return np.asarray(self.norms**2 / np.where(masses > 0, masses, 1.0))

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


class Crew(Protocol):
    """Who does the fits of a search."""

    def is_over(self, ask: Callable[[], str]) -> bool:
        """Whether the search is to end."""

    def run(self, running: Running) -> None:
        """Let the fits of a kernel be done, or those that there is time for."""

    def shared(self, tasks: Sequence[T], do: Callable[[Sequence[T]], None], found: Callable[[T], Any]) -> list[Any]:
        """Let each rank do some of the tasks; what it has found for each of all tasks, on all ranks."""


class Alone:
    """All fits are done here."""

    def is_over(self, ask: Callable[[], str]) -> bool:
        return bool(ask())

    def run(self, running: Running) -> None:
        running.do(running.tasks)

    def shared(self, tasks: Sequence[T], do: Callable[[Sequence[T]], None], found: Callable[[T], Any]) -> list[Any]:
        do(tasks)
        return [found(task) for task in tasks]


@dataclass(frozen=True)
class Folds:
    """Rows in folds, whose fits are compared."""

    shard: Shard  # all rows, or those that stand for them, with class numbers for labels and multiplicities for weights
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
    crew: Crew = field(default_factory=Alone)
    copies: Copies | None = None  # which rows stand for others

    def with_kernel(self, kernel: Kernel, space: Any = None, *, is_lazy: bool = False) -> KernelFolds | None:
        """The kernel on the rows, with all values where they fit; None if there was no time for that.

        ``space`` is that of another kernel on the same rows, whose values are not needed any more. If ``is_lazy``,
        values are computed when a fit needs them.
        """
        rows = kernel_rows(kernel, self.shard.X, 0, self.ledger, device=self.device, weight=self.shard.weight)
        rows.groups, rows.n_problems = self.shard.y if self.parts.are_votes else None, len(self.parts) * len(self.folds)
        found = KernelFolds(self, replace(self.shard, kernel_rows=rows), space)
        return found if is_lazy or found.has_values() else None

    def is_over(self) -> bool:
        """Whether the search is to end; equal on all ranks."""
        return self.crew.is_over(self.ask)

    def places_of(self, rows: np.ndarray) -> np.ndarray:
        """The places of some rows, or of those that stand for them, in the problems."""
        return rows if self.copies is None else self.copies.places[rows]

    def weights(self, fold: Fold) -> np.ndarray:
        """Those of the rows in the problems of a fold: 0 for rows that it holds out."""
        codes, weight = self.shard.y.astype(np.intp), self.shard.weight if self.copies is None else self.copies.weight
        train = np.bincount(self.places_of(fold[0]), weight[fold[0]], self.shard.n_rows)
        if self.class_weight is None:
            return train
        totals = np.bincount(codes, train, len(self.classes))
        return train * weights_of_classes(self.class_weight, self.classes, totals)[codes]


class Task(NamedTuple):
    """Fits that one thread does."""

    part: int  # the number of a two-class problem
    folds: Sequence[int]
    Cs: slice

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """Of its fits: the numbers of a two-class problem, a fold and a C."""
        return [(self.part, fold, k) for fold in self.folds for k in range(self.Cs.start, self.Cs.stop)]


# Told the number of a C and the fits of all folds there, in ascending order: whether larger values are wanted.
GoesOn = Callable[[int, list[FoldFit]], bool]


@dataclass(frozen=True)
class KernelFolds:
    """The same with a kernel."""

    folds: Folds
    shard: Shard
    spare: Any = None  # space of another kernel, which values may take

    def has_values(self) -> bool:
        """Compute all kernel values, where they fit; False if there was no time for that."""
        if self.shard.kernel.space is None:
            try:
                with self.folds.ledger.phase("kernel"), Clock(Solo(), self.folds.ask).running():
                    n_bytes, is_tied = self.folds.cache_bytes - self._bytes_of_sets(), self.folds.fit_intercept
                    self.shard.kernel.keep_values(n_bytes, self.spare, is_tied=is_tied)
            except TimeIsUp:
                return False
        return True

    @property
    def known(self) -> KnownValues | None:
        """All kernel values, where they are kept."""
        return self.shard.kernel.known_values()

    @property
    def space(self) -> Any:
        """The memory of all kernel values, where they are kept, or that there is for them."""
        return self.spare if self.shard.kernel.space is None else self.shard.kernel.space

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
        for each C, or None: a fit starts there, or at the last C if responses to that are known. A fold that
        ``may_settle`` stops when its held-out predictions no longer change.
        """
        running = Running(self, Cs, starts, may_settle, goes_on)
        self.folds.crew.run(running)
        return running.heard + [None] * (len(Cs) - len(running.heard))

    def tasks(self, n_Cs: int) -> list[Task]:
        """Those with the smallest values of C first; larger ones may turn out not to be wanted."""
        numbers, every, votes = range(len(self.folds.parts)), range(len(self.folds.folds)), self.folds.parts.are_votes
        few = [slice(*each) for each in pieces(n_Cs, _CS_OF_VOTES if votes else 1)]
        if votes:
            return [Task(part, every, Cs) for Cs in few for part in numbers]
        return [Task(part, [fold], Cs) for Cs in few for part in numbers for fold in every]

    @property
    def are_fits_short(self) -> bool:
        """Whether a fit keeps one core busy at most, so that fits run beside each other."""
        return self.known is not None

    def path(self, labelled: Shard, fold: Fold, may_settle: bool, ask: Callable[[], str]) -> FoldPath:
        """The fits of a fold to the rows of a two-class problem."""
        return FoldPath(self, labelled, fold, may_settle, ask)

    def solver(self, *, may_settle: bool) -> AnySolver:
        tol, cache_bytes, patience = self.folds.limits.tol, self.folds.cache_bytes, _PATIENCE if may_settle else 0
        if self.known is not None:
            max_cut = max(_MAX_CUT, self.shard.n_rows // _ROWS_PER_CUT)
            has_few = min(len(test) for _, test in self.folds.folds) < _FEW_HELD_OUT
            return KnownDual(tol, patience, max_cut=max_cut, finish=_FINISH if has_few else 1.0)
        if is_gpu(self.folds.device):
            return FlatDual(tol)
        blocks = BlockDual(beside_blocks(cache_bytes), tol, patience=patience)
        return Auto((SmallDual(tol, None, cache_bytes), blocks), FewRows(cache_bytes))

    def _bytes_of_sets(self) -> int:
        """Of the kernel values of working sets, one on each thread; a GPU has room for them beside."""
        if is_gpu(self.folds.device):
            return 0
        return 4 * padded(min(self.shard.n_rows, MAX_SIZE)) ** 2 * cores.n_threads()

    def model(self, numbers: np.ndarray, coef: np.ndarray, intercept: float) -> KernelModel:
        """That of some rows and their coefficients."""
        rows = self.shard.kernel
        return KernelModel(rows.kernel, rows.points(numbers), coef, intercept, {})

    def scores(self, model: KernelModel, rows: np.ndarray) -> np.ndarray:
        """What a model scores on some rows."""
        if self.known is not None:
            sums = self.known.times_at(model.points.numbers, model.coef, rows)
        else:
            some, back = np.unique(rows, return_inverse=True)  # one may stand for several
            sums = self.shard.kernel.only(some).times(model.points, model.coef)[back]
        return np.asarray(sums + model.intercept)


def beside_blocks(n_bytes: int) -> int:
    """The part of some memory for kernel rows, where working sets need the others."""
    return max(n_bytes - _BYTES_OF_BLOCKS, n_bytes // 2)


def _part_fit(solved: Solved, held_out: np.ndarray) -> PartFit:
    scores, gap = solved.scores[held_out], solved.certificate.relative
    return PartFit(solved.model, scores, solved.norm, gap, solved.seconds, solved.stop_reason)


Found = dict[tuple[int, int, int], PartFit]  # by the numbers of a two-class problem, a fold and a C


class Running:
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
        self.name = f"gamma={within.shard.kernel.kernel.gamma} Cs={list(Cs)} may_settle={may_settle}"
        self.within, self.tasks = within, within.tasks(len(Cs))
        self.heard: list[list[FoldFit] | None] = []  # of the smallest values of C, as far as all folds are done
        self.found: Found = {}
        self.last: dict[tuple[int, int], np.ndarray] = {}  # where the next fit of a problem and a fold may start
        self.n_done: dict[tuple[int, int], int] = {}  # values of C, of a problem and a fold
        self.is_over = False  # larger values of C are not wanted
        self.is_shared = False  # others have fits, too: it is told of those of all
        self.changed = threading.Condition()
        self._Cs, self._starts = Cs, starts
        self._may_settle, self._goes_on = may_settle, goes_on

    @property
    def is_complete(self) -> bool:
        """Whether there was time for all fits that are wanted."""
        return self.is_over or len(self.heard) == len(self._Cs)

    def do(self, tasks: Sequence[Task]) -> None:
        """Do some tasks, and those of smaller values of C on the same folds before them."""
        left = [task for task in tasks if self._n_done(task) <= task.Cs.start]
        if not left or self.is_over or not self.within.has_values():
            return
        with self.within.folds.ledger.phase("folds"):
            rows = self.within.shard.kernel
            if isinstance(rows, RowsOnDevice) and rows.has_lockstep:
                self._do_side_by_side(left, rows)
            elif self.within.are_fits_short:
                cores.each(self._do, left, np.inf)
            else:  # all of them use the cores, and the kernel rows that they share
                for task in left:
                    self._do(task)

    def _do_side_by_side(self, tasks: Sequence[Task], rows: RowsOnDevice) -> None:
        """All of them at once on a GPU, each fit to the tolerance."""
        wanted, folds = [place for task in tasks for place in task.places], self.within.folds
        held_out = [folds.places_of(test) for _, test in folds.folds]
        solved = solved_side_by_side(self.within, rows, self._Cs, self._starts, wanted)
        self.take({place: _part_fit(each, held_out[place[1]]) for place, each in solved.items()})

    def take(self, found: Found, last: Mapping[tuple[int, int], np.ndarray] | None = None) -> None:
        """Take over fits that others have done, and tell of them; ``last`` is needed to go on from there."""
        with self.changed:
            self.found |= found
            self.last |= last or {}
            for part, fold, k in found:
                self.n_done[part, fold] = max(self.n_done.get((part, fold), 0), k + 1)
            self._tell()
            self.changed.notify_all()

    def _n_done(self, task: Task) -> int:
        return self.n_done.get((task.part, task.folds[0]), 0)

    def _do(self, task: Task) -> None:
        try:
            with self.changed:
                self.changed.wait_for(lambda: self.is_over or self._n_done(task) == task.Cs.start)
                if self.is_over:
                    return
            self._fit(task)
        except BaseException:  # Ctrl-C while it waits, for one
            self._end()  # or others would wait for it
            raise

    def _end(self) -> None:
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def _fit(self, task: Task) -> None:
        within, folds = self.within, self.within.folds
        labelled = folds.parts.labelled(within.shard, task.part)
        new: Found = {}
        last: dict[tuple[int, int], np.ndarray] = {}
        for fold in task.folds:
            path = within.path(labelled, folds.folds[fold], self._may_settle, self._reason)
            starts = [None if each is None else each[fold].parts[task.part] for each in self._starts[task.Cs]]
            fits = path.fits(self._Cs[task.Cs], starts, self.last.get((task.part, fold)))
            for k, (fit, end) in enumerate(fits, task.Cs.start):
                new[task.part, fold, k], last[task.part, fold] = fit, end
        with self.changed:
            self.found |= new
            if len(new) == len(task.folds) * (task.Cs.stop - task.Cs.start):
                self.last |= last
            for fold in task.folds:
                self.n_done[task.part, fold] = task.Cs.stop
            if not self.is_shared:
                self._tell()
            self.changed.notify_all()

    def _reason(self) -> str:
        """Why a fit shall stop, or an empty text."""
        return "unwanted" if self.is_over else self.within.folds.ask()

    def _tell(self) -> None:
        """Tell of all values of C that are done."""
        n_parts, n_folds = len(self.within.folds.parts), len(self.within.folds.folds)
        while not self.is_over and len(self.heard) < len(self._Cs):
            k = len(self.heard)
            parts = [[self.found.get((part, fold, k)) for part in range(n_parts)] for fold in range(n_folds)]
            if any(part is None for fit in parts for part in fit):
                return
            fits = [FoldFit([part for part in fit if part is not None]) for fit in parts]
            self.heard.append(fits)
            self.is_over = not self._goes_on(k, fits)


@dataclass(frozen=True)
class FoldPath:
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
            first = last
            # Responses that are known make up for a start that is farther away; but a fit goes on where it has stopped.
            if start is not None and not (self.may_settle and last is not None and last.ndim == 2):
                first = self._warm(start.model)
            warm = None
            if first is not None:
                warm = np.zeros((*first.shape[:-1], self.within.shard.n_rows))
                warm[..., own] = first
            watched = Watched(lambda progress: self.ask() or None)
            finished = end_of(sweeps(solver, problem, shard, Solo(), folds.limits, rng, Start(warm), watched))
            result, model = finished.result, finished.result.model
            held_out, norm = self._scored(model, finished.scores)
            last = finished.warm_state()[..., own] if is_known else self._warm(model)
            seconds, gap = time.perf_counter() - began, result.certificate.relative
            if finished.told and gap > folds.limits.tol:
                return
            yield PartFit(model, held_out, norm, gap, seconds, result.stop_reason, result), last

    def _scored(self, model: KernelModel, scores: np.ndarray | None) -> tuple[np.ndarray, float]:
        """The scores of held-out rows, and the norm of w; ``scores`` are those of all rows of the problem."""
        numbers, held_out = model.points.numbers, self.within.folds.places_of(self.fold[1])
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
