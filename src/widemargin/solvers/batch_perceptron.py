"""The kernel SVM by the Kernelized Stochastic Batch Perceptron: few kernel evaluations, compact models, good early.

The slack-constrained SVM (:mod:`widemargin.problems.slack_constrained`) is maximised over the unit ball by stochastic
supergradient ascent. The responses c_i = y_i <w, phi_i> of all rows are kept; water filling over them gives p*, the
distribution that the rows of a step are drawn from. In the paper's order (Section 3), with the library's own names:

    repeat   p* = water filling over c                           Section 3.2; one group per class with an intercept, 3.6
             draw rows from p*, half of them in each class with an intercept
             w <- w + step * mean of y_i phi_i over the drawn    the paper draws one row
             w <- w / max(1, ||w||)
             c <- c + ..., by one kernel row for each drawn row
    return   the average of all w, weighted by t

Beyond the paper: mini-batches, weights that grow with t, a start on a subset of the rows, rows held out to tell when to
stop, an upper bound, and C in the place of the slack (the level is then that of the best scale along w). On several
ranks each holds the responses of its rows; drawn rows are sent to all ranks, and the lowest responses to rank 0.

[1] Cotter, Shalev-Shwartz, Srebro: The Kernelized Stochastic Batch Perceptron, ICML 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.kernels.cache import RowCache
from widemargin.kernels.points import Points
from widemargin.pauses import TimeIsUp, is_time_up
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.protocol import Certificate
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.rounding import UNIT, gamma
from widemargin.solvers._kernel_ranks import (
    ResponseSums,
    Summed,
    balanced,
    expansion,
    largest_only,
    reduced,
    responses,
    row_lengths,
    share,
    share_points,
    spread,
)
from widemargin.solvers._water_filling import WaterFilling
from widemargin.solvers.models import KernelModel
from widemargin.solvers.protocol import Inputs, Solver, Warm

_BATCH = 128
_HELD_OUT_SHARE, _MAX_HELD_OUT = 0.1, 10_000  # of the rows: those that tell when to stop
_SUBSET_STRIDE, _MIN_SUBSET = 8, 25_000  # the first rows worked on: one in so many, if that leaves so many
_VALUES_PER_SWEEP, _PAIRS_PER_SWEEP = 2e8, 0.02  # kernel values of a sweep: so many, or this share of all pairs of rows
# A plateau: while the number of kernel values grew by a factor, the loss on rows held out fell by less than a share of
# it, or, for a larger factor, the error did not fall; and this over some looks, many while all rows are given the
# larger class, as early models of unequal classes do.
_MIN_LOSS_DECREASE, _LOSS_PATIENCE, _ERROR_PATIENCE = 0.005, 1.5, 2.5
_MIN_LOOKS, _MIN_LOOKS_AT_ONE_CLASS = 6, 60
_PREFETCHED = 64  # rows of lowest response computed together, where a step alone needs few
_WARM_STEP = 100  # a warm start goes on with steps as small as after so many
_MIN_STEPS = 8  # of a sweep


@dataclass
class _Ascent:
    """The iterate and the average of all iterates, on the rows at work."""

    rows: Any
    cache: RowCache
    number: np.ndarray  # of each row at work among those of this rank
    y: np.ndarray
    filling: WaterFilling
    n_everywhere: float  # rows at work on all ranks
    alpha: np.ndarray
    response: np.ndarray  # c
    mean_alpha: np.ndarray
    mean_response: np.ndarray
    squared_norm: float = 0.0
    n_averaged: int = 0

    def average(self) -> None:
        self.n_averaged += 1
        part = 2 / (self.n_averaged + 1)
        self.mean_alpha += part * (self.alpha - self.mean_alpha)
        self.mean_response += part * (self.response - self.mean_response)


@dataclass
class State:
    problem: SlackConstrained
    objective: HingeL2 | None  # where C is given
    shard: Shard
    comm: Communicator
    rng: Generator  # of this rank alone
    radius: float  # of the rows in the kernel's space
    weight: np.ndarray  # of the rows that are trained on, which stand for all
    held_out: np.ndarray  # weight of the rows that are not
    is_subset: bool  # whether the ascent works on a subset of the rows
    ascent: _Ascent
    step: int = 0
    looks: int = 0
    values: float = 0.0  # kernel values of all ranks
    error: float = math.nan  # on the rows held out
    best_error: float = math.inf  # the least error on the rows held out, and after how many kernel values
    best_error_values: float = 0.0
    best_loss: float = math.inf  # the same of the loss
    best_values: float = 0.0
    is_flat: bool = False
    is_all_trained_on: bool = False
    confirmed: tuple[np.ndarray, np.ndarray] | None = None  # alpha and responses of all rows, in float64
    certified: tuple[Certificate, np.ndarray, float, float, dict[str, float]] | None = None


@dataclass(frozen=True)
class BatchPerceptron(Solver[State, KernelModel]):
    """Draws ``batch_size`` rows a step, holds ``validation_fraction`` out, keeps ``max_support`` rows at the end."""

    solves = (HingeL2, SlackConstrained)

    batch_size: int | Literal["auto"] = "auto"
    max_support: int | None = None
    validation_fraction: float | None = None
    cache_bytes: int = 200 << 20

    def start(
        self, problem: HingeL2 | SlackConstrained, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None
    ) -> State:
        """``warm`` has a coefficient for each row of all ranks; its length in the kernel's space does not matter."""
        objective = problem if isinstance(problem, HingeL2) else None
        if isinstance(problem, HingeL2):
            problem = SlackConstrained(C=problem.C, fit_intercept=problem.fit_intercept)
        own = np.random.default_rng([int(rng.integers(2**31)), comm.rank])
        held_out = self._hold_out(shard, comm, own)
        train = np.where(held_out > 0, 0.0, shard.weight)
        kept, everything, n_rows = comm.allreduce(np.array([train.sum(), shard.weight.sum(), float(shard.n_rows)]))
        diagonal = shard.kernel.diagonal_of(shard.kernel.points(np.arange(shard.n_rows)))
        radius = math.sqrt(comm.allreduce(np.array([diagonal.max(initial=0.0)]), "max")[0]) or 1.0
        is_subset = warm is None and n_rows >= _SUBSET_STRIDE * _MIN_SUBSET
        chosen = np.arange(shard.n_rows)
        if is_subset:
            classes = [np.flatnonzero(shard.y == label) for label in (-1.0, 1.0)]
            drawn = [own.choice(rows, -(-len(rows) // _SUBSET_STRIDE), replace=False) for rows in classes]
            chosen = np.sort(np.concatenate(drawn))
        weight = train * (everything / kept)
        ascent = self._ascent(Inputs(problem, shard, comm, own), weight, chosen)
        state = State(problem, objective, shard, comm, own, radius, weight, held_out, is_subset, ascent)
        state.is_all_trained_on = bool(kept == everything)
        if warm is not None:
            mine = np.where(warm[shard.kernel.numbers] * shard.y > 0, warm[shard.kernel.numbers], 0.0)
            # All that is drawn later is balanced.
            self._begin_at(state, np.abs(balanced(comm, mine) if problem.fit_intercept else mine))
        return state

    def sweep(self, state: State) -> State:
        """Steps until enough kernel values were computed; then a look at the rows held out."""
        if state.is_flat and state.is_subset:
            self._widen(state)
        budget = state.values + min(_VALUES_PER_SWEEP, _PAIRS_PER_SWEEP * state.ascent.n_everywhere**2)
        steps = state.step + _MIN_STEPS
        while state.values < budget or state.step < steps:
            before = state.values
            self._step(state)
            if is_time_up((state.values - before) * (state.shard.kernel.X.shape[1] / 4 + 8)):
                break
        self._look(state)
        return state

    def certify(self, state: State) -> Certificate | None:
        """Bounds for all rows from the average; None while the ascent works on a subset."""
        if state.is_subset:
            return None
        return self._bounds(state, state.ascent.mean_alpha, state.ascent.mean_response)

    def confirm(self, state: State, latest: Certificate | None) -> Certificate:
        rows, y, alpha = state.shard.kernel, state.shard.y, self._of_all_rows(state)
        points, coef = expansion(state.comm, rows, alpha * y)
        if not len(points):
            return self.unconfirmed(state, latest)
        state.confirmed = alpha, y * responses(state.comm, rows, points, coef, exact=True)
        return self._bounds(state, *state.confirmed, is_exact=True)

    def unconfirmed(self, state: State, latest: Certificate | None) -> Certificate:
        ascent = state.ascent
        squared = float(state.comm.allreduce(np.array([ascent.mean_alpha @ ascent.mean_response]))[0])
        return self._crude_bounds(state, self._of_all_rows(state), *self._model_along(state, squared))

    def _crude_bounds(self, state: State, alpha: np.ndarray, scale: float, intercept: float) -> Certificate:
        """Bounds that need no kernel values between rows, since |k(x, z)| <= ||phi(x)|| ||phi(z)||."""
        shard, comm, lengths = state.shard, state.comm, row_lengths(state.shard.kernel)
        sums = [alpha @ lengths, shard.weight @ lengths, *np.bincount(shard.y < 0, shard.weight, 2)]
        mass, lengths_of_all, *of_classes = map(float, comm.allreduce(np.array(sums)))
        size, total = scale * mass, sum(of_classes)
        objective, is_positive = state.objective, shard.kernel.kernel.is_positive
        if objective is not None:
            loss = total * (1 + abs(intercept)) + size * lengths_of_all
            primal = objective.primal_value(loss, size**2) * (1 + 1e-9)  # far more than rounding
            certificate = Certificate(primal, 0.0 if is_positive else -math.inf)
            report = {"C": objective.C, "slack": objective.implied_slack(primal, size, total)}
        else:
            slack, radius = state.problem.slack or 0.0, state.radius * (1 + 1e-9)
            spread_out = 0.5 * total / min(of_classes) if state.problem.fit_intercept else 1.0  # even masses
            certificate = Certificate(radius + slack * spread_out if is_positive else math.inf, -radius)
            report = {"C": math.nan, "slack": slack}
        state.certified = (certificate, alpha, scale, intercept, report)
        return certificate

    def values_to_confirm(self, state: State) -> float:
        return float(state.shard.n_rows) * np.count_nonzero(state.ascent.mean_alpha) * state.comm.size

    def compact(self, state: State) -> Certificate | None:
        if self.max_support is None or state.certified is None:
            return None
        rows, y, comm = state.shard.kernel, state.shard.y, state.comm
        if state.confirmed is None:
            _, alpha, scale, intercept, _ = state.certified
            return self._crude_bounds(state, largest_only(comm, alpha, self.max_support), scale, intercept)
        alpha, response = state.confirmed
        small = reduced(comm, rows, alpha * y, y * response, self.max_support, np.random.default_rng(comm.rank))
        if small is None:
            return None
        before = state.certified[0]
        points, coef = expansion(comm, rows, small)
        try:
            state.confirmed = small * y, y * responses(comm, rows, points, coef, exact=True)
            after = self._bounds(state, *state.confirmed, is_exact=True)
        except TimeIsUp:
            state.confirmed = None
            after = self._crude_bounds(state, small * y, *state.certified[2:4])
        # The model has a new objective or level; the bound from the other side stays.
        return before._replace(primal=after.primal) if state.objective is not None else before._replace(dual=after.dual)

    def stop_reason(self, state: State) -> str | None:
        return "plateau" if state.is_flat and not state.is_subset else None

    def diagnostics(self, state: State) -> dict[str, float]:
        support = state.comm.allreduce(np.array([float(np.count_nonzero(state.ascent.mean_alpha))]))[0]
        # Bounds of averaged responses are estimates.
        return {"validation_error": state.error, "n_support": float(support), "steps": state.step, "is_confirmed": 0.0}

    def warm_state(self, state: State) -> np.ndarray:
        return spread(state.comm, state.shard.kernel, self._of_all_rows(state) * state.shard.y)

    def extract(self, state: State) -> KernelModel:
        if state.certified is None:
            self.confirm(state, None)
        assert state.certified is not None
        _, alpha, scale, intercept, report = state.certified
        points, coef = expansion(state.comm, state.shard.kernel, scale * alpha * state.shard.y)
        return KernelModel(state.shard.kernel.kernel, points, coef, intercept, report)

    def scores(self, state: State) -> np.ndarray | None:
        if state.confirmed is None or state.certified is None:
            return None
        _, _, scale, intercept, _ = state.certified
        return np.asarray(scale * state.shard.y * state.confirmed[1] + intercept)

    def _hold_out(self, shard: Shard, comm: Communicator, rng: Generator) -> np.ndarray:
        """The weight of rows that are held out, 0 for others; each class keeps most of its rows."""
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        fraction = self.validation_fraction
        if fraction is None:
            fraction = min(_HELD_OUT_SHARE, _MAX_HELD_OUT / n_rows)
        held_out = np.zeros(shard.n_rows)
        for label in (-1.0, 1.0):
            mine = np.flatnonzero(shard.y == label)
            few = rng.choice(mine, int(fraction * len(mine)), replace=False)
            held_out[few] = shard.weight[few]
        return held_out

    def _ascent(self, inputs: Inputs, weight: np.ndarray, chosen: np.ndarray) -> _Ascent:
        """An ascent at 0 on the chosen rows, with weights that add up to those of all rows."""
        problem, shard, comm, rng = inputs
        here, everywhere, n_rows = comm.allreduce(np.array([weight[chosen].sum(), weight.sum(), float(len(chosen))]))
        rows = shard.kernel if len(chosen) == shard.n_rows else shard.kernel.only(chosen)
        y, cache = shard.y[chosen], rows.cache(self.cache_bytes)
        filling = WaterFilling(problem, y, weight[chosen] * (everywhere / here), comm, rng)
        return _Ascent(rows, cache, chosen, y, filling, float(n_rows), *np.zeros((4, len(chosen))))

    def _of_all_rows(self, state: State) -> np.ndarray:
        alpha = np.zeros(state.shard.n_rows)
        alpha[state.ascent.number] = state.ascent.mean_alpha
        return alpha

    def _widen(self, state: State) -> None:
        """Go on with all rows, from the average on the subset."""
        alpha = self._of_all_rows(state)
        state.is_subset, state.is_flat, state.looks = False, False, 0
        state.best_loss = state.best_error = math.inf
        inputs = Inputs(state.problem, state.shard, state.comm, state.rng)
        state.ascent = self._ascent(inputs, state.weight, np.arange(state.shard.n_rows))
        self._begin_at(state, alpha)

    def _begin_at(self, state: State, alpha: np.ndarray) -> None:
        """Move the iterate to alpha; one from another run gets the norm that ``_WARM_STEP`` steps would give it."""
        ascent = state.ascent
        points, coef = expansion(state.comm, ascent.rows, alpha * ascent.y)
        if not len(points):
            return
        response = ascent.y * responses(state.comm, ascent.rows, points, coef)
        state.values += len(points) * ascent.n_everywhere
        squared = float(state.comm.allreduce(np.array([alpha @ response]))[0])
        if squared <= 0:
            return
        scale = 1.0
        if state.step == 0:
            state.step = _WARM_STEP
            norm = math.sqrt(squared)
            # At a unit vector, steps are about as long as the level is high.
            level = ascent.filling.level(response / norm, 1.0).level
            scale = min(1.0, 2 * math.sqrt(state.step) * level / state.radius if level > 0 else 1.0) / norm
        ascent.alpha, ascent.response, ascent.squared_norm = scale * alpha, scale * response, scale**2 * squared
        ascent.mean_alpha, ascent.mean_response = ascent.alpha.copy(), ascent.response.copy()

    def _step(self, state: State) -> None:
        ascent, comm = state.ascent, state.comm
        n_drawn = max(1 + state.problem.fit_intercept, _BATCH if self.batch_size == "auto" else self.batch_size)
        *_, drawn, part = ascent.filling.draw(ascent.response, ascent.squared_norm, n_drawn)
        state.step += 1
        step = part / (state.radius * math.sqrt(state.step))
        points = share_points(comm, ascent.rows.points(drawn))
        self._prefetch(state, points)
        move = ascent.y * ascent.cache.times(points, share(comm, step * ascent.y[drawn]))
        # ||w + u||^2 = ||w||^2 + <w, u> + <w + u, u>
        change = step @ (2 * ascent.response[drawn] + move[drawn])
        ascent.squared_norm += float(comm.allreduce(np.array([change]))[0])
        ascent.response += move
        ascent.alpha[drawn] += step
        if ascent.squared_norm > 1:
            shrink = 1 / math.sqrt(ascent.squared_norm)
            ascent.response *= shrink
            ascent.alpha *= shrink
            ascent.squared_norm = 1.0
        ascent.average()
        state.values += len(points) * ascent.n_everywhere

    def _prefetch(self, state: State, points: Points) -> None:
        """Where a step needs few kernel rows, compute likely next ones with them: many cost little more than few."""
        ascent = state.ascent
        if state.comm.size > 1 or len(points) > _PREFETCHED // 8 or ascent.cache.n_slots < 4 * _PREFETCHED:
            return
        if all(number in ascent.cache for number in points.numbers.tolist()):
            return
        room = _PREFETCHED - len(points)
        height = np.where(ascent.filling.weight > 0, ascent.response, np.inf)
        lowest = np.argpartition(height, min(4 * room, len(height) - 1))[: 4 * room]
        lowest = lowest[np.argsort(height[lowest])]
        numbers = ascent.rows.numbers[lowest].tolist()
        new = [row for row, number in zip(lowest.tolist(), numbers, strict=True) if number not in ascent.cache]
        ascent.cache.keep(ascent.rows.points(np.sort(np.array(new[:room], dtype=np.intp))))

    def _at_level(self, filling: WaterFilling, response: np.ndarray, squared: float) -> tuple[float, float]:
        """Scale and intercept of the model along w for which rows at the water level have the margin 1."""
        norm = math.sqrt(max(squared, 0.0)) or 1.0
        filled = filling.level(response / norm, 1.0)  # the slack is that of a unit vector
        scale = 1 / filled.level if 0 < filled.level < math.inf else 1.0
        return scale / norm, scale * filled.bias

    def _model_along(self, state: State, squared: float) -> tuple[float, float]:
        """Scale and intercept of the model along the average, by the rows at work."""
        ascent, reduce = state.ascent, state.comm.allreduce
        if state.objective is None:
            return self._at_level(ascent.filling, ascent.mean_response, squared)
        y, weight = ascent.y, ascent.filling.weight
        point = state.objective.primal_point(y * ascent.mean_response, y, weight, squared, reduce, precision=1e-4)
        return point.scale, point.intercept

    def _look(self, state: State) -> None:
        """The error of the average on rows held out, and whether it has stopped falling."""
        ascent, comm = state.ascent, state.comm
        squared = float(comm.allreduce(np.array([ascent.mean_alpha @ ascent.mean_response]))[0])
        held = state.held_out[ascent.number]
        if state.is_all_trained_on and self.validation_fraction is None:
            held = ascent.filling.weight  # too few rows to hold any out
        scale, intercept = self._model_along(state, squared)
        margin = scale * ascent.mean_response + ascent.y * intercept
        hinge, is_positive = np.maximum(0.0, 1 - margin), margin * ascent.y > 0
        sums = [held @ (margin <= 0), held @ hinge, held @ is_positive, held.sum()]
        wrong, loss, positive, total = comm.allreduce(np.array(sums))
        if scale == 0:
            return  # the best model along w is 0 so far
        state.looks += 1
        if total == 0:
            state.is_flat = state.is_subset and state.looks >= 2 * _MIN_LOOKS
            return
        state.error = float(wrong / total)
        if state.error < state.best_error:
            state.best_error, state.best_error_values = state.error, state.values
        if loss / total < (1 - _MIN_LOSS_DECREASE) * state.best_loss:
            state.best_loss, state.best_values = float(loss / total), state.values
        is_loss_flat = state.values > _LOSS_PATIENCE * state.best_values
        is_error_flat = state.values > _ERROR_PATIENCE * state.best_error_values
        min_looks = _MIN_LOOKS if 0 < positive < total else _MIN_LOOKS_AT_ONE_CLASS
        state.is_flat = state.looks >= min_looks and (is_loss_flat or is_error_flat)

    def _bounds(self, state: State, alpha: np.ndarray, response: np.ndarray, *, is_exact: bool = False) -> Certificate:
        """Bounds on the optimum for all rows, held out or not; with ``is_exact`` they allow for rounding in float64."""
        shard, comm = state.shard, state.comm
        present = alpha > 0
        steepest = float(np.max(alpha[present] / shard.weight[present], initial=0.0))
        y = shard.y
        summed = Summed.of(comm, shard.kernel, alpha) if is_exact else None
        sums = ResponseSums.of(comm, shard.kernel, y * alpha, y * response, shard.weight, summed)
        mass, size = sums.feasible(state.problem.fit_intercept, 0.0 if summed is None else summed.mass)
        squared, weight = sums.squared_norm, sums.weight
        steepest = float(comm.allreduce(np.array([steepest]), "max")[0])
        if state.objective is not None:
            objective, rounding = state.objective, None if summed is None else sums.rounding
            data = (y * response, y, shard.weight, squared, comm.allreduce)
            point = objective.primal_point(*data, precision=1e-6, rounding=rounding)
            # Within their caps also if the factor is rounded up.
            factor = objective.best_factor(mass, size, objective.C / steepest * (1 - 4 * UNIT)) if steepest > 0 else 0.0
            certificate = Certificate(point.value, objective.dual_value(factor * mass, factor**2 * size))
            scale, intercept = point.scale, point.intercept
            slack = objective.implied_slack(point.value, scale * math.sqrt(squared), weight)
            report = {"C": objective.C, "slack": slack}
        else:
            problem = state.problem
            assert problem.slack is not None
            everything = WaterFilling(problem, shard.y, shard.weight, comm, state.rng)
            # Divided by a norm that rounding leaves open, responses are as low as they may be.
            least, most = math.sqrt(max(squared - 2 * sums.norm_error, 0.0)), math.sqrt(squared) or 1.0
            lowest = response - sums.score_error
            lowest = lowest / np.where(lowest < 0, least or 1.0, most)
            filled = everything.level(lowest, 1.0)
            volume, of_sum = weight * problem.slack, gamma(sums.n_rows + 16) if is_exact else 0.0
            upper = problem.upper_bound(mass, size, steepest, volume) * (1 + of_sum)
            largest = float(comm.allreduce(np.array([np.abs(lowest).max(initial=0.0)]), "max")[0])
            level = filled.level - of_sum * (abs(filled.level) + largest)
            certificate = Certificate(upper, problem.dual_value(level, 1.0 if least > 0 else 0.0))
            # The threshold is that of the rows trained on: held-out rows of very low response would decide it.
            trained_on = WaterFilling(problem, shard.y, state.weight, comm, state.rng)
            scale, intercept = self._at_level(trained_on, response, squared)
            report = {"C": problem.implied_C(filled.level, filled.cover, volume, 1.0), "slack": problem.slack}
        if not shard.kernel.kernel.is_positive:  # not an inner product: masses bound nothing
            is_loss = state.objective is not None
            certificate = certificate._replace(dual=-math.inf) if is_loss else certificate._replace(primal=math.inf)
        state.certified = (certificate, alpha.copy(), scale, intercept, report)
        return certificate
