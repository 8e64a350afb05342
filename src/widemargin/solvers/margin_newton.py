"""Semismooth Newton steps for the optimal margin distribution machine with a kernel.

The primal objective is smooth with a piecewise constant second derivative. With b_i the second derivative of the loss
of row i, which is 0 in the deadband, and pull_i minus the first one, a Newton step from w = sum_i beta_i phi_i is

    inactive rows (b_i = 0)   change_i = -beta_i
    active rows               (B^-1 + K_AA) change_A = B^-1 (y pull - beta)_A - K_AI change_I

and the length of the step is the best one, which is found from the margins alone. As soon as the active rows are those
of the optimum, one step ends it.

The system is solved by conjugate gradients, one product with the kernel each. Where the active rows are few they are
preconditioned by Cholesky's factor of the system itself, rounded, so that one or two will do; else by the kernel as
some rows z of the data tell it, K ~ K_nz K_zz^-1 K_zn (Nystroem). A few blocks of coordinate steps should come first
(:mod:`widemargin.solvers.auto`): at zero every row is active.

On several ranks every one holds its rows of the kernel and of all vectors; a product costs one exchange of a number for
each active row, a step one of the square of the number of rows z, or the active rows travel to rank 0.

Reference: Chapelle: Training a Support Vector Machine in the Primal, 2007, for one-sided losses and a whole kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, spotrf

from widemargin.comm.protocol import place_among_ranks
from widemargin.compiled import margin_passes
from widemargin.pauses import BLAS_SPEED, pieces, uneven
from widemargin.problems.protocol import Certificate
from widemargin.solvers._kernel_ranks import Summed, share, share_points, work_with
from widemargin.solvers.margin_descent import CACHE_BYTES, KernelMarginSolver, MarginDescent, State
from widemargin.solvers.newton import bracketed_newton
from widemargin.solvers.protocol import AnySolver, Inputs

_EXACT = 1e-28  # of the square of the right side: no step is more exact
_VALUES_PER_SWEEP = 5e8  # kernel values between two looks at the clock
_FLAT = 1e-3  # a step's length is found when the slope is this part of what it was
_FULL = 0.2  # ... for the length 1, at which the coefficients of all inactive rows vanish


class _Factor:
    """Cholesky's factor of the whole system, at rank 0."""

    def __init__(self, state: State, root: np.ndarray) -> None:
        self._comm, self._active = comm, active = state.comm, np.flatnonzero(root)
        self._place, self._factor = place_among_ranks(comm, len(active)), None
        places = share(comm, active + state.values.place.start)
        points = share_points(comm, state.rows.points(active))
        roots = share(comm, root[active])
        with uneven(float(len(points)) ** 2 * state.rows.n_features):
            if comm.rank == 0:
                system = state.values.block(places, points)
                system += system.dtype.type(state.problem.constant)
                system *= roots.astype(system.dtype)
                system *= roots.astype(system.dtype)[:, None]
                self._factor = _factor(system)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        everywhere = share(self._comm, values[self._active])
        solved = np.empty(0)
        if self._factor is not None:
            solved = cho_solve((self._factor, True), everywhere.astype(self._factor.dtype), check_finite=False)
        out = np.zeros(len(values))
        out[self._active] = self._comm.broadcast(solved)[self._place]
        return out


def _factor(system: np.ndarray) -> np.ndarray:
    """The factor of 1 + system, or of a little more where rounding made that indefinite; ``system`` is written to."""
    diagonal = np.diagonal(system).astype(np.float64)
    jitter = float(np.finfo(system.dtype).eps) * diagonal.max(initial=0.0)
    for _ in range(20):
        system[np.diag_indices(len(system))] = 1.0 + diagonal + jitter
        factor, info = (spotrf if system.dtype == np.float32 else dpotrf)(system.T, lower=1, clean=0, overwrite_a=0)
        if info == 0:
            return factor
        jitter *= 10.0
    raise np.linalg.LinAlgError("The kernel is too far from an inner product for a Newton step.")


