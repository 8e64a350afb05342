"""What peers tell each other about their own rows, and how a peer certifies a model with nobody to ask.

    D = A/N - ||V||^2 / (2 alpha N^2) <= F*         A, V: sums over peers, each peer's taken at any time
    F(w) = alpha/2 ||w||^2 + H(w)/N >= F*           H: the sum over peers of their hinge losses at the same w

Four kinds of record are gossiped, and the newest of each peer counts:

    Moments      second moments of its features, once
    Snapshot     its A and V, its model, and the neighbours it receives from, at ticks that are the same for all
    Proposal     by the peer with the lowest number: the mean of all models of one tick
    HingeCosts   the hinge losses of its rows for the last proposals

A peer with the hinge costs of all members knows the exact objective of a proposal; with all snapshots it has a lower
bound, which is tight if they are of the same tick. Costs count only beside a snapshot of the same rows: both carry a
data version, drawn at random when a peer starts or gets rows. Sums estimated by averaging would prove nothing: with
errors of 10% in the weights, D exceeds F* about half of the time.

The members of a network are the peers reached from oneself along the neighbours in snapshots. A peer that falls silent
drops out of the others' snapshots; their network then has its own optimum.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate

KEPT = 4  # snapshots and proposals of a peer, and costed proposals in a record
NUMBERS_PER_INCARNATION = 1 << 40  # a peer that restarts numbers its records above all that it sent before
_CHECKED_BYTES = 1 << 24  # of records that are known to be sound
_MAX_CORRELATION = 1 + 1e-3  # of two features; the excess is rounding
_LEAST_SINGLE = float(np.finfo(np.float32).smallest_subnormal)
_ROUNDING = 1 + 1e-9  # by which a lower bound may exceed an upper one


def tick_of(number: int) -> int:
    """The tick in which a record or message of this number was sent."""
    return number % NUMBERS_PER_INCARNATION - 1


def incarnation_of(number: int) -> int:
    """The incarnation of the peer that sent it."""
    return number // NUMBERS_PER_INCARNATION


class Moments(NamedTuple):
    """Second moments of the rows of a peer, from which all peers compute the same metric."""

    peer: int
    number: int
    total: float  # of the weights of its rows
    moment: np.ndarray  # the upper triangle of a matrix of order d, row by row, or its diagonal


class Snapshot(NamedTuple):
    """The state of a peer at one tick."""

    peer: int
    number: int
    tick: int
    neighbours: np.ndarray  # those it receives from
    data_version: int  # of its rows
    total: float  # of the weights of its rows
    dual_sum: np.ndarray  # A of each problem
    dual_vector: np.ndarray  # V of each problem, (problems, d)
    model: np.ndarray  # w of each problem, (problems, d)
    rho: float  # that it suggests
    gap: float  # that it has certified


class Proposal(NamedTuple):
    """A model whose objective all peers compute together."""

    peer: int
    number: int
    model: np.ndarray


class HingeCosts(NamedTuple):
    """The hinge losses of one peer's rows for the last proposals of another."""

    peer: int
    number: int
    proposer: int
    data_version: int  # of its rows
    total: float  # of the weights of its rows
    proposals: np.ndarray  # their numbers, the newest first
    costs: np.ndarray  # hinge sums, (proposals, problems)


Record = Moments | Snapshot | Proposal | HingeCosts
KINDS: tuple[type, ...] = (Moments, Snapshot, Proposal, HingeCosts)  # in the order of their codes on the wire
Kind = TypeVar("Kind", Moments, Snapshot, Proposal, HingeCosts)


def n_bytes_of(record: Record) -> int:
    """Bytes of the numbers in a record."""
    return sum(value.nbytes if isinstance(value, np.ndarray) else 8 for value in record)


@dataclass
class RecordChecker:
    """Checks every record of another peer once. Simulated peers pass on the same objects and share a checker."""

    _checked: dict[int, tuple[Record, Any, int]] = field(default_factory=dict)  # record, shapes, bytes; by identity
    _n_bytes: int = 0  # of those records

    def size_of(self, record: Record, model: np.ndarray, moment: np.ndarray | None) -> int:
        """Bytes of a record with finite arrays of the shapes of these two; -1 if it is unsound."""
        shapes = model.shape, None if moment is None else moment.shape
        record_checked, shapes_checked, n_bytes = self._checked.get(id(record), (None, None, -1))
        if record_checked is not record or shapes_checked != shapes:
            if not _is_sound(record, model, moment):
                return -1
            n_bytes = n_bytes_of(record)
            if self._n_bytes + n_bytes > _CHECKED_BYTES:
                self._checked.clear()
                self._n_bytes = 0
            if n_bytes <= _CHECKED_BYTES:
                self._checked[id(record)] = record, shapes, n_bytes  # keeps the record alive, and so its identity
                self._n_bytes += n_bytes
        return n_bytes


