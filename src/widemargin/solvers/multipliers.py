"""The linear C-SVM by the method of multipliers, with semismooth Newton steps inside.

    maximise over alpha   sum(alpha) - 0.5 ||sum_i alpha_i y_i x_i||^2,   0 <= alpha_i <= cap_i,   sum(alpha y) = 0

The method of multipliers holds alpha near a centre and then moves the centre to where that led. With the slack r_i =
1 - y_i (w.x_i + b) the inner problem is smooth in w and b, and has a closed form in the masses a that are held:

    minimise over w, b   0.5 ||w||^2 + sum_i max over a_i in [0, cap_i] of  a_i r_i - (a_i - centre_i)^2 / (2 rho cap_i)
    masses     a_i = centre_i + rho cap_i r_i, within bounds
    gradient   w - z,  -sum(a y),   z = sum_i a_i y_i x_i
    Hessian    I + rho sum over free rows of cap_i x_i x_i',  and so for b

Free rows are those whose mass is within its bounds. They are few in the end, so that steps get cheaper, and while they
are many a sample of them will do for the Hessian. It is formed where features are few, and the answer of a sample of
all rows is the start there; where they are many, conjugate gradients take its place.

Every step is bounded: w with its intercept from above, the masses with balanced classes from below.

Reference: Yan, Li: An Efficient Augmented Lagrangian Method for Support Vector Machine, 2020. Here the intercept is not
regularised, every row has its own cap, and the Hessian may be that of a sample.

On ranks: a step costs one exchange of 2 d numbers for the gradient, one of d^2 for the Hessian or
of d for each step of conjugate gradients, and a handful of single numbers for the line search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled
from widemargin.data.pieces import each_piece, elementwise, places_of, sum_of_pieces, sums_by_sign
from widemargin.data.shard import Shard
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.rounding import UNIT, gamma
from widemargin.solvers._linear_dual import Best, LinearDualSolver, LinearDualState, Rows
from widemargin.solvers._multiplier_rules import MultiplierRules
from widemargin.solvers._rounding import STALL_RATIO
from widemargin.solvers.newton import bracketed_newton, conjugate_gradients, second_moment
from widemargin.solvers.protocol import AnySolver, Inputs, Warm

_ROUGH = 1e-4  # precision of the first scale and intercept, which will change
_MAX_START_RHO = 4.0  # a warm direction determines masses only to a quarter of the margin
_MAX_RHO = 1e10
_MAX_SQUARED_NORM = 1e30  # of a warm direction; a longer one is rescaled
_ROUNDING = 1e-13  # relative: added so that no Hessian is singular


class SlackError(NamedTuple):
    """Bounds on the rounding errors of slacks: one in units of the norm of the row, one for all rows.

    A move adds the errors of its own scores, and a rounding of the slack, of w and of the intercept each.
    """

    by_length: float = 0.0
    anyway: float = 0.0

    def after(self, rows: Rows, move: np.ndarray, w: np.ndarray, intercept: float) -> SlackError:
        """With the errors of the score of ``move``, whose last entry is the intercept, and of the new w."""
        by_length = rows.of_score * float(np.linalg.norm(move[:-1])) + 4 * UNIT * float(np.linalg.norm(w))
        return SlackError(self.by_length + by_length, self.anyway + 4 * UNIT * (1 + abs(intercept) + abs(move[-1])))


class Softened(NamedTuple):
    """The masses that a centre and rho give for some slacks; sums are those of all ranks."""

    signed: np.ndarray  # y_i a_i
    is_free: np.ndarray
    of_classes: np.ndarray  # sum of y_i a_i x_i over each class
    positive: float  # sum of the masses of each class
    negative: float
    loss: float  # sum of cap_i max(0, r_i), slacks being as large as rounding lets them be
    gain: float  # sum of (a_i - centre_i) r_i: what moving the centre is worth
    free_cap: float  # sum of the caps of free rows
    size: float  # sum of a_i ||x_i||

    @property
    def z(self) -> np.ndarray:
        return np.asarray(self.of_classes.sum(axis=0))


class State(NamedTuple):
    rows: Rows
    w: np.ndarray
    intercept: float
    slack: np.ndarray
    slack_error: SlackError
    centre: np.ndarray
    rho: float
    soft: Softened
    n_inner: int  # steps since the centre moved
    best: Best
    n_stuck: int = 0  # stalled steps, while rounding was more than a small part of the gap
    reference: float = np.inf  # the gap then
    is_certified: bool = True  # as every step is

    @property
    def alpha(self) -> np.ndarray:
        return elementwise(np.abs, self.soft.signed)

    @property
    def allowance(self) -> float:
        return self.rows.allowance(self.w, self.soft.z, self.soft.size) + self.slack_error.by_length * self.soft.size


@dataclass(frozen=True)
class Multipliers(MultiplierRules, LinearDualSolver[State]):
    """Semismooth Newton steps on the method of multipliers."""

    patience: int = 200  # stalled steps before "precision"; near a tiny optimum a hundred may stall before one helps

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        rows = Rows.of(problem, shard, comm, rng)
        if warm is None and shard.n_features <= self.direct_features:
            warm = self._answer_of_a_sample(rows, rng)
        # Without an earlier direction, the difference of the means.
        w = warm if warm is not None else _difference_of_means(rows)
        if w @ w > _MAX_SQUARED_NORM:  # the search for its best multiple begins at 1
            w = w / (w @ w)
        scores = shard.scores(w)
        point = problem.primal_point(scores, shard.y, shard.weight, float(w @ w), comm.allreduce, precision=_ROUGH)
        w, slack = point.scale * w, np.empty(shard.n_rows)

        def fall_short(some: slice) -> None:
            slack[some] = 1 - shard.y[some] * (point.scale * scores[some] + point.intercept)

        each_piece(fall_short, shard.n_rows)
        error = SlackError().after(rows, np.append(w, point.intercept), w, point.intercept)
        # Halfway up every cap, and as sharp as masses and direction agree the better: w = z at the optimum.
        centre, rho = elementwise(np.divide, rows.upper, 2.0), 1.0
        soft = _soften(rows, slack, error, centre, rho)
        while warm is not None and rho < _MAX_START_RHO:
            sharper = _soften(rows, slack, error, centre, 2 * rho)
            if np.linalg.norm(sharper.z - w) >= np.linalg.norm(soft.z - w):
                break
            rho, soft = 2 * rho, sharper
        best = Best(w, point.intercept)
        return _bounded(State(rows, w, point.intercept, slack, error, centre, rho, soft, 0, best))

    def take_over(self, other: AnySolver, state: LinearDualState, inputs: Inputs) -> State:
        """At the model, the alphas and the bounds that another solver of the linear C-SVM has found."""
        rows, best, alpha = state.rows, state.best, state.alpha
        slack = 1 - rows.shard.margins(best.coef, best.intercept)
        error = SlackError().after(rows, np.append(best.coef, best.intercept), best.coef, best.intercept)
        soft = _soften(rows, slack, error, alpha, 1.0)
        return _bounded(State(rows, best.coef, best.intercept, slack, error, alpha, 1.0, soft, 0, best))

    def _answer_of_a_sample(self, rows: Rows, rng: Generator) -> np.ndarray | None:
        """The solution of a sample of the rows; None where rows are too few to sample."""
        shard, comm = rows.shard, rows.comm
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        stride = self.start_stride(n_rows, shard.n_features)
        if not stride:
            return None
        chosen = np.sort(rows.rng.choice(shard.n_rows, -(-shard.n_rows // stride), replace=False))
        sample = shard.take(chosen)
        if not comm.allreduce(sums_by_sign(sample.y, sample.weight)).all():
            return None
        # Fewer rows, each of more weight.
        state = self.start(replace(rows.problem, C=rows.problem.C * stride), sample, comm, rng)
        return self.solved_roughly(state).best.coef

    def sweep(self, state: State) -> State:
        state = self._move_centre(state)
        rows, soft = state.rows, state.soft
        imbalance = soft.positive - soft.negative if rows.problem.fit_intercept else 0.0
        gradient = np.append(state.w - soft.z, -imbalance)
        step = self._step(state, gradient)
        tilt = rows.shard.margins(step[:-1], step[-1])
        length = _length(state, step[:-1], tilt, float(gradient @ step))
        slack = np.empty_like(tilt)
        each_piece(lambda some: np.subtract(state.slack[some], length * tilt[some], out=slack[some]), len(slack))
        w, intercept = state.w + length * step[:-1], float(state.intercept + length * step[-1])
        error = state.slack_error.after(rows, length * step, w, intercept)
        soft, n_inner = _soften(rows, slack, error, state.centre, state.rho), state.n_inner + 1
        state = state._replace(w=w, intercept=intercept, slack=slack, slack_error=error, soft=soft, n_inner=n_inner)
        return _bounded(state)

    def stop_reason(self, state: State) -> str | None:
        """ "precision" once steps no longer reduce a gap that is mostly rounding."""
        return "precision" if state.n_stuck >= self.patience else None

    def _move_centre(self, state: State) -> State:
        """Make the masses the new centre once the error of the inner problem is below what that gains."""
        soft, rho = state.soft, state.rho
        error = float(np.sum((state.w - soft.z) ** 2))
        if state.rows.problem.fit_intercept and soft.positive != soft.negative:
            bend = rho * soft.free_cap
            error += (soft.positive - soft.negative) ** 2 / bend if bend > 0 else np.inf
        is_settled = error <= soft.gain
        if not is_settled and state.n_inner < self.max_inner:
            return state
        rho = self.next_rho(rho, _MAX_RHO, state.n_inner, is_settled=is_settled)
        centre = state.alpha if is_settled else state.centre
        soft = _soften(state.rows, state.slack, state.slack_error, centre, rho)
        return state._replace(centre=centre, rho=rho, soft=soft, n_inner=0)

    def _step(self, state: State, gradient: np.ndarray) -> np.ndarray:
        """Solve Hessian times step = -gradient, the intercept last."""
        rows, n_features = state.rows, len(gradient) - 1
        shard, comm = rows.shard, rows.comm
        free = places_of(lambda some: state.soft.is_free[some], shard.n_rows)
        n_free = float(comm.allreduce(np.array([float(len(free))]))[0])
        stride = self.hessian_stride(n_free, n_features, rows.n_entries)
        free = free[int(rows.rng.integers(stride)) :: stride]
        mass = rows.upper[free] * (state.rho * stride)
        sums = comm.allreduce(np.append(shard.combine_rows(free, mass), mass.sum()))
        border, corner = sums[:-1], sums[-1]
        if not rows.problem.fit_intercept:
            border, corner = np.zeros(n_features), 1.0
        elif corner == 0:
            corner = max(abs(gradient[-1]) * state.rho, 1e-300)  # nothing bends: as far as masses change within
        corner *= 1 + _ROUNDING
        if n_features <= self.direct_features:
            hessian = np.empty((n_features + 1, n_features + 1))
            n_entries = rows.n_entries * n_free / stride / rows.n_rows  # about
            moment = comm.allreduce(second_moment(shard, free, mass, n_entries).ravel())
            hessian[:-1, :-1] = moment.reshape(n_features, n_features)
            hessian[np.diag_indices(n_features)] += 1.0 + _ROUNDING * moment.max(initial=0.0)
            hessian[-1, :-1] = hessian[:-1, -1] = border
            hessian[-1, -1] = corner
            return -np.linalg.solve(hessian, gradient)

        def product(v: np.ndarray) -> np.ndarray:
            spread = comm.allreduce(shard.curvature(free, mass, v[:-1]))
            return np.append(v[:-1] + spread + border * v[-1], border @ v[:-1] + corner * v[-1])

        return conjugate_gradients(product, -gradient, self.cg_residual, 250, 2 * rows.n_entries)[0]


def _difference_of_means(rows: Rows) -> np.ndarray:
    means = rows.combine(elementwise(np.multiply, rows.shard.y, rows.shard.weight)) / rows.totals[:, None]
    return np.asarray(means.sum(axis=0))


def _length(state: State, step: np.ndarray, tilt: np.ndarray, slope: float) -> float:
    """The best length of a step in w that changes slacks by ``-tilt``; ``slope`` is the derivative at 0."""
    rows, along, squared = state.rows, float(state.w @ step), float(step @ step)

    def slopes(length: float) -> tuple[float, float]:
        def of_piece(some: slice) -> np.ndarray:
            numbers = (state.slack[some], tilt[some], state.centre[some], rows.upper[some])
            return np.asarray(line_sums(*numbers, state.rho, length))

        pull, curvature = rows.comm.allreduce(sum_of_pieces(of_piece, len(tilt)))
        return along + length * squared - pull, squared + curvature

    return bracketed_newton(slopes, lambda length: 0.1 * abs(slope), max_steps=30)


def _soften(rows: Rows, slack: np.ndarray, error: SlackError, centre: np.ndarray, rho: float) -> Softened:
    signed, is_free = np.empty(len(slack)), np.empty(len(slack), dtype=np.bool_)

    def of_piece(some: slice) -> np.ndarray:
        numbers = (slack[some], rows.shard.y[some], centre[some], rows.upper[some], rho, rows.lengths[some], *error)
        local = soften_rows(*numbers, signed[some], is_free[some])
        masses = np.maximum(signed[some], 0.0).sum(), -np.minimum(signed[some], 0.0).sum()
        return np.append(masses, local)  # numpy.sum rounds less than one loop does

    sums = rows.comm.allreduce(sum_of_pieces(of_piece, len(slack), 16.0))
    return Softened(signed, is_free, rows.combine(signed), *map(float, sums))


def _bounded(state: State) -> State:
    rows, soft, w, intercept = state.rows, state.soft, state.w, state.intercept
    problem, best = rows.problem, state.best
    loss = soft.loss * (1 + gamma(rows.n_rows + 16))
    primal = problem.primal_value(loss / problem.C, rows.squared_norm(w)) * (1 + 4 * UNIT)
    dual = rows.dual_value(soft.of_classes, soft.positive, soft.negative, soft.size)
    best = best.or_better(w, intercept, primal, dual)
    if not rows.is_coarse(best.certificate):
        return state._replace(best=best, n_stuck=0, reference=best.certificate.gap)
    # A little more of w leaves less to rounding: rows at the margin are beyond it for certain then.
    shard = rows.shard
    error = state.slack_error.after(rows, np.zeros(len(w) + 1), w, intercept)  # slacks become scores
    rounding, reduce = rows.rounding(error.by_length * rows.lengths + error.anyway), rows.comm.allreduce
    scores = shard.y * (1 - state.slack)
    point = problem.primal_point(scores, shard.y, shard.weight, rows.squared_norm(w), reduce, rounding=rounding)
    best = best.or_better(point.scale * w, point.scale * intercept + point.intercept, point.value, dual)
    if best.certificate.gap <= STALL_RATIO * state.reference:
        return state._replace(best=best, n_stuck=0, reference=best.certificate.gap)
    return state._replace(best=best, n_stuck=state.n_stuck + 1)


@compiled(fastmath=FAST)
def soften_rows(
    slack: np.ndarray, y: np.ndarray, centre: np.ndarray, upper: np.ndarray, rho: float, lengths: np.ndarray,
    by_length: float, anyway: float, signed: np.ndarray, is_free: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Masses ``centre + rho upper slack`` within bounds, times y, and which of them are within.

    Returns the sum of ``upper max(0, slack)`` where slacks may be larger by ``anyway`` and
    by ``by_length`` times the length of the row, of ``(mass - centre) slack``, of the bounds of free rows, and of
    masses times lengths.
    """
    loss = gain = free_cap = size = 0.0
    for i in range(slack.shape[0]):
        bound = upper[i]
        wanted = centre[i] + rho * bound * slack[i]
        mass = min(max(wanted, 0.0), bound)
        free = (wanted > 0.0) & (wanted < bound)
        signed[i] = mass * y[i]
        is_free[i] = free
        loss += bound * max(slack[i] + (by_length * lengths[i] + anyway), 0.0)
        gain += (mass - centre[i]) * slack[i]
        free_cap += bound if free else 0.0
        size += mass * lengths[i]
    return np.array([loss, gain, free_cap, size])


@compiled(fastmath=FAST)
def line_sums(
    slack: np.ndarray, tilt: np.ndarray, centre: np.ndarray, upper: np.ndarray, rho: float, length: float
) -> np.ndarray:
    """Sum of ``mass tilt`` where slacks are ``slack - length tilt``, and minus its derivative by the length."""
    pull = bend = 0.0
    for i in range(slack.shape[0]):
        bound = upper[i]
        wanted = centre[i] + rho * bound * (slack[i] - length * tilt[i])
        pull += min(max(wanted, 0.0), bound) * tilt[i]
        bend += bound * tilt[i] * tilt[i] if (wanted > 0.0) & (wanted < bound) else 0.0
    return np.array([pull, rho * bend])
