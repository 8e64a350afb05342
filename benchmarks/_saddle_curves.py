"""The runs behind Figures 1, 2, 3, 4 and 6 of the saddle point paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import NuSVC

from benchmarks import _harness as harness
from benchmarks._jobs import Jobs
from benchmarks._ranks import Recording, accuracies, first_below, gaps, solve_alone, solve_on_ranks, units
from benchmarks._sets import ALPHA, Rows, load, nu_of, shuffled, split
from benchmarks.baselines.gilbert import Gilbert
from benchmarks.baselines.hogwild import Hinge, Hogwild
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.run import Limits, Result
from widemargin.solvers.saddle import SaddlePoint

RANKS = 20
GAP = 1e-3
GAPS = (0.1, 0.01, GAP)
HOGWILD_C = 32.0
NEAR = 0.005  # of the best accuracy at the end of a method, Figure 6
LADDER = (1, 4_000, -1)  # NuSVC's max_iter, to see it on its way; -1 is to the end


def problem_of(y: np.ndarray) -> NuMargin:
    return NuMargin(nu_of(y, ALPHA))


def seconds_curves(name: str, jobs: Jobs, peer_limit: float) -> dict[str, Any]:
    """Objective and test accuracy against seconds: Saddle-SVC, Newton and NuSVC at alpha .85 (Figures 1 and 2)."""
    train, test = split(name)
    problem, limits = problem_of(train.y), Limits(GAP, 10_000, 20.0)
    found: dict[str, Any] = {"n": train.X.shape[0], "d": train.X.shape[1], "curves": {}}
    for who, solver in (("Saddle-SVC", SaddlePoint()), ("Newton", EntropicNewton())):
        solve_alone(solver, problem, train, Limits(GAP, 1))  # compiles
        recording = Recording(solver)
        result = solve_alone(recording, problem, train, limits)
        curve = {
            "seconds": [row["seconds"] for row in result.history],
            "distance": [row["primal"] for row in result.history],
            "accuracy": accuracies(recording.directions, problem, train, test),
            "gap": result.certificate.relative,
            "stop": result.stop_reason,
        }
        end = {key: curve[key][-1] for key in ("seconds", "distance", "accuracy")}
        found["curves"][who] = {**curve, "end": end}
    found["curves"]["NuSVC"] = nu_svc_curve(name, jobs, peer_limit)
    return found


def nu_svc_curve(name: str, jobs: Jobs, limit: float) -> dict[str, Any]:
    """NuSVC stopped after more and more steps, as long as a run ends within its time limit."""
    curve: dict[str, Any] = {"seconds": [], "distance": [], "accuracy": [], "stop": f"limit of {limit:g} s"}
    for max_iter in LADDER:
        point = jobs(nu_svc_point, name, max_iter, limit=limit)
        if point is None:
            break
        for key in ("seconds", "distance", "accuracy"):
            curve[key].append(point[key])
        if point["converged"]:
            curve["stop"] = "converged"
            break
    return curve


def nu_svc_point(name: str, max_iter: int) -> dict[str, Any]:
    """In a process of its own: NuSVC on the training rows."""
    train, test = split(name)
    with harness.quietly() as said:
        peer = NuSVC(kernel="linear", nu=nu_of(train.y, ALPHA), max_iter=max_iter)
        timing, model = harness.measure_peer(lambda: peer.fit(*train), repeats=1)
    converged = max_iter == -1 or harness.has_converged(said)
    return {
        "seconds": timing.seconds,
        "distance": hull_distance(model, train),
        "accuracy": float(model.score(*test)),
        "converged": converged,
    }


def hull_distance(model: Any, train: Rows) -> float:
    """The distance of the two points of the reduced hulls that LIBSVM's masses stand for."""
    masses = np.asarray(model.dual_coef_.todense() if sp.issparse(model.dual_coef_) else model.dual_coef_).ravel()
    total = masses[masses > 0].sum()
    return float(np.linalg.norm(masses @ train.X[model.support_] / total)) if total > 0 else float("nan")


def margin_curves(name: str, limit: float) -> dict[str, Any]:
    """Margin against communication: Saddle-DSVC with one and with eight coordinates a round, and Gilbert (Figure 3)."""
    rows = shuffled(load(name))
    limits = Limits(GAP, 10**6, limit)
    solvers = {"Saddle-DSVC b=1": SaddlePoint(1), "Saddle-DSVC b=8": SaddlePoint(8), "Gilbert": Gilbert()}
    return {
        who: curve_of(solve_alone(solver, HardMargin(), rows, limits, counted_as=RANKS), rows)
        for who, solver in solvers.items()
    }


