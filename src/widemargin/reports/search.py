"""The scores of a search over C and gamma, and what its models cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from widemargin.estimators.searched import Searched, SearchPoint, searched
from widemargin.reports._svg import plain_powers

_LEAST_SHADE, _LARGEST_SHADE = 0.06, 0.92  # of a cell
_DARK = 0.6  # shade from which letters have the colour of the ground
_MAX_CELLS_WITH_NUMBERS = 10  # across
_MAX_LABELS_ACROSS, _MAX_LABELS_DOWN = 5, 12  # of the axes
_FEW_POWERS = 200.0  # between the ends of an axis
_MIN_LINE = 4  # points of a curve along C


class Colours(NamedTuple):
    """Of text, grid, ground, scores and the chosen point."""

    ink: str
    faint: str
    paper: str
    scores: str
    chosen: str


ON_WHITE = Colours("#1b2027", "#aeb6c0", "#ffffff", "#0067a6", "#b84a00")


def plot_search(model: Any, *, ax: Any = None) -> Any:
    """Draw the mean scores of a search by cross-validation: a map over C and gamma, or a curve over C alone.

    The stronger the colour of a cell, the better its mean score; all points more than two standard errors below the
    best, and below the median, share the weakest. More than ten values across have a legend of shades in place of
    numbers. Small circles are points that refine the grid, the outline marks the chosen point. ``~`` marks scores
    that are estimated; hatched cells were skipped, or not tried.

    Parameters
    ----------
    model : KernelSVCCV, or another estimator with ``cv_results_``
        Fitted.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import KernelSVCCV
    >>> from widemargin.reports import plot_search
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = KernelSVCCV(Cs=[0.1, 1.0, 10.0], gammas=[0.01, 0.1], cv=3).fit(scale(X), y)
    >>> ax = plot_search(model)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('gamma', 'C')
    """
    check_is_fitted(model)
    found = searched(model)
    if found is None:
        raise ValueError(f"{type(model).__name__} has no cv_results_ to draw: fit KernelSVCCV, for example.")
    if not is_drawable(found):
        raise ValueError("No point of this search has scores on all folds, or more than two parameters vary.")

    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7, 5), layout="constrained")[1] if ax is None else ax
    draw_scores(ax, found, ON_WHITE)
    ax.set_title(f"{found.chosen.in_words}: {_name_of_score(model)} {found.chosen.mean:.3f}", fontsize=11)
    return ax


def _name_of_score(model: Any) -> str:
    """The name of the scorer that decides; functions have none."""
    first = model.scoring[0] if isinstance(model.scoring, list | tuple) else model.scoring
    return "accuracy" if first is None else first.replace("_", " ") if isinstance(first, str) else "score"


def is_drawable(found: Searched) -> bool:
    return bool(found.best_first) and len(found.varying) <= 2


def draw_scores(ax: Any, found: Searched, colours: Colours) -> None:
    """Draw a map of scores over two parameters, or a curve over one."""
    if len(found.varying) == 2:
        _draw_map(ax, found, colours)
    else:
        _draw_curve(ax, found, colours)


# -- a map -------------------------------------------------------------------------------------------------------------


def _draw_map(ax: Any, found: Searched, colours: Colours) -> None:
    from matplotlib.patches import Rectangle

    (down, rows), (across, columns) = found.axes.items()
    shade, has_numbers = _shades(found), len(columns) <= _MAX_CELLS_WITH_NUMBERS
    for point in found.points:
        x, y = _place(columns, point.parameters[across]), _place(rows, point.parameters[down])
        if x % 1 or y % 1:
            continue
        cell = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="none", edgecolor=colours.faint, linewidth=0.6)
        if point.is_tried:
            strength = shade(point)
            inside = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colours.scores, alpha=strength, linewidth=0)
            ax.add_patch(inside)
            if has_numbers:
                colour = colours.paper if strength > _DARK else colours.ink
                ax.text(x, y, _number(point), ha="center", va="center", fontsize=8, color=colour)
        else:
            cell.set_hatch("////")
        ax.add_patch(cell)
    for point in found.points:
        x, y = _place(columns, point.parameters[across]), _place(rows, point.parameters[down])
        if (x % 1 or y % 1) and point.is_tried:
            for colour, alpha in ((colours.paper, 1.0), (colours.scores, shade(point))):
                ax.plot(x, y, "o", markersize=7, color=colour, alpha=alpha, markeredgewidth=0, zorder=3)
            looks: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": colours.ink, "markeredgewidth": 0.7}
            ax.plot(x, y, "o", markersize=7, zorder=3, **looks)
        if point is found.chosen and (x % 1 or y % 1):
            _ring(ax, x, y, colours, size=13)
        elif point is found.chosen:  # a ring would cross the digits
            looks = {"fill": False, "edgecolor": colours.chosen, "linewidth": 2.3, "zorder": 4}
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **looks))
    if not has_numbers:
        _name_shades(ax, found, colours)
    ax.set(xlim=(-0.75, len(columns) - 0.25), ylim=(-0.75, len(rows) - 0.25), xlabel=across, ylabel=down)
    for axis, values, most in ((ax.xaxis, columns, _MAX_LABELS_ACROSS), (ax.yaxis, rows, _MAX_LABELS_DOWN)):
        step = 1 + (len(values) - 1) // most
        axis.set_ticks(range(0, len(values), step), [_plain(value) for value in values[::step]])
        axis.set_tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)


def _ring(ax: Any, x: float, y: float, colours: Colours, *, size: float) -> None:
    looks: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": colours.chosen, "markeredgewidth": 2.3}
    ax.plot(x, y, "o", markersize=size, zorder=4, **looks)


def _place(values: Sequence[float], value: float) -> float:
    """The position on an axis whose values are one apart; between and beyond them on a logarithmic scale."""
    if len(values) == 1:
        return 0.0
    logs = np.log(values)
    k = int(np.clip(np.searchsorted(logs, np.log(value)) - 1, 0, len(values) - 2))
    place = k + (np.log(value) - logs[k]) / (logs[k + 1] - logs[k])
    return float(np.round(place, 6))


def _plain(value: float) -> str:
    """Three digits, without an exponent where that is short."""
    return f"{value:.0f}" if 1000 <= value < 1e5 else f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-")


def _ends(found: Searched) -> tuple[float, float]:
    """The mean scores of the weakest and of the strongest colour."""
    ranked = found.best_first
    best, means = ranked[0], np.array([point.mean for point in ranked])
    return min(float(np.median(means)), best.mean - 2 * best.error), best.mean


def _shades(found: Searched) -> Any:
    """How strong the colour of a point is; at least two standard errors below the best it is as weak as can be."""
    low, high = _ends(found)

    def shade(point: SearchPoint) -> float:
        return _strength(float(np.clip((point.mean - low) / (high - low or 1.0), 0.0, 1.0)))

    return shade


def _strength(share: float) -> float:
    return _LEAST_SHADE + (_LARGEST_SHADE - _LEAST_SHADE) * share


def _name_shades(ax: Any, found: Searched, colours: Colours) -> None:
    """A legend of scores, where cells have no room for numbers."""
    from matplotlib.patches import Patch

    low, high = _ends(found)
    patches = [
        Patch(
            facecolor=colours.scores,
            alpha=_strength(share),
            label=f"{'' if share else '≤ '}{low + share * (high - low):.3f}",
        )
        for share in (1.0, 0.75, 0.5, 0.25, 0.0)
    ]
    ax.legend(
        handles=patches, title="mean score", loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False
    )


def _number(point: SearchPoint) -> str:
    text = f"{point.mean:.3f}" if abs(point.mean) < 10 else f"{point.mean:.3g}"
    text = text.replace("0.", ".", 1) if abs(point.mean) < 1 else text
    return text if point.state == "certified" else f"~{text}"


# -- curves ------------------------------------------------------------------------------------------------------------


def _draw_curve(ax: Any, found: Searched, colours: Colours) -> None:
    """Means with one standard error; filled markers are certified, empty ones are not."""
    [name] = found.varying
    points = sorted(found.best_first, key=lambda point: point.parameters[name])
    x, y = [point.parameters[name] for point in points], [point.mean for point in points]
    ax.errorbar(x, y, [point.error for point in points], color=colours.scores, linewidth=1.4, capsize=2.5, zorder=2)
    for point in points:
        inside = colours.scores if point.state == "certified" else colours.paper
        looks = {"markerfacecolor": inside, "markeredgecolor": colours.scores}
        ax.plot(point.parameters[name], point.mean, "o", markersize=5, zorder=3, **looks)
    _ring(ax, found.chosen.parameters[name], found.chosen.mean, colours, size=12)
    ax.set(xscale="log", xlabel=name, ylabel="mean score")
    _name_values(ax.xaxis, x)
    ax.grid(alpha=0.6)


def line_of_costs(found: Searched) -> list[SearchPoint]:
    """The points along the first parameter at the chosen second one, or at the nearest with enough of them."""
    there = [point for point in found.points if point.is_tried]
    outer, *others = found.varying
    if not others:
        return sorted(there, key=lambda point: point.parameters[outer])
    [inner] = others
    lines: dict[float, list[SearchPoint]] = {}
    for point in there:
        lines.setdefault(point.parameters[inner], []).append(point)
    if not lines:
        return []
    enough = min(_MIN_LINE, max(map(len, lines.values())))
    value = min(
        (each for each, line in lines.items() if len(line) >= enough),
        key=lambda each: abs(np.log(each / found.chosen.parameters[inner])),
    )
    return sorted(lines[value], key=lambda point: point.parameters[outer])


def draw_costs(axes: Any, line: Sequence[SearchPoint], name: str, chosen: float, colours: Colours) -> None:
    """Draw the number of support vectors and the time of a fit, one below the other."""
    x = [point.parameters[name] for point in line]
    for ax, values, title in (
        (axes[0], [point.n_support for point in line], "support vectors"),
        (axes[1], [1000 * point.seconds for point in line], "ms per fit"),
    ):
        ax.plot(x, values, color=colours.scores, linewidth=1.6, marker="o", markersize=3.5)
        ax.axvline(chosen, color=colours.chosen, linewidth=1.2, linestyle="--", zorder=1)
        ax.set(xscale="log", ylabel=title, ylim=(0, None))
        ax.grid(alpha=0.6)
    axes[1].set_xlabel(name)
    _name_values(axes[1].xaxis, x)


def _name_values(axis: Any, values: Sequence[float]) -> None:
    """Label powers of ten, or numbers where there are few powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    plain_powers(axis)
    if max(values) < _FEW_POWERS * min(values):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
