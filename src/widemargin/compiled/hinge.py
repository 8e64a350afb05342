"""The hinge loss of scores along a line."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def hinge_sums(scores: np.ndarray, y: np.ndarray, weight: np.ndarray, scale: float, intercept: float) -> np.ndarray:
    """``sum_i m_i max(0, 1 - y_i (scale * score_i + intercept))`` and its slopes by scale and intercept."""
    loss = by_scale = by_intercept = 0.0
    for i in range(scores.shape[0]):
        slack = 1.0 - y[i] * (scale * scores[i] + intercept)
        push = weight[i] * y[i] if slack > 0.0 else 0.0
        loss += weight[i] * max(slack, 0.0)
        by_scale -= push * scores[i]
        by_intercept -= push
    return np.array([loss, by_scale, by_intercept])
