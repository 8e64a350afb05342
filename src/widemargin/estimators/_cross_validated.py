"""Estimators that choose parameters by cross-validation along paths of problems."""

from __future__ import annotations

import itertools
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import indexable

from widemargin.callbacks import first_interrupt_kept
from widemargin.comm.clusters import is_dask
from widemargin.cores import one_blas_thread
from widemargin.data.pieces import encoded
from widemargin.data.shard import Shard
from widemargin.estimators._base import MarginClassifier, fitting
from widemargin.estimators._selection import HeldOut, Scorers, Tried, around, folds_of, near_best, table
from widemargin.estimators.registry import Array
from widemargin.exceptions import InterruptedFitWarning, warn_user
from widemargin.kernels.functions import Kernel
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Problem
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Result
from widemargin.strategies.fold_paths import FoldPaths, SolvedFold
from widemargin.strategies.labels import check_classes
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import Folds, KernelFolds

GRID = [Interval(Integral, 1, None, closed="left"), "array-like"]  # a number of values, or a list of them
_WITHOUT_MODEL = {"overlap", "undecided"}  # stop reasons of a fit whose model is not determined

Axes = dict[str, list[float]]  # values of each parameter; problems of a path differ in the first


class Setting(NamedTuple):
    """A point of a grid: parameters by name."""

    values: tuple[tuple[str, float], ...]

    def parameters(self) -> dict[str, float]:
        return dict(self.values)


