"""Members that lie: each is a change of the records that a peer announces about itself."""

from __future__ import annotations

import numpy as np

from widemargin.peers.cutting_planes import Cut
from widemargin.peers.records import Answer, HingeCosts, Snapshot


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
