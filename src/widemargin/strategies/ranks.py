"""Fits on ranks: every rank runs the same code on its own rows; a serial fit has one rank."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from widemargin import cores
from widemargin.checkpoint import FitState
from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.comm.solo import Solo
from widemargin.data.pieces import distinct_labels, encoded, places_of, sums_by_class
from widemargin.data.shard import Shard
from widemargin.engines.select import launch
from widemargin.kernels.arrays import on_host
from widemargin.kernels.devices import kernel_rows
from widemargin.kernels.functions import Kernel
from widemargin.kernels.protocol import Lane
from widemargin.ledger import Ledger
from widemargin.solvers.models import without_training_rows
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Finished, Offer, Start, Watched, sweeps
from widemargin.strategies.labels import agree, check_classes, checked, weights_of_classes
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Outcome, PartProgress, Plan, Rows, Support, Watch, watch_part
from widemargin.strategies.training import count_on_ranks

_MAX_COMPARED = 8  # rows
_NO_STATE, _OUR_STATE, _FOREIGN_STATE = 0.0, 1.0, 2.0
_OVER = object()
_PARTS_PER_THREAD = 3  # that begin together: some take longer than others
_SHARE_FOR_STATES = 0.02  # of the time of a fit, for states from which it can go on after a loss


class Resume(NamedTuple):
    """The content of the checkpoint folder: a state to resume from, nothing, or the error that makes it unusable."""

    state: FitState | None
    error: str | None = None


class Prepared(NamedTuple):
    """The rows of one rank, ready for the solver."""

    shard: Shard  # with the kernel on its rows, if there is one
    classes: np.ndarray
    parts: Parts
    width: int  # length of a warm state: the number of features, or of rows on all ranks
    seed: int
    numbers: np.ndarray  # of the rows, among those of all ranks


class _LateGenerator:
    """``numpy.random.default_rng(seed)``, made when it is first used: on few rows that would take long."""

    def __init__(self, seed: list[int]) -> None:
        self._seed = seed

    @cached_property
    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self._seed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._generator, name)


class StateRule:
    """When a report has the state, against losses: to make and send one takes at most a fiftieth of the time of a fit.

    The first sweep has one. Then small states go with a report several times a second, large ones more rarely.
    """

    def __init__(self) -> None:
        self._cost, self._at = 0.0, time.perf_counter()

    def __call__(self, sweep: int, cost: float | None) -> bool:
        """Whether the report of this sweep shall have the state; ``cost`` is the seconds of the one just made."""
        if cost is not None:
            self._cost, self._at = cost, time.perf_counter()
        return time.perf_counter() - self._at >= self._cost / _SHARE_FOR_STATES


@dataclass(frozen=True)
class Ranks:
    """A fit on ranks; plain data, the same on all ranks, so that it can be sent to other processes."""

    plan: Plan
    solver: AnySolver
    kernel: Kernel | None = None
    device: str = "cpu"  # or the torch device that computes the kernel
    precision: str = "auto"  # of rows on a torch device
    cache_bytes: int = 0  # for kernel values of parts that are computed side by side
    counts_weight: bool = True  # False: a row of positive weight counts once
    warm: np.ndarray | None = None  # warm state of each part
    are_rows_checked: bool = True  # False: each rank checks its own rows
    resume: Resume | None = None  # None: no checkpoints
    if_lost: Literal["recompute", "leave out", "raise"] = "recompute"  # what to do with the rows of a lost machine
    kept: Mapping[int, Start] = field(default_factory=dict)  # of each part, since a machine was lost

    @property
    def name(self) -> str:
        return self.plan.name

    def run(self, rows: Rows, place: Any, watch: Watch) -> Outcome:
        """Run the fit on ``place``; returns the outcome of rank 0."""
        outcome: Outcome = launch(rows, place, self, watch)
        return outcome

    def after(self, report: PartProgress) -> Ranks:
        """The fit that goes on from the state in a report; those that leave rows out begin again, as other fits."""
        sweep, _, seconds, _, warm, _ = report.progress
        if warm is None or self.if_lost != "recompute":
            return self
        return replace(self, kept={**self.kept, report.part: Start(warm, sweep, seconds)})

    def run_on_rank(
        self, rows: Rows, comm: Communicator, watch: Watch | None, *, may_lose_ranks: bool = False
    ) -> Outcome:
        with cores.one_blas_thread():
            return self._run_on_rank(rows, comm, watch, may_lose_ranks)

    def _run_on_rank(self, rows: Rows, comm: Communicator, watch: Watch | None, may_lose_ranks: bool) -> Outcome:
        prepared = self.prepare(rows, comm)
        shard, classes, parts, width, seed, numbers = prepared
        first = comm.ledger  # has the cost of `prepare`
        fresh = None if self.resume is None else self._fresh_state(prepared, comm)
        warm, n_sweeps = self._start(fresh, (len(parts), width), comm)
        if fresh is not None and warm is not None and n_sweeps.any():
            fresh = fresh._replace(directions=warm, sweeps=n_sweeps)
        has_state: bool | StateRule = fresh is not None or (may_lose_ranks and StateRule())
        lanes = self._lanes(shard, len(parts), comm)
        found: dict[int, Finished] = {}
        places: dict[int, np.ndarray | slice] = {}  # of the rows of each part

        n_ahead = self._n_ahead(len(parts), comm)
        has_several = len(lanes) > 1 or n_ahead > 1

        def part(k: int) -> Generator[Offer | None, Any, None]:
            own, labelled = Solo() if has_several else comm, parts.labelled(shard, k)
            own.ledger = first if k == 0 else Ledger()
            places[k] = slice(None) if labelled.whole is None or labelled.whole[1] is None else labelled.whole[1]
            if labelled.kernel_rows is not None:
                if has_several:
                    labelled = replace(labelled, kernel_rows=copy(labelled.kernel_rows))
                labelled.kernel.ledger = own.ledger
            begin = self.kept.get(k) or Start(None if warm is None else warm[k], int(n_sweeps[k]))
            if begin.warm is not None and not begin.warm.any():
                begin = begin._replace(warm=None)
            # Ctrl-C ends the whole fit: the parts that are left only start.
            if any(each.told == "interrupted" for each in found.values()):
                begin = begin._replace(told="interrupted")
            watched = Watched(
                None if watch is None else watch_part(watch, k, classes, fresh), self.plan.watch_model, has_state
            )
            rng = cast(np.random.Generator, _LateGenerator([seed, k]))
            found[k] = yield from sweeps(
                self.solver, self.plan.problem, labelled, own, self.plan.limits, rng, begin, watched
            )

        if len(lanes) > 1:
            _in_turn(map(part, range(len(parts))), lanes)
        else:
            _in_order(map(part, range(len(parts))), n_ahead, self.cache_bytes)
        finished = [found[k] for k in range(len(parts))]
        results = [each.result for each in finished]
        with results[-1].ledger.phase("count"):
            models = [result.model for result in results]
            training = count_on_ranks(shard, parts, models, [each.scores for each in finished], comm, seed)
            support = [
                None if each.coefficients is None else _support(numbers[places[k]], each.coefficients, comm)
                for k, each in enumerate(finished)
            ]
            for result, model in zip(results, without_training_rows(models), strict=True):
                result.model = model
        complete = [each for each in support if each is not None]
        return Outcome(
            classes,
            results,
            shard.n_features,
            training=training,
            support=complete if len(complete) == len(parts) else None,
        )

    def _lanes(self, shard: Shard, n_parts: int, comm: Communicator) -> list[Lane]:
        """Several where a device computes while this process prepares other parts, and no part has a limit of time."""
        if shard.kernel_rows is None or n_parts == 1 or comm.size > 1 or self.plan.limits.max_time < np.inf:
            return [nullcontext]
        largest = int(np.bincount(shard.y.astype(np.intp)).max())
        return shard.kernel_rows.lanes(
            min(2 * largest, shard.n_rows) if self.plan.multi_class == "pairs" else shard.n_rows
        )

    def _n_ahead(self, n_parts: int, comm: Communicator) -> int:
        """How many parts may have begun at the same time; one where a part has a limit of time."""
        is_alone = self.kernel is None or comm.size > 1 or self.plan.limits.max_time < np.inf
        return 1 if is_alone or cores.n_threads() == 1 else min(_PARTS_PER_THREAD * cores.n_threads(), n_parts)

    def prepare(self, rows: Rows, comm: Communicator) -> Prepared:
        """Check and prepare the rows of this rank; raises ValueError if a problem is infeasible."""
        with comm.ledger.phase("encode"):
            shard, multiplicity, numbers, n_rows, classes, totals, seed = self._join(rows, comm)
        parts = Parts(len(classes), self.plan.multi_class)
        for weights in parts.weights(totals):
            self.plan.problem.check(*weights)
        if self.kernel is None:
            return Prepared(shard, classes, parts, shard.n_features, seed, numbers)
        if self.kernel.name == "precomputed" and shard.n_features != n_rows:
            raise ValueError(
                f"kernel='precomputed' needs a square X, the values of all pairs of rows; X has {n_rows} rows and "
                f"{shard.n_features} columns."
            )
        on_rows = kernel_rows(
            self.kernel, shard.X, numbers, comm.ledger, device=self.device, precision=self.precision,
            reduce=comm.allreduce, n_everywhere=n_rows, weight=multiplicity,
        )  # fmt: skip
        on_rows.groups, on_rows.n_problems = shard.y if parts.are_votes else None, len(parts)
        return Prepared(replace(shard, kernel_rows=on_rows), classes, parts, n_rows, seed, numbers)

    def _fresh_state(self, prepared: Prepared, comm: Communicator) -> FitState:
        """The state before the first sweep, with a hash by which the data are recognised."""
        shard, classes, parts, width, _, numbers = prepared
        on_cpu = Shard([on_host(block) for block in shard.blocks], shard.y, shard.weight)
        n_rows, content = comm.allreduce(np.array([shard.n_rows, on_cpu.content_hash(numbers)], np.uint64))
        data = np.array([n_rows, shard.n_features, content], np.uint64)
        name = f"{self.name} {self.plan.problem!r} {self.plan.multi_class} {classes.tolist()!r}"
        name += "" if self.kernel is None else f" {self.kernel}{digest_of_values(self.kernel, on_cpu)}"
        return FitState(name, data, np.zeros((len(parts), width)), np.zeros(len(parts), np.int64))

    def _start(
        self, fresh: FitState | None, shape: tuple[int, int], comm: Communicator
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Warm states, if any, and the number of sweeps behind them; only rank 0 has the checkpoint."""
        if fresh is not None:
            found = np.array([_NO_STATE])
            if comm.rank == 0 and self.resume is not None and self.resume.state is not None:
                state = self.resume.state
                is_ours = state.belongs_to(fresh)
                content = [state.sweeps, state.directions.ravel()] if is_ours else []
                found = np.concatenate([[_OUR_STATE if is_ours else _FOREIGN_STATE], *content])
            found = comm.broadcast(found)
            if found[0] == _FOREIGN_STATE:
                raise ValueError(
                    f"The checkpoint belongs to another fit or to other data, not to this fit ({fresh.task}). Delete "
                    "it, or choose another folder."
                )
            if found[0] == _OUR_STATE:
                return found[1 + shape[0] :].reshape(shape), found[1 : 1 + shape[0]].astype(np.int64)
        none = np.zeros(shape[0], np.int64)
        return (self.warm, none) if self.warm is not None and self.warm.shape == shape else (None, none)

    def _join(
        self, rows: Rows, comm: Communicator
    ) -> tuple[Shard, np.ndarray, np.ndarray, int, np.ndarray, np.ndarray, int]:
        """Check this rank's rows, and agree with the others on classes and their weights; fails on all ranks or none.

        Returns the rows of positive weight, with class weights applied; their sample weights; their row numbers over
        all ranks, and the number of rows there; the classes, the weight of each class, and the seed.
        """
        note: dict[str, Any] = {}
        try:
            if self.resume is not None and self.resume.error is not None:
                raise ValueError(self.resume.error)
            X, y, weight, _ = rows if self.are_rows_checked else checked(rows, self.plan.problem)
            shard = Shard(X, y, weight)
            is_whole = bool(weight.all())
            note = {"labels": distinct_labels(y if is_whole else y[weight > 0]), "n_features": shard.n_features}
        except Exception as error:
            note = {"error": str(error), "kind": type(error).__name__, "traceback": traceback.format_exc()}
        # Under MPI each rank drew its own seed; all must use the same.
        classes, seed = agree({**note, "seed": self.plan.seed}, comm)
        check_classes(classes, self.name)
        numbers = row_numbers(shard, rows.parts, comm)
        n_rows = int(comm.allreduce(np.array([float(shard.n_rows)]))[0])
        if not is_whole:
            present = np.flatnonzero(weight)
            shard, numbers = shard.take(present), numbers[present]
        codes = encoded(shard.y, classes)
        weight = multiplicity = shard.weight if self.counts_weight else np.ones(shard.n_rows)
        totals = comm.allreduce(sums_by_class(codes, weight, len(classes)))
        if self.plan.class_weight is not None:
            factors = weights_of_classes(self.plan.class_weight, classes, totals)
            weight, totals = weight * factors[codes.astype(np.intp)], totals * factors
        shard = Shard(shard.X, codes, weight)
        return shard, multiplicity, numbers, n_rows, classes, totals, seed


