"""The distribution of margins y f(x): how far rows lie on the right side, and how equally far."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

_OURS, _THEIRS = "#1f5fa8", "#c4621a"
_FEWEST, _MOST = 24, 80  # bins


def plot_margins(model: Any, X, y, *, held_out=None, beside=None, ax: Any = None) -> Any:
    """Draw the histogram of margins, with mean, variance and the deadband; that of another model hangs below it.

    Margins to the left of 0 are errors. Those of ``model`` are shown as they are. A score may be multiplied by any
    positive number and decide the same, so that widths are compared at equal means: margins of ``beside`` are
    multiplied by what makes the mean of its training margins that of the model's, and the label says by how much. Where
    one of the two means is not positive they are shown as they are, and the label says so.

    Parameters
    ----------
    model : estimator
        Fitted, of two classes, with ``decision_function``; its ``deadband`` is shaded where it has one.
    X, y : array-like
        The training rows and their labels.
    held_out : tuple of (X, y), default=None
        Rows that were not trained on, drawn as an outline.
    beside : estimator, default=None
        A second fitted model of the same classes, as the maximum-margin one of :class:`widemargin.KernelSVC`.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
    """
    models = [model] if beside is None else [model, beside]
    samples = [(X, y)] if held_out is None else [(X, y), held_out]
    for each in models:
        check_is_fitted(each)
    classes = [each.classes_.tolist() for each in models]
    if classes[0] != classes[-1]:
        raise ValueError(f"model tells {classes[0]} apart and beside {classes[-1]}: they must be the same classes.")
    margins = [[_margins(each, *rows) for rows in samples] for each in models]
    names = [type(each).__name__ for each in models]
    if beside is not None:
        ours, theirs = float(margins[0][0].mean()), float(margins[1][0].mean())
        if ours > 0 and theirs > 0:
            margins[1] = [ours / theirs * each for each in margins[1]]
            names[1] += f", margins times {ours / theirs:.3g}: the same mean"
        else:
            names[1] += ", margins as they are"

    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(8, 4.5 if beside is None else 5.8), layout="constrained")[1] if ax is None else ax
    edges = bin_edges(np.concatenate([each for of_model in margins for each in of_model]))
    reach = [0.0, 0.0]
    for k, (of_model, name, colour) in enumerate(zip(margins, names, (_OURS, _THEIRS), strict=False)):
        reach[k] = _draw(ax, of_model, edges, colour, -1 if k else 1)
        _describe(ax, of_model, name, colour, is_below=k > 0)
    _frame(ax, reach[0], reach[1], getattr(model, "deadband", None))
    return ax


def _margins(model: Any, X: Any, y: Any) -> np.ndarray:
    """y f(x) of rows."""
    if len(model.classes_) != 2:
        raise ValueError(
            f"{type(model).__name__} tells {len(model.classes_)} classes apart, and margins are drawn of two: fit it "
            "on one class against the rest."
        )
    y = np.asarray(y)
    unknown = sorted(set(np.unique(y).tolist()) - set(model.classes_.tolist()), key=str)
    if unknown:
        raise ValueError(f"y has the labels {unknown}, and {type(model).__name__} knows {model.classes_.tolist()}.")
    return np.where(y == model.classes_[1], 1.0, -1.0) * model.decision_function(X)


def bin_edges(margins: np.ndarray) -> np.ndarray:
    """The ends of the bins, of which one is at 0 where there are errors: no bin holds both kinds of rows."""
    low, high = float(margins.min()), float(margins.max())
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    # Freedman and Diaconis; NumPy would first make all edges, of which there may be billions.
    step = 2 * float(np.subtract(*np.percentile(margins, [75, 25]))) / len(margins) ** (1 / 3)
    width = (high - low) / np.clip((high - low) / step if step > 0 else 0, _FEWEST, _MOST)
    return width * np.arange(np.floor(low / width), np.ceil(high / width) + 1.5)


def _draw(ax: Any, samples: list[np.ndarray], edges: np.ndarray, colour: str, sign: int) -> float:
    """Histograms of one model, up or down, and how far they reach; a diamond at each mean, a line of one deviation."""
    shares = [np.histogram(margin, edges)[0] / len(margin) for margin in samples]
    height = float(np.max(shares))
    for k, (share, margin) in enumerate(zip(shares, samples, strict=True)):
        looks = {"linewidth": 1.4, "zorder": 4} if k else {"fill": True, "alpha": 0.4, "linewidth": 0, "zorder": 3}
        ax.stairs(sign * share, edges, color=colour, **looks)
        mean, deviation, at = float(margin.mean()), float(margin.std()), sign * height * (1.08 + 0.09 * k)
        ax.plot([mean - deviation, mean + deviation], [at, at], color=colour, linewidth=1.6, zorder=5)
        ax.plot(mean, at, "D", color=colour, markerfacecolor="white" if k else colour, markersize=5.5, zorder=6)
    return height * (1.05 + 0.09 * len(samples))


def _describe(ax: Any, samples: list[np.ndarray], name: str, colour: str, *, is_below: bool) -> None:
    """The numbers of one model, in its colour, in the corner on its side."""
    lines = [
        f"{rows}: mean {margin.mean():.3g}, variance {margin.var():.3g}, errors {100 * np.mean(margin <= 0):.3g} %"
        for rows, margin in zip(("training (filled)", "held out (outline)"), samples, strict=False)
    ]
    at, side = (0.03, "bottom") if is_below else (0.97, "top")
    text = "\n".join([name, *lines])
    ax.text(0.015, at, text, transform=ax.transAxes, va=side, color=colour, fontsize=8.5, linespacing=1.4, zorder=7)


def _frame(ax: Any, above: float, below: float, deadband: float | None) -> None:
    """Axes with room for words on both sides, the deadband, and the line that errors are left of."""
    room = 0.3 * (above + below)
    low, high = -below - (room if below else 0.0), above + room
    ax.set_ylim(low, high)
    ends = {"ymin": (-below - low) / (high - low), "ymax": (above - low) / (high - low)}
    ax.axvline(0, color="0.3", linewidth=1, linestyle=":", zorder=1, **ends)
    if deadband is not None:
        ax.axvspan(1 - deadband, 1 + deadband, color="0.92", zorder=0, **ends)
        ax.annotate("deadband", (1, above), (0, 3), textcoords="offset points", ha="center", color="0.45", fontsize=8.5)
    ticks = [tick for tick in ax.get_yticks() if -below <= tick <= above]
    ax.set_yticks(ticks, [f"{abs(tick):g}" for tick in ticks])  # what hangs down is counted as what stands
    if below:
        ax.axhline(0, color="0.3", linewidth=0.8, zorder=4)
    ax.set_xlabel("margin y f(x); errors are left of 0; diamonds: means, and a standard deviation each way")
    ax.set_ylabel("share of rows in a bin")
    ax.spines[["top", "right"]].set_visible(False)
