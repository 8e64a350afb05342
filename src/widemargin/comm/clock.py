"""Seconds that never run backwards, from a clock that may jump."""

import threading
import time
from collections.abc import Callable


class SteadyClock:
    """Seconds since some moment; a step back of the clock that is read counts as no time at all.

    Otherwise a peer whose clock is set back by an hour would wait an hour for its next tick. A step forward counts in
    full: it cannot be told from a machine that slept.
    """

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read, self._last, self._elapsed = read, read(), 0.0
        self._lock = threading.Lock()  # a step that two threads see counts once

    def __call__(self) -> float:
        with self._lock:
            now = self._read()
            self._elapsed, self._last = self._elapsed + max(0.0, now - self._last), now
            return self._elapsed
