"""The water level over the responses of all ranks, and rows drawn from p*.

Both are those of :mod:`widemargin.problems.slack_constrained`.
The edge of the water moves little from one step to the next. Ranks send rank 0 the responses near the last edge; those
below count as one row of their mean response, those above as one row far up. The level is that of all rows, to
rounding, while the new edge lies among the responses that were sent; else all are sent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.problems.slack_constrained import SlackConstrained

_MAX_ROWS_SENT = 4096  # up to so many rows in all, every response is sent
_NARROWING, _EDGE_MOVES = 0.8, 4.0  # of the width near the edge: its decrease per step; its least, in moves of the edge
_FAR_UP = 1e300
_BELOW, _NEAR, _ABOVE = -1.0, 0.0, 1.0


class Filled(NamedTuple):
    level: float
    bias: float
    cover: float
    drawn: np.ndarray  # ascending numbers of rows of this rank
    part: np.ndarray  # the share of the draws that fell on each


class WaterFilling:
    """One rank's rows, with labels and weights, for water levels over many vectors of responses.

    With an intercept each class is a group, and half of the rows are drawn from each. ``rng`` differs between ranks;
    rank 0 draws how many rows each rank contributes, each rank draws which.
    """

    def __init__(
        self, problem: SlackConstrained, y: np.ndarray, weight: np.ndarray, comm: Communicator, rng: Generator
    ) -> None:
        self.problem, self.weight, self._comm, self._rng = problem, weight, comm, rng
        self._labels = [1.0, -1.0] if problem.fit_intercept else [0.0]
        self._groups = [np.flatnonzero((weight > 0) & (label * y >= 0)) for label in self._labels]
        self._is_small = bool(comm.allreduce(np.array([float(len(y))]))[0] <= _MAX_ROWS_SENT)
        self._edge = np.full(len(self._labels), math.nan)
        self._width = np.full(len(self._labels), math.inf)

    def draw(self, response: np.ndarray, squared_norm: float, n_drawn: int) -> Filled:
        """The level over the responses of the current w, and about ``n_drawn`` rows drawn from p*."""
        filled = self._fill(response, squared_norm, n_drawn, self._width)
        if filled is None:
            self._width = np.full(len(self._labels), math.inf)
            filled = self._fill(response, squared_norm, n_drawn, self._width)
        assert filled is not None
        self._move(filled)
        return filled

    def level(self, response: np.ndarray, squared_norm: float) -> Filled:
        filled = self._fill(response, squared_norm, 0, np.full(len(self._labels), math.inf))
        assert filled is not None
        return filled

    def _move(self, filled: Filled) -> None:
        edge = filled.level - np.array(self._labels) * filled.bias
        edge = np.where(np.isfinite(edge), edge, math.nan)  # nan: the next step sends all responses
        change = np.abs(edge - self._edge)
        narrower = np.where(np.isinf(self._width), 0.0, _NARROWING * self._width)
        is_known = ~np.isnan(change) & (not self._is_small)
        self._width = np.where(is_known, np.maximum(narrower, _EDGE_MOVES * change), math.inf)
        self._edge = edge

    def _fill(self, response: np.ndarray, squared_norm: float, n_drawn: int, widths: np.ndarray) -> Filled | None:
        """The level, or None if its edge lies outside these widths around the last one."""
        below, near, lines = [], [], []  # a line: response, label, weight, and whether it is below, near or above
        for rows, label, edge, width in zip(self._groups, self._labels, self._edge, widths, strict=True):
            # An infinite width makes all rows near, also for an edge of nan.
            low, high = (edge - width, edge + width) if math.isfinite(width) else (-math.inf, math.inf)
            c, weight = response[rows], self.weight[rows]
            is_below, is_above = c < low, c > high
            is_near = ~(is_below | is_above)
            mass = float(weight @ is_below)
            mean = float(weight @ np.where(is_below, c, 0.0)) / mass if mass else 0.0
            around = np.full((np.count_nonzero(is_near), 4), (0.0, label, 0.0, _NEAR))
            around[:, 0], around[:, 2] = c[is_near], weight[is_near]
            above = np.array([[_FAR_UP, label, float(weight @ is_above), _ABOVE]])
            lines += [np.array([[mean, label, mass, _BELOW]]), around, above]
            below.append(rows[is_below])
            near.append(rows[is_near])
        gathered = self._comm.gather(np.concatenate(lines).ravel())
        answer = self._comm.broadcast(None if gathered is None else self._answer(gathered, squared_norm, n_drawn))
        if math.isnan(answer[0]):
            return None
        level, bias, cover = map(float, answer[:3])
        ends = answer[3 : 3 + self._comm.size].astype(np.intp)
        counts = np.split(answer[3 + self._comm.size :], ends[:-1])[self._comm.rank].astype(np.intp)
        drawn, times, begin = [], [], 0
        for low, around in zip(below, near, strict=True):
            inside = counts[begin + 1 : begin + 1 + len(around)]
            chosen = np.flatnonzero(inside)
            few, how_often = self._draw(low, counts[begin])
            drawn += [around[chosen], few]
            times += [inside[chosen], how_often]
            begin += len(around) + 2
        rows, part = np.concatenate(drawn), np.concatenate(times) / (len(self._labels) * self._per_group(n_drawn))
        order = np.argsort(rows)
        return Filled(level, bias, cover, rows[order], part[order])

    def _answer(self, gathered: list[np.ndarray], squared_norm: float, n_drawn: int) -> np.ndarray:
        """On rank 0: level, bias, cover (or nan); where the lines of each rank end; the draws of each line."""
        c, label, weight, place = np.concatenate(gathered).reshape(-1, 4).T
        water = self.problem.water_level(c, label, weight, squared_norm)
        counts = np.zeros(len(c))
        for each in self._labels:
            group = label == each
            is_near = group & (place == _NEAR)
            is_over_the_low = (water.share[is_near] > 0).any() or not (weight[group & (place == _BELOW)] > 0).any()
            is_under_the_high = (water.share[is_near] == 0).any() or not (weight[group & (place == _ABOVE)] > 0).any()
            if not (is_over_the_low and is_under_the_high):
                return np.array([math.nan])
            if n_drawn:
                lines = np.flatnonzero(group)
                mass = np.cumsum(water.share[lines])
                counts[lines] = np.bincount(self._places(mass, self._per_group(n_drawn)), minlength=len(lines))
        ends = np.cumsum([len(lines) // 4 for lines in gathered])
        return np.concatenate([[water.level, water.bias, water.cover], ends, counts])

    def _draw(self, rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """``n`` rows drawn in proportion to their weights, and how often each."""
        if n == 0:
            return rows[:0], np.empty(0, dtype=np.intp)
        few, counts = np.unique(self._places(np.cumsum(self.weight[rows]), n), return_counts=True)
        return rows[few], counts

    def _places(self, mass: np.ndarray, n: int) -> np.ndarray:
        """The indices at which ``n`` random numbers fall into cumulated masses."""
        drawn = np.minimum(self._rng.random(n) * mass[-1], np.nextafter(mass[-1], 0.0))  # rounding may reach the end
        return np.searchsorted(mass, drawn, side="right")

    def _per_group(self, n_drawn: int) -> int:
        return max(1, n_drawn // len(self._labels))
