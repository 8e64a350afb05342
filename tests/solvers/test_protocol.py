"""What every solver owes: the exact answer, true bounds at every sweep, and the same on any number of ranks."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest

from tests.conftest import STORAGES
from tests.oracles import hull_distance, nu_cap
from tests.problems_at_hand import PaperNu, assert_brackets, overlapping, separable, solve
from widemargin import solvers
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.polytope import HardMargin, NuMargin, largest_nu
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.auto import Auto, Stalled
from widemargin.solvers.hull_multipliers import HullMultipliers
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.nu_of_c import NuOfC
from widemargin.solvers.protocol import Solver
from widemargin.solvers.saddle import SaddlePoint
from widemargin.solvers.separating import Separating

SADDLES = {f"saddle-{b}": SaddlePoint(block_size=b) for b in (1, 4, "auto")}
TIGHT = {
    "multipliers": HullMultipliers(tol=1e-7),
    "newton": EntropicNewton(),
    "newton-saddle": Auto((EntropicNewton(), SaddlePoint()), hand_over=Stalled()),
}
TIGHT_HARD = {
    **TIGHT,
    "active-set": ActiveSet(),
    "active-set-newton": Auto((ActiveSet(), EntropicNewton()), hand_over=Stalled()),
}

# (solver, problem) pairs; a saddle closes a gap of 1e-3 in good time, the others one of 1e-7.
HARD = [pytest.param(solver, 1e-7, id=f"hard-{name}") for name, solver in TIGHT_HARD.items()]
HARD += [pytest.param(solver, 1e-3, id=f"hard-{name}") for name, solver in SADDLES.items()]
NU = [pytest.param(solver, 1e-7, id=f"nu-{name}") for name, solver in TIGHT.items()]
NU += [pytest.param(solver, 1e-3, id=f"nu-{name}") for name, solver in SADDLES.items()]


def assert_solved(result, exact, tol, scale=0.0):
    """The gap was closed, and what it closed on is the exact distance."""
    assert result.stop_reason == "gap", result
    assert result.certificate.relative <= tol
    assert result.certificate.dual <= exact * (1 + 1e-9) + scale
    assert result.certificate.primal >= exact * (1 - 1e-9) - scale
    if tol <= 1e-6:
        assert result.certificate.primal == pytest.approx(exact, rel=1e-6)


def test_assert_solved_fails_on_a_wrong_answer_and_on_an_open_gap():
    result = solve(ActiveSet(), HardMargin(), *separable(0))[0]
    exact = hull_distance(*separable(0)).distance
    assert_solved(result, exact, 1e-7)
    with pytest.raises(AssertionError):
        assert_solved(result, exact * 1.00001, 1e-7)
    with pytest.raises(AssertionError):
        assert_solved(solve(ActiveSet(), HardMargin(), *separable(0, gap=0.01), max_iter=1)[0], exact, 1e-7)


# -- the exact answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "tol"), HARD)
def test_hard_margin_reaches_the_exact_distance(solver, tol, seed):
    X, y = separable(seed, n=40, d=5)
    exact = hull_distance(X, y).distance
    assert_solved(solve(solver, HardMargin(), X, y, tol=tol)[0], exact, tol)


@pytest.mark.parametrize(("solver", "tol"), NU)
@pytest.mark.parametrize("nu", ["paper", 0.3])
def test_nu_margin_reaches_the_exact_distance(solver, tol, nu, seed):
    # At the smaller nu the reduced hulls are large, so the clouds must be farther apart.
    X, y = overlapping(seed, shift=1.0 if nu == "paper" else 1.6)
    exact = hull_distance(X, y, cap=nu_cap(y, nu)).distance
    assert exact > 0
    problem = PaperNu() if nu == "paper" else NuMargin(nu)
    assert_solved(solve(solver, problem, X, y, tol=tol)[0], exact, tol)


@pytest.mark.parametrize(("solver", "tol"), NU)
def test_nu_margin_with_weights_reaches_the_exact_distance(solver, tol, seed):
    X, y = overlapping(seed)
    weight = np.random.default_rng(seed).uniform(0.2, 3.0, len(y))
    exact = hull_distance(X, y, weight, nu_cap(y, "paper", weight)).distance
    assert_solved(solve(solver, PaperNu(), X, y, weight, tol=tol)[0], exact, tol)


@pytest.mark.parametrize(("solver", "tol"), HARD)
def test_hard_margin_uses_weights_only_as_present(solver, tol):
    X, y = separable(4)
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(y))
    assert_solved(solve(solver, HardMargin(), X, y, weight, tol=tol)[0], hull_distance(X, y).distance, tol)


@pytest.mark.parametrize(("solver", "tol"), NU)
@pytest.mark.parametrize("n_positive", [25, 20, 7])
def test_nu_exactly_at_its_bound(solver, tol, n_positive):
    rng = np.random.default_rng(n_positive)
    y = np.where(np.arange(50) < n_positive, 1.0, -1.0)
    X = rng.normal(size=(50, 3)) + y[:, None]
    nu = largest_nu(n_positive, 50 - n_positive)
    exact = hull_distance(X, y, cap=nu_cap(y, nu)).distance
    assert_solved(solve(solver, NuMargin(nu), X, y, tol=tol)[0], exact, tol)


@pytest.mark.parametrize("nu", [0.1, 0.2, 0.24, 0.4])
@pytest.mark.parametrize(("solver", "tol"), NU)
def test_nu_whose_cap_is_the_reciprocal_of_a_whole_number(solver, tol, nu):
    X, y = separable(5, n=50, d=3, gap=1.0)
    exact = hull_distance(X, y, cap=nu_cap(y, nu)).distance
    assert_solved(solve(solver, NuMargin(nu), X, y, tol=tol)[0], exact, tol)


@pytest.mark.parametrize(("solver", "tol"), HARD)
def test_hard_margin_with_duplicate_rows(solver, tol):
    X, y = separable(6, n=20, d=3)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    assert_solved(solve(solver, HardMargin(), X, y, tol=tol)[0], hull_distance(X, y).distance, tol)


@pytest.mark.parametrize(("solver", "tol"), NU)
def test_nu_margin_with_duplicate_rows(solver, tol):
    X, y = overlapping(6, n=20, d=3)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    exact = hull_distance(X, y, cap=nu_cap(y, "paper")).distance
    assert_solved(solve(solver, PaperNu(), X, y, tol=tol)[0], exact, tol)


@pytest.mark.parametrize("offset", [1e3, -1e3])
@pytest.mark.parametrize(("solver", "tol"), HARD)
def test_hard_margin_far_from_the_origin(solver, tol, offset):
    X, y = separable(7, offset=offset)
    assert_solved(solve(solver, HardMargin(), X, y, tol=tol)[0], hull_distance(X, y).distance, tol)


@pytest.mark.parametrize(("solver", "tol"), NU)
def test_nu_margin_far_from_the_origin(solver, tol):
    X, y = overlapping(7)
    X = X + 1e3
    exact = hull_distance(X, y, cap=nu_cap(y, "paper")).distance
    assert_solved(solve(solver, PaperNu(), X, y, tol=tol)[0], exact, tol)


ALL = [pytest.param(HardMargin(), *each.values, id=each.id) for each in HARD]
ALL += [pytest.param(PaperNu(), *each.values, id=each.id) for each in NU]


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
@pytest.mark.parametrize("d", [1, 3])
def test_one_row_per_class(problem, solver, tol, d):
    X = np.array([[1.0, 2.0, 2.0], [4.0, 6.0, 2.0]])[:, :d]
    exact = np.linalg.norm(X[1] - X[0])
    assert_solved(solve(solver, problem, X.copy(), np.array([-1.0, 1.0]), tol=tol)[0], exact, tol)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
@pytest.mark.parametrize("d", [1, 3, 13])
def test_any_number_of_features(problem, solver, tol, d):
    """A power of two is the only size the Walsh-Hadamard transform knows; others are padded."""
    X, y = separable(8, n=30, d=d, gap=1.0)
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    assert_solved(solve(solver, problem, X, y, tol=tol)[0], hull_distance(X, y, cap=cap).distance, tol)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_float32_and_sparse_rows_reach_the_exact_distance_of_their_values(problem, solver, tol, dtype, storage):
    X, y = separable(9, n=40, d=5, gap=1.0)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.3, 0.0, X)
    X[:, 0] += 3 * y
    X = X.astype(dtype)
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    exact = hull_distance(X, y, cap=cap).distance
    assert exact > 0
    assert_solved(solve(solver, problem, storage(X), y, tol=tol)[0], exact, tol)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_any_unit_of_length(problem, solver, tol, scale):
    X, y = separable(10, gap=1.0)
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    assert_solved(solve(solver, problem, X * scale, y, tol=tol)[0], hull_distance(X, y, cap=cap).distance * scale, tol)


# -- the certificate -------------------------------------------------------------------------------------------------


def every_sweep(solver, problem, X, y, weight=None, **options):
    """The history of a run that does not stop for a closed gap."""
    return solve(solver, problem, X, y, weight, tol=0.0, max_iter=25, **options)[0].history


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(("solver", "tol"), HARD)
def test_hard_margin_is_bracketed_at_every_sweep(solver, tol, seed, dtype, ranks):
    X, y = separable(20 + seed, n=36, d=6, gap=0.3)
    X = X.astype(dtype)
    assert_brackets(every_sweep(solver, HardMargin(), X, y, ranks=ranks, seed=seed), hull_distance(X, y).distance)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(("solver", "tol"), NU)
def test_nu_margin_is_bracketed_at_every_sweep(solver, tol, seed, dtype, ranks):
    X, y = overlapping(20 + seed, n=45, d=6)
    X = X.astype(dtype)
    weight = np.random.default_rng(seed).choice([0.5, 1.0, 2.0], len(y))
    exact = hull_distance(X, y, weight, nu_cap(y, "paper", weight)).distance
    assert_brackets(every_sweep(solver, PaperNu(), X, y, weight, ranks=ranks, seed=seed), exact)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_far_from_the_origin_in_float32_the_bounds_are_still_true(problem, solver, tol):
    X, y = separable(11, d=4, gap=1.0, offset=1e3)
    X = X.astype(np.float32)
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    assert_brackets(every_sweep(solver, problem, X, y), hull_distance(X, y, cap=cap).distance)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_bounds_never_get_worse(problem, solver, tol, seed):
    history = every_sweep(solver, problem, *separable(30 + seed, gap=0.5), seed=seed)
    assert all(np.diff([row["primal"] for row in history]) <= 0)
    assert all(np.diff([row["dual"] for row in history]) >= 0)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_hulls_that_meet_end_in_the_verdict_overlap(problem, solver, tol):
    """Mirror images in a point: their (reduced) hulls share it."""
    half = np.random.default_rng(0).normal(size=(20, 3))
    X, y = np.vstack([half, -half, half, -half]), np.repeat([1.0, -1.0], 40)
    result = solve(solver, problem, X, y, tol=1e-6, max_iter=500)[0]
    assert result.stop_reason == "overlap"
    assert result.certificate.dual <= 0
    assert np.isfinite(result.model.coef).all()
    assert np.isfinite(result.model.intercept)


# -- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("problem", [HardMargin(), PaperNu()], ids=["hard", "nu"])
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_saddle_iterates_do_not_depend_on_the_number_of_ranks(problem, block_size, ranks, seed):
    X, y = separable(40 + seed, n=42, d=10, gap=1.0)
    assert_same_iterates(problem, SaddlePoint(block_size=block_size), X, y, ranks, seed)


@pytest.mark.parametrize("block_size", [4, 16])
def test_saddle_iterates_on_ranks_of_any_storage(block_size, storage, dtype):
    X, y = separable(40, n=42, d=10, gap=1.0)
    # float32 rows are summed in float32 within a block, in an order that the number of ranks decides.
    rtol = 1e-9 if dtype == np.float64 else 1e-4
    assert_same_iterates(PaperNu(), SaddlePoint(block_size=block_size), storage(X.astype(dtype)), y, 3, 0, rtol)


def assert_same_iterates(problem, solver, X, y, ranks, seed, rtol=1e-9):
    options = {"tol": 0.0, "max_iter": 8, "seed": seed}
    serial = solve(solver, problem, X, y, **options)[0]
    parallel = solve(solver, problem, X, y, ranks=ranks, **options)[0]
    for name in ("primal", "dual"):
        np.testing.assert_allclose(
            [row[name] for row in parallel.history], [row[name] for row in serial.history], rtol=rtol
        )
    np.testing.assert_allclose(parallel.model.coef, serial.model.coef, rtol=rtol, atol=rtol)
    assert parallel.model.intercept == pytest.approx(serial.model.intercept, rel=rtol, abs=rtol)


def test_saddle_iterates_do_depend_on_the_seed():
    """So that the test above could fail: another seed is another path."""
    X, y = separable(40, n=42, d=10, gap=1.0)
    first, second = (
        solve(SaddlePoint(block_size=1), HardMargin(), X, y, tol=0.0, max_iter=12, seed=seed)[0] for seed in (0, 1)
    )
    assert not np.allclose(first.model.coef, second.model.coef, rtol=1e-9)


@pytest.mark.parametrize(("problem", "solver", "tol"), [each for each in ALL if "saddle-" not in each.id])
def test_other_solvers_certify_the_same_distance_on_any_number_of_ranks(problem, solver, tol, n_ranks):
    X, y = separable(50, n=42, d=6, gap=0.5)
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    results = solve(solver, problem, X, y, ranks=n_ranks, tol=tol)
    assert_solved(results[0], hull_distance(X, y, cap=cap).distance, tol)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_all_ranks_come_to_the_same_result(problem, solver, tol):
    X, y = separable(51, n=42, d=6, gap=0.5)
    first, *others = solve(solver, problem, X, y, ranks=3, tol=tol)
    assert len(others) == 2
    for other in others:
        assert other.certificate == first.certificate
        assert other.n_iter == first.n_iter
        assert np.array_equal(other.model.coef, first.model.coef)
        assert other.model.intercept == first.model.intercept


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_same_seed_and_ranks_give_the_same_bits(problem, solver, tol, ranks):
    X, y = separable(52, n=42, d=6, gap=0.5)
    first, second = (solve(solver, problem, X, y, ranks=ranks, tol=0.0, max_iter=6, seed=3)[0] for _ in range(2))
    assert np.array_equal(first.model.coef, second.model.coef)
    assert first.model.intercept == second.model.intercept
    for one, other in zip(first.history, second.history, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
@pytest.mark.parametrize("storage", ["dense", "csr64"])
def test_ranks_that_hold_rows_of_one_class_only(problem, solver, tol, storage):
    X, y = separable(53, n=40, d=5, gap=0.5)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    results = solve(solver, problem, STORAGES[storage](X), y, ranks=5, tol=tol)
    assert_solved(results[0], hull_distance(X, y, cap=cap).distance, tol)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_as_many_ranks_as_rows(problem, solver, tol):
    X, y = separable(54, n=9, d=3, gap=1.0)
    cap = problem.cap((y > 0).sum(), (y < 0).sum())
    assert_solved(solve(solver, problem, X, y, ranks=9, tol=tol)[0], hull_distance(X, y, cap=cap).distance, tol)


# -- warm starts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
@pytest.mark.parametrize("kind", ["exact", "random", "opposite", "far too long", "far too short"])
def test_a_warm_start_with_any_direction_ends_at_the_same_distance(problem, solver, tol, kind, seed):
    X, y = separable(60, d=4, gap=0.5)
    exact = hull_distance(X, y, cap=problem.cap((y > 0).sum(), (y < 0).sum()))
    random = np.random.default_rng(seed).normal(size=4)
    warm = {
        "exact": exact.direction,
        "random": random,
        "opposite": -exact.direction,
        "far too long": 1e6 * random,
        "far too short": 1e-6 * random,
    }[kind]
    assert_solved(solve(solver, problem, X, y, tol=tol, warm=warm)[0], exact.distance, tol)


@pytest.mark.parametrize(("problem", "solver", "tol"), ALL)
def test_a_warm_start_at_the_solution_takes_no_more_sweeps(problem, solver, tol):
    X, y = separable(60, d=4, gap=0.5)
    cold = solve(solver, problem, X, y, tol=tol)[0]
    exact = hull_distance(X, y, cap=problem.cap((y > 0).sum(), (y < 0).sum()))
    assert solve(solver, problem, X, y, tol=tol, warm=exact.direction)[0].n_iter <= cold.n_iter


# -- which problems --------------------------------------------------------------------------------------------------


def solver_classes():
    """Every solver of the package."""
    for each in pkgutil.iter_modules(solvers.__path__):
        import_module(f"widemargin.solvers.{each.name}")
    found, new = set(), {Solver}
    while new:
        found |= new
        new = {kind for parent in new for kind in parent.__subclasses__()} - found
    ours = [kind for kind in found if kind.__module__.startswith("widemargin.solvers.")]
    return sorted((kind for kind in ours if not inspect.isabstract(kind)), key=lambda kind: kind.__name__)


OF_OTHERS = {NuOfC: HullMultipliers(), Auto: (EntropicNewton(), SaddlePoint()), Separating: EntropicNewton()}
SOLVERS = [kind(OF_OTHERS[kind]) if kind in OF_OTHERS else kind() for kind in solver_classes()]
PROBLEMS = [HardMargin(), PaperNu(), HingeL2(1.0), HingeL1(0.1), MarginDistribution(1.0), SlackConstrained(C=1.0)]


@dataclass(frozen=True)
class OfSomebodyElse:
    """A problem that no solver here knows."""


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_a_solver_says_what_it_solves_and_run_refuses_all_else(solver):
    assert solver.solves
    assert any(isinstance(problem, solver.solves) for problem in PROBLEMS)
    for problem in (*PROBLEMS, OfSomebodyElse()):
        if not isinstance(problem, solver.solves):
            message = f"{type(solver).__name__} solves .*, not {type(problem).__name__}"
            with pytest.raises(TypeError, match=message):
                solve(solver, problem, *separable(0))


def test_every_solver_is_found():
    assert len(SOLVERS) >= 14


def test_a_solver_that_does_not_say_what_it_solves_cannot_be_made():
    class Silent(SaddlePoint):
        solves = Solver.solves

    with pytest.raises(TypeError, match="solves"):
        Silent()
