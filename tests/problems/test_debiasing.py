"""The statistics of the debiased 1-norm SVM: every formula against its twin, and the true parameter of the paper."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.stats import norm

from widemargin.data.shard import Shard
from widemargin.problems import debiasing
from widemargin.solvers.inverse_rows import scio_rows
from widemargin.solvers.refit import _smoothed_sums, refit

MEAN = np.array([0.2, -0.2, 0.3, 0.4, 0.5])  # of the five features that matter, Section 3 of the paper
PRINTED = np.array([0.217, -0.503, 0.397, 0.573, 0.750])


def covariance(off_diagonal, p=5):
    """Ones on the diagonal, ``off_diagonal`` between the first five features, zeros elsewhere."""
    sigma = np.eye(p)
    sigma[:5, :5] += off_diagonal * (1 - np.eye(5))
    return sigma


def paper_design(n, p, seed):
    """Rows of the paper's Section 3, and the coefficients that minimise their expected hinge loss."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = rng.normal(size=(n, p))
    X[:, :5] = X[:, :5] @ np.linalg.cholesky(covariance(0.2)).T + np.outer(y, MEAN)
    return X, y, np.append(true_coefficients(0.2), np.zeros(p - 5))


def expected_hinge(beta, sigma):
    """``E max(0, 1 - y x'beta)``: given y, the margin y x'beta is normal with mean mu'beta and variance beta'S beta."""
    mean, sd = 1 - MEAN @ beta, math.sqrt(beta @ sigma @ beta)
    return mean * norm.cdf(mean / sd) + sd * norm.pdf(mean / sd)


def true_coefficients(off_diagonal):
    """The minimiser of the expected hinge loss over all five coefficients, by a generic method."""
    sigma = covariance(off_diagonal)
    answer = minimize(expected_hinge, np.full(5, 0.3), args=(sigma,), method="BFGS", options={"gtol": 1e-10})
    return answer.x


