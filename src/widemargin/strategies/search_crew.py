"""Fits of a search that ranks share, and fits that are known from a search that was cut short.

Every rank has all rows and runs the same search. The folds and two-class problems of each kernel are dealt to the
ranks, which tell each other of their fits after each C: results do not depend on how many there are. A rank that is
done waits for the others, and all of them hear about once a second whether the search is to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np

from widemargin.codec import pack, record, unpack
from widemargin.comm.protocol import Communicator
from widemargin.exceptions import ModelFileError
from widemargin.pauses import Clock, TimeIsUp, as_numbers, as_text, told_by_rank_0
from widemargin.solvers.models import KernelModel
from widemargin.strategies.fold_paths import KeptPoint
from widemargin.strategies.selection import Found, KernelFolds, PartFit, Running, T, Task

_SHARE_FOR_PATHS = 0.02  # of the time of a search, to keep what is done of a kernel
_INTERVAL = 1.0  # seconds between two reports, and between two meetings of ranks that do different tasks


def _check(fits: KeptFits) -> None:
    """Sizes and places are checked against the folds when the fits are used."""
    n_fits, whole = len(fits.reasons), (fits.places, fits.sizes, fits.numbers)
    are_whole = all(each.dtype.kind == "i" for each in whole)
    are_floats = all(each.dtype == np.float64 for each in (fits.coef, fits.scores, fits.values))
    are_shapes = (
        fits.places.shape == (n_fits, 3) and fits.sizes.shape == (n_fits, 2) and fits.values.shape == (n_fits, 4)
    )
    if not (are_whole and are_floats and are_shapes) or (fits.sizes < 0).any():
        raise ModelFileError("fits of a search have arrays of wrong types or shapes")
    n_support, n_held_out = fits.sizes.sum(axis=0).tolist()
    if fits.numbers.shape != (n_support,) or fits.coef.shape != (n_support,) or fits.scores.shape != (n_held_out,):
        raise ModelFileError("fits of a search have arrays that do not belong together")


class SomeFolds(Protocol):
    """Folds with a kernel, on which fits are found again."""

    @property
    def folds(self) -> Any: ...

    def model(self, numbers: np.ndarray, coef: np.ndarray, intercept: float) -> KernelModel: ...


@record(check=_check)
class KeptFits(NamedTuple):
    """Fits of a kernel as plain arrays, one after the other."""

    name: str  # of all fits of the kernel
    places: np.ndarray  # of each fit: the numbers of a two-class problem, a fold and a C
    sizes: np.ndarray  # of each fit: how many support vectors and held-out rows there are
    numbers: np.ndarray  # of support vectors
    coef: np.ndarray
    scores: np.ndarray  # of held-out rows
    values: np.ndarray  # of each fit: intercept, norm, gap and seconds
    reasons: list[str]  # why each has stopped

    @classmethod
    def of(cls, name: str, found: Found) -> KeptFits:
        fits, none = list(found.values()), np.empty(0)
        return cls(
            name,
            np.array(list(found), np.int64).reshape(-1, 3),
            np.array([[len(fit.model.coef), len(fit.scores)] for fit in fits], np.int64).reshape(-1, 2),
            np.concatenate([none.astype(np.int64), *(fit.model.points.numbers for fit in fits)]).astype(np.int64),
            np.concatenate([none, *(fit.model.coef for fit in fits)]),
            np.concatenate([none, *(fit.scores for fit in fits)]),
            np.array([[fit.model.intercept, fit.norm, fit.gap, fit.seconds] for fit in fits]).reshape(-1, 4),
            [fit.stop_reason for fit in fits],
        )

    def found(self, on: SomeFolds) -> Found:
        """The fits, on the same rows and folds; raises ValueError for those of others."""
        folds, parts = on.folds.folds, on.folds.parts
        places = [tuple(each) for each in self.places.tolist()]
        if any(not (0 <= part < len(parts) and 0 <= fold < len(folds)) for part, fold, _ in places):
            raise ValueError("it has fits of problems or folds that there are not.")
        if any(size != len(folds[fold][1]) for (_, fold, _), size in zip(places, self.sizes[:, 1], strict=True)):
            raise ValueError("it has scores of other rows than its folds hold out.")
        if len(self.numbers) and not 0 <= self.numbers.min() <= self.numbers.max() < on.folds.shard.n_rows:
            raise ValueError("it has support vectors that are no rows.")
        ends = np.cumsum(self.sizes, axis=0)[:-1]
        cut = zip(
            *(np.split(each, ends[:, k]) for k, each in ((0, self.numbers), (0, self.coef), (1, self.scores))),
            strict=True,
        )
        out: Found = {}
        for place, (numbers, coef, scores), values, reason in zip(
            places, cut, self.values.tolist(), self.reasons, strict=True
        ):
            intercept, norm, gap, seconds = values
            out[place] = PartFit(on.model(numbers, coef, intercept), scores, norm, gap, seconds, reason)
        return out


@record()
class KeptPaths(NamedTuple):
    """The fits of a kernel as far as they are done, and where the next ones start."""

    fits: KeptFits
    has_values: bool  # whether all kernel values were kept: others start in another form
    places: np.ndarray  # of each start: the numbers of a two-class problem and a fold
    last: list[np.ndarray]

    @classmethod
    def of(cls, running: Running) -> KeptPaths:
        """Those of tasks that are done."""
        with running.changed:
            found, last = dict(running.found), dict(running.last)
        done: Found = {}
        for task in running.tasks:
            if all(place in found for place in task.places):
                done |= {place: found[place] for place in task.places}
        places = np.array(list(last), np.int64).reshape(-1, 2)
        has_values = running.within.known is not None
        return cls(KeptFits.of(running.name, done), has_values, places, list(last.values()))

    def starts(self, on: KernelFolds) -> dict[tuple[int, int], np.ndarray]:
        """By problem and fold; raises ValueError for those of other rows."""
        counts = np.bincount(on.shard.y.astype(np.intp), minlength=len(on.folds.classes)).astype(np.float64)
        sizes = [int(sum(each)) for each in on.folds.parts.weights(counts)]
        places = [(part, fold) for part, fold in self.places.tolist()]
        if any(not 0 <= part < len(sizes) for part, _ in places) or len(places) != len(self.last):
            raise ValueError("it has starts of problems that there are not.")
        for (part, _), last in zip(places, self.last, strict=True):
            if last.dtype != np.float64 or not 1 <= last.ndim <= 2 or last.shape[-1] != sizes[part]:
                raise ValueError("it has starts of other rows.")
        return dict(zip(places, self.last, strict=True))


@record()
class SearchReport(NamedTuple):
    """What rank 0 tells of a search; ``part`` is that of all reports of ranks."""

    part: int
    n_points: int
    n_done: int  # points that were tried on all folds, or skipped
    best_score: float  # nan before the first point is done
    gap: float  # of the models of the best point
    begun: Any  # what files of this search have in common, if its fits are kept
    fits: list[KeptFits | KeptPoint]  # since the last report
    paths: KeptPaths | None  # of the kernel that is being tried, now and then


class SharedCrew:
    """One rank's part in a search.

    ``look`` is called on rank 0 and returns a reason to stop, or an empty text; so does ``tell``, which is called there
    about once a second with fits that are new, if ``keeps``.
    """

    def __init__(
        self,
        comm: Communicator,
        look: Callable[[], str],
        tell: Callable[[list[KeptFits | KeptPoint], KeptPaths | None], str],
        known: Mapping[str, KeptFits],
        paths: KeptPaths | None = None,
        *,
        keeps: bool,
    ) -> None:
        self._comm, self._known, self._paths, self._keeps = comm, known, paths, keeps
        self._look, self._tell = look, tell
        self._wish = ""  # what rank 0 has heard
        self.reason = ""  # why the search is to end; equal on all ranks where they meet
        self._clock: Clock | None = None  # while ranks do different fits
        self._running: Running | None = None  # while there is one whose paths are kept
        self._thread = threading.get_ident()
        self._due = self._paths_due = 0.0
        self._new: list[KeptFits | KeptPoint] = []

    def ask(self) -> str:
        """A reason to stop, or an empty text; for fits, from any thread."""
        if self.reason or threading.get_ident() != self._thread:
            return self.reason
        if self._clock is None:
            self.reason = self.heard()
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL
            self._clock.is_due_alone(np.inf)
            self.reason = self._clock.reason
        return self.reason

    def is_over(self, ask: Callable[[], str]) -> bool:
        """The same, agreed by all ranks; for what decides which fits come next."""
        if not self.reason:
            reason = self.heard() if self._comm.rank == 0 else ""
            self.reason = as_text(told_by_rank_0(self._comm, as_numbers(reason)))
        return bool(self.reason)

    def recalled(self, name: str, on: SomeFolds) -> Found:
        """The fits of a kernel that are known, or none."""
        return self._known[name].found(on) if name in self._known else {}

    def keep(self, kept: KeptFits | KeptPoint) -> None:
        """Note all fits of a kernel, or of a point, and tell of them."""
        if self._keeps and kept.name not in self._known:
            self._new.append(kept)
        if self._comm.rank == 0:
            self._told()
        self._new = []

    def run(self, running: Running) -> None:
        if running.name in self._known:
            running.take(self.recalled(running.name, running.within))
        elif self._comm.size == 1:
            self._run_alone(running)
        else:
            self._share(running)
        if running.is_complete:
            found = {place: fit for place, fit in running.found.items() if place[2] < len(running.heard)}
            self.keep(KeptFits.of(running.name, found))

    def _run_alone(self, running: Running) -> None:
        paths, on = self._paths, running.within
        if paths is not None and paths.fits.name == running.name:
            found, starts = paths.fits.found(on), paths.starts(on)
            if on.has_values() and (on.known is not None) == paths.has_values:
                running.take(found, starts)
        self._running, self._paths_due = running if self._keeps else None, time.monotonic() + _INTERVAL
        try:
            running.do(running.tasks)
        finally:
            self._running = None

    def _share(self, running: Running) -> None:
        """Do this rank's part, C by C, and give and take what ranks have found."""
        running.is_shared = True

        def found(task: Task) -> KeptFits:
            fits = {place: running.found[place] for place in task.places if place in running.found}
            return KeptFits.of(running.name, fits)

        for _, step in groupby(running.tasks, key=lambda task: task.Cs.start):
            if self.reason or running.is_over:
                return
            for fits in self.shared(list(step), running.do, found):
                running.take(fits.found(running.within))

    def shared(self, tasks: Sequence[T], do: Callable[[Sequence[T]], None], found: Callable[[T], Any]) -> list[Any]:
        """Let each rank do some of the tasks; what it has found for each of all tasks, on all ranks."""
        rank, size = self._comm.rank, self._comm.size
        own = tasks[rank::size]
        if size == 1:
            do(own)
            return [found(task) for task in own]
        self._clock = Clock(self._comm, self.heard)
        self._due = time.monotonic() + _INTERVAL
        with suppress(TimeIsUp), self._clock.uneven(np.inf):
            do(own)
        self.reason, self._clock = self._clock.reason, None
        gathered = self._comm.gather(np.frombuffer(pack([found(task) for task in own]), np.uint8))
        merged = None
        if gathered is not None:
            merged = np.frombuffer(pack([unpack(each.tobytes()) for each in gathered]), np.uint8)
        everyone = unpack(self._comm.broadcast(merged).tobytes())
        return [everyone[k % size][k // size] for k in range(len(tasks))]

    def heard(self) -> str:
        """What rank 0 has been told; it tells what is new now and then."""
        self._wish = self._wish or self._look()
        if not self._wish and (self._clock is not None or time.monotonic() >= self._due):
            self._told()
        return self._wish

    def _told(self) -> None:
        now, paths = time.monotonic(), None
        if self._running is not None and now >= self._paths_due:
            paths = KeptPaths.of(self._running)
        new, self._new = self._new, []
        reason = self._tell(new, paths)
        self._due = time.monotonic() + _INTERVAL
        if paths is not None:
            self._paths_due = self._due + (self._due - _INTERVAL - now) / _SHARE_FOR_PATHS
        self._wish = self._wish or reason
