"""What peers tell each other about their own rows, and how a peer certifies a model with nobody to ask.

    D = A/N - ||V||^2 / (2 alpha N^2) <= F*         A, V: sums over peers, each peer's taken at any time
    F(w) = alpha/2 ||w||^2 + H(w)/N >= F*           H: the sum over peers of their hinge losses at the same w

Both bounds allow for the rounding of what they are computed from: a peer rounds its A down and its losses up, and says
how far its V may be off; ``RecordTable`` allows for the sums over peers.

Six kinds of record are gossiped, and the newest of each peer counts:

    Moments      second moments of its features, once
    Snapshot     its A and V, its model, and the neighbours it receives from, at ticks that are the same for all
    Proposal     by the peer with the lowest number: the mean of all models of one tick
    HingeCosts   the hinge losses of its rows for the last proposals
    Query        by the same peer: three models, and weights of cuts (``cutting_planes``)
    Answer       the hinge losses of its rows at points between those models, new cuts, and the weighted sum of old ones

A peer with the hinge costs of all members knows the exact objective of a proposal; with all snapshots it has a lower
bound, which is tight if they are of the same tick. Costs count only beside a snapshot of the same rows: both carry a
data version, drawn at random when a peer starts or gets rows. Sums estimated by averaging would prove nothing: with
errors of 10% in the weights, D exceeds F* about half of the time.

The members of a network are the peers reached from oneself along the neighbours in snapshots. A peer that falls silent
drops out of the others' snapshots; their network then has its own optimum. A peer that is excluded is no
member, whoever names it, and nothing that it said counts.

Costs and answers carry a digest of the models that they are of. Costs of different models under one number, by a
proposer that sends different models to different peers, would add up to an objective that no model has.
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from widemargin.peers.cutting_planes import N_POINTS, N_QUERIED, Cut, CutTable, points_of
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate
from widemargin.rounding import gamma

KEPT = 4  # snapshots and proposals of a peer, and costed proposals in a record
NUMBERS_PER_INCARNATION = 1 << 40  # a peer that restarts numbers its records above all that it sent before
LAST_TICK = NUMBERS_PER_INCARNATION // 2  # whoever claims a later one would lead others into the next incarnation
_CHECKED_BYTES = 1 << 18  # of records that are known to be sound
SHARED_BYTES = 1 << 24  # the same, for all peers of a simulation
_MAX_CORRELATION = 1 + 1e-3  # of two features; the excess is rounding
_LEAST_SINGLE = float(np.finfo(np.float32).smallest_subnormal)
_KEPT_DEPARTED = 32  # peers that are no members any more, and whose records are kept
_DEPARTED_TICKS = 1024  # after its last record, until a peer counts as departed, and its cuts are forgotten
_STALLED_PROOFS = 16  # in a row that leave the gap where it is
_LEAST_FALL = 0.95  # of the gap, from one of these to the next
_ROUNDED = 0.25  # of a gap that rounding keeps open
_SMALLEST_GAP = 1e-7  # below which cuts cannot be told apart in float64


def tick_of(number: int) -> int:
    """The tick in which a record or message of this number was sent."""
    return number % NUMBERS_PER_INCARNATION - 1


def digest_of(models: np.ndarray) -> int:
    """Identifies the models of a proposal or query."""
    data = np.ascontiguousarray(models, dtype="<f8").tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


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
    dual: Cut  # A and V of each problem
    model: np.ndarray  # w of each problem, (problems, d)
    rho: float  # that it suggests
    gap: float  # that it has certified
    is_stuck: bool  # whether rounding keeps this gap open


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
    costs: np.ndarray  # upper bounds of hinge sums, (proposals, problems)
    digests: np.ndarray  # of the proposals


class Query(NamedTuple):
    """Models at which cuts are wanted, and how to combine those that there are."""

    peer: int
    number: int
    models: np.ndarray  # (3, problems, d)
    owners: np.ndarray  # of the cuts that have a weight
    cuts: np.ndarray  # their numbers
    weights: np.ndarray  # (cuts, problems)


class Answer(NamedTuple):
    """What one peer's rows say to a query of another."""

    peer: int
    number: int
    proposer: int
    query: int  # its number
    data_version: int  # of its rows
    total: float  # of the weights of its rows
    costs: np.ndarray  # upper bounds of hinge sums at all points, (points, problems)
    allowances: np.ndarray  # for rounding, in these
    combined: Cut  # of its cuts, by the weights of the query
    cuts: Cut  # at the three models, with one more axis in front
    digest: int  # of the models of the query


