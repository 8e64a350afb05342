"""Theorem 1 of GADGET's paper, measured: the error of the averages in a step, over the rounds of Push-Sum.

Definitions, as the paper has them or as near as it lets one come:

* B: half of a node's sum stays, the other half is divided among its neighbours (``gadget_as_printed.walk``). The
  second largest modulus of its eigenvalues is the factor by which a round brings the walk nearer to its mean: the
  promise of Lemma 2, an error of epsilon after O(tau_mix log 1 / epsilon) rounds, with tau_mix = 1 / log(1 / factor).
* Consensus error after r rounds: the largest distance of a node's estimate from the true mean, over the length of the
  mean of absolute values (Lemma 2's ||M|| over the nodes). The vectors averaged are what GADGET averages: the models
  of all nodes after step (e), at some steps of a run. Curves and slopes are of errors over those after no round.
* Two protocols: shares for all neighbours, which is the walk itself, and one neighbour at random, which is what the
  paper runs.
* Theorem 1, with w^(t) the weighted mean of all w_i, epsilon their largest distance from it, epsilon_1 and epsilon_2
  the consensus errors of pushing n_i w_i and n_i L_i, and R the longest row. L is taken at w^(t), as in Table 1 of the
  paper, for the rows that nodes drew. Steps (f) and (h) are left out, as in the theorem's proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks import _gossip_runs as runs
from benchmarks._gossip_runs import DEGREE, PEERS, Task
from benchmarks.baselines import gadget_as_printed
from widemargin.peers import topology

SHAPES = ("complete", "random-regular", "ring")
STEPS = (10, 30, 100, 300)  # of the run whose models are averaged
ROUNDS = tuple(range(2, 41, 2))
ROUNDS_OF_A_STEP = (1, 5, 20, 50, 200)
DRAWS = 5  # of random neighbours, for each point
_AGREED = 1e-4  # nodes so near each other have nothing left to average
_FLOOR = 1e-10  # rounding: errors below it, of those at the start, say nothing about the slope


def decay(task: Task, shape: str, seed: int) -> dict[str, Any]:
    """Consensus errors over rounds, mean logarithms over steps and draws, and their slopes beside the promise."""
    graph, shards = divided(task, shape, seed)
    vectors: list[np.ndarray] = []

    def look(at: gadget_as_printed.Moment) -> None:
        vectors.append(
            (1 - 1 / at.step) * at.before + subgradients(task, shards, at, at.before) / (task.alpha * at.step)
        )

    gadget_as_printed.train(
        shards, task.alpha, graph, np.random.default_rng(seed), has_indicator=True, is_projected=False, epsilon=0.0,
        max_steps=max(STEPS), look=look, look_at=STEPS,
    )  # fmt: skip
    vectors = [values for values in vectors if consensus_error(values, values) > _AGREED]
    found: dict[str, Any] = {
        "factor of B": second_eigenvalue(gadget_as_printed.walk(graph)),
        "rounds": ROUNDS,
        "vectors": len(vectors),
    }
    for who in ("all neighbours", "one at random"):
        logs = np.zeros((len(vectors), len(ROUNDS)))
        for (i, values), (k, n_rounds) in product(enumerate(vectors), enumerate(ROUNDS)):
            each = [consensus_error(values, estimate) for estimate in estimates(values, graph, n_rounds, who, seed)]
            logs[i, k] = np.mean(np.log(np.maximum(each, 1e-300))) - math.log(consensus_error(values, values))
        found[who] = {"errors": np.exp(logs.mean(axis=0)), **slope(ROUNDS, logs.mean(axis=0))}
    return found


def estimates(values: np.ndarray, graph: Any, n_rounds: int, who: str, seed: int) -> list[np.ndarray]:
    if who == "all neighbours":
        return [gadget_as_printed.diffuse(values, graph, n_rounds)]
    generators = [np.random.default_rng([seed, draw]) for draw in range(DRAWS)]
    return [gadget_as_printed.push_sum(values, graph, rng, n_rounds) for rng in generators]


def consensus_error(values: np.ndarray, estimates_: np.ndarray) -> float:
    """The largest distance of an estimate from the mean, over the length of the mean of absolute values."""
    off = np.linalg.norm(estimates_ - values.mean(axis=0), axis=1).max()
    return float(off / np.linalg.norm(np.abs(values).mean(axis=0)))


def slope(rounds: Sequence[int], logs: np.ndarray) -> dict[str, float]:
    """Least squares of log error over rounds, above rounding: the factor of a round, and the correlation."""
    seen = logs > math.log(_FLOOR)
    x, y = np.array(rounds)[seen], logs[seen]
    return {"factor": float(np.exp(np.polyfit(x, y, 1)[0])), "correlation": float(np.corrcoef(x, y)[0, 1])}


def second_eigenvalue(matrix: np.ndarray) -> float:
    return float(np.sort(np.abs(np.linalg.eigvals(matrix)))[-2])


def divided(task: Task, shape: str, seed: int) -> tuple[dict[int, list[int]], list[tuple[Any, np.ndarray]]]:
    """The network, and the rows of each node."""
    graph: Any = topology.build(shape, PEERS, DEGREE, seed)
    X = runs.with_constant(task.X)
    return graph, [(X[part], task.y[part]) for part in runs.parts(len(task.y), PEERS, seed)]


def subgradients(task: Task, shards: Any, at: gadget_as_printed.Moment, w: np.ndarray) -> np.ndarray:
    """y x of the row that each node drew where it is violated, by the node's own w or by one w for all."""
    w, found = np.broadcast_to(w, at.before.shape), np.zeros(at.before.shape)
    for i, ((X, y), k) in enumerate(zip(shards, at.drawn, strict=True)):
        row = np.asarray(X[k].todense()).ravel() if hasattr(X, "todense") else X[k]
        found[i] = y[k] * row if y[k] * (row @ w[i]) < 1 else 0.0
    return found


