"""Tables of the page of benchmarks, from the JSON that benchmarks wrote.

Each function takes the folder of results and returns a table in Markdown. Cells are formatted one by one, which pandas'
``to_markdown`` would not make shorter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

NO_BREAK = "\N{NO-BREAK SPACE}"


def load(results: Path, name: str) -> dict[str, Any]:
    """The content of ``NAME.json`` in the folder of results."""
    return json.loads((results / f"{name}.json").read_text(encoding="utf8"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; two bars in a cell are a norm, and would end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("||", "‖") for cell in line) + " |" for line in lines) + "\n"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many digits, without an exponent if possible."""
    if value is None:
        return "-"
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e" in text or abs(value) >= 1000 else text


def times(other: float | None, ours: float) -> str:
    """Seconds of another library, and how many times ours they are; without line breaks in narrow columns."""
    return "-" if other is None else f"{number(other)}{NO_BREAK}({number(other / ours, 2)}{NO_BREAK}x)"


def percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def size(entry: dict[str, Any]) -> str:
    return f"{entry['n']:,}{NO_BREAK}x{NO_BREAK}{entry['d']}"


def nu_margin(results: Path) -> str:
    rows = []
    for name, entry in load(results, "nu_margin/results")["sets"].items():
        ours = entry["auto"]["seconds"]
        intelex = min(entry["intelex NuSVC"]["seconds"], entry["intelex NuSVC dense"]["seconds"])
        others = (entry["NuSVC"]["seconds"], intelex, entry["LinearSVC to the end"]["seconds"])
        rows.append(
            [name, size(entry), number(ours), number(entry["auto"]["gap"]), *(times(other, ours) for other in others)]
        )
    return table(
        ["set", "rows x columns", "`NuMarginSVC`, s", "certified gap", "NuSVC, s", "scikit-learn-intelex, s",
         "LinearSVC(hinge) to its end, s"],
        rows,
    )  # fmt: skip


def hard_margin(results: Path) -> str:
    rows = []
    for name, entry in load(results, "hard_margin/results")["sets"].items():
        ours = entry["auto"]["seconds"]
        others = [times(entry[other]["seconds"], ours) for other in ("SVC", "Gilbert")]
        rows.append([name, size(entry), number(ours), number(entry["auto"]["gap"]), *others])
    return table(
        ["set", "rows x columns", "`HardMarginSVC`, s", "certified gap", "SVC(C=1e10), s", "Gilbert's algorithm, s"],
        rows,
    )


def kernel(results: Path) -> str:
    rows = []
    for name, entry in load(results, "kernel/exact")["exact"].items():
        ours = entry["ours, 1"]
        others = [entry.get(other, {}).get("seconds") for other in ("intelex SVC, 1", "SVC")]
        head = [name, f"{ours['n']:,}", number(ours["seconds"]), number(ours["certified_gap"])]
        rows.append([*head, *(times(other, ours["seconds"]) for other in others), percent(ours["test_error"])])
    return table(
        ["set", "rows", "`KernelSVC`, s", "certified gap", "scikit-learn-intelex, s", "SVC, s", "test error"], rows
    )


def linear(results: Path) -> str:
    rows = []
    for name, entry in load(results, "kernel/linear")["linear"].items():
        ours, other = entry["ours"], entry["LinearSVC"]
        ended = "converged" if other["converged"] else "gave up"
        cells = number(ours["seconds"]), number(ours["certified_gap"]), times(other["seconds"], ours["seconds"])
        rows.append([name, *cells, ended])
    return table(
        [
            "set, and the tol of LinearSVC",
            '`KernelSVC(kernel="linear")`, s',
            "certified gap",
            "LinearSVC, s",
            "LinearSVC",
        ],
        rows,
    )


def margin_distribution(results: Path) -> str:
    accuracy = load(results, "margin_distribution/accuracy")["accuracy"]
    methods = [name for name in next(iter(accuracy.values())) if name != "splits"]
    rows = [
        [name, *(f"{entry[method]['mean']:.4f} ± {entry[method]['sd']:.4f}" for method in methods)]
        for name, entry in accuracy.items()
    ]
    return table(["set", *methods], rows)


