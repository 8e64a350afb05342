"""The picture of margins: what is drawn, of what, at which scale."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tests.problems_at_hand import overlapping
from widemargin import KernelSVC, MarginDistributionSVC

matplotlib = pytest.importorskip("matplotlib", reason="needs the plot extra")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.patches import StepPatch  # noqa: E402

from widemargin.reports.margins import plot_margins  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rows():
    X, y = overlapping(0, n=120)
    return X, np.where(y > 0, "yes", "no")


@pytest.fixture(scope="module")
def model(rows):
    return MarginDistributionSVC(C=100.0, deadband=0.25).fit(*rows)


def histograms(ax):
    return [patch for patch in ax.patches if isinstance(patch, StepPatch)]


def words(ax):
    return "\n".join(text.get_text() for text in ax.texts)


def test_the_histogram_is_of_all_margins_and_the_numbers_are_theirs(model, rows):
    X, y = rows
    ax = plot_margins(model, X, y)
    margins = np.where(y == "yes", 1, -1) * model.decision_function(X)
    (drawn,) = histograms(ax)
    shares, edges, _ = drawn.get_data()
    assert shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(shares, np.histogram(margins, edges)[0] / len(y))
    assert edges[0] <= margins.min()
    assert edges[-1] >= margins.max()
    assert np.abs(edges).min() < 1e-9  # errors and others share no bin
    assert f"mean {margins.mean():.3g}, variance {margins.var():.3g}" in words(ax)
    assert f"errors {100 * (1 - model.score(X, y)):.3g} %" in words(ax)
    diamonds = [line for line in ax.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in diamonds] == pytest.approx([margins.mean()])


def test_the_deadband_is_that_of_the_model(model, rows):
    ax = plot_margins(model, *rows)
    (band,) = [patch for patch in ax.patches if not isinstance(patch, StepPatch)]
    assert band.get_x() == pytest.approx(0.75)
    assert band.get_width() == pytest.approx(0.5)
    without = plot_margins(KernelSVC().fit(*rows), *rows)
    assert len(without.patches) == 1
    assert "deadband" not in words(without)


def test_rows_held_out_have_their_own_outline(model, rows):
    X, y = overlapping(1, n=60)
    ax = plot_margins(model, *rows, held_out=(X, np.where(y > 0, "yes", "no")))
    assert [np.sum(each.get_data().values) for each in histograms(ax)] == pytest.approx([1.0, 1.0])
    assert "held out" in words(ax)


def test_another_model_hangs_below_at_the_same_mean_and_says_so(model, rows):
    X, y = rows
    widest = KernelSVC(C=10.0).fit(X, y)
    ax = plot_margins(model, X, y, held_out=rows, beside=widest)
    assert [np.sum(each.get_data().values) for each in histograms(ax)] == pytest.approx([1, 1, -1, -1])
    sign = np.where(y == "yes", 1, -1)
    factor = (sign * model.decision_function(X)).mean() / (sign * widest.decision_function(X)).mean()
    assert f"KernelSVC, margins times {factor:.3g}" in words(ax)
    means = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    np.testing.assert_allclose(means, means[0])
    assert all(float(tick.get_text()) >= 0 for tick in ax.get_yticklabels())


def test_margins_with_no_positive_mean_are_shown_as_they_are(model, rows):
    X, y = rows
    opposite = KernelSVC().fit(X, np.where(y == "yes", "no", "yes"))
    assert "margins not scaled" in words(plot_margins(model, X, y, beside=opposite))


def test_it_draws_where_it_is_told_and_rows_may_all_have_one_margin(model, rows):
    X, y = rows
    _, ax = plt.subplots()
    assert plot_margins(model, X[:1], y[:1], ax=ax) is ax


def test_what_cannot_be_drawn_is_said(model, rows):
    X, y = rows
    three = MarginDistributionSVC().fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    with pytest.raises(ValueError, match="3 classes"):
        plot_margins(three, X, y)
    with pytest.raises(ValueError, match=r"labels \['perhaps'\]"):
        plot_margins(model, X, np.where(y == "yes", "yes", "perhaps"))
    with pytest.raises(ValueError, match="they must be the same"):
        plot_margins(model, X, y, beside=MarginDistributionSVC().fit(X, np.where(y == "yes", "yes", "maybe")))
    with pytest.raises(NotFittedError):
        plot_margins(MarginDistributionSVC(), X, y)


def test_matplotlib_is_imported_only_to_draw():
    import subprocess

    code = "import sys, widemargin.reports.margins; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
