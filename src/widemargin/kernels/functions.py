"""Kernels by name: what is computed, not how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.codec import conforms, record
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError

NAMES = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine", "precomputed")

_MIN_GAMMA = float(np.finfo(np.float64).tiny)  # kernels divide by a part of gamma, which must not be 0
_MAX_DEGREE = 10_000  # a polynomial takes one multiplication for each


def _check(kernel: Kernel) -> None:
    """Raise ModelFileError for a kernel that cannot be computed."""
    gamma, is_number = kernel.gamma, conforms(kernel.gamma, float)
    if kernel.name not in NAMES:
        raise ModelFileError(f"there is no kernel {kernel.name!r}")
    if not is_number and (kernel.needs_gamma or gamma not in ("scale", "auto")):
        raise ModelFileError("gamma of a kernel is not a number")
    if kernel.needs_gamma and not _MIN_GAMMA <= float(gamma) < np.inf:
        raise ModelFileError(f"gamma of a kernel must be finite and at least {_MIN_GAMMA:.1e}")
    if not 1 <= kernel.degree <= _MAX_DEGREE or not np.isfinite(kernel.coef0):
        raise ModelFileError(f"degree of a kernel must be in [1, {_MAX_DEGREE}], and coef0 finite")


def _alone(values: np.ndarray) -> np.ndarray:
    return values


@record(check=_check)
@dataclass(frozen=True)
class Kernel:
    """An inner product in a feature space, by name or as a function of two blocks of rows.

    ``linear`` x.z, ``rbf`` exp(-gamma |x-z|^2), ``poly`` (gamma x.z + coef0)^degree, ``sigmoid`` tanh(gamma x.z +
    coef0), ``laplacian`` exp(-gamma |x-z|_1), ``cosine`` x.z / |x||z|, ``precomputed``: rows are kernel values already.
    """

    name: str = "rbf"
    gamma: float | str = "scale"  # a number, or "scale" or "auto" until the rows are known
    degree: int = 3
    coef0: float = 0.0
    function: Callable[[Any, Any], np.ndarray] | None = None

    @property
    def is_positive(self) -> bool:
        """Whether it is an inner product for certain or by the word of the user; of ``sigmoid`` nobody can say so."""
        return not (self.name == "sigmoid" or (self.name == "poly" and self.coef0 < 0))

    @property
    def is_shift_invariant(self) -> bool:
        return self.name in ("rbf", "laplacian")

    @property
    def needs_gamma(self) -> bool:
        return self.name in ("rbf", "poly", "sigmoid", "laplacian")

    def resolved(
        self, shard: Shard, total: Callable[[np.ndarray], np.ndarray] = _alone, weight: np.ndarray | None = None
    ) -> Kernel:
        """The same kernel with a number for ``gamma``; ``total`` sums over ranks.

        ``"scale"`` is 1 / (n_features * variance of all entries), rows counted by ``weight``, else by that of the
        shard; ``"auto"`` is 1 / n_features.
        """
        if not isinstance(self.gamma, str) or not self.needs_gamma:
            return self
        gamma = 1.0 / shard.n_features
        if self.gamma == "scale":
            weight = shard.weight if weight is None else weight
            first, mass = total(np.array([shard.combine(weight).sum(), weight.sum() * shard.n_features]))
            mean = first / mass if mass else 0.0
            variance = total(np.array([weight @ _squared_deviations(shard, mean)]))[0] / mass if mass else 0.0
            gamma = gamma / variance if variance > 0 else 1.0
        return replace(self, gamma=float(gamma))

    def __str__(self) -> str:
        """Name and parameters, the same in every process."""
        function = "" if self.function is None else getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{self.name}{function}(gamma={self.gamma}, degree={self.degree}, coef0={self.coef0})"


def _squared_deviations(shard: Shard, mean: float) -> np.ndarray:
    """``sum_j (x_ij - mean)^2`` of every row; not by a difference of sums, which would lose what is small in them."""
    out = []
    for block in shard.blocks:
        if sp.issparse(block):
            from_zero = (block.data.astype(np.float64) - mean) ** 2 - mean**2
            sums = np.bincount(np.repeat(np.arange(block.shape[0]), np.diff(block.indptr)), from_zero, block.shape[0])
            out.append(sums + block.shape[1] * mean**2)
        else:
            few = max(1, (1 << 18) // max(block.shape[1], 1))
            out += [
                ((block[k : k + few].astype(np.float64) - mean) ** 2).sum(axis=1) for k in range(0, len(block), few)
            ]
    return np.concatenate(out) if out else np.empty(0)
