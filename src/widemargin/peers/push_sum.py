"""Push-Sum gossip with subgradient steps: GADGET [1] (Algorithm 2), corrected.

    minimise  F(w) = alpha/2 ||w||^2 + 1/N sum of the hinge losses of all peers

Peer i holds a pair  (s_i, omega_i), which begins as  (0, n_i)  with n_i the total weight of its rows. Its model is the
ratio s_i / omega_i. The mass is the sum of all pairs, at peers and in messages. Each tick takes these steps of
Algorithm 2:

    (a)-(c)    L_i = mean over a mini-batch of  y x  where  y w.x < 1,     w = s_i / omega_i,  within (h)'s ball
    (d), (e)   s_i <- s_i + n_i step (L_i - alpha w),     step = 1 / (alpha (t + t0)),   t0 = 1 / alpha
    (g)        keep one share of the pair, and give one to each addressee

The result is the mean of the pairs with weights t. Differences from the paper, and why:

* the paper's step (c) takes  y x  of every row, violated or not, and ends near the majority class;
* n_i makes every row count alike, and t0 shortens the first steps, which would have length 1 / alpha;
* rows are drawn without replacement in each pass, so that the shares of passes in which they were violated are dual
  variables whose V is near alpha N w, and give a lower bound;
* the result is a mean, as the last iterate is as noisy as its last steps, and more so where omega is small;
* pairs are not reset between steps; shares of 1 / (1 + number of addressees) conserve mass on any graph;
* a message carries the total ever given on its edge, and the receiver takes the difference [2]: what a lost message
  carried arrives with the next one.

A peer gives mass only to neighbours that answer; others get messages that add nothing. Each incarnation of a peer has a
random identifier, and a message names the incarnation that its sums are for. A peer that restarts begins with (0, n_i);
the mass of its former incarnation, and the mass on the way to it, are lost. A partition that heals loses nothing.

[1] Dutta, Nataraj: GADGET SVM: A Gossip-bAseD sub-GradiEnT Solver for Linear SVMs, 2018.
[2] Dominguez-Garcia, Hadjicostis, Vaidya: Resilient Networked Control of Distributed Energy Resources, 2012.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import peer_passes
from widemargin.data.shard import csr_arrays
from widemargin.peers.cutting_planes import Cut
from widemargin.peers.protocol import Algorithm
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

_MAX_UNANSWERED = 3  # shares given to a neighbour before it must write again
_IDENTIFIERS = 1 << 53  # whole numbers that float64 holds
_HEADER = 3  # numbers in a payload before the pair: identifiers of sender and receiver, and steps done


@dataclass
class Edge:
    """What passed between two peers."""

    identifier: float  # of the other peer's incarnation
    given: np.ndarray  # all that was ever given to it: omega, then s
    taken: np.ndarray  # all that was taken from it
    unanswered: int = 0  # shares given since its last message
    is_silent: bool = False


@dataclass
class PushSum(Algorithm):
    """The state of one peer; ``rounds`` are ticks between two steps."""

    problem: MeanHinge
    rows: PeerRows
    rng: np.random.Generator
    batch_size: int = 32
    rounds: int = 1
    has_cuts: ClassVar[bool] = False  # the paper's method, and nothing else
    model: np.ndarray = field(init=False)  # the mean of the iterates, (problems, d)
    pair: np.ndarray = field(init=False)  # omega, then s of every problem
    edges: dict[int, Edge] = field(default_factory=dict)
    steps: int = 0
    _identifier: float = field(init=False)
    _ticks: int = 0
    _share: np.ndarray = field(init=False)  # of the pair in this tick
    _mean: np.ndarray = field(init=False)  # of the pairs at all steps, weighted by their number
    _weight_of_mean: float = 0.0
    _batches: list[np.ndarray] = field(default_factory=list)  # still to come in this pass
    _n_batches: int = 0  # of a pass
    _is_violated: np.ndarray = field(init=False)  # (problems, n): when last seen
    _violated: np.ndarray = field(init=False)  # (problems, n): its mean over whole passes, weighted as the iterates
    _weight_of_violated: float = 0.0

    def __post_init__(self) -> None:
        self.model = np.zeros((self.rows.n_problems, self.rows.n_features))
        self.pair = np.zeros(1 + self.model.size)
        self.pair[0] = self.rows.total
        self._share, self._mean = np.zeros_like(self.pair), self.pair.copy()
        self._identifier = float(self.rng.integers(1, _IDENTIFIERS))
        self._violated = np.zeros((self.rows.n_problems, self.rows.n_rows))
        self._is_violated = np.zeros(self._violated.shape, dtype=np.bool_)

    @property
    def payload_shape(self) -> tuple[int, ...]:
        return (_HEADER + len(self.pair),)

    def work(self) -> None:
        """A step, if it is due."""
        if self._ticks % self.rounds == 0:
            self._step()
        self._ticks += 1

    def divide_among(self, addressees: Sequence[int]) -> None:
        """Set the share of the pair that each addressee gets, if it reads its messages."""
        n_readers = sum(j in self.edges and self._may_have_more(self.edges[j]) for j in addressees)
        self._share = self.pair / (1 + n_readers)

    def payload(self, to: int) -> np.ndarray:
        """The total ever given to a neighbour, including its share of this tick."""
        edge = self.edges.get(to)
        if edge is None:
            return np.concatenate([[self._identifier, 0.0, self.steps], np.zeros_like(self.pair)])
        if self._may_have_more(edge):
            before = edge.given
            edge.given = before + self._share
            self.pair -= edge.given - before  # what was added after rounding, so that no mass is lost
            edge.unanswered += 1
        return np.concatenate([[self._identifier, edge.identifier, self.steps], edge.given])

    def receive(self, sender: int, payload: np.ndarray) -> None:
        """Take what a neighbour has given since its last message."""
        identifier, addressee, steps = payload[:_HEADER].tolist()
        if not self.edges:
            self.steps = max(self.steps, int(steps))  # a late peer begins with the short steps of the others
        edge = self.edges.get(sender)
        if edge is None or edge.identifier != identifier:
            edge = self.edges[sender] = Edge(identifier, np.zeros_like(self.pair), np.zeros_like(self.pair))
        edge.unanswered, edge.is_silent = 0, False
        if addressee == self._identifier:
            given = payload[_HEADER:]
            self.pair += given - edge.taken
            edge.taken = given

    def drop_neighbour(self, neighbour: int) -> None:
        """Give nothing more to a silent neighbour, but remember what it has given."""
        if neighbour in self.edges:
            self.edges[neighbour].is_silent = True

    def bounds(self) -> Cut:
        """A and V, with the share of passes in which a row was violated, times its weight, as dual variables."""
        return self.rows.cut(np.minimum(self._violated, 1.0) * self.rows.weight)

    def check_rows(self, rows: PeerRows) -> None:
        self.rows.joined(rows)

    def add_rows(self, rows: PeerRows) -> None:
        """Add rows, with mass that leaves the model unchanged; ValueError, and no change, if they cannot be added."""
        self.rows = self.rows.joined(rows)
        self.pair += rows.total * np.concatenate([[1.0], self._ratio(self.pair).ravel()])
        self._violated = np.hstack([self._violated, np.zeros((rows.n_problems, rows.n_rows))])
        self._is_violated = np.zeros(self._violated.shape, dtype=np.bool_)
        self._batches, self._weight_of_violated = [], 0.0  # a new pass, and a new mean

    def _may_have_more(self, edge: Edge) -> bool:
        return not edge.is_silent and edge.unanswered < _MAX_UNANSWERED

    def _ratio(self, pair: np.ndarray) -> np.ndarray:
        """``s / omega``; zero without mass."""
        return np.asarray(pair[1:] / (pair[0] or 1.0)).reshape(self.model.shape)

    def _iterate(self) -> np.ndarray:
        """The current ratio within  ||w|| <= 1 / sqrt(alpha),  where the optimum lies; Algorithm 2, (h)."""
        w = self._ratio(self.pair)
        lengths = np.sqrt(self.problem.alpha * np.einsum("kj,kj->k", w, w))
        return np.asarray(w / np.maximum(lengths, 1.0)[:, None])

    def _step(self) -> None:
        """Algorithm 2, (a) to (e), and the mean of the iterates before it."""
        w = self._iterate()
        self.steps += 1
        self._weight_of_mean += self.steps
        self._mean += (self.pair - self._mean) * (self.steps / self._weight_of_mean)
        self.model = self._ratio(self._mean)
        if self.rows.n_rows == 0:
            return
        if not self._batches:
            self._n_batches = -(-self.rows.n_rows // self.batch_size)
            self._batches = np.array_split(self.rng.permutation(self.rows.n_rows), self._n_batches)
        X, picked, change = self.rows.X, self._batches.pop(), np.zeros_like(w)
        for k, signs in enumerate(self.rows.signs):
            numbers = picked, signs, self.rows.weight, w[k], self._is_violated[k], change[k]
            if sp.issparse(X):
                peer_passes.violations_csr(*csr_arrays(X), *numbers)
            else:
                peer_passes.violations_dense(X, *numbers)
        step = 1.0 / (self.problem.alpha * self.steps + 1.0)
        self.pair[1:] += step * (self._n_batches * change - self.problem.alpha * self.rows.total * w).ravel()
        if not self._batches:
            self._weight_of_violated += self.steps
            self._violated += (self._is_violated - self._violated) * (self.steps / self._weight_of_violated)
