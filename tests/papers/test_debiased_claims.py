"""Lian, Fan, 2018: rates of the propositions and the inequalities of Theorem 3, measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="designs are not in the distribution")

from benchmarks import _designs as designs
from benchmarks.baselines import debiased_as_printed

from widemargin import DebiasedSparseSVC


def slope_of(x, values):
    """Of the logarithms."""
    return float(np.polyfit(np.log(x), np.log(values), 1)[0])


def test_proposition_2_the_empirical_process_falls_as_n_to_minus_three_quarters():
    p, s = 30, designs.N_SIGNALS
    design, sizes = designs.Paper(p), (500, 2_000, 8_000, 32_000)
    at_truth = design.expected_loss(design.coef)[1]
    off = []
    for n in sizes:
        worst = []
        for repetition in range(12):
            rng = np.random.default_rng([n, repetition])
            X, y = design.rows(n, rng)
            direction = np.zeros(p)
            direction[:s] = rng.normal(size=s)
            beta = design.coef + direction * (s * math.sqrt(math.log(p) / n) / np.abs(direction).sum())
            inside = [(y * (X @ b) < 1).astype(float) for b in (beta, design.coef)]
            change = X.T @ (y * (inside[0] - inside[1])) / n
            expected = -(design.expected_loss(beta)[1] - at_truth)
            worst.append(np.abs(change - expected).max())
        off.append(np.mean(worst))
    assert slope_of(sizes, off) == pytest.approx(-0.75, abs=0.1)


def true_hessian(design, beta, step=1e-5):
    """By central differences of the exact gradient."""
    columns = []
    for unit in np.eye(design.p):
        ends = [design.expected_loss(beta + sign * step * unit)[1] for sign in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.array(columns)


def test_proposition_1_the_inverse_errs_as_the_bandwidth_allows():
    """b_n falls no slower than h = n^(-1/5), its slowest term; c is of its order, as printed."""
    p, sizes, errors = 10, (1_000, 4_000, 16_000, 64_000), []
    design = designs.Paper(p)
    truth = true_hessian(design, design.coef)
    for n in sizes:
        worst = []
        for seed in range(3):
            X, y = design.rows(n, np.random.default_rng([n, seed]))
            coef = debiased_as_printed.penalised(X, y, 0.5 * math.sqrt(math.log(p) / n))
            theta = debiased_as_printed.clime(debiased_as_printed.hessian(X, y, coef), np.arange(p), 0.5 * n**-0.2)
            worst.append(np.abs(theta @ truth - np.eye(p)).max())
        errors.append(np.mean(worst))
    assert slope_of(sizes, errors) < -0.17


@pytest.mark.filterwarnings("ignore::UserWarning")  # on few rows the threshold keeps too few
def test_theorem_1_the_debiased_estimator_errs_as_one_over_the_root_of_n():
    p, sizes, errors = 40, (1_000, 4_000, 16_000, 64_000), []
    design = designs.Paper(p)
    for n in sizes:
        off = []
        for seed in range(6):
            X, y = design.rows(n, np.random.default_rng([n, seed]))
            model = DebiasedSparseSVC(fit_intercept=False, rounds=1).fit(X, y)
            off.append(np.abs(model.coef_debiased_[0] - design.coef).max())
        errors.append(np.mean(off))
    assert slope_of(sizes, errors) == pytest.approx(-0.5, abs=0.12)


def test_proposition_3_the_hessian_changes_no_faster_than_the_coefficients():
    design = designs.Paper(8)
    at_truth = true_hessian(design, design.coef)
    distances = np.array([1e-3, 4e-3, 1.6e-2, 6.4e-2])
    assert 2 * distances.max() < np.abs(design.coef).max()  # its condition
    rng = np.random.default_rng(0)
    changes = []
    for distance in distances:
        worst = 0.0
        for _ in range(10):
            direction = rng.normal(size=design.p)
            beta = design.coef + direction * (distance / np.abs(direction).sum())
            worst = max(worst, float(np.abs(true_hessian(design, beta) - at_truth).max()))
        changes.append(worst)
    assert slope_of(distances, changes) == pytest.approx(1.0, abs=0.15)
    assert (np.array(changes) / distances).max() < 3 * (np.array(changes) / distances).min()


@pytest.mark.parametrize("seed", range(5))
def test_theorem_3_thresholding(seed):
    rng = np.random.default_rng(seed)
    p, s = 200, 7
    truth = np.zeros(p)
    truth[:s] = rng.normal(size=s)
    estimate = truth + 0.1 * rng.normal(size=p)
    least = float(np.abs(estimate - truth).max())
    for c in (least, 1.5 * least, 4 * least):
        off = np.where(np.abs(estimate) > c, estimate, 0.0) - truth
        assert np.abs(off).max() <= 2 * c
        assert np.abs(off).sum() <= 2 * s * c
        assert np.linalg.norm(off) <= 2 * math.sqrt(s) * c
    off = np.where(np.abs(estimate) > least / 3, estimate, 0.0) - truth
    assert np.abs(off).sum() > 2 * s * least / 3  # below its threshold the theorem says nothing


@pytest.mark.parametrize("rho", [0.3, -0.6])
@pytest.mark.parametrize("p", [5, 50])
def test_the_norm_of_the_inverse_of_autoregressive_correlations_is_not_as_printed(p, rho):
    """Appendix B, Case 1, has 1 / (1 - |rho|); it is (1 + |rho|) / (1 - |rho|), 1.857 at .3, for any p from 3."""
    S = rho ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))).astype(float)
    norm = np.abs(np.linalg.inv(S)).sum(axis=1).max()
    assert norm == pytest.approx((1 + abs(rho)) / (1 - abs(rho)))
    assert norm > 1.2 / (1 - abs(rho))


def test_equation_16_the_hessian_is_made_of_two_conditional_moments():
    """c_1 E[xx' | y = 1, x'b = 1] + c_2 E[xx' | y = -1, x'b = -1], at any b, with the densities of margins at 1."""
    design = designs.Paper(8)
    Sigma = np.column_stack([design.covariance_times(e) for e in np.eye(8)])
    for b in (design.coef, 0.5 * design.coef + 0.1):
        spread, found = float(b @ Sigma @ b), np.zeros((8, 8))
        for label in (1.0, -1.0):
            mean, at = label * design.mu, label
            c = 0.5 * math.exp(-((at - mean @ b) ** 2) / (2 * spread)) / math.sqrt(2 * math.pi * spread)
            given = mean + Sigma @ b * (at - mean @ b) / spread
            found += c * (np.outer(given, given) + Sigma - np.outer(Sigma @ b, Sigma @ b) / spread)
        np.testing.assert_allclose(found, true_hessian(design, b), atol=1e-6)


@pytest.mark.parametrize("case", ["autoregressive", "exchangeable"])
def test_the_inverse_of_the_conditional_moment_is_sparse_where_the_precision_and_the_coefficients_are(case):
    """Appendix B: E[xx' | x'b = 1] = S + a S b b' S, whose inverse is S^-1 - a / (1 + a b'Sb) b b'."""
    p, rho = 12, 0.3
    lag = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    S = rho ** lag.astype(float) if case == "autoregressive" else np.where(lag == 0, 1.0, rho)
    b = np.where(np.arange(p) < 5, 1.0, 0.0)
    spread = float(b @ S @ b)
    given = S @ b / spread
    moment = np.outer(given, given) + S - np.outer(S @ b, S @ b) / spread
    a = 1 / spread**2 - 1 / spread
    np.testing.assert_allclose(moment, S + a * np.outer(S @ b, b @ S), atol=1e-12)
    inverse = np.linalg.inv(S) - a / (1 + a * spread) * np.outer(b, b)
    np.testing.assert_allclose(inverse @ moment, np.eye(p), atol=1e-10)
    assert np.abs(inverse).sum(axis=1).max() == pytest.approx(designs.norm_of_inverse(case, p))
    if case == "autoregressive":
        assert np.abs(np.where((lag > 1) & (np.outer(b, b) == 0), inverse, 0.0)).max() < 1e-12
