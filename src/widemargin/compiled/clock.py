"""How long this process has compiled, or loaded compiled code: what a first fit waits for and later fits do not."""

from __future__ import annotations

import time


class CompileClock:
    """Runs while anything compiles; compilations of one process exclude each other, so that none counts twice."""

    __slots__ = ("_begin", "_depth", "_seconds")

    def __init__(self) -> None:
        self._begin, self._depth, self._seconds = 0.0, 0, 0.0

    @property
    def seconds(self) -> float:
        """Until now, or until the compilation under way began."""
        return self._seconds

    def __enter__(self) -> None:
        if self._depth == 0:
            self._begin = time.perf_counter()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._seconds += time.perf_counter() - self._begin


CLOCK = CompileClock()
