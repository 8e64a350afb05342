"""Is the 1-norm SVM exact and fast, beside HiGHS on the whole linear program and scikit-learn's nearest relatives?

    python -m benchmarks.sparse                           all sections, one after the other
    python -m benchmarks.sparse --only highs,path         some of them; each writes its own file

Sections: highs, path, path_large, peers, floor, real. Each fit runs in a process of its own that is told to use one
thread. Times are medians of three, or of one run where that is long, on the wall clock and of the processor; compiled
code is loaded before. How many times faster goes by processor time, which others on the machine change least. "core" is
the solver on checked rows (column generation), "fit" is ``SparseSVC.fit``, which also checks its rows and finds the
least penalty at which all coefficients are zero.

HiGHS gets the whole program in four forms: the primal one (coefficients split by sign, slacks) by ``linprog`` with
"highs", "highs-ds" and "highs-ipm", and the dual one (masses, two-sided rows) by ``milp`` without integers, which is
half as large. Where a bar does not name a form, the fastest of all is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import _designs as designs
from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks import _kernel_runs as runs
from benchmarks import _sets as sets
from benchmarks._harness import Bar, Report, Timing
from widemargin import SparseSVC, SparseSVCCV, sparse_svc_path
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l1 import HingeL1, auto_alpha
from widemargin.solvers.column_generation import ColumnGeneration, alpha_max
from widemargin.solvers.run import Limits, Result, run

QUESTION = __doc__
SEED = 0
TOL, EXACT = 1e-6, 1e-10  # relative gaps: what is asked of a fit, and what objectives are compared at
AGREE = 1e-8  # between objectives, relative
TIMES_FASTER = 100.0
PATH_SECONDS = 10.0  # of the processor, for 50 penalties at N = 20,000, p = 5,000
REAL = ("madelon", "spambase", "arcene", "leukemia")
LIMIT, PATH_LIMIT = 300.0, 120.0  # seconds of HiGHS, for a program
FORMS = ("highs", "highs-ds", "highs-ipm", "dual form")
SHORT = 2.0  # seconds: a peer that takes longer is run once


class Section(runs.Section):
    """A report whose sections are files of their own, in the folder of a program."""

    def __init__(self, program: str, name: str, *, quick: bool) -> None:
        Report.__init__(self, program, quick=quick)
        self._path = self.folder / f"{name}.json"
        self._content["machine"] |= {"commit": runs.commit(), "BLAS threads in children": 1}


def main() -> None:
    chosen = harness.arguments(QUESTION, SECTIONS)
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        SECTIONS[name](Section("sparse", name, quick=chosen.quick))


# -- problems, ours and HiGHS's ----------------------------------------------------------------------------------------


def simulated(n: int, p: int) -> Shard:
    """Rows of the paper's design."""
    X, y = designs.make("paper", p).rows(n, np.random.default_rng(SEED))
    return Shard(X, y, np.ones(n))


def real_rows(name: str, quick: bool) -> Shard:
    """A real set with columns of unit variance; madelon as it is, in [-1, 1]."""
    X, y = sets.load(name)
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    if quick:
        X, y = part_of(X, y, 250, 400)
    if name != "madelon":
        X = StandardScaler().fit_transform(X)
    return Shard(np.ascontiguousarray(X), y, np.ones(len(y)))


def part_of(X: Any, y: np.ndarray, n: int, p: int) -> tuple[Any, np.ndarray]:
    """A few rows and columns, for a quick run."""
    rows = np.random.default_rng(SEED).permutation(len(y))[:n]
    return X[rows][:, :p], y[rows]


def core(shard: Shard, alpha: float, tol: float) -> Result:
    """Our solver, cold."""
    limits = Limits(tol, 1_000)
    return run(ColumnGeneration(), HingeL1(alpha), shard, Solo(), limits, np.random.default_rng(SEED))


def largest_alpha(shard: Shard) -> float:
    return alpha_max(HingeL1(1.0), shard, Solo(), np.random.default_rng(SEED))


