from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from widemargin.compiled.transforms import walsh_hadamard


@pytest.mark.parametrize("d", [1, 2, 8, 64])
def test_rows_are_multiplied_by_the_orthonormal_matrix(d, seed):
    block = np.random.default_rng(seed).normal(size=(3, d))
    turned = block.copy()
    walsh_hadamard(turned)
    np.testing.assert_allclose(turned, block @ hadamard(d) / np.sqrt(d), atol=1e-12)


@pytest.mark.parametrize("d", [1, 4, 32])
def test_twice_is_the_identity_and_lengths_stay(d, seed):
    block = np.random.default_rng(seed).normal(size=(3, d))
    turned = block.copy()
    walsh_hadamard(turned)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(block, axis=1), rtol=1e-12)
    walsh_hadamard(turned)
    np.testing.assert_allclose(turned, block, atol=1e-12)
