"""Linear classifiers: one separator per two-class problem."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from widemargin.comm.clusters import is_dask
from widemargin.estimators._base import MarginClassifier, StopWarnings, common_attributes, linear_scores
from widemargin.estimators.registry import Array
from widemargin.exceptions import OverlapWarning, PrecisionWarning
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Result
from widemargin.strategies.protocol import Outcome, Rows


class LinearClassifier(MarginClassifier):
    """One separator per class, against the rest; the highest score wins."""

    multi_class: Any = "rest"
    _fitted_attributes: ClassVar[dict[str, Any]] = {"coef_": Array("f", "PD", is_finite=True)}

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        return {**common_attributes(classes, models), "coef_": np.array([model.coef for model in models])}

    def _scores(self, X: Any) -> np.ndarray:
        return self._parts.class_scores(linear_scores(X, self.coef_, self.intercept_))


def support_attributes(outcome: Outcome, rows: Any) -> dict[str, Any]:
    """The support vectors of all problems, each once, and their coefficients in each; none for Dask collections."""
    if outcome.support is None or is_dask(rows.X):
        return {}
    if len(outcome.support) == 1:  # ascending, each once
        numbers, coef = outcome.support[0].numbers, outcome.support[0].coef[None, :]
    else:
        numbers = np.unique(np.concatenate([each.numbers for each in outcome.support]))
        coef = np.zeros((len(outcome.support), len(numbers)))
        for k, each in enumerate(outcome.support):
            coef[k, np.searchsorted(numbers, each.numbers)] = each.coef
    counts = np.array([len(each.numbers) for each in outcome.support])
    return {"support_": numbers, "dual_coef_": coef, "n_support_": counts}


class HullClassifier(LinearClassifier):
    """One separator per pair of classes, combined by votes; the hulls of a pair may overlap."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LinearClassifier._parameter_constraints,
        "block_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    }
    _fitted_attributes: ClassVar[dict[str, Any]] = {
        "support_": Array("iu", "N", least=0),
        "dual_coef_": Array("f", "PN", is_finite=True),
        "n_support_": Array("iu", "P", least=0),
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

    def _unpack(self, outcome: Outcome, rows: Any) -> None:
        super()._unpack(outcome, rows)
        self.__dict__.update(support_attributes(outcome, rows))

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Directions of the previous fit; their length does not matter."""
        coef = getattr(self, "coef_", None)
        if not self.warm_start or coef is None or not coef.any(axis=1).all():
            return None
        return np.asarray(coef / np.abs(coef).max(axis=1, keepdims=True))