def ours(shard: Shard, alpha: float, tol: float) -> dict[str, Any]:
    """Time and proof of our solver."""
    timing, result = harness.measure(lambda: core(shard, alpha, tol))
    return {
        **asdict(timing),
        "objective": objective(shard, alpha, result.model.coef),
        "certified_gap": result.certificate.relative,
        "stop": result.stop_reason,
        "sweeps": result.n_iter,
        "n_features": int(np.count_nonzero(result.model.coef)),
    }


def whole_fit(shard: Shard, alpha: float, tol: float) -> dict[str, Any]:
    """Time of the estimator."""
    timing, model = harness.measure(lambda: SparseSVC(alpha=alpha, tol=tol).fit(shard.X, shard.y))
    return {**asdict(timing), "certified_gap": model.certificate_.relative}


def objective(shard: Shard, alpha: float, coef: np.ndarray) -> float:
    """What coefficients are worth in our problem, with their best intercept."""
    problem, n = HingeL1(alpha), len(shard.y)
    scores, caps = shard.scores(np.asarray(coef, dtype=np.float64)), np.full(n, 1 / n)
    intercept = problem.best_intercept(scores, shard.y, caps)
    return problem.primal_value(problem.loss(scores, intercept, shard.y, caps), float(np.abs(coef).sum()))


def highs(shard: Shard, alpha: float, form: str, limit: float) -> dict[str, Any] | None:
    """HiGHS on the whole program: time and objective, or None if it took over ``limit`` seconds."""
    solve = dual_form(shard, alpha, limit) if form == "dual form" else primal_form(shard, alpha, form, limit)
    timing, found = short_runs(solve)
    if found is None:
        return None
    coef, reported = found
    value = reported if coef is None else objective(shard, alpha, coef)
    return {**asdict(timing), "objective": value, "objective_reported": reported}


# Coefficients, if the form has any, and the objective by its own account; None beyond the limit.
Answer = tuple[np.ndarray | None, float] | None


def primal_form(shard: Shard, alpha: float, method: str, limit: float) -> Callable[[], Answer]:
    """Coefficients split by sign, the intercept, slacks; the program is made before, and not timed."""
    n, p = shard.X.shape
    signed = sp.csr_matrix(shard.y[:, None] * shard.X)
    columns = [-signed, signed, sp.csr_matrix(-shard.y[:, None]), -sp.eye_array(n, format="csr")]
    A = sp.csc_matrix(sp.hstack(columns))
    cost = np.concatenate([np.full(2 * p, alpha), [0.0], np.full(n, 1 / n)])
    bounds = np.zeros((2 * p + 1 + n, 2))
    bounds[:, 1], bounds[2 * p, 0] = np.inf, -np.inf

    def solve() -> Answer:
        answer = linprog(cost, A, -np.ones(n), bounds=bounds, method=method, options={"time_limit": limit})
        return (answer.x[:p] - answer.x[p : 2 * p], float(answer.fun)) if answer.status == 0 else None

    return solve


def dual_form(shard: Shard, alpha: float, limit: float) -> Callable[[], Answer]:
    """Masses of rows, and two-sided rows for the columns; there are no coefficients, only their objective."""
    n, p = shard.X.shape
    A = sp.csc_matrix(np.vstack([(shard.y[:, None] * shard.X).T, shard.y[None, :]]))
    side = np.append(np.full(p, alpha), 0.0)

    def solve() -> Answer:
        rows, bounds = LinearConstraint(A, -side, side), Bounds(0.0, 1 / n)
        answer = milp(-np.ones(n), constraints=rows, bounds=bounds, options={"time_limit": limit})
        return (None, -float(answer.fun)) if answer.success else None

    return solve


def short_runs(job: Callable[[], Any]) -> tuple[Timing, Any]:
    """The median of three runs, or one if that takes over ``SHORT`` seconds."""
    timing, outcome = harness.measure_peer(job, repeats=1)
    return (timing, outcome) if timing.seconds > SHORT else harness.measure_peer(job)


def fastest(found: dict[str, Any]) -> tuple[str | None, float | None]:
    """Which form of HiGHS needed the least processor time, if any ended, and that."""
    times = {form: found[form]["cpu_seconds"] for form in FORMS if found.get(form)}
    return min(times.items(), key=lambda item: item[1], default=(None, None))


