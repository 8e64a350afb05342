"""Column generation for the 1-norm SVM, exact and proven (see :mod:`widemargin.problems.hinge_l1`).

    minimise over beta, b   sum_i u_i max(0, 1 - y_i (x_i . beta + b)) + alpha ||beta||_1,     u_i = m_i / M

Few coefficients are not 0, so the linear program is solved on a working set J of columns, and the masses a that come
with its answer tell which column is missing: one with |c_j| > alpha, c = X'(y a). One sweep is

    1  solve the problem on the columns J, which gives beta, b and masses a        (rank 0, :mod:`._restricted_lp`)
    2  price all columns: c = X'(y a)                                              (every rank its rows, one sum)
    3  the objective of beta bounds the optimum from above; the masses, taken back towards the best feasible ones until
       no |c_j| is over alpha, from below
    4  add the columns that violate most to J                                      (every rank sends its part of them)

Early answers need not be exact: step 1 goes on until its own gap is a part of the whole one. When it is small the rows
on the hinge and the columns that stay are known, and two linear systems give the exact answer.

Where rows are many and columns few, all of this is done on fewer rows (:mod:`._merged_rows`): those far from the hinge
of a model are merged, the first model being that of a sample. What comes out is bounded on all rows, and rows that
crossed the hinge are no longer merged.

On ranks the rows stay where they are; their labels, weights and working columns travel once, the masses each sweep.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.compiled.columns import add_squares_csr, add_squares_dense
from widemargin.data.shard import Shard
from widemargin.pauses import TimeIsUp, uneven
from widemargin.problems.hinge_l1 import HingeL1, largest, lowest_place
from widemargin.problems.protocol import Certificate
from widemargin.rounding import PAIRWISE, UNIT, careful_sum, gamma
from widemargin.solvers._merged_rows import Outlines, sample
from widemargin.solvers._restricted_lp import RestrictedLP
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import Inputs, Solver, Warm

_EXACT = 1e-12  # relative gap
_ROUNDING = 1e-13  # relative: of alpha, of a variance, of a sum over many rows
_MAX_SWEEPS = 1000  # to find alpha_max; tens are enough
_WORK_PER_SOLVE = 60  # of a linear program, by its rows and the square of its columns
_SMALL_GAP = 0.1  # of the distance to another objective
_FIRST_WIDTH, _WIDER, _LAST_WIDTH = 0.01, 8.0, 2.0  # of the places where an intercept is looked for
_TALL = 16000.0  # rows; from so many on, and so many for each column,
_TALL_BY_COLUMNS = 100.0  # rows are merged,
_MOST_MERGED = 0.5  # unless so many of them are left
_SAMPLE, _SAMPLE_TOL = 0.25, 1e-2  # rows that a first model comes from, and its relative gap
_WARM = 1 / 64  # and rows that any other model is taken to come from
_NEAR = 4.0  # how many times their standard deviation margins are off
_NEXT_NEAR = 0.25  # how far margins will move, by the last time
_MERGED_TOL = 1e-8  # relative gap on merged rows, and at most so much of that on all rows
_PART_OF_GAP = 1e-3
_NEARLY = 1e-6  # relative distance of a correlation from alpha that is none
_OPEN = 2.0  # times the allowance for rounding: a gap that will not get smaller
_ON_HINGE = 1e-9  # distance of a row on the hinge
_MANY_TIED = 4.0  # rows on the hinge for each column: more are merged too,
_WORTH_MERGING = 0.1  # as long as that leaves so much of the gap
_CENTRE = 1.0  # of the distance, where the way begins


@dataclass(frozen=True, eq=False)
class Rows:
    """One rank's rows of a weight over 0, and those of all ranks on rank 0."""

    problem: HingeL1
    shard: Shard
    comm: Communicator
    present: np.ndarray | None  # their numbers in the shard; None for all
    where: slice  # of this rank among all
    y: np.ndarray  # of this rank
    caps: np.ndarray
    sums: np.ndarray  # of the caps of each class, over all ranks
    sizes: np.ndarray  # the largest size of an entry of each column, over all ranks
    of_sum: float  # rounding error of correlations, relative to the sum of masses times those sizes
    all_y: np.ndarray  # of all ranks; empty but on rank 0
    all_caps: np.ndarray
    n_rows: float  # of all ranks
    scores_depth: int  # roundings of a score, at most, over all ranks
    known: list[Outlines] = field(default_factory=list)  # shared by problems on these rows

    @classmethod
    def of(cls, problem: HingeL1, shard: Shard, comm: Communicator) -> Rows:
        """Sum weights over all ranks and resolve alpha; raises ValueError on every rank if there is no solution."""
        sums = comm.allreduce(np.append(np.bincount(shard.y < 0, shard.weight, 2), float(shard.n_rows)))
        totals, n_rows = sums[:2], float(sums[2])
        problem.check(*totals)
        total = float(totals.sum())
        if problem.alpha == "auto":
            problem = problem.resolved(total, _squares(problem, shard, comm, total))
        present = None if np.all(shard.weight > 0) else np.flatnonzero(shard.weight > 0)
        y, weight = (shard.y, shard.weight) if present is None else (shard.y[present], shard.weight[present])
        caps = problem.caps(weight, total)
        where = place_among_ranks(comm, len(y))
        all_y, all_caps = (_joined(comm, values) for values in (y, caps))
        sizes = comm.allreduce(shard.column_sizes(), "max")
        depth = float(comm.allreduce(np.array([shard.combine_depth + 1.0]))[0])
        of_sum, of_scores = gamma(depth + 2), int(comm.allreduce(np.array([float(shard.scores_depth)]), "max")[0])
        shares = totals / total
        return cls(
            problem, shard, comm, present, where, y, caps, shares, sizes, of_sum, all_y, all_caps, n_rows, of_scores
        )

    def with_alpha(self, alpha: float) -> Rows:
        """The same rows in the problem with another alpha."""
        return replace(self, problem=replace(self.problem, alpha=alpha))

    def dual_bound(self, masses: np.ndarray, correlation: np.ndarray) -> float:
        """The dual objective of masses that are within caps and balanced up to rounding, divided by their excess.

        Taking the imbalance from one class balances them; that moves correlations as rounding does.
        """
        balance, error = careful_sum(self.y * masses)
        mass, balance = map(float, self.comm.allreduce(np.array([masses.sum(), balance])))
        if mass == 0.0:
            return 0.0
        imbalance = abs(balance) + (error + self.comm.size * UNIT) * mass if self.problem.fit_intercept else 0.0
        size = largest(np.abs(correlation) + (self.of_sum * mass + imbalance) * self.sizes)
        return self.problem.dual_value((mass - imbalance) * (1 - gamma(2 * PAIRWISE)), size)

    def at_zero(self) -> tuple[np.ndarray, float, float]:
        """Masses of this rank's rows at beta = 0, their sum over all ranks, which is the loss, and the intercept."""
        positive, negative = map(float, self.sums)
        of_positive, of_negative = self.problem.balance_factors(positive, negative)
        masses = self.caps * np.where(self.y > 0, of_positive, of_negative)
        intercept = 0.0 if self.is_even or not self.problem.fit_intercept else float(np.sign(positive - negative))
        return masses, of_positive * positive + of_negative * negative, intercept

    @property
    def is_even(self) -> bool:
        return abs(float(self.sums[0] - self.sums[1])) <= 1e-13

    def correlation(self, masses: np.ndarray) -> np.ndarray:
        """``c = X'(y a)`` over all ranks; one pass over the rows that have a mass."""
        signed = self.y * masses
        if self.present is not None:
            whole = np.zeros(self.shard.n_rows)
            whole[self.present] = signed
            signed = whole
        return self.comm.allreduce(self.shard.combine(signed))

    def scores(self, coef: np.ndarray) -> np.ndarray:
        """``x_i . beta`` of this rank's rows."""
        scores = self.shard.scores(coef)
        return scores if self.present is None else scores[self.present]

    def best_intercept(self, scores: np.ndarray, guess: float) -> float:
        """The intercept of least loss over all ranks, looked for near ``guess`` first, among few places."""
        if not self.problem.fit_intercept:
            return 0.0
        places, width = self.y - scores, _FIRST_WIDTH
        while True:
            is_near = np.abs(places - guess) <= width
            below = float(self.comm.allreduce(np.array([self.caps[places < guess - width].sum()]))[0])
            near, rises = (_joined(self.comm, values[is_near]) for values in (places, self.caps))
            found = None
            if self.comm.rank == 0:
                found = np.zeros(2)
                if len(near):
                    found[:] = lowest_place(near, rises, below - float(self.sums[0]), _ROUNDING)
            intercept, is_lowest = self.comm.broadcast(found)
            if is_lowest or width == np.inf:
                return float(intercept)
            width = width * _WIDER if width < _LAST_WIDTH else np.inf

    def objective(self, coef: np.ndarray, intercept: float, scores: np.ndarray) -> float:
        """An upper bound on the objective over all ranks."""
        size = float(np.abs(coef) @ self.sizes)
        slack_error = gamma(self.scores_depth + 12) * size + 4 * UNIT * (1 + abs(intercept))
        loss = self.problem.loss(scores, intercept, self.y, self.caps, slack_error if coef.any() else 0.0)
        loss = float(self.comm.allreduce(np.array([loss]))[0])
        value = self.problem.primal_value(loss, float(np.abs(coef).sum()))
        return value * (1 + gamma(2 * PAIRWISE + self.comm.size))

    def allowance(self, coef: np.ndarray, intercept: float, correlation: np.ndarray, value: float) -> float:
        """About how much of a gap is there for the sake of rounding, at bounds near ``value``."""
        alpha = self.problem.penalty
        size = float(np.max(self.sizes, initial=0.0, where=np.abs(correlation) > (1 - _NEARLY) * alpha))
        slack_error = gamma(self.scores_depth + 12) * float(np.abs(coef) @ self.sizes) + 4 * UNIT * abs(intercept)
        return slack_error + value * (value * self.of_sum * size / alpha + gamma(4 * PAIRWISE))

    @property
    def outlines(self) -> Outlines:
        """What tells which rows can be merged; computed once, by all ranks together."""
        # Not a cached property: in Python 3.11 its lock would keep thread ranks from meeting.
        if not self.known:
            shard = self.shard if self.present is None else self.shard.take(self.present)
            total = float(self.comm.allreduce(np.array([shard.weight.sum()]))[0])
            means = self.comm.allreduce(shard.combine(shard.weight)) / total
            squares = _squares(replace(self.problem, fit_intercept=True), shard, self.comm, total)
            self.known.append(Outlines.of(shard, means, squares))
        return self.known[0]

    def signed_columns(self, which: np.ndarray) -> np.ndarray:
        """``y_i x_ij`` of some columns for all rows, on rank 0; nothing elsewhere."""
        local = self.shard.dense_columns(which)
        local = (local if self.present is None else local[self.present]) * self.y[:, None]
        if self.comm.size == 1:
            return local
        return _joined(self.comm, local.ravel()).reshape(-1, len(which))