Record = Moments | Snapshot | Proposal | HingeCosts | Query | Answer
KINDS: tuple[type, ...] = (Moments, Snapshot, Proposal, HingeCosts, Query, Answer)  # in the order of their wire codes
Kind = TypeVar("Kind", Moments, Snapshot, Proposal, HingeCosts, Query, Answer)


def n_bytes_of(record: Record | Cut) -> int:
    """Bytes of the numbers in a record."""
    return sum(
        n_bytes_of(value) if isinstance(value, Cut) else value.nbytes if isinstance(value, np.ndarray) else 8
        for value in record
    )


def cuts_in(record: Snapshot | Answer) -> list[tuple[int, Cut]]:
    """The cuts in a record, and what their peer calls them.

    The combination is one of them: those that it is made of may be dropped, and the bound is not lost.
    """
    cuts = [record.dual] if isinstance(record, Snapshot) else [record.combined]
    cuts += [] if isinstance(record, Snapshot) else [Cut(*each) for each in zip(*record.cuts, strict=True)]
    first = 2 * (N_QUERIED + 1) * tick_of(record.number) + (0 if isinstance(record, Snapshot) else N_QUERIED + 1)
    return list(enumerate(cuts, first))


@dataclass
class RecordChecker:
    """Checks every record of another peer once. Simulated peers pass on the same objects and share a checker.

    A peer by itself gets other objects with each message: whatever is kept here beyond that is of no use to it.
    """

    most_bytes: int = _CHECKED_BYTES
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
            if self._n_bytes + n_bytes > self.most_bytes:
                self._checked.clear()
                self._n_bytes = 0
            if n_bytes <= self.most_bytes:
                self._checked[id(record)] = record, shapes, n_bytes  # keeps the record alive, and so its identity
                self._n_bytes += n_bytes
        return n_bytes


def _is_sound(record: Record, model: np.ndarray, moment: np.ndarray | None) -> bool:
    if record.peer < 0 or record.number < 0 or tick_of(record.number) > LAST_TICK:
        return False
    if isinstance(record, Moments):
        is_whole = moment is not None and _is_amount(record.total) and is_finite(record.moment, moment.shape)
        return is_whole and _is_moment(record.moment, model.shape[1])
    if isinstance(record, Proposal):
        return is_finite(record.model, model.shape)
    if isinstance(record, HingeCosts):
        n = len(record.proposals) if _is_list_of_integers(record.proposals) else -1
        is_whole = 0 < n <= KEPT and is_finite(record.costs, (n, len(model)))
        is_whole = is_whole and _is_list_of_integers(record.digests) and len(record.digests) == n
        return is_whole and _is_amount(record.total) and isinstance(record.data_version, int)
    if isinstance(record, Query):
        n = len(record.cuts) if _is_list_of_integers(record.cuts) else -1
        is_whole = is_finite(record.models, (N_QUERIED, *model.shape)) and is_finite(record.weights, (n, len(model)))
        is_whole = is_whole and _is_list_of_integers(record.owners) and len(record.owners) == n
        return is_whole and bool(record.weights.min(initial=0.0) >= 0)
    if not (_is_amount(record.total) and isinstance(record.data_version, int)):
        return False
    if isinstance(record, Answer):
        n_points = N_POINTS, len(model)
        are_costs = is_finite(record.costs, n_points) and is_finite(record.allowances, n_points)
        return are_costs and _is_cut(record.combined, model.shape) and _is_cut(record.cuts, (N_QUERIED, *model.shape))
    return (
        _is_amount(record.rho)
        and record.rho > 0
        and record.tick <= tick_of(record.number)  # a later one would push those of others out of the table
        and record.gap >= 0  # may be infinite
        and _is_list_of_integers(record.neighbours)
        and _is_cut(record.dual, model.shape)
        and is_finite(record.model, model.shape)
    )


def _is_cut(cut: Any, shape: tuple[int, ...]) -> bool:
    if not isinstance(cut, Cut) or not is_finite(cut.sums, shape[:-1]) or not is_finite(cut.errors, shape[:-1]):
        return False
    return bool(cut.errors.min() >= 0) and is_finite(cut.vectors, shape)


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


def _rows_of(record: Snapshot | HingeCosts | Answer) -> tuple[int, int]:
    """Identifies the rows that a record is about, at its peer."""
    return incarnation_of(record.number), record.data_version


class Proof(NamedTuple):
    """A model with its exact objective and a lower bound, for the rows of these members."""

    model: np.ndarray  # (problems, d)
    certificates: list[Certificate]  # one for each problem
    members: frozenset[int]
    total: float = 0.0  # of the weights of all their rows
    is_stuck: bool = False  # whether rounding keeps the gap open

    @property
    def worst(self) -> Certificate:
        return max(self.certificates, key=lambda certificate: certificate.relative)


