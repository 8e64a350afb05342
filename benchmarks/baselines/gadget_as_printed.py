"""GADGET to the letter: Algorithm 2 on a network of nodes, Push-Sum of Algorithm 1, and the paper's own rule to stop.

What happens when it is run as printed: step (c) takes  y x  of the drawn row whether it is violated or not, so that w
goes to 1 / lambda times the mean of all y x, cut off by the ball: on Adult all rows are called negative, at 200 to 273
times the optimal objective. Every step then moves w by ||x|| / (lambda t), and the paper's rule, "they do not change
more than epsilon = .001", is not met in the 2,000 steps that the benchmark takes.

With the indicator that (c) lacks (``has_indicator``) a step without a violated row shrinks w by the factor 1 - 1 / t,
so that the change of ||w|| falls to .001 at about step 1,001 whatever w is: ten nodes stop there, after tenths of a
second as the paper's do, on Adult at an objective 14 to 25 times over the optimum. That the change is taken of ||w|| is
our reading: the paper does not say.

    at node i, step t:   draw a row (x, y);  L = y x                                       (a), (c)
                         w_i <- (1 - lambda a) w_i + a L,   a = 1 / (lambda t)             (d), (e)
                         w_i <- into the ball of radius 1 / sqrt(lambda)                   (f)
                         w_i <- Push-Sum of all w_i                                        (g)
                         w_i <- into the ball again                                        (h)

Push-Sum begins anew in each step with weights 1, without the numbers of rows that equation (13) has; in a round a node
keeps half of its sum and weight and sends half to one random neighbour, as Section 3 says; fifty rounds stand for the
Push-Sum that has come to its end. ``widemargin.peers.push_sum`` has all that is mended.

Reference: H. Dutta, N. Nataraj: GADGET SVM: A Gossip-bAseD sub-GradiEnT Solver for Linear SVMs, 2018.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

EPSILON = 1e-3


class End(NamedTuple):
    """Where a network stopped."""

    models: np.ndarray  # (nodes, d)
    steps: int
    change: float  # of the last step, the largest of all nodes
    has_stopped: bool  # by its rule, before the limit
    cpu_seconds: float  # of all nodes together


class Moment(NamedTuple):
    """A network after one step."""

    step: int
    cpu_seconds: float  # of all nodes together
    before: np.ndarray  # w of all nodes when the step began, (nodes, d)
    drawn: list[int]  # the row of each node
    models: np.ndarray


def train(
    shards: Sequence[tuple[Any, np.ndarray]],
    alpha: float,
    graph: Mapping[int, Sequence[int]],
    rng: np.random.Generator,
    *,
    epsilon: float = EPSILON,
    is_relative: bool = True,
    has_indicator: bool = False,
    is_projected: bool = True,
    n_rounds: int = 50,
    max_steps: int = 100_000,
    look: Callable[[Moment], None] | None = None,
    look_at: Collection[int] = (),
) -> End:
    """Steps until no node's w changes by more than ``epsilon``, of ||w|| where ``is_relative``; alpha is lambda.

    One node is Pegasos on all rows, with the same rule. Without ``is_projected`` the optional steps (f) and (h) are
    left out. ``look`` sees the network after these steps, while the clock stands still.
    """
    rows = [sp.csr_matrix(X, dtype=np.float64) for X, _ in shards]
    labels, m, d = [y for _, y in shards], len(shards), shards[0][0].shape[1]
    w, radius, change = np.zeros((m, d)), 1 / math.sqrt(alpha) if is_projected else math.inf, math.inf
    begin = time.process_time()
    for t in range(1, max_steps + 1):
        before, w = w, (1 - 1 / t) * w
        drawn = [int(rng.integers(len(y))) for y in labels]
        for i, k in enumerate(drawn):
            here = slice(rows[i].indptr[k], rows[i].indptr[k + 1])
            columns, values, y = rows[i].indices[here], rows[i].data[here], labels[i][k]
            if not has_indicator or y * (before[i, columns] @ values) < 1:
                w[i, columns] += y / (alpha * t) * values
        w = _into_ball(push_sum(_into_ball(w, radius), graph, rng, n_rounds), radius)
        lengths = np.linalg.norm(w, axis=1)
        changes = np.linalg.norm(w - before, axis=1)
        change = float((changes / np.where(lengths > 0, lengths, 1.0) if is_relative else changes).max())
        if look is not None and t in look_at:
            now = time.process_time()
            look(Moment(t, now - begin, before, drawn, w))
            begin += time.process_time() - now
        # A node that has drawn no violated row has not moved, and not converged.
        if change <= epsilon and lengths.any():
            return End(w, t, change, True, time.process_time() - begin)
    return End(w, max_steps, change, False, time.process_time() - begin)


def push_sum(
    values: np.ndarray, graph: Mapping[int, Sequence[int]], rng: np.random.Generator, n_rounds: int
) -> np.ndarray:
    """Algorithm 1: each node's estimate of the mean of ``values``, a row for each, after so many rounds."""
    sums, weights, m = values.copy(), np.ones(len(values)), len(values)
    if m == 1:
        return sums
    for _ in range(n_rounds):
        to = np.array([graph[i][rng.integers(len(graph[i]))] for i in range(m)])
        half_sums, half_weights = sums / 2, weights / 2
        sums, weights = half_sums.copy(), half_weights.copy()
        np.add.at(sums, to, half_sums)
        np.add.at(weights, to, half_weights)
    return sums / weights[:, None]


def diffuse(values: np.ndarray, graph: Mapping[int, Sequence[int]], n_rounds: int) -> np.ndarray:
    """The same with shares for all neighbours instead of one at random: the walk that Push-Sum is said to simulate."""
    shares = walk(graph)
    sums, weights = values.copy(), np.ones(len(values))
    for _ in range(n_rounds):
        sums, weights = shares.T @ sums, shares.T @ weights
    return sums / weights[:, None]


def walk(graph: Mapping[int, Sequence[int]]) -> np.ndarray:
    """The matrix B: half stays, the other half is divided among the neighbours; b_ij = 1 / (2 deg i)."""
    shares = np.zeros((len(graph), len(graph)))
    for i, neighbours in graph.items():
        shares[i, i] = 0.5
        shares[i, list(neighbours)] = 0.5 / len(neighbours)
    return shares


def _into_ball(w: np.ndarray, radius: float) -> np.ndarray:
    if math.isinf(radius):
        return w
    lengths = np.linalg.norm(w, axis=1, keepdims=True)
    return w * np.minimum(1.0, radius / np.where(lengths > 0, lengths, radius))