def sparse(results: Path) -> str:
    rows = []
    for name, entry in load(results, "sparse/highs")["highs"].items():
        ours = entry["fit"]["seconds"]
        forms = [entry[form]["seconds"] for form in ("highs", "highs-ds", "highs-ipm", "dual form") if entry.get(form)]
        best = times(min(forms), ours) if forms else f"not within {entry['limit']:g}"
        rows.append([name, number(ours), number(entry["fit"]["certified_gap"]), best])
    return table(["rows, columns, alpha", "`SparseSVC`, s", "certified gap", "HiGHS, its fastest form, s"], rows)


def gossip(results: Path) -> str:
    rows = []
    for name, methods in load(results, "gossip/accuracy")["accuracy"].items():
        if name in {"not available", "paper"}:
            continue
        for method in ("GossipSVC", "push-sum", "LinearSVC", "local only"):
            runs = methods[method] if isinstance(methods[method], list) else [methods[method]]
            averages = [
                mean(run[key] for run in runs) if key in runs[0] else None for key in ("certified", "ticks", "messages")
            ]
            accuracy = percent(mean(run["accuracy"] for run in runs))
            rows.append([name, method, accuracy, *(number(value) for value in averages)])
    return table(["set", "who", "test accuracy", "certified gap", "ticks", "messages"], rows)


def gpu(results: Path) -> str:
    rows = []
    for name, entry in load(results, "gpu/fits")["fits"].items():
        if "float16" not in entry:
            continue
        card, cpu = entry["float16"], entry["cpu"]
        ours = [times(cpu.get(who), card["seconds"]) for who in ("ours, 1", "intelex SVC, 2", "SVC")]
        rows.append([name, f"{card['n']:,}", number(card["seconds"]), number(card["gap"]), *ours])
    return table(
        ["set", "rows", "on the GPU, s", "certified gap", "`KernelSVC`, one core, s", "scikit-learn-intelex, two, s",
         "SVC, s"],
        rows,
    )  # fmt: skip


OURS, INTELEX, SKLEARN = "widemargin", "scikit-learn-intelex", "scikit-learn"


def of_cores(results: Path, section: str) -> tuple[dict[str, Any], str]:
    """Fits of a section of ``benchmarks.cores``, and where they were measured; nothing where they were not."""
    path = results / "cores" / f"{section}.json"
    if not path.exists():
        return {}, f"*Not measured in this checkout: `python -m benchmarks.cores --only {section}`.*\n"
    found = load(results, f"cores/{section}")
    fits: dict[str, Any] = next((each for key, each in found.items() if key.startswith(("fits", "floor"))), {})
    return fits, f"\n{found['machine']['cpu']}, {found['machine']['cores']} cores, {found['machine']['date'][:10]}.\n"


def picture_of(results: Path, name: str, title: str) -> str:
    """The picture ``NAME.png`` in the folder of results, if it is there."""
    there = (results / f"{name}.png").exists()
    return f"\n![{title}](../benchmarks/results/{name}.png)\n" if there else ""


def seconds_of(entry: dict[str, Any] | None, key: str = "seconds") -> float | None:
    return None if entry is None else entry.get(key)


def cores_kernel(results: Path) -> str:
    fits, where = of_cores(results, "kernel")
    rows = []
    for name, by_threads in fits.items():
        for n_threads in sorted((key for key in by_threads if key.isdigit()), key=int):
            ours, peer = by_threads[n_threads].get(OURS), by_threads[n_threads].get(INTELEX)
            if ours is None:
                continue
            alone = seconds_of(by_threads.get("1", {}).get(OURS))
            speed_up = None if alone is None else alone / ours["seconds"]
            rows.append([
                name, n_threads, number(ours["seconds"]), times(seconds_of(peer), ours["seconds"]),
                number(speed_up, 2), f"{number(ours['kernel values / n^2'], 2)} n²", number(ours["predict_seconds"]),
                times(seconds_of(peer, "predict_seconds"), ours["predict_seconds"]),
            ])  # fmt: skip
    if not rows:
        return where
    head = ["set", "cores", "`KernelSVC`, s", "scikit-learn-intelex, s", "speed-up over one core", "kernel values",
            "predictions, s", "scikit-learn-intelex, s"]  # fmt: skip
    return table(head, rows) + where + picture_of(results, "cores/kernel", "Seconds over cores")