About = tuple[int, int, int]  # proposer, number and digest of a proposal or query


@dataclass
class RecordTable:
    """All records that one peer knows, and what follows from them."""

    me: int
    problem: MeanHinge
    newest: dict[type, dict[int, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})  # by peer
    snapshots: dict[int, dict[int, Snapshot]] = field(default_factory=dict)  # the last few, by tick and peer
    proposals: dict[About, np.ndarray] = field(default_factory=dict)  # the last few
    costs: dict[About, dict[int, np.ndarray]] = field(default_factory=dict)  # of proposals, by peer
    queries: list[tuple[Query, int]] = field(default_factory=list)  # the last few of each peer, and their digests
    answers: dict[About, dict[int, Answer]] = field(default_factory=dict)  # to queries, by peer
    cuts: CutTable = field(init=False)
    best: Proof | None = None
    excluded: set[int] = field(default_factory=set)  # peers whose records are refused
    changed_at: int = 0  # last tick in which some peer's rows or neighbours changed: the same at all peers
    _members: frozenset[int] | None = None  # None: to be found again
    _last_members: frozenset[int] = frozenset()  # the same object while the members are the same
    _proposer: int = 0
    _is_known: bool = False
    _proved_from: Any = None  # proposal, query, tick and members of the last proof
    _n_stalled: int = 0  # proofs that left the gap where it was
    _gap_to_beat: float = math.inf
    _is_changed: bool = True  # since the last proof

    def __post_init__(self) -> None:
        self.cuts = CutTable(self.me)

    def take(self, record: Record) -> bool:
        """Keep a record if it is newer than the one known; whether it was."""
        if record.peer in self.excluded:
            return False
        newest = self.newest[type(record)]
        known = newest.get(record.peer)
        if known is not None and known.number >= record.number:
            return False
        newest[record.peer] = record
        self._is_changed = True
        if isinstance(record, Snapshot):
            self._take_snapshot(record, known)
        elif isinstance(record, Proposal):
            self.proposals[record.peer, record.number, digest_of(record.model)] = record.model
            for old in sorted(key for key in self.proposals if key[0] == record.peer)[:-KEPT]:
                del self.proposals[old]
        elif isinstance(record, HingeCosts):
            self._take_costs(record)
        elif isinstance(record, Query):
            others = [each for each in self.queries if each[0].peer != record.peer]
            own = [each for each in self.queries if each[0].peer == record.peer][1 - KEPT :]
            self.queries = [*others, *own, (record, digest_of(record.models))]
            self.cuts.note_use(record.owners, record.cuts, record.weights)
        elif isinstance(record, Answer):
            self._take_answer(record)
        return True

    def exclude(self, peer: int) -> None:
        """Forget a peer and all that rests on what it said; the others go on with their own records."""
        self.excluded.add(peer)
        for newest in self.newest.values():
            newest.pop(peer, None)
        by_peers: list[dict[int, Any]] = [*self.costs.values(), *self.snapshots.values(), *self.answers.values()]
        for by_peer in by_peers:
            by_peer.pop(peer, None)
        self.snapshots = {tick: by_peer for tick, by_peer in self.snapshots.items() if by_peer}
        self.proposals = {key: model for key, model in self.proposals.items() if key[0] != peer}
        self.costs = {key: by_peer for key, by_peer in self.costs.items() if key[0] != peer}
        self.answers = {key: by_peer for key, by_peer in self.answers.items() if key[0] != peer}
        self.queries = [each for each in self.queries if each[0].peer != peer]
        self.cuts.forget(peer)
        self._forget_best()
        self._members, self._proved_from, self._is_changed = None, None, True

    def _take_answer(self, record: Answer) -> None:
        """Keep an answer and its cuts if they are of the rows in the peer's snapshot."""
        snapshot = self.newest[Snapshot].get(record.peer)
        if snapshot is None or _rows_of(snapshot) != _rows_of(record):
            return
        self.answers.setdefault((record.proposer, record.query, record.digest), {})[record.peer] = record
        self._keep_last(self.answers, record.peer, KEPT)
        self.cuts.add(record.peer, cuts_in(record))

    def _take_costs(self, record: HingeCosts) -> None:
        """Keep the costs if they are of the rows in the peer's snapshot."""
        snapshot = self.newest[Snapshot].get(record.peer)
        if snapshot is None or _rows_of(snapshot) != _rows_of(record):
            return
        for number, digest, cost in zip(record.proposals.tolist(), record.digests.tolist(), record.costs, strict=True):
            self.costs.setdefault((record.proposer, number, digest), {})[record.peer] = cost
        self._keep_last(self.costs, record.peer, 2 * KEPT)

    def _keep_last(self, table: dict[About, dict[int, Any]], peer: int, most: int) -> None:
        """Drop the oldest entries of one peer: whatever numbers it names, those of others stay."""
        own = [key for key, by_peer in table.items() if peer in by_peer]
        if len(own) > most:
            proposer = self.proposer
            for key in sorted(own, key=lambda key: (key[0] == proposer, key[1]))[:-most]:
                del table[key][peer]
                if not table[key]:
                    del table[key]

    def _take_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        has_other_neighbours = before is None or before.neighbours.tobytes() != snapshot.neighbours.tobytes()
        has_other_rows = before is None or _rows_of(before) != _rows_of(snapshot)
        if has_other_neighbours:
            self._members = None
        if has_other_neighbours or has_other_rows:
            self.changed_at = max(self.changed_at, tick_of(snapshot.number))
        if has_other_rows:
            if before is not None:  # another problem
                self._forget_best()
                self.cuts.forget(snapshot.peer)
                tables: list[dict[int, Any]] = [*self.costs.values(), *self.snapshots.values(), *self.answers.values()]
                for by_peer in tables:
                    by_peer.pop(snapshot.peer, None)
            if costs := self.newest[HingeCosts].get(snapshot.peer):
                self._take_costs(costs)
            if answer := self.newest[Answer].get(snapshot.peer):
                self._take_answer(answer)
        self.cuts.add(snapshot.peer, cuts_in(snapshot))
        self.snapshots.setdefault(snapshot.tick, {})[snapshot.peer] = snapshot
        for old in sorted(self.snapshots)[:-KEPT]:
            del self.snapshots[old]

    def forget_departed(self, tick: int) -> list[int]:
        """Forget cuts of peers that left long ago, and all records of such peers but the last few; whose these are.

        Peers that have received the same records forget the same ones: the metric must be the same for all.
        """
        members, snapshots = self.members, self.newest[Snapshot]
        if max(len(snapshots), len(self.cuts.by_peer)) <= len(members):
            return []
        left = [peer for peer in snapshots if peer not in members]
        departed = sorted((n, peer) for peer in left if (n := self._last_tick(peer)) < tick - _DEPARTED_TICKS)
        for _, peer in departed:
            self.cuts.forget(peer)
        old = [peer for _, peer in departed[: max(0, len(left) - _KEPT_DEPARTED)]]
        for peer in old:
            tables: list[dict[int, Any]] = [*self.newest.values(), *self.costs.values(), *self.snapshots.values()]
            for by_peer in [*tables, *self.answers.values()]:
                by_peer.pop(peer, None)
        self.proposals = {key: model for key, model in self.proposals.items() if key[0] not in old}
        return old

    def _last_tick(self, peer: int) -> int:
        """Of the records of a peer."""
        return max(tick_of(newest[peer].number) for newest in self.newest.values() if peer in newest)

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
                named = snapshot.neighbours.tolist()
                news = [peer for peer in named if peer not in reached and peer not in self.excluded]
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

    def current_proposals(self) -> list[About]:
        """The last proposals of the current proposer, the newest first."""
        proposer = self.proposer
        return sorted((key for key in self.proposals if key[0] == proposer), reverse=True)

    def is_answered(self, query: Query, digest: int) -> bool:
        """Whether all members have answered."""
        return self._is_of_all(self.answers.get((query.peer, query.number, digest), {}))

    def last_query(self, peer: int) -> tuple[Query, int] | None:
        """The newest query of a peer, and its digest."""
        return next((each for each in reversed(self.queries) if each[0].peer == peer), None)

    def prove(self) -> Proof | None:
        """The best proof for the current members; None while there is none."""
        if not self._is_changed:
            return self.best
        self._is_changed = False
        if self.best is not None and self.best.members is not self.members:
            self._forget_best()
        if self.is_network_known:
            costed = next((key for key in self.current_proposals() if self._is_of_all(self.costs.get(key, {}))), None)
            answered = next((query for query in reversed(self.queries) if self.is_answered(*query)), None)
            made_of = (costed, None if answered is None else answered[0].number, self.common_tick(), self.members)
            has_model = costed is not None or answered is not None
            if has_model and (made_of != self._proved_from or self.best is None):
                self._proved_from = made_of
                self._improve(costed, answered)
        return self.best

    def _forget_best(self) -> None:
        self.best, self._n_stalled, self._gap_to_beat = None, 0, math.inf

    def _improve(self, proposal: About | None, answered: tuple[Query, int] | None) -> None:
        """Compute both bounds, and keep the better of the old and the new for each problem."""
        peers, tick = sorted(self.members), self.common_tick()
        snapshots = self.latest(Snapshot) if tick is None else [self.snapshots[tick][peer] for peer in peers]
        total = sum(snapshot.total for snapshot in snapshots)
        if total <= 0:
            return  # nobody has a row
        dual, lost = self._lower([snapshot.dual for snapshot in snapshots], total)
        model, primal = np.zeros_like(snapshots[0].model), np.full(len(dual), np.inf)
        if self.best is not None:
            model = self.best.model.copy()
            primal, known = np.array([(each.primal, each.dual) for each in self.best.certificates]).T
            dual = np.maximum(dual, known)
        if proposal is not None:
            costs = np.sum([self.costs[proposal][peer] for peer in peers], axis=0)
            self._take_better(model, primal, self.proposals[proposal], costs, total)
        if answered is not None:
            query, digest = answered
            answers = [self.answers[query.peer, query.number, digest][peer] for peer in peers]
            combined, lost = self._lower([answer.combined for answer in answers], total)
            dual = np.maximum(dual, combined)
            costs = np.sum([answer.costs for answer in answers], axis=0)
            for point, at_point in zip(points_of(query.models), costs, strict=True):
                self._take_better(model, primal, point, at_point, total)
            lost = lost + np.sum([answer.allowances.min(axis=0) for answer in answers], axis=0) / total
        if bool((dual > primal).any()):
            # The records are not all of the same rows: start again with those to come.
            self._forget_best()
            self.costs, self.snapshots, self.answers, self._proved_from = {}, {}, {}, None
            self.cuts.forget_others()
            return
        proof = Proof(
            model, [Certificate(*each) for each in zip(primal.tolist(), dual.tolist(), strict=True)], self.members
        )
        is_stuck = answered is not None and self._has_stalled(
            proof.worst, bool((lost >= _ROUNDED * (primal - dual)).any())
        )
        self.best = proof._replace(total=total, is_stuck=is_stuck)

    def _has_stalled(self, worst: Certificate, is_rounded: bool) -> bool:
        """Whether many proofs in a row have not reduced a gap, and rounding is why."""
        self._n_stalled += 1
        if worst.relative < _LEAST_FALL * self._gap_to_beat:
            self._gap_to_beat, self._n_stalled = worst.relative, 0
        return self._n_stalled >= _STALLED_PROOFS and (is_rounded or worst.relative < _SMALLEST_GAP)

    def _take_better(
        self, model: np.ndarray, primal: np.ndarray, other: np.ndarray, costs: np.ndarray, total: float
    ) -> None:
        """Put another model, with the sums of its hinge losses, where it is better.

        All terms are positive: a square of d terms, a sum over peers, a total and five operations more.
        """
        loss = gamma(other.shape[1] + 2 * len(self.members) + 16)
        for k, (w, cost) in enumerate(zip(other, costs.tolist(), strict=True)):
            value = self.problem.primal_value(cost / total, float(w @ w)) * (1 + loss)
            if value < primal[k]:
                model[k], primal[k] = w, value

    def _lower(self, cuts: list[Cut], total: float) -> tuple[np.ndarray, np.ndarray]:
        """The lower bound of each problem from a cut of every peer, and how much of it rounding takes.

        The exact V is a sum over k peers, each of which is off by its own error, and rounds to the computed one within
        ``gamma(k)`` of the sum of lengths. The bound itself is a difference of two terms, after ten operations at most.
        """
        k, d = len(cuts), cuts[0].vectors.shape[1]
        loss = gamma(d + 2 * k + 16)
        gains = np.sum([cut.sums for cut in cuts], axis=0) / total
        lengths = np.linalg.norm(np.sum([cut.vectors for cut in cuts], axis=0), axis=1)
        errors = np.sum([cut.errors + gamma(k) * np.linalg.norm(cut.vectors, axis=1) for cut in cuts], axis=0)
        lower, lost = [], []
        for gain, length, error in zip(gains.tolist(), lengths.tolist(), errors.tolist(), strict=True):
            size = ((length + error) * (1 + loss) / total) ** 2 * (1 + loss)
            bound = self.problem.dual_value(gain * (1 - loss), size) - loss * gain
            lower.append(max(bound, 0.0))  # no loss is negative
            lost.append(self.problem.dual_value(gain, (length / total) ** 2) - bound)
        return np.array(lower), np.array(lost)
