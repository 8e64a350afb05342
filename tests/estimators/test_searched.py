"""What is read from the table of a search: its grid, its best points, its edges."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.problems_at_hand import overlapping
from widemargin import KernelSVC, KernelSVCCV, SparseSVCCV
from widemargin.estimators.searched import Unseen, UnseenScores, chosen_parameters, searched

X, Y = overlapping(0, n=80)


@pytest.mark.parametrize("Cs", [[1.0], [0.1, 1.0], [0.01, 0.1, 1.0, 10.0]])
@pytest.mark.parametrize("gammas", [[0.3], [0.1, 0.3], [0.03, 0.1, 0.3]])
def test_the_axes_are_the_grid_without_the_points_that_refine_it(Cs, gammas):
    model = KernelSVCCV(Cs=Cs, gammas=gammas, cv=3).fit(X, Y)
    found = searched(model)
    grid = {"C": Cs, "gamma": gammas}
    assert found.axes == ({name: grid[name] for name in grid if len(grid[name]) > 1} or {"C": Cs})
    assert len(found.points) == len(model.cv_results_["params"])


def test_one_parameter():
    found = searched(KernelSVCCV(kernel="linear", Cs=[0.1, 1.0], cv=3).fit(X, Y))
    assert found.axes == {"C": [0.1, 1.0]}
    assert len(found.points) > 2


def made(means, states, params, index=0):
    spread = np.array([-0.01, 0.0, 0.01])
    table = {"params": params, "state": np.array(states)}
    return SimpleNamespace(cv_results_=table, scores_=np.array(means)[:, None] + spread, best_index_=index)


def test_points_without_a_score_are_never_the_best():
    params = [{"C": 1.0, "gamma": 1.0}, {"C": 1.0, "gamma": 2.0}, {"C": 2.0, "gamma": 1.0}, {"C": 2.0, "gamma": 2.0}]
    found = searched(made([0.9, 0.95, np.nan, np.nan], ["certified", "estimated", "skipped", "not tried"], params, 1))
    assert [point.mean for point in found.best_first] == pytest.approx([0.95, 0.9])
    assert list(found.states.items()) == [("certified", 1), ("estimated", 1), ("not tried", 1), ("skipped", 1)]
    assert found.chosen.error == pytest.approx(0.01 / np.sqrt(3))
    assert found.near_best == [found.chosen]
    # No point with C=2 has a score, so there is no smallest C.
    assert [edge.in_words for edge in found.edges] == [
        "The best point, gamma=2, is at the largest value tried: try larger ones"
    ]


def test_edges_are_those_of_the_best_point_and_of_the_chosen_one():
    params = [{"C": C} for C in (0.1, 1.0, 10.0)]
    found = searched(made([0.90, 0.95, 0.96], ["certified"] * 3, params, 1))
    assert [(edge.which, edge.value, edge.is_largest) for edge in found.edges] == [("best", 10.0, True)]
    found = searched(made([0.95, 0.9, 0.96], ["certified"] * 3, params, 0))
    assert [(edge.which, edge.value) for edge in found.edges] == [("best", 10.0), ("chosen", 0.1)]
    assert searched(made([np.nan] * 3, ["not tried"] * 3, params)).edges == []
    nus = [{"nu": nu} for nu in (0.1, 0.2, 0.3)]
    assert searched(made([0.7, 0.8, 0.9], ["certified"] * 3, nus, 2)).edges == []  # no larger nu is feasible


def test_an_estimated_choice_is_doubted():
    table = made([0.9, 0.8], ["estimated", "certified"], [{"C": 1.0}, {"C": 2.0}])
    table.cv_results_["gap"] = np.array([7.4e-3, 1e-4])
    assert searched(table).doubt(1e-3) == (
        "The chosen point has a gap of 7.4e-03 (tol 1e-03): its score is an estimate. "
        "Raise max_iter, or use smaller Cs."
    )
    table.best_index_ = 1
    assert searched(table).doubt(1e-3) == ""


def test_every_unusual_state_has_a_sentence():
    states = ["overlap", "overlap", "undecided", "infeasible", "skipped", "not tried"]
    found = searched(made([0.9] * 3 + [np.nan] * 3, states, [{"nu": k / 10} for k in range(1, 7)]))
    assert sorted(found.unusual) == [
        "1 point was not tried.",
        "1 point was skipped because scores had fallen.",
        "1 value of nu is too large for a fold.",
        "2 values of nu are too small: the hulls overlap.",
        "At 1 value of nu the hulls may overlap.",
    ]


def test_scores_on_unseen_rows_have_a_mean_and_a_spread():
    folds = [Unseen(50, score, 0.6, {"C": 1.0}) for score in (0.8, 0.9)]
    several = UnseenScores("f1", folds, 3)
    assert (several.n_rows, several.mean, several.largest_class_score) == (100, pytest.approx(0.85), 0.6)
    assert several.spread == pytest.approx(np.std([0.8, 0.9], ddof=1))
    assert several.interruption == "2 of 3 outer folds were scored"
    assert UnseenScores("accuracy", folds[:1], 1).spread == pytest.approx(np.sqrt(0.8 * 0.2 / 50))
    assert UnseenScores("f1", folds[:1], 1).spread is None


def test_equal_scores_have_the_chosen_point_first():
    found = searched(made([0.9, 0.9], ["certified"] * 2, [{"C": 1.0}, {"C": 2.0}], 1))
    assert found.best_first[0] is found.chosen
    found = searched(made([0.9 + 1e-15, 0.9], ["certified"] * 2, [{"C": 1.0}, {"C": 2.0}], 1))  # equal but for rounding
    assert found.top(1)[0][0] == "1, chosen"


def test_the_chosen_point_is_among_the_top_wherever_it_is():
    found = searched(made([0.7, 0.9, 0.8], ["certified"] * 3, [{"C": 1.0}, {"C": 2.0}, {"C": 3.0}]))
    assert [(rank, point.parameters["C"]) for rank, point in found.top(1)] == [("1", 2.0), ("3, chosen", 1.0)]


def test_points_without_a_determined_model_come_last():
    found = searched(made([0.9, 0.8], ["overlap", "certified"], [{"nu": 0.1}, {"nu": 0.2}], 1))
    assert [point.state for point in found.best_first] == ["certified", "overlap"]


def test_parameters_that_do_not_vary_are_no_axes():
    params = [{"C": C, "deadband": 0.2, "gamma": gamma} for C in (1.0, 2.0) for gamma in (3.0, 4.0)]
    assert searched(made([0.9] * 4, ["certified"] * 4, params)).axes == {"C": [1.0, 2.0], "gamma": [3.0, 4.0]}
    nested = [{"C": C, "deadband": deadband, "gamma": C} for C in (1.0, 2.0) for deadband in (0.1, 0.2)]
    assert searched(made([0.9] * 4, ["certified"] * 4, nested)).varying == ["C", "deadband", "gamma"]


def test_estimators_that_search_and_those_that_do_not():
    assert searched(KernelSVC().fit(X, Y)) is None
    assert chosen_parameters(KernelSVC().fit(X, Y)) is None
    sparse = SparseSVCCV(n_alphas=4, cv=3).fit(X, Y)
    assert chosen_parameters(sparse) == {"alpha": sparse.alpha_}
    assert chosen_parameters(KernelSVCCV(Cs=[1.0], gammas=[1.0], cv=2).fit(X, Y)) == {"C": 1.0, "gamma": 1.0}