def cores_rows(results: Path) -> str:
    fits, where = of_cores(results, "rows")
    counts = sorted({n for each in fits.values() for n in each}, key=int)
    rows = [[name, *(number(seconds_of(each.get(n))) for n in counts)] for name, each in fits.items()]
    return table(["fit, s", *(f"{n} cores" if n != "1" else "1 core" for n in counts)], rows) + where if rows else where


def cores_nu(results: Path) -> str:
    fits, where = of_cores(results, "nu")
    rows = []
    for name, each in fits.items():
        cells = []
        for answers in each["fits"].values():
            ours, peers = answers[OURS], [answer for who, answer in answers.items() if who != OURS]
            if ours is None:
                cells.append("-")
            elif peers and peers[0] is not None:
                cells.append(f"{number(ours['seconds'])}{NO_BREAK}({number(peers[0]['seconds'] / ours['seconds'], 2)})")
            else:
                cells.append(number(ours["seconds"]))
        peer = {SKLEARN: "NuSVC", INTELEX: "scikit-learn-intelex"}
        peer_name = next((peer[who] for who in next(iter(each["fits"].values()), {}) if who in peer), "-")
        rows.append([name, size(each), peer_name, number(each["LinearSVC"]["seconds"]), *cells])
    if not rows:
        return where
    shares = list(next(iter(fits.values()))["fits"])
    return table(["set", "rows x columns", "peer", "LinearSVC, s", *shares], rows) + where


def cores_small(results: Path) -> str:
    fits, where = of_cores(results, "small")
    if not fits:
        return where
    models = list(next(iter(fits.values())))
    parts = []
    for key, title in (("seconds", "fit, ms"), ("one row", "one row predicted, ms")):
        rows = [[name, *(number(1e3 * each[name][key]) for each in fits.values())] for name in models]
        parts.append(table([title, *fits], rows))
    return "\n".join(parts) + where


def cores_shapes(results: Path) -> str:
    fits, where = of_cores(results, "shapes")
    rows = []
    for name, each in fits.items():
        ours = seconds_of(each[OURS])
        if ours is not None:
            others = [times(seconds_of(each.get(who)), ours) for who in (SKLEARN, INTELEX)]
            rows.append([name, number(ours), *others])
    return table(["rows", "`KernelSVC`, s", "SVC, s", "scikit-learn-intelex, s"], rows) + where if rows else where


def cores_growth(results: Path) -> str:
    fits, where = of_cores(results, "growth")
    if not fits:
        return where
    exponents = load(results, "cores/growth")["exponents"]
    counts = sorted({int(n) for each in fits.values() for n in each})
    rows = []
    for name, each in fits.items():
        memory = max((answer["MiB"] or 0.0 for answer in each.values() if answer), default=0.0)
        cells = [number(seconds_of(each.get(str(n)))) for n in counts]
        rows.append([name, *cells, number(exponents[name], 2), number(memory)])
    head = ["fit, s", *(f"{n:,}" for n in counts), "exponent", "most memory, MiB"]
    return table(head, rows) + where + picture_of(results, "cores/growth", "Growth")


def cores_floor(results: Path) -> str:
    fits, where = of_cores(results, "floor")
    keys = ["seconds", "its kernel values s", "n x support vectors s"]
    rows = [
        [name, *(number(each[key]) for key in keys), percent(each["share of the first"])] for name, each in fits.items()
    ]
    head = ["set", "fit, s", "its kernel values alone, s", "n x support vectors alone, s", "share of kernel values"]
    return table(head, rows) + where if rows else where


def first_use(results: Path) -> str:
    """Seconds of a process that compiles, and of a later one."""
    if not (results / "first_use" / "results.json").exists():
        return "*Not measured in this checkout: `python -m benchmarks.first_use`.*\n"
    rows = []
    for name, entry in load(results, "first_use/results")["estimators"].items():
        rows.append([f"`{name}`", number(entry["first"]["fit"]), number(entry["first"]["process"]),
                     number(entry["later"]["process"])])  # fmt: skip
    return table(["estimator", "first fit, s", "first process, s", "a later process, s"], rows)


def not_met(results: Path) -> str:
    """Every bar that was set before measuring and not met."""
    rows = []
    for path in sorted(results.rglob("*.json")):
        found = json.loads(path.read_text(encoding="utf8"))
        bars = found.get("bars", []) if isinstance(found, dict) else []
        where = path.relative_to(results).with_suffix("").as_posix()
        rows += [[where, bar["claim"], bar["asked"], bar["measured"]] for bar in bars if not bar["is_met"]]
    return table(["benchmark", "what", "asked", "measured"], rows) if rows else "None.\n"


