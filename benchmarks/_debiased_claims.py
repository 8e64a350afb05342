"""What does the paper of the debiased 1-norm SVM claim beyond its figures, and what does its tuning change?

tuning      lambda and C b_n by five-fold cross-validation at each machine, beside the rules that are the default, at
            p = 500. lambda: the least hinge loss on held-out rows. The paper does not say by which loss C b_n is
            chosen; both that come to mind are there: the inverse's own, sum_j theta_j'H theta_j / 2 - theta_jj with H
            of held-out rows, and the hinge loss of the debiased estimate on them.
rates       Theorem 2, Corollary 1, Theorem 3: slopes of errors over N, from what figure_2 and figure_2_5000 have left
machines    Remark 1: the largest number of machines up to which AE's error is within a factor of that of one machine,
            and how it grows with N / log p
times       processor seconds of the centralised estimate and of one machine's part, p = 5,000
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import KFold

from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks._debiased_runs import SEED, collected, drawn, errors_of, mean_and_error, means_of, settings_of
from benchmarks._harness import Bar
from benchmarks._repetitions import Outcomes, repeated
from benchmarks.sparse import Section
from widemargin import SparseSVC, sparse_svc_path
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.problems import debiasing
from widemargin.problems.debiasing import Curvature
from widemargin.problems.hinge_l1 import HingeL1, auto_alpha, typical_scale
from widemargin.solvers.column_generation import solved
from widemargin.solvers.inverse_rows import scio_rows
from widemargin.solvers.protocol import Inputs

FOLDS = 5
PENALTIES = tuple(np.geomspace(2.0, 0.4, 9))  # times the rule's
CONSTRAINTS = (0.4, 0.55, 0.8, 1.1, 1.5, 2.2, 3.2)  # in units of the Hessian's error; the rule's is 0.8
RULE = 0.8
TUNED_MACHINES = (1, 5, 10, 15, 20, 25, 30)
PAPER_HOURS = {"distributed": (2.0,), "centralised": (4.0, 29.0)}  # for 100 repetitions
REPETITIONS = {"tuning": 20, "machines": 20, "times": 2}

GROWING = (5_000, 10_000, 20_000, 40_000, 80_000, 160_000)  # rows, for Remark 1
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # machines
FEWEST_ROWS = 200  # of a machine
WITHIN = (1.25, 1.5, 2.0)  # times the error of one machine
TIMED_SIZES = (10_000, 20_000, 30_000, 40_000, 50_000)
TIMED_ROWS = 5_000  # of a machine
CENTRALISED, MACHINE = "centralised", "one machine"


# -- one machine -------------------------------------------------------------------------------------------------------


class Pilot(NamedTuple):
    """The 1-norm SVM of one machine, and the smoothed Hessian there."""

    shard: Shard
    coef: np.ndarray
    score: np.ndarray
    at: Curvature


def rule_alpha(X: np.ndarray) -> float:
    return auto_alpha(len(X), X.shape[1]) * typical_scale(np.einsum("ij,ij->j", X, X) / len(X))


def pilot(X: np.ndarray, y: np.ndarray, alpha: float) -> Pilot:
    shard = Shard(X, y, np.ones(len(y)))
    state = solved(Inputs(HingeL1(alpha, False), shard, Solo(), np.random.default_rng(SEED)), 1e-6, 1_000)
    return Pilot(shard, state.coef, state.correlation, curvature_at(shard, state.coef))


def curvature_at(shard: Shard, coef: np.ndarray) -> Curvature:
    margins = debiasing.margins_of(shard, coef, False)
    return debiasing.curvature(shard, margins, debiasing.bandwidth(margins, shard.weight), False)


def theta_of(machine: Pilot, factor: float) -> sp.csr_matrix:
    """The inverse, its rows divided by (Theta H)_jj as always here."""
    p = len(machine.coef)
    c = debiasing.inverse_constraint(p, machine.at.n_effective, factor)
    return debiasing.unscaled(scio_rows(machine.at.correlation, np.arange(p), c).rescaled(), machine.at, np.arange(p))


def hinge(X: np.ndarray, y: np.ndarray, coef: np.ndarray) -> float:
    return float(np.maximum(0.0, 1 - y * (X @ coef)).mean())


def tuned_penalty(X: np.ndarray, y: np.ndarray) -> float:
    """The factor of the rule's penalty with the least hinge loss on five folds."""
    losses = np.zeros(len(PENALTIES))
    for train, test in KFold(FOLDS).split(X):
        alphas = rule_alpha(X[train]) * np.array(PENALTIES)
        coefs = sparse_svc_path(X[train], y[train], alphas=alphas, fit_intercept=False).coefs
        losses += [hinge(X[test], y[test], coef) for coef in coefs]
    return float(PENALTIES[int(losses.argmin())])


