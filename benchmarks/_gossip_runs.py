"""How is a network measured? Rows of the paper's sets, true gaps by LIBLINEAR's optimum, and ticks one by one.

A fit by ``GossipSVC`` tells what its peers have certified. What their models are worth in truth between two ticks is
only to be seen from outside: ``trace`` runs the same peers over the same wire and looks at all of them.

Gaps are relative, (F(w) - F*) / F*, with F of all rows (or of those that a network still has) and F* the objective of
LIBLINEAR's dual coordinate descent, run much longer than by default. Traffic is what peers put on the wire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from benchmarks import _harness as harness
from benchmarks import _sets as sets
from widemargin.comm.faults import Faults
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.peers import topology
from widemargin.peers.peer import Peer
from widemargin.peers.store import RecordStore
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.strategies.peers import Network
from widemargin.strategies.protocol import Rows
from widemargin.strategies.simulation import Simulation

ALPHAS = {"Adult": 3.07e-5, "MNIST": 1.67e-5, "Reuters": 1.29e-4, "USPS": 1.36e-4}  # Table 2 of the paper
PEERS, DEGREE, FAN_OUT = 10, 3, 3


class Task(NamedTuple):
    """Training and test rows with labels -1 and +1."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    alpha: float


@cache
def load(name: str) -> Task:
    """Adult is a9a; Reuters is money-fx against the rest; digits are 0 against the rest, pixels in [0, 1] or so."""
    if name in ("MNIST", "USPS"):
        names, highest = (("mnist_train", "mnist_test"), 255.0) if name == "MNIST" else (("usps", "usps.t"), 1.0)
        train, test = (sets._fetch(each) for each in names)
        X, X_test = (sp.csr_matrix(part.X / highest) for part in (train, test))
        return Task(X, np.where(train.y == 0, 1.0, -1.0), X_test, np.where(test.y == 0, 1.0, -1.0), ALPHAS[name])
    stored = {"Adult": "a9a", "Reuters": "reuters-moneyfx"}[name]
    return Task(*sets.load(stored), *sets.load(f"{stored}.t"), ALPHAS[name])


def few(task: Task, n: int) -> Task:
    """The first rows, for a smoke run."""
    return task._replace(X=task.X[:n], y=task.y[:n], X_test=task.X_test[:n], y_test=task.y_test[:n])


def with_constant(X: Any) -> Any:
    ones = np.ones((X.shape[0], 1))
    return sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])


def objective(X: Any, y: np.ndarray, alpha: float, w: np.ndarray) -> float:
    """F(w); for rows with a constant feature, the intercept is the last number of ``w``."""
    return 0.5 * alpha * float(w @ w) + float(np.maximum(0.0, 1.0 - y * np.asarray(X @ w).ravel()).mean())


class Optimum(NamedTuple):
    """LIBLINEAR's model, run long."""

    w: np.ndarray
    objective: float
    cpu_seconds: float
    has_converged: bool  # by its own account, which is about a violation of 1e-6


def optimum(X: Any, y: np.ndarray, alpha: float, *, has_constant: bool) -> Optimum:
    """LinearSVC(loss="hinge"), ``tol`` a thousandth of a hundredth of its default."""
    C = 1.0 / (alpha * len(y))
    model = LinearSVC(loss="hinge", C=C, fit_intercept=has_constant, tol=1e-6, max_iter=20_000, random_state=0)
    begin = time.process_time()
    with harness.quietly() as said:
        model.fit(X, y)
    w = np.append(model.coef_[0], model.intercept_) if has_constant else model.coef_[0]
    value = objective(with_constant(X) if has_constant else X, y, alpha, w)
    return Optimum(w, value, time.process_time() - begin, harness.has_converged(said))


def parts(n: int, n_peers: int, seed: int) -> list[np.ndarray]:
    """Rows of each peer: as even as can be, at random."""
    return np.array_split(np.random.default_rng(seed).permutation(n), n_peers)