def difference(found: dict[str, Any], form: str, mine: float) -> float:
    return abs(found[form]["objective"] - mine) / abs(mine)


# -- highs -------------------------------------------------------------------------------------------------------------


def against_highs(report: Section) -> None:
    """n = p: our time beside HiGHS's on the whole program, and the objectives."""
    found: dict[str, Any] = {}
    sizes = (300, 500) if report.quick else (2_000, 5_000)
    limit = 10.0 if report.quick else LIMIT
    rows, bars = [], []
    for n, rule in [(n, "auto") for n in sizes] + [(sizes[-1], "0.04 alpha_max")]:
        key = f"n = p = {n}, {rule}"
        print(f"highs: {key}", flush=True)
        each = found[key] = {"limit": limit, **runs.in_child(our_side, n, rule)}
        report.add("highs", found)
        for form in FORMS:
            # A child dies at its limit whatever HiGHS thinks of its own; making the program and scipy's checks are over
            # it by some seconds.
            each[form] = runs.in_child(highs_side, n, each["alpha"], form, limit, limit=limit + 120)
            report.add("highs", found)
            print(f"  {form}: {harness.at_most(each[form] and each[form]['seconds'], limit)} s", flush=True)
        bars += highs_bars(key, n == sizes[-1] and rule == "auto", each, limit)
        rows.append(highs_row(key, each, limit))
    head = ["problem", "features", "gap", "core, wall s", "core s", "core s at 1e-10", "fit s"]
    head += [f"{form} s" for form in FORMS]
    harness.show("The 1-norm SVM beside HiGHS on the whole program: processor seconds, one thread", head, rows)
    report.bars(bars)
    figures.draw_highs(report, found, FORMS)


def our_side(n: int, rule: str) -> dict[str, Any]:
    """Child: core and estimator at both tolerances."""
    shard = simulated(n, n)
    largest = largest_alpha(shard)
    alpha = auto_alpha(n, n) if rule == "auto" else 0.04 * largest
    return {
        "n": n,
        "alpha": alpha,
        "alpha / alpha_max": alpha / largest,
        "core": ours(shard, alpha, TOL),
        "core, exact": ours(shard, alpha, EXACT),
        "fit": whole_fit(shard, alpha, TOL),
    }


def highs_side(n: int, alpha: float, form: str, limit: float) -> dict[str, Any] | None:
    """Child: one form of HiGHS."""
    return highs(simulated(n, n), alpha, form, limit)


def highs_row(key: str, each: dict[str, Any], limit: float) -> list[Any]:
    mine = each["core"]
    cells = [mine["n_features"], mine["certified_gap"], mine["seconds"]]
    parts = [each[part]["cpu_seconds"] for part in ("core", "core, exact", "fit")]
    return [key, *cells, *parts, *times_of_highs(each, limit)]


def times_of_highs(each: dict[str, Any], limit: float) -> list[str]:
    return [harness.at_most(each[form] and each[form]["cpu_seconds"], limit) for form in FORMS]


def highs_bars(key: str, is_asked: bool, each: dict[str, Any], limit: float) -> list[Bar]:
    gap = max(each["core"]["certified_gap"], each["fit"]["certified_gap"])
    bars = [Bar(f"{key}: relative gap", f"<= {TOL:g}", f"{gap:.1e}", gap <= TOL)]
    form, best = fastest(each)
    named = [(f"HiGHS by linprog ({FORMS[0]!r})", each[FORMS[0]] and each[FORMS[0]]["cpu_seconds"], is_asked)]
    named.append((f"the fastest form of HiGHS ({form or 'none ended'})", best, False))
    for who, seconds, asked in named:
        for part in ("core", "fit"):
            ratio = (limit if seconds is None else seconds) / each[part]["cpu_seconds"]
            text = ("> " if seconds is None else "") + f"{ratio:.0f}"
            asks = f">= {TIMES_FASTER:g}" if asked else "stated"
            bars.append(Bar(f"{key}: {part}, times faster than {who}", asks, text, not asked or ratio >= TIMES_FASTER))
    mine = each["core, exact"]["objective"]
    off = [difference(each, form, mine) for form in FORMS if each[form]]
    text = f"{max(off):.1e}" if off else "HiGHS did not end within its limit"
    bars.append(
        Bar(f"{key}: objectives differ, relative", f"<= {AGREE:g}", text, not off or max(off) <= AGREE),
    )
    return bars


