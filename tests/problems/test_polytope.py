from __future__ import annotations

import math

import numpy as np
import pytest

from tests.problems_at_hand import PaperNu
from widemargin.problems.polytope import HardMargin, NuMargin, largest_nu


def test_hard_margin_has_no_cap():
    assert HardMargin().cap(3, 5) == math.inf


@pytest.mark.parametrize(("positive", "negative", "nu"), [(20, 30, 0.8), (1, 9, 0.2), (5, 5, 1.0), (2.5, 7.5, 0.5)])
def test_largest_nu_leaves_the_smaller_hull_a_point(positive, negative, nu):
    assert largest_nu(positive, negative) == pytest.approx(nu)
    assert NuMargin(nu).cap(positive, negative) == pytest.approx(1 / min(positive, negative))


def test_cap_is_the_paper_s_nu():
    assert NuMargin(0.3).cap(20, 30) == pytest.approx(2 / (0.3 * 50))


def test_auto_has_no_value_before_a_c_svm_is_solved_but_needs_both_classes():
    NuMargin().check(20, 30)
    with pytest.raises(ValueError, match="class"):
        NuMargin("auto").check(20, 0)
    with pytest.raises(TypeError, match="C-SVM"):
        NuMargin().resolve_nu(20, 30)


@pytest.mark.parametrize("nu", [0.81, 1.0, 0.8 * (1 + 1e-9), 0.0, -0.1])
def test_nu_beyond_its_bound_is_an_error_that_states_value_and_bound(nu):
    with pytest.raises(ValueError, match=r"nu=.*infeasible.*\(0, 0\.8\]") as caught:
        NuMargin(nu).cap(20, 30)
    assert f"{nu:g}" in str(caught.value)


@pytest.mark.parametrize(("positive", "negative"), [(3, 7), (7, 3), (49, 51), (1, 3), (123, 457)])
def test_a_nu_computed_as_the_bound_is_accepted_in_spite_of_rounding(positive, negative):
    for nu in (
        2 * min(positive, negative) / (positive + negative),
        2 * (min(positive, negative) / (positive + negative)),
    ):
        assert NuMargin(nu * (1 + 2e-16)).cap(positive, negative) >= 1 / min(positive, negative) * (1 - 1e-12)


@pytest.mark.parametrize("cap_share", [0.2, 0.5, 0.9, 1.0])
def test_entropy_range_is_an_upper_bound_of_what_entropy_can_move(cap_share):
    n_positive, n_negative = 20, 30
    nu = cap_share * largest_nu(n_positive, n_negative)
    problem = NuMargin(nu)
    cap = problem.cap(n_positive, n_negative)
    widest = 0.0
    for n in (n_positive, n_negative):
        mass = np.zeros(n)
        full = min(n, int(1 / cap + 1e-9))
        mass[:full] = min(cap, 1.0)
        if full < n:
            mass[full] = max(0.0, 1 - mass.sum())
        mass = mass[mass > 1e-12]
        widest += math.log(n) + float(mass @ np.log(mass))
    assert problem.entropy_range(n_positive, n_negative) >= widest - 1e-9


@pytest.mark.parametrize("problem", [HardMargin(), PaperNu()])
@pytest.mark.parametrize("totals", [(1, 1), (1, 5), (0.5, 0.5), (3, 0.25)])
def test_entropy_range_is_positive_so_that_solvers_may_divide_by_it(problem, totals):
    assert problem.entropy_range(*totals) > 0
