"""How much noise makes the minimiser of the mean hinge loss differentially private, and what that noise costs.

    F(w) = alpha/2 ||w||^2 + 1/n sum_i max(0, 1 - y_i w.x_i),    ||x_i|| <= R,    released: w~ + z,  z ~ N(0, sigma^2 I)

Two data sets are neighbours if they differ in one row. ``F`` is alpha-strongly convex, and the objectives of neighbours
differ by a function with Lipschitz constant 2R/n, so that their minimisers are at most 2R/(n alpha) apart. What is
released is not the minimiser but a model ``w~`` with a certified gap of at most t, hence within sqrt(2t/alpha) of it.
Together:

    sensitivity = 2R/(n alpha) + 2 sqrt(2t/alpha)        times sqrt(k) for k problems on the same rows

The noise is that of the analytic Gaussian mechanism (Balle and Wang, 2018), which is exact: the least sigma with

    Phi(D/(2 sigma) - epsilon sigma/D) - e^epsilon Phi(-D/(2 sigma) - epsilon sigma/D) <= delta,   D = sensitivity

Everything here follows from epsilon, delta, n, d, k, alpha and R: nothing depends on the rows. ``docs/privacy.md`` has
the proofs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from widemargin.codec import record
from widemargin.exceptions import ModelFileError
from widemargin.rounding import gamma

_SHARE_OF_GAP = 0.05  # of the sensitivity that the gap of the solution may add
_LEAST_GAP = 1e-9  # that a network is asked to certify
_ROUNDINGS = 16.0  # a gap must be so many times what rounding takes from the bounds of a certificate
_WIDTH = 20.0  # R ||w|| that the suggested alpha expects; chosen on public data sets (benchmarks/privacy.py)
_SAFETY = 1 + 1e-9  # sigma is found to twelve digits, and rounded up
MISS = 0.05  # the probability with which the released model is worse than its bound


def log_delta(sigma: float, epsilon: float) -> float:
    """The logarithm of the least delta for noise ``sigma`` at sensitivity 1; minus infinity if it underflows."""
    inner = float(log_ndtr(0.5 / sigma - epsilon * sigma))
    outer = epsilon + float(log_ndtr(-0.5 / sigma - epsilon * sigma))
    return inner + math.log(-math.expm1(outer - inner)) if outer < inner else -math.inf


def noise_scale(epsilon: float, delta: float) -> float:
    """The sigma of the analytic Gaussian mechanism at sensitivity 1, rounded up."""
    target = math.log(delta)

    def excess(log_sigma: float) -> float:
        return max(log_delta(math.exp(log_sigma), epsilon), 2 * target - 1) - target

    low = high = -0.5 * math.log(epsilon) if epsilon > 1 else -math.log(epsilon)
    while excess(low) <= 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return math.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-13)) * _SAFETY


def suggested_alpha(n_rows: int, epsilon: float, delta: float, clip: float = 1.0) -> float:
    """A weight of the penalty that depends on no row: 0.1 R^2 sqrt(sigma_1 / n).

    It balances the penalty alpha/2 ||w||^2 of a model with ``R ||w|| = 20`` against the noise, whose typical score
    2 R^2 sigma_1 / (n alpha) grows as alpha falls; ``sigma_1`` is the noise at sensitivity 1.
    """
    return 2 * clip**2 / _WIDTH * math.sqrt(noise_scale(epsilon, delta) / n_rows)


def _check(release: Release) -> None:
    try:
        release.validate()
    except ValueError as error:
        raise ModelFileError(str(error).rstrip(".")) from None


@record(check=_check)
@dataclass(frozen=True)
class Release:
    """The terms of a private release, and everything that is published with the model: nothing depends on the rows.

    Parameters
    ----------
    epsilon, delta : float
        Of differential privacy, for data sets of ``n_rows`` rows that differ in one row.
    clip : float
        R, the largest norm of a row, the constant feature included.
    alpha : float
        Weight of the penalty.
    n_rows, n_features, n_problems : int
        Rows of all peers; features, the constant one included; 1 for two classes, else one problem for each class.

    Examples
    --------
    >>> from widemargin.problems.private_release import Release
    >>> release = Release(1.0, 1e-5, clip=1.0, alpha=1e-3, n_rows=32_561, n_features=124)
    >>> round(release.sensitivity, 4), round(release.sigma, 4)
    (0.0645, 0.2406)
    """

    epsilon: float
    delta: float
    clip: float
    alpha: float
    n_rows: int
    n_features: int
    n_problems: int = 1

    def validate(self) -> None:
        """Raise ValueError for terms that no release has."""
        if not (0 < self.epsilon < math.inf and 0 < self.delta < 1):
            raise ValueError(
                f"privacy=({self.epsilon:g}, {self.delta:g}) must be epsilon and delta, with 0 < epsilon and "
                "0 < delta < 1."
            )
        if not (0 < self.clip < math.inf and 0 < self.alpha < math.inf):
            raise ValueError(f"clip={self.clip:g} and alpha={self.alpha:g} must be positive and finite.")
        if min(self.n_rows, self.n_features, self.n_problems) < 1:
            raise ValueError("A release needs at least one row, one feature and one problem.")

    @property
    def gap(self) -> float:
        """The absolute gap t that must be certified before anything is released."""
        scores = 1 + 2 * self.clip * self._longest_minimiser
        rounding = gamma(2 * self.n_features + 16) * scores + gamma(self.n_rows + 8)
        wanted = (_SHARE_OF_GAP * self.clip / self.n_rows) ** 2 / (2 * self.alpha)
        return max(wanted, _LEAST_GAP, _ROUNDINGS * rounding)

    @property
    def tol(self) -> float:
        """The relative gap that implies ``gap``: the optimum is at most F(0) = 1."""
        return self.gap / (1 + self.gap)

    @property
    def sensitivity(self) -> float:
        """The largest distance between the models of all problems on neighbouring data sets, before noise."""
        exact, apart = 2 * self.clip / (self.n_rows * self.alpha), 2 * math.sqrt(2 * self.gap / self.alpha)
        return math.sqrt(self.n_problems) * (exact + apart)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise in every coefficient."""
        return self.sensitivity * noise_scale(self.epsilon, self.delta)

    @property
    def expected_excess(self) -> float:
        """A bound on the expected F(released) - min F of each problem, on the clipped rows."""
        spread = 0.5 * self.alpha * self.n_features * self.sigma**2
        return self.gap + self.clip * self.sigma / math.sqrt(2 * math.pi) + spread

    @property
    def excess(self) -> float:
        """A bound on F(released) - min F that holds for all problems together with probability 1 - MISS."""
        quantile = float(ndtri(1 - MISS / (2 * self.n_problems)))
        longest = self._longest_minimiser + math.sqrt(2 * self.gap / self.alpha)
        steepness = self.clip + self.alpha * longest  # of F in z, but for the square of z
        linear = self.sigma * (self.clip / math.sqrt(2 * math.pi) + quantile * steepness)
        longest_noise = self.sigma * (math.sqrt(self.n_features) + quantile)
        return self.gap + linear + 0.5 * self.alpha * longest_noise**2

    @property
    def _longest_minimiser(self) -> float:
        """A bound on its norm: it is a mean of rows over alpha, and F is at most F(0) = 1 there."""
        return min(self.clip / self.alpha, math.sqrt(2 / self.alpha))

    def in_words(self) -> str:
        """One sentence for model pages and the command line."""
        return (
            f"Released with ({self.epsilon:g}, {self.delta:g})-differential privacy of single rows: noise of standard "
            f"deviation {self.sigma:.3g} in every coefficient. Before any row was seen, its objective on the clipped "
            f"rows was bound to be at most {self.expected_excess:.2g} above the optimum in expectation, and "
            f"{self.excess:.2g} with probability {1 - MISS:.0%}."
        )

    def figures(self) -> dict[str, float]:
        """All that is published beside the model."""
        derived = ("gap", "sensitivity", "sigma", "expected_excess", "excess")
        return asdict(self) | {name: getattr(self, name) for name in derived}
