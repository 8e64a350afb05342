"""``widemargin reproduce``: redraw the tables and figures of a paper, from a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Paper(StrEnum):
    saddle = "saddle"
    sbp = "sbp"
    sodm = "sodm"
    gadget = "gadget"
    l1svm = "l1svm"


# For each paper: its programs in benchmarks/ and their folders under results/.
PROGRAMS = {
    Paper.saddle: (("saddle_paper", "saddle_paper"), ("saddle_communication", "saddle_communication")),
    Paper.sbp: (("kernel_paper", "kernel"),),
    Paper.sodm: (("margin_distribution", "margin_distribution"),),
    Paper.gadget: (("gossip", "gossip"),),
    Paper.l1svm: (("debiased", "debiased"),),
}


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Which paper.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Small data, short limits: a smoke run, no result.")] = False,
) -> None:
    """Measure the tables and figures of a paper again, with the programs in benchmarks/ of a checkout.

    [bold]Example[/bold], in the folder of a checkout:

      widemargin reproduce saddle --quick

    Results are JSON, tables and pictures under benchmarks/results/. Without --quick it takes hours.
    """
    from widemargin.cli._say import remark

    root = checkout()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH")]))
    shared = root.parent / "shared" / "data"
    if "WIDEMARGIN_DATA" not in environment and shared.is_dir():
        environment["WIDEMARGIN_DATA"] = str(shared)
    for program, folder in PROGRAMS[paper]:
        command = [sys.executable, "-m", f"benchmarks.{program}", *(["--quick"] if quick else [])]
        remark(f"In {root}: {' '.join(command[1:])}")
        code = subprocess.run(command, cwd=root, env=environment, check=False).returncode
        if code:
            raise ValueError(f"benchmarks.{program} failed with exit code {code}; see its output above.")
        remark(f"Results: {root / 'benchmarks' / 'results' / (f'{folder}-quick' if quick else folder)}")


def checkout() -> Path:
    """The checkout that contains the current folder, or else the package itself."""
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "benchmarks" / "saddle_paper.py").is_file() and (folder / "src" / "widemargin").is_dir():
            return folder
    neither = "neither the current folder nor the folder of the installed package is one"
    raise ValueError(f"reproduce needs a checkout of widemargin, whose benchmarks/ it runs; {neither}.")