def inequality(task: Task, shape: str, n_rounds: int, seed: int, max_steps: int) -> dict[str, Any]:
    """Both sides of Theorem 1 along a run with so many rounds a step, and of the step of its proof that has R."""
    graph, shards = divided(task, shape, seed)
    counts = np.array([len(y) for _, y in shards], dtype=float)[:, None]
    n, longest = counts.sum(), max(float(np.sqrt(X.multiply(X).sum(axis=1)).max()) for X, _ in shards)
    rng, sides, of_losses = np.random.default_rng([seed, 1]), [], []

    def look(at: gadget_as_printed.Moment) -> None:
        step = 1 / (task.alpha * at.step)
        mean = (counts * at.before).sum(axis=0) / n
        own, at_mean = (subgradients(task, shards, at, w) for w in (at.before, mean))
        pushed = np.hstack([counts * at.before, counts * own, counts])
        estimate = gadget_as_printed.push_sum(pushed, graph, rng, n_rounds)
        w, loss = np.hsplit(estimate[:, :-1] / estimate[:, -1:], 2)
        truth = (1 - 1 / at.step) * mean + step * (counts * at_mean).sum(axis=0) / n
        left = np.linalg.norm(truth - ((1 - 1 / at.step) * w + step * loss), axis=1).max()
        spread = float(np.linalg.norm(at.before - mean, axis=1).max())
        of_w, of_loss = (relative(counts * values, each, n) for values, each in ((at.before, w), (own, loss)))
        right = (1 - 1 / at.step) * (spread + n * of_w / task.alpha) + step * (longest * spread / n + of_loss)
        sides.append((left, right))
        off = np.linalg.norm(loss - (counts * own).sum(axis=0) / n, axis=1).max()
        differ = np.linalg.norm((counts * (at_mean - own)).sum(axis=0)) / n
        of_losses.append((differ, longest * spread / n, off, of_loss))

    gadget_as_printed.train(
        shards, task.alpha, graph, np.random.default_rng(seed), has_indicator=True, is_projected=False, epsilon=0.0,
        n_rounds=n_rounds, max_steps=max_steps, look=look, look_at=range(2, max_steps + 1),
    )  # fmt: skip
    both, losses = np.array(sides), np.array(of_losses)
    return {
        "steps": len(both),
        "over the bound": int(np.sum(both[:, 0] > both[:, 1] * (1 + 1e-9))),
        "bound / error, median": float(np.median(both[:, 1] / np.maximum(both[:, 0], 1e-300))),
        "losses differ by more than R epsilon / N": int(np.sum(losses[:, 0] > losses[:, 1] + 1e-12)),
        "Push-Sum of losses is off by more than epsilon_2": int(np.sum(losses[:, 2] > losses[:, 3] * (1 + 1e-9))),
    }


def relative(values: np.ndarray, estimate: np.ndarray, n: float) -> float:
    """The largest error of the estimates of a weighted mean, over the length of that of absolute values."""
    off = np.linalg.norm(estimate - values.sum(axis=0) / n, axis=1).max()
    return float(off / max(np.linalg.norm(np.abs(values).sum(axis=0)) / n, 1e-300))
