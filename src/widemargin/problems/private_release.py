"""How much noise makes the minimiser of the mean hinge loss differentially private, and what that noise costs.

    F(w) = alpha/2 ||w||^2 + 1/n sum_i max(0, 1 - y_i w.x_i),     ||x_i|| <= R

Two data sets are neighbours if they have the same number n of rows and differ in one. ``F`` is alpha-strongly convex,
and the objectives of neighbours differ by a function with Lipschitz constant 2R/n, so that their minimisers are at most
2R/(n alpha) apart. What is released comes from a model ``w~`` with a certified gap of at most t, hence within
sqrt(2t/alpha) of the minimiser; it is brought to a grid of width h = sigma / 2^24, which moves each of the d
coefficients by at most h. For k problems on the same rows:

    D = sqrt(k) (2R/(n alpha) + 2 sqrt(2t/alpha)) + 2 h sqrt(k d),     released: h (round(w~ / h) + K)

K are independent whole numbers of the discrete Gaussian with standard deviation 2^24. They differ from those of a
rounded Gaussian by at most tau = 2^-53 in the probability of any event, for which delta pays. By the analytic Gaussian
mechanism (Balle and Wang, 2018), sigma is the least one with

    Phi(D/(2 sigma) - epsilon sigma/D) - e^epsilon Phi(-D/(2 sigma) - epsilon sigma/D)
                                                                            <= delta - (1 + e^epsilon) k d tau

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
from widemargin.problems.discrete_gaussian import DEVIATION, STEPS
from widemargin.rounding import gamma

_SHARE_OF_GAP = 0.05  # of the sensitivity that the gap of the solution may add
_LEAST_GAP = 1e-9  # that a network is asked to certify
_ROUNDINGS = 16.0  # a gap must be so many times what rounding takes from the bounds of a certificate
_WIDTH = 20.0  # R ||w|| that the suggested alpha expects
_SAFETY = 1 + 1e-9  # sigma is found to twelve digits, and rounded up
_LEAST_EPSILON, _MOST_EPSILON = 1e-9, 700.0  # between which nothing overflows
_MOST_ROWS = 1 << 53  # and as many features and problems
_MOST_SHARE = 2.0**-4  # of the sensitivity that the grid may add
_ROUNDED_NOISE = 1 + 2.0**-21  # the excess by noise that is rounded to the grid, over that by noise that is not
_MOST_STEPS = 2.0**52  # of the grid to a coefficient: their number is exact in float64
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

    It minimises the sum of the penalty alpha/2 ||w||^2 of a model with ``R ||w|| = 20`` and of the typical score of the
    noise, 2 R^2 sigma_1 / (n alpha); ``sigma_1`` is the noise at sensitivity 1.
    """
    return 2 * clip**2 / _WIDTH * math.sqrt(noise_scale(epsilon, delta) / n_rows)


