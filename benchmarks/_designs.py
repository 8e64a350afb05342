"""Which rows do the simulations of the 1-norm SVM draw, and what is true of them?

All designs are two Gaussian classes, y = -1 or +1 with probability 1/2 and x given y from N(y mu, Sigma). Then z = y x
is N(mu, Sigma) whatever the label, and with d = Sigma^-1 mu and D = mu'd everything is known:

    minimiser of E max(0, 1 - z'b)    t d,   the margin z'b being N(tD, t^2 D)
                                      sqrt(D) Phi(a) = phi(a)  for  a = (1 - tD) / (t sqrt(D)),   one root
    Hessian there                     f (Sigma + k mu mu'),    k = 1 / (tD)^2 - 1 / D,   f the density of margins at 1
    its inverse                       (Sigma^-1 - k t^2 D d d') / f
    intercept                         0, and the Hessian has nothing between it and the coefficients

The paper [1] has mu = (.2, -.2, .3, .4, .5, 0, ...) and Sigma the identity but for .2 between the first five. The
coefficients it prints do not belong to that Sigma, but to about .1; those here do. The other designs have the same d up
to a factor that makes their classes as far apart (the same D), so that the same five coefficients are not zero:
autoregressive Sigma_jk = .5^|j - k|, and equicorrelated .3.

[1] Lian, Fan: Divide-and-Conquer for Debiased l1-norm Support Vector Machine in Ultra-high Dimensions, 2018.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solveh_banded
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import log_ndtr, ndtr

PAPER_MU = np.array([0.2, -0.2, 0.3, 0.4, 0.5])
PRINTED = np.array([0.217, -0.503, 0.397, 0.573, 0.750])  # the coefficients that the paper prints
N_SIGNALS = len(PAPER_MU)


@dataclass(frozen=True)
class Design(ABC):
    """Two Gaussian classes in ``p`` dimensions; subclasses say what Sigma is."""

    p: int
    rho: float

    # -- what Sigma is

    @abstractmethod
    def covariance_times(self, v: np.ndarray) -> np.ndarray:
        """``Sigma v``."""

    @abstractmethod
    def precision_times(self, v: np.ndarray) -> np.ndarray:
        """``Sigma^-1 v``."""

    @abstractmethod
    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` rows from N(0, Sigma)."""

    # -- what follows

    @cached_property
    def direction(self) -> np.ndarray:
        """d, of which the minimiser is a multiple."""
        paper = Paper(self.p)
        d = paper.direction
        return d * math.sqrt(paper.distance / float(d @ self.covariance_times(d)))

    @cached_property
    def mu(self) -> np.ndarray:
        return self.covariance_times(self.direction)

    @cached_property
    def distance(self) -> float:
        """D, the squared distance of a class from the origin, by Mahalanobis."""
        return float(self.direction @ self.mu)

    @cached_property
    def multiple(self) -> float:
        """t, by which the minimiser is longer than d."""
        half = math.sqrt(self.distance)

        def slope(a: float) -> float:
            return -0.5 * a * a - 0.5 * math.log(2 * math.pi) - log_ndtr(a) - math.log(half)

        a = brentq(slope, -40.0, 40.0, xtol=1e-14)
        return 1 / (half * (a + half))

    @property
    def coef(self) -> np.ndarray:
        """The minimiser of the expected hinge loss; its intercept is 0."""
        return self.multiple * self.direction

    def rows(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """``n`` rows with their labels."""
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        X = self.noise(n, rng)
        for begin in range(0, n, 500):  # no second array of that size
            X[begin : begin + 500] += y[begin : begin + 500, None] * self.mu
        return X, y

    def error(self, coef: np.ndarray, intercept: float = 0.0) -> float:
        """The probability that a fresh row is classified wrongly."""
        spread = math.sqrt(float(coef @ self.covariance_times(coef)))
        if spread == 0.0:
            return 0.5
        ahead = float(coef @ self.mu)
        return 0.5 * float(ndtr(-(ahead + intercept) / spread) + ndtr(-(ahead - intercept) / spread))

    def expected_loss(self, coef: np.ndarray) -> tuple[float, np.ndarray]:
        """``E max(0, 1 - y x'b)`` of coefficients that are not all zero, and its gradient."""
        covered = self.covariance_times(coef)
        spread, ahead = math.sqrt(float(coef @ covered)), float(coef @ self.mu)
        a = (1 - ahead) / spread
        below, density = float(ndtr(a)), math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
        return (1 - ahead) * below + spread * density, density / spread * covered - below * self.mu

    def inverse_hessian_times(self, v: np.ndarray) -> np.ndarray:
        """The inverse of the true Hessian at the minimiser, times ``v``."""
        t, D, d = self.multiple, self.distance, self.direction
        sd = t * math.sqrt(D)
        density = math.exp(-0.5 * ((1 - t * D) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
        k = 1 / (t * D) ** 2 - 1 / D
        return (self.precision_times(v) - k * sd**2 * float(d @ v) * d) / density


@dataclass(frozen=True)
class Paper(Design):
    """The identity, but for ``rho`` between the first five."""

    rho: float = 0.2

    @cached_property
    def _block(self) -> np.ndarray:
        return np.full((N_SIGNALS, N_SIGNALS), self.rho) + (1 - self.rho) * np.eye(N_SIGNALS)

    @cached_property
    def direction(self) -> np.ndarray:
        return self.precision_times(np.concatenate([PAPER_MU, np.zeros(self.p - N_SIGNALS)]))

    def covariance_times(self, v: np.ndarray) -> np.ndarray:
        return np.concatenate([self._block @ v[:N_SIGNALS], v[N_SIGNALS:]])

    def precision_times(self, v: np.ndarray) -> np.ndarray:
        return np.concatenate([np.linalg.solve(self._block, v[:N_SIGNALS]), v[N_SIGNALS:]])

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((n, self.p))
        X[:, :N_SIGNALS] = X[:, :N_SIGNALS] @ np.linalg.cholesky(self._block).T
        return X


@dataclass(frozen=True)
class Autoregressive(Design):
    """``rho^|j - k|``, of which the inverse has three diagonals."""

    rho: float = 0.5

    def covariance_times(self, v: np.ndarray) -> np.ndarray:
        # Sums from the left and from the right, the element itself in both.
        left = lfilter([1.0], [1.0, -self.rho], v)
        right = lfilter([1.0], [1.0, -self.rho], v[::-1])[::-1]
        return left + right - v

    def precision_times(self, v: np.ndarray) -> np.ndarray:
        out = (1 + self.rho**2) * v
        out[[0, -1]] -= self.rho**2 * v[[0, -1]]
        out[1:] -= self.rho * v[:-1]
        out[:-1] -= self.rho * v[1:]
        return out / (1 - self.rho**2)

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((n, self.p))
        X[:, 1:] *= math.sqrt(1 - self.rho**2)
        return lfilter([1.0], [1.0, -self.rho], X, axis=1)


@dataclass(frozen=True)
class Equicorrelated(Design):
    """``rho`` between any two."""

    rho: float = 0.3

    def covariance_times(self, v: np.ndarray) -> np.ndarray:
        return (1 - self.rho) * v + self.rho * v.sum()

    def precision_times(self, v: np.ndarray) -> np.ndarray:
        return (v - self.rho * v.sum() / (1 - self.rho + self.rho * self.p)) / (1 - self.rho)

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((n, self.p))
        X *= math.sqrt(1 - self.rho)
        X += math.sqrt(self.rho) * rng.standard_normal((n, 1))
        return X


DESIGNS: dict[str, type[Design]] = {
    "paper": Paper,
    "autoregressive .5": Autoregressive,
    "equicorrelated .3": Equicorrelated,
}


def make(name: str, p: int) -> Design:
    """A design by its name."""
    return DESIGNS[name](p)


# -- Table 1 of the paper ----------------------------------------------------------------------------------------------

TABLE_1 = {
    "autoregressive": dict.fromkeys((50, 100, 200, 500, 1000, 5000), 5.578),
    "banded": dict.fromkeys((50, 100, 200, 500, 1000, 5000), 5.889),
    "exchangeable": {50: 7.066, 100: 7.230, 200: 7.316, 500: 7.368, 1000: 7.385, 5000: 7.399},
}


def norm_of_inverse(case: str, p: int, rho: float = 0.3) -> float:
    """The 1-norm of the inverse of E[x x' | x'b = 1], x from N(0, S), b five ones: S^-1 + (1 - 1 / b'Sb) b b'.

    What the paper calls banded has ``rho`` beside the diagonal here, which gives its numbers.
    """
    b = np.zeros(p)
    b[:N_SIGNALS] = 1.0
    if case == "banded":
        precision = solveh_banded(np.vstack([np.full(p, rho), np.ones(p)]), np.eye(p))
        spread = N_SIGNALS + 2 * rho * (N_SIGNALS - 1)
    else:
        design: Design = Autoregressive(p, rho) if case == "autoregressive" else Equicorrelated(p, rho)
        columns = np.unique([0, 1, 2, 3, 4, 5, 6, p // 2, p - 2, p - 1])  # all others are like one of these
        precision = np.stack([design.precision_times(e) for e in np.eye(p)[columns]])
        spread = float(b @ design.covariance_times(b))
        return float(np.abs(precision + (1 - 1 / spread) * np.outer(b[columns], b)).sum(axis=1).max())
    precision[:N_SIGNALS, :N_SIGNALS] += 1 - 1 / spread
    return float(np.abs(precision).sum(axis=1).max())