def objective_curves(name: str, limit: float) -> dict[str, Any]:
    """Hull distance against communication for nu: Saddle-DSVC, and Newton on real ranks (Figure 4)."""
    rows = shuffled(load(name))
    problem, limits = problem_of(rows.y), Limits(GAP, 10**6, limit)
    found = {
        f"Saddle-DSVC b={b}": curve_of(solve_alone(SaddlePoint(b), problem, rows, limits, counted_as=RANKS), rows)
        for b in (1, 8)
    }
    return {**found, "Newton": curve_of(solve_on_ranks(EntropicNewton(), problem, rows, RANKS, limits), rows)}


def curve_of(result: Result, rows: Rows) -> dict[str, Any]:
    """Units of k d, distance and margin of each certified sweep, and the units to some gaps."""
    cost = units(result, RANKS, rows.X.shape[1])
    return {
        "units": cost,
        "to gap": {f"{gap:g}": first_below(gap, gaps(result), cost) for gap in GAPS},
        "distance": [row["primal"] for row in result.history],
        "margin": [row["dual"] for row in result.history],
        "gap": result.certificate.relative,
        "stop": result.stop_reason,
    }


def accuracy_curves(name: str, limit: float) -> dict[str, Any]:
    """Test accuracy against communication: Saddle-DSVC and Newton (nu), HOGWILD! (C-SVM) and Gilbert (Figure 6)."""
    train, test = split(name)
    train = shuffled(train)
    nu_problem, limits = problem_of(train.y), Limits(GAP, 10**6, limit)
    found: dict[str, Any] = {}
    for who, solver, problem in (
        ("Saddle-DSVC b=1", SaddlePoint(1), nu_problem),
        ("Saddle-DSVC b=8", SaddlePoint(8), nu_problem),
        ("Newton", EntropicNewton(), nu_problem),
        ("Gilbert", Gilbert(), HardMargin()),
    ):
        recording = Recording(solver)
        result = solve_alone(recording, problem, train, limits, counted_as=RANKS)
        keep = np.unique(np.geomspace(1, len(result.history), 60).astype(int)) - 1
        directions = [recording.directions[i] for i in keep]
        cost = np.array(units(result, RANKS, train.X.shape[1]))[keep]
        accuracy = accuracies(directions, problem, train, test)
        found[who] = {"units": cost.tolist(), "accuracy": accuracy, "stop": result.stop_reason}
    found["HOGWILD!"] = hogwild_curve(train, test, n_sweeps=120)
    aim = max(curve["accuracy"][-1] for curve in found.values()) - NEAR
    for curve in found.values():
        curve["to aim"] = settled(curve["units"], curve["accuracy"], aim)
    return found


def settled(cost: list[float], accuracy: list[float], aim: float) -> dict[str, float | None]:
    """Units until the accuracy is first at ``aim`` and until it is for good; by how much it swings in the last half."""
    reached = np.array(accuracy) >= aim
    lost = np.flatnonzero(~reached)
    stays = 0 if not len(lost) else int(lost[-1]) + 1
    return {
        "aim": aim,
        "first": cost[int(reached.argmax())] if reached.any() else None,
        "for good": cost[stays] if stays < len(cost) else None,
        "last": accuracy[-1],
        "deviation of the last half": float(np.std(accuracy[len(accuracy) // 2 :])),
    }


def hogwild_curve(train: Rows, test: Rows, n_sweeps: int) -> dict[str, Any]:
    """HOGWILD!'s accuracy after every fiftieth of a pass over the rows, by a thread for each client."""
    models: list[Any] = []

    def watch(progress: Any) -> None:
        models.append(progress.model)

    result = solve_alone(
        Hogwild(share=0.02, n_threads=RANKS), Hinge(HOGWILD_C), train, Limits(0.0, n_sweeps), watch=watch
    )
    accuracy = [float(np.mean(np.sign(test.X @ model.coef + model.intercept) == test.y)) for model in models]
    return {"units": units(result, RANKS, train.X.shape[1]), "accuracy": accuracy}
