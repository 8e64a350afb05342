"""The method of multipliers, for the C-SVM and for hulls: its settings, and the rules that follow from them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from widemargin.pauses import TimeIsUp

_MIN_STRIDE = 4  # fewer rows are not worth a sample
_MIN_SAMPLE, _MIN_HESSIAN = 2048, 8192  # rows
_ROUGH, _MAX_ROUGH_STEPS = 0.05, 20  # relative gap of the answer of a sample


@dataclass(frozen=True)
class MultiplierRules:
    direct_features: int = 512  # up to here the Hessian is formed
    start_per_feature: int = 32  # rows of the sample whose answer is the start
    hessian_per_feature: int = 64  # free rows that make up a Hessian, at most, unless many more are as cheap
    rho_growth: float = 4.0
    few_inner: int = 2  # steps at one centre after which rho grows
    max_inner: int = 8  # and after which it shrinks
    cg_residual: float = 0.1

    def start_stride(self, n_rows: float, n_features: int) -> int:
        """One of so many rows is in the sample whose answer is the start; 0 where rows are too few to sample."""
        stride = int(n_rows // max(self.start_per_feature * n_features, _MIN_SAMPLE))
        return stride if stride >= _MIN_STRIDE else 0

    def hessian_stride(self, n_free: float, n_features: int, n_entries: float) -> int:
        """One of so many free rows makes up the Hessian.

        A better Hessian saves steps, and to form it costs less than a step as long as it takes no more multiplications
        than a pass over all entries.
        """
        most = max(self.hessian_per_feature * n_features, _MIN_HESSIAN, n_entries / n_features**2)
        return max(1, int(n_free // most))

    def next_rho(self, rho: float, largest: float, n_inner: int, *, is_settled: bool) -> float:
        """After ``n_inner`` steps at a centre, that of the next one, or of another attempt at this one.

        A centre that was reached in few steps was near, and the next may lie farther away; or it was too far.
        """
        if not is_settled:
            return rho / self.rho_growth
        return min(rho * (self.rho_growth if n_inner <= self.few_inner else 1.0), largest)

    def solved_roughly(self, state: Any) -> Any:
        """The state after as many sweeps as the answer of a sample is worth."""
        with suppress(TimeIsUp):  # any direction will do
            for _ in range(_MAX_ROUGH_STEPS):
                if state.best.certificate.relative <= _ROUGH:
                    break
                state = self.sweep(state)  # type: ignore[attr-defined]
        return state
