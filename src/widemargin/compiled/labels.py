"""Passes over labels: which there are, and sums by class."""

import numpy as np

from widemargin.compiled.jit import compiled


@compiled()
def distinct(values, found):
    """Write every value once, in the order in which they come; the number of them, or -1 if there is no room."""
    n = last = 0
    for i in range(values.shape[0]):
        value = values[i]
        if n > 0 and found[last] == value:
            continue
        last = 0
        while last < n and found[last] != value:
            last += 1
        if last == n:
            if n == found.shape[0]:
                return -1
            found[n] = value
            n += 1
    return n


@compiled()
def class_sums(codes, values, n_classes):
    """The sum of the values of each class; ``codes`` are class numbers, of any type."""
    out = np.zeros(n_classes)
    for i in range(values.shape[0]):
        out[int(codes[i])] += values[i]
    return out


@compiled()
def largest_bits(values, mask):
    """The largest of integers after a bitwise and with a mask that leaves no negative ones."""
    largest = values[0] & mask
    for i in range(values.shape[0]):
        largest = max(largest, values[i] & mask)
    return largest
