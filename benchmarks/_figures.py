"""All figures of the benchmarks, one function each, from plain data as JSON gives it back.

A method has the same colour and marker in all figures. Curves of test error over cost come as

    {"adult": {"n": 32561, "runs": {"SBP": [[{"kernel_evaluations": 32561, "test_error": 0.17, ...}, ...], ...], ...}}}

with one run for each seed and the fields of ``baselines.kernel_perceptron.Point``; "optimum", the test
error of the exact solution, and "highest", the largest error shown, are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._harness import Report

# Number of the style of each method; ours is 0, and a number is shared only by methods that no figure shows together.
METHODS = {
    "SBP": 0,
    "Pegasos": 1,
    "SDCA": 2,
    "SMO": 3,
    "Perceptron": 4,
    "Fourier features": 5,
    "SBP as written": 6,
    "exact": 0,
    "GossipSVC": 0,
    "push-sum": 2,
    "SGDClassifier": 3,
    "cutting plane": 4,
    "local only": 5,
    "ODM": 6,
    "SODM": 0,
    "Ca-ODM": 1,
    "DiP-ODM": 2,
    "DC-ODM": 3,
    "SSVM": 0,
    "Ca-SVM": 1,
    "DiP-SVM": 2,
    "DC-SVM": 3,
    "SVRG": 5,
    "DSVRG, 4 nodes": 0,
    "CSVRG": 4,
    "CE": 6,
    "NAE": 1,
    "AE": 2,
    "TE": 0,
    "TE, z": 5,
    "TE, true Hessian": 3,
    "second round": 4,
    "SparseSVC": 0,
    "LinearSVC": 1,
    "Saddle-SVC": 0,
    "Saddle-DSVC b=1": 0,
    "Saddle-DSVC b=8": 1,
    "Gilbert": 2,
    "Newton": 3,
    "HOGWILD!": 4,
    "NuSVC": 5,
    "column generation": 5,
    "saddle b=1": 0,
    "saddle b=8": 1,
    "saddle b=64": 4,
    "saddle b=d": 6,
}
ERRORS = {"l_inf": "$l_\\infty$ error", "l2": "$l_2$ error", "prediction": "prediction error"}
_ERRATIC = "SMO"  # alternates between the classes before it converges; its curve is cut where others end
_N_GRID = 60
_MIN_GAP = 1e-12  # that a logarithmic axis shows

Run = Sequence[Mapping[str, Any]]


def _style(who: str, n_points: int = 0) -> dict[str, Any]:
    return harness.style(METHODS[who], n_points)


def style_of(who: str, n_points: int = 0) -> dict[str, Any]:
    """The colour and marker of a method, for programs that draw by themselves."""
    return _style(who, n_points)


def _finish(report: Report, figure: Any, panels: Any, name: str, n_columns: int = 4) -> None:
    """Add the legend and save the figure."""
    harness.legend_below(figure, panels, n_columns)
    report.picture(figure, name)


# -- the saddle point paper --------------------------------------------------------------------------------------------


def draw_seconds(report: Report, name: str, results: dict[str, Any], title: str) -> None:
    """Distance above, accuracy below, a column for each set."""
    figure, panels = harness.axes(len(results), 2, width=4.1, height=3.1)
    for column, (data, result) in enumerate(results.items()):
        for who, curve in result["curves"].items():
            if who == "NuSVC" and curve["stop"] != "converged":
                note = f"NuSVC: {'not finished' if curve['seconds'] else 'nothing'} within its {curve['stop']}"
                panels[0, column].text(0.98, 0.96, note, ha="right", va="top", transform=panels[0, column].transAxes,
                                       fontsize=8)  # fmt: skip
            if not curve["seconds"]:
                continue
            for row, key in enumerate(("distance", "accuracy")):
                look = _style(who, len(curve["seconds"]))
                panels[row, column].plot(curve["seconds"], curve[key], label=who, **look)
        panels[0, column].set(xscale="log", ylabel="hull distance")
        panels[0, column].set_title(f"{data}  ({result['n']} x {result['d']})")
        panels[0, column].margins(y=0.2)
        panels[0, column].set_ylim(bottom=max(0.0, panels[0, column].get_ylim()[0]))
        panels[1, column].set(xscale="log", xlabel="seconds", ylabel="test accuracy")
    figure.suptitle(title, wrap=True)
    _finish(report, figure, panels, name)


def draw_operations(report: Report, found: Mapping[str, Any]) -> None:
    """Operations over n, d and 1 / epsilon, full; dashed what Theorem 7 promises, by the factor that fits best."""
    axes = list(next(iter(found.values())))
    figure, panels = harness.axes(len(axes), width=4.4, height=3.6)
    for panel, axis in zip(panels.flat, axes, strict=True):
        for k, (kind, by_axis) in enumerate(found.items()):
            each = by_axis[axis]
            look = harness.style(k)
            name = "hard margin" if kind == "hard" else "nu, alpha .85"
            panel.plot(each["values"], each["operations"], label=f"Saddle-SVC as printed, {name}", **look)
            promised = np.array(each["promised"])
            factor = np.exp(np.mean(np.log(np.array(each["operations"]) / promised)))
            label = f"its n (d + sqrt(d / (eps beta))), {name}"
            panel.plot(each["values"], factor * promised, color=look["color"], linestyle="--", lw=1.1, label=label)
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel="operations", title=f"over {axis}")
    figure.suptitle("Theorem 7: operations to a (1 - eps)-approximation", wrap=True)
    _finish(report, figure, panels, "theorem_7", 2)


def draw_units(
    report: Report, name: str, results: dict[str, Any], keys: tuple[str, ...], title: str, n_ranks: int
) -> None:
    """Quantities against units of k d, a panel for each set; the first is drawn full, a second one dashed."""
    figure, panels = harness.axes(len(results), width=4.3, height=3.7)
    for panel, (data, curves) in zip(panels.flat, results.items(), strict=True):
        for who, curve in curves.items():
            for key, dashes in zip(keys, ("-", "--"), strict=False):
                values = np.array(curve[key])
                seen = values > 0
                look = _style(who, len(values))
                label = who if key == keys[0] else None
                panel.plot(np.array(curve["units"])[seen], values[seen], ls=dashes, label=label, **look)
        ylabel = keys[0] if len(keys) == 1 else f"{keys[0]} (full), {keys[1]} (dashed)"
        panel.set(xscale="log", xlabel=f"scalars sent / (k d), k = {n_ranks}", ylabel=ylabel, title=data)
    figure.suptitle(title, wrap=True)
    _finish(report, figure, panels, name, 5)


def draw_lower_bound(report: Report, found: Mapping[str, Any], least: Callable[[int, float], float]) -> None:
    """Scalars over d at two precisions, and over 1 / epsilon at one d, above what no algorithm can stay below."""
    who_is = {"saddle b=1": "Saddle-DSVC b=1", "Gilbert": "Gilbert", "column generation": "column generation"}
    gaps, k = found["gaps"], found["ranks"]
    figure, panels = harness.axes(3, width=4.4, height=3.8)
    dimensions = [int(d) for d in found["scalars"]["saddle b=1"]]
    middle = dimensions[len(dimensions) // 2]
    for panel, place in zip(panels.flat, (1, len(gaps) - 1), strict=False):
        for who, label in who_is.items():
            points = {int(d): each[place] for d, each in found["scalars"][who].items() if each[place] is not None}
            panel.plot(list(points), list(points.values()), label=label, **_style(label))
        bound = [least(d, gaps[place]) for d in dimensions]
        panel.plot(dimensions, bound, color="0.2", linestyle="--", label="k min(d, 1 / eps)")
        panel.set(xlabel="dimension d", title=f"gap eps = {gaps[place]:g}")
    panel = panels.flat[2]
    for who, label in who_is.items():
        by_d = {int(d): each for d, each in found["scalars"][who].items()}
        points = {1 / gap: sent for gap, sent in zip(gaps, by_d[middle], strict=True) if sent is not None}
        panel.plot(list(points), list(points.values()), label=label, **_style(label))
    panel.plot([1 / gap for gap in gaps], [least(middle, gap) for gap in gaps], color="0.2", linestyle="--")
    panel.set(xlabel="1 / eps", title=f"d = {middle}")
    for panel in panels.flat:
        panel.set(xscale="log", yscale="log", ylabel=f"scalars sent, k = {k}")
    figure.suptitle("Theorem 9: what is sent beside the lower bound, without its constant", wrap=True)
    _finish(report, figure, panels, "lower_bound", 4)


# -- the batch perceptron paper ----------------------------------------------------------------------------------------


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
    _finish(report, figure, panels, name)


def draw_band(panel: Any, who: str, curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    """Mean over seeds as a line, lowest to highest as a band, in percent; a single point as a marker with its span."""
    costs, low, mean, high = over_seeds(curves)
    look = _style(who, len(costs))
    panel.fill_between(costs, 100 * low, 100 * high, color=look["color"], alpha=0.16, linewidth=0)
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


def _scaled(run: Run, key: str, unit: float) -> tuple[np.ndarray, np.ndarray]:
    costs = np.array([point[key] for point in run], dtype=float) / unit
    return costs, np.array([point["test_error"] for point in run], dtype=float)


def _spread(costs: np.ndarray) -> Any:
    """Markers on all points of a short line, on every eighth of a long one."""
    return 1 if len(costs) <= 15 else max(1, len(costs) // 8)


# -- the exact kernel SVM beside other libraries -----------------------------------------------------------------------


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
    _finish(report, figure, panels, name, 5)


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
    _finish(report, figure, panels, name, 7)


# -- margin distribution -----------------------------------------------------------------------------------------------


def draw_margin_accuracy(
    report: Report,
    found: Mapping[str, Any],
    who: Sequence[str],
    paper: Mapping[str, float],
    asked: Mapping[str, float],
) -> None:
    """Errors of every split as points with their mean; the paper's and what is asked for as lines."""
    figure, panels = harness.axes(len(found), width=3.4)
    for panel, (name, each) in zip(panels.flat, found.items(), strict=True):
        for k, one in enumerate(who):
            errors = [100 * (1 - split[one]["accuracy"]) for split in each["splits"]]
            style = harness.style(k)
            panel.plot([k] * len(errors), errors, linestyle="", alpha=0.5, **style)
            panel.plot([k - 0.3, k + 0.3], [np.mean(errors)] * 2, color=style["color"], label=one)
        panel.axhline(100 * (1 - paper[name]), color="black", linestyle=":", label="the paper's SODM")
        panel.axhline(100 * (1 - asked[name]), color="grey", linestyle="--", label="asked for")
        panel.set_xticks([])
        panel.set_ylim(bottom=0)
        panel.set_title(name)
    panels[0, 0].set_ylabel("test error %")
    figure.suptitle("Test error of every split, and its mean")
    _finish(report, figure, panels, "accuracy", 6)


