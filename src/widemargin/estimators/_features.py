"""Random Fourier features, which stand for the rbf kernel where a model must be linear in something that can be sent.

It is scikit-learn's sampler, so it stands here, among the estimators: rows are mapped before they go to anyone, and
nothing below knows of it. Whoever has the seed and gamma makes the same map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.strategies.task import Rows


def fourier_features(pieces: Sequence[Rows], gamma: float | str, n_features: int, seed: int) -> RBFSampler:
    """The map of rows that came in pieces; ``"scale"`` is the gamma of all of them, each by its weight."""
    weight = np.concatenate([piece.weight for piece in pieces])
    rows = Shard([piece.X for piece in pieces], np.empty(0), weight)
    kernel = Kernel("rbf", gamma).resolved(rows, lambda sums: sums)
    return RBFSampler(gamma=kernel.gamma, n_components=n_features, random_state=seed).fit(pieces[0].X[:1])
