"""Exact answers by a generic method, tiny and slow on purpose; nothing here uses the library.

Every answer carries its own proof: a distance is returned only if a margin computed by plain sorting meets it, an
objective only if that of the dual does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_PROOF = 1e-9  # of the distance, or of the radius where the hulls meet


class Nearest(NamedTuple):
    """The nearest points of two (reduced) hulls."""

    distance: float
    direction: np.ndarray  # A' eta - B' xi
    mass: np.ndarray


def hull_distance(X, y, weight=None, cap=np.inf) -> Nearest:
    """Distance between the hulls of the rows with y > 0 and y < 0, masses at most ``cap * weight``."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    present = weight > 0
    signed = np.where(np.asarray(y) > 0, 1.0, -1.0)[present]
    points = (X - X[present].mean(axis=0))[present]
    size = max(float(np.abs(points).max()), np.finfo(float).tiny)
    points = points / size * signed[:, None]
    upper = np.full(len(signed), 2.0) if np.isinf(cap) else np.minimum(cap * weight[present], 2.0)

    mass = np.zeros(len(signed))
    free = np.zeros(len(signed), dtype=bool)
    for sign in (1.0, -1.0):
        mine = signed == sign
        if upper[mine].sum() < 1 - 1e-9:
            raise ValueError("the bounds of a class add up to less than one")
        # Bounds that add up to one leave a single point, and an interior method needs an interior.
        if upper[mine].sum() <= 1 + 1e-9:
            mass[mine] = upper[mine] / upper[mine].sum()
        else:
            free |= mine
    if free.any():
        sides = np.array([signed[free] == sign for sign in (1.0, -1.0) if (signed[free] == sign).any()], dtype=float)
        fixed = mass @ points
        mass[free] = _interior_point(points[free] @ points[free].T, points[free] @ fixed, sides, upper[free])
    z = mass @ points
    distance = float(np.linalg.norm(z))
    margin = margin_of(points, np.ones(len(points)), signed, upper, z) if distance > 0 else 0.0
    assert distance - margin <= _PROOF * distance or distance <= _PROOF, f"the oracle failed: {margin=}, {distance=}"
    whole = np.zeros(len(present))
    whole[present] = mass
    return Nearest(size * distance if distance > _PROOF else 0.0, size * z, whole)


def margin_of(X, y, side, upper, w) -> float:
    """The margin of a direction by sorting: fill up the lowest signed scores of each class until their mass is one."""
    scores = y * (X @ w)
    total = 0.0
    for sign in (1.0, -1.0):
        mine = np.flatnonzero(side == sign)
        left = 1.0
        for i in mine[np.argsort(scores[mine], kind="stable")]:
            taken = min(left, upper[i])
            total += taken * scores[i]
            left -= taken
    return float(total / np.linalg.norm(w))


def _interior_point(H, q, E, upper):
    """Minimise 0.5 x'Hx + q'x subject to E x = 1 and 0 <= x <= upper, by a primal-dual interior point method."""
    n, m = len(q), len(E)
    x = np.minimum(1.0 / (E.T @ E.sum(axis=1)), upper / 2)
    s = upper - x
    z, t, multiplier = np.ones(n), np.ones(n), np.zeros(m)
    for _ in range(200):
        dual = H @ x + q - E.T @ multiplier - z + t
        primal = E @ x - 1
        bound = x + s - upper
        mu = (x @ z + s @ t) / (2 * n)
        if mu < 1e-17 and max(np.abs(primal).max(), np.abs(dual).max()) < 1e-13:
            break
        target = 0.1 * mu
        system = np.zeros((n + m, n + m))
        system[:n, :n] = H + np.diag(z / x + t / s)
        system[:n, n:] = -E.T
        system[n:, :n] = E
        right = np.concatenate([-dual + target / x - z - target / s + t - t / s * bound, -primal])
        step = np.linalg.solve(system, right)
        dx, dm = step[:n], step[n:]
        ds = -bound - dx
        dz = target / x - z - z / x * dx
        dt = target / s - t - t / s * ds
        length = 1.0
        for value, change in ((x, dx), (s, ds), (z, dz), (t, dt)):
            shrinking = change < 0
            if shrinking.any():
                length = min(length, 0.995 * float((-value[shrinking] / change[shrinking]).min()))
        x, s, z, t = x + length * dx, s + length * ds, z + length * dz, t + length * dt
        multiplier = multiplier + length * dm
        if mu < 1e-20:
            break
    x = np.clip(x, 0.0, upper)
    return x / (E.T @ (E @ x))


