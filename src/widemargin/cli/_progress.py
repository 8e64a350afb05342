"""Progress of a fit: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import math
import time
from typing import Any

from widemargin.callbacks import SearchProgress
from widemargin.problems.protocol import Certificate, gap_as_text

_SECONDS_PER_LINE = 5.0


class GapBar:
    """A bar that is full when the gap reaches tol, on a logarithmic scale, or when all points of a search are done."""

    def __init__(self, console: Any, name: str, tol: float) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._console, self._name, self._tol = console, name, max(tol, 1e-16)
        self._first, self._sweep, self._shown_at = math.inf, 0, time.monotonic()
        self._n_points, self._share = 0, 0.0
        self._progress = self._task = None
        if console.is_terminal:
            text = TextColumn("{task.description}"), BarColumn(bar_width=16), TextColumn("{task.fields[figures]}")
            self._progress = Progress(*text, console=console, transient=True)
            self._task = self._progress.add_task(name, total=1.0, figures="")
            self._progress.start()

    def show(self, sweep: int, certificate: Certificate, seconds: float, *, is_last: bool = False) -> None:
        gap = certificate.relative
        if sweep <= self._sweep or not math.isfinite(self._first):  # the next two-class problem
            self._first = max(gap, self._tol)
        self._sweep = sweep
        self._write(self.share(gap), f"gap {gap_as_text(gap, 1)} (tol {self._tol:.0e})  sweep {sweep}  {seconds:.1f} s")

    def show_search(self, progress: SearchProgress, *, is_last: bool = False) -> None:
        n_done, n_points, best, gap, seconds = progress
        self._n_points = self._n_points or n_points  # of the grid
        self._share = max(self._share, n_done / n_points)  # which falls when points are added
        stage = "  completing" if n_done == n_points else "  refining" if n_points > self._n_points else ""
        found = f"  best {best:.4f} (gap {gap_as_text(gap, 0)})" if best == best else ""
        self._write(self._share, f"point {n_done} of {n_points}{stage}{found}  {seconds:.1f} s")

    def _write(self, share: float, figures: str) -> None:
        if self._progress is not None:
            assert self._task is not None
            self._progress.update(self._task, completed=share, figures=figures)
        elif time.monotonic() - self._shown_at > _SECONDS_PER_LINE:
            self._shown_at = time.monotonic()
            self._console.print(f"{self._name}: {figures}", markup=False, soft_wrap=True)

    def share(self, gap: float) -> float:
        """The share of the way from the first gap to tol, in orders of magnitude."""
        if gap <= self._tol or self._first <= self._tol:
            return 1.0
        if not math.isfinite(self._first) or not math.isfinite(gap):
            return 0.0
        return min(1.0, max(0.0, math.log(self._first / gap) / math.log(self._first / self._tol)))

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
