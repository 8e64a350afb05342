"""Consensus among neighbours by letters that may get lost: one-way relaxed ADMM for the linear SVM.

    minimise  sum_i f_i(w_i)   subject to  w_i = w_j for neighbours
    with      f_i(w) = sum of own hinge losses + alpha n_i/2 ||w||^2

Peer i keeps for each neighbour j a centre c_ij (where j stands) and a price p_ij (of standing elsewhere), and works on

    w_i = argmin  f_i(w) + sum_j  rho/2 ||w - c_ij||_M^2 - p_ij . w        by coordinate passes over its dual variables

It writes to j:   w_i   and   p_ij + rho M (c_ij - w_i),  its side of the price. Who receives  (w, p)  sets

    c <- (1 - a) c + a w         p <- (1 - a) p - a p',       a = 0.9

Nothing is acknowledged: a letter that is lost changes nothing, one that is older than the last is dropped. [1] keeps
z = rho c + p as one vector; kept apart they stay true when rho or M change, and at the end c = w and prices of both
sides cancel, whatever rho and M were. A neighbour counts from its first letter on: before, nothing pulls to nowhere.

M is the mean second moment of all rows, or its diagonal where there are many features: differences count as much as
they change scores. It is made of what peers tell once (``Portrait``). rho is what the curvature of a peer's losses
would be if a tenth of its rows lay on the kinks, and is then balanced between moving and agreeing [2]: each peer
suggests, all use the geometric mean. A peer that hears nobody takes its own last model for a neighbour.

[1] Bastianello, Carli, Schenato, Todescato: Asynchronous Distributed Optimization over Lossy Networks via Relaxed ADMM:
    Stability and Linear Convergence, 2021.
[2] Boyd, Parikh, Chu, Peleato, Eckstein: Distributed Optimization and Statistical Learning via the ADMM, 2011, 3.4.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from widemargin.compiled import peer_passes
from widemargin.peers.claims import Portrait
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

_RELAXATION = 0.9
_MOST_PASSES = 60  # over the rows in each tick
_SETTLED = 0.1  # of the way that a model goes in a tick, in its last pass: what is solved too loosely never settles
_SHARE_ON_KINKS = 0.1
_USUAL_DEGREE = 3
_ALONE = 0.03  # of rho, towards the own last model, where nobody is heard
_FLOOR = 1e-3  # of the diagonal, added to the metric; of its mean for features that nobody has
_IMBALANCE = 3.0  # of the two residuals, beyond which rho is moved
_FASTEST = 1.3  # factor of rho from one suggestion to the next
_FURTHEST = 1e4  # and from the first
_ROUNDING = 1e-24  # of the square of a model, below which changes say nothing
_IMAGE_BYTES = 1 << 28  # of rows in the metric, which are kept; more are made anew in each pass
_BLOCK_ROWS = 2048
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class Neighbour(NamedTuple):
    """What is kept of another peer: where it stands, and the price of standing elsewhere."""

    centre: np.ndarray
    price: np.ndarray


@dataclass
class GossipADMM:
    """The state of one peer."""

    problem: MeanHinge
    rows: PeerRows
    rng: np.random.Generator
    is_full: bool  # whether the metric is a matrix
    dual: np.ndarray = field(init=False)  # (problems, n)
    model: np.ndarray = field(init=False)  # (problems, d)
    neighbours: dict[int, Neighbour] = field(default_factory=dict)
    rho: float = 0.0
    suggestion: float = 0.0
    metric: np.ndarray = field(init=False)  # (d, d) or (d,)
    _moment: np.ndarray = field(init=False)  # of the own rows, as others are told
    _moved: float = 0.0  # squares since the last suggestion: from one letter to the next to the same neighbour
    _apart: float = 0.0  # and from the own model to those in letters
    _written: dict[int, np.ndarray] = field(default_factory=dict)  # models in the last letters
    _mark: float = -1.0  # of the metric
    _sums: dict[tuple[int, int], int] = field(default_factory=dict)  # check sums of portraits
    _unpriced: set[int] = field(default_factory=set)  # neighbours that use another metric, as far as is known
    _inverse: Any = None  # of the curvature in which passes work; None when it has to be made anew
    _images: list[tuple[np.ndarray, np.ndarray]] | None = None

    def __post_init__(self) -> None:
        self.dual = np.zeros((self.rows.n_problems, self.rows.n_rows))
        self.model = np.zeros((self.rows.n_problems, self.rows.n_features))
        self._moment = self._moment_of(self.rows)
        self.adopt([self.portrait(-1, 1)])  # of nobody: others call it by its own name
        self.suggestion = self.rho = self._first_rho()

    def _first_rho(self) -> float:
        """Positive also for a peer that has no rows, whose word does not count."""
        return _SHARE_ON_KINKS / _USUAL_DEGREE * (self.rows.total or 1.0)

    @property
    def letter_shape(self) -> tuple[int, ...]:
        """The mark of the metric, model and price."""
        return (1 + 2 * self.model.size,)

    # -- what all agree on -------------------------------------------------------------------------------------------

    def portrait(self, peer: int, number: int) -> Portrait:
        """What the metric of all needs to know of these rows."""
        return Portrait(peer, number, self.rows.total, self._moment)

    def _moment_of(self, rows: PeerRows) -> np.ndarray:
        """The moment of some rows as a portrait has it; ValueError where that cannot be written."""
        with np.errstate(over="ignore", invalid="ignore"):
            moment = rows.moment(is_full=self.is_full)
        largest = float((np.diagonal(moment) if self.is_full else moment).max())
        if not largest <= _LARGEST_SINGLE:
            raise ValueError(
                f"The squares of a feature add up to {largest:.3g} over the rows of a peer, and {_LARGEST_SINGLE:.3g} "
                "is the most that peers can tell each other: scale the features."
            )
        moment = moment[np.triu_indices(len(moment))] if self.is_full else moment
        return moment.astype(np.float32)

    def adopt(self, portraits: list[Portrait]) -> None:
        """Use the metric of these peers; prices in another metric mean nothing, and are forgotten."""
        mark = self._mark_of(portraits)
        if mark == self._mark:
            return
        self._mark, self._unpriced = mark, set(self.neighbours)
        self.neighbours = {j: Neighbour(centre, np.zeros_like(centre)) for j, (centre, _) in self.neighbours.items()}
        total = sum(portrait.total for portrait in portraits)
        moments = np.array([portrait.moment for portrait in portraits], dtype=np.float64)
        moment = moments.sum(axis=0) / (total or 1.0)
        metric = _from_triangle(moment, self.rows.n_features) if self.is_full else moment
        diagonal = np.diagonal(metric) if self.is_full else metric
        floor = _FLOOR * np.where(diagonal > 0, diagonal, float(diagonal.mean()) or 1.0)
        if self.is_full and not _is_positive(metric + np.diag(floor / 2)):
            metric = np.diag(diagonal)  # moments that are none: all who heard of them find that, and do the same
        self.metric = metric + np.diag(floor) if self.is_full else metric + floor
        self._inverse = None

    def _mark_of(self, portraits: list[Portrait]) -> float:
        """A number that tells metrics apart, of the bytes that all have alike."""
        for portrait in portraits:
            if (portrait.peer, portrait.number) not in self._sums:
                self._sums[portrait.peer, portrait.number] = zlib.crc32(portrait.moment.tobytes())
        sums = [(portrait.peer, self._sums[portrait.peer, portrait.number]) for portrait in portraits]
        return float(zlib.crc32(np.array(sums, np.int64).tobytes()))

    def agree(self, stiffness: float) -> None:
        """Use the rho that all agree on."""
        if abs(stiffness - self.rho) > 0.01 * self.rho:
            self.rho, self._inverse = stiffness, None

    def suggest(self) -> float:
        """A rho that would balance how far neighbours are apart with how far models move."""
        if min(self._moved, self._apart) > _ROUNDING * self._squared(self.model):
            ratio = float(np.sqrt(self._apart / self._moved))
            if not 1 / _IMBALANCE < ratio < _IMBALANCE:
                first, wanted = self._first_rho(), self.rho * min(max(ratio, 1 / _FASTEST), _FASTEST)
                self.suggestion = min(max(wanted, first / _FURTHEST), first * _FURTHEST)
        self._moved = self._apart = 0.0
        return self.suggestion

    # -- a tick ------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Passes over the rows towards the best model between what they say and where neighbours stand."""
        if self._inverse is None:
            self._prepare()
        towards = np.zeros_like(self.model)
        for neighbour in self.neighbours.values():
            towards += self.rho * self._in_metric(neighbour.centre) + neighbour.price
        if not self.neighbours:
            towards += _ALONE * self.rho * self._in_metric(self.model)
        model = self._solved(towards + self.rows.pull(self.dual))
        for k, w in enumerate(model):
            for _ in range(_MOST_PASSES):
                before = w.copy()
                self._pass(k, w)
                if self._squared(w - before) <= _SETTLED**2 * self._squared(w - self.model[k]):
                    break
        self.model = self._solved(towards + self.rows.pull(self.dual))  # rounding does not add up

    def letter(self, to: int) -> np.ndarray:
        """The mark of the metric, and model and price for a neighbour."""
        price = np.zeros_like(self.model)
        if to in self.neighbours:
            centre, price = self.neighbours[to]
            price = price + self.rho * self._in_metric(centre - self.model)
            if to in self._written:
                self._moved += self._squared(self.model - self._written[to])
            self._written[to] = self.model
        return np.concatenate([[self._mark], self.model.ravel(), price.ravel()])

    def hear(self, sender: int, letter: np.ndarray) -> None:
        """Take in what a neighbour wrote; of a price in another metric, nothing."""
        model, price = letter[1:].reshape(2, *self.model.shape)
        self._apart += self._squared(model - self.model)
        is_priced = letter[0] == self._mark
        known = self.neighbours.get(sender)
        if known is None:
            self._inverse = None  # one more pulls
        if known is None or sender in self._unpriced or not is_priced:
            self.neighbours[sender] = Neighbour(model, -price if is_priced else np.zeros_like(price))
            (self._unpriced.discard if is_priced else self._unpriced.add)(sender)
            return
        self.neighbours[sender] = Neighbour(
            (1 - _RELAXATION) * known.centre + _RELAXATION * model,
            (1 - _RELAXATION) * known.price - _RELAXATION * price,
        )

    def lose(self, neighbour: int) -> None:
        """Forget one who has fallen silent: what it last wrote would pull for ever."""
        self._written.pop(neighbour, None)
        self._unpriced.discard(neighbour)
        if self.neighbours.pop(neighbour, None) is not None:
            self._inverse = None

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """A and V of these rows."""
        return self.dual.sum(axis=1), self.rows.pull(self.dual)

    def check(self, rows: PeerRows) -> None:
        """ValueError where rows that arrive cannot be taken in."""
        self._moment_of(self.rows.joined(rows))

    def gain(self, rows: PeerRows) -> None:
        """Rows have arrived."""
        joined = self.rows.joined(rows)
        self._moment = self._moment_of(joined)  # which may fail: nothing is changed before
        self.rows = joined
        self.dual = np.hstack([self.dual, np.zeros((rows.n_problems, rows.n_rows))])
        self._inverse = None

    # -- how ---------------------------------------------------------------------------------------------------------

    def _squared(self, change: np.ndarray) -> float:
        return float(np.vdot(change, self._in_metric(change)))

    def _in_metric(self, values: np.ndarray) -> np.ndarray:
        return values @ self.metric if self.is_full else values * self.metric

    def _solved(self, values: np.ndarray) -> np.ndarray:
        return values @ self._inverse if self.is_full else values * self._inverse

    def _prepare(self) -> None:
        """The inverse of  alpha n_i I + rho degree M,  and the rows in it."""
        n_pulls = len(self.neighbours) or _ALONE
        penalty = self.problem.alpha * self.rows.total
        curvature = self.rho * n_pulls * self.metric
        X = self.rows.X
        self._images = None
        if not self.is_full:
            self._inverse = 1.0 / (curvature + penalty)
            squares = X.multiply(X) if sp.issparse(X) else X * X
            self._curvature = np.asarray(squares @ self._inverse, dtype=np.float64).ravel()
            return
        factor = la.cho_factor(curvature + penalty * np.eye(len(curvature)), check_finite=False)
        self._inverse = la.cho_solve(factor, np.eye(len(curvature)), check_finite=False)
        if 8 * X.shape[0] * X.shape[1] <= _IMAGE_BYTES:
            self._images = [self._image(block) for block in self._blocks()]

    def _blocks(self) -> Iterator[slice]:
        n = self.rows.n_rows
        return (slice(begin, min(begin + _BLOCK_ROWS, n)) for begin in range(0, n, _BLOCK_ROWS))

    def _image(self, block: slice) -> tuple[np.ndarray, np.ndarray]:
        """``C x_i`` and ``x_i . C x_i`` of some rows."""
        X = self.rows.X[block]
        images = np.ascontiguousarray(X @ self._inverse if self.is_full else X * self._inverse)
        products = X.multiply(images).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, images)
        return images, np.asarray(products, dtype=np.float64).ravel()

    def _pass(self, problem: int, w: np.ndarray) -> None:
        """One coordinate pass, in a new order."""
        X, y, weight, dual = self.rows.X, self.rows.signs[problem], self.rows.weight, self.dual[problem]
        if sp.issparse(X) and not self.is_full:
            arrays = np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr)
            order = self.rng.permutation(self.rows.n_rows)
            peer_passes.pass_diagonal_csr(*arrays, order, y, weight, self._inverse, self._curvature, dual, w)
            return
        for number, block in enumerate(self._blocks()):
            images, curvature = self._image(block) if self._images is None else self._images[number]
            part, order = X[block], self.rng.permutation(len(images))
            numbers = (order, y[block], weight[block], images, curvature, dual[block], w)
            if sp.issparse(part):
                arrays = np.asarray(part.data), np.asarray(part.indices), np.asarray(part.indptr)
                peer_passes.pass_metric_csr(*arrays, *numbers)
            else:
                peer_passes.pass_metric_dense(part, *numbers)


def _is_positive(matrix: np.ndarray) -> bool:
    """Whether a symmetric matrix is positive definite."""
    try:
        la.cholesky(matrix, check_finite=False)
    except la.LinAlgError:
        return False
    return True


def _from_triangle(values: np.ndarray, order: int) -> np.ndarray:
    """The symmetric matrix of an upper triangle."""
    matrix = np.zeros((order, order))
    matrix[np.triu_indices(order)] = values
    return matrix + np.triu(matrix, 1).T
