"""Cross-validation of the linear C-SVM over values of C, by the solvers of linear models.

As in :mod:`widemargin.strategies.selection`, rows that a fold holds out stay in its problems with a weight of zero, so
that folds share rows. Newton steps start at the solution for the last C; other solvers are faster from the beginning. A
fit is kept by the coefficients of its rows, whose sum of rows is that start. Every fit goes on to the tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.auto import FewRows, small_linear_csvm
from widemargin.solvers.multipliers import Multipliers
from widemargin.solvers.run import Start, Watched, end_of, sweeps
from widemargin.strategies.selection import FoldPath, Folds, KernelFolds, PartFit

_WIDE = 2  # kernel values by the numbers in the rows


def are_wide(shard: Shard, cache_bytes: int) -> bool:
    """Whether rows are so long that steps on the kernel values of all of them are cheaper than steps on rows."""
    n_values = shard.n_rows**2
    return n_values <= _WIDE * shard.n_entries and 8 * n_values <= cache_bytes


class LinearFolds(Folds):
    """Rows in folds, whose linear models are compared."""

    def with_kernel(self, kernel: Kernel, space: Any = None, *, is_lazy: bool = False) -> KernelFolds:
        """The linear kernel, of which no values are computed."""
        return _LinearFits(self, replace(self.shard, kernel_rows=kernel_rows(kernel, self.shard.X, 0, self.ledger)))


class _LinearFits(KernelFolds):
    def has_values(self) -> bool:
        return True

    @property
    def are_fits_short(self) -> bool:
        return True

    def path(self, *given: Any) -> FoldPath:
        return _LinearPath(self, *given)


@dataclass(frozen=True)
class _LinearPath(FoldPath):
    def fits(
        self, Cs: Sequence[float], starts: Sequence[PartFit | None], last: np.ndarray | None
    ) -> Iterator[tuple[PartFit, np.ndarray]]:
        folds, numbers = self.within.folds, self.labelled.kernel.numbers
        of_all = self.labelled.whole if isinstance(self.places, slice) else (self.labelled, None)  # what folds share
        shard = replace(self.labelled, weight=folds.weights(self.fold)[self.places], whole=of_all)
        solver = small_linear_csvm(folds.cache_bytes, folds.limits.tol)
        starts_cold, watched = _is_best_cold(shard, folds.cache_bytes), Watched(lambda _: self.ask() or None)
        for C, start in zip(Cs, starts, strict=True):
            if self.ask():
                return
            began = time.perf_counter()
            problem, rng = HingeL2(C, folds.fit_intercept), np.random.default_rng(0)
            first = last if start is None else self._warm(start.model)
            warm = Start(None if starts_cold or first is None else shard.combine(first))
            finished = end_of(sweeps(solver, problem, shard, Solo(), folds.limits, rng, warm, watched))
            result, last = finished.result, finished.coefficients
            assert last is not None
            gap = result.certificate.relative
            if finished.told and gap > folds.limits.tol:
                return
            (w, intercept, _), some = result.model, np.flatnonzero(last)
            model = self.within.model(numbers[some], last[some], intercept)
            scores = self.within.shard.scores(w)[self.fold[1]] + intercept
            norm, seconds = float(np.linalg.norm(w)), time.perf_counter() - began
            yield PartFit(model, scores, norm, gap, seconds, result.stop_reason, result), last


def _is_best_cold(shard: Shard, cache_bytes: int) -> bool:
    """Whether others than Newton steps begin on these rows, for which a start is of no use."""
    are_few = FewRows(cache_bytes)(shard, Solo(), None) == 0
    return are_few or shard.n_features > Multipliers.direct_features
