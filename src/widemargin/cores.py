"""The cores of this machine: work on rows, cut into fixed pieces and shared among threads.

How many threads share the work is for the user to say, by the usual means (``docs/cores.md``): the affinity of the
process, ``OMP_NUM_THREADS``, threadpoolctl. Results never depend on it:

* Pieces depend on the data alone, and each is computed by one thread. Where pieces are summed, the sums are added up in
  the order of the pieces.
* Products run on one BLAS thread, since BLAS rounds differently on several: :func:`one_blas_thread`.

The threads are plain Python threads. What they run must release the GIL: compiled loops, or NumPy on large arrays. All
fits of a process have one pool, so that fits side by side share the cores. A thread with nothing to do ends soon.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from widemargin.pauses import pause_alone
from widemargin.sklearn_private import openmp_effective_n_threads

T = TypeVar("T")

_MIN_WORK = 3e5  # multiplications that are worth waking other threads for: a tenth of a millisecond
_IDLE_SECONDS = 0.5  # after which a thread with nothing to do ends

_share: ContextVar[int | None] = ContextVar("threads that work in this context may use", default=None)


def n_threads() -> int:
    """How many threads may share the work of the caller."""
    share = _share.get()
    return available_threads() if share is None else share


def available_threads() -> int:
    """How many threads this process may use, by its affinity, OMP_NUM_THREADS and threadpoolctl."""
    allowed = int(openmp_effective_n_threads())
    if allowed > 1 and hasattr(os, "sched_getaffinity"):  # scikit-learn looks at it once
        allowed = min(allowed, len(os.sched_getaffinity(0)))
    return max(1, allowed)


@contextmanager
def at_most(n: int) -> Iterator[None]:
    """Work inside the block uses at most ``n`` threads: a rank among others on the same cores."""
    token = _share.set(max(1, n))
    try:
        yield
    finally:
        _share.reset(token)


def each(do: Callable[[T], object], pieces: Sequence[T], work: float) -> None:
    """Call ``do`` for every piece, several at a time.

    ``work`` is the number of multiplications for all of them, by which the calling thread pauses between its pieces
    (``pauses.py``). What a call returns is dropped: it writes its result where no other does. Once a call raises, no
    further pieces begin, and the error is raised here when those that have begun are done.
    """
    n = min(n_threads(), len(pieces)) if work >= _MIN_WORK else 1
    part = work / max(len(pieces), 1)
    if n == 1:
        for piece in pieces:
            do(piece)
            pause_alone(part)
        return
    job = _Job(do, pieces)
    _pool.help(job, n - 1)
    try:
        while job.next():
            pause_alone(part)
    finally:
        job.close()
    if job.error is not None:
        raise job.error


class _Job:
    """Pieces that several threads take in turn."""

    def __init__(self, do: Callable[[Any], object], pieces: Sequence[Any]) -> None:
        self.error: BaseException | None = None
        self._do, self._pieces = do, pieces
        self._numbers = count()  # next() is atomic
        self._n_inside, self._is_closed = 0, False
        self._condition = threading.Condition()

    def next(self) -> bool:
        """Do the next piece; False if there is none left."""
        k = next(self._numbers)
        if k >= len(self._pieces) or self._is_closed:
            return False
        self._do(self._pieces[k])
        return True

    def help(self) -> None:
        """Do pieces as long as there are some, in a thread of the pool."""
        with self._condition:
            if self._is_closed:
                return
            self._n_inside += 1
        try:
            while self.next():
                pass
        except BaseException as error:
            self.error, self._is_closed = error, True
        finally:
            with self._condition:
                self._n_inside -= 1
                self._condition.notify()

    def close(self) -> None:
        """Let no further piece begin, and wait for those that have begun."""
        with self._condition:
            self._is_closed = True
            self._condition.wait_for(lambda: self._n_inside == 0)
        del self._do, self._pieces  # the queue may keep this job for a while


class _Pool:
    """Threads that help with jobs; they begin when they are needed, and end when they are not."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._n_threads = self._n_waiting = 0

    def help(self, job: _Job, n: int) -> None:
        """Let up to ``n`` threads help with a job."""
        with self._lock:
            for _ in range(min(n - self._n_waiting, available_threads() - 1 - self._n_threads)):
                self._n_threads += 1
                threading.Thread(target=self._serve, name="widemargin-core", daemon=True).start()
        for _ in range(n):
            self._jobs.put(job)

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._n_waiting += 1
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                job = None
            with self._lock:
                self._n_waiting -= 1
                if job is None:
                    self._n_threads -= 1
                    return
            job.help()
            del job  # and with it the rows, while this thread waits


_pool = _Pool()


class _BlasThreads:
    """The number of BLAS threads, a setting of the process: 1 while any thread is inside a block that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._libraries: list[Any] | None = None
        self._before: list[int] = []

    def enter(self) -> None:
        with self._lock:
            self._n_inside += 1
            if self._n_inside > 1:
                return
            if self._libraries is None:  # looked for once: it takes milliseconds
                self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            self._before = [library.get_num_threads() for library in self._libraries]
            self._set([1] * len(self._before))

    def leave(self) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._set(self._before)

    def restore(self) -> None:
        """In a child process, which inherits the setting but none of the threads that asked for it."""
        self._lock = threading.Lock()
        if self._n_inside:
            self._n_inside = 0
            self._set(self._before)

    def _set(self, numbers: list[int]) -> None:
        for library, number in zip(self._libraries or [], numbers, strict=True):
            if library.get_num_threads() != number:
                library.set_num_threads(number)


_blas = _BlasThreads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products inside the block run on one BLAS thread each; so do, meanwhile, those of other threads."""
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


def _after_fork() -> None:
    global _pool
    _pool = _Pool()  # threads do not survive a fork
    _blas.restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
