"""GADGET's paper as its authors made it: ten nodes, rows AND test rows divided, five trials.

    python -m benchmarks.gossip_paper                              all sections
    python -m benchmarks.gossip_paper --only table_5               one; each writes its own file
    python -m benchmarks.gossip_paper --only table_3 --sets MNIST  one set; what the others have found stays

Sections: table_2, table_3 (with Table 4, and verdicts on the claims of both), table_5, figure_4 (Figures 4.1 to 4.3),
theorem_1.

GADGET is ``baselines/gadget_as_printed.py`` until no node's w changes by more than .001 of its length, with the
indicator without which it does not stop, and without it for 2,000 steps; Pegasos has all rows and the same rule.
SVM-Perf and SVM-SGD run at each node on its own rows, without messages, as in Table 4. Accuracy and seconds are means
over nodes and trials, and deviations are sqrt(Var(nodes) + Var(trials)), as the paper has them. Seconds are of the
processor; a node's are a tenth of those of all ten, which work side by side. Table 5 adds the time to read a node's
rows from LIBSVM text, which the paper counts as training, and its speed-up is that of equation (25): distributed over
centralised, so that less is better.

Trials come one after the other, each with all methods, and files are written after each. Jobs are kept in
``SECTION.jobs.jsonl`` as they end; ``--fresh`` drops them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.linear_model import SGDClassifier

from benchmarks import _gossip_figures as figures
from benchmarks import _gossip_runs as runs
from benchmarks import _gossip_theorem as theorem
from benchmarks import _harness as harness
from benchmarks._gossip_runs import DEGREE, PEERS, Task
from benchmarks._jobs import Jobs
from benchmarks.baselines import cutting_plane, gadget_as_printed
from benchmarks.gossip import PAPER, QUICK_ROWS, fitted, vectors, warm_up
from benchmarks.sparse import Section
from widemargin.peers import topology

QUESTION = __doc__
SETS = ("Adult", "Reuters", "USPS", "MNIST")  # the slowest last
TRIALS = 5
MOST_STEPS = 10_000
PRINTED_STEPS = 2_000  # of what does not stop
TICKS_OF_CURVES = {"push-sum": 2_000, "GossipSVC": 200}
METHODS = ("GADGET", "GADGET as printed", "Pegasos", "SVM-SGD", "GossipSVC", "SVM-Perf")
RIVALS = ("Pegasos", "SVM-Perf", "SVM-SGD")
# The paper calls its accuracies comparable, and the largest shortfall in its Table 3 is that on Webspam: 80.04 - 77.49.
COMPARABLE = 2.55
# Table 2: rows, test rows, features, as printed.
TABLE_2 = {
    "Adult": (32_561, 16_281, 123),
    "MNIST": (60_000, 10_000, 784),
    "Reuters": (7_770, 3_299, 8_315),
    "USPS": (7_329, 1_969, 256),
    "CCAT": (781_265, 23_149, 47_236),
    "Webspam": (234_500, 115_500, 254),
}


OPTIONS: dict[str, Any] = {
    "--sets": {"help": "sets of Tables 3 to 5, with commas between them; what the others have found stays"},
    **harness.FRESH,
}


def main() -> None:
    chosen = harness.arguments(QUESTION, SECTIONS, options=OPTIONS)
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        report = Section("gossip_paper", name, quick=chosen.quick)
        names = chosen.sets.split(",") if chosen.sets else SETS_OF.get(name, SETS)[: 1 if chosen.quick else None]
        SECTIONS[name](report, Jobs(report.folder / f"{name}.jobs.jsonl", fresh=chosen.fresh), names)


def load(name: str, quick: bool) -> Task:
    return runs.few(runs.load(name), QUICK_ROWS) if quick else runs.load(name)


# -- Table 2 -----------------------------------------------------------------------------------------------------------


def table_2(report: Section, jobs: Jobs, names: Sequence[str]) -> None:
    """Sizes of the sets here beside those printed; None where a set cannot be had."""
    found: dict[str, Any] = {}
    for name, printed in TABLE_2.items():
        here = jobs(sizes, name) if name in SETS else None
        found[name] = {"printed": printed, "here": here, "lambda": runs.ALPHAS.get(name)}
    report.add("table_2", found)
    rows = [[name, *each["printed"], *(each["here"] or [None] * 4), each["lambda"]] for name, each in found.items()]
    head = ["set", "paper: rows", "test rows", "features", "here: rows", "test rows", "features", "non-zero", "lambda"]
    write(report, "table_2", "Table 2", head, rows)


def sizes(name: str) -> list[float]:
    """Child: rows, test rows, features, share of entries that are not zero."""
    task = runs.load(name)
    n, d = task.X.shape
    return [n, len(task.y_test), d, np.count_nonzero(np.asarray(task.X.data)) / (n * d)]


# -- Tables 3 and 4 ----------------------------------------------------------------------------------------------------


def table_3(report: Section, jobs: Jobs, names: Sequence[str]) -> None:
    """Accuracy and time of GADGET and of Pegasos on all rows, and of the solvers that run at each node alone."""
    found: dict[str, Any] = report.read("table_3").get("table_3", {})
    for name in names:
        each: dict[str, list[Any]] = {who: [] for who in METHODS}
        for seed in range(1 if report.quick else TRIALS):
            trials = {who: jobs(trial, who, name, seed, report.quick) for who in METHODS}
            each = {who: [*each[who], one] for who, one in trials.items()}
            found[name] = each
            report.add("table_3", found)
            report.add("verdicts", verdicts(found))
        show_table_3(report, found)
    show_verdicts(report, verdicts(found))


def verdicts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Is GADGET as accurate as its rivals? By means over nodes and trials, in points; and what is built here."""
    result = []
    for name, methods in found.items():
        accuracy = {who: 100 * spread(each, "accuracy")[0] for who, each in methods.items()}
        for rival in RIVALS:
            theirs = [
                each[0] if isinstance(each, tuple) else each for each in (PAPER[name]["GADGET"], PAPER[name][rival])
            ]
            points = {who: accuracy[who] - accuracy[rival] for who in ("GADGET", "GADGET as printed", "GossipSVC")}
            printed = theirs[0] - theirs[1]
            result.append(
                {
                    "set": name,
                    "rival": rival,
                    "trials": len(methods[rival]),
                    "paper": printed,
                    **points,
                    "verdict": {who: word(value) for who, value in {"paper": printed, **points}.items()},
                }
            )
    return result


