"""What peers tell each other about their own rows, and how a peer certifies a model on its own.

    D = A/N - ||V||^2 / (2 alpha N^2) <= F*         A, V: sums over peers, each peer's taken at any time
    F(w) = alpha/2 ||w||^2 + H(w)/N >= F*           H: the sum over peers of their hinge losses at the same w

Both bounds allow for rounding: a peer rounds its A down and its losses up, and states how far its V may be off.
``RecordTable`` allows for the rounding of the sums over peers.

Peers gossip seven kinds of record, and use the newest of each peer:

    Moments      second moments of its features, once
    Snapshot     its A and V, its model, and the neighbours it receives from, at ticks that are the same for all
    Proposal     by the peer with the lowest number: the mean of all models of one tick
    HingeCosts   the hinge losses of its rows for the last proposals
    Query        by the same peer: three models, and weights of cuts (``cutting_planes``)
    Answer       the hinge losses of its rows at points between those models, new cuts, and the weighted sum of old ones
    Accusation   records of a member that contradict each other, passed on by whoever finds them (``claims``)

A peer that has the hinge costs of all members knows the exact objective of a proposal. With all snapshots it has a
lower bound, which is tight if they are of the same tick. Costs count only with a snapshot of the same rows: both carry
a data version, drawn at random when a peer starts or gets rows. Sums estimated by averaging would prove nothing: with
errors of 10% in the weights, D exceeds F* about half of the time.

The members of a network are the peers reached from oneself along the neighbours in snapshots. A peer that falls silent
drops out of the others' snapshots; their network then has its own optimum. An excluded peer is not a member, even if
others name it as a neighbour, and none of its records count.

Costs and answers carry a digest of the models that they belong to. A proposer might send different models under one
number to different peers: the sum of their costs would be an objective that no model has.
"""

import hashlib
import math
import struct
from typing import Any, NamedTuple, TypeVar

import numpy as np

from widemargin.peers.cutting_planes import MOST_CUTS, N_POINTS, N_QUERIED, Cut

KEPT = 4  # snapshots and proposals of a peer, and costed proposals in a record
NUMBERS_PER_INCARNATION = 1 << 40  # a peer that restarts numbers its records above all that it sent before
MOST_INCARNATIONS = 1 << 22  # beyond which numbers would not fit into 63 bits
LAST_TICK = NUMBERS_PER_INCARNATION // 2  # whoever names a later one would lead others into the next incarnation
_MAX_CORRELATION = 1 + 1e-3  # of two features; the excess is rounding
_LEAST_SINGLE = float(np.finfo(np.float32).smallest_subnormal)

Digest = tuple[int, int]


def tick_of(number: int) -> int:
    """The tick in which a record or message of this number was sent."""
    return number % NUMBERS_PER_INCARNATION - 1


def digest_of(models: np.ndarray) -> Digest:
    """A number that identifies the models of a proposal or query.

    It has 128 bits, as two integers: with 64 bits, a proposer could find two models with one digest in an hour.
    """
    data = np.ascontiguousarray(models, dtype="<f8").tobytes()
    first, second = struct.unpack("<qq", hashlib.blake2b(data, digest_size=16).digest())
    return first, second


def incarnation_of(number: int) -> int:
    """The incarnation of the peer that sent it."""
    return number // NUMBERS_PER_INCARNATION


class Moments(NamedTuple):
    """Second moments of the rows of a peer, from which all peers compute the same metric."""

    peer: int
    number: int
    total: float  # of the weights of its rows
    moment: np.ndarray  # the upper triangle of a matrix of order d, row by row, or its diagonal
    signature: bytes = b""


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
    signature: bytes = b""


class Proposal(NamedTuple):
    """A model whose objective all peers compute together."""

    peer: int
    number: int
    model: np.ndarray
    signature: bytes = b""


class HingeCosts(NamedTuple):
    """The hinge losses of one peer's rows for the last proposals of another."""

    peer: int
    number: int
    proposer: int
    data_version: int  # of its rows
    total: float  # of the weights of its rows
    proposals: np.ndarray  # their numbers, the newest first
    costs: np.ndarray  # upper bounds of hinge sums, (proposals, problems)
    digests: np.ndarray  # of the proposals, (proposals, 2)
    signature: bytes = b""


class Query(NamedTuple):
    """Models at which new cuts are wanted, and weights to combine the known ones."""

    peer: int
    number: int
    models: np.ndarray  # (3, problems, d)
    owners: np.ndarray  # of the cuts that have a weight
    cuts: np.ndarray  # their numbers
    weights: np.ndarray  # (cuts, problems)
    signature: bytes = b""


class Answer(NamedTuple):
    """The answer of one peer, from its rows, to a query of another."""

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
    digest: Digest  # of the models of the query
    signature: bytes = b""


Statement = Moments | Snapshot | Proposal | HingeCosts | Query | Answer


