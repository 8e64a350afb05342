"""Figures of GADGET's own paper, drawn again: objective and error over time, and the error of averages over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks._harness import Report

# Numbers of styles, as in ``_figures``: the same method, the same colour.
STYLES = {**figures.METHODS, "GADGET": 6, "GADGET as printed": 5}
NAMES = {
    "GADGET as printed": "GADGET as printed, 2,000 steps",
    "GADGET": "GADGET with its indicator, until its rule",
    "Pegasos": "Pegasos, all rows, until the same rule",
    "push-sum": "GADGET mended (push-sum)",
    "GossipSVC": "GossipSVC (admm)",
}
_N_GRID = 60


def draw_figure_4(report: Report, found: Mapping[str, Any]) -> None:
    """Gap of the objective above, test error below, a column for each set; medians of trials, bands from end to end."""
    figure, panels = harness.axes(len(found), 2, width=4.2, height=3.3)
    n_trials = set()
    for column, (name, each) in enumerate(found.items()):
        above, below = panels[0, column], panels[1, column]
        for who, runs in each["runs"].items():
            if runs:
                n_trials.add(len(runs))
                for panel, key, unit in ((above, "gap", 1.0), (below, "error", 100.0)):
                    draw(panel, who, runs, key, unit)
        above.set(xscale="log", yscale="log", title=name, ylabel="objective / optimum - 1")
        below.set(xscale="log", yscale="log", xlabel="processor seconds of one node", ylabel="test error, %")
        best = each["optimum"]
        below.axhline(100 * best["majority"], color="0.4", linestyle="--", linewidth=0.9, label="larger class")
        below.axhline(100 * best["error"], color="0.4", linewidth=0.9, label="LIBLINEAR, all rows")
        percents = [p for p in (0.5, 1, 2, 3, 5, 10, 20, 30, 50, 80) if _is_seen(below, p)]
        below.set_yticks(percents, [f"{percent:g}" for percent in percents])
        below.minorticks_off()
    trials = f"{min(n_trials)} to {max(n_trials)}" if len(n_trials) > 1 else f"{max(n_trials)}"
    trials += " trial" if trials == "1" else " trials"
    title = f"Figures 4.1 to 4.3: objective and test error over training time; median and ends of {trials}"
    figure.suptitle(title, wrap=True)
    harness.legend_below(figure, panels, len(found))
    report.picture(figure, "figure_4")


def _is_seen(panel: Any, percent: float) -> bool:
    low, high = panel.get_ylim()
    return low <= percent <= high


def draw(panel: Any, who: str, runs: Sequence[Sequence[Mapping[str, float]]], key: str, unit: float) -> None:
    """A step function read off on a common grid: a model is what one has until the next."""
    ways = [([max(point["seconds"], 1e-6) for point in run], [unit * point[key] for point in run]) for run in runs]
    grid = np.geomspace(max(x[0] for x, _ in ways), max(x[-1] for x, _ in ways), _N_GRID)
    values = np.array([np.array(y)[np.searchsorted(x, grid * (1 + 1e-9), "right") - 1] for x, y in ways])
    middle = np.median(values, axis=0)
    look = harness.style(STYLES[who], _N_GRID)
    panel.plot(grid, middle, label=NAMES[who], **look)
    panel.fill_between(grid, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=0.15, linewidth=0)


def draw_theorem_1(report: Report, found: Mapping[str, Any]) -> None:
    """Consensus errors over rounds, measured and promised, a panel for each network."""
    shapes = list(next(iter(found.values())))
    figure, panels = harness.axes(len(shapes), width=4.4, height=3.7)
    for panel, shape in zip(panels.flat, shapes, strict=True):
        for number, (name, of_shapes) in enumerate(found.items()):
            one = of_shapes[shape]["decay"][0]
            rounds = np.array(one["rounds"])
            for who, dashes in (("all neighbours", "-"), ("one at random", "--")):
                look = harness.style(number, len(rounds)) | {"linestyle": dashes}
                errors = np.array(one[who]["errors"])
                seen = errors > 1e-12
                panel.plot(rounds[seen], errors[seen], label=f"{name}, {who}", **look)
        promised = one["factor of B"] ** rounds
        seen = promised > 1e-12
        panel.plot(rounds[seen], promised[seen], ":", color="0.2", label="promised: (second eigenvalue of B)$^r$")
        panel.set(yscale="log", xlabel="rounds of Push-Sum", title=f"{shape}: {one['factor of B']:.3f} a round")
    panels[0, 0].set_ylabel("consensus error / that before")
    figure.suptitle("Lemma 2 and Theorem 1: the error of the averages in a step, ten nodes, models of GADGET")
    harness.legend_below(figure, panels, 3)
    report.picture(figure, "theorem_1")
