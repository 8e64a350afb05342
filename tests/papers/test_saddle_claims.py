"""Jin, Huang, Li, 2017: the value of the saddle point is that of the hulls, and what the entropy costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.svm import NuSVC

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import saddle_nu_as_written
from benchmarks.baselines.saddle_nu_as_written import loop_12

from tests.problems_at_hand import overlapping
from widemargin import HardMarginSVC, NuMarginSVC, max_nu


@pytest.fixture(scope="module")
def rows():
    """Separable rows of length at most one."""
    X, y = overlapping(3, n=60)
    X = X + 1.5 * y[:, None]
    return X / np.linalg.norm(X, axis=1).max(), y


def solved(X, y, is_hard):
    """w*, D^2 / 2 and the cap."""
    if is_hard:
        model, cap = HardMarginSVC(tol=1e-9).fit(X, y), 1.0
    else:
        model = NuMarginSVC(nu=0.85 * max_nu(y), tol=1e-9).fit(X, y)
        cap = 1 / (0.85 * min((y > 0).sum(), (y < 0).sum()))
    distance = model.certificate_.primal
    w = model.coef_[0]
    return w * (distance / np.linalg.norm(w)), 0.5 * distance**2, cap


def least(scores, cap):
    """The least mean of scores under masses of at most ``cap``."""
    scores, whole = np.sort(scores), int(1 / cap)
    mass = np.zeros(len(scores))
    mass[:whole] = cap
    if whole < len(scores):
        mass[whole] = 1 - cap * whole
    return float(mass @ scores)


def g(X, y, w, cap):
    """What is left of (3) or (7) at w."""
    return least(X[y > 0] @ w, cap) + least(-(X[y < 0] @ w), cap) - 0.5 * float(w @ w)


@pytest.mark.parametrize("is_hard", [True, False])
def test_lemmas_2_and_5_the_saddle_point_has_the_value_of_the_hulls(rows, is_hard):
    X, y = rows
    w, value, cap = solved(X, y, is_hard)
    assert value > 1e-4
    assert g(X, y, w, cap) == pytest.approx(value, rel=1e-6)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 10.0):
        for _ in range(30):
            other = w + size * np.linalg.norm(w) * rng.normal(size=len(w))
            assert g(X, y, other, cap) <= value * (1 + 1e-6)


def with_entropy(X, y, cap, gamma):
    """w of (4) or (8): the inner optima are entropic projections, the outer one is smooth."""
    sides = [(X[y > 0], 1.0), (X[y < 0], -1.0)]

    def negative(w):
        value, slope = 0.5 * float(w @ w), w.copy()
        for points, sign in sides:
            scores = sign * (points @ w)
            mass = np.exp(-scores / gamma - logsumexp(-scores / gamma))
            mass, _ = loop_12(mass, cap)
            value -= float(mass @ scores) + gamma * float(mass @ np.log(np.maximum(mass, 1e-300)))
            slope -= sign * (mass @ points)
        return value, slope

    found = minimize(negative, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10})
    return found.x


@pytest.mark.parametrize("is_hard", [True, False])
@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.03])
def test_lemmas_3_and_15_the_entropy_costs_at_most_epsilon_of_the_value(rows, is_hard, epsilon):
    X, y = rows
    _, value, cap = solved(X, y, is_hard)
    gamma = epsilon * value / (2 * math.log(len(y)))  # beta = OPT, the largest for which the proof holds
    lost = value - g(X, y, with_entropy(X, y, cap, gamma), cap)
    assert 0 < lost <= epsilon * value


def iterations_to(X, y, epsilon, value, seed, cap=1.0):
    """Of Algorithm 2 as printed, until g(w) is at least (1 - epsilon) OPT, looked at after every tenth."""
    reached = []

    def look(t, w, back):
        if not reached and t % 10 == 0 and g(X, y, back(w), cap) >= (1 - epsilon) * value:
            reached.append(t)
        return bool(reached)

    rng, limits = np.random.default_rng(seed), {"n_iterations": 200_000, "cap": cap if cap < 1 else None}
    saddle_nu_as_written.solve([(X, y)], rng, epsilon=epsilon, beta=value, look=look, **limits)
    return reached[0]


@pytest.mark.parametrize("is_hard", [True, False])
def test_theorem_18_w_converges_as_fast_as_theta_to_the_t(rows, is_hard):
    """Both sides, and the rate: the mean of ||w - w_o||^2 over seeds falls at least as fast as theta^T."""
    X, y = rows
    _, value, cap = solved(X, y, is_hard)
    epsilon, n, d = 0.3, len(y), 1 << (X.shape[1] - 1).bit_length()
    gamma, q = epsilon * value / (2 * math.log(n)), math.sqrt(math.log(n))
    tau, sigma = math.sqrt(d / gamma) / (2 * q), math.sqrt(d * gamma) / (2 * q)
    theta = 1 - 1 / (d + q * math.sqrt(d / gamma))
    limit = with_entropy(X, y, cap, gamma)
    times = [round(factor / (1 - theta)) for factor in (0.5, 1, 2, 4)]
    squares = np.zeros((4, len(times)))
    for seed, found in enumerate(squares):

        def look(t, w, back, found=found):
            if t in times:
                found[times.index(t)] = float(np.sum((back(w) - limit) ** 2))
            return t >= times[-1]

        saddle_nu_as_written.solve(
            [(X, y)],
            np.random.default_rng(seed),
            epsilon=epsilon,
            beta=value,
            n_iterations=times[-1] + 1,
            cap=None if is_hard else cap,
            look=look,
        )
    off = squares.mean(axis=0)
    at_start = 2 * (1 / tau + 2 * gamma / d) * math.log(n) + (1 / (2 * sigma) + 1) * float(limit @ limit)
    promised = theta ** np.array(times) * at_start / (1 / (4 * sigma) + 1)
    assert (off <= promised).all()
    assert math.log(off[-1] / off[0]) / (times[-1] - times[0]) <= math.log(theta)


@pytest.mark.parametrize("cap", [1.0, 0.1])
def test_lemma_19_the_value_is_lipschitz(rows, cap):
    X, y = rows
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 1.0, 10.0):
        for _ in range(50):
            v, step = rng.normal(size=(2, X.shape[1]))
            u = v + size * step
            assert g(X, y, u, cap) - g(X, y, v, cap) <= 2 * (1 + np.linalg.norm(v)) * np.linalg.norm(u - v) + 1e-12


@pytest.mark.parametrize("mu", [0.35, 0.6])
def test_the_form_14_of_nu_svc_is_that_of_the_paper_with_nu_2_over_mu_n(mu):
    """One objective is mu^2 times the other, w and rho being mu times as long; and NuSVC finds the reduced hulls."""
    X, y = overlapping(3, n=60)
    X = X + 0.8 * y[:, None]
    n, nu = len(y), 2 / (mu * len(y))
    rng = np.random.default_rng(0)
    w, rho, delta = rng.normal(size=X.shape[1]), float(rng.normal()), rng.random(n)
    of_paper = 0.5 * float(w @ w) - rho + nu / 2 * delta.sum()
    of_peer = 0.5 * float(w @ w) * mu**2 - mu * (mu * rho) + mu * delta.sum() / n
    assert of_peer == pytest.approx(mu**2 * of_paper)
    peer = NuSVC(kernel="linear", nu=mu, tol=1e-8).fit(X, y)
    masses = peer.dual_coef_[0] / peer.dual_coef_[0].clip(min=0).sum()
    assert np.abs(masses).max() == pytest.approx(nu)
    distance = np.linalg.norm(masses @ X[peer.support_])
    assert distance == pytest.approx(NuMarginSVC(nu=mu, tol=1e-9).fit(X, y).certificate_.primal, rel=1e-5)
    assert distance > 0.1


def powers(sizes, found):
    return float(np.polyfit(np.log(sizes), np.log(found), 1)[0])


def separated(d, seed):
    """Rows of length at most one with the same distance of hulls in every dimension."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
    X = rng.normal(size=(40, d))
    X[:, 1:] *= 0.7 / np.linalg.norm(X[:, 1:], axis=1, keepdims=True)
    X[:, 0] = 0.3 * y
    return X, y


@pytest.mark.parametrize("is_hard", [True, False])
def test_theorem_6_iterations_grow_as_the_roots_of_d_and_of_one_over_epsilon(is_hard):
    """T = (d + sqrt(d / (epsilon beta))) log(1 / (epsilon OPT)), of which the root is the larger part here."""
    X, y = separated(16, 0)
    _, value, cap = solved(X, y, is_hard)
    epsilons, found = (0.2, 0.05, 0.0125), []
    for epsilon in epsilons:
        iterations = np.mean([iterations_to(X, y, epsilon, value, seed, cap) for seed in range(3)])
        found.append(iterations / math.log(1 / (epsilon * value)))
    in_epsilon = powers(1 / np.array(epsilons), found)
    dimensions, found = (8, 16, 32, 64), []
    for d in dimensions:
        X, y = separated(d, 1)
        _, value, cap = solved(X, y, is_hard)
        found.append(np.mean([iterations_to(X, y, 0.05, value, seed, cap) for seed in range(3)]))
    assert in_epsilon == pytest.approx(0.5, abs=0.12 if is_hard else 0.18)  # before logarithms of n
    assert powers(dimensions, found) == pytest.approx(0.5, abs=0.15)
