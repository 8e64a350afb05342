"""Random Fourier features: a Gaussian kernel machine made linear, and the optimum of that linear SVM.

    P(x) = 1/sqrt(k) [cos(v_1.x), sin(v_1.x), ..., cos(v_k.x), sin(v_k.x)],       v_i drawn from N(0, 2 gamma I),
    P(x).P(z) ~ K(x, z) = exp(-gamma ||x - z||^2)

As in Figure 3 of the batch perceptron paper: the cost is that of the features of the training rows, k n inner products
of d-dimensional rows, and the linear SVM on 2k features, without a bias, is solved to its optimum at no charge. One
kernel evaluation is one inner product too, so the two are drawn on one axis. ``Point.seconds`` is what it really took,
the linear SVM included.

The optimum is that of LIBLINEAR's dual coordinate descent for the hinge loss, derivatives within ``TOL``.

Reference: A. Rahimi, B. Recht: Random features for large-scale kernel machines, NIPS 2007.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from benchmarks.baselines.kernel_perceptron import Point

TOL = 1e-4
_MAX_ITER = 20_000  # passes over the rows


def train(
    X: Any,
    y: np.ndarray,
    X_test: Any,
    y_test: np.ndarray,
    gamma: float,
    C: float,
    checkpoints: Sequence[int],
    rng: np.random.Generator,
) -> list[Point]:
    """One point for each checkpoint, a number of inner products: k is that over n, rounded, at least one.

    ``kernel_evaluations`` of a point are k n inner products, ``n_support`` its 2 k features, ``draws`` the passes of
    the linear solver, which warns where it did not converge.
    """
    n, points = len(y), []
    for k in (max(1, round(products / n)) for products in sorted(checkpoints)):
        begin = time.perf_counter()
        directions = np.sqrt(2.0 * gamma) * rng.standard_normal((X.shape[1], k))
        model = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=TOL, max_iter=_MAX_ITER, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit(features(X, directions), y)
        seconds = time.perf_counter() - begin
        error = float(np.mean(y_test * model.decision_function(features(X_test, directions)) <= 0.0))
        points.append(Point(k * n, seconds, error, 2 * k, int(np.max(model.n_iter_))))
    return points


def features(X: Any, directions: np.ndarray) -> np.ndarray:
    """The map P; columns are all cosines, then all sines, which is the same machine."""
    angles = np.asarray(X @ directions)
    return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(directions.shape[1])
