"""Find records of a member that contradict each other, without seeing the member's rows.

    H_k(w) >= A_k - V_k.w        for every w and all dual variables 0 <= a <= weight of the rows of member k

So every hinge loss that a member states is checked against every cut that it states for the same rows, with allowance
for the rounding of both: a stated loss is at least the exact one, a stated A at most, and the exact V is within
``Cut.errors`` of the stated one. A member that computes what it should is therefore never accused, at any scale. A loss
at a queried model that is lowered by more than the allowance is found, because the answer's own cut there is exact.

Further checks: dual variables are within the weights (0 <= A <= total), one data version has one total weight, the
total is within the cap on the list of members, and no member says two things under one number to different peers.

What this guarantees. The stated planes of a member lie below all losses that it stated, up to its stated errors, and
so below the largest convex function h that is nowhere above those losses. A bracket then holds for the objective with h
in place of the member's losses: dual <= primal, whatever the member said.

What a liar can still do: state losses and cuts of invented rows, up to its allowed weight; not answer, or state
worthless cuts, so that nothing is certified until it is revoked; slow the others down. Only its last records are kept:
a loss below a plane that was forgotten is not found, and a bracket may then hold for no rows at all, as it may hold for
invented rows. If dual > primal results, ``RecordTable`` starts again.

Records are compared with all others of the same rows, in whatever order they come: rows that a member had before may be
those that others still count.

Costs carry a digest of the model that they belong to. Without it, a proposer could send one model to a member and
another to the rest, and so have an honest member accused.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from widemargin.peers.cutting_planes import Cut, points_of
from widemargin.peers.records import (
    Answer,
    HingeCosts,
    Moments,
    Proposal,
    Query,
    Snapshot,
    Statement,
    cuts_in,
    digest_of,
    incarnation_of,
)
from widemargin.peers.rows import LARGEST_LOSS
from widemargin.rounding import gamma

_KEPT_RECORDS = 16  # of each member, with cuts and with costs
_KEPT_MODELS = 8  # proposals and queries of each member
_KEPT_ROWS = 4  # data versions of each member
_KEPT_NUMBERS = 4  # of each member and kind of record, to find another record under the same number
_SLACK = 1e-9  # of a total weight
_LEAST = 2.0**-1000  # products that underflow change less

_OfRows = Snapshot | HingeCosts | Answer

NO_CAPS: Mapping[int, float] = {}


class _Costs(NamedTuple):
    """Losses that a record states at some points."""

    record: HingeCosts | Answer
    asked: Proposal | Query
    points: np.ndarray  # (points, problems, d)
    costs: np.ndarray  # (points, problems)


def contradiction(evidence: Sequence[Statement], caps: Mapping[int, float] = NO_CAPS) -> int | None:
    """The member that these records prove to lie; None if they prove nothing.

    The evidence is two records under one number, or one or two records of the member with the proposal or query that a
    loss was stated for. The caller has checked that each record comes from the peer that it names.
    """
    if len(evidence) == 2 and _are_two_versions(*evidence):
        return evidence[0].peer
    stated = [each for each in evidence if not isinstance(each, Proposal | Query)]
    asked = [each for each in evidence if isinstance(each, Proposal | Query)]
    if not stated or len({each.peer for each in stated}) > 1:
        return None
    peer = stated[0].peer
    if any(_is_infeasible(each, caps) for each in stated):
        return peer
    versions = {(_rows_of(each), each.total) for each in stated if not isinstance(each, Moments)}
    if len({rows for rows, _ in versions}) != 1:
        return None
    if len(versions) > 1:
        return peer
    cuts = _stacked(each for each in stated if isinstance(each, Snapshot | Answer))
    if cuts is None:
        return None
    costs = (_costs_of(each, model) for each in stated if isinstance(each, HingeCosts | Answer) for model in asked)
    return peer if any(each is not None and _is_below(each, cuts).any() for each in costs) else None


@dataclass
class Claims:
    """The last statements of all members; ``caps`` has the largest total weight of each member that has one."""

    caps: Mapping[int, float] = field(default_factory=dict)
    _models: dict[int, deque[Proposal | Query]] = field(default_factory=dict)
    _rows: dict[int, dict[tuple[int, int], _OfRows]] = field(default_factory=dict)  # the first record of each
    _cuts: dict[int, deque[Snapshot | Answer]] = field(default_factory=dict)
    _costs: dict[int, deque[_Costs]] = field(default_factory=dict)
    _waiting: dict[int, deque[HingeCosts | Answer]] = field(default_factory=dict)  # for the model that they are of
    _noted: dict[tuple[type, int], deque[Statement]] = field(default_factory=dict)  # the last of each kind and member

    def other_version(self, record: Statement) -> tuple[Statement, ...] | None:
        """This record with a different one that was noted under the same number; None if there is none."""
        noted = self._noted.get((type(record), record.peer), ())
        return next(((each, record) for each in noted if _are_two_versions(each, record)), None)

    def check(self, record: Statement) -> tuple[Statement, ...] | None:
        """Note a record; return it with the records that contradict it, or None."""
        self._noted.setdefault((type(record), record.peer), deque(maxlen=_KEPT_NUMBERS)).append(record)
        if isinstance(record, Proposal | Query):
            self._models.setdefault(record.peer, deque(maxlen=_KEPT_MODELS)).append(record)
            waiting = [each for of_peer in self._waiting.values() for each in of_peer if each.proposer == record.peer]
            return next(filter(None, map(self._check_costs, waiting)), None)
        if _is_infeasible(record, self.caps):
            return (record,)
        if isinstance(record, Moments):
            return None
        rows, by_rows = _rows_of(record), self._rows.setdefault(record.peer, {})
        first = by_rows.setdefault(rows, record)
        if len(by_rows) > _KEPT_ROWS:
            del by_rows[next(iter(by_rows))]
        if first.total != record.total:
            return first, record
        if isinstance(record, Snapshot | Answer):
            self._cuts.setdefault(record.peer, deque(maxlen=_KEPT_RECORDS)).append(record)
            cuts = _stacked([record])
            for known in self._costs.get(record.peer, ()):
                if cuts is not None and _rows_of(known.record) == rows and _is_below(known, cuts).any():
                    return known.record, record, known.asked
        if isinstance(record, HingeCosts | Answer):
            self._waiting.setdefault(record.peer, deque(maxlen=_KEPT_MODELS)).append(record)
            return self._check_costs(record)
        return None

    def forget(self, peer: int) -> None:
        """The peer is excluded."""
        for by_peer in (self._rows, self._cuts, self._costs, self._waiting):
            by_peer.pop(peer, None)

    def _check_costs(self, record: HingeCosts | Answer) -> tuple[Statement, ...] | None:
        """Check stated losses against all cuts of the member, once the models that they are of are known."""
        known = self._costs.setdefault(record.peer, deque(maxlen=_KEPT_RECORDS))
        checked = {id(each.asked) for each in known if each.record is record}
        models = [model for model in self._models.get(record.proposer, ()) if id(model) not in checked]
        stated = [each for model in models if (each := _costs_of(record, model)) is not None]
        if not stated:
            return None
        known.extend(stated)
        cuts = [each for each in self._cuts.get(record.peer, ()) if _rows_of(each) == _rows_of(record)]
        stacked = _stacked(cuts)
        for each in stated:
            if stacked is not None and (below := _is_below(each, stacked)).any():
                owner = [owner for owner in cuts for _ in cuts_in(owner)][int(np.argmax(below))]
                return (record, each.asked) if owner is record else (record, owner, each.asked)
        return None


def _are_two_versions(one: Statement, other: Statement) -> bool:
    """Whether a member said two different things under one number, which an honest one never does."""
    is_one_number = type(one) is type(other) and (one.peer, one.number) == (other.peer, other.number)
    return is_one_number and one is not other and not _is_same(one, other)


def _is_same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Whether two records or cuts say the same, whatever their signatures are."""
    for this, that in zip(one, other, strict=True):
        if isinstance(this, Cut):
            if not _is_same(this, that):
                return False
        elif not isinstance(this, bytes) and not np.array_equal(this, that):
            return False
    return True


