"""Tables of the pages of the batch perceptron and of GADGET, from the JSON that benchmarks wrote.

Each function takes the folder of results and returns Markdown; what has not been measured is said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, pvariance
from typing import Any

from tools.result_tables import load, number, percent, table

_NOT_MEASURED = "Not measured in this checkout.\n"


def loaded(results: Path, name: str, key: str) -> Any:
    """A section of a file; nothing where it has not been measured."""
    try:
        return load(results, name).get(key)
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def spans(values: Sequence[float], digits: int = 3) -> str:
    """The lowest and the highest, or the one value."""
    low, high = number(min(values), digits), number(max(values), digits)
    return low if low == high else f"{low} to {high}"


# -- the batch perceptron ----------------------------------------------------------------------------------------------

_SBP = ("SBP as written", "SBP", "SMO", "Pegasos", "SDCA", "Perceptron")


def n_runs(each: dict[str, Any]) -> str:
    """How many runs of how many epochs a set of Figure 2 has, and whether they are fewer than the paper's."""
    bounds, counts = each.get("bounds") or {}, [len(runs) for who, runs in each["runs"].items() if who != "SMO"]
    epochs, n = bounds.get("epochs"), f"{min(counts)}" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    text = f"{n} run{'s' * (n != '1')}" + ("" if epochs is None else f" of {epochs} epoch{'s' * (epochs != 1)}")
    return text if (epochs, n) == (10, "10") else f"reduced: {text}"


def sbp_figure_2(results: Path) -> str:
    """Kernel evaluations over n^2 to half a point, and how many runs and epochs there were."""
    found = load(results, "kernel/figure_2")["figure_2"]
    rows = [
        [who, *(number(each["within"].get(who, {}).get("0.5"), 2) for each in found.values())]
        for who in _SBP
        if any(who in each["runs"] for each in found.values())
    ]
    return table(["method", *(f"{name}, {n_runs(each)}" for name, each in found.items())], rows)


def sbp_first(results: Path) -> str:
    """Who is first within half a point, and what batches cost beside single rows."""
    rows = []
    for name, each in load(results, "kernel/figure_2")["figure_2"].items():
        within = {who: cells["0.5"] for who, cells in each["within"].items() if cells["0.5"] is not None}
        single, batches = (within.get(who) for who in ("SBP as written", "SBP"))
        ratio = "-" if None in (single, batches) else f"{number(batches / single, 2)} times"
        rivals = [single < within[who] if who in within else True for who in ("Pegasos", "SDCA")] if single else []
        verdict = "-" if single is None else "yes" if all(rivals) else "no"
        rows.append([name, min(within, key=within.__getitem__) if within else "-", verdict, ratio])
    return table(["set", "first", "SBP as written before Pegasos and SDCA", "batches beside single rows"], rows)


def sbp_perceptron(results: Path) -> str:
    """Test error of the Perceptron and of SBP as written after epochs: medians of runs, lowest and highest."""
    rows = []
    for name, each in load(results, "kernel/figure_2")["figure_2"].items():
        for who in ("Perceptron", "SBP as written"):
            cells = []
            for epochs in (0.1, 1, 3, 10, 100):
                errors = [after(run, epochs * each["n"]) for run in each["runs"].get(who, [])]
                known = [100 * error for error in errors if error is not None]
                is_known = known and len(known) == len(errors)
                cells.append(f"{median(known):.2f} ({min(known):.2f} to {max(known):.2f})" if is_known else "-")
            rows.append([name, who, *cells])
    return table(["set", "method", "a tenth of an epoch", "1", "3", "10", "100"], rows)


def sbp_on_the_way(results: Path) -> str:
    """Adult: test error of single iterates after parts of an epoch, medians of runs, lowest and highest."""
    each = load(results, "kernel/figure_2")["figure_2"]["adult"]
    shares = (0.05, 0.1, 0.5, 1, 10)
    rows = []
    for who in ("SDCA", "Pegasos", "Perceptron", "SMO", "SBP as written"):
        cells = []
        for share in shares:
            errors = [after(run, share * each["n"]) for run in each["runs"][who]]
            known = [100 * error for error in errors if error is not None]
            span = f" ({min(known):.1f} to {max(known):.1f})" if len(known) > 1 else ""
            cells.append(f"{median(known):.1f}{span}" if known else "ended")
        rows.append([who, *cells])
    return table(["draws / n", *(f"{share:g}" for share in shares)], rows)


