"""Coordinate descent for the rows of a sparse approximate inverse (SCIO)."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def descend_row(gram, c, tolerance, max_passes, t, gradient):
    """Minimise ``t'Gt/2 - l't + c ||t||_1`` by coordinate descent, updating ``t`` and ``gradient = G t - l`` in place.

    Passes over the nonzero entries run until they converge; a pass over all entries then checks for convergence.
    Returns the number of passes and the largest violation of the last one.
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
def with_violators(gradient, limit, working, size):
    """Add the worst violators of ``|gradient| <= limit`` to the first ``size`` entries of ``working``.

    Adds at most ``max(10, size)``, ties aside: far from convergence most would soon be zero again. Returns the new size
    and the number of violators.
    """
    p = gradient.shape[0]
    beyond, n_beyond = np.empty(p, dtype=np.int64), 0
    for k in range(p):
        if abs(gradient[k]) > limit:
            beyond[n_beyond] = k
            n_beyond += 1
    if n_beyond == 0:
        return size, 0
    is_working = np.zeros(p, dtype=np.bool_)
    for a in range(size):
        is_working[working[a]] = True
    room, level = max(10, size), limit
    if n_beyond > room:
        level = np.partition(np.abs(gradient[beyond[:n_beyond]]), n_beyond - room)[n_beyond - room]
    for a in range(n_beyond):
        k = beyond[a]
        if not is_working[k] and abs(gradient[k]) >= level:
            working[size] = k
            size += 1
    return size, n_beyond


@compiled(fastmath=FAST)
def scio_row(H, j, c, tolerance, max_passes, t):
    """Minimise ``t'Ht/2 - t_j + c ||t||_1`` from ``t = 0``, in place; returns the final gradient ``H t - e_j``.

    A round descends on a working set: the nonzero entries and those that violate the optimality conditions. It then
    updates the gradient of all p entries, which reads one row of H for each entry that changed.
    """
    p = H.shape[0]
    t[j] = (1.0 - c) / H[j, j]
    gradient = np.empty(p)
    for k in range(p):
        gradient[k] = t[j] * H[j, k]
    gradient[j] -= 1.0
    working, size = np.empty(p, dtype=np.int64), 1
    working[0] = j
    left = max_passes
    while True:
        size, n_beyond = with_violators(gradient, c * (1.0 + tolerance), working, size)
        if n_beyond == 0 or left <= 0:
            return gradient
        gram = np.empty((size, size))
        here, before, slope = np.empty(size), np.empty(size), np.empty(size)
        for a in range(size):
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


@compiled(fastmath=FAST)
def scio_block(H, rows, c, tolerance, max_passes, T, diagonal, violation):
    """Row r of ``T``, initially zero, receives the t of :func:`scio_row` for j = ``rows[r]``; it stays 0 if H_jj <= 0.

    ``diagonal`` receives ``(H t)_j``, and ``violation`` the largest entry of ``|H t - e_j|``.
    """
    for r in range(rows.shape[0]):
        j = rows[r]
        if H[j, j] <= 0.0:
            diagonal[r], violation[r] = 0.0, 1.0
            continue
        gradient = scio_row(H, j, c, tolerance, max_passes, T[r])
        diagonal[r], violation[r] = gradient[j] + 1.0, np.abs(gradient).max()