# -- path --------------------------------------------------------------------------------------------------------------


def path(report: Section) -> None:
    """Real sets over a range of penalties, each solved cold, by us to 1e-10 and by HiGHS."""
    found: dict[str, Any] = {}
    limit = 5.0 if report.quick else PATH_LIMIT
    bars = []
    for name in REAL:
        print(f"path: {name}", flush=True)
        found[name] = each = {"limit": limit, **runs.in_child(real_path, name, report.quick, limit, limit=4 * 3_600)}
        report.add("path", found)
        show_path(name, each, limit)
        bars += path_bars(name, each, limit)
    report.bars(bars)
    figures.draw_path(report, found, FORMS)


def real_path(name: str, quick: bool, limit: float) -> dict[str, Any]:
    """Child: all penalties and all forms."""
    shard = real_rows(name, quick)
    largest = largest_alpha(shard)
    points = []
    for share in np.geomspace(0.5, 0.01, 2 if quick else 8):
        alpha = float(share) * largest
        point: dict[str, Any] = {"alpha": alpha, "alpha / alpha_max": float(share), "ours": ours(shard, alpha, EXACT)}
        for form in FORMS:
            point[form] = highs(shard, alpha, form, limit)
        points.append(point)
        times = ", ".join(" ".join(pair) for pair in zip(FORMS, times_of_highs(point, limit), strict=True))
        print(f"  {share:.3f} alpha_max: ours {point['ours']['cpu_seconds']:.3g}, {times}", flush=True)
    return {"n": len(shard.y), "p": shard.n_features, "alpha_max": largest, "points": points}


def show_path(name: str, each: dict[str, Any], limit: float) -> None:
    head = ["alpha / max", "features", "wall s", "our s", "gap", *(f"{form} s" for form in FORMS), "faster", "off"]
    rows = []
    for point in each["points"]:
        mine, (_, best) = point["ours"], fastest(point)
        cells = [mine["n_features"], mine["seconds"], mine["cpu_seconds"], mine["certified_gap"]]
        cells += [*times_of_highs(point, limit), (best or limit) / mine["cpu_seconds"], worst_difference(point)]
        rows.append([point["alpha / alpha_max"], *cells])
    harness.show(f"{name}  n = {each['n']:,}, p = {each['p']:,}: processor seconds", head, rows)


def worst_difference(point: dict[str, Any]) -> float:
    """The largest between our objective and HiGHS's, of the forms that ended."""
    return max((difference(point, form, point["ours"]["objective"]) for form in FORMS if point[form]), default=math.nan)


def path_bars(name: str, each: dict[str, Any], limit: float) -> list[Bar]:
    points = each["points"]
    ratios = [(fastest(point)[1] or limit) / point["ours"]["cpu_seconds"] for point in points]
    worst = int(np.argmin(ratios))
    where = f"{ratios[worst]:.1f} at {points[worst]['alpha / alpha_max']:.3f} alpha_max"
    off = np.nanmax([worst_difference(point) for point in points])
    return [
        Bar(f"{name}: times faster than HiGHS's fastest form, at the worst penalty", ">= 1", where, min(ratios) >= 1),
        Bar(f"{name}: objectives differ, relative", f"<= {AGREE:g}", f"{off:.1e}", bool(off <= AGREE)),
    ]


# -- a path at N = 20,000, p = 5,000 -----------------------------------------------------------------------------------


