"""How is anything here measured? Timing, peers under a time limit, machine facts, files, tables and pictures."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
SLOW = 20.0  # seconds: a peer slower than this is run once
_STARTUP = 120.0  # seconds that a child may take to begin, on a busy machine

_BEGUN = ("begun", None)

# Okabe and Ito's palette, which colour-blind readers can tell apart, and markers that survive without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass
class Timing:
    """Seconds of repeated runs; ``compile_seconds`` is the first run, left out of the others, less the median.

    ``cpu_seconds`` is the processor time of the median run: where it is far below ``seconds``, others held the core.
    """

    seconds: float
    runs: list[float]
    cpu_seconds: float
    compile_seconds: float = 0.0

    @classmethod
    def of(cls, runs: list[tuple[float, float]], first: float | None = None) -> Timing:
        """From pairs of wall-clock and processor seconds."""
        walls, cpus = zip(*runs, strict=True)
        compile_seconds = 0.0 if first is None else max(0.0, first - median(walls))
        return cls(median(walls), list(walls), median(cpus), compile_seconds)


def measure(job: Callable[[], Any], repeats: int = 3) -> tuple[Timing, Any]:
    """The median over ``repeats`` runs after a first one that compiles, and what the last run returned.

    Where the first run takes more than ``SLOW`` seconds, compilation cannot matter and it is the only one.
    """
    first, outcome = _timed(job)
    if first[0] > SLOW:
        return Timing.of([first]), outcome
    runs = []
    for _ in range(repeats):
        run, outcome = _timed(job)
        runs.append(run)
    return Timing.of(runs, first[0]), outcome


def measure_peer(job: Callable[[], Any], repeats: int = 3) -> tuple[Timing, Any]:
    """The median over ``repeats`` runs of code that compiles nothing, or one run if that is slower than ``SLOW``."""
    runs: list[tuple[float, float]] = []
    while len(runs) < repeats and all(wall <= SLOW for wall, _ in runs):
        run, outcome = _timed(job)
        runs.append(run)
    return Timing.of(runs), outcome


def _timed(job: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    begin, cpu_begin = time.perf_counter(), time.process_time()
    outcome = job()
    return (time.perf_counter() - begin, time.process_time() - cpu_begin), outcome


def in_child(function: Callable[..., Any], *arguments: Any, limit: float, environment: dict[str, str] | None = None):
    """Run a module-level function in a fresh process; what it returned, or None if it took over ``limit`` seconds.

    ``environment`` is set for the child only, before it imports anything.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender, function, arguments), daemon=True)
    with _environment(environment or {}):
        child.start()
    sender.close()
    try:
        # The limit is the function's: it begins to count when the child has imported everything and says so.
        outcome = receiver.recv() if receiver.poll(_STARTUP) else ("error", "the child did not begin")
        if outcome == _BEGUN:
            outcome = receiver.recv() if receiver.poll(limit) else None
    except EOFError:
        outcome = ("error", f"{function.__name__} died without an answer")
    child.terminate()
    child.join()
    if outcome is None:
        return None
    kind, value = outcome
    if kind == "error":
        raise RuntimeError(f"in a child process:\n{value}")
    return value


def _child(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(_BEGUN)
    try:
        sender.send(("value", function(*arguments)))
    except BaseException:
        sender.send(("error", traceback.format_exc()))


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def quietly() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings instead of showing them; what was said decides whether a peer converged."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield said


def has_converged(said: list[warnings.WarningMessage]) -> bool:
    """Whether no warning told of an unmet tolerance."""
    return not any("onverge" in str(each.message) or "max_iter" in str(each.message) for each in said)


def machine() -> dict[str, Any]:
    """The facts without which a number of seconds means nothing."""
    packages = ("numpy", "scipy", "scikit-learn", "numba", "scikit-learn-intelex", "matplotlib")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0],
        "threads": {name: os.environ.get(name, "unset") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


class Report:
    """Where one benchmark puts what it found: tables on the screen, JSON and pictures in its folder."""

    def __init__(self, name: str, *, quick: bool) -> None:
        self.quick = quick
        self.folder = RESULTS / (f"{name}-quick" if quick else name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._content: dict[str, Any] = {"machine": machine(), "quick": quick}

    def add(self, section: str, content: Any) -> None:
        """Keep one section and write all of them, so that an interrupted run leaves what it had."""
        self._content[section] = content
        text = json.dumps(self._content, indent=1, default=_plain, allow_nan=True)
        (self.folder / "results.json").write_text(text + "\n", encoding="utf8")

    def bars(self, bars: Sequence[Bar]) -> None:
        """Print and keep what was asked for beside what was measured.

        A quick run judges only what holds at any size: the others are bars of the full size.
        """
        judged = [bar if bar.is_of_any_size or not self.quick else replace(bar, is_met=None) for bar in bars]
        words = {True: "pass", False: "FAIL", None: "skipped: asked of the full size"}
        rows = [[bar.claim, bar.asked, bar.measured, words[bar.is_met]] for bar in judged]
        show("Bars", ["claim", "asked", "measured", ""], rows)
        self.add("bars", [asdict(bar) for bar in judged])

    def picture(self, figure: Any, name: str) -> None:
        """Save a figure as PNG and as SVG, and close it."""
        path = self.folder / f"{name}.png"
        for panel in figure.axes:
            for axis, limits in ((panel.xaxis, panel.set_xlim), (panel.yaxis, panel.set_ylim)):
                if axis.get_scale() == "log":
                    _label_decades_only(axis, limits)
        figure.savefig(path, dpi=140)
        with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):  # the same bytes for the same figure
            figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)  # a third of the bytes
        print(f"picture: {path.relative_to(ROOT)}", flush=True)


