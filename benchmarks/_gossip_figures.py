"""How do the results of gossip look? Pictures of ``benchmarks.gossip``, from plain data as JSON gives it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._harness import Report

# A method keeps its colour and marker in all figures.
WHO = {"GossipSVC": 0, "push-sum": 1, "Pegasos": 2, "SGDClassifier": 3, "cutting plane": 4, "local only": 5}


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
    harness.legend_below(figure, panels, 4)
    report.picture(figure, "ticks")


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
    harness.legend_below(figure, panels, 2)
    report.picture(figure, "faults")


def draw_accuracy(report: Report, found: Mapping[str, Any], names: Sequence[str], methods: Sequence[str]) -> None:
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
    harness.legend_below(figure, panels, 2)
    report.picture(figure, "accuracy")


def draw_curves(report: Report, found: Mapping[str, Any], methods: Sequence[str]) -> None:
    """Gap and test error over seconds and over messages, a row of panels for each set."""
    figure, panels = harness.axes(4, len(found), width=4.2, height=3.4)
    columns = (("seconds", "gap"), ("seconds", "error"), ("messages", "gap"), ("messages", "error"))
    for row, (name, each) in zip(panels, found.items(), strict=True):
        for panel, (x, y) in zip(row, columns, strict=True):
            for who in methods:
                points = [point for point in each[who] if point[x] is not None]
                if points and (x == "seconds" or len(points) > 1):
                    look = harness.style(WHO[who], len(points)) | ({"linestyle": "none"} if len(points) == 1 else {})
                    panel.plot([point[x] for point in points], [point[y] for point in points], label=who, **look)
            word = "processor seconds of one peer" if x == "seconds" else "messages of all peers"
            panel.set(xlabel=word, xscale="log", title=name)
            _mark_errors(panel, each) if y == "error" else panel.set(ylabel="mean true gap", yscale="log")
            if y == "gap":
                panel.set_ylim(1e-4, 1e2)
    harness.legend_below(figure, panels, 8)
    report.picture(figure, "curves")


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
    harness.legend_below(figure, panels, 3)
    report.picture(figure, "rho")


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
