"""Random Fourier features, which approximate the rbf kernel by a linear model.

Rows are mapped before they go to a peer. The same seed and gamma give the same map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.strategies.protocol import Rows


def fourier_features(pieces: Sequence[Rows], gamma: float | str, n_features: int, seed: int) -> RBFSampler:
    """The map for rows in several pieces; ``"scale"`` is computed from all of them, with their weights."""
    weight = np.concatenate([piece.weight for piece in pieces])
    rows = Shard([piece.X for piece in pieces], np.empty(0), weight)
    kernel = Kernel("rbf", gamma).resolved(rows, lambda sums: sums)
    return RBFSampler(gamma=kernel.gamma, n_components=n_features, random_state=seed).fit(pieces[0].X[:1])