class Sections(Report):
    """A report that begins with what earlier runs have found; each section says when it was measured."""

    def __init__(self, name: str, *, quick: bool) -> None:
        super().__init__(name, quick=quick)
        path = self.folder / "results.json"
        before = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
        self._content = {**before, **self._content, "dates": before.get("dates", {})}

    def add(self, section: str, content: Any) -> None:
        self._content["dates"][section] = machine()["date"]
        super().add(section, content)

    def found(self, section: str) -> Any:
        return self._content.get(section)


def _label_decades_only(axis: Any, set_limits: Callable[..., Any]) -> None:
    """Labels between decades run into each other; where fewer than two decades are in view, look wider."""
    axis.set_minor_formatter(NullFormatter())
    edges = sorted(axis.get_view_interval())
    if edges[0] <= 0:  # nothing was drawn, as where a quick run reaches none of the levels
        set_limits(0.1, 10)
        return
    low, high = map(math.log10, edges)
    if math.floor(high) - math.ceil(low) < 1:
        set_limits(10 ** math.floor(low), 10 ** math.ceil(high))


@dataclass(frozen=True)
class Bar:
    """One thing that must hold, what was asked and what was measured, both as text."""

    claim: str
    asked: str
    measured: str
    is_met: bool | None  # None: not judged
    is_of_any_size: bool = False  # a quick run is judged too


def _plain(value: Any) -> Any:
    """Numpy scalars and arrays, named tuples and data classes as JSON knows them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} does not go into JSON")


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: text to the left, numbers to the right."""
    cells = [[text(cell) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[j]) for row in cells)]) for j, name in enumerate(head)]
    is_left = [all(isinstance(row[j], str) and not row[j][:1].isdigit() for row in rows) for j in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if left else c.rjust(w) for c, w, left in zip(row, widths, is_left, strict=True))

    print(f"\n{title}\n{line(head)}\n{'-' * (sum(widths) + 2 * len(widths) - 2)}")
    for row in cells:
        print(line(row))
    sys.stdout.flush()


def markdown(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The same table for a page."""
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(text(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def text(value: Any) -> str:
    """A cell: floats to four digits, absent values as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def at_most(seconds: float | None, limit: float) -> str:
    """A peer's time, or that it had not finished by its limit."""
    return f">{limit:g}" if seconds is None else text(seconds)


def axes(n_columns: int, n_rows: int = 1, width: float = 5.0, height: float = 3.9) -> tuple[Any, Any]:
    """A figure of panels in the common style; axes always come as a two-dimensional array."""
    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "legend.fontsize": 9,
            "lines.linewidth": 1.8,
            "lines.markersize": 4.5,
        }
    )
    return plt.subplots(
        n_rows, n_columns, figsize=(width * n_columns, height * n_rows), constrained_layout=True, squeeze=False
    )


def style(number: int, n_points: int = 0) -> dict[str, Any]:
    """Colour and marker of the curve of that number; long curves carry markers evenly along their way."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markevery": 0.08 if n_points > 15 else 1,
    }


def legend_below(figure: Any, panels: Any, n_columns: int = 4) -> None:
    """One legend for all panels, outside them, so that it covers nothing."""
    entries: dict[str, Any] = {}
    for panel in panels.flat:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    n_columns = min(n_columns, 2 * panels.shape[1])  # what is as wide as the panels
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=n_columns)


FRESH: dict[str, Any] = {"--fresh": {"action": "store_true", "help": "drop jobs of earlier runs"}}


def arguments(
    question: str,
    sections: Iterable[str] = (),
    *,
    usual: Iterable[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> argparse.Namespace:
    """The command line of every benchmark: ``--quick``; ``--only`` for one with sections, of which the ``usual`` ones
    run unless some are named; and what it has of its own: names of options, and what argparse is told of each.
    """
    parser = argparse.ArgumentParser(description=question, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = list(sections)
    if sections:
        default = ",".join(sections if usual is None else usual)
        parser.add_argument("--only", default=default, help=f"sections, with commas between them (default: {default})")
    parser.add_argument("--quick", action="store_true", help="a smoke run: small data, short limits, results apart")
    for name, settings in (options or {}).items():
        parser.add_argument(name, **settings)
    chosen = parser.parse_args()
    if sections:
        chosen.only = chosen.only.split(",")
        for name in chosen.only:
            if name not in sections:
                parser.error(f"--only {name}: there are {', '.join(sections)}")
    return chosen
