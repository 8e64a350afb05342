"""Do the curves of the batch perceptron paper look as it says? Figures 2 and 3 and the forest curve, from plain data.

Data are what JSON gives back. A set has a size and a number of runs per method, one for each seed; a run is a list of
points with the fields of ``baselines.kernel_perceptron.Point``:

    {"adult": {"n": 32561, "runs": {"SBP": [[{"kernel_evaluations": 32561, "test_error": 0.17, ...}, ...], ...], ...}}}

Optional for a set: "optimum", the test error of the exact solution, drawn as a dotted line, and "highest", the largest
error shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._harness import Report

# A method keeps its colour and marker in all figures, whatever else is drawn.
METHODS = ("SBP", "Pegasos", "SDCA", "SMO", "Perceptron", "Fourier features", "SBP as written", "exact")
_ERRATIC = "SMO"  # before it converges it goes to and fro between the classes; its curve is cut where others end
_N_GRID = 60

Run = Sequence[Mapping[str, Any]]


def draw_figure_2(report: Report, results: Mapping[str, Any], name: str = "figure_2") -> None:
    """Test error against kernel evaluations over n^2, a panel for each set, a line and a band for each method."""
    figure, panels = harness.axes(len(results), width=4.4, height=3.8)
    for panel, (data, result) in zip(panels.flat, results.items(), strict=True):
        for who, runs in result["runs"].items():
            unit = result["n"] ** 2
            first_epoch = _end_of_first_epoch(runs, result["n"]) / unit if who == "Perceptron" else np.inf
            draw_band(panel, who, [_scaled(run, "kernel_evaluations", unit) for run in runs], dashed_from=first_epoch)
        finish(panel, result, f"{data}  (n = {result['n']:,})", "kernel evaluations / $n^2$")
    figure.suptitle("Figure 2: test error over kernel evaluations, without a bias", wrap=True)
    harness.legend_below(figure, panels, 6)
    report.picture(figure, name)


def draw_figure_3(report: Report, results: Mapping[str, Any], name: str = "figure_3") -> None:
    """Test error against d-dimensional inner products: kernel evaluations of SBP, features of Fourier."""
    figure, panels = harness.axes(len(results), width=4.4, height=3.8)
    for panel, (data, result) in zip(panels.flat, results.items(), strict=True):
        for who, runs in result["runs"].items():
            draw_band(panel, who, [_scaled(run, "kernel_evaluations", 1.0) for run in runs])
        finish(panel, result, f"{data}  (n = {result['n']:,})", "inner products of rows")
    figure.suptitle(
        "Figure 3: test error over inner products; the linear SVM behind Fourier features is free", wrap=True
    )
    harness.legend_below(figure, panels, 6)
    report.picture(figure, name)


def draw_forest(report: Report, result: Mapping[str, Any], name: str = "forest") -> None:
    """Test error of one large set against kernel evaluations and against seconds, with the paper's own figures."""
    figure, panels = harness.axes(2, width=5.0, height=3.8)
    for who, runs in result["runs"].items():
        draw_band(panels[0, 0], who, [_scaled(run, "kernel_evaluations", result["n"] ** 2) for run in runs])
        draw_band(panels[0, 1], who, [_scaled(run, "seconds", 1.0) for run in runs])
    finish(panels[0, 0], result, f"forest  (n = {result['n']:,})", "kernel evaluations / $n^2$")
    finish(panels[0, 1], result, "the same over time", "seconds")
    # {"paper: LIBSVM, 35 h": 0.018, ...}: the lowest is named below its line, the others above theirs.
    for k, (label, error) in enumerate(sorted(result.get("paper", {}).items(), key=lambda item: item[1])):
        for panel in panels.flat:
            panel.axhline(100 * error, color="0.45", linewidth=1.0, linestyle=(0, (6, 3)))
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (0, 2 if k else -2)}
        panels[0, 1].annotate(label, (0.02, 100 * error), va="bottom" if k else "top", fontsize=8, color="0.3", **place)
    figure.suptitle("Forest: test error with a bias")
    harness.legend_below(figure, panels)
    report.picture(figure, name)


def draw_band(
    panel: Any, who: str, curves: Sequence[tuple[np.ndarray, np.ndarray]], dashed_from: float = np.inf
) -> None:
    """Mean over seeds as a line, lowest to highest as a band, in percent; a single point as a marker with its span."""
    costs, low, mean, high = over_seeds(curves)
    look = harness.style(METHODS.index(who), len(costs))
    panel.fill_between(costs, 100 * low, 100 * high, color=look["color"], alpha=0.16, linewidth=0)
    is_later = costs > dashed_from
    if is_later.any():
        start = max(0, int(np.argmax(is_later)) - 1)  # the dashed part begins where the full one ends
        panel.plot(costs[start:], 100 * mean[start:], color=look["color"], linestyle=(0, (3, 2)))
        costs, mean = costs[: start + 1], mean[: start + 1]
    panel.plot(costs, 100 * mean, label=who, **{**look, "markevery": _spread(costs)})


