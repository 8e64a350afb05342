"""What a finished model makes of its training rows, counted by the ranks or peers that hold them.

The sums of the counts over ranks are not in the ledger, nor are those of the ledger itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.codec import record
from widemargin.comm.protocol import Communicator
from widemargin.comm.solo import Solo
from widemargin.compiled.labels import counts_by_class
from widemargin.data.pieces import sum_of_pieces
from widemargin.data.shard import Shard
from widemargin.exceptions import ModelFileError
from widemargin.kernels.arrays import on_host
from widemargin.kernels.protocol import KernelRows
from widemargin.ledger import Ledger
from widemargin.peers.rows import PeerRows
from widemargin.solvers.models import KernelModel, Separator, shared_points, shared_support
from widemargin.strategies.parts import Parts

_MAX_SCORED_ROWS = 1000  # of all ranks, where every score costs a kernel value per support vector
_ROUNDING = 1e-9  # of sums of weights, relative
_SAMPLING_ERRORS = 3.0  # standard errors by which a sample must be worse than the larger class


def _check_counts(counts: TrainingCounts) -> None:
    arrays, shape = (counts.weight, counts.right, counts.given), (counts.weight.size,)
    are_vectors = all(each.dtype == np.float64 and each.shape == shape for each in arrays)
    if not are_vectors or not all(np.isfinite(each).all() and (each >= 0).all() for each in arrays):
        raise ModelFileError("counts of training rows are not vectors of one length without negative numbers")
    if not counts.weight.sum() > 0 or not 1 <= counts.n_counted <= counts.n_rows:
        raise ModelFileError("counts of training rows are of no rows")


@record(check=_check_counts)
class TrainingCounts(NamedTuple):
    """Training rows by class: weights, those classified correctly, and those that the model gives each class.

    Weights are those of the fit: ``sample_weight`` times ``class_weight``.
    """

    weight: np.ndarray  # of the rows of each class
    right: np.ndarray  # of those that are classified correctly
    given: np.ndarray  # of the rows, of any class, that the model gives this class
    n_rows: int  # with a positive weight
    n_counted: int  # fewer than ``n_rows`` if a random sample was scored
    are_columns_constant: bool = False  # for one class only: all columns in use, or all columns if none is in use

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / self.weight.sum())

    @property
    def largest_class_share(self) -> float:
        """The accuracy of a model that gives the largest class for all rows."""
        return float(self.weight.max() / self.weight.sum())

    @property
    def only_class(self) -> int | None:
        """The number of the class that all rows are given; None if they are given several."""
        given = np.flatnonzero(self.given)
        return int(given[0]) if len(given) == 1 else None

    @property
    def is_worse_than_largest_class(self) -> bool:
        """Whether the accuracy is lower; for a sample, by more than chance explains."""
        allowance = _ROUNDING
        if self.n_counted < self.n_rows:
            allowance += _SAMPLING_ERRORS * 0.5 / self.n_counted**0.5
        return self.accuracy < self.largest_class_share - allowance


@np.errstate(over="ignore", invalid="ignore")  # scores of extreme rows may overflow; they are only compared
def count_on_ranks(
    shard: Shard, parts: Parts, models: Sequence[Any], scores: Sequence[Any], comm: Communicator, seed: int
) -> TrainingCounts | None:
    """Count on every rank the rows that it holds; None for models that are neither separators nor expansions.

    ``shard`` has class numbers for labels. ``scores`` are those of all its rows in each problem, or None where the
    solver does not know them. Linear scores take one pass; of kernels, at most a sample of rows is scored again.
    """
    y, weight = shard.y, shard.weight
    if isinstance(models[0], Separator):
        of_all = shard.products(np.stack([model.coef for model in models], axis=1)).T
        scores = [each + model.intercept for each, model in zip(of_all, models, strict=True)]
    elif not isinstance(models[0], KernelModel):
        return None
    else:
        # A vote of pairs needs the scores of all pairs on all rows.
        is_unknown = any(each is None or len(each) < len(y) for each in scores)
        lacking, n_rows = comm.allreduce(np.array([float(is_unknown), float(len(y))]))
        known = _known_scores(shard.kernel, models) if lacking and comm.size == 1 else None
        if known is not None:
            scores = known
        elif lacking:
            rows = _sample(len(y), int(n_rows), np.random.default_rng([seed, comm.rank]))
            y, weight, scores = y[rows], weight[rows], _kernel_scores(shard.kernel, rows, models, parts)

    def counted(rows: slice) -> np.ndarray:
        some = np.stack([each[rows] for each in scores], axis=1)
        return _counted(y[rows].astype(np.intp), weight[rows], parts, some)

    found = sum_of_pieces(counted, len(y), 32.0)
    counts = _totals(comm.allreduce(np.append(found, float(shard.n_rows))))
    if counts.only_class is None or (shard.kernel_rows is not None and shard.kernel_rows.kernel.name == "precomputed"):
        return counts
    is_used = np.any([m.coef if isinstance(m, Separator) else np.ones(shard.n_features) for m in models], axis=0)
    return counts._replace(are_columns_constant=_are_constant(shard.blocks, is_used, comm))


@np.errstate(over="ignore", invalid="ignore")
def count_at_peers(
    everyone: Iterable[PeerRows], model: np.ndarray, n_classes: int, *, has_constant: bool
) -> TrainingCounts:
    """Count the rows of all peers; ``model`` has one row of coefficients per problem.

    ``has_constant`` says that the last column is the constant of the intercept.
    """
    parts, everyone = Parts(n_classes, "rest"), list(everyone)
    found = [_counted(rows.classes, rows.weight, parts, np.asarray(rows.X @ model.T)) for rows in everyone]
    counts = _totals(np.append(np.sum(found, axis=0), float(sum(rows.n_rows for rows in everyone))))
    if counts.only_class is None:
        return counts
    n_features = model.shape[1] - has_constant
    is_used: np.ndarray = np.any(model[:, :n_features], axis=0)
    blocks = [rows.X[:, :n_features] for rows in everyone]
    return counts._replace(are_columns_constant=_are_constant(blocks, is_used, Solo()))


def _counted(codes: np.ndarray, weight: np.ndarray, parts: Parts, scores: np.ndarray) -> np.ndarray:
    """Weights of the rows of each class, of those that are right, of those given each class; the number of rows."""
    given = parts.winners(parts.class_scores(scores))
    return np.append(counts_by_class(codes, given, weight, parts.n_classes), float(len(codes)))


def _totals(found: np.ndarray) -> TrainingCounts:
    """The counts from sums over ranks or peers: those of :func:`_counted`, and the number of all rows."""
    weight, right, given = found[:-2].reshape(3, -1).copy()
    return TrainingCounts(weight, right, given, n_rows=int(found[-1]), n_counted=int(found[-2]))


def _sample(n_here: int, n_everywhere: int, rng: np.random.Generator) -> np.ndarray:
    """Ascending places of this rank's share of a random sample of all rows; all rows if they are few."""
    if n_everywhere <= _MAX_SCORED_ROWS:
        return np.arange(n_here)
    return np.sort(rng.choice(n_here, -(-_MAX_SCORED_ROWS * n_here // n_everywhere), replace=False))


def _known_scores(rows: KernelRows, models: Sequence[KernelModel]) -> list[np.ndarray] | None:
    """Scores of all rows, where all kernel values are kept."""
    times = rows.times_known(*shared_support(models))
    return None if times is None else list(times + np.array([[model.intercept] for model in models]))


def _kernel_scores(
    rows: KernelRows, places: np.ndarray, models: Sequence[KernelModel], parts: Parts
) -> list[np.ndarray]:
    """Scores of some rows in one pass over the support vectors of all models."""
    some = rows.only(places) if len(places) < rows.n_rows else rows
    support, coef = shared_support(models)
    own = np.searchsorted(rows.numbers, support)
    if np.array_equal(rows.numbers[own[own < rows.n_rows]], support):  # of this rank alone, where they are at hand
        points = rows.points(rows.places(own))
    else:
        points = shared_points(models, support)
    before, some.ledger = some.ledger, Ledger()
    try:
        scores = np.asarray(on_host(parts.kernel_sums(some, points, coef)))
    finally:
        some.ledger = before
    return list((scores + [model.intercept for model in models]).T)


def _are_constant(blocks: Sequence[Any], is_used: np.ndarray, comm: Communicator) -> bool:
    """Whether each column in use has one value on the rows of all ranks; of all columns if none is in use."""
    if not all(isinstance(block, np.ndarray) or sp.issparse(block) for block in blocks):
        return False  # rows on another device
    columns = np.flatnonzero(is_used) if is_used.any() else np.arange(len(is_used))
    ends = np.full((2, len(columns)), -np.inf)  # the largest value, and the smallest with the other sign
    for block in blocks:
        if block.shape[0]:
            taken = block if len(columns) == block.shape[1] else block[:, columns]
            for k, most in enumerate((taken.max(axis=0), -taken.min(axis=0))):
                ends[k] = np.maximum(ends[k], most.toarray().ravel() if sp.issparse(most) else most)
    largest, smallest = comm.allreduce(ends.ravel(), "max").reshape(2, -1) * [[1.0], [-1.0]]
    return bool((largest == smallest).all())