def small(n=60, p=4, seed=0, is_sparse=False):
    """Rows with weights, some of them 0, not centred, and a beta with an intercept whose margins lie about 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * [1, 2, 0.5, 1] + [0, 3, 1, -1]
    if is_sparse:
        X[rng.random((n, p)) < 0.4] = 0
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    weight = rng.integers(0, 4, n).astype(float)
    beta = np.array([0.5, -0.2, 0.8, 0.3, 0.4])
    return Shard(sp.csr_matrix(X) if is_sparse else X, y, weight), beta, np.column_stack([X, np.ones(n)])


def unrolled(shard):
    """Every row as often as its weight says."""
    rows = np.repeat(np.arange(shard.n_rows), shard.weight.astype(int))
    return Shard(shard.X[rows], shard.y[rows], np.ones(len(rows)))


def plain_hessian(Z, y, weight, beta, h):
    u = (1 - y * (Z @ beta)) / h
    return (Z.T * (weight * norm.pdf(u))) @ Z / (weight.sum() * h)


def exact_inverse(at):
    """The inverse that an approximate one stands for."""
    return sp.csr_matrix(np.linalg.inv(at.correlation))


# -- the paper's parameter -------------------------------------------------------------------------------------------


def test_the_papers_parameter_does_not_belong_to_its_covariance():
    """With 0.2 between features the minimiser is 1.6388 S^-1 mu; the printed one is near that of 0.09."""
    true = true_coefficients(0.2)
    assert np.allclose(true, [0.1366, -0.6828, 0.3414, 0.5463, 0.7511], atol=1e-4)
    direction = np.linalg.solve(covariance(0.2), MEAN)
    assert np.allclose(true, 1.6388 * direction, atol=1e-4)
    assert np.abs(true - PRINTED).max() > 0.17
    assert expected_hinge(PRINTED, covariance(0.2)) > expected_hinge(true, covariance(0.2)) + 1e-3
    assert np.abs(true_coefficients(0.09) - PRINTED).max() < 0.006


def test_the_corrected_parameter_is_where_the_score_of_data_vanishes():
    X, y, true = paper_design(200_000, 5, 0)
    shard = Shard(X, y, np.ones(len(y)))
    for beta, is_true in ((true, True), (PRINTED, False)):
        margins = debiasing.margins_of(shard, beta, False)
        score = debiasing.score_sums(shard, margins, False) / len(y)
        error = np.sqrt(np.diag((X[margins < 1].T @ X[margins < 1]) / len(y)) / len(y))
        assert bool(np.abs(score / error).max() < 4) is is_true


# -- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_inverse_is_that_of_the_plain_hessian(is_sparse, fit_intercept):
    """Scaled, profiled and put together again, the inverse is the one of H over (x, 1)."""
    shard, beta, Z = small(is_sparse=is_sparse)
    if not fit_intercept:
        beta, Z = beta[:-1], Z[:, :-1]
    margins = debiasing.margins_of(shard, beta, fit_intercept)
    assert np.allclose(margins, shard.y * (Z @ beta))
    h = debiasing.bandwidth(margins, shard.weight)
    at = debiasing.curvature(shard, margins, h, fit_intercept)
    inverse = debiasing.full_inverse(exact_inverse(at), at)
    H = plain_hessian(Z, shard.y, shard.weight, beta, h)
    assert np.allclose(inverse @ H, np.eye(len(H)), atol=1e-6)  # rows far from the margin are left out
    assert np.allclose(np.diag(at.correlation), 1)


def test_rows_of_an_approximate_inverse_leave_nothing_in_the_intercept():
    """For any Theta, the product with H over (x, 1) is that with K, and exact for the intercept."""
    shard, beta, Z = small()
    margins = debiasing.margins_of(shard, beta, True)
    h = debiasing.bandwidth(margins, shard.weight)
    at = debiasing.curvature(shard, margins, h, True)
    theta = scio_rows(at.correlation, np.arange(4), 0.2).rescaled()
    product = debiasing.full_inverse(theta, at) @ plain_hessian(Z, shard.y, shard.weight, beta, h)
    assert np.allclose(product[:-1, -1], 0, atol=1e-6)
    assert np.isclose(product[-1, -1], 1, atol=1e-6)
    assert np.allclose(np.diag(product), 1, atol=1e-6)


def test_a_newton_step_solves_for_the_intercept_as_well():
    """On a quadratic with Hessian H, one step with the exact inverse ends at the minimiser."""
    shard, beta, Z = small()
    margins = debiasing.margins_of(shard, beta, True)
    h = debiasing.bandwidth(margins, shard.weight)
    at = debiasing.curvature(shard, margins, h, True)
    H = plain_hessian(Z, shard.y, shard.weight, beta, h)
    target = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    stepped = debiasing.one_step(beta, H @ (target - beta), debiasing.full_inverse(exact_inverse(at), at))
    assert np.allclose(stepped, target, atol=1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_score_and_variance_agree_with_their_formulas(fit_intercept):
    shard, beta, Z = small()
    if not fit_intercept:
        beta, Z = beta[:-1], Z[:, :-1]
    margins = shard.y * (Z @ beta)
    is_inside = shard.weight * (margins < 1)
    assert np.allclose(debiasing.score_sums(shard, margins, fit_intercept), Z.T @ (is_inside * shard.y))
    S = (Z.T * is_inside) @ Z
    for theta in (np.diag(np.arange(1.0, len(beta) + 1)), np.random.default_rng(2).normal(size=(len(beta), len(beta)))):
        sums = debiasing.variance_sums(shard, margins, sp.csr_matrix(theta), fit_intercept)
        assert np.allclose(sums, np.diag(theta @ S @ theta.T))


def test_thin_rows_have_the_variance_of_full_ones(monkeypatch):
    """The sparse and the dense product of :func:`variance_sums`, in one block of rows and in many."""
    rng = np.random.default_rng(0)
    shard = Shard(rng.normal(size=(50, 40)), np.ones(50), np.ones(50))
    theta = sp.csr_matrix(np.where(rng.random((41, 41)) < 0.02, 1.0, 0.0) + np.eye(41))
    margins = rng.normal(size=50)
    values = []
    for limit, size in ((1.0, 1 << 22), (0.0, 1 << 22), (0.06, 1 << 12)):
        monkeypatch.setattr(debiasing, "_DENSE", limit)
        monkeypatch.setattr(debiasing, "_BLOCK_BYTES", size)
        values.append(debiasing.variance_sums(shard, margins, theta, True))
    assert np.allclose(values[0], values[1])
    assert np.allclose(values[0], values[2])


def statistics(shard, beta):
    """All that depends on rows, in one vector."""
    margins = debiasing.margins_of(shard, beta, True)
    h = debiasing.bandwidth(margins, shard.weight)
    at = debiasing.curvature(shard, margins, h, True)
    theta = debiasing.full_inverse(scio_rows(at.correlation, np.arange(4), 0.2).rescaled(), at)
    score = debiasing.score_sums(shard, margins, True)
    sums = debiasing.variance_sums(shard, margins, theta, True)
    return np.concatenate(
        [
            [h, at.mass, at.n_effective],
            at.correlation.ravel(),
            at.scale,
            at.center,
            theta.toarray().ravel(),
            score,
            sums,
        ]
    )


def test_weights_are_frequencies():
    """Weight 2 is the row twice, weight 0 the row absent; n counts them."""
    shard, beta, _ = small()
    assert np.allclose(statistics(shard, beta), statistics(unrolled(shard), beta), rtol=1e-9, atol=1e-12)


def test_storage_does_not_matter():
    shard, beta, _ = small(is_sparse=True)
    X = shard.X.toarray()
    whole = statistics(shard, beta)
    assert np.allclose(whole, statistics(Shard(X, shard.y, shard.weight), beta), rtol=1e-10, atol=1e-12)
    pieces = [shard.X[:13], shard.X[13:14], shard.X[14:]]
    assert np.allclose(whole, statistics(Shard(pieces, shard.y, shard.weight), beta), rtol=1e-10, atol=1e-12)
    single = Shard(X.astype(np.float32), shard.y, shard.weight)
    assert np.allclose(whole, statistics(single, beta), rtol=1e-3, atol=1e-5)


def test_units_and_origins_of_features_do_not_matter():
    """A feature in other units, from another origin: coefficients and errors follow, and so do approximate inverses."""
    shard, beta, Z = small()
    units, origin = np.array([10.0, 0.1, 3.0, 1.0]), np.array([1.0, -2.0, 0.0, 5.0])
    moved = Shard(Z[:, :-1] * units + origin, shard.y, shard.weight)
    moved_beta = np.append(beta[:-1] / units, beta[-1] - (beta[:-1] / units) @ origin)
    answers = []
    for rows, start in ((shard, beta), (moved, moved_beta)):
        margins = debiasing.margins_of(rows, start, True)
        at = debiasing.curvature(rows, margins, debiasing.bandwidth(margins, rows.weight), True)
        theta = debiasing.full_inverse(scio_rows(at.correlation, np.arange(4), 0.2, tolerance=1e-9).rescaled(), at)
        n = rows.weight.sum()
        stepped = debiasing.one_step(start, debiasing.score_sums(rows, margins, True) / n, theta)
        error = debiasing.standard_errors(debiasing.variance_sums(rows, margins, theta, True), n)
        answers.append((stepped, error))
    (stepped, error), (moved_step, moved_error) = answers
    assert np.allclose(moved_step[:-1] * units, stepped[:-1])
    assert np.allclose(moved_step[-1] + moved_step[:-1] @ origin, stepped[-1])
    assert np.allclose(moved_error[:-1] * units, error[:-1])


def test_constant_features_are_known_by_an_infinite_error():
    shard, beta, Z = small()
    X = np.column_stack([Z[:, :-1], np.full(len(Z), 7.3), np.zeros(len(Z))])
    wide, beta = Shard(X, shard.y, shard.weight), np.append(beta[:-1], [0, 0, beta[-1]])
    margins = debiasing.margins_of(wide, beta, True)
    at = debiasing.curvature(wide, margins, debiasing.bandwidth(margins, wide.weight), True)
    assert list(at.scale > 0) == [True] * 4 + [False] * 2
    theta = debiasing.full_inverse(scio_rows(at.correlation, np.arange(6), 0.2).rescaled(), at)
    error = debiasing.standard_errors(debiasing.variance_sums(wide, margins, theta, True), wide.weight.sum())
    assert list(np.isfinite(error)) == [True] * 4 + [False] * 2 + [True]
    found = debiasing.inference(beta, error)
    assert found.p_value[4] == 1
    assert found.lower[4] == -np.inf
    assert found.upper[4] == np.inf


# -- refit ----------------------------------------------------------------------------------------------------------


def test_smoothed_loss_score_and_hessian_belong_together():
    """Score and Hessian are differences of the loss, which is above the hinge by at most h q(0)."""
    shard, beta, Z = small()
    Z, h = Z * shard.y[:, None], 0.3
    loss, score, H = np.split(_smoothed_sums(Z, shard.weight, beta, h), [1, 6])
    hinge = shard.weight @ np.maximum(0, 1 - Z @ beta)
    assert hinge <= loss[0] <= hinge + shard.weight.sum() * h * norm.pdf(0)
    for k in range(5):
        ahead, behind = beta + 1e-5 * np.eye(5)[k], beta - 1e-5 * np.eye(5)[k]
        more, less = (_smoothed_sums(Z, shard.weight, at, h) for at in (ahead, behind))
        assert np.isclose((more[0] - less[0]) / 2e-5, -score[k], rtol=1e-5, atol=1e-6)
        assert np.allclose((more[1:6] - less[1:6]) / 2e-5, -H.reshape(5, 5)[k], rtol=1e-4, atol=1e-4)


def noisy(n=4000, seed=0):
    """A shard of the paper's design with features shifted, and a start of half the true coefficients."""
    X, y, true = paper_design(n, 8, seed)
    true = np.append(true, -0.5 * true.sum())
    return Shard(X + 0.5, y, np.ones(n)), 0.5 * true, true


