"""``widemargin demo``: certified models of small data, beside scikit-learn's, and the picture of their proofs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[Path, typer.Option(help="Where to draw the picture.")] = Path("demo-output"),
) -> None:
    """Train five models on small data in a few seconds, and print what is proved of each.

    [bold]Example[/bold]:

      widemargin demo

    The picture shows the two bounds of each optimum as they meet.
    """
    from widemargin.reports.demo import run

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the demo needs the name of a folder.")
    run(folder)
