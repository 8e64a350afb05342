"""Whole numbers with Gaussian probabilities: exactly those, from bits alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, kstest, norm

from widemargin.problems import discrete_gaussian as module
from widemargin.problems.discrete_gaussian import DEVIATION, STEPS, discrete_gaussian

LEAST_P = 1e-4  # of tests that draw from a seed: they cannot fail by chance from one run to the next


@pytest.fixture
def coarse(monkeypatch):
    """Four steps in one standard deviation, so that every number comes up often."""
    for name, value in {"_LOG_STEPS": 2, "STEPS": 4, "_BITS": 5, "_ONE": 32}.items():
        monkeypatch.setattr(module, name, value)


def bytes_of(seed):
    return np.random.default_rng(seed).bytes


def discrete(steps, most):
    """Probabilities of -most, ..., most by their definition."""
    weights = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2 * steps**2))
    return weights / weights.sum()


def rounded(steps, most):
    """The same of a Gaussian that is rounded."""
    edges = (np.arange(-most, most + 2) - 0.5) / steps
    upper = norm.cdf(edges[1:]) - norm.cdf(edges[:-1])
    lower = norm.sf(edges[:-1]) - norm.sf(edges[1:])  # as exact on the right as the other is on the left
    return np.where(edges[:-1] > 0, lower, upper)


def test_every_number_has_its_probability(coarse, seed):
    drawn = discrete_gaussian(100_000, bytes_of(seed))
    counts = np.bincount(drawn + 40, minlength=81)
    often = 100_000 * discrete(4, 40) >= 10
    expected = 100_000 * discrete(4, 40)[often]
    assert chisquare(counts[often], expected * counts[often].sum() / expected.sum()).pvalue > LEAST_P


def test_another_distribution_is_noticed(coarse):
    drawn = np.rint(4.1 * np.random.default_rng(0).normal(size=100_000)).astype(int)
    expected = 100_000 * discrete(4, 40)[20:61]
    counts = np.bincount(drawn + 40, minlength=81)[20:61]
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue < LEAST_P


def test_numbers_are_gaussian_and_independent(seed):
    drawn = discrete_gaussian(60_000, bytes_of(seed)) / STEPS
    assert kstest(drawn, "norm").pvalue > LEAST_P
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 4 / np.sqrt(len(drawn))


@pytest.mark.parametrize("x", [0.0, 2.0**-49, 0.25, 1 / 3, 1.0, 1.5, 5.7])
def test_coins_show_heads_with_their_probability(x):
    exponents = np.full(40_000, int(x * 2**49))
    heads = module._are_heads(exponents, bytes_of(1))
    assert binomtest(int(heads.sum()), len(heads), min(1.0, np.exp(-x))).pvalue > LEAST_P


@pytest.mark.parametrize("steps", [4, 8, 16, 32, 64])
def test_a_rounded_gaussian_differs_by_a_share_of_the_squared_step(steps):
    """0.0202 / s^2 plus terms in 1 / s^3, by the second derivative; with 2^24 steps this is below DEVIATION."""
    apart = 0.5 * np.abs(discrete(steps, 12 * steps) - rounded(steps, 12 * steps)).sum()
    assert apart <= 4 * norm.pdf(1) / 48 / steps**2 + 3 / 48 / steps**3
    assert apart >= 0.9 * 4 * norm.pdf(1) / 48 / steps**2
    assert 4 * norm.pdf(1) / 48 / STEPS**2 + 3 / 48 / STEPS**3 < 0.7 * DEVIATION


def test_the_system_draws_and_no_seed_repeats_it():
    np.random.seed(0)  # noqa: NPY002
    first = discrete_gaussian(50)
    np.random.seed(0)  # noqa: NPY002
    assert not np.array_equal(first, discrete_gaussian(50))
    assert len(discrete_gaussian(0)) == 0
