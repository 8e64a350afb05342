"""Folds of cross-validation, and the scores of the rows that they hold out."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from widemargin.data.pieces import encoded
from widemargin.data.shard import Shard
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import Fold


def encoded_rows(rows: Rows, classes: np.ndarray) -> Shard:
    """The rows with class numbers for labels; those of weight 0 may have labels of no class."""
    X, y, weight, _ = rows
    return Shard(X, encoded(np.where(weight > 0, y, classes[0]), classes), weight)


def folds_of(cv: Any, X: Any, y: np.ndarray, weight: np.ndarray, groups: Any) -> list[Fold]:
    """The folds of a splitter, a number of stratified folds, or an iterable of pairs; each with rows of every class.

    Splitters and pairs name all rows; those of weight 0 are neither training nor held-out rows.
    """
    present = weight > 0
    classes, counts = np.unique(y[present], return_counts=True)
    if cv is None or isinstance(cv, Integral):
        splitter, numbers = check_cv(cv, y[present], classifier=True), np.flatnonzero(present)
        if counts.min() < splitter.n_splits:
            raise ValueError(
                f"cv={splitter.n_splits} needs at least as many rows of every class, and class "
                f"{classes[counts.argmin()]} has {counts.min()}: use fewer folds, or more rows."
            )
        folds = [(numbers[train], numbers[test]) for train, test in splitter.split(numbers, y[present])]
    else:
        folds = []
        for train, test in check_cv(cv, y, classifier=True).split(X, y, groups):
            train, test = (_places(rows, len(y)) for rows in (train, test))
            folds.append((train[present[train]], test[present[test]]))
    if not folds:
        raise ValueError(f"cv={cv!r} gives no folds.")
    for k, (train, test) in enumerate(folds):
        lacking = np.setdiff1d(classes, y[train]).tolist()
        if lacking:
            raise ValueError(f"The training rows of fold {k} lack the classes {lacking}: use fewer folds, or shuffle.")
        if not len(test):
            raise ValueError(f"Fold {k} holds out no rows.")
        if len(np.intersect1d(train, test)):
            raise ValueError(f"Fold {k} holds out rows that it trains on: training and test rows must be disjoint.")
    return folds


def _places(rows: Any, n_rows: int) -> np.ndarray:
    """Row numbers of a fold, from numbers or a mask, each once."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape != (n_rows,):
        raise ValueError(f"A mask of cv has {rows.size} entries, and there are {n_rows} rows.")
    if rows.dtype.kind not in "biu" and rows.size:
        raise ValueError(f"A fold of cv has {rows.ravel()[:3].tolist()}, ...: it must be row numbers or a mask.")
    places = np.unique(np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.intp))
    for row in places[:1].tolist() + places[-1:].tolist():
        if not 0 <= row < n_rows:
            raise ValueError(f"A fold of cv names row {row}, and there are {n_rows} rows.")
    return places


class HeldOut(ClassifierMixin, BaseEstimator):
    """A fitted classifier that knows the scores of ``rows`` alone: those that a fold holds out."""

    def __init__(self, classes: np.ndarray, parts: Parts, scores: np.ndarray, rows: Any) -> None:
        self.classes, self.parts, self.scores, self.rows = classes, parts, scores, rows
        self.classes_ = classes

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"A scorer of a search asks its model for {name!r}. Models of folds have predict, decision_function and "
            "score: use GridSearchCV for other scorers."
        )

    def decision_function(self, X: Any) -> np.ndarray:
        if X is not self.rows:
            raise ValueError(
                "A scorer of a search asks for scores of other rows than those that the fold holds out, as they were "
                "given to it: use GridSearchCV for such a scorer."
            )
        return self.parts.class_scores(self.scores)

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.classes[self.parts.winners(self.decision_function(X))])


