"""Cross-validation along paths of problems: every fold solves one after the other, each from the last solution.

Linear models are fitted to the training rows of a fold. With a kernel the rows that a fold holds out stay, with a
weight of zero, as in :mod:`widemargin.strategies.selection`: folds share kernel values, and the responses of these rows
are their scores. Where all kernel values are kept, and for linear models, folds and classes run beside each other. All
of them solve a problem before one goes on to the next, so that a search without time for all has results of some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from widemargin import cores
from widemargin.codec import record
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.kernels.vectors import padded
from widemargin.pauses import Clock, TimeIsUp
from widemargin.problems.protocol import Problem
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Finished, Start, Watched, end_of, sweeps
from widemargin.strategies.selection import Folds, KernelFolds

_FEW_ENTRIES = 1 << 16  # of rows whose fits are so short that threads would wait for each other


def _check(part: SolvedPart) -> None:
    """Sizes are checked against the folds when the fit is used."""
    are_floats = all(each.dtype == np.float64 and each.ndim == 1 for each in (part.scores, part.coef))
    are_numbers = part.support is None or (part.support.dtype.kind == "i" and part.support.ndim == 1)
    if not are_floats or not are_numbers or not np.isfinite(part.coef).all():
        raise ModelFileError("fits of a search have arrays of wrong types or shapes")


@record(check=_check)
class SolvedPart(NamedTuple):
    """One two-class problem on one fold."""

    scores: np.ndarray  # of the held-out rows
    norm: float  # of w
    gap: float  # relative
    support: np.ndarray | None  # numbers of the rows with a coefficient; None where the solver does not know them
    coef: np.ndarray  # of these rows, or of features in a linear model
    seconds: float
    stop_reason: str
    n_iter: int


@record()
class KeptPoint(NamedTuple):
    """All two-class problems on all folds, one fold after the other."""

    name: str  # of the problem and its kernel
    parts: list[SolvedPart]

    def check(self, folds: Folds, *, has_kernel: bool) -> None:
        """Raise ValueError for fits to other rows or folds."""
        n_parts, n_rows = len(folds.parts), folds.shard.n_rows
        if len(self.parts) != n_parts * len(folds.folds):
            raise ValueError("it has fits of problems or folds that there are not.")
        for k, (scores, _, _, support, coef, *_) in enumerate(self.parts):
            if len(scores) != len(folds.folds[k // n_parts][1]):
                raise ValueError("it has scores of other rows than its folds hold out.")
            if support is not None and len(support) and not 0 <= support.min() <= support.max() < n_rows:
                raise ValueError("it has support vectors that are no rows.")
            if len(coef) != (folds.shard.n_features if not has_kernel else -1 if support is None else len(support)):
                raise ValueError("it has coefficients of other rows or features.")


class SolvedFold(NamedTuple):
    """All two-class problems on one fold."""

    parts: list[SolvedPart]

    @property
    def scores(self) -> np.ndarray:
        """Of the held-out rows, a column for each problem."""
        return np.stack([part.scores for part in self.parts], axis=1)

    @property
    def norms(self) -> np.ndarray:
        """Of w, in each problem."""
        return np.array([part.norm for part in self.parts])

    @property
    def norm(self) -> float:
        """The largest of w."""
        return float(self.norms.max())

    @property
    def gap(self) -> float:
        """The largest, relative."""
        return max(part.gap for part in self.parts)

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
        return {part.stop_reason for part in self.parts}


def same_solver(solver: AnySolver, n_iter: int, n_rows: int) -> AnySolver:
    return solver


@dataclass(frozen=True)
class FoldPaths:
    """Folds that solve the same problems.

    ``following`` gives the solver of the next problem, from that of the last and its sweeps on so many rows;
    ``has_warm_starts`` says whether the last solution is a good start on some rows. ``known`` are fits of an earlier
    search, and ``keep`` is told of new ones.
    """

    folds: Folds
    solver: AnySolver
    following: Callable[[AnySolver, int, int], AnySolver] = same_solver
    has_warm_starts: Callable[[Shard], bool] = lambda shard: True
    known: Mapping[str, KeptPoint] = field(default_factory=dict)
    keep: Callable[[KeptPoint], None] = lambda kept: None

    def weights(self) -> Iterator[tuple[float, float]]:
        """Of the positive and the negative rows of every problem: on the training rows of each fold, and on all."""
        every, codes = np.arange(self.folds.shard.n_rows), self.folds.shard.y.astype(np.intp)
        for fold in [*self.folds.folds, (every, every[:0])]:
            totals = np.bincount(codes, self.folds.weights(fold), len(self.folds.classes))
            yield from self.folds.parts.weights(totals)

    def fits(self, problems: Sequence[Problem], on: KernelFolds | None) -> Iterator[list[SolvedFold] | None]:
        """The fits of all folds to each problem; None where there was no time for all of them."""
        numbers, paths = range(len(self.folds.parts)), []
        for fold in self.folds.folds:
            weight = self.folds.weights(fold)
            paths += [_Path(self, on, weight, fold[1], part) for part in numbers]
        for problem in problems:
            name = f"{problem}" if on is None else f"{problem} gamma={on.shard.kernel.kernel.gamma}"
            kept = self.known.get(name)
            if kept is not None:
                kept.check(self.folds, has_kernel=on is not None)
                for path, solved in zip(paths, kept.parts, strict=True):
                    path.take(solved)
            elif not self.folds.is_over():
                for path in paths:
                    path.solved = None
                with self.folds.ledger.phase("folds"):
                    found = self.folds.crew.shared(paths, partial(self._advance, problem, on), lambda path: path.solved)
                if all(each is not None for each in found):
                    kept = KeptPoint(name, found)
                    self.keep(kept)
            yield None if kept is None else self._by_fold(kept.parts)

    def _by_fold(self, parts: list[SolvedPart]) -> list[SolvedFold]:
        n = len(self.folds.parts)
        return [SolvedFold(parts[k : k + n]) for k in range(0, len(parts), n)]

    def _advance(self, problem: Problem, on: KernelFolds | None, paths: Sequence[_Path]) -> None:
        """Solve the next problem of some paths: one after the other where each uses all cores, or is very short."""
        is_short = on is None and self.folds.shard.n_entries * 2 < _FEW_ENTRIES * self.folds.parts.n_classes
        if on is not None and not self._has_values(on):
            return
        if is_short or (on is not None and on.shard.kernel.values_at_hand() is None):
            for path in paths:
                path.advance(problem)
        else:
            cores.each(lambda path: path.advance(problem), paths, np.inf)

    def _has_values(self, on: KernelFolds) -> bool:
        """Compute all kernel values in float64, where they fit; False if there was no time for that."""
        rows = on.shard.kernel
        if rows.values_at_hand() is None and 8 * rows.n_rows * padded(rows.n_rows) <= self.folds.cache_bytes:
            try:
                with self.folds.ledger.phase("kernel"), Clock(Solo(), self.folds.ask).running():
                    rows.values(rows.n_rows)
            except TimeIsUp:
                return False
        return True


@dataclass
class _Path:
    """The fits of one two-class problem on one fold."""

    within: FoldPaths
    on: KernelFolds | None
    weight: np.ndarray  # of all rows, in this fold
    held_out: np.ndarray  # rows
    part: int
    solver: AnySolver | None = None  # of the next problem, unless it is the first
    warm: np.ndarray | None = None
    solved: SolvedPart | None = None  # the last problem; None if there was no time

    def advance(self, problem: Problem) -> None:
        """Solve the next problem; a fit that is cut short is no result."""
        folds = self.within.folds
        if folds.ask():
            return
        began, (shard, numbers), solver = time.perf_counter(), self._rows(), self.solver or self.within.solver
        start = Start(self.warm if self.within.has_warm_starts(shard) else None)
        watched, rng = Watched(lambda _: folds.ask() or None), np.random.default_rng(0)
        finished = end_of(sweeps(solver, problem, shard, Solo(), folds.limits, rng, start, watched))
        result, model = finished.result, finished.result.model
        if finished.told and result.certificate.relative > folds.limits.tol:
            return
        if isinstance(model, KernelModel):
            scores, norm = self._scored(finished, numbers)
            support: np.ndarray | None = model.points.numbers
        else:
            norm, scores = float(np.linalg.norm(model.coef)), folds.shard.scores(model.coef)[self.held_out]
            scores += model.intercept
            support = None if finished.coefficients is None else numbers[finished.coefficients != 0]
        gap, seconds = result.certificate.relative, time.perf_counter() - began
        self.take(SolvedPart(scores, norm, gap, support, model.coef, seconds, result.stop_reason, result.n_iter))

    def take(self, solved: SolvedPart) -> None:
        """Go on from here to the next problem."""
        self.solved, n_rows = solved, self.within.folds.shard.n_rows
        self.solver = self.within.following(self.solver or self.within.solver, solved.n_iter, n_rows)
        self.warm = solved.coef if solved.coef.any() else None
        if self.on is not None:
            self.warm = np.zeros(n_rows)
            self.warm[solved.support] = solved.coef

    def _rows(self) -> tuple[Shard, np.ndarray]:
        """The rows of the problem, and their numbers; copies of linear ones are not kept for the next problem."""
        parts, whole = self.within.folds.parts, self.within.folds.shard
        if self.on is not None:
            labelled = parts.labelled(self.on.shard, self.part)
            inside = None if labelled.whole is None else labelled.whole[1]
            numbers = np.arange(whole.n_rows) if inside is None else inside
            return replace(labelled, weight=self.weight[numbers], whole=None), numbers
        positive, negative = parts.pairs[self.part]
        are_own = True if negative is None else (whole.y == positive) | (whole.y == negative)
        train = np.flatnonzero((self.weight > 0) & are_own)
        return replace(parts.labelled(replace(whole, weight=self.weight).take(train), self.part), whole=None), train

    def _scored(self, finished: Finished, numbers: np.ndarray) -> tuple[np.ndarray, float]:
        """The scores of held-out rows, and the norm of w."""
        assert self.on is not None
        model, support, held_out = finished.result.model, finished.result.model.points.numbers, self.held_out
        if finished.scores is not None and len(numbers) == self.on.shard.n_rows:
            scores, own = finished.scores[held_out], finished.scores[support]
        else:
            scores, own = self.on.scores(model, held_out), self.on.scores(model, support)
        return scores, max(float(model.coef @ (own - model.intercept)), 0.0) ** 0.5
