"""The duals of many problems on the same rows of a torch device, side by side: a line of every array for each problem.

All kernel values between the rows are kept. A round takes a working set of every problem, solves these sets, one in
each thread block, and updates the pulls of all rows; see :mod:`widemargin.solvers.lockstep_dual`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from widemargin.kernels.vectors import Dual, group_size

# With a line for each problem.
_ARRAYS = ("y", "low", "high", "beta", "pull", "middle", "violation", "squared_change", "_kept")
_MAX_DENSE = 24  # working sets among all rows, up to which a product of matrices is faster than one of lines


class KeptValues(NamedTuple):
    """Kernel values between all rows."""

    values: torch.Tensor  # in float32, with lines that begin at multiples of four
    error: float  # typical, of a value


class Lockstep:
    """Coefficients and pulls."""

    def __init__(self, primitives: Any, kept: KeptValues, y: torch.Tensor, ends: torch.Tensor, size: int) -> None:
        n_problems, n = y.shape
        self._primitives, (self._values, self._value_error), self._size = primitives, kept, min(size, n)
        self.y, self.low, self.high = y, ends.clamp(max=0.0), ends.clamp(min=0.0)
        self.beta, self.pull = torch.zeros_like(ends), y.clone()
        self.middle = torch.zeros(n_problems, dtype=torch.float64, device=y.device)
        self.violation = torch.full_like(self.middle, torch.inf)  # before the last round
        self.squared_change = torch.zeros_like(self.middle)  # of coefficients, since pulls were exact
        n_kept = 0 if n <= size else size // 2
        # To begin with, rows at equal distances: rows come in no particular order.
        first = (torch.arange(n_kept, device=y.device) * n) // max(n_kept, 1)
        self._kept = first.repeat(n_problems, 1)

    def __len__(self) -> int:
        return len(self.beta)

    @property
    def dual_values(self) -> torch.Tensor:
        """The objective of each problem, which a start is chosen by."""
        return self.beta.abs().sum(dim=1) - 0.5 * (self.beta * self.response).sum(dim=1)

    @property
    def response(self) -> torch.Tensor:
        return self.y - self.pull

    def start_at(self, starts: Sequence[Any] | None, *, is_tied: bool) -> None:
        """Move every problem to coefficients near those that are given, wherever its dual objective is higher there.

        None: to bounds; for one problem: to no coefficients.
        """
        beta = self.low + self.high
        if starts is not None:
            nothing = torch.zeros_like(self.beta[0])
            beta = torch.stack([nothing if each is None else torch.as_tensor(each).to(nothing) for each in starts])
            beta = beta.clamp(self.low, self.high)
        if is_tied:
            sides = beta.clamp(min=0.0), beta.clamp(max=0.0)
            up, down = (side.sum(dim=1).abs() for side in sides)
            least = torch.minimum(up, down)
            scales = [torch.where(total > 0, least / total, 0.0)[:, None] for total in (up, down)]
            beta = sides[0] * scales[0] + sides[1] * scales[1]
        before, dual = (self.beta, self.pull), self.dual_values
        self.beta, self.pull = beta, self.y - self._times(beta)
        self.squared_change = self.beta.square().sum(dim=1)
        is_better = (self.dual_values > dual)[:, None]
        self.beta = torch.where(is_better, self.beta, before[0])
        self.pull = torch.where(is_better, self.pull, before[1])

    def answer_exactly(self, rows: Any) -> tuple[torch.Tensor, float]:
        """Replace pulls by those of exact kernel values; the mass of each sum, and the most terms of one.

        See :meth:`widemargin.kernels.protocol.KernelRows.score_error`.
        """
        places = (self.beta != 0).any(dim=0).nonzero()[:, 0]
        coef = self.beta[:, places].T.contiguous()
        self.pull = self.y - rows.times(rows.points(places), coef, exact=True).T
        self.squared_change = torch.zeros_like(self.squared_change)
        lengths, _ = rows.error_terms(self.beta[0])
        return (self.beta.abs() * lengths).sum(dim=1, keepdim=True), float(len(places))

    def joined(self, parts: list[Lockstep]) -> Lockstep:
        """The problems of all of these."""
        if len(parts) == 1:
            return parts[0]
        return self._with({name: torch.cat([getattr(part, name) for part in parts]) for name in _ARRAYS})

    def only(self, lines: np.ndarray) -> Lockstep:
        """Some of the problems, as they are."""
        chosen = torch.from_numpy(lines).to(self.beta.device)
        return self._with({name: getattr(self, name)[chosen] for name in _ARRAYS})

    def _with(self, arrays: dict[str, torch.Tensor]) -> Lockstep:
        other = object.__new__(Lockstep)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(arrays)
        return other

    def round(self, *, is_tied: bool, reduction: float, max_steps: int) -> None:
        """One working set of every problem, solved until its violation is a part of that of all rows."""
        n, everything = self.beta.shape[1], Dual(self.pull, self.beta, self.low, self.high)
        keys, places, top, bottom = self._primitives.scan(everything, self._kept, self.middle, group_size(n))
        if self._size >= n:
            working = torch.arange(n, device=self.beta.device).repeat(len(self), 1)
        else:
            working = self._primitives.choose(keys, places, self._kept, self._size - self._kept.shape[1])
        self.violation = top - bottom if is_tied else 2.0 * torch.maximum(top, -bottom).clamp(min=0.0)
        if is_tied:
            self.middle = 0.5 * (top + bottom)
        dual = Dual(*(each.gather(1, working) for each in everything))
        K = self._primitives.gather(self._values, working)
        # A problem whose rows of one side are all at their bounds has no middle, and nothing to do.
        middle = self.middle.nan_to_num(0.0, 0.0, 0.0)
        solved, _, _ = self._primitives.solve(K, dual, reduction * self.violation, middle, is_tied, max_steps)
        change = solved - dual.beta
        self._subtract(working, change)
        self.squared_change = self.squared_change + change.square().sum(dim=1)
        self.beta.scatter_(1, working, solved)
        if self._kept.shape[1]:
            self._kept = self._primitives.keep(working, dual._replace(beta=solved), self._kept.shape[1])

    def _subtract(self, working: torch.Tensor, change: torch.Tensor) -> None:
        """What a change of coefficients does to the pulls of all rows."""
        n, size = self.beta.shape[1], working.shape[1]
        if n > _MAX_DENSE * size or len(self) * size < n:
            self._primitives.subtract(self._values, working, change, self.pull)
            return
        self.pull -= self._times(torch.zeros_like(self.beta).scatter_(1, working, change))

    def _times(self, beta: torch.Tensor) -> torch.Tensor:
        """Responses of all rows, by the values that are kept."""
        return (beta.to(self._values.dtype) @ self._values[:, : beta.shape[1]]).to(beta.dtype)

    def gaps(self, *, is_tied: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Estimates of the relative gaps, the dual objectives, and the violation in units of the rounding of pulls."""
        best = self._best_intercept(is_tied=is_tied)[1]
        dual = self.dual_values
        primal = dual + best
        relative = torch.where(primal > 0, best / primal, torch.where(best > 0, torch.inf, 0.0))
        return relative, dual, self.violation / (self._value_error * self.squared_change.sqrt())

    def totals(self, error: torch.Tensor, *, is_tied: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the rows of each problem, for its bounds, and the intercept that its loss is for.

        Those of ``ResponseSums.of_totals`` but for the last two; then C times the loss, each of whose terms is the
        largest that a response may give that is wrong by ``error``.
        """
        response, size = self.response, self.beta.abs()
        intercept, _ = self._best_intercept(is_tied=is_tied)
        slack = 1.0 - self.y * (response - self.y * error + intercept[:, None])
        loss = ((self.high - self.low) * slack.clamp(min=0.0)).sum(dim=1)
        sums = (self.beta * response, size * error, size * response.abs(), size, self.beta)
        return torch.stack([*(each.sum(dim=1) for each in sums), loss], dim=1), intercept

    def _best_intercept(self, *, is_tied: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The better of two that pulls name: midway between their ends, and the mean of free rows; and the gap."""
        up, down = self.beta < self.high, self.beta > self.low
        is_free = up & down
        intercepts = [torch.zeros_like(self.middle)]
        if is_tied:
            top = self.pull.masked_fill(~up, -torch.inf).amax(dim=1)
            bottom = self.pull.masked_fill(~down, torch.inf).amin(dim=1)
            intercepts = [0.5 * (top + bottom), (self.pull * is_free).sum(dim=1) / is_free.sum(dim=1)]
        found = torch.zeros_like(self.middle), torch.full_like(self.middle, torch.inf)
        for intercept in intercepts:
            intercept = intercept.nan_to_num(0.0, 0.0, 0.0)
            beyond = self.pull - intercept[:, None]
            gap = beyond.clamp(min=0.0) * (self.high - self.beta) - beyond.clamp(max=0.0) * (self.beta - self.low)
            gap = gap.sum(dim=1)
            is_better = gap < found[1]
            found = torch.where(is_better, intercept, found[0]), torch.where(is_better, gap, found[1])
        return found
