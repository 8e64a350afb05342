"""Hard margin and nu (:mod:`widemargin.problems.polytope`): masses on capped simplices, levels, margins, the separator.

Both classes are treated alike once scores are signed: with s_i = y_i w.x_i each class asks for the smallest sum of
mass_i s_i, and z = sum y_i mass_i x_i = A' eta - B' xi. Arrays of two hold the positive class first. Hulls may be moved
together without changing anything, so scores are taken relative to the mean of all rows, which keeps them small where
the data lie far from the origin.

Every quantity that crosses ranks is a sum, a minimum or a few order statistics; rows never move.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled.projections import capped_sums, class_extremes, class_histogram
from widemargin.data.shard import Shard
from widemargin.problems.polytope import HardMargin, NuMargin
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import AnySolver, Inputs, Solver, Warm

_MAX_EXPONENT = 200.0  # exponents are clamped here, so that sums and products with any scale are finite
_MIN_SCALE = 1e-40  # a factor below this, or over its inverse, means that the search began too far away
_MASS_ROUNDING = 1e-9  # masses this close to 1 are 1: a cap is rarely the exact reciprocal of a whole number
_MAX_ROW_NORM = 1e75  # products of four such rows are finite
_ROUNDING = 1e-13  # relative to the size of rows: taken for zero
_MIN_GAMMA = 1e-100
_MAX_OVERLAP_DISTANCE = 1e-6  # in radii of the data: hulls this close and without a margin overlap

HullProblem: TypeAlias = HardMargin | NuMargin


class Softened(NamedTuple):
    """The masses that an entropy of strength gamma gives for some scores."""

    mass: np.ndarray  # one per row
    is_capped: np.ndarray  # where the bound holds the mass down
    level: np.ndarray  # per class: the score up to which mass is drawn
    value: float  # the smallest sum of scores and entropies, over both classes


class Start(NamedTuple):
    w: np.ndarray
    scores: np.ndarray
    gamma: float
    soft: Softened
    z: np.ndarray
    is_warm: bool


@dataclass(frozen=True, eq=False)
class Hulls:
    """One rank's rows as vertices of the two hulls, with the collective operations on them."""

    problem: HullProblem
    shard: Shard
    comm: Communicator
    side: np.ndarray  # 0 for the positive class, 1 for the negative
    upper: np.ndarray  # largest mass of each row
    cap: float
    totals: np.ndarray  # weight of each class over all ranks
    entropy_range: float
    mean: np.ndarray  # of all rows by weight
    radius: float  # largest distance of a row to the mean of all
    n_entries: float  # of all ranks: the work of a pass, at most

    @classmethod
    def of(cls, problem: HullProblem, shard: Shard, comm: Communicator) -> Hulls:
        """Sum the totals over all ranks; raises ValueError on every rank if no masses are feasible."""
        side = (shard.y < 0).astype(np.intp)
        sums = comm.allreduce(np.append(np.bincount(side, shard.weight, 2), float(shard.n_entries)))
        totals, n_entries = sums[:2], float(sums[2])
        cap = problem.cap(*totals)
        mean = comm.allreduce(shard.combine(shard.weight)) / totals.sum()
        with np.errstate(over="ignore", invalid="ignore"):
            offsets = shard.squared_norms() - 2 * shard.scores(mean) + mean @ mean
            farthest = comm.allreduce(np.array([offsets.max(initial=0.0)]), "max")[0]
            radius, length = float(np.sqrt(farthest)), float(np.linalg.norm(mean))
        if not max(radius, length) <= _MAX_ROW_NORM or math.isnan(radius):
            raise ValueError(
                f"Rows have norms over {_MAX_ROW_NORM:g}, for which squares of inner products overflow float64: scale "
                "the features (StandardScaler)."
            )
        return cls(
            problem, shard, comm, side, cap * shard.weight, cap, totals, problem.entropy_range(*totals), mean, radius,
            n_entries,
        )  # fmt: skip

    @property
    def is_capped(self) -> bool:
        return self.cap < np.inf

    def uniform_log_mass(self) -> np.ndarray:
        return np.log(self.shard.weight / self.totals[self.side])

    def scores(self, w: np.ndarray) -> np.ndarray:
        """``y_i w.(x_i - mean)``."""
        scores = self.shard.scores(w)
        scores -= self.mean @ w
        return np.multiply(scores, self.shard.y, out=scores)

    def combine(self, mass: np.ndarray) -> np.ndarray:
        """``z = sum y_i mass_i x_i`` over all ranks."""
        return self.comm.allreduce(self.shard.combine(self.shard.y * mass))

    def per_class(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.side, values, 2)

    def level(self, values: np.ndarray) -> np.ndarray:
        """Per class: the smallest value up to which the bounds add up to one.

        Without bounds that is the minimum. With them, histograms narrow the place down: each pass keeps one bin of each
        class, so after the first pass few rows are left, and all ends where a bin holds a single distinct value.
        """
        low, high = self._extremes(values, self.side)
        if not self.is_capped:
            return low
        n_bins = 1024 if self.comm.size == 1 else 32  # bins are cheap at home and cost scalars on the wire
        upper, side, below = self.upper, self.side, np.zeros(2)
        while (low < high).any():
            width = np.where(low < high, (high - low) / n_bins, 1.0)
            histogram, bins = class_histogram(values, upper, side, low, width, n_bins)
            histogram = self.comm.allreduce(histogram.ravel()).reshape(2, n_bins)
            through = below[:, None] + np.cumsum(histogram, axis=1)
            chosen = np.minimum((through < 1 - _MASS_ROUNDING).sum(axis=1), n_bins - 1)
            below = through[[0, 1], chosen] - histogram[[0, 1], chosen]
            kept = bins == chosen[side]
            values, upper, side = values[kept], upper[kept], side[kept]
            low, high = self._extremes(values, side)
        return low

    def _extremes(self, values: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        everywhere = self.comm.allreduce(class_extremes(values, side), "min")
        return everywhere[:2], -everywhere[2:]

    def margin(self, scores: np.ndarray, norm: float) -> float:
        """The margin of a direction of length ``norm``: a true lower bound of the distance, in float64."""
        level = self.level(scores)
        value = level.sum()
        if self.is_capped:
            # min over the capped simplex = max over t of t + sum upper min(s - t, 0); any t gives a true bound.
            shortfall = self.upper @ np.minimum(scores - level[self.side], 0.0)
            value += self.comm.allreduce(np.array([shortfall]))[0]
        return self.problem.dual_value(float(value), norm)

    def distance(self, z: np.ndarray) -> float:
        return self.problem.primal_value(0.0, float(np.linalg.norm(z)))

    def soften(self, scores: np.ndarray, log_centre: np.ndarray, gamma: float, level: np.ndarray) -> Softened:
        """The masses that minimise scores plus ``gamma`` times the entropy relative to ``exp(log_centre)``.

        mass_i = min(upper_i, centre_i exp((level - s_i) / gamma)), where the level of each class makes its masses add
        up to one; ``level`` is where the search begins.
        """
        scaled = log_centre - scores / gamma
        weights = np.exp(np.minimum(scaled + (level / gamma)[self.side], _MAX_EXPONENT))
        scale = self.scale_to_one(weights)
        if scale is None:
            # Far from the level everything is clamped; the bounds themselves say where it must lie.
            level = gamma * self.level((np.log(self.upper) if self.is_capped else 0.0) - scaled)
            weights = np.exp(np.minimum(scaled + (level / gamma)[self.side], _MAX_EXPONENT))
            scale = self.scale_to_one(weights)
        assert scale is not None
        level = level + gamma * np.log(scale)
        mass = weights * scale[self.side]
        is_capped = mass >= self.upper
        np.minimum(mass, self.upper, out=mass)
        capped_value, free_mass = 0.0, np.ones(2)
        if self.is_capped:
            capped = np.flatnonzero(is_capped)
            bound = self.upper[capped]
            local = bound @ (scores[capped] + gamma * (np.log(bound) - log_centre[capped]))
            capped_mass = np.bincount(self.side[capped], bound, 2)
            capped_value, *rest = self.comm.allreduce(np.concatenate([[local], capped_mass]))
            free_mass = 1.0 - np.array(rest)
        return Softened(mass, is_capped, level, float(free_mass @ level + capped_value))

    def start_from(self, warm: Warm, log_centre: np.ndarray) -> Start:
        """A direction with masses that agree with it.

        Without an earlier direction it is the difference of the means. An earlier one is taken if it separates; its
        length becomes its margin, which the distance is not below, and gamma is made as small as masses and direction
        agree the better: w = z at the saddle point.
        """
        uniform = np.exp(log_centre)
        w, is_warm = self.combine(uniform), False
        if warm is not None:
            length = float(np.linalg.norm(warm))
            margin = self.margin(self.scores(warm), length)
            is_warm = margin > 0
            w = warm * (margin / length) if is_warm else w
        scores = self.scores(w)
        mean = self.comm.allreduce(self.per_class(uniform * scores))
        deviation = uniform * (scores - mean[self.side]) ** 2
        spread = np.sqrt(self.comm.allreduce(self.per_class(deviation)).max())
        # Tilts of order one: strong enough to matter, weak enough that every row still counts.
        gamma = float(max(spread, _ROUNDING * self.size**2, _MIN_GAMMA))
        soft = self.soften(scores, log_centre, gamma, mean)
        z = self.combine(soft.mass)
        while is_warm:
            sharper = self.soften(scores, log_centre, gamma / 4, soft.level)
            its_z = self.combine(sharper.mass)
            if np.linalg.norm(its_z - w) >= np.linalg.norm(z - w):
                break
            gamma, soft, z = gamma / 4, sharper, its_z
        return Start(w, scores, gamma, soft, z, is_warm)

    def affordable_gamma(self, certificate: Certificate, per_gap: float) -> float:
        """The gamma whose entropy is within the gap, by a factor of ``per_gap``."""
        return per_gap * min(certificate.relative, 1.0) * certificate.primal**2 / self.entropy_range

    def log_mass(self, soft: Softened, scores: np.ndarray, log_centre: np.ndarray, gamma: float) -> np.ndarray:
        """The logarithm of softened masses, also where they underflow."""
        log_mass = log_centre + (soft.level[self.side] - scores) / gamma
        if self.is_capped:
            np.minimum(log_mass, np.log(self.upper), out=log_mass)
        return log_mass

    def scale_to_one(self, weights: np.ndarray) -> np.ndarray | None:
        """Per class the factor c with ``sum min(c weights, upper) = 1``; None where it is too far from 1 to be trusted.

        The sum is concave and piecewise linear in c, so Newton's method climbs to the root from the left without
        passing it and ends exactly; a step that leaves the bracket is replaced by the bracket's geometric mean.
        """
        scale, low, high = np.ones(2), np.zeros(2), np.full(2, np.inf)
        for _ in range(100):
            sums = self.comm.allreduce(capped_sums(weights, self.upper, self.shard.y, scale[0], scale[1])).reshape(2, 3)
            total, free, capped = sums.T
            if not np.all(total > _MIN_SCALE):
                return None
            if not self.is_capped:
                return _if_in_range(1.0 / total)
            reached = scale * free + capped
            low = np.where(reached <= 1, np.maximum(low, scale), low)
            high = np.where(reached >= 1, np.minimum(high, scale), high)
            newton = np.where(free > 0, (1 - capped) / np.maximum(free, _MIN_SCALE), -1.0)
            middle = np.where(low == 0, np.maximum(1 / total, high * 1e-4), np.sqrt(low) * np.sqrt(high))
            middle = np.where(high == np.inf, low * 1e4, middle)
            following = np.where((newton >= low) & (newton <= high) & (newton > 0), newton, middle)
            following = np.clip(following, _MIN_SCALE, 1 / _MIN_SCALE)
            following = np.where(np.abs(reached - 1) <= 1e-14, scale, following)
            if np.all(np.abs(following - scale) <= 1e-14 * scale):
                return _if_in_range(following) if np.all(np.abs(reached - 1) <= _MASS_ROUNDING) else None
            scale = following
        return None

    def stop_reason(self, certificate: Certificate) -> str | None:
        is_apart = certificate.primal > _MAX_OVERLAP_DISTANCE * self.radius + _ROUNDING * self.size
        return None if is_apart or certificate.dual > _ROUNDING * self.size else "overlap"

    @property
    def size(self) -> float:
        """About the largest length of a row: what rounding errors are relative to."""
        return self.radius + float(np.linalg.norm(self.mean))

    def separator(self, w: np.ndarray) -> Separator:
        """The decision function along ``w`` in LIBSVM's scale: margin rows of the two classes score +1 and -1.

        The hyperplane lies midway between the two levels up to which mass is drawn, not midway between the nearest
        points of the hulls. Where the bounds add up to exactly one, anything between two neighbouring scores is
        optimal, and the middle is taken. Where the hulls meet none of this means anything: then ``coef`` has length 1
        and the hyperplane lies where the least weight of rows is on its wrong side.
        """
        report = {"cap": float(self.cap), "nu": float(2 / (self.cap * self.totals.sum()))} if self.is_capped else {}
        scores = self.scores(w)
        level = self.level(scores)
        if self.is_capped:
            drawn = self.comm.allreduce(self.per_class(np.where(scores <= level[self.side], self.upper, 0.0)))
            beyond, _ = self._extremes(np.where(scores > level[self.side], scores, np.inf), self.side)
            is_between = (drawn <= 1 + _MASS_ROUNDING) & np.isfinite(beyond)
            level = np.where(is_between, (level + np.where(is_between, beyond, 0.0)) / 2, level)
        if level.sum() > 0:
            scale, threshold = 2 / level.sum(), (level[0] - level[1]) / 2
        else:
            w, scale, threshold = self._least_error(w, scores)
        return Separator(w * scale, float(-(threshold + self.mean @ w) * scale), report)

    def _least_error(self, w: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Along ``w`` or the difference of the means, whichever misplaces less: direction, scale and threshold."""
        means = self.combine(np.exp(self.uniform_log_mass()))
        best = (w, *self._threshold_of_least_error(self.shard.y * scores))
        other = (means, *self._threshold_of_least_error(self.shard.y * self.scores(means)))
        w, threshold, _ = min(best, other, key=lambda candidate: candidate[2])
        length = float(np.linalg.norm(w))
        return w, 1 / length if length > 0 else 0.0, threshold

    def _threshold_of_least_error(self, values: np.ndarray) -> tuple[float, float]:
        """The middle of the longest stretch of thresholds that misplace the least weight, and that weight.

        Weights within a millionth of the weight of all rows are equal.
        """
        n_bins = 1024
        lows, highs = self._extremes(values, self.side)
        low, high = lows.min(), highs.max()
        if low == high:
            return float(low), float(self.totals.min())
        width = (high - low) / n_bins
        weights, _ = class_histogram(values, self.shard.weight, self.side, np.full(2, low), np.full(2, width), n_bins)
        positive, negative = self.comm.allreduce(weights.ravel()).reshape(2, n_bins)
        misplaced = negative.sum() + np.concatenate([[0.0], np.cumsum(positive - negative)])
        is_least = misplaced <= misplaced.min() + 1e-6 * self.totals.sum()
        turns = np.flatnonzero(np.diff(np.concatenate([[0], is_least.astype(np.int8), [0]])))
        begins, ends = turns[::2], turns[1::2] - 1
        longest = int((ends - begins).argmax())
        return float(low + width * (begins[longest] + ends[longest]) / 2), float(misplaced.min())


def _if_in_range(scale: np.ndarray) -> np.ndarray | None:
    """A factor so large or small that weights were clamped on the way is none."""
    return scale if np.all((scale > 10 * _MIN_SCALE) & (scale < 0.1 / _MIN_SCALE)) else None


class HullState(Protocol):
    @property
    def hulls(self) -> Hulls: ...
    @property
    def best_w(self) -> np.ndarray: ...
    @property
    def certificate(self) -> Certificate: ...
    def _replace(self, *, best_w: np.ndarray = ..., certificate: Certificate = ...) -> Self: ...


S = TypeVar("S", bound=HullState)


def with_bounds(state: S, distance: float, margin: float, w: np.ndarray) -> S:
    """The state with another upper bound and the margin of another direction, each taken if it is better."""
    best = state.certificate
    best_w = w if margin > best.dual else state.best_w
    return state._replace(certificate=best.tightened(distance, margin), best_w=best_w)


class HullSolver(Solver[S, Separator]):
    solves: tuple[type, ...] = (HardMargin, NuMargin)

    def start(self, problem: HullProblem, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> S:
        return self.start_on(Hulls.of(problem, shard, comm), rng, warm)

    @abstractmethod
    def start_on(self, hulls: Hulls, rng: Generator, warm: Warm) -> S: ...

    def certify(self, state: S) -> Certificate | None:
        return state.certificate if state.certificate.primal < np.inf else None

    def stop_reason(self, state: S) -> str | None:
        return state.hulls.stop_reason(state.certificate)

    def warm_state(self, state: S) -> np.ndarray:
        return state.best_w

    def extract(self, state: S) -> Separator:
        return state.hulls.separator(state.best_w)

    def take_over(self, other: AnySolver, state: HullState, inputs: Inputs) -> S:
        started, (distance, margin) = self.start(*inputs, state.best_w), state.certificate
        best_w = started.best_w if started.certificate.dual > margin else state.best_w
        return started._replace(certificate=started.certificate.tightened(distance, margin), best_w=best_w)
