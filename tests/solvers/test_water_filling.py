"""Water on ranks: the level of all rows, whatever part of the responses comes together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problems_at_hand import on_ranks
from widemargin.comm.solo import Solo
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.solvers import _water_filling
from widemargin.solvers._water_filling import WaterFilling

pytestmark = pytest.mark.parametrize(
    "problem",
    [
        SlackConstrained(slack=0.05, fit_intercept=False),
        SlackConstrained(slack=0.05),
        SlackConstrained(C=0.05, fit_intercept=False),
        SlackConstrained(C=0.05),
    ],
    ids=["slack", "slack, bias", "C", "C, bias"],
)


@pytest.fixture
def many(monkeypatch):
    """Even few rows count as many."""
    monkeypatch.setattr(_water_filling, "_MAX_ROWS_SENT", 0)


def wandering(n=600, steps=12, ties=False):
    """Labels, weights, and responses that move a little at each step."""
    rng = np.random.default_rng(3)
    y, weight = np.where(rng.random(n) < 0.4, 1.0, -1.0), rng.choice([0.0, 0.5, 1.0, 2.0], n)
    c, path = rng.normal(0.5, 1, n), []
    for step in range(steps):
        c = c + 0.3 / (step + 1) * rng.normal(size=n)
        path.append(np.round(c, 1) if ties else c)
    return y, weight, path


def poured(problem, y, weight, path, ranks, n_drawn=40):
    """Surfaces of all steps, of each rank, and how many scalars each rank had sent after each."""
    cuts = [len(y) * k // ranks for k in range(ranks + 1)]

    def task(comm):
        mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
        filling = WaterFilling(problem, y[mine], weight[mine], comm, np.random.default_rng([0, comm.rank]))
        steps = [(filling.draw(c[mine], 0.7, n_drawn), comm.ledger.scalars) for c in path]
        return [filled._replace(drawn=filled.drawn + mine.start) for filled, _ in steps], [n for _, n in steps]

    return on_ranks(ranks, task)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_level_is_that_of_all_rows(many, problem, ranks, ties):
    y, weight, path = wandering(ties=ties)
    outcomes = poured(problem, y, weight, path, ranks)
    for step, c in enumerate(path):
        alone = problem.water_level(c, y, weight, 0.7)
        surfaces = [steps[step] for steps, _ in outcomes]
        for filled in surfaces:
            assert filled.level == pytest.approx(alone.level, rel=1e-11)
            assert filled.bias == pytest.approx(alone.bias, rel=1e-10, abs=1e-11)
            assert filled.cover == pytest.approx(alone.cover, rel=1e-11)
        drawn = np.concatenate([filled.drawn for filled in surfaces])
        part = np.concatenate([filled.part for filled in surfaces])
        assert (alone.share[drawn] > 0).all()
        assert (np.diff(drawn) > 0).all()
        assert part.sum() == pytest.approx(1.0)
        if problem.fit_intercept:
            assert part @ y[drawn] == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("ranks", [1, 3])
def test_rows_are_drawn_as_often_as_they_are_heavy(many, problem, ranks):
    y, weight, path = wandering(n=60, steps=4)
    path = path + [path[-1] + 1e-6 * k for k in range(400)]
    counts = np.zeros(60)
    for steps, _ in poured(problem, y, weight, path, ranks):
        for filled in steps[5:]:
            counts[filled.drawn] += filled.part
    share = problem.water_level(path[-200], y, weight, 0.7).share
    assert counts / counts.sum() == pytest.approx(share, abs=0.02)


def test_few_responses_are_sent(many, problem):
    y, weight, path = wandering(n=6000, steps=40)
    (_, _), (_, sent) = poured(problem, y, weight, path, 2)
    sent = np.diff(sent)
    assert sent[0] > 2 * 6000 / 2  # all of its rows at first
    assert np.median(sent[-20:]) < sent[0] / 3


def test_a_leap_of_the_edge_is_followed(many, problem):
    y, weight, path = wandering()
    path = [*path, path[-1] + 50.0, path[-1] - 50.0, path[-1]]
    for c, filled in zip(path, poured(problem, y, weight, path, 2)[0][0], strict=True):
        assert filled.level == pytest.approx(problem.water_level(c, y, weight, 0.7).level, rel=1e-10)


def test_the_level_of_other_responses_leaves_no_trace(many, problem):
    y, weight, path = wandering()
    levels = []
    for looks in (False, True):
        filling = WaterFilling(problem, y, weight, Solo(), np.random.default_rng(0))
        for c in path:
            levels.append(filling.draw(c, 0.7, 8).drawn.tolist())
            if looks:
                assert filling.level(7 * c, 0.7).level == problem.water_level(7 * c, y, weight, 0.7).level
    assert levels[: len(path)] == levels[len(path) :]
