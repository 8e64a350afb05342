"""The divide-and-conquer debiased 1-norm SVM: what every machine estimates, debiased, averaged, thresholded, again.

Machines are ranks, each with the rows it has. With the names of :mod:`widemargin.problems.debiasing`:

    start     every machine m solves its own 1-norm SVM: b^(m)
    round 1   every machine takes a Newton step from b^(m) by its own score and Hessian
              the steps' ends are averaged over machines, then thresholded
    round 2   the coefficients that are kept are fitted anew on all rows, without a penalty
              from there: the score of ALL rows, then the same as in round 1, with Hessians taken there
    end       the loss of the model, and a lower bound for all models of its features

Round 1 is [1]. Its remainder depends on b^(m), which a machine of few rows estimates badly, so that averaging over many
machines leaves a bias that no interval covers; [1] says that another round does not help, and it does: the score is
then that of all rows, and what remains no longer depends on their division. From coefficients that are still too small
a Newton step ends short, and intervals miss those that are not zero: hence the fit of the kept ones. A round sends a
handful of vectors of the number of features; the fit, for s kept ones, (s + 1)(s + 2) / 2 numbers a few times.

With few rows, or with features that are nearly the same, a step can lead astray and a threshold can drop too much. A
debiased model should have a lower mean hinge loss than the penalised one, so the result of a round is kept only if its
loss on all rows is at most the loss of the average of the b^(m). Otherwise its features are fitted anew without a
penalty, or those of the average if they fit clearly better; this is the model, and the start of the next round. If no
step can be taken, all standard errors are infinite, and the model says why (:data:`OBSTACLES`).

Rows of the inverse may be shared out: machine m makes p / M of them, for all machines ([1], Section 4).

[1] Lian, Fan: Divide-and-Conquer for Debiased l1-norm Support Vector Machine in Ultra-high Dimensions, 2018.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.pauses import TimeIsUp, uneven
from widemargin.problems import debiasing
from widemargin.problems.debiasing import Curvature
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.problems.protocol import Certificate
from widemargin.solvers.column_generation import State as ColumnState
from widemargin.solvers.column_generation import solved
from widemargin.solvers.inverse_rows import clime_rows, scio_rows
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Inputs, Solver, Warm
from widemargin.solvers.refit import certified, refit

_Step: TypeAlias = tuple[np.ndarray, np.ndarray]  # debiased coefficients and standard errors

_MAX_REFITTED, _ROWS_PER_REFITTED = 500, 20  # coefficients, and the rows that each needs

_PRICE_OF_SPARSITY = 0.25  # relative loss that fewer features may cost at most,
_PRICE_OF_SMOOTHNESS = 0.2  # and a fit of the smoothed loss, which few rows smooth much

# Why a round has no standard errors, by number; 0 is none.
_NO_FEATURE, _SEPARABLE, _FEW_ROWS, _INDISTINCT = 1, 2, 3, 4
OBSTACLES = {
    _NO_FEATURE: "no feature was selected",
    _SEPARABLE: "the selected features separate the classes, or nearly so",
    _FEW_ROWS: "too few rows lie near the margin",
    _INDISTINCT: "the rows near the margin do not tell the features apart",
}


class Estimate(NamedTuple):
    """Where a round begins, on one machine, or what it found, the same on all."""

    coef: np.ndarray
    intercept: float
    score: np.ndarray  # of z = (x, 1): minus the gradient of the mean loss there
    loss: float = math.inf  # the mean hinge loss of all rows

    def beta(self, fit_intercept: bool) -> np.ndarray:
        """Coefficients, and the intercept last if there is one."""
        return np.append(self.coef, self.intercept) if fit_intercept else self.coef


@dataclass(frozen=True)
class State:
    problem: HingeL1
    shard: Shard
    comm: Communicator
    n: float  # the weight of all rows of all machines
    share: float  # of this machine's rows in it
    pilot: Certificate  # of the worst machine's 1-norm SVM
    alpha: float  # the penalties of all machines, averaged
    n_kept: int  # the most coefficients that a machine's 1-norm SVM has
    naive: Estimate  # the average of all b^(m), without a score
    at: Estimate
    round: int = 0
    selected: np.ndarray | None = None  # what was over the threshold in the last round
    has_threshold_held: bool = True  # whether the model is made of these
    obstacle: int = 0  # to the last round
    debiased: np.ndarray | None = None
    standard_error: np.ndarray | None = None  # the intercept's last


@dataclass(frozen=True)
class DebiasedRounds(Solver[State, Separator]):
    """``rounds`` of debiasing; ``constraint`` is the c of the inverse, in units of the error of the Hessian."""

    solves = (HingeL1,)

    rounds: int = 2
    threshold: Literal["z", "paper"] | None = "z"
    inverse: Literal["scio", "clime"] = "scio"
    constraint: float = 0.8
    shares_inverse: bool = False
    tol: float = 1e-6
    max_iter: int = 1000

    def start(self, problem: HingeL1, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """The 1-norm SVM of every machine; ``warm`` is where the first of them begins to look."""
        _refuse_large_hessian(shard.n_features)
        self._refuse_one_class(shard, comm)
        local = self._own_model(Inputs(problem, shard, Solo(), rng), warm)
        here = float(shard.weight.sum())
        n = float(comm.allreduce(np.array([here]))[0])
        share, own = here / n, np.append(local.coef, [local.intercept, local.rows.problem.penalty])
        *naive, intercept, alpha = comm.allreduce(share * own)
        worst = self._worst(comm, local.certificate)
        (kept,) = comm.allreduce(np.array([np.count_nonzero(local.coef)], dtype=float), "max")
        # The masses are balanced: they have no part in the intercept.
        at = Estimate(local.coef, local.intercept, np.append(local.correlation, 0.0))
        average = Estimate(np.array(naive), float(intercept), np.zeros_like(at.score))
        margins = debiasing.margins_of(shard, np.append(average.coef, average.intercept), True)
        average = average._replace(loss=float(comm.allreduce(debiasing.hinge_sum(shard, margins))[0]) / n)
        return State(problem, shard, comm, n, share, worst, float(alpha), int(kept), average, at)

    def sweep(self, state: State) -> State:
        """One round; none at all where there is an obstacle on any machine."""
        before, obstacle = state, 0
        if state.round:
            fitted, is_fitted = self._refitted(state)
            if not is_fitted:  # perhaps the features of the 1-norm SVMs have a fit
                fitted, is_fitted = self._refitted(replace(state, at=state.naive))
            state, obstacle = (fitted, 0) if is_fitted else (state, _SEPARABLE)
        shard, at, fit_intercept = state.shard, state.at, state.problem.fit_intercept
        margins = debiasing.margins_of(shard, at.beta(fit_intercept), fit_intercept)
        with uneven(np.inf):
            curvature = self._curvature(state, margins)
        if curvature is None:
            obstacle = _FEW_ROWS if at.coef.any() else _NO_FEATURE
        obstacle = int(state.comm.allreduce(np.array([float(obstacle)]), "max")[0])
        if obstacle or curvature is None:
            return self._blind(before, obstacle)
        step = self._step_of_a_share if self._is_shared(state) else self._step
        debiased, error = step(state, curvature, margins)
        if not np.isfinite(error[: len(debiased)]).any():
            return self._blind(before, _INDISTINCT)
        coef = self._thresholded(state, debiased, error)
        ahead = at.score[-1] / curvature.mass if fit_intercept else 0.0
        intercept = debiasing.intercept_after(at.intercept + ahead, curvature.center, at.coef, coef)
        intercept = float(state.comm.allreduce(np.array([state.share * intercept]))[0])
        state = replace(state, round=state.round + 1, debiased=debiased, standard_error=error, selected=coef != 0)
        return self._no_worse(state, self._everywhere(state, coef, intercept))

    def certify(self, state: State) -> Certificate | None:
        """The bounds of the model, once all rounds are done."""
        return self._certified(state) if state.round >= self.rounds else None

    def confirm(self, state: State, latest: Certificate | None) -> Certificate:
        return latest or self._certified(state)

    def stop_reason(self, state: State) -> str | None:
        if state.pilot.relative > self.tol:
            return "pilot"
        return "blind" if state.obstacle else "rounds"

    def warm_state(self, state: State) -> np.ndarray:
        return state.at.coef

    def extract(self, state: State) -> Separator:
        report = {
            "alpha": state.alpha,
            "coef_naive": state.naive.coef,
            "coef_debiased": state.naive.coef if state.debiased is None else state.debiased,
            "standard_error": self._errors(state),  # of all coefficients, and of the intercept
            "n_rounds": state.round,
            "n_machines": state.comm.size,
            "n_rows": state.n,
            "selected": np.zeros(state.shard.n_features, dtype=bool) if state.selected is None else state.selected,
            "has_threshold_held": state.has_threshold_held,
            "obstacle": OBSTACLES.get(state.obstacle, ""),
            "pilot_certificate": state.pilot,
        }
        model = self._model(state)
        return Separator(model.coef, model.intercept, report)

    @staticmethod
    def _model(state: State) -> Estimate:
        """What all machines have; before the first round that is the average."""
        return state.at if state.round else state.naive

    def _own_model(self, inputs: Inputs, warm: Warm) -> ColumnState:
        """The 1-norm SVM of this machine; if time runs out, on all machines where it starts."""
        try:
            with uneven(np.inf):
                return solved(inputs, self.tol, self.max_iter, warm)
        except TimeIsUp:
            return solved(inputs, self.tol, 0)

    def _errors(self, state: State) -> np.ndarray:
        """Standard errors; infinite before the first round."""
        if state.standard_error is not None:
            return state.standard_error
        return np.full(state.shard.n_features + (state.problem.fit_intercept and not self._is_shared(state)), np.inf)

    def _is_shared(self, state: State) -> bool:
        return self.shares_inverse and state.comm.size > 1

    @staticmethod
    def _curvature(state: State, margins: np.ndarray) -> Curvature | None:
        """The Hessian of this machine's rows; None if they say nothing of it, or not enough for the kept features."""
        n_kept = int(np.count_nonzero(state.at.coef))
        if n_kept == 0:
            return None
        try:
            h = debiasing.bandwidth(margins, state.shard.weight)
            found = debiasing.curvature(state.shard, margins, h, state.problem.fit_intercept)
        except ValueError:
            return None
        return found if found.n_margins > min(n_kept, _MAX_REFITTED) else None

    def _blind(self, state: State, obstacle: int) -> State:
        """The end: what was known before the round, and that nothing is known of its errors."""
        has_intercept = state.problem.fit_intercept and not self._is_shared(state)
        unknown = np.full(state.shard.n_features + has_intercept, np.inf)
        state = replace(state, round=self.rounds, obstacle=obstacle, standard_error=unknown)
        if obstacle == _SEPARABLE:  # a penalty is what makes a model of separable classes
            state = replace(state, at=state.naive)
        if state.debiased is None:
            none = np.zeros(state.shard.n_features, dtype=bool)
            return replace(state, debiased=state.naive.coef, at=state.naive, selected=none)
        return state

    def _no_worse(self, state: State, found: Estimate) -> State:
        """At what a round found, unless it fits all rows worse than the 1-norm SVMs that it began with.

        Then its features are fitted anew, or those of the 1-norm SVMs if they fit clearly better.
        """
        state, naive = replace(state, at=found), state.naive
        if found.loss <= naive.loss:
            return replace(state, has_threshold_held=True)
        limit = (1 + _PRICE_OF_SMOOTHNESS) * naive.loss
        of_average = self._refitted(replace(state, at=naive))[0].at
        if of_average.loss > limit:
            of_average = self._everywhere(state, naive.coef, naive.intercept)
        of_found = self._refitted(state)[0].at
        # A feature of noise lowers the loss by about log(p) / 2n.
        n_fewer = max(0, int(np.count_nonzero(of_average.coef)) - int(np.count_nonzero(found.coef)))
        noise = n_fewer * math.log(max(len(found.coef), 2)) / (2 * state.n)
        if of_found.loss <= min(limit, of_average.loss + min(noise, _PRICE_OF_SPARSITY * of_average.loss)):
            return replace(state, at=of_found, has_threshold_held=True)
        return replace(state, at=of_average, has_threshold_held=False)

    def _refitted(self, state: State) -> tuple[State, bool]:
        """The coefficients that a round begins with, without a penalty, on all rows; as they are if they are many.

        Also whether such a fit exists, as far as that is known.
        """
        at, fit_intercept, is_fitted = state.at, state.problem.fit_intercept, True
        coef, intercept = at.coef, at.intercept
        if self._can_be_refitted(state):
            beta, is_fitted = refit(state.shard, at.beta(fit_intercept), fit_intercept, state.comm.allreduce)
            coef, intercept = (beta[:-1], float(beta[-1])) if fit_intercept else (beta, 0.0)
        return replace(state, at=self._everywhere(state, coef, intercept)), is_fitted

    @staticmethod
    def _can_be_refitted(state: State) -> bool:
        n_kept = np.count_nonzero(state.at.beta(state.problem.fit_intercept))
        return bool(n_kept <= min(_MAX_REFITTED, state.n / _ROWS_PER_REFITTED))

    def _certified(self, state: State) -> Certificate:
        fit_intercept, model = state.problem.fit_intercept, self._model(state)
        is_small = int(np.count_nonzero(model.coef)) <= _MAX_REFITTED
        beta, total = model.beta(fit_intercept), state.comm.allreduce
        return certified(state.shard, beta, fit_intercept, total, bounds_below=is_small)

    def _inverse(self, at: Curvature, rows: np.ndarray) -> sp.csr_matrix:
        """Rows of the inverse of the Hessian, scaled and its intercept profiled out."""
        c = debiasing.inverse_constraint(len(at.scale), at.n_effective, self.constraint)
        make = scio_rows if self.inverse == "scio" else clime_rows
        with uneven(np.inf):
            return make(at.correlation, rows, c).rescaled()

    def _step(self, state: State, curvature: Curvature, margins: np.ndarray) -> _Step:
        """Every machine steps by its own inverse; the average of all, and its standard errors, the intercept's last."""
        fit_intercept, p, at = state.problem.fit_intercept, state.shard.n_features, state.at
        rows = self._inverse(curvature, np.arange(p))
        theta = debiasing.full_inverse(rows, curvature, at.coef != 0)
        ahead = debiasing.one_step(at.beta(fit_intercept), at.score[: p + fit_intercept], theta)
        sums = debiasing.variance_sums(state.shard, margins, theta, fit_intercept)
        # A feature that does not vary near the margin of some machine is known from the others alone.
        has_row = np.diff(theta.indptr) > 0
        shares = state.comm.allreduce(state.share * has_row)
        part = np.where(shares > 0, shares, 1.0)
        debiased = state.comm.allreduce(np.where(has_row | (shares == 0), state.share * ahead, 0.0)) / part
        return debiased[:p], debiasing.standard_errors(state.comm.allreduce(sums) / part, state.n)

    def _step_of_a_share(self, state: State, curvature: Curvature, margins: np.ndarray) -> _Step:
        """Every machine makes a part of the inverse and steps there, for all; errors of coefficients only."""
        comm, fit_intercept, p = state.comm, state.problem.fit_intercept, state.shard.n_features
        mine = np.arange(p * comm.rank // comm.size, p * (comm.rank + 1) // comm.size)
        theta = debiasing.unscaled(self._inverse(curvature, mine), curvature, mine)
        if fit_intercept:
            theta = sp.hstack([theta, -(theta @ curvature.center)[:, None]], format="csr")
        start, score = np.split(comm.allreduce(state.share * np.append(state.at.coef, state.at.score)), [p])
        ahead, sums = np.zeros((2, p))
        ahead[mine] = theta @ score[: p + fit_intercept]
        # The rows of this machine stand for those of all.
        sums[mine] = debiasing.variance_sums(state.shard, margins, theta, fit_intercept) / state.share
        ahead, sums = np.split(comm.allreduce(np.append(ahead, sums)), 2)
        return start + ahead, debiasing.standard_errors(sums, state.n)

    def _thresholded(self, state: State, debiased: np.ndarray, error: np.ndarray) -> np.ndarray:
        if self.threshold == "z":
            return debiasing.z_threshold(debiased, error[: len(debiased)])
        if self.threshold == "paper":
            return debiasing.count_threshold(debiased, state.n_kept)
        return debiased

    def _everywhere(self, state: State, coef: np.ndarray, intercept: float) -> Estimate:
        """A model that all machines have, with score and loss of all rows there."""
        margins = debiasing.margins_of(state.shard, np.append(coef, intercept), True)
        sums = debiasing.score_sums(state.shard, margins, True)
        if not state.problem.fit_intercept:
            sums[-1] = 0.0
        *score, loss = state.comm.allreduce(np.append(sums, debiasing.hinge_sum(state.shard, margins))) / state.n
        return Estimate(coef, intercept, np.array(score), float(loss))

    @staticmethod
    def _refuse_one_class(shard: Shard, comm: Communicator) -> None:
        """Raise ValueError on all machines if the rows of some are of one class only."""
        unable = np.zeros(comm.size)
        unable[comm.rank] = not all(shard.weight[shard.y == label].sum() > 0 for label in (-1.0, 1.0))
        machines = np.flatnonzero(comm.allreduce(unable)).tolist()
        if machines:
            raise ValueError(
                f"Of {comm.size} machine(s), {machines} cannot estimate anything by themselves: their rows are of one "
                "class only. Shuffle the rows, or use fewer machines."
            )

    @staticmethod
    def _worst(comm: Communicator, own: Certificate) -> Certificate:
        relative = np.full(comm.size, -1.0)
        relative[comm.rank] = own.relative
        worst = int(np.argmax(comm.allreduce(relative, "max")))
        bounds = np.array(own) if comm.rank == worst else np.full(2, -np.inf)
        return Certificate(*map(float, comm.allreduce(bounds, "max")))


def _refuse_large_hessian(n_features: int) -> None:
    """Raise ValueError if the Hessian and the matrix that it is summed up in take over half of the memory."""
    needed, present = 2 * 8 * n_features**2, _memory_bytes()
    if needed > present / 2:
        raise ValueError(
            f"The Hessian of {n_features:,} features takes {needed / 2**30:.3g} GiB, more than half of the "
            f"{present / 2**30:.3g} GiB of memory of this machine. Use at most {math.isqrt(present // 32):,} features, "
            "which SparseSVC with SelectFromModel can select, or SparseSVC itself, which gives no intervals."
        )


def _memory_bytes() -> int:
    """The memory of this machine; 16 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 16 << 30