class Scorers:
    """One or several scorers; the first of several decides. Raises ValueError for one that cannot be used."""

    def __init__(self, estimator: Any, scoring: Any, *, is_weighted: bool) -> None:
        self._scoring, scorer = scoring, check_scoring(estimator, scoring=scoring)
        several = getattr(scorer, "_scorers", None)
        self.names = ["score"] if several is None else list(several)
        self._is_weighted = is_weighted
        self._is_accuracy = scoring is None or (isinstance(scoring, str) and scoring == "accuracy")
        self._all = [scorer] if several is None else list(several.values())
        # Functions of the model may look at rows; scorers of scikit-learn pass them on to the model.
        self.need_rows = not self._is_accuracy and not all(hasattr(each, "_response_method") for each in self._all)
        for each in self._all:
            methods = np.atleast_1d(getattr(each, "_response_method", "predict")).tolist()
            if "predict_proba" in methods and not {"decision_function", "predict"} & set(methods):
                raise ValueError(
                    f"scoring={scoring!r} needs probabilities, which support vector machines do not have: choose a "
                    "scorer of scores or labels, such as 'roc_auc' or 'balanced_accuracy', or calibrate afterwards."
                )
            if is_weighted and not _takes_weights(getattr(each, "_score_func", each)):
                raise ValueError(f"scoring={scoring!r} takes no sample_weight: leave that out, or choose another.")

    def check(self, rows: Rows, folds: Sequence[Fold], classes: np.ndarray, parts: Parts) -> None:
        """Raise ValueError unless metrics have a value on the rows that each fold holds out, all classified right.

        Some have none where a class is missing, for several classes, or for labels that are not 0 and 1. Scorers that
        are functions of the model are not asked.
        """
        if self.need_rows or self._is_accuracy:
            return
        _, y, weight, _ = rows
        for k, (_, held_out) in enumerate(folds):
            labels = y[held_out]
            right = np.stack([np.where(labels == classes[positive], 1.0, -1.0) for positive, _ in parts.pairs], axis=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = self(HeldOut(classes, parts, right, held_out[:, None]), labels, weight[held_out])
                except ValueError as error:
                    raise ValueError(
                        f"scoring={self._scoring!r} does not suit these labels ({error}): choose another scorer, such "
                        "as 'balanced_accuracy' or 'f1_macro'."
                    ) from None
            for name, value in zip(self.names, found, strict=True):
                if not math.isfinite(value):
                    raise ValueError(
                        f"The {name} of the rows that fold {k} holds out is {value}, even if all are classified right: "
                        f"they are of the classes {np.unique(labels).tolist()}. Use fewer folds, or another scorer."
                    )

    def of_folds(self, folds: Any, fits: Sequence[Any], rows: Rows) -> np.ndarray:
        """The scores of each fold (down) by each scorer (across), from those of the rows that it holds out."""
        X, y, weight, _ = rows
        found = []
        for fit, (_, held_out) in zip(fits, folds.folds, strict=True):
            own = X[held_out] if self.need_rows else held_out[:, None]  # the model knows their scores
            model = HeldOut(folds.classes, folds.parts, fit.scores, own)
            found.append(self(model, y[held_out], weight[held_out]))
        return np.array(found)

    def __call__(self, model: HeldOut, y: np.ndarray, weight: np.ndarray) -> list[float]:
        """The score of the rows that the model knows, by each scorer."""
        if self._is_accuracy:  # of many folds, the checks of scikit-learn would take longer than the fits
            return [float(np.average(model.predict(model.rows) == y, weights=weight if self._is_weighted else None))]
        options = {"sample_weight": weight} if self._is_weighted else {}
        found = [each(model, model.rows, y, **options) for each in self._all]
        if isinstance(found[0], dict):
            self.names = list(found[0])  # which a function tells by its answers
            found = list(found[0].values())
        return [float(each) for each in found]


def _takes_weights(metric: Callable[..., Any]) -> bool:
    parameters = inspect.signature(metric).parameters
    return "sample_weight" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
