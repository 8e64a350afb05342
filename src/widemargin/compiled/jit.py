"""Compilation on first use, kept on disk, one process at a time.

Numba's index of compiled functions is not safe against two processes that add to it at once: one may later load the
machine code of another's signature. Ranks, test workers and parallel searches all start cold together, so each
compilation holds a lock between processes; those who waited find the result on disk.

Whoever holds the lock may have been stopped meanwhile, and nobody waits for that: after some patience a process
compiles for itself alone and leaves the disk as it is. The lock is asked for again and again rather than queued for,
since those who queue behind a process that was stopped wait for it too.
"""

from __future__ import annotations

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

try:
    import fcntl
except ImportError:  # not on Windows, where the lock is left out
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 30.0  # seconds, of which the slowest compilation takes a third
_LOOK = 0.02

_within_process = threading.RLock()
_holds_lock: bool | None = None  # of the compilation under way, which compiles the functions it calls as well


def _lock_path() -> Path:
    return Path(tempfile.gettempdir()) / f"widemargin-compiling-{os.getuid()}.lock"


@contextmanager
def _one_process_at_a_time() -> Iterator[bool]:
    """Whether no other process compiles meanwhile."""
    global _holds_lock
    with _within_process:
        if fcntl is None or _holds_lock is not None:
            yield _holds_lock is not False
            return
        try:
            file = os.open(_lock_path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:  # the folder is everybody's, and somebody may have put something else there
            file = None
        _holds_lock = file is not None and _lock(file)
        try:
            yield _holds_lock
        finally:
            _holds_lock = None
            if file is not None:
                os.close(file)


def _lock(file: int) -> bool:
    """Lock a file unless others keep it for longer than is worth waiting."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function to be compiled by Numba when first called, without the interpreter lock, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
        compile_now = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            with _one_process_at_a_time() as may_write:
                on_disk = dispatcher._cache
                try:
                    if not may_write:
                        dispatcher._cache = NullCache()
                    return compile_now(signature)
                finally:
                    dispatcher._cache = on_disk

        dispatcher.compile = compile_alone
        return dispatcher

    return decorate
