"""Estimators that choose parameters by cross-validation along paths of problems."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.estimators._folds import Scorers, encoded_rows
from widemargin.estimators._grids import around
from widemargin.estimators._search import Searched, SearchRun, Teller, agreed_by, fresh_state, known_fits, name_of
from widemargin.estimators._searching import SearchClassifier
from widemargin.estimators._selection import Tried, near_best, table
from widemargin.kernels.functions import Kernel
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Problem
from widemargin.sklearn_private import Interval
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits
from widemargin.strategies.fold_paths import FoldPaths, KeptPoint, SolvedFold
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.ranks import digest_of_values
from widemargin.strategies.search_crew import SharedCrew
from widemargin.strategies.selection import Folds, KernelFolds

GRID = [Interval(Integral, 1, None, closed="left"), "array-like"]  # a number of values, or a list of them
# Parameters that a fit does not depend on; folds are compared themselves.
_WITHOUT_EFFECT = {"cv", "refine", "selection", "max_time", "cache_size", "cluster", "checkpoint", "verbose"}
_WITHOUT_MODEL = {"overlap", "undecided"}  # stop reasons of a fit whose model is not determined

Axes = dict[str, list[float]]  # values of each parameter; problems of a path differ in the first


class Setting(NamedTuple):
    """A point of a grid: parameters by name."""

    values: tuple[tuple[str, float], ...]

    def parameters(self) -> dict[str, float]:
        return dict(self.values)


class CrossValidated(SearchClassifier):
    """Chooses parameters of its problem by cross-validation; a subclass has the grids and the problems."""

    solver: Any = "auto"
    _refined: ClassVar[tuple[str, ...]]  # parameters whose values are refined

    @abstractmethod
    def _grids(self, rows: Rows, paths: FoldPaths) -> Axes:
        """Values of all parameters, in the order in which a path takes them."""

    @abstractmethod
    def _problem_at(self, values: dict[str, float]) -> Problem: ...

    def _problem(self) -> Problem:
        return self._problem_at(self._chosen)

    def _search_bytes(self, comm: Communicator) -> int:
        """Memory for kernel values on each rank."""
        return 0

    def _kernel_at(self, values: dict[str, float]) -> Kernel | None:
        return None

    def _following(self, solver: AnySolver, n_iter: int, n_rows: int) -> AnySolver:
        """The solver of the next problem of a path, from that of the last and its sweeps on so many rows."""
        return solver

    def _has_warm_starts(self, shard: Shard) -> bool:
        """Whether to start at the last solution on some rows."""
        return True

    def _path_solver(self) -> AnySolver:
        """The solver of the first problem of a path."""
        return self._solver()

    def _task(self, shard: Shard, classes: np.ndarray) -> str:
        """The search, by all that its fits depend on beside rows and folds."""
        given = {name: np.asarray(value).tolist() for name, value in self.get_params(deep=False).items()}
        words = name_of({name: value for name, value in given.items() if name not in _WITHOUT_EFFECT})
        kernel = self._kernel_at({"gamma": 1.0})
        digest = "" if kernel is None else digest_of_values(kernel, shard)
        return f"{type(self).__name__} {words}{digest} {classes.tolist()!r}"

    def _search(self, rows: Rows, is_weighted: bool, groups: Any, run: SearchRun) -> tuple[Searched, Ledger]:
        if run.own is not None:
            raise ValueError(
                f"{type(self).__name__} needs room for all rows on each rank, and there is none: use fewer ranks on a "
                "machine, or machines with more memory."
            )
        classes, scorers, folds = self._prepared(rows, is_weighted, groups, run.comm)
        shard = encoded_rows(rows, classes)
        fresh = None if run.resume is None else fresh_state(self._task(shard, classes), shard, folds)
        known, _ = known_fits(run.resume, fresh, run.comm, KeptPoint)
        known |= {each.name: each for each in run.fits}
        teller = Teller(run.watch, fresh)
        crew = SharedCrew(run.comm, self._look(run), teller.tell, {}, keeps=run.keeps)
        on_folds = Folds(
            shard=shard,
            classes=classes,
            parts=Parts(len(classes), self.multi_class),
            folds=folds,
            fit_intercept=bool(getattr(self, "fit_intercept", True)),
            class_weight=self.class_weight,
            limits=Limits(self.tol, self.max_iter),
            cache_bytes=self._search_bytes(run.comm),
            ask=crew.ask,
            crew=crew,
        )
        paths = FoldPaths(on_folds, self._path_solver(), self._following, self._has_warm_starts, known, crew.keep)
        search = teller.search = _Search(paths, self._problem_at, self._kernel_at, scorers, rows, agreed_by(run.comm))
        search.try_all(self._grids(rows, paths))
        if self.refine and search.candidates:
            search.refine(near_best(search.candidates, 0.0)[0].parameters(), self._refined)
        teller.tell([], None)
        return self._found(search, crew.reason, "tasks" if run.comm.size > 1 else "none"), on_folds.ledger


@dataclass
class _Search:
    """Points that are tried on all folds, one path after the other."""

    paths: FoldPaths
    problem_at: Callable[[dict[str, float]], Problem]
    kernel_at: Callable[[dict[str, float]], Kernel | None]
    scorers: Scorers
    rows: Rows
    agree: Callable[[np.ndarray], np.ndarray]  # of all ranks
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
    def folds(self) -> Folds:
        return self.paths.folds

    @property
    def n_done(self) -> int:
        return len(self.tried) - self.n_missing

    @property
    def n_missing(self) -> int:
        return sum(each is None and self.marks.get(point) != "infeasible" for point, each in self.tried.items())

    @property
    def first(self) -> Setting:
        """The middle one of the feasible points."""
        names = list(self.axes)
        every = (self._setting(zip(names, values, strict=True)) for values in itertools.product(*self.axes.values()))
        feasible = [point for point in every if self.marks.get(point) != "infeasible"]
        return feasible[len(feasible) // 2]

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
        if folds.is_over():
            return False
        if kernel is not None and kernel != self._on[0]:
            self._on = None, None  # whose values need not be kept any longer
            self._on = kernel, folds.with_kernel(kernel, is_lazy=True)
        return True

    def _note(self, point: Setting, fits: list[SolvedFold] | None) -> None:
        if fits is None:
            return
        for fit in fits:
            for reason in fit.stop_reasons & _WITHOUT_MODEL:
                self.marks[point] = reason
        every: list[Any] = fits
        self.tried[point] = Tried(every, self.agree(self.scorers.of_folds(self.folds, fits, self.rows)))
