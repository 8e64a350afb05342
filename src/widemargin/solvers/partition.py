"""How rows are divided into parts that are like the whole: strata around landmarks, each spread over all parts.

Landmarks are chosen one by one, each the row farthest from the span of those before it in the kernel's space, which is
Cholesky's factorisation with pivots of the kernel matrix: it makes the determinant of their kernel values large ((7) of
[1]). A stratum is what is nearest to one landmark ((8)). Every part gets its share of every stratum, and of every class
in it.

[1] Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, 2023, section 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SPANNED = 1e-10  # of the longest row: a squared distance to a span that is none


def landmarks(rows: Any, n_landmarks: int) -> np.ndarray:
    """Numbers of rows, fewer where all others lie in their span; ``rows`` is a kernel on the rows of one place."""
    left = rows.diagonal_of(rows.points(np.arange(rows.n_rows))).copy()
    least = _SPANNED * float(left.max(initial=0.0))
    factor = np.empty((n_landmarks, rows.n_rows))
    chosen: list[int] = []
    while len(chosen) < min(n_landmarks, rows.n_rows):
        pivot = int(np.argmax(left))
        if not left[pivot] > least:
            break
        done = factor[: len(chosen)]
        values = rows.rows(rows.points(np.array([pivot])))[0] - done[:, pivot] @ done
        factor[len(chosen)] = values / np.sqrt(left[pivot])
        left -= factor[len(chosen)] ** 2
        left[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.intp)


def strata(rows: Any, chosen: np.ndarray) -> np.ndarray:
    """For every row the number of the landmark nearest to it; 0 where there are none, all rows being 0."""
    if not len(chosen):
        return np.zeros(rows.n_rows, dtype=np.intp)
    points = rows.points(np.sort(chosen))
    # ||phi(x) - phi(z)||^2 but for what does not depend on z.
    height = rows.diagonal_of(points)[:, None] - 2.0 * rows.rows(points)
    return np.argmin(height, axis=0)


def spread_evenly(groups: np.ndarray, n_parts: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Ascending numbers of the rows of each part: rows of every group in random order, dealt out in turn.

    Dealing goes on from group to group where it stopped, so that parts are of one size to within a row.
    """
    order = np.argsort(groups[shuffled := rng.permutation(len(groups))], kind="stable")
    part = np.empty(len(groups), dtype=np.intp)
    part[shuffled[order]] = np.arange(len(groups)) % n_parts
    return [np.flatnonzero(part == k) for k in range(n_parts)]
