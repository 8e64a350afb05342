"""All records that one peer knows, and what follows from them: who the members are, and the best proof.

The table holds handles of a ``RecordStore``: the newest record of each peer and kind, and those of the last few ticks,
proposals and queries, from which a proof is made. A table uses only what its peer has received.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from widemargin.compiled.networks import reach
from widemargin.peers.collected import Collection, News
from widemargin.peers.cutting_planes import CutTable
from widemargin.peers.proofs import Candidates, Proof, of_answers, of_costs, of_snapshots
from widemargin.peers.records import (
    KEPT,
    KINDS,
    NUMBERS_PER_INCARNATION,
    About,
    Answer,
    Digest,
    HingeCosts,
    Kind,
    Proposal,
    Query,
    Record,
    Snapshot,
    cuts_in,
    tick_of,
)
from widemargin.peers.store import CODES, HANDLE, N_KINDS, NONE, Members, RecordStore
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate

_KEPT_DEPARTED = 32  # peers that are no members any more, and whose records are kept
_DEPARTED_TICKS = 1024  # after its last record, until a peer counts as departed, and its cuts are forgotten
_STALLED_PROOFS = 16  # in a row that leave the gap where it is
_LEAST_FALL = 0.95  # of the gap, from one of these to the next
_ROUNDED = 0.25  # of a gap that rounding keeps open
_SMALLEST_GAP = 1e-7  # below which cuts cannot be told apart in float64
_SPARE = 8  # slots more than there are peers


@dataclass(eq=False)
class RecordTable:
    """The records that one peer has received; ``store`` may be shared with other peers of the process."""

    me: int
    problem: MeanHinge
    store: RecordStore = field(default_factory=RecordStore)
    proposals: dict[About, np.ndarray] = field(default_factory=dict)  # the last few of each peer
    queries: list[tuple[Query, Digest]] = field(default_factory=list)  # the last few of each peer, and their digests
    cuts: CutTable = field(init=False)  # the proposer's of all members, the others' own
    best: Proof | None = None
    excluded: set[int] = field(default_factory=set)  # peers whose records are refused
    changed_at: int = 0  # last tick in which some peer's rows or neighbours changed: the same at all peers
    _newest: np.ndarray = field(default_factory=lambda: np.zeros(N_KINDS * _SPARE, HANDLE))  # handles by key
    _of_tick: dict[int, Collection] = field(default_factory=dict)  # snapshots
    _costs: dict[About, Collection] = field(default_factory=dict)  # of proposals
    _answers: dict[About, Collection] = field(default_factory=dict)  # to queries
    _members: Members | None = None  # None: to be found again
    _is_known: bool = False
    _has_all_cuts: bool = False  # whether ``cuts`` has those of all members
    _proved_from: Any = None  # proposal, query, tick and members of the last proof
    _n_stalled: int = 0  # proofs that left the gap where it was
    _gap_to_beat: float = math.inf
    _is_changed: bool = True  # since the last proof

    def __post_init__(self) -> None:
        self.cuts = CutTable(self.me)
        self.store.add_user(self)

    @cached_property
    def newest(self) -> dict[type, "Newest"]:
        """The newest records of each kind, by peer."""
        return {kind: Newest(self, kind) for kind in KINDS}

    def handles_in_use(self) -> Iterator[np.ndarray]:
        yield self._newest
        yield from (each.handles for each in self._collections())

    def _collections(self) -> Iterator[Collection]:
        for by_topic in (self._of_tick, self._costs, self._answers):
            yield from by_topic.values()

    def newest_of(self, kind: type) -> np.ndarray:
        """Handles of the newest records of one kind, by slot."""
        return self._newest[CODES[kind] :: N_KINDS]

    def current(self, handles: np.ndarray) -> np.ndarray:
        """The given records that are the newest of their keys, or answers to a query that lacks some answers."""
        newest = self._newest[self.store.keys[handles]]
        is_newest = newest == handles
        if is_newest.all():
            return np.asarray(handles)
        for k in np.flatnonzero(~is_newest & (newest != NONE)).tolist():
            kind, *about = self.store.thing(int(handles[k]))
            is_newest[k] = kind is Answer and about[0] in self._answers
        return np.asarray(handles[is_newest])

    def handle_at(self, key: int) -> int:
        return int(self._newest[key]) if key < len(self._newest) else NONE

    def all_handles(self) -> np.ndarray:
        """The newest records of all peers, kind by kind."""
        keys = np.flatnonzero(self._newest)
        return np.asarray(self._newest[keys[np.argsort(keys % N_KINDS, kind="stable")]])

    # -- records in --------------------------------------------------------------------------------------------------

    def take(self, record: Record) -> bool:
        """Keep a record if it is newer than the known one; return whether it was."""
        if record.peer in self.excluded:
            return False
        return len(self.take_all(np.array([self.store.put(record)], HANDLE)).handles) > 0

    def take_all(self, handles: np.ndarray) -> News:
        """Keep those records that are newer than the known ones; all have different keys."""
        store = self.store
        if N_KINDS * store.n_peers > len(self._newest):
            n_more = N_KINDS * (store.n_peers + _SPARE) - len(self._newest)
            self._newest = np.concatenate([self._newest, np.zeros(n_more, HANDLE)])
        keys = store.keys[handles]
        before = self._newest[keys]
        numbers, known_numbers = store.numbers[handles], store.numbers[before]
        is_new = numbers > known_numbers
        known = keys[numbers == known_numbers]
        if not is_new.all():
            handles, keys, before = handles[is_new], keys[is_new], before[is_new]
        if len(handles):
            self._newest[keys] = handles
            self._is_changed = True
            codes = keys % N_KINDS
            for code in np.flatnonzero(np.bincount(codes)).tolist():
                of_kind = codes == code
                self._take_kind(KINDS[code], handles[of_kind], before[of_kind], keys[of_kind] // N_KINDS)
        return News(handles, before, known)

    def _take_kind(self, kind: type, handles: np.ndarray, before: np.ndarray, slots: np.ndarray) -> None:
        store = self.store
        if kind is Snapshot:
            self._take_snapshots(handles, before, slots)
        elif kind is HingeCosts:
            self._collect(self._costs, handles)
        elif kind is Answer:
            self._collect(self._answers, handles)
            self._add_cuts(handles)
        elif kind is Proposal:
            for handle in handles.tolist():
                record = store.record(handle)
                about = record.peer, record.number, store.about(handle)[2]
                self.proposals[about] = record.model
                self._begin(self._costs, about, self.newest_of(HingeCosts))
                for old in sorted(key for key in self.proposals if key[0] == record.peer)[:-KEPT]:
                    del self.proposals[old]
                    self._costs.pop(old, None)
        elif kind is Query:
            for handle in handles.tolist():
                query = store.record(handle)
                about = store.about(handle)
                others = [each for each in self.queries if each[0].peer != query.peer]
                own = [each for each in self.queries if each[0].peer == query.peer]
                self.queries = [*others, *own[1 - KEPT :], (query, about[2])]
                for superseded in own[: 1 - KEPT]:
                    self._answers.pop(_about(*superseded), None)
                self._begin(self._answers, about, self.newest_of(Answer))
                is_kept = slice(None) if self._has_all_cuts else query.owners == self.me
                self.cuts.note_use(query.owners[is_kept], query.cuts[is_kept], query.weights[is_kept])

    def _take_snapshots(self, handles: np.ndarray, before: np.ndarray, slots: np.ndarray) -> None:
        store = self.store
        has_other_rows = store.rows[handles] != store.rows[before]
        has_other_links = (store.links[handles] != store.links[before]) | (before == NONE)
        if has_other_links.any():
            self._members = None
        if (has_changed := has_other_links | has_other_rows).any():
            ticks = store.numbers[handles[has_changed]] % NUMBERS_PER_INCARNATION - 1
            self.changed_at = max(self.changed_at, int(ticks.max()))
        for slot in slots[has_other_rows & (before != NONE)].tolist():  # another problem
            self._forget_best()
            self.cuts.forget(int(store.peers[slot]))
            for collection in self._collections():
                collection.drop(slot)
        if has_other_rows.any():  # costs and answers may have come before the snapshot
            for kind, into in ((HingeCosts, self._costs), (Answer, self._answers)):
                waiting = self.newest_of(kind)[slots[has_other_rows]]
                waiting = waiting[waiting != NONE]
                self._collect(into, waiting)
                if kind is Answer:
                    self._add_cuts(waiting)
        self._add_cuts(handles)
        topics = store.topics[handles]
        for topic in np.unique(topics).tolist():
            of_tick = topics == topic
            tick = store.things[topic][1]
            if tick not in self._of_tick:
                self._of_tick[tick] = Collection(np.zeros(store.n_peers, HANDLE))
            self._of_tick[tick].add(slots[of_tick], handles[of_tick], store.n_peers)
        for old in sorted(self._of_tick)[:-KEPT]:
            del self._of_tick[old]

    def _begin(self, into: dict[About, Collection], about: About, newest: np.ndarray) -> None:
        """Collect the records about a proposal or query: those that have come already, and later ones."""
        if about not in into:
            into[about] = Collection(np.zeros(self.store.n_peers, HANDLE))
            self._collect(into, newest[newest != NONE])

    def _collect(self, into: dict[About, Collection], handles: np.ndarray) -> None:
        """Keep costs and answers about known proposals and queries, if they are of the rows in the peer's snapshot."""
        store = self.store
        slots = store.keys[handles] // N_KINDS
        is_of_rows = store.rows[handles] == store.rows[self.newest_of(Snapshot)[slots]]
        if not is_of_rows.all():
            handles, slots = handles[is_of_rows], slots[is_of_rows]
        topics = store.topics[handles]
        for topic in np.unique(topics).tolist():
            is_about = topics == topic
            for about in store.things[topic][1:]:
                if about in into:
                    into[about].add(slots[is_about], handles[is_about], store.n_peers)

    def _add_cuts(self, handles: np.ndarray) -> None:
        """Add the cuts in snapshots, and in answers about the rows of the snapshot."""
        store = self.store
        slots = store.keys[handles] // N_KINDS
        if not self._has_all_cuts:
            mine = store.find(self.me)
            handles = handles[slots == mine]
        for handle in handles.tolist():
            record = store.record(handle)
            snapshot = self.newest_of(Snapshot)[store.keys[handle] // N_KINDS]
            if store.rows[snapshot] == store.rows[handle]:
                self.cuts.add(record.peer, cuts_in(record))

    def _gather_cuts(self) -> None:
        """Give a new proposer the cuts of all members, from their newest records."""
        is_proposer = self.proposer == self.me
        if is_proposer and not self._has_all_cuts:
            self._has_all_cuts = True
            newest = np.concatenate([self.newest_of(Snapshot), self.newest_of(Answer)])
            self._add_cuts(newest[newest != NONE])
        elif not is_proposer and self._has_all_cuts:
            self._has_all_cuts = False
            self.cuts.forget_others()

    # -- records out -------------------------------------------------------------------------------------------------

    def exclude(self, peer: int) -> None:
        """Forget a peer and everything that depends on its records."""
        self.excluded.add(peer)
        self._forget(peer)
        self._forget_best()
        self._members, self._proved_from, self._is_changed = None, None, True

    def _forget(self, peer: int) -> None:
        slot = self.store.slot_of(peer)
        self._newest[slot * N_KINDS : (slot + 1) * N_KINDS] = NONE
        for collection in self._collections():
            collection.drop(slot)
        self._of_tick = {tick: each for tick, each in self._of_tick.items() if each.count}
        self.proposals = {key: model for key, model in self.proposals.items() if key[0] != peer}
        self._costs = {key: each for key, each in self._costs.items() if key[0] != peer}
        self._answers = {key: each for key, each in self._answers.items() if key[0] != peer}
        self.queries = [each for each in self.queries if each[0].peer != peer]
        self.cuts.forget(peer)

    def forget_departed(self, tick: int) -> list[int]:
        """Forget the cuts of peers that left long ago, and all records of these but the last few.

        Returns the peers whose records are forgotten. Peers that have received the same records forget the same ones,
        as the metric must be the same for all.
        """
        known = self.newest[Snapshot]
        if len(known) <= len(self.membership):
            return []
        left = [peer for peer in known if peer not in self.members]
        departed = sorted((n, peer) for peer in left if (n := self._last_tick(peer)) < tick - _DEPARTED_TICKS)
        for _, peer in departed:
            self.cuts.forget(peer)
        old = [peer for _, peer in departed[: max(0, len(left) - _KEPT_DEPARTED)]]
        for peer in old:
            self._forget(peer)
        return old

    def _last_tick(self, peer: int) -> int:
        """Of the records of a peer."""
        return max(tick_of(newest[peer].number) for newest in self.newest.values() if peer in newest)

    # -- who is there ------------------------------------------------------------------------------------------------

    @property
    def members(self) -> frozenset[int]:
        """Oneself and all peers reached along the neighbours in snapshots."""
        return self.membership.peers

    @property
    def membership(self) -> Members:
        """The members as one object; when the members change, it is another object."""
        if self._members is None:
            store = self.store
            me, n_peers = store.slot_of(self.me), store.n_peers
            snapshots, is_excluded = np.zeros(n_peers, np.int64), np.zeros(n_peers, dtype=bool)
            newest = self.newest_of(Snapshot)[:n_peers]
            snapshots[: len(newest)] = newest
            is_excluded[[store.slot_of(peer) for peer in self.excluded]] = True
            is_reached, reached = np.zeros(n_peers, dtype=bool), np.zeros(n_peers, np.int64)
            self._is_known = reach(me, snapshots, store.links, store.pool, is_excluded, is_reached, reached)
            self._members = store.members(is_reached)
            self._gather_cuts()
        return self._members

    @property
    def is_network_known(self) -> bool:
        """Whether the snapshots of all members are known."""
        return len(self.membership) > 0 and self._is_known

    @property
    def proposer(self) -> int:
        """The member with the lowest number."""
        return self.membership.proposer

    def degree_of(self, peer: int) -> int | None:
        """How many neighbours a peer names in its newest snapshot; None before there is one."""
        slot = self.store.find(peer)
        handle = NONE if slot is None else self.handle_at(slot * N_KINDS + CODES[Snapshot])
        return None if handle == NONE else int(self.store.pool[self.store.links[handle]])

    def latest_handles(self, kind: type) -> np.ndarray:
        """Of the newest records of one kind of all members that have one, in the order of peers."""
        slots, newest = self.membership.slots, self.newest_of(kind)
        handles = newest[slots[slots < len(newest)]]
        return np.asarray(handles[handles != NONE])

    def known_of(self, kind: type) -> np.ndarray:
        """Handles of the newest records of one kind, in the order of peers."""
        slots = np.flatnonzero(self.newest_of(kind))
        return np.asarray(self.newest_of(kind)[slots[np.argsort(self.store.peers[slots])]])

    def latest(self, kind: type[Kind]) -> list[Kind]:
        """The newest records of one kind of all members that have one, in the order of peers."""
        return self.store.records(self.latest_handles(kind))

    def has_all(self, kind: type) -> bool:
        """Whether a record of this kind of every member is known."""
        n_members = len(self.membership)
        return len(self.newest[kind]) >= n_members and len(self.latest_handles(kind)) == n_members

    def common_tick(self) -> int | None:
        """The last tick for which the snapshots of all members are known."""
        if not self.is_network_known:
            return None
        return next(
            (t for t in sorted(self._of_tick, reverse=True) if self._of_all(self._of_tick[t]) is not None), None
        )

    def snapshots_of(self, tick: int) -> list[Snapshot]:
        """The snapshots of all members at a common tick."""
        handles = self._of_all(self._of_tick[tick])
        return [] if handles is None else self.store.records(handles)

    def _of_all(self, collection: Collection | None) -> np.ndarray | None:
        return None if collection is None else collection.of(self.membership)

    def current_proposals(self) -> list[About]:
        """The last proposals of the current proposer, the newest first."""
        proposer = self.proposer
        return sorted((key for key in self.proposals if key[0] == proposer), reverse=True)

    def is_answered(self, query: Query, digest: Digest) -> bool:
        """Whether all members have answered."""
        return self._of_all(self._answers.get(_about(query, digest))) is not None

    def last_query(self, peer: int) -> tuple[Query, Digest] | None:
        """The newest query of a peer, and its digest."""
        return next((each for each in reversed(self.queries) if each[0].peer == peer), None)

    # -- proofs ------------------------------------------------------------------------------------------------------

    def prove(self) -> Proof | None:
        """The best proof for the current members; None while there is none."""
        if not self._is_changed:
            return self.best
        self._is_changed = False
        if self.best is not None and self.best.members is not self.members:
            self._forget_best()
        if self.is_network_known:
            costed = next(
                (key for key in self.current_proposals() if self._of_all(self._costs.get(key)) is not None), None
            )
            answered = next((query for query in reversed(self.queries) if self.is_answered(*query)), None)
            made_of = (costed, None if answered is None else answered[0].number, self.common_tick(), self._members)
            has_model = costed is not None or answered is not None
            if has_model and (made_of != self._proved_from or self.best is None):
                self._proved_from = made_of
                self._improve(costed, answered)
                self._drop_superseded(costed, answered)
        return self.best

    def _forget_best(self) -> None:
        self.best, self._n_stalled, self._gap_to_beat = None, 0, math.inf

    def _drop_superseded(self, costed: About | None, answered: tuple[Query, Digest] | None) -> None:
        """Drop records about proposals or queries older than one for which all records are known."""
        for table, newer in ((self._costs, costed), (self._answers, None if answered is None else _about(*answered))):
            for old in [key for key in table if newer is not None and key[0] == newer[0] and key < newer]:
                del table[old]

    def _improve(self, proposal: About | None, answered: tuple[Query, Digest] | None) -> None:
        """Compute both bounds, and keep the better of the old and the new for each problem."""
        once, problem, tick = self.store.once, self.problem, self.common_tick()
        of_tick = None if tick is None else self._of_all(self._of_tick[tick])
        snapshots = self.latest_handles(Snapshot) if of_tick is None else of_tick
        total, (dual, lost) = once("snapshots", snapshots, partial(of_snapshots, problem))
        if total <= 0:
            return  # nobody has a row
        candidates = []
        if proposal is not None and (costs := self._of_all(self._costs[proposal])) is not None:
            compute = partial(of_costs, problem, total, proposal, self.proposals[proposal])
            candidates.append(once((proposal, total), costs, compute))
        if answered is not None and (answers := self._of_all(self._answers[_about(*answered)])) is not None:
            compute_all = partial(of_answers, problem, total, answered[0])
            lower, points = once((_about(*answered), total), answers, compute_all)
            dual, lost = np.maximum(dual, lower.bounds), lower.lost
            candidates.append(points)
        self._keep_best(dual, lost, candidates, total, is_answered=answered is not None)

    def _keep_best(
        self, dual: np.ndarray, lost: np.ndarray, candidates: list[Candidates], total: float, *, is_answered: bool
    ) -> None:
        # The model of zeros has an objective of 1, whatever the rows are: bounds are finite whatever was proposed.
        model, primal = np.zeros_like(candidates[0].models[0]), np.ones(len(dual))
        if self.best is not None:
            model = self.best.model.copy()
            primal, known = np.array([(each.primal, each.dual) for each in self.best.certificates]).T
            dual = np.maximum(dual, known)
        for models, values in candidates:
            for k, best in enumerate(values.argmin(axis=0).tolist()):
                if values[best, k] < primal[k]:
                    model[k], primal[k] = models[best, k], values[best, k]
        if bool((dual > primal).any()):
            # The records are not all of the same rows: start again with those to come.
            self._forget_best()
            self._costs, self._of_tick, self._answers, self._proved_from = {}, {}, {}, None
            self.cuts.forget_others()
            return
        pairs = zip(primal.tolist(), dual.tolist(), strict=True)
        proof = Proof(model, [Certificate(*each) for each in pairs], self.members)
        is_rounded = bool((lost >= _ROUNDED * (primal - dual)).any())
        is_stuck = is_answered and self._has_stalled(proof.worst, is_rounded)
        self.best = proof._replace(total=total, is_stuck=is_stuck)

    def _has_stalled(self, worst: Certificate, is_rounded: bool) -> bool:
        """Whether many proofs in a row have not reduced a gap, and rounding is why."""
        self._n_stalled += 1
        if worst.relative < _LEAST_FALL * self._gap_to_beat:
            self._gap_to_beat, self._n_stalled = worst.relative, 0
        return self._n_stalled >= _STALLED_PROOFS and (is_rounded or worst.relative < _SMALLEST_GAP)


def _about(query: Query, digest: Digest) -> About:
    return query.peer, query.number, digest


class Newest(Mapping[int, Any]):
    """The newest records of one kind, by peer."""

    def __init__(self, table: "RecordTable", kind: type) -> None:
        self._table, self._kind = table, kind

    def __getitem__(self, peer: int) -> Any:
        store, table = self._table.store, self._table
        slot = store.find(peer)
        handle = NONE if slot is None else table.handle_at(slot * N_KINDS + CODES[self._kind])
        if handle == NONE:
            raise KeyError(peer)
        return store.record(handle)

    def __iter__(self) -> Iterator[int]:
        slots = np.flatnonzero(self._table.newest_of(self._kind))
        return iter(self._table.store.peers[slots].tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._table.newest_of(self._kind)))