def after(run: list[dict[str, float]], draws: float) -> float | None:
    """The error at the first point with so many draws, 2% at most under them."""
    return next((point["test_error"] for point in run if point["draws"] >= 0.98 * draws), None)


def sbp_table_1(results: Path) -> str:
    """The bounds at eps = .01 beside what was needed, in units of n^2."""
    rows = []
    for name, each in (loaded(results, "kernel/table_1", "table_1") or {}).items():
        for key, (bound, promise, nearly) in each["methods"].items():
            who, eps = key.split(", eps ")
            if eps == "0.01":
                rows.append([name, who, *(number(value, 3) for value in (bound, promise, nearly))])
    return table(["set", "method", "bound", "until an error of L(u) + .01", "of u's error + .01"], rows)


def sbp_figure_3(results: Path) -> str:
    """Test error of Fourier features by their number, and that of SBP at the same number of inner products."""
    found, of_figure_2 = load(results, "kernel/figure_3")["figure_3"], load(results, "kernel/figure_2")["figure_2"]
    rows = []
    for name, each in found.items():
        fourier, n = each["runs"]["Fourier features"], each["n"]
        for k, points in enumerate(zip(*fourier, strict=False)):
            cost = points[0]["kernel_evaluations"]
            if k % 2 and k < len(fourier[0]) - 1:  # every other one, and the last
                continue
            errors = [point["test_error"] for point in points]
            runs = of_figure_2.get(name, each)["runs"]
            cells = [of_sbp(runs.get(who, []), cost) for who in ("SBP", "SBP as written")]
            rows.append([name, f"{cost // n:,}", f"{cost:.1e}", f"{percent(mean(errors))} of {len(errors)}", *cells])
    return table(["set", "features", "inner products", "Fourier features", "SBP, in batches", "SBP as written"], rows)


def of_sbp(runs: list[list[dict[str, float]]], cost: float) -> str:
    """The mean error of runs that have got so far, at this cost."""
    errors = []
    for run in runs:
        known = [point["test_error"] for point in run if point["kernel_evaluations"] <= cost]
        errors += known[-1:]
    return f"{percent(mean(errors))} of {len(errors)}" if errors else "-"


def sbp_table_2(results: Path) -> str:
    """The problems of Table 2 solved; what was cut short says so."""
    found = load(results, "kernel/table_2")["table_2"]
    rows = []
    for name, methods in found.items():
        for who, each in methods.items():
            cells = [percent(each["test_error"]), f"{each['n_support']:,}", number(each["seconds"], 2)]
            slack = number(each["slack_"], 3) if "slack_" in each else "-"
            evaluations = number(each.get("kernel_evaluations / n^2"), 2)
            rows.append([f"`{name}`", who, *cells, evaluations, slack, each.get("note") or ""])
    return table(["set", "who", "error", "SV", "seconds", "K / n^2", "slack_", ""], rows)


def sbp_times(results: Path) -> str:
    """SBP beside a quarter of LIBSVM's time."""
    rows = []
    for name, each in (loaded(results, "kernel/table_2", "times") or {}).items():
        (theirs, error), (seconds, ours), paper = each["LIBSVM"], each["SBP"], each["paper"]
        source = "" if each["is LIBSVM's measured here"] else " (the paper's)"
        rows.append(
            [
                f"`{name}`",
                f"{percent(error)}, {number(theirs)} s{source}",
                f"{percent(ours)}, {number(seconds)} s: {number(seconds / theirs, 2)} of it",
                f"{100 * (ours - error):+.2f}",
                f"{100 * (paper[2] - paper[1]):+.2f}",
                "yes" if each["is in a quarter of the time"] else "no",
                "yes" if each["is as near as the paper's"] else "no",
                each.get("note") or "",
            ]
        )
    head = ["set", "LIBSVM", "SBP, ended by itself", "points over LIBSVM", "the paper's", "in a quarter of the time"]
    return table([*head, "as near as the paper's", ""], rows) if rows else _NOT_MEASURED


