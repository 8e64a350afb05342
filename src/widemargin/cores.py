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
from contextvars import ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar
from weakref import WeakSet

from widemargin.pauses import pause_alone, pause_no_more
from widemargin.sklearn_private import openmp_effective_n_threads
from widemargin.threadpoolctl_private import BlasLibrary, blas_libraries

T = TypeVar("T")

_MIN_WORK = 3e5  # multiplications that are worth waking another thread for: a tenth of a millisecond
_IDLE_SECONDS = 0.5  # after which a thread with nothing to do ends


class _Share:
    """How many threads may share work, found out when it is first asked for: that takes some microseconds."""

    def __init__(self, n: int | None = None) -> None:
        self._n = n

    @property
    def n(self) -> int:
        if self._n is None:
            self._n = available_threads()
        return self._n


_share: ContextVar[_Share | None] = ContextVar("threads that work in this context may use", default=None)


def n_threads() -> int:
    """How many threads may share the work of the caller."""
    share = _share.get()
    return available_threads() if share is None else share.n


def available_threads() -> int:
    """How many threads this process may use, by its affinity, OMP_NUM_THREADS and threadpoolctl."""
    allowed = int(openmp_effective_n_threads())
    if allowed > 1 and hasattr(os, "sched_getaffinity"):  # scikit-learn looks at it once
        allowed = min(allowed, len(os.sched_getaffinity(0)))
    return max(1, allowed)


@contextmanager
def at_most(n: int) -> Iterator[None]:
    """Work inside the block uses ``n`` threads, or fewer: the part of a rank among others on the same cores.

    The caller divides what :func:`n_threads` says. A larger number is taken as it is.
    """
    token = _share.set(_Share(max(1, n)))
    try:
        yield
    finally:
        _share.reset(token)


def each(do: Callable[[T], object], pieces: Sequence[T], work: float, *, may_end: bool = False) -> None:
    """Call ``do`` for every piece, several at a time.

    ``work`` is the number of multiplications for all of them. Where ``may_end``, the calling thread pauses between its
    pieces (``pauses.py``): for long work whose caller is ready to be stopped. What a call returns is dropped: it writes
    its result where no other does. Once a call raises, or Ctrl-C is pressed, no further pieces begin, and the error is
    raised here when those that have begun are done. Other threads have the context of the caller (NumPy's
    ``errstate``), but do not pause, and do not share their pieces.
    """
    n = int(min(n_threads(), len(pieces), work / _MIN_WORK)) if work >= 2 * _MIN_WORK else 1
    part = work / max(len(pieces), 1) if may_end else 0.0
    if n <= 1:
        for piece in pieces:
            do(piece)
            if part:
                pause_alone(part)
        return
    job = _Job(do, pieces)
    try:
        _pool.help(job, n - 1)
        while job.next():
            if part:
                pause_alone(part)
    finally:
        job.close()
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # its traceback leads to this job, and to the rows


class _Job:
    """Pieces that several threads take in turn."""

    def __init__(self, do: Callable[[Any], object], pieces: Sequence[Any]) -> None:
        self.error: BaseException | None = None
        self._do, self._pieces, self._context = do, pieces, copy_context()
        self._numbers = count()  # next() is atomic
        self._n_inside, self._is_closed = 0, False
        self._condition = threading.Condition(threading.Lock())

    def next(self) -> bool:
        """Do the next piece; False if there is none left."""
        if self._is_closed:  # not after a number is taken: the caller closes a job when all numbers are
            return False
        k = next(self._numbers)
        if k >= len(self._pieces):
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
            self._context.copy().run(self._do_all)
        except BaseException as error:
            self.error, self._is_closed = error, True
        finally:
            with self._condition:
                self._n_inside -= 1
                self._condition.notify()

    def _do_all(self) -> None:
        _share.set(_Share(1))
        pause_no_more()
        while self.next():
            pass

    def close(self) -> None:
        """Let no further piece begin, and wait for those that have begun."""
        with self._condition:
            self._is_closed = True
            try:
                self._condition.wait_for(self._is_left)
            finally:  # after Ctrl-C, too: they write to arrays that the caller may use again
                self._condition.wait_for(self._is_left)
        del self._do, self._pieces, self._context  # the queue may keep this job for a while

    def _is_left(self) -> bool:
        return self._n_inside == 0