class _Nystroem:
    """The system with features of some rows in the kernel's place: features' features + noise, by Woodbury."""

    def __init__(self, state: State, root: np.ndarray, landmarks: np.ndarray) -> None:
        self._comm, self._features = state.comm, landmarks * root
        explained = np.einsum("ij,ij->j", self._features, self._features)
        self._noise = 1.0 + np.maximum(root**2 * state.curvature - explained, 0.0)
        gram, n_features = np.zeros((len(landmarks), len(landmarks))), float(len(landmarks))
        for few in pieces(np.arange(len(root)), n_features**2 * state.values.n_all / BLAS_SPEED):
            some = self._features[:, few]
            gram += (some / self._noise[few]) @ some.T
        gram = state.comm.allreduce(gram.ravel()).reshape(gram.shape).copy()
        gram[np.diag_indices(len(gram))] += 1.0
        self._factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        scaled = values / self._noise
        inner = cho_solve(self._factor, self._comm.allreduce(self._features @ scaled), check_finite=False)
        return scaled - (inner @ self._features) / self._noise


@dataclass
class _System:
    """A Newton step in the making, by conjugate gradients; arrays are those of this rank's rows.

    In the variables ``change = root * z`` with root = sqrt(b) the system is (1 + root K root) z = right. What is left
    of the right side is measured without the preconditioner: half its square is about what the step has yet to win.
    """

    root: np.ndarray  # 0 for inactive rows
    z: np.ndarray
    left: np.ndarray  # what is left of the right side
    search: np.ndarray
    norm: float  # of what is left, as the preconditioner sees it
    squared: float  # of what is left
    goal: float  # for that
    floor: float  # below which it is rounding
    change: np.ndarray  # of inactive rows
    reach: np.ndarray  # K change of all rows, z included
    precondition: Callable[[np.ndarray], np.ndarray]
    summed: Summed  # what ``reach`` is a sum of
    n_products: int = 0


@dataclass
class NewtonState(State):
    landmarks: np.ndarray | None = None  # K_zz^-1/2 K_zn, with the constant feature
    system: _System | None = None  # of a step in the making


