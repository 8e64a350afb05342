"""Compilation on first use, kept on disk, one process at a time.

Numba's index of compiled functions is not safe against two processes that add to it at once: one may later load the
machine code of another's signature. Ranks, test workers and parallel searches all start cold together, so each
compilation holds a lock between processes; those who waited find the result on disk.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import njit

try:
    import fcntl
except ImportError:  # not on Windows, where the lock is left out
    fcntl = None  # type: ignore[assignment]

_within_process = threading.RLock()
_depth = 0  # a function compiles those it calls


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    global _depth
    with _within_process:
        if fcntl is None or _depth:
            yield
            return
        path = Path(tempfile.gettempdir()) / f"widemargin-compiling-{os.getuid()}.lock"
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _depth += 1
            try:
                yield
            finally:
                _depth -= 1


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function to be compiled by Numba when first called, without the interpreter lock, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
        compile_now = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            with _one_process_at_a_time():
                return compile_now(signature)

        dispatcher.compile = compile_alone
        return dispatcher

    return decorate