def tuned_constraints(X: np.ndarray, y: np.ndarray, factor: float) -> dict[str, float]:
    """The constraint by each loss, in units of the Hessian's error; ``factor`` times the rule is the penalty."""
    losses = {"inverse's loss": np.zeros(len(CONSTRAINTS)), "hinge loss": np.zeros(len(CONSTRAINTS))}
    for train, test in KFold(FOLDS).split(X):
        machine = pilot(X[train], y[train], factor * rule_alpha(X[train]))
        held = curvature_at(Shard(X[test], y[test], np.ones(len(test))), machine.coef)
        H = held.correlation * held.scale * held.scale[:, None]
        for k, constraint in enumerate(CONSTRAINTS):
            theta = theta_of(machine, constraint)
            losses["inverse's loss"][k] += 0.5 * float(theta.multiply(theta @ H).sum()) - float(theta.trace())
            ahead = debiasing.one_step(machine.coef, machine.score, theta)
            losses["hinge loss"][k] += hinge(X[test], y[test], ahead)
    return {who: float(CONSTRAINTS[int(each.argmin())]) for who, each in losses.items()}


def parts_of(X: np.ndarray, y: np.ndarray, n_machines: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(np.array_split(X, n_machines), np.array_split(y, n_machines), strict=True))


# -- tuning ------------------------------------------------------------------------------------------------------------


def tuning(report: Section, chosen: Any) -> None:
    """Errors over the number of machines by the rules and by cross-validation."""
    p, n, machines = (40, 3_000, (1, 5)) if report.quick else (500, 20_000, TUNED_MACHINES)
    settings = settings_of(chosen, "paper", p, n)
    n_repetitions = repetitions_of(report, chosen, "tuning")
    outcomes = repeated(report, "tuning", settings, machines, tuned, n_repetitions, chosen.workers)
    write_tuning(report, settings, machines, outcomes)


def write_tuning(report: Section, settings: dict[str, Any], machines: Sequence[int], outcomes: Outcomes) -> None:
    errors = collected(outcomes, machines)
    factors = {
        what: {str(M): float(np.mean([value for each in outcomes for value in each[str(M)][what]])) for M in machines}
        for what in outcomes[0][str(machines[0])]
        if what not in ("errors", "cpu_seconds")
    }
    seconds = {str(M): float(np.mean([each[str(M)]["cpu_seconds"] for each in outcomes])) for M in machines}
    means = means_of(errors)
    found = {"settings": {**settings, "machines": list(machines)}, "repetitions": len(outcomes), "means": means}
    report.add("tuning", {**found, "chosen": factors, "cpu_seconds": seconds})
    title = f"p = {settings['p']}, N = {settings['n']:,}, {len(outcomes)} repetitions"
    head, pages = ["who", *(f"M = {M}" for M in machines)], []
    for what in ("l_inf", "l2", "prediction"):
        rows = [[who, *(each[str(M)][0] for M in machines)] for who, each in means[what].items()]
        harness.show(f"{title}: mean {what} error", head, rows)
        pages.append(harness.markdown(f"Mean {what} error ({title})", head, rows))
    rows = [[what, *(each[str(M)] for M in machines)] for what, each in factors.items()]
    harness.show(f"{title}: mean factor chosen", head, rows)
    pages.append(harness.markdown(f"Mean factor chosen, the rules being 1 and {RULE:g} ({title})", head, rows))
    (report.folder / "tuning.md").write_text("\n".join(pages), encoding="utf8")
    figures.draw_tuning(report, machines, means, title)


