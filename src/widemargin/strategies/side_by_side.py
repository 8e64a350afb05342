"""Folds of cross-validation on a GPU: all problems of a kernel side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from widemargin.kernels.protocol import RowsOnDevice
from widemargin.solvers.lockstep_dual import LockstepDual, Solved, Task

if TYPE_CHECKING:
    from widemargin.strategies.selection import FoldFit, KernelFolds, PartFit


def solved_side_by_side(
    on: KernelFolds,
    rows: RowsOnDevice,
    Cs: Sequence[float],
    starts: Sequence[list[FoldFit] | None],
    wanted: Sequence[tuple[int, int, int]],
) -> dict[tuple[int, int, int], Solved]:
    """What is wanted, by the numbers of a two-class problem, a fold and a C, as far as there was time.

    Every problem has all rows: those of other classes, and those that its fold holds out, cannot move.
    """
    folds = on.folds
    n_parts = len(folds.parts)
    bare = replace(on.shard, kernel_rows=None)
    labels = np.zeros((n_parts, rows.n_rows))
    for part, line in enumerate(labels):
        labelled = folds.parts.labelled(bare, part)
        places = None if labelled.whole is None else labelled.whole[1]
        line[slice(None) if places is None else places] = labelled.y
    weights = np.stack([folds.weights(fold) for fold in folds.folds])
    tasks = [
        Task(
            Cs[k],
            part,
            fold,
            None if (near := starts[k]) is None else _coefficients(near[fold].parts[part], rows.n_rows),
        )
        for part, fold, k in wanted
    ]
    found = LockstepDual(rows, labels, weights, folds.fit_intercept, folds.limits).solve(tasks, folds.ask)
    return {key: each for key, each in zip(wanted, found, strict=True) if each is not None}


def _coefficients(fit: PartFit, n_rows: int) -> np.ndarray:
    out = np.zeros(n_rows)
    out[fit.model.points.numbers] = fit.model.coef
    return out
