"""Hard margin and nu by the method of multipliers, with semismooth Newton steps inside.

    minimise over masses   0.5 ||z||^2,   z = sum_i y_i mass_i x_i,   0 <= mass_i <= upper_i,  each class adds up to 1

The method of multipliers holds the masses near a centre and then moves the centre to where that led. With the scores
s_i = y_i w.x_i the inner problem is smooth in w alone:

    minimise over w   0.5 ||w||^2 - min over masses of  sum_i mass_i s_i + (mass_i - centre_i)^2 / (2 rho upper_i)
    masses     mass_i = centre_i + rho upper_i (level - s_i), within bounds; a level for each class makes them add up
               to 1
    gradient   w - z
    Hessian    I + rho times the scatter of the free rows of each class, by upper_i, about their mean

Free rows are those whose mass is within its bounds. What this has over an entropy
(:mod:`widemargin.solvers.newton`) is that masses reach their bounds: few rows are free in the end, steps get cheap, and
the face of the solution is found exactly, however close the hulls are. The Hessian is formed where features are few,
from a sample of the free rows while these are many; where free rows are fewer than features, the system has their size;
else conjugate gradients take its place.

Reference: Yan, Li: An Efficient Augmented Lagrangian Method for Support Vector Machine, 2020, for the C-SVM. Here both
classes have a level of their own, and weights are bounded rows.

On ranks: a step costs one exchange of d numbers for the gradient, one of d^2 for the Hessian or of d for each step of
conjugate gradients, and a handful of single numbers for levels and the line search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.compiled.hull_steps import (
    MAX_LEVEL_STEPS,
    move_levels,
    soften_rows,
    solve_by_products,
    solve_few,
    tilted_sums,
)
from widemargin.data.pieces import each_piece, elementwise, places_of, sum_of_pieces
from widemargin.problems.polytope import NuMargin, largest_nu
from widemargin.solvers._hull_rows import length
from widemargin.solvers._hulls import (
    Best,
    Combined,
    Hulls,
    HullSolver,
    bounded,
    coincided,
    distance_to_coincide,
    solve_equilibrated,
)
from widemargin.solvers._multiplier_rules import MultiplierRules
from widemargin.solvers.newton import bracketed_newton, conjugate_gradients
from widemargin.solvers.protocol import Warm

_MAX_DRIFT = 64.0  # in errors of a fresh pass: then scores are computed afresh
_MAX_GROWTH = 1e30  # of rho
_ROUNDING = 1e-13  # relative: added so that no Hessian is singular
_MAX_SMALL_ROWS = 1024  # of systems of the size of free rows
_MAX_FEW_ROWS, _MAX_FEW_ENTRIES = 2048, 1 << 18  # of a problem whose steps are compiled in one call
_MAX_PRODUCTS = 4e9  # multiplications for inner products, or for the steps of a sweep with them
_STEPS_PER_SWEEP = 40  # of such a problem


class Softened(NamedTuple):
    """The masses that a centre and rho give for some scores."""

    mass: np.ndarray
    is_free: np.ndarray
    level: np.ndarray  # per class
    gain: float  # sum of (mass_i - centre_i) (level - s_i): what moving the centre is worth


class Few(NamedTuple):
    """A problem so small that the calls of Python would take most of the time."""

    rows: np.ndarray  # y_i (x_i - mean); where there are more features than rows, their inner products
    coef: np.ndarray | None  # then, w as a sum of rows


class State(NamedTuple):
    hulls: Hulls
    rng: np.random.Generator
    upper: np.ndarray  # largest mass of each row, at most one
    w: np.ndarray
    scores: np.ndarray  # y_i w.x_i, kept beside w
    score_error: float  # by which they may be off, in the worst case
    centre: np.ndarray
    rho: float
    soft: Softened
    point: Combined
    best: Best
    few: Few | None = None
    n_inner: int = 0  # steps since the centre moved
    distance_tried: float = np.inf  # at which masses were last made to coincide


def _are_few_rows(n: int, d: int) -> bool:
    return n <= _MAX_FEW_ROWS and n * d <= _MAX_FEW_ENTRIES


def _are_few_wide_rows(n: int, d: int) -> bool:
    return d > n and n <= _MAX_SMALL_ROWS and n * n * d <= _MAX_PRODUCTS


def is_best_cold(n_rows: int, n_features: int) -> bool:
    """Whether a problem is so small that a warm start takes longer than it saves."""
    return _are_few_rows(n_rows, n_features) or _are_few_wide_rows(n_rows, n_features)


@dataclass(frozen=True)
class HullMultipliers(MultiplierRules, HullSolver[State]):
    """Semismooth Newton steps on the method of multipliers."""

    tol: float = 1e-3  # to which a sweep of a small problem goes

    def start_on(self, hulls: Hulls, rng: np.random.Generator, warm: Warm) -> State:
        if warm is None and hulls.shard.n_features <= self.direct_features:
            warm = self._answer_of_a_sample(hulls, rng)
        upper = elementwise(np.minimum, hulls.upper, 1.0)
        centre = hulls.uniform_mass()
        w, is_warm = hulls.combine(centre).z, False
        if warm is not None:
            warm = np.where(hulls.rows.factor > 0, warm, 0.0)
            margin = hulls.margin(warm)
            is_warm = margin > 0
            w = warm * (margin / length(warm)) if is_warm else w
        scores = hulls.scores(w)
        mean, spread = hulls.mean_and_spread(scores, centre)
        rho = 1 / max(spread, _ROUNDING * hulls.size**2, 1e-100)
        error, few = hulls.rows.score_error(w), self._few(hulls, None if is_warm else centre)
        if few is not None and not is_warm:
            soft = Softened(centre, np.zeros(len(centre), dtype=np.bool_), mean, 0.0)
            point = Combined(w, np.ones(2))
            return State(hulls, rng, upper, w, scores, error, centre, rho, soft, point, Best.none(w), few)
        soft = _soften(hulls, upper, scores, centre, rho, mean)
        point = hulls.combine(soft.mass)
        while is_warm:
            sharper = _soften(hulls, upper, scores, centre, 2 * rho, soft.level)
            its_point = hulls.combine(sharper.mass)
            if np.linalg.norm(its_point.z - w) >= np.linalg.norm(point.z - w):
                break
            rho, soft, point = 2 * rho, sharper, its_point
        return bounded(State(hulls, rng, upper, w, scores, error, centre, rho, soft, point, Best.none(w), few))

    def _few(self, hulls: Hulls, coef: np.ndarray | None) -> Few | None:
        """``coef`` are those of w as a sum of rows, None if they are not known."""
        n, d = hulls.shard.n_rows, hulls.shard.n_features
        is_wide = coef is not None and _are_few_wide_rows(n, d)
        if hulls.comm.size > 1 or not (is_wide or _are_few_rows(n, d)):
            return None
        rows = hulls.rows.dense(np.arange(n))
        rows *= hulls.shard.y[:, None]
        return Few(rows @ rows.T, coef) if is_wide else Few(rows, None)

    def _answer_of_a_sample(self, hulls: Hulls, rng: np.random.Generator) -> np.ndarray | None:
        """The direction for a sample of the rows; None where rows are too few to sample."""
        shard, comm = hulls.shard, hulls.comm
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        stride = self.start_stride(n_rows, shard.n_features)
        if not stride or not isinstance(hulls.problem, NuMargin):
            return None
        own = np.random.default_rng([comm.rank, int(rng.integers(2**63))])
        sample = shard.take(np.sort(own.choice(shard.n_rows, -(-shard.n_rows // stride), replace=False)))
        totals = comm.allreduce(np.bincount(sample.y < 0, sample.weight, 2))
        if not totals.all():
            return None
        nu = min(hulls.problem.resolve_nu(*hulls.totals), largest_nu(*totals))
        state = self.start_on(Hulls.of(NuMargin(nu), sample, comm, self.is_equilibrated), rng, None)
        return self.solved_roughly(state).best.w

    def sweep(self, state: State) -> State:
        if state.few is not None:
            return self._sweep_few(state, state.few)
        state = self._move_centre(state)
        hulls = state.hulls
        gradient = state.w - state.point.z
        step = self._step(state, gradient)
        tilt = hulls.scores(step)
        found: list[tuple[float, Softened]] = []
        along, squared, slope = float(state.w @ step), float(step @ step), float(gradient @ step)

        drift = _bend(hulls, state.soft, state.upper, tilt)[2]

        def slopes(length: float) -> tuple[float, float]:
            # Levels move with the free rows.
            near, soft = found[-1] if found else (0.0, state.soft)
            level = soft.level + (length - near) * drift
            soft = _soften(hulls, state.upper, _moved(state.scores, length, tilt), state.centre, state.rho, level)
            found.append((length, soft))
            pull, bend, _ = _bend(hulls, soft, state.upper, tilt)
            return along + length * squared - pull, squared + state.rho * bend

        at = bracketed_newton(slopes, lambda length: 0.1 * abs(slope), max_steps=30)
        w, scores = state.w + at * step, _moved(state.scores, at, tilt)
        soft = next((each for where, each in reversed(found) if where == at), None)
        # Those of w so far, of the step, and the rounding of the two sums: of scores and of w.
        error = state.score_error + at * hulls.rows.score_error(step) + hulls.rows.score_error(w)
        if error > _MAX_DRIFT * hulls.rows.score_error(w):
            scores, error, soft = hulls.scores(w), hulls.rows.score_error(w), None
        if soft is None:
            soft = _soften(hulls, state.upper, scores, state.centre, state.rho, found[-1][1].level)
        point = hulls.combine(soft.mass)
        state = state._replace(w=w, scores=scores, score_error=error, soft=soft, point=point, n_inner=state.n_inner + 1)
        state = coincided(bounded(state))
        return state._replace(best=state.best.counted())

    def _sweep_few(self, state: State, few: Few) -> State:
        """The steps below, several of them, in one call."""
        hulls, centre, level = state.hulls, state.centre.copy(), state.soft.level.copy()
        mass, is_free = np.empty(len(centre)), np.empty(len(centre), dtype=np.bool_)
        rules = (self.rho_growth, _largest_rho(hulls), self.few_inner, self.max_inner)
        near = distance_to_coincide(state)
        tol = 0.98 * self.tol  # a part of the gap is left to rounding
        if few.coef is None:
            w, max_steps = state.w.copy(), _STEPS_PER_SWEEP
            rho, n_inner, gain, n_steps = solve_few(
                few.rows, hulls.side, state.upper, centre, w, level, state.rho, state.n_inner, rules, tol, near,
                max_steps, mass, is_free,
            )  # fmt: skip
        else:
            coef, max_steps = few.coef.copy(), max(1, int(min(_STEPS_PER_SWEEP, _MAX_PRODUCTS / len(centre) ** 3)))
            rho, n_inner, gain, n_steps = solve_by_products(
                few.rows, hulls.side, state.upper, centre, coef, level, state.rho, state.n_inner, rules, tol, near,
                max_steps, mass, is_free,
            )  # fmt: skip
            w, few = hulls.rows.sum_of(hulls.shard.y * coef), few._replace(coef=coef)
        soft, error = Softened(mass, is_free, level, gain), hulls.rows.score_error(w)
        state = state._replace(w=w, scores=hulls.scores(w), score_error=error, centre=centre, rho=rho, soft=soft,
                               point=hulls.combine(mass), n_inner=n_inner, few=few)  # fmt: skip
        state = coincided(bounded(state))
        if few.coef is not None and n_steps < max_steps and state.best.certificate.relative > self.tol:
            state = state._replace(few=None)  # products round more than rows do
        return state._replace(best=state.best.counted())

    def _move_centre(self, state: State) -> State:
        """Make the masses the new centre once the error of the inner problem is below what that gains."""
        soft, rho, hulls = state.soft, state.rho, state.hulls
        error = float(np.sum((state.w - state.point.z) ** 2))
        is_settled = error <= soft.gain
        if not is_settled and state.n_inner < self.max_inner:
            return state
        rho = self.next_rho(rho, _largest_rho(hulls), state.n_inner, is_settled=is_settled)
        centre = soft.mass if is_settled else state.centre
        soft = _soften(hulls, state.upper, state.scores, centre, rho, soft.level)
        return state._replace(centre=centre, rho=rho, soft=soft, point=hulls.combine(soft.mass), n_inner=0)

    def _step(self, state: State, gradient: np.ndarray) -> np.ndarray:
        """Solve Hessian times step = -gradient."""
        hulls, comm, rows = state.hulls, state.hulls.comm, state.hulls.rows
        free, n_features = places_of(lambda some: state.soft.is_free[some], len(state.soft.is_free)), len(gradient)
        n_free = float(comm.allreduce(np.array([float(len(free))]))[0])
        if n_free == 0:
            return -gradient
        stride = self.hessian_stride(n_free, n_features, hulls.n_entries)
        free = free[int(state.rng.integers(stride)) :: stride]
        mass = state.upper[free] * (state.rho * stride)
        if comm.size == 1 and n_free < n_features and n_free <= _MAX_SMALL_ROWS:
            return _small_step(hulls, free, mass, gradient)
        total, means = hulls.class_means(free, mass)
        if n_features <= self.direct_features:
            hessian = hulls.covariance(free, mass, total, means)
            hessian[np.diag_indices(n_features)] += 1.0
            return -solve_equilibrated(hessian, gradient)

        def product(v: np.ndarray) -> np.ndarray:
            spread = comm.allreduce(rows.curvature(free, mass, v))
            return np.asarray(v + spread - means.T @ (total * (means @ v)))

        return conjugate_gradients(product, -gradient, self.cg_residual, 250, 2 * hulls.n_entries)[0]


def _largest_rho(hulls: Hulls) -> float:
    return _MAX_GROWTH / max(hulls.size**2, 1e-200)


def _small_step(hulls: Hulls, free: np.ndarray, mass: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The same where free rows are fewer than features: with centred rows R, (I + R'R)^-1 = I - R' (I + RR')^-1 R."""
    rows, share = hulls.rows.taken(free), np.zeros((2, len(free)))
    for c in (0, 1):
        mine = hulls.side[free] == c
        share[c, mine] = mass[mine] / max(mass[mine].sum(), np.finfo(float).tiny)
    root = np.sqrt(mass)

    def centred(values: np.ndarray) -> np.ndarray:
        """Values of rows less the mean of their class, times the roots of masses."""
        return ((values - (share @ values)[hulls.side[free]]).T * root).T

    gram = rows @ rows.T
    system = centred(centred(gram.toarray() if sp.issparse(gram) else gram).T)
    system[np.diag_indices(len(free))] += 1.0 + _ROUNDING * np.abs(system).max(initial=0.0)
    pull = root * np.linalg.solve(system, centred(rows @ gradient))
    sums = np.bincount(hulls.side[free], pull, 2)
    return np.asarray(rows.T @ (pull - sums @ share) - gradient)