def selection(results: Path) -> str:
    files = [load(results, f"selection/{path.stem}") for path in sorted((results / "selection").glob("*.json"))]
    if not files:
        return "*Not measured in this checkout: `python -m benchmarks.selection`.*\n"
    rows, notes = [], ""
    for name, entry in [pair for file in files for pair in file.get("searches", {}).items()]:
        ours, chosen = entry[OURS], ", ".join(f"{key} = {number(value)}" for key, value in entry[OURS]["best"].items())
        others = [times(seconds_of(entry.get(other)), ours["seconds"]) for other in (SKLEARN, INTELEX)]
        rows.append(
            [
                name,
                size(ours),
                str(ours["n_classes"]),
                number(ours["seconds"]),
                *others,
                f"{ours['best_score']:.4f}",
                chosen,
            ]
        )
    for whole in [file["whole"] for file in files if "whole" in file]:
        fits = number(whole["seconds"] / whole["one"]["seconds"], 2)
        notes += (
            f"\nAll of a9a, {size(whole)}, ten values of C: {number(whole['seconds'])} s, the time of {fits} fits.\n"
        )
    head = ["set", "rows x columns", "classes", "`KernelSVCCV`, s", "GridSearchCV(SVC), s", "scikit-learn-intelex, s",
            "mean score", "chosen"]  # fmt: skip
    return table(head, rows) + notes + picture_of(results, "selection/selection", "Seconds of a search")


def selection_gpu(results: Path) -> str:
    if not (results / "selection_gpu" / "results.json").exists():
        return "*Not measured in this checkout: `python -m benchmarks.selection_gpu`.*\n"
    rows = []
    for name, entry in load(results, "selection_gpu/results")["searches"].items():
        ours, other = entry[OURS], entry.get("TorchKM")
        row = [name, str(ours["n_fits"]), number(ours["seconds"]), number(max(entry["all_seconds"]))]
        row += [number(ours["worst_gap"]), number(ours["GiB"])]
        if other is not None:
            above = f"{100 * other['above_optimum'][0]:.1f}%"
            row += [times(other["seconds"], ours["seconds"]), number(other["GiB"]), above]
        rows.append(row + [""] * (9 - len(row)))
    return table(
        ["rows", "fits", "`KernelSVCCV`, s", "the first of its shape, s", "largest gap", "GiB", "TorchKM, s", "GiB",
         "its objective above the optimum"],
        rows,
    )  # fmt: skip


def debiased_discoveries(results: Path) -> str:
    if not (results / "debiased" / "false_discoveries.json").exists():
        return "*Not measured in this checkout: `python -m benchmarks.debiased --only false_discoveries`.*\n"
    rows = []
    for entry in load(results, "debiased/false_discoveries")["false_discoveries"]:
        by_rule = entry["rules"]
        shares = [by_rule["BH 0.1"]["false share"], by_rule["BH 0.05"]["false share"], by_rule["Holm 0.1"]["any false"]]
        effects = [by_rule[rule]["effects found"] for rule in ("BH 0.1", "Holm 0.1", "selected")]
        rows.append(
            [
                entry["design"],
                f"{entry['n']:,}" + (f" on {entry['machines']} machines" if entry["machines"] > 1 else ""),
                *(f"{mean:.3f} ± {error:.3f}" for mean, error in shares),
                " / ".join(f"{count:.1f}" for count in effects),
            ]
        )
    return table(
        ["design", "rows", "false share, BH at .10", "BH at .05", "Holm at .10: any false",
         "effects found of 5: BH .10 / Holm .10 / `selected`"],
        rows,
    )  # fmt: skip


_TABLES = (
    nu_margin, hard_margin, kernel, linear, margin_distribution, sparse, gossip, gpu, cores_kernel, cores_rows,
    cores_nu, cores_small, cores_shapes, cores_growth, cores_floor, selection, selection_gpu,
    debiased_discoveries, first_use, not_met,
)  # fmt: skip
TABLES: dict[str, Callable[[Path], str]] = {function.__name__: function for function in _TABLES}