class Moment(NamedTuple):
    """A network after a tick, seen from outside."""

    tick: int
    messages: int
    bytes: int
    cpu_seconds: float  # of all peers together, and of nothing else
    latest: np.ndarray  # the model that each peer works on, (peers, d)
    certified: float  # the largest gap that any peer has certified; infinite where one has none
    peers: dict[int, Peer]


def trace(
    task: Task,
    look: Callable[[Moment], bool],
    *,
    seed: int,
    solver: str = "admm",
    graph: Any = "random-regular",
    n_peers: int = PEERS,
    fan_out: int = FAN_OUT,
    has_constant: bool = False,
    is_metric_full: bool = True,
    batch_size: int = 32,
    prepare: Callable[[Peer], None] | None = None,
    is_store_shared: bool = True,
    ticks: Sequence[int] | range = range(1, 1_001),
) -> None:
    """Run a network and ``look`` at it after these ticks, until it says that it has seen enough.

    ``prepare`` may change a peer before it begins. With a store of its own, each peer checks all records that it
    receives, as it does in a process of its own.
    """
    network = Network(
        problem=MeanHinge(task.alpha),
        graph=topology.build(graph, n_peers, DEGREE, seed),
        fan_out=fan_out,
        algorithm=solver,  # type: ignore[arg-type]
        is_metric_full=is_metric_full,
        batch_size=batch_size,
        rounds=1,
        has_constant=has_constant,
    )
    classes = np.array([-1.0, 1.0])
    owned = [
        network.encode(Rows(task.X[part], task.y[part], np.ones(len(part))), classes)
        for part in parts(len(task.y), n_peers, seed)
    ]

    store = RecordStore()

    def begin(number: int, incarnation: int) -> Peer:
        peer = network.begin(number, owned[number], seed, incarnation, store if is_store_shared else RecordStore())
        if prepare is not None:
            prepare(peer)
        return peer

    comm, started = Solo(), time.process_time()
    simulation = Simulation({k: begin(k, 0) for k in range(n_peers)}, Faults(), begin)
    no_rows = Shard(np.empty((0, 1)), np.empty(0), np.empty(0))
    state = simulation.start(network.problem, no_rows, comm, np.random.default_rng([seed, 2]))
    spent, tick = time.process_time() - started, 0
    for stop in ticks:
        started = time.process_time()
        while tick < stop:
            state = simulation.sweep(state)
            tick += 1
        proof = simulation.certify(state)
        spent += time.process_time() - started
        latest = np.array([state.peers[number].algorithm.model[0] for number in sorted(state.peers)])
        certified = float("inf") if proof is None else proof.relative
        moment = Moment(tick, comm.ledger.messages, comm.ledger.bytes, spent, latest, certified, state.peers)
        if look(moment):
            return


def worst_gap(X: Any, y: np.ndarray, alpha: float, models: np.ndarray, best: float) -> float:
    """The largest true gap of some models."""
    return max(objective(X, y, alpha, w) for w in models) / best - 1.0


def spectral_gap(graph: Any) -> float:
    """1 - the second largest modulus of an eigenvalue of the graph's Metropolis weights.

    The weight of an edge is 1 / (1 + the larger degree of its ends), and the rest of each row is on the diagonal.
    """
    import networkx as nx

    adjacency, degrees = nx.to_numpy_array(graph), np.array([degree for _, degree in graph.degree()])
    weights = adjacency / (1 + np.maximum(degrees[:, None], degrees))
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return float(1 - np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2])


def sparse_ticks(last: int, dense: int = 50, growth: float = 1.05) -> list[int]:
    """All ticks at first, then farther and farther apart."""
    ticks = list(range(1, dense + 1))
    while ticks[-1] < last:
        ticks.append(min(last, max(ticks[-1] + 1, int(ticks[-1] * growth))))
    return ticks


def errors(X: Any, y: np.ndarray, models: np.ndarray) -> np.ndarray:
    """Shares of rows on the wrong side, one for each model; a score of 0 counts as negative, as in scikit-learn."""
    scores = np.asarray(X @ np.atleast_2d(models).T)
    return np.mean(np.where(scores > 0, 1.0, -1.0) != y[:, None], axis=0)
