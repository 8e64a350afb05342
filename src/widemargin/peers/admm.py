"""Consensus of neighbours with messages that may be lost: one-way relaxed ADMM for the linear SVM.

    minimise  sum_i f_i(w_i)   subject to  w_i = w_j for neighbours
    with      f_i(w) = sum of own hinge losses + alpha n_i/2 ||w||^2

Peer i keeps for each neighbour j a centre c_ij (j's model) and a price p_ij (the multiplier of w_i = w_j), and solves

    w_i = argmin  f_i(w) + sum_j  rho/2 ||w - c_ij||_M^2 - p_ij . w        by coordinate passes over its dual variables

It sends to j:   w_i   and   p_ij + rho M (c_ij - w_i).  The receiver of  (w, p')  sets

    c <- (1 - a) c + a w         p <- (1 - a) p - a p',       a = 0.9

Nothing is acknowledged: a lost message changes nothing, and a stale one is dropped. [1] keeps z = rho c + p as one
vector; kept apart, c and p stay valid when rho or M change. At the end c = w, and the prices of both sides cancel,
whatever rho and M were. A neighbour counts from its first message on.

M is the mean second moment of all rows, or its diagonal if there are many features. So a difference of models counts as
much as it changes scores. Peers announce their moments once. rho begins as the curvature of a peer's losses if a tenth
of its rows lay on the kinks. It is then balanced between the primal and the dual residual [2]: each peer suggests a
rho, and all use the median. A peer without live neighbours uses its own last model as a neighbour.

A peer clips what a neighbour sends to what is possible at an optimum. alpha/2 ||w||^2 <= F(0) = 1 bounds the model. The
losses on one side of an edge, at most N times the root mean square of each feature, bound the price. Without clipping,
huge numbers would stay in the prices between other peers for long, as differences. Clipping and the median limit what a
member that sends garbage can disturb. They prove nothing, and do not stop it from keeping models apart until it is
excluded.

[1] Bastianello, Carli, Schenato, Todescato: Asynchronous Distributed Optimization over Lossy Networks via Relaxed ADMM:
    Stability and Linear Convergence, 2021.
[2] Boyd, Parikh, Chu, Peleato, Eckstein: Distributed Optimization and Statistical Learning via the ADMM, 2011, 3.4.1.
"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from widemargin.compiled import peer_passes
from widemargin.data.shard import csr_arrays
from widemargin.pauses import is_time_up
from widemargin.peers.cutting_planes import Cut
from widemargin.peers.protocol import Algorithm
from widemargin.peers.records import Moments
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

_RELAXATION = 0.9
_MAX_PASSES = 60  # over the rows in each tick
_WORK_PER_ENTRY = 8  # of a pass
_PASS_TOLERANCE = 0.1  # of the model's change in a tick: the last pass changes it by less
_SHARE_ON_KINKS = 0.1
_USUAL_DEGREE = 3
_ALONE = 0.03  # of rho, towards the own last model, without live neighbours
_METRIC_FLOOR = 1e-3  # of the diagonal, added to the metric; of its mean for features that are always zero
_MAX_IMBALANCE = 3.0  # of the two residuals, beyond which rho changes
_MAX_RHO_STEP = 1.3  # factor of rho from one suggestion to the next
_MAX_RHO_CHANGE = 1e4  # factor of rho from the first
_ROUNDING = 1e-24  # of the squared norm of a model, below which residuals are rounding errors
_IMAGE_BYTES = 1 << 28  # of rows times the inverse curvature that are kept; more are computed in each pass
_BLOCK_ROWS = 2048
_MAX_PRICE = 10.0  # times the largest that a network without cycles has at the optimum
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class Neighbour(NamedTuple):
    """The model of another peer, and the price of differing from it."""

    centre: np.ndarray
    price: np.ndarray


class Metric(NamedTuple):
    """How differences of models are measured; peers that have the same number have the same matrix."""

    id: float  # checksum of the moments in it
    matrix: np.ndarray  # (d, d), or the diagonal
    largest_price: np.ndarray  # (d,), of all rows together


@dataclass
class GossipADMM(Algorithm):
    """The state of one peer."""

    problem: MeanHinge
    rows: PeerRows
    rng: np.random.Generator
    is_full: bool  # whether the metric is a matrix
    has_cuts: ClassVar[bool] = True
    dual: np.ndarray = field(init=False)  # (problems, n)
    model: np.ndarray = field(init=False)  # (problems, d)
    neighbours: dict[int, Neighbour] = field(default_factory=dict)
    rho: float = 0.0
    suggestion: float = 0.0
    metric: np.ndarray = field(init=False)  # (d, d) or (d,)
    _moment: np.ndarray = field(init=False)  # of the own rows, as announced
    _moved: float = 0.0  # sum of squared changes of the model between messages, since the last suggestion
    _apart: float = 0.0  # sum of squared distances to received models, since the last suggestion
    _sent: dict[int, np.ndarray] = field(default_factory=dict)  # models last sent
    _metric_id: float = -1.0
    _checksums: dict[tuple[int, int], int] = field(default_factory=dict)  # of moments
    _unpriced: set[int] = field(default_factory=set)  # neighbours that use another metric
    _inverse: Any = None  # of the curvature; None: to be computed
    _images: list[tuple[np.ndarray, np.ndarray]] | None = None
    _largest_price: np.ndarray = field(init=False)  # (d,), of all rows together

    def __post_init__(self) -> None:
        self.dual = np.zeros((self.rows.n_problems, self.rows.n_rows))
        self.model = np.zeros((self.rows.n_problems, self.rows.n_features))
        self._moment = self._moment_of(self.rows)
        self.set_metric(self.metric_of([self.moments(-1, 1)]))
        self.suggestion = self.rho = self._first_rho()

    def _first_rho(self) -> float:
        """Positive also for a peer without rows, whose suggestion does not count."""
        return _SHARE_ON_KINKS / _USUAL_DEGREE * (self.rows.total or 1.0)

    @property
    def _largest_model(self) -> float:
        """The norm that no minimiser exceeds."""
        return math.sqrt(2.0 / self.problem.alpha)

    @property
    def payload_shape(self) -> tuple[int, ...]:
        """The checksum of the metric, model and price."""
        return (1 + 2 * self.model.size,)

    def moments(self, peer: int, number: int) -> Moments:
        return Moments(peer, number, self.rows.total, self._moment)

    def _moment_of(self, rows: PeerRows) -> np.ndarray:
        """The second moments of some rows in float32; ValueError if they are too large for that."""
        with np.errstate(over="ignore", invalid="ignore"):
            moment = rows.moment(is_full=self.is_full)
        largest = float((np.diagonal(moment) if self.is_full else moment).max())
        if not largest <= _LARGEST_SINGLE:
            limit = f"peers can send at most {_LARGEST_SINGLE:.3g}: scale the features."
            raise ValueError(f"The squares of a feature add up to {largest:.3g} over the rows of a peer; {limit}")
        moment = moment[np.triu_indices(len(moment))] if self.is_full else moment
        return moment.astype(np.float32)

    def set_metric(self, metric: Metric) -> None:
        """Use this metric, and drop all prices: they were in another one."""
        if metric.id == self._metric_id:
            return
        self._metric_id, self.metric, self._largest_price = metric
        self._inverse = None
        self._unpriced = set(self.neighbours)
        self.neighbours = {j: Neighbour(centre, np.zeros_like(centre)) for j, (centre, _) in self.neighbours.items()}

    def metric_of(self, moments: list[Moments]) -> Metric:
        """The metric of these peers."""
        total = sum(each.total for each in moments)
        moment = np.array([each.moment for each in moments], dtype=np.float64).sum(axis=0) / (total or 1.0)
        metric = diagonal = moment
        if self.is_full:
            metric = np.zeros((self.rows.n_features, self.rows.n_features))
            metric[np.triu_indices(len(metric))] = moment
            metric = metric + np.triu(metric, 1).T
            diagonal = np.diagonal(metric)
        floor = _METRIC_FLOOR * np.where(diagonal > 0, diagonal, float(diagonal.mean()) or 1.0)
        if self.is_full and not _is_positive_definite(metric + np.diag(floor / 2)):
            metric = np.diag(diagonal)  # some moments are invalid: all peers that have them do the same
        largest_price = _MAX_PRICE * total * (np.sqrt(diagonal + floor) + self.problem.alpha * self._largest_model)
        matrix = metric + np.diag(floor) if self.is_full else metric + floor
        return Metric(self._checksum_of(moments), matrix, largest_price)

    def _checksum_of(self, moments: list[Moments]) -> float:
        """A number that tells metrics apart, from bytes that are the same at all peers."""
        known, self._checksums = self._checksums, {}  # of peers that are in the metric, and of nobody else
        for each in moments:
            key = each.peer, each.number
            self._checksums[key] = known[key] if key in known else zlib.crc32(each.moment.tobytes())
        sums = [(each.peer, self._checksums[each.peer, each.number]) for each in moments]
        return float(zlib.crc32(np.array(sums, np.int64).tobytes()))

    def set_rho(self, rho: float) -> None:
        if abs(rho - self.rho) > 0.01 * self.rho:
            self.rho, self._inverse = rho, None

    def suggest_rho(self) -> float:
        """A rho that would balance the distance between neighbours with the change of models."""
        if min(self._moved, self._apart) > _ROUNDING * self._squared(self.model):
            ratio = float(np.sqrt(self._apart / self._moved))
            if not 1 / _MAX_IMBALANCE < ratio < _MAX_IMBALANCE:
                first, wanted = self._first_rho(), self.rho * min(max(ratio, 1 / _MAX_RHO_STEP), _MAX_RHO_STEP)
                self.suggestion = min(max(wanted, first / _MAX_RHO_CHANGE), first * _MAX_RHO_CHANGE)
        self._moved = self._apart = 0.0
        return self.suggestion

    def work(self) -> None:
        """Run coordinate passes until the own model, drawn to those of the neighbours, is nearly optimal."""
        if self._inverse is None:
            self._prepare()
        towards = np.zeros_like(self.model)
        for neighbour in self.neighbours.values():
            towards += self.rho * self._in_metric(neighbour.centre) + neighbour.price
        if not self.neighbours:
            towards += _ALONE * self.rho * self._in_metric(self.model)
        model = self._solved(towards + self.rows.combine(self.dual))
        for k, w in enumerate(model):
            for _ in range(_MAX_PASSES):
                before = w.copy()
                self._pass(k, w)
                is_near = self._squared(w - before) <= _PASS_TOLERANCE**2 * self._squared(w - self.model[k])
                if is_near or is_time_up(_WORK_PER_ENTRY * float(self.rows.X.shape[0]) * self.rows.X.shape[1]):
                    break
        self.model = self._solved(towards + self.rows.combine(self.dual))  # without the rounding errors of the passes

    def payload(self, to: int) -> np.ndarray:
        """The checksum of the metric, and model and price for a neighbour."""
        price = np.zeros_like(self.model)
        if to in self.neighbours:
            centre, price = self.neighbours[to]
            price = price + self.rho * self._in_metric(centre - self.model)
            if to in self._sent:
                self._moved += self._squared(self.model - self._sent[to])
            self._sent[to] = self.model
        return np.concatenate([[self._metric_id], self.model.ravel(), price.ravel()])

    def receive(self, sender: int, payload: np.ndarray) -> None:
        """Take in the model of a neighbour, and its price if it is in the same metric."""
        model, price = payload[1:].reshape(2, *self.model.shape)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(model, axis=1, keepdims=True)
        model = model * (self._largest_model / np.maximum(lengths, self._largest_model))
        price = np.clip(price, -self._largest_price, self._largest_price)
        self._apart += self._squared(model - self.model)
        is_priced = payload[0] == self._metric_id
        known = self.neighbours.get(sender)
        if known is None:
            self._inverse = None  # the curvature depends on the number of neighbours
        if known is None or sender in self._unpriced or not is_priced:
            self.neighbours[sender] = Neighbour(model, -price if is_priced else np.zeros_like(price))
            (self._unpriced.discard if is_priced else self._unpriced.add)(sender)
            return
        self.neighbours[sender] = Neighbour(
            (1 - _RELAXATION) * known.centre + _RELAXATION * model,
            (1 - _RELAXATION) * known.price - _RELAXATION * price,
        )

    def drop_neighbour(self, neighbour: int) -> None:
        """Forget a silent neighbour: its last model would attract this one for ever."""
        self._sent.pop(neighbour, None)
        self._unpriced.discard(neighbour)
        if self.neighbours.pop(neighbour, None) is not None:
            self._inverse = None

    def restart(self) -> None:
        """Forget what neighbours sent, and the rho derived from it, as some of it came from a liar."""
        for neighbour in list(self.neighbours):
            self.drop_neighbour(neighbour)
        self._moved = self._apart = 0.0
        self.suggestion = self._first_rho()

    def bounds(self) -> Cut:
        return self.rows.cut(self.dual)

    def check_rows(self, rows: PeerRows) -> None:
        self._moment_of(self.rows.joined(rows))

    def add_rows(self, rows: PeerRows) -> None:
        """Add rows; ValueError, and no change, if they cannot be added."""
        joined = self.rows.joined(rows)
        self._moment = self._moment_of(joined)
        self.rows = joined
        self.dual = np.hstack([self.dual, np.zeros((rows.n_problems, rows.n_rows))])
        self._inverse = None

    def _squared(self, change: np.ndarray) -> float:
        return float(np.vdot(change, self._in_metric(change)))

    def _in_metric(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values @ self.metric if self.is_full else values * self.metric)

    def _solved(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values @ self._inverse if self.is_full else values * self._inverse)

    def _prepare(self) -> None:
        """The inverse of the curvature  alpha n_i I + rho degree M,  and its products with the rows."""
        penalty = self.problem.alpha * self.rows.total
        curvature = self.rho * (len(self.neighbours) or _ALONE) * self.metric
        X, self._images = self.rows.X, None
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
        """``C x_i`` and ``x_i . C x_i`` of some rows, C the inverse."""
        X = self.rows.X[block]
        images = np.ascontiguousarray(X @ self._inverse if self.is_full else X * self._inverse)
        products = X.multiply(images).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, images)
        return images, np.asarray(products, dtype=np.float64).ravel()

    def _pass(self, problem: int, w: np.ndarray) -> None:
        X, y, weight, dual = self.rows.X, self.rows.signs[problem], self.rows.weight, self.dual[problem]
        if sp.issparse(X) and not self.is_full:
            order = self.rng.permutation(self.rows.n_rows)
            peer_passes.pass_diagonal_csr(*csr_arrays(X), order, y, weight, self._inverse, self._curvature, dual, w)
            return
        for number, block in enumerate(self._blocks()):
            images, curvature = self._image(block) if self._images is None else self._images[number]
            part, order = X[block], self.rng.permutation(len(images))
            numbers = (order, y[block], weight[block], images, curvature, dual[block], w)
            if sp.issparse(part):
                peer_passes.pass_metric_csr(*csr_arrays(part), *numbers)
            else:
                peer_passes.pass_metric_dense(part, *numbers)


def _is_positive_definite(matrix: np.ndarray) -> bool:
    try:
        la.cholesky(matrix, check_finite=False)
    except la.LinAlgError:
        return False
    return True