class Accusation(NamedTuple):
    """Records of a member that contradict each other (``claims``): all exclude it. Anyone may pass this on."""

    peer: int  # the member that is accused
    number: int  # 1: the first accusation is as good as any other
    evidence: tuple[Statement, ...]


Record = Statement | Accusation
# In the order of their wire codes.
KINDS: tuple[type, ...] = (Moments, Snapshot, Proposal, HingeCosts, Query, Answer, Accusation)
MOST_EVIDENCE = 3
Kind = TypeVar("Kind", Moments, Snapshot, Proposal, HingeCosts, Query, Answer)
About = tuple[int, int, Digest]  # proposer, number and digest of a proposal or query


def n_bytes_of(record: Record | Cut) -> int:
    """Bytes of the numbers and the signature in a record."""
    if isinstance(record, Accusation):
        return 16 + sum(n_bytes_of(each) for each in record.evidence)
    return sum(
        n_bytes_of(value)
        if isinstance(value, Cut)
        else value.nbytes
        if isinstance(value, np.ndarray)
        else len(value)
        if isinstance(value, bytes)
        else 8 * len(value)
        if isinstance(value, tuple)
        else 8
        for value in record
    )


def cuts_in(record: Snapshot | Answer) -> list[tuple[int, Cut]]:
    """The cuts in a record, with the numbers that their peer gave them.

    The combination is one of them: those that it is made of may be dropped, and the bound is not lost.
    """
    cuts = [record.dual] if isinstance(record, Snapshot) else [record.combined]
    cuts += [] if isinstance(record, Snapshot) else [Cut(*each) for each in zip(*record.cuts, strict=True)]
    first = 2 * (N_QUERIED + 1) * tick_of(record.number) + (0 if isinstance(record, Snapshot) else N_QUERIED + 1)
    return list(enumerate(cuts, first))


def is_sound(record: Record, model: np.ndarray, moment: np.ndarray | None) -> bool:
    """Whether all arrays of a record are finite, and of the shapes that follow from these two."""
    if record.peer < 0 or record.number < 0 or tick_of(record.number) > LAST_TICK:
        return False
    if isinstance(record, Accusation):
        return 0 < len(record.evidence) <= MOST_EVIDENCE and all(
            not isinstance(each, Accusation) and is_sound(each, model, moment) for each in record.evidence
        )
    if isinstance(record, Moments):
        is_whole = moment is not None and _is_amount(record.total) and is_finite(record.moment, moment.shape)
        return is_whole and _is_moment(record.moment, model.shape[1])
    if isinstance(record, Proposal):
        return is_finite(record.model, model.shape)
    if isinstance(record, HingeCosts):
        n = len(record.proposals) if _is_list_of_integers(record.proposals) else -1
        is_whole = 0 < n <= KEPT and is_finite(record.costs, (n, len(model)))
        is_whole = is_whole and isinstance(record.digests, np.ndarray) and record.digests.dtype.kind == "i"
        is_whole = is_whole and record.digests.shape == (n, 2)
        return is_whole and _is_amount(record.total) and isinstance(record.data_version, int)
    if isinstance(record, Query):
        n = len(record.cuts) if _is_list_of_integers(record.cuts) else -1
        is_whole = is_finite(record.models, (N_QUERIED, *model.shape)) and is_finite(record.weights, (n, len(model)))
        is_whole = is_whole and _is_list_of_integers(record.owners) and len(record.owners) == n
        return is_whole and bool(record.weights.min(initial=0.0) >= 0) and _are_cuts(record.owners, record.cuts)
    if not (_is_amount(record.total) and isinstance(record.data_version, int)):
        return False
    if isinstance(record, Answer):
        n_points = N_POINTS, len(model)
        are_costs = is_finite(record.costs, n_points) and is_finite(record.allowances, n_points)
        return are_costs and _is_cut(record.combined, model.shape) and _is_cut(record.cuts, (N_QUERIED, *model.shape))
    return (
        _is_amount(record.rho)
        and record.rho > 0
        and record.gap >= 0  # may be infinite
        and record.tick <= tick_of(record.number)  # a later one would push those of others out of the table
        and _is_list_of_integers(record.neighbours)
        and len(np.unique(record.neighbours)) == len(record.neighbours)
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


def _are_cuts(owners: np.ndarray, cuts: np.ndarray) -> bool:
    """Whether these may be cuts that peers have: each is named once, and they are not too many of one peer."""
    order = np.lexsort((cuts, owners))
    owners, cuts = owners[order], cuts[order]
    is_twice = (owners[1:] == owners[:-1]) & (cuts[1:] == cuts[:-1])
    return not is_twice.any() and not (owners[MOST_CUTS:] == owners[:-MOST_CUTS]).any()


def _is_amount(value: float) -> bool:
    return 0 <= value < math.inf


def _is_list_of_integers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i"


def rows_of(record: Snapshot | HingeCosts | Answer) -> tuple[int, int]:
    """Identifies the rows that a record is about, at its peer."""
    return incarnation_of(record.number), record.data_version