def over_seeds(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Costs, and the lowest, mean and highest error there; curves of other costs are read off on a common grid.

    A curve is a step function: its error holds from one point to the next, for that is the model one has. A common grid
    begins when all curves have begun and ends when the first ends.
    """
    if all(len(costs) == len(curves[0][0]) and np.allclose(costs, curves[0][0], rtol=0.02) for costs, _ in curves):
        grid = np.mean([costs for costs, _ in curves], axis=0)
        errors = np.array([errors for _, errors in curves])
    else:
        grid = np.geomspace(max(costs[0] for costs, _ in curves), min(costs[-1] for costs, _ in curves), _N_GRID)
        errors = np.array([values[np.searchsorted(costs, grid * (1 + 1e-9), "right") - 1] for costs, values in curves])
    return grid, errors.min(axis=0), errors.mean(axis=0), errors.max(axis=0)


def finish(panel: Any, result: Mapping[str, Any], title: str, xlabel: str) -> None:
    """Scales, labels, the exact solution's error, and a y axis that shows where methods differ."""
    if "optimum" in result:
        panel.axhline(100 * result["optimum"], color="0.35", linestyle=":", linewidth=1.4, label="exact solution")
    panel.set(xscale="log", xlabel=xlabel, ylabel="test error, %", title=title)
    seen = [point["test_error"] for runs in result["runs"].values() for run in runs for point in run]
    calm = [
        point["test_error"] for who, runs in result["runs"].items() if who != _ERRATIC for run in runs for point in run
    ]
    lowest = min(seen + list(result.get("paper", {}).values()))
    highest = result.get("highest", max(calm or seen))
    edge = 0.06 * (highest - lowest)
    panel.set_ylim(100 * max(0.0, lowest - 2 * edge), 100 * (highest + edge))


def _end_of_first_epoch(runs: Sequence[Run], n: int) -> float:
    """Kernel evaluations, over all seeds the fewest, when n rows had been looked at."""
    ends = [point["kernel_evaluations"] for run in runs for point in run if point["draws"] >= n]
    return min(ends, default=np.inf)


def _scaled(run: Run, key: str, unit: float) -> tuple[np.ndarray, np.ndarray]:
    costs = np.array([point[key] for point in run], dtype=float) / unit
    return costs, np.array([point["test_error"] for point in run], dtype=float)


def _spread(costs: np.ndarray) -> Any:
    """Markers on all points of a short line, on every eighth of a long one."""
    return 1 if len(costs) <= 15 else max(1, len(costs) // 8)


# -- ours beside its peers ---------------------------------------------------------------------------------------------


def draw_exact(report: Report, found: Mapping[str, Any], name: str = "exact") -> None:
    """Violation over seconds, one panel for each set; what peers needed in all as vertical lines."""
    figure, panels = harness.axes(min(3, len(found)), -(-len(found) // 3), width=4.6, height=3.5)
    for panel, (data, each) in zip(panels.flat, found.items(), strict=False):
        for k, who in enumerate(("ours, 1", "ours, 2")):
            curve = [(point[0], point[1]) for point in each[who]["curve"] if point[1]]
            if curve:
                panel.plot(
                    *zip(*curve, strict=True), label=f"exact, {who[-1]} thread(s)", **harness.style(k, len(curve))
                )
            panel.axvline(each[who]["seconds"], color=harness.COLOURS[k], lw=1.0)
        for k, (who, dashes) in enumerate((("intelex SVC, 1", "-."), ("intelex SVC, 2", ":"), ("SVC", "--")), start=2):
            if who in each:
                panel.axvline(each[who]["seconds"], color=harness.COLOURS[k], ls=dashes, label=f"{who}, total")
        panel.axhline(1e-3, color="#888888", lw=0.8)
        panel.set(xscale="log", yscale="log", title=f"{data}  (n = {each['ours, 1']['n']:,})")
        panel.set(xlabel="seconds", ylabel="violation")
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    figure.suptitle("Exact: violation over time; full lines are whole fits, confirmed in float64")
    harness.legend_below(figure, panels, 5)
    report.picture(figure, name)


def draw_early(report: Report, found: Mapping[str, Any], name: str = "early") -> None:
    """Test error over seconds of whole fits, a marker for each seed; the shaded band is LIBSVM's plus 0.1 points."""
    figure, panels = harness.axes(len(found), width=4.6, height=3.8)
    for panel, (data, each) in zip(panels.flat, found.items(), strict=True):
        for k, (who, variant) in enumerate(each["variants"].items()):
            look = {**harness.style(k), "markevery": 1, "linestyle": "none"}
            fits = variant["fits"]
            panel.plot([fit["seconds"] for fit in fits], [100 * fit["test_error"] for fit in fits], label=who, **look)
        for k, who in enumerate(("intelex SVC", "SVC"), start=5):
            look = {**harness.style(k), "markersize": 9, "linestyle": "none"}
            panel.plot([each[who]["seconds"]], [100 * each[who]["test_error"]], label=who, **look)
        best = 100 * each["SVC"]["test_error"]
        panel.axhspan(best, best + 0.1, color="0.85", zorder=0)
        panel.set(xscale="log", xlabel="seconds", ylabel="test error, %", title=data)
    figure.suptitle("Early: test error of whole fits, each stopped by itself")
    harness.legend_below(figure, panels, 7)
    report.picture(figure, name)
