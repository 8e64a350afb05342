"""The only loop that knows about tolerance, limits, callbacks, history and interrupts."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.comm.protocol import Communicator
from widemargin.cores import one_blas_thread
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.ledger import Ledger
from widemargin.pauses import Clock, TimeIsUp, as_numbers, as_text, told_by_rank_0
from widemargin.problems.protocol import Certificate, Problem
from widemargin.solvers.models import KernelModel, Separator
from widemargin.solvers.protocol import AnySolver, Warm

_ASK_INTERVAL = 0.1  # seconds between two calls of ``watch`` within a sweep
_GRACE = 0.5  # seconds for the final certificate once time is up
_EXACT_SLOWER = 3.0  # a kernel value in float64 takes as long as so many of those of sweeps
_SMALL_PART = 0.01  # an allowance for rounding below this part of a gap is ignored
_STALL_RATIO = 0.9  # a sweep that leaves more than this part of a gap has stalled
_TINY, _MAX_LEVEL = 1e-8, 200  # relative gap that need not be an allowance, and certified sweeps that leave it as it is
_MAX_OPEN, _MAX_STALLED = 3, 50  # certified sweeps in a row before a run stops with "precision"


@dataclass(frozen=True)
class Limits:
    """When to stop.

    Parameters
    ----------
    tol : float
        The relative gap.
    max_iter : int
        The number of sweeps.
    max_time : float, default=inf
        Seconds; a sweep that takes long is cut short.

    Examples
    --------
    >>> from widemargin.api import Limits
    >>> Limits(tol=1e-3, max_iter=100)
    Limits(tol=0.001, max_iter=100, max_time=inf)
    """

    tol: float
    max_iter: int
    max_time: float = float("inf")


@record()
class Progress(NamedTuple):
    """What a callback is told after a sweep.

    Parameters
    ----------
    sweep : int
        The number of sweeps so far.
    certificate : Certificate or None
        The latest; None before the first.
    seconds : float
        Since the start of the run.
    counts : dict of str to int
        Traffic and kernel values of this rank so far.
    warm_state : array or None
        What a later run can start from, if the caller of ``run`` asked for it.
    model : object or None
        The model so far, if the caller of ``run`` asked for it and the sweep was certified.

    Examples
    --------
    >>> from widemargin.api import Certificate, Progress
    >>> Progress(3, Certificate(2.0, 1.9), 0.1, {}, None, None).certificate.relative
    0.050000000000000044
    """

    sweep: int
    certificate: Certificate | None
    seconds: float
    counts: dict[str, int]
    warm_state: np.ndarray | None
    model: Any


# Returns a stop reason, or None to go on. Called on rank 0 only.
Watch = Callable[[Progress], str | None]
# Whether the report of this sweep shall have the warm state, after one that took so many seconds, or None. On rank 0.
WatchState = Callable[[int, float | None], bool]

_STATE_NEXT = -1.0  # a signal of rank 0: the next report has the warm state


def _check_result(result: Result) -> None:
    if not isinstance(result.model, Separator | KernelModel):
        raise ModelFileError("a result has no model")


@record(check=_check_result)
@dataclass
class Result:
    """What came out of a run.

    Parameters
    ----------
    model : object
        What the solver extracts: a :class:`Separator`, a :class:`KernelModel` or another model.
    certificate : Certificate
        Proves how good the model is.
    stop_reason : str
        ``"gap"``, ``"max_iter"``, ``"max_time"``, ``"callback"``, or a reason of the solver's own.
    n_iter : int
        The number of sweeps.
    history : list of dict
        For every certified sweep its number, seconds, bounds, diagnostics and traffic. A run that needs no sweep has
        one row, for its start.
    ledger : Ledger
        The cost.

    Examples
    --------
    >>> from widemargin.api import Certificate, Result
    >>> Result(None, Certificate(2.0, 2.0), "gap", 5).certificate.gap
    0.0
    """

    model: Any
    certificate: Certificate
    stop_reason: str
    n_iter: int
    history: list[dict[str, float]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)


class Start(NamedTuple):
    """Where a run begins: what an earlier one has left."""

    warm: Warm = None  # its warm state
    sweeps: int = 0  # which count, as its seconds do
    seconds: float = 0.0
    told: str = ""  # a reason to stop that is known before: the run only starts, and returns what it has


class Watched(NamedTuple):
    """Who hears of a run, and of what; the latter is equal on all ranks."""

    watch: Watch | None = None
    has_model: bool = False
    has_state: bool | WatchState = False


class Offer(NamedTuple):
    """The first sweep of a run, which may be computed ahead, beside those of other runs; then the run is sent ``do()``.

    It is short, and leaves alone what others use.
    """

    do: Callable[[], Any]
    n_bytes: int  # of memory, until the run is over


class Finished(NamedTuple):
    """The result of a run, with what its solver knows at the end of this rank's rows; None where it does not.

    Scores are None, too, of rows that are some of those of the fit.
    """

    result: Result
    scores: np.ndarray | None
    coefficients: np.ndarray | None  # in a linear model
    told: str  # a reason to stop that the run was told, even if it had come to its end; equal on all ranks
    warm_state: Callable[[], Any]  # for a run that begins where this one has ended


@one_blas_thread()
def run(
    solver: AnySolver,
    problem: Problem,
    shard: Shard,
    comm: Communicator,
    limits: Limits,
    rng: np.random.Generator,
    *,
    warm: Warm = None,
    watch: Watch | None = None,
    watch_model: bool = False,
    watch_state: bool | WatchState = False,
    told: str = "",
) -> Result:
    """Sweep until the relative gap is at most ``tol`` or another limit is reached. Every rank calls it.

    Parameters
    ----------
    solver : Solver
        The algorithm.
    problem : Problem
        What is optimised; raises TypeError unless ``solver`` solves it.
    shard : Shard
        This rank's rows.
    comm : Communicator
        The other ranks.
    limits : Limits
        When to stop.
    rng : numpy.random.Generator
        In the same state on all ranks.
    warm : array, optional
        The warm state of an earlier run.
    watch : callable, optional
        Called on rank 0 after every sweep with a :class:`Progress`; a string that it returns is the stop reason.
    watch_model : bool, default=False
        Whether ``watch`` gets the model; equal on all ranks.
    watch_state : bool or callable, default=False
        Whether ``watch`` gets the warm state; equal on all ranks. A callable is asked on rank 0 for each sweep but the
        first, which has one, with the seconds that the last state took, or None; what is sent for it is not counted.
    told : str, default=""
        A reason to stop that is known before: the run only starts, and returns what it has.

    Returns
    -------
    Result
        The same on all ranks, but for seconds and kernel values.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.api import Limits, Shard, run
    >>> from widemargin.comm.solo import Solo
    >>> from widemargin.problems.polytope import HardMargin
    >>> from widemargin.solvers.newton import EntropicNewton
    >>> shard = Shard(np.array([[0.0], [2.0]]), np.array([-1.0, 1.0]), np.ones(2))
    >>> result = run(EntropicNewton(), HardMargin(), shard, Solo(), Limits(1e-3, 100), np.random.default_rng(0))
    >>> result.certificate.as_text()
    ('1.99999', '2.00001')
    """
    watched = Watched(watch, watch_model, watch_state)
    running = sweeps(solver, problem, shard, comm, limits, rng, Start(warm, told=told), watched)
    return end_of(running).result


def end_of(running: Generator[Offer | None, Any, Finished]) -> Finished:
    """Let a run go on to its end."""
    while True:
        try:
            next(running)
        except StopIteration as end:
            finished: Finished = end.value
            return finished


def sweeps(
    solver: AnySolver,
    problem: Problem,
    shard: Shard,
    comm: Communicator,
    limits: Limits,
    rng: np.random.Generator,
    begin: Start,
    watched: Watched,
) -> Generator[Offer | None, Any, Finished]:
    """:func:`run` as a generator, which stops after each sweep, before it looks at what came out of it.

    A device may be at work until then: a caller with several runs can begin sweeps of others meanwhile. It also stops
    before its first sweep, and may offer that; a caller that takes no notice lets the run compute it.
    """
    solver.refuse_unless_solved(problem)
    solver = solver.for_rows(shard, comm, begin.warm)
    watch, has_state = watched.watch, watched.has_state is not False
    began, ledger = time.perf_counter() - begin.seconds, comm.ledger
    history: list[dict[str, float]] = []
    certificate, sweep, reserve, asked_at = None, begin.sweeps, 0.0, began

    def ask() -> str:
        """Between two sweeps ``watch`` is told more; within one it hears that time goes by."""
        nonlocal asked_at
        now, asked = time.perf_counter(), None
        if watch is not None and now - asked_at > _ASK_INTERVAL:
            asked_at = now
            asked = watch(Progress(sweep, certificate, now - began, ledger.counts(), None, None))
        return asked or ("max_time" if now - began > limits.max_time - reserve else "")

    clock = Clock(comm, ask)
    clock.reason = begin.told

    def overtime() -> Clock:
        """The clock for what comes after the last sweep: another one, for a moment, if the run was told to stop."""
        late = time.perf_counter() + (0.0 if begin.told else _GRACE)
        return clock.in_overtime(lambda: "late" if time.perf_counter() > late else "") if clock.reason else clock

    def note(bounds: Certificate, seconds: float) -> None:
        row = {"sweep": sweep, "seconds": seconds, "primal": bounds.primal, "dual": bounds.dual}
        history.append({**row, **solver.diagnostics(state), **ledger.counts()})

    with ledger.phase("start"), clock.running():
        try:
            state = solver.start(problem, shard, comm, rng, begin.warm)
        except TimeIsUp:
            state = solver.start(problem, shard, comm, rng)
        with suppress(TimeIsUp):
            certificate = solver.certify(state)
    precision = _Precision()
    reason = _reached(solver, state, certificate, limits) or clock.reason or None
    while True:
        if reason is not None:
            before = certificate
            with ledger.phase("certify"):
                certificate, is_late = _confirmed(solver, state, certificate, overtime())
            if not history and before is not None:  # the start was good enough
                note(certificate, time.perf_counter() - began)
            if history and history[-1]["sweep"] == sweep:
                known = {"is_confirmed": 1.0} if "is_confirmed" in history[-1] else {}
                history[-1].update(certificate._asdict(), **known)
            if reason == "precision" and certificate.relative <= limits.tol:
                reason = "gap"
            is_open = reason == "gap" and certificate.relative > limits.tol
            is_better = reason == "precision" and precision.is_better(certificate, before)
            if is_late or is_open or is_better:
                reason = clock.reason or ("max_iter" if sweep >= limits.max_iter else None)
            if reason is not None:
                break
        ahead = None
        if sweep == begin.sweeps:
            n_bytes = solver.bytes_beside_others(state)
            ahead = yield None if n_bytes is None else Offer(partial(_sweep_ahead, solver, state, ledger), n_bytes)
        with ledger.phase("sweep"), clock.running(), suppress(TimeIsUp):  # the state is then as good as it was before
            state = solver.sweep(state) if ahead is None else ahead
        sweep += 1
        yield None
        latest = None
        with ledger.phase("certify"), clock.running(), suppress(TimeIsUp):
            latest = solver.certify(state)
        certificate = latest or certificate
        seconds = time.perf_counter() - began
        if latest is not None:
            note(latest, seconds)
            reason = _reached(solver, state, latest, limits)
            if precision.is_reached(latest, solver.allowance(state)):
                reason = reason or "precision"
        state_at = time.perf_counter()
        warm_state = None
        if has_state and certificate is not None:
            # When a rule asks for states depends on the clock: counts must not.
            with _uncounted(comm) if callable(watched.has_state) else nullcontext():
                warm_state = solver.warm_state(state)
        model = solver.extract(state) if watched.has_model and latest is not None else None
        signal = None
        if comm.rank == 0:
            if limits.max_time < np.inf:
                reserve = _seconds_to_confirm(solver, state, ledger, seconds, limits.max_time)
            progress = Progress(sweep, certificate, seconds, ledger.counts(), warm_state, model)
            asked_at, asked = began + seconds, None if watch is None else watch(progress)
            asked = clock.reason or asked or ("max_time" if seconds > limits.max_time - reserve else "")
            signal = as_numbers(asked)
            if not asked and callable(watched.has_state):
                cost = None if warm_state is None else time.perf_counter() - state_at
                signal[0] = _STATE_NEXT if watched.has_state(sweep + 1, cost) else 0.0
        signal = told_by_rank_0(comm, signal)
        has_state = watched.has_state is True or signal[0] == _STATE_NEXT
        clock.reason = as_text(signal)
        reason = reason or clock.reason or ("max_iter" if sweep >= limits.max_iter else None)
    with ledger.phase("extract"):
        with overtime().running():
            smaller = solver.compact(state)
        if smaller is not None:
            certificate, reason = smaller, "max_support" if reason == "gap" else reason
        model = solver.extract(state)
        is_part = shard.whole is not None and shard.whole[1] is not None  # the scores of some rows are not asked for
        scores, coefficients = None if is_part else solver.scores(state), solver.coefficients(state, model)
    result = Result(model, certificate, reason, sweep, history, ledger)
    result = _with_traffic_of_all(result, comm)
    return Finished(result, scores, coefficients, clock.reason, partial(solver.warm_state, state))


def _sweep_ahead(solver: AnySolver, state: Any, ledger: Ledger) -> Any:
    with ledger.phase("sweep"):
        return solver.sweep(state)


@contextmanager
def _uncounted(comm: Communicator) -> Iterator[None]:
    """Leave out of the ledger what is sent inside the block."""
    ledger, comm.ledger = comm.ledger, Ledger()
    try:
        yield
    finally:
        comm.ledger = ledger


def _confirmed(solver: AnySolver, state: Any, latest: Certificate | None, clock: Clock) -> tuple[Certificate, bool]:
    """The final certificate, and whether there was no time to compute it in full."""
    try:
        with clock.running():
            return solver.confirm(state, latest), False
    except TimeIsUp:
        return solver.unconfirmed(state, latest), True


def _seconds_to_confirm(solver: AnySolver, state: Any, ledger: Ledger, seconds: float, max_time: float) -> float:
    """How long the final certificate will take, by the kernel values so far; 0 if it would take most of the time."""
    rate = ledger.kernel_evaluations / seconds if seconds > 0 else 0.0
    needed = _EXACT_SLOWER * solver.values_to_confirm(state) / rate if rate > 0 else 0.0
    return needed if needed <= max_time / 2 else 0.0


def _reached(solver: AnySolver, state: Any, certificate: Certificate | None, limits: Limits) -> str | None:
    if certificate is None:
        return None
    return solver.stop_reason(state) or ("gap" if certificate.relative <= limits.tol else None)


class _Precision:
    """Whether rounding keeps the gap open.

    The allowance is half of the gap, or a good part of it while nothing is won; or the gap is tiny and stays, since the
    steps of the solver are rounding too.
    """

    def __init__(self) -> None:
        self._n_open, self._n_stalled, self._reference, self._confirmed = 0, 0, np.inf, np.inf
        self._n_level, self._level = 0, np.inf

    def is_better(self, confirmed: Certificate, before: Certificate | None) -> bool:
        """Whether confirming the bounds has helped, since it left less to rounding."""
        gap = min(self._confirmed, np.inf if before is None else before.gap)
        self._n_open, self._n_stalled, self._reference, self._confirmed = 0, 0, confirmed.gap, confirmed.gap
        self._n_level = 0
        return confirmed.gap <= _STALL_RATIO * gap

    def is_reached(self, certificate: Certificate, allowance: float) -> bool:
        gap = certificate.gap
        is_lower = gap <= _STALL_RATIO * self._level
        self._n_level, self._level = (0, gap) if is_lower else (self._n_level + 1, self._level)
        if self._n_level >= _MAX_LEVEL and certificate.relative <= _TINY:
            return True
        # Several times in a row: bounds are the best of all sweeps, and one sweep may be rounded more than others.
        self._n_open = self._n_open + 1 if allowance >= gap / 2 else 0
        is_better = gap <= _STALL_RATIO * self._reference or allowance <= _SMALL_PART * gap
        self._n_stalled, self._reference = (0, gap) if is_better else (self._n_stalled + 1, self._reference)
        return self._n_open >= _MAX_OPEN or self._n_stalled >= _MAX_STALLED


def _with_traffic_of_all(result: Result, comm: Communicator) -> Result:
    """The result with the traffic of all ranks in ledger and history; times stay those of this rank."""
    if comm.size == 1:
        return result
    rows: list[Mapping[str, float]] = [*result.history, result.ledger.counts()]
    local = np.array([[row[name] for name in Ledger.TRAFFIC] for row in rows], dtype=np.float64)
    everywhere = comm.allreduce(local.ravel()).reshape(local.shape)
    totals: list[dict[str, Any]] = [dict(zip(Ledger.TRAFFIC, map(int, row), strict=True)) for row in everywhere]
    history = [{**row, **total} for row, total in zip(result.history, totals, strict=False)]
    return replace(result, history=history, ledger=replace(result.ledger, **totals[-1]))
