"""Linear classifiers: one separator per two-class problem."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from widemargin.estimators._base import MarginClassifier, StopWarnings, common_attributes, linear_scores
from widemargin.estimators.registry import Array
from widemargin.exceptions import OverlapWarning, PrecisionWarning
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Result
from widemargin.strategies.protocol import Rows


class LinearClassifier(MarginClassifier):
    """One separator per class, against the rest; the highest score wins."""

    multi_class: Any = "rest"
    _fitted_attributes: ClassVar[dict[str, Any]] = {"coef_": Array("f", "PD", is_finite=True)}

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        return {**common_attributes(classes, models), "coef_": np.array([model.coef for model in models])}

    def _scores(self, X: Any) -> np.ndarray:
        return self._parts.class_scores(linear_scores(X, self.coef_, self.intercept_))


class HullClassifier(LinearClassifier):
    """One separator per pair of classes, combined by votes; the hulls of a pair may overlap."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LinearClassifier._parameter_constraints,
        "block_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    }
    multi_class: Any = "pairs"
    _zero_margin_advice: ClassVar[str]
    solver: Any

    def _advice(self, result: Result) -> str:
        if result.certificate.dual <= 0:
            return self._zero_margin_advice
        if self.solver == "saddle":
            return "solver='auto' closes the gap in fewer sweeps."
        return f"Raise {result.stop_reason}, or scale the features (StandardScaler) if their units differ much."

    @abstractmethod
    def _overlap_text(self) -> str:
        """The warning for overlapping hulls: what it means and what to do."""

    @abstractmethod
    def _undecided_text(self) -> str:
        """The warning for hulls of which float64 does not tell whether they overlap."""

    def _stop_warnings(self) -> StopWarnings:
        own: StopWarnings = {
            "overlap": (OverlapWarning, self._overlap_text()),
            "undecided": (PrecisionWarning, self._undecided_text()),
        }
        return {**super()._stop_warnings(), **own}

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Directions of the previous fit; their length does not matter."""
        coef = getattr(self, "coef_", None)
        if not self.warm_start or coef is None or not coef.any(axis=1).all():
            return None
        return np.asarray(coef / np.abs(coef).max(axis=1, keepdims=True))
