"""What does a machine of the debiased 1-norm SVM go through? Rows of a repetition, all estimators, and their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import _designs as designs
from benchmarks._designs import Design
from widemargin import DebiasedSparseSVC
from widemargin.pauses import pause_no_more
from widemargin.problems import debiasing
from widemargin.solvers.debiased import DebiasedRounds

SEED = 2018


def drawn(settings: dict[str, Any], number: int, n: int) -> tuple[Design, np.ndarray, np.ndarray]:
    """The rows of a repetition."""
    design = designs.make(settings["design"], settings["p"])
    kind = list(designs.DESIGNS).index(settings["design"])
    return design, *design.rows(n, np.random.default_rng([SEED, kind, settings["p"], n, number]))


@dataclass(frozen=True)
class WatchedRounds(DebiasedRounds):
    """The rounds of the library, of which the estimates between are kept; machines are threads of this process."""

    machines: dict[int, tuple[float, np.ndarray, np.ndarray]] = field(default_factory=dict)  # share, b^(m), its score
    turn: Lock = field(default_factory=Lock)  # of machines that hold a Hessian: thirty of 5,000 features are 20 GB
    inverses: dict[int, sp.csr_matrix] = field(default_factory=dict)  # rows, by the Hessian that they are of
    after: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # debiased, thresholded, of each round

    def start(self, problem: Any, shard: Any, comm: Any, rng: Any, warm: Any = None) -> Any:
        state = super().start(problem, shard, comm, rng, warm)
        self.machines[comm.rank] = (state.share, state.at.coef, state.at.score[: shard.n_features])
        return state

    def _curvature(self, state: Any, margins: np.ndarray) -> Any:  # type: ignore[override]
        """The Hessian of this machine without its matrix, of which the inverse is made at once."""
        with self.turn:  # without pauses: there machines would wait for those that wait for their turn
            return copy_context().run(self._curvature_and_inverse, state, margins)

    def _curvature_and_inverse(self, state: Any, margins: np.ndarray) -> Any:
        pause_no_more()
        found = super()._curvature(state, margins)
        if found is None:
            return None
        rows = super()._inverse(found, np.arange(state.shard.n_features))
        found = found._replace(correlation=np.empty((0, 0)))
        self.inverses[id(found)] = rows
        return found

    def _inverse(self, at: Any, rows: np.ndarray) -> sp.csr_matrix:
        return self.inverses.pop(id(at))

    def sweep(self, state: Any) -> Any:
        state = super().sweep(state)
        if state.comm.rank == 0:
            self.after.append((state.debiased, state.at.coef))
        return state


class WatchedSVC(DebiasedSparseSVC):
    """DebiasedSparseSVC that tells what it went through."""

    def _solver(self) -> WatchedRounds:
        plain = super()._solver()
        self.watched = WatchedRounds(**{each.name: getattr(plain, each.name) for each in fields(plain)})
        return self.watched


def estimates(
    X: np.ndarray, y: np.ndarray, n_machines: int, settings: dict[str, Any], design: Design
) -> dict[str, Any]:
    """All estimators of so many machines, but CE."""
    model = WatchedSVC(
        cluster=n_machines, fit_intercept=settings["intercept"], constraint=settings["constraint"], threshold="z"
    ).fit(X, y)
    machines = model.watched.machines.values()
    n_kept = max(np.count_nonzero(coef) for _, coef, _ in machines)
    score = sum(share * score for share, _, score in machines)
    naive = model.coef_naive_[0]
    (first, by_z), (_, second) = model.watched.after
    return {
        "NAE": naive,
        "AE": first,
        "TE": debiasing.count_threshold(first, n_kept),
        "TE, z": by_z,
        "TE, true Hessian": debiasing.count_threshold(naive + design.inverse_hessian_times(score), n_kept),
        "second round": second,
    }


def errors_of(coef: np.ndarray, design: Design) -> dict[str, float]:
    off = coef - design.coef
    return {
        "l_inf": float(np.abs(off).max()),
        "l2": float(np.linalg.norm(off)),
        "prediction": design.error(coef),
        "n_selected": int(np.count_nonzero(coef)),
        "n_true": int(np.count_nonzero(coef[: designs.N_SIGNALS])),
    }


# -- over repetitions --------------------------------------------------------------------------------------------------


def settings_of(chosen: Any, design: str, p: int, n: int) -> dict[str, Any]:
    return {"design": design, "p": p, "n": n, "intercept": chosen.intercept, "constraint": chosen.constraint}


def collected(outcomes: list[Any], settings: Sequence[int]) -> dict[str, Any]:
    """``errors[what][who][setting]``, a list over repetitions."""
    first = outcomes[0][str(settings[0])]["errors"]
    return {
        what: {
            who: {str(s): [outcome[str(s)]["errors"][who][what] for outcome in outcomes] for s in settings}
            for who in first
        }
        for what in next(iter(first.values()))
    }


def means_of(errors: dict[str, Any]) -> dict[str, Any]:
    """Mean and its standard error instead of each list."""
    return {
        what: {who: {s: mean_and_error(each) for s, each in by_setting.items()} for who, by_setting in by_who.items()}
        for what, by_who in errors.items()
    }


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    n = len(values)
    return float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else None
