"""The section about a search, and its plot: that the numbers are those of the search, whatever became of its points."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the plot extra")

import matplotlib.pyplot as plt

from tests.problems_at_hand import overlapping
from tests.reports.test_page import assert_sound
from widemargin import KernelSVC, KernelSVCCV, MarginDistributionSVCCV, NuMarginSVCCV, load, report, save
from widemargin.estimators.searched import searched
from widemargin.reports import plot_search
from widemargin.reports.search import line_of_costs

X, Y = overlapping(0, n=120)


@pytest.fixture(scope="module")
def model():
    return KernelSVCCV(Cs=[0.01, 0.1, 1.0, 10.0, 100.0], gammas=[0.01, 0.1, 1.0], cv=3).fit(X, Y)


def with_states(model, states):
    """A copy some of whose points have other states."""
    other = copy.deepcopy(model)
    other.cv_results_["state"] = other.cv_results_["state"].astype("<U9")
    for k, state in states.items():
        other.cv_results_["state"][k] = state
        if state in ("skipped", "not tried"):
            other.scores_[k] = np.nan
    return other


def test_the_section_has_the_chosen_point_and_the_best_ten(model):
    page = assert_sound(report(model).html)
    text, found = page.text("search"), searched(model)
    assert f"mean score {model.best_score_:.4f}" in text
    assert f"standard error {found.chosen.error:.4f}" in text
    for name, point in found.top(10):
        assert f"{name} {' '.join(f'{each:.4g}' for each in point.parameters.values())} {point.mean:.4f}" in text
    assert "A gap bounds the objective of a fit, not its score." in text


def test_a_model_from_a_file_has_the_same_section(model, tmp_path):
    save(model, tmp_path / "model.wm")
    sections = [assert_sound(report(each).html).text("search") for each in (model, load(tmp_path / "model.wm"))]
    assert sections[0] == sections[1]


def test_values_of_nu_that_are_infeasible_are_said():
    model = NuMarginSVCCV(nus=[0.05, 0.2, 0.5, 1.0], cv=3, refine=False).fit(X, np.where(X[:, 0] > 0.3, 1, 0))
    states = searched(model).states
    assert states["infeasible"] >= 1
    text = assert_sound(report(model).html).text("search")
    assert f"Points infeasible: {states['infeasible']}." in text
    plot_search(model)
    plt.close("all")


def test_more_than_two_parameters_have_a_table_and_no_map():
    model = MarginDistributionSVCCV(Cs=[1.0, 10.0], gammas=[0.1, 1.0], deadbands=[0.1, 0.3], cv=2, refine=False)
    page = assert_sound(report(model.fit(X, Y)).html)
    assert "The best of 8 points" in page.text("search")
    with pytest.raises(ValueError, match="more than two parameters vary"):
        plot_search(model)


def test_points_that_were_not_finished_are_said_and_hatched(model):
    k = next(k for k in range(15) if k != model.best_index_)
    other = with_states(model, {k: "skipped", 14: "not tried", 7: "estimated"})
    html = report(other).html
    page = assert_sound(html)
    assert "Points not tried: 1. Points skipped: 1." in page.text("search")
    assert "An estimated score" in page.text("search")
    assert "<pattern" in html
    assert "~" in page.text("search")
    assert "<pattern" not in report(model).html


def test_a_search_without_any_score_has_a_section(model):
    other = with_states(model, dict.fromkeys(range(len(model.scores_)), "not tried"))
    assert "No point was tried on all folds" in assert_sound(report(other).html).text("search")
    with pytest.raises(ValueError, match="No point of this search"):
        plot_search(other)


def test_costs_are_along_C_at_the_chosen_gamma_or_the_nearest_with_a_whole_line(model):
    line = line_of_costs(searched(model))
    Cs = [point.parameters["C"] for point in line]
    assert Cs == sorted(Cs)
    assert len({point.parameters["gamma"] for point in line}) == 1
    assert len(Cs) >= 5


@pytest.mark.parametrize("grid", [{"Cs": [1.0], "gammas": [0.1, 1.0]}, {"Cs": [1.0], "gammas": [1.0]}, {"Cs": 40}])
def test_grids_of_all_shapes_are_drawn(grid):
    model = KernelSVCCV(**({"gammas": 12} | grid), cv=2, refine=len(grid) > 1).fit(X[:60], Y[:60])
    assert_sound(report(model).html)
    plot_search(model)
    plt.close("all")


def test_a_kernel_without_gamma_has_a_curve():
    model = KernelSVCCV(kernel="linear", Cs=4, cv=3).fit(X, Y)
    assert "with one standard error" in assert_sound(report(model).html).text("search")
    ax = plot_search(model)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("C", "mean score")
    plt.close("all")


def test_the_plot_has_a_cell_with_its_score_for_every_point_of_the_grid(model):
    ax = plot_search(model, ax=plt.subplots()[1])
    numbers = [text.get_text() for text in ax.texts]
    means = model.cv_results_["mean_test_score"][:15]
    assert numbers == [f"{mean:.3f}".lstrip("0") for mean in means]
    plt.close("all")
    with pytest.raises(ValueError, match="KernelSVC has no cv_results_"):
        plot_search(KernelSVC().fit(X, Y))
