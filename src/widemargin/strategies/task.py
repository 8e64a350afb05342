"""What every rank does in a fit: check its rows, agree on the classes, solve one problem for each pair of them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from widemargin.checkpoint import FitState
from widemargin.comm.protocol import Communicator, place_among_ranks
from widemargin.data.shard import Shard
from widemargin.kernels.devices import library_of
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import KernelModel, Separator
from widemargin.solvers.protocol import Solver
from widemargin.solvers.run import Limits, Progress, run
from widemargin.strategies.protocol import Outcome, Rows

FLOATS = [np.float64, np.float32]
_NO_STATE, _OUR_STATE, _FOREIGN_STATE = 0.0, 1.0, 2.0


class Prepared(NamedTuple):
    """The rows of one rank, ready for the problems of all parts."""

    shard: Shard  # with a kernel on its rows, if there is one
    classes: np.ndarray
    parts: list[tuple[int, int | None]]  # positive and negative class of each problem
    width: int  # of a direction: one number for each feature, or for each row of all ranks
    seed: int


# Told which part of the fit a sweep belongs to, all classes, and how the fit began; returns a stop reason or None.
PartWatch = Callable[[int, np.ndarray, FitState | None, Progress], str | None]


@dataclass(frozen=True)
class Task:
    """What all ranks are told alike; plain data, so that it can travel."""

    name: str
    problem: Any
    solver: Solver
    limits: Limits
    seed: int
    kernel: Kernel | None = None
    device: str = "cpu"  # or that of torch, which the kernel is computed on
    precision: str = "float16"  # of rows on such a device
    one_vs_rest: bool = False
    class_weight: Any = None
    counts_weight: bool = True  # False: weights matter as present or absent only
    warm: np.ndarray | None = None  # what to start from, for each part
    watch_model: bool = False
    are_rows_checked: bool = True  # False: they come from elsewhere, and each rank checks its own
    keeps_state: bool = False  # whether the data are marked, for a checkpoint
    resume: FitState | None = None
    resume_error: str | None = None  # why a checkpoint that is there cannot be used
    if_lost: Literal["recompute", "leave out", "raise"] = "recompute"  # what becomes of the rows of a lost machine

    def run_on_rank(self, rows: Rows, comm: Communicator, watch: PartWatch | None) -> Outcome:
        """The whole fit, as one rank lives it."""
        shard, classes, parts, width, seed = self.prepare(rows, comm)
        encode = comm.ledger
        fresh = self._fresh_state(shard, classes, width, comm) if self.keeps_state else None
        warm, sweeps = self._start(fresh, (len(parts), width), comm)
        results = []
        for k, part in enumerate(parts):
            comm.ledger = encode if k == 0 else Ledger()
            if self.kernel is not None:
                shard.kernel.ledger = comm.ledger
            watch_part = None if watch is None else partial(watch, k, classes, fresh)
            result = run(
                self.solver,
                self.problem,
                self.labelled(shard, part),
                comm,
                self.limits,
                np.random.default_rng([seed, k]),
                warm=None if warm is None or not warm[k].any() else warm[k],
                sweeps_before=int(sweeps[k]),
                watch=watch_part,
                watch_model=self.watch_model,
                watch_state=self.keeps_state,
            )
            results.append(result)
        return Outcome(classes, results, shard.n_features)

    def prepare(self, rows: Rows, comm: Communicator) -> Prepared:
        """All that comes before the first problem is solved; what is infeasible is refused here."""
        with comm.ledger.phase("encode"):
            shard, multiplicity, numbers, n_rows, classes, totals, seed = self.join(rows, comm)
        parts = self.parts_of(len(classes))
        for positive, negative in parts:
            rest = totals.sum() - totals[positive] if negative is None else totals[negative]
            self.problem.check(totals[positive], rest)
        if self.kernel is None:
            return Prepared(shard, classes, parts, shard.n_features, seed)
        return Prepared(self.bound(shard, multiplicity, numbers, n_rows, comm), classes, parts, n_rows, seed)

    @staticmethod
    def labelled(shard: Shard, part: tuple[int, int | None]) -> Shard:
        """The rows of one problem, with labels of -1 and +1."""
        positive, negative = part
        return shard.against_rest(positive) if negative is None else shard.between(positive, negative)

    def parts_of(self, n_classes: int) -> list[tuple[int, int | None]]:
        """Positive and negative class of each problem; None is all others.

        With two classes a positive score means the second one; pairs of more read as in LIBSVM, first against second.
        """
        if n_classes == 2:
            return [(1, 0)]
        if self.one_vs_rest:
            return [(positive, None) for positive in range(n_classes)]
        return list(combinations(range(n_classes), 2))

    def bound(
        self, shard: Shard, multiplicity: np.ndarray, numbers: np.ndarray, n_rows: int, comm: Communicator
    ) -> Shard:
        """The shard with the kernel on its rows."""
        assert self.kernel is not None
        if self.kernel.name == "precomputed" and shard.n_features != n_rows:
            raise ValueError(
                f"kernel='precomputed' needs the kernel values of all pairs of rows: there are {n_rows} rows and "
                f"{shard.n_features} columns, and X must be square."
            )
        if self.device != "cpu":
            return replace(shard, kernel=self._on_device(shard, multiplicity, numbers, n_rows, comm))
        kernel = self.kernel.resolved(shard, comm.allreduce, multiplicity)
        rows = RowsOnCPU(kernel, shard.X, numbers, comm.ledger, comm.allreduce, n_rows)
        return replace(shard, kernel=rows)

    def _on_device(
        self, shard: Shard, multiplicity: np.ndarray, numbers: np.ndarray, n_rows: int, comm: Communicator
    ) -> Any:
        """The kernel on rows that lie on a torch device."""
        from widemargin.kernels.on_torch import RowsOnTorch, resolved_there

        assert self.kernel is not None
        is_here = library_of(shard.blocks[0]) == "host"
        resolve = self.kernel.resolved if is_here else partial(resolved_there, self.kernel)
        kernel = resolve(shard, comm.allreduce, multiplicity)
        return RowsOnTorch(kernel, shard.X, numbers, comm.ledger, n_rows, device=self.device, precision=self.precision)

    def _fresh_state(self, shard: Shard, classes: np.ndarray, width: int, comm: Communicator) -> FitState:
        """The state of a fit that has not begun, with marks of the data."""
        weights = np.bincount(shard.y.astype(np.intp), shard.weight, len(classes))
        marks = comm.allreduce(np.concatenate([weights, shard.combine(shard.weight)]))
        n_parts = len(self.parts_of(len(classes)))
        name = f"{self.name} {self.problem!r} {classes.tolist()!r}"
        name += "" if self.kernel is None else f" {shard.kernel.kernel}"
        return FitState(name, marks, np.zeros((n_parts, width)), np.zeros(n_parts, np.int64))

    def _start(
        self, fresh: FitState | None, shape: tuple[int, int], comm: Communicator
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Directions to start from, if any, and the sweeps that led to them; rank 0 alone has read a checkpoint."""
        if fresh is not None:
            found = np.array([_NO_STATE])
            if comm.rank == 0 and self.resume is not None:
                is_ours = self.resume.belongs_to(fresh.task, fresh.marks)
                state = [self.resume.sweeps, self.resume.directions.ravel()] if is_ours else []
                found = np.concatenate([[_OUR_STATE if is_ours else _FOREIGN_STATE], *state])
            found = comm.broadcast(found)
            if found[0] == _FOREIGN_STATE:
                raise ValueError(
                    f"The checkpoint belongs to another fit, or to other data, than this one ({fresh.task}). Delete "
                    "it, or choose another folder."
                )
            if found[0] == _OUR_STATE:
                return found[1 + shape[0] :].reshape(shape), found[1 : 1 + shape[0]].astype(np.int64)
        none = np.zeros(shape[0], np.int64)
        return (self.warm, none) if self.warm is not None and self.warm.shape == shape else (None, none)

    @staticmethod
    def rows_of_parts(parts: list[tuple[Any, Any, Any]]) -> Rows:
        """Rows that came in several parts, which are not joined."""
        X, y, weight = zip(*parts, strict=True)
        return Rows(list(X), list(y), None if weight[0] is None else list(weight))

    @staticmethod
    def encode_progress(part: int, classes: np.ndarray, fresh: FitState | None, progress: Progress) -> dict[str, Any]:
        """A report as plain data, to be sent to where the user is."""
        model = progress.model
        state = None if fresh is None else [fresh.task, fresh.marks.tolist(), list(fresh.directions.shape)]
        return {
            "part": part,
            "labels": classes.tolist(),
            "dtype": classes.dtype.str,
            "sweep": progress.sweep,
            "certificate": progress.certificate and [float(bound) for bound in progress.certificate],
            "seconds": progress.seconds,
            "counts": progress.counts,
            "direction": None if progress.warm_state is None else progress.warm_state.tolist(),
            "state": state,
            "model": None if model is None else encode_model(model),
        }

    @staticmethod
    def decode_progress(report: dict[str, Any]) -> tuple[int, np.ndarray, FitState | None, Progress]:
        """The twin of :meth:`encode_progress`."""
        model = fresh = None
        if report["state"] is not None:
            name, marks, shape = report["state"]
            fresh = FitState(name, np.array(marks), np.zeros(shape), np.zeros(shape[0], np.int64))
        if report["model"] is not None:
            model = decode_model(report["model"])
        certificate = report["certificate"] and Certificate(*report["certificate"])
        direction = None if report["direction"] is None else np.array(report["direction"])
        progress = Progress(report["sweep"], certificate, report["seconds"], report["counts"], direction, model)
        return report["part"], np.array(report["labels"], dtype=report["dtype"]), fresh, progress

    def join(
        self, rows: Rows, comm: Communicator
    ) -> tuple[Shard, np.ndarray, np.ndarray, int, np.ndarray, np.ndarray, int]:
        """Check this rank's rows and agree with the others on classes and their weights; fails on all ranks or none.

        The shard has the rows of some weight, times that of their class; then their weights alone, their numbers among
        the rows of all ranks and how many those are, the classes, the weight of each, and the seed.
        """
        note: dict[str, Any] = {}
        try:
            if self.resume_error is not None:
                raise ValueError(self.resume_error)
            X, y, weight = rows if self.are_rows_checked else checked(rows)
            shard = Shard(X, y, weight)
            labels = np.unique(y if weight.all() else y[weight > 0])
            note = {"labels": labels.tolist(), "dtype": labels.dtype.str, "n_features": shard.n_features}
        except Exception as error:
            note = {"error": str(error), "kind": type(error).__name__, "traceback": traceback.format_exc()}
        # Under MPI each rank drew a seed of its own; what is random must be the same on all.
        classes, seed = _agree({**note, "seed": self.seed}, comm)
        check_classes(classes, self.name)
        first = place_among_ranks(comm, shard.n_rows).start
        n_rows = int(comm.allreduce(np.array([float(shard.n_rows)]))[0])
        present = np.flatnonzero(weight)
        if len(present) < shard.n_rows:
            shard = shard.take(present)
        codes = np.searchsorted(classes, shard.y)
        weight = shard.weight if self.counts_weight else np.ones(len(present))
        multiplicity = weight
        totals = comm.allreduce(np.bincount(codes, weight, len(classes)))
        if self.class_weight is not None:
            factors = weights_of_classes(self.class_weight, classes, totals)
            weight, totals = weight * factors[codes], totals * factors
        shard = Shard(shard.X, codes.astype(np.float64), weight)
        return shard, multiplicity, first + present, n_rows, classes, totals, seed


