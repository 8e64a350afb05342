"""The only loop that knows about tolerance, limits, callbacks, history and interrupts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate, Problem
from widemargin.solvers.models import KernelModel, Separator
from widemargin.solvers.protocol import AnySolver


@dataclass(frozen=True)
class Limits:
    """When to stop: relative gap, sweeps, seconds."""

    tol: float
    max_iter: int
    max_time: float = float("inf")


@record()
class Progress(NamedTuple):
    """What those who watch a fit are told after a sweep."""

    sweep: int
    certificate: Certificate | None  # the latest; None before the first
    seconds: float
    counts: dict[str, int]
    warm_state: np.ndarray | None
    model: Any


# Returns a stop reason, or None to go on. Called on rank 0 only.
Watch = Callable[[Progress], str | None]


def _check_result(result: Result) -> None:
    if not isinstance(result.model, Separator | KernelModel):
        raise ModelFileError("a result has no model")


@record(check=_check_result)
@dataclass
class Result:
    """What came out of a run: the model, its proof, why it ended, the way there, and the cost."""

    model: Any  # a separator, or whatever the solver extracts
    certificate: Certificate
    stop_reason: str
    n_iter: int
    history: list[dict[str, float]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)


_GO_ON, _BY_WATCH, _BY_TIME = 0.0, 1.0, 2.0


def run(
    solver: AnySolver,
    problem: Problem,
    shard: Shard,
    comm: Communicator,
    limits: Limits,
    rng: np.random.Generator,
    *,
    warm: np.ndarray | None = None,
    sweeps_before: int = 0,
    watch: Watch | None = None,
    watch_model: bool = False,
    watch_state: bool = False,
) -> Result:
    """Sweep until the relative gap is at most ``tol``, or say which limit ended it.

    ``warm`` is a direction to start from, ``sweeps_before`` how many sweeps it took earlier, which count.
    ``watch_model`` and ``watch_state``, equal on all ranks, hand the model so far and what a later run may start from
    to ``watch``, who is asked on rank 0 only; what it answers reaches every rank, so that all stop together.
    """
    solver.refuse_unless_solved(problem)
    begin, ledger = time.perf_counter(), comm.ledger
    history: list[dict[str, float]] = []
    with ledger.phase("start"):
        state = solver.start(problem, shard, comm, rng, warm)
        certificate = solver.certify(state)
    sweep, watched = sweeps_before, ""
    reason = _reached(solver, state, certificate, limits)
    while True:
        if reason is not None:
            with ledger.phase("certify"):
                certificate = solver.confirm(state, certificate)
            if history and history[-1]["sweep"] == sweep:
                history[-1].update(primal=certificate.primal, dual=certificate.dual)
            if reason != "gap" or certificate.relative <= limits.tol:
                break
            reason = None  # the gap was closed only as far as the solver could see
            if sweep >= limits.max_iter:
                reason = "max_iter"
                break
        with ledger.phase("sweep"):
            state = solver.sweep(state)
        sweep += 1
        with ledger.phase("certify"):
            latest = solver.certify(state)
        certificate = latest or certificate
        seconds = time.perf_counter() - begin
        if latest is not None:
            bounds = {"primal": latest.primal, "dual": latest.dual}
            more = solver.diagnostics(state)
            history.append({"sweep": sweep, "seconds": seconds, **bounds, **more, **ledger.counts()})
            reason = _reached(solver, state, latest, limits)
        warm_state = solver.warm_state(state) if watch_state and certificate is not None else None
        model = solver.extract(state) if watch_model and latest is not None else None
        signal = _GO_ON
        if comm.rank == 0:
            if watch is not None:
                watched = watch(Progress(sweep, certificate, seconds, ledger.counts(), warm_state, model)) or ""
            signal = _BY_WATCH if watched else _BY_TIME if seconds > limits.max_time else _GO_ON
        signal = comm.broadcast(np.array([signal]))[0]
        if reason is None and signal != _GO_ON:
            reason = "max_time" if signal == _BY_TIME else watched
        if reason is None and sweep >= limits.max_iter:
            reason = "max_iter"
    with ledger.phase("extract"):
        smaller = solver.compact(state)
        if smaller is not None:
            certificate, reason = smaller, "max_support" if reason == "gap" else reason
        model = solver.extract(state)
    return _with_traffic_of_all(Result(model, certificate, reason, sweep, history, ledger), comm)


def _reached(solver: AnySolver, state: Any, certificate: Certificate | None, limits: Limits) -> str | None:
    """Whether the problem itself says that this is the end, or the gap does."""
    if certificate is None:
        return None
    return solver.stop_reason(state) or ("gap" if certificate.relative <= limits.tol else None)


def _with_traffic_of_all(result: Result, comm: Communicator) -> Result:
    """What ranks put on the wire, summed over all, in the ledger and the history; times stay this rank's own."""
    rows: list[Mapping[str, float]] = [*result.history, result.ledger.counts()]
    local = np.array([[row[name] for name in Ledger.TRAFFIC] for row in rows], dtype=np.float64)
    everywhere = comm.allreduce(local.ravel()).reshape(local.shape)
    totals: list[dict[str, Any]] = [dict(zip(Ledger.TRAFFIC, map(int, row), strict=True)) for row in everywhere]
    history = [{**row, **total} for row, total in zip(result.history, totals, strict=False)]
    return replace(result, history=history, ledger=replace(result.ledger, **totals[-1]))
