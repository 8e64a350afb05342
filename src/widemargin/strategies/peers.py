"""A fit as a network of peers: rows to peers, ticks in this process or peers on the workers of a cluster, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.comm.faults import Faults
from widemargin.comm.solo import Solo
from widemargin.ledger import Ledger
from widemargin.peers import loop as peers_loop
from widemargin.peers.admm import GossipADMM
from widemargin.peers.claims import Examiner
from widemargin.peers.peer import Peer
from widemargin.peers.protocol import Algorithm, Traffic
from widemargin.peers.push_sum import PushSum
from widemargin.peers.rows import PeerRows
from widemargin.peers.topology import Graph
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Progress, Result, run
from widemargin.strategies.simulation import Simulation
from widemargin.strategies.task import Outcome, PartWatch, Rows, Task, check_classes, classes_of, weights_of_classes

NOTHING_KNOWN = Certificate(1.0, 0.0)  # F(0) and D(0), for any data
_MEETING_TIME = 60.0  # seconds that peers on workers wait for all to be there
_REASONS = {"max_ticks": "max_iter"}


@record()
class Node(NamedTuple):
    """One peer as it stood at the end: its own model, and what it knows of how good that is."""

    coef_: np.ndarray
    intercept_: np.ndarray
    certificate: Certificate | None  # of the network that it hears; None where it has none
    members: frozenset[int]  # of that network
    consensus_error: float  # distance of its model to the mean of all, by the length of that
    n_rows: int
    live_neighbours: tuple[int, ...]
    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    refused: int  # messages of strangers, malformed or stale ones

    @property
    def gap(self) -> float:
        """The certified relative gap; infinite where there is none."""
        return float("inf") if self.certificate is None else self.certificate.relative


@dataclass(frozen=True)
class Network:
    """Who writes to whom, and what peers compute."""

    graph: Graph
    fan_out: int
    algorithm: Literal["admm", "push-sum"]
    is_metric_full: bool
    batch_size: int
    rounds: int
    has_constant: bool
    faults: Faults
    known_classes: np.ndarray | None = None  # those that rows may lack

    def launch(self, rows: Sequence[Rows], cluster: Any, task: Task, watch: PartWatch) -> Outcome:
        """What an engine's ``launch`` does, with the rows of peers for those of ranks."""
        ledger = Ledger()
        with ledger.phase("encode"):
            classes, factors = self._agree(rows, task)
            owned = [self.encoded(part, classes, factors) for part in rows]
        if cluster is not None:
            return self._run_on_workers(cluster, owned, task, watch, classes, ledger)
        examiner = Examiner()

        def begin(number: int, life: int) -> Peer:
            return self.begin(task.problem, task.seed, number, owned[number], life, examiner)

        return self.run(begin, None, task, watch, classes, ledger)

    def run(
        self,
        begin: Callable[[int, int], Peer],
        peers: dict[int, Peer] | None,
        task: Task,
        watch: PartWatch,
        classes: np.ndarray,
        ledger: Ledger,
    ) -> Outcome:
        """Ticks in this process, of peers that begin, or of those that are there."""

        def watch_all(progress: Progress) -> str | None:
            """Every problem is seen after every tick; they share it."""
            if progress.model is None:
                return watch(0, classes, None, progress)
            reasons = [
                watch(k, classes, None, progress._replace(model=model))
                for k, model in enumerate(self._separators(progress.model))
            ]
            return next((reason for reason in reasons if reason is not None), None)

        comm, rng = Solo(), np.random.default_rng([task.seed, 2])
        comm.ledger = ledger
        simulation = Simulation(begin, len(self.graph), self.faults)
        no_shard: Any = None  # each peer has its own
        start: Any = peers
        result = run(
            simulation,
            task.problem,
            no_shard,
            comm,
            task.limits,
            rng,
            warm=start,
            watch=watch_all,
            watch_model=task.watch_model,
        )
        seen = {number: _Seen.of_peer(peer) for number, peer in result.model.items()}
        return self._outcome(classes, seen, result, peers=result.model)

    def _agree(self, rows: Sequence[Rows], task: Task) -> tuple[np.ndarray, np.ndarray]:
        """All classes that have rows of some weight, and the factor of the weights of each."""
        labels = [part.y[part.weight > 0] for part in rows]
        classes = classes_of(labels if self.known_classes is None else [self.known_classes, *labels])
        check_classes(classes, task.name)
        if task.class_weight is None:
            return classes, np.ones(len(classes))
        codes = np.searchsorted(classes, np.concatenate(labels))
        weight = np.concatenate([part.weight[part.weight > 0] for part in rows])
        return classes, weights_of_classes(task.class_weight, classes, np.bincount(codes, weight, len(classes)))

    def encoded(self, rows: Rows, classes: np.ndarray, factors: np.ndarray) -> PeerRows:
        """The rows of one peer that have some weight, with class numbers for labels."""
        present = np.flatnonzero(rows.weight)
        X, y = rows.X[present], rows.y[present]
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        unknown = np.unique(y[classes[codes] != y])
        if len(unknown):
            known = classes.tolist()
            raise ValueError(f"y has the classes {unknown.tolist()}, which are not among those known: {known}.")
        weight = rows.weight[present] * factors[codes]
        return PeerRows.of(X, codes, weight, len(classes), has_constant=self.has_constant)

    def begin(
        self,
        problem: Any,
        seed: int,
        number: int,
        rows: PeerRows,
        life: int = 0,
        examiner: Examiner | None = None,
    ) -> Peer:
        """A peer that knows its rows and nothing else; those of one process share an examiner."""
        of_work, of_letters = np.random.default_rng([seed, number, life]).spawn(2)
        algorithm: Algorithm
        if self.algorithm == "admm":
            algorithm = GossipADMM(problem, rows, of_work, self.is_metric_full)
        else:
            algorithm = PushSum(problem, rows, of_work, self.batch_size, self.rounds, self.fan_out)
        neighbours = list(self.graph[number])
        return Peer(number, problem, algorithm, neighbours, self.fan_out, of_letters, life, examiner or Examiner())

    def with_rows(
        self, rows: Rows, classes: np.ndarray, at: Any, peers: dict[int, Peer], problem: Any, degree: int
    ) -> Network:
        """Hand rows that arrive to all peers, or to the one ``at`` which they do, or a ``"new"`` one; how it goes on.

        All rows arrive, or there is an error and none has.
        """
        if at is not None and at != "new" and not (isinstance(at, Integral) and int(at) in peers):
            raise ValueError(f"peer={at!r} must be None, 'new' or one of those that are there: {sorted(peers)}.")
        parts = np.array_split(np.arange(len(rows.y)), len(peers) if at is None else 1)
        pieces = [Rows(rows.X[part], rows.y[part], rows.weight[part]) for part in parts]
        encoded = [self.encoded(piece, classes, np.ones(len(classes))) for piece in pieces]
        if at == "new":
            return self._with_one_more(encoded[0], peers, problem, degree)
        owners = sorted(peers) if at is None else [int(at)]
        arriving = [(peers[number], few) for number, few in zip(owners, encoded, strict=True) if few.n_rows]
        for peer, few in arriving:
            peer.algorithm.check(few)
        for peer, few in arriving:
            peer.gain(few)
        return replace(self, faults=Faults())

    def _with_one_more(self, rows: PeerRows, peers: dict[int, Peer], problem: Any, degree: int) -> Network:
        """The network with a peer who begins with these rows, and neighbours by chance."""
        number, there = max(self.graph) + 1, sorted(peers)
        rng = np.random.default_rng([len(peers), number])
        neighbours = sorted(rng.choice(there, min(degree, len(there)), replace=False).tolist())
        graph = {**self.graph, number: neighbours, **{j: sorted([*self.graph[j], number]) for j in neighbours}}
        network = replace(self, graph=graph, faults=Faults())
        peers[number] = network.begin(problem, 0, number, rows, examiner=peers[there[0]].examiner)
        for j in neighbours:
            peers[j].meet(number)
        return network

    def _run_on_workers(
        self, client: Any, owned: list[PeerRows], task: Task, watch: PartWatch, classes: np.ndarray, ledger: Ledger
    ) -> Outcome:
        """Each peer on a worker of its own, in real time; this process waits, and may ask them to end."""
        from widemargin.engines.dask_peers import launch_peers

        told: dict[int, dict[str, float]] = {}
        reasons: list[str] = []

        def is_over() -> bool:
            figures = list(told.values())
            tick = max((int(each["tick"]) for each in figures), default=0)
            seconds = max((each["seconds"] for each in figures), default=0.0)
            worst = max(figures, key=lambda each: each["gap"], default=None)
            has_all = worst is not None and len(figures) == len(owned) and np.isfinite(worst["gap"])
            certificate = Certificate(worst["primal"], worst["dual"]) if worst is not None and has_all else None
            reason = watch(0, classes, None, Progress(tick, certificate, seconds, ledger.counts(), None, None))
            reasons.extend([reason] if reason else [])
            return bool(reason)

        limits = peers_loop.Limits(
            task.limits.tol, task.limits.max_iter, task.limits.max_time, at_least=len(owned), grace=_MEETING_TIME
        )
        program = peers_loop.PeerRun(partial(self.begin, task.problem, task.seed), limits)
        with ledger.phase("sweep"):
            reports, lost = launch_peers(client, owned, program, self.graph, is_over, told.__setitem__)
        ledger.lost_peers = len(lost)
        for report in reports.values():
            ledger.messages += report.messages_sent
            ledger.bytes += report.bytes_sent
            ledger.scalars += report.bytes_sent // 8
        first = reports[min(reports)]
        ends = {report.stop_reason for report in reports.values()}
        reason = "gap" if ends == {"gap"} else (reasons or sorted(str(end) for end in ends - {"gap"}))[0]
        reason = _REASONS.get(reason, reason)
        seen = {number: _Seen.of_report(report, owned[number].n_rows) for number, report in reports.items()}
        result = Result(None, NOTHING_KNOWN, reason, first.ticks, _history(first), ledger)
        return self._outcome(classes, seen, result)

    def _outcome(
        self, classes: np.ndarray, seen: dict[int, _Seen], whole: Result, peers: dict[int, Peer] | None = None
    ) -> Outcome:
        """One result for each problem, with the worst certificate of all peers; ticks and traffic are told once."""
        first = seen[min(seen)]
        # What parts of a network have proved, or peers who know of different rows, is no proof for all.
        is_one = all(each.proves(frozenset(seen), first.total) for each in seen.values())
        reason = "split" if whole.stop_reason == "gap" and not is_one else whole.stop_reason
        report = {"nodes": self._nodes(seen), "network": self, "peers": peers}
        results = []
        for k, w in enumerate(first.model):
            own = [each.certificates[k] for each in seen.values()] if is_one else [NOTHING_KNOWN]
            separator = Separator(*self._split(w), report if k == 0 else {})
            history, ledger = (whole.history, whole.ledger) if k == 0 else ([], Ledger())
            results.append(Result(separator, _worst(own), reason, whole.n_iter, history, ledger))
        return Outcome(classes, results, first.model.shape[1] - self.has_constant)

    def _separators(self, peers: dict[int, Peer]) -> list[Separator]:
        """The models of the peer of the lowest number, one for each problem."""
        return [Separator(*self._split(w), {}) for w in peers[min(peers)].model]

    def _split(self, w: np.ndarray) -> tuple[np.ndarray, float]:
        return (w[:-1], float(w[-1])) if self.has_constant else (w, 0.0)

    def _coefficients(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [self._split(w) for w in model]
        return np.array([coef for coef, _ in pairs]), np.array([intercept for _, intercept in pairs])

    def _nodes(self, seen: dict[int, _Seen]) -> dict[int, Node]:
        """What the user sees of every peer."""
        mean = np.mean([each.model for each in seen.values()], axis=0)
        length = float(np.linalg.norm(mean)) or 1.0
        return {
            number: Node(
                *self._coefficients(each.model),
                certificate=_worst(each.certificates) if each.certificates else None,
                members=each.members,
                consensus_error=float(np.linalg.norm(each.model - mean)) / length,
                n_rows=each.n_rows,
                live_neighbours=tuple(each.live_neighbours),
                **vars(each.traffic),
            )
            for number, each in sorted(seen.items())
        }


class _Seen(NamedTuple):
    """What is known of a peer at the end, wherever it ran."""

    model: np.ndarray
    certificates: list[Certificate]  # of each problem; empty where it has none
    members: frozenset[int]
    total: float  # of the weights of the rows that these are of
    n_rows: int
    live_neighbours: list[int]
    traffic: Traffic

    @classmethod
    def of_peer(cls, peer: Peer) -> _Seen:
        """Of one in this process."""
        certificates, total = ([], 0.0) if peer.proof is None else (peer.proof.certificates, peer.proof.total)
        n_rows = peer.algorithm.rows.n_rows
        return cls(
            peer.model, certificates, peer.table.members, total, n_rows, peer.live_neighbours, replace(peer.traffic)
        )

    @classmethod
    def of_report(cls, report: peers_loop.Report, n_rows: int) -> _Seen:
        """Of one on a worker."""
        traffic = Traffic(
            report.messages_sent,
            report.bytes_sent,
            report.messages_received,
            report.bytes_received,
            report.refused + report.stale,
        )
        members = frozenset(report.members)
        return cls(report.model, report.certificates, members, report.total, n_rows, report.live_neighbours, traffic)

    def proves(self, members: frozenset[int], total: float) -> bool:
        """Whether it has a proof, and it is for the rows of all these."""
        return bool(self.certificates) and self.members == members and self.total == total


def _worst(certificates: list[Certificate]) -> Certificate:
    return max(certificates, key=lambda each: each.relative)


def _history(report: peers_loop.Report) -> list[dict[str, float]]:
    """The way of one peer, as rows of a history."""
    return [{"sweep": row.tick, **row._asdict()} for row in report.history if np.isfinite(row.gap)]
