"""Scores of a model on labelled rows: accuracy, the confusion matrix, margins by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import metrics
from sklearn.utils import check_consistent_length, column_or_1d

from widemargin.reports import _figures
from widemargin.reports._figures import Picture
from widemargin.reports._html import Shared, Table, shortened
from widemargin.strategies.parts import Parts

_MAX_MATRIX_CLASSES = 12  # with more, the most frequent confusions are listed
_MAX_CONFUSIONS = 15
_MAX_CLASSES = 50


def score_rows(model: Any, classes: np.ndarray, parts: Parts, X: Any, y: Any) -> Scored:
    """Score labelled rows; labels that the model does not know are refused first."""
    y = column_or_1d(np.asarray(y))
    if len(y) == 0:
        raise ValueError("X and y have no rows: give at least one, or neither.")
    unknown = sorted(set(np.unique(y).tolist()) - set(classes.tolist()), key=str)
    if unknown:
        known = shortened(classes.tolist(), 200)
        raise ValueError(f"y has the labels {shortened(unknown, 200)}, but the model knows only {known}.")
    if hasattr(X, "shape") and isinstance(X.shape[0], int):
        check_consistent_length(np.empty(X.shape[0]), y)
    scores = np.asarray(model.decision_function(X))
    check_consistent_length(scores, y)
    return Scored(classes, scores, np.searchsorted(classes, y), parts)


@dataclass(frozen=True)
class Scored:
    """Scores of rows, and the position of each row's class."""

    classes: np.ndarray
    scores: np.ndarray  # (n,), or (n, n_classes)
    codes: np.ndarray
    parts: Parts  # the problems whose scores are combined

    def margins(self) -> Picture:
        names = [str(name) for name in self.classes]
        if self.scores.ndim == 1:
            is_second = self.codes == 1
            return _figures.margins_of_two(np.where(is_second, 1.0, -1.0) * self.scores, is_second, names)
        rows = np.arange(len(self.codes))
        others = self.scores.copy()
        others[rows, self.codes] = -np.inf
        margins = self.scores[rows, self.codes] - others.max(axis=1)
        return _figures.margins_of_many(margins, self.codes, names, "votes" if self.parts.are_votes else "scores")

    def content(self) -> dict[str, Any]:
        """Scores of all rows, the confusion matrix, and scores of each class."""
        predicted = self.parts.winners(self.scores)
        n, wrong = len(self.codes), int(np.sum(predicted != self.codes))
        sizes = np.bincount(self.codes, minlength=len(self.classes))
        lines = [("accuracy", _beside(1 - wrong / n, sizes.max() / n)), ("errors", f"{wrong:,} of {n:,}")]
        if (present := np.count_nonzero(sizes)) > 1:
            balanced = metrics.balanced_accuracy_score(self.codes, predicted)
            lines.append(("balanced accuracy", _beside(balanced, 1 / present)))
            lines.append(("Matthews correlation", f"{metrics.matthews_corrcoef(self.codes, predicted):.4f}"))
            if self.scores.ndim == 1:
                lines.append(("area under the ROC curve", f"{metrics.roc_auc_score(self.codes, self.scores):.4f}"))
        matrix = metrics.confusion_matrix(self.codes, predicted, labels=np.arange(len(self.classes)))
        return {
            "note": f"Measured on the {n:,} rows that were given to this report. If the model was trained on them, "
            "expect more errors on rows that it has not seen.",
            "scores": lines,
            "confusion": (self._matrix if len(self.classes) <= _MAX_MATRIX_CLASSES else self._most_confused)(matrix),
            "by_class": self._by_class(predicted),
        }

    def _by_class(self, predicted: np.ndarray) -> Table:
        numbers = np.arange(len(self.classes))
        found = metrics.precision_recall_fscore_support(self.codes, predicted, labels=numbers, zero_division=np.nan)
        order = np.argsort(found[1], kind="stable")[:_MAX_CLASSES] if len(numbers) > _MAX_CLASSES else numbers
        lines = [(self.classes[k], *(_share(column[k]) for column in found[:3]), f"{found[3][k]:,}") for k in order]
        hidden = len(numbers) - len(lines)
        caption = "By class" + (f"; {hidden} more have a higher recall" if hidden else "")
        return Table(("class", "precision", "recall", "F1", "rows"), lines, caption)

    def _matrix(self, matrix: np.ndarray) -> Table:
        """Cells are shaded by their share of the true class."""
        heads = [shortened(name, 14) for name in self.classes]
        shares = [[Shared(n / max(1, row.sum()), "shade", inside=f"{n:,}") for n in row] for row in matrix]
        lines = [[name, *row] for name, row in zip(self.classes, shares, strict=True)]
        caption = "Confusion matrix: a line for each true class, a column for each prediction"
        return Table(["true", *heads], lines, caption, is_confusion=True)

    def _most_confused(self, matrix: np.ndarray) -> Table:
        off = matrix - np.diag(np.diag(matrix))
        order = np.argsort(-off, axis=None, kind="stable")[:_MAX_CONFUSIONS]
        places = np.column_stack(np.unravel_index(order, off.shape))
        lines = [(self.classes[i], self.classes[j], f"{off[i, j]:,}") for i, j in places if off[i, j]]
        return Table(("true", "predicted", "rows"), lines, "The most frequent confusions", n_names=2)


def _beside(accuracy: float, of_largest_class: float) -> str:
    return f"{accuracy:.4f} (largest class alone: {of_largest_class:.4f})"


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"
