"""The gossip SVM of subgradient steps and averages that travel: GADGET [1] (Algorithm 2), mended.

    minimise  F(w) = alpha/2 ||w||^2 + 1/N sum of the hinge losses of all peers

Peer i holds a pair  (s_i, omega_i),  at first  (0, n_i),  n_i the weights of its rows; its model is their ratio. The
sums over all peers and all that is under way are the mass. In each tick, by the letters of Algorithm 2,

    (a)-(c)    L_i = mean over some rows of  y x  where  y w.x < 1,     w = s_i / omega_i,  within (h)'s ball
    (d), (e)   s_i <- s_i + n_i step (L_i - alpha w),     step = 1 / (alpha (t + t0)),   t0 = 1 / alpha
    (g)        keep one share of the pair, and give one to each neighbour that is written to

and the result is the mean of the pairs with weights t, s by omega. What differs from the paper, and why:

* its step (c) takes  y x  of every row, violated or not, and ends near the majority class;
* n_i, so that every row counts alike wherever it lies; and t0, without which the first steps are of length 1 / alpha;
* rows are drawn in a new order in each pass, not one by one, so that the shares of passes in which they were violated
  are dual variables whose V is near alpha N w, and hence a lower bound;
* the mean, since the last iterate is as noisy as its last steps, and more so where omega happens to be small;
* pairs stay as they are between steps. Shares 1 / (1 + their number) conserve mass on any graph;
* a letter carries all that was ever given on its edge, and who reads it takes the difference to what it knew [2]: what
  was lost arrives with the next letter, with nothing acknowledged.

Mass is given to those that answer: one that has not yet been heard, has not written for a few letters, or is silent,
gets letters that add nothing. Each life of a peer has a name, a number drawn by chance, and a letter says for which
life its sums are. A peer that begins anew brings (0, n_i) and gets none of what was meant for the former; what that
had, and what was under way to it, is lost with it, and the others go on with the rest. Across a cut that heals nothing
is lost.

[1] Dutta, Nataraj: GADGET SVM: A Gossip-bAseD sub-GradiEnT Solver for Linear SVMs, 2018.
[2] Dominguez-Garcia, Hadjicostis, Vaidya: Resilient Networked Control of Distributed Energy Resources, 2012.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import peer_passes
from widemargin.peers.claims import Portrait
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

_UNANSWERED = 3  # shares that are given to a neighbour before it has to write again
_NAMES = 1 << 53  # whole numbers that float64 holds
_HEADER = 3  # numbers in a letter before the pair: the writer's name, the reader's, and steps done


@dataclass
class Edge:
    """What passed between two peers."""

    name: float  # of the other in its present life
    given: np.ndarray  # all that was ever given to it: omega, then s
    taken: np.ndarray  # all that it is known to have given
    unanswered: int = 0  # shares given since it last wrote
    is_silent: bool = False


@dataclass
class PushSum:
    """The state of one peer; ``rounds`` are ticks from one step to the next, ``fan_out`` the most letters of a tick."""

    problem: MeanHinge
    rows: PeerRows
    rng: np.random.Generator
    batch_size: int = 32
    rounds: int = 1
    fan_out: int = 1
    model: np.ndarray = field(init=False)  # the mean of the iterates, (problems, d)
    pair: np.ndarray = field(init=False)  # omega, then s of every problem
    edges: dict[int, Edge] = field(default_factory=dict)
    steps: int = 0
    _name: float = field(init=False)
    _ticks: int = 0
    _share: np.ndarray = field(init=False)  # of the pair in this tick
    _mean: np.ndarray = field(init=False)  # of the pairs at all steps, weighted by their number
    _weight_of_mean: float = 0.0
    _batches: list[np.ndarray] = field(default_factory=list)  # that are left of this pass over the rows
    _n_batches: int = 0  # of a pass
    _is_violated: np.ndarray = field(init=False)  # (problems, n): when last seen
    _violated: np.ndarray = field(init=False)  # (problems, n): the mean of that over whole passes, weighted as iterates
    _weight_of_violated: float = 0.0

    def __post_init__(self) -> None:
        shape = self.rows.n_problems, self.rows.n_features
        self.model = np.zeros(shape)
        self.pair = np.zeros(1 + self.model.size)
        self.pair[0] = self.rows.total
        self._share, self._mean = np.zeros_like(self.pair), self.pair.copy()
        self._name = float(self.rng.integers(1, _NAMES))
        self._violated = np.zeros((self.rows.n_problems, self.rows.n_rows))
        self._is_violated = np.zeros(self._violated.shape, dtype=np.bool_)

    @property
    def letter_shape(self) -> tuple[int, ...]:
        return (_HEADER + len(self.pair),)

    # -- a tick ------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """A step, if it is due, and shares for those who may be written to."""
        if self._ticks % self.rounds == 0:
            self._step()
        self._ticks += 1
        n_readers = sum(self._may_have_more(edge) for edge in self.edges.values())
        self._share = self.pair / (1 + min(n_readers, self.fan_out))

    def letter(self, to: int) -> np.ndarray:
        """All that was ever given to a neighbour, a share of this tick among it; what is not asked for stays."""
        edge = self.edges.get(to)
        if edge is None:
            return np.concatenate([[self._name, 0.0, self.steps], np.zeros_like(self.pair)])
        if self._may_have_more(edge):
            before = edge.given
            edge.given = before + self._share
            self.pair -= edge.given - before  # as rounded there, so that nothing is lost here
            edge.unanswered += 1
        return np.concatenate([[self._name, edge.name, self.steps], edge.given])

    def hear(self, sender: int, letter: np.ndarray) -> None:
        """Take what a neighbour has given since it was last heard."""
        name, addressed, steps = letter[:_HEADER].tolist()
        if not self.edges:
            self.steps = max(
                self.steps, int(steps)
            )  # who comes late begins with the short steps of those who are there
        edge = self.edges.get(sender)
        if edge is None or edge.name != name:
            edge = self.edges[sender] = Edge(name, np.zeros_like(self.pair), np.zeros_like(self.pair))
        edge.unanswered, edge.is_silent = 0, False
        if addressed == self._name:
            given = letter[_HEADER:]
            self.pair += given - edge.taken
            edge.taken = given

    def lose(self, neighbour: int) -> None:
        """Give nothing more to one that has fallen silent; what it may yet have to give is not forgotten."""
        if neighbour in self.edges:
            self.edges[neighbour].is_silent = True

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """A and V of the share of passes in which a row was violated, by its weight: any such share will do."""
        dual = self._violated * self.rows.weight
        return dual.sum(axis=1), self.rows.pull(dual)

    def check(self, rows: PeerRows) -> None:
        """ValueError where rows that arrive cannot be taken in."""
        self.rows.joined(rows)

    def gain(self, rows: PeerRows) -> None:
        """Rows have arrived: they bring mass that leaves the own model as it is."""
        self.rows = self.rows.joined(rows)  # which may fail: nothing is changed before
        self.pair += rows.total * np.concatenate([[1.0], self._ratio(self.pair).ravel()])
        self._violated = np.hstack([self._violated, np.zeros((rows.n_problems, rows.n_rows))])
        self._is_violated = np.zeros(self._violated.shape, dtype=np.bool_)
        self._batches, self._weight_of_violated = [], 0.0  # a new pass, and the mean begins with it

    # -- what all agree on, which is nothing ---------------------------------------------------------------------------

    def portrait(self, peer: int, number: int) -> Portrait | None:
        return None

    def adopt(self, portraits: list[Portrait]) -> None:
        pass

    def suggest(self) -> float:
        return 1.0

    def agree(self, stiffness: float) -> None:
        pass

    # -- how ---------------------------------------------------------------------------------------------------------

    def _may_have_more(self, edge: Edge) -> bool:
        return not edge.is_silent and edge.unanswered < _UNANSWERED

    def _ratio(self, pair: np.ndarray) -> np.ndarray:
        """``s / omega``; zero where there is no mass: no rows here, and none heard of."""
        return (pair[1:] / (pair[0] or 1.0)).reshape(self.model.shape)

    def _iterate(self) -> np.ndarray:
        """Where the step is taken: within  ||w|| <= 1 / sqrt(alpha),  as the optimum is; Algorithm 2, (h)."""
        w = self._ratio(self.pair)
        lengths = np.sqrt(self.problem.alpha * np.einsum("kj,kj->k", w, w))
        return w / np.maximum(lengths, 1.0)[:, None]

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
        picked, change = self._batches.pop(), np.zeros_like(w)
        for k in range(len(w)):
            self._violations(picked, k, w[k], change[k])
        step = 1.0 / (self.problem.alpha * self.steps + 1.0)
        self.pair[1:] += step * (self._n_batches * change - self.problem.alpha * self.rows.total * w).ravel()
        if not self._batches:
            self._weight_of_violated += self.steps
            self._violated += (self._is_violated - self._violated) * (self.steps / self._weight_of_violated)

    def _violations(self, picked: np.ndarray, k: int, w: np.ndarray, total: np.ndarray) -> None:
        X, numbers = self.rows.X, (picked, self.rows.signs[k], self.rows.weight, w, self._is_violated[k], total)
        if sp.issparse(X):
            arrays = np.asarray(X.data), np.asarray(X.indices), np.asarray(X.indptr)
            peer_passes.violations_csr(*arrays, *numbers)
        else:
            peer_passes.violations_dense(X, *numbers)
