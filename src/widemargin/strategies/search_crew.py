"""Tasks of a search that ranks share, and fits that are known from a search that was cut short.

Every rank has all rows and runs the same search. It deals the tasks of each kernel to the ranks in turn, and all ranks
get the fits of all tasks: results do not depend on how many there are. A rank that is done waits for the others, and
all of them hear about once a second whether the search is to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from widemargin.codec import pack, record, unpack
from widemargin.comm.protocol import Communicator
from widemargin.exceptions import ModelFileError
from widemargin.pauses import Clock, TimeIsUp, as_numbers, as_text, told_by_rank_0
from widemargin.solvers.models import KernelModel
from widemargin.strategies.selection import Do, Found, KernelFolds, PartFit

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


@record(check=_check)
class KeptFits(NamedTuple):
    """The fits of a task as plain arrays, one after the other."""

    name: str  # of the task
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

    def found(self, on: KernelFolds) -> Found:
        """The fits, on the same rows and folds; raises ValueError for those of others."""
        rows, folds, parts = on.shard.kernel, on.folds.folds, on.folds.parts
        places = [tuple(each) for each in self.places.tolist()]
        if any(not (0 <= part < len(parts) and 0 <= fold < len(folds)) for part, fold, _ in places):
            raise ValueError("it has fits of problems or folds that there are not.")
        if any(size != len(folds[fold][1]) for (_, fold, _), size in zip(places, self.sizes[:, 1], strict=True)):
            raise ValueError("it has scores of other rows than its folds hold out.")
        if len(self.numbers) and not 0 <= self.numbers.min() <= self.numbers.max() < on.shard.n_rows:
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
            model = KernelModel(rows.kernel, rows.points(numbers), coef, intercept, {})
            out[place] = PartFit(model, scores, norm, gap, seconds, reason)
        return out


@record()
class SearchReport(NamedTuple):
    """What rank 0 tells of a search; ``part`` is that of all reports of ranks."""

    part: int
    n_points: int
    n_done: int  # points that were tried on all folds
    n_ahead: int  # points whose fits are done, and which have no score yet
    best_score: float  # nan before the first point is done
    gap: float  # of the models of the best point
    begun: Any  # what files of this search have in common, if its fits are kept
    fits: list[KeptFits]  # since the last report


class SharedCrew:
    """One rank's part in the tasks of a search.

    ``look`` is called on rank 0 and returns a reason to stop, or an empty text; ``tell`` is called there about once a
    second with fits that are new, if ``keeps``, and the number of all fits of the tasks at hand that are done.
    """

    def __init__(
        self,
        comm: Communicator,
        look: Callable[[], str],
        tell: Callable[[list[KeptFits], int], str],
        known: Mapping[str, KeptFits],
        *,
        keeps: bool,
    ) -> None:
        self._comm, self._known, self._keeps = comm, known, keeps
        self._look, self._tell = look, tell
        self._wish = ""  # what rank 0 has heard
        self.reason = ""  # why the search is to end; equal on all ranks where they meet
        self._clock: Clock | None = None  # while ranks do different tasks
        self._thread, self._lock = threading.get_ident(), threading.Lock()
        self._due = 0.0
        self._new: list[KeptFits] = []
        self._n_done = 0

    def ask(self) -> str:
        """A reason to stop, or an empty text; for tasks, from any thread."""
        if self.reason or threading.get_ident() != self._thread:
            return self.reason
        if self._clock is None:
            self.reason = self._heard()
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL
            self._clock.is_due_alone(np.inf)
            self.reason = self._clock.reason
        return self.reason

    def is_over(self, ask: Callable[[], str]) -> bool:
        """The same, agreed by all ranks; for what decides which tasks come next."""
        if not self.reason:
            reason = self._heard() if self._comm.rank == 0 else ""
            self.reason = as_text(told_by_rank_0(self._comm, as_numbers(reason)))
        return bool(self.reason)

    def fits(self, tasks: Mapping[str, int], do: Do, on: KernelFolds) -> list[Found]:
        known = [self._known[name].found(on) for name in tasks if name in self._known]
        left = [name for name in tasks if name not in self._known]
        self._n_done = sum(map(len, known))
        found: dict[str, Found] = {}

        def note(name: str, fits: Found) -> None:
            with self._lock:
                found[name] = fits
                self._n_done += len(fits) * self._comm.size  # the others are about as far
                if self._keeps and self._comm.size == 1 and len(fits) == tasks[name]:
                    self._new.append(KeptFits.of(name, fits))

        if self._comm.size == 1:
            do(left, note)
            out = list(found.values())
        else:
            out = self._shared(left, lambda own: do(own, note), found, tasks, on)
        if self._comm.rank == 0:
            self._told()
        self._new, self._n_done = [], 0
        return known + out

    def _shared(
        self,
        names: Sequence[str],
        do: Callable[[Sequence[str]], None],
        found: dict[str, Found],
        tasks: Mapping[str, int],
        on: KernelFolds,
    ) -> list[Found]:
        """Do this rank's part of some tasks, and give and take what ranks have found."""
        if not names or self.reason:
            return []
        self._clock = Clock(self._comm, self._heard)
        self._due = time.monotonic() + _INTERVAL
        with suppress(TimeIsUp), self._clock.uneven(np.inf):
            do(names[self._comm.rank :: self._comm.size])
        self.reason, self._clock = self._clock.reason, None
        own = np.frombuffer(pack([KeptFits.of(*each) for each in found.items()]), np.uint8)
        gathered = self._comm.gather(own)
        merged = None
        if gathered is not None:
            merged = np.frombuffer(pack([each for some in gathered for each in unpack(some.tobytes())]), np.uint8)
        everything: list[KeptFits] = unpack(self._comm.broadcast(merged).tobytes())
        if self._keeps:
            self._new += [each for each in everything if len(each.reasons) == tasks[each.name]]
        return [each.found(on) for each in everything]

    def _heard(self) -> str:
        """What rank 0 has been told; it tells what is new now and then."""
        self._wish = self._wish or self._look()
        if not self._wish and (self._clock is not None or time.monotonic() >= self._due):
            self._told()
        return self._wish

    def _told(self) -> None:
        self._due = time.monotonic() + _INTERVAL
        with self._lock:
            new, self._new = self._new, []
        reason = self._tell(new, self._n_done)
        self._wish = self._wish or reason
