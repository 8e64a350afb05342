"""HOGWILD!: stochastic subgradients of the hinge loss on a shared w, without locks.

    minimise  0.5 ||w||^2 + C sum_i max(0, 1 - y_i (w.x_i + b))

Several threads walk over random rows. Each reads w at the features of its row, takes a step there and writes the same
places, never waiting for the others; what they overwrite of each other is little where rows are sparse. The penalty of
a feature is spread over the rows that have it, so that a step touches no other feature. The step length is constant
within a pass over the rows and shrinks by a factor between passes, as in the paper.

Communication is counted as if w lay on a server: a step reads and writes the w of its row's features and b,
2 nnz(x_i) + 2 scalars. In shared memory nothing is sent.

Both sides of the certificate are true but the lower one is loose: it comes from the rows that violate the margin.

Reference: B. Recht, C. Re, S. Wright, F. Niu: HOGWILD!: A lock-free approach to parallelizing SGD, NIPS 2011.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Solver


@dataclass(frozen=True)
class Hinge:
    """The C-SVM with hinge loss and a free intercept."""

    C: float = 1.0


class State(NamedTuple):
    problem: Hinge
    shard: Shard  # rows as CSR
    comm: Communicator
    rng: np.random.Generator
    w: np.ndarray  # features, then the intercept; written by all threads
    penalty: np.ndarray  # of a feature, at each row that has it
    step: float
    best_w: np.ndarray
    certificate: Certificate


@dataclass(frozen=True)
class Hogwild(Solver[State, Separator]):
    """Lock-free passes over random rows; each sweep is ``share`` of one pass, certified."""

    solves = (Hinge,)

    n_threads: int = 2
    share: float = 1.0  # of all rows, per sweep
    shrink: float = 0.9  # of the step length per pass over all rows

    def start(self, problem: Hinge, shard: Shard, comm: Communicator, rng, warm=None) -> State:
        if comm.size > 1:
            raise ValueError("HOGWILD! shares memory: it runs on one rank, with n_threads threads.")
        shard = Shard(sp.csr_matrix(shard.X, dtype=np.float64), shard.y, shard.weight)
        w = np.zeros(shard.n_features + 1) if warm is None else np.append(warm, 0.0)
        appearances = np.bincount(shard.X.indices, minlength=shard.n_features)
        penalty = 1 / (problem.C * np.maximum(appearances, 1))
        step = 0.5 / float(shard.squared_norms().mean())
        return _bound(State(problem, shard, comm, rng, w, penalty, step, w.copy(), Certificate(np.inf, 0.0)))

    def sweep(self, state: State) -> State:
        X, y = state.shard.X, state.shard.y
        rows = state.rng.permutation(len(y))[: max(1, round(self.share * len(y)))]
        parts = np.array_split(rows, self.n_threads)
        shared = (X.data, X.indices, X.indptr, y, state.w, state.penalty, state.step)
        threads = [threading.Thread(target=walk, args=(part, *shared)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        scalars = 2 * int(np.diff(X.indptr)[rows].sum() + len(rows))
        state.comm.ledger.messages += 2 * len(rows)
        state.comm.ledger.scalars += scalars
        state.comm.ledger.bytes += 8 * scalars
        return _bound(state._replace(step=state.step * self.shrink**self.share))

    def certify(self, state: State) -> Certificate:
        return state.certificate

    def warm_state(self, state: State) -> np.ndarray:
        return state.best_w[:-1]

    def extract(self, state: State) -> Separator:
        return Separator(state.best_w[:-1], float(state.best_w[-1]), {})


def _bound(state: State) -> State:
    """Both objectives at the present w, each the best so far.

    The dual point gives equal mass to the rows that violate the margin, as much in either class, at its best length.
    """
    shard, C, best = state.shard, state.problem.C, state.certificate
    slack = 1 - shard.y * (shard.scores(state.w[:-1]) + state.w[-1])
    primal = 0.5 * state.w[:-1] @ state.w[:-1] + C * np.maximum(slack, 0.0).sum()
    violates = [(slack > 0) & (shard.y == sign) for sign in (1.0, -1.0)]
    least = min(int(each.sum()) for each in violates)
    dual = 0.0
    if least:
        mass = sum(each * (C * least / each.sum()) for each in violates)
        z = shard.combine(shard.y * mass)
        length = min(1.0, mass.sum() / max(float(z @ z), np.finfo(float).tiny))
        dual = length * mass.sum() - 0.5 * length**2 * float(z @ z)
    best_w = state.w.copy() if primal < best.primal else state.best_w
    return state._replace(
        best_w=best_w, certificate=Certificate(min(best.primal, float(primal)), max(best.dual, float(dual)))
    )


@njit(cache=True, nogil=True)
def walk(rows, data, indices, indptr, y, w, penalty, step):
    """One thread's way over its rows; ``w`` belongs to all threads at once."""
    last = w.shape[0] - 1
    for r in range(rows.shape[0]):
        i = rows[r]
        begin, end = indptr[i], indptr[i + 1]
        score = w[last]
        for k in range(begin, end):
            score += data[k] * w[indices[k]]
        pull = step * y[i] if y[i] * score < 1.0 else 0.0
        for k in range(begin, end):
            j = indices[k]
            w[j] += pull * data[k] - step * penalty[j] * w[j]
        w[last] += pull