def tuned(settings: dict[str, Any], number: int, n_machines: int) -> dict[str, Any]:
    """Worker: all estimators of one division, by the rules and by cross-validation at each machine."""
    design, X, y = drawn(settings, number, settings["n"])
    begin = time.process_time()
    naive: dict[str, list[np.ndarray]] = {}
    ahead: dict[str, list[np.ndarray]] = {}
    chosen: dict[str, list[float]] = {}
    for part, labels in parts_of(X, y, n_machines):
        factor = tuned_penalty(part, labels)
        constraints = tuned_constraints(part, labels, factor)
        by_rule = pilot(part, labels, rule_alpha(part))
        by_folds = pilot(part, labels, factor * rule_alpha(part))
        ways = {"rules": (by_rule, RULE), "lambda by CV": (by_folds, RULE)}
        ways |= {f"both by CV, {loss}": (by_folds, constraint) for loss, constraint in constraints.items()}
        for who, (machine, constraint) in ways.items():
            naive.setdefault(who, []).append(machine.coef)
            step = debiasing.one_step(machine.coef, machine.score, theta_of(machine, constraint))
            ahead.setdefault(who, []).append(step)
        chosen.setdefault("lambda", []).append(factor)
        for loss, constraint in constraints.items():
            chosen.setdefault(f"C b_n, {loss}", []).append(constraint)
    found = {}
    for who in ahead:
        debiased = np.mean(ahead[who], axis=0)
        n_kept = max(np.count_nonzero(coef) for coef in naive[who])
        if who in ("rules", "lambda by CV"):
            found[f"NAE, {who}"] = np.mean(naive[who], axis=0)
        found[f"AE, {who}"] = debiased
        found[f"TE, {who}"] = debiasing.count_threshold(debiased, n_kept)
    errors = {who: errors_of(coef, design) for who, coef in found.items()}
    return {"errors": errors, **chosen, "cpu_seconds": time.process_time() - begin}


# -- rates over N ------------------------------------------------------------------------------------------------------

PROMISED = {
    ("AE", "l_inf"): (-0.5, "Theorem 2, Corollary 1"),
    ("TE", "l_inf"): (-0.5, "Theorem 2, Corollary 1"),
    ("TE", "l2"): (-0.5, "Theorem 3"),
    ("CE", "l_inf"): (-0.5, "of the centralised"),
    ("CE", "l2"): (-0.5, "of the centralised"),
    ("NAE", "l_inf"): (0.0, "bias that averaging keeps"),
    ("second round", "l_inf"): (-0.5, "not in the paper"),
}


def rates(report: Section, chosen: Any) -> None:
    """Slopes of log errors over log N, one for each repetition, their mean and its standard error."""
    found: dict[str, Any] = {}
    names = ("figure_2", "figure_2_5000")
    missing = [name for name in names if report.read(name).get(name) is None]
    for name in [name for name in names if name not in missing]:
        content = report.read(name)[name]
        sizes = [int(size) for size in next(iter(content["errors"]["l2"].values()))]
        each = {
            f"{who}, {what}": {"slope": slope, "standard error": error, "promised": promised, "by": by}
            for (who, what), (promised, by) in PROMISED.items()
            for slope, error in [mean_and_error(slopes(content["errors"][what][who], sizes))]
        }
        settings = {key: content["settings"][key] for key in ("p", "per_machine")}
        found[name] = {**settings, "sizes": sizes, "repetitions": content["repetitions"], "slopes": each}
    report.add("rates", found)
    for each in found.values():
        rows = [[who, *of.values()] for who, of in each["slopes"].items()]
        title = f"Slopes over N, p = {each['p']}, {each['repetitions']} repetitions, rows of a machine fixed"
        harness.show(title, ["who", "slope", "standard error", "promised", "by"], rows)
    if missing and not (report.quick and found):  # a quick run has no figure_2_5000
        text = f"rates needs {', '.join(missing)} too: python -m benchmarks.debiased --only {','.join(missing)}"
        if chosen.only == ["rates"]:
            raise SystemExit(text)
        print(text)


