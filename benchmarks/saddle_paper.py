"""Are the tables and figures of the saddle point paper what one finds when one measures again?

    python -m benchmarks.saddle_paper                         all sections
    python -m benchmarks.saddle_paper --only table_4          some; what the others have found stays

Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017. Tables 1 to 4
and Figures 1, 2, 3, 4 and 6, for the sets that are at hand, and the operations of Theorem 7. In the folder of results
``tables.md`` holds our numbers beside the paper's. NuSVC runs to its end, hours where rows are many; its runs are kept
one by one in ``SECTION.jobs.jsonl`` as they end, and a section that was interrupted goes on from there; ``--fresh``
drops them. Every set of Figures 1 and 2 is written as it ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC, NuSVC

from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks import _saddle_curves as curves
from benchmarks import _saddle_operations as operations
from benchmarks._harness import Sections
from benchmarks._jobs import Jobs
from benchmarks._ranks import solve_alone
from benchmarks._sets import ALPHA, load, nu_of, split
from benchmarks.baselines import saddle_as_written
from benchmarks.baselines.gilbert import Gilbert
from widemargin import HardMarginSVC, NuMarginSVC
from widemargin.problems.polytope import HardMargin
from widemargin.solvers.run import Limits
from widemargin.solvers.saddle import SaddlePoint

QUESTION = __doc__
GAP = 1e-3  # the paper's epsilon
BETA = 0.1  # the paper leaves it open; its synthetic sets have this ratio of distances
NOT_AVAILABLE = ("a5a", "gisette")
PEER_LIMIT = 4 * 3_600.0  # of one run of NuSVC
LONG_LIMIT = 900.0  # of one run of Table 1 and Figure 3, where Gilbert's algorithm is slow when d is large

# What the paper prints: objective and seconds of Saddle-SVC, then of Gilbert.
PAPER_1 = {
    "iris.scale": (0.835, 0.152, 0.835, 0.0005),
    "mushrooms": (0.516, 11.2, 0.517, 12.5),
    "ball-10000-8": (0.395, 9.33, 0.397, 1.52),
    "ball-10000-32": (0.468, 28.8, 0.470, 10.1),
    "ball-10000-128": (0.436, 64.0, 0.438, 152.0),
    "ball-10000-512": (0.496, 189.0, 0.498, 2327.0),
}
# n, n_1, n_2, d, share of non-zeros.
PAPER_2 = {
    "a1a": (1605, 395, 1210, 119, 0.12),
    "a9a": (32561, 7841, 24720, 123, 0.113),
    "phishing": (11055, 6157, 4898, 68, 0.441),
    "mushrooms": (8124, 3916, 4208, 112, 0.188),
    "iris.scale": (150, 100, 50, 4, 0.978),
    "ijcnn1": (49990, 4853, 45137, 22, 0.590),
    "w8a": (49749, 1479, 48270, 300, 0.038),
    "skin_nonskin": (245057, 50859, 194198, 3, 0.982),
}
# Objective and test accuracy of LIBSVM, then of Saddle-SVC.
PAPER_3 = {
    ("a9a", 0.1): (6e-12, 0.35, 6e-4, 0.69),
    ("a9a", 0.3): (6e-13, 0.36, 7e-4, 0.69),
    ("a9a", 0.5): (6e-13, 0.71, 3e-4, 0.70),
    ("phishing", 0.1): (6e-11, 0.89, 3e-4, 0.82),
    ("phishing", 0.3): (0.002, 0.93, 0.002, 0.93),
    ("phishing", 0.5): (0.01, 0.92, 0.01, 0.93),
    ("ijcnn1", 0.1): (2e-12, 0.17, 0.0039, 0.73),
    ("ijcnn1", 0.3): (6e-13, 0.17, 0.002, 0.47),
    ("ijcnn1", 0.5): (3e-13, 0.80, 0.0004, 0.31),
}
# Test accuracy and seconds of Saddle-SVC, then of LinearSVC.
PAPER_4 = {
    "skin_nonskin": (0.931, 40.0, 0.913, 654.0),
    "w8a": (0.984, 3075.0, 0.986, 12.5),
    "sparse-100000-128-10": (0.804, 393.0, 0.830, 28.2),
    "sparse-100000-128-50": (0.844, 369.0, 0.843, 214.0),
    "sparse-100000-128-90": (0.825, 363.0, 0.828, 537.0),
}
LINEAR_C = 8.0


def main() -> None:
    chosen = harness.arguments(QUESTION, SECTIONS, options=harness.FRESH)
    report = Sections("saddle_paper", quick=chosen.quick)
    report.add("not_available", NOT_AVAILABLE)
    table_3 = {f"{name} {alpha}": printed for (name, alpha), printed in PAPER_3.items()}
    report.add("paper", {"table_1": PAPER_1, "table_3": table_3, "table_4": PAPER_4})
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        SECTIONS[name](report, Jobs(report.folder / f"{name}.jobs.jsonl", fresh=chosen.fresh))
        if name in PAGES:
            write_tables(report)


def table_1(report: Sections, jobs: Jobs) -> None:
    """Hard margin: distance and seconds of the paper's method, of ours, and of Gilbert, all to gap 1e-3."""
    limit = 2.0 if report.quick else LONG_LIMIT
    found = {}
    for name in PAPER_1:
        if not (report.quick and name.endswith(("-128", "-512"))):
            found[name] = hard_margin(name, limit)
            report.add("table_1", found)


