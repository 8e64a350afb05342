"""Tables of coefficients with the names of features: as text, as a pandas frame, as HTML."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from widemargin.estimators.searched import chosen_parameters, parameters_in_words
from widemargin.estimators.words import certificate_in_words, numbered_features, useless_in_words

_MAX_LINES = 25  # that are printed, unless more features are selected
_MAX_SELECTED_LINES = 100
_MAX_TABLES = 6  # that are printed
_WIDTH = 100  # of text where there is no terminal
_OPTIONAL = ("coef", "std err", "Holm")  # columns that text leaves out where they do not fit, in this order
_DIGITS = 4  # digits of the largest number of a column
_SMALLEST_P = 1e-4  # that is printed
SELECTED = "selected"


@dataclass(frozen=True, repr=False)
class CoefficientTable:
    """The coefficients of one two-class problem, one line for each feature.

    ``print(table)`` shows the first lines as text and Jupyter shows them as HTML; ``table.frame()`` has all of them as
    a pandas DataFrame.
    """

    title: str
    names: list[str]
    columns: dict[str, np.ndarray]  # by heading, each as long as the names
    notes: list[str]
    warning: str = ""  # why the model is no better than a constant

    def frame(self) -> Any:
        """All lines as a pandas DataFrame in the order of the table, indexed by the names of the features."""
        pandas = _pandas()
        return pandas.DataFrame(self.columns, index=pandas.Index(self.names, name="feature"))

    def _shown(self) -> tuple[np.ndarray, list[str]]:
        """Numbers of the lines that are printed, those with a coefficient first, and a note on the others."""
        selected = self.columns.get(SELECTED)
        if selected is None:
            lines = np.flatnonzero(self.columns["coef"])
            n_zero = len(self.names) - len(lines)
            zero = [f"{n_zero:,} features have a coefficient of exactly 0"] if n_zero else []
            shown, hidden = lines[:_MAX_LINES], "with smaller coefficients"
        else:
            lines, zero = np.arange(len(self.names)), []
            shown = lines[: max(_MAX_LINES, min(int(selected.sum()), _MAX_SELECTED_LINES))]
            hidden = f"{int(selected[len(shown) :].sum()):,} of them selected" if len(shown) < len(lines) else ""
        n_hidden = len(lines) - len(shown)
        return shown, [*([f"... and {n_hidden:,} more, {hidden}: frame() has all"] if n_hidden else []), *zero]

    def _cells(self) -> tuple[list[list[str]], list[str]]:
        """Columns of text under their headings, and notes below them."""
        shown, more = self._shown()
        cells = [["feature", *(self.names[k] for k in shown)]]
        cells += [[name, *_formatted(name, values[shown])] for name, values in self.columns.items()]
        return cells, more

    def __repr__(self) -> str:
        cells, more = self._cells()
        widths = [max(map(len, column)) for column in cells]
        room = _room()
        left_out: list[str] = []
        for name in _OPTIONAL:
            places = [k for k, column in enumerate(cells) if column[0] == name and len(cells) > 2]
            if sum(widths) + 2 * (len(widths) - 1) > room and places:
                del cells[places[0]], widths[places[0]]
                left_out.append(name)
        head, *body = [_aligned(line, widths) for line in zip(*cells, strict=True)]
        rule = "-" * max(map(len, [head, *body]))
        told = [f"Warning: {self.warning}"] if self.warning else []
        lacking = [f"Columns that do not fit this width: {', '.join(left_out)}; frame() has them."] if left_out else []
        notes = [line for note in [*self.notes, *lacking] for line in wrap(note, max(len(rule), min(room, _WIDTH)))]
        return "\n".join([self.title, *told, rule, head, rule, *body, *more, rule, *notes])

    def _repr_html_(self) -> str:
        cells, more = self._cells()
        cell = "padding:.15em .6em;color:inherit;background:transparent;white-space:nowrap"
        head, *body = [
            "".join(
                f"<{tag} style='{cell};text-align:{'left' if k == 0 else 'right'}'>{escape(text)}</{tag}>"
                for k, text in enumerate(line)
                for tag in ["th" if k == 0 or number == 0 else "td"]
            )
            for number, line in enumerate(zip(*cells, strict=True))
        ]
        lines = "".join(f"<tr>{line}</tr>" for line in body)
        told = f"<br>Warning: {escape(self.warning)}" if self.warning else ""
        return (  # the title is no <caption>, which would be no wider than a narrow table
            f"<div style='overflow-x:auto'><p style='margin:0'><b>{escape(self.title)}</b>{told}</p>"
            "<table style='border-collapse:collapse;font-variant-numeric:tabular-nums'>"
            f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
            f"<p>{'<br>'.join(map(escape, more + self.notes))}</p></div>"
        )


class CoefficientTables(Sequence[CoefficientTable]):
    """A table for each two-class problem of a fit, in the order of ``coef_``."""

    def __init__(self, names: Sequence[str], tables: Sequence[CoefficientTable], notes: Sequence[str]) -> None:
        self.names, self.notes, self._tables = list(names), list(notes), list(tables)

    @overload
    def __getitem__(self, index: int) -> CoefficientTable: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CoefficientTable]: ...
    def __getitem__(self, index: int | slice) -> CoefficientTable | Sequence[CoefficientTable]:
        return self._tables[index]

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[CoefficientTable]:
        return iter(self._tables)

    def frame(self) -> Any:
        """All lines of all tables as a pandas DataFrame, indexed by problem and feature."""
        frames = [table.frame() for table in self._tables]
        return _pandas().concat(frames, keys=self.names, names=["problem"])

    def _more(self) -> list[str]:
        n_more = len(self._tables) - _MAX_TABLES
        hidden = [f"... and {n_more:,} more problems: index this object, or use frame()."] if n_more > 0 else []
        return [*hidden, *self.notes]

    def __repr__(self) -> str:
        more = [line for note in self._more() for line in wrap(note, min(_room(), _WIDTH))]
        return "\n\n".join([*map(repr, self._tables[:_MAX_TABLES]), *(["\n".join(more)] if more else [])])

    def _repr_html_(self) -> str:
        shown = [table._repr_html_() for table in self._tables[:_MAX_TABLES]]
        return "".join([*shown, *(f"<p>{escape(each)}</p>" for each in self._more())])


class Lines(NamedTuple):
    """What a model knows of its coefficients in one problem."""

    columns: dict[str, np.ndarray]  # the first is ``coef``
    size: np.ndarray  # by which lines are sorted, the largest first
    notes: list[str]


def plain_lines(model: Any, part: int) -> Lines:
    coef = model.coef_[part]
    return Lines({"coef": coef}, np.abs(coef), [f"{len(coef):,} features, intercept {model.intercept_[part]:.4g}."])


def about_model(model: Any) -> list[str]:
    """Notes that hold for all problems of a model."""
    chosen = chosen_parameters(model)
    return [
        "Coefficients are per unit of the feature: compare sizes only if all features have one scale.",
        *([f"Chosen by cross-validation: {parameters_in_words(chosen)}."] if chosen else []),
        certificate_in_words(model),
    ]


def summarised(
    model: Any,
    feature_names: ArrayLike | None,
    is_sorted: bool,
    lines_of: Callable[[int], Lines],
    notes_on: Callable[[Any], list[str]] = lambda model: [],
) -> CoefficientTable | CoefficientTables:
    """The table of each problem of a fitted model, and the notes that all share."""
    _refuse_without_coefficients(model)
    names, kind = names_of_features(model, feature_names), type(model).__name__
    parts, classes, warning, shared = model._parts, model.classes_, useless_in_words(model), notes_on(model)
    problems, tables = parts.names(classes), []
    for part, (positive, _) in enumerate(parts.pairs):
        columns, size, notes = lines_of(part)
        order = np.argsort(-size, kind="stable") if is_sorted else np.arange(len(names))
        tables.append(
            CoefficientTable(
                f"{kind}: class {problems[part]}",
                [names[k] for k in order],
                {heading: values[order] for heading, values in columns.items()},
                [*notes, f"Positive coefficients are in favour of class {classes[positive]}."],
                warning,
            )
        )
    if len(tables) > 1:
        return CoefficientTables(problems, tables, shared)
    return replace(tables[0], notes=[*tables[0].notes, *shared])


def names_of_features(model: Any, given: ArrayLike | None = None) -> list[str]:
    """The names that were given, or those of the columns of the fit; else x0, x1, ... as in scikit-learn."""
    n = model.n_features_in_
    if given is None:
        return [str(name) for name in getattr(model, "feature_names_in_", numbered_features(n))]
    names = [str(name) for name in np.asarray(given, dtype=object).ravel()]
    if len(names) != n:
        raise ValueError(
            f"feature_names has {len(names)} names, and {type(model).__name__} was fitted to {n} features."
        )
    return names


def _refuse_without_coefficients(model: Any) -> None:
    """Raise ValueError for a fitted model whose coefficients, if any, are not of the features."""
    if not hasattr(model, "coef_") or getattr(model, "_map", None) is not None:
        kernel = getattr(model, "kernel", None)
        raise ValueError(
            f"{type(model).__name__} with kernel={kernel!r} has no coefficients of features: use kernel='linear', or "
            "sklearn.inspection.permutation_importance, which suits any model."
        )


def _room() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ImportError(
            "frame() needs pandas: pip install pandas. Without it, names and columns of a table have the same content."
        ) from error
    return pandas


def _formatted(heading: str, values: np.ndarray) -> list[str]:
    if values.dtype.kind == "b":
        return ["*" if value else "" for value in values]
    if heading in ("p-value", "Holm", "BH"):
        return [f"<{_SMALLEST_P:.4f}".replace("<0.", "<.") if p < _SMALLEST_P else f"{p:.4f}" for p in values]
    if heading == "z":
        return [f"{value:.2f}" for value in values]
    return _numbers(values)


def _numbers(values: np.ndarray) -> list[str]:
    """With as many decimals as give the largest four digits; smaller ones that would be 0 have an exponent."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0.0))
    if not 1e-4 <= largest < 1e7:
        return ["0" if value == 0 else f"{value:.3e}" for value in values]
    decimals = min(8, max(0, _DIGITS - 1 - math.floor(math.log10(largest))))
    least = 0.5 * 10.0**-decimals
    return [
        "0" if value == 0 else f"{value:.1e}" if abs(value) < least else f"{value:.{decimals}f}" for value in values
    ]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = line
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()
