"""A fit by peers that keep their rows, with no server: simulated in this process, or on Dask workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.comm.faults import Faults
from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.ledger import Ledger
from widemargin.peers.admm import GossipADMM
from widemargin.peers.claims import Claims
from widemargin.peers.loop import PeerLimits, PeerReport, PeerRun
from widemargin.peers.peer import Peer
from widemargin.peers.protocol import Algorithm, Notary, Traffic
from widemargin.peers.push_sum import PushSum
from widemargin.peers.records import Snapshot
from widemargin.peers.rows import PeerRows
from widemargin.peers.store import RecordStore
from widemargin.peers.topology import Graph
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Progress, Result, run
from widemargin.strategies.labels import check_classes, classes_of, weights_of_classes
from widemargin.strategies.protocol import Outcome, PartProgress, Plan, Rows, Watch
from widemargin.strategies.simulation import NOTHING_PROVED, Simulation
from widemargin.strategies.training import count_at_peers

_MEETING_SECONDS = 60.0  # peers on workers wait at most this long for the others to arrive
_MAX_METRIC_NUMBERS = 1 << 20  # second moments that all peers together may send for a full metric
_STOP_REASONS = {"max_ticks": "max_iter"}  # a peer's name of a stop reason, and the estimator's


def has_full_metric(metric: Literal["auto", "full", "diagonal"], n_features: int, n_peers: int) -> bool:
    """Whether ADMM measures distances by all second moments of the features, or by their diagonal.

    ``"auto"`` takes all if ``n_peers`` send at most a million numbers for it. In a network that peers join,
    ``n_peers`` is the number it waits for. ``n_features`` includes the constant feature.
    """
    is_small = n_peers * n_features * (n_features + 1) // 2 <= _MAX_METRIC_NUMBERS
    return metric == "full" or (metric == "auto" and is_small)


@record()
class Node(NamedTuple):
    """The final state of one peer: its own model, and how good it is."""

    coef_: np.ndarray
    intercept_: np.ndarray
    certificate: Certificate | None  # for the rows of its members
    members: frozenset[int]  # of the network it is in
    consensus_error: float  # distance of its model to the mean of all, relative to that mean
    n_rows: int
    live_neighbours: tuple[int, ...]
    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    refused: int  # stale or malformed messages, and those of strangers

    @property
    def gap(self) -> float:
        """The certified relative gap; infinite without a certificate."""
        return float("inf") if self.certificate is None else self.certificate.relative


@dataclass(frozen=True)
class Network:
    """What all peers of a network share: the problem, the algorithm, and who writes to whom."""

    problem: MeanHinge
    graph: Graph
    fan_out: int
    is_metric_full: bool
    has_constant: bool
    algorithm: Literal["admm", "push-sum"] = "admm"
    batch_size: int = 32
    rounds: int = 1
    clip: float | None = None  # the largest norm of a row, the constant feature included

    def encode(self, rows: Rows, classes: np.ndarray, factors: np.ndarray | None = None) -> PeerRows:
        """The rows of one peer that have a positive weight, with class numbers for labels."""
        present = np.flatnonzero(rows.weight)
        X, y, weight = rows.X[present], rows.y[present], rows.weight[present]
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        unknown = np.unique(y[classes[codes] != y])
        if len(unknown):
            raise ValueError(f"y has the classes {unknown.tolist()}; the known classes are {classes.tolist()}.")
        weight = weight if factors is None else weight * factors[codes]
        encoded = PeerRows.of(X, codes, weight, len(classes), has_constant=self.has_constant)
        return encoded if self.clip is None else encoded.clipped(self.clip)

    def begin(
        self,
        number: int,
        rows: PeerRows,
        seed: int,
        incarnation: int = 0,
        store: RecordStore | None = None,
        notary: Notary | None = None,
        claims: Claims | None = None,
    ) -> Peer:
        """A peer that knows only its rows; peers of one process share a store, and members have the other two."""
        for_work, for_messages = np.random.default_rng([seed, number, incarnation]).spawn(2)
        algorithm: Algorithm
        if self.algorithm == "admm":
            algorithm = GossipADMM(self.problem, rows, for_work, self.is_metric_full)
        else:
            algorithm = PushSum(self.problem, rows, for_work, self.batch_size, self.rounds)
        neighbours, store = list(self.graph[number]), store or RecordStore()
        own = number, self.problem, algorithm, neighbours, self.fan_out, for_messages, incarnation
        return Peer(*own, store, claims, notary)

    def split(self, w: np.ndarray) -> tuple[np.ndarray, float]:
        return (w[:-1], float(w[-1])) if self.has_constant else (w, 0.0)


class NetworkOutcome(NamedTuple):
    nodes: dict[int, Node]
    network: Network
    peers: dict[int, Peer] | None = None  # None if they ran elsewhere
    of: int | None = None  # the peer that knows this, if it ran by itself


@dataclass(frozen=True)
class Peers:
    """One peer for each element of ``rows``."""

    plan: Plan
    network: Network
    faults: Faults
    known_classes: np.ndarray | None = None  # also those without rows

    def run(self, rows: Sequence[Rows], place: Any, watch: Watch) -> Outcome:
        """Simulate the peers, or run each on a worker if ``place`` is a Dask client."""
        ledger = Ledger()
        with ledger.phase("encode"):
            classes, factors = self._agree(rows)
            owned = [self.network.encode(part, classes, factors) for part in rows]
        if place is not None:
            return self._run_on_workers(place, owned, classes, watch, ledger)
        store = RecordStore()

        def begin(number: int, incarnation: int) -> Peer:
            return self.network.begin(number, owned[number], self.plan.seed, incarnation, store)

        with ledger.phase("start"):
            simulation = Simulation({k: begin(k, 0) for k in range(len(owned))}, self.faults, begin)
        return _simulate(self.plan, self.network, simulation, classes, watch, ledger)

    def _agree(self, rows: Sequence[Rows]) -> tuple[np.ndarray, np.ndarray | None]:
        """All classes with rows of positive weight, and the factor for the weights of each."""
        labels = [part.y[part.weight > 0] for part in rows]
        classes = classes_of(labels if self.known_classes is None else [self.known_classes, *labels])
        check_classes(classes, self.plan.name)
        if self.plan.class_weight is None:
            return classes, None
        codes = np.searchsorted(classes, np.concatenate(labels))
        weight = np.concatenate([part.weight[part.weight > 0] for part in rows])
        totals = np.bincount(codes, weight, len(classes))
        return classes, weights_of_classes(self.plan.class_weight, classes, totals)

    def _run_on_workers(
        self, client: Any, owned: list[PeerRows], classes: np.ndarray, watch: Watch, ledger: Ledger
    ) -> Outcome:
        """Each peer on its own worker, in real time; this process waits, and may ask them to stop."""
        from widemargin.engines.dask_peers import launch_peers

        latest: dict[int, dict[str, float]] = {}  # figures of each peer
        reasons: list[str] = []

        def is_over() -> bool:
            figures = list(latest.values())
            tick = max((int(each["tick"]) for each in figures), default=0)
            seconds = max((each["seconds"] for each in figures), default=0.0)
            worst = max(figures, key=lambda each: each["gap"], default=None)
            certificate = None
            if worst is not None and len(figures) == len(owned) and np.isfinite(worst["gap"]):
                certificate = Certificate(worst["primal"], worst["dual"])
            progress = Progress(tick, certificate, seconds, ledger.counts(), None, None)
            reason = watch(PartProgress(0, classes, None, progress))
            reasons.extend([reason] if reason else [])
            return bool(reason)

        tol, max_ticks, max_time = self.plan.limits.tol, self.plan.limits.max_iter, self.plan.limits.max_time
        limits = PeerLimits(tol, max_ticks, max_time, at_least=len(owned), grace=_MEETING_SECONDS)
        program = PeerRun(partial(self.network.begin, seed=self.plan.seed), limits)
        with ledger.phase("sweep"):
            reports, lost = launch_peers(client, owned, program, self.network.graph, is_over, latest.__setitem__)
        ledger.lost_peers = len(lost)
        for report in reports.values():
            _count(report, ledger)
        first = reports[min(reports)]
        ends = {str(report.stop_reason) for report in reports.values()}
        reason = "gap" if ends == {"gap"} else (reasons or sorted(ends - {"gap"}))[0]
        states = {number: _State.of_report(report, owned[number].n_rows) for number, report in reports.items()}
        outcome = _outcome(self.network, classes, states, _result(first, reason, ledger))
        rows, has_constant = [owned[number] for number in reports], self.network.has_constant
        training = count_at_peers(rows, first.model, len(classes), has_constant=has_constant)
        return outcome._replace(training=training)


@dataclass(frozen=True)
class GrowingPeers:
    """Simulated peers of an earlier fit that continue with new rows.

    ``at`` is the peer that gets the rows, ``"new"`` for one that joins with ``degree`` neighbours, or None for all.
    """

    plan: Plan
    network: Network
    peers: Mapping[int, Peer]
    classes: np.ndarray
    at: Any
    degree: int

    def run(self, rows: Rows, place: Any, watch: Watch) -> Outcome:
        """Add all rows, or none if there is an error; then simulate the peers."""
        at, peers = self.at, self.peers
        if at is not None and at != "new" and not (isinstance(at, Integral) and int(at) in peers):
            raise ValueError(f"peer={at!r} must be None, 'new' or one of the present peers: {sorted(peers)}.")
        parts = np.array_split(np.arange(len(rows.y)), len(peers) if at is None else 1)
        pieces = [Rows(rows.X[part], rows.y[part], rows.weight[part]) for part in parts]
        encoded = [self.network.encode(piece, self.classes) for piece in pieces]
        network = self.network
        if at == "new":
            network, peers = self._with_newcomer(encoded[0])
        else:
            owners = sorted(peers) if at is None else [int(at)]
            added = [(peers[number], few) for number, few in zip(owners, encoded, strict=True) if few.n_rows]
            for peer, few in added:
                peer.algorithm.check_rows(few)
            for peer, few in added:
                peer.add_rows(few)
        simulation = Simulation(peers, Faults(), lambda number, incarnation: peers[number])
        return _simulate(self.plan, network, simulation, self.classes, watch, Ledger())

    def _with_newcomer(self, rows: PeerRows) -> tuple[Network, dict[int, Peer]]:
        """The network and the peers with one more, which has these rows and random neighbours."""
        graph, present = self.network.graph, sorted(self.peers)
        number = max(graph) + 1
        rng = np.random.default_rng([len(present), number])
        neighbours = sorted(rng.choice(present, min(self.degree, len(present)), replace=False).tolist())
        added = {j: sorted([*graph[j], number]) for j in neighbours}
        network = replace(self.network, graph={**graph, number: neighbours, **added})
        newcomer = network.begin(number, rows, 0, store=self.peers[present[0]].store)
        for j in neighbours:
            self.peers[j].add_neighbour(number)
        return network, {**self.peers, number: newcomer}


def outcome_of_peer(network: Network, classes: np.ndarray, peer: Peer, report: PeerReport) -> Outcome:
    """The outcome that one peer knows: its own state, and the newest snapshots of the other members."""
    ledger = Ledger(seconds={"sweep": report.seconds})
    _count(report, ledger)
    states = {peer.number: _State.of_report(report, peer.algorithm.rows.n_rows)}
    for number in report.members:
        snapshot: Snapshot | None = peer.table.newest[Snapshot].get(number)
        if snapshot is not None and number != peer.number:
            neighbours, n_rows = snapshot.neighbours.tolist(), round(report.rows.get(number, snapshot.total))
            states[number] = _State(snapshot.model, [], states[peer.number].members, 0.0, n_rows, neighbours, Traffic())
    graph = {number: sorted(states.keys() & state.live_neighbours) for number, state in sorted(states.items())}
    result = _result(report, str(report.stop_reason), ledger)
    return _outcome(replace(network, graph=graph), classes, states, result, of=peer.number)


class _State(NamedTuple):
    model: np.ndarray
    certificates: list[Certificate]  # of each problem; may be empty
    members: frozenset[int]
    total: float  # of the weights of the members' rows
    n_rows: int
    live_neighbours: list[int]
    traffic: Traffic

    @classmethod
    def of_peer(cls, peer: Peer) -> _State:
        certificates, total = ([], 0.0) if peer.proof is None else (peer.proof.certificates, peer.proof.total)
        n_rows, traffic = peer.algorithm.rows.n_rows, replace(peer.traffic)
        return cls(peer.model, certificates, peer.table.members, total, n_rows, peer.live_neighbours, traffic)

    @classmethod
    def of_report(cls, report: PeerReport, n_rows: int) -> _State:
        sent, received = (report.messages_sent, report.bytes_sent), (report.messages_received, report.bytes_received)
        traffic, members = Traffic(*sent, *received, report.refused + report.stale), frozenset(report.members)
        return cls(report.model, report.certificates, members, report.total, n_rows, report.live_neighbours, traffic)


def _simulate(
    plan: Plan, network: Network, simulation: Simulation, classes: np.ndarray, watch: Watch, ledger: Ledger
) -> Outcome:
    def watch_parts(progress: Progress) -> str | None:
        """All problems share every tick."""
        if progress.model is None:
            return watch(PartProgress(0, classes, None, progress))
        model = progress.model[min(progress.model)].model
        separators = [Separator(*network.split(w), {}) for w in model]
        told = [PartProgress(k, classes, None, progress._replace(model=each)) for k, each in enumerate(separators)]
        reasons = [watch(each) for each in told]
        return next((reason for reason in reasons if reason is not None), None)

    comm, rng = Solo(), np.random.default_rng([plan.seed, 2])
    comm.ledger = ledger
    no_rows = Shard(np.empty((0, 1)), np.empty(0), np.empty(0))  # they are with the peers
    watching: dict[str, Any] = {"watch": watch_parts, "watch_model": plan.watch_model}
    result = run(simulation, network.problem, no_rows, comm, plan.limits, rng, **watching)
    states = {number: _State.of_peer(peer) for number, peer in result.model.items()}
    outcome = _outcome(network, classes, states, result)
    assert isinstance(outcome.extra, NetworkOutcome)
    peers = result.model
    rows, model = [peer.algorithm.rows for peer in peers.values()], peers[min(peers)].model
    training = count_at_peers(rows, model, len(classes), has_constant=network.has_constant)
    return outcome._replace(extra=outcome.extra._replace(peers=peers), training=training)


def _outcome(
    network: Network, classes: np.ndarray, states: dict[int, _State], whole: Result, of: int | None = None
) -> Outcome:
    """One result per problem: the model of the first peer and the worst certificate of all, or both of peer ``of``."""
    first = states[min(states) if of is None else of]
    judges = list(states.values()) if of is None else [first]
    # Certificates for parts of a network, or for different rows, prove nothing for all.
    is_proved = all(
        state.certificates and state.members == states.keys() and state.total == first.total for state in judges
    )
    reason = "split" if whole.stop_reason == "gap" and not is_proved else whole.stop_reason
    results = []
    for k, w in enumerate(first.model):
        certificate = _worst([state.certificates[k] for state in judges]) if is_proved else NOTHING_PROVED
        history, ledger = (whole.history, whole.ledger) if k == 0 else ([], Ledger())
        results.append(Result(Separator(*network.split(w), {}), certificate, reason, whole.n_iter, history, ledger))
    extra = NetworkOutcome(_nodes(network, states), network, of=of)
    return Outcome(classes, results, first.model.shape[1] - network.has_constant, extra)


def _nodes(network: Network, states: dict[int, _State]) -> dict[int, Node]:
    mean = np.mean([state.model for state in states.values()], axis=0)
    length = float(np.linalg.norm(mean)) or 1.0
    nodes = {}
    for number, state in sorted(states.items()):
        pairs = [network.split(w) for w in state.model]
        nodes[number] = Node(
            coef_=np.array([coef for coef, _ in pairs]),
            intercept_=np.array([intercept for _, intercept in pairs]),
            certificate=_worst(state.certificates) if state.certificates else None,
            members=state.members,
            consensus_error=float(np.linalg.norm(state.model - mean)) / length,
            n_rows=state.n_rows,
            live_neighbours=tuple(state.live_neighbours),
            **vars(state.traffic),
        )
    return nodes


def _worst(certificates: list[Certificate]) -> Certificate:
    return max(certificates, key=lambda each: each.relative)


def _count(report: PeerReport, ledger: Ledger) -> None:
    ledger.messages += report.messages_sent
    ledger.bytes += report.bytes_sent
    ledger.scalars += report.bytes_sent // 8


def _result(report: PeerReport, reason: str, ledger: Ledger) -> Result:
    """The run of a peer, with the rows of its history that have a certificate."""
    history = [{"sweep": row.tick, **row._asdict()} for row in report.history if np.isfinite(row.gap)]
    return Result(report, NOTHING_PROVED, _STOP_REASONS.get(reason, reason), report.ticks, history, ledger)
