"""The figures of a report: the search, convergence, margins by class, coefficients, the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from widemargin.estimators.searched import Searched
from widemargin.problems.protocol import Certificate
from widemargin.reports import network, search
from widemargin.reports._html import shortened
from widemargin.reports._svg import FAINT, FIRST, INK, PAPER, SECOND, blank, plain_powers
from widemargin.reports.margins import bin_edges

_MAX_POINTS = 300  # of a curve
_MAX_CLASSES = 20
_MIN_GAP = 1e-16  # on a logarithmic scale
_COLOURS = search.Colours(INK, FAINT, PAPER, FIRST, SECOND)

Row = Mapping[str, float]  # of a history


class Picture(NamedTuple):
    """A figure, its description for screen readers, and its caption."""

    figure: Any
    label: str
    caption: str


def certified(history: Sequence[Row]) -> dict[int, list[Row]]:
    """Rows of a history that have two finite bounds, by subproblem."""
    parts: dict[int, list[Row]] = {}
    for row in history:
        if np.isfinite(row["primal"]) and np.isfinite(row["dual"]):
            parts.setdefault(int(row.get("part", 0)), []).append(row)
    return parts


def relative_gap(row: Row) -> float:
    return Certificate(row["primal"], row["dual"]).relative


def gaps(parts: Mapping[int, list[Row]], worst: int, tol: float | None, over: str) -> Picture:
    """The relative gap over seconds or sweeps; the subproblem with the largest gap stands out."""
    figure, ax = blank(2.9)
    for k, rows in parts.items():
        rows = _thinned(rows)
        gap = [max(relative_gap(row), _MIN_GAP) for row in rows]
        looks: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "zorder": 2}
        if k == worst:
            looks = {"color": FIRST, "linewidth": 1.8, "zorder": 3, "marker": "o", "markersize": 3.2}
            looks["markevery"] = max(1, len(rows) // 25)
        ax.plot(_x(rows, over), gap, **looks)
    ax.set_yscale("log")
    if tol:
        ax.axhline(tol, color=SECOND, linewidth=1.2, linestyle="--", zorder=1)
        ax.annotate("tol", (1.01, tol), xycoords=("axes fraction", "data"), va="center", color=SECOND, fontsize=8.5)
    _room_around(ax, [tol] if tol else [])
    plain_powers(ax.yaxis)
    _frame(ax, over, "relative gap")
    others = f"; faint lines: the other {len(parts) - 1}" if len(parts) > 1 else ""
    label = f"Relative gap over {over}, on a logarithmic scale; it ends at {relative_gap(parts[worst][-1]):.2g}."
    return Picture(figure, label, f"The proved gap over {over}{f'; dashed: tol = {tol:g}' if tol else ''}{others}.")


def bounds(rows: Sequence[Row], over: str, what: str) -> Picture:
    """Upper and lower bound of one subproblem, and the band between them."""
    figure, ax = blank(2.9)
    rows = _thinned(rows)
    x, upper, lower = _x(rows, over), [row["primal"] for row in rows], [row["dual"] for row in rows]
    ax.fill_between(x, lower, upper, color=FIRST, alpha=0.15, linewidth=0)
    for y, colour, marker in ((upper, FIRST, "o"), (lower, SECOND, "s")):
        ax.plot(x, y, color=colour, linewidth=1.6, marker=marker, markersize=3, markevery=max(1, len(rows) // 25))
    # The first bounds may be far off: the axis shows the range of the later three quarters.
    late = len(rows) // 4
    low, high = min(lower[late:]), max(upper[late:])
    room = 0.08 * (high - low) or 0.01 * abs(high) or 1.0
    ends = ax.set_ylim(low - 2.5 * room, high + 2.5 * room)  # with room for the labels
    _frame(ax, over, what)
    ax.annotate("upper bound", (0.98, 0.96), xycoords="axes fraction", ha="right", va="top", color=FIRST, fontsize=8.5)
    ax.annotate("lower bound", (0.98, 0.05), xycoords="axes fraction", ha="right", color=SECOND, fontsize=8.5)
    is_cut = min(lower) < ends[0] or max(upper) > ends[1]
    cut = " The first bounds are outside the figure." if is_cut else ""
    label = f"Upper and lower bound of the optimum over {over}; they end at {upper[-1]:.6g} and {lower[-1]:.6g}."
    return Picture(figure, label, f"The optimum lies in the band, over {over}.{cut}")


def margins_of_two(margins: np.ndarray, is_second: np.ndarray, names: Sequence[str]) -> Picture:
    """Histograms of y f(x), one class upwards and the other downwards."""
    figure, ax = blank(3.2)
    edges, reach = bin_edges(_within(margins)), [0.0, 0.0]
    clipped = np.clip(margins, edges[0], edges[-1])
    for sign, mask, colour in ((1, is_second, FIRST), (-1, ~is_second, SECOND)):
        if not mask.any():
            continue
        share = np.histogram(clipped[mask], edges)[0] / mask.sum()
        ax.stairs(sign * share, edges, color=colour, fill=True, alpha=0.55, linewidth=0)
        ax.stairs(sign * share, edges, color=colour, linewidth=1)
        reach[sign < 0] = float(share.max())
    ax.set_ylim(-1.45 * (reach[1] or 0.02), 1.45 * (reach[0] or 0.02))
    ax.plot([0, 0], [-reach[1], reach[0]], color=INK, linewidth=1, linestyle=":")
    ax.axhline(0, color=INK, linewidth=0.7)
    ticks = [tick for tick in ax.get_yticks() if -reach[1] <= tick <= reach[0]]
    ax.set_yticks(ticks, [f"{abs(tick):g}" for tick in ticks])
    top, bottom = (0.97, "top", is_second, FIRST, names[1]), (0.03, "bottom", ~is_second, SECOND, names[0])
    for at, va, mask, colour, name in (top, bottom):
        if mask.any():
            words = f"{shortened(name, 22)}: {100 * np.mean(margins[mask] <= 0):.3g}% errors"
            ax.annotate(words, (0.02, at), xycoords="axes fraction", va=va, color=colour, fontsize=9)
    ax.set(xlabel="margin; errors are left of 0", ylabel="share of the class")
    label = f"Histograms of the margins of both classes; {100 * np.mean(margins <= 0):.3g}% lie at 0 or left of it."
    cut = " The outermost bins include all margins beyond them." if (clipped != margins).any() else ""
    return Picture(figure, label, f"Margins by class: one class upwards, the other downwards.{cut}")


def margins_of_many(margins: np.ndarray, codes: np.ndarray, names: Sequence[str], unit: str) -> Picture:
    """Quantiles of the margins of each class; of many classes, those with the lowest medians."""
    there = [k for k in range(len(names)) if (codes == k).any()]
    quantiles = {k: np.percentile(margins[codes == k], [5, 25, 50, 75, 95]) for k in there}
    shown = sorted(there, key=lambda k: quantiles[k][2])[:_MAX_CLASSES]
    figure, ax = blank(1.1 + 0.26 * len(shown))
    for place, k in enumerate(shown):
        low, first, middle, third, high = quantiles[k]
        ax.plot([low, high], [place, place], color=FIRST, linewidth=1.2)
        ax.plot([first, third], [place, place], color=FIRST, linewidth=6, solid_capstyle="butt")
        ax.plot(middle, place, "o", markersize=5.5, markerfacecolor=PAPER, markeredgecolor=FIRST)
    ax.axvline(0, color=INK, linewidth=1, linestyle=":")
    ax.set_yticks(range(len(shown)), [shortened(names[k], 16) for k in shown])
    ax.set(ylim=(len(shown) - 0.4, -0.6), xlabel=f"margin in {unit}; errors are left of 0")
    left_out = f" The {len(shown)} of {len(there)} classes with the lowest medians." if len(there) > len(shown) else ""
    label = f"Quantiles of the margins of {len(shown)} classes; the lowest median is {quantiles[shown[0]][2]:.3g}."
    what = "The score of a row's own class minus the best other score, by class"
    how = "the line covers 90% of the rows, the bar the middle half, the circle marks the median"
    return Picture(figure, label, f"{what}: {how}.{left_out}")


def coefficients(
    names: Sequence[str], values: np.ndarray, ends: np.ndarray | None = None, *, what: str = "coefficient"
) -> Picture:
    """One line for each feature, with its interval if there is one."""
    figure, ax = blank(0.9 + 0.2 * len(names))
    places = np.arange(len(names))
    ax.axvline(0, color=INK, linewidth=0.8)
    if ends is None:
        ax.hlines(places, 0, values, color=FIRST, linewidth=1.6)
    else:
        is_known = np.isfinite(ends).all(axis=1)
        ax.hlines(places[is_known], *ends[is_known].T, color=FIRST, linewidth=1.6)
    for is_there, marker, colour in ((values > 0, "o", FIRST), (values <= 0, "D", SECOND)):
        ax.plot(values[is_there], places[is_there], marker, color=colour, markersize=4.5)
    ax.set_yticks(places, [shortened(name, 22) for name in names])
    ax.set(ylim=(len(names) - 0.4, -0.6), xlabel=what)
    ax.grid(axis="x", alpha=0.6)
    with_ends = " with its interval" if ends is not None else ""
    label = f"{len(names)} coefficients{with_ends}; the first is {shortened(names[0], 22)} at {values[0]:.4g}."
    return Picture(figure, label, f"Each {what}{with_ends}; circles are positive, diamonds negative.")


def search_scores(found: Searched) -> Picture:
    """The mean scores of a search."""
    names, chosen = found.varying, found.chosen
    figure, ax = blank(3.1 if len(names) == 1 else 1.0 + 0.27 * max(8, len(found.axes[names[0]])))
    search.draw_scores(ax, found, _COLOURS)
    if len(names) == 1:
        others = sorted({point.state for point in found.best_first} - {"certified"})
        how = "with one standard error; filled circles are certified"
        how += f"; empty ones: {' or '.join(others)}" if others else ""
    else:
        how = "the stronger the colour, the better; small circles refine the grid"
        how += "; ~ marks estimated scores" if "estimated" in found.states else ""
        how += "; hatched cells have no score" if len(found.best_first) < len(found.points) else ""
    label = f"Mean scores over {' and '.join(names)}; the chosen point is {chosen.in_words}, with {chosen.mean:.4f}."
    return Picture(figure, label, f"Mean score over folds, {how}. The outline marks the chosen point.")


def search_costs(found: Searched) -> Picture:
    """Support vectors and time along C."""
    line, (name, *others) = search.line_of_costs(found), found.varying
    figure, axes = blank(3.4, 2, 1, sharex=True)
    search.draw_costs(axes, line, name, found.chosen.parameters[name], _COLOURS)
    at = "".join(f" at {other} = {line[0].parameters[other]:.4g}" for other in others)
    dashed = f"dashed: the chosen {name}"
    for other in others:
        if line[0].parameters[other] != found.chosen.parameters[other]:
            dashed += f", whose {other} is {found.chosen.parameters[other]:.4g}"
    label = f"Support vectors and time over {name}{at}; {dashed}."
    return Picture(figure, label, f"Support vectors and time of a fit over {name}{at}, means over folds; {dashed}.")


def peers(model: Any) -> Picture:
    figure, ax = blank(4.4)
    network.draw_peers(ax, model)
    title, lines = ax.get_title(), ax.get_xlabel()
    ax.set(title="", xlabel="")
    for each in figure.axes[1:]:
        plain_powers(each.xaxis)
    return Picture(figure, f"The network: {title}.", f"{title}. A peer is as dark as its gap is small; {lines}.")


def way_of_peers(model: Any) -> Picture:
    figure, axes = blank(4.4, 3, 1, **network.WAY)
    network.draw_way(axes, model)
    if model.history_:
        plain_powers(axes[0].yaxis)
    is_of_one = hasattr(model, "peer_")
    largest = model.nodes_[model.peer_].gap if is_of_one else max(node.gap for node in model.nodes_.values())
    last = f"; the gap ends at {largest:.2g}" if np.isfinite(largest) else "; not all have a certificate"
    caption = "The largest certified gap of any peer, the distance of the peers from their mean, and their traffic."
    if is_of_one:
        caption = "The certified gap of this peer, its distance from the mean of the members, and what it sent."
    return Picture(figure, f"Gap, consensus error, messages and bytes over {model.n_iter_} ticks{last}.", caption)


def _thinned(rows: Sequence[Row]) -> list[Row]:
    """At most so many rows, evenly spaced, with the first and the last."""
    if len(rows) <= _MAX_POINTS:
        return list(rows)
    return [rows[k] for k in np.unique(np.linspace(0, len(rows) - 1, _MAX_POINTS).astype(int))]


def _x(rows: Sequence[Row], over: str) -> list[float]:
    return [row["seconds" if over == "seconds" else "sweep"] for row in rows]


def _within(margins: np.ndarray) -> np.ndarray:
    """Margins without outliers, which would leave all others in one bin."""
    low, middle, high = np.percentile(margins, [0.5, 50, 99.5])
    reach = 3 * max(high - middle, middle - low)
    kept = margins[(margins >= middle - reach) & (margins <= middle + reach)]
    return kept if len(kept) else margins


def _room_around(ax: Any, more: Sequence[float]) -> None:
    """Show at least a decade, with room for the labels."""
    values = np.concatenate([*(np.asarray(line.get_ydata(), dtype=float) for line in ax.lines), np.asarray(more)])
    values = values[values > 0]
    if len(values):
        ax.set_ylim(values.min() / 2.5, max(values.max(), 10 * values.min()) * 2)


def _frame(ax: Any, over: str, name: str) -> None:
    ax.set(xlabel=over, ylabel=name)
    ax.grid(alpha=0.6)
    if over == "seconds":
        ax.locator_params(axis="x", nbins=4)  # labels of short times are long
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