# -- GADGET ------------------------------------------------------------------------------------------------------------


def gadget_table_3(results: Path) -> str:
    """GADGET's Tables 3 and 4: accuracy and its deviation, the true gap, and how many trials the rule ended."""
    rows = []
    for name, methods in load(results, "gossip_paper/table_3")["table_3"].items():
        for who, trials in methods.items():
            within = [mean(one["accuracy"]) for one in trials]
            nodes = mean(pvariance(one["accuracy"]) for one in trials)
            deviation = (nodes + pvariance(within)) ** 0.5
            ended = f"{sum(one['has_stopped'] for one in trials)} of {len(trials)}"
            steps = f"{mean(one['steps'] for one in trials):,.0f}"
            cells = [f"{100 * mean(within):.2f} ± {100 * deviation:.2f}", number(mean(one["gap"] for one in trials))]
            rows.append([name, who, *cells, steps, ended])
    return table(["set", "who", "accuracy, %", "true gap", "steps", "ended by its rule"], rows)


def gadget_verdicts(results: Path) -> str:
    """Points of accuracy beside rivals, and whether that is comparable."""
    rows = []
    for each in loaded(results, "gossip_paper/table_3", "verdicts") or []:
        cells = [
            f"{each[who]:+.2f}: {each['verdict'][who]}" for who in ("paper", "GADGET", "GADGET as printed", "GossipSVC")
        ]
        rows.append([f"{each['set']}, {each['trials']} trials", each["rival"], *cells])
    head = ["set", "beside", "the paper's GADGET", "GADGET with its indicator", "as printed", "`GossipSVC`"]
    return table(head, rows) if rows else _NOT_MEASURED


def gadget_table_5(results: Path) -> str:
    """Seconds with loading, and the speed-up of equation (25)."""
    rows = []
    for name, each in load(results, "gossip_paper/table_5")["table_5"].items():
        times = [f"{number(value)} ± {number(off, 2)}" for value, off in each["seconds"].values()]
        theirs = each["paper"]
        rows.append([name, *times, number(each["speed-up"], 2), number(theirs[0] / theirs[1], 2)])
    return table(["set", "GADGET, s", "Pegasos, s", "speed-up (25)", "the paper's"], rows)