def draw_speed(report: Report, found: Mapping[str, Any], tol: float) -> None:
    """Processor seconds to the gap over C, a panel for each set; open markers did not reach it within the limit."""
    names = list(dict.fromkeys(each["name"] for each in found.values()))
    figure, panels = harness.axes(len(names))
    for panel, name in zip(panels.flat, names, strict=True):
        cases = [each for each in found.values() if each["name"] == name]
        for k, who in enumerate(("auto", "plain")):
            costs, times = [each["C"] for each in cases], [each[who]["cpu_seconds"] for each in cases]
            style = harness.style(k)
            panel.plot(costs, times, label={"auto": "auto", "plain": "plain dual descent"}[who], **style)
            late = [(each["C"], each[who]["cpu_seconds"]) for each in cases if each[who]["gap"] > tol]
            if late:
                panel.plot(*zip(*late, strict=True), linestyle="", marker=style["marker"], color="white",
                           markeredgecolor=style["color"], markersize=8, zorder=3)  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel="C", title=f"{name}: to a gap of {tol:g}")
    panels[0, 0].set_ylabel("processor seconds")
    _finish(report, figure, panels, "speed")


def draw_tree_speedups(report: Report, found: Mapping[str, Any], workers: Sequence[int]) -> None:
    """Times faster than one worker, a colour for each set: projected as curves, threads as measured (crosses)."""
    kinds = [(kernel, what) for kernel in ("rbf", "linear") for what in next(iter(found.values()))[kernel]["projected"]]
    figure, panels = harness.axes(len(kinds), width=4.0, height=3.9)
    for panel, (kernel, what) in zip(panels.flat, kinds, strict=True):
        for k, (name, each) in enumerate(found.items()):
            style, one = harness.style(k), each[kernel]
            panel.plot(workers, one["projected"][what], label=name, **style)
            if what in ("to the root", "a step on every row"):  # what is measured is that
                alone = one["threads"]["1"]["seconds"]
                measured = [alone / of["seconds"] for of in one["threads"].values()]
                counts = [int(n) for n in one["threads"]]
                panel.plot(counts, measured, marker="x", color=style["color"], markersize=8, linestyle=":")
        panel.plot(workers, workers, color="grey", linestyle="--", label="as many times faster as workers")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(workers, [str(n) for n in workers])
        panel.set_yticks(workers, [str(n) for n in workers])
        panel.set_xlabel("workers")
        panel.set_title(f"{'RBF' if kernel == 'rbf' else kernel} kernel, {what}")
    panels[0, 0].set_ylabel("times faster than one")
    figure.suptitle("Figure 2: SODM, curves projected from measured tasks; crosses: threads, measured")
    harness.legend_below(figure, panels, 8)
    _save_as_is(report, figure, "figure_2")