def slopes(by_size: dict[str, list[float]], sizes: Sequence[int]) -> list[float]:
    """Of every repetition: its sizes share rows, repetitions do not."""
    logs = np.log([by_size[str(size)] for size in sizes])
    return np.polyfit(np.log(sizes), logs, 1)[0].tolist()


# -- Remark 1 ----------------------------------------------------------------------------------------------------------


def machines(report: Section, chosen: Any) -> None:
    """The largest M at which AE's l_inf error is within a factor of the error at M = 1, over N."""
    p, sizes = (30, (1_000, 4_000)) if report.quick else (200, GROWING)
    settings = settings_of(chosen, "paper", p, max(sizes))
    n_repetitions = repetitions_of(report, chosen, "machines")
    outcomes = repeated(report, "machines", settings, sizes, aggregated, n_repetitions, chosen.workers)
    errors = {N: {M: [each[str(N)][str(M)] for each in outcomes] for M in counts(N)} for N in sizes}
    found: dict[str, Any] = {"settings": {**settings, "sizes": list(sizes)}, "repetitions": len(outcomes)}
    found["means"] = {str(N): {str(M): mean_and_error(each) for M, each in by.items()} for N, by in errors.items()}
    found["within"] = {f"{factor:g}": growth(errors, factor, p) for factor in WITHIN}
    report.add("machines", found)
    rows = [[f"{N:,}", *(found["means"][str(N)].get(str(M), (None,))[0] for M in COUNTS)] for N in sizes]
    title = f"Remark 1: mean l_inf error of AE, p = {p}, {len(outcomes)} repetitions"
    harness.show(title, ["N", *(f"M = {M}" for M in COUNTS)], rows)
    head = ["within", *(f"N = {N:,}" for N in sizes), "slope", "standard error", "upper bound of the paper"]
    rows = [
        [f"{factor} times", *each["largest M"], each["slope"], each["standard error"], 1 / 3]
        for factor, each in found["within"].items()
    ]
    harness.show("Largest M within a factor of the error of one machine", head, rows)
    figures.draw_machines(report, found, title)