def encode_model(model: Separator | KernelModel) -> dict[str, Any]:
    """A model as plain data."""
    report = {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in model.report.items()}
    plain = {"coef": model.coef.tolist(), "intercept": model.intercept, "report": report}
    if isinstance(model, KernelModel):
        X = model.points.X
        arrays = [[each.dtype.str, each.tolist()] for each in model.points.pack()]
        plain["points"] = {"is_sparse": sp.issparse(X), "n_features": X.shape[1], "arrays": arrays}
        plain["kernel"] = {**vars(model.kernel), "function": None}  # the user's function is known where the user is
    return plain


def decode_model(plain: dict[str, Any]) -> Separator | KernelModel:
    """The twin of :func:`encode_model`."""
    coef, intercept, report = np.array(plain["coef"]), plain["intercept"], plain["report"]
    if "points" not in plain:
        return Separator(coef, intercept, report)
    d = plain["points"]["n_features"]
    empty = Points(sp.csr_matrix((0, d)) if plain["points"]["is_sparse"] else np.empty((0, d)), np.empty(0, int))
    arrays = [np.array(values, dtype=kind) for kind, values in plain["points"]["arrays"]]
    return KernelModel(Kernel(**plain["kernel"]), empty.unpack(arrays), coef, intercept, report)


def classes_of(labels: Sequence[np.ndarray]) -> np.ndarray:
    """The classes of all who have rows, in order, in the type that they have them in; an error where types differ."""
    some = [each for each in labels if len(each)]
    if len({each.dtype.kind in "OUS" for each in some}) > 1:
        raise ValueError(
            "Labels are numbers in one part of the rows and text in another: they must be of one kind in all."
        )
    return np.unique(np.concatenate(some)) if some else np.empty(0)