def _support(numbers: np.ndarray, coef: np.ndarray, comm: Communicator) -> Support:
    """The rows of all ranks that have a coefficient; on other ranks than 0, those of this rank."""
    some = places_of(lambda rows: coef[rows], len(coef))
    numbers, coef = numbers[some], coef[some]
    if comm.size == 1 and bool((numbers[1:] > numbers[:-1]).all()):
        return Support(numbers, coef)
    gathered = comm.gather(np.concatenate([numbers.astype(np.float64), coef]))
    pieces = [each.reshape(2, -1) for each in (gathered or [np.stack([numbers, coef]).ravel()])]
    everything = np.concatenate(pieces, axis=1)
    everything = everything[:, np.argsort(everything[0], kind="stable")]
    return Support(everything[0].astype(np.intp), everything[1])


def _in_turn(runs: Iterator[Iterator[Any]], lanes: Sequence[Lane]) -> None:
    """Let each lane take the next run when its last one is over, and do one step of the run of each lane in turn."""
    busy = [(lane, run) for lane, run in zip(lanes, runs, strict=False)]
    while busy:
        going = []
        for lane, run in busy:
            with lane():
                following: Iterator[Any] | None = run
                if next(run, _OVER) is _OVER:
                    following = next(runs, None)
            if following is not None:
                going.append((lane, following))
        busy = going


