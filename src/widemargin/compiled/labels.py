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
def counts_by_class(codes, given, weight, n_classes):
    """Sums of weights: of the rows of each class, of those among them that are given it, and of all that are."""
    out = np.zeros((3, n_classes))
    for i in range(weight.shape[0]):
        out[0, codes[i]] += weight[i]
        out[2, given[i]] += weight[i]
        if given[i] == codes[i]:
            out[1, codes[i]] += weight[i]
    return out


@compiled()
def votes_of_pairs(scores, out):
    """``out_ik`` is the number of votes for class k, and the sum of its scores, mapped into (-1/3, 1/3).

    ``scores`` has a column for each pair, in LIBSVM's order; a positive score is a vote for the first class.
    """
    n_classes = out.shape[1]
    sums = np.empty(n_classes)
    for i in range(out.shape[0]):
        out[i], sums[:], pair = 0.0, 0.0, 0
        for a in range(n_classes):
            for b in range(a + 1, n_classes):
                score = np.float64(scores[i, pair])
                out[i, a if score > 0.0 else b] += 1.0
                sums[a] += score
                sums[b] -= score
                pair += 1
        for k in range(n_classes):
            out[i, k] += sums[k] / (3.0 * (abs(sums[k]) + 1.0))


@compiled()
def largest_bits(values, mask):
    """The largest of integers after a bitwise and with a mask that leaves no negative ones."""
    largest = values[0] & mask
    for i in range(values.shape[0]):
        largest = max(largest, values[i] & mask)
    return largest