class _Pool:
    """Threads that help with jobs; they begin when they are needed, and end when they are not."""

    def __init__(self) -> None:
        self._tickets: queue.SimpleQueue[_Job] = queue.SimpleQueue()  # each lets one thread help with a job
        self._n_valid = 0  # tickets that wait, or whose thread is at work
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def help(self, job: _Job, n: int) -> None:
        """Let up to ``n`` threads help with a job; all jobs together have those that the process may use."""
        with self._lock:
            if len(self._threads) < self._n_valid + n:
                self._start(min(self._n_valid + n, max(available_threads() - 1, n)))
            n = min(n, len(self._threads))
            self._n_valid += n
            for _ in range(n):
                self._tickets.put(job)

    def _start(self, n: int) -> None:
        while len(self._threads) < n:
            thread = threading.Thread(target=self._serve, name="widemargin-core", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more of them, or the interpreter ends
                return
            self._threads.add(thread)

    def _serve(self) -> None:
        _own_blas_thread()
        while True:
            try:
                job = self._tickets.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._tickets.empty():
                        self._threads.discard(threading.current_thread())
                        return
                continue
            job.help()
            del job  # and with it the rows, while this thread waits
            with self._lock:
                self._n_valid -= 1


_pool = _Pool()


class _BlasThreads:
    """The number of BLAS threads: 1 while any thread is inside a block that needs it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._blocks: WeakSet[_Block] = WeakSet()  # weak: Ctrl-C may end a block before it says so
        self._before: list[int] | None = None  # while they are changed
        self._libraries: list[BlasLibrary] | None = None  # looked for when they are needed

    def enter(self, block: _Block) -> None:
        with self._lock:
            self._blocks.add(block)
            if self._before is None:
                self._before = [library.get() for library in self._shared()]
                for library, number in zip(self._shared(), self._before, strict=True):
                    if number != 1:
                        library.set(1)

    def leave(self, block: _Block) -> None:
        with self._lock:
            self._blocks.discard(block)
            if not self._blocks and self._before is not None:
                self._restore()

    def after_fork(self) -> None:
        """In a child process, which inherits the setting but none of the threads that asked for it."""
        self._lock, self._blocks = threading.RLock(), WeakSet()
        if self._before is not None:
            self._restore()

    def _restore(self) -> None:
        for library, number in zip(self._shared(), self._before or [], strict=True):
            if number != 1:
                library.set(number)
        self._before = None

    def own(self) -> list[BlasLibrary]:
        """Libraries in which each thread has a number of its own."""
        return [library for library in self._found() if library.is_per_thread]

    def _shared(self) -> list[BlasLibrary]:
        return [library for library in self._found() if not library.is_per_thread]

    def _found(self) -> list[BlasLibrary]:
        if self._libraries is None:
            with self._lock:
                self._libraries = self._libraries or blas_libraries()
        return self._libraries


class _Block:
    """One block that is being executed."""


_blas = _BlasThreads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products inside the block run on one BLAS thread each; so do, meanwhile, those of other threads.

    How many threads may share the work is found out once, and at the beginning where BLAS has its threads from OpenMP:
    inside, OpenMP would say one.
    """
    block, own = _Block(), [(library, library.get()) for library in _blas.own()]
    token = _share.set(_share.get() or _Share(available_threads() if own else None))
    try:
        _blas.enter(block)
        _own_blas_thread()
        yield
    finally:
        _blas.leave(block)
        for library, number in own:
            library.set(number)
        _share.reset(token)


def _own_blas_thread() -> None:
    """Of libraries in which each thread has its own number: products of this thread run on one thread from now on."""
    for library in _blas.own():
        library.set(1)


def _after_fork() -> None:
    global _pool
    _pool = _Pool()  # threads do not survive a fork
    _blas.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