def _is_sound(record: Record, model: np.ndarray, moment: np.ndarray | None) -> bool:
    if record.number < 0 or record.peer < 0:
        return False
    if isinstance(record, Moments):
        is_whole = moment is not None and _is_amount(record.total) and is_finite(record.moment, moment.shape)
        return is_whole and _is_moment(record.moment, model.shape[1])
    if isinstance(record, Proposal):
        return is_finite(record.model, model.shape)
    if isinstance(record, HingeCosts):
        n = len(record.proposals) if _is_list_of_integers(record.proposals) else -1
        is_whole = 0 < n <= KEPT and is_finite(record.costs, (n, len(model)))
        return is_whole and _is_amount(record.total) and isinstance(record.data_version, int)
    return (
        _is_amount(record.total)
        and isinstance(record.data_version, int)
        and _is_amount(record.rho)
        and record.rho > 0
        and record.gap >= 0  # may be infinite
        and _is_list_of_integers(record.neighbours)
        and is_finite(record.dual_sum, (len(model),))
        and is_finite(record.dual_vector, model.shape)
        and is_finite(record.model, model.shape)
    )


def is_finite(values: Any, shape: tuple[int, ...]) -> bool:
    """Whether this is an array of finite floating-point numbers of that shape."""
    if not isinstance(values, np.ndarray) or values.shape != shape or values.dtype.kind != "f":
        return False
    # One product is several times faster; it also overflows for very large finite numbers.
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def _is_moment(values: np.ndarray, order: int) -> bool:
    """Whether this may be a diagonal or upper triangle of second moments, by the Cauchy-Schwarz inequality."""
    values = values.astype(np.float64)
    if len(values) == order:
        return bool(values.min() >= 0)
    rows, columns = np.triu_indices(order)
    diagonal = values[rows == columns]
    if diagonal.min() < 0:
        return False
    lengths = np.sqrt(np.maximum(diagonal, _LEAST_SINGLE))  # a diagonal of zero may have been rounded down
    return bool((np.abs(values) <= _MAX_CORRELATION * lengths[rows] * lengths[columns]).all())


def _is_amount(value: float) -> bool:
    return 0 <= value < math.inf


def _is_list_of_integers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i"


def _rows_of(record: Snapshot | HingeCosts) -> tuple[int, int]:
    """Identifies the rows that a record is about, at its peer."""
    return incarnation_of(record.number), record.data_version


class Proof(NamedTuple):
    """A model with its exact objective and a lower bound, for the rows of these members."""

    model: np.ndarray  # (problems, d)
    certificates: list[Certificate]  # one for each problem
    members: frozenset[int]
    total: float = 0.0  # of the weights of all their rows

    @property
    def worst(self) -> Certificate:
        return max(self.certificates, key=lambda certificate: certificate.relative)


