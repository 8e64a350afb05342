"""solver="auto" of kernel margin distribution machines: coordinate steps, and Newton where they stall.

Blocks of coordinate steps close the gap fast on most problems. Where C is very large, or the gap asked for very small,
they creep, and a Newton step costs what a few epochs do.
"""

from __future__ import annotations

from dataclasses import dataclass

from widemargin.solvers.margin_descent import State
from widemargin.solvers.margin_newton import MarginNewton


@dataclass(frozen=True)
class MarginAuto(MarginNewton):
    """Blocks of coordinate steps until two epochs of them leave more than ``slow`` of the gap, then Newton steps.

    The first ``start_epochs`` are made in any case.
    """

    start_epochs: float = 4.0
    slow: float = 0.7

    def is_descent_over(self, state: State) -> bool:
        more = state.more
        if more.n_descents < self.start_epochs * state.values.n_all:
            return False
        blocks = max(1, round(2 * state.values.n_all / self.descent.block_rows))
        return len(more.gaps) > blocks and more.gaps[-1] > self.slow * more.gaps[-1 - blocks]
