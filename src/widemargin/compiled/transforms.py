"""Orthogonal transforms of blocks of rows."""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled


@compiled(fastmath=FAST)
def walsh_hadamard(block):
    """Multiply every row of ``block`` in place by the orthonormal Walsh-Hadamard matrix; its length is a power of two.

    The butterflies of one row run in cache: a block costs one pass over memory and ``d log2 d`` additions per row.
    """
    n, d = block.shape
    scale = 1.0 / np.sqrt(d)
    for i in range(n):
        half = 1
        while half < d:
            for start in range(0, d, 2 * half):
                for j in range(start, start + half):
                    a = block[i, j]
                    b = block[i, j + half]
                    block[i, j] = a + b
                    block[i, j + half] = a - b
            half *= 2
        for j in range(d):
            block[i, j] *= scale
