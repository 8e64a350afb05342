"""A table of coefficients: as text, as a pandas frame, as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

_MAX_LINES = 25


@dataclass(frozen=True, repr=False)
class CoefficientTable:
    """Coefficients with their statistics, one line each; ``frame()`` has all lines as a pandas DataFrame."""

    title: str
    names: list[str]
    columns: dict[str, np.ndarray]  # by heading, each as long as the names
    notes: list[str]
    warning: str = ""  # why the model is no better than a constant

    def frame(self) -> Any:
        """All lines in the order of the features, indexed by name."""
        import pandas as pd

        return pd.DataFrame(self.columns, index=pd.Index(self.names, name="feature"))

    def _lines(self) -> tuple[list[list[str]], list[str]]:
        """Cells of the lines that are shown (selected features first, then by p-value), and a note on the others."""
        selected = self.columns["selected"]
        order = np.lexsort((self.columns.get("p-value", -np.abs(self.columns["debiased"])), ~selected))
        shown = order[: max(_MAX_LINES, int(selected.sum()))] if len(order) > _MAX_LINES else order
        cells = [[self.names[k], *(_cell(name, each[k]) for name, each in self.columns.items())] for k in shown]
        n_hidden = len(order) - len(shown)
        return cells, [f"... and {n_hidden} more, none of them selected"] if n_hidden else []

    def __repr__(self) -> str:
        cells, more = self._lines()
        table = [["feature", *self.columns], *cells]
        widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
        head, *body = ["  ".join(_aligned(line, widths)).rstrip() for line in table]
        rule = "-" * max(map(len, [head, *body]))
        warning = [f"Warning: {self.warning}"] if self.warning else []
        return "\n".join([self.title, *warning, rule, head, rule, *body, *more, rule, *self.notes])

    def _repr_html_(self) -> str:
        cells, more = self._lines()
        rows = [
            f"<th style='text-align:left'>{escape(first)}</th>"
            + "".join(f"<td style='text-align:right'>{escape(cell)}</td>" for cell in others)
            for first, *others in cells
        ]
        head = "".join(f"<th>{escape(name)}</th>" for name in ["feature", *self.columns])
        notes = "<br>".join(map(escape, more + self.notes))
        warning = f"<br>Warning: {escape(self.warning)}" if self.warning else ""
        return (
            f"<table><caption style='text-align:left'><b>{escape(self.title)}</b>{warning}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody><tr>{'</tr><tr>'.join(rows)}</tr></tbody></table><p>{notes}</p>"
        )


def _cell(name: str, value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "*" if value else ""
    if name == "p-value":
        return "< 0.0001" if value < 1e-4 else f"{value:.4f}"
    return f"{value:.2f}" if name == "z" else f"{value:.4f}"


def _aligned(line: list[str], widths: list[int]) -> list[str]:
    first, *others = line
    return [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