def test_a_refit_is_nearly_the_unpenalised_fit_and_keeps_zeros():
    shard, start, true = noisy()
    fitted, is_fitted = refit(shard, start, True)
    assert is_fitted
    assert (fitted[5:8] == 0).all()

    def hinge(beta):
        return np.maximum(0, 1 - debiasing.margins_of(shard, beta, True)).mean()

    # The optimum over the kept ones by a generic method, started at the refit and elsewhere.
    kept = np.flatnonzero(start)
    best = np.inf
    for begin in (fitted, start):
        full = begin.copy()

        def at(values, full=full):
            full[kept] = values
            return hinge(full)

        best = min(best, minimize(at, begin[kept], method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-6}).fun)
    assert hinge(fitted) <= best + 1e-4
    assert hinge(start) > best + 1e-3
    assert np.abs(fitted - true).max() < 0.15  # about four standard errors


def test_a_refit_is_that_of_all_rows_wherever_they_are():
    """With sums over two who hold rows, each finds what one who holds all does; weights are frequencies."""
    shard, start, _ = noisy(600)
    weight = np.random.default_rng(0).integers(0, 3, 600).astype(float)
    shard = Shard(shard.X, shard.y, weight)
    whole, _ = refit(shard, start, True)
    assert np.allclose(refit(unrolled(shard), start, True)[0], whole, atol=1e-10)
    assert np.allclose(refit(Shard(sp.csr_matrix(shard.X), shard.y, weight), start, True)[0], whole, atol=1e-10)
    halves = Shard([shard.X[:250], shard.X[250:]], shard.y, weight)
    assert np.allclose(refit(halves, start, True)[0], whole, atol=1e-10)
    both = Solved(2)
    found = both.run(lambda rank, total: refit(shard.take(np.arange(600)[rank::2]), start, True, total)[0])
    assert np.allclose(found[0], whole, atol=1e-9)
    assert np.array_equal(found[0], found[1])