def _in_order(runs: Iterator[Generator[Offer | None, Any, None]], n_ahead: int, n_bytes: int) -> None:
    """Let one run after the other come to its end.

    The first sweeps that runs offer are computed ahead, side by side on the cores: those of up to ``n_ahead`` runs, and
    of runs that together need ``n_bytes``. Whatever is reported is reported in the order of the runs.
    """
    begun: list[tuple[Generator[Offer | None, Any, None], Offer]] = []

    def finish() -> None:
        swept: list[Any] = [None] * len(begun)

        def sweep(k: int) -> None:
            swept[k] = begun[k][1].do()

        if len(begun) > 1:
            cores.each(sweep, range(len(begun)), np.inf)
        for k, (run, _) in enumerate(begun):
            with suppress(StopIteration):
                run.send(swept[k])
                swept[k] = None
                deque(run, maxlen=0)
        begun.clear()

    for run in runs:
        offer = next(run, None) if n_ahead > 1 else None
        if offer is None:
            finish()
            deque(run, maxlen=0)
            continue
        begun.append((run, offer))
        if len(begun) >= n_ahead or sum(each.n_bytes for _, each in begun) + offer.n_bytes > n_bytes:
            finish()
    finish()


def row_numbers(shard: Shard, parts: list[int] | None, comm: Communicator) -> np.ndarray:
    """The numbers of this rank's rows among those of all: in the order of ranks, or of the parts of a collection."""
    if parts is None:
        place = place_among_ranks(comm, shard.n_rows)
        return np.arange(place.start, place.stop)
    n_parts = int(comm.allreduce(np.array([1.0 + max(parts)]), "max")[0])
    counts = np.zeros(n_parts)
    counts[parts] = [block.shape[0] for block in shard.blocks]
    ends = np.cumsum(comm.allreduce(counts)).astype(np.intp)
    return np.concatenate([np.arange(ends[k] - int(counts[k]), ends[k]) for k in parts])


def digest_of_values(kernel: Kernel, shard: Shard) -> str:
    """Of a kernel that is a function, whose name does not say what it computes: a digest of a few of its values."""
    few = shard.blocks[0][:_MAX_COMPARED]
    if kernel.function is None or not few.shape[0]:
        return ""
    values = np.asarray(kernel.function(few, few), dtype=np.float64).ravel()
    return " " + hashlib.sha256(" ".join(f"{value:.9g}" for value in values).encode()).hexdigest()[:16]
