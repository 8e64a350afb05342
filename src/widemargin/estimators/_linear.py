"""Linear classifiers: one separator per two-class problem."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from widemargin.estimators._base import MarginClassifier, common_attributes, linear_scores
from widemargin.estimators.registry import Array
from widemargin.exceptions import OverlapWarning
from widemargin.solvers.models import Separator
from widemargin.strategies.parts import MultiClass
from widemargin.strategies.protocol import Rows


class LinearClassifier(MarginClassifier):
    """One separator per class, against the rest; the highest score wins."""

    _multi_class: ClassVar[MultiClass] = "rest"
    _fitted_attributes: ClassVar[dict[str, Any]] = {"coef_": Array("f", "PD", is_finite=True)}

    def _zero_model(self, model: Separator) -> Separator:
        return model._replace(coef=np.zeros_like(model.coef), intercept=0.0)

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        return {**common_attributes(classes, models), "coef_": np.array([model.coef for model in models])}

    def _scores(self, X: Any) -> np.ndarray:
        return self._parts.class_scores(linear_scores(X, self.coef_, self.intercept_))


class HullClassifier(LinearClassifier):
    """One separator per pair of classes, combined by votes; the hulls of a pair may overlap."""

    _multi_class: ClassVar[MultiClass] = "pairs"

    @abstractmethod
    def _overlap_text(self) -> str:
        """The warning for overlapping hulls: what it means and what to do."""

    def _remarks(self) -> dict[str, tuple[type[Warning], str]]:
        return {**super()._remarks(), "overlap": (OverlapWarning, self._overlap_text())}

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Directions of the previous fit, scaled to the distance between the hulls."""
        coef = getattr(self, "coef_", None)
        if not self.warm_start or coef is None or not coef.any(axis=1).all():
            return None
        return np.asarray(2 * coef / (coef**2).sum(axis=1, keepdims=True))