def page_1(found: dict[str, Any]) -> str:
    head = ["set", "exact", "saddle b=1", "s", "saddle", "s", "auto", "s", "Gilbert", "s"]
    head += ["as written", "its error", "rounds"]
    head += ["paper: saddle", "s", "Gilbert", "s"]
    rows = []
    for name, each in found.items():
        cells: list[Any] = [name, each["exact"]]
        for who in ("saddle b=1", "saddle", "auto", "Gilbert"):
            cells += [each[who]["distance"], over_limit(each[who])]
        letter = each["as written"]
        cells += [letter["distance"], f"{letter['error']:+.2%}", letter["n_rounds"]]
        rows.append([*cells, *PAPER_1.get(name, (None,) * 4)])
    return table("Table 1. Hard margin, distance and processor seconds to gap 1e-3", head, rows)


def hard_margin(name: str, limit: float) -> dict[str, Any]:
    """One line of Table 1. The exact distance is that of a tight certificate."""
    rows = load(name)
    exact = HardMarginSVC(tol=1e-7).fit(*rows).certificate_.primal
    found: dict[str, Any] = {"exact": exact}
    problem, limits = HardMargin(), Limits(GAP, 10**6, limit)
    for who, solver in (("saddle b=1", SaddlePoint(1)), ("Gilbert", Gilbert())):
        solve_alone(solver, problem, rows, Limits(GAP, 1))  # compiles
        timing, result = harness.measure_peer(
            lambda solver=solver: solve_alone(solver, problem, rows, limits), repeats=1
        )
        found[who] = {**vars(timing), "distance": result.certificate.primal, "stop": result.stop_reason}
    rng = np.random.default_rng(0)
    as_written = {"epsilon": GAP, "beta": BETA, "max_rounds": 30_000}
    timing, end = harness.measure_peer(lambda: saddle_as_written.solve(*rows, rng, **as_written), repeats=1)
    found["as written"] = {**vars(timing), **end._asdict(), "error": end.distance / exact - 1}
    for who in ("saddle", "auto"):
        timing, model = harness.measure(lambda who=who: HardMarginSVC(solver=who, tol=GAP, random_state=0).fit(*rows))
        found[who] = {**vars(timing), "distance": model.certificate_.primal, "stop": model.stop_reason_}
    return found


def over_limit(each: dict[str, Any]) -> str:
    """Processor seconds of one thread, which other work does not change; marked where the time limit ended the run."""
    return (">" if each["stop"] == "max_time" else "") + harness.text(each["cpu_seconds"])


def table_2(report: Sections, jobs: Jobs) -> None:
    """The sets as we have them."""
    found = {}
    for name in PAPER_2:
        X, y = load(name)
        n_positive = int((y > 0).sum())
        density = float((X.nnz if sp.issparse(X) else np.count_nonzero(X)) / np.prod(X.shape))
        found[name] = (X.shape[0], n_positive, X.shape[0] - n_positive, X.shape[1], density)
    report.add("table_2", found)