def _joined(comm: Communicator, values: np.ndarray) -> np.ndarray:
    """What all ranks have, one after the other, on rank 0; nothing elsewhere."""
    everyone = comm.gather(values)
    return values[:0] if everyone is None else everyone[0] if len(everyone) == 1 else np.concatenate(everyone)


def _squares(problem: HingeL1, shard: Shard, comm: Communicator, total: float) -> np.ndarray:
    """The mean square of each column, around its mean if there is an intercept."""
    squares = np.zeros(shard.n_features)
    for block, where in shard.pieces():
        if sp.issparse(block):
            add_squares_csr(*map(np.asarray, (block.data, block.indices, block.indptr)), shard.weight[where], squares)
        else:
            add_squares_dense(np.asarray(block), shard.weight[where], squares)
    squares = comm.allreduce(squares) / total
    if problem.fit_intercept:
        around = squares - (comm.allreduce(shard.combine(shard.weight)) / total) ** 2
        squares = np.where(around > _ROUNDING * squares, around, 0.0)
    return squares


class Merging(NamedTuple):
    """The model around which rows are merged."""

    coef: np.ndarray
    intercept: float
    shortfall: np.ndarray  # of this rank's rows
    is_single: np.ndarray  # rows that are not merged any more
    distance: float  # to the best model: by which margins are off, for a spread of 1
    centre: float  # and where the way to it begins
    moved: float = np.inf  # by which margins were off the last time
    merges_ties: bool = True  # whether rows on the hinge are merged too, where they are many
    n_working: int = 0  # columns of the last program


