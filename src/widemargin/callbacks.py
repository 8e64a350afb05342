"""Progress and Ctrl-C handling while a fit runs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TextIO

from widemargin.problems.protocol import Certificate, gap_as_text

__all__ = ["Interruption", "ProgressLine", "first_interrupt_kept"]


class Interruption:
    """Whether Ctrl-C was pressed; true after the first one.

    Examples
    --------
    >>> from widemargin.callbacks import Interruption
    >>> interruption = Interruption()
    >>> bool(interruption)
    False
    >>> interruption.request()
    >>> bool(interruption)
    True
    """

    def __init__(self) -> None:
        self._is_requested = False

    def __bool__(self) -> bool:
        return self._is_requested

    def request(self) -> None:
        """Record that Ctrl-C was pressed."""
        self._is_requested = True


@contextmanager
def first_interrupt_kept(is_wanted: bool) -> Iterator[Interruption]:
    """Turn the first Ctrl-C inside the block into a flag; a second one raises ``KeyboardInterrupt`` as usual.

    Does nothing outside the main thread, which alone receives signals, or if Ctrl-C already has another handler.

    Parameters
    ----------
    is_wanted : bool
        False does nothing: a fit inside a search leaves Ctrl-C to the search.

    Yields
    ------
    interruption : Interruption
        True once Ctrl-C has been pressed.

    Examples
    --------
    >>> from widemargin.callbacks import first_interrupt_kept
    >>> with first_interrupt_kept(True) as interruption:
    ...     n_sweeps = 0
    ...     while n_sweeps < 3 and not interruption:
    ...         n_sweeps += 1
    >>> n_sweeps
    3
    """
    interruption = Interruption()

    def note(signum: int, frame: object) -> None:
        interruption.request()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before: Any = None
    if is_wanted and threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, note)
        if before is not signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
    try:
        yield interruption
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)


class SearchProgress(NamedTuple):
    """How far a search by cross-validation is."""

    n_done: int
    n_points: int
    best_score: float  # nan before the first point is done
    gap: float  # of the models of the best point
    seconds: float


class Display(Protocol):
    def show(self, sweep: int, certificate: Certificate, seconds: float, *, is_last: bool = False) -> None: ...

    def show_search(self, progress: SearchProgress, *, is_last: bool = False) -> None: ...


_display: ContextVar[Callable[[str, float], Display] | None] = ContextVar("display of progress", default=None)


@contextmanager
def shown_by(make: Callable[[str, float], Display]) -> Iterator[None]:
    """Fits inside the block show their progress on ``make(name, tol)``, whatever their ``verbose``."""
    token = _display.set(make)
    try:
        yield
    finally:
        _display.reset(token)


def display(name: str, tol: float, verbose: int) -> Display | None:
    """The display for a fit: that of :func:`shown_by`, a progress line if ``verbose``, or None."""
    make = _display.get()
    return make(name, tol) if make is not None else ProgressLine(name, tol) if verbose else None


class ProgressLine:
    """A progress line of a fit or a search, updated in place on a terminal; elsewhere about one new line per second.

    Parameters
    ----------
    name : str
        Name of the estimator, at the start of the line.
    tol : float
        Relative gap at which the fit stops.
    stream : file or None, default=None
        Where to write; None is standard error.

    Examples
    --------
    >>> import sys
    >>> from widemargin import Certificate
    >>> from widemargin.callbacks import ProgressLine
    >>> line = ProgressLine("NuMarginSVC", tol=1e-3, stream=sys.stdout)
    >>> line.show(12, Certificate(2.0, 1.9), seconds=0.25, is_last=True)
    NuMarginSVC  sweep   12  gap 5.00e-02 (tol 1e-03)  optimum in [1.9, 2]  0.2 s
    """

    def __init__(self, name: str, tol: float, stream: TextIO | None = None) -> None:
        self._name, self._tol = name, tol
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._shown_at = 0.0
        self._width = 0

    def show(self, sweep: int, certificate: Certificate, seconds: float, *, is_last: bool = False) -> None:
        """Show one certified sweep, unless another was shown a moment ago."""
        low, high = certificate.as_text()
        self._write(
            f"{self._name}  sweep {sweep:>4}  gap {gap_as_text(certificate.relative)} (tol {self._tol:.0e})  "
            f"optimum in [{low}, {high}]  {seconds:.1f} s",
            is_last,
        )

    def show_search(self, progress: SearchProgress, *, is_last: bool = False) -> None:
        """Show the points that are done, unless others were shown a moment ago."""
        n_done, n_points, best, gap, seconds = progress
        text = f"{self._name}  point {n_done:>{len(str(n_points))}} of {n_points}"
        if best == best:
            text += f"  best score {best:.4f}  gap {gap_as_text(gap)} (tol {self._tol:.0e})"
        self._write(f"{text}  {seconds:.1f} s", is_last)

    def _write(self, text: str, is_last: bool) -> None:
        now = time.monotonic()
        if not is_last and now - self._shown_at < (0.1 if self._is_terminal else 1.0):
            return
        self._shown_at = now
        if self._is_terminal:
            self._stream.write("\r" + text.ljust(self._width) + ("\n" if is_last else ""))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