def _moved(scores: np.ndarray, length: float, tilt: np.ndarray) -> np.ndarray:
    """``scores + length tilt``."""
    out = np.empty(len(scores))

    def do(rows: slice) -> None:
        few = np.multiply(tilt[rows], length, out=out[rows])
        few += scores[rows]

    each_piece(do, len(out))
    return out


def _soften(
    hulls: Hulls, upper: np.ndarray, scores: np.ndarray, centre: np.ndarray, rho: float, level: np.ndarray
) -> Softened:
    """The masses near the centre for these scores; ``level`` is where the search for the levels begins."""
    mass, is_free = np.empty(len(scores)), np.empty(len(scores), dtype=np.bool_)
    search = np.array([[t, -np.inf, np.inf, 1 / rho] for t in level])
    precise = 1e-14 + 2e-17 * hulls.rows.n_sums  # to rounding

    def of_piece(rows: slice) -> np.ndarray:
        numbers = (scores[rows], hulls.side[rows], centre[rows], upper[rows])
        return np.asarray(soften_rows(*numbers, rho, search[:, 0], mass[rows], is_free[rows]))

    for _ in range(MAX_LEVEL_STEPS):
        sums = hulls.comm.allreduce(sum_of_pieces(of_piece, len(scores), 16.0))
        if not move_levels(search, sums, rho, precise):
            break
    return Softened(mass, is_free, search[:, 0].copy(), float(sums[4]))


def _bend(hulls: Hulls, soft: Softened, upper: np.ndarray, tilt: np.ndarray) -> tuple[float, float, np.ndarray]:
    """The sum of ``mass tilt``, the scatter of the tilts of free rows by upper, and their means, per class."""

    def of_piece(rows: slice) -> np.ndarray:
        numbers = (soft.mass[rows], soft.is_free[rows], upper[rows], hulls.side[rows], tilt[rows])
        return np.asarray(tilted_sums(*numbers))

    sums = hulls.comm.allreduce(sum_of_pieces(of_piece, len(tilt), 8.0))
    pull, free, first, second = sums[0], sums[1:3], sums[3:5], sums[5]
    means = np.divide(first, free, out=np.zeros(2), where=free > 0)
    return float(pull), float(second - first @ means), means
