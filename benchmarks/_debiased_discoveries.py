"""Of the features that DebiasedSparseSVC calls effects, how many have none?

false_discoveries   data sets of p = 500 features of which five have an effect, three designs; of each the table that
                    ``summary()`` returns, with its defaults. Among the features whose p-value adjusted by Benjamini and
                    Hochberg is at most q = .10 (and .05), the share without an effect: its mean is to be at most q but
                    for twice its standard error. By Holm at .10: how often any of those found has no effect.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from benchmarks import _designs as designs
from benchmarks import _harness as harness
from benchmarks._debiased_runs import drawn, mean_and_error
from benchmarks._harness import Bar
from benchmarks._repetitions import repeated
from benchmarks.sparse import Section
from widemargin import DebiasedSparseSVC

N_FEATURES = 500
SIZES = {1: (2_000, 5_000, 10_000), 5: (5_000,)}  # rows in total, by the number of machines
LEVELS = (0.10, 0.05)
N_REPETITIONS = 200


def false_discoveries(report: Section, chosen: Any) -> None:
    """The share of false ones among the features found, over simulations."""
    p, sizes = (50, {1: (2_000,), 2: (2_000,)}) if report.quick else (N_FEATURES, SIZES)
    n_repetitions = chosen.repetitions or (2 if report.quick else N_REPETITIONS)
    found: list[dict[str, Any]] = []
    for n_machines, few in sizes.items():
        for design in designs.DESIGNS:
            settings = {"design": design, "p": p, "machines": n_machines}
            outcomes = repeated(report, "false_discoveries", settings, few, discovered, n_repetitions, chosen.workers)
            for n in few:
                found.append({**settings, "n": n, **summed_up([outcome[str(n)] for outcome in outcomes])})
            report.add("false_discoveries", found)
    show(report, found)


def discovered(settings: dict[str, Any], number: int, n: int) -> dict[str, Any]:
    """Worker: what is found in one data set, and how much of it is false; the first features have an effect."""
    _, X, y = drawn(settings, number, n)
    begin = time.process_time()
    columns = DebiasedSparseSVC(cluster=settings["machines"]).fit(X, y).summary(sort=False).columns
    seconds = time.process_time() - begin
    rules = {f"BH {level:g}": columns["BH"] <= level for level in LEVELS}
    rules |= {f"Holm {LEVELS[0]:g}": columns["Holm"] <= LEVELS[0], "selected": columns["selected"]}
    k = designs.N_SIGNALS
    counts = {rule: [int(is_found.sum()), int(is_found[k:].sum())] for rule, is_found in rules.items()}
    return {"found, false": counts, "cpu_seconds": seconds}


def summed_up(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """For each rule means over data sets, with standard errors where these are asked for."""
    rules = {}
    for rule in outcomes[0]["found, false"]:
        found, wrong = np.array([outcome["found, false"][rule] for outcome in outcomes], dtype=float).T
        rules[rule] = {
            "false share": mean_and_error((wrong / np.maximum(found, 1)).tolist()),
            "any false": mean_and_error((wrong > 0).astype(float).tolist()),
            "effects found": float(np.mean(found - wrong)),
        }
    seconds = float(np.median([outcome["cpu_seconds"] for outcome in outcomes]))
    return {"repetitions": len(outcomes), "rules": rules, "cpu_seconds": seconds}


def show(report: Section, found: list[dict[str, Any]]) -> None:
    """The table on the screen and as a page, and the bars."""
    rows, bars = [], []
    for each in found:
        machines = f", {each['machines']} machines" if each["machines"] > 1 else ""
        name = f"{each['design']}, n = {each['n']:,}{machines}"
        by_rule = each["rules"]
        shares = [with_error(by_rule[f"BH {level:g}"]["false share"]) for level in LEVELS]
        holm, kept = by_rule[f"Holm {LEVELS[0]:g}"], by_rule["selected"]
        rows.append(
            [
                name,
                each["repetitions"],
                *shares,
                f"{by_rule[f'BH {LEVELS[0]:g}']['effects found']:.2f}",
                with_error(holm["any false"]),
                f"{holm['effects found']:.2f}",
                with_error(kept["false share"]),
                f"{kept['effects found']:.2f}",
            ]
        )
        if report.quick:  # two repetitions tell nothing of a share
            continue
        claims = [
            (f"false share by BH at {level:g}", by_rule[f"BH {level:g}"]["false share"], level) for level in LEVELS
        ]
        claims.append((f"runs with a false one by Holm at {LEVELS[0]:g}", holm["any false"], LEVELS[0]))
        for claim, (mean, error), level in claims:
            least = mean - 2 * error
            bars.append(
                Bar(f"{name}: {claim}, mean less two standard errors", f"<= {level:g}", f"{least:.4f}", least <= level)
            )
    head = ["design", "data sets", "false, BH .10", "false, BH .05", "of 5 effects, BH .10", "any false, Holm .10"]
    head += ["of 5 effects, Holm", "false, selected", "of 5 effects, selected"]
    title = f"False discoveries, p = {found[0]['p']}"
    harness.show(title, head, rows)
    (report.folder / "false_discoveries.md").write_text(harness.markdown(title, head, rows), encoding="utf8")
    report.bars(bars)


def with_error(mean_and_its_error: tuple[float, float | None]) -> str:
    mean, error = mean_and_its_error
    return f"{mean:.3f} ± {math.nan if error is None else error:.3f}"
