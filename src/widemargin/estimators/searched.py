"""What a search by cross-validation has found, read from the fitted attributes of its estimator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from widemargin.estimators._selection import TIE, standard_error
from widemargin.problems.protocol import gap_as_text

_USUAL = ("certified", "estimated")  # states of points whose models are determined
_UNUSUAL = {  # sentences on one point, and on several
    "skipped": ("1 point was skipped because scores had fallen", "{n} points were skipped because scores had fallen"),
    "not tried": ("1 point was not tried", "{n} points were not tried"),
    "infeasible": ("1 value of nu is too large for a fold", "{n} values of nu are too large for a fold"),
    "overlap": ("1 value of nu is too small: the hulls overlap", "{n} values of nu are too small: the hulls overlap"),
    "undecided": ("At 1 value of nu the hulls may overlap", "At {n} values of nu the hulls may overlap"),
}


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


class Edge(NamedTuple):
    """A parameter of the best or the chosen point that has the smallest or the largest value of all scored points."""

    which: str  # "best" or "chosen"
    name: str
    value: float
    is_largest: bool

    @property
    def in_words(self) -> str:
        end, more = ("largest", "larger") if self.is_largest else ("smallest", "smaller")
        return f"The {self.which} point, {self.name}={self.value:.4g}, is at the {end} value tried: try {more} ones"


class Unseen(NamedTuple):
    """The score of a search on rows that it has not seen, and what it chose."""

    n_rows: int
    score: float
    largest_class_score: float  # of a model that gives the largest class for all rows
    chosen: dict[str, float]


@dataclass(frozen=True)
class UnseenScores:
    """Scores of searches that each left out some rows, on these rows: one held-out part, or several outer folds."""

    scoring: str
    each: list[Unseen]
    n_splits: int  # more than there are scores if the searches were interrupted

    @property
    def n_rows(self) -> int:
        return sum(one.n_rows for one in self.each)

    @property
    def mean(self) -> float:
        return float(np.mean([one.score for one in self.each]))

    @property
    def largest_class_score(self) -> float:
        return float(np.mean([one.largest_class_score for one in self.each]))

    @property
    def spread(self) -> float | None:
        """The standard deviation over outer folds, or the binomial standard error of one accuracy; else None."""
        if len(self.each) > 1:
            return float(np.std([one.score for one in self.each], ddof=1))
        return float(np.sqrt(self.mean * (1 - self.mean) / self.n_rows)) if self.scoring == "accuracy" else None

    @property
    def interruption(self) -> str:
        """How many outer folds were scored, if not all; else empty."""
        n_scored = len(self.each)
        return f"{n_scored} of {self.n_splits} outer folds were scored" if n_scored < self.n_splits else ""


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
        chosen = self.chosen

        def rank(point: SearchPoint) -> tuple[bool, float, bool]:
            mean = chosen.mean if abs(point.mean - chosen.mean) <= TIE else point.mean
            return point.state not in _USUAL, -mean, point is not chosen

        return sorted((point for point in self.points if point.is_tried), key=rank)

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
    def edges(self) -> list[Edge]:
        """The parameters of the best point, and of the chosen one, that are at an end of the scored values."""
        ranked = self.best_first
        if not ranked:
            return []
        found: dict[tuple[str, float], Edge] = {}
        for which, point in (("best", ranked[0]), ("chosen", self.chosen)):
            for name, value in point.parameters.items():
                if name == "nu":  # the grid ends at the largest feasible value
                    continue
                values = [each.parameters[name] for each in ranked]
                if min(values) < max(values) and value in (min(values), max(values)):
                    found.setdefault((name, value), Edge(which, name, value, value == max(values)))
        return list(found.values())

    @property
    def unusual(self) -> list[str]:
        """A sentence on the points of each state but certified and estimated."""
        states = ((state, n) for state, n in self.states.items() if state not in _USUAL)
        return [_UNUSUAL[state][n > 1].format(n=n) + "." for state, n in states]

    def doubt(self, tol: float) -> str:
        """Why the score of the chosen point is not final; empty if its fits are certified."""
        chosen = self.chosen
        if chosen.state != "estimated":
            return ""
        return (
            f"The chosen point has a gap of {gap_as_text(chosen.gap, 1)} (tol {tol:.0e}): its score is an estimate. "
            "Raise max_iter, or use smaller Cs."
        )

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
