"""How much do 20 ranks send until the gap is closed, and how does that grow with the dimension and the precision?

    python -m benchmarks.saddle_communication                          all sections
    python -m benchmarks.saddle_communication --only lower_bound       some; what the others have found stays

sets           every method on real and synthetic sets, against Gilbert
growth         over d and epsilon, beside the paper's k (d + sqrt(d / epsilon)), Theorem 8
growth_nu      the same for nu at alpha = .85, whose projection costs exchanges too
lower_bound    what growth has found beside k min(d, 1 / epsilon), which no algorithm can stay below, Theorem 9

The unit is that of the paper: k d scalars, one row from every rank. Everything is counted, up and down, with the
certificates and the start. Saddle-DSVC and Gilbert's algorithm have the same iterates on any number of ranks, so their
long runs are made on one rank that counts for twenty; each set begins with a run on threads that must give the same
counts. Newton and column generation run on threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks._harness import Bar, Sections
from benchmarks._ranks import first_below, gaps, solve_alone, solve_on_ranks, units
from benchmarks._sets import ALPHA, Rows, load, nu_of, shuffled
from benchmarks.baselines.gilbert import Gilbert
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.protocol import Solver
from widemargin.solvers.run import Limits, Result
from widemargin.solvers.saddle import SaddlePoint

QUESTION = __doc__
RANKS = 20
GAPS = (1e-1, 1e-2, 1e-3)
GROWTH_GAPS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
MOST_UNITS = 50.0  # of the hard margin to gap 1e-3
FEW_SWEEPS = 12  # of the run on threads that checks the counts


class Method(NamedTuple):
    """A solver and whether one rank may count for all."""

    name: str
    solver: Solver
    counted: bool


def methods(n_features: int, is_hard: bool) -> list[Method]:
    """All that can solve the problem; blocks as large as the rows are not listed twice."""
    blocks = [b for b in (1, 8, 64) if b < n_features] + [n_features]
    saddle = [Method(f"saddle b={'d' if b == n_features else b}", SaddlePoint(b), True) for b in blocks]
    newton = Method("Newton", EntropicNewton(), False)
    if not is_hard:
        return [*saddle, newton]
    return [*saddle, newton, Method("column generation", ActiveSet(), False), Method("Gilbert", Gilbert(), True)]


def main() -> None:
    chosen = harness.arguments(QUESTION, SECTIONS)
    report = Sections("saddle_communication", quick=chosen.quick)
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        SECTIONS[name](report)


def sets_compared(report: Sections) -> None:
    """Every method on every set."""
    n = 2_000 if report.quick else 10_000
    hard = ["mushrooms", *(f"separable-{n}-{d}" for d in ((32,) if report.quick else (128, 256, 512)))]
    soft = ["phishing"] if report.quick else ["phishing", "a9a", "madelon"]
    results = {}
    for name in hard + soft:
        results[name] = compare(name, name in hard, limit_of(report))
        report.add("sets", results)
        show(name, results[name])
    report.bars(bars(results, report.quick))
    draw(report, results)


def growth_over_d(report: Sections) -> None:
    """Over the dimension and epsilon."""
    dimensions = (8, 32, 128) if report.quick else (8, 16, 32, 64, 128, 256, 512, 1024)
    growing = growth(dimensions, 1_000 if report.quick else 4_000, limit_of(report))
    report.add("growth", growing)
    show_growth(growing)
    draw_growth(report, growing)


def growth_of_nu(report: Sections) -> None:
    """The same for nu, on rows that no hyperplane separates."""
    dimensions = (8, 32) if report.quick else (8, 16, 32, 64, 128, 256, 512)
    growing = growth(dimensions, 1_000 if report.quick else 4_000, 10 * limit_of(report), is_hard=False)
    report.add("growth_nu", growing)
    show_growth(growing)


def lower_bound(report: Sections) -> None:
    """Theorem 9, whose constant is not stated: scalars of each method over k min(d, 1 / epsilon)."""
    growing = report.found("growth")
    if growing is None:
        raise SystemExit("lower_bound needs growth: python -m benchmarks.saddle_communication --only growth")
    sent = {
        who: {int(d): [units and units * RANKS * int(d) for units in costs] for d, costs in by_dimension.items()}
        for who, by_dimension in growing["units"].items()
    }
    ratios = {
        who: {
            d: [scalars and scalars / least_sent(d, gap) for gap, scalars in zip(growing["gaps"], each, strict=True)]
            for d, each in by_dimension.items()
        }
        for who, by_dimension in sent.items()
    }
    meeting = {who: where_bounds_meet(by_dimension, growing["gaps"]) for who, by_dimension in sent.items()}
    found = {"ranks": RANKS, "gaps": growing["gaps"], "scalars": sent, "over the bound": ratios, "d = 1/eps": meeting}
    report.add("lower_bound", found)
    for who, by_dimension in ratios.items():
        rows = [[d, *each] for d, each in by_dimension.items()]
        title = f"Theorem 9: {who}, scalars over k min(d, 1 / eps)"
        harness.show(title, ["d", *(f"eps {gap:g}" for gap in growing["gaps"])], rows)
    for who, each in meeting.items():
        if each["slope over d"] is not None:
            span = f"{min(each['over the bound']):.3g} to {max(each['over the bound']):.3g}"
            print(f"where d = 1 / eps: {who} sends {span} times the bound, as d^{each['slope over d']:.2f}")
    figures.draw_lower_bound(report, found, least_sent)


def where_bounds_meet(by_dimension: dict[int, list[float | None]], every_gap: list[float]) -> dict[str, Any]:
    """Near d = 1 / epsilon, where the paper says that its method is optimal: scalars over the bound, and over d."""
    points = []
    for place, gap in enumerate(every_gap):
        d = min(by_dimension, key=lambda d: abs(np.log(d * gap)))
        scalars = by_dimension[d][place]
        if 0.5 <= d * gap <= 2 and scalars is not None:
            points.append((d, scalars / least_sent(d, gap), scalars))
    logs = np.log([(d, scalars) for d, _, scalars in points]) if len(points) > 1 else None
    slope = None if logs is None else float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return {"d": [d for d, _, _ in points], "over the bound": [ratio for _, ratio, _ in points], "slope over d": slope}


def least_sent(d: int, gap: float) -> float:
    """Theorem 9 without its constant."""
    return RANKS * min(d, 1 / gap)


def limit_of(report: Sections) -> float:
    return 3.0 if report.quick else 20.0


def compare(name: str, is_hard: bool, limit: float) -> dict[str, Any]:
    """Every method on one set, from 20 shards of shuffled rows."""
    rows = shuffled(load(name))
    n, d = rows.X.shape
    problem = HardMargin() if is_hard else NuMargin(nu_of(rows.y, ALPHA))
    found: dict[str, Any] = {"n": n, "d": d, "is_hard": is_hard, "counts_agree": counts_agree(problem, rows)}
    found["methods"] = {}
    for method in methods(d, is_hard):
        result = solve(method, problem, rows, limit)
        found["methods"][method.name] = {
            "stop": result.stop_reason,
            "gap": result.certificate.relative,
            "rounds": result.ledger.rounds,
            "units": units(result, RANKS, d)[-1],
            "to_gap": [first_below(gap, gaps(result), units(result, RANKS, d)) for gap in GAPS],
            "curve": list(zip(units(result, RANKS, d), gaps(result), strict=True)),
        }
    return found


def solve(method: Method, problem: Any, rows: Rows, limit: float) -> Result:
    """To the smallest gap, or to the time limit."""
    limits = Limits(GAPS[-1], 10**6, limit)
    if method.counted:
        return solve_alone(method.solver, problem, rows, limits, counted_as=RANKS)
    return solve_on_ranks(method.solver, problem, rows, RANKS, limits)


def counts_agree(problem: Any, rows: Rows) -> bool:
    """Whether one rank that counts for twenty counts what twenty threads do, sweep by sweep, at nearly the same gap."""
    limits = Limits(0.0, FEW_SWEEPS, 60.0)
    alone = solve_alone(SaddlePoint(64), problem, rows, limits, counted_as=RANKS)
    threads = solve_on_ranks(SaddlePoint(64), problem, rows, RANKS, limits)
    counted, sent = (np.array([row["scalars"] for row in each.history]) for each in (alone, threads))
    # Where the rotation is long, one rank looks at the clock more often than each of twenty, at two numbers a look.
    is_start_same = abs(counted[0] - sent[0]) <= 1e-3 * sent[0]
    same = is_start_same and np.array_equal(np.diff(counted), np.diff(sent))
    return bool(same) and bool(np.allclose(gaps(alone), gaps(threads), rtol=1e-6))


def growth(dimensions: tuple[int, ...], n_rows: int, limit: float, *, is_hard: bool = True) -> dict[str, Any]:
    """Scalars of the paper's method and of the others over d and epsilon.

    The hard margin is on separable rows of a fixed margin, beside column generation and Gilbert.
    """
    found: dict[str, Any] = {"n": n_rows, "dimensions": list(dimensions), "gaps": list(GROWTH_GAPS), "units": {}}
    for d in dimensions:
        rows = shuffled(load(f"{'separable' if is_hard else 'nonseparable'}-{n_rows}-{d}"))
        problem = HardMargin() if is_hard else NuMargin(nu_of(rows.y, ALPHA))
        names = (
            ("saddle b=1", "saddle b=64", "column generation", "Gilbert") if is_hard else ("saddle b=1", "saddle b=8")
        )
        for method in (method for method in methods(d, is_hard) if method.name in names):
            result = solve(method, problem, rows, limit)
            reached = [first_below(gap, gaps(result), units(result, RANKS, d)) for gap in GROWTH_GAPS]
            found["units"].setdefault(method.name, {})[d] = reached
    found["constant"] = fitted_constant(found["units"]["saddle b=1"])
    found["exponents"] = {who: fitted_exponents(each) for who, each in found["units"].items()}
    return found


def bound(d: np.ndarray | float, gap: np.ndarray | float) -> Any:
    """The paper's k (d + sqrt(d / epsilon)) without logarithms, in units of k d."""
    return 1 + np.sqrt(1 / (d * gap))


