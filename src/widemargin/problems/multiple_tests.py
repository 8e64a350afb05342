"""p-values of many hypotheses, adjusted for their number: reject those that are at most the level."""

from __future__ import annotations

import numpy as np


def holm(p_values: np.ndarray) -> np.ndarray:
    """Adjusted so that the probability of any false rejection is at most the level, however the tests depend."""
    order, n = np.argsort(p_values), len(p_values)
    adjusted = np.empty(n)
    adjusted[order] = np.maximum.accumulate(p_values[order] * np.arange(n, 0, -1))
    return np.minimum(adjusted, 1.0)


def benjamini_hochberg(p_values: np.ndarray) -> np.ndarray:
    """Adjusted so that the expected share of false rejections among all is at most the level.

    That is proved for tests that are independent or depend positively on each other.
    """
    from scipy.stats import false_discovery_control  # which takes long to import

    return np.asarray(false_discovery_control(p_values), dtype=np.float64)
