"""The rows of both hulls in a range where float64 serves well, and worst-case bounds on the rounding of passes.

Hulls may be moved together, and all lengths multiplied, without changing anything. Two things are done, both equal on
all ranks, and only where they are needed, since they copy the rows:
* rows too large or too small for products of four of them are multiplied by a power of two, which is exact;
* columns whose values lie far from zero and close together are moved, which rounds each value by ``UNIT`` of its
  distance to the new origin. Such a column has no zeros, so sparse rows stay as sparse as they are.

A *metric* is a power of two for each column: 1 is the user's, in which the problem is stated; the equilibrated one
gives all columns about the same spread. Working rows are ``factor (x - mean)``; constant columns have the factor 0.

Errors, with k the terms of a score, n those of a sum over rows, and ``reach_j`` the largest ``|x_ij|``:
* a score ``x.v``, v = factor w, is off by at most ``gamma(k) sum_j |x_j v_j| <= gamma(k) sum_j reach_j |v_j|``.
  Subtracting the same rounded ``mean.v`` from all scores rounds once more; its own error cancels between the classes.
* a sum ``sum_i mass_i x_ij`` is off by at most ``gamma(n) reach_j sum_i mass_i``.
* compensated passes (:mod:`widemargin.compiled.accurate`) are off by one rounding of the result, and ``gamma^2`` where
  plain ones are off by ``gamma``.
* products that underflow are off by less than ``_UNDERFLOW`` each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.comm.protocol import Communicator
from widemargin.compiled.accurate import accurate_scores_dense
from widemargin.data.pieces import accurate_sums_by_class, elementwise
from widemargin.data.shard import Shard
from widemargin.rounding import gamma

_MAX_EXPONENT = 100  # largest power of two of rows, up or down, that are used as they are
_LARGEST, _SMALLEST = 2.0**1000, 2.0**-1000  # beyond these the coefficients would leave the range of float64
_MAX_FACTOR_EXPONENT = 900
_FAR = 1024.0  # in half ranges: a column this far from zero is moved
_UNDERFLOW = 2.0**-1070
_LEAST_MASS = 1e-100  # of a class that has a point


@dataclass(frozen=True, eq=False)
class Point:
    """The difference of a point of each hull, ``sum y_i mass_i x_i`` with masses divided by the sum of their class."""

    z: np.ndarray
    error: np.ndarray  # per column
    excess: float  # by which masses may be over their bounds after the division, relative to the bounds


@dataclass(frozen=True, eq=False)
class HullRows:
    """One rank's rows in a metric, with the passes over them."""

    shard: Shard  # the rows ``unit (x - origin)``
    comm: Communicator
    unit: float
    origin: np.ndarray
    factor: np.ndarray
    mean: np.ndarray  # of the shard's rows, on all ranks, by weight
    half: np.ndarray  # half the range of each column of the shard's rows
    reach: np.ndarray  # the largest absolute value of each
    entry_error: np.ndarray  # by which an entry may differ from the one it stands for
    n_terms: int  # of a score, at most
    n_sums: int  # of a sum over the rows of all ranks, at most

    @classmethod
    def of(cls, shard: Shard, comm: Communicator, total: float, is_equilibrated: bool) -> HullRows:
        """Raises ValueError on all ranks for rows that no power of two brings into range."""
        shard, part_error = _without_duplicates(shard)
        low, high = shard.column_extremes()
        largest = [part_error, shard.scores_depth, shard.n_sums]
        everywhere = comm.allreduce(np.concatenate([low, np.negative(high), np.negative(largest)]), "min")
        low, high = everywhere[: len(low)], -everywhere[len(low) : -3]
        part_error, n_terms, n_rows = -everywhere[-3:]
        half = high / 2 - low / 2
        reach = np.maximum(np.abs(low), np.abs(high))
        farthest, widest = float(reach.max(initial=0.0)), float(half.max(initial=0.0))
        _check_range(farthest, widest)
        middle = low + half
        is_far = (np.abs(middle) > _FAR * half) & (half > 0)
        exponent = math.frexp(widest)[1]
        is_in_range = farthest <= 2.0**_MAX_EXPONENT and abs(exponent) <= _MAX_EXPONENT
        origin, unit, error = np.zeros_like(low), 1.0, np.full_like(low, part_error)
        if widest == 0 or (is_in_range and not is_far.any()):
            pass
        else:
            unit = 1.0 if is_in_range else math.ldexp(1.0, -exponent)
            origin = np.where(is_far | (half == 0), middle, 0.0)
            shard = _moved(shard, origin, unit)
            # Rounding is monotone, so the extremes move like all values.
            low, high, half = (low - origin) * unit, (high - origin) * unit, half * unit
            reach = np.maximum(np.abs(low), np.abs(high))
            error = error * unit + np.where(is_far, gamma(2) * reach, 0.0)
        factor = (half > 0).astype(np.float64)
        mean = comm.allreduce(shard.combine(elementwise(np.divide, shard.weight, total)))
        # Passes over pieces and ranks add up partial sums.
        n_sums = int(n_rows) + comm.size
        rows = cls(shard, comm, unit, origin, factor, mean, half, reach, error, int(n_terms), n_sums)
        return rows.equilibrated() if is_equilibrated else rows

    def equilibrated(self) -> HullRows:
        """The same rows in the equilibrated metric: half the range of each column is in [1/2, 1)."""
        exponents = np.clip(-np.frexp(self.half)[1], -_MAX_FACTOR_EXPONENT, _MAX_FACTOR_EXPONENT)
        return replace(self, factor=np.ldexp((self.half > 0).astype(np.float64), exponents))

    def radius(self) -> float:
        """The largest distance of a row to the mean of all."""
        farthest = self.shard.squared_distances(self.factor, self.mean).max(initial=0.0)
        return math.sqrt(self.comm.allreduce(np.array([farthest]), "max")[0])

    def in_metric(self, factor: np.ndarray) -> np.ndarray:
        """Per column the factor from lengths in this metric to lengths in another."""
        return np.divide(factor, self.factor, out=np.zeros_like(factor), where=self.factor > 0)

    def scores(self, w: np.ndarray) -> np.ndarray:
        v = self.factor * w
        scores = self.shard.scores(v)
        scores -= self.mean @ v
        return scores

    def accurate_scores(self, w: np.ndarray) -> np.ndarray:
        v = self.factor * w
        return self.shard.accurate_scores(v, float(self.mean @ v))

    def score_error(self, w: np.ndarray, is_accurate: bool = False) -> float:
        """Largest error of a score, but for the one rounding of the result of an accurate pass."""
        v = np.abs(self.factor * w)
        terms = gamma(self.n_terms + 8)
        size = float(self.reach @ v) + float(np.abs(self.mean) @ v)
        of_entries = 0.0 if not self.entry_error.any() else float(self.entry_error @ v)
        return (terms**2 if is_accurate else terms) * size + 2 * of_entries + self.n_terms * _UNDERFLOW

    def model_error(self, w: np.ndarray) -> float:
        """How much the margin of w can change when its entries are rounded, twice, for the model that is returned."""
        return gamma(8) * 2 * float(self.half @ np.abs(self.factor * w))

    def combine(self, mass: np.ndarray) -> np.ndarray:
        """``sum mass_i x_i`` over this rank's rows."""
        return self.factor * self.shard.combine(mass)

    def sum_of(self, mass: np.ndarray) -> np.ndarray:
        """``sum mass_i factor (x_i - mean)`` over this rank's rows."""
        return np.asarray(self.combine(mass) - self.factor * self.mean * mass.sum())

    def combine_sides(self, rows: np.ndarray, mass: np.ndarray, side: np.ndarray) -> np.ndarray:
        return self.factor * self.shard.combine_sides(rows, mass, side)

    def curvature(self, rows: np.ndarray, mass: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.factor * self.shard.curvature(rows, mass, self.factor * v)

    def second_moment(self, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
        return self.factor[:, None] * self.shard.second_moment(rows, mass) * self.factor

    def dense(self, rows: np.ndarray) -> np.ndarray:
        """The given ascending rows, ``factor (x - mean)``."""
        out = self.shard.dense_rows(rows)
        out -= self.mean
        out *= self.factor
        return out

    def taken(self, rows: np.ndarray) -> Any:
        """The given ascending rows, ``factor x``, as sparse as they are."""
        blocks = [block[inside] for block, inside, _ in self.shard.by_block(rows)]
        if self.shard.is_sparse:
            return sp.csr_matrix(sp.vstack(blocks).multiply(self.factor))
        return np.concatenate(blocks) * self.factor

    def point(self, z: np.ndarray, sums: np.ndarray) -> Point:
        """What ``z = sum y_i mass_i x_i`` says of the point with masses that add up to one.

        Dividing the sum p of a class by its S instead of 1 moves it by ``p (1 - S) / S``, at most ``reach |1 - S|``.
        """
        off = float(np.abs(sums - 1).sum()) + 4 * gamma(self.n_sums + 4)
        return Point(z, self._sum_error(z, off), off)

    def accurate_point(self, mass: np.ndarray, side: np.ndarray) -> Point:
        """The same from a compensated pass, divided by the sums."""
        high, low = self.shard.accurate_sums(mass, side)
        local = np.stack(accurate_sums_by_class(side, mass), axis=1)
        everyone = self._of_every_rank(np.concatenate([high.ravel(), low.ravel(), local.ravel()]))
        d = len(self.factor)
        high, low, totals = np.zeros((2, d)), np.zeros((2, d)), everyone[:, 4 * d :].reshape(-1, 2, 2)
        for part in everyone:
            its_high, its_low = part[: 2 * d].reshape(2, d), part[2 * d : 4 * d].reshape(2, d)
            total = high + its_high
            rest = total - high
            low += ((high - (total - rest)) + (its_high - rest)) + its_low
            high = total
        off = np.array([math.fsum([*totals[:, c].ravel(), -1.0]) for c in (0, 1)])
        return self.point_of_sums(high, low, off)

    def point_of_sums(self, high: np.ndarray, low: np.ndarray, off: np.ndarray) -> Point:
        """The point of sums in two arrays, for masses that add up to ``1 + off``.

        With f = off / (1 + off), p / S = p - p f, and f is small: the products with it are rounded to little. What is
        left is two roundings of z itself, the errors of the sums of rows and of masses, and roundings of the small
        terms. A class without mass has no point: then the error is larger than any distance.
        """
        share = (off / np.maximum(1 + off, _LEAST_MASS))[:, None]
        small = low - share * high
        z = (high[0] - high[1]) + (small[0] - small[1])
        most = float(np.abs(share).sum())
        error = self._sum_error(z * self.factor, 4 * gamma(self.n_sums + 8) ** 2 + gamma(16) * most)
        return Point(z * self.factor, error + gamma(2) * np.abs(z) * self.factor, most)

    def point_of_few(self, z: np.ndarray, relative: float) -> Point:
        """That of masses on a few rows, given as differences to the mean; the error is relative to the range."""
        return Point(
            z, self.factor * (relative * 2 * self.half + 2 * self.entry_error) + gamma(2) * np.abs(z), relative
        )

    def _sum_error(self, z: np.ndarray, relative: float) -> np.ndarray:
        errors = relative * self.reach + 2 * self.entry_error + self.n_sums * _UNDERFLOW
        return np.asarray(self.factor * errors + gamma(2) * np.abs(z))

    def _of_every_rank(self, values: np.ndarray) -> np.ndarray:
        """The arrays of all ranks, by rank, without any rounding: each has a place of its own."""
        everyone = np.zeros((self.comm.size, len(values)))
        everyone[self.comm.rank] = values
        return self.comm.allreduce(everyone.ravel()).reshape(everyone.shape)


def _without_duplicates(shard: Shard) -> tuple[Shard, float]:
    """Sparse rows without duplicates, and the largest error of an entry that this made."""
    if not shard.is_sparse or all(block.has_canonical_format for block in shard.blocks):
        return shard, 0.0
    blocks, error = [], 0.0
    for block in shard.blocks:
        canonical = block.copy()
        canonical.sum_duplicates()
        if canonical.nnz < block.nnz:
            n_parts = int(np.diff(block.indptr).max())
            error = max(error, gamma(n_parts) * n_parts * float(np.abs(block.data).max()))
        blocks.append(canonical)
    return Shard(blocks, shard.y, shard.weight), error


def _moved(shard: Shard, origin: np.ndarray, unit: float) -> Shard:
    """A copy of the rows, ``unit (x - origin)``; a stored entry of a constant column becomes a stored zero."""
    blocks = []
    for block in shard.blocks:
        if sp.issparse(block):
            data = (block.data.astype(np.float64) - origin[block.indices]) * unit
            moved = sp.csr_matrix((data, block.indices, block.indptr), shape=block.shape)
        else:
            moved = np.subtract(block, origin, dtype=np.float64)
            moved *= unit
        blocks.append(moved)
    return Shard(blocks if len(blocks) > 1 else blocks[0], shard.y, shard.weight)


def _check_range(reach: float, half: float) -> None:
    if reach > _LARGEST or 0 < half < _SMALLEST:
        raise ValueError(
            f"Values of the rows are as large as {reach:.1e} and differ by at most {half:.1e} from their middle: "
            "coefficients would leave the range of float64. Please scale the features (StandardScaler)."
        )


def accurate_dot(v: np.ndarray, w: np.ndarray) -> float:
    """``v.w`` as if in twice the precision of float64."""
    if not w.any():
        return 0.0
    # Halves of numbers are multiplied, which must not overflow: both sides are brought to about one.
    exponents = [int(np.frexp(np.abs(each).max(initial=0.0))[1]) for each in (v, w)]
    out = np.empty(1)
    accurate_scores_dense(np.ldexp(v, -exponents[0])[None, :], np.ldexp(w, -exponents[1]), 0.0, out)
    return float(np.ldexp(out[0], sum(exponents)))


def length(v: np.ndarray) -> float:
    """The norm, also where squares would underflow, with a relative error of at most ``gamma(len(v) + 4)``."""
    largest = float(np.abs(v).max(initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    scale = math.ldexp(1.0, -math.frexp(largest)[1]) if 1e-290 < largest < 1e290 else 1 / largest
    return float(np.linalg.norm(v * scale)) / scale


def length_at_most(v: np.ndarray) -> float:
    """An upper bound of the norm of a vector whose entries were rounded a few times each."""
    return length(v) * (1 + gamma(len(v) + 16))