def check_classes(classes: np.ndarray, name: str) -> None:
    """An error that names an estimator whose rows are all of one class."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs at least 2 classes with rows of positive weight, and got {len(classes)} class(es): "
            f"{classes.tolist()}."
        )


def weights_of_classes(class_weight: Any, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The factor of each class: given by label, or ``"balanced"``, which gives all classes the same total."""
    if isinstance(class_weight, str):
        return np.asarray(totals.sum() / (len(classes) * totals))
    known = classes.tolist()
    factors = np.array([class_weight.get(label, 1.0) for label in known], dtype=np.float64)
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(f"class_weight names {unknown}, which are not among the classes {known}.")
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(f"class_weight={class_weight!r} must give every class a positive, finite weight.")
    return factors


def checked(rows: Rows) -> Rows:
    """Pieces of rows fit for the compiled passes, labels, and a weight for each row."""
    pieces = rows.X if isinstance(rows.X, list) else [rows.X]
    X = [
        _canonical(check_array(piece, accept_sparse="csr", dtype=FLOATS, order="C", ensure_min_samples=0))
        for piece in pieces
    ]
    y = column_or_1d(np.concatenate(rows.y) if isinstance(rows.y, list) else rows.y)
    weight = np.concatenate(rows.weight) if isinstance(rows.weight, list) else rows.weight
    n_rows = sum(piece.shape[0] for piece in X)
    check_consistent_length(y, np.empty(n_rows))
    return checked_labels(Rows(X, y, weight), n_rows, are_all=False)