class Solved:
    """Two or more threads whose sums wait for each other."""

    def __init__(self, size):
        self.size, self.parts, self.barrier = size, [None] * size, threading.Barrier(size)

    def run(self, task):
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(lambda rank: task(rank, lambda values: self._sum(rank, values)), range(self.size)))

    def _sum(self, rank, values):
        self.parts[rank] = values
        self.barrier.wait(timeout=60)
        result = sum(self.parts[1:], self.parts[0])
        self.barrier.wait(timeout=60)
        return result


def test_what_has_no_refit_comes_back_as_it_was():
    shard, start, _ = noisy(200)
    separable = Shard(shard.X, np.where(shard.X[:, 4] > 0.5, 1.0, -1.0), shard.weight)
    found, is_fitted = refit(separable, start, True)
    assert not is_fitted
    assert np.array_equal(found, start)
    nothing = np.zeros(8)
    assert np.array_equal(refit(shard, nothing, False)[0], nothing)


# -- bandwidth, thresholds, intervals --------------------------------------------------------------------------------


def test_bandwidth_is_silvermans_rule():
    margins = np.random.default_rng(0).normal(size=100)
    assert np.isclose(debiasing.bandwidth(margins, np.ones(100)), 1.06 * margins.std(ddof=1) * 100**-0.2)


@pytest.mark.parametrize(
    ("margins", "weight"), [(np.zeros(5), np.ones(5)), (np.full(5, 0.1), np.ones(5)), (np.arange(2.0), [1.0, 0])]
)
def test_margins_that_do_not_vary_are_refused(margins, weight):
    with pytest.raises(ValueError, match="nothing can be debiased"):
        debiasing.bandwidth(margins, np.asarray(weight, dtype=float))


def test_margins_far_from_the_hinge_are_refused():
    shard, _, _ = small()
    with pytest.raises(ValueError, match="No margin is near 1"):
        debiasing.curvature(shard, np.full(shard.n_rows, 50.0), 0.1, True)


