"""Water over the responses of all ranks, and rows drawn from what it covers.

The edge of the water moves little from one step to the next. Only the responses around the last edge come together, one
by one; of each rank all those below count as one row of their mean response, and all those above as one far up. The
level is that of all rows, to rounding, as long as the new edge lies among those that came; else all come.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.problems.slack_constrained import SlackConstrained

_FEW = 4096  # responses, which always come all
_CALMER, _AROUND = 0.8, 4.0  # how fast the part around the edge narrows, and how many times the edge's last move it is
_FAR = 1e300
_BELOW, _NEAR, _ABOVE = -1.0, 0.0, 1.0


class Surface(NamedTuple):
    """The water's level and bias, the mass it covers, and rows drawn from p*."""

    level: float
    bias: float
    cover: float
    drawn: np.ndarray  # ascending numbers of rows of this rank
    part: np.ndarray  # how often each was drawn, as a part of all that were


class Reservoir:
    """Rows of one rank, with labels and weights, over which water is poured again and again.

    With an intercept each class is a basin of its own, and half of the rows are drawn from each. ``rng``, of this rank
    alone, draws rows; what it draws on rank 0 decides how many come from where.
    """

    def __init__(
        self, problem: SlackConstrained, y: np.ndarray, weight: np.ndarray, comm: Communicator, rng: np.random.Generator
    ) -> None:
        self.problem, self.weight, self._comm, self._rng = problem, weight, comm, rng
        self._labels = [1.0, -1.0] if problem.fit_intercept else [0.0]
        self._basins = [np.flatnonzero((weight > 0) & (label * y >= 0)) for label in self._labels]
        n_rows = float(comm.allreduce(np.array([float(len(y))]))[0])
        self._is_small = n_rows <= _FEW
        self._edge = np.full(len(self._labels), math.nan)
        self._width = np.full(len(self._labels), math.inf)

    def pour(self, response: np.ndarray, squared_norm: float, n_drawn: int) -> Surface:
        """The water over these responses of a w of this length, and about ``n_drawn`` rows from under it."""
        surface = self._pour(response, squared_norm, n_drawn, self._width)
        if surface is None:
            self._width = np.full(len(self._labels), math.inf)
            surface = self._pour(response, squared_norm, n_drawn, self._width)
        assert surface is not None
        self._move(surface)
        return surface

    def level(self, response: np.ndarray, squared_norm: float) -> Surface:
        """The water over responses that are not those of a next step; no row is drawn."""
        surface = self._pour(response, squared_norm, 0, np.full(len(self._labels), math.inf))
        assert surface is not None
        return surface

    def _move(self, surface: Surface) -> None:
        """Where the next water is looked for."""
        edge = surface.level - np.array(self._labels) * surface.bias
        edge = np.where(np.isfinite(edge), edge, math.nan)  # nan: all responses come next time
        change = np.abs(edge - self._edge)
        narrower = np.where(np.isinf(self._width), 0.0, _CALMER * self._width)
        is_known = ~np.isnan(change) & (not self._is_small)
        self._width = np.where(is_known, np.maximum(narrower, _AROUND * change), math.inf)
        self._edge = edge

    def _pour(self, response: np.ndarray, squared_norm: float, n_drawn: int, widths: np.ndarray) -> Surface | None:
        """The water, if its edge lies within the widths around the last one."""
        below, near = [], []
        lines: list[np.ndarray] = []
        for rows, label, edge, width in zip(self._basins, self._labels, self._edge, widths, strict=True):
            # All are near where the width is infinite, whatever the edge.
            low, high = (edge - width, edge + width) if math.isfinite(width) else (-math.inf, math.inf)
            c, weight = response[rows], self.weight[rows]
            is_below, is_above = c < low, c > high
            is_near = ~(is_below | is_above)
            mass = float(weight @ is_below)
            mean = float(weight @ np.where(is_below, c, 0.0)) / mass if mass else 0.0
            around = np.full((np.count_nonzero(is_near), 4), (0.0, label, 0.0, _NEAR))
            around[:, 0], around[:, 2] = c[is_near], weight[is_near]
            lines.append(np.array([[mean, label, mass, _BELOW]]))
            lines.append(around)
            lines.append(np.array([[_FAR, label, float(weight @ is_above), _ABOVE]]))
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
        rows, part = np.concatenate(drawn), np.concatenate(times) / (len(self._labels) * self._per_basin(n_drawn))
        order = np.argsort(rows)
        return Surface(level, bias, cover, rows[order], part[order])

    def _answer(self, gathered: list[np.ndarray], squared_norm: float, n_drawn: int) -> np.ndarray:
        """On rank 0: level, bias and cover; where the lines of each rank end; how often each line was drawn."""
        c, label, weight, place = np.concatenate(gathered).reshape(-1, 4).T
        water = self.problem.water(c, label, weight, squared_norm)
        counts = np.zeros(len(c))
        for each in self._labels:
            basin = label == each
            is_near = basin & (place == _NEAR)
            is_over_the_low = (water.share[is_near] > 0).any() or not (weight[basin & (place == _BELOW)] > 0).any()
            is_under_the_high = (water.share[is_near] == 0).any() or not (weight[basin & (place == _ABOVE)] > 0).any()
            if not (is_over_the_low and is_under_the_high):
                return np.array([math.nan])
            if n_drawn:
                lines = np.flatnonzero(basin)
                mass = np.cumsum(water.share[lines])
                counts[lines] = np.bincount(self._places(mass, self._per_basin(n_drawn)), minlength=len(lines))
        ends = np.cumsum([len(lines) // 4 for lines in gathered])
        return np.concatenate([[water.level, water.bias, water.cover], ends, counts])

    def _draw(self, rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """So many of the rows, each as likely as it is heavy, and how often each was drawn."""
        if n == 0:
            return rows[:0], np.empty(0, dtype=np.intp)
        few, how_often = np.unique(self._places(np.cumsum(self.weight[rows]), n), return_counts=True)
        return rows[few], how_often

    def _places(self, mass: np.ndarray, n: int) -> np.ndarray:
        """Where ``n`` random points fall into masses that are given one on top of the other."""
        points = np.minimum(self._rng.random(n) * mass[-1], np.nextafter(mass[-1], 0.0))  # may be rounded up to the end
        return np.searchsorted(mass, points, side="right")

    def _per_basin(self, n_drawn: int) -> int:
        return max(1, n_drawn // len(self._labels))
