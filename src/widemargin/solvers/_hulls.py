"""Hard margin and nu (:mod:`widemargin.problems.polytope`): masses on capped simplices, levels, margins, the separator.

Both classes are treated alike once scores are signed: with s_i = y_i w.x_i each class asks for the smallest sum of
mass_i s_i, and z = sum y_i mass_i x_i = A' eta - B' xi. Arrays of two hold the positive class first. Hulls may be moved
together without changing anything, so scores are taken relative to the mean of all rows, which keeps them small where
the data lie far from the origin.

Every quantity that crosses ranks is a sum, a minimum or a few order statistics; rows never move.

Bounds allow for rounding in the worst case. :mod:`widemargin.solvers._hull_rows` says how far scores and sums over rows
are off. From there:
* Masses that add up to S instead of 1 are divided by S (:class:`Point`). That may raise some over their bounds by a
  factor 1 + e, as may the rounding of the bounds. What is over, at most e in each class, fits in below other bounds, so
  that a point of the hull is near: each column of z moves by at most ``e`` times its range for each class.
* The least sum of scores over a class is, without caps, their minimum; with caps, at least
  t + sum upper_i min(s_i - t, 0) for any t. Scores off by at most e move it by at most e, since masses add up to one.
  The terms of the sum have one sign, so its rounding is relative to the sum.
* The model that is returned is w times a number, rounded; the margin allows for that too (``model_error``).
Where this leaves more than ``_SMALL_PART`` of the gap, the pass is made again with compensated sums.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.compiled.labels import class_sums
from widemargin.compiled.projections import capped_sums, class_extremes, class_histogram, class_levels, drawn_up_to
from widemargin.data.pieces import (
    accurate_sums_by_class,
    each_piece,
    elementwise,
    of_pieces,
    places_of,
    sum_of_pieces,
    sums_by_class,
)
from widemargin.data.shard import Shard
from widemargin.pauses import BLAS_SPEED, pieces
from widemargin.problems.polytope import OVERLAP_SHARE, HardMargin, NuMargin
from widemargin.problems.protocol import Certificate
from widemargin.rounding import gamma as gamma_of
from widemargin.solvers._hull_rows import HullRows, Point, accurate_dot, length, length_at_most
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import AnySolver, Inputs, Solver, Warm

_MAX_EXPONENT = 200.0  # exponents are clamped here, so that sums and products with any scale are finite
_MIN_SCALE = 1e-40  # a factor below this, or over its inverse, means that the search began too far away
_NEAR = 1e-2  # in radii: from here masses may be made to coincide
_NO_MASS = 1e-8  # by the largest of the class: less does not make a support vector
_MAX_SORTED = 4096  # rows whose values are sorted for their level
_MASS_ROUNDING = 1e-9  # masses this close to 1 are 1: a cap is rarely the exact reciprocal of a whole number
_ROUNDING = 1e-13  # relative to the size of rows: taken for zero
_MIN_GAMMA = 1e-100
_MAX_DIRECT_FEATURES = 1024  # of systems that are formed to make masses coincide
_MAX_COINCIDING_STEPS = 30
_SLOW = 0.7  # masses that keep more than this part of a distance do not come to coincide
_EQUAL_WEIGHT = 1e-6  # of the weight of all rows: misplaced weights that differ by less are equal
_MAX_COEFFICIENT = 2.0**1010  # LIBSVM's scale is given up where it would need larger ones
_SMALL_PART = 0.01  # of a gap, which rounding may take without being looked at again
_NEGLIGIBLE = 1e-13  # of the distance, likewise
_STALL_RATIO = 0.9  # a sweep that leaves more than this part of a gap has stalled
_MAX_STALLED_SWEEPS = 15  # at a gap as small as rounding
_FLOOR_TERMS = 8192  # gaps no larger than the rounding of so many operations, and those of a pass, are made of rounding

HullProblem: TypeAlias = HardMargin | NuMargin


class Combined(NamedTuple):
    """``sum y_i mass_i x_i`` and the sums of the masses, from a plain pass."""

    z: np.ndarray
    sums: np.ndarray  # per class


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
    point: Combined
    is_warm: bool


class Best(NamedTuple):
    """The best bounds so far, in working units, with what proves them."""

    certificate: Certificate
    w: np.ndarray  # the direction whose margin is the lower bound
    z: np.ndarray  # per column at most the difference of the points whose distance is the upper bound
    mass: np.ndarray | None = None  # of this rank's rows, in these points; None where another rank has them
    gap_before: float = math.inf  # at the last sweep that made it smaller
    n_stalled: int = 0  # sweeps since

    @classmethod
    def none(cls, w: np.ndarray) -> Best:
        return cls(Certificate(), w, np.full(len(w), math.inf))

    def closer(self, distance: float, z: np.ndarray, mass: np.ndarray | None = None) -> Best:
        if not distance < self.certificate.primal:
            return self
        return self._replace(certificate=self.certificate.tightened(primal=distance), z=z, mass=mass)

    def wider(self, margin: float, w: np.ndarray) -> Best:
        if not margin > self.certificate.dual:
            return self
        return self._replace(certificate=self.certificate.tightened(dual=margin), w=w)

    def counted(self) -> Best:
        """After a sweep."""
        if self.certificate.gap < _STALL_RATIO * self.gap_before:
            return self._replace(gap_before=self.certificate.gap, n_stalled=0)
        return self._replace(n_stalled=self.n_stalled + 1)

    def joined(self, other: Best) -> Best:
        """With the bounds of another in the same units."""
        primal, dual = other.certificate
        return self.closer(primal, other.z, other.mass).wider(dual, other.w)


@dataclass(frozen=True, eq=False)
class Hulls:
    """One rank's rows as vertices of the two hulls, with the collective operations on them."""

    problem: HullProblem
    shard: Shard
    comm: Communicator
    rows: HullRows
    side: np.ndarray  # 0 for the positive class, 1 for the negative
    upper: np.ndarray  # largest mass of each row
    cap: float
    totals: np.ndarray  # weight of each class over all ranks
    entropy_range: float
    radius: float  # largest distance of a row to the mean of all
    size: float  # about the largest length of a row: what rounding errors are relative to
    n_entries: float  # of all ranks: the work of a pass, at most
    _equilibrated: list[tuple[np.ndarray, float]] = field(default_factory=list)

    @classmethod
    def of(cls, problem: HullProblem, shard: Shard, comm: Communicator, is_equilibrated: bool = False) -> Hulls:
        """Sum the totals over all ranks; raises ValueError on every rank if no masses are feasible."""
        side = np.empty(shard.n_rows, np.intp)
        each_piece(lambda rows: np.less(shard.y[rows], 0.0, out=side[rows]), len(side))
        sums = comm.allreduce(np.append(_class_weights(side, shard.weight), float(shard.n_entries)))
        totals, n_entries = sums[:2], float(sums[2])
        cap = problem.cap(*totals.tolist())
        rows = HullRows.of(shard, comm, totals.sum(), is_equilibrated)
        reach, upper = problem.entropy_range(*totals.tolist()), elementwise(np.multiply, shard.weight, cap)
        radius = rows.radius()
        size = radius + float(np.linalg.norm(rows.factor * rows.mean))
        return cls(problem, rows.shard, comm, rows, side, upper, cap, totals, reach, radius, size, n_entries)

    @property
    def mean(self) -> np.ndarray:
        return self.rows.mean

    def equilibrated(self) -> tuple[np.ndarray, float]:
        """The factor of each column from this metric to the equilibrated one, and the radius there."""
        if not self._equilibrated:  # no cached_property, whose lock would be held while ranks wait for each other
            other = self.rows.equilibrated()
            self._equilibrated.append((self.rows.in_metric(other.factor), other.radius()))
        return self._equilibrated[0]

    @property
    def is_capped(self) -> bool:
        return self.cap < np.inf

    def uniform_log_mass(self) -> np.ndarray:
        out, of_class = np.empty(self.shard.n_rows), np.log(self.totals)

        def do(rows: slice) -> None:
            out[rows] = np.log(self.shard.weight[rows]) - of_class[self.side[rows]]

        each_piece(do, len(out), 32.0)
        return out

    def uniform_mass(self) -> np.ndarray:
        """The masses of the means of both classes."""
        out = np.empty(self.shard.n_rows)

        def do(rows: slice) -> None:
            np.divide(self.shard.weight[rows], self.totals[self.side[rows]], out=out[rows])

        each_piece(do, len(out), 8.0)
        return out

    def mean_and_spread(self, scores: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, float]:
        """The mean score of each class, and the larger of their standard deviations, by mass."""
        mean = self.comm.allreduce(self.per_class(elementwise(np.multiply, mass, scores)))

        def squares(rows: slice) -> np.ndarray:
            side = self.side[rows]
            return np.asarray(class_sums(side, mass[rows] * (scores[rows] - mean[side]) ** 2, 2))

        squared = self.comm.allreduce(sum_of_pieces(squares, len(scores), 16.0))
        return mean, float(np.sqrt(squared.max()))

    def scores(self, w: np.ndarray) -> np.ndarray:
        """``y_i w.(x_i - mean)``."""
        v = self.rows.factor * w
        return self.shard.margins(v, -float(self.mean @ v))

    def combine(self, mass: np.ndarray) -> Combined:
        """``z = sum y_i mass_i x_i`` over all ranks, and the sums of the masses of each class."""
        signed = elementwise(np.multiply, self.shard.y, mass)
        local = np.concatenate([self.rows.combine(signed), self.per_class(mass)])
        everywhere = self.comm.allreduce(local)
        return Combined(everywhere[:-2], everywhere[-2:])

    def per_class(self, values: np.ndarray) -> np.ndarray:
        return sums_by_class(self.side, values, 2)

    def level(self, values: np.ndarray) -> np.ndarray:
        """Per class: the smallest value up to which the bounds add up to one.

        Without bounds that is the minimum. With them, histograms narrow the place down: each pass keeps one bin of each
        class, so after the first pass few rows are left, and all ends where a bin holds a single distinct value. A few
        rows at home are sorted instead.
        """
        if self.is_capped and self.comm.size == 1 and len(values) <= _MAX_SORTED:
            return np.asarray(class_levels(values, self.upper, self.side, 1 - _MASS_ROUNDING))
        low, high = self.extremes(values, self.side)
        if not self.is_capped:
            return low
        n_bins = 1024 if self.comm.size == 1 else 32  # bins are cheap at home and cost scalars on the wire
        upper, side, below = self.upper, self.side, np.zeros(2)
        while (low < high).any():
            width = np.where(low < high, (high - low) / n_bins, 1.0)
            histogram, bins = _histogram(values, upper, side, low, width, n_bins)
            histogram = self.comm.allreduce(histogram.ravel()).reshape(2, n_bins)
            through = below[:, None] + np.cumsum(histogram, axis=1)
            chosen = np.minimum((through < 1 - _MASS_ROUNDING).sum(axis=1), n_bins - 1)
            below = through[[0, 1], chosen] - histogram[[0, 1], chosen]
            kept = places_of(partial(_are_chosen, bins, chosen, side), len(bins))
            values, upper, side = values[kept], upper[kept], side[kept]
            low, high = self.extremes(values, side)
        return low

    def extremes(self, values: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per class the smallest and the largest value, of all ranks."""
        local = np.min(of_pieces(lambda rows: class_extremes(values[rows], side[rows]), len(values)), axis=0)
        everywhere = self.comm.allreduce(local, "min")
        return everywhere[:2], -everywhere[2:]

    def only_over(self, least: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Masses, 0 where they are not over the least of their class."""
        out = np.empty(len(mass))

        def do(rows: slice) -> None:
            out[rows] = np.where(mass[rows] > least[self.side[rows]], mass[rows], 0.0)

        each_piece(do, len(mass), 8.0)
        return out

    def margin(self, w: np.ndarray, scores: np.ndarray | None = None, error: float | None = None) -> float:
        """The margin of a direction: a true lower bound of the distance.

        ``scores`` are those of w, off by at most ``error``, by default by that of a plain pass.
        """
        if scores is None:
            scores = self.scores(w)
        margin, rounding = self._margin_and_rounding(w, scores, error)
        return max(margin, self._accurate_margin(w)) if rounding > _SMALL_PART * abs(margin) else margin

    def wider(self, best: Best, w: np.ndarray, scores: np.ndarray, error: float | None = None) -> Best:
        """With the margin of w, if it is better."""
        margin, rounding = self._margin_and_rounding(w, scores, error)
        return self.checked_margin(best, w, margin, rounding)

    def checked_margin(self, best: Best, w: np.ndarray, margin: float, rounding: float) -> Best:
        """With this margin of w, or with that of an accurate pass if rounding holds it down by much of the gap."""
        primal, dual = best.certificate
        if margin + rounding > dual and rounding > max(_SMALL_PART * (primal - margin), _NEGLIGIBLE * primal):
            margin = max(margin, self._accurate_margin(w))
        return best.wider(margin, w)

    def _margin_and_rounding(self, w: np.ndarray, scores: np.ndarray, error: float | None) -> tuple[float, float]:
        level = self.level(scores)
        error = self.rows.score_error(w) if error is None else error
        return self.margin_of_levels(w, level, self._shortfall(scores, level), error)

    def _shortfall(self, scores: np.ndarray, level: np.ndarray) -> float:
        """min over the capped simplex = max over t of t + sum upper min(s - t, 0); any t gives a true bound."""
        if not self.is_capped:
            return 0.0

        def of_piece(rows: slice) -> np.ndarray:
            return np.array([self.upper[rows] @ np.minimum(scores[rows] - level[self.side[rows]], 0.0)])

        return float(self.comm.allreduce(sum_of_pieces(of_piece, len(scores), 8.0))[0])

    def margin_of_levels(self, w: np.ndarray, level: np.ndarray, shortfall: float, error: float) -> tuple[float, float]:
        """A lower bound of the margin of w, and by how much rounding holds it down."""
        size = float(np.abs(level).sum())
        norm, doubt = length(w), gamma_of(len(w) + 16)
        rounding = (
            2 * error + gamma_of(8) * (size - 2 * shortfall) - self._sum_doubt * shortfall + self.rows.model_error(w)
        )
        lowest = float(level.sum()) + shortfall - rounding
        if not 0 < norm < math.inf:
            return -math.inf, 0.0
        return self.problem.dual_value(lowest * (1 - doubt if lowest > 0 else 1 + doubt), norm), rounding / norm

    def _accurate_margin(self, w: np.ndarray) -> float:
        scores = self.rows.accurate_scores(w) * self.shard.y
        return self._margin_and_rounding(w, scores, self.rows.score_error(w, is_accurate=True))[0]

    @property
    def _sum_doubt(self) -> float:
        """Relative error of the bounds, and of a sum of products with them over the rows of all ranks."""
        return gamma_of(self.rows.n_sums + self.comm.size + 16)

    def closer(self, best: Best, mass: np.ndarray, combined: Combined) -> Best:
        """With the distance of the points of these masses, if it is better."""
        distance, z = self.distance_of(self.rows.point(combined.z, combined.sums))
        primal, dual = best.certificate
        rounding = distance - float(np.linalg.norm(combined.z))
        if distance - rounding < primal and rounding > max(
            _SMALL_PART * (distance - max(dual, 0.0)), _NEGLIGIBLE * distance
        ):
            accurate = self.distance_of(self.rows.accurate_point(self._balanced(mass), self.side))
            distance, z = min((distance, z), accurate, key=lambda bound: bound[0])
        return best.closer(distance, z, mass)

    def _balanced(self, mass: np.ndarray) -> np.ndarray:
        """Masses that add up to one as nearly as they can, those at their bounds unchanged."""
        if not self.is_capped:
            return mass
        out = np.empty(len(mass))

        def only_free(rows: slice) -> None:
            out[rows] = np.where(mass[rows] < self.upper[rows], mass[rows], 0.0)

        each_piece(only_free, len(mass))
        local = [np.add(*accurate_sums_by_class(self.side, mass)), self.per_class(out)]
        total, free = self.comm.allreduce(np.concatenate(local)).reshape(2, 2)
        change = np.divide(1 - total, free, out=np.zeros(2), where=free > 0)

        def do(rows: slice) -> None:
            few = out[rows]
            few *= change[self.side[rows]]
            few += mass[rows]
            np.minimum(few, self.upper[rows], out=few)

        each_piece(do, len(mass), 8.0)
        return out

    def class_means(self, rows: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per class the mass of the given ascending rows of all ranks, and the mean of the rows by it."""
        side = self.side[rows]
        local = [sums_by_class(side, mass, 2), self.rows.combine_sides(rows, mass, side).ravel()]
        everywhere = self.comm.allreduce(np.concatenate(local))
        total = np.maximum(everywhere[:2], np.finfo(float).tiny)
        return total, everywhere[2:].reshape(2, -1) / total[:, None]

    def covariance(self, rows: np.ndarray, mass: np.ndarray, total: np.ndarray, means: np.ndarray) -> np.ndarray:
        """The sum over classes of the scatter of the given rows about the mean of their class."""
        d = means.shape[1]
        moment = np.zeros((d, d))
        for few in pieces(np.arange(len(rows)), self.n_entries * d / (1 if self.shard.is_sparse else BLAS_SPEED)):
            moment += self.rows.second_moment(rows[few], mass[few])
        moment = self.comm.allreduce(moment.ravel()).reshape(d, d)
        return np.asarray(moment - (means.T * total) @ means)

    def coinciding(self, best: Best, mass: np.ndarray) -> Best:
        """With masses near these whose points coincide, or come as close as rounding lets them.

        The change of masses that makes z vanish and is the smallest in terms of their room to move,
        room_i = min(mass_i, upper_i - mass_i), is ``room_i (s_i - their mean over the class)`` for the scores of a
        direction that solves one system with the covariance of rows by room. Masses are kept within their bounds,
        and the step is repeated.
        """
        if self.shard.n_features > _MAX_DIRECT_FEATURES:
            return best
        before = math.inf
        for _ in range(_MAX_COINCIDING_STEPS):
            mass = self._balanced(mass)
            point = self.rows.accurate_point(mass, self.side)
            distance, z = self.distance_of(point)
            best = best.closer(distance, z, mass)
            if self.overlaps(best) or distance > _SLOW * before:
                break
            before = distance
            room = elementwise(np.minimum, mass, elementwise(np.subtract, self.upper, mass))
            some = places_of(partial(_is_positive, room), len(room))
            total, means = self.class_means(some, room[some])
            direction = -solve_equilibrated(self.covariance(some, room[some], total, means), point.z)
            scores = self.scores(direction)
            centre = self.comm.allreduce(self.per_class(elementwise(np.multiply, room, scores))) / total
            mass = self._moved(mass, room, scores, centre)
        return best

    def _moved(self, mass: np.ndarray, room: np.ndarray, scores: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """Masses after such a step; those that would leave their bounds end there."""
        out = np.empty(len(mass))

        def do(rows: slice) -> None:
            few = np.subtract(scores[rows], centre[self.side[rows]], out=out[rows])
            few *= room[rows]
            few[~(room[rows] > 0)] = 0.0
            few += mass[rows]
            np.minimum(few, np.minimum(self.upper[rows], 1.0), out=few)
            np.maximum(few, 0.0, out=few)

        each_piece(do, len(mass), 16.0)
        return out

    def distance_of(self, point: Point) -> tuple[float, np.ndarray]:
        """An upper bound of the distance of two points, and of each column of their difference."""
        z = np.abs(point.z) + point.error
        if self.is_capped:
            over = point.excess + gamma_of(self.comm.size + 16)
            z = z + 4 * over * self.rows.factor * self.rows.half
        return self.problem.primal_value(0.0, length_at_most(z)), z

    def soften(self, scores: np.ndarray, log_centre: np.ndarray, gamma: float, level: np.ndarray) -> Softened:
        """The masses that minimise scores plus ``gamma`` times the entropy relative to ``exp(log_centre)``.

        mass_i = min(upper_i, centre_i exp((level - s_i) / gamma)), where the level of each class makes its masses add
        up to one; ``level`` is where the search begins.
        """
        soft = self.softened(scores, log_centre, gamma, level)
        if soft is None:
            raise ValueError(
                "Weights of rows differ so much that masses which add up to one are lost in float64: use weights that "
                "differ by less, or leave out rows of tiny weight."
            )
        return soft

    def softened(self, scores: np.ndarray, log_centre: np.ndarray, gamma: float, level: np.ndarray) -> Softened | None:
        """:meth:`soften`, or None where float64 loses the masses, as for scores that are far too large for gamma."""

        def weights_at(level: np.ndarray) -> np.ndarray:
            out, shift = np.empty(len(scores)), level / gamma

            def do(rows: slice) -> None:
                few = out[rows]
                np.divide(scores[rows], -gamma, out=few)
                few += log_centre[rows]
                few += shift[self.side[rows]]
                np.exp(np.minimum(few, _MAX_EXPONENT, out=few), out=few)

            each_piece(do, len(out), 32.0)
            return out

        weights = weights_at(level)
        scale = self.scale_to_one(weights)
        if scale is None:
            # Far from the level everything is clamped; the bounds themselves say where it must lie.
            scaled = log_centre - scores / gamma
            level = gamma * self.level((np.log(self.upper) if self.is_capped else 0.0) - scaled)
            weights = weights_at(level)
            scale = self.scale_to_one(weights)
        if scale is None:
            return None
        level = level + gamma * np.log(scale)
        mass, is_capped = weights, np.empty(len(weights), np.bool_)

        def bound_masses(rows: slice) -> np.ndarray:
            few, upper, side = mass[rows], self.upper[rows], self.side[rows]
            few *= scale[side]
            np.greater_equal(few, upper, out=is_capped[rows])
            np.minimum(few, upper, out=few)
            capped = np.flatnonzero(is_capped[rows]) if self.is_capped else np.empty(0, np.intp)
            bound = upper[capped]
            value = bound @ (scores[rows][capped] + gamma * (np.log(bound) - log_centre[rows][capped]))
            return np.append(value, class_sums(side[capped], bound, 2))

        local = sum_of_pieces(bound_masses, len(mass), 32.0)
        capped_value, free_mass = 0.0, np.ones(2)
        if self.is_capped:
            capped_value, *rest = self.comm.allreduce(local)
            free_mass = 1.0 - np.array(rest)
        return Softened(mass, is_capped, level, float(free_mass @ level + capped_value))

    def start_from(self, warm: Warm, log_centre: np.ndarray) -> Start:
        """A direction with masses that agree with it.

        Without an earlier direction it is the difference of the means. An earlier one is taken if it separates; its
        length becomes its margin, which the distance is not below, and gamma is made as small as masses and direction
        agree the better: w = z at the saddle point.
        """
        uniform = np.exp(log_centre)
        w, is_warm = self.combine(uniform).z, False
        if warm is not None:
            warm = np.where(self.rows.factor > 0, warm, 0.0)
            its_length = length(warm)
            margin = self.margin(warm)
            is_warm = margin > 0
            w = warm * (margin / its_length) if is_warm else w
        scores = self.scores(w)
        mean, spread = self.mean_and_spread(scores, uniform)
        # Tilts of order one: strong enough to matter, weak enough that every row still counts.
        gamma = float(max(spread, _ROUNDING * self.size**2, _MIN_GAMMA))
        soft = self.soften(scores, log_centre, gamma, mean)
        point = self.combine(soft.mass)
        while is_warm:
            sharper = self.soften(scores, log_centre, gamma / 4, soft.level)
            its_point = self.combine(sharper.mass)
            if np.linalg.norm(its_point.z - w) >= np.linalg.norm(point.z - w):
                break
            gamma, soft, point = gamma / 4, sharper, its_point
        return Start(w, scores, gamma, soft, point, is_warm)

    def affordable_gamma(self, certificate: Certificate, per_gap: float) -> float:
        """The gamma whose entropy is within the gap, by a factor of ``per_gap``."""
        return per_gap * min(certificate.relative, 1.0) * certificate.primal**2 / self.entropy_range

    def log_mass(self, soft: Softened, scores: np.ndarray, log_centre: np.ndarray, gamma: float) -> np.ndarray:
        """The logarithm of softened masses, also where they underflow."""
        log_mass = np.empty(len(scores))

        def do(rows: slice) -> None:
            few = log_mass[rows]
            np.subtract(soft.level[self.side[rows]], scores[rows], out=few)
            few /= gamma
            few += log_centre[rows]
            if self.is_capped:
                np.minimum(few, np.log(self.upper[rows]), out=few)

        each_piece(do, len(log_mass), 32.0)
        return log_mass

    def scale_to_one(self, weights: np.ndarray) -> np.ndarray | None:
        """Per class the factor c with ``sum min(c weights, upper) = 1``; None where it is too far from 1 to be trusted.

        The sum is concave and piecewise linear in c, so Newton's method climbs to the root from the left without
        passing it and ends exactly; a step that leaves the bracket is replaced by the bracket's geometric mean.
        """
        scale, low, high = np.ones(2), np.zeros(2), np.full(2, np.inf)
        for _ in range(100):
            local = sum_of_pieces(partial(self._capped_sums, weights, scale), len(weights), 8.0)
            sums = self.comm.allreduce(local).reshape(2, 3)
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

    def _capped_sums(self, weights: np.ndarray, scale: np.ndarray, rows: slice) -> np.ndarray:
        return np.asarray(capped_sums(weights[rows], self.upper[rows], self.shard.y[rows], scale[0], scale[1]))

    def stop_reason(self, best: Best) -> str | None:
        """Why nothing more can be had: a proof of overlap, or a gap that is made of rounding."""
        primal, dual = best.certificate
        if dual <= 0 and self.overlaps(best):
            return "overlap"
        floor = gamma_of(_FLOOR_TERMS + self.rows.n_sums) * self.size
        is_stuck = best.n_stalled >= _MAX_STALLED_SWEEPS and primal - max(dual, 0.0) <= floor
        return None if not is_stuck else "precision" if dual > 0 else "undecided"

    def overlaps(self, best: Best) -> bool:
        """Whether the masses behind the upper bound prove that no margin is over ``OVERLAP_SHARE``."""
        if best.certificate.primal > 1e-6 * self.radius and self.radius > 0:  # spares the pass for the radius
            return False
        factor, radius = self.equilibrated()
        return length_at_most(best.z * factor) <= OVERLAP_SHARE * radius

    def in_units_of_rows(self, certificate: Certificate) -> Certificate:
        """The certificate in the units of the rows as they were given; rounded outwards where that underflows."""
        unit = self.rows.unit
        primal, dual = certificate.primal / unit, certificate.dual / unit
        if primal * unit < certificate.primal:
            primal = math.nextafter(primal, math.inf)
        if dual * unit > certificate.dual:
            dual = math.nextafter(dual, -math.inf)
        return Certificate(primal, dual)

    def margin_of_model(self, model: Separator) -> float:
        """The margin of a separator's own coefficients, in working units."""
        largest = float(np.abs(model.coef).max(initial=0.0))
        return self.margin(model.coef * self.rows.factor / largest) if largest > 0 else -math.inf

    def separator(self, w: np.ndarray) -> Separator:
        """The decision function along ``w`` in LIBSVM's scale: margin rows of the two classes score +1 and -1.

        The hyperplane lies midway between the two levels up to which mass is drawn, not midway between the nearest
        points of the hulls. Where the bounds add up to exactly one, anything between two neighbouring scores is
        optimal, and the middle is taken. Where the hulls meet none of this means anything: then ``coef`` has length 1
        and the hyperplane lies where the least weight of rows is on its wrong side.
        """
        report = {"cap": float(self.cap), "nu": float(2 / (self.cap * self.totals.sum()))} if self.is_capped else {}
        w = np.where(self.rows.factor > 0, w, 0.0)
        w = np.ldexp(w, -int(np.frexp(np.abs(w).max(initial=0.0))[1]))
        scores = self.scores(w)
        level = self.level(scores)
        if self.rows.score_error(w) > 1e-8 * abs(level.sum()):
            scores = self.rows.accurate_scores(w) * self.shard.y
            level = self.level(scores)
        has_margin = level.sum() + self._shortfall(scores, level) > 0
        if self.is_capped:
            drawn, beyond = self._drawn_up_to(level, scores)
            is_between = (drawn <= 1 + _MASS_ROUNDING) & np.isfinite(beyond)
            level = np.where(is_between, (level + np.where(is_between, beyond, 0.0)) / 2, level)
        if has_margin:
            scale, threshold = 2 / level.sum(), (level[0] - level[1]) / 2
        else:
            w, scale, threshold = self._least_error(w, scores)
        unit, at_mean = self.rows.unit, float(self.mean @ (self.rows.factor * w))
        largest = float(np.abs(w).max(initial=0.0))
        if largest > 0:
            scale = min(scale, _MAX_COEFFICIENT / largest / max(unit, 1.0))
        coef = w * scale * unit
        # Far from zero the intercept is a small difference of large terms.
        return Separator(
            coef, -math.fsum([threshold * scale, at_mean * scale, accurate_dot(coef, self.rows.origin)]), report
        )

    def _drawn_up_to(self, level: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per class the sum of the bounds of scores up to the level, and the smallest score beyond it."""

        def of_piece(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            drawn, beyond = drawn_up_to(scores[rows], self.upper[rows], self.side[rows], level)
            return drawn, beyond

        drawn, beyond = zip(*of_pieces(of_piece, len(scores), 8.0), strict=True)
        return self.comm.allreduce(np.sum(drawn, axis=0)), self.comm.allreduce(np.min(beyond, axis=0), "min")

    def _least_error(self, w: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Along ``w`` or the difference of the means, whichever misplaces less: direction, scale and threshold.

        If both misplace the same weight, the one with the longer stretch of such thresholds.
        """
        means = self.combine(np.exp(self.uniform_log_mass())).z
        threshold, misplaced, room = self._threshold_of_least_error(elementwise(np.multiply, self.shard.y, scores))
        others = self._threshold_of_least_error(elementwise(np.multiply, self.shard.y, self.scores(means)))
        less = misplaced - others[1]
        if less > _EQUAL_WEIGHT * self.totals.sum() or (
            less >= -_EQUAL_WEIGHT * self.totals.sum() and others[2] > room
        ):
            w, threshold = means, others[0]
        norm = length(w)
        return w, 1 / norm if norm > 0 else 0.0, threshold

    def _threshold_of_least_error(self, values: np.ndarray) -> tuple[float, float, float]:
        """The middle of the longest stretch of thresholds that misplace the least weight; that weight; its length.

        The length is relative to the range of the values.
        """
        n_bins = 1024
        lows, highs = self.extremes(values, self.side)
        low, high = lows.min(), highs.max()
        if low == high:
            return float(low), float(self.totals.min()), 0.0
        width = (high - low) / n_bins
        weights, _ = _histogram(values, self.shard.weight, self.side, np.full(2, low), np.full(2, width), n_bins)
        positive, negative = self.comm.allreduce(weights.ravel()).reshape(2, n_bins)
        misplaced = negative.sum() + np.concatenate([[0.0], np.cumsum(positive - negative)])
        is_least = misplaced <= misplaced.min() + _EQUAL_WEIGHT * self.totals.sum()
        turns = np.flatnonzero(np.diff(np.concatenate([[0], is_least.astype(np.int8), [0]])))
        begins, ends = turns[::2], turns[1::2] - 1
        longest = int((ends - begins).argmax())
        threshold = float(low + width * (begins[longest] + ends[longest]) / 2)
        if not low < threshold < high:  # no row lies on the hyperplane
            threshold = float(low - width if threshold <= low else high + width)
        return threshold, float(misplaced.min()), float(ends[longest] - begins[longest]) / n_bins


def solve_equilibrated(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve a system with a positive semidefinite matrix whose columns may have very different units."""
    unit = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    unit[unit == 0] = 1.0
    scaled = matrix / unit / unit[:, None]
    scaled[np.diag_indices(len(unit))] += _ROUNDING  # columns may depend on each other
    return np.asarray(np.linalg.solve(scaled, target / unit) / unit)


def _histogram(
    values: np.ndarray, amounts: np.ndarray, side: np.ndarray, low: np.ndarray, width: np.ndarray, n_bins: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of ``amounts`` in equal bins of each class, and the bin of each value."""
    bins = np.empty(len(values), np.int16)

    def of_piece(rows: slice) -> np.ndarray:
        numbers = (values[rows], amounts[rows], side[rows])
        return np.asarray(class_histogram(*numbers, low, width, n_bins, bins[rows]))

    return sum_of_pieces(of_piece, len(values), 16.0), bins


def _is_positive(values: np.ndarray, rows: slice) -> np.ndarray:
    return np.asarray(values[rows] > 0)


def _are_chosen(bins: np.ndarray, chosen: np.ndarray, side: np.ndarray, rows: slice) -> np.ndarray:
    return np.asarray(bins[rows] == chosen[side[rows]])


def _if_in_range(scale: np.ndarray) -> np.ndarray | None:
    """A factor so large or small that weights were clamped on the way is none."""
    return scale if np.all((scale > 10 * _MIN_SCALE) & (scale < 0.1 / _MIN_SCALE)) else None


def _class_weights(side: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weight of each class of this rank, rounded once."""
    if all(of_pieces(lambda rows: bool((weight[rows] == np.rint(weight[rows])).all()), len(weight))):
        return sums_by_class(side, weight, 2)
    return np.array([math.fsum(weight[side == c]) for c in (0, 1)])


class HullState(Protocol):
    @property
    def hulls(self) -> Hulls: ...
    @property
    def best(self) -> Best: ...
    def _replace(self, *, best: Best = ...) -> Self: ...


S = TypeVar("S", bound=HullState)


class WithMass(Protocol):
    @property
    def mass(self) -> np.ndarray: ...


class SoftState(HullState, Protocol):
    """A state with soft masses, the point that they give, and a direction with its scores."""

    @property
    def w(self) -> np.ndarray: ...
    @property
    def scores(self) -> np.ndarray: ...
    @property
    def score_error(self) -> float: ...
    @property
    def soft(self) -> WithMass: ...
    @property
    def point(self) -> Combined: ...
    @property
    def distance_tried(self) -> float: ...  # at which masses were last made to coincide
    def _replace(self, *, best: Best = ..., distance_tried: float = ...) -> Self: ...


Soft = TypeVar("Soft", bound=SoftState)


def bounded(state: Soft) -> Soft:
    """The state with the bounds that its masses and its direction give, where they are better."""
    best = state.hulls.closer(state.best, state.soft.mass, state.point)
    return state._replace(best=state.hulls.wider(best, state.w, state.scores, state.score_error))


def distance_to_coincide(state: SoftState) -> float:
    """How close hulls must be for the next attempt to make their masses coincide."""
    return min(_NEAR * state.hulls.radius, state.distance_tried / 10)


def coincided(state: Soft) -> Soft:
    """The state after that attempt, where hulls are close and no margin is known: small steps find this slowly."""
    distance, margin = state.best.certificate
    if margin > 0 or distance > distance_to_coincide(state):
        return state
    return state._replace(best=state.hulls.coinciding(state.best, state.soft.mass), distance_tried=distance)


@dataclass(frozen=True)
class HullSolver(Solver[S, Separator]):
    is_equilibrated: bool = field(default=False, kw_only=True)  # whether lengths are those of the equilibrated metric

    solves: ClassVar[tuple[type, ...]] = (HardMargin, NuMargin)

    def start(self, problem: HullProblem, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> S:
        return self.start_on(Hulls.of(problem, shard, comm, self.is_equilibrated), rng, warm)

    @abstractmethod
    def start_on(self, hulls: Hulls, rng: Generator, warm: Warm) -> S: ...

    def certify(self, state: S) -> Certificate | None:
        certificate = state.best.certificate
        return state.hulls.in_units_of_rows(certificate) if certificate.primal < np.inf else None

    def confirm(self, state: S, latest: Certificate | None) -> Certificate:
        """Without a margin the model may lie along another direction than the best: its own margin is the bound."""
        hulls, best = state.hulls, state.best
        if latest is None:  # no sweep was finished
            mass = np.exp(hulls.uniform_log_mass())
            best = hulls.wider(hulls.closer(best, mass, hulls.combine(mass)), best.w, hulls.scores(best.w))
        certificate = best.certificate
        if certificate.dual <= 0:
            certificate = certificate._replace(dual=hulls.margin_of_model(self.extract(state)))
        return hulls.in_units_of_rows(certificate)

    def stop_reason(self, state: S) -> str | None:
        return state.hulls.stop_reason(state.best)

    def warm_state(self, state: S) -> np.ndarray:
        return state.best.w

    def extract(self, state: S) -> Separator:
        return state.hulls.separator(state.best.w)

    def coefficients(self, state: S, model: Separator) -> np.ndarray | None:
        """``y_i mass_i``, scaled so that their sum of rows is nearest to the model; None without a margin."""
        mass, certificate, hulls = self._masses(state), state.best.certificate, state.hulls
        if mass is None or not certificate.dual > 0:
            return None
        least = _NO_MASS * hulls.extremes(mass, hulls.side)[1]
        if not least.min() > 0:
            return None
        mass = hulls.only_over(least, mass)
        z, unit = hulls.combine(mass).z, hulls.rows.unit
        length = float(np.linalg.norm(z))
        if not length > 0:
            return None
        scale = float((model.coef / unit) @ (z / length)) / length * unit * unit
        signed = elementwise(np.multiply, hulls.shard.y, mass)
        return elementwise(np.multiply, signed, scale) if math.isfinite(scale) else None

    def _masses(self, state: S) -> np.ndarray | None:
        """The masses of this rank's rows that give the upper bound; None, on all ranks alike, if they are not known."""
        return state.best.mass

    def take_over(self, other: AnySolver, state: HullState, inputs: Inputs) -> S:
        started = self.start(*inputs, state.best.w)
        return started._replace(best=started.best.joined(state.best))