class State(NamedTuple):
    rows: Rows
    working: np.ndarray  # J, in the order in which columns came
    restricted: RestrictedLP | None  # the problem on these columns, on rank 0
    coef: np.ndarray  # the best model so far
    intercept: float
    masses: np.ndarray  # of this rank's rows: the best feasible ones so far
    correlation: np.ndarray  # theirs
    certificate: Certificate
    report: dict[str, float]  # found at the end
    merging: Merging | None = None  # while rows are merged
    mass: float = 0.0  # the sum of the masses over all ranks, up to rounding: the dual objective
    is_final: bool = False  # no column to add, and the answer on these columns is as exact as it gets
    is_stuck: bool = False  # twice in a row, with about the same gap


@dataclass(frozen=True)
class ColumnGeneration(Solver[State, Separator]):
    """Linear programs on few columns, until no other column would enter.

    Halves and doubles of these numbers changed times by less than a fifth on most of eight sets, by half on some; with
    200 rows and 10000 columns a growth of 0.5 took 0.6 of the time and one of 2 nearly twice.
    """

    solves = (HingeL1,)

    first_columns: int = 20
    growth: float = 1.0  # columns added in a sweep, at most, by those at work
    nearby: float = 0.9  # of alpha: columns that come along with those that violate,
    company: float = 0.1  # up to so many, by those at work
    dense: float = 0.5  # of all columns: from there on all are at work
    inner: float = 0.1  # the gap of step 1, by the whole one,
    loosest: float = 0.03  # and the largest
    distance: float = 0.0  # of a warm start: by which its margins are off, about; 0 if that is not known
    finds_alpha_max: bool = False  # whether the smallest alpha with no coefficients is found and reported too

    def start(self, problem: HingeL1, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """At beta = 0, or on the columns of ``warm``: coefficients of an earlier model, its intercept or not."""
        return self.start_on(Rows.of(problem, shard, comm), rng, warm)

    def start_on(self, rows: Rows, rng: Generator, warm: Warm = None) -> State:
        p = rows.shard.n_features
        if warm is not None and len(warm) not in (p, p + 1):
            raise ValueError(f"A warm start of {len(warm)} numbers does not fit {p} features: p or p + 1 are due.")
        masses, loss, intercept = rows.at_zero()
        loss *= 1 + gamma(2 * PAIRWISE)
        state = State(
            rows=rows,
            working=np.zeros(0, dtype=np.intp),
            restricted=None,
            coef=np.zeros(p),
            intercept=intercept,
            masses=np.zeros(len(rows.y)),
            correlation=np.zeros(p),
            certificate=Certificate(loss, 0.0),  # beta = 0, and no masses
            report={},
        )
        model = None if warm is None or not np.any(warm[:p]) else np.asarray(warm[:p], dtype=np.float64)
        is_tall = self.distance == 0 and rows.n_rows >= max(_TALL, _TALL_BY_COLUMNS * p)
        if model is not None and not is_tall:
            return _with_model(self._with_program(state), model, float(np.asarray(warm)[p:].sum()), self)
        correlation = rows.correlation(masses)
        state = _bounded(state, state.coef, intercept, loss, masses, correlation)
        if is_tall and state.certificate.relative > _EXACT:
            return _with_merging(state, model, rng)
        return self._extended(self._with_program(state), correlation)

    def _with_program(self, state: State) -> State:
        rows = state.rows
        if rows.comm.rank:
            return state
        return state._replace(restricted=RestrictedLP(rows.problem, rows.all_y, rows.all_caps, self.distance))

    def sweep(self, state: State) -> State:
        if state.merging is not None:
            return self._merged_sweep(state, state.merging)
        rows, comm, k, gap_before = state.rows, state.rows.comm, len(state.working), state.certificate.gap
        with uneven(_WORK_PER_SOLVE * rows.n_rows * (k + 1.0) ** 2):
            answer = self._answer(state)
        answer = comm.broadcast(answer)
        primal, intercept, is_final = answer[:3]
        coef = np.zeros(rows.shard.n_features)
        coef[state.working] = answer[3 : 3 + k]
        masses = answer[3 + k :][rows.where]
        correlation = rows.correlation(masses)
        state = _bounded(state, coef, float(intercept), float(primal), masses, correlation)
        state = self._extended(state, correlation)
        is_final = bool(is_final) and len(state.working) == k
        is_stuck = is_final and state.is_final and state.certificate.gap > 0.5 * gap_before
        return state._replace(is_final=is_final, is_stuck=is_stuck)

    def _merged_sweep(self, state: State, merging: Merging) -> State:
        """All steps on few rows: those far from the hinge are merged (:mod:`._merged_rows`)."""
        rows, comm, outlines, gap_before = state.rows, state.rows.comm, state.rows.outlines, state.certificate.gap
        sides = _sides(merging.shortfall)
        is_single = merging.is_single | (np.abs(merging.shortfall) <= merging.distance * outlines.spread)
        has_ties = False
        if merging.merges_ties:
            n_tied = float(comm.allreduce(np.array([float(np.count_nonzero(sides == 0))]))[0])
            if n_tied > _MANY_TIED * (rows.shard.n_features + 1):
                has_ties, is_single = True, is_single & (sides != 0)
        merged = outlines.merged(is_single, sides)
        if float(comm.allreduce(np.array([float(merged.shard.n_rows)]))[0]) > _MOST_MERGED * rows.n_rows:
            model = state if state.coef.any() else merging
            state = self._with_program(state._replace(merging=None))
            if not model.coef.any():
                return self.sweep(self._extended(state, rows.correlation(rows.at_zero()[0])))
            return self.sweep(_with_model(state, model.coef, model.intercept, self))
        solver = replace(self, distance=merging.centre, loosest=_MERGED_TOL, finds_alpha_max=False)
        inputs = Inputs(rows.problem, merged.shard, comm, np.random.default_rng(0))
        tol = max(_EXACT, min(_MERGED_TOL, _PART_OF_GAP * state.certificate.relative))
        inner = solved(inputs, tol, _MAX_SWEEPS, np.append(merging.coef, merging.intercept), solver=solver)
        masses = merged.divided(inner.masses / inner.rows.caps, rows.caps)
        coef, scores = inner.coef, rows.scores(inner.coef)
        shortfall = 1 - rows.y * (scores + inner.intercept)
        intercept = rows.best_intercept(scores, inner.intercept)
        primal = rows.objective(coef, intercept, scores)
        correlation = rows.correlation(masses)
        state = _bounded(state, coef, intercept, primal, masses, correlation)
        change = rows.caps @ ((shortfall - merging.shortfall) / outlines.spread) ** 2
        moved = float(np.sqrt(comm.allreduce(np.array([change]))[0]))
        has_crossed = sides * _sides(shortfall) < 0
        is_slower = moved > 0.5 * merging.moved
        next_distance = (2.0 if is_slower else _NEXT_NEAR) * moved
        merges_ties = state.certificate.gap < _WORTH_MERGING * gap_before
        merging = Merging(
            coef,
            inner.intercept,
            shortfall,
            is_single | has_crossed,
            next_distance,
            merging.centre,
            moved,
            merges_ties,
            len(inner.working),
        )
        n_crossed = float(comm.allreduce(np.array([float(np.count_nonzero(has_crossed))]))[0])
        is_final = (inner.certificate.relative <= _EXACT or inner.is_stuck) and n_crossed == 0 and not has_ties
        allowance = rows.allowance(coef, intercept, correlation, primal)
        is_stuck = is_final and state.is_final and state.certificate.gap > 0.5 * gap_before
        is_stuck |= state.certificate.gap <= _OPEN * allowance
        return state._replace(merging=merging, is_final=is_final, is_stuck=is_stuck)

    def _answer(self, state: State) -> np.ndarray | None:
        """Step 1 on rank 0: objective, intercept, whether this is as exact as it gets, coefficients, masses."""
        masses = _joined(state.rows.comm, state.masses)
        if state.restricted is None:
            return None
        relative = min(1.0, state.certificate.relative)
        precision = min(self.inner * relative, self.loosest)
        model = state.restricted.solve(state.coef[state.working], state.intercept, masses, relative, precision)
        return np.concatenate([[model.primal, model.intercept, model.is_final], model.coef, model.masses])

    def _extended(self, state: State, correlation: np.ndarray) -> State:
        """Step 4: the working set with the columns that violate most."""
        at_fault = np.abs(correlation)
        at_fault[state.working] = 0.0
        alpha, k = state.rows.problem.penalty, len(state.working)
        n_violating = int(np.count_nonzero(at_fault > alpha * (1 + _ROUNDING)))
        if n_violating == 0:
            return state
        near = int(np.count_nonzero(at_fault > self.nearby * alpha))
        most = max(self.first_columns, int(self.growth * k))
        # Columns that are about to violate come along: one or two that are missing cost a sweep like many do.
        n_added = min(most, max(n_violating, min(near, int(self.company * k))))
        if k + n_added > self.dense * len(at_fault):  # a dense answer: one interior point on all columns is cheaper
            return _with_columns(state, np.setdiff1d(np.arange(len(at_fault)), state.working))
        return _with_columns(state, np.sort(np.argpartition(-at_fault, n_added - 1)[:n_added]))

    def certify(self, state: State) -> Certificate | None:
        return state.certificate

    def stop_reason(self, state: State) -> str | None:
        return "precision" if state.is_stuck else None

    def warm_state(self, state: State) -> np.ndarray:
        return state.coef

    def extract(self, state: State) -> Separator:
        n_working = len(state.working) if state.merging is None else state.merging.n_working
        report = {"alpha": state.rows.problem.penalty, "n_working": n_working}
        if self.finds_alpha_max:
            report["alpha_max"] = np.nan
        return Separator(state.coef, state.intercept, {**report, **state.report})

    def compact(self, state: State) -> None:
        """The model stays as it is; the smallest alpha with no coefficients is found, if there is time."""
        if self.finds_alpha_max:
            rows = state.rows
            with suppress(TimeIsUp):
                state.report["alpha_max"] = _alpha_max(rows, np.random.default_rng(0))


def _with_columns(state: State, which: np.ndarray) -> State:
    signed = state.rows.signed_columns(which)
    if state.restricted is not None:
        state.restricted.add(signed)
    return state._replace(working=np.append(state.working, which))


def _with_model(state: State, coef: np.ndarray, intercept: float, solver: ColumnGeneration) -> State:
    """At work on the columns of a model, which is taken with its best intercept if it is better than beta = 0."""
    which = np.flatnonzero(coef)
    if solver.distance > 0:  # near enough to tell which columns will come
        rows = state.rows
        shortfall = 1 - rows.y * (rows.scores(coef) + intercept)
        at_fault = np.abs(rows.correlation(np.where(shortfall > 0, rows.caps, 0.0)))
        which = np.union1d(which, np.flatnonzero(at_fault > solver.nearby * rows.problem.penalty))
        if len(which) > solver.dense * len(coef):
            which = np.arange(len(coef))
    state = _with_columns(state, which)
    found = None if state.restricted is None else np.array(state.restricted.objective(coef[which]))
    intercept, primal = map(float, state.rows.comm.broadcast(found))
    if primal >= state.certificate.primal:
        return state
    return state._replace(coef=coef, intercept=intercept, certificate=Certificate(primal, state.certificate.dual))


def _sides(shortfall: np.ndarray) -> np.ndarray:
    """Of the hinge: 1 short of the margin, -1 beyond it, 0 on it."""
    return np.where(np.abs(shortfall) <= _ON_HINGE, 0, np.sign(shortfall)).astype(np.int64)


def _with_merging(state: State, coef: np.ndarray | None, rng: Generator) -> State:
    """With rows merged around a model, or around that of a sample of the rows."""
    rows, comm, intercept = state.rows, state.rows.comm, state.intercept
    n_known = rows.n_rows * (_SAMPLE if coef is None else _WARM)
    if coef is None:
        coef = state.coef
        with suppress(TimeIsUp):
            few = sample(rows.outlines.shard, comm, _SAMPLE)
            n_few = float(comm.allreduce(np.array([float(few.n_rows)]))[0])
            if n_few <= rows.n_rows / 2:  # a rank of few rows may give all of them
                found = solved(Inputs(rows.problem, few, comm, rng), _SAMPLE_TOL, _MAX_SWEEPS)
                coef, intercept = found.coef, found.intercept
    scores = rows.scores(coef)
    intercept = rows.best_intercept(scores, intercept)
    primal = rows.objective(coef, intercept, scores)
    if primal < state.certificate.primal:
        state = state._replace(coef=coef, intercept=intercept, certificate=state.certificate.tightened(primal, 0.0))
    sums = comm.allreduce(rows.caps @ np.column_stack([scores, scores**2, rows.outlines.spread]))
    scale = min(1.0, float(np.sqrt(max(sums[1] - sums[0] ** 2, 0.0))))
    shortfall = 1 - rows.y * (scores + intercept)
    distance = _NEAR * scale / np.sqrt(n_known)
    centre = max(_CENTRE * distance * float(sums[2]), _ROUNDING)
    merging = Merging(coef, intercept, shortfall, np.zeros(len(shortfall), dtype=bool), distance, centre)
    return state._replace(merging=merging)


def _bounded(
    state: State, coef: np.ndarray, intercept: float, primal: float, masses: np.ndarray, correlation: np.ndarray
) -> State:
    """Step 3: both bounds, the best so far, with what proves them.

    The masses are balanced and within caps. Between them and the best feasible ones, and between them and none at all,
    lie feasible ones: those are taken that are worth most.
    """
    problem, comm, alpha = state.rows.problem, state.rows.comm, state.rows.problem.penalty
    mass = float(comm.allreduce(np.array([masses.sum()]))[0])
    beyond = np.abs(correlation) > alpha * (1 + _ROUNDING)
    there, here = correlation[beyond], state.correlation[beyond]
    step = max(0.0, float(np.min((alpha - np.sign(there) * here) / np.abs(there - here), initial=1.0)))
    scale = 1 / problem.excess(largest(correlation))
    if scale * mass > (1 - step) * state.mass + step * mass:
        masses, correlation = scale * masses, scale * correlation
    else:
        masses = (1 - step) * state.masses + step * masses
        correlation = (1 - step) * state.correlation + step * correlation
    dual = state.rows.dual_bound(masses, correlation)
    old = state.certificate
    if dual > old.dual:
        state = state._replace(masses=masses, mass=dual, correlation=correlation)
    if primal < old.primal:
        state = state._replace(coef=coef, intercept=intercept)
    return state._replace(certificate=old.tightened(primal, dual))


def solved(
    inputs: Inputs,
    tol: float,
    max_iter: int,
    warm: Warm = None,
    below: float | None = None,
    solver: ColumnGeneration | None = None,
) -> State:
    """The state at a relative gap of ``tol``, after ``max_iter`` sweeps, or where rounding stops it.

    With ``below``, also a gap that is small beside the distance to that objective ends it.
    """
    solver = solver or ColumnGeneration()
    return _swept(solver, solver.start(*inputs, warm), tol, max_iter, below)


def _swept(solver: ColumnGeneration, state: State, tol: float, max_iter: int, below: float | None = None) -> State:
    for _ in range(max_iter):
        certificate = state.certificate
        if certificate.relative <= tol or state.is_stuck:
            break
        if below is not None and certificate.gap <= _SMALL_GAP * (below - certificate.primal):
            break
        state = solver.sweep(state)
    return state


def largest_at_zero(problem: HingeL1, shard: Shard, comm: Communicator) -> float:
    """An alpha from which on beta = 0 is best: the largest correlation of masses at beta = 0."""
    rows = Rows.of(replace(problem, alpha=1.0), shard, comm)
    return largest(rows.correlation(rows.at_zero()[0]))


def alpha_max(problem: HingeL1, shard: Shard, comm: Communicator, rng: Generator) -> float:
    """The smallest alpha for which beta = 0 is best, whatever alpha ``problem`` has.

    With one set of masses to choose at beta = 0 it is their largest correlation. With an intercept and classes of
    unequal weight the masses of the heavier class are free, and the least of their largest correlations is the answer.
    The optimum V(alpha) of the problem is concave, linear in pieces, and level at V0 from there on: from a model below,
    the line through its objective meets V0 at

        alpha' = (V0 - loss(beta)) / ||beta||_1 <= the answer

    which is Newton's method from the left, and ends on the last piece. 0 if some masses correlate with no column.
    """
    return _alpha_max(Rows.of(replace(problem, alpha=1.0), shard, comm), rng)


def _alpha_max(rows: Rows, rng: Generator) -> float:
    solver, problem = ColumnGeneration(), rows.problem
    masses, level, _ = rows.at_zero()
    upper = largest(rows.correlation(masses))
    if upper == 0.0 or not problem.fit_intercept or rows.is_even:
        return upper
    # Columns that do not vary correlate by rounding alone; no interior point has room below such an alpha.
    if upper <= _ROUNDING * float(np.abs(rows.correlation(rows.y * masses)).max()):
        return 0.0
    alpha, lower, direction = 0.5 * upper, 0.0, None
    while alpha > _EXACT * upper:
        state = solver.start_on(rows.with_alpha(alpha), rng, direction)
        state = _swept(solver, state, _EXACT, _MAX_SWEEPS, below=level)
        gain = level - state.certificate.primal
        if gain <= _EXACT * level:  # beta = 0 is as good
            if lower > 0:
                return lower
            alpha, direction = alpha / 4, None
            continue
        meets = alpha + gain / float(np.abs(state.coef).sum())
        if meets <= alpha * (1 + _EXACT):
            return meets
        alpha = lower = min(meets, upper)
        direction = np.append(state.coef, state.intercept)
    return 0.0
