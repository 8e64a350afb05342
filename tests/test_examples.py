"""Examples of the gallery: each runs, and ends in one figure that says what it shows."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("plot_*.py"))
QUICK = {"plot_hulls", "plot_sparse_path", "plot_pairs_of_digits", "plot_margin_distributions"}

pytestmark = pytest.mark.skipif(not EXAMPLES, reason="examples are in a checkout, not in what is installed")


@pytest.fixture
def plt(monkeypatch, tmp_path):
    """Pyplot without a screen, in a folder that is thrown away; no figure is left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    matplotlib.use("Agg", force=True)
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda *args, **kwargs: None)
    plt.close("all")
    yield plt
    plt.close("all")


def check_figure(plt) -> None:
    """One figure, with a title, labels on every axis that has ticks, and something drawn."""
    assert len(plt.get_fignums()) == 1, f"{len(plt.get_fignums())} figures, and one was expected"
    figure = plt.gcf()
    axes = [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]
    titles = [figure.get_suptitle(), *(axis.get_title() for axis in axes)]
    assert any(titles), "the figure has no title"
    for axis in axes:
        for one in (axis.xaxis, axis.yaxis):
            shares_labels = one is axis.yaxis and axis.get_shared_y_axes().joined(axis, axes[0]) and axis is not axes[0]
            has_ticks = one.get_visible() and len(one.get_ticklocs()) > 0
            is_inner = one is axis.xaxis and not axis.xaxis.get_tick_params().get("labelbottom", True)
            assert one.get_label_text() or not has_ticks or shares_labels or is_inner, "an axis without a label"
    picture = io.BytesIO()
    figure.savefig(picture, format="raw", dpi=30)
    pixels = np.frombuffer(picture.getvalue(), np.uint8)
    assert len(np.unique(pixels)) > 10, "the figure is empty"


def run_example(path: Path, plt) -> None:
    runpy.run_path(str(path), run_name="__main__")
    check_figure(plt)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem in QUICK], ids=lambda path: path.stem)
def test_quick_examples_end_in_a_figure(path, plt):
    run_example(path, plt)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem not in QUICK], ids=lambda path: path.stem)
def test_all_examples_end_in_a_figure(path, plt):
    run_example(path, plt)


def test_the_quick_ones_are_among_them_and_there_are_twelve_or_more():
    names = {path.stem for path in EXAMPLES}
    assert names >= QUICK
    assert len(names) >= 12


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_opens_with_a_title_and_has_cells(path):
    text = path.read_text(encoding="utf8")
    title, underline, *_ = text.removeprefix('"""\n').splitlines()
    assert text.startswith('"""\n')
    assert underline == "=" * len(title)
    assert text.count("\n# %%\n") >= 2
    assert text.rstrip().endswith("plt.show()")


@pytest.mark.parametrize(
    ("flaw", "draw"),
    [
        ("figures", lambda plt: (plt.figure(), plt.figure())),
        ("no title", lambda plt: plt.plot([1, 2])),
        ("without a label", lambda plt: (plt.plot([1, 2]), plt.title("a line"))),
        ("empty", lambda plt: (plt.figure(), plt.suptitle(" "))),
    ],
)
def test_the_check_notices(flaw, draw, plt):
    draw(plt)
    with pytest.raises(AssertionError, match=flaw):
        check_figure(plt)
