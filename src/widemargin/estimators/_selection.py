"""A search over C and gamma by cross-validation: what was tried, its table, the choice, and what is tried next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import rankdata
from scipy.stats import t as student_t
from sklearn import config_context, get_config

from widemargin.codec import conforms
from widemargin.estimators._folds import Scorers
from widemargin.estimators._grids import around
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import FoldFit, Folds, KernelFolds
from widemargin.strategies.selection_by_rows import FoldsOfRanks, KernelFoldsOfRanks

_DIGITS_OF_MEANS = 12  # of mean scores: less is a tie
TIE = 10.0**-_DIGITS_OF_MEANS
_SURE = 0.99  # that one point is below another, by a t-test of the differences between folds
_LEAST_FALL = 0.002  # of a score: less may be due to a gap that is open
_FITTED = 0.1  # the least mean margin of support vectors
_LEARNED = 0.7  # the power of C that w grows with at most once it fits the rows; before that it is near 1


class Point(NamedTuple):
    """A point of the grid; no gamma where the kernel has none."""

    C: float
    gamma: float | None

    def distance(self, other: Point) -> float:
        """In decades."""
        ratio = 1.0 if self.gamma is None or other.gamma is None else self.gamma / other.gamma
        return abs(math.log10(self.C / other.C)) + abs(math.log10(ratio))

    def parameters(self) -> dict[str, float]:
        return {"C": self.C} if self.gamma is None else {"C": self.C, "gamma": self.gamma}


# -- results -----------------------------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """A point that was tried on all folds."""

    fits: list[FoldFit]
    scores: np.ndarray  # of each fold (down) by each scorer (across)

    @property
    def gap(self) -> float:
        return max(fit.gap for fit in self.fits)

    @property
    def mean(self) -> float:
        """Of the scores that decide."""
        return float(self.scores[:, 0].mean())

    @property
    def norms(self) -> np.ndarray:
        """Of w in each problem, means over folds."""
        return np.asarray(np.mean([fit.norms for fit in self.fits], axis=0))

    @property
    def margin(self) -> float:
        """The least mean margin of support vectors in a problem."""
        return min(float(fit.margins.min()) for fit in self.fits)

    @property
    def norm(self) -> float:
        return float(np.mean([fit.norms.max() for fit in self.fits]))

    def is_clearly_below(self, best: Tried) -> bool:
        """Whether the scores of folds that decide are lower than others, beyond all chance and what is open."""
        by = best.scores[:, 0] - self.scores[:, 0]
        n = len(by)
        return n > 2 and bool(by.mean() > max(_LEAST_FALL, student_t.ppf(_SURE, n - 1) * standard_error(by)))


def table(
    tried: dict[Point, Tried | None], skipped: set[Point], names: Sequence[str], n_folds: int, tol: float
) -> dict[str, Any]:
    """All that was found, in the form of ``GridSearchCV.cv_results_``; points that were not tried have nan."""

    def of(read: Callable[[Tried, int], float]) -> np.ndarray:
        """A number of each fold, at all points."""
        nothing = [np.nan] * n_folds
        lines = [nothing if each is None else [read(each, k) for k in range(n_folds)] for each in tried.values()]
        return np.array(lines, dtype=np.float64)

    seconds, gaps = of(lambda each, k: each.fits[k].seconds), of(lambda each, k: each.fits[k].gap).max(axis=1)
    none = np.where(np.isnan(gaps), np.nan, 0.0)  # scores come with the fits
    out: dict[str, Any] = {
        "mean_fit_time": seconds.mean(axis=1),
        "std_fit_time": seconds.std(axis=1),
        "mean_score_time": none,
        "std_score_time": none.copy(),
    }
    params = [point.parameters() for point in tried]
    for name in params[0]:
        out[f"param_{name}"] = np.ma.MaskedArray([each[name] for each in params], mask=False)
    out["params"] = params
    for number, name in enumerate(names):
        scores = of(lambda each, k, number=number: each.scores[k, number])  # type: ignore[misc]
        for k in range(n_folds):
            out[f"split{k}_test_{name}"] = scores[:, k]
        mean = scores.mean(axis=1)
        out[f"mean_test_{name}"], out[f"std_test_{name}"] = mean, scores.std(axis=1)
        ranked = np.where(np.isnan(mean), np.inf, -np.round(mean, _DIGITS_OF_MEANS))
        out[f"rank_test_{name}"] = rankdata(ranked, method="min").astype(np.int32)
    out["n_support"] = of(lambda each, k: each.fits[k].n_support).mean(axis=1)
    out["gap"] = gaps
    untried = ["skipped" if point in skipped else "not tried" for point in tried]
    out["state"] = np.where(np.isnan(gaps), untried, np.where(gaps <= tol, "certified", "estimated"))
    return out


def check_table(model: Any, sizes: dict[str, int]) -> None:
    """Raise ModelFileError unless ``cv_results_`` from a file is a table of the points of ``scores_``."""
    results, n_points = dict(getattr(model, "cv_results_", {})), sizes.get("A", 0)
    params = results.pop("params", [])
    are_columns = [
        isinstance(column, np.ndarray) and column.dtype.kind in "fiuU" and column.shape == (n_points,)
        for column in results.values()
    ]
    is_table = conforms(params, list[dict[str, float]]) and len(params) == n_points and all(are_columns)
    if not is_table or not 0 <= model.best_index_ < n_points:
        raise ModelFileError(f"cv_results_ of {type(model).__name__} is no table of {n_points} points")


def standard_error(scores: np.ndarray) -> float:
    """Of the mean over folds."""
    return float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else 0.0


def near_best(tried: dict[Point, Tried | None], n_errors: float) -> list[Point]:
    """The points whose mean score is within so many standard errors of the best, the widest margin first.

    Scores that are nan are lower than all others.
    """
    done = {point: each for point, each in tried.items() if each is not None}
    means = {point: -math.inf if math.isnan(each.mean) else each.mean for point, each in done.items()}
    best = max(means, key=means.__getitem__)
    least = means[best] - TIE
    if n_errors and math.isfinite(least):
        least -= n_errors * standard_error(done[best].scores[:, 0])
    return sorted((point for point, mean in means.items() if mean >= least), key=lambda point: done[point].norm)


# -- the search --------------------------------------------------------------------------------------------------------


class AnySearch(Protocol):
    """Points that are tried on all folds."""

    scorers: Scorers
    tried: dict[Any, Any]  # Tried, or None for a point that was not tried

    @property
    def folds(self) -> Any: ...

    @property
    def candidates(self) -> dict[Any, Any]:
        """Those of the points that were tried to choose from."""

    @property
    def first(self) -> Any:
        """The choice where no point was tried."""

    @property
    def n_done(self) -> int:
        """How many points were tried, or will not be."""

    @property
    def n_missing(self) -> int:
        """How many points were not tried for lack of time."""

    def table(self, tol: float) -> dict[str, Any]: ...


@dataclass
class Search:
    """Points that are tried on all folds, one gamma after the other."""

    folds: Folds | FoldsOfRanks
    kernel_with: Callable[[float | None], Kernel]
    scorers: Scorers
    rows: Rows
    skip: bool = False  # larger values of C where scores have clearly fallen below the best
    tried: dict[Point, Tried | None] = field(default_factory=dict)
    skipped: set[Point] = field(default_factory=set)
    agree: Callable[[np.ndarray], np.ndarray] = lambda scores: scores  # of all ranks
    are_values_late: bool = False  # whether kernel values are computed when a fit needs them
    first: Point | None = None  # the choice where no point was tried: in the middle of the grid
    _space: Any = None  # of the values of the last kernel

    @property
    def is_over(self) -> bool:
        return self.folds.is_over()

    @property
    def candidates(self) -> dict[Point, Tried | None]:
        return {point: each for point, each in self.tried.items() if each is not None}

    @property
    def n_done(self) -> int:
        return len(self.candidates) + len(self.skipped)

    @property
    def n_missing(self) -> int:
        return len(self.tried) - self.n_done

    def table(self, tol: float) -> dict[str, Any]:
        return table(self.tried, self.skipped, self.scorers.names, len(self.folds.folds), tol)

    def try_all(self, gammas: Sequence[float | None], Cs: Sequence[float]) -> None:
        """Try all pairs of some ascending values; the gammas in the middle come first, since the best is among them."""
        for C in Cs:
            for gamma in gammas:
                self.tried.setdefault(Point(C, gamma), None)
        self.first = self.first or Point(Cs[len(Cs) // 2], gammas[len(gammas) // 2])
        middle = (len(gammas) - 1) / 2
        for k in sorted(range(len(gammas)), key=lambda k: abs(k - middle)):
            points = [Point(C, gammas[k]) for C in Cs]
            self._try(gammas[k], [each.C for each in points if self.tried[each] is None and each not in self.skipped])
        while unfinished := self._unfinished():
            gamma = unfinished[0].gamma
            on = None if self.is_over else self._with_kernel(gamma)
            if on is None or not self._finish(gamma, on):
                return

    def refine(self, best: Point) -> None:
        """Try the points half a step around one, on a logarithmic scale."""
        Cs, gammas = np.unique([point.C for point in self.tried]), {point.gamma for point in self.tried} - {None}
        near = [best.C, *around(Cs, best.C).tolist()]
        if best.gamma is None:
            self.try_all([None], sorted(near))
        else:
            known = np.array(sorted(filter(None, gammas)))
            self.try_all(sorted([best.gamma, *around(known, best.gamma).tolist()]), sorted(near))

    def forget_values(self) -> None:
        """Give back the memory of kernel values."""
        self._space = None

    def start_at(self, point: Point) -> np.ndarray | None:
        """Coefficients for a fit of all rows, of each problem: means over the folds that trained on a row."""
        each = self.tried[point]
        if each is None:
            return None
        copies, n_problem = self.folds.copies, self.folds.shard.n_rows
        n_rows = n_problem if copies is None else len(copies.places)
        out, n_fits = np.zeros((len(self.folds.parts), n_rows)), np.zeros(n_rows)
        for fit, (train, _) in zip(each.fits, self.folds.folds, strict=True):
            n_fits[train] += 1
            for line, part in zip(out, fit.parts, strict=True):
                coef = np.zeros(n_problem)
                coef[part.model.points.numbers] = part.model.coef
                line[train] += coef[train] if copies is None else copies.shared(coef, train)
        return np.asarray(out / np.maximum(n_fits, 1))

    def _with_kernel(self, gamma: float | None) -> KernelFolds | KernelFoldsOfRanks | None:
        found = self.folds.with_kernel(self.kernel_with(gamma), self._space, is_lazy=self.are_values_late)
        self._space = None if found is None else found.space
        return found

    def _try(self, gamma: float | None, Cs: Sequence[float]) -> None:
        on = None if self.is_over or not len(Cs) else self._with_kernel(gamma)
        if on is None:
            return
        points, config = [Point(C, gamma) for C in Cs], get_config()

        def goes_on(k: int, fits: list[FoldFit]) -> bool:
            with config_context(**config):  # in any thread
                self.tried[points[k]] = self._scored(fits)
            if not self.skip or not self._has_fallen(points[: k + 1]):
                return True
            self.skipped.update(points[k + 1 :])
            return False

        on.fits(Cs, [self._nearest(point) for point in points], goes_on=goes_on)
        self._finish(gamma, on)

    def _has_fallen(self, points: Sequence[Point]) -> bool:
        """Whether larger values of C are pointless after those that were tried with one gamma.

        The scores of the last one are clearly below the best, and below those of the C before; or the latter are also
        clearly below the best, and no lower. And rows are fitted: while w plays no part, or is kept short by C alone,
        scores may be those of the larger class for several values, and rise later.
        """
        if len(points) < 2:
            return False
        before, last, best = (self.tried[each] for each in (*points[-2:], near_best(self.tried, 0.0)[0]))
        if before is None or last is None or best is None:
            return False
        growth = (points[-1].C / points[-2].C) ** _LEARNED
        if last.mean > before.mean + TIE or (last.norms > growth * before.norms).any() or before.margin < _FITTED:
            return False
        return last.is_clearly_below(best) and (last.is_clearly_below(before) or before.is_clearly_below(best))

    def _nearest(self, point: Point) -> list[FoldFit] | None:
        """The fits at the nearest point that was tried, with the same C or a smaller one."""
        done = [(each, found.fits) for each, found in self.tried.items() if found is not None and each.C <= point.C]
        return min(done, key=lambda each: point.distance(each[0]))[1] if done else None

    def _finish(self, gamma: float | None, on: KernelFolds | KernelFoldsOfRanks) -> bool:
        """Solve those of the points that matter with this gamma to the tolerance; whether there was time."""
        points = sorted(point for point in self._unfinished() if point.gamma == gamma)
        if points:
            before = [self.tried[point] for point in points]
            starts = [None if each is None else each.fits for each in before]
            for point, fits in zip(points, on.fits([p.C for p in points], starts, may_settle=False), strict=True):
                if fits is not None:
                    self.tried[point] = self._scored(fits)
        return not self.is_over

    def _unfinished(self) -> list[Point]:
        """Points within one standard error of the best whose folds have stopped early."""
        if not self.candidates:
            return []
        found: list[Point] = []
        for point in near_best(self.tried, 1.0):
            each = self.tried[point]
            if each is not None and each.gap > self.folds.limits.tol and any(fit.has_settled for fit in each.fits):
                found.append(point)
        return found

    def _scored(self, fits: list[FoldFit]) -> Tried:
        return Tried(fits, self.agree(self.scorers.of_folds(self.folds, fits, self.rows)))
