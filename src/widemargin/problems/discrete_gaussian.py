"""Samples of the discrete Gaussian by whole numbers alone, from the randomness of the operating system.

    P(K = k) proportional to exp(-k^2 / (2 s^2))    for whole k,    s = STEPS = 2^24

Floating-point numbers with Gaussian noise have gaps: which values can come out tells what the noise was added to [1].
Here nothing is rounded. The method is that of [2], for arrays: coins that show heads with probability exp(-x), x a
multiple of 2^-49, are tossed with random bits; from these come geometric numbers, from these discrete Laplace numbers,
and a last coin keeps as many of each as a Gaussian has.

K is as good as a Gaussian that is rounded to whole numbers: the probabilities of all events differ by at most
``DEVIATION`` (``docs/privacy.md``).

[1] Mironov: On significance of the least significant bits for differential privacy, 2012.
[2] Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, 2020; algorithms 1 to 3.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

_LOG_STEPS = 24
STEPS = 1 << _LOG_STEPS  # in one standard deviation
DEVIATION = 2.0**-53  # of the probability of any event, from that of a Gaussian that is rounded
_BITS = 2 * _LOG_STEPS + 1  # after the point of an exponent
_ONE = 1 << _BITS
_MOST_LAPLACE = 100  # times STEPS; beyond, squares would overflow, and a number is kept with probability e^-4900

RandomBytes = Callable[[int], bytes]


def discrete_gaussian(n: int, random_bytes: RandomBytes = os.urandom) -> np.ndarray:
    """Independent numbers in int64; ``random_bytes`` is the source, which no seed can repeat by default."""
    kept = np.empty(0, np.int64)
    while len(kept) < n:
        laplace = _laplace(n - len(kept), random_bytes)
        excess = np.abs(laplace) - STEPS
        kept = np.concatenate([kept, laplace[_are_heads(excess * excess, random_bytes)]])
    return kept


def _laplace(n: int, random_bytes: RandomBytes) -> np.ndarray:
    """At most n numbers with probabilities proportional to exp(-|k| / STEPS)."""
    low = (_words(n, random_bytes) >> np.uint64(64 - _LOG_STEPS)).astype(np.int64)
    low = low[_are_heads(low << (_BITS - _LOG_STEPS), random_bytes)]
    high = np.zeros_like(low)
    at = np.arange(len(low))
    while len(at):
        at = at[_are_heads_of_fraction(np.full(len(at), _ONE), random_bytes)]
        high[at] += 1
    is_negative = _words(len(low), random_bytes) % np.uint64(2) == 1
    size = low + (high << _LOG_STEPS)
    is_kept = ~(is_negative & (size == 0)) & (high < _MOST_LAPLACE)  # zero once, not once for each sign
    return np.where(is_negative, -size, size)[is_kept]


def _are_heads(exponents: np.ndarray, random_bytes: RandomBytes) -> np.ndarray:
    """Coins with probability exp(-x) of heads; ``exponents`` are x in multiples of 2^-49, at least 0."""
    whole, heads = exponents >> _BITS, _are_heads_of_fraction(exponents & (_ONE - 1), random_bytes)
    at = np.flatnonzero(heads & (whole > 0))
    while len(at):
        is_head = _are_heads_of_fraction(np.full(len(at), _ONE), random_bytes)
        heads[at], whole[at] = is_head, whole[at] - 1
        at = at[is_head & (whole[at] > 0)]
    return heads


def _are_heads_of_fraction(exponents: np.ndarray, random_bytes: RandomBytes) -> np.ndarray:
    """The same for 0 <= x <= 1: the number of coins x, x/2, x/3, ... that show heads in a row is even."""
    n_heads, at = np.zeros(len(exponents), np.int64), np.arange(len(exponents))
    while len(at):
        tossed = n_heads[at[0]] + 1  # the same for all that are left
        bits, words = _words(2 * len(at), random_bytes).reshape(2, -1)
        is_head = ((bits >> np.uint64(64 - _BITS)).astype(np.int64) < exponents[at]) & (words % np.uint64(tossed) == 0)
        at = at[is_head]
        n_heads[at] += 1
    return np.asarray(n_heads % 2 == 0)


def _words(n: int, random_bytes: RandomBytes) -> np.ndarray:
    return np.frombuffer(random_bytes(8 * n), dtype="<u8").astype(np.uint64)
