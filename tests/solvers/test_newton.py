from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import hull_distance, nu_cap
from tests.problems_at_hand import PaperNu, overlapping, separable, solve
from widemargin.problems.polytope import HardMargin
from widemargin.solvers._hulls import Hulls
from widemargin.solvers.newton import EntropicNewton, conjugate_gradients


def positive_definite(n, seed):
    factor = np.random.default_rng(seed).normal(size=(n, n))
    return factor @ factor.T + np.eye(n)


def test_conjugate_gradients_solve_a_linear_system(seed):
    matrix, target = positive_definite(12, seed), np.random.default_rng(seed).normal(size=12)
    x, n_products = conjugate_gradients(lambda v: matrix @ v, target, 1e-12, 250)
    np.testing.assert_allclose(matrix @ x, target, atol=1e-9)
    assert n_products <= 60


def test_conjugate_gradients_stop_at_the_residual_that_was_asked_for(seed):
    matrix, target = positive_definite(30, seed), np.random.default_rng(seed).normal(size=30)
    x, few = conjugate_gradients(lambda v: matrix @ v, target, 0.1, 250)
    assert np.linalg.norm(matrix @ x - target) <= 0.1 * np.linalg.norm(target)
    _, many = conjugate_gradients(lambda v: matrix @ v, target, 1e-10, 250)
    assert few < many


def test_conjugate_gradients_keep_to_their_limit_and_survive_a_zero_target():
    matrix = positive_definite(30, 0)
    assert conjugate_gradients(lambda v: matrix @ v, np.ones(30), 0.0, 3)[1] == 3
    x, _ = conjugate_gradients(lambda v: matrix @ v, np.zeros(30), 0.1, 250)
    assert not x.any()


@pytest.mark.parametrize("direct_features", [0, 512])
@pytest.mark.parametrize("ranks", [1, 2])
def test_forming_the_hessian_or_not_ends_at_the_same_distance(direct_features, ranks, seed):
    """Rows close to a plane make the Hessian ill-conditioned, so that conjugate gradients work hard."""
    X, y = overlapping(seed, n=60, d=8)
    X = X * np.logspace(0, 2, 8)
    exact = hull_distance(X, y, cap=nu_cap(y, "paper")).distance
    result = solve(EntropicNewton(direct_features=direct_features), PaperNu(), X, y, ranks=ranks)[0]
    assert result.stop_reason == "gap"
    assert result.certificate.primal == pytest.approx(exact, rel=1e-6)


def test_a_step_whose_masses_float64_loses_is_shortened_or_not_taken(monkeypatch, seed):
    X, y = separable(seed)
    plain = solve(EntropicNewton(), HardMargin(), X, y, tol=1e-6)[0]
    softened, lost, starts = Hulls.softened, [], []

    def sometimes(self, scores, *others):
        """Lost at the first three trials of the second sweep, and at all of the third."""
        sweep = len(starts)
        if (sweep == 2 and len(lost) < 3) or sweep == 3:
            lost.append(scores)
            return None
        return softened(self, scores, *others)

    def counted(self, state, gradient):
        starts.append(state.w)
        return direction(self, state, gradient)

    direction = EntropicNewton._direction
    monkeypatch.setattr(Hulls, "softened", sometimes)
    monkeypatch.setattr(EntropicNewton, "_direction", counted)
    monkeypatch.setattr(EntropicNewton, "_recentre", lambda self, state, gamma: state._replace(n_inner=0))
    result = solve(EntropicNewton(), HardMargin(), X, y, tol=0.0, max_iter=6)[0]
    assert len(lost) > 20
    assert not np.array_equal(starts[1], starts[2])
    np.testing.assert_array_equal(starts[2], starts[3])  # the third sweep has not moved
    assert result.certificate.dual <= plain.certificate.primal
    assert result.certificate.primal >= plain.certificate.dual


def test_more_features_than_rows(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20, 50)), np.repeat([1.0, -1.0], 10)
    exact = hull_distance(X, y).distance
    result = solve(EntropicNewton(), HardMargin(), X, y)[0]
    assert result.certificate.primal == pytest.approx(exact, rel=1e-6)
