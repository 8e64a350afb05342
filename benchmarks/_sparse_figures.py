"""How do the results of the 1-norm SVM look? Pictures of ``benchmarks.sparse`` and ``benchmarks.debiased``, plain data.

Data are what JSON gives back. Errors of simulations are ``errors[who][setting]``, lists with one number a repetition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._harness import Report

# An estimator keeps its colour and marker in all figures.
WHO = {
    "CE": 6,
    "NAE": 1,
    "AE": 2,
    "TE": 0,
    "TE, z": 5,
    "TE, true Hessian": 3,
    "second round": 4,
}
ERRORS = {"l_inf": "$l_\\infty$ error", "l2": "$l_2$ error", "prediction": "prediction error"}


# -- the solver --------------------------------------------------------------------------------------------------------


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
    harness.legend_below(figure, panels, 6)
    report.picture(figure, "highs")


def draw_path(report: Report, found: Mapping[str, Any], forms: Sequence[str]) -> None:
    """Processor seconds over the penalty, a panel for each set."""
    figure, panels = harness.axes(len(found), width=3.8)
    for panel, (name, each) in zip(panels.flat, found.items(), strict=True):
        shares = [point["alpha / alpha_max"] for point in each["points"]]
        for k, who in enumerate(("ours", *forms)):
            times = [point[who]["cpu_seconds"] if point[who] else np.nan for point in each["points"]]
            panel.plot(shares, times, label=who if who == "ours" else f"HiGHS, {who}", **harness.style(k))
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.invert_xaxis()
        panel.set_xlabel("alpha / alpha_max")
        panel.set_title(f"{name}  ({each['n']:,} x {each['p']:,})")
    panels[0, 0].set_ylabel("processor seconds")
    harness.legend_below(figure, panels, 5)
    report.picture(figure, "path")


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
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.invert_xaxis()
        panel.set_xlabel("alpha / alpha_max")
        panel.set_ylabel(text)
    harness.legend_below(figure, panels, 2)
    report.picture(figure, "path_large")


def draw_peers(report: Report, found: Mapping[str, Any]) -> None:
    """How far above the best the objective of our problem is, over processor seconds."""
    figure, panels = harness.axes(len(found))
    for panel, (key, each) in zip(panels.flat, found.items(), strict=True):
        best = min(one["objective"] for one in each.values())
        for k, family in enumerate(("SparseSVC", "SGDClassifier", "LinearSVC")):
            points = [one for who, one in each.items() if who.startswith(family)]
            above = [max(one["objective"] / best - 1, 1e-16) for one in points]
            label = f"{family}, l1 (another problem)" if family == "LinearSVC" else family
            panel.plot([one["cpu_seconds"] for one in points], above, label=label, **harness.style(k))
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("processor seconds")
        panel.set_ylabel("objective above the best, relative")
        panel.set_title(key)
    harness.legend_below(figure, panels, 3)
    report.picture(figure, "peers")


# -- the simulations ---------------------------------------------------------------------------------------------------


def draw_errors(
    report: Report, name: str, title: str, axis: str, settings: Sequence[int], errors: Mapping[str, Any]
) -> None:
    """The paper's panels: log10 of the errors (the prediction error as it is), dotted lines two standard deviations.

    ``errors[what][who][setting]`` is a list over repetitions. A standard deviation is that of the number drawn.
    """
    figure, panels = harness.axes(len(ERRORS), width=4.4)
    for panel, (what, text) in zip(panels.flat, ERRORS.items(), strict=True):
        for who, number in WHO.items():
            if who not in errors[what]:
                continue
            by_setting = [np.asarray(errors[what][who][str(setting)]) for setting in settings]
            drawn = [values if what == "prediction" else np.log10(values) for values in by_setting]
            middle, spread = (np.array([getattr(values, how)() for values in drawn]) for how in ("mean", "std"))
            style = harness.style(number)
            panel.plot(settings, middle, label=who, **style)
            for edge in (middle - 2 * spread, middle + 2 * spread):
                panel.plot(settings, edge, color=style["color"], linestyle=":", linewidth=0.8)
        panel.set_xlabel(axis)
        panel.set_title(text if what == "prediction" else f"log10 of the {text}")
        panel.set_xticks(settings)
    figure.suptitle(title, wrap=True)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(WHO))
    report.picture(figure, name)


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
    harness.legend_below(figure, panels, 4)
    report.picture(figure, "coverage")
