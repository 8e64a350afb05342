"""What does differential privacy cost? Test accuracy of models that are released with noise.

    python -m benchmarks.privacy                        all sections, one after the other
    python -m benchmarks.privacy --only adult           one of them; each writes its own file

    adult    accuracy against epsilon, for penalties fixed beforehand and for the rule ``suggested_alpha``, which looks
             at no row, beside the best of many penalties without privacy, chosen on the test rows; and what the clip
             changes
    rule     the same rule at three epsilons on other public sets

delta is 1e-5. Ten peers solve the problem once for each penalty and clip, to the gap that the release asks for; then
the mechanism adds its noise 400 times, with the randomness of the operating system. The band is from the 10% to the
90% quantile. Rows are clipped, constant feature included, and features are as published: no scaling depends on the
rows. Files are in ``results/gossip``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _gossip_runs as runs
from benchmarks import _harness as harness
from benchmarks import _sets as sets
from benchmarks._gossip_runs import DEGREE, FAN_OUT, PEERS, Task
from benchmarks._harness import Bar
from benchmarks._jobs import Jobs
from benchmarks.sparse import Section
from widemargin import Faults, GossipSVC, PrivacyAccount
from widemargin.peers import topology
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.private_release import Release, suggested_alpha
from widemargin.solvers.run import Limits
from widemargin.strategies.peers import Network, Peers, has_full_metric
from widemargin.strategies.protocol import Plan, Rows
from widemargin.strategies.release import with_noise

QUESTION = __doc__
DELTA = 1e-5
EPSILONS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
ALPHAS = (3e-4, 1e-3, 3e-3, 1e-2)  # of the curves
PLAIN_ALPHAS = (1e-6, 1e-5, 3.07e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # without privacy
CLIPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # rows of Adult have a length of about 3.9
DRAWS = 400
OTHER_SETS = ("phishing", "mushrooms", "ijcnn1")
RULE_EPSILONS = (0.3, 1.0, 3.0)
POINTS = 1.0  # of accuracy, at epsilon = 1
MAX_TICKS = 5_000
QUICK_ROWS = 2_000


def main() -> None:
    chosen = harness.arguments(QUESTION, SECTIONS, options=harness.FRESH)
    for name in chosen.only:
        print(f"\n== {name}", flush=True)
        report = Section("gossip", FILES[name], quick=chosen.quick)
        SECTIONS[name](report, Jobs(report.folder / f"{FILES[name]}.jobs.jsonl", fresh=chosen.fresh))


def load(name: str, quick: bool) -> Task:
    if name == "Adult":
        task = runs.load(name)
    else:
        train, test = sets.split(name)
        task = Task(*train, *test, np.nan)
    return runs.few(task, QUICK_ROWS) if quick else task


# -- one problem, solved once and released many times ------------------------------------------------------------------


def solved(task: Task, release: Release) -> dict[str, Any]:
    """The model of ten peers at the gap of a release, and what it took."""
    network = Network(
        problem=MeanHinge(release.alpha),
        graph=topology.build("random-regular", PEERS, DEGREE, 0),
        fan_out=FAN_OUT,
        is_metric_full=has_full_metric("auto", release.n_features, PEERS),
        has_constant=True,
        clip=release.clip,
    )
    plan = Plan("GossipSVC", network.problem, Limits(release.tol, MAX_TICKS, np.inf), seed=0)
    rows = [Rows(task.X[part], task.y[part], np.ones(len(part))) for part in runs.parts(len(task.y), PEERS, 0)]
    begin = time.process_time()
    outcome = Peers(plan, network, Faults(), np.array([-1.0, 1.0])).run(rows, None, lambda progress: None)
    (result,) = outcome.results
    return {
        "model": np.append(result.model.coef, result.model.intercept),
        "gap": result.certificate.gap,
        "is solved": result.stop_reason == "gap" and result.certificate.relative <= release.tol,
        "ticks": result.n_iter,
        "cpu_seconds": time.process_time() - begin,
    }


def accuracies(task: Task, models: np.ndarray) -> np.ndarray:
    """On the test rows, which need not be clipped: a row and its multiple get the same class."""
    scores = np.asarray(runs.with_constant(task.X_test) @ models.T)
    return np.asarray((np.where(scores > 0, 1.0, -1.0) == task.y_test[:, None]).mean(axis=0))


def released(name: str, terms: list[tuple[float, float, float]], quick: bool) -> list[dict[str, Any]]:
    """Child: accuracy of many releases for each of some (epsilon, alpha, clip); one network for each alpha and clip."""
    task, found = load(name, quick), []
    networks: dict[tuple[float, float], dict[str, Any]] = {}
    for epsilon, alpha, clip in terms:
        release = Release(epsilon, DELTA, clip, alpha, len(task.y), task.X.shape[1] + 1)
        release.validate()
        if (alpha, clip) not in networks:  # the gap does not depend on epsilon
            networks[alpha, clip] = solved(task, release)
        network = networks[alpha, clip]
        if not network["is solved"]:
            found.append({"epsilon": epsilon, "alpha": alpha, "clip": clip, "is solved": False})
            continue
        models = np.concatenate([with_noise(network["model"][None], release) for _ in range(DRAWS)])
        low, middle, high = np.quantile(accuracies(task, models), (0.1, 0.5, 0.9))
        (without,) = accuracies(task, network["model"][None])
        figures = {"10%": low, "median": middle, "90%": high, "without noise": without}
        found.append(
            {**{key: value for key, value in network.items() if key != "model"}, **release.figures(), **figures}
        )
    return found


def through_the_estimator(name: str, epsilon: float, alpha: float, quick: bool) -> dict[str, Any]:
    """Child: one release by ``GossipSVC`` itself, with its account."""
    task = load(name, quick)
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder) / "account.json"
        PrivacyAccount.create(account, epsilon, DELTA)
        model = GossipSVC(alpha, privacy=(epsilon, DELTA), classes=[-1, 1], account=account, max_iter=MAX_TICKS)
        begin = time.process_time()
        model.fit(task.X, task.y)
        return {"accuracy": model.score(task.X_test, task.y_test), "cpu_seconds": time.process_time() - begin}


def without_privacy(name: str, quick: bool) -> dict[str, Any]:
    """Child: accuracy for each penalty, rows as they are, and the share of the larger class."""
    task, found = load(name, quick), {}
    for alpha in PLAIN_ALPHAS:
        with harness.quietly():
            model = GossipSVC(alpha, random_state=0, max_iter=MAX_TICKS).fit(task.X, task.y)
        found[f"{alpha:g}"] = {"accuracy": model.score(task.X_test, task.y_test), "gap": model.certificate_.relative}
    share = float(np.mean(task.y_test > 0))
    return {"of alpha": found, "majority": max(share, 1 - share), "rows": len(task.y), "features": task.X.shape[1]}


def best_of(plain: dict[str, Any]) -> float:
    return max(each["accuracy"] for each in plain["of alpha"].values())


# -- Adult -------------------------------------------------------------------------------------------------------------


def adult(report: Section, jobs: Jobs) -> None:
    """The curves, and a bar at epsilon = 1."""
    n = QUICK_ROWS if report.quick else len(load("Adult", False).y)
    found: dict[str, Any] = {"without privacy": jobs(without_privacy, "Adult", report.quick)}
    terms = {f"alpha = {alpha:g}": [(epsilon, alpha, 1.0) for epsilon in EPSILONS] for alpha in ALPHAS}
    terms["rule"] = [(epsilon, suggested_alpha(n, epsilon, DELTA), 1.0) for epsilon in EPSILONS]
    terms["clip"] = [(1.0, suggested_alpha(n, 1.0, DELTA, clip), clip) for clip in CLIPS]
    for key, each in terms.items():
        found[key] = jobs(released, "Adult", each, report.quick)
        report.add("adult", found)
    one = suggested_alpha(n, 1.0, DELTA)
    found["by GossipSVC"] = jobs(through_the_estimator, "Adult", 1.0, one, report.quick)
    report.add("adult", found)
    best = best_of(found["without privacy"])
    names = ("epsilon", "alpha", "clip", "10%", "median", "90%", "without noise", "ticks", "cpu_seconds")
    head = ["", *names]
    rows = [[key, *(each.get(name) for name in names)] for key in terms for each in found[key]]
    harness.show(f"Adult: accuracy of released models; without privacy at best {best:.4f}", head, rows)
    (ours,) = [each for each in found["rule"] if each["epsilon"] == 1.0]
    behind = 100 * (best - ours["median"])
    text = f"{100 * ours['median']:.2f} ({100 * ours['10%']:.2f} to {100 * ours['90%']:.2f}) beside {100 * best:.2f}"
    report.bars(
        [Bar("Adult, (1, 1e-5): points behind the best without privacy", f"<= {POINTS:g}", text, behind <= POINTS)]
    )
    draw(report, found, best)


def draw(report: Section, found: dict[str, Any], best: float) -> None:
    figure, panels = harness.axes(2, width=5.6, height=4.2)
    panel, clips = panels[0]
    for k, key in enumerate(["rule", *(f"alpha = {alpha:g}" for alpha in ALPHAS)]):
        _band(panel, found[key], "epsilon", k, "alpha by the rule" if key == "rule" else key)
    _band(clips, found["clip"], "clip", 0, "alpha by the rule")
    low, high = min(each["10%"] for each in found["rule"]), best
    for each, title in ((panel, "Adult, delta = 1e-5, R = 1"), (clips, "Adult, (1, 1e-5): the clip")):
        each.axhline(100 * best, color="0.3", linestyle="-", linewidth=1.2, label="best without privacy")
        majority = 100 * found["without privacy"]["majority"]
        each.axhline(majority, color="0.3", linestyle=":", linewidth=1.4, label="majority class")
        each.set(title=title, xscale="log", ylabel="test accuracy, %")
        each.set_ylim(100 * max(0.5, low - 0.05), 100 * high + 1)
    panel.set(xlabel="epsilon")
    clips.set(xlabel="R (rows have a length of about 3.9)")
    harness.legend_below(figure, panels, 4)
    report.picture(figure, "privacy")


def _band(panel: Any, each: list[dict[str, Any]], x: str, number: int, label: str) -> None:
    """The median, and the band from 10% to 90%."""
    each = [point for point in each if point["is solved"]]
    low, middle, high = (100 * np.array([point[name] for point in each]) for name in ("10%", "median", "90%"))
    at = [point[x] for point in each]
    panel.plot(at, middle, label=label, **harness.style(number))
    panel.fill_between(at, low, high, color=harness.COLOURS[number % len(harness.COLOURS)], alpha=0.15, linewidth=0)


# -- the rule on other sets --------------------------------------------------------------------------------------------


def rule(report: Section, jobs: Jobs) -> None:
    """``suggested_alpha`` where it was not tried before."""
    found: dict[str, Any] = {}
    rows = []
    for name in OTHER_SETS:
        plain = jobs(without_privacy, name, report.quick)
        terms = [(epsilon, suggested_alpha(plain["rows"], epsilon, DELTA), 1.0) for epsilon in RULE_EPSILONS]
        found[name] = {"without privacy": plain, "rule": jobs(released, name, terms, report.quick)}
        report.add("rule", found)
        cells = [f"{100 * each['median']:.1f}" if each["is solved"] else "not solved" for each in found[name]["rule"]]
        rows.append([name, plain["rows"], f"{100 * plain['majority']:.1f}", *cells, f"{100 * best_of(plain):.1f}"])
    head = ["", "rows", "majority", *(f"epsilon {epsilon:g}" for epsilon in RULE_EPSILONS), "without privacy"]
    harness.show("Median accuracy in percent, alpha by the rule, R = 1", head, rows)


SECTIONS = {"adult": adult, "rule": rule}
FILES = {"adult": "privacy", "rule": "privacy_rule"}  # in the folder of the benchmarks of gossip

if __name__ == "__main__":
    main()