def gadget_times(results: Path) -> str:
    """What the paper says of seconds, by its own tables and by ours."""
    trained = loaded(results, "gossip_paper/table_3", "table_3") or {}
    read = loaded(results, "gossip_paper/table_5", "table_5") or {}
    sizes = loaded(results, "gossip_paper/table_2", "table_2") or {}
    if not trained:
        return _NOT_MEASURED
    seconds = {
        name: {who: mean(mean(one["seconds"]) for one in trials) for who, trials in methods.items()}
        for name, methods in trained.items()
    }
    n = len(seconds)

    def where(*order: str) -> list[str]:
        """Sets on which the first takes least, the second more and so on."""
        return [name for name, of in seconds.items() if all(of[a] < of[b] for a, b in pairwise(order))]

    def times(one: str, other: str) -> str:
        return spans([of[one] / of[other] for of in seconds.values()], 2)

    central = where("Pegasos", "GADGET")
    rows = [
        ["Pegasos on all rows is often faster than GADGET, without loading", "on 6 of 6", verdict(len(central), n, 0.5),
         f"on {len(central)} of {n}; GADGET takes {times('GADGET', 'Pegasos')} times as long"],
    ]  # fmt: skip
    if read:
        faster = [name for name, each in read.items() if each["speed-up"] < 1]
        text = f"on {len(faster)} of {len(read)}; its seconds are {spans([each['speed-up'] for each in read.values()])}"
        claim = "with loading, GADGET is faster (Appendix B)"
        rows.append([claim, "on 4 of 7", verdict(len(faster), len(read), 4 / 7), f"{text} of Pegasos's"])
        many = [name for name in read if sizes.get(name, {}).get("here") and rows_a_feature(sizes[name]["here"]) > 10]
        right = [name for name in many if name in faster]
        text = ", ".join(
            f"{name} {number(rows_a_feature(sizes[name]['here']))}: {number(read[name]['speed-up'], 3)}"
            for name in read if sizes.get(name, {}).get("here")
        )  # fmt: skip
        said = "on 4 of 5 with over ten rows a feature, not on Webspam"
        cell = f"on {len(right)} of {len(many)}; rows a feature, and the speed-up: {text}"
        rows.append(["... where rows far outnumber features", said, verdict(len(right), len(many)), cell])
    sgd, perf = where("SVM-SGD", "GADGET"), [
        name for name in where("GADGET", "SVM-Perf") if name in where("SVM-SGD", "SVM-Perf")
    ]  # fmt: skip
    rows += [
        ["SVM-SGD is faster than GADGET", "on 2 of 6", verdict(len(sgd), n),
         f"on {len(sgd)} of {n}; GADGET takes {times('GADGET', 'SVM-SGD')} times as long"],
        ["SVM-Perf takes longer than both", "on 1 of 6", verdict(len(perf), n),
         f"on {len(perf)} of {n}; {times('SVM-Perf', 'GADGET')} times GADGET's"],
    ]  # fmt: skip
    return table(["the paper's text", "its own tables", "here", "measured"], rows)


def rows_a_feature(size: Sequence[float]) -> float:
    return size[0] / size[2]


def verdict(n_yes: int, n: int, share: float = 1.0) -> str:
    """Whether a claim holds on that share of the sets."""
    return "-" if not n else "yes" if n_yes >= share * n else "no"


def gadget_slopes(results: Path) -> str:
    """The factor by which a round of Push-Sum shrinks the consensus error, beside that of B."""
    rows = []
    for name, shapes in (loaded(results, "gossip_paper/theorem_1", "theorem_1") or {}).items():
        for shape, each in shapes.items():
            promised = [one["factor of B"] for one in each["decay"]]
            cells = [
                f"{spans([one[who]['factor'] for one in each['decay']], 2)}"
                for who in ("all neighbours", "one at random")
            ]
            straight = max(
                one[who]["correlation"] for one in each["decay"] for who in ("all neighbours", "one at random")
            )
            rows.append([name, shape, spans(promised), *cells, f"{straight:.3f}"])
    head = ["set", "network", "promised: second eigenvalue of B", "shares for all neighbours", "one at random"]
    return table([*head, "correlation at most"], rows) if rows else _NOT_MEASURED


def gadget_theorem_1(results: Path) -> str:
    """Theorem 1's inequality along runs with so many rounds a step."""
    rows = []
    for name, shapes in (loaded(results, "gossip_paper/theorem_1", "theorem_1") or {}).items():
        for shape, each in shapes.items():
            for n, one in each["inequality"].items():
                counts = [value for key, value in one.items() if key not in ("steps", "bound / error, median")]
                rows.append(
                    [name, shape, n, *map(str, [one["steps"], *counts]), number(one["bound / error, median"], 2)]
                )
    head = ["set", "network", "rounds", "steps", "error over the bound", "losses differ by more than R epsilon / N"]
    head += ["Push-Sum of losses off by more than epsilon_2", "bound / error, median"]
    return table(head, rows) if rows else _NOT_MEASURED


_TABLES = (
    sbp_table_1, sbp_table_2, sbp_times, sbp_figure_2, sbp_first, sbp_perceptron, sbp_on_the_way, sbp_figure_3,
    gadget_table_3, gadget_verdicts, gadget_times, gadget_table_5, gadget_slopes, gadget_theorem_1,
)  # fmt: skip
TABLES: dict[str, Callable[[Path], str]] = {function.__name__: function for function in _TABLES}
