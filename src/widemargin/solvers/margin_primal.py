"""Newton's method on the primal of the linear optimal margin distribution machine.

    minimise over w   0.5 ||w||^2 + sum_i loss_i(F_i),   F_i = y_i w.x_i

The loss is smooth with a piecewise constant second derivative b_i, and minus its first derivative at any w is a g that
bounds the optimum from below (:mod:`widemargin.problems.margin_distribution`):

    gradient   w - z,   z = sum_i g_i y_i x_i
    Hessian    I + sum_i b_i x_i x_i'
    gap        0.5 ||w - z||^2, or less with the best multiple of g

so that every step is bounded by what it needs anyway. The Hessian is formed where features are few, from a sample of
rows where those are very many; where features are many, conjugate gradients take its place. The length of a step is the
best one, which is found from the margins alone. The intercept is the weight of a constant feature, and the last entry
of every vector here.

On ranks: a step costs two exchanges of d numbers, one of d^2 for the Hessian or of d for each step of conjugate
gradients, and a few of two numbers for the length.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled import margin_passes
from widemargin.data.pieces import places_of, sum_of_pieces, sums_by_sign
from widemargin.data.shard import Shard
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.problems.protocol import Certificate
from widemargin.rounding import PAIRWISE, UNIT, gamma
from widemargin.solvers import _rounding
from widemargin.solvers.margin_newton import best_length
from widemargin.solvers.models import Separator
from widemargin.solvers.newton import conjugate_gradients, second_moment
from widemargin.solvers.protocol import Solver, Warm

_MAX_PRODUCTS = 500
_MAX_STALLED_STEPS = 20  # while rounding is more than a small part of the gap


@dataclass(frozen=True, eq=False)
class Rows:
    problem: MarginDistribution
    shard: Shard
    comm: Communicator
    steep: np.ndarray
    steep_sum: float  # of all ranks, and the sum of steep_i ||x_i||^2
    moment: float
    of_score: float  # rounding error of a score, relative to ||x|| ||w||
    of_sum: float  # rounding error of z, relative to sum_i |g_i| ||x_i||
    of_loss: float  # rounding error of the sum of all losses, relative to it
    rng: Generator  # this rank's own
    n_entries: float  # of all ranks: the work of a pass, at most

    @classmethod
    def of(cls, problem: MarginDistribution, shard: Shard, comm: Communicator, rng: Generator) -> Rows:
        """Sum the totals over all ranks; raises ValueError on every rank if the problem has no solution."""
        lengths, n_long = _rounding.lengths_of(shard)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = sum_of_pieces(lambda few: np.array([shard.weight[few] @ lengths[few] ** 2]), shard.n_rows)[0]
            more = [n_long, shard.combine_depth + 1.0, squares, float(shard.n_rows)]
            more.append(float(shard.n_entries))
        sums = comm.allreduce(np.append(sums_by_sign(shard.y, shard.weight), more))
        problem.check(*sums[:2])
        _rounding.refuse_long_rows(sums[2])
        total = float(sums[:2].sum())
        own = np.random.default_rng([comm.rank, int(rng.integers(2**31))])
        steep_sum, moment = map(float, problem.steep(np.array([total, sums[4]]), total))
        of_loss = gamma(float(sums[5]) + PAIRWISE + 32)
        roundings = _rounding.of_score(shard), _rounding.of_combination(float(sums[3])), of_loss
        sizes = (problem.steep(shard.weight, total), steep_sum, moment)
        return cls(problem, shard, comm, *sizes, *roundings, own, float(sums[6]))

    def margins(self, w: np.ndarray) -> np.ndarray:
        return self.shard.margins(w[:-1], self.problem.constant * w[-1])

    def bounds(self, w: np.ndarray, z: np.ndarray, loss: float) -> tuple[Certificate, float]:
        """Both objectives, with allowance for rounding errors of margins and z, and the size of this allowance.

        The root of the loss is a norm of what margins lack: with margins that are wrong it is longer by no more than
        the norm of their errors. Sums of g_i and of lengths are bounded by Cauchy and Schwarz.
        """
        problem, of_w = self.problem, gamma(len(w) + 8)
        squared, length, last = float(w @ w), float(np.linalg.norm(w[:-1])), abs(float(w[-1]))
        root, price = math.sqrt(loss), max(1.0, problem.overshoot_weight)
        of_margins = self.of_score * length * math.sqrt(self.moment)
        of_margins += 4 * UNIT * (2 + last) * math.sqrt(self.steep_sum)
        of_margins *= math.sqrt(price / 2)
        of_z = self.of_sum * math.sqrt(2 * price) * root * np.sqrt([self.moment, problem.constant * self.steep_sum])
        more_loss = (root + of_margins) ** 2 * (1 + self.of_loss)
        primal = problem.primal_value(more_loss, squared * (1 + of_w))
        # For this g the parts of the dual objective follow from those of the primal one: g.F = w.z.
        linear, longer = float(w @ z) + 2 * loss, np.array([np.linalg.norm(z[:-1]), abs(z[-1])]) + of_z
        least = linear - 2 * root * of_margins - float(of_z @ [length, last])
        least -= 2 * self.of_loss * loss + of_w * math.sqrt(squared * float(z @ z))
        size = 2 * loss * (1 + self.of_loss) + float(longer @ longer) * (1 + of_w)
        dual = problem.dual_value(least, size) * (1 - 8 * UNIT)
        exact = problem.primal_value(loss, squared) - problem.dual_value(linear, 2 * loss + float(z @ z))
        # The gap is half the square of w - z, and z no better known than it was added up from g, and g from margins.
        floor = price * self.moment * (self.of_sum * root + of_margins) ** 2
        return Certificate(primal, dual), max(primal - dual - exact, floor)


class Point(NamedTuple):
    w: np.ndarray
    margin: np.ndarray
    signed: np.ndarray  # y_i g_i
    z: np.ndarray
    loss: float
    certificate: Certificate
    rounding: float  # what the certificate allows for it

    @classmethod
    def at(cls, rows: Rows, w: np.ndarray, margin: np.ndarray) -> Point:
        problem, signed = rows.problem, np.empty(len(margin))

        def of_piece(some: slice) -> np.ndarray:
            few = signed[some]
            loss = margin_passes.pulls(margin[some], rows.steep[some], *problem.shape, few)
            few *= rows.shard.y[some]
            return np.array([problem.constant * few.sum(), loss])

        last = sum_of_pieces(of_piece, len(margin), 8.0)
        sums = rows.comm.allreduce(np.append(rows.shard.combine(signed), last))
        z, loss = sums[:-1], float(sums[-1])
        return cls(w, margin, signed, z, loss, *rows.bounds(w, z, loss))


class State(NamedTuple):
    rows: Rows
    point: Point
    best: np.ndarray  # w of the lowest objective
    certificate: Certificate
    step: float = 0.0  # of gradient methods
    is_stuck: bool = False  # nothing is left to win but rounding
    n_stuck: int = 0  # stalled steps, while rounding was more than a small part of the gap
    reference: float = np.inf  # the gap then

    def at(self, point: Point) -> State:
        """The same run at another point; the best bounds are kept."""
        certificate = self.certificate.tightened(*point.certificate)
        best = point.w if point.certificate.primal <= self.certificate.primal else self.best
        state = self._replace(point=point, best=best, certificate=certificate)
        gap = certificate.gap
        if point.rounding <= _rounding.SMALL_PART * gap or gap <= _rounding.STALL_RATIO * self.reference:
            return state._replace(n_stuck=0, reference=gap)
        return state._replace(n_stuck=self.n_stuck + 1, is_stuck=self.n_stuck + 1 >= _MAX_STALLED_STEPS)


class LinearMarginSolver(Solver[State, Separator]):
    solves = (MarginDistribution,)

    def start(
        self, problem: MarginDistribution, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None
    ) -> State:
        """At ``warm``, whose intercept is not known and begins at 0; or at no w."""
        rows = Rows.of(problem, shard, comm, rng)
        w = np.zeros(shard.n_features + 1)
        if warm is not None:
            w[:-1] = warm
        point = Point.at(rows, w, rows.margins(w))
        return self._prepare(State(rows, point, w, point.certificate))

    @abstractmethod
    def _prepare(self, state: State) -> State: ...

    def _along(self, state: State, step: np.ndarray) -> State:
        rows, point = state.rows, state.point
        tilt = rows.margins(step)
        along, squared = float(point.w @ step), float(step @ step)

        def slopes(length: float) -> tuple[float, float]:
            def of_piece(some: slice) -> np.ndarray:
                numbers = (point.margin[some], tilt[some], rows.steep[some])
                return np.asarray(margin_passes.line_sums(*numbers, *rows.problem.shape, length))

            slope, bend = rows.comm.allreduce(sum_of_pieces(of_piece, len(tilt), 8.0))
            return along + length * squared + float(slope), squared + float(bend)

        length = best_length(slopes)
        if length == 0:
            return state._replace(is_stuck=True)
        w = point.w + length * step
        # Anew, since rounding would add up in margins that are only moved along.
        return state.at(Point.at(rows, w, rows.margins(w)))

    def certify(self, state: State) -> Certificate | None:
        return state.certificate

    def allowance(self, state: State) -> float:
        return state.point.rounding

    def stop_reason(self, state: State) -> str | None:
        return "precision" if state.is_stuck else None

    def diagnostics(self, state: State) -> dict[str, float]:
        return {"gradient": float(np.linalg.norm(state.point.w - state.point.z))}

    def warm_state(self, state: State) -> np.ndarray:
        return state.best[:-1]

    def extract(self, state: State) -> Separator:
        problem = state.rows.problem
        report = {"C": problem.C, "deadband": problem.deadband, "overshoot_weight": problem.overshoot_weight}
        return Separator(state.best[:-1].copy(), float(state.best[-1]), report)


@dataclass(frozen=True)
class MarginPrimal(LinearMarginSolver):
    """Newton steps with the best length."""

    direct_features: int = 512  # up to here the Hessian is formed
    hessian_per_feature: int = 512  # rows that make up a Hessian, at most
    cg_residual: float = 0.05

    def _prepare(self, state: State) -> State:
        # A step down the slope: where C is tiny the gap is small at 0 already.
        return self._along(state, state.point.z - state.point.w)._replace(is_stuck=False)

    def sweep(self, state: State) -> State:
        return self._along(state, self._step(state.rows, state.point))

    def _step(self, rows: Rows, point: Point) -> np.ndarray:
        shard, comm, constant = rows.shard, rows.comm, rows.problem.constant
        d = shard.n_features
        active = places_of(lambda few: rows.problem.bend(point.margin[few], rows.steep[few]), shard.n_rows)
        gradient = point.w - point.z
        if d > self.direct_features:
            mass = rows.problem.bend(point.margin[active], rows.steep[active])

            def product(v: np.ndarray) -> np.ndarray:
                inner = shard.curvature(active, mass, v[:-1])
                last = constant * (border[:-1] @ v[:-1] + border[-1] * v[-1])
                return v + np.append(comm.allreduce(inner) + constant * v[-1] * border[:-1], last)

            border = comm.allreduce(np.append(shard.combine_rows(active, mass), mass.sum()))
            return conjugate_gradients(product, -gradient, self.cg_residual, _MAX_PRODUCTS, 2 * rows.n_entries)[0]
        n_active = float(comm.allreduce(np.array([float(len(active))]))[0])
        stride = max(1, int(n_active // max(self.hessian_per_feature * d, 8192)))
        few = active[int(rows.rng.integers(stride)) :: stride]
        mass = rows.problem.bend(point.margin[few], rows.steep[few]) * stride
        hessian = np.eye(d + 1)
        moment = second_moment(shard, few, mass, rows.n_entries).ravel()
        sums = comm.allreduce(np.concatenate([moment, shard.combine_rows(few, mass), mass.sum(keepdims=True)]))
        hessian[:-1, :-1] += sums[: d * d].reshape(d, d)
        hessian[-1, :-1] = hessian[:-1, -1] = constant * sums[d * d : -1]
        hessian[-1, -1] += constant * sums[-1]
        try:
            return -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:  # features so large that the identity is lost beside them
            return -np.linalg.lstsq(hessian, gradient)[0]