@dataclass
class RecordTable:
    """All records that one peer knows, and what follows from them."""

    me: int
    problem: MeanHinge
    newest: dict[type, dict[int, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})  # by peer
    snapshots: dict[int, dict[int, Snapshot]] = field(default_factory=dict)  # the last few, by tick and peer
    proposals: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)  # the last few, by peer and number
    costs: dict[tuple[int, int], dict[int, np.ndarray]] = field(default_factory=dict)  # of proposals, by peer
    best: Proof | None = None
    changed_at: int = 0  # last tick in which some peer's rows or neighbours changed: the same at all peers
    _members: frozenset[int] | None = None  # None: to be found again
    _last_members: frozenset[int] = frozenset()  # the same object while the members are the same
    _proposer: int = 0
    _is_known: bool = False
    _proved_from: Any = None  # proposal, tick and members of the last proof
    _is_changed: bool = True  # since the last proof

    def take(self, record: Record) -> bool:
        """Keep a record if it is newer than the one known; whether it was."""
        newest = self.newest[type(record)]
        known = newest.get(record.peer)
        if known is not None and known.number >= record.number:
            return False
        newest[record.peer] = record
        self._is_changed = True
        if isinstance(record, Snapshot):
            self._take_snapshot(record, known)
        elif isinstance(record, Proposal):
            self.proposals[record.peer, record.number] = record.model
            for old in sorted(key for key in self.proposals if key[0] == record.peer)[:-KEPT]:
                del self.proposals[old]
        elif isinstance(record, HingeCosts):
            self._take_costs(record)
        return True

    def _take_costs(self, record: HingeCosts) -> None:
        """Keep the costs if they are of the rows in the peer's snapshot."""
        snapshot = self.newest[Snapshot].get(record.peer)
        if snapshot is None or _rows_of(snapshot) != _rows_of(record):
            return
        for number, cost in zip(record.proposals.tolist(), record.costs, strict=True):
            self.costs.setdefault((record.proposer, number), {})[record.peer] = cost
        if len(self.costs) > 4 * KEPT:
            proposer = self.proposer
            order = sorted(self.costs, key=lambda key: (key[0] == proposer, key[1]))
            self.costs = {key: self.costs[key] for key in order[-2 * KEPT :]}

    def _take_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        has_other_neighbours = before is None or before.neighbours.tobytes() != snapshot.neighbours.tobytes()
        has_other_rows = before is None or _rows_of(before) != _rows_of(snapshot)
        if has_other_neighbours:
            self._members = None
        if has_other_neighbours or has_other_rows:
            self.changed_at = max(self.changed_at, tick_of(snapshot.number))
        if has_other_rows:
            if before is not None:  # another problem
                self.best = None
                tables: list[dict[int, Any]] = [*self.costs.values(), *self.snapshots.values()]
                for by_peer in tables:
                    by_peer.pop(snapshot.peer, None)
            if costs := self.newest[HingeCosts].get(snapshot.peer):
                self._take_costs(costs)
        self.snapshots.setdefault(snapshot.tick, {})[snapshot.peer] = snapshot
        for old in sorted(self.snapshots)[:-KEPT]:
            del self.snapshots[old]

    @property
    def members(self) -> frozenset[int]:
        """Oneself and all peers reached along the neighbours in snapshots."""
        if self._members is None:
            reached, ahead, self._is_known = {self.me}, [self.me], True
            while ahead:
                snapshot = self.newest[Snapshot].get(ahead.pop())
                if snapshot is None:
                    self._is_known = False
                    continue
                news = [peer for peer in snapshot.neighbours.tolist() if peer not in reached]
                reached.update(news)
                ahead.extend(news)
            if self._last_members != reached:
                self._last_members = frozenset(reached)
            self._members, self._proposer = self._last_members, min(reached)
        return self._members

    @property
    def is_network_known(self) -> bool:
        """Whether the snapshots of all members are known."""
        return bool(self.members) and self._is_known

    @property
    def proposer(self) -> int:
        """The member with the lowest number."""
        return self._proposer if self.members else self.me

    def latest(self, kind: type[Kind]) -> list[Kind]:
        """The newest records of one kind of all members that have one, in the order of peers."""
        newest = self.newest[kind]
        return [newest[peer] for peer in sorted(self.members) if peer in newest]

    def common_tick(self) -> int | None:
        """The last tick for which the snapshots of all members are known."""
        if not self.is_network_known:
            return None
        return next((t for t in sorted(self.snapshots, reverse=True) if self._is_of_all(self.snapshots[t])), None)

    def _is_of_all(self, by_peer: dict[int, Any]) -> bool:
        return len(by_peer) >= len(self.members) and self.members <= by_peer.keys()

    def current_proposals(self) -> list[tuple[int, int]]:
        """Peer and number of the last proposals of the current proposer, the newest first."""
        proposer = self.proposer
        return sorted((key for key in self.proposals if key[0] == proposer), reverse=True)

    def prove(self) -> Proof | None:
        """The best proof for the current members; None while there is none."""
        if not self._is_changed:
            return self.best
        self._is_changed = False
        if self.best is not None and self.best.members is not self.members:
            self.best = None
        if self.is_network_known:
            costed = next((key for key in self.current_proposals() if self._is_of_all(self.costs.get(key, {}))), None)
            made_of = (costed, self.common_tick(), self.members)
            if costed is not None and (made_of != self._proved_from or self.best is None):
                self._proved_from = made_of
                self._improve(costed)
        return self.best

    def _improve(self, proposal: tuple[int, int]) -> None:
        """Compute both bounds, and keep the better of the old and the new for each problem."""
        model, peers, tick = self.proposals[proposal].copy(), sorted(self.members), self.common_tick()
        snapshots = self.latest(Snapshot) if tick is None else [self.snapshots[tick][peer] for peer in peers]
        total = sum(snapshot.total for snapshot in snapshots)
        if total <= 0:
            return  # nobody has a row
        costs = np.sum([self.costs[proposal][peer] for peer in peers], axis=0)
        primal = [self.problem.primal_value(float(c) / total, float(w @ w)) for w, c in zip(model, costs, strict=True)]
        sums = np.sum([snapshot.dual_sum for snapshot in snapshots], axis=0) / total
        vectors = np.sum([snapshot.dual_vector for snapshot in snapshots], axis=0)
        dual = [self.problem.dual_value(float(a), float(v @ v) / total**2) for a, v in zip(sums, vectors, strict=True)]
        if self.best is not None:
            for k, certificate in enumerate(self.best.certificates):
                dual[k] = max(dual[k], certificate.dual)
                if certificate.primal <= primal[k]:
                    model[k], primal[k] = self.best.model[k], certificate.primal
        certificates = [Certificate(p, d) for p, d in zip(primal, dual, strict=True)]
        if any(certificate.dual > certificate.primal * _ROUNDING for certificate in certificates):
            # The records are not all of the same rows: start again with those to come.
            self.best, self.costs, self.snapshots, self._proved_from = None, {}, {}, None
            return
        self.best = Proof(model, certificates, self.members, total)