def check_privacy(epsilon: float, delta: float) -> None:
    """Raise ValueError for a pair that is no epsilon and delta."""
    if not (_LEAST_EPSILON <= epsilon <= _MOST_EPSILON and 0 < delta < 1):
        raise ValueError(
            f"privacy=({epsilon:g}, {delta:g}) must be epsilon and delta, with {_LEAST_EPSILON:g} <= epsilon <= "
            f"{_MOST_EPSILON:g} and 0 < delta < 1."
        )


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
        check_privacy(self.epsilon, self.delta)
        if not (1e-100 < self.clip < 1e100 and 1e-100 < self.alpha < 1e100):
            raise ValueError(f"clip={self.clip:g} and alpha={self.alpha:g} must lie in (1e-100, 1e100).")
        if not all(1 <= each <= _MOST_ROWS for each in (self.n_rows, self.n_features, self.n_problems)):
            raise ValueError("A release needs at least one row, one feature and one problem, and less than 2^53.")
        if not self.gap < 1:
            raise ValueError(
                f"alpha={self.alpha:g} is too small for {self.n_rows} rows: a model of noise alone would do as well."
            )
        if 2 * self._deviation > self.delta:
            raise ValueError(
                f"privacy=({self.epsilon:g}, {self.delta:g}): an epsilon so large, or a delta so small, is beyond the "
                f"precision of the noise, which adds {self._deviation:.1g} to delta."
            )
        if self._share_of_grid > _MOST_SHARE or self._longest_model > _MOST_STEPS * self.step:
            raise ValueError(
                f"privacy=({self.epsilon:g}, {self.delta:g}) with alpha={self.alpha:g} and {self.n_rows} rows needs "
                f"noise that a grid of {STEPS} steps in one standard deviation cannot carry."
            )

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
        """D, the largest distance between the models of all problems on neighbouring data sets, before noise."""
        exact, apart = 2 * self.clip / (self.n_rows * self.alpha), 2 * math.sqrt(2 * self.gap / self.alpha)
        return math.sqrt(self.n_problems) * (exact + apart) / (1 - self._share_of_grid)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise in every coefficient."""
        return self.sensitivity * self._noise_scale

    @property
    def step(self) -> float:
        """h, the width of the grid: all coefficients are multiples of it."""
        return self.sigma / STEPS

    @property
    def expected_excess(self) -> float:
        """A bound on the expected F(released) - min F of each problem, on the clipped rows."""
        spread = 0.5 * self.alpha * self.n_features * self.sigma**2
        return (self._excess_on_grid + self.clip * self.sigma / math.sqrt(2 * math.pi) + spread) * _ROUNDED_NOISE

    @property
    def excess(self) -> float:
        """A bound on F(released) - min F that holds for all problems together with probability 1 - MISS."""
        quantile = float(ndtri(1 - MISS / (2 * self.n_problems)))
        linear = self.sigma * (self.clip / math.sqrt(2 * math.pi) + quantile * self._steepness)
        longest_noise = self.sigma * (math.sqrt(self.n_features) + quantile)
        return (self._excess_on_grid + linear + 0.5 * self.alpha * longest_noise**2) * _ROUNDED_NOISE

    @property
    def _deviation(self) -> float:
        """What the grid adds to delta."""
        return (1 + math.exp(self.epsilon)) * self.n_problems * self.n_features * DEVIATION

    @property
    def _noise_scale(self) -> float:
        return noise_scale(self.epsilon, self.delta - self._deviation)

    @property
    def _share_of_grid(self) -> float:
        """Of the sensitivity: 2 h sqrt(k d) / D."""
        return 2 * math.sqrt(self.n_problems * self.n_features) * self._noise_scale / STEPS

    @property
    def _longest_minimiser(self) -> float:
        """A bound on its norm.

        It is a mean of rows over alpha. And the optimum is both at least alpha/2 ||w||^2 and, by duality, at most
        1 - alpha/2 ||w||^2.
        """
        return min(self.clip / self.alpha, 1 / math.sqrt(self.alpha))

    @property
    def _longest_model(self) -> float:
        return self._longest_minimiser + math.sqrt(2 * self.gap / self.alpha)

    @property
    def _off_grid(self) -> float:
        """How far the model and the noise of one problem are moved, together, when they are rounded."""
        return 2 * math.sqrt(self.n_features) * self.step

    @property
    def _steepness(self) -> float:
        """Lipschitz constant of F around the model, but for the square of the noise."""
        return self.clip + self.alpha * (self._longest_model + self._off_grid)

    @property
    def _excess_on_grid(self) -> float:
        """A bound on F - min F of the model without noise."""
        return self.gap + self._steepness * self._off_grid

    def in_words(self) -> str:
        """One sentence for model pages and the command line."""
        return (
            f"Released with ({self.epsilon:g}, {self.delta:g})-differential privacy of single rows: noise of standard "
            f"deviation {self.sigma:.3g} in every coefficient. What was known before any row was seen: the objective "
            f"on the clipped rows is at most {self.expected_excess:.2g} above the optimum in expectation, and at most "
            f"{self.excess:.2g} with probability {1 - MISS:.0%}."
        )

    def figures(self) -> dict[str, float]:
        """All that is published beside the model."""
        derived = ("gap", "sensitivity", "sigma", "step", "expected_excess", "excess")
        return asdict(self) | {name: getattr(self, name) for name in derived}
