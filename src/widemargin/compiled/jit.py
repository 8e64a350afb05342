"""Compilation on first use, cached on disk, by one process at a time.

Numba's cache index is not safe if two processes write it at once: one may later load the machine code of another's
signature. Ranks, test workers and parallel searches start together, so each compilation holds a lock between processes;
those that waited find the result on disk. The holder may have been stopped (SIGSTOP), so after a timeout a process
compiles without writing the cache. The lock is polled: processes that queue behind a stopped one would wait for it too.

The lock is not filelock's, which would be a dependency of every install and follows symbolic links in old versions.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import NullCache

from widemargin.compiled.clock import CLOCK

try:
    import fcntl
except ImportError:  # Windows: without a lock
    fcntl = None  # type: ignore[assignment]

_LOCK_TIMEOUT = 30.0  # seconds; the slowest compilation takes a third
_POLL_INTERVAL = 0.02

_within_process = threading.RLock()
_holds_lock: bool | None = None  # of the current compilation, which also compiles the functions that it calls


def _lock_path() -> Path:
    return Path(tempfile.gettempdir()) / f"widemargin-compiling-{os.getuid()}.lock"


@contextmanager
def _one_process_at_a_time() -> Iterator[bool]:
    """Whether this process holds the lock, and so may write the cache."""
    global _holds_lock
    with _within_process, CLOCK:
        if fcntl is None or _holds_lock is not None:
            yield _holds_lock is not False
            return
        try:
            file = os.open(_lock_path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:  # another user may have put something else in the shared folder
            file = None
        _holds_lock = file is not None and _lock(file)
        try:
            yield _holds_lock
        finally:
            _holds_lock = None
            if file is not None:
                os.close(file)


def _lock(file: int) -> bool:
    """Lock a file, unless another process holds it until the timeout."""
    until = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_INTERVAL)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function to be compiled by Numba on first call, without the GIL, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
        compile_now = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            with _one_process_at_a_time() as may_write:
                on_disk = dispatcher._cache  # private to Numba, as are NullCache and overriding compile
                try:
                    if not may_write:
                        dispatcher._cache = NullCache()
                    return compile_now(signature)
                finally:
                    dispatcher._cache = on_disk

        dispatcher.compile = compile_alone
        return dispatcher

    return decorate
