"""A search by cross-validation as the user sees it: progress, callbacks, Ctrl-C, files to go on from, and ranks."""

from __future__ import annotations

import copy
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from widemargin import cores
from widemargin.callbacks import Interruption, SearchProgress, display
from widemargin.checkpoint import Saver
from widemargin.codec import pack, unpack
from widemargin.comm.clusters import is_mpi
from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.engines.select import launch
from widemargin.estimators._grids import free_bytes
from widemargin.estimators._selection import AnySearch, near_best
from widemargin.ledger import Ledger
from widemargin.strategies import search_files
from widemargin.strategies.all_rows import all_rows, checked_rows, is_room_for, ranks_on_machine
from widemargin.strategies.fold_paths import KeptPoint
from widemargin.strategies.protocol import Rows
from widemargin.strategies.search_crew import KeptFits, KeptPaths, SearchReport
from widemargin.strategies.search_files import SearchState
from widemargin.strategies.selection import Fold
from widemargin.strategies.selection_by_rows import OwnRows

Watch = Callable[[SearchReport], str | None]
K = TypeVar("K", KeptFits, KeptPoint)
T = TypeVar("T")


class SearchResume(NamedTuple):
    """What the folder of a checkpoint has: fits of a search, or the error that makes it unusable."""

    states: list[SearchState]
    error: str = ""

    @classmethod
    def of(cls, folder: Any) -> SearchResume:
        try:
            return cls(search_files.load(folder))
        except ValueError as error:  # told to all ranks
            return cls([], str(error))

    def check(self, fresh: SearchState) -> None:
        """Raise ValueError unless all is of this search."""
        if self.error:
            raise ValueError(self.error)
        if not all(state.belongs_to(fresh) for state in self.states):
            raise ValueError(
                f"The checkpoint belongs to another search or to other data, not to this search ({fresh.task}). Delete "
                "it, or choose another folder."
            )


class Listener:
    """What the process of the user does with reports of a search: progress, callbacks, files, Ctrl-C."""

    def __init__(self, model: Any, root: Any, data: dict[str, Any], interruption: Interruption) -> None:
        self._model, self._data, self._interruption = model, data, interruption
        self._began, self._n_done = time.perf_counter(), 0
        self._line = display(type(model).__name__, model.tol, model.verbose)
        self._saver = None if model.checkpoint is None else Saver(model.checkpoint, search_files.save)
        self._context = root.subcontext(task_name="search", max_subtasks=None)
        self._context.call_on_fit_task_begin(estimator=model, **data)
        self._shown: SearchProgress | None = None

    def __call__(self, report: SearchReport) -> str | None:
        if self._saver is not None and report.begun is not None:
            self._saver.save(report.begun._replace(fits=report.fits, paths=report.paths))
        must_stop = False
        for _ in range(self._n_done, report.n_done):
            context = self._context.subcontext(task_name="point")
            context.call_on_fit_task_begin(estimator=self._model, **self._data)
            must_stop |= bool(context.call_on_fit_task_end(estimator=self._model, **self._data))
        self._n_done = max(self._n_done, report.n_done)  # which begins anew after a loss
        seconds = time.perf_counter() - self._began
        self._shown = SearchProgress(report.n_done, report.n_points, report.best_score, report.gap, seconds)
        if self._line is not None:
            self._line.show_search(self._shown)
        return "interrupted" if self._interruption else "callback" if must_stop else None

    def end(self) -> None:
        """The search is over."""
        if self._line is not None and self._shown is not None:
            self._line.show_search(self._shown, is_last=True)
        self._context.call_on_fit_task_end(estimator=self._model, **self._data)


class Teller:
    """What rank 0 tells of a search."""

    def __init__(self, watch: Watch | None, begun: SearchState | None) -> None:
        self._watch, self._begun = watch, begun
        self.search: AnySearch | None = None

    def tell(self, fits: list[KeptFits | KeptPoint], paths: KeptPaths | None) -> str:
        """Report how far the search is, and fits that are new; a reason to stop, or an empty text."""
        if self._watch is None or self.search is None or not self.search.tried:
            return ""
        tried, best, gap = self.search.tried, np.nan, np.nan
        if candidates := self.search.candidates:
            first = candidates[near_best(candidates, 0.0)[0]]
            best, gap = first.mean, first.gap
        begun = self._begun if fits or paths is not None else None
        return self._watch(SearchReport(0, len(tried), self.search.n_done, best, gap, begun, fits, paths)) or ""


def known_fits(
    resume: SearchResume | None, fresh: SearchState | None, comm: Communicator, kind: type[K]
) -> tuple[dict[str, K], KeptPaths | None]:
    """Fits of an earlier search, which rank 0 has read, on all ranks; and paths, on rank 0."""
    states = [] if resume is None else resume.states

    def read() -> list[K]:
        if resume is not None and fresh is not None:
            resume.check(fresh)
        return [each for state in states for each in state.fits if isinstance(each, kind)]

    fits = from_rank_0(comm, read)
    return {each.name: each for each in fits}, next((each.paths for each in states if each.paths is not None), None)


def from_rank_0(comm: Communicator, make: Callable[[], T]) -> T:
    """What rank 0 makes, on all ranks; an error there is a ValueError on all, so that none waits for it."""
    if comm.size == 1:
        return make()
    made: T | None = None
    error, sent = "", None
    if comm.rank == 0:
        try:
            made = make()
        except Exception as failure:
            error = str(failure) or type(failure).__name__
        sent = np.frombuffer(pack([error, made]), np.uint8)
    error, made = unpack(comm.broadcast(sent).tobytes())
    if error:
        raise ValueError(error)
    return cast(T, made)


