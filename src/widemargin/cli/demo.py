"""``widemargin demo``: certified models on small data beside scikit-learn's, and a picture of their proofs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(folder: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-output")) -> None:
    """Train five models on small data in a few seconds and print what each certificate proves.

    [bold]Example[/bold]:

      widemargin demo

    The picture shows the upper and lower bound of each optimum converge.
    """
    from widemargin.reports.demo import run

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the demo needs the name of a folder.")
    run(folder)
