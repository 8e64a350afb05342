"""The certificate of a debiased model: both bounds against linear programs and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from widemargin.comm.threads import on_ranks
from widemargin.data.shard import Shard
from widemargin.solvers import refit


def least_loss(X, y, weight, reach, fit_intercept):
    """The least mean hinge loss of models whose 1-norm is at most ``reach``, as a linear program."""
    n, p = X.shape
    signed = y[:, None] * np.column_stack([X, np.ones(n)]) if fit_intercept else y[:, None] * X
    k = signed.shape[1]
    cost = np.concatenate([np.zeros(2 * k), weight / weight.sum()])
    above = np.hstack([-signed, signed, -np.eye(n)])
    norm = np.concatenate([np.arange(k) < p, np.arange(k) < p, np.zeros(n)])
    answer = linprog(cost, np.vstack([above, norm]), np.append(-np.ones(n), reach), method="highs")
    assert answer.status == 0
    return answer.fun


def some(n=60, p=6, seed=0, noise=1.0):
    """Rows with weights, some of them 0, and coefficients of which two are zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.5
    y = np.where(X[:, 0] - X[:, 1] + noise * rng.normal(size=n) > 0, 1.0, -1.0)
    beta = np.append(np.where(np.arange(p) < p - 2, rng.normal(size=p), 0.0), 0.3)
    beta[:2] = [1.0, -1.0]
    return Shard(X, y, rng.integers(0, 4, n).astype(float)), beta


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0, 10.0])
def test_a_certificate_brackets_the_least_loss_of_its_features(seed, fit_intercept, noise):
    shard, beta = some(seed=seed, noise=noise)
    beta = beta if fit_intercept else beta[:-1]
    coef, kept = beta[:6], np.flatnonzero(beta[:6])
    found = refit.certified(shard, beta, fit_intercept)
    reach = refit.REACH * np.abs(coef).sum()
    least = least_loss(shard.X[:, kept], shard.y, shard.weight, reach, fit_intercept)
    assert found.dual <= least * (1 + 1e-9) + 1e-12
    assert least <= found.primal + 1e-12
    margins = shard.y * (shard.X @ coef + (beta[-1] if fit_intercept else 0.0))
    loss = shard.weight @ np.maximum(0, 1 - margins) / shard.weight.sum()
    assert found.primal == pytest.approx(loss, rel=1e-12)
    if noise == 10.0:
        assert found.dual > 0.95 * least  # classes that overlap leave little room


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_the_upper_bound_holds_in_exact_arithmetic(offset):
    for seed in range(20):
        shard, beta = some(25, seed=seed)
        shard = Shard(shard.X + offset, shard.y, shard.weight)
        beta[-1] -= offset * beta[:-1].sum()
        total = sum(map(Fraction, shard.weight))
        exact = Fraction(0)
        for row, label, weight in zip(shard.X, shard.y, shard.weight, strict=True):
            score = sum((Fraction(a) * Fraction(b) for a, b in zip(row, beta, strict=False)), Fraction(beta[-1]))
            exact += Fraction(weight) * max(Fraction(0), 1 - Fraction(label) * score)
        found = refit.certified(shard, beta, True)
        assert exact / total <= Fraction(found.primal)
        assert found.primal <= float(exact / total) * (1 + 1e-9) + 1e-12 * (1 + offset)


def test_an_intercept_alone_has_the_loss_of_the_smaller_class():
    shard, _ = some()
    lighter = min(shard.weight[shard.y == label].sum() for label in (-1.0, 1.0)) / shard.weight.sum()
    side = np.sign(shard.weight @ shard.y)
    found = refit.certified(shard, np.append(np.zeros(6), side), True)
    assert found.primal == pytest.approx(2 * lighter)
    assert found.dual == pytest.approx(2 * lighter)
    assert found.dual <= 2 * lighter <= found.primal


def test_separable_features_have_no_lower_bound_and_many_are_not_tried():
    shard, beta = some(noise=0.0)
    assert 0 <= refit.certified(shard, beta, True).dual < 1e-2
    overlapping, beta = some(noise=10.0)
    assert refit.certified(overlapping, beta, True).dual > 0.1
    assert refit.certified(overlapping, beta, True, bounds_below=False).dual == 0


def test_bounds_do_not_depend_on_storage_weights_or_machines():
    shard, beta = some(200, seed=3)
    whole = refit.certified(shard, beta, True)
    rows = np.repeat(np.arange(200), shard.weight.astype(int))
    others = [
        Shard(sp.csr_matrix(shard.X), shard.y, shard.weight),
        Shard(shard.X[rows], shard.y[rows], np.ones(len(rows))),
        Shard(shard.X, shard.y, 1e9 * shard.weight),
    ]
    for other in others:
        assert refit.certified(other, beta, True) == pytest.approx(whole, rel=1e-9)
    parts = [shard.take(np.arange(200)[rank::3]) for rank in range(3)]
    found = on_ranks(3, lambda comm: refit.certified(parts[comm.rank], beta, True, comm.allreduce))
    assert found[0] == pytest.approx(whole, rel=1e-9)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("exponent", [-300, -20, 20, 300])
def test_a_refit_follows_the_units_of_the_features(exponent):
    """Powers of two: every number is the same but for its exponent."""
    shard, beta = some(300, seed=1)
    unit = np.append(np.full(6, 2.0**exponent), 1.0)
    plain, is_fitted = refit.refit(shard, beta, True)
    assert is_fitted
    moved, _ = refit.refit(Shard(shard.X * unit[:-1], shard.y, shard.weight), beta / unit, True)
    assert moved * unit == pytest.approx(plain, rel=1e-9)


def test_the_loss_of_a_refit_is_not_above_that_of_its_start():
    """Also where there is hardly a row on the hinge, and steps of the Hessian there lead anywhere."""
    for seed in range(10):
        shard, beta = some(30, seed=seed, noise=0.3)
        found, _ = refit.refit(Shard(shard.X, shard.y, 1e9 * shard.weight), beta, True)

        def loss(at, shard=shard):
            return shard.weight @ np.maximum(0, 1 - shard.y * (shard.X @ at[:-1] + at[-1])) / shard.weight.sum()

        assert loss(found) <= loss(beta) + 1e-2
        assert np.abs(found).max() < 1e3
