"""Does gossip train an SVM with few messages, through faults, to a proven gap, and how good is it beside its paper?

    python -m benchmarks.gossip                         all sections, one after the other
    python -m benchmarks.gossip --only ticks,faults     some of them; each writes its own file

Sections: ticks, faults, accuracy, curves, scale, rho, topologies, processes. Unless said otherwise: ten peers, a random
3-regular network, messages to three neighbours in each tick, rows divided at random, five seeds (three for rho and
topologies). A certified gap is the largest that any peer has certified by gossip alone; a true gap is the largest of
any peer's model over the objective of LIBLINEAR, run to a violation of 1e-6. Seconds are of the processor, one thread,
and of all simulated peers together.

Each job runs in a process of its own and is kept in ``SECTION.jobs.jsonl`` as it ends: a run that was interrupted goes
on where it stood. ``--fresh`` drops them, as is due when the code has changed.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks import _figures as figures
from benchmarks import _gossip_runs as runs
from benchmarks import _harness as harness
from benchmarks._gossip_processes import fit_on_workers
from benchmarks._gossip_runs import FAN_OUT, PEERS, Task
from benchmarks._harness import Bar
from benchmarks._jobs import Jobs
from benchmarks.baselines import cutting_plane, pegasos
from benchmarks.sparse import Section
from widemargin import Faults, GossipSVC
from widemargin.peers import topology
from widemargin.peers.peer import Peer
from widemargin.peers.topology import Graph

QUESTION = __doc__
SETS = ("Adult", "MNIST", "Reuters", "USPS")
LEVELS = (1e-2, 1e-3, 1e-4)
SEEDS = 5
TICKS_ALLOWED = {1e-3: 40, 1e-4: 150}  # of fan-out 3 on Adult
FEWER_MESSAGES = 300.0  # than push-sum, to 1e-2
LOSS_COSTS, SORTED_TICKS = 2.5, 1_000
POINTS = 0.2  # of accuracy, beside LinearSVC
SCALE_SECONDS, HUGE_GIB = 120.0, 8.0
MANY_PEERS_TIME = 7_200.0  # of the fit
MANY_PEERS_LIMIT = 2 * MANY_PEERS_TIME  # of the job: the fit, its warm-up, LIBLINEAR, and gaps of ten thousand models
SHAPE_COSTS = 2.0  # times the ticks of a random regular network
COMPARED = ("complete", "random-regular", "star")
LARGEST = {"random-regular": 300, "erdos-renyi": 30, "grid": 30, "ring": 30}  # networks of these shapes; 100 of others
QUICK_ROWS = 2_000
PUSH_SUM_TICKS = 20_000  # limit
_TRUE = 1e-9  # rounding, in comparisons of bounds

# Tables 3 to 5 of the paper: accuracy in percent; seconds without and with the loading of files.
PAPER = {
    "Adult": {"GADGET": (77.04, 0.08, 19.63), "Pegasos": (68.79, 0.02, 27.34), "SVM-Perf": 76.38, "SVM-SGD": 84.14},
    "MNIST": {"GADGET": (88.57, 0.11, 23.61), "Pegasos": (89.81, 0.03, 28.22), "SVM-Perf": 89.91, "SVM-SGD": 82.52},
    "Reuters": {"GADGET": (94.04, 0.16, 15.45), "Pegasos": (95.59, 0.04, 11.07), "SVM-Perf": 94.57, "SVM-SGD": 94.35},
    "USPS": {"GADGET": (92.12, 0.07, 4.26), "Pegasos": (92.33, 0.023, 6.59), "SVM-Perf": 91.62, "SVM-SGD": 91.63},
}
NOT_AVAILABLE = ("CCAT", "Webspam", "Gisette")


def main() -> None:
    chosen = harness.arguments(QUESTION, SECTIONS, options=harness.FRESH)
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        report = Section("gossip", name, quick=chosen.quick)
        SECTIONS[name](report, Jobs(report.folder / f"{name}.jobs.jsonl", fresh=chosen.fresh))


def load(name: str, quick: bool) -> Task:
    return runs.few(runs.load(name), QUICK_ROWS) if quick else runs.load(name)


def names_of(report: Section) -> tuple[str, ...]:
    """Sets of accuracy and curves."""
    return SETS[:1] if report.quick else SETS


def seeds(report: Section, n: int = SEEDS) -> list[int]:
    return list(range(1 if report.quick else n))


def for_all(numbers: Sequence[int], function: str, *arguments: Any) -> list[Any]:
    """Child: a function of this program for several seeds, one after the other; it begins with the seed."""
    return [globals()[function](seed, *arguments) for seed in numbers]


def spread(values: Sequence[float]) -> str:
    """The middle of some numbers, and their ends."""
    if not values or any(value is None for value in values):
        return "not reached"
    return f"{harness.text(median(values))} ({harness.text(min(values))} to {harness.text(max(values))})"


# -- what a fit says, and what is true ---------------------------------------------------------------------------------


def fitted(task: Task, **settings: Any) -> tuple[GossipSVC, float]:
    """A model, and processor seconds."""
    begin = time.process_time()
    with harness.quietly():
        model = GossipSVC(alpha=task.alpha, **settings).fit(task.X, task.y)
    return model, time.process_time() - begin


def warm_up(task: Task, **settings: Any) -> None:
    """Load compiled code, so that it is not timed."""
    with harness.quietly():
        GossipSVC(alpha=task.alpha, **{**settings, "max_iter": 3}).fit(task.X[:200], task.y[:200])


def vectors(model: GossipSVC) -> dict[int, np.ndarray]:
    """The model of each peer, with the intercept last where there is one."""
    return {
        number: np.append(node.coef_[0], node.intercept_) if model.fit_intercept else node.coef_[0]
        for number, node in model.nodes_.items()
    }


def checked(model: GossipSVC, X: Any, y: np.ndarray, alpha: float, numbers: Sequence[int]) -> dict[str, Any]:
    """What these peers have certified for these rows, beside LIBLINEAR's optimum of them."""
    best = runs.optimum(X, y, alpha, has_constant=model.fit_intercept)
    rows = runs.with_constant(X) if model.fit_intercept else X
    models, nodes = vectors(model), model.nodes_
    proofs = {k: nodes[k].certificate for k in numbers if nodes[k].certificate is not None}
    values = {k: runs.objective(rows, y, alpha, models[k]) for k in numbers}
    return {
        "certified": max(nodes[k].gap for k in numbers),
        "true": max(values.values()) / best.objective - 1.0,
        "is_true": all(
            proof.dual <= best.objective * (1 + _TRUE) and abs(proof.primal / values[k] - 1) <= _TRUE
            for k, proof in proofs.items()
        ),
        "optimum": best.objective,
        "has LIBLINEAR converged": best.has_converged,
        "n_rows": len(y),
        "peers": len(numbers),
    }


