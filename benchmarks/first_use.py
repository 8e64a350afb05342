"""How long does the first fit take after installation, with compilation, and a process after that one?

For every estimator with its defaults, on 1,000 rows: a process with no compiled code on disk, then others that find
what the first one left. Each is a fresh interpreter, and its time is from start to exit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import _harness as harness
from benchmarks._harness import Bar, Report

QUESTION = __doc__
ESTIMATORS = (
    "HardMarginSVC",
    "NuMarginSVC",
    "KernelSVC",
    "MarginDistributionSVC",
    "SparseSVC",
    "SparseSVCCV",
    "DebiasedSparseSVC",
    "GossipSVC",
)
FIRST_FIT, LATER_PROCESS = 15.0, 2.0  # seconds that are allowed
REPEATS = 3

# What a user's first program does. Compilations are noted by Numba's own events, names and seconds, callees included.
PROGRAM = """
import json, sys, time
begin = time.perf_counter()
import numpy as np
import widemargin
name, n_rows = sys.argv[1], int(sys.argv[2])
Estimator = getattr(widemargin, name)
imported = time.perf_counter()
from numba.core import event
from widemargin.data import make_nonseparable, make_separable
make = make_separable if name == "HardMarginSVC" else make_nonseparable
X, y = make(n_rows, 20, random_state=0)[:2]
with event.install_recorder("numba:compile") as recorder:
    before = time.perf_counter()
    model = Estimator().fit(X, y)
    after = time.perf_counter()
starts, compiled = [], []
for at, each in recorder.buffer:
    if each.is_start:
        starts.append(at)
    else:
        compiled.append([each.data["dispatcher"].py_func.__name__, at - starts.pop()])
model.predict(X)
print(json.dumps({"import": imported - begin, "fit": after - before, "compiled": compiled, "stop": model.stop_reason_}))
"""


def main() -> None:
    quick = harness.arguments(QUESTION).quick
    report = Report("first_use", quick=quick)
    results: dict[str, Any] = {}
    for name in ESTIMATORS[:2] if quick else ESTIMATORS:
        results[name] = measure(name, n_rows=1_000, repeats=1 if quick else REPEATS)
        report.add("estimators", results)
        each = results[name]
        print(
            f"{name}: first fit {each['first']['fit']:.2f} s, a later process {each['later_seconds']:.2f} s", flush=True
        )
    head = ["estimator", "first fit", "its process", "cpu", "functions", "later: process", "cpu", "import", "fit"]
    harness.show("Seconds", head, [line(name, each) for name, each in results.items()])
    report.bars(bars(results))
    draw(report, results)


def measure(name: str, n_rows: int, repeats: int) -> dict[str, Any]:
    """A first process and later ones, on an empty cache of their own."""
    with tempfile.TemporaryDirectory(prefix="first-use-") as folder:
        first = run(name, n_rows, Path(folder))
        later = [run(name, n_rows, Path(folder)) for _ in range(repeats)]
    assert not any(each["compiled"] for each in later), f"{name} compiles again in a later process: {later}"
    middle = {key: median(each[key] for each in later) for key in ("process", "cpu", "import", "fit")}
    return {"first": first, "later": middle, "later_seconds": middle["process"], "later_runs": later}


def run(name: str, n_rows: int, folder: Path) -> dict[str, Any]:
    """One fresh interpreter: its wall-clock and processor seconds, and what it says of itself."""
    # The lock between compiling processes lies in TMPDIR: others on this machine are not to be waited for.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "TMPDIR": str(folder), "PYTHONPATH": _path()}
    begin = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, name, str(n_rows)], stdout=subprocess.PIPE, env=environment
    )
    assert child.stdout is not None
    said = child.stdout.read()
    child.stdout.close()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{name} failed in a fresh process, which ended with {child.returncode}")
    return {**json.loads(said), "process": seconds, "cpu": usage.ru_utime + usage.ru_stime}


def _path() -> str:
    return os.pathsep.join(filter(None, [str(harness.ROOT / "src"), os.environ.get("PYTHONPATH", "")]))


def line(name: str, each: dict[str, Any]) -> list[Any]:
    """One estimator's line of the table."""
    first, later = each["first"], each["later"]
    return [
        name,
        first["fit"],
        first["process"],
        first["cpu"],
        len(first["compiled"]),
        later["process"],
        later["cpu"],
        later["import"],
        later["fit"],
    ]


def bars(results: dict[str, Any]) -> list[Bar]:
    """What is allowed, beside what was measured."""
    found = []
    for name, each in results.items():
        fit, later = each["first"]["fit"], each["later_seconds"]
        found.append(Bar(f"{name}: first fit, s", f"< {FIRST_FIT:g}", f"{fit:.2f}", fit < FIRST_FIT))
        found.append(Bar(f"{name}: later process, s", f"< {LATER_PROCESS:g}", f"{later:.2f}", later < LATER_PROCESS))
    return found


def draw(report: Report, results: dict[str, Any]) -> None:
    """Both figures of every estimator, beside what is allowed."""
    names = list(results)
    first = [each["first"]["fit"] for each in results.values()]
    later = [each["later_seconds"] for each in results.values()]
    kinds = (
        ("first fit on a machine, with compilation", first, FIRST_FIT, harness.COLOURS[0]),
        ("a later process, import and fit", later, LATER_PROCESS, harness.COLOURS[1]),
    )
    figure, panels = harness.axes(2, 1, width=4.8, height=3.6)
    for panel, (title, seconds, allowed, colour) in zip(panels.flat, kinds, strict=True):
        drawn = panel.barh(names, seconds, color=colour, height=0.6)
        inside = [f"{each:.1f}" if each > 0.12 * allowed else "" for each in seconds]
        outside = ["" if label else f"{each:.1f}" for label, each in zip(inside, seconds, strict=True)]
        panel.bar_label(drawn, inside, padding=-24, fontsize=9, color="white")
        panel.bar_label(drawn, outside, padding=3, fontsize=9)
        panel.axvline(allowed, color="#000000", ls="--", lw=1.2, label="allowed")
        panel.set(title=title, xlabel="seconds", xlim=(0, 1.15 * max(allowed, *seconds)))
        panel.invert_yaxis()
        panel.grid(axis="y", visible=False)
    panels[0, 1].set_yticklabels([])
    harness.legend_below(figure, panels)
    report.picture(figure, "seconds")


if __name__ == "__main__":
    main()
