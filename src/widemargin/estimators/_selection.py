"""What a search over C and gamma by cross-validation needs beside fits: grids, folds, scorers, tables, the choice."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import rankdata
from scipy.stats import t as student_t
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import check_scoring
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.model_selection import check_cv

from widemargin.codec import conforms
from widemargin.data.pieces import encoded
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import Fold, FoldFit, Folds, KernelFolds
from widemargin.strategies.selection_by_rows import FoldsOfRanks, KernelFoldsOfRanks

_MAX_SAMPLE = 1000  # rows whose distances set the scale of gamma
_DECADES_OF_GAMMA = 2.0  # that a grid of gammas spans, about 1 / median squared distance
_LEAST_C, _LARGEST_C = 1e-2, 1e3  # of a grid, for rows of length 1
_SHARE_OF_MEMORY = 0.5  # of what is free, for kernel values
_USUAL_MEMORY = 8 << 30  # where nobody can say what is free
_ROUNDING = 1e-12  # of a distance, relative to the largest; squared ones are differences
_DIGITS_OF_MEANS = 12  # of mean scores: less is a tie
_TIE = 10.0**-_DIGITS_OF_MEANS
_LARGEST_STEP = math.log(10)  # between values of a grid, as far as refinement goes beyond its ends
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


# -- grids -------------------------------------------------------------------------------------------------------------


def grid_of_gammas(gammas: Any, kernel: str, X: Any, weight: np.ndarray) -> np.ndarray:
    """Ascending values of gamma: those that are given, or so many around the scale of the rows.

    That is one over the median squared distance of two rows, over the median 1-norm distance for the laplacian kernel,
    and over the median squared length for kernels of inner products.
    """
    if not isinstance(gammas, int | np.integer):
        return checked_grid("gammas", gammas)
    present = np.flatnonzero(weight)
    few = present[np.linspace(0, len(present) - 1, min(len(present), _MAX_SAMPLE)).astype(np.intp)]
    rows, masses = X[few], weight[few]
    if kernel in ("rbf", "laplacian"):
        above = np.triu_indices(len(few), 1)
        sizes = (euclidean_distances(rows, squared=True) if kernel == "rbf" else manhattan_distances(rows))[above]
        masses = (masses[:, None] * masses)[above]
    else:
        sizes = np.asarray(rows.multiply(rows).sum(axis=1) if hasattr(rows, "multiply") else (rows**2).sum(axis=1))
    size = _weighted_median(sizes.ravel().astype(np.float64), masses)
    half = _DECADES_OF_GAMMA / 2 if gammas > 1 else 0.0
    return np.logspace(-half, half, int(gammas)) / (size or 1.0)


def _weighted_median(values: np.ndarray, masses: np.ndarray) -> float:
    """The median of the positive values; 0 if there is none. Copies of a row are apart by rounding alone."""
    is_positive = values > _ROUNDING * values.max(initial=0.0)
    values, masses = values[is_positive], masses[is_positive]
    if not len(values):
        return 0.0
    order = np.argsort(values)
    sums = np.cumsum(masses[order])
    return float(values[order[np.searchsorted(sums, sums[-1] / 2)]])


def grid_of_Cs(Cs: Any, squares: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Ascending values of C: those that are given, or so many for rows with these values of k(x, x)."""
    if not isinstance(Cs, int | np.integer):
        values = checked_grid("Cs", Cs)
        for end in values[[0, -1]].tolist():
            HingeL2(end).check(1.0, 1.0)
        return values
    if not np.isfinite(squares).all():
        raise ValueError("The kernel of a row with itself is not finite: check the kernel, or scale the features.")
    mean = float(np.average(np.abs(squares), weights=weight))
    return (np.geomspace(_LEAST_C, _LARGEST_C, int(Cs)) if Cs > 1 else np.ones(1)) / (mean or 1.0)


def checked_grid(name: str, given: Any) -> np.ndarray:
    """The values of a list, ascending and each once; raises ValueError unless all are positive."""
    try:
        values = np.unique(np.asarray(given, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        values = np.empty(0)
    if not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name}={given!r} must be a number of values, or a list of positive, finite numbers.")
    return values


def around(values: np.ndarray, best: float) -> np.ndarray:
    """Values half a step to either side of the best one of a grid, on a logarithmic scale; none for one value.

    Beyond the ends of the grid a step is that of its last two values, and at most a decade.
    """
    if len(values) == 1:
        return np.empty(0)
    at = int(np.argmin(np.abs(values - best)))
    steps = np.diff(np.log(values))
    steps = np.concatenate([np.minimum(steps[:1], _LARGEST_STEP), steps, np.minimum(steps[-1:], _LARGEST_STEP)])
    return np.asarray(best * np.exp([-steps[at] / 2, steps[at + 1] / 2]))


def free_bytes() -> int:
    """A share of the memory that is free on this machine, or that the group of this process may still use."""
    free = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        free.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        free.append(_USUAL_MEMORY)
    try:
        group = Path("/sys/fs/cgroup")
        most, used = ((group / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        free.append(max(int(most) - int(used), 0))
    except (OSError, ValueError):  # no group, or none with a limit
        pass
    return int(_SHARE_OF_MEMORY * min(free))


# -- folds -------------------------------------------------------------------------------------------------------------


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


# -- scores ------------------------------------------------------------------------------------------------------------


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
    least = means[best] - _TIE
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
        n_rows, n_fits = self.folds.shard.n_rows, np.zeros(self.folds.shard.n_rows)
        out = np.zeros((len(self.folds.parts), n_rows))
        for fit, (train, _) in zip(each.fits, self.folds.folds, strict=True):
            n_fits[train] += 1
            for line, part in zip(out, fit.parts, strict=True):
                line[part.model.points.numbers] += part.model.coef
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
        if last.mean > before.mean + _TIE or (last.norms > growth * before.norms).any() or before.margin < _FITTED:
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