def page_2(found: dict[str, Any]) -> str:
    head = ["set", "n", "n1", "n2", "d", "nnz", "paper: n", "n1", "n2", "d", "nnz"]
    rows = [[name, *found[name], *PAPER_2[name]] for name in found]
    rows += [[name, "not available", *[None] * 9] for name in NOT_AVAILABLE]
    return table("Table 2. The sets", head, rows)


def table_3(report: Sections, jobs: Jobs) -> None:
    """Small alpha: does nu still give a model?"""
    found: dict[str, Any] = {}
    for name, alpha in PAPER_3:
        if name == "phishing" or not report.quick:
            found[f"{name} {alpha}"] = small_nu(name, alpha, jobs, 5.0 if report.quick else 25.0)
            report.add("table_3", found)


def page_3(found: dict[str, Any]) -> str:
    head = ["set", "alpha", "distance^2 / 2 at most", "at least", "stopped by", "test acc.", "s"]
    head += ["Saddle-SVC: at most", "stopped by", "test acc.", "s"]
    head += ["NuSVC distance^2 / 2", "test acc.", "s", "paper: LIBSVM", "acc.", "Saddle-SVC", "acc."]
    rows = []
    for (name, alpha), paper in PAPER_3.items():
        each = found.get(f"{name} {alpha}")
        if each is None:
            continue
        ours, saddle, peer = each["ours"], each.get("saddle", {}), each["NuSVC"] or {}
        cells = [
            ours["primal"] ** 2 / 2,
            max(0.0, ours["dual"]) ** 2 / 2,
            ours["stop"],
            ours["accuracy"],
            ours["seconds"],
            saddle and saddle["primal"] ** 2 / 2,
            *(saddle.get(key) for key in ("stop", "accuracy", "seconds")),
        ]
        theirs = [None if not peer else peer["distance"] ** 2 / 2, peer.get("accuracy"), peer.get("seconds")]
        rows.append([name, alpha, *(None if cell == {} else cell for cell in cells), *theirs, *paper])
    return table("Table 3. nu-SVM at small alpha", head, rows)


def small_nu(name: str, alpha: float, jobs: Jobs, limit: float) -> dict[str, Any]:
    """One line of Table 3: the default solver, the paper's, and NuSVC."""
    train, test = split(name)
    nu, found = nu_of(train.y, alpha), {}
    for key, solver in (("ours", "auto"), ("saddle", "saddle")):
        with harness.quietly():
            NuMarginSVC(nu=nu, solver=solver, tol=GAP, max_iter=1).fit(*train)  # compiles
            job = NuMarginSVC(nu=nu, solver=solver, tol=GAP, max_time=limit, random_state=0)
            timing, model = harness.measure_peer(lambda job=job: job.fit(*train), repeats=1)
        proof = model.certificate_
        found[key] = {"primal": proof.primal, "dual": proof.dual, "stop": model.stop_reason_}
        found[key] |= {"seconds": timing.seconds, "accuracy": float(model.score(*test))}
    return {**found, "NuSVC": jobs(nu_svc_at, name, nu, limit=PEER_LIMIT)}


def nu_svc_at(name: str, nu: float) -> dict[str, Any]:
    """In a process of its own: NuSVC on the training rows."""
    train, test = split(name)
    timing, model = harness.measure_peer(lambda: NuSVC(kernel="linear", nu=nu).fit(*train), repeats=1)
    distance = curves.hull_distance(model, train)
    return {"seconds": timing.seconds, "distance": distance, "accuracy": float(model.score(*test))}


def table_4(report: Sections, jobs: Jobs) -> None:
    """Dense and sparse rows: nu beside LinearSVC, by test accuracy and seconds."""
    found: dict[str, Any] = {}
    for name in ["skin_nonskin"] if report.quick else PAPER_4:
        found[name] = beside_linear(name, 10.0 if report.quick else 60.0)
        report.add("table_4", found)


