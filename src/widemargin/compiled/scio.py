"""Coordinate descent for rows of a sparse approximate inverse, one row after the other."""

from __future__ import annotations

import numpy as np

from widemargin.compiled._jit import compiled
from widemargin.compiled.dense import FAST


@compiled(fastmath=FAST)
def descend_row(gram, c, tolerance, max_passes, t, gradient):
    """Minimise ``t'Gt/2 - l't + c ||t||_1`` by coordinates, in place, with ``gradient = G t - l`` kept beside.

    Returns the number of passes and the largest violation of the last one. Passes over entries that are not zero take
    turns with passes over all: the former until they rest, one of the latter to see whether all do.
    """
    k = t.shape[0]
    violation, is_full = 0.0, True
    for n_passes in range(1, max_passes + 1):
        violation = 0.0
        for a in range(k):
            curvature = gram[a, a]
            old = t[a]
            if curvature <= 0.0 or (old == 0.0 and not is_full):
                continue
            free = old * curvature - gradient[a]
            new = (free - c) / curvature if free > c else (free + c) / curvature if free < -c else 0.0
            step = new - old
            if step != 0.0:
                t[a] = new
                for b in range(k):
                    gradient[b] += step * gram[a, b]
                moved = abs(step) * curvature
                if moved > violation:
                    violation = moved
        if violation <= tolerance:
            if is_full:
                return n_passes, violation
            is_full = True
        else:
            is_full = False
    return max_passes, violation


@compiled(fastmath=FAST)
def scio_block(H, rows, c, tolerance, max_passes, T, diagonal, violation):
    """For each j of ``rows`` minimise ``t'Ht/2 - t_j + c ||t||_1``; row r of ``T`` is the start and receives t.

    ``diagonal`` receives ``(H t)_j`` and ``violation`` the largest entry of ``|H t - e_j|``. The gradient over all p
    entries is brought up to date once per round, which reads one row of H for each entry that changed; between rounds
    the descent sees nothing but the entries that were not zero or violated the conditions. Entries that violate them
    join ten at least, and not more than double the set: far from the end most of them would soon be zero again.
    """
    p = H.shape[0]
    gradient = np.empty(p)
    place = np.full(p, -1, dtype=np.int64)  # where an entry stands in the working set
    working = np.empty(p, dtype=np.int64)
    beyond = np.empty(p, dtype=np.int64)
    for r in range(rows.shape[0]):
        j = rows[r]
        t = T[r]
        if H[j, j] <= 0.0:
            t[:] = 0.0
            diagonal[r], violation[r] = 0.0, 1.0
            continue
        size = 0
        gradient[:] = 0.0
        gradient[j] = -1.0
        for k in range(p):
            if t[k] != 0.0:
                working[size] = k
                size += 1
        is_warm = size > 0  # such a row may satisfy the constraint and still not be the solution
        if not is_warm:
            t[j] = (1.0 - c) / H[j, j]
            working[0] = j
            size = 1
        for a in range(size):
            step = t[working[a]]
            row = H[working[a]]
            for k in range(p):
                gradient[k] += step * row[k]
        left = max_passes
        while True:
            n_beyond = 0
            for k in range(p):
                if abs(gradient[k]) > c * (1.0 + tolerance):
                    beyond[n_beyond] = k
                    n_beyond += 1
            if (n_beyond == 0 and not is_warm) or left <= 0:
                break
            is_warm = False
            for a in range(size):
                place[working[a]] = a
            room = max(10, size)
            level = c * (1.0 + tolerance)
            if n_beyond > room:
                sizes = np.empty(n_beyond)
                for a in range(n_beyond):
                    sizes[a] = abs(gradient[beyond[a]])
                level = np.partition(sizes, n_beyond - room)[n_beyond - room]
            for a in range(n_beyond):
                k = beyond[a]
                if place[k] < 0 and abs(gradient[k]) >= level:
                    working[size] = k
                    size += 1
            gram = np.empty((size, size))
            here, before, slope = np.empty(size), np.empty(size), np.empty(size)
            for a in range(size):
                place[working[a]] = -1
                row = H[working[a]]
                for b in range(size):
                    gram[a, b] = row[working[b]]
                here[a] = before[a] = t[working[a]]
                slope[a] = gradient[working[a]]
            n_passes, _ = descend_row(gram, c, 0.5 * tolerance * c, left, here, slope)
            left -= n_passes
            kept = 0
            for a in range(size):
                k = working[a]
                step = here[a] - before[a]
                if step != 0.0:
                    t[k] = here[a]
                    row = H[k]
                    for b in range(p):
                        gradient[b] += step * row[b]
                if here[a] != 0.0:
                    working[kept] = k
                    kept += 1
            size = kept
        worst = 0.0
        for k in range(p):
            if abs(gradient[k]) > worst:
                worst = abs(gradient[k])
        diagonal[r], violation[r] = gradient[j] + 1.0, worst
