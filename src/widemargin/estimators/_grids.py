"""Values of parameters that a search tries, and the memory that it may take for kernel values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from widemargin.problems.hinge_l2 import HingeL2

_MAX_SAMPLE = 1000  # rows whose distances set the scale of gamma
_DECADES_OF_GAMMA = 2.0  # that a grid of gammas spans, about 1 / median squared distance
_LEAST_C, _LARGEST_C = 1e-2, 1e3  # of a grid, for rows of length 1
_SHARE_OF_MEMORY = 0.5  # of what is free, for kernel values
_USUAL_MEMORY = 8 << 30  # where nobody can say what is free
_ROUNDING = 1e-12  # of a distance, relative to the largest; squared ones are differences
_LARGEST_STEP = math.log(10)  # between values of a grid, as far as refinement goes beyond its ends


def grid_of_gammas(gammas: Any, kernel: str, X: Any, weight: np.ndarray) -> np.ndarray:
    """Ascending values of gamma: those that are given, or so many around the scale of the rows.

    That is one over the median squared distance of two rows, over the median 1-norm distance for the laplacian kernel,
    and over the median squared length for kernels of inner products.
    """
    if not isinstance(gammas, int | np.integer):
        return checked_grid("gammas", gammas)
    present = np.flatnonzero(weight)
    few = present[np.linspace(0, len(present) - 1, min(len(present), _MAX_SAMPLE)).astype(np.intp)]
    rows, masses = X[few], weight[few]
    if kernel in ("rbf", "laplacian"):
        above = np.triu_indices(len(few), 1)
        sizes = (euclidean_distances(rows, squared=True) if kernel == "rbf" else manhattan_distances(rows))[above]
        masses = (masses[:, None] * masses)[above]
    else:
        sizes = np.asarray(rows.multiply(rows).sum(axis=1) if hasattr(rows, "multiply") else (rows**2).sum(axis=1))
    size = _weighted_median(sizes.ravel().astype(np.float64), masses)
    half = _DECADES_OF_GAMMA / 2 if gammas > 1 else 0.0
    return np.logspace(-half, half, int(gammas)) / (size or 1.0)


def _weighted_median(values: np.ndarray, masses: np.ndarray) -> float:
    """The median of the positive values; 0 if there is none. Copies of a row are apart by rounding alone."""
    is_positive = values > _ROUNDING * values.max(initial=0.0)
    values, masses = values[is_positive], masses[is_positive]
    if not len(values):
        return 0.0
    order = np.argsort(values)
    sums = np.cumsum(masses[order])
    return float(values[order[np.searchsorted(sums, sums[-1] / 2)]])


def grid_of_Cs(Cs: Any, squares: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Ascending values of C: those that are given, or so many for rows with these values of k(x, x)."""
    if not isinstance(Cs, int | np.integer):
        values = checked_grid("Cs", Cs)
        for end in values[[0, -1]].tolist():
            HingeL2(end).check(1.0, 1.0)
        return values
    if not np.isfinite(squares).all():
        raise ValueError("The kernel of a row with itself is not finite: check the kernel, or scale the features.")
    mean = float(np.average(np.abs(squares), weights=weight))
    return (np.geomspace(_LEAST_C, _LARGEST_C, int(Cs)) if Cs > 1 else np.ones(1)) / (mean or 1.0)


def checked_grid(name: str, given: Any) -> np.ndarray:
    """The values of a list, ascending and each once; raises ValueError unless all are positive."""
    try:
        values = np.unique(np.asarray(given, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        values = np.empty(0)
    if not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name}={given!r} must be a number of values, or a list of positive, finite numbers.")
    return values


def around(values: np.ndarray, best: float) -> np.ndarray:
    """Values half a step to either side of the best one of a grid, on a logarithmic scale; none for one value.

    Beyond the ends of the grid a step is that of its last two values, and at most a decade.
    """
    if len(values) == 1:
        return np.empty(0)
    at = int(np.argmin(np.abs(values - best)))
    steps = np.diff(np.log(values))
    steps = np.concatenate([np.minimum(steps[:1], _LARGEST_STEP), steps, np.minimum(steps[-1:], _LARGEST_STEP)])
    return np.asarray(best * np.exp([-steps[at] / 2, steps[at + 1] / 2]))


def free_bytes() -> int:
    """A share of the memory that is free on this machine, or that the group of this process may still use."""
    free = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        free.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        free.append(_USUAL_MEMORY)
    try:
        group = Path("/sys/fs/cgroup")
        most, used = ((group / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        free.append(max(int(most) - int(used), 0))
    except (OSError, ValueError):  # no group, or none with a limit
        pass
    return int(_SHARE_OF_MEMORY * min(free))
