"""How a peer knows how good a model is, with nobody to ask: a table of what every peer says of its own rows.

    D = A/N - ||V||^2 / (2 alpha N^2) <= F*         A, V: sums over peers of their own, each of any moment
    F(w) = alpha/2 ||w||^2 + H(w)/N >= F*           H: the sum over peers of their hinge losses at the same w

Four kinds of record pass from neighbour to neighbour, and the newest of each peer counts:

    Portrait   the features of its rows, once
    Snapshot   its A and V, its model, and which neighbours it hears, at ticks that are the same for all
    Proposal   by the peer of the lowest number that is there: the mean of all models of one tick
    Verdict    what the last proposals cost its rows

Whoever holds the verdicts of all holds the exact objective of a proposal; whoever holds all snapshots, a lower bound.
It is tight when they are of one tick: what peers pull at each other then cancels. A verdict counts only beside a
snapshot of the same rows, whichever came first: both bear a mark that is drawn whenever a peer begins or gets rows.
Sums that are estimated by averaging would be no proof: an error of a tenth in the weights puts D above F* as often as
not.

Who is there? Those that are reached from oneself along the neighbours named in snapshots; all are known when each has
one. A peer that falls silent is no longer named, and the network is then that of the others, with their own optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate

KEPT = 4  # snapshots and proposals of a peer, and verdicts on proposals
_EXAMINED_BYTES = 1 << 24  # of records that are remembered to be sound, and so kept
_BEYOND_BOUND = 1 + 1e-3  # of an entry of a moment, by its diagonal: rounding, and more
_LEAST_SINGLE = float(np.finfo(np.float32).smallest_subnormal)
_ROUNDING = 1 + 1e-9  # of a lower bound that is above an upper one
NUMBERS_PER_LIFE = 1 << 40  # a peer that has come back numbers what it says above all that it said before


def tick_of(number: int) -> int:
    """The tick in which whatever bears this number was said."""
    return number % NUMBERS_PER_LIFE - 1


def life_of(number: int) -> int:
    """The life of its peer in which it was said."""
    return number // NUMBERS_PER_LIFE


class Portrait(NamedTuple):
    """Sums over the rows of a peer, from which all make the same metric."""

    peer: int
    number: int
    total: float  # of weights
    moment: np.ndarray  # the upper triangle of a matrix of order d, row by row, or its diagonal


class Snapshot(NamedTuple):
    """Where a peer stands at one moment."""

    peer: int
    number: int
    tick: int  # that it was taken at
    neighbours: np.ndarray  # that it hears
    birth: int  # of these rows at this peer: drawn by chance
    total: float  # of the weights of its rows
    mass: np.ndarray  # A of each problem
    pull: np.ndarray  # V of each problem, (problems, d)
    model: np.ndarray  # w of each problem, (problems, d)
    stiffness: float  # that it would have all use
    gap: float  # that it has certified


class Proposal(NamedTuple):
    """A model to be judged by all."""

    peer: int
    number: int
    model: np.ndarray


class Verdict(NamedTuple):
    """What the last proposals of one peer cost another."""

    peer: int
    number: int
    proposer: int
    birth: int  # of the rows that it judged for
    total: float  # of the weights of its rows when it judged
    judged: np.ndarray  # numbers of proposals, the newest first
    costs: np.ndarray  # hinge sums, (proposals, problems)


Record = Portrait | Snapshot | Proposal | Verdict
KINDS: tuple[type, ...] = (Portrait, Snapshot, Proposal, Verdict)
Kind = TypeVar("Kind", Portrait, Snapshot, Proposal, Verdict)


def n_bytes_of(record: Record) -> int:
    """Bytes of the numbers in a record."""
    n_bytes = 8 * len(record)
    for value in record:
        if isinstance(value, np.ndarray):
            n_bytes += value.nbytes - 8
    return n_bytes


@dataclass
class Examiner:
    """Looks at records that came from elsewhere, at each only once.

    Peers of one process hand on the same object, and may share an examiner.
    """

    _seen: dict[int, tuple[Any, Any, int]] = field(default_factory=dict)  # record, shapes, bytes; by identity
    _n_bytes: int = 0  # of those

    def size_of(self, record: Record, model: np.ndarray, moment: np.ndarray | None) -> int:
        """Bytes of a record whose arrays are like these two, with finite numbers; -1 for one that is not like that."""
        shapes = model.shape, None if moment is None else moment.shape
        record_seen, shapes_seen, n_bytes = self._seen.get(id(record), (None, None, -1))
        if record_seen is not record or shapes_seen != shapes:
            if not _is_sound(record, model, moment):
                return -1
            n_bytes = n_bytes_of(record)
            if self._n_bytes + n_bytes > _EXAMINED_BYTES:
                self._seen.clear()
                self._n_bytes = 0
            if n_bytes <= _EXAMINED_BYTES:
                self._seen[id(record)] = record, shapes, n_bytes  # which keeps the record, and so its identity
                self._n_bytes += n_bytes
        return n_bytes


def _is_sound(record: Record, model: np.ndarray, moment: np.ndarray | None) -> bool:
    """Whether shapes are whole and numbers finite."""
    if record.number < 0 or record.peer < 0:
        return False
    if isinstance(record, Portrait):
        if moment is None or not _is_amount(record.total) or not is_finite(record.moment, moment.shape):
            return False
        return _is_moment(record.moment, model.shape[1])
    if isinstance(record, Proposal):
        return is_finite(record.model, model.shape)
    if isinstance(record, Verdict):
        n = len(record.judged) if _is_list_of_peers(record.judged) else -1
        is_whole = 0 < n <= KEPT and is_finite(record.costs, (n, len(model)))
        return is_whole and _is_amount(record.total) and isinstance(record.birth, int)
    return (
        _is_amount(record.total)
        and isinstance(record.birth, int)
        and _is_amount(record.stiffness)
        and record.stiffness > 0
        and record.gap >= 0  # which may be infinite
        and _is_list_of_peers(record.neighbours)
        and is_finite(record.mass, (len(model),))
        and is_finite(record.pull, model.shape)
        and is_finite(record.model, model.shape)
    )


def is_finite(values: Any, shape: tuple[int, ...]) -> bool:
    """Whether this is an array of finite floating numbers of that shape."""
    if not isinstance(values, np.ndarray) or values.shape != shape or values.dtype.kind != "f":
        return False
    # One product is several times faster, and only fails on numbers that are finite if these are very large.
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def _is_moment(values: np.ndarray, order: int) -> bool:
    """Whether this may be the diagonal, or the upper triangle, of a sum of squares: by the inequality of Schwarz."""
    values = values.astype(np.float64)
    if len(values) == order:
        return bool(values.min() >= 0)
    rows, columns = np.triu_indices(order)
    diagonal = values[rows == columns]
    if diagonal.min() < 0:
        return False
    lengths = np.sqrt(np.maximum(diagonal, _LEAST_SINGLE))  # what has been rounded to nothing need not be nothing
    return bool((np.abs(values) <= _BEYOND_BOUND * lengths[rows] * lengths[columns]).all())


def _is_amount(value: float) -> bool:
    return 0 <= value < math.inf


def _is_list_of_peers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i"


def _edition(record: Snapshot | Verdict) -> tuple[int, int]:
    """Which rows of its peer a record is about."""
    return life_of(record.number), record.birth


class Proof(NamedTuple):
    """A model whose objective is known, and a lower bound, for the network of these peers."""

    model: np.ndarray  # (problems, d)
    certificates: list[Certificate]  # one for each problem
    members: frozenset[int]
    total: float = 0.0  # of the weights of all their rows

    @property
    def worst(self) -> Certificate:
        return max(self.certificates, key=lambda certificate: certificate.relative)


@dataclass
class Claims:
    """The table of one peer."""

    me: int
    problem: MeanHinge
    newest: dict[type, dict[int, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})  # by peer
    snapshots: dict[int, dict[int, Snapshot]] = field(default_factory=dict)  # by tick and peer: the last few of each
    proposals: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)  # by peer and number: the last few
    costs: dict[tuple[int, int], dict[int, np.ndarray]] = field(default_factory=dict)  # of each, by peer that judged
    best: Proof | None = None
    changed_at: int = 0  # the last tick in which anyone told of other rows or neighbours: the same at all peers
    _members: frozenset[int] | None = None  # None when they have to be found anew
    _last_members: frozenset[int] = frozenset()  # the same object as long as they are the same
    _proposer: int = 0
    _is_known: bool = False
    _weighed: Any = None  # what the last proof was made of
    _is_changed: bool = True  # since then

    def take(self, record: Record) -> bool:
        """Take a record if it is news."""
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
        elif isinstance(record, Verdict):
            self._enter_costs(record)
        return True

    def _enter_costs(self, verdict: Verdict) -> None:
        """Take the costs in if they are of the rows that the peer is known to have."""
        snapshot = self.newest[Snapshot].get(verdict.peer)
        if snapshot is None or _edition(snapshot) != _edition(verdict):
            return
        for number, cost in zip(verdict.judged.tolist(), verdict.costs, strict=True):
            self.costs.setdefault((verdict.proposer, number), {})[verdict.peer] = cost
        if len(self.costs) > 4 * KEPT:
            proposer = self.proposer
            order = sorted(self.costs, key=lambda key: (key[0] == proposer, key[1]))
            self.costs = {key: self.costs[key] for key in order[-2 * KEPT :]}

    def _take_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        has_other_neighbours = before is None or before.neighbours.tobytes() != snapshot.neighbours.tobytes()
        has_other_rows = before is None or _edition(before) != _edition(snapshot)
        if has_other_neighbours:
            self._members = None
        if has_other_neighbours or has_other_rows:
            self.changed_at = max(self.changed_at, tick_of(snapshot.number))
        if has_other_rows:
            if before is not None:  # other rows: another problem
                self.best = None
                tables: list[dict[int, Any]] = [*self.costs.values(), *self.snapshots.values()]
                for by_peer in tables:
                    by_peer.pop(snapshot.peer, None)
            verdict = self.newest[Verdict].get(snapshot.peer)
            if verdict is not None:
                self._enter_costs(verdict)
        self.snapshots.setdefault(snapshot.tick, {})[snapshot.peer] = snapshot
        for old in sorted(self.snapshots)[:-KEPT]:
            del self.snapshots[old]

    # -- who is there ------------------------------------------------------------------------------------------------

    @property
    def members(self) -> frozenset[int]:
        """Peers reached along names, oneself among them."""
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
        """Whether every peer that is named has a snapshot."""
        return bool(self.members) and self._is_known

    @property
    def proposer(self) -> int:
        """Whose turn it is to propose: that of the lowest number."""
        return self._proposer if self.members else self.me

    def latest(self, kind: type[Kind]) -> list[Kind]:
        """The newest records of one kind, of all members that have one, in the order of peers."""
        newest = self.newest[kind]
        return [newest[peer] for peer in sorted(self.members) if peer in newest]

    def common_tick(self) -> int | None:
        """The last tick for which the snapshots of all members are here."""
        if not self.is_network_known:
            return None
        return next((t for t in sorted(self.snapshots, reverse=True) if self._is_of_all(self.snapshots[t])), None)

    def _is_of_all(self, by_peer: dict[int, Any]) -> bool:
        return len(by_peer) >= len(self.members) and self.members <= by_peer.keys()

    # -- proofs ------------------------------------------------------------------------------------------------------

    def to_judge(self) -> list[tuple[int, int]]:
        """Peer and number of the last proposals of the one whose turn it is, the newest first."""
        proposer = self.proposer
        return sorted((key for key in self.proposals if key[0] == proposer), reverse=True)

    def prove(self) -> Proof | None:
        """The best proof for the network as it is now; None while there is none."""
        if not self._is_changed:
            return self.best
        self._is_changed = False
        if self.best is not None and self.best.members is not self.members:
            self.best = None
        if self.is_network_known:
            judged = next((key for key in self.to_judge() if self._is_of_all(self.costs.get(key, {}))), None)
            made_of = (judged, self.common_tick(), self.members)
            if judged is not None and (made_of != self._weighed or self.best is None):
                self._weighed = made_of
                self._weigh(judged)
        return self.best

    def _weigh(self, proposal: tuple[int, int]) -> None:
        """Both bounds by the table as it is, where they are better than those before."""
        model, peers, tick = self.proposals[proposal].copy(), sorted(self.members), self.common_tick()
        snapshots = self.latest(Snapshot) if tick is None else [self.snapshots[tick][peer] for peer in peers]
        total = sum(snapshot.total for snapshot in snapshots)
        if total <= 0:
            return  # nobody has a row
        costs = np.sum([self.costs[proposal][peer] for peer in peers], axis=0)
        primal = [self.problem.primal_value(float(c) / total, float(w @ w)) for w, c in zip(model, costs, strict=True)]
        dual = self._lower_bounds(snapshots, total)
        if self.best is not None:
            for k, certificate in enumerate(self.best.certificates):
                dual[k] = max(dual[k], certificate.dual)
                if certificate.primal <= primal[k]:
                    model[k], primal[k] = self.best.model[k], certificate.primal
        certificates = [Certificate(p, d) for p, d in zip(primal, dual, strict=True)]
        if any(certificate.dual > certificate.primal * _ROUNDING for certificate in certificates):
            # Not all of this is of the same rows, whoever is to blame: what comes from now on may be.
            self.best, self.costs, self.snapshots, self._weighed = None, {}, {}, None
            return
        self.best = Proof(model, certificates, self.members, total)

    def _lower_bounds(self, snapshots: list[Snapshot], total: float) -> list[float]:
        mass = np.sum([snapshot.mass for snapshot in snapshots], axis=0)
        pull = np.sum([snapshot.pull for snapshot in snapshots], axis=0)
        return [
            self.problem.dual_value(float(a) / total, float(v @ v) / total**2) for a, v in zip(mass, pull, strict=True)
        ]