def _save_as_is(report: Report, figure: Any, name: str) -> None:
    """Axes to the base of two have labels of their own, which the report would drop for those of decades."""
    for panel in figure.axes:
        panel.minorticks_off()
        for axis in (panel.xaxis, panel.yaxis):
            axis.get_scale = lambda: "as it is"
    report.picture(figure, name)


def draw_trees(
    report: Report, found: Mapping[str, Any], methods: Sequence[str], title: str, name: str, n_columns: int = 4
) -> None:
    """Accuracy over seconds at every level of every tree, a worker for each part, of the first split."""
    drawn = {data: each["splits"][0] for data, each in found.items()}
    n_columns = min(n_columns, len(drawn))
    figure, panels = harness.axes(n_columns, -(-len(drawn) // n_columns), width=3.6, height=3.1)
    for panel, (data, each) in zip(panels.flat, drawn.items(), strict=False):
        over = [who for who in methods if "over" in each.get(who, {})]
        for who in (who for who in methods if who in each and who not in over):
            one, look = each[who], _style(who)
            levels = one.get("levels") or [{"parallel": one["seconds"], "accuracy": one["accuracy"]}]
            if len(levels) == 1:
                look |= {"linestyle": "none", "markersize": 8}
            label = "ODM, all rows at once, one core" if who == "ODM" else who
            right = [100 * level["accuracy"] for level in levels]
            panel.plot([level["parallel"] for level in levels], right, label=label, **look)
        n = max((one["n"] for one in each.values() if "n" in one), default=0)
        panel.set(xscale="log", title=f"{data}  (n = {n:,})")
        panel.margins(x=0.08, y=0.08)
        if over:
            note = f"over their limit: {', '.join(over)}"
            panel.text(0.98, 0.04, note, ha="right", transform=panel.transAxes, fontsize=8)
    _finish_grid(panels, len(drawn), "test accuracy %")
    figure.suptitle(f"{title}: accuracy at every level of a tree, a worker for each part (projected)")
    _finish(report, figure, panels, name, 5)


def draw_gradient_methods(report: Report, found: Mapping[str, Any], who: Sequence[str], n_columns: int = 4) -> None:
    """Test accuracy over seconds, as in the paper, and the objective above the optimum, in a picture each."""
    n_columns = min(n_columns, len(found))
    for what, name, title in (
        ("accuracy", "figure_4", "Figure 4: gradient methods for the linear kernel, test accuracy"),
        ("above", "figure_4_objective", "Gradient methods for the linear kernel: the objective above the optimum"),
    ):
        figure, panels = harness.axes(n_columns, -(-len(found) // n_columns), width=3.6, height=3.1)
        for panel, (data, each) in zip(panels.flat, found.items(), strict=False):
            for one in who:
                points = [point for point in each[one]["points"] if point["seconds"] > 0]
                heights = [max(p["above"], _MIN_GAP) if what == "above" else 100 * p["accuracy"] for p in points]
                panel.plot([p["seconds"] for p in points], heights, label=one, **_style(one, len(points)))
            panel.set(xscale="log", title=f"{data}  (n = {each['optimum']['n']:,})")
            if what == "above":
                panel.set_yscale("log")
            else:
                panel.axhline(100 * each["optimum"]["accuracy"], color="0.4", linestyle=":", label="the optimum")
        _finish_grid(panels, len(found), "test accuracy %" if what == "accuracy" else "relative")
        figure.suptitle(title)
        _finish(report, figure, panels, name, 5)


def _finish_grid(panels: Any, n_drawn: int, ylabel: str) -> None:
    """Names of axes at the edges of a grid of which the last panels may be empty."""
    n_columns = panels.shape[1]
    for panel in panels.flat[n_drawn:]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel(ylabel)
    for panel in panels.flat[max(0, n_drawn - n_columns) : n_drawn]:
        panel.set_xlabel("seconds")


# -- the 1-norm SVM ----------------------------------------------------------------------------------------------------


def draw_highs(report: Report, found: Mapping[str, Any], forms: Sequence[str]) -> None:
    """Processor seconds of all, a group of bars for each problem; a form that did not end is pale, up to its limit."""
    figure, panels = harness.axes(1, width=2.6 + 2.4 * len(found))
    panel = panels[0, 0]
    names = ("core", "fit", *forms)
    for k, who in enumerate(names):
        for place, each in enumerate(found.values()):
            seconds = each[who]["cpu_seconds"] if each[who] else each["limit"]
            where = place + 0.13 * (k - 2.5)
            colour = harness.COLOURS[k % len(harness.COLOURS)]
            label = (who if k < 2 else f"HiGHS, {who}") if place == 0 else None
            panel.bar(where, seconds, 0.12, color=colour, alpha=1.0 if each[who] else 0.35, label=label)
            panel.annotate(harness.text(float(seconds)), (where, seconds), ha="center", va="bottom", fontsize=7)
    panel.set_xticks(range(len(found)), list(found))
    panel.set_yscale("log")
    panel.set_ylabel("processor seconds")
    panel.set_title("The 1-norm SVM beside HiGHS on the whole program")
    _finish(report, figure, panels, "highs", 6)


def draw_path(report: Report, found: Mapping[str, Any], forms: Sequence[str]) -> None:
    """Processor seconds over the penalty, a panel for each set."""
    figure, panels = harness.axes(len(found), width=3.8)
    for panel, (name, each) in zip(panels.flat, found.items(), strict=True):
        shares = [point["alpha / alpha_max"] for point in each["points"]]
        for k, who in enumerate(("ours", *forms)):
            times = [point[who]["cpu_seconds"] if point[who] else np.nan for point in each["points"]]
            panel.plot(shares, times, label=who if who == "ours" else f"HiGHS, {who}", **harness.style(k))
        panel.set(
            xscale="log", yscale="log", xlabel="alpha / alpha_max", title=f"{name}  ({each['n']:,} x {each['p']:,})"
        )
        panel.invert_xaxis()
    panels[0, 0].set_ylabel("processor seconds")
    _finish(report, figure, panels, "path", 5)


def draw_path_large(report: Report, found: Mapping[str, Any]) -> None:
    """Features and proven gaps along the path."""
    figure, panels = harness.axes(2)
    for k, (end, each) in enumerate(found.items()):
        if each is None:
            continue
        label = f"to {end}: {each['cpu_seconds']:.1f} CPU s"
        style = harness.style(k, len(each["gaps"]))
        panels[0, 0].plot(each["alphas / alpha_max"], np.maximum(each["n_features"], 0.5), label=label, **style)
        panels[0, 1].plot(each["alphas / alpha_max"], np.maximum(each["gaps"], 1e-17), label=label, **style)
    for panel, text in zip(panels.flat, ("features", "proven relative gap"), strict=True):
        panel.set(xscale="log", yscale="log")
        panel.invert_xaxis()
        panel.set_xlabel("alpha / alpha_max")
        panel.set_ylabel(text)
    _finish(report, figure, panels, "path_large", 2)


def draw_sparse_peers(report: Report, found: Mapping[str, Any]) -> None:
    """How far above the best the objective of our problem is, over processor seconds."""
    figure, panels = harness.axes(len(found))
    for panel, (key, each) in zip(panels.flat, found.items(), strict=True):
        best = min(one["objective"] for one in each.values())
        for family in ("SparseSVC", "SGDClassifier", "LinearSVC"):
            points = [one for who, one in each.items() if who.startswith(family)]
            above = [max(one["objective"] / best - 1, 1e-16) for one in points]
            label = f"{family}, l1 (another problem)" if family == "LinearSVC" else family
            panel.plot([one["cpu_seconds"] for one in points], above, label=label, **_style(family))
        panel.set(xscale="log", yscale="log")
        panel.set_xlabel("processor seconds")
        panel.set_ylabel("objective above the best, relative")
        panel.set_title(key)
    _finish(report, figure, panels, "peers", 3)


# -- the debiased 1-norm SVM -------------------------------------------------------------------------------------------


def draw_errors(
    report: Report, name: str, title: str, axis: str, settings: Sequence[int], errors: Mapping[str, Any]
) -> None:
    """The paper's panels: log10 of the errors (the prediction error as it is), dotted lines two standard deviations.

    ``errors[what][who][setting]`` is a list over repetitions. A standard deviation is that of the number drawn.
    """
    figure, panels = harness.axes(len(ERRORS), width=4.4)
    for panel, (what, text) in zip(panels.flat, ERRORS.items(), strict=True):
        for who in errors[what]:
            by_setting = [np.asarray(errors[what][who][str(setting)]) for setting in settings]
            drawn = [values if what == "prediction" else np.log10(values) for values in by_setting]
            middle, spread = (np.array([getattr(values, how)() for values in drawn]) for how in ("mean", "std"))
            style = _style(who)
            panel.plot(settings, middle, label=who, **style)
            for edge in (middle - 2 * spread, middle + 2 * spread):
                panel.plot(settings, edge, color=style["color"], linestyle=":", linewidth=0.8)
        panel.set_xlabel(axis)
        panel.set_title(text if what == "prediction" else f"log10 of the {text}")
        panel.set_xticks(settings)
    figure.suptitle(title, wrap=True)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    report.picture(figure, name)


def draw_tuning(report: Report, machines: Sequence[int], means: Mapping[str, Any], title: str) -> None:
    """Errors over machines: full by the rules, dashed lambda by cross-validation, dotted both by the inverse's loss."""
    ways = {"rules": "-", "lambda by CV": "--", "both by CV, inverse's loss": ":"}
    figure, panels = harness.axes(len(ERRORS), width=4.4)
    for panel, (what, text) in zip(panels.flat, ERRORS.items(), strict=True):
        for who in ("NAE", "AE", "TE"):
            for way, dashes in ways.items():
                each = means[what].get(f"{who}, {way}")
                if each is not None:
                    values = [each[str(M)][0] for M in machines]
                    panel.plot(machines, values, label=f"{who}, {way}", **{**_style(who), "linestyle": dashes})
        panel.set(xlabel="machines", title=text, xticks=list(machines))
        if what != "prediction":
            panel.set_yscale("log")
    figure.suptitle(f"Rules and five-fold cross-validation: {title}", wrap=True)
    _finish(report, figure, panels, "tuning", 4)


def draw_machines(report: Report, found: Mapping[str, Any], title: str) -> None:
    """Errors over machines for every N, and the largest number of machines over N beside the bound's slope."""
    figure, panels = harness.axes(2, width=5.4, height=4.2)
    errors, largest = panels.flat
    for k, (N, by_machines) in enumerate(found["means"].items()):
        values = [each[0] for each in by_machines.values()]
        errors.plot([int(M) for M in by_machines], values, label=f"N = {int(N):,}", **harness.style(k))
    errors.set(xscale="log", yscale="log", xlabel="machines", ylabel="$l_\\infty$ error of AE", title=title)
    scale = np.array([int(N) for N in found["means"]]) / np.log(found["settings"]["p"])
    for k, (factor, each) in enumerate(found["within"].items()):
        points = [(x, M) for x, M in zip(scale, each["largest M"], strict=True) if M is not None]
        if not points:
            continue
        slope = "" if each["slope"] is None else f": slope {each['slope']:.2f}"
        look = harness.style(k)
        largest.plot(*zip(*points, strict=True), label=f"error within {factor} of M = 1{slope}", **look)
        x, M = np.array(points).T
        bound = np.exp(np.log(M).mean() + (np.log(x) - np.log(x).mean()) / 3)
        largest.plot(x, bound, color=look["color"], linewidth=0.9, linestyle="--")
    largest.set(xscale="log", yscale="log", xlabel="N / log p", ylabel="largest M", title="dashed: slope 1/3")
    for panel in panels.flat:
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    report.picture(figure, "machines")


def draw_coverage(report: Report, found: Mapping[str, Any], level: float) -> None:
    """Coverage of every signal and of all nulls, a panel for each design."""
    kinds = list(dict.fromkeys(key.split(", M")[0] for key in found))
    figure, panels = harness.axes(len(kinds), width=4.2)
    for panel, kind in zip(panels.flat, kinds, strict=True):
        for k, (key, each) in enumerate((key, each) for key, each in found.items() if key.startswith(f"{kind}, M")):
            values = [*each["signals"], each["nulls"]]
            wobble = [2 * np.sqrt(value * (1 - value) / each["repetitions"]) for value in each["signals"]] + [0.0]
            places = np.arange(len(values)) + 0.12 * (k - 0.5)
            label = key.removeprefix(f"{kind}, ")
            panel.errorbar(places, values, wobble, linestyle="none", capsize=2, label=label, **harness.style(k))
        names = [f"{value:.2f}" for value in each["coef"]] + ["nulls"]
        panel.axhline(level, color="0.45", linewidth=1.0, linestyle="--")
        panel.set_xticks(range(len(names)), names)
        panel.set_xlabel("coefficient")
        panel.set_ylim(0.75, 1.01)
        panel.set_title(kind)
    panels[0, 0].set_ylabel("coverage")
    _finish(report, figure, panels, "coverage", 4)


# -- gossip ------------------------------------------------------------------------------------------------------------


def draw_ticks(report: Report, found: Mapping[str, Any]) -> None:
    """Certified gap of every seed over ticks, and gaps over messages beside push-sum."""
    figure, panels = harness.axes(2, width=5.6)
    by_ticks, by_messages = panels[0]
    # Colours of their own: in the other panel each is a method.
    looks = {"no intercept": {"color": "0.15"}, "with intercept": {"color": harness.COLOURS[5], "linestyle": "--"}}
    for key, look in looks.items():
        for number, run in enumerate(found[key]):
            x, gaps = ([row[name] for row in run["history"]] for name in ("tick", "gap"))
            label = f"admm, fan-out 3, {key}: certified" if number == 0 else None
            by_ticks.plot(x, gaps, linewidth=1.1, drawstyle="steps-post", label=label, **look)
    by_ticks.set(xlabel="ticks", ylabel="largest certified gap of any peer", yscale="log", title="Adult, five seeds")
    for k, key in enumerate(key for key in found if "fan-out" in key):
        way = found[key][0]["way"]
        messages = [row["messages"] for row in way]
        look = {"color": harness.COLOURS[k], "linewidth": 1.5}
        by_messages.plot(messages, [row["true"] for row in way], **look, label=f"{key}: true")
        certified = [row["certified"] if np.isfinite(row["certified"]) else np.nan for row in way]
        by_messages.plot(messages, certified, **look, linestyle=":", label=f"{key}: certified")
    by_messages.axhline(1e-2, color="0.4", linewidth=0.8)
    by_messages.set(xlabel="messages of all peers", ylabel="largest gap of any peer", xscale="log", yscale="log")
    by_messages.set_title("Adult, one seed")
    by_messages.set_ylim(3e-4, 3)
    _finish(report, figure, panels, "ticks", 4)


def draw_faults(report: Report, found: Mapping[str, Any]) -> None:
    """Certified gap over ticks, the seed in the middle of each kind."""
    figure, panels = harness.axes(1, width=8.4, height=5.2)
    panel = panels[0, 0]
    for k, (name, each) in enumerate(found.items()):
        run = sorted(each, key=lambda run: run["ticks"])[len(each) // 2]
        if run["history"]:
            x, gaps = ([row[key] for row in run["history"]] for key in ("tick", "gap"))
            line = ("-", "--", ":")[k // len(harness.COLOURS)]
            panel.plot(
                x, gaps, line, color=harness.COLOURS[k % len(harness.COLOURS)], drawstyle="steps-post", label=name
            )
    panel.set(xlabel="ticks", ylabel="largest certified gap of any peer", yscale="log")
    panel.set_title("Adult: faults; a curve begins when faults are over and all peers have a proof")
    _finish(report, figure, panels, "faults", 2)


def draw_gossip_accuracy(
    report: Report, found: Mapping[str, Any], names: Sequence[str], methods: Sequence[str]
) -> None:
    """Test accuracy of all methods, and hollow that of the paper's; lines are the majority and LinearSVC."""
    figure, panels = harness.axes(len(names), width=4.6, height=4.2)
    for panel, name in zip(panels.flat, names, strict=True):
        each, paper = found[name], found["paper"][name]
        printed = [("GADGET (paper)", paper["GADGET"][0]), ("Pegasos (paper)", paper["Pegasos"][0])]
        printed += [(f"{who} (paper)", paper[who]) for who in ("SVM-Perf", "SVM-SGD")]
        ours = [(who, 100 * float(np.mean([run["accuracy"] for run in each[who]]))) for who in methods]
        bars = [*ours, *printed]
        places = np.arange(len(bars))[::-1]
        for place, (who, value) in zip(places, bars, strict=True):
            is_ours = who in methods
            panel.plot(
                value, place, "o", color=harness.COLOURS[0] if is_ours else "0.4", mfc=None if is_ours else "white"
            )
            panel.text(1.02, place, f"{value:.2f}", transform=panel.get_yaxis_transform(), va="center", fontsize=8.5)
        lines = (("majority", "#D55E00", "--", "majority class"), ("LinearSVC", "#009E73", "-", "LinearSVC(hinge)"))
        for key, colour, line, label in lines:
            panel.axvline(100 * each[key]["accuracy"], color=colour, linestyle=line, linewidth=1.4, label=label)
        panel.set_yticks(places, [who for who, _ in bars])
        panel.set(title=name, xlabel="test accuracy, %")
    _finish(report, figure, panels, "accuracy", 2)


def draw_gossip_curves(report: Report, found: Mapping[str, Any], methods: Sequence[str]) -> None:
    """Gap and test error over seconds and over messages, a row of panels for each set."""
    figure, panels = harness.axes(4, len(found), width=4.2, height=3.4)
    columns = (("seconds", "gap"), ("seconds", "error"), ("messages", "gap"), ("messages", "error"))
    for row, (name, each) in zip(panels, found.items(), strict=True):
        for panel, (x, y) in zip(row, columns, strict=True):
            for who in methods:
                points = [point for point in each[who] if point[x] is not None]
                if points and (x == "seconds" or len(points) > 1):
                    look = _style(who, len(points)) | ({"linestyle": "none"} if len(points) == 1 else {})
                    panel.plot([point[x] for point in points], [point[y] for point in points], label=who, **look)
            word = "processor seconds of one peer" if x == "seconds" else "messages of all peers"
            panel.set(xlabel=word, xscale="log", title=name)
            _mark_errors(panel, each) if y == "error" else panel.set(ylabel="mean true gap", yscale="log")
            if y == "gap":
                panel.set_ylim(1e-4, 1e2)
    _finish(report, figure, panels, "curves", 8)


def _mark_errors(panel: Any, each: Mapping[str, Any]) -> None:
    """An axis of test errors from a little below LinearSVC's to a little above that of the majority class."""
    majority, linear = (1 - each[key]["accuracy"] for key in ("majority", "LinearSVC"))
    panel.axhline(majority, color="0.4", linestyle="--", linewidth=0.9, label="majority class")
    panel.axhline(linear, color="0.4", linestyle="-", linewidth=0.9, label="LinearSVC(hinge)")
    panel.set_yscale("function", functions=(lambda error: np.log(np.maximum(error, 1e-9)), np.exp))
    low, high = 0.8 * linear, 1.2 * majority
    shown = [percent for percent in (0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30) if low < percent / 100 < high]
    panel.set_yticks([percent / 100 for percent in shown], [f"{percent:g}%" for percent in shown])
    panel.set(ylabel="mean test error", ylim=(low, high))


def draw_rho(report: Report, found: Mapping[str, Any]) -> None:
    """Ticks to a certified gap over the factor of a fixed rho; lines are the adaptive one."""
    figure, panels = harness.axes(len(found), width=5.0)
    for panel, (metric, each) in zip(panels.flat, found.items(), strict=True):
        keys = [key for key in each if key != "adaptive"]
        for k, level in enumerate(each["adaptive"][0]["to"]):
            ticks = [[run["to"][level] for run in each[key]] for key in keys]
            middle = [median(values) if None not in values else np.nan for values in ticks]
            label = f"to {level}" if metric == "full" else None
            panel.plot([float(key) for key in keys], middle, label=label, **harness.style(k))
            adaptive = [run["to"][level] for run in each["adaptive"]]
            if None not in adaptive:
                panel.axhline(median(adaptive), color=harness.COLOURS[k], linestyle="--", linewidth=1.2)
        panel.set(
            xscale="log", yscale="log", xlabel="fixed rho, by the one that peers begin with", ylabel="ticks, median"
        )
        panel.set_xlim(0.7 * min(map(float, keys)), 1.4 * max(map(float, keys)))
        panel.set_title(f"{metric} metric, {each['adaptive'][0]['limit']} ticks at most; dashed: adaptive rho")
    _finish(report, figure, panels, "rho", 3)


def draw_topologies(report: Report, found: Mapping[str, Any]) -> None:
    """Ticks to 1e-3 of every seed, by shape."""
    figure, panels = harness.axes(1, width=7.2, height=4.4)
    panel = panels[0, 0]
    keys = list(found)
    for place, key in enumerate(reversed(keys)):
        ticks = [run["ticks"] for run in found[key] if run["ticks"] is not None]
        if ticks:
            panel.plot(ticks, [place] * len(ticks), "o", color=harness.COLOURS[0], alpha=0.5)
            panel.plot(median(ticks), place, "|", color=harness.COLOURS[1], markersize=14, markeredgewidth=2)
            told = f"{median(ticks):g}"
            panel.text(1.02, place, told, transform=panel.get_yaxis_transform(), va="center", fontsize=8.5)
    panel.set_yticks(range(len(keys)), list(reversed(keys)))
    panel.set(xscale="log", xlabel="ticks until every peer has certified 1e-3; a bar is the median of seeds")
    panel.set_title("Adult: shapes of networks, fan-out 3")
    report.picture(figure, "topologies")


def draw_sizes(report: Report, found: Mapping[str, Any], level: float) -> None:
    """Ticks over peers, over the inverse of the gap and over the spectral gap, medians of seeds."""
    figure, panels = harness.axes(3, width=4.4, height=3.7)
    by_shape: dict[str, dict[int, Any]] = {}
    for key, each in found.items():
        by_shape.setdefault(key.split(", ")[0], {})[each[0]["n_peers"]] = each
    middle = max(set.intersection(*(set(by_size) for by_size in by_shape.values())))  # of all shapes
    for k, (shape, by_size) in enumerate(by_shape.items()):
        each = by_size[middle]
        gap = median(run["spectral gap"] for run in each)
        label = f"{shape} (spectral gap {gap:.2g})"
        style = {"color": harness.COLOURS[k], "marker": "osD^vX"[k], "markersize": 5, "label": label}
        ticks = {n: _median_ticks([run["to"][f"{level:g}"] for run in runs]) for n, runs in by_size.items()}
        sizes = [n for n in by_size if ticks[n] is not None]
        panels[0, 0].plot(sizes, [ticks[n] for n in sizes], **style)
        gaps = [median(run["spectral gap"] for run in by_size[n]) for n in sizes]
        panels[0, 2].plot(gaps, [ticks[n] for n in sizes], **{**style, "linestyle": ":"})
        levels = {name: _median_ticks([run["to"][name] for run in each]) for name in each[0]["to"]}
        way = sorted((1 / float(name), value) for name, value in levels.items() if value is not None)
        if way:
            panels[0, 1].plot(*zip(*way, strict=True), **{**style, "label": f"_{shape}"})
    panels[0, 0].set(
        xlabel="peers", ylabel=f"ticks to a certified {level:g} at every peer", title="Size of the network"
    )
    panels[0, 1].set(xlabel="1 / certified gap", ylabel="ticks", title=f"Accuracy, {middle} peers")
    panels[0, 2].set(xlabel="spectral gap (Metropolis weights)", ylabel=f"ticks to {level:g}", title="Spectral gap")
    for panel in panels[0]:
        panel.set(xscale="log", yscale="log")
    _finish(report, figure, panels, "sizes", 3)


def _median_ticks(values: Sequence[int | None]) -> float | None:
    """The median of seeds; None if one of them did not come there."""
    there = [value for value in values if value is not None]
    return median(there) if len(there) == len(values) else None


# -- selection ---------------------------------------------------------------------------------------------------------


def draw_selection(report: Report, found: Mapping[str, Any], ours: str, peers: Sequence[str]) -> None:
    """Seconds of a search, a group of bars for each set, and above those of peers how many times ours is faster."""
    figure, panels = harness.axes(1, width=1.6 * len(found) + 2.0, height=4.2)
    panel, width = panels[0, 0], 0.8 / (1 + len(peers))
    for k, who in enumerate((ours, *peers)):
        places = [at + width * k for at, each in enumerate(found.values()) if each.get(who)]
        values = [each[who]["seconds"] for each in found.values() if each.get(who)]
        bars = panel.bar(places, values, width, label=who, color=harness.COLOURS[k])
        own = [each[ours]["seconds"] for each in found.values() if each.get(who)]
        times = [f"{value / mine:.0f}x" for value, mine in zip(values, own, strict=True)]
        labels = [f"{value:.1f} s" for value in values] if who == ours else times
        panel.bar_label(bars, labels, fontsize=8, padding=2)
    panel.set_xticks([at + width * len(peers) / 2 for at in range(len(found))], list(found))
    panel.set(yscale="log", ylabel="seconds", title="Search over 6 C, 5 gamma and 5 folds on two cores")
    panel.grid(visible=False, axis="x")
    _finish(report, figure, panels, "selection")


# -- cores -------------------------------------------------------------------------------------------------------------


def draw_cores_kernel(report: Report, found: Mapping[str, Any], ours: str, peer: str) -> None:
    """Seconds of a fit over the number of cores, a panel for each set; dotted is the first fit divided by the cores."""
    figure, panels = harness.axes(min(3, len(found)), -(-len(found) // 3), width=4.2, height=3.4)
    most = max(int(key) for by_threads in found.values() for key in by_threads if key.isdigit())
    for panel, (data, by_threads) in zip(panels.flat, found.items(), strict=False):
        numbers, values = sorted(int(key) for key in by_threads if key.isdigit()), []
        for k, who in enumerate((ours, peer)):
            curve = [(n, by_threads[str(n)][who]["seconds"]) for n in numbers if by_threads[str(n)].get(who)]
            if curve:
                panel.plot(*zip(*curve, strict=True), label=who, **harness.style(k))
                ideal = [curve[0][1] * curve[0][0] / n for n, _ in curve]
                panel.plot([n for n, _ in curve], ideal, ":", color=harness.COLOURS[k], lw=0.8)
                values += [*ideal, *(taken for _, taken in curve)]
        panel.set(xscale="log", yscale="log", title=data, xlabel="cores", ylabel="seconds", xlim=(0.85, 1.2 * most))
        if values:
            panel.set_ylim(0.7 * min(values), 1.4 * max(values))
        panel.set_xticks(numbers, [str(n) for n in numbers])
        panel.minorticks_off()
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    figure.suptitle("Kernel C-SVM to 1e-3: seconds of a fit over cores")
    _finish(report, figure, panels, "kernel")


def draw_cores_growth(report: Report, found: Mapping[str, Any], exponent: Any, n_threads: int) -> None:
    """Seconds and memory over the number of rows, with the fitted exponent beside each name."""
    figure, panels = harness.axes(2, width=5.4, height=4.4)
    for k, (name, by_size) in enumerate(found.items()):
        fits = sorted((int(n), each) for n, each in by_size.items() if each)
        slope = exponent(by_size)
        label = name if slope is None else f"{name}: n^{slope:.2f}"
        look = {**harness.style(k), "linestyle": "--" if k >= len(harness.COLOURS) else "-"}
        panels[0, 0].plot([n for n, _ in fits], [each["seconds"] for _, each in fits], label=label, **look)
        known = [(n, max(each["MiB"], 1.0)) for n, each in fits if each["MiB"] is not None]
        if known:
            panels[0, 1].plot(*zip(*known, strict=True), label=label, **look)
    panels[0, 0].set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds")
    panels[0, 1].set(xscale="log", yscale="log", xlabel="rows", ylabel="new MiB (1: none)")
    cores = "1 core" if n_threads == 1 else f"{n_threads} cores"
    figure.suptitle(f"Growth with the number of rows: covtype, 54 features, {cores}")
    _finish(report, figure, panels, "growth", 3)
