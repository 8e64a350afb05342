"""Certificates, and the protocol that every problem keeps."""

from __future__ import annotations

import inspect
import math
import pkgutil
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.oracles import exact_svm, hull_distance, margin_of
from tests.problems.test_margin_distribution import exact_odm
from tests.problems.test_slack_constrained import optimum as slack_optimum
from tests.problems_at_hand import overlapping, separable
from tests.solvers.test_column_generation import optimum as l1_optimum
from widemargin import problems
from widemargin.problems.hinge_l1 import HingeL1, largest
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.problems.protocol import Certificate, Problem
from widemargin.problems.slack_constrained import SlackConstrained


@pytest.mark.parametrize(
    ("primal", "dual", "gap", "relative"),
    [
        (2.0, 1.5, 0.5, 0.25),
        (-2.0, -2.5, 0.5, 0.25),
        (1.5, 2.0, 0.5, 1 / 3),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, -1.0, 1.0, math.inf),
        (math.inf, -math.inf, math.inf, math.nan),
    ],
)
def test_gap_and_relative_gap_are_those_of_the_contract(primal, dual, gap, relative):
    certificate = Certificate(primal, dual)
    assert certificate.gap == gap
    assert certificate.relative == pytest.approx(relative, nan_ok=True)


def test_a_certificate_without_any_bound_satisfies_no_tolerance():
    assert not Certificate(math.inf, -math.inf).relative <= 1e9


# -- every problem -----------------------------------------------------------------------------------------------------

X, Y = overlapping(0, n=20, d=3, shift=0.7)
TOTALS = float(np.count_nonzero(Y > 0)), float(np.count_nonzero(Y < 0))
HULL_X, HULL_Y = separable(0, n=20, d=3)


def of_hulls(problem, X, y):
    """Distances of hull points and margins of directions."""
    totals = np.array([np.count_nonzero(y > 0), np.count_nonzero(y < 0)])
    upper = np.full(len(y), min(problem.cap(*totals), 1.0))
    exact = hull_distance(X, y, cap=problem.cap(*totals))

    def bounds(rng):
        mass = np.where(y > 0, 1 / totals[0], 1 / totals[1])
        w = exact.direction + 0.1 * rng.normal(size=X.shape[1])
        gain = margin_of(X, y, y, upper, w) * float(np.linalg.norm(w))
        primal = problem.primal_value(0.0, float(np.linalg.norm((mass * y) @ X)))
        return primal, problem.dual_value(gain, float(np.linalg.norm(w)))

    return exact.distance, bounds


def of_hinge(problem, exact, loss_factor=1.0, size_factor=1.0):
    """Any w; dual variables of any size within the box."""
    caps = np.ones(len(Y)) if isinstance(problem, MeanHinge) else problem.caps(np.ones(len(Y)))

    def bounds(rng):
        w, alpha = 0.3 * rng.normal(size=X.shape[1]), rng.random(len(Y)) * caps
        z, loss = (alpha * Y) @ X, float(np.maximum(0.0, 1 - Y * (X @ w)).sum())
        dual = problem.dual_value(loss_factor * float(alpha.sum()), size_factor * float(z @ z))
        return problem.primal_value(loss_factor * loss, float(w @ w)), dual

    return exact, bounds


def of_hinge_l1(problem):
    caps = problem.caps(np.ones(len(Y)), float(len(Y)))

    def bounds(rng):
        coef, masses = 0.3 * rng.normal(size=X.shape[1]), problem.feasible(rng.random(len(Y)) * caps, Y, caps)
        loss = problem.loss(X @ coef, problem.best_intercept(X @ coef, Y, caps), Y, caps)
        dual = problem.dual_value(float(masses.sum()), largest(X.T @ (Y * masses)))
        return problem.primal_value(loss, float(np.abs(coef).sum())), dual

    return l1_optimum(X, Y, problem.penalty), bounds


