"""A model judged on labelled rows: scores, the confusion matrix, margins by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import (
    balanced_accuracy_score,
    confusion_matrix,
    matthews_corrcoef,
    precision_recall_fscore_support,
    roc_auc_score,
)
from sklearn.utils import check_consistent_length, column_or_1d

from widemargin.reports import _figures
from widemargin.reports._figures import Picture
from widemargin.reports._html import Html, element, joined, pairs, shortened, table

_MOST_CLASSES = 12  # of a matrix; beyond, the most frequent confusions are listed
_MOST_CONFUSIONS = 15
_REMARK = (
    "Measured on the {n:,} rows that were given to this report. If the model was trained on them, expect more errors "
    "on rows that it has not seen."
)


def judged(model: Any, classes: np.ndarray, are_votes: bool, X: Any, y: Any) -> Judged:
    """Score labelled rows; labels that the model does not know are refused before that."""
    y = column_or_1d(np.asarray(y))
    if len(y) == 0:
        raise ValueError("X and y have no rows: give at least one, or neither.")
    unknown = sorted(set(np.unique(y).tolist()) - set(classes.tolist()), key=str)
    if unknown:
        known = shortened(classes.tolist(), 200)
        raise ValueError(f"y has the labels {shortened(unknown, 200)}, and the model knows {known}.")
    if hasattr(X, "shape") and isinstance(X.shape[0], int):
        check_consistent_length(np.empty(X.shape[0]), y)
    scores = np.asarray(model.decision_function(X))
    check_consistent_length(scores, y)
    return Judged(classes, scores, np.searchsorted(classes, y), are_votes)


@dataclass(frozen=True)
class Judged:
    """Scores of rows beside the numbers of their classes."""

    classes: np.ndarray
    scores_of_rows: np.ndarray  # (n,), or (n, n_classes)
    codes: np.ndarray
    are_votes: bool  # whether scores of several classes are votes of pairs

    def _predicted(self) -> np.ndarray:
        scores = self.scores_of_rows
        return (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)

    def margins(self) -> Picture:
        """How far rows lie on the right side, by class."""
        names = [str(name) for name in self.classes]
        if self.scores_of_rows.ndim == 1:
            is_second = self.codes == 1
            return _figures.margins_of_two(np.where(is_second, 1.0, -1.0) * self.scores_of_rows, is_second, names)
        rows = np.arange(len(self.codes))
        own = self.scores_of_rows[rows, self.codes]
        others = self.scores_of_rows.copy()
        others[rows, self.codes] = -np.inf
        unit = "votes" if self.are_votes else "scores"
        return _figures.margins_of_many(own - others.max(axis=1), self.codes, names, unit)

    def scores(self) -> Html:
        """Numbers of all rows, of each class, and who is taken for whom."""
        predicted = self._predicted()
        wrong = int(np.sum(predicted != self.codes))
        lines = [
            ("accuracy", f"{1 - wrong / len(self.codes):.4f}"),
            ("errors", f"{wrong:,} of {len(self.codes):,}"),
        ]
        if len(np.unique(self.codes)) > 1:
            lines.append(("balanced accuracy", f"{balanced_accuracy_score(self.codes, predicted):.4f}"))
            lines.append(("Matthews correlation", f"{matthews_corrcoef(self.codes, predicted):.4f}"))
            if self.scores_of_rows.ndim == 1:
                lines.append(("area under the ROC curve", f"{roc_auc_score(self.codes, self.scores_of_rows):.4f}"))
        matrix = confusion_matrix(self.codes, predicted, labels=np.arange(len(self.classes)))
        confused = self._matrix(matrix) if len(self.classes) <= _MOST_CLASSES else self._most_confused(matrix)
        remark = element("p", _REMARK.format(n=len(self.codes)))
        return joined([remark, pairs(lines), element("div", confused, self._by_class(predicted), class_="beside")])

    def _by_class(self, predicted: np.ndarray) -> Html:
        numbers = np.arange(len(self.classes))
        found = precision_recall_fscore_support(self.codes, predicted, labels=numbers, zero_division=np.nan)
        order = np.argsort(found[1], kind="stable")[:50] if len(numbers) > 50 else numbers
        lines = [
            (shortened(self.classes[k], 24), *(_share(column[k]) for column in found[:3]), f"{found[3][k]:,}")
            for k in order
        ]
        hidden = len(numbers) - len(lines)
        caption = "By class" + (f"; {hidden} more are recognised better" if hidden else "")
        return table(("class", "precision", "recall", "F1", "rows"), lines, caption=caption)

    def _matrix(self, matrix: np.ndarray) -> Html:
        """Shaded by the share of the row's own class."""
        names = [shortened(name, 14) for name in self.classes]
        lines = []
        for name, row in zip(names, matrix, strict=True):
            shares = row / max(1, row.sum())
            cells = [
                element("span", f"{n:,}", class_="shade", style=f"--share:{share:.3f}")
                for n, share in zip(row, shares, strict=True)
            ]
            lines.append([name, *cells])
        caption = "Confusion: one line for each true class, one column for each predicted one"
        return table(["true \\ predicted", *names], lines, caption=caption, class_="confusion")

    def _most_confused(self, matrix: np.ndarray) -> Html:
        off = matrix - np.diag(np.diag(matrix))
        order = np.argsort(-off, axis=None, kind="stable")[:_MOST_CONFUSIONS]
        places = np.column_stack(np.unravel_index(order, off.shape))
        lines = [
            (shortened(self.classes[i], 24), shortened(self.classes[j], 24), f"{off[i, j]:,}")
            for i, j in places
            if off[i, j]
        ]
        return table(("true", "predicted", "rows"), lines, caption="The most frequent confusions", n_names=2)


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"
