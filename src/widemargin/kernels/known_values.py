"""Kernel values between all rows, for many problems on them: in float32 for steps, with what that lost for bounds.

Where the coefficients of every problem sum to zero, any number may be taken from all values: sums do not change. Values
near 1 are kept less 1, so that rounding takes little of what tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from widemargin import cores
from widemargin.compiled import known_values as compiled
from widemargin.kernels.storage import pieces
from widemargin.rounding import UNIT

BYTES = 6  # of a value: four in float32, two that it lost
ERROR = compiled.LOST_UNIT / 2 + 8 * UNIT  # of a value, relative to that in float64
NEAR_ERROR = 2.0**-24 * (1 + 2.0**-20)  # of its part in float32
LARGEST = 1e38
SMALLEST = compiled.SMALLEST  # smaller values are taken as 0
_LINES_AT_ONCE = 256  # that are computed in float64
_LINES_PER_PIECE = 64


@dataclass(frozen=True)
class KnownValues:
    """Both parts of all values, a line for each row; ``less`` was taken from all of them.

    None is larger in size than ``largest`` times ``||phi(x)|| ||phi(z)||``, which scales what rounding took from it.
    """

    near: np.ndarray
    lost: np.ndarray
    less: float = 0.0
    largest: float = 1.0

    @classmethod
    def filled(
        cls, n: int, compute: Callable[[int, int], np.ndarray], space: KnownValues | None, less: float = 0.0
    ) -> KnownValues:
        """Values between ``n`` rows; ``compute(begin, end)`` gives some lines in float64, from the column ``begin`` on.

        ``space`` are values between as many rows that are not needed any more. Those that are kept must not exceed 1 in
        size where ``less`` is taken from them.
        """
        memory = (
            (np.empty((n, n), np.float32), np.empty((n, n), np.int16)) if space is None else (space.near, space.lost)
        )
        known, largest = cls(memory[0], memory[1], less), 0.0  # without the diagonal of others
        for begin, end in pieces(n, _LINES_AT_ONCE):
            values = compute(begin, end)
            if less:
                values -= less
                largest = max(largest, float(values.max()), -float(values.min()))

            def store(few: tuple[int, int], values: np.ndarray = values, begin: int = begin) -> None:
                compiled.store(values, begin, begin + few[0], begin + few[1], known.near, known.lost)

            cores.each(store, list(pieces(end - begin, _LINES_PER_PIECE)), 4.0 * values.size)
        return replace(known, largest=largest) if less else known

    @cached_property
    def diagonal(self) -> np.ndarray:
        return np.ascontiguousarray(np.diagonal(self.near))

    def constant(self, coef: np.ndarray) -> float:
        """What sums of values with these coefficients lack in all rows."""
        return self.less * float(coef.sum()) if self.less else 0.0

    def only(self, places: np.ndarray) -> KnownValues:
        """A copy of the values between some rows."""
        n = len(places)
        near, lost = np.empty((n, n), np.float32), np.empty((n, n), np.int16)
        compiled.sub_block(self.near, places, near)
        compiled.sub_block(self.lost, places, lost)
        return KnownValues(near, lost, self.less, self.largest)

    def times_at(self, lines: np.ndarray, coef: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Exact :meth:`times` for coefficients of some rows, at the places of some others."""
        out = np.full(len(places), self.constant(coef))
        compiled.add_exact_some(self.near, self.lost, lines, coef, places, out)
        return out

    def times(self, coef: np.ndarray, *, exact: bool) -> np.ndarray:
        """``sum_j coef_j k(x_i, x_j)`` for every row; ``exact`` to about :data:`ERROR` of the sizes of its terms."""
        lines = np.flatnonzero(coef)
        out = np.full(len(coef), self.constant(coef))
        if exact:
            compiled.add_exact(self.near, self.lost, lines, coef[lines], out)
        else:
            compiled.add_near(self.near, lines, coef[lines], out)
        return out
