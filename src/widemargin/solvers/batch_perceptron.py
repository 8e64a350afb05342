"""The Kernelized Stochastic Batch Perceptron: few kernel evaluations, compact models, good early.

The slack-constrained SVM (:mod:`widemargin.problems.slack_constrained`) is maximised over the unit ball by stochastic
supergradient ascent. The responses c_i = y_i <w, phi_i> of all rows are kept; water poured over them gives p*, the
distribution of the rows that matter now. In the paper's order (Section 3), with the library's own names:

    repeat   p* = the water over c                               Section 3.2; two basins with an intercept, Section 3.6
             draw rows from p*, half of them in each class with an intercept
             w <- w + step * mean of y_i phi_i over the drawn    the paper draws one row
             w <- w / max(1, ||w||)
             c <- c + ..., by one kernel row for each drawn row
    return   the average of all w, weighted by t

Beyond the paper: mini-batches, weights that grow with t, a start on a part of the rows, rows held out to tell when to
stop, a bound from above, and C in the place of the slack (the level is then that of the best scale along w). On several
ranks each holds the responses of its rows; drawn rows travel, and the lowest responses to where the water is poured.

[1] Cotter, Shalev-Shwartz, Srebro: The Kernelized Stochastic Batch Perceptron, ICML 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin.comm._protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.kernels.cache import RowCache
from widemargin.kernels.points import Points
from widemargin.problems._protocol import Certificate
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.slack_constrained import SlackConstrained, Water
from widemargin.solvers._kernel_ranks import (
    KernelModel,
    balanced,
    expansion,
    place_among_ranks,
    reduced,
    share,
    share_points,
    spread,
)

_BATCH = 128
_HELD_OUT, _MOST_HELD_OUT = 0.1, 10_000  # share of the rows, and how many, that tell when to stop
_PART, _LEAST_PART = 8, 25_000  # the start on a part of the rows: one in so many, and at least this many
_VALUES_PER_SWEEP, _PART_PER_SWEEP = 2e8, 0.02  # kernel values between two looks: so many, or this part of all pairs
# A plateau: while the number of kernel values grew by a factor, the loss on rows held out, which is smooth, fell by
# less than a part of it, or, for a larger factor, the error did not fall at all; and both over some sweeps.
_BETTER, _PATIENCE, _PATIENCE_WITH_ERROR, _LEAST_LOOKS = 0.005, 1.5, 2.5, 6
_PREFETCHED = 64  # rows of lowest response computed together, where a step alone needs few
_STEPS_BEHIND = 100  # a start elsewhere than at 0 goes on with steps as small as after so many
_LEAST_STEPS = 8  # between two looks
_FAR = 1e300


class _Surface(NamedTuple):
    """Water over the responses of all ranks: its level and bias, the mass it covers, and rows drawn from p*."""

    level: float
    bias: float
    cover: float
    drawn: np.ndarray  # numbers of rows of this rank
    part: np.ndarray  # how often each was drawn, as a part of the batch


@dataclass
class _Ascent:
    """The iterate and the average of all iterates, on the rows that are worked on."""

    rows: Any
    cache: RowCache
    number: np.ndarray  # of each of these rows among those of this rank
    y: np.ndarray
    weight: np.ndarray
    n_everywhere: float  # how many they are on all ranks
    alpha: np.ndarray
    response: np.ndarray  # c
    mean_alpha: np.ndarray
    mean_response: np.ndarray
    squared_norm: float = 0.0
    n_averaged: int = 0
    water: Water | None = None
    n_sent: int = 1 << 60  # how many of the lowest responses of each class sufficed last time

    def average(self) -> None:
        self.n_averaged += 1
        part = 2 / (self.n_averaged + 1)
        self.mean_alpha += part * (self.alpha - self.mean_alpha)
        self.mean_response += part * (self.response - self.mean_response)


@dataclass
class State:
    """Where a run stands on one rank."""

    problem: SlackConstrained
    objective: HingeL2 | None  # where C is given
    shard: Shard
    comm: Communicator
    rng: np.random.Generator  # drawn from on rank 0 only
    radius: float  # of the rows in the kernel's space
    weight: np.ndarray  # of the rows that are trained on, which stand for all
    held_out: np.ndarray  # weight of the rows that are not
    is_part: bool  # whether the ascent works on a part of the rows
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
class BatchPerceptron:
    """Draws ``batch_size`` rows a step, holds ``validation_fraction`` out, keeps ``max_support`` rows at the end."""

    batch_size: int | Literal["auto"] = "auto"
    max_support: int | None = None
    validation_fraction: float | None = None
    cache_bytes: int = 200 << 20

    def start(
        self,
        problem: HingeL2 | SlackConstrained,
        shard: Shard,
        comm: Communicator,
        rng: np.random.Generator,
        warm: np.ndarray | None,
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
        radius = float(comm.allreduce(np.array([diagonal.max(initial=0.0)]), "max")[0])
        is_part = warm is None and n_rows >= _PART * _LEAST_PART
        chosen = np.arange(shard.n_rows)
        if is_part:
            classes = [np.flatnonzero(shard.y == label) for label in (-1.0, 1.0)]
            chosen = np.sort(
                np.concatenate([own.choice(all_, -(-len(all_) // _PART), replace=False) for all_ in classes])
            )
        weight = train * (everything / kept)
        ascent = self._ascent(shard, comm, weight, chosen)
        state = State(problem, objective, shard, comm, rng, math.sqrt(radius) or 1.0, weight, held_out, is_part, ascent)
        state.is_all_trained_on = bool(kept == everything)
        if warm is not None:
            mine = np.where(warm[shard.kernel.numbers] * shard.y > 0, warm[shard.kernel.numbers], 0.0)
            # All that is drawn later is balanced.
            self._begin_at(state, np.abs(balanced(comm, mine) if problem.fit_intercept else mine))
        return state

    def sweep(self, state: State) -> State:
        """Steps until so many kernel values were asked for; then a look at the rows held out."""
        if state.is_flat and state.is_part:
            self._widen(state)
        budget = state.values + min(_VALUES_PER_SWEEP, _PART_PER_SWEEP * state.ascent.n_everywhere**2)
        steps = state.step + _LEAST_STEPS
        while state.values < budget or state.step < steps:
            self._step(state)
        self._look(state)
        return state

    def certify(self, state: State) -> Certificate | None:
        """Bounds for all rows from the average; None while a part of the rows is worked on."""
        if state.is_part:
            return None
        ascent = state.ascent
        return self._bounds(state, ascent.mean_alpha, ascent.mean_response)

    def confirm(self, state: State) -> Certificate:
        """Bounds of the average, with kernel values and responses computed anew in float64."""
        rows, y = state.shard.kernel, state.shard.y
        alpha = self._of_all_rows(state)
        points, coef = expansion(state.comm, rows, alpha * y)
        state.confirmed = alpha, y * rows.times(points, coef, exact=True)
        return self._bounds(state, *state.confirmed)

    def compact(self, state: State) -> Certificate | None:
        """A model of at most ``max_support`` rows near the average; it bounds the optimum from its side anew."""
        if self.max_support is None or state.confirmed is None or state.certified is None:
            return None
        rows, y, comm = state.shard.kernel, state.shard.y, state.comm
        alpha, response = state.confirmed
        small = reduced(comm, rows, alpha * y, y * response, self.max_support, np.random.default_rng(comm.rank))
        if small is None:
            return None
        before = state.certified[0]
        points, coef = expansion(comm, rows, small)
        after = self._bounds(state, small * y, y * rows.times(points, coef, exact=True))
        # A model bounds the optimum by its objective or level, masses by what no model can pass.
        return before._replace(primal=after.primal) if state.objective is not None else before._replace(dual=after.dual)

    def verdict(self, state: State) -> str | None:
        return "plateau" if state.is_flat and not state.is_part else None

    def diagnostics(self, state: State) -> dict[str, float]:
        """The error on rows held out, and the rows with a coefficient."""
        support = state.comm.allreduce(np.array([float(np.count_nonzero(state.ascent.mean_alpha))]))[0]
        return {"validation_error": state.error, "n_support": float(support), "steps": state.step}

    def direction(self, state: State) -> np.ndarray:
        return spread(state.comm, state.shard.kernel, self._of_all_rows(state) * state.shard.y)

    def extract(self, state: State) -> KernelModel:
        if state.certified is None:
            self.confirm(state)
        assert state.certified is not None
        _, alpha, scale, intercept, report = state.certified
        points, coef = expansion(state.comm, state.shard.kernel, scale * alpha * state.shard.y)
        return KernelModel(state.shard.kernel.kernel, points, coef, intercept, report)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _hold_out(self, shard: Shard, comm: Communicator, rng: np.random.Generator) -> np.ndarray:
        """The weight of the rows that are held out, 0 for the others; each class keeps most of its rows."""
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        fraction = self.validation_fraction
        if fraction is None:
            fraction = min(_HELD_OUT, _MOST_HELD_OUT / n_rows)
        held_out = np.zeros(shard.n_rows)
        for label in (-1.0, 1.0):
            mine = np.flatnonzero(shard.y == label)
            few = rng.choice(mine, int(fraction * len(mine)), replace=False)
            held_out[few] = shard.weight[few]
        return held_out

    def _ascent(self, shard: Shard, comm: Communicator, weight: np.ndarray, chosen: np.ndarray) -> _Ascent:
        """Nothing done yet on the chosen rows, which stand for all."""
        here, everywhere, n_rows = comm.allreduce(np.array([weight[chosen].sum(), weight.sum(), float(len(chosen))]))
        rows = shard.kernel if len(chosen) == shard.n_rows else shard.kernel.only(chosen)
        cache = RowCache(rows, self.cache_bytes)
        return _Ascent(
            rows,
            cache,
            chosen,
            shard.y[chosen],
            weight[chosen] * (everywhere / here),
            float(n_rows),
            *np.zeros((4, len(chosen))),
        )

    def _of_all_rows(self, state: State) -> np.ndarray:
        alpha = np.zeros(state.shard.n_rows)
        alpha[state.ascent.number] = state.ascent.mean_alpha
        return alpha

    def _widen(self, state: State) -> None:
        """Go on with all rows, from what the part has found."""
        alpha = self._of_all_rows(state)
        state.is_part, state.is_flat, state.looks = False, False, 0
        state.best_loss = state.best_error = math.inf
        state.ascent = self._ascent(state.shard, state.comm, state.weight, np.arange(state.shard.n_rows))
        self._begin_at(state, alpha)

    def _begin_at(self, state: State, alpha: np.ndarray) -> None:
        """Put the iterate there; one that is not from this run gets a length that this many steps would give it."""
        ascent = state.ascent
        points, coef = expansion(state.comm, ascent.rows, alpha * ascent.y)
        if not len(points):
            return
        response = ascent.y * ascent.rows.times(points, coef)
        state.values += len(points) * ascent.n_everywhere
        squared = float(state.comm.allreduce(np.array([alpha @ response]))[0])
        if squared <= 0:
            return
        scale = 1.0
        if state.step == 0:
            state.step = _STEPS_BEHIND
            norm = math.sqrt(squared)
            # Steps are about as long as the level is high, at a unit vector.
            level = self._pour(state, response / norm, 1.0).level
            scale = min(1.0, 2 * math.sqrt(state.step) * level / state.radius if level > 0 else 1.0) / norm
        ascent.alpha, ascent.response, ascent.squared_norm = scale * alpha, scale * response, scale**2 * squared
        ascent.mean_alpha, ascent.mean_response = ascent.alpha.copy(), ascent.response.copy()

    # -- one step ----------------------------------------------------------------------------------------------------

    def _step(self, state: State) -> None:
        ascent, comm = state.ascent, state.comm
        surface = self._pour(state, ascent.response, ascent.squared_norm, batch=self._batch(state))
        drawn, part = surface.drawn, surface.part
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

    def _batch(self, state: State) -> int:
        size = _BATCH if self.batch_size == "auto" else self.batch_size
        return max(2, size) if state.problem.fit_intercept else size

    def _prefetch(self, state: State, points: Points) -> None:
        """Where a step needs few rows, compute the likely next ones with them: many cost little more than few."""
        ascent = state.ascent
        if state.comm.size > 1 or len(points) > _PREFETCHED // 8 or ascent.cache.n_slots < 4 * _PREFETCHED:
            return
        if all(number in ascent.cache for number in points.numbers.tolist()):
            return
        room = _PREFETCHED - len(points)
        height = np.where(ascent.weight > 0, ascent.response, np.inf)
        lowest = np.argpartition(height, min(4 * room, len(height) - 1))[: 4 * room]
        lowest = lowest[np.argsort(height[lowest])]
        numbers = ascent.rows.points(lowest).numbers.tolist()
        new = [row for row, number in zip(lowest.tolist(), numbers, strict=True) if number not in ascent.cache]
        ascent.cache.keep(ascent.rows.points(np.sort(np.array(new[:room], dtype=np.intp))))

    # -- water -------------------------------------------------------------------------------------------------------

    def _pour(self, state: State, response: np.ndarray, squared_norm: float, batch: int = 0) -> _Surface:
        """Water over the responses of all ranks, and rows drawn from p*.

        With several ranks the lowest responses of each are brought together; what is not sent counts as far above, and
        more is sent where the water reaches up to it.
        """
        ascent, comm = state.ascent, state.comm
        if comm.size == 1:
            water = state.problem.water(response, ascent.y, ascent.weight, squared_norm, ascent.water)
            ascent.water = water
            drawn, part = self._draw(state, water.share, ascent.y, batch)
            return _Surface(water.level, water.bias, water.cover, drawn, part)
        while True:
            sent, packed, cuts = _lowest_of(response, ascent.y, ascent.weight, ascent.n_sent)
            place = place_among_ranks(comm, len(packed))
            gathered, all_cuts = comm.gather(packed.ravel()), comm.gather(cuts)
            answer = np.array([math.nan, 0.0, 0.0])
            if gathered is not None and all_cuts is not None:
                c, y, weight = np.concatenate(gathered).reshape(-1, 3).T
                water = state.problem.water(c, y, weight, squared_norm)
                edges = np.concatenate(all_cuts).reshape(-1, 2) + np.array([-water.bias, water.bias])
                if (edges > water.level).all() or np.isinf(edges).all():
                    drawn, part = self._draw(state, water.share, y, batch)
                    answer = np.concatenate([[water.level, water.bias, water.cover], drawn, part])
            answer = comm.broadcast(answer)
            if not math.isnan(answer[0]):
                break
            ascent.n_sent = 4 * ascent.n_sent
        drawn, part = answer[3:].reshape(2, -1)
        is_mine = (drawn >= place.start) & (drawn < place.stop)
        mine = sent[drawn[is_mine].astype(np.intp) - place.start]
        order = np.argsort(mine)
        covered = np.count_nonzero(response[sent[sent >= 0]] <= answer[0] + abs(answer[1]))
        ascent.n_sent = int(comm.allreduce(np.array([float(2 * covered + 64)]), "max")[0])
        level, bias, cover = map(float, answer[:3])
        return _Surface(level, bias, cover, mine[order], part[is_mine][order])

    def _draw(self, state: State, p: np.ndarray, y: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows drawn from p*, each once, and their parts of the batch; with an intercept half in each class."""
        if batch == 0:
            return np.empty(0, dtype=np.intp), np.empty(0)
        basins = [y > 0, y <= 0] if state.problem.fit_intercept else [np.ones(len(y), dtype=bool)]
        drawn, part = [], []
        for basin in basins:
            rows = np.flatnonzero(basin & (p > 0))
            mass = np.cumsum(p[rows])
            places = np.searchsorted(mass, state.rng.random(max(1, batch // len(basins))) * mass[-1])
            few, counts = np.unique(rows[np.minimum(places, len(rows) - 1)], return_counts=True)
            drawn.append(few)
            part.append(counts / counts.sum() / len(basins))
        rows = np.concatenate(drawn)
        order = np.argsort(rows)
        return rows[order], np.concatenate(part)[order]

    # -- how good ----------------------------------------------------------------------------------------------------

    def _point(
        self, state: State, response: np.ndarray, y: np.ndarray, weight: np.ndarray, squared: float
    ) -> tuple[float, float]:
        """Scale and intercept of the best model along w where C is given; of the water where the slack is."""
        if state.objective is not None:
            point = state.objective.primal_point(y * response, y, weight, squared, state.comm.allreduce, precision=1e-4)
            return point.scale, point.intercept
        norm = math.sqrt(max(squared, 0.0)) or 1.0
        surface = self._pour(state, response / norm, 1.0)  # the slack is that of a unit vector
        scale = 1 / surface.level if 0 < surface.level < math.inf else 1.0
        return scale / norm, scale * surface.bias

    def _look(self, state: State) -> None:
        """The error of the average on rows held out, and whether it has stopped falling."""
        ascent, comm = state.ascent, state.comm
        squared = float(comm.allreduce(np.array([ascent.mean_alpha @ ascent.mean_response]))[0])
        held = state.held_out[ascent.number]
        if state.is_all_trained_on and self.validation_fraction is None:
            held = ascent.weight  # too few rows to hold one out
        scale, intercept = self._point(state, ascent.mean_response, ascent.y, ascent.weight, squared)
        margin = scale * ascent.mean_response + ascent.y * intercept
        wrong, loss, total = comm.allreduce(
            np.array([held @ (margin <= 0), held @ np.maximum(0.0, 1 - margin), held.sum()])
        )
        if scale == 0:
            return  # the best model along w is none at all yet
        state.looks += 1
        if total == 0:
            state.is_flat = state.is_part and state.looks >= 2 * _LEAST_LOOKS
            return
        state.error = float(wrong / total)
        if state.error < state.best_error:
            state.best_error, state.best_error_values = state.error, state.values
        if loss / total < (1 - _BETTER) * state.best_loss:
            state.best_loss, state.best_values = float(loss / total), state.values
        is_loss_flat = state.values > _PATIENCE * state.best_values
        is_error_flat = state.values > _PATIENCE_WITH_ERROR * state.best_error_values
        state.is_flat = state.looks >= _LEAST_LOOKS and (is_loss_flat or is_error_flat)

    def _bounds(self, state: State, alpha: np.ndarray, response: np.ndarray) -> Certificate:
        """Bounds on the optimum for all rows, held out or not, from coefficients and responses; notes the model."""
        shard, comm = state.shard, state.comm
        present = alpha > 0
        steepest = float(np.max(alpha[present] / shard.weight[present], initial=0.0))
        squared, mass, weight = map(
            float, comm.allreduce(np.array([alpha @ response, alpha.sum(), shard.weight.sum()]))
        )
        squared = max(squared, 0.0)
        steepest = float(comm.allreduce(np.array([steepest]), "max")[0])
        if state.objective is not None:
            objective = state.objective
            point = objective.primal_point(
                shard.y * response, shard.y, shard.weight, squared, comm.allreduce, precision=1e-6
            )
            factor = objective.best_factor(mass, squared, objective.C / steepest) if steepest > 0 else 0.0
            certificate = Certificate(point.value, objective.dual_value(factor * mass, factor**2 * squared))
            scale, intercept = point.scale, point.intercept
            slack = objective.implied_slack(point.value, scale * math.sqrt(squared), weight)
            report = {"C": objective.C, "slack": slack}
        else:
            assert state.problem.slack is not None
            norm = math.sqrt(squared)
            surface = self._pour(_with_all_rows(state, shard.weight), response / (norm or 1.0), 1.0)
            volume = weight * state.problem.slack
            upper = (norm + volume * steepest) / mass if mass > 0 else math.inf
            certificate = Certificate(upper, surface.level if norm > 0 else -math.inf)
            # The threshold is that of the rows trained on: those held out may lie so low that they would decide it.
            scale, intercept = self._point(
                _with_all_rows(state, state.weight), response, shard.y, shard.weight, squared
            )
            covered = surface.level * surface.cover - volume  # the sum of the responses under water
            implied = 1 / (surface.level * covered) if surface.level > 0 and covered > 0 else math.inf
            report = {"C": implied, "slack": state.problem.slack}
        if not shard.kernel.kernel.is_positive:  # no inner product: masses bound nothing
            is_loss = state.objective is not None
            certificate = certificate._replace(dual=-math.inf) if is_loss else certificate._replace(primal=math.inf)
        state.certified = (certificate, alpha.copy(), scale, intercept, report)
        return certificate


def _with_all_rows(state: State, weight: np.ndarray) -> State:
    """The same state, with all rows of this rank under water, by this weight."""
    ascent = replace(state.ascent, y=state.shard.y, weight=weight, water=None)
    return replace(state, ascent=ascent)


def _lowest_of(
    response: np.ndarray, y: np.ndarray, weight: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ``n`` lowest responses of each class: their rows; a table of them; and up to where nothing is left out.

    The table has response, label and weight; a last line for each class, of row -1, stands for what is left out.
    """
    rows, table, cuts = [], [], []
    for label in (-1.0, 1.0):
        mine = np.flatnonzero((y == label) & (weight > 0))
        cut, left = np.inf, 0.0
        if len(mine) > n:
            mine = mine[np.argpartition(response[mine], n)]
            cut, left = float(response[mine[n - 1]]), float(weight[mine[n:]].sum())
            mine = np.sort(mine[:n])
        rows += [mine, np.array([-1])]
        cuts.append(cut)
        table += [np.stack([response[mine], y[mine], weight[mine]], axis=1), np.array([[_FAR, label, left]])]
    return np.concatenate(rows), np.concatenate(table), np.array(cuts)
