"""The records that the peers of one process know, each under a handle: peers keep and pass on arrays of handles.

In a simulation the table of every peer has the records of all, and each record crosses every edge. With arrays of small
integers in place of records, each message takes a few array operations. A handle stands for one record that was checked
once. What follows from a set of records is computed once for all peers that have received this set.

A peer in its own process has its own store.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar, overload
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from widemargin.peers.records import (
    KINDS,
    About,
    Answer,
    HingeCosts,
    Proposal,
    Query,
    Record,
    Snapshot,
    digest_of,
    is_sound,
    n_bytes_of,
    rows_of,
)

N_KINDS = len(KINDS)
CODES = {kind: code for code, kind in enumerate(KINDS)}
NONE = 0  # the handle of no record
HANDLE = np.int32  # there are many arrays of them
_FIRST_RECORDS = 1 << 10
_UNSWEPT_BYTES = 1 << 20  # of records, before those in no use are dropped
_OBJECT_BYTES = 1 << 11  # of the objects that a record consists of, beside its numbers
_SHARED = 32  # results that are kept
_FIELDS: dict[str, type] = {
    "keys": np.int64,
    "numbers": np.int64,
    "sizes": np.int64,
    "rows": np.int64,
    "topics": np.int64,
}
_FIELDS |= {"links": np.int64, "rhos": np.float64}

Value = TypeVar("Value")
Thing = tuple[Any, ...]  # a kind of record, and the tick, proposal, query or proposals that it is about


class User(Protocol):
    """An object that keeps handles."""

    def handles_in_use(self) -> Iterator[np.ndarray]:
        """Arrays of all of them."""


class Members:
    """The members of a network. In a process, equal members are the same object, so that ``is`` compares them."""

    def __init__(self, slots: np.ndarray, numbers: np.ndarray) -> None:
        self.proposer = int(numbers.min())  # the one with the lowest number
        self._slots, self._numbers = slots, numbers

    def __len__(self) -> int:
        return len(self._slots)

    @cached_property
    def slots(self) -> np.ndarray:
        """In the order of their numbers."""
        return np.asarray(self._slots[np.argsort(self._numbers)])

    @cached_property
    def peers(self) -> frozenset[int]:
        return frozenset(self._numbers.tolist())


class RecordStore:
    """Records by handle, with their most used figures as arrays.

    ``keys`` numbers the pairs of a peer and a kind of record; of each pair, the newest record counts. ``rows`` tells
    the rows of a peer apart, ``links`` is where a snapshot's neighbours begin in ``pool``, and ``topics`` says what a
    record is about.
    """

    keys: np.ndarray
    numbers: np.ndarray
    sizes: np.ndarray  # in bytes
    rows: np.ndarray
    topics: np.ndarray
    links: np.ndarray
    rhos: np.ndarray

    def __init__(self) -> None:
        self.n_peers = 0
        self.peers = np.zeros(_FIRST_RECORDS, np.int64)  # their numbers, by slot
        self.pool = np.zeros(_FIRST_RECORDS, np.int64)
        self.things: dict[int, Thing] = {}  # by topic
        for name, kind in _FIELDS.items():
            setattr(self, name, np.zeros(_FIRST_RECORDS, kind))
        self.numbers[NONE] = -1
        self._records: list[Record | None] = [None]
        self._shapes: list[Any] = [None]  # for which each record is sound
        self._free: list[int] = []
        self._slots: dict[int, int] = {}
        self._handles: dict[int, int] = {}  # by the identity of records
        self._ids: dict[Any, int] = {}  # of topics, rows and lists of neighbours
        self._n_ids = 0
        self._n_pool = 0
        self._n_bytes, self._most_bytes = 0, _UNSWEPT_BYTES
        self._users: WeakSet[Any] = WeakSet()
        self._shared: dict[tuple[Hashable, bytes], Any] = {}
        self._members: WeakValueDictionary[bytes, Members] = WeakValueDictionary()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        raise TypeError("Records of running peers cannot be pickled or copied.")

    def slot_of(self, peer: int) -> int:
        """The index of a peer in arrays."""
        slot = self._slots.get(peer)
        if slot is None:
            slot = self._slots[peer] = self.n_peers
            self.n_peers += 1
            if slot == len(self.peers):
                self.peers = np.concatenate([self.peers, np.zeros_like(self.peers)])
            self.peers[slot] = peer
        return slot

    def find(self, peer: int) -> int | None:
        """The slot of a peer that has one."""
        return self._slots.get(peer)

    def key_of(self, kind: type, peer: int) -> int:
        return self.slot_of(peer) * N_KINDS + CODES[kind]

    def record(self, handle: int) -> Any:
        return self._records[handle]

    def records(self, handles: np.ndarray) -> list[Any]:
        return [self._records[handle] for handle in handles.tolist()]

    def add_user(self, user: User) -> None:
        """Keep the records that this object names, as long as it exists."""
        self._users.add(user)

    # -- records in --------------------------------------------------------------------------------------------------

    def size_of(self, record: Record, model: np.ndarray, moment: np.ndarray | None) -> int:
        """Bytes of a record with finite arrays of the shapes of these two; -1 if it is unsound."""
        handle = self._handles.get(id(record))
        shapes = model.shape, None if moment is None else moment.shape
        if handle is not None and self._shapes[handle] == shapes:
            return int(self.sizes[handle])
        return n_bytes_of(record) if is_sound(record, model, moment) else -1

    def put(self, record: Record, model: np.ndarray | None = None, moment: np.ndarray | None = None) -> int:
        """The handle of a record, which is sound for arrays of these shapes."""
        handle = self._handles.get(id(record))
        if handle is None:
            handle = self._free.pop() if self._free else len(self._records)
            if handle == len(self._records):
                self._records.append(None)
                self._shapes.append(None)
            if handle == len(self.keys):
                for name in _FIELDS:
                    setattr(self, name, np.concatenate([getattr(self, name), np.zeros_like(getattr(self, name))]))
            self._records[handle] = record  # keeps it alive, and so its identity
            self._handles[id(record)] = handle
            self._describe(handle, record)
        if model is not None:
            self._shapes[handle] = model.shape, None if moment is None else moment.shape
        return handle

    def is_sound_for(self, handles: np.ndarray, model: np.ndarray, moment: np.ndarray | None) -> bool:
        """Whether records that were put here are sound for these shapes, which those of one network share."""
        shapes = model.shape, None if moment is None else moment.shape
        return len(handles) == 0 or self._shapes[handles[0]] == shapes

    def _describe(self, handle: int, record: Record) -> None:
        for name in _FIELDS:
            getattr(self, name)[handle] = 0
        self.keys[handle] = self.key_of(type(record), record.peer)
        self.numbers[handle], self.sizes[handle] = record.number, n_bytes_of(record)
        self._n_bytes += int(self.sizes[handle]) + _OBJECT_BYTES
        if isinstance(record, Snapshot | HingeCosts | Answer):
            self.rows[handle] = self._id_of((record.peer, *rows_of(record)))
        thing: Thing | None = None
        if isinstance(record, Snapshot):
            self.links[handle] = self._links_of(record.neighbours)
            self.rhos[handle] = record.rho if record.total > 0 else 0.0
            thing = Snapshot, record.tick
        elif isinstance(record, HingeCosts):
            named = zip(record.proposals.tolist(), map(tuple, record.digests.tolist()), strict=True)
            thing = HingeCosts, *((record.proposer, *each) for each in named)
        elif isinstance(record, Answer):
            thing = Answer, (record.proposer, record.query, record.digest)
        elif isinstance(record, Proposal):
            thing = Proposal, (record.peer, record.number, digest_of(record.model))
        elif isinstance(record, Query):
            thing = Query, (record.peer, record.number, digest_of(record.models))
        if thing is not None:
            self.topics[handle] = self._id_of(thing)
            self.things[int(self.topics[handle])] = thing

    def thing(self, handle: int) -> Thing:
        """What a record is about."""
        return self.things.get(int(self.topics[handle]), (None,))

    def about(self, handle: int) -> About:
        """Peer, number and digest of a proposal or query."""
        about: About = self.thing(handle)[1]
        return about

    def _id_of(self, thing: Hashable) -> int:
        if thing not in self._ids:
            self._n_ids += 1
            self._ids[thing] = self._n_ids
        return self._ids[thing]

    def _links_of(self, neighbours: np.ndarray) -> int:
        """Where a list of neighbours begins; equal lists begin at the same place."""
        name = neighbours.tobytes()
        if name not in self._ids:
            self._ids[name] = self._add_links(np.array([self.slot_of(peer) for peer in neighbours.tolist()], np.int64))
        return self._ids[name]

    def _add_links(self, slots: np.ndarray) -> int:
        first, self._n_pool = self._n_pool, self._n_pool + 1 + len(slots)
        while self._n_pool > len(self.pool):
            self.pool = np.concatenate([self.pool, np.zeros_like(self.pool)])
        self.pool[first], self.pool[first + 1 : self._n_pool] = len(slots), slots
        return first

    # -- what peers share --------------------------------------------------------------------------------------------

    def once(self, what: Hashable, handles: np.ndarray, compute: Callable[[list[Any]], Value]) -> Value:
        """A function of these records, computed once for all peers that have received them."""
        name = what, handles.tobytes()
        if name not in self._shared:
            if len(self._shared) >= _SHARED:
                del self._shared[next(iter(self._shared))]
            self._shared[name] = compute(self.records(handles))
        value: Value = self._shared[name]
        return value

    def members(self, is_member: np.ndarray) -> Members:
        """The members of a network, marked by slot."""
        slots = np.flatnonzero(is_member)
        name = slots.tobytes()
        members = self._members.get(name)
        if members is None:
            members = self._members[name] = Members(slots, self.peers[slots])
        return members

    # -- records out -------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Drop records that nobody keeps, once there are many. Call between messages, when nobody holds handles."""
        if self._n_bytes < self._most_bytes:
            return
        is_used = np.zeros(len(self._records), dtype=bool)
        for user in self._users:
            for handles in user.handles_in_use():
                is_used[handles] = True
        is_used[NONE] = False
        used = np.flatnonzero(is_used)
        for handle in np.flatnonzero(~is_used).tolist():
            record = self._records[handle]
            if record is not None:
                del self._handles[id(record)]
                self._records[handle] = self._shapes[handle] = None
                self._free.append(handle)
        topics = set(self.topics[used].tolist())
        self.things = {topic: thing for topic, thing in self.things.items() if topic in topics}
        kept = topics | set(self.rows[used].tolist())
        self._ids = {thing: n for thing, n in self._ids.items() if not isinstance(thing, bytes) and n in kept}
        self._n_pool = 0
        for handle in used.tolist():
            record = self._records[handle]
            if isinstance(record, Snapshot):
                self.links[handle] = self._links_of(record.neighbours)
        self._shared.clear()
        self._n_bytes = int(self.sizes[used].sum()) + _OBJECT_BYTES * len(used)
        self._most_bytes = _UNSWEPT_BYTES + 2 * self._n_bytes


class Batch(Sequence[Record]):
    """The records of a message that stays in this process."""

    def __init__(self, store: RecordStore, handles: np.ndarray) -> None:
        self.store, self.handles = store, handles
        store.add_user(self)

    def handles_in_use(self) -> Iterator[np.ndarray]:
        yield self.handles

    def __len__(self) -> int:
        return len(self.handles)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return self.store.records(self.handles[index])
        record: Record = self.store.record(int(self.handles[index]))
        return record

    def __iter__(self) -> Iterator[Record]:
        return iter(self.store.records(self.handles))


def is_last(values: np.ndarray) -> np.ndarray:
    """Whether each of some small integers does not come again."""
    order = np.arange(len(values))
    last = np.empty(values.max(initial=0) + 1, np.int64)
    last[values] = order  # where a value is there twice, the last assignment counts
    return np.asarray(last[values] == order)