def reached_points(by_dimension: dict[int, list[float | None]]) -> list[tuple[int, float, float]]:
    """Dimension, gap and units wherever the gap was reached."""
    every = ((d, zip(GROWTH_GAPS, costs, strict=True)) for d, costs in by_dimension.items())
    return [(d, gap, cost) for d, pairs in every for gap, cost in pairs if cost is not None]


def fitted_constant(by_dimension: dict[int, list[float | None]]) -> float:
    """The one factor that brings the bound nearest to all points, on a logarithmic scale."""
    return float(np.exp(np.mean([np.log(cost / bound(d, gap)) for d, gap, cost in reached_points(by_dimension)])))


def fitted_exponents(by_dimension: dict[int, list[float | None]]) -> tuple[float, float]:
    """Powers p and q of the law scalars = c d^p (1/eps)^q that is nearest to all points."""
    logs = np.log([(d, 1 / gap, cost * d) for d, gap, cost in reached_points(by_dimension)])
    design = np.column_stack([np.ones(len(logs)), logs[:, :2]])
    return tuple(np.linalg.lstsq(design, logs[:, 2], rcond=None)[0][1:].tolist())


def bars(results: dict[str, Any], quick: bool) -> list[Bar]:
    """What is asked of communication; of a quick run only what few rows and seconds can meet."""
    found = []
    for name, result in results.items():
        agree = result["counts_agree"]
        found.append(Bar(f"{name}: one rank counts as twenty threads do", "equal", str(agree), agree))
        if quick or not result["is_hard"]:
            continue
        costs = {who: each["to_gap"] for who, each in result["methods"].items()}
        saddle = min((who for who in costs if who.startswith("saddle")), key=lambda who: costs[who][-1] or np.inf)
        for k, gap in enumerate(GAPS):
            ours, theirs = costs[saddle][k], costs["Gilbert"][k]
            at_least = "" if theirs else ">"
            theirs = theirs or result["methods"]["Gilbert"]["units"]
            measured = f"{ours:.4g} < {at_least}{theirs:.4g}" if ours else "not reached"
            claim = f"{name}: {saddle} below Gilbert at gap {gap:g}"
            found.append(Bar(claim, "fewer units", measured, bool(ours) and ours < theirs))
        cost = costs["column generation"][-1]
        measured = f"{cost:.3g}" if cost else "not reached"
        claim = f"{name}: units to gap {GAPS[-1]:g}, column generation"
        found.append(Bar(claim, f"<= {MOST_UNITS:g}", measured, bool(cost) and cost <= MOST_UNITS))
    return found