def path_large(report: Section) -> None:
    """Fifty penalties with warm starts: down to that of the rule, and to the default end of the path."""
    n, p, count = (2_000, 500, 10) if report.quick else (20_000, 5_000, 50)
    found: dict[str, Any] = {}
    bars = []
    for end in ("the rule's alpha", "0.01 alpha_max"):
        print(f"path_large: {count} penalties from alpha_max to {end}", flush=True)
        each = runs.in_child(large_path, n, p, count, end, limit=900.0)
        found[end] = each
        report.add("path_large", found)
        is_asked = end == "the rule's alpha"
        asked = f"<= {PATH_SECONDS:g}" if is_asked else "stated"
        claim = f"N = {n}, p = {p}: CPU seconds of {count} penalties down to {end}"
        if each is None:
            bars.append(Bar(claim, asked, "> 900", not is_asked))
            continue
        seconds, gap = each["cpu_seconds"], max(each["gaps"])
        bars.append(Bar(claim, asked, f"{seconds:.2f}", not is_asked or seconds <= PATH_SECONDS))
        bars.append(Bar("  ... largest relative gap", f"<= {TOL:g}", f"{gap:.1e}", gap <= TOL))
        rows = list(zip(each["alphas / alpha_max"], each["n_features"], each["gaps"], strict=True))
        harness.show(f"Down to {end}: {seconds:.2f} CPU s", ["alpha / max", "features", "gap"], rows[:: count // 10])
    report.bars(bars)
    figures.draw_path_large(report, found)


def large_path(n: int, p: int, count: int, end: str) -> dict[str, Any]:
    """Child: the path by the public function, after a small one that compiles."""
    small = simulated(400, 100)
    sparse_svc_path(small.X, small.y, n_alphas=5)
    shard = simulated(n, p)
    largest = largest_alpha(shard)
    last = auto_alpha(n, p) if end == "the rule's alpha" else 0.01 * largest
    alphas = np.geomspace(largest * (1 + 1e-9), last, count)
    timing, found = harness.measure_peer(lambda: sparse_svc_path(shard.X, shard.y, alphas=alphas, tol=TOL))
    return {
        **asdict(timing),
        "n": n,
        "p": p,
        "alphas / alpha_max": (found.alphas / largest).tolist(),
        "n_features": found.n_selected.tolist(),
        "gaps": [proof.relative for proof in found.certificates],
    }


# -- peers -------------------------------------------------------------------------------------------------------------

EPOCHS = (1, 5, 20, 100)


def peers(report: Section) -> None:
    """Estimators beside ours: the objective of our problem that they reach, and when."""
    sizes = ((500, 500),) if report.quick else ((5_000, 5_000), (20_000, 5_000))
    found: dict[str, Any] = {}
    for n, p in sizes:
        key = f"n = {n}, p = {p}"
        print(f"peers: {key}", flush=True)
        found[key] = each = runs.in_child(beside_peers, n, p, (1, 5, 20) if report.quick else EPOCHS)
        report.add("peers", found)
        best = each["SparseSVC, tol 1e-10"]["objective"]
        rows = []
        for who, one in each.items():
            proof = one.get("certified_gap")
            cells = [one["seconds"], one["cpu_seconds"], one["objective"], one["objective"] / best - 1, proof]
            rows.append([who, *cells, one["n_features"], one["test_error"], one["remark"]])
        head = ["who", "s", "cpu s", "our objective", "above the best", "proven gap", "features", "error", ""]
        harness.show(f"{key}, alpha = 0.7 sqrt(log p / n)", head, rows)
    figures.draw_sparse_peers(report, found)


def beside_peers(n: int, p: int, epochs: tuple[int, ...]) -> dict[str, Any]:
    """Child: all of them on the same rows at the same penalty."""
    shard, alpha, design = simulated(n, p), auto_alpha(n, p), designs.make("paper", p)

    def outcome(job: Callable[[], Any], remark: str, measure: Callable[..., Any] = short_runs) -> dict[str, Any]:
        with harness.quietly() as said:
            timing, model = measure(job)
        coef = model.coef_[0]
        proof = {"certified_gap": model.certificate_.relative} if hasattr(model, "certificate_") else {}
        return {
            **asdict(timing),
            **proof,
            "objective": objective(shard, alpha, coef),
            "n_features": int(np.count_nonzero(coef)),
            "test_error": design.error(coef, float(model.intercept_[0])),
            "converged": harness.has_converged(said),
            "remark": remark,
        }

    found = {}
    for tol in (1e-2, 1e-4, TOL, EXACT):
        model = SparseSVC(alpha=alpha, tol=tol)
        found[f"SparseSVC, tol {tol:g}"] = outcome(
            lambda model=model: model.fit(shard.X, shard.y), "exact, proven", harness.measure
        )
    for count in epochs:
        peer = SGDClassifier(loss="hinge", penalty="l1", alpha=alpha, max_iter=count, tol=None, random_state=SEED)
        found[f"SGDClassifier, {count} epochs"] = outcome(
            lambda peer=peer: peer.fit(shard.X, shard.y), "the same problem, without a proof"
        )
    peer = LinearSVC(penalty="l1", dual=False, C=1 / (n * alpha), random_state=SEED)
    found["LinearSVC, l1"] = outcome(
        lambda: peer.fit(shard.X, shard.y), "another problem: squared hinge, penalised intercept"
    )
    return found


# -- the floor ---------------------------------------------------------------------------------------------------------


def floor(report: Section) -> None:
    """How many passes over the rows a fit costs: one prices all columns, c = X'(y a), and reads every number once."""
    found: dict[str, Any] = {}
    small = (("simulated", 500, 500, "auto"), ("madelon", 0, 0, "0.03 alpha_max"))
    full = (
        ("simulated", 5_000, 5_000, "auto"),
        ("simulated", 5_000, 5_000, "0.04 alpha_max"),
        ("simulated", 20_000, 5_000, "auto"),
        ("arcene", 0, 0, "0.1 alpha_max"),
        ("madelon", 0, 0, "0.03 alpha_max"),
    )
    for name, n, p, rule in small if report.quick else full:
        key = f"{name}{f' {n} x {p}' if n else ''}, {rule}"
        found[key] = runs.in_child(passes, name, n, p, rule, report.quick)
        report.add("floor", found)
    rows = [[key, *each.values()] for key, each in found.items()]
    harness.show("Floor: a fit in passes over the rows, one thread", ["problem", *found[next(iter(found))]], rows)


def passes(name: str, n: int, p: int, rule: str, quick: bool) -> dict[str, Any]:
    """Child: seconds of a pass, ours and BLAS's, and of a fit."""
    shard = simulated(n, p) if name == "simulated" else real_rows(name, quick)
    largest = largest_alpha(shard)
    alpha = auto_alpha(*shard.X.shape) if rule == "auto" else float(rule.split()[0]) * largest
    signed = shard.y / len(shard.y)
    one = best_of(lambda: shard.combine(signed))
    blas = best_of(lambda: shard.X.T @ signed)
    fit = ours(shard, alpha, TOL)
    return {
        "MiB": shard.X.nbytes / 2**20,
        "pass s": one,
        "BLAS pass s": blas,
        "GB/s": shard.X.nbytes / one / 1e9,
        "fit s": fit["seconds"],
        "passes of time": fit["seconds"] / one,
        "pricing passes": fit["sweeps"] + 1,
        "share in pricing": (fit["sweeps"] + 1) * one / fit["seconds"],
        "features": fit["n_features"],
    }


def best_of(job: Callable[[], Any], repeats: int = 5) -> float:
    """The least seconds of several runs: a floor, not an average."""
    job()
    return min(harness.measure_peer(job, repeats=1)[0].seconds for _ in range(repeats))


# -- real data ---------------------------------------------------------------------------------------------------------

# Repetitions of five folds.
CROSS_VALIDATED = {"colon": 5, "leukemia": 5, "arcene": 5, "reuters-moneyfx": 1}
C_GRID = np.logspace(-3, 2, 11)


def real(report: Section) -> None:
    """Features chosen and errors by repeated cross-validation; what is tuned is tuned inside of each fold."""
    found: dict[str, Any] = {}
    for name, repetitions in CROSS_VALIDATED.items():
        print(f"real: {name}", flush=True)
        found[name] = each = runs.in_child(cross_validated, name, repetitions, report.quick, limit=6 * 3_600)
        report.add("real", found)
        rows = []
        for who, folds in each["folds"].items():
            errors, halves, counts, seconds = (
                np.array([fold[what] for fold in folds])
                for what in ("error", "balanced_error", "n_features", "cpu_seconds")
            )
            middle, low, high = np.median(counts), counts.min(), counts.max()
            by_repetition = errors.reshape(-1, 5 if len(errors) % 5 == 0 else len(errors)).mean(axis=1)
            cells = [100 * errors.mean(), 100 * by_repetition.std(), 100 * halves.mean()]
            rows.append([who, *cells, middle, f"{low} to {high}", np.median(seconds)])
        head = ["who", "error %", "sd of repetitions", "balanced error %", "features", "range", "cpu s a fold"]
        title = f"{name}  n = {each['n']:,}, p = {each['p']:,}, the larger class {100 * each['larger']:.1f}%"
        harness.show(title, head, rows)
        page = report.folder / f"real-{name}.md"
        page.write_text(harness.markdown(title, head, rows), encoding="utf8")


def all_rows(name: str) -> tuple[Any, np.ndarray]:
    """A set with its test rows, if they come apart."""
    X, y = sets.load(name)
    if name in ("leukemia", "reuters-moneyfx"):
        X_test, y_test = sets.load(f"{name}.t")
        X = sp.vstack([X, X_test], format="csr") if sp.issparse(X) else np.concatenate([X, X_test])
        y = np.concatenate([y, y_test])
    return X, y


def cross_validated(name: str, repetitions: int, quick: bool) -> dict[str, Any]:
    """Child: every method on every fold. Dense columns get unit variance by the training rows; sparse stay as are."""
    X, y = all_rows(name)
    X = sp.csr_matrix(X, dtype=np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    if quick:
        X, y = part_of(X, y, 600, 500)
    splits = list(RepeatedStratifiedKFold(n_splits=5, n_repeats=repetitions, random_state=SEED).split(X, y))
    folds: dict[str, list[dict[str, float]]] = {}
    for train, test in splits[: 2 if quick else None]:
        X_train, X_test = X[train], X[test]
        if not sp.issparse(X):
            scaler = StandardScaler().fit(X_train)
            X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
        for who, model in methods(quick).items():
            with harness.quietly():
                timing, model = harness.measure_peer(partial(model.fit, X_train, y[train]), repeats=1)
            predicted = model.predict(X_test)
            best = getattr(model, "best_estimator_", model)
            fold = {
                "error": float(np.mean(predicted != y[test])),
                "balanced_error": 1 - float(balanced_accuracy_score(y[test], predicted)),
                "n_features": int(np.count_nonzero(best.coef_)),
                "seconds": timing.seconds,
                "cpu_seconds": timing.cpu_seconds,
            }
            folds.setdefault(who, []).append(fold)
    return {"n": X.shape[0], "p": X.shape[1], "larger": max(np.mean(y > 0), np.mean(y < 0)), "folds": folds}


def methods(quick: bool) -> dict[str, Any]:
    """Who takes part, with what they choose from."""
    grid = {"C": C_GRID[::5] if quick else C_GRID}
    ours_by_cv = {"n_alphas": 5 if quick else 25, "eps": 0.02, "cv": 5}
    l1 = LinearSVC(penalty="l1", dual=False, max_iter=2_000, random_state=SEED)
    l2 = LinearSVC(loss="hinge", max_iter=20_000, random_state=SEED)
    return {
        "SparseSVC, alpha auto": SparseSVC(),
        "SparseSVCCV": SparseSVCCV(**ours_by_cv),
        "SparseSVCCV, one standard error": SparseSVCCV(rule="one-standard-error", **ours_by_cv),
        "LinearSVC l1 (squared hinge), C by CV": GridSearchCV(l1, grid, cv=5),
        "LinearSVC l2 (hinge), C by CV": GridSearchCV(l2, grid, cv=5),
    }


SECTIONS = {
    "highs": against_highs,
    "path": path,
    "path_large": path_large,
    "peers": peers,
    "floor": floor,
    "real": real,
}

if __name__ == "__main__":
    main()
