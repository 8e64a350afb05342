"""Data sets with known answers: the separable, non-separable and sparse ones of the saddle point paper.

Rows fill the unit ball. A hyperplane H through its centre parts the classes.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def make_separable(
    n_samples: int,
    n_features: int,
    *,
    ratio: float = 0.1,
    n_planted: int | None = None,
    random_state: int | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Two classes whose hulls are exactly ``2 * ratio`` apart.

    Distances to H fill [ratio, 1], so that ``ratio`` is the quotient of the smallest and the largest. ``n_planted``
    rows of each class, by default half as many as features, lie at distance ``ratio`` exactly, and the centroids of the
    two planted sets are mirror images in H. So the hulls come as near as 2 * ratio, and H proves that they come no
    nearer.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), -1 and 1
    margin : float
        The distance between the two hulls.
    """
    if not 0 < ratio < 1:
        raise ValueError(f"ratio={ratio!r} must lie in (0, 1): it is the smallest distance to H over the largest.")
    if n_features < 2 or n_samples < 4:
        raise ValueError(f"{n_samples} rows of {n_features} features: at least 4 rows of 2 features are needed.")
    rng = np.random.default_rng(random_state)
    if n_planted is None:
        n_planted = max(1, n_features // 2)
    n_planted = min(n_planted, n_samples // 4)
    normal = _unit_rows(rng, 1, n_features)[0]
    y = np.where(rng.permutation(n_samples) < n_samples // 2, 1.0, -1.0)
    heights = rng.uniform(ratio, 1.0, n_samples)
    planted = [rng.choice(np.flatnonzero(y == sign), n_planted, replace=False) for sign in (1.0, -1.0)]
    for rows in planted:
        heights[rows] = ratio
    along = _within_plane(rng, normal, heights)
    for rows in planted:
        along[rows] *= 0.5  # room for the shift that follows
        along[rows] -= along[rows].mean(axis=0)
    X = along + np.outer(y * heights, normal)
    return X, y, 2 * ratio


def make_nonseparable(
    n_samples: int, n_features: int, *, ratio: float = 0.1, random_state: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that fill the ball; those nearer than ``ratio`` to H get a label by the toss of a coin."""
    rng = np.random.default_rng(random_state)
    X, heights = _ball(rng, n_samples, n_features, ratio)
    return X, _noisy_labels(rng, heights, ratio)


def make_sparse_nonseparable(
    n_samples: int, n_features: int, *, density: float = 0.1, ratio: float = 0.1, random_state: int | None = None
) -> tuple[sp.csr_matrix, np.ndarray]:
    """As :func:`make_nonseparable` with a share ``density`` of the entries of each row, at random places."""
    if not 0 < density <= 1:
        raise ValueError(f"density={density!r} must lie in (0, 1].")
    rng = np.random.default_rng(random_state)
    if not 0 < ratio < 1:
        raise ValueError(f"ratio={ratio!r} must lie in (0, 1): nearer to H than this, labels are noise.")
    X = _unit_rows(rng, n_samples, n_features) * rng.random((n_samples, 1)) ** (1 / n_features)
    n_kept = max(1, round(density * n_features))
    columns = np.argpartition(rng.random((n_samples, n_features)), n_kept - 1, axis=1)[:, :n_kept]
    columns.sort(axis=1)
    values = np.take_along_axis(X, columns, axis=1)
    values /= np.maximum(1.0, np.linalg.norm(values, axis=1))[:, None]
    indptr = np.arange(0, n_samples * n_kept + 1, n_kept)
    sparse = sp.csr_matrix((values.ravel(), columns.ravel(), indptr), shape=(n_samples, n_features))
    heights = sparse @ _unit_rows(rng, 1, n_features)[0]
    return sparse, _noisy_labels(rng, heights / np.abs(heights).max(), ratio)


def _ball(rng: np.random.Generator, n: int, d: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the unit ball and their signed heights over a random H, which fill [-1, 1] evenly."""
    if not 0 < ratio < 1:
        raise ValueError(f"ratio={ratio!r} must lie in (0, 1): nearer to H than this, labels are noise.")
    normal = _unit_rows(rng, 1, d)[0]
    heights = rng.uniform(-1.0, 1.0, n)
    return _within_plane(rng, normal, heights) + np.outer(heights, normal), heights


def _within_plane(rng: np.random.Generator, normal: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Parts of rows along H that leave rows of the given heights inside the unit ball."""
    n, d = len(heights), len(normal)
    along = _unit_rows(rng, n, d)
    along -= np.outer(along @ normal, normal)
    lengths = rng.random(n) ** (1 / d) * np.sqrt(1 - heights**2)
    return along * (lengths / np.linalg.norm(along, axis=1))[:, None]


def _noisy_labels(rng: np.random.Generator, heights: np.ndarray, ratio: float) -> np.ndarray:
    y = np.where(heights > 0, 1.0, -1.0)
    near = np.abs(heights) < ratio
    y[near] = rng.choice([-1.0, 1.0], near.sum())
    return y


def _unit_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    rows = rng.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
