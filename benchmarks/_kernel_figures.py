"""Figures of the batch perceptron paper, drawn again: test error over what it cost.

Lines are medians over runs, and bands hold the middle half of them. Where there are fewer than ``FEW`` runs a line is
the lowest error so far, for a single run swings: that is SMO everywhere, which has nothing random. A curve begins where
it stays within ``highest`` percent for good, and the picture is high enough for all that follows: no line is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._figures import METHODS, Run
from benchmarks._harness import Report

FEW = 3
_N_GRID = 60


def draw_figure_2(report: Report, results: Mapping[str, Any], name: str = "figure_2") -> None:
    """Test error against kernel evaluations over n^2, a panel for each set; the Perceptron is dashed after n rows."""
    title = "Figure 2: test error over kernel evaluations, without a bias"
    _draw(report, results, name, title, lambda n: n**2, "kernel evaluations / $n^2$")


def draw_figure_3(report: Report, results: Mapping[str, Any], name: str = "figure_3") -> None:
    """Test error against d-dimensional inner products: kernel evaluations of SBP, features of Fourier."""
    title = "Figure 3: test error over inner products; the linear SVM behind Fourier features is free"
    _draw(report, results, name, title, lambda n: 1.0, "inner products of rows")


def _draw(report: Report, results: Mapping[str, Any], name: str, title: str, unit: Any, xlabel: str) -> None:
    figure, panels = harness.axes(len(results), width=4.6, height=4.0)
    for panel, (data, result) in zip(panels.flat, results.items(), strict=True):
        best = 100 * result["optimum"]
        lines = {
            who: line(runs, unit(result["n"]), best + max(4.0, best)) for who, runs in result["runs"].items() if runs
        }
        for who, (cost, low, middle, high) in lines.items():
            look = harness.style(METHODS[who], len(cost))
            is_few = len(result["runs"][who]) < FEW
            if not is_few:
                panel.fill_between(cost, low, high, color=look["color"], alpha=0.13, linewidth=0)
            later = end_of_first_epoch(result["runs"][who], result["n"]) / unit(result["n"])
            is_later = cost > later if who == "Perceptron" else np.zeros(len(cost), dtype=bool)
            start = int(np.argmax(is_later)) if is_later.any() else len(cost)
            panel.plot(cost[max(0, start - 1) :], middle[max(0, start - 1) :], color=look["color"], ls=(0, (3, 2)))
            panel.plot(cost[:start], middle[:start], label=who, **{**look, "markevery": max(1, len(cost) // 8)})
        panel.axhline(best, color="0.35", linestyle=":", linewidth=1.4, label="exact solution")
        ends = [value for _, _, middle, _ in lines.values() for value in (middle.min(), middle.max())] or [best]
        lowest, highest = min(*ends, best), max(ends)
        edge = 0.05 * (highest - lowest)
        counts = [len(runs) for who, runs in result["runs"].items() if who != "SMO" and runs] or [0]
        n_runs = f"{counts[0]} runs" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} runs"
        n_runs = "one run: lowest so far" if counts == [1] * len(counts) else n_runs
        panel.set(xscale="log", xlabel=xlabel, ylabel="test error, %", title=f"{data}, n = {result['n']:,} ({n_runs})")
        panel.set_ylim(max(0.0, lowest - edge), highest + edge)
    how = "medians and middle halves of runs (SMO, and sets with less than three runs: the lowest error so far); "
    how += "a curve begins where it stays in sight"
    figure.suptitle(f"{title}\n{how}")
    harness.legend_below(figure, panels, 8)
    report.picture(figure, name)


def line(runs: Sequence[Run], unit: float, highest: float) -> tuple[np.ndarray, ...]:
    """Costs; lower quartile, median and upper quartile of the error in percent, from where the median stays in sight.

    A run is a step function: its error holds from one point to the next, for that is the model one has.
    """
    ways = [
        (np.array([p["kernel_evaluations"] for p in run]) / unit, 100 * np.array([p["test_error"] for p in run]))
        for run in runs
    ]
    if all(len(x) == len(ways[0][0]) and np.allclose(x, ways[0][0], rtol=0.02) for x, _ in ways):
        grid, errors = np.mean([x for x, _ in ways], axis=0), np.array([y for _, y in ways])
    else:
        first, last = max(x[0] for x, _ in ways), np.median([x[-1] for x, _ in ways])
        grid = np.geomspace(first, max(first, last), _N_GRID)
        errors = np.array([y[np.searchsorted(x, grid * (1 + 1e-9), "right") - 1] for x, y in ways])
    if len(runs) < FEW:
        errors = np.minimum.accumulate(errors, axis=1)
    low, middle, high = np.percentile(errors, [25, 50, 75], axis=0)
    over = np.flatnonzero(middle > highest)
    begin = min(int(over[-1]) + 1, len(grid) - 1) if len(over) else 0
    return grid[begin:], low[begin:], middle[begin:], high[begin:]


def end_of_first_epoch(runs: Sequence[Run], n: int) -> float:
    """Kernel evaluations, over all runs the fewest, when n rows had been looked at."""
    return min((p["kernel_evaluations"] for run in runs for p in run if p["draws"] >= n), default=np.inf)
