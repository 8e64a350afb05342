"""Cross-validation along paths of problems: every fold solves one after the other, each from the last solution.

Linear models are fitted to the training rows of a fold. With a kernel the rows that a fold holds out stay, with a weight
of zero, as in :mod:`widemargin.strategies.selection`: folds share kernel values, and the responses of these rows are
their scores. Where all kernel values are kept, and for linear models, folds and classes run beside each other.
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
    support: np.ndarray  # numbers of the rows with a coefficient; none where the solver does not know them
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
    def n_support(self) -> int:
        """Rows with a coefficient in one of the problems."""
        return len(np.unique(np.concatenate([part.support for part in self.parts])))

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

    def fits(self, problems: Sequence[Problem], on: KernelFolds | None) -> list[list[SolvedFold] | None]:
        """The fits of all folds to each problem; None where there was no time for all of them."""
        n_parts, n_folds = len(self.folds.parts), len(self.folds.folds)
        found: dict[tuple[int, int, int], SolvedPart] = {}  # of a problem of the path, a fold and a two-class problem

        def path(task: tuple[int, int]) -> None:
            fold, part = task
            for k, solved in enumerate(_Path(self, on, fold, part).fits(problems)):
                found[k, fold, part] = solved

        tasks = [(fold, part) for fold in range(n_folds) for part in range(n_parts)]
        with self.folds.ledger.phase("folds"):
            if on is not None and on.known is None:  # each uses all cores
                for task in tasks:
                    path(task)
            else:
                cores.each(path, tasks, np.inf)
        out: list[list[SolvedFold] | None] = []
        for k in range(len(problems)):
            every = [[found.get((k, fold, part)) for part in range(n_parts)] for fold in range(n_folds)]
            whole = [SolvedFold([part for part in fold if part is not None]) for fold in every]
            out.append(whole if all(len(fold.parts) == n_parts for fold in whole) else None)
        return out


class _Path:
    """The fits of one two-class problem on one fold."""

    def __init__(self, paths: FoldPaths, on: KernelFolds | None, fold: int, part: int) -> None:
        self.paths, self.on = paths, on
        folds, whole = paths.folds, paths.folds.shard if on is None else on.shard
        labelled = folds.parts.labelled(whole, part)
        inside = None if labelled.whole is None else labelled.whole[1]
        numbers = np.arange(whole.n_rows) if inside is None else inside  # of the rows of this problem
        weight, self.held_out = folds.weights(folds.folds[fold])[numbers], folds.folds[fold][1]
        self.shard, self.numbers = replace(labelled, weight=weight, whole=None), numbers
        if on is None:
            train = np.flatnonzero(weight)
            self.shard, self.numbers = self.shard.take(train), numbers[train]

    def fits(self, problems: Sequence[Problem]) -> Iterator[SolvedPart]:
        """One for each problem, until there is no time left; a fit that is cut short is no result."""
        folds, solver = self.paths.folds, self.paths.solver
        watched, warm = Watched(lambda _: folds.ask() or None), None
        for problem in problems:
            if folds.ask():
                return
            began, rng = time.perf_counter(), np.random.default_rng(0)
            finished = end_of(sweeps(solver, problem, self.shard, Solo(), folds.limits, rng, Start(warm), watched))
            result = finished.result
            if finished.told and result.certificate.relative > folds.limits.tol:
                return
            scores, norm, support = self._of_kernel(finished) if self.on is not None else self._of_linear(finished)
            yield SolvedPart(result, scores, norm, support, time.perf_counter() - began)
            solver, warm = self.paths.following(solver, result), self._warm(result.model)

    def _of_linear(self, finished: Finished) -> tuple[np.ndarray, float, np.ndarray]:
        """Scores of held-out rows, the norm of w, and the rows with a coefficient."""
        model, whole = finished.result.model, self.paths.folds.shard
        rows = Shard(whole.X[self.held_out], np.empty(0), np.empty(0))
        scores = rows.products(model.coef[:, None])[:, 0] + model.intercept
        support = self.numbers[:0] if finished.coefficients is None else self.numbers[finished.coefficients != 0]
        return scores, float(np.linalg.norm(model.coef)), support

    def _of_kernel(self, finished: Finished) -> tuple[np.ndarray, float, np.ndarray]:
        assert self.on is not None
        model, support = finished.result.model, finished.result.model.points.numbers
        if finished.scores is not None and len(finished.scores) == self.paths.folds.shard.n_rows:
            scores, own = finished.scores[self.held_out], finished.scores[support]
        else:
            scores, own = self.on.scores(model, self.held_out), self.on.scores(model, support)
        return scores, max(float(model.coef @ (own - model.intercept)), 0.0) ** 0.5, support

    def _warm(self, model: Any) -> np.ndarray | None:
        if not isinstance(model, KernelModel):
            return model.coef if model.coef.any() else None
        warm = np.zeros(self.paths.folds.shard.n_rows)
        warm[model.points.numbers] = model.coef
        return warm
