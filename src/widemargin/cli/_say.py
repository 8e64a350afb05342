"""Tables and messages, in colour on a terminal and plain elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def console(*, stderr: bool = False) -> Any:
    """A rich console as wide as the terminal; 100 columns where there is none, so that output files do not vary."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    is_sized = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, highlight=False, width=None if is_sized else 100)


def one_line(text: str) -> str:
    """Text in one line of printable characters: some of it may be from files or machines of others."""
    return "".join(each if each.isprintable() else "\ufffd" for each in " ".join(text.split()))


def remark(sentence: str) -> None:
    """Print a one-line note on stderr."""
    sys.stderr.write(one_line(sentence) + "\n")


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> Any:
    table = columns(("", ""), pairs, title=title, n_left=2)
    table.show_header = False
    table.columns[0].style = "cyan"
    return table


def columns(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, title: str, n_left: int = 1, may_fold: bool = False
) -> Any:
    """A table with a header; all columns but the first ``n_left`` have numbers; ``may_fold`` breaks these."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, title=Text(title, style="bold"), title_justify="left")
    for k, name in enumerate(titles):
        is_whole = k == 0 or (k >= n_left and not may_fold)
        table.add_column(Text(name), justify="left" if k < n_left else "right", overflow="fold", no_wrap=is_whole)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
