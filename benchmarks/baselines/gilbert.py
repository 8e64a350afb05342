"""Gilbert's algorithm for the distance between two convex hulls, on one rank or on many.

    minimise  || z ||   over  z = A' eta - B' xi,   eta and xi of nonnegative masses that add up to one

Gilbert [1] walks from the present z to the nearest point of the segment between z and the vertex a - b of the
difference of the hulls that lies lowest along z. Gaertner and Jaggi [2] prove the rate: gap epsilon after O(1/epsilon)
steps, each a pass over all rows. The pass is also a certificate: ||z|| is a distance, the lowest score a margin.

On ranks it is the algorithm of Liu et al. [3]: each client sends its lowest row of each class, the server picks, steps
and sends to all what z needs, 3 k d scalars a step. If clients sent scores first and only the winners their rows, a
step would cost about k d.

[1] E. Gilbert: An iterative procedure for computing the minimum of a quadratic form on a convex set, 1966.
[2] B. Gaertner, M. Jaggi: Coresets for polytope distance, SOCG 2009.
[3] Y. Liu, H. Ding, Z. Huang, J. Xu: Distributed and robust support vector machine, ISAAC 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from widemargin.problems.polytope import HardMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers._hulls import Best, Hulls, HullSolver

_MOST_STEPS = 64  # of a sweep; sweeps begin with one step and double, so that the first part of the way is seen too


class State(NamedTuple):
    hulls: Hulls
    z: np.ndarray  # the same on every rank
    n_steps: int  # of the next sweep
    best: Best


@dataclass(frozen=True)
class Gilbert(HullSolver[State]):
    """Steps towards the lowest vertex, with exact line search."""

    solves = (HardMargin,)

    def start_on(self, hulls: Hulls, rng, warm) -> State:
        z = hulls.combine(np.exp(hulls.uniform_log_mass())).z if warm is None else warm
        return State(hulls, z, 1, Best.none(z).closer(float(np.linalg.norm(z)), np.abs(z)))

    def sweep(self, state: State) -> State:
        z, best = state.z, state.best
        for _ in range(state.n_steps):
            scores, vertex = lowest_vertex(state.hulls, z)
            length = float(np.linalg.norm(z))
            margin = float(scores.sum()) / length if length > 0 else -np.inf
            best = best.wider(margin, z)
            towards = vertex - z
            curvature = float(towards @ towards)
            step = min(1.0, max(0.0, -float(z @ towards) / curvature)) if curvature > 0 else 0.0
            z = z + step * towards
            best = best.closer(float(np.linalg.norm(z)), np.abs(z))
        return State(state.hulls, z, min(2 * state.n_steps, _MOST_STEPS), best)

    def certify(self, state: State) -> Certificate | None:
        return super().certify(state) if state.best.certificate.dual > -np.inf else None


def lowest_vertex(hulls: Hulls, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest signed score of each class over all ranks, and the sum of the two signed rows that have it."""
    comm, d = hulls.comm, len(z)
    scores, rows = lowest_of_each_class(hulls.scores(z), hulls.shard.y)
    offers = comm.gather(np.concatenate([scores, signed_rows(hulls, rows).ravel()]))
    answer = None
    if offers is not None:
        everyone = np.array(offers)
        winners = everyone[:, :2].argmin(axis=0)
        points = everyone[:, 2:].reshape(-1, 2, d)
        # The server sends what its step is made of, and every rank makes the same one.
        answer = np.concatenate([everyone[winners, [0, 1]], points[winners, [0, 1]].sum(axis=0)])
    scores, vertex = np.split(comm.broadcast(answer), [2])
    return scores, vertex


def signed_rows(hulls: Hulls, rows: np.ndarray) -> np.ndarray:
    """``y_i (x_i - mean)`` of one row of each class, zero where this rank has none (-1)."""
    points = np.zeros((2, hulls.shard.n_features))
    for c, sign in ((0, 1.0), (1, -1.0)):
        if rows[c] >= 0:
            points[c] = sign * hulls.rows.dense(rows[c : c + 1])[0]
    return points


@njit(cache=True, nogil=True)
def lowest_of_each_class(scores, y):
    """Smallest score of each class, the positive one first, and its row; infinity and -1 in a class without rows."""
    lowest = np.full(2, np.inf)
    rows = np.full(2, -1, dtype=np.int64)
    for i in range(scores.shape[0]):
        c = 0 if y[i] > 0 else 1
        if scores[i] < lowest[c]:
            lowest[c] = scores[i]
            rows[c] = i
    return lowest, rows