def counts(size: int) -> list[int]:
    return [M for M in COUNTS if size // M >= FEWEST_ROWS]


def aggregated(settings: dict[str, Any], number: int, size: int) -> dict[str, float]:
    """Worker: AE's l_inf error for every number of machines, by the rules."""
    design, X, y = drawn(settings, number, settings["n"])
    X, y, found = X[:size], y[:size], {}
    for M in counts(size):
        each = [pilot(part, labels, rule_alpha(part)) for part, labels in parts_of(X, y, M)]
        steps = [debiasing.one_step(one.coef, one.score, theta_of(one, settings["constraint"])) for one in each]
        found[str(M)] = float(np.abs(np.mean(steps, axis=0) - design.coef).max())
    return found


def growth(errors: dict[int, dict[int, list[float]]], factor: float, p: int) -> dict[str, Any]:
    """Largest M by interpolation, and the slope of its logarithm; the standard error is that of bootstrapped slopes."""
    n = len(next(iter(next(iter(errors.values())).values())))
    everything = np.arange(n)
    largest = [largest_within(by, factor, everything) for by in errors.values()]
    x = np.log([N / math.log(p) for N in errors])
    rng = np.random.default_rng(SEED)
    drawn_slopes = []
    for _ in range(200 if n > 1 else 0):
        again = [largest_within(by, factor, rng.integers(0, n, n)) for by in errors.values()]
        drawn_slopes.append(slope_of_known(x, again))
    known = [slope for slope in drawn_slopes if slope is not None]
    error = float(np.std(known)) if len(known) > 1 else None
    return {"largest M": largest, "slope": slope_of_known(x, largest), "standard error": error}


def slope_of_known(x: np.ndarray, largest: Sequence[float | None]) -> float | None:
    """Where the largest M was met; sizes at which it was not within reach say nothing."""
    known = [k for k, M in enumerate(largest) if M is not None]
    if len(known) < 2:
        return None
    return float(np.polyfit(x[known], np.log([largest[k] for k in known]), 1)[0])


def largest_within(by_machines: dict[int, list[float]], factor: float, repetitions: np.ndarray) -> float | None:
    """Where the mean error first exceeds ``factor`` times that of one machine, between two M by logarithms."""
    means = {M: float(np.mean(np.asarray(each)[repetitions])) for M, each in by_machines.items()}
    before, limit = 1, math.log(factor * means[1])
    for M, mean in means.items():
        if math.log(mean) > limit:
            low, high = math.log(means[before]), math.log(mean)
            share = (limit - low) / (high - low)
            return float(math.exp(math.log(before) + share * math.log(M / before)))
        before = M
    return None


# -- times -------------------------------------------------------------------------------------------------------------


def times(report: Section, chosen: Any) -> None:
    """Seconds of the processor: the centralised estimate over N, and what one machine of 5,000 rows does."""
    p, sizes, n_rows = (50, (2_000, 4_000), 1_000) if report.quick else (5_000, TIMED_SIZES, TIMED_ROWS)
    settings = settings_of(chosen, "paper", p, max(sizes)) | {"per_machine": n_rows}
    n_repetitions = repetitions_of(report, chosen, "times")
    outcomes = repeated(report, "times", settings, [MACHINE, *sizes], timed, n_repetitions, 1)
    seconds = {
        part: {what: mean_and_error([each[part][what] for each in outcomes])[0] for what in outcomes[0][part]}
        for part in outcomes[0]
    }
    found = {"settings": settings, "repetitions": len(outcomes), "seconds": seconds, "paper, hours": PAPER_HOURS}
    report.add("times", found)
    kinds = list(dict.fromkeys(what for each in seconds.values() for what in each))
    rows = [[part, *(each.get(what) for what in kinds)] for part, each in seconds.items()]
    harness.show(f"Processor seconds of a repetition, p = {p:,}, n = {n_rows:,} a machine", ["of", *kinds], rows)
    divided, alone = sum(seconds[MACHINE].values()), [sum(seconds[str(N)].values()) for N in sizes]
    measured = f"{alone[0]:.3g} to {alone[-1]:.3g} s against {divided:.3g}"
    report.bars([Bar("the centralised estimate takes longer than one machine's part", "stated", measured, True)])


def timed(settings: dict[str, Any], number: int, part: Any) -> dict[str, float]:
    """Worker: seconds of the centralised estimate of so many rows, or of each step of one machine."""
    _, X, y = drawn(settings, number, settings["n"])
    n = settings["per_machine"] if part == MACHINE else int(part)
    X, y = np.ascontiguousarray(X[:n]), y[:n]
    pilot(X[:200, :20], y[:200], 0.1)  # compiles
    begin = time.process_time()
    factor = tuned_penalty(X, y)
    marks = [time.process_time()]
    if part != MACHINE:
        SparseSVC(alpha=factor * rule_alpha(X), fit_intercept=False).fit(X, y)
        marks.append(time.process_time())
        return dict(zip(("lambda by CV", "estimate"), np.diff([begin, *marks]).tolist(), strict=True))
    machine = pilot(X, y, factor * rule_alpha(X))
    marks.append(time.process_time())
    debiasing.one_step(machine.coef, machine.score, theta_of(machine, settings["constraint"]))
    marks.append(time.process_time())
    names = ("lambda by CV", "estimate and Hessian", "inverse and step")
    return dict(zip(names, np.diff([begin, *marks]).tolist(), strict=True))


def repetitions_of(report: Section, chosen: Any, name: str) -> int:
    return int(chosen.repetitions or (2 if report.quick else REPETITIONS[name]))
