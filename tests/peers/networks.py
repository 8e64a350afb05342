"""Small networks for tests, and the optimum of their rows by LIBLINEAR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from widemargin.comm.faults import Faults
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.peers.admm import GossipADMM
from widemargin.peers.peer import Peer
from widemargin.peers.push_sum import PushSum
from widemargin.peers.rows import PeerRows
from widemargin.peers.store import RecordStore
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.strategies.simulation import Simulation, State

ALPHA = 0.01


def overlapping_rows(n=120, d=5, seed=0, n_classes=2, dtype=np.float64):
    """Rows of classes that overlap, as numbers, with a constant feature."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    centres = 1.5 * rng.normal(size=(n_classes, d))
    X = centres[codes] + rng.normal(size=(n, d)) * np.linspace(0.5, 2.0, d)
    return np.hstack([X, np.ones((n, 1))]).astype(dtype), codes


def signs_of(codes, n_classes):
    """One problem for two classes, else one for each against the rest."""
    return [np.where(codes == k, 1.0, -1.0) for k in ([1] if n_classes == 2 else range(n_classes))]


def objective(w, X, y, weight, alpha):
    hinge = np.maximum(0.0, 1.0 - y * (X @ w))
    return 0.5 * alpha * float(w @ w) + float(weight @ hinge) / weight.sum()


def optimum(X, y, weight=None, alpha=ALPHA, tol=1e-11):
    """F* by LIBLINEAR, to about nine digits unless told otherwise."""
    weight = np.ones(len(y)) if weight is None else weight
    present = weight > 0
    X, y, weight = X[present].astype(np.float64), y[present], weight[present]
    if len(np.unique(y)) < 2:  # which LIBLINEAR refuses: the same rows mirrored are the same problem
        X, y = np.where(np.arange(len(y))[:, None] % 2, -X, X), np.where(np.arange(len(y)) % 2, -y, y)
    model = LinearSVC(
        loss="hinge", C=1 / (alpha * weight.sum()), fit_intercept=False, tol=tol, max_iter=2_000_000, random_state=0
    ).fit(X, y, weight)
    w = model.coef_[0] * (1 if model.classes_[1] > 0 else -1)
    return objective(w, X, y, weight, alpha)


def ring(k):
    return {i: sorted({(i - 1) % k, (i + 1) % k} - {i}) for i in range(k)}


def star(k):
    return {0: list(range(1, k)), **{leaf: [0] for leaf in range(1, k)}}


def chords(k):
    """A ring whose opposite peers are neighbours, too: three each where k is even."""
    return {i: sorted({(i - 1) % k, (i + 1) % k, (i + k // 2) % k} - {i}) for i in range(k)}


@dataclass
class Network:
    """Peers with rows, one simulation of them and where it stands."""

    parts: list[PeerRows]
    graph: dict[int, list[int]]
    alpha: float = ALPHA
    solver: str = "admm"
    is_full: bool = True
    fan_out: int = 3
    batch_size: int = 8
    rounds: int = 1
    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    simulation: Simulation = field(init=False)
    state: State = field(init=False)

    def __post_init__(self):
        self.problem = MeanHinge(self.alpha)
        self.comm, self.store = Solo(), RecordStore()
        self.start({k: self.begin(k, 0) for k in range(len(self.parts))}, np.random.default_rng(self.seed))

    def start(self, peers: dict[int, Peer], rng: np.random.Generator) -> None:
        """Simulate these peers from now on."""
        self.simulation = Simulation(peers, self.faults, self.begin)
        no_rows = Shard(np.empty((0, 1)), np.empty(0), np.empty(0))
        self.state = self.simulation.start(self.problem, no_rows, self.comm, rng)

    def begin(self, number: int, incarnation: int) -> Peer:
        of_work, of_messages = np.random.default_rng([self.seed, number, incarnation]).spawn(2)
        rows = self.parts[number]
        algorithm: Any = GossipADMM(self.problem, rows, of_work, self.is_full)
        if self.solver == "push-sum":
            algorithm = PushSum(self.problem, rows, of_work, self.batch_size, self.rounds)
        neighbours = list(self.graph[number])
        return Peer(number, self.problem, algorithm, neighbours, self.fan_out, of_messages, incarnation, self.store)

    @property
    def peers(self) -> dict[int, Peer]:
        return self.state.peers

    def go(self, ticks=1):
        for _ in range(ticks):
            self.state = self.simulation.sweep(self.state)
        return self

    def until(self, gap, ticks):
        """Ticks until the whole network has certified a gap."""
        for tick in range(1, ticks + 1):
            self.go()
            proof = self.simulation.certify(self.state)
            if proof is not None and proof.relative <= gap:
                return tick
        raise AssertionError(f"no gap of {gap:g} within {ticks} ticks: {proof}")

    def optima(self, members):
        """Of the rows of these peers, one for each problem."""
        X = np.vstack([_dense(self.peers[i].algorithm.rows.X) for i in sorted(members)])
        y = np.hstack([self.peers[i].algorithm.rows.signs for i in sorted(members)])
        weight = np.concatenate([self.peers[i].algorithm.rows.weight for i in sorted(members)])
        return [optimum(X, signs, weight, self.alpha) for signs in y]


def _dense(X):
    return X.toarray() if hasattr(X, "toarray") else X


def split(X, codes, sizes, weight=None, n_classes=2, order=None):
    """The rows of each peer, in this order of rows."""
    order = np.arange(len(codes)) if order is None else order
    weight = np.ones(len(codes)) if weight is None else weight
    pieces = np.split(order, np.cumsum(sizes)[:-1])
    return [PeerRows.of(X[p], codes[p], weight[p], n_classes, has_constant=False) for p in pieces]


def even(n, k):
    return [len(part) for part in np.array_split(np.arange(n), k)]


def assert_brackets(proof, exact, slack=1e-8):
    """What LIBLINEAR found lies between the bounds of every problem."""
    for certificate, value in zip(proof.certificates, exact, strict=True):
        assert certificate.dual <= value + slack
        assert value <= certificate.primal + slack
