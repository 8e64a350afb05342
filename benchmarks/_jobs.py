"""How does a long benchmark go on where it was interrupted? Jobs in processes of their own, whose outcomes are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _harness as harness
from benchmarks import _kernel_runs as runs

LIMIT, QUICK_LIMIT = 3_600.0, 30.0  # seconds of a job


class Jobs:
    """Functions run in children of one thread; outcomes are lines of a file, found again by function and arguments.

    A line also says how many seconds the job took: ``widemargin reproduce --list`` adds them up. In the folder of a
    quick run, jobs run in this process: they are small, and a process of its own would take longer to begin than most.
    Those that come with a limit have a child there too, and ``QUICK_LIMIT`` seconds at most.
    """

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self._path, self._is_quick = path, path.parent.name.endswith("-quick")
        if fresh:
            path.unlink(missing_ok=True)
        lines = path.read_text(encoding="utf8").splitlines() if path.exists() else []
        self._kept = dict(entry for line in lines if (entry := _read(line)) is not None)

    def has(self, function: Callable[..., Any], *arguments: Any) -> bool:
        """Whether it was run, to its end or to its limit."""
        return _key(function, arguments) in self._kept

    def __call__(self, function: Callable[..., Any], *arguments: Any, limit: float | None = None) -> Any:
        """What the function finds, or found; None after ``limit`` seconds, an hour if not given, which is kept too."""
        key = _key(function, arguments)
        if key not in self._kept:
            print(f"  {key}", end="", flush=True)
            begin = time.perf_counter()
            found = self._outcome(function, arguments, limit)
            print(f": {time.perf_counter() - begin:.1f} s", flush=True)
            ended = {"seconds": round(time.perf_counter() - begin, 1), "date": harness.machine()["date"]}
            line = json.dumps({"job": key, **ended, "outcome": found}, default=harness._plain)
            with self._path.open("a", encoding="utf8") as file:
                file.write(line + "\n")
            self._kept[key] = json.loads(line)["outcome"]
        return self._kept[key]

    def _outcome(self, function: Callable[..., Any], arguments: tuple[Any, ...], limit: float | None) -> Any:
        if self._is_quick and limit is None:
            return function(*arguments)
        limit = LIMIT if limit is None else min(limit, QUICK_LIMIT) if self._is_quick else limit
        return runs.in_child(function, *arguments, limit=limit)


def _key(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    return json.dumps([function.__name__, *arguments], default=harness._plain)


def _read(line: str) -> tuple[str, Any] | None:
    """A kept job; the last line may have been cut off."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry["job"], entry["outcome"]