def page_4(found: dict[str, Any]) -> str:
    head = ["set", "nnz", "auto: acc.", "s", "saddle: acc.", "s", "gap", "LinearSVC: acc.", "s", "converged"]
    head += ["paper: Saddle-SVC", "s", "LinearSVC", "s"]
    rows = []
    for name, each in found.items():
        linear = each["LinearSVC"] or {}
        cells = [each["nnz"]]
        for who in ("auto", "saddle"):
            cells += [each[who]["accuracy"], each[who]["seconds"]]
        cells += [each["saddle"]["gap"], linear.get("accuracy"), linear.get("seconds")]
        rows.append([name, *cells, linear.get("converged"), *PAPER_4[name]])
    return table(f"Table 4. nu-SVM (alpha .85) and LinearSVC (C = {LINEAR_C:g})", head, rows)


def beside_linear(name: str, limit: float) -> dict[str, Any]:
    """One line of Table 4; rows with half of their entries or more are stored dense, as one would."""
    train, test = as_one_would_store(name)
    X = load(name).X
    found: dict[str, Any] = {"nnz": float((X.nnz if sp.issparse(X) else np.count_nonzero(X)) / np.prod(X.shape))}
    for who in ("auto", "saddle"):
        with harness.quietly():
            nu = nu_of(train.y, ALPHA)
            job = NuMarginSVC(nu=nu, solver=who, tol=GAP, max_time=limit, random_state=0)
            timing, model = harness.measure(lambda job=job: job.fit(*train))
        found[who] = {**vars(timing), "accuracy": float(model.score(*test)), "gap": model.certificate_.relative}
        found[who]["stop"] = model.stop_reason_
    found["LinearSVC"] = harness.in_child(linear_svc, name, limit=limit)
    return found


def linear_svc(name: str) -> dict[str, Any]:
    """In a process of its own: LinearSVC with hinge loss on the training rows."""
    train, test = as_one_would_store(name)
    with harness.quietly() as said:
        peer = LinearSVC(loss="hinge", C=LINEAR_C, random_state=0)
        timing, model = harness.measure_peer(lambda: peer.fit(*train), repeats=1)
    return {**vars(timing), "accuracy": float(model.score(*test)), "converged": harness.has_converged(said)}


def as_one_would_store(name: str) -> tuple[Any, Any]:
    """Training and test rows, dense where half of the entries or more are not zero."""
    train, test = split(name)
    if sp.issparse(train.X) and train.X.nnz >= 0.5 * np.prod(train.X.shape):
        return train._replace(X=train.X.toarray()), test._replace(X=test.X.toarray())
    return train, test


def table(title: str, head: list[str], rows: list[list[Any]]) -> str:
    """Show a table, and give it back for the page."""
    harness.show(title, head, rows)
    return harness.markdown(title, head, rows)


def write_tables(report: Sections) -> None:
    """All tables as one page of Markdown."""
    facts = harness.machine()
    lines = [
        "# The tables of the saddle point paper, measured again",
        f"Written by `python -m benchmarks.saddle_paper{' --quick' if report.quick else ''}` on {facts['date'][:10]}, "
        f'one thread of {facts["cpu"]}, scikit-learn {facts["packages"]["scikit-learn"]}. Columns after "paper:" are '
        "the paper's own, from another machine. A time with > is a limit that was reached.",
        f"Not available here: {', '.join(NOT_AVAILABLE)}.",
        *(page(report.found(name)) for name, page in PAGES.items() if report.found(name)),
    ]
    path = report.folder / "tables.md"
    path.write_text("\n\n".join(lines), encoding="utf8")
    print(f"tables: {path.relative_to(harness.ROOT)}", flush=True)


def figure_1(report: Sections, jobs: Jobs) -> None:
    """Objective and accuracy against seconds."""
    sets = ["phishing"] if report.quick else ["phishing", "a9a", "ijcnn1", "skin_nonskin"]
    over_time(report, jobs, "figure_1", sets, "Figure 1: nu-SVM at alpha .85, objective and accuracy over time")


