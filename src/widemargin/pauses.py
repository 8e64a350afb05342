"""Pauses of long work, at which a run hears of its time limit, its callbacks and Ctrl-C.

Work is cut by its amount, not by the clock, so that results do not depend on how fast it went. What takes long counts
its work between its pieces; whenever about ``WORK`` operations have passed, rank 0 looks at the clock and tells the
others. If it is time to stop,

    pause(work)           raises TimeIsUp, once in a run: what follows, to bring the work to an end, is not interrupted
    is_time_up(work)      says so, for loops that can end where they are, and goes on saying so
    pieces(rows, work)    yields rows in parts, with a pause between them

All ranks do this alike: ``work`` is equal on all of them, an estimate or a bound. Where ranks have different work,

    with uneven(work): ...    ``work`` bounds that of every rank; inside,
        pause_alone(work)     counts what this rank does; ranks that are done wait for the others

No run, no pause: outside of one, or where ranks do not expect it, these functions do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from widemargin.comm.protocol import Communicator

WORK = 2e8  # multiplications between two looks at the clock: a tenth of a second, or less
BLAS_SPEED = 4  # multiplications of BLAS in the time of one of a plain loop
_MAX_PIECES = 10_000


class TimeIsUp(Exception):
    """Raised by a pause when the run is to stop."""


class _Running:
    """Not a generator: fits on few rows take so little time that they would notice."""

    __slots__ = ("_clock", "_token")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._token = _clock.set(self._clock)

    def __exit__(self, *error: object) -> None:
        _clock.reset(self._token)


class Clock:
    """What a run listens to: ``ask`` is called on rank 0 and returns a reason to stop, or an empty text."""

    def __init__(self, comm: Communicator, ask: Callable[[], str]) -> None:
        self.reason = ""  # why the run is to stop; equal on all ranks
        self._comm, self._ask = comm, ask
        self._work = self._own_work = 0.0  # since the last look; of all ranks alike, and of this one where they differ
        self._is_uneven = False
        self._has_raised = False

    def in_overtime(self, ask: Callable[[], str]) -> Clock:
        """Another clock for the same ranks, after the run was told to stop."""
        return Clock(self._comm, ask)

    def running(self) -> _Running:
        """Work inside the block pauses at this clock."""
        return _Running(self)

    def is_due(self, work: float) -> bool:
        """Count work that all ranks do; whether it is time to stop."""
        self._work += work
        if self._work >= WORK and not self.reason:
            self._work = 0.0
            self._tell()
        return bool(self.reason)

    def is_due_alone(self, work: float) -> bool:
        """Count work of this rank; the others are told if they expect it."""
        if self._comm.size == 1:
            return self.is_due(work)
        if not self._is_uneven:
            return False
        self._own_work += work
        if self._own_work >= WORK and not self.reason:
            self._own_work = 0.0
            self._meet(is_done=False)
        return bool(self.reason)

    def raise_once(self) -> None:
        if not self._has_raised:
            self._has_raised = True
            raise TimeIsUp

    @contextmanager
    def uneven(self, work: float) -> Iterator[None]:
        is_long = self._comm.size > 1 and work >= WORK and not self._is_uneven
        self._is_uneven |= is_long
        try:
            yield
        finally:
            self._is_uneven &= not is_long
        while is_long and not self.reason and not self._meet(is_done=True):
            pass
        if is_long and self.reason:
            self.raise_once()

    def _meet(self, *, is_done: bool) -> bool:
        """A look at the clock by ranks that are done and ranks that are not; whether all are done."""
        asked = self._ask() if self._comm.rank == 0 else ""
        are_done, may_go_on = self._comm.allreduce(np.array([float(is_done), float(not asked)]), "min")
        if not may_go_on:
            self._share(asked)
        return bool(are_done)

    def _tell(self) -> None:
        self._share(self._ask() if self._comm.rank == 0 else "")

    def _share(self, asked: str) -> None:
        self.reason = as_text(told_by_rank_0(self._comm, as_numbers(asked) if self._comm.rank == 0 else None))


_clock: ContextVar[Clock | None] = ContextVar("clock of the run", default=None)


def as_numbers(text: str) -> np.ndarray:
    """A text as rank 0 sends it: its length and its letters."""
    return np.array([len(text.encode()), *text.encode()], dtype=np.float64)


def told_by_rank_0(comm: Communicator, numbers: np.ndarray | None) -> np.ndarray:
    """Every look at the clock ends here: what rank 0 has to say, on every rank."""
    return comm.broadcast(numbers)


def as_text(numbers: np.ndarray) -> str:
    return bytes(numbers[1:].astype(np.uint8)).decode() if len(numbers) > 1 else ""


def is_time_up(work: float) -> bool:
    """Count work that all ranks have done; whether it is time to stop."""
    clock = _clock.get()
    return clock is not None and clock.is_due(work)


def pause(work: float) -> None:
    """Count work that all ranks have done, and raise TimeIsUp if it is time to stop."""
    clock = _clock.get()
    if clock is not None and clock.is_due(work):
        clock.raise_once()


def pause_alone(work: float) -> None:
    """Count work that this rank has done, and raise TimeIsUp if it is time to stop."""
    clock = _clock.get()
    if clock is not None and clock.is_due_alone(work):
        clock.raise_once()


def pause_no_more() -> None:
    """In a thread that helps with work in a copy of the context of a run: its clock is for the thread of the run."""
    _clock.set(None)


@contextmanager
def uneven(work: float) -> Iterator[None]:
    """Ranks differ in what they do in this block, each at most ``work``; those that are done wait for the others."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    with clock.uneven(work):
        yield


def pieces(rows: np.ndarray, work: float) -> Iterator[np.ndarray]:
    """``rows`` in as many parts as ``work`` on all of them calls for, with a pause after each."""
    n_parts = max(1, int(min(work / WORK, _MAX_PIECES)))  # equal on all ranks, whatever rows they have
    for part in np.array_split(rows, n_parts):
        yield part
        pause(work / n_parts)
