"""Kernels by name: what is computed, not how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from widemargin.data.shard import Shard

NAMES = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine", "precomputed")


def _alone(values: np.ndarray) -> np.ndarray:
    return values


@dataclass(frozen=True)
class Kernel:
    """An inner product in a feature space, by name or as a function of two blocks of rows.

    ``linear`` x.z, ``rbf`` exp(-gamma |x-z|^2), ``poly`` (gamma x.z + coef0)^degree, ``sigmoid`` tanh(gamma x.z +
    coef0), ``laplacian`` exp(-gamma |x-z|_1), ``cosine`` x.z / |x||z|, ``precomputed``: rows are kernel values already.
    """

    name: str = "rbf"
    gamma: float | Literal["scale", "auto"] = "scale"
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

    def resolved(self, shard: Shard, total: Callable[[np.ndarray], np.ndarray] = _alone) -> Kernel:
        """The same kernel with a number for ``gamma``; ``total`` sums over ranks.

        ``"scale"`` is 1 / (n_features * variance of all entries), with weights as multiplicities, ``"auto"`` is
        1 / n_features.
        """
        if not isinstance(self.gamma, str) or not self.needs_gamma:
            return self
        gamma = 1.0 / shard.n_features
        if self.gamma == "scale":
            sums = shard.combine(shard.weight).sum(), shard.weight @ shard.squared_norms(), shard.weight.sum()
            first, second, mass = total(np.array(sums)) / np.array([shard.n_features, shard.n_features, 1.0])
            variance = second / mass - (first / mass) ** 2
            gamma = gamma / variance if variance > 0 else 1.0
        return replace(self, gamma=float(gamma))
