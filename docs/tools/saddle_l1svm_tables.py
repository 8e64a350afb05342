"""Tables and sentences of the pages of two papers, the saddle point's and the 1-norm's, from the JSON of benchmarks.

Each function takes the folder of results. What was not measured is said, with the command that measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tools.result_tables import load, number, table

OF_THE_PAPER = 100  # repetitions
SETTINGS = {"M": "M = {}", "N": "N = {:,}"}


def section(results: Path, file: str, name: str) -> Any:
    """One section of a file of results, or nothing."""
    path = results / f"{file}.json"
    return load(results, file).get(name) if path.exists() else None


def not_measured(program: str, name: str) -> str:
    return f"*Not measured in this checkout: `python -m benchmarks.{program} --only {name}`.*\n"


def picture_of(results: Path, name: str) -> str:
    """The picture of a section, for pages in ``docs/papers``, if it is there."""
    there = (results / f"{name}.png").exists()
    return f"\n![{name.rpartition('/')[2]}](../../benchmarks/results/{name}.png)\n" if there else ""


def with_error(pair: Sequence[float | None]) -> str:
    value, error = pair
    return number(value) if error is None else f"{number(value)} ± {number(error, 2)}"


# -- the saddle point paper --------------------------------------------------------------------------------------------


def saddle_table_1(results: Path) -> str:
    found, paper = (section(results, "saddle_paper/results", name) for name in ("table_1", "paper"))
    if not found:
        return not_measured("saddle_paper", "table_1")
    rows = []
    for name, each in found.items():
        cells = [f"{number(each[who]['distance'], 4)} in {number(each[who]['cpu_seconds'])} s"
                 + (", stopped" if each[who]["stop"] == "max_time" else "")
                 for who in ("saddle b=1", "auto", "Gilbert")]  # fmt: skip
        letter = each["as written"]
        cells.append(f"{number(letter['distance'], 4)} ({100 * letter['error']:+.1f}%)")
        theirs = (paper or {}).get("table_1", {}).get(name)
        cells += [f"{theirs[k]} in {theirs[k + 1]:,g} s" for k in (0, 2)] if theirs else ["-", "-"]
        rows.append([name, number(each["exact"], 5), *cells])
    head = ["set", "exact", "ours, paper's method (b=1)", "ours, `auto`", "Gilbert", "as printed (its error)"]
    text = table([*head, "paper: Saddle-SVC", "paper: Gilbert"], rows)
    if any(name.startswith("separable-") for name in found):
        text += "\n*`separable` rows are planted at .2; those at the paper's distances are not measured here yet:*"
        text += " `python -m benchmarks.saddle_paper --only table_1`.\n"
    return text


def saddle_table_3(results: Path) -> str:
    found, paper = (section(results, "saddle_paper/results", name) for name in ("table_3", "paper"))
    if not found:
        return not_measured("saddle_paper", "table_3")
    rows = []
    for name, each in found.items():
        cells = []
        for who in ("ours", "saddle", "NuSVC"):
            one = each.get(who)
            if one is None:
                cells += ["not measured", "-"]
                continue
            value = one.get("primal", one.get("distance"))
            ended = {"gap": "", "overlap": ", overlap", "max_time": ", stopped"}.get(one.get("stop", "gap"), "")
            cells += [f"{number(value**2 / 2, 2)}{ended}", f"{number(one['accuracy'])} in {number(one['seconds'])} s"]
        theirs = (paper or {}).get("table_3", {}).get(name)
        cells += [f"{number(theirs[k], 2)}, {theirs[k + 1]}" for k in (0, 2)] if theirs else ["-", "-"]
        rows.append([name, *cells])
    head = ["set, alpha", "`auto`: objective", "accuracy", "Saddle-SVC: objective", "accuracy", "NuSVC: objective"]
    return table([*head, "accuracy", "paper: LIBSVM", "paper: Saddle-SVC"], rows)


def saddle_table_4(results: Path) -> str:
    found, paper = (section(results, "saddle_paper/results", name) for name in ("table_4", "paper"))
    if not found:
        return not_measured("saddle_paper", "table_4")
    rows = []
    for name, each in found.items():
        linear = each["LinearSVC"]
        ours = [f"{number(each[who]['accuracy'])} in {number(each[who]['seconds'], 2)} s" for who in ("auto", "saddle")]
        peer = "-" if linear is None else f"{number(linear['accuracy'])} in {number(linear['seconds'], 2)} s"
        ended = "" if linear is None or linear["converged"] else ", not converged"
        theirs = (paper or {}).get("table_4", {}).get(name)
        cells = [f"{theirs[k]} in {theirs[k + 1]:,g} s" for k in (0, 2)] if theirs else ["-", "-"]
        rows.append([name, number(each["nnz"], 2), *ours, peer + ended, *cells])
    head = ["set", "non-zeros", "`auto`", "`saddle`", "LinearSVC (C = 8)", "paper: Saddle-SVC", "paper: LinearSVC"]
    return table(head, rows)


def saddle_figures_1_2(results: Path) -> str:
    """When each method has its first point and its last, and what it is worth."""
    rows = []
    for figure in ("figure_1", "figure_2"):
        for name, each in (section(results, "saddle_paper/results", figure) or {}).items():
            cells = []
            for who in ("Saddle-SVC", "Newton"):
                end = each["curves"].get(who, {}).get("end")
                cells.append("-" if end is None else f"{number(end['seconds'])} s, {number(end['distance'], 4)}")
            nu = each["curves"].get("NuSVC", {})
            seconds = nu.get("seconds") or []
            is_whole = nu.get("stop") == "converged"
            cells.append(f"{number(seconds[0])} s" if seconds else "-")
            cells.append(f"{number(seconds[-1])} s, {number(nu['distance'][-1], 4)}" if is_whole else "cut off")
            accuracy = f"{number(nu['accuracy'][-1])}" if is_whole else "-"
            rows.append([f"{figure[-1]}: {name}", f"{each['n']:,} x {each['d']}", *cells, accuracy])
    if not rows:
        return not_measured("saddle_paper", "figure_1,figure_2")
    head = ["figure, set", "rows", "Saddle-SVC: end, distance", "Newton: end, distance", "NuSVC: first point"]
    return table([*head, "its end, distance", "accuracy"], rows)


def saddle_theorem_7(results: Path) -> str:
    found = section(results, "saddle_paper/results", "theorem_7")
    if not found:
        return not_measured("saddle_paper", "theorem_7")
    rows = []
    for kind, by_axis in found.items():
        for axis, each in by_axis.items():
            ratios = [
                counted / promised for counted, promised in zip(each["operations"], each["promised"], strict=True)
            ]
            cells = [with_error(each["slope"]), number(each["last slope"][0], 2)]
            cells += [number(each[key][0], 2) for key in ("promised slope", "promised slope with logarithms")]
            span = f"{each['values'][0]:g} to {each['values'][-1]:,g}"
            name = "hard margin" if kind == "hard" else "nu, alpha .85"
            rows.append([name, f"{axis}, {span}", *cells, f"{min(ratios):.0f} to {max(ratios):.0f}"])
    head = ["problem", "over", "slope counted", "of the last two", "slope of n (d + sqrt(d / (eps beta)))"]
    return table([*head, "times its logarithms", "counted / promised"], rows)


def saddle_lower_bound(results: Path) -> str:
    found = section(results, "saddle_communication/results", "lower_bound")
    if not found:
        return not_measured("saddle_communication", "growth,lower_bound")
    rows = []
    for who, by_dimension in found["over the bound"].items():
        everything = [ratio for each in by_dimension.values() for ratio in each if ratio is not None]
        meeting = found["d = 1/eps"][who]
        near, slope = meeting["over the bound"], meeting["slope over d"]
        rows.append([who, f"{number(min(everything))} to {number(max(everything))}",
                     f"{number(min(near))} to {number(max(near))}" if near else "-", number(slope, 3)])  # fmt: skip
    head = ["method", "scalars / (k min(d, 1/eps))", "where d = 1/eps", "there, power of d (bound: 1)"]
    return table(head, rows)


# -- the 1-norm paper --------------------------------------------------------------------------------------------------


def l1svm_figure_1_5000(results: Path) -> str:
    found = section(results, "debiased/figure_1_5000", "figure_1_5000")
    if not found:
        return not_measured("debiased", "figure_1_5000")
    return errors_over(found, "M") + sentence_on_te(found) + picture_of(results, "debiased/figure_1_5000")


def l1svm_figure_2_5000(results: Path) -> str:
    found = section(results, "debiased/figure_2_5000", "figure_2_5000")
    if not found:
        return not_measured("debiased", "figure_2_5000")
    return errors_over(found, "N") + picture_of(results, "debiased/figure_2_5000")


def errors_over(found: dict[str, Any], axis: str) -> str:
    """Means of the three errors, one table after the other, and how many repetitions they are of."""
    n = found["repetitions"]
    is_reduced = n < OF_THE_PAPER
    head = [f"*Reduced: {n} repetition{'s' if n > 1 else ''} of {OF_THE_PAPER}.*\n" if is_reduced else ""]
    for what, name in (("l_inf", "l_inf"), ("l2", "l2"), ("prediction", "prediction error")):
        by_who = found["errors"][what]
        settings = list(next(iter(by_who.values())))
        rows = [[who, *(number(mean(each[s]), 4 if what == "prediction" else 3) for s in settings)]
                for who, each in by_who.items()]  # fmt: skip
        head.append(table([name, *(SETTINGS[axis].format(int(s)) for s in settings)], rows))
    return "\n".join(head)


def sentence_on_te(found: dict[str, Any]) -> str:
    means = {
        what: {who: {int(M): mean(values) for M, values in each.items()} for who, each in by_who.items()}
        for what, by_who in found["errors"].items()
    }
    l2, prediction = means["l2"], means["prediction"]
    beaten = [str(M) for M in l2["TE"] if l2["TE"][M] > l2["NAE"][M]]
    spans = [[l2[who][M] / l2["second round"][M] for M in l2[who]] for who in ("NAE", "TE")]
    worse = [str(M) for M in prediction["TE"] if prediction["TE"][M] > prediction["NAE"][M]]
    times = " and ".join(f"{min(span):.1f} to {max(span):.0f} times below {who}'s"
                         for span, who in zip(spans, ("NAE", "TE"), strict=True))  # fmt: skip
    return (
        f"\nIn l2 TE is worse than the average that it corrects at M = {', '.join(beaten) or 'none'}; the error of the "
        f"second round is {times}. The prediction error of TE is above NAE's at M = {', '.join(worse) or 'none'}.\n"
    )


def l1svm_rates(results: Path) -> str:
    found = section(results, "debiased/rates", "rates")
    if not found:
        return not_measured("debiased", "rates")
    rows = []
    for each in found.values():
        for who, one in each["slopes"].items():
            of = f"p = {each['p']:,}, {each['repetitions']} repetitions"
            rows.append([of, who, with_error((one["slope"], one["standard error"])), f"{one['promised']:g}", one["by"]])
    return table(["at", "error", "slope over N", "promised", "by"], rows)


def l1svm_machines(results: Path) -> str:
    found = section(results, "debiased/machines", "machines")
    if not found:
        return not_measured("debiased", "machines")
    sizes = found["settings"]["sizes"]
    rows = [
        [
            f"{factor} times",
            *(number(M, 2) for M in each["largest M"]),
            with_error((each["slope"], each["standard error"])),
        ]
        for factor, each in found["within"].items()
    ]
    head = [f"error within, p = {found['settings']['p']}, {found['repetitions']} repetitions"]
    text = table([*head, *(f"N = {N:,}" for N in sizes), "slope (the paper: up to 1/3)"], rows)
    return text + picture_of(results, "debiased/machines")


def l1svm_tuning(results: Path) -> str:
    found = section(results, "debiased/tuning", "tuning")
    if not found:
        return not_measured("debiased", "tuning")
    machines = [str(M) for M in found["settings"]["machines"]]
    n = found["repetitions"]
    parts = []
    for what, name in (("l_inf", "l_inf"), ("l2", "l2"), ("prediction", "prediction error")):
        rows = [[who, *(number(each[M][0], 4 if what == "prediction" else 3) for M in machines)]
                for who, each in found["means"][what].items()]  # fmt: skip
        parts.append(table([f"{name}, {n} repetitions", *(f"M = {M}" for M in machines)], rows))
    rows = [[what, *(number(each[M], 2) for M in machines)] for what, each in found["chosen"].items()]
    parts.append(table(["mean factor chosen (rules: 1 and .8)", *(f"M = {M}" for M in machines)], rows))
    return "\n".join(parts) + picture_of(results, "debiased/tuning")


def l1svm_times(results: Path) -> str:
    found = section(results, "debiased/times", "times")
    if not found:
        return not_measured("debiased", "times")
    paper = found["paper, hours"]
    rows = []
    for part, each in found["seconds"].items():
        total = sum(each.values())
        hours = total * OF_THE_PAPER / 3600
        is_machine = part == "one machine"
        name = (
            f"one machine of {found['settings']['per_machine']:,} rows"
            if is_machine
            else f"centralised, N = {int(part):,}"
        )
        theirs = paper["distributed"] if is_machine else paper["centralised"]
        cells = [
            number(each.get(key)) for key in ("lambda by CV", "estimate", "estimate and Hessian", "inverse and step")
        ]
        rows.append([name, *cells, number(total), number(hours, 2), " to ".join(f"{hour:g}" for hour in theirs)])
    head = ["processor seconds of a repetition", "lambda by five folds", "estimate", "estimate and Hessian"]
    return table([*head, "inverse and step", "together", "hours of 100", "the paper's hours"], rows)


_TABLES = (
    saddle_table_1, saddle_table_3, saddle_table_4, saddle_figures_1_2, saddle_theorem_7, saddle_lower_bound,
    l1svm_figure_1_5000, l1svm_figure_2_5000, l1svm_rates, l1svm_machines, l1svm_tuning, l1svm_times,
)  # fmt: skip
TABLES: dict[str, Callable[[Path], str]] = {function.__name__: function for function in _TABLES}
