"""A member that is excluded: nothing that it said counts, and the others certify the optimum of their own rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.networks import Network, assert_brackets, chords, even, overlapping_rows, split
from widemargin.peers.records import Moments

N = 6
X, CODES = overlapping_rows(120)
PARTS = split(X, CODES, even(120, N))


def certified(network, members, tol=1e-3, ticks=400):
    """Ticks until all of these have certified ``tol`` for each other; every bracket on the way is true."""
    exact = network.optima(members)
    for tick in range(ticks):
        network.go()
        proofs = [network.peers[k].proof for k in members]
        for proof in proofs:
            if proof is not None and proof.members == set(members):
                assert_brackets(proof, exact)
        if all(p is not None and p.members == set(members) and p.worst.relative <= tol for p in proofs):
            return tick
    raise AssertionError(f"not certified after {ticks} ticks: {proofs}")


@pytest.mark.parametrize(("solver", "tol"), [("admm", 1e-3), ("push-sum", 0.05)])  # push-sum converges slowly
@pytest.mark.parametrize("excluded", [0, 3])  # 0 has the lowest number: it proposes and asks
def test_the_others_certify_their_own_optimum_while_the_excluded_one_goes_on_talking(excluded, solver, tol):
    network = Network(PARTS, chords(N), solver=solver).go(40)
    others = [k for k in range(N) if k != excluded]
    assert all(network.peers[k].proof.members == set(range(N)) for k in others)
    for k in others:
        network.peers[k].exclude(excluded)
        assert network.peers[k].proof is None
    certified(network, others, tol, 2000)
    for k in others:
        peer = network.peers[k]
        assert excluded not in peer.neighbours
        assert all(excluded not in newest for newest in peer.table.newest.values())
        assert excluded not in peer.table.cuts.by_peer


def test_one_after_another_excludes_and_records_of_the_excluded_do_not_come_back():
    network = Network(PARTS, chords(N)).go(30)
    del network.peers[0]
    for k in range(1, N):
        network.peers[k].exclude(0)
        network.go(7)  # meanwhile the others still pass its records on
        assert 0 not in network.peers[k].table.newest[Moments]
    certified(network, list(range(1, N)))
    metrics = [network.peers[k].algorithm.metric for k in range(1, N)]
    assert all(np.array_equal(metric, metrics[0]) for metric in metrics)


def test_excluding_twice_changes_nothing_and_no_peer_excludes_itself():
    network = Network(PARTS, chords(N)).go(30)
    peer = network.peers[1]
    peer.exclude(2)
    network.go(20)
    before = peer.table.members
    peer.exclude(2)
    assert peer.table.members is before
    peer.add_neighbour(2)
    assert 2 not in peer.neighbours
    with pytest.raises(ValueError, match="cannot exclude itself"):
        peer.exclude(1)
