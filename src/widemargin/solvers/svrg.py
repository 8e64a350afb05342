"""Variance-reduced gradient steps, in turn on every rank, for the linear optimal margin distribution machine.

    minimise over w   p(w) = mean_i p_i(w),   p_i(w) = 0.5 ||w||^2 + n loss_i(y_i w.x_i)

An epoch [1, Algorithm 2]: all ranks together compute the gradient h at w_old; then one rank after the other passes
over its rows in a random order, each row once, and hands w on:

    w -= step (grad p_i(w) - grad p_i(w_old) + h)

Here the step is found by itself: it begins at one over the largest curvature of a p_i, grows slowly, and is halved when
an epoch ends higher than it began, which is then undone. The pass that gives h bounds w from both sides as well
(:mod:`widemargin.solvers.margin_primal`). The constant feature of the intercept is the last entry of every vector.

A step touches only the features of its row: between rows w is held as a u + c (w_old - h).

On ranks an epoch costs one exchange of d numbers, and d numbers handed on by every rank.

[1] Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine, 2023.
[2] Lee, Lin, Ma, Yang: Distributed Stochastic Variance Reduced Gradient Methods, 2017.

    here    step    h    w_old    u, c            [1]     eta    h^(l)    w^(l)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import margin_passes
from widemargin.data.shard import csr_arrays
from widemargin.pauses import WORK, pause_alone, uneven
from widemargin.solvers.margin_primal import LinearMarginSolver, Point, Rows, State

_WORK_PER_ENTRY = 4  # two scores and two steps
_SHORTEST = 1e-15  # a step that moves nothing


@dataclass(frozen=True)
class SVRG(LinearMarginSolver):
    """Round-robin epochs; ``first_step`` is in units of one over the largest curvature."""

    first_step: float = 1.0
    growth: float = 1.1
    largest: float = 0.5  # no step forgets more of w than this at once

    def _prepare(self, state: State) -> State:
        rows, problem, shard, comm = state.rows, state.rows.problem, state.rows.shard, state.rows.comm
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        bend = rows.steep * max(1.0, problem.overshoot_weight) * (shard.squared_norms() + problem.constant)
        curvature = 1.0 + n_rows * comm.allreduce(np.array([bend.max(initial=0.0)]), "max")[0]
        return state._replace(step=float(min(self.first_step / curvature, self.largest)))

    def sweep(self, state: State) -> State:
        rows, point = state.rows, state.point
        n_rows = float(rows.comm.allreduce(np.array([float(rows.shard.n_rows)]))[0])
        w = point.w
        for rank in range(rows.comm.size):
            mine = rank == rows.comm.rank
            with uneven(_WORK_PER_ENTRY * rows.n_entries):
                passed = self._pass(rows, point, w, state.step, n_rows) if mine else np.zeros(len(w))
            w = rows.comm.allreduce(passed)
        # A step too long may end in numbers that are none.
        following = Point.at(rows, w, rows.margins(w)) if np.isfinite(w).all() else None
        if following is None or not following.certificate.primal <= point.certificate.primal:
            return state._replace(step=state.step / 2, is_stuck=state.step < _SHORTEST)
        return state.at(following)._replace(step=min(self.growth * state.step, self.largest))

    @staticmethod
    def _pass(rows: Rows, point: Point, w: np.ndarray, step: float, n_rows: float) -> np.ndarray:
        problem, shard = rows.problem, rows.shard
        u, centre = w.copy(), point.z.copy()  # w_old - h = z
        scales = np.array([1.0, 0.0, problem.constant])
        for block, where in shard.pieces():
            y, old = shard.y[where], n_rows * shard.y[where] * point.signed[where]
            numbers = (y, n_rows * rows.steep[where], *problem.shape, old)
            per_row = _WORK_PER_ENTRY * shard.n_entries / shard.n_rows
            n_pieces = 1 + int(block.shape[0] * per_row / WORK)
            for order in np.array_split(rows.rng.permutation(block.shape[0]), n_pieces):
                if sp.issparse(block):
                    arguments = (*csr_arrays(block), order, *numbers, step, u, centre, scales)
                    margin_passes.variance_reduced_csr(*arguments)
                else:
                    margin_passes.variance_reduced_dense(np.asarray(block), order, *numbers, step, u, centre, scales)
                pause_alone(len(order) * per_row)
        return scales[0] * u + scales[1] * centre
