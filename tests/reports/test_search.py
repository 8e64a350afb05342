"""The section about a search, and its plot: that the numbers are those of the search, whatever became of its points."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the plot extra")

import matplotlib.pyplot as plt

from tests.problems_at_hand import overlapping
from tests.reports.test_page import assert_sound
from widemargin import KernelSVC, KernelSVCCV, MarginDistributionSVCCV, NuMarginSVCCV, load, report, save
from widemargin.estimators.searched import Unseen, UnseenScores, searched
from widemargin.reports import plot_search
from widemargin.reports.page import page_of
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
    assert "1 value of nu is too large for a fold." in text
    assert "filled circles are certified." in text
    plot_search(model)
    plt.close("all")


def test_a_curve_names_the_states_of_its_empty_circles():
    model = NuMarginSVCCV(nus=[0.05, 0.2, 0.5], cv=3, refine=False).fit(X, np.where(X[:, 0] > 0.3, 1, 0))
    text = assert_sound(report(with_states(model, {0: "overlap"})).html).text("search")
    assert "filled circles are certified; empty ones: overlap." in text
    assert "1 value of nu is too small: the hulls overlap." in text


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
    assert "1 point was not tried. 1 point was skipped because scores had fallen." in page.text("search")
    assert "An estimated score" in page.text("search")
    assert "<pattern" in html
    assert "~" in page.text("search")
    assert "<pattern" not in report(model).html


def test_an_estimated_choice_has_its_state_and_a_sentence(model):
    other = with_states(model, {model.best_index_: "estimated"})
    text = assert_sound(report(other).html).text("search")
    assert "state estimated" in text
    assert "its score is an estimate. Raise max_iter" in text
    assert "state certified within one" in assert_sound(report(model).html).text("search")


def header(html):
    """The text above the sections."""
    return " ".join(re.sub(r"<[^>]+>", " ", html.split("<header>")[1].split("</header>")[0]).split())


def test_scores_on_unseen_rows_are_at_the_top(model):
    folds = [Unseen(60, score, 0.5, {"C": 1.0, "gamma": 0.25}) for score in (0.8, 0.9)]
    html = page_of(model, unseen=UnseenScores("balanced_accuracy", folds, 2)).html
    page, top = assert_sound(html), header(html)
    assert "balanced accuracy on unseen rows 0.8500 ± 0.0707" in top
    assert "largest class alone 0.5000" in top
    assert "Interrupted" not in top
    assert "The score on unseen rows is at the top." in page.text("search")
    assert "1 1 0.25 0.8000 0.5000 60" in page.text("search")
    html = page_of(model, unseen=UnseenScores("accuracy", folds[:1], 3)).html
    assert "Accuracy on 60 rows held out of the search" in header(html)
    assert "Interrupted: 1 of 3 outer folds were scored." in header(html)
    assert "outer fold" not in assert_sound(html).text("search")
    assert "not scored on unseen rows" in page_of(model, unseen=UnseenScores("accuracy", [], 3)).html
    assert "widemargin tune --outer 5" in assert_sound(report(model).html).text("search")


def test_a_search_without_any_score_has_a_section(model):
    other = with_states(model, dict.fromkeys(range(len(model.scores_)), "not tried"))
    assert "No point was tried on all folds: this one is the middle of the grid." in assert_sound(
        report(other).html
    ).text("search")
    with pytest.raises(ValueError, match="No point of this search"):
        plot_search(other)


def test_costs_are_along_C_at_the_chosen_gamma_or_the_nearest_with_a_whole_line(model):
    line = line_of_costs(searched(model))
    Cs = [point.parameters["C"] for point in line]
    assert Cs == sorted(Cs)
    assert len({point.parameters["gamma"] for point in line}) == 1
    assert len(Cs) >= 5
    text = assert_sound(report(model).html).text("search")
    assert "dashed: the chosen C" in text
    gamma = line[0].parameters["gamma"]
    assert (f"whose gamma is {model.best_params_['gamma']:.4g}" in text) == (gamma != model.best_params_["gamma"])


@pytest.mark.parametrize("grid", [{"Cs": [1.0], "gammas": [0.1, 1.0]}, {"Cs": [1.0], "gammas": [1.0]}, {"Cs": 40}])
def test_grids_of_all_shapes_are_drawn(grid):
    model = KernelSVCCV(**({"gammas": 12} | grid), cv=2, refine=len(grid) > 1).fit(X[:60], Y[:60])
    assert_sound(report(model).html)
    ax = plot_search(model)
    assert (ax.get_legend() is not None) == (grid == {"Cs": 40})  # twelve gammas: no room for numbers
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
    assert ax.get_title().endswith(f": accuracy {model.best_score_:.3f}")
    plt.close("all")
    with pytest.raises(ValueError, match="KernelSVC has no cv_results_"):
        plot_search(KernelSVC().fit(X, Y))
