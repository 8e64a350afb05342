"""Hashes by which data are recognised; not against forgery. All arithmetic is modulo 2 ** 64.

The hash of a row is a sum over its nonzero entries, so that it depends neither on their order nor on their storage.
"""

import numpy as np

from widemargin.compiled.jit import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)  # of MurmurHash3
_SHIFT, _ONE = np.uint64(33), np.uint64(1)


@compiled()
def mixed(x):
    """A bijection of 64 bits in which every bit of ``x`` changes half of the others (MurmurHash3's last step)."""
    x ^= x >> _SHIFT
    x *= _FIRST
    x ^= x >> _SHIFT
    x *= _SECOND
    return x ^ (x >> _SHIFT)


@compiled()
def entry_hash(column, value):
    """The hash of one entry; 0 for a zero of either sign. A float32 is the float64 of the same value."""
    value = np.float64(value)
    bits = value.view(np.uint64)
    return mixed(bits + (np.uint64(column) + _ONE) * _GOLDEN) if value != 0.0 else np.uint64(0)


@compiled()
def keyed_sum(row_hashes, numbers, y, weight):
    """The sum over rows of a hash of each row's number, label, weight and content."""
    total = np.uint64(0)
    for i in range(row_hashes.shape[0]):
        key = mixed((np.uint64(numbers[i]) + _ONE) * _GOLDEN)
        key = mixed(key + np.float64(y[i]).view(np.uint64))
        key = mixed(key + np.float64(weight[i]).view(np.uint64))
        total += mixed(key + row_hashes[i])
    return total