def exact_svm(X, y, C, weight=None, fit_intercept=True) -> float:
    """The optimum of the linear C-SVM by an interior point method on the dual, if primal and dual meet there."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    X, y, upper = X[weight > 0], y[weight > 0], C * weight[weight > 0]
    n, Z = len(y), X * y[:, None]
    E = y[None, :] if fit_intercept else np.zeros((0, n))
    x, z, t, b = upper / 2, np.ones(n), np.ones(n), np.zeros(len(E))
    s = upper - x
    for _ in range(200):
        residual = Z @ (Z.T @ x) - 1 - E.T @ b - z + t
        mu = (x @ z + s @ t) / (2 * n)
        if mu <= 1e-14 * max(1.0, upper.max()) * 1e-2 and np.abs(residual).max() < 1e-11:
            break
        target = 0.1 * mu
        system = np.zeros((n + len(E), n + len(E)))
        system[:n, :n] = Z @ Z.T + np.diag(z / x + t / s)
        system[:n, n:], system[n:, :n] = -E.T, E
        right = np.concatenate([-residual + target / x - z - target / s + t, -E @ x])
        step = np.linalg.solve(system, right)
        dx, ds = step[:n], -step[:n]
        dz, dt = target / x - z - z / x * dx, target / s - t - t / s * ds
        length = min(
            [1.0]
            + [0.995 * (-v[d < 0] / d[d < 0]).min() for v, d in ((x, dx), (s, ds), (z, dz), (t, dt)) if (d < 0).any()]
        )
        x, s, z, t, b = x + length * dx, s + length * ds, z + length * dz, t + length * dt, b + length * step[n:]
    w = Z.T @ x
    scores = X @ w
    intercepts = y - scores if fit_intercept else [0.0]
    primal = min(0.5 * w @ w + upper @ np.maximum(0, 1 - y * (scores + each)) for each in intercepts)
    dual = x.sum() - 0.5 * w @ w
    assert abs(primal - dual) <= 1e-8 * primal, f"the oracle failed: {primal=}, {dual=}"
    return float((primal + dual) / 2)


def nu_cap(y, nu, weight=None) -> float:
    """The bound on a mass that scikit-learn's nu means; ``"paper"`` is 0.85 of the largest nu."""
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    totals = np.array([weight[np.asarray(y) > 0].sum(), weight[np.asarray(y) <= 0].sum()])
    if nu == "paper":
        nu = 0.85 * 2 * totals.min() / totals.sum()
    return 2 / (nu * totals.sum())


def intercept_interval(X, y, coef, nu):
    """Ends of the interval of optimal intercepts of nu-SVM along ``coef``, by sorted scores (see notes/saddle.md).

    A single point, twice, unless nu * n / 2 is an integer. In the scale of ``coef``.
    """
    scores = np.asarray(X @ coef, dtype=np.float64)
    up, down = np.sort(scores[y > 0]), np.sort(scores[y < 0])[::-1]
    exact = nu * len(y) / 2
    k = round(exact) if abs(exact - round(exact)) <= 1e-9 * exact else int(np.floor(exact))
    is_integer = abs(exact - k) <= 1e-9 * exact
    first, last = (k - 1, k) if is_integer else (k, k)
    ends = [(values[min(first, len(values) - 1)], values[min(last, len(values) - 1)]) for values in (up, down)]
    # Positive scores ascend and negative ones descend, so the far ends of the two pull the middle apart.
    low = -(ends[0][1] + ends[1][0]) / 2
    high = -(ends[0][0] + ends[1][1]) / 2
    return low, high