def _rows_of(record: Snapshot | HingeCosts | Answer) -> tuple[int, int]:
    return incarnation_of(record.number), record.data_version


def _is_infeasible(record: Statement, caps: Mapping[int, float]) -> bool:
    """Whether one record is impossible by itself: over the cap, dual variables over the weights, negative losses."""
    if isinstance(record, Proposal | Query):
        return False
    total = record.total
    if total > caps.get(record.peer, np.inf) * (1 + _SLACK):
        return True
    if isinstance(record, HingeCosts | Answer) and bool((record.costs < 0).any()):
        return True
    if not isinstance(record, Snapshot | Answer):
        return False
    return any(bool((cut.sums < 0).any() or (cut.sums > total * (1 + _SLACK)).any()) for _, cut in cuts_in(record))


def _stacked(records: Iterable[Snapshot | Answer]) -> Cut | None:
    """All cuts of some records, with one more axis in front."""
    cuts = [cut for record in records for _, cut in cuts_in(record)]
    return Cut(*(np.array(values) for values in zip(*cuts, strict=True))) if cuts else None


def _costs_of(record: HingeCosts | Answer, asked: Proposal | Query) -> _Costs | None:
    """The losses that a record states for a proposal or query; None if it is about another."""
    if record.proposer != asked.peer:
        return None
    if isinstance(record, Answer) and isinstance(asked, Query) and record.query == asked.number:
        is_of = record.digest == digest_of(asked.models)
        return _Costs(record, asked, points_of(asked.models), record.costs) if is_of else None
    if isinstance(record, HingeCosts) and isinstance(asked, Proposal) and asked.number in record.proposals:
        is_of_model = (record.digests == digest_of(asked.model)).all(axis=1)
        costs = record.costs[(record.proposals == asked.number) & is_of_model]
        return _Costs(record, asked, np.array([asked.model] * len(costs)), costs) if len(costs) else None
    return None


def _is_below(stated: _Costs, cuts: Cut) -> np.ndarray:
    """Whether some stated loss is below each cut, by more than all roundings, (cuts,).

    A product of d terms, with the operations that follow, is off by at most ``gamma(2 d + 32)`` times the sum of the
    sizes of its terms. Losses that are too large to be sent are stated smaller than they are, and prove nothing.
    """
    rounding = gamma(2 * stated.points.shape[2] + 32)
    costs = np.where(stated.costs < LARGEST_LOSS, stated.costs, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        vectors, points = cuts.vectors.transpose(1, 0, 2), stated.points.transpose(1, 2, 0)
        products = (vectors @ points).transpose(1, 2, 0)  # (cuts, points, problems)
        sizes = (np.abs(vectors) @ np.abs(points)).transpose(1, 2, 0)
        off = cuts.errors[:, None] * np.linalg.norm(stated.points, axis=2)
        sums = cuts.sums[:, None]
        least = sums - products - off - rounding * (sums + sizes + off + stated.costs) - _LEAST
        return np.asarray((least > costs).any(axis=(1, 2)))
