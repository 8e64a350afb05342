"""Linear classifiers: one separator for two classes; for more, one for each class against the rest, or each pair."""

from __future__ import annotations

from abc import abstractmethod
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from widemargin.estimators._base import MarginClassifier, common_attributes, linear_scores
from widemargin.estimators.registry import Array
from widemargin.exceptions import OverlapWarning
from widemargin.solvers.models import Separator
from widemargin.strategies.task import Rows


class LinearClassifier(MarginClassifier):
    """One separator for each class against the rest; the highest score wins."""

    _one_vs_rest: ClassVar[bool] = True
    _fitted_attributes: ClassVar[dict[str, Any]] = {"coef_": Array("f", "PD", is_finite=True)}

    def _silent(self, model: Separator) -> Separator:
        return model._replace(coef=np.zeros_like(model.coef), intercept=0.0)

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        """Fitted attributes that ``decision_function`` needs, and what the problem reports."""
        return {**common_attributes(classes, models), "coef_": np.array([model.coef for model in models])}

    def _scores(self, X: Any) -> np.ndarray:
        scores = linear_scores(X, self.coef_, self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores


class LinearByPairs(LinearClassifier):
    """One separator for each pair of classes; they vote. What hard margin and nu share."""

    _one_vs_rest: ClassVar[bool] = False

    @abstractmethod
    def _about_overlap(self) -> str:
        """What it means that hulls meet, and what to do."""

    def _remarks(self) -> dict[str, tuple[type[Warning], str]]:
        return {**super()._remarks(), "overlap": (OverlapWarning, self._about_overlap())}

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Directions of the last fit, as long as the distance between the hulls."""
        coef = getattr(self, "coef_", None)
        if not self.warm_start or coef is None or not coef.any(axis=1).all():
            return None
        return np.asarray(2 * coef / (coef**2).sum(axis=1, keepdims=True))

    def _scores(self, X: Any) -> np.ndarray:
        """Scores of the one pair; or votes of all pairs for each class, ties broken by the sum of scores."""
        scores = super()._scores(X)
        return scores if len(self.classes_) == 2 else votes_of_pairs(scores, len(self.classes_))


def votes_of_pairs(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Votes for each class from the scores of all pairs, a positive one being a vote for the first of the pair.

    The sum of a class's scores, squeezed into (-1/3, 1/3), breaks ties between equal numbers of votes.
    """
    votes = np.zeros((len(scores), n_classes))
    sums = np.zeros((len(scores), n_classes))
    for k, (first, second) in enumerate(combinations(range(n_classes), 2)):
        votes[:, first] += scores[:, k] > 0
        votes[:, second] += scores[:, k] <= 0
        sums[:, first] += scores[:, k]
        sums[:, second] -= scores[:, k]
    return np.asarray(votes + sums / (3 * (np.abs(sums) + 1)))
