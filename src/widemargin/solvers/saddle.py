"""Saddle-SVC and Saddle-DSVC: hard margin and nu-SVM by coordinate steps on the entropic saddle point.

    maximise over w   minimise over masses   sum_i mass_i s_i + gamma * H(mass) - 0.5 ||w||^2,   s_i = y_i w.x_i

Algorithm 1 rotates the rows by a random sign flip and a Walsh-Hadamard transform, which spreads them evenly over the
coordinates. Algorithm 2 repeats: pick coordinates at random, step w there along the extrapolated z = A eta - B xi
(line 4), then move the masses by one entropic proximal step (lines 5 and 6) and back onto the capped simplex (12).

Reference: Jin, Huang, Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.

    here         paper                   |  here          paper
    mass         eta and xi              |  share         1/d, here (block size)/d
    log_density  log(eta_i / c_i)        |  sigma, tau    sigma, tau
    scores       y_i <w, X_i>            |  theta         theta
    block        i*, here several        |  radius        q / sqrt(d) of one coordinate

Departures from the paper, each measured:
* a block of coordinates is stepped at a time. The paper's constants become, with R a quarter of the largest length of a
  row within a block: sigma = sqrt(gamma)/(2R), tau = 1/(2R sqrt(gamma)); q = sqrt(log n) would be far too cautious;
* gamma follows the certified gap down instead of starting at its last value, the biggest lever on speed;
* the run stops on the certificate: the paper's rule, no change of the objective, stops much too early;
* with all coordinates in one block nothing is random, and the rotation is left out.

On ranks (Algorithm 4) the block comes from a shared seed and the normalisation rides with the next inner products, so
that a round is one exchange of 3b + 2 numbers instead of three; the masses of nu need one to three more of six numbers
to find their projection. The iterates are the serial ones up to the order of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from widemargin.compiled.transforms import walsh_hadamard
from widemargin.pauses import WORK, TimeIsUp, is_time_up, pause_alone, uneven
from widemargin.solvers._hulls import Best, Hulls, HullSolver
from widemargin.solvers.protocol import Warm

_MIN_ROUNDS = 16  # of a sweep, which ends in a certificate that costs about two rounds over all coordinates
_BLOCK_ENTRIES = 1 << 18  # entries of a block at which the work of a round outweighs its Python calls
_BLOCK_ON_RANKS = 64  # coordinates
_PASSES_PER_ROUND = 8.0  # over the entries of a block, about, with what is done for each row
_WORK_PER_ROTATION = 32.0  # of each entry
_STALL_FACTOR = 4.0  # times the rounds that a saddle point needs: then the gap has stalled


class AllAtOnce:
    """One block of all coordinates, unrotated; sparse rows stay sparse."""

    n_blocks = 1

    def __init__(self, hulls: Hulls) -> None:
        # The radius is the largest length of a local row within a block.
        self._rows, self.radius = hulls.rows, hulls.radius

    def combine(self, block: int, masses: np.ndarray) -> np.ndarray:
        """``X_S masses`` for the coordinates S of a block; ``masses`` has a column for each combination."""
        return np.stack([self._rows.combine(np.ascontiguousarray(column)) for column in masses.T], axis=1)

    def scores(self, block: int, dw: np.ndarray) -> np.ndarray:
        """``X_S' dw`` of rows relative to their mean."""
        return self._rows.scores(dw)

    def slice(self, block: int) -> slice:
        """Where the block lies in w."""
        return slice(None)

    def to_rows(self, w: np.ndarray) -> np.ndarray:
        """w in the coordinates of the original rows; :meth:`from_rows` is the inverse."""
        return w

    def from_rows(self, w: np.ndarray) -> np.ndarray:
        return w