def test_the_constraint_has_the_papers_rate():
    """In the paper's design, where the effective number of rows is close to n h."""
    X, y, true = paper_design(20_000, 8, 0)
    shard = Shard(X, y, np.ones(len(y)))
    margins = debiasing.margins_of(shard, true, False)
    h = debiasing.bandwidth(margins, shard.weight)
    at = debiasing.curvature(shard, margins, h, False)
    assert np.isclose(at.n_effective, 2 * math.sqrt(math.pi) * at.mass * len(y) * h, rtol=0.05)
    assert np.isclose(at.n_effective, len(y) * h, rtol=0.25)
    assert np.isclose(debiasing.inverse_constraint(500, 1000), 0.8 * math.sqrt(math.log(500) / 1000))
    assert 0 < debiasing.inverse_constraint(1, 1000) < 1
    few = debiasing.inverse_constraint(500, 2.0)
    assert scio_rows(at.correlation, np.arange(8), few).theta.nnz == 8


def test_the_intercept_follows_kept_features_only_and_can_be_moved_to_others():
    """One step over all features, or over none and moved afterwards, is the same."""
    shard, beta, _ = small()
    margins = debiasing.margins_of(shard, beta, True)
    at = debiasing.curvature(shard, margins, debiasing.bandwidth(margins, shard.weight), True)
    score = debiasing.score_sums(shard, margins, True) / shard.weight.sum()
    everything = debiasing.one_step(beta, score, debiasing.full_inverse(exact_inverse(at), at))
    for kept in (np.zeros(4, dtype=bool), np.array([True, False, True, False])):
        some = debiasing.one_step(beta, score, debiasing.full_inverse(exact_inverse(at), at, kept))
        assert np.allclose(some[:-1], everything[:-1])
        followed = np.where(kept, some[:-1], beta[:-1])
        moved = debiasing.intercept_after(some[-1], at.center, followed, some[:-1])
        assert np.isclose(moved, everything[-1])


def test_thresholds_keep_what_they_say():
    beta = np.array([0.5, -2.0, 0.1, 1.0])
    assert np.array_equal(debiasing.count_threshold(beta, 2), [0, -2.0, 0, 1.0])
    assert np.array_equal(debiasing.count_threshold(beta, 0), np.zeros(4))
    assert np.array_equal(debiasing.count_threshold(beta, 9), beta)
    level = math.sqrt(2 * math.log(4))
    assert np.array_equal(debiasing.z_threshold(beta, np.full(4, 0.9 / level)), [0, -2.0, 0, 1.0])
    assert np.array_equal(debiasing.z_threshold(beta, np.full(4, np.inf)), np.zeros(4))


def test_intervals_and_p_values_are_those_of_the_normal_distribution():
    estimate, error = np.array([1.0, -0.3, 0.0]), np.array([0.5, 0.1, 2.0])
    found = debiasing.inference(estimate, error, level=0.9)
    assert np.allclose(found.upper - estimate, norm.ppf(0.95) * error)
    assert np.allclose(estimate - found.lower, norm.ppf(0.95) * error)
    assert np.allclose(found.p_value, 2 * norm.sf(np.abs(estimate) / error))
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=r"\(0, 1\)"):
            debiasing.inference(estimate, error, level)


# -- what it is for --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_step_from_shrunken_coefficients_takes_the_shrinking_back(seed):
    """From 0.8 of the truth one step comes within four standard errors of it, intercept included."""
    X, y, true = paper_design(20_000, 30, seed)
    shard = Shard(X + 1.0, y, np.ones(len(y)))  # a shift of all features is the intercept's to take
    true = np.append(true, -true.sum())
    start = 0.8 * true
    margins = debiasing.margins_of(shard, start, True)
    h = debiasing.bandwidth(margins, shard.weight)
    at = debiasing.curvature(shard, margins, h, True)
    c = debiasing.inverse_constraint(30, at.n_effective)
    theta = debiasing.full_inverse(scio_rows(at.correlation, np.arange(30), c).rescaled(), at, start[:-1] != 0)
    stepped = debiasing.one_step(start, debiasing.score_sums(shard, margins, True) / len(y), theta)
    assert np.linalg.norm(stepped[:5] - true[:5]) < 0.4 * np.linalg.norm(start[:5] - true[:5])
    error = debiasing.standard_errors(debiasing.variance_sums(shard, margins, theta, True), len(y))
    assert (np.abs(stepped[5:-1]) < 4 * error[5:-1]).all()
    assert abs(stepped[-1] - true[-1]) < 0.4 * abs(start[-1] - true[-1])
    assert np.array_equal(np.flatnonzero(debiasing.z_threshold(stepped[:-1], error[:-1])), np.arange(5))
