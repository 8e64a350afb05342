"""Do the debiased 1-norm SVM and its intervals keep what they promise? The paper's figures, with what it left out.

    python -m benchmarks.debiased                                            all sections but those of 5,000 features
    python -m benchmarks.debiased --only inverse,figure_1                    some of them; each writes its own file
    python -m benchmarks.debiased --only figure_1_5000 --repetitions 2       ... with another number of repetitions

Sections: the paper's figure_1, figure_1_5000, figure_2, figure_2_5000, table_1, truth; what it claims, and how it tunes
(``benchmarks._debiased_claims``): rates, machines, tuning, times; then coverage, false_discoveries
(``benchmarks._debiased_discoveries``) and inverse. Repetitions run in two processes, one BLAS thread each (2.3 GB each
at p = 5,000, N = 20,000). Every part of a repetition, one number of machines or of rows, is kept in
``SECTION.repetitions.jsonl`` as it ends: a run that was interrupted goes on where it stood, and one with more
repetitions adds to those it finds. At p = 5,000 tables and pictures are made anew whenever a repetition is whole.
``--fresh`` drops them, as is due when the code has changed.

Estimators, all but those of false_discoveries without an intercept as in the paper (``--intercept`` fits one):

    CE                  1-norm SVM of all rows
    NAE                 average of the 1-norm SVMs of M machines
    AE                  average of the debiased ones
    TE                  its largest, as many as the largest 1-norm SVM of a machine has
    TE, z               those over sqrt(2 log p) standard errors of AE
    TE, true Hessian    TE by the inverse of the true Hessian instead of an estimate
    second round        from "TE, z" with the score of all rows, thresholded alike: ``DebiasedSparseSVC(rounds=2)``

Truth is the minimiser of the expected hinge loss of the design (``benchmarks._designs``), not the vector that the paper
prints. Prediction errors are exact probabilities. Penalties are those of the rule, where the paper cross-validates:
section ``tuning`` has both.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks import _debiased_claims as claims
from benchmarks import _debiased_discoveries as discoveries
from benchmarks import _designs as designs
from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks import _kernel_runs as runs
from benchmarks._debiased_runs import SEED, collected, drawn, errors_of, estimates, means_of, settings_of
from benchmarks._harness import Bar
from benchmarks._repetitions import Outcomes, file_of_repetitions, repeated
from benchmarks.sparse import Section, simulated
from widemargin import DebiasedSparseSVC, SparseSVC
from widemargin.comm.solo import Solo
from widemargin.problems import debiasing
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.solvers.column_generation import solved
from widemargin.solvers.inverse_rows import scio_rows
from widemargin.solvers.protocol import Inputs

QUESTION = __doc__
INVERSE_SECONDS, INVERSE_VIOLATION = 10.0, 1e-3  # of the processor; beyond c, relative
MACHINES = (1, 5, 10, 15, 20, 25, 30)
ASKED_AT = 20  # machines
SIZES = (10_000, 20_000, 30_000, 40_000, 50_000)
PER_MACHINE = 5_000  # rows, in Figure 2
LEVEL = 0.95
NULLS, SIGNALS = (0.94, 0.96), 0.90
PAPER_REPETITIONS = 100
LONG = ("figure_1_5000", "figure_2_5000", "times")  # at p = 5,000: run when they are named
REPETITIONS = {"figure_1": 100, "figure_1_5000": 10, "figure_2": 20, "figure_2_5000": 10, "coverage": 200}


OPTIONS: dict[str, Any] = {
    "--repetitions": {"type": int, "help": "data sets of each simulation, in place of the usual number"},
    "--workers": {"type": int, "default": 2, "help": "processes side by side"},
    "--intercept": {"action": "store_true", "help": "fit an intercept, whose true value is 0"},
    "--constraint": {"type": float, "default": 0.8, "help": "c of the inverse, in units of the Hessian's error"},
    "--fresh": {"action": "store_true", "help": "drop repetitions of earlier runs"},
}


def main() -> None:
    chosen = harness.arguments(
        QUESTION, SECTIONS, usual=[name for name in SECTIONS if name not in LONG], options=OPTIONS
    )
    os.environ.update(runs.threads(1))  # for the processes that are started from here
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        report = Section("debiased", name, quick=chosen.quick)
        if chosen.fresh:
            file_of_repetitions(report, name).unlink(missing_ok=True)
        SECTIONS[name](report, chosen)


# -- the inverse -------------------------------------------------------------------------------------------------------


def inverse(report: Section, chosen: Any) -> None:
    """All rows of the inverse of the smoothed Hessian: seconds, and how far the constraint is missed."""
    n, p = (2_000, 300) if report.quick else (20_000, 5_000)
    found: dict[str, Any] = {}
    rows, bars = [], []
    for factors, limit in (((1.0, 0.8), 1_800.0), ((0.6,), 900.0))[: 1 if report.quick else 2]:
        some = runs.in_child(all_rows_of_inverse, n, p, factors, limit=limit)
        found |= some or {f"c = {factor:g} u": None for factor in factors}
        report.add("inverse", found)
    for key, each in found.items():
        is_asked = key.startswith("c = 0.8 u")
        claim = f"p = {p}, all rows at {key}"
        if each is None:
            bars.append(Bar(f"{claim}: CPU seconds", "stated", "> its limit", True))
            continue
        rows.append([key, *each.values()])
        seconds, over = each["cpu_seconds"], each["violation / c - 1"]
        asked = f"<= {INVERSE_SECONDS:g}" if is_asked else "stated"
        bars.append(Bar(f"{claim}: CPU seconds", asked, f"{seconds:.2f}", not is_asked or seconds <= INVERSE_SECONDS))
        is_met = over <= INVERSE_VIOLATION
        bars.append(Bar(f"{claim}: constraint, relative", f"<= {INVERSE_VIOLATION:g}", f"{over:.1e}", is_met))
    harness.show(
        f"All rows of the inverse, p = {p}, n = {n}", ["constraint", *next(filter(None, found.values()))], rows
    )
    report.bars(bars)


def all_rows_of_inverse(n: int, p: int, factors: Sequence[float]) -> dict[str, Any]:
    """Child: the Hessian at the 1-norm SVM of all rows, then its inverse; u by effective rows, and by n h."""
    shard = simulated(n, p)
    start = solved(Inputs(HingeL1("auto", False), shard, Solo(), np.random.default_rng(SEED)), 1e-6, 1_000)
    margins = debiasing.margins_of(shard, start.coef, False)
    h = debiasing.bandwidth(margins, shard.weight)
    making, at = harness.measure_peer(lambda: debiasing.curvature(shard, margins, h, False), repeats=1)
    scio_rows(np.ascontiguousarray(at.correlation[:50, :50]), np.arange(50), 0.2)  # compiles
    constraints = {}
    for factor in factors:
        constraints[f"c = {factor:g} u"] = debiasing.inverse_constraint(p, at.n_effective, factor)
        constraints[f"c = {factor:g} u, u = sqrt(log p / (n h))"] = factor * math.sqrt(math.log(p) / (n * h))
    found = {}
    for key, c in constraints.items():
        timing, rows = harness.measure_peer(lambda c=c: scio_rows(at.correlation, np.arange(p), c), repeats=1)
        product = rows.theta @ at.correlation
        product[np.arange(p), np.arange(p)] -= 1.0
        found[key] = {
            "c": c,
            "seconds": timing.seconds,
            "cpu_seconds": timing.cpu_seconds,
            "violation / c - 1": float(np.abs(product).max() / c - 1),
            "entries a row": rows.theta.nnz / p,
            "rows of one entry": int(np.sum(np.diff(rows.theta.indptr) == 1)),
            "Hessian cpu s": making.cpu_seconds,
        }
    return found


# -- the paper's coefficients ------------------------------------------------------------------------------------------


def truth(report: Section, chosen: Any) -> None:
    """What the paper prints as the true coefficients, beside what minimises the expected loss of its design."""
    design = designs.Paper(designs.N_SIGNALS)
    nearest = minimize_scalar(
        lambda rho: float(np.linalg.norm(designs.Paper(designs.N_SIGNALS, rho).coef - designs.PRINTED)),
        bounds=(0.0, 0.5),
        method="bounded",
    )
    found: dict[str, Any] = {"nearest rho": float(nearest.x), "distance there": float(nearest.fun)}
    rows = []
    for who, coef in (("the paper prints", designs.PRINTED), ("minimises", design.coef)):
        loss, gradient = design.expected_loss(coef)
        found[who] = {"coef": coef, "loss": loss, "gradient": float(np.abs(gradient).max())}
        rows.append([who, " ".join(f"{value:.4f}" for value in coef), loss, found[who]["gradient"]])
    report.add("truth", found)
    harness.show("Expected hinge loss, off-diagonals 0.2", ["who", "coefficients", "loss", "largest slope"], rows)
    print(f"The printed coefficients are nearest to those of off-diagonals {nearest.x:.3f}: {nearest.fun:.4f} away.")
    slope = found["minimises"]["gradient"]
    report.bars([Bar("largest slope at our coefficients", "<= 1e-9", f"{slope:.0e}", slope <= 1e-9)])


# -- Table 1 -----------------------------------------------------------------------------------------------------------


def table_1(report: Section, chosen: Any) -> None:
    """The 1-norm of the inverse of E[x x' | x'b = 1], beside what the paper prints."""
    found, rows, worst = {}, [], 0.0
    for case, printed in designs.TABLE_1.items():
        sizes = [p for p in printed if not report.quick or p <= 500]
        found[case] = {str(p): designs.norm_of_inverse(case, p) for p in sizes}
        worst = max([worst, *(abs(found[case][str(p)] - printed[p]) for p in sizes)])
        rows.append([case, *found[case].values()])
        rows.append(["  the paper", *(printed[p] for p in sizes)])
    report.add("table_1", found)
    harness.show("Table 1", ["case", *(f"p = {p}" for p in sizes)], rows)
    report.bars([Bar("Table 1: largest difference", "<= 5e-4, as printed", f"{worst:.1e}", worst <= 5e-4)])


# -- Figure 1 ----------------------------------------------------------------------------------------------------------


def figure_1(report: Section, chosen: Any) -> None:
    """Errors over the number of machines, p = 500."""
    over_machines(report, chosen, "figure_1", 500, MACHINES)


def figure_1_5000(report: Section, chosen: Any) -> None:
    """... and p = 5,000."""
    over_machines(report, chosen, "figure_1_5000", 5_000, MACHINES)


def over_machines(report: Section, chosen: Any, name: str, p: int, machines: Sequence[int]) -> None:
    n = 20_000
    if report.quick:
        p, n, machines = 50, 4_000, (1, 5)
    settings = settings_of(chosen, "paper", p, n)

    def write(outcomes: Outcomes) -> None:
        with_centralised = [
            {M: {"errors": {"CE": outcome["1"]["errors"]["NAE"], **each["errors"]}} for M, each in outcome.items()}
            for outcome in outcomes
        ]
        errors = collected(with_centralised, machines)
        title = f"p = {p}, N = {n:,}, {number_of(outcomes, p)}"
        found = {"settings": {**settings, "machines": list(machines)}, "repetitions": len(outcomes)}
        cpu_seconds = {str(M): [outcome[str(M)]["cpu_seconds"] for outcome in outcomes] for M in machines}
        report.add(name, {**found, "means": means_of(errors), "errors": errors, "cpu_seconds": cpu_seconds})
        show_errors(report, name, title, "M", machines, errors)
        report.bars(figure_1_bars(errors, ASKED_AT if ASKED_AT in machines else machines[-1], p))
        figures.draw_errors(report, name, f"Figure 1: {title}", "machines", machines, errors)

    repeat(report, chosen, name, settings, machines, errors_at_machines, write)


def repeat(
    report: Section, chosen: Any, name: str, settings: dict[str, Any], parts: Sequence[int], job: Any, write: Any
) -> None:
    """All repetitions; what they say is written at the end, and at p = 5,000 whenever another one is whole."""
    n_repetitions = chosen.repetitions or (2 if report.quick else REPETITIONS[name])
    meanwhile = write if settings["p"] > 1_000 else None
    write(repeated(report, name, settings, parts, job, n_repetitions, chosen.workers, meanwhile=meanwhile))


def number_of(outcomes: Outcomes, p: int) -> str:
    """How many repetitions there are, and where the paper has more."""
    n = len(outcomes)
    return (
        f"reduced: {n} repetitions of {PAPER_REPETITIONS}"
        if p == 5_000 and n < PAPER_REPETITIONS
        else (f"{n} repetitions")
    )


def errors_at_machines(settings: dict[str, Any], number: int, n_machines: int) -> dict[str, Any]:
    """Worker: all estimators of so many machines. CE is the 1-norm SVM of one machine."""
    design, X, y = drawn(settings, number, settings["n"])
    begin = time.process_time()
    found = estimates(X, y, n_machines, settings, design)
    seconds = time.process_time() - begin
    return {"errors": {who: errors_of(coef, design) for who, coef in found.items()}, "cpu_seconds": seconds}


def figure_1_bars(errors: dict[str, Any], at: int, p: int) -> list[Bar]:
    """Those asked for, at p = 500; else the same, stated."""

    def mean(what: str, who: str, n_machines: int) -> float:
        return float(np.mean(errors[what][who][str(n_machines)]))

    second = mean("l2", "second round", at)
    measured = {
        f"p = {p}, M = {at}: l2 of the second round / CE's": (second / mean("l2", "CE", at), 0.5),
        f"p = {p}, M = {at}: l_inf of the second round / NAE's": (
            mean("l_inf", "second round", at) / mean("l_inf", "NAE", at),
            0.15,
        ),
        f"p = {p}: l2 of the second round, M = {at} / M = 1": (second / mean("l2", "second round", 1), 1.15),
    }
    is_asked = p == 500
    return [
        Bar(
            claim,
            f"<= {most:g}" if is_asked else f"stated (<= {most:g})",
            f"{value:.3f}",
            not is_asked or value <= most,
        )
        for claim, (value, most) in measured.items()
    ]


# -- Figure 2 ----------------------------------------------------------------------------------------------------------


def figure_2(report: Section, chosen: Any) -> None:
    """Errors over the number of rows, the same number on each machine, p = 500."""
    over_rows(report, chosen, "figure_2", 500)


def figure_2_5000(report: Section, chosen: Any) -> None:
    """... and p = 5,000."""
    over_rows(report, chosen, "figure_2_5000", 5_000)


def over_rows(report: Section, chosen: Any, name: str, p: int) -> None:
    sizes, per_machine = SIZES, PER_MACHINE
    if report.quick:
        p, sizes, per_machine = 50, (2_000, 4_000), 1_000
    settings = settings_of(chosen, "paper", p, sizes[-1]) | {"per_machine": per_machine}

    def write(outcomes: Outcomes) -> None:
        errors = collected(outcomes, sizes)
        title = f"p = {p}, {per_machine:,} rows a machine, {number_of(outcomes, p)}"
        found = {"settings": {**settings, "sizes": list(sizes)}, "repetitions": len(outcomes)}
        cpu_seconds = {
            who: {str(N): [outcome[str(N)]["cpu_seconds"][who] for outcome in outcomes] for N in sizes}
            for who in ("CE", "divided")
        }
        report.add(name, {**found, "means": means_of(errors), "errors": errors, "cpu_seconds": cpu_seconds})
        show_errors(report, name, title, "N", sizes, errors)
        figures.draw_errors(report, name, f"Figure 2: {title}", "N", sizes, errors)

    repeat(report, chosen, name, settings, sizes, errors_at_rows, write)


def errors_at_rows(settings: dict[str, Any], number: int, size: int) -> dict[str, Any]:
    """Worker: all estimators of the first rows, so that each size has those of the smaller ones."""
    design, X, y = drawn(settings, number, settings["n"])
    X, y = X[:size], y[:size]
    begin = time.process_time()
    whole = SparseSVC(fit_intercept=settings["intercept"]).fit(X, y).coef_[0]
    middle = time.process_time()
    several = estimates(X, y, size // settings["per_machine"], settings, design)
    seconds = {"CE": middle - begin, "divided": time.process_time() - middle}
    each = {who: errors_of(coef, design) for who, coef in {"CE": whole, **several}.items()}
    return {"errors": each, "cpu_seconds": seconds}


# -- tables of errors --------------------------------------------------------------------------------------------------


def show_errors(
    report: Section, name: str, title: str, axis: str, settings: Sequence[int], errors: dict[str, Any]
) -> None:
    """Means over repetitions, on the screen and as a page."""
    head = ["who", *(f"{axis} = {s:,}" for s in settings)]
    pages = []
    for what, text in {**figures.ERRORS, "n_selected": "coefficients kept", "n_true": "true ones among them"}.items():
        rows = [[who, *(float(np.mean(values[str(s)])) for s in settings)] for who, values in errors[what].items()]
        text = text.replace("$", "").replace("\\infty", "inf")
        harness.show(f"{title}: mean {text}", head, rows)
        pages.append(harness.markdown(f"Mean {text} ({title})", head, rows))
    (report.folder / f"{name}.md").write_text("\n".join(pages), encoding="utf8")


# -- coverage ----------------------------------------------------------------------------------------------------------


def coverage(report: Section, chosen: Any) -> None:
    """How often 95% intervals after the second round hold the true coefficient."""
    p, n, machines = (50, 4_000, [1, 5]) if report.quick else (500, 20_000, [1, 10])
    found: dict[str, Any] = {}
    for design in designs.DESIGNS:
        settings = settings_of(chosen, design, p, n)
        n_repetitions = chosen.repetitions or (2 if report.quick else REPETITIONS["coverage"])
        outcomes = repeated(report, "coverage", settings, machines, covered, n_repetitions, chosen.workers)
        for n_machines in machines:
            each = summed_up([outcome[str(n_machines)] for outcome in outcomes])
            each |= {"coef": designs.make(design, p).coef[: designs.N_SIGNALS].tolist()}
            found[f"{design}, M = {n_machines}"] = each
        report.add("coverage", found)
    rows, bars = [], []
    for key, each in found.items():
        signals = float(np.mean(each["signals"]))
        apart = " ".join(f"{value:.3f}" for value in each["signals"])
        widths = [each["width_nulls"], each["width_signals"]]
        bias = " ".join(f"{value:+.2f}" for value in each["z_mean"])
        rows.append([key, each["repetitions"], each["nulls"], signals, apart, *widths, bias, each["z_sd_nulls"]])
        if report.quick:  # two repetitions tell nothing of a share of .95
            continue
        asked = f"{NULLS[0]:g} to {NULLS[1]:g}"
        is_met = NULLS[0] <= each["nulls"] <= NULLS[1]
        bars.append(Bar(f"{key}: coverage of nulls", asked, f"{each['nulls']:.4f}", is_met))
        bars.append(Bar(f"{key}: coverage of signals, mean", f">= {SIGNALS:g}", f"{signals:.3f}", signals >= SIGNALS))
    head = ["design", "repetitions", "nulls", "signals", "each signal", "width, nulls", "width, signals"]
    head += ["bias in standard errors", "sd of z, nulls"]
    title = f"Coverage of {100 * LEVEL:g}% intervals, p = {p}, N = {n:,}"
    harness.show(title, head, rows)
    (report.folder / "coverage.md").write_text(harness.markdown(title, head, rows), encoding="utf8")
    report.bars(bars)
    figures.draw_coverage(report, found, LEVEL)


def covered(settings: dict[str, Any], number: int, n_machines: int) -> dict[str, Any]:
    """Worker: intervals of one data set."""
    design, X, y = drawn(settings, number, settings["n"])
    truth, k, begin = design.coef, designs.N_SIGNALS, time.process_time()
    model = DebiasedSparseSVC(
        cluster=n_machines, confidence=LEVEL, fit_intercept=settings["intercept"], constraint=settings["constraint"]
    ).fit(X, y)
    lower, upper = model.coef_interval_[0].T
    is_inside = (lower <= truth) & (truth <= upper)
    z = (model.coef_debiased_[0] - truth) / model.standard_error_[0]
    return {
        "signals": is_inside[:k].tolist(),
        "nulls": float(is_inside[k:].mean()),
        "width_signals": (upper - lower)[:k].tolist(),
        "width_nulls": float((upper - lower)[k:].mean()),
        "z_signals": z[:k].tolist(),
        "z_square_nulls": float(np.mean(z[k:] ** 2)),
        "n_selected": int(model.selected_.sum()),
        "cpu_seconds": time.process_time() - begin,
    }


def summed_up(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over repetitions. ``z`` is an error by its standard error: its mean tells a bias, its spread a width."""
    gathered = {what: np.array([outcome[what] for outcome in outcomes], dtype=float) for what in outcomes[0]}
    return {
        "repetitions": len(outcomes),
        "nulls": float(gathered["nulls"].mean()),
        "signals": gathered["signals"].mean(axis=0).tolist(),
        "width_nulls": float(gathered["width_nulls"].mean()),
        "width_signals": float(gathered["width_signals"].mean()),
        "z_mean": gathered["z_signals"].mean(axis=0).tolist(),
        "z_sd": gathered["z_signals"].std(axis=0).tolist(),
        "z_sd_nulls": math.sqrt(float(gathered["z_square_nulls"].mean())),
        "n_selected": float(gathered["n_selected"].mean()),
        "cpu_seconds": float(np.median(gathered["cpu_seconds"])),
    }


SECTIONS = {
    "figure_1": figure_1,
    "figure_1_5000": figure_1_5000,
    "figure_2": figure_2,
    "figure_2_5000": figure_2_5000,
    "table_1": table_1,
    "truth": truth,
    "rates": claims.rates,
    "machines": claims.machines,
    "tuning": claims.tuning,
    "times": claims.times,
    "coverage": coverage,
    "false_discoveries": discoveries.false_discoveries,
    "inverse": inverse,
}

if __name__ == "__main__":
    main()