def word(points: float) -> str:
    """``COMPARABLE`` points are the most that the paper itself calls so."""
    return "comparable" if abs(points) <= COMPARABLE else "better" if points > 0 else "worse"


def show_verdicts(report: Section, found: list[dict[str, Any]]) -> None:
    who = ("paper", "GADGET", "GADGET as printed", "GossipSVC")
    rows = [
        [each["set"], each["rival"], *(f"{each[one]:+.2f}: {each['verdict'][one]}" for one in who)] for each in found
    ]
    head = ["set", "beside", "paper", "GADGET with its indicator", "GADGET as printed", "GossipSVC"]
    title = f"Points of accuracy beside others; comparable within {COMPARABLE:g}"
    write(report, "verdicts", title, head, rows)


def show_table_3(report: Section, found: dict[str, Any]) -> None:
    rows = []
    for name, methods in found.items():
        for who, each in methods.items():
            paper = PAPER[name].get(who)
            percent, seconds = (paper[:2] if isinstance(paper, tuple) else (paper, None)) if paper else (None, None)
            accuracy, seconds_here = spread(each, "accuracy"), spread(each, "seconds")
            ends = [sum(one["has_stopped"] for one in each), len(each), float(np.mean([one["steps"] for one in each]))]
            gap = float(np.mean([one["gap"] for one in each]))
            rows.append([name, who, *(100 * value for value in accuracy), percent, *seconds_here, seconds, gap, *ends])
    head = ["set", "who", "accuracy %", "deviation", "paper's %", "seconds", "deviation", "paper's", "true gap"]
    head += ["stopped", "of", "steps"]
    write(report, "table_3", "Tables 3 and 4", head, rows)