class Rotated:
    """Algorithm 1: rows under a random rotation, stored coordinate by coordinate."""

    def __init__(self, hulls: Hulls, block_size: int, signs: np.ndarray) -> None:
        shard = hulls.shard
        self.n_coordinates = len(signs)
        self._size, self._signs, self._n_features = block_size, signs, shard.n_features
        self.n_blocks = -(-self.n_coordinates // block_size)
        # One more copy of the rows, in their own precision.
        self._columns = np.empty((self.n_coordinates, shard.n_rows), dtype=shard.dtype)
        few = max(1, min(1024, int(WORK / (_WORK_PER_ROTATION * self.n_coordinates))))
        for begin in range(0, shard.n_rows, few):
            rows = np.arange(begin, min(begin + few, shard.n_rows))
            self._columns[:, rows] = self._rotate(hulls.rows.dense(rows)).T
            pause_alone(_WORK_PER_ROTATION * len(rows) * self.n_coordinates)
        blocks = (self._columns[self.slice(block)] for block in range(self.n_blocks))
        squares = (np.einsum("ij,ij->j", block, block, dtype=np.float64).max(initial=0.0) for block in blocks)
        self.radius = float(np.sqrt(max(squares, default=0.0)))

    def _rotate(self, rows: np.ndarray) -> np.ndarray:
        padded = np.zeros((len(rows), self.n_coordinates))
        padded[:, : self._n_features] = rows
        padded *= self._signs
        walsh_hadamard(padded)
        return padded

    def combine(self, block: int, masses: np.ndarray) -> np.ndarray:
        part = self._columns[self.slice(block)]
        return np.asarray(part @ masses.astype(part.dtype, copy=False), dtype=np.float64)

    def scores(self, block: int, dw: np.ndarray) -> np.ndarray:
        part = self._columns[self.slice(block)]
        return np.asarray(dw.astype(part.dtype, copy=False) @ part, dtype=np.float64)

    def slice(self, block: int) -> slice:
        return slice(block * self._size, min((block + 1) * self._size, self.n_coordinates))

    def to_rows(self, w: np.ndarray) -> np.ndarray:
        # The Walsh-Hadamard matrix is its own inverse.
        turned = w[None, :].copy()
        walsh_hadamard(turned)
        return (turned[0] * self._signs)[: self._n_features]

    def from_rows(self, w: np.ndarray) -> np.ndarray:
        return self._rotate(w[None, :])[0]


class State(NamedTuple):
    hulls: Hulls
    coordinates: AllAtOnce | Rotated
    rng: np.random.Generator  # the same on all ranks: the shared choice of blocks
    gamma: float
    w: np.ndarray  # in the coordinates of the algorithm
    scores: np.ndarray  # y_i <w, X_i>, kept beside w
    log_density: np.ndarray  # of the masses relative to the weights, up to a constant per class
    weights: np.ndarray  # the masses up to a factor per class, Z, which the next round learns
    previous: np.ndarray  # masses of the round before
    radius: float  # R: steps are as long as a smaller one allows
    shortest_radius: float
    best: Best  # in the coordinates of the rows
    n_stalled: int


@dataclass(frozen=True)
class SaddlePoint(HullSolver[State]):
    """Block coordinate primal-dual steps with entropy continuation."""

    block_size: int | Literal["auto"] = "auto"
    gamma_per_gap: float = 2.0  # larger multiples of (gap * distance^2 / entropy range) stall

    def start_on(self, hulls: Hulls, rng: np.random.Generator, warm: Warm) -> State:
        shard = hulls.shard
        signs = rng.choice([-1.0, 1.0], 1 << max(0, shard.n_features - 1).bit_length())
        size = self._resolve_block_size(hulls, len(signs))
        try:
            with uneven(2 * _WORK_PER_ROTATION * hulls.n_entries):
                coordinates = Rotated(hulls, size, signs) if size else AllAtOnce(hulls)
        except TimeIsUp:
            coordinates = AllAtOnce(hulls)
        radius = max(float(hulls.comm.allreduce(np.array([coordinates.radius]), "max")[0]) / 4, np.finfo(float).tiny)
        log_centre = hulls.uniform_log_mass()
        begin = hulls.start_from(warm, log_centre)
        if begin.is_warm:
            w, mass = begin.w, begin.soft.mass
            log_mass = hulls.log_mass(begin.soft, begin.scores, log_centre, begin.gamma)
        else:
            w, log_mass, mass = np.zeros(shard.n_features), log_centre, np.exp(log_centre)  # Algorithm 1, line 5
        log_density = log_mass - np.log(shard.weight)
        state = State(hulls, coordinates, rng, 0.0, coordinates.from_rows(w), hulls.scores(w), log_density, mass, mass,
                      radius, radius, Best.none(begin.w), 0)  # fmt: skip
        state = _bound(state)
        aim = hulls.affordable_gamma(state.best.certificate, self.gamma_per_gap)
        return state._replace(gamma=max(aim, begin.gamma * 1e-12))

    def sweep(self, state: State) -> State:
        n_blocks = state.coordinates.n_blocks
        n_rounds = max(n_blocks, _MIN_ROUNDS)
        work = _PASSES_PER_ROUND * state.hulls.n_entries / n_blocks
        for block in state.rng.integers(n_blocks, size=n_rounds):
            state = _round(state, int(block))
            if is_time_up(work):  # the masses of any round have bounds
                break
        gap, gamma, radius = state.best.certificate.gap, state.gamma, state.radius
        state = _bound(state)
        state = state._replace(best=state.best.counted())
        # The gap says how much entropy is affordable. If it stays while the saddle point of this gamma had the rounds
        # it needs, n_blocks (1 + R / sqrt(gamma)) to shrink the error by e, it is the entropy that holds it up.
        n_stalled = 0 if state.best.certificate.gap < 0.9 * gap else state.n_stalled + 1
        aim = state.hulls.affordable_gamma(state.best.certificate, self.gamma_per_gap)
        # Or the steps are too long: theory allows them for an R four times as large, which is rarely needed.
        if n_stalled * n_rounds >= _STALL_FACTOR * n_blocks * (1 + radius / np.sqrt(gamma)):
            aim, n_stalled, radius = gamma / 2, 0, min(radius * np.sqrt(2), 4 * state.shortest_radius)
        return state._replace(gamma=max(gamma / 2, min(gamma, aim)), radius=radius, n_stalled=n_stalled)

    def _resolve_block_size(self, hulls: Hulls, n_coordinates: int) -> int:
        """Coordinates of a block, or 0 for all at once."""
        shard, comm = hulls.shard, hulls.comm
        if self.block_size != "auto":
            return 0 if self.block_size >= shard.n_features else int(self.block_size)
        if shard.n_features <= _BLOCK_ON_RANKS or shard.is_sparse:
            return 0
        largest = comm.allreduce(np.array([float(shard.n_rows)]), "max")[0]
        size = max(_BLOCK_ON_RANKS if comm.size > 1 else 8, int(_BLOCK_ENTRIES / largest))
        return size if size < n_coordinates else 0


def _bound(state: State) -> State:
    """Certify w and z on the original rows, in float64; scores are made afresh, so that no drift gathers."""
    hulls = state.hulls
    mass, log_density = _normalise(state)
    point, w = hulls.combine(mass), state.coordinates.to_rows(state.w)
    scores = hulls.scores(w)
    best = hulls.closer(state.best, mass, point)
    for direction, its_scores in ((w, scores), (point.z, hulls.scores(point.z))):
        best = hulls.wider(best, direction, its_scores)
    return state._replace(scores=scores, weights=mass, log_density=log_density, best=best)


def _round(state: State, block: int) -> State:
    """One iteration of Algorithm 2 on a block, in one exchange."""
    hulls, coordinates, gamma = state.hulls, state.coordinates, state.gamma
    y, side = hulls.shard.y, hulls.side
    share = 1 / coordinates.n_blocks
    sigma = np.sqrt(gamma) / (2 * state.radius)
    inverse_tau = 2 * state.radius * np.sqrt(gamma)
    theta = 1 - share / (1 + state.radius / np.sqrt(gamma))

    # Lines 2 and 3. Z+ and Z- are not known yet: products with the raw weights are divided once they are.
    columns = np.empty((len(y), 3))
    np.multiply(state.weights, y > 0, out=columns[:, 0])
    np.subtract(state.weights, columns[:, 0], out=columns[:, 1])
    np.multiply(y, state.previous, out=columns[:, 2])
    products = coordinates.combine(block, columns)
    everywhere = hulls.comm.allreduce(np.concatenate([hulls.per_class(state.weights), products.ravel()]))
    totals, products = everywhere[:2], everywhere[2:].reshape(-1, 3)
    if not _are_numbers(totals):
        return _round(_brought_into_range(state), block)
    now = products[:, 0] / totals[0] - products[:, 1] / totals[1]
    delta = now + theta * (now - products[:, 2])
    mass = state.weights / totals[side]

    # Line 4.
    where = coordinates.slice(block)
    w = state.w.copy()
    w[where] = (w[where] + sigma * delta) / (1 + sigma)
    change = y * coordinates.scores(block, w[where] - state.w[where])

    # Lines 5 and 6: the proximal step with w extrapolated, (11), then the projection (12).
    prox = inverse_tau / share
    log_density = state.log_density - np.log(totals)[side]
    log_density = (prox * log_density - (state.scores + change / share)) / (gamma + prox)
    return _project(state._replace(w=w, scores=state.scores + change, log_density=log_density, previous=mass))


def _are_numbers(totals: np.ndarray) -> bool:
    return bool(np.all((totals > 1e-60) & (totals < 1e60)))


def _brought_into_range(state: State) -> State:
    """The same masses with the largest weight of each class 1; for a gamma so small that one step moves them far."""
    log_density = state.log_density + state.hulls.level(-state.log_density)[state.hulls.side]
    return state._replace(log_density=log_density, weights=state.hulls.shard.weight * np.exp(log_density))


def _project(state: State) -> State:
    """Weights from log-densities; nu needs its cap enforced at once, the hard margin only a factor, later."""
    hulls = state.hulls
    weight, log_density = hulls.shard.weight, state.log_density
    weights = weight * np.exp(np.minimum(log_density, 200.0))
    if hulls.is_capped:
        scale = hulls.scale_to_one(weights)
        if scale is None:
            # Steps this long come only from a far start: begin again at the levels that the caps themselves give.
            log_density = log_density + hulls.level(np.log(hulls.cap) - log_density)[hulls.side]
            weights = weight * np.exp(np.minimum(log_density, 200.0))
            scale = hulls.scale_to_one(weights)
            assert scale is not None
        log_density = np.minimum(log_density + np.log(scale)[hulls.side], np.log(hulls.cap))
        weights = np.minimum(weights * scale[hulls.side], hulls.upper)
    return state._replace(weights=weights, log_density=log_density)


def _normalise(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Masses that add up to one in each class, and their log-densities."""
    hulls = state.hulls
    totals = hulls.comm.allreduce(hulls.per_class(state.weights))
    if not _are_numbers(totals):
        return _normalise(_brought_into_range(state))
    return state.weights / totals[hulls.side], state.log_density - np.log(totals)[hulls.side]
