"""``widemargin reproduce``: redraw the tables and figures of a paper, from a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from widemargin.cli._papers import State


class Paper(StrEnum):
    saddle = "saddle"
    sbp = "sbp"
    sodm = "sodm"
    gadget = "gadget"
    l1svm = "l1svm"


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Which paper.", show_default=False)],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small data, short limits, within ten minutes: a smoke run, no result.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Show what is done, what is left and how long it takes; run nothing.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Drop what earlier runs have kept, as is due when the code has changed.")
    ] = False,
) -> None:
    """Measure the tables and figures of a paper again, with the programs in benchmarks/ of a checkout.

    [bold]Example[/bold], in the folder of a checkout:

      widemargin reproduce saddle --quick

    The paper's own tables and figures come first. Results are JSON, tables and pictures under benchmarks/results/.
    Without --quick it takes hours; the same command goes on where it was stopped. --quick always begins anew, and
    leaves bars that only the full size can meet unjudged.
    """
    from widemargin.cli import _papers
    from widemargin.cli._say import remark

    root = checkout()
    parts = _papers.parts_of(paper, root)
    left_out = [part.name for part in parts if quick and part.quick_options is None]
    parts = [part for part in parts if part.name not in left_out]
    if (fresh or quick) and not list_:
        for part in parts:
            _papers.note_fresh(part, root, quick=quick)
    states = [_papers.state_of(part, root, quick=quick) for part in parts]
    _show(paper, states, quick=quick)
    if left_out:
        remark(f"--quick leaves out {', '.join(left_out)}.")
    if list_:
        return
    failed, folders = [], []
    for state in [state for state in states if not state.ended]:
        part = state.part
        command = _papers.command_of(part, root, quick=quick, fresh=fresh)
        remark(f"In {root}: python {' '.join(command)}")
        begin = time.monotonic()
        code = subprocess.run([sys.executable, *command], cwd=root, env=_environment(root), check=False).returncode
        if code:
            remark(f"benchmarks.{part.name} failed with exit code {code}; see its output above. The others go on.")
            failed.append(f"benchmarks.{part.name} failed with exit code {code}")
            continue
        _papers.note_end(part, root, time.monotonic() - begin, quick=quick)
        folders.append(str(_papers.folder_of(part, root, quick=quick)))
    for folder in dict.fromkeys(folders):
        remark(f"Results: {folder}")
    if failed:
        again = "" if quick else " The same command runs only these again."
        raise ValueError(f"{'; '.join(failed)}; see the output above.{again}")


def _environment(root: Path) -> dict[str, str]:
    """One thread for each process, the package of the checkout, and the data beside it if nobody says where data is."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH")]))
    shared = root.parent / "shared" / "data"
    if "WIDEMARGIN_DATA" not in environment and shared.is_dir():
        environment["WIDEMARGIN_DATA"] = str(shared)
    return environment


def _show(paper: str, states: Sequence[State], *, quick: bool) -> None:
    """What is done, what is left and how long it takes."""
    from widemargin.cli._say import columns, console

    rows = []
    for state in states:
        kept = f", {state.n_jobs} job{'s' * (state.n_jobs != 1)} kept" if state.n_jobs and not state.ended else ""
        done = f"done {state.ended[:10]}" if state.ended else f"left{kept}"
        source = "measured" if state.is_measured else "estimate"
        expected = "-" if state.expected is None else f"{duration(state.expected)}, {source}"
        rows.append((state.part.name, done, expected))
    title = f"{paper}{', quick' if quick else ''}"
    out = console()
    out.print(columns(("section", "state", "takes"), rows, title=title, n_left=2))
    n_left, left = sum(not state.ended for state in states), sum(state.left for state in states)
    unknown = sum(not state.ended and state.expected is None for state in states)
    sentence = f"{n_left} of {len(states)} sections left"
    if quick and unknown:
        sentence += ", within ten minutes on two cores"
    elif n_left:
        sentence += f", about {duration(left)}" + (f" and {unknown} of unknown length" if unknown else "")
    out.print(f"{sentence}.")


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, to two digits or so."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def checkout() -> Path:
    """The checkout that contains the current folder, or else the package itself."""
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "benchmarks" / "saddle_paper.py").is_file() and (folder / "src" / "widemargin").is_dir():
            return folder
    neither = "neither the current folder nor the folder of the installed package is one"
    raise ValueError(f"reproduce needs a checkout of widemargin, whose benchmarks/ it runs; {neither}.")
