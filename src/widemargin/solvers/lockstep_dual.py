"""Exact kernel C-SVMs for many problems on the same rows of a GPU, solved side by side.

The problems differ in labels, weights and C, and share all kernel values, which stay on the device in float32:

    repeat   four times, a sweep:
               a working set of every problem: half of its last one, and the worst violators
               all working sets, each by a thread block of its own
               responses of all rows to all changes
    until    every gap, as these responses estimate it, is small enough, or there is no progress
    confirm  responses in float64 from the rows as given, one pass for all problems, and the bounds that they prove;
             problems whose bounds are too far apart go on from there

A problem whose estimate is small enough waits for the others. Values of C come in ascending groups that occupy the
device. A problem begins at the best of: no coefficients, all of them at their bounds, those that are given, and the
solution of the same problem for the largest C before, rescaled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from widemargin.kernels.protocol import RowsOnDevice, Vector
from widemargin.problems.hinge_l2 import HingeL2, PrimalPoint
from widemargin.problems.protocol import Certificate
from widemargin.rounding import UNIT, gamma
from widemargin.solvers._kernel_ranks import ResponseSums
from widemargin.solvers.models import KernelModel
from widemargin.solvers.run import Limits

SIZE = 1024  # rows of a working set
_MAX_TOGETHER = 528  # problems: four for each multiprocessor of a large GPU
_REDUCTION = 0.25  # of the violation by a working set
# Steps for that. Few problems leave most of the device idle: there is nothing else that a long round would hold up.
_FEW, _MAX_STEPS = 66, (4 * SIZE, 16 * SIZE)
_ROUNDS_PER_SWEEP = 4  # gaps are estimated after each sweep
_AIM, _TIGHTER = 0.9, 0.5  # of the tolerance; of an aim, where bounds turned out to be farther apart
# Typical errors of pulls: a violation of less may be nothing else; times that, where bounds turned out to be farther
# apart, so that exact responses come after ever smaller changes.
_NOISE, _NOISIER = 24.0, 2.0
_NEAR = 2.0  # times the tolerance: gaps that an aim was too large for
_SHRUNK, _RISEN = 0.9, 0.1  # progress: of the best gap, or by this part of the tolerance, of the dual objective
# Sweeps in a row without progress, and their share of all sweeps: it may be that rounding is all that is left.
_MAX_STALLED, _MAX_STALLED_SHARE = 50, 0.25
_MAX_UNCHANGED = 12  # confirmations in a row without progress
_PRECISION = 0.02  # of the lowest objective along w, relative to the tolerance


class Task(NamedTuple):
    """One problem: its C, the numbers of its labels and of its weights, and coefficients to begin with, if any."""

    C: float
    labels: int
    weights: int
    start: np.ndarray | None = None


class Solved(NamedTuple):
    model: KernelModel
    scores: np.ndarray  # of all rows
    norm: float  # of w
    certificate: Certificate
    seconds: float  # a share of those of all problems beside it
    stop_reason: str


class _Best(NamedTuple):
    """The model with the lowest objective that was confirmed, and the highest dual objective."""

    point: PrimalPoint  # the multiple of beta that the model is, and its intercept
    dual: float
    beta: np.ndarray
    response: np.ndarray
    norm: float  # of the w of beta

    @property
    def certificate(self) -> Certificate:
        return Certificate(self.point.value, self.dual)

    def or_better(self, other: _Best | None) -> _Best:
        if other is None:
            return self
        return min(self, other, key=lambda each: each.point.value)._replace(dual=max(self.dual, other.dual))


_ARRAYS = ("tasks", "aim", "noise", "confirmed", "n_sweeps")  # with a line for each problem of a group


@dataclass
class _Group:
    """Problems that go on side by side: a line of ``lock`` and of every array for each, with the number of its task."""

    lock: Any
    tasks: np.ndarray
    aim: np.ndarray  # the relative gap at which a problem waits to be confirmed
    noise: np.ndarray  # the violation at which it does, in units of the errors of responses
    confirmed: np.ndarray  # the last gap and dual objective that were confirmed, and how many brought no progress
    n_sweeps: np.ndarray
    best: np.ndarray = field(init=False)  # the smallest gap of each, and the dual objective then
    n_stalled: np.ndarray = field(init=False)  # sweeps without progress

    def __post_init__(self) -> None:
        n = len(self.tasks)
        self.best, self.n_stalled = np.stack([np.full(n, np.inf), np.full(n, -np.inf)]), np.zeros(n, int)

    def note(self, gaps: np.ndarray, duals: np.ndarray, violations: np.ndarray, tol: float) -> np.ndarray:
        """Which problems have reached their aim, or get no nearer to it without exact responses.

        ``violations`` are in units of the errors of responses.
        """
        has_risen = duals > self.best[1] + _RISEN * tol * np.abs(duals)
        is_nearer = (gaps <= _SHRUNK * self.best[0]) | has_risen
        self.best = np.where(is_nearer, [np.minimum(gaps, self.best[0]), duals], self.best)
        self.n_stalled, self.n_sweeps = np.where(is_nearer, 0, self.n_stalled + 1), self.n_sweeps + 1
        is_stalled = self.n_stalled >= np.maximum(_MAX_STALLED, _MAX_STALLED_SHARE * self.n_sweeps)
        return np.asarray((gaps <= self.aim) | (violations <= self.noise) | is_stalled)

    def only(self, lines: np.ndarray) -> _Group:
        part = _Group(self.lock.only(lines), *(getattr(self, name)[..., lines] for name in _ARRAYS))
        part.best, part.n_stalled = self.best[:, lines], self.n_stalled[lines]
        return part

    @staticmethod
    def joined(parts: list[_Group]) -> _Group:
        """All of the problems, as if none had been looked at."""
        if len(parts) == 1:
            return parts[0]
        lock = parts[0].lock.joined([part.lock for part in parts])
        return _Group(lock, *(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in _ARRAYS))


@dataclass(frozen=True)
class LockstepDual:
    """Many problems on ``rows`` whose kernel values are kept on the device.

    Lines of ``labels`` are -1, 1, or 0 for rows that are in neither class; those of ``weights`` are multiplicities.
    """

    rows: RowsOnDevice
    labels: np.ndarray
    weights: np.ndarray
    fit_intercept: bool
    limits: Limits

    def solve(self, tasks: Sequence[Task], ask: Callable[[], str] = lambda: "") -> list[Solved | None]:
        """The solution of each task; None where ``ask`` gave a reason to stop before."""
        out: list[Solved | None] = [None] * len(tasks)
        last: dict[tuple[int, int], tuple[float, Vector]] = {}  # the largest C of labels and weights, and its solution
        order, together = np.argsort([task.C for task in tasks], kind="stable"), self._together()
        for first in range(0, len(tasks), together):
            if ask():
                break
            began, group = time.perf_counter(), self._begun(tasks, order[first : first + together], last)
            n_problems, sweeps_left = len(group.tasks), self.limits.max_iter
            best: dict[int, _Best] = {}  # of problems that go on
            while True:
                group, n_sweeps = self._descended(group, sweeps_left, ask)
                if not len(group.tasks) or ask():
                    break
                sweeps_left -= n_sweeps
                seconds = (time.perf_counter() - began) / n_problems
                group = self._confirmed(group, tasks, out, last, best, seconds, is_last=sweeps_left <= 0)
        return out

    def _together(self) -> int:
        return int(np.clip(self.rows.lockstep_room(SIZE), 1, _MAX_TOGETHER))

    def _begun(
        self, tasks: Sequence[Task], numbers: np.ndarray, last: dict[tuple[int, int], tuple[float, Vector]]
    ) -> _Group:
        chosen = [tasks[k] for k in numbers]
        which, Cs = np.array([each[1:3] for each in chosen]), np.array([each.C for each in chosen])
        lock = self.rows.lockstep(self.labels, self.weights, which, Cs, SIZE)
        lock.start_at(None, is_tied=self.fit_intercept)
        if any(each.start is not None for each in chosen):
            lock.start_at([each.start for each in chosen], is_tied=self.fit_intercept)
        if last:
            before = [last.get(each[1:3]) for each in chosen]
            scaled = [
                None if old is None else each.C / old[0] * old[1] for each, old in zip(chosen, before, strict=True)
            ]
            lock.start_at(scaled, is_tied=self.fit_intercept)
        n = len(chosen)
        never = np.stack([np.full(n, np.inf), np.full(n, -np.inf), np.zeros(n)])
        return _Group(lock, numbers, np.full(n, _AIM * self.limits.tol), np.full(n, _NOISE), never, np.zeros(n, int))

    def _descended(self, group: _Group, max_sweeps: int, ask: Callable[[], str]) -> tuple[_Group, int]:
        """The same problems after sweeps until each has reached its aim, or gets no nearer to it; and their number."""
        waiting: list[_Group] = []
        number = 0
        while number < max_sweeps and len(group.tasks) and not ask():
            number += 1
            max_steps = _MAX_STEPS[len(group.tasks) <= _FEW]
            for _ in range(_ROUNDS_PER_SWEEP):
                group.lock.round(is_tied=self.fit_intercept, reduction=_REDUCTION, max_steps=max_steps)
            gaps, duals, units = (self.rows.host(each) for each in group.lock.gaps(is_tied=self.fit_intercept))
            is_ready = group.note(gaps, duals, units, self.limits.tol)
            if is_ready.any():
                waiting.append(group.only(np.flatnonzero(is_ready)))
                group = group.only(np.flatnonzero(~is_ready))
        return _Group.joined([*waiting, group] if len(group.tasks) or not waiting else waiting), number

    def _confirmed(
        self,
        group: _Group,
        tasks: Sequence[Task],
        out: list[Solved | None],
        last: dict[tuple[int, int], tuple[float, Vector]],
        best: dict[int, _Best],
        seconds: float,
        *,
        is_last: bool,
    ) -> _Group:
        """Problems that are to go on from exact responses; the solutions of the others are noted."""
        lock, rows, tol = group.lock, self.rows, self.limits.tol
        masses, n_terms = lock.answer_exactly(rows)
        error = rows.score_error(masses, n_terms, lock.beta)
        totals, intercepts = (rows.host(each) for each in lock.totals(error, is_tied=self.fit_intercept))
        betas, responses, masses = rows.host(lock.beta), rows.host(lock.response), rows.host(masses)
        goes_on = np.zeros(len(group.tasks), bool)
        for k, number in enumerate(group.tasks):
            task, known = tasks[number], best.pop(number, None)
            sums = self._sums(task, totals[k])
            primal = 0.5 * sums.squared_norm * (1 + 8 * UNIT) + totals[k, 5]
            primal = sums.rounding.largest_value(primal, task.C, float(intercepts[k]))
            dual = HingeL2(task.C, self.fit_intercept).dual_value(
                *sums.feasible(self.fit_intercept, float(masses[k, 0]))
            )
            point = PrimalPoint(primal, 1.0, float(intercepts[k]))
            if Certificate(primal, dual).relative > tol:
                point = min(point, self._best_point(task, sums, responses[k], rows.host(error[k]), point.intercept))
            found = _Best(point, dual, betas[k], responses[k], float(np.sqrt(sums.squared_norm))).or_better(known)
            is_closed = found.certificate.relative <= tol
            gap, before, n_unchanged = group.confirmed[:, k]
            has_risen = found.dual > before + _RISEN * tol * abs(found.dual)
            n_unchanged = 0 if has_risen or found.certificate.relative <= _SHRUNK * gap else n_unchanged + 1
            group.confirmed[:, k] = found.certificate.relative, found.dual, n_unchanged
            if not is_closed and not is_last and n_unchanged < _MAX_UNCHANGED:
                goes_on[k], best[number] = True, found
                continue
            reason = "tol" if is_closed else "max_iter" if is_last else "precision"
            out[number] = self._solved(task, found, seconds, reason)
            if task[1:3] not in last or last[task[1:3]][0] <= task.C:
                last[task[1:3]] = task.C, lock.beta[k] + 0.0
        left = group.only(np.flatnonzero(goes_on))
        # What is left may be the rounding of responses, which are exact now: a smaller aim, unless that is far away.
        is_near = left.confirmed[0] <= _NEAR * tol
        aim, noise = np.where(is_near, _TIGHTER, 1.0) * left.aim, _NOISIER * left.noise
        return _Group(left.lock, left.tasks, aim, noise, left.confirmed, left.n_sweeps)

    def _sums(self, task: Task, totals: np.ndarray) -> ResponseSums:
        n, weight = self.rows.n_rows, float(self.weights[task.weights].sum())
        return ResponseSums.of_totals(np.array([*totals[:5], n, weight]), gamma(n + 9), 0.0)

    def _best_point(
        self, task: Task, sums: ResponseSums, response: np.ndarray, error: np.ndarray, near: float
    ) -> PrimalPoint:
        """The best multiple of w and the best intercept for it, where the intercept that pulls name is not enough."""
        y, weight = self.labels[task.labels], self.weights[task.weights]
        return HingeL2(task.C, self.fit_intercept).primal_point(
            response, y, weight * np.abs(y), sums.squared_norm, near=near, precision=_PRECISION * self.limits.tol,
            rounding=sums.rounding._replace(score_error=error),
        )  # fmt: skip

    def _solved(self, task: Task, found: _Best, seconds: float, reason: str) -> Solved:
        (primal, scale, intercept), support = found.point, np.flatnonzero(found.beta)
        problem, weight = HingeL2(task.C, self.fit_intercept), float(self.weights[task.weights].sum())
        norm = scale * found.norm
        report = {"C": task.C, "slack": float(problem.implied_slack(primal, norm, weight)), "violation": np.nan}
        points, coef = self.rows.points(support), scale * found.beta[support]
        model = KernelModel(self.rows.kernel, points, coef, intercept, report)
        return Solved(model, scale * found.response + intercept, norm, found.certificate, seconds, reason)
