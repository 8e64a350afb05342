"""Tables of the page of SODM, from the JSON that ``benchmarks.margin_distribution`` wrote.

A section that was not run leaves a note with its command; one that was run in part shows what there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tools.result_tables import number, table

ODMS, SVMS = ("Ca-ODM", "DiP-ODM", "DC-ODM", "SODM"), ("Ca-SVM", "DiP-SVM", "DC-SVM", "SSVM")
SAMPLES = ("cod-rna", "SUSY")
Found = dict[str, Any]


def section(results: Path, name: str) -> Found:
    """What a section has of its sets; nothing where it was not run."""
    path = results / "margin_distribution" / f"{name}.json"
    found: Found = json.loads(path.read_text(encoding="utf8"))[name]["sets"] if path.exists() else {}
    return found


def picture(results: Path, name: str, title: str) -> str:
    """A picture for the page, which is in a folder of its own."""
    there = (results / "margin_distribution" / f"{name}.png").exists()
    return f"\n![{title}](../../benchmarks/results/margin_distribution/{name}.png)\n" if there else ""


def missing(name: str) -> str:
    return f"*Not measured in this checkout: `python -m benchmarks.margin_distribution --only {name}`.*\n"


def short(value: float, digits: int = 4) -> str:
    """Without the zero before the point."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def labelled(name: str, each: Found) -> str:
    """A set with its training rows and splits, and what is reduced."""
    n = max((one["n"] for one in each["splits"][0].values() if "n" in one), default=0)
    done, planned = len(each["splits"]), each["of_splits"]
    notes = [f"{n:,} rows", f"{done} split" + "s" * (done > 1)]
    notes += ["reduced: a sample"] * (name in SAMPLES) + [f"reduced: {done} of {planned} splits"] * (done < planned)
    return f"{name} ({'; '.join(notes)})"


def levels_of(one: Found) -> list[Found]:
    levels: list[Found] = one.get("levels") or [one]
    return levels


def accuracies(each: Found, who: str, level: int = -1) -> list[float]:
    """Of all splits that have it, at a level of a tree; a tree of one level has only that."""
    found = [split[who] for split in each["splits"] if who in split and "over" not in split[who]]
    return [levels_of(one)[max(level, -len(levels_of(one)))]["accuracy"] for one in found]


def seconds(each: Found, who: str, level: int = -1) -> float | None:
    """The mean over splits, with a worker for each part where there are any; None where it did not end."""
    found = [split[who] for split in each["splits"] if who in split]
    if not found or any("over" in one for one in found):
        return None
    places = [levels_of(one)[max(level, -len(levels_of(one)))] for one in found]
    return mean(place.get("parallel", place["seconds"]) for place in places)


def cell(each: Found, who: str, printed: Sequence[float | None]) -> str:
    """Accuracy of the leaves and of the root, its deviation, seconds; after the semicolon the paper's."""
    own = [split[who] for split in each["splits"] if who in split]
    theirs = "-" if printed[0] is None else short(printed[0], 3)
    theirs += "" if printed[1] is None else f", {printed[1]:.0f} s"
    if not own:
        return f"-; {theirs}"
    if any("over" in one for one in own):
        limit = next(one["over"] for one in own if "over" in one)
        return f"N/A: over {limit:g} s; {theirs}"
    right, taken = accuracies(each, who), seconds(each, who)
    spread = f" ± {short(stdev(right))}" if len(right) > 1 else ""
    leaves = f"{short(mean(accuracies(each, who, 0)))}, " if "levels" in own[0] else ""
    return f"{leaves}{short(mean(right))}{spread}, {number(taken)} s; {theirs}"


def trees(results: Path, name: str, methods: Sequence[str]) -> str:
    """A table of the paper, from the file of a section, which has the paper's figures too."""
    found = section(results, name)
    if not found:
        return missing(name)
    content = json.loads((results / "margin_distribution" / f"{name}.json").read_text(encoding="utf8"))
    paper = content[name]["paper"]
    rows = [
        [labelled(name, each), *(cell(each, who, paper[name].get(who, [None, None])) for who in methods)]
        for name, each in found.items()
    ]
    return table(["set", *methods], rows)


def sodm_table_2(results: Path) -> str:
    found = trees(results, "tables_2_4", ("ODM", *ODMS))
    title = "Figure 1: accuracy over seconds, RBF kernel"
    return found if found.startswith("*") else found + picture(results, "figure_1", title)


def sodm_table_4(results: Path) -> str:
    found = trees(results, "tables_2_4", SVMS)
    title = "The trees on the hinge loss, accuracy over seconds"
    return found if found.startswith("*") else found + picture(results, "figure_1_svm", title)


def sodm_table_3(results: Path) -> str:
    found = trees(results, "table_3", ("ODM", *ODMS))
    title = "Figure 3: accuracy over seconds, linear kernel"
    return found if found.startswith("*") else found + picture(results, "figure_3", title)


def sodm_tuning(results: Path) -> str:
    found = section(results, "tuning")
    rows = []
    for name, each in found.items():
        cells = [", ".join(f"{key} {number(value)}" for key, value in one["chosen"].items()) for one in each.values()]
        rows.append([name, *cells])
    return table(["set", *next(iter(found.values()))], rows) if found else missing("tuning")


