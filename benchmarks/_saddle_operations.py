"""How many operations does Saddle-SVC as printed take to a (1 - epsilon)-approximation? Theorem 7, counted.

The theorem promises n (d + sqrt(d / (epsilon beta))) up to logarithms. Counted are multiplications, divisions,
exponentials and logarithms of Algorithms 1 and 2 (``baselines.saddle_as_written``), without the transform, whose n d
log d are additions. Runs end when g(w) is first within epsilon of the optimum; beta is the optimum, as its proof needs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks._sets import ALPHA, Rows, nu_of
from benchmarks.baselines import saddle_as_written
from widemargin import HardMarginSVC, NuMarginSVC
from widemargin.data import make_nonseparable, make_separable

RATIO = 0.2  # of distances to H: the hulls of the hard margin are twice that apart
N, D, EPSILON = 1_000, 32, 0.05  # where two are fixed and the third varies
AXES: dict[str, tuple[float, ...]] = {
    "n": (500, 1_000, 2_000, 4_000, 8_000, 16_000),
    "d": (8, 16, 32, 64, 128, 256, 512),
    "1/eps": (5, 10, 20, 40, 80, 160, 320, 640, 1_280),
}
QUICK_AXES: dict[str, tuple[float, ...]] = {"n": (200, 400), "d": (8, 16), "1/eps": (5, 10)}
SEEDS = 3
MOST_ROUNDS = 3_000_000


def point(kind: str, n: int, d: int, epsilon: float, seed: int) -> dict[str, float]:
    """Operations and rounds of one run, and what is promised."""
    rows, optimum, cap, length = problem(kind, n, d, seed)
    rng = np.random.default_rng([seed, n, d])
    beta = optimum / length**2
    end = saddle_as_written.solve(
        *rows, rng, epsilon=epsilon, beta=beta, max_rounds=MOST_ROUNDS, cap=cap, until=(1 - epsilon) * optimum
    )
    promised = n * (d + math.sqrt(d / (epsilon * beta)))
    logs = math.sqrt(math.log(n)) * math.log(1 / (epsilon * beta))
    return {
        "operations": float(end.n_operations),
        "rounds": float(end.n_rounds),
        "promised": promised,
        "promised with logarithms": promised * logs,
        "reached": float(end.value / optimum),
    }


def problem(kind: str, n: int, d: int, seed: int) -> tuple[Rows, float, float | None, float]:
    """Rows, half the squared distance of the (reduced) hulls, the cap, and the length of the longest row."""
    if kind == "hard":
        rows, cap = Rows(*make_separable(n, d, ratio=RATIO, random_state=seed)[:2]), None
        distance = 2 * RATIO
        assert HardMarginSVC(tol=1e-6).fit(*rows).certificate_.primal <= distance * (1 + 1e-5)
    else:
        rows = Rows(*make_nonseparable(n, d, random_state=seed))
        model = NuMarginSVC(nu=nu_of(rows.y, ALPHA), tol=1e-6).fit(*rows)
        distance = model.certificate_.primal
        cap = 1 / (ALPHA * min((rows.y > 0).sum(), (rows.y < 0).sum()))
    return rows, 0.5 * distance**2, cap, float(np.linalg.norm(rows.X, axis=1).max())


def at(axis: str, value: float) -> tuple[int, int, float]:
    """n, d and epsilon where one of them varies."""
    n, d, epsilon = N, D, EPSILON
    if axis == "n":
        n = int(value)
    elif axis == "d":
        d = int(value)
    else:
        epsilon = 1 / value
    return n, d, epsilon


def measured(axes: dict[str, tuple[float, ...]], n_seeds: int) -> dict[str, Any]:
    """Operations over each axis, and slopes with their standard errors over seeds."""
    found: dict[str, Any] = {}
    for kind in ("hard", "nu"):
        found[kind] = {}
        for axis, values in axes.items():
            runs = [[point(kind, *at(axis, value), seed) for value in values] for seed in range(n_seeds)]
            found[kind][axis] = {
                "values": list(values),
                **{
                    key: [float(np.mean([run[k][key] for run in runs])) for k in range(len(values))]
                    for key in runs[0][0]
                },
                "last slope": slope([[each["operations"] for each in run[-2:]] for run in runs], values[-2:]),
                "slope": slope([[each["operations"] for each in run] for run in runs], values),
                "promised slope": slope([[each["promised"] for each in run] for run in runs], values),
                "promised slope with logarithms": slope(
                    [[each["promised with logarithms"] for each in run] for run in runs], values
                ),
            }
    return found


def slope(runs: list[list[float]], values: tuple[float, ...]) -> tuple[float, float | None]:
    """Of the logarithms: the mean over seeds, and its standard error."""
    each = [float(np.polyfit(np.log(values), np.log(run), 1)[0]) for run in runs]
    error = float(np.std(each, ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
    return float(np.mean(each)), error
