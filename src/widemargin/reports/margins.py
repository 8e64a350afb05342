"""The distribution of the margins y f(x)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

_OURS, _THEIRS = "#1f5fa8", "#c4621a"
_MIN_BINS, _MAX_BINS = 24, 80


def plot_margins(
    model: Any, X: Any, y: Any, *, held_out: tuple[Any, Any] | None = None, beside: Any = None, ax: Any = None
) -> Any:
    """Draw the histogram of margins, with mean, variance and deadband; a second model is drawn downwards.

    Margins left of 0 are errors. Scores can be multiplied by any positive number without changing a decision, so widths
    are compared at equal means: the margins of ``beside`` are scaled such that both models have the same mean training
    margin, and the label gives the factor. If one of the two means is not positive, margins are not scaled.

    Parameters
    ----------
    model : estimator
        Fitted on two classes, with ``decision_function``; its ``deadband`` is shaded if it has one.
    X, y : array-like
        The training rows and their labels.
    held_out : tuple of (X, y), default=None
        Held-out rows, drawn as an outline.
    beside : estimator, default=None
        A second fitted model of the same classes, for example :class:`widemargin.KernelSVC`.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Where it was drawn.

    Examples
    --------
    >>> from widemargin import KernelSVC, MarginDistributionSVC
    >>> from widemargin.data import make_nonseparable
    >>> from widemargin.reports import plot_margins
    >>> X, y = make_nonseparable(200, 3, random_state=0)
    >>> model, other = MarginDistributionSVC().fit(X, y), KernelSVC().fit(X, y)
    >>> ax = plot_margins(model, X, y, beside=other)
    >>> ax.get_ylabel()
    'share of rows in a bin'
    """
    models = [model] if beside is None else [model, beside]
    samples = [(X, y)] if held_out is None else [(X, y), held_out]
    for each in models:
        check_is_fitted(each)
    classes = [each.classes_.tolist() for each in models]
    if classes[0] != classes[-1]:
        raise ValueError(f"model has the classes {classes[0]} and beside has {classes[-1]}: they must be the same.")
    margins = [[_margins(each, *rows) for rows in samples] for each in models]
    names = [type(each).__name__ for each in models]
    if beside is not None:
        ours, theirs = float(margins[0][0].mean()), float(margins[1][0].mean())
        if ours > 0 and theirs > 0:
            margins[1] = [ours / theirs * each for each in margins[1]]
            names[1] += f", margins times {ours / theirs:.3g}: the same mean"
        else:
            names[1] += ", margins not scaled"

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
    if len(model.classes_) != 2:
        raise ValueError(
            f"{type(model).__name__} has {len(model.classes_)} classes, but margins are drawn for two: fit it on one "
            "class against the rest."
        )
    y = np.asarray(y)
    unknown = sorted(set(np.unique(y).tolist()) - set(model.classes_.tolist()), key=str)
    if unknown:
        raise ValueError(f"y has the labels {unknown}; {type(model).__name__} knows only {model.classes_.tolist()}.")
    scores: np.ndarray = model.decision_function(X)
    return np.where(y == model.classes_[1], scores, -scores)


def bin_edges(margins: np.ndarray) -> np.ndarray:
    """The edges of the bins; 0 is one of them, so that no bin mixes errors and correct rows."""
    low, high = float(margins.min()), float(margins.max())
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    # Freedman and Diaconis; NumPy would create all edges, possibly billions, before it limits their number.
    step = 2 * float(np.subtract(*np.percentile(margins, [75, 25]))) / len(margins) ** (1 / 3)
    width = (high - low) / min(max((high - low) / step if step > 0 else 0, _MIN_BINS), _MAX_BINS)
    return width * np.arange(np.floor(low / width), np.ceil(high / width) + 1.5)


def _draw(ax: Any, samples: list[np.ndarray], edges: np.ndarray, colour: str, sign: int) -> float:
    """Draw the histograms of one model up or down, with mean and standard deviation; return their height."""
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
    """Write the statistics of one model into the corner on its side."""
    lines = [
        f"{rows}: mean {margin.mean():.3g}, variance {margin.var():.3g}, errors {100 * np.mean(margin <= 0):.3g} %"
        for rows, margin in zip(("training (filled)", "held out (outline)"), samples, strict=False)
    ]
    at, side = (0.03, "bottom") if is_below else (0.97, "top")
    looks = {"va": side, "color": colour, "fontsize": 8.5, "linespacing": 1.4, "zorder": 7}
    ax.text(0.015, at, "\n".join([name, *lines]), transform=ax.transAxes, **looks)


def _frame(ax: Any, above: float, below: float, deadband: float | None) -> None:
    """Axes with room for text on both sides, the deadband, and the line at 0."""
    room = 0.3 * (above + below)
    low, high = -below - (room if below else 0.0), above + room
    ax.set_ylim(low, high)
    ends = {"ymin": (-below - low) / (high - low), "ymax": (above - low) / (high - low)}
    ax.axvline(0, color="0.3", linewidth=1, linestyle=":", zorder=1, **ends)
    if deadband is not None:
        ax.axvspan(1 - deadband, 1 + deadband, color="0.92", zorder=0, **ends)
        ax.annotate("deadband", (1, above), (0, 3), textcoords="offset points", ha="center", color="0.45", fontsize=8.5)
    ticks = [tick for tick in ax.get_yticks() if -below <= tick <= above]
    ax.set_yticks(ticks, [f"{abs(tick):g}" for tick in ticks])  # shares are positive on both sides
    if below:
        ax.axhline(0, color="0.3", linewidth=0.8, zorder=4)
    ax.set_xlabel("margin y f(x); errors are left of 0; diamonds: means, with one standard deviation each way")
    ax.set_ylabel("share of rows in a bin")
    ax.spines[["top", "right"]].set_visible(False)