def reached(history: Sequence[dict[str, float]], level: float) -> dict[str, float] | None:
    """The first tick at which all had certified a gap, and the traffic up to it."""
    row = next((row for row in history if row["primal"] - row["dual"] <= level * row["primal"]), None)
    return None if row is None else {"ticks": row["sweep"], "messages": row["messages"], "bytes": row["bytes"]}


# -- ticks -------------------------------------------------------------------------------------------------------------


def ticks(report: Section, jobs: Jobs) -> None:
    """Adult: ticks, messages and bytes to a certified gap, and messages of push-sum."""
    found: dict[str, Any] = {"levels": LEVELS}
    for constant in (False, True):
        key = "with intercept" if constant else "no intercept"
        found[key] = [jobs(adult_ticks, seed, constant, report.quick) for seed in seeds(report)]
        report.add("ticks", found)
    limit = 500 if report.quick else PUSH_SUM_TICKS
    for solver, fan_out in (("admm", FAN_OUT), ("admm", 1), ("push-sum", FAN_OUT), ("push-sum", 1)):
        key = f"{solver}, fan-out {fan_out}"
        found[key] = [jobs(to_one_percent, solver, fan_out, seed, limit, report.quick) for seed in seeds(report)]
        report.add("ticks", found)
    show_ticks(found)
    report.bars([*tick_bars(found), *message_bars(found, limit)])
    figures.draw_ticks(report, found)


def adult_ticks(seed: int, constant: bool, quick: bool) -> dict[str, Any]:
    """Child: one fit to the lowest level, whose way has the others."""
    task = load("Adult", quick)
    warm_up(task, fit_intercept=constant)
    model, seconds = fitted(task, fit_intercept=constant, tol=LEVELS[-1], random_state=seed)
    return {
        "cpu_seconds": seconds,
        "to": {f"{level:g}": reached(model.history_, level) for level in LEVELS},
        "check": checked(model, task.X, task.y, task.alpha, sorted(model.nodes_)),
        "consensus": model.consensus_,
        "history": [
            {"tick": row["sweep"], "gap": 1 - row["dual"] / row["primal"], "consensus": row["consensus"]}
            for row in model.history_
        ],
    }


