"""Hard margin by column generation: a small hull problem at one place, prices from everywhere.

A working set of rows stands for both hulls. Each sweep
  1. prices all rows with the current direction w, which also gives the true margin of w,
  2. adds the rows of each class that lie deepest beyond the working set's own hyperplanes,
  3. solves the hull problem of the working set: pairwise steps (Mitchell, Demyanov, Malozemov [2]) find which of its
     rows carry mass, an exact solve on these finishes.
The distance can only be too large and the margin only too small, so both sides close in on the optimum.

On ranks the working set lives at rank 0. A round costs each rank the rows it offers and rank 0 one direction for each
rank: about three rows a rank, whatever the size of the data.

Reference: [1] Jin, Huang, Li: SVM via Saddle Point Optimization, 2017, problem (2), another algorithm than theirs.
[2] Mitchell, Demyanov, Malozemov: Finding the point of a polyhedron closest to the origin, 1974.
[3] Wolfe: Finding the nearest point in a polytope, 1976.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, lstsq, qr, solve

from widemargin.compiled.accurate import add_accurately_dense
from widemargin.compiled.jit import compiled
from widemargin.pauses import WORK, pause_alone, uneven
from widemargin.problems.polytope import HardMargin
from widemargin.rounding import gamma
from widemargin.solvers._hulls import Best, Hulls, HullSolver
from widemargin.solvers.protocol import Warm

_MAX_SUPPORT_SOLVES = 8  # in a row, each dropping rows, before pairwise steps go on
_MAX_STEPS_PER_ROW = 20
_WORK_PER_STEP = 6  # of each row
_WORK_PER_SOLVE = 20 * _MAX_STEPS_PER_ROW * _WORK_PER_STEP  # of a working set, by the square of its rows
_MAX_ROWS_PER_RANK = 2.0**40
_MAX_EXACT_ROWS = 128  # of a working set that is always solved exactly
_BLURRED = 1e-11  # squared distance, by the squared length of rows, which inner products hold to few digits only
_MAX_STALLED_STEPS = 8
_MAX_REFINEMENTS = 8
_REFINED = 1e-15
_DEPENDENT = 1e-13  # relative size of a difference that adds no new direction to a face
_MAX_LEAST_SQUARES = 5e8  # operations of a sweep, about: the rest is left to the next sweep, or to another solver


@dataclass
class WorkingSet:
    """The rows that rank 0 has collected, signed by their class, with their inner products and masses."""

    keys: np.ndarray  # (m,): rank and row of each, in one number
    rows: np.ndarray  # (m, d): y_i (x_i - mean)
    side: np.ndarray  # (m,)
    gram: np.ndarray  # (m, m)
    mass: np.ndarray  # (m,): adds up to one in each class

    @classmethod
    def empty(cls, n_features: int) -> WorkingSet:
        return cls(np.empty(0), np.empty((0, n_features)), np.empty(0, np.intp), np.empty((0, 0)), np.empty(0))

    def __len__(self) -> int:
        return len(self.mass)

    def level(self, gradient: np.ndarray) -> np.ndarray:
        """The smallest value of each class."""
        return np.array([gradient[self.side == c].min() for c in (0, 1)])

    def keep(self, kept: np.ndarray) -> None:
        self.keys, self.rows, self.side, self.mass = self.keys[kept], self.rows[kept], self.side[kept], self.mass[kept]
        self.gram = self.gram[np.ix_(kept, kept)]

    def add(self, keys: np.ndarray, side: np.ndarray, rows: np.ndarray) -> None:
        """Take in rows that are not there yet, with no mass but in a class that had none."""
        fresh = np.flatnonzero(~np.isin(keys, self.keys))
        keys, side, rows, old = keys[fresh], side[fresh], rows[fresh], len(self)
        gram = np.empty((old + len(fresh), old + len(fresh)))
        gram[:old, :old] = self.gram
        gram[old:] = rows @ np.concatenate([self.rows, rows]).T
        gram[:old, old:] = gram[old:, :old].T
        self.gram = gram
        self.keys = np.concatenate([self.keys, keys])
        self.rows = np.concatenate([self.rows, rows])
        self.side = np.concatenate([self.side, side])
        self.mass = np.concatenate([self.mass, np.zeros(len(fresh))])
        for c in (0, 1):
            mine = self.side == c
            if not self.mass[mine].any():
                self.mass[mine] = 1 / mine.sum()


class State(NamedTuple):
    hulls: Hulls
    w: np.ndarray  # the direction to be priced next
    level: np.ndarray  # per class: the smallest signed score of w in the working set
    working: WorkingSet | None  # at rank 0 only
    best: Best
    n_working: int = 0  # rows of the working set


@dataclass(frozen=True)
class ActiveSet(HullSolver[State]):
    """Column generation with an exact solve of the working set."""

    solves = (HardMargin,)
    rows_per_class: int | Literal["auto"] = "auto"  # offered in one sweep by all ranks together
    inner_share: float = 0.1  # of the gap: what the working set is solved to

    def start_on(self, hulls: Hulls, rng: np.random.Generator, warm: Warm) -> State:
        w = hulls.start_from(warm, hulls.uniform_log_mass()).w
        working = WorkingSet.empty(len(w)) if hulls.comm.rank == 0 else None
        return State(hulls, w, np.full(2, np.inf), working, Best.none(w))

    def sweep(self, state: State) -> State:
        hulls, comm = state.hulls, state.hulls.comm
        offers = comm.gather(self._offer(state, hulls.scores(state.w)))
        with uneven(_WORK_PER_SOLVE * float(state.n_working + 2 * self._most_offered(hulls)) ** 2):
            answer = None if offers is None or state.working is None else self._answer(state, state.working, offers)
        level, lowest, (error, n_working), z, w = np.split(comm.broadcast(answer), [2, 4, 6, 6 + len(state.w)])
        best = state.best.closer(*hulls.distance_of(hulls.rows.point_of_few(z, float(error))))
        margin = hulls.margin_of_levels(state.w, lowest, 0.0, hulls.rows.score_error(state.w))
        best = hulls.checked_margin(best, state.w, *margin)
        w = w if len(w) else z
        if best.certificate.dual <= 0 and hulls.overlaps(best):
            best = hulls.wider(best, w, hulls.scores(w))  # the last direction before the verdict
        return state._replace(w=w, level=level, best=best.counted(), n_working=int(n_working))

    def _masses(self, state: State) -> np.ndarray | None:
        """Rank 0 has them: it tells their rows and masses to all."""
        comm, working = state.hulls.comm, state.working
        told = None
        if working is not None:
            carries = np.flatnonzero(working.mass)
            told = np.concatenate([working.keys[carries], working.mass[carries]])
        keys, masses = comm.broadcast(told).reshape(2, -1)
        ranks, rows = np.divmod(keys, _MAX_ROWS_PER_RANK)
        mass, mine = np.zeros(state.hulls.shard.n_rows), ranks == comm.rank
        mass[rows[mine].astype(np.intp)] = masses[mine]
        return mass

    def _most_offered(self, hulls: Hulls) -> int:
        """Rows of a class that all ranks offer together in one sweep, at most."""
        # A hull in many dimensions has many rows next to the other. At home they are cheap; on the wire each is a row.
        d, size = hulls.shard.n_features, hulls.comm.size
        auto = min(64, 24 + d // 4) if size == 1 else 24 + d // 16
        return max(size, auto if self.rows_per_class == "auto" else self.rows_per_class)

    def _offer(self, state: State, scores: np.ndarray) -> np.ndarray:
        """This rank's lowest score of each class, then the rows it offers as (class, number, y_i (x_i - mean))."""
        hulls, shard = state.hulls, state.hulls.shard
        at_most = max(1, self._most_offered(hulls) // hulls.comm.size)
        lowest, offered = np.full(2, np.inf), []
        for c in (0, 1):
            mine = np.where(hulls.side == c, scores, np.inf)
            lowest[c] = mine.min(initial=np.inf)
            beyond = np.flatnonzero(mine < state.level[c])
            if len(beyond) > at_most:
                beyond = beyond[np.argpartition(scores[beyond], at_most - 1)[:at_most]]
            offered.append(beyond)
        chosen = np.sort(np.concatenate(offered))
        rows = hulls.rows.dense(chosen) * shard.y[chosen, None]
        return np.concatenate([lowest, np.column_stack([hulls.side[chosen], chosen, rows]).ravel()])

    def _answer(self, state: State, working: WorkingSet, offers: list[np.ndarray]) -> np.ndarray:
        """At rank 0: take in what was offered and solve; the next direction, its levels, the lowest scores of this."""
        lowest = np.min([offer[:2] for offer in offers], axis=0)
        rows = [offer[2:].reshape(-1, 2 + len(state.w)) for offer in offers]
        ranks = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
        everything = np.concatenate(rows)
        keys = ranks * _MAX_ROWS_PER_RANK + everything[:, 1]
        working.add(keys, everything[:, 0].astype(np.intp), everything[:, 2:])
        gap = 0.0 if len(working) <= _MAX_EXACT_ROWS else min(state.best.certificate.relative, 1.0)
        w, level = solve_working_set(working, max(self.inner_share * gap, 1e-13))
        z, error = nearest(working)
        return np.concatenate([level, lowest, [error, len(working)], z, [] if np.array_equal(z, w) else w])


def solve_working_set(working: WorkingSet, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """Solve the hull problem of the working set to a relative gap; the direction of its widest margin, and its levels.

    Inner products of rows hold the squared distance to a rounding of the squared length of rows only. Where hulls are
    closer than that, the search goes on with the rows themselves. Afterwards rows that carry no mass and lie well above
    their level are forgotten, once they are many.
    """
    w = None
    for _ in range(20):
        left, few = _MAX_STEPS_PER_ROW * len(working), max(1, int(WORK / (_WORK_PER_STEP * len(working))))
        while left > 0 and pairwise_steps(working.gram, working.side, working.mass, tol, min(few, left)) == few:
            left -= few
            pause_alone(WORK)
        gradient = working.gram @ working.mass
        level = working.level(gradient)
        squared = working.mass @ gradient
        if squared <= _BLURRED * working.gram.diagonal().max():
            close_in(working, tol)
            w = across(working)
            gradient = working.rows @ w
            level = working.level(gradient)
            break
        if squared - level.sum() <= tol * squared:
            break
        finish_on_support(working)
        pause_alone(float(np.count_nonzero(working.mass)) ** 3)
    w = nearest(working).z if w is None else w
    carries = working.mass > 0
    if len(working) > 4 * carries.sum() + 64:
        above = gradient - level[working.side]
        above[carries] = -1.0
        working.keep(np.sort(np.argsort(above, kind="stable")[: len(working) // 2]))
    return w, level


class Nearest(NamedTuple):
    """The difference of two points of the hulls, as exact as the rows of the working set."""

    z: np.ndarray
    error: float  # of z, relative to twice half the range of each column


def nearest(working: WorkingSet) -> Nearest:
    """``sum mass_i y_i (x_i - mean)`` with the masses of each class divided by their sum, by compensated sums.

    Differences to the mean were rounded once. The rest is as in :meth:`HullRows.point_of_sums`.
    """
    carries = np.flatnonzero(working.mass)
    mass, side = working.mass[carries], working.side[carries]
    high, low = np.zeros((2, 2, working.rows.shape[1]))
    add_accurately_dense(working.rows[carries], mass, side, high, low)
    off = np.array([math.fsum([*mass[side == c], -1.0]) for c in (0, 1)])
    share = (off / (1 + off))[:, None]
    small = low - share * high
    z = (high[0] + high[1]) + (small[0] + small[1])
    return Nearest(z, gamma(8) + 2 * gamma(len(carries) + 8) ** 2 + gamma(16) * float(np.abs(share).sum()))


def close_in(working: WorkingSet, tol: float) -> None:
    """Wolfe's algorithm [3] for the nearest points: exact on the rows that carry mass, joined by the lowest, in turn.

    Masses change by the solution of a least-squares problem in differences of rows. This finds distances of about a
    rounding of the length of rows, where inner products stop at its square root.
    """
    d = working.rows.shape[1]
    active = working.mass > 0
    shortest, n_stalled, work = np.inf, 0, 0.0
    while n_stalled < _MAX_STALLED_STEPS and work + d * active.sum() ** 2 <= _MAX_LEAST_SQUARES:
        work += d * float(active.sum()) ** 2
        solve_on(working, active)
        active = working.mass > 0
        z = nearest(working).z
        gradient = working.rows @ z
        squared, level = float(working.mass @ gradient), working.level(gradient)
        if squared - level.sum() <= tol * squared:
            return
        distance = float(np.linalg.norm(z))
        n_stalled = 0 if distance < shortest * (1 - 1e-12) else n_stalled + 1
        shortest = min(shortest, distance)
        over = [float(working.mass @ np.where(working.side == c, gradient, 0.0)) - level[c] for c in (0, 1)]
        of_class = np.where(working.side == int(np.argmax(over)), gradient, np.inf)
        active[int(np.argmin(of_class))] = True


def across(working: WorkingSet) -> np.ndarray:
    """The direction from one hull to the other: the difference of nearest points, without what lies along their faces.

    The difference is as exact as masses are. Where it is short, what is left of the faces in it tilts it by much. What
    is orthogonal to the faces is exact relative to itself.
    """
    z = nearest(working).z
    differences = _along_faces(working, np.flatnonzero(working.mass))[0]
    if not len(differences):
        return z
    q, r, _ = qr(differences.T, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(r))
    q = q[:, : int((sizes > _DEPENDENT * sizes[0]).sum())]
    w = z - q @ (q.T @ z)
    w -= q @ (q.T @ w)
    return w if np.linalg.norm(w) > 0.1 * np.linalg.norm(z) else z


def _along_faces(working: WorkingSet, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Differences of the given rows to the heaviest of their class; the places of the others and of the heaviest ones.

    Masses add up to one: what a row gains, the heaviest row of its class loses.
    """
    side = working.side[rows]
    heaviest = np.array([np.argmax(np.where(side == c, working.mass[rows], -1.0)) for c in (0, 1)])
    others = np.setdiff1d(np.arange(len(rows)), heaviest)
    anchors = heaviest[side[others]]
    return working.rows[rows[others]] - working.rows[rows[anchors]], others, anchors


def solve_on(working: WorkingSet, active: np.ndarray) -> None:
    """Move to the nearest points of the hulls of the active rows, dropping rows whose mass would turn negative."""
    for _ in range(int(active.sum()) + _MAX_REFINEMENTS):
        rows = np.flatnonzero(active)
        differences, others, anchors = _along_faces(working, rows)
        if not len(others):
            return
        gain = lstsq(differences.T, -nearest(working).z, lapack_driver="gelsy", check_finite=False)[0]
        move = np.zeros(len(rows))
        move[others] = gain
        np.subtract.at(move, anchors, gain)
        mass = working.mass[rows]
        falling = mass + move <= 0
        limits = np.where(falling, mass / np.where(falling & (move < 0), -move, 1.0), np.inf)
        step = min(1.0, limits.min())
        mass = np.maximum(mass + step * move, 0.0)
        mass[limits <= step * (1 + 1e-12)] = 0.0
        working.mass[rows] = mass
        active &= working.mass > 0
        if step == 1.0 and np.abs(move).max() <= _REFINED:
            return


def finish_on_support(working: WorkingSet) -> None:
    """Move towards the exact minimum over the rows that carry mass, dropping those whose mass would turn negative."""
    for _ in range(_MAX_SUPPORT_SOLVES):
        support = np.flatnonzero(working.mass)
        n = len(support)
        system = np.zeros((n + 2, n + 2))
        # In units of the longest row: masses are the same in all, and sums of ones stand in the same system.
        gram = working.gram[np.ix_(support, support)]
        system[:n, :n] = gram / (gram.diagonal().max() or 1.0)
        # Rows that depend on each other leave the masses undetermined; a trace of ridge picks some.
        system[np.diag_indices(n)] += 1e-13
        for c in (0, 1):
            system[n + c, :n] = system[:n, n + c] = working.side[support] == c
        try:
            exact = solve(system, np.repeat([0.0, 1.0], [n, 2]), assume_a="sym", check_finite=False)[:n]
        except LinAlgError:
            return
        mass = working.mass[support]
        move = exact - mass
        if not np.isfinite(move).all():
            return
        falling = exact <= 0
        limits = np.where(falling, mass / np.where(falling, -move, 1.0), np.inf)
        step = min(1.0, limits.min())
        mass = np.maximum(mass + step * move, 0.0)
        mass[limits <= step * (1 + 1e-12)] = 0.0
        working.mass[support] = mass
        if step == 1.0:
            return


@compiled()
def pairwise_steps(gram: np.ndarray, side: np.ndarray, mass: np.ndarray, tol: float, max_steps: int) -> int:
    """Shift mass within a class from one row to another, the pair that helps most, until the gap is below ``tol``.

    In place on ``mass``; returns the number of steps. The receiving row is the lowest of its class; the giving one is
    chosen for the largest fall of the squared distance.
    """
    m = mass.shape[0]
    longest = 0.0
    for i in range(m):
        longest = max(longest, gram[i, i])
    gradient = gram @ mass
    lowest = np.zeros(2, dtype=np.int64)
    for step in range(max_steps):
        lowest[:] = -1
        squared = 0.0
        for i in range(m):
            c = side[i]
            squared += mass[i] * gradient[i]
            if lowest[c] < 0 or gradient[i] < gradient[lowest[c]]:
                lowest[c] = i
        if squared - gradient[lowest[0]] - gradient[lowest[1]] <= tol * squared or squared <= 1e-12 * longest:
            return step
        best, giver, shift = 0.0, -1, 0.0
        for i in range(m):
            if mass[i] > 0.0:
                j = lowest[side[i]]
                slope = gradient[i] - gradient[j]
                if slope > 0.0:
                    most = mass[i]
                    curvature = gram[i, i] + gram[j, j] - 2.0 * gram[i, j]
                    if curvature * most > slope:
                        most = slope / curvature
                    gain = most * (slope - 0.5 * most * curvature)
                    if gain > best:
                        best, giver, shift = gain, i, most
        if giver < 0:
            return step
        j = lowest[side[giver]]
        mass[giver] -= shift
        mass[j] += shift
        for i in range(m):
            gradient[i] += shift * (gram[j, i] - gram[giver, i])
    return max_steps