def spread(trials: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """Mean, and sqrt(Var(nodes) + Var(trials)): nodes within a trial, and the means of trials."""
    values = np.array([one[key] for one in trials])
    return float(values.mean()), float(np.sqrt(values.var(axis=1).mean() + values.mean(axis=1).var()))


def trial(who: str, name: str, seed: int, quick: bool) -> dict[str, Any]:
    """Child: one division of rows and test rows; accuracies and seconds of nodes, one of each for Pegasos."""
    task = load(name, quick)
    X, X_test = runs.with_constant(task.X), runs.with_constant(task.X_test)
    parts = runs.parts(len(task.y), PEERS, seed)
    tests = runs.parts(len(task.y_test), PEERS, seed)
    shards = [(X[part], task.y[part]) for part in parts]
    models, seconds, has_stopped, steps = outcome(who, task, shards, X, seed)
    if len(models) == 1:  # on all test rows
        tests = [np.arange(len(task.y_test))]
    wrong = [runs.errors(X_test[test], task.y_test[test], w)[0] for w, test in zip(models, tests, strict=True)]
    best = runs.optimum(task.X, task.y, task.alpha, has_constant=True).objective
    values = [runs.objective(X, task.y, task.alpha, w) for w in models]
    return {
        "accuracy": [1 - float(share) for share in wrong],
        "seconds": seconds,
        "gap": float(np.mean(values)) / best - 1,
        "has_stopped": has_stopped,
        "steps": steps,
    }


def outcome(
    who: str, task: Task, shards: list[tuple[Any, np.ndarray]], X: Any, seed: int
) -> tuple[np.ndarray, list[float], bool, int]:
    """Models, seconds of each node, whether the method's own rule ended it, and steps."""
    rng, m = np.random.default_rng(seed), len(shards)
    if who in ("GADGET", "GADGET as printed", "Pegasos"):
        graph = topology.build("random-regular", m, DEGREE, seed)
        settings: dict[str, Any] = {"has_indicator": True, "max_steps": MOST_STEPS}
        if who == "GADGET as printed":
            settings = {"max_steps": PRINTED_STEPS}
        if who == "Pegasos":
            shards, graph = [(X, task.y)], {0: []}
        end = gadget_as_printed.train(shards, task.alpha, graph, rng, **settings)
        nodes = len(shards)
        return end.models, [end.cpu_seconds / nodes] * nodes, end.has_stopped, end.steps
    if who == "GossipSVC":
        warm_up(task, random_state=seed, max_iter=2_000)
        model, seconds = fitted(task, random_state=seed, max_iter=2_000)
        return np.array(list(vectors(model).values())), [seconds / m] * m, model.stop_reason_ == "gap", model.n_iter_
    models, seconds_of, stopped, steps = [], [], True, 0
    for rows, y in shards:
        begin = time.process_time()
        if who == "SVM-Perf":
            last = cutting_plane.train(rows, y, task.alpha, tol=1e-3, max_rounds=3_000, max_seconds=60.0)[-1]
            w, stopped, steps = last.w, stopped and last.gap <= 1e-3, max(steps, last.rounds)
        else:  # five passes, as svmsgd does by default
            sgd = SGDClassifier(loss="hinge", alpha=task.alpha, max_iter=5, tol=None, random_state=seed)
            sgd.fit(rows[:, :-1], y)
            w, steps = np.append(sgd.coef_[0], sgd.intercept_), 5 * len(y)
        models.append(w)
        seconds_of.append(time.process_time() - begin)
    return np.array(models), seconds_of, stopped, steps


# -- Table 5 -----------------------------------------------------------------------------------------------------------


def table_5(report: Section, jobs: Jobs, names: Sequence[str]) -> None:
    """The same times with those of loading, and the paper's speed-up."""
    trained = report.read("table_3").get("table_3", {})
    if not trained:
        raise SystemExit("table_5 needs table_3: python -m benchmarks.gossip_paper --only table_3")
    found: dict[str, Any] = {}
    rows = []
    for name in [name for name in trained if name in names]:
        methods = trained[name]
        loading = [jobs(loaded, name, seed, report.quick) for seed in range(len(methods["GADGET"]))]
        times = {}
        for who in ("GADGET", "Pegasos"):
            sums = [
                {"seconds": list(np.array(one["seconds"]) + np.array(read[who]))}
                for one, read in zip(methods[who], loading, strict=True)
            ]
            times[who] = spread(sums, "seconds")
        speed_up = times["GADGET"][0] / times["Pegasos"][0]
        theirs = [PAPER[name][who][2] for who in ("GADGET", "Pegasos")]
        found[name] = {"loading": loading, "seconds": times, "speed-up": speed_up, "paper": theirs}
        rows.append([name, *times["GADGET"], *times["Pegasos"], speed_up, *theirs, theirs[0] / theirs[1]])
    report.add("table_5", found)
    head = ["set", "GADGET, s", "deviation", "Pegasos, s", "deviation", "speed-up (25)", "paper: GADGET", "Pegasos"]
    write(report, "table_5", "Table 5: with loading", [*head, "speed-up"], rows)


def loaded(name: str, seed: int, quick: bool) -> dict[str, list[float]]:
    """Child: seconds to read the rows of each node, and all of them, from LIBSVM text."""
    task = load(name, quick)
    with tempfile.TemporaryDirectory() as folder:
        nodes = []
        for k, part in enumerate(runs.parts(len(task.y), PEERS, seed)):
            path = Path(folder) / f"{k}.txt"
            dump_svmlight_file(task.X[part], task.y[part], str(path))
            nodes.append(seconds_to_read(path))
        whole = Path(folder) / "all.txt"
        dump_svmlight_file(task.X, task.y, str(whole))
        return {"GADGET": nodes, "Pegasos": [seconds_to_read(whole)]}


def seconds_to_read(path: Path) -> float:
    begin = time.process_time()
    load_svmlight_file(str(path))
    return time.process_time() - begin


def write(report: Section, name: str, title: str, head: list[str], rows: list[list[Any]]) -> None:
    harness.show(title, head, rows)
    (report.folder / f"{name}.md").write_text(harness.markdown(title, head, rows), encoding="utf8")


# -- Figures 4.1 to 4.3 ------------------------------------------------------------------------------------------------


def figure_4(report: Section, jobs: Jobs, names: Sequence[str]) -> None:
    """Objective and test error over the time of a node: printed, with the indicator, mended, and rivals."""
    found: dict[str, Any] = report.read("figure_4").get("figure_4", {})
    for name in names:
        runs_of: dict[str, list[Any]] = {who: [] for who in CURVES}
        for seed in range(1 if report.quick else TRIALS):
            for who in CURVES:
                runs_of[who].append(jobs(way, who, name, seed, report.quick))
            found[name] = {"optimum": jobs(reference, name, report.quick), "runs": runs_of}
            report.add("figure_4", found)
            figures.draw_figure_4(report, found)
        rows = [
            [who, len(each), *(float(np.mean([run[-1][key] for run in each])) for key in ("seconds", "gap", "error"))]
            for who, each in runs_of.items()
        ]
        harness.show(f"{name}: where curves end", ["", "trials", "seconds", "true gap", "test error"], rows)


CURVES = ("GADGET as printed", "GADGET", "Pegasos", "push-sum", "GossipSVC")


def reference(name: str, quick: bool) -> dict[str, float]:
    """Child: LIBLINEAR's objective and test error on all rows, and the test error of the larger class."""
    task = load(name, quick)
    best = runs.optimum(task.X, task.y, task.alpha, has_constant=True)
    error = runs.errors(runs.with_constant(task.X_test), task.y_test, best.w)[0]
    majority = float(np.mean(task.y_test != np.sign(task.y.sum())))
    return {"objective": best.objective, "error": float(error), "majority": majority}


def way(who: str, name: str, seed: int, quick: bool) -> list[dict[str, float]]:
    """Child: (seconds of a node, mean gap, mean test error on the node's test rows) on the way of one trial."""
    task = load(name, quick)
    X, X_test = runs.with_constant(task.X), runs.with_constant(task.X_test)
    best = runs.optimum(task.X, task.y, task.alpha, has_constant=True).objective
    tests = runs.parts(len(task.y_test), PEERS, seed)
    points: list[dict[str, float]] = []

    def add(step: int, seconds: float, models: np.ndarray) -> None:
        on = tests if len(models) > 1 else [np.arange(len(task.y_test))]
        wrong = [runs.errors(X_test[rows], task.y_test[rows], w)[0] for rows, w in zip(on, models, strict=True)]
        value = float(np.mean([runs.objective(X, task.y, task.alpha, w) for w in models]))
        points.append({"step": step, "seconds": seconds, "gap": value / best - 1, "error": float(np.mean(wrong))})

    if who in ("push-sum", "GossipSVC"):
        solver = "admm" if who == "GossipSVC" else who
        warm_up(task, solver=solver)
        last = 30 if quick else TICKS_OF_CURVES[who]
        runs.trace(
            task,
            lambda at: bool(add(at.tick, at.cpu_seconds / PEERS, at.latest)),
            seed=seed,
            solver=solver,
            has_constant=True,
            is_metric_full=name == "Adult",
            ticks=runs.sparse_ticks(last, dense=3, growth=1.35),
        )
        return points
    parts, graph = runs.parts(len(task.y), PEERS, seed), topology.build("random-regular", PEERS, DEGREE, seed)
    shards = [(X[part], task.y[part]) for part in parts]
    if who == "Pegasos":
        shards, graph = [(X, task.y)], {0: []}
    most = 50 if quick else PRINTED_STEPS if who == "GADGET as printed" else MOST_STEPS
    end = gadget_as_printed.train(
        shards,
        task.alpha,
        graph,
        np.random.default_rng(seed),
        has_indicator=who != "GADGET as printed",
        max_steps=most,
        look=lambda at: add(at.step, at.cpu_seconds / len(shards), at.models),
        look_at=set(runs.sparse_ticks(most, dense=3, growth=1.35)),
    )
    if points[-1]["step"] != end.steps:
        add(end.steps, end.cpu_seconds / len(shards), end.models)
    return points


# -- Theorem 1 ---------------------------------------------------------------------------------------------------------


def theorem_1(report: Section, jobs: Jobs, names: Sequence[str]) -> None:
    """The consensus error over rounds of Push-Sum beside the walk's, and both sides of the inequality."""
    found: dict[str, Any] = report.read("theorem_1").get("theorem_1", {})
    n_seeds, max_steps = (1, 60) if report.quick else (SEEDS_OF_THEOREM, 500)
    for name in names:
        for shape in theorem.SHAPES:
            each = found.setdefault(name, {}).setdefault(shape, {})
            each["decay"] = [jobs(decay, name, shape, seed, report.quick) for seed in range(n_seeds)]
            each["inequality"] = {
                str(n): jobs(inequality, name, shape, n, 0, max_steps, report.quick) for n in theorem.ROUNDS_OF_A_STEP
            }
            report.add("theorem_1", found)
    rows: list[list[Any]] = []
    for name, shapes in found.items():
        for shape, each in shapes.items():
            for seed, one in enumerate(each["decay"]):
                numbers = [
                    one[who][key] for who in ("all neighbours", "one at random") for key in ("factor", "correlation")
                ]
                rows.append([name, shape, seed, one["factor of B"], *numbers])
    head = ["set", "network", "seed", "promised: factor of B", "all neighbours", "r", "one at random", "r"]
    write(report, "theorem_1_slopes", "Consensus error: factor of a round", head, rows)
    rows = [
        [name, shape, n, *one.values()]
        for name, shapes in found.items()
        for shape, each in shapes.items()
        for n, one in each["inequality"].items()
    ]
    head = ["set", "network", "rounds a step", *next(iter(each["inequality"].values()))]
    write(report, "theorem_1", "Theorem 1: both sides of (11)", head, rows)
    figures.draw_theorem_1(report, found)


SEEDS_OF_THEOREM = 3


def decay(name: str, shape: str, seed: int, quick: bool) -> dict[str, Any]:
    """Child."""
    return theorem.decay(load(name, quick), shape, seed)


def inequality(name: str, shape: str, n_rounds: int, seed: int, max_steps: int, quick: bool) -> dict[str, Any]:
    """Child."""
    return theorem.inequality(load(name, quick), shape, n_rounds, seed, max_steps)


SECTIONS = {"table_2": table_2, "table_3": table_3, "table_5": table_5, "figure_4": figure_4, "theorem_1": theorem_1}
SETS_OF = {"theorem_1": ("Adult", "USPS")}  # other sections have all

if __name__ == "__main__":
    main()
