"""Synthetic data sets with known solutions.

The sets of the saddle point paper (separable, non-separable and sparse) fill the unit ball; a hyperplane H through the
centre divides the classes. The set of the debiased 1-norm SVM has two Gaussian classes.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import log_ndtr


def make_separable(
    n_samples: int,
    n_features: int,
    *,
    ratio: float = 0.1,
    n_planted: int | None = None,
    random_state: int | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Two classes whose hulls are exactly ``2 * ratio`` apart.

    Distances to H are uniform in [ratio, 1]. ``n_planted`` rows of each class, by default half as many as features, lie
    at distance ``ratio`` exactly, and the centroids of the two planted sets are mirror images in H. So the distance of
    the hulls is at most 2 * ratio, and H proves that it is not less.

    Parameters
    ----------
    n_samples : int
        Rows, at least 4.
    n_features : int
        Columns, at least 2.
    ratio : float in (0, 1), default=0.1
        Smallest distance to H; the largest is 1.
    n_planted : int or None, default=None
        Rows of each class at distance ``ratio`` from H.
    random_state : int or None, default=None
        Seed; None gives another set each time.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), -1 and 1
    margin : float
        The distance between the two hulls.

    Examples
    --------
    >>> from widemargin import HardMarginSVC
    >>> from widemargin.data import make_separable
    >>> X, y, margin = make_separable(200, 5, random_state=0)
    >>> proof = HardMarginSVC().fit(X, y).certificate_
    >>> proof.dual <= margin <= proof.primal
    True
    """
    if not 0 < ratio < 1:
        raise ValueError(f"ratio={ratio!r} must lie in (0, 1): it is the smallest distance to H, and the largest is 1.")
    if n_features < 2 or n_samples < 4:
        raise ValueError(f"{n_samples} rows of {n_features} features: at least 4 rows of 2 features are needed.")
    rng = np.random.default_rng(random_state)
    n_planted = min(max(1, n_features // 2) if n_planted is None else n_planted, n_samples // 4)
    normal = _unit_rows(rng, 1, n_features)[0]
    y = np.where(rng.permutation(n_samples) < n_samples // 2, 1.0, -1.0)
    heights = rng.uniform(ratio, 1.0, n_samples)
    planted = [rng.choice(np.flatnonzero(y == sign), n_planted, replace=False) for sign in (1.0, -1.0)]
    for rows in planted:
        heights[rows] = ratio
    along = _within_plane(rng, normal, heights)
    for rows in planted:
        along[rows] *= 0.5  # stays in the ball after the shift below
        along[rows] -= along[rows].mean(axis=0)
    return along + np.outer(y * heights, normal), y, 2 * ratio


def make_nonseparable(
    n_samples: int, n_features: int, *, ratio: float = 0.1, random_state: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that fill the ball; those nearer than ``ratio`` to H have random labels.

    Parameters
    ----------
    n_samples : int
        Rows.
    n_features : int
        Columns.
    ratio : float in (0, 1), default=0.1
        Distance to H up to which labels are noise; the largest distance is 1.
    random_state : int or None, default=None
        Seed; None gives another set each time.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), -1 and 1

    Examples
    --------
    >>> from widemargin.data import make_nonseparable
    >>> X, y = make_nonseparable(1000, 5, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((1000, 5), [-1.0, 1.0])
    """
    rng = np.random.default_rng(random_state)
    _check_noise(ratio)
    normal = _unit_rows(rng, 1, n_features)[0]
    heights = rng.uniform(-1.0, 1.0, n_samples)
    X = _within_plane(rng, normal, heights) + np.outer(heights, normal)
    return X, _noisy_labels(rng, heights, ratio)


def make_sparse_nonseparable(
    n_samples: int, n_features: int, *, density: float = 0.1, ratio: float = 0.1, random_state: int | None = None
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Like :func:`make_nonseparable`, with a share ``density`` of the entries of each row at random positions.

    Parameters
    ----------
    n_samples : int
        Rows.
    n_features : int
        Columns.
    density : float in (0, 1], default=0.1
        Share of the entries of a row that are kept.
    ratio : float in (0, 1), default=0.1
        Distance to H up to which labels are noise, as a share of the largest.
    random_state : int or None, default=None
        Seed; None gives another set each time.

    Returns
    -------
    X : csr_matrix of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), -1 and 1

    Examples
    --------
    >>> from widemargin.data import make_sparse_nonseparable
    >>> X, y = make_sparse_nonseparable(100, 50, density=0.1, random_state=0)
    >>> X.format, X.nnz
    ('csr', 500)
    """
    if not 0 < density <= 1:
        raise ValueError(f"density={density!r} must lie in (0, 1].")
    _check_noise(ratio)
    rng = np.random.default_rng(random_state)
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


def make_sparse_gaussians(
    n_samples: int,
    n_features: int,
    *,
    means: Sequence[float] = (0.2, -0.2, 0.3, 0.4, 0.5),
    correlation: float = 0.2,
    random_state: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two Gaussian classes that differ in few features, and the coefficients of the best linear SVM.

    Labels are -1 and +1 with probability 1/2, and x given y is N(y mu, Sigma): mu has the ``means`` of the first
    features and is 0 elsewhere; Sigma is the identity except for the ``correlation`` between those. The third array
    minimises the expected hinge loss over all linear functions. As in H. Lian, Z. Fan: Divide-and-Conquer for Debiased
    l1-norm Support Vector Machine in Ultra-high Dimensions, 2018; the coefficients printed there belong to another
    correlation.

    Parameters
    ----------
    n_samples : int
        Rows.
    n_features : int
        Columns, at least as many as ``means``.
    means : sequence of float, default=(0.2, -0.2, 0.3, 0.4, 0.5)
        Means of the first features in the class +1; the class -1 has the opposite ones.
    correlation : float, default=0.2
        Between every two of these features.
    random_state : int or None, default=None
        Seed; None gives another set each time.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), -1 and 1
    coef : ndarray of shape (n_features,)
        Of the linear function that minimises the expected hinge loss.

    Examples
    --------
    >>> from widemargin.data import make_sparse_gaussians
    >>> X, y, coef = make_sparse_gaussians(100, 20, random_state=0)
    >>> X.shape, coef.nonzero()[0].tolist()
    ((100, 20), [0, 1, 2, 3, 4])
    """
    s = len(means)
    if not s <= n_features:
        raise ValueError(f"means has {s} numbers, but n_features={n_features} is smaller.")
    if not -1 / max(s - 1, 1) < correlation < 1:
        raise ValueError(f"correlation={correlation!r} must lie in ({-1 / max(s - 1, 1):g}, 1) for {s} features.")
    rng = np.random.default_rng(random_state)
    sigma = np.full((s, s), correlation) + (1 - correlation) * np.eye(s)
    mu = np.asarray(means, dtype=np.float64)
    y = np.where(rng.random(n_samples) < 0.5, 1.0, -1.0)
    X = rng.normal(size=(n_samples, n_features))
    X[:, :s] = X[:, :s] @ np.linalg.cholesky(sigma).T + y[:, None] * mu
    # The margin of t d, d = Sigma^-1 mu, is normal of mean tD and variance t^2 D, D = mu'd; its expected loss is least
    # where sqrt(D) Phi(a) = phi(a), a = (1 - tD) / (t sqrt(D)).
    d = np.linalg.solve(sigma, mu)
    root = float(np.sqrt(mu @ d))
    a = brentq(lambda a: np.log(root) + log_ndtr(a) + 0.5 * a * a + 0.5 * np.log(2 * np.pi), -40.0, 40.0)
    coef = np.zeros(n_features)
    coef[:s] = d / (root * (a + root))
    return X, y, coef


def _check_noise(ratio: float) -> None:
    if not 0 < ratio < 1:
        raise ValueError(f"ratio={ratio!r} must lie in (0, 1): labels of rows nearer to H are noise.")


def _within_plane(rng: np.random.Generator, normal: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """The components of rows along H; rows of the given heights stay in the unit ball."""
    n, d = len(heights), len(normal)
    along = _unit_rows(rng, n, d)
    along -= np.outer(along @ normal, normal)
    lengths = rng.random(n) ** (1 / d) * np.sqrt(1 - heights**2)
    return np.asarray(along * (lengths / np.linalg.norm(along, axis=1))[:, None])


def _noisy_labels(rng: np.random.Generator, heights: np.ndarray, ratio: float) -> np.ndarray:
    y = np.where(heights > 0, 1.0, -1.0)
    near = np.abs(heights) < ratio
    y[near] = rng.choice([-1.0, 1.0], near.sum())
    return y


def _unit_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    rows = rng.normal(size=(n, d))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