@dataclass(frozen=True)
class MarginNewton(KernelMarginSolver[NewtonState]):
    """Newton steps; ``cache_bytes`` bound the kernel values that are kept.

    Up to ``direct_rows`` active rows the system is factored, else ``landmarks`` rows stand for the others in the
    preconditioner. Conjugate gradients end when the residual is ``residual`` of the root of the gap, or after
    ``max_products``. Where a step fails, a block of ``descent`` takes its place.
    """

    state_type = NewtonState
    cache_bytes: int = CACHE_BYTES
    direct_rows: int = 3000
    landmarks: int = 500
    residual: float = 0.1
    max_products: int = 300
    descent: MarginDescent = field(default_factory=MarginDescent)

    def take_over(self, other: AnySolver, state: State, inputs: Inputs) -> NewtonState:
        return NewtonState(**vars(state))

    def sweep(self, state: NewtonState) -> NewtonState:
        """A Newton step, or a part of one where products take long."""
        if state.system is None:
            state.system = self._begin(state)
        self._go_on(state, state.system)
        return state

    def certify(self, state: NewtonState) -> Certificate | None:
        return None if state.system is not None else self._bounds(state)

    def confirm(self, state: NewtonState, latest: Certificate | None) -> Certificate:
        state.system = None
        return super().confirm(state, latest)

    def _begin(self, state: NewtonState) -> _System:
        problem, comm = state.problem, state.comm
        margin, beta = state.margin, state.beta
        bend = problem.bend(margin, state.steep)
        active = bend > 0
        wanted = state.shard.y * problem.best_dual(margin, state.steep) - beta
        change = np.where(active, 0.0, -beta)
        counts = [float(np.count_nonzero(active)), float(np.count_nonzero(change)), change.sum()]
        n_active, n_leaving, total = comm.allreduce(np.array(counts))
        reach = self._product(state, change) if n_leaving else np.zeros(len(change))
        root = np.sqrt(bend)
        right = np.where(active, wanted / np.where(active, root, 1.0), 0.0) - root * (reach + problem.constant * total)
        precondition: Callable[[np.ndarray], np.ndarray]
        if n_active <= self.direct_rows:
            precondition = _Factor(state, root)
        else:
            if state.landmarks is None:
                state.landmarks = self._landmarks(state, active)
            precondition = _Nystroem(state, root, state.landmarks)
        search = precondition(right)
        norm, squared = map(float, comm.allreduce(np.array([search @ right, right @ right])))
        z, floor = np.zeros(len(root)), _EXACT * squared
        goal = max(self.residual**2 * self._bounds(state).gap, floor)
        summed = Summed.of(comm, state.rows, change)
        return _System(root, z, right, search, norm, squared, goal, floor, change, reach, precondition, summed)

    def _go_on(self, state: NewtonState, system: _System) -> None:
        """Conjugate gradients, until the step is ready or the clock wants to be looked at."""
        comm, constant, budget = state.comm, state.problem.constant, _VALUES_PER_SWEEP
        while True:
            while system.squared > system.goal and system.n_products < self.max_products:
                if budget <= 0:
                    return
                moving = system.root * system.search
                product = self._product(state, moving)
                total = float(comm.allreduce(np.array([moving.sum()]))[0]) * constant
                image = system.search + system.root * (product + total)
                length = system.norm / float(comm.allreduce(np.array([system.search @ image]))[0])
                system.z += length * system.search
                system.left = system.left - length * image
                system.reach = system.reach + length * product
                system.summed = system.summed.plus(Summed.of(comm, state.rows, length * moving))
                better = system.precondition(system.left)
                norms = comm.allreduce(np.array([better @ system.left, system.left @ system.left]))
                norm, system.squared = map(float, norms)
                system.search = better + (norm / system.norm) * system.search
                system.norm = norm
                system.n_products += 1
                if not state.values.is_kept:
                    budget -= float(state.values.n_all) ** 2 / comm.size
            if self._move(state, system.change + system.root * system.z, system.reach, system.summed):
                break
            # The objective does not fall along a step that is not exact enough.
            if system.n_products >= self.max_products or system.goal <= system.floor:
                self.descent.sweep(state)
                break
            system.goal = max(min(system.goal, system.squared) * 1e-2, system.floor)
        state.system = None

    def _product(self, state: State, coef: np.ndarray) -> np.ndarray:
        """The kernel of this rank's rows with all rows, times the coefficients of those."""
        support = np.flatnonzero(coef)
        places = share(state.comm, support + state.values.place.start)
        return state.values.times(places, share(state.comm, coef[support]))

    def _move(self, state: State, change: np.ndarray, reach: np.ndarray, summed: Summed) -> bool:
        """Go along ``change`` of beta, which changes responses by ``reach``, as far as is best; False if not at all."""
        comm, problem, y = state.comm, state.problem, state.shard.y
        sums = comm.allreduce(np.array([change.sum(), change @ state.response, change @ reach]))
        total = float(sums[0]) * problem.constant
        along, squared = float(sums[1]) + total * state.intercept, float(sums[2]) + total**2
        margin, tilt = state.margin, y * (reach + total)

        def slopes(length: float) -> tuple[float, float]:
            slope, bend = comm.allreduce(margin_passes.line_sums(margin, tilt, state.steep, *problem.shape, length))
            return along + length * squared + float(slope), squared + float(bend)

        length = best_length(slopes)
        moved = summed._replace(mass=length * summed.mass)
        state.move(length * y * change, length * reach, length * total, moved)
        return length > 0

    def _landmarks(self, state: State, active: np.ndarray) -> np.ndarray:
        comm, values = state.comm, state.values
        rows = np.flatnonzero(active)
        n_active = float(comm.allreduce(np.array([float(len(rows))]))[0])
        mine = min(len(rows), -(-int(self.landmarks * len(rows)) // int(n_active)))
        chosen = np.sort(state.rng.choice(rows, mine, replace=False))
        places = share(comm, chosen + values.place.start)
        points = share_points(comm, state.rows.points(chosen))
        with uneven(0.0 if values.is_kept else work_with(comm, state.rows, len(points))):
            across = values.kept[places] if values.is_kept else state.rows.rows(points)
        across = across.astype(np.float64) + state.problem.constant
        among = state.rows.block(points, exact=True).astype(np.float64) + state.problem.constant
        # Rows that are nearly copies would make the factor fail.
        among[np.diag_indices(len(among))] += 1e-7 * np.diagonal(among).max()
        factor = np.linalg.cholesky(among)
        for few in pieces(np.arange(across.shape[1]), float(len(factor)) ** 2 * values.n_all / BLAS_SPEED):
            across[:, few] = solve_triangular(factor, across[:, few], lower=True)
        return across


def best_length(slopes: Callable[[float], tuple[float, float]]) -> float:
    """The minimiser over lengths >= 0 of a convex function, whose first and second derivative ``slopes`` returns."""
    first, _ = slopes(0.0)
    if first >= 0:
        return 0.0
    return bracketed_newton(slopes, lambda length: (_FULL if length == 1.0 else _FLAT) * abs(first), max_steps=50)
