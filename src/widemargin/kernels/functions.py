"""Kernels by name: what is computed, not how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widemargin.codec import conforms, record
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.kernels.arrays import is_on_host, on_host
from widemargin.kernels.storage import pieces, squared_norms

NAMES = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine", "precomputed")

_MIN_GAMMA = float(np.finfo(np.float64).tiny)  # kernels divide by a part of gamma, which must not be 0
_MAX_DEGREE = 10_000  # a polynomial takes one multiplication for each


def _check(kernel: Kernel) -> None:
    gamma, is_number = kernel.gamma, conforms(kernel.gamma, float)
    if kernel.name not in NAMES:
        raise ModelFileError(f"there is no kernel {kernel.name!r}")
    if not is_number and (kernel.needs_gamma or gamma not in ("scale", "auto")):
        raise ModelFileError("gamma of a kernel is not a number")
    if kernel.needs_gamma and not _MIN_GAMMA <= float(gamma) < np.inf:
        raise ModelFileError(f"gamma of a kernel must be finite and at least {_MIN_GAMMA:.1e}")
    if not 1 <= kernel.degree <= _MAX_DEGREE or not np.isfinite(kernel.coef0):
        raise ModelFileError(f"degree of a kernel must be in [1, {_MAX_DEGREE}], and coef0 finite")


@record(check=_check)
@dataclass(frozen=True)
class Kernel:
    """An inner product in a feature space, by name or as a function of two blocks of rows.

    ``linear`` x.z, ``rbf`` exp(-gamma |x-z|^2), ``poly`` (gamma x.z + coef0)^degree, ``sigmoid`` tanh(gamma x.z +
    coef0), ``laplacian`` exp(-gamma |x-z|_1), ``cosine`` x.z / |x||z|, ``precomputed``: rows are kernel values already.
    """

    name: str = "rbf"
    gamma: float | str = "scale"  # "scale" and "auto" become numbers when the rows are known
    degree: int = 3
    coef0: float = 0.0
    function: Callable[[Any, Any], np.ndarray] | None = None

    @property
    def is_positive(self) -> bool:
        """Whether it is an inner product; a function or values that the user gives are taken to be one."""
        return not (self.name == "sigmoid" or (self.name == "poly" and self.coef0 < 0))

    @property
    def is_bounded(self) -> bool:
        """Whether no value exceeds 1 in size."""
        return self.name in ("rbf", "laplacian", "cosine", "sigmoid")

    @property
    def is_shift_invariant(self) -> bool:
        return self.name in ("rbf", "laplacian")

    @property
    def needs_gamma(self) -> bool:
        return self.name in ("rbf", "poly", "sigmoid", "laplacian")

    def evaluated(self, A: Any, B: Any) -> np.ndarray:
        """Values of the user's function between two blocks of rows; raises ValueError if their shape is wrong."""
        assert self.function is not None
        values = np.asarray(self.function(A, B), dtype=np.float64)
        if values.shape != (A.shape[0], B.shape[0]):
            raise ValueError(
                f"The kernel function returned values of shape {values.shape} for {A.shape[0]} and {B.shape[0]} rows; "
                f"it must return one of shape {(A.shape[0], B.shape[0])}."
            )
        return values

    def resolved(self, shard: Shard, total: Callable[[np.ndarray], np.ndarray] = np.asarray) -> Kernel:
        """The same kernel with a number for ``gamma``; ``total`` sums over ranks.

        ``"scale"`` is 1 / (n_features * variance of all entries), in weighted rows; ``"auto"`` is 1 / n_features.
        """
        if not isinstance(self.gamma, str) or not self.needs_gamma:
            return self
        gamma = 1.0 / shard.n_features
        if self.gamma == "scale":
            first, mass = total(np.array([_weighted_sum(shard), shard.weight.sum() * shard.n_features]))
            mean = first / mass if mass else 0.0
            variance = total(np.array([shard.weight @ _squared_deviations(shard, mean)]))[0] / mass if mass else 0.0
            gamma = gamma / variance if variance > 0 else 1.0
        return replace(self, gamma=float(gamma))

    def diagonal(self, X: Any, numbers: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of every row, in float64; ``numbers`` are the columns of the rows of a precomputed kernel."""
        if self.is_shift_invariant:
            return np.ones(X.shape[0])
        if self.name == "precomputed":
            return np.asarray(X[np.arange(len(numbers)), numbers], dtype=np.float64).ravel()
        if self.function is not None:
            some = (X[begin:end] for begin, end in pieces(X.shape[0], 64))
            return np.concatenate([np.diagonal(self.evaluated(few, few)) for few in some] or [np.empty(0)])
        return np.asarray(self.diagonal_of_norms(squared_norms(X)))

    def diagonal_of_norms(self, norms: Any) -> Any:
        """The same from ``||x||^2`` of every row, as an array or a tensor; for kernels of inner products."""
        if self.name == "cosine":
            return (norms > 0).astype(np.float64)
        if self.name == "linear":
            return norms
        inside = float(self.gamma) * norms + self.coef0
        return inside**self.degree if self.name == "poly" else np.tanh(inside)

    def __str__(self) -> str:
        """Name and parameters, the same in every process."""
        function = "" if self.function is None else getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{self.name}{function}(gamma={self.gamma}, degree={self.degree}, coef0={self.coef0})"


def _weighted_sum(shard: Shard) -> float:
    if is_on_host(shard.blocks[0]):
        return float(shard.combine(shard.weight).sum())
    return float(shard.weight @ on_host(shard.X.double().sum(1)))


def _squared_deviations(shard: Shard, mean: float) -> np.ndarray:
    """``sum_j (x_ij - mean)^2`` of every row; a difference of sums would lose small deviations."""
    if is_on_host(shard.blocks[0]):
        return shard.squared_distances(np.ones(shard.n_features), np.full(shard.n_features, mean))
    return np.asarray(on_host(((shard.X.double() - mean) ** 2).sum(1)))