class CrossValidated(MarginClassifier):
    """Chooses parameters of its problem by cross-validation; a subclass has the grids and the problems."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: MarginClassifier._parameter_constraints[name]
            for name in ("tol", "max_iter", "max_time", "class_weight", "verbose")
        },
        "cv": ["cv_object"],
        "scoring": [str, callable, list, tuple, dict, None],
        "refine": ["boolean"],
        "selection": [StrOptions({"best", "one-standard-error"})],
    }
    _fitted_attributes: ClassVar[dict[str, Any]] = {
        "_chosen": dict[str, float],
        "best_params_": dict[str, float],
        "best_score_": float,
        "best_index_": int,
        "cv_results_": dict[str, Any],
        "scores_": Array("f", "AF"),
        "n_splits_": int,
    }

    cv: Any
    scoring: Any
    refine: Any
    selection: Any
    solver: Any = "auto"
    _refined: ClassVar[tuple[str, ...]]  # parameters whose values are refined
    _chosen: dict[str, float]

    @abstractmethod
    def _grids(self, rows: Rows, paths: FoldPaths) -> Axes:
        """Values of all parameters, in the order in which a path takes them."""

    @abstractmethod
    def _problem_at(self, values: dict[str, float]) -> Problem: ...

    def _problem(self) -> Problem:
        return self._problem_at(self._chosen)

    def _problem_of_rows(self) -> None:
        return None

    def _search_bytes(self) -> int:
        """Memory for kernel values."""
        return 0

    def _kernel_at(self, values: dict[str, float]) -> Kernel | None:
        return None

    def _following(self, solver: AnySolver, last: Result, shard: Shard) -> AnySolver:
        """The solver of the next problem of a path, from that of the last and what came out of it on some rows."""
        return solver

    def _has_warm_starts(self, shard: Shard) -> bool:
        """Whether to start at the last solution on some rows."""
        return True

    def _path_solver(self) -> AnySolver:
        """The solver of the first problem of a path."""
        return self._solver()

    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose parameters, and fit the model to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows, in float32 or float64. CSR matrices are used without conversion.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplicity of each row: 2 counts the row twice, 0 leaves it out.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, for splitters that keep groups together.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        if is_dask(X):
            raise ValueError(
                f"{type(self).__name__} needs all rows in one process to divide them into folds: pass arrays."
            )
        rows = self._validate(X, y, sample_weight)
        choice, ledger = self._search(rows, sample_weight is not None, groups)
        self._fit(rows, X, y, sample_weight)
        self.__dict__.update(choice)
        self.cost_ = Ledger.total([ledger, self.cost_])
        return self

    @one_blas_thread()
    def _search(self, rows: Rows, is_weighted: bool, groups: Any) -> tuple[dict[str, Any], Ledger]:
        """Fitted attributes of the search, and its cost; sets what the final fit needs."""
        X, y, weight, _ = rows
        classes = np.unique(y[weight > 0])
        check_classes(classes, type(self).__name__)
        scorers = Scorers(self, self.scoring, is_weighted=is_weighted)
        indexable(X, groups)
        folds, parts = folds_of(self.cv, X, y, weight, groups), Parts(len(classes), self.multi_class)
        scorers.check(rows, folds, classes, parts)
        until = np.inf if self.max_time is None else time.monotonic() + self.max_time
        codes = encoded(np.where(weight > 0, y, classes[0]), classes)  # rows of weight 0 may have other labels
        with first_interrupt_kept(not hasattr(self, "_parent_callback_ctx")) as interruption:
            on_folds = Folds(
                shard=Shard(X, codes, weight),
                classes=classes,
                parts=parts,
                folds=folds,
                fit_intercept=bool(getattr(self, "fit_intercept", True)),
                class_weight=self.class_weight,
                limits=Limits(self.tol, self.max_iter),
                cache_bytes=self._search_bytes(),
                ask=lambda: "interrupted" if interruption else "max_time" if time.monotonic() > until else "",
            )
            paths = FoldPaths(on_folds, self._path_solver(), self._following, self._has_warm_starts)
            search = _Search(paths, self._problem_at, self._kernel_at, scorers, rows)
            search.try_all(self._grids(rows, paths))
            if self.refine and search.candidates:
                search.refine(near_best(search.candidates, 0.0)[0].parameters(), self._refined)
            told = on_folds.ask()
        self._warn_of_search(told, search)
        best: Any = search.first
        if search.candidates:
            best = near_best(search.candidates, 0.0 if self.selection == "best" else 1.0)[0]
        self._chosen = best.parameters()
        found = search.table(self.tol)
        index, name = list(search.tried).index(best), scorers.names[0]
        return {
            "best_params_": best.parameters(),
            "best_score_": float(found[f"mean_test_{name}"][index]),
            "best_index_": index,
            "cv_results_": found,
            "scores_": np.stack([found[f"split{k}_test_{name}"] for k in range(len(folds))], axis=1),
            "n_splits_": len(folds),
        }, on_folds.ledger

    def _warn_of_search(self, told: str, search: _Search) -> None:
        name, missing = type(self).__name__, search.n_missing
        text = f"{missing} of {len(search.tried)} points were not tried on all folds"
        if told == "max_time":
            warn_user(
                f"max_time={self.max_time:g} ended the search of {name}, and {text}: raise max_time, or use smaller "
                "grids or fewer folds.",
                ConvergenceWarning,
            )
        elif told:
            warn_user(f"The search of {name} was interrupted, and {text}.", InterruptedFitWarning)


@dataclass
class _Search:
    """Points that are tried on all folds, one path after the other."""

    paths: FoldPaths
    problem_at: Callable[[dict[str, float]], Problem]
    kernel_at: Callable[[dict[str, float]], Kernel | None]
    scorers: Scorers
    rows: Rows
    tried: dict[Any, Any] = field(default_factory=dict)  # Tried, or None for a point that was not tried, by Setting
    marks: dict[Setting, str] = field(default_factory=dict)  # states of points that are not as others
    axes: Axes = field(default_factory=dict)
    _on: tuple[Kernel | None, KernelFolds | None] = (None, None)  # the last kernel

    @property
    def candidates(self) -> dict[Any, Any]:
        """Points to choose from: those whose models are determined, where there are such."""
        done = {point: each for point, each in self.tried.items() if each is not None}
        return {point: each for point, each in done.items() if point not in self.marks} or done

    @property
    def n_missing(self) -> int:
        return sum(each is None and self.marks.get(point) != "infeasible" for point, each in self.tried.items())

    @property
    def first(self) -> Setting:
        """The first point of the first path that is feasible."""
        names = list(self.axes)
        every = (self._setting(zip(names, values, strict=True)) for values in itertools.product(*self.axes.values()))
        return next(point for point in every if self.marks.get(point) != "infeasible")

    def try_all(self, axes: Axes) -> None:
        """Try all points of a grid; raises ValueError if none is feasible on all folds."""
        self.axes, refusal = axes, None
        for point in self._points(axes):
            self.tried[point] = None
            refusal = self._refusal(point) or refusal
        if len(self.marks) == len(self.tried):
            raise ValueError(f"No point of the grid is feasible on all folds: {refusal}")
        self._try(axes)

    def refine(self, best: dict[str, float], names: Sequence[str]) -> None:
        """Try the points half a step around one, on a logarithmic scale, that are feasible."""
        near = {}
        for name, values in self.axes.items():
            more = around(np.sort(values), best[name]).tolist() if name in names else []
            near[name] = sorted([best[name], *more], reverse=values[0] > values[-1])
        for point in self._points(near):
            if point not in self.tried and self._refusal(point) is None:
                self.tried[point] = None
        self._try(near)

    def table(self, tol: float) -> dict[str, Any]:
        found = table(self.tried, set(), self.scorers.names, len(self.paths.folds.folds), tol)
        found["state"] = np.array(
            [self.marks.get(point, state) for point, state in zip(self.tried, found["state"], strict=True)]
        )
        return found

    @staticmethod
    def _points(axes: Axes) -> Iterator[Setting]:
        """All of a grid, in the order of scikit-learn's ``ParameterGrid``."""
        names = sorted(axes)
        for values in itertools.product(*(sorted(axes[name]) for name in names)):
            yield Setting(tuple(zip(names, values, strict=True)))

    @staticmethod
    def _setting(pairs: Iterable[tuple[str, float]]) -> Setting:
        return Setting(tuple(sorted(pairs)))

    def _refusal(self, point: Setting) -> str | None:
        """Why a point is infeasible, or None; such a point is marked."""
        try:
            for weights in self.paths.weights():
                self.problem_at(point.parameters()).check(*weights)
        except ValueError as error:
            self.marks[point] = "infeasible"
            return str(error)
        return None

    def _try(self, axes: Axes) -> None:
        first, *others = axes
        for values in itertools.product(*(axes[name] for name in others)):
            rest = list(zip(others, values, strict=True))
            path = [self._setting([(first, value), *rest]) for value in axes[first]]
            path = [point for point in path if point in self.tried and self.tried[point] is None]
            path = [point for point in path if point not in self.marks]
            if path and self._put_kernel(dict(rest)):
                problems = [self.problem_at(point.parameters()) for point in path]
                for point, fits in zip(path, self.paths.fits(problems, self._on[1]), strict=True):
                    self._note(point, fits)

    def _put_kernel(self, values: dict[str, float]) -> bool:
        """Put the kernel of a path on the rows, if it has one; whether there was time."""
        folds, kernel = self.paths.folds, self.kernel_at(values)
        if folds.ask():
            return False
        if kernel is not None and kernel != self._on[0]:
            self._on = None, None  # whose values need not be kept any longer
            self._on = kernel, self.paths.with_kernel(kernel)
        return kernel is None or self._on[1] is not None

    def _note(self, point: Setting, fits: list[SolvedFold] | None) -> None:
        if fits is None:
            return
        folds, (X, y, weight, _) = self.paths.folds, self.rows
        scores = []
        for fit, (_, test) in zip(fits, folds.folds, strict=True):
            model = HeldOut(folds.classes, folds.parts, fit.scores)
            scores.append(self.scorers(model, X[test], y[test], weight[test]))
            for reason in fit.stop_reasons & _WITHOUT_MODEL:
                self.marks[point] = reason
        every: list[Any] = fits
        self.tried[point] = Tried(every, np.array(scores))
