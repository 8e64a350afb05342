"""How do the results of the margin distribution machine look? Pictures of ``benchmarks.margin_distribution``.

Data are what JSON gives back. Every method keeps its colour and marker in all figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._harness import Report

TREES = {"SODM": 0, "Ca-ODM": 1, "DiP-ODM": 2, "DC-ODM": 3, "SSVM": 0, "Ca-SVM": 1, "DiP-SVM": 2, "DC-SVM": 3}
_LEAST = 1e-12  # what a logarithmic axis shows of no gap at all


def draw_accuracy(
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
    harness.legend_below(figure, panels, 6)
    report.picture(figure, "accuracy")


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
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("C")
        panel.set_title(f"{name}: to a gap of {tol:g}")
    panels[0, 0].set_ylabel("processor seconds")
    harness.legend_below(figure, panels)
    report.picture(figure, "speed")


def draw_levels(report: Report, found: Mapping[str, Any]) -> None:
    """Accuracy over seconds at every level of SODM, beside one machine (Figures 1 and 3)."""
    names = list(dict.fromkeys(key.split(", ")[0] for key in found))
    kernels = list(dict.fromkeys(key.split(", ")[1] for key in found))
    figure, panels = harness.axes(len(names), len(kernels), width=3.6, height=3.3)
    for row, kernel in enumerate(kernels):
        for panel, name in zip(panels[row], names, strict=True):
            each = found[f"{name}, {kernel}"]
            for k, n_ranks in enumerate((1, 2)):
                levels = each[f"{n_ranks} ranks"]["levels"]
                times, right = [level["seconds"] for level in levels], [100 * level["accuracy"] for level in levels]
                panel.plot(times, right, label=f"SODM, {n_ranks} rank{'s' * (n_ranks > 1)}", **harness.style(k))
            single = each["single"]
            style = {**harness.style(6), "markersize": 8}
            panel.plot(single["seconds"], 100 * single["accuracy"], linestyle="", label="all rows at once", **style)
            panel.set_xscale("log")
            panel.set_title(f"{name}, {kernel} kernel")
            if row == len(kernels) - 1:
                panel.set_xlabel("seconds")
        panels[row, 0].set_ylabel("test accuracy %")
    harness.legend_below(figure, panels)
    report.picture(figure, "levels")


def draw_speedups(report: Report, found: Mapping[str, Any], workers: Sequence[int]) -> None:
    """Times faster than one worker, projected, and measured on two ranks (Figure 2)."""
    kinds = ("to the root", "to the last two parts")
    figure, panels = harness.axes(len(kinds))
    for panel, kind in zip(panels.flat, kinds, strict=True):
        for k, (key, each) in enumerate(found.items()):
            style = {**harness.style(k // 2), "linestyle": "-" if "rbf" in key else ":"}
            panel.plot(workers, each["projected"][kind], label=key, **style)
            if kind == kinds[0]:
                measured = each["1 ranks"]["seconds"] / each["2 ranks"]["seconds"]
                panel.plot(2, measured, marker="x", color=style["color"], markersize=8, linestyle="")
        panel.plot(workers, workers, color="grey", linestyle="--", label="as many workers as faster")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(workers, [str(n) for n in workers])
        panel.set_yticks(workers, [str(n) for n in workers])
        panel.set_xlabel("workers (projected; x: two threads)")
        panel.set_title(f"SODM {kind}")
    panels[0, 0].set_ylabel("times faster than one")
    harness.legend_below(figure, panels, 3)
    _save_as_is(report, figure, "speedups")


def _save_as_is(report: Report, figure: Any, name: str) -> None:
    """Axes to the base of two have labels of their own, which the report would drop for those of decades."""
    for panel in figure.axes:
        panel.minorticks_off()
        for axis in (panel.xaxis, panel.yaxis):
            axis.get_scale = lambda: "as it is"
    report.picture(figure, name)


def draw_tables(report: Report, found: Mapping[str, Any]) -> None:
    """Accuracy over seconds at every level of every tree, a worker for each part (Figures 1 and 3)."""
    for kernel, sets in found.items():
        kinds = ("ODM", "SVM") if kernel == "rbf" else ("ODM",)
        figure, panels = harness.axes(len(sets), len(kinds), width=3.6, height=3.3)
        for row, kind in enumerate(kinds):
            for panel, (name, each) in zip(panels[row], sets.items(), strict=True):
                for who in (who for who in each if who in TREES and (who.endswith("SVM") == (kind == "SVM"))):
                    levels = each[who]["levels"]
                    times, right = zip(*[(one["parallel"], 100 * one["accuracy"]) for one in levels], strict=True)
                    panel.plot(times, right, label=who, **harness.style(TREES[who]))
                if kind == "ODM":
                    alone = each["ODM"]
                    style = {**harness.style(6), "markersize": 8}
                    panel.plot(alone["seconds"], 100 * alone["accuracy"], linestyle="", label="ODM, at once", **style)
                panel.set_xscale("log")
                panel.set_title(f"{name}, {kernel}")
                if row == len(kinds) - 1:
                    panel.set_xlabel("seconds, a worker for each part")
            panels[row, 0].set_ylabel("test accuracy %")
        harness.legend_below(figure, panels, 9)
        report.picture(figure, "figure_1" if kernel == "rbf" else "figure_3")


def draw_linear(report: Report, found: Mapping[str, Any], who: Sequence[str]) -> None:
    """The objective above the optimum, over seconds and over passes (Figure 4)."""
    figure, panels = harness.axes(len(found), 2, width=3.4, height=3.2)
    for column, (name, each) in enumerate(found.items()):
        for row, cost in enumerate(("seconds", "passes")):
            panel = panels[row, column]
            for k, one in enumerate(who):
                points = each[one]["points"]
                heights = [max(point["above"], _LEAST) for point in points]
                costs = [max(point[cost], 1e-4) for point in points]
                panel.plot(costs, heights, label=one, **harness.style(k, len(points)))
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel({"seconds": "seconds", "passes": "passes over the rows"}[cost])
        panels[0, column].set_title(name)
    for row in range(2):
        panels[row, 0].set_ylabel("above the optimum, relative")
    harness.legend_below(figure, panels)
    report.picture(figure, "figure_4")
