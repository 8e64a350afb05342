"""The mechanism: models on a grid, plus whole numbers that know nothing of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from widemargin.problems.discrete_gaussian import STEPS
from widemargin.problems.private_release import Release
from widemargin.strategies import release as module
from widemargin.strategies.release import with_noise

TERMS = Release(1.0, 1e-5, clip=1.0, alpha=1e-2, n_rows=5000, n_features=4, n_problems=3)


def drawn(models, terms=TERMS, n=4000, seed=0):
    draw = np.random.default_rng(seed).bytes
    return np.array([with_noise(models, terms, draw) for _ in range(n)])


def test_noise_has_mean_zero_and_the_same_variance_everywhere(seed):
    models = np.random.default_rng(seed).normal(size=(3, 4))
    noise = (drawn(models, n=3000, seed=seed) - models).reshape(-1, 12) / TERMS.sigma
    assert np.abs(noise.mean(axis=0)).max() < 5 / np.sqrt(len(noise))
    assert np.abs(np.cov(noise.T) - np.eye(12)).max() < 7 / np.sqrt(len(noise))
    assert min(kstest(column, "norm").pvalue for column in noise.T) > 1e-5


def test_noise_is_scaled_by_sigma():
    models = np.zeros((3, 4))
    for terms in (TERMS, replace(TERMS, epsilon=0.1), replace(TERMS, alpha=1.0)):
        assert drawn(models, terms, 500).std() == pytest.approx(terms.sigma, rel=0.03)


def test_noise_does_not_depend_on_the_model():
    """The same bytes give the same whole numbers, whatever they are added to: no value is out of reach of another."""
    one, other = np.random.default_rng(1).normal(size=(2, 3, 4)) * [[[1e-6]], [[10.0]]]
    noise = []
    for models in (one, other):
        released = with_noise(models, TERMS, np.random.default_rng(5).bytes)
        whole = np.rint(released / TERMS.step)
        assert np.array_equal(whole * TERMS.step, released)
        noise.append(whole - np.rint(models / TERMS.step))
    assert np.array_equal(*noise)
    assert TERMS.step * STEPS == TERMS.sigma


def test_a_model_is_moved_by_less_than_the_sensitivity_allows_for(monkeypatch):
    monkeypatch.setattr(module, "discrete_gaussian", lambda n, random_bytes: np.zeros(n, np.int64))
    models = np.random.default_rng(2).normal(size=(1000, 3, 4)) * 10.0 ** np.arange(-6, 4).repeat(100)[:, None, None]
    for each in models:
        assert np.abs(with_noise(each, TERMS) - each).max() <= TERMS.step
