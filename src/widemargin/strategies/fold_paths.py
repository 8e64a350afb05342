"""Cross-validation along paths of problems: every fold solves one after the other, each from the last solution.

Linear models are fitted to the training rows of a fold. With a kernel the rows that a fold holds out stay, with a
weight of zero, as in :mod:`widemargin.strategies.selection`: folds share kernel values, and the responses of these rows
are their scores. Where all kernel values are kept, and for linear models, folds and classes run beside each other. All
of them solve a problem before one goes on to the next, so that a search without time for all has results of some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from widemargin import cores
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.problems.protocol import Problem
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Finished, Result, Start, Watched, end_of, sweeps
from widemargin.strategies.selection import Folds, KernelFolds


class SolvedPart(NamedTuple):
    """One two-class problem on one fold."""

    result: Result
    scores: np.ndarray  # of the held-out rows
    norm: float  # of w
    support: np.ndarray | None  # numbers of the rows with a coefficient; None where the solver does not know them
    seconds: float


class SolvedFold(NamedTuple):
    """All two-class problems on one fold."""

    parts: list[SolvedPart]

    @property
    def scores(self) -> np.ndarray:
        """Of the held-out rows, a column for each problem."""
        return np.stack([part.scores for part in self.parts], axis=1)

    @property
    def norm(self) -> float:
        """The largest of w."""
        return max(part.norm for part in self.parts)

    @property
    def gap(self) -> float:
        """The largest, relative."""
        return max(part.result.certificate.relative for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def n_support(self) -> float:
        """Rows with a coefficient in one of the problems; nan where that is not known."""
        known = [part.support for part in self.parts if part.support is not None]
        return float(len(np.unique(np.concatenate(known)))) if len(known) == len(self.parts) else np.nan

    @property
    def stop_reasons(self) -> set[str]:
        return {part.result.stop_reason for part in self.parts}


def same_solver(solver: AnySolver, last: Result) -> AnySolver:
    return solver


@dataclass(frozen=True)
class FoldPaths:
    """Folds that solve the same problems; ``following`` gives the solver of the next one, from that of the last."""

    folds: Folds
    solver: AnySolver
    following: Callable[[AnySolver, Result], AnySolver] = same_solver

    def weights(self) -> Iterator[tuple[float, float]]:
        """Of the positive and the negative rows of every problem: on the training rows of each fold, and on all."""
        every, codes = np.arange(self.folds.shard.n_rows), self.folds.shard.y.astype(np.intp)
        for fold in [*self.folds.folds, (every, every[:0])]:
            totals = np.bincount(codes, self.folds.weights(fold), len(self.folds.classes))
            yield from self.folds.parts.weights(totals)

    def fits(self, problems: Sequence[Problem], on: KernelFolds | None) -> Iterator[list[SolvedFold] | None]:
        """The fits of all folds to each problem; None where there was no time for all of them."""
        every, numbers = range(len(self.folds.folds)), range(len(self.folds.parts))
        paths = [_Path(self, on, fold, part) for fold in every for part in numbers]
        for problem in problems:
            found: dict[tuple[int, int], SolvedPart] = {}  # of a fold and a two-class problem

            def solve(path: _Path, problem: Problem = problem, found: dict[Any, Any] = found) -> None:
                solved = path.fit(problem)
                if solved is not None:
                    found[path.fold, path.part] = solved

            with self.folds.ledger.phase("folds"):
                if on is not None and on.known is None:  # each uses all cores
                    for path in paths:
                        solve(path)
                else:
                    cores.each(solve, paths, np.inf)
            is_whole = len(found) == len(paths)
            yield [SolvedFold([found[fold, part] for part in numbers]) for fold in every] if is_whole else None


@dataclass
class _Path:
    """The fits of one two-class problem on one fold."""

    within: FoldPaths
    on: KernelFolds | None
    fold: int
    part: int
    solver: AnySolver | None = None  # of the next problem, unless it is the first
    warm: np.ndarray | None = None

    def fit(self, problem: Problem) -> SolvedPart | None:
        """None if there was no time: a fit that is cut short is no result."""
        folds = self.within.folds
        if folds.ask():
            return None
        began, (shard, numbers), solver = time.perf_counter(), self._rows(), self.solver or self.within.solver
        start, watched, rng = Start(self.warm), Watched(lambda _: folds.ask() or None), np.random.default_rng(0)
        finished = end_of(sweeps(solver, problem, shard, Solo(), folds.limits, rng, start, watched))
        result = finished.result
        if finished.told and result.certificate.relative > folds.limits.tol:
            return None
        self.solver, self.warm = self.within.following(solver, result), self._warm(result.model)
        of_kind = self._of_linear if self.on is None else self._of_kernel
        return SolvedPart(result, *of_kind(finished, numbers), time.perf_counter() - began)

    def _rows(self) -> tuple[Shard, np.ndarray]:
        """The rows of the problem, and their numbers; copies of linear ones are not kept for the next problem."""
        folds, whole = self.within.folds, self.within.folds.shard if self.on is None else self.on.shard
        labelled = folds.parts.labelled(whole, self.part)
        inside = None if labelled.whole is None else labelled.whole[1]
        numbers = np.arange(whole.n_rows) if inside is None else inside
        weight = folds.weights(folds.folds[self.fold])[numbers]
        shard = replace(labelled, weight=weight, whole=None)
        if self.on is not None:
            return shard, numbers
        train = np.flatnonzero(weight)
        return shard.take(train), numbers[train]

    @property
    def held_out(self) -> np.ndarray:
        return self.within.folds.folds[self.fold][1]

    def _of_linear(self, finished: Finished, numbers: np.ndarray) -> tuple[np.ndarray, float, np.ndarray | None]:
        """Scores of held-out rows, the norm of w, and the rows with a coefficient."""
        model, whole = finished.result.model, self.within.folds.shard
        rows = Shard(whole.X[self.held_out], np.empty(0), np.empty(0))
        scores = rows.products(model.coef[:, None])[:, 0] + model.intercept
        support = None if finished.coefficients is None else numbers[finished.coefficients != 0]
        return scores, float(np.linalg.norm(model.coef)), support

    def _of_kernel(self, finished: Finished, numbers: np.ndarray) -> tuple[np.ndarray, float, np.ndarray | None]:
        assert self.on is not None
        model, support = finished.result.model, finished.result.model.points.numbers
        if finished.scores is not None and len(numbers) == self.within.folds.shard.n_rows:
            scores, own = finished.scores[self.held_out], finished.scores[support]
        else:
            scores, own = self.on.scores(model, self.held_out), self.on.scores(model, support)
        return scores, max(float(model.coef @ (own - model.intercept)), 0.0) ** 0.5, support

    def _warm(self, model: Any) -> np.ndarray | None:
        if not isinstance(model, KernelModel):
            return np.asarray(model.coef) if model.coef.any() else None
        warm = np.zeros(self.within.folds.shard.n_rows)
        warm[model.points.numbers] = model.coef
        return warm
