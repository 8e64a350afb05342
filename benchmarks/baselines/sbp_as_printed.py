"""The batch perceptron to the letter: Algorithms 1, 2 and 3 as they are printed, with and without a bias.

What happens when they are run as printed:

* **Algorithm 2** (``find_gamma``) does not end where the pivot is the lowest of its segment: line 11 then sets lower :=
  middle = lower. So it is with the first element or the lower median as pivot in most cases. And ``upper`` is never
  allowed past the last row, so that a level above all responses does not come out.
* **Algorithm 3** (``find_gamma_and_bias``) goes the wrong way: lines 27 and 33 lower ``upper`` where the direction is
  up. No case comes out right. Lines 5, 6, 30, 31, 36 and 37 say C where they mean C+ or C-, read so here; lines 5 and 6
  begin at ``lower`` = 1 and are right in that.
* **Algorithm 1** (``optimize``) draws from an empty set (line 6, "<") at nu = 0, and with a bias in its first step
  already, if it is to draw from the larger class; Section 3.2 has "<=", which it takes unless ``is_strict``. It returns
  alpha / gamma, which turns every label around while gamma <= 0, as it is early on. T_0 is not used.

``level`` and ``level_and_bias`` are the closed forms, which Algorithm 1 takes in the place of what does not end, so
that the rest of it can be seen. Indices are from 1 in comments, as printed.

Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro: The Kernelized Stochastic Batch Perceptron, ICML 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Pivot = Callable[[int, np.random.Generator], int]  # which place of a sorted segment of so many

PIVOTS: dict[str, Pivot] = {
    "first": lambda size, rng: 0,  # of a segment in no order; of a sorted one the lowest, which is its worst case
    "lower median": lambda size, rng: (size - 1) // 2,
    "upper median": lambda size, rng: size // 2,
    "random": lambda size, rng: int(rng.integers(size)),
}
_ROUNDING = 1e-12
_MOST_ROUNDS = 200  # what has not ended by then has not moved for long


class DoesNotEnd(RuntimeError):
    """A loop that is printed without an end."""


class NothingToDraw(ValueError):
    """Line 6 of Algorithm 1 draws from an empty set."""


class Model(NamedTuple):
    """What Algorithm 1 returns, and what it had."""

    alpha: np.ndarray  # as returned: divided by gamma
    mean: np.ndarray  # before that
    gamma: float
    bias: float


# -- closed forms ------------------------------------------------------------------------------------------------------


def level(c: np.ndarray, volume: float) -> float:
    """gamma = min over k of (n nu + the sum of the k lowest c) / k."""
    return float(((volume + np.cumsum(np.sort(c))) / np.arange(1, len(c) + 1)).min())


def level_and_bias(y: np.ndarray, c: np.ndarray, volume: float) -> tuple[float, float]:
    """2 gamma = min over k of (n nu + the sums of the k lowest c of both classes) / k; b makes both covers k."""
    plus, minus = np.sort(c[y > 0]), np.sort(c[y < 0])
    n = min(len(plus), len(minus))
    heads = np.cumsum(plus[:n]) + np.cumsum(minus[:n])
    joint = (volume + heads) / np.arange(1, n + 1)
    k = int(np.argmin(joint)) + 1
    twice = float(joint[k - 1])
    # The level of a class, less its bias, lies between its k-th and its next response.
    low, high = plus[k - 1], plus[k] if k < len(plus) else math.inf
    other_low, other_high = minus[k - 1], minus[k] if k < len(minus) else math.inf
    of_plus = (max(low, twice - other_high) + min(high, twice - other_low)) / 2
    return twice / 2, twice / 2 - float(of_plus)


# -- Algorithms 2 and 3 ------------------------------------------------------------------------------------------------


def partition(C: np.ndarray, lower: int, upper: int, pivot: Pivot, rng: np.random.Generator) -> int:
    """Sorts C[lower:upper], places from 1 and both included, around a pivot, and returns its place.

    A sorted segment is divided around every one of its places.
    """
    C[lower - 1 : upper] = np.sort(C[lower - 1 : upper])
    return lower + pivot(upper - lower + 1, rng)


def find_gamma(C: np.ndarray, volume: float, pivot: Pivot, rng: np.random.Generator) -> float:
    """Algorithm 2; ``DoesNotEnd`` where it loops."""
    C = np.array(C, dtype=float)
    lower, upper = 1, len(C)
    lower_max, lower_sum = -math.inf, 0.0
    for _ in range(_MOST_ROUNDS):
        if lower >= upper:  # lines 3 and 4
            with np.errstate(invalid="ignore", divide="ignore"):
                covered = np.float64(lower - 1)
                return float((volume - lower_max * covered + lower_sum) / covered + lower_max)  # line 12
        middle = partition(C, lower, upper, pivot, rng)
        segment = C[lower - 1 : middle - 1]
        middle_max = max(lower_max, segment.max() if len(segment) else -math.inf)
        middle_sum = lower_sum + float(segment.sum())
        fill = middle_max * (middle - 1) - middle_sum if middle > 1 else 0.0
        if fill >= volume:
            upper = middle - 1
        else:
            lower, lower_max, lower_sum = middle, middle_max, middle_sum
    raise DoesNotEnd("lower := middle = lower")


class _Basin:
    """One class in Algorithm 3."""

    def __init__(self, C: np.ndarray, pivot: Pivot, rng: np.random.Generator) -> None:
        self.C, self.n, self._pivot, self._rng = np.array(C, dtype=float), len(C), pivot, rng
        self.lower, self.upper, self.lower_max, self.lower_sum = 1, len(C), -math.inf, 0.0
        self.divide()

    def divide(self) -> None:
        """Lines 3 to 6, and 29 to 31 or 35 to 37; an empty segment is not divided, and its pivot is its end."""
        is_empty = self.lower > self.upper
        middle = self.lower if is_empty else partition(self.C, self.lower, self.upper, self._pivot, self._rng)
        segment = self.C[self.lower - 1 : middle - 1]
        self.middle = middle
        self.middle_max = max(self.lower_max, segment.max() if len(segment) else -math.inf)
        self.middle_sum = self.lower_sum + float(segment.sum())

    def volume(self) -> float:
        return self.middle_max * (self.middle - 1) - self.middle_sum if self.middle > 1 else 0.0

    def go(self, direction: int, *, is_mended: bool) -> None:
        """Lines 27 and 28, or 33 and 34: up lowers ``upper``, as printed; the other way round where mended."""
        if (direction > 0) != is_mended:
            self.upper = self.middle - 1
        else:
            self.lower, self.lower_max, self.lower_sum = self.middle, self.middle_max, self.middle_sum
        self.divide()

    def next_is(self) -> float:
        """C[lower], in order."""
        return float(np.sort(self.C)[self.lower - 1])


def find_gamma_and_bias(
    y: np.ndarray,
    C: np.ndarray,
    volume: float,
    pivot: Pivot,
    rng: np.random.Generator,
    *,
    is_mended: bool = False,
) -> tuple[float, float]:
    """Algorithm 3; ``is_mended`` swaps the branches of lines 27 and 33, which is not all that it needs."""
    plus, minus = _Basin(C[y > 0], pivot, rng), _Basin(C[y < 0], pivot, rng)
    for _ in range(_MOST_ROUNDS):
        if plus.lower >= plus.upper and minus.lower >= minus.upper:  # line 7
            break
        up, down = _directions(plus, minus, volume)
        if up:
            plus.go(up, is_mended=is_mended)
        if down:
            minus.go(down, is_mended=is_mended)
    else:
        raise DoesNotEnd("neither segment shrinks")
    with np.errstate(invalid="ignore", divide="ignore"):
        covered = np.float64(plus.lower - 1)
        rise = (volume + plus.lower_sum + minus.lower_sum) / covered - plus.lower_max - minus.lower_max
        rises = [
            min(rise, basin.next_is() - basin.lower_max) if basin.lower < basin.n else rise for basin in (plus, minus)
        ]
        of_plus = plus.lower_max + 0.5 * (rise + rises[0] - rises[1])
        of_minus = minus.lower_max + 0.5 * (rise - rises[0] + rises[1])
    return float(0.5 * (of_plus + of_minus)), float(0.5 * (of_minus - of_plus))


def _directions(plus: _Basin, minus: _Basin, volume: float) -> tuple[int, int]:
    """Lines 8 to 25."""
    up = 1 if plus.middle < minus.lower else -1 if plus.middle > minus.upper else 0
    down = 1 if minus.middle < plus.lower else -1 if minus.middle > plus.upper else 0
    if up or down:
        return up, down
    sign = -1 if plus.volume() + minus.volume() >= volume else 1
    first = plus.middle * -sign > minus.middle * -sign  # the larger of the two goes down, the smaller up
    if first:
        return sign, 0
    if plus.middle != minus.middle:
        return 0, sign
    return (sign, 0) if plus.upper - plus.lower > minus.upper - minus.lower else (0, sign)


# -- Algorithm 1 -------------------------------------------------------------------------------------------------------


def optimize(
    K: np.ndarray,
    y: np.ndarray,
    T: int,
    nu: float,
    rng: np.random.Generator,
    *,
    has_bias: bool,
    is_strict: bool = False,
    pivot: Pivot | None = None,
) -> Model:
    """Algorithm 1 on a kernel matrix; ``NothingToDraw`` where line 6 has no rows.

    Levels come from the closed forms, or, with a ``pivot``, from Algorithms 2 and 3 as printed: ``DoesNotEnd``.
    """

    def found(c: np.ndarray) -> tuple[float, float]:
        if has_bias:
            return level_and_bias(y, c, n * nu) if pivot is None else find_gamma_and_bias(y, c, n * nu, pivot, rng)
        return (level(c, n * nu) if pivot is None else find_gamma(c, n * nu, pivot, rng)), 0.0

    n, norm = len(y), np.diag(K)
    eta_0 = 1 / math.sqrt(norm.max())
    alpha, c, r = np.zeros(n), np.zeros(n), 0.0
    mean_alpha, mean_c = np.zeros(n), np.zeros(n)
    for t in range(1, T + 1):
        eta = eta_0 / math.sqrt(t)
        gamma, bias = found(c)
        sign = float(rng.choice([-1.0, 1.0])) if has_bias else 0.0  # each class with probability 1/2
        edge = gamma if is_strict else gamma + _ROUNDING
        i = int(rng.choice(_under_water(c + y * bias, edge, y == sign if has_bias else y != sign)))
        alpha[i] += eta
        r = math.sqrt(max(0.0, r * r + 2 * eta * c[i] + eta * eta * K[i, i]))
        c += eta * y[i] * y * K[i]
        if r > 1:
            alpha, c, r = alpha / r, c / r, 1.0
        mean_alpha += alpha / T
        mean_c += c / T
    gamma, bias = found(mean_c)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Model(mean_alpha / gamma, mean_alpha, gamma, bias)


def _under_water(heights: np.ndarray, edge: float, is_asked: np.ndarray) -> np.ndarray:
    """Line 6: the rows under the level."""
    rows = np.flatnonzero((heights < edge) & is_asked)
    if not len(rows):
        raise NothingToDraw("no response lies strictly below the level")
    return rows
