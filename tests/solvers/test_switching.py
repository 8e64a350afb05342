from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tests.problems_at_hand import separable, solve
from widemargin.problems.polytope import HardMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.models import Separator
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.switching import Switching


class State(NamedTuple):
    n: int
    certificate: Certificate
    best_w: np.ndarray
    warm: np.ndarray | None = None


class Stalling:
    """A solver that stays at its certificate for ever."""

    def __init__(self, certificate, mark, verdict=None):
        self.certificate, self.mark, self._verdict = certificate, mark, verdict
        self.started_with = []

    def start(self, problem, shard, comm, rng, warm=None):
        self.started_with.append(warm)
        return State(0, self.certificate, np.array([self.mark]))

    def sweep(self, state):
        return state._replace(n=state.n + 1)

    def certify(self, state):
        return state.certificate

    def stop_reason(self, state):
        return self._verdict

    def warm_state(self, state):
        return state.best_w

    def extract(self, state):
        return Separator(state.best_w, 0.0, {})


def go(*stages, patience=3, max_iter=20):
    return solve(Switching(stages, patience=patience), None, *separable(0), tol=1e-3, max_iter=max_iter)[0]


def test_a_stall_hands_the_direction_and_the_better_of_both_bounds_on():
    first, second = Stalling(Certificate(1.0, 0.2), 1.0), Stalling(Certificate(2.0, 0.5), 2.0)
    result = go(first, second)
    assert second.started_with == [np.array([1.0])]
    assert result.certificate == Certificate(1.0, 0.5)
    assert result.model.coef == [2.0]  # that of the better margin


def test_the_model_stays_with_the_better_margin():
    result = go(Stalling(Certificate(1.0, 0.5), 1.0), Stalling(Certificate(0.9, 0.2), 2.0))
    assert result.certificate == Certificate(0.9, 0.5)
    assert result.model.coef == [1.0]


def test_the_last_one_is_kept_however_it_stalls():
    second = Stalling(Certificate(1.0, 0.2), 2.0)
    result = go(Stalling(Certificate(1.0, 0.2), 1.0), second, max_iter=50)
    assert result.stop_reason == "max_iter"
    assert len(second.started_with) == 1


def test_a_verdict_is_not_a_stall():
    second = Stalling(Certificate(1.0, 0.2), 2.0)
    result = go(Stalling(Certificate(1e-9, -1.0), 1.0, verdict="overlap"), second)
    assert result.stop_reason == "overlap"
    assert second.started_with == []


def test_progress_that_halves_the_gap_is_no_stall():
    class Halving(Stalling):
        def sweep(self, state):
            return state._replace(certificate=Certificate(1.0, 1 - (1 - state.certificate.dual) * 0.8))

    second = Stalling(Certificate(1.0, 0.2), 2.0)
    result = go(Halving(Certificate(1.0, 0.2), 1.0), second, patience=4, max_iter=100)
    assert result.stop_reason == "gap"
    assert second.started_with == []


@pytest.mark.parametrize("ranks", [1, 3])
def test_switching_right_away_still_ends_at_the_same_distance(ranks, seed):
    X, y = separable(seed, n=60, d=6, gap=0.1)
    alone = solve(ActiveSet(), HardMargin(), X, y)[0]
    switched = solve(Switching((ActiveSet(rows_per_class=1), EntropicNewton()), patience=1), HardMargin(), X, y,
                     ranks=ranks)[0]  # fmt: skip
    assert switched.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-6)