def to_one_percent(solver: str, fan_out: int, seed: int, limit: int, quick: bool) -> dict[str, Any]:
    """Child: messages until every peer's model has a true gap of 1e-2, and until every peer has certified one."""
    task = load("Adult", quick)
    best = runs.optimum(task.X, task.y, task.alpha, has_constant=False).objective
    first: dict[str, Any] = {"true": None, "certified": None}
    way: list[dict[str, float]] = []

    def look(moment: runs.Moment) -> bool:
        gap = runs.worst_gap(task.X, task.y, task.alpha, moment.latest, best)
        now = {
            "ticks": moment.tick,
            "messages": moment.messages,
            "bytes": moment.bytes,
            "cpu_seconds": moment.cpu_seconds,
        }
        for kind, value in (("true", gap), ("certified", moment.certified)):
            if first[kind] is None and value <= LEVELS[0]:
                first[kind] = now
        way.append({**now, "true": gap, "certified": moment.certified})
        return all(first.values())

    settings = {"seed": seed, "solver": solver, "fan_out": fan_out, "ticks": runs.sparse_ticks(limit)}
    runs.trace(task, look, **settings)
    return {"first": first, "last": way[-1], "way": way[:: max(1, len(way) // 60)]}


def show_ticks(found: dict[str, Any]) -> None:
    rows = []
    for key in ("no intercept", "with intercept"):
        for level in LEVELS:
            each = [run["to"][f"{level:g}"] for run in found[key]]
            cells = [spread([e and e[name] for e in each]) for name in ("ticks", "messages", "bytes")]
            rows.append([key, f"{level:g}", *cells])
    harness.show("Adult: until every peer has certified a gap", ["", "gap", "ticks", "messages", "bytes"], rows)
    rows = []
    for key in [key for key in found if "fan-out" in key]:
        for kind in ("true", "certified"):
            each = [run["first"][kind] for run in found[key]]
            last = max(run["last"][kind] for run in found[key])
            cells = [spread([e and e[name] for e in each]) for name in ("ticks", "messages", "cpu_seconds")]
            rows.append([key, kind, *cells, last])
    head = ["", "gap of 1e-2", "ticks", "messages", "seconds", "worst gap at the end"]
    harness.show("Adult: messages to a gap of 1e-2 at every peer", head, rows)


def tick_bars(found: dict[str, Any]) -> list[Bar]:
    bars = []
    for key in ("no intercept", "with intercept"):
        for level, allowed in TICKS_ALLOWED.items():
            each = [run["to"][f"{level:g}"] for run in found[key]]
            most = None if None in each else max(e["ticks"] for e in each)
            is_met = most is not None and most <= allowed
            asked, measured = f"<= {allowed} ticks", "not reached" if most is None else f"{most} at most"
            bars.append(Bar(f"Adult, {key}: certified gap {level:g} at every peer", asked, measured, is_met))
        checks = [run["check"] for run in found[key]]
        true, certified = (max(check[kind] for check in checks) for kind in ("true", "certified"))
        text = f"true gap {true:.2g}, certified {certified:.2g}"
        bars.append(
            Bar(
                f"Adult, {key}: certificates beside LIBLINEAR",
                "true",
                text,
                all(check["is_true"] for check in checks),
                is_of_any_size=True,
            )
        )
    return bars


def message_bars(found: dict[str, Any], limit: int) -> list[Bar]:
    """How many times more messages push-sum sends, for each meaning of a gap of 1e-2; a limit gives a lower bound."""
    bars = []
    for fan_out in (FAN_OUT, 1):
        ours, theirs = found[f"admm, fan-out {fan_out}"], found[f"push-sum, fan-out {fan_out}"]
        for kind in ("true", "certified"):
            ratios, is_bound = [], False
            for our, their in zip(ours, theirs, strict=True):
                is_bound |= their["first"][kind] is None
                messages = (their["first"][kind] or their["last"])["messages"]
                if our["first"][kind] is not None:
                    ratios.append(messages / our["first"][kind]["messages"])
            if not ratios:
                continue
            text = f"{'> ' if is_bound else ''}{median(ratios):.0f}, at least {min(ratios):.0f}"
            text += f" (push-sum stopped at {limit} ticks)" if is_bound else ""
            claim = f"messages of push-sum by those of ADMM, fan-out {fan_out}, {kind} gap 1e-2 at every peer"
            bars.append(Bar(claim, f">= {FEWER_MESSAGES:g}", text, min(ratios) >= FEWER_MESSAGES))
    return bars


# -- faults ------------------------------------------------------------------------------------------------------------


def faults(report: Section, jobs: Jobs) -> None:
    """What loss, sorted labels, crashes, returns and cuts cost, and for which rows the certificates then hold."""
    found: dict[str, Any] = {}
    for name in FAULTS:
        found[name] = jobs(for_all, seeds(report), "with_faults", name, report.quick)
        report.add("faults", found)
    head = ["", "ticks", "messages", "worst certified", "worst true", "certificates", "networks at the end"]
    rows = []
    for name, each in found.items():
        groups = [group for run in each for group in run["groups"]]
        rows.append(
            [
                name,
                spread([run["ticks"] for run in each]),
                spread([run["messages"] for run in each]),
                max(group["certified"] for group in groups),
                max(group["true"] for group in groups),
                "true" if all(group["is_true"] for group in groups) else "FALSE",
                ", ".join(sorted({" + ".join(str(g["peers"]) for g in run["groups"]) for run in each})),
            ]
        )
    harness.show("Adult: faults, each network beside LIBLINEAR on the rows that it has", head, rows)
    report.bars(fault_bars(found))
    figures.draw_faults(report, found)


# What goes wrong. Rows are divided at random unless ``sorted``; those who crash leave a network that hangs together.
FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "30% loss": {"faults": Faults(drop=0.3)},
    "30% loss, late by 0 to 3, 5% twice, 10% overtaken": {
        "faults": Faults(drop=0.3, delay=(0, 3), duplicate=0.05, reorder=0.1)
    },
    "peers idle half of the time": {"faults": Faults(idle=0.5)},
    "fan-out 1": {"fan_out": 1},
    "labels sorted, fan-out 1": {"fan_out": 1, "sorted": True},
    "labels sorted, fan-out 3": {"sorted": True},
    "two crash at tick 15": {"crash": 15},
    "two crash at tick 15, rejoin at 80": {"crash": 15, "rejoin": 80},
    "cut into 5 and 5 from tick 5, seen at 150": {"cut": (5, 10**6), "max_iter": 150},
    "cut into 5 and 5 from tick 5 to 80": {"cut": (5, 80)},
}


def with_faults(seed: int, name: str, quick: bool) -> dict[str, Any]:
    """Child: one fit to rows that are divided here, so that it is known whose are whose."""
    task, settings = load("Adult", quick), dict(FAULTS[name])
    shares = runs.parts(len(task.y), PEERS, seed)
    graph = topology.build("random-regular", PEERS, runs.DEGREE, seed)
    if "cut" in settings or "crash" in settings:  # it matters who is where
        settings["topology"] = [(one, other) for one, others in graph.items() for other in others if one < other]
    if settings.pop("sorted", False):
        shares = np.array_split(np.argsort(task.y, kind="stable"), PEERS)
    cut, crash, rejoin = (settings.pop(name, None) for name in ("cut", "crash", "rejoin"))
    if cut is not None:
        settings["faults"] = Faults(partition=[(*cut, apart(graph, PEERS // 2, are_both_whole=True))])
    if crash is not None:
        gone = apart(graph, 2, are_both_whole=False)
        returns = {} if rejoin is None else dict.fromkeys(gone, rejoin)
        settings["faults"] = Faults(crash=dict.fromkeys(gone, crash), rejoin=returns)
    warm_up(task, fit_intercept=False)
    model = GossipSVC(alpha=task.alpha, fit_intercept=False, random_state=seed, **{"max_iter": 2_000, **settings})
    begin = time.process_time()
    with harness.quietly():
        model.fit_shards([(task.X[share], task.y[share]) for share in shares])
    groups = []
    for members in sorted({tuple(sorted(node.members)) for node in model.nodes_.values()}):
        rows = np.concatenate([shares[k] for k in members])
        numbers = [k for k, node in model.nodes_.items() if tuple(sorted(node.members)) == members]
        groups.append(checked(model, task.X[rows], task.y[rows], task.alpha, numbers))
    return {
        "ticks": model.n_iter_,
        "stop": model.stop_reason_,
        "messages": model.cost_.messages,
        "bytes": model.cost_.bytes,
        "cpu_seconds": time.process_time() - begin,
        "groups": groups,
        "history": [{"tick": row["sweep"], "gap": 1 - row["dual"] / row["primal"]} for row in model.history_],
    }


def apart(graph: Graph, n: int, *, are_both_whole: bool) -> list[int]:
    """The first so many peers without whom the others hang together; if asked, as they do themselves."""
    import networkx as nx

    whole = nx.Graph(graph)
    for some in combinations(graph, n):
        others = [k for k in graph if k not in some]
        if nx.is_connected(whole.subgraph(others)) and (not are_both_whole or nx.is_connected(whole.subgraph(some))):
            return list(some)
    raise ValueError(f"Without any {n} of them these peers no longer hang together.")


def fault_bars(found: dict[str, Any]) -> list[Bar]:
    def most(name: str, key: str) -> float:
        return max(run[key] for run in found[name])

    def worst(name: str) -> float:
        return max(group["certified"] for run in found[name] for group in run["groups"])

    ratios = [lossy["ticks"] / whole["ticks"] for lossy, whole in zip(found["30% loss"], found["none"], strict=True)]
    bars = [
        Bar(
            "30% loss: times the ticks to 1e-3",
            f"<= {LOSS_COSTS}",
            f"{spread(ratios)}",
            max(ratios) <= LOSS_COSTS,
        )
    ]
    ticks_sorted, gap = most("labels sorted, fan-out 1", "ticks"), worst("labels sorted, fan-out 1")
    is_met = ticks_sorted <= SORTED_TICKS and gap <= LEVELS[1]
    bars.append(
        Bar("labels sorted, fan-out 1: ticks to 1e-3", f"<= {SORTED_TICKS}", f"{ticks_sorted}, gap {gap:.2g}", is_met)
    )
    for name in [name for name in found if "crash" in name or "cut" in name]:
        groups = [group for run in found[name] for group in run["groups"]]
        sizes = Counter(group["peers"] for group in groups)
        true, is_true = max(group["true"] for group in groups), all(group["is_true"] for group in groups)
        text = f"certified {worst(name):.2g}, true {true:.2g}, peers in a network: " + ", ".join(
            map(str, sorted(sizes))
        )
        expected = {"crash": {8}, "rejoin": {10}, "seen": {5}, "to 80": {10}}
        right = next(sizes_ for word, sizes_ in reversed(expected.items()) if word in name)
        is_met = worst(name) <= LEVELS[1] and is_true and set(sizes) == right
        bars.append(Bar(f"{name}: gap over the optimum of the rows there", "<= 1e-3", text, is_met))
    return bars


# -- accuracy ----------------------------------------------------------------------------------------------------------


def accuracy(report: Section, jobs: Jobs) -> None:
    """Tables 3 to 5 for the sets that are here: test accuracy of all methods, and what the paper prints."""
    found: dict[str, Any] = {"not available": NOT_AVAILABLE, "paper": PAPER}
    bars = []
    for name in names_of(report):
        each = found[name] = dict(jobs(references, name, report.quick))
        for who in METHODS:
            n_seeds = 1 if who == "cutting plane" else SEEDS  # which draws nothing
            each[who] = jobs(for_all, seeds(report, n_seeds), "accuracy_of", who, name, report.quick)
            report.add("accuracy", found)
        show_accuracy(name, each)
        ours = [run["accuracy"] for run in each["GossipSVC"]]
        off = max(abs(100 * (value - each["LinearSVC"]["accuracy"])) for value in ours)
        text = f"{100 * median(ours):.2f} beside {100 * each['LinearSVC']['accuracy']:.2f}, off by {off:.2f} at most"
        bars.append(Bar(f"{name}: points beside LinearSVC(hinge)", f"<= {POINTS}", text, off <= POINTS))
    report.bars(bars)
    figures.draw_gossip_accuracy(report, found, names_of(report), METHODS)


def references(name: str, quick: bool) -> dict[str, Any]:
    """Child: the majority class, and LIBLINEAR on all rows."""
    task = load(name, quick)
    best = runs.optimum(task.X, task.y, task.alpha, has_constant=True)
    share = float(np.mean(task.y_test == np.sign(task.y.sum())))
    wrong = float(runs.errors(runs.with_constant(task.X_test), task.y_test, best.w)[0])
    linear = {
        "accuracy": 1 - wrong,
        "objective": best.objective,
        "cpu_seconds": best.cpu_seconds,
        "has_converged": best.has_converged,
    }
    return {"majority": {"accuracy": share}, "LinearSVC": linear}


METHODS = ("GossipSVC", "push-sum", "Pegasos", "SGDClassifier", "cutting plane", "local only")


def accuracy_of(seed: int, who: str, name: str, quick: bool) -> dict[str, Any]:
    """Child: one method. Accuracy is the mean over peers where there are any, and ``deviation`` theirs."""
    task = load(name, quick)
    X, X_test = runs.with_constant(task.X), runs.with_constant(task.X_test)
    if who in ("GossipSVC", "push-sum"):
        return of_peers(who, task, X_test, seed, quick)
    rng, n = np.random.default_rng(seed), len(task.y)
    if who == "Pegasos":
        pegasos.train(X[:50], task.y[:50], task.alpha, [2], rng)  # loads compiled code
        point = pegasos.train(X, task.y, task.alpha, [20 * n], rng)[-1]
        models, seconds, note = point.w[None, :], point.cpu_seconds, "20 n steps"
    elif who == "SGDClassifier":
        begin = time.process_time()
        model = SGDClassifier(loss="hinge", alpha=task.alpha, average=True, max_iter=20, tol=None, random_state=seed)
        model.fit(task.X, task.y)
        models, note = np.append(model.coef_[0], model.intercept_)[None, :], "20 epochs, averaged"
        seconds = time.process_time() - begin
    elif who == "cutting plane":
        last = cutting_plane.train(X, task.y, task.alpha, tol=1e-3, max_rounds=3_000, max_seconds=60.0)[-1]
        models, seconds, note = last.w[None, :], last.cpu_seconds, f"{last.rounds} rounds, proven gap {last.gap:.2g}"
    else:
        own = [
            runs.optimum(task.X[part], task.y[part], task.alpha, has_constant=True)
            for part in runs.parts(n, PEERS, seed)
        ]
        models, seconds = np.array([each.w for each in own]), sum(each.cpu_seconds for each in own)
        note = "LIBLINEAR on a tenth of the rows, ten times"
    wrong = runs.errors(X_test, task.y_test, models)
    value = float(np.mean([runs.objective(X, task.y, task.alpha, w) for w in models]))
    return {
        "accuracy": float(1 - wrong.mean()),
        "deviation": float(wrong.std()),
        "objective": value,
        "cpu_seconds": seconds,
        "note": note,
    }


def of_peers(who: str, task: Task, X_test: Any, seed: int, quick: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"random_state": seed, "max_iter": 2_000}
    if who == "push-sum":
        settings |= {"solver": who, "max_iter": 100 if quick else 2_000}
    warm_up(task, **settings)
    model, seconds = fitted(task, **settings)
    models = np.array(list(vectors(model).values()))
    wrong = runs.errors(X_test, task.y_test, models)
    X = runs.with_constant(task.X)
    return {
        "accuracy": float(1 - wrong.mean()),
        "deviation": float(wrong.std()),
        "objective": float(np.mean([runs.objective(X, task.y, task.alpha, w) for w in models])),
        "cpu_seconds": seconds,
        "certified": model.certificate_.relative,
        "ticks": model.n_iter_,
        "messages": model.cost_.messages,
        "bytes": model.cost_.bytes,
        "note": f"{model.n_iter_} ticks, certified {model.certificate_.relative:.2g}",
    }


def show_accuracy(name: str, each: dict[str, Any]) -> None:
    paper = PAPER[name]
    best = each["LinearSVC"]["objective"]
    head = ["", "accuracy %", "deviation", "true gap", "seconds", "paper's %", "paper's seconds", ""]
    printed = {"push-sum": "GADGET", "Pegasos": "Pegasos", "SGDClassifier": "SVM-SGD", "cutting plane": "SVM-Perf"}
    rows: list[list[Any]] = [["majority class", 100 * each["majority"]["accuracy"], None, None, None, None, None, ""]]
    linear = each["LinearSVC"]
    rows.append(["LinearSVC(hinge)", 100 * linear["accuracy"], None, 0.0, linear["cpu_seconds"], None, None, "to 1e-6"])
    for who in METHODS:
        values = each[who]
        theirs = paper.get(printed.get(who, ""), (None, None))
        percent, seconds = theirs[:2] if isinstance(theirs, tuple) else (theirs, None)
        deviation = 100 * float(
            np.sqrt(np.mean([v["deviation"] ** 2 for v in values]) + np.var([v["accuracy"] for v in values]))
        )
        gap = median(value["objective"] for value in values) / best - 1
        numbers = 100 * float(np.mean([v["accuracy"] for v in values])), deviation, gap
        rows.append([who, *numbers, median(v["cpu_seconds"] for v in values), percent, seconds, values[0]["note"]])
    harness.show(f"{name}: test accuracy (deviation over peers and seeds, as in the paper)", head, rows)


# -- curves ------------------------------------------------------------------------------------------------------------


def curves(report: Section, jobs: Jobs) -> None:
    """Objective and test error against time and against messages: the paper's figures, and what it left out."""
    found: dict[str, Any] = {}
    for name in names_of(report):
        each = found[name] = dict(jobs(references, name, report.quick))
        for who in METHODS:
            each[who] = jobs(curve_of, who, name, report.quick)
            report.add("curves", found)
        rows = [[who, len(each[who]), *(each[who][-1][key] for key in ("seconds", "gap", "error"))] for who in METHODS]
        harness.show(f"{name}: where curves end", ["", "points", "seconds", "true gap", "test error"], rows)
    figures.draw_gossip_curves(report, found, METHODS)


def curve_of(who: str, name: str, quick: bool) -> list[dict[str, Any]]:
    """Child: points of (seconds, messages, gap of the mean objective, mean test error)."""
    task = load(name, quick)
    X, X_test = runs.with_constant(task.X), runs.with_constant(task.X_test)
    best = runs.optimum(task.X, task.y, task.alpha, has_constant=True).objective
    points: list[dict[str, Any]] = []

    def add(seconds: float, messages: int | None, models: np.ndarray, **more: Any) -> None:
        value = float(np.mean([runs.objective(X, task.y, task.alpha, w) for w in models]))
        wrong = float(runs.errors(X_test, task.y_test, models).mean())
        points.append({"seconds": seconds, "messages": messages, "gap": value / best - 1, "error": wrong, **more})

    n = len(task.y)
    if who in ("GossipSVC", "push-sum"):
        solver = "admm" if who == "GossipSVC" else who
        # A tenth of the time: peers work side by side.
        settings: dict[str, Any] = {
            "seed": 0,
            "solver": solver,
            "has_constant": True,
            "ticks": curve_ticks(who, name, quick),
        }
        settings["is_metric_full"] = name == "Adult"
        warm_up(task, solver=solver)
        runs.trace(
            task,
            lambda at: bool(
                add(at.cpu_seconds / PEERS, at.messages, at.latest, certified=at.certified, bytes=at.bytes)
            ),
            **settings,
        )
    elif who == "Pegasos":
        rng = np.random.default_rng(0)
        pegasos.train(X[:50], task.y[:50], task.alpha, [2], rng)
        steps = np.unique(np.geomspace(100, (2 if quick else 50) * n, 30).astype(int))
        for point in pegasos.train(X, task.y, task.alpha, steps.tolist(), rng):
            add(point.cpu_seconds, None, point.w[None, :], steps=point.steps)
    elif who == "SGDClassifier":
        model, spent = SGDClassifier(loss="hinge", alpha=task.alpha, average=True, random_state=0), 0.0
        for _epoch in range(3 if quick else 30):
            begin = time.process_time()
            model.partial_fit(task.X, task.y, classes=[-1, 1])
            spent += time.process_time() - begin
            add(spent, None, np.append(model.coef_[0], model.intercept_)[None, :])
    elif who == "cutting plane":
        way = cutting_plane.train(X, task.y, task.alpha, tol=1e-3, max_rounds=1_500, max_seconds=30.0)
        for point in way[:: max(1, len(way) // 40)]:
            add(point.cpu_seconds, None, point.w[None, :])
    else:
        own = [runs.optimum(task.X[p], task.y[p], task.alpha, has_constant=True) for p in runs.parts(n, PEERS, 0)]
        add(float(np.mean([each.cpu_seconds for each in own])), 0, np.array([each.w for each in own]))
    return points


def curve_ticks(who: str, name: str, quick: bool) -> list[int]:
    last = {"GossipSVC": 60 if name == "Adult" else 200, "push-sum": 2_000}[who]
    return runs.sparse_ticks(20 if quick else last, dense=10, growth=1.15)


# -- scale -------------------------------------------------------------------------------------------------------------


def scale(report: Section, jobs: Jobs) -> None:
    """A thousand and ten thousand peers on a9a."""
    sizes = [(30, 1e-3)] if report.quick else [(100, 1e-3), (1_000, 1e-3), (10_000, 1e-2)]
    found: dict[str, Any] = {}
    bars = []
    for n_peers, tol in sizes:
        each = jobs(many_peers, n_peers, tol, report.quick, limit=None if report.quick else MANY_PEERS_LIMIT)
        found[f"{n_peers} peers to {tol:g}"] = each
        report.add("scale", found)
        text = f"{each['seconds']:.0f} s on the wall, {each['cpu_seconds']:.0f} of the processor, "
        text += f"{each['peak_gib']:.1f} GiB; {each['ticks']} ticks, "
        text += f"certified {each['certified']:.2g}, true {each['true']:.2g}"
        is_large = n_peers >= 10_000
        is_met = each["stop"] == "gap" and (
            each["peak_gib"] <= HUGE_GIB if is_large else each["seconds"] <= SCALE_SECONDS
        )
        asked = f"<= {HUGE_GIB:g} GiB" if is_large else f"<= {SCALE_SECONDS:g} s"
        bars.append(Bar(f"{n_peers} simulated peers on a9a, every one certified to {tol:g}", asked, text, is_met))
    names = ("stop", "ticks", "certified", "true", "messages", "bytes", "cpu_seconds", "seconds", "peak_gib")
    harness.show("a9a: many peers", ["run", *names], [[k, *(e[name] for name in names)] for k, e in found.items()])
    report.bars(bars)


def many_peers(n_peers: int, tol: float, quick: bool) -> dict[str, Any]:
    """Child: to a certified gap at every one of them."""
    task = load("Adult", quick)
    warm_up(task, metric="diagonal")
    begin = time.perf_counter()
    model, cpu = fitted(task, n_peers=n_peers, tol=tol, max_iter=5_000, max_time=MANY_PEERS_TIME)
    seconds = time.perf_counter() - begin
    check = checked(model, task.X, task.y, task.alpha, sorted(model.nodes_))
    return {
        "stop": model.stop_reason_,
        "ticks": model.n_iter_,
        "messages": model.cost_.messages,
        "bytes": model.cost_.bytes,
        "cpu_seconds": cpu,
        "seconds": seconds,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        **check,
        "history": [{"tick": row["sweep"], "gap": 1 - row["dual"] / row["primal"]} for row in model.history_],
    }


# -- rho ---------------------------------------------------------------------------------------------------------------


def rho(report: Section, jobs: Jobs) -> None:
    """How the rho that adapts does beside fixed ones, in both metrics."""
    found: dict[str, Any] = {}
    factors = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    for metric in ("full", "diagonal"):
        found[metric] = {}
        for factor in (None, *factors):
            key = "adaptive" if factor is None else f"{factor:g}"
            found[metric][key] = jobs(for_all, seeds(report, 3), "with_rho", metric, factor, report.quick)
            report.add("rho", found)
    head = ["metric", "rho by its start", *(f"ticks to {level:g}" for level in LEVELS), "gap at the end"]
    rows = [
        [
            metric,
            key,
            *(spread([run["to"][f"{level:g}"] for run in each]) for level in LEVELS),
            max(r["last"] for r in each),
        ]
        for metric, of_metric in found.items()
        for key, each in of_metric.items()
    ]
    harness.show("Adult: ticks to a certified gap at every peer", head, rows)
    figures.draw_rho(report, found)


def with_rho(seed: int, metric: str, factor: float | None, quick: bool) -> dict[str, Any]:
    """Child: ticks with a rho that is held, as a multiple of what it begins with, or free."""
    task = load("Adult", quick)
    first: dict[str, int | None] = {f"{level:g}": None for level in LEVELS}
    last = [float("inf")]

    def look(moment: runs.Moment) -> bool:
        last[0] = moment.certified
        for level in LEVELS:
            if first[f"{level:g}"] is None and moment.certified <= level:
                first[f"{level:g}"] = moment.tick
        return moment.certified <= LEVELS[-1]

    def hold(peer: Peer) -> None:
        algorithm: Any = peer.algorithm
        if factor is not None:
            algorithm.rho *= factor
            algorithm.set_rho = lambda rho: None

    limit = 50 if quick else 400 if metric == "full" else 1_000
    settings: dict[str, Any] = {"is_metric_full": metric == "full", "prepare": hold, "ticks": range(1, limit + 1)}
    runs.trace(task, look, seed=seed, **settings)
    return {"to": first, "last": last[0], "limit": limit}


# -- topologies --------------------------------------------------------------------------------------------------------


def topologies(report: Section, jobs: Jobs) -> None:
    """How the shape and size of a network matter, beside the spectral gap of its graph."""
    found: dict[str, Any] = {}
    for n_peers in (10,) if report.quick else (10, 30, 100, 300, 1_000):
        for shape in ("random-regular", "erdos-renyi", "complete", "grid", "ring", "star"):
            if n_peers > LARGEST.get(shape, 100):
                continue
            key = f"{shape}, {n_peers} peers"
            # In large networks three seeds only of those that a bar compares.
            each = seeds(report, 3 if n_peers <= 30 or (n_peers == 100 and shape in COMPARED) else 1)
            found[key] = [
                run for seed in each for run in jobs(for_all, [seed], "with_shape", shape, n_peers, report.quick)
            ]
            report.add("topologies", found)
    head = ["", "edges", "diameter", "spectral gap", "ticks to 1e-2", "to 1e-3", "messages", "bytes", "cpu seconds"]
    rows = []
    for key, each in found.items():
        to = [[run["to"][f"{level:g}"] for run in each] for level in LEVELS[:2]]
        numbers = [[run[name] for run in each] for name in ("messages", "bytes", "cpu_seconds")]
        of_graph = [each[0][name] for name in ("edges", "diameter", "spectral gap")]
        rows.append([key, *of_graph, *(spread(values) for values in (*to, *numbers))])
    harness.show("Adult: shapes of networks, fan-out 3", head, rows)
    report.bars(shape_bars(found))
    figures.draw_topologies(report, {key: each for key, each in found.items() if each[0]["n_peers"] <= 100})
    figures.draw_sizes(report, found, LEVELS[1])


def with_shape(seed: int, shape: str, n_peers: int, quick: bool) -> dict[str, Any]:
    """Child: one fit."""
    import networkx as nx

    task = load("Adult", quick)
    warm_up(task, fit_intercept=False)
    settings: dict[str, Any] = {"topology": shape, "n_peers": n_peers, "fit_intercept": False, "random_state": seed}
    model, cpu = fitted(task, **settings, max_iter=2_000)
    graph = nx.Graph(model.graph_)
    levels = np.geomspace(0.1, LEVELS[1], 9)
    first = {f"{level:g}": reached(model.history_, level) for level in (LEVELS[0], *levels)}
    return {
        "n_peers": n_peers,
        "ticks": model.n_iter_ if model.stop_reason_ == "gap" else None,
        "to": {level: None if each is None else each["ticks"] for level, each in first.items()},
        "messages": model.cost_.messages,
        "bytes": model.cost_.bytes,
        "cpu_seconds": cpu,
        "edges": graph.number_of_edges(),
        "diameter": nx.diameter(graph),
        "spectral gap": runs.spectral_gap(graph),
        "certified": model.certificate_.relative,
    }


def shape_bars(found: dict[str, Any]) -> list[Bar]:
    """Complete networks and stars beside random regular ones of the same size."""
    bars = []
    for key, each in found.items():
        shape, size = key.split(", ")
        if shape not in ("complete", "star"):
            continue
        theirs, ours = ([run["ticks"] for run in runs_] for runs_ in (each, found[f"random-regular, {size}"]))
        text = f"{spread(theirs)}, random regular {spread(ours)}"
        is_met = None not in theirs and None not in ours and median(theirs) <= SHAPE_COSTS * median(ours)
        bars.append(
            Bar(f"{key}: ticks to 1e-3 beside a random regular network", f"<= {SHAPE_COSTS:g} times", text, is_met)
        )
    return bars


# -- processes ---------------------------------------------------------------------------------------------------------


def processes(report: Section, jobs: Jobs) -> None:
    """Ten Dask workers, each a process; from here, as a job in a child may not have children of its own."""
    task, found = load("Adult", report.quick), {}
    shares = runs.parts(len(task.y), PEERS, 0)
    graph = topology.build("random-regular", PEERS, runs.DEGREE, 0)
    bars = []
    for name, victims in (("all stay", []), ("two are killed", apart(graph, 2, are_both_whole=False))):
        outcome = fit_on_workers(task, shares, graph, victims, LEVELS[2] if victims else LEVELS[1])
        if outcome is None:
            print("processes: skipped: dask is not installed (pip install 'widemargin[dask]')", flush=True)
            return
        model, each = outcome
        members = sorted(next(iter(model.nodes_.values())).members)
        rows = np.concatenate([shares[k] for k in members])
        found[name] = {**each, **checked(model, task.X[rows], task.y[rows], task.alpha, sorted(model.nodes_))}
        report.add("processes", found)
        bars.append(process_bar(name, found[name], len(victims)))
    report.bars(bars)


def process_bar(name: str, each: dict[str, Any], n_victims: int) -> Bar:
    text = f"certified {each['certified']:.2g}, true {each['true']:.2g}, {each['peers']} peers, {each['seconds']:.1f} s"
    is_met = each["certified"] <= LEVELS[1] and each["is_true"] and each["peers"] == PEERS - n_victims
    if n_victims:
        killed = each["killed"]
        text += ", killed at no time" if killed is None else f", killed at ticks {killed['first']} to {killed['last']}"
        is_met = is_met and killed is not None and killed["last"] < each["ticks"]
    return Bar(f"ten Dask workers, {name}: gap over the optimum of the rows there", "<= 1e-3", text, is_met)


SECTIONS: dict[str, Callable[[Section, Jobs], None]] = {
    "ticks": ticks,
    "faults": faults,
    "accuracy": accuracy,
    "curves": curves,
    "scale": scale,
    "rho": rho,
    "topologies": topologies,
    "processes": processes,
}

if __name__ == "__main__":
    main()
