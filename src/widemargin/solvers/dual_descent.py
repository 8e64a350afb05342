"""Dual coordinate descent for the linear C-SVM.

    maximise over alpha   sum(alpha) - 0.5 ||w||^2,   w = sum_i alpha_i y_i x_i,   0 <= alpha_i <= cap_i

Row by row the best alpha_i, with w kept beside it [1, Algorithm 1], in an order that is drawn anew for each pass; rows
that stay at a bound while their gradient says so are passed over, which is shrinking [1, Algorithm 3].

    gradient   g_i = y_i (w.x_i + b) - 1         step   alpha_i - g_i / ||x_i||^2, within bounds

[1] has no intercept, or one that is regularised. Here it is the multiplier b of sum(alpha y) = 0: within a pass it is a
constant feature of size sigma, and after each its centre moves, b += sigma^2 sum(alpha y), until nothing pulls at it.

On ranks every one passes over its own rows as if the others changed w as much, and the changes are added up [2], which
costs one exchange of d numbers. Bounds cost another, and about as much work as a pass, so they are taken when passes
over the rows that are left add up to that.

[1] Hsieh, Chang, Lin, Keerthi, Sundararajan: A Dual Coordinate Descent Method for Large-scale Linear SVM, 2008.
[2] Ma, Smith, Jaggi, Jordan, Richtarik, Takac: Adding vs. Averaging in Distributed Primal-Dual Optimization, 2015.

    here         [1]      |  here           [1]          |  here       [2]
    alpha        alpha    |  top, bottom    M-bar, m-bar |  n_ranks    sigma'
    curvature    Q_ii     |  violation      PG           |
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled
from widemargin.data.shard import Shard, csr_arrays
from widemargin.pauses import WORK, TimeIsUp, pause_alone, uneven
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers._linear_dual import Best, LinearDualSolver, Rows
from widemargin.solvers.protocol import Warm

_WORK_PER_ENTRY = 2  # a score, and a step


class State(NamedTuple):
    rows: Rows
    alpha: np.ndarray
    w: np.ndarray  # and the intercept as its last entry
    sigma2: float
    curvature: np.ndarray  # ||x_i||^2 + sigma^2
    is_active: np.ndarray
    n_rows: float  # of all ranks
    best: Best
    balance: float = 0.0  # sum(alpha y), of all ranks
    top: float = np.inf  # a row at a bound whose gradient is beyond these is passed over
    bottom: float = -np.inf
    n_passed: float = 0.0  # rows since the last certificate, of all ranks
    n_sweeps: int = 0
    spread: float = np.inf  # between top and bottom when last certified
    is_certified: bool = False  # in this sweep
    allowance: float = 0.0  # the part of the gap that allows for rounding


@dataclass(frozen=True)
class DualDescent(LinearDualSolver[State]):
    """Coordinate passes over rows, in random order, with shrinking."""

    # sigma^2 by the mean of ||x_i||^2. All rows share the constant feature: large it makes them pull at one number, and
    # steps get short; small it moves late. Between 0.01 and 0.1 neither shows on sets of text.
    constant_size: float = 0.03
    certified_passes: int = 3  # the first ones, while each of them changes much
    rows_per_certificate: float = 2.0  # later: as many rows as there are, times this
    primal_precision: float = 0.01  # of the gap: how close to its best the scale of w and its intercept are brought

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """At alpha = 0; ``warm`` is not used, since a direction does not determine the alphas."""
        rows = Rows.of(problem, shard, comm, rng)
        norms = shard.squared_norms()
        weighted, n_rows = comm.allreduce(np.array([norms @ shard.weight, float(shard.n_rows)]))
        sigma2 = float(self.constant_size * weighted / rows.totals.sum()) if problem.fit_intercept else 0.0
        alpha, w, best = np.zeros(shard.n_rows), np.zeros(shard.n_features + 1), Best(np.zeros(shard.n_features), 0.0)
        return State(rows, alpha, w, sigma2, norms + sigma2, rows.upper > 0, float(n_rows), best)

    def sweep(self, state: State) -> State:
        rows = state.rows
        shard, comm = rows.shard, rows.comm
        alpha, is_active, moving = state.alpha.copy(), state.is_active.copy(), state.w.copy()
        moving[-1] += state.sigma2 * state.balance
        extremes = np.array([-np.inf, np.inf])
        active = np.flatnonzero(is_active)
        # A pass may end anywhere.
        with suppress(TimeIsUp), uneven(_WORK_PER_ENTRY * rows.n_entries):
            for block, inside, where in shard.by_block(active):
                begin = int(active[where.start] - inside[0])
                part = slice(begin, begin + block.shape[0])
                numbers = (shard.y[part], rows.upper[part], state.curvature[part], alpha[part], is_active[part])
                rules = (float(comm.size), state.sigma2, state.top, state.bottom)
                arguments = (*numbers, moving, extremes, *rules)
                per_row = _WORK_PER_ENTRY * shard.n_entries / shard.n_rows
                for order in np.array_split(rows.rng.permutation(inside), 1 + int(len(inside) * per_row / WORK)):
                    if sp.issparse(block):
                        descend_csr(*csr_arrays(block), order, *arguments)
                    else:
                        descend_dense(np.asarray(block), order, *arguments)
                    pause_alone(len(order) * per_row)
        # [2]: w moved as far as all ranks together would move it, and each sends its own share of that.
        moving -= state.w
        moving /= comm.size
        change = comm.allreduce(np.append(moving, [shard.y @ alpha, len(active)]))
        bottom, top = comm.allreduce(extremes[::-1] * [1, -1], "min") * [1, -1]
        state = state._replace(
            alpha=alpha,
            w=state.w + change[:-2],
            balance=float(change[-2]),
            is_active=is_active,
            top=top if top > 0 else np.inf,
            bottom=bottom if bottom < 0 else -np.inf,
            n_passed=state.n_passed + float(change[-1]),
            n_sweeps=state.n_sweeps + 1,
            is_certified=False,
        )
        is_due = state.n_sweeps <= self.certified_passes or state.n_passed >= self.rows_per_certificate * state.n_rows
        return self._certified(state) if is_due or top - bottom <= 0.1 * state.spread else state

    def _certified(self, state: State) -> State:
        """Bounds for the alphas of the last pass; rows passed over come back if their gradient says so."""
        rows, alpha, intercept = state.rows, state.alpha, float(state.w[-1])
        problem, shard, comm, best = rows.problem, rows.shard, rows.comm, state.best
        signed = shard.y * alpha
        positive = signed > 0
        # Anew from the alphas: rounding adds up in what is kept beside them, and a lower bound must not have any.
        masses = [signed[positive].sum(), -signed[~positive].sum(), alpha @ rows.lengths]
        sums = comm.allreduce(np.append(shard.combine_signs(signed), masses))
        of_classes = sums[:-3].reshape(2, -1)
        z = of_classes.sum(axis=0)
        scores, data = shard.scores(z), (shard.y, shard.weight, rows.squared_norm(z), comm.allreduce)
        precision = max(self.primal_precision * min(1.0, best.certificate.relative), 1e-11)
        rounding = rows.rounding(rows.score_error(z))
        point = problem.primal_point(scores, *data, near=intercept, precision=precision, rounding=rounding)
        dual = rows.dual_value(of_classes, *map(float, sums[-3:]))
        best = best.or_better(point.scale * z, point.intercept, point.value, dual)
        gradient = shard.y * (scores + intercept) - 1
        at_rest = (alpha <= 0) & (gradient > state.top) | (alpha >= rows.upper) & (gradient < state.bottom)
        state = state._replace(w=np.append(z, intercept), is_active=~at_rest & (rows.upper > 0), n_passed=0.0)
        allowance = rows.allowance(point.scale * z, z, float(sums[-1]))
        return state._replace(spread=state.top - state.bottom, best=best, is_certified=True, allowance=allowance)


@compiled()
def _best_step(
    gradient: float, alpha: float, upper: float, curvature: float, top: float, bottom: float, extremes: np.ndarray
) -> tuple[float, bool]:
    """The best change of one alpha, and whether its row is to be passed over from now on."""
    if alpha <= 0.0:
        if gradient > top:
            return 0.0, True
        violation = min(gradient, 0.0)
    elif alpha >= upper:
        if gradient < bottom:
            return 0.0, True
        violation = max(gradient, 0.0)
    else:
        violation = gradient
    extremes[0] = max(extremes[0], violation)
    extremes[1] = min(extremes[1], violation)
    if violation == 0.0:
        return 0.0, False
    if curvature <= 0.0:  # a row of zeros
        return (upper if gradient < 0.0 else 0.0) - alpha, False
    return min(max(alpha - gradient / curvature, 0.0), upper) - alpha, False


@compiled()
def descend_csr(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, order: np.ndarray,
    y: np.ndarray, upper: np.ndarray, norms: np.ndarray, alpha: np.ndarray, is_active: np.ndarray,
    w: np.ndarray, extremes: np.ndarray, n_ranks: float, sigma2: float, top: float, bottom: float,
) -> None:  # fmt: skip
    """Coordinate steps in the given order; the last entry of ``w`` is the intercept."""
    intercept = w[-1]
    for k in range(order.shape[0]):
        i = order[k]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        score = intercept
        for j in range(begin, end):
            score += data[j] * w[np.uint64(indices[j])]
        gradient = y[i] * score - 1.0
        change, is_passed = _best_step(gradient, alpha[i], upper[i], n_ranks * norms[i], top, bottom, extremes)
        if is_passed:
            is_active[i] = False
        elif change != 0.0:
            alpha[i] += change
            push = n_ranks * change * y[i]
            for j in range(begin, end):
                w[np.uint64(indices[j])] += push * data[j]
            intercept += push * sigma2
    w[-1] = intercept


@compiled(fastmath=FAST)
def descend_dense(
    X: np.ndarray, order: np.ndarray,
    y: np.ndarray, upper: np.ndarray, norms: np.ndarray, alpha: np.ndarray, is_active: np.ndarray,
    w: np.ndarray, extremes: np.ndarray, n_ranks: float, sigma2: float, top: float, bottom: float,
) -> None:  # fmt: skip
    """The twin of :func:`descend_csr`."""
    d, intercept = X.shape[1], w[-1]
    for k in range(order.shape[0]):
        i = order[k]
        score = intercept
        for j in range(d):
            score += X[i, j] * w[j]
        gradient = y[i] * score - 1.0
        change, is_passed = _best_step(gradient, alpha[i], upper[i], n_ranks * norms[i], top, bottom, extremes)
        if is_passed:
            is_active[i] = False
        elif change != 0.0:
            alpha[i] += change
            push = n_ranks * change * y[i]
            for j in range(d):
                w[j] += push * X[i, j]
            intercept += push * sigma2
    w[-1] = intercept