def of_margin_distribution(problem):
    steep = problem.steep(np.ones(len(Y)), float(len(Y)))

    def bounds(rng):
        g = 0.01 * rng.normal(size=len(Y))
        w = (g * Y) @ np.column_stack([X, np.ones(len(Y))])
        margin = Y * (np.column_stack([X, np.ones(len(Y))]) @ w)
        linear, quadratic = problem.dual_terms(g, steep)
        dual = problem.dual_value(linear, quadratic + float(w @ w))
        return problem.primal_value(problem.loss(margin, steep), float(w @ w)), dual

    return exact_odm(X @ X.T, Y, problem).value, bounds


def of_slack_constrained(problem):
    volume = problem.slack * len(Y)
    best_w, best_p = slack_optimum(X, Y, np.ones(len(Y)), problem.slack, problem.fit_intercept)
    exact = problem.water_level(Y * (X @ best_w), Y, np.ones(len(Y)), 1.0).level
    best_p /= best_p.sum()
    above = problem.primal_value(volume * float(best_p.max()), float(np.linalg.norm((best_p * Y) @ X)))
    assert above == pytest.approx(exact, rel=1e-7), "the generic method did not end at the optimum"

    def bounds(rng):
        p, w = rng.dirichlet(np.ones(len(Y))), rng.normal(size=X.shape[1])
        primal = problem.primal_value(volume * float(p.max()), float(np.linalg.norm((p * Y) @ X)))
        norm = float(np.linalg.norm(w))
        scaled = SlackConstrained(slack=problem.slack * norm, fit_intercept=problem.fit_intercept)
        return primal, problem.dual_value(scaled.water_level(Y * (X @ w), Y, np.ones(len(Y)), 1.0).level, norm)

    return exact, bounds


PROBLEMS = {
    HardMargin: (HardMargin(), lambda problem: of_hulls(problem, HULL_X, HULL_Y)),
    NuMargin: (NuMargin(0.4), lambda problem: of_hulls(problem, X, Y)),
    HingeL2: (HingeL2(0.5, False), lambda problem: of_hinge(problem, exact_svm(X, Y, 0.5, fit_intercept=False))),
    MeanHinge: (
        MeanHinge(0.1),
        lambda problem: of_hinge(
            problem, 0.1 * exact_svm(X, Y, 1 / (0.1 * len(Y)), fit_intercept=False), 1 / len(Y), 1 / len(Y) ** 2
        ),
    ),
    HingeL1: (HingeL1(0.05), of_hinge_l1),
    MarginDistribution: (MarginDistribution(3.0), of_margin_distribution),
    SlackConstrained: (SlackConstrained(slack=0.3, fit_intercept=False), of_slack_constrained),
}


def problem_classes():
    modules = [import_module(f"widemargin.problems.{each.name}") for each in pkgutil.iter_modules(problems.__path__)]
    return {
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and kind is not Problem
        if hasattr(kind, "primal_value") and not inspect.isabstract(kind)
    }


def test_every_problem_is_tried_here():
    assert problem_classes() == set(PROBLEMS)


@pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.__name__)
def test_every_problem_has_the_methods_of_the_protocol_and_no_data(kind):
    for name in ("check", "primal_value", "dual_value"):
        asked, offered = (inspect.signature(getattr(each, name)) for each in (Problem, kind))
        assert list(offered.parameters) == list(asked.parameters), name
        assert [each.annotation for each in offered.parameters.values()][1:] == ["float", "float"], name
        assert offered.return_annotation == asked.return_annotation, name
        assert getattr(kind, name).__doc__, name
    problem: Any = PROBLEMS[kind][0]
    assert kind.__dataclass_params__.frozen
    problem.check(*TOTALS)


@pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.__name__)
def test_any_model_bounds_the_optimum_from_above_and_any_dual_variables_from_below(kind, seed):
    problem, example = PROBLEMS[kind]
    exact, bounds = example(problem)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        primal, dual = bounds(rng)
        assert type(primal) is type(dual) is float
        assert dual <= exact * (1 + 1e-7) + 1e-12
        assert primal >= exact * (1 - 1e-7) - 1e-12