def agreed_by(comm: Communicator) -> Callable[[np.ndarray], np.ndarray]:
    """A function that returns the scores of rank 0 on all ranks, whose machines may round differently."""
    return lambda scores: comm.broadcast(scores.ravel()).reshape(scores.shape)


def bytes_on_rank(n_bytes: int, comm: Communicator, *, is_shared: bool) -> int:
    """Memory for kernel values that every rank has, from what this one has; ranks of a machine may share that."""
    here = n_bytes // (ranks_on_machine(comm) if is_shared else 1)
    return int(-comm.allreduce(np.array([-float(here)]), "max")[0])


def name_of(scoring: Any) -> str:
    """The same in every process, where functions are at other addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(scoring))


def hash_of_folds(folds: list[Fold]) -> int:
    """Of the numbers of all rows in them, modulo 2 ** 64."""
    digest = hashlib.sha256()
    for train, test in folds:
        for rows in (train, test):
            digest.update(np.int64(len(rows)).tobytes() + rows.astype(np.int64).tobytes())
    return int.from_bytes(digest.digest()[:8], "little")


def fresh_state(task: str, shard: Shard, folds: list[Fold], own: OwnRows | None = None) -> SearchState:
    """What files of a search have in common: all that its fits depend on. ``shard`` are the rows of this rank."""
    numbers = np.arange(shard.n_rows) if own is None else own.numbers
    mine = np.array([shard.n_rows, shard.content_hash(numbers)], np.uint64)
    n_rows, content = mine if own is None else own.comm.allreduce(mine)
    return SearchState(task, np.array([n_rows, shard.n_features, content, hash_of_folds(folds)], np.uint64), [], None)


class Searched(NamedTuple):
    """What a search has found: fitted attributes, and what the final fit needs."""

    attributes: dict[str, Any]
    chosen: dict[str, float]
    start: np.ndarray | None  # coefficients of each problem
    told: str  # why it ended early, or nothing
    n_missing: int  # points that were not tried
    spread: Literal["none", "tasks", "rows"]  # what ranks shared


@dataclass(frozen=True)
class SearchResult:
    """How a search on ranks has ended; engines know results by these fields."""

    stop_reason: str
    ledger: Ledger


class SearchOutcome(NamedTuple):
    results: list[SearchResult]  # one
    searched: Searched


@dataclass(frozen=True)
class SearchOnRanks:
    """A search whose tasks ranks share; plain data, the same on all ranks, that can be sent to other processes."""

    model: Any  # the estimator, without its cluster
    groups: Any
    are_groups_own: bool  # whether each rank has the groups of its own rows, or those of all
    resume: SearchResume | None
    fits: list[Any] = field(default_factory=list)  # done before a machine was lost
    if_lost: Literal["recompute", "leave out", "raise"] = "recompute"
    is_weighted: bool = False  # whether this process was given weights

    @property
    def name(self) -> str:
        return type(self.model).__name__

    def after(self, report: SearchReport) -> SearchOnRanks:
        return replace(self, fits=[*self.fits, *report.fits])

    def run_on_rank(
        self, rows: Rows, comm: Communicator, watch: Watch | None, *, may_lose_ranks: bool = False
    ) -> SearchOutcome:
        with cores.one_blas_thread():
            own = checked_rows(rows, self.groups if self.are_groups_own else None, comm)
            by_rows = not is_room_for(own, free_bytes() // ranks_on_machine(comm))
            everything, groups = all_rows(own, self.groups if self.are_groups_own else None, has_X=not by_rows)
            run = SearchRun(
                comm, watch, self.resume, self.fits,
                keeps=may_lose_ranks or self.resume is not None, own=own if by_rows else None,
            )  # fmt: skip
            is_weighted = bool(comm.allreduce(np.array([float(self.is_weighted)]), "max")[0])
            groups = groups if self.are_groups_own else self.groups
            searched, ledger = self.model._search(everything, is_weighted, groups, run)
        traffic = [*Ledger.TRAFFIC]
        both = Ledger.total([ledger, comm.ledger])
        counts = comm.allreduce(np.array([float(both.counts()[name]) for name in traffic]))
        totals: dict[str, Any] = dict(zip(traffic, map(int, counts), strict=True))
        return SearchOutcome([SearchResult(searched.told, replace(both, **totals))], searched)


@dataclass(frozen=True)
class SearchRun:
    """Where a search runs, who hears of it, and what is known already."""

    comm: Communicator
    watch: Watch | None
    resume: SearchResume | None = None
    fits: list[Any] = field(default_factory=list)
    interruption: Interruption = field(default_factory=Interruption)
    keeps: bool = False  # whether reports have the fits
    own: OwnRows | None = None  # of this rank, where no rank has room for all


def search_on(
    model: Any, rows: Rows, is_weighted: bool, groups: Any, resume: SearchResume | None, watch: Watch
) -> SearchOutcome:
    """Search on the cluster of an estimator, or on that of the rows; every rank gets all rows."""
    place, alone = model.cluster, copy.copy(model)
    for name in ("cluster", "checkpoint"):
        setattr(alone, name, None)
    alone.__dict__ = {name: value for name, value in vars(alone).items() if not name.startswith("_")}
    if not isinstance(model.cv, Integral) and not hasattr(model.cv, "split"):
        alone.cv = list(model.cv)  # which may be a generator
    program = SearchOnRanks(alone, groups, is_mpi(place), resume, is_weighted=is_weighted)
    outcome: SearchOutcome = launch(rows, place, program, watch)
    return outcome
