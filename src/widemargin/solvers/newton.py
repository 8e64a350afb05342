"""Newton's method on the entropic saddle point, problem (8) of the paper, another algorithm than the paper's.

    maximise over w   min over masses   sum_i mass_i s_i + gamma * KL(mass || centre) - 0.5 ||w||^2,   s_i = y_i w.x_i

The inner minimum has a closed form, so what is left is smooth and strongly concave in w alone:

    gradient   z - w,   z = sum_i y_i mass_i x_i
    Hessian   -(I + (1/gamma) sum over classes of the covariance of their free rows)

where a row is free if its mass is neither negligible nor at its cap; few rows are, and only they are touched by
conjugate gradients. When a step has done its work the centre moves to the current masses and gamma shrinks
(continuation): with a moving centre the bias of the entropy fades even while gamma stays.

Reference: Jin, Huang, Li: SVM via Saddle Point Optimization, 2017, sections 2 and 3.

    here         paper        |  here      paper
    mass         eta and xi   |  gamma     gamma
    z            A eta - B xi |  scores    y_i <w, x_i>

On ranks: each Newton step costs one exchange of d numbers for the gradient, one for each step of conjugate gradients,
and a handful of single numbers for levels and the line search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from widemargin.data.pieces import each_piece, places_of
from widemargin.data.shard import Shard
from widemargin.pauses import BLAS_SPEED, pause, pieces
from widemargin.solvers._hulls import Best, Combined, Hulls, HullSolver, Softened, bounded, coincided
from widemargin.solvers.protocol import Warm

_LEAST_STEP = 1e-6
_MAX_DRIFT = 64.0  # in errors of a fresh pass: then scores are computed afresh


class State(NamedTuple):
    hulls: Hulls
    w: np.ndarray
    scores: np.ndarray  # y_i w.x_i, kept beside w
    score_error: float  # by which they may be off, in the worst case
    log_centre: np.ndarray
    gamma: float
    soft: Softened
    point: Combined
    best: Best
    worked_hard: bool  # whether the last step took many conjugate gradients
    n_inner: int  # Newton steps since gamma was last changed
    distance_tried: float = np.inf  # at which masses were last made to coincide


@dataclass(frozen=True)
class EntropicNewton(HullSolver[State]):
    """Newton-CG with entropy continuation for hard margin and nu."""

    gamma_cut: float = 0.25  # smallest factor by which gamma shrinks at once
    gamma_per_gap: float = 2.0  # gamma aims at this multiple of (gap * distance^2 / entropy range)
    cg_residual: float = 0.1
    max_inner: int = 6  # Newton steps at one gamma before it is raised again
    direct_features: int = 512  # up to here the Hessian may be formed, once conjugate gradients work hard

    def start_on(self, hulls: Hulls, rng: np.random.Generator, warm: Warm) -> State:
        log_centre = hulls.uniform_log_mass()
        w, scores, gamma, soft, point, is_warm = hulls.start_from(warm, log_centre)
        error, best = hulls.rows.score_error(w), Best.none(w)
        state = bounded(State(hulls, w, scores, error, log_centre, gamma, soft, point, best, False, 0))
        return self._recentre(state, gamma) if is_warm else state

    def sweep(self, state: State) -> State:
        hulls, gamma = state.hulls, state.gamma
        gradient = state.w - state.point.z
        direction, n_products = self._direction(state, gradient)
        slope, tilt = gradient @ direction, hulls.scores(direction)
        value, step = 0.5 * state.w @ state.w - state.soft.value, 1.0
        while True:
            w, scores = state.w + step * direction, np.empty_like(tilt)
            move = partial(_move, state.scores, step, tilt, scores)
            each_piece(move, len(tilt))
            soft = hulls.softened(scores, state.log_centre, gamma, state.soft.level)
            most = value + 1e-4 * step * slope + 1e-14 * abs(value)
            if (soft is not None and 0.5 * w @ w - soft.value <= most) or step < _LEAST_STEP:
                break
            step /= 2
        if soft is None:  # no move at all: a larger gamma will follow
            w, scores, soft, step = state.w, state.scores, state.soft, 0.0
        point, worked_hard, n_inner = hulls.combine(soft.mass), n_products > 8 + len(w) // 8, state.n_inner + 1
        # Those of w so far, of the step, and the rounding of the two sums: of scores and of w.
        error = state.score_error + step * hulls.rows.score_error(direction) + hulls.rows.score_error(w)
        if error > _MAX_DRIFT * hulls.rows.score_error(w):
            scores, error = hulls.scores(w), hulls.rows.score_error(w)
        state = state._replace(w=w, scores=scores, score_error=error, soft=soft, point=point, worked_hard=worked_hard,
                               n_inner=n_inner)  # fmt: skip
        state = coincided(bounded(state))
        state = state._replace(best=state.best.counted())
        # Far from the solution a rough minimum will do; close to it the masses must settle before they become a centre.
        patience = 1.0 if state.best.certificate.relative > 1e-3 else 1e-3
        agrees = np.linalg.norm(state.point.z - state.w) <= 0.5 * np.linalg.norm(state.w)
        if agrees and -slope <= patience * gamma:
            aim = hulls.affordable_gamma(state.best.certificate, self.gamma_per_gap)
            # How much is affordable shows in how many steps the last gamma took.
            cut = {1: self.gamma_cut, 2: np.sqrt(self.gamma_cut)}.get(state.n_inner, 1.0)
            return self._recentre(state, max(gamma * cut, min(gamma, aim)))
        if state.n_inner >= self.max_inner:
            return self._recentre(state, gamma / self.gamma_cut)
        return state

    def _recentre(self, state: State, gamma: float) -> State:
        """Move the centre to the current masses and go on with another gamma."""
        hulls = state.hulls
        log_mass = hulls.log_mass(state.soft, state.scores, state.log_centre, state.gamma)
        soft = hulls.soften(state.scores, log_mass, gamma, state.soft.level)
        point = hulls.combine(soft.mass)
        best = hulls.closer(state.best, soft.mass, point)  # the direction is the same
        return state._replace(log_centre=log_mass, gamma=gamma, soft=soft, point=point, best=best, n_inner=0)

    def _direction(self, state: State, gradient: np.ndarray) -> tuple[np.ndarray, int]:
        """Solve Hessian times direction = -gradient; also how many products with the Hessian that took."""
        hulls, comm, rows = state.hulls, state.hulls.comm, state.hulls.rows
        mass, side = state.soft.mass, hulls.side
        n_features = len(gradient)
        least = 1e-12 / hulls.totals

        def is_free(few: slice) -> np.ndarray:
            return ~state.soft.is_capped[few] & (mass[few] > rows.shard.weight[few] * least[side[few]])

        free = places_of(is_free, len(mass))
        free_mass = mass[free]
        total, means = hulls.class_means(free, free_mass)
        if state.worked_hard and n_features <= self.direct_features:
            hessian = hulls.covariance(free, free_mass, total, means) / state.gamma
            hessian[np.diag_indices(n_features)] += 1.0
            return -np.linalg.solve(hessian, gradient), n_features

        def product(v: np.ndarray) -> np.ndarray:
            spread = comm.allreduce(rows.curvature(free, free_mass, v))
            return v + (spread - means.T @ (total * (means @ v))) / state.gamma

        return conjugate_gradients(product, -gradient, self.cg_residual, 250, 2 * hulls.n_entries)


def _move(scores: np.ndarray, step: float, tilt: np.ndarray, out: np.ndarray, rows: slice) -> None:
    np.add(scores[rows], step * tilt[rows], out=out[rows])


def second_moment(shard: Shard, rows: np.ndarray, mass: np.ndarray, n_entries: float) -> np.ndarray:
    """``sum_i mass_i x_i x_i'`` over ascending ``rows``, with pauses; ``n_entries`` bounds those of each rank."""
    d = shard.n_features
    total = np.zeros((d, d))
    for few in pieces(np.arange(len(rows)), n_entries * d / (1 if shard.is_sparse else BLAS_SPEED)):
        total += shard.second_moment(rows[few], mass[few])
    return total


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], target: np.ndarray, residual: float, max_steps: int, work: float = 0.0
) -> tuple[np.ndarray, int]:
    """Solve ``product(x) = target`` to a relative residual; also the number of products, each so much ``work``."""
    x, left, search = np.zeros_like(target), target.copy(), target.copy()
    norm = goal = left @ left
    n_products = 0
    while n_products < max_steps:
        n_products += 1
        image = product(search)
        pause(work)
        length = norm / (search @ image) if norm > 0 else 0.0
        x += length * search
        left -= length * image
        following = left @ left
        if following <= residual**2 * goal:
            break
        search, norm = left + (following / norm) * search, following
    return x, n_products


def bracketed_newton(
    slopes: Callable[[float], tuple[float, float]], flat: Callable[[float], float], max_steps: int
) -> float:
    """The positive zero of an increasing, piecewise linear function: Newton's method from 1, within a bracket.

    ``slopes(length)`` is its value and derivative; the search ends at a value of at most ``flat(length)``.
    """
    length, low, high = 1.0, 0.0, np.inf
    for _ in range(max_steps):
        slope, bend = slopes(length)
        if abs(slope) <= flat(length):
            break
        low, high = (length, high) if slope < 0 else (low, length)
        following = length - slope / bend if bend > 0 else np.inf
        middle = (low + high) / 2 if high < np.inf else 4 * low
        length = following if low < following < min(high, 10 * middle) else middle
    return length
