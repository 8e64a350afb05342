"""What a search by cross-validation has found, read from the fitted attributes of its estimator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from widemargin.estimators._selection import standard_error

_USUAL = ("certified", "estimated")  # states of points whose models are determined


class SearchPoint(NamedTuple):
    """A point of a search, with means over folds; numbers are nan where it has no score."""

    parameters: dict[str, float]
    scores: np.ndarray  # of the folds
    n_support: float
    seconds: float
    gap: float
    state: str

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return standard_error(self.scores)

    @property
    def is_tried(self) -> bool:
        return bool(np.isfinite(self.scores).all())

    @property
    def in_words(self) -> str:
        return parameters_in_words(self.parameters)


@dataclass(frozen=True)
class Searched:
    """All points of a search in the order of ``cv_results_``, and the index of the chosen one."""

    points: list[SearchPoint]
    index: int

    @property
    def chosen(self) -> SearchPoint:
        return self.points[self.index]

    @property
    def best_first(self) -> list[SearchPoint]:
        """The points that have a score; of equal ones the chosen one comes first.

        Those whose models are not determined, as where hulls overlap, come last.
        """
        there = (point for point in self.points if point.is_tried)
        return sorted(there, key=lambda point: (point.state not in _USUAL, -point.mean, point is not self.chosen))

    def top(self, n_points: int) -> list[tuple[str, SearchPoint]]:
        """The best points with their ranks, and the chosen one wherever it is."""
        ranked = list(enumerate(self.best_first, 1))
        shown = [(rank, point) for rank, point in ranked if rank <= n_points or point is self.chosen]
        return [(f"{rank}, chosen" if point is self.chosen else str(rank), point) for rank, point in shown]

    @property
    def near_best(self) -> list[SearchPoint]:
        """The points whose mean score is within one standard error of the best, the best first."""
        ranked = self.best_first
        return [point for point in ranked if point.mean >= ranked[0].mean - ranked[0].error]

    @property
    def states(self) -> dict[str, int]:
        """The number of points in each state that there is, those with a score first."""
        ordered = sorted(self.points, key=lambda point: (not point.is_tried, point.state))
        return dict(Counter(point.state for point in ordered))

    @property
    def varying(self) -> list[str]:
        """The parameters of which several values were tried; at least one name."""
        values = {name: {point.parameters[name] for point in self.points} for name in self.chosen.parameters}
        return [name for name in values if len(values[name]) > 1] or list(values)[:1]

    @property
    def edges(self) -> list[str]:
        """A sentence for each parameter whose chosen value is at an end of what was tried."""
        sentences = []
        for name, value in self.chosen.parameters.items():
            values = [point.parameters[name] for point in self.points]
            which = "smallest" if value == min(values) else "largest" if value == max(values) else ""
            if which and min(values) < max(values):
                sentences.append(f"{name}={value:.4g} is the {which} value: a wider range may have better points")
        return sentences

    @property
    def axes(self) -> dict[str, list[float]]:
        """The values of the varying parameters that make up the grid, ascending; not those that refine it.

        Returns the first two of three or more parameters.
        """
        names = self.varying[:2]
        if len(names) == 1:
            return {names[0]: _rising([point.parameters[names[0]] for point in self.points])}
        rows: list[float] = []
        columns: list[float] = []
        for value, line in groupby((point.parameters for point in self.points), key=lambda each: each[names[0]]):
            values = _rising([each[names[1]] for each in line])
            if rows and (values != columns or value < rows[-1]):
                break
            rows.append(value)
            columns = values
        return dict(zip(names, (rows, columns), strict=True))


def _rising(values: list[float]) -> list[float]:
    """The values up to the first that does not rise: later ones refine them."""
    ends = [k for k in range(1, len(values)) if values[k] <= values[k - 1]]
    return values[: ends[0]] if ends else values


def parameters_in_words(parameters: dict[str, float]) -> str:
    return ", ".join(f"{name}={value:.4g}" for name, value in parameters.items())


def chosen_parameters(model: Any) -> dict[str, float] | None:
    """What a fitted estimator has chosen by cross-validation; None if it does not choose."""
    if hasattr(model, "error_path_"):  # of SparseSVCCV: one penalty for all classes
        return {"alpha": float(np.max(model.alpha_))}
    return getattr(model, "best_params_", None)


def searched(model: Any) -> Searched | None:
    """The search of a fitted estimator; None if it has made none, or its table is not kept."""
    table = getattr(model, "cv_results_", None)
    if table is None:
        return None
    n_points = len(table["params"])

    def column(name: str) -> list[float]:
        return list(map(float, table.get(name, [np.nan] * n_points)))

    points = [
        SearchPoint(dict(table["params"][k]), model.scores_[k], n_support, seconds, gap, str(state))
        for k, (n_support, seconds, gap, state) in enumerate(
            zip(column("n_support"), column("mean_fit_time"), column("gap"), table["state"], strict=True)
        )
    ]
    return Searched(points, int(model.best_index_))