def figure_2(report: Sections, jobs: Jobs) -> None:
    """The same with growing data."""
    sizes = (500, 1_000) if report.quick else (5_000, 20_000, 50_000)
    names = [f"nonseparable-{n}-512" for n in sizes]
    over_time(report, jobs, "figure_2", names, "Figure 2: the same with growing data, d = 512")


def over_time(report: Sections, jobs: Jobs, section: str, names: list[str], title: str) -> None:
    """Curves of each set, written and drawn as they end; runs of NuSVC are found again."""
    found: dict[str, Any] = {}
    for name in names:
        found[name] = curves.seconds_curves(name, jobs, PEER_LIMIT)
        report.add(section, found)
        figures.draw_seconds(report, section, found, title)


def figure_3(report: Sections, jobs: Jobs) -> None:
    """Margin against communication, hard margin."""
    sets = ["mushrooms", *([] if report.quick else [f"separable-10000-{d}" for d in (128, 256, 512)])]
    limit = limit_of(report) if report.quick else LONG_LIMIT
    found = {name: curves.margin_curves(name, limit) for name in sets}
    report.add("figure_3", found)
    title = "Figure 3: hull distance and margin over communication, hard margin"
    figures.draw_units(report, "figure_3", found, ("distance", "margin"), title, curves.RANKS)


def figure_4(report: Sections, jobs: Jobs) -> None:
    """Objective against communication, nu."""
    sets = ["phishing"] if report.quick else ["madelon", "phishing", "a9a"]
    found = {name: curves.objective_curves(name, limit_of(report)) for name in sets}
    report.add("figure_4", found)
    title = "Figure 4: hull distance over communication, nu-SVM at alpha .85"
    figures.draw_units(report, "figure_4", found, ("distance",), title, curves.RANKS)


def figure_6(report: Sections, jobs: Jobs) -> None:
    """Accuracy against communication, beside HOGWILD!"""
    sets = ["phishing"] if report.quick else ["nonseparable-10000-128", "nonseparable-10000-256", "phishing", "a9a"]
    found = {name: curves.accuracy_curves(name, limit_of(report)) for name in sets}
    report.add("figure_6", found)
    title = f"Figure 6: accuracy on test rows over communication; HOGWILD! with C = {curves.HOGWILD_C:g}"
    figures.draw_units(report, "figure_6", found, ("accuracy",), title, curves.RANKS)


def theorem_7(report: Sections, jobs: Jobs) -> None:
    """Operations of Algorithms 1 and 2 over n, d and 1 / epsilon, beside what is promised."""
    axes, n_seeds = (operations.QUICK_AXES, 1) if report.quick else (operations.AXES, operations.SEEDS)
    found = operations.measured(axes, n_seeds)
    report.add("theorem_7", found)
    figures.draw_operations(report, found)


def page_7(found: dict[str, Any]) -> str:
    head = ["problem", "over", "slope", "standard error", "of the last two", "slope of n (d + sqrt(d / (eps beta)))"]
    head += ["times sqrt(log n) log(1 / (eps beta))", "counted / promised"]
    rows = []
    for kind, by_axis in found.items():
        for axis, each in by_axis.items():
            ratios = np.array(each["operations"]) / each["promised"]
            span = f"{ratios.min():.0f} to {ratios.max():.0f}"
            rows.append([kind, axis, *each["slope"], each["last slope"][0], each["promised slope"][0]])
            rows[-1] += [each["promised slope with logarithms"][0], span]
    return table("Theorem 7. Operations to a (1 - eps)-approximation, slopes of logarithms", head, rows)


def limit_of(report: Sections) -> float:
    return 2.0 if report.quick else 60.0


SECTIONS = {
    "table_1": table_1,
    "table_2": table_2,
    "table_4": table_4,
    "figure_3": figure_3,
    "figure_4": figure_4,
    "figure_6": figure_6,
    "table_3": table_3,
    "theorem_7": theorem_7,
    "figure_1": figure_1,
    "figure_2": figure_2,
}
PAGES = {"table_1": page_1, "table_2": page_2, "table_3": page_3, "table_4": page_4, "theorem_7": page_7}

if __name__ == "__main__":
    main()