def show(name: str, result: dict[str, Any]) -> None:
    """One set's table."""
    rows = [
        [who, *each["to_gap"], each["rounds"], each["gap"], each["stop"]] for who, each in result["methods"].items()
    ]
    head = ["method", *(f"units to {gap:g}" for gap in GAPS), "rounds", "gap reached", "stopped by"]
    kind = "hard margin" if result["is_hard"] else "nu, alpha 0.85"
    harness.show(f"{name}  {result['n']} x {result['d']}, {kind}, k = {RANKS}, unit k d", head, rows)


def show_growth(growing: dict[str, Any]) -> None:
    """Units to each gap, by dimension, beside the fitted bound."""
    for method, by_dimension in growing["units"].items():
        rows = [[d, *costs] for d, costs in by_dimension.items()]
        head = ["d", *(f"to {gap:g}" for gap in GROWTH_GAPS)]
        harness.show(f"Growth: {method}, units of k d", head, rows)
    print(f"\nbound: {growing['constant']:.3g} (1 + sqrt(1 / (d eps))) units, the constant fitted to saddle b=1")
    for who, (p, q) in growing["exponents"].items():
        print(f"scalars grow as d^{p:.2f} (1/eps)^{q:.2f}: {who}")


def draw(report: Sections, results: dict[str, Any]) -> None:
    """Gap against units on every set."""
    names = list(results)
    figure, panels = harness.axes(min(4, len(names)), -(-len(names) // 4), width=4.2, height=3.6)
    for panel, name in zip(panels.flat, names, strict=False):
        result = results[name]
        for who, each in result["methods"].items():
            curve = [(cost, gap) for cost, gap in each["curve"] if gap <= 1]
            panel.plot(*zip(*curve, strict=True), label=who, **figures.style_of(who, len(curve)))
        panel.axhline(GAPS[-1], color="#888888", lw=0.8)
        kind = "hard margin" if result["is_hard"] else "nu"
        panel.set(xscale="log", yscale="log", title=f"{name}, {kind}", ylim=(GAPS[-1] / 2, 1.3))
        panel.set(xlabel=f"scalars sent / (k d), k = {RANKS}", ylabel="relative gap")
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    figure.suptitle("Relative gap over communication")
    harness.legend_below(figure, panels, 7)
    report.picture(figure, "gap_against_units")


def draw_growth(report: Sections, growing: dict[str, Any]) -> None:
    """Scalars per rank over d and over 1/eps beside the bound, and all methods at the smallest gap."""
    figure, panels = harness.axes(3, width=5.0, height=4.4)
    by_d, by_eps, who_sends = panels.flat
    paper, factor = growing["units"]["saddle b=1"], growing["constant"]
    dimensions, every_gap = np.array(growing["dimensions"]), np.array(GROWTH_GAPS)
    for k, gap in enumerate(GAPS):
        place = GROWTH_GAPS.index(gap)
        points = [(d, costs[place] * d) for d, costs in paper.items() if costs[place] is not None]
        by_d.plot(*zip(*points, strict=True), label=f"gap {gap:g}", **harness.style(k))
        by_d.plot(dimensions, factor * dimensions * bound(dimensions, gap), ls="--", lw=1.2, color=harness.COLOURS[k])
    for k, d in enumerate(dimensions[[1, len(dimensions) // 2, -1]]):
        points = [(1 / gap, cost * d) for gap, cost in zip(GROWTH_GAPS, paper[d], strict=True) if cost is not None]
        by_eps.plot(*zip(*points, strict=True), label=f"d = {d}", **harness.style(k))
        by_eps.plot(1 / every_gap, factor * d * bound(d, every_gap), ls="--", lw=1.2, color=harness.COLOURS[k])
    for who, by_dimension in growing["units"].items():
        points = [(d, costs[-1]) for d, costs in by_dimension.items() if costs[-1] is not None]
        who_sends.plot(*zip(*points, strict=True), label=who, **figures.style_of(who))
    title = f"bound dashed: {factor:.3g} (d + sqrt(d / eps))"
    by_d.set(xlabel="dimension d", ylabel="scalars sent / k", title=f"saddle b=1; {title}")
    by_eps.set(xlabel="1 / eps (relative gap)", ylabel="scalars sent / k", title=f"saddle b=1; {title}")
    who_sends.set(xlabel="dimension d", ylabel="scalars sent / (k d)", title=f"all methods to gap {GAPS[-1]:g}")
    for panel in panels.flat:
        panel.set(xscale="log", yscale="log")
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    figure.suptitle("Growth of communication, separable rows of one margin")
    report.picture(figure, "growth")


SECTIONS = {"sets": sets_compared, "growth": growth_over_d, "growth_nu": growth_of_nu, "lower_bound": lower_bound}

if __name__ == "__main__":
    main()
