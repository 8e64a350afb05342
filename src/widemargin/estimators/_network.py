"""A fit as a network of peers: rows to peers, ticks in this process or peers on the workers of a cluster, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin.comm.faults import Faults
from widemargin.comm.solo import Solo
from widemargin.estimators._task import Outcome, PartWatch, Rows, Task, weights_of_classes
from widemargin.ledger import Ledger
from widemargin.peers import loop as peers_loop
from widemargin.peers._protocol import Algorithm
from widemargin.peers.admm import GossipADMM
from widemargin.peers.peer import Peer
from widemargin.peers.push_sum import PushSum
from widemargin.peers.rows import PeerRows
from widemargin.peers.simulation import Simulation
from widemargin.peers.topology import Graph
from widemargin.problems._protocol import Certificate
from widemargin.solvers._protocol import Separator
from widemargin.solvers._run import Progress, Result, run

NOTHING_KNOWN = Certificate(1.0, 0.0)  # F(0) and D(0), for any data
_MEETING_TIME = 60.0  # seconds that peers on workers wait for all to be there
_REASONS = {"max_ticks": "max_iter"}


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
        begin = partial(self._begin, task.problem, owned, task.seed)
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
        return self._outcome(classes, result)

    def _agree(self, rows: Sequence[Rows], task: Task) -> tuple[np.ndarray, np.ndarray]:
        """All classes that have rows of some weight, and the factor of the weights of each."""
        kinds = sorted({"text" if part.y.dtype.kind in "OUS" else "numbers" for part in rows})
        if len(kinds) > 1:
            raise ValueError("Labels of some peers are numbers and those of others text: they must be of one kind.")
        labels = np.concatenate([part.y[part.weight > 0] for part in rows])
        weight = np.concatenate([part.weight[part.weight > 0] for part in rows])
        classes = np.unique(labels)
        if self.known_classes is not None:
            classes = np.union1d(self.known_classes, classes)
        if len(classes) < 2:
            raise ValueError(
                f"{task.name} needs at least 2 classes with rows of positive weight, and got {len(classes)} class(es): "
                f"{classes.tolist()}."
            )
        if task.class_weight is None:
            return classes, np.ones(len(classes))
        totals = np.bincount(np.searchsorted(classes, labels), weight, len(classes))
        return classes, weights_of_classes(task.class_weight, classes, totals)

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

    def _begin(self, problem: Any, owned: Sequence[PeerRows], seed: int, number: int, life: int) -> Peer:
        return self.begin(problem, owned[number], seed, number, life)

    def begin(self, problem: Any, rows: PeerRows, seed: int, number: int, life: int = 0) -> Peer:
        """A peer that knows its rows and nothing else."""
        of_work, of_letters = np.random.default_rng([seed, number, life]).spawn(2)
        algorithm: Algorithm
        if self.algorithm == "admm":
            algorithm = GossipADMM(problem, rows, of_work, self.is_metric_full)
        else:
            algorithm = PushSum(problem, rows, of_work, self.batch_size, self.rounds, self.fan_out)
        return Peer(number, problem, algorithm, list(self.graph[number]), self.fan_out, of_letters, life)

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
        life = peers_loop.Life(partial(_begin_there, self, task.problem, task.seed), limits)
        with ledger.phase("sweep"):
            reports, lost = launch_peers(client, owned, life, self.graph, is_over, told.__setitem__)
        ledger.lost_peers = len(lost)
        for report in reports.values():
            ledger.messages += report.messages_sent
            ledger.bytes += report.bytes_sent
            ledger.scalars += report.bytes_sent // 8
        return self._outcome_of_reports(classes, reports, owned, reasons, ledger)

    def _outcome_of_reports(
        self,
        classes: np.ndarray,
        reports: dict[int, peers_loop.Report],
        owned: list[PeerRows],
        reasons: list[str],
        ledger: Ledger,
    ) -> Outcome:
        first = reports[min(reports)]
        ends = {report.stop_reason for report in reports.values()}
        reason = "gap" if ends == {"gap"} else (reasons or sorted(str(end) for end in ends - {"gap"}))[0]
        mean = np.mean([report.model for report in reports.values()], axis=0)
        length = float(np.linalg.norm(mean)) or 1.0
        nodes = {
            number: Node(
                *self._coefficients(report.model),
                certificate=report.certificate,
                members=frozenset(report.members),
                consensus_error=float(np.linalg.norm(report.model - mean)) / length,
                n_rows=owned[number].n_rows,
                live_neighbours=tuple(report.live_neighbours),
                messages_sent=report.messages_sent,
                bytes_sent=report.bytes_sent,
                messages_received=report.messages_received,
                bytes_received=report.bytes_received,
                refused=report.refused + report.stale,
            )
            for number, report in sorted(reports.items())
        }
        is_one = {(*report.members, report.total) for report in reports.values()} == {(*sorted(reports), first.total)}
        certificates = [report.certificates for report in reports.values()] if is_one else []
        reason = "split" if reason == "gap" and not is_one else reason
        return self._results(
            classes,
            first.model,
            certificates if all(certificates) else [],
            {"nodes": nodes, "network": self},
            Result(None, NOTHING_KNOWN, _REASONS.get(reason, reason), first.ticks, _history(first), ledger),
            owned[0].n_features - self.has_constant,
        )

    def _outcome(self, classes: np.ndarray, result: Result) -> Outcome:
        peers: dict[int, Peer] = result.model
        first, proofs = peers[min(peers)], [peer.proof for peer in peers.values()]
        # What parts of a network have proved is no proof for all.
        is_one = all(proof is not None and proof.members == frozenset(peers) for proof in proofs)
        if not is_one:
            reason = "split" if result.stop_reason == "gap" else result.stop_reason
            result = replace(result, certificate=NOTHING_KNOWN, stop_reason=reason)
        return self._results(
            classes,
            first.model,
            [proof.certificates for proof in proofs if proof is not None] if is_one else [],
            {"nodes": self._nodes(peers), "network": self, "peers": peers},
            result,
            first.algorithm.rows.n_features - self.has_constant,
        )

    def _results(
        self,
        classes: np.ndarray,
        model: np.ndarray,
        certificates: list[list[Certificate]],
        report: dict[str, Any],
        whole: Result,
        n_features: int,
    ) -> Outcome:
        """One result for each problem, with the worst certificate of all peers; ticks and traffic are told once."""
        results = []
        for k, w in enumerate(model):
            own = [each[k] for each in certificates] or [whole.certificate]
            separator = Separator(*self._split(w), report if k == 0 else {})
            history, ledger = (whole.history, whole.ledger) if k == 0 else ([], Ledger())
            worst = max(own, key=lambda each: each.relative)
            results.append(Result(separator, worst, whole.stop_reason, whole.n_iter, history, ledger))
        return Outcome(classes, results, n_features)

    def _separators(self, peers: dict[int, Peer]) -> list[Separator]:
        """The models of the peer of the lowest number, one for each problem."""
        return [Separator(*self._split(w), {}) for w in peers[min(peers)].model]

    def _split(self, w: np.ndarray) -> tuple[np.ndarray, float]:
        return (w[:-1], float(w[-1])) if self.has_constant else (w, 0.0)

    def _coefficients(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [self._split(w) for w in model]
        return np.array([coef for coef, _ in pairs]), np.array([intercept for _, intercept in pairs])

    def _nodes(self, peers: dict[int, Peer]) -> dict[int, Node]:
        """What is to be seen of every peer."""
        mean = np.mean([peer.model for peer in peers.values()], axis=0)
        length = float(np.linalg.norm(mean)) or 1.0
        return {
            number: Node(
                *self._coefficients(peer.model),
                certificate=None if peer.proof is None else peer.proof.worst,
                members=peer.table.members,
                consensus_error=float(np.linalg.norm(peer.model - mean)) / length,
                n_rows=peer.algorithm.rows.n_rows,
                live_neighbours=tuple(peer.live_neighbours),
                **vars(peer.traffic),
            )
            for number, peer in sorted(peers.items())
        }


def _begin_there(network: Network, problem: Any, seed: int, number: int, rows: PeerRows) -> Peer:
    """A peer, on its worker."""
    return network.begin(problem, rows, seed, number)


def _history(report: peers_loop.Report) -> list[dict[str, float]]:
    """The way of one peer, as rows of a history."""
    return [{"sweep": row.tick, **row._asdict()} for row in report.history if np.isfinite(row.gap)]