def checked_labels(rows: Rows, n_rows: int, *, are_all: bool = True) -> Rows:
    """The same rows with labels fit for classification and a weight each, none negative; if these are all rows of a
    fit, some positive.
    """
    check_classification_targets(rows.y)
    weight = _check_sample_weight(
        rows.weight,
        np.empty((n_rows, 1)),
        dtype=np.float64,
        ensure_non_negative=True,
        allow_all_zero_weights=not are_all,
    )
    return Rows(_canonical(rows.X), np.asarray(rows.y), np.asarray(weight))


def _canonical(X: Any) -> Any:
    """Sparse rows with no entry given twice; others as they are."""
    if not sp.issparse(X) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def _agree(note: dict[str, Any], comm: Communicator) -> tuple[np.ndarray, int]:
    """Put the notes of all ranks together at rank 0; all classes and one seed, or an error that is raised on all."""
    gathered = comm.gather(_packed(note))
    joined = None if gathered is None else _packed(_merge([_unpacked(each) for each in gathered]))
    outcome = _unpacked(comm.broadcast(joined))
    if "error" in outcome:
        raise {"ValueError": ValueError, "TypeError": TypeError}.get(outcome["kind"], RuntimeError)(outcome["error"])
    return np.array(outcome["labels"], dtype=np.dtype(outcome["dtype"])), outcome["seed"]


def _merge(notes: list[dict[str, Any]]) -> dict[str, Any]:
    """All labels in order, in the type that the ranks have them in; or the first error."""
    for rank, note in enumerate(notes):
        if "error" in note and len(notes) > 1:
            return {"error": f"On rank {rank}: {note['error']}\n\n{note['traceback']}", "kind": note["kind"]}
        if "error" in note:
            return note
    widths = sorted({note["n_features"] for note in notes})
    if len(widths) > 1:
        return {"error": f"Ranks disagree on the number of features: {widths}.", "kind": "ValueError"}
    try:
        labels = classes_of([np.array(note["labels"], dtype=np.dtype(note["dtype"])) for note in notes])
    except ValueError as error:
        return {"error": str(error), "kind": "ValueError"}
    return {"labels": labels.tolist(), "dtype": labels.dtype.str, "seed": notes[0]["seed"]}


def _packed(value: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def _unpacked(text: np.ndarray) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text.tobytes())
    return value