def sodm_figure_2(results: Path) -> str:
    found = section(results, "figure_2")
    shown, rows = (1, 3, 5), []  # 2, 8 and 32 workers
    for name, each in found.items():
        for kernel, one in each.items():
            alone, measured = one["threads"]["1"]["seconds"], "-"
            if len(one["threads"]) > 1:
                faster = {n: alone / other["seconds"] for n, other in one["threads"].items() if n != "1"}
                measured = ", ".join(f"{n}: {number(ratio, 3)}" for n, ratio in faster.items())
            cells = [number(ratios[k], 3) for ratios in one["projected"].values() for k in shown]
            rows.append([f"{name}, {'RBF' if kernel == 'rbf' else kernel}", measured, *cells])
    head = ["", "threads, measured", "to the root, or a step on every row: 2, projected", "8", "32",
            "to two parts, or a step on every node: 2", "8", "32"]  # fmt: skip
    return table(head, rows) + picture(results, "figure_2", "Figure 2: speed-ups") if found else missing("figure_2")


def sodm_figure_4(results: Path) -> str:
    found, rows = section(results, "figure_4"), []
    for name, each in found.items():
        for who, one in each.items():
            if who in ("C", "optimum"):
                continue
            points = one["points"]
            first = next((point for point in points if point["above"] <= 1e-4), None)
            to = f"{number(first['seconds'])} s, {number(first['passes'])} passes" if first else "never"
            near = f"{number(one['near'])} s" if one["near"] is not None else "never"
            last = points[-1]
            rows.append([name, who, near, to, number(last["above"], 2), short(last["accuracy"])])
    head = ["set", "who", "to the optimum's accuracy less .001, for good", "objective within 1e-4",
            "above the optimum at its end", "accuracy"]  # fmt: skip
    if not found:
        return missing("figure_4")
    pictures = picture(results, "figure_4", "Figure 4: accuracy over seconds")
    return table(head, rows) + pictures + picture(results, "figure_4_objective", "The objective above the optimum")


def sodm_theorems(results: Path) -> str:
    path = results / "margin_distribution" / "theorems.json"
    if not path.exists():
        return missing("theorems")
    found = json.loads(path.read_text(encoding="utf8"))["theorems"]
    rows = [
        [n, *(number(value) for key in ("(5)", "(6)", "theorem 2") for value in each[key]), number(each["w = 0"])]
        for n, each in found["parts"].items()
    ]
    head = ["parts", "(5): gap of objectives", "its bound", "(6): squared distance", "its bound",
            "Theorem 2: d_k - d, the largest", "its bound", "-d: what w = 0 lacks"]  # fmt: skip
    return table(head, rows)


def _accuracy(results: Path, name: str) -> str:
    found = json.loads((results / "margin_distribution" / f"{name}.json").read_text(encoding="utf8"))["accuracy"]
    methods = [who for who in next(iter(found.values())) if who != "splits"]
    rows = [
        [data, *(f"{short(each[who]['mean'])} ± {short(each[who]['sd'])}, {number(each[who]['cpu_seconds'])} s"
                 for who in methods)]
        for data, each in found.items()
    ]  # fmt: skip
    return table(["set", *methods], rows)


def sodm_accuracy(results: Path) -> str:
    return _accuracy(results, "accuracy")


def sodm_accuracy_first_run(results: Path) -> str:
    return _accuracy(results, "accuracy_first_run")


def sodm_speed(results: Path) -> str:
    """Processor seconds of ``solver="auto"`` and of plain dual descent, of the run with less other work if there is."""
    again = results / "margin_distribution" / "speed_again.json"
    path = again if again.exists() else again.with_name("speed.json")
    content = json.loads(path.read_text(encoding="utf8"))
    found = next(iter(content.values())) if path == again else content["speed"]["kernel"]

    def told(one: Found) -> str:
        late = f", gap {number(one['gap'], 2)}" if one["gap"] > 1e-3 else ""
        return number(one["cpu_seconds"]) + late

    rows = [
        [key, f"{each['auto']['n']:,}", told(each["auto"]), told(each["plain"]),
         ("> " if each["plain"]["gap"] > 1e-3 else "")
         + number(each["plain"]["cpu_seconds"] / each["auto"]["cpu_seconds"], 2)]
        for key, each in found.items()
    ]  # fmt: skip
    return table(["problem", "rows", "auto, s", "plain dual descent, s", "times"], rows)


def sodm_speed_linear(results: Path) -> str:
    content = json.loads((results / "margin_distribution" / "speed.json").read_text(encoding="utf8"))
    rows = []
    for key, each in content["speed"]["linear"].items():
        mine, theirs = each["ours"], each["LinearSVC"]
        ratio = number(mine["cpu_seconds"] / theirs["cpu_seconds"], 2)
        cells = [number(mine["cpu_seconds"]), number(mine["gap"], 1), number(theirs["cpu_seconds"])]
        rows.append([key, f"{each['n']:,}", *cells, number(theirs["off"], 1), ratio])
    head = ["set", "rows", "ours, s", "gap", "LinearSVC, s", "its objective above the best", "ours / its"]
    return table(head, rows)


def sodm_memory(results: Path) -> str:
    content = json.loads((results / "margin_distribution" / "memory.json").read_text(encoding="utf8"))
    rows = [
        [key, f"{each['n']:,}", number(each["peak_gib"]), number(each["before_gib"]), number(each["cpu_seconds"])]
        for key, each in content["memory"].items()
    ]
    return table(["fit", "rows", "peak, GiB", "before the fit, GiB", "processor s"], rows)


_TABLES = (
    sodm_table_2, sodm_table_3, sodm_table_4, sodm_tuning, sodm_figure_2, sodm_figure_4, sodm_theorems,
    sodm_accuracy, sodm_accuracy_first_run, sodm_speed, sodm_speed_linear, sodm_memory,
)  # fmt: skip
TABLES: dict[str, Callable[[Path], str]] = {function.__name__: function for function in _TABLES}
