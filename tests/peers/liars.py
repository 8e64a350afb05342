"""Members that lie, in what they announce about themselves, in what they write to neighbours, or in what they do.

``LIES`` are contradicted by records sooner or later. The others are not: such members are revoked by who runs the
network.
"""

from __future__ import annotations

import numpy as np

from widemargin.peers.cutting_planes import Cut
from widemargin.peers.records import Answer, HingeCosts, Moments, Proposal, Query, Snapshot


def low_costs(record, rng):
    """States a hundredth of its losses: its share of the objective looks small."""
    return record._replace(costs=0.01 * record.costs) if isinstance(record, HingeCosts | Answer) else record


def infeasible(record, rng):
    """States dual variables beyond the weights of its rows, which raises the lower bound."""
    if not isinstance(record, Snapshot):
        return record
    return record._replace(dual=record.dual._replace(sums=record.dual.sums + 2 * record.total))


def other_weights(record, rng):
    """States another weight in every snapshot."""
    return record._replace(total=record.total * rng.uniform(0.5, 2.0)) if isinstance(record, Snapshot) else record


def heavy(record, rng):
    """States a thousand times the weight of its rows."""
    return record._replace(total=1e3 * record.total) if hasattr(record, "total") else record


def garbage(record, rng):
    """States cuts of random numbers, some of them huge."""
    if not isinstance(record, Snapshot):
        return record
    dual = record.dual
    vectors = rng.normal(size=dual.vectors.shape) * 10.0 ** rng.uniform(-3, 30)
    return record._replace(dual=Cut(rng.uniform(0, record.total, size=dual.sums.shape), vectors, dual.errors))


LIES = {lie.__name__: lie for lie in (low_costs, infeasible, other_weights, heavy, garbage)}


def make_liar(peer, lie, seed=0):
    """Let a peer announce changed records."""
    rng, announce = np.random.default_rng(seed), peer._announce
    peer._announce = lambda record: announce(lie(record, rng))


# -- records that nothing contradicts ----------------------------------------------------------------------------------


class Stale:
    """Says for ever what it said at first, under new numbers."""

    def __init__(self):
        self._first = {}

    def __call__(self, record, rng):
        return self._first.setdefault(type(record), record)._replace(number=record.number)


def huge_models(record, rng):
    """States models, proposals and queries beyond all measure."""
    match record:
        case Snapshot() | Proposal():
            return record._replace(model=rng.choice([-1e200, 1e200], size=record.model.shape))
        case Query():
            return record._replace(models=rng.choice([-1e200, 1e200], size=record.models.shape))
    return record


def useless_queries(record, rng):
    """Asks for cuts at random points, and proposes them."""
    match record:
        case Proposal():
            return record._replace(model=rng.normal(size=record.model.shape))
        case Query():
            models, weights = rng.normal(size=record.models.shape), rng.random(record.weights.shape)
            return record._replace(models=models, weights=weights)
    return record


def extreme_rho(record, rng):
    """Suggests a penalty parameter of another order of magnitude each time."""
    return record._replace(rho=10.0 ** rng.uniform(-300, 300)) if isinstance(record, Snapshot) else record


def strangers(record, rng):
    """Names neighbours that are not there: nobody knows what they have."""
    if not isinstance(record, Snapshot):
        return record
    return record._replace(neighbours=np.append(record.neighbours, rng.integers(100, 200, size=3)))


def restless(record, rng):
    """Has other rows in every record."""
    return record._replace(data_version=int(rng.integers(1 << 60))) if hasattr(record, "data_version") else record


def late_snapshots(record, rng):
    """Names a tick to come, which would push the snapshots of others out of the table."""
    return record._replace(tick=record.tick + 10**6) if isinstance(record, Snapshot) else record


UNPROVED = {
    "stale": Stale,
    **{
        lie.__name__: lambda lie=lie: lie
        for lie in (huge_models, useless_queries, extreme_rho, strangers, restless, late_snapshots)
    },
}


# -- messages to neighbours, which are not records ---------------------------------------------------------------------

PAYLOADS = {
    "random": lambda values, rng: 10.0 * rng.normal(size=values.shape),
    "huge": lambda values, rng: 1e30 * rng.normal(size=values.shape),
    "extreme": lambda values, rng: rng.choice([-1e300, 1e300], size=values.shape),
    "constant": lambda values, rng: np.full(values.shape, 7.0),
    "flipped": lambda values, rng: -values,
    "stale": None,  # the first ones for ever
}


def make_garbler(peer, name, seed=0):
    """Let a peer write something else to its neighbours; its records are honest."""
    rng, payload, first = np.random.default_rng(seed), peer.algorithm.payload, {}
    change = PAYLOADS[name]

    def garbled(to):
        head, values = np.split(payload(to), [1])
        return np.concatenate([head, first.setdefault(to, values) if change is None else change(values, rng)])

    peer.algorithm.payload = garbled


# -- other behaviour ---------------------------------------------------------------------------------------------------


def jump(peer, rng):
    """Its ticks run a million times faster than those of others."""
    peer.ticks += 10**6


def change_moments(peer, rng):
    """States other second moments in each tick, most of them huge."""
    own: Moments = peer.algorithm.moments(peer.number, peer._number)
    peer._announce(own._replace(moment=own.moment * np.float32(10.0 ** rng.uniform(0, 30))))


def do_nothing(peer, rng):
    """Neither proposes nor asks, though it is its turn."""
    peer._propose = peer._query = lambda: None


BEHAVIOURS = {each.__name__: each for each in (jump, change_moments, do_nothing)}


def make_nuisance(peer, name, seed=0):
    """Let a peer do something before each tick."""
    rng, tick = np.random.default_rng(seed), peer.tick

    def disturbed():
        BEHAVIOURS[name](peer, rng)
        return tick()

    peer.tick = disturbed
